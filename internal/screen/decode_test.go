package screen

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

// unescapeOneByOne is unescape without looking at several bytes at a time.
func unescapeOneByOne(b []byte) (out []byte, any bool) {
	for len(b) > 0 {
		n, r, raw := 0, rune(0), false
		switch b[0] {
		case '\\':
			n, r, raw = backslash(b)
		case '%':
			n, r = hexByte(b, 1)
			raw = true
		case '&':
			n, r = entity(b)
		}
		switch {
		case n == 0:
			out, n = append(out, b[0]), 1
		case raw:
			any, out = true, append(out, byte(r))
		default:
			any, out = true, utf8.AppendRune(out, r)
		}
		b = b[n:]
	}
	return out, any
}

// Escapes are undone eight bytes at a time as they are one by one.
func FuzzUnescape(f *testing.F) {
	for _, g := range disguises {
		f.Add([]byte(g.as(known[0])))
	}
	for _, s := range []string{`\`, `1234567\`, `%`, `12345678%41`, `&amp;&lt;`, `\\\\n%25%2`, "\\u00e9\\ud83d\\ude00\xff\xfe\x80", "]]]]&[[[%$'\\&\\", `a\"b\"c\\\"d\n12345678\x4`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for from := range min(8, len(b)) { // whatever falls together into eight bytes
			b := b[from:]
			want, any := unescapeOneByOne(b)
			got, some := unescape([]byte("kept"), b)
			if some != any || !bytes.Equal(got, append([]byte("kept"), want...)) {
				t.Fatalf("%q: %q %t, one by one %q %t", b, got, some, want, any)
			}
		}
	})
}
