package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/mcpwire"
)

func bare(features ...string) *conversation {
	c := &conversation{s: newServer(Config{ID: "srv", URL: "http://x/", ClientFeatures: features}, Options{Log: logger(&testLog{}), MaxResult: 1 << 20})}
	c.agree(mcpwire.Revision0728)
	return c
}

// TestInputRequired: a multi-round-trip request passes as it is where the operator lets the server ask for everything in it, except that
// samplings include no context (mcp-105); else it is refused.
func TestInputRequired(t *testing.T) {
	const elicit = `"a":{"method":"elicitation/create","params":{"message":"m"}}`
	const sample = `"b":{"method":"sampling/createMessage","params":{"includeContext":"allServers","messages":[]}}`
	for _, c := range []struct {
		features []string
		requests string
		want     string // "" is refused
	}{
		{nil, elicit, ""},
		{[]string{"sampling"}, elicit, ""},
		{[]string{"elicitation"}, elicit, elicit},
		{[]string{"elicitation"}, elicit + "," + sample, ""},
		{[]string{"elicitation", "sampling"}, elicit + "," + sample, elicit + "," + strings.Replace(sample, "allServers", "none", 1)},
		{[]string{"sampling"}, `"b":{"method":"sampling/createMessage"}`, `"b":{"method":"sampling/createMessage","params":{"includeContext":"none"}}`},
		{[]string{"elicitation", "sampling", "roots"}, `"x":{"method":"vendor/ask"}`, ""},
		{[]string{"elicitation", "sampling", "roots"}, `"x":7`, ""},
	} {
		result := `{"resultType":"input_required","inputRequests":{` + c.requests + `},"requestState":"s"}`
		r, err := bare(c.features...).finish(mcpwire.Message{ID: json.RawMessage(`"sp-1"`), Result: json.RawMessage(result)})
		if c.want == "" {
			if !fault.Is(err, fault.ResultInvalid) {
				t.Errorf("%v %s: %s %v", c.features, c.requests, r, err)
			}
			continue
		}
		if want := `{"resultType":"input_required","inputRequests":{` + c.want + `},"requestState":"s"}`; err != nil || string(r) != want {
			t.Errorf("%v %s: %s %v", c.features, c.requests, r, err)
		}
	}
}

// TestBuild: the params' bytes are sent as they were judged; what we add comes after them, and of the client's capabilities only what the
// operator lets this server use.
func TestBuild(t *testing.T) {
	c := bare("elicitation", "sampling")
	x := &call.Exchange{
		Progress:           func(json.RawMessage) {},
		InputResponses:     json.RawMessage(`{"q":1}`),
		RequestState:       "a\"b",
		ClientCapabilities: json.RawMessage(`{"elicitation":{"form":{}},"sampling":{"context":{},"tools":{}},"roots":{"listChanged":true},"experimental":{"x":{}}}`),
	}
	out, err := c.build(json.RawMessage(`"sp-7"`), "tools/call", json.RawMessage(`{"arguments":{"z":1,"a":[1.50,"\u0041"]},"name":"t"}`), x)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"jsonrpc":"2.0","id":"sp-7","method":"tools/call","params":{"arguments":{"z":1,"a":[1.50,"\u0041"]},"name":"t","inputResponses":{"q":1},"requestState":"a\"b",` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"sallyport","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"sampling":{"tools":{}}},"progressToken":"sp-7"}}}`
	if got := out.Append(nil); string(got) != want {
		t.Errorf("%s", got)
	}
	c.agree(mcpwire.Revision0618)
	for params, want := range map[string]string{
		``:             `{}`,
		`{}`:           `{}`,
		` { } `:        `{ }`,
		`{"name":"t"}`: `{"name":"t"}`,
	} {
		out, err := c.build(json.RawMessage(`"sp-8"`), "tools/call", json.RawMessage(params), &call.Exchange{})
		if err != nil || string(out.Params) != want {
			t.Errorf("%q: %v %v", params, out, err)
		}
	}
	for _, params := range []string{`[]`, `{`, `{"a":1}{`, `{"_meta":{}}`, `{"inputResponses":1}`} {
		_, err := c.build(json.RawMessage(`"sp-9"`), "tools/call", json.RawMessage(params), &call.Exchange{})
		var nd *fault.NotDispatched
		if !errors.As(err, &nd) {
			t.Errorf("%s: %v", params, err)
		}
	}
}

// A call can have ended the conversation that it was sent to. No call caused that a server ended which was not called, or that nobody is at its address.
func TestWhatACallCanHaveEnded(t *testing.T) {
	for name, c := range map[string]struct {
		called bool
		cause  error
		want   bool
	}{
		"a program that exits":          {true, errors.New("exit status 1"), true},
		"one that was never called":     {false, errors.New("exit status 1"), false},
		"nobody is at the address":      {true, fmt.Errorf("it can't be reached: %w", &dialError{errors.New("refused")}), false},
		"the server ended the session":  {true, errSessionGone, true},
		"it floods us, and was called":  {true, errFlood, true},
		"it floods us, and was not yet": {false, errFlood, false},
	} {
		conv := bare()
		conv.called = c.called
		conv.ctx, conv.cancel = context.WithCancelCause(t.Context())
		conv.fail(c.cause)
		if got := conv.endedByCall(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		var unsent *fault.NotDispatched
		if err := conv.unsent("has ended"); !errors.As(err, &unsent) || unsent.Starting != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
