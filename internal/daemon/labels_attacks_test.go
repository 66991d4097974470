package daemon

import (
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/labels"
	"sallyport.example/provenance"
)

// TestLabelsOfTheCatalogueUnderAttack: what a server would carry from a session with private data to others, or to other sessions, is no free call of it.
func TestLabelsOfTheCatalogueUnderAttack(t *testing.T) {
	all, err := labels.All()
	if err != nil {
		t.Fatal(err)
	}
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
	classify := c.Classifier(nil)
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
