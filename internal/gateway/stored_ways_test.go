package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/planned"
	"sallyport.example/provenance"
)

// answering is a memory world whose server asks the client a question in each call of the tool.
func answering(t *testing.T, tool string, tweak ...func(*gateway.Options)) *commWorld {
	w := newMemoryWorld(t, nil, tweak...)
	w.up.answers[tool] = func(ctx context.Context, _ json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
		if x.Ask != nil {
			if _, err := x.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"Who?"}`)); err != nil {
				t.Error(err)
			}
		}
		return json.RawMessage(`{"content":[{"type":"text","text":"done"}]}`), nil
	}
	return w
}

// replies makes a call and answers its server's questions, while the call runs or with the call itself.
func (w *commWorld) replies(p identity.Principal, tool, answer string, running bool) {
	w.t.Helper()
	x := call.Exchange{ClientKey: "c", InputResponses: json.RawMessage(`{"q":` + answer + `}`)}
	if running {
		x = call.Exchange{ClientKey: "c", Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(answer), nil
		}}
	}
	w.mustPermit(w.g.Call(w.t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: tool, Arguments: json.RawMessage(`{}`), Door: "mcp", Exchange: x}))
}

// What is answered to a server's question is stored like what a write gives it, also where the call itself reads, and by no id.
func TestAnswersAreStored(t *testing.T) {
	for _, running := range []bool{true, false} {
		for tool, want := range map[string]bool{"memory.people": true, "memory.add": true, "memory.count": false} {
			t.Run(fmt.Sprint(tool, running), func(t *testing.T) {
				w := answering(t, tool)
				w.replies(w.internalSession(), strings.Replace(tool, ".", "_", 1), `{"action":"accept","content":{"who":"ada, 91000"}}`, running)
				p := w.open("worker", "erin", "x")
				w.mustPermit(w.do(p, "memory_read", `{}`, ""))
				if got := w.carries(p, flow.Internal); got != want {
					t.Errorf("the session that reads it holds internal data: %v, want %v", got, want)
				}
			})
		}
	}
}

// What an untrusted session answers confirms nothing later, as what it writes does not.
func TestAnswersOfUntrustedSession(t *testing.T) {
	const planted, honest = "eve@evil.example", "bob.stone@corp.example"
	for _, running := range []bool{true, false} {
		w := answering(t, "memory.people", func(o *gateway.Options) { withTraced(o) })
		w.offerTraced(w.g)
		w.says("mail.find", structured(`{"mails":`+inbox+`}`))
		p := w.open("worker", "erin", "Look at my mails")
		w.mustPermit(w.do(p, "mail_find", `{"q":"Acme"}`, ""))
		w.replies(p, "memory_people", `{"action":"accept","content":{"email":"`+planted+`"}}`, running)
		if _, err := w.g.CloseSession(t.Context(), p.ID, "person:carol", "done"); err != nil {
			t.Fatal(err)
		}
		w.end()
		w.start()
		w.offerMemory()
		w.offerTraced(w.g)
		w.says("memory.people", dataResult(`[{"id":"p1","name":"Dora Quill","email":"`+planted+`"},{"id":"p2","name":"Ann Lee","email":"`+honest+`"}]`))
		later := w.open("worker", "erin", "Write to Dora Quill and to Ann Lee about my mails")
		w.mustPermit(w.do(later, "mail_find", `{"q":"Acme"}`, ""))
		w.mustPermit(w.do(later, "memory_people", `{"q":"all"}`, ""))
		for address, asked := range map[string]bool{planted: true, honest: false} {
			if v := judgedOnly(w, later, "slack_send", to(address)); strings.Contains(fmt.Sprint(v.Because), "flow: ") != asked {
				t.Errorf("running %v, %s: %+v", running, address, v)
			}
		}
	}
}

// withTraced adds the tools of tracedClasses.
func withTraced(o *gateway.Options) {
	o.FreeLevel1, o.Labels = true, []flow.Label{"internal"}
	inner := o.Classify
	o.Classify = func(server, tool string) catalogue.Classification {
		if c, ok := tracedClasses[server+"."+tool]; ok {
			c.Listed, c.Named, c.ExternalIO = true, true, true
			return c
		}
		return inner(server, tool)
	}
}

// A person who takes labels off while a write runs has not seen what it writes: it has them again.
func TestReleaseWhileAWriteRuns(t *testing.T) {
	for _, c := range []struct{ tool, arguments string }{
		{"memory.add", `{"text":"x"}`}, {"notes.change", `{"id":7,"text":"x"}`}, {"notes.create", `{"text":"x"}`},
	} {
		for _, fails := range []bool{false, true} {
			w := newMemoryWorld(t, nil)
			w.up.answers[c.tool] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
				for _, mark := range w.g.Stored().List() {
					if _, err := w.g.ReleaseStored(t.Context(), mark.ID, []flow.Label{flow.Internal}, "person:carol", "it is public"); err != nil {
						t.Error(err)
					}
				}
				if fails {
					return nil, fault.New(fault.UpstreamFailed, "gone")
				}
				return json.RawMessage(`{"content":[{"type":"text","text":"done"}]}`), nil
			}
			w.do(w.internalSession(), strings.Replace(c.tool, ".", "_", 1), c.arguments, "")
			if marks := w.g.Stored().List(); len(marks) != 1 || len(marks[0].Labels) != 1 {
				t.Errorf("%s, fails %v: %+v", c.tool, fails, marks)
			}
		}
	}
}

// A plan is told what stored data will do to it before anything runs, and so are the manifest and the system prompt. Records that a step does not reach
// change nothing.
func TestStoredLabelsAreForeseen(t *testing.T) {
	send := `{"tool":"slack_post","arguments":{"text":"91000"}}`
	for _, c := range []struct {
		name, write, with, step string
		blocks                  bool
	}{
		{"all of a server", "memory_add", `{"text":"x"}`, `{"tool":"memory_read","arguments":{}}`, true},
		{"the record", "notes_change", `{"id":7,"text":"x"}`, `{"tool":"notes_read","arguments":{"id":7}}`, true},
		{"another record", "notes_change", `{"id":7,"text":"x"}`, `{"tool":"notes_read","arguments":{"id":8}}`, false},
		{"a record that is not known yet", "notes_change", `{"id":7,"text":"x"}`, `{"tool":"notes_read"}`, true},
		{"a list", "notes_change", `{"id":7,"text":"x"}`, `{"tool":"notes_list","arguments":{"query":"x"}}`, true},
		{"another server", "memory_add", `{"text":"x"}`, `{"tool":"notes_read","arguments":{"id":8}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newMemoryWorld(t, nil)
			steps := `[` + c.step + `,` + send + `]`
			validate := func() planned.Report {
				t.Helper()
				r, err := w.g.ValidatePlan(t.Context(), w.open("worker", "erin", "x"), "", json.RawMessage(`{"planned_calls":`+steps+`}`))
				if err != nil {
					t.Fatal(err)
				}
				return r.(planned.Report)
			}
			if r := validate(); !r.Valid {
				t.Fatalf("before anything was stored: %+v", r)
			}
			w.mustPermit(w.do(w.internalSession(), c.write, c.with, ""))
			r := validate()
			if r.Valid == c.blocks || c.blocks && (len(r.Violations) != 1 || r.Violations[0].AtStep != 1 || r.Violations[0].Code != flow.CodeContaminated ||
				!slices.Equal(r.SafeOrdering, []string{"slack_post", strings.Split(c.step, `"`)[3]})) {
				t.Errorf("%+v", r)
			}
		})
	}
	w := newMemoryWorld(t, nil)
	w.mustPermit(w.do(w.internalSession(), "memory_add", `{"text":"x"}`, ""))
	m, err := w.g.Manifest(t.Context(), w.open("worker", "erin", "x"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range m.(gateway.Manifest).Tools {
		if server, _, _ := strings.Cut(tool.Operation, "."); server == "memory" || server == "notes" {
			if got := slices.Contains(tool.Blocks, "slack_post"); got != (server == "memory") {
				t.Errorf("%s blocks %v", tool.Operation, tool.Blocks)
			}
		}
	}
	if says := m.(gateway.Manifest).SystemPrompt; !strings.Contains(says, "all 5 tools of memory [internal]") || !strings.Contains(says, "any order: all 7 tools of notes, ") {
		t.Error(says)
	}
}

// Private data that was stored, and that nobody asked for, goes nowhere unasked: not even to somebody whom the person named.
func TestStoredDataThatNobodyAskedFor(t *testing.T) {
	w := newMemoryWorld(t, nil, withTraced, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server+"."+tool == "notes.read" {
				c.Flow.Sensitivity = flow.External // as of a wiki that anybody reads
				c.Flow.BlockedBy = &[]flow.Label{}
			}
			return c
		}
	})
	w.mustPermit(w.do(w.internalSession(), "notes_change", `{"id":7,"text":"x"}`, ""))
	w.offerTraced(w.g)
	w.says("mail.find", structured(`{"mails":`+inbox+`}`))
	p := w.open("worker", "erin", "Tell bob.stone@corp.example what my mails say")
	w.mustPermit(w.do(p, "mail_find", `{"q":"Acme"}`, ""))
	w.mustPermit(w.do(p, "notes_read", `{"id":7}`, ""))
	if !w.carries(p, flow.Internal) || !w.carries(p, flow.Unasked) {
		t.Error("what nobody asked for is not marked so")
	}
	w.mustAsk(w.do(p, "slack_send", to("bob.stone@corp.example"), ""))
}

// Lists raise no labels, so they show nothing that a server holding labelled data could have written into them.
func TestListsOfServerWithLabelledData(t *testing.T) {
	w := newMemoryWorld(t, nil, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			if server == "memory" && (tool == "read_resource" || tool == "get_prompt") {
				return catalogue.Classification{Listed: true, Named: true, ExternalIO: true, Output: provenance.TrustedOutput, Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}}
			}
			return inner(server, tool)
		}
	})
	offers := []call.Definition{{Server: "memory", Name: "crm://ada-91000", Kind: call.Resource, JSON: []byte(`{"name":"ada","uri":"crm://ada-91000"}`)},
		{Server: "memory", Name: "ada", Kind: call.Prompt, JSON: []byte(`{"name":"ada"}`)}}
	for id := range memoryClasses {
		if server, tool, _ := strings.Cut(id, "."); server == "memory" {
			offers = append(offers, definition(server, tool, "A tool."))
		}
	}
	w.offer("memory", offers...)
	listed := func() int {
		return len(w.g.Offers(t.Context(), as("worker"), call.Resource)) + len(w.g.Offers(t.Context(), as("worker"), call.Prompt))
	}
	if listed() != 2 {
		t.Fatalf("%d are listed of a server without labelled data", listed())
	}
	w.mustPermit(w.do(w.internalSession(), "memory_add", `{"text":"salary of ada: 91000"}`, ""))
	if listed() != 0 {
		t.Errorf("%d are listed of a server that holds internal data", listed())
	}
	for _, r := range []gateway.Request{{Method: "resources/read", Tool: "crm://ada-91000"}, {Method: "prompts/get", Tool: "memory_ada"}} {
		r.Principal, r.Door = w.open("worker", "erin", "x"), "mcp"
		w.says("memory.", `{"contents":[{"uri":"crm://ada-91000","text":"91000"}]}`)
		w.says("memory.ada", `{"messages":[{"role":"user","content":{"type":"text","text":"91000"}}]}`)
		w.mustPermit(w.g.Call(t.Context(), r))
		if !w.carries(r.Principal, flow.Internal) {
			t.Errorf("%s brought no label", r.Method)
		}
	}
	// A new tool, whose description only a rule accepted.
	p := w.open("worker", "erin", "x")
	w.offer("memory", append(offers, definition("memory", "people_of_ada_91000", "Ada earns 91000."))...)
	if _, err := w.g.Listing(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if !w.carries(p, flow.Internal) {
		t.Error("a list of definitions that nobody accepted brought no label")
	}
}

// A prompt or resource that nobody said to read stores what it is given, like any write.
func TestPromptThatStores(t *testing.T) {
	for effect, want := range map[flow.Effect]bool{flow.Write: true, flow.Read: false} {
		w := newMemoryWorld(t, nil, func(o *gateway.Options) {
			inner := o.Classify
			o.Classify = func(server, tool string) catalogue.Classification {
				if server == "memory" && tool == "get_prompt" {
					return catalogue.Classification{Listed: true, Named: true, ExternalIO: true, Level: map[flow.Effect]int{flow.Write: 1}[effect], Output: provenance.TrustedOutput, Flow: flow.Spec{Sensitivity: flow.None, Effect: effect}}
				}
				return inner(server, tool)
			}
		})
		defs := []call.Definition{{Server: "memory", Name: "note", Kind: call.Prompt, JSON: []byte(`{"name":"note","arguments":[{"name":"text"}]}`)}, definition("memory", "read", "A tool."), definition("memory", "add", "A tool.")}
		w.offer("memory", defs...)
		w.says("memory.note", `{"messages":[{"role":"user","content":{"type":"text","text":"noted"}}]}`)
		w.mustPermit(w.g.Call(t.Context(), gateway.Request{Principal: w.internalSession(), Method: "prompts/get", Tool: "memory_note", Arguments: json.RawMessage(`{"text":"91000"}`), Door: "mcp"}))
		p := w.open("worker", "erin", "x")
		w.mustPermit(w.do(p, "memory_read", `{}`, ""))
		if got := w.carries(p, flow.Internal); got != want {
			t.Errorf("effect %s: internal %v, want %v", effect, got, want)
		}
	}
}

// Asking what would become of a write stores nothing, and neither does a write that is refused.
func TestWhatDoesNotRunStoresNothing(t *testing.T) {
	w := newMemoryWorld(t, nil)
	p := w.internalSession()
	if v := judgedOnly(w, p, "memory_add", `{"text":"x"}`); v.Decision != fault.Permit {
		t.Errorf("%+v", v)
	}
	w.submit(p, `[{"tool":"memory_add","arguments":{"text":"x"},"justification":"keep it"}]`)
	w.mustRefuse(w.do(p, "memory_nothing", `{"text":"x"}`, ""), fault.ToolUnknown)
	if marks := w.g.Stored().List(); len(marks) != 0 {
		t.Errorf("%+v", marks)
	}
}

// A server that got another name in the configuration still holds what was stored in it; one that is started in another way does not, and neither does
// one that stands beside it as it was.
func TestRenamedServerKeepsLabels(t *testing.T) {
	for _, c := range []struct {
		name  string
		after map[string]string
		label bool
	}{
		{"renamed", map[string]string{"notes": "h1"}, true},
		{"another one in its place", map[string]string{"notes": "h2"}, false},
		{"beside it", map[string]string{"memory": "h1", "notes": "h1"}, false},
		{"the old one launched anew, beside it", map[string]string{"memory": "h3", "notes": "h1"}, true},
	} {
		w := newMemoryWorld(t, nil, func(o *gateway.Options) { o.Servers = map[string]string{"memory": "h1"} })
		w.mustPermit(w.do(w.internalSession(), "memory_add", `{"text":"x"}`, ""))
		w.end()
		w.o.Servers = c.after
		w.start()
		w.offerMemory()
		p := w.open("worker", "erin", "x")
		w.mustPermit(w.do(p, "notes_read", `{"id":8}`, ""))
		if got := w.carries(p, flow.Internal); got != c.label {
			t.Errorf("%s: internal %v, want %v", c.name, got, c.label)
		}
		marks := w.g.Stored().List()
		if _, there := c.after["memory"]; len(marks) != 1 || (marks[0].Server == "notes") != (c.label && !there) {
			t.Fatalf("%s: %+v", c.name, marks)
		}
		for range 2 { // it is released for good, under whatever name
			if _, err := w.g.ReleaseStored(t.Context(), marks[0].ID, []flow.Label{flow.Internal}, "person:carol", "it is public"); err != nil {
				t.Error(err)
			}
		}
		if left := w.g.Stored().List(); len(left) != 0 {
			t.Errorf("%s: released, there is %+v", c.name, left)
		}
		w.end()
		w.start()
		if left := w.g.Stored().List(); len(left) != 0 {
			t.Errorf("%s: released, after a restart there is %+v", c.name, left)
		}
	}
}
