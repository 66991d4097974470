package agent

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFiles is the most declaration files in one folder.
const maxFiles = 10_000

// Load reads every *.yaml and *.yml of a folder, not of folders in it, and not those whose names start with a dot. Declarations
// with a blocking problem are left out of the set: their agents are undeclared. Two files with one agentId are both left out.
// pinned is as in Parse. Files are regular files inside the folder; a link is followed only within it. The digests of declarations cover the files that
// their runs start (Run.Files).
func Load(dir string, pinned ...string) (Set, []Problem) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Set{}, []Problem{{File: dir, Severity: Error, Problem: "the agents folder can't be opened: " + reason(err), Remedy: "create it, or name another"}}
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return Set{}, []Problem{{File: dir, Severity: Error, Problem: "the agents folder can't be read: " + reason(err)}}
	}
	var problems []Problem
	byID := map[string][]Declaration{}
	blocked := map[string]bool{} // files with a blocking problem
	files := 0
	for _, e := range entries { // sorted by name
		name := e.Name()
		if ext := filepath.Ext(name); strings.HasPrefix(name, ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		file := filepath.Join(dir, name)
		if files++; files > maxFiles {
			problems = append(problems, Problem{File: dir, Severity: Error, Problem: fmt.Sprintf("has more than %d declarations", maxFiles)})
			return Set{}, problems
		}
		data, err := read(root, name)
		if err != nil {
			problems = append(problems, Problem{File: file, Severity: Error, Problem: err.Error(), Remedy: "a declaration is a readable regular file"})
			continue
		}
		d, found := Parse(file, data, pinned...)
		problems = append(problems, found...)
		blocked[file] = slices.ContainsFunc(found, Problem.Blocks)
		if d.AgentID != "" {
			byID[d.AgentID] = append(byID[d.AgentID], d)
		}
	}
	var good []Declaration
	for id, same := range byID {
		for i, d := range same {
			if len(same) > 1 {
				other := same[(i+1)%len(same)].File
				problems = append(problems, Problem{File: d.File, Field: "agentId", Severity: Error,
					Problem: fmt.Sprintf("%q is declared in %s and in %s", id, d.File, other), Remedy: "give each agent one file"})
			} else if !blocked[d.File] {
				if err := d.hashFiles(); err != nil {
					problems = append(problems, Problem{File: d.File, Field: "run.command", Severity: Error, Problem: "can't be written as JSON"})
					continue
				}
				problems = append(problems, d.lintFiles()...)
				good = append(good, d)
			}
		}
	}
	set := NewSet(good...)
	problems = append(problems, dependencies(set, byID)...)
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return set, problems
}

// dependencies finds agents that depend on one without a declaration (violation 8) and circles, in which a failure would feed itself.
func dependencies(set Set, declared map[string][]Declaration) []Problem {
	var problems []Problem
	for _, d := range set.all {
		for i, other := range d.DependsOn {
			field := fmt.Sprintf("dependsOn[%d]", i)
			if len(declared[other]) == 0 {
				p := d.Problem(field, P1, fmt.Sprintf("%q has no declaration file", other), "declare it, or remove it here")
				p.Code = "A-08"
				problems = append(problems, p)
			} else if other != d.AgentID && reaches(set, other, d.AgentID) {
				problems = append(problems, d.Problem(field, P1, fmt.Sprintf("%q depends on %q in turn", other, d.AgentID), "break the circle"))
			}
		}
	}
	return problems
}

// reaches tells whether from depends on to, through any number of others.
func reaches(set Set, from, to string) bool {
	seen := map[string]bool{}
	var walk func(string) bool
	walk = func(id string) bool {
		d, ok := set.byID[id]
		if !ok || seen[id] {
			return false
		}
		seen[id] = true
		return slices.Contains(d.DependsOn, to) || slices.ContainsFunc(d.DependsOn, walk)
	}
	return walk(from)
}

// read returns a regular file's content, at most one byte more than Parse accepts. A pipe or device is never opened.
func read(root *os.Root, name string) ([]byte, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("can't be read: %s", reason(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is not a regular file")
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("can't be read: %s", reason(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("can't be read: %s", reason(err))
	}
	return data, nil
}

// reason is an error without the path that the problem names already.
func reason(err error) string {
	if pe, ok := err.(*fs.PathError); ok {
		return pe.Err.Error()
	}
	return err.Error()
}
