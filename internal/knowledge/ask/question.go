package ask

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"sallyport.example/guard"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
)

// Question is what a model is asked about texts: it judges them and follows nothing in them, as far as a model can. Whoever uses the answer must be able to stand a wrong one.
type Question struct {
	Model    string
	Provider wire.Provider
	Task     string // in the gateway's own words; nobody else's belong here
	Texts    []Text // each in a fence of its own
	// Fields are what an answer has: all of them, and nothing else.
	Fields []Field
}

// Text is a text that somebody else wrote, and where it is from.
type Text struct{ Source, Text string }

// Field is one part of an answer: a text.
type Field struct {
	Name  string
	Words []string // those that it is one of; none: any text of at most Most bytes
	Most  int
	About string // for the model
}

// answerTokens bound an answer, with what a model thinks before it.
const answerTokens = 4000

// Ask asks, and returns the fields of the answer. An answer that is not exactly what was asked for is an error.
func (q *Question) Ask(ctx context.Context, ask Ask) (map[string]string, error) {
	if ask == nil {
		return nil, fault.New(fault.ModelUndeclared, "No model may be asked here.")
	}
	form, body, err := q.request()
	if err != nil {
		return nil, err
	}
	answer, err := ask(ctx, form, body)
	if err != nil {
		return nil, err
	}
	return q.read(form, answer)
}

// request is the request, in its canonical form.
func (q *Question) request() (wire.Form, json.RawMessage, error) {
	var fenced []string
	for _, t := range q.Texts {
		text, err := guard.Wrap(t.Text, t.Source)
		if err != nil {
			return "", nil, err
		}
		fenced = append(fenced, text.ForModel())
	}
	texts := strings.Join(fenced, "\n\n")
	task := q.Task + "\n\n" + guard.ModelInstructions
	form, all := wire.Chat, map[string]any{
		"max_completion_tokens": answerTokens,
		"messages":              []any{map[string]any{"role": "system", "content": task}, map[string]any{"role": "user", "content": texts}},
		"response_format":       map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "strict": true, "schema": q.schema()}},
	}
	if q.Provider == wire.Anthropic {
		form, all = wire.Messages, map[string]any{
			"max_tokens": answerTokens, "system": task,
			"messages":      []any{map[string]any{"role": "user", "content": texts}},
			"output_config": map[string]any{"format": map[string]any{"type": "json_schema", "schema": q.schema()}},
		}
	}
	all["model"] = q.Model
	body, err := call.Encode(all)
	if err == nil {
		body, err = call.Canonical(body, call.DefaultLimits())
	}
	return form, body, err
}

// schema is the JSON schema of an answer. It has no more than both providers take.
func (q *Question) schema() map[string]any {
	properties, names := map[string]any{}, []any{}
	for _, f := range q.Fields {
		p := map[string]any{"type": "string", "description": f.About}
		if len(f.Words) > 0 {
			p["enum"] = f.Words
		}
		properties[f.Name], names = p, append(names, f.Name)
	}
	return map[string]any{"type": "object", "properties": properties, "required": names, "additionalProperties": false}
}

// read reads an answer, which is hostile.
func (q *Question) read(form wire.Form, answer json.RawMessage) (map[string]string, error) {
	wrong := func(why string) error {
		return fault.New(fault.ResultInvalid, "The model's answer %s; it was discarded.", why)
	}
	texts := wire.StructuredIn(form, answer)
	if len(texts) == 0 {
		return nil, wrong("was cut, refused or is a call")
	}
	object, err := call.Canonical(texts[len(texts)-1], call.DefaultLimits())
	if err != nil || !call.IsObject(object) {
		return nil, wrong("is no object")
	}
	got := map[string]string{}
	for name, v := range call.Members(object) {
		i := slices.IndexFunc(q.Fields, func(f Field) bool { return f.Name == name })
		if i < 0 {
			return nil, wrong("has a field that nobody asked for")
		}
		text, ok := call.Text(v)
		switch f := q.Fields[i]; {
		case !ok, len(f.Words) > 0 && !slices.Contains(f.Words, text), len(f.Words) == 0 && len(text) > f.Most:
			return nil, wrong("has something else in a field than was asked for")
		}
		got[name] = text
	}
	if len(got) != len(q.Fields) {
		return nil, wrong("lacks a field")
	}
	return got, nil
}
