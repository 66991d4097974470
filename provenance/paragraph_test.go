package provenance

import "testing"

// No phrase runs from one paragraph of the request into the next, so none into words that were added later.
func TestPhrasesEndWithTheirParagraph(t *testing.T) {
	send := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "text": Content}}
	for words, want := range map[string]Verdict{
		"Post it to the group Blue Ocean now":         Permit,
		"Post it to the group Blue\nOcean now":        Permit, // a long line
		"Post it to the group Blue\n\nOcean is calm":  Ask,
		"Post it to the group Blue\r\n \r\nOcean now": Ask,
		"Do it.\n\nPost it to the group Blue Ocean":   Permit,
	} {
		s := newSession(t, words)
		s.read("m.list", &Profile{}, `{}`, `{"x":"y"}`)
		if v := s.judge(send, `{"to":"Blue Ocean"}`); v.Verdict != want {
			t.Errorf("%q: %s, want %s", words, v.Verdict, want)
		}
	}
}
