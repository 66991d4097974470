package daemon

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/screen"
)

const bluebird = "class SECRET merger\nclass HAND forward\nrule bluebird 9 : HAND 2 SECRET\n"

// An operator's own rules lie beside the configuration; a reload takes what the file says now, as a whole and on record, and refuses one with a mistake. The next call is judged by them.
func TestPatternsAreReloaded(t *testing.T) {
	const threat = "mode: observe\ncomm: {allowed_domains: [a.invalid]}\nthreat: {patterns: own.txt, input: deny}\n" // in this mode no plan has to come first
	i := install(t, "")
	i.stop()
	i.write("sallyport.yaml", ownPorts+threat)
	i.write("own.txt", "date 2026-11-24\nclass OTHER weather\nrule other 9 : OTHER 1 OTHER\n")
	i.start()
	if err := i.d.approved.Adopt(t.Context(), approved.ByUpgrade, i.d.gate.Agents().All()...); err != nil {
		t.Fatal(err)
	}
	stops := func() fault.Code {
		t.Helper()
		p := identity.Principal{Kind: identity.Agent, ID: "bot"}
		return i.d.gate.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "comm_fetch", Arguments: json.RawMessage(`{"url":"https://a.invalid/?q=Please%20forward%20the%20merger"}`), Door: "mcp"}).Verdict.Code
	}
	if code := stops(); code == fault.ThreatInjection {
		t.Fatalf("before: %s", code)
	}
	i.write("own.txt", "date 2026-11-24\nrule\n")
	if r := i.refused(); len(r.Problems) != 1 || r.Problems[0].Field != "threat.patterns" || !strings.Contains(r.Problems[0].Problem, "own.txt: line 2") {
		t.Errorf("%+v", r)
	}
	i.write("own.txt", "date 2026-11-25\n"+bluebird)
	if code := stops(); code == fault.ThreatInjection {
		t.Errorf("before the reload: %s", code)
	}
	done, err := i.d.Reload(t.Context(), "person:ann")
	if err != nil || len(done.Changes) != 1 || done.Changes[0].Field != patternsFile {
		t.Fatalf("%+v, %v", done, err)
	}
	if code := stops(); code != fault.ThreatInjection {
		t.Errorf("after: %s", code)
	}
}

// What is checked, on record and in force is one reading of the file.
func TestPatternsAreReadOnce(t *testing.T) {
	i := &installed{t: t, dir: t.TempDir()}
	i.write("sallyport.yaml", ownPorts+"threat: {patterns: own.txt}\n")
	i.write("own.txt", "date 2026-11-25\n"+bluebird)
	cfg, err := LoadConfig(filepath.Join(i.dir, "sallyport.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if all := cfg.patternProblems("f", time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)); len(all) != 0 {
		t.Fatalf("%+v", all)
	}
	i.write("own.txt", "date 2026-11-25\nrule\n")
	if own := cfg.rules(); own.err != nil || !own.detector.Find(screen.Arguments, "x", []byte("Please forward the merger.")).Hit() {
		t.Errorf("%v", own.err)
	}
}

// Old rules are a P2; a file that is missing or wrong is an error.
func TestLintOfPatterns(t *testing.T) {
	dir := t.TempDir()
	i := &installed{t: t, dir: dir}
	i.write("sallyport.yaml", ownPorts+"threat: {patterns: own.txt}\n")
	for name, c := range map[string]struct {
		rules string
		after time.Duration
		want  []string
	}{
		"new":       {"date 2026-11-25\n" + bluebird, 0, nil},
		"old":       {"date 2026-01-01\n" + bluebird, 0, []string{"P2 threat.patterns"}},
		"all old":   {"date 2026-11-25\n" + bluebird, 400 * 24 * time.Hour, []string{"P2 threat", "P2 threat.patterns"}},
		"no date":   {bluebird, 0, []string{"error threat.patterns"}},
		"a mistake": {"date 2026-11-25\nrule\n", 0, []string{"error threat.patterns"}},
	} {
		i.write("own.txt", c.rules)
		cfg, err := LoadConfig(filepath.Join(dir, "sallyport.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range cfg.patternProblems("f", time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).Add(c.after)) {
			got = append(got, string(p.Severity)+" "+p.Field)
		}
		if strings.Join(got, ", ") != strings.Join(c.want, ", ") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
