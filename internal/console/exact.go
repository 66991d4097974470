package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/diff"
	"sallyport.example/internal/display"
	"sallyport.example/internal/threat"
)

// Exact rendering: a JSON value shown whole, so that nobody has to trust what it looks like. Each member and element has a line
// of its own; a backslash of the value is doubled, as in JSON, so that an escape written here can't be taken for one written there; what
// would hide, move or reorder text is an escape in a mark; runs of spaces are counted; a long string says how long it is. Where a string
// has lines of its own, each begins with a mark, which no value can bring.

// piece is text of one kind: "" is text of the value as it is, "odd" the same where it can be taken for other letters, "esc" an escape, a count
// or the beginning of a line, "note" a remark of the gateway.
type piece struct{ Kind, Text string }

const (
	spacesShown  = 2      // more in a row are counted
	lengthNoted  = 100    // characters from which on a string's length is said
	deepest      = 16     // levels that are indented
	linesOfText  = 2000   // of one string; beyond, its line ends are escapes without an end of the line
	wordsShown   = 10     // words that can be taken for others, at the top of a page
	marksOfValue = 50_000 // a browser does not bear more. Later escapes stand without marks, and a note says so; each still begins with one backslash
)

type exact struct {
	pieces []piece
	kind   string
	text   strings.Builder
	marks  int
}

// tooManyMarks stands before a value with more marks than are shown.
const tooManyMarks = "(there is too much to mark: behind the last mark nothing is marked)\n"

// exactly renders canonical JSON. What is not JSON is shown as one string.
func exactly(raw json.RawMessage) []piece {
	var e exact
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if !json.Valid(raw) || e.value(dec, 0) != nil {
		e = exact{}
		e.str(string(raw), 0)
	}
	e.flush()
	if e.marks > marksOfValue {
		e.pieces = slices.Insert(e.pieces, 0, piece{"note", tooManyMarks})
	}
	return e.pieces
}

func (e *exact) flush() {
	if e.text.Len() > 0 {
		e.pieces = append(e.pieces, piece{e.kind, e.text.String()})
		e.text.Reset()
	}
}

func (e *exact) put(kind, text string) {
	if (kind == "esc" || kind == "odd") && e.kind != kind {
		if e.marks++; e.marks > marksOfValue {
			kind = ""
		}
	}
	if kind != e.kind {
		e.flush()
		e.kind = kind
	}
	e.text.WriteString(text)
}

// unmarkedBackslash stands before a count that has no mark, since the value could hold the same text.
func (e *exact) unmarkedBackslash() string {
	if e.kind != "esc" && e.marks >= marksOfValue {
		return `\`
	}
	return ""
}

func (e *exact) line(depth int) { e.put("", "\n"+strings.Repeat("  ", min(depth, deepest))) }

func (e *exact) value(dec *json.Decoder, depth int) error {
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	switch v := tok.(type) {
	case json.Delim:
		e.put("", v.String())
		first := true
		for ; dec.More(); first = false {
			if !first {
				e.put("", ",")
			}
			e.line(depth + 1)
			if v == '{' {
				name, err := dec.Token()
				if err != nil {
					return err
				}
				word, _ := name.(string) // a member has a name
				e.str(word, depth+1)
				e.put("", ": ")
			}
			if err := e.value(dec, depth+1); err != nil {
				return err
			}
		}
		end, err := dec.Token()
		if err != nil {
			return err
		}
		if !first {
			e.line(depth)
		}
		e.put("", fmt.Sprint(end))
	case string:
		e.str(v, depth)
	case json.Number:
		e.put("", v.String())
	case nil:
		e.put("", "null")
	default:
		e.put("", fmt.Sprint(v))
	}
	return nil
}

func (e *exact) str(s string, depth int) {
	e.put("", `"`)
	breaks := strings.Count(s, "\n") <= linesOfText
	combined := 0
	odd := slices.Collect(threat.Lookalikes(s))
	for i := 0; i < len(s); {
		for len(odd) > 0 && odd[0].End <= i {
			odd = odd[1:]
		}
		asIs := ""
		if len(odd) > 0 && odd[0].Start <= i {
			asIs = "odd"
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		part := s[i : i+n]
		i += n
		if unicode.Is(unicode.M, r) {
			combined++
		} else {
			combined = 0
		}
		switch {
		case r == '"' || r == '\\':
			e.put("", `\`+part)
		case r == ' ':
			run := 1
			for i < len(s) && s[i] == ' ' {
				run, i = run+1, i+1
			}
			if run <= spacesShown {
				e.put("", strings.Repeat(" ", run))
			} else {
				e.put("esc", e.unmarkedBackslash()+"["+count(run)+" spaces]")
			}
		case r > ' ' && r < 0x7f:
			e.put(asIs, part)
		case r == '\n' && breaks:
			e.put("esc", `\n`)
			if i < len(s) {
				e.line(depth + 1)
				e.put("esc", "│")
				e.put("", " ")
			}
		case combined > display.MarksMax:
			e.put("esc", display.Escape(r))
		case display.Visible(r):
			e.put(asIs, part)
		default:
			e.put("esc", display.Line(part, 16))
		}
	}
	e.put("", `"`)
	if n := utf8.RuneCountInString(s); n >= lengthNoted {
		e.put("note", " ("+count(n)+" characters)")
	}
}

// lookalikes are texts of a call that can be taken for other ones: all such destinations, and the first words of the arguments.
type lookalikes struct {
	Destinations []threat.Doubt
	Words        []threat.Doubt
	More         bool // not all words are listed
}

// Any tells whether there are any.
func (d lookalikes) Any() bool { return len(d.Destinations) > 0 || len(d.Words) > 0 }

// lookalikesOf finds them. Words never push a destination out of the list.
func lookalikesOf(destinations []string, arguments json.RawMessage) (d lookalikes) {
	for _, to := range destinations {
		if why := threat.NameLookalike(to); why != "" {
			d.Destinations = append(d.Destinations, threat.Doubt{Text: to, Why: why})
		}
	}
	d.Words, d.More = threat.LookalikesIn(arguments, wordsShown)
	return d
}

// count writes a number with its thousands apart.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// change is a line of a difference: "del" is only in the older text, "ins" only in the newer one, "" in both.
type change struct {
	Kind   string
	Pieces []piece
}

// difference compares two values as they are rendered, line by line.
func difference(before, after json.RawMessage) (out []change) {
	diff.Lines(linesOf(exactly(before)), linesOf(exactly(after)), slices.Equal[[]piece], func(kind diff.Kind, line []piece) {
		out = append(out, change{string(kind), line})
	})
	return out
}

func linesOf(pieces []piece) (lines [][]piece) {
	var line []piece
	for _, s := range pieces {
		rest := s.Text
		for {
			text, after, more := strings.Cut(rest, "\n")
			if text != "" {
				line = append(line, piece{s.Kind, text})
			}
			if !more {
				break
			}
			lines, line, rest = append(lines, line), nil, after
		}
	}
	return append(lines, line)
}
