package provenance

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
		part := strings.TrimRight(token[from:end], ":!?'*_`")
		if part != "" && (from == 0 || unicode.In(before, spaceless...)) && (end == len(token) || unicode.In(after, spaceless...) && !pointed(token[end:])) {
			f, ok := formOf(part)
			whole := f.kind == mail || f.kind == number || f.kind == account
			if ok && (whole || f.kind == link && strings.Contains(part, "://") && (end == len(token) || !strings.Contains(f.value, "/"))) {
				w.forms[f] = true
			}
			if whole || from == 0 || !strings.Contains(part, ".") { // 見積書2.xlsx
				w.add(part)
			}
		}
		if end < len(token) {
			w.gap() // what stands there says nothing of the rest
		}
		from = end + max(width, 1)
	}
}

// pointed reports whether a text goes on with what has a point in it: then it may be the rest of a host's name, or of a file's. Neither is longer
// than 255 bytes.
func pointed(s string) bool {
	s = s[:min(len(s), 256)]
	if n := strings.IndexFunc(s, func(r rune) bool { return !inWord(r) && !strings.ContainsRune("-_.。．｡", r) }); n >= 0 {
		s = s[:n]
	}
	return strings.ContainsAny(s, ".。．｡")
}

// readLinks finds the web addresses that have brackets of their own, as https://books.example/Heron_(bird).
func (w *Words) readLinks(request string) {
	for chunk := range strings.FieldsFuncSeq(request, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`"“”„«»<>`, r) }) {
		if len(chunk) > 2*maxValue || !strings.Contains(chunk, "(") || !strings.Contains(chunk, "://") {
			continue
		}
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

// lineEnds are the ends of lines, as one of them.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// readRows finds the account and telephone numbers that are written in groups: DE89 3704 0044 0532 0130 00, +49 (30) 1234-567. A row of groups
// counts as a whole only, and only in a form that says where it begins and ends (row.whole). Each group has a digit, but for capitals in what
// begins with two letters and two digits, as in GB29 NWBK 6016 1331 9268 19. On the next line a row goes on, and then is none, unless that line
// begins one.
func (w *Words) readRows(request string) {
	lines := strings.Split(lineEnds.Replace(request), "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	text := strings.Join(lines, "\n")
	var r row
	flush := func() {
		if a, ok := r.whole(); ok {
			w.rows[a] = true
		}
		r = row{}
	}
	for i, last := 0, 0; i < len(text); {
		n := strings.IndexFunc(text[i:], func(r rune) bool { return r > 0x7f || !inWord(r) })
		if n == 0 {
			i++ // the rest of a longer character is none of ASCII either
			continue
		}
		if n < 0 {
			n = len(text) - i
		}
		group, gap, end := text[i:i+n], text[last:i], i+n
		switch gap {
		case " ", "-", "(", ")", " (", ") ", ")-":
		default:
			if strings.Trim(gap, " ()-") != "\n" || international(group) || !hasDigit(group) {
				flush()
			}
			r.broken = r.broken || len(r.groups) > 0
		}
		switch {
		case hasDigit(group):
			if len(r.groups) == 0 {
				if gap = text[max(0, i-1):i]; gap == "+" && i > 1 && strings.IndexByte(" \n(\"':", text[i-2]) < 0 || gap == "-" && i > 1 && text[i-2] != ' ' && text[i-2] != '\n' {
					r.broken = true // 2+3, x-1: there is something in front
				}
			} else if international(group) {
				flush()
				gap = ""
			}
			r.groups, r.gaps = append(r.groups, group), append(r.gaps, gap)
			r.broken = r.broken || joinedOn(text, i, end)
		case len(r.groups) > 0 && international(r.groups[0]) && len(group) <= 4 && strings.ToUpper(group) == group && !joinedOn(text, i, end):
			r.groups, r.gaps = append(r.groups, group), append(r.gaps, gap)
		default:
			flush()
		}
		last, i = end, end
	}
	flush()
	w.readPoints(strings.Fields(request))
}

// row is what may be a number in groups.
type row struct {
	groups []string
	gaps   []string // what stands before each
	broken bool     // it is part of something else
}

// international reports whether a group is the beginning of an international account: two letters and two digits.
func international(group string) bool {
	return len(group) == 4 && strings.Trim(group[:2], "0123456789") == group[:2] && strings.Trim(group[2:], "0123456789") == ""
}

// whole is the account or telephone number that a row is: with a plus in front, in whatever groups; an international account in groups of four;
// with its first group in brackets; in groups with hyphens; in groups with blanks that begin with 0 or are of one length, but for the last.
func (r row) whole() (string, bool) {
	n := len(r.groups)
	for n > 0 && !hasDigit(r.groups[n-1]) {
		n--
	}
	if n < 2 || r.broken || dayLike(r.groups[:n]) {
		return "", false
	}
	first, rest, gaps := r.groups[0], r.groups[1:n], r.gaps[1:n]
	of := func(least, most int) bool {
		for i, g := range rest {
			if len(g) > most || i < len(rest)-1 && len(g) != least {
				return false
			}
		}
		return true
	}
	one := func(gaps []string, any ...string) bool {
		return len(gaps) == 0 || slices.Contains(any, gaps[0]) && !slices.ContainsFunc(gaps, func(g string) bool { return g != gaps[0] })
	}
	ok := false
	switch {
	case r.gaps[0] == "+":
		ok = true
	case international(first):
		ok = one(gaps, " ", "-") && of(4, 4)
	case r.gaps[0] == "(":
		ok = (gaps[0] == ")" || gaps[0] == ") " || gaps[0] == ")-") && one(gaps[1:], " ", "-")
	case one(gaps, "-"):
		ok = true
	case one(gaps, " "):
		ok = len(first) > 1 && (first[0] == '0' || of(len(first), len(first)+1))
	}
	if !ok {
		return "", false
	}
	return accountOf(strings.Join(r.groups[:n], ""))
}

// dayLike reports whether groups may be a day, in whatever order.
func dayLike(groups []string) bool {
	return len(groups) == 3 && (len(groups[0]) == 4 && len(groups[1]) == 2 && len(groups[2]) == 2 || len(groups[0]) == 2 && len(groups[1]) == 2 && len(groups[2]) == 4)
}

// readPoints finds the telephone numbers with points between their groups: +1.415.555.2671, and 06.12.34.56.78 in five pairs. What else is
// written so is as well an address of a network, an amount or a version.
func (w *Words) readPoints(chunks []string) {
	digit := func(i int, last bool) bool { // beside a number it may be part of one
		if i < 0 || i >= len(chunks) {
			return false
		}
		c := strings.Trim(chunks[i], "()-+")
		return c != "" && (last && hasDigit(c[len(c)-1:]) || !last && hasDigit(c[:1]))
	}
	for i, chunk := range chunks {
		chunk, plus := strings.CutPrefix(strings.Trim(chunk, ".,;:!?()\"'"), "+")
		groups := strings.Split(chunk, ".")
		odd := func(g string) bool { return len(g) < 2 || !plus && len(g) != 2 || strings.Trim(g, "0123456789") != "" }
		if len(groups) < 3 || slices.ContainsFunc(groups, odd) || dayLike(groups) || !plus && (len(groups) != 5 || chunk[0] != '0') || digit(i-1, true) || digit(i+1, false) {
			continue
		}
		if a, ok := accountOf(strings.Join(groups, "")); ok {
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
