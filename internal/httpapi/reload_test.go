package httpapi_test

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sallyport.example/client"
	"sallyport.example/internal/console"
	"sallyport.example/internal/identity"
)

// A reload has the name of who asked for it. One that was refused lists every field at fault, and is no failure of the gateway.
func TestReload(t *testing.T) {
	w := newWorld(t)
	admin := w.client(w.admin, w.token(identity.Person, "alice", identity.Admin))
	if _, err := admin.Reload(t.Context()); err != nil || !slices.Equal(w.reloads, []string{"person:alice"}) {
		t.Fatalf("%v, by %q", err, w.reloads)
	}
	for name, c := range map[string]struct {
		refused console.ReloadRefused
		status  int
		code    string
	}{
		"mistakes":  {console.ReloadRefused{Problems: []console.FileProblem{{File: "s.yaml", Line: 5, Field: "mode", Problem: "unknown word", Remedy: "use enforce"}, {Field: "flow", Problem: "no map"}}}, 422, "configuration.invalid"},
		"a restart": {console.ReloadRefused{Restart: true, Problems: []console.FileProblem{{Field: "mode", Problem: "unknown word", Remedy: "use enforce"}, {Field: "flow", Problem: "no map"}}}, 409, "conflict"},
	} {
		w.reloadFails = &c.refused
		_, err := admin.Reload(t.Context())
		var p *client.Problem
		if !errors.As(err, &p) || p.Status != c.status || p.Code != c.code || p.Field != "mode" || p.Remedy != "Use enforce." || len(p.Errors) != 2 ||
			!strings.Contains(p.Detail, "nothing changed (2 problems)") || p.Errors[1] != (client.FieldError{Field: "flow", Problem: "no map"}) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// An admin reloads on the overview, which says what is in force and why a reload was refused.
func TestReloadOnThePage(t *testing.T) {
	w := newWorld(t)
	if p := checkPage(t, "operator", w.browser("olga", identity.Operator).get("/")); !strings.Contains(p.text, "loaded when the gateway started") || strings.Contains(p.text, "Reload the configuration") {
		t.Errorf("an operator sees %s", p.text)
	}
	admin := w.browser("alice", identity.Admin)
	if p := checkPage(t, "admin", admin.get("/")); !strings.Contains(p.text, "Reload the configuration") {
		t.Error("an admin sees no button")
	}
	if a := admin.post("/reload", url.Values{}); a.status != 303 || !slices.Equal(w.reloads, []string{"person:alice"}) {
		t.Errorf("%d, by %q", a.status, w.reloads)
	}
	w.reloadFails = &console.ReloadRefused{Problems: []console.FileProblem{{File: "s.yaml", Line: 5, Field: "mode", Problem: "unknown word <b>", Remedy: "use enforce"}}}
	a := admin.post("/reload", url.Values{})
	if p := checkPage(t, "refused", a); a.status != 422 || !strings.Contains(p.text, "nothing changed: s.yaml:5: unknown word <b>.") || !strings.Contains(p.text, "Use enforce.") {
		t.Errorf("%d: %s", a.status, p.text)
	}
}
