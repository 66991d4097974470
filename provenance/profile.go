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
)

// Role says what an argument of an operation is for. Core roles decide where something goes, what it costs and what it hits: their values have
// to be vouched for. Soft ones are looked at where there is no core argument. The others are not traced; links in them are.
type Role string

// The roles.
const (
	Destination Role = "destination" // core: who gets it
	URL         Role = "url"         // core: what is fetched or posted to
	Amount      Role = "amount"      // core: how much
	Credential  Role = "credential"  // core: a password, key or token to set
	Identity    Role = "identity"    // core: who the person is said to be
	Selector    Role = "selector"    // core: the id of what is changed
	Target      Role = "target"      // core: the name of what is changed or used
	Path        Role = "path"        // core: a file or folder, that a permission may have a root for
	Repository  Role = "repository"  // core: owner/name, or one of them, likewise
	Table       Role = "table"       // core: of a database, likewise
	Code        Role = "code"        // core: what the server runs or evaluates, as SQL, a command, an expression
	Time        Role = "time"        // soft
	Name        Role = "name"        // soft: what the thing is called
	Content     Role = "content"     // unchecked but for links
	Query       Role = "query"       // unchecked: what is looked for
	Flag        Role = "flag"        // unchecked
	Currency    Role = "currency"    // unchecked: the unit of an amount
)

var roles = []Role{Destination, URL, Amount, Credential, Identity, Selector, Target, Path, Repository, Table, Code, Time, Name, Content, Query, Flag, Currency}

// Core reports whether values of the role have to be vouched for.
func (r Role) Core() bool {
	switch r {
	case Destination, URL, Amount, Credential, Identity, Selector, Target, Path, Repository, Table, Code:
		return true
	}
	return false
}

// Soft reports whether values of the role are looked at where an operation is called without a core argument.
func (r Role) Soft() bool { return r == Time || r == Name }

// ParseRole accepts the roles by their exact words.
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

// Output is how far what an operation answers can be trusted.
type Output string

// The outputs. Untrusted is the default, and what an unknown word counts as.
const (
	TrustedOutput   Output = "trusted"   // vouches for its values, while it has the shape if there is one
	UntrustedOutput Output = "untrusted" // vouches for nothing but its trusted fields
	TypedOutput     Output = "typed"     // as trusted; without a shape it is untrusted
	EchoOutput      Output = "echo"      // repeats what it was given: vouches for its trusted fields (a new id) only
)

// Boundary says where data that an operation is given ends up.
type Boundary string

// The boundaries. External is the default, and what an unknown word counts as.
const (
	BoundaryNone     Boundary = "none"     // stays with the person
	BoundaryInternal Boundary = "internal" // others in the organisation see it
	BoundaryExternal Boundary = "external" // leaves
	BoundaryByArg    Boundary = "by_arg"   // leaves where a destination is given that is not the person's own
)

// Profile is what the operator says about an operation's data, as docs/flow.md has it: how far its results can be trusted, and what its
// arguments are for. The zero Profile says nothing but level 0. Field names are paths in a record, as a or a.b, and hold for what lies below.
type Profile struct {
	Output        Output
	Shape         *regexp.Regexp  // what every string of a trusted or typed result has to match; nil: none
	TrustedFields []string        // fields of an otherwise untrusted record that the system fills in
	Names         []string        // fields by which a person refers to a record
	Delegable     []string        // structured fields that may serve as a destination once the person's words single the record out
	IDKind        string          // what the ids in results and selectors denote; "" nobody said
	Level         int             // 0 reads, 1 a write that only the person sees and can undo, 2 the rest
	Boundary      Boundary        // where what it is given ends up
	EgressURL     bool            // calling it makes a request whose address can carry data: also a read of this kind is traced
	Args          map[string]Role // argument, or path into it as a.b, -> role; nil: nobody said, and every argument is critical
}

// Digest is a hash of everything the profile says: evidence that was taken under another one is worth nothing.
func (p *Profile) Digest() string {
	shape := ""
	if p.Shape != nil {
		shape = p.Shape.String()
	}
	b, err := json.Marshal([]any{p.Output, shape, p.TrustedFields, p.Names, p.Delegable, p.IDKind, p.Level, p.Boundary, p.EgressURL, p.Args})
	if err != nil { // words, lists and a map of words always encode
		panic(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Told reports whether the operator has said what the arguments are for.
func (p *Profile) Told() bool { return p != nil && p.Args != nil }

// role is what the value at a path is for: that of the longest path told that leads to it. An argument nobody spoke of is critical where
// nobody spoke of any, and content where somebody did... which would let a misspelt label free it: so it is critical too.
func (p *Profile) role(path string) Role {
	if r, ok := p.told(path); ok {
		return r
	}
	return Target
}

func (p *Profile) told(path string) (r Role, ok bool) {
	label, ok := p.label(path)
	return p.Args[label], ok
}

// label is the longest path told that leads to one.
func (p *Profile) label(path string) (label string, ok bool) {
	if _, ok := p.Args[path]; ok {
		return path, true
	}
	for i := len(path) - 1; i > 0; i-- {
		if path[i] == '.' {
			if _, ok := p.Args[path[:i]]; ok {
				return path[:i], true
			}
		}
	}
	return "", false
}

// leads reports whether a path is one that a label speaks of, or the beginning of one.
func (p *Profile) leads(path string) bool {
	for told := range p.Args {
		if told == path || strings.HasPrefix(told, path) && told[len(path)] == '.' {
			return true
		}
	}
	return false
}

// leadsOn reports whether a label speaks of something in what lies at the path, and not of the whole: then its members' names are the tool's.
func (p *Profile) leadsOn(path string) bool {
	_, told := p.told(path)
	return !told && p.leads(path)
}

// Check finds what is wrong with a profile, field by field, as sentences that name field and remedy.
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
