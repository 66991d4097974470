package agent

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// A file that is no YAML is spoken of in the terms of who wrote it, with the place and what to do.
func TestSyntax(t *testing.T) {
	for text, want := range map[string]string{
		"a:\n\tb: 1\n":             "f:2:1: error: a value can't begin with the character that stands here (indent with spaces",
		"listen 1\nadmin: x\n":     "a second colon stands in this value, or the line above has none",
		"a: b: c\n":                "f:1:5: error: a second colon stands in this value",
		"a: [b, c\nd: e\n":         "has no end, or lacks a comma (write it as [one",
		"a: {b: 1\nd: e\n":         "a map that begins with { has no end",
		"a: [\n":                   "a value is missing, or a [ or { has no end",
		"a: \"b\nc: d\n":           "a quote that was opened is not closed",
		"a:\n  - b\n c: d\n":       "is indented otherwise",
		"a: *b\n":                  `a value begins with *, which YAML takes for a reference (put it in quotes, as in "files.*")`,
		"a: @b\n":                  "put a text that begins with @",
		"a: %b\n":                  "put a text that begins with @",
		"a: !x!y z\n":              "a value begins with !",
		"\"a\": 'it''s\n\nb: 1\n":  "a quote that was opened is not closed",
		"a: 1\nb\nc: 2\n":          "",
		"a: |\n  x\n y: \x01\n":    "it has a control character",
		"a: \"\\q\"\n":             "",
		"a: \xff\n":                "it is no text in UTF-8",
		"- a\nb: c\n":              "",
		"a: b\n  c: d\n":           "a second colon",
		"? [a]\n: b\n--- x\n...\n": "more than one document",
	} {
		var n yaml.Node
		err := yaml.Load([]byte(text), &n)
		if err == nil {
			if want != "" {
				t.Errorf("%q is YAML", text)
			}
			continue
		}
		p := Syntax("f", err)
		if got := p.String(); !strings.Contains(got, want) || p.Remedy == "" || strings.Contains(got, "yaml load") {
			t.Errorf("%q: %s, not %q (%v)", text, got, want, err)
		}
	}
}
