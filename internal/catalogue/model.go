package catalogue

import (
	"slices"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/models/wire"
	"sallyport.example/provenance"
)

// ModelServer is the server id of the operations that models are; no upstream can have it.
const ModelServer = "model"

// Model is a model that agents may be let ask: as an operation it reads nothing, changes nothing, and is a sink, since its provider gets what it is sent
// (docs/design.md, "Models").
type Model struct {
	ID       string // as agents name it, pinned to a version
	Provider wire.Provider
	Labels   []flow.Label // that may go there
	Fallback string       // the model to ask where this one fails; "": none
	Mask     bool         // secrets in requests are replaced by placeholders
	Allow    []string     // what passes besides what package wire has on its lists
	Timeout  time.Duration
	Price    *wire.Price // nil: nobody has said what it costs
}

// Model finds a model by its id; nil if none is configured.
func (s *Snapshot) Model(id string) *Operation {
	if op := s.byID[ModelServer+"."+id]; op != nil && op.Model != nil {
		return op
	}
	return nil
}

// Models returns the models, by id.
func (s *Snapshot) Models() (all []*Operation) {
	for _, op := range s.byID {
		if op.Model != nil {
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b *Operation) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return all
}

// models makes operations of the models. Nobody pins them: the operator names each by its version.
func (c *Catalogue) models(s *Snapshot) {
	for i := range c.o.Models {
		m := &c.o.Models[i]
		blocked := slices.DeleteFunc(slices.Clone(c.o.Labels), func(l flow.Label) bool { return slices.Contains(m.Labels, l) })
		op := c.classified(Classification{
			Flow:   flow.Spec{Sensitivity: flow.External, Effect: flow.Read, Emits: &[]flow.Label{}, BlockedBy: &blocked},
			Output: provenance.TrustedOutput, // of the agent's own thinking: what went into it gave the session its labels
			Listed: true, Named: true, ExposeAs: m.ID, Timeout: m.Timeout,
		}, ModelServer, m.ID, call.Model)
		op.Model, op.Hash = m, call.HashBytes([]byte(string(m.Provider)+"\x00"+m.ID))
		outside := op.Class
		outside.Flow.BlockedBy, outside.ExternalIO = nil, true
		op.Hosting = c.classified(outside, ModelServer, m.ID, call.Model)
		op.Hosting.Model, op.Hosting.Hash = m, op.Hash
		s.byID[op.ID] = op
	}
}
