package provenance

import (
	_ "embed" // the word lists
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// author says who may have written a naming field, and whether it is one for addresses.
type author byte

const (
	bySystem       author = iota // no outsider
	byOutsider                   // anybody: an address in it is a text like any other
	inAddressField               // anybody, in a field that may serve as a destination: it may be an address or an account
)

// namesRecord reports whether the request names a record by this value of a naming field. An outsider must not be able to match ordinary requests:
// neither with an address that they have, nor with everyday words, numbers and dates (distinctFor).
func (w *Request) namesRecord(value string, by author) bool {
	f, ok := formOf(value)
	switch {
	case !ok || !w.hasName(f):
		return false
	case f.kind != text:
		return by != byOutsider
	case countDistinctive(f.value) == 0:
		return false
	}
	return by == bySystem || w.distinctFor(f.value)
}

// hasName reports whether the request may name a record by a value of this form: it has no other than those that it has anywhere.
func (w *Request) hasName(f form) bool { return f.kind != number && w.has(f) }

// distinctFor reports whether a folded text from an outsider is distinctive enough to name a record. A distinctive word needs another word beside it
// that is no function word, or the request has to set it apart by quotes or capitals. A text without any has to stand in quotes, and so has one that
// a name would hardly be: it ends with a function word, or is only the beginning of an order ("check the weather"). One with quotes inside names none. The addresses in a text do not
// count. The name of a file is distinctive.
func (w *Request) distinctFor(s string) bool {
	if isFileName(s) {
		return true
	}
	words, distinctive, addresses, last := 0, 0, false, ""
	money := slices.ContainsFunc(strings.Fields(s), func(token string) bool {
		return currencies[strings.Trim(token, ".,:;!?")] || strings.ContainsAny(token, "$€£¥₹")
	})
	for token := range strings.FieldsSeq(s) {
		token = strings.Trim(token, ".,:;!?'\"()[]<>")
		if f, ok := formOf(token); ok && (f.kind == mail || f.kind == link || f.kind == account) {
			addresses = true
			continue
		}
		for word := range strings.FieldsFuncSeq(token, func(r rune) bool { return !inWord(r) }) {
			if last = word; money && only(word, digitChars) {
				continue
			}
			if !connects(word) && utf8.RuneCountInString(word) > 1 {
				words++
			}
			distinctive += weight(word)
		}
	}
	switch {
	case distinctive == 0 && addresses, crossesQuotes(s):
		return false
	case distinctive == 0 || connects(last) && months[last] == 0 || w.onlyBeginsOrder(s) || w.partOfAccount(s):
		return w.quoted(s)
	case words > 1 || distinctive > 1:
		return true
	}
	return w.quoted(s) || !hasDigit(s) && w.capitalised(s)
}

// partOfAccount reports whether a text may be a group of digits of an account that the request has.
func (w *Request) partOfAccount(s string) bool {
	s = strings.ToUpper(bareWord(s))
	if !hasDigit(s) {
		return false
	}
	for account := range w.grouped {
		if strings.Contains(account, s) {
			return true
		}
	}
	return false
}

// crossesQuotes reports whether a text has quotes inside, so that it may begin in one part of the request and end in another.
func crossesQuotes(s string) bool {
	return strings.ContainsAny(s, `"“”„«»‹›`) || strings.Contains(s, "' ") || strings.Contains(s, " '")
}

// connects reports whether a folded word only connects others.
func connects(word string) bool {
	return functionWords[word] || conjunctions[word] || prepositions[word] || articles[word]
}

// onlyBeginsOrder reports whether a folded text that begins with an everyday word, such as a verb, stands only where a sentence of the request begins.
func (w *Request) onlyBeginsOrder(s string) bool {
	first, _, _ := strings.Cut(s, " ")
	begins := func(i, _ int) bool { return i == 0 || strings.ContainsRune(".!?;:", lastBefore(w.cased[:i])) }
	return isEveryday(first) && w.anywhere(s, begins) && !w.anywhere(s, func(i, j int) bool { return !begins(i, j) })
}

// lastBefore is the last character of a text that is no space.
func lastBefore(s string) rune {
	r, _ := utf8.DecodeLastRuneInString(strings.TrimRight(s, " "))
	return r
}

// weight says how much a folded word adds to a name that an outsider may have written: 2 if it mixes letters and digits like a code, 1 if it is
// distinctive, 0 if it is an everyday word, a short number, a year, an ordinal or a time.
func weight(word string) int {
	n := utf8.RuneCountInString(word)
	letters := strings.Trim(word, digits)
	switch {
	case letters == "" && (n > 4 || n == 4 && word[:2] != "19" && word[:2] != "20"):
		return 1
	case letters == "" || n < 2 || isEveryday(word) || letters != word && ordinals[letters]:
		return 0
	case hasDigit(word) && n > 4:
		return 2
	}
	return 1
}

var currencies = set("eur usd gbp chf jpy cny euro euros dollar dollars pound pounds cent cents yen")

// ordinals are the letters behind the digits of an ordinal or a time.
var ordinals = set("st nd rd th am pm h er e uhr")

// isEveryday reports whether a folded word is common in requests, also with an ending.
func isEveryday(word string) bool {
	if everydayWords[word] {
		return true
	}
	for _, ending := range []string{"s", "es", "d", "ed", "ing", "ly", "er", "r", "est"} {
		if stem, ok := strings.CutSuffix(word, ending); ok && len(stem) > 2 {
			if everydayWords[stem] || everydayWords[stem+"e"] || len(stem) > 3 && stem[len(stem)-1] == stem[len(stem)-2] && everydayWords[stem[:len(stem)-1]] {
				return true
			}
			if bare, ok := strings.CutSuffix(stem, "i"); ok && everydayWords[bare+"y"] {
				return true
			}
		}
	}
	return false
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
	if base, ending, ok := cutLast(name, "."); ok && isFileEnding(ending) {
		out = append(out, base)
		if spaced := strings.NewReplacer("_", " ", "-", " ").Replace(base); spaced != base {
			out = append(out, spaced)
		}
	}
	if last, first, ok := strings.Cut(name, ", "); ok && !strings.Contains(first, ",") {
		out = append(out, first+" "+last)
	}
	return slices.DeleteFunc(out, func(s string) bool { return !severalWords(s) })
}

func severalWords(s string) bool {
	n := 0
	for range strings.FieldsFuncSeq(s, func(r rune) bool { return !inWord(r) }) {
		if n++; n > 1 {
			return true
		}
	}
	return false
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

// setApart reports whether the request sets a text apart: in quotes, or with capitals inside a sentence.
func (w *Request) setApart(value string) bool { return w.quoted(value) || w.capitalised(value) }

const (
	opening = `"'“„‚«‹»›”’‘「『《〈【`
	closing = `"'”“’‘»›«‹」』》〉】`
)

// quoted reports whether the request has a text in quotes, with nothing else between them, but for spaces inside « ».
func (w *Request) quoted(value string) bool {
	return w.anywhere(value, func(i, j int) bool {
		before, _ := utf8.DecodeLastRuneInString(w.cased[:i])
		after, _ := utf8.DecodeRuneInString(w.cased[j:])
		if before == ' ' && after == ' ' {
			before, after = lastBefore(w.cased[:i]), firstOf(strings.TrimLeft(w.cased[j:], " "))
			return strings.ContainsRune("«‹", before) && strings.ContainsRune("»›", after)
		}
		if i == 0 || j == len(w.cased) || !strings.ContainsRune(opening, before) || !strings.ContainsRune(closing, after) {
			return false
		}
		outer, _ := utf8.DecodeLastRuneInString(w.cased[:i-utf8.RuneLen(before)]) // an apostrophe inside a word is no quote
		return !(strings.ContainsRune("'’", before) && inWord(outer)) && !(strings.ContainsRune("'’", after) && inWord(firstOf(w.cased[j+utf8.RuneLen(after):])))
	})
}

func firstOf(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// capitalised reports whether a text stands inside a sentence with a capital or a digit at the beginning of each word, except for function words
// inside, and is no part of a longer name. In German every noun has a capital, so none sets a word apart there.
func (w *Request) capitalised(value string) bool {
	return !w.german && w.anywhere(value, func(i, j int) bool {
		words := strings.Fields(w.cased[i:j])
		for at, word := range words {
			if first := firstOf(word); !unicode.IsUpper(first) && !(at > 0 && (unicode.IsDigit(first) || at < len(words)-1 && functionWords[word])) {
				return false
			}
		}
		return len(words) > 0 && w.wholeName(i, j)
	})
}

// wholeName reports whether raw[i:j] stands inside a sentence, and the words beside it do not continue it with a capital.
func (w *Request) wholeName(i, j int) bool {
	before, end := strings.TrimRight(w.cased[:i], " "), lastBefore(w.cased[:i])
	if i < 2 || !inWord(end) && end != ',' && end != ':' {
		return false
	}
	if next := strings.TrimLeft(w.cased[j:], " "); len(next) < len(w.cased)-j && unicode.IsUpper(firstOf(next)) {
		return false
	}
	at := strings.LastIndexByte(before, ' ') + 1
	first := at == 0 || strings.ContainsRune(".!?:", lastBefore(before[:at]))
	return !inWord(end) || first || !unicode.IsUpper(firstOf(before[at:]))
}

// anywhere reports whether the request has the value between word boundaries, in any letter case, at a place that fits.
func (w *Request) anywhere(value string, fits func(i, j int) bool) bool {
	value = strings.ToLower(strings.TrimSpace(value))
	if w == nil || value == "" || len(w.text) != len(w.cased) {
		return false
	}
	return w.standsAt(value, func(i int) bool {
		j := i + len(value)
		return bounded(w.cased, i, j) && fits(i, j)
	})
}

// namesPlace reports whether the request has a text as a name of its own that a destination can have: one word, a text in quotes or with capitals, or
// words behind "to", "in", "channel" or the like that no other word continues. Words that only stand side by side are none.
func (w *Request) namesPlace(value string) bool {
	words := strings.Fields(value)
	if len(words) < 2 || w.quoted(value) {
		return true
	}
	possessive := func(j int) bool { return strings.HasPrefix(w.cased[j:], "'") || strings.HasPrefix(w.cased[j:], "’") }
	return w.capitalised(value) && !w.anywhere(value, func(_, j int) bool { return possessive(j) }) || w.anywhere(value, func(i, j int) bool {
		if slices.ContainsFunc(words, func(s string) bool { return functionWords[strings.ToLower(s)] }) || possessive(j) {
			return false
		}
		before, word := cutLastWord(w.cased[:i])
		for articles[word] {
			before, word = cutLastWord(before)
		}
		if !placeWords[strings.TrimRight(word, ":")] {
			return false
		}
		next, _, _ := strings.Cut(strings.TrimLeft(w.cased[j:], " "), " ")
		next = strings.ToLower(next)
		return next == "" || w.cased[j] != ' ' || functionWords[next] || placeWords[strings.Trim(next, ".,!?")]
	})
}

// cutLastWord takes the last word off a text with single spaces; the word is in lower case, and "" if there is none.
func cutLastWord(s string) (before, word string) {
	s = strings.TrimRight(s, " ")
	i := strings.LastIndexByte(s, ' ') + 1
	return s[:i], strings.ToLower(s[i:])
}

var (
	placeWords = set("to with for in into at cc bcc via tell ask inform notify invite message email mail remind frage informiere erinnere channel channels group room team user person an bei mit für à pour avec chez dans en para con kanal gruppe raum canal groupe salle")
	articles   = set("the a my our your his her their this that der die das dem den dein mein meinem unser unserem le la les un une mon notre nos el los")
)

// functionWords are the common words that only connect others: they do not make a name more distinctive.
//
//go:embed words/function.txt
var functionText string

// commonWords are common in requests: a record is not singled out because its name has one of them.
//
//go:embed words/common.txt
var commonText string

// everydayWords are many more, in English, German, French and Spanish: they do not make a name distinctive that an outsider may have written.
//
//go:embed words/everyday.txt
var everydayText string

var (
	functionWords = set(functionText)
	commonWords   = set(functionText + commonText)
	everydayWords = set(functionText + commonText + everydayText)
)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}

// germanWords are function words that show that a request is German.
var germanWords = set("der das und für mit dem den ist ich bitte nicht eine einen einem vom zum zur auf aus wie wird sind kannst")

func (w *Request) isGerman() bool {
	return slices.ContainsFunc(w.plain, func(word string) bool { return germanWords[word] })
}
