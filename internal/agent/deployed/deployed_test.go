package deployed_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/deployed"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// good are facts of a gateway about which there is nothing to say.
func good(t *testing.T) deployed.Facts {
	t.Helper()
	text := strings.Replace(agent.Example(), "models: []", "models: [claude-sonnet-4-5-20250929]", 1)
	d, problems := agent.Parse("research-assistant.yaml", []byte(text))
	for _, p := range problems {
		if p.Blocks() {
			t.Fatal(p)
		}
	}
	if len(d.DataSources.Models) == 0 {
		d.DataSources.Models = []string{"claude-sonnet-4-5-20250929"}
	}
	return deployed.Facts{
		At: now, Agents: []deployed.Agent{{Declaration: &d, Approved: true, Runs: deployed.Runs{All: 3, Done: 3, Citations: 4, Verified: 4}, Quota: true}},
		Switch:    deployed.Switch{Durable: true},
		Knowledge: deployed.Knowledge{AppendOnly: []string{"knowledge_events"}},
		Answerers: 2, HighAmount: 1000, CriticalAmount: 10000, LogSize: 1, LogWrites: true, PromptBytes: 100,
		Breakers: deployed.Breakers{Failures: 5, Wait: 30 * time.Second},
	}
}

// TestBoxes: there are 13 and 8 boxes, and each fact that speaks against one turns that one, with a reason and a remedy.
func TestBoxes(t *testing.T) {
	base := deployed.Check(good(t))
	if len(base.Boxes) != 21 || base.Boxes[12].ID != "agents-13" || base.Boxes[20].ID != "deployment-8" {
		t.Fatalf("%d boxes", len(base.Boxes))
	}
	never := map[string]deployed.Answer{"deployment-2": deployed.Unseen, "deployment-8": deployed.No}
	for _, b := range base.Boxes {
		want := deployed.Yes
		if n, ok := never[b.ID]; ok {
			want = n
		}
		if b.Answer != want || b.Reason == "" || b.Question == "" || want != deployed.Yes && b.Remedy == "" {
			t.Errorf("%+v", b)
		}
	}
	coded := func(code string) func(*deployed.Facts) {
		return func(f *deployed.Facts) {
			f.Agents[0].Problems = []agent.Problem{{Code: code, Severity: agent.P0, Problem: "bad", Stops: true}}
		}
	}
	decl := func(change func(*agent.Declaration)) func(*deployed.Facts) {
		return func(f *deployed.Facts) {
			d := *f.Agents[0].Declaration
			change(&d)
			f.Agents[0].Declaration = &d
		}
	}
	for _, c := range []struct {
		box    string
		answer deployed.Answer
		change func(*deployed.Facts)
	}{
		{"agents-1", deployed.No, func(f *deployed.Facts) { f.Undeclared = []string{"ghost"} }},
		{"agents-1", deployed.No, func(f *deployed.Facts) { f.Agents[0].Approved = false }},
		{"agents-1", deployed.No, coded("A-08")},
		{"agents-1", deployed.Unseen, func(f *deployed.Facts) { f.Agents = nil }},
		{"agents-2", deployed.No, func(f *deployed.Facts) { f.Agents[0].Writes = []string{"mail.send"} }},
		{"agents-2", deployed.No, decl(func(d *agent.Declaration) { d.Mode = agent.Operator })},
		{"agents-3", deployed.No, decl(func(d *agent.Declaration) { d.KillSwitchEnabled = false })},
		{"agents-3", deployed.No, func(f *deployed.Facts) { f.Switch.Durable = false }},
		{"agents-4", deployed.No, coded("A-04")},
		{"agents-5", deployed.No, coded("A-06")},
		{"agents-5", deployed.Unseen, decl(func(d *agent.Declaration) { d.DataSources.Models = nil })},
		{"agents-6", deployed.No, func(f *deployed.Facts) { f.Agents[0].Runs.Timeouts = 1 }},
		{"agents-6", deployed.Unseen, func(f *deployed.Facts) { f.Agents[0].Runs = deployed.Runs{} }},
		{"agents-7", deployed.No, coded("A-10")},
		{"agents-8", deployed.No, func(f *deployed.Facts) { f.Knowledge.Doubts = []string{"a trigger is gone"} }},
		{"agents-8", deployed.No, func(f *deployed.Facts) { f.Knowledge.AppendOnly = nil }},
		{"agents-8", deployed.No, coded("A-05")},
		{"agents-10", deployed.Unseen, func(f *deployed.Facts) { f.Knowledge.Documents = 1 }},
		{"agents-11", deployed.No, coded("A-02")},
		{"agents-11", deployed.No, func(f *deployed.Facts) { f.Observes = true }},
		{"agents-11", deployed.No, func(f *deployed.Facts) { f.Agents[0].Alone = []string{"sess_1"} }},
		{"agents-12", deployed.No, coded("A-07")},
		{"agents-12", deployed.No, func(f *deployed.Facts) { f.Knowledge.ByAgents = []string{"the document d was written by agent:a"} }},
		{"agents-12", deployed.No, func(f *deployed.Facts) { f.Agents[0].Runs.Returned = 1 }},
		{"agents-12", deployed.Unseen, func(f *deployed.Facts) { f.Agents[0].Runs = deployed.Runs{} }},
		{"agents-13", deployed.No, coded("A-10")},
		{"deployment-1", deployed.Unseen, func(f *deployed.Facts) { f.PromptBytes = 0 }},
		{"deployment-3", deployed.No, decl(func(d *agent.Declaration) { d.Permissions.Read = []string{"*"} })},
		{"deployment-4", deployed.No, func(f *deployed.Facts) { f.Agents[0].Quota = false }},
		{"deployment-5", deployed.No, func(f *deployed.Facts) { f.HighAmount = 1001 }},
		{"deployment-5", deployed.No, func(f *deployed.Facts) { f.Answerers = 0 }},
		{"deployment-6", deployed.No, func(f *deployed.Facts) { f.LogWrites = false }},
	} {
		f := good(t)
		c.change(&f)
		for _, b := range deployed.Check(f).Boxes {
			if b.ID == c.box && (b.Answer != c.answer || b.Remedy == "" || b.Reason == "") {
				t.Errorf("%s: %+v, want %s", c.box, b, c.answer)
			}
		}
	}
}

// TestAutonomousByDeclaration: an agent whose approved declaration says that it opens sessions itself may work alone; one that nobody approved may not.
func TestAutonomousByDeclaration(t *testing.T) {
	for _, approved := range []bool{true, false} {
		f := good(t)
		d := *f.Agents[0].Declaration
		d.Sessions = agent.BySelf
		f.Agents[0].Declaration, f.Agents[0].Approved, f.Agents[0].Alone = &d, approved, []string{"sess_1"}
		if got := deployed.Check(f).Boxes[10].Answer == deployed.Yes; got != approved {
			t.Errorf("approved %v: yes is %v", approved, got)
		}
	}
}

// TestDecided: the violations that no file shows are those of the list, and each follows its box.
func TestDecided(t *testing.T) {
	r := deployed.Check(good(t))
	var codes []string
	for _, v := range r.Violations {
		codes = append(codes, v.Code)
	}
	if fmt.Sprint(codes) != fmt.Sprint(agent.Elsewhere()) {
		t.Errorf("%v, want %v", codes, agent.Elsewhere())
	}
	f := good(t)
	f.Agents[0].Runs.Timeouts = 2
	r = deployed.Check(f)
	if r.Violations[3].Code != "A-09" || r.Violations[3].Found != deployed.Yes || r.Violations[0].Found != deployed.No || r.Violations[2].Found != deployed.No {
		t.Errorf("%+v", r.Violations)
	}
}
