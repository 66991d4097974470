package fault

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Every code must be usable at both edges: a new constant without a row, or a row without words, fails here.
func TestEveryCodeIsKnownAtBothEdges(t *testing.T) {
	for _, c := range Codes() {
		if c.HTTPStatus() < 400 || c.HTTPStatus() > 599 {
			t.Errorf("%s: HTTP status %d is not an error", c, c.HTTPStatus())
		}
		if c.RPCCode() >= 0 {
			t.Errorf("%s: JSON-RPC code %d", c, c.RPCCode())
		}
		if s := c.Sentence(); !strings.HasSuffix(s, ".") || strings.TrimSpace(s) != s {
			t.Errorf("%s: sentence %q", c, s)
		}
	}
}

func TestUnknownCodeIsInternal(t *testing.T) {
	c := Code("made.up")
	if c.Known() || c.HTTPStatus() != 500 || c.Sentence() != Internal.Sentence() {
		t.Fatalf("unknown code is friendlier than internal: %d %q", c.HTTPStatus(), c.Sentence())
	}
}

func TestCauseIsNeverShown(t *testing.T) {
	secret := errors.New("dial tcp 10.1.2.3: password=hunter2")
	for _, err := range []error{secret, fmt.Errorf("opening: %w", secret), Wrap(secret, Internal, "leaky %s", secret)} {
		if p := Of(err).Public(); strings.Contains(p, "hunter2") {
			t.Errorf("public sentence shows the cause: %q", p)
		}
	}
	e := Wrap(secret, StoreUnavailable, "The store is locked.").At("store").Try("Stop the other process.")
	if got := e.Public(); got != "The store is locked. Stop the other process." {
		t.Errorf("public = %q", got)
	}
	if got := New(RequestMalformed, "unknown field").At("a").Try("It has one field.").Public(); got != "unknown field. It has one field." {
		t.Errorf("two sentences run into one: %q", got)
	}
	if !strings.Contains(e.Error(), "hunter2") || !errors.Is(e, secret) {
		t.Errorf("the log lost the cause: %v", e)
	}
	if !Is(fmt.Errorf("x: %w", e), StoreUnavailable) || Is(secret, Internal) {
		t.Error("Is looks at the wrong thing")
	}
}

func TestRefuseHasNoNulls(t *testing.T) {
	v := Refuse("flow", FlowContaminated, "")
	if v.Because == nil || v.Remedies == nil || v.Reason == "" || v.Decision != Deny {
		t.Fatalf("%+v", v)
	}
}
