package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/fault"
)

// memory is a Store that keeps its contract but for the disk. fail makes its next calls fail after they were done.
type memory struct {
	mu      sync.Mutex
	notices []*kept
	counts  map[string]Counts
	fail    int
}

type kept struct {
	Notice
	state string
}

var errStore = errors.New("the disk is on fire")

func (s *memory) failing() error {
	if s.fail > 0 {
		s.fail--
		return errStore
	}
	return nil
}

func (s *memory) AddNotices(_ context.Context, notices []Notice) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range notices {
		s.add(n)
	}
	return s.failing()
}

func (s *memory) add(n Notice) {
	for _, k := range s.notices {
		if k.Channel == n.Channel && k.Key == n.Key {
			return
		}
	}
	n.ID = int64(len(s.notices) + 1)
	s.notices = append(s.notices, &kept{n, "waiting"})
}

func (s *memory) WaitingNotices(_ context.Context, channel string, e Event, limit int) ([]Notice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Notice
	for _, k := range s.notices {
		if k.state == "waiting" && k.Channel == channel && k.Event == e {
			all = append(all, k.Notice)
		}
	}
	slices.SortStableFunc(all, func(a, b Notice) int { return a.Due.Compare(b.Due) })
	return all[:min(len(all), limit)], nil
}

func (s *memory) FoldNotices(_ context.Context, ids []int64, into Notice) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.notices[id-1].state != "waiting" {
			return fault.New(fault.Conflict, "moved")
		}
	}
	for _, id := range ids {
		s.notices[id-1].state = "folded"
	}
	s.add(into)
	return nil
}

func (s *memory) NoticeSent(_ context.Context, id int64, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.notices[id-1]; k.state == "waiting" {
		if err := s.failing(); err != nil {
			return err
		}
		k.state = "sent"
		c := s.counts[k.Channel]
		c.Sent++
		c.LastSuccess = at
		s.counts[k.Channel] = c
	}
	return nil
}

func (s *memory) NoticeFailed(_ context.Context, id int64, tries int, due time.Time, why string, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.notices[id-1]; k.state == "waiting" {
		c := s.counts[k.Channel]
		k.Due, k.Tries = due, tries
		if due.IsZero() {
			k.state = "failed"
			c.Failed++
		}
		c.LastError, c.LastFailure = why, at
		s.counts[k.Channel] = c
	}
	return s.failing()
}

func (s *memory) RemoveNotices(context.Context, time.Time) error { return nil }

func (s *memory) NoticeCounts(context.Context) (map[string]Counts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Counts{}
	for channel, c := range s.counts {
		all[channel] = c
	}
	for _, k := range s.notices {
		if k.state == "waiting" {
			c := all[k.Channel]
			c.Waiting++
			all[k.Channel] = c
		}
	}
	return all, nil
}

func newMemory() *memory { return &memory{counts: map[string]Counts{}} }

// ear is a receiver: it answers as it is told and remembers.
type ear struct {
	mu     sync.Mutex
	heard  []heard
	answer func(ctx context.Context, l letter, nth int) error
}

type heard struct {
	at  time.Time
	id  string
	l   letter
	err error
}

func (e *ear) send(ctx context.Context, id string, l letter) error {
	e.mu.Lock()
	nth := len(e.heard)
	e.mu.Unlock()
	var err error
	at := time.Now()
	if e.answer != nil {
		err = e.answer(ctx, l, nth)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, heard{at, id, l, err})
	return err
}

func (e *ear) all() []heard {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard)
}

// good returns the titles that got through.
func (e *ear) good() (titles []string) {
	for _, h := range e.all() {
		if h.err == nil {
			titles = append(titles, h.l.Title)
		}
	}
	return titles
}

func (e *ear) channel(name string, on ...Event) *Channel {
	if len(on) == 0 {
		on = Events()
	}
	return &Channel{name: name, kind: "webhook", target: name, on: on, sender: e}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func notifier(t testing.TB, s Store, channels ...*Channel) *Notifier {
	t.Helper()
	n, err := New(channels, Options{Store: s, Console: "https://gate.example/ops", Queue: "/approvals"})
	must(t, err)
	return n
}

// running runs n until the test ends, or stop is called.
func running(t *testing.T, n *Notifier) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); n.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func ask(i int) Message {
	return Message{Key: fmt.Sprint("approval:", i), Event: Approval, Title: fmt.Sprint("request ", i), Risk: "HIGH", Link: "/approvals/x", At: time.Now()}
}

func low(i int) Message {
	m := ask(i)
	m.Risk = "LOW"
	return m
}

func status(t *testing.T, n *Notifier) Status {
	t.Helper()
	all, err := n.Status(t.Context())
	must(t, err)
	return all[0]
}

func TestOnceForEachChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var one, two, alerts ear
		n := notifier(t, newMemory(), one.channel("one"), two.channel("two"), alerts.channel("alerts", Alert))
		running(t, n)
		for range 3 {
			must(t, n.Send(t.Context(), low(1)))
			synctest.Wait()
		}
		m := low(1)
		m.Title = "another text of the same"
		must(t, n.Send(t.Context(), m))
		must(t, n.Send(t.Context(), Message{Key: "a", Event: Alert, Title: "boo"}))
		time.Sleep(time.Hour)
		for name, e := range map[string]*ear{"one": &one, "two": &two} {
			if got := e.good(); !slices.Equal(got, []string{"request 1", "boo"}) {
				t.Errorf("%s: %q", name, got)
			}
		}
		if got := alerts.good(); !slices.Equal(got, []string{"boo"}) {
			t.Errorf("alerts: %q", got)
		}
		if all, err := n.Status(t.Context()); err != nil || all[2].Waiting != 0 || all[2].Sent != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		if one.all()[0].id == two.all()[0].id {
			t.Error("two channels share a delivery id")
		}
		if s := status(t, n); s.Sent != 2 || s.Waiting != 0 || s.Target != "one" || s.LastSuccess.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

func TestHighIsAnAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var both, questions, alerts ear
		n := notifier(t, newMemory(), both.channel("both"), questions.channel("questions", Approval), alerts.channel("alerts", Alert))
		running(t, n)
		for _, risk := range []string{"LOW", "MEDIUM", "HIGH", "CRITICAL", "", "high"} {
			for range 2 {
				must(t, n.Send(t.Context(), Message{Key: "q" + risk, Event: Approval, Title: "question " + risk, Risk: risk}))
			}
		}
		must(t, n.Send(t.Context(), Message{Key: "a", Event: Alert, Title: "alert", Risk: "LOW"}))
		synctest.Wait()
		for name, test := range map[string]struct {
			e     *ear
			heard int
		}{"both": {&both, 7}, "questions": {&questions, 6}, "alerts": {&alerts, 3}} {
			if got := test.e.good(); len(got) != test.heard {
				t.Errorf("%s: %q", name, got)
			}
		}
		if got := alerts.good(); !slices.Equal(got, []string{"question HIGH", "question CRITICAL", "alert"}) {
			t.Errorf("alerts: %q", got)
		}
	})
}

func TestSendRefuses(t *testing.T) {
	n := notifier(t, newMemory(), new(ear).channel("one"))
	for _, m := range []Message{{Event: Approval}, {Key: strings.Repeat("k", 201), Event: Approval}, {Key: "k", Event: "rumour"}, {Key: "k"}} {
		if err := n.Send(t.Context(), m); !fault.Is(err, fault.Internal) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	s := newMemory()
	s.fail = 1
	if err := notifier(t, s, new(ear).channel("one")).Send(t.Context(), ask(1)); !errors.Is(err, errStore) {
		t.Errorf("a store that fails: %v", err)
	}
}

// A channel that is down is asked with growing pauses for a day, under one id; another hears at once.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := ear{answer: func(context.Context, letter, int) error { return &failure{why: "no such host"} }}
		var up ear
		n := notifier(t, newMemory(), down.channel("down"), up.channel("up"))
		running(t, n)
		start := time.Now()
		must(t, n.Send(t.Context(), ask(1)))
		synctest.Wait()
		if len(up.good()) != 1 {
			t.Error("the other channel waited")
		}
		time.Sleep(giveUpAfter - time.Minute)
		if s := status(t, n); s.Waiting != 1 || s.Failed != 0 || s.LastError != "no such host" || !s.LastSuccess.IsZero() {
			t.Errorf("before the day ends: %+v", s)
		}
		time.Sleep(2 * giveUpAfter)
		tries := down.all()
		for i := 1; i < len(tries); i++ {
			want := longestPause
			if i < 10 {
				want = min(want, time.Second<<(i-1))
			}
			if pause := tries[i].at.Sub(tries[i-1].at); pause < want/2 || pause > want {
				t.Errorf("pause %d is %v, not within %v and %v", i, pause, want/2, want)
			}
			if tries[i].id != tries[0].id {
				t.Errorf("try %d has another id", i)
			}
		}
		if last := tries[len(tries)-1].at.Sub(start); last < giveUpAfter || last > giveUpAfter+longestPause {
			t.Errorf("given up after %v", last)
		}
		if s := status(t, n); s.Waiting != 0 || s.Failed != 1 || s.LastError != "no such host" {
			t.Errorf("after: %+v", s)
		}
	})
}

// The pauses are the channel's: many messages don't knock more often than one, and once it answers, the next trouble begins anew.
func TestPausesAreTheChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		e := ear{answer: func(context.Context, letter, int) error {
			if down.Load() {
				return &failure{why: "503"}
			}
			return nil
		}}
		n := notifier(t, newMemory(), e.channel("one"))
		running(t, n)
		down.Store(true)
		for i := range 10 {
			must(t, n.Send(t.Context(), ask(i)))
		}
		time.Sleep(time.Hour)
		if got := len(e.all()); got < 15 || got > 40 {
			t.Errorf("%d tries in an hour", got)
		}
		down.Store(false)
		time.Sleep(time.Hour)
		if got := len(e.good()); got != 10 {
			t.Fatalf("%d of 10 delivered", got)
		}
		down.Store(true)
		must(t, n.Send(t.Context(), ask(10)))
		synctest.Wait()
		down.Store(false)
		time.Sleep(time.Second)
		if got := len(e.good()); got != 11 {
			t.Error("a new trouble begins with a long pause")
		}
	})
}

// A message that its receiver chokes on doesn't hold up those behind it.
func TestPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := ear{answer: func(_ context.Context, l letter, _ int) error {
			if l.Title == "request 0" {
				return &failure{why: "500"}
			}
			return nil
		}}
		n := notifier(t, newMemory(), e.channel("one"))
		running(t, n)
		for i := range 5 {
			must(t, n.Send(t.Context(), ask(i)))
		}
		time.Sleep(5 * time.Second)
		if got := len(e.good()); got != 4 {
			t.Errorf("%d of 4 got past it", got)
		}
		for i := range 360 {
			must(t, n.Send(t.Context(), ask(10+i)))
			time.Sleep(10 * time.Second)
		}
		good := len(e.good())
		if bad := len(e.all()) - good; bad > 40 || good != 4+360 {
			t.Errorf("%d tries in an hour, %d got past it", bad, good)
		}
	})
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := ear{answer: func(_ context.Context, l letter, _ int) error {
			switch l.Title {
			case "request 1":
				return &failure{why: "400", refused: true}
			case "request 2":
				return &failure{why: "410", refused: true, final: true}
			}
			return nil
		}}
		n := notifier(t, newMemory(), e.channel("one"))
		running(t, n)
		for i := range 4 {
			must(t, n.Send(t.Context(), ask(i)))
		}
		synctest.Wait()
		if got := e.good(); !slices.Equal(got, []string{"request 0", "request 3"}) {
			t.Errorf("at once: %q", got)
		}
		time.Sleep(24 * time.Hour)
		tries := map[string]int{}
		for _, h := range e.all() {
			tries[h.l.Title]++
		}
		if tries["request 1"] != refusedTries || tries["request 2"] != 1 {
			t.Errorf("tries: %v", tries)
		}
		if s := status(t, n); s.Failed != 2 || s.Sent != 2 || s.Waiting != 0 || s.LastError != "400" {
			t.Errorf("%+v", s)
		}
	})
}

func TestRetryAfterIsHonouredAndBounded(t *testing.T) {
	for _, test := range []struct{ asked, least, most time.Duration }{
		{90 * time.Second, 90 * time.Second, 91 * time.Second},
		{100 * time.Hour, longestAfter, longestAfter + time.Second},
		{-time.Hour, 0, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := ear{answer: func(_ context.Context, _ letter, nth int) error {
				if nth == 0 {
					return &failure{why: "429", after: test.asked}
				}
				return nil
			}}
			n := notifier(t, newMemory(), e.channel("one"))
			running(t, n)
			must(t, n.Send(t.Context(), ask(1)))
			synctest.Wait()
			must(t, n.Send(t.Context(), ask(2))) // wakes, and must not cut the pause short
			time.Sleep(2 * time.Hour)
			all := e.all()
			if len(all) != 3 {
				t.Fatalf("%d tries", len(all))
			}
			if pause := all[1].at.Sub(all[0].at); pause < test.least || pause > test.most {
				t.Errorf("asked for %v, waited %v", test.asked, pause)
			}
		})
	}
}

// total is for how many messages the letters that got through stand.
func (e *ear) total() (total int) {
	for _, h := range e.all() {
		if h.err != nil {
			continue
		}
		if h.l.Digest == nil {
			total++
		}
		for _, count := range h.l.Digest {
			total += count
		}
	}
	return total
}

func TestFloodBecomesDigests(t *testing.T) {
	const flood = 10000
	synctest.Test(t, func(t *testing.T) {
		var before, after ear
		n := notifier(t, newMemory(), before.channel("before"))
		running(t, n)
		for i := range flood {
			m := ask(i)
			if i == 5000 {
				m.Risk = "CRITICAL"
			}
			must(t, n.Send(t.Context(), m))
		}
		must(t, n.Send(t.Context(), Message{Key: "a", Event: Alert, Title: "boo"}))
		synctest.Wait()
		if got := before.good(); !slices.Contains(got, "boo") {
			t.Error("an alert waits behind the questions")
		}
		time.Sleep(time.Minute)
		if got := before.total(); got != flood+1 {
			t.Errorf("%d of %d were told of", got, flood+1)
		}
		if got := len(before.all()); got > Burst+3 {
			t.Errorf("%d messages", got)
		}
		critical := false
		for _, h := range before.all() {
			critical = critical || h.l.Risk == "CRITICAL" && strings.Contains(h.l.Text, "1 CRITICAL, ")
			if h.l.Digest != nil && h.l.Link != "https://gate.example/ops/approvals" {
				t.Errorf("link %s", h.l.Link)
			}
		}
		if !critical {
			t.Error("the one CRITICAL is not mentioned")
		}

		// All of them before the start.
		n = notifier(t, newMemory(), after.channel("after"))
		for i := range flood {
			must(t, n.Send(t.Context(), ask(i)))
		}
		running(t, n)
		synctest.Wait()
		if got := after.good(); !slices.Equal(got, []string{"10000 requests wait"}) {
			t.Errorf("%d messages: %.200q", len(got), got)
		}
	})
}

func TestSteadyFloodKeepsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ear
		n := notifier(t, newMemory(), e.channel("one"))
		running(t, n)
		const sent = 3600
		for i := range sent {
			must(t, n.Send(t.Context(), ask(i)))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		if got := e.total(); got != sent {
			t.Errorf("%d of %d were told of", got, sent)
		}
		if got, most := len(e.all()), Burst+int((6*time.Minute+2*time.Minute)/every)+1; got > most {
			t.Errorf("%d messages, at most %d", got, most)
		}
	})
}

// Exactly Burst are told of one by one; one more makes a digest.
func TestBurstBoundary(t *testing.T) {
	for _, sent := range []int{Burst, Burst + 1} {
		synctest.Test(t, func(t *testing.T) {
			var e ear
			n := notifier(t, newMemory(), e.channel("one"))
			for i := range sent {
				must(t, n.Send(t.Context(), ask(i)))
			}
			running(t, n)
			synctest.Wait()
			if got := len(e.good()); sent == Burst && got != Burst || sent > Burst && got != 1 {
				t.Errorf("%d sent, %d messages", sent, got)
			}
		})
	}
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		stuck := ear{answer: func(ctx context.Context, _ letter, _ int) error { <-ctx.Done(); return ctx.Err() }}
		n := notifier(t, s, stuck.channel("one"))
		stop := running(t, n)
		must(t, n.Send(t.Context(), ask(1)))
		synctest.Wait()
		start := time.Now()
		stop()
		if took := time.Since(start); took != grace {
			t.Errorf("stopping took %v", took)
		}
		if s := status(t, n); s.Waiting != 1 || s.LastError != "" {
			t.Errorf("%+v", s)
		}

		// One that ends within the grace is not told twice.
		slow := ear{answer: func(ctx context.Context, _ letter, _ int) error { time.Sleep(time.Second); return ctx.Err() }}
		n = notifier(t, s, slow.channel("one"))
		stop = running(t, n)
		synctest.Wait()
		stop()
		if s := status(t, n); s.Waiting != 0 || s.Sent != 1 {
			t.Errorf("%+v", s)
		}
		var again ear
		running(t, notifier(t, s, again.channel("one")))
		time.Sleep(time.Hour)
		if len(again.all()) != 0 {
			t.Error("told twice")
		}
	})
}

func TestTryIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := ear{answer: func(ctx context.Context, _ letter, _ int) error { <-ctx.Done(); return ctx.Err() }}
		running(t, func() *Notifier {
			n := notifier(t, newMemory(), stuck.channel("one"))
			must(t, n.Send(t.Context(), ask(1)))
			return n
		}())
		start := time.Now()
		time.Sleep(tryTime + time.Second/4)
		if len(stuck.all()) != 1 {
			t.Errorf("no end after %v", time.Since(start))
		}
	})
}

// What the store has not been told of is not sent again meanwhile.
func TestStoreFailsAfterDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ear
		s := newMemory()
		n := notifier(t, s, e.channel("one"))
		must(t, n.Send(t.Context(), ask(1)))
		must(t, n.Send(t.Context(), ask(2)))
		s.fail = 5
		running(t, n)
		time.Sleep(time.Minute)
		if got := e.good(); !slices.Equal(got, []string{"request 1", "request 2"}) {
			t.Errorf("%q", got)
		}
	})
}

func TestHarmless(t *testing.T) {
	n := notifier(t, newMemory())
	for _, test := range []struct{ in, want string }{
		{"plain text, 1250 EUR – für Zoë", "plain text, 1250 EUR – für Zoë"},
		{"a\r\nBcc: eve@evil.example", `a\r\nBcc: eve@evil.example`},
		{"\x1b[2J\x1b]0;x\a", `\x1b[2J\x1b]0;x\x07`},
		{"pay\u202egnp.exe", `pay\u202egnp.exe`},
		{"in\u200bvisible\U000e0041", `in\u200bvisible\U000e0041`},
		{"\xff\xfe", `\xff\xfe`},
		{"see http://evil.example/approve", "see http[:]//evil.example/approve"},
		{"line\u2028two\u0085three", `line\u2028two\u0085three`},
	} {
		if got := n.plain(test.in, maxText); got != test.want {
			t.Errorf("%q: %q, not %q", test.in, got, test.want)
		}
	}
	secret := "the token is ghp_" + "0123456789abcdefABCDEF0123456789abcd"
	if got := n.plain(secret, maxText); strings.Contains(got, "0123456789") {
		t.Errorf("a secret stays: %q", got)
	}
	big := strings.Repeat("é", 1<<20)
	m := Message{Title: big, Text: big, Risk: big, Link: "/" + big, At: time.Now()}
	for range 20 {
		m.Fields = append(m.Fields, Field{big, big})
	}
	body, err := json.Marshal(n.letterOf(m))
	must(t, err)
	if len(body) > 4000 || !utf8.Valid(body) {
		t.Errorf("%d bytes", len(body))
	}
	if l := n.letterOf(m); l.Risk != "" || len(l.Fields) != maxFields {
		t.Errorf("%q, %d fields", l.Risk, len(l.Fields))
	}
}

func TestLinkLeadsToTheConsole(t *testing.T) {
	n := notifier(t, newMemory())
	for in, want := range map[string]string{
		"/approvals/appr_1":        "https://gate.example/ops/approvals/appr_1",
		"/approvals?state=pending": "https://gate.example/ops/approvals?state=pending",
		"":                         "https://gate.example/ops",
		"https://evil.example/":    "https://gate.example/ops",
		"//evil.example/x":         "https://gate.example/ops",
		"javascript:alert(1)":      "https://gate.example/ops",
		"/a\nb":                    "https://gate.example/ops",
		"/<x>|y?q=<z>|":            "https://gate.example/ops/%3Cx%3E%7Cy?q=%3Cz%3E%7C",
		"@evil.example":            "https://gate.example/ops",
		"/../../../x":              "https://gate.example/x",
	} {
		if got := n.link(in); got != want {
			t.Errorf("%q: %s, not %s", in, got, want)
		}
	}
	for _, console := range []string{"", "gate.example", "ftp://gate.example", "https://", "https://a:b@gate.example", "https://gate.example/?x", "https://gate.example/#x", "javascript:x"} {
		if _, err := New(nil, Options{Store: newMemory(), Console: console}); !fault.Is(err, fault.ConfigurationInvalid) {
			t.Errorf("console %q: %v", console, err)
		}
	}
	if _, err := New([]*Channel{new(ear).channel("x"), new(ear).channel("x")}, Options{Store: newMemory(), Console: "https://gate.example"}); !fault.Is(err, fault.ConfigurationInvalid) {
		t.Errorf("one channel twice: %v", err)
	}
}

func TestDigestOfDigests(t *testing.T) {
	n := notifier(t, newMemory())
	now := time.Now()
	first := n.digest(Approval, []letter{{Risk: "LOW"}, {Risk: "HIGH"}, {Risk: "HIGH"}, {}}, now)
	if first.Text != "2 HIGH, 1 LOW, 1 without a risk." || first.Risk != "HIGH" || first.Title != "4 requests wait" {
		t.Errorf("%+v", first)
	}
	second := n.digest(Approval, []letter{first, {Risk: "CRITICAL"}}, now)
	if second.Text != "1 CRITICAL, 2 HIGH, 1 LOW, 1 without a risk." || second.Title != "5 requests wait" || second.Fields[0] != (Field{"CRITICAL", "1"}) {
		t.Errorf("%+v", second)
	}
	if alerts := n.digest(Alert, []letter{{}, {}}, now); alerts.Title != "2 alerts" || alerts.Link != "https://gate.example/ops/" {
		t.Errorf("%+v", alerts)
	}
}

func BenchmarkHarmless(b *testing.B) {
	n := notifier(b, newMemory())
	m := ask(1)
	m.Text = strings.Repeat("The agent wants to send money to somebody new. ", 8)
	m.Fields = []Field{{"agent", "billing-bot"}, {"operation", "bank.transfer"}, {"amount", "1250 EUR"}}
	b.ReportAllocs()
	for b.Loop() {
		n.letterOf(m)
	}
}
