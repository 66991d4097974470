package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// decision is a request that a person has to answer, with what the session had read before: testdata/decisions.json.
type decision struct {
	Name    string     `json:"name"`
	Fraud   bool       `json:"fraud"`
	Request string     `json:"request"`
	Reads   []toolCall `json:"reads"`
	Call    toolCall   `json:"call"`
	Risk    string     `json:"risk"`
	First   []string   `json:"first"` // what the first screen of a phone has to say
	Ticks   []string   `json:"ticks"` // arguments that an approver has to say they checked
}

type toolCall struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
}

func decisions(t testing.TB) []decision {
	t.Helper()
	b, err := os.ReadFile("testdata/decisions.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []decision
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// backOffice is a gateway before the servers of an office, whose results a test sets.
type backOffice struct {
	*world
	mu   sync.Mutex // guards next
	next json.RawMessage
}

func newBackOffice(t testing.TB) *backOffice {
	t.Helper()
	o := &backOffice{}
	answer := func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		return text(string(o.next)), nil
	}
	var upstreams []string
	for _, server := range []struct {
		name  string
		tools []string
	}{{"bank", []string{"get_invoice", "transfer"}}, {"mail", []string{"search_email", "send_email"}}, {"crm", []string{"find_customer", "delete_customer"}}, {"web", []string{"fetch_page", "submit_form"}}} {
		s := newServer(server.name)
		for _, name := range server.tools {
			tool(s, name, "Of the office.", answer)
		}
		upstreams = append(upstreams, fmt.Sprintf("%s: {url: %q}", server.name, sdkServer(t, s)))
	}
	o.world = start(t, `approvals: {currency: EUR}
people:
  - {id: ann, roles: [approver, viewer, operator, auditor]}
upstreams: {`+strings.Join(upstreams, ", ")+`}
flow: {labels: [internal, pii]}
operations:
  bank.get_invoice:     {sensitivity: none, effect: read, output: trusted, names: [number], id_kind: invoice}
  bank.transfer:        {sensitivity: none, action: transfer_money, args: {payee: destination, amount: amount, currency: currency, subject: content}}
  mail.search_email:    {sensitivity: none, effect: read, emits: [untrusted]}
  mail.send_email:      {sensitivity: external, action: send_email, risk: HIGH, args: {to: destination, subject: content, body: content}}
  crm.find_customer:    {sensitivity: internal_source, effect: read, emits: [pii], output: trusted, names: [name, id], id_kind: customer}
  crm.delete_customer:  {sensitivity: none, action: delete_data, id_kind: customer, args: {id: selector}}
  web.fetch_page:       {sensitivity: external, effect: read, egress_url: true, args: {url: url}}
  web.submit_form:      {sensitivity: external, risk: HIGH, args: {url: url, body: content}}
`, declaration("finance-clerk"))
	eventually(t, patience, "the tools are there", func() bool {
		tools, err := o.root.Tools(context.Background())
		return err == nil && len(tools) >= 8
	})
	return o
}

// ask makes the calls of a case in a session of its own, and returns the request that waits.
func (o *backOffice) ask(c decision) *client.Approval {
	o.t.Helper()
	s, err := o.root.StartSession(o.t.Context(), client.OpenSession{AgentID: "finance-clerk", UserRequest: c.Request, Requester: "vera"})
	if err != nil {
		o.t.Fatal(err)
	}
	cs := o.connect(s.SessionToken, revision0728, nil)
	for _, read := range c.Reads {
		o.mu.Lock()
		o.next = read.Result
		o.mu.Unlock()
		if r := must(o.t, cs, read.Tool, read.Arguments); r.verdict != nil {
			o.t.Fatalf("%s: %+v", read.Tool, r)
		}
	}
	r := must(o.t, cs, c.Call.Tool, c.Call.Arguments)
	if r.verdict == nil || r.verdict.ApprovalID == nil {
		o.t.Fatalf("nobody is asked: %+v", r)
	}
	a, err := o.root.Approval(o.t.Context(), *r.verdict.ApprovalID)
	if err != nil {
		o.t.Fatal(err)
	}
	return a
}

// firstScreen is the text that stands in sight without scrolling.
const firstScreen = `(() => {
	const bar = document.querySelector(".decide").getBoundingClientRect().top, out = [];
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n = walk.nextNode(); n; n = walk.nextNode()) {
		const e = n.parentElement;
		if (!n.data.trim() || e.closest("script, style, .unseen, .skip, dialog, title, desc") || e.closest("details:not([open])") && !e.closest("summary")) continue;
		const range = document.createRange();
		range.selectNodeContents(n);
		const inBar = !!e.closest(".decide");
		for (const r of range.getClientRects()) {
			if (r.width > 0 && r.height > 0 && r.top >= 0 && r.bottom <= (inBar ? innerHeight : bar) && r.left >= 0 && r.left < innerWidth) { out.push(n.data.trim()); break; }
		}
	}
	return out.join(" ").replace(/\s+/g, " ");
})()`

// Ten requests, five of them frauds. On a phone of 360 by 640 the first screen of each says what decides in at most 90 words, with the button that
// approves in sight; a value that nothing confirms has to be ticked, without scripts too.
func TestPeopleDecisions(t *testing.T) {
	t.Parallel()
	o := newBackOffice(t)
	b := o.ann()
	for i, c := range decisions(t) {
		t.Run(c.Name, func(t *testing.T) {
			o.t, b.t = t, t
			a := o.ask(c)
			if a.Risk != c.Risk {
				t.Errorf("its risk is %s, want %s: %+v", a.Risk, c.Risk, a.Reasons)
			}
			b.phone()
			b.open(o.admin + "/approvals/" + a.ApprovalID)
			b.shot(fmt.Sprintf("decision-%d", i+1))
			b.screen(fmt.Sprintf("decision-%d-first", i+1))
			shown := eval[string](b, firstScreen)
			for _, want := range c.First {
				if !strings.Contains(strings.ToLower(shown), strings.ToLower(want)) {
					t.Errorf("the first screen does not say %q: %s", want, shown)
				}
			}
			if n := countWords(shown); n > 90 {
				t.Errorf("the first screen has %d words: %s", n, shown)
			}
			if !eval[bool](b, `(() => { const r = document.querySelector("#do-approve").getBoundingClientRect(); return r.width > 40 && r.top > 0 && r.bottom <= innerHeight && r.right <= innerWidth })()`) {
				t.Error("the button that approves is out of sight")
			}
			ticks := eval[[]string](b, `Array.from(document.querySelectorAll("input.must"), e => e.closest("div").querySelector("dt").textContent)`)
			if !slices.Equal(ticks, c.Ticks) {
				t.Errorf("it wants ticks for %v, want %v", ticks, c.Ticks)
			}
			if !c.Fraud && strings.Contains(shown, "LOOK AT") {
				t.Errorf("an objection to a sound request: %s", shown)
			}
		})
	}
	o.t, b.t = t, t
	b.look("light", 1280)
}

// countWords counts what has a letter or a digit in it.
func countWords(s string) (n int) {
	for _, word := range strings.Fields(s) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

// Without scripts, and past the browser's own check, an unconfirmed value has to be ticked.
func TestPeopleTicks(t *testing.T) {
	o := newBackOffice(t)
	fraud := decisions(t)[0]
	a := o.ask(fraud)
	b := o.ann()
	b.withoutScripts()
	b.expect("400 (Bad Request)")
	b.open(o.admin + "/approvals/" + a.ApprovalID)
	b.click("#do-approve")
	b.at("/approvals/" + a.ApprovalID) // the browser wants the tick
	if state := o.approvalState(a.ApprovalID); state != "pending" {
		t.Fatalf("it is %s", state)
	}
	eval[any](b, `document.querySelectorAll("[required]").forEach(e => e.removeAttribute("required"))`)
	b.click("#do-approve")
	b.see("Your answer was not taken")
	b.see("Nothing confirms payee")
	if state := o.approvalState(a.ApprovalID); state != "pending" {
		t.Fatalf("it is %s", state)
	}
	b.click("input.must")
	b.click("#do-approve")
	b.see("You approved")
	if state := o.approvalState(a.ApprovalID); state != "approved" {
		t.Fatalf("it is %s", state)
	}
}

func (w *world) approvalState(id string) string {
	w.t.Helper()
	a, err := w.root.Approval(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(a.State)
}
