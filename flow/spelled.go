package flow

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// spaceless are the scripts that put no space between words, or hang endings on foreign ones.
var spaceless = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar}

// unspaced reads the values that stand in a token between letters of such a script: 发给ann@books.example吧 has an address. Of a web address it
// has to be plain where it begins and ends: 例books.example is the name of another host.
func (w *Words) unspaced(token string) {
	if !strings.ContainsFunc(token, func(r rune) bool { return unicode.In(r, spaceless...) }) {
		return
	}
	for from := 0; from < len(token); {
		end := len(token)
		if n := strings.IndexFunc(token[from:], func(r rune) bool { return r > 0x7f }); n >= 0 {
			end = from + n
		}
		before, _ := utf8.DecodeLastRuneInString(token[:from])
		after, width := utf8.DecodeRuneInString(token[end:])
		part := strings.TrimRight(token[from:end], ".:!?'*_`")
		if part != "" && (from == 0 || unicode.In(before, spaceless...)) && (end == len(token) || unicode.In(after, spaceless...)) {
			f, ok := formOf(part)
			whole := f.kind == mail || f.kind == number || f.kind == account
			if ok && (whole || f.kind == link && strings.Contains(part, "://") && (end == len(token) || !strings.Contains(f.value, "/"))) {
				w.forms[f] = true
			}
			w.add(part)
		}
		from = end + max(width, 1)
	}
}

// readLinks finds the web addresses that have brackets of their own, as https://books.example/Heron_(bird).
func (w *Words) readLinks(request string) {
	for chunk := range strings.FieldsFuncSeq(request, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`"“”„«»<>`, r) }) {
		at := linkAt(chunk)
		if at < 0 || !strings.Contains(chunk[at:], "(") || !strings.Contains(chunk[at:], "://") {
			continue
		}
		address := chunk[at:]
		for address != "" {
			cut := strings.TrimRight(address, ".,;:!?'’*_`]}|")
			if strings.HasSuffix(cut, ")") && strings.Count(cut, ")") > strings.Count(cut, "(") {
				cut = cut[:len(cut)-1]
			}
			if cut == address {
				break
			}
			address = cut
		}
		if f, ok := formOf(address); ok && f.kind == link {
			w.forms[f] = true
		}
	}
}

// readRows finds the account and telephone numbers that are written in groups: DE89 3704 0044 0532 0130 00, +49 (30) 1234-567. A row of groups
// counts as a whole only. Each group has a digit, but for capitals between others, as in GB29 NWBK 6016 1331 9268 19; two letters and two digits
// begin a row.
func (w *Words) readRows() {
	var row []string
	flush := func() {
		for len(row) > 0 && !hasDigit(row[len(row)-1]) {
			row = row[:len(row)-1]
		}
		if _, day := dateOf(strings.Join(row, "-")); len(row) > 1 && !day {
			if a, ok := accountOf(strings.Join(row, "")); ok {
				w.rows[a] = true
			}
		}
		row = nil
	}
	for i, last := 0, 0; i < len(w.raw); {
		n := strings.IndexFunc(w.raw[i:], func(r rune) bool { return r > 0x7f || !inWord(r) })
		if n == 0 {
			i++ // the rest of a longer character is none of ASCII either
			continue
		}
		if n < 0 {
			n = len(w.raw) - i
		}
		group, end := w.raw[i:i+n], i+n
		switch w.raw[last:i] {
		case " ", "-", "(", ")", " (", ") ", ")-":
		default:
			flush()
		}
		switch {
		case joinedOn(w.raw, i, end):
			flush()
		case hasDigit(group):
			if len(group) == 4 && strings.Trim(group[:2], "0123456789") == group[:2] && strings.Trim(group[2:], "0123456789") == "" {
				flush()
			}
			row = append(row, group)
		case len(row) > 0 && len(group) <= 4 && strings.ToUpper(group) == group:
			row = append(row, group)
		default:
			flush()
		}
		last, i = end, end
	}
	flush()
	for chunk := range strings.FieldsSeq(w.raw) { // 06.12.34.56.78
		chunk = strings.TrimPrefix(strings.Trim(chunk, ".,;:!?()\"'"), "+")
		groups := strings.FieldsFunc(chunk, func(r rune) bool { return r == '.' || r == '/' })
		whole := strings.Join(groups, "")
		day := len(groups) == 3 && len(whole) == 8 // in whatever order
		odd := func(g string) bool { return len(g) < 2 || strings.Trim(g, "0123456789") != "" }
		if a, ok := accountOf(whole); ok && !day && len(groups) > 2 && len(whole)+len(groups)-1 == len(chunk) && !slices.ContainsFunc(groups, odd) {
			w.rows[a] = true
		}
	}
}

func hasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

// joinedOn reports whether text[i:j] is a piece of something longer that is no row of groups: of a word, an amount, an address or a path.
func joinedOn(text string, i, j int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:i])
	after, n := utf8.DecodeRuneInString(text[j:])
	next, _ := utf8.DecodeRuneInString(text[j+n:])
	return i > 0 && (inWord(before) && !unicode.In(before, spaceless...) || strings.ContainsRune("@_./\\,:%=&~", before)) ||
		j < len(text) && (inWord(after) && !unicode.In(after, spaceless...) || strings.ContainsRune("@_/\\%+#=&~", after) || strings.ContainsRune(".,:", after) && (inWord(next) || next == '/'))
}
