package agent

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Violation is one of the twelve that the deployment check looks for (AG-12), with its impact and its resolution.
type Violation struct {
	Code       string
	Severity   Severity
	Title      string
	Impact     string
	Resolution string
	// Elsewhere says that no file shows whether it is so, or not in every case: only the running gateway can.
	Elsewhere bool
}

// Violations are all of them, by code.
var Violations = []Violation{
	{"A-01", P0, "Agent has write permissions to operational state", "Could mutate incidents, policies, or learning data", "Remove all write permissions, enforce read-only", false},
	{"A-02", P0, "Agent executes autonomously without human approval", "Uncontrolled automation, safety risk", "Require human approval for all actions", false},
	{"A-03", P0, "Agent is not kill-switchable", "Cannot disable in emergency", "Implement kill switch check", true},
	{"A-04", P0, "Agent returns unstructured output", "Cannot validate, audit, or enforce contracts", "Define an output schema, validate output", false},
	{"A-05", P0, "RAG system allows document mutation", "Audit trail broken, replay impossible", "Enforce append-only, use soft delete", true},
	{"A-06", P0, "Agent uses unpinned model version", "Non-deterministic behavior, audit trail broken", "Pin model version explicitly", false},
	{"A-07", P0, "Agent creates feedback loop", "Self-reinforcing errors, quality degradation", "Exclude agent outputs from training data", true},
	{"A-08", P1, "Agent missing declaration file", "Capabilities unclear, audit difficult", "Create declaration file", false},
	{"A-09", P1, "Agent exceeds time limits", "Resource exhaustion, poor UX", "Optimize or increase limit with approval", true},
	{"A-10", P1, "Agent missing citations", "Cannot verify facts, trust degraded", "Add citation tracking", false},
	{"A-11", P2, "Agent declaration not versioned", "Change tracking difficult", "Add semantic versioning", false},
	{"A-12", P2, "Agent output schema not versioned", "Breaking changes undetected", "Add schema versioning", false},
}

// ViolationOf finds the violation with a code.
func ViolationOf(code string) (Violation, bool) {
	i := slices.IndexFunc(Violations, func(v Violation) bool { return v.Code == code })
	if i < 0 {
		return Violation{}, false
	}
	return Violations[i], true
}

// Elsewhere are the codes of the violations that no file shows for certain.
func Elsewhere() (codes []string) {
	for _, v := range Violations {
		if v.Elsewhere {
			codes = append(codes, v.Code)
		}
	}
	return codes
}

// Deployment says which problems block a deployment on that day: errors and P0 always, and a violation of P1 without a mitigation that still holds. What
// blocks above a scale, AtScale says. It also names files that are not called as their agents.
func Deployment(set Set, problems []Problem, now time.Time) []Problem {
	byFile := map[string]*Declaration{}
	for _, d := range set.all {
		byFile[d.File] = d
	}
	all := slices.Clone(problems)
	for i := range all {
		p := &all[i]
		p.Stops = p.Severity.Blocks()
		if v, ok := ViolationOf(p.Code); ok {
			p.Impact, p.Resolution = v.Impact, v.Resolution
		}
		d := byFile[p.File]
		switch {
		case p.Code == "" || d == nil:
		case p.Severity == P1:
			p.Stops = true
			for _, m := range d.Mitigations {
				if m.Code == p.Code {
					p.Mitigation = m.Owner + " until " + m.Until + ": " + m.Plan
					p.Stops = p.Stops && !m.Covers(p.Code, now)
				}
			}
		case p.Severity == P2:
			p.scale, p.scaled = d.Scale, true
		}
	}
	for _, d := range set.all {
		name := filepath.Base(d.File)
		if d.File != "" && d.AgentID != "" && strings.TrimSuffix(name, filepath.Ext(name)) != d.AgentID {
			all = append(all, Problem{File: d.File, Line: 1, Column: 1, Field: "agentId", Severity: P2, Problem: "the file is not called as the agent", Remedy: "call it " + d.AgentID + ".yaml"})
		}
	}
	return all
}

// AtScale is the problem as it counts for so many sessions a day: a violation of P2 blocks above the declaration's scale.
func (p Problem) AtScale(sessions int) Problem {
	p.Stops = p.Stops || p.scaled && sessions > p.scale
	return p
}

// Found are the problems of each declaration of the set as the deployment check sees them on that day, by agent.
func Found(set Set, now time.Time) map[string][]Problem {
	declared := map[string][]Declaration{}
	for _, d := range set.all {
		declared[d.AgentID] = []Declaration{*d}
	}
	between := dependencies(set, declared)
	found := map[string][]Problem{}
	for _, d := range set.all {
		problems := Lint(d)
		for _, p := range between {
			if p.File == d.File {
				problems = append(problems, p)
			}
		}
		found[d.AgentID] = Deployment(NewSet(*d), problems, now)
	}
	return found
}
