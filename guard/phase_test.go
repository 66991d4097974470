package guard

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var commOperations = []string{"comm.fetch", "comm.search", "comm.query", "comm.read_file", "comm.write_file", "comm.list_files", "comm.exec"}

var unknownPhases = []Phase{"", "None", "none", "null", "nil", "Execution", "EXECUTION", "execution ", " execution", "execution\x00", "exec",
	"executing", "еxecution", "planning,execution", "Planning", "plan", "unknown", "true", "1"}

func newGate(t testing.TB, pure ...string) *PhaseGate {
	t.Helper()
	g, err := NewPhaseGate(pure...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// check asks both questions and holds them to one answer.
func check(t *testing.T, g *PhaseGate, operation string, phase Phase, want bool) {
	t.Helper()
	err := g.Check(operation, phase)
	if got := g.Allowed(operation, phase); got != want || (err == nil) != want {
		t.Errorf("%q in %q: Allowed %v, Check %v, want %v", operation, phase, got, err, want)
	}
	var pe *PhaseError
	if err != nil && (!errors.As(err, &pe) || pe.Operation != operation || pe.Phase != phase || pe.Reason == "") {
		t.Errorf("%q in %q: error %#v is not a whole PhaseError", operation, phase, err)
	}
}

// The tests that sources 000 and 002 list for the phase gate.

func TestPhaseGate_BlockCommInPlanning(t *testing.T) {
	g := newGate(t, "knowledge.search")
	for _, op := range commOperations {
		check(t, g, op, Planning, false)
	}
}

func TestPhaseGate_AllowCommInExecution(t *testing.T) {
	g := newGate(t, "knowledge.search")
	for _, op := range commOperations {
		check(t, g, op, Execution, true)
	}
}

func TestPhaseGate_BlockCommInUnknownPhase(t *testing.T) {
	g := newGate(t, "knowledge.search")
	for _, op := range append([]string{"knowledge.search", "mail.send"}, commOperations...) {
		for _, p := range unknownPhases {
			check(t, g, op, p, false)
		}
	}
}

func TestPhaseGate_AllowNonCommInAllPhases(t *testing.T) {
	g := newGate(t, "knowledge.search", "sallyport.manifest")
	for _, op := range []string{"knowledge.search", "sallyport.manifest"} {
		check(t, g, op, Planning, true)
		check(t, g, op, Execution, true)
	}
}

func TestPhaseGate_IsAllowedDoesNotThrow(t *testing.T) {
	for _, g := range []*PhaseGate{nil, {}, newGate(t)} {
		for _, op := range []string{"", "comm.fetch", "x", "\xff", strings.Repeat("a", 1<<20)} {
			for _, p := range append([]Phase{Planning}, unknownPhases...) {
				check(t, g, op, p, false)
			}
		}
		check(t, g, "", Execution, false)
		check(t, g, "comm.fetch", Execution, true)
	}
	if err := newGate(t).Check(strings.Repeat("\x1b", 1<<20), Phase(strings.Repeat("\x1b", 1<<20))); len(err.Error()) > 2000 || strings.Contains(err.Error(), "\x1b") {
		t.Error("an error repeats its input without bound or raw")
	}
}

func TestPhaseGate_PhaseValidation(t *testing.T) {
	for _, p := range []Phase{Planning, Execution} {
		if got, err := ParsePhase(string(p)); got != p || err != nil {
			t.Errorf("%q: %q, %v", p, got, err)
		}
	}
	for _, p := range unknownPhases {
		if got, err := ParsePhase(string(p)); got != "" || err == nil {
			t.Errorf("%q was accepted as %q", p, got)
		}
	}
}

// The bypass attempts that they list.

func TestPhaseGate_BypassByRenaming(t *testing.T) {
	g := newGate(t, "knowledge.search")
	for _, op := range []string{"internal_search", "search", "fetch", "_comm.fetch", "Comm.fetch", "COMM.FETCH", "comm_fetch", "comm/fetch", "сomm.fetch",
		"comm\u200b.fetch", " comm.fetch", "comm.fetch ", "comm.", "comm", "knowledge.search ", "knowledge.Search", "knowledge.search\x00", "knowledge.search.comm",
		"knowledge", "knowledge.search2", "knowledge.*"} {
		check(t, g, op, Planning, false)
	}
}

func TestPhaseGate_BypassByWrappingInOtherNamespaces(t *testing.T) {
	g := newGate(t, "knowledge.search")
	for _, op := range []string{"tools.comm.fetch", "knowledge.comm.fetch", "knowledge.search/comm.fetch", "sallyport.comm.exec", "pure.comm_fetch"} {
		check(t, g, op, Planning, false)
	}
	for _, op := range []string{"comm.fetch", "COMM.fetch", "cOmM_fetch", "comm", "comm.", "tools.comm.fetch", "tools/comm/fetch", "tools:comm:fetch",
		"tools.comm", "a.b-comm-c", "knowledge.search/comm.fetch", "", " knowledge.search", "knowledge.search\n", "knowledge,search", "knowledge*", "сomm.fetch",
		"comm\u200b.fetch", strings.Repeat("a", 257), ".a", "-a"} {
		if g, err := NewPhaseGate("knowledge.search", op); err == nil || g != nil {
			t.Errorf("%q was accepted as free of external I/O", op)
		}
	}
	if _, err := NewPhaseGate("communication.status", "telecomm.status"); err != nil {
		t.Error(err)
	}
}

func TestPhaseGate_BypassByMissingPhase(t *testing.T) {
	var p Phase // None
	check(t, newGate(t, "knowledge.search"), "comm.fetch", p, false)
	check(t, newGate(t, "knowledge.search"), "knowledge.search", p, false)
}

// A transition that races with checks never lets a check that was asked about planning pass.
func TestPhaseGate_BypassByRace(t *testing.T) {
	list := []string{"knowledge.search", "docs.outline"}
	g := newGate(t, list...)
	list[0], list[1] = "mail.send", "comm.fetch" // the gate keeps no hold of the caller's list
	var session atomic.Value
	session.Store(Planning)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 2000 {
				session.Store([]Phase{Planning, Execution, ""}[n%3])
				p := session.Load().(Phase)
				if g.Allowed("comm.fetch", p) != (p == Execution) || (g.Check("mail.send", p) == nil) != (p == Execution) ||
					g.Allowed("knowledge.search", p) != (p != "") {
					t.Error("the answer is not that of the phase that was asked about")
					return
				}
			}
		})
	}
	wg.Wait()
}
