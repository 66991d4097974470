package console

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/monitor"
)

// windows are the times that pages can show, with the hours of one bar. The first is the last hour, by monitor.Fine, which only the overview can show.
var windows = []window{{"1h", 0, 1}, {"24h", 24, 1}, {"7d", 7 * 24, 6}}

type window struct {
	Name         string
	hours, inBar int
}

// windowOf is the window of these with the name, the one of a day if there is none of it.
func windowOf(name string, known []window) window {
	if i := slices.IndexFunc(known, func(w window) bool { return w.Name == name }); i >= 0 {
		return known[i]
	}
	return windows[1]
}

// since is the beginning of its first hour.
func (w window) since(now time.Time) time.Time {
	return now.Add(-time.Duration(w.hours-1) * time.Hour).UTC().Truncate(time.Hour)
}

// activity is what happened in a span, by the counters of the log.
type activity struct {
	Span  string
	Spans []window
	From  time.Time // of the first bar
	To    int64     // the entry up to which was counted

	Ran, Silent, Asked, Refused, Failed, Approved, Rejected int64

	Share   int64 // of the answers, in per cent, that were a yes; -1: there were none
	Bars    template.HTML
	Agents  []agentActivity
	Blocked []blockedFor
	Unasked []ranUnasked
	Rules   rulesOf
}

// ranUnasked is an operation whose calls ran without anybody being asked.
type ranUnasked struct {
	Operation, Label string // how its arguments are classified; "": the catalogue doesn't have it
	Count            int64
	Path             string // of the page of the log with its calls
}

// rulesOf are the rules that asked most, and how fast people answered.
type rulesOf struct {
	Rules  []askedFor
	Median string // from a question to the answer that decided it; "": nobody answered
	Of     int    // the newest questions, where there were more; 0: all
}

// agentActivity is what one agent did.
type agentActivity struct {
	ID                          string
	Ran, Asked, Refused, Failed int64
	State                       string // running, degraded, stopped, quarantined; "": it is not declared
	Reason                      string // of the person who stopped it or put it in quarantine, as they wrote it; of a degraded one, who is aside
	Blocked                     string // why most of its calls were refused; "": none was
	Spark                       template.HTML
}

// figure is a number of calls with the page of the log that has them.
type figure struct {
	Count      int64
	Word, Path string
}

// figures are what ran, was asked, refused and failed since a time, of one agent, "": of all.
func figures(since time.Time, agent string, ran, asked, refused, failed int64) []figure {
	from := since.UTC().Format(time.RFC3339)
	return []figure{
		{ran, "ran", link("/audit", "agent", agent, "kind", "outcome", "decision", "ok", "from", from)},
		{asked, "asked", link("/audit", "agent", agent, "action", "approval.ask", "from", from)},
		{refused, "refused", link("/audit", "agent", agent, "decision", "deny", "from", from)},
		{failed, "failed", link("/audit", "agent", agent, "kind", "outcome", "decision", "error", "from", from)},
	}
}

func (a activity) Figures() []figure {
	return figures(a.From, "", a.Ran, a.Asked, a.Refused, a.Failed)
}

// Figures are the columns of the table.
func (a agentActivity) Figures(since time.Time) []figure {
	return figures(since, a.ID, a.Ran, a.Asked, a.Refused, a.Failed)
}

// blockedFor is one reason for which calls were refused.
type blockedFor struct {
	Count  int64
	Code   string
	Words  string
	Agents string
}

const (
	shownAgents  = 20
	shownBlocked = 8
	shownNames   = 3 // agents of one reason
	shownRules   = 4
	shownUnasked = 4
	// countedQuestions bounds the questions that the overview counts by rules: they are read from the store.
	countedQuestions = 200
)

// refusedFor are the reasons of refusals, in few words.
var refusedFor = map[fault.Code]string{
	fault.FlowContaminated: "after private data", fault.FlowUntrusted: "unconfirmed values", fault.PermissionDenied: "not permitted", fault.KillSwitch: "the agent was stopped",
	fault.AgentQuarantined: "the agent is quarantined", fault.LimitRate: "too many calls", fault.LimitQuota: "a quota was used up", fault.PhaseBlocked: "before a plan was approved",
	fault.DeclarationMissing: "no reason given", fault.ApprovalRejected: "a person said no", fault.ApprovalExpired: "nobody answered in time", fault.ToolQuarantined: "the tool changed",
	fault.ToolUnknown: "no such tool", fault.SessionClosed: "the session was closed", fault.EgressBlocked: "the address is not allowed", fault.PlanMismatch: "not in the plan",
	fault.RequestMalformed: "malformed", fault.BreakerOpen: "a circuit breaker was open", fault.ThreatInjection: "looked like orders", fault.ModelUndeclared: "the model is not declared", fault.ModelHostedTool: "a tool that the provider runs",
}

// activityOf is what happened in the span with the name, the first one if there is none of it.
func (c *Console) activityOf(name string) *activity {
	if c.o.Counters == nil {
		return nil
	}
	s := windowOf(name, windows)
	a := &activity{Span: s.Name, Spans: windows, Share: -1}
	var slots []monitor.Slot
	if s.hours == 0 {
		slots, a.To = c.o.Counters.Lately()
	} else {
		slots, a.To = c.o.Counters.Since(s.since(c.o.Clock()))
	}
	if len(slots) > 0 {
		a.From = slots[0].Start
	}
	agents := map[string]*agentActivity{}
	of := func(id string) *agentActivity {
		if agents[id] == nil {
			agents[id] = &agentActivity{ID: id}
		}
		return agents[id]
	}
	blocked := map[string]map[string]int64{} // code -> agent -> refusals
	counts, unasked := monitor.Total(slots)
	for k, n := range counts {
		one := &agentActivity{}
		if k.Agent != "" {
			one = of(k.Agent)
		}
		switch k.What {
		case monitor.Ran:
			a.Ran, one.Ran = a.Ran+n, one.Ran+n
		case monitor.Silent:
			a.Silent += n
		case monitor.Asked:
			a.Asked, one.Asked = a.Asked+n, one.Asked+n
		case monitor.Approved:
			a.Approved += n
		case monitor.Rejected:
			a.Rejected += n
		case monitor.Failed:
			a.Failed, one.Failed = a.Failed+n, one.Failed+n
		case monitor.Refused:
			a.Refused, one.Refused = a.Refused+n, one.Refused+n
			if blocked[k.Code] == nil {
				blocked[k.Code] = map[string]int64{}
			}
			blocked[k.Code][k.Agent] += n
		}
	}
	if answers := a.Approved + a.Rejected; answers > 0 {
		a.Share = 100 * a.Approved / answers
	}
	a.Bars = bars("calls", slots, s.inBar, "", 560, 72)
	c.declaredAgents(of)
	for id, why := range mostly(blocked) {
		of(id).Blocked = why
	}
	for _, one := range agents {
		a.Agents = append(a.Agents, *one)
	}
	slices.SortFunc(a.Agents, func(x, y agentActivity) int {
		return cmp.Or(cmp.Compare(y.Refused+y.Asked, x.Refused+x.Asked), cmp.Compare(y.Ran, x.Ran), strings.Compare(x.ID, y.ID))
	})
	a.Agents = a.Agents[:min(len(a.Agents), shownAgents)]
	for i := range a.Agents {
		a.Agents[i].Spark = bars("", slots, s.inBar, a.Agents[i].ID, 96, 18)
	}
	a.Blocked = reasonsOf(blocked)
	delete(unasked, monitor.Others) // no page has them
	for operation, n := range unasked {
		a.Unasked = append(a.Unasked, ranUnasked{Operation: operation, Count: n, Path: link("/audit", "kind", "intent", "operation", operation, "from", a.From.UTC().Format(time.RFC3339))})
	}
	slices.SortFunc(a.Unasked, func(x, y ranUnasked) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), strings.Compare(x.Operation, y.Operation))
	})
	a.Unasked = a.Unasked[:min(len(a.Unasked), shownUnasked)]
	return a
}

// classify adds the label of an operation that ran unasked.
func (a *activity) classify(t catalogue.ToolView) {
	for i := range a.Unasked {
		if a.Unasked[i].Operation == t.Operation {
			a.Unasked[i].Label = toolRow{ToolView: t}.Labelled()
		}
	}
}

// askedIn adds the rules that asked in the span.
func (c *Console) askedIn(ctx context.Context, a *activity) error {
	figures, err := c.o.Gateway.Desk().RuleFigures(ctx, a.From, countedQuestions)
	if err != nil {
		return err
	}
	for _, rule := range figures.Rules[:min(len(figures.Rules), shownRules)] {
		a.Rules.Rules = append(a.Rules.Rules, askedOf(rule))
	}
	if figures.Answered > 0 {
		a.Rules.Median = length(figures.Median)
	}
	if figures.Cut {
		a.Rules.Of = figures.Questions
	}
	return nil
}

// declaredAgents adds those that did nothing, and says how each stands.
func (c *Console) declaredAgents(of func(id string) *agentActivity) {
	switches := c.o.Gateway.Standing().KillStatus()
	for _, d := range c.o.Agents().All() {
		one := of(d.AgentID)
		one.State = "running"
		if missed := c.o.Gateway.Degraded(d.AgentID); missed != nil {
			one.State, one.Reason = "degraded", missed.By+" is aside, since "+missed.Why
		}
		if q, aside := c.o.Gateway.Standing().Quarantined(d.AgentID); aside {
			one.State, one.Reason = "quarantined", q.Reason
		}
		if own := switches.Agents[d.AgentID]; own.Active {
			one.State, one.Reason = "stopped", own.Reason
		} else if switches.Global.Active {
			one.State, one.Reason = "stopped", switches.Global.Reason
		}
	}
}

// wordsFor is the reason of refusals with the code, in few words.
func wordsFor(code string) string {
	return cmp.Or(refusedFor[fault.Code(code)], code, "other")
}

// mostly says for each agent for which reason most of its calls were refused.
func mostly(blocked map[string]map[string]int64) map[string]string {
	why, most := map[string]string{}, map[string]int64{}
	for _, code := range slices.Sorted(maps.Keys(blocked)) {
		for agent, n := range blocked[code] {
			if agent != "" && n > most[agent] {
				why[agent], most[agent] = wordsFor(code), n
			}
		}
	}
	return why
}

// reasonsOf lists why calls were refused, the most frequent first.
func reasonsOf(blocked map[string]map[string]int64) (all []blockedFor) {
	for code, agents := range blocked {
		b := blockedFor{Code: code, Words: wordsFor(code)}
		var names []string
		for id, n := range agents {
			if b.Count += n; id != "" {
				names = append(names, id)
			}
		}
		slices.Sort(names)
		if len(names) > shownNames {
			names = append(names[:shownNames], fmt.Sprintf("%d more", len(names)-shownNames))
		}
		b.Agents = strings.Join(names, ", ")
		all = append(all, b)
	}
	slices.SortFunc(all, func(x, y blockedFor) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), strings.Compare(x.Code, y.Code))
	})
	return all[:min(len(all), shownBlocked)]
}

// bars draws what happened, so many slots a bar: refused and failed on top, then what was asked, then what ran; of one agent, "": of all.
// With an id the picture speaks for itself, without one it is decoration beside its figures.
func bars(id string, slots []monitor.Slot, inBar int, agent string, width, height float64) template.HTML {
	type sums struct{ ran, asked, refused int64 }
	var all []sums
	most := int64(1)
	for i, h := range slots {
		if i%inBar == 0 {
			all = append(all, sums{})
		}
		s := &all[len(all)-1]
		for k, n := range h.Counts {
			if agent != "" && k.Agent != agent {
				continue
			}
			switch k.What {
			case monitor.Ran:
				s.ran += n
			case monitor.Asked:
				s.asked += n
			case monitor.Refused, monitor.Failed:
				s.refused += n
			}
		}
		most = max(most, s.ran+s.asked+s.refused)
	}
	p := picture{Class: "bars", ID: id, Title: "Calls over time", Width: int(width), Height: int(height)}
	var words []string
	step := width / float64(max(len(all), 1))
	for i, s := range all {
		x, y := float64(i)*step, height
		at := slots[i*inBar].Start.Format("2 Jan 15:04")
		tip := fmt.Sprintf("%s: %d ran, %d asked, %d refused or failed", at, s.ran, s.asked, s.refused)
		if s.ran+s.asked+s.refused > 0 {
			words = append(words, tip+".")
		}
		for _, part := range []struct {
			class string
			n     int64
		}{{"bar ran", s.ran}, {"bar asked", s.asked}, {"bar refused", s.refused}} {
			if part.n == 0 {
				continue
			}
			h := max(float64(part.n)/float64(most)*(height-4), 1)
			y -= h
			p.rect(part.class, tip, x+0.5, y, max(step-1, 1), h)
		}
	}
	p.rect("bar ground", "", 0, height-1, width, 1)
	if len(words) == 0 {
		words = []string{"Nothing happened."}
	}
	p.Desc = strings.Join(words, " ")
	return p.render()
}
