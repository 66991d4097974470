package provenance

import (
	"math/big"
	"net/netip"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// How values are compared. Two values are the same when their forms are; a form says what kind of thing the value is, so a number is never
// the same as a name that happens to be written in digits. Forms are compared whole: nothing is ever found inside something else.
//
//	mail     an address; letter case does not count
//	link     a web address: the scheme may be left out, the host's case does not count, a lone trailing slash neither; the rest is exact
//	number   a decimal number: 10, 10.00 and 1e1 are one
//	account  an account or telephone number: letter case, spaces and hyphens do not count
//	text     anything else: letter case and the amount of white space do not count
//
// What is longer than maxValue, or holds control or invisible characters, has no form: it matches nothing.

const (
	maxValue  = 512 // bytes of a value that is compared
	maxDigits = 64  // bytes of a number
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

// formOf is the form of a value. ok is false where it has none.
func formOf(s string) (f form, ok bool) {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > maxValue || !plain(s) {
		return form{}, false
	}
	if m, ok := mailOf(s); ok {
		return form{mail, m}, true
	}
	if n, ok := numberOf(s); ok {
		return form{number, n}, true
	}
	if l, ok := linkOf(s); ok {
		return form{link, l}, true
	}
	if a, ok := accountOf(s); ok {
		return form{account, a}, true
	}
	return form{text, fold(s)}, true
}

// plain reports whether every character of s can be seen for what it is: valid UTF-8, no control or format characters but white space.
func plain(s string) bool {
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

// variation are the characters that change how the one before is drawn, and fillers that are drawn as nothing.
var variation = &unicode.RangeTable{
	R16: []unicode.Range16{{0x034f, 0x034f, 1}, {0x115f, 0x1160, 1}, {0x17b4, 0x17b5, 1}, {0x180b, 0x180f, 1}, {0x3164, 0x3164, 1}, {0xfe00, 0xfe0f, 1}, {0xffa0, 0xffa0, 1}},
	R32: []unicode.Range32{{0xe0100, 0xe01ef, 1}},
}

// likeASCII are the letters outside ASCII whose lower case is in it: an address with one of them is another address.
const likeASCII = "\u0130\u212a"

// fold is s in lower case with every run of white space as one space.
func fold(s string) string { return strings.Join(strings.Fields(strings.ToLower(s)), " ") }

// mailOf reads one address, as a@b.c or with a name before it, as A <a@b.c>. Of the two, programs take what stands in the brackets; a name that
// could be taken for another address, or a list, makes it no address.
func mailOf(s string) (string, bool) {
	if name, rest, ok := strings.Cut(s, "<"); ok {
		address, ok := strings.CutSuffix(rest, ">")
		if name = strings.TrimSpace(name); len(name) > 1 && name[0] == '"' && name[len(name)-1] == '"' {
			name = strings.ReplaceAll(name[1:len(name)-1], ",", "")
		}
		if !ok || strings.ContainsAny(name, "@<>\",;:()[]\\\n\r\t") || linkAt(bareText(name)) >= 0 {
			return "", false
		}
		s = address
	}
	if strings.ContainsAny(s, likeASCII) {
		return "", false
	}
	s = strings.ToLower(s)
	local, domain, ok := strings.Cut(s, "@")
	if !ok || local == "" || !hostname(domain) {
		return "", false
	}
	for _, c := range []byte(local) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("._%+-", c) >= 0) {
			return "", false
		}
	}
	return s, true
}

// hostname reports whether s is at least two labels of letters, digits and hyphens, the last one without digits alone.
func hostname(s string) bool {
	if len(s) > 253 || !strings.Contains(s, ".") {
		return false
	}
	letters := false
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		letters = false
		for _, r := range label {
			switch {
			case r >= '0' && r <= '9' || r == '-' || r == '_':
			case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 0x7f && (unicode.IsLetter(r) || unicode.IsMark(r)):
				letters = true
			default:
				return false
			}
		}
	}
	return letters && utf8.RuneCountInString(s[strings.LastIndexByte(s, '.')+1:]) > 1
}

// numberOf reads a decimal number without a unit: digits, a point, a sign, an exponent of two digits. Digits with leading zeros are no number
// but a code, which 007 and 7 are two of.
func numberOf(s string) (string, bool) {
	if len(s) > maxDigits {
		return "", false
	}
	digits := strings.TrimLeft(s, "-")
	if len(s)-len(digits) > 1 || digits == "" || digits[0] < '0' || digits[0] > '9' || len(digits) > 1 && digits[0] == '0' && digits[1] != '.' && digits[1] != 'e' && digits[1] != 'E' {
		return "", false
	}
	mantissa, power, exp := strings.Cut(strings.ToLower(digits), "e")
	if exp && (len(strings.TrimLeft(power, "+-")) > 2) {
		return "", false
	}
	for _, c := range []byte(mantissa) {
		if c != '.' && (c < '0' || c > '9') {
			return "", false
		}
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return "", false
	}
	return r.RatString(), true
}

// linkOf reads a web address: with a scheme, or a host name with www. in front or a path behind, or a bare host name. Where it has a user or
// an odd port, or is not what it seems (a backslash, a space), it has no form as a link and none at all.
func linkOf(s string) (string, bool) {
	if strings.ContainsAny(s, " \t\n\r\\\"<>`{}|^"+likeASCII) {
		return "", false
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		scheme, rest = "", s
	} else if scheme = strings.ToLower(scheme); scheme == "https" || scheme == "http" {
		scheme = "" // which of the two is the server's business
	} else {
		for _, c := range []byte(scheme) {
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.') {
				return "", false
			}
		}
	}
	at := strings.IndexAny(rest, "/?#")
	host, path := rest, ""
	if at >= 0 {
		host, path = rest[:at], rest[at:]
	}
	name, port, _ := strings.Cut(strings.ToLower(host), ":")
	if port != "" {
		for _, c := range []byte(port) {
			if c < '0' || c > '9' {
				return "", false
			}
		}
		name += ":" + port
	}
	bare := strings.TrimSuffix(strings.ToLower(host), ":"+port)
	if !hostname(strings.TrimSuffix(bare, ".")) {
		if !ok {
			return "", false
		}
		if _, err := netip.ParseAddr(strings.Trim(bare, "[]")); err != nil && bare != "localhost" {
			return "", false
		}
	}
	if _, err := url.Parse("https://" + strings.TrimSuffix(bare, ".") + path); err != nil {
		return "", false
	}
	if path == "/" {
		path = ""
	}
	if scheme != "" {
		name = scheme + "://" + name
	}
	return name + path, true
}

// accountOf reads an account or telephone number: 8 to 40 letters, digits, spaces and hyphens, six of them digits at least, that does not
// read as a date.
func accountOf(s string) (string, bool) {
	if len(s) > 40 {
		return "", false
	}
	var b strings.Builder
	digits := 0
	for i, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
			digits++
			b.WriteByte(c)
		case c >= 'a' && c <= 'z':
			b.WriteByte(c - 'a' + 'A')
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c)
		case c == ' ' || c == '-' || c == '+' && i == 0:
		default:
			return "", false
		}
	}
	if _, ok := dateOf(s); ok || b.Len() < 8 || digits < 6 || b.Len() == 8 && dayLike(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '-' })) {
		return "", false
	}
	return b.String(), true
}

// alike is the other form that the digits of an account or telephone number have: in groups they are an account, in one piece they read as a
// number.
func (f form) alike() (other form, ok bool) {
	if strings.ContainsFunc(f.value, func(r rune) bool { return r < '0' || r > '9' }) {
		return form{}, false
	}
	switch f.kind {
	case account:
		return form{number, f.value}, true
	case number:
		return form{account, f.value}, true
	}
	return form{}, false
}
