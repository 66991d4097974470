package audit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// shelf is what a store keeps of a log: leaves and complete tiles.
type shelf struct {
	leaves [][]byte
	tiles  map[string][]byte
}

func newShelf() *shelf { return &shelf{tiles: map[string][]byte{}} }

func (s *shelf) tile(level int, n int64) ([]byte, error) {
	if data, ok := s.tiles[TilePath(level, n, tileWidth)]; ok {
		return data, nil
	}
	return nil, errors.New("no such tile")
}

func (s *shelf) read(from, to int64) ([][]byte, error) { return s.leaves[from:to], nil }

func (s *shelf) keep(tiles []Tile) {
	for _, t := range tiles {
		s.tiles[t.Path()] = bytes.Clone(t.Hashes)
	}
}

func leaf(i int) []byte { return fmt.Appendf(nil, "entry %d", i) }

// reference is the same log by x/mod's own algorithm.
type reference struct{ hashes []tlog.Hash }

func (r *reference) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		out[i] = r.hashes[x]
	}
	return out, nil
}

func (r *reference) append(t testing.TB, n int64, data []byte) tlog.Hash {
	t.Helper()
	hs, err := tlog.StoredHashes(n, data, r)
	if err != nil {
		t.Fatal(err)
	}
	r.hashes = append(r.hashes, hs...)
	root, err := tlog.TreeHash(n+1, r)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestTreeIsTheReferenceTreeAndRestoresAtEverySize(t *testing.T) {
	tree, kept, ref := &Tree{}, newShelf(), &reference{}
	empty, err := tlog.TreeHash(0, ref)
	if err != nil || tree.Root() != empty {
		t.Fatalf("empty root %v, want %v", tree.Root(), empty)
	}
	for i := range 1101 {
		again, err := Restore(int64(i), kept.tile, kept.read)
		if err != nil {
			t.Fatalf("restore at %d: %v", i, err)
		}
		same(t, fmt.Sprintf("restored at %d", i), again.state, tree.state)

		want := ref.append(t, int64(i), leaf(i))
		for _, tr := range []*Tree{tree, again} {
			if n := tr.Append(leaf(i)); n != int64(i) {
				t.Fatalf("index %d, want %d", n, i)
			}
			if tr.Root() != want || tr.Size() != int64(i+1) {
				t.Fatalf("after entry %d: size %d, root %v; want root %v", i, tr.Size(), tr.Root(), want)
			}
		}
		kept.leaves = append(kept.leaves, leaf(i))
		kept.keep(tree.Completed())
		tree.Commit()
	}
	if len(kept.tiles) != 4 {
		t.Fatalf("%d tiles kept for 1101 entries, want 4 and no partial ones", len(kept.tiles))
	}
}

func TestRestoreAcrossTileLevels(t *testing.T) {
	tree, kept := &Tree{}, newShelf()
	for i := range 3<<16 + 70000 {
		tree.Append(leaf(i))
		kept.leaves = append(kept.leaves, leaf(i))
		kept.keep(tree.Completed())
		tree.Commit()
		switch i + 1 {
		case 65535, 65536, 65537, 2 << 16, 2<<16 + 300, 3<<16 + 65535:
			again, err := Restore(int64(i+1), kept.tile, kept.read)
			if err != nil {
				t.Fatalf("restore at %d: %v", i+1, err)
			}
			same(t, fmt.Sprintf("restored at %d", i+1), again.state, tree.state)
		}
	}
}

// same compares what two edges will do: roots that are no longer valid don't count.
func same(t testing.TB, what string, got, want state) {
	t.Helper()
	if got.size != want.size {
		t.Fatalf("%s: size %d, want %d", what, got.size, want.size)
	}
	for i := range got.roots {
		if got.size>>i&1 == 1 && got.roots[i] != want.roots[i] {
			t.Fatalf("%s: subtree root %d differs", what, i)
		}
	}
	for l := range got.tails {
		if !bytes.Equal(got.tails[l], want.tails[l]) {
			t.Fatalf("%s: tail of level %d differs", what, l)
		}
	}
}

func TestRestoreRefusesWhatIsNotThere(t *testing.T) {
	kept := newShelf()
	tree := &Tree{}
	for i := range 300 {
		tree.Append(leaf(i))
		kept.leaves = append(kept.leaves, leaf(i))
	}
	kept.keep(tree.Completed())
	if _, err := Restore(-1, kept.tile, kept.read); err == nil {
		t.Error("negative size restored")
	}
	if _, err := Restore(300, kept.tile, func(from, to int64) ([][]byte, error) { return kept.leaves[from : to-1], nil }); err == nil {
		t.Error("restored with an entry missing")
	}
	if _, err := Restore(300, func(int, int64) ([]byte, error) { return make([]byte, tileBytes-1), nil }, kept.read); err == nil {
		t.Error("restored from a short tile")
	}
	if _, err := Restore(700, kept.tile, kept.read); err == nil {
		t.Error("restored without a tile")
	}
}

// TestRollbackLeavesNoTrace plays random transactions, some of which fail, against a log of only those that did not; snapshots taken
// on the way must still prove the same thing at the end.
func TestRollbackLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, kept, ref := &Tree{}, newShelf(), &reference{}
		var snaps []Snapshot
		var roots []tlog.Hash
		var root tlog.Hash
		for range rapid.IntRange(1, 12).Draw(t, "transactions") {
			n := rapid.IntRange(0, 400).Draw(t, "entries")
			before := tree.Root()
			var leaves [][]byte
			for range n {
				data := fmt.Appendf(nil, "%d/%d", tree.Size(), rapid.IntRange(0, 3).Draw(t, "salt"))
				leaves = append(leaves, data)
				tree.Append(data)
			}
			if rapid.Bool().Draw(t, "fails") {
				tree.Rollback()
				if tree.Root() != before || len(tree.Completed()) != 0 {
					t.Fatal("rollback left something behind")
				}
			} else {
				kept.keep(tree.Completed())
				for _, data := range leaves {
					hs, err := tlog.StoredHashes(int64(len(kept.leaves)), data, ref)
					if err != nil {
						t.Fatal(err)
					}
					ref.hashes = append(ref.hashes, hs...)
					kept.leaves = append(kept.leaves, data)
				}
				tree.Commit()
				var err error
				if root, err = tlog.TreeHash(tree.Size(), ref); err != nil {
					t.Fatal(err)
				}
				if tree.Root() != root {
					t.Fatalf("root differs at size %d", tree.Size())
				}
			}
			if s := tree.Snapshot(); s.Size() > 0 {
				snaps, roots = append(snaps, s), append(roots, root)
			}
		}
		for i, s := range snaps {
			if s.Root() != roots[i] {
				t.Fatalf("snapshot of %d has root %v, want %v", s.Size(), s.Root(), roots[i])
			}
			n := rapid.Int64Range(0, s.Size()-1).Draw(t, "record")
			p, err := tlog.ProveRecord(s.Size(), n, s.Hashes(kept.tile))
			if err != nil {
				t.Fatalf("snapshot of %d: %v", s.Size(), err)
			}
			if err := tlog.CheckRecord(p, s.Size(), s.Root(), n, tlog.RecordHash(kept.leaves[n])); err != nil {
				t.Fatalf("snapshot of %d, record %d: %v", s.Size(), n, err)
			}
		}
	})
}

func TestSnapshotNeverShowsWhatIsNotCommitted(t *testing.T) {
	tree := &Tree{}
	tree.Append([]byte("a"))
	if s := tree.Snapshot(); s.Size() != 0 {
		t.Fatalf("snapshot shows %d entries of an open transaction", s.Size())
	}
	if _, err := tree.Snapshot().Hashes(nil).ReadHashes([]int64{0}); err == nil {
		t.Fatal("read a hash of an empty log")
	}
	tree.Commit()
	if s := tree.Snapshot(); s.Size() != 1 || s.Root() != tree.Root() {
		t.Fatal("snapshot does not show what was committed")
	}
}

func TestSnapshotTile(t *testing.T) {
	tree, kept := &Tree{}, newShelf()
	var all []byte
	for i := range 300 {
		tree.Append(leaf(i))
		h := tlog.RecordHash(leaf(i))
		all = append(all, h[:]...)
	}
	kept.keep(tree.Completed())
	tree.Commit()
	s := tree.Snapshot()
	for _, c := range []struct {
		n    int64
		w    int
		want []byte
	}{{0, 256, all[:tileBytes]}, {0, 3, all[:3*32]}, {1, 44, all[tileBytes:]}, {1, 1, all[tileBytes : tileBytes+32]}} {
		if got, err := s.Tile(0, c.n, c.w, kept.tile); err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("tile %d of width %d: %v", c.n, c.w, err)
		}
	}
	for _, c := range []struct {
		level int
		n     int64
		w     int
	}{{0, 1, 45}, {0, 1, 256}, {0, 2, 1}, {0, -1, 1}, {0, 0, 0}, {0, 0, 257}, {1, 0, 2}, {2, 0, 1}, {-1, 0, 1}, {8, 0, 1}} {
		if _, err := s.Tile(c.level, c.n, c.w, kept.tile); err == nil {
			t.Errorf("a tile of level %d, number %d, width %d in a log of 300", c.level, c.n, c.w)
		}
	}
	for what, read := range map[string]ReadTile{"none": newShelf().tile, "short": func(int, int64) ([]byte, error) { return make([]byte, 32), nil }} {
		if _, err := s.Tile(0, 0, 1, read); err == nil {
			t.Errorf("a tile from a store that has it %s", what)
		}
	}
}

func TestSnapshotIsSafeWhileTheTreeGrows(t *testing.T) {
	tree, kept := &Tree{}, newShelf()
	var mu sync.Mutex // kept.tiles
	read := func(level int, n int64) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		return kept.tile(level, n)
	}
	var readers sync.WaitGroup
	for i := range 2000 {
		tree.Append(leaf(i))
		if i%7 == 3 {
			tree.Rollback()
			tree.Append(leaf(i))
		}
		if i%50 != 0 {
			continue
		}
		mu.Lock()
		kept.keep(tree.Completed())
		mu.Unlock()
		tree.Commit()
		s := tree.Snapshot()
		readers.Go(func() {
			if _, err := tlog.ProveRecord(s.Size(), s.Size()-1, s.Hashes(read)); err != nil {
				t.Errorf("at %d: %v", s.Size(), err)
			}
		})
	}
	readers.Wait()
}

func TestProofsAtEverySizeUpToTheSnapshot(t *testing.T) {
	tree, kept, ref := &Tree{}, newShelf(), &reference{}
	const size = 600
	roots := make([]tlog.Hash, size+1)
	for i := range size {
		tree.Append(leaf(i))
		kept.leaves = append(kept.leaves, leaf(i))
		roots[i+1] = ref.append(t, int64(i), leaf(i))
	}
	kept.keep(tree.Completed())
	tree.Commit()
	r := tree.Snapshot().Hashes(kept.tile)
	for _, n := range []int64{1, 2, 3, 255, 256, 257, 511, 512, 513, size} {
		for _, i := range []int64{0, 1, 2, 100, 254, 255, 256, 400, 511, 512, 599} {
			p, err := InclusionProof(r, n, i)
			if i >= n {
				if err == nil {
					t.Errorf("proof that record %d is in a log of %d", i, n)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.RootHash != roots[n] || p.LeafHash != tlog.RecordHash(leaf(int(i))) || p.Index != i || p.Size != n {
				t.Fatalf("proof of %d in %d is about something else", i, n)
			}
			if err := tlog.CheckRecord(p.Hashes, n, roots[n], i, tlog.RecordHash(leaf(int(i)))); err != nil {
				t.Fatalf("proof of %d in %d: %v", i, n, err)
			}
		}
		for _, from := range []int64{1, 2, 128, 255, 256, 257, 599} {
			p, err := ConsistencyProof(r, from, n)
			if from > n {
				if err == nil {
					t.Errorf("proof from %d to %d", from, n)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.FromRoot != roots[from] || p.RootHash != roots[n] {
				t.Fatalf("consistency of %d and %d is about something else", from, n)
			}
			if err := tlog.CheckTree(p.Hashes, n, roots[n], from, roots[from]); err != nil {
				t.Fatalf("consistency of %d and %d: %v", from, n, err)
			}
		}
	}
	// A changed tile gives an error, never a proof.
	bad := func(level int, n int64) ([]byte, error) {
		data, err := kept.tile(level, n)
		data = slices.Clone(data)
		data[77] ^= 1
		return data, err
	}
	if _, err := InclusionProof(tree.Snapshot().Hashes(bad), size, 1); err == nil {
		t.Error("a proof from a changed tile")
	}
	for _, args := range [][2]int64{{0, 0}, {-1, 0}, {5, -1}, {size + 1, 0}} {
		if _, err := InclusionProof(r, args[0], args[1]); err == nil {
			t.Errorf("proof at size %d of index %d", args[0], args[1])
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	data := bytes.Repeat([]byte("x"), 700)
	tree := &Tree{}
	b.ReportAllocs()
	for b.Loop() {
		tree.Append(data)
		tree.Commit()
	}
}
