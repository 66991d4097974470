package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	tileHeight = 8               // levels of the tree in one tile
	tileWidth  = 1 << tileHeight // hashes at the bottom of a complete tile
	tileBytes  = tileWidth * tlog.HashSize
	tileLevels = 8 // enough for any int64 size
)

// Tile is a complete tile: the 256 consecutive hashes at level 8*Level of the tree that start at 256*Index.
type Tile struct {
	Level  int
	Index  int64
	Hashes []byte // 256*32 bytes; not to be changed
}

// Path is where the tile lives in a C2SP tlog-tiles site.
func (t Tile) Path() string { return TilePath(t.Level, t.Index, tileWidth) }

// ReadTile returns the stored complete tile at a level and index. Implementations must be safe for concurrent use.
type ReadTile func(level int, n int64) ([]byte, error)

// state is the right edge of a tree: all that appending needs to know of what came before.
type state struct {
	size int64
	// roots[i] is the root of the complete subtree of 2^i entries that ends at the edge, valid where bit i of size is set.
	roots [63]tlog.Hash
	// tails[l] holds the hashes of the incomplete tile at level l. Bytes below its length are never written again, which
	// is what lets a Snapshot share them; what lies beyond belongs to the tree.
	tails [tileLevels][]byte
}

// Tree is the log's right edge in memory: a few kilobytes for a log of any size. It has one owner (the store's writer)
// and is not safe for concurrent use; readers hold a Snapshot.
//
// Appended entries count at once for Size and Root. They become part of the log with Commit, or never were with Rollback.
type Tree struct {
	state
	saved     state // as of the last Commit
	completed []Tile
	buf       []byte // 0x00 and the leaf: what RFC 6962 hashes
}

// Restore rebuilds the tree of size entries from what was stored: tile returns complete tiles, leaves the bytes of the entries
// from..to-1 that came after the last complete tile of level 0 (at most 255).
//
// It reads the edge only. That the result is the log that was signed is for the caller to see: compare Root with the newest checkpoint.
func Restore(size int64, tile ReadTile, leaves func(from, to int64) ([][]byte, error)) (*Tree, error) {
	if size < 0 {
		return nil, fmt.Errorf("audit: a log of %d entries can't be", size)
	}
	t := &Tree{}
	t.size = size
	for level := 1; level < tileLevels; level++ {
		last := size >> (tileHeight * level)
		for n := last &^ (tileWidth - 1); n < last; n++ {
			data, err := tile(level-1, n)
			if err != nil {
				return nil, fmt.Errorf("audit: read tile %s: %w", TilePath(level-1, n, tileWidth), err)
			}
			if len(data) != tileBytes {
				return nil, fmt.Errorf("audit: tile %s has %d bytes, not %d", TilePath(level-1, n, tileWidth), len(data), tileBytes)
			}
			t.grow(level, subtree(data))
		}
	}
	if from := size &^ (tileWidth - 1); from < size {
		last, err := leaves(from, size)
		if err != nil {
			return nil, fmt.Errorf("audit: read entries %d to %d: %w", from, size-1, err)
		}
		if int64(len(last)) != size-from {
			return nil, fmt.Errorf("audit: %d entries from %d on, not %d", len(last), from, size-from)
		}
		for _, leaf := range last {
			t.grow(0, tlog.RecordHash(leaf))
		}
	}
	for i := range t.roots {
		if size>>i&1 == 0 {
			continue
		}
		// The subtree's lowest tile-level hashes are all in the tail of its tile level: it ends at the edge.
		level, in := i/tileHeight, i%tileHeight
		tail := t.tails[level]
		end := len(tail) >> (5 + in) << (5 + in) // bits below i are smaller subtrees further right
		t.roots[i] = subtree(tail[end-tlog.HashSize<<in : end])
	}
	t.saved = t.state
	return t, nil
}

// subtree is the root over 2^k hashes.
func subtree(hashes []byte) tlog.Hash {
	if len(hashes) == tlog.HashSize {
		return tlog.Hash(hashes)
	}
	half := len(hashes) / 2
	return tlog.NodeHash(subtree(hashes[:half]), subtree(hashes[half:]))
}

func (t *Tree) grow(level int, h tlog.Hash) {
	if t.tails[level] == nil {
		t.tails[level] = make([]byte, 0, tileBytes)
	}
	t.tails[level] = append(t.tails[level], h[:]...)
}

// Append adds an entry and returns its index. It keeps no reference to leaf.
func (t *Tree) Append(leaf []byte) (index int64) {
	t.buf = append(append(t.buf[:0], 0), leaf...)
	h := tlog.Hash(sha256.Sum256(t.buf))
	t.grow(0, h)
	n := bits.TrailingZeros64(^uint64(t.size)) // subtrees that this entry completes
	for i := range n {
		h = tlog.NodeHash(t.roots[i], h)
		if (i+1)%tileHeight == 0 {
			level := i / tileHeight
			t.completed = append(t.completed, Tile{Level: level, Index: t.size >> (i + 1), Hashes: t.tails[level]})
			t.tails[level] = nil
			t.grow(level+1, h)
		}
	}
	t.roots[n] = h
	t.size++
	return t.size - 1
}

// Completed returns the tiles that became complete since the last Commit, to be stored in the transaction that stores the
// entries. The hashes of a tile never change, unless Rollback takes the tile back.
func (t *Tree) Completed() []Tile { return t.completed }

// Commit says that the transaction with everything appended so far is durable.
func (t *Tree) Commit() {
	t.saved = t.state
	t.completed = nil
}

// Rollback says that the transaction failed: the tree is what it was at the last Commit.
func (t *Tree) Rollback() {
	t.state = t.saved
	t.completed = nil
}

// Size is the number of entries, with those not committed.
func (t *Tree) Size() int64 { return t.size }

// Root is the tree's root hash, with entries not committed.
func (t *Tree) Root() tlog.Hash { return t.state.root() }

func (s *state) root() tlog.Hash {
	if s.size == 0 {
		return sha256.Sum256(nil)
	}
	first := bits.TrailingZeros64(uint64(s.size))
	h := s.roots[first]
	for i := first + 1; i < len(s.roots); i++ {
		if s.size>>i&1 == 1 {
			h = tlog.NodeHash(s.roots[i], h)
		}
	}
	return h
}

// Snapshot is the log as of a Commit. It is a value, never changes and is safe for concurrent use.
type Snapshot struct {
	size  int64
	root  tlog.Hash
	tails [tileLevels][]byte
}

// Snapshot returns the tree as of the last Commit (never what is still in a transaction). It copies no hashes.
func (t *Tree) Snapshot() Snapshot {
	s := Snapshot{size: t.saved.size, root: t.saved.root()}
	for i, tail := range t.saved.tails {
		s.tails[i] = tail[:len(tail):len(tail)]
	}
	return s
}

// Size is the number of entries.
func (s Snapshot) Size() int64 { return s.size }

// Root is the root hash.
func (s Snapshot) Root() tlog.Hash { return s.root }

// Hashes returns a reader for proofs at any size up to Size. It checks what tile returns against Root: a changed tile gives
// an error, never a wrong proof.
func (s Snapshot) Hashes(tile ReadTile) tlog.HashReader {
	if s.size == 0 {
		return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
			if len(indexes) > 0 {
				return nil, errors.New("audit: the log is empty")
			}
			return nil, nil
		})
	}
	return tlog.TileHashReader(tlog.Tree{N: s.size, Hash: s.root}, snapshotTiles{s, tile})
}

// Tile returns the tile of that width as of this snapshot, complete or not, from memory or by read.
func (s Snapshot) Tile(level int, n int64, width int, read ReadTile) ([]byte, error) {
	if level < 0 || level >= tileLevels || n < 0 || width < 1 || width > tileWidth {
		return nil, fmt.Errorf("audit: no tile of level %d, index %d and width %d", level, n, width)
	}
	have := s.size >> (tileHeight * level) // hashes at this level
	full := have >> tileHeight
	switch {
	case n < full:
		data, err := read(level, n)
		if err != nil {
			return nil, fmt.Errorf("audit: read tile %s: %w", TilePath(level, n, tileWidth), err)
		}
		if len(data) != tileBytes {
			return nil, fmt.Errorf("audit: tile %s has %d bytes, not %d", TilePath(level, n, tileWidth), len(data), tileBytes)
		}
		return data[:width*tlog.HashSize], nil
	case n == full && int64(width) <= have&(tileWidth-1):
		return slices.Clone(s.tails[level][:width*tlog.HashSize]), nil
	}
	return nil, fmt.Errorf("audit: tile %s is not in a log of %d entries", TilePath(level, n, width), s.size)
}

// snapshotTiles serves a snapshot's tiles to tlog.TileHashReader, which authenticates them.
type snapshotTiles struct {
	s    Snapshot
	read ReadTile
}

func (snapshotTiles) Height() int                         { return tileHeight }
func (snapshotTiles) SaveTiles(_ []tlog.Tile, _ [][]byte) {}

func (r snapshotTiles) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	out := make([][]byte, len(tiles))
	for i, t := range tiles {
		var err error
		if out[i], err = r.s.Tile(t.L, t.N, t.W, r.read); err != nil {
			return nil, err
		}
	}
	return out, nil
}
