package audit_test

import (
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.example/internal/audit"
)

// A log of three entries, without a store: append, prove, check.
func Example() {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var tree audit.Tree
	for i, kind := range []audit.Kind{audit.Intent, audit.Outcome, audit.Change} {
		e := audit.Entry{Index: int64(i), At: at, Kind: kind, Action: "call", CallID: "call_1"}
		leaf, err := e.Marshal()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s\n", leaf)
		tree.Append(leaf) // complete tiles would be in tree.Completed()
	}
	tree.Commit()

	snapshot := tree.Snapshot()
	hashes := snapshot.Hashes(nil) // nil: no tile is complete yet, all hashes are in memory
	proof, err := audit.InclusionProof(hashes, snapshot.Size(), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(snapshot.Size(), snapshot.Root())
	fmt.Println(tlog.CheckRecord(proof.Hashes, proof.Size, snapshot.Root(), 1, proof.LeafHash))
	// Output:
	// {"index":0,"at":"2026-03-01T12:00:00Z","kind":"intent","action":"call","call_id":"call_1"}
	// {"index":1,"at":"2026-03-01T12:00:00Z","kind":"outcome","action":"call","call_id":"call_1"}
	// {"index":2,"at":"2026-03-01T12:00:00Z","kind":"change","action":"call","call_id":"call_1"}
	// 3 5l0ajQ87s+CaoRdR8IOyde9aP7V3p3BzdR9/IHGVPj8=
	// <nil>
}
