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
