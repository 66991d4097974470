package fetch

import (
	"bytes"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
)

// Stand-ins for characters that the converter would treat in its own way. They are for private use, and clean takes them out of pages.
const (
	escapedLess = "\uf003"
	plainLess   = "\uf004"
	plainMore   = "\uf005"
)

var holds = strings.NewReplacer(escapedLess, `\<`, plainLess, "<", plainMore, ">", "\uf002", "\n", "\a", "")

// Readable gives what a reader would see of a page that came from nowhere as Markdown, of at most limit bytes; cut tells whether there was more.
func Readable(page string, limit int) (text string, cut bool) {
	nowhere := &url.URL{Scheme: "https", Host: "document.invalid", Path: "/"}
	_, text, cut = readHTML(page, nowhere, true, limit)
	return text, cut
}

// readHTML gives what a reader would see of a page as Markdown, or as text without any marks. Both are at most limit bytes.
func readHTML(page string, from *url.URL, markdown bool, limit int) (title, text string, cut bool) {
	b, root, cut := build(page, from, markdown, 2*limit)
	b.prune()
	title = strings.Join(strings.Fields(clean(b.title.String())), " ")
	if r := []rune(title); len(r) > maxTitle {
		title = string(r[:maxTitle])
	}
	if markdown {
		text = render(root)
	} else {
		text = plain(root)
	}
	text, more := truncate(text, limit)
	return title, text, cut || more
}

// prune takes navigation, headers, footers and asides away where the page says what its main part is, and that part isn't empty.
func (b *builder) prune() {
	if !slices.ContainsFunc(b.sections, hasText) {
		b.asides = nil
	}
	sections := map[*html.Node]bool{}
	for _, n := range b.sections {
		sections[n] = true
	}
	for _, n := range b.asides {
		inside := false
		for p := n.Parent; p != nil && !inside; p = p.Parent {
			inside = sections[p]
		}
		if !inside && n.Parent != nil {
			n.Parent.RemoveChild(n)
		}
	}
	for _, t := range b.tables {
		rows, columns := 0, 0
		for n := range t.Descendants() {
			if n.Data == "tr" {
				rows++
				here := 0
				for c := range n.ChildNodes() {
					if c.Data == "td" || c.Data == "th" {
						here++
					}
				}
				columns = max(columns, here)
			}
		}
		if rows*columns > maxCells {
			t.Data = "div"
			for n := range t.Descendants() {
				if n.Type == html.ElementNode && cells[n.Data] {
					n.Data = "div"
				}
			}
		}
	}
}

func hasText(n *html.Node) bool {
	for d := range n.Descendants() {
		if d.Type == html.TextNode && strings.TrimSpace(d.Data) != "" || d.Data == "img" {
			return true
		}
	}
	return false
}

var toMarkdown = func() *converter.Converter {
	c := converter.NewConverter(
		// The converter's own escaping looks ahead from each bracket: quadratic. escapeText has done it.
		converter.WithEscapeMode(converter.EscapeModeDisabled),
		converter.WithPlugins(base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(commonmark.WithListEndComment(false)),
			table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal))))
	// The converter's own renderers rewrite the query of an address.
	c.Register.RendererFor("a", converter.TagTypeInline, renderLink, converter.PriorityEarly)
	c.Register.RendererFor("img", converter.TagTypeInline, renderImage, converter.PriorityEarly)
	return c
}()

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func renderLink(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	var in bytes.Buffer
	ctx.RenderChildNodes(ctx, &in, n)
	s := strings.ReplaceAll(in.String(), "\uf002", " ")
	text := strings.Join(strings.Fields(s), " ")
	if text == "" {
		return converter.RenderSuccess
	}
	before, after := "", ""
	if strings.TrimLeftFunc(s, unicode.IsSpace) != s {
		before = " "
	}
	if strings.TrimRightFunc(s, unicode.IsSpace) != s {
		after = " "
	}
	w.WriteString(before + "[" + text + "](" + attribute(n, "href") + ")" + after)
	return converter.RenderSuccess
}

func renderImage(_ converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	w.WriteString("![" + attribute(n, "alt") + "](" + attribute(n, "src") + ")")
	return converter.RenderSuccess
}

// render turns the tree into Markdown. The converter is not trusted with hostile trees: should it panic, the tree is shown as text.
func render(root *html.Node) (text string) {
	defer func() {
		if recover() != nil {
			text = plain(root)
		}
		text = strings.TrimSpace(strings.ToValidUTF8(holds.Replace(text), "\ufffd"))
	}()
	out, err := toMarkdown.ConvertNode(root)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// plain is the tree's text: a line for each block, nothing else.
func plain(root *html.Node) string {
	var out strings.Builder
	fresh := true // at the start of a line
	line := func() {
		if !fresh {
			out.WriteByte('\n')
			fresh = true
		}
	}
	var walk func(n *html.Node, pre bool)
	walk = func(n *html.Node, pre bool) {
		if n.Type == html.TextNode {
			if pre {
				out.WriteString(n.Data)
				fresh = strings.HasSuffix(n.Data, "\n")
				return
			}
			s := strings.Join(strings.Fields(n.Data), " ")
			if s == "" && fresh {
				return
			}
			if !fresh && strings.TrimLeftFunc(n.Data, unicode.IsSpace) != n.Data && !strings.HasSuffix(out.String(), " ") {
				out.WriteByte(' ')
			}
			out.WriteString(s)
			fresh = false
			if s != "" && strings.TrimRightFunc(n.Data, unicode.IsSpace) != n.Data {
				out.WriteByte(' ')
			}
			return
		}
		inline := n.Data == "a" || n.Data == "code" || n.Data == "strong" || n.Data == "em"
		cell := n.Data == "td" || n.Data == "th"
		if cell && n.PrevSibling != nil && !fresh {
			out.WriteByte('\t')
		} else if !inline {
			line()
		}
		for c := range n.ChildNodes() {
			walk(c, pre || n.Data == "pre")
		}
		if !inline && !cell {
			line()
		}
	}
	walk(root, false)
	return strings.TrimSpace(out.String())
}

// clean takes out of a text what has no place in it: control characters, characters for private use and the invisible ones of plane 14.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return '\n'
		case r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0xe000 && r < 0xf900 || r >= 0xe0000:
			return -1
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// escapeText makes a text of a page one that means nothing in Markdown, with as few backslashes as that takes. Its cost is linear.
func escapeText(s string, link, table, first bool) string {
	var out strings.Builder
	out.Grow(len(s) + 8)
	if body := strings.TrimLeft(s, " \t\n"); first && body != "" {
		out.WriteString(s[:len(s)-len(body)])
		s = body
		digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
		switch {
		case strings.IndexByte("#>=~", s[0]) >= 0, (s[0] == '-' || s[0] == '+') && (len(s) == 1 || strings.IndexByte(" \t\n-", s[1]) >= 0):
			if s[0] == '>' {
				out.WriteString(`\` + plainMore)
			} else {
				out.WriteString(`\` + s[:1])
			}
			s = s[1:]
		case digits > 0 && digits < 10 && digits < len(s) && (s[digits] == '.' || s[digits] == ')') &&
			(digits+1 == len(s) || strings.IndexByte(" \t\n", s[digits+1]) >= 0):
			out.WriteString(s[:digits] + `\` + s[digits:digits+1])
			s = s[digits+1:]
		}
	}
	last := len(strings.TrimRight(s, " \t\n")) - 1
	word := func(i int) bool {
		if i < 0 || i >= len(s) {
			return false
		}
		r, _ := utf8.DecodeRuneInString(s[i:])
		if c := s[i]; !utf8.RuneStart(c) {
			r, _ = utf8.DecodeLastRuneInString(s[:i+1])
		}
		return unicode.IsLetter(r) || unicode.IsDigit(r)
	}
	next := func(i int, of string) bool { return i+1 >= len(s) || strings.IndexByte(of, s[i+1]) >= 0 }
	space := func(i int) bool { return i >= 0 && i < len(s) && strings.IndexByte(" \t\n", s[i]) >= 0 }
	for i := 0; i < len(s); i++ {
		c := s[i]
		esc := false
		switch c {
		case '\\':
			esc = next(i, "\\`*_{}[]()#+-.!|<>~\"'$%&,/:;=?@^")
		case '`':
			esc = true
		case '*':
			esc = !(space(i-1) && space(i+1))
		case '_':
			esc = !(word(i-1) && word(i+1)) && !(space(i-1) && space(i+1))
		case '[':
			esc = link
		case ']':
			esc = link || next(i, "([:")
		case '#': // at the end of a heading the converter needs it
			esc = i == last
		case '!':
			esc = i+1 < len(s) && s[i+1] == '['
		case '|':
			esc = table
		case '<':
			switch r, _ := utf8.DecodeRuneInString(s[i+1:]); {
			case i+1 == len(s), r == '/', r == '!', r == '?', r < 0x80 && unicode.IsLetter(r):
				out.WriteString(escapedLess)
			default:
				out.WriteString(plainLess)
			}
			continue
		case '>':
			out.WriteString(plainMore)
			continue
		}
		if esc {
			out.WriteByte('\\')
		}
		out.WriteByte(c)
	}
	return out.String()
}

// truncate cuts s to at most n bytes, at the end of a line if there is one in the last part, otherwise at a character.
func truncate(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	if i := strings.LastIndexByte(s[:n], '\n'); i > n-n/8 {
		n = i
	}
	return s[:n], true
}
