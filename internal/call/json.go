package call

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"iter"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// shownMost bounds hostile text in an error message, in bytes.
const shownMost = 60

// Limits bound one JSON text. A zero limit permits nothing.
type Limits struct {
	Bytes   int // length of the text; never more than 256 MiB
	Depth   int // arrays and objects inside one another; a scalar has depth 0
	Members int // object members and array elements, in the whole text
}

// DefaultLimits are for what agents send.
func DefaultLimits() Limits { return Limits{Bytes: 4 << 20, Depth: 64, Members: 100_000} }

// Canonical parses data strictly and returns its RFC 8785 form in new memory: members sorted by the UTF-16 units of their names,
// no white space, minimal escapes, numbers as ECMAScript writes them. Canonical(Canonical(x)) is Canonical(x).
//
// One departure from RFC 8785: a plain integer literal keeps all its digits, where the RFC would round it to a double. Order
// numbers and account ids beyond 2^53 are common, and what was judged and approved must be what is sent (docs/design.md, rule 5). Every
// number, integers too, must lie within the range of a double; "-0" is 0.
//
// Refused, with a fault.RequestMalformed that names the offset: duplicate member names and names that differ only in case
// (Unicode simple folding, at every depth), data after the value, a byte order mark, invalid UTF-8, lone surrogates, control
// characters in strings, NUL in names, comments, single quotes, NaN, leading zeros, and whatever is over lim.
func Canonical(data []byte, lim Limits) ([]byte, error) {
	p := parsers.Get().(*parser)
	defer p.release()
	p.data, p.lim, p.emit, p.out = data, lim, true, make([]byte, 0, len(data))
	if err := p.document(); err != nil {
		return nil, err
	}
	return p.out, nil
}

// Check parses data as strictly as Canonical and accepts exactly what Canonical accepts, but keeps nothing.
func Check(data []byte, lim Limits) error {
	p := parsers.Get().(*parser)
	defer p.release()
	p.data, p.lim = data, lim
	if err := p.document(); err != nil {
		return err
	}
	return nil
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

// release gives the parser back with nothing in it but memory, and without that if it is much.
func (p *parser) release() {
	var kept parser
	if cap(p.names) <= 1<<10 {
		kept.names = p.names[:0]
	}
	if cap(p.decoded) <= 64<<10 {
		kept.decoded = p.decoded[:0]
	}
	if cap(p.scratch) <= 256<<10 {
		kept.scratch = p.scratch[:0]
	}
	*p = kept
	parsers.Put(p)
}

// parser is one recursive descent over data. With emit it writes the canonical form to out on the way.
type parser struct {
	data    []byte
	i       int // next byte to read
	lim     Limits
	depth   int
	members int
	names   []member // members of all objects that are open, innermost last
	decoded []byte   // names among them that had escapes

	emit    bool
	out     []byte
	scratch []byte // for sorting members and decoding values; never holds anything across a call
}

// maxBytes keeps every offset into data and out in 32 bits: canonical form is at most five times as long ("1e20").
const maxBytes = 256 << 20

// member is one member of an object that is being read. It holds no pointers, so that a stack of them is cheap to move.
type member struct {
	hash       uint64 // foldHash of the name
	pos        uint32 // of the opening quote of the name in data
	name, size uint32 // the decoded name: data[name:name+size], or decoded[name:name+size] if it was escaped
	start, end uint32 // of name and value in out
	escaped    bool
}

func (p *parser) name(m *member) []byte {
	if m.escaped {
		return p.decoded[m.name : m.name+m.size]
	}
	return p.data[m.name : m.name+m.size]
}

// pairwise is up to how many members an object's names are compared each with each as they come; beyond it they are sorted.
const pairwise = 16

func malformed(at int, format string, args ...any) *fault.Error {
	e := fault.New(fault.RequestMalformed, format, args...)
	e.Message += " at byte " + strconv.Itoa(at)
	return e
}

func (p *parser) document() *fault.Error {
	if most := min(p.lim.Bytes, maxBytes); len(p.data) > most {
		return fault.New(fault.RequestMalformed, "JSON text of %d bytes is over the limit of %d", len(p.data), most)
	}
	if bytes.HasPrefix(p.data, []byte("\xef\xbb\xbf")) {
		return malformed(0, "byte order mark")
	}
	if err := p.value(); err != nil {
		return err
	}
	p.space()
	if p.i < len(p.data) {
		return malformed(p.i, "data after the end of the JSON value")
	}
	return nil
}

func (p *parser) space() {
	for p.i < len(p.data) {
		switch p.data[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

func (p *parser) value() *fault.Error {
	p.space()
	if p.i == len(p.data) {
		return malformed(p.i, "unexpected end of JSON")
	}
	switch c := p.data[p.i]; c {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		start, end, escaped, err := p.quoted()
		if err != nil || !p.emit {
			return err
		}
		if !escaped {
			p.out = append(p.out, p.data[start-1:end+1]...)
			return nil
		}
		p.scratch = appendDecoded(p.scratch[:0], p.data[start:end])
		p.out = appendQuoted(p.out, p.scratch)
		return nil
	case 't':
		return p.literal("true")
	case 'f':
		return p.literal("false")
	case 'n':
		return p.literal("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return p.number()
	default:
		return p.unexpected("a value")
	}
}

// unexpected says what stands at the current byte in place of what should.
func (p *parser) unexpected(want string) *fault.Error {
	if p.i >= len(p.data) {
		return malformed(p.i, "unexpected end of JSON, expected %s", want)
	}
	switch c := p.data[p.i]; c {
	case '/':
		return malformed(p.i, "comments are not JSON; expected %s", want)
	case '\'':
		return malformed(p.i, "single quotes are not JSON; expected %s", want)
	case 'N', 'I', '+', '.':
		return malformed(p.i, "numbers like NaN, Infinity, +1 and .5 are not JSON; expected %s", want)
	case 0xef:
		if bytes.HasPrefix(p.data[p.i:], []byte("\xef\xbb\xbf")) {
			return malformed(p.i, "byte order mark; expected %s", want)
		}
	}
	return malformed(p.i, "unexpected %s, expected %s", display.Quote(string(p.data[p.i:p.i+1]), shownMost), want)
}

func (p *parser) literal(word string) *fault.Error {
	if !bytes.HasPrefix(p.data[p.i:], []byte(word)) {
		return p.unexpected("a value")
	}
	p.i += len(word)
	if p.emit {
		p.out = append(p.out, word...)
	}
	return nil
}

// enter counts one more level of nesting.
func (p *parser) enter() *fault.Error {
	if p.depth++; p.depth > p.lim.Depth {
		return malformed(p.i, "JSON nested deeper than %d", p.lim.Depth)
	}
	return nil
}

// count counts one more member or element.
func (p *parser) count() *fault.Error {
	if p.members++; p.members > p.lim.Members {
		return malformed(p.i, "more than %d members and elements", p.lim.Members)
	}
	return nil
}

func (p *parser) array() *fault.Error {
	if err := p.enter(); err != nil {
		return err
	}
	p.i++
	if p.emit {
		p.out = append(p.out, '[')
	}
	p.space()
	if p.i < len(p.data) && p.data[p.i] == ']' {
		return p.leave(']')
	}
	for {
		if err := p.count(); err != nil {
			return err
		}
		if err := p.value(); err != nil {
			return err
		}
		p.space()
		if p.i == len(p.data) {
			return p.unexpected("',' or ']'")
		}
		switch p.data[p.i] {
		case ']':
			return p.leave(']')
		case ',':
			p.i++
			if p.emit {
				p.out = append(p.out, ',')
			}
		default:
			return p.unexpected("',' or ']'")
		}
	}
}

func (p *parser) leave(bracket byte) *fault.Error {
	p.depth--
	p.i++
	if p.emit {
		p.out = append(p.out, bracket)
	}
	return nil
}

func (p *parser) object() *fault.Error {
	if err := p.enter(); err != nil {
		return err
	}
	p.i++
	if p.emit {
		p.out = append(p.out, '{')
	}
	p.space()
	if p.i < len(p.data) && p.data[p.i] == '}' {
		return p.leave('}')
	}
	first, decoded, body := len(p.names), len(p.decoded), len(p.out)
	for ordered := true; ; {
		if err := p.count(); err != nil {
			return err
		}
		if err := p.member(first); err != nil {
			return err
		}
		last := len(p.names) - 1
		ordered = ordered && (!p.emit || last == first || p.byName(&p.names[last-1], &p.names[last]) < 0)
		p.space()
		if p.i == len(p.data) {
			return p.unexpected("',' or '}'")
		}
		switch p.data[p.i] {
		case ',':
			p.i++
			p.space()
			if p.emit {
				p.out = append(p.out, ',')
			}
			continue
		case '}':
		default:
			return p.unexpected("',' or '}'")
		}
		members := p.names[first:]
		if len(members) > pairwise {
			if err := p.duplicates(members); err != nil {
				return err
			}
		}
		if p.emit && !ordered {
			p.reorder(members, body)
		}
		p.names, p.decoded = p.names[:first], p.decoded[:decoded]
		return p.leave('}')
	}
}

// member reads one name and value. The object's members so far are p.names[first:].
func (p *parser) member(first int) *fault.Error {
	if p.i == len(p.data) || p.data[p.i] != '"' {
		return p.unexpected("a member name in double quotes")
	}
	pos := p.i
	start, end, escaped, err := p.quoted()
	if err != nil {
		return err
	}
	m := member{pos: uint32(pos), name: uint32(start), size: uint32(end - start), start: uint32(len(p.out)), escaped: escaped}
	if escaped {
		m.name = uint32(len(p.decoded))
		p.decoded = appendDecoded(p.decoded, p.data[start:end])
		m.size = uint32(len(p.decoded)) - m.name
	}
	name := p.name(&m)
	if escaped && bytes.IndexByte(name, 0) >= 0 {
		return malformed(pos, "NUL in the name %s", display.Quote(string(name), shownMost))
	}
	m.hash = foldHash(name)
	if siblings := p.names[first:]; len(siblings) < pairwise {
		for k := range siblings {
			if siblings[k].hash == m.hash && bytes.EqualFold(p.name(&siblings[k]), name) {
				return p.duplicate(&siblings[k], &m)
			}
		}
	}
	if p.emit {
		if escaped {
			p.out = appendQuoted(p.out, name)
		} else {
			p.out = append(p.out, p.data[start-1:end+1]...)
		}
		p.out = append(p.out, ':')
	}
	at := len(p.names)
	p.names = append(p.names, m)
	p.space()
	if p.i == len(p.data) || p.data[p.i] != ':' {
		return p.unexpected("':'")
	}
	p.i++
	if err := p.value(); err != nil {
		return err
	}
	p.names[at].end = uint32(len(p.out))
	return nil
}

// reorder sorts the members whose text is p.out[body:].
func (p *parser) reorder(members []member, body int) {
	slices.SortFunc(members, func(a, b member) int { return p.byName(&a, &b) })
	p.scratch = append(p.scratch[:0], p.out[body:]...)
	p.out = p.out[:body]
	for k, m := range members {
		if k > 0 {
			p.out = append(p.out, ',')
		}
		p.out = append(p.out, p.scratch[int(m.start)-body:int(m.end)-body]...)
	}
}

// byName orders by UTF-16 units (RFC 8785 section 3.2.3). That is the order of the UTF-8 bytes, except that the surrogates of
// 4-byte characters come before U+E000 to U+FFFF, whose first byte is 0xEE or 0xEF.
func (p *parser) byName(a, b *member) int {
	x, y := p.name(a), p.name(b)
	for i := range min(len(x), len(y)) {
		if x[i] == y[i] {
			continue
		}
		if x[i] >= 0xee && y[i] >= 0xee && (x[i] >= 0xf0) != (y[i] >= 0xf0) {
			return cmp.Compare(y[i], x[i])
		}
		return cmp.Compare(x[i], y[i])
	}
	return cmp.Compare(len(x), len(y))
}

// duplicates finds names that are equal or differ only in case, in an object with many members.
func (p *parser) duplicates(members []member) *fault.Error {
	byHash := slices.Clone(members)
	slices.SortStableFunc(byHash, func(a, b member) int { return cmp.Compare(a.hash, b.hash) })
	for i := range byHash {
		// The hash is seeded: names of one hash that are not equal are too rare to be worth more than a loop.
		for j := i + 1; j < len(byHash) && byHash[j].hash == byHash[i].hash; j++ {
			if bytes.EqualFold(p.name(&byHash[i]), p.name(&byHash[j])) {
				return p.duplicate(&byHash[i], &byHash[j])
			}
		}
	}
	return nil
}

func (p *parser) duplicate(earlier, m *member) *fault.Error {
	was, is := p.name(earlier), p.name(m)
	if bytes.Equal(was, is) {
		return malformed(int(m.pos), "duplicate key %s", display.Quote(string(is), shownMost))
	}
	return malformed(int(m.pos), "duplicate key %s (differs from %s only in case)", display.Quote(string(is), shownMost), display.Quote(string(was), shownMost))
}

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// quoted reads a string from its opening quote and validates it. data[start:end] is what stands between the quotes.
func (p *parser) quoted() (start, end int, escaped bool, err *fault.Error) {
	data, i := p.data, p.i+1
	start = i
	for {
		// Eight bytes at a time up to the first quote, backslash, control character or byte of a longer character. A byte's high
		// bit in stop is exact up to and including the lowest one that is set.
		for i+8 <= len(data) {
			w := binary.LittleEndian.Uint64(data[i:])
			stop := (w | (w - 0x20*ones) | ((w ^ '"'*ones) - ones) | ((w ^ '\\'*ones) - ones)) & highs
			if stop != 0 {
				i += bits.TrailingZeros64(stop) / 8
				break
			}
			i += 8
		}
		if i >= len(data) {
			return 0, 0, false, malformed(p.i, "string is not closed, opened")
		}
		switch c := data[i]; {
		case c == '"':
			p.i = i + 1
			return start, i, escaped, nil
		case c == '\\':
			escaped = true
			n, err := escape(data, i)
			if err != nil {
				return 0, 0, false, err
			}
			i += n
		case c < 0x20:
			return 0, 0, false, malformed(i, "control character %s in a string (write it as an escape)", display.Quote(string(data[i:i+1]), shownMost))
		case c < utf8.RuneSelf:
			i++ // only near the end of data, where the loop above can't read
		default:
			r, size := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && size == 1 {
				return 0, 0, false, malformed(i, "invalid UTF-8")
			}
			i += size
			for i < len(data) && data[i] >= utf8.RuneSelf { // longer characters come in runs
				r, size := utf8.DecodeRune(data[i:])
				if r == utf8.RuneError && size == 1 {
					return 0, 0, false, malformed(i, "invalid UTF-8")
				}
				i += size
			}
		}
	}
}

// escape validates the escape at data[i] and returns its length; a surrogate pair is one escape of 12 bytes.
func escape(data []byte, i int) (int, *fault.Error) {
	if i+1 >= len(data) {
		return 0, malformed(i, "unexpected end of JSON in an escape")
	}
	switch data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
		r := hex4(data, i+2)
		switch {
		case r < 0:
			return 0, malformed(i, `\u needs four hex digits`)
		case !utf16.IsSurrogate(r):
			return 6, nil
		}
		if i+7 < len(data) && data[i+6] == '\\' && data[i+7] == 'u' && utf16.DecodeRune(r, hex4(data, i+8)) != unicode.ReplacementChar {
			return 12, nil
		}
		return 0, malformed(i, "lone surrogate")
	}
	return 0, malformed(i, "unknown escape %s", display.Quote(string(data[i:i+2]), shownMost))
}

// hex4 reads four hex digits at data[i], or returns -1.
func hex4(data []byte, i int) rune {
	if i+4 > len(data) {
		return -1
	}
	var r rune
	for _, c := range data[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendDecoded appends what stands between the quotes of a valid string, decoded.
func appendDecoded(dst, raw []byte) []byte {
	dst = slices.Grow(dst, len(raw)+8) // no escape is shorter than its character
	for i := 0; i < len(raw); {
		if i+8 <= len(raw) { // eight bytes at a time, of which those before a backslash count; see quoted
			w := binary.LittleEndian.Uint64(raw[i:])
			slash := w ^ '\\'*ones
			n := bits.TrailingZeros64((slash-ones)&^slash&highs) / 8 // 8 where there is none
			dst = binary.LittleEndian.AppendUint64(dst, w)
			dst = dst[:len(dst)-8+n]
			if i += n; n == 8 {
				continue
			}
		}
		if raw[i] != '\\' || i+1 == len(raw) {
			dst = append(dst, raw[i])
			i++
			continue
		}
		r, n := unescape(raw[i:])
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return dst
}

// decodeString is appendDecoded, as a string.
func decodeString(raw []byte) string {
	p := parsers.Get().(*parser)
	defer p.release()
	p.scratch = appendDecoded(p.scratch[:0], raw)
	return string(p.scratch)
}

// unescape is the character of the escape that raw begins with, and the bytes of the escape. Of half a pair it is U+FFFD, as encoding/json has it.
func unescape(raw []byte) (r rune, n int) {
	switch c := raw[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, n = hex4(raw, 2), min(6, len(raw))
		if utf16.IsSurrogate(r) {
			if pair := utf16.DecodeRune(r, hex4(raw, 8)); pair != unicode.ReplacementChar && bytes.HasPrefix(raw[n:], []byte(`\u`)) {
				return pair, 12
			}
		}
		return r, n
	default:
		return rune(c), 2
	}
}

// appendQuoted writes a decoded string the RFC 8785 way.
func appendQuoted(dst, s []byte) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range s {
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			if c < 0x20 {
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			} else {
				dst = append(dst, c)
			}
		}
	}
	return append(dst, '"')
}

func (p *parser) number() *fault.Error {
	data, start := p.data, p.i
	i := start
	if data[i] == '-' {
		i++
	}
	digits := func() int {
		from := i
		for i < len(data) && data[i]-'0' <= 9 {
			i++
		}
		return i - from
	}
	whole := i
	switch n := digits(); {
	case n == 0:
		return malformed(start, "number without digits")
	case n > 1 && data[whole] == '0':
		return malformed(start, "number with a leading zero")
	}
	integer, finite := true, i-whole <= 308
	if i < len(data) && data[i] == '.' {
		i++
		if integer = false; digits() == 0 {
			return malformed(start, "number without digits after the point")
		}
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		if integer, finite = false, false; digits() == 0 {
			return malformed(start, "number without digits in the exponent")
		}
	}
	p.i = i
	literal := data[start:i]
	if integer && finite { // by far the most
		if p.emit {
			if literal[0] == '-' && literal[1] == '0' {
				literal = literal[1:]
			}
			p.out = append(p.out, literal...)
		}
		return nil
	}
	if finite && !p.emit {
		return nil
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return malformed(start, "number outside the range of a double")
	}
	if p.emit && integer {
		p.out = append(p.out, literal...)
	} else if p.emit {
		p.out = appendNumber(p.out, f)
	}
	return nil
}

// appendNumber writes f as ECMAScript's Number.prototype.toString does.
func appendNumber(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0') // also -0
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// e-07 is written e-7
	if n := len(dst); dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// The seeds keep an attacker from choosing names of one hash, which would make large objects slow.
var hashSeed, hashKey = rand.Uint64(), rand.Uint64() | 1

// foldHash is equal for names that are equal under Unicode simple case folding.
func foldHash(name []byte) uint64 {
	h, ascii := hashLower(name)
	if ascii {
		return h
	}
	var buf [64]byte
	h, _ = hashLower(fold(buf[:0], name))
	return h
}

// hashLower hashes name with A-Z as a-z, and tells whether it is all ASCII.
func hashLower(name []byte) (h uint64, ascii bool) {
	h = hashSeed ^ uint64(len(name))
	var seen uint64
	for len(name) > 0 {
		var w uint64
		if len(name) >= 8 {
			w = binary.LittleEndian.Uint64(name)
			name = name[8:]
		} else {
			for k, c := range name {
				w |= uint64(c) << (8 * k)
			}
			name = nil
		}
		seen |= w
		// In all eight bytes at once: 0x80 in upper where an ASCII byte is at least 'A' and not over 'Z'.
		upper := ((w + (0x80-'A')*ones) ^ (w + (0x7f-'Z')*ones)) & highs
		h = mix(h ^ (w | upper>>2))
	}
	return mix(h), seen&highs == 0
}

func mix(x uint64) uint64 {
	hi, lo := bits.Mul64(x, hashKey)
	return hi ^ lo
}

// fold appends the representative of name's class under simple case folding: for each character the smallest of its orbit, and
// a-z for A-Z.
func fold(dst, name []byte) []byte {
	for len(name) > 0 {
		r, size := utf8.DecodeRune(name)
		name = name[size:]
		least := r
		for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
			least = min(least, o)
		}
		if 'A' <= least && least <= 'Z' {
			least |= 0x20
		}
		dst = utf8.AppendRune(dst, least)
	}
	return dst
}

// The functions below read JSON that is known to be valid, such as Check, Canonical and json.Valid accept, without parsing it again. On
// anything else they give a wrong answer or none, but don't panic. Of names that are there twice Members gives both, and Get the first.

// skipSpace returns the index of the first byte at or after i that is not white space.
func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// near is how many words of eight bytes are looked at one by one for the end of a string: most strings are short, or have many escapes.
const near = 4

// skipString returns the index after the string that opens at i.
func skipString(data []byte, i int) int {
	i++
next:
	for i < len(data) {
		for n := 0; n < near && i+8 <= len(data); n++ {
			w := binary.LittleEndian.Uint64(data[i:])
			quote, slash := w^'"'*ones, w^'\\'*ones
			stop := ((quote-ones)&^quote | (slash-ones)&^slash) & highs // exact up to and including the lowest one that is set
			if stop == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(stop) / 8
			if data[i] == '"' {
				return i + 1
			}
			i += 2
			continue next
		}
		quote := bytes.IndexByte(data[i:], '"')
		if quote < 0 {
			break
		}
		slashes := 0
		for slashes < quote && data[i+quote-1-slashes] == '\\' {
			slashes++
		}
		if i += quote + 1; slashes%2 == 0 {
			return i
		}
	}
	return len(data)
}

// skipValue returns the index after the value that starts at i.
func skipValue(data []byte, i int) int {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			i = skipString(data, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\n', '\t', '\r':
			i++
			continue
		default:
			for i < len(data) && !endsLiteral[data[i]] {
				i++
			}
		}
		if depth <= 0 {
			return i
		}
	}
	return i
}

// endsLiteral are the bytes before which a number, true, false or null ends.
var endsLiteral = [256]bool{',': true, ':': true, ']': true, '}': true, ' ': true, '\n': true, '\t': true, '\r': true}

// place is where one member stands in an object's text.
type place struct {
	name       []byte // undecoded, without quotes
	opens      int    // where its name does, with its quote
	start, end int    // of the value
}

// places walks the top-level members of an object. It stops quietly where data isn't an object.
func places(object []byte, yield func(place) bool) {
	i := skipSpace(object, 0)
	if i >= len(object) || object[i] != '{' {
		return
	}
	i = skipSpace(object, i+1)
	for i < len(object) && object[i] == '"' {
		end := skipString(object, i)
		if end-1 <= i {
			return
		}
		m := place{name: object[i+1 : end-1], opens: i}
		i = skipSpace(object, end)
		if i >= len(object) || object[i] != ':' {
			return
		}
		m.start = skipSpace(object, i+1)
		m.end = skipValue(object, m.start)
		if m.end <= m.start || !yield(m) {
			return
		}
		i = skipSpace(object, m.end)
		if i >= len(object) || object[i] != ',' {
			return
		}
		i = skipSpace(object, i+1)
	}
}

func (m place) is(name string) bool { return string(m.decoded()) == name }

func (m place) decoded() []byte {
	if bytes.IndexByte(m.name, '\\') < 0 {
		return m.name
	}
	return appendDecoded(nil, m.name)
}

// Members walks the top-level members of a checked object, names decoded, in the order of the text. The values are slices of
// object. What isn't an object has no members.
func Members(object []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		places(object, func(m place) bool {
			return yield(string(m.decoded()), object[m.start:m.end:m.end])
		})
	}
}

// Get returns a top-level member of a checked object, as a slice of it.
func Get(object []byte, name string) (json.RawMessage, bool) {
	var value json.RawMessage
	places(object, func(m place) bool {
		if m.is(name) {
			value = object[m.start:m.end:m.end]
			return false
		}
		return true
	})
	return value, value != nil
}

// Place returns where the value of a top-level member of a checked object begins, without looking for its end; -1 if there is none.
func Place(object []byte, name string) int {
	i := skipSpace(object, 0)
	if i >= len(object) || object[i] != '{' {
		return -1
	}
	for i = skipSpace(object, i+1); i < len(object) && object[i] == '"'; i = skipSpace(object, i+1) {
		end := skipString(object, i)
		m := place{name: object[i+1 : max(i+1, end-1)]}
		if i = skipSpace(object, end); i >= len(object) || object[i] != ':' {
			break
		}
		if i = skipSpace(object, i+1); m.is(name) {
			return i
		}
		if i = skipSpace(object, skipValue(object, i)); i >= len(object) || object[i] != ',' {
			break
		}
	}
	return -1
}

// OnlyText is the text that a checked object consists of: its only member.
func OnlyText(object []byte) (text string, ok bool) {
	name := skipSpace(object, skipSpace(object, 0)+1)
	if !IsObject(object) || name >= len(object) || object[name] != '"' {
		return "", false
	}
	value := skipSpace(object, skipSpace(object, skipString(object, name))+1) // behind the colon
	if value >= len(object) || object[value] != '"' {
		return "", false
	}
	end := skipString(object, value)
	if behind := skipSpace(object, end); behind >= len(object) || object[behind] != '}' {
		return "", false
	}
	return Text(object[value:end])
}

// Elements walks the elements of a checked array. The values are slices of array. What isn't an array has no elements.
func Elements(array []byte) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		i := skipSpace(array, 0)
		if i >= len(array) || array[i] != '[' {
			return
		}
		for {
			i = skipSpace(array, i+1)
			if i >= len(array) || array[i] == ']' {
				return
			}
			end := skipValue(array, i)
			if end <= i || !yield(array[i:end:end]) {
				return
			}
			if i = skipSpace(array, end); i >= len(array) || array[i] != ',' {
				return
			}
		}
	}
}

// Text decodes a checked JSON string; false if the value is none.
func Text(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	raw := value[1 : len(value)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), true
	}
	return decodeString(raw), true
}

// IsObject tells whether a checked value, as Get and Members give it, is an object.
func IsObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

// GetText is Text of a member; false if there is none.
func GetText(object []byte, name string) (string, bool) {
	value, _ := Get(object, name)
	return Text(value)
}

// SetMember returns a copy of a checked object with one top-level member replaced where it stands, or added at the end. The rest
// keeps its bytes, so an added member can leave canonical order. value must be checked JSON. It returns nil if object is no object.
func SetMember(object []byte, name string, value json.RawMessage) []byte {
	return setMember(object, name, value, false)
}

// SetSorted is SetMember, but adds a member before the first one whose name comes after its own: with a canonical value and a name of ASCII, a canonical
// object stays one.
func SetSorted(object []byte, name string, value json.RawMessage) []byte {
	return setMember(object, name, value, true)
}

func setMember(object []byte, name string, value json.RawMessage, sorted bool) []byte {
	open := skipSpace(object, 0)
	if open >= len(object) || object[open] != '{' {
		return nil
	}
	at, end, last, there := -1, -1, -1, false
	places(object, func(m place) bool {
		own := m.decoded()
		if there = string(own) == name; there {
			at, end = m.start, m.end
			return false
		}
		if sorted && at < 0 && string(own) > name {
			at = m.opens
		}
		last = m.end
		return true
	})
	out := make([]byte, 0, len(object)+len(name)+len(value)+8)
	if there {
		return append(append(append(out, object[:at]...), value...), object[end:]...)
	}
	before, after := "", ""
	switch {
	case at >= 0:
		after = ","
	case last >= 0:
		at, before = last, ","
	default:
		at = open + 1
	}
	out = append(append(out, object[:at]...), before...)
	out = append(append(appendQuoted(out, []byte(name)), ':'), value...)
	return append(append(out, after...), object[at:]...)
}

// Decode reads a JSON value into v as json.Unmarshal does, but for what follows the value, and for numbers: where v has no type for them
// they are json.Numbers, which keep their digits.
func Decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

// LongestPrefix finds the longest path of the map that is a path or a prefix of it. Paths are names joined by points.
func LongestPrefix[T any](paths map[string]T, path string) (longest string, value T, ok bool) {
	for {
		if value, ok = paths[path]; ok {
			return path, value, true
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return "", value, false
		}
		path = path[:i]
	}
}

// maxPath bounds the paths that Strings gives: deeper and longer ones stop growing, so that hostile names cost nothing.
const maxPath = 256

// Strings walks every string of checked JSON, decoded, in the order of the text, until yield returns false. Member names are
// strings too, since a model reads them like any other text. path says where, for people and patterns: "content[].text" for a
// value, "content[]{}" for a member name of that object, "" for a lone string; names in it are as they are, so it is not unique.
func Strings(data []byte, yield func(path string, s string) bool) {
	w := walker{data: data, yield: yield}
	w.value(0)
}

type walker struct {
	data  []byte
	path  []byte
	yield func(path, s string) bool
}

// text returns the decoded string at i and the index after it.
func (w *walker) text(i int) (string, int) {
	end := skipString(w.data, i)
	raw := w.data[min(i+1, end):max(end-1, min(i+1, end))]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), end
	}
	return decodeString(raw), end
}

func (w *walker) extend(s string) {
	if len(w.path)+len(s) <= maxPath {
		w.path = append(w.path, s...)
	}
}

// value walks one value and returns the index after it, or -1 to stop. Checked JSON bounds its recursion.
func (w *walker) value(i int) int {
	i = skipSpace(w.data, i)
	if i >= len(w.data) {
		return -1
	}
	switch w.data[i] {
	case '"':
		s, end := w.text(i)
		if !w.yield(string(w.path), s) {
			return -1
		}
		return end
	case '[', '{':
	default:
		return skipValue(w.data, i)
	}
	object := w.data[i] == '{'
	outer := len(w.path)
	defer func() { w.path = w.path[:outer] }()
	if !object {
		w.extend("[]")
	}
	var names string // path of this object's member names
	for {
		i = skipSpace(w.data, i+1)
		if i >= len(w.data) {
			return -1
		}
		if c := w.data[i]; c == ']' || c == '}' {
			return i + 1
		}
		if object {
			if w.data[i] != '"' {
				return -1
			}
			if names == "" {
				names = string(w.path) + "{}"
			}
			name, end := w.text(i)
			if !w.yield(names, name) {
				return -1
			}
			i = skipSpace(w.data, end)
			if i >= len(w.data) || w.data[i] != ':' {
				return -1
			}
			w.path = w.path[:outer]
			if outer > 0 {
				w.extend(".")
			}
			w.extend(name)
			i++
		}
		if i = w.value(i); i < 0 {
			return -1
		}
		if i = skipSpace(w.data, i); i >= len(w.data) {
			return -1
		}
		if c := w.data[i]; c == ']' || c == '}' {
			return i + 1
		} else if c != ',' {
			return -1
		}
	}
}
