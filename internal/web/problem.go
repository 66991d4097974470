package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"sallyport.example/internal/fault"
)

// Problem is the body of every refusal (RFC 9457).
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
	// CurrentVersion is there where a version was expected that is not the newest.
	CurrentVersion int `json:"current_version,omitempty" doc:"the newest version, where another was expected"`
}

// FieldError says what is wrong with one field.
type FieldError struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus and ContentType are how the library that routes typed requests asks for the status and the media type of an error.
func (p *Problem) GetStatus() int            { return p.Status }
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// Problem is the public form of an error, without its cause. It logs the error under the request's id.
func (f *Face) Problem(ctx context.Context, err error) *Problem {
	e, status := fault.Of(err), Status(err)
	p := &Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: e.Code.Sentence(), Code: e.Code,
		Field: e.Field, Remedy: e.Remedy, RequestID: RequestID(ctx),
	}
	if e.Message != "" && e.Code != fault.Internal {
		p.Detail = e.Message
	}
	if status >= 500 {
		f.Log.Error("a request failed", "request_id", p.RequestID, "code", p.Code, "error", err)
	} else {
		f.Log.Info("a request was refused", "request_id", p.RequestID, "status", status, "code", p.Code, "error", err)
	}
	return p
}

// Refuse answers with the error: as a problem, or in the form of the face's own.
func (f *Face) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := f.Problem(r.Context(), err) // also logs the error
	if f.Answer != nil {
		f.Answer(w, r, err)
		return
	}
	if again := fault.Of(err).Again; again > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(again.Seconds())))
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers encode
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(b, '\n')) // a client that is gone needs no answer
}

// statusError is made by WithStatus.
type statusError struct {
	fault  *fault.Error
	status int
}

func (e *statusError) Error() string { return e.fault.Error() }
func (e *statusError) Unwrap() error { return e.fault }

// WithStatus gives a fault another HTTP status than its code's.
func WithStatus(status int, e *fault.Error) error { return &statusError{e, status} }

// Unauthorized tells whether an error is for want of a credential or of a permission: 401 or 403.
func Unauthorized(err error) bool {
	s := Status(err)
	return s == http.StatusUnauthorized || s == http.StatusForbidden
}

// Status is the HTTP status of an error: that of its code, or what WithStatus gave it.
func Status(err error) int {
	if as := (*statusError)(nil); errors.As(err, &as) {
		return as.status
	}
	return fault.Of(err).Code.HTTPStatus()
}
