package exec

import (
	"slices"
	"strings"
)

// harmless are the options with which a program reads no file but those that its other arguments name, runs nothing and follows no file.
type harmless struct {
	short  string   // letters without a value
	valued string   // letters with a value, which is the rest of the word or the next one
	long   []string // whole names; what follows a = is a value
}

// options are those of the programs that are plain by default, in GNU's and BusyBox's versions: an option is here only if every version that has it reads it
// in the same way. Not here, on purpose: grep -r, -R, -d and -f, head's and wc's --files0-from, tail -f, and sort's -o, -T, --compress-program,
// --random-source and --files0-from.
var options = map[string]harmless{
	"cat": {short: "AbeEnstTuv", long: []string{"show-all", "number-nonblank", "show-ends", "number", "squeeze-blank", "show-tabs", "show-nonprinting", "help", "version"}},
	"grep": {short: "0123456789EFGPiywxzsvclLnbHhoqaTZ", valued: "emABC", long: []string{
		"extended-regexp", "fixed-strings", "basic-regexp", "perl-regexp", "ignore-case", "no-ignore-case", "word-regexp", "line-regexp", "null-data", "no-messages",
		"invert-match", "line-buffered", "with-filename", "no-filename", "only-matching", "quiet", "silent", "text", "files-without-match", "files-with-matches", "count",
		"initial-tab", "null", "byte-offset", "line-number", "color", "colour", "regexp", "max-count", "after-context", "before-context", "context", "group-separator", "no-group-separator", "label", "binary-files",
		"help", "version",
	}},
	"head": {short: "0123456789qvz", valued: "nc", long: []string{"bytes", "lines", "quiet", "silent", "verbose", "zero-terminated", "help", "version"}},
	"tail": {short: "0123456789qvz", valued: "nc", long: []string{"bytes", "lines", "quiet", "silent", "verbose", "zero-terminated", "help", "version"}},
	"wc":   {short: "cmlwL", long: []string{"bytes", "chars", "lines", "words", "max-line-length", "total", "help", "version"}},
	"sort": {short: "bdfgiMhnRrVcCmsuz", valued: "kt", long: []string{
		"ignore-leading-blanks", "dictionary-order", "ignore-case", "general-numeric-sort", "ignore-nonprinting", "month-sort", "human-numeric-sort", "numeric-sort",
		"random-sort", "reverse", "version-sort", "sort", "check", "merge", "stable", "unique", "zero-terminated", "debug", "key", "field-separator", "parallel", "help", "version",
	}},
}

// Plain reports whether argv runs a plain program with harmless options alone. Every word that could be an option is taken for one, wherever it stands:
// versions of a program differ in where options end. No option is known of a plain program that is not in the table.
func (r *Runner) Plain(argv []string) bool {
	if len(argv) == 0 || !slices.Contains(r.plain, argv[0]) {
		return false
	}
	known := options[argv[0]]
	return !slices.ContainsFunc(argv[1:], func(word string) bool { return !known.has(word) })
}

// has tells whether a word is no option, or one or more harmless ones.
func (h harmless) has(word string) bool {
	letters, dashed := strings.CutPrefix(word, "-")
	if !dashed || letters == "" || letters == "-" {
		return true
	}
	if name, long := strings.CutPrefix(letters, "-"); long {
		name, _, _ = strings.Cut(name, "=")
		return slices.Contains(h.long, name) // programs take the beginning of a name, too, which may be that of another one
	}
	for _, letter := range letters {
		switch {
		case strings.ContainsRune(h.valued, letter):
			return true
		case !strings.ContainsRune(h.short, letter):
			return false
		}
	}
	return true
}
