package e2e

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"

	"sallyport.example/client"
)

// A server goes away: after five calls that could not be sent its breaker is open for every agent, over a crash of the gateway, and a person closes it. An
// agent that depends on one that is quarantined keeps what its declaration says.
func TestADeadServerOpensItsBreaker(t *testing.T) {
	crm := httptest.NewServer(&scripted{tools: plainTools("get"), answer: says("fine")})
	t.Cleanup(crm.Close)
	other := &scripted{tools: plainTools("get"), answer: says("fine")}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  crm: {url: %q, timeout: 2s}\n  other: {url: %q}\noperations:\n  crm.*: {sensitivity: none, effect: read, output: trusted}\n  other.*: {sensitivity: none, effect: read, output: trusted}\nbreakers: {wait: 5m}\n",
		crm.URL, other.url(t)), declaration("tester"), declaration("second")+"dependsOn: [tester]\ndegraded: [other.get]\n")
	w := launch(t, p)
	first, second := w.token("tester"), w.token("second")
	call := func(token, tool string) *client.CallAnswer {
		t.Helper()
		a, err := w.client(w.agent, token).Call(t.Context(), client.Own, tool, json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, token := range []string{first, second} {
		if a := call(token, "crm_get"); a.Result == nil {
			t.Fatalf("%+v", a)
		}
	}
	crm.CloseClientConnections()
	crm.Close()
	refused := 0
	for range 12 { // a call that was under way, and what the connection had, may end otherwise
		if call(first, "crm_get").Verdict.Code == "breaker.open" {
			refused++
		}
	}
	if refused < 5 {
		t.Fatalf("%d of 12 calls were refused by a breaker", refused)
	}
	open := func() (names []string) {
		t.Helper()
		all, err := w.root.Breakers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			if b.State == "open" {
				names = append(names, b.Name)
			}
		}
		return names
	}
	before := open()
	if !slices.Contains(before, "tester@crm") {
		t.Fatalf("open: %q", before)
	}
	if a := call(first, "other_get"); a.Result == nil {
		t.Errorf("another server is refused, too: %+v", a.Verdict)
	}
	w.kill()
	w = launch(t, p)
	if after := open(); !slices.Equal(after, before) {
		t.Errorf("open after a crash: %q, before: %q", after, before)
	}
	if v := call(first, "crm_get").Verdict; v.Code != "breaker.open" && v.Code != "tool.unknown" {
		t.Errorf("after a crash: %+v", v)
	}
	for _, name := range before {
		if _, err := w.root.ResetBreaker(t.Context(), name, "it is mended"); err != nil {
			t.Fatal(err)
		}
	}
	if still := open(); len(still) > 0 {
		t.Errorf("open after the reset: %q", still)
	}
	if out, err := w.root.TestBreaker(t.Context(), "tester"); err != nil || !out.Refused {
		t.Errorf("%+v, %v", out, err)
	}

	if _, err := w.root.Quarantine(t.Context(), "tester", "odd"); err != nil {
		t.Fatal(err)
	}
	if a := call(second, "other_get"); a.Result == nil {
		t.Errorf("what the declaration keeps is refused: %+v", a.Verdict)
	}
	if v := call(second, "comm_list_files").Verdict; v.Code != "agent.degraded" {
		t.Errorf("what it doesn't keep: %+v", v)
	}
}
