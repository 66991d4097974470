package declare

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// filler are words that say nothing specific about a need for information, because any request could have them. A text of these alone is vague.
// They are folded: lower case, no accents, no apostrophes.
var filler = wordSet(
	// Asking and doing.
	`search searching searches searched find finding finds found look looking looks looked lookup get getting gets got fetch fetching
	fetches fetched query querying queries retrieve retrieving retrieval obtain gather collect need needs needed needing want wants
	wanted require requires required use uses used using usage help helps helping please try check checking see do does doing done did
	make makes making give gives giving show shows tell tells let lets go going work working works call know knows knowing
	known understand learn say says said mention mentioned ask asks asked asking respond reply provide provides perform execute complete continue proceed handle process`,
	// What is asked for.
	`stuff thing things something anything everything nothing someone anyone info infos information informations data content contents
	detail details material materials knowledge context result results output outputs input inputs fact facts item items source sources
	resource resources topic topics subject subjects matter matters issue issues answer answers question questions
	request requests requested requesting task tasks job jobs user users person prompt message purpose purposes reason reasons
	operation operations tool tools function parameter parameters justification declaration`,
	// Where.
	`web website websites site sites page pages internet online net www url link links external outside somewhere anywhere`,
	// How, how much, which.
	`some any all more most many much few several various other others another certain different general specific relevant related useful
	necessary important additional further extra current latest new recent good better best quick quickly fast now today later soon
	again also just only very really etc such whatever whichever whenever wherever however per`,
	// Placeholders.
	`test tests testing tested todo tbd tba na none null nil unknown undefined empty blank string text example sample placeholder foo bar
	baz lorem ipsum dummy default misc xyz asdf qwerty abc yes no ok okay fine reasons because`,
	// Function words.
	`a an the this that these those it its itself he she they them their theirs i me my mine we us our ours you your yours who whom whose
	which what when where why how is are was were be been being am have has had having will would shall should can could may might must
	not dont doesnt didnt cant cannot wont isnt arent im ive id ill weve theyre youre thats whats theres of to in on at by for from
	with without about into onto over under between through during before after above below up down out off as than then so if or and
	but nor yet while until since there here too both each every either neither own same`,
)

func wordSet(lists ...string) map[string]bool {
	set := map[string]bool{}
	for _, list := range lists {
		for w := range strings.FieldsSeq(list) {
			set[w] = true
		}
	}
	return set
}

// dense are the scripts that are written without spaces between words, and Hangul, whose words carry their particles. Texts in them are compared by
// pairs of characters.
var dense = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Thai,
	unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Tibetan}

// fold brings text to the form in which it is compared: compatibility forms unified, lower case, no accents on Latin, Greek and Cyrillic letters,
// no Arabic and Hebrew vowel points, no apostrophes.
func fold(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x300 && r <= 0x36f, r >= 0x591 && r <= 0x5c7, r >= 0x64b && r <= 0x65f, r == 0x670, r == 0x640,
			r == '\'', r == '’', r == '‘', r == '\u200c', r == '\u200d':
			return -1
		case r == 'ı':
			return 'i'
		case r == 'ł' || r == 'Ł':
			return 'l'
		case r == 'ø' || r == 'Ø':
			return 'o'
		case r == 'đ' || r == 'Đ':
			return 'd'
		}
		return unicode.ToLower(r)
	}, norm.NFKD.String(strings.ToValidUTF8(s, " ")))
	return norm.NFC.String(strings.ReplaceAll(s, "ß", "ss"))
}

// words yields the runs of letters, digits and marks of folded text, and whether a run is of a dense script.
func words(folded string, yield func(word string, dense bool)) {
	start, was := -1, false
	for i, r := range folded {
		mark := r > unicode.MaxLatin1 && unicode.IsMark(r)
		part := mark || unicode.IsLetter(r) || unicode.IsNumber(r)
		is := part && r > 0xdff && unicode.In(r, dense...)
		if mark && start >= 0 {
			is = was // a mark belongs to the character before it
		}
		if start >= 0 && (!part || is != was) {
			yield(folded[start:i], was)
			start = -1
		}
		if part && start < 0 {
			start, was = i, is
		}
	}
	if start >= 0 {
		yield(folded[start:], was)
	}
}

// significant reports whether a word of a script with spaces is specific: it is not filler, and more than one repeated character.
func significant(word string) bool {
	if filler[word] {
		return false
	}
	first, size := utf8.DecodeRuneInString(word)
	return size < len(word) && (unicode.IsDigit(first) || strings.Trim(word, string(first)) != "")
}

// vague reports whether nothing specific is left of a text without its filler. In dense scripts, two characters can be a word.
func vague(s string) bool {
	specific, runes := false, 0
	words(fold(s), func(w string, dense bool) {
		if dense {
			runes += utf8.RuneCountInString(w)
		} else {
			specific = specific || significant(w)
		}
	})
	return !specific && runes < 2
}

// same reports whether two texts are equal apart from case, accents, spaces and punctuation. Texts without words are not.
func same(a, b string) bool {
	plain := func(s string) string {
		var out strings.Builder
		words(fold(s), func(w string, _ bool) { out.WriteString(w + " ") })
		return out.String()
	}
	p := plain(a)
	return p != "" && p == plain(b)
}

// overlap counts how many significant words of a declared text the record has (of dense scripts: pairs of characters). compared is false if the
// record has no significant words.
func overlap(declared, record string) (shared, of int, compared bool) {
	on := map[string]bool{}
	units(record, func(keys []string) {
		for _, k := range keys {
			on[k] = true
		}
	})
	units(declared, func(keys []string) {
		of++
		for _, k := range keys {
			if on[k] {
				shared++
				return
			}
		}
	})
	return shared, of, len(on) > 0
}

// units yields the parts of a text that are compared, each under the keys by which it can be found.
func units(s string, yield func(keys []string)) {
	words(fold(s), func(w string, dense bool) {
		if !dense {
			if significant(w) {
				yield(stems(w))
			}
			return
		}
		runes := []rune(w)
		for i := 0; i+1 < len(runes); i++ {
			yield([]string{string(runes[i : i+2])})
		}
		if len(runes) == 1 {
			yield([]string{w})
		}
	})
}

// suffixes are endings of English and German words that do not change the meaning of the word.
var suffixes = []string{"s", "es", "e", "n", "en", "er", "ers", "ed", "d", "ing", "ings", "ly", "y", "ies", "ie", "al"}

// stems returns the word and its forms without endings. Words that share a form count as the same.
func stems(w string) []string {
	keys := []string{w}
	for _, suffix := range suffixes {
		stem, ok := strings.CutSuffix(w, suffix)
		least := 4
		if suffix == "s" {
			least = 2
		}
		if !ok || utf8.RuneCountInString(stem) < least {
			continue
		}
		keys = append(keys, stem)
		if n := len(stem); stem[n-1] == stem[n-2] && n >= 4 { // running, run
			keys = append(keys, stem[:n-1])
		}
	}
	if rest, ok := strings.CutPrefix(w, "ال"); ok && utf8.RuneCountInString(rest) >= 3 { // the Arabic article
		keys = append(keys, rest)
	}
	return keys
}

// joined are the scripts in which a zero-width joiner or non-joiner between two letters is part of the spelling.
var joined = []*unicode.RangeTable{unicode.Arabic, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya,
	unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala}

// unseen finds the first character of a text that a person doesn't see, or that changes the order in which the rest is shown. It returns its
// position, counted in characters from 1, and its name; "" if there is none.
func unseen(s string) (at int, what string) {
	var before rune
	for i, r := range s {
		at++
		switch {
		case r == '\u200c' || r == '\u200d':
			after, _ := utf8.DecodeRuneInString(s[i+3:])
			if !unicode.In(before, joined...) || !unicode.In(after, joined...) {
				return at, "an invisible character"
			}
		case unicode.Is(unicode.Cc, r):
			return at, "a control character (line breaks count)"
		case unicode.Is(unicode.Bidi_Control, r):
			return at, "a character that changes the direction of text"
		case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs, unicode.Other_Default_Ignorable_Code_Point,
			unicode.Variation_Selector), r == '\u2800':
			return at, "an invisible character"
		}
		before = r
	}
	return 0, ""
}
