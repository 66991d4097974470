//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serverWorld is a gateway's machine in small: a data directory with a key and the folders of two servers, a project with the configuration, and a home.
type serverWorld struct {
	data, folder, other, project, home string
	server                             Server
}

func newServerWorld(t *testing.T) *serverWorld {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &serverWorld{data: root + "/data", folder: root + "/data/servers/mine", other: root + "/data/servers/other", project: root + "/project", home: root + "/home"}
	for path, text := range map[string]string{
		w.data + "/signing.key": "the key", w.other + "/notes": "another's", w.folder + "/own": "own", w.data + "/packages/mine/code": "code",
		w.project + "/sallyport.yaml": "tokens", w.project + "/docs/a.txt": "a document", w.home + "/.ssh/id": "a person's key",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	self, err := filepath.EvalSymlinks("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	w.server = Server{
		Path: self, Argv: []string{helperName}, Dir: w.project, Folder: w.folder, Code: []string{w.data + "/packages/mine"}, Env: []string{"PATH=/usr/bin:/bin"},
		Read: []string{self}, Write: []string{w.project}, Secrets: []string{w.data, w.project + "/sallyport.yaml"}, Network: AnyNetwork,
	}
	return w
}

// start runs s and returns what it wrote and how it ended.
func startServer(t *testing.T, s Server, tier Tier) (output string, exit int) {
	t.Helper()
	p, err := s.command(tier)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var out bytes.Buffer
	p.Cmd.Stdout, p.Cmd.Stderr = &out, &out
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listener, err := p.Started(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if listener != nil {
		defer listener.Close()
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
	}
	p.Cmd.Wait()
	return out.String(), p.Cmd.ProcessState.ExitCode()
}

// eachServerTier runs f in both tiers that this machine can hold.
func eachServerTier(t *testing.T, f func(t *testing.T, tier Tier)) {
	best, missing := Servers()
	if best == None {
		cannot(t, strings.Join(missing, " "))
	}
	t.Run("partial", func(t *testing.T) { f(t, Partial) })
	if best == Full {
		t.Run("full", func(t *testing.T) { f(t, Full) })
	}
}

func TestServerReach(t *testing.T) {
	eachServerTier(t, func(t *testing.T, tier Tier) {
		w := newServerWorld(t)
		l, err := net.Listen("unix", w.home+"/agent.sock")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		abstract := fmt.Sprintf("@sallyport-reach-%s-%d", tier, os.Getpid())
		hidden, err := net.Listen("unix", abstract)
		if err != nil {
			t.Fatal(err)
		}
		defer hidden.Close()
		killSwitch, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.data + "/kill.sock", Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer killSwitch.Close()
		neighbour := exec.Command("/usr/bin/sleep", "600")
		neighbour.Env = []string{"TOKEN=of-another-server"}
		if err := neighbour.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { neighbour.Process.Kill(); neighbour.Wait() }()
		process := func(pid int, file string) string { return fmt.Sprintf("/proc/%d/%s", pid, file) }

		for _, c := range []struct {
			name string
			may  bool
			argv []string
		}{
			{"its own folder", true, []string{"read", w.folder + "/own"}},
			{"a new file in its folder", true, []string{"create", w.folder + "/new"}},
			{"what the gateway keeps for it", true, []string{"read", w.data + "/packages/mine/code"}},
			{"what the gateway keeps for it, written", false, []string{"create", w.data + "/packages/mine/code"}},
			{"something beside that", false, []string{"create", w.data + "/packages/mine/new"}},
			{"a document that the operator named", true, []string{"read", w.project + "/docs/a.txt"}},
			{"a new document", true, []string{"create", w.project + "/docs/b.txt"}},
			{"the system's programs", true, []string{"list", "/usr/bin"}},
			{"the key", false, []string{"read", w.data + "/signing.key"}},
			{"the key by way of its folder", false, []string{"read", w.folder + "/../../signing.key"}},
			{"the key by way of its root", false, []string{"read", "/proc/self/root" + w.data + "/signing.key"}},
			{"another server's folder", false, []string{"read", w.other + "/notes"}},
			{"the configuration beside the documents", false, []string{"read", w.project + "/sallyport.yaml"}},
			{"the configuration, written", false, []string{"create", w.project + "/sallyport.yaml"}},
			{"the configuration, by a link", false, []string{"link", w.project + "/sallyport.yaml", w.folder + "/link"}},
			{"the configuration, moved away", false, []string{"rename", w.project + "/sallyport.yaml", w.folder + "/moved"}},
			{"the project, moved away", false, []string{"rename", w.project + "/docs", w.folder + "/moved"}},
			{"a person's home", false, []string{"read", w.home + "/.ssh/id"}},
			{"shadow passwords", false, []string{"read", "/etc/shadow"}},
			{"a program's start, changed", false, []string{"create", "/etc/profile.d/x.sh"}},
			{"the gateway's environment", false, []string{"read", process(os.Getpid(), "environ")}},
			{"the gateway's memory", false, []string{"read", process(os.Getpid(), "mem")}},
			{"the gateway's files", false, []string{"links", process(os.Getpid(), "fd/1")}},
			{"the gateway's root", false, []string{"read", process(os.Getpid(), "root") + w.data + "/signing.key"}},
			{"another server's environment", false, []string{"read", process(neighbour.Process.Pid, "environ")}},
			{"its launcher's memory", false, []string{"read", "/proc/1/mem"}},
			{"a signal to the gateway", false, []string{"kill", strconv.Itoa(os.Getpid())}},
			{"a signal to another server", false, []string{"kill", strconv.Itoa(neighbour.Process.Pid)}},
			{"the gateway's limits", false, []string{"prlimit", strconv.Itoa(os.Getpid())}},
			{"a socket in a home", false, []string{"unix", w.home + "/agent.sock"}},
			{"an abstract socket", false, []string{"unix", abstract}},
			{"a socket by a pair", false, []string{"socketpair", w.home + "/agent.sock"}},
			{"the kill switch's socket", false, []string{"datagram", w.data + "/kill.sock"}},
			{"the kill switch's socket, by way of its folder", false, []string{"datagram", w.folder + "/../../kill.sock"}},
			{"the kill switch's socket by a pair", false, []string{"socketpair", w.data + "/kill.sock"}},
			{"the kill switch's socket, moved away", false, []string{"rename", w.data + "/kill.sock", w.folder + "/moved.sock"}},
			{"a user namespace", false, []string{"clone", strconv.Itoa(unix.CLONE_NEWUSER)}},
			{"a mount namespace", false, []string{"clone", strconv.Itoa(unix.CLONE_NEWNS | unix.CLONE_NEWUSER)}},
			{"mount", false, []string{"syscall", strconv.Itoa(unix.SYS_MOUNT)}},
			{"umount", false, []string{"syscall", strconv.Itoa(unix.SYS_UMOUNT2)}},
			{"setns", false, []string{"syscall", strconv.Itoa(unix.SYS_SETNS)}},
			{"ptrace", false, []string{"syscall", strconv.Itoa(unix.SYS_PTRACE)}},
			{"process_vm_readv", false, []string{"syscall", strconv.Itoa(unix.SYS_PROCESS_VM_READV)}},
			{"pidfd_getfd", false, []string{"syscall", strconv.Itoa(unix.SYS_PIDFD_GETFD)}},
			{"bpf", false, []string{"syscall", strconv.Itoa(unix.SYS_BPF)}},
			{"io_uring", false, []string{"syscall", strconv.Itoa(unix.SYS_IO_URING_SETUP)}},
			{"keys", false, []string{"syscall", strconv.Itoa(unix.SYS_KEYCTL)}},
			{"open by handle", false, []string{"syscall", strconv.Itoa(unix.SYS_OPEN_BY_HANDLE_AT)}},
			{"a terminal's input", false, []string{"ioctl"}},
			{"attributes of the key", false, []string{"setxattrat", w.data + "/signing.key"}},
			{"attributes of the key, taken", false, []string{"removexattrat", w.data + "/signing.key"}},
			{"attributes of the key, read", false, []string{"getxattr", w.data + "/signing.key"}},
			{"attributes of the key, read in the new way", false, []string{"getxattrat", w.data + "/signing.key"}},
			{"attributes of the key, listed", false, []string{"listxattrat", w.data + "/signing.key"}},
			{"flags of the key", false, []string{"file_setattr", w.data + "/signing.key"}},
			{"times of the key", false, []string{"utimensat", w.data + "/signing.key"}},
			{"the mode of what the gateway keeps for it", false, []string{"fchmod", w.data + "/packages/mine/code"}},
			{"a call that nobody knows yet", false, []string{"syscall", strconv.Itoa(youngest + 1)}},
			{"the mode of the key", false, []string{"chmod", w.data + "/signing.key"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				s := w.server
				s.Argv = append([]string{helperName}, c.argv...)
				out, exit := startServer(t, s, tier)
				if want := map[bool]int{true: succeeded, false: failed}[c.may]; exit != want || strings.Contains(out, "the key") && !c.may {
					t.Errorf("%v ended with %d, want %d: %s", c.argv, exit, want, out)
				}
			})
		}
		// In a root of its own the server may find an empty directory where the data directory is, and do with it what it likes.
		for _, argv := range [][]string{{"create", w.data + "/new"}, {"chmod", w.data}, {"fchmod", w.data}} {
			s := w.server
			s.Argv = append([]string{helperName}, argv...)
			startServer(t, s, tier)
		}
		if st, err := os.Stat(w.data); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("the data directory's mode is now %v, %v", st.Mode(), err)
		}
		if _, err := os.Stat(w.data + "/new"); err == nil {
			t.Error("there is a new file in the data directory")
		}
		if data, err := os.ReadFile(w.project + "/sallyport.yaml"); err != nil || string(data) != "tokens" {
			t.Errorf("the configuration is now %q, %v", data, err)
		}
	})
}

// A server can put a link where it writes, and be started again: none that is on the way to what is listed is followed.
func TestServerFollowsNoLink(t *testing.T) {
	eachServerTier(t, func(t *testing.T, tier Tier) {
		w := newServerWorld(t)
		for from, to := range map[string]string{w.project + "/key": w.data + "/signing.key", w.project + "/sub": w.data} {
			if err := os.Symlink(to, from); err != nil {
				t.Fatal(err)
			}
		}
		for name, change := range map[string]func(*Server){
			"written":         func(s *Server) { s.Write = append(s.Write, w.project+"/key") },
			"read":            func(s *Server) { s.Read = append(s.Read, w.project+"/key") },
			"below a link":    func(s *Server) { s.Write = []string{w.project + "/sub/signing.key"} },
			"a folder":        func(s *Server) { s.Write = []string{w.project + "/sub"} },
			"the package":     func(s *Server) { s.Code = []string{w.project + "/sub"} },
			"below its own":   func(s *Server) { s.Write = append(s.Write, w.project+"/sub/servers") },
			"its folder, too": func(s *Server) { s.Read = append(s.Read, w.project+"/sub/servers/other") },
		} {
			s := w.server
			s.Argv = []string{helperName, "read", w.project + "/key"}
			change(&s)
			p, err := s.command(tier)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Started(time.Minute); err == nil || !strings.Contains(err.Error(), "too many levels of symbolic links") {
				t.Errorf("%s: %v", name, err)
			}
			p.Cmd.Wait()
			p.Close()
		}
		s := w.server
		s.Write, s.Links = []string{w.project + "/docs"}, map[string]string{w.home + "/my/docs": w.project + "/docs"}
		s.Links[w.home+"/my/docs/a.txt"] = w.project + "/docs/a.txt" // below a link that is made
		s.Argv = []string{helperName, "read", w.home + "/my/docs/a.txt"}
		if tier == Partial { // there is no root of its own in which a name could be made
			s.Argv[2] = w.project + "/docs/a.txt"
		}
		if out, exit := startServer(t, s, tier); exit != succeeded {
			t.Errorf("by its other name: %d %s", exit, out)
		}
		if entries, _ := os.ReadDir(w.home); len(entries) != 1 {
			t.Errorf("made outside: %v", entries)
		}
	})
}

// What a new root is built on is followed by nobody either: a server that runs already can put links into it meanwhile.
func TestAttachFollowsNoLink(t *testing.T) {
	outside, at := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Symlink(outside, at+"/away"), os.Symlink(outside+"/new", at+"/file")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, path := range []string{"/away/x", "/away/x/y", "/file"} {
		for _, dir := range []bool{false, true} {
			if err := (tree{path, -1, dir}).attach(root); err == nil || strings.Contains(err.Error(), "move_mount") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Errorf("made outside: %v", entries)
	}
}

// What lies below a place that every server reads is a secret all the same.
func TestServerRulesLeaveSecretsOut(t *testing.T) {
	w := newServerWorld(t)
	link := filepath.Join(t.TempDir(), "opt")
	if err := os.Symlink(w.project, link); err != nil {
		t.Fatal(err)
	}
	old := serverDirs
	defer func() { serverDirs = old }()
	serverDirs = []string{link}
	spec := launchSpec{Tier: Partial, Server: &serverSpec{Folder: w.folder, Secrets: []string{w.project + "/sallyport.yaml"}}}
	var of []string
	for _, r := range spec.serverRules() {
		if inside(r.path, []string{w.project}) || inside(w.project, []string{r.path}) || r.path == link {
			of = append(of, r.path)
		}
	}
	if !slices.Equal(of, []string{w.project + "/docs"}) {
		t.Errorf("rules for %v", of)
	}
}

// A configuration that an editor puts in place of the old one, while the server runs, is as far from it as the old one was.
func TestServerDoesNotReachAReplacedSecret(t *testing.T) {
	eachServerTier(t, func(t *testing.T, tier Tier) {
		w := newServerWorld(t)
		s := w.server
		s.Path, s.Argv = "/bin/sh", []string{"sh", "-c", `echo up; read line; cat sallyport.yaml; echo $?; cat docs/a.txt`}
		p, err := s.command(tier)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		in, _ := p.Cmd.StdinPipe()
		out, _ := p.Cmd.StdoutPipe()
		if err := p.Cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Started(time.Minute); err != nil {
			t.Fatal(err)
		}
		ready := make([]byte, 3)
		if _, err := io.ReadFull(out, ready); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(w.project+"/new", []byte("new tokens"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(w.project+"/new", w.project+"/sallyport.yaml"); err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, "go\n")
		rest, _ := io.ReadAll(out)
		p.Cmd.Wait()
		if got := string(rest); got != "1\na document" {
			t.Errorf("the server read %q", got)
		}
	})
}

func TestServerNetwork(t *testing.T) {
	eachServerTier(t, func(t *testing.T, tier Tier) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		w := newServerWorld(t)
		for _, n := range []Network{AnyNetwork, NoNetwork, ProxyNetwork} {
			s := w.server
			s.Network, s.Argv = n, []string{helperName, "tcp", l.Addr().String()}
			if n == ProxyNetwork && tier != Full {
				if _, err := s.command(tier); err == nil {
					t.Error("a list of hosts can't be held without namespaces, and nothing says so")
				}
				continue
			}
			out, exit := startServer(t, s, tier)
			if want := map[bool]int{true: succeeded, false: failed}[n == AnyNetwork]; exit != want {
				t.Errorf("%s: ended with %d, want %d: %s", n, exit, want, out)
			}
		}
		if tier == Full {
			s := w.server
			s.Network, s.Path, s.Argv = ProxyNetwork, "/bin/bash", []string{"bash", "-c", `p=${HTTPS_PROXY#http://}; exec 3<>/dev/tcp/${p%:*}/${p#*:} && echo reached`}
			if out, _ := startServer(t, s, tier); !strings.Contains(out, "reached") {
				t.Errorf("the proxy's listener can't be reached: %s", out)
			}
		}
	})
}

// What a server leaves behind ends with it, and all of it ends with the gateway.
func TestServerTreeEnds(t *testing.T) {
	eachServerTier(t, func(t *testing.T, tier Tier) {
		w := newServerWorld(t)
		s := w.server
		mark := filepath.Join(w.folder, "alive")
		s.Path, s.Argv = "/bin/sh", []string{"sh", "-c", `(while :; do echo x >> ` + mark + `; sleep 0.02; done) & echo up; read line`}
		p, err := s.command(tier)
		if err != nil {
			t.Fatal(err)
		}
		in, _ := p.Cmd.StdinPipe()
		defer in.Close()
		out, _ := p.Cmd.StdoutPipe()
		if err := p.Cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Started(time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		p.Close() // as when the gateway is killed
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ended := make(chan struct{})
		go func() { p.Cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-ctx.Done():
			t.Fatal("the server outlives the gateway")
		}
		if tier != Full {
			return // its group is the caller's to end
		}
		before, err := os.ReadFile(mark)
		if err != nil {
			return // it never wrote
		}
		time.Sleep(200 * time.Millisecond)
		if after, _ := os.ReadFile(mark); len(after) != len(before) {
			t.Error("what the server started outlives it")
		}
	})
}

// A server that leaves its group and its session ends all the same when it is given up, and what it leaves behind ends with it.
func TestServerEndsWhenGivenUp(t *testing.T) {
	eachServerTier(t, func(t *testing.T, tier Tier) {
		w := newServerWorld(t)
		for name, c := range map[string]struct {
			script string
			close  bool
		}{
			"in a session of its own": {`exec setsid sh -c "echo up; exec sleep 600"`, true},
			"ignoring signals":        {`trap "" TERM HUP INT; echo up; while :; do sleep 600; done`, true},
			"by what it left behind":  {`echo up; sleep 600 >/dev/null 2>&1 & exit 0`, false},
		} {
			if tier == Partial { // where no session can be made
				c.script = strings.Replace(c.script, "setsid ", "", 1)
			}
			s := w.server
			s.Path, s.Argv = "/bin/sh", []string{"sh", "-c", `exec 9>"` + w.folder + `/lock"; flock -n 9 || exit 99; ` + c.script}
			p, err := s.command(tier)
			if err != nil {
				t.Fatal(err)
			}
			out, _ := p.Cmd.StdoutPipe()
			if err := p.Cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Started(time.Minute); err != nil {
				t.Fatal(err)
			}
			if said, err := io.ReadAll(io.LimitReader(out, 3)); err != nil || string(said) != "up\n" {
				t.Fatalf("%s: %q, %v", name, said, err)
			}
			if c.close {
				p.Close()
			}
			ended := make(chan struct{})
			go func() { p.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatalf("%s: it goes on", name)
			}
			p.Close()
			// Whoever still ran would hold the lock.
			f, err := os.OpenFile(w.folder+"/lock", os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			free := make(chan error, 1)
			go func() { free <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
			select {
			case <-free:
			case <-time.After(time.Minute):
				t.Errorf("%s: something outlives it", name)
			}
			f.Close()
		}
	})
}

// The prover finds nothing in a sandbox that holds, and finds what a sandbox without secrets lets it reach.
func TestServerProof(t *testing.T) {
	if tier, missing := Servers(); tier == None {
		cannot(t, strings.Join(missing, " "))
	}
	w := newServerWorld(t)
	killSwitch, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.data + "/kill.sock", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer killSwitch.Close()
	if _, sockets := proofOf(w.server.Secrets, []string{w.folder}); !slices.Contains(sockets, w.data+"/kill.sock") {
		t.Errorf("the sockets that are tried are %v", sockets)
	}
	s := w.server
	tried, reached, err := s.Prove(t.Context(), Forbidden{Processes: []int{os.Getpid()}})
	if err != nil || tried < 10 || len(reached) > 0 {
		t.Errorf("tried %d, reached %v, %v", tried, reached, err)
	}
	open := w.project + "/docs/a.txt"
	if _, reached, err := s.attempt(t.Context(), attempt{Files: []string{open}}); err != nil || !slices.Equal(reached, []string{"read " + open, "write " + open}) {
		t.Errorf("of a file that is open to it, it reached %v, %v", reached, err)
	}
	within := w.folder + "/s" // the name of a socket is short
	listens, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: within, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listens.Close()
	if tier, _ := Servers(); tier == Full { // where it has sockets at all
		s := w.server
		s.Network = NoNetwork
		if _, reached, err := s.attempt(t.Context(), attempt{Sockets: []string{within}}); err != nil || !slices.Equal(reached, []string{"connect to " + within}) {
			t.Errorf("of a socket in its folder, it reached %v, %v", reached, err)
		}
	}
}

// What another server made can't crowd the keys out of the proof.
func TestProofBeginsAtTheTop(t *testing.T) {
	w := newServerWorld(t)
	for i := range 40 {
		if err := os.MkdirAll(fmt.Sprintf("%s/a/%d", w.other, i), 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range proofFiles / 10 {
			if err := os.WriteFile(fmt.Sprintf("%s/a/%d/%d", w.other, i, j), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink(w.home, w.other+"/home"); err != nil {
		t.Fatal(err)
	}
	files, _ := proofOf(w.server.Secrets, []string{w.folder})
	for _, f := range []string{w.data + "/signing.key", w.project + "/sallyport.yaml", w.other + "/notes"} {
		if !slices.Contains(files, f) {
			t.Errorf("%s is not among %d files", f, len(files))
		}
	}
	if len(files) != proofFiles || slices.ContainsFunc(files, func(f string) bool { return inside(f, []string{w.folder, w.home, w.other + "/home"}) }) {
		t.Errorf("%d files", len(files))
	}
}

func TestServerExitCode(t *testing.T) {
	eachServerTier(t, func(t *testing.T, tier Tier) {
		w := newServerWorld(t)
		s := w.server
		s.Path = "/bin/sh"
		for script, want := range map[string]int{"exit 7": 7, "kill -TERM $$": 128 + 15} {
			s.Argv = []string{"sh", "-c", script}
			if out, exit := startServer(t, s, tier); exit != want {
				t.Errorf("%s ended with %d, want %d: %s", script, exit, want, out)
			}
		}
	})
}

func TestServerRefusesWhatItCanNotHold(t *testing.T) {
	w := newServerWorld(t)
	for name, change := range map[string]func(*Server){
		"no arguments":       func(s *Server) { s.Argv = nil },
		"a relative program": func(s *Server) { s.Path = "sh" },
		"the root":           func(s *Server) { s.Write = []string{"/"} },
		"dots":               func(s *Server) { s.Read = []string{"/usr/../etc"} },
		"a folder by a link": func(s *Server) {
			link := filepath.Join(t.TempDir(), "link")
			os.Symlink(w.folder, link)
			s.Folder = link
		},
		"NUL": func(s *Server) { s.Env = []string{"A=\x00"} },
	} {
		s := w.server
		change(&s)
		if err := s.check(); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func BenchmarkServerStart(b *testing.B) {
	folder, err := filepath.EvalSymlinks(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p, err := Server{Path: "/bin/true", Argv: []string{"true"}, Dir: folder, Folder: folder, Network: AnyNetwork}.Command()
		if err != nil {
			b.Skip("not measured: ", err)
		}
		if err := p.Cmd.Start(); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Started(time.Minute); err != nil {
			b.Fatal(err)
		}
		p.Cmd.Wait()
		p.Close()
	}
}

// A server that is given up before its program runs ends all the same: in a namespace of its own its launcher can't be killed from inside, and would
// start the program after it had ended what was there.
func TestServerThatIsGivenUpAtOnce(t *testing.T) {
	eachServerTier(t, func(t *testing.T, tier Tier) {
		w := newServerWorld(t)
		s := w.server
		s.Path, s.Argv = "/bin/sleep", []string{"sleep", "600"}
		p, err := s.command(tier)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.their.spec.Close()
		p.their.status.Close()
		if _, err := p.ours.spec.Write(p.spec); err != nil {
			t.Fatal(err)
		}
		p.Close()
		ended := make(chan struct{})
		go func() {
			p.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			p.Cmd.Process.Kill()
			<-ended
			t.Error("it runs on")
		}
	})
}
