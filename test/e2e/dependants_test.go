package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"sallyport.example/client"
)

// A chain of three agents, the last of which depends on a fourth, too. When the first is put aside, the others keep what their declarations say for that, or what only reads, and are told who
// is missed, since when and why: over a crash, and until the last that they depend on is back. One that comes and goes takes them along each time, and all of it is on record.
func TestAChainOfDependants(t *testing.T) {
	crm := &scripted{tools: plainTools("get", "put"), answer: says("fine")}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  crm: {url: %q}\noperations:\n  crm.get: {sensitivity: none, effect: read, output: trusted}\n  crm.put: {sensitivity: none, effect: write, level: 1, output: trusted, args: {}}\n", crm.url(t)),
		declaration("first"), declaration("second")+"dependsOn: [first]\n", declaration("third")+"dependsOn: [second, other]\ndegraded: [crm.put]\n", declaration("other"))
	w := launch(t, p)
	agents := []string{"first", "second", "third", "other"}
	tokens := map[string]string{}
	for _, agent := range agents {
		tokens[agent] = w.token(agent)
	}
	code := func(agent, tool string) string {
		t.Helper()
		a, err := w.client(w.agent, tokens[agent]).Call(t.Context(), client.Own, tool, json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict.Code
	}
	// missing checks what the second and the third may do, and what they and people are told.
	missing := func(when, bySecond, byThird string) {
		t.Helper()
		refused := func(by string) string { return map[bool]string{true: "agent.degraded"}[by != ""] }
		for _, c := range []struct{ agent, tool, want string }{
			{"second", "crm_get", ""}, {"second", "crm_put", refused(bySecond)}, {"third", "crm_put", ""}, {"third", "crm_get", refused(byThird)}, {"other", "crm_put", map[bool]string{true: "agent.quarantined"}[byThird == "other"]},
		} {
			if got := code(c.agent, c.tool); got != c.want {
				t.Errorf("%s: %s calls %s: %q, want %q", when, c.agent, c.tool, got, c.want)
			}
		}
		for agent, by := range map[string]string{"second": bySecond, "third": byThird} {
			m, err := w.client(w.agent, tokens[agent]).Manifest(t.Context(), client.Own)
			if err != nil {
				t.Fatal(err)
			}
			shown, err := w.root.Agent(t.Context(), agent)
			if err != nil {
				t.Fatal(err)
			}
			for what, d := range map[string]*client.Degraded{"its manifest": m.Degraded, "the list": shown.Degraded} {
				if by == "" && d != nil || by != "" && (d == nil || d.By != by || d.Why != "it is quarantined" || time.Since(d.Since) > time.Hour) {
					t.Errorf("%s: %s of %s says %+v, want %q", when, what, agent, d, by)
				}
			}
		}
	}
	aside := func(agent string) {
		t.Helper()
		if _, err := w.root.Quarantine(t.Context(), agent, "odd"); err != nil {
			t.Fatal(err)
		}
	}
	back := func(agent string) {
		t.Helper()
		if _, err := w.root.Restore(t.Context(), agent, "fine"); err != nil {
			t.Fatal(err)
		}
	}
	missing("at first", "", "")
	aside("first")
	missing("the first is aside", "first", "first")
	w.kill()
	w = launch(t, p)
	missing("after a crash", "first", "first")
	aside("other")
	missing("both are aside", "first", "other")
	back("first")
	missing("the first is back", "", "other")
	back("other")
	missing("both are back", "", "")
	for range 3 { // it comes and goes
		aside("first")
		missing("again", "first", "first")
		back("first")
		missing("and back", "", "")
	}
	want := map[string][]string{
		"second": {"degraded", "whole", "degraded", "whole", "degraded", "whole", "degraded", "whole"},
		"third":  {"degraded", "degraded", "whole", "degraded", "whole", "degraded", "whole", "degraded", "whole"}, // once more when it missed the other one
	}
	for agent, want := range want {
		var got []string
		eventually(t, 20*time.Second, "the last entry", func() bool {
			got = nil
			for _, e := range w.entries() {
				switch {
				case e.Agent != agent:
				case e.Action == "agent.degraded":
					got = append(got, "degraded")
				case e.Action == "agent.whole":
					got = append(got, "whole")
				}
			}
			return len(got) >= len(want)
		})
		if !slices.Equal(got, want) {
			t.Errorf("on record of %s: %q, want %q", agent, got, want)
		}
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	p.verify(t)
}
