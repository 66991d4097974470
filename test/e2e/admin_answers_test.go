package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// An operation whose answers are an administrator's: each call of it is asked about, whatever its risk, and nobody else's answer is taken, by the API, on the
// command line or on the page, not even a requester's whom the operator lets answer. The queue, the page, the terminal and the message say who can. An
// administrator who is none any more when the call runs does not count.
func TestAnAdministratorAnswers(t *testing.T) {
	hook, done, site := newReceiver(t), &recorder{}, newServer("mail")
	for _, name := range []string{"look", "wipe", "note"} {
		tool(site, name, "Does it.", func(_ context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
			done.add("%s %s", name, arguments)
			return text("done"), nil
		})
	}
	config := fmt.Sprintf(`
approvals: {hold: 10ms, medium_delay: 10ms, requester: high}
people: [{id: bob, roles: [approver, operator]}, {id: dana, roles: [admin, approver]}]
upstreams: {mail: {url: %q}}
notify: [{kind: webhook, url: %q, secret: %q, on: [approval]}]
operations:
  mail.*: {sensitivity: none, output: trusted, approvals: {role: admin}}
  mail.look: {effect: read}
  mail.wipe: {risk: CRITICAL}
  mail.note: {declare: required, risk: HIGH}
`, sdkServer(t, site), hook.url, hook.secret)
	w := launch(t, newPlace(t, config))
	w.offered(3)
	w.acceptDefinitions(anyDefinition)
	bob, dana := w.person("bob", "approver", "operator"), w.person("dana", "admin")
	s, err := bob.StartSession(t.Context(), client.OpenSession{AgentID: "tester", UserRequest: "Look at page 7."})
	if err != nil {
		t.Fatal(err)
	}
	agent := w.client(w.agent, s.SessionToken)
	call := verdicts(t, agent, s.SessionID)
	v := call("mail_look", `{"page":7}`)
	if v.Code != "approval.required" || v.ApprovalID == nil || !strings.Contains(v.Reason, "role admin") {
		t.Fatalf("a read: %+v", v)
	}
	q, err := bob.Approval(t.Context(), *v.ApprovalID)
	if err != nil || q.Role != "admin" || q.Risk != "LOW" || q.Needed != 1 || !q.SilenceAt.IsZero() {
		t.Fatalf("%+v %v", q, err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if problemCode(err) != "role.missing" || !strings.Contains(err.Error(), "Only people with the role admin can answer this.") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = bob.Approve(t.Context(), q.ApprovalID, q.Digest, "")
	refused("the requester, who is an approver", err)
	_, err = bob.Reject(t.Context(), q.ApprovalID, q.Digest, "no")
	refused("a rejection", err)
	_, err = w.person("dana", "approver").Approve(t.Context(), q.ApprovalID, q.Digest, "")
	refused("an administrator with an approver's token", err)

	t.Run("said", func(t *testing.T) {
		page := newBrowser(t)
		page.signIn(w, w.tokenOf("bob", "approver", "operator"))
		page.open(w.admin + "/approvals")
		page.see("for people with the role admin")
		page.open(w.admin + "/approvals/" + q.ApprovalID)
		page.see("1 approval of people with the role admin")
		page.see("Only people with the role admin can answer this.")
		t.Setenv("SALLYPORT_TOKEN", w.tokenOf("bob", "approver", "operator"))
		if code, out, _ := w.command(nil, "approvals", "list"); code != 0 || !strings.Contains(out, "0 of 1 (role admin)") {
			t.Errorf("the list: %d %s", code, out)
		}
		if code, out, _ := w.command(nil, "approvals", "show", q.ApprovalID); code != 0 || !strings.Contains(out, "only people with the role admin") {
			t.Errorf("the terminal: %d %s", code, out)
		}
		if code, _, err := w.command(nil, "approvals", "approve", q.ApprovalID, "--yes", "--digest", q.Digest); code != 1 || !strings.Contains(err, "Only people with the role admin") {
			t.Errorf("the command: %d %s", code, err)
		}
		eventually(t, patience, "the message comes", func() bool { return hook.about("a person with the role admin") >= 1 })
	})

	if a, err := dana.Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil || a.State != "approved" {
		t.Fatalf("an administrator: %+v %v", a, err)
	}
	setDana := func(roles string) {
		t.Helper()
		text, err := os.ReadFile(w.place.config)
		if err != nil {
			t.Fatal(err)
		}
		write(t, w.place.config, strings.NewReplacer("{id: dana, roles: [admin, approver]}", "{id: dana, roles: ["+roles+"]}", "{id: dana, roles: [approver]}", "{id: dana, roles: ["+roles+"]}").Replace(string(text)))
		if _, err := w.root.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	setDana("approver")
	if v := call("mail_look", `{"page":7}`); v.Code != "approval.required" || len(done.all()) > 0 {
		t.Fatalf("the vote of one who is no administrator any more: %+v, ran: %q", v, done.all())
	}
	if a, err := w.root.Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil || a.State != "approved" {
		t.Fatalf("another administrator: %+v %v", a, err)
	}
	if v := call("mail_look", `{"page":7}`); v.Decision != "permit" || len(done.all()) != 1 {
		t.Errorf("after the yes: %+v, ran: %q", v, done.all())
	}

	setDana("admin, approver")
	v = call("mail_wipe", `{}`)
	if v.ApprovalID == nil || !strings.Contains(v.Reason, "two people with the role admin") {
		t.Fatalf("%+v", v)
	}
	if q, err = bob.Approval(t.Context(), *v.ApprovalID); err != nil || q.Needed != 2 || q.Role != "admin" {
		t.Fatalf("%+v %v", q, err)
	}
	for i, c := range []*client.Client{dana, w.root} {
		if a, err := c.Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil || (a.State == "approved") != (i == 1) {
			t.Fatalf("%+v %v", a, err)
		}
	}
	if v := call("mail_wipe", `{}`); v.Decision != "permit" || len(done.all()) != 2 {
		t.Errorf("after two: %+v, ran: %q", v, done.all())
	}

	// A question that was asked before the operator wanted an administrator is asked anew, whoever approved it.
	text, err := os.ReadFile(w.place.config)
	if err != nil {
		t.Fatal(err)
	}
	without := strings.NewReplacer("output: trusted, approvals: {role: admin}", "output: trusted, risk: HIGH").Replace(string(text))
	write(t, w.place.config, without)
	if _, err := w.root.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	declare := func() *client.DeclareAnswer {
		t.Helper()
		d, err := agent.Declare(t.Context(), s.SessionID, client.NewDeclaration{Operation: "mail.note", Parameters: json.RawMessage(`{"page":7}`),
			Justification: client.Justification{UserRequest: "Look at page 7.", MissingKnowledge: "what page 7 of the documents says today", ExpectedUse: "to say what stands on page 7"}})
		if err != nil || d.ApprovalID == "" {
			t.Fatalf("%+v %v", d, err)
		}
		return d
	}
	declared, earlier := declare(), call("mail_look", `{"page":8}`)
	if earlier.ApprovalID == nil {
		t.Fatalf("%+v", earlier)
	}
	if again := declare(); again.ApprovalID != declared.ApprovalID {
		t.Errorf("the same declaration is asked about twice: %+v", again)
	}
	if q, err = bob.Approval(t.Context(), *earlier.ApprovalID); err != nil || q.Role != "" {
		t.Fatalf("%+v %v", q, err)
	}
	if a, err := bob.Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil || a.State != "approved" {
		t.Fatalf("%+v %v", a, err)
	}
	write(t, w.place.config, string(text))
	if _, err := w.root.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := call("mail_look", `{"page":8}`); v.ApprovalID == nil || *v.ApprovalID == q.ApprovalID || len(done.all()) != 2 {
		t.Errorf("an approver's yes of before: %+v, ran: %q", v, done.all())
	}
	if again := declare(); again.ApprovalID == declared.ApprovalID {
		t.Errorf("a declaration keeps the question that approvers answer: %+v", again)
	} else if q, err = bob.Approval(t.Context(), again.ApprovalID); err != nil || q.Role != "admin" {
		t.Errorf("the question about the declaration: %+v %v", q, err)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.place.verify(t)
}
