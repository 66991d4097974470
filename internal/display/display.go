// Package display makes text of strangers safe to show: in a line of a log, in a message, on a terminal. Whatever could move a cursor, change a
// colour, reorder the text, hide in it or break the line is written as an escape: \n, \x1b, \u202e, \U000e0041; a byte that is not UTF-8 as \xff.
// What counts as such stands in one table, Visible. Bounds are in bytes of text, and never cut a character.
//
// What is escaped may look like text that held a backslash. Whoever must know what was there shows it quoted (Quote), or as data (EscapeData).
package display

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Whole is the bound that leaves nothing out.
const Whole = math.MaxInt

// MarksMax is how many combining marks in a row are shown as such; real scripts need fewer.
const MarksMax = 4

// Line is s as one line of valid UTF-8. At most max bytes of text are written; then "…(+N bytes)" says how many bytes of s are left out.
func Line(s string, max int) string { return line(s, max, Visible) }

// Terminal is Line for a terminal, which may know bidirectional text: letters from right to left are escapes, too, since digits beside them
// would be shown in another order than they are sent.
func Terminal(s string, max int) string {
	return line(s, max, func(r rune) bool { return Visible(r) && !RightToLeft(r) })
}

func line(s string, max int, visible func(r rune) bool) string {
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
			part = fmt.Sprintf(`\x%02x`, s[i])
		} else if !visible(r) || marks > MarksMax {
			part = Escape(r)
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

// Clip is s, or at most max bytes of it and "…". It is for text that is made safe where it is shown.
func Clip(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return strings.ToValidUTF8(s[:max], "") + "…"
}

// Quote is Clip in quotes that it can't end itself, with escapes as in Go.
func Quote(s string, max int) string { return quote(s, max, strconv.Quote) }

// ASCII is Quote with nothing but ASCII in it, for names in which letters of other scripts would pass for Latin ones.
func ASCII(s string, max int) string { return quote(s, max, strconv.QuoteToASCII) }

func quote(s string, max int, form func(s string) string) string {
	short, cut := s, ""
	if len(s) > max {
		for max > 0 && !utf8.RuneStart(s[max]) {
			max--
		}
		short, cut = s[:max], "…"
	}
	return Line(form(short), Whole) + cut
}

// Visible tells whether a rune shows and stays where it is: a letter, mark, number, punctuation, symbol or the ASCII space, and not one of
// those that Unicode classes so although they show nothing (Default_Ignorable_Code_Point, variation selectors, blank letters and symbols).
func Visible(r rune) bool {
	switch {
	case r >= ' ' && r < 0x7f:
		return true
	case !unicode.IsPrint(r):
		return false
	case r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2800, r == 0x3164, r == 0xffa0, r == 0x16fe4, r == 0x1d159,
		r >= 0x180b && r <= 0x180f, r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000 && r <= 0xe0fff, r == 0x13441 || r == 0x13442:
		return false
	}
	return true
}

// RightToLeft tells whether a rune makes terminals that know bidirectional text show what stands beside it, digits too, in another order than
// it is sent: everything in the blocks that Unicode keeps for scripts from right to left. Marks that turn text are no letters, and not visible.
func RightToLeft(r rune) bool {
	return r >= 0x0590 && (r <= 0x08ff || r >= 0xfb1d && r <= 0xfdff || r >= 0xfe70 && r <= 0xfeff || r >= 0x10800 && r <= 0x10fff || r >= 0x1e800 && r <= 0x1efff)
}

// Escape writes a rune as an escape.
func Escape(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// Hidden tells whether a terminal would not show a rune of data as it is. ASCII is left to the form that the data has.
func Hidden(r rune) bool { return r > '~' && (!Visible(r) || RightToLeft(r)) }

// EscapeData writes what is hidden in JSON, or in YAML, as escapes of that form. Such characters only stand in quoted strings there.
func EscapeData(b []byte, yaml bool) []byte {
	if !bytes.ContainsFunc(b, Hidden) {
		return b
	}
	var out bytes.Buffer
	for _, r := range string(b) {
		switch {
		case !Hidden(r):
			out.WriteRune(r)
		case r < 0x10000 || yaml:
			out.WriteString(strings.Replace(Escape(r), `\x`, `\u00`, 1)) // \x7f is none in JSON
		default:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		}
	}
	return out.Bytes()
}
