package anchor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/store"
)

// Each state has one word and one sentence, which begins with it.
func TestStatus(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	f := Finding{Place: "there", Size: 10, LogSize: 12, At: now.Add(-3 * time.Second), Newest: now.Add(-4 * time.Second), LogAt: now}
	of := func(change func(*Finding)) Finding { f := f; change(&f); return f }
	for _, c := range []struct {
		f    Finding
		err  error
		want Status
		says string
		good bool
	}{
		{of(func(f *Finding) { f.State = Held }), nil, Status{State: "ok", Missing: 2}, "ok: the log goes on from the anchor, which was moved on 3s ago and is 2 entries behind the log", true},
		{of(func(f *Finding) {
			f.State, f.LogSize, f.At, f.Newest, f.LogAt = Held, 10, now.Add(-time.Hour), now.Add(-time.Hour), now.Add(-time.Hour)
		}), nil, Status{State: "ok"}, "moved on 1h0m0s ago and is 0 entries behind the log", true},
		{of(func(f *Finding) { f.State, f.LogSize, f.Newest = Held, 11, now.Add(-2*time.Minute) }), nil, Status{State: "late", Missing: 1}, "late: the log goes on from the anchor, which was moved on 3s ago and is 1 entry behind the log", false},
		{of(func(f *Finding) { f.State, f.Size = Missing, 0 }), nil, Status{State: "missing", Missing: 12}, "there holds no anchor yet", false},
		{of(func(f *Finding) { f.State, f.LogSize = Behind, 4 }), nil, Status{State: "behind"}, "This directory was put back, and it lacks 6 entries or more.", false},
		{of(func(f *Finding) { f.State = Forked }), nil, Status{State: "forked", Missing: 2}, "does not go on from the anchor", false},
		{f, errors.New("hunter2"), Status{State: "unreadable"}, "unreadable: ", false},
	} {
		got := StatusOf(c.f, c.err, now)
		if got.State != c.want.State || got.Missing != c.want.Missing || !strings.Contains(got.Text, c.says) || !strings.HasPrefix(got.Text, c.want.State+": ") || got.Place != "there" || got.Good() != c.good || strings.Contains(got.Text, "hunter2") {
			t.Errorf("%+v; want %+v, %q", got, c.want, c.says)
		}
	}
	var none *Watch
	if s := none.Status(t.Context()); s != NotConfigured() || !s.Good() || !strings.HasPrefix(s.Text, s.State+": ") {
		t.Errorf("%+v", s)
	}
}

// A Watch says what the place holds now, looks at it no more than every few seconds, and is not stopped by who asked.
func TestWatch(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "anchor.json")
	a := File(file, w.key)
	now := time.Now()
	a.clock = func() time.Time { return now }
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	sees := func(log *store.DB, want string) {
		t.Helper()
		now = now.Add(time.Minute)
		watch := a.Watch(log)
		if s := watch.Status(gone); s.State != want {
			t.Errorf("%+v, want %s", s, want)
		}
	}
	sees(w.log, "missing")
	must(t, a.Move(t.Context(), w.log))
	sees(w.log, "ok")
	sees(w.older, "behind")
	sees(w.fork, "forked")
	must(t, os.WriteFile(file, []byte("{}"), 0o600))
	sees(w.log, "unreadable")

	must(t, os.Remove(file))
	watch := a.Watch(w.log)
	if s := watch.Status(t.Context()); s.State != "missing" {
		t.Fatalf("%+v", s)
	}
	must(t, a.Move(t.Context(), w.log))
	now = now.Add(lookEvery)
	if s := watch.Status(t.Context()); s.State != "missing" {
		t.Errorf("it looked again at once: %+v", s)
	}
	now = now.Add(time.Second)
	if s := watch.Status(t.Context()); s.State != "ok" {
		t.Errorf("%+v", s)
	}
}
