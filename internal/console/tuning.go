package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/monitor"
)

// Tuner judges recorded work under the rules in force and under others. Nothing is called, and nothing is changed.
type Tuner interface {
	// Sections are those of the configuration file that can be tried, as text.
	Sections(ctx context.Context) (string, error)
	// Try judges the calls of the time before now with these sections in place of the file's own.
	Try(ctx context.Context, sections string, since time.Duration) (Trial, error)
}

// Judged is how calls were judged.
type Judged struct{ Calls, Questions, Refused int }

// Unasked is how many would simply run.
func (j Judged) Unasked() int { return j.Calls - j.Questions - j.Refused }

// Trial is what becomes of recorded calls under the rules in force and under others.
type Trial struct {
	Since      time.Time
	Sessions   int
	Was, Now   Judged
	Operations []TriedOperation
	Otherwise  []TriedCall // decided otherwise, the oldest first
	More       int         // that are not listed
	Notes      []string
}

// TriedOperation is what becomes of the calls of an operation.
type TriedOperation struct {
	Operation string
	Was, Now  Judged
	Changed   int
}

// TriedCall is a call that is decided otherwise.
type TriedCall struct {
	Session, Agent, CallID, Operation, Was, Now, Reason string
	At                                                  time.Time
}

// lookBacks are the times that can be looked back at.
var lookBacks = []lookBack{{"24 hours", "24h", 24 * time.Hour}, {"7 days", "7d", 7 * 24 * time.Hour}, {"30 days", "30d", 30 * 24 * time.Hour}}

type lookBack struct {
	Words, Name string
	long        time.Duration
}

// tuningPage is which rules ask, and what other rules would ask.
type tuningPage struct {
	Problem  *problem
	Rules    []askedFor
	Refused  []blockedFor
	Counted  int // questions that were counted
	Cut      bool
	Missing  string
	Operator bool // may try other rules

	Spans    []lookBack
	Span     string
	Sections string
	Tried    bool
	Trial    Trial
}

// askedFor is a rule with the questions that it asked.
type askedFor struct {
	desk.RuleFigure
	Words string
}

func askedOf(rule desk.RuleFigure) askedFor {
	return askedFor{rule, cmp.Or(ruleWords[rule.Code], rule.Code)}
}

// Always tells whether people approved each question of the rule, and often enough to ask whether it is needed.
func (a askedFor) Always() bool { return a.Approved >= 10 && a.Rejected == 0 }

// ruleWords are rules in few words, by the code that questions have for them.
var ruleWords = map[string]string{
	string(fault.FlowUntrusted): "a value that is not confirmed", string(fault.FlowContaminated): "private data could leave",
	"risk.action": "the kind of action", "risk.acts": "other operations run inside it", "risk.amount": "a large amount", "risk.contaminated": "the session has read private data", "risk.data_leaves": "data leaves",
	"risk.first_destination": "a recipient that is new to the agent", "risk.flagged": "screening found something in the session", "risk.left_plan": "not in the plan", "risk.new_tool": "a tool that is new", "risk.operator": "the risk set in the configuration",
	"risk.unclassified": "the tool is not classified", "risk.unconfirmed": "a recipient or amount that is not confirmed", "risk.unreadable_amount": "an amount that can’t be read", "risk.untrusted": "the session has read untrusted content",
	string(fault.ThreatInjection): "the arguments look like orders to an agent", string(fault.ApprovalRequired): "the risk", string(fault.PermissionDenied): "a policy",
}

const (
	tunedFor   = 7 * 24 * time.Hour
	listedMost = 100 // calls on the page
)

func (c *Console) showTuning(w http.ResponseWriter, r *http.Request, p identity.Principal, d tuningPage, status int) {
	d.Operator = c.o.Labels != nil && p.Has(identity.Operator)
	d.Spans, d.Span = lookBacks, cmp.Or(d.Span, lookBacks[1].Name)
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	if err := c.countRules(ctx, &d); err != nil {
		c.missing("the rules that asked", err)
		d.Missing = problemOf(err).Text
	}
	if d.Operator && !d.Tried && d.Sections == "" {
		text, err := c.o.Labels.Sections(ctx)
		if err != nil && d.Problem == nil {
			d.Problem = problemOf(err)
		}
		d.Sections = text
	}
	c.show(w, r, p, view{template: "tuning", title: "Rules", place: "/tools", status: status, data: d})
}

// countRules counts the questions of the last week by the rules that asked them, and the refusals by their reasons.
func (c *Console) countRules(ctx context.Context, d *tuningPage) error {
	since := c.o.Clock().Add(-tunedFor)
	if c.o.Counters != nil {
		hours, _ := c.o.Counters.Since(since)
		refused := map[string]*blockedFor{}
		counts, _ := monitor.Total(hours)
		for k, n := range counts {
			if k.What != monitor.Refused {
				continue
			}
			if refused[k.Code] == nil {
				refused[k.Code] = &blockedFor{Code: k.Code, Words: cmp.Or(refusedFor[fault.Code(k.Code)], k.Code, "other")}
			}
			refused[k.Code].Count += n
		}
		for _, b := range refused {
			d.Refused = append(d.Refused, *b)
		}
		slices.SortFunc(d.Refused, func(a, b blockedFor) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Code, b.Code))
		})
	}
	figures, err := c.o.Gateway.Desk().RuleFigures(ctx, since, desk.RuleQuestions)
	if err != nil {
		return err
	}
	d.Counted, d.Cut = figures.Questions, figures.Cut
	for _, rule := range figures.Rules {
		d.Rules = append(d.Rules, askedOf(rule))
	}
	return nil
}

// tryRules shows what other rules would have asked.
func (c *Console) tryRules(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	if c.o.Labels == nil {
		c.fail(w, r, p, errNoLabels())
		return
	}
	d := tuningPage{Sections: r.PostForm.Get("sections"), Span: r.PostForm.Get("since"), Tried: true}
	at := slices.IndexFunc(lookBacks, func(b lookBack) bool { return b.Name == d.Span })
	if at < 0 {
		d.Tried, d.Problem = false, problemOf(fault.New(fault.RequestMalformed, "There is no such time.").At("since").Try("Choose one from the list."))
		c.showTuning(w, r, p, d, http.StatusBadRequest)
		return
	}
	trial, err := c.o.Labels.Try(r.Context(), d.Sections, lookBacks[at].long)
	if err != nil {
		var status int
		d.Tried = false
		d.Problem, status = c.refused(r, p, err, "rules", "since", d.Span)
		c.showTuning(w, r, p, d, status)
		return
	}
	if d.Trial = trial; len(trial.Otherwise) > listedMost {
		d.Trial.Otherwise = trial.Otherwise[:listedMost]
		d.Trial.More += len(trial.Otherwise) - listedMost
	}
	c.showTuning(w, r, p, d, http.StatusOK)
}
