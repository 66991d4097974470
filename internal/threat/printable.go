package threat

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// marksMax is how many combining marks in a row are shown as such; real scripts need fewer.
const marksMax = 4

// Printable makes s safe for a terminal or a log line. Whatever could move the
// cursor, change a colour, reorder the text, hide in it or break the line is
// written as an escape: \n, \x1b, \u202e, \U000e0041; a byte that is not UTF-8
// as \xff. The result is one line of valid UTF-8.
//
// At most max bytes of text are written; then "…(+N bytes)" says how many bytes of s are left out.
func Printable(s string, max int) string {
	clean := 0
	for clean < len(s) && s[clean] >= ' ' && s[clean] < 0x7f {
		clean++
	}
	if clean == len(s) && len(s) <= max {
		return s
	}
	var out strings.Builder
	marks := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		part := s[i : i+n]
		if unicode.Is(unicode.M, r) {
			marks++
		} else {
			marks = 0
		}
		if r == utf8.RuneError && n <= 1 {
			part = `\x` + hex2(s[i])
		} else if !visible(r) || marks > marksMax {
			part = escape(r)
		}
		if out.Len()+len(part) > max {
			out.WriteString("…(+" + strconv.Itoa(len(s)-i) + " bytes)")
			break
		}
		out.WriteString(part)
		i += n
	}
	return out.String()
}

// visible: a letter, mark, number, punctuation, symbol or the ASCII space, and not one of those that Unicode
// classes so although they show nothing (Default_Ignorable_Code_Point, blank letters and symbols).
func visible(r rune) bool {
	switch {
	case r >= ' ' && r < 0x7f:
		return true
	case !unicode.IsPrint(r):
		return false
	case r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2800, r == 0x3164, r == 0xffa0,
		r >= 0x180b && r <= 0x180f, r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000 && r <= 0xe0fff, r == 0x13441 || r == 0x13442:
		return false
	}
	return true
}

func escape(r rune) string {
	switch r {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	h := strconv.FormatUint(uint64(r), 16)
	switch {
	case r < 0x80:
		return `\x` + hex2(byte(r))
	case r < 0x10000:
		return `\u` + strings.Repeat("0", 4-len(h)) + h
	}
	return `\U` + strings.Repeat("0", 8-len(h)) + h
}

func hex2(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}
