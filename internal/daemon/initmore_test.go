package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/clients"
)

// Where another program has the usual ports, a gateway gets others.
func TestFreeAddresses(t *testing.T) {
	for _, c := range []struct {
		busy           []string
		agents, people string
	}{
		{nil, "", ""},
		{[]string{"127.0.0.1:7575"}, "127.0.0.1:7585", "127.0.0.1:7586"},
		{[]string{"127.0.0.1:7576", "127.0.0.1:7586"}, "127.0.0.1:7595", "127.0.0.1:7596"},
	} {
		agents, people := freeAddresses(func(address string) bool { return slices.Contains(c.busy, address) })
		if agents != c.agents || people != c.people {
			t.Errorf("with %v: %q and %q", c.busy, agents, people)
		}
	}
	if agents, people := freeAddresses(func(string) bool { return true }); agents != "" || people != "" {
		t.Errorf("where all are busy: %q and %q", agents, people)
	}
}

// Servers are added to a configuration in whatever form it is, and nothing else in it changes; or nothing is written.
func TestInitMore(t *testing.T) {
	plain := func(words ...string) (all []clients.Value) {
		for _, w := range words {
			all = append(all, clients.Value{Text: w})
		}
		return all
	}
	more := map[string]clients.Server{
		"notes": {Name: "notes", Command: plain("notes-server", "--quiet"), Env: map[string]string{"API_KEY": "canary"}},
		"crm":   {Name: "crm", URL: clients.Value{Text: "https://crm.example/mcp"}, Headers: map[string]string{"Authorization": "Bearer canary"}},
	}
	const dev = "agentId: dev # mine\npermissions:\n  read: [\"old.*\"] # kept\n  write: []\n"
	for name, c := range map[string]struct {
		config, env, dev  string
		permitted, byHand bool
	}{
		"none yet":        {"# mine\nagents: agents\n", "", dev, true, false},
		"a null":          {"upstreams:\nagents: agents", "", dev, true, false},
		"some, deep":      {"upstreams:\n    old: {command: [old]} # kept\nagents: agents\n", "OLD=1", dev, true, false},
		"a value refers":  {"upstreams:\n  old:\n    command: [old, \"${NOTES_API_KEY}\"]\n", "NOTES_API_KEY=another\n", dev, true, false},
		"no agent":        {"agents: agents\n", "", "", false, false},
		"another agent":   {"agents: agents\n", "", "agentId: x\npermissions: {read: [], write: []}\n", false, false},
		"a list of lines": {"agents: agents\n", "", "agentId: dev\npermissions:\n  read:\n    - a.b\n  write: []\n", false, false},
		"in braces":       {"upstreams: {old: {command: [old]}}\n", "", dev, false, true},
		"with a label":    {"upstreams: &all\n  old: {command: [old]}\n", "", dev, true, false},
	} {
		dir := t.TempDir()
		put := func(name, text string, mode os.FileMode) {
			t.Helper()
			if text == "" {
				return
			}
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}
		get := func(name string) string { b, _ := os.ReadFile(filepath.Join(dir, name)); return string(b) }
		put("sallyport.yaml", c.config, 0o644)
		put(envFile, c.env, 0o600)
		put("agents/dev.yaml", c.dev, 0o644)
		_, permitted, err := InitMore(dir, TakeOver{Servers: more, Project: dir})
		if c.byHand {
			if !errors.Is(err, ErrByHand) || get("sallyport.yaml") != c.config || get(envFile) != c.env || get("agents/dev.yaml") != c.dev {
				t.Errorf("%s: %v\n%s", name, err, get("sallyport.yaml"))
			}
			continue
		}
		if err != nil || permitted != c.permitted {
			t.Errorf("%s: %v, %v\n%s", name, err, permitted, get("sallyport.yaml"))
			continue
		}
		cfg, err := LoadConfig(filepath.Join(dir, "sallyport.yaml"))
		if err != nil || cfg.Upstreams["notes"].Env["API_KEY"] != "canary" || cfg.Upstreams["crm"].Headers["Authorization"] != "Bearer canary" {
			t.Errorf("%s: %v, %+v", name, err, cfg)
			continue
		}
		for line := range strings.Lines(c.config) {
			if !strings.Contains(get("sallyport.yaml"), strings.TrimSpace(line)) {
				t.Errorf("%s: %q is gone from\n%s", name, line, get("sallyport.yaml"))
			}
		}
		if strings.Contains(get("sallyport.yaml"), "canary") || !strings.HasPrefix(get(envFile), c.env) {
			t.Errorf("%s: credentials are in\n%s\nor gone from\n%s", name, get("sallyport.yaml"), get(envFile))
		}
		if st, err := os.Stat(filepath.Join(dir, envFile)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
		if text := get("agents/dev.yaml"); c.permitted && (!strings.Contains(text, `read: ["notes.*", "crm.*", "old.*"] # kept`) || !strings.Contains(text, `write: ["notes.*", "crm.*"]`)) || !c.permitted && text != c.dev {
			t.Errorf("%s: the agent is\n%s", name, text)
		}
		if _, _, err := InitMore(dir, TakeOver{Servers: more, Project: dir}); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("%s: a second time: %v", name, err)
		}
	}
}
