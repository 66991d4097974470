package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/session"
)

// Whoever is told of entries gets those of the log, in its order and each once, however commits and jobs fail; and only those that need not be read there.
func TestOnEntriesTellsTheLog(t *testing.T) {
	db, err := Open(t.TempDir(), Options{patience: time.Minute})
	must(t, err)
	defer db.Close()
	var told []audit.Entry
	db.OnEntries(func(some []audit.Entry) { told = append(told, some...) })
	from, err := db.Size(t.Context())
	must(t, err)
	s := session.New("agent", session.Execution, "person:admin", time.Now())
	must(t, db.OpenSession(t.Context(), s, change("session.open", s)))

	var mu sync.Mutex
	r := rand.New(rand.NewPCG(1, 2))
	chance := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n) == 0
	}
	do := db.w.commit
	left := map[int64]bool{} // entries of commits that were reported as failed and had worked
	db.w.commit = func(c *conn) error {
		switch {
		case chance(12):
			return errors.New("the disk is full")
		case chance(12):
			for i := db.w.size; i < db.w.tree.Size(); i++ {
				left[i] = true
			}
			return errors.Join(do(c), errors.New("nobody knows"))
		}
		return do(c)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 30 {
				e := change(fmt.Sprint("test.", i), s)
				e.Detail, e.Arguments, e.Reason = json.RawMessage(fmt.Sprintf(`{ "n": %d }`, n)), payload("arguments"), "because"
				switch n % 10 {
				case 3:
					e.Reason = "\xff"
				case 6:
					e.Detail, _ = json.Marshal(bytes.Repeat([]byte("x"), maxTold))
				}
				bad := chance(9)
				db.w.do(t.Context(), &job{run: func(tx *tx) error {
					e := e
					if err := tx.append(&e); err != nil || !bad {
						return err
					}
					return errors.New("a job that fails after it has written")
				}})
			}
		})
	}
	wg.Wait()
	db.w.commit = do
	must(t, db.OpenSession(t.Context(), session.New("other", session.Execution, "person:admin", time.Now()), change("session.open", s)))

	all, _ := every(t, db, audit.Filter{Min: from})
	at := map[int64]audit.Entry{}
	for _, e := range all {
		if e.Arguments, e.Result, e.Attribution, e.Rows = nil, nil, nil, nil; !left[e.Index] && e.Reason != "\ufffd" && len(e.Detail) < maxTold {
			at[e.Index] = e
		}
	}
	if !slices.IsSortedFunc(told, func(a, b audit.Entry) int { return int(a.Index - b.Index) }) || len(told) != len(at) || len(told) < 100 {
		t.Errorf("told of %d entries, and the log has %d of them", len(told), len(at))
	}
	for _, e := range told {
		want, known := at[e.Index]
		got, err := e.Marshal()
		must(t, err)
		if has, err := want.Marshal(); !known || err != nil || !bytes.Equal(got, has) {
			t.Fatalf("told of %s, the log has %s", got, has)
		}
	}
}
