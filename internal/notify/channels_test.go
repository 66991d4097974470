package notify

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"
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
