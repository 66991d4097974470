package audit

import (
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/fault"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	maxWord      = 256
)

// Archived says which entries a query did not look at, because they are in files that were archived.
type Archived struct {
	Before int64    `json:"before"` // the first entry that it looked at
	Files  []string `json:"files"`  // each with where it was moved to
}

// Filter selects the entries of a query (AU-2). The zero value selects all. An empty field doesn't restrict.
type Filter struct {
	Agent, Session, Action, Decision, Kind, Operation, CallID string
	Requester, Approver, Type, Risk, Severity, Event, Code    string

	Text string // words that stand in arguments, result, reason or detail; Match doesn't look at it, see internal/search

	From, To time.Time // From is included, To is not
	Min      int64     // lowest index; "after=N" in a query is N+1, so that the last index seen asks for the next page
	End      int64     // the first index that is not looked at; 0: none. Queries don't have it
	Limit    int       // most entries to return, for who reads them; ParseFilter sets it, Match doesn't look at it
}

// Match reports whether the filter selects e.
func (f Filter) Match(e Entry) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return e.Index >= f.Min && (f.End == 0 || e.Index < f.End) &&
		is(f.Agent, e.Agent) && is(f.Session, e.Session) && is(f.Action, e.Action) && is(f.Decision, e.Decision) &&
		is(f.Kind, string(e.Kind)) && is(f.Operation, e.Operation) && is(f.CallID, e.CallID) &&
		is(f.Requester, e.Requester) && is(f.Type, e.Type) && is(f.Risk, e.Risk) && is(f.Severity, string(e.Severity)) &&
		is(f.Event, string(e.Event)) && is(f.Code, e.Code) && (f.Approver == "" || slices.Contains(e.Approvers, f.Approver)) &&
		(f.From.IsZero() || !e.At.Before(f.From)) && (f.To.IsZero() || e.At.Before(f.To))
}

// words are the filters that compare a field with a word, by their names in a query.
func (f *Filter) words() map[string]*string {
	return map[string]*string{
		"agent": &f.Agent, "session": &f.Session, "action": &f.Action, "action_type": &f.Type, "decision": &f.Decision, "kind": &f.Kind,
		"operation": &f.Operation, "call_id": &f.CallID, "requester": &f.Requester, "approver": &f.Approver, "risk": &f.Risk,
		"severity": &f.Severity, "event": &f.Event, "code": &f.Code,
	}
}

// Names are the names of all filters in a query.
func Names() []string {
	return slices.Sorted(maps.Keys(new(Filter).words()))
}

// Decisions are the words that an entry can have for its decision.
var Decisions = []string{"permit", "ask", "deny", "ok", "error", "unknown", "discarded"}

// Kinds are the kinds of entries.
var Kinds = []string{string(Intent), string(Outcome), string(Decision), string(Change)}

// Risks are the words for a risk.
var Risks = []string{"LOW", "MEDIUM", "HIGH", "CRITICAL"}

// actionForm is how the names of actions are written.
var actionForm = regexp.MustCompile(`^[a-z_]+([./][a-z_]+)*$`)

// Values are the values that an entry can have in a field, for the filters of closed lists.
func Values(name string) []string {
	switch name {
	case "kind":
		return Kinds
	case "decision":
		return Decisions
	case "risk":
		return Risks
	case "severity":
		return asWords(Severities)
	case "event":
		return asWords(Events)
	case "code":
		codes := asWords(fault.Codes())
		slices.Sort(codes)
		return codes
	}
	return nil
}

func asWords[W ~string](list []W) []string {
	words := make([]string, 0, len(list))
	for _, w := range list {
		words = append(words, string(w))
	}
	return words
}

// moment reads a time: as RFC 3339 has it, or how long before now it was (90m, 24h, 7d).
func moment(name, value string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return at, nil
	}
	d, err := time.ParseDuration(value)
	if days, is := strings.CutSuffix(value, "d"); is && err != nil {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return time.Time{}, fault.New(fault.RequestMalformed, "%s must be a time like 2026-01-31T08:00:00Z, or how long ago, like 90m, 24h or 7d, not %q.", name, value).At(name)
	}
	return now.Add(-d), nil
}

// ParseFilter reads a query: q, from, to, after, limit and the filters of Names. Times can be relative to now. An empty parameter counts as absent. An unknown or repeated one
// is an error, and so is a value that no entry can have, because a misspelt filter must not answer with everything, nor with nothing as if nothing
// had happened. Errors are *fault.Error with the parameter at fault.
func ParseFilter(q url.Values, now time.Time) (Filter, error) {
	f := Filter{Limit: defaultLimit}
	words := f.words()
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
			if f.From, err = moment(name, value, now); err != nil {
				return Filter{}, err
			}
		case "to":
			if f.To, err = moment(name, value, now); err != nil {
				return Filter{}, err
			}
		case "q":
			f.Text = value
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
				return Filter{}, bad("There is no filter %.40q; there are %s, q, from, to, after and limit.", name, strings.Join(Names(), ", "))
			}
			if known := Values(name); known != nil && !slices.Contains(known, value) {
				return Filter{}, bad("%s is one of %s, not %q.", name, strings.Join(known, ", "), value)
			}
			if name == "action" && !actionForm.MatchString(value) {
				return Filter{}, bad("action is a word like call, session.open or resources/read, not %q.", value)
			}
			*word = value
		}
	}
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		return Filter{}, fault.New(fault.RequestMalformed, "to must be later than from.").At("to")
	}
	return f, nil
}
