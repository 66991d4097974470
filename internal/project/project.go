// Package project tells which writes to the files of a developer's project stay with that person: those in its folder, but for what is run, or read as
// orders, later. A git hook, the instructions of an agent or the configuration of a client act when nobody looks any more, so writing one is not
// something that only the person sees and can undo.
//
// Promises: what can't be read in one way alone does not stay. A name is compared as the file systems do that are least strict: without regard to letter
// case, compatibility forms and trailing points and blanks. Links are followed as they are at the time of the look; what changes between it and the
// server's write is not seen.
package project

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"sallyport.example/internal/display"
)

// Project is the folder that agents work in. Immutable.
type Project struct {
	root string   // with links resolved
	name string   // as it was given, clean
	own  []string // the gateway's own files and folders, with links resolved
	run  []string // programs that the gateway's servers run, with links resolved
	git  []string // files and folders that the repository's configuration names
	home string   // of the user, whose git has a configuration, too; "" if there is none
}

// New returns the project in a folder that is there. own are the gateway's files and folders, and programs what its servers run; these need not be there.
func New(folder string, own, programs []string) (*Project, error) {
	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(root); err != nil || !st.IsDir() {
		return nil, errors.Join(err, fmt.Errorf("%s is no folder", folder))
	}
	p := &Project{root: root, name: filepath.Clean(folder)}
	led := func(paths []string) (all []string) {
		for _, path := range paths {
			if real, ok := resolve(path); ok {
				path = real
			}
			all = append(all, filepath.Clean(path))
		}
		return all
	}
	p.own, p.run = led(own), led(programs)
	p.git = configured(root)
	if home, err := os.UserHomeDir(); err == nil {
		p.home = home
	}
	return p, nil
}

// Folder is the project's folder, with links resolved.
func (p *Project) Folder() string { return p.root }

// setting matches a line of git's configuration that sets something.
var setting = regexp.MustCompile(`(?m)([A-Za-z0-9-]+)[ \t]*=[ \t]*([^\r\n]+)`)

// noFile are settings, in lower case, whose values are no files and often a word that could be one.
var noFile = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields("active autocrlf bare email fetch filemode ignorecase logallrefupdates merge name precomposeunicode push pushdefault pushremote rebase remote repositoryformatversion symlinks url") {
		all[name] = true
	}
	return all
}()

// configured are the files and folders of the project that the repository's configuration names, in whatever setting: git runs them (core.hooksPath,
// core.fsmonitor, filters) or reads more configuration from them (include.path).
func configured(root string) []string {
	top, dirs := repository(root)
	var named []string
	for _, dir := range dirs {
		for _, name := range []string{"config", "config.worktree"} {
			text := readStart(filepath.Join(dir, name))
			for _, line := range setting.FindAllSubmatch(text, -1) {
				if noFile[strings.ToLower(string(line[1]))] {
					continue
				}
				for _, path := range files(string(line[2])) {
					for _, base := range []string{top, dir} { // of included files
						real, ok := resolve(from(base, path))
						if rel, inside := below(real, root); ok && inside && rel != "." && !slices.Contains(named, real) {
							named = append(named, real)
						}
					}
				}
			}
		}
	}
	return named
}

// repository finds the repository that a folder is in: its top, and the folders that can have its configuration.
func repository(folder string) (top string, dirs []string) {
	for top = folder; ; top = filepath.Dir(top) {
		dir := filepath.Join(top, ".git")
		st, err := os.Stat(dir)
		switch {
		case err == nil && st.IsDir():
			return top, []string{dir}
		case err == nil: // a worktree's or a submodule's
			path, _ := strings.CutPrefix(strings.TrimSpace(string(readStart(dir))), "gitdir:")
			dir = from(top, strings.TrimSpace(path))
			common := strings.TrimSpace(string(readStart(filepath.Join(dir, "commondir"))))
			return top, []string{dir, from(dir, common)}
		case top == filepath.Dir(top):
			return folder, nil
		}
	}
}

// hooksElsewhere matches what in git's configuration can say that hooks lie elsewhere.
var hooksElsewhere = regexp.MustCompile(`(?i)hookspath|\[[ \t]*include`)

// Hooks says in a part of a sentence why a commit in the repository at a path runs programs, or may; "" if it doesn't. A hook may run what lies in the
// project, as checks of its code do, and that is free to be written.
func (p *Project) Hooks(from, path string) string {
	if from == "" || path == "" || unclear(path) {
		return "names no repository that can be looked at"
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(from, path)
	}
	real, ok := resolve(path)
	if !ok {
		return "leads through links that can't be followed"
	}
	top, dirs := repository(real)
	for at := real; at != top && at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, "HEAD")); err == nil {
			return "leads into a folder that git may take for a repository"
		}
	}
	configs := []string{"/etc/gitconfig"}
	if p.home != "" {
		configs = append(configs, filepath.Join(p.home, ".gitconfig"), filepath.Join(p.home, ".config", "git", "config"))
	}
	for _, dir := range dirs {
		configs = append(configs, filepath.Join(dir, "config"), filepath.Join(dir, "config.worktree"))
		entries, err := os.ReadDir(filepath.Join(dir, "hooks"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "is a repository whose hooks can't be looked at"
		}
		for _, e := range entries {
			if hooks[fold(e.Name())] {
				return "is a repository with hooks, which a commit runs"
			}
		}
	}
	for _, config := range configs {
		if hooksElsewhere.Match(readStart(config)) {
			return "is a repository whose hooks git's configuration names, and a commit runs them"
		}
	}
	return ""
}

func from(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// files are the texts in a value that can name a file: a command has several.
func files(value string) []string {
	value = strings.TrimSpace(value)
	before, _, _ := strings.Cut(value, "#")
	before, _, _ = strings.Cut(before, ";")
	var all []string
	for _, word := range append(strings.Fields(value), value, before) {
		if word = strings.Trim(word, "\"'!; \t"); word != "" {
			all = append(all, word)
		}
	}
	return all
}

// maxConfig bounds how much of git's configuration is read.
const maxConfig = 1 << 20

// readStart is what a file begins with; nothing of one that can't be read.
func readStart(path string) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text, _ := io.ReadAll(io.LimitReader(file, maxConfig)) // what could be read
	return text
}

// maxEntries bounds how much of the project's top is looked through for links.
const maxEntries = 5000

// led says what else a file is, by a link at the top of the project that leads to it and has one of the names that are read later, as the instructions of an agent may be one
// to a page of the docs.
func (p *Project) led(real string) string {
	top, err := os.Open(p.root)
	if err != nil {
		return ""
	}
	defer top.Close()
	entries, _ := top.ReadDir(maxEntries) // what could be read
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		is := actsLater(e.Name())
		if is == "" {
			continue
		}
		if target, ok := resolve(filepath.Join(p.root, e.Name())); ok {
			if sameOrBelow(real, target) && target != p.root {
				return is
			}
		}
	}
	return ""
}

// Beyond says in a part of a sentence why a write at a path does not stay with the person; "" if it does. from is where the server starts, so what a
// relative path begins at; "" if the server runs elsewhere.
func (p *Project) Beyond(from, path string) string {
	if path == "" {
		return ""
	}
	if from == "" {
		return "names a file, and its server runs elsewhere"
	}
	plain := norm.NFKC.String(path)
	for _, form := range []string{path, plain} {
		if why := p.beyond(from, form); why != "" {
			return why
		}
	}
	return ""
}

func (p *Project) beyond(from, path string) string {
	if unclear(path) {
		return "is written so that it can be read in more than one way"
	}
	if !filepath.IsAbs(path) {
		path = from + string(filepath.Separator) + path // not joined: "link/.." is not "."
	}
	for _, way := range []string{path, filepath.Clean(path)} { // a server may clean a path before it uses it, or not
		real, ok := resolve(way)
		if !ok {
			return "leads through links that can't be followed"
		}
		rel, inside := below(real, p.root)
		if !inside {
			return "lies outside of the project"
		}
		for _, own := range p.own {
			if sameOrBelow(real, own) {
				return "is the gateway's own"
			}
			if sameOrBelow(own, real) && rel != "." {
				return "holds what is the gateway's own"
			}
		}
		for _, program := range p.run {
			if sameOrBelow(real, program) || sameOrBelow(program, real) && rel != "." {
				return "is run by a server of the gateway's"
			}
		}
		for _, named := range p.git {
			if sameOrBelow(real, named) || sameOrBelow(named, real) && rel != "." {
				return "is run or read by git, by the repository's configuration"
			}
		}
		if is := p.led(real); is != "" {
			return "is " + is + ", by a link"
		}
		names := []string{rel} // the one that it leads to, and the one that it was written with
		for _, root := range []string{p.root, p.name} {
			if written, ok := below(filepath.Clean(path), root); ok {
				names = append(names, written)
			}
		}
		for _, name := range names {
			if is := actsLater(name); is != "" {
				return "is " + is
			}
		}
	}
	return ""
}

var (
	encoded   = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	shortName = regexp.MustCompile(`~[0-9]+([./]|$)`) // GIT~1 is .git where short names are
)

// unclear tells whether a path could be read in another way than it is written: by a shell, another system, or a server that decodes it.
func unclear(path string) bool {
	return strings.ContainsFunc(path, func(r rune) bool { return !display.Visible(r) }) || strings.ContainsAny(path, "\\:$`*?|<>\"") ||
		strings.HasPrefix(strings.TrimSpace(path), "~") || encoded.MatchString(path) || shortName.MatchString(path) || len(path) > 4096
}

// maxLinks bounds the links on one path.
const maxLinks = 40

// resolve returns where an absolute path leads, step by step, as the system walks it. What is not there is taken as it is written.
func resolve(path string) (string, bool) {
	const sep = string(filepath.Separator)
	rest, at, links := strings.Split(path, sep), sep, 0
	for len(rest) > 0 {
		step := rest[0]
		rest = rest[1:]
		switch step {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, step)
		st, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", false
		case st.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(next)
			if links++; err != nil || links > maxLinks {
				return "", false
			}
			if filepath.IsAbs(target) {
				at = sep
			}
			rest = append(strings.Split(target, sep), rest...)
			continue
		}
		at = next
	}
	return at, true
}

// below returns a path from a folder on, and whether it lies there.
func below(path, folder string) (rel string, ok bool) {
	rel, err := filepath.Rel(folder, path)
	return rel, err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// sameOrBelow tells whether a path is another one, or lies below it, as the least strict file systems compare names.
func sameOrBelow(path, folder string) bool {
	each := func(path string) string {
		steps := strings.Split(path, string(filepath.Separator))
		for i := range steps {
			steps[i] = fold(steps[i])
		}
		return strings.Join(steps, string(filepath.Separator))
	}
	_, ok := below(each(path), each(folder))
	return ok
}

// fold is a name as the least strict file systems compare it.
func fold(name string) string {
	return strings.TrimRight(cases.Fold().String(norm.NFKC.String(name)), ". ")
}
