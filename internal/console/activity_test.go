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

// The overview says how many requests and plans wait, and since when, and quotes beside an agent why it is stopped, in quarantine, or mostly refused.
func TestOverviewOfWhatWaits(t *testing.T) {
	w := newPagesWorld(t)
	if page := w.ask("viewer", "/", nil).Body.String(); strings.Contains(page, "the oldest") || !strings.Contains(page, "Nothing waits for an answer.") {
		t.Error("something waits")
	}
	_, do := w.open("worker", "")
	do("slack_post", `{"channel":"general","text":"hello"}`)
	do("slack_post", `{"channel":"general","text":"hello again"}`)
	do("no_such_tool", `{}`)
	asked := time.Now()
	counters := monitor.New(w.store, time.Now, slog.New(slog.DiscardHandler))
	if err := counters.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.c.o.Counters = counters
	w.c.o.Clock = func() time.Time { return asked.Add(28*time.Minute + time.Second) }
	contains(t, w.ask("viewer", "/", nil).Body.String(), `Needs you <small>2</small>`, `<a href="/approvals">All 2</a>, the oldest request is from 28 min ago`, `<span class="soft">refused mostly: no such tool</span>`)

	standing := w.g.Standing()
	if err := standing.Quarantine(t.Context(), "planner", "tried <the> bank", "person:ann"); err != nil {
		t.Fatal(err)
	}
	standing.Disable("worker", "person:ann", "asks & asks")
	contains(t, w.ask("viewer", "/", nil).Body.String(), `<strong class="bad">STOPPED</strong> <q class="soft">asks &amp; asks</q>`, `<strong class="bad">QUARANTINED</strong> <q class="soft">tried &lt;the&gt; bank</q>`)

	for _, one := range []struct {
		name    string
		blocked map[string]map[string]int64
		want    string
	}{
		{"nothing", nil, ""},
		{"most of them", map[string]map[string]int64{"flow.contaminated": {"a": 3, "b": 9}, "permission.denied": {"a": 4}}, "not permitted"},
		{"as many", map[string]map[string]int64{"permission.denied": {"a": 2}, "flow.contaminated": {"a": 2}}, "after private data"},
		{"of another", map[string]map[string]int64{"permission.denied": {"b": 2}}, ""},
		{"without a code", map[string]map[string]int64{"": {"a": 1}}, "other"},
	} {
		if got := mostly(one.blocked)["a"]; got != one.want {
			t.Errorf("%s: %q, not %q", one.name, got, one.want)
		}
	}
}
