package store

import (
	"database/sql/driver"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Every ask, every status and every look at the list runs this. It must not read all questions that were ever asked.
func TestHostile3OpenQuestionsAreFoundByIndex(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(dir, Options{Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := dial(filepath.Join(dir, "sallyport.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for name, args := range map[string][]driver.Value{
		"of a session": {int64(1 << 62), "sess_1", "pending", int64(100)},
		"of all":       {int64(1 << 62), "", "pending", int64(100)},
	} {
		var plan []string
		if err := c.query(func(v []driver.Value) error {
			for _, x := range v {
				if s, ok := x.(string); ok {
					plan = append(plan, s)
				} else if b, ok := x.([]byte); ok {
					plan = append(plan, string(b))
				}
			}
			return nil
		}, "EXPLAIN QUERY PLAN "+selectApprovals, args...); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(plan, "; "); !strings.Contains(got, "INDEX") {
			t.Errorf("pending questions %s: %s", name, got)
		}
	}
}
