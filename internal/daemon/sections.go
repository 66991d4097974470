package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// tunable are the sections of a configuration that say what is asked about and refused.
var tunable = []string{"unlisted_operations", "operations", "flow", "approvals"}

// Sections returns the tunable sections of a configuration's text, as text.
func Sections(text []byte) ([]byte, error) {
	var doc yaml.Node
	if blank(text) {
		return nil, nil
	}
	if err := yaml.Load(text, &doc); err != nil {
		return nil, err
	}
	out := yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, name := range tunable {
		if key, value := member(mapping(&doc), name); key != nil {
			out.Content = append(out.Content, key, value)
		}
	}
	if len(out.Content) == 0 {
		return nil, nil
	}
	return yaml.Dump(&out)
}

// WithSections reads a configuration's text with some tunable sections in place of its own, as if the file had them. Nothing is written. A section can't
// refer to variables: what they hold is the file's to use.
func WithSections(file string, text []byte, dir string, sections []byte) (*Config, error) {
	var doc, given yaml.Node
	if !blank(text) {
		if err := yaml.Load(text, &doc); err != nil {
			return nil, err
		}
	}
	root := mapping(&doc)
	if root == nil {
		root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	if !blank(sections) {
		if err := yaml.Load(sections, &given); err != nil {
			return nil, &ConfigError{loadProblems("the sections", nil, err)}
		}
		if refers(&given) { // as it is read: an escape such as \x24 is a dollar by now
			return nil, fmt.Errorf("sections that are tried can't refer to variables (${…}): write the value")
		}
		from := mapping(&given)
		if from == nil {
			return nil, fmt.Errorf("the sections are no YAML mapping: begin with a name, as in flow: {free_level_1: true}")
		}
		seen := map[string]bool{}
		for i := 0; i+1 < len(from.Content); i += 2 {
			key, value := from.Content[i], from.Content[i+1]
			if seen[key.Value] {
				return nil, fmt.Errorf("%.80q stands twice in the sections: write it once", key.Value)
			}
			seen[key.Value] = true
			if !slices.Contains(tunable, key.Value) {
				return nil, fmt.Errorf("%.80q can't be tried: only %s can", key.Value, strings.Join(tunable, ", "))
			}
			if key.Value == "flow" && projectOf(value) != "" && projectOf(value) != projectOf(valueOf(root, "flow")) {
				return nil, fmt.Errorf("flow.project can't be tried with another folder than the file's: leave it as it is")
			}
			if have := valueOf(root, key.Value); have != nil {
				*have = *value
			} else {
				root.Content = append(root.Content, key, value)
			}
		}
	}
	next, err := yaml.Dump(root)
	if err != nil {
		return nil, err
	}
	cfg, err := ParseConfig(file, next, dir)
	var wrong *ConfigError
	if errors.As(err, &wrong) {
		for i := range wrong.Problems { // their lines are of a text that the reader has not seen
			p := &wrong.Problems[i]
			p.File, p.Line, p.Column = "the sections", 0, 0
		}
	}
	return cfg, err
}

// mapping is the mapping that a document is; nil: it is none.
func mapping(doc *yaml.Node) *yaml.Node {
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil
	}
	return doc.Content[0]
}

// valueOf is the value of a member of a mapping; nil: there is none.
func valueOf(n *yaml.Node, name string) *yaml.Node {
	_, value := member(n, name)
	return value
}

// projectOf is the folder that a section flow names.
func projectOf(flow *yaml.Node) string {
	if n := valueOf(flow, "project"); n != nil {
		return n.Value
	}
	return ""
}

// refers tells whether a text or a name below a node refers to a variable.
func refers(n *yaml.Node) bool {
	return strings.Contains(n.Value, "${") || slices.ContainsFunc(n.Content, refers)
}
