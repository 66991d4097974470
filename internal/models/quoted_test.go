package models

import (
	"strings"
	"testing"

	"sallyport.example/internal/models/wire"
)

const testKey = "sk-test/0123+456789="

// A key is found as it is, and however JSON writes it.
func TestQuoted(t *testing.T) {
	escaped := strings.NewReplacer("s", `\u0073`, "/", `\/`, "0", `\u0030`).Replace(testKey)
	for text, want := range map[string]bool{
		`{"a":"` + testKey + `"}`:                                true,
		`{"a":"` + escaped + `"}`:                                true,
		`{"a":"{\"b\":\"` + escaped + `\"}"}`:                    true,
		`{"a":"` + strings.ReplaceAll(escaped, `\`, `\\`) + `"}`: true,
		`{"` + escaped + `":1}`:                                  true,
		`{"a":"` + testKey[1:] + `"}`:                            false,
		`{"a":"\u00"}`:                                           false,
		`\`:                                                      false,
		``:                                                       false,
	} {
		if got := quotes(testKey).in([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
		if quotes("").in([]byte(text)) {
			t.Errorf("%s: no key is found", text)
		}
	}
}

// In pieces it is found where they belong to one text.
func TestQuotedInPieces(t *testing.T) {
	long := strings.Repeat("word ", 1000)
	escaped := strings.ReplaceAll(testKey, "0", `\\u0030`)
	for name, c := range map[string]struct {
		pieces []wire.Arg
		want   bool
	}{
		"of one text":     {[]wire.Arg{{Of: "a", Text: long + testKey[:5]}, {Of: "b", Text: "between"}, {Of: "a", Text: testKey[5:9]}, {Of: "a", Text: testKey[9:] + long}}, true},
		"with escapes":    {[]wire.Arg{{Of: "a", Text: long + escaped[:11]}, {Of: "a", Text: escaped[11:]}}, true},
		"of two texts":    {[]wire.Arg{{Of: "a", Text: testKey[:5]}, {Of: "b", Text: testKey[5:]}}, false},
		"with more in it": {[]wire.Arg{{Of: "a", Text: testKey[:5]}, {Of: "a", Text: " "}, {Of: "a", Text: testKey[5:]}}, false},
	} {
		q, found := quotes(testKey), false
		for _, piece := range c.pieces {
			found = found || q.goesOn([]wire.Arg{piece}) != nil
			for of, end := range q.ends {
				if len(end) > longestEscape*len(testKey) {
					t.Errorf("%s: %d bytes of %s are kept", name, len(end), of)
				}
			}
		}
		if found != c.want {
			t.Errorf("%s: %v", name, found)
		}
	}
}
