//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// proverName is the argv[0] of this binary when it tries, in a server's place, what a server must not be able to do.
const proverName = "sallyport-prover"

// proofFiles bounds how many files below the secrets are tried.
const proofFiles = 2000

// attempt is one access that the prover tries.
type attempt struct {
	Files     []string
	Sockets   []string
	Processes []int
	Namespace string // of the gateway's processes
	Addresses []string
	Variables []string
}

// Prove starts this binary in the sandbox of s, in the place of its program, and has it try to reach the secrets, the files below them, sockets of this
// machine, and what is forbidden. It returns how many things were tried, and which of them could be reached: with a sandbox that holds, none.
func (s Server) Prove(ctx context.Context, f Forbidden) (tried int, reached []string, err error) {
	a := attempt{Processes: f.Processes, Sockets: localSockets(), Variables: f.Variables}
	if s.Network != AnyNetwork {
		a.Addresses = f.Addresses
	}
	if a.Namespace, err = os.Readlink("/proc/self/ns/pid"); err != nil {
		return 0, nil, err
	}
	var sockets []string
	a.Files, sockets = proofOf(s.Secrets, append(slices.Clone(s.Code), s.Folder))
	a.Sockets = append(a.Sockets, sockets...)
	for _, file := range f.Files {
		if !inside(file, slices.Concat(s.Code, s.Read, s.Write, []string{s.Folder})) {
			a.Files = append(a.Files, file)
		}
	}
	return s.attempt(ctx, a)
}

// proofOf lists the secrets and the files and sockets below them, but for those below own, from the top down: keys and tokens lie at the top, and deep down is what
// servers and packages made, who would like to have the rest crowded out.
func proofOf(secrets, own []string) (files, sockets []string) {
	for level := secrets; len(level) > 0; {
		var next []string
		for _, path := range level {
			st, err := os.Lstat(path)
			switch {
			case len(files)+len(sockets) == proofFiles:
				return files, sockets
			case err != nil || inside(path, own):
			case st.Mode().IsRegular() && !slices.Contains(files, path):
				files = append(files, path)
			case st.Mode().Type() == os.ModeSocket:
				sockets = append(sockets, path)
			case st.IsDir() && len(next) < 10*proofFiles:
				next = append(next, some(path)...)
			}
		}
		level = next
	}
	return files, sockets
}

// some are names in a directory, which may have any number of them.
func some(dir string) (paths []string) {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(proofFiles)
	for _, n := range names {
		paths = append(paths, filepath.Join(dir, n))
	}
	return paths
}

// attempt has the prover try a.
func (s Server) attempt(ctx context.Context, a attempt) (tried int, reached []string, err error) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 0, nil, err
	}
	a.Files = slices.DeleteFunc(a.Files, func(file string) bool { return file == self }) // no server's, but the prover's own program
	in, err := json.Marshal(a)
	if err != nil {
		return 0, nil, err
	}
	s.Path, s.Argv, s.Code, s.Dir = self, []string{proverName}, append(slices.Clone(s.Code), self), s.Folder
	p, err := s.Command()
	if err != nil {
		return 0, nil, err
	}
	defer p.Close()
	var out, complaint bytes.Buffer
	p.Cmd.Stdin, p.Cmd.Stdout, p.Cmd.Stderr = bytes.NewReader(in), &out, &complaint
	runtime.LockOSThread() // the launcher ends with the thread that started it
	defer runtime.UnlockOSThread()
	if err := p.Cmd.Start(); err != nil {
		return 0, nil, err
	}
	stop := context.AfterFunc(ctx, p.Close)
	defer stop()
	listener, err := p.Started(time.Minute)
	if listener != nil {
		listener.Close()
	}
	waited := p.Wait()
	if err = errors.Join(err, waited); err != nil {
		return 0, nil, fmt.Errorf("%w %.200s", err, complaint.String())
	}
	var answer struct {
		Tried   int
		Reached []string
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || answer.Tried == 0 {
		return 0, nil, errors.Join(err, errors.New("the prover said nothing"))
	}
	return answer.Tried, answer.Reached, nil
}

// localSockets are the sockets of this machine that programs listen on by a path.
func localSockets() (paths []string) {
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		const accepts = "00010000"
		if len(fields) == 8 && string(fields[3]) == accepts && len(paths) < 200 {
			paths = append(paths, string(fields[7]))
		}
	}
	return paths
}

// prove runs in the sandbox.
func prove() {
	var a attempt
	data, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	tried, reached := 0, []string{}
	try := func(what string, err error) {
		if tried++; err == nil {
			reached = append(reached, what)
		}
	}
	open := func(path string, flags int) error {
		f, err := os.OpenFile(path, flags|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		return f.Close()
	}
	for _, f := range a.Files {
		try("read "+f, open(f, os.O_RDONLY))
		try("write "+f, open(f, os.O_WRONLY))
	}
	for _, s := range a.Sockets {
		c, err := net.DialTimeout("unix", s, time.Second)
		if err != nil {
			c, err = net.DialTimeout("unixgram", s, time.Second) // a socket of datagrams, to which nothing is sent
		}
		if err == nil {
			c.Close()
		}
		try("connect to "+s, err)
	}
	for _, address := range a.Addresses {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			c.Close()
		}
		try("connect to "+address, err)
	}
	for _, name := range a.Variables {
		_, there := os.LookupEnv(name)
		try("read the variable "+name, map[bool]error{false: os.ErrNotExist}[there])
	}
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil && ns == a.Namespace { // else their numbers are others' here
		for _, pid := range a.Processes {
			of := "/proc/" + strconv.Itoa(pid)
			try("read "+of+"/environ", open(of+"/environ", os.O_RDONLY))
			try("read "+of+"/mem", open(of+"/mem", os.O_RDONLY))
			try("follow "+of+"/root", open(of+"/root/", os.O_RDONLY))
			try("signal process "+strconv.Itoa(pid), unix.Kill(pid, 0))
		}
	}
	for name, number := range map[string]uintptr{"mount": unix.SYS_MOUNT, "ptrace": unix.SYS_PTRACE, "setns": unix.SYS_SETNS, "bpf": unix.SYS_BPF, "process_vm_readv": unix.SYS_PROCESS_VM_READV} {
		_, _, errno := unix.RawSyscall6(number, 0, 0, 0, 0, 0, 0)
		var err error
		if errno == unix.EPERM || errno == unix.ENOSYS {
			err = errno
		}
		try("call "+name, err)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0)
	try("make a user namespace", map[bool]error{true: errno}[errno != 0])
	json.NewEncoder(os.Stdout).Encode(map[string]any{"Tried": tried, "Reached": reached})
	os.Exit(0)
}
