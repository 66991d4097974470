package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/display"
)

var formats = []string{"table", "json", "yaml"}

// print shows v in the form that was asked for. In every form, nothing in it can move a terminal's cursor or hide: JSON
// and YAML carry such characters as escapes, a table shows them as such.
func (c *cli) print(v any, rows func(t *table)) error {
	if c.output == "table" {
		t := &table{w: tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)}
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
	if c.output == "yaml" {
		var err error
		if out, err = toYAML(out); err != nil {
			return err
		}
	}
	_, err := c.out.Write(display.EscapeData(out, c.output == "yaml"))
	return err
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
type table struct{ w *tabwriter.Writer }

const cellWidth = 100

func (t *table) row(cells ...any) {
	for i, cell := range cells {
		s := display.Terminal(show(cell), cellWidth)
		if s == "" && i < len(cells)-1 {
			s = "-"
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
	if s := display.Terminal(show(value), 4000); s != "" {
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
