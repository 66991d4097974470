package e2e

import (
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"sallyport.example/client"
)

// Kill -9 while a fetch that a person approved is in flight: after the restart its outcome is unknown, and neither the declaration nor the
// approval is good for another call.
func TestKill9DuringAFetch(t *testing.T) {
	site := newWebsite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stall" {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "plain words")
	})
	p := newPlace(t, people+opens(site.url)+plenty+"operations: {comm.fetch: {risk: HIGH}}\n")
	w := launch(t, p)
	for _, door := range doors {
		alice := w.person("alice", "approver")
		v := w.visit(door, "tester")
		before := len(site.all())
		approve := func(path string) *client.DeclareAnswer {
			t.Helper()
			d := v.declare(t, "comm.fetch", map[string]any{"url": site.url + path})
			q, err := alice.Approval(t.Context(), d.ApprovalID)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := alice.Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil {
				t.Fatal(err)
			}
			return d
		}
		stalls, waits := approve("/stall"), approve("/later")
		ended := make(chan got, 1)
		ctx := t.Context()
		go func() {
			g, _ := v.try(ctx, "comm_fetch", map[string]any{"declaration_id": stalls.DeclarationID}) // the gateway dies under it
			ended <- g
		}()
		eventually(t, 10*time.Second, "the fetch is in flight", func() bool { return len(site.all()) > before })
		w.kill()
		report := p.verify(t)
		if len(report.Unknown) != 1 {
			t.Errorf("%s: intents without an outcome: %v", door, report.Unknown)
		}
		if code, out, errs := cli(t, p, nil, "audit", "verify", "--data", p.data); code != 0 {
			t.Errorf("%s: audit verify: %d %s%s", door, code, out, errs)
		}

		w = launch(t, p)
		if g := <-ended; g.ok() {
			t.Errorf("%s: it was answered: %+v", door, g)
		}
		intents := w.entriesOf(v.session, func(e client.Entry) bool { return e.Kind == "intent" })
		outcomes := w.entriesOf(v.session, isOutcome)
		if len(intents) != 1 || len(outcomes) != 1 || outcomes[0].CallID != intents[0].CallID || outcomes[0].Decision != "unknown" {
			t.Fatalf("%s: %s %s", door, show(intents), show(outcomes))
		}
		v = w.resume(door, v.session, v.token)
		alice = w.person("alice", "approver")
		g := v.declared(t, "comm_fetch", stalls.DeclarationID)
		refusal(t, g, "declaration.invalid")
		if d, err := v.http.Declaration(t.Context(), v.session, stalls.DeclarationID); err != nil || d.State != "spent" || d.SpentBy != intents[0].CallID {
			t.Errorf("%s: %+v %v", door, d, err)
		}
		if a, err := alice.Approval(t.Context(), stalls.ApprovalID); err != nil || a.State != "spent" {
			t.Errorf("%s: %+v %v", door, a, err)
		}
		if o, err := v.http.Outcome(t.Context(), v.session, intents[0].CallID, 0); err != nil || o.State != "unknown" {
			t.Errorf("%s: asked what became of it: %+v %v", door, o, err)
		}
		// What was approved and not used is as good as before, unless the lost fetch could say something before it was lost: then the session
		// holds a label that the approver was not shown.
		want := []string{"GET /stall"}
		if g = v.declared(t, "comm_fetch", waits.DeclarationID); slices.Contains(v.held(t), "untrusted") && !g.ok() {
			refusal(t, g, "approval.required")
		} else {
			permit(t, v, g)
			want = append(want, "GET /later")
		}
		if seen := site.all()[before:]; !slices.Equal(seen, want) {
			t.Errorf("%s: the server was asked %q", door, seen)
		}
	}
	w.close(t)
}
