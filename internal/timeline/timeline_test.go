package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/session"
)

// knownOperation tells of the operations of these tests: mail brings internal in, web brings untrusted in and is blocked by internal.
func knownOperation(id string) (effect flow.Effect, emits, blockedBy []flow.Label, ok bool) {
	switch id {
	case "mail.search":
		return flow.Read, []flow.Label{"internal"}, nil, true
	case "web.search":
		return flow.Read, []flow.Label{flow.Untrusted}, []flow.Label{"internal", "pii"}, true
	case "slack.post":
		return flow.Write, nil, []flow.Label{"internal", "pii"}, true
	case "docs.think":
		return flow.Read, nil, nil, true
	}
	return "", nil, nil, false
}

// story writes entries in short. Each gets the next index and the next second.
type story []audit.Entry

func (s *story) add(e audit.Entry) {
	e.Index = int64(len(*s))
	e.At = time.Date(2026, 1, 31, 8, 0, len(*s), 0, time.UTC)
	e.Session = "sess_1"
	*s = append(*s, e)
}

func (s *story) open(p session.Phase, labels ...string) {
	d, _ := json.Marshal(map[string]any{"phase": p})
	s.add(audit.Entry{Kind: audit.Change, Action: "session.open", Actor: "host:desk", Decision: "ok", Labels: labels, Detail: d})
}

func (s *story) intent(id, op string) {
	s.add(audit.Entry{Kind: audit.Intent, Action: "call", CallID: id, RequestID: "req_" + id, Operation: op, Decision: "permit"})
}

func (s *story) outcome(id, op, decision string, labels ...string) {
	s.add(audit.Entry{Kind: audit.Outcome, Action: "call", CallID: id, RequestID: "req_" + id, Operation: op, Decision: decision, Labels: labels})
}

func (s *story) ran(id, op string, labels ...string) {
	s.intent(id, op)
	s.outcome(id, op, "ok", labels...)
}

func (s *story) judged(id, op, decision, stage, code, reason string) {
	s.add(audit.Entry{Kind: audit.Decision, Action: "call", CallID: id, RequestID: "req_" + id, Operation: op, Decision: decision, Stage: stage, Code: code, Reason: reason})
}

func (s *story) asks(id, op, approval, reason string) {
	d, _ := json.Marshal(map[string]any{"approval_id": approval})
	s.add(audit.Entry{Kind: audit.Decision, Action: "approval.ask", CallID: id, RequestID: "req_" + id, Operation: op, Decision: "ask", Stage: "risk", Reason: reason, Detail: d})
	s.judged(id, op, "ask", "risk", "approval.required", reason)
}

func (s *story) answers(approval, word, by string) {
	d, _ := json.Marshal(map[string]any{"approval_id": approval})
	s.add(audit.Entry{Kind: audit.Change, Action: "approval." + word, Actor: by, Operation: "slack.post", Decision: "ok", Detail: d})
}

func (s *story) change(action, by, reason string, detail map[string]any, labels ...string) {
	d, _ := json.Marshal(detail)
	s.add(audit.Entry{Kind: audit.Change, Action: action, Actor: by, Reason: reason, Decision: "ok", Detail: d, Labels: labels})
}

// history is the whole of the story.
func (s story) history(held ...flow.Held) History {
	return History{Session: session.Session{ID: "sess_1", State: session.Open, Phase: session.Execution, Labels: held}, Entries: s, Whole: true, Newest: true, Most: mostMoments, Operation: knownOperation}
}

// marks, bands, ties and phases are a timeline in words.
func marks(t Line) (words []string) {
	for _, m := range t.Moments {
		words = append(words, fmt.Sprintf("%s %s %s", m.Operation, m.Lane, m.Fate))
	}
	return words
}

func bands(t Line) (words []string) {
	for _, b := range t.Bands {
		words = append(words, fmt.Sprintf("%s %d/%d-%d %s", b.Label, b.From, b.Since, b.To, b.Operation))
	}
	return words
}

func ties(t Line) (words []string) {
	for _, x := range t.Ties {
		words = append(words, fmt.Sprintf("%s %d>%d %s", x.Label, x.From, x.To, x.Fate))
	}
	return words
}

func phases(t Line) (words []string) {
	for _, p := range t.Phases {
		words = append(words, fmt.Sprintf("%s %d-%d", p.Phase, p.From, p.To))
	}
	return words
}

func TestTimeline(t *testing.T) {
	contaminated := "web.search is blocked for the rest of this session: it holds internal from mail.search"
	type want struct{ marks, bands, ties, phases []string }
	for name, c := range map[string]struct {
		tell func(*story)
		more func(*History)
		want want
	}{
		"nothing": {tell: func(*story) {}},
		"a label stops a sink": {
			tell: func(s *story) {
				s.open(session.Planning)
				s.change("plan.submit", "agent:a", "", nil)
				(*s)[1].Kind, (*s)[1].Decision = audit.Decision, "permit"
				s.ran("c1", "web.search", "untrusted")
				s.ran("c2", "mail.search", "internal")
				s.judged("c3", "web.search", "deny", "flow", "flow.contaminated", contaminated)
				s.ran("c4", "docs.think")
			},
			want: want{
				marks:  []string{"session.open people done", "plan.submit plan permitted", "web.search sink permitted", "mail.search source permitted", "web.search sink refused", "docs.think other permitted"},
				bands:  []string{"untrusted 2/2-6 web.search", "internal 3/3-6 mail.search"},
				ties:   []string{"internal 3>4 refused"},
				phases: []string{"planning 0-1", "execution 1-6"},
			},
		},
		"a label from the start, released, brought again": {
			tell: func(s *story) {
				s.open(session.Execution, "pii")
				s.judged("c1", "slack.post", "deny", "flow", "flow.contaminated", "it holds pii")
				s.change("session.release", "person:ann", "looked at", nil, "pii")
				s.ran("c2", "slack.post")
				s.ran("c3", "mail.search", "internal")
				s.judged("c4", "slack.post", "deny", "flow", "flow.contaminated", "blocked") // the words name no label: the rule does
			},
			want: want{
				marks:  []string{"session.open people done", "slack.post write refused", "session.release people done", "slack.post write permitted", "mail.search source permitted", "slack.post write refused"},
				bands:  []string{"pii 0/0-2 session.open", "internal 4/4-6 mail.search"},
				ties:   []string{"pii 0>1 refused", "internal 4>5 refused"},
				phases: []string{"execution 0-6"},
			},
		},
		"asked, approved, run by the same call": {
			tell: func(s *story) {
				s.open(session.Execution)
				s.ran("c1", "web.search", "untrusted")
				s.asks("c2", "slack.post", "appr_1", "The session holds untrusted.")
				s.answers("appr_1", "approve", "person:ann")
				s.ran("c2", "slack.post")
			},
			want: want{
				marks:  []string{"session.open people done", "web.search sink permitted", "slack.post write permitted", "approval.approve people done"},
				bands:  []string{"untrusted 1/1-4 web.search"},
				ties:   []string{"untrusted 1>2 permitted"},
				phases: []string{"execution 0-4"},
			},
		},
		"waiting, rejected and by the entries alone": {
			tell: func(s *story) {
				s.open(session.Execution)
				s.asks("c1", "slack.post", "appr_1", "a write")
				s.asks("c2", "slack.post", "appr_2", "a write")
				s.answers("appr_2", "defer", "person:ann")
				s.asks("c3", "slack.post", "appr_3", "a write")
				s.answers("appr_3", "reject", "person:ann")
			},
			want: want{
				marks: []string{"session.open people done", "slack.post write waiting", "slack.post write waiting", "approval.defer people done", "slack.post write asked",
					"approval.reject people done"},
				phases: []string{"execution 0-6"},
			},
		},
		"asked for the session's labels, in the question's words": {
			tell: func(s *story) {
				s.open(session.Execution)
				s.ran("c1", "web.search", "untrusted")
				s.ran("c2", "mail.search", "internal")
				s.asks("c3", "slack.post", "appr_1", "It is of risk HIGH, so a person must decide.")
				s.asks("c4", "slack.post", "appr_2", "It is of risk HIGH, so a person must decide.")
				s.asks("c5", "slack.post", "appr_3", "It is of risk HIGH, so a person must decide.")
			},
			more: func(in *History) {
				in.Questions = map[string]approval.Approval{
					"appr_1": {State: approval.Pending, Reasons: []approval.Reason{{Stage: "risk", Code: "risk.untrusted"}}},
					"appr_2": {State: approval.Deferred, Reasons: []approval.Reason{{Stage: "risk", Code: "risk.contaminated"}}},
					"appr_3": {State: approval.Rejected, Reasons: []approval.Reason{{Stage: "risk", Code: "risk.action"}}},
				}
			},
			want: want{
				marks: []string{"session.open people done", "web.search sink permitted", "mail.search source permitted", "slack.post write waiting", "slack.post write waiting",
					"slack.post write asked"},
				bands:  []string{"untrusted 1/1-6 web.search", "internal 2/2-6 mail.search"},
				ties:   []string{"untrusted 1>3 waiting", "internal 2>4 waiting"},
				phases: []string{"execution 0-6"},
			},
		},
		"a question that is over though no entry says so": {
			tell: func(s *story) { s.open(session.Execution); s.asks("c1", "slack.post", "appr_1", "a write") },
			more: func(in *History) { in.Questions = map[string]approval.Approval{"appr_1": {State: approval.Expired}} },
			want: want{marks: []string{"session.open people done", "slack.post write asked"}, phases: []string{"execution 0-2"}},
		},
		"every end of a call": {
			tell: func(s *story) {
				s.open(session.Execution)
				s.intent("c1", "docs.think")
				s.intent("c2", "docs.think")
				s.outcome("c2", "docs.think", "error")
				s.intent("c3", "docs.think")
				s.outcome("c3", "docs.think", "unknown")
				s.intent("c4", "docs.think")
				s.outcome("c4", "docs.think", "discarded")
				s.intent("c5", "docs.think")
				s.outcome("c5", "docs.think", "something new")
				s.judged("c6", "gone.tool", "deny", "resolve", "tool.unknown", "no such tool")
				s.judged("c7", "docs.think", "perhaps", "", "", "")
			},
			want: want{
				marks: []string{"session.open people done", "docs.think other underway", "docs.think other failed", "docs.think other unknown", "docs.think other discarded",
					"docs.think other unknown", "gone.tool other refused", "docs.think other unknown"},
				phases: []string{"execution 0-8"},
			},
		},
		"calls at once: the label is held from where it came": {
			tell: func(s *story) {
				s.open(session.Execution)
				s.intent("c1", "mail.search")
				s.ran("c2", "web.search", "untrusted")
				s.outcome("c1", "mail.search", "ok", "internal")
				s.judged("c3", "web.search", "deny", "flow", "flow.contaminated", contaminated)
			},
			want: want{
				marks:  []string{"session.open people done", "mail.search source permitted", "web.search sink permitted", "web.search sink refused"},
				bands:  []string{"untrusted 2/2-4 web.search", "internal 1/2-4 mail.search"},
				ties:   []string{"internal 1>3 refused"},
				phases: []string{"execution 0-4"},
			},
		},
		"the arguments of a refused call carried it": {
			tell: func(s *story) {
				s.open(session.Execution)
				s.add(audit.Entry{Kind: audit.Change, Action: "session.taint", Actor: "agent:a", RequestID: "req_c1", Decision: "ok", Labels: []string{"internal"}})
				s.judged("c1", "slack.post", "deny", "flow", "flow.contaminated", "it holds internal")
			},
			want: want{
				marks:  []string{"session.open people done", "slack.post write refused"},
				bands:  []string{"internal 1/1-2 "},
				ties:   []string{"internal 1>1 refused"},
				phases: []string{"execution 0-2"},
			},
		},
		"only observed": {
			tell: func(s *story) {
				s.open(session.Execution)
				s.ran("c1", "mail.search", "internal")
				s.intent("c2", "web.search")
				e := &(*s)[len(*s)-1]
				e.Shadow, e.Stage, e.Code, e.Reason = true, "flow", "flow.contaminated", contaminated
				s.outcome("c2", "web.search", "ok", "untrusted")
			},
			want: want{
				marks:  []string{"session.open people done", "mail.search source permitted", "web.search sink permitted"},
				bands:  []string{"internal 1/1-3 mail.search", "untrusted 2/2-3 web.search"},
				ties:   []string{"internal 1>2 permitted"},
				phases: []string{"execution 0-3"},
			},
		},
		"a call that waits is refused for what came meanwhile": {
			tell: func(s *story) {
				s.open(session.Execution)
				s.asks("c1", "slack.post", "appr_1", "a write")
				s.ran("c2", "mail.search", "internal")
				s.judged("c1", "slack.post", "deny", "flow", "flow.contaminated", "holds internal")
			},
			want: want{
				marks:  []string{"session.open people done", "slack.post write refused", "mail.search source permitted"},
				bands:  []string{"internal 2/2-3 mail.search"},
				ties:   []string{"internal 2>1 refused"},
				phases: []string{"execution 0-3"},
			},
		},
		"an answer that was not taken": {
			tell: func(s *story) {
				s.open(session.Execution)
				s.asks("c1", "slack.post", "appr_1", "a write")
				s.answers("appr_1", "approve", "person:mallory")
				e := &(*s)[len(*s)-1]
				e.Kind, e.Decision, e.Code = audit.Decision, "deny", "role.missing"
			},
			want: want{
				marks:  []string{"session.open people done", "slack.post write waiting", "approval.approve people refused"},
				phases: []string{"execution 0-3"},
			},
		},
		"phases by people": {
			tell: func(s *story) {
				s.open(session.Planning)
				s.change("session.phase", "person:ann", "go", map[string]any{"phase": "execution"})
				s.change("session.phase", "person:ann", "again", map[string]any{"phase": "execution"})
				s.change("session.phase", "person:ann", "back", map[string]any{"phase": "planning"})
				s.change("plan.approve", "person:ann", "", nil)
				s.change("session.close", "person:ann", "", nil)
			},
			want: want{
				marks: []string{"session.open people done", "session.phase people done", "session.phase people done", "session.phase people done", "plan.approve people done",
					"session.close people done"},
				phases: []string{"planning 0-1", "execution 1-3", "planning 3-4", "execution 4-6"},
			},
		},
		"the middle of a session": {
			tell: func(s *story) {
				s.ran("call_5", "docs.think")
				s.judged("call_6", "web.search", "deny", "flow", "flow.contaminated", contaminated)
				s.ran("call_7", "mail.search", "internal") // names it, though it is held already
				s.change("session.release", "person:ann", "ok", nil, "pii")
				s.change("session.phase", "person:ann", "back", map[string]any{"phase": "planning"})
				s.ran("call_8", "web.search", "untrusted")
			},
			more: func(in *History) {
				in.Whole = false
				in.Session.Labels = []flow.Held{{Label: "internal", Operation: "mail.search", CallID: "call_2"}, {Label: "untrusted", Operation: "web.search", CallID: "call_8"}}
			},
			want: want{
				marks: []string{"docs.think other permitted", "web.search sink refused", "mail.search source permitted", "session.release people done", "session.phase people done",
					"web.search sink permitted"},
				bands:  []string{"pii -1/-1-3 ", "internal -1/-1-6 mail.search", "untrusted 5/5-6 web.search"},
				ties:   []string{"internal -1>1 refused"},
				phases: []string{"execution 0-4", "planning 4-6"},
			},
		},
		"a label that no entry tells of": {
			tell: func(s *story) { s.open(session.Execution) },
			more: func(in *History) { in.Session.Labels = []flow.Held{{Label: "secret", CallID: "x"}} },
			want: want{marks: []string{"session.open people done"}, bands: []string{"secret -1/-1-1 "}, phases: []string{"execution 0-1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s story
			c.tell(&s)
			in := s.history()
			if c.more != nil {
				c.more(&in)
			}
			got := Of(in)
			for _, x := range []struct {
				what      string
				got, want []string
			}{{"marks", marks(got), c.want.marks}, {"bands", bands(got), c.want.bands}, {"ties", ties(got), c.want.ties}, {"phases", phases(got), c.want.phases}} {
				if !slices.Equal(x.got, x.want) {
					t.Errorf("%s\n got %q\nwant %q", x.what, x.got, x.want)
				}
			}
		})
	}
}

// TestTimelineTells: the words beside the marks.
func TestTimelineTells(t *testing.T) {
	var s story
	s.open(session.Execution)
	s.ran("c1", "mail.search", "internal")
	s.asks("c2", "slack.post", "appr_1", "The session holds internal.")
	s.answers("appr_1", "approve", "person:ann")
	s.intent("c2", "slack.post")
	s[len(s)-1].Approvers = []string{"ann", "bob"}
	s.outcome("c2", "slack.post", "ok")
	s.judged("c3", "web.search", "deny", "flow", "flow.contaminated", "holds internal")
	got := Of(s.history())
	m := got.Moments[2]
	if m.First != 3 || m.Last != 7 || m.Approval != "appr_1" || !slices.Equal(m.Answers, []string{"approved by ann", "approved by bob"}) || m.Reason != "" {
		t.Errorf("the asked call: %+v", m)
	}
	if m := got.Moments[4]; m.Code != "flow.contaminated" || m.Reason != "holds internal" || m.Verdict() != "refused" || m.Number() != 5 ||
		len(m.Because) != 1 || m.Because[0].Operation != "mail.search" {
		t.Errorf("the refused call: %+v", m)
	}
	if m := got.Moments[1]; !slices.Equal(m.Brings, []string{"internal"}) {
		t.Errorf("the source: %+v", m)
	}
}

// TestTimelineDrill: a question that tests people can't be told from another, neither while it waits nor by what stands beside it.
func TestTimelineDrill(t *testing.T) {
	tell := func(action string) Line {
		var s story
		s.open(session.Execution)
		d, _ := json.Marshal(map[string]any{"approval_id": "appr_1"})
		e := audit.Entry{Kind: audit.Decision, Action: "approval.ask", Operation: "slack.post", Decision: "ask", Stage: "risk", Code: "approval.required", Reason: "It is risky.", Risk: "HIGH", Detail: d}
		if action == "approval.drill" {
			e.Action, e.Stage, e.Reason, e.Actor = action, "approve", "", "rule:drill"
		}
		s.add(e)
		in := s.history()
		in.Questions = map[string]approval.Approval{"appr_1": {State: approval.Pending, Reasons: []approval.Reason{{Stage: "risk", Code: "approval.required", Text: "It is risky."}}}}
		return Of(in)
	}
	real, drill := tell("approval.ask"), tell("approval.drill")
	if !reflect.DeepEqual(real, drill) || drill.Moments[1].Fate != FateWaiting {
		t.Errorf("a drill shows:\n%+v\n%+v", real.Moments[1], drill.Moments[1])
	}
}

// TestTimelineNames: a label is found in a reason as a word only.
func TestTimelineNames(t *testing.T) {
	for _, c := range []struct {
		text, word string
		want       bool
	}{
		{"it holds internal", "internal", true}, {"it holds internal.", "internal", true}, {`"internal", pii`, "pii", true}, {"internal", "internal", true},
		{"internals", "internal", false}, {"mail.internal_search", "internal", false}, {"x-internal", "internal", false}, {"éinternal", "internal", false},
		{"pii.search and pii", "pii", true}, {"pii.search", "pii", false}, {"", "pii", false}, {"x", "", false},
	} {
		if got := mentions(c.text, c.word); got != c.want {
			t.Errorf("names(%q, %q) = %v", c.text, c.word, got)
		}
	}
}

// TestTimelineCut: what is shown is bounded, and what it rests on is not lost.
func TestTimelineCut(t *testing.T) {
	var s story
	s.open(session.Planning)
	s.ran("call_0", "mail.search", "internal")
	s.change("session.phase", "person:ann", "go", map[string]any{"phase": "execution"})
	for i := range mostMoments {
		s.judged(fmt.Sprintf("call_1%04d", i), "web.search", "deny", "flow", "flow.contaminated", "holds internal")
	}
	got := Of(s.history())
	if got.Width != mostMoments || len(got.Moments) != mostMoments || !got.Earlier || got.Moments[0].Column != 0 || len(got.Ties) != mostMoments || got.Ties[0].From != -1 {
		t.Fatalf("width %d, %d moments, earlier %v, %+v", got.Width, len(got.Moments), got.Earlier, got.Ties[0])
	}
	if w := bands(got); !slices.Equal(w, []string{fmt.Sprintf("internal -1/-1-%d mail.search", mostMoments)}) {
		t.Errorf("bands %q", w)
	}
	if w := phases(got); !slices.Equal(w, []string{fmt.Sprintf("execution 0-%d", mostMoments)}) {
		t.Errorf("phases %q", w)
	}
}

const mostMoments = 240

const hostileText = "<img src=x onerror=alert(1)>\"'</title></desc></svg><script>alert(2)</script>\u202egpj.exe\x1b[31m\x00\xff{{.}}\u2028]]>"

// checkTimeline is what holds for every timeline.
func checkTimeline(t *testing.T, got Line) {
	t.Helper()
	if got.Width != len(got.Moments) || got.Width > mostMoments {
		t.Fatalf("width %d with %d moments", got.Width, len(got.Moments))
	}
	for i, m := range got.Moments {
		if m.Column != i || m.First > m.Last {
			t.Fatalf("moment %d: %+v", i, m)
		}
	}
	for _, b := range got.Bands {
		if b.From < -1 || b.From > b.Since || b.Since > max(b.To, 0) || b.To > got.Width || b.From >= max(got.Width, 1) {
			t.Fatalf("band %+v of %d", b, got.Width)
		}
	}
	for _, x := range got.Ties {
		if x.From < -1 || x.From >= got.Width || x.To < 0 || x.To >= got.Width { // a call that waited can be stopped by what came later
			t.Fatalf("tie %+v of %d", x, got.Width)
		}
	}
	at := 0
	for _, p := range got.Phases {
		if p.From != at || p.To <= p.From {
			t.Fatalf("phases %+v of %d", got.Phases, got.Width)
		}
		at = p.To
	}
	if at != got.Width {
		t.Fatalf("phases end at %d of %d", at, got.Width)
	}
}

// randomEntries is a session as nobody would have it.
func randomEntries(r *rand.Rand, n int) (entries []audit.Entry) {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	for i := range n {
		e := audit.Entry{
			Index: int64(i), At: time.Unix(int64(i), 0), Kind: audit.Kind(pick("intent", "outcome", "decision", "change", "x")),
			Action: pick("call", "call", "call", "approval.ask", "approval.drill", "approval.approve", "approval.reject", "approval.x", "session.open", "session.phase", "session.release",
				"session.close", "session.taint", "plan.submit", "plan.approve", "declare", "resources/read", hostileText, ""),
			CallID: pick("", "c1", "c2", "c3", "c4", fmt.Sprint("c", i)), RequestID: pick("", "r1", "r2", fmt.Sprint("r", i)),
			Operation: pick("", "mail.search", "web.search", "slack.post", "docs.think", hostileText), Actor: pick("", "person:ann", hostileText),
			Decision: pick("permit", "ask", "deny", "ok", "error", "unknown", "discarded", ""), Stage: pick("", "flow", "risk", hostileText), Code: pick("", "flow.contaminated"),
			Reason: pick("", "holds internal", "pii, untrusted", hostileText), Shadow: r.IntN(5) == 0,
			Detail: json.RawMessage(pick("", `{"approval_id":"a1"}`, `{"phase":"planning"}`, `{"phase":"execution"}`, `{"phase":7}`, "{", `[1]`)),
		}
		for range r.IntN(3) {
			e.Labels = append(e.Labels, pick("internal", "pii", "untrusted", "", hostileText))
		}
		entries = append(entries, e)
	}
	return entries
}

func FuzzTimeline(f *testing.F) {
	for i := range uint64(8) {
		f.Add(i, uint16(i*40), i%2 == 0, i%3 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, whole, newest bool) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := History{
			Session: session.Session{Phase: session.Planning, Labels: []flow.Held{{Label: "internal", CallID: "c2"}, {Label: hostileText}}},
			Entries: randomEntries(r, int(n)%700), Whole: whole, Newest: newest, Most: mostMoments, Operation: knownOperation,
		}
		if seed%2 == 0 {
			in.Questions = map[string]approval.Approval{"a1": {State: approval.States[seed%7], Reasons: []approval.Reason{{Code: "risk.contaminated"}, {Stage: "flow", Text: "untrusted"}}}}
		}
		before := slices.Clone(in.Entries)
		got := Of(in)
		checkTimeline(t, got)
		if !reflect.DeepEqual(before, in.Entries) {
			t.Error("the entries were changed")
		}
		if newest {
			for _, h := range in.Session.Labels { // what the session holds is shown to the end
				if !slices.ContainsFunc(got.Bands, func(b Band) bool { return b.Label == string(h.Label) && b.To == got.Width }) {
					t.Errorf("the label %.20q is not held at the end", h.Label)
				}
			}
		}
		if again := Of(in); !reflect.DeepEqual(got, again) {
			t.Error("not a function of what it is told")
		}
		var b bytes.Buffer
		for _, m := range got.Moments {
			fmt.Fprint(&b, m.Title(), m.Verdict())
		}
	})
}

// A plan that a person was asked about waits until it is answered, replaced or its session is closed; then it says what became of it.
func TestFateOfPlans(t *testing.T) {
	submit := func(decision string) audit.Entry {
		return audit.Entry{Kind: audit.Decision, Action: "plan.submit", Actor: "agent:a", Decision: decision}
	}
	act := func(action string) audit.Entry {
		return audit.Entry{Kind: audit.Change, Action: action, Actor: "person:bob", Decision: "ok"}
	}
	for name, c := range map[string]struct {
		entries []audit.Entry
		older   bool // the entries don't end with the session's last
		want    string
	}{
		"waits":         {[]audit.Entry{submit("ask")}, false, "waits for a person"},
		"not known":     {[]audit.Entry{submit("ask")}, true, "asked, did not run"},
		"approved":      {[]audit.Entry{submit("ask"), act("plan.approve")}, false, "permitted, approved by bob"},
		"rejected":      {[]audit.Entry{submit("ask"), act("plan.reject")}, false, "refused, rejected by bob"},
		"replaced":      {[]audit.Entry{submit("ask"), submit("permit")}, false, "asked, did not run; permitted"},
		"replaced, too": {[]audit.Entry{submit("ask"), submit("ask")}, false, "asked, did not run; waits for a person"},
		"not replaced":  {[]audit.Entry{submit("ask"), submit("deny")}, false, "waits for a person; refused"},
		"closed":        {[]audit.Entry{submit("ask"), act("session.close")}, false, "asked, did not run"},
		"by a rule":     {[]audit.Entry{submit("permit")}, false, "permitted"},
	} {
		var s story
		s.open(session.Planning)
		for _, e := range c.entries {
			s.add(e)
		}
		var fates []string
		for _, m := range Of(History{Entries: s, Whole: true, Newest: !c.older}).Moments {
			if m.Lane == LanePlans {
				fates = append(fates, strings.Join(append([]string{m.Verdict()}, m.Answers...), ", "))
			}
		}
		if got := strings.Join(fates, "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
