package anchor

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/store"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a log, an older copy of its directory, and one that went on from the copy in another way.
type world struct {
	key              note.Verifier
	log, older, fork *store.DB
}

func open(t testing.TB, dir string) *store.DB {
	t.Helper()
	db, err := store.Open(dir, store.Options{})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func write(t testing.TB, db *store.DB, n int) {
	t.Helper()
	for range n {
		must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "test"}))
	}
	_, err := db.Checkpoint(t.Context())
	must(t, err)
}

func newWorld(t testing.TB) world {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	db, err := store.Open(log, store.Options{})
	must(t, err)
	write(t, db, 300)
	must(t, db.Close())
	must(t, os.CopyFS(filepath.Join(dir, "older"), os.DirFS(log)))
	must(t, os.CopyFS(filepath.Join(dir, "fork"), os.DirFS(log)))
	for _, name := range []string{"older", "fork"} {
		must(t, os.Chmod(filepath.Join(dir, name, audit.KeyFile), 0o600))
		must(t, os.Chmod(filepath.Join(dir, name, store.StateKeyFile), 0o600))
		must(t, os.Chmod(filepath.Join(dir, name, audit.PublicFile), 0o600))
	}
	w := world{log: open(t, log), older: open(t, filepath.Join(dir, "older")), fork: open(t, filepath.Join(dir, "fork"))}
	write(t, w.log, 20)
	write(t, w.fork, 40)
	w.key, err = audit.ParsePublicKey(w.log.Signer().PublicKey())
	must(t, err)
	return w
}

// server is a webhook's other end.
type server struct {
	mu     sync.Mutex
	data   []byte
	status int // of every answer; 0: the right one
	tokens []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, r.Header.Get("Authorization"))
	switch {
	case s.status >= 300 && s.status < 400:
		http.Redirect(w, r, "/elsewhere", s.status)
	case s.status != 0:
		w.WriteHeader(s.status)
	case r.Method == http.MethodPut:
		s.data, _ = io.ReadAll(r.Body)
	case s.data == nil:
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = w.Write(s.data)
	}
}

func forward(ctx context.Context, a *Anchor, log *store.DB) error {
	note, err := log.LatestCheckpoint(ctx)
	if err == nil {
		_, err = a.forward(ctx, log, note)
	}
	return err
}

// Each kind of place holds what was put there, and only a log that goes on from it moves it on. A log that is older, or another, is found; it moves the
// anchor only where a person says so.
func TestAnchorGoesForwardOnly(t *testing.T) {
	w := newWorld(t)
	hook := &server{}
	ts := httptest.NewServer(hook)
	defer ts.Close()
	web, err := Webhook(ts.URL+"/secret-path", map[string]string{"Authorization": "Bearer s"}, w.key)
	must(t, err)
	for name, a := range map[string]*Anchor{"file": File(filepath.Join(t.TempDir(), "anchor.json"), w.key), "webhook": web} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			expect := func(db *store.DB, state State, size int64) {
				t.Helper()
				f, err := a.Compare(ctx, db)
				if err != nil || f.State != state || f.Size != size {
					t.Errorf("%+v, %v; want %s at %d", f, err, state, size)
				}
			}
			expect(w.log, Missing, 0)
			if err := forward(ctx, a, w.log); err == nil {
				t.Error("an anchor was made without a word of anybody")
			}
			expect(w.log, Missing, 0)
			must(t, a.Move(ctx, w.older))
			expect(w.log, Held, 300)
			must(t, forward(ctx, a, w.log))
			expect(w.log, Held, 320)
			must(t, forward(ctx, a, w.log)) // nothing new
			for _, c := range []struct {
				db    *store.DB
				state State
			}{{w.older, Behind}, {w.fork, Forked}} {
				expect(c.db, c.state, 320)
				if err := forward(ctx, a, c.db); err == nil {
					t.Errorf("a log that is %s moved the anchor", c.state)
				}
				expect(w.log, Held, 320)
			}
			must(t, a.Move(ctx, w.fork))
			expect(w.fork, Held, 340)
			expect(w.log, Behind, 340)
			must(t, a.Move(ctx, w.older))
			expect(w.older, Held, 300)
		})
	}
	for _, token := range hook.tokens {
		if token != "Bearer s" {
			t.Errorf("a request without the configured header: %q", token)
		}
	}
}

// The sentence says which entries there are, which there were, and how much older the newest is.
func TestSentences(t *testing.T) {
	w := newWorld(t)
	a := File(filepath.Join(t.TempDir(), "anchor.json"), w.key)
	must(t, a.Move(t.Context(), w.log))
	for _, c := range []struct {
		db    *store.DB
		words []string
	}{
		{w.log, []string{"(320 entries): it goes on from the anchor", "saw 320 entries"}},
		{w.older, []string{"(300 entries), and is ", " older than the anchor's newest", "was put back, and it lacks 20 entries or more"}},
		{w.fork, []string{"(340 entries), and it does not go on from the anchor"}},
	} {
		f, err := a.Compare(t.Context(), c.db)
		must(t, err)
		for _, word := range c.words {
			if !strings.Contains(f.String(), word) {
				t.Errorf("%s\nlacks %q", f, word)
			}
		}
	}
}

// What lies in the place is believed only where it is what an anchor of this log looks like, and an answer that is none is never "nothing there".
func TestWhatIsNotAnAnchor(t *testing.T) {
	w := newWorld(t)
	other, err := store.Open(filepath.Join(t.TempDir(), "other"), store.Options{})
	must(t, err)
	defer other.Close()
	write(t, other, 5)
	foreign, err := other.LatestCheckpoint(t.Context())
	must(t, err)
	own, err := w.log.LatestCheckpoint(t.Context())
	must(t, err)
	object := func(note []byte) string {
		b, err := json.Marshal(mark{Checkpoint: string(note)})
		must(t, err)
		return string(b)
	}
	path := filepath.Join(t.TempDir(), "anchor.json")
	a := File(path, w.key)
	for name, data := range map[string]string{
		"empty":            "",
		"not JSON":         "anchor",
		"null":             "null",
		"no checkpoint":    "{}",
		"another log's":    object(foreign),
		"a checkpoint cut": object(own[:len(own)-3]),
		"a size changed":   object([]byte(strings.Replace(string(own), "\n320\n", "\n300\n", 1))),
		"unknown member":   `{"checkpoint": "", "x": 1}`,
		"too large":        strings.Repeat(" ", maxMark+1) + object(own),
	} {
		must(t, os.WriteFile(path, []byte(data), 0o600))
		if f, err := a.Compare(t.Context(), w.log); err == nil {
			t.Errorf("%s: %+v", name, f)
		}
		if err := forward(t.Context(), a, w.log); err == nil {
			t.Errorf("%s: replaced", name)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != data {
			t.Errorf("%s: it is not as it was: %v", name, err)
		}
	}
	must(t, a.Move(t.Context(), w.log)) // a person may
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	if f, err := a.Compare(t.Context(), w.log); err == nil {
		t.Errorf("a folder: %+v", f)
	}
	if f, err := File(filepath.Join(t.TempDir(), "not-mounted", "anchor.json"), w.key).Compare(t.Context(), w.log); err == nil {
		t.Errorf("a folder that is not there: %+v", f)
	}
	hook := &server{}
	ts := httptest.NewServer(hook)
	defer ts.Close()
	web, err := Webhook(ts.URL+"/secret-path", nil, w.key)
	must(t, err)
	for _, hook.status = range []int{302, 307, 401, 403, 500, 503} {
		f, err := web.Compare(t.Context(), w.log)
		if err == nil || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%d: %+v, %v", hook.status, f, err)
		}
	}
	ts.Close()
	if f, err := web.Compare(t.Context(), w.log); err == nil || strings.Contains(err.Error(), "secret-path") {
		t.Errorf("nobody answers: %+v, %v", f, err)
	}
}

// While it is kept the anchor follows the log, its end moves it to the last entry, and a log that does not go on from it leaves it alone.
func TestKeep(t *testing.T) {
	w := newWorld(t)
	var said strings.Builder
	warn := slog.New(slog.NewTextHandler(&said, nil))
	a := File(filepath.Join(t.TempDir(), "anchor.json"), w.key)
	must(t, a.Move(t.Context(), w.log))
	never := func(f Finding) { t.Errorf("an alarm: %+v", f) }
	k := a.Keep(w.log, warn, Held, never)
	must(t, w.log.Record(context.Background(), audit.Entry{Kind: audit.Change, Action: "test"}))
	k.Close()
	k.Close()
	if f, err := a.Compare(t.Context(), w.log); err != nil || f.Size != 321 || f.State != Held {
		t.Errorf("%+v, %v", f, err)
	}
	var raised []Finding
	a.Keep(w.fork, warn, Held, func(f Finding) { raised = append(raised, f) }).Close()
	if f, err := a.Compare(t.Context(), w.log); err != nil || f.Size != 321 || !strings.Contains(said.String(), "does not go on from the anchor") || len(raised) != 1 || raised[0].State != Forked {
		t.Errorf("%+v, %v, %v\n%s", f, err, raised, said.String())
	}
}

// unsigned is a log that was not signed since its newest entry, as a gateway's for a moment.
type unsigned struct {
	*store.DB
	behind []byte // what LatestCheckpoint says
}

func (u unsigned) LatestCheckpoint(context.Context) ([]byte, error) { return u.behind, nil }

// The anchor follows to the last entry, however quiet the log is afterwards: each step moves it to where the log was then.
func TestAnchorFollowsToTheLastEntry(t *testing.T) {
	w := newWorld(t)
	a := File(filepath.Join(t.TempDir(), "anchor.json"), w.key)
	must(t, a.Move(t.Context(), w.log))
	behind, err := w.log.LatestCheckpoint(t.Context())
	must(t, err)
	k := &Keeper{a: a, log: unsigned{w.log, behind}, warn: slog.New(slog.DiscardHandler), alarm: func(f Finding) { t.Errorf("%+v", f) }, held: -1}
	for _, n := range []int{0, 1, 0, 5, 0} {
		for range n {
			must(t, w.log.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "test"}))
		}
		k.step(t.Context())
		size, err := w.log.Size(t.Context())
		must(t, err)
		if f, err := a.Compare(t.Context(), w.log); err != nil || f.Size != size {
			t.Errorf("the anchor is at %d, the log at %d, %v", f.Size, size, err)
		}
	}
}

// An anchor that is removed, put back or replaced while a log is kept is an alarm, once for each way, and stays as it is; put right, it is moved on again.
func TestAnchorThatIsLost(t *testing.T) {
	w := newWorld(t)
	write(t, w.log, 100)
	path := filepath.Join(t.TempDir(), "anchor.json")
	a := File(path, w.key)
	must(t, a.Move(t.Context(), w.log))
	right, err := os.ReadFile(path)
	must(t, err)
	must(t, a.Move(t.Context(), w.fork))
	forked, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, right, 0o600))
	var raised []State
	k := &Keeper{a: a, log: w.log, warn: slog.New(slog.DiscardHandler), alarm: func(f Finding) { raised = append(raised, f.State) }, held: -1, told: Held}
	k.step(t.Context())
	quiet := func() {
		for range idleRounds + 1 { // nothing is written: it is looked at all the same
			k.step(t.Context())
		}
	}
	must(t, os.Remove(path))
	quiet()
	quiet()
	if _, err := os.Lstat(path); err == nil {
		t.Error("it was made anew")
	}
	must(t, os.WriteFile(path, forked, 0o600))
	quiet()
	if now, err := os.ReadFile(path); err != nil || string(now) != string(forked) {
		t.Errorf("it was replaced: %v", err)
	}
	must(t, os.WriteFile(path, right, 0o600))
	write(t, w.log, 1)
	k.step(t.Context())
	if f, err := a.Compare(t.Context(), w.log); err != nil || f.Size != 421 {
		t.Errorf("%+v, %v", f, err)
	}
	must(t, os.Remove(path))
	quiet()
	if !slices.Equal(raised, []State{Missing, Forked, Missing}) {
		t.Errorf("%v", raised)
	}
}

// What verify is given may be a checkpoint or what an anchor's place holds.
func TestUnpack(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "anchor.json")
	must(t, File(path, w.key).Move(t.Context(), w.log))
	own, err := w.log.LatestCheckpoint(t.Context())
	must(t, err)
	data, err := os.ReadFile(path)
	must(t, err)
	for name, in := range map[string][]byte{"the place's": data, "a checkpoint": own} {
		if got := Unpack(in); string(got) != string(own) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := Unpack([]byte("{}")); string(got) != "{}" {
		t.Errorf("%q", got)
	}
}

// busy is a file that a running gateway moves on just before it is read.
type busy struct {
	file
	grow func()
}

func (p busy) get(ctx context.Context) ([]byte, error) {
	p.grow()
	return p.file.get(ctx)
}

// A comparison beside a running gateway never finds the log behind its anchor.
func TestCompareBesideAWriter(t *testing.T) {
	w := newWorld(t)
	path := file(filepath.Join(t.TempDir(), "anchor.json"))
	a := &Anchor{place: path, key: w.key, clock: time.Now}
	must(t, a.Move(t.Context(), w.log))
	beside := &Anchor{key: w.key, clock: time.Now, place: busy{path, func() {
		write(t, w.log, 3)
		must(t, a.Move(t.Context(), w.log))
	}}}
	f, err := beside.Compare(t.Context(), w.log)
	if err != nil || !f.Good() || f.Size != 323 {
		t.Errorf("%+v, %v", f, err)
	}
}
