package agent

import (
	"errors"
	"strings"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/display"
)

// syntaxHints say what the library's messages about YAML mean to somebody who wrote the file.
var syntaxHints = []struct{ says, problem, remedy string }{
	{"found character that cannot start any token", "a value can't begin with the character that stands here", "indent with spaces and not with a tab; put a text that begins with @, `, % or & in quotes"},
	{"mapping values are not allowed", "a second colon stands in this value, or the line above has none", `write "key: value", one on each line; put a text that has a colon and a space in quotes`},
	{"did not find expected ',' or ']'", "a list that begins with [ has no end, or lacks a comma", "write it as [one, another]"},
	{"did not find expected ',' or '}'", "a map that begins with { has no end, or lacks a comma", "write it as {name: value, other: value}"},
	{"did not find expected node content", "a value is missing, or a [ or { has no end", "write the value, and close each [ with ] and each { with }"},
	{"did not find expected key", "this line is indented otherwise than those beside it", "give keys that belong together the same number of spaces"},
	{"did not find expected '-' indicator", "this line is indented otherwise than the entries of the list", "begin each entry with - at the same place"},
	{"could not find expected ':'", "a key has no colon", `write "key: value"`},
	{"found unexpected end of stream", "a quote that was opened is not closed", "close it, or remove it"},
	{"found unexpected document indicator", "a quote that was opened is not closed", "close it, or remove it"},
	{"found a tab character", "a tab stands where YAML takes spaces only", "indent with spaces"},
	{"unknown anchor", "a value begins with *, which YAML takes for a reference", `put it in quotes, as in "files.*"`},
	{"expected single document", "it has more than one document", "remove the line --- and what stands behind it"},
	{"control characters are not allowed", "it has a control character", "remove it"},
	{"UTF-8", "it is no text in UTF-8", "write it as UTF-8"},
	{"found undefined tag handle", "a value begins with !, which YAML takes for a tag", "put it in quotes"},
}

// Syntax says in words for people why a file is no YAML, and where.
func Syntax(file string, err error) Problem {
	p := Problem{File: file, Severity: Error, Problem: strings.TrimPrefix(err.Error(), "yaml: ")}
	var one *yaml.LoadError
	if errors.As(err, &one) {
		p.Line, p.Column, p.Problem = one.Mark.Line, one.Mark.Column, one.Message
	}
	for _, h := range syntaxHints {
		if strings.Contains(p.Problem, h.says) {
			p.Problem, p.Remedy = h.problem, h.remedy
			return p
		}
	}
	p.Problem = display.Line("it can't be read as YAML: "+p.Problem, display.Whole)
	if p.Line > 0 {
		p.Remedy = "look at this line and at the one above it"
	}
	return p
}
