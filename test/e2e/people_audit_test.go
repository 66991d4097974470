package e2e

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"sallyport.example/client"
)

// An auditor finds entries by what stands in arguments and results: on the page, over HTTP and in the terminal. What was redacted can't be found, and a file
// has all that was found.
func TestPeopleFindEntriesByContent(t *testing.T) {
	d := newDesk(t, "")
	cs := d.agentOf(revision1125, nil)
	must(t, cs, "mail_search", map[string]any{"q": "Annamaria Meyerling"})
	must(t, cs, "mail_search", map[string]any{"q": "another customer"})
	query := client.AuditQuery{Text: `"annamaria meyerling"`, Newest: true}
	var page *client.AuditPage
	eventually(t, patience, "the index has the calls", func() bool {
		var err error
		if page, err = d.root.Audit(t.Context(), query); err != nil {
			t.Fatal(err)
		}
		return len(page.Entries) > 0 && page.Searched != nil && page.Searched.To == page.Searched.Size
	})
	for _, e := range page.Entries {
		if e.Operation != "mail.search" {
			t.Errorf("it found %+v", e)
		}
	}

	ann := d.ann()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1280, 390, 360} {
			ann.look(scheme, width)
			ann.open(d.admin + "/audit?q=annamaria&since=7d")
			ann.see("call began")
			if strings.Contains(ann.text(), "session opened") {
				t.Error("the page has other entries, too")
			}
			ann.shot(fmt.Sprintf("audit-%s-%d", scheme, width))
		}
	}
	body, err := d.root.AuditDownload(t.Context(), query, "csv")
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(body)
	body.Close()
	if err != nil || strings.Count(string(all), "mail.search") != len(page.Entries) || strings.Contains(string(all), "another customer") {
		t.Errorf("%v\n%s", err, all)
	}
}
