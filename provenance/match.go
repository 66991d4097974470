package provenance

import (
	"bytes"
	"math/big"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Two values are the same if their forms are. A form says what kind of value it is, so a number never equals a name that happens to be written
// in digits. Forms are compared as a whole; no value is ever searched for inside another.
//
//	mail     a mail address: letter case does not count
//	link     a web address, but not the bare name of a file (README.md): the scheme http or https, the letter case of the host and a lone trailing slash do not count; the rest is exact
//	number   a decimal number: 10, 10.00 and 1e1 are the same
//	account  an account or telephone number: letter case, spaces and hyphens do not count
//	text     any other value: letter case and the amount of white space do not count
//
// A value that is longer than maxValue, or has control or invisible characters, has no form and equals nothing.

const (
	maxValue  = 512 // bytes of a value that is compared
	maxDigits = 64  // bytes of a number

	minAccountDigits = 6
)

// The characters that most values consist of.
const (
	digits = "0123456789"
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// only reports whether s has no characters but those of set.
func only(s string, set *chars) bool {
	for i := range len(s) {
		if !set[s[i]] {
			return false
		}
	}
	return true
}

// chars is a set of bytes.
type chars [256]bool

func charsOf(all string) *chars {
	var set chars
	for i := range len(all) {
		set[all[i]] = true
	}
	return &set
}

var (
	digitChars    = charsOf(digits)
	lowerChars    = charsOf(lower)
	mantissaChars = charsOf(digits + ".")
	mailChars     = charsOf(lower + upper + digits + "._%+-") // of the part before the @
	lowMailChars  = charsOf(lower + digits + "._%+-")
	schemeChars   = charsOf(lower + digits + "+-.")
	hostChars     = charsOf(lower + digits + ".-_")
	pathChars     = charsOf(lower + upper + digits + "/?=&-._~")
	ownerChars    = charsOf(lower + upper + digits + "-")
	repoChars     = charsOf(lower + upper + digits + "-_.")
)

type form struct {
	kind  kind
	value string
}

type kind byte

const (
	formless kind = iota
	mail
	link
	number
	account
	text
)

// formOf is the form of a value. ok is false if it has none.
func formOf(s string) (f form, ok bool) {
	f, folded := unfoldedForm(s)
	if !folded {
		f.value = fold(f.value)
	}
	return f, f.kind != formless
}

// unfoldedForm is formOf, but for a text that has yet to be folded.
func unfoldedForm(s string) (f form, folded bool) {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > maxValue {
		return form{}, true
	}
	m := marksOf(s)
	if m.invisible {
		return form{}, true
	}
	if f, ok := structuredForm(s, m); ok {
		return f, true
	}
	return form{text, s}, m.folded
}

// structuredForm is the form of a value that is more than a text.
func structuredForm(s string, m marks) (f form, ok bool) {
	if m.at {
		if a, ok := mailOf(s); ok {
			return form{mail, a}, true
		}
	}
	if m.digits > 0 {
		if n, ok := numberOf(s); ok {
			return form{number, n}, true
		}
	}
	if m.dot && isFileName(s) {
		return form{}, false
	}
	if (m.dot || m.colon) && !m.noLink { // a host has a point, and what has none has at least a scheme
		if l, ok := spelledLink(s); ok {
			return form{link, l}, true
		}
	}
	if m.digits >= minAccountDigits {
		if a, ok := accountOf(s); ok {
			return form{account, a}, true
		}
	}
	return form{}, false
}

// marks are what one look at the bytes of a value tells of the forms that it can have.
type marks struct {
	at, dot, colon bool
	digits         int
	noLink         bool // it has a character that no link has
	folded         bool // fold changes nothing
	invisible      bool // it is not printable
}

func marksOf(s string) marks {
	var all, digits uint16
	for i := range len(s) {
		kind := byteMarks[s[i]]
		all |= kind
		digits += kind >> digitShift
	}
	m := marks{at: all&atMark != 0, dot: all&dotMark != 0, colon: all&colonMark != 0, digits: int(digits), invisible: all&invisibleMark != 0}
	m.noLink = all&(spaceMark|breakMark|linklessMark) != 0
	m.folded = all&(upperMark|breakMark|foreignMark) == 0 && !(all&spaceMark != 0 && strings.Contains(s, "  "))
	if all&foreignMark != 0 { // outside ASCII
		m.noLink = m.noLink || hasLikeASCII(s)
		m.invisible = !printable(s)
	}
	return m
}

// Marks of bytes, for marksOf. That of a digit is above all others, so that they can be counted; a value has at most maxValue of them.
const (
	upperMark = 1 << iota
	dotMark
	colonMark
	atMark
	spaceMark
	breakMark    // white space but for the space
	linklessMark // another one that no link has
	invisibleMark
	foreignMark

	digitShift = 15
)

var byteMarks = func() (marks [256]uint16) {
	for c := range marks {
		switch {
		case c < ' ' || c == 0x7f:
			marks[c] = invisibleMark
		case c >= utf8.RuneSelf:
			marks[c] = foreignMark
		}
	}
	for _, of := range []struct {
		mark uint16
		all  string
	}{{1 << digitShift, digits}, {upperMark, upper}, {dotMark, "."}, {colonMark, ":"}, {atMark, "@"}, {spaceMark, " "}, {breakMark, "\t\n\r"}, {linklessMark, noLinkMarks}} {
		for _, c := range []byte(of.all) {
			marks[c] = of.mark
		}
	}
	return marks
}()

// tokenForm is the form of a word that is an address, a link, a number or an account; ok is false for any other one. Most words are none, and cost little.
func tokenForm(s string) (f form, ok bool) {
	if s = strings.TrimSpace(s); plainWord(s) || len(s) > maxValue {
		return form{}, false
	}
	m := marksOf(s)
	if m.invisible {
		return form{}, false
	}
	return structuredForm(s, m)
}

// plainWord reports whether a text has no digit and none of the marks that addresses, links and hosts have.
func plainWord(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= '0' && c <= '9' || c == '@' || c == '.' || c == ':' {
			return false
		}
	}
	return true
}

// printable reports whether every character of s is visible: valid UTF-8 without control and format characters, except white space.
func printable(s string) bool {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return false
			}
		}
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f || r > 0x7f && (unicode.Is(unicode.C, r) || unicode.Is(variation, r)) {
			return false
		}
	}
	return true
}

// variation are characters that change how the one before is drawn, and fillers that are not drawn.
var variation = &unicode.RangeTable{
	R16: []unicode.Range16{{0x034f, 0x034f, 1}, {0x115f, 0x1160, 1}, {0x17b4, 0x17b5, 1}, {0x180b, 0x180f, 1}, {0x3164, 0x3164, 1}, {0xfe00, 0xfe0f, 1}, {0xffa0, 0xffa0, 1}},
	R32: []unicode.Range32{{0xe0100, 0xe01ef, 1}},
}

// likeASCII are letters outside ASCII whose lower case is ASCII: an address with one of them is another address.
const likeASCII = "\u0130\u212a"

func hasLikeASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return strings.ContainsAny(s[i:], likeASCII)
		}
	}
	return false
}

// fold is s in lower case with every run of white space as one space.
func fold(s string) string {
	b := make([]byte, 0, 128) // on the stack, for most
	for i := range len(s) {
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			return strings.Join(strings.Fields(strings.ToLower(s)), " ")
		case c == ' ' || c >= '\t' && c <= '\r':
			if len(b) > 0 && b[len(b)-1] != ' ' {
				b = append(b, ' ')
			}
		case c >= 'A' && c <= 'Z':
			b = append(b, c|0x20)
		default:
			b = append(b, c)
		}
	}
	return string(bytes.TrimSuffix(b, []byte(" ")))
}

// mailOf reads one mail address: a@b.c, or A <a@b.c>, of which programs take the part in brackets. If the name could itself be taken for an address
// or a list, the value is no address.
func mailOf(s string) (string, bool) {
	if strings.IndexByte(s, '@') < 0 {
		return "", false
	}
	if name, rest, ok := strings.Cut(s, "<"); ok {
		address, ok := strings.CutSuffix(rest, ">")
		if name = strings.TrimSpace(name); len(name) > 1 && name[0] == '"' && name[len(name)-1] == '"' {
			name = strings.ReplaceAll(name[1:len(name)-1], ",", "")
		}
		if !ok || strings.ContainsAny(name, "@<>\",;:()[]\\\n\r\t") || linkAt(visibleText(name)) >= 0 {
			return "", false
		}
		s = address
	}
	if hasLikeASCII(s) {
		return "", false
	}
	s = strings.ToLower(s)
	local, domain, ok := strings.Cut(s, "@")
	if !ok || local == "" || !hostname(domain) {
		return "", false
	}
	return s, only(local, lowMailChars)
}

// hostname reports whether s has at least two labels of letters, digits and hyphens, the last one not of digits alone.
func hostname(s string) bool {
	if len(s) > 253 {
		return false
	}
	letters, begin := false, 0 // of the label at hand
	for i, r := range s {
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 0x7f && (unicode.IsLetter(r) || unicode.IsMark(r)):
			letters = true
		case r >= '0' && r <= '9' || r == '-' || r == '_':
		case r == '.':
			if !hostLabel(s[begin:i]) {
				return false
			}
			letters, begin = false, i+1
		default:
			return false
		}
	}
	last := s[begin:]
	return begin > 0 && letters && hostLabel(last) && utf8.RuneCountInString(last) > 1
}

// hostLabel reports whether the characters of a host name may stand together between points.
func hostLabel(s string) bool {
	return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-'
}

// numberOf reads a decimal number without a unit: digits, a point, a sign, an exponent of two digits. Digits with leading zeros are a code and not
// a number: 007 and 7 differ.
func numberOf(s string) (string, bool) {
	if len(s) > maxDigits {
		return "", false
	}
	unsigned := strings.TrimLeft(s, "-")
	if len(s)-len(unsigned) > 1 || unsigned == "" || unsigned[0] < '0' || unsigned[0] > '9' || len(unsigned) > 1 && unsigned[0] == '0' && unsigned[1] != '.' && unsigned[1] != 'e' && unsigned[1] != 'E' {
		return "", false
	}
	for i := range len(unsigned) { // most of what begins with a digit ends here: dates, versions, amounts with a unit
		if c := unsigned[i]; c-'0' > 9 && c|0x20 != 'e' && c != '.' && c != '-' && c != '+' {
			return "", false
		}
	}
	mantissa, power, exp := strings.Cut(strings.ToLower(unsigned), "e")
	if exp && len(strings.TrimLeft(power, "+-")) > 2 || !only(mantissa, mantissaChars) || strings.Count(mantissa, ".") > 1 { // also keeps the number small
		return "", false
	}
	if unsigned != "0" && only(unsigned, digitChars) {
		return s, true
	}
	if !exp && len(unsigned) <= maxShortDecimal {
		return shortDecimal(s, unsigned), true
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return "", false
	}
	return r.RatString(), true
}

// maxShortDecimal is how many digits and points a number may have that shortDecimal reads: they have room in 64 bits, and so has their power of ten.
const maxShortDecimal = 18

// shortDecimal is big.Rat.RatString of a number without an exponent, of digits and at most one point: most numbers are that short.
func shortDecimal(s, unsigned string) string {
	n, d := uint64(0), uint64(1)
	behind := false
	for i := range len(unsigned) {
		if c := unsigned[i]; c == '.' {
			behind = true
		} else {
			n = n*10 + uint64(c-'0')
			if behind {
				d *= 10
			}
		}
	}
	for _, p := range []uint64{2, 5} {
		for d%p == 0 && n%p == 0 {
			n, d = n/p, d/p
		}
	}
	b := make([]byte, 0, 40)
	if len(unsigned) < len(s) && n != 0 {
		b = append(b, '-')
	}
	b = strconv.AppendUint(b, n, 10)
	if d > 1 {
		b = strconv.AppendUint(append(b, '/'), d, 10)
	}
	return string(b)
}

// noLinkMarks are the characters that no link has, besides white space and likeASCII.
const noLinkMarks = "\\\"<>`{}|^"

// linkOf reads a web address: with a scheme, or a host name with or without a path. An address with a user, an odd port, a backslash or a space is
// no link.
func linkOf(s string) (string, bool) {
	if m := marksOf(s); m.noLink {
		return "", false
	}
	return spelledLink(s)
}

// spelledLink is linkOf a text without characters that no link has.
func spelledLink(s string) (string, bool) {
	at := strings.IndexAny(s, ":/?#")
	if at < 0 {
		at = len(s)
	}
	scheme, rest, schemed := "", s, strings.HasPrefix(s[at:], "://")
	if !schemed {
		// Only behind a scheme a host may have no point. Most texts with a colon end here, a time of day among them.
		if strings.IndexByte(s[:at], '.') < 0 || strings.Contains(s, "://") {
			return "", false
		}
	} else if scheme, rest = strings.ToLower(s[:at]), s[at+len("://"):]; scheme == "https" || scheme == "http" {
		scheme = "" // the server decides between the two
	} else if !only(scheme, schemeChars) {
		return "", false
	}
	host, path := rest, ""
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		host, path = rest[:at], rest[at:]
	}
	host = strings.ToLower(host)
	name, port, _ := strings.Cut(host, ":")
	if !only(port, digitChars) {
		return "", false
	}
	if port != "" {
		name += ":" + port
	}
	bare := strings.TrimSuffix(host, ":"+port)
	if !hostname(strings.TrimSuffix(bare, ".")) {
		if !schemed {
			return "", false
		}
		if _, err := netip.ParseAddr(strings.Trim(bare, "[]")); err != nil && bare != "localhost" {
			return "", false
		}
	}
	if !only(bare, hostChars) || !only(path, pathChars) { // an address of these alone can always be read
		if _, err := url.Parse("https://" + strings.TrimSuffix(bare, ".") + path); err != nil {
			return "", false
		}
	}
	if path == "/" {
		path = ""
	}
	if scheme != "" {
		name = scheme + "://" + name
	} else if len(name)+len(path) == len(rest) && strings.HasPrefix(rest, name) { // as most are: nothing is put together
		return rest, true
	}
	return name + path, true
}

// accountOf reads an account or telephone number: 8 to 40 letters, digits, spaces and hyphens, at least six of them digits, that can't be a date.
func accountOf(s string) (string, bool) {
	if len(s) > 40 {
		return "", false
	}
	digits := 0
	for _, c := range []byte(s) {
		if c >= '0' && c <= '9' {
			digits++
		}
	}
	if digits < minAccountDigits {
		return "", false
	}
	b := make([]byte, 0, 40) // most values are none: nothing is allocated for them
	for i, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z':
			b = append(b, c)
		case c >= 'a' && c <= 'z':
			b = append(b, c-'a'+'A')
		case c == ' ' || c == '-' || c == '+' && i == 0:
		default:
			return "", false
		}
	}
	if _, ok := dateOf(s); ok || len(b) < 8 || len(b) == 8 && maybeDate(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '-' })) {
		return "", false
	}
	return string(b), true
}

// regrouped is the other form of the digits of an account or telephone number: in groups they are an account, in one piece a number.
func (f form) regrouped() (other form, ok bool) {
	if (f.kind != account && f.kind != number) || !only(f.value, digitChars) {
		return form{}, false
	}
	if f.kind == account {
		return form{number, f.value}, true
	}
	return form{account, f.value}, true
}
