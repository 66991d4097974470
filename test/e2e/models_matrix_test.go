package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// wholeModelAnswers are answers that come whole, by form, of a model, with something that can act.
var wholeModelAnswers = map[string]string{
	"messages":  `{"id":"m","type":"message","role":"assistant","model":%q,"content":[{"type":"tool_use","id":"t1","name":"delete_all","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":9}}`,
	"chat":      `{"id":"c","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"delete_all","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":9}}`,
	"responses": `{"id":"r","object":"response","created_at":1,"status":"completed","model":%q,"output":[{"id":"fc_1","type":"function_call","status":"completed","call_id":"t1","name":"delete_all","arguments":"{\"a\":1}"}],"usage":{"input_tokens":3,"output_tokens":9}}`,
}

// Each rule holds in each form, whole and streamed: what it refuses is refused with its code and is on record once, and no byte leaves for what is refused before.
func TestRulesHoldInEachForm(t *testing.T) {
	const secret = "The key is AKIA" + "Q3EGVTRE5WXYZAB2 and ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
	p := newModelProvider(t)
	var agents []string // one for each form, whole or streamed: the record counts what is refused to one over and over
	for form := range modelForms {
		agents = append(agents, thinker("bot-"+form+"-false"), thinker("bot-"+form+"-true"))
	}
	w := start(t, p.config("[]"), append(agents, thinker("poor")+"quotas: {tokens: {day: 10}}\n")...)
	for form, f := range modelForms {
		for _, stream := range []bool{false, true} {
			bot := fmt.Sprintf("bot-%s-%v", form, stream)
			ask := func(model, text, more string) string {
				body := strings.Replace(fmt.Sprintf(f.body, text), f.model, model, 1)
				return strings.Replace(body, "{", fmt.Sprintf(`{"stream":%v,%s`, stream, more), 1)
			}
			for rule, c := range map[string]struct{ agent, model, before, text, more, code string }{
				"undeclared":              {bot, "some-model-20250101", "", "Hi.", "", "model.undeclared"},
				"unpinned":                {bot, "some-model-latest", "", "Hi.", "", "model.unpinned"},
				"labels of the session":   {bot, f.model, "Pay DE89 3704 0044 0532 0130 00.", "Hi.", "", "flow.contaminated"},
				"a secret in the request": {bot, f.model, "", secret, "", "flow.contaminated"},
				"a hosted tool":           {bot, f.model, "", "Hi.", `"tools":[{"type":"web_search_20250305","name":"web_search"}],`, "model.hosted_tool"},
				"an unknown field":        {bot, f.model, "", "Hi.", `"turbo":true,`, "request.malformed"},
				"a quota":                 {"poor", f.model, "", "Hi.", "", "limit.quota"},
			} {
				name := fmt.Sprintf("%s, stream %v, %s", form, stream, rule)
				session, token := w.open(c.agent)
				if c.before != "" {
					w.post(f.path, token, ask(f.model, c.before, ""), nil)
				}
				sent, recorded := len(p.requests()), recordedIn(w, session, c.code)
				status, answer := w.post(f.path, token, ask(c.model, c.text, c.more), nil)
				if code, _ := modelRefusal(t, answer); code != c.code || status < 400 {
					t.Errorf("%s: %d %s", name, status, answer)
				}
				if n := len(p.requests()); n != sent {
					t.Errorf("%s: it left", name)
				}
				if n := recordedIn(w, session, c.code); n != recorded+1 {
					t.Errorf("%s: %d entries, %d before", name, n, recorded)
				}
			}
			t.Run(fmt.Sprintf("%s/stream %v", form, stream), func(t *testing.T) { answersOfModels(t, w, p, bot, form, stream, ask(f.model, "Hi.", "")) })
		}
	}
	w.sane()
}

// recordedIn is how many refusals with a code are on record in a session.
func recordedIn(w *world, session, code string) (n int) {
	for _, e := range w.entries() {
		if e.Session == session && e.Code == code && e.Kind == "decision" {
			n++
		}
	}
	return n
}

// answersOfModels are the rules about what comes back.
func answersOfModels(t *testing.T, w *world, p *modelProvider, bot, form string, stream bool, body string) {
	f, s := modelForms[form], streamed[form]
	// answer has the provider answer with one of these; between the pieces of a stream it waits for the test.
	answer := func(whole string, pieces ...string) (next chan struct{}) {
		next = make(chan struct{})
		p.says(func(rw http.ResponseWriter, _ modelRequest) bool {
			if !stream {
				<-next
				rw.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(rw, whole)
				return true
			}
			rw.Header().Set("Content-Type", "text/event-stream")
			for _, piece := range pieces {
				_, _ = io.WriteString(rw, piece)
				_ = http.NewResponseController(rw).Flush()
				<-next
			}
			return true
		})
		return next
	}
	last := func(session string) (code, decision string) {
		for _, e := range outcomes(w) {
			if e.Session == session {
				code, decision = e.Code, e.Decision
			}
		}
		return code, decision
	}
	whole := wholeModelAnswers[form]

	session, token := w.open(bot)
	close(answer(fmt.Sprintf(whole, "other-20250101"), s.otherModel))
	status, got := w.post(f.path, token, body, nil)
	if code, decision := last(session); status != 502 || code != "output.invalid" || decision == "ok" || strings.Contains(string(got), "delete_all") {
		t.Errorf("another model: %d %s, on record %s %s", status, got, decision, code)
	}

	// The call is in pieces of a few letters, and the gateway has all of them but the last event.
	session, token = w.open(bot)
	act := strings.Join(s.act[:len(s.act)-1], "")
	next := answer(fmt.Sprintf(whole, f.model), s.begin+s.text("Hello there "), act[:len(act)/3], act[len(act)/3:], s.act[len(s.act)-1])
	begun := w.begin(f.path, token, body)
	if stream {
		for range 2 {
			next <- struct{}{}
		}
		o := <-begun
		o.until("Hello there")
		if _, decision := last(session); decision != "" {
			t.Errorf("the outcome of an answer that has not ended is %q", decision)
		}
		close(next)
		all := o.rest()
		var detail struct{ Left struct{ Bytes int } }
		for _, e := range outcomes(w) {
			if e.Session == session {
				_ = json.Unmarshal(e.Detail, &detail)
			}
		}
		if left := detail.Left.Bytes; left == 0 || left > len(all) || strings.Contains(all[:left], "delete_all") || !strings.Contains(all[left:], "delete_all") {
			t.Errorf("%d bytes left before the outcome of %s", left, all)
		}
	} else {
		close(next)
		if all := (<-begun).rest(); !strings.Contains(all, "delete_all") {
			t.Errorf("the call is lost: %s", all)
		}
	}
	if _, decision := last(session); decision != "ok" {
		t.Errorf("the outcome of a call is %q when it has left", decision)
	}
	var outside struct{ Ungoverned map[string]int }
	for _, e := range outcomes(w) {
		if e.Session == session {
			_ = json.Unmarshal(e.Detail, &outside)
		}
	}
	if outside.Ungoverned["delete_all"] != 1 || len(outside.Ungoverned) != 1 {
		t.Errorf("calls that the gateway does not see are on record as %v", outside.Ungoverned)
	}

	_, token = w.open(bot)
	sent := len(p.requests())
	next = answer(fmt.Sprintf(whole, f.model), s.begin+s.text("Hello there "))
	begun = w.begin(f.path, token, body)
	var o *opening
	if stream {
		o = <-begun
		o.until("Hello there")
	} else {
		eventually(t, 10*time.Second, "the provider is asked", func() bool { return len(p.requests()) > sent })
	}
	if _, err := w.root.Kill(t.Context(), bot, "a test"); err != nil {
		t.Fatal(err)
	}
	if o == nil {
		o = <-begun
	}
	if all := o.rest(); !strings.Contains(all, `"code":"kill_switch.active"`) || strings.Contains(all, "delete_all") {
		t.Errorf("killed: %s", all)
	}
	close(next)
	if _, err := w.root.Unkill(t.Context(), bot, "a test"); err != nil {
		t.Fatal(err)
	}
}

// An answer that a request wants in a schema's form reaches the client only if it has it, whole or streamed, and the outcome says so.
func TestStructuredAnswersAreChecked(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot"))
	const schema = `{"type":"object","properties":{"total":{"type":"integer"}},"required":["total"],"additionalProperties":false}`
	const recursive = `{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false}`
	formats := map[string]string{
		"messages": `"output_config":{"format":{"type":"json_schema","schema":%s}},`, "chat": `"response_format":{"type":"json_schema","json_schema":{"name":"sum","schema":%s}},`,
		"responses": `"text":{"format":{"type":"json_schema","name":"sum","schema":%s}},`,
	}
	for form, f := range modelForms {
		for _, stream := range []bool{false, true} {
			for name, c := range map[string]struct {
				schema, text string
				passes       bool
				why          string // it doesn't pass
			}{
				"matches":         {schema, `{"total":41}`, true, ""},
				"another type":    {schema, `{"total":"forty-one"}`, false, "does not match the schema"},
				"a member more":   {schema, `{"total":41,"run":"rm -rf"}`, false, "does not match the schema"},
				"twice":           {schema, `{"total":41,"total":"x"}`, false, "is not strict JSON"},
				"words around it": {schema, `Here it is: {"total":41}`, false, "is not strict JSON"},
				"nothing":         {schema, ``, false, "is not strict JSON"},
				"not read here":   {recursive, `{"next":{"next":{}}}`, true, ""},
			} {
				p.says(func(rw http.ResponseWriter, _ modelRequest) bool {
					if stream {
						rw.Header().Set("Content-Type", "text/event-stream")
						_, _ = io.WriteString(rw, streamedText(form, c.text))
						return true
					}
					rw.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(rw, wholeText(form, c.text))
					return true
				})
				session, token := w.open("bot")
				body := strings.Replace(fmt.Sprintf(f.body, "How much is it?"), "{", fmt.Sprintf(`{"stream":%v,%s`, stream, fmt.Sprintf(formats[form], c.schema)), 1)
				status, answer := w.post(f.path, token, body, nil)
				name = fmt.Sprintf("%s, stream %v, %s", form, stream, name)
				code, read := "", "checked"
				if c.schema == recursive {
					read = "unread"
				}
				for _, e := range outcomes(w) {
					if e.Session != session {
						continue
					}
					if code = e.Code; !strings.Contains(string(e.Detail), `"schema":"`+read+`"`) {
						t.Errorf("%s: the outcome does not say %q: %s", name, read, e.Detail)
					}
				}
				if c.passes {
					if status != 200 || code != "" || stream && !strings.Contains(string(answer), streamed[form].end) || strings.Contains(string(answer), "output.invalid") {
						t.Errorf("%s: %d %s, on record %q", name, status, answer, code)
					}
					continue
				}
				if told, message := modelRefusal(t, answer); status != 502 || told != "output.invalid" || code != told || strings.Contains(string(answer), "rm -rf") || !strings.Contains(message, c.why) {
					t.Errorf("%s: %d %s, on record %q", name, status, answer, code)
				}
			}
		}
	}
	w.sane()
}
