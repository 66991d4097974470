package query

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"sallyport.example/internal/fault"
)

// checkParams accepts the scalars that a JSON decoder with UseNumber yields.
func checkParams(params []any) error {
	if len(params) > paramsMax {
		return fault.New(fault.RequestMalformed, "There are %d parameters; at most %d may be given.", len(params), paramsMax).At("parameters")
	}
	for i, p := range params {
		size := 0
		switch p := p.(type) {
		case nil, bool:
		case string:
			if size = len(p); strings.IndexByte(p, 0) >= 0 {
				return badParam(i, "holds a NUL character")
			}
		case json.Number:
			if size = len(p); !isNumber(string(p)) {
				return badParam(i, "is not a number")
			}
		default:
			return badParam(i, "is neither a string nor a number, a boolean or null")
		}
		if size > paramMax {
			return badParam(i, fmt.Sprintf("is longer than %d bytes", paramMax))
		}
	}
	return nil
}

func badParam(i int, what string) error {
	return fault.New(fault.RequestMalformed, "The parameter %s.", what).At(fmt.Sprintf("parameters[%d]", i))
}

// isNumber tells whether s is a number in JSON's grammar; databases also write NaN, Infinity and 007.
func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	whole := digits(s)
	if whole == 0 || whole > 1 && s[0] == '0' {
		return false
	}
	s = s[whole:]
	if strings.HasPrefix(s, ".") {
		n := digits(s[1:])
		if n == 0 {
			return false
		}
		s = s[1+n:]
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		s = s[1:]
		if s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		n := digits(s)
		return n > 0 && n == len(s)
	}
	return s == ""
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// answer collects rows within the limits.
type answer struct {
	Rows
	rowsMax  int
	bytesMax int
	used     int
}

// columns starts the answer.
func (a *answer) columns(c []Column) {
	a.Columns = c
	for _, c := range c {
		a.used += len(`{"name":,"type":},`) + jsonSize(c.Name) + jsonSize(c.Type)
	}
}

// left is the largest size in bytes that a value can have and still be part of the answer.
func (a *answer) left() int { return max(0, a.bytesMax-a.used) }

// add takes a row, or says that the answer is full.
func (a *answer) add(row []any) bool {
	size := len("[],")
	for _, v := range row {
		size += 1 + jsonSize(v)
	}
	if len(a.Rows.Rows) >= a.rowsMax || size > a.left() {
		a.Truncated = true
		return false
	}
	a.used += size
	a.Rows.Rows = append(a.Rows.Rows, row)
	return true
}

// jsonSize is the size of v as JSON in bytes, or a little more.
func jsonSize(v any) int {
	switch v := v.(type) {
	case string:
		n := len(v) + 2
		for i := range len(v) {
			switch c := v[i]; {
			case c == '"' || c == '\\':
				n++
			case c < ' ' || c == '<' || c == '>' || c == '&': // \u003c, as encoding/json writes it
				n += 5
			case c == 0xe2: // U+2028 and U+2029 are written as escapes
				n += 3
			}
		}
		return n
	case json.Number:
		return len(v)
	case float64:
		return 24
	default:
		return len("false")
	}
}

// number is f as JSON can carry it: a float64, or a word.
func number(f float64) any {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return f
}

// valid is s as UTF-8. Databases keep bytes under the name of text.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
