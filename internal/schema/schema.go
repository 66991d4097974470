// Package schema compiles the JSON schemas of strangers and checks values against them.
//
// Promise: a hostile schema costs nothing. Size, depth, the number of subschemas and the expansion of references are bounded before the compiler sees
// any of it; nothing outside the schema is read.
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
	maxVisits      = 100_000_000 // of subschemas by the values of an instance, at most: some seconds
)

// Schema is a compiled JSON schema.
type Schema struct {
	compiled *jsonschema.Schema
	size     int // subschemas, with every $ref written out
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
	in := inspection{root: doc, sizes: map[uintptr]int{}}
	size, err := in.schema(doc, true)
	if err != nil {
		return nil, err
	}
	const location = "https://schema.invalid/"
	c := jsonschema.NewCompiler()
	c.UseLoader(denied{})
	var compiled *jsonschema.Schema
	if err = c.AddResource(location, doc); err == nil {
		compiled, err = c.Compile(location)
	}
	if err != nil {
		return nil, unfit("does not compile: %s", display.Line(strings.ReplaceAll(err.Error(), location, ""), 200))
	}
	return &Schema{compiled, max(size, 1)}, nil
}

// Validate checks data against the schema. Its errors are fault.ResultInvalid.
func (s *Schema) Validate(data []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = unfit("breaks the schema validator")
		}
	}()
	if len(data) > maxInstance {
		return fault.New(fault.ResultInvalid, "The value is over %d bytes, which is too much to check against a schema.", maxInstance)
	}
	if values := 1 + bytes.Count(data, []byte{','}) + bytes.Count(data, []byte{'['}) + bytes.Count(data, []byte{'{'}); values > maxVisits/s.size {
		return fault.New(fault.ResultInvalid, "The value has too many parts to check them against a schema of this size.")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fault.Wrap(err, fault.ResultInvalid, "The value is not JSON.")
	}
	if err := s.compiled.Validate(v); err != nil {
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
	sizes    map[uintptr]int // expanded size by object; inProgress while it is being found
	written  int
	patterns int
}

const inProgress = -1

// Keywords whose members are schemas by name, and keywords that hold data.
var (
	schemaMaps   = map[string]bool{"properties": true, "patternProperties": true, "$defs": true, "definitions": true, "dependentSchemas": true, "dependencies": true}
	dataKeywords = map[string]bool{"enum": true, "const": true, "default": true, "examples": true}
)

// schema counts the schemas of v when every reference is written out. It takes unknown keywords for schemas.
func (in *inspection) schema(v any, root bool) (int, error) {
	switch v := v.(type) {
	case []any:
		total := 0
		for _, e := range v {
			n, err := in.schema(e, false)
			if err != nil {
				return 0, err
			}
			if total += n; total > maxExpanded {
				return 0, unfit("comes to over %d schemas", maxExpanded)
			}
		}
		return total, nil
	case map[string]any:
		return in.object(v, root)
	}
	return 0, nil
}

func (in *inspection) object(m map[string]any, root bool) (int, error) {
	at := reflect.ValueOf(m).Pointer()
	switch n, ok := in.sizes[at]; {
	case ok && n == inProgress:
		return 0, unfit("refers to itself")
	case ok:
		return n, nil
	}
	in.sizes[at] = inProgress
	if in.written++; in.written > maxSubschemas {
		return 0, unfit("has over %d subschemas", maxSubschemas)
	}
	total := 1
	add := func(v any) error {
		n, err := in.schema(v, false)
		if total += n; err == nil && total > maxExpanded {
			err = unfit("comes to over %d schemas", maxExpanded)
		}
		return err
	}
	for keyword, v := range m {
		var err error
		switch {
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
				err = in.pattern(p)
			}
		case schemaMaps[keyword]:
			named, ok := v.(map[string]any)
			if !ok {
				break // the compiler says so
			}
			for name, inner := range named {
				if keyword == "patternProperties" {
					err = in.pattern(name)
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
			return 0, err
		}
	}
	in.sizes[at] = total
	return total, nil
}

func (in *inspection) pattern(p string) error {
	if in.patterns += len(p); len(p) > maxPattern || in.patterns > maxPatterns {
		return unfit("has patterns over %d bytes, or over %d bytes in all", maxPattern, maxPatterns)
	}
	return nil
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
