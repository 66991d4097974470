package effect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"sallyport.example/guard"
	"sallyport.example/internal/call"
	"sallyport.example/internal/threat"
)

// Envelope holds the source of a result for its attribution and its fences.
type Envelope struct {
	From   guard.Source // but for the content
	Issuer *guard.Issuer
	Brings []string // the labels that the operation is declared to bring
	Asked  string   // the name or URI that was asked for
	MayAsk bool     // the agent's client may be asked on, so questions of the server's pass
}

// wrap fences a result by the function for its form, and attributes it.
func (e *Envelope) wrap(result json.RawMessage, form func(*wrapper, map[string]json.RawMessage) (map[string]any, error)) (wrapped, attribution json.RawMessage, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(result, &members); err != nil {
		return nil, nil, err
	}
	if string(members["resultType"]) == `"input_required"` {
		wrapped, err = e.questions(members)
		return wrapped, nil, err
	}
	w := wrapper{e: e}
	next, err := form(&w, members)
	if err = errors.Join(err, w.err); err != nil {
		return nil, nil, err
	}
	from := e.From
	from.Content = result
	a, err := e.Issuer.Attribute(from)
	if err != nil {
		return nil, nil, err
	}
	if attribution, err = json.Marshal(a); err != nil {
		return nil, nil, err
	}
	next["_meta"] = map[string]any{"sallyport/attribution": attribution}
	wrapped, err = call.Encode(next)
	return wrapped, attribution, err
}

// questions passes the questions of a multi-round-trip result and nothing else. They are for a person, through a client that can ask
// one, and the operator has allowed the server to ask.
func (e *Envelope) questions(members map[string]json.RawMessage) (json.RawMessage, error) {
	if !e.MayAsk || members["inputRequests"] == nil {
		return nil, errors.New("a question that nobody here can be asked")
	}
	next := map[string]json.RawMessage{"resultType": members["resultType"], "inputRequests": PlainJSON(members["inputRequests"])}
	if state, ok := members["requestState"]; ok {
		next["requestState"] = state // sealed by the door before it leaves
	}
	return call.Encode(next)
}

// wrapper fences blocks and remembers the first failure.
type wrapper struct {
	e   *Envelope
	err error
}

// content is the result of a tool.
func (w *wrapper) content(members map[string]json.RawMessage) (map[string]any, error) {
	blocks, err := list(members, "content")
	if err != nil {
		return nil, err
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
	next := map[string]any{"content": blocks}
	if string(members["isError"]) == "true" {
		next["isError"] = true
	}
	return next, nil
}

// contents are those of a resource.
func (w *wrapper) contents(members map[string]json.RawMessage) (map[string]any, error) {
	if members["contents"] == nil {
		return nil, errors.New("there are no contents")
	}
	contents, err := list(members, "contents")
	if err != nil {
		return nil, err
	}
	for i := range contents {
		if contents[i] = w.resource(contents[i]); contents[i] == nil {
			return nil, errors.New("a content has no usable uri")
		}
	}
	return map[string]any{"contents": contents}, nil
}

// messages are those of a prompt.
func (w *wrapper) messages(members map[string]json.RawMessage) (map[string]any, error) {
	if members["messages"] == nil {
		return nil, errors.New("there are no messages")
	}
	messages, err := list(members, "messages")
	if err != nil {
		return nil, err
	}
	for i, m := range messages {
		block, ok := m["content"].(map[string]any)
		if !ok {
			return nil, errors.New("a message's content is not a block")
		}
		role := "user"
		if m["role"] == "assistant" {
			role = "assistant"
		}
		messages[i] = map[string]any{"role": role, "content": w.block(block)}
	}
	return map[string]any{"messages": messages}, nil
}

// list is the member with the name, a list of objects; empty and not null where there is none.
func list(members map[string]json.RawMessage, name string) ([]map[string]any, error) {
	var all []map[string]any
	if raw, ok := members[name]; ok {
		if err := decode(raw, &all); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if all == nil {
		all = []map[string]any{}
	}
	return all, nil
}

// fenced is the text for the model: untrusted content between markers it cannot forge (FE-1 … FE-4).
func (w *wrapper) fenced(text string) string {
	f, err := guard.Fence{Operation: w.e.From.Operation, Contamination: w.e.Brings}.Wrap(text, w.e.From.Source)
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
	raw, err := call.Encode(b)
	if err != nil {
		w.err = err
	}
	return text(string(raw))
}

// resource fences a resource's content. It is nil where the resource has no URI that may stand beside it.
func (w *wrapper) resource(r map[string]any) map[string]any {
	uri, _ := r["uri"].(string)
	if !threat.PlainURI(uri) && uri != w.e.Asked {
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

func decode(raw json.RawMessage, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return dec.Decode(v)
}

// PlainJSON cleans every string of a JSON value. What can't be read becomes an empty object.
func PlainJSON(raw json.RawMessage) json.RawMessage {
	var v any
	if err := decode(raw, &v); err != nil {
		return json.RawMessage("{}")
	}
	b, err := call.Encode(threat.PlainValue(v))
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

// NumbersOnly is a progress notification without its message.
func NumbersOnly(params json.RawMessage) json.RawMessage {
	b := []byte(`{"progress":0`)
	if n, ok := call.Get(params, "progress"); ok && isNumber(n) {
		b = append([]byte(`{"progress":`), n...)
	}
	if n, ok := call.Get(params, "total"); ok && isNumber(n) {
		b = append(append(b, `,"total":`...), n...)
	}
	return append(b, '}')
}

func isNumber(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}
