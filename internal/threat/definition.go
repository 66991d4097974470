package threat

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
)

// Suspicion is a part of a tool's definition that looks like an order to the model, or that people don't see. It is a reason to let a person
// read the definition, not proof of anything: an order in words that no rule has is not found.
type Suspicion struct {
	// Kind is one of order, markup, tool (the name of another tool), path, link, hidden, lookalike, encoded, padding, sentence (in place of a name or a
	// choice), long (too much for a person to read) and screened (ScreenedKind).
	Kind string `json:"kind"`
	// Where is the place in the definition, such as inputSchema.properties.path.description. Bounded and printable, as is Quote.
	Where string `json:"where"`
	Quote string `json:"quote"`
}

// ScreenedKind is the kind of what screening found, which reads definitions beside the rules of this package.
const ScreenedKind = "screened"

func (s Suspicion) String() string { return fmt.Sprintf("%s in %s: %q", s.Kind, s.Where, s.Quote) }

// ToolNames maps the names, in lower case, of tools that a definition could be about to whether the tool is one of the same server. A name
// that several servers have counts as one of the same server.
type ToolNames map[string]bool

// Bounds of what SuspicionsIn reads and returns.
const (
	maxSuspicions = 12
	maxRead       = 64 << 10 // bytes of text; no honest definition has so much, and no person reads it
	maxDepth      = 100
	quoteMax      = 160
)

// ReadingOrder says how soon a person should read a definition: first those in which something was found, then those that changed.
func ReadingOrder(suspicions int, changed bool) int {
	switch {
	case suspicions > 0:
		return 0
	case changed:
		return 1
	}
	return 2
}

// SuspicionsIn reads a whole tool definition: every string and every name in it, at any depth. self is the tool's own name. Text that is not JSON is
// suspicious as a whole.
func SuspicionsIn(definition []byte, self string, names ToolNames) []Suspicion {
	r := reading{self: strings.ToLower(self), names: names}
	var v any
	if err := call.Decode(definition, &v); err != nil {
		return []Suspicion{{Kind: "hidden", Where: "definition", Quote: "it is no JSON"}}
	}
	r.walk(v, "", "", 0)
	if r.size > maxRead {
		r.add("long", "definition", fmt.Sprintf("it has over %d bytes of text", maxRead))
		return r.found
	}
	r.prose.judge(&r)
	r.choices.judge(&r)
	return r.found
}

// reading is one pass over a definition.
type reading struct {
	self    string
	names   ToolNames
	size    int
	found   []Suspicion
	prose   stream // descriptions, titles, examples, defaults
	choices stream // values of enum and const
}

func (r *reading) add(kind, where, quote string) {
	if where == "" {
		where = "definition"
	}
	s := Suspicion{Kind: kind, Where: display.Line(where, quoteMax), Quote: display.Line(strings.TrimSpace(quote), quoteMax)}
	if len(r.found) < maxSuspicions && !slices.ContainsFunc(r.found, func(f Suspicion) bool { return f.Kind == s.Kind && f.Where == s.Where }) {
		r.found = append(r.found, s)
	}
}

func (r *reading) walk(v any, path, key string, depth int) {
	if depth > maxDepth || r.size > maxRead {
		r.size = maxRead + 1
		return
	}
	switch v := v.(type) {
	case string:
		r.text(v, path, key)
	case []any:
		for i, e := range v {
			r.walk(e, fmt.Sprintf("%s[%d]", path, i), key, depth+1)
		}
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			at := name
			if path != "" {
				at = path + "." + name
			}
			if len(at) > 4*quoteMax {
				at = strings.ToValidUTF8(at[:4*quoteMax], "")
			}
			if r.name(name, at); r.size > maxRead {
				return
			}
			r.walk(v[name], at, name, depth+1)
		}
	}
}

// Names of members that are words of a schema and not the server's.
var plainWord = regexp.MustCompile(`^[$A-Za-z]{1,24}$`)

// oneWord matches a text too short for a sentence: a type, a unit, an identifier.
var oneWord = regexp.MustCompile(`^[A-Za-z0-9_.:/#$@+-]{1,48}$`)

const (
	wordsOfName   = 8 // beyond so many words in it a name is a sentence
	spacedName    = 5 // fewer, if they stand apart
	wordsOfChoice = 14
)

// name judges the name of a member.
func (r *reading) name(s, path string) {
	r.size += len(s)
	if plainWord.MatchString(s) && len(splitWords(s)) < 4 {
		return
	}
	r.hidden(s, path)
	words := splitWords(s)
	if n := len(words); n > wordsOfName || n >= spacedName && len(strings.Fields(s)) >= spacedName {
		r.add("sentence", path, s)
	}
	var one stream
	one.add(strings.Join(words, " "), path)
	one.judge(r)
	if history.MatchString(strings.Join(words, " ")) {
		r.add("order", path, s)
	}
}

// history matches names of arguments by which a server asks for the model's conversation.
var history = regexp.MustCompile(`^(?:full |entire |whole |complete |previous |all |user )*(?:conversation|chat|message|dialog|tool call) ?(?:history|log|transcript|context)s?$|^(?:chain of thought|(?:all |available |list of )+tools|your (?:system )?(?:prompt|instructions))$`)

// text judges a string.
func (r *reading) text(s, path, key string) {
	r.size += len(s)
	if s == "" || r.size > maxRead {
		return
	}
	r.hidden(s, path)
	switch {
	case oneWord.MatchString(s):
		r.name(s, path)
	case key == "enum" || key == "const" || key == "required":
		if len(splitWords(s)) >= wordsOfChoice {
			r.add("sentence", path, s)
		}
		r.choices.add(s, path)
	default:
		r.prose.add(s, path)
	}
}

var (
	padding = regexp.MustCompile(`[\p{Zs}\t]{60,}|(?:[\p{Zs}\t]*[\r\n\x0b\x0c]){12,}|(?:\x{2028}|\x{2029}|\x{85})`)
	encoded = regexp.MustCompile(`(?i)(?:%[0-9a-f]{2}){12,}|(?:\\u[0-9a-f]{4}){6,}|(?:\\x[0-9a-f]{2}){8,}|(?:&#x?[0-9a-f]{2,6};){6,}|\b[0-9a-f]{96,}\b`)
	base64s = regexp.MustCompile(`[A-Za-z0-9+/_-]{24,}={0,2}`)
	letters = regexp.MustCompile(`(?:\b\pL\b[ _.·*|-]{1,2}){7,}`)
)

// hidden finds characters that a reader of the string does not see, or sees as others.
func (r *reading) hidden(s, path string) {
	marks := 0
	var before rune
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		marks++
		if !unicode.Is(unicode.M, c) {
			marks = 0
		}
		if unseen(c, before) || marks > display.MarksMax {
			r.add("hidden", path, around(s, i, i+n))
			break
		}
		before = c
		i += n
	}
	if at := padding.FindStringIndex(s); at != nil && strings.TrimSpace(s[at[1]:]) != "" {
		r.add("padding", path, fmt.Sprintf("%d bytes of white space before %s", at[1]-at[0], around(s, at[1], at[1])))
	}
	if at := encoded.FindStringIndex(s); at != nil {
		r.add("encoded", path, s[at[0]:at[1]])
	}
	for _, at := range base64s.FindAllStringIndex(s, 64) {
		if readsAsText(s[at[0]:at[1]]) {
			r.add("encoded", path, s[at[0]:at[1]])
			break
		}
	}
	if at := letters.FindStringIndex(s); at != nil {
		r.add("hidden", path, s[at[0]:at[1]])
	}
	for l := range Lookalikes(s) {
		r.add("lookalike", path, s[l.Start:l.End])
		break
	}
}

// unseen tells whether the rune shows nothing, or changes how others are shown. A joiner or a variation selector after a symbol makes an
// emoji, and a joiner between letters is ordinary in the scripts that need it.
func unseen(c, before rune) bool {
	switch {
	case c == '\n' || c == '\t' || c == '\r' || unicode.Is(unicode.Zs, c):
		return false
	case c == 0xfe0f || c == 0x200d:
		return !(unicode.Is(unicode.So, before) || unicode.Is(unicode.Sk, before) || before == 0xfe0f || before >= '0' && before <= '9' || before == '#' || before == '*' ||
			unicode.Is(unicode.Sm, before) || before == '‼' || before == '⁉' || c == 0x200d && unicode.In(before, unicode.Devanagari, unicode.Arabic, unicode.Malayalam, unicode.Sinhala))
	case c == 0x200c:
		return !unicode.In(before, unicode.Arabic, unicode.Devanagari, unicode.Bengali, unicode.Malayalam)
	}
	return !display.Visible(c)
}

// readsAsText tells whether a run of letters is base64 of something: long, or of a text.
func readsAsText(s string) bool {
	if strings.Count(s, "-")+strings.Count(s, "_")+strings.Count(s, "/") > len(s)/8 {
		return false // a path, a slug, a constant
	}
	if !strings.ContainsFunc(s, unicode.IsUpper) || !strings.ContainsFunc(s, unicode.IsLower) {
		return false
	}
	if len(s) >= 64 && strings.ContainsFunc(s, unicode.IsDigit) {
		return true
	}
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	b, err := base64.RawStdEncoding.DecodeString(s[:len(s)/4*4])
	if err != nil {
		return false
	}
	return bytes.IndexFunc(b, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' || c > '~' }) < 0
}

// stream is the strings of one kind, read as one text: an order may be spread over several of them.
type stream struct {
	text  strings.Builder
	from  []int // where each string begins
	paths []string
}

func (st *stream) add(s, path string) {
	if st.text.Len() > 0 {
		st.text.WriteByte(' ')
	}
	st.from, st.paths = append(st.from, st.text.Len()), append(st.paths, path)
	st.text.WriteString(normal(s))
}

// where is the path of the string that has the byte.
func (st *stream) where(at int) string {
	i, found := slices.BinarySearch(st.from, at)
	if !found {
		i--
	}
	return st.paths[max(i, 0)]
}
