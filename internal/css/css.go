// Package css tells whether an inline style hides the text of its element.
//
// Promises: one declaration that hides is enough, whatever comes after it, as an author of hidden text decides what comes after it. It reads what designers write about text that is seen as
// seen. What a style sheet, a script or a colour like its background hides is not known here.
package css

import (
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Hides tells whether a style attribute hides text. One declaration that does is enough, whatever comes after it.
func Hides(style string) bool {
	var flat, clipped, fixed, away bool
	for decl := range strings.SplitSeq(strings.ToLower(plain(style)), ";") {
		prop, value, _ := strings.Cut(decl, ":")
		prop = strings.TrimSpace(prop)
		value = strings.Join(strings.Fields(strings.TrimSuffix(strings.TrimSpace(value), "!important")), " ")
		if inner, ok := strings.CutPrefix(value, "calc("); ok {
			value = strings.TrimSpace(strings.TrimSuffix(inner, ")"))
		}
		first, _, _ := strings.Cut(value, " ")
		size, isSize := length(first)
		switch prop {
		case "display":
			if first == "none" {
				return true
			}
		case "visibility", "content-visibility":
			if first == "hidden" || first == "collapse" {
				return true
			}
		case "opacity":
			if faint(first) {
				return true
			}
		case "font-size":
			if isSize && size <= 1 {
				return true
			}
		case "font":
			for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ' ' || r == '/' || r == ',' }) {
				if n, ok := length(part); ok && n <= 1 && strings.Trim(part, "0123456789.") != "" || ok && n == 0 {
					return true
				}
			}
		case "color", "-webkit-text-fill-color":
			if colourless(value) {
				return true
			}
		case "filter":
			for name, args := range functions(value) {
				if name == "opacity" && len(args) == 1 && faint(args[0]) {
					return true
				}
			}
		case "position":
			fixed = first == "fixed"
		case "text-indent", "left", "right", "margin-left", "margin-right", "inset-inline", "inset-inline-start", "inset-inline-end", "margin-inline", "margin-inline-start",
			"translate":
			if outside(value, true) {
				return true
			}
		case "top", "bottom", "inset", "inset-block", "inset-block-start", "inset-block-end", "margin", "margin-top", "margin-bottom", "margin-block", "margin-block-start":
			if outside(value, false) { // downwards, a page is long
				return true
			}
			away = away || outside(value, true)
		case "clip", "clip-path", "-webkit-clip-path":
			for name, args := range functions(value) {
				if empty(name, args) {
					return true
				}
			}
		case "transform", "-webkit-transform":
			for name, args := range functions(value) {
				if vanishing(name, args) {
					return true
				}
			}
		case "scale":
			if vanishing("scale", strings.Fields(value)) {
				return true
			}
		case "height", "max-height", "width", "max-width", "block-size", "max-block-size", "inline-size", "max-inline-size":
			flat = flat || isSize && size <= 1
		case "overflow", "overflow-x", "overflow-y", "overflow-block", "overflow-inline":
			clipped = clipped || value != "" && first != "visible"
		}
	}
	return flat && clipped || fixed && away
}

// faint tells whether an opacity leaves nothing to see.
func faint(s string) bool {
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	return err == nil && (n <= 0.05 || strings.HasSuffix(s, "%") && n <= 5)
}

// colourless tells whether a colour can be seen through.
func colourless(value string) bool {
	if value == "transparent" {
		return true
	}
	if hex, ok := strings.CutPrefix(value, "#"); ok {
		return len(hex) == 4 && hex[3] == '0' || len(hex) == 8 && hex[6] == '0'
	}
	for _, args := range functions(value) {
		if n := len(args); n == 4 && faint(args[3]) || strings.Contains(value, "/") && n > 3 && faint(args[n-1]) {
			return true
		}
	}
	return false
}

// outside tells whether one of the distances moves an element out of the page: to the left or upwards, where no reader can scroll, or, with both,
// absurdly far in either direction.
func outside(value string, both bool) bool {
	for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ' ' || r == ',' }) {
		if d, ok := distance(part); ok && (d <= -500 || both && d >= 5000) {
			return true
		}
	}
	return false
}

// functions are the functions of a CSS value that hold no others, with what is between spaces, commas and slashes in them.
func functions(value string) iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		for {
			name, rest, ok := strings.Cut(value, "(")
			if !ok {
				return
			}
			in, after, _ := strings.Cut(rest, ")")
			name = name[strings.LastIndexAny(name, " ,(")+1:]
			if !yield(name, strings.FieldsFunc(in, func(r rune) bool { return r == ' ' || r == ',' || r == '/' })) {
				return
			}
			value = after
		}
	}
}

// empty tells whether a shape to which something is clipped has no area, or nearly none.
func empty(shape string, args []string) bool {
	if i := slices.IndexFunc(args, func(s string) bool { return s == "at" || s == "round" }); i >= 0 {
		args = args[:i]
	}
	var n []float64 // NaN where there is no length, which is neither more nor less than anything
	for _, a := range args {
		d, ok := distance(a)
		if !ok {
			d = math.NaN()
		}
		n = append(n, d)
	}
	within := func(i, j int) bool { return i < len(n) && j < len(n) && n[j]-n[i] <= 1 }
	switch shape {
	case "inset":
		for i, d := range n {
			if d >= 500 || strings.HasSuffix(args[i], "%") && d >= 50*percent {
				return true
			}
		}
	case "circle", "ellipse":
		return slices.ContainsFunc(n, func(d float64) bool { return d <= 1 })
	case "rect":
		return within(0, 2) || within(3, 1)
	case "xywh":
		return len(n) > 3 && (n[2] <= 1 || n[3] <= 1)
	case "polygon":
		n = slices.DeleteFunc(n, math.IsNaN)
		x, y := true, true // all points on one line, upright or level
		for i := 2; i+1 < len(n); i += 2 {
			x, y = x && n[i] == n[0], y && n[i+1] == n[1]
		}
		return len(n) > 1 && (x || y)
	}
	return false
}

// vanishing tells whether a transformation leaves nothing to see.
func vanishing(name string, args []string) bool {
	switch {
	case strings.HasPrefix(name, "scale"):
		return slices.ContainsFunc(args, func(s string) bool { return faint(strings.TrimPrefix(s, "-")) })
	case strings.HasPrefix(name, "translate"):
		return outside(strings.Join(args, " "), true)
	case name == "rotatex", name == "rotatey":
		return len(args) == 1 && (args[0] == "90deg" || args[0] == "-90deg" || args[0] == "270deg" || args[0] == "-270deg" || args[0] == "0.25turn" || args[0] == ".25turn")
	case name == "matrix" && len(args) == 6:
		var m [4]float64
		for i := range m {
			m[i], _ = strconv.ParseFloat(args[i], 64)
		}
		return math.Abs(m[0]*m[3]-m[1]*m[2]) <= 0.0025
	}
	return false
}

// What is relative counts so many pixels that what centres an element or makes it as wide as the window does not seem to move it out.
const (
	percent = 4
	view    = 6
)

// distance reads a CSS length in pixels.
func distance(s string) (float64, bool) {
	num := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz%")
	d, ok := length(s)
	switch s[len(num):] {
	case "%":
		d, ok = length(num)
		d *= percent
	case "vw", "vh", "vmin", "vmax", "vi", "vb", "dvw", "dvh", "svw", "svh", "lvw", "lvh":
		d, ok = length(num)
		d *= view
	case "pt":
		d *= 1.33
	case "mm":
		d *= 3.8
	case "cm":
		d *= 38
	case "in":
		d *= 96
	case "pc":
		d *= 16
	}
	return d, ok
}

// length reads a CSS number in pixels; units that are relative to text count 16, others one.
func length(s string) (float64, bool) {
	num := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz%")
	f, err := strconv.ParseFloat(num, 64)
	if err != nil {
		return 0, false
	}
	switch s[len(num):] {
	case "em", "rem", "ex", "ch":
		f *= 16
	case "%":
		f *= 0.16
	}
	return f, true
}

// plain takes comments and escapes out of CSS.
func plain(s string) string {
	if !strings.ContainsAny(s, `\/`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "/*"):
			end := strings.Index(s[i+2:], "*/")
			if end < 0 {
				return out.String()
			}
			i += end + 3
			out.WriteByte(' ')
		case s[i] == '\\' && i+1 < len(s):
			j := i + 1
			for j < len(s) && j < i+7 && strings.IndexByte("0123456789abcdefABCDEF", s[j]) >= 0 {
				j++
			}
			if j == i+1 { // an escaped character that is no digit stands for itself
				out.WriteByte(s[j])
				i = j
				continue
			}
			code, _ := strconv.ParseUint(s[i+1:j], 16, 32)
			out.WriteRune(rune(code))
			if j < len(s) && strings.IndexByte(" \t\n\r\f", s[j]) >= 0 {
				j++
			}
			i = j - 1
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}
