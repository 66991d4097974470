package notify

import (
	"bytes"
	"net/mail"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// FuzzText: whatever an agent says is one line that shows what it is, can't begin markup in a chat, and stays in its place in a mail.
func FuzzText(f *testing.F) {
	for _, s := range []string{"plain", "a\r\nBcc: x", "<!channel>", "[a](http://x)", "=?utf-8?q?x?=", "\u202e\x1b[2J", "\xff", "a:://b", "@@here", ".\r\n.", "é"} {
		f.Add(s)
	}
	n := notifier(f, newMemory())
	m := &mailer{from: &mail.Address{Address: "gate@corp.example"}, to: []string{"ann@example.com"}}
	f.Fuzz(func(t *testing.T, s string) {
		l := n.letterOf(Message{Key: "k", Event: Approval, Title: s, Text: s, Risk: s, Link: s, At: time.Unix(1782000000, 0), Fields: []Field{{s, s}}})
		for _, text := range []string{l.Title, l.Text, l.Risk, l.Fields[0].Name, l.Fields[0].Value} {
			if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) || strings.Contains(text, "://") {
				t.Errorf("%q", text)
			}
			if c := chat(text); strings.ContainsAny(c, "<>") || strings.Contains(c, "](") || strings.HasPrefix(c, "@") || strings.Contains(c, " @") {
				t.Errorf("in a chat: %q", c)
			}
		}
		if !strings.HasPrefix(l.Link, "https://gate.example") || strings.ContainsAny(l.Link, "<>| \r\n") || len(l.Link) > 2000 {
			t.Errorf("link %q", l.Link)
		}
		raw := m.compose("ntf_1", l)
		for line := range strings.SplitSeq(string(raw), "\r\n") {
			if len(line) > 998 || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("line %q", line)
			}
		}
		if got, err := mail.ReadMessage(bytes.NewReader(raw)); err != nil || len(got.Header) != 10 {
			t.Errorf("%v, %v", got, err)
		}
	})
}
