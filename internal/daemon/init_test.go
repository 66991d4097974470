package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"
)

func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	written, err := Init(dir)
	if err != nil || len(written) != 3 {
		t.Fatalf("wrote %v, %v", written, err)
	}
	config := filepath.Join(dir, "sallyport.yaml")
	cfg, err := LoadConfig(config)
	if err != nil {
		t.Fatalf("the example does not load: %v", err)
	}
	empty, err := ParseConfig("", nil, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen != empty.Listen || cfg.AdminListen != empty.AdminListen || cfg.Mode != empty.Mode || cfg.Unlisted != empty.Unlisted ||
		cfg.Store != empty.Store || cfg.Limits != empty.Limits || strings.Join(cfg.Flow.Labels, " ") != strings.Join(empty.Flow.Labels, " ") {
		t.Errorf("what the example calls defaults is not the default:\n%+v\n%+v", cfg, empty)
	}
	problems, err := Lint(t.Context(), "", nil, config)
	if err != nil || len(problems) > 0 {
		t.Errorf("the example does not lint clean: %v, %v", problems, err)
	}

	if _, err := Init(dir); err == nil || !strings.Contains(err.Error(), "sallyport.yaml") {
		t.Errorf("a second init: %v", err)
	}
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	if written, err := Init(dir); err == nil || len(written) > 0 || !strings.Contains(err.Error(), "sallyport.schema.json") {
		t.Errorf("with a schema in the way: %v, %v", written, err)
	}
	if _, err := os.Lstat(config); err == nil {
		t.Error("it wrote one file although another was in the way")
	}
}

// uncomment brings the examples to life: what is commented out and looks like YAML.
func uncomment(t *testing.T, config string) string {
	t.Helper()
	t.Setenv("CRM_TOKEN", "x")
	t.Setenv("SEARCH_KEY", "x")
	t.Setenv("HOOK_SECRET", "0123456789abcdef0123")
	t.Setenv("SLACK_WEBHOOK", "https://hooks.example/services/1")
	t.Setenv("MAIL_PASSWORD", "x")
	t.Setenv("OIDC_SECRET", "x")
	comment := regexp.MustCompile(`^(\s*)# ?(\s*(- \{|[a-z_]+:( |$)|[\w.*]+: \{|  ).*)$`)
	var out []string
	for line := range strings.Lines(config) {
		line = strings.TrimSuffix(line, "\n")
		m := comment.FindStringSubmatch(line)
		switch {
		case m == nil, strings.HasPrefix(line, "#   sallyport "):
			out = append(out, line)
		case strings.HasPrefix(strings.TrimSpace(m[2]), "# "):
			out = append(out, "# "+m[2])
		default:
			out = append(out, m[1]+m[2])
		}
	}
	return strings.Join(out, "\n")
}

func TestExampleConfigWithEverythingUncommented(t *testing.T) {
	dir := t.TempDir()
	if _, err := Init(dir); err != nil {
		t.Fatal(err)
	}
	whole := uncomment(t, exampleConfig)
	cfg, err := ParseConfig("example", []byte(whole), dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, whole)
	}
	if len(cfg.Upstreams) != 3 || len(cfg.Operations) != 7 || len(cfg.Notify) != 3 || cfg.Console.OIDC == nil || len(cfg.People.List) != 2 {
		t.Fatalf("not everything came to life: %+v", cfg)
	}
	for _, p := range cfg.labelProblems("example") {
		t.Errorf("the example is no good one: %s", p)
	}
	// Every key of the configuration is in it, with its own name.
	var schema jsonschema.Schema
	if b, err := ConfigSchema(); err != nil {
		t.Fatal(err)
	} else if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	var walk func(at string, s *jsonschema.Schema)
	walk = func(at string, s *jsonschema.Schema) {
		if s == nil {
			return
		}
		for name, p := range s.Properties {
			if !regexp.MustCompile(`[\s{]` + name + `:`).MatchString(whole) {
				t.Errorf("%s.%s is not in the example", at, name)
			}
			if p.Description == "" {
				t.Errorf("%s.%s has no description", at, name)
			}
			walk(at+"."+name, p)
		}
		walk(at+".*", s.AdditionalProperties)
		walk(at+"[]", s.Items)
	}
	walk("", &schema)
}

func TestConfigSchema(t *testing.T) {
	b, err := ConfigSchema()
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	valid := func(doc string) error {
		var v any
		if err := yaml.Load([]byte(doc), &v); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		j, err := json.Marshal(v) // as editors see it
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(j, &v); err != nil {
			t.Fatal(err)
		}
		return resolved.Validate(v)
	}
	for _, good := range []string{
		exampleConfig, uncomment(t, exampleConfig), "{}",
		"mode: observe", "mode: shadow", `mode: "${MODE}"`, "limits: {network_timeout: 1h30m}", "limits: {memory: 512MiB}", `limits: {network_timeout: "${T}"}`,
		"operations: {a.b: {level: 1, emits: [], blocked_by: [pii]}}",
		"people: [{id: a, roles: [admin]}]", "people: {confirm: terminal, list: [{id: a, roles: [admin]}]}", `people: {confirm: "${CONFIRM}"}`,
		"comm: {allowed_domains: [], exec: {allow: [git]}}", "models: [{id: x-20250929, provider: openai, key: y, price: {input: 1, output: 2}}]", "notify: [{kind: webhook, on: [alert]}]",
	} {
		if err := valid(good); err != nil {
			t.Errorf("the schema refuses\n%s\n%v", good, err)
		}
	}
	for _, bad := range []string{
		"people: alice", "people: {confirm: phone}", "people: {list: [{id: a, roles: [boss]}]}", "people: {confirmed: terminal}",
		"lisen: x", "people: [{id: a, roles: [boss]}]", "people: [{id: a, rolls: []}]", "people: [{roles: []}]", "mode: off-ish", "store: postgres",
		"upstreams: {a: {comand: [x]}}", "upstreams: {a: {timeout: 5}}", "limits: {network_timeout: 5 minutes}", "limits: {network_timeout: soon}", "limits: {memory: 512}", "limits: {memory: 1 GB}",
		"operations: {a.b: {sensitivity: secret}}", "operations: {a.b: {level: high}}", "flow: {label: []}", "unlisted_operations: permit",
		"operations: {a.b: {risk: low}}", "operations: {a.b: {egress_url: maybe}}",
	} {
		if valid(bad) == nil {
			t.Errorf("the schema accepts %s", bad)
		}
	}
}
