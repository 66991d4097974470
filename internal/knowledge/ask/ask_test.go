package ask

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/models/wire"
)

// provider stands for the models.
type provider struct {
	t       *testing.T
	answer  wire.Response
	err     error
	asked   int
	entries []audit.Entry
	killed  bool
	broken  bool // the log
	during  func()
}

func (p *provider) Ask(_ context.Context, r wire.Request, _ call.Room) (wire.Response, error) {
	if p.asked++; len(p.entries) == 0 || p.entries[len(p.entries)-1].Kind != audit.Intent {
		p.t.Error("a request left without an intent")
	}
	if p.during != nil {
		p.during()
	}
	return p.answer, p.err
}

func (p *provider) own() *Own {
	return New(Options{
		Models: p, Clock: time.Now,
		May:   func(model string) ([]string, bool) { return []string{"internal"}, model == "embed-1" },
		Price: func(string) *wire.Price { return &wire.Price{Input: 2_000_000} },
		Record: func(_ context.Context, entries ...audit.Entry) error {
			if p.broken {
				return fault.New(fault.AuditUnavailable, "The log is full.")
			}
			p.entries = append(p.entries, entries...)
			return nil
		},
		Enter: func(Running) (func(), func() bool) { return func() {}, func() bool { return p.killed } },
	})
}

func TestOwnRequests(t *testing.T) {
	good := wire.Response{Status: 200, Body: json.RawMessage(`{"data":[{"index":1,"embedding":[0,1]},{"index":0,"embedding":[1,0.5]}],"usage":{"prompt_tokens":7}}`)}
	for _, c := range []struct {
		name, model string
		labels      []string
		set         func(p *provider)
		code        fault.Code
		asked       int
		kinds       []audit.Kind
	}{
		{"good", "embed-1", []string{"internal"}, func(*provider) {}, "", 1, []audit.Kind{audit.Intent, audit.Outcome}},
		{"a label that it may not have", "embed-1", []string{"internal", "pii"}, func(*provider) {}, fault.FlowContaminated, 0, []audit.Kind{audit.Decision}},
		{"a model that there is not", "embed-2", nil, func(*provider) {}, fault.ModelUndeclared, 0, []audit.Kind{audit.Decision}},
		{"all agents are stopped", "embed-1", nil, func(p *provider) { p.killed = true }, fault.KillSwitch, 0, []audit.Kind{audit.Decision}},
		{"stopped meanwhile", "embed-1", nil, func(p *provider) { p.during = func() { p.killed = true } }, fault.KillSwitch, 1, []audit.Kind{audit.Intent, audit.Outcome}},
		{"no log", "embed-1", nil, func(p *provider) { p.broken = true }, fault.AuditUnavailable, 0, nil},
		{"no log for the outcome", "embed-1", nil, func(p *provider) { p.during = func() { p.broken = true } }, fault.AuditUnavailable, 1, []audit.Kind{audit.Intent}},
		{"the provider fails", "embed-1", nil, func(p *provider) { p.err = fault.New(fault.UpstreamFailed, "Gone.") }, fault.UpstreamFailed, 1, []audit.Kind{audit.Intent, audit.Outcome}},
		{"the provider's own error", "embed-1", nil, func(p *provider) { p.answer.Status = 429 }, fault.UpstreamFailed, 1, []audit.Kind{audit.Intent, audit.Outcome}},
	} {
		p := &provider{t: t, answer: good}
		c.set(p)
		vectors, err := Embed(t.Context(), p.own().For(audit.Entry{Action: "knowledge.embed", Actor: "person:a"}, func() ([]string, error) { return c.labels, nil }), c.model, []string{"the secret text", "another"})
		var kinds []audit.Kind
		for _, e := range p.entries {
			kinds = append(kinds, e.Kind)
			b, bad := json.Marshal(e)
			if bad != nil || strings.Contains(string(b), "secret text") || e.Arguments != nil || e.Model != c.model {
				t.Errorf("%s: %s %v", c.name, b, bad)
			}
		}
		if (err == nil) != (c.code == "") || err != nil && !fault.Is(err, c.code) || p.asked != c.asked || !slices.Equal(kinds, c.kinds) {
			t.Errorf("%s: %v, asked %d times, %v", c.name, err, p.asked, kinds)
		}
		if c.code == "" && (len(vectors) != 2 || vectors[0][1] != 0.5 || vectors[1][1] != 1 || !strings.Contains(string(p.entries[1].Detail), `"cost_millionths":14,"tokens":{"input":7`)) {
			t.Errorf("%v %s", vectors, p.entries[1].Detail)
		}
	}
}

// TestPlacesOfAgents: an agent that takes all of its places takes none of another's, and gives back what it took.
func TestPlacesOfAgents(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	soon, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	const most = 3
	p := NewPlaces(most)
	var leave []func()
	for range most {
		free, err := p.Take(soon, "greedy")
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, free)
	}
	if _, err := p.Take(over, "greedy"); !fault.Is(err, fault.TimeExceeded) {
		t.Errorf("it has a place too many: %v", err)
	}
	if _, err := p.Take(soon, "other"); err != nil {
		t.Errorf("another has no place: %v", err)
	}
	leave[0]()
	if _, err := p.Take(soon, "greedy"); err != nil {
		t.Errorf("its place was not given back: %v", err)
	}
}

// What nobody knows counts by its bound, but for a request that never left; the bound of the intent ends the wait; and nothing is used whose outcome is not on record.
func TestRequestsEnd(t *testing.T) {
	const bound = 99
	for name, c := range map[string]struct {
		during func(ctx context.Context) (wire.Response, error)
		settle error
		late   bool // the label comes once the intent is on record
		tokens int64
		code   fault.Code
	}{
		"said": {during: func(context.Context) (wire.Response, error) {
			return wire.Response{Status: 200, Body: json.RawMessage(`{"usage":{"prompt_tokens":7}}`)}, nil
		}, tokens: 7},
		"unsaid": {during: func(context.Context) (wire.Response, error) {
			return wire.Response{Status: 200, Body: json.RawMessage(`{}`)}, nil
		}, tokens: bound},
		"refused": {during: func(context.Context) (wire.Response, error) { return wire.Response{Status: 400}, nil }, code: fault.UpstreamFailed},
		"silence": {during: func(ctx context.Context) (wire.Response, error) { <-ctx.Done(); return wire.Response{}, ctx.Err() }, tokens: bound, code: fault.TimeExceeded},
		"never sent": {during: func(context.Context) (wire.Response, error) {
			return wire.Response{}, fault.Wrap(&fault.NotDispatched{Err: context.Canceled}, fault.UpstreamFailed, "It is away.")
		}, code: fault.UpstreamFailed},
		"a label": {late: true, code: fault.FlowContaminated},
		"no outcome": {during: func(context.Context) (wire.Response, error) {
			return wire.Response{Status: 200, Body: json.RawMessage(`{"usage":{"prompt_tokens":7}}`)}, nil
		}, settle: fault.New(fault.AuditUnavailable, "The log is full."), tokens: 7, code: fault.AuditUnavailable},
	} {
		var outcome audit.Entry
		intended := false
		q := Request{
			Models: asks(func(ctx context.Context) (wire.Response, error) {
				if c.during == nil {
					t.Errorf("%s: it left", name)
					return wire.Response{}, nil
				}
				return c.during(ctx)
			}),
			Clock: time.Now, Entry: audit.Entry{Action: "a.test", Detail: json.RawMessage(`{"judges":"call_1"}`)},
			Labels: func() ([]string, error) {
				if c.late && intended {
					return []string{"secret"}, nil
				}
				return nil, nil
			},
			May:     func(_ string, labels []string) error { return MayHave(nil, labels) },
			Stopped: func() error { return nil },
			Intend: func(context.Context, audit.Entry, wire.Request) (time.Duration, error) {
				intended = true
				return time.Millisecond, nil
			},
			Settle: func(_ context.Context, e audit.Entry, _ End) error { outcome = e; return c.settle },
			AtMost: func(wire.Request) wire.Usage { return wire.Usage{Input: bound, Estimated: true} },
			Price:  func(string) *wire.Price { return nil },
		}
		_, err := Embed(t.Context(), q.Do, "embed-1", []string{"a text"})
		if c.code != "" && !fault.Is(err, c.code) {
			t.Errorf("%s: %v", name, err)
		}
		var got struct {
			Judges string
			Tokens struct{ Input int64 }
		}
		if err := json.Unmarshal(outcome.Detail, &got); err != nil || got.Tokens.Input != c.tokens || got.Judges != "call_1" || outcome.Kind != audit.Outcome {
			t.Errorf("%s: %s %v, want %d tokens", name, outcome.Detail, err, c.tokens)
		}
	}
}

// asks stands for the models.
type asks func(ctx context.Context) (wire.Response, error)

func (a asks) Ask(ctx context.Context, _ wire.Request, _ call.Room) (wire.Response, error) {
	return a(ctx)
}

// What a model answers is whole, or an error.
func TestHostileEmbeddings(t *testing.T) {
	for _, body := range []string{
		``, `[]`, `{"data":[]}`, `{"data":[{"index":0,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":[1]},{"embedding":[1]}]}`,
		`{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":[1]},{"index":-1,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}`,
		`{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}`, `{"data":[{"index":0,"embedding":[0,0]},{"index":1,"embedding":[1,0]}]}`, `{"data":[{"index":0,"embedding":[1e300]},{"index":1,"embedding":[1]}]}`,
		`{"data":[{"index":0,"embedding":["1"]},{"index":1,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":"AAAA"},{"index":1,"embedding":[1]}]}`,
		`{"data":[{"index":0,"embedding":[` + strings.Repeat("1,", knowledge.MaxDimensions) + `1]},{"index":1,"embedding":[` + strings.Repeat("1,", knowledge.MaxDimensions) + `1]}]}`,
	} {
		_, err := Embed(t.Context(), func(context.Context, wire.Form, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(body), nil
		}, "m", []string{"a", "b"})
		if !fault.Is(err, fault.ResultInvalid) {
			t.Errorf("%.80s: %v", body, err)
		}
	}
}

// A text that is erased, or gets a label, while its request is written down, does not leave; the request is on record, for whoever asks what left.
func TestLabelsAreReadAgainOnceItIsOnRecord(t *testing.T) {
	for name, c := range map[string]struct {
		then func() ([]string, error)
		code fault.Code
	}{
		"erased":   {func() ([]string, error) { return nil, fault.New(fault.NotFound, "It is gone.") }, fault.NotFound},
		"labelled": {func() ([]string, error) { return []string{"secret"}, nil }, fault.FlowContaminated},
	} {
		p := &provider{t: t}
		labels := func() ([]string, error) {
			if len(p.entries) == 0 {
				return nil, nil
			}
			return c.then()
		}
		_, err := Embed(t.Context(), p.own().For(audit.Entry{Action: "knowledge.embed", Actor: "person:a"}, labels), "embed-1", []string{"the secret text"})
		if !fault.Is(err, c.code) || p.asked != 0 || len(p.entries) != 2 || p.entries[0].Kind != audit.Intent || p.entries[1].Decision != "error" {
			t.Errorf("%s: %v, asked %d times, %+v", name, err, p.asked, p.entries)
		}
	}
}
