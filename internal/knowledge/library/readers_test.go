package library

import (
	"context"
	"slices"
	"testing"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/knowledge"
)

// oneLog is a log with one page.
type oneLog []audit.Entry

func (l oneLog) Entries(_ context.Context, f audit.Filter) (page []audit.Entry, next int64, err error) {
	for _, e := range l {
		if (f.Operation == "" || e.Operation == f.Operation) && (f.Action == "" || e.Action == f.Action) && (f.Session == "" || e.Session == f.Session) {
			page = append(page, e)
		}
	}
	return page, -1, nil
}

// TestModelsThatGotADocument: a judge of results got what a call read only where its request left; of another document it says nothing.
func TestModelsThatGotADocument(t *testing.T) {
	for name, c := range map[string]struct {
		read, judge string
		want        []string
	}{
		"it was asked":                  {"doc_1", `{"model":"m","verdict":"harmless","call":"call_2"}`, []string{"m"}},
		"it was asked and was not sure": {"doc_1", `{"model":"m","verdict":"unsure","why":"time.exceeded","call":"call_2"}`, []string{"m"}},
		"nothing left":                  {"doc_1", `{"model":"m","verdict":"unsure","why":"flow.contaminated"}`, nil},
		"another document":              {"doc_2", `{"model":"m","verdict":"harmless","call":"call_2"}`, nil},
	} {
		log := oneLog{{Kind: audit.Outcome, Session: "sess_1", Agent: "a", CallID: "call_1", Operation: knowledge.Reading[0], Detail: []byte(`{"read":[{"documentId":"` + c.read + `"}],"judge":` + c.judge + `}`)}}
		got, err := ReadersOf(t.Context(), log, []*knowledge.Document{{Events: []knowledge.Event{{Document: "doc_1"}}}})
		if err != nil || !slices.Equal(got.Models, c.want) || (len(got.Calls) == 1) != (c.read == "doc_1") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
