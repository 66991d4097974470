package run

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/fault"
)

func TestRecommendationsMoveAsTheyMay(t *testing.T) {
	for _, from := range RecommendationStates {
		for _, to := range RecommendationStates {
			r := Recommendation{ID: "rec_1", State: from}
			next, err := r.Move(to, "", []string{"bob"}, began)
			allowed := false
			for _, s := range recommendationMoves[from] {
				allowed = allowed || s == to
			}
			if (err == nil) != allowed || err != nil && !fault.Is(err, fault.Conflict) || err == nil && (next.State != to || next.DecidedAt.IsZero()) {
				t.Errorf("%s to %s: %v", from, to, err)
			}
		}
		if from.Validated() && !from.Final() {
			t.Errorf("%s counts as a person's word and may still change", from)
		}
		if _, err := ParseRecommendationState(string(from)); err != nil {
			t.Error(err)
		}
	}
	if _, err := ParseRecommendationState("done"); err == nil {
		t.Error("an unknown state is accepted")
	}
}

// What nobody asks a question about can be answered for 30 days; a question has a time of its own.
func TestOver(t *testing.T) {
	for _, state := range RecommendationStates {
		for name, r := range map[string]Recommendation{"its time": {State: state, At: began, Expires: began.Add(Lasts)}, "made before there was a time": {State: state, At: began}} {
			if r.Over(began.Add(Lasts - 1)) {
				t.Errorf("%s, %s: it is over before its time", name, state)
			}
			if got, want := r.Over(began.Add(Lasts)), state == Advice || state == Blocked; got != want {
				t.Errorf("%s, %s: over is %v at its time", name, state, got)
			}
		}
	}
}

func TestRecommend(t *testing.T) {
	d := *declared(t, adviceSchema)
	d.RecommendationActions = map[string]agent.Action{
		"ESCALATE": {Operation: "pager.page", Args: map[string]json.RawMessage{"incident": json.RawMessage(`"$.incidents[1].id"`), "urgent": json.RawMessage(`true`)}},
		"WAIT":     {},
	}
	for output, want := range map[string]struct {
		state RecommendationState
		args  string
	}{
		`{"action":"ESCALATE","incidents":[{"id":"a"},{"id":"b<"}]}`: {Pending, `{"incident":"b<","urgent":true}`},
		`{"action":"WAIT","recommendation":{"action":"ESCALATE"}}`:   {Blocked, ""},
		`{"action":"ESCALATE","incidents":[{"id":"a"}]}`:             {Blocked, ""},
		`{"action":"ESCALATE","incidents":{"1":{"id":"a"}}}`:         {Blocked, ""},
		`{"action":"WAIT"}`: {Advice, ""},
		`{"recommendation":{"action":"CLOSE"},"metadata":{"modelVersion":"m"}}`: {Advice, ""},
		`{"answer":"x"}`: {}, `{"action":7}`: {}, `{"action":""}`: {},
	} {
		r, ok := Recommend(json.RawMessage(output), &d, began)
		if ok != (want.state != "") || r.State != want.state || ok && !r.Synthetic {
			t.Errorf("%s: %v %+v", output, ok, r)
			continue
		}
		if ok && !r.Expires.Equal(began.Add(Lasts)) {
			t.Errorf("%s: it expires at %s", output, r.Expires)
		}
		if want.args != "" && (string(r.Call.Arguments) != want.args || r.Call.From["incident"] != "$.incidents[1].id" || r.Call.From["urgent"] != "declaration") {
			t.Errorf("%s: %+v", output, r.Call)
		}
		if r.State == Blocked && !strings.HasPrefix(r.Why, "can't be carried out: ") {
			t.Errorf("%s: %s", output, r.Why)
		}
		if strings.Contains(output, "modelVersion") && r.Model != "m" {
			t.Errorf("the model is %q", r.Model)
		}
	}
}
