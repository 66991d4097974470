package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
	"sallyport.example/internal/store"
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

// maxEntries bounds how much of one session is judged anew.
const maxEntries = 50_000

// Config is what a configuration says that the flow rules go by.
type Config struct {
	Classify   func(server, tool string) catalogue.Classification
	Labels     []string                     // flow.labels
	Own        func(person string) []string // a person's own addresses and accounts; nil: nobody has any
	FreeLevel1 bool

	// What Tape.Count needs besides; Session looks at neither.
	Unlisted string // what happens to operations that no entry names: deny, ask or ask_once
	Risk     policy.Rules
}

// Past is a session of the gateway's own, judged anew.
type Past struct {
	Session   string     `json:"session_id"`
	Agent     string     `json:"agent_id"`
	Requester string     `json:"requester,omitempty"`
	Calls     []PastCall `json:"calls"`   // in the order in which they came; never nil
	Changed   int        `json:"changed"` // how many of them would be decided otherwise
	Notes     []string   `json:"notes"`   // what keeps the answer from being the whole truth; never nil
}

// PastCall is one call: what was decided then, and what the flow rules say of it under the configuration of now.
type PastCall struct {
	CallID    string    `json:"call_id"`
	At        time.Time `json:"at"`
	Operation string    `json:"operation"`
	Then      Then      `json:"then"`
	Now       *Now      `json:"now"` // nil: nobody can say, and Note says why
	Changed   bool      `json:"changed"`
	Note      string    `json:"note,omitempty"`
}

// Then is what the log says.
type Then struct {
	Decision   string   `json:"decision"` // permit, ask or deny
	Stage      string   `json:"stage,omitempty"`
	Code       string   `json:"code,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Approvers  []string `json:"approvers,omitempty"`
	OnlyLogged bool     `json:"only_logged,omitempty"` // mode: observe: it ran, and stage, code and reason are of the verdict that it would have had
	Outcome    string   `json:"outcome,omitempty"`     // ok, error, unknown, discarded; "" it did not run
}

// Now is what the flow rules say. The other stages of the gateway are not asked.
type Now struct {
	Decision   provenance.Verdict   `json:"decision"`
	Reason     string               `json:"reason"`
	Because    []flow.Held          `json:"because"`
	Evidence   []provenance.Finding `json:"evidence"`
	Unlabelled bool                 `json:"unlabelled,omitempty"` // no entry of the configuration covers the operation, so the strictest is assumed
	Unasked    string               `json:"unasked,omitempty"`    // of a read: why what it brings counts as unasked for
}

// Session judges the calls of a session anew. What it had read is taken from the log, where results of more than 1 MiB are kept by their hash
// only: those show nothing. Secrets are redacted in what is kept. A call that was asked about and ran is taken as approved again; a call that
// would be refused now brings no result; one that did not run then has none to bring. Whether the log is as it was written is for
// audit.Verify to say.
func Session(ctx context.Context, log *store.Reader, c Config, id string) (Past, error) {
	p, err := replayed(ctx, log, c, id, false)
	if err != nil {
		return Past{}, err
	}
	return p.report(), nil
}

// source is where the record of a session comes from: a data directory, or what was read of it before.
type source interface {
	Session(ctx context.Context, id string) (session.Session, error)
	Archived(f audit.Filter) *audit.Archived
	Entries(ctx context.Context, f audit.Filter) ([]audit.Entry, int64, error)
	Approval(ctx context.Context, id string) (approval.Approval, error)
	Payload(ctx context.Context, key string) ([]byte, error)
}

// replayed judges a session anew; also by what else a label decides about, if counts is set.
func replayed(ctx context.Context, log source, c Config, id string, counts bool) (*player, error) {
	s, err := log.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	p := &player{
		log: log, config: c, plan: s.Plan, counts: counts, covered: map[string]bool{}, tools: map[string]tool{},
		state: state{rules: judge.Rules{FreeLevel1: c.FreeLevel1}, words: provenance.ParseRequest(s.UserRequest), evidence: &provenance.Evidence{}},
		calls: map[string]*pastCall{}, asked: map[string]string{}, ran: map[string]bool{}, unlabelled: map[string]bool{},
		past: Past{Session: s.ID, Agent: s.Agent, Requester: s.Requester, Notes: []string{}},
	}
	for _, word := range c.Labels {
		p.rules.Labels = append(p.rules.Labels, flow.Label(word))
	}
	if c.Own != nil {
		p.own = c.Own(s.Requester)
	}
	if gone := log.Archived(audit.Filter{From: s.OpenedAt}); gone != nil {
		p.past.Notes = append(p.past.Notes, fmt.Sprintf("entries before %d were archived and not looked at", gone.Before))
	}
	entries, err := p.entries(ctx, id, maxEntries)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Kind == audit.Intent {
			p.ran[e.CallID] = true
		}
	}
	for i := range entries {
		if err := p.entry(ctx, &entries[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// player is a session of the log as it would be under another configuration.
type player struct {
	state
	log     source
	config  Config
	counts  bool            // also the stages that other rules of a label decide in are asked
	covered map[string]bool // operations that a person's yes covers for the session (unlisted_operations: ask_once)
	plan    *session.Plan   // sealed from the time at which it was approved
	tools   map[string]tool // by operation

	calls      map[string]*pastCall
	order      []*pastCall
	asked      map[string]string // approval -> stage that asked
	unlabelled map[string]bool   // operations that no entry of the configuration covers
	ran        map[string]bool   // calls with an intent
	past       Past
}

type pastCall struct {
	PastCall
	method string
	args   []byte
	done   bool               // it would be done
	asked  bool               // then, the flow rules would have had a person asked, whoever asked first
	said   provenance.Verdict // of a call that only observing let through: what the flow rules said then
}

func (p *player) entries(ctx context.Context, id string, most int) ([]audit.Entry, error) {
	var all []audit.Entry
	f := audit.Filter{Session: id, Limit: 1000}
	for {
		page, next, err := p.log.Entries(ctx, f)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(all) > most {
			p.past.Notes = append(p.past.Notes, fmt.Sprintf("only the first %d entries of the session were looked at", most))
			return all[:most], nil
		}
		if next < 0 {
			return all, nil
		}
		f.Min = next + 1
	}
}

// detail is what is read of an entry's detail.
type detail struct {
	Approval string            `json:"approval_id"`
	Carries  []json.RawMessage `json:"carries"`
	Evidence []struct {
		Confirmed bool `json:"vouched"`
	} `json:"evidence"`
	Stored   []flow.Held `json:"stored"` // what stored data brought, by the calls that wrote it
	Observed []struct {
		Decision provenance.Verdict `json:"decision"`
		Stage    string             `json:"stage"`
	} `json:"observed"` // the verdicts that were only recorded
}

// flowSaid is what the flow rules said of a call that only observing let through. Entries of older versions have one verdict, which is the flow rules'
// where they had one.
func flowSaid(e *audit.Entry, d *detail) provenance.Verdict {
	for _, v := range d.Observed {
		if v.Stage == "flow" {
			return v.Decision
		}
	}
	switch {
	case d.Observed != nil || e.Stage != "flow":
		return provenance.Permit
	case e.Code == string(fault.ApprovalRequired):
		return provenance.Ask
	}
	return provenance.Deny
}

func (p *player) entry(ctx context.Context, e *audit.Entry) error {
	if p.sealed == nil && p.plan != nil && p.plan.State == session.PlanApproved && !e.At.Before(p.plan.DecidedAt) {
		if p.sealed = p.plan.Sealed(); p.sealed != nil {
			p.sealed.Done = nil
		}
	}
	switch {
	case e.Action == "session.open", e.Action == "session.taint", e.Action == "session.definitions":
		p.labelled(e)
		return nil
	case e.Action == "session.release":
		p.held = slices.DeleteFunc(slices.Clone(p.held), func(h flow.Held) bool { return slices.Contains(e.Labels, string(h.Label)) })
		return nil
	case e.CallID == "" || !slices.Contains([]string{"call", string(call.ReadResource), string(call.GetPrompt), "approval.ask"}, e.Action):
		return nil
	}
	var d detail
	if len(e.Detail) > 0 {
		if err := json.Unmarshal(e.Detail, &d); err != nil {
			return fault.Wrap(err, fault.StoreUnavailable, "The detail of entry %d can't be read.", e.Index)
		}
	}
	c := p.calls[e.CallID]
	if c == nil {
		c = &pastCall{PastCall: PastCall{CallID: e.CallID, At: e.At, Operation: e.Operation}, method: e.Action}
		p.calls[e.CallID] = c
		p.order = append(p.order, c)
	}
	var err error
	switch {
	case e.Kind == audit.Outcome:
		c.Then.Outcome = e.Decision
		return p.outcome(ctx, c, e, d)
	case e.Action == "approval.ask":
		p.asked[d.Approval] = e.Stage
		c.method = "call"
		a, err := p.log.Approval(ctx, d.Approval)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		c.args = a.Arguments
		c.asked = c.asked || e.Stage == "flow" || slices.ContainsFunc(a.Evidence, func(f approval.Finding) bool { return !f.Confirmed })
	default:
		if c.args, err = p.kept(ctx, e.Arguments); err != nil {
			return err
		}
	}
	if e.Arguments != nil && e.Arguments.Redacted {
		c.note("secrets in its arguments are redacted in the log, and can't be traced")
	}
	if e.Kind == audit.Intent {
		p.intent(c, e, d)
		return nil
	}
	c.Then.Decision, c.Then.Stage, c.Then.Code, c.Then.Reason = e.Decision, e.Stage, e.Code, e.Reason
	p.judge(c)
	if !p.ran[c.CallID] && c.Now != nil && c.Now.Decision == provenance.Permit && e.Decision == "deny" && e.Stage == "flow" {
		c.note("it did not run then, so nobody knows what its result would have shown")
		p.state.raise(p.tool(c.Operation), c.CallID, provenance.Observation{}, c.Now.Unasked)
	}
	return nil
}

// labelled raises labels that the log says the session got.
func (p *player) labelled(e *audit.Entry) {
	for _, word := range e.Labels {
		p.held = flow.Raise(p.held, flow.Operation{ID: e.Operation}, e.CallID, flow.Label(word))
	}
}

// intent is a call that ran.
func (p *player) intent(c *pastCall, e *audit.Entry, d detail) {
	if len(d.Carries) > 0 { // its arguments brought labels of what was delivered before
		p.labelled(e)
	}
	if c.Then.Decision == "" {
		c.Then.Decision = "permit"
		if d.Approval != "" || len(e.Approvers) > 0 { // it repeats a call that waited for this answer
			c.Then.Decision, c.Then.Stage = "ask", p.asked[d.Approval]
			for _, f := range d.Evidence {
				if !f.Confirmed {
					c.Then.Stage, c.asked = "flow", true
				}
			}
		}
		if e.Shadow {
			c.Then.OnlyLogged, c.Then.Stage, c.Then.Code, c.Then.Reason = true, e.Stage, e.Code, e.Reason
			c.said = flowSaid(e, &d)
		}
	}
	c.Then.Approvers = e.Approvers
	p.judge(c)
	if c.Now == nil && c.args != nil { // it is not judged anew, and ran
		p.giveAway(tool{op: flow.Operation{ID: c.Operation}}, c.CallID, c.args, false)
	}
	if c.Now == nil || c.Now.Decision == provenance.Deny {
		return
	}
	c.done = true
	p.covered[c.Operation] = p.covered[c.Operation] || c.Now.Decision == provenance.Ask
	t := p.tool(c.Operation)
	if c.Now.Decision == provenance.Ask && !c.Then.OnlyLogged { // nobody said yes to what only observing let through
		p.evidence.Add(provenance.Approve(c.Operation, c.CallID, t.profile, c.args, c.Now.Evidence, p.held))
	}
	tainted := p.tainted()
	if f, ok := p.sealed.Follow(c.Operation, t.profile, c.args, p.evidence); ok {
		if done := f.Done(c.CallID, tainted && !f.FullyConfirmed); p.sealed.HasRoom(done) {
			p.sealed.Done = append(p.sealed.Done, done)
		}
	}
	p.giveAway(t, c.CallID, c.args, p.writes(t, c))
}

// judge asks the flow rules. Of a call that is judged twice, before a person's answer and before it ran, the stricter word stands.
func (p *player) judge(c *pastCall) {
	now := p.ruling(c)
	if now != nil && p.unlabelled[c.Operation] {
		now.Unlabelled = true
		now.Reason = strings.TrimSuffix("unlabelled: no entry under operations covers it, so it is taken for a write that leaves; "+now.Reason, "; ")
	}
	if now == nil || c.Now != nil && slices.Index(strictness, c.Now.Decision) > slices.Index(strictness, now.Decision) {
		return
	}
	c.Now = now
}

var strictness = []provenance.Verdict{provenance.Permit, provenance.Ask, provenance.Deny}

func (p *player) ruling(c *pastCall) *Now {
	server, name, _ := strings.Cut(c.Operation, ".")
	if server == "comm" {
		c.note("a built-in operation, which is not judged anew")
		return nil
	}
	t := p.tool(c.Operation)
	if t.profile == nil {
		c.note("the configuration makes no operation of it")
		return nil
	}
	if c.method == "call" && c.args == nil {
		c.note("its arguments were not kept")
		return nil
	}
	if t.op.Effect == flow.Read && p.acts(c.Operation, c.args) || p.config.Classify(server, name).Beyond(server, name, c.args) != "" {
		write := *t.profile
		write.Level, t.profile = 2, &write
	}
	r := p.rule(t, c.args, c.method == "call") // of resources and prompts labels alone decide
	if p.counts {
		r = p.beyondFlow(t, c, r)
	}
	if r.Evidence == nil {
		r.Evidence = []provenance.Finding{}
	}
	return &Now{r.Verdict, r.Reason, r.Because, r.Evidence, false, r.Unasked}
}

// outcome takes in what a call that would be done brought back.
func (p *player) outcome(ctx context.Context, c *pastCall, e *audit.Entry, d detail) error {
	if e.Result == nil { // it brought nothing
		return nil
	}
	if server, _, _ := strings.Cut(c.Operation, "."); server == "comm" {
		p.labelled(e)
		return nil
	}
	if !c.done {
		return nil
	}
	t := p.tool(c.Operation)
	var found []flow.Label
	for _, word := range e.Labels { // what was found in it, as opposed to what the operation was said to bring
		if (word == threat.LabelPII || word == threat.LabelSecret) && slices.Contains(p.config.Labels, word) {
			found = append(found, flow.Label(word))
		}
	}
	for _, h := range d.Stored {
		if slices.Contains(p.config.Labels, string(h.Label)) && !p.forgets(h.Operation) {
			found = append(found, h.Label)
		}
	}
	result, err := p.kept(ctx, e.Result)
	if err != nil {
		return err
	}
	var seen provenance.Observation
	if result == nil {
		c.note("its result was not kept, so it shows nothing")
	} else {
		payloads, plain := effect.Payloads(method(e.Action), result)
		seen = provenance.Observe(t.profile, p.words, provenance.Result{Operation: c.Operation, CallID: c.CallID, Arguments: c.args, Values: payloads, Writes: p.writes(t, c)})
		if t.profile.Shape != nil && !plain {
			seen = provenance.Observation{Operation: c.Operation, CallID: c.CallID} // there is more in it than the shape could speak for
		}
		if e.Result.Redacted {
			c.note("secrets in its result are redacted in the log")
		}
	}
	var unasked string
	if len(c.Then.Approvers) == 0 { // what a person said yes to is asked for
		unasked = c.Now.Unasked
	}
	p.state.raise(t, c.CallID, seen, unasked, found...)
	if e.Decision == "ok" {
		p.evidence.Add(seen)
	}
	return nil
}

// tool is an operation under the configuration; its profile is nil where it can't be one.
func (p *player) tool(id string) tool {
	if t, ok := p.tools[id]; ok {
		return t
	}
	server, name, _ := strings.Cut(id, ".")
	class := p.config.Classify(server, name)
	p.unlabelled[id] = !class.Listed
	spec := class.Flow
	spec.ID, spec.Name = id, id
	var t tool
	if op, err := flow.Resolve(spec, p.rules.Labels); err == nil {
		t = tool{op, class.Profile()}
		if op.Effect == flow.Write && t.profile.Level == 0 { // a write that nobody gave a level
			t.profile.Level = 2
		}
	}
	p.tools[id] = t
	return t
}

// acts reports whether the call of a tool that is said to read counts as a write by its arguments.
func (p *player) acts(id string, args []byte) bool {
	server, name, _ := strings.Cut(id, ".")
	return p.config.Classify(server, name).Reading(server, name).Acts(args) != ""
}

// forgets reports whether the configuration says of the operation that it stores nothing.
func (p *player) forgets(id string) bool {
	server, name, _ := strings.Cut(id, ".")
	return p.config.Classify(server, name).Forgets
}

// writes reports whether a call may have changed something.
func (p *player) writes(t tool, c *pastCall) bool {
	return t.op.Effect == flow.Write || p.acts(c.Operation, c.args)
}

// kept is a body as the log has it: nil where it has only its hash.
func (p *player) kept(ctx context.Context, b *audit.Payload) ([]byte, error) {
	switch {
	case b == nil:
		return nil, nil
	case b.Stored:
		return p.log.Payload(ctx, b.Key)
	}
	return b.Shown, nil
}

func (c *pastCall) note(s string) {
	if !strings.Contains(c.Note, s) {
		c.Note = strings.TrimPrefix(c.Note+"; "+s, "; ")
	}
}

func (p *player) report() Past {
	p.past.Calls = []PastCall{}
	for _, c := range p.order {
		if c.Now != nil {
			c.Changed = c.Then.otherwise(c.asked, c.Now.Decision)
			if c.Then.OnlyLogged {
				c.Changed = c.Now.Decision != c.said
			}
		}
		if c.Changed {
			p.past.Changed++
		}
		p.past.Calls = append(p.past.Calls, c.PastCall)
	}
	return p.past
}

// otherwise reports whether a call would be decided otherwise. What another stage stopped, it stops again; a call that another stage had asked
// about is decided otherwise where the flow rules now ask too, and didn't, or refuse it.
func (t Then) otherwise(asked bool, now provenance.Verdict) bool {
	switch {
	case t.Decision == "deny":
		return t.Stage == "flow" && now != provenance.Deny
	case t.Decision == "ask" && t.Stage != "flow":
		return now == provenance.Deny || now == provenance.Ask && !asked
	}
	return t.Decision != string(now)
}

// method is the MCP method of an entry about a call.
func method(action string) call.Method {
	if action == "call" {
		return call.CallTool
	}
	return call.Method(action)
}
