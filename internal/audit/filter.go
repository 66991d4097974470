package audit

import (
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/fault"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	maxWord      = 256
)

// Filter selects the entries of a query (AU-2). The zero value selects all. An empty field doesn't restrict.
type Filter struct {
	Agent, Session, Action, Decision, Kind, Operation, CallID string

	From, To time.Time // From is included, To is not
	Min      int64     // lowest index; "after=N" in a query is N+1, so that the last index seen asks for the next page
	Limit    int       // most entries to return, for who reads them; ParseFilter sets it, Match doesn't look at it
}

// Match reports whether the filter selects e.
func (f Filter) Match(e Entry) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return e.Index >= f.Min &&
		is(f.Agent, e.Agent) && is(f.Session, e.Session) && is(f.Action, e.Action) && is(f.Decision, e.Decision) &&
		is(f.Kind, string(e.Kind)) && is(f.Operation, e.Operation) && is(f.CallID, e.CallID) &&
		(f.From.IsZero() || !e.At.Before(f.From)) && (f.To.IsZero() || e.At.Before(f.To))
}

// ParseFilter reads a query: agent, session, action, decision, kind, operation, call_id, from, to, after, limit. An empty parameter counts as
// absent; an unknown or repeated one is an error, because a misspelt filter must not answer with everything. Errors are *fault.Error with the
// parameter at fault.
func ParseFilter(q url.Values) (Filter, error) {
	f := Filter{Limit: defaultLimit}
	words := map[string]*string{
		"agent": &f.Agent, "session": &f.Session, "action": &f.Action, "decision": &f.Decision,
		"kind": &f.Kind, "operation": &f.Operation, "call_id": &f.CallID,
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		bad := func(format string, args ...any) error {
			return fault.New(fault.RequestMalformed, format, args...).At(name)
		}
		if len(q[name]) > 1 {
			return Filter{}, bad("%.40q is given %d times; give it once.", name, len(q[name]))
		}
		value := q.Get(name)
		if value == "" {
			continue
		}
		if len(value) > maxWord || !utf8.ValidString(value) {
			return Filter{}, bad("%.40q must be at most %d bytes of UTF-8.", name, maxWord)
		}
		var err error
		switch name {
		case "from":
			if f.From, err = time.Parse(time.RFC3339, value); err != nil {
				return Filter{}, bad("from must be a time like 2026-01-31T08:00:00Z, not %q.", value)
			}
		case "to":
			if f.To, err = time.Parse(time.RFC3339, value); err != nil {
				return Filter{}, bad("to must be a time like 2026-01-31T08:00:00Z, not %q.", value)
			}
		case "after":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 || n == math.MaxInt64 {
				return Filter{}, bad("after must be the index of an entry, not %q.", value)
			}
			f.Min = n + 1
		case "limit":
			if f.Limit, err = strconv.Atoi(value); err != nil || f.Limit < 1 || f.Limit > maxLimit {
				return Filter{}, bad("limit must be a number from 1 to %d, not %q.", maxLimit, value)
			}
		default:
			word, ok := words[name]
			if !ok {
				return Filter{}, bad("There is no filter %.40q; there are agent, session, action, decision, kind, operation, call_id, from, to, after and limit.", name)
			}
			*word = value
		}
	}
	if f.Kind != "" && !Kind(f.Kind).Known() {
		return Filter{}, fault.New(fault.RequestMalformed, "kind must be intent, outcome, decision or change, not %q.", f.Kind).At("kind")
	}
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		return Filter{}, fault.New(fault.RequestMalformed, "to must be later than from.").At("to")
	}
	return f, nil
}
