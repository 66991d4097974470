package provenance

import (
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// linksIn yields every part of a text that a mail or chat program may turn into a web address: up to the next white space, quote or angle bracket,
// without the punctuation at its end. It finds too much rather than too little. A link has to be confirmed in full, with everything attached to it.
func linksIn(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		seen := map[string]bool{}
		for chunk := range chunks(s) {
			parts := []string{chunk}
			if before, _, ok := strings.Cut(chunk, "["); ok && strings.Contains(chunk[len(before):], "](") && strings.HasSuffix(strings.TrimRight(chunk, ".,:;!?"), ")") {
				parts = strings.Split(chunk, "](") // [words](address)
			}
			for _, part := range parts {
				at := linkAt(part)
				if at < 0 {
					continue
				}
				l := strings.TrimRight(part[at:], ".,:;!?*_'‘’“”«»)]}|`")
				if l != "" && !seen[l] {
					seen[l] = true
					if !yield(l) {
						return
					}
				}
			}
		}
	}
}

// chunks yields the words of a text in every way in which a program may read it: unchanged, and with entities and escapes resolved; with invisible
// characters removed, and with spaces in their place.
func chunks(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		ways := []string{s}
		if r := resolved(s); r != s {
			ways = append(ways, r)
		}
		for _, way := range ways {
			bare := visibleText(way)
			if strings.ContainsFunc(way, invisible) {
				bare += " " + visibleText(strings.Map(func(r rune) rune {
					if invisible(r) {
						return ' '
					}
					return r
				}, way))
			}
			for chunk := range strings.FieldsFuncSeq(bare, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`<>"`, r) }) {
				if !yield(chunk) {
					return
				}
			}
		}
	}
}

// resolved is a text with its entities and escapes resolved.
func resolved(s string) string {
	if strings.Contains(s, "&") {
		s = html.UnescapeString(s)
	}
	if strings.Contains(s, `\u`) {
		s = escapes.ReplaceAllStringFunc(s, func(escape string) string {
			n, _ := strconv.ParseUint(escape[2:], 16, 16) // four hex digits
			return string(rune(n))
		})
	}
	return s
}

// escapes are the \u escapes of JSON and JavaScript.
var escapes = regexp.MustCompile(`\\u[0-9a-fA-F]{4}`)

// invisible reports whether a character is not drawn.
func invisible(r rune) bool {
	return !unicode.IsSpace(r) && (r < ' ' || r == 0x7f || r > 0x7f && (unicode.Is(unicode.C, r) || unicode.Is(variation, r)))
}

// visibleText is a text as a reader sees it: without invisible characters, with wide forms of ASCII as ASCII, and with the characters that count as
// points and slashes in addresses as those.
func visibleText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '。' || r == '｡' || r == '․' || r == '܁' || r == '܂' || r == '٠' || r == '۰':
			return '.'
		case r >= 0xff01 && r <= 0xff5e:
			return r - 0xff01 + '!'
		case r == '\\' || r == '⁄' || r == '∕' || r == '╱' || r == '⧸':
			return '/'
		case unicode.IsSpace(r):
			return ' '
		case invisible(r):
			return -1
		}
		return r
	}, s)
}

// hostlessSchemes work without two slashes and a host after them.
var hostlessSchemes = []string{"http:", "https:", "ftp:", "javascript:", "data:", "vbscript:", "file:", "blob:", "tel:", "sms:", "mailto:", "intent:", "ms-"}

// linkAt is the index in a word where a link begins, at its scheme or its host name; -1 if there is none.
func linkAt(word string) int {
	if !strings.ContainsAny(word, ":/.-") { // no scheme and no host is without
		return -1
	}
	return findLink(word)
}

func findLink(word string) int {
	lower := strings.ToLower(word)
	if len(lower) != len(word) { // some letters have a longer or shorter lower case
		lower = word
	}
	for _, d := range hostlessSchemes {
		if i := strings.Index(lower, d); i >= 0 && len(lower) > i+len(d) && (i == 0 || !inWord(rune(lower[i-1]))) {
			return i
		}
	}
	if i := strings.Index(lower, "://"); i > 0 {
		for i > 0 && (inWord(rune(lower[i-1])) || strings.IndexByte("+-.", lower[i-1]) >= 0) {
			i--
		}
		return i
	}
	for from := 0; ; { // an address without a scheme
		i := strings.Index(word[from:], "//")
		if i < 0 {
			break
		}
		i += from
		rest := strings.TrimLeft(word[i:], "/")
		next, _ := utf8.DecodeRuneInString(rest)
		if (i == 0 || strings.IndexByte(`="'([`, word[i-1]) >= 0) && (inWord(next) || next == '[') {
			return i
		}
		from = len(word) - len(rest) // none of these slashes begins an address
	}
	inHost := func(r rune) bool {
		return inWord(r) || r == '-' || r == '_' || r == '.' || r > 0x7f && unicode.IsSymbol(r)
	}
	for i := 0; i < len(word); {
		rest := word[i:]
		start := strings.IndexFunc(rest, inHost)
		if start < 0 {
			return -1
		}
		start += i
		end := len(word)
		if n := strings.IndexFunc(word[start:], func(r rune) bool { return !inHost(r) }); n >= 0 {
			end = start + n
		}
		host, behind := strings.Trim(word[start:end], "."), word[end:]
		path := behind != "" && strings.IndexByte("/?#", behind[0]) >= 0 || len(behind) > 1 && behind[0] == ':' && behind[1] >= '0' && behind[1] <= '9'
		address := start > 0 && word[start-1] == '@' || behind != "" && behind[0] == '@' // a mail address, or a user name before a host
		if hostLike(host, path) && (!address || path) {
			return start
		}
		i = end
	}
	return -1
}

// hostLike reports whether a program could take a word for a host name: its last label has two letters or more and is not the ending of a file; or
// it is four numbers and a path follows.
func hostLike(host string, path bool) bool {
	labels := strings.Split(strings.ToLower(host), ".")
	if len(labels) < 2 || strings.Contains(host, "..") {
		return false
	}
	last := labels[len(labels)-1]
	if path && len(labels) == 4 && !strings.ContainsFunc(host, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }) {
		return true
	}
	letters := strings.HasPrefix(last, "xn--") || len(last) > 1 && !strings.ContainsFunc(last, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) })
	return letters && (path || !files[last])
}

// files are the endings of file names that are not top-level domains.
var files = set(`txt docx doc xlsx xls pptx ppt pdf csv tsv json yaml yml toml ini cfg conf xml html htm css scss js jsx ts tsx go java jar class cpp hpp exe dll
bat ps1 sql db sqlite ipynb tex bib png jpg jpeg gif svg webp mp3 mp4 wav avi mkv rar gz tgz iso bak tmp log odt ods odp rtf eml ics vcf pem crt`)

// filesAndDomains are endings of file names that are top-level domains, too: install.sh, README.md.
var filesAndDomains = set("md sh zip rs py pl pm ps mov so cc mk mm ml tf pub inc app")

// longestEnding is how long an ending of ASCII can be, in bytes.
var longestEnding = func() (most int) {
	for _, all := range []map[string]bool{files, filesAndDomains} {
		for ending := range all {
			most = max(most, len(ending))
		}
	}
	return most
}()

func isFileEnding(s string) bool {
	ascii := true
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf { // small letters of some of these are ASCII
			ascii = false
		} else if !isAlnum(c) { // as in most of what stands behind the last point of a link
			return false
		}
	}
	if ascii && len(s) > longestEnding {
		return false
	}
	s = strings.ToLower(s)
	return files[s] || filesAndDomains[s]
}

// isFileName reports whether a word is the bare name of a file. It is no address, although some of its endings are top-level domains: a person who
// means the host writes https:// or www. before it.
func isFileName(s string) bool {
	base, ending, ok := cutLast(s, ".")
	return ok && base != "" && isFileEnding(ending) && !strings.ContainsAny(s, "/\\@:?# \t\n") && !strings.HasPrefix(strings.ToLower(s), "www.")
}
