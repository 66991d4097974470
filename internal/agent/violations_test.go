package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestViolations has a declaration for each of the twelve that a file shows, with its code and severity; the others say that only a gateway shows them.
func TestViolations(t *testing.T) {
	shown := map[string]string{
		"A-01": strings.Replace(example, "write: []", "write: [mail.send]", 1),
		"A-02": strings.Replace(example, "humanApprovalRequired: true", "humanApprovalRequired: false", 1),
		"A-03": strings.Replace(example, "killSwitchEnabled: true", "killSwitchEnabled: false", 1),
		"A-04": strings.Replace(example, ", pattern: \"^[^<>]*$\", x-fact", ", x-fact", 1),
		"A-05": strings.Replace(strings.Replace(example, "mode: advisory", "mode: operator", 1), "write: []", "write: [knowledge.add]", 1),
		"A-06": strings.Replace(example, "claude-sonnet-4-5-20250929", "gpt-4o", 1),
		"A-07": strings.Replace(example, "tables: [mail]", "tables: [recommendations]", 1),
		"A-10": strings.Replace(example, "required: [recommendation, citations]", "required: [recommendation]", 1),
		"A-12": strings.Replace(example, "outputSchemaVersion: 1.0.0", "", 1),
	}
	for _, v := range Violations {
		text, ok := shown[v.Code]
		if !ok {
			continue
		}
		_, problems := Parse("research-assistant.yaml", []byte(text))
		if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Code == v.Code && p.Severity == v.Severity && p.Line > 0 }) {
			t.Errorf("%s: %v", v.Code, problems)
		}
	}
	if got := strings.Join(Elsewhere(), " "); got != "A-03 A-05 A-07 A-09" || len(Violations) != 12 {
		t.Errorf("%s", got)
	}
}

// TestDeployment: a violation of P1 blocks without a plan, and once its plan has ended; one of P2 blocks above the scale; and a file is called as its agent.
func TestDeployment(t *testing.T) {
	const noCitations, noVersion = "required: [recommendation, citations]", "outputSchemaVersion: 1.0.0"
	for _, c := range []struct {
		gone, more, file string
		day              string
		sessions         int
		want             string
	}{
		{"", "", "research-assistant.yaml", "2026-06-01", 0, ""},
		{"", "", "other.yaml", "2026-06-01", 0, "P2 false"},
		{noCitations, "", "research-assistant.yaml", "2026-06-01", 0, "A-10 P1 true"},
		{noCitations, "mitigations: [{code: A-10, plan: add them, owner: alice, until: 2026-06-01}]", "research-assistant.yaml", "2026-06-01", 0, "A-10 P1 false"},
		{noCitations, "mitigations: [{code: A-10, plan: add them, owner: alice, until: 2026-06-01}]", "research-assistant.yaml", "2026-06-02", 0, "A-10 P1 true"},
		{noCitations, "mitigations: [{code: A-09, plan: add them, owner: alice, until: 2026-06-01}]", "research-assistant.yaml", "2026-06-01", 0, "A-10 P1 true"},
		{noVersion, "", "research-assistant.yaml", "2026-06-01", 0, "A-12 P2 false"},
		{noVersion, "", "research-assistant.yaml", "2026-06-01", 1, "A-12 P2 true"},
		{noVersion, "scale: 50", "research-assistant.yaml", "2026-06-01", 50, "A-12 P2 false"},
		{noVersion, "scale: 50", "research-assistant.yaml", "2026-06-01", 51, "A-12 P2 true"},
	} {
		text := example
		if c.gone == noCitations {
			text = strings.Replace(text, c.gone, "required: [recommendation]", 1)
		} else if c.gone != "" {
			text = strings.Replace(text, c.gone, "", 1)
		}
		d, problems := Parse(c.file, []byte(text+c.more+"\n"))
		day, err := time.Parse(time.DateOnly, c.day)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range Deployment(NewSet(d), problems, day) {
			p = p.AtScale(c.sessions)
			got = append(got, strings.TrimSpace(fmt.Sprint(p.Code, " ", p.Severity, " ", p.Stops)))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
