package files

import (
	"io/fs"
	"syscall"
)

// FS is the workspace for readers that take an fs.FS, such as a search. It opens what Read would read and folders, under the same
// rules, and not the cache; opening never blocks on what a program put there.
func (w *Workspace) FS() fs.FS { return tree{w} }

type tree struct{ w *Workspace }

func (t tree) Open(name string) (fs.File, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

func (t tree) open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	p, err := t.w.place(name)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	if p.cache {
		return nil, fs.ErrNotExist
	}
	root, err := t.w.open(p)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	defer root.Close()
	f, err := root.OpenFile(p.rel, openFile, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.IsDir() && regular(fi) != nil {
		err = syscall.EPERM
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
