package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/comm"
)

// CodeProblem and CodeRemedy are the sentences for an argument of a read that holds code; the remedy takes its name.
const (
	CodeProblem = "it holds code, and no shape or class says what it may say: a call with it counts as a write of level 2, whatever effect says"
	CodeRemedy  = "write args: {%[1]s: code} and code: {%[1]s: {class: select}}, or {shape: …} with an expression for all that it may say; comm.query is better for a database: it runs nothing but reads"
)

// unruled finds arguments of an entry's read that hold code and have no rule.
func (l *labelLint) unruled() {
	if l.server == "comm" || l.p.Level != 0 {
		return
	}
	op := l.c.Classifier(nil)(l.server, l.tool).Reading(l.server, l.tool)
	for _, arg := range op.Unruled(slices.Collect(maps.Keys(l.own.Args))) {
		l.add(agent.P1, "args."+arg, fmt.Sprintf(CodeRemedy, arg), CodeProblem)
	}
}

// rootProblems finds permissions with a root for operations without an argument to compare with it: all their calls are refused.
func (c *Config) rootProblems(set agent.Set) []Problem {
	var all []Problem
	for _, d := range set.All() {
		for i, permission := range d.Permissions.Read {
			pattern, _, rooted := strings.Cut(permission, " under ")
			server, tool, _ := strings.Cut(pattern, ".")
			if !rooted || server == "comm" && comm.Places[tool] != nil || c.places(server, tool) {
				continue
			}
			all = append(all, d.Problem(fmt.Sprintf("permissions.read[%d]", i), agent.P1,
				"no argument of "+pattern+" has the role path, repository or table, so every call is refused",
				"give the argument that says where it reads its role, as operations."+pattern+": {args: {path: path}}"))
		}
	}
	return all
}

// places reports whether an operation, or with * any of the server's that has an entry, has an argument that says where it reads.
func (c *Config) places(server, tool string) bool {
	rooted := func(tool string) bool {
		_, roles, _ := c.judged(server, tool)
		for _, role := range roles {
			if agent.Rooted(role) {
				return true
			}
		}
		return false
	}
	if rooted(tool) || tool != "*" {
		return rooted(tool)
	}
	for id := range c.Operations {
		if of, name, _ := strings.Cut(id, "."); of == server && rooted(name) {
			return true
		}
	}
	for name := range c.known[server].operations {
		if rooted(name) {
			return true
		}
	}
	return false
}
