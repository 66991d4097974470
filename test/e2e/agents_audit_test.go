package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.example/client"
)

// TestAgentsAreAudited: the running binary answers the 13 boxes of the audit of agents and the 8 of the deployment checklist with what it is doing.
func TestAgentsAreAudited(t *testing.T) {
	p := newPlace(t, "upstreams: {echo: {url: \""+echoServer(t)+"\"}}\noperations: {echo.say: {sensitivity: none, effect: read}}\n",
		declaration("tester"), declare("reader", "advisory", "planning", []string{"echo.say"}, nil))
	w := startAt(t, p)
	boxes := func() map[string]client.DeploymentBox {
		t.Helper()
		r, err := w.root.Deployment(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]client.DeploymentBox{}
		for _, b := range r.Boxes {
			all[b.ID] = b
		}
		if len(all) != 21 || len(r.Violations) != 4 {
			t.Fatalf("%d boxes, %d violations", len(all), len(r.Violations))
		}
		return all
	}
	before := boxes()
	for id, want := range map[string]string{
		"agents-1": "yes", "agents-2": "no", "agents-3": "yes", "agents-6": "unseen", "agents-8": "yes", "agents-9": "yes", "agents-10": "yes", "agents-11": "yes",
		"deployment-3": "no", "deployment-4": "no", "deployment-5": "yes", "deployment-6": "yes", "deployment-7": "yes",
	} {
		if before[id].Answer != want || before[id].Reason == "" {
			t.Errorf("%+v, want %s", before[id], want)
		}
	}
	if e := strings.Join(before["agents-8"].Evidence, " "); !strings.Contains(e, "knowledge_events") {
		t.Errorf("append-only: %s", e)
	}
	if r := before["agents-2"].Reason; !strings.Contains(r, "tester") || strings.Contains(r, "reader") {
		t.Errorf("read-only: %s", r)
	}

	// An agent that connects with its own token opens a session for nobody; a credential without a declaration is named.
	cs := w.connect(w.token("tester"), revision1125, nil)
	if _, err := cs.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w.token("reader")
	if err := os.Remove(filepath.Join(p.dir, "agents", "a1.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.root.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := boxes()
	if b := after["agents-11"]; b.Answer != "no" || !strings.Contains(b.Reason, "tester") {
		t.Errorf("autonomous: %+v", b)
	}
	if b := after["agents-1"]; b.Answer != "no" || !strings.Contains(b.Reason, "reader") {
		t.Errorf("undeclared: %+v", b)
	}

	code, out, errs := cli(t, p, nil, "agents", "audit", "--data", p.data)
	if code != 1 || !strings.Contains(out, "No autonomous execution") || !strings.Contains(out, "A-09") || !strings.Contains(out, "can't be seen") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	code, out, _ = cli(t, p, nil, "agents", "audit", "--output", "json", "--data", p.data)
	var r client.Deployment
	if err := json.Unmarshal([]byte(out), &r); code != 1 || err != nil || len(r.Boxes) != 21 {
		t.Errorf("%d %v %s", code, err, out)
	}
}
