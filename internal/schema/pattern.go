package schema

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The bounds of patterns. A step is one state at one byte; each takes some nanoseconds.
const (
	maxStates    = 50_000      // of all patterns of a schema together, with repetitions written out
	freeMatching = 50_000_000  // steps that nobody counts
	maxMatching  = 300_000_000 // steps of checking one value, at most: some seconds
)

// errLong ends a check whose patterns take too long: the library has no other way out.
var errLong = errors.New("matching takes too long")

// pattern is a compiled pattern of a schema.
type pattern struct {
	*regexp.Regexp
	states int
	left   *int // steps that the check still has; nil: they are not counted
}

// newPattern compiles a pattern, which can also be a value that is to be one.
func newPattern(p string, left *int) (jsonschema.Regexp, error) {
	n := states(p)
	if n > maxStates {
		return nil, errors.New("it repeats too much")
	}
	r, err := regexp.Compile(p)
	if err != nil {
		return nil, err
	}
	return &pattern{r, n, left}, nil
}

// MatchString uses up what is left. Without anything left it panics with errLong.
func (p *pattern) MatchString(s string) bool {
	if p.left != nil {
		if *p.left -= p.states * (len(s) + 1); *p.left < 0 {
			panic(errLong)
		}
	}
	return p.Regexp.MatchString(s)
}

// states is about how many states a pattern has with its repetitions written out; 0 of what is no pattern.
func states(p string) int {
	re, err := syntax.Parse(p, syntax.Perl)
	if err != nil { // the compiler says so
		return 0
	}
	return statesOf(re)
}

func statesOf(re *syntax.Regexp) int {
	n := max(1, len(re.Rune))
	if re.Op == syntax.OpCharClass {
		n = 1
	}
	for _, sub := range re.Sub {
		n += statesOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return n
}
