package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// TestOnePersonAlone plays a day of a person who has nobody beside them, with the token that the gateway made for admin: the person asks for
// something, answers the questions about it up to HIGH, and can't answer what is CRITICAL. Each answer is marked as the person's own, in the record, on
// the pages and in the figures.
func TestOnePersonAlone(t *testing.T) {
	done, site := &recorder{}, newServer("site")
	for _, name := range []string{"look", "tell", "publish", "wipe"} {
		tool(site, name, "Does it.", func(_ context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
			done.add("%s %s", name, arguments)
			return text("done"), nil
		})
	}
	w := start(t, fmt.Sprintf(`
approvals: {hold: 10ms, medium_delay: 1m}
upstreams: {site: {url: %q}}
operations:
  site.*: {sensitivity: none, output: trusted}
  site.look: {effect: read}
  site.tell: {action: send_email}
  site.publish: {action: publish_content}
  site.wipe: {risk: CRITICAL}
`, sdkServer(t, site)))
	eventually(t, 20*time.Second, "the tools are there", func() bool {
		tools, err := w.root.Tools(t.Context())
		return err == nil && len(tools) >= 4
	})
	w.acceptDefinitions(anyDefinition)
	s, err := w.root.StartSession(t.Context(), client.OpenSession{AgentID: "tester", UserRequest: "Publish page 7."})
	if err != nil {
		t.Fatal(err)
	}
	agent := w.client(w.agent, s.SessionToken)
	call := verdicts(t, agent, s.SessionID)
	asked := func(tool, arguments, risk string) *client.Approval {
		t.Helper()
		v := call(tool, arguments)
		if v.Code != "approval.required" || v.ApprovalID == nil {
			t.Fatalf("%s: %+v", tool, v)
		}
		a, err := w.root.Approval(t.Context(), *v.ApprovalID)
		if err != nil || a.Risk != risk || a.OpenedBy != "person:admin" {
			t.Fatalf("%s: %+v, %v", tool, a, err)
		}
		return a
	}
	own := func(a *client.Approval, err error) {
		t.Helper()
		if err != nil || len(a.Votes) != 1 || a.Votes[0].Person != "admin" || !a.Votes[0].Own {
			t.Errorf("the answer: %+v, %v", a, err)
		}
	}

	if v := call("site_look", `{}`); v.Decision != "permit" {
		t.Errorf("a read: %+v", v)
	}
	high := asked("site_publish", `{"page":7}`, "HIGH")
	own(w.root.Approve(t.Context(), high.ApprovalID, high.Digest, "go on"))
	if v := call("site_publish", `{"page":7}`); v.Decision != "permit" {
		t.Errorf("after the yes: %+v", v)
	}
	if words, err := w.root.AddWords(t.Context(), s.SessionID, "Then tell ann@corp.example."); err != nil || !words.Confirms {
		t.Errorf("more words: %+v, %v", words, err)
	}
	told := make(chan *client.CallAnswer, 1) // it waits to be stopped
	go func() {
		a, err := agent.Call(t.Context(), s.SessionID, "site_tell", json.RawMessage(`{"to":"ann@corp.example"}`))
		if err != nil {
			a = &client.CallAnswer{Verdict: client.Verdict{Reason: err.Error()}}
		}
		told <- a
	}()
	var medium client.Approval
	eventually(t, 20*time.Second, "what is MEDIUM waits", func() bool {
		page, err := w.root.Approvals(t.Context(), client.ApprovalQuery{State: "pending"})
		if err != nil || len(page.Approvals) == 0 {
			return false
		}
		medium = page.Approvals[0]
		return medium.Risk == "MEDIUM"
	})
	own(w.root.Reject(t.Context(), medium.ApprovalID, medium.Digest, "not yet"))
	if a := <-told; a.Verdict.Code != "approval.rejected" {
		t.Errorf("after the no: %+v", a.Verdict)
	}
	other := asked("site_publish", `{"page":8}`, "HIGH")
	own(w.root.Reject(t.Context(), other.ApprovalID, other.Digest, "another page"))
	for arguments, code := range map[string]string{`{"page":8}`: "approval.rejected", `{"page":7}`: "approval.required"} { // one yes is for one call
		if v := call("site_publish", arguments); v.Code != code {
			t.Errorf("%s: %+v", arguments, v)
		}
	}
	critical := asked("site_wipe", `{}`, "CRITICAL")
	var problem *client.Problem
	if _, err := w.root.Approve(t.Context(), critical.ApprovalID, critical.Digest, ""); !errors.As(err, &problem) || problem.Code != "role.missing" || !strings.Contains(problem.Error(), "Two other people") {
		t.Errorf("what is CRITICAL: %v", err)
	}
	if got := done.all(); strings.Join(got, "; ") != `look {}; publish {"page":7}` {
		t.Errorf("what ran: %q", got)
	}

	figures, err := w.root.VoteCounts(t.Context())
	if err != nil || *figures != (client.VoteCounts{Requests: 3, Approved: 1, Rejected: 2, Own: 3}) {
		t.Errorf("the figures: %+v, %v", figures, err)
	}
	answers := 0
	for _, e := range w.entries() {
		if e.Kind == "change" && (e.Action == "approval.approve" || e.Action == "approval.reject") { // and not what was refused
			var detail struct{ Own bool }
			if err := json.Unmarshal(e.Detail, &detail); err != nil || !detail.Own || e.Actor != "person:admin" {
				t.Errorf("entry %d: %s by %s, %v", e.Index, e.Detail, e.Actor, err)
			}
			answers++
		}
	}
	if answers != 3 {
		t.Errorf("%d answers are on record", answers)
	}
	page := w.pages()
	for path, words := range map[string]string{
		"/": "1 approved, 2 rejected, <strong>3 answered by the person who had asked</strong>", "/approvals/" + high.ApprovalID: "own request", "/approvals/" + medium.ApprovalID: "own request",
		"/approvals/" + critical.ApprovalID: "wo other people",
	} {
		if shown := page(path); !strings.Contains(shown, words) {
			t.Errorf("%s does not say %q:\n%s", path, words, shown)
		}
	}
}

// pages signs admin in to the console by a link, and returns what reads a page of it.
func (w *world) pages() func(path string) string {
	w.t.Helper()
	link, err := w.root.SignInLink(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	read := func(res *http.Response, err error) string {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			w.t.Fatalf("%s: %v\n%s", res.Status, err, b)
		}
		return string(b)
	}
	read(browser.PostForm(link.URL, url.Values{}))
	return func(path string) string { return read(browser.Get(w.admin + path)) }
}
