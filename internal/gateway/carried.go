package gateway

import (
	"bytes"
	"slices"

	"sallyport/flow"
	"sallyport/guard"
	"sallyport/internal/call"
)

// carriedText is delivered content that came back as an argument, and where it was from.
type carriedText struct {
	Source    string `json:"source"`
	Operation string `json:"operation,omitempty"`
	Session   string `json:"session,omitempty"`
	CallID    string `json:"call_id,omitempty"`
}

// maxCarried bounds how much of it is on record; labels rise for all of it.
const maxCarried = 16

// carry finds fenced text and attributions in the arguments. Whoever passes on what was delivered, to this session or another, passes on
// its labels: the flow stage judges the session as if it held them, and it does from then on (AT-3, FL-2). An agent that takes
// the fence off isn't seen here; that is what the session's own labels are for.
func (c *crossing) carry() {
	if !bytes.Contains(c.args, []byte(guard.TrustLevel)) { // both the fence's markers and every attribution have the word
		return
	}
	byID := c.g.cat.snap.Load().byID
	add := func(t carriedText, labels []flow.Label) {
		if len(c.carries) < maxCarried {
			c.carries = append(c.carries, t)
		}
		for _, l := range append(slices.Clone(labels), flow.Untrusted) {
			if c.g.knownLabel(l) && !slices.ContainsFunc(c.carried, func(h flow.Held) bool { return h.Label == l }) {
				c.carried = append(c.carried, flow.Held{Label: l, Operation: t.Operation, CallID: t.CallID})
			}
		}
	}
	for _, a := range c.g.o.Issuer.Find(c.args) {
		t := carriedText{Source: a.Source(), Operation: a.Operation(), Session: a.Session(), CallID: a.CallID()}
		var labels []flow.Label
		if op := byID[a.Operation()]; op != nil {
			labels = op.Flow.Emits
		}
		add(t, labels)
	}
	call.Strings(c.args, func(_, s string) bool {
		for _, w := range guard.FindWrapped(s) {
			h := w.Header()
			var labels []flow.Label
			for _, word := range h.Contamination {
				labels = append(labels, flow.Label(word))
			}
			add(carriedText{Source: h.Source, Operation: h.Operation}, labels)
		}
		return true
	})
}
