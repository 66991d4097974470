package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
)

// The eleventh external request of a minute is refused; what does not reach out is not counted, and a refused one costs nothing more.
func TestExternalRequestsPerMinute(t *testing.T) {
	site := newWebsite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "plain") })
	trusted := strings.Replace(declaration("trusted"), "mode: operator", "mode: operator\ntrustTier: trusted", 1)
	w := start(t, opens(site.url), declaration("tester"), trusted)
	for _, door := range doors {
		t.Run(door, func(t *testing.T) {
			v := w.visit(door, "tester")
			before := len(site.all())
			for i := range 10 {
				permit(t, v, v.fetch(t, fmt.Sprintf("%s/%d", site.url, i)))
				permit(t, v, v.ask(t, "comm_list_files", map[string]any{}))
			}
			g := v.fetch(t, site.url+"/11")
			refusal(t, g, "limit.rate")
			if !g.verdict.Retriable || !slices.ContainsFunc(g.verdict.Remedies, func(r client.Remedy) bool { return r.Kind == "wait" }) {
				t.Errorf("%+v", g.verdict)
			}
			refusal(t, v.ask(t, "comm_search", map[string]any{"query": "product X price"}), "limit.rate")
			if d := v.declare(t, "comm.fetch", map[string]any{"url": site.url + "/12"}); d.Verdict.Code != "limit.rate" {
				t.Errorf("declared: %+v", d)
			}
			permit(t, v, v.ask(t, "comm_list_files", map[string]any{}))
			if n := len(site.all()) - before; n != 10 {
				t.Errorf("%d requests", n)
			}
			other := w.visit(door, "tester") // a limit of one session
			permit(t, other, other.fetch(t, site.url+"/other"))
			more := w.visit(door, "trusted")
			for i := range 12 {
				permit(t, more, more.fetch(t, fmt.Sprintf("%s/trusted/%d", site.url, i)))
			}
		})
	}
	w.close(t)
}

// The restricted tier asks a person about everything that is declared, and has half the requests.
func TestTrustTiers(t *testing.T) {
	site := newWebsite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "plain") })
	tier := func(id, tier string) string {
		return strings.Replace(declaration(id), "mode: operator", "mode: operator\ntrustTier: "+tier, 1)
	}
	w := start(t, people+opens(site.url)+"trust_tiers: {careful: {ask_from: MEDIUM, comm_requests_per_minute: 2}}\n", declaration("tester"), tier("limited", "restricted"), tier("mistyped", "restrictde"), tier("careful", "careful"))
	alice := w.person("alice", "approver")
	for _, door := range doors {
		for _, agent := range []string{"limited", "mistyped"} {
			v := w.visit(door, agent)
			g := v.fetch(t, site.url+"/"+agent)
			refusal(t, g, "approval.required")
			refusal(t, v.ask(t, "comm_write_file", map[string]any{"path": "a", "content": "b"}), "approval.required")
			if g.verdict.ApprovalID == nil {
				t.Fatalf("%+v", g.verdict)
			}
			q, err := alice.Approval(t.Context(), *g.verdict.ApprovalID)
			if err != nil || q.Risk != "LOW" {
				t.Fatalf("%+v %v", q, err)
			}
			if _, err := alice.Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil {
				t.Fatal(err)
			}
			permit(t, v, v.fetch(t, site.url+"/"+agent))
		}
		v := w.visit(door, "tester")
		permit(t, v, v.fetch(t, site.url+"/standard"))
		v = w.visit(door, "careful")
		for range 2 {
			permit(t, v, v.fetch(t, site.url+"/careful"))
		}
		refusal(t, v.fetch(t, site.url+"/careful"), "limit.rate")
	}
	w.close(t)
}

// In the planning phase none of the seven runs, at any door and under any name. A plan whose arguments are fixed opens the execution phase
// and lets its own steps run without a justification of their own; others still need one.
func TestPlanningAndPlan(t *testing.T) {
	site := newWebsite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "plain words") })
	w := start(t, fmt.Sprintf("comm: {allowed_domains: [%q], protocols: [http], databases: {shop: \"sqlite:%s\"}, exec: {allow: [cat]}}\n%s", strings.TrimPrefix(site.url, "http://"), sqliteFile(t), plenty),
		declare("planner", "operator", "planning", []string{"*"}, []string{"*"}))
	for _, door := range doors {
		t.Run(door, func(t *testing.T) {
			v := w.visit(door, "planner")
			before := len(site.all())
			for tool, arguments := range seven(site.url) {
				g := v.ask(t, tool, arguments)
				refusal(t, g, "phase.blocked")
				refusal(t, v.call(t, tool, arguments), "phase.blocked") // without a justification as well
				if !slices.ContainsFunc(g.verdict.Remedies, func(r client.Remedy) bool { return r.Kind == "declare" }) {
					t.Errorf("%s: no way out: %+v", tool, g.verdict)
				}
			}
			for _, name := range []string{"comm.fetch", "Comm_fetch", "COMM_FETCH", "comm_fetch ", "comm__fetch", "fetch", "_comm_fetch", "internal_fetch"} {
				g, err := v.try(t.Context(), name, with(map[string]any{"url": site.url + "/renamed"}))
				if err == nil && (g.ok() || g.verdict.Code != "phase.blocked" && g.verdict.Code != "tool.unknown") {
					t.Errorf("%q: %+v", name, g.verdict)
				}
			}
			// The phase is no argument.
			for _, more := range []string{"phase", "execution_phase"} {
				arguments := with(map[string]any{"url": site.url + "/claimed"})
				arguments[more] = "execution"
				if g := v.call(t, "comm_fetch", arguments); g.ok() {
					t.Errorf("%s in the arguments opens the phase", more)
				}
			}
			if n := len(site.all()); n != before {
				t.Fatalf("the server was asked in the planning phase: %q", site.all()[before:])
			}

			url := site.url + "/planned"
			steps := []client.PlanStep{{Tool: "comm_fetch", Arguments: json.RawMessage(`{"url":"` + url + `"}`), Justification: "The price is on this page."}}
			p, err := v.http.SubmitPlan(t.Context(), v.session, steps)
			if err != nil || p.State != "approved" || p.Phase != "execution" {
				t.Fatalf("%+v %v", p, err)
			}
			g := v.call(t, "comm_fetch", map[string]any{"url": url})
			permit(t, v, g)
			if g.meta.Declaration != p.Digest {
				t.Errorf("it ran on %s, and not on the plan %s", g.meta.Declaration, p.Digest)
			}
			intents := w.entriesOf(v.session, func(e client.Entry) bool { return e.Kind == "intent" && e.CallID == g.callID })
			if len(intents) != 1 || detail(t, intents[0]).Declaration.Digest != p.Digest {
				t.Errorf("%s", show(intents))
			}
			refusal(t, v.call(t, "comm_fetch", map[string]any{"url": site.url + "/unplanned"}), "declaration.missing")
			if c := v.fetch(t, site.url+"/unplanned"); c.verdict.Decision != "ask" || c.verdict.Stage != "plan" { // only a rule approved the plan that opened the phase
				t.Errorf("outside the plan: %+v", c.verdict)
			}
			if _, err := w.root.SetPhase(t.Context(), v.session, "planning", "enough"); err != nil {
				t.Fatal(err)
			}
			refusal(t, v.fetch(t, url), "phase.blocked")
			if n := len(site.all()) - before; n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
	w.close(t)
}

// The kill switch ends a fetch that stalls: the call answers within two seconds, and the server sees its connection closed.
func TestKillSwitchEndsAFetch(t *testing.T) {
	gone := make(chan string, 16)
	var site *website
	site = newWebsite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "PARTIAL-WORDS")
			_ = http.NewResponseController(w).Flush()
		}
		site.add("waiting %s", r.URL.Path)
		<-r.Context().Done()
		gone <- r.URL.Path
	})
	w := start(t, opens(site.url)+plenty)
	for _, door := range doors {
		for _, path := range []string{"/silent", "/half"} {
			for _, agent := range []string{"tester", ""} {
				t.Run(door+path+" "+agent, func(t *testing.T) {
					v := w.visit(door, "tester")
					before := len(site.all())
					type end struct {
						got
						error
					}
					ended := make(chan end, 1)
					ctx := t.Context()
					go func() {
						g, err := v.try(ctx, "comm_fetch", with(map[string]any{"url": site.url + path}))
						ended <- end{g, err}
					}()
					eventually(t, 20*time.Second, "the fetch waits", func() bool { return slices.Contains(site.all()[before:], "waiting "+path) })
					began := time.Now()
					if _, err := w.root.Kill(ctx, agent, "test"); err != nil {
						t.Fatal(err)
					}
					var e end
					select {
					case e = <-ended:
					case <-time.After(25 * time.Second):
						t.Fatal("the call did not end")
					}
					took := time.Since(began)
					if e.error != nil {
						t.Fatal(e.error)
					}
					refusal(t, e.got, "kill_switch.active")
					if e.verdict.Status != "SKIPPED" || strings.Contains(fmt.Sprintf("%+v", e), "PARTIAL-WORDS") {
						t.Errorf("%+v", e)
					}
					select {
					case p := <-gone:
						if p != path {
							t.Errorf("the connection of %s was closed", p)
						}
					case <-time.After(slack(2 * time.Second)):
						t.Error("the server's connection is still open")
					}
					if took > slack(2*time.Second) {
						t.Errorf("it took %s", took)
					}
					refusal(t, v.fetch(t, site.url+path), "kill_switch.active")
					if _, err := w.root.Unkill(ctx, agent, "test"); err != nil {
						t.Fatal(err)
					}
					eventually(t, 30*time.Second, "the outcome is written", func() bool {
						return len(w.entriesOf(v.session, isOutcome)) == 1
					})
					if o := w.entriesOf(v.session, isOutcome)[0]; o.Code != "kill_switch.active" || o.Decision == "ok" {
						t.Errorf("%s", show(o))
					}
				})
			}
		}
	}
	w.close(t)
}
