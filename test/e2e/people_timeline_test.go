package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/client"
)

// A session is read from the request to its effects: on its page, where each step folds and what did not simply run is open, also without
// scripts, and in the terminal.
func TestPeopleReadASession(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	id, token := d.openFor("Pay the open invoice of Initech.", "ann")
	agent := d.connect(token, revision1125, nil)
	must(t, agent, "mail_search", map[string]any{"q": "invoice"})
	call := asksPeople(t, agent, "bank_transfer", pay(480))
	bob := d.client(d.admin, d.tokenOf("bob", "approver"))
	waiting := func() (q client.Approval) {
		t.Helper()
		eventually(t, patience, "somebody is asked", func() bool {
			page, err := bob.Approvals(t.Context(), client.ApprovalQuery{State: "pending", Session: id})
			if err != nil || len(page.Approvals) == 0 {
				return false
			}
			q = page.Approvals[0]
			return true
		})
		return q
	}
	q := waiting()
	if _, err := bob.Approve(t.Context(), q.ApprovalID, q.Digest, "as ordered"); err != nil {
		t.Fatal(err)
	}
	if r := call.came(t); r.IsError {
		t.Fatalf("%+v", r)
	}
	asksPeople(t, agent, "bank_transfer", pay(481))
	waiting()

	b, plain := d.ann(), d.ann()
	plain.withoutScripts()
	for _, b := range []*browser{b, plain} {
		b.open(d.admin + "/sessions/" + id)
		b.see("The request: Pay the open invoice of Initech.")
		b.see("approved by bob")
		shut := `!document.querySelector(".steps details:has(.fate.permitted)").open`
		if !eval[bool](b, shut+` && document.querySelector(".steps details:has(.fate.waiting)").open`) {
			t.Errorf("what ran is open, or what waits is shut: %s", b.text())
		}
		b.click(".steps li:has(.fate.permitted) summary")
		b.see("call ran")
		b.click(".steps li:has(.fate.permitted) summary")
		b.until("it is folded again", shut)
	}
	b.accessible("session-timeline")
	b.click(".steps li:has(.fate.permitted) summary")
	asksPeople(t, agent, "bank_transfer", pay(482))
	b.until("the new step comes by itself, and what was opened stays open", `document.querySelectorAll(".steps .fate.waiting").length === 2 && document.querySelector(".steps details:has(.fate.permitted)").open`)

	_, out, errs := cli(t, d.place, nil, "sessions", "show", id, "--timeline", "--data", d.place.data)
	for _, want := range []string{"Pay the open invoice of Initech.", "1. Session opened", "bank.transfer 480 EUR HIGH", "permitted · approved by bob", "waits for a person", "mail.search"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s%s", want, out, errs)
		}
	}
	_, out, _ = cli(t, d.place, nil, "sessions", "show", id, "--timeline", "-o", "json", "--data", d.place.data)
	var read struct{ Steps []struct{ Entries []int64 } }
	if err := json.Unmarshal([]byte(out), &read); err != nil || len(read.Steps) < 4 {
		t.Errorf("%v: %s", err, out)
	}
}
