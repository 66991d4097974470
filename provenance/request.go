package provenance

import (
	"cmp"
	_ "embed" // the word lists
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxRequest bounds the part of a request that is read, in bytes. Text beyond it confirms nothing.
const maxRequest = 64 << 10

// Request is a person's request, parsed once: it tells which values the person named. The zero Request names none.
type Request struct {
	text    string // folded
	raw     string
	forms   map[form]bool
	grouped map[string]bool  // accounts and telephone numbers that are written in groups
	words   []string         // every word, as formOf reads it; "" where a phrase ends
	plain   []string         // bareWord of each of words
	where   map[string][]int // a word -> its indexes in words
	dates   map[string]bool  // 2006-01-02, or 01-02 without a year
	times   map[string]bool  // 15:04

	handles   handles // acme/site, #team, @name
	handlesAt []int   // indexes of words that may be handles; only while the request is parsed
}

// ParseRequest parses a request.
func ParseRequest(request string) *Request {
	if len(request) > maxRequest {
		request = request[:maxRequest]
		request = request[:max(0, strings.LastIndexFunc(request, unicode.IsSpace))] // a cut word would be another word
	}
	w := &Request{text: fold(request), raw: strings.Join(strings.Fields(request), " "), forms: map[form]bool{}, grouped: map[string]bool{}, where: map[string][]int{}, dates: map[string]bool{}, times: map[string]bool{}}
	last := ""
	for gap, whole := range split(request) {
		token := strings.Trim(whole, ".:!?'’*_`")
		head, tail, _ := strings.Cut(whole, token)
		if strings.ContainsAny(head, ".!?") || !samePhrase(gap, last) {
			w.breakPhrase()
		}
		last = token
		if bare := strings.TrimSuffix(strings.TrimSuffix(token, "'s"), "’s"); bare != token || strings.ContainsAny(tail, ".!?") && !idWords[strings.ToLower(token)] {
			token, last = bare, ""
		}
		if head, tail, ok := cutLast(token, "."); ok && len(tail) > 1 && unicode.IsUpper(rune(tail[0])) && strings.ToUpper(tail) != tail { // a full stop without a space after it
			if f, ok := formOf(head); ok && (f.kind == mail || f.kind == link) {
				w.forms[f] = true
			}
		}
		if i := strings.IndexAny(token, "'’:"); i > 0 && isSuffix(token[i:]) { // ann@books.example'a
			if f, ok := formOf(token[:i]); ok && f.kind == mail {
				w.forms[f] = true
			}
		}
		if token == "" {
			continue
		}
		if f, ok := formOf(token); ok {
			w.forms[f] = true
			if f.kind == text {
				if n, ok := amountOf(token); ok {
					w.forms[form{number, n}] = true
				}
			}
		}
		w.noteHandle(head, token, tail)
		w.add(token)
		w.readUnspaced(token)
	}
	w.readHandles()
	w.readLinks(request)
	w.readGrouped(request)
	w.readDates()
	return w
}

func (w *Request) add(word string) {
	w.where[word] = append(w.where[word], len(w.words))
	w.words, w.plain = append(w.words, word), append(w.plain, bareWord(word))
}

func (w *Request) breakPhrase() { w.words, w.plain = append(w.words, ""), append(w.plain, "") }

// bareWord is a word's letters and digits, in lower case.
func bareWord(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !inWord(r) }), "")
}

// split yields the words of a request, each with the text between it and the word before. Wide punctuation separates words too, except where it may
// be part of one: a comma or colon between digits, and a full stop between letters, which may be a point of a host name.
func split(request string) func(yield func(gap, word string) bool) {
	runes := []rune(request)
	digit := func(i int) bool { return i >= 0 && i < len(runes) && runes[i] >= '0' && runes[i] <= '9' }
	letter := func(i int) bool { return i >= 0 && i < len(runes) && inWord(runes[i]) }
	apart := func(i int) bool {
		switch r := runes[i]; r {
		case ',', '，', '：':
			return !digit(i-1) || !digit(i+1)
		case '。':
			return !letter(i-1) || !letter(i+1)
		default:
			return unicode.IsSpace(r) || strings.ContainsRune(`"“”„«»‘<>()[]{};|「」『』《》〈〉【】（）、；！？`, r)
		}
	}
	return func(yield func(string, string) bool) {
		for from, at := 0, 0; at < len(runes); from = at {
			for at < len(runes) && apart(at) {
				at++
			}
			word := at
			for at < len(runes) && !apart(at) {
				at++
			}
			if at > word && !yield(string(runes[from:word]), string(runes[word:at])) {
				return
			}
		}
	}
}

// samePhrase reports whether two words with this text between them can belong to one phrase: spaces on one line, quotes, a comma after a number.
func samePhrase(gap, last string) bool {
	_, listed := numberOf(strings.Trim(last, "#"))
	return last != "" && !strings.ContainsFunc(gap, func(r rune) bool {
		return r != ' ' && r != '\t' && r != '\u00a0' && r != '\u3000' && !strings.ContainsRune(`"“”„«»‘「」『』《》〈〉：`, r) && !(listed && strings.ContainsRune(",，、", r))
	})
}

// isSuffix reports whether s is a suffix as some languages put it on names: an apostrophe or a colon, and up to four letters.
func isSuffix(s string) bool {
	_, n := utf8.DecodeRuneInString(s)
	return utf8.RuneCountInString(s) <= 5 && !strings.ContainsFunc(s[n:], func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) })
}

// amountOf reads a number that has the sign of a currency, commas between its thousands, or a comma before its cents.
func amountOf(token string) (string, bool) {
	bare := strings.Trim(token, "$€£¥₹")
	if units, cents, ok := strings.Cut(bare, ","); ok && (len(cents) == 1 || len(cents) == 2) && (!strings.Contains(units, ".") || len(units) > 4 && units[len(units)-4] == '.') { // 1.250,00
		bare = strings.ReplaceAll(units, ".", ",") + "." + cents
	}
	whole, fraction, _ := strings.Cut(bare, ".")
	groups := strings.Split(whole, ",")
	for i, g := range groups {
		if len(groups) > 1 && (len(g) > 3 || i > 0 && len(g) != 3) || strings.Contains(fraction, ",") {
			return "", false
		}
	}
	return numberOf(strings.ReplaceAll(bare, ",", ""))
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// has reports whether the request has the value as a whole. A text may be a phrase between word boundaries; any other value has to be a word.
func (w *Request) has(f form) bool {
	if w == nil {
		return false
	}
	if w.forms[f] {
		return true
	}
	switch f.kind {
	case text:
		return w.phrase(f.value)
	case account:
		other, ok := f.regrouped()
		return w.grouped[f.value] || ok && w.forms[other]
	}
	return false
}

// phrase finds a folded text of three characters or more between word boundaries.
func (w *Request) phrase(s string) bool {
	if utf8.RuneCountInString(s) < 3 {
		return false
	}
	for from := 0; ; {
		i := strings.Index(w.text[from:], s)
		if i < 0 {
			return false
		}
		if i += from; bounded(w.text, i, i+len(s)) {
			return true
		}
		from = i + 1
	}
}

// bounded reports whether text[i:j] does not lie inside a longer word, number, address or path.
func bounded(text string, i, j int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:i])
	if i > 0 && (inWord(before) || strings.ContainsRune("@-_./\\+%#=&~", before)) {
		return false
	}
	after, n := utf8.DecodeRuneInString(text[j:])
	if j == len(text) || !inWord(after) && !strings.ContainsRune("@-_/\\+%#=&~.:", after) {
		return true
	}
	if after == '.' || after == ':' { // may end a sentence
		next, _ := utf8.DecodeRuneInString(text[j+n:])
		return j+n == len(text) || unicode.IsSpace(next) || strings.ContainsRune(`"'”’)`, next)
	}
	return false
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }

// namesRecord reports whether the request names a record by this value of a naming field. An outsider must not be able to match ordinary requests
// by writing common words. So a value that an outsider may have written counts only if it has two words or more besides function words, one of them
// distinctive; or if it has a digit, or the request sets it apart.
func (w *Request) namesRecord(value string, outsider bool) bool {
	f, ok := formOf(value)
	if !ok || f.kind == number || !w.has(f) {
		return false
	}
	switch {
	case f.kind != text:
		return true
	case countDistinctive(f.value) == 0:
		return false
	case !outsider:
		return true
	case len(slices.DeleteFunc(strings.FieldsFunc(f.value, func(r rune) bool { return !inWord(r) }), func(word string) bool { return functionWords[word] })) > 1:
		return true
	}
	return strings.ContainsFunc(value, unicode.IsDigit) || w.setApart(strings.TrimSpace(value))
}

// shortNames are the short forms that people use for a name: a file without its ending, or with spaces for its underscores; a subject without the
// prefixes of replies; a person with the first name first. A single word is too ambiguous to be one.
func shortNames(name string) []string {
	if len(name) > maxValue {
		return nil
	}
	name = strings.TrimSpace(name)
	short := name
	for { // Re: Fwd: Re:
		head, rest, ok := strings.Cut(short, ":")
		if !ok || !replyPrefixes[strings.ToLower(head)] {
			break
		}
		short = strings.TrimSpace(rest)
	}
	var out []string
	if short != name {
		out = append(out, short)
	}
	if base, ending, ok := cutLast(name, "."); ok && files[strings.ToLower(ending)] {
		out = append(out, base)
		if spaced := strings.NewReplacer("_", " ", "-", " ").Replace(base); spaced != base {
			out = append(out, spaced)
		}
	}
	if last, first, ok := strings.Cut(name, ", "); ok && !strings.Contains(first, ",") {
		out = append(out, first+" "+last)
	}
	return slices.DeleteFunc(out, func(s string) bool { return len(strings.FieldsFunc(s, func(r rune) bool { return !inWord(r) })) < 2 })
}

// replyPrefixes are the prefixes that mail programs add to a subject.
var replyPrefixes = set("re fw fwd aw wg tr sv vs rv res enc rif antw vá ynt")

// countDistinctive counts the words of a folded text that are not common in requests.
func countDistinctive(s string) int {
	n := 0
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return !inWord(r) }) {
		if utf8.RuneCountInString(word) >= 2 && !commonWords[word] {
			n++
		}
	}
	return n
}

// setApart reports whether the request sets a word apart: in quotes, or with a capital inside a sentence.
func (w *Request) setApart(value string) bool {
	from := 0
	for i := range w.raw {
		j := i + len(value)
		if i < from || j > len(w.raw) || !strings.EqualFold(w.raw[i:j], value) || !bounded(w.raw, i, j) {
			continue
		}
		from = j
		before, _ := utf8.DecodeLastRuneInString(w.raw[:i])
		if i > 0 && strings.ContainsRune(`"'“„«‘「『《〈【`, before) {
			return true
		}
		first, _ := utf8.DecodeRuneInString(w.raw[i:])
		end, _ := utf8.DecodeLastRuneInString(strings.TrimRight(w.raw[:i], " "))
		if unicode.IsUpper(first) && i >= 2 && (inWord(end) || end == ',') {
			return true
		}
	}
	return false
}

// maxIDPlaces bounds at how many places in the request an id is tried.
const maxIDPlaces = 100

// givesID reports whether the request gives the id for a record of the kind. A number, or an id of less than four characters, needs a word before
// it: the name of the kind, or without a kind one of "id", "number" and "#". Between the name and the id, only such words and other ids may stand
// ("files 13 and 14").
func (w *Request) givesID(value, kind string) bool {
	if w == nil || len(kind) > maxDisplayField {
		return false
	}
	_, isNumber := numberOf(value)
	if !isNumber && utf8.RuneCountInString(value) >= 4 && strings.ContainsFunc(value, unicode.IsDigit) && len(w.where[value]) > 0 {
		return true
	}
	called := kindNamesOf(kind)
	for _, token := range []string{value, "#" + value} {
		at := w.where[token]
		for _, at := range at[:min(len(at), maxIDPlaces)] {
			if w.kindBefore(at, token[0] == '#', called) {
				return true
			}
		}
	}
	return false
}

// kindNames are the ways in which people name a kind: pull request, pull-requests, PR.
type kindNames struct {
	singular, plural []string
	initials         string
}

func kindNamesOf(kind string) (c kindNames) {
	name := bareWord(kind)
	if name == "" {
		return c
	}
	c.plural = []string{name + "s", name + "es", strings.TrimSuffix(name, "y") + "ies"}
	if c.singular = []string{name}; strings.HasSuffix(name, "s") {
		c.plural = append(c.plural, name)
	}
	if parts := strings.FieldsFunc(strings.ToUpper(kind), func(r rune) bool { return !inWord(r) }); len(parts) > 1 {
		for _, p := range parts {
			first, _ := utf8.DecodeRuneInString(p)
			c.initials += string(first)
		}
	}
	return c
}

// kindBefore reports whether the words before a place name the kind of the id that stands there. Between them, another number is allowed only in a
// list of several ids ("files 13 and 14", not "file 13 to 3 people"), and an id without "id", "number" or "#" allows no prepositions ("mails with 2
// attachments").
func (w *Request) kindBefore(at int, marked bool, kind kindNames) bool {
	own := marked // the id has a "#" itself
	listed, several, open, joined, is := false, false, false, false, false
	listReaches := func(many bool) bool { return !open && (own || !listed || several || many) }
	for i := at - 1; i >= 0 && i >= at-8; i-- {
		bare := strings.Trim(w.words[i], "#")
		word := strings.ToLower(bare)
		_, isNumber := numberOf(word)
		short := strings.TrimSuffix(bare, "s")
		switch many := w.endsWith(i, kind.plural); {
		case many || w.endsWith(i, kind.singular):
			return (marked || !joined && !is) && listReaches(many)
		case kind.initials != "" && short == kind.initials && !commonWords[strings.ToLower(short)]:
			return marked && listReaches(short != bare)
		case idWords[word]:
			if joined {
				return false
			}
			marked, several = true, several || strings.HasSuffix(word, "s") || word == "nummern"
		case isNumber:
			if joined || is {
				return false
			}
			listed, open = true, false
		case conjunctions[word]:
			open = true
		case word == "is" || word == "are":
			is = true
		case prepositions[word]:
			joined = true
		default:
			return kind.singular == nil && marked && listReaches(false)
		}
	}
	return kind.singular == nil && marked && listReaches(false)
}

// endsWith reports whether the words up to a place end with one of the names, written as one word. The name may not begin right behind a function
// word.
func (w *Request) endsWith(at int, names []string) bool {
	if word := w.plain[at]; functionWords[word] || prepositions[word] || conjunctions[word] {
		return false
	}
	return slices.ContainsFunc(names, func(rest string) bool {
		for i := at; i >= 0 && w.plain[i] != ""; i-- {
			before, ok := strings.CutSuffix(rest, w.plain[i])
			if !ok || before == "" {
				return ok
			}
			rest = before
		}
		return false
	})
}

var (
	idWords      = set("id ids number numbers no nr # nummer nummern numéro numéros número números numero numeri")
	conjunctions = set("and or und oder et ou y")
	prepositions = set("with the of has have whose to from mit der die das dem den von avec le la les de du con el los las")
)

// functionWords are the common words that only connect others: they do not make a name more distinctive.
//
//go:embed words/function.txt
var functionText string

// commonWords are common in requests: a record is not singled out because its name has one of them.
//
//go:embed words/common.txt
var commonText string

var functionWords, commonWords = set(functionText), set(functionText + commonText)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}

// hasTime reports whether the value is a date or time that the request gives.
func (w *Request) hasTime(value string) bool {
	d, ok := dateOf(value)
	if !ok || w == nil {
		return false
	}
	return w.dates[d.Format(time.DateOnly)] || w.dates[d.Format("01-02")] || len(value) > len(time.DateOnly) && w.times[d.Format("15:04")]
}

// dateOf reads a date, or a date with a time of day, in the formats that programs write.
func dateOf(s string) (time.Time, bool) {
	if len(s) < 8 || len(s) > 40 {
		return time.Time{}, false
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05", "02.01.2006", "2006/01/02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

var months = map[string]time.Month{
	"january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7, "august": 8, "september": 9, "october": 10, "november": 11, "december": 12,
	"jan": 1, "feb": 2, "mar": 3, "apr": 4, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "sept": 9, "oct": 10, "nov": 11, "dec": 12,
}

// readDates finds the dates and times of day in the request: 2024-05-15, May 15th, 2024, 15 May, 12:00, 9am, at 10.
func (w *Request) readDates() {
	tokens := strings.FieldsFunc(w.text, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`"'()[],;`, r) })
	for i, token := range tokens {
		token = strings.Trim(token, ".:!?")
		if d, ok := dateOf(token); ok {
			w.dates[d.Format(time.DateOnly)] = true
		}
		if m, ok := months[token]; ok {
			for _, at := range []int{i - 1, i + 1} {
				if at < 0 || at >= len(tokens) {
					continue
				}
				if day, err := strconv.Atoi(strings.TrimRight(tokens[at], "sthndr.:!?")); err == nil && day >= 1 && day <= 31 {
					w.dates[fmt.Sprintf("%02d-%02d", m, day)] = true
				}
			}
		}
		hour := token
		half := 0
		if cut, ok := strings.CutSuffix(token, "pm"); ok {
			hour, half = cut, 12
		} else if cut, ok := strings.CutSuffix(token, "am"); ok {
			hour = cut
		} else if !strings.Contains(token, ":") && (i == 0 || tokens[i-1] != "at") {
			continue
		}
		hour, minute, _ := strings.Cut(hour, ":")
		h, err := strconv.Atoi(hour)
		m, failed := strconv.Atoi(cmp.Or(minute, "0"))
		if err == nil && failed == nil && h >= 0 && h < 24 && m >= 0 && m < 60 {
			w.times[fmt.Sprintf("%02d:%02d", (h%12+half)%24, m)] = true
			if half == 0 {
				w.times[fmt.Sprintf("%02d:%02d", h, m)] = true
			}
		}
	}
}

// literal reports whether the request has a text character for character.
func (w *Request) literal(s string) bool { return w != nil && strings.Contains(w.raw, s) }
