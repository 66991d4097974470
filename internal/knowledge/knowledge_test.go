package knowledge

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func first() Event {
	return Event{Document: DocumentID("handbook", "travel.md"), Source: "handbook", Key: "travel.md", Seq: 1, Order: 1, Kind: Versioned, Version: 1, Hash: "h1", By: "person:a"}
}

func next(d *Document, e Event) Event {
	e.Document, e.Seq, e.Order = d.ID(), len(d.Events)+1, d.Events[len(d.Events)-1].Order+1
	if e.By == "" {
		e.By = "person:a"
	}
	return e
}

// Every kind of event, in every state of a document: only what follows is taken.
func TestEventsFollow(t *testing.T) {
	states := map[string][]Event{
		"there": nil, "deleted": {{Kind: Deleted}}, "withdrawn": {{Kind: Withdrawn}}, "restored": {{Kind: Deleted}, {Kind: Restored}},
		"asked": {{Kind: EraseAsk}}, "erased": {{Kind: EraseAsk}, {Kind: Erased, By: "person:b"}},
	}
	may := map[Kind]string{
		Versioned: "there withdrawn restored asked", Deleted: "there withdrawn restored asked", Restored: "deleted withdrawn", Labelled: "there deleted withdrawn restored asked",
		Withdrawn: "there deleted restored asked", EraseAsk: "there deleted withdrawn restored asked", Erased: "asked",
	}
	for name, before := range states {
		for kind, allowed := range may {
			d, err := (*Document)(nil).Follow(first())
			for _, e := range before {
				if err == nil {
					d, err = d.Follow(next(d, e))
				}
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			e := next(d, Event{Kind: kind, By: "person:b"})
			if kind == Versioned {
				e.Version = 2
			}
			_, err = d.Follow(e)
			if want := slices.Contains(strings.Fields(allowed), name); (err == nil) != want {
				t.Errorf("%s of a document that is %s: %v", kind, name, err)
			}
		}
	}
	d, err := (*Document)(nil).Follow(first())
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]Event{
		"a version twice":   next(d, Event{Kind: Versioned, Version: 1}),
		"a version too far": next(d, Event{Kind: Versioned, Version: 3}),
		"another document":  {Document: "doc_x", Seq: 2, Order: 2, Kind: Deleted},
		"a gap":             {Document: d.ID(), Seq: 3, Order: 2, Kind: Deleted},
		"the same order":    {Document: d.ID(), Seq: 2, Order: 1, Kind: Deleted},
	} {
		if _, err := d.Follow(e); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	wrong := first()
	wrong.Key = "other.md"
	if _, err := (*Document)(nil).Follow(wrong); err == nil {
		t.Error("an id that does not follow from the key was taken")
	}
}

func TestOnePersonDoesNotErase(t *testing.T) {
	d, _ := (*Document)(nil).Follow(first())
	d, _ = d.Follow(next(d, Event{Kind: EraseAsk, By: "person:a"}))
	if _, err := d.Follow(next(d, Event{Kind: Erased, By: "person:a"})); err == nil {
		t.Error("one person erased a document")
	}
}

func TestStateAtATime(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := first()
	e.At = at
	d, _ := (*Document)(nil).Follow(e)
	for i, e := range []Event{{Kind: Versioned, Version: 2, Labels: []string{"pii"}}, {Kind: Deleted}} {
		e.At = at.Add(time.Duration(i+1) * time.Hour)
		d, _ = d.Follow(next(d, e))
	}
	for after, want := range map[time.Duration]string{-1: "none", 0: "1", time.Hour: "2", 2 * time.Hour: "2 deleted"} {
		s, ok := d.AsOf(at.Add(after))
		got := "none"
		if ok {
			if got = fmt.Sprint(s.Version.Version); s.Gone() {
				got += " deleted"
			}
		}
		if got != want {
			t.Errorf("after %s: %s, want %s", after, got, want)
		}
	}
}

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for _, of := range [][2]string{{"a", "b"}, {"b", "a"}, {"ab", ""}, {"", "ab"}, {"a", "B"}, {"a", "b "}, {"a", "ｂ"}} {
		id := DocumentID(of[0], of[1])
		if seen[id] || id != DocumentID(of[0], of[1]) || len(id) != 44 {
			t.Errorf("%q: %s", of, id)
		}
		seen[id] = true
	}
}

// A reader is refused whatever has one label too many, one collection too few, or is gone.
func TestWhoMayRead(t *testing.T) {
	e := first()
	e.Labels = []string{"internal", "pii"}
	d, _ := (*Document)(nil).Follow(e)
	gone, _ := d.Follow(next(d, Event{Kind: Withdrawn}))
	deleted, _ := d.Follow(next(d, Event{Kind: Deleted}))
	for _, c := range []struct {
		name string
		r    Reader
		d    *Document
		want bool
	}{
		{"all of it", Reader{Sources: []string{"handbook"}, Labels: []string{"pii", "internal", "secret"}}, d, true},
		{"a label too few", Reader{Sources: []string{"handbook"}, Labels: []string{"internal"}}, d, false},
		{"no labels", Reader{Sources: []string{"handbook"}}, d, false},
		{"another collection", Reader{Sources: []string{"handbooks"}, Labels: []string{"pii", "internal"}}, d, false},
		{"nothing", Reader{}, d, false},
		{"a person", Reader{All: true}, d, true},
		{"withdrawn", Reader{All: true}, gone, false},
		{"deleted, which the next snapshot is without", Reader{All: true}, deleted, true},
	} {
		if got := c.r.May(c.d, 1); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestSnapshots(t *testing.T) {
	documents := map[string]*Document{}
	for i := range 20 {
		e := first()
		e.Key = fmt.Sprint(i)
		e.Document, e.Order, e.Hash = DocumentID(e.Source, e.Key), int64(i+1), fmt.Sprint("h", i)
		d, err := (*Document)(nil).Follow(e)
		if err != nil {
			t.Fatal(err)
		}
		documents[d.ID()] = d
	}
	at := time.Now()
	s := SnapshotOf(Members(documents, 20), 20, at, "person:a")
	if again := SnapshotOf(Members(documents, 20), 20, at, "person:a"); again != s || s.Documents != 20 {
		t.Errorf("%+v and %+v", s, again)
	}
	d := documents[DocumentID("handbook", "3")]
	e := next(d, Event{Kind: Deleted})
	e.Order = 21
	documents[d.ID()], _ = d.Follow(e)
	if later := SnapshotOf(Members(documents, 21), 21, at, "person:a"); later.Documents != 19 || later.Root == s.Root || later.ID == s.ID {
		t.Errorf("after a deletion: %+v", later)
	}
	if old := SnapshotOf(Members(documents, 20), 20, at, "person:a"); old.ID != s.ID || old.Root != s.Root {
		t.Errorf("the old snapshot moved: %+v", old)
	}
}

func TestChunksCoverTheText(t *testing.T) {
	texts := []string{
		"", "a", "# One\n\ntext\n\n# Two\n\nmore", strings.Repeat("word ", 2000), strings.Repeat("é", 5000), strings.Repeat("x", 5000),
		strings.Repeat("A paragraph of some words that go on.\n\n", 300), "\n\n\n", strings.Repeat("line\n", 3000), strings.Repeat("本", 3000),
	}
	for _, text := range texts {
		checkChunks(t, text)
	}
}

func checkChunks(t *testing.T, text string) {
	t.Helper()
	at := 0
	for _, s := range Chunks(text) {
		if s.Start < at || s.End <= s.Start || s.End > len(text) || s.End-s.Start > chunkMost {
			t.Fatalf("%.40q: chunk %v after %d", text, s, at)
		}
		if strings.TrimSpace(text[at:s.Start]) != "" {
			t.Fatalf("%.40q: %q is in no chunk", text, text[at:s.Start])
		}
		if !utf8.ValidString(text[s.Start:s.End]) && utf8.ValidString(text) {
			t.Fatalf("%.40q: chunk %v cuts a character", text, s)
		}
		at = s.End
	}
	if strings.TrimSpace(text[at:]) != "" {
		t.Fatalf("%.40q: %q is in no chunk", text, text[at:])
	}
}

func FuzzChunks(f *testing.F) {
	f.Add("# One\n\ntext")
	f.Fuzz(func(t *testing.T, text string) {
		if utf8.ValidString(text) {
			checkChunks(t, text)
			for w := range Words(text) {
				if w == "" || len(w) > maxWord {
					t.Fatalf("word %q", w)
				}
			}
		}
	})
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"The Café's 28 days": "the cafe s 28 days", "naïve NAI\u0308VE": "naive naive", "日本": "日 本", "a\u00adb": "ab", "x--y_z": "x y z",
	} {
		if got := strings.Join(slices.Collect(Words(text)), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestPhrase(t *testing.T) {
	p := NewPhrase("Expenses for travel abroad")
	for text, want := range map[string]float64{
		"": 0, "expenses": 0, "abroad travel for expenses": 0, "expenses for trains": 1, "expenses, of TRAVEL": 0.5, "travel abroad, travel abroad": 1,
		"expenses for travel abroad": 1 + 1 + 1 + 0.5 + 0.5 + 1/3.0,
	} {
		if got := p.In(text); math.Abs(got-want) > 1e-9 {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if n := len(NewPhrase(strings.Repeat("word ", 1000))); n != phraseWords {
		t.Errorf("a phrase of %d words", n)
	}
}

// A change of labels takes nothing off older versions, and what it adds reaches them, unless it is taken back before the next version.
func TestLabelsOfOlderVersions(t *testing.T) {
	version := func(labels ...string) Event { return Event{Kind: Versioned, Labels: labels} }
	labelled := func(labels ...string) Event { return Event{Kind: Labelled, Labels: labels} }
	for name, c := range map[string]struct {
		events []Event
		want   string // of each version
	}{
		"taken off the second":                    {[]Event{version("secret"), version("secret"), labelled()}, "[secret] []"},
		"taken off the first":                     {[]Event{version("secret"), labelled(), version()}, "[] []"},
		"added at the second":                     {[]Event{version(), version(), labelled("secret")}, "[secret] [secret]"},
		"added at the second, off the third":      {[]Event{version(), version(), labelled("secret"), version("secret"), labelled()}, "[secret] [secret] []"},
		"added by mistake":                        {[]Event{version(), version(), labelled("secret"), labelled()}, "[] []"},
		"found in the second's text, and kept":    {[]Event{version(), version("pii"), labelled("internal", "pii")}, "[internal] [internal pii]"},
		"other ones, twice":                       {[]Event{version("secret"), version("secret"), labelled("internal"), labelled("pii")}, "[pii secret] [pii]"},
		"versions alone change nothing of others": {[]Event{version("internal"), version("internal", "secret")}, "[internal] [internal secret]"},
	} {
		var d *Document
		n := 0
		for _, e := range c.events {
			if e.Kind == Versioned {
				n++
				e.Version = n
			}
			if d == nil {
				f := first()
				f.Labels = e.Labels
				d, _ = d.Follow(f)
				continue
			}
			var err error
			if d, err = d.Follow(next(d, e)); err != nil {
				t.Fatal(name, err)
			}
		}
		var got []string
		for v := 1; v <= n; v++ {
			got = append(got, fmt.Sprint(d.Rights(v).Labels))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
		if now := d.Now(); !slices.Equal(now.Labels, d.Rights(n).Labels) {
			t.Errorf("%s: the newest has %v and the document %v", name, d.Rights(n).Labels, now.Labels)
		}
	}
}
