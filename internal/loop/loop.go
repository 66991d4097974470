// Package loop lets a model work on one task: it asks the model, makes the calls that the model asks for, gives it their results, and ends with the model's
// answer. It is what a run of kind model does.
//
// Promises: it reaches nothing by itself: each request to the model and each call of a tool goes through Options.Call, which is the corridor, also a call of a
// tool that was not offered. It ends: after MaxSteps requests, when the conversation would be over MaxContext, when the tokens of the declaration are used up,
// or when its context ends. Nothing is asked for a second time. What a result says is given to the model word for word, so that the gateway knows its labels.
package loop

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
)

const (
	// MaxSteps bounds the requests to the model.
	MaxSteps = 24
	// MaxContext bounds one request to the model, in bytes.
	MaxContext = 1 << 20
	// maxCalls bounds the calls that one answer asks for.
	maxCalls = 32
	// maxAnswer bounds the tokens of one answer, where the declaration has more left.
	maxAnswer = 8192
	// bytesPerToken is how many bytes of a request are taken for a token before it is sent. Providers count more exactly; what they say is what counts.
	bytesPerToken = 4
)

// Tool is what the model is offered.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // of its arguments
}

// Options are the options of Run. Every field but Tools is needed.
type Options struct {
	Model     string
	Provider  wire.Provider
	System    string
	Task      string // what the model is to work on: the first message
	Tools     []Tool
	MaxTokens int // of all requests and answers together
	// Call makes one call in the run's session. A result is there where the verdict permits. Safe to call from one goroutine.
	Call func(ctx context.Context, method call.Method, tool string, arguments json.RawMessage) (result json.RawMessage, v fault.Verdict)
	Now  func() time.Time
}

// Run works until the model answers without asking for a call, and returns that answer. Its errors are fault errors, or that of ctx.
func Run(ctx context.Context, o Options) (answer []byte, err error) {
	talk := newTalk(o)
	left, brought := o.MaxTokens, 0 // tokens, and bytes of results
	for range MaxSteps {
		said, used, err := ask(ctx, o, talk, left)
		if err != nil {
			return nil, err
		}
		if left -= used; left < 0 {
			return nil, fault.New(fault.LimitQuota, "The model used %d tokens, and the declaration's maxTokens is %d.", o.MaxTokens-left, o.MaxTokens).Try("Ask for less, or raise maxTokens in the declaration.")
		}
		switch {
		case said.cut:
			return nil, fault.New(fault.OutputInvalid, "The model's answer was cut, because it had no tokens left.").Try("Raise maxTokens in the declaration, or ask for a shorter answer.")
		case len(said.calls) == 0:
			return []byte(said.text), nil
		case len(said.calls) > maxCalls:
			return nil, fault.New(fault.OutputInvalid, "The model asked for %d calls at once, and at most %d pass.", len(said.calls), maxCalls)
		}
		talk.said(said)
		results := make([]result, 0, len(said.calls))
		for _, c := range said.calls {
			if ctx.Err() != nil { // no call begins after the end
				return nil, context.Cause(ctx)
			}
			r, err := one(ctx, o, c)
			if err != nil {
				return nil, err
			}
			for _, text := range r.texts {
				brought += len(text)
			}
			if brought > MaxContext { // before the rest is read, too
				return nil, tooMuch()
			}
			results = append(results, r)
		}
		talk.results(results, now(o))
	}
	return nil, fault.New(fault.LimitQuota, "The model asked for calls in %d answers in a row and gave no answer of its own.", MaxSteps).Try("Say in the declaration's systemPrompt when the work is done, or ask for less.")
}

// now tells the model the time, which it has to name in its citations: no earlier than the calls before.
func now(o Options) string {
	return "It is " + o.Now().UTC().Truncate(time.Millisecond).Add(time.Millisecond).Format(time.RFC3339Nano) + "."
}

// ask sends the conversation to the model, and tells what it said and how many tokens that took.
func ask(ctx context.Context, o Options, t talk, left int) (s said, used int, err error) {
	if left <= 0 {
		return s, 0, fault.New(fault.LimitQuota, "The model has used the %d tokens that the declaration allows, and has not answered.", o.MaxTokens).Try("Ask for less, or raise maxTokens in the declaration.")
	}
	body, err := t.request(maxAnswer)
	if err != nil {
		return s, 0, fault.Wrap(err, fault.Internal, "")
	}
	if len(body) > MaxContext {
		return s, 0, tooMuch()
	}
	if left -= len(body) / bytesPerToken; left <= 0 {
		return s, 0, fault.New(fault.LimitQuota, "What the model would have to read takes more tokens than are left of the declaration's maxTokens, which is %d.", o.MaxTokens).Try("Ask for less, or raise maxTokens in the declaration.")
	}
	if left < maxAnswer {
		if body, err = t.request(left); err != nil {
			return s, 0, fault.Wrap(err, fault.Internal, "")
		}
	}
	form := t.form()
	version := ""
	if form == wire.Messages {
		version = wire.Versions[0]
	}
	packed, err := wire.Packed(wire.Request{Form: form, Version: version, Body: body})
	if err != nil {
		return s, 0, fault.Wrap(err, fault.Internal, "")
	}
	got, v := o.Call(ctx, call.AskModel, o.Model, packed)
	switch {
	case ctx.Err() != nil:
		return s, 0, context.Cause(ctx)
	case v.Decision != fault.Permit:
		return s, 0, refused(v)
	}
	raw, _ := call.Get(got, "status")
	if status, _ := strconv.Atoi(string(raw)); status != 200 {
		return s, 0, fault.New(fault.UpstreamFailed, "The model's provider answered with the status %d, and nothing is asked for twice.", status).Try("Ask for the run again.")
	}
	reply, _ := call.Get(got, "body")
	usage, is := wire.UsageOf(reply)
	if !is || usage.Input <= 0 || usage.Output < 0 {
		return s, 0, fault.New(fault.ResultInvalid, "The provider does not say how many tokens its answer took, so nothing can hold it to maxTokens.")
	}
	if s, err = t.read(reply); err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return s, int(usage.Input + usage.Output), err
}

func tooMuch() error {
	return fault.New(fault.LimitQuota, "What the model would have to read is over %d KiB.", MaxContext>>10).Try("Ask for less at a time.")
}

// refused is the end of a run whose request to the model was refused.
func refused(v fault.Verdict) error {
	e := fault.New(v.Code, "The request to the model was refused. %s", v.Reason)
	for _, r := range v.Remedies {
		e = e.Try("%s", r.Text)
	}
	return e
}

// result is what a call that the model asked for brought.
type result struct {
	id     string
	texts  []string
	failed bool
}

// one makes a call that the model asked for. A refusal is a result that it can act on.
func one(ctx context.Context, o Options, c asked) (result, error) {
	r := result{id: c.id, failed: true}
	if !call.IsObject(c.arguments) {
		r.texts = []string{"Refused: the arguments must be a JSON object."}
		return r, nil
	}
	got, v := o.Call(ctx, call.CallTool, c.tool, c.arguments)
	switch {
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case v.Decision != fault.Permit:
		r.texts = []string{v.Explain()}
		return r, nil
	}
	content, _ := call.Get(got, "content")
	others := 0
	for block := range call.Elements(content) {
		if text, ok := call.GetText(block, "text"); ok && text != "" {
			r.texts = append(r.texts, text)
		} else if !ok {
			others++
		}
	}
	if len(r.texts) == 0 && others > 0 {
		r.texts = []string{"The result has no text. What else is in it can't be shown."}
	} else if len(r.texts) == 0 {
		r.texts = []string{"The result is empty."}
	}
	wrong, _ := call.Get(got, "isError")
	r.failed = string(wrong) == "true"
	return r, nil
}

// unreadable is the error of an answer that is not of the provider's form.
func unreadable(what string) error {
	return fault.New(fault.ResultInvalid, "The model's answer %s; it was discarded.", display.Line(what, 120))
}
