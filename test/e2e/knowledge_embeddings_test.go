package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/knowledge"
)

// embeds answers as a server of embeddings to which "reimbursed" and "paid" mean the same.
func embeds(model string) func(w http.ResponseWriter, r modelRequest) bool {
	return func(w http.ResponseWriter, r modelRequest) bool {
		var asked struct{ Input []string }
		if !strings.HasSuffix(r.path, "/embeddings") || json.Unmarshal([]byte(r.body), &asked) != nil {
			return false
		}
		var data []any
		for i, text := range asked.Input {
			v := make([]float64, 256)
			for word := range knowledge.Words(text) {
				if word == "reimbursed" {
					word = "paid"
				}
				h := fnv.New32a()
				h.Write([]byte(word))
				v[h.Sum32()%256]++
			}
			data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": v})
		}
		b, err := json.Marshal(map[string]any{"object": "list", "model": model, "data": data, "usage": map[string]int{"prompt_tokens": 3, "total_tokens": 3}})
		w.Header().Set("Content-Type", "application/json")
		_, failed := w.Write(b)
		return err == nil && failed == nil
	}
}

// embedded waits until a document has its embeddings, and the index them.
func (w *world) embedded(id string) {
	w.t.Helper()
	for range 600 {
		d, err := w.root.Document(context.Background(), id, time.Time{})
		if err != nil {
			w.t.Fatal(err)
		}
		if d.Embedding != nil {
			if f, err := w.root.SearchKnowledge(context.Background(), "anything", "", 1); err == nil && f.Search == "hybrid" {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatal("the document got no embedding")
}

// A model that embeds makes search find what is worded in another way. What is sent there is a request to a model: by the labels that it may have, the declaration of the agent, and the switch; and on record.
func TestSearchByMeaning(t *testing.T) {
	const small, text = "text-embedding-3-small", "Expenses abroad are paid within thirty days."
	p := newModelProvider(t)
	p.says(embeds(small))
	declared := strings.Replace(reads("meaning", "knowledge.handbook", "knowledge: {labels: [pii]}\n"), "models: []", "models: ["+small+"]", 1)
	w := launch(t, newPlace(t, fmt.Sprintf("flow: {labels: [internal, pii, secret]}\nmodels:\n  - {id: %s, provider: openai, base_url: %q, key: %s, pinned: true, labels: [internal]}\nknowledge: {embeddings: %[1]s, collections: {handbook: {trusted: true}}}\n", small, p.url+"/v1", keyOf),
		declared, reads("words", "knowledge.handbook", "")))
	paid := w.addDocument("handbook", "travel.md", text)
	w.addDocument("handbook", "vacation.md", "A vacation needs a form.", "internal")
	personal := w.addDocument("handbook", "people.md", "Zebulon lives on Elm Street.", "pii")
	w.snapshot()
	w.embedded(paid)

	search := func(token, query string) (f client.KnowledgeFound) {
		t.Helper()
		fencedJSON(t, must(t, w.connect(token, revision1125, nil), "knowledge_search", map[string]any{"query": query}), &f)
		return f
	}
	first := func(f client.KnowledgeFound) string {
		if len(f.Hits) == 0 {
			return ""
		}
		return f.Hits[0].DocumentID
	}
	meaning, token := w.open("meaning")
	if f := search(token, "reimbursed"); f.Search != "hybrid" || first(f) != paid {
		t.Errorf("by meaning: %+v", f)
	}
	_, other := w.open("words")
	if f := search(other, "reimbursed"); f.Search != "text" || len(f.Hits) != 0 || !strings.Contains(f.TextOnly, "that embeds") || strings.Contains(f.TextOnly, small) {
		t.Errorf("an agent that does not declare the model: %+v", f)
	}
	if f, err := w.root.SearchKnowledge(t.Context(), "reimbursed", "", 3); err != nil || f.Search != "hybrid" || len(f.Hits) == 0 || f.Hits[0].DocumentID != paid {
		t.Errorf("a person: %+v, %v", f, err)
	}

	// Labels: of a document, of a person's question, and of a session that has read.
	if d, err := w.root.Document(t.Context(), personal, time.Time{}); err != nil || d.Embedding != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if f, err := w.root.SearchKnowledge(t.Context(), "who has the account DE89 3704 0044 0532 0130 00", "", 3); err != nil || f.Search != "text" || !strings.Contains(f.TextOnly, "pii") {
		t.Errorf("a question with personal data: %+v, %v", f, err)
	}
	if f := search(token, "zebulon"); !slices.ContainsFunc(f.Hits, func(h client.KnowledgeHit) bool { return h.DocumentID == personal }) {
		t.Errorf("%+v", f)
	}
	before := len(p.requests())
	if f := search(token, "reimbursed"); f.Search != "text" {
		t.Errorf("a session that holds pii: %+v", f)
	}
	if n := len(p.requests()); n != before {
		t.Errorf("%d requests left", n-before)
	}
	for _, r := range p.requests() {
		if strings.Contains(r.body, "Elm") || strings.Contains(r.body, "DE89") {
			t.Errorf("it left: %s", r.body)
		}
	}

	// The record: the request of the agent in its session, and those of the gateway and of people, without their texts.
	kinds := map[string]int{}
	for _, e := range w.entries() {
		switch {
		case e.Action == "models/request" && e.Session == meaning:
			kinds["agent "+string(e.Kind)]++
		case e.Action == "knowledge.embed":
			kinds[e.Actor+" "+string(e.Kind)]++
			if b, err := json.Marshal(e); err != nil || strings.Contains(string(b), "abroad") {
				t.Errorf("%s %v", b, err)
			}
		}
	}
	for _, kind := range []string{"agent intent", "agent outcome", "rule:embed intent", "rule:embed outcome", "person:admin intent", "person:admin decision"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s: %v", kind, kinds)
		}
	}

	// A restart asks for nothing again.
	before = len(p.requests())
	w.kill()
	w = launch(t, w.place)
	w.embedded(paid)
	for _, r := range p.requests()[before:] {
		if strings.Contains(r.body, "Expenses") || strings.Contains(r.body, "vacation") {
			t.Errorf("a text was sent again: %s", r.body)
		}
	}

	// Stopped: the people's searches are by words alone, and no text leaves.
	if _, err := w.root.Kill(t.Context(), "", "a test"); err != nil {
		t.Fatal(err)
	}
	before = len(p.requests())
	if f, err := w.root.SearchKnowledge(t.Context(), "expenses paid", "", 3); err != nil || f.Search != "text" || !strings.Contains(f.TextOnly, "stopped") || len(f.Hits) == 0 {
		t.Errorf("stopped: %+v, %v", f, err)
	}
	w.addDocument("handbook", "late.md", "Too late for an embedding.")
	w.snapshot()
	if n := len(p.requests()); n != before {
		t.Errorf("%d requests left", n-before)
	}
	if _, err := w.root.Unkill(t.Context(), "", "a test"); err != nil {
		t.Fatal(err)
	}
	// Withdrawn: it is known where it went.
	gone, err := w.root.WithdrawDocuments(t.Context(), client.KnowledgeWithdrawal{Source: "handbook", Reason: "poisoned"})
	if err != nil || !slices.Equal(gone.Models, []string{small}) {
		t.Errorf("%+v, %v", gone, err)
	}
	w.sane()
}
