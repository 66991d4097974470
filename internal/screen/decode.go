package screen

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// escaped tells whether a text may have escapes of JSON and programs (\u0041, \x41), of addresses (%41) or of HTML (&#65;).
func escaped(b []byte) bool {
	return bytes.IndexByte(b, '\\') >= 0 || bytes.IndexByte(b, '%') >= 0 || bytes.IndexByte(b, '&') >= 0
}

// unescape appends b to dst with its escapes undone, and says whether there were any. The text never grows.
func unescape(dst, b []byte) (out []byte, any bool) {
	dst = slices.Grow(dst, len(b)+8)
	for i := 0; i < len(b); {
		if i+8 <= len(b) { // eight bytes at a time, as far as they can't begin an escape
			w := binary.LittleEndian.Uint64(b[i:])
			n := bits.TrailingZeros64(marksIn(w)) / 8 // 8 where none can
			dst = binary.LittleEndian.AppendUint64(dst, w)
			dst = dst[:len(dst)-8+n]
			if i += n; n == 8 {
				continue
			}
		}
		var n int
		var r rune
		raw := false // a byte, not a character
		switch b[i] {
		case '\\':
			if i+1 < len(b) && short[b[i+1]] != 0 { // as most are
				any, dst = true, append(dst, short[b[i+1]])
				i += 2
				continue
			}
			n, r, raw = backslash(b[i:])
		case '%':
			if n, r = hexByte(b[i:], 1); n > 0 {
				raw = true
			}
		case '&':
			n, r = entity(b[i:])
		}
		switch {
		case n == 0:
			dst, n = append(dst, b[i]), 1
		case raw:
			any, dst = true, append(dst, byte(r))
		default:
			any, dst = true, utf8.AppendRune(dst, r)
		}
		i += n
	}
	return dst, any
}

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// marksIn marks the high bit of the first of eight bytes that is \, % or &; bytes above it may be marked though they are none of these. It is 0 where no byte is.
func marksIn(w uint64) uint64 {
	x, y, z := w^'\\'*ones, w^'%'*ones, w^'&'*ones
	return ((x-ones)&^x | (y-ones)&^y | (z-ones)&^z) & highs
}

func digit(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10
	}
	return -1
}

// hexByte reads two hexadecimal digits after a mark of so many bytes.
func hexByte(b []byte, mark int) (n int, r rune) {
	if len(b) < mark+2 {
		return 0, 0
	}
	x, y := digit(b[mark]), digit(b[mark+1])
	if x < 0 || y < 0 {
		return 0, 0
	}
	return mark + 2, x<<4 | y
}

func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	v := rune(0)
	for _, c := range b[:4] {
		d := digit(c)
		if d < 0 {
			return -1
		}
		v = v<<4 | d
	}
	return v
}

// short has what the escapes of one letter or sign stand for; all that end a line or part words are one.
var short = [256]byte{'n': '\n', 'r': '\n', 't': '\n', '"': '"', '/': '/', '\'': '\''}

// backslash reads a run of backslashes and what they escape.
func backslash(b []byte) (n int, r rune, raw bool) {
	k := 1
	for k < len(b) && b[k] == '\\' {
		k++
	}
	if k == len(b) {
		return 0, 0, false
	}
	if c := short[b[k]]; c != 0 {
		return k + 1, rune(c), false
	}
	switch b[k] {
	case 'x':
		n, r = hexByte(b[k:], 1)
		if n > 0 {
			return k + n, r, true
		}
	case 'u':
		v := hex4(b[k+1:])
		if v < 0 {
			return 0, 0, false
		}
		n = k + 5
		if utf16.IsSurrogate(v) && len(b) >= n+6 && b[n] == '\\' && b[n+1] == 'u' {
			if w := utf16.DecodeRune(v, hex4(b[n+2:])); w != utf8.RuneError {
				return n + 6, w, false
			}
		}
		return n, v, false
	}
	return 0, 0, false
}

// entities are the named ones that texts have.
var entities = [...]struct {
	name string
	is   rune
}{{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&nbsp;", ' '}, {"&shy;", 0xAD}, {"&zwnj;", 0x200C}, {"&zwj;", 0x200D}, {"&colon;", ':'}, {"&comma;", ','}, {"&period;", '.'}, {"&NewLine;", '\n'}}

// entity reads a character reference of HTML.
func entity(b []byte) (n int, r rune) {
	if len(b) > 2 && b[1] == '#' {
		i, base, v := 2, rune(10), rune(0)
		if b[2]|0x20 == 'x' {
			i, base = 3, 16
		}
		from := i
		for ; i < len(b) && i < from+8; i++ {
			d := digit(b[i])
			if d < 0 || d >= base {
				break
			}
			v = v*base + d
			if v > utf8.MaxRune {
				return 0, 0
			}
		}
		if i == from {
			return 0, 0
		}
		if i < len(b) && b[i] == ';' {
			i++
		}
		return i, v
	}
	for i := range entities {
		if bytes.HasPrefix(b, []byte(entities[i].name)) {
			return len(entities[i].name), entities[i].is
		}
	}
	return 0, 0
}

// The shortest run of characters that is taken for encoded text, and the least that it has to decode to.
const encodedMin = 20

// inBase64 tells which bytes encoded text has, in either alphabet. Hexadecimal digits are among them.
var inBase64 = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_") {
		t[c] = true
	}
	return t
}()

// nextEncoded finds the next run that may be encoded text, from a place on. It looks at one byte in encodedMin of most texts.
func nextEncoded(b []byte, from int) (start, end int) {
	for i := from + encodedMin - 1; i < len(b); i += encodedMin {
		if !inBase64[b[i]] {
			continue
		}
		start, end = i, i+1
		for start > from && inBase64[b[start-1]] {
			start--
		}
		for end < len(b) && inBase64[b[end]] {
			end++
		}
		if end-start >= encodedMin {
			return start, end
		}
		i = end - 1
	}
	return len(b), len(b)
}

// undo appends to dst the text that a run of base64 or hexadecimal digits stands for; nothing where it stands for no text.
func undo(dst, run []byte) []byte {
	from := len(dst)
	if hexDigits(run) {
		run = run[:len(run)&^1]
		dst = append(dst, run...)
		n, err := hex.Decode(dst[from:], run)
		if err == nil && isText(dst[from:from+n]) {
			return dst[:from+n]
		}
		dst = dst[:from]
	}
	at := len(dst)
	dst = append(dst, run...)
	for i := at; i < len(dst); i++ {
		switch dst[i] {
		case '-':
			dst[i] = '+'
		case '_':
			dst[i] = '/'
		}
	}
	whole := len(run) &^ 3
	if rest := len(run) - whole; rest == 1 {
		dst = dst[:at+whole]
	}
	n, err := base64.RawStdEncoding.Decode(dst[at:], dst[at:])
	if err != nil || !isText(dst[at:at+n]) {
		return dst[:from]
	}
	return dst[:at+n]
}

func hexDigits(b []byte) bool {
	for _, c := range b {
		if digit(c) < 0 {
			return false
		}
	}
	return true
}

// isText tells whether what was decoded is text: valid, and nearly all of it letters, digits, spaces and marks of writing.
func isText(b []byte) bool {
	if len(b) < encodedMin/2 {
		return false
	}
	odd, runes := 0, 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 && i < len(b)-3 || r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0x7F {
			odd++
			if odd > 2 {
				return false
			}
		}
		runes++
		i += n
	}
	return odd*20 <= runes
}
