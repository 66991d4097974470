package threat

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"", 10, ""},
		{"plain text, with: punctuation!", 100, "plain text, with: punctuation!"},
		{"grüße 日本 😀 é", 100, "grüße 日本 😀 é"},
		{"a\nb\tc\rd", 100, `a\nb\tc\rd`},
		{"\x1b[31mred\x1b[0m\x07\x00\x7f", 100, `\x1b[31mred\x1b[0m\x07\x00\x7f`},
		{"\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", 100, `\x1b]8;;http://evil\x1b\link\x1b]8;;\x1b\`},
		{"\u009b31m\u0085", 100, `\u009b31m\u0085`},
		{"a\u202egnp.exe\u2066\u200f\u061c", 100, `a\u202egnp.exe\u2066\u200f\u061c`},
		{"pay\u200bpal\ufeff\u2060\u00ad\u200d", 100, `pay\u200bpal\ufeff\u2060\u00ad\u200d`},
		{"x\u2028y\u2029\u00a0\u3164\u115f\ufe0f", 100, `x\u2028y\u2029\u00a0\u3164\u115f\ufe0f`},
		{"tag\U000e0041\U000e007f\U000e0100", 100, `tag\U000e0041\U000e007f\U000e0100`},
		{"bad\xff\xc3(\xed\xa0\x80", 100, `bad\xff\xc3(\xed\xa0\x80`},
		{"\ufffd is itself", 100, "\ufffd is itself"},
		{"z" + strings.Repeat("\u0301", 6), 100, "z" + strings.Repeat("\u0301", 4) + `\u0301\u0301`},
		{"0123456789", 10, "0123456789"},
		{"0123456789a", 10, "0123456789…(+1 bytes)"},
		{"日本語", 4, "日…(+6 bytes)"},
		{"ab\x1b", 4, "ab…(+1 bytes)"},
		{"abc", 0, "…(+3 bytes)"},
		{"abc", -1, "…(+3 bytes)"},
	} {
		if got := Printable(c.in, c.max); got != c.want {
			t.Errorf("Printable(%q, %d) = %q, want %q", c.in, c.max, got, c.want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b[31m\u202e\u200b\xff日本", 10)
	f.Add("plain", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit %= 1 << 16
		got := Printable(s, limit)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		const suffix = 40
		if len(got) > max(limit, 0)+suffix {
			t.Fatalf("%d bytes for max %d", len(got), limit)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs, unicode.Bidi_Control, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
				t.Fatalf("%U in %q", r, got)
			}
		}
	})
}
