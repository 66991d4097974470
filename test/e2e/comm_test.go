package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
	"sallyport.example/guard"
)

// What the tests of the built-in external operations (comm_*_test.go) share: a web server that is really there, the people, and an
// agent's visit by whichever door.

// asked is what the person of these tests asked for.
const asked = "What does product X cost in 2026?"

// why is a justification that says something.
var why = client.Justification{
	UserRequest: asked, MissingKnowledge: "the current list price of product X", ExpectedUse: "to quote the price with its source",
}

// seven are the built-in external operations with arguments that each would take.
func seven(web string) map[string]map[string]any {
	return map[string]map[string]any{
		"comm_fetch":      {"url": web + "/plain"},
		"comm_search":     {"query": "product X price 2026"},
		"comm_query":      {"database": "shop", "sql": "SELECT 1"},
		"comm_read_file":  {"path": "notes.md"},
		"comm_write_file": {"path": "notes.md", "content": "product X"},
		"comm_list_files": {"path": "."},
		"comm_exec":       {"argv": []string{"cat", "notes.md"}},
	}
}

// people are who answers in these tests.
const people = `
people:
  - {id: alice, roles: [approver]}
  - {id: carol, roles: [approver]}
  - {id: bob, roles: [approver], identities: [bob@example.com]}
  - {id: vera, roles: [viewer]}
`

// opens is a configuration under which comm.fetch may go to one server of ours.
func opens(web string) string {
	return fmt.Sprintf("comm: {allowed_domains: [%q], protocols: [http]}\n", strings.TrimPrefix(web, "http://"))
}

// plenty is so many calls that no test meets the limit by accident.
const plenty = "limits: {comm_requests_per_minute: 10000, calls_per_minute: 100000, execution_budget: 10h}\n"

// person is a client of a person's.
func (w *world) person(id string, roles ...string) *client.Client {
	w.t.Helper()
	created, err := w.root.CreateToken(context.Background(), client.NewToken{Kind: "person", ID: id, Roles: roles})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.client(w.admin, created.Secret)
}

// website is a web server that remembers who asked what.
type website struct {
	*recorder
	url string
}

func newWebsite(t testing.TB, h http.HandlerFunc) *website {
	t.Helper()
	s := &website{recorder: &recorder{}}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.add("%s %s", r.Method, r.URL)
		h(w, r)
	}))
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.url = srv.URL
	return s
}

// doors are the ways in which an agent comes.
var doors = []string{"mcp " + revision1125, "mcp " + revision0728, "http"}

// visitor is an agent in a session of its own, at one door.
type visitor struct {
	w                    *world
	door, session, token string
	cs                   *mcp.ClientSession
	http                 *client.Client
}

// visit opens a session for the agent on bob's request.
func (w *world) visit(door, agent string) *visitor {
	w.t.Helper()
	s, err := w.root.StartSession(context.Background(), client.OpenSession{AgentID: agent, UserRequest: asked, Requester: "bob"})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.resume(door, s.SessionID, s.SessionToken)
}

// resume is a visit in a session that is there.
func (w *world) resume(door, session, token string) *visitor {
	v := &visitor{w: w, door: door, session: session, token: token, http: w.client(w.agent, token)}
	if revision, ok := strings.CutPrefix(door, "mcp "); ok {
		v.cs = w.connect(token, revision, nil)
	}
	return v
}

// got is what a call came to, whatever the door.
type got struct {
	verdict client.Verdict
	content []block
	meta    client.Attribution
	rawMeta json.RawMessage
	callID  string // of a result
}

type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     []byte `json:"data"`
	MimeType string `json:"mimeType"`
	Resource struct {
		URI      string `json:"uri"`
		MimeType string `json:"mimeType"`
		Blob     []byte `json:"blob"`
	} `json:"resource"`
}

// ok tells whether there is a result.
func (g got) ok() bool { return g.verdict.Code == "" && g.meta.CallID != "" }

// text is the content of all fences: every text must be fenced whole.
func (g got) text(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, c := range g.content {
		if c.Type != "text" {
			continue
		}
		b.WriteString(unfence(t, c.Text))
	}
	return b.String()
}

// unfence is the content of a fenced text, with what was made inert still so.
func unfence(t testing.TB, s string) string {
	t.Helper()
	shown, err := guard.UnwrapForDisplay(s)
	if err != nil {
		t.Fatalf("not fenced: %v: %.300s", err, s)
	}
	var lines []string
	for line := range strings.Lines(shown) {
		if content, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "| "); ok {
			lines = append(lines, content)
		}
	}
	return strings.Join(lines, "\n")
}

// fenced is the text as it was delivered.
func (g got) fenced() string {
	for _, c := range g.content {
		if c.Type == "text" {
			return c.Text
		}
	}
	return ""
}

// with adds the justification to arguments.
func with(arguments map[string]any) map[string]any {
	all := map[string]any{"justification": why}
	for k, v := range arguments {
		all[k] = v
	}
	return all
}

// ask calls a tool with a justification.
func (v *visitor) ask(t testing.TB, tool string, arguments map[string]any) got {
	t.Helper()
	return v.call(t, tool, with(arguments))
}

// fetch fetches a page.
func (v *visitor) fetch(t testing.TB, url string) got {
	t.Helper()
	return v.ask(t, "comm_fetch", map[string]any{"url": url})
}

// call calls a tool. A disk that others keep busy makes the log late, which refuses the call before anything is done (faults_test.go has
// that): here it is made again.
func (v *visitor) call(t testing.TB, tool string, arguments map[string]any) (g got) {
	t.Helper()
	for range 5 {
		var err error
		if g, err = v.try(t.Context(), tool, arguments); err != nil {
			t.Fatalf("%s: %s: %v", v.door, tool, err)
		}
		if g.verdict.Code != "audit.unavailable" || g.verdict.Stage != "intent" {
			break
		}
	}
	return g
}

// try calls a tool; an error is one of the door's, and not a refusal.
func (v *visitor) try(ctx context.Context, tool string, arguments map[string]any) (g got, err error) {
	if v.cs == nil {
		raw, err := json.Marshal(arguments)
		if err != nil {
			return g, err
		}
		a, err := v.http.Call(ctx, v.session, tool, raw)
		if err != nil {
			var p *client.Problem
			if errors.As(err, &p) && p.Status < 500 {
				g.verdict = client.Verdict{Decision: "deny", Code: p.Code, Reason: p.Detail}
				return g, nil
			}
			return g, err
		}
		g.verdict, g.callID = a.Verdict, a.CallID
		if a.Result == nil {
			return g, nil
		}
		var x struct{ Results, Metadata json.RawMessage }
		if err := json.Unmarshal(a.Result, &x); err != nil {
			return g, err
		}
		if err := json.Unmarshal(x.Results, &g.content); err != nil {
			return g, err
		}
		return g, g.attributed(x.Metadata)
	}
	r, err := callTool(ctx, v.cs, tool, arguments)
	var wire *jsonrpc.Error
	if errors.As(err, &wire) {
		var data struct{ Verdict *client.Verdict }
		if json.Unmarshal(wire.Data, &data) != nil || data.Verdict == nil {
			return g, err
		}
		g.verdict = *data.Verdict
		return g, nil
	}
	if err != nil {
		return g, err
	}
	raw, err := json.Marshal(r.Content)
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(raw, &g.content); err != nil {
		return g, err
	}
	if r.verdict != nil {
		g.verdict, g.content = *r.verdict, nil
		return g, nil
	}
	g.verdict.Decision = "permit"
	meta, ok := r.Meta["sallyport/attribution"]
	if !ok {
		return g, fmt.Errorf("no attribution: %v", r.Meta)
	}
	raw, err = json.Marshal(meta)
	if err != nil {
		return g, err
	}
	return g, g.attributed(raw)
}

func (g *got) attributed(raw json.RawMessage) error {
	if err := json.Unmarshal(raw, &g.meta); err != nil {
		return err
	}
	g.rawMeta, g.callID = raw, g.meta.CallID
	return nil
}

// declare declares a need.
func (v *visitor) declare(t testing.TB, operation string, parameters map[string]any) *client.DeclareAnswer {
	t.Helper()
	raw, err := json.Marshal(parameters)
	if err != nil {
		t.Fatal(err)
	}
	d := client.NewDeclaration{Operation: operation, Parameters: raw, Justification: why, Phase: "execution", SessionID: v.session}
	if v.cs == nil {
		a, err := v.http.Declare(t.Context(), v.session, d)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	r, err := callTool(t.Context(), v.cs, "sallyport_declare", d)
	if err != nil || r.verdict != nil {
		t.Fatalf("declare: %v %+v", err, r)
	}
	raw, err = json.Marshal(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	a := &client.DeclareAnswer{}
	if err := json.Unmarshal(raw, a); err != nil {
		t.Fatal(err)
	}
	return a
}

// declared makes the call that a declaration is for.
func (v *visitor) declared(t testing.TB, tool, declaration string) got {
	t.Helper()
	return v.call(t, tool, map[string]any{"declaration_id": declaration})
}

// held are the session's labels.
func (v *visitor) held(t testing.TB) []string {
	t.Helper()
	s, err := v.http.Status(t.Context(), v.session)
	if err != nil {
		t.Fatal(err)
	}
	words := []string{}
	for _, h := range s.Labels {
		words = append(words, h.Label)
	}
	return words
}

// refusal fails the test unless the call was refused with the code.
func refusal(t testing.TB, g got, code string) {
	t.Helper()
	if g.verdict.Code != code || g.ok() {
		t.Errorf("%q instead of %q: %+v %.200s", g.verdict.Code, code, g.verdict, g.fenced())
	}
}

// permit fails the test unless there is a result that is attributed and whose every text is fenced (EX-1, AT-1, FE-1).
func permit(t testing.TB, v *visitor, g got) {
	t.Helper()
	if !g.ok() {
		t.Fatalf("%s: refused: %+v", v.door, g.verdict)
	}
	operation, session, err := guard.ParseAttribution(g.meta.Attribution)
	if err != nil || session != v.session || "comm."+operation != g.meta.Operation || g.meta.SessionID != v.session {
		t.Errorf("attribution %q %v: %+v", g.meta.Attribution, err, g.meta)
	}
	if g.meta.TrustLevel != guard.TrustLevel || g.meta.Source == "" || g.meta.Timestamp.IsZero() || len(g.meta.ContentSHA256) != 64 || len(g.meta.Declaration) != 64 {
		t.Errorf("metadata %+v", g.meta)
	}
	g.text(t)
}

// chain checks what must hold of every log: an intent has one outcome, which comes later; an outcome has an intent; and what was declared
// has its digest in the intent. It returns the intents and outcomes by call.
func (w *world) chain() (intents, outcomes map[string]client.Entry) {
	w.t.Helper()
	intents, outcomes = map[string]client.Entry{}, map[string]client.Entry{}
	for _, e := range w.entries() {
		switch e.Kind {
		case "intent":
			if _, twice := intents[e.CallID]; twice {
				w.t.Errorf("%s has two intents", e.CallID)
			}
			intents[e.CallID] = e
			if strings.HasPrefix(e.Operation, "comm.") && len(detail(w.t, e).Declaration.Digest) != 64 {
				w.t.Errorf("the intent of %s has no declaration: %s", e.Operation, e.Detail)
			}
		case "outcome":
			if i, there := intents[e.CallID]; !there || i.Index >= e.Index {
				w.t.Errorf("the outcome of %s has no intent before it", e.CallID)
			}
			if _, twice := outcomes[e.CallID]; twice {
				w.t.Errorf("%s has two outcomes", e.CallID)
			}
			outcomes[e.CallID] = e
			if e.Decision == "ok" && strings.HasPrefix(e.Operation, "comm.") && len(e.Attribution) == 0 {
				w.t.Errorf("the outcome of %s is not attributed", e.Operation)
			}
		}
	}
	for id, e := range intents {
		if _, there := outcomes[id]; !there {
			w.t.Errorf("the intent of %s (%s) has no outcome", id, e.Operation)
		}
	}
	return intents, outcomes
}

// close ends the gateway and verifies its log at rest.
func (w *world) close(t *testing.T) {
	t.Helper()
	w.chain()
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if report := w.place.verify(t); len(report.Unknown) > 0 {
		t.Errorf("intents without an outcome: %v", report.Unknown)
	}
}

// detailOf is what an entry says beside its fields.
type detailOf struct {
	Declaration declaredAs `json:"declaration"`
	ApprovalID  string     `json:"approval_id"`
	Carries     []struct {
		Source, Operation, Session string
	} `json:"carries"`
}

func detail(t testing.TB, e client.Entry) (d detailOf) {
	t.Helper()
	if len(e.Detail) > 0 {
		if err := json.Unmarshal(e.Detail, &d); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

type declaredAs struct {
	Digest        string
	ID            string
	Justification client.Justification
	Flags         []string
}

func isOutcome(e client.Entry) bool { return e.Kind == "outcome" }

func (w *world) entriesOf(session string, pick func(client.Entry) bool) []client.Entry {
	w.t.Helper()
	return slices.DeleteFunc(w.entries(), func(e client.Entry) bool { return e.Session != session || !pick(e) })
}
