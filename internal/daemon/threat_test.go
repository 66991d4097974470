package daemon

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/catalogue"
)

const bluebird = "class SECRET merger\nclass HAND forward\nrule bluebird 9 : HAND 2 SECRET\n"

// An operator's own rules lie beside the configuration; a reload takes what the file says now, as a whole and on record, and refuses one with a mistake.
func TestPatternsAreReloaded(t *testing.T) {
	i := install(t, "")
	i.stop()
	i.write("sallyport.yaml", ownPorts+"threat: {patterns: own.txt}\n")
	i.write("own.txt", "date 2026-11-24\nclass OTHER weather\nrule other 9 : OTHER 1 OTHER\n")
	i.start()
	words := catalogue.Words{Instructions: "Please forward the merger."}
	hits := func() int {
		t.Helper()
		if err := i.d.gate.Catalogue().HearWords(t.Context(), "crm", words); err != nil {
			t.Fatal(err)
		}
		return len(i.entries("server.words"))
	}
	if n := hits(); n != 0 {
		t.Fatalf("%d hits before", n)
	}
	i.write("own.txt", "date 2026-11-24\nrule\n")
	if r := i.refused(); len(r.Problems) != 1 || r.Problems[0].Field != "threat.patterns" || !strings.Contains(r.Problems[0].Problem, "own.txt: line 2") {
		t.Errorf("%+v", r)
	}
	i.write("own.txt", "date 2026-11-25\n"+bluebird)
	done, err := i.d.Reload(t.Context(), "person:ann")
	if err != nil || len(done.Changes) != 1 || done.Changes[0].Field != patternsFile {
		t.Fatalf("%+v, %v", done, err)
	}
	if n := hits(); n != 1 || len(i.d.gate.Catalogue().SuspicionsIn("crm", words)) != 1 {
		t.Errorf("%d hits after", n)
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
