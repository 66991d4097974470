package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	questions "sallyport.example/internal/desk"
	"sallyport.example/internal/session"
	"sallyport.example/internal/store"
)

// busy is a desk on which everything that pages show is there: sessions with labels and a plan, answers of every kind, a tool that changed,
// agents that are stopped and put aside.
func busy(t *testing.T, words string) (d *desk, paths []string) {
	t.Helper()
	bank, mail, bankURL, mailURL := newServers(t)
	strange := &scripted{name: words, tools: func(int) string {
		var defs []string
		for _, name := range []string{"note", "other", "waits", words, "a b"} {
			defs = append(defs, fmt.Sprintf(`{"name":%s,"title":%s,"description":%s,"inputSchema":{"type":"object","description":%s}}`, quote(name), quote(words), quote(words), quote(words)))
		}
		return "[" + strings.Join(defs, ",") + "]"
	}, answer: says(words)}
	config := strings.Replace(deskConfig(bankURL, mailURL, "trust_tiers: {careful: {ask_from: LOW}}\n"), "upstreams: {", fmt.Sprintf("upstreams: {strange: {url: %q}, gone: {url: %q}, ", strange.url(t), "http://127.0.0.1:1/mcp"), 1)
	config = strings.Replace(config, "operations:\n", "unlisted_operations: ask\noperations:\n  strange.note: {sensitivity: none, action: delete_data, args: {to: destination}, allow_invisible: [to]}\n  strange.waits: {sensitivity: none, level: 1, id_kind: note, args: {id: selector}, allow_invisible: [id]}\n", 1)
	config = strings.Replace(config, `["<b>key</b>"]`, "["+quote(words)+"]", 1)
	config += "comm: {allowed_domains: [127.0.0.1], protocols: [http]}\n"
	d = &desk{world: start(t, config, declaration("tester"), declare("planner", "operator", "planning", []string{"*"}, []string{"*"}),
		declaration("careful")+"trustTier: careful\n", declaration("stopped"), declaration("aside")), bank: bank, mail: mail}
	d.offered(3)
	ctx := t.Context()
	tools, err := d.root.Tools(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools { // a person has let three of the strange tools in; the others wait to be read
		if slices.Contains([]string{"strange.note", "strange.other", "strange.waits"}, tool.Operation) && tool.PendingHash != "" {
			if _, err := d.root.AcceptTool(ctx, tool.Operation, tool.PendingHash); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask := func(token, tool string, arguments any) string {
		t.Helper()
		r := must(t, d.connect(token, revision0728, nil), tool, arguments)
		if r.verdict == nil || r.verdict.ApprovalID == nil {
			t.Fatalf("%s was not asked about: %+v", tool, r)
		}
		return *r.verdict.ApprovalID
	}
	open := func(agent string) (id, token string) {
		t.Helper()
		s, err := d.root.StartSession(ctx, client.OpenSession{AgentID: agent, UserRequest: "Pay what is due. " + words, Requester: "vera"})
		if err != nil {
			t.Fatal(err)
		}
		return s.SessionID, s.SessionToken
	}
	people := d.client(d.admin, d.tokenOf("ann", "approver"))
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	one := func(id string) *client.Approval {
		t.Helper()
		a, err := people.Approval(ctx, id)
		fatal(err)
		return a
	}
	transfer := func(amount int) map[string]any {
		return map[string]any{"payee": "DE02 1203 0000 0000 2020 51", "amount": amount, "subject": words, words: true}
	}

	id, token := open("tester")
	must(t, d.connect(token, revision0728, nil), "mail_search", map[string]any{"q": "offer"})
	rejected := one(ask(token, "bank_transfer", transfer(1)))
	_, err = people.Reject(ctx, rejected.ApprovalID, rejected.Digest, "No. "+words)
	fatal(err)
	voted := one(ask(token, "bank_transfer", transfer(20000)))
	_, err = people.Approve(ctx, voted.ApprovalID, voted.Digest, "Yes. "+words)
	fatal(err)
	changed := one(ask(token, "bank_transfer", transfer(2)))
	modified, err := people.Modify(ctx, changed.ApprovalID, changed.Digest, json.RawMessage(`{"payee":"DE02 1203 0000 0000 2020 51","amount":3,"subject":`+quote(words+" changed")+`}`), "Less. "+words)
	fatal(err)
	deferred := one(ask(token, "bank_transfer", transfer(4)))
	_, err = people.Defer(ctx, deferred.ApprovalID, deferred.Digest, time.Time{})
	fatal(err)
	pending := ask(token, "bank_transfer", transfer(5))
	ask(token, "bank_transfer", transfer(6))
	note := ask(token, "strange_note", map[string]any{"to": words, "also to": "billing@аcme.example xn--pple-43d.com"})
	must(t, d.connect(token, revision0728, nil), "strange_other", map[string]any{}) // it has no label, so the page of labels proposes some
	stopped := ask(token, "mail_send", map[string]any{"to": words + " of others", "body": words})

	labelled, err := d.root.StartSession(ctx, client.OpenSession{AgentID: "tester", UserRequest: "Keep a note. " + words, Requester: "vera", Labels: []string{"internal"}})
	fatal(err)
	must(t, d.connect(labelled.SessionToken, revision0728, nil), "strange_waits", map[string]any{"id": words})

	planned, plannedToken := open("planner")
	_, err = d.client(d.agent, plannedToken).SubmitPlan(ctx, client.Own, []client.PlanStep{{Tool: "mail_search", Justification: "To know. " + words}, {Tool: "bank_transfer", Justification: words}})
	fatal(err)

	careful, carefulToken := open("careful")
	plain := strings.Map(func(r rune) rune { // a declaration may have no others
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, words)
	declared, err := d.client(d.agent, carefulToken).Declare(ctx, client.Own, client.NewDeclaration{
		Operation: "comm.fetch", Parameters: json.RawMessage(`{"url":"http://127.0.0.1:1/price"}`),
		Justification: client.Justification{UserRequest: "Pay what is due. " + plain, MissingKnowledge: "the current list price of product X " + plain, ExpectedUse: "to quote the price with its source " + plain},
	})
	fatal(err)
	if declared.ApprovalID == "" {
		t.Fatalf("nobody was asked about the declaration: %+v", declared)
	}

	asked, err := d.client(d.agent, carefulToken).SubmitPlan(ctx, client.Own, []client.PlanStep{{Tool: "strange_other", Justification: "To know. " + words}})
	fatal(err)
	if asked.State != "pending" {
		t.Fatalf("nobody is asked about the plan: %+v", asked)
	}

	_, err = d.root.Kill(ctx, "stopped", "It misbehaves. "+words)
	fatal(err)
	_, err = d.root.Quarantine(ctx, "aside", "It is looked at. "+words)
	fatal(err)

	paths = []string{"/", "/approvals"}
	for _, state := range []approval.State{approval.Rejected, approval.Deferred, approval.Spent} {
		paths = append(paths, "/approvals?state="+string(state))
	}
	for _, approval := range []string{pending, rejected.ApprovalID, voted.ApprovalID, modified.ApprovalID, deferred.ApprovalID, note, stopped, declared.ApprovalID} {
		paths = append(paths, "/approvals/"+approval)
	}
	paths = append(paths, "/approvals/"+pending+"/modify", "/approvals/"+pending+"/similar", "/sessions", "/sessions/"+id, "/sessions/"+planned, "/sessions/"+careful,
		"/tools", "/tools/unread", "/tools/labels", "/tools/rules", "/tools/stored", "/tools/bank.transfer", "/tools/strange.note", "/agents", "/agents/tester", "/agents/stopped", "/agents/aside", "/models", "/security", "/runs", "/knowledge", "/audit", "/audit/3", "/audit/screening")
	return d, paths
}

// name is a path as the name of a picture.
func pictureOf(path string) string {
	path = regexp.MustCompile(`(appr|sess)_\w{20}`).ReplaceAllString(path, "$1")
	return "page" + strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(path)
}

// Every page: nothing for axe to complain about, in light and dark, wide and narrow; nothing in the console; nothing wider than the screen; and
// the same page without scripts.
func TestPeoplePages(t *testing.T) {
	t.Parallel()
	d, paths := busy(t, "the usual")
	b, plain := d.ann(), d.ann()
	plain.withoutScripts()
	for _, path := range paths {
		t.Run(strings.ReplaceAll(path, "/", " "), func(t *testing.T) {
			b.t, plain.t = t, t
			b.open(d.admin + path)
			b.accessible(pictureOf(path))
			title := eval[string](b, "document.querySelector('h1').innerText")
			plain.open(d.admin + path)
			plain.see(strings.Join(strings.Fields(title), " "))
			if n := eval[int](plain, "document.querySelectorAll('main *').length"); n < 5 {
				t.Errorf("without scripts there is nothing on the page: %s", plain.text())
			}
		})
	}
	b.t, plain.t = t, t
	for _, route := range consoleRoutes(t) {
		visits := regexp.MustCompile("^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(route), "[^/]+") + `(\?|$)`).MatchString
		if !slices.ContainsFunc(paths, visits) && !lookedAtElsewhere[route] {
			t.Errorf("no test looks at the page %s", route)
		}
	}
}

// lookedAtElsewhere are the routes that are no pages, and the pages that other tests look at with what is on them.
var lookedAtElsewhere = map[string]bool{
	"/events": true, "/approvals/count": true, "/approvals/plans": true, "/audit/download": true,
	"/runs/{id}": true, "/recommendations": true, "/recommendations/{id}": true, // TestRunsInTheBrowser
	"/knowledge/{id}": true, // TestPeopleKnowledge
}

// consoleRoutes are the paths of the console's pages.
func consoleRoutes(t testing.TB) (all []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(), "internal", "console", "console.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\{"GET", "(/[^"]*)"`).FindAllStringSubmatch(string(b), -1) {
		all = append(all, strings.TrimSuffix(m[1], "{$}"))
	}
	if len(all) < 20 {
		t.Fatalf("%d routes", len(all))
	}
	return all
}

// A message that nobody gets stands on the overview of who operates, with why.
func TestPeopleMessages(t *testing.T) {
	d := newDesk(t, "notify: [{kind: webhook, url: \"https://127.0.0.1:1/x\", secret: 0123456789abcdef0123456789abcdef, on: [approval, alert]}]\n")
	b := d.ann()
	asksPeople(t, d.agentOf(revision1125, nil), "bank_transfer", pay(480))
	eventually(t, patience, "the overview says that a message did not arrive", func() bool {
		b.open(d.admin + "/")
		return strings.Contains(b.text(), "Messages that did not arrive webhook to 127.0.0.1: 1 still to be sent")
	})
}

// hostileWords are what agents, tools and people could write to run something, to hide something, or to look like something else.
var hostileWords = []string{
	`<script>window.__pwned=1</script>`,
	`"><img src=x onerror="window.__pwned=1">`,
	`'-window.__pwned=1-'`,
	`</textarea></pre></title><svg onload=window.__pwned=1>`,
	`<a hx-get="/" hx-trigger="load" hx-on::load="window.__pwned=1" href="javascript:window.__pwned=1">x</a>`,
	`{{.}} ${window.__pwned=1} <!-- -->`,
	"safe\u202egpj.exe\u202c\u2066\u200b\u00ad",
	"\x1b[2J\x1b]0;gone\x07",
	"near" + strings.Repeat(" ", 10000) + "far",
	base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x00\x7f\xff window.__pwned=1 ", 150))),
}

// Whatever words are in whatever field, they run nothing and are seen; what is asked for is shown to its last byte.
func TestPeopleHostileWords(t *testing.T) {
	words := strings.Join(hostileWords, "\n")
	d := newDesk(t, "")
	b := d.ann()
	_, token := d.open("tester")
	r := must(t, d.connect(token, revision0728, nil), "bank_transfer", map[string]any{"payee": "DE02", "amount": 480, "subject": words, "<b>key</b>": words})
	if r.verdict == nil || r.verdict.ApprovalID == nil {
		t.Fatalf("not asked: %+v", r)
	}
	b.open(d.admin + "/approvals/" + *r.verdict.ApprovalID)
	shown := eval[string](b, "document.querySelector('#exact').innerText")
	for _, want := range []string{
		`<script>window.__pwned=1</script>`, `\"><img src=x onerror=\"window.__pwned=1\">`, `</textarea></pre></title><svg onload=window.__pwned=1>`, `"<b>key</b>": `,
		`safe\u202egpj.exe\u202c\u2066\u200b\u00ad`, `\x1b[2J\x1b]0;gone\x07`, `near[10,000 spaces]far`, hostileWords[9],
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not show %.80s", want)
		}
	}
	for _, width := range []int{1280, 390} {
		b.look("light", width)
		b.shot(fmt.Sprintf("hostile-%d", width))
		if hidden := eval[bool](b, `(() => { const e = document.querySelector("#exact"); return e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight + 1 || document.documentElement.scrollWidth > document.documentElement.clientWidth })()`); hidden {
			t.Errorf("at a width of %d a part of the arguments is out of sight", width)
		}
	}
	b.look("light", 1280)
	b.approve() // not before it is said that they were read
	b.unseen("You approved")
	b.click("#read")
	b.approve()
	b.see("You approved")
}

// What hostile words there are in every other field runs nothing, on any page, and no page is wider than the screen for them.
func TestPeopleHostilePages(t *testing.T) {
	t.Parallel()
	words := strings.Join(hostileWords[:8], " ")
	d, paths := busy(t, words)
	b := d.ann()
	for _, path := range paths {
		b.open(d.admin + path)
		for _, width := range []int{1280, 390} {
			b.look("light", width)
			b.shot(fmt.Sprintf("hostile-%s-%d", pictureOf(path), width))
			if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
				widest := eval[string](b, `[...document.querySelectorAll("main *")].filter(e => (!e.closest(".wide") || e.matches(".wide")) && e.getBoundingClientRect().right > document.documentElement.clientWidth).map(e => e.outerHTML.slice(0, 100)).slice(-5).join("\n")`)
				t.Errorf("%s, %d wide: the page is %d pixels too wide: %s", path, width, over, widest)
			}
		}
		if eval[bool](b, `"__pwned" in window || document.querySelectorAll("img[src=x], svg[onload], script:not([src]), [href^='javascript:'], [hx-on\\:\\:load]").length > 0`) {
			t.Errorf("%s: words became something else: %s", path, b.text())
		}
		if strings.ContainsAny(b.text(), "\u202e\u2066\u200b\x1b\x07") {
			t.Errorf("%s: the page has characters that hide or move text", path)
		}
	}
}

// fill writes open questions into a store, as if agents had asked for them.
func (p place) fill(t *testing.T, n int) {
	t.Helper()
	if err := os.MkdirAll(p.data, 0o700); err != nil {
		t.Fatal(err)
	}
	signer, err := audit.LoadOrCreateKey(p.data)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(p.data, "signing.key"))
	if err != nil {
		t.Fatal(err)
	}
	environment := sha256.Sum256(append([]byte("sallyport environment v1\x00"), key...))
	db, err := store.Open(p.data, store.Options{Signer: signer})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	const ofSession, writers = 100, 20
	var sessions []session.Session
	for i := range (n + ofSession - 1) / ofSession {
		s := session.New(fmt.Sprint("agent-", i), session.Execution, "person:admin", time.Now())
		if err := db.OpenSession(t.Context(), s, audit.Entry{Kind: audit.Change, Action: "session.open", Agent: s.Agent, Session: s.ID, Actor: s.OpenedBy, Decision: "ok"}); err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	var writing sync.WaitGroup
	for writer := range writers {
		writing.Go(func() {
			for i := writer; i < n; i += writers {
				s, arguments := sessions[i/ofSession], fmt.Appendf(nil, `{"amount":%d,"payee":"DE02","subject":"Invoice"}`, i)
				a, err := approval.New(approval.Approval{
					CallDigest: call.HashBytes(arguments), Risk: "HIGH", Operation: "bank.transfer", DefinitionHash: "d", Arguments: arguments, Session: s.ID, Agent: s.Agent,
					OpenedBy: s.OpenedBy, Environment: hex.EncodeToString(environment[:8]), Amount: fmt.Sprint(i, " EUR"), Reasons: []approval.Reason{{Stage: "risk", Code: "risk.action", Text: "It moves money."}},
				}, time.Now(), time.Hour)
				if err == nil {
					_, err = db.AskPerson(context.Background(), questions.Ask{Session: a.Session, Agent: a.Agent, CallDigest: a.CallDigest, At: time.Now()}, func(questions.Found) (questions.Written, error) {
						return questions.Written{Question: &a, Entry: audit.Entry{
							Kind: audit.Decision, Action: "approval.ask", Agent: a.Agent, Session: a.Session, Operation: a.Operation, Actor: "rule:test", Decision: "ask",
						}}, nil
					})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
}

// With 10,000 questions in the queue the pages stay small and quick, the newest is on top, and it can be answered.
func TestPeopleTenThousand(t *testing.T) {
	t.Parallel()
	bank, _, bankURL, mailURL := newServers(t)
	p := newPlace(t, deskConfig(bankURL, mailURL, ""), declaration("tester"), declaration("other"))
	n := 10_000
	if raced || !thorough() { // the store's engine, too, is watched then, and takes thirty times as long for everything
		n = 1000
	}
	began := time.Now()
	p.fill(t, n)
	t.Logf("filled in %s", time.Since(began).Round(time.Millisecond))
	w := startAt(t, p)
	w.offered(3)
	b := w.ann()
	began = time.Now()
	b.open(w.admin + "/approvals")
	t.Logf("the queue is live after %s", time.Since(began).Round(time.Millisecond))
	b.see(fmt.Sprintf("Approvals %d waiting", n))
	b.shot("approvals-10000")
	characters := eval[string](b, `fetch("/approvals").then(r => r.text()).then(s => String(s.length))`, chromedp.EvalAwaitPromise)
	var size int
	if _, err := fmt.Sscan(characters, &size); err != nil || size > 200_000 {
		t.Errorf("the page has %s characters (%v)", characters, err)
	}
	t.Logf("the page has %d characters", size)
	if rows := eval[int](b, "document.querySelectorAll('[data-row]').length"); rows != 50 {
		t.Errorf("%d rows", rows)
	}
	_, token := w.open("other")
	call := asksPeople(t, w.connect(token, revision1125, nil), "bank_transfer", pay(480))
	b.see("by other") // by itself, on top
	b.until("it is on top", `document.querySelector("[data-row]").closest("li").innerText.includes("by other")`)
	for range 3 {
		first := eval[string](b, `document.querySelector("[data-row]").id`)
		b.click(`nav.pages a[rel=next]`)
		b.until("the next page", `document.readyState === "complete" && document.querySelector("[data-row]") && document.querySelector("[data-row]").id !== `+quote(first))
	}
	b.open(w.admin)
	b.see("Needs you")
	b.open(w.admin + "/approvals")
	b.click("[data-row]")
	b.see("1 approval ·")
	began = time.Now()
	b.approve()
	b.see("You approved Transfer")
	t.Logf("answered in %s", time.Since(began).Round(time.Millisecond))
	if r := call.came(t); r.IsError || len(bank.all()) != 1 {
		t.Errorf("%+v, transfers: %v", r, bank.all())
	}
}

// The page of a program shows the files that a yes is for, whole at the width of a telephone: a name, a size and a hash each.
func TestPeopleSeeTheFilesOfAProgram(t *testing.T) {
	needSandbox(t)
	w := start(t, people+"comm: {exec: {allow: [bash, cat]}}\noperations: {comm.exec: {risk: HIGH}}\n"+plenty, declaration("tester"))
	v := w.visit("http", "tester")
	const script = "notes/a long name of a script that nobody would give/run.sh"
	v.writeFile(t, script, "echo hello\n")
	b := newBrowser(t)
	b.signIn(w, w.tokenOf("alice", "approver"))
	for argv, want := range map[string]string{"bash": "so a yes covers the whole workspace as it is", "cat": "The files that the arguments name."} {
		g := v.ask(t, "comm_exec", map[string]any{"argv": []string{argv, script}})
		if g.verdict.ApprovalID == nil {
			t.Fatalf("%+v", g.verdict)
		}
		b.open(w.admin + "/approvals/" + *g.verdict.ApprovalID)
		for _, words := range []string{"Files of the workspace", script, "11 bytes", call.HashBytes([]byte("echo hello\n")), want} {
			b.see(words)
		}
		b.accessible("program-" + argv)
	}
}

// Each page of a request of risk HIGH has why the agent asks, or that it did not say, and what the tool does in whose words, at the width of a
// telephone. So have the terminal and the message.
func TestPeopleSeeWhyAndWhatTheToolDoes(t *testing.T) {
	t.Parallel()
	hook := newReceiver(t)
	s := newServer("mail")
	for _, name := range []string{"send", "post"} {
		s.AddTool(&mcp.Tool{Name: name, Description: "Sends mail to whoever is named.\n\n<b>Always</b> safe\u202e. " + strings.Repeat("It has sent very many mails. ", 60), InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("sent"), nil })
	}
	w := start(t, fmt.Sprintf("people: [{id: bob, roles: [approver]}]\nupstreams: {mail: {url: %q}}\nnotify: [{kind: webhook, url: %q, secret: %q, on: [approval]}]\n"+
		"operations:\n  mail.*: {risk: HIGH, sensitivity: none}\n  mail.send: {declare: required}\n", sdkServer(t, s), hook.url, hook.secret))
	w.offered(2)
	w.acceptDefinitions(anyDefinition)
	id, token := w.openFor("Tell ann@corp.example that the lathe is ready.", "dana")
	agent, b := w.client(w.agent, token), w.bob()
	for name, c := range map[string]struct{ tool, arguments, page, terminal, message string }{
		"said": {"mail_send", `{"to":"ann@corp.example","justification":{"user_request":"Tell ann@corp.example that the lathe is ready","missing_knowledge":"whether ann knows that the lathe is ready","expected_use":"ann can plan the delivery"}}`,
			"ann can plan the delivery", "  it wants it for ann can plan the delivery", "ann can plan the delivery"},
		"not said": {"mail_post", `{"to":"ann@corp.example"}`, "The agent did not say why.", "NO REASON GIVEN   the agent did not say why", "The agent did not say why."},
	} {
		asked, err := agent.Call(t.Context(), id, c.tool, json.RawMessage(c.arguments))
		if err != nil || asked.Verdict.ApprovalID == nil {
			t.Fatalf("%+v, %v", asked, err)
		}
		at := *asked.Verdict.ApprovalID
		for _, path := range []string{"/approvals", "/approvals/" + at, "/approvals/" + at + "/similar"} {
			b.open(w.admin + path)
			b.see(c.page)
			if path != "/approvals" {
				b.see("Sends mail to whoever is named. <b>Always</b> safe. It has sent")
				b.see("its server’s words")
			}
			b.accessible("why-" + name + strings.ReplaceAll(strings.TrimPrefix(path, "/approvals"), "/", "-"))
		}
		_, out, errs := cli(t, w.place, nil, "approvals", "show", at, "--data", w.place.data)
		for _, want := range []string{c.terminal, "  its server says Sends mail to whoever is named. <b>Always</b> safe. It has sent"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s%s", name, want, out, errs)
			}
		}
		for _, want := range []string{at, `"value":"` + c.message + `"`, `"value":"Sends mail to whoever is named. `} {
			eventually(t, patience, "the message comes, with "+want, func() bool { return hook.about(want) >= 1 })
		}
		bob := w.client(w.admin, w.tokenOf("bob", "approver"))
		q, err := bob.Approval(t.Context(), at)
		if err == nil {
			_, err = bob.Reject(t.Context(), at, q.Digest, "not "+name)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"title":"Rejected by bob: `, `"text":"not ` + name + `"`, `"follows":"ntf_`} {
			eventually(t, patience, "the second message comes, with "+want, func() bool { return hook.about(want) >= 1 })
		}
	}
}
