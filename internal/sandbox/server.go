package sandbox

import (
	"path/filepath"
	"strings"
	"sync"

	"sallyport.example/internal/fault"
)

// Network says how much of the network a server can reach.
type Network string

const (
	AnyNetwork   Network = "any"   // the machine's whole network, its loopback included
	NoNetwork    Network = "none"  // only its own loopback
	ProxyNetwork Network = "proxy" // only its own loopback, where the gateway listens
)

// Server is a program that runs for long and is not trusted: an MCP server on its pipes. It sees the system's programs and libraries and the paths that
// are listed here, and nothing else: no other files, and no process but its own. Lists have absolute paths without links; a path with nothing there is
// left out. A server may be able to put links on the way to one of them, so such a link keeps the server from being started.
//
// Where the kernel gives namespaces, other files do not exist for the server. Where it has only Landlock (ABI 6 and later), the server can't open
// them, but can ask whether they are there, for their size, owner, mode and times; it can't have sockets of the family AF_UNIX, change modes, owners or
// times by a file's name, or leave its process group.
type Server struct {
	Path    string            // the program; a script is fine
	Argv    []string          // with the program's name first
	Env     []string          // all of it, but TMPDIR and, with ProxyNetwork, the variables that name the proxy
	Dir     string            // where it starts
	Folder  string            // its own: it reads, writes and executes there
	Code    []string          // files that the gateway keeps for it: it reads and executes them, also where they lie in one of Secrets
	Read    []string          // more that it may read and execute
	Write   []string          // more that it may read, write and execute
	Secrets []string          // paths that it can't reach, although they are listed in Read or Write or lie below one that is
	Links   map[string]string // links by which the server may know listed paths, with the target of each
	Network Network
}

// Forbidden is what no server may reach, besides the secrets of its sandbox.
type Forbidden struct {
	Processes []int
	Files     []string // a file that the sandbox lists all the same is left out
	Addresses []string // host:port of servers on this machine; tried where the sandbox gives no network
	Variables []string // of the environment
}

// Servers tells in which tier this machine holds a Server: Full with namespaces, Partial with Landlock and seccomp alone, or None. Where it is not
// Full, missing says what keeps the machine from it, and the way to get it.
func Servers() (tier Tier, missing []string) {
	r := Probe()
	switch {
	case r.Tier == Full:
		return Full, nil
	case ready && r.Seccomp && r.Landlock >= 6:
		return Partial, r.Missing
	}
	return None, r.Missing
}

func unavailable(missing []string) error {
	return fault.New(fault.SandboxUnavailable, "This machine can't hold a server's sandbox, so the server is not started: %s An operator can write sandbox: none for a server that is trusted with the gateway's keys.", strings.Join(missing, " "))
}

func (s *Server) check() error {
	bad := func(field, message string) error { return fault.New(fault.RequestMalformed, "%s", message).At(field) }
	if len(s.Argv) == 0 {
		return bad("argv", "must not be empty")
	}
	for _, text := range append(append([]string{s.Path, s.Dir, s.Folder}, s.Argv...), s.Env...) {
		if strings.ContainsRune(text, 0) {
			return bad("argv", "must not contain NUL")
		}
	}
	for name, path := range map[string]string{"path": s.Path, "dir": s.Dir, "folder": s.Folder} {
		if !filepath.IsAbs(path) {
			return bad(name, "must be an absolute path")
		}
	}
	for _, list := range [][]string{s.Code, s.Read, s.Write, s.Secrets} {
		for _, p := range list {
			if p == "/" || !filepath.IsAbs(p) || filepath.Clean(p) != p {
				return bad("paths", "must be absolute, free of dots, and not the root")
			}
		}
	}
	for from, to := range s.Links {
		if !filepath.IsAbs(from) || filepath.Clean(from) != from || !filepath.IsAbs(to) {
			return bad("links", "must be absolute, and free of dots")
		}
	}
	if !plain(s.Folder) {
		return bad("folder", "must exist and be free of links")
	}
	return nil
}

// Tail keeps the end of what a program writes. It is safe for concurrent use.
type Tail struct {
	Most int // bytes that are kept

	mu   sync.Mutex // guards data
	data []byte
}

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	t.data = t.data[max(0, len(t.data)-t.Most):]
	return len(p), nil
}

// String is what is kept, without space around it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.data))
}
