package threat

import (
	"cmp"
	"encoding/json"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/call"
)

// Lookalike is a part of a text that a reader can take for another: "раypal" in letters of two scripts, "аррӏе.com" in Cyrillic ones that
// look like Latin ones, the "xn--pple-43d.com" that is shown elsewhere as аpple.com.
//
// A word in the letters of one script alone is found where all of its letters look Latin and no letter of the text shows that it is in another
// language: "аррӏе" by itself or among Latin words, but not "оса" in a Russian sentence. Latin letters that look like others (ɑ for a, rn for m) are
// not found here: what they look like has to be known (Resembles). Outside of addresses two
// letters ("hр") are not found either, nor words that a hyphen joins to Latin ones ("SEO-курс"), nor letters of scripts that are written
// to Latin words without a space, such as Hebrew, Arabic, Thai and those of India. East Asian letters count as no look-alikes, and neither do
// digits and dots of other scripts. NameLookalike is stricter.
type Lookalike struct {
	Start, End int // bytes of the text
	Why        string
}

const (
	inCode  = "a name in code (xn--), which programs show in other letters"
	another = "they can pass for others"
	joint   = "it has a character that can pass for a dot or a slash"
)

// Doubt is a text that can be taken for another, with the reason.
type Doubt struct{ Text, Why string }

// Lookalikes yields the look-alikes in a text, in order. Words of another script beside Latin words are none.
func Lookalikes(s string) iter.Seq[Lookalike] {
	return func(yield func(Lookalike) bool) {
		if plainly(s) {
			return
		}
		alike := allLookLatin(s)
		for at := 0; at < len(s); {
			end := at + piece(s[at:], parts)
			if end == at {
				_, n := utf8.DecodeRuneInString(s[at:])
				at += n
				continue
			}
			if !inToken(s, at, end, alike, yield) {
				return
			}
			at = end
		}
	}
}

// LookalikesIn finds the look-alikes in the strings and names of a JSON value, each text once, and at most so many of them. more says that there
// are others. A value that is not JSON is one text.
func LookalikesIn(value []byte, most int) (found []Doubt, more bool) {
	seen := map[string]bool{}
	look := func(s string) {
		for l := range Lookalikes(s) {
			text := s[l.Start:l.End]
			if seen[text] {
				continue
			}
			if more = len(found) >= most; more {
				return
			}
			seen[text] = true
			found = append(found, Doubt{text, l.Why})
		}
	}
	if !json.Valid(value) {
		look(string(value))
		return found, more
	}
	call.Strings(value, func(_, s string) bool {
		look(s)
		return !more
	})
	return found, more
}

// NameLookalike says why a name as a whole, such as an address that something is sent to, can be taken for another one; "" if nothing says so.
// In a name letters of two scripts are enough, and so is a character that looks like a dot or a slash and is none.
func NameLookalike(s string) string {
	var all scripts
	for _, r := range s {
		all.add(r)
	}
	if why := all.mixed(); why != "" {
		return why
	}
	wide := !all.has(latin) // then these are punctuation of the language
	for _, r := range s {
		if strings.ContainsRune("․﹒ꓸ܁܂⸼⁄∕⧸⟋╱", r) || !wide && strings.ContainsRune("。．｡／⼃〳", r) {
			return joint
		}
	}
	for l := range Lookalikes(s) {
		return l.Why
	}
	if all.n == 1 && all.letters >= leastOfName && all.names[0] != latin && allLookLatin(s) {
		return asLatin(all.names[0])
	}
	return ""
}

// Letters that a word has to have to be taken for a Latin one: one in a text, and a name of its own.
const (
	leastOfWord = 3
	leastOfName = 2
)

func asLatin(script string) string { return script + " letters that look like Latin ones" }

// allLookLatin tells whether a text has letters of other scripts, and all of them look like Latin ones, so that a reader takes it for Latin.
func allLookLatin(s string) bool {
	some := false
	for _, r := range s {
		switch name := scriptOf(r); {
		case name == "" || name == latin:
		case !looksLatin(r, name):
			return false
		case name != fullWidth && name != styled:
			some = true
		}
	}
	return some
}

// plainly tells whether a text can have no look-alike, which holds for most.
func plainly(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return !coded(s)
}

// piece returns the length of the beginning of s that has no separator.
func piece(s string, parts func(rune) bool) int {
	if n := strings.IndexFunc(s, parts); n >= 0 {
		return n
	}
	return len(s)
}

// parts tells whether a rune separates tokens.
func parts(r rune) bool {
	if r < utf8.RuneSelf {
		return r <= ' ' || r == 0x7f || strings.IndexByte("\"'`<>(){}[],;|", byte(r)) >= 0
	}
	return r == utf8.RuneError || unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("“”„«»、。，", r)
}

// inWord tells whether a rune is part of a word. East Asian letters are part of none, and letters of scripts that are written to Latin words
// without a space only in an address.
func inWord(r rune, address bool) bool {
	switch name := scriptOf(r); name {
	case "":
		return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r)
	case eastAsian:
		return false
	case "Hebrew", "Arabic", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala":
		return address
	}
	return true
}

// separates tells whether a rune stands between the labels of an address.
func separates(r rune) bool { return strings.ContainsRune("@/:?#&=%~!\\⁄∕／", r) || dot(r) }

func dot(r rune) bool { return strings.ContainsRune(".․．｡﹒", r) }

// inToken yields the look-alikes of the token between at and end, and tells whether to go on. alike: every letter of the text looks Latin.
func inToken(s string, at, end int, alike bool, yield func(Lookalike) bool) bool {
	token := s[at:end]
	if plainly(token) {
		return true
	}
	var all scripts
	for _, r := range token {
		all.add(r)
	}
	for from := 0; from < len(token); {
		to := from + piece(token[from:], separates)
		if to == from {
			_, n := utf8.DecodeRuneInString(token[from:])
			from += n
			continue
		}
		if !inLabel(token, from, to, all.has(latin) || all.has(fullWidth) || all.has(styled), alike, func(l Lookalike) bool {
			return yield(Lookalike{at + l.Start, at + l.End, l.Why})
		}) {
			return false
		}
		from = to
	}
	return true
}

// inLabel yields the look-alikes of a token's label, and tells whether to go on. beside: the token has Latin letters; whole: every letter of the text
// looks Latin.
func inLabel(token string, from, to int, beside, whole bool, yield func(Lookalike) bool) bool {
	address := ofAddress(token, from, to)
	alike := beside && address && !file(token[to:]) // all of its letters that are not Latin look so
	if alike {
		for _, r := range token[from:to] {
			if name := scriptOf(r); name != "" && name != latin && name != eastAsian && !looksLatin(r, name) {
				alike = false
				break
			}
		}
	}
	for i := from; i < to; {
		rest := token[i:to]
		r, n := utf8.DecodeRuneInString(rest)
		if !inWord(r, address) {
			i += n
			continue
		}
		if scriptOf(r) == styled && strings.HasPrefix(rest[n:], "\ufe0f") { // an emoji
			i += n + len("\ufe0f")
			continue
		}
		why := ""
		if len(rest) >= 4 && strings.EqualFold(rest[:4], "xn--") {
			n, why = piece(rest, func(r rune) bool { return r >= utf8.RuneSelf || r != '-' && !inWord(r, address) }), inCode
		} else {
			n = piece(rest, func(r rune) bool { return !inWord(r, address) })
			var own scripts
			for _, r := range rest[:n] {
				own.add(r)
			}
			switch mixed := own.mixed(); {
			case mixed != "":
				unit := measure(rest[:n])
				if address && !(unit && unicode.IsDigit(r)) || own.letters > 2 && !unit { // 10kΩ@25℃, 4.7kΩ
					why = mixed
				}
			case own.n == 1 && own.names[0] != latin && (alike || whole && own.letters >= leastOfWord && !measure(rest[:n])):
				why = asLatin(own.names[0])
			}
		}
		if why != "" && !yield(Lookalike{i, i + n, why}) {
			return false
		}
		i += n
	}
	return true
}

// ofAddress tells whether a dot or an @ joins a token's label to another one; in numbers it joins none.
func ofAddress(token string, from, to int) bool {
	joins := func(left, joint, right rune) bool {
		return (joint == '@' || dot(joint)) && inWord(left, true) && inWord(right, true) && (scriptOf(left) != "" || scriptOf(right) != "")
	}
	last, _ := utf8.DecodeLastRuneInString(token[from:to])
	first, _ := utf8.DecodeRuneInString(token[from:to])
	before, n := utf8.DecodeLastRuneInString(token[:from])
	outer, _ := utf8.DecodeLastRuneInString(token[:from-n])
	after, n := utf8.DecodeRuneInString(token[to:])
	next, _ := utf8.DecodeRuneInString(token[to+n:])
	return joins(outer, before, first) || joins(last, after, next)
}

// file tells whether the text after a label is the ending of a file name, which no host name has.
func file(rest string) bool {
	end, ok := strings.CutPrefix(rest, ".")
	return ok && slices.Contains([]string{"pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "txt", "csv", "jpg", "jpeg", "png", "html", "xml", "json"}, strings.ToLower(end))
}

var units = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\d*([µμ](m|g|s|l|L|A|V|W|F|H|N|C|T|K|J|Pa|Hz|mol|M|Sv|Gy|Bq|Ci|bar|kat|rad|eV|Wb|lm|lx|ℓ)|[kMGTmnµμ]?[ΩΩ](m|cm|mm)?|[kdcm]?ℓ)\d*$`)
})

// measure tells whether a word is a unit, with or without its figure.
func measure(word string) bool { return units().MatchString(word) }

// coded tells whether the text may hold a name in Punycode.
func coded(s string) bool {
	for i := 0; ; i++ {
		next := strings.Index(s[i:], "--")
		if next < 0 {
			return false
		}
		if i += next; i >= 2 && strings.EqualFold(s[i-2:i], "xn") {
			return true
		}
	}
}

const (
	latin     = "Latin"
	eastAsian = "East Asian"
	fullWidth = "fullwidth"
	styled    = "mathematical, circled or numeral"
)

// scripts are the scripts of some letters.
type scripts struct {
	names   [4]string
	n       int
	letters int
}

func (s *scripts) add(r rune) {
	name := scriptOf(r)
	if name == "" {
		return
	}
	s.letters++
	for _, known := range s.names[:s.n] {
		if known == name {
			return
		}
	}
	if s.n < len(s.names) {
		s.names[s.n] = name
		s.n++
	}
}

func (s *scripts) has(name string) bool { return slices.Contains(s.names[:s.n], name) }

// mixed names the scripts that don't go together. Latin letters stand in Chinese, Japanese and Korean words too, of either width.
func (s *scripts) mixed() string {
	if s.n < 2 || s.n == 2 && s.has(eastAsian) && (s.has(latin) || s.has(fullWidth)) {
		return ""
	}
	return strings.Join(s.names[:s.n-1], ", ") + " and " + s.names[s.n-1] + " letters in one name: " + another
}

// span is runes of one script that follow one another.
type span struct {
	from, to rune
	script   string
}

// spans returns the spans of every script, in order.
var spans = sync.OnceValue(func() (all []span) {
	for name, table := range unicode.Scripts {
		switch name {
		case "Common", "Inherited":
			continue
		case "Han", "Hiragana", "Katakana", "Hangul", "Bopomofo":
			name = eastAsian
		}
		add := func(from, to, stride rune) {
			if stride == 1 {
				all = append(all, span{from, to, name})
				return
			}
			for r := from; r <= to; r += stride {
				all = append(all, span{r, r, name})
			}
		}
		for _, r := range table.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range table.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return all
})

// scriptOf names the script of a letter; "" for other characters and for letters without a script.
func scriptOf(r rune) string {
	switch {
	case r < utf8.RuneSelf:
		if r|0x20 >= 'a' && r|0x20 <= 'z' {
			return latin
		}
		return ""
	case r == 0xb5: // the sign, which is of no script, and looks as the letter does
		return "Greek"
	case r >= 0xff21 && r <= 0xff3a, r >= 0xff41 && r <= 0xff5a:
		return fullWidth
	case r >= 0x1d400 && r <= 0x1d7ff, r >= 0x249c && r <= 0x24e9, r >= 0x1f110 && r <= 0x1f169, r >= 0x1f170 && r <= 0x1f189:
		return styled
	case r >= 0x2100 && r <= 0x214f && (r == 0x212a || unicode.Is(unicode.Common, r)) && unicode.IsLetter(r): // ℓ, ℂ, and the sign of kelvin
		return styled
	case r >= 0x2160 && r <= 0x2188:
		if strings.ContainsRune("ⅡⅢⅣⅥⅦⅧⅨⅪⅫ", r) { // no letter looks so
			return ""
		}
		return styled
	case !unicode.IsLetter(r):
		return ""
	}
	all := spans()
	i, ok := slices.BinarySearchFunc(all, r, func(s span, r rune) int { return cmp.Compare(s.from, r) })
	if !ok {
		i--
	}
	if i >= 0 && r <= all[i].to {
		return all[i].script
	}
	return ""
}

// looksLatin tells whether a letter of another script can be taken for a Latin one. Letters of alphabets that no names are written in today
// count too.
func looksLatin(r rune, script string) bool {
	switch script {
	case fullWidth, styled, "Lisu", "Coptic", "Deseret", "Old_Italic", "Lycian", "Lydian", "Carian", "Runic", "Gothic", "Elbasan":
		return true
	case "Cherokee":
		return strings.ContainsRune("ᎠᎡᎢᎥᎩᎪᎫᎬᎳᎷᎻᎽᏀᏂᏃᏆᏎᏏᏒᏔᏕᏙᏚᏞᏟᏢᏦᏧᏮᏳᏴ", unicode.ToUpper(r))
	}
	return strings.ContainsRune("асԁеһіјӏорԗԛѕԝхуүъЬҽпгѵѡкАВЕЅІЈКМНОРСТХУҮԌԚԜӀ"+"αγικνορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳ"+"օոսցհԼՏՕ", r)
}
