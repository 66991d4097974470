package shelf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A busy index keeps nobody from another one, from putting a new file in its place, or from removing it; who waits for it learns that it is gone.
func TestBusyIndexBlocksNobodyElse(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	digests := map[string]string{}
	build := func(snapshot string) {
		t.Helper()
		b, err := s.Build(t.Context(), snapshot, "state", []Source{{Document: "doc_" + snapshot, Version: 1, Source: "a", Content: func(context.Context) (string, error) { return "some words", nil }}})
		if err != nil {
			t.Fatal(err)
		}
		digests[snapshot] = b.Digest
	}
	build("one")
	build("two")
	var ends []func()
	for range maxSearches {
		_, done, err := s.Use(t.Context(), "one", "state", digests["one"])
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, done)
	}
	waiting, digest := make(chan error, 1), digests["one"]
	go func() {
		_, _, err := s.Use(t.Context(), "one", "state", digest)
		waiting <- err
	}()
	if _, done, err := s.Use(t.Context(), "two", "state", digests["two"]); err != nil {
		t.Error(err)
	} else {
		done()
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Use(gone, "one", "state", digests["one"]); !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
	build("one")
	if err := <-waiting; err != nil && !errors.Is(err, ErrStale) {
		t.Errorf("who waited: %v", err)
	}
	if err := s.Drop("two"); err != nil {
		t.Error(err)
	}
	for _, end := range ends {
		end()
	}
	if _, done, err := s.Use(t.Context(), "one", "state", digests["one"]); err != nil {
		t.Error(err)
	} else {
		done()
	}
}

// An index that was read for another digest is not used unverified afterwards.
func TestIndexIsVerifiedBeforeUse(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := s.Build(t.Context(), "one", "state", []Source{{Document: "doc", Version: 1, Source: "a", Content: func(context.Context) (string, error) { return "some words", nil }}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Use(t.Context(), "one", "state", "other"); !errors.Is(err, ErrStale) {
		t.Errorf("for another digest: %v", err)
	}
	if len(s.open) != 0 {
		t.Error("it is open, and was not verified")
	}
	if _, done, err := s.Use(t.Context(), "one", "state", b.Digest); err != nil {
		t.Error(err)
	} else {
		done()
	}
}

func TestOrderedGoesOnWithBest(t *testing.T) {
	scores := []float32{0, 2, 1, 2, 3, 0, 1, 1}
	all := ordered(scores)
	if want := []int{4, 1, 3, 2, 6, 7}; !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
	for most := 1; most <= len(scores); most++ {
		if got := best(scores, most); !slices.Equal(got, all[:min(most, len(all))]) {
			t.Errorf("the best %d: %v", most, got)
		}
	}
}

// A word in over a tenth of the chunks finds nothing beside a rarer one, and puts those that have it, too, in front. Alone it finds.
func TestCommonWordsOnlyRefine(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var sources []Source
	for i := range 300 {
		text := "other words"
		switch {
		case i < 40:
			text = "common words"
		case i == 100:
			text = "rare words alone"
		case i == 200:
			text = "rare common words, and more"
		}
		sources = append(sources, Source{Document: fmt.Sprintf("doc_%03d", i), Version: 1, Source: "a", Content: func(context.Context) (string, error) { return text, nil }})
	}
	b, err := s.Build(t.Context(), "one", "state", sources)
	if err != nil {
		t.Fatal(err)
	}
	x, done, err := s.Use(t.Context(), "one", "state", b.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for question, want := range map[string][]string{"rare common": {"doc_200", "doc_100"}, "common rare": {"doc_200", "doc_100"}, "rare": {"doc_100", "doc_200"}, "rare words": {"doc_100", "doc_200"}, "nowhere": nil} {
		if got := ask(t, x, question); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", question, got, want)
		}
	}
	if got := ask(t, x, "common"); len(got) != 10 {
		t.Errorf("a common word alone finds %v", got)
	}
}

// ask are the documents that a question finds, the best first, ten at most.
func ask(t *testing.T, x *Index, question string) (documents []string) {
	t.Helper()
	hits, err := x.Search(t.Context(), question, func(string, []string) bool { return true }, func(string, int) bool { return true }, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hits {
		documents = append(documents, h.Document)
	}
	return documents
}
