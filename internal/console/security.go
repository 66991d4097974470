package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/sentence"
)

// pageOfResolved bounds the resolved alerts on the page.
const pageOfResolved = 50

// securityPage shows alerts (AU-4) and the security figures (AU-5).
type securityPage struct {
	refusedAct
	ID       string // of the alert that the act was about
	Operator bool
	Auditor  bool
	Span     string
	Spans    []window
	Waiting  []alertRow // nobody has resolved them: incidents first, then the newest first
	Resolved []alertRow
	Figures  []figureRow
	From     time.Time
}

// alertRow is an alert as the page shows it.
type alertRow struct{ monitor.Alert }

// involved is who caused how many events of an alert.
type involved struct {
	Words  string
	Agent  string // "": it is no agent
	Events int64
}

// Who are the agents and others involved, those with most events first.
func (a alertRow) Who() (all []involved) {
	for _, one := range a.Most() {
		row := involved{Words: monitor.Who(one.Who), Events: one.Events}
		if !strings.ContainsAny(one.Who, ":( ") && one.Who != "gateway" {
			row.Agent = one.Who
		}
		all = append(all, row)
	}
	return all
}

// Events is the page of the log that has the events.
func (a alertRow) Events() string {
	event := map[monitor.AlertKind]string{monitor.Injections: "threat.hit", monitor.Violations: "access_violation"}[a.Kind]
	if event == "" {
		return link("/audit", "from", a.First.UTC().Format(time.RFC3339))
	}
	return link("/audit", "event", event, "from", a.First.UTC().Format(time.RFC3339))
}

// Took is how long the response took; "": there was none yet.
func (a alertRow) Took() string {
	end := a.Responded()
	if end.IsZero() {
		return ""
	}
	return length(end.Sub(a.Detected))
}

// figureRow is a security figure as the page shows it.
type figureRow struct {
	Name string
	monitor.Figure
	Seconds bool
}

func (f figureRow) Shown() string {
	if f.Value == nil {
		return "–"
	}
	return f.text(*f.Value)
}

// Missed tells whether the goal is known to be missed.
func (f figureRow) Missed() bool { met := f.Met(); return met != nil && !*met }

func (f figureRow) Wanted() string {
	bound := "at most "
	if f.Least {
		bound = "at least "
	}
	if f.Goal == 1 && !f.Seconds {
		bound = ""
	}
	return bound + f.text(f.Goal)
}

func (f figureRow) text(v float64) string {
	if f.Seconds {
		return length(time.Duration(v * float64(time.Second)))
	}
	return sentence.Percent(v)
}

func (c *Console) showSecurity(w http.ResponseWriter, r *http.Request, p identity.Principal, d securityPage, status int) {
	d.Operator, d.Auditor, d.Spans = p.Has(identity.Operator), p.Has(identity.Auditor), windows[1:]
	span := windowOf(r.URL.Query().Get("span"), d.Spans)
	d.Span, d.From = span.Name, span.since(c.o.Clock())
	if c.o.Counters == nil {
		c.fail(w, r, p, fault.New(fault.NotFound, "Nobody counts what happens."))
		return
	}
	found, err := c.o.Counters.Security(r.Context(), d.From, c.o.Gateway.Acted)
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	d.Figures = []figureRow{
		{"Injection attempts detected", found.InjectionDetection, false}, {"Access violations", found.AccessViolations, false},
		{"HIGH calls that a person approved", found.HighApproval, false}, {"Calls that are in the log", found.AuditCompleteness, false},
		{"Mean time to detect", found.TimeToDetect, true}, {"Mean time to respond", found.TimeToRespond, true},
	}
	for _, a := range c.o.Counters.Alerts("") {
		switch {
		case a.State != monitor.AlertResolved:
			d.Waiting = append(d.Waiting, alertRow{a})
		case len(d.Resolved) < pageOfResolved:
			d.Resolved = append(d.Resolved, alertRow{a})
		}
	}
	slices.SortStableFunc(d.Waiting, func(a, b alertRow) int {
		rank := func(a alertRow) int {
			switch {
			case a.Critical() && a.State == monitor.AlertOpen:
				return 0
			case a.Critical():
				return 1
			}
			return 2
		}
		return cmp.Compare(rank(a), rank(b))
	})
	c.show(w, r, p, view{template: "security", title: "Security", place: "/security", status: status, data: d})
}

// incidents are those that nobody has acknowledged or contained.
func (c *Console) incidents() (all []alertRow) {
	if c.o.Counters == nil {
		return nil
	}
	for _, a := range c.o.Counters.Alerts(monitor.AlertOpen) {
		if a.Critical() && a.Contained.IsZero() {
			all = append(all, alertRow{a})
		}
	}
	return all
}

// answerAlert acknowledges or resolves an alert.
func answerAlert(resolve bool) handler {
	return func(c *Console, w http.ResponseWriter, r *http.Request, p identity.Principal) {
		name := "acknowledge"
		if resolve {
			name = "resolve"
		}
		refused := c.act(r, p, name, func(ctx context.Context, id, reason string) (err error) {
			if resolve {
				_, err = c.o.Counters.Resolve(ctx, id, reason, p.String())
			} else {
				_, err = c.o.Counters.Acknowledge(ctx, id, reason, p.String())
			}
			return err
		})
		if refused != nil {
			c.showSecurity(w, r, p, securityPage{refusedAct: *refused, ID: r.PathValue("id")}, refused.status)
			return
		}
		http.Redirect(w, r, "/security", http.StatusSeeOther)
	}
}
