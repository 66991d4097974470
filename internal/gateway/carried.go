package gateway

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/call"
	"sallyport.example/internal/judge"
)

// maxCarried bounds how much of it is on record; labels rise for all of it.
const maxCarried = 16

// carry finds delivered text in what the call sends: its arguments, and answers to a server's questions. Whoever passes on what was
// delivered, to this session or another, passes on its labels: permission and flow are judged as if the session held them, and it does
// from then on (AT-3, FL-2). An agent that takes the fence off isn't seen here; that is what the session's own labels are for.
func (c *crossing) carry() {
	c.carries, c.carried = c.g.carriedIn(c.args)
	if c.answers != nil {
		texts, held := c.g.carriedIn(c.answers)
		c.carries, c.carried = append(c.carries, texts...), append(c.carried, held...)
	}
	c.carries = c.carries[:min(len(c.carries), maxCarried)]
}

// carriedIn finds fenced text and attributions in a JSON value, and the labels that they bring. A label that the configuration no longer
// has stands for all of them: nobody can say any more what it blocks.
func (g *Gateway) carriedIn(b []byte) (texts []judge.Carried, held []flow.Held) {
	// In an address what is passed on is encoded; the word below is the same in both forms, and in every fence and attribution.
	if !bytes.Contains(b, []byte(guard.TrustLevel)) {
		return nil, nil
	}
	byID := g.catalogue.Snapshot().ByID
	add := func(t judge.Carried, labels []flow.Label) {
		t.Source = short(string(g.o.Detector.Redact([]byte(t.Source))))
		texts = append(texts, t)
		for _, l := range append(slices.Clone(labels), flow.Untrusted) {
			known := []flow.Label{l}
			if !g.rules.KnownLabel(l) {
				known = g.o.Labels
			}
			for _, l := range known {
				if !slices.ContainsFunc(held, func(h flow.Held) bool { return h.Label == l }) {
					held = append(held, flow.Held{Label: l, Operation: t.Operation, CallID: t.CallID})
				}
			}
		}
	}
	// Every form in which an address can hold it is looked at. The decoded ones go to Find in one piece, whose work is bounded.
	var forms, plain []string
	call.Strings(b, func(_, s string) bool {
		if strings.Contains(s, guard.TrustLevel) {
			forms = append(forms, s)
			plain = append(plain, decodings(s)...)
		}
		return true
	})
	attributions := g.o.Issuer.Find(b)
	if len(plain) > 0 {
		if all, err := json.Marshal(plain); err == nil {
			attributions = append(attributions, g.o.Issuer.Find(all)...)
		}
	}
	for _, a := range attributions {
		t := judge.Carried{Source: a.Source(), Operation: a.Operation(), Session: a.Session(), CallID: a.CallID()}
		labels := g.o.Labels // of an operation that nobody knows any more
		if op := byID(a.Operation()); op != nil {
			labels = op.Flow.Emits
		}
		add(t, labels)
	}
	for _, s := range append(forms, plain...) {
		for _, w := range guard.FindWrapped(s) {
			h := w.Header()
			var labels []flow.Label
			for _, word := range h.Contamination {
				labels = append(labels, flow.Label(word))
			}
			add(judge.Carried{Source: h.Source, Operation: h.Operation}, labels)
		}
	}
	return texts, held
}

// maxDecoded bounds what is looked at decoded, in bytes of the encoded string: no address is longer.
const maxDecoded = 256 << 10

// decodings takes the percent-encoding off, up to three times, with plus as it is and as a space. What is no encoding stays as it is.
func decodings(s string) (all []string) {
	if len(s) > maxDecoded {
		return nil
	}
	for range 3 {
		if spaced := strings.ReplaceAll(s, "+", " "); spaced != s {
			if all = append(all, spaced); strings.Contains(spaced, "%") {
				all = append(all, unescape(spaced))
			}
		}
		plain := unescape(s)
		if plain == s {
			break
		}
		all = append(all, plain)
		s = plain
	}
	return all
}

// unescape takes one layer of percent-encoding off.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
