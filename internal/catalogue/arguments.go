package catalogue

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// CheckArguments holds the arguments of a call against the inputSchema of the accepted definition: no person has to decide on a call that its server
// would refuse. Its errors are fault.RequestMalformed, in words that a model may read.
func (op *Operation) CheckArguments(arguments []byte) error {
	if op.input == nil {
		return nil
	}
	check, err := op.input()
	if err == nil {
		err = check(arguments)
	}
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.RequestMalformed, "The arguments do not match the input schema of %s%s.", op.Name, Problems(err)).At("arguments").Try("Correct them by the tool's definition.")
}

// Problems is the rest of a sentence about a value that its schema does not take: what does not match, as far as the error says.
func Problems(err error) string {
	if m := (interface{ Problems() []string })(nil); errors.As(err, &m) && len(m.Problems()) > 0 {
		return ": " + strings.Join(m.Problems(), "; ")
	}
	return ""
}

// inputCheck compiles the inputSchema of a definition when the first call needs it, once for as long as the definition is offered. c.mu is held.
func (c *Catalogue) inputCheck(hash string, definition []byte) func() (func([]byte) error, error) {
	if known := c.inputs[hash]; known != nil {
		return known
	}
	return sync.OnceValues(func() (func([]byte) error, error) {
		schema, ok := call.Get(definition, "inputSchema")
		if !ok {
			return nil, errors.New("the definition has no inputSchema")
		}
		return c.o.Schema(schema)
	})
}

const (
	maxDefaultsDepth = 16   // members inside members
	maxDefaultsSeen  = 5000 // schemas that are looked at in one definition
)

// defaults are values that an accepted definition gives to what a call leaves out.
type defaults struct {
	value json.RawMessage      // nil: none
	in    map[string]*defaults // of members
	items *defaults            // of the elements of a list
}

// defaultsReader reads the defaults of one definition.
type defaultsReader struct {
	root any
	want func(names []string) bool // whether the default of what these names lead to is wanted
	seen int
}

// placeDefaults are the defaults of arguments that may say where a call goes; nil if there are none.
func placeDefaults(definition []byte, p *provenance.Profile) *defaults {
	if !p.HasRoles() {
		return nil
	}
	return readDefaults(definition, func(names []string) bool { return p.MayPlace(names...) })
}

func readDefaults(definition []byte, want func([]string) bool) *defaults {
	raw, _ := call.Get(definition, "inputSchema")
	r := defaultsReader{want: want}
	if call.Decode(raw, &r.root) != nil {
		return nil
	}
	return r.read([]any{r.root}, nil)
}

// read reads the defaults of a value for which all these schemas stand.
func (r *defaultsReader) read(schemas []any, names []string) *defaults {
	var all []map[string]any
	for _, s := range schemas {
		all = r.flat(all, s, 0)
	}
	d := &defaults{in: map[string]*defaults{}}
	members, items := map[string][]any{}, []any(nil)
	for _, s := range all {
		if v, ok := s["default"]; ok && v != nil && d.value == nil && len(names) > 0 && r.want(names) {
			d.value, _ = call.Encode(v) // of decoded JSON: can't fail
		}
		properties, _ := s["properties"].(map[string]any)
		for name, member := range properties {
			members[name] = append(members[name], member)
		}
		if s["items"] != nil {
			items = append(items, s["items"])
		}
	}
	if len(names) < maxDefaultsDepth {
		for _, name := range slices.Sorted(maps.Keys(members)) { // in order: with a definition that breaks the bound, too, every look finds the same
			if inner := r.read(members[name], append(slices.Clip(names), name)); inner != nil {
				d.in[name] = inner
			}
		}
		if items != nil {
			d.items = r.read(items, names)
		}
	}
	if d.value == nil && d.items == nil && len(d.in) == 0 {
		return nil
	}
	return d
}

// flat adds a schema and those that hold for the same value: what it refers to and what it is composed of.
func (r *defaultsReader) flat(all []map[string]any, schema any, depth int) []map[string]any {
	s, ok := schema.(map[string]any)
	if r.seen++; !ok || r.seen > maxDefaultsSeen || depth > maxDefaultsDepth {
		return all
	}
	all = append(all, s)
	if ref, ok := s["$ref"].(string); ok {
		all = r.flat(all, r.resolve(ref), depth+1)
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := s[keyword].([]any)
		for _, one := range list {
			all = r.flat(all, one, depth+1)
		}
	}
	for _, keyword := range []string{"then", "else"} {
		all = r.flat(all, s[keyword], depth+1)
	}
	return all
}

// resolve follows a JSON pointer within the schema; nil if it leads nowhere.
func (r *defaultsReader) resolve(ref string) any {
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	v := r.root
	for _, step := range strings.Split(pointer, "/") {
		m, _ := v.(map[string]any)
		v = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
	}
	return v
}

// WithDefaults writes into arguments the values that the accepted definition gives to destinations and URLs that they leave out, as the server would.
// So what is judged, shown and hashed is what happens. elsewhere tells whether an argument comes from somewhere else; nil: none does. The
// result is canonical if arguments are.
func (op *Operation) WithDefaults(arguments []byte, elsewhere func(name string) bool) ([]byte, error) {
	if op.places == nil {
		return arguments, nil
	}
	var v map[string]any
	if err := call.Decode(arguments, &v); err != nil {
		return nil, err
	}
	if !op.places.fill(v, elsewhere) {
		return arguments, nil
	}
	b, err := call.Encode(v)
	if err != nil {
		return nil, err
	}
	return call.Canonical(b, call.DefaultLimits())
}

// fill writes missing values into v and tells whether there were any.
func (d *defaults) fill(v any, elsewhere func(string) bool) (changed bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range d.in {
			if elsewhere != nil && elsewhere(name) {
				continue
			}
			if _, given := v[name]; !given && inner.value != nil {
				var value any
				if call.Decode(inner.value, &value) != nil { // it was encoded from decoded JSON
					continue
				}
				v[name], changed = value, true
			}
			changed = inner.fill(v[name], nil) || changed
		}
	case []any:
		for _, e := range v {
			changed = d.items != nil && d.items.fill(e, nil) || changed
		}
	}
	return changed
}

const (
	maxLeftOut      = 10  // arguments that LeftOut names
	maxLeftOutValue = 120 // bytes of each value
)

// LeftOut says in sentences which arguments a call leaves out that have a default by the accepted definition. They are for people: a default is the
// server's own text, made safe to show.
func (op *Operation) LeftOut(arguments []byte) (says []string) {
	d := readDefaults(op.Definition, func(names []string) bool { return len(names) == 1 })
	if d == nil {
		return nil
	}
	var names []string
	for name, inner := range d.in {
		if _, given := call.Get(arguments, name); !given && inner.value != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		if i == maxLeftOut {
			return append(says, fmt.Sprintf("%d more arguments are left out that have a default.", len(names)-i))
		}
		says = append(says, fmt.Sprintf("%s is left out. By the tool's definition it is then %s.", display.Line(name, 80), display.Clip(display.Line(string(d.in[name].value), maxLeftOutValue), maxLeftOutValue)))
	}
	return says
}
