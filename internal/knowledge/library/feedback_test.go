package library

import (
	"context"
	"strings"
	"testing"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
)

// said is a world in which agents said sentences with "agent says", and in which people answered what stands in lines of the export export_1.
type said struct{}

func (said) Holds(part string) (from string, found bool) {
	return "run_1", strings.Contains(part, "agent says")
}

func (said) Imported(_ context.Context, export, content string) (text, from string, labels []string, err error) {
	if export != "export_1" || !strings.HasPrefix(content, "{") {
		return "", "", nil, fault.New(fault.RequestMalformed, "There was no export %q.", export)
	}
	return `{"synthetic":true,"output":"agent says it"}`, export, []string{"internal"}, nil
}

// What an agent said is refused by its tag and by the words of one chunk, in the first version and in a later one, unless its author says that it is theirs:
// that is in the event, and in its entry.
func TestAgentsWordsAreRefused(t *testing.T) {
	p := open(t, t.TempDir())
	others := strings.Repeat("Words of people, which nobody else ever said. ", 60)
	texts := map[string]string{
		"words":           "agent says so",
		"in one chunk":    others + "\n\n" + "agent says so" + "\n\n" + others,
		"a tag":           `{"text": "short", "synthetic" : true}`,
		"a tag in a page": "# Notes\n\n```json\n{\"Synthetic\":\n true}\n```\n",
		"a tag in YAML":   "text: short\nsynthetic: true\n",
	}
	for name, text := range texts {
		a := Adding{Source: "handbook", Key: name, Content: text, Type: knowledge.Markdown}
		if _, err := p.Add(t.Context(), "person:a", a); !fault.Is(err, fault.ContentSynthetic) || !strings.Contains(fault.Of(err).Remedy, "own: true") {
			t.Errorf("%s is added: %v", name, err)
		}
		if _, err := p.Document(knowledge.DocumentID("handbook", name)); err == nil {
			t.Errorf("%s is there", name)
		}
		a.Content = "mine " + name
		d, err := p.Add(t.Context(), "person:a", a)
		must(t, err)
		a.Content = text
		if _, err := p.AddVersion(t.Context(), "person:a", d.ID(), 1, a); !fault.Is(err, fault.ContentSynthetic) {
			t.Errorf("%s is the second version: %v", name, err)
		}
		a.Own = true
		d, err = p.AddVersion(t.Context(), "person:a", d.ID(), 1, a)
		must(t, err)
		if own := d.Now().Version.Own; own != "run_1" && own != "synthetic" {
			t.Errorf("%s: the person's word is %q", name, own)
		}
		a.Own, a.UnlessSame = false, true // the same folder is added again
		if again, err := p.AddVersion(t.Context(), "person:a", d.ID(), 2, a); err != nil || again.Now().Version.Version != 2 {
			t.Errorf("%s again: %v", name, err)
		}
	}
	d, err := p.Add(t.Context(), "person:a", Adding{Source: "handbook", Key: "mine", Content: "It is synthetic, and true: words of people.", Own: true})
	must(t, err)
	if own := d.Now().Version.Own; own != "" {
		t.Errorf("the person's own words are said to be those of %s", own)
	}
	entries, _, err := p.db.Entries(t.Context(), audit.Filter{Action: "knowledge.version", Limit: 100})
	must(t, err)
	if len(entries) != len(texts) || !strings.Contains(string(entries[0].Detail), `"own":"`) {
		t.Errorf("%d entries: %s", len(entries), entries[0].Detail)
	}
}

// Into the collection of exports goes what people answered, in the words of the record, with its export and labels; and nothing else, whoever says that it is theirs.
func TestExportsComeIn(t *testing.T) {
	p := open(t, t.TempDir())
	d, err := p.Add(t.Context(), "person:a", Adding{Source: knowledge.ExportCollection, Key: "answers", Content: "{}", Snapshot: "export_1"})
	must(t, err)
	v := d.Now().Version
	text, err := p.Text(t.Context(), d, v)
	must(t, err)
	if text != `{"synthetic":true,"output":"agent says it"}` || v.Snapshot != "export_1" || v.Own != "" || strings.Join(v.Labels, " ") != "internal" {
		t.Errorf("%q %+v", text, v)
	}
	for name, a := range map[string]Adding{
		"other text":     {Content: "my own words", Snapshot: "export_1"},
		"no such export": {Content: "{}", Snapshot: "export_2"},
		"said to be own": {Content: "agent says so", Snapshot: "export_1", Own: true},
	} {
		a.Source, a.Key = knowledge.ExportCollection, name
		if _, err := p.Add(t.Context(), "person:a", a); err == nil {
			t.Errorf("%s is added", name)
		}
		if _, err := p.AddVersion(t.Context(), "person:a", d.ID(), 1, a); err == nil {
			t.Errorf("%s is a version", name)
		}
	}
}
