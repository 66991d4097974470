package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"

	"sallyport.example/client"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/console"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
)

// browser is somebody who is signed in to the console, without scripts.
type browser struct {
	w      *world
	cookie *http.Cookie
}

func (w *world) browser(person string, roles ...identity.Role) browser {
	w.t.Helper()
	a, c := w.signIn(w.token(identity.Person, person, roles...))
	if c == nil {
		w.t.Fatalf("sign in: %d %s", a.status, a.body)
	}
	return browser{w, c}
}

func (b browser) get(path string) answer {
	b.w.t.Helper()
	a := b.w.send(b.w.admin, "GET", path, "", "", with(b.cookie))
	checkPage(b.w.t, path, a)
	return a
}

func form(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }

func (b browser) post(path string, fields url.Values, tweak ...func(*http.Request)) answer {
	b.w.t.Helper()
	a := b.w.send(b.w.admin, "POST", path, "", fields.Encode(), append([]func(*http.Request){form, with(b.cookie)}, tweak...)...)
	if a.status != http.StatusSeeOther && strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		checkPage(b.w.t, "POST "+path, a)
	}
	return a
}

// page is what stands in a page, as a browser reads it.
type page struct {
	ids    map[string]string // the text of what has the id
	inputs map[string]string // hidden fields by name, of the last form that has them
	text   string
}

// checkPage holds a page against everything that all of them promise, and reads it.
func checkPage(t testing.TB, where string, a answer) page {
	t.Helper()
	if ct := a.header.Get("Content-Type"); ct != "text/html; charset=utf-8" || a.header.Get("Content-Security-Policy") != policyOfPages || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s: %d %s %q %q", where, a.status, ct, a.header.Get("Content-Security-Policy"), a.header.Get("Cache-Control"))
	}
	doc, err := html.Parse(strings.NewReader(a.body))
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	p := page{ids: map[string]string{}, inputs: map[string]string{}}
	labelled, fields, counts := map[string]bool{}, map[string]string{}, map[string]int{}
	whole := strings.HasPrefix(a.body, "<!DOCTYPE html>")
	for n := range doc.Descendants() {
		if n.Type == html.CommentNode {
			t.Errorf("%s: a comment: %.80s", where, n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		if n.Namespace == "" { // a picture has titles of its own
			counts[n.Data]++
		}
		at := map[string]string{}
		for _, x := range n.Attr {
			if _, twice := at[x.Key]; twice {
				t.Errorf("%s: <%s> has %s twice", where, n.Data, x.Key)
			}
			at[x.Key] = x.Val
			if strings.HasPrefix(x.Key, "on") || strings.HasPrefix(x.Key, "hx-on") || strings.HasPrefix(x.Key, "data-hx") || x.Key == "style" {
				t.Errorf("%s: <%s %s=%q>", where, n.Data, x.Key, x.Val)
			}
			if slices.Contains([]string{"src", "href", "action", "formaction", "hx-get", "hx-post", "sse-connect"}, x.Key) && !strings.HasPrefix(x.Val, "/") && !strings.HasPrefix(x.Val, "#") && !strings.HasPrefix(x.Val, "?") || strings.HasPrefix(x.Val, "//") {
				t.Errorf("%s: <%s %s=%q> leads elsewhere", where, n.Data, x.Key, x.Val)
			}
		}
		if id, ok := at["id"]; ok {
			if _, twice := p.ids[id]; twice || id == "" {
				t.Errorf("%s: the id %q is there twice", where, id)
			}
			p.ids[id] = text(n)
		}
		switch n.Data {
		case "script":
			if at["src"] == "" || text(n) != "" {
				t.Errorf("%s: a script in the page: %s", where, text(n))
			}
		case "style", "iframe", "object", "embed", "base":
			t.Errorf("%s: a <%s>", where, n.Data)
		case "label":
			labelled[at["for"]] = true
		case "img":
			if _, ok := at["alt"]; !ok {
				t.Errorf("%s: an image without alt", where)
			}
		case "input", "textarea", "select":
			if at["type"] == "hidden" {
				p.inputs[at["name"]] = at["value"]
			} else if _, named := at["aria-label"]; !named {
				fields[at["id"]] = n.Data + " " + at["name"]
			}
			if _, ticked := at["checked"]; ticked && at["id"] != "keys-on" {
				t.Errorf("%s: %s is ticked beforehand", where, at["name"])
			}
		case "form":
			if m := at["method"]; m != "post" && m != "get" && m != "dialog" {
				t.Errorf("%s: a form with the method %q", where, m)
			}
		}
		if ref := at["aria-labelledby"]; ref != "" && whole && !strings.Contains(a.body, `id="`+ref+`"`) {
			t.Errorf("%s: nothing has the id %q", where, ref)
		}
	}
	for id, field := range fields {
		if !labelled[id] {
			t.Errorf("%s: no label for %s (%q)", where, field, id)
		}
	}
	if whole && (counts["main"] != 1 || counts["h1"] != 1 || counts["title"] != 1) {
		t.Errorf("%s: %d main, %d h1, %d title", where, counts["main"], counts["h1"], counts["title"])
	}
	p.text = text(doc)
	return p
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// pages is written down here a second time on purpose: a page that is added or opened wider fails until it was considered. needs: "any"
// person, "open" to all, or the roles of which a person needs one.
var pages = []struct{ pattern, needs string }{
	{"GET /{$}", "any"},
	{"GET /events", "viewer approver operator auditor"},
	{"POST /logout/everywhere", "any"},
	{"POST /kill", "operator"},
	{"POST /unkill", "operator"},
	{"POST /reload", "admin"},
	{"POST /breakers/reset", "operator"},
	{"GET /approvals", "viewer approver operator auditor"},
	{"GET /approvals/count", "viewer approver operator auditor"},
	{"GET /approvals/plans", "viewer approver operator auditor"},
	{"GET /approvals/{id}", "viewer approver operator auditor"},
	{"POST /approvals/{id}/approve", "approver"},
	{"POST /approvals/{id}/reject", "approver"},
	{"POST /approvals/{id}/defer", "approver"},
	{"GET /approvals/{id}/modify", "approver"},
	{"POST /approvals/{id}/modify", "approver"},
	{"GET /approvals/{id}/similar", "viewer approver operator auditor"},
	{"POST /approvals/{id}/similar", "approver"},
	{"GET /sessions", "viewer approver operator auditor"},
	{"GET /sessions/{id}", "viewer approver operator auditor"},
	{"POST /sessions/{id}/release", "operator"},
	{"POST /sessions/{id}/phase", "operator"},
	{"POST /sessions/{id}/close", "operator"},
	{"POST /sessions/{id}/plan/approve", "operator"},
	{"POST /sessions/{id}/plan/reject", "operator"},
	{"GET /tools", "viewer approver operator auditor"},
	{"GET /tools/{operation}", "viewer approver operator auditor"},
	{"GET /tools/unread", "viewer approver operator auditor"}, {"POST /tools/unread/accept", "operator"},
	{"GET /tools/labels", "operator"}, {"POST /tools/labels", "operator"}, {"GET /tools/rules", "viewer approver operator auditor"}, {"POST /tools/rules", "operator"},
	{"GET /tools/stored", "viewer approver operator auditor"}, {"POST /tools/stored/{id}/release", "operator"},
	{"POST /tools/{operation}/accept", "operator"},
	{"GET /agents", "viewer approver operator auditor"},
	{"GET /agents/{id}", "viewer approver operator auditor"},
	{"POST /agents/{id}/kill", "operator"},
	{"POST /agents/{id}/unkill", "operator"},
	{"POST /agents/{id}/approve", "approver"},
	{"POST /agents/{id}/quarantine", "operator"},
	{"POST /agents/{id}/restore", "operator"},
	{"POST /agents/{id}/next", "operator"},
	{"POST /agents/{id}/runs", "operator approver"},
	{"GET /models", "viewer approver operator auditor"},
	{"GET /security", "viewer approver operator auditor"}, {"POST /security/{id}/acknowledge", "operator"}, {"POST /security/{id}/resolve", "operator"},
	{"GET /runs", "viewer approver operator auditor"},
	{"GET /runs/{id}", "viewer approver operator auditor"},
	{"POST /runs/{id}/cancel", "operator approver"},
	{"GET /recommendations", "viewer approver operator auditor"},
	{"GET /recommendations/{id}", "viewer approver operator auditor"},
	{"POST /recommendations/{id}/approve", "approver"},
	{"POST /recommendations/{id}/reject", "approver"},
	{"POST /recommendations/{id}/defer", "approver"},
	{"GET /knowledge", "viewer approver operator auditor"},
	{"POST /knowledge/add", "operator"},
	{"POST /knowledge/snapshots", "operator"},
	{"POST /knowledge/withdraw", "operator"},
	{"GET /knowledge/{id}", "viewer approver operator auditor"},
	{"POST /knowledge/{id}/versions", "operator"},
	{"POST /knowledge/{id}/delete", "operator"},
	{"POST /knowledge/{id}/restore", "operator"},
	{"POST /knowledge/{id}/labels", "operator"},
	{"POST /knowledge/{id}/erase", "admin"},
	{"GET /audit", "auditor"},
	{"GET /audit/download", "auditor"},
	{"GET /audit/{index}", "auditor"},
	{"GET /audit/screening", "auditor"}, {"POST /audit/{index}/judge", "auditor"},
	{"POST /audit/{index}/verify", "auditor"},
	{"POST /login", "open"},
	{"POST /logout", "open"},
	{"GET /login/link/{code}", "open"},
	{"POST /login/link/{code}", "open"},
	{"GET /static/{file}", "open"},
}

// TestWhoSeesWhat sends nobody, and every role, to every page.
func TestWhoSeesWhat(t *testing.T) {
	var there, table []string
	console.New(console.Options{}).Register(func(pattern string, _ http.Handler) { there = append(there, pattern) })
	for _, p := range pages {
		table = append(table, p.pattern)
	}
	slices.Sort(there)
	slices.Sort(table)
	if !slices.Equal(there, table) {
		t.Errorf("there is %v\nin the table %v", there, table)
	}
	w := newWorld(t)
	c, session := w.open("dora")
	q := w.ask(c, client.Own, "comm_exec", "https://docs.example/")
	people := map[identity.Role]browser{}
	for _, r := range identity.Roles {
		people[r] = w.browser("p-"+string(r), r)
	}
	nobody := w.browser("nobody", identity.Viewer)
	nobody.cookie.Value = strings.Repeat("A", 26)
	none := w.browser("bob", identity.Approver) // whom the configuration makes viewer and operator: nothing is left
	for _, p := range pages {
		method, path, _ := strings.Cut(p.pattern, " ")
		id := q.ApprovalID
		if strings.HasPrefix(path, "/sessions") {
			id = session
		} else if strings.HasPrefix(path, "/agents") {
			id = "planner"
		}
		path = strings.NewReplacer("{$}", "", "{id}", id, "{operation}", "docs.think", "{index}", "0", "{code}", "x", "{file}", "x").Replace(path)
		send := func(b browser) answer {
			t.Helper()
			if path == "/events" { // would not end
				return b.w.send(b.w.admin, "GET", path, "", "", with(b.cookie), func(r *http.Request) { r.Header.Set("X-Test", "x") })
			}
			if method == "GET" {
				return b.w.send(b.w.admin, "GET", path, "", "", with(b.cookie))
			}
			return b.post(path, url.Values{})
		}
		if path == "/events" {
			if a := send(nobody); a.status != 401 {
				t.Errorf("nobody listens: %d", a.status)
			}
			if a := send(none); a.status != 403 || strings.Contains(none.get("/").body, "sse-connect") {
				t.Errorf("who has no role listens: %d", a.status)
			}
			continue
		}
		if p.needs == "open" {
			continue
		}
		if a := send(nobody); !strings.Contains(a.body, `action="/login"`) || a.status != 401 && path != "/" || strings.Contains(a.body, q.ApprovalID) && method == "POST" {
			t.Errorf("%s without a sign-in: %d", p.pattern, a.status)
		} else {
			checkPage(t, p.pattern, a)
		}
		if path == "/logout/everywhere" { // of nobody's whose sign-in is needed below
			leaver := w.browser("leaver", identity.Viewer)
			if a := leaver.post(path, nil, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }); a.status != 403 {
				t.Errorf("another site signs out: %d", a.status)
			}
			if a := send(leaver); a.status != 303 || leaver.get("/approvals").status != 401 {
				t.Errorf("%s: %d", path, a.status)
			}
			continue
		}
		if a := send(none); p.needs != "any" && a.status != 403 {
			t.Errorf("%s without a role: %d", p.pattern, a.status)
		}
		for role, b := range people {
			a := send(b)
			allowed := p.needs == "any" || role == identity.Admin || slices.Contains(strings.Fields(p.needs), string(role))
			switch {
			case allowed && (a.status == 401 || a.status == 403 || a.status >= 500):
				t.Errorf("%s as %s: %d %s", p.pattern, role, a.status, a.body)
			case !allowed && (a.status != 403 || !strings.Contains(a.body, "needs the role "+strings.Join(strings.Fields(p.needs), " or "))):
				t.Errorf("%s as %s: %d, or it does not say what is missing", p.pattern, role, a.status)
			}
			if a.status != 303 {
				checkPage(t, p.pattern, a)
			}
		}
		if method == "POST" {
			for name, header := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
				if a := people[identity.Admin].post(path, url.Values{"reason": {"x"}}, func(r *http.Request) { r.Header.Set(name, header) }); a.status != 403 {
					t.Errorf("%s from another site (%s): %d", p.pattern, name, a.status)
				}
			}
		}
	}
	if w.g.Standing().KillStatus().Global.Active || w.g.Standing().KillStatus().Agents["planner"].Active {
		t.Error("an empty form, or one of another site, pulled a switch")
	}
}

// TestAnswers answers each way with forms alone.
func TestAnswers(t *testing.T) {
	w := newWorld(t)
	c, _ := w.open("dora")
	carol := w.browser("carol", identity.Approver)
	ask := func(u string) *client.Approval { t.Helper(); return w.ask(c, client.Own, "comm_exec", u) }
	now := func(q *client.Approval) *client.Approval {
		t.Helper()
		a, err := w.root().Approval(t.Context(), q.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	digest := func(q *client.Approval) string {
		t.Helper()
		d := checkPage(t, "digest", carol.get("/approvals/"+q.ApprovalID)).inputs["digest"]
		if d != q.Digest {
			t.Errorf("the page has the digest %q of %q", d, q.Digest)
		}
		return d
	}
	first, second := ask("https://docs.example/1"), ask("https://else.example/2")
	carols, _ := w.open("carol")
	w.ask(carols, client.Own, "comm_exec", "https://own.example/") // which she is not led to
	a := carol.post("/approvals/"+first.ApprovalID+"/approve", url.Values{"digest": {digest(first)}, "comment": {"go on"}})
	if a.status != 303 || a.header.Get("Location") != "/approvals?done="+first.ApprovalID { // not under the next one's button: a double click presses it
		t.Errorf("approve: %d %s", a.status, a.header.Get("Location"))
	}
	if q := now(first); q.State != "approved" || q.Votes[0].Person != "carol" || q.Votes[0].Comment != "go on" {
		t.Errorf("approved: %+v", q)
	}
	if next := carol.get(a.header.Get("Location")); !strings.Contains(checkPage(t, "next", next).text, "You approved Run the command") || !strings.Contains(next.body, `href="/approvals/`+second.ApprovalID+`" data-row autofocus`) ||
		strings.Count(next.body, "autofocus") != 1 || strings.Contains(next.body, `id="approve"`) {
		t.Errorf("the next page does not say what was done, or does not lead to the next request: %s", next.body)
	}
	if strings.Contains(carol.get("/approvals").body, "autofocus") {
		t.Error("the queue by itself moves the focus")
	}
	// Stop what was approved; a reason is needed, and what was typed stays.
	if a := carol.post("/approvals/"+first.ApprovalID+"/reject", url.Values{"digest": {digest(first)}, "reason": {"  "}}); a.status != 400 || !strings.Contains(a.body, `role="alert"`) || !strings.Contains(a.body, "Stop it") {
		t.Errorf("reject without a reason: %d", a.status)
	}
	if a := carol.post("/approvals/"+first.ApprovalID+"/reject", url.Values{"digest": {digest(first)}, "reason": {strings.Repeat("long ", 500)}}); a.status != 400 || !strings.Contains(a.body, "long long") {
		t.Errorf("what was typed is gone: %d", a.status)
	}
	if a := carol.post("/approvals/"+first.ApprovalID+"/reject", url.Values{"digest": {digest(first)}, "reason": {"on second thought"}}); a.status != 303 {
		t.Errorf("reject: %d", a.status)
	}
	if q := now(first); q.State != "rejected" || q.Reason != "on second thought" {
		t.Errorf("rejected: %+v", q)
	}
	// Put off.
	for until, status := range map[string]int{"nonsense": 400, "-10m": 400, "10m0s": 400 /* past the expiry of a minute */, "": 303} {
		if a := carol.post("/approvals/"+second.ApprovalID+"/defer", url.Values{"digest": {second.Digest}, "until": {until}}); a.status != status {
			t.Errorf("defer %q: %d", until, a.status)
		}
	}
	if q := now(second); q.State != "deferred" {
		t.Errorf("deferred: %+v", q)
	}
	if queue := checkPage(t, "queue", carol.get("/approvals?done="+second.ApprovalID)); !strings.Contains(queue.text, "Postponed") || !strings.Contains(queue.text, "You postponed") || !strings.Contains(queue.ids["queue"], "for carol") {
		t.Errorf("the queue: %s", queue.text)
	}
	// Change.
	at := "/approvals/" + second.ApprovalID + "/modify"
	if p := checkPage(t, "modify", carol.get(at)); !strings.Contains(p.ids["arguments"], `"url": "https://else.example/2"`) || p.inputs["digest"] != second.Digest {
		t.Errorf("modify: %+v", p)
	}
	changed := func(tweak func(url.Values)) answer {
		t.Helper()
		v := url.Values{"digest": {second.Digest}, "arguments": {"{\r\n  \"url\": \"https://else.example/3\"\r\n}"}, "reason": {"the third"}}
		tweak(v)
		return carol.post(at, v)
	}
	for name, bad := range map[string]func(url.Values){
		"no JSON":     func(v url.Values) { v.Set("arguments", "{nonsense") },
		"a key twice": func(v url.Values) { v.Set("arguments", `{"url":"https://a.example/","url":"https://b.example/"}`) },
		"the same":    func(v url.Values) { v.Set("arguments", `{"url":"https://else.example/2"}`) },
		"no reason":   func(v url.Values) { v.Set("reason", "") },
	} {
		if a := changed(bad); a.status != 400 || !strings.Contains(a.body, `role="alert"`) || !strings.Contains(a.body, `id="arguments"`) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	for name, other := range map[string]string{"another digest": first.Digest, "no digest": ""} {
		if a := changed(func(v url.Values) { v.Set("digest", other) }); a.status != 409 || now(second).State != "deferred" {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	a = changed(func(url.Values) {})
	replaced := now(second)
	if a.status != 303 || replaced.State != "superseded" || a.header.Get("Location") == "/approvals/"+second.ApprovalID {
		t.Fatalf("modify: %d %s %s", a.status, a.header.Get("Location"), a.body)
	}
	p := checkPage(t, "changed", carol.get(a.header.Get("Location")))
	if !strings.Contains(p.text, "What carol changed") || !strings.Contains(p.text, `−   "url": "https://else.example/2"`) || !strings.Contains(p.text, `+   "url": "https://else.example/3"`) || !strings.Contains(p.text, "the third") {
		t.Errorf("the difference: %s", p.text)
	}
	if p := carol.get("/approvals/" + second.ApprovalID); !strings.Contains(p.body, a.header.Get("Location")) {
		t.Error("what was replaced does not lead to what replaced it")
	}
}

// TestLateAnswers: an answer to something else than what was shown, or to what was decided meanwhile, changes nothing and says so.
func TestLateAnswers(t *testing.T) {
	w := newWorld(t)
	c, _ := w.open("dora")
	carol, erin := w.browser("carol", identity.Approver), w.browser("erin", identity.Approver)
	q := w.ask(c, client.Own, "comm_exec", "https://docs.example/1")
	at := "/approvals/" + q.ApprovalID
	state := func(id string) string {
		t.Helper()
		a, err := w.root().Approval(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return a.State
	}
	for _, act := range []string{"approve", "reject", "defer"} {
		for name, v := range map[string]url.Values{"another digest": {"digest": {strings.Repeat("0", 64)}, "reason": {"no"}}, "no digest": {"reason": {"no"}}} {
			if a := carol.post(at+"/"+act, v); a.status != 409 || !strings.Contains(a.body, "Your answer was not taken") || state(q.ApprovalID) != "pending" {
				t.Errorf("%s with %s: %d", act, name, a.status)
			}
		}
		twice := "digest=" + q.Digest + "&digest=" + q.Digest + "&reason=no"
		if a := w.send(w.admin, "POST", at+"/"+act, "", twice, form, with(carol.cookie)); a.status != 400 || state(q.ApprovalID) != "pending" {
			t.Errorf("%s with the digest twice: %d", act, a.status)
		}
	}
	yes := url.Values{"digest": {q.Digest}}
	if a := carol.post(at+"/approve", yes); a.status != 303 {
		t.Fatalf("approve: %d", a.status)
	}
	for who, b := range map[string]browser{"the same": carol, "another": erin} {
		if a := b.post(at+"/approve", yes); a.status != 409 || !strings.Contains(a.body, "Your answer was not taken") || !strings.Contains(a.body, "carol") {
			t.Errorf("%s person presses approve too: %d %s", who, a.status, a.body)
		}
	}
	if a := w.send(w.admin, "GET", at+"?part=state", "", "", with(erin.cookie)); a.status != 200 || !strings.Contains(a.body, `id="state"`) || !strings.Contains(a.body, `hx-swap-oob`) || strings.Contains(a.body, "<main") {
		t.Errorf("the part: %d %s", a.status, a.body)
	}
	// One of two.
	two := w.ask(c, client.Own, "comm_wire", "https://bank.example/1")
	if a := carol.post("/approvals/"+two.ApprovalID+"/approve", url.Values{"digest": {two.Digest}}); a.status != 303 || state(two.ApprovalID) != "pending" {
		t.Fatalf("one of two: %d", a.status)
	}
	for b, want := range map[browser]string{carol: "You approved it. Another person has to as well", erin: "Approve (1 of 2)"} {
		if p := checkPage(t, "one of two", b.get("/approvals/"+two.ApprovalID)); !strings.Contains(p.text, want) || !strings.Contains(p.ids["state"], "1 of 2") {
			t.Errorf("one of two: %s", p.text)
		}
	}
	if a := carol.post("/approvals/"+two.ApprovalID+"/approve", url.Values{"digest": {two.Digest}}); a.status != 409 || state(two.ApprovalID) != "pending" {
		t.Errorf("one person twice: %d", a.status)
	}
	if a := erin.post("/approvals/"+two.ApprovalID+"/approve", url.Values{"digest": {two.Digest}}); a.status != 303 || state(two.ApprovalID) != "approved" {
		t.Errorf("two of two: %d", a.status)
	}
	// It expires while it is open: the part says when to look again, and then what became of it.
	open := w.ask(c, client.Own, "comm_exec", "https://docs.example/2")
	if a := carol.get("/approvals/" + open.ApprovalID); !strings.Contains(a.body, "load delay:") {
		t.Error("nothing makes the page look again")
	}
	w.clock.forward(2 * time.Minute)
	if a := carol.post("/approvals/"+open.ApprovalID+"/approve", url.Values{"digest": {open.Digest}}); a.status != 403 || !strings.Contains(a.body, "expired") || strings.Contains(a.body, "load delay:") || strings.Contains(a.body, `id="approve"`) {
		t.Errorf("approve what expired: %d %s", a.status, a.body)
	}
	// Who asked does not see how to answer.
	dora := w.browser("dora", identity.Approver)
	own := w.ask(c, client.Own, "comm_exec", "https://docs.example/3")
	if a := dora.get("/approvals/" + own.ApprovalID); strings.Contains(a.body, `id="approve"`) || !strings.Contains(a.body, "You asked for this") {
		t.Error("who asked is shown the form")
	}
	if a := dora.post("/approvals/"+own.ApprovalID+"/approve", url.Values{"digest": {own.Digest}}); a.status != 403 || state(own.ApprovalID) != "pending" {
		t.Errorf("who asked approves: %d", a.status)
	}
	if a := carol.get("/approvals/appr_nope"); a.status != 404 {
		t.Errorf("none such: %d", a.status)
	}
}

// asking makes a world in which slack_post takes a person, with any arguments.
func asking(t *testing.T, mayHide ...string) *world {
	was := classes["slack.post"]
	high := was
	high.RiskFloor, high.AllowInvisible = policy.High, mayHide
	classes["slack.post"] = high
	t.Cleanup(func() { classes["slack.post"] = was })
	return newWorld(t)
}

func (w *world) askRaw(c *client.Client, arguments any) string {
	w.t.Helper()
	raw, err := json.Marshal(arguments)
	if err != nil {
		w.t.Fatal(err)
	}
	a, err := c.Call(w.t.Context(), client.Own, "slack_post", raw)
	if err != nil || a.Verdict.ApprovalID == nil {
		w.t.Fatalf("ask: %+v %v", a, err)
	}
	return *a.Verdict.ApprovalID
}

// TestHostileArguments: whatever an argument holds is shown whole, inert and visible.
func TestHostileArguments(t *testing.T) {
	all := map[string]struct {
		value string
		shown []string
	}{
		"markup":     {`</pre><script>alert(1)</script><img src=x onerror=alert(1)>`, []string{`</pre><script>alert(1)</script><img src=x onerror=alert(1)>`}},
		"quotes":     {`"' onmouseover="alert(1)" x='`, []string{`\"' onmouseover=\"alert(1)\" x='`}},
		"template":   {`{{.Digest}}{{template "layout" .}}`, []string{`{{.Digest}}`}},
		"bidi":       {"invoice\u202egpj.exe\u2066x\u2069", []string{`invoice\u202egpj.exe\u2066x\u2069`}},
		"written":    {`invoice\u202egpj.exe`, []string{`invoice\\u202egpj.exe`}},
		"ANSI":       {"\x1b[2J\x1b[31mred\x07\x9b31m", []string{`\x1b[2J\x1b[31mred\x07`}},
		"spaces":     {"safe" + strings.Repeat(" ", 10_000) + "rm -rf", []string{"safe[10,000 spaces]rm -rf"}},
		"invisible":  {"a\u200b\u2060\ufeff\u00ad\u3164\U000e0041b", []string{`a\u200b\u2060\ufeff`, `\u3164\U000e0041b`}},
		"lines":      {"first\n\"reason\": \"approved\"\r\nlast", []string{`first\n`, `│ \"reason\": \"approved\"\r\n`}},
		"combining":  {"o" + strings.Repeat("\u0301", 40), []string{strings.Repeat(`\u0301`, 30)}},
		"long":       {strings.Repeat("QUJD", 25_000), []string{strings.Repeat("QUJD", 25_000), "(100,000 characters)"}},
		"comment":    {"--><!--", []string{"--><!--"}},
		"a fake end": {`x" (3 characters)`, []string{`x\" (3 characters)`}},
	}
	like := func(value string) string { return strings.ToValidUTF8(value[:min(40, len(value))]+"k", "\ufffd") } // the name of an argument
	mayHide := []string{"text"}
	for _, one := range all {
		mayHide = append(mayHide, like(one.value))
	}
	w := asking(t, mayHide...)
	c, _ := w.open("dora")
	carol := w.browser("carol", identity.Approver, identity.Viewer)
	for name, one := range all {
		id := w.askRaw(c, map[string]any{"text": one.value, like(one.value): 1})
		shown := func(where string, a answer) string {
			t.Helper()
			p := checkPage(t, name+" on "+where, a)
			if strings.ContainsAny(strings.ReplaceAll(p.text, "\n", ""), "\x1b\x07\r\u202e\u2066\u200b\ufeff\u3164") {
				t.Errorf("%s: something invisible stands on %s", name, where)
			}
			return p.text
		}
		one.shown = append(one.shown, "Exact arguments")
		answer := carol.get("/approvals/" + id)
		if name == "bidi" && !strings.Contains(answer.body, `invoice<mark>\u202e</mark>gpj.exe<mark>\u2066</mark>`) {
			t.Errorf("what can't be seen is not marked: %s", answer.body)
		}
		page := shown("its page", answer)
		for _, want := range one.shown {
			if !strings.Contains(page, want) {
				t.Errorf("%s: %.100q is not shown", name, want)
			}
		}
		if queue := carol.get("/approvals"); len(queue.body) > 100_000 {
			t.Errorf("%s: the queue has %d bytes", name, len(queue.body))
		} else {
			shown("the queue", queue)
		}
		shown("the similar ones", carol.get("/approvals/"+id+"/similar"))
		shown("the form", carol.get("/approvals/"+id+"/modify"))
		shown("the overview", carol.get("/"))
	}
}

// put asks a person for something that no call asked for.
func (w *world) put(like string, change func(*approval.Approval)) approval.Approval {
	w.t.Helper()
	q, err := w.g.Desk().Question(w.t.Context(), like)
	if err != nil {
		w.t.Fatal(err)
	}
	now, a := w.clock.now(), q.Approval
	a.CallDigest = fmt.Sprintf("%064d", now.UnixNano())
	change(&a)
	if a, err = approval.New(a, now, time.Minute); err != nil {
		w.t.Fatal(err)
	}
	a, err = w.store.AskPerson(w.t.Context(), desk.Ask{Session: a.Session, Agent: a.Agent, CallDigest: a.CallDigest, At: now}, func(desk.Found) (desk.Written, error) {
		return desk.Written{Question: &a, Entry: audit.Entry{Kind: audit.Decision, Action: "approval.ask", Session: a.Session}}, nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// TestHostileFields: whatever field somebody else's words stand in, they are inert and visible on every page that has them.
func TestHostileFields(t *testing.T) {
	w := newWorld(t)
	opened, err := w.client(w.agent, w.token(identity.Host, "laptop")).Open(t.Context(), client.OpenSession{AgentID: "worker", Requester: "dora", UserRequest: why.UserRequest + hostile})
	if err != nil {
		t.Fatal(err)
	}
	c := w.client(w.agent, opened.SessionToken)
	carol := w.browser("carol", identity.Approver, identity.Viewer)
	q := w.ask(c, client.Own, "comm_exec", "https://docs.example/")
	words, err := json.Marshal(map[string]string{"user_request": hostile, "expected_use": hostile, hostile: hostile})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // two that are similar
		a := w.put(q.ApprovalID, func(a *approval.Approval) {
			a.Operation, a.Agent, a.Requester, a.OpenedBy, a.DefinitionHash, a.PolicyVersion = hostile, hostile, hostile, hostile, hostile, hostile
			a.Amount, a.Consequence, a.ModifiedFrom, a.ModifiedBy, a.ModifiedReason, a.DeclarationID = hostile, hostile, q.ApprovalID, hostile, hostile, ""
			a.Justification, a.Destinations = words, []string{hostile}
			a.Evidence = []approval.Finding{{Argument: hostile, Role: hostile, Value: hostile, By: hostile, Text: hostile, Operation: hostile, CallID: hostile, Record: 3, Field: hostile}, {Confirmed: true, By: hostile, Argument: "b"}}
			a.Labels, a.Reasons = []string{hostile}, []approval.Reason{{Stage: "risk", Code: hostile, Text: hostile}, {Stage: hostile, Code: hostile, Text: hostile}}
		})
		if _, err := w.client(w.admin, w.token(identity.Person, "erin", identity.Approver)).Approve(t.Context(), a.ID, a.Digest, hostile); err != nil {
			t.Fatal(err)
		}
		b := w.put(a.ID, func(*approval.Approval) {})
		for _, path := range []string{"/", "/approvals", "/approvals?state=approved", "/approvals/" + a.ID, "/approvals/" + a.ID + "?part=state", "/approvals/" + b.ID, "/approvals/" + b.ID + "/similar", "/approvals/" + b.ID + "/modify", "/approvals?done=" + a.ID} {
			answer := carol.get(path)
			p := checkPage(t, path, answer)
			if answer.status != 200 || strings.ContainsAny(p.text, "\u202e\x1b") || strings.Contains(answer.body, "<img src=x") || strings.Contains(answer.body, "<script>") || strings.Contains(answer.body, "onerror=alert(1)>\"") {
				t.Errorf("%s: %d %s", path, answer.status, answer.body)
			}
			if path == "/approvals/"+a.ID && strings.Count(p.text, `\u202egpj.exe`) < 22 {
				t.Errorf("only %d of the words are shown", strings.Count(p.text, `\u202egpj.exe`))
			}
		}
	}
}

// TestWhatIsShown: a person sees what there is to know: who, why, by which rule, what was read since, what was decided before.
func TestWhatIsShown(t *testing.T) {
	w := newWorld(t)
	c, _ := w.open("dora")
	carol := w.browser("carol", identity.Approver)
	like := w.ask(c, client.Own, "comm_exec", "https://docs.example/1").ApprovalID
	there := func(a *approval.Approval) {
		a.Destinations = []string{`"docs.example"`}
		a.Evidence = []approval.Finding{
			{Argument: "to", Role: "destination", Value: "pay@acme.example", Text: "to is not confirmed: it is from record 3 of mail.find", Operation: "mail.find", CallID: "call_7", Record: 3, Field: "sender"},
			{Argument: "id", Role: "selector", Value: "m-7", Confirmed: true, By: "words", Text: "id is in the person's request"},
		}
	}
	before := w.put(like, there)
	if a := carol.post("/approvals/"+before.ID+"/reject", url.Values{"digest": {before.Digest}, "reason": {"not this week"}}); a.status != 303 {
		t.Fatal(a.status)
	}
	q := w.put(like, there)
	read, err := c.Call(t.Context(), client.Own, "search_email", nil)
	if err != nil || read.Verdict.Decision != "permit" {
		t.Fatalf("%+v %v", read, err)
	}
	one := carol.get("/approvals/" + q.ID)
	p := checkPage(t, "one", one)
	for id, wants := range map[string][]string{
		"state": {"HIGH", "1 approval"}, "main": {"Where each value came from", "If wrong", "dora", "worker", why.UserRequest, why.MissingKnowledge, why.ExpectedUse, "risk.operator", "host laptop", "mail.search_email", read.CallID,
			"Since this was asked the session has also read internal data", "Earlier decisions", "rejected", "not this week", q.Digest, q.CallDigest, "its own words",
			"destination", "pay@acme.example", "to is not confirmed", "record 3 of mail.find", "sender", "call_7", "no one", "m-7", "id is in the person's request", "named in the request"},
	} {
		for _, want := range wants {
			if !strings.Contains(p.ids[id], want) {
				t.Errorf("%s lacks %q", id, want)
			}
		}
	}
	if !strings.Contains(one.body, `href="/sessions/`+q.Session+`"`) {
		t.Error("an approver is not led to the session")
	}
}

// TestMustRead: who approves long arguments has to say that they read them, and the gateway's word is that of the form.
func TestMustRead(t *testing.T) {
	w := asking(t)
	c, _ := w.open("dora")
	carol := w.browser("carol", identity.Approver)
	id := w.askRaw(c, map[string]any{"text": strings.Repeat("ä", 3000)})
	q, err := w.root().Approval(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	n := fmt.Sprint(utf8.RuneCount(q.Arguments))
	if a := carol.get("/approvals/" + id); !strings.Contains(a.body, `name="read" value="`+n+`" required`) || strings.Index(a.body, `id="approve"`) < strings.Index(a.body, "</pre>") {
		t.Error("the page does not ask for it, or shows the button before the arguments")
	}
	for _, said := range []string{"", "yes", "1", "9999"} {
		if a := carol.post("/approvals/"+id+"/approve", url.Values{"digest": {q.Digest}, "read": {said}}); a.status != 400 || !strings.Contains(a.body, "read them to the end") {
			t.Errorf("said %q: %d", said, a.status)
		}
	}
	if a := carol.post("/approvals/"+id+"/similar", url.Values{"decision": {"approve"}, "take." + id: {"yes"}, "digest." + id: {q.Digest}}); a.status != 400 {
		t.Errorf("in a batch: %d", a.status)
	}
	if now, err := w.root().Approval(t.Context(), id); err != nil || now.State != "pending" {
		t.Fatalf("unread, and %+v", now)
	}
	if a := carol.post("/approvals/"+id+"/approve", url.Values{"digest": {q.Digest}, "read": {n}}); a.status != 303 {
		t.Errorf("read: %d %s", a.status, a.body)
	}
}

// TestSimilar: similar ones stand together, none is ticked beforehand, and each is answered under its own digest.
func TestSimilar(t *testing.T) {
	w := newWorld(t)
	c, _ := w.open("dora")
	carol := w.browser("carol", identity.Approver)
	asked := map[string]*client.Approval{}
	for _, n := range []string{"a", "b", "c"} {
		asked[n] = w.ask(c, client.Own, "comm_exec", "https://docs.example/"+n)
	}
	far := w.ask(c, client.Own, "comm_exec", "https://other.example/")
	at := "/approvals/" + asked["a"].ApprovalID + "/similar"
	if a := carol.get("/approvals"); !strings.Contains(a.body, "3 similar: look at them together") {
		t.Error("they do not stand together")
	}
	p := checkPage(t, "similar", carol.get(at))
	take := url.Values{"decision": {"approve"}, "reason": {"fine"}}
	for n, q := range asked {
		if p.inputs["digest."+q.ApprovalID] != q.Digest || !strings.Contains(p.text, "https://docs.example/"+n) {
			t.Errorf("%s is not shown", n)
		}
		take.Set("digest."+q.ApprovalID, q.Digest)
	}
	if strings.Contains(p.text, "other.example") {
		t.Error("another one stands with them")
	}
	with := func(change func(url.Values)) url.Values { v := maps.Clone(take); change(v); return v }
	if a := carol.post(at, take); !strings.Contains(a.body, "None is ticked") {
		t.Errorf("none ticked: %d", a.status)
	}
	for name, v := range map[string]url.Values{
		"none ticked": take,
		"another":     with(func(v url.Values) { v.Set("take."+far.ApprovalID, "yes"); v.Set("digest."+far.ApprovalID, far.Digest) }),
		"no decision": with(func(v url.Values) { v.Set("take."+asked["a"].ApprovalID, "yes"); v.Del("decision") }),
		"no reason": with(func(v url.Values) {
			v.Set("take."+asked["a"].ApprovalID, "yes")
			v.Set("decision", "reject")
			v.Set("reason", " ")
		}),
	} {
		if a := carol.post(at, v); a.status != 400 && a.status != 409 || !strings.Contains(a.body, `role="alert"`) {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	take.Set("take."+asked["a"].ApprovalID, "yes")
	take.Set("take."+asked["b"].ApprovalID, "yes")
	take.Set("digest."+asked["b"].ApprovalID, asked["a"].Digest) // not what was shown of it
	a := carol.post(at, take)
	if a.status != 200 || !strings.Contains(a.body, "not taken") || strings.Contains(a.body, `name="decision"`) || !regexp.MustCompile(`<a href="/approvals/[^"]*/similar" autofocus>`).MatchString(a.body) {
		t.Errorf("batch: %d %s", a.status, a.body)
	}
	for n, want := range map[string]string{"a": "approved", "b": "pending", "c": "pending"} {
		if q, err := w.root().Approval(t.Context(), asked[n].ApprovalID); err != nil || q.State != want {
			t.Errorf("%s is %s", n, q.State)
		}
	}
}

// TestSilence: the page says when silence permits, looks again by then, and stops it also afterwards.
func TestSilence(t *testing.T) {
	w := newWorld(t)
	c, _ := w.open("dora")
	carol := w.browser("carol", identity.Approver)
	// A call of risk MEDIUM is held until its time has come, so the question is put to the store as it would be asked.
	asked := w.put(w.ask(c, client.Own, "comm_exec", "https://docs.example/").ApprovalID, func(a *approval.Approval) {
		a.Risk, a.SilenceAt = string(policy.Medium), w.clock.now().Add(10*time.Second)
	})
	at := "/approvals/" + asked.ID
	a := carol.get(at)
	p := checkPage(t, "medium", a)
	if !strings.Contains(p.ids["state"], "unless stopped") || !regexp.MustCompile(`load delay:(\d|10)s`).MatchString(a.body) || !strings.Contains(carol.get("/approvals").body, "unless stopped") {
		t.Errorf("pending: %s", p.ids["state"])
	}
	w.clock.forward(15 * time.Second)
	if p := checkPage(t, "silent", carol.get(at)); !strings.Contains(p.ids["state"], "By silence") || strings.Contains(p.ids["answer"], "Remind me") || !strings.Contains(p.ids["answer"], "Stop it") {
		t.Errorf("after its time: %s %s", p.ids["state"], p.ids["answer"])
	}
	if a := carol.post(at+"/reject", url.Values{"digest": {asked.Digest}, "reason": {"not that"}}); a.status != 303 {
		t.Errorf("stop: %d %s", a.status, a.body)
	}
	if p := checkPage(t, "stopped", carol.get(at)); !strings.Contains(p.ids["state"], "not that") {
		t.Errorf("stopped: %s", p.ids["state"])
	}
}

// TestSwitchOnThePage: the switch needs a reason, and acts from memory.
func TestSwitchOnThePage(t *testing.T) {
	w := newWorld(t)
	op := w.browser("olga", identity.Operator)
	if a := op.post("/kill", url.Values{"reason": {" "}}); a.status != 400 || w.g.Standing().KillStatus().Global.Active {
		t.Errorf("without a reason: %d", a.status)
	}
	w.store.mu.Lock()
	w.store.block = make(chan struct{})
	w.store.mu.Unlock()
	if a := op.post("/kill", url.Values{"reason": {"<b>odd</b>"}}); a.status != 303 || !w.g.Standing().KillStatus().Global.Active || w.g.Standing().KillStatus().Global.By != "person:olga" {
		t.Errorf("kill: %d", a.status)
	}
	w.store.mu.Lock()
	close(w.store.block)
	w.store.block = nil
	w.store.mu.Unlock()
	if p := checkPage(t, "killed", op.get("/")); !strings.Contains(p.text, "All agents are stopped") || !strings.Contains(p.text, "<b>odd</b>") {
		t.Error("the page does not say that all are stopped")
	}
	if a := op.post("/unkill", url.Values{"reason": {"found it"}}); a.status != 303 || w.g.Standing().KillStatus().Global.Active {
		t.Errorf("unkill: %d", a.status)
	}
}

// TestSignInLinks: a link signs in once, by a press, within its time, as its token's person.
func TestSignInLinks(t *testing.T) {
	w := newWorld(t)
	token := w.token(identity.Person, "carol", identity.Approver)
	link := func() string {
		t.Helper()
		var l struct {
			URL     string
			Expires time.Time
		}
		a := w.send(w.admin, "POST", "/v1/sign-in-links", token, "")
		if err := json.Unmarshal([]byte(a.body), &l); err != nil || a.status != 201 || !strings.HasPrefix(l.URL, "/login/link/") || l.Expires.Before(w.clock.now()) || strings.Contains(l.URL, token) {
			t.Fatalf("link: %d %s", a.status, a.body)
		}
		return l.URL
	}
	use := func(path string) (answer, *http.Cookie) {
		t.Helper()
		a := w.send(w.admin, "POST", path, "", "", form)
		for _, c := range (&http.Response{Header: a.header}).Cookies() {
			return a, c
		}
		return a, nil
	}
	path := link()
	for range 3 { // previews use nothing up
		a := w.send(w.admin, "GET", path, "", "")
		checkPage(t, "link", a)
		if a.status != 200 || !strings.Contains(a.body, "Sign in as carol") || a.header.Get("Set-Cookie") != "" {
			t.Errorf("the link's page: %d %s", a.status, a.body)
		}
	}
	if a := w.send(w.admin, "POST", path, "", "", form, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); a.status != 403 {
		t.Errorf("pressed by another site: %d", a.status)
	}
	a, c := use(path)
	if a.status != 303 || c == nil || !strings.Contains(w.send(w.admin, "GET", "/", "", "", with(c)).body, "carol") {
		t.Fatalf("use: %d", a.status)
	}
	dead := func(why, path string) {
		t.Helper()
		for _, method := range []string{"POST", "GET"} {
			if a := w.send(w.admin, method, path, "", "", form); a.status != http.StatusGone || a.header.Get("Set-Cookie") != "" || !strings.Contains(a.body, `action="/login"`) {
				t.Errorf("%s, %s: %d", why, method, a.status)
			}
		}
	}
	dead("used", path)
	dead("made up", "/login/link/AAAAAAAAAAAAAAAAAAAAAAAAAA")
	old := link()
	w.clock.forward(11 * time.Minute)
	dead("too old", old)
	var all []string
	for range 7 {
		all = append(all, link())
		w.clock.forward(time.Second)
	}
	dead("pushed out", all[0])
	dead("pushed out too", all[1])
	if a := w.send(w.admin, "POST", "/v1/sign-in-links", "", "", with(c)); a.status != 401 {
		t.Errorf("a link made with a cookie: %d", a.status)
	}
	for _, tok := range w.g.Standing().ListTokens() {
		if tok.Subject.ID == "carol" {
			if err := w.g.Standing().RevokeToken(t.Context(), tok.ID, "test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a, c := use(all[6]); a.status != 401 || c != nil {
		t.Errorf("of a revoked token: %d", a.status)
	}
	if a := w.send(w.admin, "GET", "/", "", "", with(c)); strings.Contains(a.body, "Sign out") {
		t.Error("a sign-in by link outlives its token")
	}
}

// TestComingBack: who comes without the cookie from another site's link is sent to the same page from here; after a sign-in people are
// where they wanted to go, and nowhere else.
func TestComingBack(t *testing.T) {
	w := newWorld(t)
	cross := func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
	}
	a := w.send(w.admin, "GET", "/approvals?state=approved", "", "", cross)
	checkPage(t, "again", a)
	if a.status != 200 || !strings.Contains(a.body, `content="0; url=/approvals?state=approved"`) {
		t.Errorf("from another site: %d %s", a.status, a.body)
	}
	a = w.send(w.admin, "GET", "/approvals?state=approved", "", "", func(r *http.Request) { r.Header.Set("HX-Request", "true") })
	if a.status != 401 || a.header.Get("HX-Refresh") != "true" {
		t.Errorf("a part without a sign-in: %d %v", a.status, a.header)
	}
	token := w.token(identity.Person, "carol", identity.Viewer)
	for next, want := range map[string]string{
		"/approvals?state=approved": "/approvals?state=approved", "": "/", "//evil.example/": "/", "https://evil.example/": "/", `/\evil.example`: "/", "/\t/evil.example": "/", "javascript:alert(1)": "/", "/" + strings.Repeat("x", 2000): "/",
	} {
		a := w.send(w.admin, "POST", "/login", "", url.Values{"token": {token}, "next": {next}}.Encode(), form)
		if a.status != 303 || a.header.Get("Location") != want {
			t.Errorf("%q leads to %q", next, a.header.Get("Location"))
		}
	}
}

// TestStatic: the files of the pages are there under the names that pages use, and may be kept.
func TestStatic(t *testing.T) {
	w := newWorld(t)
	body := w.browser("carol", identity.Viewer).get("/").body
	n := 0
	for _, part := range strings.Split(body, `"`) {
		if !strings.HasPrefix(part, "/static/") {
			continue
		}
		n++
		a := w.send(w.admin, "GET", part, "", "")
		if a.status != 200 || !strings.Contains(a.header.Get("Cache-Control"), "immutable") || len(a.body) == 0 || strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %v", part, a.status, a.header)
		}
	}
	if n < 5 {
		t.Errorf("only %d files", n)
	}
	for _, path := range []string{"/static/htmx.js", "/static/nope.js", "/static/console.css"} {
		if a := w.send(w.admin, "GET", path, "", ""); a.status != 404 || strings.Contains(a.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// TestPageEvents: a page is told that something changed and nothing more, and the stream ends with the sign-in.
func TestPageEvents(t *testing.T) {
	w := newWorld(t)
	carol := w.browser("carol", identity.Viewer)
	req, err := http.NewRequestWithContext(t.Context(), "GET", w.admin.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(carol.cookie)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	until := func(want string) (seen string) {
		t.Helper()
		for lines.Scan() {
			seen += lines.Text() + "\n"
			if lines.Text() == want {
				return seen
			}
		}
		t.Errorf("the stream ended before %q: %s", want, seen)
		return seen
	}
	until("event: all")
	c, _ := w.open("dora")
	q := w.ask(c, client.Own, "comm_exec", "https://docs.example/secret-word")
	if seen := until("event: approval:" + q.ApprovalID); strings.Contains(seen, "secret-word") || !strings.Contains(seen, "event: approval\n") {
		t.Errorf("told: %s", seen)
	}
	w.send(w.admin, "POST", "/logout", "", "", with(carol.cookie))
	w.ask(c, client.Own, "comm_exec", "https://docs.example/2")
	rest := ""
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	if strings.Contains(rest, "event: approval") || !strings.Contains(rest, "event: all") {
		t.Errorf("after the sign-out: %s", rest)
	}
}
