package audit

import (
	"bytes"
	"testing"
)

// An export ends with its checkpoint: WriteExport writes nothing beyond it. Entries beyond it were put there by somebody else, and
// an archive with them must not verify, whether or not the key is pinned.
func TestHostile2ExportWithEntriesNobodySigned(t *testing.T) {
	b := newBook(t)
	b.calls(t, 6)
	b.sign(t)
	files := untar(t, export(t, b))
	old := TilePath(EntriesLevel, 0, 6)
	bundle := bytes.Clone(files[old])
	delete(files, old)
	delete(files, TilePath(0, 0, 6))
	forged := *b.tree
	last, err := Unmarshal(b.leaves[len(b.leaves)-1])
	if err != nil {
		t.Fatal(err)
	}
	e := Entry{Index: 6, At: last.At, Kind: Change, Action: "session.release", Actor: "person:alice", Decision: "ok", Labels: []string{"secret"}, Reason: "forged"}
	leaf, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	forged.Append(leaf)
	files[TilePath(EntriesLevel, 0, 7)] = AppendBundle(bundle, leaf)
	tile, err := (&Tree{state: forged.state, saved: forged.state}).Snapshot().Tile(0, 0, 7, nil)
	if err != nil {
		t.Fatal(err)
	}
	files[TilePath(0, 0, 7)] = tile
	x, err := OpenExport(unpack(t, files))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	r, err := Verify(x, b.signer.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	if r.OK {
		t.Errorf("an export with a forged entry is said to be whole (exit code 0, \"nothing was changed\"): %+v", r)
	}
}
