package console

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/screen"
)

// The page of screening shows hits and the sample that nobody has judged; an auditor's words are on record with their weight, and make the rates. What is neither can't be judged.
func TestScreeningPage(t *testing.T) {
	w := newPagesWorld(t)
	hit := audit.Entry{Kind: audit.Decision, Action: "tools/call", Decision: "ask", Agent: "tester", Operation: "mail.<b>odd", Event: audit.ThreatHit, Detail: json.RawMessage(`{"threat":{"event":"threat.hit","rule":"override-<i>x","channel":"arguments","source":"tester","score":2.5}}`)}
	first, err := w.store.Size(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.Record(t.Context(), hit, hit); err != nil {
		t.Fatal(err)
	}
	_, do := w.open("worker", "Look for it.")
	in, out := int64(-1), int64(-1) // calls of the sample, and out of it
	for n := 0; in < 0 || out < 0; n++ {
		if n == 500 {
			t.Fatal("no call of 500 is in the sample")
		}
		a := do("mail_search", `{"q":"x"}`)
		found, _, err := w.store.Entries(t.Context(), audit.Filter{CallID: a.CallID, Kind: string(audit.Outcome)})
		if err != nil || len(found) != 1 {
			t.Fatalf("%+v: %v, %v", a.Verdict, found, err)
		}
		if e := found[0]; screen.Sampled(a.CallID) {
			if in < 0 {
				in = e.Index - first
			}
		} else {
			out = e.Index - first
		}
	}
	at := func(i int64) string { return fmt.Sprintf("/audit/%d/judge", first+i) }
	page := w.ask("auditor", "/audit/screening", nil).Body.String()
	contains(t, page, "override-&lt;i&gt;x", "mail.&lt;b&gt;odd", `action="`+at(0)+`"`, `action="`+at(1)+`"`, `action="`+at(in)+`"`, "none judged yet", "2.5 above the threshold")
	if strings.Index(page, "How often it is wrong") > strings.Index(page, "Screening looks for") {
		t.Errorf("the figures are not first:\n%s", page)
	}
	if strings.Contains(page, at(out)) {
		t.Error("a call that is not in the sample is shown")
	}
	for i, c := range []struct {
		index   int64
		verdict string
		status  int
		record  string
	}{
		{0, "none", 303, `{"entry":%d,"hit":true,"attack":false,"weight":1}`},
		{1, "attack", 303, `{"entry":%d,"hit":true,"attack":true,"weight":1}`},
		{in, "none", 303, `{"entry":%d,"hit":false,"attack":false,"weight":20}`},
		{out, "none", 400, ""}, {0, "perhaps", 400, ""}, {0, "", 400, ""}, {-first - 1, "none", 404, ""}, {1 << 40, "attack", 404, ""},
	} {
		rec := w.ask("auditor", at(c.index), url.Values{"verdict": {c.verdict}})
		if rec.Code != c.status {
			t.Errorf("%d: %d %s", i, rec.Code, rec.Body)
		}
		if c.record == "" {
			continue
		}
		if e := w.last("screening.verdict"); string(e.Detail) != fmt.Sprintf(c.record, first+c.index) || e.Actor != "person:ann" {
			t.Errorf("%d: %s by %s", i, e.Detail, e.Actor)
		}
	}
	page = w.ask("auditor", "/audit/screening", nil).Body.String()
	contains(t, page, "1 of 2 judged: 50.0 % (95 % confidence: 9.5 % to 90.5 %)", "0 of 1 judged: 0.0 % (95 % confidence: 0.0 % to 79.3 %)")
	for _, i := range []int64{0, 1, in} {
		if strings.Contains(page, at(i)) {
			t.Errorf("what was judged is shown again: %d", i)
		}
	}
	contains(t, w.ask("auditor", "/audit", nil).Body.String(), `href="/audit/screening"`)
	for _, roles := range []string{"viewer", "approver", "operator"} {
		if rec := w.ask(roles, at(0), url.Values{"verdict": {"attack"}}); rec.Code != 403 {
			t.Errorf("%s judges: %d", roles, rec.Code)
		}
	}
}
