package replay

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/session"
	"sallyport.example/internal/store"
	"sallyport.example/provenance"
)

// past is a data directory with one session, written as the gateway writes it.
type past struct {
	t   *testing.T
	dir string
	db  *store.DB
	s   session.Session
	n   int
}

func newPast(t *testing.T, request string, plan *session.Plan) *past {
	t.Helper()
	p := &past{t: t, dir: gatewaytest.DataDir(t, t.TempDir())}
	var err error
	if p.db, err = store.Open(p.dir, store.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.db.Close() }) // a second Close says so
	p.s = session.New("worker", session.Execution, "host:desk", time.Now())
	p.s.UserRequest, p.s.Requester, p.s.Plan = request, "pat", plan
	p.must(p.db.OpenSession(t.Context(), p.s, audit.Entry{Kind: audit.Change, Action: "session.open", Agent: "worker", Session: p.s.ID, Decision: "ok"}))
	return p
}

func (p *past) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// body is a payload as the gateway keeps it.
func body(s string) *audit.Payload {
	b := &audit.Payload{SHA256: call.HashBytes([]byte(s)), Size: int64(len(s))}
	switch {
	case len(s) > 1<<20:
	case len(s) > 1<<10:
		b.Stored, b.Bytes, b.Key = true, []byte(s), b.SHA256
	default:
		b.Shown = json.RawMessage(s)
	}
	return b
}

func (p *past) entry(kind audit.Kind, op, args string) audit.Entry {
	e := audit.Entry{Kind: kind, Action: "call", Agent: "worker", Session: p.s.ID, Requester: "pat", Actor: "agent:worker", Door: "mcp", CallID: fmt.Sprintf("call_%d", p.n), Operation: op}
	if args != "" {
		e.Arguments = body(args)
	}
	return e
}

// ran is a call that was permitted. Change is what is different about its intent and its outcome.
func (p *past) ran(op, args, result string, labels []string, change ...func(intent, outcome *audit.Entry)) {
	p.t.Helper()
	p.n++
	in, out := p.entry(audit.Intent, op, args), p.entry(audit.Outcome, op, "")
	in.Decision, out.Decision, out.Labels = "permit", "ok", labels
	if result != "" {
		out.Result = body(result)
	}
	for _, f := range change {
		f(&in, &out)
	}
	s, err := p.db.Intent(p.t.Context(), p.s.ID, p.s.Version, in, nil)
	p.must(err)
	p.s = s
	p.s, err = p.db.Outcome(p.t.Context(), p.s.ID, out, nil, time.Millisecond)
	p.must(err)
}

func (p *past) refused(op, args, decision, stage string) {
	p.t.Helper()
	p.n++
	e := p.entry(audit.Decision, op, args)
	e.Decision, e.Stage, e.Code, e.Reason = decision, stage, stage+".denied", "no"
	p.must(p.db.Record(p.t.Context(), e))
}

// under judges the session again, as sallyport flow eval does: with the gateway down.
func (p *past) under(c Config) Past {
	p.t.Helper()
	r, err := store.OpenReadOnly(p.dir)
	p.must(err)
	defer r.Close()
	got, err := Session(p.t.Context(), r, c, p.s.ID)
	p.must(err)
	return got
}

// office is a configuration. Change is what is different about some operations.
func office(change map[string]func(*catalogue.Classification)) Config {
	return Config{Labels: []string{"internal", "pii"}, Own: func(person string) []string { return []string{person + "@corp.example"} },
		Classify: func(server, tool string) catalogue.Classification {
			var c catalogue.Classification
			switch server + "." + tool {
			case "mail.inbox":
				c = catalogue.Classification{Output: provenance.UntrustedOutput, Roles: map[string]string{"folder": "query"}, Flow: flow.Spec{Sensitivity: flow.InternalSource, Effect: flow.Read, Untrusted: true}}
			case "mail.send":
				c = catalogue.Classification{Level: 2, Output: provenance.EchoOutput, Roles: map[string]string{"to": "destination", "body": "content"}, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write, Untrusted: true}}
			case "book.lookup":
				c = catalogue.Classification{Output: provenance.TrustedOutput, Roles: map[string]string{"name": "query"}, Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}}
			case "web.search":
				c = catalogue.Classification{Output: provenance.UntrustedOutput, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Read, Untrusted: true}}
			default:
				c = catalogue.Classification{Level: 2, Output: provenance.UntrustedOutput, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write, Untrusted: true}}
			}
			if f := change[server+"."+tool]; f != nil {
				f(&c)
			}
			return c
		}}
}

func mcp(text string) string {
	b, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}})
	return string(b)
}

// rows are the calls as "then -> now", with a star where they differ.
func rows(p Past) []string {
	var out []string
	for _, c := range p.Calls {
		now := "?"
		if c.Now != nil {
			now = string(c.Now.Decision)
		}
		row := c.Operation + ": " + c.Then.Decision + " -> " + now
		if c.Changed {
			row += " *"
		}
		out = append(out, row)
	}
	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSession(t *testing.T) {
	p := newPast(t, "Tell ann@corp.example and Dora what is in my inbox", nil)
	inbox := mcp(`[{"from":"bob@out.example","text":"` + strings.Repeat("words ", 400) + `"}]`) // kept apart
	p.ran("mail.inbox", `{}`, inbox, []string{"internal", "untrusted"})
	p.ran("mail.send", `{"body":"news","to":"ann@corp.example"}`, mcp("sent"), nil)
	p.ran("book.lookup", `{"name":"Dora"}`, mcp(`{"name":"Dora","address":"dora@far.example"}`), nil)
	p.ran("mail.send", `{"body":"news","to":"dora@far.example"}`, mcp("sent"), nil)
	p.ran("mail.send", `{"body":"news","to":"pat@corp.example"}`, mcp("sent"), nil)
	p.ran("mail.send", `{"body":"news","to":"bob@out.example"}`, mcp("sent"), nil, func(in, _ *audit.Entry) {
		in.Approvers, in.Detail = []string{"alice"}, json.RawMessage(`{"approval_id":"appr_1","evidence":[{"vouched":false}]}`)
	})
	p.ran("mail.send", `{"body":"more","to":"bob@out.example"}`, mcp("sent"), nil)
	p.refused("web.search", `{"query":"bob"}`, "deny", "flow")
	p.refused("mail.drop", `{"id":"1"}`, "deny", "permit")
	p.must(p.db.Close())

	got := p.under(office(nil))
	if got.Session != p.s.ID || got.Agent != "worker" || got.Requester != "pat" || len(got.Notes) != 0 {
		t.Errorf("%+v", got)
	}
	same(t, "as it was", rows(got), []string{
		"mail.inbox: permit -> permit", "mail.send: permit -> permit", "book.lookup: permit -> permit", "mail.send: permit -> permit", "mail.send: permit -> permit",
		"mail.send: ask -> ask",
		"mail.send: permit -> permit", "web.search: deny -> deny", "mail.drop: deny -> deny",
	})
	if r := got.Calls[3].Now.Reason; !strings.Contains(r, "record 1 of book.lookup") {
		t.Errorf("the evidence is not named: %q", r)
	}
	if e := got.Calls[5].Now.Evidence; len(e) != 1 || e[0].Confirmed || !strings.Contains(e[0].Text, "record 1 of mail.inbox") {
		t.Errorf("what was kept apart was not read: %+v", e)
	}
	if got.Calls[5].Then.Approvers[0] != "alice" || got.Calls[5].Then.Outcome != "ok" {
		t.Errorf("then: %+v", got.Calls[5].Then)
	}

	same(t, "nobody says what the arguments are for", rows(p.under(office(map[string]func(*catalogue.Classification){
		"mail.send": func(c *catalogue.Classification) { c.Roles = nil },
	}))), []string{
		"mail.inbox: permit -> permit", "mail.send: permit -> deny *", "book.lookup: permit -> permit", "mail.send: permit -> deny *", "mail.send: permit -> deny *",
		"mail.send: ask -> deny *", "mail.send: permit -> deny *", "web.search: deny -> deny", "mail.drop: deny -> deny",
	})
	got = p.under(office(map[string]func(*catalogue.Classification){
		"mail.inbox": func(c *catalogue.Classification) {
			c.Output, c.Flow.Sensitivity, c.Flow.Untrusted = provenance.TrustedOutput, flow.None, false
		},
		"mail.send": func(c *catalogue.Classification) { c.Output, c.Flow.Untrusted = provenance.TrustedOutput, false },
	}))
	same(t, "the inbox is trusted", rows(got), []string{
		"mail.inbox: permit -> permit", "mail.send: permit -> permit", "book.lookup: permit -> permit", "mail.send: permit -> permit", "mail.send: permit -> permit",
		"mail.send: ask -> permit *", "mail.send: permit -> permit", "web.search: deny -> permit *",
		"mail.drop: deny -> ask", // another stage stopped it, and stops it again
	})
	if got.Changed != 2 || !strings.Contains(got.Calls[7].Note, "did not run then") {
		t.Errorf("%d changed, %+v", got.Changed, got.Calls[7])
	}
}

// What the flow rules ask about now and didn't then is marked, also where the risk had a person asked; and a tool that no entry covers is
// called unlabelled, so that what is said of it isn't taken for the word of a label.
func TestSessionAskedByFlowNow(t *testing.T) {
	p := newPast(t, "Tell ann@corp.example what is in my inbox", nil)
	asked := func(evidence string) func(in, _ *audit.Entry) {
		return func(in, _ *audit.Entry) {
			in.Approvers, in.Detail = []string{"alice"}, json.RawMessage(`{"approval_id":"appr_1","evidence":[`+evidence+`]}`)
		}
	}
	p.ran("mail.inbox", `{}`, mcp(`[{"from":"bob@out.example"}]`), []string{"internal", "untrusted"})
	p.ran("mail.send", `{"to":"bob@out.example"}`, mcp("sent"), nil, asked(`{"vouched":true}`))
	p.ran("mail.send", `{"to":"eve@out.example"}`, mcp("sent"), nil, asked(`{"vouched":false}`))
	p.ran("mail.send", `{"to":"ann@corp.example"}`, mcp("sent"), nil, asked(``))
	p.ran("mail.sweep", `{"all":"yes"}`, mcp("done"), nil)
	p.must(p.db.Close())
	known := office(nil)
	classify := known.Classify
	known.Classify = func(server, tool string) catalogue.Classification {
		c := classify(server, tool)
		c.Listed = tool != "sweep"
		return c
	}
	got := p.under(known)
	same(t, "rows", rows(got), []string{"mail.inbox: permit -> permit", "mail.send: ask -> ask *", "mail.send: ask -> ask", "mail.send: ask -> permit", "mail.sweep: permit -> deny *"})
	for i, c := range got.Calls {
		if c.Now.Unlabelled != (i == 4) || strings.HasPrefix(c.Now.Reason, "unlabelled: no entry under operations covers it") != (i == 4) {
			t.Errorf("%s: %+v", c.Operation, c.Now)
		}
	}
}

// TestSessionNotKept: what is not in the log shows nothing, and brings its labels none the less.
func TestSessionNotKept(t *testing.T) {
	p := newPast(t, "Write to Dora what Eve says", nil)
	address := `{"name":"Dora","address":"dora@far.example"`
	p.ran("book.lookup", `{"name":"Dora"}`, mcp(address+`,"notes":"`+strings.Repeat("x", 1<<20)+`"}`), nil)
	p.ran("mail.inbox", `{}`, mcp(`[]`), []string{"internal", "untrusted"})
	p.ran("mail.send", `{"to":"dora@far.example"}`, mcp("sent"), nil)
	p.ran("book.lookup", `{"name":"Dora"}`, mcp(address+`}`), nil, func(_, out *audit.Entry) { out.Result.Redacted = true })
	p.ran("mail.send", `{"to":"dora@far.example"}`, mcp("sent"), nil, func(in, _ *audit.Entry) { in.Arguments.Redacted = true })
	p.refused("mail.send", `{"to":"dora@far.example"}`, "deny", "flow")
	p.n++
	e := p.entry(audit.Decision, "mail.send", "")
	e.Decision, e.Stage, e.Arguments = "deny", "flow", &audit.Payload{SHA256: call.HashBytes(nil), Size: 5000}
	p.must(p.db.Record(t.Context(), e))
	p.ran("comm.fetch", `{"url":"https://far.example"}`, mcp("page"), []string{"untrusted"})
	got := p.under(office(nil))
	same(t, "rows", rows(got), []string{
		"book.lookup: permit -> permit", "mail.inbox: permit -> permit", "mail.send: permit -> ask *", "book.lookup: permit -> permit", "mail.send: permit -> permit",
		"mail.send: deny -> permit *", "mail.send: deny -> ?", "comm.fetch: permit -> ?",
	})
	for i, note := range map[int]string{0: "its result was not kept", 3: "secrets in its result", 4: "secrets in its arguments", 6: "its arguments were not kept", 7: "built-in operation"} {
		if !strings.Contains(got.Calls[i].Note, note) {
			t.Errorf("call %d: note %q, want %q", i, got.Calls[i].Note, note)
		}
	}
	// Trust that hangs on a shape is lost with the result.
	shaped := p.under(office(map[string]func(*catalogue.Classification){
		"book.lookup": func(c *catalogue.Classification) { c.Shape = regexp.MustCompile(`^[^<]*$`) },
		"mail.inbox": func(c *catalogue.Classification) {
			c.Output, c.Flow.Sensitivity, c.Flow.Untrusted = provenance.TrustedOutput, flow.None, false
		},
	}))
	if h := shaped.Calls[2].Now; h.Decision != provenance.Ask || h.Because[0].CallID != "call_1" {
		t.Errorf("a result that was not kept was trusted by its shape: %+v", h)
	}
}

// TestSessionLabels: labels that people and detectors gave and took.
func TestSessionLabels(t *testing.T) {
	p := newPast(t, "Look around", nil)
	search := func() { p.ran("web.search", `{"query":"a"}`, mcp("found"), nil) }
	p.ran("book.lookup", `{"name":"a"}`, mcp("555"), []string{"pii", "internal"}) // internal by the label of then
	search()
	p.must(p.db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "session.release", Session: p.s.ID, Agent: "worker", Labels: []string{"pii"}}))
	search()
	p.must(p.db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "session.definitions", Session: p.s.ID, Agent: "worker", Labels: []string{"internal"}}))
	search()
	p.must(p.db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "session.release", Session: p.s.ID, Agent: "worker", Labels: []string{"internal"}}))
	p.ran("web.search", `{"query":"a"}`, mcp("found"), nil, func(in, _ *audit.Entry) {
		in.Detail, in.Labels = json.RawMessage(`{"carries":[{"source":"elsewhere"}]}`), []string{"internal"}
	})
	p.must(p.db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "session.taint", Session: p.s.ID, Agent: "worker", Labels: []string{"lost"}}))
	p.must(p.db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "session.release", Session: p.s.ID, Agent: "worker", Labels: []string{"internal"}}))
	search()
	got := p.under(office(nil))
	same(t, "rows", rows(got), []string{
		"book.lookup: permit -> permit", "web.search: permit -> deny *", "web.search: permit -> permit", "web.search: permit -> deny *", "web.search: permit -> deny *", "web.search: permit -> deny *",
	})
	if r := got.Calls[5].Now.Reason; !strings.Contains(r, `"lost"`) {
		t.Errorf("a label that the configuration lacks: %q", r)
	}
}

// TestSessionPlan: a call that follows the sealed plan is permitted once.
func TestSessionPlan(t *testing.T) {
	plan := &session.Plan{ID: "plan_1", State: session.PlanApproved, DecidedBy: "person:alice", DecidedAt: time.Now().Add(-time.Minute), Clean: true, Done: []provenance.Done{{Step: 0, CallID: "call_2"}},
		Steps: []session.Step{{Tool: "send", Operation: "mail.send", Arguments: json.RawMessage(`{"to":"bob@out.example"}`)}}}
	p := newPast(t, "Do it", plan)
	p.ran("mail.inbox", `{}`, mcp("[]"), []string{"internal", "untrusted"})
	p.ran("mail.send", `{"to":"bob@out.example"}`, mcp("sent"), nil)
	p.ran("mail.send", `{"to":"eve@out.example"}`, mcp("sent"), nil)
	p.ran("mail.send", `{"to":"bob@out.example"}`, mcp("sent"), nil) // the step is taken
	got := p.under(office(nil))
	same(t, "rows", rows(got), []string{"mail.inbox: permit -> permit", "mail.send: permit -> permit", "mail.send: permit -> ask *", "mail.send: permit -> ask *"})
	if e := got.Calls[1].Now.Evidence; len(e) != 1 || e[0].By != provenance.ByPlan {
		t.Errorf("evidence: %+v", e)
	}
}

// TestSessionShows: what shows nothing in the gateway shows nothing here.
func TestSessionShows(t *testing.T) {
	address := mcp(`{"name":"Dora","address":"dora@far.example"}`)
	lookup := func(p *past, change ...func(in, out *audit.Entry)) {
		p.ran("book.lookup", `{"name":"Dora"}`, address, nil, change...)
	}
	send := func(p *past) { p.ran("mail.send", `{"to":"dora@far.example"}`, mcp("sent"), nil) }
	inbox := func(p *past) { p.ran("mail.inbox", `{}`, mcp("[]"), []string{"internal", "untrusted"}) }
	for _, c := range []struct {
		name   string
		do     func(p *past)
		change map[string]func(*catalogue.Classification)
		want   string // of the last call
	}{
		{"a trusted result", func(p *past) { lookup(p); inbox(p); send(p) }, nil, "mail.send: permit -> permit"},
		{"a shape that can't speak for all of it", func(p *past) {
			p.ran("book.lookup", `{"name":"Dora"}`, strings.TrimSuffix(address, "}")+`,"more":{"data":"AA=="}}`, nil)
			send(p)
		}, map[string]func(*catalogue.Classification){
			"book.lookup": func(c *catalogue.Classification) { c.Shape = regexp.MustCompile(`^[^<]*$`) },
		}, "mail.send: permit -> ask *"},
		{"an error", func(p *past) { lookup(p, func(_, out *audit.Entry) { out.Decision = "error" }); inbox(p); send(p) }, nil, "mail.send: permit -> ask *"},
		{"no result", func(p *past) {
			lookup(p, func(_, out *audit.Entry) { out.Decision, out.Result = "unknown", nil })
			inbox(p)
			send(p)
		}, nil, "mail.send: permit -> ask *"},
		{"a call that is refused now", func(p *past) { inbox(p); lookup(p); send(p) }, map[string]func(*catalogue.Classification){
			"book.lookup": func(c *catalogue.Classification) { c.Flow.Sensitivity, c.Roles = flow.External, nil },
		}, "mail.send: permit -> ask *"},
		{"what was written before", func(p *past) {
			inbox(p)
			p.ran("book.write", `{"address":"dora@far.example"}`, mcp("done"), nil)
			lookup(p)
			send(p)
		}, map[string]func(*catalogue.Classification){
			"book.write": func(c *catalogue.Classification) {
				c.Roles, c.Flow.Sensitivity = map[string]string{"address": "content"}, flow.None
			},
		}, "mail.send: permit -> ask *"},
		{"labels of a built-in operation", func(p *past) {
			p.ran("comm.query", `{}`, mcp("rows"), []string{"internal"})
			p.ran("web.search", `{"query":"a"}`, mcp("found"), nil)
		}, nil, "web.search: permit -> deny *"},
		{"a resource", func(p *past) {
			inbox(p)
			p.ran("web.read_resource", `{"uri":"a:b"}`, `{"contents":[{"uri":"a:b","text":"x"}]}`, nil, func(in, out *audit.Entry) { in.Action, out.Action = "resources/read", "resources/read" })
		}, nil, "web.read_resource: permit -> deny *"},
		{"a resource that is no sink", func(p *past) {
			inbox(p)
			p.ran("web.read_resource", `{"uri":"a:b"}`, `{"contents":[]}`, nil, func(in, out *audit.Entry) { in.Action, out.Action = "resources/read", "resources/read" })
		}, map[string]func(*catalogue.Classification){
			"web.read_resource": func(c *catalogue.Classification) { c.Flow.Sensitivity = flow.None },
		}, "web.read_resource: permit -> permit"},
		{"a write without a level", func(p *past) { inbox(p); send(p) }, map[string]func(*catalogue.Classification){
			"mail.send": func(c *catalogue.Classification) { c.Flow.Sensitivity, c.Level = flow.None, 0 },
		}, "mail.send: permit -> ask *"},
		{"a call that would have been refused before it was answered", func(p *past) {
			inbox(p)
			p.refused("web.search", `{}`, "ask", "risk")
			p.must(p.db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "session.release", Session: p.s.ID, Agent: "worker", Labels: []string{"internal", "untrusted"}}))
			p.n--
			p.ran("web.search", `{}`, mcp("x"), nil)
		}, nil, "web.search: ask -> deny *"},
		{"an answer to a server's question", func(p *past) {
			inbox(p)
			e := p.entry(audit.Decision, "web.search", `{}`)
			e.Action, e.Decision = "answer", "permit"
			p.must(p.db.Record(t.Context(), e))
		}, nil, "mail.inbox: permit -> permit"},
		{"what is only logged", func(p *past) {
			inbox(p)
			p.ran("web.search", `{}`, mcp("x"), nil, func(in, _ *audit.Entry) { in.Shadow, in.Stage, in.Code = true, "flow", "flow.contaminated" })
		}, nil, "web.search: permit -> deny"},
		{"what is only logged, and the flow rules had nothing against", func(p *past) {
			inbox(p)
			p.ran("web.search", `{}`, mcp("x"), nil, func(in, _ *audit.Entry) {
				in.Shadow, in.Stage, in.Code, in.Detail = true, "declare", "declaration.missing", json.RawMessage(`{"observed":[{"decision":"deny","stage":"declare","code":"declaration.missing","reason":"x"}]}`)
			})
		}, nil, "web.search: permit -> deny *"},
		{"an operation that nobody can make", func(p *past) { inbox(p) }, map[string]func(*catalogue.Classification){
			"mail.inbox": func(c *catalogue.Classification) { c.Flow.Sensitivity = "odd" },
		}, "mail.inbox: permit -> ?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPast(t, "Read my inbox and write to Dora", nil)
			c.do(p)
			got := rows(p.under(office(c.change)))
			if last := got[len(got)-1]; last != c.want {
				t.Errorf("%s, want %s", last, c.want)
			}
		})
	}
}

func TestSessionNobody(t *testing.T) {
	p := newPast(t, "", nil)
	p.must(p.db.Close())
	r, err := store.OpenReadOnly(p.dir)
	p.must(err)
	defer r.Close()
	if _, err := Session(t.Context(), r, office(nil), "sess_none"); !fault.Is(err, fault.NotFound) {
		t.Errorf("no such session: %v", err)
	}
	if got := p.under(office(nil)); len(got.Calls) != 0 || got.Calls == nil {
		t.Errorf("a session without calls: %+v", got)
	}
}

// TestSessionBounded: of a long session the beginning is judged, and that is said.
func TestSessionBounded(t *testing.T) {
	p := newPast(t, "", nil)
	for range 3 {
		p.ran("book.lookup", `{}`, mcp("x"), nil)
	}
	pl := &player{log: p.db.Reader}
	all, err := pl.entries(t.Context(), p.s.ID, 4)
	p.must(err)
	if len(all) != 4 || len(pl.past.Notes) != 1 {
		t.Errorf("%d entries, notes %q", len(all), pl.past.Notes)
	}
}

func TestOtherwise(t *testing.T) {
	for _, c := range []struct {
		then  Then
		asked bool // by the flow rules, whoever asked first
		now   provenance.Verdict
		want  bool
	}{
		{Then{Decision: "ask", Stage: "risk"}, false, provenance.Ask, true}, {Then{Decision: "ask", Stage: "risk"}, true, provenance.Ask, false},
		{Then{Decision: "ask", Stage: "risk"}, true, provenance.Deny, true}, {Then{Decision: "ask", Stage: "risk"}, true, provenance.Permit, false},
		{Then{Decision: "ask", Stage: "flow"}, true, provenance.Ask, false}, {Then{Decision: "ask", Stage: "flow"}, true, provenance.Permit, true},
		{Then{Decision: "deny", Stage: "permit"}, false, provenance.Ask, false}, {Then{Decision: "deny", Stage: "flow"}, false, provenance.Ask, true},
		{Then{Decision: "permit"}, false, provenance.Ask, true}, {Then{Decision: "permit"}, false, provenance.Permit, false},
	} {
		if got := c.then.otherwise(c.asked, c.now); got != c.want {
			t.Errorf("%+v, asked %v, now %s: %v", c.then, c.asked, c.now, got)
		}
	}
}
