package call

import (
	"slices"
	"testing"
	"time"
)

// No field can run into the next: moving a byte from one to another changes the digest.
func TestDigestSeparatesItsFields(t *testing.T) {
	seen := map[string][5]string{}
	parts := []string{"", "a", "ab", "1:a", "0:", "{}"}
	for _, agent := range parts {
		for _, session := range parts {
			for _, op := range parts {
				for _, hash := range parts {
					for _, args := range parts {
						d := Digest(agent, session, op, hash, []byte(args))
						if other, dup := seen[d]; dup {
							t.Fatalf("%q and %q have one digest", other, [5]string{agent, session, op, hash, args})
						}
						seen[d] = [5]string{agent, session, op, hash, args}
					}
				}
			}
		}
	}
}

func TestIDsSortByTimeAndDiffer(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var ids []string
	for i := range 1000 {
		ids = append(ids, NewID("call_", t0.Add(time.Duration(i)*time.Millisecond)))
	}
	if !slices.IsSorted(ids) {
		t.Error("ids of later times do not sort later")
	}
	same := map[string]bool{}
	for range 10_000 {
		id := NewID("x_", t0)
		if same[id] || len(id) != 34 {
			t.Fatalf("%q", id)
		}
		same[id] = true
	}
}
