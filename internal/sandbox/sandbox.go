// Package sandbox runs one program (Run), or one MCP server (Server), where it can touch nothing but what it is given. It starts this binary again as a
// launcher, which confines itself and then becomes the parent of the program.
//
// Promises of both tiers: the program opens no file outside the workspace, the system's programs and libraries, and what the caller lists, and
// writes only the workspace; it has no socket but to its own processes (unless Network); it has only standard input, output and error, the one socket
// that the caller gives it, and only the given environment; it gains no privilege, by setuid or by namespace; it has no ptrace, mount, bpf, keys, io_uring and nothing else that
// is not on the filter's list; the process limits hold; output beyond its limit is dropped, not stored; and when Run returns, every process
// of the tree is dead. No program runs with less: where a machine can't do it, Run refuses and names what is missing (Probe).
//
// Only the tier Full promises these: files outside do not exist for the program (in Partial it can't open them, but can ask whether they are there,
// for their size, owner, mode and times, and where a link leads); the program sees no process but its own; nothing that lies in the workspace is
// executed (in Partial not by its name, but by the dynamic loader); and times and modes can be changed in the workspace. In both tiers no file is made
// that lends its owner's rights (setuid, setgid).
// The tier Partial holds the tree by its process group, which it lets nobody leave. In both tiers the tree dies with the gateway, too.
//
// Network means the machine's whole network, its loopback included: no rule about addresses holds for a program that has it.
// Memory, CPU and File limit each process, as the kernel counts them, and not the tree. Its owner watches the size of the workspace.
package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/fault"
)

// Tier says how much of the sandbox this machine can hold.
type Tier string

const (
	Full    Tier = "full"    // namespaces, Landlock and seccomp
	Partial Tier = "partial" // Landlock (ABI 6 and later) and seccomp, without namespaces
	None    Tier = "none"
)

// Report tells what Probe found. Each of Missing is a sentence about something that keeps this machine from the tier Full, and the way to get it.
type Report struct {
	Tier           Tier     `json:"tier"`
	Landlock       int      `json:"landlock"` // ABI; 0 is none
	Seccomp        bool     `json:"seccomp"`
	UserNamespaces bool     `json:"user_namespaces"`
	Missing        []string `json:"missing,omitempty"`
}

// Limits bound one run. Each must be positive.
type Limits struct {
	Wall      time.Duration // of the whole run; then SIGTERM, and SIGKILL after Grace
	CPU       time.Duration // of each process, in whole seconds, rounded up
	Memory    int64         // bytes of address space of each process
	File      int64         // bytes of each file that is written, and of all that is in the temporary directory (partial: of each file)
	Output    int64         // bytes that are kept of each of standard output and error
	Processes int           // at once, with their threads. Run as root: this many and up to 300 more
	OpenFiles int           // of each process
}

// A directory at the top of a workspace whose name begins with TempPrefix and ends with TempSuffix is the temporary one of a run in the tier
// Partial. If one is there when nothing runs, a gateway that was killed has left it.
const (
	TempPrefix = ".sallyport-"
	TempSuffix = ".tmp"
)

// Grace is the time that a program has between SIGTERM and SIGKILL.
const Grace = 500 * time.Millisecond

// Command is one run.
type Command struct {
	// Program is executed: the very file that is open here, whatever has become of its name. It must be an ELF program: a script
	// is refused, as the kernel would open its interpreter and the script again by name. Where it is nil, Run opens Path.
	Program  *os.File
	Path     string   // absolute and free of links; where Program was opened
	Argv     []string // with the program's name first
	Dir      string   // the workspace: the working directory, and the only place to write. Absolute and free of links
	ReadOnly []string // more that may be read, with what is below; absolute and free of links
	Env      []string // all of it, but TMPDIR and TEMP, which Run sets to a directory of the run's own
	Stdin    []byte
	// Socket is the program's descriptor 3; nil: it has none. Run closes it, and the caller keeps the other end.
	Socket  *os.File
	Network bool
	Limits  Limits
}

// Outcome tells how a run ended.
type Outcome struct {
	ExitCode                         int    // -1 where a signal ended it
	Signal                           string // "SIGKILL" …, or ""
	Stdout, Stderr                   []byte
	StdoutTruncated, StderrTruncated bool
	TimedOut                         bool          // by Limits.Wall or the context's deadline
	CPU                              time.Duration // user and system, of the whole tree and the launcher
	Contained                        bool          // a PID namespace held the whole tree; else its process group did
}

var (
	ready bool // Init was called: a child of ours comes to it, and not to some main that starts children again

	probeOnce sync.Once
	probed    Report
)

// Probe tells which tier this machine can hold. It tries: a child builds the sandbox around itself and tests it. The answer is kept.
func Probe() Report {
	probeOnce.Do(func() { probed = probe() })
	return probed
}

// Run runs c in the best tier that Probe found, and returns when the whole tree is dead. That the program failed, was killed or ran out of time is
// in the Outcome. Errors are fault.SandboxUnavailable where the machine can't hold a tier or the workspace, fault.RequestMalformed where c can't be
// run as it is (with both of these the program was not started), fault.UpstreamFailed where the launcher died and what the program did is not known,
// and the context's error where it was cancelled, which kills at once.
func Run(ctx context.Context, c Command) (Outcome, error) {
	if c.Socket != nil {
		defer c.Socket.Close()
	}
	if err := c.check(); err != nil {
		return Outcome{}, err
	}
	r := Probe()
	if r.Tier == None {
		return Outcome{}, fault.New(fault.SandboxUnavailable, "This machine can't hold the sandbox: %s", strings.Join(r.Missing, " ")).
			Try("`sallyport doctor` shows what is there.")
	}
	return run(ctx, c, r.Tier)
}

func (c *Command) check() error {
	bad := func(field, message string) error { return fault.New(fault.RequestMalformed, "%s", message).At(field) }
	if len(c.Argv) == 0 {
		return bad("argv", "must not be empty")
	}
	for _, s := range append(append([]string{c.Path, c.Dir}, c.Argv...), c.Env...) {
		if strings.ContainsRune(s, 0) {
			return bad("argv", "must not contain NUL")
		}
	}
	for _, kv := range c.Env {
		if strings.HasPrefix(kv, "TMPDIR=") || strings.HasPrefix(kv, "TEMP=") {
			return bad("env", "TMPDIR and TEMP are set by the sandbox")
		}
	}
	l := c.Limits
	if l.Wall <= 0 || l.CPU <= 0 || l.Memory <= 0 || l.File <= 0 || l.Output <= 0 || l.Processes <= 0 || l.OpenFiles <= 0 {
		return bad("limits", "each limit must be positive")
	}
	if !plain(c.Path) {
		return bad("path", "the program must be named by an absolute path without links")
	}
	if !plain(c.Dir) || strings.Count(c.Dir, "/") < 2 {
		return bad("dir", "the workspace must be an absolute path without links, and deeper than the root's own directories")
	}
	for _, p := range c.ReadOnly {
		if !plain(p) || p == "/" {
			return bad("read_only", "what may be read must be an absolute path without links")
		}
	}
	return nil
}

// plain tells whether path is absolute and names what it names without links and dots.
func plain(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	return err == nil && filepath.IsAbs(path) && real == path
}
