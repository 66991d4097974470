package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"sallyport.example/internal/console"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/web"
)

// fail makes a problem of a handler's error. The problem of a declaration, or of a configuration, lists each field that is wrong.
func (s *side) fail(ctx context.Context, err error) *web.Problem {
	p := s.web.Problem(ctx, err)
	var declared *declare.Invalid
	if errors.As(err, &declared) {
		for _, f := range declared.Problems {
			p.Errors = append(p.Errors, web.FieldError(f))
		}
	}
	var reload *console.ReloadRefused
	if errors.As(err, &reload) {
		for _, f := range reload.Problems {
			field := f.Field
			f.Field = ""
			p.Errors = append(p.Errors, web.FieldError{Field: field, Problem: f.String()})
		}
	}
	var moved *library.Moved
	if errors.As(err, &moved) {
		p.CurrentVersion = moved.Current
	}
	return p
}

// refuse answers with a problem outside huma.
func (s *side) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if web.Status(err) == http.StatusUnauthorized {
		challenge := `Bearer realm="sallyport"`
		if r.Header.Get("Authorization") != "" {
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	s.web.Refuse(w, r, err)
}

// transform turns a huma error into a problem of ours. It drops the values, which can be secrets.
func transform(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	code := fault.RequestMalformed
	if m.Status >= 500 {
		code = fault.Internal
	}
	p := &web.Problem{
		Type: "about:blank", Title: http.StatusText(m.Status), Status: m.Status, Detail: code.Sentence(), Code: code, RequestID: web.RequestID(ctx.Context()),
	}
	if code == fault.Internal {
		return p, nil
	}
	for _, e := range m.Errors {
		field := e.Location
		for _, place := range []string{"body.", "query.", "path."} {
			field = strings.TrimPrefix(field, place)
		}
		p.Errors = append(p.Errors, web.FieldError{Field: field, Problem: e.Message})
	}
	if len(p.Errors) > 0 {
		p.Field, p.Detail = p.Errors[0].Field, p.Errors[0].Problem
	}
	return p, nil
}

// wrongSide refuses a valid credential of the other side.
func wrongSide(p identity.Principal, people bool) error {
	if people {
		return fault.New(fault.CredentialWrongKind, "This is the people's side, and this is a token for an agent, a host, a session or a hook (kind %q).", string(p.Kind)).
			Try("Use a person's token; is SALLYPORT_TOKEN set to another? Agents, hosts and sessions use the agents' side: the address under listen, 127.0.0.1:7575 by default.")
	}
	return fault.New(fault.CredentialWrongKind, "This is the agents' side, and this is a person's token.").
		Try("People use the people's side: the address under admin_listen, 127.0.0.1:7576 by default.")
}
