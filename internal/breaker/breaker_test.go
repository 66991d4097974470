package breaker

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// world is breakers with a clock that the test sets, and the log that their events make.
type world struct {
	at  time.Time
	b   *Breakers
	log []audit.Entry
}

func newWorld() *world {
	w := &world{at: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)}
	w.b = New(func() time.Time { return w.at }, Rules{})
	return w
}

func (w *world) write(events []Event) {
	for _, e := range events {
		action := ActionClosed
		if e.Open {
			action = ActionOpen
		}
		detail, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		w.log = append(w.log, audit.Entry{At: w.at, Kind: audit.Change, Action: action, Agent: e.Agent, Detail: detail})
	}
}

// call makes a call that ends so; false: a breaker refused it.
func (w *world) call(agent, server string, r Result) bool {
	try, blocked := w.b.Take(agent, server)
	if blocked != nil {
		return false
	}
	e := audit.Entry{At: w.at, Kind: audit.Outcome, Action: "call", Agent: agent, Operation: server + ".tool", Decision: "ok"}
	if id, is := Model(server); is {
		e.Operation = "model." + id
	}
	if r != Answered {
		e.Decision = "error"
		e.Detail, _ = json.Marshal(map[string]any{"breaker": Noted{Server: server, Result: r}})
	}
	w.log = append(w.log, e)
	w.write(try.End(r))
	return true
}

func (w *world) open() (names []string) {
	for _, s := range w.b.List() {
		if s.State != "closed" {
			names = append(names, s.Name)
		}
	}
	return names
}

func TestWhatOpens(t *testing.T) {
	type call struct {
		agent, server string
		result        Result
		times         int
	}
	for name, c := range map[string]struct {
		calls []call
		open  []string
	}{
		"four failures":                    {[]call{{"a", "s", Unreachable, 4}}, nil},
		"five that no agent caused":        {[]call{{"a", "s", Unreachable, 5}}, []string{"a@s", "s"}},
		"a success between":                {[]call{{"a", "s", Unreachable, 4}, {"a", "s", Answered, 1}, {"a", "s", Unreachable, 4}}, nil},
		"one agent's broken calls":         {[]call{{"a", "s", Broken, 5}}, []string{"a@s"}},
		"two agents met them":              {[]call{{"a", "s", Broken, 3}, {"b", "s", Broken, 2}}, []string{"s"}},
		"one of them met one":              {[]call{{"a", "s", Broken, 4}, {"b", "s", Broken, 1}}, nil},
		"an agent that crashes the server": {[]call{{"a", "s", Broken, 1}, {"a", "s", Unreachable, 4}}, []string{"a@s"}},
		"an agent that ends its program":   {[]call{{"a", "s", Exited, 5}, {"b", "s", Starting, 9}, {"c", "s", Starting, 9}}, []string{"a@s"}},
		"and that doesn't start again":     {[]call{{"a", "s", Exited, 1}, {"a", "s", Unreachable, 9}, {"b", "s", Unreachable, 4}}, []string{"a@s"}},
		"two agents that do":               {[]call{{"a", "s", Exited, 5}, {"b", "s", Exited, 5}}, []string{"a@s", "b@s"}},
		"nobody knows which of two did":    {[]call{{"a", "s", ExitedTogether, 4}, {"b", "s", ExitedTogether, 4}, {"a", "s", ExitedTogether, 1}, {"b", "s", ExitedTogether, 2}, {"a", "s", ExitedTogether, 2}, {"b", "s", ExitedTogether, 1}}, nil},
		"another agent's calls succeed":    {[]call{{"a", "s", ExitedTogether, 4}, {"b", "s", ExitedTogether, 4}, {"b", "s", Answered, 1}, {"b", "s", ExitedTogether, 1}, {"a", "s", ExitedTogether, 1}}, []string{"a@s"}},
		"one ended it alone, too":          {[]call{{"a", "s", ExitedTogether, 4}, {"b", "s", ExitedTogether, 4}, {"a", "s", Exited, 1}}, []string{"a@s"}},
		"which end no row":                 {[]call{{"b", "s", Unreachable, 4}, {"a", "s", Exited, 1}, {"a", "s", ExitedTogether, 1}, {"b", "s", Unreachable, 1}}, []string{"b@s", "s"}},
		"a program that can't start again": {[]call{{"a", "s", Exited, 1}, {"b", "s", Starting, 2}, {"b", "s", Unreachable, 3}, {"c", "s", Unreachable, 2}}, []string{"s"}},
		"an agent that ends two programs":  {[]call{{"a", "s", Exited, 5}, {"a", "t", Exited, 5}}, []string{"a@s", "a@t", "agent:a"}},
		"one in whose calls two ended":     {[]call{{"a", "s", ExitedTogether, 4}, {"a", "s", Exited, 1}, {"a", "t", Exited, 5}}, []string{"a@s", "a@t"}},
		"refused writes are the agent's":   {[]call{{"a", "s", Refused, 5}, {"b", "s", Refused, 4}}, []string{"a@s"}},
		"two open pairs open the agent":    {[]call{{"a", "s", Refused, 5}, {"a", "t", Broken, 5}}, []string{"a@s", "a@t", "agent:a"}},
		"two dead servers don't":           {[]call{{"a", "s", Unreachable, 5}, {"a", "t", Unreachable, 5}}, []string{"a@s", "a@t", "s", "t"}},
		"what was stopped says nothing":    {[]call{{"a", "s", Unreachable, 4}, {"a", "s", Void, 9}}, nil},
		"nor does it end a row":            {[]call{{"a", "s", Unreachable, 4}, {"a", "s", Void, 1}, {"a", "s", Unreachable, 1}}, []string{"a@s", "s"}},
		"a server that died in its call":   {[]call{{"a", "s", Broken, 1}, {"a", "s", Unreachable, 4}, {"a", "t", Broken, 1}, {"a", "t", Unreachable, 4}}, []string{"a@s", "a@t"}},
		"a model, as a server":             {[]call{{"a", "model:m@1", Unreachable, 5}}, []string{"a@model:m@1", "model:m@1"}},
		"two models, which count as one":   {[]call{{"a", "model:m", Broken, 5}, {"a", "model:n", Broken, 5}}, []string{"a@model:m", "a@model:n"}},
		"a model and a server":             {[]call{{"a", "model:m", Broken, 5}, {"a", "s", Broken, 5}}, []string{"a@model:m", "a@s", "agent:a"}},
		"texts that silence a judge":       {[]call{{"a", "judge:m@1", Broken, 9}, {"b", "judge:m@1", Broken, 9}, {"c", "judge:m@1", Broken, 4}}, []string{"a@judge:m@1", "b@judge:m@1"}},
		"a text that ends a judge":         {[]call{{"a", "judge:m", Broken, 1}, {"a", "judge:m", Unreachable, 9}, {"b", "judge:m", Broken, 1}, {"b", "judge:m", Unreachable, 3}}, []string{"a@judge:m"}},
		"a judge that is away":             {[]call{{"a", "judge:m", Unreachable, 3}, {"b", "judge:m", Unreachable, 2}}, []string{"judge:m"}},
		"a judge and a server":             {[]call{{"a", "judge:m", Broken, 5}, {"a", "s", Broken, 5}}, []string{"a@judge:m", "a@s"}},
		"another model's success":          {[]call{{"a", "model:m", Unreachable, 4}, {"a", "model:m.5", Answered, 1}, {"a", "model:m", Unreachable, 1}}, []string{"a@model:m", "model:m"}},
		"the principal of recommendations": {[]call{{"recommendation:a", "s", Refused, 5}}, []string{"a@s"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			for _, c := range c.calls {
				for range c.times {
					w.call(c.agent, c.server, c.result)
				}
			}
			if got := w.open(); !slices.Equal(got, c.open) {
				t.Errorf("open: %q, want %q", got, c.open)
			}
		})
	}
}

// Who ends a server again and again is shut out from it, whatever succeeds between, and at once when it does so again within ten minutes. Whose calls were under way is not, and a server that ends now and then shuts nobody out.
func TestEndsCountWhateverSucceedsBetween(t *testing.T) {
	open := func(w *world, want ...string) {
		t.Helper()
		if got := w.open(); !slices.Equal(got, want) {
			t.Fatalf("open: %q, want %q", got, want)
		}
		again := New(func() time.Time { return w.at }, Rules{})
		if due := again.Restore(w.log); due != nil || !reflect.DeepEqual(again.List(), w.b.List()) {
			t.Fatalf("after a restart %+v: %+v, want %+v", due, again.List(), w.b.List())
		}
	}
	w := newWorld()
	end := func(gap time.Duration, others ...string) {
		r := Exited
		for _, other := range others {
			r = ExitedTogether
			w.call(other, "s", r)
		}
		w.call("a", "s", r)
		for _, of := range append(others, "a") {
			w.call(of, "s", Answered)
		}
		w.at = w.at.Add(gap)
	}
	for range 20 {
		end(3 * time.Minute)
		open(w)
	}
	w.at = w.at.Add(10 * time.Minute)
	for range 4 {
		end(time.Minute)
		open(w)
	}
	end(0, "b") // with it the fifth of a's
	open(w, "a@s")
	w.at = w.at.Add(time.Minute)
	if !w.call("a", "s", Answered) {
		t.Fatal("a try is refused")
	}
	open(w)
	end(0)
	open(w, "a@s")
	w.at = w.at.Add(time.Minute)
	w.call("a", "s", Answered)
	w.at = w.at.Add(10 * time.Minute)
	for range 9 { // as often in a's as in b's
		end(time.Second, "b")
		open(w)
	}
	end(0)
	open(w, "a@s") // it was a's alone
}

func TestOneCallTries(t *testing.T) {
	w := newWorld()
	for range 5 {
		w.call("a", "s", Unreachable)
	}
	if blocked := w.b.Look("b", "s"); blocked == nil || blocked.Name != "s" || !blocked.Retry.Equal(w.at.Add(30*time.Second)) {
		t.Fatalf("%+v", blocked)
	}
	if w.b.Look("b", "other") != nil {
		t.Error("another server is refused")
	}
	wait := 30 * time.Second
	for i := range 6 { // each try fails, and the wait doubles up to its bound
		w.at = w.at.Add(wait - 1)
		if w.call("b", "s", Answered) {
			t.Fatalf("try %d: a call goes before its time", i)
		}
		w.at = w.at.Add(1)
		try, blocked := w.b.Take("b", "s")
		if blocked != nil {
			t.Fatalf("try %d: %+v", i, blocked)
		}
		if _, second := w.b.Take("c", "s"); second == nil {
			t.Fatalf("try %d: two calls try", i)
		}
		w.write(try.End(Unreachable))
		wait = min(2*wait, 5*time.Minute)
	}
	w.at = w.at.Add(wait)
	try, _ := w.b.Take("b", "s")
	try.Release() // it was not made
	if !w.call("b", "s", Answered) || slices.Contains(w.open(), "s") {
		t.Errorf("a success doesn't close it: %q", w.open())
	}
	if !w.call("c", "s", Answered) {
		t.Error("it is closed, and calls are refused")
	}
}

// Whoever tries with a call that it breaks itself, or that it gives up, lets others go first, and makes nobody wait longer.
func TestATryOfOnesOwnHoldsUpNobody(t *testing.T) {
	for name, end := range map[string]Result{"broken": Broken, "given up": Void, "ends its program": Exited, "ended beside another": ExitedTogether, "while it starts": Starting} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			for range 5 {
				w.call("b", "s", Unreachable)
			}
			if _, is := w.b.Reset("b@s"); !is {
				t.Fatal("the pair isn't open")
			}
			w.at = w.at.Add(30 * time.Second)
			for range 4 {
				if !w.call("a", "s", end) {
					t.Fatal("it may not try")
				}
				if blocked := w.b.Look("a", "s"); blocked == nil || !blocked.Retry.Equal(w.at.Add(time.Minute)) {
					t.Fatalf("it may try again at once: %+v", blocked)
				}
				if w.b.Look("b", "s") != nil {
					t.Fatal("the other agent is held up")
				}
				w.at = w.at.Add(time.Minute)
			}
			if !w.call("b", "s", Answered) || slices.Contains(w.open(), "s") {
				t.Errorf("%q", w.open())
			}
		})
	}
}

// A try that lasts holds up nobody for longer than the wait.
func TestALongTry(t *testing.T) {
	w := newWorld()
	for range 5 {
		w.call("a", "s", Unreachable)
	}
	w.at = w.at.Add(30 * time.Second)
	if _, blocked := w.b.Take("b", "s"); blocked != nil {
		t.Fatal("it may not try")
	}
	w.at = w.at.Add(29 * time.Second)
	if w.b.Look("c", "s") == nil {
		t.Error("two calls try")
	}
	w.at = w.at.Add(time.Second)
	if w.b.Look("c", "s") != nil {
		t.Error("it waits for a call that lasts")
	}
}

// What goes to no server shows nothing of the agent's calls.
func TestACallToNoServerClosesNoBreaker(t *testing.T) {
	w := newWorld()
	w.b.Open("a", "a test")
	w.at = w.at.Add(time.Hour)
	try, blocked := w.b.Take("a", "")
	if blocked != nil {
		t.Fatalf("%+v", blocked)
	}
	try.End(Answered)
	if _, open := w.b.Opened("a"); !open {
		t.Error("closed")
	}
}

func TestRunsThatFailByTheirAgent(t *testing.T) {
	for _, c := range []struct {
		status        string
		code          fault.Code
		failed, ended bool
	}{
		{"done", "", false, true}, {"invalid", fault.OutputInvalid, true, true}, {"timeout", fault.TimeExceeded, true, true}, {"failed", fault.UpstreamFailed, true, true},
		{"failed", fault.OutputInvalid, true, true}, {"failed", fault.Internal, false, false}, {"failed", fault.SandboxUnavailable, false, false},
		{"cancelled", "", false, false}, {"killed", fault.KillSwitch, false, false}, {"SKIPPED", fault.KillSwitch, false, false},
	} {
		if failed, ended := RunFailed(c.status, c.code); failed != c.failed || ended != c.ended {
			t.Errorf("%s %s: %v %v", c.status, c.code, failed, ended)
		}
	}
}

func TestRunsOpenTheAgent(t *testing.T) {
	w := newWorld()
	for i := range 5 {
		if got := len(w.b.Run("a", true)) == 1; got != (i == 4) {
			t.Errorf("failed run %d: opened %v", i+1, got)
		}
	}
	if blocked := w.b.Look("a", ""); blocked == nil || blocked.Kind != OfAgent {
		t.Errorf("%+v", blocked)
	}
	w = newWorld()
	for range 9 {
		w.b.Run("a", true)
		w.b.Run("a", true)
		w.b.Run("a", false)
	}
	if w.b.Look("a", "") != nil {
		t.Error("runs that succeed between don't reset it")
	}
}

func TestResetAndTest(t *testing.T) {
	w := newWorld()
	if _, is := w.b.Reset("s"); is {
		t.Error("what isn't there was reset")
	}
	for range 5 {
		w.call("a", "s", Unreachable)
	}
	if e, is := w.b.Reset("s"); !is || e.Open || e.Name != "s" {
		t.Errorf("%+v %v", e, is)
	}
	if got := w.open(); !slices.Equal(got, []string{"a@s"}) {
		t.Errorf("%q", got)
	}
	if e, is := w.b.Open("a", "a test"); !is || e.Opened != 0 {
		t.Errorf("%+v: a test counts as an opening", e)
	}
	if _, is := w.b.Open("a", "a test"); is {
		t.Error("an open breaker is opened for a test")
	}
	if w.b.Look("a", "elsewhere") == nil {
		t.Error("the agent's breaker is open, and it may call")
	}
}

func TestConcurrentTries(t *testing.T) {
	w := newWorld()
	for range 5 {
		w.call("a", "s", Unreachable)
	}
	w.at = w.at.Add(time.Hour)
	through := make(chan *Try, 64)
	done := make(chan struct{})
	for i := range 64 {
		go func() {
			if try, blocked := w.b.Take(fmt.Sprint("agent", i), "s"); blocked == nil {
				through <- try
			}
			done <- struct{}{}
		}()
	}
	for range 64 {
		<-done
	}
	if len(through) != 1 {
		t.Errorf("%d calls try at once", len(through))
	}
}

// One agent's failures open no server's breaker, also where another agent's call ended the server: that is no failure like theirs.
func TestAnEndIsNoOtherAgentsFailure(t *testing.T) {
	w := newWorld()
	w.call("b", "s", Unreachable)
	w.call("b", "s", Unreachable)
	w.call("c", "s", Exited)
	for range 4 {
		w.call("a", "s", Broken)
	}
	if blocked := w.b.Look("d", "s"); blocked != nil {
		t.Errorf("%+v", blocked)
	}
	w.call("c", "s", Broken)
	if w.b.Look("d", "s") == nil {
		t.Error("two agents' calls failed, and the server's breaker is closed")
	}
}

// TestTheLogHasTheState: whatever happens, breakers that are restored from the log are as those that wrote it.
func TestTheLogHasTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		results := []Result{Answered, Void, Unreachable, Broken, Refused, Exited, ExitedTogether, Starting}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			agent := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "agent")
			server := rapid.SampledFrom([]string{"s", "t", "model:m", "model:m.1@x", "judge:m@1"}).Draw(t, "server")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				w.at = w.at.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
			case 1:
				if e, is := w.b.Reset(server); is {
					w.write([]Event{e})
				}
			default:
				w.call(agent, server, rapid.SampledFrom(results).Draw(t, "result"))
			}
		}
		again := New(func() time.Time { return w.at }, Rules{})
		if due := again.Restore(w.log); due != nil {
			t.Fatalf("opened without an entry: %+v", due)
		}
		if got, want := again.List(), w.b.List(); !reflect.DeepEqual(got, want) {
			t.Fatalf("restored\n%+v\nwant\n%+v", got, want)
		}
	})
}

func TestACrashBeforeTheEntry(t *testing.T) {
	w := newWorld()
	for range 5 {
		w.call("a", "s", Unreachable)
	}
	outcomes := slices.DeleteFunc(slices.Clone(w.log), func(e audit.Entry) bool { return e.Kind != audit.Outcome })
	again := New(func() time.Time { return w.at }, Rules{})
	if due := again.Restore(outcomes); len(due) != 2 || again.Look("b", "s") == nil {
		t.Errorf("%+v", due)
	}
}

func FuzzRestore(f *testing.F) {
	f.Add("breaker.open", []byte(`{"breaker":"agent:a","wait":"1h","open":true}`))
	f.Add("call", []byte(`{"breaker":{"server":"s","result":"unreachable"}}`))
	f.Fuzz(func(t *testing.T, action string, detail []byte) {
		b := New(time.Now, Rules{})
		b.Restore([]audit.Entry{{Kind: audit.Outcome, Action: action, Agent: "a", Operation: "s.t", Detail: detail}})
		for _, s := range b.List() {
			if s.State != "closed" && s.RetryAfter == nil {
				t.Errorf("%+v", s)
			}
		}
	})
}

func BenchmarkClosed(b *testing.B) {
	all := New(time.Now, Rules{})
	b.ReportAllocs()
	for b.Loop() {
		if all.Look("agent", "server") != nil {
			b.Fatal("open")
		}
		try, _ := all.Take("agent", "server")
		try.End(Answered)
	}
}
