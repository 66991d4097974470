package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/agent"
)

type sarifResult struct {
	RuleID    string
	Message   struct{ Text string }
	Locations []struct {
		PhysicalLocation struct {
			ArtifactLocation struct{ URI string }
			Region           struct{ StartLine, StartColumn int }
		}
	}
}

// TestLintNamesEachViolation has a bad declaration for each of the twelve violations, and looks for its code, severity, place, impact and resolution in
// each form that lint prints. The good declaration has none of them.
func TestLintNamesEachViolation(t *testing.T) {
	const file = "research-assistant.yaml"
	changed := func(from, to string) string {
		text := strings.Replace(agent.Example(), from, to, 1)
		if text == agent.Example() {
			t.Fatalf("%q is not in the example", from)
		}
		return text
	}
	bad := map[string]struct {
		text, field string
		severity    agent.Severity
		stops       bool
	}{
		"A-01": {changed("write: []", "write: [mail.send]"), "permissions.write", agent.P0, true},
		"A-02": {changed("humanApprovalRequired: true ", "humanApprovalRequired: false "), "humanApprovalRequired", agent.P0, true},
		"A-03": {changed("killSwitchEnabled: true ", "killSwitchEnabled: false "), "killSwitchEnabled", agent.P0, true},
		"A-04": {changed(`, pattern: "^[^<>]*$", x-fact`, ", x-fact"), "outputSchema", agent.P0, true},
		"A-05": {strings.Replace(changed("write: []", "write: [knowledge.add]"), "mode: advisory", "mode: operator", 1), "permissions.write[0]", agent.P0, true},
		"A-06": {changed("claude-sonnet-4-5-20250929", "gpt-4o"), "dataSources.models[0]", agent.P0, true},
		"A-07": {changed("tables: [mail]", "tables: [mail, recommendations]"), "dataSources.tables[1]", agent.P0, true},
		"A-08": {agent.Example() + "dependsOn: [nobody]\n", "dependsOn[0]", agent.P1, true},
		"A-09": {changed("maxExecutionTime: 30000", "maxExecutionTime: 300001"), "maxExecutionTime", agent.Error, true},
		"A-10": {changed(", x-fact: true", ""), "outputSchema", agent.P1, true},
		"A-11": {changed("version: 1.0.0 ", "# "), "version", agent.P2, true}, // a declaration has to have a version: its absence is an error, too
		"A-12": {changed("outputSchemaVersion: 1.0.0", ""), "outputSchemaVersion", agent.P2, false},
		"":     {agent.Example(), "", "", false},
	}
	if len(bad) != len(agent.Violations)+1 {
		t.Fatalf("%d of %d violations", len(bad)-1, len(agent.Violations))
	}
	for code, c := range bad {
		t.Run(code, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, file)
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			lint := func(flags ...string) string {
				var out, errs bytes.Buffer
				exit := run(t.Context(), append([]string{"lint", dir}, flags...), strings.NewReader(""), &out, &errs)
				if want := map[bool]int{true: exitRefused, false: exitDone}[c.stops]; exit != want {
					t.Errorf("%v: exit code %d, want %d: %s%s", flags, exit, want, &out, &errs)
				}
				if all := out.String() + errs.String(); !strings.Contains(all, "can't be seen from here, only in a running gateway: A-03, A-05, A-07, A-09") {
					t.Errorf("%v: nothing says what can't be seen: %s", flags, all)
				}
				return out.String()
			}
			var printed struct{ Items []agent.Problem }
			if err := json.Unmarshal([]byte(lint("--output", "json")), &printed); err != nil {
				t.Fatal(err)
			}
			found := printed.Items
			table, sarif, github := lint(), lint("--format", "sarif"), lint("--format", "github")
			v, known := agent.ViolationOf(code)
			if !known {
				if len(found) > 0 || !strings.Contains(table, "no problems") || strings.Contains(sarif, `"ruleId"`) || strings.Contains(github, "file=") {
					t.Errorf("the good declaration: %v\n%s\n%s", found, table, github)
				}
				return
			}
			i := slices.IndexFunc(found, func(p agent.Problem) bool { return p.Code == code })
			if i < 0 {
				t.Fatalf("%v", found)
			}
			p := found[i]
			if p.File != path || p.Line < 1 || p.Column < 1 || p.Field != c.field || p.Severity != c.severity || p.Impact != v.Impact || p.Resolution != v.Resolution || p.Remedy == "" {
				t.Errorf("%+v", p)
			}
			about := fmt.Sprintf(" [impact: %s; resolution: %s]", v.Impact, v.Resolution)
			if want := fmt.Sprintf("%s:%d:%d: %s: %s: ", path, p.Line, p.Column, p.Severity, p.Field); !strings.Contains(table, want) || !strings.Contains(table, about) {
				t.Errorf("want %q and %q in: %s", want, about, table)
			}
			if want := fmt.Sprintf(" file=%s,line=%d,col=%d,title=%s %s::", path, p.Line, p.Column, p.Severity, code); !strings.Contains(github, want) || !strings.Contains(github, about) {
				t.Errorf("want %q and %q in: %s", want, about, github)
			}
			var log struct {
				Runs []struct {
					Tool struct {
						Driver struct {
							Rules []struct {
								ID               string
								FullDescription  struct{ Text string }
								Help             struct{ Text string }
								ShortDescription struct{ Text string }
							}
						}
					}
					Results []sarifResult
				}
			}
			if err := json.Unmarshal([]byte(sarif), &log); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(log.Runs[0].Results, func(r sarifResult) bool {
				at := r.Locations[0].PhysicalLocation
				return r.RuleID == code && at.ArtifactLocation.URI == "file://"+path && at.Region.StartLine == p.Line && at.Region.StartColumn == p.Column && strings.Contains(r.Message.Text, about)
			}) {
				t.Errorf("%s", sarif)
			}
			for _, rule := range log.Runs[0].Tool.Driver.Rules {
				if rule.ID == code && (rule.ShortDescription.Text != v.Title || rule.FullDescription.Text != v.Impact+"." || !strings.HasPrefix(rule.Help.Text, v.Resolution+".")) {
					t.Errorf("%+v", rule)
				}
			}
		})
	}
}

// TestLintSaysHowFilesAreCalled: a file has the name of its agent, else it is a P2, which does not fail the check.
func TestLintSaysHowFilesAreCalled(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other.yaml"), []byte(agent.Example()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if exit := run(t.Context(), []string{"lint", dir}, strings.NewReader(""), &out, &errs); exit != exitDone || !strings.Contains(out.String(), "other.yaml:1:1: P2: agentId: the file is not called as the agent (call it research-assistant.yaml)") {
		t.Errorf("%d: %s%s", exit, &out, &errs)
	}
}

// TestLintPinsModels: a model of the configuration that its provider moves is the violation that it is in a declaration, at its line.
func TestLintPinsModels(t *testing.T) {
	t.Chdir(t.TempDir())
	for text, want := range map[string]string{
		"models: [{id: gpt-4o, provider: openai, labels: [internal]}]\n":             "A-06",
		"models: [{id: our-model, provider: openai, labels: [internal]}]\n":          "A-06",
		"models: [{id: our-model-20250929, provider: openai, labels: [internal]}]\n": "",
		"models: [{id: 5, provider: openai}]\n":                                      "models[0].id",
		"models: [{id: our-model-20250929, provider: openai, temperature: 1}]\n":     "temperature",
	} {
		if err := os.WriteFile("sallyport.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		exit := run(t.Context(), []string{"lint"}, strings.NewReader(""), &out, &errs)
		if got := out.String(); (exit == exitDone) != (want == "") || !strings.Contains(got, want) || want == "A-06" && !strings.Contains(got, "sallyport.yaml:1:11: error: models[0].id: ") {
			t.Errorf("%s: %d: %s%s", text, exit, got, &errs)
		}
	}
}
