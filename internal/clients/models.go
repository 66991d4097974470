package clients

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sallyport.example/internal/display"
)

// SDK is the kind of a program that asks models with the SDKs of the providers.
const SDK = "sdk"

// Configured are the kinds that Snippet knows.
var Configured = append(slices.Clone(Kinds), SDK)

// Models are the ids of the models that the agent may ask, of each provider.
type Models struct{ Anthropic, OpenAI []string }

// asks are the models that a client of this kind can ask.
func (m Models) asks(kind string) []string {
	switch kind {
	case "claude-code":
		return m.Anthropic
	case "codex":
		return m.OpenAI
	case SDK:
		return slices.Concat(m.Anthropic, m.OpenAI)
	}
	return nil
}

// AsksModels tells whether a client of this kind is told which models to ask. Others have no setting for it.
func AsksModels(kind string) bool {
	return slices.Contains([]string{"claude-code", "codex", SDK}, kind)
}

// Choose decides which of the models a client asks, and which it asks for small things that it does in the background: those that people want, else by the
// name.
func (s *Setup) Choose(kind, model, background string) error {
	for _, o := range []struct{ flag, wanted string }{{"model", model}, {"background", background}} {
		switch flag, wanted, all := o.flag, o.wanted, s.Models.asks(kind); {
		case wanted == "":
		case flag == "background" && kind != "claude-code":
			return fmt.Errorf("--background is for claude-code: no other client has a model of its own for what it does in the background")
		case flag == "model" && kind != "claude-code" && kind != "codex":
			return fmt.Errorf("--model is for claude-code and codex: %s has no setting for it", kind)
		case len(all) == 0:
			return fmt.Errorf("--%s: the agent may ask no model that %s can ask: name one under models in sallyport.yaml, and in dataSources.models of the agent's declaration", flag, kind)
		case !slices.Contains(all, wanted):
			return fmt.Errorf("--%s is one of %s, not %q", flag, display.Line(strings.Join(all, ", "), 500), wanted)
		}
	}
	s.model, s.background = model, background
	small := func(id string) bool { return strings.Contains(id, "haiku") }
	for _, id := range s.Models.asks(kind) {
		if s.model == "" && !small(id) {
			s.model = id
		}
		if s.background == "" && small(id) {
			s.background = id
		}
	}
	if s.model == "" {
		s.model = s.background
	}
	if s.background == "" {
		s.background = s.model
	}
	return nil
}

// others says which other models a client could ask; "" if there are none.
func (s Setup) others(kind string) string {
	all := slices.DeleteFunc(slices.Clone(s.Models.asks(kind)), func(id string) bool { return id == s.model || id == s.background })
	if len(all) == 0 {
		return ""
	}
	return "\nThe agent may ask these models, too: " + display.Line(strings.Join(all, ", "), 500) + ". Choose with --model."
}

// claudeModels are the members of Claude Code's settings by which it asks its models through the gateway. Its settings expand no reference in env, so the
// token comes from a command.
func (s Setup) claudeModels() object {
	env := object{{"ANTHROPIC_BASE_URL", s.Address + "/anthropic"}}
	if s.Token != "" {
		env = append(env, member{"ANTHROPIC_AUTH_TOKEN", s.Token})
	}
	env = append(env, member{"ANTHROPIC_MODEL", s.model}, member{"ANTHROPIC_DEFAULT_HAIKU_MODEL", s.background})
	settings := object{{"env", env}}
	if s.Token == "" {
		settings = append(settings, member{"apiKeyHelper", "printenv " + EnvToken})
	}
	return append(settings, member{"permissions", object{{"deny", []string{"WebSearch"}}}}) // it is run by the provider
}

// codexModels are the lines of Codex's file by which it asks its model through the gateway: those that stand before all tables, and a table. Its web
// search is run by the provider. It repeats refused requests as it repeats those whose answers broke off, whatever a header says, so it may do that once.
func (s Setup) codexModels() (first, table string) {
	return fmt.Sprintf("model = %s\nmodel_provider = \"sallyport\"\nweb_search = \"disabled\"\n\n", strconv.Quote(s.model)),
		fmt.Sprintf("\n[model_providers.sallyport]\nname = \"Sallyport\"\nbase_url = %s\n%s\nwire_api = \"responses\"\nstream_max_retries = 1\n", strconv.Quote(s.Address+"/openai/v1"), s.codexCredential("env_key"))
}

// exports are the variables that the SDKs of the providers read.
func (s Setup) exports() string {
	key := `"$` + EnvToken + `"`
	if s.Token != "" {
		key = Quote(s.Token)
	}
	var out strings.Builder
	for _, p := range []struct {
		models     []string
		name, base string
	}{{s.Models.Anthropic, "ANTHROPIC", "/anthropic"}, {s.Models.OpenAI, "OPENAI", "/openai/v1"}} {
		if len(p.models) > 0 {
			fmt.Fprintf(&out, "export %s_BASE_URL=%s\nexport %[1]s_API_KEY=%[3]s\n", p.name, Quote(s.Address+p.base), key)
		}
	}
	return out.String()
}

// indented is JSON for people.
func indented(v any) (string, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return string(b) + "\n", err
}
