package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

const (
	// shownMax is the largest payload that stands in its entry; larger ones are stored apart, and above keptMax only by hash.
	shownMax = 1 << 10
	keptMax  = 1 << 20
)

// outcome is what became of a call: what is written down, and what is released once it is.
type outcome struct {
	entry    audit.Entry
	raise    []flow.Held
	used     time.Duration
	verdict  fault.Verdict
	result   json.RawMessage
	rpcError json.RawMessage
	seen     []Evidence // what it showed, where it is released
}

// payload is a body as the log keeps it: by the hash of its exact bytes, shown with secrets redacted.
func (g *Gateway) payload(b []byte) *audit.Payload {
	p := &audit.Payload{SHA256: call.HashBytes(b), Size: int64(len(b))}
	if len(b) > keptMax {
		return p
	}
	shown := g.o.Detector.Redact(b)
	p.Redacted = len(shown) != len(b) || len(b) > 0 && &shown[0] != &b[0]
	if len(shown) <= shownMax {
		p.Shown = shown
		return p
	}
	p.Stored, p.Bytes, p.Key = true, shown, p.SHA256
	if p.Redacted {
		p.Key = call.HashBytes(shown)
	}
	return p
}

// exchange lets through what may pass while the call runs. By then the labels that the operation is declared to bring are on the
// session (see intent); what a detector finds in it besides is held back.
func (c *crossing) exchange() *call.Exchange {
	x := c.r.Exchange
	pass := func(f func(json.RawMessage)) func(json.RawMessage) {
		if f == nil {
			return nil
		}
		return func(params json.RawMessage) {
			if c.g.standing.Killed(c.agent) || c.live.current.Load().State != session.Open || len(c.newLabels(params)) > 0 {
				return
			}
			f(params)
		}
	}
	progress := pass(x.Progress)
	x.Progress, x.Log = progress, pass(x.Log)
	if c.op.Class.Output != provenance.TrustedOutput { // words that can't be fenced are not passed on; numbers are
		x.Log = nil
		if progress != nil {
			x.Progress = func(params json.RawMessage) { progress(numbersOnly(params)) }
		}
	}
	if ask := x.Ask; ask != nil {
		x.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
			return c.ask(ctx, method, params, ask)
		}
	}
	return &x
}

// numbersOnly is a progress notification without its message.
func numbersOnly(params json.RawMessage) json.RawMessage {
	b := []byte(`{"progress":0`)
	if n, ok := call.Get(params, "progress"); ok && number(n) {
		b = append([]byte(`{"progress":`), n...)
	}
	if n, ok := call.Get(params, "total"); ok && number(n) {
		b = append(append(b, `,"total":`...), n...)
	}
	return append(b, '}')
}

func number(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// ask carries a server's question to the agent's client and the answer back. The answer is data that leaves, so the call is judged
// again on what the session holds by then, before the question and before the answer; and the answer is on record before it goes.
func (c *crossing) ask(ctx context.Context, method string, params json.RawMessage, ask func(context.Context, string, json.RawMessage) (json.RawMessage, error)) (json.RawMessage, error) {
	held := func(v fault.Verdict) error { // the server is told nothing; the record says why
		e := c.entry(audit.Decision)
		e.Action, e.Decision, e.Stage, e.Code, e.Reason = "question", string(fault.Deny), v.Stage, string(v.Code), audit.Clip(v.Reason)
		c.g.refusals.ofCalls.record(c.g, e)
		return fault.New(fault.FlowContaminated, "The question was held back.")
	}
	if c.judged.facts.Evidence.Needed() && !c.g.rules.Shadow { // an answer would go out untraced
		return nil, held(fault.Refuse("flow", fault.FlowUntrusted, "An answer to the server's question can't be traced, and the session holds labels."))
	}
	mayTalk := func() fault.Verdict {
		s := c.live.current.Load()
		switch v := judge.Labels(c.g.rules, &c.judged.facts.Operation, s.Labels); {
		case c.g.standing.Killed(c.agent):
			return fault.Refuse("kill", fault.KillSwitch, "")
		case s.State != session.Open:
			return fault.Refuse("standing", fault.SessionClosed, "")
		case !c.g.rules.Shadow:
			return v
		}
		return fault.Permitted()
	}
	if v := mayTalk(); v.Decision != fault.Permit {
		return nil, held(v)
	}
	if found := c.newLabels(params); len(found) > 0 {
		return nil, held(fault.Refuse("inspect", fault.FlowContaminated, fmt.Sprintf("The question has %s data in it, which the session does not hold.", found[0])))
	}
	if c.op.Class.Output != provenance.TrustedOutput {
		params = plainJSON(params)
	}
	answer, err := ask(ctx, method, params)
	if err != nil {
		return nil, err
	}
	// Not while the answer is being recorded: the end of the call waits for this lock, and stopping waits for no store.
	over := func() bool {
		c.talk.mu.Lock()
		defer c.talk.mu.Unlock()
		return c.talk.over
	}
	if _, labels := c.g.carriedIn(answer); len(labels) > 0 { // delivered text that goes out again in an answer
		s := c.live.current.Load().Raise(labels...)
		if v := judge.Labels(c.g.rules, &c.judged.facts.Operation, s.Labels); v.Decision != fault.Permit && !c.g.rules.Shadow {
			return nil, held(v)
		}
	}
	late := func() error {
		if over() {
			return held(fault.Refuse("act", fault.TimeExceeded, "The call had ended when the answer to the server's question came."))
		}
		if v := mayTalk(); v.Decision != fault.Permit {
			return held(v)
		}
		return nil
	}
	if err := late(); err != nil {
		return nil, err
	}
	e := c.entry(audit.Decision)
	e.Action, e.Decision, e.Arguments = "answer", string(fault.Permit), c.g.payload(answer)
	if err := c.g.store.Record(context.WithoutCancel(ctx), e); err != nil {
		return nil, audited(err)
	}
	if err := late(); err != nil {
		return nil, err
	}
	return answer, nil
}

// detected is what the detector finds in b (FL-3), as far as the operator has such labels.
func (c *crossing) detected(b []byte) []flow.Label {
	var found []flow.Label
	for _, word := range c.g.o.Detector.Labels(b) {
		if l := flow.Label(word); c.g.rules.KnownLabel(l) {
			found = append(found, l)
		}
	}
	return found
}

// newLabels is what of that the session does not hold: reason enough to hold back what can't be labelled first.
func (c *crossing) newLabels(b []byte) []flow.Label {
	return slices.DeleteFunc(c.detected(b), c.live.current.Load().Holds)
}

// inspect looks at what came back, decides what labels it brings, and wraps it. Nothing of it is released here.
func (c *crossing) inspect(result json.RawMessage, err error) outcome {
	out := outcome{entry: c.entry(audit.Outcome), verdict: fault.Permitted()}
	if !c.ran.at.IsZero() {
		out.used = time.Since(c.ran.at)
	}
	out.entry.DurationMS = out.used.Milliseconds()
	var rpc *call.RPCError
	switch {
	case err == nil:
		c.inspectResult(&out, result)
	case errors.As(err, &rpc):
		c.inspectError(&out, rpc.JSON)
	default:
		c.inspectFailure(&out, err)
	}
	for _, h := range out.raise {
		out.entry.Labels = append(out.entry.Labels, string(h.Label))
	}
	return out
}

// contaminate adds the labels that b brings: those the operation is declared to bring, and those the detector finds.
func (c *crossing) contaminate(out *outcome, b []byte) {
	out.raise = c.brings(flow.Raise(c.declaredLabels(), flow.Operation{ID: c.op.ID}, c.id, c.detected(b)...))
}

// distrust adds the integrity label.
func (c *crossing) distrust(out *outcome) {
	out.raise = flow.Raise(out.raise, flow.Operation{ID: c.op.ID}, c.id, flow.Untrusted)
}

func (c *crossing) inspectResult(out *outcome, result json.RawMessage) {
	out.entry.Result = c.g.payload(result)
	c.contaminate(out, result)
	out.entry.Decision = "ok"
	if isError, ok := call.Get(result, "isError"); ok && string(isError) == "true" {
		out.entry.Decision = "error"
	}
	invalid := func(format string, args ...any) {
		out.verdict = fault.Refuse("inspect", fault.ResultInvalid, fmt.Sprintf(format, args...))
		out.entry.Decision, out.entry.Stage, out.entry.Code, out.entry.Reason = "error", "inspect", string(fault.ResultInvalid), out.verdict.Reason
	}
	if len(result) == 0 || result[0] != '{' {
		invalid("The server's result is not an object; it was discarded.")
		return
	}
	if check := c.op.Check; check != nil && out.entry.Decision == "ok" {
		if structured, ok := call.Get(result, "structuredContent"); ok {
			if err := check(structured); err != nil {
				c.g.log.Warn("a result does not match its schema", "operation", c.op.ID, "call_id", c.id, "error", err)
				invalid("The server's structured result does not match the schema it declared; it was discarded.")
				return
			}
		}
	}
	seen, trusted := c.observe(result)
	if !trusted && !(c.op.Command != nil && c.op.Command.Own) {
		c.distrust(out)
	}
	wrapped, attribution, err := c.wrap(result, trusted)
	if err != nil {
		c.g.log.Warn("a result could not be wrapped", "operation", c.op.ID, "call_id", c.id, "error", err)
		invalid("The server's result has not the form of an answer to %s; it was discarded.", c.r.Method)
		return
	}
	out.result, out.entry.Attribution = wrapped, attribution
	if out.entry.Decision == "ok" { // what an error says vouches for nothing
		out.seen = c.keepSeen(seen)
	}
}

// inspectError handles a JSON-RPC error of the server's. Its text is as hostile as any result: it labels, and from an operation
// that is not trusted it arrives fenced.
func (c *crossing) inspectError(out *outcome, object json.RawMessage) {
	out.entry.Result = c.g.payload(object)
	out.entry.Decision, out.entry.Reason = "error", "the server answered with a JSON-RPC error"
	c.contaminate(out, object)
	if c.op.Class.Output == provenance.TrustedOutput {
		out.rpcError = object
		return
	}
	c.distrust(out)
	message := "The server refused the request."
	if m, ok := call.Get(object, "message"); ok {
		var s string
		if json.Unmarshal(m, &s) == nil {
			message = s
		}
	}
	result, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": message}}, "isError": true}) // strings encode
	wrapped, attribution, err := c.wrapContent(result)
	if err != nil || c.r.Method != call.CallTool {
		out.verdict = fault.Refuse("act", fault.UpstreamFailed, "The server refused the request.")
		return
	}
	out.result, out.entry.Attribution = wrapped, attribution
}

// inspectFailure handles a call without an answer. None of the server's words are in what the agent is told.
func (c *crossing) inspectFailure(out *outcome, err error) {
	f := fault.Of(err)
	code := f.Code
	var notDispatched *fault.NotDispatched
	switch {
	case errors.Is(err, standing.ErrKilled):
		code = fault.KillSwitch
	case errors.Is(err, errClosed):
		code = fault.SessionClosed
	case errors.Is(err, errBudget):
		code = fault.LimitBudget
	case errors.Is(err, context.DeadlineExceeded):
		code = fault.TimeExceeded
	case errors.Is(err, context.Canceled):
		code = fault.TimeExceeded
	}
	out.verdict = fault.Refuse("act", code, "")
	if f.Code == code && f.Message != "" {
		out.verdict = fault.RefuseErr("act", f)
	}
	// Whether an operation may have had its effect is what the log has to know: it is never retried silently (docs/design.md, rule 1).
	out.entry.Decision = "unknown"
	if errors.As(err, &notDispatched) || c.op.Command != nil && !c.writes {
		out.entry.Decision = "error"
	} else {
		out.verdict.Retriable = false
		if code == fault.UpstreamFailed || code == fault.TimeExceeded {
			out.verdict.Remedies = append(out.verdict.Remedies, fault.Remedy{Kind: "ask_person",
				Text: "The operation may or may not have had its effect. Find out before it is done again."})
		}
	}
	if code == fault.ResultTooLarge || code == fault.ResultInvalid {
		out.entry.Decision = "error" // it was answered, and the answer was thrown away
	}
	if c.op.Command != nil && notDispatched == nil { // it reached what it is for: what became of that can show in how it failed
		out.raise = c.declaredLabels()
	}
	out.entry.Stage, out.entry.Code, out.entry.Reason = "act", string(code), short(string(c.g.o.Detector.Redact([]byte(err.Error()))))
	c.g.log.Warn("a call failed", "operation", c.op.ID, "call_id", c.id, "error", err)
}

// outcome writes down what became of the call, with the labels it brings, before anything of it is released. The write does not
// die with the caller's connection.
func (c *crossing) outcome(ctx context.Context, out outcome) error {
	s, err := c.g.store.Outcome(context.WithoutCancel(ctx), c.session.ID, out.entry, out.raise, out.used, out.seen...)
	if err != nil {
		out.entry.Decision, out.entry.Reason = "unknown", "the outcome could not be written when it was due; the result was not released"
		out.entry.Result = nil
		c.live.owe(owedOutcome{entry: out.entry, raise: out.raise, used: out.used})
		c.g.payOwed(c.live)
		return err
	}
	c.session = c.live.see(s)
	c.g.changed(SessionChanged, s.ID)
	return nil
}

// wrap freezes attribution and fences what is not trusted.
func (c *crossing) wrap(result json.RawMessage, trusted bool) (wrapped, attribution json.RawMessage, err error) {
	if trusted {
		return result, nil, nil
	}
	if c.r.Method != call.CallTool && c.r.Method != call.ReadResource && c.r.Method != call.GetPrompt {
		return plainJSON(result), nil, nil
	}
	return c.wrapContent(result)
}

func (c *crossing) wrapContent(result json.RawMessage) (json.RawMessage, json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(result, &members); err != nil {
		return nil, nil, err
	}
	if string(members["resultType"]) == `"input_required"` {
		return c.wrapQuestions(members)
	}
	w := wrapper{c: c}
	for _, h := range c.declaredLabels() {
		w.brings = append(w.brings, string(h.Label))
	}
	next := map[string]any{}
	switch c.r.Method {
	case call.CallTool:
		var blocks []map[string]any
		if raw, ok := members["content"]; ok {
			if err := unmarshalKeeping(raw, &blocks); err != nil {
				return nil, nil, fmt.Errorf("content: %w", err)
			}
		}
		var texts []string
		for i := range blocks {
			if s, ok := blocks[i]["text"].(string); ok {
				texts = append(texts, s)
			}
			blocks[i] = w.block(blocks[i])
		}
		if structured, ok := members["structuredContent"]; ok && string(structured) != "null" && !repeats(texts, structured) {
			blocks = append(blocks, w.block(map[string]any{"type": "text", "text": string(structured)}))
		}
		next["content"] = notNil(blocks)
		if string(members["isError"]) == "true" {
			next["isError"] = true
		}
	case call.ReadResource:
		var contents []map[string]any
		if err := unmarshalKeeping(members["contents"], &contents); err != nil {
			return nil, nil, fmt.Errorf("contents: %w", err)
		}
		for i := range contents {
			if contents[i] = w.resource(contents[i]); contents[i] == nil {
				return nil, nil, errors.New("a content has no usable uri")
			}
		}
		next["contents"] = notNil(contents)
	case call.GetPrompt:
		var messages []map[string]any
		if err := unmarshalKeeping(members["messages"], &messages); err != nil {
			return nil, nil, fmt.Errorf("messages: %w", err)
		}
		for i, m := range messages {
			block, ok := m["content"].(map[string]any)
			if !ok {
				return nil, nil, errors.New("a message's content is not a block")
			}
			role := "user"
			if m["role"] == "assistant" {
				role = "assistant"
			}
			messages[i] = map[string]any{"role": role, "content": w.block(block)}
		}
		next["messages"] = notNil(messages)
	}
	if w.err != nil {
		return nil, nil, w.err
	}
	at := c.ran.sourceAt
	if at.IsZero() {
		at = c.g.now()
	}
	a, err := c.g.o.Issuer.Attribute(guard.Source{
		Operation: c.op.ID, Session: c.session.ID, Source: c.source(), CallID: c.id, At: at, Content: result, Declaration: c.ran.reasons.digest,
	})
	if err != nil {
		return nil, nil, err
	}
	attribution, err := json.Marshal(a)
	if err != nil {
		return nil, nil, err
	}
	next["_meta"] = map[string]any{"sallyport/attribution": json.RawMessage(attribution)}
	b, err := marshalPlain(next)
	return b, attribution, err
}

// repetition is what a text block can be that says what structured content says: that as JSON, or the one text that it is an object of.
type repetition struct {
	canonical []byte
	only      string
	isOnly    bool
}

func repetitionOf(structured json.RawMessage) (r repetition) {
	var members map[string]json.RawMessage
	if json.Unmarshal(structured, &members) == nil && len(members) == 1 {
		for _, v := range members {
			r.isOnly = json.Unmarshal(v, &r.only) == nil
		}
	}
	r.canonical, _ = call.Canonical(structured, call.DefaultLimits()) // what has no canonical form is repeated by nothing
	return r
}

func (r *repetition) of(text string) bool {
	if r.isOnly && text == r.only {
		return true
	}
	if r.canonical == nil {
		return false
	}
	same, err := call.Canonical([]byte(text), call.DefaultLimits())
	return err == nil && bytes.Equal(same, r.canonical)
}

// repeats tells whether the structured content says nothing that a text block doesn't. Showing it twice would only cost the model's attention.
func repeats(texts []string, structured json.RawMessage) bool {
	r := repetitionOf(structured)
	return slices.ContainsFunc(texts, r.of)
}

// wrapQuestions lets the questions of a multi-round-trip result through, and nothing beside them. They are for a person, through a
// client that can ask one; the operator has let the server ask.
func (c *crossing) wrapQuestions(members map[string]json.RawMessage) (json.RawMessage, json.RawMessage, error) {
	if c.r.Door != "mcp" || members["inputRequests"] == nil {
		return nil, nil, errors.New("a question that nobody here can be asked")
	}
	next := map[string]json.RawMessage{"resultType": members["resultType"], "inputRequests": plainJSON(members["inputRequests"])}
	if state, ok := members["requestState"]; ok {
		next["requestState"] = state // sealed by the door before it leaves
	}
	b, err := marshalPlain(next)
	return b, nil, err
}

// source is where the content came from, as the attribution names it.
func (c *crossing) source() string {
	source := ""
	switch {
	case c.r.Method == call.ReadResource:
		source = c.r.Tool
	case c.ran.source != "":
		source = c.ran.source
	default:
		return c.op.ID
	}
	redacted := string(c.g.o.Detector.Redact([]byte(source))) // an address can have a secret in it, and this stands in the log
	return strings.ToValidUTF8(redacted[:min(len(redacted), maxName)], "")
}

// isBase64 tells whether s is base64 and nothing that could be read.
func isBase64(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '=') {
			return false
		}
	}
	return true
}

// wrapper fences blocks and remembers the first failure.
type wrapper struct {
	c      *crossing
	brings []string // the labels that the operation is declared to bring
	err    error
}

// fenced is the text for the model: untrusted content between markers it cannot forge (FE-1 … FE-4).
func (w *wrapper) fenced(text string) string {
	f, err := guard.Fence{Operation: w.c.op.ID, Contamination: w.brings}.Wrap(text, w.c.source())
	if err != nil {
		w.err = err
		return ""
	}
	return f.ForModel()
}

// block fences a content block. Only known members of known types pass; what is unknown becomes fenced text.
func (w *wrapper) block(b map[string]any) map[string]any {
	text := func(s string) map[string]any { return map[string]any{"type": "text", "text": w.fenced(s)} }
	switch kind, _ := b["type"].(string); kind {
	case "text":
		if s, ok := b["text"].(string); ok {
			return text(s)
		}
	case "image", "audio":
		data, ok := b["data"].(string)
		mime, ok2 := b["mimeType"].(string)
		if ok && ok2 {
			if threat.MediaType(mime) && isBase64(data) {
				return map[string]any{"type": kind, "data": data, "mimeType": mime}
			}
		}
	case "resource":
		if r, ok := b["resource"].(map[string]any); ok {
			if r = w.resource(r); r != nil {
				return map[string]any{"type": "resource", "resource": r}
			}
		}
	}
	raw, err := marshalPlain(b)
	if err != nil {
		w.err = err
	}
	return text(string(raw))
}

// resource fences a resource's content. It is nil where the resource has no URI that may stand beside it.
func (w *wrapper) resource(r map[string]any) map[string]any {
	uri, _ := r["uri"].(string)
	if !threat.PlainURI(uri) && uri != w.c.r.Tool {
		return nil
	}
	next := map[string]any{"uri": uri}
	if mime, ok := r["mimeType"].(string); ok && threat.MediaType(mime) {
		next["mimeType"] = mime
	}
	if blob, ok := r["blob"].(string); ok {
		if !isBase64(blob) {
			return nil
		}
		next["blob"] = blob
	} else if s, ok := r["text"].(string); ok {
		next["text"] = w.fenced(s)
	}
	return next
}

func unmarshalKeeping(raw json.RawMessage, v any) error {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	return dec.Decode(v)
}

func marshalPlain(v any) (json.RawMessage, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n")), nil
}

// plainJSON cleans every string of a JSON value. What can't be read becomes an empty object.
func plainJSON(raw json.RawMessage) json.RawMessage {
	var v any
	if err := unmarshalKeeping(raw, &v); err != nil {
		return json.RawMessage("{}")
	}
	b, err := marshalPlain(threat.PlainValue(v))
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}
