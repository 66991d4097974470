package library

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
)

// An id that looks like another is no document, and a key that looks like another is another document: neither gets the other's versions or labels.
func TestLookAlikes(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("handbook", "café.md", "Travel is paid.", "internal")
	s := p.snap()
	for _, id := range []string{
		strings.ToUpper(d.ID()), d.ID() + " ", " " + d.ID(), d.ID() + "\x00", d.ID()[:len(d.ID())-1], d.ID() + "0", strings.Replace(d.ID(), "doc_", "dос_", 1), strings.Replace(d.ID(), "_", "＿", 1), "handbook/café.md", "",
	} {
		if _, err := p.Document(id); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := p.Read(t.Context(), all, s.ID, id, 0, 0, 100); !fault.Is(err, fault.NotFound) {
			t.Errorf("reading %q: %v", id, err)
		}
		if _, err := p.AddVersion(t.Context(), "person:a", id, 1, Adding{Content: "x"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("a version of %q: %v", id, err)
		}
	}
	ids := map[string]string{d.ID(): "café.md"}
	for _, key := range []string{"cafe\u0301.md", "cаfé.md", "café.md ", "Café.md", "./café.md", "café.md\u200b"} {
		other := p.add("handbook", key, "Other.")
		if was, taken := ids[other.ID()]; taken || len(other.Now().Labels) > 0 {
			t.Errorf("%q is %q, with %v", key, was, other.Now().Labels)
		}
		ids[other.ID()] = key
	}
	for _, pair := range [][2]string{{"a\x00b", "c"}, {"a", "b\x00c"}} { // where one ends, the other can't begin
		if err := p.MayAdd(&Adding{Source: pair[0], Key: pair[1]}); (err == nil) != (pair[0] == "a") {
			t.Errorf("%q: %v", pair, err)
		}
	}
	if now := p.document(d.ID()).Now(); now.Version.Version != 1 || !slices.Equal(now.Labels, []string{"internal"}) {
		t.Errorf("%+v", now)
	}
}

func (p *place) document(id string) *knowledge.Document {
	p.t.Helper()
	d, err := p.Document(id)
	must(p.t, err)
	return d
}

// No act but a person's change of labels takes a label off: not a new version, not one that says other labels, not a deletion, a withdrawal or what ends them.
func TestLabelsAreNotLost(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("handbook", "a", "Call 555-0100.", "internal")
	want := []string{"internal", "pii"}
	check := func(after string, err error) {
		t.Helper()
		if now := p.document(d.ID()).Now(); err != nil || !slices.Equal(now.Labels, want) {
			t.Errorf("%s: %v, %v", after, now.Labels, err)
		}
	}
	_, err := p.AddVersion(t.Context(), "person:a", d.ID(), 1, Adding{Content: "Nothing to hide."})
	check("a version without what was found", err)
	_, err = p.AddVersion(t.Context(), "person:a", d.ID(), 2, Adding{Content: "Nothing.", Labels: []string{"internal"}})
	check("a version with one label", err)
	_, err = p.Delete(t.Context(), "person:a", d.ID(), "old")
	check("a deletion", err)
	_, err = p.Restore(t.Context(), "person:a", d.ID(), "needed")
	check("its end", err)
	_, err = p.Withdraw(t.Context(), "person:a", "poisoned", Withdrawal{Source: "handbook"})
	check("a withdrawal", err)
	_, err = p.AddVersion(t.Context(), "person:a", d.ID(), 3, Adding{Content: "Corrected."})
	check("its correction", err)
	if _, _, err := p.Save(t.Context(), "person:a", Adding{Source: "handbook", Key: "a", Content: "By the same key."}); err != nil {
		t.Error(err)
	}
	check("the same key again", nil)
}

// What was deleted, withdrawn or erased does not come back by sending it again.
func TestReplays(t *testing.T) {
	p := open(t, t.TempDir())
	text := map[string]string{"deleted": "One text.", "withdrawn": "A poisoned text.", "erased": "A letter."}
	for key := range text {
		p.add(key, key, text[key])
	}
	id := func(key string) string { return knowledge.DocumentID(key, key) }
	s := p.snap()
	_, err := p.Delete(t.Context(), "person:a", id("deleted"), "old")
	must(t, err)
	_, err = p.Withdraw(t.Context(), "person:a", "poisoned", Withdrawal{Source: "withdrawn"})
	must(t, err)
	for _, by := range []string{"person:a", "person:b"} {
		_, _, err := p.Erase(t.Context(), by, id("erased"), "asked")
		must(t, err)
	}
	for key := range text {
		if _, err := p.Add(t.Context(), "person:a", Adding{Source: key, Key: key, Content: text[key]}); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: added again: %v", key, err)
		}
		if _, err := p.AddVersion(t.Context(), "person:a", id(key), 1, Adding{Content: text[key]}); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: a version with the same text: %v", key, err)
		}
		if _, _, err := p.Save(t.Context(), "person:a", Adding{Source: key, Key: key, Content: text[key]}); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: saved again: %v", key, err)
		}
	}
	if hits := p.find(all, s.ID, "text letter poisoned"); len(hits) != 1 || hits[0].Source != "deleted" { // an ordinary deletion takes effect with the next snapshot
		t.Errorf("%+v", hits)
	}
	if hits := p.find(all, p.snap().ID, "text letter poisoned"); len(hits) != 0 {
		t.Errorf("%+v", hits)
	}
	p.verify()
}

// Of a version, a deletion, a withdrawal and labels that race, each has its place in the log or is refused, and nothing is lost.
func TestActsRace(t *testing.T) {
	p := open(t, t.TempDir())
	d := p.add("handbook", "a", "one")
	acts := []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := p.AddVersion(ctx, "person:a", d.ID(), 1, Adding{Content: "two"})
			return err
		},
		func(ctx context.Context) error { _, err := p.Delete(ctx, "person:a", d.ID(), "x"); return err },
		func(ctx context.Context) error {
			_, err := p.Withdraw(ctx, "person:a", "x", Withdrawal{Source: "handbook"})
			return err
		},
		func(ctx context.Context) error {
			_, err := p.SetLabels(ctx, "person:a", d.ID(), "x", []string{"internal"})
			return err
		},
	}
	results := make(chan error)
	for range 3 {
		for _, act := range acts {
			go func() { results <- act(context.Background()) }()
		}
	}
	done := 0
	for range 3 * len(acts) {
		switch err := <-results; {
		case err == nil:
			done++
		case !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound):
			t.Error(err)
		}
	}
	if n := len(p.document(d.ID()).Events); n != 1+done {
		t.Errorf("%d acts were done, and %d events are there", done, n)
	}
	before := fmt.Sprint(p.document(d.ID()).Events)
	p.verify()
	p.close()
	p.reopen()
	if after := fmt.Sprint(p.document(d.ID()).Events); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
}

// What a reader may not read shows in no answer and no error: whole answers and errors are the same, byte for byte, with it and without.
func TestHiddenDocumentsDoNotShowInErrors(t *testing.T) {
	r := knowledge.Reader{Sources: []string{"handbook"}}
	ask := func(hidden int) string {
		p := open(t, t.TempDir())
		open := p.add("handbook", "open", "Expenses are paid.")
		for i := range hidden {
			p.add("board", fmt.Sprint(i), "Expenses of the board: merger.")
			p.add("handbook", fmt.Sprint("secret", i), "Secret expenses: merger.", "secret")
		}
		s := p.snap()
		var out strings.Builder
		note := func(v any, err error) {
			b, bad := json.Marshal(v)
			fmt.Fprintln(&out, strings.ReplaceAll(string(b), s.ID, "SNAPSHOT"), bad, err)
		}
		for _, q := range []string{"merger", "expenses", "board", "…", strings.Repeat("merger ", 200)} {
			note(p.Search(t.Context(), r, nil, "", q, MaxHits))
		}
		for _, id := range []string{knowledge.DocumentID("board", "0"), knowledge.DocumentID("handbook", "secret0"), open.ID()} {
			for _, at := range [][2]int{{0, 0}, {1, 0}, {2, 0}, {1, 1 << 20}} {
				note(p.Read(t.Context(), r, s.ID, id, at[0], at[1], 100))
			}
		}
		return out.String()
	}
	if none, many := ask(0), ask(300); none != many || none == "" {
		t.Errorf("without:\n%s\nwith:\n%s", none, many)
	}
}
