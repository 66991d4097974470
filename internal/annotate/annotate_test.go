package annotate

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/agent"
)

var problems = []agent.Problem{
	{File: "agents/a b.yaml", Line: 3, Column: 7, Field: "dataSources.models[0]", Severity: agent.P0, Problem: `"gpt-4o" is not pinned`, Code: "A-06", Stops: true},
	{File: "agents/x,y:z.yaml", Line: 1, Severity: agent.P1, Problem: "100% of it\nis on\x1b[31m two lines", Code: "A-10"},
	{File: "/etc/sallyport.yaml", Severity: agent.P2, Problem: "models: not used"},
}

// TestSARIF: each problem has its rule, its level and its place, and each rule that is named is there.
func TestSARIF(t *testing.T) {
	raw, err := SARIF("1.2.3", problems)
	if err != nil {
		t.Fatal(err)
	}
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name, Version string
					Rules         []struct{ ID string }
				}
			}
			Results []struct {
				RuleID, Level string
				Message       struct{ Text string }
				Locations     []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           *struct{ StartLine, StartColumn int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &log); err != nil {
		t.Fatal(err)
	}
	run := log.Runs[0]
	var rules, got []string
	for _, r := range run.Tool.Driver.Rules {
		rules = append(rules, r.ID)
	}
	for _, v := range agent.Violations {
		if !slices.Contains(rules, v.Code) {
			t.Errorf("no rule %s", v.Code)
		}
	}
	for _, r := range run.Results {
		if !slices.Contains(rules, r.RuleID) || strings.ContainsAny(r.Message.Text, "\x1b\n") {
			t.Errorf("%+v", r)
		}
		got = append(got, r.RuleID+" "+r.Level+" "+r.Locations[0].PhysicalLocation.ArtifactLocation.URI)
	}
	want := []string{"A-06 error agents/a%20b.yaml", "A-10 warning agents/x,y:z.yaml", "lint/P2 note file:///etc/sallyport.yaml"}
	if log.Version != "2.1.0" || run.Tool.Driver.Version != "1.2.3" || !slices.Equal(got, want) {
		t.Errorf("%s %q", log.Version, got)
	}
	if at := run.Results[0].Locations[0].PhysicalLocation.Region; at == nil || at.StartLine != 3 || at.StartColumn != 7 {
		t.Errorf("%+v", at)
	}
	if run.Results[2].Locations[0].PhysicalLocation.Region != nil {
		t.Error("a place for what has none")
	}
}

func TestGitHub(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(GitHub(problems), "\n"), "\n")
	for i, want := range []string{
		"::error file=agents/a b.yaml,line=3,col=7,title=P0 A-06::P0: dataSources.models[0]: ",
		"::warning file=agents/x%2Cy%3Az.yaml,line=1,col=0,title=P1 A-10::P1: 100%25 of it",
		"::notice file=/etc/sallyport.yaml,title=P2::P2: models: not used",
	} {
		if len(lines) != 4 || !strings.HasPrefix(lines[i], want) || strings.Contains(lines[i], "\x1b") {
			t.Fatalf("%d: %q, want %q", i, lines, want)
		}
	}
}
