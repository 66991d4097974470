package runner

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/connect"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/run"
	"sallyport.example/internal/sandbox"
)

// task is what the agent is told.
type task struct {
	RunID        string          `json:"run_id"`
	AgentURL     string          `json:"agent_url"`
	SessionID    string          `json:"session_id"`
	SessionToken string          `json:"session_token"`
	Input        json.RawMessage `json:"input"`
	Deadline     time.Time       `json:"deadline"`
}

func (c *carried) task() ([]byte, error) {
	return call.Encode(task{c.run.ID, c.r.o.AgentURL(), c.run.Session, c.token, c.run.Input, c.run.Deadline})
}

// signature is the header that signs a body of a run of kind http: "t=<seconds since 1970>,v1=<hex HMAC-SHA256 of the secret over direction "." t "." run id "."
// body>". The direction keeps a request from being sent back as an answer.
const signature = "Sallyport-Signature"

// direction says who signed.
type direction string

const (
	request direction = "request" // the gateway
	answer  direction = "answer"  // the agent
)

func sign(secret []byte, d direction, t, runID string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(string(d) + "." + t + "." + runID + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// post sends the task to the declaration's address and returns the answer's body.
func (c *carried) post(ctx context.Context) ([]byte, error) {
	body, err := c.task()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.decl.Run.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fault.Wrap(err, fault.UpstreamFailed, "The run's address can't be used.")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "Sallyport")
	req.Header.Set("Authorization", "Bearer "+c.token)
	var secret []byte
	if name := c.decl.Run.SecretName(); name != "" {
		if secret = []byte(c.r.o.Env(name)); len(secret) == 0 {
			return nil, fault.New(fault.ConfigurationInvalid, "The environment variable %s, which holds the secret of the agent's runs, is empty.", name).Try("Set it and restart the gateway.")
		}
		req.Header.Set(signature, sign(secret, request, strconv.FormatInt(c.r.o.Clock().Unix(), 10), c.run.ID, body))
	}
	transport := &http.Transport{ // no proxy may see the token
		DialContext: dialer(c.decl.Run.Loopback()).DialContext, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
	}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req) // not http.Client: that follows redirects
	if err != nil {
		return nil, fault.Wrap(err, fault.UpstreamFailed, "The agent's address gave no answer: %s.", display.Line(err.Error(), 200))
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, run.MaxOutput+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.UpstreamFailed, "The agent's answer broke off.")
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, fault.New(fault.UpstreamFailed, "The agent's address answered with HTTP status %d.", resp.StatusCode)
	case media != "application/json":
		return nil, fault.New(fault.OutputInvalid, "The agent's address answered with the media type %s, and not with application/json.", display.Quote(media, 80))
	case secret != nil && !signed(secret, resp.Header.Get(signature), c.run.ID, said, c.r.o.Clock()):
		return nil, fault.New(fault.OutputInvalid, "The answer does not have the signature that the agent's secret gives it.").At(signature)
	}
	return said, nil
}

// maxSkew is how old a signature may be.
const maxSkew = 6 * time.Minute

// signed tells whether a header is the signature of an answer.
func signed(secret []byte, header, runID string, body []byte, now time.Time) bool {
	t, _, found := strings.Cut(strings.TrimPrefix(header, "t="), ",")
	at, err := strconv.ParseInt(t, 10, 64)
	if !found || err != nil || now.Sub(time.Unix(at, 0)).Abs() > maxSkew {
		return false
	}
	return hmac.Equal([]byte(header), []byte(sign(secret, answer, t, runID, body)))
}

// dialer connects only to this machine if loopback is set: such an answer is not encrypted, and a name could lead elsewhere.
func dialer(loopback bool) *net.Dialer {
	d := &net.Dialer{Timeout: 10 * time.Second}
	if loopback {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			if at, err := netip.ParseAddrPort(address); err != nil || !at.Addr().Unmap().IsLoopback() {
				return errors.New("the name leads away from this machine")
			}
			return nil
		}
	}
	return d
}

// execute starts the declaration's program in the sandbox, with the task on its standard input and MCP on its descriptor 3, and returns what it wrote.
func (c *carried) execute(ctx context.Context) ([]byte, error) {
	body, err := c.task()
	if err != nil {
		return nil, err
	}
	program, leave, err := c.r.stage(c.decl)
	if err != nil {
		return nil, err
	}
	defer leave()
	dir := filepath.Join(c.r.o.Dir, c.run.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.SandboxUnavailable, "The workspace of the run can't be made.")
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fault.Wrap(err, fault.SandboxUnavailable, "The run's socket can't be made.")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var bridge sync.WaitGroup
	bridge.Go(func() {
		_ = connect.Run(ctx, ours, ours, connect.Options{URL: c.r.o.AgentURL() + "/mcp", Token: c.token, Log: c.r.o.Log}) // it ends with the program
	})
	bridge.Go(func() { watchSize(ctx, dir, cancel) })
	left := time.Until(deadlineOf(ctx))
	out, err := sandbox.Run(ctx, sandbox.Command{
		Program: program.Program, Path: program.Path, Argv: program.Argv, Dir: dir, ReadOnly: []string{program.dir}, Stdin: body, Socket: theirs,
		Env:    []string{"PATH=" + agent.ProgramPath, "HOME=" + dir, "USER=sandbox", "LANG=C.UTF-8", "LC_ALL=C.UTF-8"},
		Limits: sandbox.Limits{Wall: max(left, time.Millisecond), CPU: max(2*left, time.Second), Memory: 4 << 30, File: maxWorkspace, Output: run.MaxOutput + 1, Processes: 64, OpenFiles: 256},
	})
	cancel(nil)
	ours.Close()
	bridge.Wait()
	switch {
	case errors.Is(context.Cause(ctx), errTooMuch):
		return nil, fault.New(fault.LimitQuota, "The run's workspace held more than %d MiB.", maxWorkspace>>20)
	case err != nil:
		return nil, err
	case out.TimedOut:
		return nil, fault.New(fault.TimeExceeded, "")
	case out.Signal != "":
		return nil, fault.New(fault.UpstreamFailed, "The agent's program was ended by %s.%s", out.Signal, lastWords(out.Stderr))
	case out.ExitCode != 0:
		return nil, fault.New(fault.UpstreamFailed, "The agent's program ended with the exit code %d.%s", out.ExitCode, lastWords(out.Stderr))
	case out.StdoutTruncated:
		return nil, fault.New(fault.OutputInvalid, "It has more than %d bytes.", run.MaxOutput).At("output")
	}
	return out.Stdout, nil
}

func deadlineOf(ctx context.Context) time.Time {
	at, _ := ctx.Deadline() // work has set one
	return at
}

// lastWords is the end of what a program wrote as errors, for people.
func lastWords(stderr []byte) string {
	text := strings.TrimSpace(string(stderr))
	if text == "" {
		return ""
	}
	return " It wrote: " + display.Line(strings.ToValidUTF8(text[max(0, len(text)-300):], "?"), 300)
}

// maxWorkspace bounds what the workspace of a run holds, in bytes.
const maxWorkspace = 64 << 20

var errTooMuch = errors.New("the workspace holds too much")

// watchSize ends a run whose workspace holds too much.
func watchSize(ctx context.Context, dir string, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		total, files := int64(0), 0
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // what comes and goes meanwhile is no matter
			if err != nil {
				return nil
			}
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
			if files++; files > 20_000 || total > maxWorkspace {
				return fs.SkipAll
			}
			return nil
		})
		if files > 20_000 || total > maxWorkspace {
			cancel(errTooMuch)
			return
		}
	}
}

// socketPair is a socket with two ends. Ours can be read with a deadline, and closing it ends who reads it.
func socketPair() (ours net.Conn, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // no program that is started meanwhile may inherit an end
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	mine := os.NewFile(uintptr(fds[0]), "run")
	theirs = os.NewFile(uintptr(fds[1]), "run")
	defer mine.Close()
	if ours, err = net.FileConn(mine); err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("the socket of a run: %w", err)
	}
	return ours, theirs, nil
}
