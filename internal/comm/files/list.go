package files

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// Kind is the kind of an entry of a listing.
type Kind string

const (
	KindFile  Kind = "file"
	KindDir   Kind = "dir"
	KindLink  Kind = "link"  // never followed by a listing
	KindOther Kind = "other" // pipe, socket, device, or a name that the rules refuse and that is shown escaped
)

// Entry is one file or folder of a listing.
type Entry struct {
	Path     string    `json:"path"` // relative to the workspace
	Kind     Kind      `json:"kind"`
	Size     int64     `json:"size"` // bytes of a file, else 0
	Modified time.Time `json:"modified,omitzero"`
}

// Listing is the content of a folder, sorted by path.
type Listing struct {
	Entries   []Entry `json:"entries"`
	Truncated bool    `json:"truncated"` // there is more; folders near the top are listed first
}

// maxScan bounds the directory entries that one listing looks at, listed or not.
const maxScan = 100_000

// List lists a folder: depth levels of it (0 is 1; at most 32), and at most limit entries (0 is, and at most, Options.MaxList).
// The workspace's own listing shows the shared cache as the folder "cache", without its pages. Errors: path.blocked, not_found,
// request.malformed, time.exceeded.
func (w *Workspace) List(ctx context.Context, name string, depth, limit int) (*Listing, error) {
	if depth < 0 {
		return nil, fault.New(fault.RequestMalformed, "depth is negative").At("depth")
	}
	if limit < 0 {
		return nil, fault.New(fault.RequestMalformed, "limit is negative").At("limit")
	}
	if limit == 0 || limit > w.store.opt.MaxList {
		limit = w.store.opt.MaxList
	}
	p, err := w.place(name)
	if err != nil {
		return nil, err
	}
	root, err := w.open(p)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	l := &Listing{Entries: []Entry{}}
	if !p.cache && p.rel == "." {
		l.Entries = append(l.Entries, Entry{Path: cacheDir, Kind: KindDir})
	}
	shallow, scan := min(max(depth, 1), maxDepth), maxScan
	level := []string{p.rel}
	for d := 1; d <= shallow && len(level) > 0 && !l.Truncated; d++ {
		var next []string
		for i, dir := range level {
			if l.Truncated {
				break
			}
			here, more, err := children(ctx, root, dir, limit+1, &scan)
			if err != nil {
				if d == 1 && i == 0 || fault.Is(err, fault.TimeExceeded) {
					return nil, err
				}
				continue // gone, or closed to us, since its parent was read
			}
			l.Truncated = more
			for _, e := range here {
				if w.hidden(p, dir, e.Name()) {
					continue
				}
				if len(l.Entries) >= limit {
					l.Truncated = true
					break
				}
				entry, descend := shown(p, dir, e)
				l.Entries = append(l.Entries, entry)
				if descend {
					next = append(next, path.Join(dir, e.Name()))
				}
			}
		}
		level = next
	}
	if depth > shallow && len(level) > 0 {
		l.Truncated = true
	}
	slices.SortFunc(l.Entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	return l, nil
}

// hidden names are not the agent's: writes on their way, and a folder of the workspace that the shared cache stands before.
func (w *Workspace) hidden(p place, dir, name string) bool {
	return !p.cache && dir == "." && (temporary(name) || name == cacheDir)
}

func shown(p place, dir string, e fs.DirEntry) (entry Entry, descend bool) {
	name := e.Name()
	kind := KindOther
	switch e.Type() {
	case 0:
		kind = KindFile
	case fs.ModeDir:
		kind = KindDir
	case fs.ModeSymlink:
		kind = KindLink
	}
	if nameProblem(name) != "" {
		kind, name = KindOther, display.Line(name, 2*maxName)
	}
	entry = Entry{Path: path.Join(dir, name), Kind: kind}
	if p.cache {
		entry.Path = path.Join(cacheDir, entry.Path)
	}
	if fi, err := e.Info(); err == nil {
		entry.Modified = fi.ModTime().UTC()
		if kind == KindFile {
			entry.Size = fi.Size()
		}
	}
	return entry, kind == KindDir
}

// children gives the first most entries of a folder by name, in order. It holds no more than twice as many, and takes what it
// looks at from scan; more tells that there were others.
func children(ctx context.Context, root *os.Root, dir string, most int, scan *int) (found []fs.DirEntry, more bool, err error) {
	f, err := root.OpenFile(dir, openDir, 0)
	if err != nil {
		return nil, false, refusal(err)
	}
	defer f.Close()
	byName := func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }
	enough := errors.New("enough")
	err = eachEntry(ctx, f, func(e fs.DirEntry) error {
		if *scan--; *scan < 0 {
			return enough
		}
		found = append(found, e)
		if len(found) == 2*most {
			slices.SortFunc(found, byName)
			found, more = found[:most], true
		}
		return nil
	})
	if err == enough {
		more = true
	} else if err != nil {
		return nil, false, err
	}
	slices.SortFunc(found, byName)
	if len(found) > most {
		found, more = found[:most], true
	}
	return found, more, nil
}

// eachEntry reads a folder in pieces, so that a million entries cost time but no memory.
func eachEntry(ctx context.Context, dir *os.File, visit func(fs.DirEntry) error) error {
	for {
		if err := ctx.Err(); err != nil {
			return timeUp(err)
		}
		entries, err := dir.ReadDir(256)
		for _, e := range entries {
			if err := visit(e); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return refusal(err)
		}
	}
}

// walk visits everything below start, level by level, without following links; depth counts from 1. It goes into the folders for
// which visit says so. A folder that is gone when its turn comes is skipped; one that can't be read is an error.
func walk(ctx context.Context, root *os.Root, start string, visit func(name string, e fs.DirEntry, depth int) (bool, error)) error {
	level := []string{start}
	for depth := 1; len(level) > 0; depth++ {
		var next []string
		for _, dir := range level {
			f, err := root.OpenFile(dir, openDir, 0)
			if err != nil {
				if err := refusal(err); !fault.Is(err, fault.NotFound) {
					return err
				}
				continue
			}
			err = eachEntry(ctx, f, func(e fs.DirEntry) error {
				name := path.Join(dir, e.Name())
				descend, err := visit(name, e, depth)
				if err == nil && descend && e.IsDir() {
					next = append(next, name)
				}
				return err
			})
			f.Close()
			if err != nil {
				return err
			}
		}
		level = next
	}
	return nil
}
