package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/provenance"
)

// memoryClasses are a server that keeps what it is told, as an operator classifies it who thinks that it holds nothing.
var memoryClasses = map[string]catalogue.Classification{
	"memory.add":     {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Write}, Level: 1, Output: provenance.TrustedOutput},
	"memory.read":    {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.TrustedOutput},
	"memory.count":   {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Write}, Level: 1, Output: provenance.TrustedOutput, Forgets: true},
	"memory.save":    {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Write}, Level: 1, Output: provenance.TrustedOutput, Roles: map[string]string{"name": "content", "email": "content"}},
	"memory.people":  {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.TrustedOutput, Facts: catalogue.Facts{Names: []string{"name"}, IDKind: "person"}, Roles: map[string]string{"q": "query"}},
	"notes.create":   {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Write}, Level: 1, Output: provenance.TrustedOutput, Facts: catalogue.Facts{IDKind: "note"}, Roles: map[string]string{"text": "content"}},
	"notes.change":   {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Write}, Level: 1, Output: provenance.TrustedOutput, Facts: catalogue.Facts{IDKind: "note"}, Roles: map[string]string{"id": "selector", "text": "content"}},
	"notes.read":     {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.TrustedOutput, Facts: catalogue.Facts{IDKind: "note"}, Roles: map[string]string{"id": "selector"}},
	"notes.list":     {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.TrustedOutput, Facts: catalogue.Facts{IDKind: "note"}, Roles: map[string]string{"query": "query"}},
	"notes.export":   {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.TrustedOutput},
	"notes.strange":  {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.UntrustedOutput, Facts: catalogue.Facts{IDKind: "note"}, Roles: map[string]string{"query": "query"}},
	"notes.calendar": {Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.TrustedOutput, Facts: catalogue.Facts{IDKind: "event"}, Roles: map[string]string{"query": "query"}},
}

// newMemoryWorld has the servers memory and notes, whose tools answer with what the map says.
func newMemoryWorld(t testing.TB, answers map[string]string, tweak ...func(*gateway.Options)) *commWorld {
	w := newCommWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
		o.Agents = gatewaytest.Options(t, strings.ReplaceAll(fmt.Sprintf(declaration, "worker", "execution", "host"), `["`, `["memory.*", "notes.*", "`)).Agents
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			if c, ok := memoryClasses[server+"."+tool]; ok {
				c.Listed, c.Named, c.ExternalIO = true, true, true
				return c
			}
			return inner(server, tool)
		}
	}}, tweak...)...)
	w.offerMemory()
	for id := range memoryClasses {
		answer, ok := answers[id]
		if !ok {
			answer = `{"content":[{"type":"text","text":"done"}]}`
		}
		w.up.answers[id] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
			return json.RawMessage(answer), nil
		}
	}
	return w
}

func (w *commWorld) offerMemory() {
	for _, server := range []string{"memory", "notes"} {
		var defs []call.Definition
		for id := range memoryClasses {
			if s, tool, _ := strings.Cut(id, "."); s == server {
				defs = append(defs, definition(server, tool, "A tool."))
			}
		}
		w.offer(server, defs...)
	}
}

// dataResult is a result with data.
func dataResult(v string) string {
	return fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"structuredContent":%s}`, v, v)
}

func (w *commWorld) internalSession() identity.Principal {
	w.t.Helper()
	p := w.open("worker", "erin", "x")
	w.mustPermit(w.do(p, "search_email", `{}`, ""))
	return p
}

func (w *commWorld) carries(p identity.Principal, l flow.Label) bool {
	w.t.Helper()
	s, err := w.g.SessionByID(w.t.Context(), p.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Holds(l)
}

// What a session with internal data wrote is internal data for whoever reads it, whatever the operator thinks of the server; it stays so over a
// restart, until a person says why it is not.
func TestStoredDataKeepsItsLabels(t *testing.T) {
	w := newMemoryWorld(t, map[string]string{"memory.read": `{"content":[{"type":"text","text":"salary of ada: 91000"}]}`})
	clean := w.open("worker", "erin", "x")
	w.mustPermit(w.do(clean, "memory_add", `{"text":"buy milk"}`, ""))
	w.mustPermit(w.do(clean, "memory_read", `{}`, ""))
	if w.carries(clean, flow.Internal) || len(w.g.Stored().List()) != 0 {
		t.Fatalf("a session without labels left some: %+v", w.g.Stored().List())
	}
	w.mustPermit(w.do(w.internalSession(), "memory_add", `{"text":"salary of ada: 91000"}`, ""))
	reads := func(what string) {
		t.Helper()
		p := w.open("worker", "erin", "x")
		a := w.do(p, "memory_read", `{}`, "")
		w.mustPermit(a)
		if !w.carries(p, flow.Internal) || len(a.Brings) == 0 {
			t.Errorf("%s, the session that read it back holds no internal data", what)
		}
		sent := w.up.count()
		w.mustRefuse(w.do(p, "slack_post", `{"text":"91000"}`, ""), fault.FlowContaminated)
		if w.up.count() != sent {
			t.Errorf("%s, it was sent", what)
		}
	}
	reads("after the write")
	w.end()
	w.start()
	w.offerMemory()
	w.offer("slack", definition("slack", "post", "A tool."))
	reads("after a restart")

	marks := w.g.Stored().List()
	if len(marks) != 1 || marks[0].Server != "memory" || marks[0].Record != "" || len(marks[0].Labels) != 1 || marks[0].Labels[0].Operation != "memory.add" {
		t.Fatalf("%+v", marks)
	}
	if _, err := w.g.ReleaseStored(t.Context(), marks[0].ID, []flow.Label{flow.Internal}, "person:carol", " "); !fault.Is(err, fault.RequestMalformed) {
		t.Errorf("labels were released without a reason: %v", err)
	}
	if _, err := w.g.ReleaseStored(t.Context(), marks[0].ID, []flow.Label{flow.Internal}, "person:carol", "the note is public"); err != nil {
		t.Fatal(err)
	}
	p := w.open("worker", "erin", "x")
	w.mustPermit(w.do(p, "memory_read", `{}`, ""))
	if w.carries(p, flow.Internal) {
		t.Error("what a person released still labels")
	}
	var actions []string
	for _, e := range w.entries() {
		if strings.HasPrefix(e.Action, "stored.") {
			actions = append(actions, e.Action+" "+e.Actor+" "+strings.Join(e.Labels, ","))
			if e.Kind != audit.Change || len(e.Rows) != 1 {
				t.Errorf("%+v", e)
			}
		}
	}
	if fmt.Sprint(actions) != "[stored.label rule:stored internal stored.release person:carol internal]" {
		t.Error(actions)
	}
}

// Each way to get back what was stored brings its labels; what can't be it brings none.
func TestWhoReadsStoredData(t *testing.T) {
	for _, c := range []struct {
		name, write, with, answers string // answers: of the write
		read, asking, gives        string
		label                      bool
	}{
		{"the changed note", "notes_change", `{"id":7,"text":"x"}`, "", "notes_read", `{"id":7}`, "", true},
		{"its id as text", "notes_change", `{"id":7,"text":"x"}`, "", "notes_read", `{"id":" #07"}`, "", true},
		{"another note", "notes_change", `{"id":7,"text":"x"}`, "", "notes_read", `{"id":8}`, "", false},
		{"another note, with it inside", "notes_change", `{"id":7,"text":"x"}`, "", "notes_read", `{"id":8}`, dataResult(`{"id":8,"links":[{"id":"7","text":"x"}]}`), true},
		{"a list with it", "notes_change", `{"id":7,"text":"x"}`, "", "notes_list", `{"query":"x"}`, dataResult(`{"notes":[{"id":7,"text":"x"},{"id":8,"text":"y"}]}`), true},
		{"a list without it", "notes_change", `{"id":7,"text":"x"}`, "", "notes_list", `{"query":"x"}`, dataResult(`{"notes":[{"id":8,"text":"y"}]}`), false},
		{"a list of texts", "notes_change", `{"id":7,"text":"x"}`, "", "notes_list", `{"query":"x"}`, "", true},
		{"a list with a record without id", "notes_change", `{"id":7,"text":"x"}`, "", "notes_list", `{"query":"x"}`, dataResult(`{"notes":[{"id":8},{"text":"x"}]}`), true},
		{"ids that an outsider may have written", "notes_change", `{"id":7,"text":"x"}`, "", "notes_strange", `{"query":"x"}`, dataResult(`{"notes":[{"id":8,"text":"x"}]}`), true},
		{"an operation that nobody gave a kind", "notes_change", `{"id":7,"text":"x"}`, "", "notes_export", `{}`, dataResult(`{"id":8}`), true},
		{"records of another kind", "notes_change", `{"id":7,"text":"x"}`, "", "notes_calendar", `{"query":"x"}`, dataResult(`{"id":7}`), false},
		{"a write that gives it back", "notes_change", `{"id":7,"text":"x"}`, "", "notes_change", `{"id":7,"text":""}`, "", true},
		{"the created note", "notes_create", `{"text":"x"}`, dataResult(`{"id":9}`), "notes_read", `{"id":9}`, "", true},
		{"another than the created note", "notes_create", `{"text":"x"}`, dataResult(`{"id":9}`), "notes_read", `{"id":8}`, "", false},
		{"a note, after one was created whose id is not told", "notes_create", `{"text":"x"}`, "", "notes_read", `{"id":8}`, "", true},
		{"a copy", "notes_change", `{"id":7,"text":"x"}`, dataResult(`{"id":10,"text":"x"}`), "notes_read", `{"id":10}`, "", true},
		{"another server", "notes_change", `{"id":7,"text":"x"}`, "", "memory_read", `{}`, "", false},
		{"a write that stores nothing", "memory_count", `{"text":"x"}`, "", "memory_read", `{}`, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers := map[string]string{}
			for tool, answer := range map[string]string{c.write: c.answers, c.read: c.gives} {
				if answer != "" {
					answers[strings.Replace(tool, "_", ".", 1)] = answer
				}
			}
			w := newMemoryWorld(t, answers)
			w.mustPermit(w.do(w.internalSession(), c.write, c.with, ""))
			p := w.open("worker", "erin", "x")
			w.mustPermit(w.do(p, c.read, c.asking, ""))
			if got := w.carries(p, flow.Internal); got != c.label {
				t.Errorf("internal: %v, want %v; marks %+v", got, c.label, w.g.Stored().List())
			}
		})
	}
}

// A clean session that has a labelled record copied hands its labels on.
func TestCopyOfLabelledRecord(t *testing.T) {
	w := newMemoryWorld(t, map[string]string{"notes.change": dataResult(`{"id":10}`)})
	w.mustPermit(w.do(w.internalSession(), "notes_change", `{"id":7,"text":"x"}`, ""))
	w.up.answers["notes.change"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		return json.RawMessage(dataResult(`{"id":11}`)), nil
	}
	w.mustPermit(w.do(w.open("worker", "erin", "x"), "notes_change", `{"id":7,"text":"to 11"}`, ""))
	p := w.open("worker", "erin", "x")
	w.mustPermit(w.do(p, "notes_read", `{"id":11}`, ""))
	if !w.carries(p, flow.Internal) {
		t.Error("the copy has no label")
	}
}

// The label is there before the write runs, so that nobody reads it in between, and also where nobody knows whether it had its effect.
func TestStoredDataIsLabelledBeforeTheWrite(t *testing.T) {
	w := newMemoryWorld(t, nil)
	p := w.internalSession()
	w.up.answers["memory.add"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		between := w.open("worker", "erin", "x")
		w.mustPermit(w.do(between, "memory_read", `{}`, ""))
		if !w.carries(between, flow.Internal) {
			t.Error("a session read while the write ran, and got no label")
		}
		return nil, fault.New(fault.UpstreamFailed, "gone")
	}
	w.do(p, "memory_add", `{"text":"x"}`, "")
	after := w.open("worker", "erin", "x")
	w.mustPermit(w.do(after, "memory_read", `{}`, ""))
	if !w.carries(after, flow.Internal) {
		t.Error("a write with an unknown outcome left no label")
	}
}

// Whoever is asked about a write reads what it labels; once that has the labels, there is nothing to say.
func TestPeopleReadWhatWillCarryLabels(t *testing.T) {
	for _, c := range []struct{ tool, arguments, want string }{
		{"memory_add", `{"text":"x"}`, "internal will come with everything that memory gives back"},
		{"notes_change", `{"id":7,"text":"x"}`, "internal will come with note 7 of notes"},
		{"notes_create", `{"text":"x"}`, "internal will come with the note that it makes in notes (every note there, until its id is known)"},
		{"memory_count", `{"text":"x"}`, ""},
	} {
		w := newMemoryWorld(t, nil, func(o *gateway.Options) {
			inner := o.Classify
			o.Classify = func(server, tool string) catalogue.Classification {
				c := inner(server, tool)
				if c.Flow.Effect == flow.Write && (server == "memory" || server == "notes") {
					c.RiskFloor = policy.High
				}
				return c
			}
		})
		says := func(p identity.Principal) string {
			t.Helper()
			a := w.do(p, c.tool, c.arguments, "")
			if a.Verdict.ApprovalID == nil {
				t.Fatalf("nobody is asked: %+v", a.Verdict)
			}
			q, err := w.g.Desk().Question(t.Context(), *a.Verdict.ApprovalID)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range q.Reasons {
				if r.Code == "stored.label" {
					return r.Text
				}
			}
			return ""
		}
		if got := says(w.open("worker", "erin", "x")); got != "" {
			t.Errorf("%s in a session without labels: %q", c.tool, got)
		}
		if got := says(w.internalSession()); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.tool, got, c.want)
		}
	}
}

// Untrusted content is a session's matter: what it writes marks no server.
func TestUntrustedDoesNotSpreadToServers(t *testing.T) {
	w := newMemoryWorld(t, nil)
	p := w.open("worker", "erin", "x")
	w.mustPermit(w.do(p, "web_search", `{}`, ""))
	if !w.carries(p, flow.Untrusted) {
		t.Fatal("the session is clean")
	}
	w.do(p, "memory_add", `{"text":"x"}`, "")
	if marks := w.g.Stored().List(); len(marks) != 0 {
		t.Errorf("%+v", marks)
	}
}

// What an untrusted session wrote with nobody's yes confirms nothing in a later session, and names nothing there, also after a restart. What was there
// before does, and so does what a person said yes to.
func TestWrittenByUntrustedSession(t *testing.T) {
	const planted, honest = "eve@evil.example", "bob.stone@corp.example"
	people := dataResult(`[{"id":"p1","name":"Dora Quill","email":"` + planted + `"},{"id":"p2","name":"Ann Lee","email":"` + honest + `"}]`)
	for _, c := range []struct {
		name, writes string
		untrusted    bool
		asked        bool // about the planted address, later
	}{
		{"both", `{"name":"Dora Quill","email":"eve@evil.example"}`, true, true},
		{"in a text", `{"name":"Dora Quill","email":"Quill, Dora <EVE@evil.example>"}`, true, true},
		{"percent-encoded", `{"name":"x","email":"eve%40evil.example"}`, true, true},
		{"the name alone", `{"name":"my friend dora quill of Acme","email":"x"}`, true, true},
		{"something else", `{"name":"Falcon","email":"x@y.example"}`, true, false},
		{"a clean session", `{"name":"Dora Quill","email":"eve@evil.example"}`, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newMemoryWorld(t, map[string]string{"memory.people": people}, func(o *gateway.Options) {
				o.FreeLevel1, o.Labels = true, []flow.Label{"internal"}
				inner := o.Classify
				o.Classify = func(server, tool string) catalogue.Classification {
					if c, ok := tracedClasses[server+"."+tool]; ok {
						c.Listed, c.Named, c.ExternalIO = true, true, true
						return c
					}
					return inner(server, tool)
				}
			})
			w.offerTraced(w.g)
			w.says("mail.find", structured(`{"mails":`+inbox+`}`))
			p := w.open("worker", "erin", "Look at my mails")
			if c.untrusted {
				w.mustPermit(w.do(p, "mail_find", `{"q":"Acme"}`, ""))
			}
			w.mustPermit(w.do(p, "memory_save", c.writes, ""))
			if _, err := w.g.CloseSession(t.Context(), p.ID, "person:carol", "done"); err != nil {
				t.Fatal(err)
			}
			later := func(when string) {
				t.Helper()
				p := w.open("worker", "erin", "Write to Dora Quill and to Ann Lee about my mails")
				w.mustPermit(w.do(p, "mail_find", `{"q":"Acme"}`, ""))
				w.mustPermit(w.do(p, "memory_people", `{"q":"all"}`, ""))
				for address, asked := range map[string]bool{planted: c.asked, honest: false} {
					v := judgedOnly(w, p, "slack_send", to(address))
					flowAsks := strings.Contains(fmt.Sprint(v.Because), "flow: ")
					if flowAsks != asked || v.Decision == fault.Deny {
						t.Errorf("%s, %s: asked by flow %v, want %v: %+v", when, address, flowAsks, asked, v)
					}
				}
			}
			later("at once")
			w.end()
			w.start()
			w.offerMemory()
			w.offerTraced(w.g)
			later("after a restart")
		})
	}
}
