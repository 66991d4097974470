package console

import (
	"context"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
	"sallyport.example/internal/timeline"
	"sallyport.example/provenance"
)

const (
	pageOfSessions = 50
	// maxMoments bounds what one timeline shows; the newest are.
	maxMoments = 60
	// historyEntries is how many entries a timeline is made of. Finding them is what the page costs: where one entry in a hundred is the session's, each takes reading a
	// hundred. A call has two or three.
	historyEntries = 2 * maxMoments
	// historySearch bounds how many entries of the log are searched for them. The log has an index of sessions, so most are never read.
	historySearch = 5_000_000
	// maxQuestions bounds how many of a session's questions are read; the newest are.
	maxQuestions = 200
)

// sessionsPage shows sessions, newest first.
type sessionsPage struct {
	State    session.State
	Tabs     []tab
	Sessions []sessionRow
	Aside    []session.Damaged
	After    string
	Next     string // link to the page after, or ""
	Refresh  string // this page
	Agents   bool   // at least one agent is declared
}

// sessionRow is one of them.
type sessionRow struct{ session.Session }

// tab is one choice of a list's filter.
type tab struct {
	Name, Path string
	Current    bool
}

func (c *Console) sessions(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	q := r.URL.Query()
	d := sessionsPage{State: session.State(q.Get("state")), After: q.Get("after"), Agents: len(c.o.Agents().All()) > 0}
	if d.State != "" && d.State != session.Open && d.State != session.Closed {
		c.fail(w, r, p, fault.New(fault.NotFound, "A session is open or closed.").Try("Choose one of those above the list."))
		return
	}
	page := func(state session.State, after string) string {
		return link("/sessions", "state", string(state), "after", after)
	}
	found, err := c.o.Store.SessionsPage(r.Context(), d.After, pageOfSessions+1, d.State)
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	d.Aside = found.Aside
	if len(found.Sessions) > pageOfSessions {
		found.Sessions = found.Sessions[:pageOfSessions]
		d.Next = page(d.State, found.Sessions[pageOfSessions-1].ID)
	}
	for _, s := range found.Sessions {
		d.Sessions = append(d.Sessions, sessionRow{s})
	}
	d.Refresh = page(d.State, d.After)
	for _, t := range []struct {
		name  string
		state session.State
	}{{"all", ""}, {"open", session.Open}, {"closed", session.Closed}} {
		d.Tabs = append(d.Tabs, tab{t.name, page(t.state, ""), t.state == d.State})
	}
	c.show(w, r, p, view{template: "sessions", title: "Sessions", place: "/sessions", data: d})
}

// sessionPage shows one session.
type sessionPage struct {
	sessionRow
	refusedAct
	Refresh   string
	Operator  bool
	Auditor   bool
	Missing   string
	Questions []desk.Question // those that wait, the newest
	Waits     int             // how many wait
	More      bool            // more may wait than were read
	Steps     []stepDone
	Time      timeline.Line
	Picture   template.HTML
	Small     template.HTML // the same for a phone
	Signs     []sign
	Earlier   string // link, or ""
	Newest    bool   // the timeline ends with the session's last entry
	Other     session.Phase
}

// stepDone is a step of the plan with the calls that were made for it.
type stepDone struct {
	session.Step
	Exact []piece           // its arguments, whole: the plan's digest covers them
	Calls []timeline.Moment // the newest calls for this step, oldest first
	More  int               // how many earlier calls there were
}

// Needs names the steps that come before it, counted from 0 as everywhere, or is "".
func (s stepDone) Needs() string {
	var numbers []string
	for _, i := range s.After {
		numbers = append(numbers, fmt.Sprint("step ", i))
	}
	return strings.Join(numbers, ", ")
}

// Sources says where each argument comes from that the step does not fix, and how often the step is called. The plan's digest covers all of it.
func (s stepDone) Sources() (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(s.From)) {
		from := s.From[name]
		where := "field " + strconv.Quote(from.Field)
		if from.Field == "" {
			where = "a field that may serve as " + string(from.Role)
		}
		lines = append(lines, fmt.Sprintf("%s comes from step %d: %s of one record of its result", strconv.Quote(name), from.Step, where))
	}
	for _, name := range s.Open {
		lines = append(lines, strconv.Quote(name)+" is open: the agent chooses it")
	}
	switch {
	case s.Each != nil:
		lines = append(lines, fmt.Sprintf("called once for each record of step %d", *s.Each))
	case len(lines) == 0 && s.Arguments == nil:
		lines = append(lines, "Arguments not fixed: each call is checked when it is made")
	}
	return lines
}

const callsOfStep = 5

func (c *Console) showSession(w http.ResponseWriter, r *http.Request, p identity.Principal, d sessionPage, status int) {
	ctx, id := r.Context(), r.PathValue("id")
	var err error
	if d.Session, err = c.o.Gateway.SessionByID(ctx, id); err != nil {
		c.fail(w, r, p, err)
		return
	}
	before, err := indexOf(r.URL.Query().Get("before"))
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	d.Operator, d.Auditor, d.Newest = p.Has(identity.Operator), p.Has(identity.Auditor), before < 0
	d.Other, d.Steps = timeline.Other(d.Phase), stepsDone(d.Plan, timeline.Line{}) // these stay if the log can't be read
	if d.Refresh = "/sessions/" + id; before >= 0 {
		d.Refresh += fmt.Sprintf("?before=%d", before)
	}
	if err := c.readHistory(ctx, &d, before); err != nil { // the session itself comes from memory, and people can still act on it
		d.Missing = c.missing("the timeline of session "+id, err)
	}
	c.show(w, r, p, view{template: "session", title: "Session of " + d.Agent, place: "/sessions", status: status, data: d})
}

// readHistory reads what happened in the session, before the entry with that index (-1: to the last).
func (c *Console) readHistory(ctx context.Context, d *sessionPage, before int64) error {
	ctx, cancel := context.WithTimeout(ctx, 3*storeTime)
	defer cancel()
	questions, err := c.o.Gateway.Desk().Questions(ctx, "", d.ID, "", maxQuestions)
	if err != nil {
		return err
	}
	in := timeline.History{Session: d.Session, Newest: before < 0, Most: maxMoments, Operation: c.operation(), Questions: map[string]approval.Approval{}}
	for _, q := range questions {
		in.Questions[q.ID] = q.Approval
		if q.State != approval.Pending && q.State != approval.Deferred {
			continue
		}
		if d.Waits++; len(d.Questions) < shownWaiting {
			d.Questions = append(d.Questions, q)
		}
	}
	d.More = len(questions) == maxQuestions
	f := audit.Filter{Session: d.ID, From: d.OpenedAt.Add(-time.Second)}
	found, err := c.o.Search.Newest(ctx, f, before, historyEntries, historySearch)
	if err != nil {
		return err
	}
	in.Entries, in.Whole = found.Entries, found.From < 0
	if n := len(in.Entries); n > 0 && in.Entries[0].Action == "session.open" {
		in.Whole = true
	}
	d.Time = timeline.Of(in)
	d.Steps = stepsDone(d.Plan, d.Time)
	if len(d.Time.Moments) > 0 {
		d.Picture, d.Small, d.Signs = draw(d.Time, onScreen).render(), draw(d.Time, onPhone).render(), signs
		if d.Time.Earlier {
			d.Earlier = fmt.Sprintf("/sessions/%s?before=%d", url.PathEscape(d.ID), d.Time.Moments[0].First)
		}
	} else if found.From >= 0 {
		d.Earlier = fmt.Sprintf("/sessions/%s?before=%d", url.PathEscape(d.ID), found.From)
	}
	return nil
}

// operation returns a function that looks an operation up in the catalogue.
func (c *Console) operation() func(id string) (flow.Effect, []flow.Label, []flow.Label, bool) {
	byID := map[string]catalogue.Tool{}
	for _, t := range c.o.Gateway.Catalogue().Tools() {
		byID[t.Operation] = t
	}
	return func(id string) (flow.Effect, []flow.Label, []flow.Label, bool) {
		t, ok := byID[id]
		return flow.Effect(t.Effect), t.Emits, t.BlockedBy, ok
	}
}

// stepsDone finds the calls that were made for steps of the plan: those that the session has recorded as such, and refused calls of the same
// operation, with the same arguments where the plan fixes them. Where several steps fit, such calls go to the one with the fewest.
func stepsDone(p *session.Plan, t timeline.Line) []stepDone {
	if p == nil {
		return nil
	}
	steps := make([]stepDone, len(p.Steps))
	for i, s := range p.Steps {
		steps[i].Step = s
		if s.Arguments != nil {
			steps[i].Exact = exactly(s.Arguments)
		}
	}
	for _, m := range t.Moments {
		if m.Lane == timeline.LanePeople || m.Lane == timeline.LanePlans || m.At.Before(p.Submitted) {
			continue
		}
		at := stepOf(p, steps, m)
		if at < 0 {
			continue
		}
		if steps[at].Calls = append(steps[at].Calls, m); len(steps[at].Calls) > callsOfStep {
			steps[at].Calls, steps[at].More = steps[at].Calls[1:], steps[at].More+1
		}
	}
	return steps
}

// stepOf returns the index of the step that a call was, or would have been, or -1.
func stepOf(p *session.Plan, steps []stepDone, m timeline.Moment) int {
	if i := slices.IndexFunc(p.Done, func(d provenance.Done) bool { return d.CallID == m.CallID }); i >= 0 && p.Done[i].Step < len(steps) {
		return p.Done[i].Step
	}
	if len(p.Done) > 0 && m.Fate != timeline.FateAsked && m.Fate != timeline.FateWaiting && m.Fate != timeline.FateRefused { // it ran, but not for a step
		return -1
	}
	at := -1
	for i, s := range p.Steps {
		if s.Operation == m.Operation && len(s.From) == 0 && len(s.Open) == 0 && (s.Arguments == nil || call.HashBytes(s.Arguments) == m.Arguments) &&
			(at < 0 || len(steps[at].Calls) > len(steps[i].Calls)) {
			at = i
		}
	}
	return at
}

// act does one thing to the session or agent of the path, for a reason. The result is nil if it is done.
func (c *Console) act(r *http.Request, p identity.Principal, name string, do action) *refusedAct {
	id, reason := r.PathValue("id"), r.PostForm.Get("reason")
	err := checkReason(reason)
	if err == nil {
		err = do(r.Context(), id, reason)
	}
	if err == nil {
		return nil
	}
	refused := &refusedAct{Act: name, Typed: reason}
	refused.Problem, refused.status = c.refused(r, p, err, name, "id", id)
	return refused
}

// action does something to what has the id.
type action func(ctx context.Context, id, reason string) error

// refusedAct is an act that was not done, as the page shows it.
type refusedAct struct {
	Problem *problem
	Act     string
	Typed   string // its reason, as it was typed
	status  int
}

// actOnSession shows the session after the act: again with what was wrong, or as it is by then.
func (c *Console) actOnSession(w http.ResponseWriter, r *http.Request, p identity.Principal, name string, do action) {
	if refused := c.act(r, p, name, do); refused != nil {
		c.showSession(w, r, p, sessionPage{refusedAct: *refused}, refused.status)
		return
	}
	http.Redirect(w, r, "/sessions/"+url.PathEscape(r.PathValue("id")), http.StatusSeeOther)
}

func (c *Console) closeSession(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.actOnSession(w, r, p, "close", func(ctx context.Context, id, reason string) error {
		_, err := c.o.Gateway.CloseSession(ctx, id, p.String(), reason)
		return err
	})
}

func (c *Console) setPhase(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.actOnSession(w, r, p, "phase", func(ctx context.Context, id, reason string) error {
		to, err := session.ParsePhase(r.PostForm.Get("phase"))
		if err != nil {
			return err
		}
		_, err = c.o.Gateway.SetPhase(ctx, id, to, p.String(), reason)
		return err
	})
}

// labelField is the prefix of the form fields that name labels. Each label has a field of its own, since no field may be there twice.
const labelField = "label."

func (c *Console) release(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.actOnSession(w, r, p, "release", func(ctx context.Context, id, reason string) error {
		labels, err := tickedLabels(r)
		if err == nil {
			_, err = c.o.Gateway.Release(ctx, id, labels, p.String(), reason)
		}
		return err
	})
}

// tickedLabels are the labels that a form names.
func tickedLabels(r *http.Request) (labels []flow.Label, err error) {
	for name := range r.PostForm {
		word, ok := strings.CutPrefix(name, labelField)
		if !ok {
			continue
		}
		l, err := flow.ParseLabel(word)
		if err != nil {
			return nil, fault.Wrap(err, fault.RequestMalformed, "%.80q is not a label.", word).At("labels")
		}
		labels = append(labels, l)
	}
	slices.Sort(labels)
	return labels, nil
}

// decidePlan answers a plan under the digest that was on the page.
func decidePlan(yes bool) handler {
	return func(c *Console, w http.ResponseWriter, r *http.Request, p identity.Principal) {
		c.actOnSession(w, r, p, "plan", func(ctx context.Context, id, reason string) error {
			_, err := c.o.Gateway.DecidePlan(ctx, id, r.PostForm.Get("digest"), yes, p.String(), reason)
			return err
		})
	}
}

// Spent is the time in operations that the session has used, of what it may use.
func (s sessionRow) Spent() string {
	used := length(s.Used)
	if s.Used < 10*time.Second {
		used = fmt.Sprintf("%.1f s", s.Used.Seconds())
	}
	if s.Budget == 0 {
		return used
	}
	return used + " of " + length(s.Budget)
}
