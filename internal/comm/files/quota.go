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

// left is what Trim found.
type left struct {
	name     string
	size     int64
	modified time.Time
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

	var (
		all     []*left
		bytes   int64
		entries int
		removed bool
	)
	out := func(name string) error { // a whole folder at once
		removed = true
		return s.discard(path.Join(here, name), session)
	}
	err = walk(ctx, root, ".", func(name string, e fs.DirEntry, depth int) (bool, error) {
		much := len(all) >= max(10*s.opt.MaxFiles, maxScan) // too much to remember
		if e.IsDir() && (depth > maxDepth || much) {
			return false, out(name)
		}
		if much {
			removed = true
			if err := root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
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
			readable(root, name, e)
		}
		all = append(all, l)
		entries++
		bytes += l.size
		return true, nil
	})
	if err != nil {
		return over("What the program left could not be measured.")
	}
	// A folder can only go after what is in it, and is as old as the oldest of that.
	folders := make(map[string]*left, len(all))
	for _, l := range all {
		folders[l.name] = l
	}
	for _, l := range slices.Backward(all) { // the walk came to the folders first
		if in := folders[path.Dir(l.name)]; in != nil && l.modified.Before(in.modified) {
			in.modified = l.modified
		}
	}
	slices.SortFunc(all, func(a, b *left) int { return cmp.Or(b.modified.Compare(a.modified), cmp.Compare(b.name, a.name)) })
	fits := func() bool { return entries <= s.opt.MaxFiles && bytes <= s.opt.MaxWorkspace }
	for _, l := range all {
		if fits() {
			break
		}
		if entries <= s.opt.MaxFiles && l.size == 0 {
			continue
		}
		err := root.Remove(l.name)
		if errors.Is(err, fs.ErrPermission) {
			root.Chmod(path.Dir(l.name), 0o700)
			err = root.Remove(l.name)
		}
		if err == nil {
			removed = true
			entries--
			bytes -= l.size
		}
	}
	if removed {
		if err := s.purge(); err != nil {
			return fault.Wrap(err, fault.LimitQuota, "The program left more than the workspace may hold, and not all of it could be removed.")
		}
	}
	switch {
	case !fits():
		return over("The program left more than the workspace may hold, and not all of it could be removed.")
	case removed:
		return over("The program left more than the %d bytes or %d files that the workspace may hold; the newest were removed.", s.opt.MaxWorkspace, s.opt.MaxFiles)
	}
	return nil
}
