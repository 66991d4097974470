package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// A model judges sentences, one source at a time: for an agent as its own request, for a person as the gateway's. It gets no text with a label that it may not have.
func TestJudgeOfClaims(t *testing.T) {
	const judge = "claude-haiku-4-5-20251001"
	p := newModelProvider(t)
	p.says(func(w http.ResponseWriter, r modelRequest) bool {
		verdict := `{"verdict":"unclear","quote":""}`
		switch {
		case strings.Contains(r.body, "three sisters"):
			verdict = `{"verdict":"yes","quote":"three sisters founded Acme in 1999"}`
		case strings.Contains(r.body, "Acme dates from 1999"):
			verdict = `{"verdict":"yes","quote":"Acme dates from 1999"}`
		}
		text, err := json.Marshal(verdict)
		w.Header().Set("Content-Type", "application/json")
		_, failed := fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[{"type":"text","text":%s}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":9}}`, judge, text)
		return err == nil && failed == nil
	})
	declared := strings.Replace(reads("judging", "\"knowledge.*\"", "knowledge: {labels: [internal, pii]}\n"), "models: []", "models: ["+judge+"]", 1)
	w := launch(t, newPlace(t, fmt.Sprintf("flow: {labels: [internal, pii, secret]}\nmodels:\n  - {id: %s, provider: anthropic, base_url: %q, key: %s, labels: [internal]}\nclaims: {sources: [knowledge.registry, knowledge.handbook], judge: %[1]s}\n", judge, p.url, keyOf),
		declared, reads("undeclared", "\"knowledge.*\"", "knowledge: {labels: [internal]}\n")))
	registry := w.addDocument("registry", "acme.md", "The story goes that three sisters founded Acme in 1999, in Graz.")
	w.addDocument("handbook", "acme.md", "Acme dates from 1999 and is in good health.", "internal")
	w.addDocument("people", "acme.md", "Zebulon of Acme, founded 1999, lives on Elm Street.", "pii")
	w.snapshot()

	const sentence = "Acme was founded in 1999."
	ask := func(agent string) (session string, got client.ClaimAnswer) {
		t.Helper()
		session, token := w.open(agent)
		fencedJSON(t, must(t, w.connect(token, revision1125, nil), "sallyport_validate_claim", map[string]any{"claim": sentence, "sources": []string{"knowledge.people"}}), &got)
		return session, got
	}
	session, got := ask("judging")
	if !got.Valid || got.Confidence != 1 || len(got.Sources) != 3 || got.Sources[0].Quote != "three sisters founded Acme in 1999" || got.Sources[2].Confirms != nil || got.Sources[2].Counts {
		t.Errorf("%+v", got)
	}
	if s, err := w.root.Session(t.Context(), session); err != nil || !strings.Contains(fmt.Sprint(s.Labels), "internal") || strings.Contains(fmt.Sprint(s.Labels), "pii") {
		t.Errorf("%+v, %v", s.Labels, err)
	}
	before := len(p.requests())
	if _, got := ask("undeclared"); got.Valid || got.Confidence != 0 || len(p.requests()) != before {
		t.Errorf("an agent that does not declare the model: %+v", got)
	}
	status, body := w.send("POST", w.admin+"/v1/claims", w.place.secret(t, "admin.token"), `{"claim":"Acme was founded in 1999.","sources":["knowledge.people"]}`, nil)
	if status != 200 || strings.Count(string(body), `"confirms":true`) != 2 || !strings.Contains(string(body), `"is_valid":true`) {
		t.Errorf("a person: %d %s", status, body)
	}
	for _, r := range p.requests() {
		if strings.Contains(r.body, "Elm") || strings.Contains(r.body, "sisters") && strings.Contains(r.body, "good health") {
			t.Errorf("it left: %s", r.body)
		}
	}
	kinds := map[string]int{}
	for _, e := range w.entries() {
		if e.Action == "claim.judge" || e.Action == "models/request" {
			kinds[e.Action+" "+e.Actor+" "+string(e.Kind)+" "+e.Decision]++
			if b, err := json.Marshal(e); err != nil || strings.Contains(string(b), "sisters") || strings.Contains(string(b), "founded") {
				t.Errorf("%s %v", b, err)
			}
		}
	}
	for _, kind := range []string{"claim.judge person:admin intent permit", "claim.judge person:admin outcome ok", "claim.judge person:admin decision deny", "claim.judge agent:judging decision permit"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s: %v", kind, kinds)
		}
	}
	if gone, err := w.root.WithdrawDocuments(t.Context(), client.KnowledgeWithdrawal{Source: "registry", Reason: "poisoned"}); err != nil || len(gone.Models) != 1 || gone.Models[0] != judge {
		t.Errorf("%s: %+v, %v", registry, gone, err)
	}
	// Stopped: nobody is asked.
	if _, err := w.root.Kill(t.Context(), "", "a test"); err != nil {
		t.Fatal(err)
	}
	before = len(p.requests())
	if status, body := w.send("POST", w.admin+"/v1/claims", w.place.secret(t, "admin.token"), `{"claim":"Acme was founded in 1999."}`, nil); status != 200 || strings.Contains(string(body), `"confirms":true`) || len(p.requests()) != before {
		t.Errorf("stopped: %d %s", status, body)
	}
	if _, err := w.root.Unkill(t.Context(), "", "a test"); err != nil {
		t.Fatal(err)
	}
	w.sane()
}

// A schema requires that a fact is a valid claim: an output with another one is refused, of a session and of a run, and what is confirmed is on record with it.
func TestClaimsOfOutputs(t *testing.T) {
	var value atomic.Value
	value.Store("1999")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"action":"KEEP","founded":{"subject":"Acme","attribute":"founded","value":%q}}`, value.Load())
	}))
	t.Cleanup(srv.Close)
	const schema = "\noutputSchema: {type: object, additionalProperties: false, required: [action, founded], properties: {action: {enum: [KEEP, DROP]}, founded: {type: object, x-claim: true, additionalProperties: false, required: [subject, attribute, value], properties: " +
		"{subject: {enum: [Acme]}, attribute: {enum: [founded, owner]}, value: {type: string, maxLength: 100, pattern: '^[^<>]*$'}}}}}\n"
	withSchema := func(declared string) string {
		before, after, _ := strings.Cut(declared, "\noutputSchema:")
		_, after, _ = strings.Cut(after, "\nmaxExecutionTime:")
		return before + schema + "maxExecutionTime:" + after
	}
	advises := func(id, tables, more string) string {
		return withSchema(reads(id, tables, more)) + "recommendationActions: {DROP: none}\n"
	}
	w := launch(t, newPlace(t, "flow: {labels: [internal, pii, secret]}\nclaims: {sources: [knowledge.registry, knowledge.handbook]}\n",
		advises("advisor", `"knowledge.*"`, "knowledge: {labels: [internal]}\n"+fmt.Sprintf("run: {kind: http, url: '%s/run'}\n", srv.URL)), advises("half", "knowledge.registry", "")))
	w.addDocument("registry", "acme.csv", "Firm,Founded,Owner\nAcme,1999,Smith\n")
	w.addDocument("handbook", "acme.md", "# Acme\n\nFounded: 1999\n")
	w.addDocument("handbook", "owners.md", "# Acme\n\nOwner: Smith\n", "internal")
	w.snapshot()

	recommend := func(token, attribute, value string) (int, string) {
		output := fmt.Sprintf(`{"action":"KEEP","founded":{"subject":"Acme","attribute":%q,"value":%q}}`, attribute, value)
		status, body := w.post("/v1/session/self/recommendations", token, output, nil)
		return status, string(body)
	}
	_, token := w.open("advisor")
	if status, body := recommend(token, "founded", "1998"); status != 422 || !strings.Contains(body, "output.invalid") || !strings.Contains(body, `"founded"`) || !strings.Contains(body, "0.00") {
		t.Errorf("what no source says: %d %s", status, body)
	}
	status, body := recommend(token, "founded", "1999")
	var made client.Recommended
	if status != 201 || json.Unmarshal([]byte(body), &made) != nil {
		t.Fatalf("%d %s", status, body)
	}
	rec, err := w.root.Recommendation(t.Context(), made.RecommendationID)
	if err != nil || len(rec.Claims) != 1 || rec.Claims[0].Field != "founded" || rec.Claims[0].Confidence != 1 || len(rec.Claims[0].ConfirmedBy) != 2 {
		t.Errorf("%+v %v", rec, err)
	}
	// A document with a label that the session doesn't hold is silent, so the answer tells nothing of it; once the session has it, it confirms.
	if status, body := recommend(token, "owner", "Smith"); status != 422 || !strings.Contains(body, "0.50") {
		t.Errorf("a label that the session does not hold: %d %s", status, body)
	}
	var answer client.ClaimAnswer
	fencedJSON(t, must(t, w.connect(token, revision1125, nil), "sallyport_validate_claim", map[string]any{"claim": map[string]string{"subject": "Acme", "attribute": "owner", "value": "Smith"}}), &answer)
	if status, body := recommend(token, "owner", "Smith"); !answer.Valid || status != 201 {
		t.Errorf("after it was asked: %+v %d %s", answer, status, body)
	}
	// An agent that may not read one of the two has one source.
	_, token = w.open("half")
	if status, body := recommend(token, "founded", "1999"); status != 422 || !strings.Contains(body, "0.50") {
		t.Errorf("half: %d %s", status, body)
	}

	carry := func() *client.Run {
		t.Helper()
		r, err := w.root.StartRun(t.Context(), "advisor", client.RunRequest{Input: json.RawMessage(`{}`)})
		for err == nil && r.Status == "running" {
			r, err = w.root.Run(t.Context(), r.RunID, 20*time.Second)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := carry(); r.Status != "done" || len(r.Claims) != 1 || r.RecommendationID == "" {
		t.Errorf("%+v %+v", r, r.Verdict)
	}
	value.Store("2001")
	if r := carry(); r.Status != "invalid" || r.Verdict == nil || r.Verdict.Code != "output.invalid" || len(r.Output) > 0 || len(r.Claims) > 0 {
		t.Errorf("%+v %+v", r, r.Verdict)
	}
	if code, out, errs := w.command(nil, "recommendations", "show", made.RecommendationID); code != 0 || !strings.Contains(out, "confidence 1.00, confirmed by knowledge.registry, knowledge.handbook") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	denied := 0
	for _, e := range w.entries() {
		if e.Action == "claim" && e.Decision == "deny" && e.Actor == "gateway:run" && e.Agent != "" {
			denied++
		}
	}
	if denied != 4 {
		t.Errorf("%d claims on record as possible poisoning", denied)
	}
	w.sane()
}

// Stopped while a judge is asked, by SIGTERM and by kill -9, for a person and for an agent: a verdict is on record where it was answered, and nowhere else. After a stop that was asked for, each
// request has its outcome; after a crash it is shown as unknown. Then the claim is checked anew.
func TestStopWhileClaimsAreJudged(t *testing.T) {
	t.Parallel()
	const judge = "claude-haiku-4-5-20251001"
	var hang atomic.Bool
	asked, release := make(chan struct{}, 8), make(chan struct{})
	p := newModelProvider(t)
	p.says(func(w http.ResponseWriter, _ modelRequest) bool {
		if hang.Load() {
			asked <- struct{}{}
			<-release
		}
		text, err := json.Marshal(`{"verdict":"yes","quote":"three sisters founded Acme in 1999"}`)
		w.Header().Set("Content-Type", "application/json")
		_, failed := fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[{"type":"text","text":%s}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":9}}`, judge, text)
		return err == nil && failed == nil
	})
	t.Cleanup(func() { close(release) }) // before the provider is closed
	declared := strings.Replace(reads("judging", "\"knowledge.*\"", "knowledge: {labels: [internal]}\n"), "models: []", "models: ["+judge+"]", 1)
	place := newPlace(t, fmt.Sprintf("flow: {labels: [internal, pii, secret]}\nmodels:\n  - {id: %s, provider: anthropic, base_url: %q, key: %s, labels: [internal]}\nclaims: {sources: [knowledge.registry], min: 1, judge: %[1]s}\n", judge, p.url, keyOf), declared)
	w := launch(t, place)
	w.addDocument("registry", "acme.md", "The story goes that three sisters founded Acme in 1999, in Graz.")
	w.snapshot()
	const claim = `{"claim":"Acme was founded in 1999."}`
	verdicts := func(w *world) (n int) {
		for _, e := range w.entries() {
			if e.Action == "claim" {
				n++
			}
		}
		return n
	}
	answered := 0
	for _, stop := range []struct {
		name string
		do   func(w *world) error
	}{
		{"SIGTERM", func(w *world) error { return w.signal(syscall.SIGTERM) }},
		{"kill -9", func(w *world) error { w.kill(); return nil }},
	} {
		hang.Store(true)
		_, token := w.open("judging")
		agent := w.connect(token, revision1125, nil)
		secret := w.place.secret(t, "admin.token")
		answers := make(chan string, 2)
		go func() {
			r, err := http.NewRequest("POST", w.admin+"/v1/claims", strings.NewReader(claim))
			if err != nil {
				answers <- ""
				return
			}
			r.Header.Set("Authorization", "Bearer "+secret)
			r.Header.Set("Content-Type", "application/json")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				answers <- err.Error()
				return
			}
			defer answer.Body.Close()
			body, _ := io.ReadAll(answer.Body) // what was cut is no verdict
			answers <- string(body)
		}()
		go func() {
			r, err := agent.CallTool(t.Context(), &mcp.CallToolParams{Name: "sallyport_validate_claim", Arguments: map[string]any{"claim": "Acme was founded in 1999."}})
			if err != nil {
				answers <- err.Error()
				return
			}
			b, _ := json.Marshal(r) // of what was decoded: can't fail
			answers <- string(b)
		}()
		<-asked
		<-asked
		if err := stop.do(w); err != nil {
			t.Errorf("%s: %v", stop.name, err)
		}
		for range 2 {
			switch a := <-answers; {
			case a == "" || strings.Contains(a, `"is_valid":true`):
				t.Errorf("%s: answered %q", stop.name, a)
			case strings.Contains(a, `"is_valid":false`): // the judge's time was over before that of the stop
				answered++
			}
		}
		unknown := len(place.verify(t).Unknown)
		if crashed := stop.name == "kill -9"; crashed && unknown != 3 || !crashed && unknown != 0 {
			t.Errorf("%s: %d requests of unknown end", stop.name, unknown)
		}
		hang.Store(false)
		w = launch(t, place)
		if n := verdicts(w); n != answered {
			t.Errorf("%s: %d verdicts are on record, and %d were answered", stop.name, n, answered)
		}
		if status, body := w.send("POST", w.admin+"/v1/claims", w.place.secret(t, "admin.token"), claim, nil); status != 200 || !strings.Contains(string(body), `"is_valid":true`) {
			t.Errorf("%s: checked anew: %d %s", stop.name, status, body)
		}
		answered++
	}
}
