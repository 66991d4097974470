package console

import (
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// avoided finds the words of the list "Words that people don't read" of the glossary.
var avoided = sync.OnceValue(func() *regexp.Regexp {
	page, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		panic(err)
	}
	_, list, _ := strings.Cut(string(page), "## Words that people don't read")
	_, list, _ = strings.Cut(list, "|---|---|")
	list, _, _ = strings.Cut(list, "\n## ")
	var words []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllStringSubmatch(list, -1) {
		for word := range strings.SplitSeq(row[1], ", ") {
			switch {
			case strings.HasSuffix(word, "-"): // the beginning of a word, but for those that only look like it
				words = append(words, strings.TrimSuffix(word, "un-")+`un(?:approved|asked|common|confirmed|expected|known|likely|listed|quoted|related|safe|touched|trusted|usual)`)
			default:
				words = append(words, regexp.QuoteMeta(word))
			}
		}
	}
	if len(words) < 15 {
		panic("the glossary has no list of words that people don't read")
	}
	return regexp.MustCompile(`(?i)(?:^|[^\w.])(` + strings.Join(words, "|") + `)(?:$|[^\w.]|\.(?:$|\s))`)
})

var (
	quotedParts = regexp.MustCompile(`(?s)<(pre|code|q|blockquote|textarea|script|option)\b.*?</(?:pre|code|q|blockquote|textarea|script|option)>`)
	tags        = regexp.MustCompile(`(?s)<[^>]*>`)
	enums       = regexp.MustCompile(`enum:"[^"]*"`) // words of the wire, in a tag
	actions     = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
)

// ownWords is what a page says itself: without tags, and without what others wrote or what is data.
func ownWords(page string) string {
	return html.UnescapeString(strings.Join(strings.Fields(tags.ReplaceAllString(quotedParts.ReplaceAllString(page, " "), " ")), " "))
}

// TestWordsOfSources: no string of the program and no template has a word that people don't read.
func TestWordsOfSources(t *testing.T) {
	looked := 0
	check := func(where, text string) {
		looked++
		if found := avoided().FindStringSubmatch(text); found != nil {
			t.Errorf("%s says %q: docs/glossary.md has a better word", where, found[1])
		}
	}
	for _, dir := range []string{"../../internal", "../../cmd", "../../flow", "../../provenance"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case strings.HasSuffix(path, ".html"):
				text, err := os.ReadFile(path)
				check(path, ownWords(actions.ReplaceAllString(string(text), " ")))
				return err
			case !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"), strings.Contains(path, "/testdata/"), strings.Contains(path, "/store/"): // the store speaks SQL
				return nil
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if n, ok := n.(*ast.BasicLit); ok && n.Kind == token.STRING {
					if text, err := strconv.Unquote(n.Value); err == nil && strings.Contains(text, " ") {
						check(files.Position(n.Pos()).String(), enums.ReplaceAllString(text, ""))
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if looked < 5000 {
		t.Errorf("only %d strings were looked at", looked)
	}
}

// Letters from right to left stand in an element of their own, and nothing else does.
func TestKeepingOrder(t *testing.T) {
	for text, want := range map[string]any{
		"plain & simple":                "plain & simple",
		"pay שלום 12 now":               template.HTML("pay <bdi>שלום</bdi> 12 now"),
		"שלום 12 עולם":                  template.HTML("<bdi>שלום 12 עולם</bdi>"),
		"אב → גד (אב)":                  template.HTML("<bdi>אב</bdi> → <bdi>גד</bdi> (<bdi>אב</bdi>)"),
		"<b>אב</b> & ו":                 template.HTML("&lt;b&gt;<bdi>אב</bdi>&lt;/b&gt; &amp; <bdi>ו</bdi>"),
		"سلام a 3":                      template.HTML("<bdi>سلام</bdi> a 3"),
		"12 \"אב\" 34":                  template.HTML("12 &#34;<bdi>אב</bdi>&#34; 34"),
		"א\u05b0b\u05b0":                template.HTML("<bdi>א\u05b0</bdi>b<bdi>\u05b0</bdi>"),
		strings.Repeat("אב1 ", 2) + "z": template.HTML("<bdi>אב1 אב</bdi>1 z"),
	} {
		if got := keepingOrder(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Who did something is named as people name them, whatever the name holds.
func TestWhoDidIt(t *testing.T) {
	for actor, want := range map[string]string{
		"person:ann":             "ann",
		"session:sess_1":         `<a href="/sessions/sess_1">agent’s session</a>`,
		`session:"><script>x`:    `<a href="/sessions/&#34;&gt;&lt;script&gt;x">agent’s session</a>`,
		"host:desk":              "host desk",
		"rule:first-sight":       "rule first-sight",
		"gateway":                "gateway",
		"agent:<b>worker</b>":    "agent &lt;b&gt;worker&lt;/b&gt;",
		"person:\u202eann\x1b[m": `\u202eann\x1b[m`,
	} {
		var out strings.Builder
		page := template.Must(template.New("").Funcs(template.FuncMap{"by": by}).Parse("{{by .}}"))
		if err := page.Execute(&out, actor); err != nil || out.String() != want {
			t.Errorf("%q: %s, not %s (%v)", actor, out.String(), want, err)
		}
	}
}
