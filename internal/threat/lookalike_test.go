package threat

import (
	"encoding/json"
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
		for l := range Lookalikes(c.in) {
			got = append(got, c.in[l.Start:l.End])
			if l.Why == "" {
				t.Errorf("%q: nobody says why", c.in)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
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
	for _, c := range []struct {
		in   string
		most int
		want []string
		more bool
	}{
		{`{"раypal":[1,"p\u0430ypal.com раypal",{"to":"xn--a.example"}]}`, 10, []string{"раypal", "pаypal", "xn--a"}, false},
		{`{"раypal":[1,"p\u0430ypal.com раypal",{"to":"xn--a.example"}]}`, 3, []string{"раypal", "pаypal", "xn--a"}, false},
		{`not JSON: pаypal`, 10, []string{"pаypal"}, false},
		{`not JSON: pаypal раypal`, 1, []string{"pаypal"}, true},
		{`["pаypal","раypal","gοοgle"]`, 1, []string{"pаypal"}, true},
		{`["pаypal","раypal"]`, 0, nil, true},
		{`["plain"]`, 0, nil, false},
		// Copies of one word are one, and push nothing out.
		{`{"body":"` + strings.Repeat("kмh ", 1000) + `pay pаypal.com","to":"раypal"}`, 3, []string{"kмh", "pаypal", "раypal"}, false},
	} {
		found, more := LookalikesIn([]byte(c.in), c.most)
		var got []string
		for _, d := range found {
			if got = append(got, d.Text); d.Why == "" {
				t.Errorf("%.80s: nobody says why", c.in)
			}
		}
		if !slices.Equal(got, c.want) || more != c.more {
			t.Errorf("%.80s, at most %d: %q and more: %v, want %q, %v", c.in, c.most, got, more, c.want, c.more)
		}
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

// FuzzLookalikes: what is found lies in the text, in order, in whole runes; of a value, each once and no more than was asked for.
func FuzzLookalikes(f *testing.F) {
	f.Add("go to pаypal.com xn--a \xff", 3)
	f.Fuzz(func(t *testing.T, s string, most int) {
		at, texts := 0, map[string]bool{}
		for l := range Lookalikes(s) {
			if l.Start < at || l.End <= l.Start || l.End > len(s) || utf8.ValidString(s) && !utf8.ValidString(s[l.Start:l.End]) {
				t.Fatalf("%q: %+v", s, l)
			}
			at, texts[s[l.Start:l.End]] = l.End, true
		}
		NameLookalike(s)
		raw, err := json.Marshal(s)
		if found, more := LookalikesIn(raw, most); err == nil && utf8.ValidString(s) && (len(found) != min(max(0, most), len(texts)) || more != (len(found) < len(texts))) {
			t.Fatalf("%q: %q, and more: %v, of %d", s, found, more, len(texts))
		}
	})
}

func BenchmarkLookalikes(b *testing.B) {
	for name, text := range map[string]string{"latin": strings.Repeat("plain words and ", 1<<12), "mixed": strings.Repeat("слово word 日本語 ꦗꦮ ", 1<<11), "one": strings.Repeat("ꦗa", 1<<14), "rare": strings.Repeat("ꦗ ߖ𐏈a ", 1<<13)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for range Lookalikes(text) {
				}
			}
		})
	}
}
