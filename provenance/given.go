package provenance

import (
	"cmp"
	"encoding/base64"
	"html"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// An agent under an outsider's influence could give a value to one call and have it confirmed by what the next one returns. So what a session gave
// away while it was untrusted is no evidence in results that come after. A session gives away all arguments of all calls, of reads too.

// Bounds of what one session gave away.
const (
	maxGivenAway = 1 << 18 // bytes that are kept of one session: beyond it, no later result confirms anything
	maxLayers    = 8       // encodings of one text, one in the other
	maxSelected  = 200     // records that one call selects
	pieceLetters = 8       // a text of so many letters counts as given in pieces, too
	maxPiece     = 64      // bytes of a word of which others can be put together
	maxMissing   = 2       // digits of a long word that was given in pieces
)

// never is later than any record.
const never = math.MaxInt

// GivenCall is a call of an untrusted session, as GivenAway reads it.
type GivenCall struct {
	Operation string
	CallID    string
	Profile   *Profile // nil: nothing is known about the operation
	Arguments []byte   // JSON; what can't be read may have been anything
	Writes    bool     // the call may change something
	Request   *Request // the person's request; nil: unknown
	Own       []string // the person's own addresses and accounts
}

// givenAway holds what a call gave away.
type givenAway struct {
	Values []string `json:"values,omitempty"` // the arguments, and the names of members in them
	Known  []string `json:"known,omitempty"`  // of the addresses, links and accounts in them, those of the person or the request
	Hosts  []string `json:"hosts,omitempty"`  // of the hosts in them, those of such addresses and links
	All    bool     `json:"all,omitempty"`    // the call gave away more than is kept: it may have been anything
	Wrote  *wrote   `json:"wrote,omitempty"`  // nil: the call changed nothing
	Hashes []string `json:"hashes,omitempty"` // of the pieces of arguments in which a secret stands: they are not in Values
	Text   string   `json:"text,omitempty"`   // what an earlier version kept in place of the values
}

// wrote says what a call may have changed.
type wrote struct {
	Kind    string   `json:"kind,omitempty"`    // IDKind of the operation
	Selects bool     `json:"selects,omitempty"` // it may have changed a record that was there before
	IDs     []string `json:"ids,omitempty"`     // of these records
	Any     bool     `json:"any,omitempty"`     // it may have changed any of them
}

// GivenAway is the observation that a call in an untrusted session leaves: what it was given, and what it may change. It has to be added before
// the call runs, whatever its outcome. Its GivenAway is nil if there is nothing to keep.
func GivenAway(c GivenCall) Observation {
	g := &givenAway{}
	s := Observation{Operation: c.Operation, CallID: c.CallID, GivenAway: g}
	p := cmp.Or(c.Profile, &Profile{})
	if c.Writes {
		g.Wrote = &wrote{Kind: clipField(p.IDKind)}
	}
	v, err := decode(c.Arguments)
	if err != nil || len(c.Arguments) > maxGivenAway {
		if g.All = true; c.Writes {
			g.Wrote.Selects, g.Wrote.Any = true, true
		}
		return s
	}
	seen := map[string]bool{"": true}
	givenTexts(p, v, "", func(text string) {
		if seen[text] {
			return
		}
		seen[text], g.Values = true, append(g.Values, text)
		known := func(s string) {
			switch f, ok := formOf(s); {
			case !ok || !pieced(f.kind):
			case c.Request.has(f) || isOneOf(c.Own, f):
				g.Known = append(g.Known, s)
			case f.kind == link && c.knowsHost(hostOf(f)):
				g.Hosts = append(g.Hosts, hostOf(f))
			}
		}
		known(text)
		for token := range tokens(text) {
			known(token)
		}
	})
	if c.Writes {
		g.Wrote.read(p, v)
	}
	if !c.Writes && len(g.Values) == 0 {
		s.GivenAway = nil
	}
	return s
}

// knowsHost reports whether an address or a link of the request, or an address of the person's own, is at the host.
func (c *GivenCall) knowsHost(host string) bool {
	at := func(f form) bool { return (f.kind == mail || f.kind == link) && hostOf(f) == host }
	if slices.ContainsFunc(c.Own, func(own string) bool { f, ok := formOf(own); return ok && at(f) }) {
		return true
	}
	return c.Request != nil && slices.ContainsFunc(slices.Collect(maps.Keys(c.Request.forms)), at)
}

// read finds what a write selects. An argument that no label mentions may select a record, and so may every one of an operation without roles.
func (w *wrote) read(p *Profile, args any) {
	w.Selects = !p.HasRoles()
	selectID := func(s string) {
		if len(w.IDs) == maxSelected {
			w.Any = true
			return
		}
		w.IDs = append(w.IDs, s)
	}
	leaves(args, "", func(path string, value any) {
		s, ok := scalar(value)
		if !ok {
			return
		}
		switch role := p.RoleOf(path); {
		case !p.HasRoles():
			selectID(s)
		case role == Selector:
			w.Selects = true
			selectID(s)
		case role == Code || role == Table: // an expression can change what it does not name
			w.Selects, w.Any = true, true
		case role == Target || role == Path:
			w.Selects = true
		}
	})
	w.Any = w.Any || !p.HasRoles() && len(w.IDs) == 0
}

// selectsRecord reports whether a write with these arguments may change a record that was there before.
func selectsRecord(p *Profile, args any) bool {
	var w wrote
	w.read(p, args)
	return w.Selects
}

// givenTexts calls f with every string and number of v, and with every name of a member that no label mentions: it may be the agent's word.
func givenTexts(p *Profile, v any, path string, f func(text string)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			givenTexts(p, e, path, f)
		}
	case object:
		for _, m := range v {
			inner := joinPath(path, m.name)
			if !p.labelStartsWith(inner) {
				f(m.name)
			}
			givenTexts(p, m.value, inner, f)
		}
	default:
		if s, ok := scalar(v); ok {
			f(s)
		}
	}
}

// pieced reports whether values of the kind count as given in pieces, too.
func pieced(k kind) bool { return k == mail || k == link || k == account }

// isOneOf reports whether a value is one of a person's addresses and accounts.
func isOneOf(own []string, f form) bool {
	other, _ := f.regrouped()
	return slices.ContainsFunc(own, func(one string) bool { o, ok := formOf(one); return ok && (o == f || o == other) })
}

// given is a set of what calls were given. Each value is there with the number of records that had been read when it was given: a record with a
// smaller index did not repeat it. The zero set is empty.
type given struct {
	raw    map[string]bool
	whole  map[form]int   // whole arguments
	values map[form]int   // the same, their lines and parts, and the addresses, links, numbers and accounts in them
	words  map[string]int // their words, but for those of addresses, links and accounts that were known
	hosts  map[string]int // hosts that were given by themselves or in links, but for known ones
	edges  map[string]int // of these, the first and the last one of an argument: what tools join can run on there
	texts  []givenText
	size   int
	last   int  // the longest edge, in bytes
	full   bool // from record "from" on, everything counts as given
	from   int

	hashes map[string]int            // pieces of what was given and hidden
	hash   func(value string) string // of a piece
}

// givenText is one argument, in one of its readings.
type givenText struct {
	words string // in lower case, with one space around each
	bare  string // the same without the spaces
	at    int
}

// first notes when something was given first.
func first[K comparable](in map[K]int, key K, at int) {
	if _, seen := in[key]; !seen {
		in[key] = at
	}
}

// known are the addresses, links, accounts and hosts in the arguments of a call that the session did not make up. Their pieces are not given with
// them, or the second colleague at one host would count as given in pieces. nil knows none.
type known struct {
	forms map[form]bool
	hosts map[string]bool
	read  *Evidence // what it has in a field that the operator named
}

func (k *known) has(f form) bool {
	return k != nil && pieced(f.kind) && (k.forms[f] || slices.ContainsFunc(k.read.values[f], func(sp occurrence) bool { return sp.class != classFree }))
}

func (k *known) hasHost(host string) bool { return k != nil && k.hosts[host] }

// add adds an argument, or the name of a member.
func (g *given) add(value string, at int, known *known) {
	if g.full || g.raw[value] {
		return
	}
	if g.raw == nil {
		g.raw, g.whole, g.values, g.words, g.hosts, g.edges = map[string]bool{}, map[form]int{}, map[form]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	}
	all, ok := readings(value)
	if g.size += len(value); g.size > maxGivenAway || !ok {
		g.fill(at)
		return
	}
	g.raw[value] = true
	for _, reading := range all {
		var words []string
		for part := range strings.SplitSeq(reading, decodedMark) {
			words = append(words, g.addPart(part, at, known)...)
		}
		if len(words) > 0 {
			g.texts = append(g.texts, givenText{" " + strings.Join(words, " ") + " ", strings.Join(words, ""), at})
		}
	}
}

// addPart adds one text but for its place in g.texts, and returns its words.
func (g *given) addPart(part string, at int, known *known) (words []string) {
	whole := false
	if f, ok := formOf(part); ok {
		first(g.whole, f, at)
		first(g.values, f, at)
		whole = known.has(f)
	}
	for one := range segments(part) {
		if f, ok := formOf(one); ok {
			first(g.values, f, at)
		}
	}
	for _, s := range append(strings.Fields(part), strings.Join(strings.Fields(part), "")) { // 4,000 EUR
		if n, ok := amountOf(strings.Trim(s, ".:;!?()[]\"'"+lower+upper)); ok {
			first(g.values, form{number, n}, at)
		}
	}
	ownFrom, ownTo := -1, -1 // the first and the last word, if they are no piece of what was known
	for chunk := range strings.FieldsFuncSeq(part, betweenTokens) {
		own := !whole
		if f, ok := formOf(strings.Trim(chunk, aroundTokens)); ok && f.kind != text {
			first(g.values, f, at)
			own = own && !known.has(f)
			if f.kind == link && own && !known.hasHost(hostOf(f)) {
				first(g.hosts, hostOf(f), at)
			}
		}
		for word := range wordsIn(chunk) {
			if own {
				first(g.words, word, at)
				if len(words) == 0 {
					ownFrom = 0
				}
				ownTo = len(words)
			}
			words = append(words, word)
		}
	}
	for _, i := range []int{ownFrom, ownTo} {
		if i == 0 || i > 0 && i == len(words)-1 {
			first(g.edges, words[i], at)
			g.last = min(max(g.last, len(words[i])), maxPiece)
		}
	}
	return words
}

// fill lets everything count as given from a record on.
func (g *given) fill(at int) {
	if !g.full {
		g.full, g.from = true, at
	}
}

// empty reports whether nothing was given.
func (g *given) empty() bool { return len(g.whole) == 0 && len(g.hashes) == 0 && !g.full }

// since is the index of the first record that may repeat the value, because a call had been given it by then; never if none had. A value was given
// if this holds for one of its readings and one of an argument's (see readings):
//
//   - it is the argument, a line or part of it, or an address, link, number or account in it;
//   - an address, link or account that was given is part of it, as in "Ann <eve@x.example>";
//   - it is an address or a link at a host that was given by itself or in a link, or below such a host;
//   - it is a text, and its words stand in the argument, one behind the other;
//   - it is an address, a link, an account or a text of at least letters letters, and its letters and digits stand in the argument, one behind the
//     other, or each of its words was given to some call, or can be put together of the first and last words of arguments.
//
// So numbers, dates, amounts and short texts count as a whole alone. For ids, see sinceID.
func (g *given) since(value string, letters int) int {
	at := g.hiddenSince(value, false)
	if g.full {
		at = min(at, g.from)
	}
	if len(g.whole) == 0 || len(value) > maxValue {
		return at
	}
	all, ok := readings(strings.TrimSpace(value))
	if !ok {
		return 0
	}
	for _, reading := range all {
		f, ok := formOf(strings.ReplaceAll(reading, decodedMark, ""))
		if !ok {
			continue
		}
		at = min(at, g.at(f))
		if _, digits := f.regrouped(); f.kind == number && !(digits && len(f.value) >= 8) { // with as many digits it may be an account
			continue
		}
		if f.kind == mail || f.kind == link {
			for host := hostOf(f); strings.Contains(host, "."); _, host, _ = strings.Cut(host, ".") {
				if was, ok := g.hosts[host]; ok {
					at = min(at, was)
				}
			}
		}
		if f.kind == text {
			for token := range tokens(f.value) {
				if t, _ := formOf(token); pieced(t.kind) {
					at = min(at, g.at(t))
				}
			}
		}
		words := slices.Collect(wordsIn(f.value))
		if len(words) == 0 {
			continue
		}
		if f.kind == text {
			phrase := " " + strings.Join(words, " ") + " "
			at = min(at, g.textWith(func(t *givenText) bool { return strings.Contains(t.words, phrase) }))
		}
		if f.kind == text && countLetters(f.value) < letters {
			continue
		}
		bare := strings.Join(words, "")
		at = min(at, g.textWith(func(t *givenText) bool { return strings.Contains(t.bare, bare) }))
		pieces := 0
		for _, word := range words {
			pieces = max(pieces, g.spelled(word))
		}
		at = min(at, pieces)
	}
	return at
}

// hostOf is the host of an address or a link.
func hostOf(f form) string {
	host := f.value[strings.LastIndexByte(f.value, '@')+1:]
	if f.kind == link {
		host = f.value
		if _, rest, ok := strings.Cut(host, "://"); ok {
			host = rest
		}
	}
	if i := strings.IndexAny(host, ":/?#"); i >= 0 {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}

// sinceID is like since, for an id that a system set: it was given only if an argument was that id.
func (g *given) sinceID(id string) int {
	at := g.hiddenSince(id, true)
	if g.full {
		at = min(at, g.from)
	}
	all, ok := readings(id)
	if !ok {
		return 0
	}
	for _, reading := range all {
		if f, ok := formOf(strings.ReplaceAll(reading, decodedMark, "")); ok {
			for _, f := range f.bothForms() {
				if was, ok := g.whole[f]; ok {
					at = min(at, was)
				}
			}
		}
	}
	return at
}

// at is since for a form that is compared whole.
func (g *given) at(f form) int {
	at := never
	for _, f := range f.bothForms() {
		if was, ok := g.values[f]; ok {
			at = min(at, was)
		}
	}
	return at
}

// bothForms are the form and, of the digits of an account or telephone number, the other one.
func (f form) bothForms() []form {
	if other, ok := f.regrouped(); ok {
		return []form{f, other}
	}
	return []form{f}
}

// textWith is when the first argument with the property was given.
func (g *given) textWith(has func(*givenText) bool) int {
	for i := range g.texts { // in the order in which they came
		if has(&g.texts[i]) {
			return g.texts[i].at
		}
	}
	return never
}

// spelled is when the word was given, or the last of the edges of which it can be put together. Of a long word, as accounts have them, a few digits may
// be missing: single digits are given all the time, so no piece is one digit.
func (g *given) spelled(word string) int {
	at, ok := g.words[word]
	if !ok {
		at = never
	}
	missing := 0
	if len(word) >= 8 {
		missing = maxMissing
	}
	var before []int // the same with one digit missing less
	for range missing + 1 {
		last := make([]int, len(word)+1) // of the word's first bytes
		for end := 1; end <= len(word); end++ {
			last[end] = never
			if digit := word[end-1] >= '0' && word[end-1] <= '9'; digit && before != nil {
				last[end] = before[end-1]
			}
			for from := max(0, end-g.last); from < end; from++ {
				piece := word[from:end]
				if last[from] == never || len(piece) == 1 && hasDigit(piece) {
					continue
				}
				if was, ok := g.edges[piece]; ok {
					last[end] = min(last[end], max(last[from], was))
				}
			}
		}
		at, before = min(at, last[len(word)]), last
	}
	return at
}

// wordsIn yields the runs of letters and digits of a text, in lower case.
func wordsIn(s string) func(yield func(string) bool) {
	return strings.FieldsFuncSeq(strings.ToLower(s), func(r rune) bool { return !inWord(r) })
}

func countLetters(s string) int {
	n := 0
	for _, r := range s {
		if unicode.IsLetter(r) {
			n++
		}
	}
	return n
}

// readings are the ways in which a text is compared: as it stands; with every encoding resolved that a program may resolve (the compatibility form of
// Unicode, percent codes, entities, escapes), again and again until nothing changes; and after each layer of base64. A program that resolves some of them
// gives what has the same readings in the end. ok is false if there are too many encodings, one in the other.
func readings(s string) (all []string, ok bool) {
	all = []string{s}
	for range maxLayers {
		plain := s
		for range maxLayers {
			r := unescaped(html.UnescapeString(percentDecoded(compatible(plain))))
			if r == plain {
				ok = true
				break
			}
			plain = r
		}
		if !ok {
			return all, false
		}
		if plain != s {
			all = append(all, plain)
		}
		if s = base64Decoded(plain); s == plain {
			return all, true
		}
		all, ok = append(all, s), false
	}
	return all, false
}

// compatible is a text in the compatibility form of Unicode, as a reader sees it.
func compatible(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf || r < ' ' }) < 0 {
		return s
	}
	return visibleText(norm.NFKC.String(visibleText(s)))
}

// percentCodes are those of addresses, and those of mails (quoted-printable).
var percentCodes = regexp.MustCompile(`(?:%[0-9A-Fa-f]{2})+|(?:=[0-9A-F]{2})+`)

func percentDecoded(s string) string {
	if !strings.ContainsAny(s, "%=") {
		return s
	}
	return percentCodes.ReplaceAllStringFunc(s, func(codes string) string {
		r, err := url.PathUnescape(strings.ReplaceAll(codes, "=", "%"))
		if err != nil || !utf8.ValidString(r) {
			return codes
		}
		return r
	})
}

// escapeCodes are the escapes of JSON, JavaScript, Python and C.
var escapeCodes = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?:u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[0-7]{3}|.)`)

func unescaped(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return escapeCodes.ReplaceAllStringFunc(s, func(escape string) string {
		if len(escape) == len(`\ud835\udc28`) { // the halves of one character
			high, _ := strconv.ParseUint(escape[2:6], 16, 16)
			low, _ := strconv.ParseUint(escape[8:], 16, 16)
			return string(utf16.DecodeRune(rune(high), rune(low)))
		}
		code, base := strings.Trim(escape[1:], "uUx{}"), 16
		if escape[1] >= '0' && escape[1] <= '7' {
			base = 8
		}
		if n, err := strconv.ParseUint(code, base, 32); err == nil && len(escape) > 2 {
			return string(rune(n))
		}
		switch escape[1] {
		case 'n', 'r', 't':
			return " "
		}
		return escape[1:]
	})
}

// decodedMark stands around what was base64: it was an argument of its own, perhaps.
const decodedMark = "\x1e"

// minBase64 is the length of base64 that is found inside a text: a shorter word may look like it by chance.
const minBase64 = 8

// base64Decoded is a text with everything in it that is base64 of a text decoded: in one piece, or in lines.
func base64Decoded(s string) string {
	if b, ok := base64Text(strings.Join(strings.Fields(strings.ReplaceAll(s, decodedMark, "")), "")); ok {
		return b
	}
	var b strings.Builder
	done := 0
	for at := 0; at < len(s); {
		end := at
		for end < len(s) && isBase64(s[end]) {
			end++
		}
		if end-at >= minBase64 {
			if text, ok := base64Text(s[at:end]); ok {
				b.WriteString(s[done:at] + " " + decodedMark + " " + text + " " + decodedMark + " ")
				done, at = end, end
				continue
			}
			if i := strings.IndexAny(s[at:end], "/-_+"); i >= 0 { // the end of a path, perhaps
				at += i + 1
				continue
			}
		}
		at = end + 1
	}
	if done == 0 {
		return s
	}
	return b.String() + s[done:]
}

func isBase64(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '+' || c == '/' || c == '-' || c == '_'
}

// base64Text decodes base64, also that for addresses, of a text.
func base64Text(s string) (string, bool) {
	if s = strings.TrimRight(s, "="); len(s) < 2 || len(s)%4 == 1 || strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf || !isBase64(byte(r)) }) >= 0 {
		return "", false
	}
	b, err := base64.RawStdEncoding.DecodeString(urlBase64.Replace(s))
	if err != nil || !utf8.Valid(b) || strings.TrimSpace(string(b)) == "" || strings.ContainsFunc(string(b), func(r rune) bool { return !unicode.IsGraphic(r) && !unicode.IsSpace(r) }) {
		return "", false
	}
	return string(b), true
}

var urlBase64 = strings.NewReplacer("-", "+", "_", "/")
