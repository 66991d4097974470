package catalogue_test

import (
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
)

// of returns the entries of one action.
func (w *world) of(action string) []audit.Entry {
	return slices.DeleteFunc(w.entries(), func(e audit.Entry) bool { return e.Action != action })
}

// A tool whose server is started or reached in another way waits for a person like one whose definition changed, although what it says is the same.
func TestOtherLaunchQuarantines(t *testing.T) {
	w := newWorld(t)
	w.launch = map[string]string{"launched": "one"}
	d := definition("mail", "search_email", "A tool.")
	launched := definition("launched", "look", "A tool.")
	w.offer("launched", launched)
	first := w.tool("launched.look")
	if first.Launch != "one" || first.PendingHash != "" || first.Standing == catalogue.Quarantined {
		t.Fatalf("%+v", first)
	}
	w.end()
	w.launch["launched"] = "two"
	w.start()
	w.offer("launched", launched)
	w.offer("mail", d)
	w.voided = nil
	w.offer("launched", launched) // what waits is not written down twice
	tool := w.tool("launched.look")
	if op := w.c.ByID("launched.look"); op.Standing != catalogue.Quarantined && op.Standing != catalogue.Unlisted {
		t.Errorf("it is %s", op.Standing)
	}
	if tool.PendingHash != tool.Hash || tool.Launch != "one" || tool.PendingLaunch != "two" {
		t.Errorf("%+v", tool)
	}
	waits := w.of("tool.quarantine")
	if len(waits) != 1 || waits[0].Actor != "rule:launch" || !strings.Contains(waits[0].Reason, "another way") || !strings.Contains(string(waits[0].Detail), `"two"`) {
		t.Errorf("on record: %+v", waits)
	}
	if err := w.c.AcceptTool(t.Context(), "launched.look", tool.PendingHash, "person:alice"); err != nil {
		t.Fatal(err)
	}
	if now := w.tool("launched.look"); now.Launch != "two" || now.PendingHash != "" || now.PendingLaunch != "" || w.c.ByID("launched.look").Launch != "two" {
		t.Errorf("accepted: %+v", now)
	}
	w.end()
	w.start()
	w.offer("launched", launched)
	if now := w.tool("launched.look"); now.PendingHash != "" {
		t.Errorf("after a restart: %+v", now)
	}
}

// Questions about a tool are void once its server is started in another way.
func TestOtherLaunchVoidsQuestions(t *testing.T) {
	w := newWorld(t)
	w.launch = map[string]string{"mail": "one"}
	d := definition("mail", "search_email", "A tool.")
	w.offer("mail", d) // taken over: the pin was made while nothing was known
	w.voided = nil
	w.launch["mail"] = "two"
	w.offer("mail", d)
	if op := w.c.ByID("mail.search_email"); op.Standing != catalogue.Quarantined || !slices.Contains(w.voided, "mail.search_email") {
		t.Errorf("%s, void: %v", op.Standing, w.voided)
	}
	w.launch["mail"] = "one"
	w.offer("mail", d)
	if op := w.c.ByID("mail.search_email"); op.Standing != catalogue.Active {
		t.Errorf("started as it was accepted: %s", op.Standing)
	}
}

// Pins of an older version take over how their server is started, without quarantine and once, on record. What waited then waits still.
func TestLaunchIsTakenOverAtTheUpgrade(t *testing.T) {
	w := newWorld(t)
	same, changed := definition("mail", "search_email", "A tool."), definition("web", "web_search", "Another tool.")
	w.offer("web", changed)
	w.end()
	w.launch = map[string]string{"mail": "one", "web": "one"}
	w.start()
	for range 2 {
		w.offer("mail", same)
		w.offer("web", changed)
	}
	if op := w.c.ByID("mail.search_email"); op.Standing != catalogue.Active || op.Launch != "one" {
		t.Errorf("%s, %q", op.Standing, op.Launch)
	}
	if op := w.c.ByID("web.web_search"); op.Standing != catalogue.Quarantined {
		t.Errorf("what waited: %s", op.Standing)
	}
	taken := w.of("tool.launch")
	if len(taken) != 2 || taken[0].Actor != "rule:upgrade" || !strings.Contains(string(taken[0].Detail), `"launch_hash":"one"`) {
		t.Errorf("on record: %+v", taken)
	}
}
