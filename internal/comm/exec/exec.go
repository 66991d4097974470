// Package exec runs the programs that an operator allowed, each in a sandbox around the session's workspace: comm.exec without the guards, which
// the corridor holds (EX-1, EX-3, EX-6, EX-7).
//
// Promises: only a program on the list is started, by the file that was pinned, by its hash, when the list was made: nothing is looked up
// at the call, least of all in the workspace. There is no shell between the arguments and the program: they reach it one by one, as they
// are, or are refused. The program sees seven environment variables. It can touch only what package sandbox allows. At most four
// programs run at once, and a run ends when its owner's watch says so.
//
// HOME is the workspace: a file there that a program looks for at home (.gitconfig, .npmrc, .perltidyrc …) steers it, so that a session that may
// write files chooses what an allowed program that reads such a file does. It is done in the sandbox, like all else.
//
// An interpreter on the list (sh, bash, python3, node, perl), or a program that starts others (env, xargs, find, git), can start
// every program of the system, in the same sandbox: if it is on the list, only the sandbox limits it.
package exec

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/sandbox"
)

// Path lists the folders of programs, and is the PATH that they see.
const Path = "/usr/local/bin:/usr/bin:/bin"

// Bounds of one call.
const (
	maxArguments = 64
	maxArgument  = 4 << 10
	maxTotal     = 32 << 10
	maxStdin     = 1 << 20

	maxRuns  = 4                      // at once
	interval = 500 * time.Millisecond // of looking after one
)

// DefaultLimits are the limits where Options name none.
var DefaultLimits = sandbox.Limits{
	Wall: 30 * time.Second, CPU: 10 * time.Second, Memory: 512 << 20, File: 64 << 20, Output: 256 << 10, Processes: 64, OpenFiles: 256,
}

// DefaultPlain are the programs that count as plain where Options name none.
var DefaultPlain = []string{"cat", "grep", "head", "tail", "wc", "sort"}

// Options holds the operator's settings.
type Options struct {
	// Allow lists programs: names, which are looked for in Path, or absolute paths. The agent calls each by what stands here.
	// A script can't be allowed, nor a program that anybody may write to or replace, nor one that changes its user.
	Allow []string
	// Plain lists the programs, by their names in Allow, that run nothing and, with the options that Runner.Plain knows, read only the files that their
	// arguments name. nil: those of DefaultPlain.
	Plain   []string
	Network bool           // see package sandbox: it is the machine's whole network
	Limits  sandbox.Limits // a zero field is that of DefaultLimits
}

// Runner runs the listed programs. Safe for concurrent use.
type Runner struct {
	programs map[string]program
	plain    []string
	network  bool
	limits   sandbox.Limits
	places   chan struct{} // one taken by each run
}

type program struct {
	path string // absolute and free of links
	hash [sha256.Size]byte
}

// New finds and pins every program. A program that is changed later is refused until a new Runner is made.
func New(o Options) (*Runner, error) {
	r := &Runner{programs: map[string]program{}, plain: o.Plain, network: o.Network, limits: o.Limits, places: make(chan struct{}, maxRuns)}
	if o.Plain == nil {
		r.plain = DefaultPlain
	}
	d := DefaultLimits
	fill(&r.limits.Wall, d.Wall)
	fill(&r.limits.CPU, d.CPU)
	fill(&r.limits.Memory, d.Memory)
	fill(&r.limits.File, d.File)
	fill(&r.limits.Output, d.Output)
	fill(&r.limits.Processes, d.Processes)
	fill(&r.limits.OpenFiles, d.OpenFiles)
	for i, name := range o.Allow {
		p, err := pin(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.ConfigurationInvalid, "%q %s", name, fault.Of(err).Message).At(fmt.Sprintf("allow[%d]", i)).
				Try("Name a program that is installed in %s, or its absolute path.", Path)
		}
		r.programs[name] = p
	}
	for i, name := range o.Plain {
		if _, allowed := r.programs[name]; !allowed && !slices.Contains(DefaultPlain, name) {
			return nil, fault.New(fault.ConfigurationInvalid, "%q is no program that may be run.", name).At(fmt.Sprintf("plain[%d]", i)).
				Try("Write it as it stands in allow, or leave it out.")
		}
	}
	return r, nil
}

func fill[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func unfit(format string, args ...any) error {
	return fault.New(fault.ConfigurationInvalid, format, args...)
}

// pin resolves a name to a file that only the system's owner can change, and takes its hash.
func pin(name string) (program, error) {
	var candidates []string
	switch {
	case filepath.IsAbs(name):
		candidates = []string{name}
	case name == "" || strings.ContainsRune(name, '/') || name == "." || name == "..":
		return program{}, unfit("is neither a name nor an absolute path")
	default:
		for _, dir := range strings.Split(Path, ":") {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, c := range candidates {
		path, err := filepath.EvalSymlinks(c)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return program{}, fault.Wrap(err, fault.ConfigurationInvalid, "can't be looked up")
		}
		// Who can write to one of the directories that its name and its file stand in can put another file there.
		for _, p := range []string{c, path} {
			for dir := filepath.Dir(p); ; dir = filepath.Dir(dir) {
				info, err := os.Stat(dir)
				if err != nil || info.Mode().Perm()&0o002 != 0 {
					return program{}, unfit("stands in %s, where everybody may write", dir)
				}
				if dir == filepath.Dir(dir) {
					break
				}
			}
		}
		f, err := open(path)
		if err != nil {
			return program{}, err
		}
		defer f.Close()
		hash, err := sum(f)
		if err != nil {
			return program{}, err
		}
		return program{path, hash}, nil
	}
	return program{}, unfit("was not found in %s", Path)
}

// open opens a program and checks on the open file that it is one.
func open(path string) (*os.File, error) {
	info, err := os.Lstat(path) // opening a pipe waits, opening a device acts
	if err != nil || !info.Mode().IsRegular() {
		return nil, unfit("is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.ConfigurationInvalid, "can't be opened")
	}
	info, err = f.Stat()
	var magic [4]byte
	switch {
	case err != nil || !info.Mode().IsRegular():
		err = unfit("is not a regular file")
	case info.Mode().Perm()&0o002 != 0:
		err = unfit("may be written to by everybody")
	case info.Mode().Perm()&0o111 == 0:
		err = unfit("is not executable")
	case info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0:
		err = unfit("changes its user or group, which the sandbox prevents")
	default:
		if _, rerr := f.ReadAt(magic[:], 0); rerr != nil || string(magic[:]) != "\x7fELF" {
			err = unfit("is a script or no program at all; allow its interpreter instead")
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func sum(f *os.File) (hash [sha256.Size]byte, err error) {
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return hash, err
	}
	h.Sum(hash[:0])
	return hash, nil
}

// Programs are the names that may be called, sorted.
func (r *Runner) Programs() []string {
	names := make([]string, 0, len(r.programs))
	for n := range r.programs {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Words are what in argv can name a file: each argument but the program's name, what follows the first = in one, and what follows a short option's letter.
func Words(argv []string) (words []string) {
	for _, word := range argv[min(1, len(argv)):] {
		words = append(words, word)
		if _, value, ok := strings.Cut(word, "="); ok {
			words = append(words, value)
		}
		if len(word) > 2 && word[0] == '-' && word[1] != '-' {
			words = append(words, word[2:])
		}
	}
	return words
}

// Run runs argv in the workspace, a directory's absolute path without links, with stdin as its standard input. The outcome tells how it
// ended, with up to Limits.Output bytes of each output. While it runs, watch is asked twice a second, and its first error kills the program and is
// Run's. The other errors are fault.RequestMalformed for arguments that no program gets, fault.PermissionDenied for a program that is not on
// the list or not what was pinned, fault.LimitRate where ctx ended before there was a place to run, fault.SandboxUnavailable (with each of these the
// program was not started), fault.TimeExceeded (its output is discarded), fault.UpstreamFailed where it is not known what it did, and ctx's
// error where it was cancelled.
func (r *Runner) Run(ctx context.Context, workspace string, argv []string, stdin string, watch func() error) (*sandbox.Outcome, error) {
	if err := check(argv, stdin); err != nil {
		return nil, err
	}
	p, ok := r.programs[argv[0]]
	if !ok {
		return nil, fault.New(fault.PermissionDenied, "This program is not on the list of those that may be run.").At("argv[0]").
			Try("Those that may be run are: %s.", strings.Join(r.Programs(), ", "))
	}
	changed := func(err error) error {
		return fault.Wrap(err, fault.PermissionDenied, "This program is not the one that was allowed: its file changed.").At("argv[0]").
			Try("An operator must restart the gateway to allow the new one.")
	}
	select {
	case r.places <- struct{}{}:
		defer func() { <-r.places }()
	case <-ctx.Done():
		return nil, fault.Wrap(ctx.Err(), fault.LimitRate, "%d programs run already, and none ended in time for this one.", maxRuns)
	}
	f, err := open(p.path)
	if err != nil {
		return nil, changed(err)
	}
	defer f.Close()
	if hash, err := sum(f); err != nil || hash != p.hash {
		return nil, changed(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if err := watch(); err != nil {
					cancel(stopped{err})
				}
			}
		}
	})
	defer watcher.Wait()
	defer cancel(nil)
	out, err := sandbox.Run(ctx, sandbox.Command{
		Program: f,
		Path:    p.path,
		Argv:    argv,
		Dir:     workspace,
		Env:     []string{"PATH=" + Path, "HOME=" + workspace, "USER=sandbox", "LANG=C.UTF-8", "LC_ALL=C.UTF-8"}, // and TMPDIR and TEMP (EX-3)
		Stdin:   []byte(stdin),
		Network: r.network,
		Limits:  r.limits,
	})
	if s := (stopped{}); errors.As(context.Cause(ctx), &s) {
		return nil, s.error
	}
	if err != nil {
		return nil, err
	}
	if out.TimedOut {
		return nil, fault.New(fault.TimeExceeded, "The program did not end within %s; what it had written was discarded.", r.limits.Wall)
	}
	return &out, nil
}

// Missing says why no program can be run on this machine; "" where they can.
func (r *Runner) Missing() string {
	if p := sandbox.Probe(); p.Tier == sandbox.None {
		return "This machine can't hold the sandbox: " + strings.Join(p.Missing, " ")
	}
	return ""
}

// stopped is why a watch ended a run.
type stopped struct{ error }

// check refuses arguments that could be taken for more than one, or that are not text.
func check(argv []string, stdin string) error {
	bad := func(field, format string, args ...any) error {
		return fault.New(fault.RequestMalformed, "%s "+format+".", append([]any{field}, args...)...).At(field)
	}
	if len(argv) == 0 || len(argv) > maxArguments {
		return bad("argv", "must have 1 to %d elements", maxArguments)
	}
	total := 0
	for i, a := range argv {
		field := fmt.Sprintf("argv[%d]", i)
		total += len(a)
		switch {
		case len(a) > maxArgument:
			return bad(field, "must not be longer than %d bytes", maxArgument)
		case !utf8.ValidString(a):
			return bad(field, "must be UTF-8")
		case strings.ContainsFunc(a, func(c rune) bool { return c != '\t' && unicode.IsControl(c) || c == '\u2028' || c == '\u2029' }):
			return bad(field, "must not contain line breaks or other control characters")
		}
	}
	if total > maxTotal {
		return bad("argv", "must not be longer than %d bytes in all", maxTotal)
	}
	if len(stdin) > maxStdin {
		return bad("stdin", "must not be longer than %d bytes", maxStdin)
	}
	return nil
}
