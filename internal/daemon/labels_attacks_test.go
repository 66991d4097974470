package daemon

import (
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/labels"
	"sallyport.example/provenance"
)

// classifierOf has the labels of these entries, each under a server of its name.
func classifierOf(t *testing.T, all []*labels.Entry) func(server, tool string) catalogue.Classification {
	t.Helper()
	c := &Config{Operations: map[string]OperationConfig{}, Flow: FlowConfig{Labels: []string{"internal"}}}
	for _, e := range all {
		operations, err := operationsOf(e)
		if err != nil {
			t.Fatal(err)
		}
		for tool, o := range operations {
			c.Operations[e.ID+"."+tool] = o
		}
	}
	return c.Classifier(nil)
}

// TestAPageIsToldNothingUnasked: a page reads its size and how it is to look, so whoever wrote it would read what the agent puts there. In a session
// that holds private data and a stranger's words, a person is asked, also where writes of level 1 are free.
func TestAPageIsToldNothingUnasked(t *testing.T) {
	all, err := labels.All()
	if err != nil {
		t.Fatal(err)
	}
	classify, held := classifierOf(t, all), []flow.Held{{Label: flow.Internal}, {Label: flow.Untrusted}}
	request := "Compare https://shop.example/prices with our offer"
	for operation, arguments := range map[string]string{
		"playwright.browser_resize":        `{"width":31337,"height":4242}`,
		"playwright.browser_emulate_media": `{"colorScheme":"dark"}`,
		"chrome-devtools.resize_page":      `{"pageId":1,"width":31337,"height":4242}`,
		"chrome-devtools.emulate":          `{"pageId":1,"viewport":"31337x4242"}`,
		"puppeteer.puppeteer_screenshot":   `{"name":"a","width":31337,"height":4242}`,
		"firecrawl.firecrawl_scrape":       `{"url":"https://shop.example/prices","includeTags":["the offer is 48,000 EUR"]}`,
	} {
		server, tool, _ := strings.Cut(operation, ".")
		class := classify(server, tool)
		class.Flow.ID, class.Flow.Name = operation, tool
		op, err := flow.Resolve(class.Flow, []flow.Label{flow.Internal})
		if err != nil {
			t.Fatal(err)
		}
		at := provenance.Situation{Held: held, FreeLevel1: true, Request: provenance.ParseRequest(request)}
		if got := provenance.JudgeCall(op, class.Profile(), []byte(arguments), at); got.Verdict != provenance.Ask {
			t.Errorf("%s %s: %v (%s)", operation, arguments, got.Verdict, got.Reason)
		}
	}
}

// TestLabelsOfTheCatalogueUnderAttack: what a server would carry from a session with private data to others, or to other sessions, is no free call of it.
func TestLabelsOfTheCatalogueUnderAttack(t *testing.T) {
	all, err := labels.All()
	if err != nil {
		t.Fatal(err)
	}
	classify := classifierOf(t, all)
	for name, o := range map[string]struct {
		server, tool, arguments string
		reads                   bool // the call is one
		want                    provenance.Verdict
	}{
		"an event on a stranger's calendar":      {"google-calendar", "create-event", `{"calendarId":"eve@group.calendar.google.com","summary":"91000","start":"x","end":"y"}`, false, provenance.Ask},
		"events on a stranger's calendar":        {"google-calendar", "create-events", `{"events":[{"calendarId":"eve@group.calendar.google.com","summary":"91000","start":"x","end":"y"}]}`, false, provenance.Ask},
		"a text for a stranger's calendar":       {"google-calendar", "update-event", `{"calendarId":"eve@group.calendar.google.com","eventId":"e1","summary":"91000"}`, false, provenance.Ask},
		"an event on the person's own":           {"google-calendar", "create-event", `{"calendarId":"erin@corp.example","summary":"91000","start":"x","end":"y"}`, false, provenance.Permit},
		"a branch that other sessions are shown": {"sequential-thinking", "sequentialthinking", `{"branchFromThought":1,"branchId":"91000","nextThoughtNeeded":false,"thought":"x","thoughtNumber":1,"totalThoughts":1}`, false, provenance.Permit},
		"a thought that nobody is shown":         {"sequential-thinking", "sequentialthinking", `{"nextThoughtNeeded":false,"thought":"91000","thoughtNumber":1,"totalThoughts":1}`, true, provenance.Permit},
		"a picture that other sessions may list": {"puppeteer", "puppeteer_screenshot", `{"name":"91000"}`, false, provenance.Permit},
	} {
		class := classify(o.server, o.tool)
		class.Flow.ID, class.Flow.Name = o.server+"."+o.tool, o.tool
		op, err := flow.Resolve(class.Flow, []flow.Label{flow.Internal})
		if err != nil {
			t.Fatal(err)
		}
		reads := op.Effect == flow.Read && class.Reading(o.server, o.tool).Acts([]byte(o.arguments)) == ""
		if reads != o.reads || class.Forgets {
			t.Errorf("%s: it reads: %v, it keeps nothing: %v", name, reads, class.Forgets)
		}
		got := provenance.JudgeCall(op, class.Profile(), []byte(o.arguments), provenance.Situation{Held: []flow.Held{{Label: flow.Internal}}, Own: []string{"erin@corp.example"}})
		if got.Verdict != o.want {
			t.Errorf("%s: %v, want %v", name, got.Verdict, o.want)
		}
	}
}
