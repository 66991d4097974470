package provenance

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport.example/flow"
)

// Bounds of a call that carries nothing out: how many arguments it has, and how much of it may not stand in the request.
const (
	maxInert        = 16 // arguments of the call
	maxInertTainted = 4  // the same in an untrusted session, because choosing words of the request can also carry a message
	maxChoices      = 4  // arguments that do not stand in the request
	maxChoice       = 16 // values that such an argument may choose from
)

// carriesNothing reports whether a call carries no session data out. It has to be a read whose arguments all have roles, none of them core, and
// each argument has to stand literally in the request. If the session holds no untrusted content, a few arguments may be small choices instead: a
// yes or no, one digit, one of a short list in the accepted definition. In an untrusted session they may not, because an outsider could have the
// agent spell out a secret with them. Any other number is data, as a text is.
func (t *tracer) carriesNothing(v any) bool {
	members, ok := v.(object)
	tainted := slices.ContainsFunc(t.s.Held, untrusted)
	if !ok || t.p.Level != 0 || t.p.EgressURL || t.op.Effect != flow.Read || !t.p.HasRoles() || t.core || !t.namesDestination() || len(members) > maxInert || tainted && len(members) > maxInertTainted {
		return false
	}
	choices := 0
	for _, m := range members {
		if role, labelled := t.p.Args[m.name]; !labelled || role.Core() {
			return false
		}
		s, ok := scalar(m.value)
		if ok && t.s.Request.verbatim(s) {
			continue
		}
		if choices++; tainted || choices > maxChoices || !t.smallChoice(m.name, m.value) {
			return false
		}
	}
	return true
}

// repeatsRequest reports whether a call is a read of which each argument has a role and stands literally in the request, as the fetch of a page whose
// address the person wrote: data of the session has no room in it, but for the choice among few of the person's own words.
func (t *tracer) repeatsRequest() bool {
	members, ok := t.call.(object)
	if !ok || t.p.Level != 0 || t.op.Effect != flow.Read || len(members) == 0 || len(members) > maxInertTainted {
		return false
	}
	return !slices.ContainsFunc(members, func(m member) bool {
		_, labelled := t.p.Args[m.name]
		s, ok := scalar(m.value)
		return !labelled || !ok || !t.s.Request.verbatim(s)
	})
}

// smallChoice reports whether the value is one of a few.
func (t *tracer) smallChoice(argument string, value any) bool {
	switch v := value.(type) {
	case nil, bool:
		return true
	case json.Number:
		n, err := strconv.Atoi(v.String())
		return err == nil && n >= 0 && n <= 9 && v.String() == strconv.Itoa(n)
	case string:
		of := t.s.Choices[argument]
		return len(of) <= maxChoice && slices.Contains(of, v)
	}
	return false
}

// verbatim reports whether the request has the value as a whole and literally, because another spelling could be a message. A text may also be in
// lower case, or with a capital at the beginning of each word.
func (w *Request) verbatim(s string) bool {
	f, ok := formOf(s)
	if !ok || w == nil || s != strings.Join(strings.Fields(s), " ") || !w.has(f) {
		return false
	}
	if f.kind == number && s == f.value || w.literal(s) {
		return true
	}
	return f.kind == text && (s == strings.ToLower(s) || s == capitals(s))
}

// capitals is a text with a capital at the beginning of each word, and nowhere else.
func capitals(s string) string {
	words := strings.Split(strings.ToLower(s), " ")
	for i, word := range words {
		if first, n := utf8.DecodeRuneInString(word); n > 0 {
			words[i] = string(unicode.ToUpper(first)) + word[n:]
		}
	}
	return strings.Join(words, " ")
}
