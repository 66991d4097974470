package console

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/stored"
	"sallyport.example/provenance"
)

// The page of stored labels shows what carries which label and who wrote it; an operator takes labels off with a reason, and nobody else is offered to.
func TestStoredPage(t *testing.T) {
	w := newPagesWorld(t)
	contains(t, w.ask("viewer", "/tools/stored", nil).Body.String(), "No session with private data has written")
	if page := w.ask("viewer", "/tools", nil).Body.String(); strings.Contains(page, "/tools/stored") {
		t.Error("the tools link to labels that nothing has")
	}
	writes := func(server, kind, args string, n int) {
		t.Helper()
		p := &provenance.Profile{IDKind: kind, Args: map[string]provenance.Role{"id": provenance.Selector}}
		err := w.g.Stored().Before(t.Context(), &stored.Write{
			Server: server, Operation: server + ".<b>write", CallID: fmt.Sprint("call_", n), Profile: p, Arguments: []byte(args), Now: time.Now(),
			Labels: []flow.Held{{Label: "internal"}, {Label: "pii"}}, Entry: audit.Entry{Session: "s"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	writes("notes", "note", `{"id":"<i>7"}`, 1)
	writes("memory", "", `{}`, 2)
	page := w.ask("operator", "/tools/stored", nil).Body.String()
	contains(t, page, "note &lt;i&gt;7 of notes", "All that memory gives back", "notes.&lt;b&gt;write", "pii", `name="label.internal"`, `name="reason" required`)
	if strings.Contains(page, "<i>7") || strings.Contains(page, "<b>write") {
		t.Error("what servers and agents say stands in the page as it is")
	}
	contains(t, w.ask("viewer", "/tools", nil).Body.String(), `<a href="/tools/stored">`)
	if only := w.ask("viewer", "/tools/stored?server=memory", nil).Body.String(); strings.Contains(only, "of notes") || strings.Contains(only, "/release") {
		t.Error("of another server, or a viewer is offered to release")
	}
	id := w.g.Stored().List()[0].ID
	act := "/tools/stored/" + id + "/release"
	if rec := w.ask("operator", act, url.Values{"label.internal": {"yes"}, "reason": {" "}}); rec.Code != 400 || !strings.Contains(rec.Body.String(), `id="problem"`) {
		t.Errorf("without a reason: %d", rec.Code)
	}
	if rec := w.ask("operator", act, url.Values{"reason": {"it is public"}}); rec.Code != 400 || !strings.Contains(rec.Body.String(), `value="it is public"`) {
		t.Errorf("without a label, and what was typed: %d", rec.Code)
	}
	if rec := w.ask("operator", "/tools/stored/mark_0/release", url.Values{"label.internal": {"yes"}, "reason": {"it is public"}}); rec.Code != 404 {
		t.Errorf("of nothing: %d", rec.Code)
	}
	if n := len(w.g.Stored().List()[0].Labels); n != 2 {
		t.Fatalf("%d labels are left", n)
	}
	for range 2 { // pressed twice
		if rec := w.ask("operator", act, url.Values{"label.internal": {"yes"}, "reason": {"it is public"}}); rec.Code != 303 {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	}
	if left := w.g.Stored().List()[0].Labels; len(left) != 1 || left[0].Label != "pii" {
		t.Errorf("%+v", left)
	}
	for i := range pageOfStored + 10 {
		writes("notes", "note", fmt.Sprintf(`{"id":%d}`, 1000+i), i)
	}
	if page := w.ask("operator", "/tools/stored", nil).Body.String(); strings.Count(page, "<section") != pageOfStored || !strings.Contains(page, "These are the first 100") {
		t.Errorf("%d sections", strings.Count(page, "<section"))
	}
}
