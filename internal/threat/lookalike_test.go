package threat

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLookalikes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string // texts
	}{
		{"pay to billing@acme.example, 1,250.50 EUR", nil},
		{"Grüße aus Köln: naïve façade, İstanbul, Łódź", nil},
		{"Отчёт для USB-кабеля в файле отчёт.docx, https://ru.example/wiki/Москва", nil},
		{"日本語のAPIと한국어 Tシャツ 中文abc", nil},
		{"10 kΩ, 5 μm, Δt, x² … ½ ª", nil},
		{"שלום world, مرحبا file.pdf", nil},
		{"go to pаypal.com now", []string{"pаypal"}}, // the second letter is Cyrillic
		{"раураl", []string{"раураl"}},               // and all but the last one here
		{"https://аррӏе.com/login", []string{"аррӏе"}},
		{"аррӏе-support@mail.example", []string{"аррӏе"}},
		{"аррӏе", nil}, // of one script, beside nothing
		{"gοοgle.com αpple", []string{"gοοgle", "αpple"}},
		{"ｐａｙｐａｌ.com", []string{"ｐａｙｐａｌ"}},
		{"𝐩𝐚𝐲pal", []string{"𝐩𝐚𝐲pal"}},
		{"xn--pple-43d.com and ops@XN--80AK6AA92E.com,xn--", []string{"xn--pple-43d", "XN--80AK6AA92E", "xn--"}},
		{"https://www.xn--pple-43d.com:443/xn", []string{"xn--pple-43d"}},
		{"maxn--x", nil},
		{"pаypal\xffpаypal\x00pаypal", []string{"pаypal", "pаypal", "pаypal"}},
		{"", nil},
	} {
		var got []string
		for _, l := range Lookalikes(c.in, 10) {
			got = append(got, c.in[l.Start:l.End])
			if l.Why == "" {
				t.Errorf("%q: nobody says why", c.in)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
	if got := Lookalikes(strings.Repeat("pаypal ", 1000), 7); len(got) != 7 {
		t.Errorf("%d of at most 7", len(got))
	}
}

func TestNameLookalike(t *testing.T) {
	for name, want := range map[string]string{
		"ops@acme.example": "", "Müller GmbH": "", "Иван Петров": "", "пример.рф": "", "東京 branch": "", "12-34-56": "", "": "",
		"пример.com": "Cyrillic and Latin letters", "ops@пример.example": "Latin and Cyrillic", "раypal.com": "Cyrillic and Latin", "αβγ д": "Greek and Cyrillic",
		`"www.xn--pple-43d.com"`: "in code", "аррӏе": "", "a д α א": "Latin, Cyrillic, Greek and Hebrew", "ａcme": "fullwidth and Latin",
	} {
		if got := NameLookalike(name); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestLookalikesIn(t *testing.T) {
	texts, why := LookalikesIn([]byte(`{"раypal":[1,"p\u0430ypal.com раypal",{"to":"xn--a.example"}]}`), 10)
	if !slices.Equal(texts, []string{"раypal", "pаypal", "xn--a"}) || len(why) != 3 {
		t.Errorf("%q %q", texts, why)
	}
	if texts, _ := LookalikesIn([]byte(`not JSON: pаypal`), 10); !slices.Equal(texts, []string{"pаypal"}) {
		t.Errorf("%q", texts)
	}
	if texts, _ := LookalikesIn([]byte(`["pаypal","раypal"]`), 1); len(texts) != 1 {
		t.Errorf("%q", texts)
	}
}

// TestScriptOf: the table that is searched says of every letter what the standard library says.
func TestScriptOf(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		got := scriptOf(r)
		switch {
		case got == fullWidth || got == styled:
			continue
		case got == "":
			if unicode.IsLetter(r) && !unicode.In(r, unicode.Common, unicode.Inherited) {
				t.Fatalf("%U has no script", r)
			}
		case got == eastAsian:
			if !unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo) {
				t.Fatalf("%U is %s", r, got)
			}
		case !unicode.Is(unicode.Scripts[got], r):
			t.Fatalf("%U is not %s", r, got)
		}
	}
}

// FuzzLookalikes: what is found lies in the text, in order, in whole runes, and no more than was asked for.
func FuzzLookalikes(f *testing.F) {
	f.Add("go to pаypal.com xn--a \xff", 3)
	f.Fuzz(func(t *testing.T, s string, most int) {
		at := 0
		found := Lookalikes(s, most)
		for _, l := range found {
			if l.Start < at || l.End <= l.Start || l.End > len(s) || utf8.ValidString(s) && !utf8.ValidString(s[l.Start:l.End]) {
				t.Fatalf("%q: %+v", s, found)
			}
			at = l.End
		}
		if len(found) > max(0, most) {
			t.Fatalf("%d of at most %d", len(found), most)
		}
		NameLookalike(s)
		LookalikesIn([]byte(s), most)
	})
}

func BenchmarkLookalikes(b *testing.B) {
	for name, text := range map[string]string{"latin": strings.Repeat("plain words and ", 1<<12), "mixed": strings.Repeat("слово word 日本語 ꦗꦮ ", 1<<11), "one": strings.Repeat("ꦗa", 1<<14), "rare": strings.Repeat("ꦗ ߖ𐏈a ", 1<<13)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Lookalikes(text, 10)
			}
		})
	}
}
