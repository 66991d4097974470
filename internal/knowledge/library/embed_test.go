package library

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/ask"
	"sallyport.example/internal/knowledge/shelf"
	"sallyport.example/internal/models/wire"
)

// embedder stands for a model that embeds. Words that mean the same are one to it.
type embedder struct {
	model string
	may   []string
	fails func(texts []string) error
	sent  [][]string
	short bool // its embeddings have fewer numbers than they had
}

var meanings = map[string]string{"reimbursed": "paid", "refunded": "paid", "holiday": "vacation", "doctor": "physician"}

func (e *embedder) embeddings() Embeddings {
	return Embeddings{
		Model: func() string { return e.model },
		May: func(_ string, labels []string) error {
			if slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(e.may, l) }) {
				return fault.New(fault.FlowContaminated, "It may not go there.")
			}
			return nil
		},
		Own: func(_ audit.Entry, labelled ask.Labels) ask.Ask {
			return func(_ context.Context, form wire.Form, body json.RawMessage) (json.RawMessage, error) {
				var r struct{ Input []string }
				if err := json.Unmarshal(body, &r); err != nil || form != wire.Embeddings {
					return nil, fmt.Errorf("%s %w", form, err)
				}
				if _, err := labelled(); err != nil { // as it is read before a request leaves
					return nil, err
				}
				if e.fails != nil {
					if err := e.fails(r.Input); err != nil {
						return nil, err
					}
				}
				e.sent = append(e.sent, r.Input)
				var data []any
				for i, text := range r.Input {
					v := vectorOf(text)
					if e.short {
						v = v[:8]
					}
					data = append(data, map[string]any{"index": i, "embedding": v})
				}
				return call.Encode(map[string]any{"data": data})
			}
		},
	}
}

// numbers are those of an embedding.
const numbers = 512

// vectorOf has a number for each of so many sorts of words.
func vectorOf(text string) []float64 {
	v := make([]float64, numbers)
	for i := range v {
		v[i] = -0.01
	}
	for w := range knowledge.Words(text) {
		if m := meanings[w]; m != "" {
			w = m
		}
		h := fnv.New32a()
		h.Write([]byte(w))
		v[h.Sum32()%numbers]++
	}
	return v
}

func (e *embedder) hasSent(part string) bool {
	return slices.ContainsFunc(e.sent, func(texts []string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, part) })
	})
}

// ask searches as a person.
func (p *place) ask(r knowledge.Reader, question string) Found {
	p.t.Helper()
	f, err := p.Search(p.t.Context(), r, p.Asking("person:a", question), "", question, 10)
	must(p.t, err)
	return f
}

func TestMeaningIsFound(t *testing.T) {
	p := open(t, t.TempDir())
	p.embedder.may = []string{"internal"}
	paid := p.add("handbook", "a", "Staff are paid back in thirty days.")
	internal := p.add("handbook", "b", "Vacation needs a form.", "internal")
	secret := p.add("handbook", "c", "The physician lives on Elm Street.", "secret")
	s := p.snap()
	if f := p.ask(all, "reimbursed"); f.Search != "text" || !strings.Contains(f.TextOnly, "configured") || len(f.Hits) != 0 {
		t.Errorf("without a model: %+v", f)
	}
	p.embedder.model = "embed-1"
	if f := p.ask(all, "reimbursed"); f.Search != "text" || f.TextOnly == "" {
		t.Errorf("before anything is embedded: %+v", f)
	}
	must(t, p.embedNewest(t.Context()))
	<-p.idle(s.ID)
	for question, want := range map[string]*knowledge.Document{"reimbursed": paid, "holiday": internal} {
		if f := p.ask(all, question); f.Search != "hybrid" || f.TextOnly != "" || len(f.Hits) == 0 || f.Hits[0].Document != want.ID() {
			t.Errorf("%s: %+v", question, f)
		}
	}
	if p.embedder.hasSent("physician") || p.EmbeddingOf(secret.Now().Version) != nil {
		t.Error("a text was sent whose label may not go to the model")
	}
	if e := p.EmbeddingOf(paid.Now().Version); e == nil || *e != (Embedding{"embed-1", numbers}) {
		t.Errorf("%+v", e)
	}
	if f := p.ask(all, "physician"); len(f.Hits) == 0 || f.Hits[0].Document != secret.ID() {
		t.Errorf("what has no embedding is found by its words: %+v", f)
	}
	if f := p.ask(knowledge.Reader{Sources: []string{"nothing"}}, "paid"); f.Search != "text" || f.TextOnly != noneEmbedded {
		t.Errorf("whoever may read nothing learns that there are embeddings: %+v", f)
	}
	p.embedder.fails = func([]string) error { return fault.New(fault.KillSwitch, "Stopped.") }
	if f := p.ask(all, "paid"); f.Search != "text" || !strings.Contains(f.TextOnly, "Stopped.") || len(f.Hits) != 1 {
		t.Errorf("the model is refused: %+v", f)
	}
	if f := p.ask(knowledge.Reader{Sources: []string{"nothing"}}, "paid"); f.TextOnly != noneEmbedded {
		t.Errorf("whoever may read nothing learns from a refusal that there are embeddings: %+v", f)
	}
	if f := p.ask(knowledge.Reader{AllSources: true, Labels: []string{"internal"}}, "paid"); !strings.Contains(f.TextOnly, "Stopped.") {
		t.Errorf("who may read some that is embedded: %+v", f)
	}
	p.embedder.fails, p.embedder.short = nil, true
	if f := p.ask(all, "paid back"); f.Search != "text" || f.TextOnly != noneEmbedded || len(f.Hits) != 1 {
		t.Errorf("a question whose embedding is like none: %+v", f)
	}
	p.verify()
}

// Texts that the model refuses keep no other from being embedded, however many they are and wherever they stand.
func TestRefusedTextsStopNoOther(t *testing.T) {
	p := open(t, t.TempDir())
	p.embedder.model = "embed-1"
	for n := range 12 {
		p.add("handbook", fmt.Sprint("bad", n), fmt.Sprintf("Refused text number %d.", n))
	}
	good := p.add("handbook", "good", "Staff are paid back.")
	p.snap()
	p.embedder.fails = func(texts []string) error {
		if strings.Contains(texts[0], "Refused") {
			return fault.New(fault.UpstreamFailed, "The provider refuses it.")
		}
		return nil
	}
	for rounds := 0; p.EmbeddingOf(good.Now().Version) == nil; rounds++ {
		if rounds == 5 { // 12 texts, three of which fail at a time
			t.Fatal("the text is not embedded")
		}
		if err := p.embedNewest(t.Context()); err == nil {
			t.Fatal("refused texts are an error")
		}
	}
}

// Each chunk is sent once: over restarts, failures, new snapshots and new versions. A rebuild has an equal digest, and needs no model.
func TestEmbeddingsAreFetchedOnce(t *testing.T) {
	p := open(t, t.TempDir())
	p.embedder.model = "embed-1"
	paragraph := func(n int) string { return fmt.Sprintf("paragraph%d ", n) + strings.Repeat("word ", 150) + "\n\n" }
	var text strings.Builder
	for n := range 40 {
		text.WriteString(paragraph(n))
	}
	d := p.add("books", "long", text.String())
	p.add("books", "broken", "The model refuses this text.")
	last := p.add("books", "other", "A short one.")
	p.snap()
	p.embedder.fails = func(texts []string) error {
		if strings.Contains(texts[0], "refuses") || len(p.embedder.sent) == 2 && len(texts) > 1 {
			return fault.New(fault.UpstreamFailed, "Broken.")
		}
		return nil
	}
	if err := p.embedNewest(t.Context()); !fault.Is(err, fault.UpstreamFailed) {
		t.Errorf("%v", err)
	}
	if p.EmbeddingOf(d.Now().Version) != nil {
		t.Error("half a document counts as embedded")
	}
	p.close()
	p.reopen() // as after a crash
	p.embedder.fails = nil
	must(t, p.embedNewest(t.Context()))
	times := map[string]int{}
	for _, texts := range p.embedder.sent {
		if len(texts) > ask.MaxTexts {
			t.Errorf("%d texts at once", len(texts))
		}
		for _, chunk := range texts {
			times[chunk]++
		}
	}
	for chunk, n := range times {
		if n != 1 {
			t.Errorf("%.20s… was sent %d times", chunk, n)
		}
	}
	if len(times) != 42 || p.EmbeddingOf(d.Now().Version) == nil || p.EmbeddingOf(last.Now().Version) == nil {
		t.Errorf("%d chunks were sent", len(times))
	}
	before := len(p.embedder.sent)
	_, err := p.AddVersion(t.Context(), "person:a", d.ID(), 1, Adding{Content: text.String() + paragraph(41)})
	must(t, err)
	s := p.snap()
	must(t, p.embedNewest(t.Context()))
	if len(p.embedder.sent) != before+1 || len(p.embedder.sent[before]) != 1 {
		t.Errorf("of the new version %d requests were sent", len(p.embedder.sent)-before)
	}
	first, err := p.index(t.Context(), s.ID)
	must(t, err)
	<-p.idle(s.ID)
	first, err = p.index(t.Context(), s.ID)
	must(t, err)
	want := p.ask(all, "paragraph41 paragraph7")
	p.close()
	must(t, os.RemoveAll(filepath.Join(p.dir, shelf.Indexes)))
	p.reopen()
	p.embedder.fails = func(texts []string) error {
		if !strings.Contains(texts[0], "paragraph41 paragraph7") {
			t.Error("a rebuild asks the model")
		}
		return nil
	}
	again, err := p.index(t.Context(), s.ID)
	must(t, err)
	if again.digest != first.digest || first.digest == "" {
		t.Errorf("%+v is not %+v", again, first)
	}
	if got := p.ask(all, "paragraph41 paragraph7"); got.Search != "hybrid" || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after the rebuild:\n%+v\n%+v", got, want)
	}
	p.verify()
}

// idle is closed once no index of the snapshot is being built.
func (p *place) idle(snapshot string) <-chan struct{} {
	p.indexes.mu.Lock()
	defer p.indexes.mu.Unlock()
	if b := p.indexes.building[snapshot]; b != nil {
		return b.done
	}
	done := make(chan struct{})
	close(done)
	return done
}

// A model of which the vectors change their length is not the one that was pinned.
func TestEmbeddingsOfAnotherLength(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("books", "a", "one")
	must(t, p.o.Shelf.PutEmbeddings(t.Context(), d.ID(), "m", []string{"one"}, [][]float32{{1, 2}}))
	for _, v := range [][]float32{{1, 2, 3}, {}, make([]float32, knowledge.MaxDimensions+1)} {
		if err := p.o.Shelf.PutEmbeddings(t.Context(), d.ID(), "m", []string{"two"}, [][]float32{v}); !fault.Is(err, fault.ResultInvalid) {
			t.Errorf("%d: %v", len(v), err)
		}
	}
}

// What a model answered wrongly first locks out no right answer: an operator says how many numbers its embeddings have.
func TestDimensionsAreDeclared(t *testing.T) {
	p := open(t, t.TempDir())
	p.embedder.model = "embed-1"
	d := p.add("books", "a", "Staff are reimbursed.")
	s := p.snap()
	must(t, p.o.Shelf.PutEmbeddings(t.Context(), d.ID(), "embed-1", []string{"a wrong first answer"}, [][]float32{{1, 2}}))
	if err := p.embedNewest(t.Context()); !fault.Is(err, fault.ResultInvalid) || !strings.Contains(fault.Of(err).Remedy, "knowledge.dimensions") {
		t.Errorf("%v", err)
	}
	dimensions := 0
	p.o.Embeddings.Dimensions = func() int { return dimensions }
	dimensions = numbers + 1
	if err := p.embedNewest(t.Context()); !fault.Is(err, fault.ResultInvalid) || p.EmbeddingOf(d.Now().Version) != nil {
		t.Errorf("another length than declared: %v", err)
	}
	dimensions = numbers
	must(t, p.embedNewest(t.Context()))
	<-p.idle(s.ID)
	if e := p.EmbeddingOf(d.Now().Version); e == nil || *e != (Embedding{"embed-1", numbers}) {
		t.Errorf("%+v", e)
	}
	if f := p.ask(all, "refunded"); f.Search != "hybrid" || len(f.Hits) != 1 {
		t.Errorf("%+v", f)
	}
}

// Where embeddings are lost, a snapshot is searched by its words, which says so.
func TestLostEmbeddings(t *testing.T) {
	p := open(t, t.TempDir())
	p.embedder.model = "embed-1"
	p.add("books", "a", "Staff are reimbursed.")
	p.add("books", "b", "Vacation needs a form.")
	s := p.snap()
	must(t, p.embedNewest(t.Context()))
	<-p.idle(s.ID)
	if f := p.ask(all, "refunded"); f.Search != "hybrid" || len(f.Hits) == 0 {
		t.Fatalf("%+v", f)
	}
	p.close()
	must(t, os.RemoveAll(filepath.Join(p.dir, shelf.Indexes)))
	db, err := sql.Open("sqlite", filepath.Join(p.dir, shelf.File))
	must(t, err)
	for _, statement := range []string{"DROP TRIGGER knowledge_embeddings_delete", "DELETE FROM knowledge_embeddings WHERE n = 1"} {
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	must(t, db.Close())
	p.reopen()
	for _, question := range []string{"reimbursed", "form"} {
		if f := p.ask(all, question); f.Search != "text" || f.TextOnly != noneEmbedded || len(f.Hits) != 1 {
			t.Errorf("%s: %+v", question, f)
		}
	}
}

// Hidden documents change no hit, order or score of a search by meaning, whether their table is another one or their labels rose a moment ago.
func TestHiddenDocumentsDoNotShowInMeaning(t *testing.T) {
	r := knowledge.Reader{Sources: []string{"handbook"}}
	search := func(hidden int) (out string) {
		p := open(t, t.TempDir())
		p.embedder.model, p.embedder.may = "embed-1", []string{"internal"}
		for n := range 30 {
			p.add("handbook", fmt.Sprint(n), fmt.Sprintf("Staff are paid, says rule%d of page%d.", n, n))
		}
		var rise []string
		for n := range hidden {
			switch n % 3 {
			case 0:
				p.add("board", fmt.Sprint(n), fmt.Sprintf("Reimbursed, paid, refunded: %d.", n))
			case 1:
				p.add("handbook", fmt.Sprint("internal", n), fmt.Sprintf("Reimbursed and paid: %d.", n), "internal")
			default:
				rise = append(rise, p.add("handbook", fmt.Sprint("rises", n), fmt.Sprintf("Refunded and paid and reimbursed: %d.", n)).ID())
			}
		}
		s := p.snap()
		must(t, p.embedNewest(t.Context()))
		<-p.idle(s.ID)
		for _, id := range rise {
			_, err := p.SetLabels(t.Context(), "person:a", id, "risen", []string{"internal"})
			must(t, err)
		}
		for _, q := range []string{"refunded", "vacation", "reimbursed staff rule7"} {
			for range 2 { // with the index of before, and with the one of now
				f := p.ask(r, q)
				if f.Search != "hybrid" || len(f.Hits) == 0 && q != "vacation" {
					t.Errorf("%d: %+v", hidden, f)
				}
				b, err := json.Marshal(f)
				must(t, err)
				out += strings.ReplaceAll(string(b), s.ID, "SNAPSHOT") + "\n"
				<-p.idle(s.ID)
			}
		}
		return out
	}
	if none, some := search(0), search(300); none != some {
		t.Errorf("without:\n%s\nwith:\n%s", none, some)
	}
}

// After an erasure the embeddings can't be read any more, and what asks for them keeps none.
func TestErasureOfEmbeddings(t *testing.T) {
	p := open(t, t.TempDir())
	p.embedder.model = "embed-1"
	const text = "Zebulon was reimbursed for the xylophone."
	d, other := p.add("letters", "z", text), p.add("letters", "y", "Of no interest.")
	s := p.snap()
	must(t, p.embedNewest(t.Context()))
	<-p.idle(s.ID)
	small, whole := smallOf(vectorOf(text))
	if b, err := os.ReadFile(filepath.Join(p.dir, shelf.Indexes, s.ID+".db")); err != nil || !bytes.Contains(b, small) {
		t.Fatalf("the index has no such vector: %v", err)
	}
	for _, by := range []string{"person:a", "person:b"} {
		_, _, err := p.Erase(t.Context(), by, d.ID(), "asked")
		must(t, err)
	}
	nothingOf(t, p.dir, "xylophone")
	must(t, filepath.WalkDir(p.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, small) || bytes.Contains(b, whole) {
			t.Errorf("the embedding is in %s", path)
		}
		return err
	}))
	if err := p.o.Shelf.PutEmbeddings(t.Context(), d.ID(), "embed-1", []string{text}, [][]float32{{1}}); !fault.Is(err, fault.NotFound) {
		t.Errorf("an embedding that came late: %v", err)
	}
	for range 2 {
		if f := p.ask(all, "refunded xylophone"); slices.ContainsFunc(f.Hits, func(h Hit) bool { return h.Document != other.ID() }) {
			t.Errorf("%+v", f)
		}
		p.close()
		p.reopen()
		if _, err := p.index(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
	}
	p.verify()
}

// smallOf is an embedding as an index has it, and as it is before it is sealed.
func smallOf(v []float64) (small, whole []byte) {
	for _, f := range v {
		small = append(small, byte(int8(math.Round(float64(float32(f)/float32(slices.Max(v))*127)))))
		whole = binary.LittleEndian.AppendUint32(whole, math.Float32bits(float32(f)))
	}
	return small, whole
}
