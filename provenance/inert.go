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

// Bounds of what a call may say that is not in the person's words, where it is to carry nothing out: so many choices, of so many values each.
const (
	maxInert   = 16 // arguments of such a call
	maxSpoken  = 4  // of them, where an outsider has spoken, since which words are taken is a choice too
	maxChoices = 4  // of them, those that are no words of the person's
	maxChoice  = 16 // values that one may have
)

// inert reports whether a call carries nothing of what the session holds out of it, however it is made: a read, whose arguments are all told,
// none of them deciding where it goes, and each of them words of the person's to the letter. Where no outsider has spoken to the agent, a few
// may be small choices instead: a yes or no, one digit, one of a short list that the accepted definition has. With untrusted content in the session
// they may not: who can say which to take can spell with them. A number that is neither is data as a text is.
func (t *tracer) inert(v any) bool {
	members, ok := v.(object)
	spoken := slices.ContainsFunc(t.s.Held, func(h flow.Held) bool { return h.Label == flow.Untrusted })
	if !ok || t.p.Level != 0 || t.p.EgressURL || t.op.Effect != flow.Read || !t.p.Told() || t.core || !t.destined() || len(members) > maxInert || spoken && len(members) > maxSpoken {
		return false
	}
	choices := 0
	for _, m := range members {
		if role, told := t.p.Args[m.name]; !told || role.Core() {
			return false
		}
		s, ok := scalar(m.value)
		if ok && t.s.Words.verbatim(s) {
			continue
		}
		if choices++; spoken || choices > maxChoices || !t.choice(m.name, m.value) {
			return false
		}
	}
	return true
}

// choice reports whether a value is one of a few.
func (t *tracer) choice(argument string, value any) bool {
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

// verbatim reports whether the words have a value whole and as it is written, letter for letter: another way to write it would be a message. A text may
// also be in lower case, or with capitals where words begin.
func (w *Words) verbatim(s string) bool {
	f, ok := formOf(s)
	if !ok || w == nil || s != strings.Join(strings.Fields(s), " ") || !w.has(f) {
		return false
	}
	if f.kind == number && s == f.value || w.letter(s) {
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
