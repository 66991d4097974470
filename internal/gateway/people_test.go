package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// delay is how long a call of risk MEDIUM waits to be stopped: the gateway's time is the tests', its timers are real.
const delay = 5 * time.Millisecond

// peopleClasses are what the server slack has in these worlds. All of it writes; nothing is kept from going out by what a session holds.
var peopleClasses = map[string]catalogue.Classification{
	"post":    {},
	"plain":   {Level: 2},
	"note":    {Level: 1},
	"send":    {Level: 2, Roles: map[string]string{"to": "destination"}},
	"jot":     {Level: 1, Roles: map[string]string{"to": "destination"}},
	"mail":    {Level: 2, Action: "send_email"},
	"pay":     {Level: 2, Action: "transfer_money", AllowInvisible: []string{"bidi", "nul"}, Roles: map[string]string{"sum": "amount", "unit": "currency", "to": "destination"}},
	"buy":     {Level: 2, Roles: map[string]string{"sum": "amount", "unit": "currency"}},
	"publish": {Level: 2, RiskFloor: policy.High, AllowInvisible: []string{"bidi", "nul"}},
	"wipe":    {Level: 2, RiskFloor: policy.Critical, AllowInvisible: []string{"bidi", "nul"}},
	"odd":     {Level: 2, RiskFloor: "SOME"},
	"sink":    {Level: 2, RiskFloor: policy.High, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write}},
}

// newPeopleWorld has operations of every risk. Names of its tools are slack_<tool>.
func newPeopleWorld(t testing.TB, tweak ...func(*gateway.Options)) *commWorld {
	t.Helper()
	w := newCommWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
		o.Limits.CallsPerMinute, o.Limits.MediumDelay = 0, delay
		rules, err := policy.NewRules(0, 0, "USD", map[string]float64{"EUR": 2})
		if err != nil {
			t.Fatal(err)
		}
		o.Risk = rules
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c, ok := peopleClasses[tool]
			switch {
			case server == "slack" && ok:
				if c.Flow.Effect == "" {
					c.Flow = flow.Spec{Sensitivity: flow.External, Effect: flow.Write, BlockedBy: &[]flow.Label{}}
				}
				c.Listed, c.Named, c.ExternalIO, c.Output = true, true, true, provenance.TrustedOutput
				return c
			case server == "slack": // covered by "slack.*" only
				return catalogue.Classification{Listed: true, ExternalIO: true, Level: 2, Output: provenance.TrustedOutput,
					Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write, BlockedBy: &[]flow.Label{}}}
			}
			return inner(server, tool)
		}
	}}, tweak...)...)
	w.offerAll(w.g)
	return w
}

// offerAll offers everything that slack has, and more.
func (w *commWorld) offerAll(g *gateway.Gateway, more ...call.Definition) {
	w.t.Helper()
	defs := more
	for _, tool := range slices.Sorted(maps.Keys(peopleClasses)) {
		if !slices.ContainsFunc(more, func(d call.Definition) bool { return d.Name == tool }) {
			defs = append(defs, definition("slack", tool, "A tool."))
		}
	}
	if err := g.Catalogue().UpdateDefinitions(w.t.Context(), "slack", defs); err != nil {
		w.t.Fatal(err)
	}
}

const widgets = "What do widgets cost in 2026?"

// held is a call that runs beside the test.
type held struct {
	w       *commWorld
	waiting chan desk.Waiting // the newest word of it; the call waits for nobody
	answer  chan gateway.Answer
	hangUp  context.CancelFunc
}

func (w *commWorld) hold(p identity.Principal, tool, arguments string, hold time.Duration) *held {
	return w.holdOf(gateway.Request{Principal: p, Method: "tools/call", Tool: tool, Arguments: json.RawMessage(arguments), Door: "mcp", Hold: hold})
}

// holdOf holds a call of any method.
func (w *commWorld) holdOf(r gateway.Request) *held {
	ctx, cancel := context.WithCancel(w.t.Context())
	h := &held{w: w, waiting: make(chan desk.Waiting, 1), answer: make(chan gateway.Answer, 1), hangUp: cancel}
	g := w.g
	go func() {
		defer cancel()
		r.Waiting = func(x desk.Waiting) {
			select {
			case <-h.waiting:
			default:
			}
			h.waiting <- x
		}
		h.answer <- g.Call(ctx, r)
	}()
	return h
}

// looked waits until the call has looked at its approval anew, and waits again.
func (h *held) looked() desk.Waiting {
	h.w.t.Helper()
	select {
	case <-h.waiting: // said before we asked
	default:
	}
	return h.waits()
}

func (h *held) waits() desk.Waiting {
	h.w.t.Helper()
	select {
	case x := <-h.waiting:
		return x
	case a := <-h.answer:
		h.w.t.Fatalf("it does not wait: %+v", a.Verdict)
	case <-time.After(10 * time.Second):
		h.w.t.Fatal("it neither waits nor answers")
	}
	return desk.Waiting{}
}

func (h *held) ends() gateway.Answer {
	h.w.t.Helper()
	select {
	case a := <-h.answer:
		return a
	case <-time.After(10 * time.Second):
		h.w.t.Fatal("it does not answer")
	}
	return gateway.Answer{}
}

// asks is the question that a call raises; the call is given up then.
func (w *commWorld) asks(p identity.Principal, tool, arguments string) desk.Question {
	w.t.Helper()
	h := w.hold(p, tool, arguments, 0)
	var id string
	select {
	case x := <-h.waiting:
		id = x.ApprovalID
		h.hangUp()
		h.ends()
	case a := <-h.answer:
		id = w.mustAsk(a)
	}
	return w.question(id)
}

func (w *commWorld) question(id string) desk.Question {
	w.t.Helper()
	q, err := w.g.Desk().Question(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return q
}

func (w *commWorld) mustRespond(person, id string, d approval.Decision, reason string) {
	w.t.Helper()
	if err := w.respond(person, &id, d, reason); err != nil {
		w.t.Fatalf("%s: %s: %v", person, d, err)
	}
}

// sent is how often the servers were called for a tool.
func (w *commWorld) sent(tool string) int {
	w.up.mu.Lock()
	defer w.up.mu.Unlock()
	n := 0
	for _, c := range w.up.calls {
		if strings.Contains(c, `"name":"`+tool+`"`) {
			n++
		}
	}
	return n
}

// codes are which rules gave the risk.
func codes(q desk.Question) (all []string) {
	for _, r := range q.Reasons {
		if strings.HasPrefix(r.Code, "risk.") {
			all = append(all, r.Code)
		}
	}
	return all
}

func (w *commWorld) is(q desk.Question, risk string, reasons ...string) {
	w.t.Helper()
	if q.Risk != risk || !slices.Equal(codes(q), reasons) {
		w.t.Errorf("%s is %s for %v, want %s for %v", q.Operation, q.Risk, codes(q), risk, reasons)
	}
	silent, needed := risk == "MEDIUM", map[string]int{"LOW": 1, "MEDIUM": 0, "HIGH": 1, "CRITICAL": 2}[risk]
	if slices.ContainsFunc(q.Reasons, func(r approval.Reason) bool { return r.Stage == "flow" }) { // silence settles nothing of that
		silent, needed = false, max(1, needed)
	}
	if q.SilenceAt.IsZero() == silent || q.Needed != needed || q.Consequence == "" {
		w.t.Errorf("%s: silence at %s, %d needed, %q", q.Operation, q.SilenceAt, q.Needed, q.Consequence)
	}
}

const mailTo = `{"text":"hi","to":"a@example.com"}`

// HI-2: MEDIUM is shown, and runs after the delay unless somebody stops it. That nobody did is on record.
func TestMediumRunsBySilence(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	h := w.hold(p, "slack_mail", mailTo, 0)
	x := h.waits()
	q := w.question(x.ApprovalID)
	if w.is(q, "MEDIUM", policy.ReasonAction); x.Risk != "MEDIUM" || !x.SilenceAt.Equal(q.SilenceAt) || !q.SilenceAt.Equal(w.clock.now().Add(delay)) {
		t.Errorf("it waits until %s (%s), now is %s", q.SilenceAt, x.Risk, w.clock.now())
	}
	for range 2 { // its timer fires, and the time has not come
		h.looked()
		w.clock.advance(delay/2 - 1)
	}
	h.looked()
	if w.sent("mail") != 0 || w.question(q.ID).State != approval.Pending {
		t.Fatalf("it ran before its time")
	}
	w.clock.advance(2)
	a := w.mustPermit(h.ends())
	if w.sent("mail") != 1 {
		t.Errorf("%d ran", w.sent("mail"))
	}
	es := w.entriesOf(a.CallID)
	var detail struct {
		By string `json:"permitted_by"`
		ID string `json:"approval_id"`
	}
	if i := slices.IndexFunc(es, func(e audit.Entry) bool { return e.Kind == audit.Intent }); i < 0 || json.Unmarshal(es[i].Detail, &detail) != nil || detail.By != "silence" || detail.ID != q.ID || es[i].Risk != "MEDIUM" || len(es[i].Approvers) != 0 {
		t.Errorf("on record: %+v", es)
	}
	if after := w.question(q.ID); after.State != approval.Spent || after.SpentBy != a.CallID || len(after.Votes) != 0 {
		t.Errorf("%+v", after.Approval)
	}
	// Once: the next one is shown again.
	again := w.hold(p, "slack_mail", mailTo, 0)
	if again.waits().ApprovalID == q.ID {
		t.Error("one silence for two calls")
	}
	again.hangUp()
	again.ends()
}

func TestMediumAnswered(t *testing.T) {
	t.Run("rejected during the delay", func(t *testing.T) {
		w := newPeopleWorld(t)
		p := w.open("worker", "erin", widgets)
		h := w.hold(p, "slack_mail", `{"to":"1"}`, 0)
		w.mustRespond("bob", h.waits().ApprovalID, approval.Reject, "not to customers")
		a := w.mustRefuse(h.ends(), fault.ApprovalRejected)
		if !strings.Contains(a.Verdict.Reason, "not to customers") || w.sent("mail") != 0 {
			t.Errorf("%+v, %d sent", a.Verdict, w.sent("mail"))
		}
		w.clock.advance(time.Minute)
		w.mustRefuse(w.do(p, "slack_mail", `{"to":"1"}`, ""), fault.ApprovalRejected)
	})
	t.Run("approved before its time", func(t *testing.T) {
		w := newPeopleWorld(t)
		p := w.open("worker", "erin", widgets)
		h := w.hold(p, "slack_mail", `{"to":"2"}`, 0)
		id := h.waits().ApprovalID
		w.mustRespond("bob", id, approval.Approve, "")
		a := w.mustPermit(h.ends()) // the clock stands still
		es := w.entriesOf(a.CallID)
		i := slices.IndexFunc(es, func(e audit.Entry) bool { return e.Kind == audit.Intent })
		if !slices.Equal(es[i].Approvers, []string{"bob"}) || strings.Contains(string(es[i].Detail), "silence") {
			t.Errorf("%v %s", es[i].Approvers, es[i].Detail)
		}
	})
	t.Run("put off", func(t *testing.T) {
		w := newPeopleWorld(t)
		p := w.open("worker", "erin", widgets)
		before := w.sent("mail")
		h := w.hold(p, "slack_mail", `{"to":"3"}`, 0)
		id := h.waits().ApprovalID
		w.mustRespond("bob", id, approval.Deferral, "")
		if got := w.mustAsk(h.ends()); got != id { // nobody's silence is waited for any more, and nobody wants it held
			t.Errorf("%s, was %s", got, id)
		}
		w.clock.advance(10 * delay)
		if got := w.mustAsk(w.do(p, "slack_mail", `{"to":"3"}`, "")); got != id || w.sent("mail") != before {
			t.Errorf("silence came back: %s, %d sent", got, w.sent("mail")-before)
		}
		w.mustRespond("carol", id, approval.Approve, "")
		w.mustPermit(w.do(p, "slack_mail", `{"to":"3"}`, ""))
	})
	t.Run("put off for longer than the silence, held", func(t *testing.T) {
		w := newPeopleWorld(t)
		p := w.open("worker", "erin", widgets)
		h := w.hold(p, "slack_mail", `{"to":"4"}`, time.Hour)
		id := h.waits().ApprovalID
		q := w.question(id)
		if _, err := w.g.Desk().Respond(t.Context(), voters["bob"], desk.Response{Approval: id, Digest: q.Digest, Decision: approval.Deferral, Until: w.clock.now().Add(time.Second)}); err != nil {
			t.Fatal(err)
		}
		h.waits()
		w.clock.advance(2 * time.Second)
		if q := w.question(id); q.State != approval.Pending {
			t.Errorf("when its time is up again it is %s", q.State)
		}
		before := w.sent("mail")
		w.mustRespond("carol", id, approval.Approve, "")
		w.mustPermit(h.ends())
		if w.sent("mail") != before+1 {
			t.Error("it did not run once")
		}
	})
	t.Run("put off and approved by one who lost the role", func(t *testing.T) {
		w := newPeopleWorld(t)
		p := w.open("worker", "erin", widgets)
		h := w.hold(p, "slack_mail", `{"to":"5"}`, 0)
		id := h.waits().ApprovalID
		h.hangUp()
		h.ends()
		w.mustRespond("bob", id, approval.Approve, "")
		before := w.sent("mail")
		saved := voters["bob"]
		voters["bob"] = approval.Voter{Person: "bob"}
		defer func() { voters["bob"] = saved }()
		w.clock.advance(10 * delay)
		if got := w.mustAsk(w.do(p, "slack_mail", `{"to":"5"}`, "")); got != id || w.sent("mail") != before {
			t.Errorf("%s, was %s; %d sent", got, id, w.sent("mail")-before)
		}
	})
}

// A MEDIUM call whose caller went away runs when it comes back after the delay, and never by itself.
func TestMediumWithoutItsCaller(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	h := w.hold(p, "slack_mail", mailTo, 0)
	id := h.waits().ApprovalID
	h.hangUp()
	w.mustAsk(h.ends())
	w.clock.advance(10 * delay)
	if w.sent("mail") != 0 {
		t.Fatal("it ran for nobody")
	}
	if q := w.question(id); q.State != approval.Approved {
		t.Errorf("after the delay it is %s", q.State)
	}
	if page, err := w.g.Desk().Questions(t.Context(), approval.Pending, "", "", 10); err != nil || len(page) != 0 {
		t.Errorf("%d wait, %v", len(page), err)
	}
	// Up to the moment that it runs it can be stopped.
	w.mustPermit(w.do(p, "slack_mail", mailTo, ""))
	if q := w.question(id); q.State != approval.Spent || w.sent("mail") != 1 {
		t.Errorf("%s, %d sent", q.State, w.sent("mail"))
	}
	q := w.asks(p, "slack_mail", mailTo)
	w.clock.advance(10 * delay)
	w.mustRespond("bob", q.ID, approval.Reject, "once is enough")
	w.mustRefuse(w.do(p, "slack_mail", mailTo, ""), fault.ApprovalRejected)
	// And it does not live for ever.
	w = newPeopleWorld(t)
	p = w.open("worker", "erin", widgets)
	q = w.asks(p, "slack_mail", `{"to":"other"}`)
	w.clock.advance(31 * time.Minute)
	if next := w.asks(p, "slack_mail", `{"to":"other"}`); next.ID == q.ID || w.sent("mail") != 0 {
		t.Errorf("an expired silence permits")
	}
}

func TestHighHeldAndApproved(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	h := w.hold(p, "slack_publish", `{"x":1}`, time.Hour)
	x := h.waits()
	if x.Risk != "HIGH" || !x.SilenceAt.IsZero() {
		t.Errorf("%+v", x)
	}
	w.mustRespond("bob", x.ApprovalID, approval.Approve, "")
	w.mustPermit(h.ends())
	if w.sent("publish") != 1 {
		t.Errorf("%d ran", w.sent("publish"))
	}
	if next := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, "")); next == x.ApprovalID || w.sent("publish") != 1 {
		t.Error("it ran twice")
	}
	// Many of the same held: one runs, the rest ask for another.
	var all []*held
	for range 8 {
		all = append(all, w.hold(p, "slack_publish", `{"x":2}`, time.Hour))
	}
	ids := map[string]bool{}
	for _, h := range all {
		ids[h.waits().ApprovalID] = true
	}
	if len(ids) != 1 {
		t.Fatalf("%d questions about one call", len(ids))
	}
	for id := range ids {
		w.mustRespond("bob", id, approval.Approve, "")
	}
	permitted := 0
	for _, h := range all {
		var a gateway.Answer
		for a.Verdict.Decision == "" {
			select {
			case a = <-h.answer:
			case x := <-h.waiting:
				if !ids[x.ApprovalID] {
					h.hangUp()
				}
			}
		}
		switch {
		case a.Verdict.Decision == fault.Permit:
			permitted++
		case a.Verdict.Code != fault.Conflict && a.Verdict.Code != fault.ApprovalRequired: // too late, or asked anew
			t.Errorf("%+v", a.Verdict)
		}
	}
	if permitted != 1 || w.sent("publish") != 2 {
		t.Errorf("%d permitted, %d sent", permitted, w.sent("publish")-1)
	}
	// Rejected while it is held; and held no longer than it is wanted.
	h = w.hold(p, "slack_publish", `{"x":3}`, time.Hour)
	w.mustRespond("bob", h.waits().ApprovalID, approval.Reject, "no")
	w.mustRefuse(h.ends(), fault.ApprovalRejected)
	h = w.hold(p, "slack_publish", `{"x":4}`, 10*time.Millisecond)
	id := h.waits().ApprovalID
	w.clock.advance(10 * time.Millisecond)
	if got := w.mustAsk(h.ends()); got != id {
		t.Error(got, id)
	}
}

func TestCriticalHeldForTwo(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "carol", widgets)
	h := w.hold(p, "slack_wipe", `{}`, time.Hour)
	id := h.waits().ApprovalID
	if err := w.respond("carol", &id, approval.Approve, ""); !fault.Is(err, fault.RoleMissing) {
		t.Errorf("who asked: %v", err)
	}
	w.mustRespond("bob", id, approval.Approve, "")
	h.waits() // woken by one yes, it waits for the other
	if err := w.respond("bob", &id, approval.Approve, ""); !fault.Is(err, fault.Conflict) {
		t.Errorf("twice: %v", err)
	}
	if w.sent("wipe") != 0 {
		t.Fatal("one person was enough")
	}
	w.clock.advance(time.Minute)
	w.mustRespond("alice", id, approval.Approve, "")
	a := w.mustPermit(h.ends())
	if es := w.entriesOf(a.CallID); w.sent("wipe") != 1 || !slices.ContainsFunc(es, func(e audit.Entry) bool {
		return e.Kind == audit.Intent && slices.Equal(e.Approvers, []string{"bob", "alice"}) && e.Risk == "CRITICAL"
	}) {
		t.Errorf("%+v", es)
	}
}

// What ends a call that is held: the session's end, the kill switch, quarantine, the gateway's own end, the expiry.
func TestHeldAndEnded(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *commWorld, p identity.Principal, id string)
		code fault.Code
	}{
		"session closed": {func(w *commWorld, p identity.Principal, _ string) {
			if _, err := w.g.CloseSession(w.t.Context(), p.ID, "person:alice", ""); err != nil {
				w.t.Fatal(err)
			}
		}, fault.SessionClosed},
		"killed": {func(w *commWorld, _ identity.Principal, _ string) {
			w.g.Standing().Disable("worker", "person:alice", "stop")
		}, fault.KillSwitch},
		"all killed": {func(w *commWorld, _ identity.Principal, _ string) { w.g.Standing().Disable("", "person:alice", "stop") }, fault.KillSwitch},
		"draining":   {func(w *commWorld, _ identity.Principal, _ string) { w.g.Desk().Drain(); w.g.Desk().Drain() }, fault.ApprovalRequired},
		"hung up":    {nil, fault.ApprovalRequired},
		"quarantined": {func(w *commWorld, _ identity.Principal, id string) {
			w.quarantine("worker")
			if err := w.respond("bob", &id, approval.Approve, ""); !fault.Is(err, fault.ApprovalMismatch) {
				w.t.Errorf("a yes to an agent that is put aside: %v", err)
			}
		}, fault.AgentQuarantined},
		"tool changed": {func(w *commWorld, _ identity.Principal, id string) {
			w.offerAll(w.g, definition("slack", "publish", "Changed."), definition("slack", "mail", "Changed."))
			if err := w.respond("bob", &id, approval.Approve, ""); err == nil {
				w.t.Error("a yes to what is no more")
			}
		}, fault.ToolQuarantined},
		"tool changed and accepted": {func(w *commWorld, _ identity.Principal, id string) {
			for _, tool := range []string{"publish", "mail"} {
				changed := definition("slack", tool, "Changed.")
				w.offerAll(w.g, changed)
				if err := w.g.Catalogue().AcceptTool(w.t.Context(), "slack."+tool, changed.Hash, "person:alice"); err != nil {
					w.t.Fatal(err)
				}
			}
		}, fault.ToolQuarantined},
		"modified": {func(w *commWorld, _ identity.Principal, id string) { w.modify("bob", id, `{"to":"other"}`, "other") }, fault.ApprovalMismatch},
	} {
		for tool, hold := range map[string]time.Duration{"slack_publish": time.Hour, "slack_mail": 0} {
			t.Run(name+" "+tool, func(t *testing.T) {
				w := newPeopleWorld(t)
				p := w.open("worker", "erin", widgets)
				h := w.hold(p, tool, `{"to":"x"}`, hold)
				id := h.waits().ApprovalID
				if c.end == nil {
					h.hangUp()
				} else {
					c.end(w, p, id)
				}
				a := h.ends()
				late := name == "tool changed and accepted" && a.Verdict.Code == fault.ToolUnknown // it was judged after both
				if a.Verdict.Code != c.code && !late || a.Result != nil || w.sent(strings.TrimPrefix(tool, "slack_")) != 0 {
					t.Errorf("%+v", a.Verdict)
				}
				if name == "session closed" {
					if q := w.question(id); q.State != approval.Superseded {
						t.Errorf("its question is %s", q.State)
					}
				}
			})
		}
	}
	t.Run("expired", func(t *testing.T) {
		w := newPeopleWorld(t)
		w.o.Limits.ApprovalExpires = 10 * time.Millisecond
		w.g = w.again(t)
		h := w.hold(w.open("worker", "erin", widgets), "slack_publish", `{}`, time.Hour)
		id := h.waits().ApprovalID
		w.clock.advance(10 * time.Millisecond)
		for range 100 { // it is asked about anew, as any call that comes after the expiry
			if h.waits().ApprovalID != id {
				break
			}
		}
		if q := w.question(id); q.State != approval.Expired || w.sent("publish") != 0 {
			t.Errorf("%s", q.State)
		}
		h.hangUp()
		w.mustAsk(h.ends())
	})
}

// again is another gateway on the same store, with the options as they are by now.
func (w *commWorld) again(t testing.TB) *gateway.Gateway {
	t.Helper()
	o := w.o
	g, err := gateway.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	w.offerAll(g)
	for _, server := range []string{"mail", "web", "docs"} {
		var defs []call.Definition
		for id := range classes {
			if s, tool, _ := strings.Cut(id, "."); s == server {
				defs = append(defs, definition(server, tool, "A tool."))
			}
		}
		if err := g.Catalogue().UpdateDefinitions(t.Context(), server, defs); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func (w *commWorld) quarantine(agent string) {
	w.t.Helper()
	if err := w.g.Standing().Quarantine(w.t.Context(), agent, "it behaves oddly", "person:alice"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *commWorld) modify(person, id, arguments, reason string) (desk.Question, error) {
	w.t.Helper()
	q := w.question(id)
	return w.g.Desk().Modify(w.t.Context(), voters[person], desk.Modification{Approval: id, Digest: q.Digest, Arguments: json.RawMessage(arguments), Reason: reason})
}

func (w *commWorld) mustModify(person, id, arguments string) desk.Question {
	w.t.Helper()
	q, err := w.modify(person, id, arguments, "half of it")
	if err != nil {
		w.t.Fatal(err)
	}
	return q
}

// DE-4: a person changes the arguments: a question of its own, which the agent is told of and answers by making that call, or not.
func TestModify(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_pay", `{"sum":500,"to":"acme","unit":"USD"}`, ""))
	old := w.question(id)
	q := w.mustModify("bob", id, ` { "to":"acme", "unit":"USD", "sum": 250 } `)
	if q.ID == id || q.State != approval.Pending || string(q.Arguments) != `{"sum":250,"to":"acme","unit":"USD"}` || string(q.Before) != string(old.Arguments) || q.Digest == old.Digest ||
		q.CallDigest == old.CallDigest || q.ModifiedFrom != id || q.ModifiedBy != "bob" || q.ModifiedReason != "half of it" || q.Amount != "250 USD" || len(q.Votes) != 0 || q.Needed != 1 {
		t.Errorf("%+v before %s", q.Approval, q.Before)
	}
	if o := w.question(id); o.State != approval.Superseded || o.ReplacedBy != q.ID || o.Reason != "half of it" {
		t.Errorf("%+v", o.Approval)
	}
	if err := w.respond("bob", &id, approval.Approve, ""); !fault.Is(err, fault.Conflict) {
		t.Errorf("the old one is approved: %v", err)
	}
	for range 2 { // before the new one is answered, and after
		a := w.mustRefuse(w.do(p, "slack_pay", `{"sum":500,"to":"acme","unit":"USD"}`, ""), fault.ApprovalMismatch)
		if a.Verdict.ApprovalID == nil || *a.Verdict.ApprovalID != q.ID || !strings.Contains(a.Verdict.Reason, "half of it") || len(a.Verdict.Remedies) != 1 || !strings.Contains(a.Verdict.Remedies[0].Text, string(q.Arguments)) {
			t.Errorf("the agent is told %+v", a.Verdict)
		}
		if got := w.question(q.ID); got.State == approval.Pending {
			w.mustAsk(w.do(p, "slack_pay", string(q.Arguments), ""))
			w.mustRespond("carol", q.ID, approval.Approve, "")
		}
	}
	w.mustPermit(w.do(p, "slack_pay", string(q.Arguments), ""))
	if w.sent("pay") != 1 || w.up.calls[len(w.up.calls)-1] != `slack tools/call {"name":"pay","arguments":{"sum":250,"to":"acme","unit":"USD"}}` {
		t.Errorf("sent %v", w.up.calls)
	}
	w.mustAsk(w.do(p, "slack_pay", string(q.Arguments), ""))
	asked, changed := 0, 0
	for _, e := range w.entries() {
		if e.Actor == "person:bob" && strings.Contains(string(e.Detail), q.ID) {
			switch {
			case e.Action == "approval.ask" && strings.Contains(string(e.Detail), id) && e.Reason == "half of it":
				asked++
			case e.Action == "approval.modify" && e.Kind == audit.Change:
				changed++
			}
		}
	}
	if asked != 1 || changed != 1 {
		t.Errorf("on record: asked %d, modified %d", asked, changed)
	}
}

// A call that is held is woken, and told.
func TestModifyTellsWhoIsHeld(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	h := w.hold(p, "slack_publish", `{"x":1}`, time.Hour)
	q := w.mustModify("bob", h.waits().ApprovalID, `{"x":2}`)
	a := w.mustRefuse(h.ends(), fault.ApprovalMismatch)
	if *a.Verdict.ApprovalID != q.ID {
		t.Errorf("%+v", a.Verdict)
	}
	// Of one that silence would have permitted, a person answers the new one.
	m := w.hold(p, "slack_mail", mailTo, 0)
	q = w.mustModify("bob", m.waits().ApprovalID, `{"to":"b@example.com"}`)
	w.mustRefuse(m.ends(), fault.ApprovalMismatch)
	if !q.SilenceAt.IsZero() || q.Needed != 1 {
		t.Errorf("it waits for silence: %+v", q.Approval)
	}
	w.clock.advance(time.Minute)
	if got := w.mustAsk(w.do(p, "slack_mail", `{"to":"b@example.com"}`, "")); got != q.ID || w.sent("mail") != 0 {
		t.Errorf("%s, want %s", got, q.ID)
	}
	w.mustRespond("carol", q.ID, approval.Approve, "")
	w.mustPermit(w.do(p, "slack_mail", `{"to":"b@example.com"}`, ""))
}

func TestModifyRefused(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "carol", widgets)
	ask := func(tool, arguments string) string { t.Helper(); return w.asks(p, tool, arguments).ID }
	id := ask("slack_pay", `{"sum":500,"to":"acme","unit":"USD"}`)
	digest := w.question(id).Digest
	sinkID := ask("slack_sink", `{"x":1}`)
	for name, c := range map[string]struct {
		id, person, digest, arguments, reason string
		code                                  fault.Code
	}{
		"requester":        {id, "carol", digest, `{"sum":1}`, "less", fault.RoleMissing},
		"viewer":           {id, "dave", digest, `{"sum":1}`, "less", fault.RoleMissing},
		"viewer, nonsense": {id, "dave", digest, `[1]`, "less", fault.RoleMissing}, // is told nothing about what could be
		"viewer, a probe":  {sinkID, "dave", "", `{"x":2}`, "less", fault.RoleMissing},
		"nobody":           {id, "mallory", digest, `{"sum":1}`, "less", fault.RoleMissing},
		"unchanged":        {id, "bob", digest, ` {"unit":"USD","to":"acme","sum":500.0}`, "less", fault.RequestMalformed},
		"no reason":        {id, "bob", digest, `{"sum":1}`, " ", fault.RequestMalformed},
		"a long reason":    {id, "bob", digest, `{"sum":1}`, strings.Repeat("x", 4<<20), fault.RequestMalformed},
		"something else":   {id, "bob", strings.Repeat("0", 64), `{"sum":1}`, "less", fault.ApprovalMismatch},
		"nothing":          {id, "bob", digest, ``, "less", fault.RequestMalformed},
		"no object":        {id, "bob", digest, `[1]`, "less", fault.RequestMalformed},
		"no JSON":          {id, "bob", digest, `{"sum":`, "less", fault.RequestMalformed},
		"trailing":         {id, "bob", digest, `{"sum":1}{"sum":2}`, "less", fault.RequestMalformed},
		"same key twice":   {id, "bob", digest, `{"sum":1,"sum":500000}`, "less", fault.RequestMalformed},
		"key in two cases": {id, "bob", digest, `{"sum":1,"Sum":500000}`, "less", fault.RequestMalformed},
		"deep":             {id, "bob", digest, strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000), "less", fault.RequestMalformed},
		"not UTF-8":        {id, "bob", digest, "{\"to\":\"\xff\"}", "less", fault.RequestMalformed},
		"lone surrogate":   {id, "bob", digest, `{"to":"\ud800"}`, "less", fault.RequestMalformed},
		"huge number":      {id, "bob", digest, `{"sum":1e999}`, "less", fault.RequestMalformed},
		"unknown":          {"appr_none", "bob", digest, `{"sum":1}`, "less", fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.g.Desk().Modify(t.Context(), voters[c.person], desk.Modification{Approval: c.id, Digest: c.digest, Arguments: json.RawMessage(c.arguments), Reason: c.reason})
			if c.person == "mallory" {
				_, err = w.g.Desk().Modify(t.Context(), approval.Voter{Person: "mallory", Roles: []identity.Role{identity.Admin}}, desk.Modification{Approval: c.id, Digest: c.digest, Arguments: json.RawMessage(c.arguments), Reason: c.reason})
			}
			if f := fault.Of(err); err == nil || f.Code != c.code || f.Code == fault.RequestMalformed && f.Field == "" || len(f.Public()) > 1000 {
				t.Errorf("%v at %q, want %s", err, fault.Of(err).Field, c.code)
			}
			if q := w.question(id); q.State != approval.Pending || q.Digest != digest {
				t.Errorf("%+v", q.Approval)
			}
		})
	}
	// What the agent could not do, a person does not do for it by changing its words.
	w.mustPermit(w.do(p, "search_email", `{"q":"x"}`, ""))
	if _, err := w.modify("bob", sinkID, `{"x":2}`, "less"); !fault.Is(err, fault.FlowContaminated) {
		t.Errorf("into a sink that is shut: %v", err)
	}
	forbidden := w.open("worker", "erin", widgets)
	sendID := w.mustAsk(w.do(forbidden, "comm_send", sendPage, ""))
	for arguments, code := range map[string]fault.Code{
		`{"url":"https://forbidden.example/"}`: fault.EgressBlocked, `{"url":"https://example.com/other","follow":true}`: fault.RequestMalformed,
		`{"url":"https://example.com/other",` + because + `}`: fault.RequestMalformed, `{"declaration_id":"decl_1","url":"https://example.com/other"}`: fault.RequestMalformed,
	} {
		if _, err := w.modify("bob", sendID, arguments, "other"); !fault.Is(err, code) {
			t.Errorf("%s: %v", arguments, err)
		}
	}
	if open, err := w.g.Desk().Questions(t.Context(), approval.Pending, "", "", 100); err != nil || len(open) != 3 {
		t.Errorf("%d open, %v", len(open), err)
	}
	if _, err := w.g.CloseSession(t.Context(), p.ID, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.modify("bob", id, `{"sum":1,"to":"acme","unit":"USD"}`, "less"); !fault.Is(err, fault.SessionClosed) {
		t.Errorf("of a closed session: %v", err)
	}
	w.quarantine("worker")
	if _, err := w.modify("bob", sendID, `{"url":"https://example.com/other"}`, "other"); !fault.Is(err, fault.ApprovalMismatch) {
		t.Errorf("of an agent that is put aside: %v", err)
	}
}

// A policy of the operator's is asked about the new arguments, and refused attempts are on record (TH-4).
func TestRefusedModificationIsOnRecord(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		o.Policies = policies(t, "permit (principal, action, resource); forbid (principal, action, resource) when { context.arguments has x && context.arguments.x > 2 };")
	})
	p := w.open("worker", "carol", widgets)
	id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	if _, err := w.modify("bob", id, `{"x":3}`, "more"); !fault.Is(err, fault.PermissionDenied) {
		t.Errorf("what no policy permits: %v", err)
	}
	if _, err := w.modify("carol", id, `{"x":2}`, "mine"); err == nil {
		t.Fatal("taken")
	}
	if !slices.ContainsFunc(w.entries(), func(e audit.Entry) bool {
		return e.Action == "approval.modify" && e.Decision == "deny" && e.Actor == "person:carol" && e.Code == string(fault.RoleMissing)
	}) {
		t.Error("nobody will know that carol tried")
	}
}

// What one person approved before is for the arguments that they saw: of the new ones two others, or the same, decide.
func TestModifyAfterOneOfTwo(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	h := w.hold(p, "slack_wipe", `{"x":1}`, time.Hour)
	id := h.waits().ApprovalID
	w.mustRespond("bob", id, approval.Approve, "")
	q := w.mustModify("carol", id, `{"x":2}`)
	w.mustRefuse(h.ends(), fault.ApprovalMismatch)
	if len(q.Votes) != 0 || q.Needed != 2 {
		t.Errorf("%+v", q.Approval)
	}
	w.mustRespond("alice", q.ID, approval.Approve, "")
	w.mustAsk(w.do(p, "slack_wipe", `{"x":2}`, ""))
	w.mustRespond("bob", q.ID, approval.Approve, "")
	w.mustPermit(w.do(p, "slack_wipe", `{"x":2}`, ""))
	if w.sent("wipe") != 1 {
		t.Errorf("%d ran", w.sent("wipe"))
	}
	// Also of one that was approved and has not run.
	id = w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	w.mustRespond("bob", id, approval.Approve, "")
	w.mustModify("carol", id, `{"x":2}`)
	w.mustRefuse(w.do(p, "slack_publish", `{"x":1}`, ""), fault.ApprovalMismatch)
	if w.sent("publish") != 0 {
		t.Error("it ran on the yes to what carol changed")
	}
}

func TestModifyDeclaration(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	q := w.mustModify("bob", d.ApprovalID, `{"url":"https://example.com/other"}`)
	if q.DeclarationID == "" || q.DeclarationID == d.DeclarationID || string(q.Justification) != string(w.question(d.ApprovalID).Justification) {
		t.Errorf("%+v", q.Approval)
	}
	w.mustRefuse(w.do(p, "comm_send", "{}", d.DeclarationID), fault.ApprovalRejected)
	if got, err := w.g.Declaration(t.Context(), p, "", d.DeclarationID); err != nil || got.State != "rejected" || !strings.Contains(got.Reason, "half of it") {
		t.Errorf("%+v, %v", got, err)
	}
	w.mustAsk(w.do(p, "comm_send", "{}", q.DeclarationID))
	w.mustRespond("carol", q.ID, approval.Approve, "")
	w.mustPermit(w.do(p, "comm_send", "{}", q.DeclarationID))
	if n := w.cmd.runs.Load(); n != 1 {
		t.Errorf("%d ran", n)
	}
	if again := w.do(p, "comm_send", "{}", q.DeclarationID); again.Verdict.Decision == fault.Permit {
		t.Error("twice")
	}
}

// HI-1: by context, for writes only that more than the person sees, by one tier for each ground, to HIGH at most; and only what is first is first.
func TestContextRaisesRisk(t *testing.T) {
	ground := func(t *testing.T, tweak ...func(*gateway.Options)) (*commWorld, identity.Principal) {
		w := newPeopleWorld(t, tweak...)
		return w, w.open("worker", "erin", widgets)
	}
	low := func(w *commWorld, p identity.Principal, tool, arguments string) {
		w.t.Helper()
		h := w.hold(p, tool, arguments, 0)
		select {
		case a := <-h.answer:
			w.mustPermit(a)
		case <-h.waiting:
			w.t.Fatalf("%s %s waits to be stopped", tool, arguments)
		}
	}
	t.Run("none", func(t *testing.T) {
		w, p := ground(t)
		low(w, p, "slack_plain", `{}`)
		low(w, p, "slack_plain", `{}`)
	})
	t.Run("untrusted", func(t *testing.T) {
		w, p := ground(t)
		low(w, p, "web_search", `{"q":"x"}`)
		w.is(w.asks(p, "slack_plain", `{}`), "MEDIUM", policy.ReasonUntrusted)
		w.is(w.asks(p, "slack_note", `{}`), "MEDIUM", policy.ReasonUnconfirmed) // level 1: its arguments are traced, and a question of the flow rules is MEDIUM at least
		low(w, p, "think", `{}`)                                                // a read
		low(w, p, "web_search", `{"q":"y"}`)
		w.is(w.asks(p, "slack_mail", `{}`), "HIGH", policy.ReasonAction, policy.ReasonUntrusted)
		w.is(w.asks(p, "slack_publish", `{}`), "HIGH", policy.ReasonOperator) // a ground that finds it there is none
		w.is(w.asks(p, "slack_send", `{"to":"x"}`), "HIGH", policy.ReasonUntrusted, policy.ReasonFirstDestination)
		w.is(w.asks(p, "slack_wipe", `{}`), "CRITICAL", policy.ReasonOperator)
	})
	t.Run("untrusted, with level 1 free", func(t *testing.T) {
		w, p := ground(t, func(o *gateway.Options) { o.FreeLevel1 = true })
		low(w, p, "web_search", `{"q":"x"}`)
		low(w, p, "slack_note", `{}`)
		w.is(w.asks(p, "slack_plain", `{}`), "MEDIUM", policy.ReasonUntrusted)
	})
	t.Run("contaminated", func(t *testing.T) {
		w, p := ground(t)
		low(w, p, "search_email", `{"q":"x"}`)
		q := w.asks(p, "slack_plain", `{}`)
		w.is(q, "MEDIUM", policy.ReasonContaminated)
		if !slices.ContainsFunc(q.Reasons, func(r approval.Reason) bool { return strings.Contains(r.Text, "internal") }) {
			t.Errorf("%+v", q.Reasons)
		}
		low(w, p, "slack_note", `{}`)
		low(w, p, "search_email", `{"q":"y"}`)
	})
	t.Run("both", func(t *testing.T) {
		w, p := ground(t)
		low(w, p, "web_search", `{"q":"x"}`)
		low(w, p, "search_email", `{"q":"x"}`)
		w.is(w.asks(p, "slack_plain", `{}`), "MEDIUM", policy.ReasonUntrusted, policy.ReasonContaminated)
		q := w.asks(p, "slack_send", `{"to":"x"}`)
		w.is(q, "HIGH", policy.ReasonUntrusted, policy.ReasonContaminated, policy.ReasonFirstDestination)
		if held := slices.Collect(func(yield func(string) bool) {
			for _, h := range q.Held {
				if !yield(string(h.Label) + " " + h.Operation) {
					return
				}
			}
		}); !slices.Contains(held, "internal mail.search_email") || !slices.Contains(held, "untrusted web.web_search") || q.UserRequest != widgets {
			t.Errorf("shown: %v, %q", held, q.UserRequest)
		}
	})
	t.Run("left the plan", func(t *testing.T) {
		w, p := ground(t)
		plan := w.submit(p, `[{"tool":"web_search","arguments":{"q":"x"},"justification":"look up widget prices"},{"tool":"slack_plain","arguments":{"a":1},"justification":"say what widgets cost"},{"tool":"slack_plain","arguments":{"a":2},"justification":"say what widgets cost"}]`)
		if plan.State != session.PlanApproved {
			t.Fatalf("%+v", plan)
		}
		low(w, p, "slack_plain", `{"a":1}`)
		low(w, p, "slack_plain", `{"b":1}`) // off the plan, and clean
		low(w, p, "web_search", `{"q":"x"}`)
		low(w, p, "slack_plain", `{"a":2}`)                                                              // as the plan has it
		w.is(w.asks(p, "slack_plain", `{"a":2}`), "HIGH", policy.ReasonUntrusted, policy.ReasonLeftPlan) // once
		w.is(w.asks(p, "slack_plain", `{"b":2}`), "HIGH", policy.ReasonUntrusted, policy.ReasonLeftPlan)
		w.is(w.asks(p, "slack_note", `{}`), "MEDIUM", policy.ReasonUnconfirmed)
		if q := w.asks(p, "slack_plain", `{"b":2}`); q.Plan == nil || len(q.Plan.Steps) != 3 {
			t.Errorf("what the plan said is not shown: %+v", q.Plan)
		}
	})
	t.Run("no plan", func(t *testing.T) {
		w, p := ground(t)
		low(w, p, "web_search", `{"q":"x"}`)
		w.is(w.asks(p, "slack_plain", `{}`), "MEDIUM", policy.ReasonUntrusted)
	})
	t.Run("a tool that a person accepted", func(t *testing.T) {
		w, p := ground(t)
		low(w, p, "slack_plain", `{}`)
		for i, text := range []string{"Changed.", "Changed again."} { // each definition is new
			changed := definition("slack", "plain", text)
			w.offerAll(w.g, changed)
			w.mustRefuse(w.do(p, "slack_plain", `{}`, ""), fault.ToolQuarantined)
			if err := w.g.Catalogue().AcceptTool(t.Context(), "slack.plain", changed.Hash, "person:alice"); err != nil {
				t.Fatal(err)
			}
			q := w.asks(p, "slack_plain", `{}`)
			w.is(q, "MEDIUM", policy.ReasonNewTool)
			w.mustRespond("bob", q.ID, approval.Approve, "")
			low(w, p, "slack_plain", `{}`) // the first call
			low(w, p, "slack_plain", `{}`)
			low(w, w.open("worker", "erin", widgets), "slack_plain", fmt.Sprintf(`{"n":%d}`, i)) // of the agent, not of the session
		}
	})
	t.Run("a tool that came later", func(t *testing.T) {
		w, p := ground(t)
		fresh := definition("slack", "fresh", "New.")
		w.offerAll(w.g, fresh)
		if err := w.g.Catalogue().AcceptTool(t.Context(), "slack.fresh", fresh.Hash, "person:alice"); err != nil {
			t.Fatal(err)
		}
		q := w.asks(p, "slack_fresh", `{}`)
		w.is(q, "MEDIUM", policy.ReasonNewTool)
		w.is(w.asks(p, "slack_fresh", `{"other":1}`), "MEDIUM", policy.ReasonNewTool) // nothing of it has run yet
		w.clock.advance(delay)
		low(w, p, "slack_fresh", `{}`)
		low(w, p, "slack_fresh", `{"a":1}`)
	})
	t.Run("a destination", func(t *testing.T) {
		w, p := ground(t)
		q := w.asks(p, "slack_send", `{"to":"a"}`)
		w.is(q, "MEDIUM", policy.ReasonFirstDestination)
		if !slices.Equal(q.Destinations, []string{`"a"`}) {
			t.Errorf("%v", q.Destinations)
		}
		w.mustRespond("bob", q.ID, approval.Reject, "no")
		if q := w.asks(p, "slack_send", `{"to":"a","x":1}`); !slices.Contains(codes(q), policy.ReasonFirstDestination) {
			t.Errorf("what was refused counts as used: %v", codes(q))
		} else if len(q.Earlier) != 1 || q.Earlier[0].Destination != `"a"` || q.Earlier[0].State != approval.Rejected || !slices.Equal(q.Earlier[0].By, []string{"bob"}) {
			t.Errorf("what was decided about it is not shown: %+v", q.Earlier)
		}
		w, p = ground(t)
		w.asks(p, "slack_send", `{"to":"a"}`)
		q = w.asks(p, "slack_send", `{"to":["a","b"]}`)
		w.is(q, "MEDIUM", policy.ReasonFirstDestination)
		if len(q.Earlier) != 0 {
			t.Errorf("what nobody has decided is shown: %+v", q.Earlier)
		}
		w.mustRespond("bob", q.ID, approval.Approve, "")
		low(w, p, "slack_send", `{"to":["a","b"]}`)
		for _, to := range []string{`"a"`, `"b"`, `["b","a"]`} {
			low(w, p, "slack_send", `{"to":`+to+`,"x":2}`)
		}
		w.is(w.asks(p, "slack_send", `{"to":["a","c"]}`), "MEDIUM", policy.ReasonFirstDestination)
		w.is(w.asks(p, "slack_send", `{"to":"A"}`), "MEDIUM", policy.ReasonFirstDestination)
		low(w, p, "slack_send", `{"x":1}`) // it goes nowhere that is named
		low(w, p, "slack_jot", `{"to":"z"}`)
		w.is(w.asks(p, "slack_send", `{"to":"z"}`), "MEDIUM", policy.ReasonFirstDestination) // what nobody else sees sends nothing there
		other := w.open("selfish", "erin", widgets)
		w.is(w.asks(other, "slack_send", `{"to":"a"}`), "MEDIUM", policy.ReasonFirstDestination) // each agent's first
		var many []string
		for i := range 40 {
			many = append(many, fmt.Sprintf(`"m%d"`, i))
		}
		q = w.asks(p, "slack_send", `{"to":[`+strings.Join(many, ",")+`]}`)
		w.is(q, "MEDIUM", policy.ReasonFirstDestination)
		w.mustRespond("bob", q.ID, approval.Approve, "")
		low(w, p, "slack_send", `{"to":[`+strings.Join(many, ",")+`]}`)
		w.is(w.asks(p, "slack_send", `{"to":[`+strings.Join(many, ",")+`]}`), "MEDIUM", policy.ReasonFirstDestination) // so many are never known
	})
	t.Run("after a restart", func(t *testing.T) {
		w, p := ground(t)
		q := w.asks(p, "slack_send", `{"to":"a"}`)
		w.mustRespond("bob", q.ID, approval.Approve, "")
		low(w, p, "slack_send", `{"to":"a"}`)
		w.end()
		w.start()
		w.offerAll(w.g)
		low(w, p, "slack_send", `{"to":"a","x":1}`)
		w.is(w.asks(p, "slack_send", `{"to":"b"}`), "MEDIUM", policy.ReasonFirstDestination)
	})
}

// HI-1: amounts by role, in the base currency; what can't be read is CRITICAL, and so is a rating that is no word.
func TestAmounts(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	for arguments, want := range map[string]struct{ tool, risk, amount string }{
		`{"sum":9999.99,"unit":"USD"}`:          {"slack_pay", "HIGH", "9999.99 USD"},
		`{"sum":10000,"unit":"USD"}`:            {"slack_pay", "CRITICAL", "10000 USD"},
		`{"sum":"10,000.00","unit":"USD"}`:      {"slack_pay", "CRITICAL", ""},
		`{"sum":4999,"unit":"EUR"}`:             {"slack_pay", "HIGH", "4999 EUR"},
		`{"sum":5000,"unit":"EUR"}`:             {"slack_pay", "CRITICAL", "5000 EUR"},
		`{"sum":1,"unit":"GBP"}`:                {"slack_pay", "CRITICAL", "unreadable"},
		`{"sum":"a lot","unit":"USD"}`:          {"slack_pay", "CRITICAL", "unreadable"},
		`{"unit":"USD"}`:                        {"slack_pay", "CRITICAL", "unreadable"},
		`{"sum":[6000,6000],"unit":"USD"}`:      {"slack_pay", "CRITICAL", "12000 USD"},
		`{"sum":999,"to":"known","unit":"USD"}`: {"slack_pay", "HIGH", "999 USD"},
		`{"sum":1000,"unit":"USD"}`:             {"slack_buy", "HIGH", "1000 USD"},
		`{"sum":1000000,"unit":"USD"}`:          {"slack_buy", "HIGH", "1000000 USD"},
		`{"sum":"x","unit":"USD"}`:              {"slack_buy", "CRITICAL", "unreadable"},
		`{}`:                                    {"slack_odd", "CRITICAL", ""},
	} {
		q := w.asks(p, want.tool, arguments)
		if q.Risk != want.risk || want.amount != "" && q.Amount != want.amount || !q.SilenceAt.IsZero() || q.Consequence == "" {
			t.Errorf("%s %s is %s (%s), want %s (%s): %v", want.tool, arguments, q.Risk, q.Amount, want.risk, want.amount, codes(q))
		}
	}
	w.mustPermit(w.do(p, "slack_buy", `{"sum":999.99,"unit":"USD"}`, ""))
	id := w.mustAsk(w.do(p, "slack_pay", `{"sum":2500,"to":"acme","unit":"EUR"}`, ""))
	w.mustRespond("bob", id, approval.Approve, "")
	a := w.mustPermit(w.do(p, "slack_pay", `{"sum":2500,"to":"acme","unit":"EUR"}`, ""))
	if es := w.entriesOf(a.CallID); !slices.ContainsFunc(es, func(e audit.Entry) bool { return e.Kind == audit.Intent && e.Amount == "2500 EUR" && e.Risk == "HIGH" }) {
		t.Errorf("the record has no amount: %+v", es)
	}
}

// Who asks first for more than the risk gets an answer, not silence.
func TestUnlistedIsNeverSilent(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) {
		o.Unlisted, o.Limits.MediumDelay = catalogue.Active, delay
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "shy" {
				c.Flow.Effect, c.RiskFloor = flow.Read, policy.Medium
			}
			return c
		}
	})
	w.offer("shy", definition("shy", "look", "New."))
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "shy_look", `{}`)
	id := q.ID
	if q.Risk != "MEDIUM" || !q.SilenceAt.IsZero() || q.Needed != 1 {
		t.Errorf("%+v", q.Approval)
	}
	w.clock.advance(time.Minute)
	if got := w.mustAsk(w.do(p, "shy_look", `{}`, "")); got != id || w.sent("look") != 0 {
		t.Error("silence permitted what nobody listed")
	}
	w.mustRespond("bob", id, approval.Approve, "")
	w.mustPermit(w.do(p, "shy_look", `{}`, ""))
}

// What was left to silence under other rules is not permitted by it once the rules want a person.
func TestSilenceIsForTheRulesOfToday(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "comm" && tool == "get" {
				c.RiskFloor = policy.Medium
			}
			return c
		}
	})
	p := w.open("worker", "erin", widgets)
	get := `{"url":"https://example.com/page",` + because + `}`
	q := w.asks(p, "comm_get", get)
	w.is(q, "MEDIUM", policy.ReasonOperator)
	w.clock.advance(delay)
	w.o.Tiers = gateway.Tiers()
	w.o.Tiers["standard"] = gateway.Tier{AskFrom: policy.Medium}
	w.g = w.again(t)
	next := w.question(w.mustAsk(w.do(p, "comm_get", get, "")))
	if next.ID == q.ID || !next.SilenceAt.IsZero() || next.Needed != 1 || w.cmd.runs.Load() != 0 {
		t.Errorf("%+v", next.Approval)
	}
	w.clock.advance(time.Minute)
	w.mustAsk(w.do(p, "comm_get", get, ""))
}

// DE-3, DE-5: a tier says from where on a person decides on what is declared; never that HIGH needs nobody.
func TestTiersAndRisk(t *testing.T) {
	for tier, c := range map[string]struct{ low, medium string }{"standard": {"", "silence"}, "trusted": {"", "silence"}, "restricted": {"person", "person"}, "careful": {"", "person"}} {
		t.Run(tier, func(t *testing.T) {
			w := newPeopleWorld(t, func(o *gateway.Options) {
				d, _ := o.Agents.Get("worker")
				d.TrustTier = tier
				o.Tiers["careful"] = gateway.Tier{AskFrom: policy.Medium}
				inner := o.Classify
				o.Classify = func(server, tool string) catalogue.Classification {
					c := inner(server, tool)
					if server == "comm" && tool == "wipe" {
						c.RiskFloor = policy.Medium
					}
					return c
				}
			})
			p := w.open("worker", "erin", widgets)
			how := func(tool string) string {
				h := w.hold(p, tool, `{"url":"https://example.com/page",`+because+`}`, 0)
				select {
				case x := <-h.waiting:
					defer func() { h.hangUp(); h.ends() }()
					if x.SilenceAt.IsZero() {
						return "held"
					}
					return "silence"
				case a := <-h.answer:
					if a.Verdict.Decision == fault.Ask {
						return "person"
					}
					return string(a.Verdict.Code)
				}
			}
			if got := how("comm_get"); got != c.low {
				t.Errorf("LOW: %q, want %q", got, c.low)
			}
			p = w.open("worker", "erin", widgets) // what it read is no ground
			if got := how("comm_wipe"); got != c.medium {
				t.Errorf("MEDIUM: %q, want %q", got, c.medium)
			}
			if got := how("comm_send"); got != "person" {
				t.Errorf("HIGH: %q", got)
			}
			w.is(w.asks(p, "slack_mail", `{}`), "MEDIUM", policy.ReasonAction) // what nobody has to declare is the same for all
			w.is(w.asks(p, "slack_wipe", `{}`), "CRITICAL", policy.ReasonOperator)
		})
	}
}

// Asking what would happen changes nothing and asks nobody.
func TestCheckAsksNobody(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	check := func(tool, arguments string) gateway.Answer {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return w.g.Call(ctx, gateway.Request{Principal: p, Method: "tools/call", Tool: tool, Arguments: json.RawMessage(arguments), Door: "mcp", DryRun: true, Hold: time.Hour,
			Waiting: func(desk.Waiting) { t.Error("a check waits") }})
	}
	before := len(w.entries())
	for _, tool := range []string{"slack_mail", "slack_publish", "slack_wipe", "slack_send"} {
		if a := check(tool, mailTo); a.Verdict.Decision != fault.Ask || a.Verdict.ApprovalID != nil || a.Result != nil {
			t.Errorf("%s: %+v", tool, a.Verdict)
		}
	}
	if all, err := w.g.Desk().Questions(t.Context(), "", "", "", 10); err != nil || len(all) != 0 || len(w.entries()) != before || w.up.count() != 0 {
		t.Errorf("%d questions, %d entries, %v", len(all), len(w.entries())-before, err)
	}
	q := w.asks(p, "slack_send", mailTo)
	before = len(w.entries())
	if a := check("slack_send", mailTo); a.Verdict.Decision != fault.Ask || a.Verdict.ApprovalID == nil || *a.Verdict.ApprovalID != q.ID { // at once
		t.Errorf("while it waits: %+v", a.Verdict)
	}
	w.clock.advance(delay)
	if a := check("slack_send", mailTo); a.Verdict.Decision != fault.Permit || a.Result != nil {
		t.Errorf("after the silence: %+v", a.Verdict)
	}
	if got := w.question(q.ID); got.State != approval.Approved || got.SpentBy != "" || len(w.entries()) != before || w.sent("send") != 0 {
		t.Errorf("%+v", got.Approval)
	}
	w.mustPermit(w.do(p, "slack_send", mailTo, ""))
	if a := check("slack_send", mailTo); a.Verdict.Decision != fault.Permit { // now it is known: LOW
		t.Errorf("%+v", a.Verdict)
	}
}

// A check of what is another's, or by a credential that opens nothing here, is on record like every such refusal; a check in one's own session is not.
func TestCheckOfAnothersSessionIsOnRecord(t *testing.T) {
	w := newPeopleWorld(t)
	p, other := w.open("worker", "erin", widgets), w.open("planner", "erin", widgets)
	check := func(p identity.Principal, session string) gateway.Answer {
		return w.g.Call(t.Context(), gateway.Request{Principal: p, Session: session, Method: "tools/call", Tool: "slack_mail", Arguments: json.RawMessage(mailTo), Door: "http", DryRun: true})
	}
	for name, c := range map[string]struct {
		by      identity.Principal
		session string
		code    fault.Code
	}{
		"another's session":    {p, other.ID, fault.PermissionDenied},
		"another host's":       {identity.Principal{Kind: identity.Host, ID: "cd"}, p.ID, fault.PermissionDenied},
		"one that isn't there": {identity.Principal{Kind: identity.Host, ID: "ci"}, "sess_none", fault.NotFound},
		"by a person":          {identity.Principal{Kind: identity.Person, ID: "bob"}, p.ID, fault.CredentialWrongKind},
	} {
		before := len(w.entries())
		if a := check(c.by, c.session); a.Verdict.Decision != fault.Deny {
			t.Errorf("%s: %+v", name, a.Verdict)
		}
		added := w.entries()[before:]
		if len(added) != 1 || added[0].Action != "check" || added[0].Actor != c.by.String() || added[0].Code != string(c.code) || added[0].CallID != "" || added[0].Decision != "deny" {
			t.Errorf("%s: %+v", name, added)
		}
	}
	before := len(w.entries())
	check(p, p.ID)
	check(p, "")
	if n := len(w.entries()) - before; n != 0 {
		t.Errorf("%d entries of checks in one's own session", n)
	}
}

// People are told of each change; who does not listen is told that something was missed, and holds up nobody.
func TestWatch(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	w := newPeopleWorld(t)
	told, end := w.g.Watch()
	want := func(topic, id string) {
		t.Helper()
		for {
			select {
			case c := <-told:
				if c.Topic == topic && c.ID == id {
					return
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("nobody was told of %s %s", topic, id)
			}
		}
	}
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_wipe", `{}`, ""))
	want(changes.Approval, id)
	w.mustRespond("bob", id, approval.Approve, "")
	want(changes.Approval, id)
	w.mustRespond("alice", id, approval.Approve, "")
	want(changes.Approval, id)
	w.mustPermit(w.do(p, "slack_wipe", `{}`, ""))
	want(changes.Approval, id) // spent
	id = w.mustAsk(w.do(p, "slack_publish", `{}`, ""))
	q := w.mustModify("bob", id, `{"x":1}`)
	want(changes.Approval, id)
	want(changes.Approval, q.ID)
	d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	want(changes.Approval, d.ApprovalID)
	if _, err := w.g.SetPhase(t.Context(), p.ID, session.Planning, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	want(changes.Session, p.ID)
	w.offerAll(w.g, definition("slack", "plain", "Changed."))
	want(changes.Tool, "")
	w.quarantine("worker")
	want(changes.Agent, "worker")
	want(changes.Approval, q.ID) // withdrawn
	if err := w.g.Standing().Restore(t.Context(), "worker", "it was nothing", "person:alice"); err != nil {
		t.Fatal(err)
	}
	want(changes.Agent, "worker")
	w.g.Standing().Disable("worker", "person:alice", "stop")
	want(changes.Kill, "worker")
	w.g.Standing().Enable("worker", "person:alice", "")
	want(changes.Kill, "worker")
	if _, err := w.g.CloseSession(t.Context(), p.ID, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	want(changes.Session, p.ID)

	var slow []<-chan changes.Change
	var ends []func()
	for range 4 {
		ch, end := w.g.Watch()
		slow, ends = append(slow, ch), append(ends, end)
	}
	for i := range 1000 { // far more than anybody's buffer holds
		w.g.Standing().Disable(fmt.Sprint("a", i), "person:alice", "stop")
	}
	for i, ch := range slow {
		ends[i]()
		missed, n := false, 0
		for more := true; more; {
			select {
			case c := <-ch:
				n++
				missed = c == changes.Change{}
			default:
				more = false
			}
		}
		if !missed || n == 0 || n > 100 {
			t.Errorf("watcher %d had %d changes waiting, and the last says that some were missed: %v", i, n, missed)
		}
	}
	w.g.Standing().Disable("b", "person:alice", "stop")
	if len(slow[0]) != 0 {
		t.Error("who has stopped watching is told")
	}
	end()
	end()
	var wg sync.WaitGroup
	for i := range 16 { // watching, changing and stopping at once
		wg.Go(func() {
			ch, end := w.g.Watch()
			w.g.Standing().Disable(fmt.Sprint("c", i), "person:alice", "stop")
			<-ch
			end()
		})
	}
	wg.Wait()
	w.end()
	goleak.VerifyNone(t, ignore)
}

// A call that was held, in whatever way it ended, leaves nothing behind.
func TestHeldCallsLeakNothing(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	var all []*held
	for i := range 10 {
		all = append(all, w.hold(p, "slack_publish", fmt.Sprintf(`{"n":%d}`, i), time.Hour), w.hold(p, "slack_mail", fmt.Sprintf(`{"n":%d}`, i), 0))
	}
	for i, h := range all {
		if h.waits(); i%3 == 0 {
			h.hangUp()
		}
	}
	w.g.Desk().Drain()
	for _, h := range all {
		if a := h.ends(); a.Verdict.Decision == fault.Permit {
			t.Errorf("%+v", a.Verdict)
		}
	}
	w.end()
	goleak.VerifyNone(t, ignore)
}
