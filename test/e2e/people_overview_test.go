package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/monitor"
)

// The overview has what happened as a recount of the log has it, and what waits. An agent is stopped from there in two clicks: what waits of it is
// withdrawn, and a page that is open says by itself who stopped it.
func TestPeopleOverview(t *testing.T) {
	d := newDesk(t, "")
	cs := d.agentOf(revision1125, nil)
	for range 3 {
		must(t, cs, "mail_search", map[string]any{"q": "offer"})
	}
	must(t, cs, "no_such_tool", map[string]any{})
	call := asksPeople(t, cs, "bank_transfer", pay(25000))
	q := d.waits(1)[0]

	ann, bob := d.ann(), d.bob()
	ann.open(d.admin + "/")
	ann.see("CRITICAL Transfer 25,000 EUR")
	recount := func() map[monitor.What]int64 {
		sums := map[monitor.What]int64{}
		for _, e := range d.entries() {
			b, err := json.Marshal(e)
			var entry audit.Entry
			if err == nil {
				err = json.Unmarshal(b, &entry)
			}
			if err != nil {
				t.Fatal(err)
			}
			k, n := monitor.Of(entry)
			sums[k.What] += n
		}
		return sums
	}
	eventually(t, patience, "the overview has what a recount of the log has", func() bool {
		ann.open(d.admin + "/")
		n := recount()
		return n[monitor.Ran] >= 3 && n[monitor.Asked] == 1 && strings.Contains(ann.text(), fmt.Sprintf("%d ran · %d asked · %d refused · %d failed", n[monitor.Ran], n[monitor.Asked], n[monitor.Refused], n[monitor.Failed]))
	})
	ann.screen("overview-first")
	for _, width := range []int{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			ann.look(scheme, width)
			ann.shot(fmt.Sprintf("overview-%s-%d", scheme, width))
		}
	}
	ann.look("light", 1280)

	bob.open(d.admin + "/approvals/" + q.ApprovalID)
	bob.see("0 of 2 approvals")
	ann.click("#open-stop")
	ann.click(`form[action="/agents/tester/kill"] button`)
	ann.at("/agents/tester")
	bob.see("The agent was stopped after this was asked, by ann: stopped from the overview")
	bob.see("There is nothing to answer any more")
	bob.shot("request-of-a-stopped-agent")
	d.waits(0)
	if r := call.came(t); !r.IsError || len(d.bank.all()) != 0 {
		t.Errorf("%+v, transfers: %v", r, d.bank.all())
	}
	ann.open(d.admin + "/")
	ann.see("1 stopped")
}
