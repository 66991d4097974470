package guard

import (
	"errors"
	"fmt"
	"strings"
)

// Phase is the phase of a session. It is passed by value into every decision, so a transition that races with a check
// can't change the phase the check was asked about (PH-5).
type Phase string

const (
	// Planning is pure computation: nothing reaches outside.
	Planning Phase = "planning"
	// Execution allows external operations, under all other rules.
	Execution Phase = "execution"
)

// ParsePhase accepts the two exact words and nothing else (PH-2).
func ParsePhase(s string) (Phase, error) {
	switch p := Phase(s); p {
	case Planning, Execution:
		return p, nil
	}
	return "", fmt.Errorf("phase %q is not known: use %q or %q", clip(s), Planning, Execution)
}

// PhaseError is a refusal of the phase gate.
type PhaseError struct {
	Operation string
	Phase     Phase
	Reason    string // a sentence, with the way out
}

func (e *PhaseError) Error() string {
	return fmt.Sprintf("operation %q is blocked in phase %q: %s", clip(e.Operation), clip(string(e.Phase)), e.Reason)
}

// PhaseGate decides which operations may run in which phase. It holds an allow-list of the operations that do no external
// I/O; everything else counts as external, whatever its name (PH-4). It is immutable and safe for concurrent use. The zero
// gate and the nil gate know no pure operation.
type PhaseGate struct {
	pure map[string]struct{}
}

// NewPhaseGate returns a gate for which exactly the named operations are free of external I/O. Names are compared byte for
// byte. A name with the word "comm" in it (comm.fetch, COMM_fetch, tools.comm.fetch) is an error: those operations are
// external by definition, and no wrapping makes them pure.
func NewPhaseGate(pure ...string) (*PhaseGate, error) {
	g := &PhaseGate{pure: make(map[string]struct{}, len(pure))}
	for _, name := range pure {
		if err := checkName("operation", name); err != nil {
			return nil, err
		}
		for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return !letterOrDigit(byte(r) | 0x20) }) {
			if strings.EqualFold(word, "comm") {
				return nil, fmt.Errorf("operation %q can't be declared free of external I/O: comm.* is reserved for external operations; take it off the list", name)
			}
		}
		g.pure[name] = struct{}{}
	}
	return g, nil
}

// Check returns nil if operation may run in phase, else a *PhaseError: a pure operation runs in both phases, any other only
// in execution, and in an unknown phase nothing runs (PH-1 to PH-3).
func (g *PhaseGate) Check(operation string, phase Phase) error {
	if reason := g.judge(operation, phase); reason != "" {
		return &PhaseError{Operation: operation, Phase: phase, Reason: reason}
	}
	return nil
}

// Allowed gives Check's answer without an error (PH-6).
func (g *PhaseGate) Allowed(operation string, phase Phase) bool {
	return g.judge(operation, phase) == ""
}

func (g *PhaseGate) judge(operation string, phase Phase) string {
	if operation == "" {
		return "the operation has no name: name it"
	}
	switch phase {
	case Execution:
		return ""
	case Planning:
		if g != nil {
			if _, ok := g.pure[operation]; ok {
				return ""
			}
		}
		return "it counts as external I/O, which runs in the execution phase only: have the plan approved first"
	}
	return `the phase is not known, and nothing runs in an unknown phase: use "planning" or "execution"`
}

// checkName holds names of operations, sessions, calls and labels to letters, digits and "._:/@-", so that they can stand
// in headers and attribution lines as they are.
func checkName(field, s string) error {
	if s == "" {
		return errors.New(field + " is empty: it is required")
	}
	if len(s) > maxName {
		return fmt.Errorf("%s is %d bytes long: the limit is %d", field, len(s), maxName)
	}
	for i := range len(s) {
		c := s[i]
		if !letterOrDigit(c) && !('A' <= c && c <= 'Z') && (i == 0 || strings.IndexByte("._:/@-", c) < 0) {
			return fmt.Errorf("%s %q has a character that is not allowed at byte %d: use letters, digits and ._:/@-, beginning with a letter or digit", field, s, i)
		}
	}
	return nil
}

const maxName = 256

// clip bounds what an error repeats of its input.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
