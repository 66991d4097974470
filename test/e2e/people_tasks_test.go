package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/client"
)

// How many clicks each task of a person takes on a phone of 360 by 640, from the page where it begins, and how many screens one has to move down
// for them. No page on the way is wider than the screen. A task that takes more than is written here fails.
func TestPeopleTasks(t *testing.T) {
	o := newBackOffice(t)
	b := o.ann()
	b.phone()
	cases := decisions(t)
	fraud, sound := cases[0], cases[len(cases)-1]
	if sound.Fraud || len(sound.Ticks) > 0 {
		t.Fatalf("%s is no case without doubts", sound.Name)
	}
	ask := func() string { return o.ask(sound).ApprovalID }
	doubtful := func() string { return o.ask(fraud).ApprovalID }
	for _, task := range []struct {
		name    string
		prepare func() string // ID below: of the request
		from    string
		clicks  []string
		screens float64 // that one moves down at most
		see     string
	}{
		{"approve from the queue what is confirmed", ask, "/approvals", []string{"a[href='/approvals/ID']", "#do-approve"}, 0, "You approved"},
		{"approve a request after a check", doubtful, "/approvals/ID", []string{"input.must", "#do-approve"}, 0, "You approved"},
		{"reject a request and tell why", doubtful, "/approvals/ID", []string{"#open-reject", "button[value='wrong recipient']"}, 0, "You rejected"},
		{"be reminded later", doubtful, "/approvals/ID", []string{"#open-defer", "#do-defer"}, 0, "You postponed"},
		{"approve two similar requests", o.askTwice, "/approvals/ID",
			[]string{"a[href='/approvals/ID/similar']", "ol.items > li:nth-of-type(1) input[type=checkbox]", "ol.items > li:nth-of-type(2) input[type=checkbox]", "button[value=approve]"}, 1, "What became of your answer"},
		{"look at what an agent was refused", func() string { return o.refused(b) }, "/", []string{"a[href*='agent=finance-clerk'][href*='decision=deny']"}, 1, "tool.unknown"},
		{"find what stands in a call", o.indexed, "/audit?q=Initech", []string{"#entries ~ .wide th a"}, 1, "Proof of inclusion"},
		{"stop an agent", nil, "/", []string{"#open-stop", "#stop button"}, 0, "Stopped"},
		{"stop all agents", nil, "/", []string{"form[action='/kill'] button"}, 0, "All agents are stopped"},
	} {
		t.Run(task.name, func(t *testing.T) {
			o.t, b.t = t, t
			id, down := "", 0.0
			if task.prepare != nil {
				id = task.prepare()
			}
			b.open(o.admin + strings.ReplaceAll(task.from, "ID", id))
			for _, selector := range task.clicks {
				selector = strings.ReplaceAll(selector, "ID", id)
				b.settle()
				b.fitsPhone()
				b.until(selector+" is there", "document.querySelector("+quote(selector)+")")
				down += eval[float64](b, "Math.max(0, document.querySelector("+quote(selector)+").getBoundingClientRect().bottom / innerHeight - 1)")
				b.click(selector)
			}
			b.see(task.see)
			b.fitsPhone()
			t.Logf("%d clicks, %.1f screens down", len(task.clicks), down)
			if down > task.screens {
				t.Errorf("one has to move %.1f screens down, want at most %.0f", down, task.screens)
			}
		})
	}
}

// askTwice asks for a second transfer in the same session, and returns the first request.
func (o *backOffice) askTwice() string {
	o.t.Helper()
	s, err := o.root.StartSession(o.t.Context(), client.OpenSession{AgentID: "finance-clerk", UserRequest: "Transfer 480 EUR and 490 EUR to DE75 5121 0800 1245 1261 99.", Requester: "vera"})
	if err != nil {
		o.t.Fatal(err)
	}
	cs, first := o.connect(s.SessionToken, revision0728, nil), ""
	for _, amount := range []int{480, 490} {
		r := must(o.t, cs, "bank_transfer", map[string]any{"payee": "DE75 5121 0800 1245 1261 99", "amount": amount, "currency": "EUR", "subject": "As asked"})
		if r.verdict == nil || r.verdict.ApprovalID == nil {
			o.t.Fatalf("nobody is asked: %+v", r)
		}
		first = cmp.Or(first, *r.verdict.ApprovalID)
	}
	return first
}

// refused makes a call that is refused.
func (o *backOffice) refused(b *browser) string {
	o.t.Helper()
	s, err := o.root.StartSession(o.t.Context(), client.OpenSession{AgentID: "finance-clerk", UserRequest: "Do what has no tool.", Requester: "vera"})
	if err != nil {
		o.t.Fatal(err)
	}
	must(o.t, o.connect(s.SessionToken, revision0728, nil), "no_such_tool", map[string]any{})
	eventually(o.t, patience, "it is counted", func() bool {
		b.open(o.admin + "/")
		return strings.Contains(b.text(), "1 refused")
	})
	return ""
}

// indexed waits until what stands in calls can be found.
func (o *backOffice) indexed() string {
	o.t.Helper()
	eventually(o.t, patience, "the index has the calls", func() bool {
		page, err := o.root.Audit(o.t.Context(), client.AuditQuery{Text: "Initech", Newest: true})
		return err == nil && len(page.Entries) > 0 && page.Searched != nil && page.Searched.To == page.Searched.Size
	})
	return ""
}

// fitsPhone reports what makes the page wider than the screen.
func (b *browser) fitsPhone() {
	b.t.Helper()
	if over := eval[int](b, "document.documentElement ? document.documentElement.scrollWidth - innerWidth : 0"); over > 0 {
		b.t.Errorf("the page is %d pixels too wide", over)
	}
}

// Text from right to left is read where it stands: on every page it fits, and nothing of what stands beside it moves. A value that decides is shown in the order
// in which it is sent, and a mark that would turn text is written out.
func TestPeopleRightToLeft(t *testing.T) {
	t.Parallel()
	o := newBackOffice(t)
	const account = "DE02 1203 0000 0000 2020 51"
	for i, c := range []decision{
		{
			Request: "שלם את החשבונית 2026-118 של אינטרנט.",
			Reads: []toolCall{{"mail_search_email", json.RawMessage(`{"query":"2026-118"}`),
				json.RawMessage(`[{"id":"m-1","from":"billing@initech.example","subject":"حساب جديد","body":"يرجى الدفع إلى ` + account + ` الآن"}]`)}},
			Call:  toolCall{"bank_transfer", json.RawMessage(`{"payee":"` + account + `","amount":4800,"currency":"EUR","subject":"فاتورة 2026-118 مدفوعة 4,800"}`), nil},
			First: []string{"Transfer 4,800 EUR", account},
		},
		{
			Request: "به آنا ایمیل بزن 12, 13",
			Reads:   []toolCall{{"mail_search_email", json.RawMessage(`{"query":"آنا"}`), json.RawMessage(`[{"id":"m-2","from":"آنا 7","subject":"دعوت","body":"به آنا@نمونه.example بنویسید"}]`)}},
			Call:    toolCall{"mail_send_email", json.RawMessage(`{"to":"آنا 14 15","subject":"دعوت 2026 \u202e4,800","body":"سلام 1 2 3\nabc"}`), nil},
			First:   []string{"Send a mail", "آنا 14 15", `\u202e`},
		},
		{
			Request: "Delete the customer אבג 12.",
			Reads:   []toolCall{{"crm_find_customer", json.RawMessage(`{"id":"אבג 12"}`), json.RawMessage(`{"id":"אבג 12","name":"דהו 12 34 (56)","path":"/בית/2026/א"}`)}},
			Call:    toolCall{"crm_delete_customer", json.RawMessage(`{"id":"אבג 12"}`), nil},
			First:   []string{"Delete customer", "אבג 12"},
		},
	} {
		t.Run(fmt.Sprint("case ", i+1), func(t *testing.T) {
			o.t = t
			a := o.ask(c)
			b := o.ann()
			for _, path := range []string{"/approvals/" + a.ApprovalID, "/approvals", "/sessions/" + a.SessionID, "/"} {
				name := fmt.Sprintf("rtl-%d-%s", i+1, strings.TrimSuffix(pictureOf(path), "-"+a.ApprovalID))
				b.open(o.admin + path)
				b.accessible(name)
				b.phone()
				b.open(o.admin + path)
				b.settle()
				b.shot(name)
				for _, moved := range eval[[]string](b, movedText) {
					t.Errorf("%s: it does not stand where it is written: %s", path, moved)
				}
			}
			b.open(o.admin + "/approvals/" + a.ApprovalID)
			shown := eval[string](b, firstScreen)
			for _, want := range c.First {
				if !strings.Contains(shown, want) {
					t.Errorf("the first screen does not say %q: %s", want, shown)
				}
			}
			if !eval[bool](b, `(() => { const r = document.querySelector("#do-approve").getBoundingClientRect(); return r.top > 0 && r.bottom <= innerHeight && r.right <= innerWidth })()`) {
				t.Error("the button that approves is out of sight")
			}
		})
	}
}

// movedText names letters of pages that don't stand to the right of the letter before them, or on a later line. Within a <bdi>, which has letters from right to left
// alone, it is theirs; what is beside it has to stay beside it.
const movedText = `(() => {
	const out = [], skip = "script, style, title, desc, .unseen, .skip, textarea, select, dialog, details:not([open]) > :not(summary)";
	for (const block of document.querySelectorAll("main p, main li, main td, main th, main h1, main h2, main dt, main dd, main pre, main text, main blockquote, main summary")) {
		if (block.closest(skip) || !/[\u0590-\u08ff]/.test(block.textContent)) continue;
		const walk = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
		let last = null, seen = "";
		for (let n = walk.nextNode(); n; n = walk.nextNode()) {
			const e = n.parentElement, run = e.closest("bdi"), range = document.createRange();
			if (e.closest(skip) || e.closest("p, li, td, th, h1, h2, dt, dd, pre, text, blockquote, summary") !== block) continue;
			const free = run && getComputedStyle(run).unicodeBidi === "isolate";
			for (let i = 0; i < n.data.length; i++) {
				if (/\s/.test(n.data[i])) continue;
				range.setStart(n, free ? 0 : i);
				range.setEnd(n, free ? n.data.length : i + 1);
				for (const r of range.getClientRects()) {
					if (r.width === 0) continue;
					if (last && Math.abs(r.top - last.top) < 6 && r.left < last.left - 0.5) { out.push(JSON.stringify(seen.slice(-20) + n.data[i]) + " in " + block.outerHTML.slice(0, 200)); i = n.data.length; break; }
					last = r;
				}
				seen += n.data[i] || "";
				if (free) break;
			}
		}
	}
	return out.slice(0, 8);
})()`
