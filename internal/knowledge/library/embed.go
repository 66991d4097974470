package library

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/ask"
	"sallyport.example/internal/knowledge/shelf"
)

// Embeddings say how embeddings are asked for.
type Embeddings struct {
	// Model is the model that embeds; "": none is configured.
	Model func() string
	// Dimensions is how many numbers each of its embeddings has; 0: as many as the first.
	Dimensions func() int
	// May is the error of a text with these labels that must not go to the model, and Own how the library asks on its own account.
	May func(model string, labels []string) error
	Own func(e audit.Entry, labels ask.Labels) ask.Ask
}

// embedded are the texts of which every chunk has an embedding by a model.
type embedded struct {
	embeddingModel
	texts map[string]int // by text: the dimensions; guarded by Library.mu
}

// embeddingModel is a model, and how many numbers its embeddings have to have; 0: as many as the first.
type embeddingModel struct {
	model      string
	dimensions int
}

// kept is the name under which the shelf keeps its embeddings. What was kept before the number was set is left aside, so a wrong first answer of a model locks out no right one.
func (e embeddingModel) kept() string {
	if e.model == "" || e.dimensions == 0 {
		return e.model
	}
	return fmt.Sprintf("%s/%d", e.model, e.dimensions)
}

// embed asks for embeddings. They have to be as long as they were said to be.
func (e embeddingModel) embed(ctx context.Context, asking ask.Ask, texts []string) ([][]float32, error) {
	vectors, err := ask.Embed(ctx, asking, e.model, texts)
	if err == nil && e.dimensions > 0 && len(vectors[0]) != e.dimensions {
		return nil, fault.New(fault.ResultInvalid, "An embedding of %s has %d numbers, and knowledge.dimensions says %d; it was discarded.", e.model, len(vectors[0]), e.dimensions).
			Try("Set knowledge.dimensions to the number that the model's embeddings have, or leave it out.")
	}
	return vectors, err
}

// retryEmbedding is when embeddings are asked for again that could not be had.
const retryEmbedding = time.Minute

// EmbedAction is the action of requests for embeddings in the log.
const EmbedAction = "knowledge.embed"

// mostFailures is after how many failures, one after the other, no more is asked for now.
const mostFailures = 3

// questionTime bounds the time for which a search waits for the embedding of its question.
const questionTime = 5 * time.Second

// embeddingModel is today's model.
func (l *Library) embeddingModel() (e embeddingModel) {
	if l.o.Embeddings.Model != nil {
		e.model = l.o.Embeddings.Model()
	}
	if l.o.Embeddings.Dimensions != nil {
		e.dimensions = l.o.Embeddings.Dimensions()
	}
	return e
}

// embedding is what has an embedding by today's model. The shelf is read where that is another one than before.
func (l *Library) embedding(ctx context.Context) (embedded, error) {
	by := l.embeddingModel()
	l.mu.RLock()
	have := l.embedded
	l.mu.RUnlock()
	if by.model == "" || have.embeddingModel == by {
		return embedded{by, have.texts}, nil
	}
	texts, err := l.o.Shelf.Embedded(ctx, by.kept())
	if err != nil {
		return embedded{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.embedded = embedded{by, texts}
	return l.embedded, nil
}

// StartEmbedding has embeddings fetched in the background, now and whenever there are documents without. It is called once, when models can be asked.
func (l *Library) StartEmbedding() { l.indexes.builds.Go(l.keepEmbedding) }

func (l *Library) keepEmbedding() {
	for {
		again := (<-chan time.Time)(nil)
		if err := l.embedNewest(l.indexes.ctx); err != nil && l.indexes.ctx.Err() == nil {
			l.o.Log.Warn("embeddings can't be had now; what has none is found by its words alone", "model", l.embeddingModel().model, "error", err)
			again = time.After(retryEmbedding)
		}
		select {
		case <-l.wake:
		case <-again:
		case <-l.indexes.ctx.Done():
			return
		}
	}
}

// EmbedSoon has the embeddings of the newest snapshot fetched that are missing.
func (l *Library) EmbedSoon() {
	select {
	case l.wake <- struct{}{}:
	default: // it is woken already
	}
}

// embedNewest fetches the embeddings of the newest snapshot that are missing, and has its index built anew where there are more. Each is fetched once; what is there stays after a crash or an error.
func (l *Library) embedNewest(ctx context.Context) error {
	s, err := l.SnapshotByID("")
	if err != nil || l.embeddingModel().model == "" {
		return nil //nolint:nilerr // there is nothing to embed
	}
	have, err := l.embedding(ctx)
	if err != nil {
		return err
	}
	l.mu.RLock()
	members := knowledge.Members(l.documents, s.Order)
	l.mu.RUnlock()
	texts := map[string]bool{}
	for _, m := range members {
		texts[m.Version.Content] = true
	}
	maps.DeleteFunc(l.failures, func(text string, _ int) bool { return !texts[text] }) // of documents that are gone
	// What failed most comes last, so texts that the model refuses keep no other from being embedded.
	slices.SortStableFunc(members, func(a, b knowledge.Member) int {
		return cmp.Compare(l.failures[a.Version.Content], l.failures[b.Version.Content])
	})
	done, refused, failed := 0, 0, 0
	for _, m := range members {
		l.mu.RLock()
		_, has := have.texts[m.Version.Content]
		l.mu.RUnlock()
		if has {
			continue
		}
		switch e := l.embedText(ctx, have.embeddingModel, m); {
		case e == nil:
			done, failed = done+1, 0
			delete(l.failures, m.Version.Content)
		case fault.Is(e, fault.FlowContaminated):
			refused++
		case fault.Is(e, fault.NotFound): // erased or withdrawn meanwhile
		default: // it may be this text alone that the model refuses
			failed, err = failed+1, e
			l.failures[m.Version.Content]++
		}
		if failed == mostFailures || fault.Is(err, fault.KillSwitch) || ctx.Err() != nil {
			break
		}
	}
	if refused > 0 {
		l.o.Log.Warn("documents have labels that may not go to the model that embeds; they are found by their words alone", "model", have.model, "documents", refused)
	}
	if done > 0 {
		l.mu.Lock()
		l.rights++ // the index follows from more than before
		l.mu.Unlock()
		if _, failed := l.index(ctx, s.ID); failed != nil {
			return failed
		}
	}
	return err
}

// embedText fetches the embeddings of a text that are missing.
func (l *Library) embedText(ctx context.Context, by embeddingModel, m knowledge.Member) error {
	if _, err := l.maySend(m, by.model); err != nil {
		return err
	}
	text, err := l.Text(ctx, m.Document, m.Version)
	if err != nil {
		return err
	}
	var chunks []string
	for _, span := range knowledge.Chunks(text) {
		chunks = append(chunks, text[span.Start:span.End])
	}
	missing, err := l.o.Shelf.Unembedded(ctx, m.Document.ID(), by.kept(), chunks)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(missing, ask.MaxTexts) {
		var texts []string
		for _, i := range some {
			texts = append(texts, chunks[i])
		}
		detail, err := json.Marshal(map[string]any{"document": m.Document.ID(), "version": m.Version.Version, "texts": len(texts)})
		if err != nil {
			return err
		}
		own := l.o.Embeddings.Own(audit.Entry{Action: EmbedAction, Actor: "rule:embed", Detail: detail}, func() ([]string, error) { return l.maySend(m, by.model) }) // labels may have risen since
		vectors, err := by.embed(ctx, own, texts)
		if err != nil {
			return err
		}
		if err := l.o.Shelf.PutEmbeddings(ctx, m.Document.ID(), by.kept(), texts, vectors); err != nil {
			return err
		}
	}
	dimensions, err := l.o.Shelf.MarkEmbedded(ctx, m.Version.Content, by.kept())
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.embedded.embeddingModel == by {
		l.embedded.texts[m.Version.Content] = dimensions
	}
	return nil
}

// maySend returns the labels that a version has now. It refuses one that is gone, and one with labels that may not go to the model.
func (l *Library) maySend(m knowledge.Member, model string) (labels []string, err error) {
	d, err := l.Document(m.Document.ID())
	if err != nil {
		return nil, err
	}
	now := d.Rights(m.Version.Version)
	if now.Gone {
		return nil, noDocument(d.ID())
	}
	return now.Labels, l.o.Embeddings.May(model, now.Labels)
}

// Embedding is a version's embeddings: by which model, and how many numbers each has.
type Embedding struct {
	Model      string `json:"model"`
	Dimensions int    `json:"dimensions"`
}

// EmbeddingOf tells whether every chunk of a version has an embedding by today's model; nil if not.
func (l *Library) EmbeddingOf(v *knowledge.Event) *Embedding {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if n, has := l.embedded.texts[v.Content]; has && l.embedded.embeddingModel == l.embeddingModel() {
		return &Embedding{l.embedded.model, n}
	}
	return nil
}

// Asking is how the embedding of a person's question is asked for, who is named as kind:id.
func (l *Library) Asking(by, question string) ask.Ask {
	if l.o.Embeddings.Own == nil {
		return nil
	}
	return l.o.Embeddings.Own(audit.Entry{Action: EmbedAction, Actor: by}, func() ([]string, error) { return l.LabelsIn(question), nil })
}

// LabelsIn are the labels of sensitive data in what somebody asks or claims.
func (l *Library) LabelsIn(text string) []string { return l.o.Detect([]byte(text)) }

// noneEmbedded is why a search is by words alone where nothing that the reader may read has embeddings, or the index has none yet.
const noneEmbedded = "No document that you may read has an embedding yet."

// anyEmbedded tells whether something in a snapshot that the reader may read has embeddings. Whether anything else has, it must not learn.
func (l *Library) anyEmbedded(have embedded, r knowledge.Reader, order int64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(have.texts) == 0 {
		return false
	}
	for _, d := range l.documents {
		if s, ok := d.AtOrder(order); ok && !s.Gone() && r.May(d, s.Version.Version) {
			if _, has := have.texts[s.Version.Content]; has {
				return true
			}
		}
	}
	return false
}

// meaning is the embedding of a question that is asked of a snapshot; nil where there is none, and why.
func (l *Library) meaning(ctx context.Context, r knowledge.Reader, asking ask.Ask, order int64, question string) (vector []float32, why string) {
	have, err := l.embedding(ctx)
	switch {
	case err != nil:
		return nil, fault.Of(err).Public()
	case have.model == "":
		return nil, "No model for embeddings is configured."
	case !l.anyEmbedded(have, r, order):
		return nil, noneEmbedded
	case asking == nil:
		return nil, "This search is by words alone."
	}
	ctx, end := context.WithTimeout(ctx, questionTime)
	defer end()
	vectors, err := have.embed(ctx, asking, []string{question})
	if err != nil {
		// Which model that is, an agent that may not ask it does not learn.
		return nil, "The question could not be sent to the model that embeds: " + strings.ReplaceAll(fault.Of(err).Public(), have.model, "that embeds")
	}
	return vectors[0], ""
}

// fuse puts hits by words and by meaning together: the score of each is the sum of its reciprocal ranks.
func fuse(words, meaning []shelf.Hit) []shelf.Hit {
	all := slices.Clone(words)
	type at struct {
		document string
		span     knowledge.Span
	}
	place := map[at]int{}
	for i, h := range all {
		place[at{h.Document, h.Span}] = i
	}
	for _, h := range meaning {
		if i, has := place[at{h.Document, h.Span}]; has {
			all[i].Score += h.Score
		} else {
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b shelf.Hit) int { return cmp.Compare(b.Score, a.Score) })
	return all[:min(len(all), MaxHits)]
}
