package guard

import (
	"fmt"
	"strings"
	"testing"
)

// maxFuzz keeps single executions fast; every rule is local, so longer inputs show nothing new.
const maxFuzz = 1 << 10

// Run it with -fuzzminimizetime 10x: the fuzzer would spend up to a minute on making each interesting text shorter, which is of no use here,
// and counts none of it.
func FuzzWrap(f *testing.F) {
	for _, c := range attackCases(f) {
		if p := c.payload(f); len(p) <= maxFuzz {
			f.Add(p, testURL, c.TruncateAt, 7)
		}
	}
	f.Add("a\r\nb\\u{3C}\xff≪<\u200b<Ｘ", "\"\n\x1b", 5, 100)
	f.Fuzz(func(t *testing.T, content, source string, limit, at int) {
		if source == "" || len(source) > maxFuzz || len(content) > maxFuzz || limit < 0 {
			return
		}
		if _, err := wrapHolds(content, source, limit, max(0, at)); err != nil {
			t.Fatal(err)
		}
	})
}

const freshNonce = "0123456789ABCDEFGHIJ_-"

// wrapHolds wraps once and checks the invariants, with nonces that the content may know.
func wrapHolds(content, source string, limit, at int) (Wrapped, error) {
	fence := Fence{Contamination: []string{"untrusted"}, MaxBytes: limit, nonces: fixedNonces(leakedNonce, oldNonce, freshNonce)}
	w, err := fence.Wrap(content, source)
	if err != nil {
		if known := content + "\n" + source; strings.Contains(known, leakedNonce) && strings.Contains(known, oldNonce) && strings.Contains(known, freshNonce) {
			return Wrapped{}, nil // all of the few known draws
		}
		return Wrapped{}, err
	}
	if err := holds(fence, content, source, w); err != nil {
		return Wrapped{}, err
	}
	return w, noOtherBlock(w, at)
}

func FuzzParseWrapped(f *testing.F) {
	for _, c := range attackCases(f) {
		if p := c.payload(f); len(p) <= maxFuzz {
			w, err := Fence{MaxBytes: c.TruncateAt}.Wrap(p, testURL)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(w.ForModel())
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2*maxFuzz {
			return
		}
		if _, err := parseHolds(text); err != nil {
			t.Fatal(err)
		}
	})
}

// parseHolds checks that text, if it parses, is what Wrap makes of its content, and reports whether it parses.
func parseHolds(text string) (bool, error) {
	found := FindWrapped(text)
	w, err := ParseWrapped(text)
	if err != nil {
		return false, nil
	}
	h := w.Header()
	content, source := unescape(w.body, h.CRLF), unescape(h.Source, false)
	if !h.Truncated() {
		fence := Fence{Contamination: h.Contamination, nonces: fixedNonces(text[len(beginMark):][:nonceLen])}
		if err := holds(fence, content, source, w); err != nil {
			return true, fmt.Errorf("%q parses: %v", text, err)
		}
		again, err := fence.Wrap(content, source)
		if err != nil || again.ForModel() != text {
			return true, fmt.Errorf("%q parses, and Wrap makes %q of it, %v", text, again.ForModel(), err)
		}
	}
	if len(found) != 1 || found[0].ForModel() != text {
		return true, fmt.Errorf("%q parses and is not found", text)
	}
	return true, nil
}

func FuzzParseAttribution(f *testing.F) {
	i := newIssuer(f, testKey)
	meta := string(marshal(f, attribute(f, i, testSource())))
	f.Add(`{"results":[1],"metadata":` + meta + `}`)
	f.Add(`{"metadata":` + string(marshal(f, attribute(f, i, declaredSource()))) + `}`)
	f.Add(meta)
	f.Add(`{"a":"\"}","b":[{"x":[]}],"c":-1.5e3,"metadata" : {"attribution":"CommunicationOS (fetch) in session sess_1"}}`)
	f.Add(`["{\"attribution\":` + `1}", "x {\"attribution\" :2"]`)
	f.Fuzz(func(t *testing.T, data string) {
		want, declared := attribute(t, i, testSource()), attribute(t, i, declaredSource())
		if a, err := i.Parse([]byte(data)); err == nil && a != want && a != declared {
			t.Fatalf("%q gives %v, which was never issued", data, a)
		}
		if err := i.Enforce([]byte(data), "sess_1"); err == nil && !strings.Contains(data, want.CallID()) && !strings.Contains(data, `\u`) {
			t.Fatalf("%q was let in", data)
		}
		for _, a := range i.Find([]byte(data)) {
			if a != want && a != declared {
				t.Fatalf("%q holds %v, which was never issued", data, a)
			}
		}
		if op, session, err := ParseAttribution(data); err == nil {
			if line, err := FormatAttribution(op, session); err != nil || line != data {
				t.Fatalf("%q formats as %q, %v", data, line, err)
			}
		}
	})
}

func FuzzPhase(f *testing.F) {
	f.Add("comm.fetch", "planning")
	f.Add("knowledge.search", "execution")
	f.Fuzz(func(t *testing.T, name, phase string) {
		g, err := NewPhaseGate(name)
		if err == nil && strings.HasPrefix(strings.ToLower(name), "comm.") {
			t.Fatalf("%q was accepted as free of external I/O", name)
		}
		if err != nil {
			g = newGate(t, "knowledge.search")
		}
		p, perr := ParsePhase(phase)
		want := perr == nil && name != "" && (p == Execution || err == nil || name == "knowledge.search")
		check(t, g, name, Phase(phase), want)
	})
}
