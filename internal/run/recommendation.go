package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// RecommendationState is where a recommendation stands.
type RecommendationState string

const (
	Advice     RecommendationState = "advice"      // it calls nothing; a person may say that it is right or wrong
	Blocked    RecommendationState = "blocked"     // what it recommends can't be carried out; Why says it
	Pending    RecommendationState = "pending"     // its call waits for people
	Accepted   RecommendationState = "accepted"    // advice that a person found right
	CarriedOut RecommendationState = "carried_out" // people approved the call, and it ran
	NotDone    RecommendationState = "failed"      // people approved the call, and it was refused by then or failed
	Rejected   RecommendationState = "rejected"
	Expired    RecommendationState = "expired"    // nobody answered while it could be answered
	Superseded RecommendationState = "superseded" // the declaration, the tool or the agent's standing changed since
)

// RecommendationStates are all of them.
var RecommendationStates = []RecommendationState{Advice, Blocked, Pending, Accepted, CarriedOut, NotDone, Rejected, Expired, Superseded}

// recommendationWords are the states as people read them (docs/glossary.md).
var recommendationWords = map[RecommendationState]string{
	Pending: "waits for a person", CarriedOut: "carried out", Accepted: "found right", Blocked: "can’t be carried out", Superseded: "withdrawn",
}

// Words is the state as people read it.
func (s RecommendationState) Words() string { return cmp.Or(recommendationWords[s], string(s)) }

// recommendationMoves are the states that each may be followed by. What is not listed is final.
var recommendationMoves = map[RecommendationState][]RecommendationState{
	Advice:  {Accepted, Rejected, Expired, Superseded},
	Blocked: {Rejected, Expired, Superseded},
	Pending: {Blocked, CarriedOut, NotDone, Rejected, Expired, Superseded},
}

// Final tells whether a recommendation in the state stays in it.
func (s RecommendationState) Final() bool { return len(recommendationMoves[s]) == 0 }

// Validated tells whether a person answered the recommendation: only then may anything be learned from it (AG-11).
func (s RecommendationState) Validated() bool {
	return s == Accepted || s == CarriedOut || s == Rejected
}

// Lasts is how long people can answer a recommendation that no question is asked about. One with a question expires with the question.
const Lasts = 30 * 24 * time.Hour

// Recommendation is what an agent recommends. It is kept apart from whatever it is about, and always marked synthetic (AG-6, AG-11).
type Recommendation struct {
	ID          string              `json:"recommendation_id"`
	Run         string              `json:"run_id,omitempty"` // "": it came from a session without a run
	From        string              `json:"session_id"`       // the session that it was made in
	Agent       string              `json:"agent_id"`
	Declaration string              `json:"declaration"` // digest
	Model       string              `json:"model"`       // as the output says; "" where it says none
	Requester   string              `json:"requester,omitempty"`
	At          time.Time           `json:"at"`
	Synthetic   bool                `json:"synthetic"`
	Output      json.RawMessage     `json:"output"`
	Labels      []string            `json:"labels,omitempty"` // that its session held: the output may have such data in it
	Citations   []Checked           `json:"citations,omitempty"`
	Claims      []Confirmed         `json:"claims,omitempty"`
	Action      string              `json:"action"`
	Call        *Recommended        `json:"call,omitempty"`
	Digest      string              `json:"digest"` // what an answer names: of the question where there is one, else of the output
	State       RecommendationState `json:"state"`
	Expires     time.Time           `json:"expires_at,omitzero"` // until when people can answer it
	Why         string              `json:"why,omitempty"`       // it can't be carried out, failed, was rejected or superseded
	DecidedBy   []string            `json:"decided_by,omitempty"`
	DecidedAt   time.Time           `json:"decided_at,omitzero"`
	Print       []uint64            `json:"-"` // fingerprint of what in its output was not read; without one where it is of a run, which has it
}

// Recommended is the exact call that a recommendation is about.
type Recommended struct {
	Operation string            `json:"operation"`
	Arguments json.RawMessage   `json:"arguments"`
	From      map[string]string `json:"from"` // by argument: the path in the output that it is taken from, or "declaration"
	Risk      string            `json:"risk,omitempty"`
	Needed    int               `json:"needed,omitempty"`
	Session   string            `json:"session_id,omitempty"`
	Approval  string            `json:"approval_id,omitempty"`
	CallID    string            `json:"call_id,omitempty"` // that ran
	Expires   time.Time         `json:"expires_at,omitzero"`
}

// Recommend is the recommendation in an output that was checked; false if it recommends no action: it is named by recommendation.action, or action.
func Recommend(output json.RawMessage, d *agent.Declaration, now time.Time) (Recommendation, bool) {
	inner, _ := call.Get(output, "recommendation")
	action, ok := call.GetText(inner, "action")
	if !ok {
		action, ok = call.GetText(output, "action")
	}
	if !ok || action == "" {
		return Recommendation{}, false
	}
	r := Recommendation{
		ID: call.NewID("rec_", now), Agent: d.AgentID, Declaration: d.Digest, At: now.UTC(), Synthetic: true, Output: output, Action: action, Digest: call.HashBytes(output), State: Advice, Expires: now.UTC().Add(Lasts),
	}
	metadata, _ := call.Get(output, "metadata")
	if r.Model, ok = call.GetText(metadata, "modelVersion"); !ok {
		r.Model, _ = call.GetText(output, "modelVersion")
	}
	does := d.RecommendationActions[action]
	if does.Operation == "" {
		return r, true
	}
	r.Call, r.State = &Recommended{Operation: does.Operation}, Pending
	if err := r.Call.fill(does, output); err != nil {
		r.State, r.Why = Blocked, "can't be carried out: "+fault.Of(err).Public()
	}
	return r, true
}

// fill takes the arguments from the output.
func (c *Recommended) fill(does agent.Action, output json.RawMessage) error {
	c.From = map[string]string{}
	arguments := map[string]json.RawMessage{}
	for name, value := range does.Args {
		steps, ok := agent.Path(value)
		if !ok {
			arguments[name], c.From[name] = value, "declaration"
			continue
		}
		path, _ := call.Text(value)
		found, ok := at(output, steps)
		if !ok {
			return fault.New(fault.OutputInvalid, "The output has nothing at %s, which the argument %s is taken from.", path, name)
		}
		arguments[name], c.From[name] = found, path
	}
	encoded, err := call.Encode(arguments)
	if err == nil {
		c.Arguments, err = call.Canonical(encoded, call.DefaultLimits())
	}
	return err
}

// at is what stands at a path of checked JSON.
func at(value json.RawMessage, steps []any) (json.RawMessage, bool) {
	for _, step := range steps {
		switch step := step.(type) {
		case string:
			inner, ok := call.Get(value, step)
			if !ok {
				return nil, false
			}
			value = inner
		case int:
			i, found := 0, false
			for element := range call.Elements(value) {
				if found = i == step; found {
					value = element
					break
				}
				i++
			}
			if !found {
				return nil, false
			}
		}
	}
	return value, true
}

// Over tells whether it is too late to answer a recommendation that no question is asked about.
func (r Recommendation) Over(now time.Time) bool {
	until := r.Expires
	if until.IsZero() { // it was made by a version that set no time
		until = r.At.Add(Lasts)
	}
	return (r.State == Advice || r.State == Blocked) && !now.Before(until)
}

// Move takes the recommendation to another state.
func (r Recommendation) Move(to RecommendationState, why string, by []string, now time.Time) (Recommendation, error) {
	if !slices.Contains(recommendationMoves[r.State], to) {
		return r, fault.New(fault.Conflict, "The recommendation %s is %s, and can't become %s.", r.ID, strings.ReplaceAll(string(r.State), "_", " "), strings.ReplaceAll(string(to), "_", " "))
	}
	r.State, r.DecidedAt = to, now.UTC()
	if why != "" {
		r.Why = why
	}
	if by != nil {
		r.DecidedBy = by
	}
	return r, nil
}

// Asked notes the question about the recommended call.
func (r Recommendation) Asked(session, approval, digest, risk string, needed int, expires time.Time) (Recommendation, error) {
	if r.State != Pending || r.Call == nil || r.Call.Approval != "" {
		return r, fault.New(fault.Conflict, "The recommendation %s is not one that people have to be asked about.", r.ID)
	}
	c := *r.Call
	c.Session, c.Approval, c.Risk, c.Needed, c.Expires = session, approval, risk, needed, expires
	r.Call, r.Digest, r.Expires = &c, digest, expires
	return r, nil
}

// RecommendationFilter selects recommendations, the newest first.
type RecommendationFilter struct {
	Agent  string
	State  RecommendationState // "": any
	After  string
	Limit  int
	Oldest bool // the oldest first; After is "" then
}

// ParseRecommendationState accepts the exact names of the states.
func ParseRecommendationState(s string) (RecommendationState, error) {
	if state := RecommendationState(s); s == "" || slices.Contains(RecommendationStates, state) {
		return state, nil
	}
	return "", fault.New(fault.RequestMalformed, "%s is no state of a recommendation: one of %s.", fmt.Sprintf("%.40q", s), stateWords()).At("state")
}

func stateWords() string {
	var words []string
	for _, s := range RecommendationStates {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}
