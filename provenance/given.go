package provenance

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/call"
)

// An agent under an outsider's influence could give a value to one call and have it confirmed by what the next one returns. So what a session gave
// away while it was untrusted is no evidence in results that come after. A session gives away all arguments of all calls, of reads too.

// Bounds of what one session gave away.
const (
	maxGivenAway = 1 << 18 // bytes that are kept of one session: beyond it, no later result confirms anything
	maxSelected  = 200     // records that one call selects
	pieceLetters = 8       // a text of so many letters counts as given in pieces, too
	minDigits    = 6       // so many digits inside a word are a number, too
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
	Makes   bool     `json:"makes,omitempty"`   // its labels say that it makes a new record, and changes no other
	IDs     []string `json:"ids,omitempty"`     // of the records that it selects
	By      []string `json:"by,omitempty"`      // other values by which it may select records
	Reaches bool     `json:"reaches,omitempty"` // it has nothing but such values: it names records of its kind at most
	Mixed   bool     `json:"mixed,omitempty"`   // the records may be of another kind on the server, too
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
	seen, hosts := map[string]bool{"": true}, map[string]bool{}
	givenTexts(p, v, "", func(text string) {
		if seen[text] {
			return
		}
		seen[text], g.Values = true, append(g.Values, text)
		known := func(s string, f form) {
			if pieced(f.kind) && (c.Request.has(f) || isOneOf(c.Own, f)) {
				g.Known = append(g.Known, s)
			}
		}
		f, _ := formOf(text)
		known(text, f)
		for token, f := range tokens(text) {
			known(token, f)
		}
		for host := range hostsIn(text, func(string) bool { return true }) {
			if !hosts[host] && c.knowsHost(host) {
				g.Hosts = append(g.Hosts, host)
			}
			hosts[host] = true
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

// read finds what a write selects. Any value may select a record, unless the labels say that the call makes a new one, or that it keeps nothing of what
// it is given.
func (w *wrote) read(p *Profile, args any) {
	w.Makes = p.makes(args)
	selectors := map[string]bool{} // by their labels
	w.Reaches = true
	add := func(list *[]string, s string) {
		if len(w.IDs)+len(w.By) == maxSelected {
			w.Any = true
			return
		}
		*list = append(*list, s)
	}
	given := func(path, s string) {
		if w.Makes {
			return
		}
		label, role, labelled := call.LongestPrefix(p.argRoles(), path)
		switch {
		case !p.HasRoles():
			add(&w.IDs, s)
			w.Mixed = true
		case !labelled:
			add(&w.By, s)
			w.Mixed, w.Reaches = true, false // it may be the id of something else
		case role == Selector:
			add(&w.IDs, s)
			selectors[label] = true
		case role == Code || role == Table: // an expression can change what it does not name
			w.Any = true
		case p.Forgets && !role.picks() || role == Flag || role == Currency:
		default:
			add(&w.By, s)
			w.Reaches = w.Reaches && !role.picks()
		}
	}
	leaves(args, "", func(path string, value any) {
		if s, ok := scalar(value); ok {
			given(path, s)
		}
	})
	memberNames(p, args, "", given)
	w.Mixed = w.Mixed || len(selectors) > 1
	w.Any = w.Any || !w.Makes && !p.Forgets && len(w.IDs)+len(w.By) == 0
	w.Selects = w.Any || len(w.IDs)+len(w.By) > 0
	w.Reaches = w.Reaches && w.Selects && !w.Any && len(w.IDs) == 0
}

// memberNames calls f with every name of a member that no label mentions, as in {"ids": {"m-7": …}}, and with the path at which it stands.
func memberNames(p *Profile, v any, path string, f func(path, name string)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			memberNames(p, e, path, f)
		}
	case object:
		for _, m := range v {
			inner := joinPath(path, m.name)
			if path != "" && !p.labelStartsWith(inner) {
				f(path, m.name)
			}
			memberNames(p, m.value, inner, f)
		}
	}
}

// picks reports whether a value of the role says which existing thing is meant, whatever else the labels say.
func (r Role) picks() bool {
	return r == Selector || r == Target || r == Path || r == Code || r == Table
}

// makes reports whether labels say that a write with these arguments makes a new record and changes no other: its results have the id that the system
// sets, every argument has a label, and none can pick a record that is there.
func (p *Profile) makes(args any) bool {
	id := func(name string) bool { return idField(name, p.IDKind) }
	if !p.HasRoles() || p.Output != TrustedOutput && !(p.Output == TypedOutput && p.Shape != nil) && !slices.ContainsFunc(p.TrustedFields, id) {
		return false
	}
	ok := true
	leaves(args, "", func(path string, _ any) {
		role, labelled := p.labelledRole(path)
		ok = ok && labelled && !role.picks() && role != Query && role != URL && role != Identity && role != Credential
	})
	return ok
}

// argRoles are the roles of the arguments; none of a profile that is not there.
func (p *Profile) argRoles() map[string]Role {
	if p == nil {
		return nil
	}
	return p.Args
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

	begun    bool // something was given
	earliest int  // what was given first

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
	return k != nil && pieced(f.kind) && (k.forms[f] || slices.ContainsFunc(k.read.values.of(f), func(sp occurrence) bool { return sp.class != classFree }))
}

func (k *known) hasHost(host string) bool { return k != nil && k.hosts[host] }

// add adds an argument, or the name of a member.
func (g *given) add(value string, at int, known *known) {
	if !g.has(value) {
		g.addRead(readText(value), at, known)
	}
}

// has tells whether adding an argument would change nothing.
func (g *given) has(value string) bool { return g.full || g.raw[value] }

// addRead is add for a text that has been read.
func (g *given) addRead(value *givenRead, at int, known *known) {
	if g.has(value.text) {
		return
	}
	g.begin(at)
	if g.raw == nil {
		g.raw, g.whole, g.values, g.words, g.hosts, g.edges = map[string]bool{}, map[form]int{}, map[form]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	}
	if g.size += len(value.text); g.size > maxGivenAway || !value.ok {
		g.fill(at)
		return
	}
	g.raw[value.text] = true
	for i := range value.parts {
		g.addPart(&value.parts[i], at, known)
	}
	for _, t := range value.texts {
		t.at = at
		g.texts = append(g.texts, t)
	}
}

// givenRead is an argument as it is compared. It is read once, for every set that it is added to.
type givenRead struct {
	text     string
	readings []string
	ok       bool // these are all readings
	parts    []givenPart
	texts    []givenText
}

// givenPart is a part of a reading that was an argument of its own, perhaps.
type givenPart struct {
	whole  form   // formless: it has no form
	values []form // its lines and parts, and the addresses, links, numbers and accounts in it
	chunks []givenChunk
	words  []string
}

// givenChunk is what stands between two separators of tokens.
type givenChunk struct {
	form  form // formless: a text, or none
	hosts []string
	words int // the words of the part up to its end
}

// readText reads an argument, or the name of a member.
func readText(value string) *givenRead {
	r := &givenRead{text: value}
	if r.readings, r.ok = readings(value); !r.ok || len(value) > maxGivenAway {
		return r // everything counts as given with it
	}
	for _, reading := range r.readings {
		var words []string
		for part := range strings.SplitSeq(reading, decodedMark) {
			p := readPart(part)
			r.parts, words = append(r.parts, p), append(words, p.words...)
		}
		if len(words) > 0 {
			r.texts = append(r.texts, givenText{words: " " + strings.Join(words, " ") + " ", bare: strings.Join(words, "")})
		}
	}
	return r
}

func readPart(part string) (p givenPart) {
	if f, ok := formOf(part); ok {
		p.whole = f
	}
	for one := range segments(part) {
		if f, ok := formOf(one); ok {
			p.values = append(p.values, f)
		}
	}
	if hasDigit(part) {
		p.values = appendNumbers(p.values, part)
	}
	p.words, p.chunks = make([]string, 0, len(part)/6+1), make([]givenChunk, 0, len(part)/6+1)
	isMail := func(address string) bool { f, ok := formOf(address); return ok && f.kind == mail }
	for chunk := range strings.FieldsFuncSeq(part, betweenTokens) {
		var c givenChunk
		if f, ok := tokenForm(strings.Trim(chunk, aroundTokens)); ok {
			c.form = f
		}
		c.hosts = slices.AppendSeq(c.hosts, hostsIn(chunk, isMail))
		p.words = slices.AppendSeq(p.words, wordsIn(chunk))
		c.words = len(p.words)
		p.chunks = append(p.chunks, c)
	}
	return p
}

// appendNumbers adds the amounts in a text, and the numbers inside its words.
func appendNumbers(values []form, part string) []form {
	for s := range strings.FieldsSeq(part) {
		if !hasDigit(s) {
			continue
		}
		if n, ok := amountOf(strings.TrimFunc(s, besideAmount)); ok {
			values = append(values, form{number, n})
		}
	}
	inside := strings.TrimFunc(part, func(r rune) bool { return unicode.IsSpace(r) || besideAmount(r) })
	if !strings.ContainsFunc(inside, func(r rune) bool { return !unicode.IsSpace(r) && !strings.ContainsRune(digits+".,-+eE$€£¥₹", r) }) { // 4 000 EUR
		if n, ok := amountOf(strings.Join(strings.Fields(inside), "")); ok {
			values = append(values, form{number, n})
		}
	}
	for run := range strings.FieldsFuncSeq(part, func(r rune) bool { return r < '0' || r > '9' && r != '_' }) { // chat-884422, 0884422, 884_422
		run = strings.TrimLeft(strings.ReplaceAll(run, "_", ""), "0")
		if len(run) >= minDigits && len(run) <= maxDigits {
			values = append(values, form{number, run})
		}
	}
	return values
}

// besideAmount reports whether a character may stand around an amount: a mark, or a letter of a currency.
func besideAmount(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r < utf8.RuneSelf && strings.IndexByte(".:;!?()[]\"'", byte(r)) >= 0
}

// addPart adds one text but for its place in g.texts.
func (g *given) addPart(p *givenPart, at int, known *known) {
	whole := false
	if p.whole.kind != formless {
		first(g.whole, p.whole, at)
		first(g.values, p.whole, at)
		whole = known.has(p.whole)
	}
	for _, f := range p.values {
		first(g.values, f, at)
	}
	ownFrom, ownTo := -1, -1 // the first and the last word, if they are no piece of what was known
	from := 0
	for _, c := range p.chunks {
		own := !whole
		if c.form.kind != formless {
			first(g.values, c.form, at)
			own = own && !known.has(c.form)
		}
		if own {
			for _, host := range c.hosts {
				if !known.hasHost(host) {
					first(g.hosts, host, at)
				}
			}
			for _, word := range p.words[from:c.words] {
				first(g.words, word, at)
			}
			if c.words > from {
				if from == 0 {
					ownFrom = 0
				}
				ownTo = c.words - 1
			}
		}
		from = c.words
	}
	for _, i := range []int{ownFrom, ownTo} {
		if i == 0 || i > 0 && i == len(p.words)-1 {
			first(g.edges, p.words[i], at)
			g.last = min(max(g.last, len(p.words[i])), maxPiece)
		}
	}
}

// fill lets everything count as given from a record on.
func (g *given) fill(at int) {
	g.begin(at)
	if !g.full {
		g.full, g.from = true, at
	}
}

// begin notes that something is given.
func (g *given) begin(at int) {
	if !g.begun || at < g.earliest {
		g.begun, g.earliest = true, at
	}
}

func (g *given) empty() bool { return !g.begun && !g.full }

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
func (g *given) since(value string, letters int) int { return g.sinceOr(value, letters, -1) }

// by tells whether since is the record or one before it. It looks no further than it must: a record that was read before anything was given repeats nothing
// that can be read, and what was given word for word is found long before its pieces are.
func (g *given) by(record int, value string, letters int) bool {
	if !g.begun || record >= g.earliest {
		return g.sinceOr(value, letters, record) <= record
	}
	if len(value) > maxValue {
		return false
	}
	_, ok := readings(strings.TrimSpace(value))
	return !ok
}

// sinceOr is since, or any record up to enough that is not before it.
func (g *given) sinceOr(value string, letters, enough int) int {
	at := g.hiddenSince(value, false)
	if g.full {
		at = min(at, g.from)
	}
	if at <= enough || g.empty() || len(value) > maxValue {
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
		if at = min(at, g.at(f)); at <= enough {
			return at
		}
		if _, digits := f.regrouped(); f.kind == number && !(digits && len(f.value) >= 8) { // with as many digits it may be an account
			continue
		}
		switch f.kind {
		case mail, link:
			at = min(at, g.hostSince(hostOf(f)))
		case text:
			for host := range hostsIn(f.value, func(string) bool { return false }) {
				at = min(at, g.hostSince(host))
			}
		}
		if f.kind == text {
			for _, t := range tokens(f.value) {
				if pieced(t.kind) {
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
		at = min(at, g.hashed(hiddenBare+bare), g.textWith(func(t *givenText) bool { return strings.Contains(t.bare, bare) }))
		pieces := 0
		for _, word := range words {
			pieces = max(pieces, g.spelled(word))
		}
		at = min(at, pieces)
	}
	return at
}

// hostSince is when the host was given, or one above it.
func (g *given) hostSince(host string) int {
	at := never
	for ; host != ""; _, host, _ = strings.Cut(host, ".") {
		if was, ok := g.hosts[host]; ok {
			at = min(at, was)
		}
	}
	return at
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
	at = min(at, g.hashed(hiddenWord+word))
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
				was := g.hashed(hiddenEdge + piece)
				if plain, ok := g.edges[piece]; ok {
					was = min(was, plain)
				}
				if was != never {
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
