package guard

import (
	"strings"
	"unicode/utf8"
)

//go:generate go run gen_tables.go

// Escaped text is plain text in which dangerous characters stand as \u{HEX} (a code point, upper-case hex without leading
// zeros) or \x{HH} (a byte that was not valid UTF-8). A backslash of the content stands as \u{5C} exactly where it would
// otherwise begin one of these, so unescape gives the original back byte for byte.
//
// The escape is decided at single characters, by looking around them: an "anchor" is a character that no dangerous
// sequence can do without, and escaping it breaks the sequence. The sequences are matched on a skeleton of the text: lower
// case, look-alikes folded to ASCII, vanishing characters skipped.

// Classes of a character. Values from ' ' to '~' are the ASCII skeleton of a look-alike (tables.go).
const (
	plain      = 0
	mark       = 1 // combining mark: kept, but not in endless runs
	doubleLess = 2 // looks like "<<"
	always     = 3 // control, bidi, zero-width, ignorable, private or no character: always escaped
)

const (
	// maxMarks bounds the combining marks in a row that stay, as in Unicode's stream-safe format.
	maxMarks = 30
	// maxSkip bounds how many vanishing characters or blanks a match looks across, so that a match costs a bounded time.
	maxSkip = 32
)

// stops are the ASCII characters at which the scan checks more; everything else passes untouched.
// valueStops are those of a header value, which must also stay on its line and within its quotes.
var stops, valueStops = func() (s, v [256]uint8) {
	for c := range s {
		if c < ' ' && c != '\n' && c != '\t' || c >= 0x7F || strings.IndexByte(`<[:~\xXBES`, byte(c)) >= 0 {
			s[c] = 1
		}
		v[c] = s[c]
	}
	v['\n'], v['\t'], v['"'] = 1, 1, 1
	return
}()

// skeletons is the skeleton of each ASCII character; 0 for those that vanish, and for what isn't ASCII.
var skeletons = func() (t [256]byte) {
	for c := range byte(0x7F) {
		switch {
		case 'A' <= c && c <= 'Z':
			t[c] = c + ('a' - 'A')
		case c >= ' ' || c == '\n' || c == '\t':
			t[c] = c
		}
	}
	return
}()

// class returns the class of a code point outside ASCII.
func class(r rune) byte {
	return pages[int(pageOf[r>>8])<<8|int(r&0xFF)]
}

// escaped is the result of escape, with counts of its changes.
type escaped struct {
	text      string
	count     int // characters and bytes escaped
	forgeries int // places that imitated the fence's own marker
	templates int // chat-template tokens, tool tags, turn prefixes and delimiter phrases
	invalid   int // bytes that were not valid UTF-8
}

// escaper walks s once; start is the first byte that isn't in out yet.
type escaper struct {
	s     string
	out   []byte
	start int
	escaped
}

// escape makes s inert. With crlf, the carriage return of each CR LF is left out (the header says so).
func escape(s string, crlf bool) escaped {
	e := escaper{s: s}
	e.run(&stops, crlf)
	return e.escaped
}

// escapeValue makes s inert as a header value: it stays on one line and within its quotes.
func escapeValue(s string) string {
	e := escaper{s: s}
	e.run(&valueStops, false)
	return e.text
}

func (e *escaper) run(stops *[256]uint8, crlf bool) {
	s := e.s
	marks, marksEnd := 0, 0 // combining marks in a row, and where the last one ended
	for i := 0; i < len(s); {
		for i+8 <= len(s) {
			b := s[i : i+8]
			if stops[b[0]]|stops[b[1]]|stops[b[2]]|stops[b[3]]|stops[b[4]]|stops[b[5]]|stops[b[6]]|stops[b[7]] != 0 {
				break
			}
			i += 8
		}
		for i < len(s) && stops[s[i]] == 0 {
			i++
		}
		if i == len(s) {
			break
		}
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '\r' && crlf:
				e.flush(i, i+1)
			case c < ' ' || c == 0x7F || c == '"':
				e.rune(i, i+1, rune(c))
			case e.anchor(i, i+1, c):
				e.rune(i, i+1, rune(c))
			}
			i++
			continue
		}
		r, w := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && w == 1 {
			e.invalid++
			e.byte(i)
			i++
			continue
		}
		switch k := class(r); k {
		case plain:
		case mark:
			if i != marksEnd {
				marks = 0
			}
			marks++
			marksEnd = i + w
			if marks > maxMarks {
				e.rune(i, i+w, r)
			}
		case always:
			e.rune(i, i+w, r)
		case doubleLess:
			if e.anchor(i, i+w, '<') {
				e.rune(i, i+w, r)
			}
		default:
			if e.anchor(i, i+w, k) {
				e.rune(i, i+w, r)
			}
		}
		i += w
	}
	if e.out == nil {
		e.text = s
		return
	}
	e.text = string(append(e.out, s[e.start:]...))
}

// flush takes over what is pending before i and goes on at next.
func (e *escaper) flush(i, next int) {
	if e.out == nil {
		e.out = make([]byte, 0, len(e.s)+len(e.s)/8+64)
	}
	e.out = append(e.out, e.s[e.start:i]...)
	e.start = next
}

const hexDigits = "0123456789ABCDEF"

func (e *escaper) rune(i, next int, r rune) {
	e.flush(i, next)
	e.count++
	e.out = append(e.out, `\u{`...)
	shift := 0
	for r>>(shift+4) != 0 {
		shift += 4
	}
	for ; shift >= 0; shift -= 4 {
		e.out = append(e.out, hexDigits[r>>shift&0xF])
	}
	e.out = append(e.out, '}')
}

func (e *escaper) byte(i int) {
	e.flush(i, i+1)
	e.count++
	e.out = append(e.out, '\\', 'x', '{', hexDigits[e.s[i]>>4], hexDigits[e.s[i]&0xF], '}')
}

// unescape reverses escape. Text that escape can't have written gives something that escapes to another text.
func unescape(s string, crlf bool) string {
	if !crlf && strings.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		switch {
		case s[i] == '\n' && crlf:
			out = append(out, '\r', '\n')
			i++
		case s[i] == '\\' && i+3 < len(s) && s[i+2] == '{' && (s[i+1] == 'u' || s[i+1] == 'x'):
			v, j := rune(0), i+3
			for ; j < len(s) && j < i+9; j++ {
				d := strings.IndexByte(hexDigits, s[j])
				if d < 0 {
					break
				}
				v = v<<4 | rune(d)
			}
			if s[i+1] == 'x' {
				out = append(out, byte(v))
			} else {
				out = utf8.AppendRune(out, v)
			}
			i = j + 1
		default:
			out = append(out, s[i])
			i++
		}
	}
	return string(out)
}

// next returns the skeleton of the first character at or after i that doesn't vanish, and where it ends.
// It is 0 for a character without an ASCII skeleton and at the end of the text.
func (e *escaper) next(i int) (byte, int) {
	if i < len(e.s) {
		if c := skeletons[e.s[i]]; c != 0 {
			return c, i + 1
		}
	}
	return e.nextOther(i)
}

func (e *escaper) nextOther(i int) (byte, int) {
	for range maxSkip {
		if i >= len(e.s) {
			return 0, i
		}
		r, w := utf8.DecodeRuneInString(e.s[i:])
		i += w
		if c, vanishes := skeleton(r); !vanishes {
			return c, i
		}
	}
	return 0, i
}

// prev is next in the other direction: the last character before i that doesn't vanish, and where it begins.
func (e *escaper) prev(i int) (byte, int) {
	if i > 0 {
		if c := skeletons[e.s[i-1]]; c != 0 {
			return c, i - 1
		}
	}
	return e.prevOther(i)
}

func (e *escaper) prevOther(i int) (byte, int) {
	for range maxSkip {
		if i <= 0 {
			return 0, 0
		}
		r, w := utf8.DecodeLastRuneInString(e.s[:i])
		i -= w
		if c, vanishes := skeleton(r); !vanishes {
			return c, i
		}
	}
	return 0, i
}

func skeleton(r rune) (c byte, vanishes bool) {
	if r < utf8.RuneSelf {
		return skeletons[r], skeletons[r] == 0
	}
	switch k := class(r); k {
	case plain:
		return 0, false
	case doubleLess:
		return '<', false
	case mark, always:
		return 0, true
	default:
		return k, false
	}
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// nextInk and prevInk are next and prev across blanks.
func (e *escaper) nextInk(i int) (c byte, end int) {
	for range maxSkip {
		if c, end = e.next(i); !blank(c) {
			return c, end
		}
		i = end
	}
	return 0, i
}

func (e *escaper) prevInk(i int) (c byte, begin int) {
	for range maxSkip {
		if c, begin = e.prev(i); !blank(c) {
			return c, begin
		}
		i = begin
	}
	return 0, i
}

func (e *escaper) skipBlanks(i int) int {
	for range maxSkip {
		c, end := e.next(i)
		if !blank(c) {
			break
		}
		i = end
	}
	return i
}

// follows reports whether the skeleton at i goes on with word; a '_' in word stands for up to three of "_-".
func (e *escaper) follows(i int, word string) (int, bool) {
	for k := 0; k < len(word); k++ {
		c, end := e.next(i)
		if word[k] == '_' {
			for range 3 {
				if c != '_' && c != '-' {
					break
				}
				i = end
				c, end = e.next(i)
			}
			continue
		}
		if c != word[k] {
			return i, false
		}
		i = end
	}
	return i, true
}

// precedes is follows for what ends at i.
func (e *escaper) precedes(i int, word string) bool {
	for k := len(word) - 1; k >= 0; k-- {
		c, begin := e.prev(i)
		if word[k] == '_' {
			for range 3 {
				if c != '_' && c != '-' {
					break
				}
				i = begin
				c, begin = e.prev(i)
			}
			continue
		}
		if c != word[k] {
			return false
		}
		i = begin
	}
	return true
}

// word reads the skeleton of a name at i into buf, as far as it goes in. It returns its length and end.
func (e *escaper) word(i int, buf []byte) (n, end int) {
	for n < len(buf) {
		c, end := e.next(i)
		if c == '-' {
			c = '_'
		}
		if c != '_' && !letterOrDigit(c) {
			break
		}
		buf[n] = c
		n++
		i = end
	}
	return n, i
}

func letterOrDigit(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

// anchor decides whether the character at s[i:end], whose skeleton is c, must be escaped.
func (e *escaper) anchor(i, end int, c byte) bool {
	switch c {
	case '<':
		return e.less(i, end)
	case '[':
		return e.bracket(end)
	case ':':
		return e.colon(i, end)
	case '~':
		return e.tilde(i, end)
	case 'x', 'X':
		return e.nameHere(i, end)
	case 'B', 'E', 'S':
		return e.s[end:] != "" && 'A' <= e.s[end] && e.s[end] <= 'Z' && e.phrase(i, end, c+('a'-'A'))
	case 'b', 'e', 's': // a look-alike; its case is not known
		return e.phrase(i, end, c)
	case '\\':
		return end+1 < len(e.s) && (e.s[end] == 'u' || e.s[end] == 'x') && e.s[end+1] == '{'
	}
	return false
}

// less judges '<': three in a row are how the fence's markers begin; '<|' and some tags are other people's.
func (e *escaper) less(i, end int) bool {
	c, after := e.next(end)
	before, _ := e.prev(i)
	if (c == '<' || blank(c) || before == '<' || blank(before) || end-i > 1) && e.run3(i, end) {
		if ahead, _ := e.nextInk(end); ahead != '<' && e.markerWord(end) {
			e.forgeries++
		}
		return true
	}
	switch {
	case c == '|':
		e.templates++
		return true
	case c == '<': // <<SYS>>
		if slash, j := e.next(after); slash == '/' {
			after = j
		}
		if _, ok := e.follows(after, "sys"); ok {
			e.templates++
			return true
		}
		return e.closesShout(i)
	}
	at := end
	for range 3 { // "</tag>", "<!tag>", "</ tag>": some parsers take it
		k, j := e.nextInk(at)
		if letterOrDigit(k) {
			break
		}
		if k != '/' && k != '!' && k != '?' {
			return false
		}
		at = j
	}
	at = e.skipBlanks(at)
	var buf [32]byte
	n, at := e.word(at, buf[:])
	if n == 0 || !reservedTag(string(buf[:n])) {
		return false
	}
	switch k, _ := e.next(at); k {
	case '>', '/', ' ', '\t', '\n', '=', ':', 0:
	default:
		if n < len(buf) {
			return false
		}
	}
	e.templates++
	return true
}

// run3 reports whether the '<' at s[i:end] stands among three or more, blanks between them or not.
func (e *escaper) run3(i, end int) bool {
	n := e.weight(i, end)
	for k, at := 0, end; k < 3 && n < 3; k++ {
		from := at
		c, j := e.nextInk(from)
		if c != '<' {
			break
		}
		n += e.weight(from, j)
		at = j
	}
	for k, at := 0, i; k < 3 && n < 3; k++ {
		to := at
		c, j := e.prevInk(to)
		if c != '<' {
			break
		}
		n += e.weight(j, to)
		at = j
	}
	return n >= 3
}

// weight is 2 where s[i:end] holds a character that looks like two '<', else 1.
func (e *escaper) weight(i, end int) int {
	for _, r := range e.s[i:end] {
		if r >= utf8.RuneSelf && class(r) == doubleLess {
			return 2
		}
	}
	return 1
}

// markerWord reports whether "begin" or "end" stands at i, as in the fence's markers. Where the name follows too,
// the forgery is counted there.
func (e *escaper) markerWord(i int) bool {
	for range maxSkip {
		c, j := e.next(i)
		if !blank(c) && c != '/' {
			break
		}
		i = j
	}
	for _, w := range [...]string{"begin", "end"} {
		if j, ok := e.follows(i, w); ok {
			_, named := e.follows(j, "_"+nameSkeleton)
			return !named
		}
	}
	return false
}

// closesShout reports whether the '<' at i closes Falcon's >>WORD<<.
func (e *escaper) closesShout(i int) bool {
	j := i
	for j > 0 && 'A' <= e.s[j-1] && e.s[j-1] <= 'Z' {
		if j--; i-j > 32 {
			return false
		}
	}
	if i-j < 2 || !strings.HasSuffix(e.s[:j], ">>") {
		return false
	}
	e.templates++
	return true
}

const nameSkeleton = "untrusted_external_content"

// nameHere reports whether the x at s[i:end] is the one in the marker's name.
func (e *escaper) nameHere(i, end int) bool {
	if _, ok := e.follows(end, "ternal_content"); ok && e.precedes(i, "untrusted_e") {
		e.forgeries++
		return true
	}
	return false
}

// reservedTag reports whether models or their templates give the tag a meaning.
func reservedTag(name string) bool {
	switch name {
	case "s", "unk", "bos", "eos", "eot", "eom", "pad", "cls", "sep", "mask", "gmask", "sop", "eop",
		"tool", "tools", "function", "functions", "invoke", "parameter", "parameters", "arg_key", "arg_value", "image_soft_token",
		"think", "thinking", "thought", "reasoning", "scratchpad", "answer",
		"sys", "user", "human", "assistant", "developer", "model", "admin", "operator",
		"instruction", "instructions", "important", "override", "trusted", "search_results", "search_result":
		return true
	}
	for _, p := range reservedPrefixes[name[0]] {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return strings.HasSuffix(name, "_token") || strings.HasSuffix(name, "_instructions")
}

var reservedPrefixes = [256][]string{
	'a': {"antml"},
	'b': {"begin_", "beginning_of_"},
	'e': {"end_of_", "end_untrusted", "extra_id_"},
	'f': {"function_"},
	'g': {"gateway"},
	'r': {"reserved_"},
	's': {"start_of_", "system", "sallyport"},
	't': {"tool_"},
	'u': {"untrusted", "unused"},
}

// bracket judges '[': Mistral's and other families' control words, and headings that pose as the gateway's.
func (e *escaper) bracket(end int) bool {
	c, j := e.nextInk(end)
	if c == '/' {
		end = j
	}
	var buf [24]byte
	n, at := e.word(e.skipBlanks(end), buf[:])
	switch name := string(buf[:n]); name {
	case "inst", "sys", "system", "system_prompt", "available_tools", "tool_calls", "tool_call", "tool_results", "tool_result",
		"tool_content", "model_settings", "args", "call_id", "think", "img", "img_break", "img_end", "audio", "begin_audio", "transcribe",
		"prefix", "suffix", "middle", "bos", "eos", "cls", "sep", "mask", "gmask", "pad", "unk",
		"gateway", "sallyport", "assistant", "developer", "instructions":
	default:
		if !strings.HasPrefix(name, "unused") {
			return false
		}
	}
	if k, _ := e.nextInk(at); k != ']' && k != ':' {
		return false
	}
	e.templates++
	return true
}

// tilde judges '~' as in MiniMax's ]~b] and [e~[.
func (e *escaper) tilde(i, end int) bool {
	before, _ := e.prev(i)
	after, _ := e.next(end)
	if before == ']' && (after == 'b' || after == '!') || before == 'e' && after == '[' {
		e.templates++
		return true
	}
	return false
}

// colon judges ':' after a speaker's name at the start of a line, and between "role" and a speaker.
func (e *escaper) colon(i, end int) bool {
	c, at := e.prevInk(i)
	quoted := false
	for range maxSkip { // **Human**: and "role":
		if c == '"' || c == '\'' || c == '\\' {
			quoted = true
		} else if c != '*' && c != '_' {
			break
		}
		c, at = e.prevInk(at)
	}
	if c == 0 || strings.IndexByte("eimnrsty", c) < 0 { // what the words below end in
		return false
	}
	var buf [12]byte
	n := len(buf)
	for letterOrDigit(c) {
		if n == 0 {
			return false
		}
		n--
		buf[n] = c
		i = at
		c, at = e.prev(i)
	}
	needsHash := false
	switch name := string(buf[n:]); name {
	case "role":
		if c == '_' || c == '-' || !e.speaker(end) {
			return false
		}
		e.templates++
		return true
	case "human", "assistant", "user", "system", "developer", "observation", "ai", "gateway", "sallyport":
	case "instruction", "instructions", "response", "input": // ### Instruction:
		needsHash = true
	default:
		return false
	}
	if quoted { // a key of JSON
		return false
	}
	lower := 'a' <= e.s[i] && e.s[i] <= 'z'
	for range maxSkip {
		switch c {
		case '#':
			needsHash = false
		case ' ', '\t':
			if lower { // an indented key of YAML
				return false
			}
		case '*', '_', '>', '-', '<', '|':
		default:
			if needsHash || c != '\n' && (c != 0 || at > 0) {
				return false
			}
			e.templates++
			return true
		}
		c, at = e.prev(at)
	}
	return false
}

// speaker reports whether a role of a chat stands at i, quoted or not.
func (e *escaper) speaker(i int) bool {
	for range maxSkip {
		c, j := e.next(i)
		if !blank(c) && c != '\n' && c != '"' && c != '\'' && c != '\\' {
			break
		}
		i = j
	}
	var buf [12]byte
	n, _ := e.word(i, buf[:])
	switch string(buf[:n]) {
	case "system", "developer", "assistant", "user", "tool", "function", "model", "human", "ipython", "observation":
		return true
	}
	return false
}

// phrase judges BEGIN, END and START of delimiter phrases such as "BEGIN RETRIEVED CONTENT".
func (e *escaper) phrase(i, end int, c byte) bool {
	var first string
	switch c {
	case 'b':
		first = "egin"
	case 'e':
		first = "nd"
	default:
		first = "tart"
	}
	at, ok := e.follows(end, first)
	if !ok {
		return false
	}
	if before, _ := e.prev(i); letterOrDigit(before) {
		return false
	}
	var buf [14]byte
	for range 3 { // (of) (the) what
		var n int
		n, at = e.part(at, buf[:])
		switch string(buf[:n]) {
		case "of", "the", "a":
			continue
		case "retrieved", "untrusted", "trusted", "external", "tool", "system", "web", "search", "fetched", "quoted", "user", "context",
			"document", "page", "safe":
		default:
			return false
		}
		n, _ = e.part(at, buf[:])
		switch string(buf[:n]) {
		case "content", "contents", "data", "output", "result", "results", "context", "prompt", "instruction", "instructions", "message",
			"text", "input", "document", "documents", "block", "external":
			e.templates++
			return true
		}
		return false
	}
	return false
}

// part reads a word into buf that follows on blanks, '_' or '-', and returns its length, 0 if there is none, and its end.
func (e *escaper) part(i int, buf []byte) (n, end int) {
	gap := 0
	for ; gap < 4; gap++ {
		c, j := e.next(i)
		if !blank(c) && c != '_' && c != '-' {
			break
		}
		i = j
	}
	for gap > 0 && n < len(buf) {
		c, j := e.next(i)
		if !letterOrDigit(c) {
			break
		}
		buf[n] = c
		n++
		i = j
	}
	return n, i
}
