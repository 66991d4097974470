package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// desk is a gateway with two servers behind it, people before it, and an agent that asks.
type desk struct {
	*world
	bank, mail *recorder
}

// deskConfig names two servers: a bank, whose transfers take people, and a mailbox, where one operation is MEDIUM. more is put before it.
func deskConfig(bank, mail, more string) string {
	if !strings.Contains(more, "approvals:") {
		more += "approvals: {currency: EUR, hold: 2m, medium_delay: 10s}\n"
	}
	return fmt.Sprintf(`%s
people:
  - {id: ann, roles: [approver, viewer, operator, auditor], identities: [ann@example.com]}
  - {id: bob, roles: [approver]}
  - {id: vera, roles: [viewer]}
upstreams: {bank: {url: %q}, mail: {url: %q}}
operations:
  bank.transfer: {sensitivity: none, output: trusted, action: transfer_money, args: {payee: destination, amount: amount, subject: content}, allow_invisible: ["<b>key</b>"]}
  mail.send:     {sensitivity: none, output: trusted, action: send_email, args: {body: content}, allow_invisible: [to]}
  mail.search:   {sensitivity: internal_source, effect: read}
limits: {calls_per_minute: 100000, execution_budget: 10h}
`, more, bank, mail)
}

// newServers are a bank and a mailbox that remember the arguments they get, to the byte.
func newServers(t testing.TB) (bank, mail *recorder, bankURL, mailURL string) {
	bank, mail = &recorder{}, &recorder{}
	does := func(r *recorder, answer string) func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		return func(_ context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
			r.add("%s", arguments)
			return text(answer), nil
		}
	}
	b, m := newServer("bank"), newServer("mail")
	tool(b, "transfer", "Moves money.", does(bank, "transferred"))
	tool(m, "send", "Sends mail.", does(mail, "sent"))
	tool(m, "search", "Searches the mailbox.", does(&recorder{}, "an offer of 48,000 EUR"))
	return bank, mail, sdkServer(t, b), sdkServer(t, m)
}

func newDesk(t testing.TB, more string) *desk {
	t.Helper()
	bank, mail, bankURL, mailURL := newServers(t)
	d := &desk{world: start(t, deskConfig(bankURL, mailURL, more)), bank: bank, mail: mail}
	d.offered(3)
	return d
}

// offered waits until the servers have said what they offer.
func (w *world) offered(n int) {
	w.t.Helper()
	eventually(w.t, 10*time.Second, "the tools are there", func() bool {
		tools, err := w.root.Tools(context.Background())
		found := 0
		for _, tool := range tools {
			if strings.HasPrefix(tool.Operation, "bank.") || strings.HasPrefix(tool.Operation, "mail.") {
				found++
			}
		}
		return err == nil && found >= n
	})
}

// tokenOf makes a person's token.
func (w *world) tokenOf(id string, roles ...string) string {
	w.t.Helper()
	created, err := w.root.CreateToken(context.Background(), client.NewToken{Kind: "person", ID: id, Roles: roles})
	if err != nil {
		w.t.Fatal(err)
	}
	return created.Secret
}

// ann and bob are browsers in which they are signed in.
func (w *world) ann() *browser {
	b := newBrowser(w.t)
	b.signIn(w, w.tokenOf("ann", "approver", "viewer", "operator", "auditor"))
	return b
}

func (w *world) bob() *browser {
	b := newBrowser(w.t)
	b.signIn(w, w.tokenOf("bob", "approver"))
	return b
}

// agent is a session of the agent's, with a client of a revision.
func (w *world) agentOf(revision string, o *mcp.ClientOptions) *mcp.ClientSession {
	w.t.Helper()
	s, err := w.root.StartSession(context.Background(), client.OpenSession{AgentID: "tester", UserRequest: "Pay what is due and tell them."})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.connect(s.SessionToken, revision, o)
}

// call is one that is under way.
type inFlight struct {
	result
	err  error
	done chan struct{}
}

// asks makes a call that waits for people, in the background.
func asksPeople(t testing.TB, cs *mcp.ClientSession, tool string, arguments any) *inFlight {
	c := &inFlight{done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(c.done)
		c.result, c.err = callTool(ctx, cs, tool, arguments)
	}()
	t.Cleanup(func() {
		cancel()
		<-c.done
	})
	return c
}

// came waits for the answer.
func (c *inFlight) came(t testing.TB) result {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(slack(patience)):
		t.Fatal("the call was not answered")
	}
	if c.err != nil {
		t.Fatalf("the call: %v", c.err)
	}
	return c.result
}

// waits waits until so many questions are open, and returns them, oldest first.
func (w *world) waits(n int) []client.Approval {
	w.t.Helper()
	var open []client.Approval
	eventually(w.t, 20*time.Second, fmt.Sprintf("%d questions wait", n), func() bool {
		page, err := w.root.Approvals(context.Background(), client.ApprovalQuery{State: "pending", Limit: 200})
		if err != nil {
			return false
		}
		open = open[:0]
		for i := range page.Approvals {
			open = append(open, page.Approvals[len(page.Approvals)-1-i])
		}
		return len(open) == n
	})
	return open
}

// pay is a transfer that one person decides on.
func pay(amount int) map[string]any {
	return map[string]any{"payee": "DE02 1203 0000 0000 2020 51", "amount": amount, "subject": "Invoice 2231"}
}

// A held call of risk HIGH appears at the page that is open, is approved with the mouse, and runs once with the bytes that were shown
// The next one is approved with keys alone, and the one after that without scripts.
func TestPeopleApprove(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cs := d.agentOf(revision1125, nil)
	b := d.ann()
	b.open(d.admin + "/approvals")
	b.see("No request waits for an answer")

	call := asksPeople(t, cs, "bank_transfer", pay(480))
	b.see("Transfer 480 EUR → DE02…20 51") // by itself
	b.see("Approvals 1 waiting")
	b.click("a.what")
	b.see("If wrong")
	b.see("1 approval ·")
	shown := eval[string](b, "document.querySelector('#exact').textContent")
	digest := eval[string](b, "document.querySelector('.fingerprints code').textContent")
	b.shot("approval-high")
	b.approve()
	b.see("You approved Transfer")
	if r := call.came(t); r.IsError || r.text() != "transferred" {
		t.Errorf("the call: %+v", r)
	}
	got := d.bank.all()
	var was, is any
	if len(got) != 1 || json.Unmarshal([]byte(shown), &was) != nil || json.Unmarshal([]byte(got[0]), &is) != nil || fmt.Sprint(was) != fmt.Sprint(is) {
		t.Errorf("shown %s, sent %s", shown, got)
	}
	// The approval is of the digest that was on the page, over the very bytes that the server got.
	page, err := d.root.Approvals(t.Context(), client.ApprovalQuery{State: "spent"})
	if err != nil || len(page.Approvals) != 1 || page.Approvals[0].Digest != digest || string(page.Approvals[0].Arguments) != got[0] {
		t.Errorf("%v %+v, shown %s, sent %s", err, page, digest, got)
	}

	// With keys: to the request, into it, to the button, and press it.
	call = asksPeople(t, cs, "bank_transfer", pay(481))
	b.open(d.admin + "/approvals")
	b.see("481 EUR")
	b.press("j")
	b.press(kb.Enter)
	b.see("1 approval ·")
	b.press("?")
	b.see("No key answers by itself")
	b.press(kb.Escape)
	b.tickByKeys()
	b.press("a")
	if focus := eval[string](b, "document.activeElement.id"); focus != "do-approve" || len(d.bank.all()) != 1 {
		t.Errorf("the key a led to %q", focus)
	}
	b.press(kb.Enter)
	b.see("You approved")
	call.came(t)

	// With Tab and Enter alone.
	call = asksPeople(t, cs, "bank_transfer", pay(482))
	b.open(d.admin + "/approvals")
	b.see("482 EUR")
	b.tabTo("[data-row]")
	b.press(kb.Enter)
	b.see("1 approval ·")
	b.tickByKeys()
	b.tabTo("#do-approve")
	b.press(kb.Enter)
	b.see("You approved")
	call.came(t)

	// Without scripts.
	call = asksPeople(t, cs, "bank_transfer", pay(483))
	d.waits(1)
	b.withoutScripts()
	b.open(d.admin + "/approvals")
	b.see("483 EUR")
	b.click("a.what")
	b.see("1 approval ·")
	b.approve()
	b.see("You approved")
	if r := call.came(t); r.IsError {
		t.Errorf("the call: %+v", r)
	}
	if n := len(d.bank.all()); n != 4 {
		t.Errorf("%d transfers: %v", n, d.bank.all())
	}
}

// tabTo presses Tab until the focus is on what a selector finds.
func (b *browser) tabTo(selector string) {
	b.t.Helper()
	b.settle()
	for range 60 {
		b.press(kb.Tab)
		if eval[bool](b, "document.activeElement.matches("+quote(selector)+")") {
			return
		}
	}
	b.t.Fatalf("Tab does not lead to %s", selector)
}

// tickByKeys ticks with Tab and the space bar what has to be ticked.
func (b *browser) tickByKeys() {
	b.t.Helper()
	for range eval[int](b, `document.querySelectorAll("input.must").length`) {
		b.tabTo("input.must:not(:checked)")
		b.press(" ")
	}
}

// CRITICAL takes two people in two browsers. Each sees what the other does.
func TestPeopleTwo(t *testing.T) {
	d := newDesk(t, "")
	call := asksPeople(t, d.agentOf(revision1125, nil), "bank_transfer", pay(25000))
	q := d.waits(1)[0]
	if q.Risk != "CRITICAL" || q.Needed != 2 {
		t.Fatalf("%+v", q)
	}
	ann, bob := d.ann(), d.bob()
	for _, b := range []*browser{ann, bob} {
		b.open(d.admin + "/approvals/" + q.ApprovalID)
		b.see("0 of 2 approvals")
	}
	ann.approve()
	ann.see("1 of 2, another person has to approve it too")
	bob.see("1 of 2 approvals") // by itself
	bob.see("ann approved")
	bob.shot("approval-critical-1-of-2")
	if len(d.bank.all()) > 0 {
		t.Fatal("one person was enough")
	}
	ann.open(d.admin + "/approvals/" + q.ApprovalID)
	ann.see("You approved it. Another person has to as well")
	if eval[bool](ann, "!!document.querySelector('#do-approve')") {
		t.Error("one person can approve twice")
	}
	bob.enter("#comment", "I called them")
	bob.approve()
	bob.see("You approved Transfer")
	ann.see("I called them")
	ann.see("It was used by call")
	if r := call.came(t); r.IsError || len(d.bank.all()) != 1 {
		t.Errorf("the call: %+v, transfers: %v", r, d.bank.all())
	}
}

// A no reaches the agent with its reason, and nothing runs. A request can be put off, is asked about again at its time, and is answered then.
func TestPeopleRejectDefer(t *testing.T) {
	d := newDesk(t, "")
	cs := d.agentOf(revision1125, nil)
	b := d.ann()
	call := asksPeople(t, cs, "bank_transfer", pay(480))
	q := d.waits(1)[0]
	b.open(d.admin + "/approvals/" + q.ApprovalID)
	b.unfold("open-reject")
	b.click("#do-reject") // the browser itself wants a reason
	b.press("r")
	if focus := eval[string](b, "document.activeElement.id"); focus != "reason" {
		t.Errorf("the focus is on %q", focus)
	}
	b.enter("#reason", "We do not know <this> payee")
	b.click("#do-reject")
	b.see("You rejected Transfer")
	if r := call.came(t); r.code() != "approval.rejected" || !strings.Contains(r.verdict.Reason, "We do not know <this> payee") {
		t.Errorf("the agent was told %+v", r.verdict)
	}
	b.open(d.admin + "/approvals/" + q.ApprovalID)
	b.see("rejected We do not know <this> payee")

	call = asksPeople(t, cs, "bank_transfer", pay(481))
	q = d.waits(1)[0]
	b.open(d.admin + "/approvals/" + q.ApprovalID)
	b.unfold("open-defer")
	b.click("#do-defer")
	b.see("You postponed Transfer")
	d.waits(0)
	b.open(d.admin + "/approvals")
	b.see("Postponed HIGH Transfer 481 EUR")
	b.click("a.what")
	b.see("Postponed until")
	b.shot("approval-deferred")
	b.approve() // deferred is not decided
	b.see("You approved Transfer")
	if r := call.came(t); r.IsError || len(d.bank.all()) != 1 {
		t.Errorf("the call: %+v, transfers: %v", r, d.bank.all())
	}
}

// A person changes the arguments: the difference is shown, the agent is told, and the call with the new ones runs once another person has
// approved it.
func TestPeopleModify(t *testing.T) {
	d := newDesk(t, "")
	cs := d.agentOf(revision1125, nil)
	b := d.ann()
	call := asksPeople(t, cs, "bank_transfer", pay(480))
	q := d.waits(1)[0]
	b.open(d.admin + "/approvals/" + q.ApprovalID)
	b.unfold("open-reject")
	b.click(`a[href$="/modify"]`)
	b.see("Change the arguments of bank.transfer")
	b.shot("modify")
	b.expect("status of 400")
	b.enter("#arguments", "{not JSON")
	b.enter("#reason", "The invoice is over 408")
	b.click("main button[type=submit]")
	b.see("The change was not taken")
	b.enter("#arguments", `{"payee": "DE02 1203 0000 0000 2020 51", "amount": 408, "subject": "Invoice 2231"}`)
	b.click("main button[type=submit]")
	b.see("What ann changed")
	b.see("− \"amount\": 480")
	b.see("+ \"amount\": 408")
	b.shot("approval-modified")
	r := call.came(t)
	if r.code() != "approval.mismatch" || !strings.Contains(r.verdict.Reason, "The invoice is over 408") {
		t.Fatalf("the agent was told %+v", r.verdict)
	}
	if len(d.bank.all()) > 0 {
		t.Fatal("something ran")
	}
	if eval[bool](b, "!!document.querySelector('#do-approve')") {
		t.Error("ann can approve what she wrote")
	}
	call = asksPeople(t, cs, "bank_transfer", pay(408))
	bob := d.bob()
	bob.open(d.admin + "/approvals/" + d.waits(1)[0].ApprovalID)
	bob.see("What ann changed")
	bob.approve()
	bob.see("You approved Transfer")
	if r := call.came(t); r.IsError || len(d.bank.all()) != 1 || !strings.Contains(d.bank.all()[0], "408") {
		t.Errorf("the call: %+v, transfers: %v", r, d.bank.all())
	}
}

// Similar requests are answered together, but each is looked at, and only what is ticked is answered.
func TestPeopleTogether(t *testing.T) {
	d := newDesk(t, "")
	token := d.agentToken()
	var calls []*inFlight
	for i := range 3 {
		calls = append(calls, asksPeople(t, d.connect(token, revision1125, nil), "bank_transfer", pay(480+i)))
		d.waits(i + 1)
	}
	b := d.ann()
	b.open(d.admin + "/approvals")
	b.shot("approvals-similar")
	b.click("p.together a")
	b.see("3 similar requests for bank.transfer")
	b.expect("status of 400")
	b.click(`button[value=approve]`)
	b.see("None is ticked.")
	for _, i := range []int{1, 3} {
		b.click(fmt.Sprintf("ol.items > li:nth-of-type(%d) input[type=checkbox]", i))
	}
	b.shot("similar")
	b.click(`button[value=approve]`)
	b.see("What became of your answer")
	for _, i := range []int{0, 2} {
		if r := calls[i].came(t); r.IsError {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	if open := d.waits(1); !strings.Contains(string(open[0].Arguments), "481") || len(d.bank.all()) != 2 {
		t.Errorf("open: %s, transfers: %v", open[0].Arguments, d.bank.all())
	}
}

// agentToken opens a session of the agent's and returns its token.
func (w *world) agentToken() string {
	w.t.Helper()
	_, token := w.open("tester")
	return token
}

// A request that expires while its page is open says so by itself, and can't be answered any more.
func TestPeopleExpires(t *testing.T) {
	t.Parallel() // it mostly waits
	d := newDesk(t, "approvals: {currency: EUR, hold: 1s, medium_delay: 1s, expires: 20s}\n")
	b := d.ann()
	call := asksPeople(t, d.agentOf(revision1125, nil), "bank_transfer", pay(480))
	q := d.waits(1)[0]
	b.open(d.admin + "/approvals/" + q.ApprovalID)
	b.see("1 approval ·")
	b.see("expired No answer until")
	b.see("There is nothing to answer any more")
	if eval[bool](b, "!!document.querySelector('#do-approve')") {
		t.Error("it can still be approved")
	}
	if r := call.came(t); r.code() != "approval.required" || len(d.bank.all()) > 0 {
		t.Errorf("%+v, transfers: %v", r.verdict, d.bank.all())
	}
}

// Two people answer at once, one yes and one no: one of them wins, the other one is told, and what happens is what the winner said.
func TestPeopleAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cs := d.agentOf(revision1125, nil)
	ann, bob := d.ann(), d.bob()
	ann.expect("status of 409")
	bob.expect("status of 409")
	for i := range 3 {
		before := len(d.bank.all())
		call := asksPeople(t, cs, "bank_transfer", pay(480+i))
		q := d.waits(1)[0]
		for _, b := range []*browser{ann, bob} {
			b.open(d.admin + "/approvals/" + q.ApprovalID)
		}
		bob.enter("#reason", "not this one")
		ann.settle()
		eval[any](ann, `document.querySelectorAll("input.must").forEach(e => { e.checked = true })`)
		var both sync.WaitGroup
		both.Go(func() { _, _ = try[any](ann, "document.querySelector('#do-approve').click()") })
		both.Go(func() { _, _ = try[any](bob, "document.querySelector('#do-reject').click()") })
		both.Wait()
		r := call.came(t)
		ran := len(d.bank.all()) - before
		if r.IsError {
			bob.see("You rejected")
			ann.until("ann is told", said("You approved")+"||"+said("Your answer was not taken")) // up to the moment at which it is used, one no is a no
			if r.code() != "approval.rejected" || ran != 0 {
				t.Errorf("%+v, and %d transfers", r.verdict, ran)
			}
			continue
		}
		ann.see("You approved")
		bob.see("Your answer was not taken")
		if ran != 1 {
			t.Errorf("%d transfers", ran)
		}
	}
}

// What is MEDIUM runs by itself after its time, unless a person stops it; where they did, silence says yes no more.
func TestPeopleMedium(t *testing.T) {
	t.Parallel() // it mostly waits
	d := newDesk(t, "approvals: {currency: EUR, hold: 2m, medium_delay: 30s}\n")
	cs := d.agentOf(revision1125, nil)
	b := d.ann()
	b.open(d.admin + "/approvals")
	letter := map[string]any{"to": "desk@example.com", "body": "The offer."}
	call := asksPeople(t, cs, "mail_send", letter)
	b.see("runs in")
	b.click("a.what")
	b.see("unless stopped")
	b.see("It was used by call") // by itself
	if r := call.came(t); r.IsError || len(d.mail.all()) != 1 {
		t.Errorf("%+v, sent: %v", r, d.mail.all())
	}

	letter["body"] = "Another one."
	call = asksPeople(t, cs, "mail_send", letter)
	b.open(d.admin + "/approvals/" + d.waits(1)[0].ApprovalID)
	b.see("unless stopped")
	b.shot("approval-medium")
	b.unfold("open-reject")
	b.enter("#reason", "Not to them")
	b.click("#do-reject")
	b.see("You rejected Send a mail")
	if r := call.came(t); r.code() != "approval.rejected" || len(d.mail.all()) != 1 {
		t.Errorf("%+v, sent: %v", r.verdict, d.mail.all())
	}

	letter["body"] = "A third one."
	asksPeople(t, cs, "mail_send", letter)
	b.open(d.admin + "/approvals/" + d.waits(1)[0].ApprovalID)
	b.see("1 approval ·")
}
