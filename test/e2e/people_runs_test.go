package e2e

import (
	"strings"
	"testing"
	"time"
)

// The incident advisor in the browser, from the run that a person starts to the recommendation that a person approves.
func TestRunsInTheBrowser(t *testing.T) {
	t.Parallel()
	w, _, pager := onDuty(t, "", advisor(program(t)+pages, 60_000))
	carol, alice := newBrowser(t), newBrowser(t)
	carol.signIn(w, w.tokenOf("carol", "operator"))
	alice.signIn(w, w.tokenOf("alice", "approver"))

	carol.expect("400 (Bad Request)")
	carol.open(w.admin + "/agents/incident-advisor")
	carol.unfold("open-input")
	carol.enter("#run-request", "What about INC-7?")
	carol.enter("#run-input", `{"incidentId":"INC-7"`)
	carol.click("#do-run")
	carol.see("That could not be taken")
	if typed := eval[string](carol, `document.getElementById("run-request").value + document.getElementById("run-input").value`); typed != `What about INC-7?{"incidentId":"INC-7"` {
		t.Errorf("what was typed is now %q", typed)
	}
	carol.accessible("run-start")
	carol.enter("#run-input", `{"incidentId":"INC-7","mode":"advise","action":"ESCALATE"}`)
	carol.click("#do-run")
	carol.see("look at the recommendation")
	carol.see("synthetic: an agent’s words")
	carol.see("inside")
	carol.see("INC-7")
	carol.accessible("run-done")
	path := eval[string](carol, `location.pathname`)

	alice.open(w.admin + path)
	alice.click(`a[href^="/recommendations/"]`)
	alice.see("The exact call")
	alice.see("pager.page")
	alice.see("the agent’s output, at $.incidentId")
	alice.see("one question, whichever page it is answered on")
	alice.accessible("recommendation-waits")
	if len(pager.calls()) != 0 {
		t.Fatal("it was carried out before anybody said yes")
	}
	alice.unfold("open-defer")
	if _, err := try[any](alice, "window.before = true"); err != nil {
		t.Fatal(err)
	}
	alice.click("#do-defer")
	alice.until("the page with the answer", "window.before === undefined") // the one before says the same
	alice.see("waits for a person")
	alice.approve()
	alice.see("carried out")
	alice.see("answered by alice")
	if calls := pager.calls(); len(calls) != 1 || !strings.Contains(calls[0], `"incident":"INC-7"`) {
		t.Errorf("the server got %q", calls)
	}
	alice.accessible("recommendation-done")
	alice.open(w.admin + "/recommendations")
	alice.see("carried out")
	alice.accessible("recommendations")

	// A run that is under way shows what it does, and ends at a press.
	carol.open(w.admin + "/agents/incident-advisor")
	carol.unfold("open-input")
	carol.enter("#run-input", `{"incidentId":"INC-7","mode":"sleep"}`)
	carol.click("#do-run")
	carol.see("It runs since")
	carol.accessible("run-under-way")
	carol.click("#do-cancel")
	carol.see("It has no output.")
	carol.see("UTC by carol")
	carol.open(w.admin + "/runs")
	carol.see("The last 24 hours")
	carol.see("cancelled")
	carol.accessible("runs")
	carol.phone()
	carol.shot("runs-360")
	if over := eval[int](carol, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
		t.Errorf("runs, 360 wide: the page is %d pixels too wide", over)
	}
	alice.phone()
	alice.shot("recommendations-360")

	// Who only looks sees no buttons, and what is sent all the same is refused.
	vera := newBrowser(t)
	vera.expect("403")
	vera.signIn(w, w.tokenOf("vera", "viewer"))
	vera.open(w.admin + "/agents/incident-advisor")
	vera.unseen("Start a run")
	vera.open(w.admin + path)
	vera.see("Timing")
	eventually(t, 10*time.Second, "nothing else is called", func() bool { return len(pager.calls()) == 1 })
}
