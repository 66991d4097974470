package egress

import (
	"errors"
	"strings"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// Blocked says where and why a request ended without an answer.
type Blocked struct {
	Stage  string // parse, host, policy, resolve, dial, redirect or response
	Reason string // a sentence that is safe to show; names at most the host, escaped and clipped

	remedy string
	cause  error
}

// Error is for logs: it includes the cause, escaped and clipped.
func (b *Blocked) Error() string {
	s := b.Stage + ": " + b.Reason
	if b.cause != nil {
		s += " (" + clip(b.cause.Error()) + ")"
	}
	return s
}

func (b *Blocked) Unwrap() error { return b.cause }

// fault returns b as the gateway answers it.
func (b *Blocked) fault(code fault.Code) error {
	e := fault.Wrap(b, code, "Stage %s: %s", b.Stage, b.Reason)
	if b.remedy != "" {
		e = e.Try("%s", b.remedy)
	}
	return e
}

// redirected returns b for the destination of a redirect. That a server chose the address matters more than what is wrong with it.
func (b *Blocked) redirected() *Blocked {
	r := *b
	r.Stage, r.Reason = "redirect", "A redirect was refused at stage "+b.Stage+": "+b.Reason
	return &r
}

// redirected does so for a refusal. Other failures after a redirect keep their stage.
func redirected(err error) error {
	var b *Blocked
	if fault.Is(err, fault.EgressBlocked) && errors.As(err, &b) {
		return b.redirected().fault(fault.EgressBlocked)
	}
	return err
}

// clip returns s in printable ASCII, and bounded.
func clip(s string) string {
	q := display.ASCII(s, 300)
	end := strings.LastIndexByte(q, '"')
	return q[1:end] + q[end+1:]
}

// quote returns a host or another name for a sentence.
func quote(s string) string { return display.ASCII(s, 80) }
