package effect

import (
	"context"
	"encoding/json"

	"sallyport.example/internal/call"
	"sallyport.example/provenance"
)

// tool calls a tool of a server.
type tool struct{ served }

func (t tool) Traits() Traits {
	return Traits{Traced: t.op.Traced(), NeedsReasons: t.op.Class.NeedsReasons}
}
func (t tool) Definition() string { return t.op.Hash }

func (t tool) Parameters(arguments []byte) (Parameters, error) {
	p := Parameters{Canonical: arguments}
	if t.op.Class.NeedsReasons {
		p = withReasons(arguments)
	}
	if p.Problem != nil {
		return p, nil
	}
	var err error
	p.Canonical, err = t.op.WithDefaults(p.Canonical, nil)
	return p, err
}

func (t tool) Act(ctx context.Context, r Run) (Result, error) {
	return t.do(ctx, r, call.CallTool, named(t.op.Tool, r.Parameters.Canonical))
}

func (tool) Payloads(c *Content) ([]provenance.Value, bool) { return c.ofTool() }

func (tool) Wrap(c *Content, e Envelope) (json.RawMessage, json.RawMessage, error) {
	return e.wrap(c, (*wrapper).content)
}

func (tool) Refusal(object json.RawMessage) (json.RawMessage, bool) {
	message := "The server refused the request."
	if m, ok := call.Get(object, "message"); ok {
		var s string
		if json.Unmarshal(m, &s) == nil {
			message = s
		}
	}
	result, err := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": message}}, "isError": true})
	return result, err == nil
}

// named is params of a request for what has a name, around canonical arguments.
func named(name string, arguments []byte) []byte {
	b := appendQuoted([]byte(`{"name":`), name, ',')
	b = append(b, `"arguments":`...)
	b = append(b, arguments...)
	return append(b, '}')
}

func appendQuoted(b []byte, s string, end byte) []byte {
	q, _ := json.Marshal(s) // a string always encodes
	return append(append(b, q...), end)
}
