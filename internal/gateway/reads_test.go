package gateway_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport/flow"
	"sallyport/internal/agent"
	"sallyport/internal/approval"
	"sallyport/internal/audit"
	"sallyport/internal/fault"
	"sallyport/internal/gateway"
	"sallyport/internal/identity"
)

// newReadsWorld is a gateway with reads that select what they read.
func newReadsWorld(t *testing.T, tweak ...func(*gateway.Options)) *commWorld {
	return newTracedWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) gateway.Classification {
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
		if e.Kind == audit.Outcome && !slices.Contains(e.Labels, "unasked") || e.Kind == audit.Intent && !strings.Contains(string(e.Detail), "nothing vouches for path") {
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
		if report := r.(flow.Report); report.Valid != c.valid {
			t.Errorf("%s: %+v", name, report)
		}
	}
}

// A read with a root is refused everywhere else, by calls, checks and plans alike, and the entry says why.
func TestReadsHaveRoots(t *testing.T) {
	w := newReadsWorld(t, func(o *gateway.Options) {
		dir := t.TempDir()
		rooted := strings.Replace(fmt.Sprintf(declaration, "worker", "execution", "host"), `"mail.*"`, `"mail.find", "mail.crm under docs/", "mail.people under docs/"`, 1)
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
		`{"path":"docs/../keys"}`:             "elsewhere",
		`{"path":"/docs/a.md"}`:               "elsewhere",
		`{}`:                                  "does not say where",
		`{"file":"keys","path":"docs/a.md"}`:  "has no role",
		`{"path":"docs/%2e%2e/keys","q":"x"}`: "percent-encoding",
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
		if report := r.(flow.Report); report.Valid != (code == "") || code != "" && report.Violations[0].Code != code {
			t.Errorf("%s: %+v", step, report)
		}
	}
}
