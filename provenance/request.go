package provenance

import (
	"cmp"
	"fmt"
	"iter"
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
	runs    places // of the runs of text
	raw     string
	cased   string // raw, with every place as in text
	forms   map[form]bool
	grouped map[string]bool // accounts and telephone numbers that are written in groups
	words   []string        // every word, as formOf reads it; "" where a phrase ends
	plain   []string        // bareWord of each of words
	where   places          // of words, as indexes in words
	commas  map[int]bool    // indexes of the words that have a comma before them
	german  bool            // it seems to be German
	dates   map[string]bool // 2006-01-02, or 01-02 without a year
	times   map[string]bool // 15:04

	handles   handles // acme/site, #team, @name
	handlesAt []int   // indexes of words that may be handles; only while the request is parsed
}

// endParagraphs puts a full stop where a paragraph ends, which is at a line that is empty but for spaces: no phrase runs on behind it, least of all into
// words that the person added later.
func endParagraphs(s string) string {
	var b strings.Builder
	done := 0
	for at := 0; ; {
		i := strings.IndexByte(s[at:], '\n')
		if i < 0 {
			break
		}
		at += i + 1
		behind := s[at:]
		if behind = strings.TrimLeft(behind, " \t\r"); behind == "" || behind[0] != '\n' {
			continue
		}
		from := at - 1
		if from > done && s[from-1] == '\r' {
			from--
		}
		b.WriteString(s[done:from])
		b.WriteString("\n.\n")
		at = len(s) - len(strings.TrimLeft(behind, "\t\n\f\r "))
		done = at
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// ParseRequest parses a request.
func ParseRequest(request string) *Request {
	request = endParagraphs(request)
	if len(request) > maxRequest {
		request = request[:maxRequest]
		request = request[:max(0, strings.LastIndexFunc(request, unicode.IsSpace))] // a cut word would be another word
	}
	words := len(request) / 8
	w := &Request{
		text: fold(request), raw: strings.Join(strings.Fields(request), " "), cased: spaced(request), forms: make(map[form]bool, words), grouped: map[string]bool{},
		words: make([]string, 0, words), plain: make([]string, 0, words), where: newPlaces(words), commas: map[int]bool{},
		dates: map[string]bool{}, times: map[string]bool{},
	}
	w.runs = newPlaces(words)
	for at, run := range runs(w.text) {
		w.runs.add(run, at)
	}
	last, links := "", map[form]int{}
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
		if i := strings.IndexAny(token, "'’:"); i > 0 && isSuffix(token[i:]) { // ann@books.example'a
			if f, ok := formOf(token[:i]); ok && f.kind == mail {
				w.forms[f] = true
			}
		}
		if token == "" {
			continue
		}
		if f, ok := formOf(sentenceEnd(strings.TrimPrefix(token, "mailto:"))); ok {
			w.forms[f] = true
			if f.kind == link {
				links[f]++
			}
			if f.kind == text {
				if n, ok := amountOf(token); ok {
					w.forms[form{number, n}] = true
				}
			}
		}
		w.noteHandle(head, token, tail)
		if strings.ContainsAny(gap, ",，、") {
			w.commas[len(w.words)] = true
		}
		w.add(token)
		w.readUnspaced(token)
	}
	w.readHandles()
	w.readLinks(request, links)
	w.readGrouped(request)
	w.readDates()
	w.german = w.isGerman()
	return w
}

// spaced is a request with every run of white space as one space. Of the few capitals whose small letter has another length it has the small one.
func spaced(request string) string {
	return strings.Map(func(r rune) rune {
		if small := unicode.ToLower(r); utf8.RuneLen(small) != utf8.RuneLen(r) {
			return small
		}
		return r
	}, strings.Join(strings.Fields(request), " "))
}

func (w *Request) add(word string) {
	w.where.add(word, len(w.words))
	w.words, w.plain = append(w.words, word), append(w.plain, bareWord(word))
}

func (w *Request) breakPhrase() { w.words, w.plain = append(w.words, ""), append(w.plain, "") }

// bareWord is a word's letters and digits, in lower case.
func bareWord(s string) string {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || !wordBytes[c] || c >= 'A' && c <= 'Z' {
			return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !inWord(r) }), "")
		}
	}
	return s
}

// sentenceEnd is the part of a word that may be an address, where a full stop without a space after it may end a sentence: books.example.Then is
// books.example, because no top-level domain is called then. Of a word like sites.Note, which has no other point, nothing may be one. What an
// address could continue is part of it.
func sentenceEnd(word string) string {
	head, tail, ok := cutLast(word, ".")
	if !ok || len(tail) < 2 || !unicode.IsUpper(rune(tail[0])) || strings.ToUpper(tail) == tail {
		return word
	}
	f, ok := formOf(head)
	switch {
	case ok && (f.kind == mail || f.kind == link) && sentenceWords[strings.ToLower(tail)]:
		return head
	case ok && f.kind == text && only(head, lowerChars) && !isFileName(word):
		return head
	}
	return word
}

// sentenceWords are words that often begin a sentence. None of them is a top-level domain.
var sentenceWords = set(`the this that these those they there then their she her him his our your and but for from with when where what who which while why please also after all
any are can could did does each had has have bitte danke dann und sie wir das die der merci ensuite puis les des ils elle nous vous`)

// split yields the words of a request, each with the text between it and the word before. Wide punctuation separates words too, except where it may
// be part of one: a comma or colon between digits, and a full stop between letters, which may be a point of a host name.
func split(request string) func(yield func(gap, word string) bool) {
	if !utf8.ValidString(request) {
		request = string([]rune(request)) // each byte that is no character as one that separates nothing
	}
	digit := func(r rune) bool { return r >= '0' && r <= '9' }
	apart := func(i int, r rune, n int) bool {
		if r < utf8.RuneSelf && r != ',' {
			return apartBytes[r]
		}
		before, _ := utf8.DecodeLastRuneInString(request[:i])
		after, _ := utf8.DecodeRuneInString(request[i+n:])
		switch r {
		case ',', '，', '：':
			return !digit(before) || !digit(after)
		case '。':
			return !inWord(before) || !inWord(after)
		}
		return unicode.IsSpace(r) || strings.ContainsRune(apartRunes, r)
	}
	return func(yield func(string, string) bool) {
		for from, at := 0, 0; at < len(request); from = at {
			word := -1
			for at < len(request) {
				r, n := utf8.DecodeRuneInString(request[at:])
				if a := apart(at, r, n); !a && word < 0 {
					word = at
				} else if a && word >= 0 {
					break
				}
				at += n
			}
			if word >= 0 && !yield(request[from:word], request[word:at]) {
				return
			}
		}
	}
}

// apartRunes separate words everywhere, as white space does.
const apartRunes = `"“”„«»‘‚‹›…—<>()[]{};|「」『』《》〈〉【】（）、；！？`

// apartBytes are those of ASCII, and the white space there.
var apartBytes = func() (of [utf8.RuneSelf]bool) {
	for c := range of {
		of[c] = unicode.IsSpace(rune(c)) || strings.IndexByte(apartRunes, byte(c)) >= 0
	}
	return of
}()

// samePhrase reports whether two words with this text between them can belong to one phrase: spaces on one line, quotes, a comma after a number.
func samePhrase(gap, last string) bool {
	_, listed := numberOf(strings.Trim(last, "#"))
	return last != "" && !strings.ContainsFunc(gap, func(r rune) bool {
		return r != ' ' && r != '\t' && r != '\u00a0' && r != '\u3000' && !strings.ContainsRune(`"“”„«»‘‚‹›「」『』《》〈〉：`, r) && !(listed && strings.ContainsRune(",，、", r))
	})
}

// isSuffix reports whether s is a suffix as some languages put it on names: an apostrophe or a colon, and up to four letters.
func isSuffix(s string) bool {
	_, n := utf8.DecodeRuneInString(s)
	return utf8.RuneCountInString(s) <= 5 && !strings.ContainsFunc(s[n:], func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) })
}

// amountOf reads a number that has the sign of a currency, commas between its thousands, or a comma before its cents.
func amountOf(token string) (string, bool) {
	if !hasDigit(token) {
		return "", false
	}
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
	return utf8.RuneCountInString(s) >= 3 && w.standsAt(s, func(i int) bool { return bounded(w.text, i, i+len(s)) })
}

// standsAt reports whether a folded text stands at a place of the request that fits. The place begins and ends at the boundary of a word: elsewhere it
// is not asked.
func (w *Request) standsAt(s string, fits func(i int) bool) bool {
	rarest, offset, count := "", -1, 0
	for at, run := range runs(s) {
		switch n := w.runs.count(run); {
		case n == 0:
			return false
		case offset < 0 || n < count:
			rarest, offset, count = run, at, n
		}
	}
	if offset < 0 {
		return inText(w.text, s, fits)
	}
	for at := range w.runs.each(rarest) {
		if i := at - offset; i >= 0 && strings.HasPrefix(w.text[i:], s) && fits(i) {
			return true
		}
	}
	return false
}

// inText reports whether a text has s at a place that fits.
func inText(text, s string, fits func(i int) bool) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], s)
		if i < 0 {
			return false
		}
		if i += from; fits(i) {
			return true
		}
		from = i + 1
	}
}

// places tells where each text of many stands.
type places struct {
	of   map[string]placed
	at   []int32 // all places, in the order in which they were added
	next []int32 // of each: the index of the next of the same text, 0 if it is the last
}

// placed is what there is of one text: the indexes of its first and last place, and how many there are.
type placed struct{ first, last, count int32 }

func newPlaces(size int) places {
	return places{of: make(map[string]placed, size), at: make([]int32, 0, size), next: make([]int32, 0, size)}
}

func (p *places) add(s string, at int) {
	n := int32(len(p.at))
	of, ok := p.of[s]
	if ok {
		p.next[of.last] = n
	} else {
		of.first = n
	}
	p.of[s] = placed{of.first, n, of.count + 1}
	p.at, p.next = append(p.at, int32(at)), append(p.next, 0)
}

func (p *places) count(s string) int { return int(p.of[s].count) }

// each yields the places of a text, the first first.
func (p *places) each(s string) iter.Seq[int] {
	return func(yield func(int) bool) {
		of, ok := p.of[s]
		for i := of.first; ok; i = p.next[i] {
			if !yield(int(p.at[i])) || i == of.last {
				return
			}
		}
	}
}

// runs are the longest parts of a text that have letters and digits alone, and where they begin. A text that stands between word boundaries has each of
// its own runs as a run there.
func runs(s string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		from := -1
		for i, r := range s {
			switch in := inWord(r); {
			case in && from < 0:
				from = i
			case !in && from >= 0:
				if !yield(from, s[from:i]) {
					return
				}
				from = -1
			}
		}
		if from >= 0 {
			yield(from, s[from:])
		}
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

func inWord(r rune) bool {
	if uint32(r) < utf8.RuneSelf {
		return wordBytes[r]
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// wordBytes are the letters and digits of ASCII.
var wordBytes = func() (of [utf8.RuneSelf]bool) {
	for c := range of {
		of[c] = strings.IndexByte(lower+upper+digits, byte(c)) >= 0
	}
	return of
}()

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
	if len(s) < 8 || len(s) > 40 || s[0] < '0' || s[0] > '9' { // every layout begins with a digit, and each that fails costs an allocation
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
	"januar": 1, "februar": 2, "märz": 3, "mai": 5, "juni": 6, "juli": 7, "oktober": 10, "dezember": 12,
	"janvier": 1, "février": 2, "mars": 3, "avril": 4, "juin": 6, "juillet": 7, "août": 8, "septembre": 9, "octobre": 10, "novembre": 11, "décembre": 12,
	"jan": 1, "feb": 2, "mar": 3, "apr": 4, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "sept": 9, "oct": 10, "nov": 11, "dec": 12,
}

// readDates finds the dates and times of day in the request: 2024-05-15, May 15th, 2024, 15 May, 12:00, 9am, at 10.
func (w *Request) readDates() {
	tokens := strings.FieldsFunc(w.text, func(r rune) bool {
		return r <= ';' && strings.IndexByte(`"'()[],;`, byte(r)) >= 0 || unicode.IsSpace(r)
	})
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
