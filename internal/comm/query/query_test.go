//go:build linux

package query

import (
	"database/sql"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sallyport.example/internal/fault"
)

func TestNew(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                                   "unknown kind",
		"mysql://u:hunter2@h/db":             "unknown kind",
		"/plain/path":                        "unknown kind",
		"postgres://u:hunter2":               "can't be read",
		"postgres://u:hunter2%zz@h/db":       "can't be read",
		"postgres://u:hunter2@h:port/db":     "can't be read",
		"postgres://u:hunter2@h/db?sslmode=": "",
		"sqlite:relative.db":                 "not absolute",
		"sqlite::memory:":                    "not absolute",
		"sqlite:":                            "not absolute",
		"sqlite:/a\x00b":                     "not absolute",
		"file:relative.db":                   "can't be read",
		"file:///a?mode=rw":                  "can't be read",
		"file://host/a":                      "can't be read",
		"file:/a%00":                         "not absolute",
		"file:///a/b.db":                     "",
		"sqlite:/a?mode=rw":                  "", // a question mark is part of the name
	} {
		_, err := New(Options{Databases: map[string]string{"crm": dsn}})
		switch {
		case want == "" && err != nil:
			if !strings.Contains(dsn, "sslmode=") {
				t.Errorf("%q: %v", dsn, err)
			}
		case want != "" && (!fault.Is(err, fault.ConfigurationInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "crm")):
			t.Errorf("%q: %v", dsn, err)
		}
		if err != nil && strings.Contains(err.Error()+fault.Of(err).Public(), "hunter2") {
			t.Errorf("%q: %v holds the password", dsn, err)
		}
	}
}

func TestUnknownDatabase(t *testing.T) {
	d := open(t, Options{Databases: map[string]string{"erp": "sqlite:/none/a.db", "crm": "sqlite:/none/b.db"}})
	if ids := d.IDs(); !slices.Equal(ids, []string{"crm", "erp"}) {
		t.Error(ids)
	}
	_, err := d.Query(t.Context(), "x\x1b", "SELECT 1", nil)
	if e := fault.Of(err); e.Code != fault.RequestMalformed || e.Field != "database" || e.Remedy != "There are: crm, erp." || strings.Contains(e.Message, "\x1b") {
		t.Errorf("%+v", e)
	}
	if _, err := d.Schema(t.Context(), "x"); !fault.Is(err, fault.RequestMalformed) {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Query(t.Context(), "crm", "SELECT 1", nil); !fault.Is(err, fault.UpstreamFailed) {
		t.Error(err)
	}
}

func TestParams(t *testing.T) {
	d := open(t, Options{Databases: map[string]string{"crm": "sqlite:/none/b.db"}})
	for _, c := range []struct {
		params []any
		field  string
	}{
		{[]any{nil, true, "x", json.Number("-1.5E+3")}, ""},
		{[]any{1}, "parameters[0]"}, {[]any{nil, 1.5}, "parameters[1]"}, {[]any{[]any{}}, "parameters[0]"}, {[]any{map[string]any{}}, "parameters[0]"},
		{[]any{"a\x00b"}, "parameters[0]"}, {[]any{json.Number("NaN")}, "parameters[0]"}, {[]any{json.Number("")}, "parameters[0]"}, {[]any{json.Number("1; DROP")}, "parameters[0]"},
		{[]any{json.Number("01")}, "parameters[0]"}, {[]any{json.Number("1.")}, "parameters[0]"}, {[]any{json.Number("0x1")}, "parameters[0]"},
		{[]any{strings.Repeat("x", paramMax+1)}, "parameters[0]"}, {make([]any, paramsMax+1), "parameters"},
	} {
		_, err := d.Query(t.Context(), "crm", "SELECT 1", c.params)
		if e := fault.Of(err); e.Field != c.field || (c.field == "") != (e.Code == fault.UpstreamFailed) {
			t.Errorf("%.50v: %v", c.params, err)
		}
	}
}

// jsonSize is never less than what encoding/json writes.
func TestJSONSize(t *testing.T) {
	for _, v := range []any{"", "a", "\"\\\n\x01<>&\u2028é\ufffd😀", strings.Repeat("\x00", 100), "\x7f", json.Number("-1e300"), -math.MaxFloat64, 5e-324, 1.0 / 3, true, nil} {
		b, err := json.Marshal(v)
		if err != nil || jsonSize(v) < len(b) {
			t.Errorf("%q: %d, is %d (%v)", v, jsonSize(v), len(b), err)
		}
	}
}

// Whatever the text, nothing is written and the connection stays of use.
func FuzzSQLite(f *testing.F) {
	path, db := liteFile(f, "DELETE")
	db.Close()
	d := openLite(f, path, Options{Timeout: 200 * time.Millisecond, Rows: 10})
	before := liteState(f, path)
	for _, s := range []string{"SELECT * FROM item", "SELECT 1; DELETE FROM item", "VACUUM INTO 'x'", "WITH a AS (SELECT 1) SELECT * FROM a -- ;", "PRAGMA user_version=1",
		"ATTACH 'x' AS y", "SELECT ?1, :a, @b, $c", "SELECT trim('äx', 'x'), replace('a', 'b', 'c'), instr('a', x'00')", "SELECT body FROM words WHERE words MATCH 'a NEAR b'"} {
		f.Add(s, "p", "1")
	}
	f.Fuzz(func(t *testing.T, sql, text, number string) {
		for _, params := range [][]any{nil, {text}, {json.Number(number), nil}} {
			r, err := d.Query(t.Context(), "lite", sql, params)
			if err != nil && (fault.Of(err).Code == fault.Internal || strings.Contains(err.Error(), filepath.Dir(path))) {
				t.Fatal(err)
			}
			if err == nil {
				if _, err := json.Marshal(r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if after := liteState(t, path); after != before {
			t.Fatalf("changed:\n%s\n%s", before, after)
		}
	})
}

func BenchmarkSQLite(b *testing.B) {
	path, db := liteFile(b, "WAL")
	b.Run("query", func(b *testing.B) {
		d := openLite(b, path, Options{})
		for b.Loop() {
			if _, err := d.Query(b.Context(), "lite", "SELECT id, name FROM item WHERE id = ?", []any{json.Number("7")}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plain", func(b *testing.B) { benchPlain(b, db) })
}

func benchPlain(b *testing.B, db *sql.DB) {
	for b.Loop() {
		var id int
		var name string
		if err := db.QueryRowContext(b.Context(), "SELECT id, name FROM item WHERE id = ?", 7).Scan(&id, &name); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPostgres(b *testing.B) {
	b.Run("query", func(b *testing.B) {
		d := openPostgres(b, "reader", Options{})
		for b.Loop() {
			if _, err := d.Query(b.Context(), "pg", "SELECT id, name FROM item WHERE id = $1", []any{json.Number("7")}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		c, err := pgconn.Connect(b.Context(), address(postgresDir(b), "reader"))
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close(b.Context())
		for b.Loop() {
			if r := c.ExecParams(b.Context(), "SELECT id, name FROM item WHERE id = $1", [][]byte{[]byte("7")}, nil, nil, nil).Read(); r.Err != nil || string(r.Rows[0][0]) != "7" {
				b.Fatal(r.Err)
			}
		}
	})
}
