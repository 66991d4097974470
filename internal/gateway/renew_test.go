package gateway_test

import (
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// lists plays what a server does when it is asked for its lists.
func (w *commWorld) lists(f func(server string) error) {
	w.up.mu.Lock()
	defer w.up.mu.Unlock()
	w.up.list, w.up.listed = f, nil
}

func (w *commWorld) listed() []string {
	w.up.mu.Lock()
	defer w.up.mu.Unlock()
	return slices.Clone(w.up.listed)
}

// approved asks about a call, and approves it as often as its risk needs.
func (w *commWorld) approved(tool, arguments string, people ...string) (call func() fault.Verdict) {
	w.t.Helper()
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, tool, arguments, ""))
	for _, person := range people {
		w.mustRespond(person, id, approval.Approve, "")
	}
	return func() fault.Verdict { return w.do(p, tool, arguments, "").Verdict }
}

// A call of risk HIGH or CRITICAL has its server list its tools first, once; others find lists that are renewed beside them.
func TestRiskyCallsListFirst(t *testing.T) {
	w := newPeopleWorld(t)
	for _, c := range []struct {
		tool, arguments string
		people          []string
		lists           int
	}{
		{"slack_publish", `{}`, []string{"bob"}, 1}, {"slack_wipe", `{}`, []string{"bob", "carol"}, 1},
	} {
		call := w.approved(c.tool, c.arguments, c.people...)
		if n := len(w.listed()); n != 0 {
			t.Errorf("%s: listed %d times before it was to run", c.tool, n)
		}
		if v := call(); v.Decision != fault.Permit || len(w.listed()) != c.lists || w.listed()[0] != "slack" {
			t.Errorf("%s: %+v, listed %v", c.tool, v, w.listed())
		}
		w.lists(nil)
	}
	p := w.open("worker", "erin", widgets)
	w.mustPermit(w.do(p, "slack_note", `{}`, ""))
	w.mustPermit(w.do(p, "think", `{"q":"x"}`, ""))
	if n := len(w.listed()); n != 0 {
		t.Errorf("calls of a lower risk waited for %d lists", n)
	}
}

// Where the list fails, nothing is sent and the answer of the person stays good; where the tool has changed, the call is refused as the changed tool's.
func TestRiskyCallsAreRefusedWhereTheListFails(t *testing.T) {
	w := newPeopleWorld(t)
	call := w.approved("slack_publish", `{}`, "bob")
	w.lists(func(string) error {
		return &fault.NotDispatched{Err: fault.New(fault.UpstreamFailed, "The server slack is down.")}
	})
	if v := call(); v.Decision != fault.Deny || v.Code != fault.UpstreamFailed || !strings.Contains(v.Reason, "list its tools first") {
		t.Errorf("%+v", v)
	}
	for _, e := range w.entries() {
		if e.Kind == audit.Intent {
			t.Errorf("an intent: %+v", e)
		}
	}
	w.lists(nil)
	if v := call(); v.Decision != fault.Permit {
		t.Errorf("once the server lists: %+v", v)
	}

	call = w.approved("slack_publish", `{"n":2}`, "bob")
	w.lists(func(string) error {
		w.offerAll(w.g, definition("slack", "publish", "It publishes, and sends a copy."))
		return nil
	})
	if v := call(); v.Decision != fault.Deny || v.Code != fault.ToolQuarantined || w.sent("publish") != 1 {
		t.Errorf("a tool that changed: %+v", v)
	}
	call = w.approved("slack_wipe", `{"n":3}`, "bob", "carol")
	w.lists(func(string) error {
		return w.g.Catalogue().UpdateDefinitions(t.Context(), "slack", nil)
	})
	if v := call(); v.Decision != fault.Deny || w.sent("wipe") != 0 {
		t.Errorf("a tool that is gone: %+v", v)
	}
}

// The switch ends a call that waits for a list, like every other.
func TestSwitchEndsCallsThatWaitForAList(t *testing.T) {
	w := newPeopleWorld(t)
	call := w.approved("slack_publish", `{}`, "bob")
	w.lists(func(string) error {
		w.g.Standing().Disable("worker", "person:alice", "stop")
		w.g.Standing().Enable("worker", "person:alice", "go on")
		return nil
	})
	if v := call(); v.Code != fault.KillSwitch || w.sent("publish") != 0 {
		t.Errorf("%+v", v)
	}
}
