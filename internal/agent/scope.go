package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
)

// A read permission may have a root: "fs.read_file under docs/". Then the arguments that say where the operation reads must all lie below it.
// What they are for is the operator's word: the roles path, repository and table.
//
//	path        names separated by slashes; below an absolute root only an absolute path lies
//	repository  owner/name; given as two arguments, the one called owner comes first
//	table       names separated by points, as schema.table
//
// A path in a call that also names a repository lies in that repository: acme/site and notes/a.md are acme/site/notes/a.md. Where the operation
// takes a repository, a path without a whole one lies nowhere. Names are compared
// as they are, letter case too, after "." and "..", double slashes and one at the end are resolved by text; what another reader could take for
// something else (percent-encoding, backslashes, a home folder, letters that look like points or slashes) lies below no root.
const under = " under "

// Roles of arguments that roots are about.
const (
	rolePath       = "path"
	roleRepository = "repository"
	roleTable      = "table"
)

// Rooted reports whether a role is one that roots are about.
func Rooted(role string) bool { return role == rolePath || role == roleRepository || role == roleTable }

// maxPlaces bounds the places of one call that are compared.
const maxPlaces = 200

// place is where something is read: names from the outermost on.
type place struct {
	absolute bool
	names    []string
}

// below reports whether p is the root or lies in it.
func (p place) below(root place) bool {
	return p.absolute == root.absolute && len(p.names) >= len(root.names) && slices.Equal(p.names[:len(root.names)], root.names)
}

// root is one root of a permission, read as each kind of place that it may be.
type root struct{ path, table place }

// none is a root that nothing lies below: no name is empty.
var none = place{names: []string{""}}

// readRoot reads a root, which has to be written as it is compared. problem says what is wrong with it.
func readRoot(s string) (r root, problem string) {
	p, problem := readPath(s)
	r = root{none, none}
	switch {
	case strings.TrimSpace(s) != s:
		return r, "begins or ends with white space"
	case problem != "":
		return r, problem
	case len(p.names) == 0:
		return r, "names everything; leave out \"under\" if that is meant"
	}
	written := strings.Join(p.names, "/")
	if p.absolute {
		written = "/" + written
	}
	if strings.TrimSuffix(s, "/") != written {
		return r, fmt.Sprintf("is written as %q", written)
	}
	r.path = p
	if t, problem := readTable(strings.TrimSuffix(s, ".")); problem == "" {
		r.table = t
	}
	return r, ""
}

// odd are characters that somebody may read as a point, a slash or a backslash.
const odd = "\\．／＼․‥…⁄∕╱⧸⧹﹨。｡﹒"

var (
	encoded = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	drive   = regexp.MustCompile(`^[A-Za-z]:`)
	id      = regexp.MustCompile(`(?:^|[^A-Za-z])(?i:ids?)[0-9]*$|[a-z0-9](?:Id|ID)s?[0-9]*$`) // an argument of such a name takes one
)

// wild reports whether some reader takes a name for "..": it trims it, or it completes names by a pattern.
func wild(name string) bool {
	dots := func(s string) bool { return s != "" && strings.Trim(s, ".") == "" }
	if strings.Trim(name, ". ") == "" {
		return true
	}
	if strings.Contains(name, "{") && slices.ContainsFunc(strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("{},", r) }), dots) {
		return true
	}
	return strings.ContainsAny(name[:1], ".[") && dots(strings.Map(func(r rune) rune {
		if strings.ContainsRune("*?[]!^-", r) {
			return -1
		}
		return r
	}, name))
}

func readPath(s string) (p place, problem string) {
	switch {
	case len(s) > 4096:
		return p, "is longer than 4096 bytes"
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		return p, "has control characters in it"
	case strings.ContainsAny(s, odd):
		return p, "has a backslash in it, or a letter that looks like a point or a slash"
	case encoded.MatchString(s):
		return p, "has percent-encoding in it"
	case strings.HasPrefix(s, "~") || drive.MatchString(s):
		return p, "begins with a home folder or a drive"
	}
	p.absolute = strings.HasPrefix(s, "/")
	for name := range strings.SplitSeq(s, "/") {
		switch name {
		case "", ".":
		case "..":
			if len(p.names) == 0 {
				return p, "points outside the folder in which it begins"
			}
			p.names = p.names[:len(p.names)-1]
		default:
			if wild(name) {
				return p, "has a name in it that others may take for .."
			}
			p.names = append(p.names, name)
		}
	}
	return p, ""
}

func readTable(s string) (p place, problem string) {
	p.names = strings.Split(s, ".")
	if len(s) > 512 || slices.ContainsFunc(p.names, func(name string) bool {
		return name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r != '_' && r != '-' && r != '$' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
		})
	}) {
		return p, "is not a table's name, as schema.table"
	}
	return p, ""
}

// rootsOf are the roots under which a read is permitted. free: some permission has none, so it is permitted wherever it reads.
func (g *grants) rootsOf(operation string) (roots []root, free bool) {
	if g == nil {
		return nil, false
	}
	server, _, _ := strings.Cut(operation, ".")
	return slices.Concat(g.roots[operation], g.roots[server+".*"]), g.all || g.exact[operation] || g.servers[server]
}

// Outside says why a permitted read does not lie below the roots that the declaration has for the operation: "" if it does, or it has none.
// roles is what its arguments are for, by name or path; arguments is a canonical JSON object. Where it is only partly known, as in a plan,
// what is missing is left to the call.
func (d *Declaration) Outside(operation string, roles map[string]string, arguments []byte, partial bool) string {
	roots, free := d.read.rootsOf(operation)
	if free || len(roots) == 0 {
		return ""
	}
	var named []string
	for _, p := range d.Permissions.Read {
		if pattern, at, ok := strings.Cut(p, under); ok && compile([]string{pattern}).hold(operation) {
			named = append(named, at)
		}
	}
	permitted := "It is permitted under " + strings.Join(named, ", ") + " only"
	places, tables, problem := placesOf(roles, arguments)
	if problem != "" {
		return permitted + ", and " + problem + "."
	}
	if len(places)+len(tables) == 0 && !partial {
		return permitted + ", and the call does not say where it reads: no argument with the role path, repository or table has a value."
	}
	for _, p := range places {
		if !slices.ContainsFunc(roots, func(r root) bool { return p.below(r.path) }) {
			return permitted + ", and the call reads elsewhere."
		}
	}
	for _, p := range tables {
		if !slices.ContainsFunc(roots, func(r root) bool { return p.below(r.table) }) {
			return permitted + ", and the call reads elsewhere."
		}
	}
	return ""
}

// placesOf finds where a call reads.
func placesOf(roles map[string]string, arguments []byte) (places, tables []place, problem string) {
	var args any
	if err := call.Decode(arguments, &args); err != nil {
		return nil, nil, "its arguments can't be read"
	}
	r := placeReader{roles: roles}
	r.walk(args, "")
	if len(r.owners) > 1 {
		r.bad("owner", "has more than one value")
	}
	if r.problem != "" {
		return nil, nil, r.problem
	}
	places, problem = r.places()
	return places, r.tables, problem
}

// placeReader collects the places that a call's arguments name.
type placeReader struct {
	roles                               map[string]string
	paths, repositories, owners, tables []place
	texts                               int    // how many it has come to
	problem                             string // the first
}

func (r *placeReader) bad(path, format string, a ...any) {
	if r.problem == "" {
		r.problem = "the argument " + display.Quote(path, shownMost) + " " + fmt.Sprintf(format, a...)
	}
}

func (r *placeReader) walk(v any, path string) {
	_, role, labelled := call.LongestPrefix(r.roles, path)
	switch v := v.(type) {
	case nil, bool:
	case map[string]any:
		for name, member := range v {
			inner := strings.ReplaceAll(name, ".", "%2E")
			if path != "" {
				inner = path + "." + inner
			}
			if _, own := r.roles[inner]; labelled && Rooted(role) && !own {
				r.bad(path, "is an object, where a place is one text")
			}
			if path != "" && !labelled && strings.ContainsAny(name, `./\~`) {
				r.bad(path, "has no role, and may say in a member's name where the call reads")
			}
			r.walk(member, inner)
		}
	case []any:
		for _, e := range v {
			r.walk(e, path)
		}
	case json.Number:
		switch {
		case Rooted(role):
			r.bad(path, "is a number, where a place is a text")
		case !labelled && id.MatchString(lastName(path)):
			r.bad(path, "has no role, so nobody knows whether it says what the call reads")
		}
	case string:
		r.text(v, path, role, labelled)
	}
}

// text takes in one text, by what the argument is for.
func (r *placeReader) text(v, path, role string, labelled bool) {
	if r.texts++; r.texts > maxPlaces {
		r.bad(path, "is one of more than %d texts", maxPlaces)
		return
	}
	switch role {
	case rolePath, roleRepository:
		p, wrong := readPath(v)
		if wrong == "" && role == roleRepository && (p.absolute || slices.Contains(strings.Split(v, "/"), "..")) {
			wrong = "is not a repository, as owner/name"
		}
		switch {
		case wrong != "":
			r.bad(path, "%s", wrong)
		case role == rolePath:
			r.paths = append(r.paths, p)
		case len(p.names) == 0: // none
		case lastName(path) == "owner":
			r.owners = append(r.owners, p)
		default:
			r.repositories = append(r.repositories, p)
		}
	case roleTable:
		p, wrong := readTable(v)
		if r.tables = append(r.tables, p); wrong != "" {
			r.bad(path, "%s", wrong)
		}
	default:
		if !labelled { // the server may take it for another path
			r.bad(path, "has no role, so nobody knows whether it says where the call reads")
		}
	}
}

// places are the paths in the repositories that the call names.
func (r *placeReader) places() (places []place, problem string) {
	if len(r.owners) == 1 {
		if len(r.repositories) == 0 {
			r.repositories = []place{{}}
		}
		r.repositories = within(r.owners, r.repositories)
	}
	for i, p := range r.repositories {
		if len(r.paths) > 0 && len(p.names) < 2 { // a folder must not pass for the name of the repository
			r.repositories[i] = none
		}
	}
	switch {
	case len(r.repositories) == 0:
		if slices.Contains(slices.Collect(maps.Values(r.roles)), roleRepository) { // of whichever is the default
			for i := range r.paths {
				r.paths[i] = none
			}
		}
		return r.paths, ""
	case len(r.paths) == 0:
		return r.repositories, ""
	case len(r.repositories)*len(r.paths) > maxPlaces:
		return nil, fmt.Sprintf("the call names more than %d places", maxPlaces)
	}
	return within(r.repositories, r.paths), ""
}

// lastName is the last name of an argument's path.
func lastName(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// within are the inner places in each of the outer ones.
func within(outer, inner []place) []place {
	var all []place
	for _, o := range outer {
		for _, i := range inner {
			all = append(all, place{o.absolute, slices.Concat(o.names, i.names)})
		}
	}
	return all
}
