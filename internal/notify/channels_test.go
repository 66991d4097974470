package notify

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/http"
	"net/mail"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"sallyport.example/internal/display"
)

// hostile is a letter whose texts could begin markup, mentions or headers.
var hostile = letter{
	Event: Approval, Title: "pays <at>all</at>\r\nX-Evil: 1 für 5 €", Text: "[look](x) **now** @channel", Risk: "CRITICAL", Link: "https://gate.example/approvals/appr_1",
	Fields: []Field{{"agent", "<script>"}},
}

// A card's texts are runs, which Teams shows as they are, and its only link is the gateway's.
func TestTeams(t *testing.T) {
	var body []byte
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { body, _ = io.ReadAll(r.Body) })
	c, err := ParseChannel(Config{Kind: "teams", URL: url})
	must(t, err)
	must(t, c.sender.send(t.Context(), "ntf_1", hostile))
	var got struct {
		Type        string
		Attachments []struct {
			ContentType string
			Content     struct {
				Type string
				Body []struct {
					Type    string
					Inlines []struct{ Type, Text string }
				}
				Actions []struct{ Type, URL string }
			}
		}
	}
	if err := json.Unmarshal(body, &got); err != nil || got.Type != "message" || len(got.Attachments) != 1 || got.Attachments[0].ContentType != "application/vnd.microsoft.card.adaptive" {
		t.Fatalf("%s: %v", body, err)
	}
	card := got.Attachments[0].Content
	var texts []string
	for _, block := range card.Body {
		if block.Type != "RichTextBlock" || len(block.Inlines) != 1 || block.Inlines[0].Type != "TextRun" {
			t.Errorf("a block can have markup: %+v", block)
		}
		texts = append(texts, block.Inlines[0].Text)
	}
	if want := []string{"[CRITICAL] " + hostile.Title, hostile.Text, "agent: <script>"}; !slices.Equal(texts, want) {
		t.Errorf("%q", texts)
	}
	if len(card.Actions) != 1 || card.Actions[0].Type != "Action.OpenUrl" || card.Actions[0].URL != hostile.Link {
		t.Errorf("%+v", card.Actions)
	}
}

// A message of ntfy is plain text; what stands in headers is encoded, and the token is sent as such.
func TestNtfy(t *testing.T) {
	var got *http.Request
	var body []byte
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r; body, _ = io.ReadAll(r.Body) })
	c, err := ParseChannel(Config{Kind: "ntfy", URL: url, Secret: testSecret})
	must(t, err)
	must(t, c.sender.send(t.Context(), "ntf_1", hostile))
	title, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Title"))
	if err != nil || title != "[CRITICAL] "+hostile.Title || got.Header.Get("X-Evil") != "" {
		t.Errorf("the title is %q, %v", title, err)
	}
	if got.Header.Get("Priority") != "5" || got.Header.Get("Click") != hostile.Link || got.Header.Get("Authorization") != "Bearer "+testSecret || got.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%+v", got.Header)
	}
	if want := hostile.Text + "\nagent: <script>\n" + hostile.Link; string(body) != want {
		t.Errorf("%q", body)
	}
}

// A channel gets of a message what its labels let it carry.
func TestLabelsOfChannels(t *testing.T) {
	for name, c := range map[string]struct {
		labels, of []string
		whole      bool
	}{
		"nothing to carry": {nil, nil, true}, "none, by default": {nil, []string{"pii"}, false}, "it may": {[]string{"pii", "internal"}, []string{"pii"}, true},
		"one of two": {[]string{"pii"}, []string{"pii", "secret"}, false},
	} {
		s := newMemory()
		ch, err := ParseChannel(Config{Kind: "teams", URL: "https://teams.example/x", Labels: c.labels})
		must(t, err)
		n := notifier(t, s, ch)
		must(t, n.Send(t.Context(), Message{
			Key: "k", Event: Approval, Title: "Transfer 480 EUR", Text: "to DE02", Risk: "HIGH", Link: "/approvals/a", Labels: c.of, Fields: []Field{{"amount", "480 EUR"}},
			Bare: Bare{Title: "clerk asks for bank.transfer", Fields: []Field{{"agent", "clerk"}}},
		}))
		waiting, err := s.WaitingNotices(t.Context(), ch.name, Approval, 10)
		must(t, err)
		if len(waiting) != 1 {
			t.Fatalf("%s: %d messages", name, len(waiting))
		}
		body := string(waiting[0].Body)
		if has := strings.Contains(body, "480") || strings.Contains(body, "DE02"); has != c.whole || strings.Contains(body, "clerk") == c.whole || !strings.Contains(body, "HIGH") || !strings.Contains(body, "/approvals/a") {
			t.Errorf("%s: %s", name, body)
		}
	}
}

// Whatever the channel, letters from right to left move nothing that stands beside them: each run of them is isolated, with no digit and no other letter in it, and what
// would turn the text round is shown as an escape.
func TestRightToLeftInMessages(t *testing.T) {
	n := notifier(t, newMemory())
	var body []byte
	var header http.Header
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { header = r.Header; body, _ = io.ReadAll(r.Body) })
	texts := map[string]func(l letter) string{
		"mail": func(l letter) string {
			m := &mailer{from: &mail.Address{Address: "gate@corp.example"}, to: []string{"ann@example.com"}}
			got, err := mail.ReadMessage(bytes.NewReader(m.compose("ntf_1", l)))
			must(t, err)
			title, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
			must(t, err)
			text, err := io.ReadAll(quotedprintable.NewReader(got.Body))
			must(t, err)
			return title + "\n" + string(text)
		},
	}
	for _, kind := range []string{"webhook", "slack", "teams", "ntfy"} {
		c, err := ParseChannel(Config{Kind: kind, URL: url, Secret: testSecret})
		if err != nil {
			c, err = ParseChannel(Config{Kind: kind, URL: url})
		}
		must(t, err)
		texts[kind] = func(l letter) string {
			must(t, c.sender.send(t.Context(), "ntf_1", l))
			title, err := new(mime.WordDecoder).DecodeHeader(header.Get("Title"))
			must(t, err)
			if kind == "ntfy" {
				return title + "\n" + string(body)
			}
			var all strings.Builder
			var walk func(v any)
			walk = func(v any) {
				switch v := v.(type) {
				case string:
					all.WriteString(v + "\n")
				case []any:
					for _, one := range v {
						walk(one)
					}
				case map[string]any:
					for _, one := range v {
						walk(one)
					}
				}
			}
			var v any
			must(t, json.Unmarshal(body, &v))
			walk(v)
			return all.String()
		}
	}
	for in, want := range map[string]string{
		"plain 4,800 EUR":              "plain 4,800 EUR",
		"שלום 4,800":                   "\u2068שלום\u2069 4,800",
		"4,800 → דני 1203":             "4,800 → \u2068דני\u2069 1203",
		"pay חברה לבניה, בע\u05f4מ 51": "pay \u2068חברה לבניה, בע\u05f4מ\u2069 51",
		"سلام DE02 مرحبا":              "\u2068سلام\u2069 DE02 \u2068مرحبا\u2069",
		"فاتورة ۱۲۳ ٤٥":                "\u2068فاتورة\u2069 \u2068۱۲۳\u2069 \u2068٤٥\u2069",
		"٤٥,۰۰א٣":                      "\u2068٤٥\u2069,\u2068۰۰\u2069\u2068א\u2069\u2068٣\u2069",
		"א":                            "\u2068א\u2069",
		"a (א) b":                      "a (\u2068א\u2069) b",
		"DE02\u202e1203":               `DE02\u202e1203`,
		"א\u2069\u200f12":              "\u2068א\u2069" + `\u2069\u200f12`,
		"\u2067x\u2068y":               `\u2067x\u2068y`,
	} {
		if got := n.plain(in, maxText); got != want {
			t.Errorf("%+q: %+q, want %+q", in, got, want)
		}
		l := n.letterOf(Message{Key: "k", Event: Approval, Title: in, Text: in, Risk: "HIGH", Link: "/approvals/a", At: time.Unix(1782000000, 0), Fields: []Field{{"to", in}}})
		for kind, text := range texts {
			got := text(l)
			if strings.Count(got, want) < 3 {
				t.Errorf("%s, %+q: %+q", kind, in, got)
			}
			inside := false
			for _, r := range got {
				switch {
				case r == isolate && !inside:
					inside = true
				case r == ended && inside:
					inside = false
				case r == isolate, r == ended, unicode.Is(unicode.Bidi_Control, r):
					t.Errorf("%s, %+q: %+q turns the text", kind, in, got)
				case inside != display.RightToLeft(r) && (unicode.IsLetter(r) || unicode.IsDigit(r)):
					t.Errorf("%s, %+q: %c stands in the wrong place of %+q", kind, in, r, got)
				}
			}
			if inside {
				t.Errorf("%s, %+q: an isolate does not end in %+q", kind, in, got)
			}
		}
	}
}
