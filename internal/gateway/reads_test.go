package gateway_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/planned"
	"sallyport.example/internal/reading"
	"sallyport.example/provenance"
)

// newReadsWorld is a gateway with reads that select what they read.
func newReadsWorld(t *testing.T, tweak ...func(*gateway.Options)) *commWorld {
	return newTracedWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server+"."+tool == "mail.crm" {
				c.Roles = map[string]string{"path": "path", "q": "query"}
			}
			return c
		}
	}}, tweak...)...)
}

// holds tells whether the session is said to hold the label, and which call brought it.
func (w *commWorld) holds(p identity.Principal, l flow.Label) (call string, ok bool) {
	w.t.Helper()
	st, err := w.g.Status(w.t.Context(), p, p.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, h := range st.(gateway.Status).Labels {
		if h.Label == l {
			return h.CallID, true
		}
	}
	return "", false
}

// wouldBe is what check says of a call.
func (w *commWorld) wouldBe(p identity.Principal, tool, arguments string) fault.Verdict {
	return w.g.Call(w.t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: tool, Arguments: json.RawMessage(arguments), Door: "mcp", DryRun: true}).Verdict
}

// What nobody asked for stays with the session, over a restart too, and leaves only with a person's yes.
func TestUnaskedDataLeavesByAQuestion(t *testing.T) {
	w := newReadsWorld(t)
	p := w.tainted()
	w.mustPermit(w.do(p, "mail_crm", `{}`, "")) // nothing is selected
	w.mustPermit(w.do(p, "mail_crm", `{"q":"anything"}`, ""))
	w.mustPermit(w.do(p, "slack_send", to("anna@corp.example"), ""))
	if _, ok := w.holds(p, flow.Unasked); ok {
		t.Fatal("a search counts as unasked for")
	}
	read := w.mustPermit(w.do(p, "mail_crm", `{"path":"payroll/all"}`, ""))
	if call, ok := w.holds(p, flow.Unasked); !ok || call != read.CallID {
		t.Fatalf("the mark came with %q, %v", call, ok)
	}
	for _, e := range w.entriesOf(read.CallID) {
		if e.Kind == audit.Outcome && !slices.Contains(e.Labels, "unasked") || e.Kind == audit.Intent && !strings.Contains(string(e.Detail), "path is not confirmed") {
			t.Errorf("%s: %v %s", e.Kind, e.Labels, e.Detail)
		}
	}
	w.restart()
	if v := w.wouldBe(p, "slack_send", to("anna@corp.example")); v.Decision != fault.Ask {
		t.Errorf("check: %+v", v)
	}
	a := w.do(p, "slack_send", to("anna@corp.example"), "")
	id := w.mustAsk(a)
	if !strings.Contains(a.Verdict.Reason+fmt.Sprint(a.Verdict.Because), "nobody asked for the data that mail.crm brought") {
		t.Errorf("%+v", a.Verdict)
	}
	w.mustPermit(w.do(p, "slack_send", to("erin@corp.example"), "")) // her own address
	w.mustRespond("bob", id, approval.Approve, "")
	w.mustPermit(w.do(p, "slack_send", to("anna@corp.example"), ""))
	w.mustPermit(w.do(p, "slack_send", `{"body":"more","to":"anna@corp.example"}`, "")) // said yes to, knowing of it
}

// A prompt with arguments, and what completes them, can be a read of anything, too.
func TestPromptsAndCompletionsAreUnasked(t *testing.T) {
	w := newReadsWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			if server != "shy" {
				return inner(server, tool)
			}
			return catalogue.Classification{Listed: true, Named: true, ExternalIO: true, Output: provenance.TrustedOutput, Flow: flow.Spec{Sensitivity: flow.InternalSource, Effect: flow.Read}}
		}
	})
	prompt := []byte(`{"name":"file"}`)
	w.offer("shy", call.Definition{Server: "shy", Name: "file", Kind: call.Prompt, JSON: prompt, Hash: call.HashBytes(prompt)})
	w.says("shy.file", `{"messages":[{"role":"user","content":{"type":"text","text":"salaries"}}]}`)
	w.says("shy.", `{"completion":{"values":["payroll"]}}`)
	ask := func(p identity.Principal, method call.Method, arguments string) bool {
		t.Helper()
		w.mustPermit(w.g.Call(t.Context(), gateway.Request{Principal: p, Method: method, Tool: "shy_file", Arguments: json.RawMessage(arguments), Door: "mcp"}))
		_, ok := w.holds(p, flow.Unasked)
		return ok
	}
	for arguments, unasked := range map[string]bool{`{}`: false, `{"path":"Acme"}`: false, `{"path":"payroll/all"}`: true} {
		if ask(w.tainted(), "prompts/get", arguments) != unasked {
			t.Errorf("%s: unasked is %v", arguments, !unasked)
		}
	}
	if !ask(w.tainted(), "completion/complete", `{"ref":{"type":"ref/prompt","name":"shy_file"},"argument":{"name":"path","value":"pay"}}`) {
		t.Error("a completion")
	}
	if ask(w.open("worker", "erin", errand), "prompts/get", `{"path":"payroll/all"}`) {
		t.Error("in a clean session")
	}
}

// In a clean session whatever is read is the agent's ordinary work.
func TestNothingIsUnaskedInACleanSession(t *testing.T) {
	w := newReadsWorld(t)
	p := w.open("worker", "erin", errand)
	w.mustPermit(w.do(p, "mail_crm", `{"path":"payroll/all"}`, ""))
	w.mustPermit(w.do(p, "slack_send", to("anna@corp.example"), ""))
	if _, ok := w.holds(p, flow.Unasked); ok {
		t.Error("marked")
	}
}

// A plan says beforehand what the calls would be told.
func TestPlanKnowsWhatIsUnasked(t *testing.T) {
	w := newReadsWorld(t)
	read := func(path string) string { return `{"tool":"mail_crm","arguments":{"path":"` + path + `"}}` }
	send := `{"tool":"slack_send","arguments":` + to("anna@corp.example") + `}`
	for name, c := range map[string]struct {
		steps []string
		valid bool
	}{
		"after untrusted content":  {[]string{`"mail_find"`, read("payroll/all"), send}, false},
		"what the words name":      {[]string{`"mail_find"`, read("Acme"), send}, true},
		"before untrusted content": {[]string{read("payroll/all"), `"mail_find"`, send}, true},
		"after it has left":        {[]string{`"mail_find"`, send, read("payroll/all")}, true},
	} {
		p := w.open("worker", "erin", errand)
		r, err := w.g.ValidatePlan(t.Context(), p, p.ID, json.RawMessage(`{"planned_calls":[`+strings.Join(c.steps, ",")+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		if report := r.(planned.Report); report.Valid != c.valid {
			t.Errorf("%s: %+v", name, report)
		}
	}
}

// A read with a root is refused everywhere else, by calls, checks and plans alike, and the entry says why.
func TestReadsHaveRoots(t *testing.T) {
	t.Run("reads", func(t *testing.T) { readsHaveRoots(t, `["slack.*"]`, "leads upwards") })
	// What counts as a write is no way around the root of the read.
	t.Run("and writes", func(t *testing.T) { readsHaveRoots(t, `["*"]`, "under docs/ only") })
}

func readsHaveRoots(t *testing.T, writes, upwards string) {
	w := newReadsWorld(t, func(o *gateway.Options) {
		dir := t.TempDir()
		rooted := strings.Replace(fmt.Sprintf(declaration, "worker", "execution", "host"), `"mail.*"`, `"mail.find", "mail.crm under docs/", "mail.people under docs/"`, 1)
		rooted = strings.Replace(rooted, `["slack.*"]`, writes, 1)
		if err := os.WriteFile(filepath.Join(dir, "worker.yaml"), []byte(rooted), 0o600); err != nil {
			t.Fatal(err)
		}
		set, problems := agent.Load(dir)
		if len(set.All()) != 1 {
			t.Fatal(problems)
		}
		o.Agents = set
	})
	p := w.open("worker", "erin", errand)
	w.mustPermit(w.do(p, "mail_crm", `{"path":"docs/a.md"}`, ""))
	for args, why := range map[string]string{
		`{"path":"docs2"}`:                   "elsewhere",
		`{"path":"/docs/a.md"}`:              "elsewhere",
		`{}`:                                 "does not say where",
		`{"file":"keys","path":"docs/a.md"}`: "has no role",
		`{"path":"docs/%2e/keys","q":"x"}`:   "percent-encoding",
	} {
		a := w.mustRefuse(w.do(p, "mail_crm", args, ""), fault.PermissionDenied)
		if !strings.Contains(a.Verdict.Reason, "under docs/ only") || !strings.Contains(a.Verdict.Reason, why) || len(a.Verdict.Remedies) == 0 {
			t.Errorf("%s: %+v", args, a.Verdict)
		}
		if e := w.entriesOf(a.CallID)[0]; e.Code != string(fault.PermissionDenied) || !strings.Contains(e.Reason, why) {
			t.Errorf("%s: the entry says %s, %q", args, e.Code, e.Reason)
		}
		if v := w.wouldBe(p, "mail_crm", args); v.Code != fault.PermissionDenied {
			t.Errorf("%s: check says %+v", args, v)
		}
	}
	if a := w.mustRefuse(w.do(p, "mail_crm", `{"path":"docs/../keys"}`, ""), fault.PermissionDenied); !strings.Contains(a.Verdict.Reason, upwards) {
		t.Errorf("%+v", a.Verdict)
	}
	w.mustRefuse(w.do(p, "mail_people", `{}`, ""), fault.PermissionDenied) // nobody told what its arguments are for
	for step, code := range map[string]string{
		`{"tool":"mail_crm","arguments":{"path":"keys"}}`:      string(fault.PermissionDenied),
		`{"tool":"mail_crm","arguments":{"path":"docs/a.md"}}`: "",
		`"mail_crm"`: "",
	} {
		r, err := w.g.ValidatePlan(t.Context(), p, p.ID, json.RawMessage(`{"planned_calls":[`+step+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		if report := r.(planned.Report); report.Valid != (code == "") || code != "" && report.Violations[0].Code != code {
			t.Errorf("%s: %+v", step, report)
		}
	}
}

// newCodeWorld is a gateway whose mail.crm takes SQL of a class and a path, mail.people one that nobody gave a class, and whose agent may write
// them too if it is told so.
func newCodeWorld(t *testing.T, writes bool) *commWorld {
	return newTracedWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			switch server + "." + tool {
			case "mail.crm":
				c.Roles, c.Code = map[string]string{"sql": "code"}, map[string]reading.Rule{"sql": {Class: reading.ClassSelect}}
			case "mail.people":
				c.Roles = map[string]string{"sql": "code"}
			}
			return c
		}
		if !writes {
			return
		}
		dir := t.TempDir()
		d := strings.Replace(fmt.Sprintf(declaration, "worker", "execution", "host"), `write: ["slack.*"]`, `write: ["slack.*", "mail.*"]`, 1)
		if err := os.WriteFile(filepath.Join(dir, "worker.yaml"), []byte(d), 0o600); err != nil {
			t.Fatal(err)
		}
		set, problems := agent.Load(dir)
		if len(set.All()) != 1 {
			t.Fatal(problems)
		}
		o.Agents = set
	})
}

var (
	reads = []string{`{"sql":"SELECT id FROM crm WHERE id = 7"}`, `{"path":"docs/a.md"}`, `{}`}
	acts  = map[string]string{
		`{"sql":"DELETE FROM crm"}`:                   `\"sql\" is not one plain SELECT`,
		`{"sql":"COPY crm TO PROGRAM 'sh'"}`:          `\"sql\" is not one plain SELECT`,
		`{"path":"docs/../keys"}`:                     "leads upwards",
		`{"file":"$(id)"}`:                            "shell acts on",
		`{"path":"/etc/passwd"}`:                      "absolute path",
		`{"command":"id"}`:                            "holds code",
		`{"sql":"SELECT 1","opts":{"script":"do()"}}`: "holds code",
	}
)

// An agent that may only read may not do by a read what is none, whatever the operation is said to be.
func TestReadIsNoFreePass(t *testing.T) {
	w := newCodeWorld(t, false)
	p := w.open("worker", "erin", errand)
	for _, args := range reads {
		w.mustPermit(w.do(p, "mail_crm", args, ""))
	}
	before := w.sent("crm")
	for args, why := range acts {
		why = strings.ReplaceAll(why, `\"`, `"`)
		a := w.mustRefuse(w.do(p, "mail_crm", args, ""), fault.PermissionDenied)
		if !strings.Contains(a.Verdict.Reason, why) || !strings.Contains(a.Verdict.Remedies[0].Text, "shape") {
			t.Errorf("%s: %+v", args, a.Verdict)
		}
		if e := w.entriesOf(a.CallID)[0]; e.Code != string(fault.PermissionDenied) || !strings.Contains(e.Reason, why) {
			t.Errorf("%s: the entry says %s, %q", args, e.Code, e.Reason)
		}
		if v := w.wouldBe(p, "mail_crm", args); v.Code != fault.PermissionDenied {
			t.Errorf("%s: check says %+v", args, v)
		}
		r, err := w.g.ValidatePlan(t.Context(), p, p.ID, json.RawMessage(`{"planned_calls":[{"tool":"mail_crm","arguments":`+args+`}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if report := r.(planned.Report); report.Valid || report.Violations[0].Code != string(fault.PermissionDenied) {
			t.Errorf("%s: a plan says %+v", args, report)
		}
	}
	w.mustRefuse(w.do(p, "mail_people", reads[0], ""), fault.PermissionDenied) // SQL that nobody gave a class
	if w.sent("crm") != before || w.sent("people") != 0 {
		t.Error("something was sent")
	}
}

// An agent that may write it is judged, asked and rated as for a write; what reads runs as ever.
func TestReadThatActsIsAWrite(t *testing.T) {
	w := newCodeWorld(t, true)
	p := w.tainted()
	for _, args := range reads {
		a := w.mustPermit(w.do(p, "mail_crm", args, ""))
		if e := w.entriesOf(a.CallID)[0]; strings.Contains(string(e.Detail), `"acts"`) {
			t.Errorf("%s: %s", args, e.Detail)
		}
	}
	before := w.sent("crm")
	for args, why := range acts {
		id := w.mustAsk(w.do(p, "mail_crm", args, ""))
		q := w.question(id)
		if !slices.ContainsFunc(q.Reasons, func(r approval.Reason) bool {
			return r.Code == "risk.acts" && strings.Contains(r.Text, strings.ReplaceAll(why, `\"`, `"`))
		}) || q.Risk == "LOW" {
			t.Errorf("%s: %s %+v", args, q.Risk, q.Reasons)
		}
		if v := w.wouldBe(p, "mail_crm", args); v.Decision != fault.Ask {
			t.Errorf("%s: check says %+v", args, v)
		}
	}
	if w.sent("crm") != before {
		t.Error("something was sent")
	}
	clean := w.open("worker", "erin", errand)
	a := w.mustPermit(w.do(clean, "mail_crm", `{"path":"/srv/a"}`, ""))
	if e := w.entriesOf(a.CallID)[0]; !strings.Contains(string(e.Detail), `"acts"`) {
		t.Errorf("the entry does not say that it counts as a write: %s", e.Detail)
	}
}

// A tool that no call can use without code is a write from the start, and the manifest says so.
func TestToolOfCodeAloneIsAWrite(t *testing.T) {
	w := newCodeWorld(t, true)
	raw := []byte(`{"description":"A tool.","inputSchema":{"properties":{"sql":{"type":"string"}},"required":["sql"],"type":"object"},"name":"%s"}`)
	var defs []call.Definition
	for id := range tracedClasses {
		server, tool, _ := strings.Cut(id, ".")
		if server != "mail" {
			continue
		}
		d := definition(server, tool, "A tool.")
		if tool == "crm" || tool == "people" {
			d.JSON = []byte(strings.ReplaceAll(string(raw), "%s", tool))
			d.Hash = call.HashBytes(d.JSON)
		}
		defs = append(defs, d)
	}
	if err := w.g.Catalogue().UpdateDefinitions(t.Context(), "mail", defs); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"mail.crm", "mail.people"} {
		for _, d := range defs {
			if d.Name == strings.TrimPrefix(tool, "mail.") {
				if err := w.g.Catalogue().AcceptTool(t.Context(), tool, d.Hash, "person:alice"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	p := w.open("worker", "erin", errand)
	m, err := w.g.Manifest(t.Context(), p, p.ID)
	if err != nil {
		t.Fatal(err)
	}
	effects := map[string]flow.Effect{}
	for _, tool := range m.(gateway.Manifest).Tools {
		effects[tool.Operation] = tool.Effect
	}
	if effects["mail.crm"] != flow.Read || effects["mail.people"] != flow.Write {
		t.Errorf("%v", effects)
	}
	w.mustPermit(w.do(p, "mail_crm", reads[0], ""))
}
