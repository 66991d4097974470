package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/console"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/notify"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/review"
	"sallyport.example/internal/run"
	"sallyport.example/internal/search"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

const (
	// tellPage bounds the approvals that are read at once after a start, or after changes were missed.
	tellPage = 100
	// tellBack bounds the age of HIGH and CRITICAL calls that are still reported.
	tellBack = 24 * time.Hour
	// maxInMessage bounds who is named in the message about an alert.
	maxInMessage = 5
	// A person who approves more than hastyCount requests within hastySpan is not reading them.
	hastyCount = 20
	hastySpan  = 5 * time.Minute
)

// questions is the part of the desk that the teller reads.
type questions interface {
	Questions(ctx context.Context, state approval.State, session, after string, limit int) ([]desk.Question, error)
	Question(ctx context.Context, id string) (desk.Question, error)
	Drills(ctx context.Context) (desk.DrillCounts, error)
}

// sessions is the part of the gateway that the teller reads.
type sessions interface {
	Watch(topics ...string) (waiting <-chan changes.Change, end func())
	SessionByID(ctx context.Context, id string) (session.Session, error)
	WaitingPlans(ctx context.Context, limit int) (newest []session.Session, all int64, err error)
	QuotaMarks(ctx context.Context) ([]quota.Mark, error)
}

// teller sends messages to people, from changes of the gateway and from the store. Each message has a key, so that after a restart it is not sent
// again, and one that was missed is sent then.
type teller struct {
	desk     questions
	gateway  sessions
	switches func() standing.Switches
	n        *notify.Notifier
	warn     func(msg string, args ...any)
	now      func() time.Time // nil: time.Now
	stop     context.CancelFunc
	running  sync.WaitGroup // it and what it delivers with

	counters *monitor.Counters // that count while the teller runs
	index    *search.Index     // that is filled while the teller runs; nil: there is none

	trouble trouble

	marks  chan quota.Mark    // of quotas that were passed; nil: none
	alerts chan monitor.Alert // that were raised; nil: none

	changes func() []console.Change // that starts and reloads found in configuration and declarations, the newest first

	// The goroutine of run owns the rest.
	caughtUp time.Time              // when the last complete read of everything began
	approved map[string][]time.Time // by person: when they approved, within hastySpan
	counted  map[string]bool        // votes that are in it, as approval and person
	before   map[string]bool        // the votes that were in counted until rotated
	rotated  time.Time
}

// start begins to send messages and to deliver them.
func (t *teller) start() {
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	t.running.Go(func() { t.n.Run(ctx) })
	t.running.Go(func() { t.run(ctx) })
	if t.counters != nil {
		t.running.Go(func() { t.counters.Run(ctx) })
	}
	if t.index != nil {
		t.running.Go(func() { t.index.Run(ctx) })
	}
}

// close ends what start began and waits for it.
func (t *teller) close() {
	t.stop()
	t.running.Wait()
}

// run handles changes until ctx ends.
func (t *teller) run(ctx context.Context) {
	waiting, end := t.gateway.Watch(changes.Approval, changes.Plan, changes.Kill, changes.Agent, changes.Tool, changes.Hit)
	defer end()
	looks := time.NewTicker(troubleEvery)
	defer looks.Stop()
	for all := true; ; {
		if all { // everything reads all that waits, so any number of missed changes takes one more read
			for len(waiting) > 0 {
				<-waiting
			}
			t.everything(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
			all = false
			t.look(ctx)
		case c := <-waiting:
			all = !t.change(ctx, c)
		case m := <-t.marks:
			t.quota(ctx, m)
		case a := <-t.alerts:
			t.alert(ctx, a)
		}
	}
}

// change sends the messages for one change. false: everything has to be read.
func (t *teller) change(ctx context.Context, c changes.Change) bool {
	switch c.Topic {
	case changes.Approval:
		q, err := t.desk.Question(ctx, c.ID)
		if err != nil {
			return fault.Is(err, fault.NotFound)
		}
		t.approval(ctx, q)
		t.ended(ctx, q)
		t.missed(ctx, q)
	case changes.Plan:
		s, err := t.gateway.SessionByID(ctx, c.ID)
		if err != nil {
			return fault.Is(err, fault.NotFound)
		}
		t.plan(ctx, s)
	case changes.Kill:
		t.kill(ctx)
	case changes.Agent:
		t.quarantined(ctx)
		if c.ID == "" { // of a reload, which may have changed any
			t.configuration(ctx)
			t.quotas(ctx)
		}
	case changes.Tool:
		t.changedTools(ctx)
	case changes.Hit:
		t.hit(ctx, c.ID)
	case "":
		return false
	}
	return true
}

// everything sends all messages that were not sent: after a start, and when changes were missed.
func (t *teller) everything(ctx context.Context) {
	began := t.clock()
	t.kill(ctx)
	t.configuration(ctx)
	t.look(ctx)
	t.quotas(ctx)
	waiting, _, err := t.gateway.WaitingPlans(ctx, tellPage)
	for _, s := range waiting {
		t.plan(ctx, s)
	}
	var drills desk.DrillCounts
	if err == nil {
		drills, err = t.desk.Drills(ctx)
	}
	states := []approval.State{approval.Pending, approval.Deferred, approval.Approved, approval.Spent}
	if drills.Approved > 0 { // approved they stay until their time is up
		states = append(states, approval.Expired)
	}
	for _, state := range states {
		if err == nil {
			err = t.each(ctx, state, func(q desk.Question) error {
				t.approval(ctx, q)
				t.ended(ctx, q)
				if drills.Approved == 0 || len(q.Approvers()) == 0 || state != approval.Approved && state != approval.Expired {
					return nil
				}
				q, err := t.desk.Question(ctx, q.ID) // lists don't say what is a drill
				if err == nil {
					t.missed(ctx, q)
				}
				return err
			})
		}
	}
	switch {
	case err == nil:
		t.caughtUp = began
	case ctx.Err() == nil:
		t.warn("what waits could not be read to tell people", "error", err)
	}
}

// each hands over the approvals in a state, a page at a time, the newest first; of final ones those of the last tellBack that were not
// final already when everything was read last.
func (t *teller) each(ctx context.Context, state approval.State, tell func(desk.Question) error) error {
	for after := ""; ; {
		page, err := t.desk.Questions(ctx, state, "", after, tellPage)
		if err != nil {
			return err
		}
		for _, q := range page {
			if q.State == approval.Damaged { // what it says is nobody's word
				continue
			}
			if state.Final() && t.clock().Sub(q.CreatedAt) > tellBack {
				return nil
			}
			if state.Final() && q.ExpiresAt.Before(t.caughtUp) {
				continue
			}
			if err := tell(q); err != nil {
				return err
			}
		}
		if len(page) < tellPage {
			return nil
		}
		after = page[len(page)-1].ID
	}
}

func (t *teller) clock() time.Time {
	if t.now == nil {
		return time.Now()
	}
	return t.now()
}

// toldBy names who describes a tool, by desk.Described.By.
var toldBy = map[string]string{"server": "what the tool's server says of it", "operator": "what the operator says of the tool", "gateway": "what the operation does"}

func (t *teller) approval(ctx context.Context, q desk.Question) {
	a := q.Approval
	if agent.IsTrial(a.Agent) { // who tries the controls looks at it
		return
	}
	t.pace(ctx, a)
	m := notify.Message{Event: notify.Approval, Risk: a.Risk, Link: "/approvals/" + a.ID, At: a.CreatedAt, Labels: confidential(a.Labels)}
	fields := func(pairs ...string) {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] != "" {
				m.Fields = append(m.Fields, notify.Field{Name: pairs[i], Value: pairs[i+1]})
			}
		}
	}
	switch a.State {
	case approval.Pending:
		m.Key = "approval:" + a.ID + ":asked"
		needs := people(a.Needed)
		if a.Role != "" {
			needs += " with the role " + string(a.Role)
		}
		if !a.SilenceAt.IsZero() {
			needs = "runs at " + a.SilenceAt.Format(time.TimeOnly) + " UTC unless it is stopped"
		}
		until := a.ExpiresAt.Format(time.RFC3339)
		m.Bare = notify.Bare{Title: a.Agent + " asks for " + a.Operation, Fields: []notify.Field{{Name: "needs", Value: needs}, {Name: "agent", Value: a.Agent}, {Name: "expires", Value: until}}}
		m.Title = a.Agent + " asks: " + cmp.Or(q.Line, a.Operation)
		if q.Review != nil && len(q.Review.Objections) > 0 && q.Review.Objections[0].Code != review.Unexplained {
			m.Text = q.Review.Objections[0].Title + ": " + q.Review.Objections[0].Text
		} else if len(a.Reasons) > 0 {
			m.Text = a.Reasons[0].Text
		}
		why := a.Purpose()
		if a.Unexplained() {
			why = approval.NoReason.Text
		}
		fields("why", why)
		fields("needs", needs, "agent", a.Agent, "for", a.Requester, "operation", a.Operation, "amount", a.Amount, "expires", until)
		if q.Tool != nil {
			fields(toldBy[q.Tool.By], q.Tool.Text)
		}
		t.send(ctx, m)
	case approval.Spent:
		if policy.Risk(a.Risk).Rank() < policy.High.Rank() {
			return
		}
		m.Key, m.Event = "approval:"+a.ID+":spent", notify.Alert
		m.Title = a.Operation + " was carried out"
		m.Bare = notify.Bare{Title: m.Title, Fields: []notify.Field{{Name: "agent", Value: a.Agent}, {Name: "approved by", Value: strings.Join(a.Approvers(), ", ")}}}
		fields("agent", a.Agent, "for", a.Requester, "amount", a.Amount, "approved by", strings.Join(a.Approvers(), ", "), "call", a.SpentBy)
		t.send(ctx, m)
	}
}

// confidential are the labels that a channel has to be allowed to carry.
func confidential(labels []string) []string {
	return slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return flow.Label(l).Marks() })
}

// maxChanges bounds the messages about one start or reload.
const maxChanges = 20

// configuration sends the messages about what starts and reloads changed, the newest first.
func (t *teller) configuration(ctx context.Context) {
	all := t.changes()
	for _, c := range all[:min(len(all), maxChanges)] {
		if t.clock().Sub(c.At) > tellBack {
			return
		}
		m := notify.Message{
			Key: "change:" + strconv.FormatInt(c.Index, 10), Event: notify.Alert, Title: "The configuration changed", Text: c.Text, At: c.At,
			Link: "/audit/" + strconv.FormatInt(c.Index, 10),
		}
		if c.Agent != "" {
			m.Title = "The declaration of the agent " + c.Agent + " changed"
		}
		t.send(ctx, m)
	}
}

// plan sends the message about a plan that waits: until it is answered its agent can reach nothing outside.
func (t *teller) plan(ctx context.Context, s session.Session) {
	if !s.PlanWaits() || agent.IsTrial(s.Agent) {
		return
	}
	m := notify.Message{
		Key: "plan:" + s.Plan.Digest, Event: notify.Approval, Title: "A plan of " + s.Agent + " waits for an operator", Link: "/sessions/" + s.ID, At: s.Plan.Submitted,
		Fields: []notify.Field{{Name: "agent", Value: s.Agent}, {Name: "steps", Value: strconv.Itoa(len(s.Plan.Steps))}},
	}
	if s.Requester != "" {
		m.Fields = append(m.Fields, notify.Field{Name: "for", Value: s.Requester})
	}
	t.send(ctx, m)
}

// missed raises an alert about a drill that was approved, because the person did not read it.
func (t *teller) missed(ctx context.Context, q desk.Question) {
	by := q.Approvers()
	if !q.Drill || q.State != approval.Approved && q.State != approval.Expired || len(by) < max(q.Needed, 1) {
		return
	}
	t.send(ctx, notify.Message{
		Key: "drill:" + q.ID, Event: notify.Alert, Title: "A drill was approved", Link: "/approvals/" + q.ID, At: q.CreatedAt,
		Text:   "Nobody asked for what was approved; nothing ran. Real requests are read no better.",
		Fields: []notify.Field{{Name: "approved by", Value: strings.Join(by, ", ")}},
	})
}

// pace raises an alert about a person who approves faster than people can read, as under a flood of requests.
func (t *teller) pace(ctx context.Context, a approval.Approval) {
	now := t.clock()
	if now.Sub(t.rotated) > hastySpan { // so a vote is remembered for as long as it would count
		t.before, t.counted, t.rotated = t.counted, map[string]bool{}, now
	}
	for _, v := range a.Votes {
		key := a.ID + " " + v.Person
		if v.Decision != approval.Approve || now.Sub(v.At) > hastySpan || t.counted[key] || t.before[key] {
			continue
		}
		t.counted[key] = true
		times := slices.DeleteFunc(append(t.approved[v.Person], v.At), func(at time.Time) bool { return now.Sub(at) > hastySpan })
		t.approved[v.Person] = times
		if len(times) <= hastyCount {
			continue
		}
		last := slices.MaxFunc(times, time.Time.Compare) // votes may come newest first
		t.warn("a person approves faster than anybody reads", "person", v.Person, "approvals", len(times), "within", hastySpan)
		t.send(ctx, notify.Message{
			Key: fmt.Sprintf("pace:%s:%d", v.Person, last.Unix()/int64(hastySpan/time.Second)), Event: notify.Alert,
			Title: v.Person + " approves faster than anybody reads", At: last, Link: "/approvals?state=approved",
			Text: fmt.Sprintf("%d requests within %s. Look at what was approved, and at why there are so many.", len(times), hastySpan),
		})
	}
}

func (t *teller) kill(ctx context.Context) {
	s := t.switches()
	switches := map[string]standing.Switch{"": s.Global}
	maps.Copy(switches, s.Agents)
	for id, sw := range switches {
		if sw.Since.IsZero() || agent.IsTrial(id) {
			continue
		}
		what, done := "All agents were", "stopped"
		if id != "" {
			what = "The agent " + id + " was"
		}
		if !sw.Active {
			done = "let work again"
		}
		t.send(ctx, notify.Message{
			Key: fmt.Sprintf("kill:%s:%d", id, sw.Since.UnixNano()), Event: notify.Alert, Title: what + " " + done, Text: sw.Reason, Risk: "CRITICAL",
			Link: "/agents", At: sw.Since, Fields: []notify.Field{{Name: "by", Value: cmp.Or(identity.Shown(sw.By), "nobody")}},
		})
	}
}

// timeout raises an alert about a run whose time was over.
func (t *teller) timeout(r run.Run) {
	t.send(context.Background(), notify.Message{
		Key: "run:" + r.ID, Event: notify.Alert, Title: "A run of " + r.Agent + " was over its time", Link: "/runs/" + r.ID, At: t.clock(),
		Text:   "What it had was discarded, and nothing is retried.",
		Fields: []notify.Field{{Name: "agent", Value: r.Agent}, {Name: "for", Value: r.Requester}},
	})
}

// quotas sends the messages about marks that quotas stand at: a process that ended may have told nobody, and a reload may have lowered a quota.
func (t *teller) quotas(ctx context.Context) {
	marks, err := t.gateway.QuotaMarks(ctx)
	if err != nil && ctx.Err() == nil {
		t.warn("quotas could not be read to tell people", "error", err)
	}
	for _, m := range marks {
		t.quota(ctx, m)
	}
}

// quota alerts people that a mark of a quota was passed. Each is told once in its window.
func (t *teller) quota(ctx context.Context, m quota.Mark) {
	of := "calls"
	if m.Limit.Resource == quota.Tokens || m.Limit.Resource == quota.Cost {
		of = "requests to models"
	}
	until := m.Use.Frees(m.Limit).Format(time.RFC3339)
	text := fmt.Sprintf("From 100 %% on its %s are refused, until %s.", of, until)
	if m.Percent >= 100 {
		text = fmt.Sprintf("Its %s are refused until %s. An operator can raise the quota in its declaration.", of, until)
	}
	t.send(ctx, notify.Message{
		Key: fmt.Sprintf("quota:%s:%d:%d", m.Limit.Key(m.Agent), m.Use.Start.Unix(), m.Percent), Event: notify.Alert, Title: m.Agent + ": " + m.Text(), Text: text, Link: "/agents/" + m.Agent, At: t.clock(),
		Fields: []notify.Field{{Name: "agent", Value: m.Agent}},
	})
}

// alert sends the message about an alert. Quotas, runs that were over their time and a log that was put back have messages of their own.
func (t *teller) alert(ctx context.Context, a monitor.Alert) {
	if a.Kind == monitor.Quota || a.Kind == monitor.LogDamage || a.Run || t.clock().Sub(a.Detected) > tellBack {
		return
	}
	m := notify.Message{Key: "alert:" + a.ID, Event: notify.Alert, Title: a.Title(), Text: a.Explanation(), Link: "/security", At: a.Detected}
	if a.Critical() {
		m.Risk = "CRITICAL"
	}
	for _, who := range slices.Sorted(maps.Keys(a.Involved)) {
		m.Fields = append(m.Fields, notify.Field{Name: "who", Value: fmt.Sprintf("%s (%d)", monitor.Who(who), a.Involved[who])})
		if len(m.Fields) == maxInMessage {
			break
		}
	}
	t.send(ctx, m)
}

// hit alerts people that something an agent read looks like orders to an agent: once an hour for each agent, since whoever writes what it reads could send
// any number.
func (t *teller) hit(ctx context.Context, of string) {
	if agent.IsTrial(of) {
		return
	}
	now := t.clock()
	t.send(ctx, notify.Message{
		Key: fmt.Sprintf("hit:%s:%d", of, now.Truncate(time.Hour).Unix()), Event: notify.Alert, Title: "Something that " + of + " read looks like orders to an agent",
		Text: "The log says in which call, and what became of it. More hits of this agent within the hour bring no further message.", Link: "/audit/screening", At: now,
		Fields: []notify.Field{{Name: "agent", Value: of}},
	})
}

// unanchored raises an alert about a log that was put back.
func (t *teller) unanchored(ctx context.Context, why string) {
	now := t.clock()
	t.send(ctx, notify.Message{
		Key: fmt.Sprintf("anchor:%d", now.UnixNano()), Event: notify.Alert, Title: "The log does not go on from its anchor", Text: why, Risk: "CRITICAL", Link: "/audit", At: now,
	})
}

func (t *teller) send(ctx context.Context, m notify.Message) {
	if err := t.n.Send(ctx, m); err != nil && ctx.Err() == nil {
		t.warn("people could not be notified; it is tried again at the next start", "key", m.Key, "error", err)
	}
}

// deliveries returns the state of the messages of each channel.
func (t *teller) deliveries(ctx context.Context) ([]console.Deliveries, error) {
	found, err := t.n.Status(ctx)
	var all []console.Deliveries
	for _, s := range found {
		all = append(all, console.Deliveries{
			Kind: s.Kind, Target: s.Target, Owed: s.Waiting, GivenUp: s.Failed, LastError: s.LastError, LastFailure: s.LastFailure, LastSuccess: s.LastSuccess,
		})
	}
	return all, err
}

func people(n int) string {
	if n == 1 {
		return "a person"
	}
	return fmt.Sprintf("%d people", n)
}
