package console

import (
	"context"
	"testing"

	"sallyport.example/internal/anchor"
)

// Whoever reads the overview sees how the log stands to its anchor, and that there is none.
func TestAnchorOnTheOverview(t *testing.T) {
	w := newPagesWorld(t)
	contains(t, w.ask("viewer", "/", nil).Body.String(), "Anchor of the log", "<p>not configured: nothing outside the data directory")
	for _, c := range []struct{ state, mark string }{{"ok", `<p class="fine">`}, {"late", `<p class="bad" role="alert">`}, {"missing", `<p class="bad" role="alert">`}, {"behind", `<p class="bad" role="alert">`}, {"forked", `<p class="bad" role="alert">`}, {"unreadable", `<p class="bad" role="alert">`}} {
		w.c.o.Anchor = func(context.Context) anchor.Status {
			return anchor.Status{State: c.state, Text: c.state + ": so it is.", Place: "/elsewhere/<anchor>"}
		}
		contains(t, w.ask("auditor", "/", nil).Body.String(), c.mark+c.state+": so it is.</p>", "In /elsewhere/&lt;anchor&gt;.")
	}
}
