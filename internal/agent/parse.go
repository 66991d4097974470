package agent

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/identity"
)

// shownMost bounds hostile text in a problem, in bytes.
const shownMost = 80

// MaxFile is the most bytes that a declaration file may have.
const MaxFile = 256 << 10

// Severity is how bad a problem is.
type Severity string

const (
	Error Severity = "error" // not a declaration: it is not used
	P0    Severity = "P0"    // blocks: it is not deployed and, but for what only its output may be, not used
	P1    Severity = "P1"    // needs a mitigation plan
	P2    Severity = "P2"    // fix before scale
	Note  Severity = "note"  // nothing is wrong: what holds, for people to know
)

// Blocks tells whether a declaration with such a problem is kept out of use.
func (s Severity) Blocks() bool { return s == Error || s == P0 }

// Problem is one thing wrong with a file, where, and the way out. Text of the file stands in it quoted, with what isn't printable escaped.
type Problem struct {
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"` // from 1; 0 if the problem has no place
	Column   int      `json:"column,omitempty"`
	Field    string   `json:"field,omitempty"` // "permissions.write[0]"
	Severity Severity `json:"severity"`
	Problem  string   `json:"problem"`
	Remedy   string   `json:"remedy,omitempty"`
	Code     string   `json:"code,omitempty"` // of the violation, if it is one of the twelve
	// Set by Deployment: what the violation leads to and what mends it, who plans what against it, and whether it stops a deployment.
	Impact     string `json:"impact,omitempty"`
	Resolution string `json:"resolution,omitempty"`
	Mitigation string `json:"mitigation,omitempty"`
	Stops      bool   `json:"blocks"`

	scale  int // sessions a day from which on it blocks, if scaled
	scaled bool
	usable bool // it doesn't keep the declaration out of use, whatever its severity
}

// Blocks tells whether a declaration with the problem is kept out of use.
func (p Problem) Blocks() bool { return p.Severity.Blocks() && !p.usable }

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	fmt.Fprintf(&b, ": %s: ", p.Severity)
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Problem)
	if p.Remedy != "" {
		b.WriteString(" (" + p.Remedy + ")")
	}
	if p.Code != "" {
		b.WriteString(" [" + p.Code + "]")
	}
	switch {
	case p.Mitigation != "" && p.Stops:
		b.WriteString(" [the plan has ended: " + p.Mitigation + "]")
	case p.Mitigation != "":
		b.WriteString(" [planned: " + p.Mitigation + "]")
	case p.Stops && p.Severity == P1:
		b.WriteString(" [blocks: it has no plan under mitigations]")
	case p.Stops && p.Severity == P2:
		b.WriteString(" [blocks: above the declared scale]")
	}
	if p.Impact != "" {
		b.WriteString(" [impact: " + p.Impact + "; resolution: " + p.Resolution + "]")
	}
	return b.String()
}

// Parse reads one declaration file, and lints it. If a problem blocks, the declaration permits nothing. pinned are models whose names tell no version, and of
// which an operator says that they stay with one.
func Parse(file string, data []byte, pinned ...string) (Declaration, []Problem) {
	r := reader{file: file, places: map[string]*yaml.Node{}, broken: map[string]bool{}}
	d := Declaration{File: file, Mode: Advisory, StartPhase: Planning, Sessions: ByHost}
	root := r.load(data)
	if root == nil {
		return d, r.problems
	}
	r.declaration(root, &d)
	if err := d.seal(); err != nil {
		r.problem(root, "", "can't be written as JSON: "+display.Line(err.Error(), display.Whole), "")
	}
	for _, p := range Lint(&d, pinned...) {
		if r.broken[p.Field] {
			continue // it has an error of its own; what Lint sees is only the value that isn't there
		}
		at := r.places[nearest(r.places, p.Field)]
		p.Line, p.Column = at.Line, at.Column
		r.problems = append(r.problems, p)
	}
	d.places = make(map[string][2]int, len(r.places))
	for field, n := range r.places {
		d.places[field] = [2]int{n.Line, n.Column}
	}
	if slices.ContainsFunc(r.problems, Problem.Blocks) {
		d.read, d.write = nil, nil // whoever overlooks the problems gets a declaration that permits nothing
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return d, r.problems
}

// Problem is one of a field of the declaration, with its place in the file.
func (d *Declaration) Problem(field string, s Severity, problem, remedy string) Problem {
	at := d.places[nearest(d.places, field)]
	return Problem{File: d.File, Line: at[0], Column: at[1], Field: field, Severity: s, Problem: problem, Remedy: remedy}
}

// nearest is the longest part of a field's path that is known.
func nearest[T any](places map[string]T, field string) string {
	for field != "" {
		if _, ok := places[field]; ok {
			break
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return field
}

// reader turns YAML nodes into values and collects what is wrong. It never converts: a string must be a string.
type reader struct {
	file     string
	problems []Problem
	places   map[string]*yaml.Node // where each field stands
	broken   map[string]bool       // fields that are there but have no usable value
}

func (r *reader) problem(n *yaml.Node, field, problem, remedy string) {
	p := Problem{File: r.file, Field: field, Severity: Error, Problem: problem, Remedy: remedy}
	if n != nil {
		p.Line, p.Column = n.Line, n.Column
	}
	r.problems = append(r.problems, p)
	r.broken[field] = true
}

// load returns the top mapping of the one document in data, or nil with a problem.
func (r *reader) load(data []byte) *yaml.Node {
	if len(data) > MaxFile {
		r.problem(nil, "", fmt.Sprintf("the file has more than %d bytes", MaxFile), "split or shorten it")
		return nil
	}
	var document yaml.Node
	if err := yaml.Load(data, &document); err != nil {
		r.problems = append(r.problems, Syntax(r.file, err))
		return nil
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		r.problem(&document, "", "is not a declaration", "")
		return nil
	}
	if !r.plain(document.Content[0], 0) {
		return nil
	}
	return document.Content[0]
}

// plain refuses what makes YAML hard to review: aliases, anchors, merge keys, tags and keys that aren't strings.
func (r *reader) plain(n *yaml.Node, depth int) bool {
	switch {
	case depth > call.DefaultLimits().Depth:
		r.problem(n, "", "is nested too deeply", "")
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.problem(n, "", "anchors and aliases are not allowed", "write the value out")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		r.problem(n, "", "tags are not allowed", "write the plain value")
		return false
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && (c.Kind != yaml.ScalarNode || c.ShortTag() != "!!str") {
			r.problem(c, "", "field names must be strings", "put quotes around it")
			return false
		}
		if !r.plain(c, depth+1) {
			return false
		}
	}
	return true
}

// field is one known field of a mapping.
type field struct {
	name     string
	required string // what is lost without it; "" for fields that have a default
	read     func(at string, n *yaml.Node)
}

// fields reads a mapping: unknown and repeated fields are problems, and so are required ones that are missing.
func (r *reader) fields(at string, n *yaml.Node, known []field) {
	if at == "" {
		r.places[""] = n
	}
	if n.Kind != yaml.MappingNode {
		r.problem(n, at, "must be a mapping of fields, not "+kind(n), "")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		k := slices.IndexFunc(known, func(f field) bool { return f.name == key.Value })
		switch {
		case k < 0:
			r.problem(key, join(at, quoteName(key.Value)), "unknown field", suggestion(key.Value, known))
		case seen[key.Value]:
			r.problem(key, join(at, key.Value), "appears twice", "keep one")
		default:
			seen[key.Value] = true
			r.places[join(at, key.Value)] = value
			known[k].read(join(at, key.Value), value)
		}
	}
	for _, f := range known {
		if f.required != "" && !seen[f.name] {
			r.problem(n, join(at, f.name), "is missing", f.required)
			delete(r.broken, join(at, f.name))
		}
	}
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// quoteName shows a field name of the file as it is only if it is harmless.
func quoteName(s string) string {
	if plainName.MatchString(s) {
		return s
	}
	return display.Quote(s, shownMost)
}

// suggestion names the field that was probably meant.
func suggestion(name string, known []field) string {
	squash := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	names := make([]string, len(known))
	for i, f := range known {
		if squash(f.name) == squash(name) {
			return "write " + f.name
		}
		names[i] = f.name
	}
	return "known here: " + strings.Join(names, ", ")
}

func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "empty"
	case "!!bool":
		return "true or false"
	case "!!int":
		return "a number"
	case "!!float":
		return "a fraction or a number too large"
	case "!!timestamp":
		return "a date"
	}
	return "text"
}

// maxText is the most bytes of one text; maxList the most entries of one list.
const (
	maxText = 8 << 10
	maxList = 1000
)

// str reads text. Text is shown to people and models, so control and bidirectional characters are refused.
func (r *reader) str(to *string) func(string, *yaml.Node) {
	return func(at string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			r.problem(n, at, "must be text, not "+kind(n), "put quotes around it if it is meant as text")
			return
		}
		switch s := n.Value; {
		case strings.TrimSpace(s) == "":
			r.problem(n, at, "is empty", "")
		case len(s) > maxText:
			r.problem(n, at, fmt.Sprintf("has more than %d bytes", maxText), "shorten it")
		case strings.ContainsFunc(s, hidden):
			r.problem(n, at, "has control or invisible characters in it", "remove them")
		default:
			*to = s
		}
	}
}

// hidden characters change what a reader sees without being seen.
func hidden(c rune) bool {
	return c != '\n' && c != '\t' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == '\u2029' || c == unicode.ReplacementChar)
}

// checked reads text that must satisfy check, which says what is wrong with it or "".
func (r *reader) checked(to *string, check func(string) string) func(string, *yaml.Node) {
	return func(at string, n *yaml.Node) {
		var s string
		if r.str(&s)(at, n); s == "" {
			return
		}
		if wrong := check(s); wrong != "" {
			r.problem(n, at, wrong, "")
			return
		}
		*to = s
	}
}

func (r *reader) list(to *[]string, check func(string) string) func(string, *yaml.Node) {
	return func(at string, n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			r.problem(n, at, "must be a list, not "+kind(n), "write [] for none")
			return
		}
		if len(n.Content) > maxList {
			r.problem(n, at, fmt.Sprintf("has more than %d entries", maxList), "")
			return
		}
		seen := map[string]bool{}
		for i, c := range n.Content {
			entry := at + "[" + strconv.Itoa(i) + "]"
			r.places[entry] = c
			var s string
			r.checked(&s, check)(entry, c)
			if seen[s] {
				r.problem(c, entry, display.Quote(s, shownMost)+" appears twice", "keep one")
			}
			seen[s] = s != ""
			*to = append(*to, s) // also a broken one, so that places agree
		}
	}
}

func (r *reader) boolean(to *bool) func(string, *yaml.Node) {
	return func(at string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			r.problem(n, at, "must be true or false, not "+kind(n), "")
			return
		}
		*to = n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
	}
}

var plainInt = regexp.MustCompile(`^(0|[1-9][0-9]{0,11})$`)

// integer reads a whole number from least to most. YAML's other notations (octal, hex, underscores) are refused.
func (r *reader) integer(to *int, least, most int, over string) func(string, *yaml.Node) {
	return func(at string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
			r.problem(n, at, "must be a whole number, not "+kind(n), "")
			return
		}
		value, err := strconv.Atoi(n.Value)
		switch {
		case strings.HasPrefix(n.Value, "-"):
			r.problem(n, at, "must not be negative", "")
		case !plainInt.MatchString(n.Value) || err != nil:
			r.problem(n, at, "must be a plain decimal number", "")
		case value > most:
			r.problem(n, at, fmt.Sprintf("%d is over the limit of %d", value, most), over)
		case value < least:
			r.problem(n, at, fmt.Sprintf("must be at least %d", least), "")
		default:
			*to = value
		}
	}
}

func word[T ~string](r *reader, to *T, words ...T) func(string, *yaml.Node) {
	return func(at string, n *yaml.Node) {
		var s string
		if r.str(&s)(at, n); s == "" {
			return
		}
		if !slices.Contains(words, T(s)) {
			all := make([]string, len(words))
			for i, w := range words {
				all[i] = string(w)
			}
			r.problem(n, at, display.Quote(s, shownMost)+" is not known", "write "+strings.Join(all, " or "))
			return
		}
		*to = T(s)
	}
}

func anything(string) string { return "" }

// The expression of semver.org.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-((0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(\+([0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*))?$`)

func checkSemver(s string) string {
	if len(s) > 128 || !semver.MatchString(s) {
		return display.Quote(s, shownMost) + " is not a semantic version like 1.4.0"
	}
	return ""
}

func checkID(s string) string {
	if err := identity.CheckID(s); err != nil {
		return display.Line(err.Error(), display.Whole)
	}
	return ""
}

// Reserved is an id that no agent can have: what the API answers at /v1/agents/audit would hide it.
const Reserved = "audit"

// checkOwnID keeps the ids of trial agents free, and the one that is reserved.
func checkOwnID(s string) string {
	if s == Reserved {
		return display.Quote(s, shownMost) + " is reserved for the audit of agents (sallyport agents audit): choose another"
	}
	if IsTrial(s) {
		return display.Quote(s, shownMost) + " begins with " + trialPrefix + ", as only the ids of sallyport doctor do: choose another"
	}
	return checkID(s)
}

var wordPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkWord(s string) string {
	if !wordPattern.MatchString(s) {
		return display.Quote(s, shownMost) + " is not one word of letters, digits, '.', '_' and '-'"
	}
	return ""
}

func (r *reader) declaration(root *yaml.Node, d *Declaration) {
	const lists = "write [] if there are none"
	r.fields("", root, append([]field{
		{"agentId", "a unique id for the agent", r.checked(&d.AgentID, checkOwnID)},
		{"agentName", "a name for people", r.str(&d.AgentName)},
		{"version", "a semantic version, as in version: 1.0.0", r.checked(&d.Version, checkSemver)},
		{"purpose", "what the agent does", r.str(&d.Purpose)},
		{"capabilities", "what it can do", r.list(&d.Capabilities, anything)},
		{"dataSources", "tables, apis and models it uses", func(at string, n *yaml.Node) {
			r.fields(at, n, []field{
				{"tables", lists, r.list(&d.DataSources.Tables, anything)},
				{"apis", lists, r.list(&d.DataSources.APIs, anything)},
				{"models", lists, r.list(&d.DataSources.Models, anything)},
			})
		}},
		{"permissions", "the operations it may call", func(at string, n *yaml.Node) {
			r.fields(at, n, []field{
				{"read", lists, r.list(&d.Permissions.Read, checkRead)},
				{"write", lists, r.list(&d.Permissions.Write, checkPattern)},
			})
		}},
		{"outputSchema", "", func(at string, n *yaml.Node) { r.schema(at, n, d) }}, // Lint has a word for its absence
		{"outputSchemaVersion", "", r.checked(&d.OutputSchemaVersion, checkSemver)},
		{"maxExecutionTime", "milliseconds, " + strconv.Itoa(DefaultExecutionTime) + " is usual", func(at string, n *yaml.Node) {
			before := len(r.problems)
			r.integer(&d.MaxExecutionTime, 1, MaxExecutionTime, "5 minutes, 300000 milliseconds, is the most")(at, n)
			for i := before; i < len(r.problems); i++ {
				r.problems[i].Code = "A-09"
			}
		}},
		{"maxTokens", "the most tokens a run may use", r.integer(&d.MaxTokens, 0, 1e9, "")},
		{"killSwitchEnabled", "", r.boolean(&d.KillSwitchEnabled)},         // Lint has
		{"humanApprovalRequired", "", r.boolean(&d.HumanApprovalRequired)}, // Lint has
	}, r.ours(d)...))
}

// schema reads the output schema: a mapping of plain values that is a JSON Schema without outside references.
func (r *reader) schema(at string, n *yaml.Node, d *Declaration) {
	if n.Kind != yaml.MappingNode {
		r.problem(n, at, "must be a JSON Schema written as a mapping, not "+kind(n), "")
		return
	}
	value, ok := r.json(at, n)
	if !ok {
		return
	}
	encoded, err := json.Marshal(value)
	if err == nil {
		encoded, err = call.Canonical(encoded, call.DefaultLimits())
	}
	if err == nil {
		_, err = compileSchema(encoded)
	}
	if err != nil {
		r.problem(n, at, "is not a JSON Schema: "+display.Line(err.Error(), display.Whole), "")
		return
	}
	d.OutputSchema = encoded
}

// json turns a node into what encoding/json writes as the same value.
func (r *reader) json(at string, n *yaml.Node) (any, bool) {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if _, twice := m[key]; twice {
				r.problem(n.Content[i], at, display.Quote(key, shownMost)+" appears twice", "keep one")
				return nil, false
			}
			v, ok := r.json(at, n.Content[i+1])
			if !ok {
				return nil, false
			}
			m[key] = v
		}
		return m, true
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, ok := r.json(at, c)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	}
	switch n.ShortTag() {
	case "!!str", "!!timestamp": // a date without quotes is text to JSON
		return n.Value, true
	case "!!null":
		return nil, true
	case "!!bool":
		return strings.EqualFold(n.Value, "true"), true
	case "!!int":
		if i, ok := new(big.Int).SetString(n.Value, 10); ok {
			return json.Number(i.String()), true
		}
	case "!!float":
		if number := json.Number(n.Value); call.Check([]byte(number), call.DefaultLimits()) == nil {
			return number, true
		}
	}
	r.problem(n, at, display.Quote(n.Value, shownMost)+" can't be written in JSON as it stands", "write a plain decimal number, or put quotes around it")
	return nil, false
}
