package provenance

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// spaceless are scripts without spaces between words, or with suffixes on foreign words.
var spaceless = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar}

// readUnspaced reads the values between letters of such scripts: 发给ann@books.example吧 has an address. The beginning and the end of a web address
// have to be unambiguous: 例books.example is the name of another host.
func (w *Request) readUnspaced(token string) {
	if !strings.ContainsFunc(token, func(r rune) bool { return r >= utf8.RuneSelf && unicode.In(r, spaceless...) }) {
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
		if part != "" && (from == 0 || unicode.In(before, spaceless...)) && (end == len(token) || unicode.In(after, spaceless...) && !continuesDotted(token[end:])) {
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
			w.breakPhrase() // a phrase ends here
		}
		from = end + max(width, 1)
	}
}

// continuesDotted reports whether the text begins with more of a dotted name: of a host or a file. Neither is longer than 255 bytes.
func continuesDotted(s string) bool {
	s = s[:min(len(s), 256)]
	if n := strings.IndexFunc(s, func(r rune) bool { return !inWord(r) && !strings.ContainsRune("-_.。．｡", r) }); n >= 0 {
		s = s[:n]
	}
	return strings.ContainsAny(s, ".。．｡")
}

// readLinks finds the web addresses that contain characters which separate words elsewhere, such as https://books.example/Heron_(bird) and
// https://books.example/a,b. Their pieces are no addresses: they are taken out of the forms, unless they also stand elsewhere (links counts them).
func (w *Request) readLinks(request string, links map[form]int) {
	for chunk := range strings.FieldsFuncSeq(request, func(r rune) bool {
		return r == '"' || r == '<' || r == '>' || unicode.IsSpace(r) || r >= utf8.RuneSelf && strings.ContainsRune(`“”„«»`, r)
	}) {
		for n := 0; n < maxChunkLinks && len(chunk) <= 2*maxValue; n++ {
			at := linkAt(chunk)
			if at < 0 {
				break
			}
			end := at + linkEnd(chunk[at:])
			if address := chunk[at:end]; strings.ContainsAny(address, linkInner) {
				for _, piece := range split(address) {
					if f, ok := formOf(strings.Trim(piece, ".:!?'’*_`")); ok && (f.kind == link || f.kind == mail) {
						if links[f]--; links[f] <= 0 {
							delete(w.forms, f)
						}
					}
				}
				if f, ok := formOf(address); ok && f.kind == link {
					w.forms[f] = true
				}
			}
			chunk = chunk[end:]
		}
	}
}

// maxChunkLinks bounds how many addresses without white space between them are looked at.
const maxChunkLinks = 16

// linkInner are characters of a web address that separate words elsewhere.
const linkInner = "()[]{},;"

// linkEnd is where the web address ends that text begins with: at a bracket that it does not open itself, at a comma or semicolon before another
// address or in its host, and without the punctuation at its end.
func linkEnd(text string) int {
	depth, path := 0, false
	end := len(text)
	for i, r := range text {
		switch r {
		case '/', '?', '#':
			path = path || i > 0 && text[i-1] != ':' && text[i-1] != '/' && !strings.HasPrefix(text[i+1:], "/")
			continue
		case '(', '[', '{':
			if depth++; !path && !(r == '[' && strings.HasSuffix(text[:i], "//")) { // a host has no brackets
				depth = -1
			}
		case ')', ']', '}':
			depth--
		case '|':
			depth = -1
		case ',', ';':
			rest := strings.ToLower(strings.TrimLeft(text[i+1:], "'([{"))
			if !path || strings.HasPrefix(rest, "http:") || strings.HasPrefix(rest, "https:") || strings.HasPrefix(rest, "www.") {
				depth = -1
			}
		default:
			continue
		}
		if depth < 0 {
			end = i
			break
		}
	}
	for {
		cut := strings.TrimRight(text[:end], ".,;:!?'’*_`|")
		for _, pair := range []string{"()", "[]", "{}"} {
			if strings.HasSuffix(cut, pair[1:]) && strings.Count(cut, pair[1:]) > strings.Count(cut, pair[:1]) {
				cut = cut[:len(cut)-1]
			}
		}
		if len(cut) == end {
			return max(end, 1)
		}
		end = len(cut)
	}
}

// lineEnds turns every kind of line end into \n.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// readGrouped finds the account and telephone numbers that are written in groups: DE89 3704 0044 0532 0130 00, +49 (30) 1234-567. A number counts
// only as a whole, and only in a form that shows where it begins and ends (groupedNumber.parse). Every group has a digit, except for groups of
// capitals in international accounts (GB29 NWBK 6016 1331 9268 19). Groups that continue on the next line are no number, unless that line begins a
// new one.
func (w *Request) readGrouped(request string) {
	lines := strings.Split(lineEnds.Replace(request), "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	text := strings.Join(lines, "\n")
	var r groupedNumber
	flush := func() {
		if a, ok := r.parse(); ok {
			w.grouped[a] = true
		}
		r = groupedNumber{}
	}
	for i, last := 0, 0; i < len(text); {
		n := strings.IndexFunc(text[i:], func(r rune) bool { return r > 0x7f || !inWord(r) })
		if n == 0 {
			i++ // the other bytes of a longer character are not ASCII either
			continue
		}
		if n < 0 {
			n = len(text) - i
		}
		group, gap, end := text[i:i+n], text[last:i], i+n
		switch gap {
		case " ", "-", "(", ")", " (", ") ", ")-":
		default:
			if strings.Trim(gap, " ()-") != "\n" || startsIBAN(group) || !hasDigit(group) {
				flush()
			}
			r.broken = r.broken || len(r.groups) > 0
		}
		switch {
		case hasDigit(group):
			if len(r.groups) == 0 {
				if gap = text[max(0, i-1):i]; gap == "+" && i > 1 && strings.IndexByte(" \n(\"':", text[i-2]) < 0 || gap == "-" && i > 1 && text[i-2] != ' ' && text[i-2] != '\n' {
					r.broken = true // 2+3, x-1: an expression
				}
			} else if startsIBAN(group) {
				flush()
				gap = ""
			}
			r.groups, r.gaps = append(r.groups, group), append(r.gaps, gap)
			r.broken = r.broken || partOfLonger(text, i, end)
		case len(r.groups) > 0 && startsIBAN(r.groups[0]) && len(group) <= 4 && strings.ToUpper(group) == group && !partOfLonger(text, i, end):
			r.groups, r.gaps = append(r.groups, group), append(r.gaps, gap)
		default:
			flush()
		}
		last, i = end, end
	}
	flush()
	w.readDotted(strings.Fields(request))
}

// groupedNumber is a row of groups that may be one number.
type groupedNumber struct {
	groups []string
	gaps   []string // the text before each
	broken bool     // the row is part of something else
}

// startsIBAN reports whether a group is the beginning of an international account number: two letters and two digits.
func startsIBAN(group string) bool {
	return len(group) == 4 && strings.Trim(group[:2], "0123456789") == group[:2] && strings.Trim(group[2:], "0123456789") == ""
}

// parse returns the account or telephone number. It accepts: a plus in front, in any groups; an international account in groups of four; the first
// group in brackets; groups with hyphens; groups with spaces that begin with 0, or are of equal length except for the last.
func (r groupedNumber) parse() (string, bool) {
	n := len(r.groups)
	for n > 0 && !hasDigit(r.groups[n-1]) {
		n--
	}
	if n < 2 || r.broken || maybeDate(r.groups[:n]) {
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
	case startsIBAN(first):
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

// maybeDate reports whether the groups may be a date, in any order.
func maybeDate(groups []string) bool {
	return len(groups) == 3 && (len(groups[0]) == 4 && len(groups[1]) == 2 && len(groups[2]) == 2 || len(groups[0]) == 2 && len(groups[1]) == 2 && len(groups[2]) == 4)
}

// readDotted finds the telephone numbers with points between their groups: +1.415.555.2671, and 06.12.34.56.78 in five pairs. Other numbers with
// points may be network addresses, amounts or versions.
func (w *Request) readDotted(chunks []string) {
	digit := func(i int, last bool) bool { // a neighbour with digits may belong to the number
		if i < 0 || i >= len(chunks) {
			return false
		}
		c := strings.Trim(chunks[i], "()-+")
		return c != "" && (last && hasDigit(c[len(c)-1:]) || !last && hasDigit(c[:1]))
	}
	for i, chunk := range chunks {
		if strings.IndexByte(chunk, '.') < 0 {
			continue
		}
		chunk, plus := strings.CutPrefix(strings.Trim(chunk, ".,;:!?()\"'"), "+")
		groups := strings.Split(chunk, ".")
		odd := func(g string) bool { return len(g) < 2 || !plus && len(g) != 2 || strings.Trim(g, "0123456789") != "" }
		if len(groups) < 3 || slices.ContainsFunc(groups, odd) || maybeDate(groups) || !plus && (len(groups) != 5 || chunk[0] != '0') || digit(i-1, true) || digit(i+1, false) {
			continue
		}
		if a, ok := accountOf(strings.Join(groups, "")); ok {
			w.grouped[a] = true
		}
	}
}

func hasDigit(s string) bool {
	for i := range len(s) {
		if s[i] >= '0' && s[i] <= '9' {
			return true
		}
	}
	return false
}

// partOfLonger reports whether text[i:j] is part of something longer that is not a row of groups: a word, an amount, an address or a path.
func partOfLonger(text string, i, j int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:i])
	after, n := utf8.DecodeRuneInString(text[j:])
	next, _ := utf8.DecodeRuneInString(text[j+n:])
	return i > 0 && (inWord(before) && !unicode.In(before, spaceless...) || strings.ContainsRune("@_./\\,:%=&~", before)) ||
		j < len(text) && (inWord(after) && !unicode.In(after, spaceless...) || strings.ContainsRune("@_/\\%+#=&~", after) || strings.ContainsRune(".,:", after) && (inWord(next) || next == '/'))
}
