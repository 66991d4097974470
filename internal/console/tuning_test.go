package console

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

// The page of rules shows readers what asked and what was refused. An operator tries other rules on recorded work there; what servers and agents said is escaped.
func TestRulesPage(t *testing.T) {
	w := newPagesWorld(t)
	if page := w.ask("viewer", "/tools/rules", nil).Body.String(); !strings.Contains(page, "Nobody was asked anything") || strings.Contains(page, "Try a change") {
		t.Errorf("before all calls: %s", page)
	}
	_, do := w.open("worker", "")
	if a := do("slack_post", `{"text":"hello"}`); a.Verdict.ApprovalID == nil {
		t.Fatalf("nobody was asked: %+v", a.Verdict)
	}
	page := w.ask("viewer", "/tools/rules", nil).Body.String()
	if strings.Contains(page, "/tools/labels") {
		t.Error("a viewer is shown the way to what only operators see")
	}
	contains(t, page, "slack.post", "What asked people", `<td>1</td><td>0</td><td>0</td><td>0</td><td>1</td>`)
	desk := &fakeDesk{trial: Trial{Since: time.Unix(0, 0), Sessions: 2, Was: Judged{9, 5, 1}, Now: Judged{9, 2, 1}, Notes: []string{"a <b>note"}, Operations: []TriedOperation{{"crm.<i>find", Judged{9, 5, 1}, Judged{9, 2, 1}, 3}},
		Otherwise: make([]TriedCall, listedMost+5)}}
	desk.trial.Otherwise[0] = TriedCall{Session: "sess_1", Agent: "worker", Operation: "crm.<u>send", Was: "ask", Now: "permit", Reason: "<script>alert(1)</script>\u202e"}
	w.c.o.Labels = desk
	contains(t, w.ask("operator", "/tools/rules", nil).Body.String(), "Try a change", "flow: {}", `action="/tools/rules"`)
	contains(t, w.ask("operator", "/tools", nil).Body.String(), `href="/tools/rules"`)
	page = w.ask("operator", "/tools/rules", url.Values{"since": {"24h"}, "sections": {"flow: {project: </textarea>}"}}).Body.String()
	contains(t, page, "2 questions instead of 5, 1 refused instead of 1", "a &lt;b&gt;note", "crm.&lt;i&gt;find", "<td>3 → 6</td>", "crm.&lt;u&gt;send", "ask → permit", "&lt;script&gt;alert", "5 more", "flow: {project: &lt;/textarea&gt;}", `value="24h" selected`)
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "\u202e") {
		t.Error("an agent's words stand in the page as they are")
	}
	if len(desk.tried) != 1 || desk.tried[0] != "24h0m0s flow: {project: </textarea>}" {
		t.Errorf("tried: %q", desk.tried)
	}
	for _, role := range []string{"viewer", "approver", "auditor"} {
		if rec := w.ask(role, "/tools/rules", url.Values{"since": {"24h"}, "sections": {""}}); rec.Code != 403 {
			t.Errorf("%s tries: %d", role, rec.Code)
		}
	}
	if rec := w.ask("operator", "/tools/rules", url.Values{"since": {"1y"}}); rec.Code != 400 || len(desk.tried) != 1 {
		t.Errorf("another time: %d", rec.Code)
	}
	desk.err = fault.New(fault.ConfigurationInvalid, "The configuration can’t be tried: no <b>")
	rec := w.ask("operator", "/tools/rules", url.Values{"since": {"7d"}, "sections": {"flow: {"}})
	if page = rec.Body.String(); rec.Code < 400 || strings.Contains(page, "questions instead of") {
		t.Errorf("a bad change: %d", rec.Code)
	}
	contains(t, page, "can’t be tried: no &lt;b&gt;", "flow: {") // what was typed is there still
	w.c.o.Labels = nil
	if rec := w.ask("operator", "/tools/rules", url.Values{"since": {"7d"}}); rec.Code != 404 {
		t.Errorf("without a file: %d", rec.Code)
	}
}
