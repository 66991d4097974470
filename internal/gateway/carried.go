package gateway

import (
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/judge"
)

// maxCarried bounds how much of it is on record; labels rise for all of it.
const maxCarried = 16

// carry finds delivered text in what the call sends: its arguments, and answers to a server's questions. Whoever passes on what was
// delivered, to this session or another, passes on its labels: permission and flow are judged as if the session held them, and it does
// from then on (AT-3, FL-2). An agent that takes the fence off isn't seen here; that is what the session's own labels are for.
func (c *crossing) carry() {
	if c.effect.Traits().Converses {
		c.listen()
		return
	}
	c.carries, c.carried = c.g.carriedIn(c.set, c.args)
	if c.answers != nil {
		texts, held := c.g.carriedIn(c.set, c.answers)
		c.carries, c.carried = append(c.carries, texts...), append(c.carried, held...)
	}
	c.carries = c.carries[:min(len(c.carries), maxCarried)]
}

// carriedIn finds fenced text and attributions in a JSON value, and the labels that they bring. A label that the configuration no longer
// has stands for all of them: nobody can say any more what it blocks.
func (g *Gateway) carriedIn(set *settings, b []byte) (texts []judge.Carried, held []flow.Held) {
	attributions, fenced := effect.Delivered(b, g.o.Issuer)
	if len(attributions)+len(fenced) == 0 {
		return nil, nil
	}
	byID := g.catalogue.Snapshot().ByID
	add := func(t judge.Carried, labels []flow.Label) {
		t.Source = short(string(g.o.Detector.Redact([]byte(t.Source))))
		texts = append(texts, t)
		for _, l := range append(slices.Clone(labels), flow.Untrusted) {
			known := []flow.Label{l}
			if !set.rules.KnownLabel(l) {
				known = set.Labels
			}
			for _, l := range known {
				if !slices.ContainsFunc(held, func(h flow.Held) bool { return h.Label == l }) {
					h := flow.Held{Label: l, Operation: t.Operation, CallID: t.CallID}
					if h.Operation == "" {
						h.Cause = "fenced text from " + t.Source
					}
					held = append(held, h)
				}
			}
		}
	}
	for _, a := range attributions {
		t := judge.Carried{Source: a.Source(), Operation: a.Operation(), Session: a.Session(), CallID: a.CallID()}
		labels := set.Labels // of an operation that nobody knows any more
		if op := byID(a.Operation()); op != nil {
			labels = slices.Clone(op.Flow.Emits)
			for _, h := range g.stored.Of(op.Server) { // as its results may have had them, too
				labels = append(labels, h.Label)
			}
		}
		add(t, labels)
	}
	for _, w := range fenced {
		h := w.Header()
		var labels []flow.Label
		for _, word := range h.Contamination {
			labels = append(labels, flow.Label(word))
		}
		add(judge.Carried{Source: h.Source, Operation: g.broughtBy(h.Source)}, labels)
	}
	return texts, held
}

// broughtBy is the operation whose results have the source, as far as a source tells: a server's operation is the source of what it brings, and
// commands name what they read.
func (g *Gateway) broughtBy(source string) string {
	if g.catalogue.Snapshot().ByID(source) != nil {
		return source
	}
	for _, c := range g.o.Commands {
		if c.From != "" && strings.HasPrefix(source, c.From) {
			return c.ID()
		}
	}
	return ""
}
