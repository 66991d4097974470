package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/store"
)

// Two configurations are compared by recorded work: the calls that one asks about or refuses and the other doesn't are named, with totals by
// operation. What another stage refused, what is older, and what only waited for the same answer is left out.
func TestCompare(t *testing.T) {
	p := newPast(t, "Thank ann@books.example", nil)
	p.ran("book.lookup", `{"name":"ann"}`, mcp("x"), nil)
	p.ran("mail.inbox", `{"folder":"new"}`, mcp("hello"), []string{"internal", "untrusted"})
	p.refused("mail.send", `{"to":"eve@evil.example","body":"x"}`, "ask", "flow")
	p.refused("mail.send", `{"to":"eve@evil.example","body":"x"}`, "ask", "flow") // again, while it waits
	p.refused("mail.send", `{"to":"nobody@evil.example","body":"x"}`, "deny", "permit")
	p.refused("web.search", `{"q":"books"}`, "deny", "flow")
	log, err := store.OpenReadOnly(p.dir)
	p.must(err)
	defer log.Close()
	rules, err := policy.NewRules(0, 0, "", nil)
	p.must(err)
	config := func(change map[string]func(*catalogue.Classification)) Config {
		c := office(change)
		c.Risk, c.Unlisted = rules, "deny"
		classify := c.Classify
		c.Classify = func(server, tool string) catalogue.Classification {
			class := classify(server, tool)
			class.Listed = true
			return class
		}
		return c
	}
	compare := func(now Config, since time.Time) *Comparison {
		t.Helper()
		told := ""
		got, err := Compare(t.Context(), log, config(nil), now, since, func(done, of int64) { told = fmt.Sprint(done, " of ", of) })
		p.must(err)
		if got.Sessions > 0 && told != "1 of 1" {
			t.Errorf("it told %q", told)
		}
		return got
	}
	if same := compare(config(nil), time.Time{}); len(same.Otherwise) != 0 || same.Calls != 4 || same.Was != same.Now {
		t.Errorf("the same configuration decides otherwise: %+v", same)
	}
	harmless := func(c *catalogue.Classification) { c.Flow = flow.Spec{Sensitivity: flow.None, Effect: flow.Read} }
	got := compare(config(map[string]func(*catalogue.Classification){
		"mail.inbox":  harmless,
		"book.lookup": func(c *catalogue.Classification) { c.Level, c.Flow.Effect, c.RiskFloor = 2, flow.Write, policy.High },
	}), time.Time{})
	var lines []string
	for _, o := range got.Otherwise {
		lines = append(lines, fmt.Sprintf("%s %s %s->%s", o.Operation, o.Recorded, o.Was, o.Now))
		if o.Now != "permit" && o.Reason == "" {
			t.Errorf("%s is %s without a reason", o.Operation, o.Now)
		}
	}
	if want := "book.lookup permit permit->ask; web.search deny deny->permit"; strings.Join(lines, "; ") != want {
		t.Errorf("otherwise are %q, not %q", strings.Join(lines, "; "), want)
	}
	if got.Totals[0].Changed != 1 || got.Was.Refused != 1 || got.Now.Refused != 0 {
		t.Errorf("totals %+v", got)
	}
	if later := compare(config(nil), time.Now().Add(time.Hour)); later.Sessions != 0 || later.Calls != 0 {
		t.Errorf("later work %+v", later)
	}
	p.ran("book.lookup", `{"name":"ben"}`, mcp("x"), nil, func(in, out *audit.Entry) { in.Operation, out.Operation = "gone.tool", "gone.tool" })
	if gone := compare(config(nil), time.Time{}); gone.Calls != 5 {
		t.Errorf("with one more call %+v", gone)
	}
}
