package provenance

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"sallyport.example/internal/call"
)

// Role says what an argument of an operation is for. Core roles decide where something goes, what it costs and what it affects: their values have
// to be confirmed. Soft roles are traced in calls without a core argument. Values of the other roles are not traced, only the links in them.
type Role string

// The roles.
const (
	Destination Role = "destination" // core: who gets it
	URL         Role = "url"         // core: what is fetched or posted to
	Amount      Role = "amount"      // core: how much
	Credential  Role = "credential"  // core: a password, key or token to set
	Identity    Role = "identity"    // core: who the person claims to be
	Selector    Role = "selector"    // core: the id of the thing that is changed
	Target      Role = "target"      // core: the name of the thing that is changed or used
	Path        Role = "path"        // core: a file or folder; a permission may limit it to a root
	Repository  Role = "repository"  // core: owner/name, or one of them, likewise
	Table       Role = "table"       // core: of a database, likewise
	Code        Role = "code"        // core: SQL, a command or an expression that the server runs
	Time        Role = "time"        // soft
	Name        Role = "name"        // soft: the name of a new thing
	Content     Role = "content"     // unchecked but for links
	Query       Role = "query"       // unchecked: a search term
	Flag        Role = "flag"        // unchecked
	Currency    Role = "currency"    // unchecked: the unit of an amount
)

var (
	coreRoles = []Role{Destination, URL, Amount, Credential, Identity, Selector, Target, Path, Repository, Table, Code}
	roles     = append(slices.Clip(coreRoles), Time, Name, Content, Query, Flag, Currency)
)

// Core reports whether values of the role have to be confirmed.
func (r Role) Core() bool { return slices.Contains(coreRoles, r) }

// Soft reports whether values of the role are traced in a call without a core argument.
func (r Role) Soft() bool { return r == Time || r == Name }

// places reports whether values of the role say where a call goes.
func (r Role) places() bool { return r == Destination || r == URL }

// ParseRole accepts the exact names of the roles.
func ParseRole(s string) (Role, error) {
	if r := Role(s); slices.Contains(roles, r) {
		return r, nil
	}
	words := make([]string, len(roles))
	for i, r := range roles {
		words[i] = string(r)
	}
	return "", fmt.Errorf("role %.40q: use one of %s", s, strings.Join(words, ", "))
}

// Output says how far the results of an operation can be trusted.
type Output string

// The outputs. Untrusted is the default, also for an unknown word.
const (
	TrustedOutput   Output = "trusted"   // confirms its values, as long as it matches the shape, if there is one
	UntrustedOutput Output = "untrusted" // confirms only the values of its trusted fields
	TypedOutput     Output = "typed"     // trusted if it matches the shape; untrusted without a shape
	EchoOutput      Output = "echo"      // repeats what it was given; confirms only the values of its trusted fields, such as a new id
)

// Boundary says who can see the data that an operation is given.
type Boundary string

// The boundaries. External is the default, also for an unknown word.
const (
	BoundaryNone     Boundary = "none"     // only the person
	BoundaryInternal Boundary = "internal" // others in the organisation
	BoundaryExternal Boundary = "external" // others
	BoundaryByArg    Boundary = "by_arg"   // others, if a destination is given that is not the person's own
)

// Profile is the operator's description of an operation's data (docs/flow.md): how far its results can be trusted, and what its arguments are for.
// The zero Profile describes nothing but level 0. Field names are paths in a record, such as a or a.b; a path also stands for everything below it.
type Profile struct {
	Output        Output
	Shape         *regexp.Regexp  // has to match every string and number of a trusted or typed result; nil: no shape
	TrustedFields []string        // fields of an otherwise untrusted record that the system fills in
	Names         []string        // fields by which a person refers to a record
	Delegable     []string        // structured fields that may serve as a destination once the request singles the record out
	IDKind        string          // the kind of record that ids in results and selectors belong to; "": not configured
	Level         int             // 0 reads, 1 a write that only the person sees and can undo, 2 the rest
	Boundary      Boundary        // who can see the data that it is given
	EgressURL     bool            // a call requests an address that can carry data, so a read is traced too
	Args          map[string]Role // argument, or a path into it such as a.b -> role; nil: no roles, so every argument is critical
	MayOmit       []string        // destinations and URLs of Args: leaving one out of a call keeps what is stored
	Forgets       bool            // a write keeps nothing of what it is given
}

// Digest is a hash of the whole profile. Evidence counts only under the profile it was taken under.
func (p *Profile) Digest() string {
	shape := ""
	if p.Shape != nil {
		shape = p.Shape.String()
	}
	b, err := json.Marshal([]any{p.Output, shape, p.TrustedFields, p.Names, p.Delegable, p.IDKind, p.Level, p.Boundary, p.EgressURL, p.Args, p.MayOmit, p.Forgets})
	if err != nil { // strings, lists and a map of strings always encode
		panic(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// HasRoles reports whether the operator gave the arguments roles.
func (p *Profile) HasRoles() bool { return p != nil && p.Args != nil }

// RoleOf is the role of the value at a path: that of the longest labelled path above it. Without a label it is Target, so the value has to be
// confirmed and a misspelt label frees nothing.
func (p *Profile) RoleOf(path string) Role {
	if r, ok := p.labelledRole(path); ok {
		return r
	}
	return Target
}

// labelledRole is the role that a label gives the value at a path, if one does.
func (p *Profile) labelledRole(path string) (r Role, ok bool) {
	_, r, ok = call.LongestPrefix(p.Args, path)
	return r, ok
}

// labelStartsWith reports whether the path is labelled, or lies above a labelled one.
func (p *Profile) labelStartsWith(path string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(p.Args)), func(label string) bool { return within(label, path) })
}

// nearLabel reports whether no label has the path, and one is written almost alike: a tool that does not look at letter case takes Password for password.
func (p *Profile) nearLabel(path string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(p.Args)), func(label string) bool { return !within(label, path) && NearPaths(path, label) })
}

// NearPaths reports whether a path is the other one, or lies below or above it, without regard to letter case, the marks that join words, and forms of
// letters. Labels are compared exactly; a path that is only near a label is not confirmed.
func NearPaths(a, b string) bool {
	a, b = nearName(a), nearName(b)
	return within(a, b) || within(b, a)
}

func nearName(path string) string {
	return bareName(strings.ToUpper(norm.NFKC.String(visibleText(path))))
}

// within reports whether a path is the other one or lies below it.
func within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (rest == "" || rest[0] == '.')
}

// MayPlace reports whether the argument, or the value inside one, that these names lead to from the outside in may say where a call goes: it is
// labelled as a destination or URL, or a part of it is.
func (p *Profile) MayPlace(names ...string) bool {
	path := ""
	for _, name := range names {
		path = joinPath(path, name)
	}
	if r, ok := p.labelledRole(path); ok && r.places() {
		return true
	}
	for label, r := range p.Args {
		if r.places() && within(label, path) {
			return true
		}
	}
	return false
}

// hasRole reports whether an argument has one of the roles.
func (p *Profile) hasRole(any ...Role) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(p.Args)), func(r Role) bool { return slices.Contains(any, r) })
}

// labelsInside reports whether labels name parts of the value at the path but not the whole value. Then the names of its members are the tool's.
func (p *Profile) labelsInside(path string) bool {
	_, labelled := p.labelledRole(path)
	return !labelled && p.labelStartsWith(path)
}

// Check returns the problems of a profile, field by field, as sentences that name the field and the remedy.
func (p *Profile) Check() []string {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch p.Output {
	case "", TrustedOutput, UntrustedOutput, EchoOutput:
	case TypedOutput:
		if p.Shape == nil {
			bad("shape: typed output needs one; give a regular expression that every string of a result has to match")
		}
	default:
		bad("output %.40q: use trusted, untrusted, typed or echo", p.Output)
	}
	switch p.Boundary {
	case "", BoundaryNone, BoundaryInternal, BoundaryExternal, BoundaryByArg:
	default:
		bad("boundary %.40q: use none, internal, external or by_arg", p.Boundary)
	}
	if p.Level < 0 || p.Level > 2 {
		bad("level %d: use 0 (reads), 1 (a write that only the person sees and can undo) or 2", p.Level)
	}
	for _, arg := range slices.Sorted(maps.Keys(p.Args)) {
		if _, err := ParseRole(string(p.Args[arg])); err != nil {
			bad("args.%.80s: %v", arg, err)
		}
	}
	for _, arg := range p.MayOmit {
		if !p.Args[arg].places() {
			bad("may_omit %.80q: name an argument that has the role destination or url under args", arg)
		}
	}
	for _, list := range []struct {
		field  string
		values []string
	}{{"trusted_fields", p.TrustedFields}, {"names", p.Names}, {"delegable", p.Delegable}} {
		if slices.Contains(list.values, "") {
			bad("%s: a field has no name", list.field)
		}
	}
	return problems
}
