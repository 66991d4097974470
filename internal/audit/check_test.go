package audit

import (
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// TestCheck: a proof holds for what it proves, and for nothing else.
func TestCheck(t *testing.T) {
	tree := &Tree{}
	var leaves [][]byte
	for i := range 40 {
		leaves = append(leaves, fmt.Appendf(nil, "entry %d", i))
		tree.Append(leaves[i])
	}
	tree.Commit()
	hashes := tree.Snapshot().Hashes(nil)
	for _, size := range []int64{1, 2, 7, 32, 40} {
		for index := range size {
			p, err := InclusionProof(hashes, size, index)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Check(leaves[index]); err != nil {
				t.Errorf("entry %d of %d: %v", index, size, err)
			}
			if p.Check(append([]byte("x"), leaves[index]...)) == nil {
				t.Errorf("entry %d of %d: other bytes are proved", index, size)
			}
			lies := map[string]Inclusion{"root": p, "size": p, "index": p, "none": p, "leaf": p}
			for name, lie := range lies {
				leaf := leaves[index]
				switch name {
				case "root":
					lie.RootHash[3] ^= 1
				case "size":
					lie.Size = size * 2
				case "index":
					lie.Index = index + 1
				case "none":
					lie.Size, lie.Index = 0, -1
				case "leaf": // another entry, with its own hash, under the same path
					leaf = []byte("never written")
					lie.LeafHash = tlog.RecordHash(leaf)
				}
				if lie.Check(leaf) == nil {
					t.Errorf("entry %d of %d: another %s is proved", index, size, name)
				}
			}
			c, err := ConsistencyProof(hashes, index+1, size)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Check(); err != nil {
				t.Errorf("%d of %d: %v", index+1, size, err)
			}
			for name, lie := range map[string]Consistency{"root": c, "beginning": c, "order": c} {
				switch name {
				case "root":
					lie.RootHash[0] ^= 1
				case "beginning":
					lie.FromRoot[0] ^= 1
				case "order":
					lie.From, lie.Size = size+1, size
				}
				if lie.Check() == nil {
					t.Errorf("%d of %d: another %s is proved", index+1, size, name)
				}
			}
		}
	}
}
