package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/provenance"
)

// The record names as approvers who approved.
func TestRecordNamesAsApproversWhoApproved(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if err := w.respond("carol", &id, approval.Deferral, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	a := w.mustPermit(w.do(p, "comm_send", sendPage, ""))
	if es := w.entriesOf(a.CallID); !slices.Equal(es[0].Approvers, []string{"bob"}) {
		t.Errorf("the intent of a HIGH call says that %v approved", es[0].Approvers)
	}
	id = w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if err := w.respond("carol", &id, approval.Reject, "no"); err != nil {
		t.Fatal(err)
	}
	for _, e := range w.entries() {
		if e.Action == "approval.reject" && len(e.Approvers) > 0 {
			t.Errorf("a rejection has the approvers %v", e.Approvers)
		}
	}
}

// A refusal is on record, however much is wrong with the call.
func TestRefusalWithManyProblemsIsOnRecord(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, `"x%d":1,`, i)
	}
	a := w.do(p, "comm_get", `{"url":"https://example.com/page","justification":{`+strings.TrimSuffix(b.String(), ",")+`}}`, "")
	if a.Verdict.Code != fault.DeclarationInvalid {
		t.Errorf("refused for %s: %.100s", a.Verdict.Code, a.Verdict.Reason)
	}
	if es := w.entriesOf(a.CallID); len(es) != 1 {
		t.Errorf("%d entries of the refused call", len(es))
	}
}

// What arguments carry is on record in a size that the record takes.
func TestCarriedSourcesFitTheRecord(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "x")
	var all strings.Builder
	for i := range 16 {
		wrapped, err := guard.Fence{}.Wrap(fmt.Sprintf("page %d", i), fmt.Sprintf("https://example.com/%d?", i)+strings.Repeat("a", 8000))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(wrapped.ForModel() + "\n")
	}
	quoted, _ := json.Marshal(all.String())
	if a := w.do(p, "think", fmt.Sprintf(`{"text":%s}`, quoted), ""); a.Verdict.Decision != fault.Permit {
		t.Errorf("a harmless call that quotes 16 pages: %s %s", a.Verdict.Code, a.Verdict.Reason)
	}
}

// Every refusal is on record, of people too (TH-4).
func TestRefusedAnswersOfPeopleAreOnRecord(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "carol", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if err := w.respond("carol", &id, approval.Approve, ""); !fault.Is(err, fault.RoleMissing) {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(w.entries(), func(e audit.Entry) bool { return e.Actor == "person:carol" && e.Decision == "deny" }) {
		t.Error("carol tried to approve her own request, and nobody will ever know")
	}
}

// A secret in an address is not in the log, wherever the address stands.
func TestSecretsInSourcesStayOutOfTheLog(t *testing.T) {
	w := newCommWorld(t)
	const token = "ghp_x7Qm2Zk9Lw4Rt8Vb3Nc6Yd1Hf5Js0Pg7Ua2e"
	w.cmd.run = func(context.Context, catalogue.CommandRun) (catalogue.Brought, error) {
		return catalogue.Brought{Source: "https://example.com/?access_token=" + token, Blocks: []catalogue.Block{{Text: "the page"}}}, nil
	}
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	a := w.mustPermit(w.do(p, "comm_get", `{"url":"https://example.com/?access_token=`+token+`",`+because+`}`, ""))
	all, err := json.Marshal(w.entriesOf(a.CallID))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(all), "redacted:") {
		t.Fatal("the detector doesn't know the secret, so the test says nothing")
	}
	if i := strings.Index(string(all), token); i >= 0 {
		t.Errorf("the secret is in the log: …%s", all[max(0, i-120):i+10])
	}
}

// What is read is what the call is about: it is on record before it is read, and two different reads are not one call.
func TestWhatIsReadIsOnRecordBefore(t *testing.T) {
	w := newWorld(t, shy(catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.TrustedOutput}))
	offerTemplate(w)
	var intents []audit.Entry
	for _, uri := range []string{"db://rows/harmless", "db://rows/the-crown-jewels"} {
		a := w.g.Call(t.Context(), gateway.Request{Principal: as("worker"), Method: "resources/read", Tool: uri, Door: "mcp"})
		if a.Verdict.Decision != fault.Permit {
			t.Fatalf("%+v", a.Verdict)
		}
		es := w.entriesOf(a.CallID)
		intents = append(intents, es[0])
		all, err := json.Marshal(es)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(all), uri) {
			t.Errorf("nothing in the log says that %s was read: %s", uri, all)
		}
	}
	if intents[0].Digest == intents[1].Digest {
		t.Error("reads of two different resources have one digest")
	}
}

// A long URI must not leave an outcome that can never be written.
func TestLongURIDoesNotLockTheSession(t *testing.T) {
	w := newWorld(t, shy(catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read, Untrusted: true}, Output: provenance.UntrustedOutput}))
	offerTemplate(w)
	uri := "db://rows/" + strings.Repeat("x", 70_000)
	w.up.answers["shy."] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		return json.RawMessage(`{"contents":[{"uri":"db://rows/x","text":"hello"}]}`), nil
	}
	a := w.g.Call(t.Context(), gateway.Request{Principal: as("worker"), Method: "resources/read", Tool: uri, Door: "mcp"})
	t.Logf("the read: %s %s", a.Verdict.Decision, a.Verdict.Code)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) { // what is owed is written behind the answer
		if a = w.call("worker", "think"); a.Verdict.Decision == fault.Permit {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the session is locked: %s", a.Verdict.Code)
		}
	}
}

// What goes out beside the arguments is on record too.
func TestInputResponsesAreOnRecord(t *testing.T) {
	w := newWorld(t)
	var got string
	w.up.answers["web.web_search"] = func(_ context.Context, _ json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
		got = string(x.InputResponses)
		return text("ok"), nil
	}
	send := func(payload string) (gateway.Answer, []audit.Entry) {
		a := w.g.Call(t.Context(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "web_search", Door: "mcp",
			Exchange: call.Exchange{InputResponses: json.RawMessage(payload)}})
		return a, w.entriesOf(a.CallID)
	}
	_, one := send(`{"a":{"text":"first"}}`)
	_, two := send(`{"a":{"text":"something else altogether"}}`)
	if got != "" && one[0].Digest == two[0].Digest && one[0].Arguments.SHA256 == two[0].Arguments.SHA256 {
		t.Errorf("two calls that sent different data out have the same digest and arguments on record; the server got %s", got)
	}
}

// What was asked and answered is on record with the amount that it was about, not only what ran.
func TestEntriesOfQuestionsHaveTheAmount(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_pay", `{"sum":500,"to":"acme"}`)
	w.mustRespond("bob", q.ID, approval.Reject, "no")
	for _, e := range w.entries() {
		if (e.Action == "approval.ask" || e.Action == "approval.reject") && e.Amount != "500 USD" {
			t.Errorf("%s (%s): amount %q", e.Action, e.Risk, e.Amount)
		}
	}
}
