package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"sallyport.example/internal/display"
	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/sandbox"
)

const (
	inputTime   = 500 * time.Millisecond // that a process has to end after its input closed; many never notice
	stopTime    = 2 * time.Second        // that a process has to end after SIGTERM
	writeTime   = 30 * time.Second       // that a process may leave its input unread
	sandboxTime = time.Minute            // that a sandbox may take to be built
	exitTime    = 2 * time.Second        // that may pass between the end of a process's output and its own
	writeQueue  = 64
	stderrLine  = 1 << 10
	stderrRate  = 20
	stderrBurst = 100
	// What a child may write on stderr, in bytes and bytes a second. One that writes more waits until it is read.
	stderrBytes, stderrBytesBurst = 1 << 20, 4 << 20
)

// inherited names the only variables of the gateway's environment that a child gets: never its secrets.
var inherited = []string{"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER"}

// child is a process that speaks MCP on its pipes, in a process group of its own.
type child struct {
	c        *conversation
	cmd      *exec.Cmd
	stdin    *os.File
	stdout   *os.File
	stderr   *os.File
	confined *sandbox.Process // nil where the server is not confined
	proxy    *egress.Proxy    // its way to the hosts that it may reach; nil where there is none
	queue    chan *letter
	exited   chan struct{} // closed when the process is reaped and its group is dead

	mu     sync.Mutex // held while the process is reaped or its group is sent a signal; guards reaped
	reaped bool       // its number may be somebody else's from now on
}

// letter is a frame on its way to the child.
type letter struct {
	frame []byte
	state atomic.Int32 // letterWaiting at first, and then one of the others
}

const (
	letterWaiting = iota
	letterWriting // may have had its effect
	letterTaken   // back by its sender: it never left
)

func startChild(ctx context.Context, c *conversation) (_ *child, err error) {
	l, err := c.s.launch(ctx)
	if err != nil {
		return nil, err
	}
	ch := &child{c: c, queue: make(chan *letter, writeQueue), exited: make(chan struct{})}
	var theirs [3]*os.File
	defer func() {
		if err != nil {
			closeFiles(theirs[:]...)
			if ch.confined != nil {
				ch.confined.Close() // its launcher ends with it
			}
			closeFiles(ch.stdin, ch.stdout, ch.stderr)
			c.wg.Wait()
		}
	}()
	if ch.cmd, ch.confined, err = c.s.command(l); err != nil {
		return nil, err
	}
	var in, out, errs error
	theirs[0], ch.stdin, in = os.Pipe()
	ch.stdout, theirs[1], out = os.Pipe()
	ch.stderr, theirs[2], errs = os.Pipe()
	if err := errors.Join(in, out, errs); err != nil {
		return nil, fmt.Errorf("no pipe for it: %w", err)
	}
	ch.cmd.Stdin, ch.cmd.Stdout, ch.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	started := make(chan error, 1)
	c.wg.Go(func() {
		// The parent-death signal goes out when the thread that started the process ends, so it is kept until the process does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ch.exited)
		err := ch.cmd.Start()
		closeFiles(theirs[:]...)
		started <- err
		if err == nil {
			c.fail(fmt.Errorf("its process ended: %s", ch.reap()))
		}
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("its process can't be started: %w", err)
	}
	if ch.confined != nil {
		if err := ch.awaitSandbox(); err != nil {
			return nil, err
		}
	}
	c.wg.Go(ch.write)
	c.wg.Go(ch.read)
	c.wg.Go(ch.logStderr)
	return ch, nil
}

// closeFiles closes those that there are. Twice is harmless.
func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// command prepares the server's process: in its sandbox, unless the operator wrote that it has none.
func (s *server) command(l launch) (*exec.Cmd, *sandbox.Process, error) {
	cfg := s.cfg
	env := make([]string, 0, len(inherited)+len(cfg.Env)) // never nil, which would mean all of ours
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			if _, own := cfg.Env[name]; !own {
				env = append(env, name+"="+value)
			}
		}
	}
	for name, value := range cfg.Env {
		env = append(env, name+"="+value)
	}
	if cfg.Confine.Sandbox == Unconfined {
		return &exec.Cmd{Path: l.program, Args: l.argv, Dir: cfg.Dir, Env: env, SysProcAttr: processGroup()}, nil, nil
	}
	env = slices.DeleteFunc(env, func(kv string) bool { // these are the sandbox's
		name, _, _ := strings.Cut(kv, "=")
		_, own := cfg.Env[name]
		return name == "TMPDIR" || name == "TEMP" || name == "HOME" && !own
	})
	server, _, err := s.sandboxed(l, env)
	if err != nil {
		return nil, nil, err
	}
	process, err := server.Command()
	if err != nil {
		return nil, nil, err
	}
	return process.Cmd, process, nil
}

// awaitSandbox waits until the server runs in its sandbox, and opens its way to the hosts that it may reach.
func (ch *child) awaitSandbox() error {
	listener, err := ch.confined.Started(sandboxTime)
	if err != nil {
		return err
	}
	if listener != nil {
		if ch.c.s.egress == nil {
			listener.Close()
			return errors.New("there is a proxy and no list of hosts")
		}
		ch.proxy = egress.NewProxy(ch.c.s.egress, listener, ch.c.s.log)
	}
	return nil
}

func (ch *child) opened() {}

// close ends the process: its input closes, then its group gets SIGTERM, then SIGKILL.
func (ch *child) close() {
	ch.stdin.Close()
	pid := ch.cmd.Process.Pid
	for _, step := range []struct {
		patience time.Duration
		then     func(int)
	}{{inputTime, terminateGroup}, {stopTime, killGroup}} {
		if wait(step.patience, ch.exited) < 0 {
			ch.mu.Lock()
			if !ch.reaped {
				step.then(pid)
			}
			ch.mu.Unlock()
		}
	}
	<-ch.exited
	if ch.confined != nil {
		ch.confined.Close()
	}
	if ch.proxy != nil {
		ch.proxy.Close()
	}
	ch.stdout.Close()
	ch.stderr.Close()
}

// put queues a message. It waits for room in the queue.
func (ch *child) put(ctx context.Context, m mcpwire.Message) (*letter, error) {
	l := &letter{frame: m.Append(nil)}
	select {
	case ch.queue <- l:
		return l, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-ch.c.ctx.Done():
		return nil, ch.c.cause()
	}
}

func (ch *child) post(ctx context.Context, m mcpwire.Message) error {
	_, err := ch.put(ctx, m)
	return err
}

func (ch *child) exchange(ctx context.Context, p *pending, out *outgoing) (m mcpwire.Message, err error) {
	c, s := ch.c, ch.c.s
	l, err := ch.put(ctx, out.Message)
	if err != nil {
		if ctx.Err() != nil {
			return m, &fault.NotDispatched{Err: s.gaveUp(ctx)}
		}
		return m, c.unsent("did not take the call")
	}
	select {
	case a := <-p.answer:
		return s.roomFor(p, a)
	case <-ctx.Done():
		if l.state.CompareAndSwap(letterWaiting, letterTaken) {
			return m, &fault.NotDispatched{Err: s.gaveUp(ctx)}
		}
		if out.Method != "initialize" {
			c.abandon(p.id)
		}
		return m, s.gaveUp(ctx)
	case <-c.ctx.Done():
		select {
		case a := <-p.answer: // it came just before the end
			return s.roomFor(p, a)
		default:
		}
		if l.state.CompareAndSwap(letterWaiting, letterTaken) {
			return m, c.unsent("ended before the call was written")
		}
		return m, c.brokenOff()
	}
}

// roomFor takes the memory for an answer on a line, which could be anybody's until it was read. The reader has one at a time.
func (s *server) roomFor(p *pending, a answer) (mcpwire.Message, error) {
	if n := len(a.Result) + len(a.Error); p.x != nil && p.x.Room != nil && n > freeAnswer {
		if err := p.x.Room.More(n); err != nil {
			return mcpwire.Message{}, s.noRoom(err)
		}
	}
	return a.Message, a.err
}

// write carries letters to the child. A child that leaves its input unread is given up: part of a line can't be taken back.
func (ch *child) write() {
	for {
		select {
		case <-ch.c.ctx.Done():
			return
		case l := <-ch.queue:
			if !l.state.CompareAndSwap(letterWaiting, letterWriting) {
				continue
			}
			ch.stdin.SetWriteDeadline(time.Now().Add(writeTime))
			if _, err := ch.stdin.Write(append(l.frame, '\n')); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					err = errStdin
				}
				ch.pipeEnded(err)
				return
			}
		}
	}
}

// pipeEnded ends the conversation because a pipe failed. If that is because the process ended, how it ended says more.
func (ch *child) pipeEnded(err error) {
	wait(exitTime, ch.exited, ch.c.ctx.Done())
	ch.c.fail(err)
}

// read hands the child's lines on. A line over the limit fails its call; where the line does not say whose it is, the conversation ends.
func (ch *child) read() {
	lines := mcpwire.NewLines(ch.stdout, ch.c.s.maxFrame)
	for {
		line, err := lines.Next()
		var long *mcpwire.LongLine
		switch {
		case errors.As(err, &long):
			ch.oversized(long)
		case err != nil:
			ch.pipeEnded(fmt.Errorf("its output ended: %w", err))
			return
		case len(line) > 0:
			ch.c.receive(bytes.Clone(line), nil) // a flood has ended the conversation by then
		}
	}
}

var idInside = regexp.MustCompile(`"id"\s*:\s*("sp-[0-9]{1,20}")`)

// oversized fails the call that a line over the limit answers. It looks for the id where servers write it: first or last.
func (ch *child) oversized(long *mcpwire.LongLine) {
	c := ch.c
	var to *pending
	unclear := false
	c.mu.Lock()
	for _, m := range append(idInside.FindAllSubmatch(long.Head, -1), idInside.FindAllSubmatch(long.Tail, -1)...) {
		if p := c.pending[mcpwire.IDKey(m[1])]; p != nil {
			unclear = unclear || (to != nil && to != p)
			to = p
		}
	}
	c.mu.Unlock()
	if to == nil || unclear {
		c.fail(errors.New("it sent a line over the limit"))
		return
	}
	to.settle(answer{err: c.s.tooLarge(nil)})
}

// paced reads no faster than its limiter allows, so that a flood costs a bounded time, until over is closed: then the last words are read at once.
type paced struct {
	r       io.Reader
	limiter *rate.Limiter
	over    <-chan struct{}
}

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if d := p.limiter.ReserveN(time.Now(), n).Delay(); d > 0 {
		wait(d, p.over)
	}
	return n, err
}

// logStderr logs what the child writes on stderr: escaped, cut to length, and at a bounded rate.
func (ch *child) logStderr() {
	r := bufio.NewReaderSize(&paced{r: ch.stderr, limiter: rate.NewLimiter(stderrBytes, stderrBytesBurst), over: ch.c.ctx.Done()}, stderrLine)
	limiter := rate.NewLimiter(stderrRate, stderrBurst)
	more := false // the line began earlier
	for {
		part, err := r.ReadSlice('\n')
		if text := bytes.TrimSpace(part); len(text) > 0 && !more && limiter.Allow() {
			line := display.Line(string(text), stderrLine)
			ch.c.s.log.Info("upstream says", "stderr", line)
			if ch.c.s.stderr != nil {
				io.WriteString(ch.c.s.stderr, line+"\n")
			}
		}
		if more = errors.Is(err, bufio.ErrBufferFull); err != nil && !more {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				ch.c.s.log.Debug("reading stderr failed", "error", plain(err))
			}
			return
		}
	}
}
