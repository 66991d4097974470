package screen

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// What a character is folded to: a letter or digit in lower case, a separator, nothing at all, or one of several characters.
const (
	dropped   rune = 0
	separator rune = ' '
	several   rune = 1 << 24 // plus an index of foldings.more
)

// foldings says for the characters beyond ASCII what they are folded to: compatibility forms to plain ones (NFKC), capitals to small letters, letters that
// look like Latin ones to those, what is invisible to nothing. Letters of other scripts stay.
type foldings struct {
	planes []plane
	more   []string
}

type plane struct {
	from, to rune // to is not in it
	is       []rune
}

// folded is made once, when the first text beyond ASCII comes.
var folded = sync.OnceValue(func() *foldings {
	f := &foldings{}
	for _, p := range [...][2]rune{{0x80, 0x3400}, {0xA640, 0xA6A0}, {0xA720, 0xA800}, {0xFB00, 0xFB50}, {0xFE00, 0x10000}, {0x1D400, 0x1D800}, {0x1F100, 0x1F200}} {
		pl := plane{from: p[0], to: p[1], is: make([]rune, p[1]-p[0])}
		for r := p[0]; r < p[1]; r++ {
			pl.is[r-p[0]] = f.work(r)
		}
		f.planes = append(f.planes, pl)
	}
	return f
})

// of returns what r, beyond ASCII, is folded to.
func (f *foldings) of(r rune) rune {
	for i := range f.planes {
		if p := &f.planes[i]; r >= p.from && r < p.to {
			return p.is[r-p.from]
		}
	}
	switch {
	case ideograph(r):
		return r
	case r >= tagFirst && r <= tagLast:
		return plainASCII(r - tagFirst + ' ')
	case r >= 0xE0000 && r < 0xE1000:
		return dropped
	}
	return plain(r)
}

// The tag characters that stand for printable ASCII.
const tagFirst, tagLast = 0xE0020, 0xE007E

// ideograph tells whether r is a letter that is a word by itself, because nothing separates words in its script.
func ideograph(r rune) bool {
	return r >= 0x3400 && r <= 0x9FFF || r >= 0x20000 && r <= 0x3FFFF || r >= 0x3040 && r <= 0x30FF || r >= 0xF900 && r <= 0xFAFF
}

func (f *foldings) work(r rune) rune {
	if to, ok := looksLike[r]; ok {
		return to
	}
	switch {
	case ideograph(r):
		return r
	case r == '’' || r == 'ʼ': // an apostrophe is in a word
		return dropped
	case r == 0xAD || r >= 0x300 && r <= 0x36F || r >= 0xFE00 && r <= 0xFE0F || unicode.Is(unicode.Cf, r) || r == 0x115F || r == 0x1160 || r == 0x3164 || r == 0xFFA0:
		return dropped
	case r >= 0x1F1E6 && r <= 0x1F1FF: // regional indicators
		return r - 0x1F1E6 + 'a'
	case r >= 0x1F150 && r <= 0x1F169:
		return r - 0x1F150 + 'a'
	case r >= 0x1F170 && r <= 0x1F189:
		return r - 0x1F170 + 'a'
	}
	var out [norm.MaxTransformChunkSize]byte
	var letters [16]rune
	n := 0
	for _, c := range string(norm.NFKD.AppendString(out[:0], string(r))) {
		if c >= 0x300 && c <= 0x36F || n == len(letters) {
			continue
		}
		if to, ok := looksLike[c]; ok {
			c = to
		}
		if c = plain(c); c == dropped {
			continue
		}
		letters[n] = c
		n++
	}
	switch {
	case n == 0:
		return separator
	case n == 1:
		return letters[0]
	case r >= 0xAC00: // forms of presentation; below are letters that decompose into a base and a mark of the script's own
	case r < 0x2000:
		return plain(r)
	}
	f.more = append(f.more, string(letters[:n]))
	return several + rune(len(f.more)-1)
}

// plain folds a character that has no other form.
func plain(r rune) rune {
	switch {
	case r < utf8.RuneSelf:
		return plainASCII(r)
	case unicode.IsLetter(r):
		return unicode.ToLower(r)
	case unicode.IsDigit(r):
		return '0'
	case unicode.IsMark(r):
		return r
	}
	return separator
}

func plainASCII(r rune) rune { return rune(ascii[r&0x7F]) }

// ascii folds the bytes below 0x80. All digits are one: which number it is says nothing.
var ascii = func() (t [256]byte) {
	for i := range t {
		switch c := byte(i); {
		case c >= 'a' && c <= 'z':
			t[i] = c
		case c >= '0' && c <= '9':
			t[i] = '0'
		case c >= 'A' && c <= 'Z':
			t[i] = c | 0x20
		default:
			t[i] = ' '
		}
	}
	return t
}()

// looksLike has letters of other alphabets with the Latin letter that they look like. They are folded in every text, also where they are letters of a language:
// rules and model see all texts folded alike.
var looksLike = func() map[rune]rune {
	m := map[rune]rune{}
	for _, p := range [...][2]string{
		{"аАеЕкКмМНһҺоОрРсСтТуУүҮхХіІїЇјЈѕЅԁԛԝӏӀѵѴЅВ", "aaeekkmmhhhooppccttyyyyxxiiiijjssdqwllvvsb"},
		{"αΑοΟνΝρΡτΤιΙκΚυΥεΕηΗχΧωΒβΜΖ", "aaoovnppttiikkuyeenhxxwbbmz"},
		{"ɑɡıɩɪᴀʙᴄᴅᴇꜰɢʜᴊᴋʟᴍɴᴏᴘǫʀꜱᴛᴜᴠᴡʏᴢøØđĐłŁħĦŧŦɓɗɛƒɦɨɭɱŋɵʂʈʉʋʐƀƃɐǝɔ", "agiiiabcdefghjklmnopqrstuvwyzooddllhhttbdefhilmnostuvzbbaeo"},
		{"օհոսցԼզեյո", "ohnugtqejn"},
		{"ᎪᎬᎻᎫᏦᏞᎷᏢᎡᏚᎢᏙᎳ", "aehjklmprstvw"},
	} {
		to := []rune(p[1])
		for i, r := range []rune(p[0]) {
			m[r] = to[i]
		}
	}
	return m
}()
