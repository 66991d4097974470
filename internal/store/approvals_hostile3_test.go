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
	for name, q := range map[string]struct {
		query string
		args  []driver.Value
	}{
		"of a session":      {selectOpen, []driver.Value{"sess_1", int64(1), int64(100)}},
		"how many":          {countOpen, []driver.Value{"sess_1", int64(1)}},
		"of all":            {"SELECT body FROM approvals WHERE " + stateAt["pending"] + " AND n < $2 ORDER BY n DESC LIMIT $3", []driver.Value{int64(1), int64(1 << 62), int64(100)}},
		"about one call":    {selectApprovalFor, []driver.Value{"sess_1", "x"}},
		"of one with an id": {selectApproval, []driver.Value{"appr_1"}},
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
		}, "EXPLAIN QUERY PLAN "+q.query, q.args...); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(plan, "; "); !strings.Contains(got, "INDEX") {
			t.Errorf("pending questions %s: %s", name, got)
		}
	}
}
