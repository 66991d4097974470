package stored

import (
	"context"
	"fmt"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/provenance"
)

// memory is a Store and a HashStore that keeps nothing.
type memory struct{ saved int }

func (*memory) StoredMarks(context.Context) ([]Mark, error)                  { return nil, nil }
func (*memory) StoredWritten(context.Context) ([]Written, error)             { return nil, nil }
func (*memory) KeyedHash(server, value string) string                        { return server + " " + value }
func (m *memory) SaveStoredMarks(context.Context, []Mark, audit.Entry) error { m.saved++; return nil }

// Above its bound a kind is marked as a whole, and nothing is written for what has its labels already.
func TestMarksAreBounded(t *testing.T) {
	store := &memory{}
	m, err := Open(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	notes := &provenance.Profile{IDKind: "note", Args: map[string]provenance.Role{"id": provenance.Selector}}
	write := func(id int) {
		t.Helper()
		w := &Write{Server: "notes", Operation: "notes.change", CallID: "c", Profile: notes, Arguments: fmt.Appendf(nil, `{"id":%d}`, id), Labels: []flow.Held{{Label: flow.Internal}, {Label: flow.Untrusted}}}
		if err := m.Before(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxMarks + 50 {
		write(i)
		write(i)
	}
	if store.saved != maxMarks+1 || len(m.List()) != maxMarks+1 {
		t.Errorf("%d times saved, %d marks", store.saved, len(m.List()))
	}
	if held := m.Read("notes", notes, []byte(`{"id":99999}`), nil); len(held) != 1 || held[0].Label != flow.Internal {
		t.Errorf("another note has %v", held)
	}
}

// A server that was told more than is kept is believed nothing.
func TestWrittenIsBounded(t *testing.T) {
	v, err := OpenValues(t.Context(), &memory{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	args := []byte(`{"text":"Dora Quill"}`)
	w := v.Of("memory", "c", nil, args)
	if w == nil || w.All || len(w.Hashes) == 0 {
		t.Fatalf("%+v", w)
	}
	v.Add(w)
	if again := v.Of("memory", "d", nil, args); again != nil {
		t.Errorf("what was written before is kept again: %+v", again)
	}
	if w = v.Of("memory", "e", nil, []byte(`{`)); w == nil || !w.All {
		t.Fatalf("what can't be read: %+v", w)
	}
	v.Add(w)
	if more := v.Of("memory", "f", nil, []byte(`{"text":"x"}`)); more != nil {
		t.Errorf("%+v", more)
	}
}

// hashed is a HashStore with what was written before.
type hashed struct {
	memory
	before []Written
}

func (h *hashed) StoredWritten(context.Context) ([]Written, error) { return h.before, nil }

// What untrusted sessions wrote to a server is known after it got another name, and of no server that is started in another way.
func TestWrittenOfRenamedServer(t *testing.T) {
	args := []byte(`{"name":"Dora Quill"}`)
	first, err := OpenValues(t.Context(), &hashed{}, Servers{"memory": "h1"})
	if err != nil {
		t.Fatal(err)
	}
	wrote := first.Of("memory", "c", nil, args)
	for server, want := range map[string]bool{"notes": true, "crm": false} {
		v, err := OpenValues(t.Context(), &hashed{before: []Written{*wrote}}, Servers{"notes": "h1", "crm": "h2"})
		if err != nil {
			t.Fatal(err)
		}
		p := &provenance.Profile{Output: provenance.TrustedOutput, Names: []string{"name"}, IDKind: "person"}
		seen := provenance.Observe(p, provenance.ParseRequest("Write to Dora Quill"), provenance.Result{Operation: server + ".people", CallID: "d", Values: []provenance.Value{provenance.JSONValue([]byte(`{"id":"p1","name":"Dora Quill"}`))}})
		if len(seen.Records) != 1 || seen.Records[0].Named == "" {
			t.Fatalf("%+v", seen)
		}
		v.Distrust(server, &seen)
		if got := seen.Records[0].Named == ""; got != want {
			t.Errorf("%s: distrusted %v, want %v", server, got, want)
		}
	}
}
