package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"sallyport.example/internal/display"
)

// plainJSON replaces comments, and commas before a closing bracket, with blanks, so that every other byte keeps its place.
func plainJSON(text []byte) []byte {
	out := bytes.Clone(text)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			if out[i] != '\n' && out[i] != '\r' {
				out[i] = ' '
			}
		}
	}
	if bytes.HasPrefix(out, []byte("\xef\xbb\xbf")) {
		blank(0, 3)
	}
	comma := -1 // the last one, while nothing but blanks and comments came behind it
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
		case c == '/' && i+1 < len(out) && out[i+1] == '/':
			end := i
			for end < len(out) && out[end] != '\n' {
				end++
			}
			blank(i, end)
			i = end
		case c == '/' && i+1 < len(out) && out[i+1] == '*':
			n := bytes.Index(out[i+2:], []byte("*/"))
			if n < 0 {
				return out // no JSON, which whoever reads it says
			}
			blank(i, i+n+4)
			i += n + 3
		case c == ',':
			comma = i
		case (c == '}' || c == ']') && comma >= 0:
			out[comma], comma = ' ', -1
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			comma = -1
		}
	}
	return out
}

// span is a part of a text. end of an object that lacks a member is the place of its closing bracket.
type span struct{ start, end int }

// find returns where the value of a member stands, in a text of strict JSON. Where an object on the way lacks the member, it returns that object, and
// false. A member that is there twice, or once more in other letter case, is an error: two readers could take different ones.
func find(text []byte, place []string) (at span, ok bool, err error) {
	at = span{0, len(text)}
	for _, name := range place {
		inner, found, err := child(text, at, name)
		if err != nil || !found {
			return at, false, err
		}
		at = inner
	}
	return at, true, nil
}

// child returns where the value of an object's member stands.
func child(text []byte, at span, name string) (value span, found bool, err error) {
	dec := json.NewDecoder(bytes.NewReader(text[at.start:at.end]))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return span{}, false, fmt.Errorf("an object belongs where %s is looked for", display.Quote(name, 80))
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return span{}, false, err
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return span{}, false, err
		}
		word, _ := key.(string)
		if !strings.EqualFold(word, name) {
			continue
		}
		if word != name && strings.ContainsRune(name, '/') {
			continue // the path of another project
		}
		if found || word != name {
			return span{}, false, fmt.Errorf("the member %s is there twice, or in other letter case", display.Quote(word, 80))
		}
		end := at.start + int(dec.InputOffset())
		value, found = span{end - len(raw), end}, true
	}
	return value, found, nil
}
