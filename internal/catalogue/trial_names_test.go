package catalogue_test

import (
	"testing"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/catalogue"
)

// A trial takes no name from a tool of the operator's, though its own was accepted before.
func TestATrialTakesNoName(t *testing.T) {
	w := newWorld(t, func(o *catalogue.Options) {
		o.Classify = func(server, tool string) catalogue.Classification {
			c := classify(server, tool)
			switch server {
			case agent.TrialServer:
				c.Listed, c.Named = true, true
			case "shy":
				c.Listed, c.Named, c.ExposeAs = true, true, "doctor_"+tool
			}
			return c
		}
	})
	w.offer(agent.TrialServer, definition(agent.TrialServer, "read", "Reads a text."))
	w.offer("shy", definition("shy", "read", "A tool."))
	w.offer(agent.TrialServer, definition(agent.TrialServer, "read", "Reads a text."), definition(agent.TrialServer, "send", "Sends a text."))
	if op := w.c.Snapshot().Lookup("doctor_read"); op == nil || op.ID != "shy.read" {
		t.Errorf("doctor_read is %+v", op)
	}
	if op := w.c.Snapshot().Lookup("doctor_send"); op == nil || op.ID != "doctor.send" {
		t.Errorf("doctor_send is %+v", op)
	}
}
