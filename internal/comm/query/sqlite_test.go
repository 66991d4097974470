//go:build linux

package query

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"modernc.org/libc"
	_ "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"sallyport.example/internal/fault"
)

// liteFile makes a database file; it returns its path and a connection that may write.
func liteFile(t testing.TB, journal string) (string, *sql.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a b?c.db")
	db, err := sql.Open("sqlite", "file:"+strings.ReplaceAll(strings.ReplaceAll(path, "?", "%3f"), " ", "%20")+"?_pragma=journal_mode("+journal+")")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, s := range []string{
		`CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL, raw BLOB, any, ok BOOLEAN, made DATETIME)`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
			INSERT INTO item SELECT i, 'item ' || i, i * 1.5, x'00ff', CASE i % 3 WHEN 0 THEN 'a' WHEN 1 THEN 1 ELSE x'41' END, i % 2, '2026-01-02 03:04:05' FROM n`,
		`CREATE VIEW cheap AS SELECT id, name FROM item WHERE price < 10`,
		`CREATE VIEW late AS SELECT pragma_user_version FROM pragma_user_version`,
		`CREATE TRIGGER t INSTEAD OF DELETE ON cheap BEGIN DELETE FROM item; END`,
		`CREATE TABLE my_node (x)`,
		`CREATE VIRTUAL TABLE words USING fts5(body)`, `INSERT INTO words VALUES ('the quick brown fox'), ('a lazy dog')`,
		`CREATE VIRTUAL TABLE area USING rtree(id, x0, x1)`, `INSERT INTO area VALUES (1, 0, 10), (2, 20, 30)`,
	} {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return path, db
}

func openLite(t testing.TB, path string, o Options) *Databases {
	t.Helper()
	o.Databases = map[string]string{"lite": "sqlite:" + path}
	return open(t, o)
}

// liteState is every file beside the database, with its bytes.
func liteState(t testing.TB, path string) string {
	t.Helper()
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&s, "%s %x\n", f.Name(), sha256.Sum256(b))
	}
	return s.String()
}

func TestSQLiteAttacks(t *testing.T) {
	path, db := liteFile(t, "DELETE")
	db.Close()
	d := openLite(t, path, Options{Timeout: 2 * time.Second, Rows: 50})
	other := filepath.Join(filepath.Dir(path), "other.db")
	before := liteState(t, path)
	const any = fault.Code("")
	for _, c := range []struct {
		sql  string
		want fault.Code
	}{
		{"INSERT INTO item(id, name) VALUES (-1, 'x')", fault.PermissionDenied},
		{"INSERT INTO item(id, name) VALUES (-1, 'x') RETURNING id", fault.PermissionDenied},
		{"REPLACE INTO item(id, name) VALUES (1, 'x')", fault.PermissionDenied},
		{"UPDATE item SET name = 'x'", fault.PermissionDenied},
		{"DELETE FROM item", fault.PermissionDenied},
		{"DELETE FROM cheap", fault.RequestMalformed},
		{"WITH w AS (SELECT 1) DELETE FROM item", fault.PermissionDenied},
		{"WITH w AS (DELETE FROM item RETURNING *) SELECT * FROM w", fault.RequestMalformed},
		{"CREATE TABLE evil (x)", fault.PermissionDenied},
		{"CREATE TABLE evil AS SELECT 1", fault.PermissionDenied},
		{"CREATE TEMP TABLE evil (x)", fault.PermissionDenied},
		{"CREATE TEMP VIEW evil AS SELECT 1", fault.PermissionDenied},
		{"CREATE TEMP TRIGGER evil AFTER INSERT ON item BEGIN SELECT 1; END", fault.PermissionDenied},
		{"CREATE VIRTUAL TABLE temp.evil USING fts5(x)", fault.PermissionDenied},
		{"CREATE VIRTUAL TABLE evil USING rtree(id, a, b)", fault.PermissionDenied},
		{"DROP TABLE item", fault.PermissionDenied},
		{"ALTER TABLE item RENAME TO evil", fault.PermissionDenied},
		{"REINDEX", any},
		{"ANALYZE", fault.PermissionDenied},
		{"VACUUM", fault.PermissionDenied},
		{"VACUUM INTO '" + other + "'", fault.PermissionDenied},
		{"ATTACH '" + other + "' AS o", fault.PermissionDenied},
		{"ATTACH ':memory:' AS o", fault.PermissionDenied},
		{"DETACH main", fault.PermissionDenied},
		{"BEGIN IMMEDIATE", fault.PermissionDenied},
		{"COMMIT", fault.PermissionDenied},
		{"SAVEPOINT s", fault.PermissionDenied},
		{"PRAGMA query_only = 0", fault.PermissionDenied},
		{"PRAGMA writable_schema = 1", fault.PermissionDenied},
		{"PRAGMA journal_mode = WAL", fault.PermissionDenied},
		{"PRAGMA user_version = 7", fault.PermissionDenied},
		{"PRAGMA database_list", fault.PermissionDenied},
		{"PRAGMA table_info(item)", fault.PermissionDenied},
		{"PRAGMA data_version", fault.PermissionDenied},
		{"PRAGMA temp_store_directory = '/tmp'", any},
		{"PRAGMA hard_heap_limit = 1", fault.PermissionDenied},
		{"PRAGMA nonsense", any},
		{"SELECT * FROM pragma_database_list", fault.PermissionDenied},
		{"SELECT * FROM pragma_table_info('item')", fault.PermissionDenied},
		{"SELECT * FROM pragma_function_list", fault.PermissionDenied},
		{"SELECT * FROM late", fault.RequestMalformed},
		{"EXPLAIN DELETE FROM item", fault.PermissionDenied},
		{"EXPLAIN SELECT 1", fault.PermissionDenied},
		{"EXPLAIN QUERY PLAN SELECT 1", fault.PermissionDenied},
		// several statements
		{"SELECT 1; DELETE FROM item", fault.PermissionDenied},
		{"SELECT 1; SELECT 2", fault.PermissionDenied},
		{"SELECT 1; nonsense", fault.PermissionDenied},
		{"SELECT 1; /* c */ -- d\n ; DELETE FROM item", fault.PermissionDenied},
		{"; DELETE FROM item", fault.PermissionDenied},
		{"SELECT 1 ;PRAGMA query_only = 0; DELETE FROM item", fault.PermissionDenied},
		{"SELECT 1;'", fault.PermissionDenied},
		{"SELECT 1; /* unterminated", any},
		{"SELECT 1\x00; DELETE FROM item", fault.RequestMalformed},
		{"SELECT 1) AS q; DELETE FROM item; SELECT * FROM (SELECT 1", fault.RequestMalformed},
		// functions and tables that reach around
		{"SELECT load_extension('/tmp/evil.so')", fault.PermissionDenied},
		{"SELECT LOAD_extension('/tmp/evil.so', 'x')", fault.PermissionDenied},
		{"SELECT readfile('/etc/passwd')", fault.RequestMalformed},
		{"SELECT writefile('" + other + "', 'x')", fault.RequestMalformed},
		{"SELECT edit('x')", fault.RequestMalformed},
		{"SELECT fts3_tokenizer('x', x'4141414141414141')", any},
		{"SELECT * FROM fsdir('/')", fault.RequestMalformed},
		{"SELECT hex(data) FROM sqlite_dbpage", fault.PermissionDenied},
		{"SELECT * FROM dbstat", fault.PermissionDenied},
		{"INSERT INTO sqlite_dbpage VALUES (1, x'00')", fault.PermissionDenied},
		{"INSERT INTO words(words) VALUES ('rebuild')", fault.PermissionDenied},
		{"SELECT * FROM words('x', 'y', 'z', 'w')", any},
		// size and time
		{"SELECT zeroblob(1000000000)", fault.ResultTooLarge},
		{"SELECT length(zeroblob(1000000000))", fault.ResultTooLarge},
		{"SELECT hex(randomblob(2000000000))", fault.ResultTooLarge},
		{"SELECT printf('%.*c', 1000000000, 'x')", fault.ResultTooLarge},
		{"SELECT printf('%1000000000d', 1)", fault.ResultTooLarge},
		{"SELECT replace(hex(zeroblob(400000)), '0', 'xxxxxxxxxx')", fault.ResultTooLarge},
		{"SELECT group_concat(hex(zeroblob(10000)) || id) FROM item", fault.ResultTooLarge},
		{"WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT 1 FROM r) SELECT count(*) FROM r", fault.TimeExceeded},
		{"WITH RECURSIVE r(i) AS (SELECT 1 UNION SELECT i + 1 FROM r) SELECT count(*) FROM r", any},
		{"SELECT count(*) FROM item a, item b, item c", fault.TimeExceeded},
		{"SELECT 1 WHERE hex(zeroblob(400000)) LIKE '" + strings.Repeat("%0", 120) + "1'", any},
		{"SELECT 1 WHERE 'a' LIKE '" + strings.Repeat("%", 300) + "'", fault.RequestMalformed},
		{"SELECT " + strings.Repeat("(", 3000) + "1" + strings.Repeat(")", 3000), fault.RequestMalformed},
		{"SELECT " + strings.Repeat("1+", 3000) + "1", fault.RequestMalformed},
		{"SELECT 1" + strings.Repeat(" UNION ALL SELECT 1", 300), fault.RequestMalformed},
		{"SELECT 1" + strings.Repeat(",1", columnMax), fault.RequestMalformed},
		{"SELECT " + strings.Repeat(" ", sqlMax), fault.RequestMalformed},
		{"SELECT trim(hex(zeroblob(500000)), hex(randomblob(400000)) || 'x0')", any},
		{"SELECT ltrim(printf('%.*c', 1000000, 'a'), printf('%.*c', 80000, 'b') || 'a')", any},
		{"SELECT json_patch('{}', '{}')", fault.PermissionDenied},
		{"SELECT json_pretty('[[1]]', 'xxx')", fault.PermissionDenied},
		{"SELECT geopoly_area('[[0,0],[1,1],[0,1],[0,0]]')", fault.PermissionDenied},
		{"SELECT sqlite_log(1, 'x')", fault.PermissionDenied},
		{"DELETE FROM my_node RETURNING x", fault.PermissionDenied},
		{"DELETE FROM area_node", fault.RequestMalformed},
		{"UPDATE area SET x0 = 5", fault.PermissionDenied},
		{"SELECT replace(printf('%.*c', 1000000, 'a'), printf('%.*c', 500000, 'a') || 'b', '')", any},
		{"SELECT instr(printf('%.*c', 1000000, 'a'), printf('%.*c', 500000, 'a') || 'b')", any},
		{"SELECT unhex(printf('%.*c', 900000, 'z'), printf('%.*c', 900000, 'y') || 'z')", any},
		{"SELECT printf('%.*c', 1000000, 'a') GLOB '" + strings.Repeat("*a", 120) + "b'", any},
		{"SELECT percentile(id, 50) FROM item", any},
	} {
		start := time.Now()
		r, err := d.Query(t.Context(), "lite", c.sql, nil)
		name := c.sql[:min(len(c.sql), 100)]
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		if c.want != any && !fault.Is(err, c.want) {
			t.Errorf("%s: %+v, %v; want %s", name, r, err, c.want)
		}
		if err != nil && (fault.Of(err).Code == fault.Internal || strings.Contains(err.Error(), filepath.Dir(path)) && !strings.Contains(c.sql, other)) {
			t.Errorf("%s: %v", name, err)
		}
		if after := liteState(t, path); after != before {
			t.Fatalf("%s changed a file:\n%s\n%s", name, before, after)
		}
		if r, err := d.Query(t.Context(), "lite", "SELECT count(*), sum(id) FROM item", nil); err != nil || fmt.Sprint(r.Rows) != "[[2000 2001000]]" {
			t.Fatalf("after %s: %v %v", name, r, err)
		}
	}
}

func TestSQLiteValues(t *testing.T) {
	path, _ := liteFile(t, "DELETE")
	d := openLite(t, path, Options{})
	for _, c := range []struct {
		sql    string
		params []any
		types  string
		want   string
	}{
		{"SELECT id, name, price, raw, any, ok, made FROM item WHERE id IN (?, ?2) ORDER BY 1", []any{json.Number("2"), json.Number("3")}, "integer,text,real,blob,blob|text,boolean,datetime",
			`[[2,"item 2",3,"AP8=","QQ==",0,"2026-01-02 03:04:05"],[3,"item 3",4.5,"AP8=","a",1,"2026-01-02 03:04:05"]]`},
		{"SELECT ?, ?, ?, ?, ?", []any{json.Number("9007199254740993"), true, "'; DELETE FROM item; --", nil, json.Number("1.5e3")}, "integer,integer,text,,real",
			`[[9007199254740993,1,"'; DELETE FROM item; --",null,1500]]`},
		{"SELECT :name", []any{"x"}, "text", `[["x"]]`},
		{"SELECT 9e999, -9e999, x'', CAST(x'ff41' AS TEXT), 'a' || char(0) || 'b'", nil, "real,real,blob,text,text", `[["Infinity","-Infinity","","�A","a\u0000b"]]`},
		{"SELECT 1 AS a, 2 AS a;  -- twice\n;; /* x */", nil, "integer,integer", `[[1,2]]`},
		{"VALUES (1, 'a'), (2, 'b')", nil, "integer,text", `[[1,"a"],[2,"b"]]`},
		{"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r ORDER BY n DESC", nil, "integer", `[[3],[2],[1]]`},
		{"SELECT body FROM words WHERE words MATCH ?", []any{"fox"}, "", `[["the quick brown fox"]]`},
		{"SELECT id FROM area WHERE x0 >= 15", nil, "", `[[2]]`},
		{"SELECT value FROM json_each('[1,2]')", nil, "", `[[1],[2]]`},
		{"SELECT trim('  a '), trim('xxaxx', 'x'), ltrim('äöa', 'öä'), rtrim('abc', 'cb'), trim(NULL, 'x'), trim('x', NULL), trim('a', ''), trim(121, 1)", nil,
			"text,text,text,text,,,text,text", `[["a","a","a","a",null,null,"a","2"]]`},
		{"SELECT replace('aXbX', 'X', '--'), replace('abc', '', 'x'), replace(NULL, 'a', 'b'), replace('abc', 'b', NULL), replace(101, 0, 2)", nil, "text,text,,,text", `[["a--b--","abc",null,null,"121"]]`},
		{"SELECT instr('äbc', 'b'), instr('abc', ''), instr('abc', 'x'), instr(NULL, 'x'), instr(x'000102', x'01'), instr(1234, 3), instr('äb', x'62')", nil, "integer,integer,integer,,integer,integer,integer", `[[2,1,0,null,2,3,2]]`},
		{"SELECT unhex('41'), unhex('4x')", nil, "blob,", `[["QQ==",null]]`},
		{"SELECT 1 WHERE 0", nil, "", `[]`},
		{"SELECT name FROM cheap ORDER BY id LIMIT 1", nil, "text", `[["item 1"]]`},
	} {
		r, err := d.Query(t.Context(), "lite", c.sql, c.params)
		if err != nil {
			t.Errorf("%s: %v", c.sql, err)
			continue
		}
		got, err := json.Marshal(r.Rows)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s %v, want %s", c.sql, got, err, c.want)
		}
		var types []string
		for _, c := range r.Columns {
			types = append(types, c.Type)
		}
		if c.types != "" && strings.Join(types, ",") != c.types || r.Truncated {
			t.Errorf("%s: %v truncated=%v", c.sql, types, r.Truncated)
		}
	}
}

func TestSQLiteErrors(t *testing.T) {
	path, _ := liteFile(t, "DELETE")
	d := openLite(t, path, Options{})
	for _, c := range []struct {
		sql    string
		params []any
		code   fault.Code
		field  string
		says   string
	}{
		{"SELECT nmae FROM item", nil, fault.RequestMalformed, "sql", "no such column: nmae (at byte 8)"},
		{`SELECT "nmae" FROM item`, nil, fault.RequestMalformed, "sql", "no such column"},
		{"SELEC 1", nil, fault.RequestMalformed, "sql", "syntax error"},
		{"SELECT 'x", nil, fault.RequestMalformed, "sql", "unrecognized token"},
		{"SELECT ?", nil, fault.RequestMalformed, "parameters", "1 parameters"},
		{"SELECT 1", []any{"x"}, fault.RequestMalformed, "parameters", "0 parameters"},
		{"SELECT ?200", []any{"x"}, fault.RequestMalformed, "sql", "?1 and ?100"},
		{"SELECT ?", []any{json.Number("9223372036854775808")}, fault.RequestMalformed, "parameters[0]", "64 bits"},
		{"SELECT ?", []any{json.Number("1e999")}, fault.RequestMalformed, "parameters[0]", "too large"},
		{"-- nothing", nil, fault.RequestMalformed, "sql", "no statement"},
		{";", nil, fault.RequestMalformed, "sql", "no statement"},
		{"SELECT \x1b[31m", nil, fault.RequestMalformed, "sql", `\x1b`},
		{"SELECT json('{')", nil, fault.RequestMalformed, "sql", "malformed JSON"},
	} {
		_, err := d.Query(t.Context(), "lite", c.sql, c.params)
		e := fault.Of(err)
		if err == nil || e.Code != c.code || e.Field != c.field || !strings.Contains(e.Public(), c.says) {
			t.Errorf("%s: %v at %s", c.sql, err, e.Field)
		}
	}
}

func TestSQLiteLimits(t *testing.T) {
	path, db := liteFile(t, "DELETE")
	if _, err := db.Exec("CREATE TABLE big (id INTEGER, b BLOB); INSERT INTO big VALUES (1, zeroblob(3000000)), (2, x'01')"); err != nil {
		t.Fatal(err)
	}
	d := openLite(t, path, Options{Rows: 250, Bytes: 20_000})
	for _, c := range []struct {
		sql       string
		rows      int
		truncated bool
	}{
		{"SELECT id FROM item ORDER BY id LIMIT 250", 250, false},
		{"SELECT id FROM item ORDER BY id LIMIT 251", 250, true},
		{"SELECT hex(zeroblob(5000)) FROM item", 1, true},
		{"SELECT hex(zeroblob(15000))", 0, true},
		{"SELECT zeroblob(16000)", 0, true},
		{"SELECT replace(hex(zeroblob(2000)), '0', char(1))", 0, true},
		{"SELECT id FROM big", 2, false}, // the large value beside it does not matter
	} {
		r, err := d.Query(t.Context(), "lite", c.sql, nil)
		if err != nil {
			t.Errorf("%s: %v", c.sql, err)
			continue
		}
		if len(r.Rows) != c.rows || r.Truncated != c.truncated {
			t.Errorf("%s: %d rows, truncated=%v", c.sql, len(r.Rows), r.Truncated)
		}
		if text, err := json.Marshal(r); err != nil || len(text) > 21_000 {
			t.Errorf("%s: %d bytes, %v", c.sql, len(text), err)
		}
	}
}

func TestSQLiteSchema(t *testing.T) {
	path, _ := liteFile(t, "DELETE")
	d := openLite(t, path, Options{})
	s, err := d.Schema(t.Context(), "lite")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range s.Tables {
		names = append(names, table.Name)
	}
	if !reflect.DeepEqual(s.Tables[4], Table{Name: "cheap", Kind: "view", Columns: []Column{{"id", "integer"}, {"name", "text"}}}) || s.Truncated {
		t.Errorf("%v %+v", names, s.Tables[4])
	}
	// what the schema may ask, a query may still not
	if _, err := d.Query(t.Context(), "lite", "SELECT * FROM pragma_table_info('item')", nil); !fault.Is(err, fault.PermissionDenied) {
		t.Error(err)
	}
}

// A database that another connection writes to, with a write-ahead log, is read as it is at each query.
func TestSQLiteWAL(t *testing.T) {
	path, db := liteFile(t, "WAL")
	d := openLite(t, path, Options{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 10_000; ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := db.Exec("INSERT INTO item(id, name) VALUES (?, 'w')", i); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	last := 0
	for grew := 0; grew < 5; {
		r, err := d.Query(t.Context(), "lite", "SELECT count(*) FROM item WHERE name = 'w'", nil)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		fmt.Sscan(string(r.Rows[0][0].(json.Number)), &n)
		if n < last {
			t.Fatalf("%d after %d", n, last)
		}
		if n > last {
			grew++
		}
		last = n
	}
	close(stop)
	wg.Wait()
}

func TestSQLiteFiles(t *testing.T) {
	path, _ := liteFile(t, "DELETE")
	dir := t.TempDir()
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	dirLink := filepath.Join(dir, "dir")
	if err := os.Symlink(filepath.Dir(path), dirLink); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("root:x:0:0\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{link, dir, filepath.Join(dir, "none.db"), text, filepath.Join(dir, "none", "x.db"), "/dev/zero"} {
		d := openLite(t, p, Options{})
		_, err := d.Query(t.Context(), "lite", "SELECT 1 FROM sqlite_schema", nil)
		if !fault.Is(err, fault.UpstreamFailed) || strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v", p, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none.db")); err == nil {
		t.Error("a missing file was made")
	}
	d := openLite(t, filepath.Join(dirLink, filepath.Base(path)), Options{})
	if _, err := d.Query(t.Context(), "lite", "SELECT 1 FROM item LIMIT 1", nil); err != nil {
		t.Errorf("a directory that is a link: %v", err)
	}
	// a file that is replaced by a link while connections wait
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(text, path); err != nil {
		t.Fatal(err)
	}
	if _, err := openLite(t, path, Options{}).Query(t.Context(), "lite", "SELECT 1", nil); !fault.Is(err, fault.UpstreamFailed) {
		t.Error(err)
	}
}

// What a query collects is bounded by memory long before it is bounded by time.
func TestSQLiteMemory(t *testing.T) {
	path, _ := liteFile(t, "DELETE")
	d := openLite(t, path, Options{Timeout: 30 * time.Second})
	const many = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) "
	for _, q := range []string{
		many + "SELECT i, zeroblob(900000) FROM r ORDER BY i DESC",
		many + "SELECT count(*) FROM (SELECT DISTINCT i || hex(zeroblob(100000)) FROM r)",
		many + "SELECT length(json_group_array(hex(zeroblob(400000)))) FROM r",
		many + "SELECT length(json_group_object(i, hex(zeroblob(400000)))) FROM r",
	} {
		if r, err := d.Query(t.Context(), "lite", q, nil); !fault.Is(err, fault.ResultTooLarge) {
			t.Errorf("%s: %v %v", q, r, err)
		}
	}
	if r, err := d.Query(t.Context(), "lite", "SELECT count(*) FROM (SELECT DISTINCT name FROM item ORDER BY name)", nil); err != nil || fmt.Sprint(r.Rows) != "[[2000]]" {
		t.Error(r, err)
	}
}

// The authorizer alone would hold writes back; the file is opened for reading nevertheless.
func TestSQLiteOpensForReading(t *testing.T) {
	path, _ := liteFile(t, "DELETE")
	c, err := openLite(t, path, Options{}).byID["lite"].(*sqlite).connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	name, err := libc.CString("main")
	if err != nil {
		t.Fatal(err)
	}
	defer libc.Xfree(c.tls, name)
	if lib.Xsqlite3_db_readonly(c.tls, c.db, name) != 1 {
		t.Error("it can be written to")
	}
	lib.Xsqlite3_set_authorizer(c.tls, c.db, 0, 0)
	for _, s := range []string{"DELETE FROM item", "PRAGMA query_only = 0; DELETE FROM item", "ATTACH ':memory:' AS o", "PRAGMA writable_schema = 1; DELETE FROM sqlite_schema"} {
		if c.run(s) == lib.SQLITE_OK {
			t.Errorf("%s: ran", s)
		}
	}
}

// Whoever asks is answered when the time is over, whatever the library is doing; and there are never more late queries than connections.
func TestSQLiteLate(t *testing.T) {
	path, _ := liteFile(t, "DELETE")
	d := openLite(t, path, Options{})
	s := d.byID["lite"].(*sqlite)
	free := make(chan struct{})
	for range connections {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.with(ctx, func(*lite) error {
			cancel()
			<-free
			return nil
		})
		if !fault.Is(err, fault.TimeExceeded) {
			t.Fatal(err)
		}
	}
	before := runtime.NumGoroutine()
	for range 3 { // with 30 s of time, and at once
		if _, err := d.Query(t.Context(), "lite", "SELECT 1", nil); !fault.Is(err, fault.TimeExceeded) || !errors.Is(err, errLate) {
			t.Fatal(err)
		}
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, then %d", before, after)
	}
	close(free)
	for s.late.Load() != 0 {
		runtime.Gosched()
	}
	if _, err := d.Query(t.Context(), "lite", "SELECT 1", nil); err != nil {
		t.Error(err)
	}
	if err := s.with(t.Context(), func(*lite) error { panic("x") }); !fault.Is(err, fault.UpstreamFailed) {
		t.Error(err)
	}
}

// What one connection holds is not taken from another's bound, and what it gave back is free again.
func TestSQLiteMemoryIsCountedByConnection(t *testing.T) {
	path, _ := liteFile(t, "DELETE")
	s := openLite(t, path, Options{}).byID["lite"].(*sqlite)
	var both [2]*lite
	for i := range both {
		c, err := s.connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		c.allow(memoryMax)
		both[i] = c
	}
	a, b := both[0], both[1]
	before := b.used
	p := lib.Xsqlite3_malloc(a.tls, memoryMax-1000)
	if p == 0 || a.full || a.used < memoryMax-1000 || b.used != before {
		t.Fatal(p, a.account, b.account)
	}
	if lib.Xsqlite3_malloc(a.tls, 2000) != 0 || !a.full {
		t.Error("more than the bound was given")
	}
	if q := lib.Xsqlite3_realloc(a.tls, p, memoryMax+1000); q != 0 {
		t.Error("more than the bound was given")
	}
	if q := lib.Xsqlite3_malloc(b.tls, memoryMax/2); q == 0 || b.full {
		t.Error("a neighbour's memory was counted")
	} else if q = lib.Xsqlite3_realloc(b.tls, q, 1000); q == 0 || b.used > before+2000 {
		t.Error(b.used - before)
	} else {
		lib.Xsqlite3_free(b.tls, q)
	}
	lib.Xsqlite3_free(a.tls, p)
	if b.used != before || a.used > before+10_000 {
		t.Error(a.used, b.used, before)
	}
}
