package console

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/desk"
	"sallyport.example/internal/monitor"
)

// The overview says which rules asked, how fast people answered, and what ran unasked with its label, in each span that it can show.
func TestOverviewOfRules(t *testing.T) {
	w := newPagesWorld(t)
	_, do := w.open("worker", "")
	for range 3 {
		do("mail_search", `{"q":"x"}`)
	}
	asked := do("slack_post", `{"channel":"general","text":"hello"}`)
	if asked.Verdict.ApprovalID == nil {
		t.Fatalf("nobody was asked: %+v", asked.Verdict)
	}
	counters := monitor.New(w.store, time.Now, slog.New(slog.DiscardHandler))
	if err := counters.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.c.o.Counters = counters
	for _, span := range []string{"1h", "24h", "7d"} {
		page := w.ask("viewer auditor", "/?span="+span, nil).Body.String()
		contains(t, page, "Last "+span, "What asked people", ": 1 <span class=\"soft\">(0 yes, 1 waiting)", "What ran unasked", ">3 mail.search</a> <span class=\"tag\">", `hx-get="/?span=`+span+`"`)
		for _, other := range []string{"1h", "24h", "7d"} {
			if has := strings.Contains(page, `href="/?span=`+other+`"`); has == (other == span) {
				t.Errorf("%s: leads to %s: %t", span, other, has)
			}
		}
		if strings.Contains(page, "(median)") {
			t.Error("nobody has answered")
		}
	}
	contains(t, w.ask("viewer", "/?span=2y", nil).Body.String(), "Last 24h", "3 mail.search <span")
	if page := w.ask("viewer", "/models?span=1h", nil).Body.String(); strings.Contains(page, "span=1h") {
		t.Error("requests to models are not counted by minutes")
	}
	a := activity{From: time.Now().Add(-time.Hour)}
	if err := w.c.askedIn(t.Context(), &a); err != nil || len(a.Rules.Rules) == 0 || a.Rules.Of != 0 {
		t.Errorf("%+v, %v", a.Rules, err)
	}
	always := askedOf(desk.RuleFigure{Code: "risk.amount", Asked: 12, Approved: 12})
	if !always.Always() || always.Words != "a large amount" {
		t.Errorf("%+v", always)
	}
}
