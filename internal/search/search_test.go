package search

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// memoryLog is a log in memory, whose entries before oldest are archived.
type memoryLog struct {
	entries  []audit.Entry
	payloads map[string]string
	oldest   int64
}

func (l *memoryLog) Size(context.Context) (int64, error) { return int64(len(l.entries)), nil }
func (l *memoryLog) Oldest() int64                       { return l.oldest }

func (l *memoryLog) Entries(_ context.Context, f audit.Filter) (page []audit.Entry, next int64, err error) {
	if f.Text != "" {
		panic("the store does not search by content")
	}
	for i := max(f.Min, l.oldest); i < int64(len(l.entries)); i++ {
		if f.Match(l.entries[i]) {
			page = append(page, l.entries[i])
		}
		if len(page) == f.Limit && i+1 < int64(len(l.entries)) {
			return page, i, nil
		}
	}
	return page, -1, nil
}

func (l *memoryLog) Entry(_ context.Context, i int64) (audit.Entry, []byte, error) {
	if i < l.oldest || i >= int64(len(l.entries)) {
		return audit.Entry{}, nil, fault.New(fault.NotFound, "There is no entry %d.", i)
	}
	leaf, err := json.Marshal(l.entries[i])
	return l.entries[i], leaf, err
}

func (l *memoryLog) Payload(_ context.Context, key string) ([]byte, error) {
	if p, ok := l.payloads[key]; ok {
		return []byte(p), nil
	}
	return nil, fault.New(fault.NotFound, "There is no payload.")
}

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func (l *memoryLog) add(e audit.Entry) {
	e.Index, e.At = int64(len(l.entries)), noon.Add(time.Duration(len(l.entries))*time.Minute)
	l.entries = append(l.entries, e)
}

func shownAs(text string) *audit.Payload { return &audit.Payload{Shown: json.RawMessage(text)} }

func opened(t *testing.T, dir string, l *memoryLog) *Index {
	t.Helper()
	x, err := Open(dir, l, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

// found are the indexes that a filter selects, in both orders.
func found(t *testing.T, l *Log, f audit.Filter) (oldest []int64) {
	t.Helper()
	f.Limit = 2 // so that several pages are read
	for {
		page, next, err := l.Entries(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			oldest = append(oldest, e.Index)
		}
		if next < 0 {
			break
		}
		f.Min = next + 1
	}
	f.Min = 0
	var newest []int64
	for before := int64(-1); ; {
		r, err := l.Newest(t.Context(), f, before, 2, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range slices.Backward(r.Entries) {
			newest = append(newest, e.Index)
		}
		if before = r.From; before < 0 {
			break
		}
	}
	slices.Reverse(newest)
	if !slices.Equal(oldest, newest) {
		t.Errorf("%+v: the oldest first %v, the newest first %v", f, oldest, newest)
	}
	return oldest
}

func sample() *memoryLog {
	l := &memoryLog{payloads: map[string]string{"k": `{"rows":[{"name":"Jörg Müller","note":"line\nbreak"}]}`}}
	l.add(audit.Entry{Kind: audit.Intent, Action: "call", Agent: "a", Operation: "crm.find", Arguments: shownAs(`{"name":"Anna Meyer"}`)})
	l.add(audit.Entry{Kind: audit.Outcome, Action: "call", Agent: "a", Operation: "crm.find", Result: &audit.Payload{Stored: true, Key: "k"}})
	l.add(audit.Entry{Kind: audit.Intent, Action: "call", Agent: "b", Operation: "mail.send", Arguments: shownAs(`{"to":"billing@initech.example","names":["Anna","Meyer"],"amount":4800.5}`)})
	l.add(audit.Entry{Kind: audit.Change, Action: "approval.reject", Reason: "Not to Müller."})
	l.add(audit.Entry{Kind: audit.Outcome, Action: "call", Agent: "b", Operation: "knowledge.read", Arguments: shownAs(`{"query":"hush"}`), Result: shownAs(`"hush money"`)})
	l.add(audit.Entry{Kind: audit.Change, Action: "knowledge.erase", Reason: "hush"})
	l.add(audit.Entry{Kind: audit.Outcome, Action: "call", Agent: "a", Result: &audit.Payload{Stored: true, Key: "gone"}})
	l.add(audit.Entry{Kind: audit.Outcome, Action: "call", Agent: "a", Result: shownAs(`"顧客 田中"`)})
	return l
}

// Entries are found by their words, and by the whole filter.
func TestFind(t *testing.T) {
	l := sample()
	log := New(l, opened(t, t.TempDir(), l))
	for text, want := range map[string][]int64{
		"anna": {0, 2}, "MEYER anna": {0, 2}, `"Anna Meyer"`: {0}, "muller": {1, 3}, "Jörg": {1}, "break": {1}, "nbreak": nil,
		"billing@initech.example": {2}, "initech.example": {2}, "4800.5": {2}, "Mey*": {0, 2}, "Mey": nil, `"anna mey" *`: nil, "田中": {7},
		"hush": nil, "money": nil, "anna OR jorg": nil, "anna NOT meyer": nil, "words : anna": nil, apart + " anna": {0, 2},
	} {
		if got := found(t, log, audit.Filter{Text: text}); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := found(t, log, audit.Filter{Text: "anna", Agent: "b"}); !slices.Equal(got, []int64{2}) {
		t.Errorf("with an agent: %v", got)
	}
	if got := found(t, log, audit.Filter{Text: "anna", From: noon.Add(time.Minute), To: noon.Add(2 * time.Minute)}); got != nil {
		t.Errorf("in a time: %v", got)
	}
	if got := found(t, log, audit.Filter{Agent: "b"}); !slices.Equal(got, []int64{2, 4}) {
		t.Errorf("without text: %v", got)
	}
	for text, log := range map[string]*Log{"…": log, `""`: log, "anna": New(l, nil)} {
		if _, _, err := log.Entries(t.Context(), audit.Filter{Text: text}); !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if to, size, ok := log.Reach(t.Context()); !ok || to != 8 || size != 8 {
		t.Error(to, size, ok)
	}
}

// The index follows the log, and is made anew where it is absent, damaged, of another version, of another log, or has entries that were archived.
func TestIndexIsOfItsLog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, File)
	l := sample()
	x := opened(t, dir, l)
	l.add(audit.Entry{Kind: audit.Change, Action: "approval.reject", Reason: "Anna again"})
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := found(t, New(l, x), audit.Filter{Text: "anna"}); !slices.Equal(got, []int64{0, 2, 8}) {
		t.Error(got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	x.Close()
	for name, spoil := range map[string]func(){
		"absent":  func() { os.Remove(path) },
		"damaged": func() { os.WriteFile(path, bytes.Repeat([]byte("x"), 5000), 0o600) },
		"another version": func() {
			x := opened(t, dir, l)
			x.db.Exec(`UPDATE about SET format = 'words 0'`)
			x.Close()
		},
		"another log": func() {
			x := opened(t, dir, l)
			x.Close()
			l.entries = l.entries[:4]
			for range 5 {
				l.add(audit.Entry{Kind: audit.Change, Action: "approval.reject", Reason: "after a restore"})
			}
		},
		"shorter log": func() {
			opened(t, dir, l).Close()
			l.entries = l.entries[:3]
		},
		"archived": func() {
			opened(t, dir, l).Close()
			l.oldest = 2
		},
	} {
		l = sample()
		spoil()
		x := opened(t, dir, l)
		want := []int64{0, 2}
		if l.oldest > 0 {
			want = []int64{2}
		}
		if got := found(t, New(l, x), audit.Filter{Text: "anna"}); !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
		var texts int
		if err := x.db.QueryRow(`SELECT count(*) FROM texts WHERE texts MATCH 'again'`).Scan(&texts); err != nil || texts != 0 {
			t.Errorf("%s: %d of the old entries are left, %v", name, texts, err)
		}
		x.Close()
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(path + "*"); left != nil {
		t.Error(left)
	}
}

// The file has words of no text that was redacted, and no text as it stands.
func TestFileHoldsNoTexts(t *testing.T) {
	dir := t.TempDir()
	l := sample()
	opened(t, dir, l).Close()
	all, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Anna Meyer", "anna meyer", "hush", "money"} {
		if bytes.Contains(all, []byte(text)) {
			t.Errorf("the file has %q", text)
		}
	}
}

// Run fills the index, and ends with its context.
func TestRun(t *testing.T) {
	l := sample()
	x, err := Open(t.TempDir(), l, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); x.Run(ctx) }()
	for x.to() < 8 {
		select {
		case <-done:
			t.Fatal("it ended")
		case <-time.After(time.Millisecond):
		}
	}
	stop()
	<-done
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

// Downloads have each entry once, and no cell is a formula.
func TestServe(t *testing.T) {
	l := &memoryLog{}
	for i := range 1200 {
		l.add(audit.Entry{Kind: audit.Change, Action: "approval.reject", Agent: "a", Reason: fmt.Sprintf("=HYPERLINK(%d)\r\n+1", i)})
	}
	log := New(l, opened(t, t.TempDir(), l))
	get := func(query string) (*httptest.ResponseRecorder, error) {
		w := httptest.NewRecorder()
		return w, log.Serve(w, httptest.NewRequest("GET", "/x?"+query, nil), slog.New(slog.DiscardHandler))
	}
	w, err := get("format=csv&agent=a")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(w.Body).ReadAll()
	if err != nil || len(rows) != 1201 {
		t.Fatal(len(rows), err)
	}
	for _, row := range rows {
		for _, cell := range row {
			if cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r") || strings.ContainsAny(cell, "\r\n") {
				t.Fatalf("the cell %q", cell)
			}
		}
	}
	if w, err = get("format=jsonl&q=hyperlink"); err != nil || strings.Count(w.Body.String(), "\n") != 1200 {
		t.Error(strings.Count(w.Body.String(), "\n"), err)
	}
	for query, field := range map[string]string{"": "format", "format=xls": "format", "format=csv&agnet=a": "agnet", "format=csv&q=..": "q"} {
		var f *fault.Error
		if w, err := get(query); !asFault(err, &f) || f.Field != field || w.Body.Len() > 0 {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func asFault(err error, f **fault.Error) bool {
	if !fault.Is(err, fault.RequestMalformed) {
		return false
	}
	*f = fault.Of(err)
	return true
}

// No search is an error of FTS5's own language, and none finds what the words don't say.
func FuzzParsed(f *testing.F) {
	for _, s := range []string{`a"b`, `"`, `NEAR(a b)`, `a*`, `^a`, `-a`, `words:a`, `{words}:a`, "a\x00b", `"a" + "b"`, `a AND`, "\uE000"} {
		f.Add(s)
	}
	l := sample()
	x, err := Open(f.TempDir(), l, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { x.Close() })
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := x.find(t.Context(), s, 0, 10, false); err != nil && !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%q: %v", s, err)
		}
	})
}
