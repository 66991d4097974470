package agent

import (
	"fmt"
	"strings"
	"testing"
)

// A data source is an operation, a server, the database of comm.query or the host of comm.fetch. What other arguments say names none.
func TestDataSourcesHave(t *testing.T) {
	s := DataSources{Tables: []string{"incidents", "crm.find", "sales"}, APIs: []string{"status.example"}, Models: []string{"bank"}}
	for _, c := range []struct {
		operation, arguments string
		want                 bool
	}{
		{"incidents.get", `{}`, true},
		{"incidents.delete", `{}`, true},
		{"crm.find", `{}`, true},
		{"crm.get", `{}`, false},
		{"incidents2.get", `{}`, false},
		{"bank.list", `{}`, false}, // models are asked, not read
		{"mail.find", `{"database":"sales","url":"https://status.example/"}`, false},
		{"comm.query", `{"database":"sales","sql":"select 1"}`, true},
		{"comm.query", `{"database":"wages","sql":"select 'sales'"}`, false},
		{"comm.query", `{"query":{"database":"sales"}}`, false},
		{"comm.fetch", `{"url":"https://STATUS.example/now"}`, true},
		{"comm.fetch", `{"url":"https://status.example.evil.example/"}`, false},
		{"comm.fetch", `{"url":"https://status.example@evil.example/"}`, false},
		{"comm.fetch", `{"url":"http://status.example/"}`, false},
		{"comm.fetch", ``, false},
	} {
		if got := s.Has(c.operation, []byte(c.arguments)); got != c.want {
			t.Errorf("%s %s: %t", c.operation, c.arguments, got)
		}
	}
}

// Lint names what a declaration with runs permits to read and a run is refused.
func TestLintComparesSourcesWithReads(t *testing.T) {
	for read, want := range map[string]string{
		`incidents.get`: "", `incidents.*`: "", `crm.find`: "", `crm.*`: "", `"*"`: "", `comm.fetch`: "", `knowledge.search`: "",
		`crm.get`: `a run is refused "crm.get"`, `mail.*`: `a run is refused "mail.*"`, `"fs.read under docs/"`: `a run is refused "fs.read"`,
	} {
		text := fmt.Sprintf(minimal+"run: {kind: http, url: 'http://127.0.0.1:9/'}\n", read)
		_, problems := Parse("worker.yaml", []byte(text))
		found := ""
		for _, p := range problems {
			if strings.Contains(p.Problem, "no data source has its name") {
				found = p.Problem
				if p.Severity != P2 || p.Line == 0 {
					t.Errorf("%s: %+v", read, p)
				}
			}
		}
		if (want == "") != (found == "") || !strings.Contains(found, want) {
			t.Errorf("%s: %q", read, found)
		}
		if _, problems = Parse("worker.yaml", []byte(fmt.Sprintf(minimal, read))); strings.Contains(fmt.Sprint(problems), "no data source has its name") {
			t.Errorf("%s: without runs: %v", read, problems)
		}
	}
}

const minimal = `agentId: worker
agentName: Worker
version: 1.0.0
purpose: works
capabilities: [work]
dataSources: {tables: [incidents, crm.find], apis: [], models: []}
permissions: {read: [%s], write: []}
outputSchema: {type: object, additionalProperties: false, required: [answer], properties: {answer: {type: string, maxLength: 10, pattern: "^[a-z]*$", x-fact: true}}}
outputSchemaVersion: 1.0.0
maxExecutionTime: 30000
maxTokens: 1000
killSwitchEnabled: true
humanApprovalRequired: true
`
