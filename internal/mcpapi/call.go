package mcpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/web"
)

// handle serves one request of an agent. c is its transport session, nil for 2026-07-28.
func (f *Face) handle(ctx context.Context, p identity.Principal, req *request, s *stream, c *connection) {
	modern := c == nil
	var result json.RawMessage
	var e *rpcError
	listed := strings.HasSuffix(req.Method, "/list")
	if listed {
		if result, e = f.list(ctx, p, req, modern); e != nil {
			f.recordRefusal(p, req.Method, e)
		}
	} else {
		result, e = f.do(ctx, p, req, s, c)
	}
	switch {
	case e == nil && listed:
		s.result(result)
	case e == nil && !modern:
		s.result(asOlder(c.revision, req.Method, result))
	case e == nil:
		s.result(f.asModern(req.Method, result)...)
	case modern:
		s.fail(e.modern())
	default:
		s.fail(e)
	}
}

// do serves one request to an upstream, or to one of Sallyport's own tools.
func (f *Face) do(ctx context.Context, p identity.Principal, req *request, s *stream, c *connection) (json.RawMessage, *rpcError) {
	r := gateway.Request{Principal: p, Method: call.Method(req.Method), Door: "mcp", ToolUse: req.meta.ToolUse}
	malformed := func(message string) (json.RawMessage, *rpcError) {
		return nil, f.recordRefusal(p, req.Method, invalidParams(message))
	}
	var ok bool
	switch r.Method {
	case call.CallTool, call.GetPrompt:
		if r.Tool, ok = call.Text(req.name); !ok || r.Tool == "" {
			return malformed("params.name must be a string.")
		}
		if r.Arguments = req.arguments; string(r.Arguments) == "null" { // some clients send it for no arguments
			r.Arguments, req.arguments = nil, nil
		}
	case call.ReadResource:
		if r.Tool, ok = call.Text(req.uri); !ok || r.Tool == "" {
			return malformed("params.uri must be a string.")
		}
	case call.Complete:
		var e *rpcError
		if r.Tool, r.Arguments, e = f.completion(ctx, p, req); e != nil {
			return nil, f.recordRefusal(p, req.Method, e)
		}
	default:
		return nil, f.recordRefusal(p, req.Method, noMethod(req.Method))
	}
	if r.Arguments != nil && !call.IsObject(r.Arguments) {
		return malformed("params.arguments must be an object.")
	}
	if r.Method == call.CallTool {
		if own, ok := ownTools[r.Tool]; ok {
			return f.callOwn(ctx, p, r.Tool, own, req.arguments)
		}
	}
	var at rounds
	if c == nil && (req.inputResponses != nil || req.requestState != nil) {
		var e *rpcError
		if at, e = f.resume(ctx, p, req, &r); e != nil {
			return nil, f.recordRefusal(p, r.Tool, e)
		}
	}
	if at.answer == "decline" || at.answer == "cancel" {
		return f.endRounds(ctx, r, at)
	}
	if r.Method != "completion/complete" && (c != nil || at.answer == "accept") {
		r.Hold = f.o.Hold
	}
	f.exchange(req, s, c, &r)
	for {
		a := f.g.Call(ctx, r)
		if c == nil {
			if result := f.askToWait(r, a, at, req.meta.Capabilities); result != nil {
				return result, nil
			}
		}
		result, e := f.outcome(ctx, r, a)
		if e != nil {
			return nil, e
		}
		again, result, e := f.settle(ctx, &r, a, result, at.n, s, c)
		if e != nil || !again {
			return result, e
		}
		at.n++
	}
}

// recordRefusal records a refusal of this face's own, and returns it.
func (f *Face) recordRefusal(p identity.Principal, what string, e *rpcError) *rpcError {
	f.g.Refused(gateway.Attempt{Principal: p, Door: "mcp", What: what}, fault.Refuse("door", cmp.Or(e.fault, fault.RequestMalformed), e.message))
	return e
}

func invalidParams(message string) *rpcError {
	return &rpcError{status: http.StatusOK, code: mcpwire.CodeInvalidParams, message: message}
}

func noMethod(method string) *rpcError {
	return &rpcError{status: http.StatusOK, code: mcpwire.CodeMethodNotFound, message: "There is no method " + mcpwire.Quote(method) + "."}
}

// exchange opens the channels between the client and the upstream that the client has asked for, and no others: a call that can send messages
// while it runs brings its labels in before the first one. A client that gave a progress token also gets a notification that the call is held.
func (f *Face) exchange(req *request, s *stream, c *connection, r *gateway.Request) {
	x := &r.Exchange
	x.Room = req.room
	if req.meta.ProgressToken != nil {
		p := &progress{s: s, token: req.meta.ProgressToken}
		x.Progress = p.server
		r.Waiting = func(w desk.Waiting) { p.held(waiting(w, f.o.Clock())) }
	}
	least := silent
	if c != nil {
		c.mu.Lock()
		least = c.level
		c.mu.Unlock()
	} else if rank, ok := level(req.meta.LogLevel); ok {
		least = rank
	}
	if least != silent {
		x.Log = func(params json.RawMessage) {
			of, _ := call.Get(params, "level")
			if rank, ok := level(of); ok && rank >= least {
				_ = s.message("notifications/message", nil, params)
			}
		}
	}
	switch {
	case c == nil:
		x.ClientCapabilities = req.meta.Capabilities
	case len(c.asks) > 0:
		x.ClientKey, x.ClientCapabilities = c.id, c.caps
		x.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
			return c.ask(ctx, s, method, params)
		}
	}
}

// rounds is the state of a call of 2026-07-28 in its multi-round-trip requests. The zero value is the beginning.
type rounds struct {
	n        int    // how many there were, of the server and of the gateway
	approval string // that the client was asked to wait for, if the last round was the gateway's
	answer   string // of the client to that: accept, decline, cancel, or "" for none
}

// resume checks the answers of a client in a multi-round-trip request, and passes them on with the upstream's own state. Only the sealed state
// tells which round it is, and whose.
func (f *Face) resume(ctx context.Context, p identity.Principal, req *request, r *gateway.Request) (at rounds, e *rpcError) {
	var ours json.RawMessage
	if req.inputResponses != nil {
		if !call.IsObject(req.inputResponses) {
			return at, badRequest(mcpwire.CodeInvalidParams, "params.inputResponses must be an object.")
		}
		r.Exchange.InputResponses, ours = separateAnswers(req.inputResponses)
	}
	if req.requestState == nil {
		if r.Exchange.InputResponses != nil { // every question of a server goes out with a sealed state
			return at, badRequest(mcpwire.CodeInvalidParams, "params.inputResponses answer no question: there is no params.requestState with them. Make the call again without them.")
		}
		return at, nil
	}
	sealed, ok := call.Text(req.requestState)
	if !ok {
		return at, badRequest(mcpwire.CodeInvalidParams, "params.requestState must be a string.")
	}
	sess, err := f.g.SessionFor(ctx, p)
	if err != nil {
		return at, f.faultError(ctx, err)
	}
	st, err := f.seal.open(sealed, bind(p.String(), sess.ID, r.Method, r.Tool, r.Arguments))
	if err != nil {
		f.o.Log.Warn("request state refused", "principal", p.String(), "session", sess.ID, "method", r.Method, "why", err)
		return at, badRequest(mcpwire.CodeInvalidParams, "params.requestState is not good for this call: it was changed, was used before, has expired or belongs to another call. Make the call again without it.")
	}
	at.n, r.Exchange.RequestState = st.Round, st.Inner
	if st.Approval == "" {
		return at, nil
	}
	// The round was the gateway's own: the server gets the answers to its own questions, and nothing of this one.
	r.Exchange.InputResponses, at.approval = st.Answers, st.Approval
	if ours == nil {
		return at, nil
	}
	switch at.answer, _ = call.GetText(ours, "action"); at.answer {
	case "accept", "decline", "cancel":
		return at, nil
	}
	return at, badRequest(mcpwire.CodeInvalidParams, "params.inputResponses: the action is accept, decline or cancel.")
}

// outcome is the result of an answer, or its refusal in the form of the method.
func (f *Face) outcome(ctx context.Context, r gateway.Request, a gateway.Answer) (json.RawMessage, *rpcError) {
	switch {
	case a.Verdict.Decision == fault.Permit && a.RPCError != nil:
		return nil, &rpcError{status: http.StatusOK, raw: a.RPCError}
	case a.Verdict.Decision == fault.Permit && a.Result != nil:
		return reasoned(r, a), nil
	case a.Verdict.Decision == fault.Permit:
		f.o.Log.Error("an answer has neither result nor refusal", "request_id", a.Verdict.RequestID, "call_id", a.CallID, "method", r.Method)
		return refusal(ctx, r, a.Verdict.RequestID, fault.Refuse("", fault.Internal, ""))
	}
	return refusal(ctx, r, a.Verdict.RequestID, a.Verdict)
}

// reasoned is the result of a call with the verdict beside it if that names the sources of the arguments.
func reasoned(r gateway.Request, a gateway.Answer) json.RawMessage {
	if a.Verdict.Reason == "" || r.Method != call.CallTool {
		return a.Result
	}
	meta, ok := call.Get(a.Result, "_meta")
	if !ok || meta[0] != '{' {
		meta = json.RawMessage("{}")
	}
	return call.SetMember(a.Result, "_meta", call.SetMember(meta, "sallyport/verdict", mcpwire.AppendJSON(nil, a.Verdict)))
}

// refusal answers a refused tool call with a result that a model can act on. Any other refused request, and a malformed call, gets a JSON-RPC
// error.
func refusal(ctx context.Context, r gateway.Request, requestID string, v fault.Verdict) (json.RawMessage, *rpcError) {
	v.RequestID = cmp.Or(requestID, web.RequestID(ctx))
	if r.Method == call.CallTool && (v.Code != fault.RequestMalformed || v.Stage != "resolve") {
		return refused(v), nil
	}
	code, data := v.Code.RPCCode(), map[string]any{"verdict": v}
	if r.Method == call.ReadResource && v.Code == fault.ToolUnknown {
		code, data["uri"] = mcpwire.CodeResourceNotFound, r.Tool
	}
	return nil, &rpcError{status: http.StatusOK, code: code, message: v.Reason, data: mcpwire.AppendJSON(nil, data)}
}

// refused is the tool result of a refused call (docs/errors.md, "A verdict").
func refused(v fault.Verdict) json.RawMessage {
	type block struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	return mcpwire.AppendJSON(nil, struct {
		Content []block                  `json:"content"`
		IsError bool                     `json:"isError"`
		Meta    map[string]fault.Verdict `json:"_meta"`
	}{[]block{{"text", v.Explain()}}, true, map[string]fault.Verdict{"sallyport/verdict": v}})
}

// settle handles each kind of result. A complete one passes. If the upstream asks back, a client of 2026-07-28 gets its questions, with its state
// sealed; an older client is asked here, and again tells the caller to make the call once more with the answers. Other kinds are refused.
func (f *Face) settle(ctx context.Context, r *gateway.Request, a gateway.Answer, result json.RawMessage, round int, s *stream, c *connection) (again bool, _ json.RawMessage, _ *rpcError) {
	kind, has := call.Get(result, "resultType")
	if !has {
		return false, result, nil
	}
	refuse := func(code fault.Code, reason string) (bool, json.RawMessage, *rpcError) {
		v := fault.Refuse("inspect", code, reason)
		v.RequestID = a.Verdict.RequestID // of the call that it answers
		f.g.Refused(gateway.Attempt{Principal: r.Principal, Door: "mcp", What: r.Tool}, v)
		result, e := refusal(ctx, *r, v.RequestID, v)
		return false, result, e
	}
	word, _ := call.Text(kind)
	switch {
	case word == "complete":
		return false, result, nil
	case word != "input_required" || r.Method == call.Complete:
		return refuse(fault.ResultInvalid, "The server answered with a kind of result that is not known here.")
	case round >= maxRounds:
		return refuse(fault.LimitQuota, "The server asked back more than "+strconv.Itoa(maxRounds)+" times for one call.")
	}
	var inner string
	if state, ok := call.Get(result, "requestState"); ok {
		if inner, ok = call.Text(state); !ok {
			return refuse(fault.ResultInvalid, "The server's requestState is not a string.")
		}
	}
	requests, _ := call.Get(result, "inputRequests")
	if c == nil {
		if _, taken := call.Get(requests, approvalKey); taken {
			return refuse(fault.ResultInvalid, "The server asks back under the name of the gateway's own questions.")
		}
		sealed := f.seal.seal(state{binding: bind(r.Principal.String(), a.Session, r.Method, r.Tool, r.Arguments), Round: round + 1, Inner: inner})
		return false, call.SetMember(result, "requestState", mcpwire.AppendJSON(nil, sealed)), nil
	}
	responses := []byte{'{'}
	asked := 0
	for key, request := range call.Members(requests) {
		params, _ := call.Get(request, "params")
		word, _ := call.GetText(request, "method")
		if asked++; asked > maxRequests || !c.asks[word] {
			return refuse(fault.ResultInvalid, "The server asks back with "+mcpwire.Quote(word)+", which this client can't answer.")
		}
		response, err := c.ask(ctx, s, word, params)
		if refused := (*call.RPCError)(nil); errors.As(err, &refused) {
			return false, nil, &rpcError{status: http.StatusOK, raw: refused.JSON}
		} else if err != nil {
			return refuse(fault.TimeExceeded, "The client did not answer what the server asked back.")
		}
		if asked > 1 {
			responses = append(responses, ',')
		}
		if responses = append(append(mcpwire.AppendJSON(responses, key), ':'), response...); len(responses) > maxBody {
			return refuse(fault.RequestMalformed, "The client's answers are larger than 4 MiB.")
		}
	}
	if asked == 0 {
		return refuse(fault.UpstreamFailed, "The server is busy and asks to be called again later.")
	}
	r.Exchange.InputResponses, r.Exchange.RequestState = append(responses, '}'), inner
	return true, nil, nil
}

// asModern adds what revision 2026-07-28 requires in every result: its type, the name of the server, and for a result that can be cached that only
// this client may. It returns the result in parts, so that a large one isn't copied for a few words.
func (f *Face) asModern(method string, result json.RawMessage) [][]byte {
	kind, meta := json.RawMessage(`"complete"`), json.RawMessage("{}")
	parts := make([][]byte, 1, 12)
	for name, value := range call.Members(result) {
		switch {
		case name == "resultType":
			kind = value
		case name == "_meta" && call.IsObject(value):
			meta = value
		case method == string(call.ReadResource) && (name == "ttlMs" || name == "cacheScope"):
		default:
			parts = append(parts, append(mcpwire.AppendJSON([]byte{','}, name), ':'), value)
		}
	}
	parts[0] = append([]byte(`{"resultType":`), kind...)
	if method == string(call.ReadResource) {
		parts = append(parts, []byte(`,"ttlMs":0,"cacheScope":"private"`))
	}
	return append(parts, []byte(`,"_meta":`), call.SetMember(meta, mcpwire.MetaServerInfo, f.sdk.info), []byte{'}'})
}

// modern gives the error its code and HTTP status in revision 2026-07-28.
func (e *rpcError) modern() *rpcError {
	if e.raw == nil && e.code == mcpwire.CodeResourceNotFound {
		e.code = mcpwire.CodeInvalidParams
	}
	code := int(e.code)
	if e.raw != nil {
		raw, _ := call.Get(e.raw, "code")
		code, _ = strconv.Atoi(string(raw))
	}
	switch code {
	case mcpwire.CodeMethodNotFound:
		e.status = http.StatusNotFound
	case mcpwire.CodeInvalidParams, mcpwire.CodeClientCapability, mcpwire.CodeUnsupportedVersion:
		e.status = http.StatusBadRequest
	}
	return e
}

// completion rebuilds the arguments of completion/complete with the server's own name of the prompt.
func (f *Face) completion(ctx context.Context, p identity.Principal, req *request) (name string, arguments json.RawMessage, e *rpcError) {
	if !call.IsObject(req.ref) || !call.IsObject(req.argument) || req.context != nil && !call.IsObject(req.context) {
		return "", nil, invalidParams("params must have ref and argument, and context where it is there must be an object.")
	}
	ref := req.ref
	switch kind, _ := call.GetText(ref, "type"); kind {
	case "ref/prompt":
		name, _ = call.GetText(ref, "name")
		for _, o := range f.g.Offers(ctx, p, call.Prompt) {
			if o.Name == name {
				ref = call.SetMember(ref, "name", mcpwire.AppendJSON(nil, o.Upstream))
				break
			}
		}
	case "ref/resource":
		name, _ = call.GetText(ref, "uri")
	}
	if name == "" {
		return "", nil, invalidParams("params.ref must be a ref/prompt with a name or a ref/resource with a uri.")
	}
	arguments = append(append(json.RawMessage(`{"ref":`), ref...), `,"argument":`...)
	arguments = append(arguments, req.argument...)
	if req.context != nil {
		arguments = append(append(arguments, `,"context":`...), req.context...)
	}
	return name, append(arguments, '}'), nil
}
