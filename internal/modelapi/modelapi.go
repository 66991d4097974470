// Package modelapi is the door by which agents ask models: the paths of Anthropic's and OpenAI's own APIs, on the agents' listener. An SDK works with its
// base URL set to this door, and with the agent's or the session's token as its key.
//
// Promises: only the credential tells who asks and in which session: no header, user or metadata field does. A request reaches a provider only through
// Gateway.Call. Every refusal is an error in the provider's own form, with the verdict beside it and a header that asks for no retry. Paths that are not
// served are refused with words. An answer leaves only after its outcome is durable.
package modelapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/memory"
	"sallyport.example/internal/models/wire"
	"sallyport.example/internal/web"
)

// Gateway is the corridor as this door uses it. It is safe for concurrent use. Errors are fault errors.
type Gateway interface {
	// Call always returns a verdict, and a result only if the verdict permits.
	Call(ctx context.Context, r gateway.Request) gateway.Answer
	// Models returns the models that the principal's agent may ask, by id.
	Models(ctx context.Context, p identity.Principal) ([]*catalogue.Operation, error)
	// Refused records a request that was refused without a call. It does not wait for the store.
	Refused(a gateway.Attempt, v fault.Verdict)
}

// Options are the options of New. Authenticate is needed.
type Options struct {
	// Authenticate returns the principal of a secret for one request. It answers from memory.
	Authenticate func(secret string) (identity.Principal, error)

	Log    *slog.Logger     // nil: no log
	Clock  func() time.Time // nil: time.Now
	Memory *memory.Budget   // for the requests; nil: there is no bound
}

// Face serves the door. Make it with New.
type Face struct {
	g   Gateway
	o   Options
	web web.Face
}

// Door is the door's name in records.
const Door = "model"

// The headers that say who asks, and in which version of the API.
const (
	headerKey     = "X-Api-Key"
	headerVersion = "Anthropic-Version"
	headerBeta    = "Anthropic-Beta"
	headerOpenAI  = "Openai-Beta"
)

// New returns a Face that is ready to serve.
func New(g Gateway, o Options) *Face {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	f := &Face{g: g, o: o}
	f.web = web.Face{
		Log: o.Log, NewID: func() string { return call.NewID("req_", f.o.Clock()) }, Single: []string{headerKey, headerVersion, headerBeta, headerOpenAI},
		Refused: func(r *http.Request, err error) { f.record(r, identity.Principal{}, "", err) },
		Answer:  f.turnAway,
	}
	return f
}

// Serves tells whether a path is this door's.
func Serves(path string) bool {
	return path == "/openai" || path == "/anthropic" || strings.HasPrefix(path, "/openai/") || strings.HasPrefix(path, "/anthropic/")
}

// maxBody bounds one request: what the corridor takes.
var maxBody = int64(call.DefaultLimits().Bytes)

// Handler serves the paths that Serves tells.
func (f *Face) Handler() http.Handler { return f.web.Handler(http.HandlerFunc(f.serve)) }

func (f *Face) serve(w http.ResponseWriter, r *http.Request) {
	provider := providerOf(r)
	path := strings.TrimPrefix(r.URL.Path, "/"+string(provider))
	a := asked{f: f, w: w, r: r, provider: provider}
	id, one := strings.CutPrefix(path, "/v1/models/")
	if !one {
		id = ""
	}
	switch {
	case path == "/v1/models" || one:
		a.method(http.MethodGet, func() { a.list(id) })
		return
	case path == "/v1/messages" && provider == wire.Anthropic:
		a.form = wire.Messages
	case path == "/v1/messages/count_tokens" && provider == wire.Anthropic:
		a.form = wire.Count
	case path == "/v1/responses" && provider == wire.OpenAI:
		a.form = wire.Responses
	case path == "/v1/chat/completions" && provider == wire.OpenAI:
		a.form = wire.Chat
	case path == "/v1/embeddings" && provider == wire.OpenAI:
		a.form = wire.Embeddings
	default:
		a.refuse(web.WithStatus(http.StatusNotFound, fault.New(fault.NotFound, "The model door does not serve this path.").
			Try("It serves /anthropic/v1/messages, /anthropic/v1/messages/count_tokens, /anthropic/v1/models, /openai/v1/chat/completions, /openai/v1/responses, /openai/v1/embeddings and /openai/v1/models.")))
		return
	}
	a.method(http.MethodPost, a.ask)
}

func providerOf(r *http.Request) wire.Provider {
	if strings.HasPrefix(r.URL.Path, "/anthropic") {
		return wire.Anthropic
	}
	return wire.OpenAI
}

// turnAway answers for a request that is refused before the door looks at it, or whose handler panicked.
func (f *Face) turnAway(w http.ResponseWriter, r *http.Request, err error) {
	(&asked{f: f, w: w, r: r, provider: providerOf(r)}).say(err)
}

// asked is one HTTP request.
type asked struct {
	f        *Face
	w        http.ResponseWriter
	r        *http.Request
	provider wire.Provider
	form     wire.Form // "" where a list is asked for
	p        identity.Principal
	begun    bool   // a piece of the answer has left
	what     string // the model that it asks; "" as long as that is not read
}

// method goes on where the method is the one that the path has, and the credential is good.
func (a *asked) method(method string, next func()) {
	if a.r.Method != method {
		a.w.Header().Set("Allow", method)
		a.refuse(web.WithStatus(http.StatusMethodNotAllowed, fault.New(fault.RequestMalformed, "The method is %s.", method)))
		return
	}
	var err error
	if a.p, err = a.principal(); err == nil {
		err = a.headers()
	}
	if err != nil {
		a.refuse(err)
		return
	}
	next()
}

// principal returns the principal of the credential, which must be an agent's or a session's.
func (a *asked) principal() (identity.Principal, error) {
	secret, ok := identity.Bearer(a.r.Header.Get("Authorization"))
	if key := a.r.Header.Get(headerKey); key != "" {
		other, good := identity.Bearer("Bearer " + key)
		if ok && (!good || other != secret) {
			return identity.Principal{}, fault.New(fault.CredentialMissing, "Authorization and X-Api-Key name two credentials.").Try("Send one of them.")
		}
		secret, ok = other, good
	}
	if !ok {
		return identity.Principal{}, fault.New(fault.CredentialMissing, "The key is the token of an agent or of a session of this gateway, and not the provider's.").
			Try("Use the session's token that sallyport run sets, or one that sallyport token create --agent ID makes.")
	}
	p, err := a.f.o.Authenticate(secret)
	if err != nil {
		return p, err
	}
	if err := web.Claim(a.r, p.Whose()); err != nil {
		return p, err
	}
	if p.Kind != identity.Agent && p.Kind != identity.Session {
		return p, fault.New(fault.CredentialWrongKind, "This is a %s's token, and models are asked by agents.", p.Kind).
			Try("Use an agent's token (sallyport token create --agent ID) or a session's.")
	}
	return p, nil
}

// headers checks what the headers and the query say about the form of the request.
func (a *asked) headers() error {
	if a.r.Header.Get(headerOpenAI) != "" {
		return fault.New(fault.RequestMalformed, "No feature of this header passes.").At("openai-beta")
	}
	if q := a.r.URL.RawQuery; q != "" && (q != "beta=true" || a.provider != wire.Anthropic) {
		return fault.New(fault.RequestMalformed, "The path takes no parameters.")
	}
	return nil
}

// ask takes one request through the corridor.
func (a *asked) ask() {
	hold, err := a.f.o.Memory.Take(a.r.Context(), a.p.Whose(), web.Announced(a.r, maxBody))
	defer hold.Release() // when the answer has left
	var body []byte
	if err == nil {
		body, err = web.JSON(a.w, a.r, maxBody, false, hold)
	}
	if err == nil {
		err = call.Check(body, call.DefaultLimits())
	}
	if err == nil && !call.IsObject(body) {
		err = fault.New(fault.RequestMalformed, "A request is an object.")
	}
	if err != nil {
		a.refuse(err)
		return
	}
	a.what = wire.ModelOf(body)
	var beta []string
	for name := range strings.SplitSeq(a.r.Header.Get(headerBeta), ",") {
		if name = strings.TrimSpace(name); name != "" {
			beta = append(beta, name)
		}
	}
	version := ""
	if a.provider == wire.Anthropic {
		version = cmp.Or(a.r.Header.Get(headerVersion), wire.Versions[0])
	}
	packed, err := wire.Packed(wire.Request{Form: a.form, Beta: beta, Version: version, Body: body})
	if err != nil {
		a.refuse(err)
		return
	}
	answer := a.f.g.Call(a.r.Context(), gateway.Request{
		Principal: a.p, Method: call.AskModel, Tool: a.what, Arguments: packed, Door: Door, Exchange: call.Exchange{Room: hold}, Stream: a.piece, Lowered: a.lowered,
		Instead: func(model string) { a.w.Header().Set(headerInstead, model) },
	})
	if answer.Verdict.Decision != fault.Permit || answer.Result == nil {
		a.refused(answer.Verdict)
		return
	}
	a.deliver(answer.Result)
}

// headerLimit says how many tokens an answer may have, where that is fewer than the request asked for.
const headerLimit = "X-Sallyport-Max-Tokens"

// headerInstead names the model that was asked because the one of the request failed.
const headerInstead = "X-Sallyport-Fallback"

func (a *asked) lowered(tokens int64) { a.w.Header().Set(headerLimit, strconv.FormatInt(tokens, 10)) }

// piece hands over a piece of an answer that is streamed.
func (a *asked) piece(events []byte) error {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "text/event-stream")
		a.w.WriteHeader(http.StatusOK)
	}
	if _, err := a.w.Write(events); err != nil {
		return err
	}
	return http.NewResponseController(a.w).Flush()
}

// deliver hands over what the provider answered. Of an answer that is streamed that is the rest.
func (a *asked) deliver(result json.RawMessage) {
	if rest, is := call.GetText(result, "rest"); is {
		if !a.begun {
			a.passHeaders(result)
		}
		if err := a.piece([]byte(rest)); err != nil {
			a.f.o.Log.Debug("the end of an answer did not reach its client", "error", err)
		}
		return
	}
	a.passHeaders(result)
	raw, _ := call.Get(result, "status")
	status, _ := strconv.Atoi(string(raw)) // inspected
	body, _ := call.Get(result, "body")
	a.write(status, body)
}

// passHeaders sets the headers of the provider's that SDKs read.
func (a *asked) passHeaders(result json.RawMessage) {
	headers, _ := call.Get(result, "headers")
	for name, v := range call.Members(headers) {
		if value, ok := call.Text(v); ok {
			a.w.Header().Set(name, value)
		}
	}
}

func (a *asked) write(status int, body []byte) {
	a.w.Header().Set("Content-Type", "application/json")
	a.w.WriteHeader(status)
	if _, err := a.w.Write(body); err != nil {
		a.f.o.Log.Debug("an answer did not reach its client", "error", err)
	}
}

// refuse answers for a request that was refused before it was a call, and puts that on record.
func (a *asked) refuse(err error) {
	a.f.record(a.r, a.p, a.what, err)
	a.say(err)
}

// say answers with an error as a refusal.
func (a *asked) say(err error) {
	v := fault.RefuseErr("door", err)
	v.RequestID = web.RequestID(a.r.Context())
	a.fail(statusOf(err, v.Code), v)
}

// refused answers for a call that the corridor refused, or that failed.
func (a *asked) refused(v fault.Verdict) { a.fail(statusOf(nil, v.Code), v) }

// fail writes a verdict as an error in the provider's form. SDKs repeat some errors by themselves; a refusal says that it stays one.
func (a *asked) fail(status int, v fault.Verdict) {
	if v.Decision == fault.Ask {
		status = http.StatusConflict
	}
	if !failure(v.Code) {
		a.w.Header().Set("X-Should-Retry", "false")
	}
	if v.Again > 0 {
		a.w.Header().Set("Retry-After", strconv.Itoa(int(v.Again.Seconds())))
	}
	message := cmp.Or(v.Reason, v.Code.Sentence())
	if v.Code == fault.RequestMalformed && len(v.Because) == 1 && v.Because[0].Detail != "" { // the field
		message = v.Because[0].Detail + ": " + message
	}
	for _, remedy := range v.Remedies {
		message += " " + remedy.Text
	}
	refusal := wire.Refusal(a.provider, status, v.Code, fmt.Sprintf("%s (%s, from the gateway)", message, v.Code), v, v.RequestID)
	if a.begun { // it ends the stream
		if err := a.piece(wire.RefusalEvents(a.form, refusal, !failure(v.Code))); err != nil {
			a.f.o.Log.Debug("the error that ends an answer did not reach its client", "error", err)
		}
		return
	}
	a.write(status, refusal)
}

// failure tells the codes of what was tried and failed at the provider, or fails just now: its SDK may try again, as without a gateway.
func failure(c fault.Code) bool {
	return c == fault.UpstreamFailed || c == fault.BreakerOpen || c == fault.FallbackFailed || c == fault.TimeExceeded
}

// statusOf is the HTTP status for a code. What the gateway refuses by a rule is 403 whatever the code's status is elsewhere, since SDKs repeat 409, 429 and 5xx by themselves.
func statusOf(err error, c fault.Code) int {
	if err != nil {
		if status := web.Status(err); status != fault.Of(err).Code.HTTPStatus() {
			return status
		}
	}
	switch c {
	case fault.RequestMalformed, fault.CredentialMissing, fault.NotFound, fault.UpstreamFailed, fault.BreakerOpen, fault.FallbackFailed, fault.TimeExceeded, fault.StoreUnavailable, fault.AuditUnavailable, fault.Internal:
		return c.HTTPStatus()
	case fault.ResultInvalid, fault.ResultTooLarge, fault.OutputInvalid:
		return http.StatusBadGateway
	}
	return http.StatusForbidden
}

// record puts on record that a request was turned away.
func (f *Face) record(r *http.Request, p identity.Principal, what string, err error) {
	v := fault.RefuseErr("door", fault.ForTheRecord(err))
	v.RequestID = web.RequestID(r.Context())
	f.g.Refused(gateway.Attempt{Principal: p, Door: Door, What: cmp.Or(what, r.Method+" "+r.URL.Path), Remote: web.Remote(r)}, v)
}

// list answers with the models that the agent may ask, or with one of them.
func (a *asked) list(id string) {
	all, err := a.f.g.Models(a.r.Context(), a.p)
	if err != nil {
		a.refuse(err)
		return
	}
	data := []any{}
	for _, op := range all {
		if op.Model.Provider != a.provider || id != "" && op.Model.ID != id {
			continue
		}
		one := map[string]any{"id": op.Model.ID, "object": "model", "created": 0, "owned_by": string(op.Model.Provider)}
		if a.provider == wire.Anthropic {
			one = map[string]any{"type": "model", "id": op.Model.ID, "display_name": op.Model.ID, "created_at": "1970-01-01T00:00:00Z"}
		}
		data = append(data, one)
	}
	var body any = map[string]any{"object": "list", "data": data}
	switch {
	case id != "" && len(data) == 0:
		a.refuse(fault.New(fault.NotFound, "The agent may ask no such model.").Try("Look at the list of models."))
		return
	case id != "":
		body = data[0]
	case a.provider == wire.Anthropic:
		list := map[string]any{"data": data, "has_more": false, "first_id": nil, "last_id": nil}
		if len(data) > 0 {
			list["first_id"], list["last_id"] = data[0].(map[string]any)["id"], data[len(data)-1].(map[string]any)["id"]
		}
		body = list
	}
	b, err := json.Marshal(body)
	if err != nil {
		a.refuse(err)
		return
	}
	a.write(http.StatusOK, b)
}
