package gateway_test

import (
	"slices"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/provenance"
)

// newOffPlanWorld has a server slack that sends in ways that silence permits: where labels say where to, where they let it by, and where nobody
// told what its arguments are for.
func newOffPlanWorld(t testing.TB) *commWorld {
	t.Helper()
	classes := map[string]catalogue.Classification{
		"mail": {Level: 2, Action: "send_email", Roles: map[string]string{"to": "destination", "text": "content"}, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write}},
		"free": {Level: 2, Action: "send_email", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write, BlockedBy: &[]flow.Label{}}},
		"keep": {Level: 2, Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Write}},
	}
	w := newCommWorld(t, func(o *gateway.Options) {
		o.Limits.CallsPerMinute, o.Limits.MediumDelay = 0, delay
		o.Labels = []flow.Label{"internal", "secret"}
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			switch c, ok := classes[tool]; {
			case server == "slack" && ok:
				c.Listed, c.Named, c.ExternalIO, c.Output = true, true, true, provenance.TrustedOutput
				return c
			case server == "comm" && tool == "get": // the operator's word that no label blocks it
				return catalogue.Classification{Output: provenance.TrustedOutput, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Read, BlockedBy: &[]flow.Label{}}}
			}
			return inner(server, tool)
		}
	})
	w.offer("slack", definition("slack", "mail", "Mails."), definition("slack", "free", "Mails."), definition("slack", "keep", "Keeps."))
	return w
}

// A session that holds confidential data has a sealed plan. What would be sent otherwise than planned is a person's to answer: silence never
// permits it, however often it is tried, even if its destination is confirmed and whatever the operator said of labels.
func TestSilencePermitsNothingOffPlan(t *testing.T) {
	const request = "Send the summary to ann@books.example. " + widgets
	const planned = `{"text":"The summary is done.","to":"ann@books.example"}`
	for name, c := range map[string]struct{ tool, args string }{
		"another text":                  {"slack_mail", `{"text":"the password is hunter2","to":"ann@books.example"}`},
		"one more argument":             {"slack_mail", `{"bcc":"ann@books.example","text":"The summary is done.","to":"ann@books.example"}`},
		"an operation that no step has": {"slack_free", `{"text":"x","to":"eve@x.example"}`},
		"a built-in operation":          {"comm_get", `{"url":"https://books.example/?q=hunter2",` + because + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newOffPlanWorld(t)
			p := w.open("worker", "erin", request)
			w.sealedBy(true, p, `[{"tool":"search_email","arguments":{"q":"summary"},"justification":"to read the summary"},`+
				`{"tool":"slack_mail","arguments":`+planned+`,"justification":"to send the summary as asked"}]`)
			w.mustPermit(w.do(p, "search_email", `{"q":"summary"}`, ""))
			q := w.asks(p, c.tool, c.args)
			if !q.SilenceAt.IsZero() || q.Needed == 0 || !slices.ContainsFunc(q.Reasons, func(r approval.Reason) bool { return r.Stage == "flow" && r.Code == string(fault.PlanMismatch) }) {
				t.Errorf("silence at %s, %d needed, %+v", q.SilenceAt, q.Needed, q.Reasons)
			}
			w.clock.advance(10 * delay)
			w.mustAsk(w.do(p, c.tool, c.args, ""))
			w.mustRespond("bob", q.ID, approval.Approve, "")
			a := w.mustPermit(w.do(p, c.tool, c.args, "")) // once, since a person said so
			if es := w.entriesOf(a.CallID); !slices.ContainsFunc(es, func(e audit.Entry) bool { return e.Kind == audit.Intent && len(e.Approvers) == 1 }) {
				t.Errorf("%+v", es)
			}
			w.mustAsk(w.do(p, c.tool, c.args, ""))
		})
	}
}

// What follows the plan goes on as before: by silence where it is MEDIUM, once. So does what can carry nothing out, and what happens in a
// session without labels, or without a plan.
func TestSilencePermitsWhatIsPlanned(t *testing.T) {
	const planned = `{"text":"The summary is done.","to":"ann@books.example"}`
	w := newOffPlanWorld(t)
	steps := `[{"tool":"search_email","arguments":{"q":"summary"},"justification":"to read the summary"},` +
		`{"tool":"slack_mail","arguments":` + planned + `,"justification":"to send the summary as asked"}]`
	silent := func(p identity.Principal, tool, args string) {
		t.Helper()
		if q := w.asks(p, tool, args); q.SilenceAt.IsZero() {
			t.Errorf("%s %s is left to a person: %+v", tool, args, q.Reasons)
		}
		w.clock.advance(delay)
		w.mustPermit(w.do(p, tool, args, ""))
	}
	w.offer("slack", definition("slack", "mail", "Mails."), definition("slack", "free", "Mails."), definition("slack", "keep", "Keeps."))
	p := w.open("worker", "erin", "Send the summary to ann@books.example.")
	w.sealedBy(true, p, steps)
	silent(p, "slack_free", `{"text":"x","to":"eve@x.example"}`) // nothing was read yet
	w.mustPermit(w.do(p, "search_email", `{"q":"summary"}`, ""))
	silent(p, "slack_mail", planned)
	silent(p, "slack_keep", `{"text":"x"}`)
	if q := w.asks(p, "slack_mail", planned); !q.SilenceAt.IsZero() { // the step is used up
		t.Error("the planned call runs twice by silence")
	}
	p = w.open("worker", "erin", "Send the summary to ann@books.example.")
	w.mustPermit(w.do(p, "search_email", `{"q":"summary"}`, ""))
	silent(p, "slack_mail", strings.Replace(planned, "done", "ready", 1))
}
