package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sallyport.example/internal/audit"
)

// memoryLog is a log that looks at so many entries at a time.
type memoryLog struct {
	entries []audit.Entry
	scans   int
	reads   int
}

func (l *memoryLog) Size(context.Context) (int64, error) { return int64(len(l.entries)), nil }

func (l *memoryLog) Entries(_ context.Context, f audit.Filter) (page []audit.Entry, next int64, err error) {
	l.reads++
	for i := f.Min; i < int64(len(l.entries)); i++ {
		if l.scans > 0 && i == f.Min+int64(l.scans) {
			return page, i - 1, nil
		}
		if f.Match(l.entries[i]) {
			page = append(page, l.entries[i])
		}
		if len(page) == f.Limit && i+1 < int64(len(l.entries)) {
			return page, i, nil
		}
	}
	return page, -1, nil
}

// Record implements Log.
func (l *memoryLog) Record(context.Context, ...audit.Entry) error { return nil }

var noon = time.Date(2026, 11, 24, 12, 30, 0, 0, time.UTC)

func (l *memoryLog) add(at time.Time, e audit.Entry) {
	e.Index, e.At = int64(len(l.entries)), at
	l.entries = append(l.entries, e)
}

// recount counts the log from its first entry.
func recount(l *memoryLog, from time.Time) map[Key]int64 {
	all := map[Key]int64{}
	for _, e := range l.entries {
		if k, n := Of(e); n > 0 && !e.At.Before(from) {
			all[k] += n
		}
	}
	return all
}

func counts(slots []Slot) map[Key]int64 {
	all, _ := Total(slots)
	return all
}

// Every kind of entry counts as what it is.
func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		e audit.Entry
		k Key
		n int64
	}{
		"ran":              {audit.Entry{Kind: audit.Outcome, Action: "call", Decision: "ok"}, Key{"a", Ran, ""}, 1},
		"failed":           {audit.Entry{Kind: audit.Outcome, Action: "call", Decision: "error", Code: "upstream.failed"}, Key{"a", Failed, "upstream.failed"}, 1},
		"unknown":          {audit.Entry{Kind: audit.Outcome, Action: "call", Decision: "unknown"}, Key{"a", Failed, ""}, 1},
		"discarded":        {audit.Entry{Kind: audit.Outcome, Action: "call", Decision: "discarded", Code: "result.invalid"}, Key{"a", Refused, "result.invalid"}, 1},
		"intent":           {audit.Entry{Kind: audit.Intent, Action: "call", Decision: "permit"}, Key{Agent: "a"}, 0},
		"silence":          {audit.Entry{Kind: audit.Intent, Action: "call", Decision: "permit", Detail: json.RawMessage(`{"permitted_by":"silence"}`)}, Key{"a", Silent, ""}, 1},
		"asked":            {audit.Entry{Kind: audit.Decision, Action: "approval.ask", Decision: "ask"}, Key{"a", Asked, ""}, 1},
		"refused":          {audit.Entry{Kind: audit.Decision, Action: "call", Decision: "deny", Code: "flow.contaminated"}, Key{"a", Refused, "flow.contaminated"}, 1},
		"many refused":     {audit.Entry{Kind: audit.Decision, Action: audit.Folded, Decision: "deny", Code: "limit.rate", Detail: json.RawMessage(`{"count":90}`)}, Key{"a", Refused, "limit.rate"}, 90},
		"a check":          {audit.Entry{Kind: audit.Decision, Action: "check", Decision: "deny", Code: "flow.contaminated"}, Key{Agent: "a"}, 0},
		"approved":         {audit.Entry{Kind: audit.Change, Action: "approval.approve"}, Key{"a", Approved, ""}, 1},
		"rejected":         {audit.Entry{Kind: audit.Change, Action: "approval.reject"}, Key{"a", Rejected, ""}, 1},
		"something else":   {audit.Entry{Kind: audit.Change, Action: "session.open"}, Key{Agent: "a"}, 0},
		"a negative count": {audit.Entry{Kind: audit.Decision, Action: audit.Folded, Decision: "deny", Detail: json.RawMessage(`{"count":-4}`)}, Key{"a", Refused, ""}, 0},
	} {
		c.e.Agent = "a"
		if k, n := Of(c.e); k != c.k || n != c.n {
			t.Errorf("%s: %v %d, want %v %d", name, k, n, c.k, c.n)
		}
	}
}

// Of requests to models, tokens, cost and times are counted from outcomes, whatever stands there.
func TestOfModel(t *testing.T) {
	outcome := func(decision, detail string) audit.Entry {
		return audit.Entry{Kind: audit.Outcome, Agent: "a", Model: "m", Decision: decision, Detail: json.RawMessage(detail)}
	}
	for name, c := range map[string]struct {
		e  audit.Entry
		u  ModelUse
		is bool
	}{
		"an answer":            {outcome("ok", `{"tokens":{"input":3,"output":9},"cost_millionths":70}`), ModelUse{Answered: 1, Input: 3, Output: 9, Cost: 70}, true},
		"a streamed answer":    {outcome("ok", `{"tokens":{"input":3,"output":9},"first_ms":120}`), ModelUse{Answered: 1, Input: 3, Output: 9, Streamed: 1, First: 120 * time.Millisecond}, true},
		"a failure":            {outcome("error", `{"tokens":{"input":3,"output":0}}`), ModelUse{Failed: 1, Input: 3}, true},
		"calls outside":        {outcome("ok", `{"ungoverned":{"Bash":2,"Edit":1}}`), ModelUse{Answered: 1, Outside: 3}, true},
		"without a detail":     {outcome("ok", ``), ModelUse{Answered: 1}, true},
		"numbers out of range": {outcome("ok", `{"tokens":{"input":-5,"output":9223372036854775807},"cost_millionths":-1}`), ModelUse{Answered: 1, Output: maxUse}, true},
		"a refusal":            {audit.Entry{Kind: audit.Decision, Agent: "a", Model: "m", Decision: "deny", Code: "limit.quota"}, ModelUse{Refused: 1}, true},
		"an intent":            {audit.Entry{Kind: audit.Intent, Agent: "a", Model: "m", Decision: "permit"}, ModelUse{}, false},
		"of a tool":            {audit.Entry{Kind: audit.Outcome, Agent: "a", Decision: "ok"}, ModelUse{}, false},
	} {
		k, u, is := OfModel(c.e)
		if is != c.is || is && (k != ModelKey{Agent: "a", Model: "m"} || u != c.u) {
			t.Errorf("%s: %v %+v %v", name, k, u, is)
		}
	}
}

// What the gateway asks a model for by itself, for a person, or about what an agent gets, is counted apart from agents' requests, and by what it is for.
func TestOfTheGatewaysOwnModelRequests(t *testing.T) {
	for _, c := range []struct {
		e    audit.Entry
		want ModelKey
	}{
		{audit.Entry{Action: "knowledge.embed", Actor: "rule:embed"}, ModelKey{Model: "m", For: "knowledge.embed"}},
		{audit.Entry{Action: "claim.judge", Actor: "person:ann"}, ModelKey{Model: "m", For: "claim.judge"}},
		{audit.Entry{Action: "screening.judge", Actor: "gateway", Agent: "a"}, ModelKey{Model: "m", For: "screening.judge"}},
		{audit.Entry{Action: "models/request", Actor: "agent:a", Agent: "a"}, ModelKey{Agent: "a", Model: "m"}},
	} {
		c.e.Kind, c.e.Model, c.e.Decision = audit.Outcome, "m", "ok"
		if k, _, is := OfModel(c.e); !is || k != c.want {
			t.Errorf("%s: %+v", c.e.Action, k)
		}
	}
}

// Models add up over the hours that are asked for, and are a recount of the log.
func TestModelsAreARecount(t *testing.T) {
	l := &memoryLog{}
	want := map[ModelKey]ModelUse{}
	from := noon.Truncate(time.Hour).Add(-23 * time.Hour)
	for i := range 500 {
		e := audit.Entry{Kind: audit.Outcome, Agent: fmt.Sprint("a", i%3), Model: fmt.Sprint("m", i%2), Decision: "ok", Detail: json.RawMessage(`{"tokens":{"input":3,"output":9},"first_ms":2}`)}
		l.add(noon.Add(-time.Duration(500-i)*10*time.Minute), e)
		if k, u, is := OfModel(l.entries[i]); is && !l.entries[i].At.Before(from) {
			want[k] = want[k].Plus(u)
		}
	}
	c := New(l, func() time.Time { return noon }, slog.New(slog.DiscardHandler))
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.Models(noon.Add(-23 * time.Hour)); len(got) != 6 || !maps.Equal(got, want) {
		t.Errorf("%v, a recount gives %v", got, want)
	}
}

// However the log is read, the counters are a recount of it, and what is older than a week is not in them.
func TestCountersAreARecount(t *testing.T) {
	for _, scans := range []int{0, 1, 7} {
		l := &memoryLog{scans: scans}
		for i := range 3000 {
			decision := []string{"ok", "error", "ok"}[i%3]
			l.add(noon.Add(-10*24*time.Hour).Add(time.Duration(i)*5*time.Minute), audit.Entry{Kind: audit.Outcome, Action: "call", Agent: fmt.Sprint("agent-", i%5), Decision: decision})
		}
		at := l.entries[len(l.entries)-1].At
		c := New(l, func() time.Time { return at }, slog.New(slog.DiscardHandler))
		check := func() {
			t.Helper()
			if err := c.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			hours, to := c.Since(c.oldest())
			if got, want := counts(hours), recount(l, c.oldest()); !maps.Equal(got, want) || to != int64(len(l.entries)) {
				t.Errorf("%d at a time: counted %v up to %d, a recount of %d gives %v", scans, got, to, len(l.entries), want)
			}
		}
		check()
		for i := range 50 { // the log goes on, and so does the time
			at = at.Add(time.Hour)
			l.add(at, audit.Entry{Kind: audit.Decision, Action: "call", Agent: "agent-1", Decision: "deny", Code: fmt.Sprint("code-", i%3)})
			check()
		}
	}
}

// An hour keeps so many counters and no more, and loses nothing of the sum.
func TestCountersAreBounded(t *testing.T) {
	l := &memoryLog{}
	for i := range 3 * maxKeys {
		l.add(noon, audit.Entry{Kind: audit.Outcome, Action: "call", Agent: fmt.Sprint("agent-", i), Decision: "ok"})
	}
	c := New(l, func() time.Time { return noon }, slog.New(slog.DiscardHandler))
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	hours, _ := c.Since(noon)
	sum := int64(0)
	for _, n := range hours[0].Counts {
		sum += n
	}
	if len(hours[0].Counts) > maxKeys+10 || sum != 3*maxKeys || hours[0].Counts[Key{Others, Ran, ""}] == 0 {
		t.Errorf("%d counters, %d calls", len(hours[0].Counts), sum)
	}
}

// What ran without anybody being asked is counted by operation: not what people or silence permitted, nor what only observing let through.
func TestUnasked(t *testing.T) {
	for name, c := range map[string]struct {
		e    audit.Entry
		want string
	}{
		"unasked":             {audit.Entry{Kind: audit.Intent, Operation: "mail.search"}, "mail.search"},
		"with a detail":       {audit.Entry{Kind: audit.Intent, Operation: "mail.search", Detail: json.RawMessage(`{"plan_step":"1"}`)}, "mail.search"},
		"approved":            {audit.Entry{Kind: audit.Intent, Operation: "mail.send", Approvers: []string{"ann"}, Detail: json.RawMessage(`{"approval_id":"appr_1"}`)}, ""},
		"silence":             {audit.Entry{Kind: audit.Intent, Operation: "mail.send", Detail: json.RawMessage(`{"approval_id":"appr_1","permitted_by":"silence"}`)}, ""},
		"observed":            {audit.Entry{Kind: audit.Intent, Operation: "mail.send", Shadow: true}, ""},
		"a request to models": {audit.Entry{Kind: audit.Intent, Operation: "model.m", Model: "m"}, ""},
		"an outcome":          {audit.Entry{Kind: audit.Outcome, Operation: "mail.search", Decision: "ok"}, ""},
		"an unknown form":     {audit.Entry{Kind: audit.Intent, Operation: "mail.send", Detail: json.RawMessage(`{"approval_id":7}`)}, ""},
	} {
		if got := Unasked(c.e); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	l := &memoryLog{}
	for i := range maxKeys + 9 {
		l.add(noon, audit.Entry{Kind: audit.Intent, Operation: fmt.Sprint("o", i)})
	}
	c := New(l, func() time.Time { return noon }, slog.New(slog.DiscardHandler))
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	hours, _ := c.Since(noon)
	if _, unasked := Total(hours); len(unasked) != maxKeys+1 || unasked[Others] != 9 || unasked["o3"] != 1 {
		t.Errorf("%d operations, %d others", len(unasked), unasked[Others])
	}
}

// The last hour is a recount of the log by five minutes, whenever it is looked at.
func TestLately(t *testing.T) {
	l := &memoryLog{scans: 7}
	at := noon
	c := New(l, func() time.Time { return at }, slog.New(slog.DiscardHandler))
	for i := range 300 {
		at = at.Add(47 * time.Second)
		l.add(at, audit.Entry{Kind: audit.Outcome, Action: "call", Agent: fmt.Sprint("agent-", i%5), Operation: "mail.search", Decision: "ok"})
		if err := c.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		slots, to := c.Lately()
		from := at.Truncate(Fine).Add(-time.Hour)
		if got, want := counts(slots), recount(l, from); !maps.Equal(got, want) || to != int64(len(l.entries)) || len(slots) != 13 || !slots[0].Start.Equal(from) || len(c.fine) > 13 {
			t.Fatalf("at %s: %v, a recount gives %v; %d slots from %s", at, got, want, len(slots), slots[0].Start)
		}
	}
}

// Whatever of the log is noted, and whenever, the counters are a recount of it; of what is noted in time nothing is read.
func TestNotedEntriesAreARecount(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	reads := 0
	for round := range 9 {
		l := &memoryLog{scans: round % 3 * 400}
		at, told := noon, 0
		c := New(l, func() time.Time { return at }, slog.New(slog.DiscardHandler))
		for range 120 {
			at = at.Add(time.Duration(r.IntN(600)) * time.Second)
			for range r.IntN(r.IntN(100) + 2) {
				e := audit.Entry{Kind: audit.Outcome, Action: "call", Agent: fmt.Sprint("agent-", r.IntN(5)), Decision: []string{"ok", "error"}[r.IntN(2)]}
				if r.IntN(3) == 0 {
					e = audit.Entry{Kind: audit.Intent, Agent: "agent-1", Operation: fmt.Sprint("op-", r.IntN(3)), Detail: json.RawMessage(`{"permitted_by":"silence"}`)}
				}
				l.add(at, e)
			}
			switch n := len(l.entries); {
			case round%3 == 0 || r.IntN(4) > 0: // all that is new
				c.Note(slices.Clone(l.entries[told:]))
			case r.IntN(2) == 0: // some is missing
				for _, e := range l.entries[told:n] {
					if r.IntN(4) > 0 {
						c.Note([]audit.Entry{e})
					}
				}
			}
			told = len(l.entries)
			if r.IntN(3) == 0 {
				c.countNoted()
				hours, to := c.Since(c.oldest())
				part := &memoryLog{entries: l.entries[:to]}
				if got, want := counts(hours), recount(part, c.oldest()); !maps.Equal(got, want) {
					t.Fatalf("of what was noted up to %d: counted %v, a recount gives %v", to, got, want)
				}
			}
			if r.IntN(5) > 0 {
				continue
			}
			if err := c.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			hours, to := c.Since(c.oldest())
			if got, want := counts(hours), recount(l, c.oldest()); !maps.Equal(got, want) || to != int64(len(l.entries)) {
				t.Fatalf("counted %v up to %d, a recount of %d gives %v", got, to, len(l.entries), want)
			}
		}
		if round == 0 {
			reads = l.reads
		}
	}
	if reads > 2+len(answering) {
		t.Errorf("the log was read %d times, although all was noted", reads)
	}
}

// What is noted and not counted is bounded.
func TestNotedIsBounded(t *testing.T) {
	l := &memoryLog{}
	c := New(l, func() time.Time { return noon }, slog.New(slog.DiscardHandler))
	for range 5 * maxNoted {
		l.add(noon, audit.Entry{Kind: audit.Outcome, Decision: "ok", Agent: "a"})
		c.Note(l.entries[len(l.entries)-1:])
		if len(c.noted) > maxNoted {
			t.Fatalf("%d entries are kept", len(c.noted))
		}
	}
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if hours, to := c.Since(noon); to != 5*maxNoted || hours[0].Counts[Key{"a", Ran, ""}] != to {
		t.Errorf("counted %v up to %d", hours[0].Counts, to)
	}
}

// Of entries that were noted, those that were read in the log meanwhile don't count again, and those behind them count without being read.
func TestNotedAndReadCountOnce(t *testing.T) {
	l := &memoryLog{}
	c := New(l, func() time.Time { return noon }, slog.New(slog.DiscardHandler))
	for range 5 {
		l.add(noon, audit.Entry{Kind: audit.Outcome, Decision: "ok", Agent: "a"})
	}
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		l.add(noon, audit.Entry{Kind: audit.Outcome, Decision: "ok", Agent: "a"})
	}
	c.Note(l.entries[2:])
	reads := l.reads
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if hours, to := c.Since(noon); to != 10 || hours[0].Counts[Key{"a", Ran, ""}] != 10 || l.reads != reads {
		t.Errorf("counted %v up to %d, with %d more reads", hours[0].Counts, to, l.reads-reads)
	}
}
