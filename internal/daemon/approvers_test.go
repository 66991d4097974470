package daemon

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/store"
)

// TestUpgradeAdoptsDeclarations: what ran before there were approvals is approved by rule, as long as it is unchanged; nothing else is, and no later start adopts.
func TestUpgradeAdoptsDeclarations(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	kept, changing := fmt.Sprintf(startedAgent, "[]", "advisory"), fmt.Sprintf(strings.Replace(startedAgent, "agentId: bot", "agentId: other", 1), "[]", "advisory")
	if err := olderStart(t, data, func(s *startState) { s.Approvals, s.Programs = false, false }, kept, changing).Close(); err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(changing, "version: 1.0.0", "version: 1.0.1", 1)
	added := strings.Replace(kept, "agentId: bot", "agentId: added", 1)
	got := approvalsIn(started(t, data, "", map[string]string{"bot": kept, "other": changed, "added": added}))
	if want := "bot " + approved.ByUpgrade; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := approvalsIn(started(t, data, "", map[string]string{"bot": kept, "other": changed, "added": added})); len(got) != 1 {
		t.Errorf("a later start adopts: %q", got)
	}
}

// approvalsIn are the approvals on record, with who gave them.
func approvalsIn(entries []audit.Entry) (said []string) {
	for _, e := range entries {
		if e.Action == approved.Action {
			said = append(said, e.Agent+" "+e.Actor)
		}
	}
	return said
}

// TestUpgradeAdoptsPrograms: the program of what people approved before programs belonged to declarations is approved by rule, once, where nothing else changed.
func TestUpgradeAdoptsPrograms(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	runs := func(id string) string {
		return strings.Replace(fmt.Sprintf(startedAgent, "[]", "advisory"), "agentId: bot", "agentId: "+id, 1) + "run: {kind: command, command: [sh, ./advisor.sh]}\n"
	}
	db := olderStart(t, data, func(s *startState) { s.Programs = false }, runs("bot"), runs("changing"), runs("late"))
	for _, id := range []string{"bot", "changing", "late"} {
		d, _ := agent.Parse(id+".yaml", []byte(runs(id)))
		word := approved.Word{Digest: d.Digest, Needed: 1, Votes: []approved.Vote{{Person: "alice"}}, Declaration: []byte("{}")}
		if err := db.SaveAgentApprovals(t.Context(), []approved.Record{{Agent: id, InForce: &word}}, audit.Entry{Kind: audit.Change, Action: "test", Agent: id, Actor: "person:alice", Decision: "ok"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(runs("changing"), "version: 1.0.0", "version: 1.0.1", 1)
	got := approvalsIn(started(t, data, "", map[string]string{"bot": runs("bot"), "changing": changed, "added": runs("added")}))
	if want := "bot " + approved.ByUpgrade; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := approvalsIn(started(t, data, "", map[string]string{"bot": runs("bot"), "changing": runs("changing"), "late": runs("late")})); len(got) != 1 {
		t.Errorf("a later start adopts: %q", got)
	}
}

// olderStart is a data directory on whose record is the start of an older version, as older makes it.
func olderStart(t *testing.T, data string, older func(*startState), declarations ...string) *store.DB {
	t.Helper()
	var all []agent.Declaration
	for i, text := range declarations {
		d, problems := agent.Parse(fmt.Sprint(i, ".yaml"), []byte(text))
		if d.Digest == "" {
			t.Fatal(problems)
		}
		all = append(all, d)
	}
	policies, err := policy.Load("")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := ParseConfig("sallyport.yaml", nil, filepath.Dir(data))
	if err != nil {
		t.Fatal(err)
	}
	s, err := startStateOf("1.0.0", []byte("key"), cfg, agent.NewSet(all...), policies)
	if err != nil {
		t.Fatal(err)
	}
	older(&s)
	e, err := starting.entry(&s)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(data, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Record(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return db
}

// TestNewInstallationAdoptsNothing: a first start approves no file that lies there.
func TestNewInstallationAdoptsNothing(t *testing.T) {
	for _, e := range started(t, filepath.Join(t.TempDir(), "data"), "", map[string]string{"bot": fmt.Sprintf(startedAgent, "[]", "advisory")}) {
		if e.Action == approved.Action {
			t.Errorf("%+v", e)
		}
	}
}

// TestApproversOf has each kind of declaration, with the people that it takes.
func TestApproversOf(t *testing.T) {
	const two = "people: [{id: alice, roles: [approver]}, {id: bob, roles: [admin]}]\n"
	const operations = `
operations:
  bank.transfer: {action: transfer_money}
  bank.note: {level: 2, action: send_email}
  shop.order: {level: 2, args: {total: amount}}
  site.*: {risk: HIGH}
  wiki.read: {effect: read}
upstreams: {bank: {url: "http://127.0.0.1:1"}, shop: {url: "http://127.0.0.1:1"}, site: {url: "http://127.0.0.1:1"}, wiki: {url: "http://127.0.0.1:1"}}
`
	for _, c := range []struct {
		config, mode, read, write string
		want                      int
	}{
		{two, "operator", "", "bank.transfer", 2},
		{two, "operator", "", "bank.*", 2},
		{two, "operator", "", "*", 2},
		{two, "operator", "*", "", 2},
		{two, "operator", "", "shop.order", 2},
		{two, "operator", "", "site.publish", 2},
		{two, "operator", "", "bank.note", 1},
		{two, "operator", "bank.*", "wiki.*", 1},
		{two, "advisory", "*", "", 1},
		{two + "declarations: {approvers: 1}\n", "operator", "", "*", 1},
		{two + "declarations: {approvers: 2}\n", "operator", "", "*", 2},
		{"", "operator", "", "*", 1},
		{"people: [{id: alice, roles: [approver]}, {id: bob, roles: [operator]}]\n", "operator", "", "*", 1},
	} {
		cfg, err := ParseConfig("sallyport.yaml", []byte(c.config+operations), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		list := func(p string) string {
			if p == "" {
				return "[]"
			}
			return `["` + p + `"]`
		}
		text := strings.Replace(fmt.Sprintf(startedAgent, list(c.write), c.mode), `read: ["comm.*"]`, "read: "+list(c.read), 1)
		d, problems := agent.Parse("a.yaml", []byte(text))
		if d.Digest == "" {
			t.Fatal(problems)
		}
		if got := cfg.approversOf(&d); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	for _, text := range []string{"declarations: {approvers: 3}\n", "declarations: {approvers: 2}\n", "people: [{id: alice, roles: [admin]}]\ndeclarations: {approvers: 2}\n", "declarations: {who: alice}\n"} {
		if _, err := ParseConfig("sallyport.yaml", []byte(text), t.TempDir()); err == nil || !strings.Contains(err.Error(), "declarations") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestDeclarationKeepsItsDigest: a field that an older version did not have is no change of a declaration that does not say it.
func TestDeclarationKeepsItsDigest(t *testing.T) {
	d, _ := agent.Parse("a.yaml", []byte(fmt.Sprintf(startedAgent, "[]", "advisory")))
	const before = `{"agentId":"bot","agentName":"Bot","capabilities":["testing"],"dataSources":{"apis":["x"],"models":[],"tables":[]},"dependsOn":[],"hostedTools":[],"humanApprovalRequired":true,"killSwitchEnabled":true,"maxExecutionTime":30000,"maxTokens":1000,"mode":"advisory","outputSchema":{"additionalProperties":false,"properties":{"answer":{"enum":["a"],"type":"string"}},"required":["answer"],"type":"object"},"outputSchemaVersion":"1.0.0","permissions":{"read":["comm.*"],"write":[]},"purpose":"tests things","quotas":{},"sessions":"host","startPhase":"planning","systemPrompt":{"constraints":[],"role":""},"trustTier":"","version":"1.0.0"}`
	if canonical, err := call.Canonical([]byte(before), call.DefaultLimits()); err != nil || call.HashBytes(canonical) != d.Digest {
		t.Errorf("%v: the digest is another one", err)
	}
}
