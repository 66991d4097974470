package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/labels"
)

// recorded are the definitions of an entry's tools, as its server gave them: of each the first that was recorded.
func recorded(t *testing.T, entry string) map[string]json.RawMessage {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "internal", "labels", "entries", entry+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatalf("%s: %v", entry, err)
	}
	first := map[string]json.RawMessage{}
	for tool, definitions := range all {
		first[tool] = definitions[0]
	}
	return first
}

// pinsOf are the pins of a gateway that has accepted these definitions.
func pinsOf(server string, definitions map[string]json.RawMessage) []catalogue.Pin {
	pins := []catalogue.Pin{{Operation: server + ".*", AcceptedAt: time.Unix(1, 0), AcceptedBy: catalogue.FirstSight}}
	for _, tool := range slices.Sorted(maps.Keys(definitions)) {
		pins = append(pins, catalogue.Pin{Operation: server + "." + tool, Hash: call.HashBytes(definitions[tool]), Definition: definitions[tool], AcceptedAt: time.Unix(1, 0), AcceptedBy: "person:ann"})
	}
	return pins
}

// TestTheCatalogueStandsItsOwnLint writes each entry of the catalogue out as an operator would, over the definitions that it was recorded from, and finds what lint finds.
func TestTheCatalogueStandsItsOwnLint(t *testing.T) {
	entries, err := labels.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Run(e.ID, func(t *testing.T) {
			var written struct {
				Operations map[string]any `yaml:"operations"`
			}
			b, err := os.ReadFile(filepath.Join("..", "..", "internal", "labels", "entries", e.ID+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(b, &written); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("upstreams: {%s: {url: \"http://x\"}}\noperations:\n", e.ID)
			for _, tool := range slices.Sorted(maps.Keys(written.Operations)) {
				line, err := json.Marshal(written.Operations[tool])
				if err != nil {
					t.Fatal(err)
				}
				text += fmt.Sprintf("  %q: %s\n", e.ID+"."+tool, line)
			}
			file, dir := world(t, text, pinsOf(e.ID, recorded(t, e.ID)), nil)
			problems, err := daemon.Lint(t.Context(), dir, Compare, file)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				if p.Severity == agent.P2 || p.Severity == agent.Note || knownFindings(p) {
					continue
				}
				t.Errorf("%s %s: %s", p.Severity, p.Field, p.Problem)
			}
		})
	}
}

// findings are what lint finds in the catalogue by names alone, and why it stays as it is.
var findings = map[string]string{ // the beginning and the end of a field -> why
	"operations.chrome-devtools. .args.pageId":   "a page is one of those that are open; what is done on it has to be confirmed by itself",
	"operations.everything.trigger-long .effect": "it waits, and tells how long",
	"operations.firecrawl.firecrawl_s .":         "a call that brings a script counts as a write, as it should",
	"operations.google-calendar. .args.colorId":  "it is the colour that an event is shown in",
	"operations.mongodb. .args.connectionId":     "a connection is the configured one, or one that a person said yes to",
	"operations.mongodb.find .args.filter":       "a search with a filter counts as a write, as it should",
	"operations.mongodb.find .args.projection":   "the same",
	"operations.mongodb.count .args.query":       "the same",
	"operations.mongodb.search-know .args.query": "it counts as a write, which costs a question",
	"operations.notion.API- .effect":             "block, comment and post are things, or a method of HTTP",
	"operations.sentry. .args.regionUrl":         "the server takes no region but Sentry's own",
	"operations.sentry. rl":                      "the server takes ids out of it, and asks nobody but Sentry",
	"operations.sequential-thinking. .branchId":  "a call that names a branch counts as a write, as it should",
	"operations.stripe.create_payment .action":   "risk: HIGH asks about each call",
}

func knownFindings(p daemon.Problem) bool {
	for field := range findings {
		begin, end, _ := strings.Cut(field, " ")
		if p.Severity == agent.P1 && strings.HasPrefix(p.Field, begin) && (end == "." || strings.HasSuffix(p.Field, end)) {
			return true
		}
	}
	return false
}

// TestNotesOfTheCatalogue: lint says what the labels of the catalogue let run, and which tools they are not for.
func TestNotesOfTheCatalogue(t *testing.T) {
	definitions := recorded(t, "memory")
	definitions["read_graph"] = json.RawMessage(strings.Replace(string(definitions["read_graph"]), "entire", "whole", 1))
	definitions["export_graph"] = json.RawMessage(`{"inputSchema":{"type":"object"},"name":"export_graph"}`)
	file, dir := world(t, `upstreams: {mem: {command: [npx, -y, "@modelcontextprotocol/server-memory@2026.8.31"], labels: catalogue}}`, pinsOf("mem", definitions), nil)
	problems, err := daemon.Lint(t.Context(), dir, Compare, file)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, problems, [][2]string{
		{"note upstreams.mem.labels", "labels from the catalogue (Memory, recorded from @modelcontextprotocol/server-memory 2026.8.31, tested by days of work): run unasked: 2 reads; seen by the person alone, who can undo it: 3 writes; always asked about: 3 tools; without a label: 2 tools"},
		{"P2 upstreams.mem.labels", "the definition of read_graph is not the one that the catalogue's label is for, so it has none"},
		{"P2 upstreams.mem.sandbox", "Memory works in the sandbox full, and has partial"},
		{"P2 operations", "no entry covers these tools of mem, so they can't be called: export_graph, read_graph"},
	})
}
