package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.example/internal/agent"
)

// Every mistake in a model stops the start, with the field; what an operator should know is a warning.
func TestModels(t *testing.T) {
	const good = "id: claude-sonnet-4-5-20250929, provider: anthropic"
	for config, want := range map[string]struct{ field, says string }{
		"[{" + good + "}]": {}, "[{" + good + ", labels: [internal, pii], key: sk-12345678, allow: [context_management, \"beta:x-1\"], answers_as: [m], timeout: 1m, secrets: refuse}]": {},
		"[{id: our-model, provider: openai, base_url: \"http://127.0.0.1:8000/v1\", key: sk-12345678, pinned: true}]": {},
		"[{id: our-model, provider: openai, base_url: \"http://gpu.example/v1\", pinned: true}]":                      {},
		"[{id: our-model, provider: openai}]":                                        {"models[0].id", "tells no version"},
		"[{id: claude-sonnet-4-5, provider: anthropic, pinned: true}]":               {"models[0].id", "alias"},
		"[{id: gpt-4o, provider: openai, pinned: true}]":                             {"models[0].id", "alias"},
		"[{id: our-model-latest, provider: openai, pinned: true}]":                   {"models[0].id", "alias"},
		"[{id: vendor/gpt-4o, provider: openai, pinned: true}]":                      {"models[0].id", "alias"},
		"[{provider: openai}]":                                                       {"models[0].id", "needs a name"},
		"[{" + good + "}, {" + good + "}]":                                           {"models[1].id", "twice"},
		"[{id: m-20250929, provider: google}]":                                       {"models[0].provider", "unknown word"},
		"[{" + good + ", labels: [private]}]":                                        {"models[0].labels", "unknown label"},
		"[{" + good + ", labels: [untrusted]}]":                                      {"models[0].labels", "unknown label"},
		"[{" + good + ", secrets: hide}]":                                            {"models[0].secrets", "unknown word"},
		"[{" + good + ", timeout: 10m}]":                                             {"models[0].timeout", "no time"},
		"[{" + good + ", allow: [previous_response_id]}]":                            {"models[0].allow", "nothing allows"},
		"[{" + good + ", allow: [\"tool:web_search\"]}]":                             {"models[0].allow", "nothing allows"},
		"[{" + good + ", allow: [\"header:x\"]}]":                                    {"models[0].allow", "none of"},
		"[{" + good + ", base_url: \"http://api.example\", key: sk-12345678}]":       {"models[0].base_url", "unencrypted"},
		"[{" + good + ", base_url: \"file:///etc/passwd\"}]":                         {"models[0].base_url", "address"},
		"[{" + good + ", base_url: \"https://user:pw@api.example\"}]":                {"models[0].base_url", "address"},
		"[{" + good + ", base_url: \"https://api.example/?a=b\"}]":                   {"models[0].base_url", "address"},
		"[{" + good + ", answers_as: [\"\"]}]":                                       {"models[0].answers_as", "name no model"},
		"[{" + good + ", fallback: x-20250101}]":                                     {"models[0].fallback", "no model"},
		"[{" + good + ", fallback: claude-sonnet-4-5-20250929}]":                     {"models[0].fallback", "its own"},
		"[{" + good + ", fallback: x-20250101}, {id: x-20250101, provider: openai}]": {"models[0].fallback", "another form"},
		"[{" + good + ", key: \"a b\"}]":                                             {"models[0].key", "8 to 4096"},
	} {
		cfg, err := ParseConfig("f", []byte("models: "+config), t.TempDir())
		if want.field == "" {
			if err != nil || len(cfg.catalogueModels()) != 1 || len(cfg.providers()) != 1 {
				t.Errorf("%s: %v", config, err)
			}
			continue
		}
		var problems *ConfigError
		if !errors.As(err, &problems) || problems.Problems[0].Field != want.field || !strings.Contains(problems.Problems[0].Problem, want.says) {
			t.Errorf("%s: %v", config, err)
		}
	}
	if _, err := ParseConfig("f", []byte("models: [{"+good+", temprature: 1}]"), t.TempDir()); err == nil {
		t.Error("an unknown key passes")
	}
	cfg, err := ParseConfig("f", []byte("models: [{id: our-model, provider: openai, pinned: true, price: {input: 1, output: 2}}]"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, p := range cfg.Warnings("f") {
		fields = append(fields, string(p.Severity)+" "+p.Field)
	}
	if got := strings.Join(fields, ", "); got != "P1 models[0].labels, P2 models[0].pinned" {
		t.Error(got)
	}
}

// A declaration that names a model that the operator pins passes; any other unpinned name does not.
func TestVouchedModels(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "agents"), 0o700); err != nil {
		t.Fatal(err)
	}
	declared := strings.Replace(fmt.Sprintf(startedAgent, "[]", "advisory"), "models: []", "models: [our-model, gpt-4o]", 1)
	if err := os.WriteFile(filepath.Join(dir, "agents", "bot.yaml"), []byte(declared), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := ParseConfig("f", []byte("agents: ./agents\nmodels: [{id: our-model, provider: openai, pinned: true}]"), dir)
	if err != nil {
		t.Fatal(err)
	}
	_, problems := cfg.declarations()
	var found []agent.Problem
	for _, p := range problems {
		if p.Code == "A-06" {
			found = append(found, p)
		}
	}
	if len(found) != 1 || !strings.Contains(found[0].Problem, "gpt-4o") {
		t.Errorf("%v", problems)
	}
}
