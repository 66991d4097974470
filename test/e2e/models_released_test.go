package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What a person released raises nothing when it is sent again, also after kill -9 and a reload; other text of that label does. The release names what was found
// by hashes.
func TestReleasesOutliveTheProcess(t *testing.T) {
	t.Parallel()
	p := newModelProvider(t)
	w := launch(t, newPlace(t, p.config("[]"), thinker("bot")))
	const one, other = "Use ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a", "Use ghp_" + "26C7e42F292c6912E7710c838347Ae178B4a"
	sessions, tokens := map[string]string{}, map[string]string{}
	ask := func(when, form, text, want string) {
		t.Helper()
		status, body := w.post(modelForms[form].path, tokens[form], fmt.Sprintf(modelForms[form].body, text), nil)
		if want == "" {
			if status != 200 {
				t.Errorf("%s, %s: %d %s", form, when, status, body)
			}
			return
		}
		if code, _ := modelRefusal(t, body); code != want {
			t.Errorf("%s, %s: %d %s", form, when, status, body)
		}
	}
	for form := range modelForms {
		sessions[form], tokens[form] = w.open("bot")
		ask("found", form, one, "flow.contaminated")
	}
	w.kill() // what was found is in the store before anybody releases it
	w = launch(t, w.place)
	for _, id := range sessions {
		if _, err := w.root.Release(t.Context(), id, []string{"secret"}, "it is of a test"); err != nil {
			t.Fatal(err)
		}
	}
	named := regexp.MustCompile(`"found":\{"secret":\["[A-Za-z0-9_+/-]{22}"\]\}`)
	for _, e := range w.entries() {
		if e.Action != "session.release" {
			continue
		}
		if b, err := json.Marshal(e); err != nil || !named.Match(b) || strings.Contains(string(b), "16C7e42F") {
			t.Errorf("the release: %s", b)
		}
	}
	again := func(when string) {
		t.Helper()
		for form, id := range sessions {
			ask(when, form, one, "")
			ask(when+", other text", form, other, "flow.contaminated")
			ask(when+", while the label is there", form, one, "flow.contaminated")
			if _, err := w.root.Release(t.Context(), id, []string{"secret"}, "it is of a test"); err != nil {
				t.Fatal(err)
			}
			ask(when+", released again", form, other, "")
			ask(when+", a third", form, strings.ReplaceAll(other, "26C7", strings.Repeat(string("abcde"[len(when)%5]), 4)), "flow.contaminated")
			if _, err := w.root.Release(t.Context(), id, []string{"secret"}, "it is of a test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.kill()
	w = launch(t, w.place)
	for form := range sessions {
		ask("after kill -9", form, one, "")
	}
	// Claude Code writes a message as a block while it marks the end for the cache, and as a text later.
	block := `{"model":"` + claude + `","max_tokens":16,"messages":[{"role":"user","content":[{"type":"text","text":"` + one + `","cache_control":{"type":"ephemeral"}}]}]}`
	if status, body := w.post("/anthropic/v1/messages", tokens["messages"], block, nil); status != 200 {
		t.Errorf("as a block: %d %s", status, body)
	}
	again("after another text")
	config, err := os.ReadFile(w.place.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, w.place.config, string(config)+"\nthreat: {input: observe}\n")
	if _, err := w.root.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for form := range sessions {
		ask("after a reload", form, one, "")
		ask("after a reload", form, other, "")
		ask("after a reload, a fourth", form, strings.ReplaceAll(other, "26C7", "9999"), "flow.contaminated")
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	if r := w.place.verify(t); len(r.Problems) > 0 {
		t.Errorf("%v", r.Problems)
	}
}

// A result that was delivered before its label was released is known by its text after a restart; what the agent writes around it is not.
func TestReleasedResultsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	p := newModelProvider(t)
	files := newServer("files")
	tool(files, "plan", "Reads.", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		return text("The plan is ready. Ask ann@books.example."), nil
	})
	w := launch(t, newPlace(t, "upstreams: {files: {url: "+fmt.Sprintf("%q", sdkServer(t, files))+"}}\noperations: {files.plan: {sensitivity: internal_source, effect: read}}\n"+p.config("[]"), thinker("bot")))
	session, token := w.open("bot")
	got := must(t, w.connect(token, revision1125, nil), "files_plan", map[string]any{}).text()
	turn := func(id, text string) string {
		q, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return `{"model":"` + claude + `","max_tokens":16,"messages":[{"role":"user","content":"Hi."},{"role":"assistant","content":[{"type":"tool_use","id":"` + id + `","name":"x","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + id + `","content":` + string(q) + `}]}]}`
	}
	held := func() string {
		s, err := w.root.Session(t.Context(), session)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(s.Labels)
	}
	ask := func(when, body, want string) {
		t.Helper()
		status, answer := w.post("/anthropic/v1/messages", token, body, nil)
		code := ""
		if status != 200 {
			code, _ = modelRefusal(t, answer)
		}
		if code != want {
			t.Errorf("%s: %d %s, %s", when, status, answer, held())
		}
	}
	ask("delivered", turn("t1", got), "flow.contaminated")
	ask("a secret", strings.Replace(turn("t1", got), "Hi.", "Use ghp_"+"26C7e42F292c6912E7710c838347Ae178B4a", 1), "flow.contaminated")
	s, err := w.root.Session(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, l := range s.Labels {
		labels = append(labels, l.Label)
	}
	if _, err := w.root.Release(t.Context(), session, labels, "the plan is public"); err != nil {
		t.Fatal(err)
	}
	w.kill()
	w = launch(t, w.place)
	ask("after kill -9", turn("t1", got), "")
	if held() != "[]" {
		t.Errorf("a released result brought %s", held())
	}
	ask("under another id, which nobody delivered", turn("t2", got), "")
	ask("other text", turn("t3", "Another plan."), "")
	if !strings.Contains(held(), "untrusted") {
		t.Errorf("a result that nobody delivered: %s", held())
	}
	ask("more, while the label is there", turn("t4", "A third plan."), "")
	w.kill() // what a request brought that left is in the store with its intent
	w = launch(t, w.place)
	if _, err := w.root.Release(t.Context(), session, []string{"untrusted"}, "it is ours"); err != nil {
		t.Fatal(err)
	}
	if ask("other text again", turn("t3", "Another plan."), ""); held() != "[]" {
		t.Errorf("a released result that nobody delivered brought %s", held())
	}
	if ask("more, again", turn("t4", "A third plan."), ""); held() != "[]" {
		t.Errorf("another brought %s", held())
	}
	ask("a secret around it", strings.Replace(turn("t1", got), `"tool_use_id":"t1`, `"tool_use_id":"ghp_`+"16C7e42F292c6912E7710c838347Ae178B4a", 1), "flow.contaminated")
	w.sane()
}
