package daemon

import (
	"fmt"
	"strings"

	"sallyport/internal/agent"
)

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
