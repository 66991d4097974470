package httpapi_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/provenance"
)

// A drill is not to be told from a request before it is answered: not on its page, not in the API, not in the session's timeline.
func TestDrillsLookLikeRequests(t *testing.T) {
	was := classes["slack.post"]
	classes["slack.post"] = catalogue.Classification{ExposeAs: "slack_post", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write}, Output: provenance.TrustedOutput, Level: 2,
		Action: "transfer_money", RiskFloor: policy.High, Roles: map[string]string{"to": "destination", "sum": "amount"}}
	t.Cleanup(func() { classes["slack.post"] = was })
	w := newWorld(t, func(o *gateway.Options) { o.Limits.DrillEvery, o.Draw = 1, func(int) int { return 0 } })
	c, session := w.open("dora")
	real := w.askRaw(c, map[string]any{"to": "bo@example.com", "sum": 5000})
	open, err := w.g.Desk().Questions(t.Context(), approval.Pending, session, "", 10)
	if err != nil || len(open) != 2 {
		t.Fatalf("%d, %v", len(open), err)
	}
	drill := open[0].ID
	if drill == real {
		drill = open[1].ID
	}
	carol := w.browser("carol", identity.Approver, identity.Viewer)
	to := map[string]string{}
	for _, q := range open {
		to[q.ID], _ = strings.CutPrefix(string(q.Arguments), `{"sum":5000,"to":"`)
		to[q.ID] = strings.TrimSuffix(to[q.ID], `"}`)
	}
	same := func(id, s string) string {
		s = strings.ReplaceAll(strings.ReplaceAll(s, to[id], "TO"), id, "ID")
		return regexp.MustCompile(`[0-9a-f]{64}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?|\d+ (s|min)\b|[0-9a-f]{32}|checked\.[0-9a-f]{16}|delay:\d+s|\d+ characters`).ReplaceAllString(s, "#")
	}
	differ := func(what, a, b string) {
		t.Helper()
		x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
		for i := range min(len(x), len(y)) {
			if x[i] != y[i] {
				t.Errorf("%s: the request has\n%.400s\nthe drill\n%.400s", what, x[i], y[i])
				return
			}
		}
		if len(x) != len(y) {
			t.Errorf("%s: %d lines, %d of the drill", what, len(x), len(y))
		}
	}
	nav := regexp.MustCompile(`(?s)<nav aria-label="Requests".*?</nav>`)
	differ("page", nav.ReplaceAllString(same(real, carol.get("/approvals/"+real).body), ""), nav.ReplaceAllString(same(drill, carol.get("/approvals/"+drill).body), ""))
	token := w.token(identity.Person, "carol", identity.Approver)
	keys := func(id string) string {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(w.send(w.admin, "GET", "/v1/approvals/"+id, token, "").body), &m); err != nil {
			t.Fatal(err)
		}
		return strings.Join(slices.Sorted(maps.Keys(m)), "\n")
	}
	differ("API", keys(real), keys(drill))
	body := carol.get("/sessions/" + session).body
	row := func(id string) string {
		at := strings.Index(body, "/approvals/"+id+"\">request")
		if at < 0 {
			t.Fatal("not in the timeline")
		}
		from, to := strings.LastIndex(body[:at], "<details"), strings.Index(body[at:], "</details>")
		s := same(id, body[from:at+to])
		s = regexp.MustCompile(`id="step-[^"]*"|<span class="soft">\d+\. |>entry \d+<|/audit/\d+`).ReplaceAllString(s, "")
		return s
	}
	differ("timeline", row(real), row(drill))
	// The agent is not told either.
	st, err := c.Status(t.Context(), session)
	if err == nil {
		b, _ := json.Marshal(st)
		if strings.Contains(string(b), drill) {
			t.Errorf("the agent is told of the drill: %s", st.PendingApprovals)
		}
	}
}

// Who approved a drill and is told so can't make it a rejection afterwards: the figure is of what people did before they knew.
func TestAnswerToADrillIsNotTakenBack(t *testing.T) {
	was := classes["slack.post"]
	classes["slack.post"] = catalogue.Classification{ExposeAs: "slack_post", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write}, Output: provenance.TrustedOutput, Level: 2,
		RiskFloor: policy.High, Roles: map[string]string{"to": "destination"}}
	t.Cleanup(func() { classes["slack.post"] = was })
	w := newWorld(t, func(o *gateway.Options) { o.Limits.DrillEvery, o.Draw = 1, func(int) int { return 0 } })
	c, session := w.open("dora")
	real := w.askRaw(c, map[string]any{"to": "bo@example.com"})
	open, err := w.g.Desk().Questions(t.Context(), approval.Pending, session, "", 10)
	if err != nil || len(open) != 2 {
		t.Fatalf("%d, %v", len(open), err)
	}
	carol := w.client(w.admin, w.token(identity.Person, "carol", identity.Approver))
	for _, q := range open {
		if q.ID == real {
			continue
		}
		if _, err := carol.Approve(t.Context(), q.ID, q.Digest, ""); err != nil {
			t.Fatal(err)
		}
		if told, err := carol.Approval(t.Context(), q.ID); err != nil || !told.Drill {
			t.Fatalf("not told: %v", err)
		}
		_, err := carol.Reject(t.Context(), q.ID, q.Digest, "oh, a drill")
		t.Log(err)
	}
	if n, err := w.g.Desk().Drills(t.Context()); err != nil || n.Approved != 1 || n.Rejected != 0 {
		t.Errorf("one drill was approved: %+v, %v", n, err)
	}
}
