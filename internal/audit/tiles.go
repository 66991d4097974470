package audit

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

const (
	// EntriesLevel stands for the entry bundles, which have paths like tiles of a level of their own.
	EntriesLevel = -1
	// MaxLeaf is the longest entry that a bundle can hold.
	MaxLeaf = 1<<16 - 1

	maxBundle = tileWidth * (2 + MaxLeaf)
)

// TilePath is the C2SP tlog-tiles path of a tile or, at EntriesLevel, of an entry bundle: "tile/0/x001/x234/067.p/5".
// (Not tlog.Tile.Path: sumdb's paths carry the tile height, C2SP's do not.)
func TilePath(level int, n int64, width int) string {
	number := fmt.Sprintf("%03d", n%1000)
	for n /= 1000; n > 0; n /= 1000 {
		number = fmt.Sprintf("x%03d/%s", n%1000, number)
	}
	name := "entries"
	if level != EntriesLevel {
		name = strconv.Itoa(level)
	}
	if width < tileWidth {
		return fmt.Sprintf("tile/%s/%s.p/%d", name, number, width)
	}
	return "tile/" + name + "/" + number
}

// ParseTilePath is the inverse of TilePath. It accepts nothing that TilePath doesn't write, and no tile that lies beyond
// the largest possible log.
func ParseTilePath(path string) (level int, n int64, width int, err error) {
	bad := fmt.Errorf("%.80q is not the path of a tile: tile/<level>/<number>[.p/<width>] or tile/entries/<number>[.p/<width>]", path)
	rest, ok := strings.CutPrefix(path, "tile/")
	if !ok || len(path) > 64 {
		return 0, 0, 0, bad
	}
	name, number, ok := strings.Cut(rest, "/")
	if !ok {
		return 0, 0, 0, bad
	}
	level = EntriesLevel
	if name != "entries" {
		if level, err = strconv.Atoi(name); err != nil || level < 0 || level >= tileLevels {
			return 0, 0, 0, bad
		}
	}
	width = tileWidth
	if whole, partial, ok := strings.Cut(number, ".p/"); ok {
		if width, err = strconv.Atoi(partial); err != nil || width < 1 || width >= tileWidth {
			return 0, 0, 0, bad
		}
		number = whole
	}
	// The last hash of the tile covers entries below (n+1)<<shift, which must be an int64.
	shift := tileHeight * (max(level, 0) + 1)
	for part := range strings.SplitSeq(number, "/") {
		d, err := strconv.Atoi(strings.TrimPrefix(part, "x"))
		if err != nil || d < 0 || d > 999 {
			return 0, 0, 0, bad
		}
		n = n*1000 + int64(d) // may overflow; then it isn't written like this
	}
	if shift >= 63 && n > 0 || shift < 63 && n >= 1<<(63-shift) {
		return 0, 0, 0, bad
	}
	if TilePath(level, n, width) != path {
		return 0, 0, 0, bad
	}
	return level, n, width, nil
}

// AppendBundle adds one entry to a C2SP entry bundle: its length in two bytes, then its bytes. The leaf must not be longer than MaxLeaf.
func AppendBundle(bundle, leaf []byte) []byte {
	return append(binary.BigEndian.AppendUint16(bundle, uint16(len(leaf))), leaf...)
}

// ParseBundle splits an entry bundle, which must hold exactly the wanted number of entries. The leaves share its memory.
func ParseBundle(bundle []byte, want int) ([][]byte, error) {
	leaves := make([][]byte, 0, min(want, tileWidth))
	for len(bundle) > 0 && len(leaves) < want {
		if len(bundle) < 2 {
			return nil, fmt.Errorf("entry bundle is cut short in entry %d", len(leaves))
		}
		n := 2 + int(binary.BigEndian.Uint16(bundle))
		if len(bundle) < n {
			return nil, fmt.Errorf("entry bundle is cut short in entry %d", len(leaves))
		}
		leaves = append(leaves, bundle[2:n:n])
		bundle = bundle[n:]
	}
	if len(leaves) < want || len(bundle) > 0 {
		return nil, fmt.Errorf("entry bundle holds %d entries and %d more bytes, not %d entries", len(leaves), len(bundle), want)
	}
	return leaves, nil
}
