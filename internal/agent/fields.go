package agent

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/display"
)

// Mitigation is what people plan against a violation that can't be mended at once. Without one, or once Until is over, a P1 violation blocks.
type Mitigation struct {
	Code  string `json:"code"`  // "A-09"
	Plan  string `json:"plan"`  // what is done about it
	Owner string `json:"owner"` // who does it
	Until string `json:"until"` // the last day, as 2026-12-31
}

// Covers tells whether the mitigation is for a violation and still holds on that day.
func (m Mitigation) Covers(code string, now time.Time) bool {
	return m.Code == code && now.UTC().Format(time.DateOnly) <= m.Until
}

// ours are the fields that the source of the rules doesn't have.
func (r *reader) ours(d *Declaration) []field {
	return []field{
		{"mode", "", word(r, &d.Mode, Advisory, Operator)},
		{"startPhase", "", word(r, &d.StartPhase, Planning, Execution)},
		{"planApproval", "", word(r, &d.PlanApproval, PlansByRule, PlansByPerson)},
		{"sessions", "", word(r, &d.Sessions, ByHost, BySelf)},
		{"sessionsSideBySide", "", r.boolean(&d.SessionsSideBySide)},
		{"structured", "", r.boolean(&d.Structured)},
		{"stream", "", word(r, &d.Stream, StreamsLive, StreamsHeld)},
		{"trustTier", "", r.checked(&d.TrustTier, checkWord)},
		{"quotas", "", func(at string, n *yaml.Node) { r.quotas(at, n, &d.Quotas) }},
		{"dependsOn", "", r.list(&d.DependsOn, checkID)},
		{"systemPrompt", "", func(at string, n *yaml.Node) {
			r.fields(at, n, []field{
				{"role", "", r.str(&d.SystemPrompt.Role)},
				{"constraints", "", r.list(&d.SystemPrompt.Constraints, anything)},
			})
		}},
		{"hostedTools", "", r.list(&d.HostedTools, checkWord)},
		{"degraded", "", r.list(&d.Degraded, checkPattern)},
		{"mitigations", "", func(at string, n *yaml.Node) { r.mitigations(at, n, d) }},
		{"scale", "", r.integer(&d.Scale, 1, 1e9, "")},
		{"knowledge", "", func(at string, n *yaml.Node) {
			r.fields(at, n, []field{{"labels", "write [] if there are none", r.list(&d.Knowledge.Labels, checkWord)}})
		}},
		{"run", "", func(at string, n *yaml.Node) { r.runOf(at, n, d) }},
		{"recommendationActions", "", func(at string, n *yaml.Node) { r.actions(at, n, d) }},
	}
}

// maxPerMinute bounds apiCalls.minute: a thousand a second.
const maxPerMinute = 60_000

// quotas reads what the agent may use.
func (r *reader) quotas(at string, n *yaml.Node, q *Quotas) {
	amount := func(at string, n *yaml.Node, least, most int) *int {
		value := -1
		if r.integer(&value, least, most, "")(at, n); value >= 0 {
			return &value
		}
		return nil
	}
	const most = 1e12 - 1
	whole := func(at string, n *yaml.Node, a *Amounts, more ...field) {
		if n.Kind == yaml.ScalarNode { // as it was written before there were windows
			a.Day = amount(at, n, 0, most)
			return
		}
		r.fields(at, n, append(more,
			field{"hour", "", func(at string, n *yaml.Node) { a.Hour = amount(at, n, 0, most) }},
			field{"day", "", func(at string, n *yaml.Node) { a.Day = amount(at, n, 0, most) }}))
		if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
			r.problem(n, at, "says nothing", "write hour, day or both, as {hour: 100, day: 1000}")
		}
	}
	r.fields(at, n, []field{
		{"apiCalls", "", func(at string, n *yaml.Node) {
			c := &Calls{}
			q.APICalls = c
			whole(at, n, &c.Amounts, field{"minute", "", func(at string, n *yaml.Node) { c.Minute = amount(at, n, 1, maxPerMinute) }})
		}},
		{"tokens", "", func(at string, n *yaml.Node) { q.Tokens = &Amounts{}; whole(at, n, q.Tokens) }},
		{"computeSeconds", "", func(at string, n *yaml.Node) { q.ComputeSeconds = &Amounts{}; whole(at, n, q.ComputeSeconds) }},
		{"compute", "", func(at string, n *yaml.Node) {
			r.problem(n, at, "is called computeSeconds now", "write computeSeconds")
		}},
		{"cost", "", func(at string, n *yaml.Node) {
			q.Cost = &Cost{}
			r.fields(at, n, []field{{"hour", "", r.price(&q.Cost.Hour)}, {"day", "", r.price(&q.Cost.Day)}})
			if q.Cost.Hour == "" && q.Cost.Day == "" && !r.broken[at+".hour"] && !r.broken[at+".day"] {
				r.problem(n, at, "says nothing", "write hour, day or both")
			}
		}},
	})
}

var plainPrice = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})(\.[0-9]{1,4})?$`)

// price reads an amount of money, which is not negative.
func (r *reader) price(to *json.Number) func(string, *yaml.Node) {
	return func(at string, n *yaml.Node) {
		if tag := n.ShortTag(); n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" || !plainPrice.MatchString(n.Value) {
			r.problem(n, at, "must be a plain amount, as in 2.50", "")
			return
		}
		*to = json.Number(n.Value)
	}
}

// codePattern are the codes of the violations.
var codePattern = regexp.MustCompile(`^A-(0[1-9]|1[0-2])$`)

func checkCode(s string) string {
	if !codePattern.MatchString(s) {
		return display.Quote(s, shownMost) + " is no code of a violation: A-01 to A-12"
	}
	return ""
}

func checkDay(s string) string {
	if day, err := time.Parse(time.DateOnly, s); err != nil || day.Format(time.DateOnly) != s {
		return display.Quote(s, shownMost) + " is no day like 2026-12-31"
	}
	return ""
}

// mitigations reads what is planned against violations.
func (r *reader) mitigations(at string, n *yaml.Node, d *Declaration) {
	if n.Kind != yaml.SequenceNode || len(n.Content) > maxList {
		r.problem(n, at, "must be a list of at most "+strconv.Itoa(maxList)+" plans, not "+kind(n), "write mitigations: [{code: A-10, plan: …, owner: …, until: 2026-12-31}]")
		return
	}
	for i, c := range n.Content {
		var m Mitigation
		entry := fmt.Sprintf("%s[%d]", at, i)
		r.places[entry] = c
		r.fields(entry, c, []field{
			{"code", "the violation that it is about, as A-10", r.checked(&m.Code, checkCode)},
			{"plan", "what is done about it", r.str(&m.Plan)},
			{"owner", "who does it", r.str(&m.Owner)},
			{"until", "the last day on which it holds, as 2026-12-31", r.day(&m.Until)},
		})
		d.Mitigations = append(d.Mitigations, m)
	}
}

// day reads a date, which YAML takes for text in quotes and for a date without.
func (r *reader) day(to *string) func(string, *yaml.Node) {
	return func(at string, n *yaml.Node) {
		if tag := n.ShortTag(); n.Kind != yaml.ScalarNode || tag != "!!str" && tag != "!!timestamp" {
			r.problem(n, at, "must be a day like 2026-12-31, not "+kind(n), "")
			return
		}
		if wrong := checkDay(n.Value); wrong != "" {
			r.problem(n, at, wrong, "")
			return
		}
		*to = n.Value
	}
}
