package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

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
