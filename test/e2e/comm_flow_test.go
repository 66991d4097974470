package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/guard"
)

// code is the code of a refusal on the people's side.
func code(err error) string {
	var p *client.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// The flow of source 000 as it stands there: the agent declares in the planning phase, the governance asks a person, the person approves
// what the digest names, the execution phase runs it once, the result is attributed and fenced, and the log has all of it.
func TestDeclareApproveExecuteAttributeFence(t *testing.T) {
	site := newWebsite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/start" {
			http.Redirect(w, r, "/final?"+r.URL.RawQuery, http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte("<title>Prices</title><p>Product X costs 49 euros.</p>"))
	})
	w := start(t, people+opens(site.url)+plenty+"operations: {comm.fetch: {risk: HIGH}}\n", declare("planner", "operator", "planning", []string{"*"}, []string{"*"}))
	alice, bob, vera := w.person("alice", "approver"), w.person("bob", "approver"), w.person("vera", "viewer")
	ctx := t.Context()
	for i, door := range doors {
		t.Run(door, func(t *testing.T) {
			page := string(rune('a' + i))
			v := w.visit(door, "planner")
			before := len(site.all())

			// Declare.
			d := v.declare(t, "comm.fetch", map[string]any{"url": site.url + "/start?" + page})
			if d.State != "pending" || d.Verdict.Decision != "ask" || d.ApprovalID == "" || len(d.Digest) != 64 {
				t.Fatalf("declared: %+v", d)
			}
			refusal(t, v.declared(t, "comm_fetch", d.DeclarationID), "phase.blocked")

			// Approve: what is shown is what was declared, and only who may answer answers, under the digest that was shown.
			page1, err := alice.Approvals(ctx, client.ApprovalQuery{State: "pending", Session: v.session})
			if err != nil || len(page1.Approvals) != 1 {
				t.Fatalf("%+v %v", page1, err)
			}
			q := page1.Approvals[0]
			var shown client.Justification
			if err := json.Unmarshal(q.Justification, &shown); err != nil || shown != why || q.DeclarationID != d.DeclarationID || q.Requester != "bob" ||
				q.Risk != "HIGH" || q.Operation != "comm.fetch" || !strings.Contains(string(q.Arguments), "/start?"+page) || q.ApprovalID != d.ApprovalID {
				t.Errorf("shown: %+v %v", q, err)
			}
			for who, c := range map[string]*client.Client{"the requester": bob, "a viewer": vera, "who opened the session": w.root} {
				if a, err := c.Approve(ctx, q.ApprovalID, q.Digest, ""); code(err) != "role.missing" {
					t.Errorf("%s approves: %+v %v", who, a, err)
				}
			}
			if _, err := alice.Approve(ctx, q.ApprovalID, strings.Repeat("0", 64), ""); code(err) != "approval.mismatch" {
				t.Errorf("another digest: %v", err)
			}
			if g := v.declared(t, "comm_fetch", d.DeclarationID); g.verdict.Code != "phase.blocked" {
				t.Errorf("in planning: %+v", g.verdict)
			}
			if a, err := alice.Approve(ctx, q.ApprovalID, q.Digest, "fine"); err != nil || a.State != "approved" {
				t.Fatalf("approve: %+v %v", a, err)
			}
			refusal(t, v.declared(t, "comm_fetch", d.DeclarationID), "phase.blocked")
			if _, err := w.root.SetPhase(ctx, v.session, "execution", "the plan is good"); err != nil {
				t.Fatal(err)
			}
			if n := len(site.all()); n != before {
				t.Fatalf("the server was asked before execution: %q", site.all()[before:])
			}

			// Execute, once, and only what was approved.
			refusal(t, v.call(t, "comm_fetch", map[string]any{"declaration_id": d.DeclarationID, "url": site.url + "/start?other"}), "approval.mismatch")
			refusal(t, v.call(t, "comm_search", map[string]any{"declaration_id": d.DeclarationID}), "declaration.invalid")
			other := w.visit(door, "planner")
			if _, err := w.root.SetPhase(ctx, other.session, "execution", "test"); err != nil {
				t.Fatal(err)
			}
			refusal(t, other.declared(t, "comm_fetch", d.DeclarationID), "declaration.invalid")
			g := v.declared(t, "comm_fetch", d.DeclarationID)
			permit(t, v, g)
			if seen := site.all()[before:]; !slices.Equal(seen, []string{"GET /start?" + page, "GET /final?" + page}) {
				t.Errorf("the server was asked %q", seen)
			}

			// Attribute and fence.
			final := site.url + "/final?" + page
			if g.meta.Source != final || g.meta.Declaration != d.Digest || g.meta.Operation != "comm.fetch" || g.meta.Attribution != "CommunicationOS (fetch) in session "+v.session ||
				time.Since(g.meta.Timestamp) > time.Minute {
				t.Errorf("metadata %s", g.rawMeta)
			}
			wrapped, err := guard.ParseWrapped(g.fenced())
			if err != nil || wrapped.Header().Source != final {
				t.Fatalf("fence: %v %+v", err, wrapped.Header())
			}
			if !strings.Contains(g.fenced(), guard.TrustLevel) || !strings.Contains(g.text(t), "Product X costs 49 euros.") {
				t.Errorf("%s", g.fenced())
			}
			if !slices.Contains(v.held(t), "untrusted") {
				t.Errorf("labels %q", v.held(t))
			}

			// A second use is refused, and reaches nobody.
			refusal(t, v.declared(t, "comm_fetch", d.DeclarationID), "declaration.invalid")
			if was, err := v.http.Declaration(ctx, v.session, d.DeclarationID); err != nil || was.State != "spent" || was.SpentBy != g.callID {
				t.Errorf("%+v %v", was, err)
			}
			if a, err := alice.Approval(ctx, q.ApprovalID); err != nil || a.State != "spent" || a.SpentBy != g.callID {
				t.Errorf("%+v %v", a, err)
			}
			if n := len(site.all()) - before; n != 2 {
				t.Errorf("%d requests", n)
			}

			// The log has the whole chain, in order.
			var at []int64
			for _, step := range []struct {
				what string
				is   func(client.Entry) bool
			}{
				{"the declaration", func(e client.Entry) bool {
					return e.Action == "declare" && e.Decision == "ask" && detail(t, e).Declaration.Digest == d.Digest && detail(t, e).ApprovalID == q.ApprovalID
				}},
				{"the approval", func(e client.Entry) bool {
					return e.Action == "approval.approve" && e.Actor == "person:alice" && slices.Equal(e.Approvers, []string{"alice"}) && detail(t, e).ApprovalID == q.ApprovalID
				}},
				{"the intent", func(e client.Entry) bool {
					x := detail(t, e)
					return e.Kind == "intent" && e.CallID == g.callID && e.Decision == "permit" && e.Risk == "HIGH" && slices.Equal(e.Approvers, []string{"alice"}) && e.Requester == "bob" &&
						e.Agent == "planner" && x.ApprovalID == q.ApprovalID && x.Declaration.Digest == d.Digest && x.Declaration.ID == d.DeclarationID && x.Declaration.Justification == why &&
						strings.Contains(string(e.Arguments.Shown), "/start?"+page)
				}},
				{"the outcome", func(e client.Entry) bool {
					return e.Kind == "outcome" && e.CallID == g.callID && e.Decision == "ok" && slices.Contains(e.Labels, "untrusted") && e.Result != nil &&
						e.Result.SHA256 == g.meta.ContentSHA256 && same(t, e.Attribution, g.rawMeta)
				}},
				{"the refusal of the second use", func(e client.Entry) bool {
					return e.Kind == "decision" && e.Action == "call" && e.Code == "declaration.invalid" && e.Decision == "deny" && strings.Contains(e.Reason, g.callID)
				}},
			} {
				found := w.entriesOf(v.session, step.is)
				if len(found) != 1 {
					t.Fatalf("%s is in the log %d times: %s", step.what, len(found), show(w.entriesOf(v.session, func(client.Entry) bool { return true })))
				}
				at = append(at, found[0].Index)
			}
			if !slices.IsSorted(at) {
				t.Errorf("the chain is out of order: %v", at)
			}
		})
	}
	w.close(t)
}

// same tells whether two pieces of JSON say the same.
func same(t testing.TB, a, b json.RawMessage) bool {
	t.Helper()
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, _ := json.Marshal(x) // maps that were JSON
	q, _ := json.Marshal(y)
	return string(p) == string(q)
}

func show(v any) string {
	b, _ := json.MarshalIndent(v, "", " ") // for people
	return string(b)
}

// The other ways that a declaration ends.
func TestDeclarationsEnd(t *testing.T) {
	site := newWebsite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("plain")) })
	away := newWebsite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("plain")) })
	config := people + plenty + "comm: {allowed_domains: [\"" + strings.TrimPrefix(site.url, "http://") + "\", \"" + strings.TrimPrefix(away.url, "http://") + "\"], protocols: [http], exec: {allow: [cat]}}\n" +
		"operations: {comm.fetch: {risk: HIGH}, comm.exec: {risk: CRITICAL}}\n"
	w := start(t, config)
	alice, bob, carol := w.person("alice", "approver"), w.person("bob", "approver"), w.person("carol", "approver")
	ctx := t.Context()
	answer := func(t *testing.T, c *client.Client, id, decision string) {
		t.Helper()
		a, err := c.Approval(ctx, id)
		if err == nil {
			switch decision {
			case "approve":
				_, err = c.Approve(ctx, id, a.Digest, "")
			case "reject":
				_, err = c.Reject(ctx, id, a.Digest, "not this site")
			case "defer":
				_, err = c.Defer(ctx, id, a.Digest, time.Time{})
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", decision, err)
		}
	}
	for _, door := range doors {
		t.Run("rejected, "+door, func(t *testing.T) {
			v := w.visit(door, "tester")
			d := v.declare(t, "comm.fetch", map[string]any{"url": site.url + "/rejected"})
			refusal(t, v.declared(t, "comm_fetch", d.DeclarationID), "approval.required")
			answer(t, alice, d.ApprovalID, "reject")
			g := v.declared(t, "comm_fetch", d.DeclarationID)
			refusal(t, g, "approval.rejected")
			if !strings.Contains(g.verdict.Reason, "not this site") {
				t.Errorf("the agent is not told why: %q", g.verdict.Reason)
			}
			if _, err := alice.Approve(ctx, d.ApprovalID, d.Digest, ""); err == nil {
				t.Error("approved after the rejection")
			}
		})
		t.Run("asked inline, "+door, func(t *testing.T) {
			v := w.visit(door, "tester")
			before := len(site.all())
			url := site.url + "/inline/" + v.session
			g := v.fetch(t, url)
			refusal(t, g, "approval.required")
			if g.verdict.Decision != "ask" || g.verdict.ApprovalID == nil {
				t.Fatalf("%+v", g.verdict)
			}
			again := v.fetch(t, url)
			if again.verdict.ApprovalID == nil || *again.verdict.ApprovalID != *g.verdict.ApprovalID {
				t.Errorf("asked twice: %+v", again.verdict)
			}
			answer(t, alice, *g.verdict.ApprovalID, "defer")
			refusal(t, v.fetch(t, url), "approval.required")
			answer(t, alice, *g.verdict.ApprovalID, "approve")
			permit(t, v, v.fetch(t, url))
			next := v.fetch(t, url)
			refusal(t, next, "approval.required")
			if next.verdict.ApprovalID == nil || *next.verdict.ApprovalID == *g.verdict.ApprovalID {
				t.Errorf("one approval let two calls run: %+v", next.verdict)
			}
			if n := len(site.all()) - before; n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
	t.Run("batch", func(t *testing.T) {
		v := w.visit("http", "tester")
		first := v.declare(t, "comm.fetch", map[string]any{"url": site.url + "/first"}) // so that no label rises under the batch
		answer(t, alice, first.ApprovalID, "approve")
		permit(t, v, v.declared(t, "comm_fetch", first.DeclarationID))
		var refs []client.ApprovalRef
		var all []*client.DeclareAnswer
		for _, path := range []string{"/1", "/2", "/3"} {
			d := v.declare(t, "comm.fetch", map[string]any{"url": site.url + path})
			q, err := alice.Approval(ctx, d.ApprovalID)
			if err != nil || q.Similar == "" {
				t.Fatalf("%+v %v", q, err)
			}
			refs, all = append(refs, client.ApprovalRef{ApprovalID: q.ApprovalID, Digest: q.Digest}), append(all, d)
		}
		odd := v.declare(t, "comm.fetch", map[string]any{"url": away.url + "/4"})
		q, err := alice.Approval(ctx, odd.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := alice.RespondTogether(ctx, "approve", "", append(slices.Clone(refs), client.ApprovalRef{ApprovalID: q.ApprovalID, Digest: q.Digest})); code(err) != "conflict" {
			t.Errorf("what goes elsewhere is approved along: %v", err)
		}
		if done, err := bob.RespondTogether(ctx, "approve", "", refs); err == nil && slices.ContainsFunc(done, func(b client.Batched) bool { return b.Code != "role.missing" }) {
			t.Errorf("the requester approves in a batch: %+v", done)
		}
		wrong := slices.Clone(refs)
		wrong[1].Digest = strings.Repeat("0", 64)
		done, err := alice.RespondTogether(ctx, "approve", "", wrong)
		if err != nil || len(done) != 3 || done[0].Code != "" || done[1].Code != "approval.mismatch" || done[2].Code != "" {
			t.Errorf("batch: %+v %v", done, err)
		}
		permit(t, v, v.declared(t, "comm_fetch", all[0].DeclarationID))
		refusal(t, v.declared(t, "comm_fetch", all[1].DeclarationID), "approval.required")
		permit(t, v, v.declared(t, "comm_fetch", all[2].DeclarationID))
		refusal(t, v.declared(t, "comm_fetch", all[2].DeclarationID), "declaration.invalid")
		refusal(t, v.declared(t, "comm_fetch", odd.DeclarationID), "approval.required")
	})
	t.Run("two people for CRITICAL", func(t *testing.T) {
		v := w.visit("http", "tester")
		d := v.declare(t, "comm.exec", map[string]any{"argv": []string{"cat"}, "stdin": "critical"})
		q, err := alice.Approval(ctx, d.ApprovalID)
		if err != nil || q.Needed != 2 || q.Risk != "CRITICAL" {
			t.Fatalf("%+v %v", q, err)
		}
		answer(t, alice, d.ApprovalID, "approve")
		refusal(t, v.declared(t, "comm_exec", d.DeclarationID), "approval.required")
		if a, err := alice.Approve(ctx, d.ApprovalID, q.Digest, "once more"); err == nil && a.State == "approved" {
			t.Error("one person is two")
		}
		if _, err := bob.Approve(ctx, d.ApprovalID, q.Digest, ""); code(err) != "role.missing" {
			t.Errorf("the requester is the second: %v", err)
		}
		answer(t, carol, d.ApprovalID, "approve")
		g := v.declared(t, "comm_exec", d.DeclarationID)
		if g.verdict.Code == "sandbox.unavailable" {
			requireTool(t, false, "a sandbox")
		}
		permit(t, v, g)
		found := w.entriesOf(v.session, func(e client.Entry) bool { return e.Kind == "intent" && e.CallID == g.callID })
		if len(found) != 1 || !slices.Equal(slices.Sorted(slices.Values(found[0].Approvers)), []string{"alice", "carol"}) {
			t.Errorf("%s", show(found))
		}
	})
	w.close(t)
}

// A declaration, and a question, is good for as long as approvals.expires says.
func TestDeclarationsExpire(t *testing.T) {
	t.Parallel() // it mostly waits
	site := newWebsite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("plain")) })
	w := start(t, people+opens(site.url)+plenty+"operations: {comm.fetch: {risk: HIGH}}\napprovals: {expires: 5s, hold: 10ms, medium_delay: 5ms}\n")
	alice := w.person("alice", "approver")
	v := w.visit("http", "tester")
	for _, approved := range []bool{true, false} {
		d := v.declare(t, "comm.fetch", map[string]any{"url": site.url + "/late"})
		q, err := alice.Approval(t.Context(), d.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		if approved {
			if _, err := alice.Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, 30*time.Second, "the declaration expires", func() bool { return !time.Now().Before(d.ExpiresAt) })
		refusal(t, v.declared(t, "comm_fetch", d.DeclarationID), "approval.expired")
		if _, err := alice.Approve(t.Context(), q.ApprovalID, q.Digest, ""); code(err) != "approval.expired" {
			t.Errorf("approved too late: %v", err)
		}
	}
	if len(site.all()) != 0 {
		t.Errorf("the server was asked: %q", site.all())
	}
	w.close(t)
}

// An approval is for the labels that the approver was shown. Where one has risen since, the same person is asked again about the same
// call, and when they say yes again, it runs: the declaration is as good as it was.
func TestApprovalIsAskedAgainWhereALabelRose(t *testing.T) {
	site := newWebsite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("plain")) })
	w := start(t, people+opens(site.url)+plenty+"operations: {comm.fetch: {risk: HIGH}}\n")
	alice := w.person("alice", "approver")
	approve := func(t *testing.T, id string) {
		t.Helper()
		q, err := alice.Approval(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := alice.Approve(t.Context(), id, q.Digest, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, door := range doors {
		t.Run(door, func(t *testing.T) {
			v := w.visit(door, "tester")
			first, second := v.declare(t, "comm.fetch", map[string]any{"url": site.url + "/1"}), v.declare(t, "comm.fetch", map[string]any{"url": site.url + "/2"})
			approve(t, first.ApprovalID)
			approve(t, second.ApprovalID)
			permit(t, v, v.declared(t, "comm_fetch", first.DeclarationID)) // from here on the session is untrusted
			g := v.declared(t, "comm_fetch", second.DeclarationID)
			refusal(t, g, "approval.required")
			if g.verdict.ApprovalID == nil || *g.verdict.ApprovalID == second.ApprovalID {
				t.Fatalf("not asked again: %+v", g.verdict)
			}
			approve(t, *g.verdict.ApprovalID)
			permit(t, v, v.declared(t, "comm_fetch", second.DeclarationID))
		})
	}
	w.close(t)
}
