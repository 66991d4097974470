package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
	"sallyport.example/internal/threat"
)

const (
	// maxSeen bounds what is kept of one result, in bytes; of a larger one nothing is, so it vouches for nothing.
	maxSeen = 1 << 20
	// maxShownEvidence bounds the findings in an entry and in a verdict; an approval has all of them.
	maxShownEvidence = 50
)

// witness is what a session has seen, as far as memory has it: an index of what the store keeps. It is brought up to date before it is asked,
// so replicas see one another's evidence.
type witness struct {
	once  sync.Once
	said  *flow.Words
	mu    sync.Mutex // guards the rest
	index flow.Evidence
	last  int64             // number of the newest evidence in the index
	under map[string]string // operation -> digest of the profile under which its evidence is in the index, or was left out
}

// words are the person's request, read once: it doesn't change in a session.
func (w *witness) words(s *session.Session) *flow.Words {
	w.once.Do(func() { w.said = flow.ParseWords(s.UserRequest) })
	return w.said
}

// rules is the digest of what the operator says about an operation today; "" of one that nobody knows any more.
func (g *Gateway) rules(operation string) string {
	if op := g.cat.snap.Load().byID[operation]; op != nil {
		return op.Profile.Digest()
	}
	return ""
}

// catchUp takes in what was kept since. Evidence that was taken under other labels than today's is left out, but for what the session gave
// away, which vouches for nothing. The caller holds mu.
func (w *witness) catchUp(ctx context.Context, g *Gateway, sessionID string) error {
	for op, digest := range w.under {
		if g.rules(op) != digest { // the operator's word has changed since: read it all again
			w.index, w.last, w.under = flow.Evidence{}, 0, nil
			break
		}
	}
	kept, err := g.o.Store.Evidence(ctx, sessionID, w.last)
	if err != nil {
		return err
	}
	for _, ev := range kept {
		var seen flow.Seen
		if err := json.Unmarshal(ev.Body, &seen); err != nil {
			return fault.Wrap(err, fault.StoreUnavailable, "What the session has seen can't be read.")
		}
		w.last = ev.Seq
		if seen.Gave == nil {
			if w.under == nil {
				w.under = map[string]string{}
			}
			digest, known := w.under[seen.Operation]
			if !known {
				digest = g.rules(seen.Operation)
				w.under[seen.Operation] = digest
			}
			if digest != ev.Rules {
				continue
			}
		}
		w.index.Add(seen)
	}
	return nil
}

// traced tells whether provenance decides about the call: a tool's, or one for a resource where the operator has told what its uri is for or
// that reading it carries data away. Built-in operations are declared and have rules of their own; they are traced where the operator has
// told what their arguments are for.
func (c *crossing) traced() bool {
	switch c.r.Method {
	case "tools/call":
		return c.op.traced()
	case "resources/read", "resources/subscribe":
		return c.op.Profile.Told() || c.op.Profile.EgressURL
	}
	return false
}

func (op *Operation) traced() bool {
	return op.command == nil || op.Profile.Told() || op.Profile.EgressURL
}

// profile is what the flow rules go by: a write that nobody gave a level is of the highest, whatever its default says.
func (c *crossing) profile() *flow.Profile {
	if c.op.Profile.Level > 0 || !c.writes() {
		return c.op.Profile
	}
	p := *c.op.Profile
	p.Level = 2
	return &p
}

func (c *crossing) situation(s *session.Session) flow.Situation {
	at := flow.Situation{Held: s.Labels, Words: c.live.seen.words(s), Own: c.g.o.Identities(s.Requester), FreeLevel1: c.g.o.FreeLevel1, Plan: c.plan()}
	if len(s.Labels) > 0 && !s.Holds(flow.Untrusted) { // otherwise they do not matter
		at.Choices = c.op.choices()
	}
	return at
}

// choices are the texts that the accepted definition of a read lists for an argument.
func (op *Operation) choices() map[string][]string {
	if op.Flow.Effect != flow.Read || !op.Profile.Told() || len(op.Definition) == 0 {
		return nil
	}
	schema, _ := call.Get(op.Definition, "inputSchema")
	properties, _ := call.Get(schema, "properties")
	var all map[string][]string
	for argument := range op.Profile.Args {
		property, _ := call.Get(properties, argument)
		listed, _ := call.Get(property, "enum")
		var values []string
		if listed == nil || json.Unmarshal(listed, &values) != nil {
			continue
		}
		if all == nil {
			all = map[string][]string{}
		}
		all[argument] = values
	}
	return all
}

// trace finds out where the arguments came from, once per state of the session. What the session has seen is only looked at where the
// person's words don't settle it: in a clean session nothing is. What goes wrong is said by the flow stage, in its turn.
func (c *crossing) trace(ctx context.Context) {
	c.ruling, c.traceErr, c.unasked = nil, nil, ""
	if c.live == nil { // a step of a plan is judged by the labels it would meet
		return
	}
	s := c.raised()
	at := c.situation(&s)
	traced := c.traced()
	if !traced {
		if why, off := flow.OffPlan(c.op.Flow, c.profile(), c.args, at); off && flow.Judge(c.op.Flow, s.Labels).Allowed {
			c.ruling = &flow.Ruling{Verdict: flow.Ask, OffPlan: true, Because: []flow.Held{}, Reason: c.op.Name + " could carry data out and is not in the session's sealed plan: " + why}
			return
		}
		if c.r.Method == "resources/subscribe" || c.r.Method == "resources/unsubscribe" { // nothing is read
			return
		}
	}
	selects := c.args
	if c.r.Method == "prompts/get" { // without its name, as a tool's
		selects = c.prompt
	}
	judge := func() flow.Ruling {
		if traced {
			return flow.JudgeCall(c.op.Flow, c.profile(), c.args, at)
		}
		return flow.Ruling{Verdict: flow.Permit, Unasked: flow.UnaskedFor(c.op.Flow, c.profile(), selects, at)} // labels alone decide
	}
	r := judge()
	if r.Verdict == flow.Ask || r.Unasked != "" {
		w := &c.live.seen
		w.mu.Lock()
		defer w.mu.Unlock()
		if c.traceErr = w.catchUp(ctx, c.g, s.ID); c.traceErr != nil {
			return
		}
		at.Evidence = &w.index
		r = judge()
	}
	if c.unasked = r.Unasked; traced {
		c.ruling = &r
	}
}

// brings are the labels of a result, with the mark where nobody asked for what this call reads: a person who said yes to it has.
func (c *crossing) brings(labels []flow.Held) []flow.Held {
	if c.personApproved() {
		return labels
	}
	return flow.Ruling{Unasked: c.unasked}.Brings(labels, c.op.ID, c.id)
}

// vouched tells whether the call was traced and everything in it is vouched for: then the session's labels make it no riskier.
func (c *crossing) vouched() bool {
	return c.ruling != nil && c.ruling.Verdict == flow.Permit && len(c.ruling.Evidence) > 0
}

// unvouched tells whether the flow stage leaves the call to a person.
func (c *crossing) unvouched() bool { return c.ruling != nil && c.ruling.Verdict == flow.Ask }

// lookedAt tells whether the trace had to look at the call. What goes out beside the arguments of such a call can't be traced, so it doesn't go out.
func (c *crossing) lookedAt() bool {
	return c.ruling != nil && (c.ruling.Verdict != flow.Permit || len(c.ruling.Because) > 0)
}

// personApproved tells whether a person has said yes to this very call; silence is no yes.
func (c *crossing) personApproved() bool {
	return c.approval != nil && c.approval.State == approval.Approved
}

// personNamed tells whether the destinations of the call are the person's own choice: in their words, their own, in a sealed plan, or approved
// before. In a clean session nothing has been traced; there the words alone are looked at.
func (c *crossing) personNamed() bool {
	if c.live == nil || !c.traced() || c.answers != nil {
		return false
	}
	var findings []flow.Finding
	if c.ruling != nil {
		findings = c.ruling.Evidence
	}
	if findings == nil {
		s := c.raised()
		at := c.situation(&s)
		at.Held = []flow.Held{{Label: flow.Untrusted}}
		findings = flow.JudgeCall(c.op.Flow, c.profile(), c.args, at).Evidence
	}
	named := 0
	for _, f := range findings {
		if f.Role != flow.Destination {
			continue
		}
		switch named++; f.By {
		case flow.ByPlan: // a rule's plan is the agent's choice, and a result is not the person's
			if !c.session.Plan.ByPerson() || f.CallID != "" {
				return false
			}
		case flow.ByWords, flow.ByOwn, flow.ByApproval:
		default:
			return false
		}
	}
	return named > 0
}

// traceVerdict is what the ruling means for the call. An ask is answered by a person's approval of this very call.
func (c *crossing) traceVerdict(s *session.Session) fault.Verdict {
	const stage = "flow"
	if c.traceErr != nil {
		return fault.RefuseErr(stage, c.traceErr)
	}
	if v := c.g.unknownLabel(c.op, s); v.Decision != fault.Permit {
		return v
	}
	r := c.ruling
	labels := flow.Judge(c.op.Flow, s.Labels)
	switch {
	case c.answers != nil && !labels.Allowed:
		return c.g.flowVerdict(c.op, s)
	case c.answers != nil && c.lookedAt(): // an agent may send them unasked
		return fault.Refuse(stage, fault.FlowUntrusted, "Answers to a server's questions can't be traced, and the session holds labels.",
			fault.Remedy{Kind: "new_session", Text: "Make the call anew without answers, or ask for a separate session for it."})
	case r.Verdict == flow.Permit, r.Verdict == flow.Ask && c.personApproved():
		return fault.Permitted()
	case r.Verdict == flow.Ask:
		code := fault.FlowUntrusted
		switch {
		case r.OffPlan:
			code = fault.PlanMismatch
		case !labels.Allowed:
			code = fault.FlowContaminated
		}
		v := askFor(stage, r.Reason)
		for _, h := range r.Because {
			v.Because = append(v.Because, fault.Because{Label: string(h.Label), Operation: h.Operation, CallID: h.CallID, Detail: h.Cause})
		}
		v.Because = append(append(v.Because, c.because()...), fault.Because{Code: code, Detail: stage + ": " + r.Reason})
		return v
	case !labels.Allowed:
		return c.g.flowVerdict(c.op, s)
	}
	return fault.Refuse(stage, fault.FlowUntrusted, r.Reason, fault.Remedy{Kind: "ask_person", Text: "Make the arguments simpler, or ask a person to do it."})
}

// because is what the trace found, for a verdict.
func (c *crossing) because() []fault.Because {
	if c.ruling == nil {
		return nil
	}
	var all []fault.Because
	if acts := c.acts(); acts != "" {
		all = append(all, fault.Because{Operation: c.op.ID, Detail: acts})
	}
	for i, f := range c.ruling.Evidence {
		if i == maxShownEvidence {
			return append(all, fault.Because{Detail: fmt.Sprintf("and %d more", len(c.ruling.Evidence)-i)})
		}
		all = append(all, fault.Because{Operation: f.Operation, CallID: f.CallID, Detail: f.Text})
	}
	return all
}

// named puts what vouched for the arguments into a permit, so that whoever called can see it.
func (c *crossing) named(v fault.Verdict) fault.Verdict {
	if v.Decision == fault.Permit && c.vouched() {
		v.Reason, v.Because = c.ruling.Reason, append(v.Because, c.because()...)
	}
	return v
}

// finding is what the log has of a finding: everything but the value.
type finding struct {
	Argument  string       `json:"argument"`
	Role      flow.Role    `json:"role"`
	Vouched   bool         `json:"vouched"`
	By        flow.Voucher `json:"by,omitempty"`
	Text      string       `json:"text"`
	Operation string       `json:"operation,omitempty"`
	CallID    string       `json:"call_id,omitempty"`
	Record    int          `json:"record,omitempty"`
	Field     string       `json:"field,omitempty"`
}

// evidenceDetail is what the log has of what the trace found; nil where nothing was traced.
func (c *crossing) evidenceDetail() []finding {
	if c.ruling == nil {
		return nil
	}
	var all []finding
	for _, f := range c.ruling.Evidence[:min(len(c.ruling.Evidence), maxShownEvidence)] {
		all = append(all, finding{f.Argument, f.Role, f.Vouched, f.By, f.Text, f.Operation, f.CallID, f.Record, f.Field})
	}
	return all
}

// shownEvidence is what a person is shown of it.
func (c *crossing) shownEvidence() []approval.Finding {
	if c.ruling == nil {
		return nil
	}
	var all []approval.Finding
	for _, f := range c.ruling.Evidence {
		all = append(all, approval.Finding{
			Argument: f.Argument, Role: string(f.Role), Value: f.Value, Vouched: f.Vouched, By: string(f.By), Text: f.Text, Operation: f.Operation, CallID: f.CallID,
			Record: f.Record, Field: f.Field, Covers: f.Covers,
		})
	}
	return all
}

// maxSources bounds the records that a question says its answer covers.
const maxSources = 10

// codeSource is the code of reasons that say what else a yes covers.
const codeSource = "flow.source"

// sources say what else a yes covers: one source is asked about once (PV-8).
func (c *crossing) sources() []approval.Reason {
	if !c.unvouched() {
		return nil
	}
	var names []string
	var all []approval.Reason
	for _, f := range c.ruling.Evidence {
		if f.Vouched {
			continue
		}
		if f.Role.Core() || f.Role.Soft() { // not a link in what is sent
			names = append(names, f.Argument)
		}
		if !f.Covers || len(all) == maxSources {
			continue
		}
		r := approval.Reason{Stage: "flow", Code: codeSource, Text: fmt.Sprintf(
			"Your yes also covers other values of %s that the system set in the same record (%d of %s), for the rest of this session.", shownWord(f.Argument), f.Record, f.Operation)}
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return append(usedAgain(c.op.ID, names), all...)
}

// usedAgain says that a yes vouches for the values of the arguments with these names, not for the one call alone.
func usedAgain(operation string, arguments []string) []approval.Reason {
	var names []string
	more := 0
	for _, name := range arguments {
		switch name = shownWord(name); {
		case slices.Contains(names, name):
		case len(names) == maxSources:
			more++
		default:
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	list := strings.Join(names, ", ")
	if more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return []approval.Reason{{Stage: "flow", Code: codeSource, Text: fmt.Sprintf(
		"Your yes also lets the values of %s be used again in calls of %s, with any other arguments, for the rest of this session.", list, operation)}}
}

// shownWord is a name out of a call for a sentence.
func shownWord(s string) string { return short(threat.Printable(s, 80)) }

// sameEvidence tells whether nothing is unvouched by now that the person was not shown as such.
func (c *crossing) sameEvidence(a approval.Approval) bool {
	if !c.unvouched() {
		return true
	}
	return slices.ContainsFunc(a.Reasons, func(r approval.Reason) bool { return r.Stage == "flow" }) &&
		!slices.ContainsFunc(c.ruling.Evidence, func(f flow.Finding) bool {
			return !f.Vouched && !slices.ContainsFunc(a.Evidence, func(s approval.Finding) bool { return s.Argument == f.Argument && s.Value == f.Value && !s.Vouched })
		})
}

// kept is what of a call is evidence from its intent on: what a person has approved, having been shown where it came from; and what a write
// gives away in a session that outsiders have written in, so that it is not believed when it is read back.
func (c *crossing) kept() ([]Evidence, error) {
	var all []Evidence
	if c.personApproved() && len(c.approval.Evidence) > 0 && c.traced() {
		var shown []flow.Finding
		if c.ruling != nil {
			shown = c.ruling.Evidence
		}
		body, err := json.Marshal(flow.Approve(c.op.ID, c.id, c.op.Profile, c.args, shown, c.raised().Labels))
		if err != nil {
			return nil, err
		}
		all = append(all, c.evidence(body))
	}
	if s := c.raised(); c.writes() && s.Holds(flow.Untrusted) {
		for _, given := range [][]byte{c.args, c.answers} {
			if given == nil {
				continue
			}
			body, err := json.Marshal(flow.Gave(c.op.ID, c.id, c.op.Profile, given))
			if err == nil && len(body) > maxSeen {
				body, err = json.Marshal(flow.Gave(c.op.ID, c.id, nil, nil)) // it may have been anything
			}
			if err != nil {
				return nil, err
			}
			all = append(all, c.evidence(body))
		}
	}
	return all, nil
}

func (c *crossing) evidence(body []byte) Evidence {
	return Evidence{CallID: c.id, Rules: c.op.Profile.Digest(), Body: body}
}

// observe reads what came back by what the operator says about the operation: what it shows, and whether it can be trusted. Both are one
// decision, but that what is trusted without a shape is so however much it is.
func (c *crossing) observe(result json.RawMessage) (seen flow.Seen, trusted bool) {
	payloads, plain := Payloads(c.r.Method, result)
	seen = flow.Observe(c.op.Profile, c.live.seen.words(c.session), flow.Result{Operation: c.op.ID, CallID: c.id, Arguments: c.args, Payloads: payloads})
	switch out := c.op.Class.Output; {
	case out == flow.TrustedOutput && c.op.Class.Shape == nil:
		return seen, true
	case out != flow.TrustedOutput && out != flow.TypedOutput:
		return seen, false
	case !plain || call.Check(result, resultLimits) != nil:
		return flow.Seen{}, false // there is more in it than the shape could speak for
	}
	return seen, seen.Trusted
}

// resultLimits bound a result that is held against a shape.
var resultLimits = call.Limits{Bytes: 8 << 20, Depth: 64, Members: 100_000}

// keepSeen makes evidence of what a result showed; none where it showed nothing, or too much.
func (c *crossing) keepSeen(seen flow.Seen) []Evidence {
	if len(seen.Records) == 0 {
		return nil
	}
	body, err := json.Marshal(seen)
	if err != nil || len(body) > maxSeen {
		return nil
	}
	return []Evidence{c.evidence(body)}
}

// Payloads are the values and texts in a result of an MCP method, each once. plain says that there is nothing else in it: no other kind of block, no member
// beside those that are looked at. What can't be read has no payloads.
func Payloads(method string, result json.RawMessage) (all []json.RawMessage, plain bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil {
		return nil, false
	}
	if kind := members["resultType"]; kind != nil && string(kind) != `"complete"` { // results of revision 2026-07-28 say that they are one
		return nil, false
	}
	var blocks []map[string]json.RawMessage
	list := func(raw json.RawMessage) bool { return raw == nil || json.Unmarshal(raw, &blocks) == nil }
	text := func(raw json.RawMessage) (s string, ok bool) { return s, raw != nil && json.Unmarshal(raw, &s) == nil }
	switch method {
	case "tools/call":
		if !list(members["content"]) {
			return nil, false
		}
		plain = true
		for name := range members {
			plain = plain && slices.Contains([]string{"content", "structuredContent", "isError", "resultType"}, name)
		}
		var again repetition
		if structured := members["structuredContent"]; structured != nil && string(structured) != "null" {
			all, again = append(all, structured), repetitionOf(structured)
		}
		for _, b := range blocks {
			s, ok := text(b["text"])
			if string(b["type"]) != `"text"` || !ok {
				plain = false
				var inner map[string]json.RawMessage
				if json.Unmarshal(b["resource"], &inner) != nil {
					continue
				}
				if s, ok = text(inner["text"]); !ok {
					continue
				}
			} else if len(b) != 2 {
				plain = false
			}
			if !again.of(s) {
				all = append(all, flow.Text(s))
			}
		}
	case "resources/read":
		if !list(members["contents"]) {
			return nil, false
		}
		for _, b := range blocks {
			if s, ok := text(b["text"]); ok {
				all = append(all, flow.Text(s))
			}
		}
	case "prompts/get":
		if !list(members["messages"]) {
			return nil, false
		}
		for _, m := range blocks {
			var block map[string]json.RawMessage
			if json.Unmarshal(m["content"], &block) != nil {
				continue
			}
			if s, ok := text(block["text"]); ok {
				all = append(all, flow.Text(s))
			}
		}
	}
	return all, plain
}
