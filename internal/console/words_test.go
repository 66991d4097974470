package console

import (
	"go/ast"
	"go/parser"
	"go/token"
	"html"
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
