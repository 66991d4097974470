package provenance

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	maxLayers   = 8  // encodings of one text, one in the other
	maxReadings = 32 // ways in which one text is compared
)

// readings are the ways in which a text is compared: as it stands; with every encoding resolved that a program may resolve (the compatibility form of
// Unicode, percent codes, entities, escapes), again and again until nothing changes; without markup inside words; and after each layer of base64 or
// hexadecimal. A program that resolves some of them gives what has the same readings in the end. ok is false if there are too many encodings, one in the
// other.
func readings(s string) (all []string, ok bool) {
	all = []string{s}
	for i := 0; i < len(all); i++ {
		plain, ok := resolvedAll(all[i])
		if !ok {
			return all, false
		}
		for _, reading := range [...]string{plain, base64Decoded(plain), looseBase64(plain), hexDecoded(plain), withoutMarkup(plain)} {
			if !slices.Contains(all, reading) {
				if len(all) == maxReadings {
					return all, false
				}
				all = append(all, reading)
			}
		}
	}
	return all, true
}

// resolvedAll is a text with its codes, entities and escapes resolved until nothing changes.
func resolvedAll(s string) (plain string, ok bool) {
	for range maxLayers {
		r := unescaped(html.UnescapeString(percentDecoded(compatible(softBreaks.Replace(s)))))
		if r == s {
			return s, true
		}
		s = r
	}
	return s, false
}

// softBreaks are the line breaks of quoted-printable that are not part of the text.
var softBreaks = strings.NewReplacer("=\r\n", "", "=\n", "")

// compatible is a text in the compatibility form of Unicode, as a reader sees it.
func compatible(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf || r < ' ' }) < 0 {
		return s
	}
	return visibleText(norm.NFKC.String(visibleText(strings.Map(asciiDigit, s))))
}

// asciiDigit is a decimal digit of any script as one of ASCII; any other character is itself. Digits stand in tens, from zero to nine.
func asciiDigit(r rune) rune {
	if r < utf8.RuneSelf || !unicode.IsDigit(r) {
		return r
	}
	for _, t := range unicode.Nd.R16 {
		if r >= rune(t.Lo) && r <= rune(t.Hi) {
			return '0' + (r-rune(t.Lo))%10
		}
	}
	for _, t := range unicode.Nd.R32 {
		if r >= rune(t.Lo) && r <= rune(t.Hi) {
			return '0' + (r-rune(t.Lo))%10
		}
	}
	return r
}

// percentCodes are those of addresses, those of mails (quoted-printable), and those of old scripts.
var percentCodes = regexp.MustCompile(`(?:%[0-9A-Fa-f]{2})+|(?:=[0-9A-Fa-f]{2})+|%[uU][0-9A-Fa-f]{4}`)

func percentDecoded(s string) string {
	if !strings.ContainsAny(s, "%=") {
		return s
	}
	return percentCodes.ReplaceAllStringFunc(s, func(codes string) string {
		if codes[1] == 'u' || codes[1] == 'U' {
			n, _ := strconv.ParseUint(codes[2:], 16, 16) // four hex digits
			return string(rune(n))
		}
		r, err := url.PathUnescape(strings.ReplaceAll(codes, "=", "%"))
		if err != nil || !utf8.ValidString(r) {
			return codes
		}
		return r
	})
}

// withoutMarkup are the words of a text that have tags, comments or brackets inside, without these; the text itself if it has no such word.
func withoutMarkup(s string) string {
	r := s
	for range maxLayers {
		from, to := markupIn(r)
		if from == to {
			break
		}
		next := r[:from] + markup.ReplaceAllString(r[from:to], "$1"+joint+"$2") + r[to:]
		if next == r {
			break
		}
		r = next
	}
	if len(r) == len(s) {
		return s
	}
	words := slices.DeleteFunc(strings.Fields(r), func(word string) bool { return !strings.Contains(word, joint) })
	return strings.ReplaceAll(strings.Join(words, " "), joint, "")
}

// markupIn is the part of a text in which markup can be: from the first character that markup can follow, with an opening bracket behind it, to the last that can
// follow markup, with a closing bracket before it. It is empty for most texts, in which brackets stand between words.
func markupIn(s string) (from, to int) {
	for at := 0; ; {
		i := strings.IndexAny(s[at:], "<[({")
		if i < 0 {
			return 0, 0
		}
		at += i
		if r, n := utf8.DecodeLastRuneInString(s[:at]); n > 0 && besideMarkup(r, "([{<") {
			from = at - n
			break
		}
		at++
	}
	for end := len(s); ; {
		i := strings.LastIndexAny(s[from:end], ">])}")
		if i < 0 {
			return 0, 0
		}
		end = from + i
		if r, n := utf8.DecodeRuneInString(s[end+1:]); n > 0 && besideMarkup(r, ")]}>") {
			return from, end + 1 + n
		}
	}
}

// besideMarkup reports whether markup with this character beside it is inside a word.
func besideMarkup(r rune, brackets string) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || strings.ContainsRune("@._-"+joint+brackets, r)
}

// joint stands where markup was.
const joint = "\x1f"

var markup = regexp.MustCompile(`([\pL\pN@._(\[{<\x1f-])(?:<!--.*?-->|<[^<>]*>|\[[^\[\]]*\]|\([^()]*\)|\{[^{}]*\})+([\pL\pN@._)\]}>\x1f-])`)

// escapeCodes are the escapes of JSON, JavaScript, Python and C.
var escapeCodes = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?:u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[0-7]{3}|.)`)

func unescaped(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return escapeCodes.ReplaceAllStringFunc(s, func(escape string) string {
		if len(escape) == len(`\ud835\udc28`) { // the halves of one character
			high, _ := strconv.ParseUint(escape[2:6], 16, 16)
			low, _ := strconv.ParseUint(escape[8:], 16, 16)
			return string(utf16.DecodeRune(rune(high), rune(low)))
		}
		code, base := strings.Trim(escape[1:], "uUx{}"), 16
		if escape[1] >= '0' && escape[1] <= '7' {
			base = 8
		}
		if n, err := strconv.ParseUint(code, base, 32); err == nil && len(escape) > 2 {
			return string(rune(n))
		}
		switch escape[1] {
		case 'n', 'r', 't':
			return " "
		}
		return escape[1:]
	})
}

// decodedMark stands around what was base64: it was an argument of its own, perhaps.
const decodedMark = "\x1e"

// minBase64 is the length of base64 that is found inside a text: a shorter word may look like it by chance.
const minBase64 = 8

// base64Decoded is a text with everything in it that is base64 of a text decoded: in one piece, or in lines.
func base64Decoded(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !(r < utf8.RuneSelf && isBase64(byte(r))) && r != '=' && string(r) != decodedMark && !unicode.IsSpace(r)
	}) {
		if b, ok := base64Text(strings.Join(strings.Fields(strings.ReplaceAll(s, decodedMark, "")), "")); ok {
			return b
		}
	}
	var b strings.Builder
	done := 0
	for at := 0; at < len(s); {
		end := at
		for end < len(s) && isBase64(s[end]) {
			end++
		}
		if end-at >= minBase64 {
			if text, ok := base64Text(s[at:end]); ok {
				b.WriteString(s[done:at] + " " + decodedMark + " " + text + " " + decodedMark + " ")
				done, at = end, end
				continue
			}
			if i := strings.IndexAny(s[at:end], "/-_+"); i >= 0 { // the end of a path, perhaps
				at += i + 1
				continue
			}
		}
		at = end + 1
	}
	if done == 0 {
		return s
	}
	return b.String() + s[done:]
}

func isBase64(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '+' || c == '/' || c == '-' || c == '_'
}

// looseBase64 is a text that is base64 as a whole, as programs read it that leave out every other character and damaged bytes; or else the text itself.
func looseBase64(s string) string {
	if len(s) < minBase64 || !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf || !isBase64(byte(r)) }) && len(s)%4 == 1 {
		return s
	}
	bare := strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf || !isBase64(byte(r)) {
			return -1
		}
		return r
	}, s)
	b, err := base64.RawStdEncoding.DecodeString(urlBase64.Replace(bare[:len(bare)/4*4+[...]int{0, 0, 2, 3}[len(bare)%4]]))
	if text := strings.TrimSpace(readable(b)); err == nil && text != "" && 4*len(text) >= 3*len(b) {
		return text
	}
	return s
}

// readable are the characters of decoded bytes that can be seen, and white space. What is none is left out.
func readable(b []byte) string {
	var text strings.Builder
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if i += n; r != utf8.RuneError && (unicode.IsGraphic(r) || unicode.IsSpace(r)) {
			text.WriteRune(r)
		}
	}
	return text.String()
}

// base64Text decodes base64, also that for addresses, of a text.
func base64Text(s string) (string, bool) {
	if s = strings.TrimRight(s, "="); len(s) < 2 || len(s)%4 == 1 || strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf || !isBase64(byte(r)) }) >= 0 {
		return "", false
	}
	b, err := base64.RawStdEncoding.DecodeString(urlBase64.Replace(s))
	if err != nil || !utf8.Valid(b) {
		return "", false
	}
	text := readable(b)
	bare := strings.TrimSpace(text)
	return bare, bare != "" && (len(text) == len(b) || len(s) >= minBase64 && 3*len(text) >= len(b)) // it may have two bytes for each character
}

// hexDecoded is a text with everything in it that is hexadecimal of a text decoded.
func hexDecoded(s string) string {
	var out []byte
	done := 0
	for at := 0; at < len(s); {
		end := at
		for end < len(s) && strings.IndexByte(digits+"abcdefABCDEF", s[end]) >= 0 {
			end++
		}
		if n := end - at; n >= minHex && n%2 == 0 {
			if b, err := hex.DecodeString(s[at:end]); err == nil && !bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
				out = append(append(out, s[done:at]...), b...)
				done = end
			}
		}
		at = end + 1
	}
	if done == 0 {
		return s
	}
	return string(append(out, s[done:]...))
}

// minHex is the length of hexadecimal of a text.
const minHex = 8

var urlBase64 = strings.NewReplacer("-", "+", "_", "/")
