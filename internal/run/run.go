// Package run holds runs and what comes of them: the state of one, and the checks of its output and of the citations in it. All of it is pure.
//
// Promises: a run is started once and ends once; an end is final; only a run that is done has an output, which was checked against the schema of the
// declaration that the run began under; of any other output only the hash is kept.
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

// Status is where a run stands.
type Status string

const (
	Running   Status = "running"
	Done      Status = "done"      // it has an output, which is valid
	Invalid   Status = "invalid"   // its output was refused
	Timeout   Status = "timeout"   // its time was over; what it had was discarded
	Cancelled Status = "cancelled" // a person ended it
	Killed    Status = "killed"    // the kill switch or a quarantine ended it
	Skipped   Status = "SKIPPED"   // the kill switch was active before it began (AG-4)
	Failed    Status = "failed"    // it gave no answer
)

// Statuses are all of them.
var Statuses = []Status{Running, Done, Invalid, Timeout, Cancelled, Killed, Skipped, Failed}

// statusWords are the statuses as people read them (docs/glossary.md).
var statusWords = map[Status]string{Timeout: "timed out", Killed: "stopped", Skipped: "skipped", Invalid: "invalid output"}

// Words is the status as people read it.
func (s Status) Words() string { return cmp.Or(statusWords[s], string(s)) }

// Final tells whether a run with the status is over.
func (s Status) Final() bool { return s != Running }

// Run is one run of an agent. It is a value: moves return a new one.
type Run struct {
	ID          string          `json:"run_id"`
	Agent       string          `json:"agent_id"`
	Kind        agent.RunKind   `json:"kind"`
	Declaration string          `json:"declaration"` // digest of the declaration that it began under
	Requester   string          `json:"requester"`   // the person who asked for it
	StartedBy   string          `json:"started_by"`  // principal, as kind:id
	Session     string          `json:"session_id,omitempty"`
	Status      Status          `json:"status"`
	Input       json.RawMessage `json:"input"` // canonical
	Started     time.Time       `json:"started"`
	Deadline    time.Time       `json:"deadline"`
	Ended       time.Time       `json:"ended,omitzero"`

	Verdict     *fault.Verdict  `json:"verdict,omitempty"` // why it has no output
	EndedBy     string          `json:"ended_by,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`        // canonical; of a run that is done
	Synthetic   bool            `json:"synthetic,omitempty"`     // it has an output, which is an agent's words
	Labels      []string        `json:"labels,omitempty"`        // that its session held at its end: the output may have such data in it
	Returned    []string        `json:"returned,omitempty"`      // outputs of agents that came back in its input or in what it read
	OutputHash  string          `json:"output_sha256,omitempty"` // of the bytes that came, also of an output that was refused
	Citations   []Checked       `json:"citations,omitempty"`
	Claims      []Confirmed     `json:"claims,omitempty"`
	Quality     Quality         `json:"quality,omitzero"`
	Calls       int             `json:"calls"`            // that ran
	Writes      []string        `json:"writes,omitempty"` // operations that changed something and ran, whatever became of the run
	Tokens      int             `json:"tokens"`           // of models, as their providers counted them; none of a model that was not asked through the gateway
	Recommended string          `json:"recommendation_id,omitempty"`

	Print   []uint64 `json:"-"` // fingerprint of what in its output it did not read, to recognise it when it comes back
	Key     string   `json:"-"` // hash of the idempotency key with who sent it and for which agent; "" for none
	Request string   `json:"-"` // hash of what was asked for, for a key that is sent again
}

// New is a run that is about to begin.
func New(d *agent.Declaration, requester, by string, input json.RawMessage, now time.Time) Run {
	return Run{
		ID: call.NewID("run_", now), Agent: d.AgentID, Kind: d.Run.Kind, Declaration: d.Digest, Requester: requester, StartedBy: by, Status: Running,
		Input: input, Started: now.UTC(), Deadline: now.UTC().Add(time.Duration(d.MaxExecutionTime) * time.Millisecond),
	}
}

// Again tells whether the run answers a request that sends its idempotency key anew: a key stands for one request.
func (r Run) Again(request string) error {
	if r.Request != request {
		return fault.New(fault.Conflict, "This idempotency key was used for another run: %s.", r.ID).At("Idempotency-Key").Try("Send a new key for a new run.")
	}
	return nil
}

// Filter selects runs, the newest first.
type Filter struct {
	Agent   string // "": of any
	Running bool   // only those that have not ended
	After   string // the id of the last one of the page before
	Limit   int
}

// End is how a run ended.
type End struct {
	Status     Status
	Verdict    *fault.Verdict // of every status but Done
	By         string         // who ended it; "": it ended by itself
	Output     json.RawMessage
	OutputHash string
	Print      []uint64
	Labels     []string
	Returned   []string
	Citations  []Checked
	Claims     []Confirmed
	Quality    Quality
	Calls      int
	Tokens     int
	Writes     []string
	Recommends string // the id of the recommendation in the output; "" if there is none
}

// Finish ends the run. Only one that is running can end, and only one that is done has an output.
func (r Run) Finish(e End, now time.Time) (Run, error) {
	switch {
	case r.Status.Final():
		return r, fault.New(fault.Conflict, "The run %s has ended: %s.", r.ID, r.Status)
	case !e.Status.Final() || !slices.Contains(Statuses, e.Status):
		return r, fault.New(fault.Internal, "a run can't end as %q", e.Status)
	case (e.Status == Done) != (e.Output != nil) || (e.Status == Done) != (e.Verdict == nil):
		return r, fault.New(fault.Internal, "a run that ends as %s has an output or a verdict that it may not have", e.Status)
	}
	r.Status, r.Verdict, r.EndedBy, r.Ended = e.Status, e.Verdict, e.By, now.UTC()
	r.Output, r.OutputHash, r.Citations, r.Claims, r.Quality, r.Calls, r.Writes, r.Recommended = e.Output, e.OutputHash, e.Citations, e.Claims, e.Quality, e.Calls, e.Writes, e.Recommends
	r.Synthetic, r.Labels, r.Print, r.Tokens = e.Output != nil, e.Labels, e.Print, e.Tokens
	for _, id := range e.Returned {
		if !slices.Contains(r.Returned, id) {
			r.Returned = append(slices.Clone(r.Returned), id)
		}
	}
	return r, nil
}

// Quality is how good the citations of an output are: what was given, and what of it holds.
type Quality struct {
	Given    int `json:"citations"`
	Verified int `json:"verified"`
	Quotes   int `json:"quotes"`
	Matched  int `json:"quotes_matched"`
}

// Plus adds two.
func (q Quality) Plus(o Quality) Quality {
	return Quality{q.Given + o.Given, q.Verified + o.Verified, q.Quotes + o.Quotes, q.Matched + o.Matched}
}

// QualityOf counts citations that were checked.
func QualityOf(all []Checked) (q Quality) {
	for _, c := range all {
		q.Given++
		if c.Verified {
			q.Verified++
		}
		if c.Quote != "" {
			q.Quotes++
		}
		if c.Quote != "" && c.Verified {
			q.Matched++
		}
	}
	return q
}

// Proof says in words what citations prove: that a source was read is less than that it says so.
func Proof(all []Checked) string {
	q := QualityOf(all)
	sourceOnly := 0
	for _, c := range all {
		if c.Grade == SourceOnly {
			sourceOnly++
		}
	}
	switch {
	case q.Given == 0:
		return "No citations: nothing says where this is from."
	case q.Verified == 0:
		return fmt.Sprintf("None of %d citations could be verified.", q.Given)
	case q.Verified == sourceOnly:
		return fmt.Sprintf("%d of %d citations verified, by source only: the source was read, and nothing shows that it says so.", q.Verified, q.Given)
	}
	return fmt.Sprintf("%d of %d citations verified: %d by a record or a quote that was read, %d by source only.", q.Verified, q.Given, q.Verified-sourceOnly, sourceOnly)
}

// MaxInput bounds the input of a run, in bytes.
const MaxInput = 64 << 10

// ReadInput reads the input of a run: one JSON object within bounds, in canonical form.
func ReadInput(input json.RawMessage) (json.RawMessage, error) {
	if len(input) == 0 {
		return nil, fault.New(fault.RequestMalformed, "is missing: a run needs an object, such as {\"user_request\": \"…\"}").At("input")
	}
	if len(input) > MaxInput {
		return nil, fault.New(fault.RequestMalformed, "has more than %d bytes", MaxInput).At("input")
	}
	canonical, err := call.Canonical(input, call.Limits{Bytes: MaxInput, Depth: 32, Members: 10_000})
	if err != nil {
		return nil, fault.Wrap(err, fault.RequestMalformed, "%s", fault.Of(err).Message).At("input")
	}
	if !call.IsObject(canonical) {
		return nil, fault.New(fault.RequestMalformed, "must be a JSON object").At("input")
	}
	return canonical, nil
}

// UserRequest is the member of an input that a host passes a person's words in.
const UserRequest = "user_request"

// Words are the words of the person in an input: of one that a person sent every text of it, of one that a host sent user_request alone.
func Words(input json.RawMessage, fromPerson bool) string {
	if !fromPerson {
		text, _ := call.GetText(input, UserRequest)
		return text
	}
	var words []string
	call.Strings(input, func(path, s string) bool {
		if !strings.HasSuffix(path, "{}") { // the names of members are not the person's
			words = append(words, s)
		}
		return true
	})
	return strings.Join(words, "\n")
}
