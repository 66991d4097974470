package effect

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
	"sallyport.example/provenance"
)

// model asks a model. Its arguments are a request with its form (wire.Packed), its result the provider's answer with status and headers.
type model struct {
	op    *catalogue.Operation
	terms Terms
}

// Terms are what the gateway makes of the requests of the agent and session that ask a model.
type Terms struct {
	Message string                                                      // the system message that stands in front of each; "": none
	Output  int64                                                       // the most tokens that an answer may have
	Left    *int64                                                      // how many tokens the session's run has left for requests and answers; nil: it is of no run
	Counted bool                                                        // what a request uses is counted, so its answer has to be bounded
	Hosted  []string                                                    // tools that the declaration lets a provider run
	Hosts   bool                                                        // the request has some
	Mask    func(request []byte) (masked []byte, placeholders []string) // replaces secrets in it; nil: they stay
	Hold    bool                                                        // nothing of a streamed answer leaves before its outcome
	// Schema has use called with the check that a schema is (nil: it can't be read here), when it is the agent's turn; an error says that the request was ended before.
	Schema func(ctx context.Context, schema json.RawMessage, use func(check func([]byte) error)) error
}

// OnTerms is the effect under these terms, if it asks a model; any other is as it was.
func OnTerms(e Effect, t Terms) Effect {
	if m, ok := e.(model); ok {
		m.terms = t
		return m
	}
	return e
}

// Asks tells whether the effect asks a model.
func Asks(e Effect) bool {
	_, ok := e.(model)
	return ok
}

// Hosting is the effect with the operation that it is where the provider runs tools for the request, and these tools; of any other they are none.
func Hosting(e Effect, parameters []byte) (_ Effect, tools []string) {
	m, ok := e.(model)
	if !ok {
		return e, nil
	}
	tools = wire.HostedIn(wire.Unpack(parameters).Body)
	m.terms.Hosts = len(tools) > 0
	return m, tools
}

// ProviderFails tells whether a result is a provider's own error that says something of the provider: that it failed, waited for too long, or has too much to do.
func ProviderFails(e Effect, result json.RawMessage) bool {
	status := providerStatus(e, result)
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

// ProviderFailed tells whether a result is a provider's own error that says nothing of the request (5xx).
func ProviderFailed(e Effect, result json.RawMessage) bool {
	return providerStatus(e, result) >= 500
}

// providerStatus is the HTTP status of a model's answer; 0 of everything else.
func providerStatus(e Effect, result json.RawMessage) int {
	if !Asks(e) {
		return 0
	}
	raw, _ := call.Get(result, "status")
	status, _ := strconv.Atoi(string(raw))
	return status
}

// Embeds tells whether a request to a model asks for embeddings.
func Embeds(arguments json.RawMessage) bool { return wire.Unpack(arguments).Form == wire.Embeddings }

// AskInstead is a request to a model as one to another.
func AskInstead(arguments json.RawMessage, id string) (json.RawMessage, error) {
	arguments, err := call.Canonical(arguments, call.DefaultLimits())
	if err != nil {
		return nil, err
	}
	r := wire.Unpack(arguments)
	name, err := call.Encode(id)
	if err != nil {
		return nil, err
	}
	r.Body = call.SetSorted(r.Body, "model", name)
	return wire.Packed(r)
}

// askable finds a model by its id. Which of those are configured that its declaration does not name, no agent learns.
func askable(snap *catalogue.Snapshot, id string) (Effect, error) {
	if op := snap.Model(id); op != nil {
		return model{op: op}, nil
	}
	if !agent.Pinned(id) {
		return nil, fault.New(fault.ModelUnpinned, "%s is not a name that stays with one version, and the configuration has no pinned: true for it.", display.Quote(id, 80)).At("model").
			Try("Name an exact version, like claude-sonnet-4-5-20250929; it has to be in the agent's declaration, under dataSources.models, and in the configuration.")
	}
	return nil, fault.New(fault.ModelUndeclared, "The declaration and the configuration do not both name the model %s.", display.Quote(id, 80)).At("model").
		Try("Use a model of the list of models. An operator can add one to models in sallyport.yaml and to dataSources.models of the declaration.")
}

// Conversation is what a call sends to a model, part by part, without what the gateway put in front; nil of everything that is no request to a model.
func Conversation(e Effect, parameters []byte) []wire.Block {
	m, ok := e.(model)
	if !ok {
		return nil
	}
	r := wire.Unpack(parameters)
	return wire.Blocks(r.Form, r.Body, m.terms.Message)
}

func (m model) Operation() *catalogue.Operation {
	if m.terms.Hosts {
		return m.op.Hosting
	}
	return m.op
}

func (m model) Definition() string { return m.op.Hash }
func (model) Traits() Traits       { return Traits{Converses: true, OwnWords: true} }

// Parameters reads the request, and makes of it what is sent. A request of another provider's form is refused.
func (m model) Parameters(arguments []byte) (Parameters, error) {
	asked := wire.Unpack(arguments)
	if asked.Form.Provider() != m.op.Model.Provider {
		return Parameters{Canonical: arguments}, fault.New(fault.RequestMalformed, "The model is of the provider %s, whose requests have another form.", m.op.Model.Provider).At("model").
			Try("Use the base address /%s of the gateway.", m.op.Model.Provider)
	}
	var masked []string
	if m.terms.Mask != nil {
		asked.Body, masked = m.terms.Mask(asked.Body)
		body, err := call.Canonical(asked.Body, call.DefaultLimits()) // a name that was masked stands elsewhere
		if asked.Body = body; err != nil || !call.IsObject(body) {
			return Parameters{Canonical: arguments}, fault.New(fault.RequestMalformed, "The secrets in the request can't be masked.").Try("Take them out.")
		}
	}
	r, err := wire.Parse(asked.Form, asked.Beta, asked.Body, wire.Allowed{Operator: m.op.Model.Allow, Hosted: m.terms.Hosted})
	if err != nil {
		return Parameters{Canonical: arguments}, err
	}
	if r.Version = asked.Version; r.Form.Provider() == wire.Anthropic && !slices.Contains(wire.Versions, r.Version) {
		return Parameters{Canonical: arguments}, fault.New(fault.RequestMalformed, "The gateway's lists are for the versions %s of the API.", strings.Join(wire.Versions, " and ")).At("anthropic-version")
	}
	if r.Body, err = wire.Instruct(r.Form, r.Body, m.terms.Message); err != nil {
		return Parameters{Canonical: arguments}, err
	}
	lowered, err := m.bound(&r)
	if err != nil {
		return Parameters{Canonical: arguments}, err
	}
	packed, err := wire.Packed(r)
	if most := call.DefaultLimits().Bytes; err == nil && len(packed) > most {
		err = fault.New(fault.RequestMalformed, "With the system message the request is over %d bytes.", most).Try("Send a shorter conversation.")
	}
	return Parameters{Canonical: packed, Lowered: lowered, Masked: masked}, err
}

// bound lowers how many tokens the answer may have to what the declaration allows, and to what the run has left.
func (m model) bound(r *wire.Request) (lowered int64, err error) {
	most := m.terms.Output
	if left := m.terms.Left; left != nil {
		most = min(most, *left-wire.Estimate(r.Form, r.Body))
	}
	if most <= 0 {
		return 0, fault.New(fault.LimitQuota, "Nothing of the declaration's maxTokens is left for an answer.").Try("Ask for less, or raise maxTokens in the declaration.")
	}
	r.Body, lowered = wire.LimitOutput(r.Form, r.Body, most, m.terms.Counted)
	return lowered, nil
}

// Uses are the tokens that a request to a model may take, and what they may cost in millionths; nothing of another call.
func Uses(e Effect, parameters []byte) (tokens, cost int64) {
	m, ok := e.(model)
	if !ok {
		return 0, 0
	}
	r := wire.Unpack(parameters)
	u := AtMost(r)
	return u.Input + u.Output, m.cost(u)
}

// AtMost is what a request may use, as long as its provider has counted nothing.
func AtMost(r wire.Request) wire.Usage {
	return wire.Usage{Input: wire.Estimate(r.Form, r.Body), Output: wire.OutputLimit(r.Form, r.Body), Estimated: true}
}

func (m model) cost(u wire.Usage) int64 {
	if m.op.Model.Price == nil {
		return 0
	}
	return m.op.Model.Price.Cost(u)
}

func (model) Check([]byte) error                    { return nil }
func (model) Writes([]byte) (writes bool, _ string) { return false, "" }
func (model) Stored([]byte) string                  { return "" }
func (model) Renew(context.Context, Upstreams) error {
	return nil // the operator names the version
}

func (model) Inputs(context.Context, string, []byte) (*call.Inputs, error) { return nil, nil }

func (m model) Act(ctx context.Context, r Run) (Result, error) {
	asked := wire.Unpack(r.Parameters.Canonical)
	if asked.Stream {
		return m.stream(ctx, r, asked)
	}
	answer, err := r.Models.Ask(ctx, asked, r.Exchange.Room)
	if err != nil {
		used, said := wire.UsageOf(answer.Body)
		if !said { // nobody knows how much of an answer that did not come was made
			used = AtMost(asked)
		}
		return Result{Record: m.failed(answer.Status, err, used)}, err
	}
	return m.answered(ctx, asked, answer)
}

// answered is the result of an answer that came whole.
func (m model) answered(ctx context.Context, asked wire.Request, answer wire.Response) (Result, error) {
	b, err := call.Encode(map[string]any{"status": json.RawMessage(strconv.Itoa(answer.Status)), "headers": answer.Headers, "body": answer.Body})
	used, said := wire.UsageOf(answer.Body)
	if !said && answer.Status == http.StatusOK && asked.Form != wire.Count {
		used = wire.Usage{Input: wire.Estimate(asked.Form, asked.Body), Output: min(wire.EstimateText(string(answer.Body)), max(1, wire.OutputLimit(asked.Form, asked.Body))), Estimated: true}
	}
	schema, mismatch := "", error(nil)
	if answer.Status == http.StatusOK && wire.SchemaOf(asked.Form, asked.Body) != nil {
		schema, mismatch = m.matches(ctx, asked, wire.StructuredIn(asked.Form, answer.Body))
	}
	result := Result{JSON: b, Record: m.record(answer.Status, used, schema)}
	if answer.Status != http.StatusOK {
		return result, err
	}
	if mismatch != nil {
		return Result{Record: result.Record}, mismatch
	}
	result.called(asked, wire.CallsIn(asked.Form, answer.Body), nil)
	return result, err
}

// matches checks the texts of a structured answer (nil: it is none) against the schema of its request. A schema that is not read here, as one that refers to itself, is
// left to the provider. schema is for the outcome: "checked", "unread", or "" of what is no structured answer, or was not looked at.
func (m model) matches(ctx context.Context, asked wire.Request, texts [][]byte) (schema string, mismatch error) {
	if texts == nil {
		return "", nil
	}
	err := m.terms.Schema(ctx, wire.SchemaOf(asked.Form, asked.Body), func(check func([]byte) error) {
		if schema = "unread"; check != nil {
			schema, mismatch = "checked", match(texts, check)
		}
	})
	if err != nil {
		return "", err
	}
	return schema, mismatch
}

// match says what of the texts of a structured answer does not match. Of several the last one has to match, and any other that is JSON: clients take the first
// or the last.
func match(texts [][]byte, check func([]byte) error) error {
	if len(texts) == 0 {
		texts = [][]byte{{}}
	}
	for i, text := range texts {
		if err := call.Check(text, call.DefaultLimits()); err != nil {
			if i < len(texts)-1 {
				continue
			}
			return fault.New(fault.OutputInvalid, "The model's answer was discarded, since it is not strict JSON, or is too large or too deep.").Try("Ask again, or ask for a simpler or shorter form.")
		}
		if err := check(text); err != nil { // it quotes the answer, so it is no cause
			return fault.New(fault.OutputInvalid, "The model's answer was discarded, since it does not match the schema of the request%s.", catalogue.Problems(err)).Try("Ask again, or ask for a simpler form.")
		}
	}
	return nil
}

// called notes what the answer asks its client to call. pieces are arguments that came in pieces; some come whole as well.
func (r *Result) called(asked wire.Request, calls []wire.Called, pieces []string) {
	if len(calls) == 0 && len(pieces) == 0 {
		return
	}
	described := wire.Described(asked.Form, asked.Body)
	seen := map[string]bool{"": true}
	give := func(arguments string) {
		if !seen[arguments] {
			seen[arguments], r.Given = true, append(r.Given, arguments)
		}
	}
	for _, one := range calls {
		r.Calls = append(r.Calls, Function{one.Name, described[one.Name]})
		give(one.Arguments)
	}
	for _, text := range pieces {
		give(text)
	}
}

// record is what the outcome says of an answer. The quotas are settled by it. schema is what matches says.
func (m model) record(status int, used wire.Usage, schema string) json.RawMessage {
	all := map[string]any{"status": status}
	if schema != "" {
		all["schema"] = schema
	}
	if used != (wire.Usage{}) {
		all["tokens"] = used
		if m.op.Model.Price != nil {
			all["cost_millionths"] = m.cost(used)
		}
	}
	detail, _ := json.Marshal(all) // of numbers and a word: can't fail
	return detail
}

// failed is what the outcome says of a request without an answer. An error of the provider's costs nothing, nor does a request that never left.
func (m model) failed(status int, err error, used wire.Usage) json.RawMessage {
	if unsent(err) || status != 0 && status != http.StatusOK {
		return nil
	}
	return m.record(status, used, "")
}

// stream asks for an answer in pieces, and hands its text on as it comes. What can act stays in the result, as the rest.
func (m model) stream(ctx context.Context, r Run, asked wire.Request) (Result, error) {
	var left []byte
	var calls []wire.Called
	unknown := 0
	var structured [][]byte
	whole := map[string]*strings.Builder{} // of each block and each call's arguments; the stream is bounded, and so are they
	given := map[string]bool{}             // which of them are arguments
	window := wire.NewWindow(r.Release == nil || m.terms.Hold || wire.MustHold(asked.Form, asked.Body))
	answer, used, err := r.Models.Stream(ctx, asked, r.Exchange.Room, func(e wire.Event) error {
		calls = append(calls, e.Calls...)
		if e.Structured != nil {
			structured = e.Structured
		}
		if e.Unknown {
			unknown++
		}
		for _, part := range e.Args {
			if whole[part.Of] == nil {
				whole[part.Of] = new(strings.Builder)
			}
			whole[part.Of].WriteString(part.Text)
			given[part.Of] = part.Call
		}
		piece, text, known := window.Add(e)
		if len(piece) == 0 {
			return nil
		}
		if err := r.Release(piece, text, known); err != nil {
			return err
		}
		left = append(left, piece...)
		return nil
	})
	if answer.Status != http.StatusOK && err == nil { // an error of the provider's, which comes whole
		return m.answered(ctx, asked, answer)
	}
	if used.Input == 0 {
		used.Input, used.Estimated = wire.Estimate(asked.Form, asked.Body), true
	}
	if used.Output == 0 || err != nil { // of an answer that was cut the provider has counted the beginning at most
		came := int64(0)
		for _, text := range whole {
			came += wire.EstimateText(text.String())
		}
		if came > used.Output {
			used.Output, used.Estimated = came, true
		}
	}
	if err != nil {
		return Result{Record: m.failed(answer.Status, err, used)}, err
	}
	schema, mismatch := m.matches(ctx, asked, structured)
	if mismatch != nil {
		return Result{Record: m.record(answer.Status, used, schema)}, mismatch
	}
	b, err := call.Encode(map[string]any{"status": json.RawMessage("200"), "headers": answer.Headers, "left": string(left), "rest": string(window.Rest())})
	result := Result{JSON: b, Record: m.record(answer.Status, used, schema), Unknown: unknown}
	var pieces []string
	for of, text := range whole {
		result.Looked = append(result.Looked, text.String())
		if given[of] {
			pieces = append(pieces, text.String())
		}
	}
	result.called(asked, calls, pieces)
	return result, err
}

// Failed knows that a request to a model changes nothing but what the provider has read, unless the provider runs tools for it.
func (m model) Failed(err error, _ bool) Failure {
	return Failure{Nothing: !m.terms.Hosts || unsent(err)}
}

// Inspect tells the provider's own errors.
func (model) Inspect(c *Content) (failed bool, err error) {
	raw, _ := call.Get(c.JSON, "status")
	status, err := strconv.Atoi(string(raw))
	if err != nil {
		return false, fault.New(fault.ResultInvalid, "The provider's answer has no status; it was discarded.")
	}
	return status >= 400, nil
}

// Payloads are none: what a model says confirms nothing.
func (model) Payloads(*Content) ([]provenance.Value, bool) { return nil, false }

// Wrap has nothing to fence: the answer is the agent's own thinking.
func (model) Wrap(c *Content, _ Envelope) (wrapped, attribution json.RawMessage, err error) {
	return c.JSON, nil, nil
}

func (model) Refusal(json.RawMessage) (json.RawMessage, bool) { return nil, false }
