package library

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/shelf"
	"sallyport.example/internal/store"
)

// place is a data directory with a library in it.
type place struct {
	t   testing.TB
	dir string
	db  *store.DB
	*Library
	now time.Time

	embedder embedder
}

func open(t testing.TB, dir string) *place {
	t.Helper()
	p := &place{t: t, dir: dir, now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	p.reopen()
	t.Cleanup(p.close)
	return p
}

func (p *place) reopen() {
	p.t.Helper()
	db, err := store.Open(p.dir, store.Options{})
	must(p.t, err)
	s, err := shelf.Open(p.dir)
	must(p.t, err)
	p.db = db
	p.Library, err = Open(p.t.Context(), Options{
		Store: db, Shelf: s, Log: slog.New(slog.DiscardHandler), Clock: func() time.Time { p.now = p.now.Add(time.Second); return p.now },
		Detect: func(text []byte) []string {
			if bytes.Contains(text, []byte("555-0100")) {
				return []string{"pii"}
			}
			return nil
		},
		KnownLabel: func(label string) bool { return slices.Contains([]string{"internal", "pii", "secret"}, label) },
		Erasers: func(first, second string) (bool, bool) {
			return first == "person:b-alias" && second == "person:b", first != "person:former"
		},
		Parse: func(_ context.Context, _ string, file []byte) (string, error) { return string(file), nil },
		Said:  said{}, Embeddings: p.embedder.embeddings(),
	})
	must(p.t, err)
}

func (p *place) close() {
	if p.Library != nil {
		must(p.t, errors.Join(p.Library.Close(), p.db.Close()))
		p.Library = nil
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *place) add(source, key, content string, labels ...string) *knowledge.Document {
	p.t.Helper()
	d, err := p.Add(p.t.Context(), "person:a", Adding{Source: source, Key: key, Content: content, Labels: labels})
	must(p.t, err)
	return d
}

func (p *place) snap() knowledge.Snapshot {
	p.t.Helper()
	s, err := p.Snapshot(p.t.Context(), "person:a", "")
	must(p.t, err)
	return s
}

func (p *place) find(r knowledge.Reader, snapshot, question string) []Hit {
	p.t.Helper()
	f, err := p.Search(p.t.Context(), r, nil, snapshot, question, 10)
	must(p.t, err)
	return f.Hits
}

var all = knowledge.Reader{All: true}

// verify is the judge: the log, the rows and what is beside them belong together.
func (p *place) verify() {
	p.t.Helper()
	src, err := p.db.Source(p.t.Context())
	must(p.t, err)
	report, err := audit.Verify(src, p.db.Signer().PublicKey())
	must(p.t, err)
	if !report.OK {
		p.t.Fatalf("%+v", report.Problems)
	}
}

func TestVersionsAreKept(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("handbook", "travel.md", "one")
	if _, err := p.Add(t.Context(), "person:a", Adding{Source: "handbook", Key: "travel.md", Content: "other"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the same key again: %v", err)
	}
	for i, content := range []string{"two", "three"} {
		_, err := p.AddVersion(t.Context(), "person:b", d.ID(), i+1, Adding{Content: content})
		must(t, err)
	}
	var moved *Moved
	if _, err := p.AddVersion(t.Context(), "person:b", d.ID(), 2, Adding{Content: "late"}); !errors.As(err, &moved) || moved.Current != 3 || !fault.Is(err, fault.Conflict) {
		t.Errorf("a version that does not follow: %v", err)
	}
	if same, err := p.AddVersion(t.Context(), "person:b", d.ID(), 3, Adding{Content: "three", UnlessSame: true}); err != nil || same.Now().Version.Version != 3 {
		t.Errorf("the same text again: %v", err)
	}
	p.verify()
	p.close()
	p.reopen()
	d, err := p.Document(d.ID())
	must(t, err)
	for n, want := range []string{"one", "two", "three"} {
		if text, err := p.Text(t.Context(), d, d.Version(n+1)); text != want || err != nil {
			t.Errorf("version %d is %q, %v", n+1, text, err)
		}
	}
}

// Two people who saw the same version: one of them is refused, whoever is first.
func TestVersionsRace(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("handbook", "travel.md", "one")
	results := make(chan error)
	for i := range 8 {
		go func() {
			_, err := p.AddVersion(context.Background(), "person:a", d.ID(), 1, Adding{Content: fmt.Sprint("two ", i)})
			results <- err
		}()
	}
	won := 0
	for range 8 {
		switch err := <-results; {
		case err == nil:
			won++
		case !fault.Is(err, fault.Conflict):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of 8 were taken", won)
	}
	p.verify()
}

func TestBadInputLeavesNothing(t *testing.T) {
	p := open(t, t.TempDir())
	for name, c := range map[string]struct {
		a     Adding
		field string
	}{
		"no key":            {Adding{Source: "a", Content: "x"}, "key"},
		"a long key":        {Adding{Source: "a", Key: strings.Repeat("k", 2000), Content: "x"}, "key"},
		"no source":         {Adding{Key: "k", Content: "x"}, "source"},
		"a strange source":  {Adding{Source: "a/../b", Key: "k", Content: "x"}, "source"},
		"no content":        {Adding{Source: "a", Key: "k", Content: " \n"}, "content"},
		"no UTF-8":          {Adding{Source: "a", Key: "k", Content: "a\xffb"}, "content"},
		"a NUL":             {Adding{Source: "a", Key: "k", Content: "a\x00b"}, "content"},
		"too much":          {Adding{Source: "a", Key: "k", Content: strings.Repeat("x", knowledge.MaxContent+1)}, "content"},
		"an unknown label":  {Adding{Source: "a", Key: "k", Content: "x", Labels: []string{"publik"}}, "labels"},
		"an unknown type":   {Adding{Source: "a", Key: "k", Content: "x", Type: "application/x-msdownload"}, "content_type"},
		"the label of all ": {Adding{Source: "a", Key: "k", Content: "x", Labels: []string{"untrusted"}}, "labels"},
	} {
		if _, err := p.Add(t.Context(), "person:a", c.a); !fault.Is(err, fault.RequestMalformed) || fault.Of(err).Field != c.field || fault.Of(err).Message == "" {
			t.Errorf("%s: %v (field %q)", name, err, fault.Of(err).Field)
		}
	}
	if got := p.Documents("", "", 10); len(got) != 0 {
		t.Errorf("%d documents were made", len(got))
	}
}

// Labels rise with a version, and fall only by a person's act with a reason.
func TestLabelsOfVersions(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("handbook", "a", "text", "internal")
	d, err := p.AddVersion(t.Context(), "person:a", d.ID(), 1, Adding{Content: "call 555-0100"})
	must(t, err)
	if got := d.Now().Labels; !slices.Equal(got, []string{"internal", "pii"}) {
		t.Errorf("labels %v", got)
	}
	if _, err := p.SetLabels(t.Context(), "person:a", d.ID(), " ", nil); !fault.Is(err, fault.RequestMalformed) {
		t.Errorf("without a reason: %v", err)
	}
	d, err = p.SetLabels(t.Context(), "person:a", d.ID(), "the number is public", []string{"internal"})
	must(t, err)
	if got := d.Now().Labels; !slices.Equal(got, []string{"internal"}) {
		t.Errorf("labels %v", got)
	}
}

// A label that a person takes off a redacted version stays on the one before: by number, in an old snapshot, and in a claim's source.
func TestRedactionKeepsOldLabels(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("handbook", "a", "salary of bob is 5000", "secret")
	old := p.snap()
	_, err := p.AddVersion(t.Context(), "person:a", d.ID(), 1, Adding{Content: "salary of bob is redacted"})
	must(t, err)
	_, err = p.SetLabels(t.Context(), "person:a", d.ID(), "redacted in version 2", nil)
	must(t, err)
	s := p.snap()
	r, cleared := knowledge.Reader{Sources: []string{"handbook"}}, knowledge.Reader{Sources: []string{"handbook"}, Labels: []string{"secret"}}
	if got, err := p.Read(t.Context(), r, s.ID, d.ID(), 0, 0, 100); err != nil || got.Version != 2 || len(got.Labels) != 0 {
		t.Errorf("the redacted version: %+v, %v", got, err)
	}
	for _, c := range []struct {
		snapshot string
		version  int
	}{{s.ID, 1}, {old.ID, 0}, {old.ID, 1}, {old.ID, 2}} {
		if got, err := p.Read(t.Context(), r, c.snapshot, d.ID(), c.version, 0, 100); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.Of(err).Message, "There is no document") {
			t.Errorf("version %d: %q, %v", c.version, got.Text, err)
		}
	}
	if _, err := p.TextOf(t.Context(), r, Citation{Document: d.ID(), Version: 1}); !fault.Is(err, fault.NotFound) {
		t.Errorf("by a citation: %v", err)
	}
	if got, err := p.Read(t.Context(), cleared, s.ID, d.ID(), 1, 0, 100); err != nil || !slices.Equal(got.Labels, []string{"secret"}) {
		t.Errorf("who may read it: %+v, %v", got, err)
	}
	for range 2 { // with the index of before, and with the one of now
		if hits := p.find(r, old.ID, "salary bob"); len(hits) != 0 {
			t.Errorf("%+v", hits)
		}
		if hits := p.find(cleared, old.ID, "salary bob"); len(hits) != 1 || !slices.Equal(hits[0].Labels, []string{"secret"}) {
			t.Errorf("%+v", hits)
		}
		p.indexes.builds.Wait()
	}
	if hits := p.find(r, s.ID, "salary bob"); len(hits) != 1 || hits[0].Version != 2 {
		t.Errorf("%+v", hits)
	}
}

func TestSnapshotsPinContent(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("handbook", "travel.md", "Expenses are paid within thirty days.")
	p.add("handbook", "other.md", "Something about lunch.")
	s := p.snap()
	if again := p.snap(); again.ID != s.ID {
		t.Errorf("nothing changed, and the snapshot is %s and not %s", again.ID, s.ID)
	}
	_, err := p.AddVersion(t.Context(), "person:a", d.ID(), 1, Adding{Content: "Expenses are paid within ninety days."})
	must(t, err)
	later := p.snap()
	for _, c := range []struct{ snapshot, want string }{{s.ID, "thirty"}, {later.ID, "ninety"}, {"", "ninety"}} {
		if hits := p.find(all, c.snapshot, "expenses paid days"); len(hits) != 1 || !strings.Contains(hits[0].Text, c.want) {
			t.Errorf("in %q: %+v", c.snapshot, hits)
		}
	}
	_, err = p.Delete(t.Context(), "person:a", d.ID(), "old")
	must(t, err)
	if hits := p.find(all, later.ID, "expenses paid"); len(hits) != 1 {
		t.Errorf("a deletion shows in an old snapshot: %+v", hits)
	}
	p.snap()
	if hits := p.find(all, "", "expenses paid"); len(hits) != 0 {
		t.Errorf("what was deleted is in the next snapshot: %+v", hits)
	}
	_, err = p.Restore(t.Context(), "person:a", d.ID(), "a mistake")
	must(t, err)
	p.snap()
	if hits := p.find(all, "", "expenses paid"); len(hits) != 1 {
		t.Errorf("what was restored is not in the next snapshot: %+v", hits)
	}
	p.verify()
}

// SnapshotWith names the newest snapshot among whose members the version is, whatever happened to the document between and after snapshots.
func TestSnapshotWith(t *testing.T) {
	p := open(t, t.TempDir())
	ids := []string{p.add("handbook", "a.md", "one").ID(), p.add("handbook", "b.md", "one").ID()}
	for i, act := range []string{"", "snap", "version", "label", "version", "snap", "delete", "snap", "restore", "version", "delete", "snap", "restore", "snap", "label", "snap"} {
		var err error
		switch id, reason := ids[0], "a test"; act {
		case "snap":
			p.add("handbook", fmt.Sprint(i), "another, so that the snapshot is another")
			p.snap()
		case "version":
			d, _ := p.Document(id)
			_, err = p.AddVersion(t.Context(), "person:a", id, d.Now().Version.Version, Adding{Content: fmt.Sprint("text ", i)})
		case "label":
			_, err = p.SetLabels(t.Context(), "person:a", id, reason, [][]string{{"internal"}, {"internal", "secret"}}[i%2])
		case "delete":
			_, err = p.Delete(t.Context(), "person:a", id, reason)
		case "restore":
			_, err = p.Restore(t.Context(), "person:a", id, reason)
		}
		must(t, err)
		for _, id := range ids {
			d, err := p.Document(id)
			must(t, err)
			for version := 1; version <= d.Now().Version.Version; version++ {
				want := ""
				for _, s := range p.Snapshots() {
					in := func(m knowledge.Member) bool { return m.Document.ID() == id && m.Version.Version == version }
					if want == "" && slices.ContainsFunc(knowledge.Members(map[string]*knowledge.Document{id: d}, s.Order), in) {
						want = s.ID
					}
				}
				if got := p.SnapshotWith(d, version); got != want {
					t.Fatalf("after %d (%s): version %d of %s is in %q, want %q", i, act, version, id, got, want)
				}
			}
		}
	}
}

// An index is built again of the same documents, with the same digest and the same bytes; one that was changed is not used.
func TestIndexFollowsFromTheSnapshot(t *testing.T) {
	p := open(t, t.TempDir())
	for i := range 50 {
		p.add("handbook", fmt.Sprint(i), fmt.Sprintf("Document %d is about topic%d and %s.", i, i%7, strings.Repeat("filler ", i)))
	}
	s := p.snap()
	file := filepath.Join(p.dir, shelf.Indexes, s.ID+".db")
	before, err := os.ReadFile(file)
	must(t, err)
	want := p.find(all, "", "topic3")
	p.close()
	must(t, os.Remove(file))
	p.reopen()
	if got := p.find(all, "", "topic3"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after building again: %v and not %v", got, want)
	}
	after, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("the file is another one")
	}
	p.close()
	db, err := sql.Open("sqlite", file)
	must(t, err)
	_, err = db.Exec("UPDATE terms SET postings = (SELECT postings FROM terms WHERE term = 'topic5') WHERE term = 'topic3'")
	must(t, errors.Join(err, db.Close()))
	p.reopen()
	if got := p.find(all, "", "topic3"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("with a forged index: %v and not %v", got, want)
	}
}

// A thousand documents that somebody may not read change nothing of what is found: no hit, order, score or count.
func TestHiddenDocumentsDoNotShow(t *testing.T) {
	r := knowledge.Reader{Sources: []string{"handbook"}, Labels: []string{"internal"}}
	ask := func(hidden int) (found string) {
		p := open(t, t.TempDir())
		for i := range 30 {
			p.add("handbook", fmt.Sprint("open", i), fmt.Sprintf("Holiday rule %d: topic%d, expenses and travel %s.", i, i%5, strings.Repeat("travel ", i%3)))
			p.add("handbook", fmt.Sprint("internal", i), fmt.Sprintf("Internal rule %d about expenses.", i), "internal")
		}
		for i := range hidden {
			labels, source := []string{"secret"}, "handbook"
			if i%2 == 0 {
				labels, source = nil, "board"
			}
			p.add(source, fmt.Sprint("hidden", i), strings.Repeat(fmt.Sprintf("expenses travel holiday topic3 secret%d ", i), 5), labels...)
		}
		p.snap()
		for _, question := range []string{"expenses travel", "topic3 holiday rule", "secret7", "board"} {
			f, err := p.Search(t.Context(), r, p.Asking("person:a", question), "", question, MaxHits) // all of them: hidden ones must not take their places
			must(t, err)
			for _, h := range f.Hits {
				found += fmt.Sprint(question, h.Citation, h.Score, h.Text, "\n")
			}
		}
		return found
	}
	none, many := ask(0), ask(1000)
	if none != many || none == "" {
		t.Errorf("without hidden documents:\n%s\nwith them:\n%s", none, many)
	}
}

// What stands together in a question and in a text puts it in front of others of its collection, and of no other: scores are those of ranks in the collection.
func TestWordsTogetherRankHigher(t *testing.T) {
	p := open(t, t.TempDir())
	for _, source := range []string{"handbook", "wiki"} {
		for i := range 3 {
			p.add(source, fmt.Sprint("apart", i), "Abroad: travel, for expenses.")
		}
		p.add(source, "together", "Expenses for travel abroad are paid later than all others, after thirty days, by the office that you belong to.")
	}
	p.snap()
	scores := map[string][]float64{}
	for _, h := range p.find(all, "", "expenses for travel abroad") {
		if len(scores[h.Source]) == 0 && h.Key != "together" {
			t.Errorf("the first of %s is %s", h.Source, h.Key)
		}
		scores[h.Source] = append(scores[h.Source], h.Score)
	}
	want := []float64{1.0 / 61, 1.0 / 62, 1.0 / 63, 1.0 / 64}
	if !slices.Equal(scores["handbook"], want) || !slices.Equal(scores["wiki"], want) {
		t.Errorf("scores: %v", scores)
	}
}

// While an index is built again, ranks and scores are those among what may be read, and what may not be read takes no places.
func TestRisenLabelsDoNotShowInScores(t *testing.T) {
	p := open(t, t.TempDir())
	var hidden []*knowledge.Document
	for i := range 2 * MaxHits {
		hidden = append(hidden, p.add("handbook", fmt.Sprint("hidden", i), "merger merger merger acme"))
	}
	for i := range 3 {
		p.add("handbook", fmt.Sprint(i), fmt.Sprintf("merger of other words and more and more words here, %d, to be ranked lower", i))
	}
	s := p.snap()
	p.indexes.builds.Wait()
	b := &build{done: make(chan struct{})} // one that takes long
	b.ctx, b.stop = context.WithCancel(t.Context())
	p.indexes.mu.Lock()
	p.indexes.building[s.ID] = b
	p.indexes.mu.Unlock()
	for _, d := range hidden {
		_, err := p.SetLabels(t.Context(), "person:a", d.ID(), "secret", []string{"secret"})
		must(t, err)
	}
	hits := p.find(knowledge.Reader{Sources: []string{"handbook"}}, s.ID, "merger")
	if len(hits) != 3 {
		t.Errorf("%d hits", len(hits))
	}
	for i, h := range hits {
		if want := 1 / float64(60+i+1); h.Score != want {
			t.Errorf("hit %d has the score %v, want %v", i, h.Score, want)
		}
	}
	p.indexes.mu.Lock()
	delete(p.indexes.building, s.ID)
	close(b.done)
	p.indexes.mu.Unlock()
}

// What was withdrawn, and what got a label that the reader may not read, is gone at once, from old snapshots, too.
func TestGoneAtOnce(t *testing.T) {
	r := knowledge.Reader{Sources: []string{"wiki", "handbook"}}
	p := open(t, t.TempDir())
	bad := p.add("wiki", "bad", "The poisoned recipe for travel.")
	risen := p.add("handbook", "risen", "The good recipe for travel.")
	s := p.snap()
	if hits := p.find(r, s.ID, "recipe travel"); len(hits) != 2 {
		t.Fatalf("%+v", hits)
	}
	_, err := p.Withdraw(t.Context(), "person:a", "poisoned", Withdrawal{Source: "wiki"})
	must(t, err)
	_, err = p.SetLabels(t.Context(), "person:a", risen.ID(), "it was internal all along", []string{"internal"})
	must(t, err)
	for range 3 {
		if hits := p.find(r, s.ID, "recipe travel"); len(hits) != 0 {
			t.Errorf("%+v", hits)
		}
	}
	for _, id := range []string{bad.ID(), risen.ID(), "doc_none"} {
		if _, err := p.Read(t.Context(), r, s.ID, id, 0, 0, 100); !fault.Is(err, fault.NotFound) || strings.ReplaceAll(fault.Of(err).Message, id, "X") != `There is no document "X" here.` {
			t.Errorf("%s: %v", id, err)
		}
	}
	p.verify()
}

// After an erasure no byte of a sentence is left anywhere in the data directory.
func TestErasureLeavesNothing(t *testing.T) {
	const sentence = "Zebulon Quartermain owes the xylophone shop seven guineas"
	p := open(t, t.TempDir())
	d := p.add("letters", "z", "A letter. "+sentence+". Regards.")
	p.add("letters", "other", "Nothing of interest.")
	s := p.snap()
	if hits := p.find(all, "", "zebulon xylophone"); len(hits) != 1 {
		t.Fatalf("%+v", hits)
	}
	if _, done, err := p.Erase(t.Context(), "person:a", d.ID(), "asked by letter"); done || err != nil {
		t.Fatalf("one person erased it: %v", err)
	}
	if _, _, err := p.Erase(t.Context(), "person:a", d.ID(), "asked by letter"); !fault.Is(err, fault.Conflict) {
		t.Errorf("the same person again: %v", err)
	}
	if _, done, err := p.Erase(t.Context(), "person:b", d.ID(), "asked by letter"); !done || err != nil {
		t.Fatalf("two people did not erase it: %v", err)
	}
	if hits := p.find(all, s.ID, "zebulon xylophone regards letter"); len(hits) != 0 {
		t.Errorf("%+v", hits)
	}
	if hits := p.find(all, s.ID, "nothing interest"); len(hits) != 1 {
		t.Errorf("the others: %+v", hits)
	}
	nothingOf(t, p.dir, sentence)
	p.verify()
	p.close()
	nothingOf(t, p.dir, sentence)
	p.reopen()
	d, err := p.Document(d.ID())
	must(t, err)
	if _, err := p.Text(t.Context(), d, d.Version(1)); !fault.Is(err, fault.NotFound) {
		t.Errorf("its text: %v", err)
	}
	if _, err := p.Restore(t.Context(), "person:a", d.ID(), "x"); !fault.Is(err, fault.Conflict) {
		t.Errorf("restoring it: %v", err)
	}
}

// A withdrawn document is corrected by a new version: that one is read, and the poisoned ones never again, not even by a restoration.
func TestWithdrawnIsCorrected(t *testing.T) {
	r := knowledge.Reader{Sources: []string{"wiki"}}
	p := open(t, t.TempDir())
	d := p.add("wiki", "a", "The poisoned recipe.")
	old := p.snap()
	_, err := p.Withdraw(t.Context(), "person:a", "poisoned", Withdrawal{Source: "wiki"})
	must(t, err)
	if _, err := p.AddVersion(t.Context(), "person:a", d.ID(), 1, Adding{Content: "The poisoned recipe."}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the same text again: %v", err)
	}
	for _, by := range []string{"host:sync", "person:a"} { // a program, or a fetch, that knows nothing of the withdrawal
		if _, err := p.AddVersion(t.Context(), by, d.ID(), 1, Adding{Content: "The poisoned recipe!", NoCorrection: true}); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s ends a withdrawal: %v", by, err)
		}
	}
	if _, _, err := p.Save(t.Context(), "person:a", Adding{Source: "wiki", Key: "a", Content: "The poisoned recipe?", NoCorrection: true}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a fetch ends a withdrawal: %v", err)
	}
	_, err = p.AddVersion(t.Context(), "person:a", d.ID(), 1, Adding{Content: "The clean recipe."})
	must(t, err)
	s := p.snap()
	check := func(when string) {
		t.Helper()
		for range 2 { // with the index of before, and with the one of now
			if hits := p.find(r, s.ID, "recipe"); len(hits) != 1 || hits[0].Version != 2 {
				t.Errorf("%s: %+v", when, hits)
			}
			for _, reader := range []knowledge.Reader{r, all} {
				if hits := p.find(reader, old.ID, "recipe"); len(hits) != 0 {
					t.Errorf("%s, in the old snapshot: %+v", when, hits)
				}
			}
			p.indexes.builds.Wait()
		}
		for _, c := range []struct {
			snapshot string
			version  int
		}{{s.ID, 1}, {old.ID, 0}, {old.ID, 1}} {
			if got, err := p.Read(t.Context(), r, c.snapshot, d.ID(), c.version, 0, 100); !fault.Is(err, fault.NotFound) {
				t.Errorf("%s: %+v, %v", when, got, err)
			}
		}
		if got, err := p.Read(t.Context(), r, s.ID, d.ID(), 0, 0, 100); err != nil || got.Text != "The clean recipe." {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
	}
	check("corrected")
	if _, err := p.Withdraw(t.Context(), "person:a", "once more", Withdrawal{To: d.Events[0].At.Add(time.Nanosecond)}); !fault.Is(err, fault.NotFound) {
		t.Errorf("withdrawing what is withdrawn: %v", err)
	}
	if _, err := p.Restore(t.Context(), "person:a", d.ID(), "x"); !fault.Is(err, fault.Conflict) {
		t.Errorf("restoring: %v", err)
	}
	if _, err := p.AddVersion(t.Context(), "person:a", d.ID(), 2, Adding{Content: "The poisoned recipe."}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the poison as a later version: %v", err)
	}
	_, err = p.Withdraw(t.Context(), "person:a", "all of it", Withdrawal{Source: "wiki"})
	must(t, err)
	if hits := p.find(r, s.ID, "recipe"); len(hits) != 0 {
		t.Errorf("withdrawn again: %+v", hits)
	}
	p.indexes.builds.Wait()
	_, err = p.Restore(t.Context(), "person:a", d.ID(), "a mistake")
	must(t, err)
	p.find(r, s.ID, "recipe")
	p.indexes.builds.Wait() // until then the index without it is used
	check("restored")
	p.verify()
	p.close()
	p.reopen()
	check("after a restart")
}

// A build that has read the text when it is erased leaves nothing: it is ended before the indexes are removed, however late it puts its file into place.
func TestErasureEndsBuilds(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("letters", "z", "A letter about a xylophone.")
	s := p.snap()
	p.indexes.builds.Wait()
	file := filepath.Join(p.dir, shelf.Indexes, s.ID+".db")
	body, err := os.ReadFile(file)
	must(t, err)
	_, _, err = p.Erase(t.Context(), "person:a", d.ID(), "asked")
	must(t, err)
	p.indexes.builds.Wait()
	b := &build{done: make(chan struct{})}
	b.ctx, b.stop = context.WithCancel(t.Context())
	p.indexes.mu.Lock()
	p.indexes.building[s.ID] = b
	p.indexes.mu.Unlock()
	answered, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		select {
		case <-b.ctx.Done():
		case <-answered: // nobody ended it
		}
		for _, name := range []string{file, file + ".new"} {
			if err := os.WriteFile(name, body, 0o600); err != nil {
				t.Error(err)
			}
		}
		p.indexes.mu.Lock()
		delete(p.indexes.building, s.ID)
		p.indexes.mu.Unlock()
		b.err, b.ended = context.Canceled, true
		close(b.done)
	}()
	_, done, err := p.Erase(t.Context(), "person:b", d.ID(), "asked")
	close(answered)
	if !done || err != nil {
		t.Errorf("done %v, %v", done, err)
	}
	<-written
	nothingOf(t, p.dir, "xylophone")
	p.indexes.builds.Wait()
	nothingOf(t, p.dir, "xylophone")
	if hits := p.find(all, s.ID, "letter"); len(hits) != 0 {
		t.Errorf("%+v", hits)
	}
}

// Many builds and erasures at once: no file has a word of what was erased.
func TestErasureWhileIndexesAreBuilt(t *testing.T) {
	p := open(t, t.TempDir())
	var secrets []*knowledge.Document
	for i := range 4 {
		secrets = append(secrets, p.add("letters", fmt.Sprint("s", i), fmt.Sprintf("A letter about xylophone%d.", i)))
	}
	var text strings.Builder
	for j := range 20_000 {
		fmt.Fprintf(&text, "w%d ", j)
	}
	other := p.add("letters", "long", text.String())
	p.snap()
	for i, d := range secrets {
		_, _, err := p.Erase(t.Context(), "person:a", d.ID(), "asked")
		must(t, err)
		_, err = p.SetLabels(t.Context(), "person:a", other.ID(), "x", [][]string{{"internal"}, nil}[i%2]) // a build begins
		must(t, err)
		_, _, err = p.Erase(t.Context(), "person:b", d.ID(), "asked")
		must(t, err)
		nothingOf(t, p.dir, fmt.Sprint("xylophone", i))
	}
	p.indexes.builds.Wait()
	nothingOf(t, p.dir, "xylophone0 xylophone1 xylophone2 xylophone3")
}

// What a crash left of a build is removed by an erasure, and by a start.
func TestLeftoversOfBuildsAreRemoved(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("letters", "z", "A letter about a xylophone.")
	s := p.snap()
	p.indexes.builds.Wait()
	body, err := os.ReadFile(filepath.Join(p.dir, shelf.Indexes, s.ID+".db"))
	must(t, err)
	leave := func() {
		for _, name := range []string{"snap_0000.db.new", "snap_0000.db.new-journal", s.ID + ".db.new"} {
			must(t, os.WriteFile(filepath.Join(p.dir, shelf.Indexes, name), body, 0o600))
		}
	}
	leave()
	for _, by := range []string{"person:a", "person:b"} {
		_, _, err := p.Erase(t.Context(), by, d.ID(), "asked")
		must(t, err)
	}
	p.indexes.builds.Wait()
	nothingOf(t, p.dir, "xylophone")
	p.close()
	leave()
	p.reopen()
	nothingOf(t, p.dir, "xylophone")
}

// An erasure that can't be finished says so, leaves no words, and is finished by asking again.
func TestErasureIsResumed(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("letters", "z", "A letter about a xylophone.")
	p.snap()
	p.indexes.builds.Wait()
	db, err := sql.Open("sqlite", filepath.Join(p.dir, shelf.File))
	must(t, err)
	tx, err := db.Begin()
	must(t, err)
	var n int
	must(t, tx.QueryRow("SELECT count(*) FROM knowledge_contents").Scan(&n)) // as a backup reads
	_, _, err = p.Erase(t.Context(), "person:a", d.ID(), "asked")
	must(t, err)
	if _, done, err := p.Erase(t.Context(), "person:b", d.ID(), "asked"); done || !fault.Is(err, fault.StoreUnavailable) || fault.Of(err).Remedy == "" {
		t.Errorf("while the file is read: done %v, %v", done, err)
	}
	p.indexes.builds.Wait()
	nothingOf(t, p.dir, "xylophone")
	must(t, errors.Join(tx.Rollback(), db.Close()))
	if _, done, err := p.Erase(t.Context(), "person:b", d.ID(), "asked"); !done || err != nil {
		t.Errorf("again: done %v, %v", done, err)
	}
	if left, err := p.o.Shelf.Keyed(t.Context(), []string{d.ID()}); len(left) != 0 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	if wal, err := os.Stat(filepath.Join(p.dir, shelf.File+"-wal")); err != nil || wal.Size() != 0 {
		t.Errorf("the write-ahead log: %v, %v", wal, err)
	}
	p.verify()
}

// nothingOf looks for every word of a sentence of more than five letters in every file, but for the directory's own words.
func nothingOf(t *testing.T, dir, sentence string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, word := range strings.Fields(sentence) {
			if len(word) > 5 && bytes.Contains(bytes.ToLower(b), []byte(strings.ToLower(word))) {
				t.Errorf("%q is in %s", word, path)
			}
		}
		return err
	}))
}

// A copy of knowledge.db from before an erasure, put back under a newer log: the key is destroyed again by the start.
func TestErasureIsDoneAgain(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("letters", "z", "A letter about a xylophone.")
	p.snap()
	p.close()
	file := filepath.Join(p.dir, shelf.File)
	old, err := os.ReadFile(file)
	must(t, err)
	p.reopen()
	for _, by := range []string{"person:a", "person:b"} {
		_, _, err := p.Erase(t.Context(), by, d.ID(), "asked")
		must(t, err)
	}
	p.close()
	for _, suffix := range []string{"-wal", "-shm"} {
		os.Remove(file + suffix)
	}
	must(t, os.WriteFile(file, old, 0o600))
	p.reopen()
	if left, err := p.o.Shelf.Keyed(t.Context(), []string{d.ID()}); len(left) != 0 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	nothingOf(t, p.dir, "xylophone")
}

// Neither table takes a change, a removal or a replacement, by whatever means of SQL.
// A data directory from before an erasure, as a backup restores it, has the document erased again: with two events and their entries, and without its key. It can be done again, and takes one person's word for nothing.
func TestEraseAgain(t *testing.T) {
	const sentence = "Zebulon Quartermain owes the xylophone shop"
	p := open(t, t.TempDir())
	d, other := p.add("letters", "z", sentence), p.add("letters", "y", "Of no interest.")
	asked := p.add("letters", "x", "Quartermain again, who was asked about.")
	if _, _, err := p.Erase(t.Context(), "person:b", asked.ID(), "asked"); err != nil {
		t.Fatal(err)
	}
	s := p.snap()
	later := []knowledge.Erasure{
		{Document: d.ID(), AskedBy: "person:a", By: "person:b", AskedAt: p.now, At: p.now}, {Document: asked.ID(), AskedBy: "person:a", By: "person:b", AskedAt: p.now, At: p.now},
		{Document: knowledge.DocumentID("letters", "later"), AskedBy: "person:a", By: "person:b"},
	}
	p.close()
	must(t, os.RemoveAll(filepath.Join(p.dir, shelf.Indexes))) // a backup has none
	again := func(erasures []knowledge.Erasure) ([]string, error) {
		db, err := store.Open(p.dir, store.Options{})
		must(t, err)
		texts, err := shelf.Open(p.dir)
		must(t, err)
		done, err := EraseAgain(t.Context(), db, texts, "local:root", p.now, erasures)
		must(t, errors.Join(texts.Close(), db.Close()))
		return done, err
	}
	for _, alone := range []knowledge.Erasure{{Document: d.ID(), AskedBy: "person:a", By: "person:a"}, {Document: d.ID(), By: "person:a"}, {Document: d.ID()}} {
		if done, err := again([]knowledge.Erasure{alone}); !fault.Is(err, fault.ConfigurationInvalid) || len(done) > 0 {
			t.Errorf("by one person: %v, %v", done, err)
		}
	}
	for range 2 {
		if done, err := again(later); err != nil || !slices.Equal(done, []string{d.ID(), asked.ID()}) {
			t.Fatalf("%v, %v", done, err)
		}
		nothingOf(t, p.dir, sentence)
	}
	p.reopen()
	p.verify()
	if left, err := p.o.Shelf.Keyed(t.Context(), []string{d.ID(), asked.ID(), other.ID()}); err != nil || !slices.Equal(left, []string{other.ID()}) {
		t.Errorf("%v, %v", left, err)
	}
	if hits := p.find(all, s.ID, "quartermain xylophone interest"); len(hits) != 1 || hits[0].Document != other.ID() {
		t.Errorf("%+v", hits)
	}
	nothingOf(t, p.dir, sentence)
	entries, _, err := p.db.Entries(t.Context(), audit.Filter{Action: "knowledge.erase", Limit: 10})
	if err != nil || len(entries) != 2 || entries[0].Actor != "local:root" {
		t.Errorf("%+v, %v", entries, err)
	}
}

func TestTablesRefuseChange(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("handbook", "a", "text one")
	_, err := p.AddVersion(t.Context(), "person:a", d.ID(), 1, Adding{Content: "text two"})
	must(t, err)
	p.embedder.model = "embed-1"
	p.snap()
	must(t, p.embedNewest(t.Context()))
	_, err = p.Pin(t.Context(), "sess_1", "a")
	must(t, err)
	p.close()
	for file, tables := range map[string][]string{
		store.DatabaseFile: {"knowledge_events", "knowledge_snapshots", "knowledge_indexes", "knowledge_pins"}, shelf.File: {"knowledge_contents", "knowledge_embeddings", "knowledge_embedded"},
	} {
		db, err := sql.Open("sqlite", filepath.Join(p.dir, file))
		must(t, err)
		db.SetMaxOpenConns(1)
		for _, table := range tables {
			var columns []string
			rows, err := db.Query("SELECT name FROM pragma_table_info($1)", table)
			must(t, err)
			for rows.Next() {
				var name string
				must(t, rows.Scan(&name))
				columns = append(columns, name)
			}
			must(t, errors.Join(rows.Err(), rows.Close()))
			attacks := []string{
				"DELETE FROM " + table, "DELETE FROM " + table + " WHERE rowid = 1",
				"INSERT OR REPLACE INTO " + table + " SELECT * FROM " + table + " LIMIT 1",
				"INSERT OR REPLACE INTO " + table + " (rowid, " + strings.Join(columns, ", ") + ") SELECT rowid, " + strings.Replace(strings.Join(columns, ", "), columns[0], "'new'", 1) + " FROM " + table + " LIMIT 1",
				"INSERT INTO " + table + " SELECT * FROM " + table + " WHERE true ON CONFLICT DO UPDATE SET " + columns[1] + " = excluded." + columns[1],
			}
			for _, c := range columns {
				attacks = append(attacks, fmt.Sprintf("UPDATE %s SET %s = %[2]s", table, c), fmt.Sprintf("UPDATE OR REPLACE %s SET %s = 'x'", table, c))
			}
			for _, a := range attacks {
				if _, err := db.Exec(a); err == nil {
					t.Errorf("taken: %s", a)
				}
			}
		}
		must(t, db.Close())
	}
	p.reopen()
	p.verify()
}

// A sentence with half of its words replaced finds its chunk among the first five, nine times in ten.
func TestHalfASentenceFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string { return fmt.Sprint("w", int(r.ExpFloat64()*600)) }
	p := open(t, t.TempDir())
	sentences := map[string]string{}
	for i := range 300 {
		var text strings.Builder
		for j := range 12 {
			words := make([]string, 12)
			for k := range words {
				words[k] = word()
			}
			s := strings.Join(words, " ")
			if j == 5 {
				sentences[fmt.Sprint(i)] = s
			}
			text.WriteString(s + ". ")
		}
		p.add("books", fmt.Sprint(i), text.String())
	}
	p.snap()
	found := 0
	for key, s := range sentences {
		words := strings.Fields(s)
		for _, i := range r.Perm(len(words))[:len(words)/2] {
			words[i] = word()
		}
		f, err := p.Search(t.Context(), all, nil, "", strings.Join(words, " "), 5)
		must(t, err)
		if slices.ContainsFunc(f.Hits, func(h Hit) bool { return h.Key == key && strings.Contains(h.Text, s[:20]) }) {
			found++
		}
	}
	if found*10 < len(sentences)*9 {
		t.Errorf("%d of %d were found", found, len(sentences))
	}
}

// So it is in real text: the documentation of this program, with words of it in place of those that are replaced.
func TestHalfASentenceFindsInRealText(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	p := open(t, t.TempDir())
	files, err := filepath.Glob("../../../docs/*.md")
	must(t, err)
	type sentence struct{ key, text string }
	var sentences []sentence
	var words []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		must(t, err)
		key := filepath.Base(file)
		_, err = p.Add(t.Context(), "person:a", Adding{Source: "docs", Key: key, Content: string(b), Own: true})
		must(t, err)
		words = append(words, strings.Fields(string(b))...)
		for _, span := range knowledge.Chunks(string(b)) {
			for line := range strings.SplitSeq(string(b)[span.Start:span.End], ". ") {
				if n := len(slices.Collect(knowledge.Words(line))); n >= 12 && n <= 24 && !strings.Contains(line, "\n") {
					sentences = append(sentences, sentence{key, line})
					break
				}
			}
		}
	}
	if len(sentences) < 200 {
		t.Fatalf("only %d sentences in %d files", len(sentences), len(files))
	}
	p.snap()
	found := 0
	for _, s := range sentences {
		mixed := strings.Fields(s.text)
		for _, i := range r.Perm(len(mixed))[:len(mixed)/2] {
			mixed[i] = words[r.IntN(len(words))]
		}
		f, err := p.Search(t.Context(), all, nil, "", strings.Join(mixed, " "), 5)
		must(t, err)
		if slices.ContainsFunc(f.Hits, func(h Hit) bool { return h.Key == s.key && strings.Contains(h.Text, s.text) }) {
			found++
		}
	}
	t.Logf("%d of %d were found", found, len(sentences))
	if found*10 < len(sentences)*9 {
		t.Errorf("%d of %d were found", found, len(sentences))
	}
}

// Two names of one admin erase nothing; nor does a request that is too old, or whose author is no admin any more: it is asked anew.
func TestTwoErase(t *testing.T) {
	p := open(t, t.TempDir())
	for name, c := range map[string]struct {
		first string
		later time.Duration
		code  fault.Code // of the second request, by person:b
		done  bool
	}{
		"two people":                   {"person:a", EraseTime - time.Hour, "", true},
		"one name":                     {"person:b", 0, fault.Conflict, false},
		"two names of one":             {"person:b-alias", 0, fault.Conflict, false},
		"too late":                     {"person:a", EraseTime, "", false},
		"one name, and the first late": {"person:b", EraseTime, "", false},
		"no admin any more":            {"person:former", 0, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := p.Add(t.Context(), "person:a", Adding{Key: name, Source: "s", Content: "text"})
			must(t, err)
			_, _, err = p.Erase(t.Context(), c.first, d.ID(), "asked")
			must(t, err)
			p.now = p.now.Add(c.later)
			d, done, err := p.Erase(t.Context(), "person:b", d.ID(), "asked")
			if done != c.done || fault.Of(err).Code != c.code && (err != nil || c.code != "") {
				t.Errorf("%t, %v", done, err)
			}
			if err == nil && !done && d.Now().EraseAsked != "person:b" {
				t.Errorf("%s has asked", d.Now().EraseAsked)
			}
		})
	}
}
