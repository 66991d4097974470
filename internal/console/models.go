package console

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/quota"
)

// modelsPage is what agents, and the gateway itself, asked models for, and which models there are.
type modelsPage struct {
	Span  string
	Spans []window
	Since time.Time
	Uses  []modelUse // those that used most first
	All   modelUse
	Cut   int // uses that are not shown
	Known []knownModel
}

// shownUses bounds the table.
const shownUses = 100

// modelUse is a row of the table.
type modelUse struct {
	monitor.ModelKey
	monitor.ModelUse
}

// Price is what the requests cost, in the currency of the configuration; "": nothing that has a price.
func (u modelUse) Price() string {
	if u.ModelUse.Cost == 0 {
		return ""
	}
	return quota.Cost.Show(u.ModelUse.Cost)
}

// asksFor says what the gateway itself asks models for, by the action of the entries.
var asksFor = map[string]string{
	library.EmbedAction: "embeddings of documents and of people’s questions",
	library.JudgeAction: "judging people’s claims",
	gateway.JudgeAction: "judging results",
}

// Own says what the gateway itself asked for; "": an agent asked.
func (u modelUse) Own() string {
	if u.Agent != "" {
		return ""
	}
	return cmp.Or(asksFor[u.For], u.For)
}

// FirstText is how long the first text of a streamed answer took, on average; "": nothing was streamed.
func (u modelUse) FirstText() string {
	if u.Streamed == 0 {
		return ""
	}
	return (u.First / time.Duration(u.Streamed)).Round(time.Millisecond).String()
}

// Entries is the page of the log that has them.
func (u modelUse) Entries(since time.Time, decision string) string {
	return link("/audit", "agent", u.Agent, "action", u.For, "operation", catalogue.ModelServer+"."+u.Model, "decision", decision, "from", since.UTC().Format(time.RFC3339))
}

// knownModel is a model of the configuration.
type knownModel struct {
	ID, Provider, Fallback string
	Labels                 []flow.Label
	Priced                 bool
}

func (c *Console) models(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	d := modelsPage{Spans: windows[1:]}
	span := windowOf(r.URL.Query().Get("span"), d.Spans)
	d.Span, d.Since = span.Name, span.since(c.o.Clock())
	if c.o.Counters != nil {
		for k, u := range c.o.Counters.Models(d.Since) {
			d.Uses = append(d.Uses, modelUse{k, u})
			d.All.ModelUse = d.All.Plus(u)
		}
	}
	slices.SortFunc(d.Uses, func(a, b modelUse) int {
		return cmp.Or(cmp.Compare(b.ModelUse.Cost, a.ModelUse.Cost), cmp.Compare(b.Input+b.Output, a.Input+a.Output), cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Model, b.Model), cmp.Compare(a.For, b.For))
	})
	d.Cut = max(0, len(d.Uses)-shownUses)
	d.Uses = d.Uses[:len(d.Uses)-d.Cut]
	for _, op := range c.o.Gateway.Catalogue().Snapshot().Models() {
		m := op.Model
		d.Known = append(d.Known, knownModel{m.ID, string(m.Provider), m.Fallback, m.Labels, m.Price != nil})
	}
	c.show(w, r, p, view{template: "models", title: "Models", place: "/models", data: d})
}
