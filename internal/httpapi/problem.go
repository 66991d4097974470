package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// Problem is every refusal (RFC 9457).
type Problem struct {
	Type      string       `json:"type" doc:"always about:blank; code tells what it is"`
	Title     string       `json:"title"`
	Status    int          `json:"status"`
	Detail    string       `json:"detail"`
	Code      fault.Code   `json:"code" doc:"one of the codes of the gateway"`
	Field     string       `json:"field,omitempty" doc:"the field at fault"`
	Remedy    string       `json:"remedy,omitempty" doc:"the way out"`
	RequestID string       `json:"request_id" doc:"to quote; the log has more under it"`
	Errors    []FieldError `json:"errors,omitempty"`
}

// FieldError says what is wrong with one field.
type FieldError struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus is for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is for huma.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// problemOf puts an error into public words. Nothing of its cause is in them.
func problemOf(ctx context.Context, err error) *Problem {
	e := fault.Of(err)
	detail := e.Code.Sentence()
	if e.Message != "" && e.Code != fault.Internal {
		detail = e.Message
	}
	status := e.Code.HTTPStatus()
	var as *statusError
	if errors.As(err, &as) {
		status = as.status
	}
	p := &Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Code: e.Code,
		Field: e.Field, Remedy: e.Remedy, RequestID: requestID(ctx),
	}
	var declared *declare.Invalid
	if errors.As(err, &declared) {
		for _, f := range declared.Problems {
			p.Errors = append(p.Errors, FieldError(f))
		}
	}
	return p
}

// statusError is a fault with another HTTP status than its code's.
type statusError struct {
	fault  *fault.Error
	status int
}

func (e *statusError) Error() string { return e.fault.Error() }
func (e *statusError) Unwrap() error { return e.fault }

func withStatus(status int, e *fault.Error) error { return &statusError{e, status} }

// fail logs what only the log may know and returns the public words.
func (a *API) fail(ctx context.Context, err error) *Problem {
	p := problemOf(ctx, err)
	if p.Status >= 500 {
		a.log.Error("a request failed", "request_id", p.RequestID, "code", p.Code, "error", err)
	}
	return p
}

// refuse answers with a problem outside huma.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := a.fail(r.Context(), err)
	if p.Status == http.StatusUnauthorized {
		challenge := `Bearer realm="sallyport"`
		if r.Header.Get("Authorization") != "" {
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers encode
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(b, '\n')) // a client that is gone needs no answer
}

// transform puts what huma found wrong with a request into our form. The values that it would echo are dropped: they can be secrets.
func transform(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	code := fault.RequestMalformed
	if m.Status >= 500 {
		code = fault.Internal
	}
	p := &Problem{
		Type: "about:blank", Title: http.StatusText(m.Status), Status: m.Status, Detail: code.Sentence(), Code: code, RequestID: requestID(ctx.Context()),
	}
	if code == fault.Internal {
		return p, nil
	}
	for _, e := range m.Errors {
		field := e.Location
		for _, place := range []string{"body.", "query.", "path."} {
			field = strings.TrimPrefix(field, place)
		}
		p.Errors = append(p.Errors, FieldError{Field: field, Problem: e.Message})
	}
	if len(p.Errors) > 0 {
		p.Field, p.Detail = p.Errors[0].Field, p.Errors[0].Problem
	}
	return p, nil
}

// wrongSide refuses a good credential at the other side's door.
func wrongSide(p identity.Principal, people bool) error {
	if people {
		return fault.New(fault.CredentialWrongKind, "This is the people's side, and this is the token of a kind %q.", string(p.Kind)).
			Try("Agents, hosts and sessions use the agents' side: the address under listen, 127.0.0.1:7575 by default.")
	}
	return fault.New(fault.CredentialWrongKind, "This is the agents' side, and this is a person's token.").
		Try("People use the people's side: the address under admin_listen, 127.0.0.1:7576 by default.")
}
