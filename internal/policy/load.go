package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	public "github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// Bounds of a policy folder.
const (
	maxFile     = 256 << 10
	maxFiles    = 1000
	maxPolicies = 10_000
	maxNesting  = 200 // brackets; the parser and the checker recurse
)

// schemaText is what policies are checked against. arguments are not in it: they have no declared types.
const schemaText = `
entity Agent;
entity Server;
entity Operation in [Server];
action "call" appliesTo {
	principal: Agent,
	resource: Operation,
	context: {
		phase: String,
		effect: String,
		sensitivity: String,
		door: String,
		requester: String,
		level: Long,
		labels: Set<String>,
	},
};
`

func newValidator() (*validate.Validator, error) {
	var s schema.Schema
	if err := s.UnmarshalCedar([]byte(schemaText)); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve()
	if err != nil {
		return nil, err
	}
	return validate.New(resolved, validate.WithStrict()), nil
}

// Load reads every *.cedar file of a folder, not of folders in it, and not those whose names start with a dot. No folder ("") and an
// empty one are no policies. Anything wrong anywhere is an error that names file, line and column: policies are loaded whole or not at all.
func Load(dir string) (*Set, error) {
	set := &Set{}
	text := sha256.New()
	defer func() { set.version = hex.EncodeToString(text.Sum(nil)) }()
	if dir == "" {
		return set, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, invalid("the policies folder %s can't be opened: %v", dir, err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, invalid("the policies folder %s can't be read: %v", dir, err)
	}
	validator, err := newValidator()
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the policy schema is not valid")
	}
	files := 0
	for _, e := range entries { // sorted by name
		if strings.HasPrefix(e.Name(), ".") || filepath.Ext(e.Name()) != ".cedar" {
			continue
		}
		if files++; files > maxFiles {
			return nil, invalid("the policies folder %s has more than %d files", dir, maxFiles)
		}
		file := filepath.Join(dir, e.Name())
		data, err := read(root, e.Name())
		if err != nil {
			return nil, invalid("%s: %v", file, err)
		}
		if err := set.add(validator, file, data); err != nil {
			return nil, err
		}
		fmt.Fprintf(text, "%d:%s%d:%s", len(e.Name()), e.Name(), len(data), data)
	}
	slices.SortFunc(set.policies, byID)
	return set, nil
}

// parseError takes the place out of Cedar's parse errors, which don't know the file.
var parseError = regexp.MustCompile(`^parser error: \w+ error at <input>:(\d+:\d+) ?(?s:(.*))$`)

// unexpected takes apart what they say of a token that is not the one that has to stand there.
var unexpected = regexp.MustCompile(`^"(?s:.*)": exact got (?s:(.*)) want (\S+)$`)

func invalid(format string, args ...any) error {
	return fault.New(fault.ConfigurationInvalid, format, args...)
}

// read returns a regular file's content. A pipe or device is never opened.
func read(root *os.Root, name string) ([]byte, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is not a regular file")
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("has more than %d bytes", maxFile)
	}
	return data, err
}

// add parses and checks one file's policies.
func (s *Set) add(validator *validate.Validator, file string, data []byte) (err error) {
	defer func() {
		if p := recover(); p != nil { // a text that breaks the parser is not a policy
			err = invalid("%s: can't be parsed", file)
		}
	}()
	if line := tooNested(data); line > 0 {
		return invalid("%s:%d: more than %d brackets inside one another", file, line, maxNesting)
	}
	list, err := cedar.NewPolicyListFromBytes(file, data)
	if err != nil {
		if at := parseError.FindStringSubmatch(err.Error()); at != nil {
			if token := unexpected.FindStringSubmatch(at[2]); token != nil {
				stands := "the text ends here"
				if token[1] != "" {
					stands = display.Quote(token[1], shownMost) + " stands here"
				}
				return invalid("%s:%s: %s, where %q belongs", file, at[1], stands, token[2])
			}
			return invalid("%s:%s: near %s", file, at[1], display.Line(at[2], shownMost))
		}
		return invalid("%s: %s", file, display.Line(err.Error(), shownMost))
	}
	for _, p := range list {
		at := fmt.Sprintf("%s:%d:%d", file, p.Position().Line, p.Position().Column)
		parsed := (*ast.Policy)(p.AST())
		one := policy{at: at, id: fmt.Sprintf("%s:%d", filepath.Base(file), p.Position().Line)}
		annotations := p.Annotations()
		if id, ok := annotations["id"]; ok {
			one.id = string(id)
		} else if s.taken(one.id) != nil { // several on one line
			one.id += fmt.Sprintf(":%d", p.Position().Column)
		}
		if one.id == "" || len(one.id) > 128 || display.Line(one.id, shownMost) != one.id {
			return invalid("%s: @id must be 1 to 128 printable characters", at)
		}
		one.reason = display.Line(string(annotations["reason"]), shownMost)
		if other := s.taken(one.id); other != nil {
			return invalid("%s: the id %q is taken by the policy at %s", at, one.id, other.at)
		}
		reads, err := check(validator, parsed)
		if err != nil {
			return invalid("%s: policy %q: %s", at, one.id, display.Line(strings.ReplaceAll(err.Error(), "\n", "; "), shownMost))
		}
		for _, name := range reads {
			if !slices.Contains(s.reads, name) {
				s.reads = append(s.reads, name)
			}
		}
		if one.scope, one.conditions, err = apart(parsed); err != nil {
			return invalid("%s: policy %q: %v", at, one.id, err)
		}
		s.permits = s.permits || p.Effect() == cedar.Permit
		if s.policies = append(s.policies, one); len(s.policies) > maxPolicies {
			return invalid("%s: more than %d policies", at, maxPolicies)
		}
	}
	return nil
}

// apart takes a policy apart into its scope and the same policy for every scope.
func apart(p *ast.Policy) (scope, *cedar.Policy, error) {
	for _, part := range []ast.IsScopeNode{p.Principal, p.Action, p.Resource} {
		switch part.(type) {
		case ast.ScopeTypeAll, ast.ScopeTypeEq, ast.ScopeTypeIn, ast.ScopeTypeInSet, ast.ScopeTypeIs, ast.ScopeTypeIsIn:
		default:
			return scope{}, nil, fmt.Errorf("its scope can't be read (%T)", part)
		}
	}
	everything := *p
	everything.Principal, everything.Action, everything.Resource = ast.ScopeTypeAll{}, ast.ScopeTypeAll{}, ast.ScopeTypeAll{}
	return scope{p.Principal, p.Action, p.Resource}, cedar.NewPolicyFromAST((*public.Policy)(&everything)), nil
}

// taken finds the policy that has the id.
func (s *Set) taken(id string) *policy {
	for i := range s.policies {
		if s.policies[i].id == id {
			return &s.policies[i]
		}
	}
	return nil
}

// tooNested returns the line at which brackets nest too deeply, or 0. Brackets in strings and comments count too: it is a bound, not a parser.
func tooNested(data []byte) int {
	depth, line := 0, 1
	for _, c := range data {
		switch c {
		case '\n':
			line++
		case '(', '[', '{':
			if depth++; depth > maxNesting {
				return line
			}
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
	}
	return 0
}

// check type-checks a policy and returns the attributes of context that it reads. One that reads arguments is checked in its scope and
// in those names.
func check(validator *validate.Validator, p *ast.Policy) ([]string, error) {
	names, whole := reads(p)
	if whole {
		names = append(names, attributes...)
	}
	if !slices.Contains(names, "arguments") {
		err := validator.Policy("", p)
		// What the checker lets pass unknown is only asked for with `has`, and isn't there.
		return slices.DeleteFunc(names, unknown), err
	}
	if k := slices.IndexFunc(names, unknown); k >= 0 {
		return nil, fmt.Errorf("attribute %q of context not found: known are %s", names[k], strings.Join(attributes, ", "))
	}
	scope := *p
	scope.Conditions = nil
	return names, validator.Policy("", &scope)
}

func unknown(attribute string) bool { return !slices.Contains(attributes, attribute) }

// reads tells which attributes of context the conditions read or ask for by name, and whether context stands alone somewhere, so that
// any attribute may be read.
func reads(p *ast.Policy) (names []string, whole bool) {
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			var on ast.StrOpNode
			switch n := n.(type) {
			case ast.NodeTypeVariable:
				whole = whole || n.Name == "context"
			case ast.NodeTypeAccess:
				on = n.StrOpNode
			case ast.NodeTypeHas:
				on = n.StrOpNode
			}
			if variable, ok := on.Arg.(ast.NodeTypeVariable); ok && variable.Name == "context" {
				names = append(names, string(on.Value))
				return false
			}
			return true
		})
	}
	return names, whole
}
