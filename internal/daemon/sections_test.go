package daemon

import (
	"strings"
	"testing"
)

const tuned = `listen: 127.0.0.1:7575
upstreams:
  crm: {url: "http://127.0.0.1:9/mcp", headers: {authorization: "Bearer ${CRM_TOKEN}"}}
operations:
  crm.find: {effect: read} # a comment
flow: {free_level_1: true}
`

// Sections that are tried stand in the place of the file's own; the rest of the file holds.
func TestSectionsInPlace(t *testing.T) {
	t.Setenv("CRM_TOKEN", "the-token")
	text, err := Sections([]byte(tuned))
	if err != nil || !strings.Contains(string(text), "crm.find") || !strings.Contains(string(text), "free_level_1") || strings.Contains(string(text), "TOKEN") || strings.Contains(string(text), "listen") {
		t.Fatalf("the sections are %q, %v", text, err)
	}
	for name, c := range map[string]struct {
		sections       string
		level1, reads  bool
		unlisted, fail string
	}{
		"as they are":      {string(text), true, true, "deny", ""},
		"none":             {"", true, true, "deny", ""},
		"another":          {"flow: {free_level_1: false}", false, true, "deny", ""},
		"a new one":        {"unlisted_operations: ask_once", true, true, "ask_once", ""},
		"fewer operations": {"operations: {}", true, false, "deny", ""},
		"not tunable":      {"listen: 127.0.0.1:1", false, false, "", `"listen" can't be tried`},
		"servers":          {"upstreams: {evil: {command: [sh]}}", false, false, "", `"upstreams" can't be tried`},
		"a variable":       {"flow: {project: \"${HOME}\"}", false, false, "", "can't refer to variables"},
		"an escaped one":   {`unlisted_operations: "\x24{CRM_TOKEN}"`, false, false, "", "can't refer to variables"},
		"as a name":        {`operations: {"\x24{CRM_TOKEN}": {effect: read}}`, false, false, "", "can't refer to variables"},
		"by an alias":      {"flow: {labels: [&a \"\\u0024{CRM_TOKEN}\"], project: *a}", false, false, "", "can't refer to variables"},
		"another folder":   {"flow: {project: /etc/shadow}", false, false, "", "flow.project can't be tried"},
		"a list":           {"- flow", false, false, "", "no YAML mapping"},
		"broken":           {"flow: {", false, false, "", "the sections"},
		"twice":            {"flow: {}\nflow: {}", false, false, "", "twice"},
		"an unknown key":   {"flow: {free: true}", false, false, "", "unknown key"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := WithSections("sallyport.yaml", []byte(tuned), t.TempDir(), []byte(c.sections))
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Fatalf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, reads := cfg.Operations["crm.find"]
			if cfg.Flow.FreeLevel1 != c.level1 || reads != c.reads || cfg.Unlisted != c.unlisted || cfg.Upstreams["crm"].Headers["authorization"] != "Bearer the-token" {
				t.Errorf("read: %+v, %v, %q", cfg.Flow, reads, cfg.Unlisted)
			}
		})
	}
}

// A value that reads like the name of a section is no section.
func TestSectionsAreFoundByName(t *testing.T) {
	cfg, err := WithSections("sallyport.yaml", []byte("agents: flow\nflow: {free_level_1: true}\n"), t.TempDir(), []byte("flow: {free_level_1: false}"))
	if err != nil || cfg.Agents != "flow" || cfg.Flow.FreeLevel1 {
		t.Errorf("%+v, %v", cfg, err)
	}
}
