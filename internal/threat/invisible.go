package threat

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/display"
)

// Invisible looks for characters that show nothing, or turn what stands beside them, in a text that is to be sent. refused says which of them has no place there
// ("": none has): tag characters, marks that embed, override or isolate a direction, a zero-width space, a word joiner, controls but tab and line ends, and those
// below where nothing needs them. marked is how many others there are: a joiner where a script or an emoji needs it, a variation selector behind what it varies, a
// mark of direction beside a letter that is written from right to left, and blank characters of scripts.
func Invisible(s string) (refused string, marked int) {
	before := rune(-1) // the character before, whatever it is
	base := rune(-1)   // the last one that is no mark
	for i, r := range s {
		n := utf8.RuneLen(r)
		if r >= ' ' && r < 0x7f || r == '\t' || r == '\n' || r == '\r' {
			before, base = r, r
			continue
		}
		after := rune(-1)
		if n > 0 && i+n < len(s) {
			after, _ = utf8.DecodeRuneInString(s[i+n:])
		}
		switch needed(r, before, base, after) {
		case refusedRune:
			if refused == "" {
				refused = fmt.Sprintf("U+%04X", r)
			}
			marked++
		case markedRune:
			marked++
		}
		if before = r; !unicode.Is(unicode.M, r) {
			base = r
		}
	}
	return refused, marked
}

const (
	plainRune = iota
	markedRune
	refusedRune
)

const (
	nonJoiner, joiner = 0x200c, 0x200d
	emojiSelector     = 0xfe0f
)

// needed says whether a character may stand between these.
func needed(r, before, base, after rune) int {
	allowed := func(ok bool) int {
		if ok {
			return markedRune
		}
		return refusedRune
	}
	switch {
	case unicode.Is(unicode.Cc, r), r >= 0xe0000 && r <= 0xe007f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0x200b, r == 0xfeff, r >= 0xfff9 && r <= 0xfffb:
		return refusedRune
	case r == nonJoiner: // RFC 5892, A.1; between letters that join at all
		return allowed(virama(before) || virama(after) && unicode.IsLetter(base) || cursive(base) && cursive(after))
	case r == joiner: // RFC 5892, A.2; and in emoji
		return allowed(virama(before) || virama(after) && unicode.IsLetter(base) || (pictograph(before) || before == emojiSelector && pictograph(base)) && pictograph(after))
	case selector(r):
		return allowed(before > ' ' && display.Visible(before))
	case r == 0x200e || r == 0x200f || r == 0x061c:
		return allowed(rightToLeft(before) || rightToLeft(after))
	case display.Visible(r) || unicode.Is(unicode.Zs, r):
		return plainRune
	}
	return markedRune
}

// selector tells whether a character chooses among the forms of the one before it.
func selector(r rune) bool {
	return r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef || r >= 0x180b && r <= 0x180d || r == 0x180f
}

func rightToLeft(r rune) bool { return display.RightToLeft(r) && display.Visible(r) }

// pictograph tells whether emoji are joined from it: a symbol, or a tone of skin.
func pictograph(r rune) bool { return unicode.Is(unicode.So, r) || r >= 0x1f3fb && r <= 0x1f3ff }

// cursive tells whether a letter is of a script whose letters join.
func cursive(r rune) bool {
	return unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Nko, unicode.Phags_Pa, unicode.Mandaic, unicode.Manichaean, unicode.Psalter_Pahlavi,
		unicode.Adlam, unicode.Hanifi_Rohingya, unicode.Sogdian) && unicode.IsLetter(r)
}

// virama tells whether a mark takes the vowel from the letter before it (canonical combining class 9).
func virama(r rune) bool {
	switch r {
	case 0x094d, 0x09cd, 0x0a4d, 0x0acd, 0x0b4d, 0x0bcd, 0x0c4d, 0x0ccd, 0x0d3b, 0x0d3c, 0x0d4d, 0x0dca, 0x0e3a, 0x0eba, 0x0f84, 0x1039, 0x103a, 0x1714, 0x1715, 0x1734, 0x17d2,
		0x1a60, 0x1b44, 0x1baa, 0x1bab, 0x1bf2, 0x1bf3, 0x2d7f, 0xa806, 0xa82c, 0xa8c4, 0xa953, 0xa9c0, 0xaaf6, 0xabed, 0x10a3f, 0x11046, 0x11070, 0x1107f, 0x110b9, 0x11133, 0x11134,
		0x111c0, 0x11235, 0x112ea, 0x1134d, 0x11442, 0x114c2, 0x115bf, 0x1163f, 0x116b6, 0x1172b, 0x11839, 0x1193d, 0x1193e, 0x119e0, 0x11a34, 0x11a47, 0x11a99, 0x11c3f, 0x11d44,
		0x11d45, 0x11d97, 0x11f41, 0x11f42:
		return true
	}
	return false
}
