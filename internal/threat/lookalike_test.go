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
		{"аррӏе", []string{"аррӏе"}}, // of one script, and nothing says which language it is
		{"Please pay аррӏе today", []string{"аррӏе"}},
		{"pay ΑΡΡΙΕ and ора", []string{"ΑΡΡΙΕ", "ора"}},
		{"В огороде роса и оса", nil}, // a Russian sentence
		{"Москва: оса, роса", nil},
		{"pay оса Иван", nil},
		{"α и β, хо, Δοκ", nil},
		{"gοοgle.com αpple", []string{"gοοgle", "αpple"}},
		{"ｐａｙｐａｌ.com", []string{"ｐａｙｐａｌ"}},
		{"𝐩𝐚𝐲pal", []string{"𝐩𝐚𝐲pal"}},
		{"xn--pple-43d.com and ops@XN--80AK6AA92E.com,xn--", []string{"xn--pple-43d", "XN--80AK6AA92E", "xn--"}},
		{"https://www.xn--pple-43d.com:443/xn", []string{"xn--pple-43d"}},
		{"maxn--x", nil},
		// In an address a letter or two are enough, and it need not be a word.
		{"paypaℓ.com paypaⅼ.com Paypa\u212a fℴr", []string{"paypaℓ", "paypaⅼ", "Paypa\u212a", "fℴr"}},
		{"ⓟaypal ⒫aypal 🅿aypal 🄿aypal", []string{"ⓟaypal", "⒫aypal", "🅿aypal", "🄿aypal"}},
		{"hр.com pay@hр.com hр@163.com х.com www.х.com х@mail.example", []string{"hр", "hр", "hр", "х", "х", "х"}},
		{"ᏢᎪᎽᏢᎪᏞ.com ꓑꓮꓬꓑꓮꓡ.com ⲣⲁⲩ.com ⓟⓐⓨ.com ꮲꭺᎽ.com", []string{"ᏢᎪᎽᏢᎪᏞ", "ꓑꓮꓬꓑꓮꓡ", "ⲣⲁⲩ", "ⓟⓐⓨ", "ꮲꭺᎽ"}},
		{"раура1.com раура-security.com аррӏе一secure.com р\u200baypal.com", []string{"раура1", "раура", "аррӏе", "р"}},
		{"paypaל.com", []string{"paypaל"}},
		{"mℓ.com µtorrent 🄟aypal", []string{"mℓ", "µtorrent", "🄟aypal"}},
		{"аррӏе.pdf.com", []string{"аррӏе"}},
		{"аррӏе․com/x pay.аррӏе．com", []string{"аррӏе", "аррӏе"}},
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
		`"www.xn--pple-43d.com"`: "in code", "аррӏе": "Cyrillic letters that look like Latin ones", "СОР АЕ": "Cyrillic letters that look", "ор": "Cyrillic", "о": "", "Оса Петров": "", "Ασ": "", "ΑΒΕ": "Greek letters that look", "10 Ω": "", "a д α א": "Latin, Cyrillic, Greek and Hebrew", "ａcme": "fullwidth and Latin",
		"paypaℓ.com": "Latin and mathematical", "hр.com": "Latin and Cyrillic", "х.com": "Cyrillic and Latin", "ＡＢＣ会社": "", "ＡＢＣ会社 Tokyo": "fullwidth",
		"pay.com∕evil.example": "a dot or a slash", "https://pay.com⁄x": "a dot or a slash", "pay․com": "a dot or a slash", "example。com": "a dot or a slash", "example.com／x": "a dot or a slash",
		"東京／大阪": "", "Ｊ．フロント": "", "пример․рф": "a dot or a slash", "ᏢᎪᎽ.com": "Cherokee and Latin", "a/b.c": "",
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

// TestLookalikesOfOneLanguage: ordinary texts of one language are not doubted.
func TestLookalikesOfOneLanguage(t *testing.T) {
	for _, text := range []string{
		"Die Größe beträgt 5 µm, 10 μmol/L, 4.7kΩ, 10kΩ@25℃, 3MΩcm, 250mℓ und 2 ㎡; Nr. № 5, ½ l, x², H₂O, 20 °C, 5 Å, 37℃, ™ © ® ª º ⁿ.",
		"Straße, z.B. für die Umstellung: mueller@beispiel.example, https://beispiel.example/straße?q=größe",
		"ℹ️ Info 🅿️Parken Ⓜ️ Metro 🇩🇪Deutschland 👨‍👩‍👧 ✅ fertig ➜ weiter ♥️",
		"Смотрите SEO-курс, IP-АТС, ТВ-TV, web-рост и USB-хост; т.е. так, см. https://ru.example/wiki/Оса, файл «оса.pdf» и расход_по_смете.xlsx.",
		"Пишите на sales@acme.example или ivan.petrov@пример.рф. Сайт: пример.com, 5 мкм, № 12, 100 ₽.",
		"Η εφαρμογή API της Αθήνας: info@acme.example, αρχείο.pdf, https://el.example/wiki/Αθήνα, 5 μm, 10 €·h, Ω.",
		"厚度为5µm的薄膜和10kΩ电阻，α射线与β细胞，第Ⅲ章，请访问www.example.com网站，版本2.0，π值。联系user@example.com吧。",
		"ＮＨＫとNTTのＴシャツ、ＦＦⅦ、５０００円、２５℃、5μmのフィルム、www.example.comを参照。メーカーABCの㈱、①〜③、ⓐ項目、メール：user@example.comまで",
		"API를 사용해 5µm 두께의 ⓐ항목, ㈜회사, naver.com에서 확인, user@example.com으로 보내세요. 10kΩ저항",
		"इस APIको WhatsAppपर भेजें: user@example.com, ५ µm, ₹500, हिन्दी।",
		"הAPI וGoogle בWindows: user@example.com, مرحبا بكم في APIالجديد, แอปFacebookเวอร์ชัน2.0 ใช้ได้",
		"Հայերեն API, ქართული API, Tiếng Việt: đường dẫn, Hawaiʻi, naïve œuvre, İstanbul’da",
	} {
		for l := range Lookalikes(text) {
			t.Errorf("%q: %s", text[l.Start:l.End], l.Why)
		}
	}
}

// TestScriptOf: the table that is searched says of every letter what the standard library says.
func TestScriptOf(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		got := scriptOf(r)
		switch {
		case got == fullWidth || got == styled || r == 0xb5:
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
