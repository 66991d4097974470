package run

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// MaxOutput bounds an output, in bytes.
const MaxOutput = 512 << 10

// outputLimits bound how an output is built.
var outputLimits = call.Limits{Bytes: MaxOutput, Depth: 32, Members: 50_000}

// ReadOutput reads an output: one JSON object that the declaration's schema allows, in which no text has the structure of Markdown or HTML but where the
// schema says "x-format": "markdown". It returns the canonical form. Its errors are fault.OutputInvalid with the path at fault, and name no value.
func ReadOutput(raw []byte, d *agent.Declaration) (json.RawMessage, error) {
	invalid := func(path, format string, args ...any) error {
		return fault.New(fault.OutputInvalid, format, args...).At(path)
	}
	if len(raw) > MaxOutput {
		return nil, invalid("output", "It has more than %d bytes.", MaxOutput)
	}
	canonical, err := call.Canonical(raw, outputLimits)
	if err != nil {
		return nil, fault.Wrap(err, fault.OutputInvalid, "It is not one strict JSON object: %s", fault.Of(err).Message).At("output")
	}
	if !call.IsObject(canonical) {
		return nil, invalid("output", "It must be one JSON object.")
	}
	if problems := d.CheckOutput(canonical); len(problems) > 0 {
		path, _, _ := strings.Cut(problems[0], ": ")
		if path == "the output" || path == problems[0] {
			path = "output"
		}
		return nil, invalid(path, "It is not what the %s allows: %s.", strings.TrimSpace("output schema "+d.OutputSchemaVersion), strings.Join(problems, "; "))
	}
	marked := marks(canonical, d.OutputSchema)
	if marked.over {
		return nil, invalid("output", "It has too many parts to be held against the schema.")
	}
	var wrong error
	call.Strings(canonical, func(path, text string) bool {
		if what := structure(text); what != "" && !(marked.markdown[path] && what != htmlTag) {
			wrong = invalid(display.Line(strings.TrimSuffix(path, "{}"), 200), "The text has %s in it, and output is structured: no Markdown and no HTML.", what)
		}
		return wrong == nil
	})
	return canonical, wrong
}

// htmlTag is what a text with a tag in it has. No mark in a schema allows it.
const htmlTag = "an HTML tag"

// forms are what gives a text the structure of a document.
var forms = []struct {
	what string
	form *regexp.Regexp
}{
	{htmlTag, regexp.MustCompile(`<[A-Za-z/!?]`)},
	{"a heading", regexp.MustCompile(`(?m)^ {0,3}#{1,6}\s+\S`)},
	{"an underlined heading", regexp.MustCompile(`(?m)^[^\n]+\n {0,3}(=+|-{2,})\s*$`)},
	{"a block of code", regexp.MustCompile("(?m)^ {0,3}(```|~~~)")},
	{"a link or an image", regexp.MustCompile(`!\[|\]\([^)\s]*[^)]*\)|\]\[[^\]]*\]|<https?:|(?m:^\s*\[[^\]]+\]:)`)},
	{"a table", regexp.MustCompile(`(?m)^\s*\|?\s*:?-+:?\s*\|`)},
	{"bold text", regexp.MustCompile(`\*\*[^*\s][^*]*\*\*|__[^_\s][^_]*__`)},
	{"a list", regexp.MustCompile(`(?m)(?:^|\n)\s*(?:[-*+]|\d{1,3}[.)])\s+\S[^\n]*\n+\s*(?:[-*+]|\d{1,3}[.)])\s+\S`)},
	{"a quotation", regexp.MustCompile(`(?m)^ {0,3}>\s*\S`)},
	{"a ruler", regexp.MustCompile(`(?m)^ {0,3}(?:\*\s*){3,}$|^ {0,3}(?:_\s*){3,}$|^ {0,3}(?:-\s*){3,}$`)},
}

// lineEnds makes one of all the ends of a line that a reader of Markdown knows.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n")

// structure says what of Markdown or HTML a text has; "" for plain text.
func structure(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) && !strings.ContainsRune("\t\n\r", r) }) {
		return "a character that can't be seen"
	}
	text = lineEnds.Replace(text)
	if !strings.ContainsAny(text, "<#=`~]|*_-+.)>") {
		return ""
	}
	for _, f := range forms {
		if f.form.MatchString(text) {
			return f.what
		}
	}
	return ""
}

// marking is what the schema says about the parts of one output, by their paths as call.Strings gives them.
type marking struct {
	markdown map[string]bool
	facts    []string // paths of members that are facts and are there
	claims   []marked // what is a claim and is there; the same may be there twice
	over     bool     // it took too many steps, so marks may be missing
}

// marked is a part of an output, with its path.
type marked struct {
	path  string
	value any
}

// maxMarks bounds the steps that looking for marks takes.
const maxMarks = 200_000

// marks walks an output beside its schema. Unknown forms of a schema mark nothing: text without a mark is refused where it has structure.
func marks(output, schema []byte) marking {
	var s, v any
	m := marking{markdown: map[string]bool{}}
	if call.Decode(schema, &s) != nil || call.Decode(output, &v) != nil {
		return m
	}
	w := markWalk{marking: &m, root: s}
	w.value(s, v, "")
	if w.dotted { // two members may have one path: then no mark allows anything
		m.markdown = map[string]bool{}
	}
	slices.Sort(m.facts)
	m.facts = slices.Compact(m.facts)
	return m
}

type markWalk struct {
	*marking
	root   any
	steps  int
	maybe  int  // how many parts of the schema around this one may not hold
	dotted bool // a member's name has what joins names in a path
}

func (w *markWalk) value(schema, v any, path string) {
	if w.steps++; w.steps > maxMarks {
		w.over = true
		return
	}
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}
	if s["x-format"] == "markdown" && w.maybe == 0 {
		w.markdown[path] = true
	}
	if s["x-fact"] == true && v != nil && v != "" {
		w.facts = append(w.facts, path)
	}
	if s["x-claim"] == true && v != nil && v != "" {
		w.claims = append(w.claims, marked{path, v})
	}
	for _, keyword := range []string{"$ref", "$dynamicRef"} {
		if ref, ok := s[keyword].(string); ok {
			w.value(w.resolve(ref), v, path)
		}
	}
	// Which of the branches holds is not looked at: a fact in any of them is one, and Markdown in any of them allows nothing.
	for _, keyword := range []string{"if", "then", "else", "contains", "unevaluatedProperties", "unevaluatedItems"} {
		if part, ok := s[keyword]; ok {
			w.maybe++
			w.branch(keyword, part, v, path)
			w.maybe--
		}
	}
	if dependent, ok := s["dependentSchemas"].(map[string]any); ok {
		for _, part := range dependent {
			w.maybe++
			w.value(part, v, path)
			w.maybe--
		}
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		if list, ok := s[keyword].([]any); ok {
			for _, part := range list {
				w.value(part, v, path)
			}
		}
	}
	switch v := v.(type) {
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		for name, member := range v {
			w.dotted = w.dotted || strings.ContainsAny(name, ".[]{}")
			at := name
			if path != "" {
				at = path + "." + name
			}
			inner, named := properties[name]
			if named {
				w.value(inner, member, at)
			}
			patterns, _ := s["patternProperties"].(map[string]any)
			for pattern, part := range patterns {
				if form, err := regexp.Compile(pattern); err != nil || form.MatchString(name) {
					w.maybe++
					w.value(part, member, at)
					w.maybe--
					named = named || err == nil
				}
			}
			if inner, ok := s["additionalProperties"]; ok && !named {
				w.value(inner, member, at)
			}
		}
	case []any:
		first, _ := s["prefixItems"].([]any)
		for i, element := range v {
			if i < len(first) {
				w.value(first[i], element, path+"[]")
			} else if items, ok := s["items"]; ok {
				w.value(items, element, path+"[]")
			}
		}
	}
}

// branch walks a part that is for the value itself, or for each of its members or elements.
func (w *markWalk) branch(keyword string, part, v any, path string) {
	switch v := v.(type) {
	case map[string]any:
		if keyword == "unevaluatedProperties" {
			for name, member := range v {
				at := name
				if path != "" {
					at = path + "." + name
				}
				w.value(part, member, at)
			}
			return
		}
	case []any:
		if keyword == "contains" || keyword == "unevaluatedItems" {
			for _, element := range v {
				w.value(part, element, path+"[]")
			}
			return
		}
	}
	if keyword == "if" || keyword == "then" || keyword == "else" {
		w.value(part, v, path)
	}
}

// resolve finds a part of the schema by a JSON pointer or an anchor; nil if there is none.
func (w *markWalk) resolve(ref string) any {
	if ref == "#" {
		return w.root
	}
	pointer, ok := strings.CutPrefix(ref, "#/")
	if anchor, named := strings.CutPrefix(ref, "#"); !ok && named {
		return anchored(w.root, anchor)
	}
	if !ok {
		return nil
	}
	at := w.root
	for step := range strings.SplitSeq(pointer, "/") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
	}
	return at
}

// anchored is the part of a schema that has the name; nil if none has.
func anchored(schema any, name string) any {
	switch s := schema.(type) {
	case map[string]any:
		if s["$anchor"] == name || s["$dynamicAnchor"] == name {
			return s
		}
		for _, inner := range s {
			if found := anchored(inner, name); found != nil {
				return found
			}
		}
	case []any:
		for _, inner := range s {
			if found := anchored(inner, name); found != nil {
				return found
			}
		}
	}
	return nil
}

// Measured is what the gateway measured of a run.
type Measured struct {
	Took    time.Duration
	Tokens  int
	Model   string    // that the gateway asked itself; "" where the agent asks models, or none
	Started time.Time // zero: it is not a run
	Ended   time.Time
}

// noModel is the modelVersion of an agent that declares no model.
const noModel = "none"

// slackTime is how much more time than was measured an output may give: clocks are read at different places.
const slackTime = time.Second

// CheckMetadata checks what an output says of its own run: agentId, timestamp, executionTime in milliseconds, tokensUsed and modelVersion, at its top or below
// metadata. An output must not say that another agent made it, or that it was made at another time, that it took longer than it did, that it used more tokens than
// the declaration allows, or than were measured of a model that the gateway asked, or a model that did not work.
func CheckMetadata(output json.RawMessage, d *agent.Declaration, m Measured) error {
	worked := m.Model
	metadata, _ := call.Get(output, "metadata")
	for at, object := range map[string]json.RawMessage{"": output, "metadata.": metadata} {
		var claims struct {
			ExecutionTime *json.Number `json:"executionTime"`
			TokensUsed    *json.Number `json:"tokensUsed"`
			ModelVersion  *string      `json:"modelVersion"`
			AgentID       *string      `json:"agentId"`
			Timestamp     *string      `json:"timestamp"`
		}
		if !call.IsObject(object) {
			continue
		}
		if call.Decode(object, &claims) != nil {
			return fault.New(fault.OutputInvalid, "executionTime and tokensUsed are numbers, and modelVersion, agentId and timestamp are texts.").At(strings.TrimSuffix(cmp.Or(at, "output"), "."))
		}
		if id := claims.AgentID; id != nil && *id != d.AgentID {
			return fault.New(fault.OutputInvalid, "It is not the agent that said it, which is %s.", d.AgentID).At(at + "agentId")
		}
		if stamp := claims.Timestamp; stamp != nil && !m.Started.IsZero() {
			if said, err := time.Parse(time.RFC3339, *stamp); err != nil || said.Before(m.Started.Add(-slackTime)) || said.After(m.Ended.Add(slackTime)) {
				return fault.New(fault.OutputInvalid, "It is not a time of the run, such as %s.", m.Ended.UTC().Format(time.RFC3339)).At(at + "timestamp")
			}
		}
		if n := claims.ExecutionTime; n != nil {
			if ms, err := n.Float64(); err != nil || ms < 0 || ms > float64((m.Took+slackTime)/time.Millisecond) {
				return fault.New(fault.OutputInvalid, "It is not the time that was measured, which is %d ms.", m.Took.Milliseconds()).At(at + "executionTime")
			}
		}
		if n := claims.TokensUsed; n != nil {
			tokens, err := n.Float64()
			if err != nil || tokens < 0 || tokens > float64(d.MaxTokens) {
				return fault.New(fault.OutputInvalid, "It is over the declaration's maxTokens, which is %d.", d.MaxTokens).At(at + "tokensUsed")
			}
			if (m.Tokens > 0 || worked != "") && tokens > float64(m.Tokens) { // what another model took is not measured here
				return fault.New(fault.OutputInvalid, "It is not what was measured, which is %d.", m.Tokens).At(at + "tokensUsed")
			}
		}
		if model := claims.ModelVersion; model != nil && worked != "" && *model != worked {
			return fault.New(fault.OutputInvalid, "The model that worked is %s.", worked).At(at + "modelVersion")
		}
		if model := claims.ModelVersion; model != nil && !slices.Contains(d.DataSources.Models, *model) && !(*model == noModel && len(d.DataSources.Models) == 0) {
			return fault.New(fault.OutputInvalid, "The declaration names no such model under dataSources.models.").At(at + "modelVersion")
		}
	}
	return nil
}
