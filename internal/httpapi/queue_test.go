package httpapi_test

import (
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
)

// TestWhoChangedArgumentsIsNotOfferedToApproveThem: whoever changed the arguments is not offered to approve them, and everybody else is.
func TestWhoChangedArgumentsIsNotOfferedToApproveThem(t *testing.T) {
	w := newWorld(t)
	c, _ := w.open("dora")
	q := w.ask(c, client.Own, "comm_exec", "https://docs.example/1")
	carol, erin := w.browser("carol", identity.Approver), w.browser("erin", identity.Approver)
	a := carol.post("/approvals/"+q.ApprovalID+"/modify", url.Values{"digest": {q.Digest}, "arguments": {`{"url":"https://docs.example/2"}`}, "reason": {"the second"}})
	if a.status != http.StatusSeeOther {
		t.Fatalf("modify: %d %s", a.status, a.body)
	}
	at := a.header.Get("Location")
	own := carol.get(at).body
	if strings.Contains(own, `id="approve"`) || !strings.Contains(own, "You wrote these arguments; another person has to approve them.") || !strings.Contains(own, `id="reject"`) || !strings.Contains(own, `id="defer"`) {
		t.Errorf("who wrote them: %s", own)
	}
	if other := erin.get(at).body; !strings.Contains(other, `id="approve"`) || strings.Contains(other, "You wrote") {
		t.Error("another person is not offered to approve them")
	}
	p := checkPage(t, "changed", erin.get(at))
	if a := carol.post(at+"/approve", url.Values{"digest": {p.inputs["digest"]}}); a.status != http.StatusForbidden {
		t.Errorf("who wrote them approves: %d", a.status)
	}
	if a := erin.post(at+"/approve", url.Values{"digest": {p.inputs["digest"]}}); a.status != http.StatusSeeOther {
		t.Errorf("another person approves: %d", a.status)
	}
}

// TestWhatRunsSoonIsInSight: what runs by itself in ten seconds is not hidden behind what can wait, and stands there once.
func TestWhatRunsSoonIsInSight(t *testing.T) {
	w := asking(t)
	c, _ := w.open("dora")
	carol := w.browser("carol", identity.Approver)
	first := w.askRaw(c, map[string]any{"text": "0"})
	medium := func(in time.Duration) string {
		return w.put(first, func(a *approval.Approval) { a.Risk, a.SilenceAt = string(policy.Medium), w.clock.now().Add(in) }).ID
	}
	later, sooner := medium(20*time.Second), medium(10*time.Second)
	for i := range 50 {
		w.askRaw(c, map[string]any{"text": i + 1})
	}
	last := medium(30 * time.Second) // also among the newest
	for _, path := range []string{"/approvals", "/"} {
		body := carol.get(path).body
		var at []int
		for _, id := range []string{sooner, later, last, first} {
			link := `href="/approvals/` + id + `"`
			if strings.Count(body, link) != 1 {
				t.Fatalf("%s has %s %d times", path, id, strings.Count(body, link))
			}
			at = append(at, strings.Index(body, link))
		}
		if !slices.IsSorted(at) || strings.Count(body, "unless stopped") != 3 {
			t.Errorf("%s: what runs first does not stand first: %v", path, at)
		}
	}
	if body := carol.get("/approvals").body; !strings.Contains(body, "Will run automatically") {
		t.Errorf("the queue: %s", body)
	}
	if count := carol.get("/approvals/count").body; !strings.HasPrefix(count, "54<") {
		t.Errorf("the number is %s", count)
	}
	// Silence answers nothing any more where somebody has spoken.
	q, err := w.g.Desk().Question(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client(w.admin, w.token(identity.Person, "erin", identity.Approver)).Defer(t.Context(), last, q.Digest, w.clock.now().Add(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	w.clock.forward(3 * time.Second)
	for _, path := range []string{"/approvals", "/"} {
		if body := carol.get(path).body; strings.Count(body, "unless stopped") != 2 {
			t.Errorf("%s says of what was put off that it runs by itself", path)
		}
	}
	if !strings.Contains(carol.get("/approvals?risk=MEDIUM").body, `href="/approvals/`+last+`"`) {
		t.Error("what was put off does not come back")
	}
}

// TestCountingReadsNoArguments: the number in the navigation does not cost the arguments of everything that waits, whose length an agent chooses.
func TestCountingReadsNoArguments(t *testing.T) {
	w := asking(t)
	c, _ := w.open("dora")
	for i := range 40 {
		w.askRaw(c, map[string]any{"n": i, "text": strings.Repeat("x", 120_000)})
	}
	carol := w.browser("carol", identity.Approver)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := w.send(w.admin, "GET", "/approvals/count", "", "", with(carol.cookie))
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; a.status != http.StatusOK || !strings.HasPrefix(a.body, "40<") || n > 1<<20 {
		t.Errorf("%d %s: %d KiB of memory", a.status, a.body, n>>10)
	}
}
