// Package files holds the sessions' workspaces: one folder of files per session, and a cache that all of them may read.
//
// Promises (EX-2): a path of an agent's reaches nothing outside the session's own folder and the cache, whatever links, pipes,
// devices or races a program inside the folder prepares; every name is resolved by os.Root at the moment of use, never checked
// first and opened later. Only regular files with one name are read or replaced. A write is seen whole or not at all. Bytes
// read, bytes written, entries listed and depth are bounded. What lies outside is refused in one sentence, there or not.
// Operations end with their context (EX-6); between two reads of a local file, that is.
//
// The data folder, which one process owns at a time:
//
//	workspace/<session>/   the session's files; ".sallyport-….tmp" at its top are writes on their way and temporary folders of programs
//	cache/                 the gateway writes, agents read it as "cache/…"
//	closed/                workspaces on their way out
//
// It does not promise anything about mounts: a process that can mount inside a workspace can show other files there.
package files

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/sandbox"
)

// Options say where the data folder is and what a session may hold. A zero limit is its default.
type Options struct {
	Root         string // the data folder; made if it is not there
	MaxFile      int64  // bytes of one file, read or written; default 8 MiB
	MaxWorkspace int64  // bytes of all files of one session, by their length; default 256 MiB
	MaxFiles     int    // files, folders and links of one session; default 10,000
	MaxList      int    // entries of one listing; default 1000
}

// Store is the data folder.
type Store struct {
	opt   Options
	base  *os.Root
	locks locks // writes and removal, per session

	reserve uint64 // bytes that the disk must have left for a program to run
}

// Workspace is one session's files. It holds no resource; its methods may be used by many at a time.
type Workspace struct {
	store   *Store
	session string
	dir     string // absolute
}

// File is the result of a read or a write.
type File struct {
	Path      string // relative to the workspace, cleaned
	Bytes     []byte // the part that was asked for; nil after a write
	Size      int64  // of the whole file
	SHA256    string // of the whole file, in hexadecimal
	Truncated bool   // the file goes on after Bytes
	Next      int64  // the offset that Bytes ends at
	Text      bool   // the whole file is text, maybe with a few broken characters; Bytes then splits no whole one
}

// WriteOptions say how to write.
type WriteOptions struct {
	Append bool // after what the file holds, as one new content
	// Expected is the SHA-256, in hexadecimal, of what the file holds now, or "absent"; "" does not check. It orders the writes
	// that come through this package; a program that runs in the workspace is not asked.
	Expected string
	// Again says that the content can be had again, so that nothing waits until the disk has it. After a crash of the machine the file may be empty.
	Again bool
}

// Absent is the WriteOptions.Expected of a file that must not be there.
const Absent = "absent"

const (
	workspaceDir = "workspace"
	cacheDir     = "cache"
	closedDir    = "closed"

	tempPrefix = sandbox.TempPrefix
	tempSuffix = sandbox.TempSuffix
)

// Open makes the data folder's three folders, for the owner only, and removes what a crash left: unfinished writes, temporary folders of programs
// and workspaces whose removal was not finished. What a program made so that it can't be removed stays: no session keeps the gateway from starting.
func Open(o Options) (*Store, error) {
	if !supported {
		return nil, fault.New(fault.SandboxUnavailable, "Workspaces need a Unix file system.")
	}
	if o.Root == "" {
		return nil, fault.New(fault.ConfigurationInvalid, "the data folder has no path").At("root")
	}
	if o.MaxFile < 0 || o.MaxWorkspace < 0 || o.MaxFiles < 0 || o.MaxList < 0 {
		return nil, fault.New(fault.ConfigurationInvalid, "a limit on files is negative")
	}
	for _, d := range []struct {
		value *int64
		or    int64
	}{{&o.MaxFile, 8 << 20}, {&o.MaxWorkspace, 256 << 20}} {
		if *d.value == 0 {
			*d.value = d.or
		}
	}
	for _, d := range []struct {
		value *int
		or    int
	}{{&o.MaxFiles, 10_000}, {&o.MaxList, 1000}} {
		if *d.value == 0 {
			*d.value = d.or
		}
	}
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, fault.Wrap(err, fault.ConfigurationInvalid, "the data folder can't be named").At("root")
	}
	o.Root = root
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.ConfigurationInvalid, "the data folder can't be made").At("root")
	}
	base, err := os.OpenRoot(root)
	if err != nil {
		return nil, fault.Wrap(err, fault.ConfigurationInvalid, "the data folder can't be opened").At("root")
	}
	s := &Store{opt: o, base: base, reserve: reserve}
	if err := s.prepare(); err != nil {
		base.Close()
		return nil, fault.Wrap(err, fault.ConfigurationInvalid, "the data folder can't be prepared").At("root")
	}
	return s, nil
}

func (s *Store) prepare() error {
	for _, dir := range []string{workspaceDir, cacheDir, closedDir} {
		if err := s.base.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		fi, err := s.base.Lstat(dir)
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			return &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
		}
		if fi.Mode().Perm()&0o077 != 0 {
			if err := s.base.Chmod(dir, 0o700); err != nil {
				return err
			}
		}
	}
	ws, err := s.base.OpenFile(workspaceDir, openDir, 0)
	if err != nil {
		return err
	}
	defer ws.Close()
	err = eachEntry(context.Background(), ws, func(e fs.DirEntry) error {
		if e.IsDir() && validSession(e.Name()) {
			s.sweep(e.Name())
		}
		return nil
	})
	s.purge() // what is left is tried again at the next removal
	return err
}

// sweep removes the temporary files in one session's workspace, as far as it can.
func (s *Store) sweep(session string) {
	here := path.Join(workspaceDir, session)
	s.unlock(here)
	root, err := s.base.OpenRoot(here)
	if err != nil {
		return
	}
	defer root.Close()
	dir, err := root.OpenFile(".", openDir, 0)
	if err != nil {
		return
	}
	defer dir.Close()
	eachEntry(context.Background(), dir, func(e fs.DirEntry) error {
		switch {
		case !temporary(e.Name()):
		case e.IsDir():
			s.discard(path.Join(here, e.Name()), session)
		default:
			root.Remove(e.Name())
		}
		return nil
	})
}

func temporary(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// Close lets go of the data folder. Operations after it fail.
func (s *Store) Close() error { return s.base.Close() }

// CacheDir is the absolute path of the shared cache.
func (s *Store) CacheDir() string { return filepath.Join(s.opt.Root, cacheDir) }

// Dir is the absolute path of the session's workspace, which it makes if needed; for the working directory of programs.
func (s *Store) Dir(session string) (string, error) {
	w, err := s.Workspace(session)
	if err != nil {
		return "", err
	}
	return w.dir, nil
}

// Workspace is the session's workspace, made at first use.
func (s *Store) Workspace(session string) (*Workspace, error) {
	if !validSession(session) {
		return nil, notSession()
	}
	name := path.Join(workspaceDir, session)
	if err := s.base.Mkdir(name, 0o700); err != nil {
		fi, statErr := s.base.Lstat(name)
		if !errors.Is(err, fs.ErrExist) || statErr != nil || !fi.IsDir() {
			return nil, fault.Wrap(err, fault.Internal, "the workspace can't be made")
		}
		s.unlock(name)
	}
	return &Workspace{store: s, session: session, dir: filepath.Join(s.opt.Root, workspaceDir, session)}, nil
}

func notSession() error {
	return fault.New(fault.RequestMalformed, "this is not a session's id").At("session")
}

// validSession accepts ids as the gateway mints them, and nothing that could mean something to a file system.
func validSession(id string) bool {
	rest, ok := strings.CutPrefix(id, "sess_")
	if !ok || rest == "" || len(rest) > 64 {
		return false
	}
	for i := range len(rest) {
		if c := rest[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// Remove removes the workspace of a closed session; links in it go, what they point to stays. No program may be running there.
// It is no error when there is none. What a crash leaves of it goes at the next Open.
func (s *Store) Remove(session string) error {
	if !validSession(session) {
		return notSession()
	}
	unlock, err := s.locks.lock(context.Background(), session)
	if err != nil {
		return err
	}
	defer unlock()
	here, gone := path.Join(workspaceDir, session), path.Join(closedDir, session+"-"+random())
	err = s.base.Chmod(here, 0o700) // a folder that may not be written can't be moved
	if err == nil {
		err = s.base.Rename(here, gone)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fault.Wrap(err, fault.Internal, "the workspace can't be removed")
	}
	if err := s.purge(); err != nil {
		return fault.Wrap(err, fault.Internal, "the workspace can't be removed")
	}
	return nil
}

// purge empties closed/. RemoveAll holds a descriptor for each level and gives up at a folder that its owner may not write, so
// each tree is first cut to maxDepth levels, and its folders made writable; what was cut off comes next. What can't be removed does not
// keep the rest from it.
func (s *Store) purge() error {
	s.locks.purge.Lock()
	defer s.locks.purge.Unlock()
	root, err := s.base.OpenRoot(closedDir)
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		dir, err := root.OpenFile(".", openDir, 0)
		if err != nil {
			return err
		}
		var failed error
		progress := false
		err = eachEntry(context.Background(), dir, func(e fs.DirEntry) (err error) {
			if e.IsDir() {
				err = cut(root, e)
			}
			if err == nil {
				err = root.RemoveAll(e.Name())
			}
			if err != nil {
				failed = err
			} else {
				progress = true
			}
			return nil
		})
		dir.Close()
		if err != nil || !progress {
			return cmp.Or(err, failed)
		}
	}
}

// cut moves files and folders deeper than maxDepth below a folder to the top of root.
func cut(root *os.Root, top fs.DirEntry) error {
	writable := func(name string, e fs.DirEntry) error {
		fi, err := e.Info()
		if err == nil && fi.Mode().Perm()&0o700 != 0o700 {
			err = root.Chmod(name, 0o700)
		}
		return err
	}
	if err := writable(top.Name(), top); err != nil {
		return err
	}
	return walk(context.Background(), root, top.Name(), func(name string, e fs.DirEntry, depth int) (bool, error) {
		if !e.IsDir() {
			return false, nil
		}
		if err := writable(name, e); err != nil {
			return false, err
		}
		if depth < maxDepth {
			return true, nil
		}
		return false, root.Rename(name, random())
	})
}

func random() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program when it can't
	return hex.EncodeToString(b[:])
}

// Read gives limit bytes of a file from offset on, and the hash of the whole; limit 0 is all of it. Of a text it begins with the character that
// offset stands in, and gives whole characters, at least one. Files over Options.MaxFile are
// refused whole. Errors: path.blocked, not_found, request.malformed, result.too_large, time.exceeded.
func (w *Workspace) Read(ctx context.Context, name string, offset, limit int64) (*File, error) {
	if offset < 0 {
		return nil, fault.New(fault.RequestMalformed, "offset is negative").At("offset")
	}
	if limit < 0 {
		return nil, fault.New(fault.RequestMalformed, "limit is negative").At("limit")
	}
	p, err := w.place(name)
	if err != nil {
		return nil, err
	}
	if p.folder {
		return nil, notRegular()
	}
	root, err := w.open(p)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, fi, err := openRegular(root, p.rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := slurp(ctx, f, fi.Size(), w.store.opt.MaxFile)
	if err != nil {
		return nil, err
	}
	file := described(p.shown, all)
	from := min(offset, file.Size)
	to := file.Size
	if limit > 0 && limit < to-from {
		to = from + limit
	}
	if file.Text = isText(all); file.Text {
		from, to = whole(all, from, to)
	}
	file.Bytes = all[from:to:to]
	file.Truncated, file.Next = to < file.Size, to
	return file, nil
}

// isText judges all of a file, so that no choice of a part, and no odd byte, makes a text pass for data. What is UTF-8 all through is one,
// whatever characters it has; the rest is none where more than one in twenty characters is broken or of control.
func isText(all []byte) bool {
	if utf8.Valid(all) {
		return true
	}
	bad, n := 0, 0
	for i := 0; i < len(all); n++ {
		r, size := utf8.DecodeRune(all[i:])
		if r == utf8.RuneError && size == 1 || r < ' ' && !strings.ContainsRune("\t\n\r\f\x1b", r) || r >= 0x7f && r < 0xa0 {
			bad++
		}
		i += size
	}
	return bad*20 <= n
}

// whole moves the ends of a part down to where characters begin, and takes one character where that leaves none.
func whole(all []byte, from, to int64) (int64, int64) {
	down := func(at int64) int64 {
		for back := int64(1); back < utf8.UTFMax && back <= at && at < int64(len(all)); back++ {
			if _, n := utf8.DecodeRune(all[at-back:]); int64(n) > back {
				return at - back
			}
		}
		return at
	}
	asked := to > from
	if from, to = down(from), down(to); asked && to <= from {
		_, n := utf8.DecodeRune(all[from:])
		to = from + int64(n)
	}
	return from, to
}

func described(name string, content []byte) *File {
	sum := sha256.Sum256(content)
	return &File{Path: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

// openRegular opens a file to read and then asks what it opened. The open can't block: a pipe without a writer is open at once.
func openRegular(root *os.Root, rel string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(rel, openFile, 0)
	if err != nil {
		return nil, nil, refusal(err)
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, refusal(err)
	}
	if err := regular(fi); err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// regular refuses anything but a regular file, and a file with more than one name: its other name may be outside.
func regular(fi fs.FileInfo) error {
	if !fi.Mode().IsRegular() {
		return notRegular()
	}
	if links(fi) != 1 {
		return fault.New(fault.PathBlocked, "The file has more than one name (hard links), so it may lie outside the workspace too.").At("path").
			Try("Let the program copy it instead of linking it.")
	}
	return nil
}

// slurp reads to the end, and believes no size but the number of bytes that came.
func slurp(ctx context.Context, r io.Reader, size, most int64) ([]byte, error) {
	if size > most {
		return nil, tooLarge(most)
	}
	buf := make([]byte, 0, max(size, 0)+512)
	for {
		if err := ctx.Err(); err != nil {
			return nil, timeUp(err)
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), len(buf)+256<<10)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > most {
			return nil, tooLarge(most)
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, refusal(err)
		}
	}
}

// Write makes or replaces a regular file: whole, by a rename. Folders on the way are made. The cache, links, read-only files and
// files with more than one name are refused. A replaced file keeps its permissions; a new one is the owner's only. Errors:
// path.blocked, conflict (Expected), limit.quota, request.malformed, result.too_large (append), time.exceeded.
func (w *Workspace) Write(ctx context.Context, name string, content []byte, o WriteOptions) (*File, error) {
	if o.Expected != "" && o.Expected != Absent && !isSHA256(o.Expected) {
		return nil, fault.New(fault.RequestMalformed, `expected_sha256 is neither a SHA-256 in lower-case hexadecimal nor "absent".`).At("expected_sha256")
	}
	if most := w.store.opt.MaxFile; int64(len(content)) > most {
		return nil, fault.New(fault.RequestMalformed, "the content of %d bytes is over the limit of %d", len(content), most).At("content")
	}
	p, err := w.place(name)
	if err != nil {
		return nil, err
	}
	if p.cache {
		return nil, fault.New(fault.PathBlocked, "The cache is shared by all sessions; agents read it and never write it.").At("path").
			Try("Write into the workspace, outside cache/.")
	}
	if p.folder || p.rel == "." {
		return nil, notRegular()
	}
	release, err := w.store.Share(ctx, w.session)
	if err != nil {
		return nil, err
	}
	defer release()
	unlock, err := w.store.locks.lock(ctx, w.session)
	if err != nil {
		return nil, err
	}
	defer unlock()
	root, err := w.open(p)
	if err != nil {
		return nil, err
	}
	defer root.Close()

	old, err := w.current(ctx, root, p.rel, o)
	if err != nil {
		return nil, err
	}
	if o.Append {
		content = append(old.content, content...)
		if most := w.store.opt.MaxFile; int64(len(content)) > most {
			return nil, tooLarge(most)
		}
	}
	if err := w.afford(ctx, root, p.rel, old, int64(len(content))); err != nil {
		return nil, err
	}
	if dir := path.Dir(p.rel); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return nil, refusal(err)
		}
	}
	if err := replace(ctx, root, p.rel, content, old.perm, !o.Again); err != nil {
		return nil, err
	}
	return described(p.shown, content), nil
}

func isSHA256(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 2*sha256.Size
}

// standing is the file at a path before a write.
type standing struct {
	exists  bool
	size    int64
	perm    fs.FileMode
	content []byte // only when the write needs it
}

// current looks at what the write would replace, without following a link in its place.
func (w *Workspace) current(ctx context.Context, root *os.Root, rel string, o WriteOptions) (standing, error) {
	conflict := func(what string) error {
		return fault.New(fault.Conflict, "%s", what).At("expected_sha256").Try("Read the file again and decide anew.")
	}
	fi, err := root.Lstat(rel)
	if errors.Is(err, fs.ErrNotExist) {
		if o.Expected != "" && o.Expected != Absent {
			return standing{}, conflict("The file that was expected is not there.")
		}
		return standing{perm: 0o600}, nil
	}
	if err != nil {
		return standing{}, refusal(err)
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		return standing{}, fault.New(fault.PathBlocked, "The path is a link, and nothing is written through links.").At("path").
			Try("Write to the file's own path.")
	}
	if err := regular(fi); err != nil {
		return standing{}, err
	}
	if fi.Mode().Perm()&0o200 == 0 {
		return standing{}, fault.New(fault.PathBlocked, "The file is read-only.").At("path").Try("Write to another name.")
	}
	if o.Expected == Absent {
		return standing{}, conflict("The file is there already.")
	}
	was := standing{exists: true, size: fi.Size(), perm: fi.Mode().Perm()}
	if !o.Append && o.Expected == "" {
		return was, nil
	}
	f, fi, err := openRegular(root, rel)
	if err != nil {
		return standing{}, err
	}
	defer f.Close()
	if was.content, err = slurp(ctx, f, fi.Size(), w.store.opt.MaxFile); err != nil {
		return standing{}, err
	}
	if o.Expected != "" && described("", was.content).SHA256 != o.Expected {
		return standing{}, conflict("The file is not what was expected.")
	}
	return was, nil
}

// afford measures the workspace before each write, because programs change it unseen.
func (w *Workspace) afford(ctx context.Context, root *os.Root, rel string, old standing, size int64) error {
	most := w.store.opt.MaxFiles
	bytes, entries, err := w.measure(ctx, root)
	if err != nil {
		return err
	}
	if !old.exists {
		entries++
		for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
			if _, err := root.Lstat(dir); err != nil {
				entries++
			}
		}
		if entries > most {
			return over("The workspace is full: the limit is %d files.", most)
		}
	}
	if limit := w.store.opt.MaxWorkspace; size > old.size && bytes-old.size > limit-size {
		return over("The workspace is full: the limit is %d bytes.", limit)
	}
	return nil
}

// add stops at the largest number: sparse files are as long as they like to be.
func add(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// replace writes a temporary file at the top of the workspace and renames it into place. Where it is to be durable, the bytes are on the disk before
// the name is, so that after a crash the file is the old or the new one. If the target's folder is moved or swapped for a link
// meanwhile, the rename lands in the folder it opened, still inside, or fails.
func replace(ctx context.Context, root *os.Root, rel string, content []byte, perm fs.FileMode, durable bool) (err error) {
	temp := tempPrefix + random() + tempSuffix
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return refusal(err)
	}
	defer func() {
		f.Close()
		if err != nil {
			root.Remove(temp)
		}
	}()
	if _, err := f.Write(content); err != nil {
		return refusal(err)
	}
	if err := f.Chmod(perm); err != nil {
		return refusal(err)
	}
	if durable {
		if err := f.Sync(); err != nil {
			return refusal(err)
		}
	}
	if err := ctx.Err(); err != nil {
		return timeUp(err)
	}
	if err := root.Rename(temp, rel); err != nil {
		return refusal(err)
	}
	return nil
}

// open opens the folder that p is resolved in. The caller closes it.
func (w *Workspace) open(p place) (*os.Root, error) {
	dir := path.Join(workspaceDir, w.session)
	if p.cache {
		dir = cacheDir
	}
	root, err := w.store.base.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "The session's workspace is gone.")
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the workspace can't be opened")
	}
	return root, nil
}

func notRegular() error {
	return fault.New(fault.PathBlocked, "The path is not a regular file.").At("path").Try("A folder is listed with comm_list_files.")
}

func tooLarge(most int64) error {
	return fault.New(fault.ResultTooLarge, "The file is over the limit of %d bytes.", most).At("path").Try("Split it with a program.")
}

func timeUp(cause error) error { return fault.Wrap(cause, fault.TimeExceeded, "") }

// refusal says what an error of the file system means to an agent. Errors of os.Root that are no error numbers are escapes.
func refusal(err error) error {
	var e *fault.Error
	if errors.As(err, &e) {
		return e
	}
	var no syscall.Errno
	if !errors.As(err, &no) {
		return outside(err)
	}
	switch no {
	case syscall.ENOENT, syscall.ENOTDIR:
		return fault.Wrap(err, fault.NotFound, "There is no such file in the workspace.").At("path").Try("comm_list_files tells what is there.")
	case syscall.ELOOP, syscall.EACCES, syscall.EPERM, syscall.ENXIO, syscall.EISDIR, syscall.EEXIST, syscall.ENAMETOOLONG, syscall.EINVAL:
		return fault.Wrap(err, fault.PathBlocked, "The path can't be used.").At("path")
	case syscall.ENOSPC, syscall.EDQUOT:
		return fault.Wrap(err, fault.LimitQuota, "The disk is full; nothing was written.")
	}
	return fault.Wrap(err, fault.Internal, "the file system failed")
}

// locks are one lock per session, which exists while somebody holds or awaits it, and one for emptying closed/.
type locks struct {
	purge sync.Mutex

	mu    sync.Mutex // guards per, gates and the counts
	per   map[string]*lock
	gates map[string]*gate
}

type lock struct {
	held chan struct{} // of length 1
	uses int
}

func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	if l.per == nil {
		l.per = map[string]*lock{}
	}
	k := l.per[key]
	if k == nil {
		k = &lock{held: make(chan struct{}, 1)}
		l.per[key] = k
	}
	k.uses++
	l.mu.Unlock()
	done := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.uses--; k.uses == 0 {
			delete(l.per, key)
		}
	}
	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; done() }, nil
	case <-ctx.Done():
		done()
		return nil, timeUp(ctx.Err())
	}
}
