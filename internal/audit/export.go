package audit

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	checkpointName = "checkpoint"
	payloadPrefix  = "payload/"
	maxPayload     = 256 << 20
)

// Source is a stored log: an export, or the store of a data directory. An error for missing data wraps fs.ErrNotExist. Verify trusts nothing that
// it returns.
type Source interface {
	// PublicKey returns the audit.pub that lies with the log.
	PublicKey() ([]byte, error)
	// Checkpoint returns the newest signed checkpoint.
	Checkpoint() ([]byte, error)
	// Size is how many entries the log claims to hold.
	Size() (int64, error)
	// Entries returns the leaf bytes of the entries from..to-1. It is never asked for more than one bundle: at most 256
	// entries, none of which is a multiple of 256 but the first.
	Entries(from, to int64) ([][]byte, error)
	// Tile returns a stored tile. A source that stores no incomplete tiles returns nil for a width below 256.
	Tile(level int, n int64, width int) ([]byte, error)
	// Payload returns what is stored under a key of a Payload.
	Payload(key string) ([]byte, error)
	// Names calls yield with the export path of every tile and every payload ("payload/<key>") it holds, and of everything
	// else that it holds apart from entries, and returns yield's error if there is one.
	Names(yield func(name string) error) error
}

// WriteExport writes the log up to its newest checkpoint as a tar archive, the same bytes for the same log. Unpacked, it is a static C2SP
// tlog-tiles site (checkpoint, tile/…, tile/entries/…) with audit.pub and the payloads beside it (payload/<key>), which other tools can read.
//
// It checks nothing but the checkpoint's signature: it writes the data of the source unchanged and leaves out missing data, so that Verify finds
// the same problems in the export as in the source. Sign a checkpoint first to have every entry in it.
func WriteExport(w io.Writer, src Source) error {
	pub, err := src.PublicKey()
	if err != nil {
		return fmt.Errorf("read %s: %w", PublicFile, err)
	}
	v, err := ParsePublicKey(string(pub))
	if err != nil {
		return fmt.Errorf("%s: %w", PublicFile, err)
	}
	signed, err := src.Checkpoint()
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	cp, err := OpenCheckpoint(signed, v)
	if err != nil {
		return err
	}
	out := exporter{tar: tar.NewWriter(w), src: src, payloads: map[string]bool{}}
	if err := out.file(checkpointName, signed); err != nil {
		return err
	}
	if err := out.file(PublicFile, pub); err != nil {
		return err
	}
	if err := out.log(cp.Size); err != nil {
		return err
	}
	if err := out.tar.Close(); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	return nil
}

type exporter struct {
	tar      *tar.Writer
	src      Source
	payloads map[string]bool // keys written
}

func (x *exporter) file(name string, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
	err := x.tar.WriteHeader(h)
	if err == nil {
		_, err = x.tar.Write(data)
	}
	if err != nil {
		return fmt.Errorf("write %s into the export: %w", name, err)
	}
	return nil
}

// log writes bundles, tiles and payloads in the order in which the log grew.
func (x *exporter) log(size int64) error {
	tree := &Tree{}
	for from := int64(0); from < size; from += tileWidth {
		to := min(from+tileWidth, size)
		leaves, err := x.src.Entries(from, to)
		if err != nil {
			return fmt.Errorf("read entries %d to %d, which the checkpoint covers: %w", from, to-1, err)
		}
		if int64(len(leaves)) != to-from {
			return fmt.Errorf("read entries %d to %d, which the checkpoint covers: only %d are there", from, to-1, len(leaves))
		}
		var bundle []byte
		for i, leaf := range leaves {
			if len(leaf) > MaxLeaf {
				return fmt.Errorf("entry %d has %d bytes, which no export can hold", from+int64(i), len(leaf))
			}
			bundle = AppendBundle(bundle, leaf)
			tree.Append(leaf)
		}
		if err := x.file(TilePath(EntriesLevel, from/tileWidth, int(to-from)), bundle); err != nil {
			return err
		}
		for _, t := range tree.Completed() {
			data, err := x.src.Tile(t.Level, t.Index, tileWidth)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read tile %s: %w", t.Path(), err)
			}
			if err := x.file(t.Path(), data); err != nil {
				return err
			}
		}
		tree.Commit()
		for _, leaf := range leaves {
			if e, err := Unmarshal(leaf); err == nil {
				if err := x.payload(e); err != nil {
					return err
				}
			}
		}
	}
	for level, tail := range tree.tails {
		if len(tail) > 0 {
			width := len(tail) / tlog.HashSize
			if err := x.file(TilePath(level, size>>(tileHeight*(level+1)), width), tail); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *exporter) payload(e Entry) error {
	for _, p := range []*Payload{e.Arguments, e.Result} {
		if p == nil || !p.Stored || !isKey(p.Key) || x.payloads[p.Key] {
			continue
		}
		x.payloads[p.Key] = true
		data, err := x.src.Payload(p.Key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read payload %s: %w", p.Key, err)
		}
		if err := x.file(payloadPrefix+p.Key, data); err != nil {
			return err
		}
	}
	return nil
}

// isKey reports whether s is the lower-case hex SHA-256 that names a payload.
func isKey(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// Export is an export opened for reading, packed or unpacked. It implements Source. The format bounds its reads, whatever the files contain. Not
// safe for concurrent use.
type Export struct {
	size  int64    // entries, by the names of the bundles
	names []string // files, sorted
	open  func(name string) (io.ReadCloser, int64, error)
	close func() error
}

// OpenExport opens the tar archive of WriteExport or the directory it was unpacked to. It refuses anything in it that is not a regular file or a
// directory, and names that point outside.
func OpenExport(name string) (*Export, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	var x *Export
	switch {
	case info.IsDir():
		x, err = openDirectory(name)
	case info.Mode().IsRegular():
		x, err = openArchive(name)
	default:
		err = errors.New("neither a file nor a directory")
	}
	if err != nil {
		return nil, fmt.Errorf("open the export %s: %w", name, err)
	}
	x.index()
	return x, nil
}

// index sorts the names and finds the size.
func (x *Export) index() {
	slices.Sort(x.names)
	for _, name := range x.names {
		if level, n, width, err := ParseTilePath(name); err == nil && level == EntriesLevel {
			x.size = max(x.size, n*tileWidth+int64(width))
		}
	}
}

func openDirectory(dir string) (*Export, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	x := &Export{close: root.Close}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%.200q is not a regular file", name)
		}
		x.names = append(x.names, name)
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	x.open = func(name string) (io.ReadCloser, int64, error) {
		// A name that has become a pipe or a link since the walk is refused, not waited for.
		info, err := root.Lstat(filepath.FromSlash(name))
		if err != nil {
			return nil, 0, err
		}
		if !info.Mode().IsRegular() {
			return nil, 0, fmt.Errorf("%.200q is not a regular file", name)
		}
		f, err := root.Open(filepath.FromSlash(name))
		return f, info.Size(), err
	}
	return x, nil
}

func openArchive(file string) (*Export, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	type span struct{ at, size int64 }
	spans := map[string]span{}
	x := &Export{close: f.Close}
	scan := func() error {
		// The reader reads headers in whole blocks and never ahead, so that the file's position after Next is where the
		// content begins.
		r, end := tar.NewReader(f), int64(0)
		for {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return fmt.Errorf("not a whole tar archive: %w", err)
			}
			at, err := f.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			end = (at + h.Size + 511) &^ 511
			name := path.Clean(h.Name)
			switch {
			case h.Format == tar.FormatPAX: // would allow sparse files and sizes that are not in the header
				return fmt.Errorf("%.200q is packed in a way that the export is not: unpack it and verify the directory", h.Name)
			case !fs.ValidPath(name):
				return fmt.Errorf("%.200q points outside the export", h.Name)
			case h.Typeflag == tar.TypeDir:
				continue
			case h.Typeflag != tar.TypeReg:
				return fmt.Errorf("%.200q is not a regular file", h.Name)
			}
			if _, twice := spans[name]; twice {
				return fmt.Errorf("%.200q is in it twice", name)
			}
			spans[name] = span{at, h.Size}
			x.names = append(x.names, name)
		}
		// At least two blocks of zeros end an archive; the reader does without, and doesn't look at what follows.
		if _, err := f.Seek(end, io.SeekStart); err != nil {
			return err
		}
		if n, err := io.Copy(zeros{}, f); err != nil || n < 1024 {
			return errors.Join(errors.New("the archive is cut short, or something follows its end"), err)
		}
		return nil
	}
	if err := scan(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	x.open = func(name string) (io.ReadCloser, int64, error) {
		s, ok := spans[name]
		if !ok {
			return nil, 0, fs.ErrNotExist
		}
		return io.NopCloser(io.NewSectionReader(f, s.at, s.size)), s.size, nil
	}
	return x, nil
}

// zeros accepts nothing but zeros.
type zeros struct{}

func (zeros) Write(p []byte) (int, error) {
	if n := bytes.IndexFunc(p, func(r rune) bool { return r != 0 }); n >= 0 {
		return n, errors.New("not zero")
	}
	return len(p), nil
}

// Close closes the files.
func (x *Export) Close() error { return x.close() }

func (x *Export) read(name string, most int64) ([]byte, error) {
	f, size, err := x.open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer f.Close()
	if size > most {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that it may have", name, size, most)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("%s is cut short: %w", name, err)
	}
	return data, nil
}

// PublicKey implements Source.
func (x *Export) PublicKey() ([]byte, error) { return x.read(PublicFile, maxKey) }

// Checkpoint implements Source.
func (x *Export) Checkpoint() ([]byte, error) { return x.read(checkpointName, maxCheckpoint) }

// Size implements Source.
func (x *Export) Size() (int64, error) { return x.size, nil }

// Entries implements Source.
func (x *Export) Entries(from, to int64) ([][]byte, error) {
	n := from / tileWidth
	end := min((n+1)*tileWidth, x.size)
	if from < 0 || from >= to || to > end {
		return nil, fmt.Errorf("entries %d to %d are not in one bundle: %w", from, to-1, fs.ErrNotExist)
	}
	width := int(end - n*tileWidth)
	name := TilePath(EntriesLevel, n, width)
	data, err := x.read(name, maxBundle)
	if err != nil {
		return nil, err
	}
	leaves, err := ParseBundle(data, width)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return leaves[from-n*tileWidth : to-n*tileWidth], nil
}

// Tile implements Source.
func (x *Export) Tile(level int, n int64, width int) ([]byte, error) {
	return x.read(TilePath(level, n, width), tileBytes)
}

// Payload implements Source.
func (x *Export) Payload(key string) ([]byte, error) {
	if !isKey(key) {
		return nil, fmt.Errorf("%.80q is not a payload's key", key)
	}
	return x.read(payloadPrefix+key, maxPayload)
}

// Names implements Source.
func (x *Export) Names(yield func(name string) error) error {
	for _, name := range x.names {
		if err := yield(name); err != nil {
			return err
		}
	}
	return nil
}
