package effect

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// command runs a built-in operation. Its result has the form of a tool's.
type command struct{ op *catalogue.Operation }

func (c command) Operation() *catalogue.Operation { return c.op }
func (c command) Definition() string              { return c.op.Hash }

func (c command) Traits() Traits {
	return Traits{
		NeedsReasons: !c.op.Command.Inside, Requests: c.op.Command.Requests, Traced: c.op.Traced(), OwnWords: c.op.Command.Own, AttributionApart: true, Places: c.op.Command.Places,
	}
}

func (command) Parameters(arguments []byte) (Parameters, error) { return withReasons(arguments), nil }

// withReasons separates the justification, or the id of a declaration, from the parameters.
func withReasons(arguments []byte) (p Parameters) {
	parameters := []byte{'{'}
	for name, raw := range call.Members(arguments) {
		switch name {
		case "justification":
			p.Justification = raw
			continue
		case "declaration_id":
			p.Declaration = raw
			continue
		}
		if len(parameters) > 1 {
			parameters = append(parameters, ',')
		}
		parameters = append(appendQuoted(parameters, name, ':'), raw...)
	}
	if p.Canonical, p.Problem = call.Canonical(append(parameters, '}'), call.DefaultLimits()); p.Problem != nil {
		p.Canonical = arguments
	}
	return p
}

func (c command) Check(parameters []byte) error { return c.op.Command.Check(parameters) }

func (c command) Writes(parameters []byte) (writes bool, why string) {
	command := c.op.Command
	return c.op.Flow.Effect != flow.Read || command.Writes != nil && command.Writes(parameters), c.op.Acts
}

func (c command) Stored(parameters []byte) string {
	if c.op.Command.Of == nil {
		return ""
	}
	return c.op.Command.Of(parameters)
}

func (c command) Inputs(ctx context.Context, session string, parameters []byte) (*call.Inputs, error) {
	if c.op.Command.Inputs == nil {
		return nil, nil
	}
	return c.op.Command.Inputs(ctx, session, parameters)
}

// Renew does nothing: the operation is part of the program.
func (command) Renew(context.Context, Upstreams) error { return nil }

func (c command) Act(ctx context.Context, r Run) (Result, error) {
	b, err := c.op.Command.Run(ctx, catalogue.CommandRun{
		Session: r.Session, Parameters: r.Parameters.Canonical, Inputs: r.Inputs, Agent: r.Agent, Collections: r.Collections, Labels: r.Labels, Ask: r.Ask,
	})
	if ctx.Err() != nil { // partial results are discarded (EX-6), even if the command returned one
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return Result{}, cause
		}
		return Result{}, ctx.Err()
	}
	if err != nil {
		return Result{}, err
	}
	result, err := resultOf(b)
	if err != nil {
		err = fault.Wrap(err, fault.ResultInvalid, "The result could not be put into a form that can be delivered.")
	}
	return Result{JSON: result, Source: b.Source, At: b.At, Labels: b.Labels, Clean: b.Clean, Record: b.Record, Sealed: b.Sealed, Confirms: b.Confirms}, err
}

// Failed knows that a command that only reads changed nothing, and that the error of one that began may show what it reached.
func (command) Failed(err error, writes bool) Failure {
	return Failure{Nothing: unsent(err) || !writes, Tells: !unsent(err)}
}

func (c command) Inspect(content *Content) (failed bool, err error) {
	return inspect(c.op, content)
}

func (command) Payloads(c *Content) ([]provenance.Value, bool) {
	return tool{}.Payloads(c)
}

func (command) Wrap(c *Content, e Envelope) (json.RawMessage, json.RawMessage, error) {
	return tool{}.Wrap(c, e)
}

func (command) Refusal(object json.RawMessage) (json.RawMessage, bool) { return tool{}.Refusal(object) }

// resultOf puts a command's result into the form of an MCP tool result, which is inspected, labelled and wrapped like any other.
func resultOf(b catalogue.Brought) (json.RawMessage, error) {
	if b.Source == "" {
		return nil, errors.New("a command says not where its result is from")
	}
	content := make([]any, 0, len(b.Blocks))
	for _, block := range b.Blocks {
		switch {
		case block.Data == nil:
			content = append(content, map[string]any{"type": "text", "text": block.Text})
		case len(block.MediaType) > len("image/") && strings.HasPrefix(block.MediaType, "image/"):
			content = append(content, map[string]any{"type": "image", "data": base64.StdEncoding.EncodeToString(block.Data), "mimeType": block.MediaType})
		default:
			content = append(content, map[string]any{"type": "resource", "resource": map[string]any{
				"uri": "sha256:" + call.HashBytes(block.Data), "mimeType": block.MediaType, "blob": base64.StdEncoding.EncodeToString(block.Data)}})
		}
	}
	result := map[string]any{"content": content}
	if b.Failed {
		result["isError"] = true
	}
	return call.Encode(result)
}
