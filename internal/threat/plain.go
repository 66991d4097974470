package threat

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// PlainValue makes every string of a JSON value plain, in place: no control characters, escapes, bidi or zero-width marks.
func PlainValue(v any) any {
	switch v := v.(type) {
	case string:
		return Plain(v)
	case []any:
		for i := range v {
			v[i] = PlainValue(v[i])
		}
		return v
	case map[string]any:
		for k, x := range v {
			v[k] = PlainValue(x)
		}
		return v
	}
	return v
}

// Plain drops what shows nothing or changes how the rest is shown: control characters but newline and tab, format characters (bidi,
// zero-width, tags) and the variation selectors that can smuggle text.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp) || r >= 0xE0100 && r <= 0xE01EF || r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, s)
}

var (
	mediaType = regexp.MustCompile(`^[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}$`)
	plainURI  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]{0,31}:[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]{0,1000}$`) // no marker of a prompt's format has only these
)

// MediaType tells whether s is a media type that may stand beside fenced content: nothing that looks like an order.
func MediaType(s string) bool { return mediaType.MatchString(s) && !saysOrder(s) }

// PlainURI tells whether s is a URI that may stand beside fenced content: no marker of a prompt's format is in it, and its words, whatever joins them, are
// nothing that looks like an order.
func PlainURI(s string) bool {
	if !plainURI.MatchString(s) {
		return false
	}
	if plain, err := url.PathUnescape(s); err == nil {
		s = plain
	}
	return !saysOrder(s)
}

// saysOrder tells whether words look like an order to a model, by whatever they are joined.
func saysOrder(s string) bool {
	words := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '\'' {
			return r
		}
		return ' '
	}, s)
	definition, err := json.Marshal(map[string]string{"description": strings.Join(strings.Fields(words), " ")})
	return err != nil || slices.ContainsFunc(SuspicionsIn(definition, "", nil), func(x Suspicion) bool { return x.Kind == "order" || x.Kind == "markup" || x.Kind == "hidden" })
}
