package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/display"
	runs "sallyport.example/internal/run"
	"sallyport.example/internal/session"
)

var formats = []string{"table", "json", "yaml"}

// print shows v in the form that was asked for. In every form, nothing in it can move a terminal's cursor or hide: JSON
// and YAML carry such characters as escapes, a table shows them as such.
func (c *cli) print(v any, rows func(t *table)) error {
	if c.output == "table" {
		t := &table{w: tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0), colours: c.colours()}
		t.now = reading(c.out)
		rows(t)
		return t.w.Flush()
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	out := b.Bytes()
	if out[0] != '{' { // whatever a command prints is one object, so that a program reads all of them alike
		out = enveloped(out)
	}
	if c.output == "yaml" {
		var err error
		if out, err = toYAML(out); err != nil {
			return err
		}
	}
	_, err := c.out.Write(display.EscapeData(out, c.output == "yaml"))
	return err
}

// enveloped puts a list into an object, under items.
func enveloped(list []byte) []byte {
	if list[0] == 'n' { // null: there is none
		list = []byte("[]")
	}
	lines := bytes.ReplaceAll(bytes.TrimRight(list, "\n"), []byte("\n"), []byte("\n  "))
	return append(append([]byte("{\n  \"items\": "), lines...), "\n}\n"...)
}

// judged prints v, and ends the command with exit code 1 where it is not good.
func (c *cli) judged(v any, good bool, rows func(t *table)) error {
	if err := c.print(v, rows); err != nil || good {
		return err
	}
	return &found{printed: true}
}

// toYAML turns JSON into YAML with the members in the same order: JSON is YAML in another style.
func toYAML(b []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Load(b, &n); err != nil {
		return nil, err
	}
	var block func(n *yaml.Node)
	block = func(n *yaml.Node) {
		n.Style = 0
		if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && hasHidden(n.Value) {
			n.Style = yaml.DoubleQuotedStyle // where escapes can stand
		}
		for _, child := range n.Content {
			block(child)
		}
	}
	block(&n)
	return yaml.Dump(&n)
}

func hasHidden(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return display.Hidden(r) || r < ' ' && r != '\n' || r == utf8.RuneError })
}

// table writes aligned rows for people. Every cell is made printable.
type table struct {
	w       *tabwriter.Writer
	colours bool
	now     time.Time // where a person reads at a terminal: times are in their zone, and say how long ago or ahead; zero: RFC 3339 in UTC, for programs
}

// reading is the present time where a person reads out at a terminal, and zero where a program does.
func reading(out io.Writer) time.Time {
	if terminal(out) {
		return time.Now()
	}
	return time.Time{}
}

// colours tells whether what is printed may have colours: at a terminal that can show them, unless NO_COLOR is set.
func (c *cli) colours() bool {
	return terminal(c.out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// tinted is a cell in a colour. All cells of its column have to be tinted, so that the columns stay aligned: colours are bytes, too.
type tinted struct {
	text   string
	colour int // of SGR, two digits
}

const (
	plainColour  = 39
	redColour    = 31
	yellowColour = 33
	greenColour  = 32
)

// tint chooses the colour of a word of the gateway's: a risk, a decision, a state or a severity. Others stay as they are.
func tint(word string) tinted {
	switch word {
	case "CRITICAL", "HIGH", "deny", "rejected", "expired", "critical", "down", "quarantined", "stopped":
		return tinted{word, redColour}
	case "MEDIUM", "ask", "pending", "deferred", "warning", "error", "unknown", "discarded":
		return tinted{word, yellowColour}
	case "permit", "ok", "approved", "spent", "up":
		return tinted{word, greenColour}
	}
	return tinted{word, plainColour}
}

// tintState is the state of a request in readers' words, in the colour of the state.
func tintState(state string) tinted { return tinted{stateWords(state), tint(state).colour} }

// stateWords is the state of a request in readers' words, as on the pages; so are the others.
func stateWords(state string) string { return approval.State(state).Words() }

func phaseWords(phase string) string          { return session.Phase(phase).Words() }
func planWords(state string) string           { return session.PlanState(state).Words() }
func recommendationWords(state string) string { return runs.RecommendationState(state).Words() }
func runWords(status string) string           { return runs.Status(status).Words() }

const cellWidth = 100

func (t *table) row(cells ...any) {
	for i, cell := range cells {
		s := display.Terminal(t.show(cell), cellWidth)
		if s == "" && i < len(cells)-1 {
			s = "-"
		}
		if c, ok := cell.(tinted); ok && t.colours {
			s = fmt.Sprintf("\x1b[%dm%s\x1b[39m", c.colour, s)
		}
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, s)
	}
	fmt.Fprintln(t.w)
}

// field is a row of a name and a value that may be long.
func (t *table) field(name string, value any) {
	if s := display.Terminal(t.show(value), 4000); s != "" {
		fmt.Fprintf(t.w, "%s\t%s\n", name, s)
	}
}

// line ends the columns and writes text. Foreign text in args is made printable.
func (t *table) line(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = printable(s)
		}
	}
	fmt.Fprintf(t.w, format+"\n", args...)
}

// show is show, with times as who reads them has them.
func (t *table) show(v any) string {
	switch v := v.(type) {
	case tinted:
		return v.text
	case time.Time:
		return when(v, t.now)
	}
	return show(v)
}

// when is a time as its reader has it: of a person at a terminal, who reads now, or of a program (now is zero).
func when(at, now time.Time) string {
	if at.IsZero() || now.IsZero() {
		return show(at)
	}
	return whenOf(at, now)
}

// whenOf says when something was or will be, in the zone of now, and for two days how long that is.
func whenOf(at, now time.Time) string {
	d, local := now.Sub(at), at.In(now.Location())
	if d > 48*time.Hour || d < -48*time.Hour {
		return local.Format("2006-01-02 15:04 MST")
	}
	form := "15:04:05"
	if local.Format("2006-01-02") != now.Format("2006-01-02") {
		form = "Jan 2 15:04"
	}
	if d < 0 {
		return local.Format(form) + ", in " + lengthOf(-d)
	}
	return local.Format(form) + ", " + lengthOf(d) + " ago"
}

// lengthOf writes a time in its largest unit, rounded down.
func lengthOf(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d h", d/time.Hour)
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []string:
		return strings.Join(v, ", ")
	case bool:
		if v {
			return "yes"
		}
		return ""
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return v.UTC().Format("2006-01-02T15:04:05Z")
	case json.RawMessage:
		return string(v)
	}
	return fmt.Sprint(v)
}

// terminal tells whether a person sits at the other end of something.
func terminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok || isNull(f) {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// isNull tells whether something is the device that nothing is ever read from.
func isNull(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	return err == nil && nullErr == nil && os.SameFile(st, null)
}
