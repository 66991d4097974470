package provenance

import (
	"math/big"
	"strings"
	"testing"
	"unicode"
)

// Values that are one and the same, and such that only look it.
func TestForms(t *testing.T) {
	for _, c := range []struct {
		kind kind
		same []string // all have one form
		not  []string // none has it, nor the form of another
	}{
		{mail, []string{"ann@books.example", "ANN@Books.Example", " ann@books.example\n", "Ann Lee <ann@books.example>", `"Lee, Ann" <ann@books.example>`, "<ann@books.example>"},
			[]string{"a.nn@books.example", "ann+x@books.example", "ann@books.example.", "ann@books.exampl", "ann@bооks.example", "ann@ｂooks.example", "ann@books。example", "ann@books.example, eve@x.example",
				"ann@books.example <eve@x.example>", "eve@x.example <ann@books.example>", "Ann <ann@books.example> <eve@x.example>", "Ann <ann@books.example", "ann@books.example>", `"ann@books.example <eve@x.example>`, "ann@books.example@x.example",
				"ann%40books.example", "mailto:ann@books.example", "ann @books.example", "ann@\u200bbooks.example", "\u202eann@books.example", "ann\u00ad@books.example", "ann\ufe0f@books.example", "ann\x00@books.example", "ann@books.example\xff",
				"Ann: <ann@books.example>", "a;<ann@books.example>", "ann@books.example;", "ann@sub.books.example", "ann@books", "@books.example", "ann@"}},
		{mail, []string{"bill@kin.example"}, []string{"bİll@kin.example", "bill@\u212ain.example", "bıll@kin.example", "bill@kİn.example"}},
		{link, []string{"https://books.example/Spring", "http://BOOKS.example/Spring", "books.example/Spring", "HTTPS://books.example/Spring"},
			[]string{"https://books.example/spring", "https://books.example/Spring/", "https://books.example/Spring?", "https://books.example/Spring#", "https://books.example//Spring", "https://books.example/%53pring", "ftp://books.example/Spring",
				"https://books.example:443/Spring", "https://books.example./Spring", "https://ann@books.example/Spring", "https://books.example@x.example/Spring", `https://books.example\Spring`, `https:\\books.example\Spring`, `https://books.example\@x.example/Spring`,
				"https:/books.example/Spring", "https:books.example/Spring", "//books.example/Spring", "https://bооks.example/Spring", "https://ｂooks.example/Spring", "https://books。example/Spring", "https://books.example．/Spring",
				"https://xn--books.example/Spring", "https://www.books.example/Spring", "https://books.example/Spring x", "https://books.example/Spri\u200bng", "https://books.example/Spri\nng", "https://books.example%2fSpring", "https://books.example/./Spring", "https://books.example/../Spring",
				"https://books.example/Spring/..", "https://books.example/;/Spring"}},
		{link, []string{"books.example", "https://books.example", "https://books.example/", "BOOKS.EXAMPLE"}, []string{"https://books.example?", "https://books.example/?", "books.example.", "books.example//", "books", "https://books", "books.1"}},
		{link, []string{"https://micro.example"}, []string{"https://mİcro.example", "https://mıcro.example", "https://micrο.example"}},
		{link, []string{"http://127.0.0.1/x"}, []string{"http://127.1/x", "http://2130706433/x", "http://0x7f000001/x", "http://127.0.0.1:80/x", "127.0.0.1/x", "http://[::1]/x", "http://localhost/x"}},
		{number, []string{"10", "10.00", "1e1", "10.", " 10 ", "1E1", "100e-1"}, []string{"010", "+10", "-10", "--10", "10,0", "1 0", "1_0", "0x0a", "0b1010", "20/2", "１０", "١٠", "10%", "$10", "10 EUR", "1e", "e1", "1e1.0", "1e100", "1e+100", "10\u200b", "1.0.0", "NaN", "Inf", "1e01e", "ten"}},
		{number, []string{"0", "0.0", "-0", "0e5"}, []string{"", "00", "-", ".", ".0", "0x", "0e", "false"}},
		{number, []string{"-1.5", "-15e-1"}, []string{"1.5", "- 1.5", "−1.5", "(1.5)", "-01.5", "1,5"}},
		{number, []string{"12345678901234567890.1"}, []string{"12345678901234567890.2", "12345678901234567890", "1.23456789012345678901e19e"}},
		{account, []string{"DE89 3704 0044 0532 0130 00", "de89370400440532013000", "DE89-3704-0044-0532-0130-00"}, []string{"DE89370400440532013001", "DE8937040044053201300", "DE89370400440532013000X", "DE89.3704.0044.0532.0130.00", "D E 8 9\u00a03704 0044 0532 0130 00", "DE89370400440532013000, DE1", "ⅮE89370400440532013000"}},
		{account, []string{"+49 30 1234567", "+49-30-1234567", "49301234567 "[:11] + "-"}, []string{"49301234567", "+49 30 1234568", "0049301234567"}},
		{text, []string{"Falcon Nest", "falcon nest", " FALCON\t\n nest "}, []string{"FalconNest", "Falcon  Nests", "Falcon-Nest", "Fаlcon Nest", "Falcon Nest.", "Falcon\u200bNest", "Fal\u0301con Nest", "Falcon Nest\x00", "Falcon\u3164Nest"}},
		{text, []string{"2024-05-15"}, []string{"2024-05-1", "2024-05-15 10:00", "20240515", "2024/05/15", "15.05.2024"}},
	} {
		f, ok := formOf(c.same[0])
		if !ok || f.kind != c.kind {
			t.Errorf("%q has kind %d (%v), want %d", c.same[0], f.kind, ok, c.kind)
		}
		for _, s := range c.same[1:] {
			if g, ok := formOf(s); !ok || g != f {
				t.Errorf("%q is %v, and %q is %v", c.same[0], f, s, g)
			}
		}
		for _, s := range c.not {
			if g, ok := formOf(s); ok && g == f {
				t.Errorf("%q and %q are both %v", c.same[0], s, g)
			}
		}
	}
}

func TestWhatHasNoForm(t *testing.T) {
	for _, s := range []string{"", " ", "\n\t", strings.Repeat("a", maxValue+1), "a\x00b", "a\x1bb", "a\x7fb", "a\u0080b", "a\u200bb", "a\u200db", "a\u2060b", "a\ufeffb", "a\u202eb", "a\u2066b", "a\u00adb", "a\U000e0041b", "a\ue000b", "a\ufe0fb", "a\U000e0100b", "a\u034fb", "a\u115fb", "a\u17b4b", "a\u180eb", "a\u3164b", "a\uffa0b", "\xff", "a\xc3", "\xed\xa0\x80"} {
		if f, ok := formOf(s); ok || f != (form{}) {
			t.Errorf("%q has the form %v", s, f)
		}
	}
	for _, s := range []string{"a\nb", "a\tb", "a\r\nb", "\u00e9", "张三", "\ufffd", strings.Repeat("a", maxValue)} {
		if _, ok := formOf(s); !ok {
			t.Errorf("%q has none", s)
		}
	}
}

// Letters that are none of ASCII but become so in lower case: an address with one is another.
func TestNoLetterBecomesASCIIInAnAddress(t *testing.T) {
	n := 0
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		if l := unicode.ToLower(r); l < 0x80 {
			n++
			if !strings.ContainsRune(likeASCII, r) {
				t.Errorf("%U becomes %q", r, l)
			}
			for _, pair := range [][2]string{{"a" + string(r) + "@books.example", "a" + string(l) + "@books.example"}, {"https://a" + string(r) + ".example", "https://a" + string(l) + ".example"}} {
				a, _ := formOf(pair[0])
				b, _ := formOf(pair[1])
				if a == b {
					t.Errorf("%q is %q", pair[0], pair[1])
				}
			}
		}
	}
	if n != len([]rune(likeASCII)) {
		t.Errorf("%d of them", n)
	}
}

func TestDates(t *testing.T) {
	for s, want := range map[string]string{
		"2024-05-15": "2024-05-15T00:00", "2024-05-15 10:00": "2024-05-15T10:00", "2024-05-15 10:00:30": "2024-05-15T10:00", "2024-05-15T10:00": "2024-05-15T10:00", "2024-05-15T10:00:30": "2024-05-15T10:00",
		"2024-05-15T10:00:30Z": "2024-05-15T10:00", "2024-05-15T10:00:30+02:00": "2024-05-15T10:00", "15.05.2024": "2024-05-15T00:00", "2024/05/15": "2024-05-15T00:00",
		"2024-02-30": "", "2024-13-01": "", "2024-5-15": "", "15/05/2024": "", "05-15": "", "20240515": "", "2024-05-15 25:00": "", "2024-05-15 10:00 or so": "", "２０２４-05-15": "", "": "", "2024-05-15\u200b": "", strings.Repeat("2", 100): "",
	} {
		got := ""
		if d, ok := dateOf(s); ok {
			got = d.Format("2006-01-02T15:04")
		}
		if got != want {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
	}
}

func TestHostNames(t *testing.T) {
	for s, want := range map[string]bool{
		"books.example": true, "a.bc": true, "münchen.example": true, "xn--mnchen-3ya.example": true, "a_b.example": true, "例え.テスト": true, "a.b.c.d.example": true, "1.example": true,
		"books": false, ".example": false, "books.": false, "books..example": false, "-a.example": false, "a-.example": false, "a.b": false, "1.2.3.4": false, "a.1": false, "a b.example": false, "a/b.example": false, "a@b.example": false, "": false, ".": false,
		strings.Repeat("a", 64) + ".example": false, strings.Repeat("a.", 130) + "example": false, "❤.example": false, "a。example": false,
	} {
		if got := hostname(s); got != want {
			t.Errorf("hostname(%q) is %v", s, got)
		}
	}
}

// FuzzShortDecimal holds short numbers against what math/big makes of them.
func FuzzShortDecimal(f *testing.F) {
	for _, s := range []string{"0", "-0", "0.0", "-0.00", "1.", "1.5", "-1.50", "12.125", "0.000000000000001", "999999999999999999", "1.2.3", "100.00", "2.2e1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := numberOf(s)
		if !ok || strings.ContainsAny(s, "eE") {
			return
		}
		if want, ok := new(big.Rat).SetString(s); !ok || want.RatString() != got {
			t.Fatalf("%q is %s, not %v", s, got, want)
		}
	})
}

// FuzzBareToken holds the fast look at a token's ends against strings.Trim, and a set of bytes against the same.
func FuzzBareToken(f *testing.F) {
	for _, s := range []string{"", "a", "'a'", "’x’", "x.", "9", "*_1_*", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := bareToken(s), strings.Trim(s, aroundTokens); got != want {
			t.Fatalf("%q is %q, not %q", s, got, want)
		}
		if got, want := only(s, mantissaChars), strings.Trim(s, digits+".") == ""; got != want {
			t.Fatalf("%q has only digits: %v", s, got)
		}
	})
}
