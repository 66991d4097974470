package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/client"
)

// modelQuotas are those of an agent by resource, of the day.
func (w *world) modelQuotas(agent string) map[string]client.Quota {
	w.t.Helper()
	all, err := w.root.Quotas(w.t.Context(), agent)
	if err != nil {
		w.t.Fatal(err)
	}
	by := map[string]client.Quota{}
	for _, q := range all {
		if q.Window == "day" {
			by[q.Resource] = q
		}
	}
	return by
}

// Of many requests at once as many leave as the quota of tokens has room for; what they used is what counts, also of a stream that was cut, and over a crash.
func TestTokenQuotasHold(t *testing.T) {
	const callers = 32
	p := newModelProvider(t)
	release := make(chan struct{})
	p.says(func(http.ResponseWriter, modelRequest) bool { <-release; return false })
	config := strings.ReplaceAll(p.config("[]"), "labels:", "price: {input: 3, output: 15}, labels:")
	w := launch(t, newPlace(t, config, thinker("bot")+"quotas: {tokens: {day: 20000}, cost: {day: 1}}\n"))
	_, token := w.open("bot")
	f := modelForms["messages"]
	body := strings.Replace(fmt.Sprintf(f.body, "Hi."), `"max_tokens":16`, `"max_tokens":900`, 1)
	var mu sync.Mutex
	statuses := map[int]int{}
	var done sync.WaitGroup
	for range callers {
		done.Go(func() {
			status, answer := w.post(f.path, token, body, nil)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
			if status == 403 {
				if code, says := modelRefusal(t, answer); code != "limit.quota" || !strings.Contains(says, "tokens") {
					t.Errorf("%s %s", code, says)
				}
				if statuses[status] == 1 {
					close(release) // as many are under way as fit
				}
			}
		})
	}
	done.Wait()
	sent := len(p.requests())
	if sent != statuses[200] || statuses[200]+statuses[403] != callers || sent < 5 || sent > 20 {
		t.Fatalf("%d left; %v", sent, statuses)
	}
	q := w.modelQuotas("bot")
	if q["tokens"].Used != float64(5*sent) || q["tokens"].Reserved != 0 || q["cost"].Used != float64(sent*(3*3+2*15))/1e6 {
		t.Errorf("%d requests: %+v", sent, q)
	}

	// A stream that breaks off counts by what its beginning says and by what came of its text.
	s := p.streams(t)
	form := streamed["messages"]
	began := w.begin(f.path, token, strings.Replace(body, `{`, `{"stream":true,`, 1))
	s.pieces <- form.begin + form.text(strings.Repeat("word ", 100))
	o := <-began
	o.until("word")
	s.pieces <- "cut"
	if rest := o.rest(); !strings.Contains(rest, "upstream.failed") {
		t.Errorf("%s", rest)
	}
	if cut := w.modelQuotas("bot"); cut["tokens"].Used < q["tokens"].Used+125 || cut["tokens"].Used > q["tokens"].Used+300 || cut["tokens"].Reserved != 0 {
		t.Errorf("after the cut: %+v, before %+v", cut, q)
	}

	// What was under way when the gateway died stays set aside.
	s = p.streams(t)
	began = w.begin(f.path, token, strings.Replace(body, `{`, `{"stream":true,`, 1))
	s.pieces <- form.begin + form.text("word ")
	(<-began).until("word")
	before := w.modelQuotas("bot")
	w.kill()
	close(s.pieces)
	w = launch(t, w.place)
	if after := w.modelQuotas("bot"); after["tokens"].Used != before["tokens"].Used || after["tokens"].Reserved != before["tokens"].Reserved || after["tokens"].Reserved == 0 {
		t.Errorf("%+v, before the crash %+v", after, before)
	}
	if code, out, errs := cli(t, w.place, nil, "status", "--data", w.place.data); code != 0 || !strings.Contains(out, "of 20000 tokens a day") || !strings.Contains(out, "of 1 cost a day") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.place.verify(t)
}

// A request that may use more than a quota has is refused before a byte leaves, as is one of which nobody knows the cost; other calls go on.
func TestModelQuotasRefuse(t *testing.T) {
	p := newModelProvider(t)
	config := strings.Replace(p.config("[]"), "labels:", "price: {input: 3, output: 15}, labels:", 1) // of the first model alone
	config += "upstreams: {echo: {url: \"" + echoServer(t) + "\"}}\noperations: {echo.say: {sensitivity: none, effect: read}}\n"
	agents := strings.Replace(declare("dear", "operator", "execution", []string{"*"}, []string{"*"}), "models: []", "models: ["+claude+", "+gpt+"]", 1)
	w := start(t, config, agents+"quotas: {tokens: {day: 700}, cost: {day: 0.01}}\n")
	w.acceptDefinitions(anyDefinition)
	_, token := w.open("dear")
	ask := func(form, text string, tokens int) (int, string, string) {
		f := modelForms[form]
		body := strings.Replace(fmt.Sprintf(f.body, text), `"messages":`, fmt.Sprintf(`"max_tokens":%d,"messages":`, tokens), 1)
		body = strings.Replace(body, `"max_tokens":16,`, "", 1)
		status, answer := w.post(f.path, token, body, nil)
		if status == 200 {
			return status, "", ""
		}
		code, says := modelRefusal(t, answer)
		return status, code, says
	}
	if status, code, says := ask("messages", strings.Repeat("Much text. ", 300), 10); status != 403 || code != "limit.quota" || !strings.Contains(says, "Ask for less") {
		t.Errorf("too much at once: %d %s %s", status, code, says)
	}
	if status, code, says := ask("chat", "Hi.", 10); status != 403 || code != "limit.quota" || !strings.Contains(says, "price") {
		t.Errorf("no price: %d %s %s", status, code, says)
	}
	if n := len(p.requests()); n != 0 {
		t.Errorf("%d requests left", n)
	}
	if r := must(t, w.connect(token, revision1125, nil), "echo_say", map[string]any{}); r.code() != "" {
		t.Errorf("a tool: %s", r.code())
	}
	w.sane()
}

// A request that lets its answer have more tokens than the declaration is sent with that many, and the answer says so, whole or streamed.
func TestAnswersHaveNoMoreTokensThanDeclared(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), strings.Replace(thinker("bot"), "maxTokens: 1000", "maxTokens: 500", 1))
	_, token := w.open("bot")
	for name, f := range modelForms {
		for _, stream := range []bool{false, true} {
			for _, c := range []struct{ asked, sent, header string }{
				{`"max_tokens":16`, `"max_tokens":16`, ""}, {`"max_tokens":4096`, `"max_tokens":500`, "500"},
			} {
				if name == "responses" {
					c.asked, c.sent = strings.Replace(c.asked, "max_tokens", "max_output_tokens", 1), strings.Replace(c.sent, "max_tokens", "max_output_tokens", 1)
				}
				body := fmt.Sprintf(strings.Replace(f.body, `"max_tokens":16,`, "", 1), "Hi.")
				body = strings.Replace(body, `{`, fmt.Sprintf(`{"stream":%v,%s,`, stream, c.asked), 1)
				if stream {
					s := p.streams(t)
					go func() {
						form := streamed[name]
						s.pieces <- form.begin + form.text("Hello. ") + strings.Join(form.act, "")
						close(s.pieces)
					}()
				} else {
					p.says(nil)
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.agent+f.path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Authorization", "Bearer "+token)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				answer, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				sent := p.requests()
				if got := resp.Header.Get("X-Sallyport-Max-Tokens"); resp.StatusCode != 200 || got != c.header || !strings.Contains(sent[len(sent)-1].body, c.sent) {
					t.Errorf("%s, stream %v, %s: %d, header %q, sent %s; %s", name, stream, c.asked, resp.StatusCode, got, sent[len(sent)-1].body, answer)
				}
			}
		}
	}
	lowered := 0
	for _, e := range w.entries() {
		if e.Kind == "intent" && strings.Contains(string(e.Detail), `"output_lowered_to":500`) {
			lowered++
		}
	}
	if lowered != 2*len(modelForms) {
		t.Errorf("%d on record", lowered)
	}
	w.sane()
}

// An agent that carries a run out itself has no more tokens in it than declared, whatever it asks: the answers get shorter, and then there are none.
func TestRunHasNoMoreTokensThanDeclared(t *testing.T) {
	p := newModelProvider(t)
	var mu sync.Mutex
	var limits []int64
	p.says(func(w http.ResponseWriter, r modelRequest) bool {
		var asked struct {
			MaxTokens int64 `json:"max_tokens"`
		}
		_ = json.Unmarshal([]byte(r.body), &asked)
		mu.Lock()
		limits = append(limits, asked.MaxTokens)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[],"stop_reason":"end_turn","usage":{"input_tokens":100,"output_tokens":%d}}`, claude, asked.MaxTokens)
		return true
	})
	var w *world
	var answers []string
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var task struct {
			RunID        string `json:"run_id"`
			SessionToken string `json:"session_token"`
		}
		if err := json.NewDecoder(r.Body).Decode(&task); err != nil {
			t.Error(err)
		}
		for range 8 {
			status, body := w.post("/anthropic/v1/messages", task.SessionToken, strings.Replace(fmt.Sprintf(modelForms["messages"].body, "Go on."), `"max_tokens":16`, `"max_tokens":1500`, 1), nil)
			if status == 200 {
				answers = append(answers, "")
				continue
			}
			code, _ := modelRefusal(t, body)
			answers = append(answers, code)
		}
		now := time.Now().UTC().Format(time.RFC3339Nano)
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"recommendationId":%q,"agentId":"incident-advisor","timestamp":%q,"recommendation":{"action":"WAIT","confidence":0.5,"reasoning":"It heals itself.","evidence":[]},"metadata":{"executionTime":1,"tokensUsed":0,"modelVersion":"none"},"citations":[{"source":"incidents","timestamp":%q,"confidence":1}]}`, task.RunID, now, now)
	}))
	defer srv.Close()
	declared := strings.Replace(advisor(fmt.Sprintf("run: {kind: http, url: '%s/run'}", srv.URL), 60_000), "maxTokens: 100000", "maxTokens: 4000", 1)
	w, _, _ = onDuty(t, p.config("[internal, pii]"), strings.Replace(declared, "models: []", "models: ["+claude+"]", 1))
	carol := w.person("carol", "operator")
	run, err := carol.StartRun(t.Context(), "incident-advisor", client.RunRequest{Input: json.RawMessage(`{}`)})
	for err == nil && run.Status == "running" {
		run, err = carol.Run(t.Context(), run.RunID, 20*time.Second)
	}
	if err != nil || run.Tokens == 0 || run.Tokens > 4000 {
		t.Errorf("%+v %v", run, err)
	}
	if len(limits) < 2 || limits[0] != 1500 || limits[len(limits)-1] >= 1500 || len(answers) != 8 || answers[7] != "limit.quota" {
		t.Errorf("limits %v, answers %q", limits, answers)
	}
	w.sane()
}
