package display

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
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
		if got := Line(c.in, c.max); got != c.want {
			t.Errorf("Line(%q, %d) = %q, want %q", c.in, c.max, got, c.want)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("\x1b[31m\u202e\u200b\xff日本", 10)
	f.Add("plain", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit %= 1 << 16
		got := Line(s, limit)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		for form, text := range map[string]string{"Terminal": Terminal(s, limit), "Quote": Quote(s, max(limit, 0)), "ASCII": ASCII(s, max(limit, 0)), "Counted": Counted(s)} {
			if strings.ContainsFunc(text, func(r rune) bool {
				return !Visible(r) || form == "ASCII" && r > '~' && r != '…' || (form == "Terminal" || form == "Counted") && RightToLeft(r)
			}) || !utf8.ValidString(text) {
				t.Fatalf("%s: %q", form, text)
			}
		}
		if clipped := Clip(s, max(limit, 0)); clipped != s && (len(clipped) > max(limit, 0)+len("…") || !strings.HasPrefix(strings.ToValidUTF8(s, ""), strings.TrimSuffix(clipped, "…")) || !utf8.ValidString(clipped)) {
			t.Fatalf("%q clipped to %d is %q", s, limit, clipped)
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

// Nothing that Unicode calls ignorable, a control, a format, a selector or a space but the one is visible.
func TestVisible(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		odd := unicode.In(r, unicode.C, unicode.Z, unicode.Bidi_Control, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) && r != ' '
		if odd && Visible(r) {
			t.Errorf("%U is visible", r)
		}
	}
	for _, r := range "aé日😀́ß~ " {
		if !Visible(r) {
			t.Errorf("%U is not visible", r)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, c := range []struct{ in, quoted, ascii string }{
		{`a"b\`, `"a\"b\\"`, `"a\"b\\"`}, {"é\ufe0f\u3164", `"é\ufe0f\u3164"`, `"\u00e9\ufe0f\u3164"`}, {"\xff", `"\xff"`, `"\xff"`},
		{strings.Repeat("é", 6), `"ééééé"…`, `"\u00e9\u00e9\u00e9\u00e9\u00e9"…`},
	} {
		if got := Quote(c.in, 11); got != c.quoted {
			t.Errorf("%q: %s", c.in, got)
		}
		if got := ASCII(c.in, 11); got != c.ascii {
			t.Errorf("%q: %s", c.in, got)
		}
	}
	for in, want := range map[string]string{"éééé": "éé…", "abcd": "abcd", "abcde": "abcde", "abcdef": "abcde…", "abcd\xffx": "abcd…", "": ""} {
		if got := Clip(in, 5); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// Data says the same when it is escaped.
func TestEscapeData(t *testing.T) {
	in := "a\u202e\U000e0041\u05d0\u007fé"
	if got := string(EscapeData([]byte(`"`+in+`"`), false)); got != `"a\u202e\udb40\udc41\u05d0\u007fé"` {
		t.Error(got)
	}
	if got := string(EscapeData([]byte(`"`+in+`"`), true)); got != `"a\u202e\U000e0041\u05d0\u007fé"` {
		t.Error(got)
	}
}
