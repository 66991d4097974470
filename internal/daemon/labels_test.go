package daemon

import (
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/labels"
	"sallyport.example/provenance"
)

const memoryServer = `{command: [npx, -y, "@modelcontextprotocol/server-memory@2026.8.31"], labels: catalogue}`

// recordedHash is the hash of a definition that an entry's label is for.
func recordedHash(t *testing.T, entry, tool string) string {
	t.Helper()
	all, err := labels.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.ID == entry {
			return e.Labelled(tool)[0]
		}
	}
	t.Fatalf("no entry %s", entry)
	return ""
}

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, err := ParseConfig("sallyport.yaml", []byte(text), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestLabelsOfTheCatalogue: they hold for the recorded definitions alone, and the operator's own word on a tool, or on its server, wins field by field.
func TestLabelsOfTheCatalogue(t *testing.T) {
	hash := recordedHash(t, "memory", "create_entities")
	plain := parsed(t, "upstreams: {m: "+memoryServer+"}").Classifier(nil)
	c := plain("m", "create_entities").For(hash)
	if !c.Listed || !c.Named || !c.TrustFirstSight || c.Level != 1 || c.Flow.Sensitivity != flow.None || c.Roles["entities.name"] != "target" || c.Unclassified {
		t.Errorf("as it is recorded: %+v", c)
	}
	if c := plain("m", "create_entities").For("another"); c.Listed || c.TrustFirstSight || c.Level != 2 || c.Flow.Sensitivity != flow.External || len(c.Roles) > 0 {
		t.Errorf("another definition: %+v", c)
	}
	if c := plain("m", "forget_all").For(hash); c.Listed || c.Level != 2 {
		t.Errorf("a tool that the catalogue doesn't know: %+v", c)
	}
	if c := plain("x", "create_entities").For(hash); c.Listed {
		t.Errorf("a tool of another server: %+v", c)
	}

	own := parsed(t, "upstreams: {m: "+memoryServer+"}\noperations:\n  m.create_entities: {level: 2, args: {entities.name: name}}\n  m.read_graph: {risk: HIGH}\n").Classifier(nil)
	c = own("m", "create_entities").For(hash)
	if c.Level != 2 || c.Roles["entities.name"] != "name" || c.Roles["entities.observations"] != "content" || c.Flow.Sensitivity != flow.None || c.Facts.Boundary != provenance.BoundaryNone {
		t.Errorf("the operator's word on the tool: %+v", c)
	}
	if c := own("m", "create_entities").For("another"); !c.Listed || c.Level != 2 || c.Flow.Sensitivity != flow.External || len(c.Roles) != 1 {
		t.Errorf("the operator's word alone: %+v", c)
	}
	if c := own("m", "read_graph").For(recordedHash(t, "memory", "read_graph")); c.Level != 0 || c.Flow.Sensitivity != flow.InternalSource || c.RiskFloor != "HIGH" {
		t.Errorf("a word that raises the risk: %+v", c)
	}

	server := parsed(t, "upstreams: {m: "+memoryServer+"}\noperations: {m.*: {sensitivity: both, level: 2, risk: MEDIUM}}\n").Classifier(nil)
	if c := server("m", "read_graph").For(recordedHash(t, "memory", "read_graph")); c.Level != 2 || c.Flow.Sensitivity != flow.Both || c.RiskFloor != "MEDIUM" || !c.Named {
		t.Errorf("the operator's word on the server: %+v", c)
	}
}

// TestEveryEntryIsAConfiguration: the labels of each entry are read as strictly as those of the configuration, and are free of contradictions.
func TestEveryEntryIsAConfiguration(t *testing.T) {
	all, err := labels.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		operations, err := operationsOf(e)
		if err != nil {
			t.Error(err)
			continue
		}
		c := &Config{Upstreams: map[string]UpstreamConfig{e.ID: {URL: "http://x"}}, Operations: map[string]OperationConfig{}, Flow: FlowConfig{Labels: []string{"internal"}}}
		for tool, o := range operations {
			c.Operations[e.ID+"."+tool] = o
		}
		p := &complaints{file: e.ID, root: nil}
		p.root = parsed(t, "").root
		c.checkOperations(p)
		for _, problem := range p.all {
			t.Errorf("%s: %s", e.ID, problem)
		}
	}
}

func TestLabelsOfTheCatalogueNeedAnEntry(t *testing.T) {
	for server, want := range map[string]string{
		`{command: [npx, -y, "@evil/server-memory"], labels: catalogue}`:                                                    `it has no entry for the package "@evil/server-memory"`,
		`{command: [sh, -c, "npx -y x"], labels: catalogue}`:                                                                "an entry applies by the package of npm",
		`{url: "https://mcp.example/", labels: catalogue}`:                                                                  "it has no entry for the server at",
		`{command: [npx, -y, "@modelcontextprotocol/server-memory"], env: {NODE_OPTIONS: "--import x"}, labels: catalogue}`: `the variable "NODE_OPTIONS" can make @modelcontextprotocol/server-memory another program`,
		`{command: [npx, -y, "@modelcontextprotocol/server-memory"], labels: all}`:                                          `unknown word "all"`,
	} {
		_, err := ParseConfig("sallyport.yaml", []byte("upstreams: {m: "+server+"}"), t.TempDir())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "upstreams.m.labels") {
			t.Errorf("%s: %v", server, err)
		}
	}
}
