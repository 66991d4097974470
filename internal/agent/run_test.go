package agent

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// advisor is a declaration without a problem, with more fields at its end.
func advisor(more string) []byte { return []byte(example + more) }

func TestRunAndActionsAreRead(t *testing.T) {
	d, problems := Parse("a.yaml", advisor(`run: {kind: command, command: [python3, ./advisor.py]}
recommendationActions:
  ESCALATE: {operation: pager.page, args: {incident: "$.recommendation.steps[0].id", urgent: true, team: sre}}
  WAIT: none
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if d.Run == nil || d.Run.Kind != RunCommand || !reflect.DeepEqual(d.Run.Command, []string{"python3", "./advisor.py"}) {
		t.Fatalf("run is %+v", d.Run)
	}
	page := d.RecommendationActions["ESCALATE"]
	if page.Operation != "pager.page" || string(page.Args["urgent"]) != "true" || d.RecommendationActions["WAIT"].Operation != "" || len(d.RecommendationActions) != 2 {
		t.Fatalf("actions are %+v", d.RecommendationActions)
	}
	if steps, ok := Path(page.Args["incident"]); !ok || !reflect.DeepEqual(steps, []any{"recommendation", "steps", 0, "id"}) {
		t.Errorf("the path is %v", steps)
	}
	if _, ok := Path(page.Args["team"]); ok {
		t.Error("a plain value counts as a path")
	}
	without, _ := Parse("a.yaml", advisor(""))
	if without.Digest == d.Digest {
		t.Error("the digest doesn't cover the run and the actions")
	}
}

func TestBadRunsAndActionsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"run: {kind: model}": "run.model: is missing",
		"run: {kind: model, model: claude-sonnet-4-5-20250929, url: 'https://advisor.example/'}": "url and secret are for runs of kind http",
		"run: {kind: model, model: claude-sonnet-4-5-20250929, command: [a]}":                    "run.command: is for runs of kind command",
		"run: {kind: command, command: [a], model: claude-sonnet-4-5-20250929}":                  "run.model: is for runs of kind model",
		"run: {kind: shell}":  `run.kind: "shell" is not known (write http or command or model)`,
		"run: {command: [a]}": "run.kind: is missing",
		"run: here":           "run: must be a mapping",
		"run: {kind: http}":   "run.url: is missing",
		"run: {kind: http, url: 'http://advisor.example/run'}":                            "must be https",
		"run: {kind: http, url: 'ftp://127.0.0.1/run'}":                                   "must be https",
		"run: {kind: http, url: 'https://me:pw@advisor.example/'}":                        "may not hold a user",
		"run: {kind: http, url: 'https://advisor.example/', secret: hunter2}":             "must name an environment variable",
		"run: {kind: http, url: 'https://advisor.example/', command: [a]}":                "run.command: is for runs of kind command",
		"run: {kind: command, command: []}":                                               "run.command: is missing",
		"run: {kind: command, command: [a], url: 'https://advisor.example/'}":             "url and secret are for runs of kind http",
		"run: {kind: command, command: [a], shell: true}":                                 "run.shell: unknown field",
		"recommendationActions: [a]":                                                      "must be a mapping from actions",
		"recommendationActions: {WAIT: nothing}":                                          "must be none, or an operation",
		"recommendationActions: {PAGE: {}}":                                               "recommendationActions.PAGE.operation: is missing",
		"recommendationActions: {PAGE: {operation: 'pager.*'}}":                           "must be one operation",
		"recommendationActions: {PAGE: {operation: page}}":                                "is not an operation id",
		"recommendationActions: {PAGE: {operation: pager.page, args: {a: '$..x'}}}":       "is not a path into the output",
		"recommendationActions: {PAGE: {operation: pager.page, args: {a: '$.x[99999]'}}}": "is not a path into the output",
		"recommendationActions: {PAGE: {operation: pager.page, args: [a]}}":               "must be a mapping of arguments",
		"recommendationActions: {'two words': none}":                                      "is not one word",
		"recommendationActions: {PAGE: {operation: doctor.pay}}":                          "trial agents",
		"recommendationActions: {PAGE: none, PAGE: none}":                                 "already defined|appears twice",
	} {
		d, problems := Parse("a.yaml", advisor(text+"\n"))
		var all []string
		blocked := false
		for _, p := range problems {
			all = append(all, p.String())
			blocked = blocked || p.Blocks()
		}
		found := false
		for _, one := range strings.Split(want, "|") {
			found = found || strings.Contains(strings.Join(all, "\n"), one)
		}
		if !found || !blocked || d.Permits("mail.search_email", false) {
			t.Errorf("%s\n gives %q, and not %q", text, all, want)
		}
	}
}

func TestUnsignedRunBeyondThisMachineIsP1(t *testing.T) {
	for text, want := range map[string]bool{
		"run: {kind: http, url: 'https://advisor.example/run'}":                       true,
		"run: {kind: http, url: 'https://advisor.example/run', secret: '${ADVISOR}'}": false,
		"run: {kind: http, url: 'http://127.0.0.1:8080/run'}":                         false,
		"run: {kind: http, url: 'http://[::1]:8080/run'}":                             false,
	} {
		_, problems := Parse("a.yaml", advisor(text+"\n"))
		if got := len(problems) == 1 && problems[0].Severity == P1 && problems[0].Field == "run.url"; got != want || !want && len(problems) > 0 {
			t.Errorf("%s gives %v", text, problems)
		}
	}
}

func TestRecommends(t *testing.T) {
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"action":{"type":"string"}}}`:                                                         true,
		`{"type":"object","properties":{"recommendation":{"type":"object","properties":{"action":{"type":"string"}}}}}`:       true,
		`{"type":"object","properties":{"recommendation":{"type":"string"},"answer":{"type":"string","enum":["action"]}}}`:    false,
		`{"type":"object","properties":{"answer":{"type":"object","properties":{"action":{"type":"string"}}}},"action":true}`: false,
		`null`: false,
	} {
		if got := (&Declaration{OutputSchema: json.RawMessage(schema)}).Recommends(); got != want {
			t.Errorf("%s: %v", schema, got)
		}
	}
	if !(&Declaration{RecommendationActions: map[string]Action{"WAIT": {}}}).Recommends() {
		t.Error("a map of actions recommends nothing")
	}
}
