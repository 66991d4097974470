package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"sallyport.example/internal/anchor"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/breaker"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

const (
	shownSessions = 10
	shownEntries  = 12
	shownWaiting  = 5
	shownChanges  = 10
	shownSoon     = 20 // of those that silence permits
	maxReason     = 2000
	// troubleShown is how long after the last failure the overview shows that messages were given up.
	troubleShown = 7 * 24 * time.Hour
	// storeTime is how long the overview, and what stands on every page, waits for the store: the switch must not hang with it.
	storeTime = 3 * time.Second
)

// overviewPage shows what the person may see and do.
type overviewPage struct {
	Problem   *problem   // why an act was refused
	Reason    string     // its reason, as it was typed
	Missing   []string   // parts that can't be shown
	Unready   string     // why no calls are taken, or ""
	Incidents []alertRow // that nobody has acknowledged, contained or resolved

	Reader, Auditor, Operator bool

	Activity    *activity // of the last hours; nil: nobody counts
	Stoppable   []string  // agents that can be stopped
	Running     int       // agents that may work
	Quarantined int       // agents in quarantine
	Kill        standing.Switches
	Stopped     []stoppedAgent
	Unread      int              // definitions that only a rule accepted
	Waiting     []desk.Question  // those that silence permits first
	Waits       *int64           // questions and plans that wait, in all; nil: not known
	Oldest      time.Time        // when the question that has waited longest was asked; zero: none waits
	Plans       plansPart        // that wait too
	Tools       []catalogue.Tool // that wait to be accepted
	Servers     []ServerStatus
	Down        int
	Breakers    []shownBreaker // that are open
	Troubled    []Deliveries   // channels whose messages did not arrive, for operators
	Changes     []Change       // of configuration and declarations, for operators and auditors
	Loaded      *Configuration // the configuration in force; nil: not known
	Admin       bool           // may reload it
	Sessions    []session.Session
	Aside       []session.Damaged // sessions whose rows can't be read
	Drills      desk.DrillCounts
	Votes       desk.VoteCounts
	Anchor      *anchor.Status
	Entries     []audit.Entry // newest first
	SignIns     []signedIn    // of the person
}

// shownBreaker is a circuit breaker as pages show it.
type shownBreaker struct {
	breaker.State
	Model  string // the model that Server stands for; "": a server
	Judge  string // the model that it stands for as the judge of results
	Anchor string // names it in the page: a breaker's name may have letters that no selector takes
	Typed  string // why somebody wants to reset it
	Resets bool   // the person may
}

// openBreakers are the circuit breakers that are open, by name.
func (c *Console) openBreakers(resets bool) (all []shownBreaker) {
	for _, b := range c.o.Gateway.Breakers() {
		if b.Since == nil {
			continue
		}
		s := shownBreaker{State: b, Resets: resets, Anchor: call.HashBytes([]byte(b.Name))[:12]}
		if id, is := breaker.Model(b.Server); is {
			s.Model = id
		} else if id, is := breaker.Judge(b.Server); is {
			s.Judge = id
		}
		all = append(all, s)
	}
	return all
}

type stoppedAgent struct {
	ID string
	standing.Switch
}

func (c *Console) overview(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.showOverview(w, r, p, http.StatusOK, c.overviewOf(r, p))
}

func (c *Console) showOverview(w http.ResponseWriter, r *http.Request, p identity.Principal, status int, d overviewPage) {
	c.show(w, r, p, view{template: "overview", title: "Overview", place: "/", status: status, data: d, waits: d.Waits})
}

// overviewOf collects what the person may see. A part that can't be had is left out and said to be missing.
func (c *Console) overviewOf(r *http.Request, p identity.Principal) overviewPage {
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	d := overviewPage{Reader: reads(p), Auditor: p.Has(identity.Auditor), Operator: p.Has(identity.Operator), Admin: p.Has(identity.Admin), SignIns: c.signInsOf(r, p.ID)}
	missing := func(what string, err error) {
		if err != nil {
			c.missing(what, err)
			d.Missing = append(d.Missing, what)
		}
	}
	if d.Reader {
		d.Kill = c.o.Gateway.Standing().KillStatus()
		for id, s := range d.Kill.Agents {
			if s.Active {
				d.Stopped = append(d.Stopped, stoppedAgent{id, s})
			}
		}
		slices.SortFunc(d.Stopped, func(a, b stoppedAgent) int { return strings.Compare(a.ID, b.ID) })
		if d.Activity = c.activityOf(r.URL.Query().Get("span")); d.Activity != nil {
			missing("the rules that asked", c.askedIn(ctx, d.Activity))
		}
		for _, a := range c.o.Agents().All() {
			if _, aside := c.o.Gateway.Standing().Quarantined(a.AgentID); aside {
				d.Quarantined++
			} else if !d.Kill.Global.Active && !d.Kill.Agents[a.AgentID].Active {
				d.Running++
				d.Stoppable = append(d.Stoppable, a.AgentID)
			}
		}
		soon, err := c.o.Gateway.Desk().Silent(ctx)
		if newest := []desk.Question(nil); err == nil {
			newest, err = c.o.Gateway.Desk().Urgent(ctx, "", "", "", pageOfApprovals)
			critical := 0 // of these, all stand there
			for _, q := range newest {
				if q.Risk == string(policy.Critical) {
					critical++
				}
			}
			d.Waiting = append(soon, except(newest, soon)...)
			d.Waiting = d.Waiting[:min(len(d.Waiting), max(shownWaiting, min(len(soon), shownSoon))+critical)]
		}
		missing("the approvals", err)
		d.Plans, err = c.plansOf(ctx, p)
		missing("the plans that wait", err)
		missing("how many wait", c.addWaiting(ctx, &d))
		d.Servers = c.o.Upstreams()
		for _, s := range d.Servers {
			if s.State != "up" {
				d.Down++
			}
		}
		d.Breakers = c.openBreakers(d.Operator)
		for _, t := range c.o.Gateway.Catalogue().ToolViews() {
			if d.Activity != nil {
				d.Activity.classify(t)
			}
			if t.Standing == catalogue.Quarantined || t.Standing != catalogue.Gone && (t.PendingHash != "" || len(t.Suspicions) > 0) { // this includes those that no entry names
				d.Tools = append(d.Tools, t.Tool)
			}
			if t.Unread && t.Standing != catalogue.Gone {
				d.Unread++
			}
		}
		open, err := c.o.Store.SessionsPage(ctx, "", shownSessions, session.Open)
		missing("the sessions", err)
		d.Sessions, d.Aside = open.Sessions, open.Aside
		d.Unready = c.unready(ctx)
		d.Incidents = c.incidents()
		status := anchor.NotConfigured()
		if c.o.Anchor != nil {
			status = c.o.Anchor(ctx)
		}
		d.Anchor = &status
	}
	if d.Operator && c.o.Deliveries != nil {
		all, err := c.o.Deliveries(ctx)
		missing("the deliveries of messages", err)
		for _, one := range all {
			if !one.LastFailure.After(one.LastSuccess) { // its messages are still under way
				one.Owed = 0
			}
			if one.Owed > 0 || one.GivenUp > 0 && c.o.Clock().Sub(one.LastFailure) < troubleShown {
				d.Troubled = append(d.Troubled, one)
			}
		}
	}
	if d.Operator || d.Auditor {
		c.configuration(&d)
	}
	if d.Auditor {
		c.recordOf(ctx, &d, missing)
	}
	return d
}

// addWaiting adds how many questions and plans wait, and since when.
func (c *Console) addWaiting(ctx context.Context, d *overviewPage) error {
	n, oldest, err := c.countWaiting(ctx)
	if err != nil {
		return err
	}
	if d.Waits = &n; oldest == "" {
		return nil
	}
	d.Oldest, err = c.o.Gateway.Desk().AskedAt(ctx, oldest)
	return err
}

// recordOf adds what auditors see: the newest entries, and figures on how people answer.
func (c *Console) recordOf(ctx context.Context, d *overviewPage, missing func(what string, err error)) {
	size, err := c.o.Store.Size(ctx)
	if err == nil {
		d.Entries, _, err = c.o.Store.Entries(ctx, audit.Filter{Min: max(0, size-shownEntries), Limit: shownEntries})
	}
	missing("the audit log", err)
	slices.Reverse(d.Entries)
	d.Entries = slices.DeleteFunc(d.Entries, func(e audit.Entry) bool { return e.Action == "approval.drill" }) // who only glances at the page must not see which questions are tests
	d.Drills, err = c.o.Gateway.Desk().Drills(ctx)
	missing("the drills", err)
	d.Votes, err = c.o.Gateway.Desk().VoteCounts(ctx)
	missing("the figures on answers", err)
}

// configuration adds what is in force since when, and what changed lately.
func (c *Console) configuration(d *overviewPage) {
	if c.o.Changes != nil {
		all := c.o.Changes()
		d.Changes = all[:min(len(all), shownChanges)]
	}
	if c.o.Configuration != nil {
		loaded := c.o.Configuration()
		d.Loaded = &loaded
	}
}

// unready says why no calls are taken; "" where they are.
func (c *Console) unready(ctx context.Context) string {
	select {
	case <-c.o.Closing:
		return "It is stopping."
	default:
	}
	if err := c.o.Store.Ready(ctx); err != nil {
		return fault.Of(err).Public()
	}
	return ""
}

func (c *Console) kill(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.flip(w, r, p, c.o.Gateway.Standing().Disable)
}

func (c *Console) unkill(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.flip(w, r, p, c.o.Gateway.Standing().Enable)
}

// resetBreaker closes a circuit breaker by a person's word.
func (c *Console) resetBreaker(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	name, reason := r.PostForm.Get("name"), r.PostForm.Get("reason")
	err := checkReason(reason)
	if err == nil {
		err = c.o.Gateway.ResetBreaker(r.Context(), name, reason, p.String())
	}
	if err == nil {
		http.Redirect(w, r, "/#breakers", http.StatusSeeOther)
		return
	}
	d := c.overviewOf(r, p)
	d.Problem = problemOf(err)
	for i := range d.Breakers {
		if d.Breakers[i].Name == name {
			d.Breakers[i].Typed = reason
		}
	}
	c.showOverview(w, r, p, fault.Of(err).Code.HTTPStatus(), d)
}

// flip switches all agents off or on, from memory: nothing here waits for the store.
func (c *Console) flip(w http.ResponseWriter, r *http.Request, p identity.Principal, flip func(agent, by, reason string) standing.Switches) {
	reason := r.PostForm.Get("reason")
	if err := checkReason(reason); err != nil {
		d := c.overviewOf(r, p)
		d.Problem, d.Reason = problemOf(err), reason
		c.showOverview(w, r, p, http.StatusBadRequest, d)
		return
	}
	flip("", p.String(), reason)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// checkReason refuses a reason without a word in it.
func checkReason(reason string) error {
	if !strings.ContainsFunc(reason, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) {
		return fault.New(fault.RequestMalformed, "A reason is needed: it goes on the record.").At("reason")
	}
	if len(reason) > maxReason {
		return fault.New(fault.RequestMalformed, "A reason has at most %d bytes.", maxReason).At("reason")
	}
	return nil
}
