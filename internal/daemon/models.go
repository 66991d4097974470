package daemon

import (
	"fmt"
	"math"
	"slices"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/display"
	"sallyport.example/internal/models"
	"sallyport.example/internal/models/wire"
	"sallyport.example/internal/threat"
)

// ModelConfig is one model that agents may be let ask.
type ModelConfig struct {
	ID        string       `yaml:"id" json:"id" jsonschema:"The model, as its provider and agents name it: with a date, a revision or a digest. An alias, and latest, are refused."`
	Provider  string       `yaml:"provider" json:"provider" jsonschema:"anthropic or openai: whose form its requests have. openai is also for servers that speak OpenAI's form."`
	BaseURL   string       `yaml:"base_url,omitempty" json:"base_url,omitempty" jsonschema:"Address of the provider, as its SDK takes it. Default https://api.anthropic.com, or https://api.openai.com/v1."`
	Key       string       `yaml:"key,omitempty" json:"key,omitempty" jsonschema:"The provider's key, as ${NAME}. It reaches the provider alone."`
	Labels    []string     `yaml:"labels,omitempty" json:"labels,omitempty" jsonschema:"Labels that may go to the provider. Default none: a session that holds any is refused. untrusted may always go."`
	Pinned    bool         `yaml:"pinned,omitempty" json:"pinned,omitempty" jsonschema:"The operator's word that the provider never moves this name, which tells no version. Not for aliases."`
	AnswersAs []string     `yaml:"answers_as,omitempty" json:"answers_as,omitempty" jsonschema:"Names that answers may give the model, besides its id. An answer of any other is discarded."`
	Allow     []string     `yaml:"allow,omitempty" json:"allow,omitempty" jsonschema:"What requests may contain besides the gateway's own lists: a field's path without indexes, beta:NAME, content:TYPE or tool:TYPE."`
	Secrets   string       `yaml:"secrets,omitempty" json:"secrets,omitempty" jsonschema:"What becomes of secrets in a request: refuse (default), or mask: the provider gets a placeholder in place of each."`
	Timeout   Duration     `yaml:"timeout,omitempty" json:"timeout,omitempty" jsonschema:"Longest time for one answer. Default 5m, which is also the most."`
	Fallback  string       `yaml:"fallback,omitempty" json:"fallback,omitempty" jsonschema:"Another model of the list and the provider, asked when this one fails before its answer begins. The agent must have it in its declaration, too."`
	Price     *ModelPrices `yaml:"price,omitempty" json:"price,omitempty" jsonschema:"Price per million tokens, in whatever currency quotas.cost of the declarations is in. A model without one is refused to agents with such a quota."`
}

// ModelPrices are what a million tokens cost.
type ModelPrices struct {
	Input  float64 `yaml:"input" json:"input" jsonschema:"Of what is sent."`
	Output float64 `yaml:"output" json:"output" jsonschema:"Of what is answered."`
}

// maxPrice bounds what a million tokens may cost.
const maxPrice = 1_000_000

func (c *Config) checkModels(p *complaints) {
	labels, _ := c.labels() // checked elsewhere
	if len(c.Models) > 0 && !slices.Contains(labels, flow.Label(threat.LabelSecret)) {
		p.bad("flow.labels", "add secret", "without the label secret nothing keeps secrets in a conversation from the providers of models")
	}
	seen := map[string]bool{}
	for i, m := range c.Models {
		field := fmt.Sprintf("models[%d]", i)
		switch {
		case m.ID == "" || len(m.ID) > 200 || display.Line(m.ID, 200) != m.ID:
			p.bad(field+".id", "write the model's name as its provider has it", "a model needs a name of 1 to 200 plain letters")
		case models.Moves(m.ID):
			p.violation("A-06", field+".id", "write the name with its date, as claude-sonnet-4-5-20250929", "%q is an alias: its provider moves it from version to version, and nothing can pin it", m.ID)
		case !agent.Pinned(m.ID) && !m.Pinned:
			p.violation("A-06", field+".id", "write a name with a date, a revision or a digest; or pinned: true, if the provider says that it never moves this name", "%q tells no version", m.ID)
		case seen[m.ID]:
			p.bad(field+".id", "remove one of the two", "%q is there twice", m.ID)
		}
		seen[m.ID] = true
		if !slices.Contains(wire.Providers, wire.Provider(m.Provider)) {
			p.bad(field+".provider", "write anthropic or openai", "unknown word %q", m.Provider)
		}
		if m.BaseURL != "" {
			if err := models.CheckBase(m.BaseURL, m.Key != ""); err != nil {
				p.fault(field+".base_url", err)
			}
		}
		if len(m.Key) > 0 && (len(m.Key) < 8 || len(m.Key) > 4096 || display.ASCII(m.Key, 5000) != `"`+m.Key+`"`) {
			p.bad(field+".key", "write the provider's key, as ${NAME}", "a key has 8 to 4096 letters, digits and signs, and no spaces")
		}
		for _, l := range m.Labels {
			if !slices.Contains(labels, flow.Label(l)) {
				p.bad(field+".labels", "use one of flow.labels; untrusted may always go", "unknown label %q", l)
			}
		}
		if slices.Contains(m.AnswersAs, "") {
			p.bad(field+".answers_as", "write the name that its answers carry", "an empty name would let answers pass that name no model")
		}
		for _, entry := range m.Allow {
			if err := wire.CheckAllow(entry); err != nil {
				p.fault(field+".allow", err)
			}
		}
		if price := m.Price; price != nil {
			for name, of := range map[string]float64{"input": price.Input, "output": price.Output} {
				if !(of >= 0 && of <= maxPrice) {
					p.bad(field+".price."+name, "write what a million tokens cost, as in 2.50", "%v is no price", of)
				}
			}
		}
		if m.Fallback != "" {
			switch other := c.model(m.Fallback); {
			case m.Fallback == m.ID:
				p.bad(field+".fallback", "name another model, or leave it out", "the model is its own fallback")
			case other == nil:
				p.bad(field+".fallback", "name a model of this list", "no model is called %q", m.Fallback)
			case other.Provider != m.Provider:
				p.bad(field+".fallback", "name a model of the provider "+m.Provider, "%s is of the provider %s, whose requests have another form", m.Fallback, other.Provider)
			}
		}
		p.oneOf(field+".secrets", m.Secrets, "refuse", "mask")
		if m.Timeout < 0 || m.Timeout > Duration(5*time.Minute) {
			p.bad(field+".timeout", "write a time up to 5m", "%s is no time for one answer", time.Duration(m.Timeout))
		}
	}
}

// modelWarnings are what an operator should know of models that are in use.
func (c *Config) modelWarnings(file string) (all []Problem) {
	for i, m := range c.Models {
		field := fmt.Sprintf("models[%d]", i)
		if len(m.Labels) == 0 {
			all = append(all, c.problem(file, field+".labels", agent.P1, "list the labels of the data that the provider may have, as labels: [internal, pii]",
				"no label may go to %s: a session that holds internal, personal or secret data, or sends any, is refused", m.ID))
		}
		if m.Pinned && !agent.Pinned(m.ID) {
			all = append(all, c.problem(file, field+".pinned", agent.P2, "prefer a name with a date, if there is one", "that %s stays with one version is your word alone", m.ID))
		}
	}
	return all
}

// pinned are the models of which the operator says that they stay with one version.
func (c *Config) pinned() (ids []string) {
	for _, m := range c.Models {
		if m.Pinned {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// catalogueModels are the models as operations.
func (c *Config) catalogueModels() (all []catalogue.Model) {
	for _, m := range c.Models {
		one := catalogue.Model{ID: m.ID, Provider: wire.Provider(m.Provider), Fallback: m.Fallback, Mask: m.Secrets == "mask", Price: m.price(), Allow: m.Allow, Timeout: time.Duration(m.Timeout)}
		for _, l := range m.Labels {
			one.Labels = append(one.Labels, flow.Label(l))
		}
		all = append(all, one)
	}
	return all
}

// price is what the model's tokens cost; nil: the configuration has no price.
func (m *ModelConfig) price() *wire.Price {
	if m == nil || m.Price == nil {
		return nil
	}
	return &wire.Price{Input: int64(math.Ceil(m.Price.Input * 1e6)), Output: int64(math.Ceil(m.Price.Output * 1e6))}
}

// providers are the models as their providers are asked.
func (c *Config) providers() (all []models.Model) {
	for _, m := range c.Models {
		all = append(all, models.Model{ID: m.ID, Provider: wire.Provider(m.Provider), Base: m.BaseURL, Key: m.Key, AnswersAs: m.AnswersAs})
	}
	return all
}
