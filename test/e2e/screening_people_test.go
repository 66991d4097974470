package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.example/client"
)

// A person judges what screening found, and some of what it found nothing in, on the page of it: it is readable on a screen and on a phone, and its figures follow from the answers.
func TestVerdictsInTheBrowser(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "threat: {input: observe}\n") // else each hit waits for a person
	agent := d.agentOf(revision1125, nil)
	sampled := func() bool {
		return slices.ContainsFunc(d.entries(), func(e client.Entry) bool { return strings.Contains(string(e.Detail), `"sampled"`) })
	}
	for n := 0; !sampled(); n++ { // one call in 20, by the digest of its id
		if n == 100 {
			t.Fatal("none of 1,000 calls is in the sample")
		}
		for i := range 10 {
			must(t, agent, "mail_search", map[string]any{"q": fmt.Sprint("the offer ", n, i)})
		}
	}
	for n := range 3 {
		must(t, agent, "mail_search", map[string]any{"q": fmt.Sprint(ordersAgent, n)})
	}
	b := d.ann()
	b.open(d.admin + "/audit/screening")
	b.see("Screening")
	b.accessible("screening")
	if text := b.text(); strings.Contains(text, "mallory") || strings.Count(text, "A false alarm") != 3 || !strings.Contains(text, "No attack") {
		t.Errorf("%s", text)
	}
	b.click(`#hits + ul li:first-child button[value="none"]`)
	b.see("1 of 1 judged")
	b.accessible("screening-judged")
	d.sane()
}
