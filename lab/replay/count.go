package replay

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
	"sallyport.example/internal/store"
	"sallyport.example/provenance"
)

// Counted is what would become of recorded calls. A question is one that a person has to answer before the call runs; a call that runs unless
// somebody stops it is none. A call that is repeated while it waits is one question.
type Counted struct {
	Calls     int `json:"calls"`
	Questions int `json:"questions"`
	Refused   int `json:"refused"`
}

// Add adds the counts of other calls.
func (c Counted) Add(d Counted) Counted {
	return Counted{c.Calls + d.Calls, c.Questions + d.Questions, c.Refused + d.Refused}
}

// Without takes the counts of some calls away.
func (c Counted) Without(d Counted) Counted {
	return Counted{c.Calls - d.Calls, c.Questions - d.Questions, c.Refused - d.Refused}
}

// Tape is a session of the log, read once, to be judged under several configurations. Not safe for concurrent use.
type Tape struct {
	log       *store.Reader
	session   session.Session
	entries   []audit.Entry
	cut       bool // the session has more entries
	archived  *audit.Archived
	approvals map[string]approval.Approval
	payloads  map[string][]byte
	keeps     *int64 // how many bytes of bodies may still be kept
}

// Load reads the entries of a session, at most most of them. Keeps is how many bytes of bodies that stand apart from the entries may be kept in memory;
// tapes can share it.
func Load(ctx context.Context, log *store.Reader, id string, most int, keeps *int64) (*Tape, error) {
	s, err := log.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	t := &Tape{log: log, session: s, archived: log.Archived(audit.Filter{From: s.OpenedAt}), approvals: map[string]approval.Approval{}, payloads: map[string][]byte{}, keeps: keeps}
	for f := (audit.Filter{Session: id, Limit: 1000}); ; {
		page, next, err := log.Entries(ctx, f)
		if err != nil {
			return nil, err
		}
		if t.entries = append(t.entries, page...); len(t.entries) > most {
			t.entries, t.cut = t.entries[:most], true
			return t, nil
		}
		if next < 0 {
			return t, nil
		}
		f.Min = next + 1
	}
}

// Recorded are the entries in their order. whole is false where the first ones were archived.
func (t *Tape) Recorded() (entries []audit.Entry, whole bool) { return t.entries, t.archived == nil }

// Cut reports whether the session has entries that were not read.
func (t *Tape) Cut() bool { return t.cut }

// Session returns the session.
func (t *Tape) Session(context.Context, string) (session.Session, error) { return t.session, nil }

// Archived says what of the session was archived.
func (t *Tape) Archived(audit.Filter) *audit.Archived { return t.archived }

// Entries returns all entries at once.
func (t *Tape) Entries(context.Context, audit.Filter) ([]audit.Entry, int64, error) {
	return t.entries, -1, nil
}

// Approval reads an approval, once.
func (t *Tape) Approval(ctx context.Context, id string) (approval.Approval, error) {
	if a, ok := t.approvals[id]; ok {
		return a, nil
	}
	a, err := t.log.Approval(ctx, id)
	if err == nil || fault.Is(err, fault.NotFound) {
		t.approvals[id] = a
		return a, nil
	}
	return a, err
}

// Payload reads a body, once.
func (t *Tape) Payload(ctx context.Context, key string) ([]byte, error) {
	if b, ok := t.payloads[key]; ok {
		return b, nil
	}
	b, err := t.log.Payload(ctx, key)
	if n := int64(len(b)); err == nil && *t.keeps >= n {
		t.payloads[key], *t.keeps = b, *t.keeps-n
	}
	return b, err
}

// Count judges the session under a configuration that enforces, and counts the calls of tools that were made since a time. Besides the flow rules it asks
// whether an entry covers the operation, and how risky the call is. What another stage refused then (permission, limits, phase …) is left out: a label
// changes nothing about it.
func (t *Tape) Count(ctx context.Context, c Config, since time.Time) (Counted, error) {
	p, err := replayed(ctx, t, c, t.session.ID, true)
	if err != nil {
		return Counted{}, err
	}
	var n Counted
	waits := map[string]bool{}
	for _, call := range p.order {
		if call.Now == nil || call.Then.Decision == "deny" && call.Then.Stage != "flow" {
			continue
		}
		key := call.Operation + "\x00" + string(call.args)
		repeated := waits[key]
		waits[key] = call.Now.Decision == provenance.Ask && !p.ran[call.CallID]
		if call.At.Before(since) || repeated {
			continue
		}
		n.Calls++
		switch call.Now.Decision {
		case provenance.Ask:
			n.Questions++
		case provenance.Deny:
			n.Refused++
		}
	}
	return n, nil
}

// beyondFlow adds what two more stages say of a call that the flow rules do not refuse: whether an entry covers the operation, and the risk. What an
// agent uses for the first time, which raises the risk of some calls, is not judged anew.
func (p *player) beyondFlow(t tool, c *pastCall, r provenance.Ruling) provenance.Ruling {
	server, name, _ := strings.Cut(c.Operation, ".")
	class := p.config.Classify(server, name)
	if r.Verdict == provenance.Deny {
		return r
	}
	if !class.Listed && p.config.Unlisted == "deny" {
		r.Verdict, r.Reason = provenance.Deny, "no entry under operations names it"
		return r
	}
	f := p.facts(t, c.args, c.method == "call")
	rules := p.rules
	rules.Risk, f.Rules = p.config.Risk, &rules
	f.Caller.AskFrom = policy.High
	f.Session.Plan = p.plan
	f.Operation.Server, f.Operation.AskFirst = server, !class.Listed
	f.Operation.Action, f.Operation.RiskFloor, f.Operation.Unclassified, f.Operation.Roles = class.Action, class.RiskFloor, class.Unclassified, class.Roles
	f.Arguments.Acts = class.Reading(server, name).Acts(c.args)
	if t.op.Effect != flow.Read {
		f.Arguments.Acts = ""
	}
	f.Arguments.Writes = t.op.Effect == flow.Write || f.Arguments.Acts != ""
	if f.Arguments.Writes && f.Operation.Level == 0 {
		f.Operation.Level = 2
	}
	f.Evidence.Ruling = &r
	if p.config.Unlisted == "ask_once" && p.covered[c.Operation] {
		f.Evidence.CoveredBy = c.Operation
	}
	f.Evidence.Step, f.Evidence.Follows = p.sealed.Follow(c.Operation, t.profile, c.args, p.evidence)
	if v := judge.Unlisted(&f); v.Decision == fault.Ask {
		r.Verdict, r.Reason = provenance.Ask, v.Reason
		return r
	}
	v, found := judge.StepRisk(&f)
	switch {
	case v.Decision == fault.Deny:
		r.Verdict, r.Reason = provenance.Deny, v.Reason
	case v.Decision == fault.Ask && !found.Silence && r.Verdict == provenance.Permit:
		r.Verdict, r.Reason = provenance.Ask, v.Reason
	}
	return r
}

// Called are the operations of the session's calls since a time.
func (t *Tape) Called(since time.Time) []string {
	all := map[string]bool{}
	for _, e := range t.entries {
		if e.CallID != "" && !e.At.Before(since) {
			all[e.Operation] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
