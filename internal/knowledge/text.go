package knowledge

import (
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Span is a part of a text, in bytes.
type Span struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// Sizes of chunks in bytes: a chunk ends with the paragraph that makes it large enough, and is cut where it would be larger than the most.
const (
	chunkEnough = 700
	chunkMost   = 1400
)

// Chunks cuts a text into chunks: at headings and paragraphs where it can, else at lines, words and characters. Chunks with nothing but white space are left out.
func Chunks(text string) (spans []Span) {
	start, at := 0, 0
	end := func(to int) {
		if s := trimmed(text, Span{start, to}); s.End > s.Start {
			spans = append(spans, s)
		}
		start = to
	}
	for at < len(text) {
		next := at + paragraph(text[at:])
		if at > start && (strings.HasPrefix(text[at:], "#") && at-start > chunkEnough/4 || next-start > chunkMost) {
			end(at)
		}
		for next-start > chunkMost {
			end(start + cut(text[start:start+chunkMost]))
		}
		if next-start >= chunkEnough {
			end(next)
		}
		at = next
	}
	end(len(text))
	return spans
}

// paragraph is the length of the paragraph that a text begins with, with the empty lines after it.
func paragraph(text string) int {
	n := strings.Index(text, "\n\n")
	if n < 0 {
		return len(text)
	}
	for n < len(text) && text[n] == '\n' {
		n++
	}
	return n
}

// cut is where a text that is too long for a chunk is cut.
func cut(text string) int {
	for _, sep := range []string{"\n", ". ", " "} {
		if n := strings.LastIndex(text, sep); n > len(text)/2 {
			return n + len(sep)
		}
	}
	n := len(text)
	for n > len(text)/2 && !utf8.RuneStart(text[n-1]) {
		n--
	}
	return max(n-1, 1)
}

func trimmed(text string, s Span) Span {
	part := text[s.Start:s.End]
	s.Start += len(part) - len(strings.TrimLeftFunc(part, unicode.IsSpace))
	s.End -= len(part) - len(strings.TrimRightFunc(part, unicode.IsSpace))
	return s
}

// maxWord bounds a word of the index, in bytes; longer ones are cut.
const maxWord = 64

// Words are the words of a text as the index has them: without case and accents. In scripts that put no spaces between words, each character is one.
func Words(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		var word []byte
		flush := func() bool {
			if len(word) == 0 {
				return true
			}
			w := string(word)
			word = word[:0]
			return yield(w)
		}
		for _, r := range folded(text) {
			switch {
			case r < utf8.RuneSelf: // as most are, for whom the tables of Unicode need not be looked at
				if r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9' {
					if len(word) < maxWord {
						if r >= 'A' && r <= 'Z' {
							r |= 0x20
						}
						word = append(word, byte(r))
					}
				} else if !flush() {
					return
				}
			case unicode.Is(unicode.Mn, r) || r == '\u00AD':
			case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai):
				if !flush() || !yield(string(r)) {
					return
				}
			case unicode.IsLetter(r) || unicode.IsDigit(r):
				if len(word)+utf8.RuneLen(r) <= maxWord {
					word = utf8.AppendRune(word, unicode.ToLower(r))
				}
			default:
				if !flush() {
					return
				}
			}
		}
		flush()
	}
}

// Phrase is a question by what stands together in it.
type Phrase []string

// Bounds of a Phrase.
const (
	phraseWords = 48
	phraseApart = 4 // words that are further apart in the question don't belong together
)

// NewPhrase are the first words of a question, in their order.
func NewPhrase(question string) (p Phrase) {
	for w := range Words(question) {
		if p = append(p, w); len(p) == phraseWords {
			break
		}
	}
	return p
}

// In says how much of the phrase stands together in a text: each pair of its words that is as far apart there counts 1, divided by how far apart it is.
func (p Phrase) In(text string) (sum float64) {
	var words []string
	at := map[string][]int{}
	for w := range Words(text) {
		at[w] = append(at[w], len(words))
		words = append(words, w)
	}
	for i, first := range p {
		for apart := 1; apart <= phraseApart && i+apart < len(p); apart++ {
			if slices.ContainsFunc(at[first], func(n int) bool { return n+apart < len(words) && words[n+apart] == p[i+apart] }) {
				sum += 1 / float64(apart)
			}
		}
	}
	return sum
}

// folded is a text whose accents stand apart.
func folded(text string) string {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return norm.NFKD.String(text)
		}
	}
	return text
}
