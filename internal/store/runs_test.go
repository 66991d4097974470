package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	runs "sallyport.example/internal/run"
)

func aRun(id, agent, key string) runs.Run {
	return runs.Run{ID: id, Agent: agent, Status: runs.Running, Input: json.RawMessage(`{"a":"<b>"}`), Started: time.Unix(1, 0).UTC(), Key: key, Request: "asked"}
}

func runEntry(action string) audit.Entry {
	return audit.Entry{Kind: audit.Change, Action: action, Decision: "ok"}
}

// finish ends a run with an output.
func finish(t *testing.T, db *DB, id string) runs.Run {
	t.Helper()
	r, err := db.ChangeRun(t.Context(), id, func(r runs.Run) (runs.Run, audit.Entry, error) {
		r, err := r.Finish(runs.End{Status: runs.Done, Output: json.RawMessage(`{"x":"<y>"}`)}, time.Unix(2, 0))
		return r, runEntry("run.end"), err
	})
	must(t, err)
	return r
}

// livedRuns leaves a run that has ended and one that has not.
func livedRuns(t *testing.T, db *DB) {
	t.Helper()
	for _, id := range []string{"run_1", "run_2"} {
		_, isNew, err := db.StartRun(t.Context(), aRun(id, "a", "key of "+id), runEntry("run.start"))
		must(t, err)
		if !isNew {
			t.Fatal("it was there")
		}
	}
	finish(t, db, "run_1")
	finish(t, db, "run_2")
	for _, id := range []string{"rec_1", "rec_2"} {
		must(t, db.AddRecommendation(t.Context(), runs.Recommendation{ID: id, Agent: "a", State: runs.Advice, Output: json.RawMessage(`{"x":1}`)}, runEntry("recommendation.make")))
		_, err := db.ChangeRecommendation(t.Context(), id, func(r runs.Recommendation) (runs.Recommendation, audit.Entry, error) {
			r, err := r.Move(runs.Rejected, "no", []string{"bob"}, time.Unix(3, 0))
			return r, runEntry("recommendation.reject"), err
		})
		must(t, err)
	}
}

func TestRecommendationsAreAnsweredOnce(t *testing.T) {
	db := openDB(t)
	ctx := t.Context()
	for _, r := range []runs.Recommendation{{ID: "rec_1", Agent: "a", State: runs.Advice}, {ID: "rec_2", Agent: "b", State: runs.Pending}, {ID: "rec_3", Agent: "a", State: runs.Blocked}} {
		must(t, db.AddRecommendation(ctx, r, runEntry("recommendation.make")))
	}
	if err := db.AddRecommendation(ctx, runs.Recommendation{ID: "rec_1", Agent: "a", State: runs.Advice}, runEntry("recommendation.make")); !fault.Is(err, fault.Conflict) {
		t.Errorf("twice: %v", err)
	}
	answer := func() error {
		_, err := db.ChangeRecommendation(ctx, "rec_1", func(r runs.Recommendation) (runs.Recommendation, audit.Entry, error) {
			r, err := r.Move(runs.Accepted, "", []string{"bob"}, time.Unix(3, 0))
			return r, runEntry("recommendation.approve"), err
		})
		return err
	}
	must(t, answer())
	if err := answer(); !fault.Is(err, fault.Conflict) {
		t.Errorf("it is answered twice: %v", err)
	}
	for _, c := range []struct {
		filter runs.RecommendationFilter
		want   []string
	}{{runs.RecommendationFilter{Limit: 9}, []string{"rec_3", "rec_2", "rec_1"}}, {runs.RecommendationFilter{Agent: "a", Limit: 9}, []string{"rec_3", "rec_1"}}, {runs.RecommendationFilter{State: runs.Pending, Limit: 9}, []string{"rec_2"}},
		{runs.RecommendationFilter{Agent: "a", State: runs.Accepted, Limit: 9}, []string{"rec_1"}}, {runs.RecommendationFilter{After: "rec_2", Limit: 9}, []string{"rec_1"}},
		{runs.RecommendationFilter{Agent: "a", Oldest: true, Limit: 9}, []string{"rec_1", "rec_3"}}} {
		page, err := db.Recommendations(ctx, c.filter)
		must(t, err)
		var got []string
		for _, r := range page {
			got = append(got, r.ID)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%+v finds %v", c.filter, got)
		}
	}
	if _, err := db.Recommendation(ctx, "rec_9"); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that isn't there: %v", err)
	}
}

func TestRunsAreStartedOnceAndEndOnce(t *testing.T) {
	db := openDB(t)
	ctx := t.Context()
	first, isNew, err := db.StartRun(ctx, aRun("run_1", "a", "k"), runEntry("run.start"))
	must(t, err)
	if !isNew || first.ID != "run_1" {
		t.Fatalf("%v %+v", isNew, first)
	}
	again, isNew, err := db.StartRun(ctx, aRun("run_2", "a", "k"), runEntry("run.start"))
	must(t, err)
	if isNew || again.ID != "run_1" {
		t.Errorf("a key that is sent again starts %v %s", isNew, again.ID)
	}
	other := aRun("run_3", "a", "k")
	other.Request = "something else"
	if _, _, err := db.StartRun(ctx, other, runEntry("run.start")); !fault.Is(err, fault.Conflict) {
		t.Errorf("the key of another run: %v", err)
	}
	if is, found, err := db.RunByKey(ctx, "k"); err != nil || !found || is.ID != "run_1" || is.Again("something else") == nil || is.Again(first.Request) != nil {
		t.Errorf("the run of a key: %v %+v %v", found, is, err)
	}
	if is, found, err := db.RunByKey(ctx, "another"); err != nil || found {
		t.Errorf("the run of a key that nobody sent: %+v %v", is, err)
	}
	if _, err := db.Run(ctx, "run_2"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a run that never began: %v", err)
	}
	must(t, func() error {
		_, _, err := db.StartRun(ctx, aRun("run_4", "b", ""), runEntry("run.start"))
		return err
	}())
	ended := finish(t, db, "run_1")
	found, err := db.Run(ctx, "run_1")
	must(t, err)
	if found.Status != runs.Done || string(found.Output) != `{"x":"<y>"}` || string(ended.Output) != string(found.Output) {
		t.Errorf("%+v", found)
	}
	if _, err := db.ChangeRun(ctx, "run_1", func(r runs.Run) (runs.Run, audit.Entry, error) {
		r, err := r.Finish(runs.End{Status: runs.Killed, Verdict: &fault.Verdict{}}, time.Unix(3, 0))
		return r, runEntry("run.end"), err
	}); !fault.Is(err, fault.Conflict) {
		t.Errorf("it ended twice: %v", err)
	}
	// What has ended stays as it is, whatever statement somebody tries in the database.
	own, err := sql.Open("sqlite", "file:"+filepath.Join(dataDir(t), databaseFile))
	must(t, err)
	defer own.Close()
	for _, statement := range []string{
		`UPDATE runs SET status = 'running' WHERE id = 'run_1'`, `UPDATE runs SET body = x'00' WHERE id = 'run_1'`, `UPDATE runs SET agent = 'z' WHERE id = 'run_4'`, `UPDATE runs SET n = 99 WHERE id = 'run_4'`,
		`INSERT OR REPLACE INTO runs SELECT n, id, agent, 'running', idem, body, entry, mac FROM runs WHERE id = 'run_1'`,
		`INSERT OR REPLACE INTO runs SELECT n, 'run_9', agent, status, '', body, entry, mac FROM runs WHERE id = 'run_1'`,
		`INSERT OR REPLACE INTO runs SELECT n + 50, id, agent, status, idem, body, entry, mac FROM runs WHERE id = 'run_1'`,
	} {
		if _, err := own.ExecContext(ctx, statement); err == nil {
			t.Errorf("it was possible: %s", statement)
		}
	}
	for _, c := range []struct {
		filter runs.Filter
		want   []string
	}{{runs.Filter{Limit: 9}, []string{"run_4", "run_1"}}, {runs.Filter{Agent: "a", Limit: 9}, []string{"run_1"}}, {runs.Filter{Running: true, Limit: 9}, []string{"run_4"}}, {runs.Filter{Limit: 1}, []string{"run_4"}}, {runs.Filter{After: "run_4", Limit: 9}, []string{"run_1"}}} {
		page, err := db.Runs(ctx, c.filter)
		must(t, err)
		var got []string
		for _, r := range page {
			got = append(got, r.ID)
		}
		if len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
			t.Errorf("%+v finds %v", c.filter, got)
		}
	}
	if _, err := db.Runs(ctx, runs.Filter{After: "run_9", Limit: 9}); !fault.Is(err, fault.NotFound) {
		t.Errorf("after a run that isn't there: %v", err)
	}
}
