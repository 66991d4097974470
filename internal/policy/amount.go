package policy

import (
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	canonical "sallyport.example/internal/call"
)

// Bounds of amounts: what is over them can't be read.
const (
	maxAmounts     = 1000 // in one call
	maxAmountText  = 64   // bytes of one
	maxAmountPower = 40   // of ten, in a JSON number
)

// amount is one amount as it was written, without its sign.
type amount struct {
	value    *big.Rat
	currency string // ISO 4217, of its own text; "" none was written
	twoWays  bool   // it could also be read as less
}

// unit is a currency that something in a call gives for an amount.
type unit struct {
	code string // ISO 4217; "" can't be read
	sure bool   // it stands where whoever carries the call out looks for it, in a form that leaves no choice
}

var symbols = map[string]string{"$": "USD", "€": "EUR", "£": "GBP"}

// readAmount reads a decoded JSON value: a number, or a string that is, with spaces around it,
//
//	[-] number [currency]    or    [-] currency [-] number
//
// where the currency is a code of three letters, all capitals or none, or one of $ € £, with or without spaces between; and the number
// is ASCII digits, grouped in threes by one of comma, point, space and apostrophe or not at all, with a fraction behind a point or a
// comma or none. It may have readings that differ, and the largest counts: 1,000 and 1.000 are a thousand. Some programs drop commas
// whatever they stand for, so a fraction behind a comma counts as whole digits (12,50 is 1250), unless points group the digits before
// it. Most programs have doubles, so the double nearest to a number is one of its readings (9999.99999999999999999 is 10000). Anything
// else can't be read.
func readAmount(v any) (amount, bool) {
	switch v := v.(type) {
	case json.Number:
		return readNumber(string(v))
	case string:
		return readText(v)
	}
	return amount{}, false
}

func readNumber(literal string) (a amount, ok bool) {
	if len(literal) > maxAmountText {
		return amount{}, false
	}
	if _, power, ok := strings.Cut(strings.ToLower(literal), "e"); ok {
		if n, err := strconv.Atoi(power); err != nil || n > maxAmountPower || n < -maxAmountPower {
			return amount{}, false
		}
	}
	ok = a.read(strings.TrimPrefix(literal, "-"))
	return a, ok
}

// read takes one more reading of the amount, a decimal without a sign: as it is, and as the double nearest to it.
func (a *amount) read(literal string) bool {
	exact, ok := new(big.Rat).SetString(literal)
	f, err := strconv.ParseFloat(literal, 64)
	if !ok || err != nil {
		return false
	}
	all := []*big.Rat{exact}
	if double := strconv.FormatFloat(f, 'f', -1, 64); double != literal {
		n, _ := new(big.Rat).SetString(double)
		all = append(all, n)
	}
	for _, n := range all {
		switch {
		case a.value == nil:
			a.value = n
		case n.Cmp(a.value) != 0:
			a.twoWays = true
			if n.Cmp(a.value) > 0 {
				a.value = n
			}
		}
	}
	return true
}

func readText(s string) (amount, bool) {
	if len(s) > maxAmountText {
		return amount{}, false
	}
	var a amount
	s, negative := strings.CutPrefix(strings.Trim(s, " "), "-")
	if rest, code := cutCurrency(s, false); code != "" {
		a.currency, s = code, strings.TrimLeft(rest, " ")
		if !negative {
			s = strings.TrimPrefix(s, "-")
		}
	} else if rest, code := cutCurrency(s, true); code != "" {
		a.currency, s = code, strings.TrimRight(rest, " ")
	}
	for _, reading := range readings(s) {
		if !a.read(reading) {
			return amount{}, false
		}
	}
	return a, a.value != nil
}

// cutCurrency takes the currency off the start or the end of a text. The code is "" if there is none.
func cutCurrency(s string, end bool) (rest, code string) {
	for symbol, code := range symbols {
		if rest, ok := strings.CutPrefix(s, symbol); ok && !end {
			return rest, code
		}
		if rest, ok := strings.CutSuffix(s, symbol); ok && end {
			return rest, code
		}
	}
	if len(s) < 3 {
		return s, ""
	}
	if end {
		return s[:len(s)-3], readCode(s[len(s)-3:])
	}
	return s[3:], readCode(s[:3])
}

// readCode returns a currency's code in capitals, or "" if s is none.
func readCode(s string) string {
	if len(s) != 3 {
		return ""
	}
	upper := strings.ToUpper(s)
	if !isCode(upper) || s != upper && s != strings.ToLower(s) {
		return ""
	}
	return upper
}

func isCode(s string) bool {
	return len(s) == 3 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// readings returns every way to read a number, as plain decimals.
func readings(s string) (all []string) {
	for _, point := range []string{".", ","} {
		whole, fraction, fractional := strings.Cut(s, point)
		if fractional && !digits(fraction) {
			continue
		}
		for _, separator := range []string{"", ",", ".", " ", "'"} {
			n, ok := ungroup(whole, separator)
			if !ok {
				continue
			}
			if !fractional {
				all = append(all, n)
				continue
			}
			all = append(all, n+"."+fraction)
			if point == "," && separator != "." {
				all = append(all, n+fraction)
			}
		}
	}
	return all
}

// ungroup takes the separators out of digits grouped in threes; "" is no grouping.
func ungroup(s, separator string) (string, bool) {
	if separator == "" {
		return s, digits(s)
	}
	groups := strings.Split(s, separator)
	for i, g := range groups {
		if !digits(g) || len(g) > 3 || i > 0 && len(g) < 3 {
			return "", false
		}
	}
	return strings.Join(groups, ""), true
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// decimal writes a number out in full, with two places at least if it is no integer.
func decimal(n *big.Rat) string {
	if n.IsInt() {
		return n.Num().String()
	}
	places, _ := n.FloatPrec() // exact: everything here began as decimals
	return n.FloatString(max(places, 2))
}

// thousands writes a number for people.
func thousands(n *big.Rat) string {
	whole, fraction, fractional := strings.Cut(decimal(n), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fractional {
		return whole + "." + fraction
	}
	return whole
}

// spot is a value at a path of argument names. One path has several through arrays.
type spot struct {
	passed []string // for each step of the path, the indexes of the arrays passed behind it: "", "3.", "3.0."
	value  any      // nil: missing, or null
	wrong  bool     // the path goes on where there is neither object nor array
	exact  bool     // every step has a member of its own, named byte for byte as in the path
}

// paths returns the paths with the role, sorted.
func paths(roles map[string]string, role string) (out []string) {
	for _, path := range slices.Sorted(maps.Keys(roles)) {
		if roles[path] == role {
			out = append(out, path)
		}
	}
	return out
}

// named decodes the top-level members that the paths begin with. Names count whatever their case, here and below, since many servers
// read them so; a canonical object has no two that differ only in it.
func named(arguments []byte, paths []string) (map[string]any, bool) {
	members := map[string]any{}
	for name, raw := range canonical.Members(arguments) {
		if !slices.ContainsFunc(paths, func(path string) bool { return begins(path, name) }) {
			continue
		}
		var v any
		if err := canonical.Decode(raw, &v); err != nil {
			return nil, false
		}
		members[name] = v
	}
	return members, true
}

// begins tells whether a path begins with a name, which may hold points itself.
func begins(path, name string) bool {
	for i := 0; i <= len(path); i++ {
		if (i == len(path) || path[i] == '.') && strings.EqualFold(path[:i], name) {
			return true
		}
	}
	return false
}

// follow yields every spot of a path, until yield returns false.
func follow(v any, path string, yield func(spot) bool) {
	steps := strings.Split(path, ".")
	walk(v, steps, spot{passed: make([]string, 0, len(steps)), exact: true}, yield)
}

// walk follows the rest of a path from v, which at led to.
func walk(v any, steps []string, at spot, yield func(spot) bool) bool {
	switch v := v.(type) {
	case nil:
		return yield(at)
	case []any:
		if len(v) == 0 {
			return yield(at)
		}
		for i, e := range v {
			inner := at
			inner.passed = slices.Clone(at.passed)
			inner.passed[len(inner.passed)-1] += strconv.Itoa(i) + "."
			if !walk(e, steps, inner, yield) {
				return false
			}
		}
		return true
	case map[string]any:
		if len(steps) == 0 {
			break
		}
		found := false
		for n := range steps { // a name may hold points itself
			m, exact, ok := member(v, strings.Join(steps[:n+1], "."))
			if !ok {
				continue
			}
			found = true
			inner := at
			inner.passed = append(slices.Clone(at.passed), make([]string, n+1)...)
			inner.exact = at.exact && exact && n == 0
			if !walk(m, steps[n+1:], inner, yield) {
				return false
			}
		}
		return found || yield(at)
	}
	at.value, at.wrong = v, len(steps) > 0
	return yield(at)
}

func member(object map[string]any, name string) (v any, exact, ok bool) {
	if v, ok := object[name]; ok {
		return v, true, true
	}
	for n, v := range object {
		if strings.EqualFold(n, name) {
			return v, false, true
		}
	}
	return nil, false, false
}

// shared is the key under which two spots have passed the same elements of the arrays that their paths have in common.
func (s spot) shared(steps int) string {
	return strings.Join(s.passed[:min(steps, len(s.passed))], "/")
}

// common is how many steps two paths begin with alike.
func common(a, b string) (n int) {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for n < min(len(x), len(y)) && x[n] == y[n] {
		n++
	}
	return n
}

// total is what all amounts of a call come to.
type total struct {
	any      bool     // there is one
	base     *big.Rat // in the base currency
	own      *big.Rat // in the currency, if they all have one
	currency string   // "" if they have several
	written  bool     // a currency was written; otherwise the base currency is assumed
	unsure   bool     // one was written that would make less of it, where or how it may be overlooked; the base currency is assumed
	twoWays  bool
	guessed  bool   // a part of it counts as an amount by its name
	fault    string // why it can't be read, for people; "" if it can
}

// plus adds what is guessed to be an amount.
func (t total) plus(g total) total {
	switch {
	case !g.any:
		return t
	case !t.any:
		g.guessed = true
		return g
	}
	if t.currency != g.currency {
		t.currency = ""
	}
	t.own, t.base = new(big.Rat).Add(t.own, g.own), new(big.Rat).Add(t.base, g.base)
	t.written, t.unsure, t.twoWays, t.guessed = t.written || g.written, t.unsure || g.unsure, t.twoWays || g.twoWays, true
	return t
}

func unreadable(why string) total { return total{any: true, fault: why} }

// total adds up the arguments with the role amount. required: one that is missing can't be read.
func (r Rules) total(roles map[string]string, arguments []byte, required bool) total {
	t := total{base: new(big.Rat), own: new(big.Rat)}
	amounts, units := paths(roles, "amount"), paths(roles, "currency")
	if len(amounts) == 0 {
		return t
	}
	args, ok := named(arguments, slices.Concat(amounts, units))
	if !ok {
		return unreadable("Its amount can't be read")
	}
	count := 0
	for _, path := range amounts {
		given := currencies(args, path, amounts, units)
		follow(args, path, func(s spot) bool {
			if s.value == nil && !required {
				return true
			}
			if count++; count > maxAmounts {
				t = unreadable("It has more amounts than can be checked")
				return false
			}
			a, ok := readAmount(s.value)
			switch {
			case s.value == nil:
				t = unreadable("Its amount is missing")
			case !ok || s.wrong:
				t = unreadable("Its amount can't be read")
			default:
				t = r.add(t, a, given(s))
			}
			return t.fault == ""
		})
		if t.fault != "" {
			return t
		}
	}
	return t
}

// currencies returns a function that gives the currencies named for one amount of a path. An argument names it for the amounts whose
// paths share most steps with its own, in the elements of arrays that both are in. It is sure where both stand at their exact paths and
// the currency is a string of three capitals in no list of its own.
func currencies(args any, amount string, amounts, paths []string) func(spot) []unit {
	type beside struct {
		steps int
		units map[string][]unit // by the elements passed
	}
	var all []beside
	for _, path := range paths {
		b := beside{common(amount, path), map[string][]unit{}}
		if slices.ContainsFunc(amounts, func(other string) bool { return common(other, path) > b.steps }) {
			continue
		}
		follow(args, path, func(s spot) bool {
			if s.value == nil {
				return true
			}
			var u unit
			if text, ok := s.value.(string); ok && !s.wrong {
				if u.code = symbols[text]; u.code == "" {
					u.code = readCode(text)
				}
				u.sure = s.exact && isCode(text) && strings.Join(s.passed[b.steps:], "") == ""
			}
			// What stands at the exact path comes first, and two are one too many already.
			known := b.units[s.shared(b.steps)]
			if len(known) < 2 && !slices.ContainsFunc(known, func(k unit) bool { return k.code == u.code }) {
				b.units[s.shared(b.steps)] = append(known, u)
			}
			return true
		})
		all = append(all, b)
	}
	return func(s spot) (units []unit) {
		for _, b := range all {
			for _, u := range b.units[s.shared(b.steps)] {
				u.sure = u.sure && s.exact
				units = append(units, u)
			}
		}
		return units
	}
}

// add adds one amount, for which arguments gave these currencies. One that makes less of it counts only if it is sure: a server that
// overlooks it moves as much of its own.
func (r Rules) add(t total, a amount, given []unit) total {
	if a.currency != "" {
		given = append(given, unit{code: a.currency})
	}
	code, sure := r.base, false
	for i, u := range given {
		switch {
		case u.code == "":
			return unreadable("The currency of its amount can't be read")
		case i > 0 && u.code != code:
			return unreadable("Its amount is in two currencies at once")
		}
		code, sure = u.code, sure || u.sure
	}
	rate := one
	if code != r.base {
		if rate = r.rates[code]; rate == nil {
			return unreadable("The configuration has no rate for " + code + ", the currency of its amount")
		}
	}
	if (!sure || r.guesses) && rate.Cmp(one) < 0 {
		code, rate, t.unsure = r.base, one, true
	}
	switch {
	case !t.any:
		t.currency = code
	case t.currency != code:
		t.currency = ""
	}
	t.any, t.written, t.twoWays = true, t.written || len(given) > 0, t.twoWays || a.twoWays
	t.own.Add(t.own, a.value)
	t.base.Add(t.base, new(big.Rat).Mul(a.value, rate))
	return t
}

var one = big.NewRat(1, 1)

// Destinations returns the values of the arguments with the role destination as canonical JSON scalars, sorted, without repetition;
// of an object all scalars in it, and the names of its members, which may be recipients too. There are as many as the arguments hold:
// bounding them is the caller's.
func Destinations(roles map[string]string, arguments []byte) []string {
	destinations := paths(roles, "destination")
	if len(destinations) == 0 {
		return nil
	}
	args, ok := named(arguments, destinations)
	if !ok {
		return nil
	}
	var out []string
	for _, path := range destinations {
		follow(args, path, func(s spot) bool {
			out = scalars(out, s.value)
			return true
		})
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func scalars(out []string, v any) []string {
	switch v := v.(type) {
	case nil:
	case []any:
		for _, e := range v {
			out = scalars(out, e)
		}
	case map[string]any:
		for name, e := range v {
			out = scalars(scalars(out, name), e)
		}
	default:
		text, err := json.Marshal(v)
		if err != nil {
			break
		}
		if text, err = canonical.Canonical(text, canonical.DefaultLimits()); err == nil {
			out = append(out, string(text))
		}
	}
	return out
}
