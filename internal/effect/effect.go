// Package effect holds the kinds of effect that a call can have: calling a server's tool, reading or subscribing to its resource, getting its
// prompt, completing an argument, and running a built-in command. An Effect says how its parameters are read, what is known about it before it is
// judged, how it acts, and how its result is read, fenced and attributed.
//
// Promises: an effect decides nothing, and gets values and never the call itself. It acts only when the corridor calls Act, with the very bytes
// that were judged, and only the corridor releases its results. docs/design.md says how a kind is added.
package effect

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
	"sallyport.example/provenance"
)

// Effect describes and runs one call. Its methods are pure but for Act.
type Effect interface {
	// Operation returns the operation that is called, as the catalogue has it.
	Operation() *catalogue.Operation
	// Traits are what holds for every call of it.
	Traits() Traits
	// Definition is the hash of the operation, as digests and questions to people have it.
	Definition() string

	// Parameters reads the canonical arguments of a call. An error refuses it.
	Parameters(arguments []byte) (Parameters, error)
	// Check returns the problem with parameters; nil if there is none. It runs once the call is permitted, so its message may show what exists.
	Check(parameters []byte) error
	// Writes tells whether parameters make the call change something, and why, if the operation itself is labelled a read.
	Writes(parameters []byte) (writes bool, why string)
	// Stored is the id of the operation whose stored results the parameters ask for; "" if they ask for none.
	Stored(parameters []byte) string

	// Inputs are what the parameters make it read of the session's workspace, as it is now; nil: nothing. A person who is asked is shown them, and
	// Act compares what was shown.
	Inputs(ctx context.Context, session string, parameters []byte) (*call.Inputs, error)

	// Renew makes sure that the catalogue has the operation as its server offers it now.
	Renew(ctx context.Context, u Upstreams) error

	// Act has the effect, bounded by ctx. Its errors are fault errors, a *fault.NotDispatched, or a *call.RPCError; beside them a result has nothing but its Record.
	Act(ctx context.Context, r Run) (Result, error)
	// Failed says what a failure of Act means.
	Failed(err error, writes bool) Failure

	// Inspect tells whether a result says of itself that it failed. An error, which is a *fault.Error, says that it can't be delivered.
	Inspect(c *Content) (failed bool, err error)
	// Payloads are the values and texts in a result, each once. plain says that there is nothing else in it. What can't be read has none.
	Payloads(c *Content) (all []provenance.Value, plain bool)
	// Wrap fences what is untrusted in a result, and attributes it. It fails where the result is not one of its kind.
	Wrap(c *Content, e Envelope) (wrapped, attribution json.RawMessage, err error)
	// Refusal is a server's error object as a result, to be wrapped; false if results of this kind can't say that they failed.
	Refusal(object json.RawMessage) (result json.RawMessage, ok bool)
}

// Traits are what is known of an effect before it is called.
type Traits struct {
	NeedsReasons     bool              // the agent has to say why: by a justification, a declaration or a step of the sealed plan
	Requests         bool              // it reaches out, so it counts against the external requests of a minute (EX-5)
	Traced           bool              // provenance decides about its calls
	ReadsNothing     bool              // its result has nothing for the agent to read
	OwnWords         bool              // its result is the gateway's own words, so it makes no session untrusted
	Converses        bool              // it sends the agent's conversation to a model: the conversation is read part by part, and the time is none of the session's budget
	AttributionApart bool              // its attribution also stands beside its result
	Places           map[string]string // the parameters that say where it reads, by name: path, repository or table
}

// Parameters are the parameters of a call.
type Parameters struct {
	Canonical []byte   // the bytes that are judged, hashed and kept
	Selects   []byte   // the part of it that selects the data to read, if that is not all of it
	Masked    []string // of a request to a model: the placeholders that stand in it in place of secrets
	Lowered   int64    // of a request to a model: how many tokens its answer may have, which are fewer than it asked for; 0: as many

	// Beside the parameters, for an effect that needs reasons.
	Justification json.RawMessage
	Declaration   json.RawMessage // a declaration's id
	Problem       error           // the problem with the justification or the id
}

// Run is one permitted run.
type Run struct {
	Session    string
	Parameters Parameters
	Inputs     *call.Inputs // those that a person was shown; nil: nobody was asked, or there are none
	Upstreams  Upstreams
	Models     Models
	// Release lets a piece of the result leave before the outcome, once the corridor has looked at the text: known bytes that left before, and all of the
	// piece. It keeps neither. An error ends the effect. nil: nothing leaves before.
	Release  func(piece, text []byte, known int) error
	Exchange *call.Exchange // messages that may pass meanwhile; the corridor guards it

	// Agent is who calls, and Collections and Labels what it may read of the knowledge store.
	Agent               string
	Collections, Labels []string
	// Ask asks a model as the session does.
	Ask func(ctx context.Context, form wire.Form, body json.RawMessage) (json.RawMessage, error)
}

// Result is the raw result of Act.
type Result struct {
	JSON   json.RawMessage
	Source string    // where the result is from; "": the operation
	At     time.Time // when it was fetched; zero: now

	Labels  []string        // labels that it brings besides those of the operation
	Looked  []string        // texts in it as its reader puts them together, for the detector: JSON has only their pieces
	Calls   []Function      // functions that a model's answer asks its client to call
	Given   []string        // what it gives them as arguments, each once
	Unknown int             // events of a model's answer that are of no known form
	Clean   bool            // it makes no session untrusted
	Record  json.RawMessage // members for the detail of its entry: an object; nil: none
	Sealed  bool            // the log has neither the result nor a hash of it
	// Confirms are the trusted records in a result whose text is not kept: a list of objects; nil: none.
	Confirms json.RawMessage
}

// Function is a function of an agent's own program, as a request to a model describes it.
type Function struct{ Name, Description string }

// Hash is the function's, of a fixed length.
func (f Function) Hash() [sha256.Size]byte {
	return sha256.Sum256([]byte(f.Name + "\x00" + f.Description))
}

// Failure says what a failure of Act means.
type Failure struct {
	Nothing bool // it certainly had no effect
	Tells   bool // the failure can show what it reached, so the session gets the labels of its results
}

// Upstreams carries permitted calls to the servers behind us. Implementations bound time by ctx, size by their own limits, and
// return fault errors: UpstreamFailed (a *fault.NotDispatched if the request certainly never left), ResultTooLarge, ResultInvalid,
// TimeExceeded. A JSON-RPC error of the server is a *call.RPCError.
type Upstreams interface {
	// List takes the server's lists anew, and returns once they are delivered: from then on the catalogue has what the server offers now.
	List(ctx context.Context, server string) error
	// Do sends one request and waits for its result. params is complete except for _meta, which the implementation owns.
	Do(ctx context.Context, server, method string, params json.RawMessage, x *call.Exchange) (json.RawMessage, error)
}

// Models carries permitted requests to the providers of models. Implementations bound size by their own limits, and return fault errors: UpstreamFailed (a
// *fault.NotDispatched if the request certainly never left), ResultTooLarge, ResultInvalid, OutputInvalid where the answer is another model's.
type Models interface {
	// Ask returns an answer whole. Beside an error the response has the answer's status and body, as far as they came.
	Ask(ctx context.Context, r wire.Request, room call.Room) (wire.Response, error)
	// Stream hands over each event of an answer as it comes; an error of each ends it. An error of the provider's that came in place of an answer is a
	// Response with a body. What was used is known as far as the answer says it.
	Stream(ctx context.Context, r wire.Request, room call.Room, each func(e wire.Event) error) (wire.Response, wire.Usage, error)
}

// served holds what the effects on servers behind us have in common.
type served struct{ op *catalogue.Operation }

func (s served) Operation() *catalogue.Operation { return s.op }
func (served) Check([]byte) error                { return nil }
func (served) Stored([]byte) string              { return "" }
func (s served) Renew(ctx context.Context, u Upstreams) error {
	return u.List(ctx, s.op.Server)
}
func (served) Inputs(context.Context, string, []byte) (*call.Inputs, error) {
	return nil, nil
}

// Writes goes by the operator's label, and by the arguments of a tool that is labelled a read.
func (s served) Writes(parameters []byte) (writes bool, why string) {
	op := s.op
	if why = op.Acts; why == "" && op.Flow.Effect == flow.Read && op.Kind == call.Tool {
		why = op.Class.Reading(op.Server, op.Tool).Acts(parameters)
	}
	if why == "" {
		why = op.Beyond
	}
	return op.Flow.Effect != flow.Read || why != "", why
}

// Failed does not assume anything about what a server did with a request that was sent.
func (served) Failed(err error, _ bool) Failure { return Failure{Nothing: unsent(err)} }

func (s served) Inspect(c *Content) (failed bool, err error) {
	return inspect(s.op, c)
}

func (served) Refusal(json.RawMessage) (json.RawMessage, bool) { return nil, false }

// do sends a request to the operation's server.
func (s served) do(ctx context.Context, r Run, m call.Method, params json.RawMessage) (Result, error) {
	b, err := r.Upstreams.Do(ctx, s.op.Server, string(m), params, r.Exchange)
	return Result{JSON: b}, err
}

// asOther is the definition hash for a method other than the one whose definition is pinned, so that approving a read approves no subscription.
func (s served) asOther(m call.Method) string {
	return call.HashBytes([]byte(s.op.Hash + "\x00" + string(m)))
}

func unsent(err error) bool {
	var e *fault.NotDispatched
	return errors.As(err, &e)
}
