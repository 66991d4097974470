package console

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

// fakeDesk proposes one thing.
type fakeDesk struct {
	list  LabelList
	taken []string
	tried []string
	trial Trial
	err   error
}

func (d *fakeDesk) Sections(context.Context) (string, error) { return "flow: {}\n", d.err }

func (d *fakeDesk) Try(_ context.Context, sections string, since time.Duration) (Trial, error) {
	d.tried = append(d.tried, since.String()+" "+sections)
	return d.trial, d.err
}

func (d *fakeDesk) Proposed(context.Context) (LabelList, error) { return d.list, nil }

func (d *fakeDesk) Take(_ context.Context, digest, by string) error {
	if d.err == nil {
		d.taken = append(d.taken, digest+" "+by)
	}
	return d.err
}

// The page of labels from recorded work shows each question with its answers and what they would ask; an operator takes one with its button, which counts for
// what was shown. Nobody else sees it, and servers' words are escaped.
func TestLabelsPage(t *testing.T) {
	w := newPagesWorld(t)
	if rec := w.ask("operator", "/tools/labels", nil); rec.Code != 404 || !strings.Contains(rec.Body.String(), "no configuration file") {
		t.Errorf("without a file: %d", rec.Code)
	}
	if rec := w.ask("operator", "/tools/labels", url.Values{"digest": {"d1"}}); rec.Code != 404 {
		t.Errorf("without a file: %d", rec.Code)
	}
	desk := &fakeDesk{list: LabelList{Since: time.Unix(0, 0), Work: "50 calls in 3 sessions", Without: "41 questions, 2 calls refused", Notes: []string{"the newest <b>entries"},
		Left: []LeftTool{{"crm.<i>odd", "its definition has changed"}},
		Choices: []LabelChoice{{Server: "crm", Tools: []string{"find<script>", "get\u202e"}, Work: "20 calls, 1 in clean sessions", Why: "The server says so.",
			Answers: []LabelAnswer{{Digest: "d1", Means: "They only read.", Frees: []string{"find(<u>q)"}, Entries: []string{"crm.find: {effect: read}<hr>"}, With: "7 questions, 0 calls refused"}}}}}}
	w.c.o.Labels = desk
	page := w.ask("operator", "/tools/labels", nil).Body.String()
	contains(t, page, "agents made 50 calls in 3 sessions", "20 calls, 1 in clean sessions", "as it is now: 41 questions, 2 calls refused", "With these labels: 7 questions, 0 calls refused", "Without: 41 questions", `value="d1"`, "Add these labels",
		"find&lt;script&gt;", "find(&lt;u&gt;q)", "{effect: read}&lt;hr&gt;", "crm.&lt;i&gt;odd", "its definition has changed", "&lt;b&gt;entries")
	if strings.Contains(page, "<script>") || strings.Contains(page, "\u202e") {
		t.Error("a server's words stand in the page as they are")
	}
	contains(t, w.ask("operator", "/tools", nil).Body.String(), `href="/tools/labels"`)
	for _, role := range []string{"viewer", "approver", "auditor"} {
		if rec := w.ask(role, "/tools/labels", nil); rec.Code != 403 {
			t.Errorf("%s sees it: %d", role, rec.Code)
		}
		if rec := w.ask(role, "/tools/labels", url.Values{"digest": {"d1"}}); rec.Code != 403 {
			t.Errorf("%s takes it: %d", role, rec.Code)
		}
		if strings.Contains(w.ask(role, "/tools", nil).Body.String(), "/tools/labels") {
			t.Errorf("%s is shown the way", role)
		}
	}
	if rec := w.ask("", "/tools/labels", url.Values{"digest": {"d1"}}); rec.Code == 303 && strings.HasPrefix(rec.Header().Get("Location"), "/tools/labels") || len(desk.taken) != 0 {
		t.Fatalf("nobody takes it: %d %v", rec.Code, desk.taken)
	}
	if rec := w.ask("operator", "/tools/labels", url.Values{"digest": {"d1"}}); rec.Code != 303 || rec.Header().Get("Location") != "/tools/labels?taken" || len(desk.taken) != 1 || desk.taken[0] != "d1 person:ann" {
		t.Errorf("%d %v", rec.Code, desk.taken)
	}
	contains(t, w.ask("operator", "/tools/labels?taken", nil).Body.String(), "an admin <a href=\"/#configuration\">reloads the configuration")
	desk.err = fault.New(fault.Conflict, "This is not proposed any more.")
	if rec := w.ask("operator", "/tools/labels", url.Values{"digest": {"old"}}); rec.Code != 409 || !strings.Contains(rec.Body.String(), "not proposed any more") || !strings.Contains(rec.Body.String(), "Add these labels") {
		t.Errorf("%d", rec.Code)
	}
}
