package monitor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// AlertKind is what an alert is about.
type AlertKind string

const (
	Injections AlertKind = "injection_attempts" // more than InjectionsAnHour (AU-4)
	Violations AlertKind = "access_violations"  // more than ViolationsAnHour (AU-4)
	Quota      AlertKind = "quota"              // 80 % of a quota is used (AU-4)
	Timeout    AlertKind = "timeout"            // a run or a call reached its time limit (AU-4, AG-8)
	LogDamage  AlertKind = "log_damage"         // a start found a log that does not go on from its anchor
)

// AlertKinds are all of them.
var AlertKinds = []AlertKind{Injections, Violations, Quota, Timeout, LogDamage}

const (
	// InjectionsAnHour and ViolationsAnHour are how many of them within an hour raise no alert yet.
	InjectionsAnHour = 5
	ViolationsAnHour = 10

	alertWindow   = time.Hour
	maxAlerts     = 1000 // resolved ones that are kept in memory; the log has them all
	maxOpenAlerts = 500  // of one kind; what happens beyond them counts for one of these
	maxInvolved   = 50   // agents of one alert that are counted apart
	keptCalls     = 64   // calls of a kind that are known again, so that a call counts once
)

// AlertState is how far an alert is.
type AlertState string

const (
	AlertOpen         AlertState = "open"
	AlertAcknowledged AlertState = "acknowledged" // a person looks after it
	AlertResolved     AlertState = "resolved"
)

// AlertStates are all of them.
var AlertStates = []AlertState{AlertOpen, AlertAcknowledged, AlertResolved}

// The actions of entries about alerts.
const (
	ActionOpenAlert        = "alert.open"
	ActionAcknowledgeAlert = "alert.acknowledge"
	ActionResolveAlert     = "alert.resolve"

	actionRunTimeout = "run.timeout"
)

// Alert is something that people should look at, and what they did about it. All of it follows from the log.
type Alert struct {
	ID    string
	Kind  AlertKind
	State AlertState
	// Involved says how many of the events each agent caused. What came without an agent counts for the credential that acted.
	Involved map[string]int64
	Entry    int64     // of the event that met the rule
	First    time.Time // the oldest event that counted by then
	Due      time.Time // the event that met the rule
	Detected time.Time // when it was raised; zero while that is not on record
	Last     time.Time // the newest event so far
	Text     string    // of a quota, a time limit or a log: what the first event says
	Run      bool      // of a time limit: it was a run's

	Acknowledged   time.Time
	AcknowledgedBy string
	Comment        string
	// Contained is when everything involved was stopped or quarantined, or the gateway itself ended the matter; zero: not yet.
	Contained   time.Time
	ContainedBy string
	Resolved    time.Time
	ResolvedBy  string
	Reason      string

	stopped map[string]bool // of those involved: who was stopped or quarantined since
}

// Critical tells whether the alert is an incident that needs people. The gateway itself bounds the others: it refuses what is over a quota, and ends what takes too long.
func (a *Alert) Critical() bool { return a.Kind != Quota && a.Kind != Timeout }

// Count is how many events the alert has.
func (a *Alert) Count() (n int64) {
	for _, of := range a.Involved {
		n += of
	}
	return n
}

// Title says what the alert is about.
func (a *Alert) Title() string {
	switch a.Kind {
	case Injections:
		return fmt.Sprintf("%d injection attempts", a.Count())
	case Violations:
		return fmt.Sprintf("%d access violations", a.Count())
	case Quota:
		return a.whom() + ": " + a.Text
	case Timeout:
		return a.whom() + " reached a time limit"
	}
	return "The log does not go on from its anchor"
}

// Explanation says when such an alert is raised, and what happened.
func (a *Alert) Explanation() string {
	switch a.Kind {
	case Injections:
		return fmt.Sprintf("Raised for more than %d within an hour. Screening found orders to an agent in what agents read, wrote or were asked.", InjectionsAnHour)
	case Violations:
		return fmt.Sprintf("Raised for more than %d within an hour. Something was tried without a valid credential, or without the permission for it.", ViolationsAnHour)
	case Quota:
		return "Raised at 80 % of a quota. At 100 % the gateway refuses what is beyond it."
	case Timeout:
		return "The gateway ended it and discarded what it had. " + a.Text
	}
	return a.Text
}

// Who names who is involved in an alert for people.
func Who(involved string) string {
	if strings.HasPrefix(involved, "unknown:") {
		return "requests without a valid credential"
	}
	return identity.Shown(involved)
}

// whom names who is involved.
func (a *Alert) whom() string {
	all := slices.Sorted(maps.Keys(a.Involved))
	for i, who := range all {
		all[i] = Who(who)
	}
	if more := len(all) - 3; more > 0 {
		all = append(all[:3:3], fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

// Responded is when somebody or something ended the danger: the containment or the resolution, whichever came first; zero: not yet.
func (a *Alert) Responded() time.Time {
	if a.Contained.IsZero() || !a.Resolved.IsZero() && a.Resolved.Before(a.Contained) {
		return a.Resolved
	}
	return a.Contained
}

// Involved is who caused how many events of an alert.
type Involved struct {
	Who    string // an agent, or the credential that acted as kind:id
	Events int64
}

// Most are those involved, who caused most first.
func (a *Alert) Most() []Involved {
	all := make([]Involved, 0, len(a.Involved))
	for who, n := range a.Involved {
		all = append(all, Involved{who, n})
	}
	slices.SortFunc(all, func(a, b Involved) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Who, b.Who))
	})
	return all
}

// clone is a copy that shares nothing that changes.
func (a *Alert) clone() Alert {
	c := *a
	c.Involved, c.stopped = maps.Clone(a.Involved), nil
	return c
}

// opened is the detail of the entry that opens an alert: enough to know it again without the events before.
type opened struct {
	ID       string           `json:"alert_id"`
	Kind     AlertKind        `json:"kind"`
	Entry    int64            `json:"entry"`
	First    time.Time        `json:"first_event_at"`
	Due      time.Time        `json:"event_at"`
	Involved map[string]int64 `json:"involved"`
	Stopped  []string         `json:"stopped,omitempty"` // of those involved, who was stopped or quarantined before the alert was on record
	Text     string           `json:"text,omitempty"`
}

// event is something that counts towards an alert.
type event struct {
	at  time.Time
	who string
	n   int64
}

// alerts is the fold of the log over alerts. Who holds the counters' mutex uses it.
type alerts struct {
	log    map[string]*Alert // by ID, that are on record
	due    []*Alert          // that are not on record yet
	recent map[AlertKind][]event
	calls  map[AlertKind][]string // that counted lately, the newest last
}

func newAlerts() alerts {
	return alerts{log: map[string]*Alert{}, recent: map[AlertKind][]event{}, calls: map[AlertKind][]string{}}
}

// concern is that an entry counts n times towards an alert.
type concern struct {
	kind     AlertKind
	n, limit int64 // limit: how many within an hour raise none; 0: the first one does
}

// concerns says towards which alerts an entry counts, and when that happened. A refusal in which screening found something counts towards both, so that
// nobody hides what it tried behind a hit.
func concerns(e *audit.Entry) (all []concern, at time.Time) {
	n, hits, at := int64(1), int64(1), e.At
	if e.Action == audit.Folded {
		n, hits, at = folded(e)
	}
	meaning := e.Event
	if meaning == audit.ThreatHit {
		if meaning = audit.EventOf(e.Code); meaning != audit.InjectionFound {
			all = append(all, concern{Injections, hits, InjectionsAnHour})
		}
	}
	switch {
	case meaning == audit.InjectionFound:
		all = append(all, concern{Injections, n, InjectionsAnHour})
	case meaning == audit.AccessViolation && !e.Shadow, meaning == audit.CredentialRefused:
		all = append(all, concern{Violations, n, ViolationsAnHour})
	case e.Kind == audit.Change && e.Action == "quota.80":
		all = append(all, concern{Quota, n, 0})
	case e.Action == actionRunTimeout, e.Kind == audit.Outcome && e.Code == string(fault.TimeExceeded):
		all = append(all, concern{Timeout, n, 0})
	case e.Action == "anchor.behind", e.Action == "anchor.forked":
		all = append(all, concern{LogDamage, n, 0})
	}
	return all, at
}

// folded is how many refusals an entry stands for, how many of them had a hit of screening, and when the last one was.
func folded(e *audit.Entry) (n, hits int64, last time.Time) {
	var detail struct {
		Count int64     `json:"count"`
		Hits  int64     `json:"hits"`
		To    time.Time `json:"to"`
	}
	if json.Unmarshal(e.Detail, &detail) != nil {
		return 0, 0, e.At
	}
	if last = detail.To; last.IsZero() || last.After(e.At) {
		last = e.At
	}
	bounded := func(n int64) int64 { return min(max(n, 0), maxUse) }
	return bounded(detail.Count), bounded(detail.Hits), last
}

// add folds an entry in. Entries come in the order of the log.
func (s *alerts) add(e *audit.Entry) {
	if e.Kind == audit.Change {
		switch e.Action {
		case ActionOpenAlert:
			s.open(e)
			return
		case ActionAcknowledgeAlert, ActionResolveAlert:
			s.answered(e)
			return
		case "kill.disable", "agent.quarantine":
			s.contain(e)
			return
		case "kill.enable", "agent.restore":
			s.letGo(e)
			return
		}
	}
	all, at := concerns(e)
	for _, c := range all {
		s.count(e, c, at)
	}
}

// count counts an entry towards one alert.
func (s *alerts) count(e *audit.Entry, c concern, at time.Time) {
	kind, n := c.kind, c.n
	if n <= 0 || e.CallID != "" && slices.Contains(s.calls[kind], e.CallID) {
		return
	}
	if e.CallID != "" {
		known := append(s.calls[kind], e.CallID)
		s.calls[kind] = known[max(0, len(known)-keptCalls):]
	}
	who := cmp.Or(e.Agent, e.Actor, "gateway")
	if a := s.of(kind, who); a != nil {
		a.involve(who, n)
		if at.After(a.Last) {
			a.Last = at
		}
		return
	}
	recent := slices.DeleteFunc(append(s.recent[kind], event{at, who, n}), func(v event) bool { return !v.at.After(at.Add(-alertWindow)) })
	s.recent[kind] = recent
	var all int64
	for _, v := range recent {
		all += v.n
	}
	if all <= c.limit {
		return
	}
	delete(s.recent, kind)
	a := &Alert{
		Kind: kind, State: AlertOpen, Involved: map[string]int64{}, Entry: e.Index, First: recent[0].at, Due: at, Last: at, Text: cmp.Or(e.Reason, e.Operation), Run: e.Action == actionRunTimeout,
		stopped: map[string]bool{},
	}
	for _, v := range recent {
		a.involve(v.who, v.n)
	}
	s.due = append(s.due, a)
}

// involve counts events of an agent.
func (a *Alert) involve(who string, n int64) {
	if _, known := a.Involved[who]; !known && len(a.Involved) >= maxInvolved {
		who = Others
	}
	a.Involved[who] += n
}

// of is the alert of the kind that takes what the agent does; nil: there is none. An incident that was contained takes nothing more: whoever works again and goes on raises another.
func (s *alerts) of(kind AlertKind, who string) *Alert {
	open := 0
	var found, last *Alert
	for a := range s.unresolved() {
		if a.Kind != kind || a.Critical() && !a.Contained.IsZero() {
			continue
		}
		if _, is := a.Involved[who]; is {
			found = a
		}
		open++
		if last == nil || a.Entry > last.Entry {
			last = a
		}
	}
	if found == nil && open >= maxOpenAlerts {
		return last
	}
	return found
}

// unresolved are the alerts that nobody has resolved, those that are not on record yet too.
func (s *alerts) unresolved() iter.Seq[*Alert] {
	return func(yield func(*Alert) bool) {
		for _, a := range s.due {
			if !yield(a) {
				return
			}
		}
		for _, a := range s.log {
			if a.State != AlertResolved && !yield(a) {
				return
			}
		}
	}
}

// open takes over that an alert is on record.
func (s *alerts) open(e *audit.Entry) {
	var d opened
	if json.Unmarshal(e.Detail, &d) != nil || d.ID == "" || s.log[d.ID] != nil {
		return
	}
	a := &Alert{Kind: d.Kind, State: AlertOpen, Entry: d.Entry, First: d.First, Due: d.Due, Last: d.Due, Text: d.Text, Involved: map[string]int64{}, stopped: map[string]bool{}}
	involves := func(who string) bool { _, is := d.Involved[who]; return is }
	known := false
	s.due = slices.DeleteFunc(s.due, func(due *Alert) bool {
		if due.Kind == d.Kind && due.Entry == d.Entry {
			a, known = due, true
			return true
		}
		// The first events were not read again, so it was taken to be due later than it was.
		return due.Kind == d.Kind && slices.ContainsFunc(slices.Collect(maps.Keys(due.Involved)), involves)
	})
	if !known { // otherwise those that counted are gone, and what is there is of others
		s.recent[d.Kind] = slices.DeleteFunc(s.recent[d.Kind], func(v event) bool { return !v.at.After(d.Due) || involves(v.who) })
	}
	a.First = d.First
	for who, n := range d.Involved {
		a.Involved[who] = max(a.Involved[who], n)
	}
	for _, who := range d.Stopped {
		a.stopped[who] = true
	}
	a.ID, a.Detected = d.ID, e.At
	switch {
	case !a.Critical():
		a.Contained, a.ContainedBy = e.At, "gateway"
	case len(a.stopped) == len(a.Involved): // before it was on record
		a.Contained = e.At
	}
	s.log[a.ID] = a
	s.forget()
}

// forget drops the oldest resolved alerts that are too many.
func (s *alerts) forget() {
	var resolved []*Alert
	for _, a := range s.log {
		if a.State == AlertResolved {
			resolved = append(resolved, a)
		}
	}
	if len(resolved) <= maxAlerts {
		return
	}
	slices.SortFunc(resolved, func(a, b *Alert) int { return a.Detected.Compare(b.Detected) })
	for _, a := range resolved[:len(resolved)-maxAlerts] {
		delete(s.log, a.ID)
	}
}

// answer is the detail of an entry about what a person does with an alert.
type answer struct {
	ID string `json:"alert_id"`
}

func (s *alerts) answered(e *audit.Entry) {
	var d answer
	if json.Unmarshal(e.Detail, &d) != nil {
		return
	}
	a := s.log[d.ID]
	switch {
	case a == nil || a.State == AlertResolved:
	case e.Action == ActionAcknowledgeAlert:
		if a.State == AlertOpen {
			a.State, a.Acknowledged, a.AcknowledgedBy, a.Comment = AlertAcknowledged, e.At, e.Actor, e.Reason
		}
	default:
		a.State, a.Resolved, a.ResolvedBy, a.Reason = AlertResolved, e.At, e.Actor, e.Reason
	}
}

// contain takes over that an agent, or all of them, were stopped or put aside.
func (s *alerts) contain(e *audit.Entry) {
	for a := range s.unresolved() {
		if !a.Contained.IsZero() {
			continue
		}
		for who := range a.Involved {
			if e.Agent == "" || e.Agent == who {
				a.stopped[who] = true
			}
		}
		if len(a.stopped) == len(a.Involved) && a.ID != "" {
			a.Contained, a.ContainedBy = e.At, e.Actor
		}
	}
}

// letGo takes over that an agent, or all of them, work again: an incident that was not contained by then needs them stopped anew.
func (s *alerts) letGo(e *audit.Entry) {
	for a := range s.unresolved() {
		if a.Contained.IsZero() {
			maps.DeleteFunc(a.stopped, func(who string, _ bool) bool { return e.Agent == "" || e.Agent == who })
		}
	}
}

// entry opens the alert under the id. It names no agent but in its detail, so that it waits in no agent's line to the store.
func (a *Alert) entry(id string) audit.Entry {
	detail, _ := json.Marshal(opened{id, a.Kind, a.Entry, a.First, a.Due, a.Involved, slices.Sorted(maps.Keys(a.stopped)), a.Text}) // of plain values: can't fail
	return audit.Entry{Kind: audit.Change, Action: ActionOpenAlert, Actor: "rule:" + string(a.Kind), Decision: "ok", Reason: audit.Clip(a.Title()), Detail: detail}
}

// raise puts what is due on record.
func (c *Counters) raise(ctx context.Context) error {
	c.acts.Lock()
	defer c.acts.Unlock()
	if err := c.CatchUp(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	var entries []audit.Entry
	raised := map[string]bool{}
	for _, a := range c.alerts.due {
		id := call.NewID("alert_", c.now())
		entries, raised[id] = append(entries, a.entry(id)), true
	}
	c.mu.Unlock()
	if len(entries) > 0 {
		if err := c.log.Record(ctx, entries...); err != nil {
			return err
		}
		if err := c.CatchUp(ctx); err != nil {
			return err
		}
	}
	if c.onAlert == nil || len(entries) == 0 && c.told {
		return nil
	}
	for _, a := range slices.Backward(c.Alerts("")) {
		if raised[a.ID] || !c.told && a.State == AlertOpen && a.Critical() { // who stopped the gateway may have kept it from telling people
			c.onAlert(a)
		}
	}
	c.told = true
	return nil
}

// OnAlert has f called for each alert that is raised from now on, and once for each open incident that there was before. It has to be set before Run.
func (c *Counters) OnAlert(f func(Alert)) { c.onAlert = f }

// Alerts are the alerts of a state that are on record, or with "" those of every state: the newest first.
func (c *Counters) Alerts(state AlertState) []Alert {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []Alert{}
	for _, a := range c.alerts.log {
		if state == "" || a.State == state {
			all = append(all, a.clone())
		}
	}
	slices.SortFunc(all, func(a, b Alert) int {
		return cmp.Or(b.Detected.Compare(a.Detected), cmp.Compare(b.Entry, a.Entry), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// Unresolved is how many alerts of each kind nobody has resolved.
func (c *Counters) Unresolved() map[AlertKind]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := map[AlertKind]int{}
	for _, a := range c.alerts.log {
		if a.State != AlertResolved {
			counts[a.Kind]++
		}
	}
	return counts
}

// Alert is one alert. An unknown one is fault.NotFound.
func (c *Counters) Alert(id string) (Alert, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.alerts.log[id]
	if a == nil {
		return Alert{}, fault.New(fault.NotFound, "There is no alert %.80q.", id).Try("List them with sallyport alerts list.")
	}
	return a.clone(), nil
}

// Acknowledge notes that a person looks after an alert. The comment may be empty. One that is acknowledged or resolved is a fault.Conflict.
func (c *Counters) Acknowledge(ctx context.Context, id, comment, by string) (Alert, error) {
	return c.answer(ctx, id, comment, by, ActionAcknowledgeAlert)
}

// Resolve ends an alert, for a reason. One that is resolved is a fault.Conflict. What happens after it counts towards a new one.
func (c *Counters) Resolve(ctx context.Context, id, reason, by string) (Alert, error) {
	if strings.TrimSpace(reason) == "" {
		return Alert{}, fault.New(fault.RequestMalformed, "say what was done about the alert").At("reason")
	}
	return c.answer(ctx, id, reason, by, ActionResolveAlert)
}

func (c *Counters) answer(ctx context.Context, id, words, by, action string) (Alert, error) {
	c.acts.Lock()
	defer c.acts.Unlock()
	if err := c.CatchUp(ctx); err != nil {
		return Alert{}, err
	}
	a, err := c.Alert(id)
	switch {
	case err != nil:
		return a, err
	case a.State == AlertResolved:
		return a, fault.New(fault.Conflict, "The alert was resolved by %s at %s.", a.ResolvedBy, a.Resolved.UTC().Format(time.RFC3339))
	case a.State == AlertAcknowledged && action == ActionAcknowledgeAlert:
		return a, fault.New(fault.Conflict, "The alert was acknowledged by %s at %s.", a.AcknowledgedBy, a.Acknowledged.UTC().Format(time.RFC3339)).Try("Resolve it once it is dealt with.")
	}
	detail, _ := json.Marshal(answer{id}) // of a string: can't fail
	e := audit.Entry{Kind: audit.Change, Action: action, Actor: by, Decision: "ok", Reason: audit.Clip(words), Detail: detail}
	if err := c.log.Record(ctx, e); err != nil {
		return a, err
	}
	if err := c.CatchUp(ctx); err != nil {
		return a, err
	}
	return c.Alert(id)
}

// answering are the actions of which an alert's state is made.
var answering = []string{ActionOpenAlert, ActionAcknowledgeAlert, ActionResolveAlert, "kill.disable", "agent.quarantine", "kill.enable", "agent.restore"}

// begin reads what became of alerts before what is counted, so that one that waits since then is still known.
func (c *Counters) begin(ctx context.Context) error {
	before := c.oldest()
	var all []audit.Entry
	for _, action := range answering {
		for from := int64(0); ; {
			page, next, err := c.log.Entries(ctx, audit.Filter{Kind: string(audit.Change), Action: action, To: before, Min: from, Limit: pageSize})
			if err != nil {
				return err
			}
			all = append(all, page...)
			if next < 0 {
				break
			}
			from = next + 1
		}
	}
	slices.SortFunc(all, func(a, b audit.Entry) int { return cmp.Compare(a.Index, b.Index) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range all {
		c.alerts.add(&all[i])
	}
	return nil
}
