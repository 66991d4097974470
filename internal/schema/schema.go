// Package schema compiles the JSON schemas of strangers and checks values against them.
//
// Promise: a hostile schema costs little. Size, depth, the number of subschemas, the states of patterns and the expansion of references are bounded before
// the compiler sees any of it, and what one check may cost before and while it is made; nothing outside the schema is read.
package schema

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sentence"
)

const (
	maxSchema      = 256 << 10
	maxSchemaDepth = 64
	maxSubschemas  = 2000  // as written: the compiler's time grows with the square
	maxExpanded    = 50000 // with every $ref written out: what one validation may visit
	maxPattern     = 1 << 10
	maxPatterns    = 16 << 10 // all patterns of a schema together
	maxInstance    = 4 << 20
	maxVisits      = 100_000_000 // of subschemas and words of lists by the values of an instance, at most: some seconds
	costly         = 32          // visits that a comparison with a number, a list or an object of an enum takes as long as
)

// Schema is a compiled JSON schema.
type Schema struct {
	compiled *jsonschema.Schema
	doc      any
	extent
}

// extent is what checking one value may take, with every $ref written out.
type extent struct {
	schemas int // subschemas
	words   int // members that are needed, and values of enums
	states  int // of patterns
}

func (e *extent) add(o extent) {
	e.schemas += o.schemas
	e.words += o.words
	e.states += o.states
}

// Compile compiles a schema within bounds. It follows no reference out of the schema, takes no recursion and no composition that multiplies out,
// and patterns are RE2's. Its errors are fault.ResultInvalid with a message that can stand after "its schema".
func Compile(raw []byte) (s *Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, unfit("breaks the schema compiler")
		}
	}()
	if len(raw) > maxSchema {
		return nil, unfit("is over %d bytes", maxSchema)
	}
	if err := call.Check(raw, call.Limits{Bytes: maxSchema, Depth: maxSchemaDepth, Members: 1 << 16}); err != nil {
		return nil, unfit("is not strict JSON within bounds: %s", display.Line(fault.Of(err).Message, 200))
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, unfit("is not JSON")
	}
	in := inspection{root: doc, sizes: map[uintptr]extent{}}
	all, err := in.schema(doc, true)
	if err != nil {
		return nil, err
	}
	compiled, err := compile(doc, nil)
	if err != nil {
		return nil, err
	}
	return &Schema{compiled, doc, all}, nil
}

// compile compiles what an inspection let through. Its patterns use up what left has; nil: they may take what they take.
func compile(doc any, left *int) (*jsonschema.Schema, error) {
	const location = "https://schema.invalid/"
	c := jsonschema.NewCompiler()
	c.UseLoader(denied{})
	c.UseRegexpEngine(func(p string) (jsonschema.Regexp, error) { return newPattern(p, left) })
	err := c.AddResource(location, doc)
	if err == nil {
		var s *jsonschema.Schema
		if s, err = c.Compile(location); err == nil {
			return s, nil
		}
	}
	return nil, unfit("does not compile: %s", display.Line(strings.ReplaceAll(err.Error(), location, ""), 200))
}

// Validate checks data against the schema. Its errors are fault.ResultInvalid.
func (s *Schema) Validate(data []byte) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case errLong:
			err = fault.New(fault.ResultInvalid, "The value has too much text to check it against the patterns of its schema.")
		default:
			err = unfit("breaks the schema validator")
		}
	}()
	if len(data) > maxInstance {
		return fault.New(fault.ResultInvalid, "The value is over %d bytes, which is too much to check against a schema.", maxInstance)
	}
	if values := 1 + bytes.Count(data, []byte{','}) + bytes.Count(data, []byte{'['}) + bytes.Count(data, []byte{'{'}); values > maxVisits/max(1, s.schemas+s.words) {
		return fault.New(fault.ResultInvalid, "The value has too many parts to check them against a schema of this size.")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fault.Wrap(err, fault.ResultInvalid, "The value is not JSON.")
	}
	compiled := s.compiled
	if s.states > freeMatching/len(data) { // compiled again, since what is left is this value's alone
		left := maxMatching
		if compiled, err = compile(s.doc, &left); err != nil {
			return err
		}
	}
	if err := compiled.Validate(v); err != nil {
		return fault.Wrap(&Mismatch{err}, fault.ResultInvalid, "The value does not match its schema.")
	}
	return nil
}

// Mismatch is the cause of the error of a value that its schema doesn't take.
type Mismatch struct{ err error }

func (m *Mismatch) Error() string { return display.Line(m.err.Error(), 500) }

// maxProblems bounds the problems that are listed.
const maxProblems = 5

// Problems are sentences about what doesn't match, for a model: they have the names of members, as plain words, and no value of either side.
func (m *Mismatch) Problems() []string {
	var all []string
	var add func(*jsonschema.ValidationError)
	add = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			add(cause)
		}
		if len(e.Causes) > 0 || len(all) == maxProblems {
			return
		}
		at := "the value"
		if len(e.InstanceLocation) > 0 {
			at = sentence.Name(strings.Join(e.InstanceLocation, "."))
		}
		problem := at + " is not what the schema allows"
		switch k := e.ErrorKind.(type) {
		case *kind.Required:
			problem = at + " lacks " + sentence.Names(k.Missing)
		case *kind.Type:
			problem = fmt.Sprintf("%s is of the type %s, and has to be %s", at, k.Got, strings.Join(k.Want, " or "))
		case *kind.AdditionalProperties:
			problem = at + " may not have " + sentence.Names(k.Properties)
		}
		if !slices.Contains(all, problem) {
			all = append(all, problem)
		}
	}
	if e := (*jsonschema.ValidationError)(nil); errors.As(m.err, &e) {
		add(e)
	}
	slices.Sort(all) // the library walks maps
	return all
}

func unfit(format string, args ...any) error { return fault.New(fault.ResultInvalid, format, args...) }

// denied refuses every load, because the library's own loader would read files.
type denied struct{}

func (denied) Load(string) (any, error) {
	return nil, errors.New("references out of the schema are not followed")
}

// inspection bounds a schema before the compiler sees it.
type inspection struct {
	root     any
	sizes    map[uintptr]extent // by object; inProgress while it is being found
	written  int
	patterns int
	states   int
}

var inProgress = extent{schemas: -1}

// Keywords whose members are schemas by name, and keywords that hold data.
var (
	schemaMaps   = map[string]bool{"properties": true, "patternProperties": true, "$defs": true, "definitions": true, "dependentSchemas": true, "dependencies": true}
	dataKeywords = map[string]bool{"enum": true, "const": true, "default": true, "examples": true}
)

// schema counts the schemas of v when every reference is written out. It takes unknown keywords for schemas, and what else stands in lists for words.
func (in *inspection) schema(v any, root bool) (total extent, err error) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			one := extent{words: 1}
			switch e.(type) {
			case map[string]any, []any:
				one, err = in.schema(e, false)
			case bool:
				one, err = in.one()
			}
			if err != nil {
				return extent{}, err
			}
			if total.add(one); total.schemas > maxExpanded {
				return extent{}, unfit("comes to over %d schemas", maxExpanded)
			}
		}
	case map[string]any:
		return in.object(v, root)
	}
	return total, nil
}

// one counts a subschema as written.
func (in *inspection) one() (extent, error) {
	if in.written++; in.written > maxSubschemas {
		return extent{}, unfit("has over %d subschemas", maxSubschemas)
	}
	return extent{schemas: 1}, nil
}

func (in *inspection) object(m map[string]any, root bool) (extent, error) {
	at := reflect.ValueOf(m).Pointer()
	switch n, ok := in.sizes[at]; {
	case ok && n == inProgress:
		return extent{}, unfit("refers to itself")
	case ok:
		return n, nil
	}
	in.sizes[at] = inProgress
	total, err := in.one()
	if err != nil {
		return extent{}, err
	}
	add := func(v any) error {
		n, err := in.schema(v, false)
		if total.add(n); err == nil && total.schemas > maxExpanded {
			err = unfit("comes to over %d schemas", maxExpanded)
		}
		return err
	}
	pattern := func(p string) error {
		n, err := in.pattern(p)
		total.states += n
		return err
	}
	for keyword, v := range m {
		var err error
		switch {
		case keyword == "enum":
			total.words += compared(v)
		case dataKeywords[keyword]:
		case keyword == "$ref":
			ref, _ := v.(string)
			var target any
			if target, err = in.resolve(ref); err == nil {
				err = add(target)
			}
		case keyword == "$dynamicRef" || keyword == "$recursiveRef" || keyword == "$recursiveAnchor" || keyword == "$dynamicAnchor":
			err = unfit("uses %s", keyword)
		case (keyword == "$id" || keyword == "id") && !root:
			if _, ok := v.(string); ok {
				err = unfit("gives a part of it an address of its own")
			}
		case keyword == "pattern":
			if p, ok := v.(string); ok {
				err = pattern(p)
			}
		case schemaMaps[keyword]:
			named, ok := v.(map[string]any)
			if !ok {
				break // the compiler says so
			}
			for name, inner := range named {
				if keyword == "patternProperties" {
					err = pattern(name)
				}
				if _, is := inner.(bool); is && err == nil {
					_, err = in.one()
				}
				if err == nil {
					err = add(inner)
				}
				if err != nil {
					break
				}
			}
		default:
			err = add(v)
		}
		if err != nil {
			return extent{}, err
		}
	}
	in.sizes[at] = total
	return total, nil
}

// compared is what comparing a value with the values of an enum takes.
func compared(enum any) (words int) {
	list, _ := enum.([]any)
	for _, e := range list {
		switch e.(type) {
		case string, bool, nil:
			words++
		default:
			words += costly
		}
	}
	return words
}

// pattern bounds a pattern, and tells its states.
func (in *inspection) pattern(p string) (int, error) {
	if in.patterns += len(p); len(p) > maxPattern || in.patterns > maxPatterns {
		return 0, unfit("has patterns over %d bytes, or over %d bytes in all", maxPattern, maxPatterns)
	}
	n := states(p)
	if in.states += n; in.states > maxStates {
		return 0, unfit("has patterns that repeat too much")
	}
	return n, nil
}

// resolve follows a JSON pointer within the schema.
func (in *inspection) resolve(ref string) (any, error) {
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		if ref == "#" {
			return nil, unfit("refers to itself")
		}
		return nil, unfit("has a $ref other than #/…")
	}
	if strings.ContainsRune(pointer, '%') {
		return nil, unfit("has a $ref with percent signs")
	}
	v := in.root
	for _, step := range strings.Split(pointer, "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch at := v.(type) {
		case map[string]any:
			if v, ok = at[step]; !ok {
				return nil, unfit("has a $ref to nothing")
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil, unfit("has a $ref to nothing")
			}
			v = at[i]
		default:
			return nil, unfit("has a $ref to nothing")
		}
	}
	return v, nil
}
