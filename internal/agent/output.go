package agent

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sallyport.example/internal/call"
)

// lintOutput tries the schema of an agent's output (AG-7): what it lets through counts, however it is spelled. In citations, whose source is
// compared with the declared ones, free text is less bad. Members that are too free keep an agent from answering, and not from its tools.
func lintOutput(d *Declaration) (all []Problem) {
	schema := d.OutputSchema
	add := func(s Severity, problem, remedy string) {
		code := ""
		if s == P0 {
			code = "A-04"
		}
		all = append(all, Problem{File: d.File, Field: "outputSchema", Severity: s, Problem: problem, Remedy: remedy, Code: code, usable: true})
	}
	const remedy = "describe the output as type: object with properties, some of them required"
	if len(schema) == 0 || string(schema) == "null" {
		add(P0, "output is not structured: there is no output schema", remedy)
		all[0].usable = false
		return all
	}
	s, err := compileSchema(schema)
	if err != nil {
		return nil // Parse has said so
	}
	for _, try := range []struct {
		what  string
		value any
	}{{"a string", "text"}, {"an array", []any{"text"}}, {"an array", []any{}}, {"an array", []any{map[string]any{}}}, {"a number", json.Number("1")}, {"true", true}, {"null", nil}} {
		if s.Validate(try.value) == nil {
			add(P0, "output is not structured: it accepts "+try.what, remedy)
			all[0].usable = false
			return all
		}
	}
	if !onlyObject(s, map[*jsonschema.Schema]bool{}) {
		add(P0, "output is not structured: its type is not object", remedy)
		all[0].usable = false
		return all
	}
	l := outputLint{seen: map[*jsonschema.Schema]bool{}, found: map[string]Severity{}}
	l.object(s, "", P0)
	if s.Validate(map[string]any{}) == nil {
		l.report("it accepts {}, an answer without anything: make what it has to say required", P0)
	}
	for _, problem := range slices.Sorted(maps.Keys(l.found)) {
		add(l.found[problem], problem, "give each member a type; text a pattern without < and a maxLength, or an enum; and each object additionalProperties: false")
	}
	missing := func(problem, remedy string) {
		add(P1, problem, remedy)
		all[len(all)-1].Code = "A-10"
	}
	if problem := citations(s); problem != "" {
		missing(problem, "add citations to required, and describe it as a list (type: array) of objects that require source, timestamp and confidence, with recordId beside them")
	}
	if inSchema(schema, func(part map[string]any) bool {
		mark, is := part["x-claim"]
		return is && mark != true && mark != false
	}) {
		add(P0, "a mark x-claim is neither true nor false, so the claim would not be checked", "write x-claim: true")
	}
	if !inSchema(schema, func(part map[string]any) bool { return part["x-fact"] == true }) {
		missing("no member is marked as a fact, so no fact needs a citation", "write x-fact: true into the schema of each member that states one, as in reasoning: {type: string, x-fact: true}")
	}
	return all
}

// inSchema tells whether a part of the schema is so.
func inSchema(schema []byte, is func(part map[string]any) bool) bool {
	var within func(v any) bool
	within = func(v any) bool {
		switch v := v.(type) {
		case map[string]any:
			return is(v) || slices.ContainsFunc(slices.Collect(maps.Values(v)), within)
		case []any:
			return slices.ContainsFunc(v, within)
		}
		return false
	}
	var s any
	return call.Decode(schema, &s) == nil && within(s)
}

// maxOutputMembers is how many members of a schema are looked at, with every reference written out.
const maxOutputMembers = 5000

// outputLint looks at the members of a compiled schema.
type outputLint struct {
	steps int
	seen  map[*jsonschema.Schema]bool // on the way to what is looked at
	found map[string]Severity
}

func (l *outputLint) report(problem string, s Severity) {
	if old, known := l.found[problem]; !known || s < old {
		l.found[problem] = s
	}
}

// parts yields the schema and those that the same value is checked against.
func parts(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool, yield func(*jsonschema.Schema)) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	yield(s)
	for _, part := range slices.Concat([]*jsonschema.Schema{s.Ref, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf, slices.Collect(maps.Values(s.DependentSchemas))) {
		parts(part, seen, yield)
	}
}

// value looks at what a member may be. as is how bad it is.
func (l *outputLint) value(s *jsonschema.Schema, path string, as Severity) {
	if s == nil || l.seen[s] {
		return
	}
	if l.steps++; l.steps > maxOutputMembers {
		l.report("it has more members than are looked at", P0)
		return
	}
	if accepts(s, json.Number("1")) && accepts(s, true) && (accepts(s, "text") || accepts(s, map[string]any{"x": "text"}) || accepts(s, []any{"text"})) {
		l.report("the member "+path+" may be of any type", as)
		return
	}
	if mayHoldMarkup(s, map[*jsonschema.Schema]bool{}) {
		l.report("the member "+path+" may hold HTML", as)
	}
	l.object(s, path, as)
	items := false
	parts(s, map[*jsonschema.Schema]bool{}, func(part *jsonschema.Schema) {
		all := slices.Concat(part.PrefixItems, []*jsonschema.Schema{part.Items2020})
		switch old := part.Items.(type) {
		case *jsonschema.Schema:
			all = append(all, old)
		case []*jsonschema.Schema:
			all = append(all, old...)
		}
		for _, item := range all {
			if item != nil {
				items = true
				l.value(item, path+"[]", as)
			}
		}
	})
	if !items && accepts(s, []any{"<b>text</b>"}) {
		l.report("the elements of "+path+" may be of any type", as)
	}
}

// object looks at the members of an object.
func (l *outputLint) object(s *jsonschema.Schema, path string, as Severity) {
	if l.seen[s] {
		return
	}
	l.seen[s] = true
	defer delete(l.seen, s)
	named, closed := false, false
	parts(s, map[*jsonschema.Schema]bool{}, func(part *jsonschema.Schema) {
		for _, name := range slices.Sorted(maps.Keys(part.Properties)) {
			named = true
			at, severity := name, as
			if path != "" {
				at = path + "." + name
			} else if name == "citations" {
				severity = P1
			}
			l.value(part.Properties[name], at, severity)
		}
		for pattern, member := range part.PatternProperties {
			named = true
			l.value(member, strings.TrimPrefix(path+"."+pattern.String(), "."), as)
		}
		switch extra := part.AdditionalProperties.(type) {
		case bool:
			closed = closed || !extra
		case *jsonschema.Schema:
			named = true
			l.value(extra, strings.TrimPrefix(path+".*", "."), as)
		}
		if u := part.UnevaluatedProperties; u != nil && u.Bool != nil && !*u.Bool {
			closed = true
		}
	})
	switch {
	case closed || !accepts(s, map[string]any{}) && !named && path != "":
	case !named && path != "":
		l.report("the member "+path+" may have members of any type", as)
	case named && path == "":
		l.report("it accepts unknown members", P1)
	case named:
		l.report("the member "+path+" accepts unknown members", P1)
	}
}

// citations tries whether citations are a list of objects with source, timestamp and confidence (AG-9), and says what is wrong; "" nothing.
func citations(s *jsonschema.Schema) string {
	var list *jsonschema.Schema
	required := false
	parts(s, map[*jsonschema.Schema]bool{}, func(part *jsonschema.Schema) {
		list = cmp.Or(list, part.Properties["citations"])
		required = required || slices.Contains(part.Required, "citations")
	})
	if list == nil {
		return "the output has no citations"
	}
	whole := map[string]any{"source": "mail", "timestamp": "2026-01-02T15:04:05Z", "confidence": json.Number("0.5"), "recordId": "1"}
	bad := accepts(list, "text") || accepts(list, whole) || accepts(list, json.Number("1")) || accepts(list, []any{"text"}) || accepts(list, []any{map[string]any{}})
	for _, name := range []string{"source", "timestamp", "confidence"} {
		less := maps.Clone(whole)
		delete(less, name)
		bad = bad || accepts(list, []any{less})
		less[name] = []any{}
		bad = bad || accepts(list, []any{less})
	}
	switch {
	case bad:
		return "citations is not a list of objects with source, timestamp and confidence"
	case !required:
		return "an output without citations is accepted"
	}
	return ""
}

// onlyObject reports whether the schema says that a value is an object.
func onlyObject(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool) bool {
	if s == nil || seen[s] {
		return false
	}
	seen[s] = true
	defer delete(seen, s)
	not := func(part *jsonschema.Schema) bool { return !onlyObject(part, seen) }
	all := func(of []*jsonschema.Schema) bool { return len(of) > 0 && !slices.ContainsFunc(of, not) }
	return s.Types != nil && slices.Equal(s.Types.ToStrings(), []string{"object"}) || s.Ref != nil && !not(s.Ref) || all(s.AnyOf) || all(s.OneOf) ||
		slices.ContainsFunc(s.AllOf, func(part *jsonschema.Schema) bool { return !not(part) })
}

func accepts(s *jsonschema.Schema, value any) bool { return s.Validate(value) == nil }

// markup are texts that no member should be.
var markup = []string{"<b>x</b>", "<p>", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "text <a href='//x.example'>text</a>", "# Title\n<b>x</b>"}

// mayHoldMarkup reports whether a value may be a text with a tag in it. What is not plainly free of it may.
func mayHoldMarkup(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool) bool {
	if seen[s] {
		return false
	}
	seen[s] = true
	defer delete(seen, s)
	for _, text := range markup {
		if accepts(s, text) {
			return true
		}
	}
	may := func(of *jsonschema.Schema) bool { return mayHoldMarkup(of, seen) }
	none := func(of []*jsonschema.Schema) bool { return len(of) > 0 && !slices.ContainsFunc(of, may) }
	switch {
	case s.Bool != nil:
		return *s.Bool
	case s.Types != nil && !slices.Contains(s.Types.ToStrings(), "string"),
		s.Format != nil, // asserted: the texts above were refused by it, or by what stands beside it
		s.MaxLength != nil && *s.MaxLength < len("<p>"),
		s.Pattern != nil && cleanPattern(s.Pattern.String()),
		s.Ref != nil && !may(s.Ref), none(s.AnyOf), none(s.OneOf),
		slices.ContainsFunc(s.AllOf, func(part *jsonschema.Schema) bool { return !may(part) }):
		return false
	case s.Const != nil:
		return hasTag(*s.Const)
	case s.Enum != nil:
		return slices.ContainsFunc(s.Enum.Values, hasTag)
	case s.Not != nil:
		return !slices.ContainsFunc([]string{"<", "a<b", "<\n"}, func(text string) bool { return accepts(s.Not, text) })
	}
	return true
}

func hasTag(v any) bool {
	text, ok := v.(string)
	return ok && strings.Contains(text, "<")
}

// cleanPattern reports whether a pattern holds for a whole text and leaves no room for a tag.
func cleanPattern(pattern string) bool {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return false
	}
	re = re.Simplify()
	return !canBe(re, '<') && Anchored(re)
}

// canBe reports whether a part of the pattern matches the character.
func canBe(re *syntax.Regexp, c rune) bool {
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	case syntax.OpLiteral:
		return slices.Contains(re.Rune, c)
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			if re.Rune[i] <= c && c <= re.Rune[i+1] {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return canBe(sub, c) })
}

// Anchored reports whether a pattern holds for a whole text or not at all: it begins and ends where the text does.
func Anchored(re *syntax.Regexp) bool {
	var edge func(re *syntax.Regexp, end bool) bool
	edge = func(re *syntax.Regexp, end bool) bool {
		switch re.Op {
		case syntax.OpBeginText:
			return !end
		case syntax.OpEndText:
			return end
		case syntax.OpCapture:
			return edge(re.Sub[0], end)
		case syntax.OpConcat:
			if len(re.Sub) == 0 {
				return false
			}
			if end {
				return edge(re.Sub[len(re.Sub)-1], end)
			}
			return edge(re.Sub[0], end)
		case syntax.OpAlternate:
			return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !edge(sub, end) })
		}
		return false
	}
	return edge(re, false) && edge(re, true)
}
