package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// MaxBytes is the length of the longest file that is read.
const MaxBytes = 64 << 20

// limits bound the JSON of one file.
func limits() call.Limits { return call.Limits{Bytes: MaxBytes, Depth: 64, Members: 8_000_000} }

const labelsFormat = "tool-labels/1"

// Labels are what an operator says about tools, suite by suite, and the person's own identities in each.
type Labels struct {
	principals map[string]principal
	suites     map[string]map[string]tool
	odd        []string // members that the format doesn't have
}

type principal struct {
	Own []string `json:"own"`
}

type toolLabel struct {
	InternalSource bool              `json:"internal_source"`
	External       *bool             `json:"external"`
	Output         string            `json:"output"`
	Shape          string            `json:"shape"`
	TrustedFields  []string          `json:"trusted_fields"`
	Names          []string          `json:"names"`
	Delegable      []string          `json:"delegable"`
	IDKind         string            `json:"id_kind"`
	Level          *int              `json:"level"`
	Boundary       string            `json:"boundary"`
	EgressURL      bool              `json:"egress_url"`
	Args           map[string]string `json:"args"`
	MayOmit        []string          `json:"may_omit"`
	// What the format has and no rule looks at.
	Reads         string `json:"reads"`
	Consequential bool   `json:"consequential"`
	Author        string `json:"author"`
	Reason        string `json:"reason"`
}

var labelFields = []string{"internal_source", "external", "output", "shape", "trusted_fields", "names", "delegable", "id_kind", "level", "boundary", "egress_url", "args", "may_omit",
	"reads", "consequential", "author", "reason"}

// ReadLabels reads a file of the format "tool-labels/1". Name stands in errors, which are fault.ConfigurationInvalid.
func ReadLabels(name string, data []byte) (*Labels, error) {
	if err := wellFormed(name, data); err != nil {
		return nil, err
	}
	var f struct {
		Format     string                                `json:"format"`
		Principals map[string]principal                  `json:"principals"`
		Suites     map[string]map[string]json.RawMessage `json:"suites"`
	}
	if err := unmarshal(name, "", data, &f); err != nil {
		return nil, err
	}
	if f.Format != labelsFormat {
		return nil, malformed(name, "format", "%.40q is not %s, so this is no file of labels", f.Format, labelsFormat).
			Try("name one after --labels that begins with {\"format\": \"%s\", and recorded work as TRACE", labelsFormat)
	}
	if f.Suites == nil {
		return nil, malformed(name, "suites", "is missing")
	}
	l := &Labels{principals: f.Principals, suites: map[string]map[string]tool{}}
	for _, suite := range slices.Sorted(maps.Keys(f.Suites)) {
		l.suites[suite] = map[string]tool{}
		for _, called := range slices.Sorted(maps.Keys(f.Suites[suite])) {
			at := "suites." + suite + "." + called
			raw := f.Suites[suite][called]
			var label toolLabel
			if err := unmarshal(name, at, raw, &label); err != nil {
				return nil, err
			}
			for field := range call.Members(raw) {
				if !slices.Contains(labelFields, field) {
					l.odd = append(l.odd, fmt.Sprintf("%s: %s.%.80s is not looked at: %s has no such field", name, at, field, labelsFormat))
				}
			}
			t, err := label.resolve(suite, called)
			if err != nil {
				return nil, malformed(name, at, "%v", err)
			}
			l.suites[suite][called] = t
		}
	}
	return l, nil
}

// ownLabels are the confidentiality labels of the format.
var ownLabels = []flow.Label{flow.Internal}

// resolve makes the operation and profile that a label describes.
func (t toolLabel) resolve(suite, name string) (tool, error) {
	spec := flow.Spec{ID: suite + "." + name, Name: name, Sensitivity: flow.None, Effect: flow.Write}
	external := t.External == nil || *t.External // what nobody spoke of could carry data out
	switch {
	case t.InternalSource && external:
		spec.Sensitivity = flow.Both
	case t.InternalSource:
		spec.Sensitivity = flow.InternalSource
	case external:
		spec.Sensitivity = flow.External
	}
	p := &provenance.Profile{
		Output: provenance.Output(t.Output), TrustedFields: t.TrustedFields, Names: t.Names, Delegable: t.Delegable, IDKind: t.IDKind, Level: 2,
		Boundary: provenance.Boundary(t.Boundary), EgressURL: t.EgressURL, MayOmit: t.MayOmit,
	}
	if t.Level != nil {
		p.Level = *t.Level
	}
	if p.Level == 0 {
		spec.Effect = flow.Read
	}
	if t.Shape != "" {
		shape, err := regexp.Compile(t.Shape)
		if err != nil {
			return tool{}, fmt.Errorf("shape: %w", err)
		}
		p.Shape = shape
	}
	if t.Args != nil {
		p.Args = map[string]provenance.Role{}
		for arg, role := range t.Args {
			p.Args[arg] = provenance.Role(role)
		}
	}
	if problems := p.Check(); len(problems) > 0 {
		return tool{}, fmt.Errorf("%s", problems[0])
	}
	spec.Untrusted = p.Output != provenance.TrustedOutput && p.Output != provenance.TypedOutput
	op, err := flow.Resolve(spec, ownLabels)
	return tool{op, p}, err
}

// toolbox is a suite's tools.
type toolbox struct {
	suite   string
	own     []string
	tools   map[string]tool
	unknown map[string]bool // tools that were called and have no label
}

func (l *Labels) toolbox(suite string) *toolbox {
	return &toolbox{suite: suite, own: l.principals[suite].Own, tools: l.suites[suite], unknown: map[string]bool{}}
}

// tool is what a tool is by its label, or what one is that nobody described.
func (b *toolbox) tool(name string) tool {
	if t, ok := b.tools[name]; ok {
		return t
	}
	b.unknown[name] = true
	t, err := toolLabel{}.resolve(b.suite, name)
	if err != nil { // an empty label always resolves
		panic(err)
	}
	return t
}

// malformed is an error about a field of a file.
func malformed(file, field, format string, args ...any) *fault.Error {
	at := file
	if field != "" {
		at += ": " + field
	}
	return fault.New(fault.ConfigurationInvalid, format, args...).At(at)
}

// wellFormed parses a file as strictly as the gateway parses calls.
func wellFormed(name string, data []byte) error {
	if err := call.Check(data, limits()); err != nil {
		return malformed(name, "", "%v", err)
	}
	return nil
}

// unmarshal reads checked JSON. A value of the wrong type is an error that names its field.
func unmarshal(file, at string, data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	if wrong, ok := err.(*json.UnmarshalTypeError); ok {
		field := wrong.Field
		if at != "" && field != "" {
			at += "."
		}
		article := "a"
		if wrong.Value == "array" || wrong.Value == "object" {
			article = "an"
		}
		return malformed(file, at+field, "must not be %s %s", article, wrong.Value)
	}
	return malformed(file, at, "%v", err)
}
