package gateway_test

import (
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/gateway/gatewaytest"
)

// Every question of risk HIGH and CRITICAL has the agent's reasons, or says that there are none. What asks stays the first reason.
func TestQuestionSaysWhyOrThatNobodySaid(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			c.NeedsReasons = tool == "buy"
			return c
		}
	})
	p := w.open("worker", "erin", widgets)
	for name, c := range map[string]struct {
		tool, arguments string
		unexplained     bool
	}{
		"by the operator's word": {"slack_publish", `{}`, true},
		"by its action":          {"slack_pay", `{"sum":5}`, true},
		"by its amount":          {"slack_pay", `{"sum":20000}`, true},
		"CRITICAL":               {"slack_wipe", `{}`, true},
		"MEDIUM":                 {"slack_mail", `{}`, false},
		"with reasons":           {"slack_buy", `{"sum":5000,` + because + `}`, false},
		"a built-in operation":   {"comm_send", `{"url":"https://example.com/page",` + because + `}`, false},
	} {
		q := w.asks(p, c.tool, c.arguments)
		if q.Unexplained() != c.unexplained || q.Reasons[0] == approval.NoReason || !c.unexplained && q.Risk != "MEDIUM" && q.Purpose() != "cite them in the summary" {
			t.Errorf("%s: risk %s, reasons %+v, purpose %q", name, q.Risk, q.Reasons, q.Purpose())
		}
		shown := q.Approval
		shown.Reasons = slices.DeleteFunc(slices.Clone(shown.Reasons), func(r approval.Reason) bool { return r == approval.NoReason })
		if c.unexplained && shown.Intact() {
			t.Errorf("%s: the digest does not cover that there are no reasons", name)
		}
	}
	// What a person changed is asked about with it, too.
	q := w.asks(p, "slack_publish", `{"x":1}`)
	next, err := w.modify("bob", q.ID, `{"x":2}`, "two is right")
	if err != nil || !next.Unexplained() {
		t.Errorf("%+v, %v", next.Reasons, err)
	}
}

// What a tool does is said in the words of the definition that was asked about: as one line, bounded, with nothing hidden in it, and in whose name.
func TestQuestionSaysWhatTheToolDoes(t *testing.T) {
	own := ""
	w := newPeopleWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if tool == "publish" {
				c.Description = own
			}
			return c
		}
	})
	p := w.open("worker", "erin", widgets)
	say := func(description string) {
		t.Helper()
		d := gatewaytest.Tool("slack", "publish", description)
		w.offerAll(w.g, d)
		if err := w.g.Catalogue().AcceptTool(t.Context(), "slack.publish", d.Hash, "person:ann"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ said, want string }{
		{"Publishes a page.", "Publishes a page."},
		{"Publishes\r\n\n  a\tpage.", "Publishes a page."},
		{"Safe\u202eevil\u200b.", "Safeevil."},
		{"", ""}, {" \n", ""},
		{strings.Repeat("word ", 1000), strings.Repeat("word ", 100) + "…(+4499 bytes)"},
	} {
		say(c.said)
		q := w.asks(p, "slack_publish", `{}`)
		switch {
		case c.want == "" && q.Tool == nil:
		case q.Tool == nil || q.Tool.Text != c.want || q.Tool.By != "server":
			t.Errorf("%q: %+v", c.said, q.Tool)
		}
	}
	old := w.asks(p, "slack_publish", `{"x":1}`)
	say("It publishes nothing.")
	if q := w.question(old.ID); q.Tool != nil {
		t.Errorf("another definition speaks for the one that was asked about: %+v", q.Tool)
	}
	own = "Publishes to everybody."
	say("It is harmless.")
	if q := w.asks(p, "slack_publish", `{"x":2}`); q.Tool == nil || *q.Tool != (desk.Described{Text: "Publishes to everybody.", By: "operator"}) {
		t.Errorf("%+v", q.Tool)
	}
	if q := w.asks(p, "comm_send", `{"url":"https://example.com/page",`+because+`}`); q.Tool == nil || q.Tool.By != "gateway" {
		t.Errorf("%+v", q.Tool)
	}
}
