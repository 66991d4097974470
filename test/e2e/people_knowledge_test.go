package e2e

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"sallyport.example/client"
	"sallyport.example/internal/knowledge"
)

// drop puts files into a field of the page, as choosing or dropping them does.
func (b *browser) drop(selector string, paths ...string) {
	b.t.Helper()
	b.settle()
	b.do("drop files", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		var found struct {
			Root struct {
				NodeID int `json:"nodeId"`
			} `json:"root"`
			NodeID int `json:"nodeId"`
		}
		if err := t.Call(ctx, "DOM.getDocument", map[string]any{}, &found); err != nil {
			return err
		}
		if err := t.Call(ctx, "DOM.querySelector", map[string]any{"nodeId": found.Root.NodeID, "selector": selector}, &found); err != nil {
			return err
		}
		return t.Call(ctx, "DOM.setFileInputFiles", map[string]any{"files": paths, "nodeId": found.NodeID}, nil)
	}))
}

// The pages of the knowledge store, with scripts and without: files are dropped and become documents, versions are compared, a search finds, and what is withdrawn names who read it.
func TestPeopleKnowledge(t *testing.T) {
	t.Parallel()
	w := launch(t, newPlace(t, "flow: {labels: [internal, pii, secret]}\n", reads("reader", "knowledge.handbook", "")))
	folder := t.TempDir()
	travel, odd, broken := filepath.Join(folder, "travel.md"), filepath.Join(folder, "odd.html"), filepath.Join(folder, "broken.pdf")
	write(t, travel, "# Travel\n\nExpenses for travel abroad are paid within thirty days.\n\nAsk the office "+strings.Repeat("for a very long form ", 20)+"\n")
	write(t, odd, `<h1>Odd</h1><p>&lt;script&gt;window.__pwned=1&lt;/script&gt;"&gt;&lt;img src=x onerror="window.__pwned=1"&gt; words</p>`)
	write(t, broken, "%PDF-1.4 nothing")
	plain, b := w.ann(), w.ann()
	plain.withoutScripts()
	plain.open(w.admin + "/knowledge")
	plain.see("There are no documents yet")
	plain.enter("#source", "handbook")
	plain.drop("#files", travel, odd, broken)
	plain.submit("form[action='/knowledge/add']")
	plain.see("2 added")
	plain.see("broken.pdf: content: The file can't be read as application/pdf")
	id := knowledge.DocumentID("handbook", "travel.md")
	plain.enter("#source", "handbook")
	plain.expect("403 (Forbidden)")
	plain.enter("#url", "https://vendor.invalid/terms")
	plain.submit("form[action='/knowledge/add']")
	plain.see("comm.allowed_domains")
	if n := len(slices.DeleteFunc(w.entries(), func(e client.Entry) bool { return e.Action != "knowledge.fetch" || e.Decision != "deny" })); n != 1 {
		t.Errorf("%d refused addresses are on record", n)
	}

	write(t, travel, "# Travel\n\nExpenses for travel abroad are paid within ninety days.\n")
	b.open(w.admin + "/knowledge/" + id)
	b.drop("#file", travel)
	b.submit("form[action$='/versions']")
	b.see("What version 2 changed")
	b.see("ninety")
	b.accessible("page-knowledge-diff")
	b.open(w.admin + "/knowledge")
	b.click("form[action='/knowledge/snapshots'] button")
	b.see("with 2 documents")

	_, token := w.open("reader")
	must(t, w.connect(token, revision1125, nil), "knowledge_search", map[string]any{"query": "travel expenses"})
	for _, path := range []string{"/knowledge", "/knowledge?q=travel+expenses", "/knowledge/" + id, "/knowledge/" + id + "?version=1", "/knowledge/" + knowledge.DocumentID("handbook", "odd.html")} {
		b.open(w.admin + path)
		b.accessible("page" + strings.NewReplacer("/", "-", "?", "-", "=", "-", id, "doc").Replace(path))
		b.look("dark", 360)
		b.shot("knowledge-360" + strings.NewReplacer("/", "-", "?", "-", "=", "-", id, "doc").Replace(path))
		if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
			t.Errorf("%s is %d pixels too wide at 360", path, over)
		}
		if eval[bool](b, "!!window.__pwned") {
			t.Errorf("%s ran what stands in a document", path)
		}
		b.look("light", 1280)
	}

	plain.open(w.admin + "/knowledge")
	plain.enter("#from_source", "handbook")
	plain.enter("#why-withdraw", "it was poisoned")
	plain.submit("form[action='/knowledge/withdraw']")
	plain.see("2 documents withdrawn")
	plain.see("Agents reader")
	b.open(w.admin + "/knowledge/" + id)
	b.see("nobody reads it any more")
	b.accessible("page-knowledge-withdrawn")
}

// submit presses the button of a form. After drop, whose commands of the DOM the mouse of the tests does not survive, a click would wait for ever.
func (b *browser) submit(form string) {
	b.t.Helper()
	_, _ = try[any](b, "document.querySelector("+quote(form+" button")+").click()") // the answer is lost with the page
}
