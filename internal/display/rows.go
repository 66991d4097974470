package display

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// spacesMax is how many spaces in a row are shown; more are counted.
const spacesMax = 8

// Counted is all of s for a terminal, with long runs of spaces counted: what stands behind them would be out of sight. Neither \[ nor \x is an
// escape of JSON's, so that in JSON these can't be taken for what stands there.
func Counted(s string) string {
	s = Terminal(s, Whole)
	if !strings.Contains(s, strings.Repeat(" ", spacesMax+1)) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		rest := strings.TrimLeft(s, " ")
		if n := len(s) - len(rest); n > spacesMax {
			fmt.Fprintf(&out, `\[%d spaces]`, n)
		} else {
			out.WriteString(s[:n])
		}
		text, _, _ := strings.Cut(rest, " ")
		out.WriteString(text)
		s = rest[len(text):]
	}
	return out.String()
}

// Columns is how many columns of a terminal a rune takes at most.
func Columns(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	return 2
}

// Wrap cuts text into pieces of at most so many columns; between words, if it may and there are any.
func Wrap(s string, width int, words bool) (pieces []string) {
	for {
		used, end, space := 0, len(s), -1
		for i, r := range s {
			if r == ' ' {
				space = i
			}
			if used += Columns(r); used > width {
				end = i
				break
			}
		}
		if end == len(s) {
			return append(pieces, s)
		}
		if words && space > end/2 {
			pieces, s = append(pieces, s[:space]), s[space+1:]
			continue
		}
		pieces, s = append(pieces, s[:end]), s[end:]
	}
}
