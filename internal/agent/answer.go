package agent

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	schemakind "github.com/santhosh-tekuri/jsonschema/v6/kind"

	"sallyport.example/internal/display"
)

// maxMismatches bounds what CheckOutput lists.
const maxMismatches = 5

// CheckOutput says where an output, which is checked JSON, is not what the declaration's schema allows: a path, and what is wrong there. It lists a few,
// and no value of the output stands in them. Nothing: it is what the schema allows.
func (d *Declaration) CheckOutput(output []byte) (problems []string) {
	defer func() {
		if recover() != nil { // a defect of the library is no reason to accept anything
			problems = []string{"the output breaks the schema validator"}
		}
	}()
	s, err := compileSchema(d.OutputSchema)
	if err != nil || string(d.OutputSchema) == "null" {
		return []string{"the declaration has no output schema"}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(output))
	if err != nil {
		return []string{"the output is not JSON"}
	}
	err = s.Validate(value)
	if err == nil {
		return nil
	}
	invalid := (*jsonschema.ValidationError)(nil)
	if !errors.As(err, &invalid) {
		return []string{"the output is not what the schema allows"}
	}
	var add func(*jsonschema.ValidationError)
	add = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			add(cause)
		}
		if len(e.Causes) == 0 {
			problems = append(problems, mismatch(e))
		}
	}
	add(invalid)
	slices.Sort(problems) // the library walks maps
	problems = slices.Compact(problems)
	return problems[:min(len(problems), maxMismatches)]
}

func mismatch(e *jsonschema.ValidationError) string {
	at := "the output"
	if len(e.InstanceLocation) > 0 {
		at = display.Line(strings.Join(e.InstanceLocation, "."), shownMost)
	}
	names := func(all []string) string {
		quoted := make([]string, len(all))
		for i, name := range all {
			quoted[i] = display.Quote(name, shownMost)
		}
		return strings.Join(quoted[:min(len(quoted), maxMismatches)], ", ")
	}
	switch k := e.ErrorKind.(type) {
	case *schemakind.Required:
		return at + ": lacks " + names(k.Missing)
	case *schemakind.Type:
		return fmt.Sprintf("%s: is of the type %s, and has to be %s", at, k.Got, strings.Join(k.Want, " or "))
	case *schemakind.AdditionalProperties:
		return at + ": may not have " + names(k.Properties)
	}
	keyword := "schema"
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		keyword = path[0]
	}
	return at + ": is not what the schema's " + keyword + " allows"
}
