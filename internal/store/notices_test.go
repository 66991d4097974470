package store

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/notify"
)

func notice(channel, key string, due time.Time) notify.Notice {
	return notify.Notice{Channel: channel, Key: key, Event: notify.Approval, Body: []byte(`{"title":"` + key + `"}`), Added: due, Due: due}
}

func sure[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func keys(t *testing.T, r *Reader, channel string) (all []string) {
	t.Helper()
	waiting, err := r.WaitingNotices(t.Context(), channel, notify.Approval, 100)
	must(t, err)
	for _, n := range waiting {
		all = append(all, n.Key)
	}
	return all
}

func TestNotices(t *testing.T) {
	db := openDB(t)
	ctx := t.Context()
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	must(t, db.AddNotices(ctx, []notify.Notice{notice("one", "b", t0.Add(2)), notice("one", "a", t0), notice("two", "a", t0)}))
	again := notice("one", "a", t0.Add(-time.Hour))
	again.Body = []byte("{}")
	must(t, db.AddNotices(ctx, []notify.Notice{again, notice("one", "c", t0.Add(time.Hour))}))
	equal(t, "one", keys(t, db.Reader, "one"), []string{"b", "a", "c"}) // within a microsecond it is the order of coming
	equal(t, "two", keys(t, db.Reader, "two"), []string{"a"})
	all := sure(db.WaitingNotices(ctx, "one", notify.Approval, 2))
	if len(all) != 2 {
		t.Errorf("%d of at most 2", len(all))
	}
	want := notice("one", "a", t0)
	want.ID = all[1].ID
	equal(t, "a notice", all[1], want)
	if other := sure(db.WaitingNotices(ctx, "one", notify.Alert, 10)); len(other) != 0 {
		t.Errorf("of another event: %v", other)
	}

	b, a := all[0].ID, all[1].ID
	must(t, db.NoticeFailed(ctx, b, 3, t0.Add(time.Minute), "no such host", t0.Add(5*time.Second)))
	equal(t, "after a failure", keys(t, db.Reader, "one"), []string{"a", "b", "c"})
	failed := sure(db.WaitingNotices(ctx, "one", notify.Approval, 10))[1]
	if failed.Tries != 3 || !failed.Due.Equal(t0.Add(time.Minute)) || string(failed.Body) != `{"title":"b"}` {
		t.Errorf("%+v", failed)
	}
	for range 2 { // the second time nothing is counted
		must(t, db.NoticeSent(ctx, a, t0.Add(6*time.Second)))
		must(t, db.NoticeFailed(ctx, b, 4, time.Time{}, "gone", t0.Add(7*time.Second)))
	}
	must(t, db.NoticeFailed(ctx, a, 1, t0, "late", t0.Add(8*time.Second)))
	must(t, db.NoticeSent(ctx, b, t0.Add(8*time.Second)))
	must(t, db.NoticeSent(ctx, 4711, t0))
	must(t, db.AddNotices(ctx, []notify.Notice{notice("one", "a", t0), notice("one", "b", t0)}))
	equal(t, "done ones are not added again", keys(t, db.Reader, "one"), []string{"c"})
	counts := sure(db.NoticeCounts(ctx))
	equal(t, "counts", counts, map[string]notify.Counts{
		"one": {Waiting: 1, Sent: 1, Failed: 1, LastError: "gone", LastFailure: t0.Add(7 * time.Second), LastSuccess: t0.Add(6 * time.Second)},
		"two": {Waiting: 1},
	})

	// Old ones go with their keys, in whatever state; counts stay.
	must(t, db.RemoveNotices(ctx, t0.Add(time.Minute)))
	equal(t, "after removal", keys(t, db.Reader, "one"), []string{"c"})
	equal(t, "two after removal", len(keys(t, db.Reader, "two")), 0)
	must(t, db.AddNotices(ctx, []notify.Notice{notice("one", "a", t0)}))
	equal(t, "a key that is forgotten", keys(t, db.Reader, "one"), []string{"a", "c"})
	equal(t, "counts stay", sure(db.NoticeCounts(ctx))["one"].Sent, int64(1))
}

func TestFoldNotices(t *testing.T) {
	db := openDB(t)
	ctx := t.Context()
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var many []notify.Notice
	for i := range 2500 {
		many = append(many, notice("one", fmt.Sprint("k", i), t0.Add(time.Duration(i)*time.Millisecond)))
	}
	must(t, db.AddNotices(ctx, many))
	page := sure(db.WaitingNotices(ctx, "one", notify.Approval, 500))
	var ids []int64
	for _, n := range page {
		ids = append(ids, n.ID)
	}
	must(t, db.NoticeSent(ctx, ids[499], t0))
	digest := notice("one", "digest:1", t0.Add(-1000))
	if err := db.FoldNotices(ctx, ids, digest); !fault.Is(err, fault.Conflict) {
		t.Errorf("one of them was sent: %v", err)
	}
	if got := sure(db.WaitingNotices(ctx, "one", notify.Approval, 1000)); len(got) != 1000 || got[0].Key != "k0" {
		t.Error("a fold that was refused left something")
	}
	// The same in one transaction with somebody else's write, which stays.
	busy, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		must(t, db.w.do(ctx, &job{run: func(*tx) error { close(busy); <-release; return nil }}))
	})
	<-busy
	all.Go(func() { must(t, db.AddNotices(ctx, []notify.Notice{notice("two", "k", t0)})) })
	all.Go(func() {
		if err := db.FoldNotices(ctx, ids, digest); !fault.Is(err, fault.Conflict) {
			t.Errorf("in company: %v", err)
		}
	})
	for queued := 0; queued < 2; {
		queued = waiting(db)
	}
	close(release)
	all.Wait()
	if got := keys(t, db.Reader, "one"); got[0] != "k0" || len(keys(t, db.Reader, "two")) != 1 {
		t.Error("a fold that was refused in company left something, or took the company with it")
	}
	must(t, db.FoldNotices(ctx, ids[:499], digest))
	equal(t, "first in line", keys(t, db.Reader, "one")[:2], []string{"digest:1", "k500"})
	equal(t, "waiting", sure(db.NoticeCounts(ctx))["one"].Waiting, int64(2001))
	must(t, db.AddNotices(ctx, many[:499]))
	equal(t, "folded ones are not added again", sure(db.NoticeCounts(ctx))["one"].Waiting, int64(2001))
	must(t, db.RemoveNotices(ctx, t0.Add(time.Hour)))
	equal(t, "all removed", len(keys(t, db.Reader, "one")), 0)
}

// What is done is final for SQL too.
func TestNoticesAreFinal(t *testing.T) {
	db := openDB(t)
	must(t, db.AddNotices(t.Context(), []notify.Notice{notice("one", "a", time.Now())}))
	must(t, db.NoticeSent(t.Context(), 1, time.Now()))
	c := outside(t)
	if _, err := c.Exec("UPDATE notices SET state = 'waiting'"); err == nil || !strings.Contains(err.Error(), "final") {
		t.Error(err)
	}
	for _, sql := range []string{"INSERT INTO notices SELECT 7, channel, key, event, state, added, due, tries, error, body FROM notices", "INSERT INTO notices SELECT 7, 'x', key, event, 'lost', added, due, tries, error, body FROM notices"} {
		if _, err := c.Exec(sql); err == nil {
			t.Errorf("accepted: %s", sql)
		}
	}
}

// heard is what a receiver was told: the titles by delivery id, and how often.
type heard struct {
	mu     sync.Mutex
	titles map[string]string
	times  map[string]int
	digest int // requests that digests stand for
}

func receiver(t testing.TB) (*heard, string) {
	h := &heard{titles: map[string]string{}, times: map[string]int{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID, Title string
			Fields    []struct{ Value string }
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.times[m.ID]++; h.times[m.ID] == 1 {
			fmt.Sscanf(m.Title, "%d requests wait", &h.digest)
		}
		h.titles[m.ID] = m.Title
	}))
	t.Cleanup(s.Close)
	return h, s.URL
}

func notifierOn(t testing.TB, db *DB, url string) *notify.Notifier {
	c, err := notify.ParseChannel(notify.Config{Kind: "webhook", URL: url, Secret: "0123456789abcdef"})
	must(t, err)
	n, err := notify.New([]*notify.Channel{c}, notify.Options{Store: db, Console: "http://127.0.0.1:1", Queue: "/approvals"})
	must(t, err)
	return n
}

func runNotifier(n *notify.Notifier) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); n.Run(ctx) }()
	return func() { cancel(); <-done }
}

// delivered waits until nothing waits.
func delivered(t testing.TB, n *notify.Notifier) notify.Status {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		all, err := n.Status(t.Context())
		must(t, err)
		if all[0].Waiting == 0 {
			return all[0]
		}
		if time.Now().After(end) {
			t.Fatalf("still waiting: %+v", all[0])
		}
	}
}

func asked(i int) notify.Message {
	return notify.Message{Key: fmt.Sprint("approval:appr_", i, ":asked"), Event: notify.Approval, Title: fmt.Sprint("request ", i), Risk: "HIGH", At: time.Now()}
}

// noticeWriter is the process that TestKillNotices kills: it asks and says what was taken, and delivers if it has an address.
func noticeWriter(dir string) {
	db, err := Open(dir, Options{patience: time.Minute})
	if err == nil {
		var t testing.T
		n := notifierOn(&t, db, os.Getenv("SALLYPORT_STORE_NOTICES_URL"))
		if os.Getenv("SALLYPORT_STORE_NOTICES_RUN") != "" {
			runNotifier(n)
		}
		for i := range 10 {
			if err = n.Send(context.Background(), asked(i)); err != nil {
				break
			}
			fmt.Println("took", i)
		}
		if err == nil {
			select {} // until it is killed
		}
	}
	fmt.Println("fail", err)
	os.Exit(1)
}

// TestKillNotices kills a process with questions asked: none is lost, and none is told of twice but by one id, and that
// only where the process was delivering.
func TestKillNotices(t *testing.T) {
	if dir := os.Getenv("SALLYPORT_STORE_NOTICES"); dir != "" {
		noticeWriter(dir) // never returns
	}
	for round := range 6 {
		delivers := round%2 == 1
		t.Run(fmt.Sprintf("round %d, delivers %v", round, delivers), func(t *testing.T) {
			h, url := receiver(t)
			dir := dataDir(t)
			cmd := exec.Command(os.Args[0], "-test.run=^TestKillNotices$")
			cmd.Env = append(os.Environ(), "SALLYPORT_STORE_NOTICES="+dir, "SALLYPORT_STORE_NOTICES_URL="+url)
			if delivers {
				cmd.Env = append(cmd.Env, "SALLYPORT_STORE_NOTICES_RUN=1")
			}
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			took := 0
			for in := bufio.NewScanner(out); in.Scan(); took++ {
				if !strings.HasPrefix(in.Text(), "took ") {
					t.Error(in.Text())
				}
				if took == 3+round {
					cmd.Process.Kill()
				}
			}
			cmd.Wait() // killed, as it was meant to be
			if took < 3+round {
				t.Fatalf("it took %d", took)
			}
			db := openDB(t)
			n := notifierOn(t, db, url)
			stop := runNotifier(n)
			for i := range took { // as a start does for what still waits
				must(t, n.Send(t.Context(), asked(i)))
			}
			delivered(t, n)
			stop()
			told := map[string]bool{}
			h.mu.Lock()
			defer h.mu.Unlock()
			doubles := 0
			for id, title := range h.titles {
				if told[title] {
					t.Errorf("%s has two ids", title)
				}
				told[title] = true
				doubles += h.times[id] - 1
			}
			for i := range took {
				if !told[fmt.Sprint("request ", i)] {
					t.Errorf("request %d is lost", i)
				}
			}
			if most := map[bool]int{true: 1}[delivers]; doubles > most {
				t.Errorf("%d told twice, at most %d", doubles, most)
			}
			t.Logf("%d asked, %d doubles", took, doubles)
		})
	}
}

// A flood over the real store: everything is told of, in a few messages, and the next start tells of nothing.
func TestNoticeFlood(t *testing.T) {
	size := 10000
	if testing.Short() {
		size = 1000
	}
	h, url := receiver(t)
	db := openDB(t)
	n := notifierOn(t, db, url)
	var all sync.WaitGroup
	for w := range 50 {
		all.Go(func() {
			for i := w; i < size; i += 50 {
				if err := n.Send(t.Context(), asked(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	start := time.Now()
	stop := runNotifier(n)
	s := delivered(t, n)
	t.Logf("%d waiting were told of within %v", size, time.Since(start))
	stop()
	if h.digest != size || len(h.titles) != 1 || s.Sent != 1 {
		t.Errorf("%d in %d messages, %+v", h.digest, len(h.titles), s)
	}
	n = notifierOn(t, db, url)
	defer runNotifier(n)()
	for i := range 100 {
		must(t, n.Send(t.Context(), asked(i)))
	}
	delivered(t, n)
	if len(h.titles) != 1 {
		t.Errorf("told again: %v", h.titles)
	}
}

func BenchmarkSendNotice(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			db := openDB(b)
			n := notifierOn(b, db, "http://127.0.0.1:1")
			b.ReportAllocs()
			b.SetParallelism(callers)
			run := func(i int) { must(b, n.Send(context.Background(), asked(i))) }
			if callers == 1 {
				for i := 0; b.Loop(); i++ {
					run(i)
				}
				return
			}
			var next sync.Mutex
			i := 0
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					next.Lock()
					i++
					mine := i
					next.Unlock()
					run(mine)
				}
			})
		})
	}
}

// A notice that follows another goes only where that one went: not to a channel without it, nor where a digest stands for it.
func TestNoticesThatFollow(t *testing.T) {
	db := openDB(t)
	ctx := t.Context()
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	follow := func(channel, key, first string) notify.Notice {
		n := notice(channel, key, t0.Add(time.Second))
		n.Follows = first
		return n
	}
	must(t, db.AddNotices(ctx, []notify.Notice{notice("one", "a", t0), notice("one", "b", t0), notice("two", "b", t0)}))
	waiting, err := db.WaitingNotices(ctx, "one", notify.Approval, 10)
	must(t, err)
	must(t, db.NoticeSent(ctx, waiting[0].ID, t0))
	must(t, db.AddNotices(ctx, []notify.Notice{follow("one", "a2", "a"), follow("two", "a2", "a"), follow("one", "b2", "b"), follow("one", "a2", "a")}))
	equal(t, "one", keys(t, db.Reader, "one"), []string{"b", "a2", "b2"})
	equal(t, "two", keys(t, db.Reader, "two"), []string{"b"})
	waiting, err = db.WaitingNotices(ctx, "two", notify.Approval, 10)
	must(t, err)
	must(t, db.AddNotices(ctx, []notify.Notice{notice("two", "c", t0)}))
	more, err := db.WaitingNotices(ctx, "two", notify.Approval, 10)
	must(t, err)
	must(t, db.FoldNotices(ctx, []int64{waiting[0].ID, more[1].ID}, notice("two", "digest", t0)))
	must(t, db.AddNotices(ctx, []notify.Notice{follow("two", "b2", "b")}))
	equal(t, "two", keys(t, db.Reader, "two"), []string{"digest"})
}
