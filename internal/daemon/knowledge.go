package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/consult"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/ask"
	"sallyport.example/internal/knowledge/claims"
	"sallyport.example/internal/knowledge/collect"
	"sallyport.example/internal/knowledge/extract"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/knowledge/shelf"
	"sallyport.example/internal/models/wire"
	"sallyport.example/internal/run"
	runs "sallyport.example/internal/runner"
	"sallyport.example/internal/threat"
)

// KnowledgeConfig says how far documents are trusted.
type KnowledgeConfig struct {
	Collections map[string]CollectionConfig `yaml:"collections,omitempty" json:"collections,omitempty" jsonschema:"Collections of the knowledge store, by name."`
	Embeddings  string                      `yaml:"embeddings,omitempty" json:"embeddings,omitempty" jsonschema:"Id of a model of models, of the provider openai, that embeds documents and questions, so that search finds what is worded in another way. Default none: search by words alone."`
	Dimensions  int                         `yaml:"dimensions,omitempty" json:"dimensions,omitempty" jsonschema:"How many numbers each embedding of that model has, from 1 to 4096. Others are discarded, and embeddings from before it was set are fetched anew. Default 0: as many as the first one had."`
}

// CollectionConfig is the operator's word on a collection.
type CollectionConfig struct {
	Trusted       bool     `yaml:"trusted,omitempty" json:"trusted,omitempty" jsonschema:"Whether only trusted people add to it: reading its documents makes no session untrusted. Their text is fenced all the same. Default false."`
	TrustedFields []string `yaml:"trusted_fields,omitempty" json:"trusted_fields,omitempty" jsonschema:"Columns of the CSV documents in it, by their exact names, whose values confirm arguments as the trusted fields of an operation do. Nothing else in a document confirms anything. Default none."`
}

// ClaimsConfig says which sources claims are checked against.
type ClaimsConfig struct {
	Sources []string `yaml:"sources,omitempty" json:"sources,omitempty" jsonschema:"Collections of the knowledge store that are asked about every claim, as knowledge.handbook."`
	Min     int      `yaml:"min,omitempty" json:"min,omitempty" jsonschema:"How many independent sources have to confirm a claim. Default 2."`
	Judge   string   `yaml:"judge,omitempty" json:"judge,omitempty" jsonschema:"Id of a model of models that says whether a source confirms a sentence, or a claim that none of its records is about. It sees one source at a time, and no text with labels that are not among the model's. Default none."`
}

// defaultMin is the least number of independent sources that confirm a valid claim.
const defaultMin = 2

func (c *Config) checkKnowledge(p *complaints) {
	for i, source := range c.Claims.Sources {
		if name, ok := strings.CutPrefix(source, agent.KnowledgePrefix); !ok || identity.CheckID(name) != nil {
			p.bad(fmt.Sprintf("claims.sources[%d]", i), "write knowledge. and the name of a collection", "%q is no source", source)
		}
	}
	if c.Claims.Min < 0 {
		p.bad("claims.min", "use a number from 1", "%d sources can't confirm anything", c.Claims.Min)
	}
	c.checkJudge(p, "claims.judge", c.Claims.Judge)
	if n := c.Knowledge.Dimensions; n < 0 || n > knowledge.MaxDimensions {
		p.bad("knowledge.dimensions", fmt.Sprintf("use a number from 1 to %d, or leave it out", knowledge.MaxDimensions), "an embedding can't have %d numbers", n)
	}
	if id := c.Knowledge.Embeddings; id != "" {
		m := c.model(id)
		switch {
		case m == nil:
			p.bad("knowledge.embeddings", "add it to models, with a pinned name and the labels that it may have", "%q is no model of models", id)
		case m.Provider != string(wire.OpenAI):
			p.bad("knowledge.embeddings", "name a model of the provider openai", "the provider %s has no embeddings", m.Provider)
		case m.Fallback != "":
			p.bad("knowledge.embeddings", "name a model without a fallback", "embeddings of %s and of its fallback can't be compared", id)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Knowledge.Collections)) {
		if err := identity.CheckID(name); err != nil {
			p.bad("knowledge.collections."+name, "use letters, digits, '.', '_' and '-'", "%q can't be a collection's name", name)
		}
		fields := c.Knowledge.Collections[name].TrustedFields
		if len(fields) > 0 && name == knowledge.ExportCollection {
			p.bad("knowledge.collections."+name+".trusted_fields", "remove them", "the collection has what agents recommended, which confirms nothing")
		}
		for i, field := range fields {
			if !fieldName.MatchString(field) {
				p.bad(fmt.Sprintf("knowledge.collections.%s.trusted_fields[%d]", name, i), "write the name of one column, without dots and percent signs", "%.80q can't be a trusted field", field)
			}
		}
	}
}

// model is a model by its id; nil if there is none.
func (c *Config) model(id string) *ModelConfig {
	if i := slices.IndexFunc(c.Models, func(m ModelConfig) bool { return m.ID == id }); i >= 0 {
		return &c.Models[i]
	}
	return nil
}

// fieldName is the form of a trusted field's name.
var fieldName = regexp.MustCompile(`^[^.%\s\x00-\x1f]([^.%\x00-\x1f]{0,98}[^.%\s\x00-\x1f])?$`)

// trustedFields are those of all collections, as the evidence of a session names them.
func (c *Config) trustedFields() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Knowledge.Collections)) {
		for _, field := range c.Knowledge.Collections[name].TrustedFields {
			all = append(all, consult.FieldName(name, field))
		}
	}
	return all
}

// commands are the built-in operations.
func (d *Daemon) commands() []catalogue.Command {
	return append(d.comm.Commands(), consult.Commands(d.consultOptions())...)
}

func (d *Daemon) consultOptions() consult.Options {
	return consult.Options{
		Library: d.books, Claims: d.claims(), Trusted: func(collection string) bool { return d.config().Knowledge.Collections[collection].Trusted },
		TrustedFields: func(collection string) []string { return d.config().Knowledge.Collections[collection].TrustedFields },
	}
}

// claims checks claims by today's configuration.
func (d *Daemon) claims() *claims.Checker {
	return claims.New(claims.Options{
		Library: d.books, Log: d.o.Log, Record: d.store.Record,
		Configured: func() ([]string, int) { return d.config().Claims.Sources, cmp.Or(d.config().Claims.Min, defaultMin) },
		Judge: claims.Judge{
			Model: func() (id string, provider wire.Provider) {
				config := d.config()
				if m := config.model(config.Claims.Judge); m != nil {
					return m.ID, wire.Provider(m.Provider)
				}
				return "", ""
			},
			May: func(model string, labels []string) error { return d.own.May(model, labels) },
			Own: func(e audit.Entry, labels ask.Labels) ask.Ask { return d.own.For(e, labels) },
		},
	})
}

// confirm checks a claim in an agent's output, in the snapshot that its session reads.
func (d *Daemon) confirm(ctx context.Context, decl *agent.Declaration, by audit.Entry, held []string, claim json.RawMessage) (confirmed run.Confirmed, err error) {
	c, err := claims.Parse(claim)
	if err != nil {
		return confirmed, err
	}
	snapshot, err := d.books.Pin(ctx, by.Session, by.Agent)
	if err != nil {
		return confirmed, err
	}
	collections, labels := decl.ReadsKnowledge()
	labels = slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return !slices.Contains(held, l) })
	a, err := d.claims().Validate(ctx, knowledge.Declared(collections, labels), by, nil, snapshot, c, nil)
	confirmed.Confidence, confirmed.Valid = a.Confidence, a.Valid
	for _, s := range a.Sources {
		if s.Confirms != nil && *s.Confirms {
			confirmed.By = append(confirmed.By, s.Source)
		}
	}
	return confirmed, err
}

// collector fetches what people add to the knowledge store by its address: as comm.fetch does, and stopped by the switch for all agents.
func (d *Daemon) collector() *collect.Collector {
	return collect.New(collect.Options{
		Web: d.comm, Record: d.store.Record, Payload: d.gate.Payload, Clock: time.Now,
		Enter: func(r collect.Running) (leave func(), stopped func() bool) {
			s := d.gate.Standing()
			s.Enter("", r)
			return func() { s.Leave(r) }, func() bool { return s.Killed("") }
		},
	})
}

// modelAsker asks models for people and for the knowledge store itself: stopped by the switch for all agents.
func (d *Daemon) modelAsker() *ask.Own {
	return ask.New(ask.Options{
		Models: d.asks, Record: d.store.Record, Clock: time.Now,
		May: func(model string) (labels []string, known bool) {
			m := d.config().model(model)
			if m == nil {
				return nil, false
			}
			return m.Labels, true
		},
		Price: func(model string) *wire.Price { return d.config().model(model).price() },
		Enter: func(r ask.Running) (leave func(), stopped func() bool) {
			s := d.gate.Standing()
			s.Enter("", r)
			return func() { s.Leave(r) }, func() bool { return s.Killed("") }
		},
	})
}

// embeddings is how the library asks for embeddings, once what it asks by is there: it is built after the library, which asks for none before it is told to.
func (d *Daemon) embeddings() library.Embeddings {
	return library.Embeddings{
		Model:      func() string { return d.config().Knowledge.Embeddings },
		Dimensions: func() int { return d.config().Knowledge.Dimensions },
		May:        func(model string, labels []string) error { return d.own.May(model, labels) },
		Own:        func(e audit.Entry, labels ask.Labels) ask.Ask { return d.own.For(e, labels) },
	}
}

// erasers tells of two who ask for an erasure whether they are the same human, and whether the first is still an admin.
func (d *Daemon) erasers(first, second string) (same, stillAdmin bool) {
	id, _ := strings.CutPrefix(first, string(identity.Person)+":")
	other, _ := strings.CutPrefix(second, string(identity.Person)+":")
	config := d.config()
	a, listed := config.voter(id)
	b, known := config.voter(other)
	if !listed {
		a = approval.Voter{Person: id}
	}
	if !known {
		b = approval.Voter{Person: other}
	}
	if same = a.Same(b); listed {
		return same, slices.Contains(a.Roles, identity.Admin)
	}
	return same, slices.ContainsFunc(d.gate.Standing().ListTokens(), func(t identity.Token) bool { // whoever is not listed has the roles of a token
		return t.Subject.Kind == identity.Person && t.Subject.ID == id && t.Subject.Has(identity.Admin) && t.Revoked.IsZero() && (t.Subject.Expires.IsZero() || t.Subject.Expires.After(time.Now()))
	})
}

// agentsWords knows what agents said, once what carries runs is there: it is built after the library, and before anybody can add to that.
type agentsWords struct{ d *Daemon }

func (s agentsWords) Holds(part string) (from string, found bool) { return s.d.runs.Holds(part) }

func (s agentsWords) Imported(ctx context.Context, export, content string) (text, from string, labels []string, err error) {
	return s.d.runs.Imported(ctx, export, content)
}

// passages reads what calls read of the knowledge store, as citations are checked against it.
func (d *Daemon) passages() runs.Documents {
	passages := d.books.Passages()
	return func(ctx context.Context, detail json.RawMessage) (all []run.Document, err error) {
		read, err := passages.Of(ctx, detail)
		for _, p := range read {
			address := strings.HasPrefix(p.Key, "https://") || strings.HasPrefix(p.Key, "http://")
			all = append(all, run.Document{Source: agent.KnowledgePrefix + p.Source, ID: p.Document, Version: p.Version, Text: p.Text, External: address, Gone: p.Gone, Synthetic: p.Source == knowledge.ExportCollection})
		}
		return all, err
	}
}

// openLibrary opens the knowledge store.
func (d *Daemon) openLibrary(ctx context.Context, detector *threat.Detector) (*library.Library, error) {
	s, err := shelf.Open(d.o.Data)
	if err != nil {
		return nil, err
	}
	texts, err := extract.New(filepath.Join(d.o.Data, "extract"))
	if err != nil {
		return nil, errors.Join(fault.Wrap(err, fault.ConfigurationInvalid, "The folder in which files are read can't be made."), s.Close())
	}
	l, err := library.Open(ctx, library.Options{
		Store: d.store, Shelf: s, Clock: time.Now, Log: d.o.Log, Detect: detector.Labels,
		KnownLabel: func(label string) bool {
			all, err := d.config().labels() // those of today: a reload may have changed them
			return err == nil && slices.Contains(all, flow.Label(label))
		},
		Parse: texts.Text, Erasers: d.erasers, Said: agentsWords{d}, Embeddings: d.embeddings(),
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return l, nil
}
