package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

var (
	errClosed = errors.New("the conversation is closed")
	errStdin  = errors.New("the process does not read its input")
	errFlood  = errors.New("it floods us with messages")
)

// failed is an UpstreamFailed after the request may have left: its outcome is unknown. Messages have no words of the server's.
func (s *server) failed(cause error, format string, args ...any) error {
	return fault.Wrap(cause, fault.UpstreamFailed, "Upstream %s %s.", s.cfg.ID, fmt.Sprintf(format, args...))
}

// undispatched is a failure of a request that certainly never left.
func (s *server) undispatched(cause error, format string, args ...any) error {
	return &fault.NotDispatched{Err: s.failed(cause, format, args...)}
}

// down is the error of a call for which there is no conversation. s.mu is held. The agent sees the state and nothing more: the last error can hold the server's own words.
func (s *server) down() error {
	return &fault.NotDispatched{Err: s.failed(errors.New(s.now.LastError), "is %s", s.now.State), Starting: s.again != nil}
}

// unsent is the error of a call that was not sent, since the conversation had ended.
func (c *conversation) unsent(what string) error {
	return &fault.NotDispatched{Err: c.s.failed(c.cause(), "%s", what), Starting: c.endedByCall()}
}

// brokenOff is the error of a call during which the conversation ended.
func (c *conversation) brokenOff() error {
	c.mu.Lock()
	others := c.endedAmid
	c.mu.Unlock()
	return c.s.failed(&fault.Ended{Err: c.cause(), Others: others}, "ended the conversation; whether the call was carried out is unknown")
}

func (s *server) invalidResult(cause error, format string, args ...any) error {
	return fault.Wrap(cause, fault.ResultInvalid, "The answer of upstream %s %s and was discarded.", s.cfg.ID, fmt.Sprintf(format, args...))
}

// noRoom is for an answer that there is no memory for. What the call did is done.
func (s *server) noRoom(cause error) error {
	return fault.Wrap(cause, fault.LimitRate, "There was no memory for the answer of upstream %s, so it was discarded: the agent's calls hold too much already.", s.cfg.ID).
		Try("Make fewer calls with large answers at a time, or ask for less in each.")
}

func (s *server) tooLarge(cause error) error {
	return fault.Wrap(cause, fault.ResultTooLarge, "The answer of upstream %s is over %d bytes and was discarded.", s.cfg.ID, s.o.MaxResult)
}

// gaveUp says why a call ended before its answer: its time was over, or its caller left.
func (s *server) gaveUp(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return fault.Wrap(cause, fault.TimeExceeded, "Upstream %s took too long; partial results were discarded.", s.cfg.ID)
	}
	return s.failed(cause, "was not waited for: the call was cancelled")
}

// plain is an error's text for Status and the log: one line, escaped, bounded. Nothing of a server's answers is in our errors except
// where a JSON-RPC message was quoted; headers and environment never are.
func plain(err error) string {
	if err == nil {
		return ""
	}
	return display.Line(strings.ReplaceAll(err.Error(), "\n", " "), 300)
}
