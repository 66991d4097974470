package threat

import (
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

func TestInvisible(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		refused string
		marked  int
	}{
		"plain":                       {"Write to ann@corp.example.\n\tThanks\r\n", "", 0},
		"accents, and no-break space": {"Zürich\u00a0– déjà vu", "", 0},
		"Persian":                     {"می\u200cخواهم کتاب\u200cها را بخوانم", "", 2},
		"Persian, behind a letter that joins not": {"آزاد\u200cراه", "", 1},
		"Hebrew with points":                      {"שָׁלוֹם, מה שלומך?", "", 0},
		"Hebrew beside a number":                  {"שלום\u200f 42", "", 1},
		"Arabic letter mark":                      {"\u061cسلام", "", 1},
		"Hindi, half form":                        {"क्\u200dष और क्\u200cष", "", 2},
		"Bengali":                                 {"র\u200d্য", "", 1},
		"Sinhala":                                 {"ශ්\u200dරී", "", 1},
		"a family":                                {"👩\u200d👩\u200d👧 at home", "", 2},
		"a runner":                                {"🏃🏽\u200d♀️", "", 2},
		"a heart":                                 {"❤️", "", 1},
		"a flag that joins":                       {"🏳️\u200d🌈", "", 2},
		"a keycap":                                {"1️⃣", "", 1},
		"an ideograph's form":                     {"葛\U000e0100", "", 1},
		"Mongolian":                               {"ᠠ\u180b", "", 1},
		"a soft hyphen":                           {"Donau\u00addampfer", "", 1},
		"a Hangul filler":                         {"\u3164", "", 1},
		"tags":                                    {"hi\U000e0068\U000e0069", "U+E0068", 2},
		"a flag of tags":                          {"🏴\U000e0067\U000e0062\U000e007f", "U+E0067", 3},
		"an override":                             {"invoice\u202efdp.exe", "U+202E", 1},
		"an embedding":                            {"\u202ba\u202c", "U+202B", 2},
		"an isolate":                              {"\u2066a\u2069", "U+2066", 2},
		"a zero-width space":                      {"pass\u200bword", "U+200B", 1},
		"a word joiner":                           {"pass\u2060word", "U+2060", 1},
		"a byte order mark":                       {"\ufeffa", "U+FEFF", 1},
		"an operator that shows not":              {"a\u2062b", "U+2062", 1},
		"an escape":                               {"\x1b[31mred", "U+001B", 1},
		"NUL":                                     {"a\x00b", "U+0000", 1},
		"a C1 control":                            {"a\u0085b", "U+0085", 1},
		"a joiner in Latin":                       {"pay\u200dpal", "U+200D", 1},
		"a non-joiner in Latin":                   {"pay\u200cpal", "U+200C", 1},
		"joiners in a row":                        {"می\u200c\u200cخواهم", "U+200C", 2},
		"a joiner at the end":                     {"👩\u200d", "U+200D", 1},
		"a non-joiner at the end":                 {"می\u200c", "U+200C", 1},
		"a selector at the start":                 {"\ufe0fa", "U+FE0F", 1},
		"selectors in a row":                      {"a\ufe00\ufe01\ufe02", "U+FE01", 3},
		"a selector behind a space":               {" \U000e0100", "U+E0100", 1},
		"a mark of direction in Latin":            {"a\u200eb", "U+200E", 1},
	} {
		if refused, marked := Invisible(c.text); refused != c.refused || marked != c.marked {
			t.Errorf("%s: %q, %d marked; want %q, %d", name, refused, marked, c.refused, c.marked)
		}
	}
}

// The table of viramas is Unicode's.
func TestViramas(t *testing.T) {
	for r := range unicode.MaxRune {
		if is := norm.NFC.PropertiesString(string(r)).CCC() == 9; is && !virama(r) || virama(r) && !is && unicode.IsPrint(r) {
			t.Errorf("U+%04X: class 9: %t, virama: %t", r, is, virama(r))
		}
	}
}
