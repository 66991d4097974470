package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/policy"
)

// What one operation has sent to a destination says nothing of another: a name that was noted is no address that was mailed.
func TestDestinationOfAnotherOperationIsNotKnown(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "slack" && tool == "mail" {
				c.Roles = map[string]string{"to": "destination"}
			}
			return c
		}
	})
	p := w.open("worker", "erin", widgets)
	const mallory = `{"to":"mallory@evil.example"}`
	w.is(w.asks(as("selfish"), "slack_mail", mallory), "HIGH", policy.ReasonAction, policy.ReasonFirstDestination)
	if !w.silentlyRuns(p, "slack_send", mallory, "") { // LOW, first use: MEDIUM, by silence
		t.Fatal("set-up: the first use of a LOW operation runs by silence")
	}
	if q := w.asks(p, "slack_mail", mallory); q.Risk != "HIGH" {
		t.Errorf("the first e-mail ever to mallory is %s for %v: another operation had the same word as a destination", q.Risk, codes(q))
	}
}

// A tier that asks from CRITICAL leaves HIGH to a person all the same (HI-2): it is not approved by rule, and not an internal error.
func TestTierThatAsksFromCriticalLeavesHighToAPerson(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		d, _ := o.Agents.Get("worker")
		d.TrustTier = "bold"
		o.Tiers["bold"] = gateway.Tier{AskFrom: policy.Critical}
	})
	p := w.open("worker", "erin", widgets)
	d, err := w.declare(p, "comm.send", getPage)
	if err != nil || d.Verdict.Decision != fault.Ask {
		t.Errorf("a HIGH declaration is %s by rule: %+v, %v", d.State, d.Verdict, err)
	}
	if a := w.do(p, "comm_send", `{"url":"https://example.com/other",`+because+`}`, ""); a.Verdict.Code != fault.ApprovalRequired {
		t.Errorf("a HIGH call: %s %s", a.Verdict.Code, a.Verdict.Reason)
	}
}

// What people said of a destination is not hidden behind what nobody answered.
func TestEarlierNoIsNotPushedOut(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "slack" && tool == "mail" {
				c.Roles = map[string]string{"to": "destination"}
			}
			return c
		}
	})
	p := w.open("worker", "erin", widgets)
	const to = `"to":"mallory@evil.example"`
	no := w.asks(p, "slack_pay", `{"sum":1,`+to+`}`)
	w.mustRespond("bob", no.ID, approval.Reject, "that is a fraud")
	for i := range 6 { // nobody answers any of them
		w.asks(p, "slack_mail", fmt.Sprintf(`{"n":%d,%s}`, i, to))
	}
	q := w.asks(p, "slack_pay", `{"sum":2,`+to+`}`)
	for _, e := range q.Earlier {
		if e.State == approval.Rejected {
			return
		}
	}
	t.Errorf("bob's no is not among the %d earlier decisions that are shown: %+v", len(q.Earlier), q.Earlier)
}

// A declaration is rated with what its parameters carry, as the call will be.
func TestDeclarationIsRatedWithWhatItCarries(t *testing.T) {
	w := newPeopleWorld(t)
	reader, writer := w.open("worker", "erin", widgets), w.open("worker", "erin", widgets)
	a := w.mustPermit(w.do(reader, "web_search", `{}`, ""))
	var result struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(a.Result, &result); err != nil || len(result.Content) == 0 || !strings.Contains(result.Content[0].Text, "UNTRUSTED") {
		t.Fatalf("set-up: %s", a.Result)
	}
	quoted, _ := json.Marshal(result.Content[0].Text)
	d, err := w.declare(writer, "slack.mail", `{"text":`+string(quoted)+`}`)
	if err != nil {
		t.Fatal(err)
	}
	other := w.open("worker", "erin", widgets)
	w.is(w.asks(other, "slack_mail", `{"text":`+string(quoted)+`}`), "HIGH", policy.ReasonAction, policy.ReasonUntrusted) // so is the call
	kept, err := w.g.Declaration(t.Context(), writer, "", d.DeclarationID)
	if err != nil || kept.Risk != "HIGH" || d.Verdict.Decision != fault.Ask {
		t.Errorf("an e-mail of untrusted text is declared as %s and %s by rule (%v)", kept.Risk, kept.State, err)
	}
}

// Nothing that did not run makes a destination known: not a check, not a declaration, not a question that expired, was put aside or changed,
// and not a read.
func TestOnlyWhatRanMakesADestinationKnown(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	const to = `{"to":"mallory"}`
	first := func(after string) {
		t.Helper()
		q := w.asks(p, "slack_send", `{"to":"mallory","after":"`+after+`"}`)
		if q.Risk != "MEDIUM" || len(codes(q)) != 1 || codes(q)[0] != policy.ReasonFirstDestination {
			t.Errorf("after %s it is %s for %v", after, q.Risk, codes(q))
		}
	}
	if v := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_send", Arguments: json.RawMessage(to), Door: "http", DryRun: true}); v.Verdict.Decision != fault.Ask {
		t.Fatalf("%+v", v.Verdict)
	}
	first("a check")
	w.mustDeclare(p, "slack.send", to, fault.Permit)
	first("a declaration")
	q := w.asks(p, "slack_send", to)
	w.mustModify("bob", q.ID, `{"to":"nobody"}`)
	first("a question that was changed")
	q = w.asks(p, "slack_send", `{"to":"mallory","x":1}`)
	w.mustRespond("bob", q.ID, approval.Approve, "")
	w.clock.advance(time.Hour)
	first("an approval that expired unused")
	w.quarantine("worker")
	w.mustRefuse(w.do(p, "slack_send", to, ""), fault.AgentQuarantined)
	if err := w.g.Standing().Restore(t.Context(), "worker", "it is all right", "person:alice"); err != nil {
		t.Fatal(err)
	}
	first("a refusal")
}

// The tier says from where a person decides on what could be left to rules: HIGH never could (HI-2).
func TestAskFromCriticalLeavesHighToAPerson(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		d, _ := o.Agents.Get("worker")
		d.TrustTier = "bold"
		o.Tiers["bold"] = gateway.Tier{AskFrom: policy.Critical}
	})
	p := w.open("worker", "erin", widgets)
	w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if d := w.mustDeclare(p, "comm.send", `{"url":"https://example.com/2"}`, fault.Ask); d.ApprovalID == "" {
		t.Errorf("HIGH is approved by rule: %+v", d)
	}
}
