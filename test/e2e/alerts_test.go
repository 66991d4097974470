package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
)

// More than ten access violations and more than five injection attempts raise an incident each, at once: people are told once, over a crash too. They acknowledge it in the browser,
// contain it by stopping the agent, and resolve it on the command line. The security figures follow.
func TestAlertsAndFigures(t *testing.T) {
	t.Parallel()
	hook := newReceiver(t)
	crm := &scripted{tools: plainTools("get", "wipe", "pay"), answer: says(ordersAgent)}
	config := fmt.Sprintf("upstreams:\n  crm: {url: %q}\noperations:\n  crm.get: {sensitivity: none, effect: read, output: untrusted}\n  crm.wipe: {sensitivity: none, effect: write, level: 2}\n  crm.pay: {sensitivity: none, effect: write, level: 2, risk: HIGH, args: {}}\n", crm.url(t)) +
		"people: [{id: ann, roles: [approver, viewer, operator, auditor]}]\n" +
		fmt.Sprintf("notify: [{kind: webhook, url: %q, secret: %q, on: [alert]}]\n", hook.url, hook.secret)
	p := newPlace(t, config, declare("tester", "operator", "execution", []string{"crm.get"}, []string{"crm.pay"}), declare("reader", "advisory", "execution", []string{"crm.get"}, nil))
	w := launch(t, p)
	call := func(token, tool, arguments string) client.Verdict {
		t.Helper()
		a, err := w.client(w.agent, token).Call(t.Context(), client.Own, tool, json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict
	}
	alerts := func(n int) []client.Alert {
		t.Helper()
		var all []client.Alert
		eventually(t, 20*time.Second, fmt.Sprint(n, " alerts are there"), func() (is bool) {
			found, err := w.root.Alerts(t.Context(), "")
			all = found
			return err == nil && len(found) == n
		})
		return all
	}

	tester, reader := w.token("tester"), w.token("reader")
	asked := call(tester, "crm_pay", `{"q":"invoice 1"}`)
	if asked.ApprovalID == nil {
		t.Fatalf("%+v", asked)
	}
	q, err := w.root.Approval(t.Context(), *asked.ApprovalID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client(w.admin, w.tokenOf("ann", "approver")).Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil {
		t.Fatal(err)
	}
	if v := call(tester, "crm_pay", `{"q":"invoice 1"}`); v.Code != "" {
		t.Fatalf("%+v", v)
	}
	for i := range 10 {
		if v := call(reader, "crm_wipe", `{}`); v.Code != "permission.denied" {
			t.Fatalf("%d: %+v", i, v)
		}
	}
	for range 4 { // the answer to the payment was the first hit
		call(tester, "crm_get", `{}`)
	}
	call(tester, "crm_get", `{}`)
	call(reader, "crm_wipe", `{}`)
	all := alerts(2)
	violations, injections := all[0], all[1]
	if violations.Kind != "access_violations" {
		violations, injections = injections, violations
	}
	for _, c := range []struct {
		client.Alert
		kind, agent string
		n           int64
	}{{violations, "access_violations", "reader", 11}, {injections, "injection_attempts", "tester", 6}} {
		if c.Kind != c.kind || c.Severity != "critical" || c.State != "open" || len(c.Involved) != 1 || c.Involved[0] != (client.AlertInvolved{Agent: c.agent, Events: c.n}) || c.TimeToDetect < 0 || c.TimeToDetect > 60 || c.TimeToRespond != nil {
			t.Errorf("%+v", c.Alert)
		}
	}
	for _, e := range w.recorded("alert.open") { // neither was raised one too early
		if e.Reason != "11 access violations" && e.Reason != "6 injection attempts" || e.Severity != "warning" || !strings.HasPrefix(e.Actor, "rule:") {
			t.Errorf("%+v", e)
		}
	}
	eventually(t, 20*time.Second, "people are told", func() bool {
		return hook.about("11 access violations") == 1 && hook.about("6 injection attempts") == 1
	})

	if code, out, errs := w.command(nil, "status"); code != 0 || !strings.Contains(out, "2 alerts (sallyport alerts list)") {
		t.Errorf("%d %s%s", code, out, errs)
	}

	w.kill()
	w = launch(t, p)
	if again := alerts(2); again[0].ID != all[0].ID || again[1].ID != all[1].ID {
		t.Fatalf("before the crash %+v, after it %+v", all, again)
	}
	b := w.ann()
	b.open(w.admin + "/")
	b.see("11 access violations by reader")
	b.open(w.admin + "/security")
	b.see("INCIDENT 11 access violations")
	b.accessible("security")
	b.phone()
	b.fits("security")
	b.enter("#why-"+violations.ID, "I look at the prompt of reader")
	b.click(fmt.Sprintf("button[formaction=%q]", "/security/"+violations.ID+"/acknowledge"))
	b.see("ann looks after it since")
	if _, err := w.root.Kill(t.Context(), "reader", "it tries what it may not do"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the incident is contained", func() bool {
		a, err := w.root.Alert(t.Context(), violations.ID)
		return err == nil && a.State == "acknowledged" && a.AcknowledgedBy == "person:ann" && a.ContainedAt != nil && a.ContainedBy == "person:admin" && a.TimeToRespond != nil
	})
	b.open(w.admin + "/security")
	b.see("Contained by admin")
	if code, out, errs := w.command(nil, "alerts", "resolve", injections.ID, "--reason", "the record with the orders was removed"); code != 0 || !strings.Contains(out, "resolved with") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, _, errs := w.command(nil, "alerts", "resolve", injections.ID, "--reason", "once more"); code != 1 || !strings.Contains(errs, "The alert was resolved by") {
		t.Errorf("%d %s", code, errs)
	}
	if code, _, errs := w.command(nil, "alerts", "acknowledge", "alert_none"); code != 1 || !strings.Contains(errs, "sallyport alerts list") {
		t.Errorf("%d %s", code, errs)
	}
	if _, err := w.client(w.admin, w.tokenOf("carl", "viewer")).ResolveAlert(t.Context(), violations.ID, "I am nobody"); err == nil {
		t.Error("a viewer resolved an alert")
	}

	call(w.token("tester"), "crm_get", `{}`)
	s, err := w.root.Security(t.Context(), 24)
	if err != nil {
		t.Fatal(err)
	}
	if f := s.HighApprovalRate; f.Value == nil || *f.Value != 1 || f.Total != 1 || !*f.Met {
		t.Errorf("HIGH: %+v", f)
	}
	if f := s.AuditCompleteness; f.Value == nil || *f.Value != 1 || f.Total != 1 || !*f.Met {
		t.Errorf("completeness: %+v", f)
	}
	// carl was one of them
	if f := s.AccessViolationRate; f.Value == nil || f.Count < 12 || f.Total < 18 || *f.Met {
		t.Errorf("violations: %+v", f)
	}
	if f := s.MeanTimeToDetect; f.Value == nil || f.Count != 2 || !*f.Met {
		t.Errorf("time to detect: %+v", f)
	}
	if f := s.MeanTimeToRespond; f.Value == nil || f.Count != 2 || !*f.Met {
		t.Errorf("time to respond: %+v", f)
	}
	if f := s.InjectionDetectionRate; f.Value != nil || f.Met != nil {
		t.Errorf("detection without a verdict: %+v", f)
	}
	if s.OpenAlerts != 1 || s.UncontainedIncidents != 0 {
		t.Errorf("%+v", s)
	}
	hit := w.recorded("call")
	for _, e := range hit {
		if e.Event == "threat.hit" {
			b.open(w.admin + "/audit/screening")
			b.click(fmt.Sprintf(`form[action="/audit/%d/judge"] button[value="attack"]`, e.Index))
			b.see("0 of 1 judged")
			break
		}
	}
	b.open(w.admin + "/security")
	b.see("Injection attempts detected: 100 %")
	b.see("the record with the orders was removed")
	b.accessible("security-figures")
	if hook.about("11 access violations") != 1 || hook.about("6 injection attempts") != 1 {
		t.Error("people were told twice")
	}
	if code, out, _ := w.command(nil, "security"); code != 0 || !strings.Contains(out, "access violations") || !strings.Contains(out, "MISSED") {
		t.Errorf("%d %s", code, out)
	}
	w.sane()
}
