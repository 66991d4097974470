package agent

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestOurFields reads each field that the source of the rules doesn't have: as it should be, and in each way that is wrong.
func TestOurFields(t *testing.T) {
	for _, c := range []struct{ text, problem string }{
		{"quotas: {apiCalls: 10, tokens: 0, computeSeconds: 5, cost: {hour: 2.5, day: 10}}", ""},
		{"quotas: {compute: 5}", "quotas.compute: is called computeSeconds now"},
		{"quotas: {apiCalls: {minute: 60}}", ""},
		{"quotas: {apiCalls: {minute: 0, day: 5}}", "quotas.apiCalls.minute: must be "},
		{"quotas: {apiCalls: {minute: 60001}}", "quotas.apiCalls.minute: 60001 is over the limit"},
		{"quotas: {apiCalls: {}}", "quotas.apiCalls: says nothing"},
		{"quotas: {tokens: {minute: 60}}", "quotas.tokens.minute: unknown field"},
		{"quotas: {apiCalls: -1}", "quotas.apiCalls: must not be negative"},
		{"quotas: {apiCalls: many}", "quotas.apiCalls: must be a whole number"},
		{"quotas: {cost: {}}", "quotas.cost: says nothing"},
		{"quotas: {cost: {hour: -2}}", "quotas.cost.hour: must be a plain amount"},
		{"quotas: {cost: {week: 2}}", "quotas.cost.week: unknown field"},
		{"degraded: [docs.*]", ""},
		{"degraded: [docs]", "degraded[0]:"},
		{"mitigations: [{code: A-10, plan: add them, owner: alice, until: 2026-12-31}]", ""},
		{"mitigations: [{code: A-10, plan: add them, owner: alice, until: '2026-12-31'}]", ""},
		{"mitigations: [{code: A-13, plan: p, owner: o, until: 2026-12-31}]", "mitigations[0].code:"},
		{"mitigations: [{code: A-10, plan: p, owner: o, until: soon}]", "mitigations[0].until:"},
		{"mitigations: [{code: A-10, plan: p, owner: o, until: 2026-02-30}]", "mitigations[0].until:"},
		{"mitigations: [{code: A-10, owner: o, until: 2026-12-31}]", "mitigations[0].plan: is missing"},
		{"mitigations: {code: A-10}", "mitigations: must be a list"},
		{"scale: 100", ""},
		{"scale: 0", "scale: must be at least 1"},
	} {
		d, problems := Parse("a.yaml", []byte(Example()+c.text+"\n"))
		var blocking []string
		for _, p := range problems {
			if p.Severity == Error {
				blocking = append(blocking, p.Field+": "+p.Problem)
				if p.Line == 0 {
					t.Errorf("%s: no place: %s", c.text, p)
				}
			}
		}
		switch {
		case c.problem == "" && len(blocking) > 0:
			t.Errorf("%s: %q", c.text, blocking)
		case c.problem == "" && d.Digest == "":
			t.Errorf("%s: no digest", c.text)
		case c.problem != "" && !slices.ContainsFunc(blocking, func(p string) bool { return strings.HasPrefix(p, c.problem) }):
			t.Errorf("%s: %q, want %q", c.text, blocking, c.problem)
		}
	}
}

func TestMitigationEnds(t *testing.T) {
	m := Mitigation{Code: "A-10", Until: "2026-12-31"}
	for at, want := range map[string]bool{"2026-12-31T23:59:59Z": true, "2027-01-01T00:00:00Z": false, "2026-01-01T00:00:00Z": true} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if m.Covers("A-10", now) != want || m.Covers("A-09", now) {
			t.Errorf("%s: want %v", at, want)
		}
	}
}
