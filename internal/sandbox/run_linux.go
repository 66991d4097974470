//go:build amd64 || arm64

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.example/internal/fault"
)

// nobody is the program's user in its user namespace, whoever the gateway is outside.
const nobody = 65534

// overflow is how much output beyond its limit is read and dropped. A program that writes more finds its pipe closed.
const overflow = 64 << 20

// errBuild says that the launcher could not build the sandbox.
var errBuild = errors.New("the sandbox could not be built")

func run(ctx context.Context, c Command, tier Tier) (Outcome, error) {
	for _, d := range slices.Concat(systemDirs, systemEtc, networkEtc) {
		if real, err := filepath.EvalSymlinks(d); err == nil && inside(c.Dir, []string{d, real}) {
			return Outcome{}, fault.New(fault.SandboxUnavailable, "The workspace is below %s, which every program may read: what lies beside it would be open.", d).At("dir").
				Try("An operator must choose another data folder (--data), such as one below /var/lib.")
		}
	}
	program := c.Program
	if program == nil {
		f, err := os.OpenFile(c.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return Outcome{}, fault.Wrap(err, fault.RequestMalformed, "the program can't be opened").At("path")
		}
		defer f.Close()
		program = f
	}
	var magic [4]byte
	if info, err := program.Stat(); err != nil || !info.Mode().IsRegular() {
		return Outcome{}, fault.Wrap(err, fault.RequestMalformed, "the program is not a regular file").At("path")
	}
	if _, err := program.ReadAt(magic[:], 0); err != nil || string(magic[:]) != "\x7fELF" {
		return Outcome{}, fault.New(fault.RequestMalformed, "the program is a script, or no program at all").At("path").
			Try("Allow the script's interpreter, and name the script in the arguments.")
	}
	return supervise(ctx, c, program, launchSpec{Tier: tier, Program: c.Path, Socket: c.Socket != nil})
}

// supervise starts the launcher with spec, filled in from c, and sees the run to its end.
func supervise(ctx context.Context, c Command, program *os.File, spec launchSpec) (Outcome, error) {
	if err := ctx.Err(); err != nil {
		return Outcome{}, err
	}
	dir, err := spec.fill(c) // stays open, so that no other directory gets its number meanwhile
	if err != nil {
		return Outcome{}, err
	}
	defer dir.Close()
	if spec.Tier == Partial {
		if spec.Temp, err = os.MkdirTemp(c.Dir, TempPrefix+"*"+TempSuffix); err != nil {
			return Outcome{}, err
		}
		defer os.RemoveAll(spec.Temp)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return Outcome{}, err
	}
	p, err := newPipes()
	if err != nil {
		return Outcome{}, err
	}
	defer p.close()
	cmd := launcherCommand(spec, c.Dir, p.spec.r, p.status.w)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin.r, p.stdout.w, p.stderr.w
	if program != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, program)
	}
	if c.Socket != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, c.Socket)
	}
	// The kernel sends Pdeathsig when the thread that forked dies, which the runtime may let happen to any but a locked one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return Outcome{}, fault.Wrap(fmt.Errorf("%w: %w", errBuild, err), fault.SandboxUnavailable, "The sandbox could not be started.")
	}
	out, answer := attend(ctx, c, cmd, p, text)
	out.Contained = spec.Tier == Full
	if errors.Is(ctx.Err(), context.Canceled) {
		return Outcome{}, ctx.Err()
	}
	return out.conclude(answer, cmd.ProcessState)
}

// fill takes over what c asks for, and notes which directory its workspace is. It returns that directory, open.
func (spec *launchSpec) fill(c Command) (dir *os.File, err error) {
	if dir, err = os.OpenFile(c.Dir, unix.O_PATH|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0); err != nil {
		return nil, fault.Wrap(err, fault.RequestMalformed, "the workspace can't be opened").At("dir")
	}
	defer func() {
		if err != nil {
			dir.Close()
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, err
	}
	spec.Workspace = fileID{st.Dev, st.Ino}
	spec.Argv, spec.Env, spec.Dir, spec.ReadOnly, spec.Network, spec.Limits = c.Argv, c.Env, c.Dir, c.ReadOnly, c.Network, c.Limits
	spec.Landlock, spec.Root, spec.Temp = landlockABI(), os.Geteuid() == 0, tempDir
	if spec.Tier == Partial {
		spec.Threads, err = threads(os.Getuid())
	}
	return dir, err
}

// launcherCommand is this binary as the launcher, which reads spec from the first of files and writes its status to the second.
func launcherCommand(spec launchSpec, dir string, files ...*os.File) *exec.Cmd {
	return &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{launcherName}, Env: []string{}, Dir: dir, // nothing of our environment
		ExtraFiles: files, SysProcAttr: attr(spec),
	}
}

// attend feeds a launcher that was started, and waits until it and its whole tree are dead. It returns what the launcher wrote as its status.
func attend(ctx context.Context, c Command, cmd *exec.Cmd, p *pipes, spec []byte) (out Outcome, answer []byte) {
	for _, f := range []*os.File{p.stdin.r, p.stdout.w, p.stderr.w, p.spec.r, p.status.w} {
		f.Close()
	}
	if c.Socket != nil { // so that the caller sees when the program closes it
		c.Socket.Close()
	}
	pid := cmd.Process.Pid
	var work sync.WaitGroup
	work.Go(func() { p.spec.w.Write(spec) }) // fails if the launcher dies, which its silence tells
	work.Go(func() { p.stdin.w.Write(c.Stdin); p.stdin.w.Close() })
	work.Go(func() { out.Stdout, out.StdoutTruncated = collect(p.stdout.r, c.Limits.Output) })
	work.Go(func() { out.Stderr, out.StderrTruncated = collect(p.stderr.r, c.Limits.Output) })

	ended := make(chan struct{})
	var clock sync.WaitGroup
	clock.Go(func() { out.TimedOut = watch(ctx, c.Limits.Wall, pid, ended) })
	awaitEnd(pid) // the number stays the launcher's until cmd.Wait: neither watch nor the line below can hit anybody else
	close(ended)
	clock.Wait()
	unix.Kill(-pid, unix.SIGKILL) // Full: all are dead with their namespace; Partial: nobody could leave the group
	cmd.Wait()
	out.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	// With the tree dead the pipes are at their end, and so are those who wait on them. A descriptor that got out all the same ends the run.
	now := time.Now().Add(2 * time.Second)
	for _, f := range []*os.File{p.stdin.w, p.stdout.r, p.stderr.r, p.spec.w, p.status.r} {
		f.SetDeadline(now)
	}
	answer, _ = io.ReadAll(io.LimitReader(p.status.r, 1<<16))
	work.Wait()
	return out, answer
}

// awaitEnd waits until a child has ended, and leaves its number to it.
func awaitEnd(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// conclude completes out by the launcher's answer, or tells why there was no run.
func (out Outcome) conclude(answer []byte, launcher *os.ProcessState) (Outcome, error) {
	var s status
	switch err := json.Unmarshal(answer, &s); {
	case err != nil && out.TimedOut: // killed before it could say anything
		out.ExitCode, out.Signal = -1, "SIGKILL"
		return out, nil
	case err != nil && len(answer) == 0:
		return Outcome{}, fault.Wrap(fmt.Errorf("%w: the launcher ended with %s and gave no status", errBuild, launcher), fault.SandboxUnavailable, "The sandbox failed before the program ran.")
	case err != nil:
		return Outcome{}, fault.Wrap(fmt.Errorf("the launcher ended with %s and gave no status", launcher), fault.UpstreamFailed, "The sandbox failed while the program ran: what it did is not known.")
	case s.Failed != "":
		return Outcome{}, fault.Wrap(fmt.Errorf("%w: %s", errBuild, s.Failed), fault.SandboxUnavailable, "The sandbox could not be built.")
	case s.Exec != "":
		return Outcome{}, fault.Wrap(errors.New(s.Exec), fault.RequestMalformed, "the program can't be executed").At("path")
	}
	out.ExitCode = s.Exit
	if s.Signal != 0 {
		out.Signal = unix.SignalName(syscall.Signal(s.Signal))
	}
	return out, nil
}

// attr starts the launcher in a session and group of its own, and for the tier Full in namespaces of its own.
func attr(spec launchSpec) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if spec.Tier != Full {
		return a // if we die, the pipe of its specification ends, and it kills its group
	}
	a.Pdeathsig = syscall.SIGKILL // if we die, so does it, and with it its namespace
	a.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	if !spec.Network {
		a.Cloneflags |= unix.CLONE_NEWNET
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}}
	a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // in the new user namespace, to build the root
	if spec.Server != nil {
		a.AmbientCaps = append(a.AmbientCaps, unix.CAP_NET_ADMIN) // in the new network namespace, to bring up its loopback
	}
	if spec.Root {
		// Only root may drop the groups it is in, as anybody else could gain rights by that.
		a.GidMappingsEnableSetgroups = true
		a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return a
}

// watch ends the run when its time is over or ctx is, and tells whether it was time. It returns when ended is closed, or before.
func watch(ctx context.Context, wall time.Duration, pid int, ended <-chan struct{}) bool {
	timer := time.NewTimer(wall)
	defer timer.Stop()
	cancelled := ctx.Done()
	select {
	case <-ended:
		return false
	case <-cancelled:
	case <-timer.C:
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		unix.Kill(-pid, unix.SIGKILL)
		return false
	}
	if ctx.Err() != nil {
		cancelled = nil // it was its deadline, and there is no more to come
	}
	unix.Kill(-pid, unix.SIGTERM)
	grace := time.NewTimer(Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-cancelled:
	case <-grace.C:
	}
	unix.Kill(-pid, unix.SIGKILL)
	return true
}

// collect keeps the first limit bytes of what comes, and drops a bounded amount of what follows. It closes f.
func collect(f *os.File, limit int64) ([]byte, bool) {
	defer f.Close()
	kept, _ := io.ReadAll(io.LimitReader(f, limit))
	dropped, _ := io.Copy(io.Discard, io.LimitReader(f, overflow))
	return kept, dropped > 0
}

type pipe struct{ r, w *os.File }

// pipes are those between the gateway and a launcher.
type pipes struct{ stdin, stdout, stderr, spec, status pipe }

func newPipes() (*pipes, error) {
	p := &pipes{}
	for _, one := range p.all() {
		var err error
		if one.r, one.w, err = os.Pipe(); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *pipes) all() []*pipe { return []*pipe{&p.stdin, &p.stdout, &p.stderr, &p.spec, &p.status} }

func (p *pipes) close() {
	for _, one := range p.all() {
		one.r.Close() // harmless where there is none
		one.w.Close()
	}
}

// threads counts what RLIMIT_NPROC counts of the user: its threads on the whole machine.
func threads(uid int) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != uid {
			continue
		}
		if tasks, err := os.ReadDir("/proc/" + e.Name() + "/task"); err == nil {
			n += len(tasks)
		}
	}
	return n, nil
}

func probe() Report {
	r := Report{Tier: None, Landlock: landlockABI()}
	if !ready {
		r.Missing = []string{"This binary does not begin with sandbox.Init: it was built wrongly."}
		return r
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, 0)
	r.Seccomp = errno == unix.EFAULT // asked for a filter at no address, it looks there
	if r.Landlock == 0 {
		r.Missing = append(r.Missing, "The kernel has no Landlock: use Linux 5.13 or later with landlock in the boot parameter lsm=.")
	}
	if !r.Seccomp {
		r.Missing = append(r.Missing, "The kernel has no seccomp filters: use one built with CONFIG_SECCOMP_FILTER.")
	}
	if r.Missing != nil {
		return r
	}
	root := os.Geteuid() == 0
	err := try(Full)
	if err == nil {
		r.Tier, r.UserNamespaces = Full, true
		return r
	}
	if root && !perNamespacePIDs() {
		r.Missing = append(r.Missing, "Before Linux 6.14 nothing bounds the number of root's processes: run the gateway as an ordinary user.")
	} else {
		r.Missing = append(r.Missing, "Namespaces can't be made ("+cause(err)+"): allow them to ordinary users, with the settings user.max_user_namespaces above 0 and, "+
			"on Ubuntu, kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for the gateway; in a container, with a seccomp profile that allows clone and mount.")
	}
	switch {
	case root:
		r.Missing = append(r.Missing, "Without namespaces root can't be held: run the gateway as an ordinary user.")
	case r.Landlock < 6:
		r.Missing = append(r.Missing, fmt.Sprintf("Without namespaces, Landlock must hold signals, too: it has ABI %d here; use Linux 6.12 or later.", r.Landlock))
	default:
		if err := try(Partial); err != nil {
			r.Missing = append(r.Missing, "Landlock and seccomp alone do not hold either ("+cause(err)+").")
			break
		}
		r.Tier = Partial
	}
	return r
}

// cause is the first line of why the launcher failed. It is for operators.
func cause(err error) string {
	s := err.Error()
	if e := (*fault.Error)(nil); errors.As(err, &e) && e.Cause != nil {
		s = e.Cause.Error()
	}
	s, _, _ = strings.Cut(strings.TrimPrefix(s, errBuild.Error()+": "), "\n")
	return s
}

// try builds the sandbox around a child that tests it.
func try(tier Tier) error {
	dir, err := os.MkdirTemp("", "sallyport-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := Command{Dir: dir, Limits: Limits{Wall: 10 * time.Second, CPU: 5 * time.Second, Memory: 1 << 30, File: 1 << 20, Output: 1 << 12, Processes: 16, OpenFiles: 16}}
	out, err := supervise(ctx, c, nil, launchSpec{Tier: tier, Test: true})
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir + "/probe"); out.ExitCode != 0 || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its test ended with %d and left no mark (%s)", out.ExitCode, out.Stderr)
	}
	return nil
}
