//go:build linux

package query

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func boundedDatabases(t *testing.T, timeout time.Duration) *Databases {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE t (x)"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	d, err := New(Options{Databases: map[string]string{"a": "sqlite:" + path}, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// A sort is one step of SQLite's machine, and none of its time limits reach into a step: what it may hold has to be so little that sorting
// it takes no time.
func TestSortEndsWithItsTime(t *testing.T) {
	var columns, order []string
	for i := range 250 {
		columns = append(columns, fmt.Sprintf("x*0 AS c%d", i)) // all the same, so that each comparison looks at all of them
		order = append(order, fmt.Sprintf("c%d", i))
	}
	for name, q := range map[string]string{
		"wide":   "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM r LIMIT 100000) SELECT " + strings.Join(columns, ",") + " FROM r ORDER BY " + strings.Join(order, ",") + ", random()",
		"narrow": "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM r LIMIT 3000000) SELECT x FROM r ORDER BY random()",
	} {
		t.Run(name, func(t *testing.T) {
			d := boundedDatabases(t, 2*time.Second)
			start := time.Now()
			_, err := d.Query(t.Context(), "a", q, nil)
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("with 2 s it took %s: %v", took, err)
			}
		})
	}
}

// What is undone was still written: a statement that "only reads" must not fill the server's disk with large objects or with its log.
func TestReadsWriteNothingToTheServersDisk(t *testing.T) {
	d := openPostgres(t, "reader", Options{Timeout: 20 * time.Second})
	number := func(q string) int64 {
		t.Helper()
		r, err := d.Query(t.Context(), d.IDs()[0], q, nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := r.Rows[0][0].(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, q := range map[string]string{
		"large objects":    "SELECT count(lo_from_bytea(0, decode(repeat(md5(i::text), 30000), 'hex'))) FROM generate_series(1, 50) i",
		"in a view of SQL": `SELECT query_to_xml('SELECT l' || 'o_from_bytea(0, decode(repeat(md5(i::text), 30000), ''hex'')) FROM generate_series(1, 50) i', true, true, '')`,
		"log messages":     "SELECT count(pg_logical_emit_message(false, 'a', repeat(md5(i::text), 30000))) FROM generate_series(1, 50) i",
	} {
		const disk = "SELECT (pg_current_wal_lsn() - '0/0')::bigint + pg_total_relation_size('pg_largeobject')"
		before := number(disk)
		_, _ = d.Query(t.Context(), d.IDs()[0], q, nil)
		if grown := number(disk) - before; grown > 1<<20 { // others write a little, too
			t.Errorf("%s: %d bytes were written", name, grown)
		}
	}
}
