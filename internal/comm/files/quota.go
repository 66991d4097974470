package files

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"sallyport.example/internal/fault"
)

// What is left to the rest of the machine, above all to the audit log: programs run only while the disk has more. A file that a program
// removes while it is open is in no folder and in no count but this.
const (
	reserve       = 256 << 20 // bytes
	reserveInodes = 10_000
)

// trimTime bounds one Trim. What it does not come to, Afford refuses.
const trimTime = 10 * time.Second

var errTooMany = errors.New("too many")

func over(format string, args ...any) error {
	return fault.New(fault.LimitQuota, format, args...).Try("Remove files that are no longer needed with a program, or empty them by writing.")
}

// Afford refuses a workspace that holds more than Options allow, or a disk that is nearly full: for programs, before they run and again and
// again while they do, as nothing else bounds all that they write. Folders that are closed to the gateway are opened. Errors: limit.quota,
// not_found, request.malformed, time.exceeded.
func (s *Store) Afford(ctx context.Context, session string) error {
	if !validSession(session) {
		return notSession()
	}
	if bytes, inodes, known := room(s.opt.Root); known && (bytes < s.reserve || inodes < reserveInodes) {
		return fault.New(fault.LimitQuota, "The disk is nearly full; programs run only while %d MiB and %d files are free.", s.reserve>>20, reserveInodes).
			Try("An operator must make room.")
	}
	s.unlock(path.Join(workspaceDir, session))
	w := &Workspace{store: s, session: session}
	root, err := w.open(place{})
	if err != nil {
		return err
	}
	defer root.Close()
	bytes, _, err := w.measure(ctx, root)
	if err != nil {
		return err
	}
	if limit := s.opt.MaxWorkspace; bytes > limit {
		return over("The workspace holds more than the limit of %d bytes.", limit)
	}
	return nil
}

// unlock makes a folder the owner's again that a program closed. Where it can't, what comes next says so.
func (s *Store) unlock(name string) {
	if fi, err := s.base.Lstat(name); err == nil && fi.IsDir() && fi.Mode().Perm()&0o700 != 0o700 {
		s.base.Chmod(name, 0o700)
	}
}

// discard moves a folder to closed/.
func (s *Store) discard(name, session string) error {
	s.unlock(name)
	return s.base.Rename(name, path.Join(closedDir, session+"-"+random()))
}

// readable is unlock for folders below a workspace, which need not be writable.
func readable(root *os.Root, name string, e fs.DirEntry) {
	if fi, err := e.Info(); err == nil && fi.IsDir() && fi.Mode().Perm()&0o500 != 0o500 {
		root.Chmod(name, fi.Mode().Perm()|0o700)
	}
}

// measure counts a workspace. What can't be measured in bounded work is too much.
func (w *Workspace) measure(ctx context.Context, root *os.Root) (bytes int64, entries int, err error) {
	most := w.store.opt.MaxFiles
	err = walk(ctx, root, ".", func(name string, e fs.DirEntry, depth int) (bool, error) {
		if entries++; entries > most || e.IsDir() && depth > maxDepth {
			return false, errTooMany
		}
		if e.IsDir() {
			readable(root, name, e)
		} else if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() {
			bytes = add(bytes, fi.Size())
		}
		return true, nil
	})
	if err == errTooMany {
		err = over("The workspace holds more than the limit of %d files, or is nested too deep.", most)
	}
	return bytes, entries, err
}

// Trim removes what programs left in a workspace beyond its limits, the newest first, and what is nested too deep. It is called when a program
// has ended. Where it had to remove something, or could not, its error is limit.quota.
func (s *Store) Trim(session string) error {
	if !validSession(session) {
		return notSession()
	}
	ctx, cancel := context.WithTimeout(context.Background(), trimTime)
	defer cancel()
	unlock, err := s.locks.lock(ctx, session)
	if err != nil {
		return err
	}
	defer unlock()
	here := path.Join(workspaceDir, session)
	s.unlock(here)
	w := &Workspace{store: s, session: session}
	root, err := w.open(place{})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()

	t := trim{store: s, session: session, here: here, root: root}
	if err := walk(ctx, root, ".", t.find); err != nil {
		return over("What the program left could not be measured.")
	}
	t.remove()
	if t.removed {
		if err := s.purge(); err != nil {
			return fault.Wrap(err, fault.LimitQuota, "The program left more than the workspace may hold, and not all of it could be removed.")
		}
	}
	switch {
	case !t.fits():
		return over("The program left more than the workspace may hold, and not all of it could be removed.")
	case t.removed:
		return over("The program left more than the %d bytes or %d files that the workspace may hold; the newest were removed.", s.opt.MaxWorkspace, s.opt.MaxFiles)
	}
	return nil
}

// trim is one Trim under way: what is left, and how much of it.
type trim struct {
	store   *Store
	session string
	here    string // the workspace
	root    *os.Root
	all     []*left
	bytes   int64
	entries int
	removed bool
}

// left is a file or folder that Trim found.
type left struct {
	name     string
	size     int64
	modified time.Time
}

func (t *trim) fits() bool {
	return t.entries <= t.store.opt.MaxFiles && t.bytes <= t.store.opt.MaxWorkspace
}

// find remembers an entry. What is too deep, or too much to remember, goes at once: of folders the whole.
func (t *trim) find(name string, e fs.DirEntry, depth int) (bool, error) {
	much := len(t.all) >= max(10*t.store.opt.MaxFiles, maxScan)
	if e.IsDir() && (depth > maxDepth || much) {
		t.removed = true
		return false, t.store.discard(path.Join(t.here, name), t.session)
	}
	if much {
		t.removed = true
		if err := t.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		return false, nil
	}
	l := &left{name: name}
	if fi, err := e.Info(); err == nil {
		l.modified = fi.ModTime()
		if fi.Mode().IsRegular() {
			l.size = min(fi.Size(), 1<<45) // so that no sum of them overflows
		}
	}
	if e.IsDir() {
		readable(t.root, name, e)
	}
	t.all = append(t.all, l)
	t.entries++
	t.bytes += l.size
	return true, nil
}

// remove removes the newest until the rest fits. A folder can only go after what is in it, and is as old as the oldest of that.
func (t *trim) remove() {
	folders := make(map[string]*left, len(t.all))
	for _, l := range t.all {
		folders[l.name] = l
	}
	for _, l := range slices.Backward(t.all) { // the walk came to the folders first
		if in := folders[path.Dir(l.name)]; in != nil && l.modified.Before(in.modified) {
			in.modified = l.modified
		}
	}
	slices.SortFunc(t.all, func(a, b *left) int { return cmp.Or(b.modified.Compare(a.modified), cmp.Compare(b.name, a.name)) })
	for _, l := range t.all {
		if t.fits() {
			return
		}
		if t.entries <= t.store.opt.MaxFiles && l.size == 0 {
			continue
		}
		err := t.root.Remove(l.name)
		if errors.Is(err, fs.ErrPermission) {
			t.root.Chmod(path.Dir(l.name), 0o700)
			err = t.root.Remove(l.name)
		}
		if err == nil {
			t.removed = true
			t.entries--
			t.bytes -= l.size
		}
	}
}
