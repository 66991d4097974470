package effect

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
	"sallyport.example/provenance"
)

// askedModels notes what a provider is asked.
type askedModels struct {
	requests []wire.Request
	answer   wire.Response
	events   []wire.Event
	err      error
}

func (a *askedModels) Ask(_ context.Context, r wire.Request, _ call.Room) (wire.Response, error) {
	a.requests = append(a.requests, r)
	return a.answer, a.err
}

func (a *askedModels) Stream(_ context.Context, r wire.Request, _ call.Room, each func(wire.Event) error) (wire.Response, wire.Usage, error) {
	a.requests = append(a.requests, r)
	for _, e := range a.events {
		if err := each(e); err != nil {
			return wire.Response{}, wire.Usage{}, err
		}
	}
	return a.answer, wire.Usage{Input: 3, Output: 2}, a.err
}

func models(t testing.TB) *catalogue.Snapshot {
	t.Helper()
	c, err := catalogue.New(t.Context(), catalogue.Options{
		Settings: catalogue.Settings{
			Labels: []flow.Label{"internal", "pii"}, Unlisted: catalogue.Unlisted, Classify: func(string, string) catalogue.Classification { return catalogue.Classification{} },
			Models: []catalogue.Model{{ID: "m-20250929", Provider: wire.OpenAI, Labels: []flow.Label{"internal"}, Allow: []string{"turbo"}}},
		},
		Store: noPins{}, Now: time.Now, Launch: func(string) string { return "" }, Log: slog.New(slog.DiscardHandler),
		Schema: func(json.RawMessage) (func([]byte) error, error) { return func([]byte) error { return nil }, nil },
		Void:   func(context.Context, string) {}, Changed: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.Snapshot()
}

// A model is found by its id alone, and by no tool's name. It is a sink for what it may not have, reads nothing, and runs in planning.
func TestModelsAreFound(t *testing.T) {
	snap := models(t)
	e, err := Find(snap, call.AskModel, "m-20250929")
	if err != nil {
		t.Fatal(err)
	}
	op := e.Operation()
	if op.ID != "model.m-20250929" || op.Standing != catalogue.Active || op.Class.ExternalIO || op.Class.Output != provenance.TrustedOutput || e.Definition() != op.Hash || op.Hash == "" {
		t.Errorf("%+v", op)
	}
	if flow.Judge(op.Flow, []flow.Held{{Label: "pii"}}).Allowed || !flow.Judge(op.Flow, []flow.Held{{Label: "internal"}, {Label: flow.Untrusted}}).Allowed || len(op.Flow.Emits) > 0 {
		t.Errorf("%+v", op.Flow)
	}
	for name, code := range map[string]fault.Code{"m": fault.ModelUnpinned, "model.m-20250929": fault.ModelUndeclared, "": fault.ModelUnpinned, "m-latest": fault.ModelUnpinned, "n-20250929": fault.ModelUndeclared} {
		if e, err := Find(snap, call.AskModel, name); e != nil || !fault.Is(err, code) {
			t.Errorf("%q: %v, %v", name, e, err)
		}
	}
	for _, name := range []string{"m-20250929", "model.m-20250929", "model_m-20250929"} {
		if e, _ := Find(snap, call.CallTool, name); e != nil {
			t.Errorf("%s is a tool", name)
		}
	}
}

// What was judged is what is sent, and what comes back is handed over with its status.
func TestModelIsAsked(t *testing.T) {
	e, err := Find(models(t), call.AskModel, "m-20250929")
	if err != nil {
		t.Fatal(err)
	}
	e = OnTerms(e, Terms{Output: 1 << 20})
	p, err := e.Parameters([]byte(`{"beta":[],"form":"openai.chat","request":{"messages":[],"model":"m-20250929","turbo":true}}`))
	if err != nil || string(p.Canonical) != `{"beta":[],"form":"openai.chat","request":{"messages":[],"model":"m-20250929","store":false,"turbo":true}}` {
		t.Fatalf("%s, %v", p.Canonical, err)
	}
	for _, wrong := range []string{`{"form":"anthropic.messages","request":{}}`, `{"form":"openai.chat","request":{"model":"m","messages":[],"novel":1}}`, `{}`, `{"form":"x","request":{}}`} {
		if _, err := e.Parameters([]byte(wrong)); !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	up := &askedModels{answer: wire.Response{Status: 200, Body: json.RawMessage(`{"usage":{"prompt_tokens":3,"completion_tokens":2}}`), Headers: map[string]string{"Request-Id": "r"}}}
	r, err := e.Act(t.Context(), Run{Parameters: p, Models: up, Exchange: &call.Exchange{}})
	if err != nil || len(up.requests) != 1 || string(up.requests[0].Body) != `{"messages":[],"model":"m-20250929","store":false,"turbo":true}` || up.requests[0].Model != "m-20250929" {
		t.Fatalf("%+v, %v", up.requests, err)
	}
	if !strings.Contains(string(r.JSON), `"Request-Id":"r"`) || string(r.Record) != `{"status":200,"tokens":{"input":3,"output":2}}` {
		t.Errorf("%s, %s", r.JSON, r.Record)
	}
	if failed, err := e.Inspect(NewContent(r.JSON)); failed || err != nil {
		t.Error(failed, err)
	}
	if failed, err := e.Inspect(NewContent(json.RawMessage(`{"status":529}`))); !failed || err != nil {
		t.Error(failed, err)
	}
	if _, err := e.Inspect(NewContent(json.RawMessage(`{}`))); !fault.Is(err, fault.ResultInvalid) {
		t.Error(err)
	}
	up.err = errors.New("broke")
	if _, err := e.Act(t.Context(), Run{Parameters: p, Models: up, Exchange: &call.Exchange{}}); err == nil {
		t.Error("a broken request has an answer")
	}
	wrapped, attribution, err := e.Wrap(NewContent(r.JSON), Envelope{})
	if all, plain := e.Payloads(NewContent(r.JSON)); string(wrapped) != string(r.JSON) || attribution != nil || err != nil || all != nil || plain {
		t.Errorf("%s, %v", wrapped, err)
	}
	writes, why := e.Writes(p.Canonical)
	_, refusal := e.Refusal(nil)
	inputs, _ := e.Inputs(t.Context(), "s", p.Canonical)
	if writes || why != "" || e.Stored(p.Canonical) != "" || refusal || inputs != nil || e.Check(p.Canonical) != nil || e.Renew(t.Context(), nil) != nil {
		t.Error("it is more than a request")
	}
	if !e.Failed(errors.New("broke"), false).Nothing || !e.Traits().Converses || e.Traits().NeedsReasons || e.Traits().Traced {
		t.Errorf("%+v", e.Traits())
	}
	if len(Conversation(e, p.Canonical)) != 1 {
		t.Error("the rest of the request is a block")
	}
}

// What a request may use is bounded before it is judged, and what it used is on record by what is known of it, whatever became of the answer.
func TestModelTokens(t *testing.T) {
	e, err := Find(models(t), call.AskModel, "m-20250929")
	if err != nil {
		t.Fatal(err)
	}
	e.(model).op.Model.Price = &wire.Price{Input: 3_000_000, Output: 15_000_000}
	packed := func(more string) []byte {
		return []byte(`{"beta":[],"form":"openai.chat","request":{"messages":[{"content":"` + strings.Repeat("word ", 80) + `","role":"user"}],"model":"m-20250929"` + more + `}}`)
	}
	left := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		terms         Terms
		more          string
		lowered, most int64
	}{
		"fewer than declared":       {Terms{Output: 1000}, `,"max_tokens":10`, 0, 10},
		"more than declared":        {Terms{Output: 1000}, `,"max_tokens":2000`, 1000, 1000},
		"both names":                {Terms{Output: 1000}, `,"max_completion_tokens":3000,"max_tokens":2000`, 1000, 1000},
		"a low one beside a high":   {Terms{Output: 1000}, `,"max_completion_tokens":3000,"max_tokens":1`, 1000, 1000},
		"no limit":                  {Terms{Output: 1000}, ``, 1000, 1000},
		"null":                      {Terms{Output: 1000}, `,"max_tokens":null`, 1000, 1000},
		"no limit, much declared":   {Terms{Output: 1 << 20}, ``, 0, 0},
		"no limit, and it counts":   {Terms{Output: 1 << 20, Counted: true}, ``, 16384, 16384},
		"what is left of a run":     {Terms{Output: 1000, Counted: true, Left: left(500)}, `,"max_tokens":1000`, 500 - 140, 500 - 140},
		"nothing is left of a run":  {Terms{Output: 1000, Counted: true, Left: left(140)}, `,"max_tokens":1000`, -1, 0},
		"the declaration says none": {Terms{}, `,"max_tokens":1`, -1, 0},
	} {
		p, err := OnTerms(e, c.terms).Parameters(packed(c.more))
		if c.lowered < 0 {
			if !fault.Is(err, fault.LimitQuota) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		r := wire.Unpack(p.Canonical)
		if err != nil || p.Lowered != c.lowered || wire.OutputLimit(r.Form, r.Body) != c.most {
			t.Errorf("%s: %v; lowered to %d: %s", name, err, p.Lowered, r.Body)
		}
		if n, cost := Uses(e, p.Canonical); c.most > 0 && (n != wire.Estimate(r.Form, r.Body)+c.most || cost != 3*(n-c.most)+15*c.most) {
			t.Errorf("%s: %d tokens, %d", name, n, cost)
		}
	}
	broke := errors.New("broke")
	for name, c := range map[string]struct {
		stream bool
		up     askedModels
		want   string
	}{
		"whole":                     {false, askedModels{answer: wire.Response{Status: 200, Body: json.RawMessage(`{"usage":{"prompt_tokens":3,"completion_tokens":2}}`)}}, `{"cost_millionths":39,"status":200,"tokens":{"input":3,"output":2}}`},
		"whole, without usage":      {false, askedModels{answer: wire.Response{Status: 200, Body: json.RawMessage(`{"choices":[]}`)}}, `{"cost_millionths":501,"status":200,"tokens":{"input":147,"output":4,"estimated":true}}`},
		"whole, in other numbers":   {false, askedModels{answer: wire.Response{Status: 200, Body: json.RawMessage(`{"usage":{"prompt_tokens":3.0,"completion_tokens":0.2e1}}`)}}, `{"cost_millionths":39,"status":200,"tokens":{"input":3,"output":2}}`},
		"whole, in texts":           {false, askedModels{answer: wire.Response{Status: 200, Body: json.RawMessage(`{"usage":{"prompt_tokens":"3","completion_tokens":"2"}}`)}}, `{"cost_millionths":651,"status":200,"tokens":{"input":147,"output":14,"estimated":true}}`},
		"whole, below nothing":      {false, askedModels{answer: wire.Response{Status: 200, Body: json.RawMessage(`{"usage":{"prompt_tokens":-3,"completion_tokens":1e300}}`)}}, `{"cost_millionths":651,"status":200,"tokens":{"input":147,"output":14,"estimated":true}}`},
		"another's, and no numbers": {false, askedModels{answer: wire.Response{Status: 200, Body: json.RawMessage(`{"usage":{}}`)}, err: broke}, `{"cost_millionths":1941,"status":200,"tokens":{"input":147,"output":100,"estimated":true}}`},
		"the provider's error":      {false, askedModels{answer: wire.Response{Status: 529, Body: json.RawMessage(`{}`)}}, `{"status":529}`},
		"no answer":                 {false, askedModels{err: broke}, `{"cost_millionths":1941,"status":0,"tokens":{"input":147,"output":100,"estimated":true}}`},
		"it never left":             {false, askedModels{err: &fault.NotDispatched{Err: broke}}, ``},
		"a key that is refused":     {false, askedModels{answer: wire.Response{Status: 401}, err: broke}, ``},
		"another model's":           {false, askedModels{answer: wire.Response{Status: 200, Body: json.RawMessage(`{"usage":{"prompt_tokens":3,"completion_tokens":2}}`)}, err: broke}, `{"cost_millionths":39,"status":200,"tokens":{"input":3,"output":2}}`},
		"a stream":                  {true, askedModels{answer: wire.Response{Status: 200}}, `{"cost_millionths":39,"status":200,"tokens":{"input":3,"output":2}}`},
		"a stream that was cut":     {true, askedModels{answer: wire.Response{Status: 200}, events: []wire.Event{{Args: []wire.Arg{{Of: "a", Text: strings.Repeat("x", 39)}}}}, err: broke}, `{"cost_millionths":159,"status":200,"tokens":{"input":3,"output":10,"estimated":true}}`},
		"a stream that never began": {true, askedModels{answer: wire.Response{Status: 503}, err: broke}, ``},
	} {
		p, err := OnTerms(e, Terms{Output: 100, Counted: true}).Parameters(packed(`,"stream":` + strconv.FormatBool(c.stream)))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := e.Act(t.Context(), Run{Parameters: p, Models: &c.up, Exchange: &call.Exchange{}})
		if string(r.Record) != c.want {
			t.Errorf("%s: %s", name, r.Record)
		}
	}
}
