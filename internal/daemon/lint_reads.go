package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/internal/agent"
)

// codeProblem is what is said of arguments of a read that hold code.
const (
	codeProblem = "it holds code, and no shape or class says what it may say: a call with it counts as a write of level 2, whatever effect says"
	codeRemedy  = "write args: {%[1]s: code} and code: {%[1]s: {class: select}}, or {shape: …} with an expression for all that it may say; comm.query is better for a database: it runs nothing but reads"
)

// unruled finds arguments of an entry's read that hold code and have no rule.
func (l *labelLint) unruled() {
	if l.server == "comm" || l.p.Level != 0 {
		return
	}
	op := l.c.Classifier(nil)(l.server, l.tool).Reading(l.server, l.tool)
	for _, arg := range op.Unruled(slices.Collect(maps.Keys(l.own.Args))) {
		l.add(agent.P1, "args."+arg, fmt.Sprintf(codeRemedy, arg), codeProblem)
	}
}

// unruled finds those that the tools' schemas have and no entry names.
func (d *dataLint) unruled(server string, tools []string) {
	for _, tool := range slices.Sorted(slices.Values(tools)) {
		class := d.c.Classifier(nil)(server, tool)
		if !class.Listed || class.Profile().Level != 0 {
			continue
		}
		var takes []string
		for _, a := range d.schemas[server+"."+tool].Arguments {
			if _, told := class.Roles[a.Path]; !told && (len(a.Types) == 0 || !a.Is("number", "integer", "boolean")) {
				takes = append(takes, a.Path)
			}
		}
		field := "operations." + server + ".*"
		if class.Named {
			field = "operations." + server + "." + tool
		}
		for _, arg := range class.Reading(server, tool).Unruled(takes) {
			d.add(agent.P1, field, fmt.Sprintf(codeRemedy, arg), "the argument %.80q of %.80s: "+codeProblem, arg, tool)
		}
	}
}

// rootProblems finds permissions with a root for operations that nobody can hold against it: their calls are all refused.
func (c *Config) rootProblems(set agent.Set) []Problem {
	var all []Problem
	for _, d := range set.All() {
		for i, permission := range d.Permissions.Read {
			pattern, _, rooted := strings.Cut(permission, " under ")
			server, tool, _ := strings.Cut(pattern, ".")
			if !rooted || server == "comm" && (tool == "read_file" || tool == "list_files") || c.places(server, tool) {
				continue
			}
			all = append(all, Problem{File: d.File, Field: fmt.Sprintf("permissions.read[%d]", i), Severity: agent.P1,
				Problem: "no argument of " + pattern + " has the role path, repository or table, so every call is refused",
				Remedy:  "give the argument that says where it reads its role, as operations." + pattern + ": {args: {path: path}}"})
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
	return false
}
