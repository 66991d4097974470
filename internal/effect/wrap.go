package effect

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.example/guard"
	"sallyport.example/internal/call"
	"sallyport.example/internal/threat"
)

// Envelope holds the source of a result for its attribution and its fences.
type Envelope struct {
	From   guard.Source // but for the content; with the hash of the result where it is known
	Issuer *guard.Issuer
	Brings []string // the labels that the operation is declared to bring
	Asked  string   // the name or URI that was asked for
	MayAsk bool     // the agent's client may be asked on, so questions of the server's pass
	// Structured says that the agent is a program that reads structured content: it gets it as the server sent it, too, beside the fence.
	Structured bool
	Suspected  int // places in the result that screening takes for orders to an agent
}

// wrap fences a result by the function for its form, and attributes it.
func (e *Envelope) wrap(content *Content, form func(*wrapper, map[string]json.RawMessage) (map[string]any, error)) (wrapped, attribution json.RawMessage, err error) {
	from, c := e.From, content
	if c, err = content.lenient(); err != nil {
		return nil, nil, err
	}
	if result := bytes.TrimSpace(c.JSON); c != content || len(result) != len(c.JSON) || from.SHA256 == ([sha256.Size]byte{}) {
		from.SHA256, from.Content = [sha256.Size]byte{}, result
	}
	members := c.members
	if string(members["resultType"]) == `"input_required"` {
		wrapped, err = e.questions(members)
		return wrapped, nil, err
	}
	w := wrapper{e: e, c: c}
	next, err := form(&w, members)
	if err = errors.Join(err, w.err); err != nil {
		return nil, nil, err
	}
	a, err := e.Issuer.Attribute(from)
	if err != nil {
		return nil, nil, err
	}
	if attribution, err = a.MarshalJSON(); err != nil {
		return nil, nil, err
	}
	meta := map[string]any{"sallyport/attribution": attribution}
	if next["structuredContent"] != nil {
		meta["sallyport/structured"] = guard.TrustLevel
	}
	next["_meta"] = meta
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
	c   *Content
	err error
}

// content is the result of a tool. Texts that stand side by side are fenced together, each from its own line on, and so is structured content that says
// more than they do.
func (w *wrapper) content(members map[string]json.RawMessage) (map[string]any, error) {
	blocks, err := w.list("content")
	if err != nil {
		return nil, err
	}
	blocks, rest := capped(blocks)
	if rest != nil {
		blocks = append(blocks, encoded(map[string]any{"type": "text", "text": *rest}))
	}
	structured, texts := members["structuredContent"], []string(nil)
	if string(structured) == "null" {
		structured = nil
	}
	pieces, end := make([]any, len(blocks)), 0
	for i, b := range blocks {
		pieces[i] = w.piece(b)
		if s, text := pieces[i].(string); text {
			texts, end = append(texts, s), i+1
		}
	}
	if structured != nil && !slices.ContainsFunc(texts, w.c.repeats) {
		pieces = slices.Insert(pieces, end, any(string(structured))) // after the last text, so that the two are one
	}
	next := map[string]any{"content": w.joined(pieces)}
	if structured != nil && w.e.Structured {
		next["structuredContent"] = structured
	}
	if string(members["isError"]) == "true" {
		next["isError"] = true
	}
	return next, nil
}

// joined fences the texts among pieces, neighbours in one fence.
func (w *wrapper) joined(pieces []any) []any {
	blocks := []any{}
	for i := 0; i < len(pieces); {
		var texts []string
		for ; i < len(pieces); i++ {
			s, ok := pieces[i].(string)
			if !ok {
				break
			}
			texts = append(texts, s)
		}
		if texts != nil {
			blocks = append(blocks, w.text(strings.Join(texts, "\n")))
			continue
		}
		blocks = append(blocks, pieces[i])
		i++
	}
	return blocks
}

// contents are those of a resource.
func (w *wrapper) contents(members map[string]json.RawMessage) (map[string]any, error) {
	if members["contents"] == nil {
		return nil, errors.New("there are no contents")
	}
	contents, err := w.list("contents")
	if err != nil {
		return nil, err
	}
	contents, rest := capped(contents)
	if rest != nil {
		uri, _ := call.Get(contents[0], "uri")
		contents = append(contents, encoded(map[string]any{"uri": uri, "text": *rest}))
	}
	next := make([]any, len(contents))
	for i, c := range contents {
		r := w.resource(c)
		if r == nil {
			return nil, errors.New("a content has no usable uri")
		}
		next[i] = r
	}
	return map[string]any{"contents": next}, nil
}

// messages are those of a prompt.
func (w *wrapper) messages(members map[string]json.RawMessage) (map[string]any, error) {
	if members["messages"] == nil {
		return nil, errors.New("there are no messages")
	}
	messages, err := w.list("messages")
	if err != nil {
		return nil, err
	}
	messages, rest := capped(messages)
	if rest != nil {
		messages = append(messages, encoded(map[string]any{"role": "user", "content": map[string]any{"type": "text", "text": *rest}}))
	}
	next := make([]any, len(messages))
	for i, m := range messages {
		block := w.c.get(m, "content")
		if !call.IsObject(block) {
			return nil, errors.New("a message's content is not a block")
		}
		role := "user"
		if says, _ := w.c.text(m, "role"); says == "assistant" {
			role = says
		}
		next[i] = map[string]any{"role": role, "content": w.block(block)}
	}
	return map[string]any{"messages": next}, nil
}

// maxBlocks bounds the blocks of a result: each has a fence of its own, which can be a hundred times as long as what is in it.
const maxBlocks = 256

// capped are the first of all, and the rest as one text where there are more than maxBlocks: texts as they are, anything else as its JSON.
func capped(all []json.RawMessage) (first []json.RawMessage, rest *string) {
	if len(all) <= maxBlocks {
		return all, nil
	}
	first, all = all[:maxBlocks-1:maxBlocks-1], all[maxBlocks-1:]
	var b strings.Builder
	for _, block := range all {
		if s, ok := call.GetText(block, "text"); ok && isText(block) {
			b.WriteString(s)
		} else {
			b.Write(block)
		}
		b.WriteByte('\n')
	}
	s := b.String()
	return first, &s
}

func isText(block json.RawMessage) bool {
	kind, _ := call.GetText(block, "type")
	return kind == "text"
}

func encoded(members map[string]any) json.RawMessage {
	b, _ := call.Encode(members) // of texts and of JSON: can't fail
	return b
}

// list is the member with the name, a list of objects; nil where there is none.
func (w *wrapper) list(name string) ([]json.RawMessage, error) {
	raw := w.c.members[name]
	if raw == nil || isNull(raw) {
		return nil, nil
	}
	all := w.c.elements(name)
	if raw[0] != '[' || slices.ContainsFunc(all, func(b json.RawMessage) bool { return !call.IsObject(b) && !isNull(b) }) {
		return nil, fmt.Errorf("%s is not a list of objects", name)
	}
	return all, nil
}

// fenced is the text for the model: untrusted content between markers it cannot forge (FE-1 … FE-4).
func (w *wrapper) fenced(text string) call.LongText {
	f, err := guard.Fence{Contamination: w.e.Brings, Suspected: w.e.Suspected}.Wrap(text, w.e.From.Source)
	if err != nil {
		w.err = err
	}
	return f
}

// text is a content block of fenced text.
func (w *wrapper) text(s string) map[string]any {
	return map[string]any{"type": "text", "text": w.fenced(s)}
}

// block fences a content block.
func (w *wrapper) block(b json.RawMessage) any {
	p := w.piece(b)
	if s, ok := p.(string); ok {
		return w.text(s)
	}
	return p
}

// piece is a text that is still to be fenced, or a block that may stand as it is. Only known members of known types pass; what is unknown is text.
func (w *wrapper) piece(b json.RawMessage) any {
	switch kind, _ := w.c.text(b, "type"); kind {
	case "text":
		if s, ok := w.c.text(b, "text"); ok {
			return s
		}
	case "image", "audio":
		data, ok := w.c.text(b, "data")
		mime, ok2 := w.c.text(b, "mimeType")
		if ok && ok2 {
			if threat.MediaType(mime) && isBase64(data) {
				return map[string]any{"type": kind, "data": data, "mimeType": mime}
			}
		}
	case "resource":
		if inner := w.c.get(b, "resource"); call.IsObject(inner) {
			if r := w.resource(inner); r != nil {
				return map[string]any{"type": "resource", "resource": r}
			}
		}
	}
	return string(b)
}

// resource fences a resource's content. It is nil where the resource has no URI that may stand beside it.
func (w *wrapper) resource(r json.RawMessage) map[string]any {
	uri, _ := w.c.text(r, "uri")
	if !threat.PlainURI(uri) && uri != w.e.Asked {
		return nil
	}
	next := map[string]any{"uri": uri}
	if mime, ok := w.c.text(r, "mimeType"); ok && threat.MediaType(mime) {
		next["mimeType"] = mime
	}
	if blob, ok := w.c.text(r, "blob"); ok {
		if !isBase64(blob) {
			return nil
		}
		next["blob"] = blob
	} else if s, ok := w.c.text(r, "text"); ok {
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
