package audit

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/transparency-dev/tessera/api/layout"
)

func TestTilePath(t *testing.T) {
	for _, c := range []struct {
		level int
		n     int64
		width int
		want  string
	}{
		{0, 0, 256, "tile/0/000"},
		{0, 1234, 5, "tile/0/x001/234.p/5"},
		{0, 1234067, 256, "tile/0/x001/x234/067"},
		{3, 999, 255, "tile/3/999.p/255"},
		{1, 1000, 1, "tile/1/x001/000.p/1"},
		{EntriesLevel, 0, 256, "tile/entries/000"},
		{EntriesLevel, 1234, 5, "tile/entries/x001/234.p/5"},
		{7, 0, 127, "tile/7/000.p/127"},
		{0, math.MaxInt64 >> 8, 256, "tile/0/x036/x028/x797/x018/x963/967"},
	} {
		if got := TilePath(c.level, c.n, c.width); got != c.want {
			t.Errorf("TilePath(%d, %d, %d) = %s, want %s", c.level, c.n, c.width, got, c.want)
		}
		if l, n, w, err := ParseTilePath(c.want); err != nil || l != c.level || n != c.n || w != c.width {
			t.Errorf("ParseTilePath(%s) = %d, %d, %d, %v", c.want, l, n, w, err)
		}
		theirs := layout.TilePath(uint64(max(c.level, 0)), uint64(c.n), uint8(c.width%256))
		if c.level == EntriesLevel {
			theirs = layout.EntriesPath(uint64(c.n), uint8(c.width%256))
		}
		if theirs != c.want {
			t.Errorf("the independent implementation says %s, not %s", theirs, c.want)
		}
	}
	for _, bad := range []string{
		"", "tile", "tile/", "tile/0", "tile/0/", "tile/0/0", "tile/0/0000", "tile/0/x000/000", "tile/0/x001", "tile/0/001/002", "tile/0/x001/x002",
		"tile/00/000", "tile/-1/000", "tile/+0/000", "tile/8/000", "tile/64/000", "tile/data/000", "tile/8/0/000", "/tile/0/000", "tile/0/000/",
		"tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/01", "tile/0/000.p/-1", "tile/0/000.p", "tile/0/000.p/", "tile/0/000.p/1.p/1",
		"tile/0/x9999/000", "tile/0/xx01/000", "tile/0/-01", "tile/0/x036/x028/x797/x018/x963/968", "tile/1/x036/x028/x797/x018/x963/967", "tile/7/001",
		"tile/0/x009/x223/x372/x036/x854/x775/x807/000", "tile/entries", "tile/Entries/000", "tile/entries/x999/x999/x999/x999/x999/x999/999",
	} {
		if l, n, w, err := ParseTilePath(bad); err == nil {
			t.Errorf("ParseTilePath(%q) = %d, %d, %d", bad, l, n, w)
		}
	}
}

func FuzzParseTilePath(f *testing.F) {
	for _, s := range []string{"tile/0/x001/234.p/5", "tile/entries/000", "tile/7/000.p/1", "tile/8/0/000", "tile/0/x036/x028/x797/x018/x963/967"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		level, n, width, err := ParseTilePath(path)
		if err != nil {
			return
		}
		if TilePath(level, n, width) != path || n < 0 || width < 1 || width > 256 || level < EntriesLevel || level > 7 {
			t.Fatalf("%q is %d, %d, %d", path, level, n, width)
		}
		if bits.Len64(uint64(n))+8*(max(level, 0)+1) > 63 && n > 0 {
			t.Fatalf("%q lies beyond any log", path)
		}
	})
}

func TestBundle(t *testing.T) {
	var bundle []byte
	var want [][]byte
	for i := range 256 {
		want = append(want, fmt.Appendf(nil, "entry %d", i))
		bundle = AppendBundle(bundle, want[i])
	}
	long := bytes.Repeat([]byte("x"), MaxLeaf)
	if got, err := ParseBundle(AppendBundle(nil, long), 1); err != nil || !bytes.Equal(got[0], long) {
		t.Errorf("the longest entry: %v", err)
	}
	got, err := ParseBundle(bundle, 256)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("entry %d is %q", i, got[i])
		}
	}
	for _, c := range []struct {
		bundle []byte
		want   int
	}{{bundle, 255}, {bundle, 257}, {bundle[:len(bundle)-1], 256}, {append(bytes.Clone(bundle), 0), 256}, {append(bytes.Clone(bundle), 0, 0), 256}, {nil, 1}, {[]byte{0}, 1}, {[]byte{0, 1}, 1}} {
		if _, err := ParseBundle(c.bundle, c.want); err == nil {
			t.Errorf("%d bytes are taken for %d entries", len(c.bundle), c.want)
		}
	}
}

func FuzzParseBundle(f *testing.F) {
	f.Add([]byte{0, 1, 'x', 0, 0}, 2)
	f.Fuzz(func(t *testing.T, bundle []byte, want int) {
		leaves, err := ParseBundle(bundle, max(want%257, 0))
		if err != nil {
			return
		}
		var again []byte
		for _, leaf := range leaves {
			again = AppendBundle(again, leaf)
		}
		if !bytes.Equal(again, bundle) {
			t.Fatalf("%x became %x", bundle, again)
		}
	})
}
