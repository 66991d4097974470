package runner_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/run"
	"sallyport.example/internal/runner"
)

// A recommendation without a question ends when its time is over: nobody answers it later, and nothing is learned from it.
func TestRecommendationsExpire(t *testing.T) {
	o, db := gatewaytest.Options(t), gatewaytest.Store(t)
	o.Store = db
	g := gatewaytest.New(t, o)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	add := func(id string, state run.RecommendationState, at time.Time) {
		t.Helper()
		r := run.Recommendation{ID: id, Agent: "advisor", Action: "WAIT", State: state, At: at, Expires: at.Add(run.Lasts), Digest: "d", Output: json.RawMessage(`{}`)}
		if err := db.AddRecommendation(t.Context(), r, audit.Entry{Kind: audit.Change, Action: "recommendation.make", Agent: "advisor"}); err != nil {
			t.Fatal(err)
		}
	}
	add("rec_old", run.Advice, now.Add(-run.Lasts))
	add("rec_blocked", run.Blocked, now.Add(-run.Lasts-time.Hour))
	add("rec_new", run.Advice, now.Add(-run.Lasts+time.Hour))
	changed, stop := g.Watch(changes.Recommendation)
	defer stop()
	r, err := runner.New(t.Context(), runner.Options{Gateway: g, Store: db, AgentURL: func() string { return "http://127.0.0.1:1" }, Dir: t.TempDir(),
		Env: func(string) string { return "" }, Hosts: func(string) []string { return nil }, Alert: func(run.Run) {}, Log: slog.New(slog.DiscardHandler), Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	state := func(id string) run.RecommendationState {
		t.Helper()
		rec, err := r.Recommendation(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return rec.State
	}
	for state("rec_old") != run.Expired || state("rec_blocked") != run.Expired {
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatal("it never expired")
		}
	}
	if got := state("rec_new"); got != run.Advice {
		t.Errorf("the one that can still be answered is %s", got)
	}
	add("rec_late", run.Advice, now.Add(-run.Lasts)) // nobody looked at it yet
	for _, id := range []string{"rec_old", "rec_late"} {
		for _, decision := range []approval.Decision{approval.Approve, approval.Reject} {
			if rec, err := r.Respond(t.Context(), approval.Voter{Person: "ann"}, id, desk.Response{Decision: decision, Digest: "d", Reason: "x"}); !fault.Is(err, fault.Conflict) {
				t.Errorf("%s is answered with %s: %s %v", id, decision, rec.State, err)
			}
		}
	}
	if rec, err := r.Respond(t.Context(), approval.Voter{Person: "ann"}, "rec_new", desk.Response{Decision: approval.Approve, Digest: "d"}); err != nil || rec.State != run.Accepted {
		t.Errorf("the one in time: %s %v", rec.State, err)
	}
}

// What lies in the folder of the workspaces is removed at the start, so there is no default for it.
func TestRunnerWantsAFolder(t *testing.T) {
	o, db := gatewaytest.Options(t), gatewaytest.Store(t)
	o.Store = db
	t.Chdir(t.TempDir())
	if err := os.WriteFile("kept", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := runner.New(t.Context(), runner.Options{Gateway: gatewaytest.New(t, o), Store: db}); err == nil {
		r.Close()
		t.Error("it takes the working directory")
	}
	if _, err := os.Stat("kept"); err != nil {
		t.Error(err)
	}
}
