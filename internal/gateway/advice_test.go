package gateway_test

import (
	"encoding/json"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/planned"
)

// check asks whether the call would run, and validate-plan whether the one step would. Both read the table that calls are judged by, so
// the code is the same wherever the stage takes part in both.
func TestCheckAndValidatePlanAgree(t *testing.T) {
	changed := func(w *world, server, tool string) {
		if err := w.g.Catalogue().UpdateDefinitions(t.Context(), server, []call.Definition{definition(server, tool, "It has changed.")}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		tool   string
		change func(w *world, p identity.Principal)
		want   fault.Code // of both; "": both permit
	}{
		"fine":                    {"web_search", func(*world, identity.Principal) {}, ""},
		"global switch":           {"web_search", func(w *world, _ identity.Principal) { w.g.Standing().Disable("", "person:a", "stop") }, fault.KillSwitch},
		"switch of the agent":     {"web_search", func(w *world, _ identity.Principal) { w.g.Standing().Disable("worker", "person:a", "stop") }, fault.KillSwitch},
		"switch of another agent": {"web_search", func(w *world, _ identity.Principal) { w.g.Standing().Disable("planner", "person:a", "stop") }, ""},
		"agent quarantined": {"web_search", func(w *world, _ identity.Principal) {
			must(t, w.g.Standing().Quarantine(t.Context(), "worker", "odd", "person:a"))
		}, fault.AgentQuarantined},
		"unknown tool":                    {"nothing", func(*world, identity.Principal) {}, fault.ToolUnknown},
		"no permission":                   {"transfer", func(*world, identity.Principal) {}, fault.PermissionDenied},
		"changed tool":                    {"search_email", func(w *world, _ identity.Principal) { changed(w, "mail", "search_email") }, fault.ToolQuarantined},
		"changed tool, and no permission": {"transfer", func(w *world, _ identity.Principal) { changed(w, "bank", "transfer") }, fault.PermissionDenied},
		"session closed": {"web_search", func(w *world, p identity.Principal) {
			_, err := w.g.CloseSession(t.Context(), p.ID, "person:a", "over")
			must(t, err)
		}, fault.SessionClosed},
		"contaminated": {"web_search", func(w *world, p identity.Principal) {
			w.mustPermit(w.as(p, "search_email"))
		}, fault.FlowContaminated},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, _, err := w.g.OpenSession(t.Context(), identity.Principal{Kind: identity.Person, ID: "a"}, gateway.OpenRequest{Agent: "worker", UserRequest: "search"})
			must(t, err)
			p := identity.Principal{Kind: identity.Session, ID: s.ID, Agent: "worker"}
			c.change(w, p)
			checked := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: c.tool, Arguments: json.RawMessage(`{"q":"x"}`), Door: "http", DryRun: true})
			body, err := json.Marshal(map[string]any{"planned_calls": []any{map[string]any{"tool": c.tool, "arguments": map[string]string{"q": "x"}}}})
			must(t, err)
			answer, err := w.g.ValidatePlan(t.Context(), p, "", body)
			must(t, err)
			report := answer.(planned.Report)
			if (checked.Verdict.Decision == fault.Permit) != (c.want == "") || report.Valid != (c.want == "") {
				t.Fatalf("check says %+v, validate-plan %+v", checked.Verdict, report)
			}
			if c.want == "" {
				return
			}
			if checked.Verdict.Code != c.want || len(report.Violations) != 1 || report.Violations[0].Code != string(c.want) || report.Violations[0].Suggestion == "" {
				t.Errorf("check says %s, validate-plan %+v, want %s", checked.Verdict.Code, report.Violations, c.want)
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
