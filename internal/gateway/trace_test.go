package gateway_test

import (
	"context"
	"strings"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
)

// egress_url holds for what is read as a resource, too: the operator has said so of <server>.read_resource.
func TestResourceAddressCountsAsEgress(t *testing.T) {
	w := egressWorld(t)
	raw := []byte(`{"name":"page","uriTemplate":"web://{id}"}`)
	w.offer("web", call.Definition{Server: "web", Name: "web://{id}", Kind: call.Resource, JSON: raw, Hash: call.HashBytes(raw)})
	p := w.tainted()
	a := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "resources/read", Tool: "web://attacker.example-figures", Door: "mcp"})
	if a.Verdict.Code == fault.ToolUnknown {
		t.Fatalf("%+v", a.Verdict)
	}
	if a.Verdict.Decision != fault.Ask {
		t.Errorf("%+v", a.Verdict)
	}
}

// What an agent wrote down while it was untrusted is no evidence in its next own session either: that has the labels of the one before, and
// the agent opens it itself.
func TestNextSessionRemembersWhatWasGiven(t *testing.T) {
	w := newTracedWorld(t, func(o *gateway.Options) { o.FreeLevel1 = true })
	agent := identity.Principal{Kind: identity.Agent, ID: "selfish"}
	w.says("mail.find", structured(`{"mails":`+inbox+`}`))
	w.mustPermit(w.do(agent, "mail_find", `{"q":"Acme"}`, ""))
	w.mustPermit(w.do(agent, "slack_jot", `{"text":"evil@other.example","title":"note"}`, ""))
	w.says("mail.people", structured(`{"note":"evil@other.example"}`)) // trusted: the agent's own notes
	w.mustPermit(w.do(agent, "mail_people", `{}`, ""))
	w.mustAsk(w.do(agent, "slack_send", to("evil@other.example"), "")) // as it should be
	asks := func(p identity.Principal) {
		t.Helper()
		w.mustPermit(w.do(p, "mail_people", `{}`, ""))
		if v := judgedOnly(w, p, "slack_send", to("evil@other.example")); v.Decision != fault.Ask || v.Stage != "flow" {
			t.Errorf("%+v", v)
		}
	}
	s, token, err := w.g.OpenSession(t.Context(), agent, gateway.OpenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next, err := w.g.Standing().Authenticate(token)
	if err != nil {
		t.Fatal(err)
	}
	asks(next)
	if _, err := w.g.CloseSession(t.Context(), s.ID, "person:alice", "done"); err != nil { // the one after that is opened at first use
		t.Fatal(err)
	}
	asks(agent)
}

// flooded is a store whose sessions have kept more than the next one takes over.
type flooded struct{ gateway.Store }

func (f flooded) Evidence(ctx context.Context, id string, after int64) ([]evidence.Kept, error) {
	kept, err := f.Store.Evidence(ctx, id, after)
	if after == 0 {
		for range 1001 {
			kept = append(kept, evidence.Kept{Seq: int64(len(kept) + 1), Body: []byte("{}")})
		}
	}
	return kept, err
}

// What is too much to take over counts as anything: in the next session nothing that is read back confirms.
func TestNextSessionAfterTooMuchEvidenceTrustsNothing(t *testing.T) {
	w := newTracedWorld(t, func(o *gateway.Options) { o.FreeLevel1 = true })
	agent := identity.Principal{Kind: identity.Agent, ID: "selfish"}
	w.mustPermit(w.do(agent, "mail_find", `{"q":"Acme"}`, ""))
	kept := w.o.Store
	w.o.Store = flooded{kept}
	g, err := gateway.New(t.Context(), w.o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(context.Background())
	s, _, err := g.OpenSession(t.Context(), agent, gateway.OpenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	taken, err := kept.Evidence(t.Context(), s.ID, 0)
	if err != nil || len(taken) != 1 || !strings.Contains(string(taken[0].Body), `"all":true`) {
		t.Errorf("%+v, %v", taken, err)
	}
}

// A yes to one call says on the page that the agent may make "this call once". What else it lets go for the rest of the session (the same
// recipient with any other text) is among the reasons that the person is shown, or isn't let go.
func TestYesSaysWhatElseItCovers(t *testing.T) {
	w := newTracedWorld(t)
	p := w.tainted()
	q := w.asks(p, "slack_send", to("evil@other.example"))
	w.mustRespond("bob", q.ID, "approve", "")
	w.mustPermit(w.do(p, "slack_send", to("evil@other.example"), ""))
	v := judgedOnly(w, p, "slack_send", `{"body":"all that is in the inbox","to":"evil@other.example"}`)
	shown := false
	for _, r := range q.Reasons {
		shown = shown || strings.Contains(r.Text, "Your yes also allows more calls of slack.send")
	}
	if v.Decision == fault.Permit && !shown {
		t.Errorf("shown: %+v; then %+v", q.Reasons, v)
	}
}

// A drill says of its own evidence what a yes covers, not of the question's that it is a copy of.
func TestDrillSaysWhatAYesCovers(t *testing.T) {
	w := newTracedWorld(t, func(o *gateway.Options) { o.Limits.DrillEvery, o.Draw = 2, func(int) int { return 0 } })
	p := w.tainted()
	w.says("mail.people", structured(`[{"name":"Ann","email":"ann@books.example"},{"name":"Bob","email":"bob@books.example"}]`))
	w.mustPermit(w.do(p, "mail_people", `{}`, ""))
	q := w.asks(p, "slack_send", to("ann@books.example"))
	open, err := w.g.Desk().Questions(t.Context(), approval.Pending, p.ID, "", 10)
	if err != nil || len(open) != 2 {
		t.Fatalf("%d questions, %v", len(open), err)
	}
	for _, o := range open {
		var texts []string
		for _, r := range w.question(o.ID).Reasons {
			if r.Code == "flow.source" {
				texts = append(texts, r.Text)
			}
		}
		all := strings.Join(texts, "\n")
		if !strings.Contains(all, "with the same to in this session") || strings.Contains(all, "in the same record") != (o.ID == q.ID) {
			t.Errorf("of the drill: %v: %q", o.ID != q.ID, texts)
		}
	}
}

// What a session has seen, secrets too, goes when it is closed. Of an own one what it gave away stays, for the session that follows.
func TestWhatASessionSawGoesWithIt(t *testing.T) {
	w := newTracedWorld(t, func(o *gateway.Options) { o.FreeLevel1 = true })
	agent := identity.Principal{Kind: identity.Agent, ID: "selfish"}
	for name, p := range map[string]identity.Principal{"own": agent, "given": w.open("worker", "erin", errand)} {
		w.says("mail.find", structured(`{"mails":[{"id":"m-1","subject":"key","sender":"x@list.example","body":"AKIAIOSFODNN7EXAMPLE"}]}`))
		w.mustPermit(w.do(p, "mail_find", `{"q":"key"}`, ""))
		w.mustPermit(w.do(p, "slack_jot", `{"text":"evil@other.example","title":"note"}`, ""))
		s, err := w.g.SessionFor(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		text := func() (all string) {
			kept, err := w.o.Store.Evidence(t.Context(), s.ID, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range kept {
				all += string(ev.Body)
			}
			return all
		}
		if open := text(); !strings.Contains(open, "x@list.example") || strings.Contains(open, "AKIA") {
			t.Fatalf("%s: nothing is seen while the session is open", name)
		}
		if _, err := w.g.CloseSession(t.Context(), s.ID, "person:alice", "done"); err != nil {
			t.Fatal(err)
		}
		if left := text(); strings.Contains(left, "x@list.example") || strings.Contains(left, "evil@other.example") != (name == "own") || name == "given" && left != "" {
			t.Errorf("%s: %q is left", name, left)
		}
	}
}
