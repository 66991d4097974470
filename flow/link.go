package flow

import (
	"strings"
	"unicode"
)

// bareText is a text as a reader sees it: without characters that are not drawn, with the full stops that count as points in host names as
// points.
func bareText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '。' || r == '．' || r == '｡':
			return '.'
		case r == '\n' || r == '\t' || r == '\r' || unicode.IsSpace(r):
			return ' '
		case r > 0x7f && (unicode.Is(unicode.C, r) || unicode.Is(variation, r)):
			return -1
		}
		return r
	}, s)
}

// isLink reports whether a word of a text would be taken for a web address: it has a scheme, or begins with a host name that is not plainly
// the name of a file.
func isLink(token string) bool {
	if at := strings.Index(token, "://"); at > 0 {
		return true
	}
	if strings.ContainsRune(token, '@') && !strings.ContainsAny(token, "/") {
		return false // an address of mail
	}
	host := token
	if at := strings.IndexAny(token, "/?#:"); at >= 0 {
		host = token[:at]
	}
	if !hostname(host) {
		return false
	}
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if strings.ContainsFunc(last, unicode.IsDigit) && !strings.HasPrefix(last, "xn--") {
		return false
	}
	return !(host == token && files[last])
}

// files are endings of file names that are no top-level domains.
var files = set(`txt docx doc xlsx xls pptx ppt pdf csv tsv json yaml yml xml html htm png jpg jpeg gif svg log odt ods rtf eml ics`)
