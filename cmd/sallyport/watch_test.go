package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/display"
)

// office plays a gateway with requests in it, and remembers the answers.
type office struct {
	*httptest.Server
	mu      sync.Mutex // guards the rest
	all     []*client.Approval
	answers []string
	refuse  *client.Problem // of answers
	status  int             // of everything, if it is not 0
	watch   []chan string
	plans   []client.Session // with plans
	drop    chan struct{}    // closed: streams end
}

func newOffice(t testing.TB, all ...*client.Approval) *office {
	o := &office{all: all, drop: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/events", o.events)
	mux.HandleFunc("GET /v1/sessions", func(w http.ResponseWriter, _ *http.Request) { reply(w, client.SessionPage{Sessions: o.plans}) })
	mux.HandleFunc("GET /v1/approvals", func(w http.ResponseWriter, r *http.Request) {
		page := client.ApprovalPage{Approvals: []client.Approval{}}
		for _, a := range o.all {
			if page.Next == "" && a.State == r.FormValue("state") && (r.FormValue("after") == "" || a.ApprovalID < r.FormValue("after")) {
				limit, _ := strconv.Atoi(r.FormValue("limit")) // of the client
				if len(page.Approvals) == limit {
					page.Next = page.Approvals[limit-1].ApprovalID
					break
				}
				listed := *a
				if len(listed.Arguments) > 2<<10 {
					listed.ArgumentsSize, listed.Arguments = len(listed.Arguments), nil
				}
				page.Approvals = append(page.Approvals, listed)
			}
		}
		reply(w, page)
	})
	mux.HandleFunc("GET /v1/approvals/{id}", func(w http.ResponseWriter, r *http.Request) {
		if a := o.find(r.PathValue("id")); a != nil {
			reply(w, a)
			return
		}
		problem(w, &client.Problem{Status: 404, Code: "not_found", Detail: "There is no such thing here."})
	})
	mux.HandleFunc("POST /v1/approvals/{id}/{act}", func(w http.ResponseWriter, r *http.Request) {
		var b struct {
			Digest, Reason string
			Until          time.Time
			Arguments      json.RawMessage
		}
		_ = json.NewDecoder(r.Body).Decode(&b) // of the client
		a, act := o.find(r.PathValue("id")), r.PathValue("act")
		if o.refuse != nil {
			problem(w, o.refuse)
			return
		}
		if a == nil || a.Digest != b.Digest {
			problem(w, &client.Problem{Status: 409, Code: "approval.mismatch", Detail: "The request is not the one that you were shown."})
			return
		}
		o.answers = append(o.answers, strings.TrimRight(fmt.Sprintf("%s %s %s", act, a.ApprovalID, b.Reason), " ")+after(b.Until))
		switch act {
		case "approve":
			a.Votes = append(a.Votes, client.Vote{Person: "me", Decision: "approve"})
			if len(a.Votes) >= a.Needed {
				a.State = "approved"
			}
		case "reject":
			a.State = "rejected"
		case "defer":
			a.State = "deferred"
		case "modify":
			next := asked(a.ApprovalID + "x")
			next.Arguments = b.Arguments
			a.State, a.ReplacedBy, o.all = "superseded", next.ApprovalID, append([]*client.Approval{next}, o.all...)
			a = next
		}
		reply(w, a)
	})
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/events" {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.status != 0 {
				problem(w, &client.Problem{Status: o.status, Code: "x", Detail: "No."})
				return
			}
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { o.end(); o.Close() })
	return o
}

func after(until time.Time) string {
	if until.IsZero() {
		return ""
	}
	return " for " + until.Sub(noon).String()
}

func reply(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) } // into a response

func problem(w http.ResponseWriter, p *client.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	reply(w, p)
}

func (o *office) find(id string) *client.Approval {
	for _, a := range o.all {
		if a.ApprovalID == id {
			return a
		}
	}
	return nil
}

func (o *office) events(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	ch, drop, status := make(chan string, 100), o.drop, o.status
	o.watch = append(o.watch, ch)
	o.mu.Unlock()
	if status != 0 {
		problem(w, &client.Problem{Status: status, Code: "x", Detail: "No."})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "event: all\ndata: {\"id\":\"\"}\n\n")
	for {
		w.(http.Flusher).Flush()
		select {
		case text := <-ch:
			fmt.Fprint(w, text)
		case <-drop:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// end ends the streams that are open.
func (o *office) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.drop)
	o.drop = make(chan struct{})
}

// change changes the office and tells everybody.
func (o *office) change(id string, f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
	for _, ch := range o.watch {
		ch <- "event: approval\ndata: {\"id\":\"" + id + "\"}\n\n"
	}
}

func (o *office) answered() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.answers)
}

// asked is a plain request.
func asked(id string) *client.Approval {
	return &client.Approval{ApprovalID: id, State: "pending", Risk: "HIGH", Needed: 1, Operation: "comm.exec", AgentID: "local", Digest: id + strings.Repeat("0", 64-len(id)),
		Arguments: json.RawMessage(`{"path":"` + id + `"}`), CreatedAt: noon, ExpiresAt: noon.Add(30 * time.Minute)}
}

// screen keeps what is written to it.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// sitting is somebody in front of a watcher.
type sitting struct {
	t      *testing.T
	w      *watcher
	screen *screen
	lines  chan string
	read   int // how much of the screen has been looked at
	ended  chan error
	stop   func()
}

func sit(t *testing.T, o *office) *sitting {
	t.Helper()
	cl, err := client.New(o.URL, "spt_person_x")
	if err != nil {
		t.Fatal(err)
	}
	s := &sitting{t: t, screen: &screen{}, lines: make(chan string), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	f, fed := newFeed(), make(chan struct{})
	go func() {
		defer close(fed)
		f.run(ctx, cl, func() (*client.Client, error) { return cl, nil }, func(context.Context, time.Duration) {})
	}()
	s.w = &watcher{cl: cl, out: s.screen, lines: s.lines, feed: f, now: func() time.Time { return noon }, columns: func() int { return 80 }, queue: queue{skipped: map[string]bool{}, plans: map[string]bool{}}}
	done := make(chan struct{})
	go func() { defer close(done); s.ended <- s.w.run(ctx) }()
	s.stop = func() { cancel(); <-fed; <-done }
	t.Cleanup(s.stop)
	return s
}

// sees waits until the text comes, after what was seen before.
func (s *sitting) sees(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		all := s.screen.String()
		if i := strings.Index(all[s.read:], text); i >= 0 {
			s.read += i + len(text)
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%q does not come:\n%s", text, all[s.read:])
		}
	}
}

func (s *sitting) types(line string) {
	s.t.Helper()
	select {
	case s.lines <- line:
	case <-time.After(10 * time.Second):
		s.t.Fatal("nobody takes the line")
	}
}

func (s *sitting) did(o *office, want ...string) {
	s.t.Helper()
	if got := o.answered(); !slices.Equal(got, want) {
		s.t.Errorf("answered %q, not %q", got, want)
	}
}

const (
	answerPrompt = "Answer (approve, reject, defer, modify, skip, quit): "
	stalePrompt  = "press Enter, then answer: "
)

func TestWatch(t *testing.T) {
	o := newOffice(t, asked("appr_5"), asked("appr_4"), asked("appr_3"), asked("appr_2"), asked("appr_1"))
	s := sit(t, o)
	s.sees("appr_5, waiting")
	s.sees("4 more wait. " + answerPrompt)
	s.types("yes") // no word of ours
	s.sees("That is no answer.")
	s.sees(answerPrompt)
	s.types("approve")
	s.sees("Approve comm.exec, risk HIGH, digest appr_500? [y/N] ")
	s.types("n")
	s.sees("not approved: nothing was sent")
	s.sees(answerPrompt)
	s.types(" A ")
	s.sees("[y/N]")
	s.types("quit") // nor does it leave
	s.sees("nothing was sent")
	s.sees(answerPrompt)
	s.did(o)
	s.types("approve")
	s.sees("[y/N]")
	s.types("y")
	s.sees("appr_5: approved")
	s.sees("appr_4, waiting")
	s.sees("3 more wait")
	s.did(o, "approve appr_5")

	s.sees(answerPrompt)
	s.types("reject")
	s.sees("Reason for rejecting")
	s.types("")
	s.sees("a no needs a reason")
	s.sees(answerPrompt)
	for _, unseen := range []string{"reject up\x1b[A", "reject \u202eno", "reject \xff", "reject a\tb"} {
		s.types(unseen)
		s.sees("holds characters that can't be seen")
		s.sees(answerPrompt)
	}
	s.types("Reject  not so many ")
	s.sees("appr_4: rejected")
	s.sees("appr_3, waiting")
	s.sees("2 more wait")
	s.did(o, "approve appr_5", "reject appr_4 not so many")

	s.sees(answerPrompt)
	s.types("defer yesterday")
	s.sees("not postponed: until is a time")
	s.sees(answerPrompt)
	s.types("defer")
	s.sees("Until when")
	s.types("10m")
	s.sees("appr_3: postponed")
	s.sees("appr_2, waiting")
	s.sees("1 more waits")
	s.did(o, "approve appr_5", "reject appr_4 not so many", "defer appr_3 for 10m0s")
	s.sees(answerPrompt)
	s.types("skip")
	s.sees("appr_2: skipped; it still waits")
	s.sees("appr_1, waiting")
	s.sees(answerPrompt)
	s.types("show")
	s.sees("appr_1, waiting")
	s.sees(answerPrompt)
	s.types("d")
	s.sees("Until when")
	s.types("")
	s.sees("Nothing else waits (skip:")
	s.types("approve")
	s.sees("Nothing waits that could be answered")
	s.sees("(skip:")
	s.types("skip")
	s.sees("appr_2, waiting")
	s.sees(answerPrompt)
	// One that is newer does not take its place under the person's hands.
	o.change("appr_6", func() { o.all = append([]*client.Approval{asked("appr_6")}, o.all...) })
	s.sees("1 more waits")
	s.sees(answerPrompt)
	s.types("approve a comment")
	s.sees("digest appr_200?")
	s.types("YES")
	s.sees("appr_6, waiting")
	s.sees(answerPrompt)
	s.types("q")
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	s.did(o, "approve appr_5", "reject appr_4 not so many", "defer appr_3 for 10m0s", "defer appr_1", "approve appr_2")
}

// A change is a request of its own, which is shown and waits for somebody else.
// Plans that wait are named, each once, beside the requests; so is one that comes later.
func TestWatchNamesPlans(t *testing.T) {
	plan := func(agent, state string) client.Session {
		return client.Session{SessionID: "sess_" + agent, AgentID: agent, Plan: &client.Plan{State: state, Digest: "digest of " + agent, Steps: make([]client.PlanStep, 2)}}
	}
	o := newOffice(t, asked("appr_1"))
	o.plans = []client.Session{plan("planner", "pending"), plan("done", "approved"), {SessionID: "sess_x", AgentID: "none"}}
	s := sit(t, o)
	s.sees("A plan of planner waits for an operator (2 steps): sallyport sessions show")
	s.sees("sess_planner")
	s.sees("appr_1, waiting")
	o.change("appr_1", func() { o.plans = append(o.plans, plan("later\x1b[2J", "pending")) })
	s.sees("A plan of later")
	all := s.screen.String()
	if strings.Count(all, "A plan of planner") != 1 || strings.Contains(all, "A plan of done") || strings.Contains(all, "\x1b") {
		t.Errorf("it shows\n%q", all)
	}
}

func TestWatchModify(t *testing.T) {
	o := newOffice(t, asked("appr_1"))
	s := sit(t, o)
	s.sees(answerPrompt)
	s.types("modify [1]")
	s.sees("not changed: arguments are all of the new ones")
	s.sees(answerPrompt)
	s.types(`modify {"path":"elsewhere"}`)
	s.sees("Reason for the change")
	s.types("")
	s.sees("a change needs a reason")
	s.sees(answerPrompt)
	s.did(o)
	s.types("m")
	s.sees("@FILE: ")
	s.types(`{"path":"elsewhere"}`)
	s.sees("Reason for the change")
	s.types("it is there")
	s.sees("appr_1x, waiting")
	s.sees("elsewhere")
	s.sees("appr_1x: changed by you, 0 of 1; it takes another person")
	s.sees("(skip: ")
	s.did(o, "modify appr_1 it is there")
}

// What happens to a request while it is shown is said, and an answer is for what was shown: also the line that was begun before.
func TestWatchMeanwhile(t *testing.T) {
	o := newOffice(t, asked("appr_1"))
	s := sit(t, o)
	s.sees(answerPrompt)
	s.types("approve")
	s.sees("[y/N]")
	// Somebody else was faster, and the yes that is under way is for nothing.
	o.change("appr_1", func() {
		o.all[0].State, o.all[0].Reason, o.all[0].Votes = "rejected", "no\x1b[2J", []client.Vote{{Person: "bob", Decision: "reject"}}
		o.all = append(o.all, asked("appr_2"))
	})
	s.sees(`appr_1: it is rejected now, by bob: no\x1b[2J`)
	s.sees("appr_2, waiting")
	s.sees(stalePrompt)
	s.types("reject for the first")
	s.sees("may have been meant for what stood here before")
	s.sees(answerPrompt)
	s.did(o)
	// It changes without anybody's telling.
	s.types("approve")
	s.sees("[y/N]")
	o.mu.Lock()
	o.all[1].Digest, o.all[1].Arguments = strings.Repeat("f", 64), json.RawMessage(`{"path":"elsewhere"}`)
	o.mu.Unlock()
	s.types("y")
	s.sees("your answer was not taken: The request is not the one")
	s.sees("appr_2 changed meanwhile; this is what it is now")
	s.sees("elsewhere")
	s.sees(stalePrompt)
	s.types("")
	s.sees(answerPrompt)
	s.did(o)
	// It changes, and that is told, while a reason is being typed.
	s.types("reject")
	s.sees("Reason for rejecting")
	o.change("appr_2", func() {
		o.all[1].Digest, o.all[1].Arguments = strings.Repeat("e", 64), json.RawMessage(`{"path":"a third place"}`)
	})
	s.sees("appr_2 changed meanwhile; this is what it is now")
	s.sees("a third place")
	s.sees(stalePrompt)
	s.types("a reason")
	s.sees(answerPrompt)
	s.did(o)
	// A vote of somebody else's.
	o.change("appr_2", func() {
		o.all[1].Needed, o.all[1].Risk, o.all[1].Votes = 2, "CRITICAL", []client.Vote{{Person: "bob", Decision: "approve"}}
	})
	s.sees("changed meanwhile")
	s.sees("CRITICAL, 1 of 2 approved")
	s.sees(stalePrompt)
	s.types("")
	s.sees(answerPrompt)
	// What a person may not, is said with the way out.
	o.change("", func() {
		o.refuse = &client.Problem{Status: 403, Code: "role.missing", Detail: "You asked for this.", Remedy: "Ask another person."}
	})
	s.types("approve")
	s.sees("[y/N]")
	s.types("y")
	s.sees("You asked for this. Ask another person.")
	s.sees(answerPrompt)
	o.change("appr_2", func() { o.refuse, o.all[1].Needed = nil, 3 })
	s.sees("1 of 3 approved")
	s.sees(stalePrompt)
	s.types("")
	s.sees(answerPrompt)
	s.types("approve")
	s.sees("[y/N]")
	s.types("y")
	s.sees("approved by you, 2 of 3; it takes another person")
	s.sees("(skip: show those that you skipped")
	o.change("appr_2", func() { o.all[1].State, o.all[1].ReplacedBy = "superseded", "appr_3" })
	s.sees("Nothing waits")
	s.did(o, "approve appr_2")
	// A line that was begun for what is gone answers nothing that comes later either.
	o.change("appr_4", func() { o.all = append(o.all, asked("appr_4")) })
	s.sees(answerPrompt)
	o.change("appr_4", func() { o.all[2].State = "expired" })
	s.sees("appr_4: it is expired now")
	s.sees("Nothing waits")
	o.change("appr_5", func() { o.all = append(o.all, asked("appr_5")) })
	s.sees("appr_5, waiting")
	s.sees(stalePrompt)
	s.types("reject for the fourth")
	s.sees(answerPrompt)
	s.did(o, "approve appr_2")
}

// That silence is about to permit something is said before it does, and that it did.
func TestWatchSilence(t *testing.T) {
	medium := asked("appr_1")
	medium.Risk, medium.SilenceAt = "MEDIUM", noon.Add(10*time.Second)
	o := newOffice(t, medium)
	s := sit(t, o)
	s.sees("runs unasked at   12:00:10, in 10 s, unless")
	s.sees(answerPrompt)
	s.stop()
	s.w.now = func() time.Time { return noon.Add(6 * time.Second) }
	s.w.look(t.Context())
	s.sees("appr_1 will run automatically in 4s, unless a person rejects or postpones it")
	s.w.look(t.Context())
	o.change("", func() { medium.State = "approved" })
	s.w.look(t.Context())
	if text := s.screen.String()[s.read:]; strings.Contains(text, "runs unasked at") || !strings.Contains(text, "appr_1: it is approved now, since nobody said no in time") {
		t.Error(text)
	}
}

// Nobody says yes to what was not shown.
func TestWatchTooLarge(t *testing.T) {
	long := asked("appr_2")
	long.Arguments = json.RawMessage(`{"text":"` + strings.Repeat("x", 3000) + `the end"}`)
	huge := asked("appr_1")
	huge.Arguments = json.RawMessage(`{"text":"` + strings.Repeat("x", 70_000) + `"}`)
	o := newOffice(t, long, huge)
	s := sit(t, o)
	s.sees("appr_2, waiting")
	s.sees("the end")
	s.sees(answerPrompt)
	s.types("skip")
	s.sees("appr_1, waiting")
	s.sees("can't be approved here")
	s.sees("Answer (reject, defer, modify, skip, quit): ")
	s.types("approve")
	s.sees("Not all of it is shown")
	s.types("y")
	s.sees("no answer")
	s.sees("quit): ")
	s.types("reject too much")
	s.sees("appr_1: rejected")
	s.did(o, "reject appr_1 too much")
}

// While something has just come up, lines count for nothing but to leave: they were typed before.
func TestWatchSettles(t *testing.T) {
	o := newOffice(t, asked("appr_1"))
	cl, err := client.New(o.URL, "spt_person_x")
	if err != nil {
		t.Fatal(err)
	}
	out := &screen{}
	w := &watcher{cl: cl, out: out, feed: newFeed(), now: func() time.Time { return noon }, settle: time.Hour, columns: func() int { return 80 }, queue: queue{skipped: map[string]bool{}, plans: map[string]bool{}}}
	w.look(t.Context())
	w.ask(w.question(), nil)
	for _, line := range []string{"approve", "y", "reject no", "defer 1m", "skip", ""} {
		if w.line(t.Context(), line) || w.shown == nil || w.then != nil {
			t.Errorf("%q does something", line)
		}
	}
	w.early = nil
	w.line(t.Context(), "approve")
	if w.then == nil || w.early == nil {
		t.Error("a yes is not asked for once more")
	}
	w.line(t.Context(), "y") // came with it
	if len(o.answered()) > 0 || strings.Contains(out.String(), "Answer (") || strings.Count(out.String(), "it is no answer") != 6 {
		t.Errorf("%v, %q", o.answered(), out.String())
	}
	w.ask(w.question(), nil)
	if !w.line(t.Context(), "quit") {
		t.Error("it does not leave")
	}
}

// Whatever is written into a request, the terminal gets rows, and nothing else that it would obey.
func TestWatchIsHarmless(t *testing.T) {
	for name, text := range hostile {
		a := everywhere(t, text)
		a.ApprovalID, a.ExpiresAt, a.SilenceAt = "appr_1", noon.Add(time.Hour), time.Time{}
		o := newOffice(t, a)
		s := sit(t, o)
		s.sees(answerPrompt)
		s.types("approve")
		s.sees("[y/N]")
		s.types(text)
		s.sees("nothing was sent")
		s.sees(answerPrompt)
		o.change("", func() { o.refuse = &client.Problem{Status: 409, Code: text, Detail: text, Remedy: text, Field: text} })
		s.types("skip")
		s.sees("(skip:")
		s.types("skip")
		s.sees(answerPrompt)
		s.types("reject no")
		s.sees("not taken")
		s.sees(answerPrompt)
		o.change("appr_1", func() { a.State = text })
		s.sees("appr_1: it is")
		s.sees("Nothing waits")
		s.stop()
		for _, r := range s.screen.String() {
			if r < ' ' && r != '\n' || r == 0x7f || display.Hidden(r) {
				t.Errorf("%s: %U on the terminal", name, r)
				break
			}
		}
		for row := range strings.Lines(s.screen.String()) {
			used := 0
			for _, r := range strings.TrimSuffix(row, "\n") {
				used += display.Columns(r)
			}
			if used > 80 {
				t.Errorf("%s: %d columns: %q", name, used, row)
			}
		}
	}
}

// The gateway goes away and comes back; a token that is no good ends it.
func TestWatchGoesOn(t *testing.T) {
	o := newOffice(t)
	s := sit(t, o)
	s.sees("Nothing waits")
	o.end()
	s.sees("trying again in 1s")
	s.sees("the gateway is there again")
	o.change("appr_1", func() { o.all = append(o.all, asked("appr_1")) })
	s.sees("appr_1, waiting")
	o.mu.Lock()
	o.status = 401
	o.mu.Unlock()
	o.end()
	var p *client.Problem
	if err := <-s.ended; !errors.As(err, &p) || p.Status != 401 {
		t.Errorf("%v", err)
	}
}

// Only a line that is whole is one; the end of the input leaves.
func TestReadLines(t *testing.T) {
	lines := make(chan string)
	go readLines(t.Context(), strings.NewReader("approve\r\n\ny\nreject n"), lines)
	var got []string
	for line := range lines {
		got = append(got, line)
	}
	if !slices.Equal(got, []string{"approve", "", "y"}) {
		t.Errorf("%q", got)
	}
	o := newOffice(t, asked("appr_1"))
	t.Setenv(envURL, o.URL)
	t.Setenv(envToken, "spt_person_x")
	var out bytes.Buffer
	if code := run(t.Context(), []string{"approvals", "watch"}, strings.NewReader("approve\ny\n"), &out, &out); code != exitDone || len(o.answered()) > 0 {
		t.Errorf("%d, %v, %s", code, o.answered(), &out)
	}
}

// Tries are further and further apart, and near again once one was good.
func TestFeedBacksOff(t *testing.T) {
	o := newOffice(t)
	cl, err := client.New(o.URL, "spt_person_x")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waits []time.Duration
	f := newFeed()
	go func() { <-f.bell; o.mu.Lock(); o.status = 503; o.mu.Unlock(); o.end() }()
	f.run(ctx, cl, func() (*client.Client, error) { return cl, nil }, func(_ context.Context, d time.Duration) {
		switch waits = append(waits, d); len(waits) {
		case 7:
			o.mu.Lock()
			o.status = 0
			o.mu.Unlock()
			time.AfterFunc(50*time.Millisecond, o.end)
		case 8:
			cancel()
		}
	})
	want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 1}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(waits, want) {
		t.Errorf("%v", waits)
	}
	for i := range 2 * maxChanged {
		f.tell(func(n *changes) { n.changed(fmt.Sprint(i % (maxChanged + 10))) })
	}
	if n := f.take(); !n.all || len(n.ids) > maxChanged {
		t.Errorf("%d ids", len(n.ids))
	}
}

func TestWatchLines(t *testing.T) {
	for _, output := range formats {
		critical := asked("appr_1")
		critical.Risk, critical.Needed, critical.Arguments = "CRITICAL", 2, json.RawMessage(`{"a":"\u001b[2J`+"\u202e"+`\n"}`)
		o := newOffice(t, asked("appr_2"), critical)
		t.Setenv(envURL, o.URL)
		t.Setenv(envToken, "spt_person_x")
		out, errOut := &screen{}, &screen{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, []string{"approvals", "watch", "-o", output}, nil, out, errOut)
		}()
		s := &sitting{t: t, screen: out}
		s.sees("appr_1") // the oldest first
		s.sees("appr_2")
		s.sees("\n")
		o.change("appr_1", func() { critical.Votes = []client.Vote{{Person: "bob", Decision: "approve"}} })
		s.sees("appr_1")
		s.sees("\n")
		o.change("appr_2", func() { o.all[0].State = "rejected" })
		s.sees("rejected")
		o.change("appr_2", func() {})
		o.change("appr_3", func() { o.all = append([]*client.Approval{asked("appr_3")}, o.all...) })
		s.sees("appr_3")
		s.sees("comm.exec")
		o.change("appr_1", func() { critical.State = "expired" })
		s.sees("expired")
		cancel()
		if code := <-ended; code != exitDone || errOut.String() != "" {
			t.Errorf("%s: %d, %s", output, code, errOut.String())
		}
		for _, r := range out.String() {
			if r != '\n' && (r < ' ' || display.Hidden(r)) {
				t.Errorf("%s: %U", output, r)
			}
		}
		if output == "json" {
			var states []string
			for line := range strings.Lines(out.String()) {
				var a client.Approval
				if err := json.Unmarshal([]byte(line), &a); err != nil {
					t.Fatalf("%v: %s", err, line)
				}
				states = append(states, fmt.Sprint(a.ApprovalID, a.State, len(a.Votes)))
			}
			if want := []string{"appr_1pending0", "appr_2pending0", "appr_1pending1", "appr_2rejected0", "appr_2rejected0", "appr_3pending0", "appr_1expired1"}; !slices.Equal(states, want) {
				t.Errorf("%v", states)
			}
		}
	}
}

// Lists leave large arguments out: a row says how large they are, and a document has them.
func TestLargeArgumentsAreNotLost(t *testing.T) {
	const end = "the-last-of-the-arguments"
	for _, output := range formats {
		large := asked("appr_1")
		large.Arguments = json.RawMessage(`{"a":"` + strings.Repeat("x", 3000) + end + `"}`)
		o := newOffice(t, large)
		t.Setenv(envURL, o.URL)
		t.Setenv(envToken, "spt_person_x")
		out := &screen{}
		if code := run(t.Context(), []string{"approvals", "list", "--limit", "5", "-o", output}, nil, out, out); code != exitDone || strings.Contains(out.String(), end) || !strings.Contains(out.String(), "3033") {
			t.Errorf("%s: %d %s", output, code, out)
		}
		out = &screen{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, []string{"approvals", "watch", "-o", output}, nil, out, out)
		}()
		s := &sitting{t: t, screen: out}
		want := end
		if output == "table" {
			want = "(3033 bytes)"
		}
		s.sees("appr_1")
		s.sees(want)
		cancel()
		if code := <-ended; code != exitDone || strings.Contains(out.String(), "arguments_size") {
			t.Errorf("%s: %d %.300s", output, code, out)
		}
	}
}

// What happened while the gateway was away is printed when it is back.
func TestWatchLinesCatchUp(t *testing.T) {
	o := newOffice(t, asked("appr_2"), asked("appr_1"))
	t.Setenv(envURL, o.URL)
	t.Setenv(envToken, "spt_person_x")
	out, errOut := &screen{}, &screen{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"approvals", "watch"}, nil, out, errOut) }()
	s, e := &sitting{t: t, screen: out}, &sitting{t: t, screen: errOut}
	s.sees("appr_2  waiting")
	o.mu.Lock()
	o.all[1].State = "rejected"
	o.all = append([]*client.Approval{asked("appr_3")}, o.all...)
	o.mu.Unlock()
	o.end()
	e.sees("it ended the stream of events; trying again in 1s")
	e.sees("the gateway is there again")
	s.sees("appr_3  waiting")
	s.sees("appr_1  rejected")
	cancel()
	if code := <-ended; code != exitDone || strings.Count(out.String(), "\n") != 4 {
		t.Errorf("%d\n%s", code, out.String())
	}
}

// Pages are asked for until there is one to show.
func TestWatchManyWait(t *testing.T) {
	var all []*client.Approval
	for i := range 50 {
		all = append(all, asked(fmt.Sprintf("appr_%02d", 49-i)))
	}
	o := newOffice(t, all...)
	s := sit(t, o)
	s.sees("over 19 more wait. Answer")
	for i := range 25 {
		s.types("s")
		s.sees(fmt.Sprintf("appr_%02d, waiting", 48-i))
		s.sees("Answer")
	}
	s.types("s")
	s.sees("over 13 more wait")
}

// At a prompt, too, nobody says yes to what was not shown whole.
func TestApproveShownWhole(t *testing.T) {
	large := asked("appr_1")
	large.Arguments = json.RawMessage(`{"text":"` + strings.Repeat("x", 70_000) + `"}`)
	for name, c := range map[string]struct {
		args []string
		code int
		did  []string
	}{
		"approve":             {[]string{"approve", "appr_1"}, exitRefused, nil},
		"batch":               {[]string{"batch", "approve", "appr_1", "appr_2"}, exitRefused, nil},
		"approve what is":     {[]string{"approve", "appr_2"}, exitDone, []string{"approve appr_2"}},
		"approve unseen":      {[]string{"approve", "appr_1", "--yes", "--digest", large.Digest}, exitDone, []string{"approve appr_1"}},
		"reject all the same": {[]string{"reject", "appr_1", "--reason", "no"}, exitDone, []string{"reject appr_1 no"}},
	} {
		again := *large
		o := newOffice(t, asked("appr_2"), &again)
		t.Setenv(envURL, o.URL)
		t.Setenv(envToken, "spt_person_x")
		var out, errOut bytes.Buffer
		if code := run(t.Context(), append([]string{"approvals"}, c.args...), strings.NewReader("y\n"), &out, &errOut); code != c.code || !slices.Equal(o.answered(), c.did) {
			t.Errorf("%s: %d, %v, %s", name, code, o.answered(), errOut.String())
		}
		if c.did == nil && !strings.Contains(errOut.String(), "--output json, then approve it with --yes --digest "+large.Digest) {
			t.Errorf("%s: %s", name, errOut.String())
		}
	}
}

// What is large hides nothing of what else waits.
func TestWatchLargeOnes(t *testing.T) {
	var all []*client.Approval
	for i := range 18 {
		a := asked(fmt.Sprintf("appr_%02d", 30-i))
		a.Arguments = json.RawMessage(`"` + strings.Repeat("x", 4<<20) + `"`)
		all = append(all, a)
	}
	o := newOffice(t, append(all, asked("appr_01"))...)
	s := sit(t, o)
	s.sees("appr_30, waiting")
	s.sees("can't be approved here")
	s.sees("Answer (reject")
	s.types("skip")
	s.sees("appr_29, waiting")
}
