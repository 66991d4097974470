package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/caller"
	"sallyport.example/internal/confirm"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// covers says, of a request that was confirmed and succeeded, to which paths (by how they begin) its process may send requests without another
// confirmation, and how long.
type covers func(in, out any) (paths []string, d time.Duration)

// addressesKey is the key of the addresses of a connection from this machine.
type addressesKey struct{}

// addresses are both ends of a connection.
type addresses struct{ server, client netip.AddrPort }

// confirmed asks the person at their terminal, where the configuration wants that: for every request that changes something and comes with a token. What
// only stops something waits for nobody, and the console has its own pages and its own sign-in.
func (s *side) confirmed(r *http.Request, p identity.Principal, rt route, body []byte) (by caller.Process, err error) {
	if !s.people || !s.a.o.Confirm() || rt.noConfirmation || rt.method == http.MethodGet || r.Header.Get("Authorization") == "" {
		return by, nil
	}
	at := func() (caller.Terminal, error) {
		ends, ok := r.Context().Value(addressesKey{}).(addresses)
		if !ok {
			return caller.Terminal{}, caller.ErrUnseen
		}
		var terminal caller.Terminal
		var err error
		if seen := s.a.look(func() caller.Peer {
			terminal, err = caller.TerminalOf(ends.server, ends.client)
			return caller.Peer{}
		}); seen.late {
			return caller.Terminal{}, caller.ErrUnseen
		}
		return terminal, err
	}
	return s.a.confirmations.Check(r.Header.Get(confirm.Header), at, confirm.Request{
		Person: p.ID, Says: s.a.says(r.Context(), rt, r, body), Method: r.Method, URI: r.URL.RequestURI(), Body: body,
	})
}

// says tells in a line what a request would do, and to what.
func (a *API) says(ctx context.Context, rt route, r *http.Request, body []byte) string {
	var about []string
	if id := r.PathValue("id"); strings.HasPrefix(rt.path, "/v1/approvals/") {
		about = append(about, a.asked(ctx, id))
	} else if id != "" {
		about = append(about, id)
	}
	for _, name := range []string{"agentId", "operation"} {
		if v := r.PathValue(name); v != "" {
			about = append(about, v)
		}
	}
	for name, value := range call.Members(body) {
		about = append(about, strings.ReplaceAll(name, "_", " ")+" "+a.value(ctx, value))
	}
	about = slices.DeleteFunc(about, func(s string) bool { return s == "" })
	return strings.TrimSuffix(cmp.Or(rt.asks, rt.summary)+": "+strings.Join(about, ", "), ": ")
}

// What is shown of values, and of lists.
const (
	shownValue = 100 // bytes
	shownItems = 4
)

// value shows a value of a body: of a list the first items, of an item of a list what it is about.
func (a *API) value(ctx context.Context, value json.RawMessage) string {
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil {
		return fmt.Sprintf("%.*s", shownValue, value)
	}
	var shown []string
	for _, item := range items[:min(len(items), shownItems)] {
		var about struct {
			Approval  string `json:"approval_id"`
			Operation string `json:"operation"`
		}
		switch err := json.Unmarshal(item, &about); {
		case err == nil && about.Approval != "":
			shown = append(shown, a.asked(ctx, about.Approval))
		case err == nil && about.Operation != "":
			shown = append(shown, about.Operation)
		default:
			shown = append(shown, fmt.Sprintf("%.*s", shownValue, item))
		}
	}
	if more := len(items) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, ", ")
}

// asked says what an approval is about. Its digest is in the answer, which binds it.
func (a *API) asked(ctx context.Context, id string) string {
	q, err := a.g.Desk().Question(ctx, id)
	if err != nil { // the answer to it will say so
		return id
	}
	return fmt.Sprintf("%s of agent %s, risk %s", q.Operation, q.Agent, q.Risk)
}

// noTokenSignIn refuses a sign-in to the console by a token, where people have to confirm what they do with one.
func (a *API) noTokenSignIn() error {
	if !a.o.Confirm() {
		return nil
	}
	return fault.New(fault.ConfirmationRequired, "A token alone signs nobody in here.").Try("Make a link in a terminal on the gateway's machine: sallyport token link")
}
