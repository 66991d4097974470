package policy

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"

	canonical "sallyport.example/internal/call"
)

// maxGuessed is how many paths of one call are taken for amounts by their names.
const maxGuessed = 64

// guess adds up what is named like an amount, at any depth, where the operator gave no role: neither to the argument nor to what it is in.
// A name is a guess, so the sum is for raising a risk only, and a currency counts only where it makes more of it.
func (r Rules) guess(roles map[string]string, arguments []byte) total {
	if !mentionsAmount(arguments) {
		return total{}
	}
	var args map[string]any
	if err := canonical.Decode(arguments, &args); err != nil {
		return unreadable("What looks like its amount can't be read")
	}
	g := guesser{given: roles, roles: map[string]string{}}
	for path, role := range roles {
		if role == "currency" {
			g.roles[path] = role
		}
	}
	g.walk(args, "", noAmount)
	if g.amounts > maxGuessed {
		return unreadable("It has more amounts than can be checked")
	}
	r.guesses = true
	return r.total(g.roles, arguments, false)
}

// guesser gives roles by names.
type guesser struct {
	given   map[string]string // the operator's roles
	roles   map[string]string // those that names tell
	amounts int
}

// likeness is how much a name says of an amount.
type likeness byte

const (
	noAmount likeness = iota
	inAmount          // it is in an object that is named like an amount, and its own name says nothing
	inTotal           // likewise, of a name that may also stand for something else
	mayBe             // a name that may also stand for something else, as payment: what can be read as an amount is one
	isAmount          // what can't be read may be one, too
)

// walk looks at a value whose name is like an amount.
func (g *guesser) walk(v any, path string, like likeness) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			g.walk(e, path, like)
		}
	case map[string]any:
		for name, e := range v {
			at := name
			if path != "" {
				at = path + "." + name
			}
			switch {
			case g.amounts > maxGuessed || g.labelled(at):
			case isCurrencyName(name):
				if text, ok := e.(string); ok && text != "" {
					g.roles[at] = "currency"
				}
			default:
				g.walk(e, at, like.of(name))
			}
		}
	case json.Number:
		if like == isAmount || like == mayBe || like == inAmount {
			g.found(path)
		}
	case string:
		if _, readable := readText(v); like == isAmount && strings.TrimSpace(v) != "" || like == mayBe && readable {
			g.found(path)
		}
	}
}

func (g *guesser) found(path string) {
	if g.roles[path] == "" {
		g.roles[path] = "amount"
		g.amounts++
	}
}

// of is how much the name of a member says, in what is like an amount itself.
func (l likeness) of(name string) likeness {
	own := likenessOf(name)
	if own != noAmount || l == noAmount {
		return own
	}
	if isUnitName(name) || isCode(name) {
		return max(mayBe, l)
	}
	if l == isAmount || l == inAmount {
		return inAmount
	}
	return inTotal
}

// labelled reports whether the operator gave the argument, or one that it is in, a role. Names count whatever their case, as in total.
func (g *guesser) labelled(path string) bool {
	for given := range g.given {
		if len(path) >= len(given) && strings.EqualFold(path[:len(given)], given) && (len(path) == len(given) || path[len(given)] == '.') {
			return true
		}
	}
	return false
}

// mentionsAmount reports whether a member of the canonical JSON, at any depth, is named like an amount. It decodes nothing: nearly no call
// has one, and every write is looked at.
func mentionsAmount(arguments []byte) bool {
	for i := 0; i < len(arguments); i++ {
		if arguments[i] != '"' {
			continue
		}
		start := i + 1
		for i = start; i < len(arguments) && arguments[i] != '"'; i++ {
			if arguments[i] == '\\' {
				i++
			}
		}
		if i+1 < len(arguments) && arguments[i+1] == ':' && likenessOf(arguments[start:i]) != noAmount {
			return true
		}
	}
	return false
}

// NamedAmount reports whether an argument of the name looks like an amount.
func NamedAmount(name string) bool { return likenessOf(name) != noAmount }

// Names of amounts: amount and amt wherever they stand in a name, the others as its last word before those that say what it is counted in.
var (
	amountWords = []string{"sum", "total", "price", "cost", "fee", "fare", "payment", "payout", "refund", "deposit", "budget", "salary", "wage", "tip"}
	unitWords   = []string{"cent", "usd", "eur", "gbp", "chf", "jpy", "dollar", "euro", "pound", "minor", "major", "unit", "value", "gross", "net", "number", "quantity"}
)

func likenessOf[T string | []byte](name T) likeness {
	like := noAmount
	for word := range wordsOf(name) {
		switch {
		case word == "amt" || strings.Contains(word, "amount"):
			return isAmount
		case slices.Contains(amountWords, word):
			like = mayBe
		case !slices.Contains(unitWords, word):
			like = noAmount
		}
	}
	return like
}

// isUnitName reports whether a member of the name says how much it is, of an amount that is an object.
func isUnitName(name string) bool {
	for word := range wordsOf(name) {
		if !slices.Contains(unitWords, word) {
			return false
		}
	}
	return true
}

// isCurrencyName reports whether an argument of the name says what an amount is counted in.
func isCurrencyName(name string) bool {
	for word := range wordsOf(name) {
		if word == "currency" {
			return true
		}
	}
	return false
}

// maxWord is the length from which on a word of a name is cut: none of those looked for is as long.
const maxWord = 32

// wordsOf yields the words of a name in lower case, without digits and without an s at the end: of snake_case, kebab-case and camelCase.
func wordsOf[T string | []byte](name T) iter.Seq[string] {
	return func(yield func(string) bool) {
		var word [maxWord]byte
		n, lower := 0, false
		for i := 0; i <= len(name); i++ {
			c := byte('_')
			if i < len(name) {
				c = name[i]
			}
			upper := c >= 'A' && c <= 'Z'
			if letter := upper || c >= 'a' && c <= 'z'; !letter || upper && lower {
				if n > 1 && word[n-1] == 's' {
					n--
				}
				if n > 0 && !yield(string(word[:n])) {
					return
				}
				if n = 0; !letter {
					lower = false
					continue
				}
			}
			if lower = !upper; upper {
				c += 'a' - 'A'
			}
			if n < maxWord {
				word[n], n = c, n+1
			}
		}
	}
}
