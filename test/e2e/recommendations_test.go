package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/agent"
)

// pages is the action map of the incident advisor.
const pages = `
recommendationActions:
  ESCALATE: {operation: pager.page, args: {incident: $.incidentId}}
  INVESTIGATE: {operation: pager.page, args: {incident: $.recommendation.owner}}
  CLOSE: none
`

func advise(action string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"incidentId":"INC-7","mode":"advise","action":%q}`, action))
}

// The incident advisor from its declaration to the action that a person approved, over HTTP and by the command line.
func TestIncidentAdvisor(t *testing.T) {
	w, _, pager := onDuty(t, "", advisor(program(t)+pages, 60_000))
	carol, alice := w.person("carol", "operator"), w.person("alice", "approver")
	recommended := func(action string) *client.Recommendation {
		t.Helper()
		r := runToEnd(t, carol, advise(action))
		if r.Status != "done" || r.RecommendationID == "" {
			t.Fatalf("%+v %+v", r, r.Verdict)
		}
		rec, err := alice.Recommendation(t.Context(), r.RecommendationID)
		if err != nil || rec.RunID != r.RunID || !rec.Synthetic || rec.Action != action || rec.Requester != "carol" || rec.Model != "none" {
			t.Fatalf("%+v %v", rec, err)
		}
		return rec
	}
	rec := recommended("ESCALATE")
	if rec.State != "pending" || rec.Call == nil || rec.Call.Operation != "pager.page" || string(rec.Call.Arguments) != `{"incident":"INC-7"}` || rec.Call.From["incident"] != "$.incidentId" || rec.Call.ApprovalID == "" || rec.Call.Needed != 1 {
		t.Fatalf("%+v %+v", rec, rec.Call)
	}
	if len(pager.calls()) != 0 {
		t.Fatal("it was carried out before anybody said yes")
	}
	asked, err := alice.Approval(t.Context(), rec.Call.ApprovalID)
	if err != nil || asked.Digest != rec.Digest || asked.State != "pending" || asked.Requester != "carol" || asked.AgentID != "recommendation:incident-advisor" {
		t.Fatalf("the question is %+v %v", asked, err)
	}
	if _, err := alice.ApproveRecommendation(t.Context(), rec.RecommendationID, strings.Repeat("0", 64), ""); problemCode(err) != "approval.mismatch" {
		t.Errorf("another digest: %v", err)
	}
	if _, err := carol.ApproveRecommendation(t.Context(), rec.RecommendationID, rec.Digest, ""); problemCode(err) != "role.missing" {
		t.Errorf("an operator approves: %v", err)
	}
	done, err := alice.ApproveRecommendation(t.Context(), rec.RecommendationID, rec.Digest, "page them")
	if err != nil || done.State != "carried_out" || done.Call.CallID == "" || fmt.Sprint(done.DecidedBy) != "[alice]" {
		t.Fatalf("%+v %v", done, err)
	}
	if calls := pager.calls(); len(calls) != 1 || !strings.Contains(calls[0], `"incident":"INC-7"`) {
		t.Errorf("the server got %q", calls)
	}
	if _, err := alice.ApproveRecommendation(t.Context(), rec.RecommendationID, rec.Digest, ""); problemCode(err) != "conflict" {
		t.Errorf("twice: %v", err)
	}

	// The vote may be given on the question, too: it is one question.
	rec = recommended("ESCALATE")
	if _, err := alice.Approve(t.Context(), rec.Call.ApprovalID, rec.Digest, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "what was approved is carried out", func() bool {
		rec, err = alice.Recommendation(t.Context(), rec.RecommendationID)
		return err == nil && rec.State == "carried_out" && len(pager.calls()) == 2
	})

	rec = recommended("ESCALATE")
	if _, err := alice.RejectRecommendation(t.Context(), rec.RecommendationID, "it is known"); err != nil {
		t.Fatal(err)
	}
	if rec, err = alice.Recommendation(t.Context(), rec.RecommendationID); err != nil || rec.State != "rejected" || rec.Why != "it is known" || fmt.Sprint(rec.DecidedBy) != "[alice]" {
		t.Errorf("%+v %v", rec, err)
	}

	if rec = recommended("INVESTIGATE"); rec.State != "blocked" || !strings.Contains(rec.Why, "can't be carried out: ") || !strings.Contains(rec.Why, "$.recommendation.owner") {
		t.Errorf("a path to nothing: %+v", rec)
	}
	advice := recommended("CLOSE")
	if advice.State != "advice" || advice.Call != nil {
		t.Errorf("%+v", advice)
	}
	recommended("WAIT") // nobody answers it

	code, out, errs := w.command(nil, "recommendations", "list")
	if code != 0 || !strings.Contains(out, "carried out") || !strings.Contains(out, "advice") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs = w.command(nil, "recommendations", "approve", advice.RecommendationID, "--digest", advice.Digest); code != 0 || !strings.Contains(out, "found right") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs = w.command(nil, "recommendations", "show", advice.RecommendationID); code != 0 || !strings.Contains(out, "verified by quote, internal") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	code, out, errs = w.command(nil, "recommendations", "export")
	if lines := strings.Count(out, "\n"); code != 0 || lines != 4 || strings.Contains(out, `"pending"`) || strings.Contains(out, `"WAIT"`) || !strings.Contains(out, `"synthetic":true`) {
		t.Errorf("exported %d lines: %d %s", lines, code, errs)
	}
	if len(pager.calls()) != 2 {
		t.Errorf("the server was called %d times", len(pager.calls()))
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.place.verify(t)
}

// Several recommendations are answered with one decision, each under its own digest; one that is not what the person looked at keeps no other from it.
func TestSeveralRecommendationsAtOnce(t *testing.T) {
	w, _, pager := onDuty(t, "", advisor(program(t)+pages, 20_000))
	carol := w.person("carol", "operator")
	var args []string
	for _, action := range []string{"WAIT", "ESCALATE", "WAIT"} {
		rec, err := w.root.Recommendation(t.Context(), runToEnd(t, carol, advise(action)).RecommendationID)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, rec.RecommendationID+"="+rec.Digest)
	}
	if code, out, errs := w.command(nil, "recommendations", "batch", "approve", args[0], strings.TrimRight(args[1], "0123456789abcdef")+"00", args[2]); code != 1 || strings.Count(out, "found right") != 2 || !strings.Contains(out, "another digest") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if len(pager.calls()) != 0 {
		t.Error("what nobody looked at was carried out")
	}
	if code, out, errs := w.command(nil, "recommendations", "batch", "reject", args[1], "--reason", "the disk is not full"); code != 0 || !strings.Contains(out, "rejected") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	for _, wrong := range [][]string{{"approve", "rec_1"}, {"reject", args[0]}, {"defer", args[0]}} {
		if code, _, errs := w.command(nil, append([]string{"recommendations", "batch"}, wrong...)...); code != 2 || errs == "" {
			t.Errorf("%s: %d %s", wrong, code, errs)
		}
	}
}

// A stop of the agent, a change of its declaration and a restart: what waits is not carried out by an older yes.
func TestRecommendationsThatAreOver(t *testing.T) {
	w, _, pager := onDuty(t, "", advisor(program(t)+pages, 60_000))
	alice, carol := w.person("alice", "approver"), w.person("carol", "operator")
	recommended := func() *client.Recommendation {
		t.Helper()
		rec, err := alice.Recommendation(t.Context(), runToEnd(t, carol, advise("ESCALATE")).RecommendationID)
		if err != nil || rec.State != "pending" {
			t.Fatalf("%+v %v", rec, err)
		}
		return rec
	}
	killed := recommended()
	if _, err := w.root.Kill(t.Context(), "incident-advisor", "test"); err != nil {
		t.Fatal(err)
	}
	if rec, err := alice.ApproveRecommendation(t.Context(), killed.RecommendationID, killed.Digest, ""); err == nil {
		t.Errorf("what a stopped agent recommended is approved: %+v", rec)
	}
	if _, err := w.root.Unkill(t.Context(), "incident-advisor", "test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the stop supersedes it", func() bool {
		rec, err := alice.Recommendation(t.Context(), killed.RecommendationID)
		return err == nil && rec.State == "superseded"
	})

	changed := recommended()
	write(t, w.place.dir+"/agents/a0.yaml", strings.Replace(advisor(program(t)+pages, 60_000), "version: 1.0.0", "version: 1.1.0", 1))
	if _, err := w.root.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.approveAgents()
	if rec, _ := alice.ApproveRecommendation(t.Context(), changed.RecommendationID, changed.Digest, ""); rec != nil && rec.State != "superseded" {
		t.Errorf("what an older declaration recommended is approved: %+v", rec)
	}
	eventually(t, 30*time.Second, "the new declaration supersedes it", func() bool {
		rec, err := alice.Recommendation(t.Context(), changed.RecommendationID)
		return err == nil && rec.State == "superseded"
	})

	kept := recommended()
	w.kill()
	again := launch(t, w.place)
	done, err := again.person("alice", "approver").ApproveRecommendation(t.Context(), kept.RecommendationID, kept.Digest, "")
	if err != nil || done.State != "carried_out" {
		t.Errorf("after a restart: %+v %v", done, err)
	}
	if len(pager.calls()) != 1 {
		t.Errorf("the server was called %d times", len(pager.calls()))
	}
}

// A session recommends without a run; what it sends is checked as the output of a run is.
func TestSessionsRecommend(t *testing.T) {
	w, _, pager := onDuty(t, "", advisor(pages, 60_000))
	_, token := w.open("incident-advisor")
	const path = "/v1/session/self/recommendations"
	output := func(action, at string) string {
		return fmt.Sprintf(`{"recommendationId":"r","agentId":"incident-advisor","timestamp":%q,"incidentId":"INC-7","recommendation":{"action":%q,"confidence":0.5,"reasoning":"It heals itself.","evidence":[]},"metadata":{"executionTime":1,"tokensUsed":0,"modelVersion":"none"},"citations":[{"source":"incidents","timestamp":%q,"confidence":1}]}`, at, action, at)
	}
	now := func() string { return time.Now().UTC().Format(time.RFC3339Nano) }
	if status, answer := w.post(path, token, output("ESCALATE", now()), nil); status != 422 || !bytes.Contains(answer, []byte("output.invalid")) {
		t.Errorf("without having read anything: %d %s", status, answer)
	}
	if status, answer := w.post("/v1/session/self/calls", token, `{"tool":"incidents_get","arguments":{"id":"INC-7"}}`, nil); status != 200 || !bytes.Contains(answer, []byte("Disk is full")) {
		t.Fatalf("%d %s", status, answer)
	}
	status, answer := w.post(path, token, output("ESCALATE", now()), nil)
	if status != 201 || !bytes.Contains(answer, []byte(`"pending"`)) {
		t.Fatalf("%d %s", status, answer)
	}
	// Over MCP the same is the tool sallyport_recommend, which is listed to agents that recommend, with the schema of their output.
	own, names, _, _ := w.prelude(token)
	if i := slices.Index(names, "sallyport_recommend"); i < 0 || !bytes.Contains(own[i], []byte(`"enum":["ESCALATE","INVESTIGATE","CLOSE","WAIT"]`)) {
		t.Errorf("%v are listed", names)
	} else if d, problems := agent.Parse("a.yaml", []byte(advisor(pages, 60_000))); len(own[i]) > len(d.OutputSchema)+250 {
		t.Errorf("its definition has %d bytes, its schema %d: %v", len(own[i]), len(d.OutputSchema), problems)
	}
	over, err := callTool(t.Context(), w.connect(token, "", nil), "sallyport_recommend", json.RawMessage(output("WAIT", now())))
	if err != nil || !strings.Contains(over.text(), `"recommendation_id":"rec_`) || !strings.Contains(over.text(), `"state":"advice"`) {
		t.Errorf("over MCP: %s %v", over.text(), err)
	}
	for _, bad := range []string{`[]`, `{}`, `{"a":1,"a":2}`, output("JUMP", now()), `{"a":"` + strings.Repeat("x", 1<<20) + `"}`} {
		if status, answer := w.post(path, token, bad, nil); status < 400 || status >= 500 {
			t.Errorf("%.60s: %d %s", bad, status, answer)
		}
	}
	page, err := w.root.Recommendations(t.Context(), "incident-advisor", "", "")
	if err != nil || len(page.Recommendations) != 2 || page.Recommendations[0].RunID != "" || len(pager.calls()) != 0 {
		t.Errorf("%+v %v", page, err)
	}
}
