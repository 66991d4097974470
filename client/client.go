// Package client is the Go client of Sallyport's HTTP API, for programs of people (tokens of a person, on the people's side) and
// for hosts and agents that don't speak MCP (on the agents' side).
//
// Promises: a token is sent to the one address that it was given with and nowhere else, redirects are not followed; a refusal of
// the server's is a *Problem and an address that does not answer an *Unreachable; what is read into memory is bounded; a Client is
// safe for concurrent use. A verdict that denies is an answer, not an error.
//
// The text in answers (tool definitions, reasons, results) can come from agents and servers: escape it where you show it.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxAnswer  = 64 << 20
	maxProblem = 64 << 10
)

// Client speaks to one listener of one gateway with one token.
type Client struct {
	base    string
	token   string
	http    *http.Client
	confirm func(ctx context.Context) (number string, err error) // nil: nobody can be asked
	key     string                                               // sent as Idempotency-Key; "": none is
}

// Confirming returns a client that can have its person confirm what it asks for, where the gateway wants that (people.confirm: terminal): the
// gateway shows a number at the terminal of this process, and confirm reads it from the person.
func (c *Client) Confirming(confirm func(ctx context.Context) (number string, err error)) *Client {
	with := *c
	with.confirm = confirm
	return &with
}

const confirmationHeader = "Sallyport-Confirmation"

// New returns a client of the gateway at address, such as http://127.0.0.1:7576, that acts for the token's agent, host or person.
// It makes no connection yet.
func New(address, token string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not the address of a gateway: it looks like http://127.0.0.1:7576", address)
	}
	if strings.ContainsAny(token, " \t\r\n") {
		return nil, errors.New("the token has white space in it: give the content of the token file without the line end")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil                              // a token is for the gateway and for nobody between
	transport.ResponseHeaderTimeout = 10 * time.Minute // a call may run for 5 minutes before it answers
	return &Client{base: strings.TrimRight(u.String(), "/"), token: token, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Problem is a refusal by the server (RFC 9457). Code is one of Sallyport's codes, such as role.missing or not_found.
type Problem struct {
	Status    int          `json:"status"`
	Code      string       `json:"code"`
	Title     string       `json:"title"`
	Detail    string       `json:"detail"`
	Field     string       `json:"field,omitempty"`
	Remedy    string       `json:"remedy,omitempty"`
	RequestID string       `json:"request_id,omitempty"`
	Errors    []FieldError `json:"errors,omitempty"`
	// CurrentVersion is the newest version of a document, where another was expected.
	CurrentVersion int `json:"current_version,omitempty"`
}

// FieldError says what is wrong with one field of a request.
type FieldError struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
}

func (p *Problem) Error() string {
	s := p.Detail
	if s == "" {
		s = p.Title
	}
	if p.Field != "" {
		s = p.Field + ": " + s
	}
	if p.Remedy != "" {
		if s != "" && !strings.ContainsAny(s[len(s)-1:], ".!?") { // what is wrong with a field has no full stop
			s += "."
		}
		s += " " + p.Remedy
	}
	return s
}

// Unreachable says that no gateway answered.
type Unreachable struct {
	Address string
	Err     error
}

func (e *Unreachable) Error() string {
	return fmt.Sprintf("no gateway answers at %s: %v", e.Address, e.Err)
}

func (e *Unreachable) Unwrap() error { return e.Err }

// ErrTooLarge says that an answer is larger than what is read into memory. Of a list, a shorter page may fit.
var ErrTooLarge = errors.New("the answer is too large")

// send makes a request and returns its response if the server accepted it. Where the server waits for a confirmation, it asks for that.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("the request can't be written as JSON: %w", err)
		}
	}
	if c.confirm == nil || method == http.MethodGet {
		return c.once(ctx, method, path, b, "")
	}
	resp, err := c.once(ctx, method, path, b, "able")
	if p := (*Problem)(nil); !errors.As(err, &p) || p.Status != http.StatusPreconditionRequired {
		return resp, err
	}
	number, err := c.confirm(ctx)
	if err != nil {
		return nil, err
	}
	return c.once(ctx, method, path, b, number)
}

// once makes a request without a body (nil) or with one, and with a confirmation or ("") without.
func (c *Client) once(ctx context.Context, method, path string, body []byte, confirmation string) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, r)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	if confirmation != "" {
		req.Header.Set(confirmationHeader, confirmation)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // without the method and the address, which Unreachable names
		}
		return nil, &Unreachable{Address: c.base, Err: err}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, problemOf(resp)
	}
	return resp, nil
}

// problemOf reads a refusal. An answer that is not a problem document is not from a gateway.
func problemOf(resp *http.Response) *Problem {
	p := &Problem{}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && media == "application/problem+json" {
		if b, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem)); err != nil || json.Unmarshal(b, p) != nil {
			*p = Problem{}
		}
	}
	p.Status = resp.StatusCode
	if p.Title == "" {
		p.Title = http.StatusText(resp.StatusCode)
	}
	if p.Detail == "" {
		p.Detail = fmt.Sprintf("The server answered %d %s.", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return p
}

// bytes makes a request and reads its whole answer.
func (c *Client) bytes(ctx context.Context, method, path string, body any) ([]byte, error) {
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, &Unreachable{Address: c.base, Err: err}
	}
	if len(b) > maxAnswer {
		return nil, fmt.Errorf("%w: to %s %s, over %d bytes", ErrTooLarge, method, path, maxAnswer)
	}
	return b, nil
}

// do makes a request and decodes its answer.
func do[T any](ctx context.Context, c *Client, method, path string, body any) (*T, error) {
	b, err := c.bytes(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("what answers %s %s is not this version of Sallyport: %w", method, path, err)
	}
	return v, nil
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	if q := query.Encode(); q != "" {
		path += "?" + q
	}
	return do[T](ctx, c, http.MethodGet, path, nil)
}

// seg is one segment of a path.
func seg(s string) string {
	if s == "." || s == ".." || s == "" {
		return "-" // no id of anything; the server says so
	}
	return url.PathEscape(s)
}

// set adds a parameter that has a value.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func setInt(q url.Values, name string, n int64) {
	if n != 0 {
		q.Set(name, strconv.FormatInt(n, 10))
	}
}

func setTime(q url.Values, name string, t time.Time) {
	if !t.IsZero() {
		q.Set(name, t.UTC().Format(time.RFC3339))
	}
}
