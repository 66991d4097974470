package effect

import (
	"context"
	"encoding/json"

	"sallyport.example/internal/call"
	"sallyport.example/provenance"
)

// The URI of a resource and the name of a prompt are judged, hashed and kept with the arguments, because they say what is asked for.

// resource reads a resource, or subscribes to it or unsubscribes.
type resource struct {
	served
	method call.Method
	uri    string
}

func (r *resource) Traits() Traits {
	p := r.op.Profile
	return Traits{
		ReadsNothing: r.method != call.ReadResource,
		Traced:       r.method != call.Unsubscribe && (p.HasRoles() || p.EgressURL),
	}
}

func (r *resource) Definition() string { return r.asOther(r.method) }

func (r *resource) Parameters([]byte) (Parameters, error) {
	canonical, err := call.Canonical(appendQuoted([]byte(`{"uri":`), r.uri, '}'), call.DefaultLimits())
	return Parameters{Canonical: canonical}, err
}

func (r *resource) Act(ctx context.Context, run Run) (Result, error) {
	result, err := r.do(ctx, run, r.method, run.Parameters.Canonical)
	if r.method == call.ReadResource {
		result.Source = r.uri
	}
	return result, err
}

func (r *resource) Payloads(c *Content) ([]provenance.Value, bool) {
	if r.method != call.ReadResource {
		return nil, false
	}
	return c.ofResource()
}

func (r *resource) Wrap(c *Content, e Envelope) (json.RawMessage, json.RawMessage, error) {
	if r.method != call.ReadResource {
		return PlainJSON(c.JSON), nil, nil
	}
	return e.wrap(c, (*wrapper).contents)
}

// prompt gets a prompt of a server, with arguments.
type prompt struct {
	served
	name string // the server's own
}

func (*prompt) Traits() Traits       { return Traits{} }
func (p *prompt) Definition() string { return p.asOther(call.GetPrompt) }

func (p *prompt) Parameters(arguments []byte) (Parameters, error) {
	canonical, err := call.Canonical(named(p.name, arguments), call.DefaultLimits())
	return Parameters{Canonical: canonical, Selects: arguments}, err
}

func (p *prompt) Act(ctx context.Context, r Run) (Result, error) {
	return p.do(ctx, r, call.GetPrompt, named(p.name, r.Parameters.Selects))
}

func (*prompt) Payloads(c *Content) ([]provenance.Value, bool) {
	return c.ofPrompt()
}

func (*prompt) Wrap(c *Content, e Envelope) (json.RawMessage, json.RawMessage, error) {
	return e.wrap(c, (*wrapper).messages)
}

// completion completes an argument of a prompt or of a resource's template. The door has rewritten ref to the server's own name.
type completion struct{ served }

func (completion) Traits() Traits       { return Traits{} }
func (c completion) Definition() string { return c.asOther(call.Complete) }

func (completion) Parameters(arguments []byte) (Parameters, error) {
	canonical, err := call.Canonical(arguments, call.DefaultLimits())
	return Parameters{Canonical: canonical}, err
}

func (c completion) Act(ctx context.Context, r Run) (Result, error) {
	return c.do(ctx, r, call.Complete, r.Parameters.Canonical)
}

func (completion) Payloads(*Content) ([]provenance.Value, bool) { return nil, false }

func (completion) Wrap(c *Content, _ Envelope) (json.RawMessage, json.RawMessage, error) {
	return PlainJSON(c.JSON), nil, nil
}
