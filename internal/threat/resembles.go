package threat

import (
	"strings"
	"unicode"
)

// maxResembled bounds the names that are compared, in bytes.
const maxResembled = 256

// sameShape maps letters and pairs of letters to what they look like.
var sameShape = strings.NewReplacer("rn", "m", "vv", "w", "cl", "d", "0", "o", "1", "l", "i", "l", "|", "l", "5", "s", "ɑ", "a", "а", "a", "е", "e", "о", "o", "р", "p", "с", "c", "у", "y", "х", "x", "і", "l", "ѕ", "s", "ӏ", "l", "ο", "o", "α", "a", "ν", "v")

// Resembles says why a name can be taken for another one, which it is not; "" where nothing says so. It compares whole names: shapes such as rn
// for m and letters of another script, and letters that were left out, added or exchanged.
func Resembles(name, known string) string {
	if name == known || len(name) > maxResembled || len(known) > maxResembled || name == "" || known == "" {
		return ""
	}
	a, b := strings.ToLower(name), strings.ToLower(known)
	if a == b {
		return ""
	}
	if sameShape.Replace(a) == sameShape.Replace(b) {
		return "it is written with other letters of the same shape"
	}
	// One letter of difference in a long name is easily missed. Digits are another matter: account numbers of one bank differ in a few.
	const long = 8
	x, y := []rune(a), []rune(b)
	if min(len(x), len(y)) < long || !strings.ContainsFunc(a, unicode.IsLetter) || mostlyDigits(a) {
		return ""
	}
	if oneEdit(x, y) {
		return "it differs in one letter"
	}
	return ""
}

func mostlyDigits(s string) bool {
	n := 0
	for _, r := range s {
		if unicode.IsDigit(r) {
			n++
		}
	}
	return 2*n > len(s)
}

// oneEdit tells whether one letter was left out, added, changed, or exchanged with the next one.
func oneEdit(a, b []rune) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch len(b) - len(a) {
	case 0:
		same := func(from int) bool { return string(a[from:]) == string(b[from:]) }
		return i < len(a) && (same(i+1) || i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && same(i+2))
	case 1:
		return string(a[i:]) == string(b[i+1:])
	}
	return false
}
