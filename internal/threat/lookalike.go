package threat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Lookalike is a part of a text that a reader can take for another: "аррӏе" in Cyrillic letters, "раypal" in letters of two scripts, the
// "xn--pple-43d.com" that is shown elsewhere as аpple.com. What is written in the letters of one script alone is not found, whatever it
// looks like, and neither is rn for m.
type Lookalike struct {
	Start, End int // bytes of the text
	Why        string
}

const (
	inCode  = "a name in code (xn--), which programs show in other letters"
	another = "they can pass for others"
)

// Doubt is a text that can be taken for another.
type Doubt struct{ Text, Why string }

// Lookalikes finds them in text of any kind, in their order. Words of another script beside Latin ones are none.
func Lookalikes(s string) iter.Seq[Lookalike] {
	return func(yield func(Lookalike) bool) {
		if plainly(s) {
			return
		}
		for at := 0; at < len(s); {
			end := at + piece(s[at:], parts)
			if end == at {
				_, n := utf8.DecodeRuneInString(s[at:])
				at += n
				continue
			}
			if !inToken(s, at, end, yield) {
				return
			}
			at = end
		}
	}
}

// LookalikesIn finds them in the strings and names of a JSON value, each text once. What is not JSON is one text. It stops at so many, and
// more says that there are others.
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
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	for !more {
		token, err := dec.Token()
		if err != nil {
			break
		}
		if s, ok := token.(string); ok {
			look(s)
		}
	}
	return found, more
}

// NameLookalike says why a name as a whole, such as an address that something is sent to, can be taken for another one; "" if nothing says so.
// In a name letters of two scripts are enough.
func NameLookalike(s string) string {
	var all scripts
	for _, r := range s {
		all.add(r)
	}
	if why := all.mixed(); why != "" {
		return why
	}
	for l := range Lookalikes(s) {
		return l.Why
	}
	return ""
}

// plainly tells whether there is nothing to find: most texts are so.
func plainly(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return !coded(s)
}

// piece is how long the part of s is that has none of what parts it.
func piece(s string, parts func(rune) bool) int {
	if n := strings.IndexFunc(s, parts); n >= 0 {
		return n
	}
	return len(s)
}

// parts tells whether a rune stands between what is read as one.
func parts(r rune) bool {
	if r < utf8.RuneSelf {
		return r <= ' ' || r == 0x7f || strings.IndexByte("\"'`<>(){}[],;|", byte(r)) >= 0
	}
	return r == utf8.RuneError || unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("“”„«»、。，", r)
}

// inWord tells whether a rune is of a word: letters that stand together are read together.
func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) }

// inToken yields those between at and end, where nothing parts, and tells whether to go on.
func inToken(s string, at, end int, yield func(Lookalike) bool) bool {
	token := s[at:end]
	if plainly(token) {
		return true
	}
	var all scripts
	for _, r := range token {
		all.add(r)
	}
	for i := 0; i < len(token); {
		r, n := utf8.DecodeRuneInString(token[i:])
		if !inWord(r) {
			i += n
			continue
		}
		why := ""
		if label := token[i:]; len(label) >= 4 && strings.EqualFold(label[:4], "xn--") {
			n, why = piece(label, func(r rune) bool { return r >= utf8.RuneSelf || r != '-' && !inWord(r) }), inCode
		} else {
			n = piece(token[i:], func(r rune) bool { return !inWord(r) })
			word := token[i : i+n]
			var own scripts
			alike := true // all of its letters look like Latin ones
			for _, r := range word {
				own.add(r)
				alike = alike && (!unicode.IsLetter(r) || looksLatin(r))
			}
			switch mixed := own.mixed(); {
			case mixed != "" && own.letters > 2: // kΩ is a unit
				why = mixed
			case mixed == "" && own.n == 1 && own.names[0] != latin && alike && own.letters > 1 && all.mixed() != "":
				why = own.names[0] + " letters that look like Latin ones"
			}
		}
		if why != "" && !yield(Lookalike{at + i, at + i + n, why}) {
			return false
		}
		i += n
	}
	return true
}

// coded tells whether there may be a name in code.
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
	styled    = "mathematical or circled"
)

// scripts are those of some letters.
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

// mixed says which scripts don't go together. Latin letters stand in Chinese, Japanese and Korean words too.
func (s *scripts) mixed() string {
	if s.n < 2 || s.n == 2 && (s.names == [4]string{latin, eastAsian} || s.names == [4]string{eastAsian, latin}) {
		return ""
	}
	return strings.Join(s.names[:s.n-1], ", ") + " and " + s.names[s.n-1] + " letters in one name: " + another
}

// span is runes of one script that follow one another.
type span struct {
	from, to rune
	script   string
}

// spans are those of every script, in their order.
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

// scriptOf names the script of a letter, "" for what is no letter, or one of no script.
func scriptOf(r rune) string {
	switch {
	case r < utf8.RuneSelf:
		if r|0x20 >= 'a' && r|0x20 <= 'z' {
			return latin
		}
		return ""
	case r >= 0xff21 && r <= 0xff3a, r >= 0xff41 && r <= 0xff5a:
		return fullWidth
	case r >= 0x1d400 && r <= 0x1d7ff, r >= 0x24b6 && r <= 0x24e9, r >= 0x1f130 && r <= 0x1f189:
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

// looksLatin tells whether a letter of another script can be taken for a Latin one.
func looksLatin(r rune) bool {
	return strings.ContainsRune("асԁеһіјӏорԗԛѕԝхуүъЬҽпгѵѡкАВЕЅІЈКМНОРСТХУҮԌԚԜӀ"+"αγικνορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳ"+"օոսցհԼՏՕ", r) ||
		r >= 0xff21 && r <= 0xff5a || r >= 0x1d400 && r <= 0x1d7ff || r >= 0x24b6 && r <= 0x24e9 || r >= 0x1f130 && r <= 0x1f189
}
