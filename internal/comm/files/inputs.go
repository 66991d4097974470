package files

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// What a person can be asked about. A larger workspace is refused rather than left out of the answer.
const (
	maxInputBytes   = 32 << 20
	maxInputEntries = 2000
)

// Inputs describes what a program could read of a session's workspace: the files that words name, and all of it if whole is set or a word is no plain
// path: it names a folder, leads through a link or "..", is absolute and not below the workspace (as /proc/self/cwd/… is), or is too long to be looked at. A
// word that names nothing there is none. Errors: limit.quota for more than a person can answer for,
// path.blocked for a word that names a link out of the workspace, a pipe or a device, time.exceeded.
func (s *Store) Inputs(ctx context.Context, session string, words []string, whole bool) (*call.Inputs, error) {
	w, err := s.Workspace(session)
	if err != nil {
		return nil, err
	}
	root, err := w.open(place{})
	if err != nil {
		return nil, err
	}
	defer root.Close()
	in := &call.Inputs{Files: []call.InputFile{}}
	left := int64(maxInputBytes)
	for _, word := range words {
		name, plain := w.named(word)
		if !plain || throughLink(root, name) {
			whole = true
		}
		if name == "" || slices.ContainsFunc(in.Files, func(f call.InputFile) bool { return f.Path == name }) {
			continue
		}
		fi, err := root.Stat(name)
		switch {
		case isMissing(err):
			continue
		case err != nil:
			return nil, fault.Wrap(err, fault.PathBlocked, "argv names a link or a path that leaves the workspace, or that can't be read.").At("argv").
				Try("Name a file of the workspace.")
		case fi.IsDir():
			whole = true
			continue
		case !fi.Mode().IsRegular():
			return nil, fault.New(fault.PathBlocked, "argv names what is no regular file.").At("argv").Try("Name a file of the workspace.")
		}
		f := call.InputFile{Path: name}
		if f.SHA256, f.Size, err = sumOf(ctx, root, name, &left); err != nil {
			return nil, err
		}
		in.Files = append(in.Files, f)
	}
	slices.SortFunc(in.Files, func(a, b call.InputFile) int { return cmp.Compare(a.Path, b.Path) })
	if whole {
		in.Workspace, err = digest(ctx, root)
	}
	return in, err
}

// named is the path that a word could name in the workspace, which is a program's working directory and home; "" if it names none. plain is false where a
// program could read something of the workspace that the path doesn't tell. It reads no file system.
func (w *Workspace) named(word string) (name string, plain bool) {
	if rest, inside := strings.CutPrefix(word, w.dir+"/"); inside {
		word = "./" + rest
	}
	switch {
	case word == "" || strings.ContainsRune(word, 0):
		return "", true
	case len(word) > maxPath || path.IsAbs(word):
		return "", false
	}
	if name = path.Clean(word); !filepath.IsLocal(name) {
		return "", false
	}
	return name, !slices.Contains(strings.Split(word, "/"), "..")
}

// throughLink tells whether a path leads to a link, or through one.
func throughLink(root *os.Root, name string) bool {
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		if fi, err := root.Lstat(name[:i]); err != nil {
			return false // there is nothing further down
		} else if fi.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// isMissing tells whether nothing has the name: neither is there a file, nor could there be one.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || fault.Is(refusal(err), fault.NotFound) || err != nil && strings.HasSuffix(err.Error(), "file name too long")
}

// digest describes the whole workspace.
func digest(ctx context.Context, root *os.Root) (*call.InputFolder, error) {
	var lines []string
	folder, left := call.InputFolder{}, int64(maxInputBytes)
	err := walk(ctx, root, ".", func(name string, e fs.DirEntry, depth int) (bool, error) {
		if folder.Entries++; folder.Entries > maxInputEntries || depth > maxDepth {
			return false, tooMuch()
		}
		if e.IsDir() {
			readable(root, name, e)
		}
		fi, err := root.Lstat(name)
		if err != nil {
			return false, refusal(err)
		}
		content := ""
		switch {
		case fi.Mode().IsRegular():
			var size int64
			if content, size, err = sumOf(ctx, root, name, &left); err != nil {
				return false, err
			}
			folder.Size += size
		case fi.Mode()&fs.ModeSymlink != 0:
			if content, err = root.Readlink(name); err != nil {
				return false, refusal(err)
			}
		}
		lines = append(lines, fmt.Sprintf("%q %s %q\n", name, fi.Mode(), content))
		return fi.IsDir(), nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range lines {
		io.WriteString(h, line)
	}
	folder.SHA256 = hexOf(h)
	return &folder, nil
}

func tooMuch() error {
	return fault.New(fault.LimitQuota, "A person would have to answer for this program, which can run or read any of the workspace, and that has more than %d entries or %d MiB.",
		maxInputEntries, maxInputBytes>>20).Try("Remove files that are no longer needed. For a program that runs no file, an operator can list it under comm.exec.plain.")
}

func hexOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// sumOf hashes a regular file and takes its size from left, the bytes that may still be read.
func sumOf(ctx context.Context, root *os.Root, name string, left *int64) (sum string, size int64, err error) {
	f, err := root.OpenFile(name, openFile, 0)
	if err != nil {
		return "", 0, refusal(err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return "", 0, fault.Wrap(err, fault.PathBlocked, "A file of the workspace changed while it was looked at.").Try("Make the call again.")
	}
	h := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return "", 0, timeUp(err)
		}
		n, err := io.CopyN(h, f, min(*left+1, 1<<20))
		size += n
		if *left -= n; *left < 0 {
			return "", 0, tooMuch()
		}
		if err == io.EOF {
			return hexOf(h), size, nil
		}
		if err != nil {
			return "", 0, refusal(err)
		}
	}
}

// shares is how many writes and programs of a session may be under way beside each other.
const shares = 32

// gate lets writes and programs of one session into its workspace beside each other, or one program alone.
type gate struct {
	tokens chan struct{} // one held by each that shares, all by the one that is alone
	alone  chan struct{} // of length 1: held by who takes all tokens
	uses   int
}

// Share lets a write or a program into the session's workspace beside others, and keeps out who wants it alone, until release is called. Errors:
// conflict if another holds it until ctx ends.
func (s *Store) Share(ctx context.Context, session string) (release func(), err error) {
	return s.enter(ctx, session, 1)
}

// Hold keeps writes and other programs of the session out of its workspace until release is called. Errors are those of Share.
func (s *Store) Hold(ctx context.Context, session string) (release func(), err error) {
	return s.enter(ctx, session, shares)
}

func (s *Store) enter(ctx context.Context, session string, tokens int) (release func(), err error) {
	g, left := s.locks.gate(session)
	taken := 0
	release = func() {
		for range taken {
			<-g.tokens
		}
		left()
	}
	if tokens > 1 { // two that each took some of them would wait for each other
		if err := takePlace(ctx, g.alone); err != nil {
			release()
			return nil, err
		}
		defer func() { <-g.alone }()
	}
	for range tokens {
		if err := takePlace(ctx, g.tokens); err != nil {
			release()
			return nil, err
		}
		taken++
	}
	return release, nil
}

// takePlace takes a place in a channel. One that is free is taken whether or not ctx has ended.
func takePlace(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
	}
	return fault.Wrap(ctx.Err(), fault.Conflict, "A program that a person answered for has the workspace to itself, or waits for it, and did not end in time.").
		Try("Try again when it has ended.")
}

// gate returns the session's gate, which exists while somebody uses it.
func (l *locks) gate(session string) (g *gate, left func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates == nil {
		l.gates = map[string]*gate{}
	}
	if g = l.gates[session]; g == nil {
		g = &gate{tokens: make(chan struct{}, shares), alone: make(chan struct{}, 1)}
		l.gates[session] = g
	}
	g.uses++
	return g, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if g.uses--; g.uses == 0 {
			delete(l.gates, session)
		}
	}
}
