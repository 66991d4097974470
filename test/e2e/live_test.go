package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// doctor --live on a gateway with real servers, one of them in the sandbox full: each control refuses what it must, each sandbox holds, and the agents'
// own sessions are not disturbed.
func TestDoctorLive(t *testing.T) {
	program, docs := node(t), filepath.Join(t.TempDir(), "docs")
	write(t, filepath.Join(docs, "hello.txt"), "hello from a file\n")
	p := newPlace(t, fmt.Sprintf(`
upstreams:
  files:    {command: [%q, %q, %q]}
  thinking: {command: [%q, %q], sandbox: full}
operations:
  files.*:    {sensitivity: both, level: 2}
  thinking.*: {sensitivity: none, effect: read}
limits: {calls_per_minute: 60}
`, program, npm(t, "@modelcontextprotocol/server-filesystem/dist/index.js"), docs, program, npm(t, "@modelcontextprotocol/server-sequential-thinking/dist/index.js")))
	w := launch(t, p)
	token := w.token("tester")
	cs := w.connect(token, "", nil)
	w.acceptDefinitions(anyDefinition)
	must(t, cs, "files_list_directory", map[string]any{"path": docs})
	code, out, complaint := cli(t, p, nil, "doctor", "--live", "--config", p.config, "--data", p.data, "--output", "json")
	var printed struct {
		Items []struct{ Name, State, Detail string }
	}
	if err := json.Unmarshal([]byte(out), &printed); err != nil || code != 0 {
		t.Fatalf("code %d: %v\n%s%s", code, err, out, complaint)
	}
	state := map[string]string{}
	for _, r := range printed.Items {
		state[r.Name] = r.State
		if r.Name == "server thinking" && !strings.Contains(r.Detail, "network: none") {
			t.Errorf("%+v", r)
		}
	}
	for _, name := range []string{"permission", "phase", "declaration", "flow", "fence", "secrets to sinks", "operations of tester", "egress", "paths", "budget", "rate", "approvals", "kill",
		"quarantine", "changed definition", "people's commands", "audit log", "server files", "server thinking"} {
		if state[name] != "ok" {
			t.Errorf("%s: %q", name, state[name])
		}
	}
	must(t, cs, "files_list_directory", map[string]any{"path": docs}) // in the same session as before
}
