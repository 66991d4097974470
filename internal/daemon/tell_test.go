package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/console"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/notify"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

// fakeDesk is a desk and its gateway with these approvals, oldest first.
type fakeDesk struct {
	changes  chan changes.Change
	all      []approval.Approval
	sessions []session.Session // oldest first
	drills   []string
	switches standing.Switches
	passes   int    // looks at everything that began
	during   func() // runs in each of them
	broken   error  // of every read
	limits   []int  // that were asked for
	marks    []quota.Mark
	clock    time.Time // the gateway's
}

func (d *fakeDesk) Watch(...string) (<-chan changes.Change, func()) { return d.changes, func() {} }

func (d *fakeDesk) SessionByID(_ context.Context, id string) (session.Session, error) {
	i := slices.IndexFunc(d.sessions, func(s session.Session) bool { return s.ID == id })
	switch {
	case d.broken != nil:
		return session.Session{}, d.broken
	case i < 0:
		return session.Session{}, fault.New(fault.NotFound, "")
	}
	return d.sessions[i], nil
}

func (d *fakeDesk) QuotaMarks(context.Context) ([]quota.Mark, error) { return d.marks, nil }

func (d *fakeDesk) WaitingPlans(_ context.Context, limit int) (newest []session.Session, all int64, err error) {
	for _, s := range slices.Backward(d.sessions) {
		if s.PlanWaits() {
			newest = append(newest, s)
		}
	}
	return newest[:min(limit, len(newest))], int64(len(newest)), d.broken
}

func (d *fakeDesk) KillStatus() standing.Switches { return d.switches }

func (d *fakeDesk) Drills(context.Context) (n desk.DrillCounts, err error) {
	d.passes++
	if d.during != nil {
		d.during()
	}
	for _, a := range d.all {
		if slices.Contains(d.drills, a.ID) && len(a.Approvers()) > 0 {
			n.Approved++
		}
	}
	return n, d.broken
}

func (d *fakeDesk) Questions(_ context.Context, state approval.State, _, after string, limit int) (page []desk.Question, err error) {
	d.limits = append(d.limits, limit)
	for _, a := range slices.Backward(d.all) {
		switch {
		case after != "":
			if a.ID == after {
				after = ""
			}
		case len(page) < limit && a.StateAt(d.clock) == state:
			a.State = state
			page = append(page, desk.Question{Approval: a})
		}
	}
	return page, d.broken
}

func (d *fakeDesk) Question(_ context.Context, id string) (desk.Question, error) {
	i := slices.IndexFunc(d.all, func(a approval.Approval) bool { return a.ID == id })
	if i < 0 || d.broken != nil {
		return desk.Question{}, errors.Join(errors.New("unreadable"), d.broken)
	}
	a := d.all[i]
	a.State = a.StateAt(d.clock)
	return desk.Question{Approval: a, Drill: slices.Contains(d.drills, id)}, nil
}

// outbox has each key once, as the store has.
type outbox struct {
	notify.Store
	keys   []string
	bodies map[string]string
	tries  int
	counts map[string]notify.Counts
	broken error

	channel string            // of the last notice
	follows map[string]string // by key: the one that it follows
}

func (o *outbox) AddNotices(_ context.Context, notices []notify.Notice) error {
	for _, n := range notices {
		o.channel = n.Channel
		o.tries++
		if !slices.Contains(o.keys, n.Key) && (n.Follows == "" || slices.Contains(o.keys, n.Follows)) {
			o.keys = append(o.keys, n.Key)
			o.bodies[n.Key], o.follows[n.Key] = string(n.Body), n.Follows
		}
	}
	return nil
}

func (o *outbox) NoticeCounts(context.Context) (map[string]notify.Counts, error) {
	return o.counts, o.broken
}

// title is that of the message with the key; "" if nobody was told.
func (o *outbox) title(key string) string {
	var m struct{ Title string }
	_ = json.Unmarshal([]byte(o.bodies[key]), &m)
	return m.Title
}

func newOutbox() *outbox { return &outbox{bodies: map[string]string{}, follows: map[string]string{}} }

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// newTeller is a teller that has just been started, at the desk's time.
func newTeller(t testing.TB, d *fakeDesk, o *outbox) *teller {
	t.Helper()
	ch, err := notify.ParseChannel(notify.Config{Kind: "webhook", URL: "https://hooks.example/x", Secret: "0123456789abcdef0123456789abcdef", On: notify.Events()})
	if err != nil {
		t.Fatal(err)
	}
	n, err := notify.New([]*notify.Channel{ch}, notify.Options{Store: o, Console: "https://sallyport.example", Queue: "/approvals"})
	if err != nil {
		t.Fatal(err)
	}
	if d.changes == nil {
		d.changes = make(chan changes.Change, 64)
	}
	return &teller{changes: func() []console.Change { return nil }, desk: d, gateway: d, switches: d.KillStatus, n: n, warn: func(string, ...any) {}, now: func() time.Time { return d.clock }, approved: map[string][]time.Time{}, counted: map[string]bool{}}
}

// TestDeliveries: what became of messages is told of each channel, those with no trouble too.
func TestDeliveries(t *testing.T) {
	o := newOutbox()
	te := newTeller(t, &fakeDesk{clock: noon}, o)
	if err := te.n.Send(t.Context(), notify.Message{Key: "x", Event: notify.Alert, At: noon}); err != nil {
		t.Fatal(err)
	}
	o.counts = map[string]notify.Counts{o.channel: {Waiting: 2, Failed: 1, LastError: "it says 500", LastFailure: noon, LastSuccess: noon.Add(-time.Hour)}}
	want := console.Deliveries{Kind: "webhook", Target: "hooks.example", Owed: 2, GivenUp: 1, LastError: "it says 500", LastFailure: noon, LastSuccess: noon.Add(-time.Hour)}
	if got, err := te.deliveries(t.Context()); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%+v %v", got, err)
	}
	o.broken = errors.New("the disk is gone")
	if _, err := te.deliveries(t.Context()); err == nil {
		t.Error("what is not known is told")
	}
}

func asked(id, risk string, at time.Time, votes ...approval.Vote) approval.Approval {
	needed := map[string]int{"HIGH": 1, "CRITICAL": 2, "LOW": 1}[risk]
	return approval.Approval{ID: id, State: approval.Pending, Risk: risk, Operation: "bank.pay", Agent: "worker", Requester: "erin", Amount: "5 USD", Needed: needed,
		Reasons: []approval.Reason{{Text: "It moves money."}}, CreatedAt: at, ExpiresAt: at.Add(30 * time.Minute), Votes: votes}
}

func in(state approval.State, a approval.Approval) approval.Approval {
	a.State = state
	return a
}

func yes(person string, at time.Time) approval.Vote {
	return approval.Vote{Person: person, Decision: approval.Approve, At: at}
}

// What is told of an approval, and to the point.
func TestTellApprovals(t *testing.T) {
	medium := asked("m", "MEDIUM", noon)
	medium.SilenceAt = noon.Add(10 * time.Second)
	later := approval.Vote{Person: "carol", Decision: approval.Deferral, At: noon}
	for name, c := range map[string]struct {
		a                approval.Approval
		key, title, body string // "" nothing is told
	}{
		"HIGH":           {asked("a", "HIGH", noon), "approval:a:asked", "worker asks: bank.pay", "It moves money."},
		"CRITICAL":       {asked("a", "CRITICAL", noon), "approval:a:asked", "worker asks: bank.pay", "2 people"},
		"MEDIUM":         {medium, "approval:m:asked", "worker asks: bank.pay", "runs at 12:00:10 UTC unless it is stopped"},
		"deferred":       {in(approval.Deferred, asked("a", "HIGH", noon, later)), "", "", ""},
		"rejected":       {in(approval.Rejected, asked("a", "HIGH", noon)), "", "", ""},
		"spent HIGH":     {in(approval.Spent, asked("a", "HIGH", noon, later, yes("bob", noon))), "approval:a:spent", "bank.pay was carried out", `"bob"`},
		"spent CRITICAL": {in(approval.Spent, asked("a", "CRITICAL", noon, yes("alice", noon), later, yes("bob", noon))), "approval:a:spent", "bank.pay was carried out", `"alice, bob"`},
		"spent MEDIUM":   {in(approval.Spent, medium), "", "", ""},
		"spent LOW":      {in(approval.Spent, asked("a", "LOW", noon)), "", "", ""},
	} {
		d, o := &fakeDesk{clock: noon}, newOutbox()
		newTeller(t, d, o).approval(t.Context(), desk.Question{Approval: c.a})
		if c.key == "" && len(o.keys) == 0 {
			continue
		}
		if len(o.keys) != 1 || o.keys[0] != c.key || o.title(c.key) != c.title || !strings.Contains(o.bodies[c.key], c.body) || strings.Contains(o.bodies[c.key], "carol") {
			t.Errorf("%s: %q", name, o.bodies)
		}
	}
}

// A message says why the agent asks, or that it did not say, and what the tool does in whose words: bounded, and without an address that a reader makes a
// link of.
func TestTellWhy(t *testing.T) {
	said := func(justification string) approval.Approval {
		a := asked("a", "HIGH", noon)
		a.Justification = json.RawMessage(justification)
		return a
	}
	silent := asked("a", "HIGH", noon)
	silent.Reasons = append(silent.Reasons, approval.NoReason)
	for name, c := range map[string]struct {
		q    desk.Question
		want []string
	}{
		"what it wants it for": {desk.Question{Approval: said(`{"user_request":"pay","missing_knowledge":"none","expected_use":"settle invoice 7 at https://evil.example"}`)}, []string{`{"name":"why","value":"settle invoice 7 at https[:]//evil.example"}`}},
		"its step":             {desk.Question{Approval: said(`{"plan_step":"pay what is due"}`)}, []string{`{"name":"why","value":"pay what is due"}`}},
		"nothing":              {desk.Question{Approval: silent}, []string{`{"name":"why","value":"The agent did not say why."}`, `"text":"It moves money."`}},
		"what the server says": {desk.Question{Approval: silent, Tool: &desk.Described{Text: "Pays " + strings.Repeat("a lot ", 200), By: "server"}}, []string{`{"name":"what the tool's server says of it","value":"Pays a lot`, " bytes)"}},
	} {
		d, o := &fakeDesk{clock: noon}, newOutbox()
		newTeller(t, d, o).approval(t.Context(), c.q)
		for _, want := range c.want {
			if body := o.bodies["approval:a:asked"]; !strings.Contains(body, want) || len(body) > 2000 {
				t.Errorf("%s: %q is not in %s", name, want, body)
			}
		}
	}
}

// A channel that may not carry the labels of a session's data gets nothing of it.
func TestTellWithoutTheData(t *testing.T) {
	a := asked("a", "HIGH", noon)
	a.Labels = []string{"pii", "untrusted"}
	d, o := &fakeDesk{clock: noon}, newOutbox()
	newTeller(t, d, o).approval(t.Context(), desk.Question{Approval: a, Line: "Transfer 480 EUR → DE02…20 51", Tool: &desk.Described{Text: "Pays.", By: "server"}})
	body := o.bodies["approval:a:asked"]
	for _, secret := range []string{"480", "DE02", "It moves money", "Pays.", "erin"} {
		if strings.Contains(body, secret) {
			t.Errorf("%q is in %s", secret, body)
		}
	}
	for _, want := range []string{"worker asks for bank.pay", `"risk":"HIGH"`, "/approvals/a", `"expires"`} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in %s", want, body)
		}
	}
	a.Labels = []string{"untrusted"}
	newTeller(t, d, o).approval(t.Context(), desk.Question{Approval: func() approval.Approval { a.ID = "b"; return a }(), Line: "Transfer 480 EUR → DE02…20 51"})
	if body := o.bodies["approval:b:asked"]; !strings.Contains(body, "Transfer 480 EUR") {
		t.Errorf("a session without private data is kept from channels: %s", body)
	}
}

// People are told of a plan that waits, once, as it comes and after a start; of none that is answered or over.
func TestTellPlans(t *testing.T) {
	waits := func(id string, state session.PlanState) session.Session {
		return session.Session{ID: id, Agent: "worker", Requester: "erin", State: session.Open, Plan: &session.Plan{ID: "plan_" + id, Digest: "digest_" + id, State: state, Submitted: noon, Steps: make([]session.Step, 3)}}
	}
	closed := waits("c", session.PlanPending)
	closed.State = session.Closed
	d, o := &fakeDesk{clock: noon, sessions: []session.Session{waits("a", session.PlanPending), waits("b", session.PlanApproved), closed, {ID: "d", State: session.Open}}}, newOutbox()
	te := newTeller(t, d, o)
	for _, id := range []string{"a", "b", "c", "d", "gone"} {
		if !te.change(t.Context(), changes.Change{Topic: changes.Plan, ID: id}) {
			t.Errorf("%s: looks at everything", id)
		}
	}
	if len(o.keys) != 1 || o.title("plan:digest_a") != "A plan of worker waits for an operator" || !strings.Contains(o.bodies["plan:digest_a"], `/sessions/a"`) || !strings.Contains(o.bodies["plan:digest_a"], "erin") {
		t.Fatalf("%q", o.bodies)
	}
	d.sessions = append(d.sessions, waits("e", session.PlanPending))
	te.everything(t.Context())
	if len(o.keys) != 2 || o.title("plan:digest_e") == "" {
		t.Errorf("after a start: %q", o.keys)
	}
	d.broken = errors.New("the disk is gone")
	if te.change(t.Context(), changes.Change{Topic: changes.Plan, ID: "a"}) {
		t.Error("what could not be read is not looked for again")
	}
}

// A start tells what nobody was told, on every page, and nothing twice.
func TestTellAfterAStart(t *testing.T) {
	d, o := &fakeDesk{clock: noon}, newOutbox()
	for i := range 2*tellPage + 5 {
		d.all = append(d.all, asked(fmt.Sprint("p", i), "HIGH", noon))
	}
	d.all = append(d.all, in(approval.Spent, asked("old", "HIGH", noon.Add(-25*time.Hour))), in(approval.Spent, asked("recent", "HIGH", noon.Add(-23*time.Hour))),
		in(approval.Spent, asked("quiet", "MEDIUM", noon)), in(approval.Approved, asked("yes", "HIGH", noon, yes("bob", noon))))
	slices.SortStableFunc(d.all, func(a, b approval.Approval) int { return a.CreatedAt.Compare(b.CreatedAt) })
	first := newTeller(t, d, o)
	first.everything(t.Context())
	if len(o.keys) != 2*tellPage+6 || !slices.Contains(o.keys, "approval:recent:spent") || slices.Contains(o.keys, "approval:old:spent") {
		t.Fatalf("%d told", len(o.keys))
	}
	for _, limit := range d.limits {
		if limit > 100 {
			t.Errorf("%d at once", limit)
		}
	}
	newTeller(t, d, o).everything(t.Context())
	if len(o.keys) != 2*tellPage+6 {
		t.Errorf("%d told after another start", len(o.keys))
	}
	// Looking again costs no write for what was over at the last look.
	o.tries = 0
	first.everything(t.Context())
	if o.tries != 2*tellPage+7 { // those that wait, and two whose time is not over yet
		t.Errorf("%d written again", o.tries)
	}
	// What failed to be read is looked at again as a whole.
	again := newTeller(t, d, o)
	d.broken = errors.New("no disk")
	again.everything(t.Context())
	if d.broken = nil; !again.caughtUp.IsZero() {
		t.Error("a look that failed counts")
	}
}

// However many changes were missed while everything was looked at, they take one more look.
func TestTellMissedChanges(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d, o := &fakeDesk{clock: noon, changes: make(chan changes.Change, 64)}, newOutbox()
	d.during = func() {
		switch d.passes {
		case 1: // of the start
			for len(d.changes) < cap(d.changes) {
				d.changes <- changes.Change{}
			}
		case 2:
			if n := len(d.changes); n > 0 {
				t.Errorf("%d more looks would follow", n)
			}
			d.all = append(d.all, asked("a", "HIGH", noon))
			cancel()
		}
	}
	newTeller(t, d, o).run(ctx)
	if d.passes != 2 || !slices.Contains(o.keys, "approval:a:asked") {
		t.Errorf("%d looks told %v", d.passes, o.keys)
	}
}

// What can't be read by itself is looked for with everything.
func TestTellChange(t *testing.T) {
	d, o := &fakeDesk{clock: noon, all: []approval.Approval{asked("a", "HIGH", noon)}}, newOutbox()
	tell := newTeller(t, d, o)
	for c, want := range map[changes.Change]bool{
		{Topic: changes.Approval, ID: "a"}: true, {Topic: changes.Approval, ID: "b"}: false, {Topic: changes.Kill}: true, {}: false,
	} {
		if got := tell.change(t.Context(), c); got != want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if len(o.keys) != 1 {
		t.Errorf("told %v", o.keys)
	}
}

// Who approves more than anybody can read is told of, once, however the votes come and whatever was approved before.
func TestTellHaste(t *testing.T) {
	d, o := &fakeDesk{clock: noon}, newOutbox()
	tell := newTeller(t, d, o)
	n := 0
	approve := func(person string, at time.Time) {
		n++
		a := in(approval.Approved, asked(fmt.Sprint("a", n), "HIGH", at, yes(person, at)))
		tell.approval(t.Context(), desk.Question{Approval: a})
		tell.approval(t.Context(), desk.Question{Approval: in(approval.Spent, a)}) // the same vote again
	}
	alarms := func() (all []string) {
		for _, k := range o.keys {
			if strings.HasPrefix(k, "pace:") {
				all = append(all, k)
			}
		}
		return all
	}
	for range 40 { // slow enough
		approve("bob", d.clock)
		d.clock = d.clock.Add(16 * time.Second)
	}
	if got := alarms(); got != nil {
		t.Fatalf("%v for who reads", got)
	}
	d.clock = d.clock.Add(time.Hour)
	for range hastyCount {
		approve("bob", d.clock)
	}
	for range 3000 { // others, so many that nobody's count may be forgotten
		approve(fmt.Sprint("robot", n%500), d.clock)
	}
	if got := alarms(); got != nil {
		t.Fatalf("%v at the limit", got)
	}
	approve("bob", d.clock)
	approve("bob", d.clock)
	if got := alarms(); len(got) != 1 || !strings.HasPrefix(got[0], "pace:bob:") || !strings.Contains(o.bodies[got[0]], "21 requests within 5m") {
		t.Fatalf("%v", got)
	}
	d.clock = d.clock.Add(4 * time.Minute)
	if tell.approval(t.Context(), desk.Question{Approval: in(approval.Approved, asked("a1", "HIGH", noon, yes("bob", noon)))}); len(alarms()) != 1 {
		t.Error("an old vote counts")
	}
	d.clock = d.clock.Add(3 * hastySpan)
	approve("bob", d.clock)
	d.clock = d.clock.Add(2 * hastySpan)
	approve("bob", d.clock)
	if len(tell.counted)+len(tell.before) > 2 {
		t.Errorf("%d and %d votes are remembered", len(tell.counted), len(tell.before))
	}
}

// A vote that is seen again counts once for as long as it counts at all.
func TestTellHasteCountsOnce(t *testing.T) {
	d, o := &fakeDesk{clock: noon}, newOutbox()
	tell := newTeller(t, d, o)
	tell.approval(t.Context(), desk.Question{Approval: asked("first", "HIGH", noon)}) // from here on votes are forgotten every hastySpan
	d.clock = noon.Add(hastySpan - time.Minute)
	for i := range hastyCount {
		d.all = append(d.all, in(approval.Approved, asked(fmt.Sprint("a", i), "HIGH", d.clock, yes("bob", d.clock))))
	}
	for range 2 * hastySpan / time.Minute {
		for _, a := range d.all {
			tell.approval(t.Context(), desk.Question{Approval: a})
		}
		d.clock = d.clock.Add(time.Minute)
	}
	if len(o.keys) != 1 {
		t.Errorf("%v for %d requests", o.keys, hastyCount)
	}
}

// A start finds the same haste, newest first, and tells of it once.
func TestTellHasteAfterAStart(t *testing.T) {
	d, o := &fakeDesk{clock: noon.Add(2 * time.Minute)}, newOutbox() // the limit of two spans lies between the votes
	for i := range hastyCount + 5 {
		at := noon.Add(-2*time.Minute + time.Duration(i)*9*time.Second)
		d.all = append(d.all, in(approval.Spent, asked(fmt.Sprint("a", i), "LOW", at, yes("bob", at))))
	}
	before := newTeller(t, d, o)
	for _, a := range d.all {
		before.approval(t.Context(), desk.Question{Approval: a})
	}
	told := slices.Clone(o.keys)
	newTeller(t, d, o).everything(t.Context())
	if len(told) == 0 || !slices.Equal(o.keys, told) {
		t.Errorf("%v, then %v", told, o.keys)
	}
}

// A drill that was approved is an alert, from the change, after changes were missed, and after its time; one that was not is none.
func TestTellDrills(t *testing.T) {
	drill := func(risk string, state approval.State, votes ...approval.Vote) approval.Approval {
		return in(state, asked("d", risk, noon, votes...))
	}
	defers := approval.Vote{Person: "carol", Decision: approval.Deferral, At: noon}
	for name, c := range map[string]struct {
		a     approval.Approval
		drill bool
		after time.Duration
		by    string // "" no alert
	}{
		"approved":                  {drill("HIGH", approval.Approved, defers, yes("bob", noon)), true, 0, "bob"},
		"approved, expired":         {drill("HIGH", approval.Approved, yes("bob", noon)), true, time.Hour, "bob"},
		"approved by two":           {drill("CRITICAL", approval.Approved, yes("alice", noon), yes("bob", noon)), true, 0, "alice, bob"},
		"by one of two":             {drill("CRITICAL", approval.Pending, yes("alice", noon)), true, 0, ""},
		"by one of two, expired":    {drill("CRITICAL", approval.Pending, yes("alice", noon)), true, time.Hour, ""},
		"rejected":                  {drill("HIGH", approval.Rejected, defers), true, 0, ""},
		"waits":                     {drill("HIGH", approval.Pending), true, 0, ""},
		"an agent's own, approved":  {drill("HIGH", approval.Approved, yes("bob", noon)), false, 0, ""},
		"an agent's own, unclaimed": {drill("HIGH", approval.Approved, yes("bob", noon)), false, time.Hour, ""},
	} {
		for way, tell := range map[string]func(*teller){
			"change": func(x *teller) { x.change(t.Context(), changes.Change{Topic: changes.Approval, ID: "d"}) },
			"start":  func(x *teller) { x.everything(t.Context()) },
		} {
			d, o := &fakeDesk{clock: noon.Add(c.after), all: []approval.Approval{c.a}}, newOutbox()
			if c.drill {
				d.drills = []string{"d"}
			}
			tell(newTeller(t, d, o))
			body := o.bodies["drill:d"]
			if (body != "") != (c.by != "") || !strings.Contains(body, c.by) || strings.Contains(body, "carol") {
				t.Errorf("%s, by a %s: %q", name, way, body)
			}
		}
	}
}

// Every turn of a kill switch is told once.
func TestTellKillSwitch(t *testing.T) {
	d, o := &fakeDesk{clock: noon}, newOutbox()
	tell := newTeller(t, d, o)
	change := func() { tell.change(t.Context(), changes.Change{Topic: changes.Kill}) }
	if change(); len(o.keys) != 0 {
		t.Errorf("a switch that nobody touched: %v", o.keys)
	}
	for i, c := range []struct {
		agent  string
		active bool
		title  string
	}{
		{"", true, "All agents were stopped"}, {"", false, "All agents were let work again"},
		{"worker", true, "The agent worker was stopped"}, {"worker", false, "The agent worker was let work again"},
	} {
		sw := standing.Switch{Active: c.active, Since: noon.Add(time.Duration(i) * time.Second), By: "person:alice", Reason: "a drill of ours"}
		if c.agent == "" {
			d.switches.Global = sw
		} else {
			d.switches.Agents = map[string]standing.Switch{c.agent: sw}
		}
		change()
		tell.everything(t.Context())
		newTeller(t, d, o).everything(t.Context())
		key := fmt.Sprintf("kill:%s:%d", c.agent, sw.Since.UnixNano())
		if len(o.keys) != i+1 || o.title(key) != c.title || !strings.Contains(o.bodies[key], `"value":"alice"`) || !strings.Contains(o.bodies[key], "a drill of ours") {
			t.Errorf("%s: %v", c.title, o.bodies)
		}
	}
}

type recordingOutbox struct {
	notify.Store
	mu   sync.Mutex
	said []notify.Notice
}

func (o *recordingOutbox) AddNotices(_ context.Context, n []notify.Notice) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, n...)
	return nil
}

// Who put a question off has not approved it.
func TestAlertNamesOnlyWhoApproved(t *testing.T) {
	ch, err := notify.ParseChannel(notify.Config{Kind: "webhook", URL: "https://hooks.example/x", Secret: "0123456789abcdef0123456789abcdef", On: []notify.Event{"approval", "alert"}})
	if err != nil {
		t.Fatal(err)
	}
	box := &recordingOutbox{}
	n, err := notify.New([]*notify.Channel{ch}, notify.Options{Store: box, Console: "https://sallyport.example", Queue: "/approvals"})
	if err != nil {
		t.Fatal(err)
	}
	tell := &teller{n: n, warn: func(m string, a ...any) { t.Log(m, a) }, approved: map[string][]time.Time{}, counted: map[string]bool{}}
	now := time.Now()
	tell.approval(t.Context(), desk.Question{Approval: approval.Approval{
		ID: "appr_x", State: approval.Spent, Risk: "CRITICAL", Operation: "bank.transfer", Agent: "a", SpentBy: "call_x", CreatedAt: now,
		Votes: []approval.Vote{{Person: "carol", Decision: approval.Deferral, At: now}, {Person: "alice", Decision: approval.Approve, At: now}, {Person: "bob", Decision: approval.Approve, At: now}},
	}})
	if len(box.said) != 1 {
		t.Fatalf("%d messages", len(box.said))
	}
	if body := string(box.said[0].Body); strings.Contains(body, "carol") {
		t.Errorf("carol put it off, and is said to have approved it: %s", body)
	}
}

// A start whose log does not go on from its anchor is an alert.
func TestTellUnanchored(t *testing.T) {
	o := newOutbox()
	tell := newTeller(t, &fakeDesk{}, o)
	tell.unanchored(t.Context(), "The log lacks 20 entries.")
	found := false
	for key, body := range o.bodies {
		found = found || strings.Contains(key, "anchor:") && strings.Contains(body, "The log lacks 20 entries.")
	}
	if !found {
		t.Errorf("%v", o.bodies)
	}
}

// A start and a reload tell of the quotas that are nearly used up: nobody may have been told, and a reload may have lowered one.
func TestTellQuotas(t *testing.T) {
	m, _ := quota.Standing("bot", quota.Limit{Resource: quota.Cost, Window: quota.Hour, Most: 2_500_000}, quota.Use{Start: noon, Used: 2_000_000})
	for what, tell := range map[string]func(*teller){
		"a start":  func(te *teller) { te.everything(t.Context()) },
		"a reload": func(te *teller) { te.change(t.Context(), changes.Change{Topic: changes.Agent}) },
	} {
		o := newOutbox()
		tell(newTeller(t, &fakeDesk{clock: noon, marks: []quota.Mark{m}}, o))
		if got, want := o.title("quota:bot cost hour:1793534400:80"), "bot: 80 % of 2.5 cost an hour are used"; got != want {
			t.Errorf("%s: %q of %v, want %q", what, got, o.bodies, want)
		}
	}
}

// People are told of hits in what an agent read once an hour, and not of those in a trial of the controls.
func TestTellHits(t *testing.T) {
	o, d := newOutbox(), &fakeDesk{clock: noon}
	te := newTeller(t, d, o)
	for _, c := range []struct {
		after time.Duration
		agent string
		want  int
	}{{0, "bot", 1}, {time.Minute, "bot", 1}, {0, "other", 2}, {0, agent.Trial("bot"), 2}, {time.Hour, "bot", 3}} {
		d.clock = d.clock.Add(c.after)
		te.change(t.Context(), changes.Change{Topic: changes.Hit, ID: c.agent})
		if len(o.bodies) != c.want {
			t.Errorf("%+v: %d messages: %v", c, len(o.bodies), o.bodies)
		}
	}
	if got, want := o.title("hit:bot:1793534400"), "Something that bot read looks like orders to an agent"; got != want {
		t.Errorf("%q of %v", got, o.bodies)
	}
}

// People are told of an incident and of a call's time limit, each once. Quotas, runs and the log have messages of their own, and what is a day old is no news.
func TestTellAlerts(t *testing.T) {
	for name, c := range map[string]struct {
		a     monitor.Alert
		title string // "": nobody is told
	}{
		"an incident":     {monitor.Alert{Kind: monitor.Injections, Detected: noon, Involved: map[string]int64{"worker": 6}}, "6 injection attempts"},
		"no credential":   {monitor.Alert{Kind: monitor.Violations, Detected: noon, Involved: map[string]int64{"unknown:agents": 11}}, "11 access violations"},
		"a call's time":   {monitor.Alert{Kind: monitor.Timeout, Detected: noon, Involved: map[string]int64{"worker": 1}}, "worker reached a time limit"},
		"a run's time":    {monitor.Alert{Kind: monitor.Timeout, Run: true, Detected: noon, Involved: map[string]int64{"worker": 1}}, ""},
		"a quota":         {monitor.Alert{Kind: monitor.Quota, Detected: noon, Involved: map[string]int64{"worker": 1}}, ""},
		"the log":         {monitor.Alert{Kind: monitor.LogDamage, Detected: noon, Involved: map[string]int64{"gateway": 1}}, ""},
		"of last week":    {monitor.Alert{Kind: monitor.Injections, Detected: noon.Add(-25 * time.Hour), Involved: map[string]int64{"worker": 6}}, ""},
		"very many of it": {monitor.Alert{Kind: monitor.Violations, Detected: noon, Involved: map[string]int64{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7}}, "28 access violations"},
	} {
		d, o := &fakeDesk{clock: noon}, newOutbox()
		c.a.ID = "alert_x"
		for range 2 {
			newTeller(t, d, o).alert(t.Context(), c.a)
		}
		body := o.bodies["alert:alert_x"]
		if o.title("alert:alert_x") != c.title || len(o.keys) > 1 || strings.Count(body, `"name":"who"`) > maxInMessage || c.title != "" && !strings.Contains(body, "/security") {
			t.Errorf("%s: %v", name, o.bodies)
		}
		if name == "no credential" && !strings.Contains(body, "requests without a valid credential (11)") {
			t.Errorf("%s", body)
		}
	}
}
