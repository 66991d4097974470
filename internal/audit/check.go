package audit

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Check tells whether the proof proves that an entry with these bytes is in the log with the proof's root.
func (p Inclusion) Check(leaf []byte) error {
	if got := tlog.RecordHash(leaf); got != p.LeafHash {
		return fmt.Errorf("the entry's bytes hash to %s, and the tree has %s in their place", got, p.LeafHash)
	}
	if p.Size < 1 || p.Index < 0 || p.Index >= p.Size { // tlog panics on impossible sizes
		return errors.New("the proof is of no entry of the log")
	}
	if err := tlog.CheckRecord(p.Hashes, p.Size, p.RootHash, p.Index, p.LeafHash); err != nil {
		return fmt.Errorf("the hashes do not lead from the entry to the root: %w", err)
	}
	return nil
}

// Check tells whether the proof proves that the log with the one root begins with the log with the other.
func (p Consistency) Check() error {
	if p.From < 1 || p.From > p.Size {
		return errors.New("the proof is not of a log and its beginning")
	}
	if err := tlog.CheckTree(p.Hashes, p.Size, p.RootHash, p.From, p.FromRoot); err != nil {
		return fmt.Errorf("the hashes do not lead from the one root to the other: %w", err)
	}
	return nil
}
