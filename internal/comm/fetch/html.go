package fetch

import (
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"sallyport.example/internal/css"
)

// The work on a page is bounded by these, not by trust in the page.
const (
	maxNodes  = 100_000 // of the tree that is rendered
	maxTokens = 400_000 // tags and texts that are read
	maxDepth  = 96      // levels of the tree; what is deeper is put into the last level
	maxNest   = 8       // lists and quotations in each other: each indents every line in it
	maxCells  = 100_000 // rows times columns of a table; a larger one is shown as text
	maxLook   = 256     // open elements that an end tag looks through
	maxAttrs  = 64      // attributes of an element; one with more is not shown
	maxLink   = 4096    // bytes
	maxTitle  = 300     // characters
)

// entry is an element that the page has opened. The elements in it inherit everything but the name.
type entry struct {
	name                        string
	node                        *html.Node // where its content goes
	depth, nest                 int
	drop                        bool // nothing in it is shown
	pre, code, link, table, svg bool
}

// builder makes the tree of the text that is shown from a page's tags, in one pass whose cost is linear in the page's length. It follows HTML's error
// correction as far as needed not to show text that a browser hides; where the two differ, it hides more. It is not html.Parse, because
// that one's error correction makes gigabytes of some pages of 1 MB.
type builder struct {
	origin, base *url.URL
	based        bool // a <base> was seen
	markdown     bool
	budget       int // bytes of text that may still come

	stack    []entry
	open     map[string]int // how many of a name are in stack
	text     strings.Builder
	title    strings.Builder
	titled   bool
	nodes    int
	sections []*html.Node // main, article
	asides   []*html.Node // nav, header, footer, aside
	tables   []*html.Node
}

func set(names string) map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(names) {
		m[n] = true
	}
	return m
}

var (
	// The content of these is not shown, or not as text of the page.
	unseen = set(`script style noscript template iframe object embed applet canvas audio video svg noframes noembed select datalist textarea
		annotation annotation-xml rp progress meter`)
	void = set("area base basefont bgsound br col embed frame hr image img input keygen link meta param source track wbr")
	// The elements that HTML calls special: an end tag of an inline element doesn't reach through them.
	special = set(`address applet article aside blockquote button caption center colgroup dd details dialog dir div dl dt fieldset figcaption figure
		footer form frameset h1 h2 h3 h4 h5 h6 header hgroup iframe li listing main marquee menu nav noembed noframes noscript object ol
		p plaintext pre script search section select style summary table tbody td template textarea tfoot th thead title tr ul xmp`)
	// An end tag of a block doesn't reach through these, whatever its name.
	barrier = set("table td th caption marquee object template applet")
	headers = set("h1 h2 h3 h4 h5 h6")
	cells   = set("table caption thead tbody tfoot tr td th colgroup")
	// A start tag of these ends an open p.
	endsP = set(`address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6
		header hgroup hr li listing main menu nav ol p plaintext pre search section summary table ul xmp`)
	// The names of elements in the tree. Special ones that are not here are a div; others leave their content to their parent.
	shown = map[string]string{"b": "strong", "strong": "strong", "i": "em", "em": "em", "code": "code", "kbd": "code", "samp": "code", "tt": "code",
		"a": "a", "h1": "h1", "h2": "h2", "h3": "h3", "h4": "h4", "h5": "h5", "h6": "h6", "p": "p", "blockquote": "blockquote",
		"ul": "ul", "menu": "ul", "dir": "ul", "ol": "ol", "li": "li", "pre": "pre", "listing": "pre", "xmp": "pre", "plaintext": "pre",
		"table": "table", "thead": "thead", "tbody": "tbody", "tfoot": "tfoot", "tr": "tr", "td": "td", "th": "th", "caption": "caption"}
)

// build reads a page that came from the address origin. cut tells whether a bound cut the page short.
func build(page string, origin *url.URL, markdown bool, budget int) (b *builder, root *html.Node, cut bool) {
	root = &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div}
	b = &builder{origin: origin, base: origin, markdown: markdown, budget: budget, open: map[string]int{}, stack: []entry{{node: root}}}
	z := html.NewTokenizer(strings.NewReader(page))
	for range maxTokens {
		if b.nodes >= maxNodes || b.budget <= 0 {
			break
		}
		switch z.Next() {
		case html.ErrorToken:
			b.flush()
			return b, root, b.budget <= 0
		case html.TextToken:
			switch t := b.top(); {
			case t.name == "title" && !t.svg && !b.titled:
				b.title.Write(z.Text())
			case !t.drop:
				b.text.Write(z.Text())
			}
		case html.StartTagToken:
			b.start(z, false)
		case html.SelfClosingTagToken:
			b.start(z, true)
		case html.EndTagToken:
			name, _ := z.TagName()
			b.end(string(name))
		}
	}
	b.flush()
	return b, root, true
}

func (b *builder) top() *entry { return &b.stack[len(b.stack)-1] }

func (b *builder) add(n *html.Node) {
	b.nodes++
	b.top().node.AppendChild(n)
}

func element(name string, attr ...html.Attribute) *html.Node {
	return &html.Node{Type: html.ElementNode, Data: name, DataAtom: atom.Lookup([]byte(name)), Attr: attr}
}

// flush puts the text that came since the last change of the tree into it.
func (b *builder) flush() {
	if b.text.Len() == 0 {
		return
	}
	t := b.top()
	raw, room := b.text.String(), max(b.budget, 0)
	if t.pre { // each line may be indented by each list
		room /= 1 + 4*t.nest
	}
	if len(raw) > room {
		raw, _ = truncate(raw, room)
		b.budget = 0
	}
	s := clean(raw)
	b.text.Reset()
	b.budget -= len(raw)
	if t.pre {
		b.budget -= strings.Count(s, "\n") * 4 * t.nest
	} else if t.code {
		s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	} else if b.markdown {
		prev := t.node.LastChild
		s = escapeText(s, t.link, t.table, prev == nil || prev.Data == "br")
	}
	if s != "" {
		b.add(&html.Node{Type: html.TextNode, Data: s})
	}
}

func (b *builder) start(z *html.Tokenizer, selfClosing bool) {
	raw, more := z.TagName()
	name := string(raw)
	attr, hide := attributes(z, more)
	switch name {
	case "html", "body": // a second one gives its attributes to the first
		if hide {
			b.text.Reset()
			root := b.stack[0].node
			root.FirstChild, root.LastChild = nil, nil
			b.sections, b.asides, b.tables = nil, nil, nil
			for i := range b.stack {
				b.stack[i].drop = true
			}
		}
		return
	case "head":
		return
	case "base":
		if href, ok := attr["href"]; ok && !b.based {
			b.based = true
			if u, err := b.origin.Parse(strings.TrimSpace(href)); err == nil && u.Scheme == b.origin.Scheme && u.Host == b.origin.Host {
				b.base = u
			}
		}
		return
	case "dialog":
		_, isOpen := attr["open"]
		hide = hide || !isOpen
	case "svg":
		hide = true
	}
	if cells[name] && name != "table" && b.open["table"] == 0 {
		return // a browser drops it
	}
	b.imply(name)
	t := b.top()
	if void[name] {
		if !t.drop && !hide {
			b.leaf(name, attr)
		}
		return
	}
	if selfClosing && (t.svg || b.open["math"] > 0) && !hide {
		return
	}
	e := *t
	e.name = name
	e.drop = t.drop || hide || unseen[name] || name == "title"
	e.svg = t.svg || name == "svg"
	if !e.drop {
		if n := b.node(name, attr, &e); n != nil {
			b.flush()
			if last := t.node.LastChild; n.Data == "a" && b.markdown && last != nil && last.Type == html.TextNode && strings.HasSuffix(last.Data, "!") {
				last.Data = strings.TrimSuffix(last.Data, "!") + `\!` // else it and the link would be an image
			}
			b.add(n)
			e.node = n
			e.depth++
		}
	}
	b.stack = append(b.stack, e)
	b.open[name]++
}

// node makes the tree's element for a start tag, or nil for one whose content is its parent's. It notes in e what holds for the content.
func (b *builder) node(name string, attr map[string]string, e *entry) *html.Node {
	as := shown[name]
	if as == "" && (special[name] || strings.Contains(name, "-")) {
		as = "div"
	}
	if as == "" || e.depth >= maxDepth {
		return nil
	}
	n := element(as)
	switch name {
	case "main", "article":
		b.sections = append(b.sections, n)
	case "nav", "header", "footer", "aside":
		b.asides = append(b.asides, n)
	}
	switch as {
	case "div":
		if attr["role"] == "main" {
			b.sections = append(b.sections, n)
		}
	case "a":
		href := b.link(attr["href"], true)
		if href == "" || e.link {
			return nil
		}
		n.Attr = []html.Attribute{{Key: "href", Val: href}}
		e.link = true
	case "ul", "ol", "blockquote":
		if e.nest++; e.nest > maxNest {
			return nil
		}
		if v, err := strconv.Atoi(attr["start"]); as == "ol" && err == nil && v >= 0 && v < 1_000_000 {
			n.Attr = []html.Attribute{{Key: "start", Val: strconv.Itoa(v)}}
		}
	case "pre":
		if e.link || e.code {
			return nil
		}
		e.pre = true
		n.Attr = language(attr["class"])
	case "code":
		if e.code {
			return nil
		}
		e.code = true
		n.Attr = language(attr["class"])
	case "table":
		e.table = true
		b.tables = append(b.tables, n)
	}
	if e.pre && as != "pre" && as != "code" {
		return nil // what is preformatted stays as it is
	}
	return n
}

func (b *builder) leaf(name string, attr map[string]string) {
	switch t := b.top(); name {
	case "br":
		if t.pre {
			b.text.WriteByte('\n')
			return
		}
		b.flush()
		b.add(element("br"))
	case "hr":
		b.flush()
		b.add(element("hr"))
	case "img", "image":
		alt := strings.Join(strings.Fields(clean(attr["alt"])), " ")
		if alt == "" || t.code || t.pre {
			return
		}
		b.budget -= len(alt)
		src := b.link(attr["src"], false)
		if src == "" || !b.markdown {
			b.text.WriteString(" " + alt + " ")
			return
		}
		b.flush()
		b.add(element("img", html.Attribute{Key: "alt", Val: escapeText(alt, true, t.table, false)}, html.Attribute{Key: "src", Val: src}))
	}
}

// imply ends the elements that a start tag ends.
func (b *builder) imply(name string) {
	// In a page without a doctype, a table stays in the p; where that makes a difference here, it does so in every page.
	if endsP[name] && !(name == "table" && b.top().drop) {
		b.close(func(n string) bool { return n == "p" }, func(n string) bool { return barrier[n] || n == "button" }, b.open["p"])
	}
	switch {
	case headers[name]:
		if headers[b.top().name] {
			b.pop(len(b.stack) - 1)
		}
	case name == "li":
		b.close(func(n string) bool { return n == "li" }, itemBarrier, b.open["li"])
	case name == "dd" || name == "dt":
		b.close(func(n string) bool { return n == "dd" || n == "dt" }, itemBarrier, b.open["dd"]+b.open["dt"])
	case name == "a":
		b.close(func(n string) bool { return n == "a" }, func(n string) bool { return special[n] }, b.open["a"])
	case name == "td" || name == "th":
		b.close(func(n string) bool { return n == "td" || n == "th" || n == "caption" }, tableBarrier, b.open["td"]+b.open["th"]+b.open["caption"])
	case name == "tr":
		b.close(func(n string) bool { return n == "tr" || n == "caption" }, tableBarrier, b.open["tr"]+b.open["caption"])
	case cells[name] && name != "table":
		b.close(func(n string) bool { return n == "thead" || n == "tbody" || n == "tfoot" || n == "caption" }, tableBarrier,
			b.open["thead"]+b.open["tbody"]+b.open["tfoot"]+b.open["caption"])
	}
}

func itemBarrier(n string) bool  { return special[n] && n != "address" && n != "div" && n != "p" }
func tableBarrier(n string) bool { return n == "table" || n == "template" }

func (b *builder) end(name string) {
	is, stop, open := func(n string) bool { return n == name }, func(n string) bool { return barrier[n] }, b.open[name]
	switch {
	case headers[name]:
		is, open = func(n string) bool { return headers[n] }, 1
	case name == "template":
		stop = func(string) bool { return false }
	case cells[name]:
		stop = tableBarrier
	case name == "p":
		stop = func(n string) bool { return barrier[n] || n == "button" }
	case name == "li":
		stop = func(n string) bool { return barrier[n] || n == "ol" || n == "ul" }
	case name == "form" || !special[name]: // a browser that ends a form leaves what is open in it
		stop = func(n string) bool { return special[n] }
	}
	if name == "title" && b.top().name == "title" && !b.top().svg {
		b.titled = true
	}
	b.close(is, stop, open)
}

// close ends the innermost open element that is, unless it is behind one that stops the search, or too far.
func (b *builder) close(is, stop func(string) bool, open int) {
	if open == 0 {
		return
	}
	for i := len(b.stack) - 1; i > 0 && i >= len(b.stack)-maxLook; i-- {
		switch n := b.stack[i].name; {
		case is(n):
			b.pop(i)
			return
		case stop(n):
			return
		}
	}
}

// pop ends the element at i and all in it. Text on both sides of an end that is not in the tree stays one text: the converter would join it
// at quadratic cost.
func (b *builder) pop(i int) {
	if b.stack[i-1].node != b.top().node {
		b.flush()
	}
	for _, e := range b.stack[i:] {
		b.open[e.name]--
	}
	b.stack = b.stack[:i]
}

// link makes the address of a link absolute, or returns "" if it may not be shown: only https, http and, for links, mailto.
func (b *builder) link(href string, mail bool) string {
	href = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, strings.TrimSpace(href))
	if href == "" || len(href) > maxLink {
		return ""
	}
	u, err := b.base.Parse(href)
	if err != nil || !(u.Scheme == "https" && u.Host != "" || u.Scheme == "http" && u.Host != "" || mail && u.Scheme == "mailto" && u.Opaque != "") {
		return ""
	}
	u.User = nil // it only deceives
	var out strings.Builder
	for _, c := range []byte(u.String()) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("()<>[]\\`\"|^{}*", c) >= 0 {
			out.WriteString("%" + strings.ToUpper(strconv.FormatUint(uint64(c)+0x100, 16)[1:]))
		} else {
			out.WriteByte(c)
		}
	}
	if out.Len() > maxLink {
		return ""
	}
	return out.String()
}

// language finds the language that a class names for a piece of code.
func language(class string) []html.Attribute {
	for _, c := range strings.Fields(class) {
		lang, ok := strings.CutPrefix(c, "language-")
		if !ok {
			lang, ok = strings.CutPrefix(c, "lang-")
		}
		if ok && lang != "" && len(lang) <= 20 && strings.Trim(strings.ToLower(lang), "abcdefghijklmnopqrstuvwxyz0123456789+#-_") == "" {
			return []html.Attribute{{Key: "class", Val: "language-" + lang}}
		}
	}
	return nil
}

// attributes reads what is needed of an element's attributes, and whether they hide it.
func attributes(z *html.Tokenizer, more bool) (attr map[string]string, hide bool) {
	for n := 0; more; n++ {
		var k, v []byte
		k, v, more = z.TagAttr()
		if n >= maxAttrs {
			return attr, true
		}
		key := string(k)
		switch key {
		case "hidden", "popover":
			hide = true
		case "aria-hidden":
			hide = hide || strings.EqualFold(strings.TrimSpace(string(v)), "true")
		case "style":
			hide = hide || css.Hides(string(v))
		case "href", "src", "alt", "class", "start", "open", "role":
			if attr == nil {
				attr = map[string]string{}
			}
			if _, twice := attr[key]; !twice {
				attr[key] = string(v)
			}
		}
	}
	return attr, hide
}
