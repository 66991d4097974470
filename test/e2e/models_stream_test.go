package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
)

// streamed asks for a stream, in each form, with the events of an answer: its text in pieces, then a tool call, then its end.
var streamed = map[string]struct {
	path, body  string
	text        func(s string) string
	begin       string
	act         []string // what can act, and all after it
	otherModel  string
	failed, end string
}{
	"messages": {
		path: "/anthropic/v1/messages", body: `{"model":"` + claude + `","max_tokens":16,"stream":true,"messages":[{"role":"user","content":"Hi."}]}`,
		begin: `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"` + claude + `","content":[],"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

`,
		text: func(s string) string {
			return fmt.Sprintf("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":%q}}\n\n", s)
		},
		act: []string{
			"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
			"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"delete_all\",\"input\":{}}}\n\n",
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\"\"}}\n\n",
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\":1}\"}}\n\n",
			"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":9}}\n\n",
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		},
		otherModel: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-x\",\"content\":[]}}\n\n",
		failed:     "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"words of the provider\"}}\n\n",
		end:        "message_stop",
	},
	"chat": {
		path: "/openai/v1/chat/completions", body: `{"model":"` + gpt + `","stream":true,"messages":[{"role":"user","content":"Hi."}]}`,
		begin: `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"` + gpt + `","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

`,
		text: func(s string) string {
			return fmt.Sprintf("data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":%q,\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}],\"usage\":null}\n\n", gpt, s)
		},
		act: []string{
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"` + gpt + `","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"delete_all","arguments":"{\"a\""}}]},"finish_reason":null}]}` + "\n\n",
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"` + gpt + `","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]},"finish_reason":null}]}` + "\n\n",
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"` + gpt + `","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n",
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"` + gpt + `","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9,"total_tokens":12}}` + "\n\n",
			"data: [DONE]\n\n",
		},
		otherModel: `data: {"model":"gpt-3","choices":[{"index":0,"delta":{"content":"x "}}]}` + "\n\n",
		failed:     `data: {"error":{"type":"overloaded_error","message":"words of the provider"}}` + "\n\n",
		end:        "[DONE]",
	},
	"responses": {
		path: "/openai/v1/responses", body: `{"model":"` + gpt + `","stream":true,"input":[{"role":"user","content":"Hi."}]}`,
		begin: responseEvent(0, `"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1,"status":"in_progress","model":"`+gpt+`","output":[],"tools":[],"usage":null}`) +
			responseEvent(1, `"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}`) +
			responseEvent(2, `"type":"response.content_part.added","item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}`),
		text: func(s string) string {
			return responseEvent(3, fmt.Sprintf(`"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"logprobs":[],"delta":%q`, s))
		},
		act: []string{
			responseEvent(4, `"type":"response.output_item.added","output_index":1,"item":{"id":"fc_1","type":"function_call","status":"in_progress","call_id":"t1","name":"delete_all","arguments":""}`),
			responseEvent(5, `"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":1,"delta":"{\"a\""`),
			responseEvent(6, `"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":1,"delta":":1}"`),
			responseEvent(7, `"type":"response.output_item.done","output_index":1,"item":{"id":"fc_1","type":"function_call","status":"completed","call_id":"t1","name":"delete_all","arguments":"{\"a\":1}"}`),
			responseEvent(8, `"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"`+gpt+`","output":[{"id":"fc_1","type":"function_call","status":"completed","call_id":"t1","name":"delete_all","arguments":"{\"a\":1}"}],"usage":{"input_tokens":3,"output_tokens":9,"total_tokens":12}}`),
		},
		otherModel: responseEvent(0, `"type":"response.created","response":{"id":"resp_1","model":"gpt-3","output":[]}`),
		failed:     responseEvent(4, `"type":"response.failed","response":{"model":"`+gpt+`","error":{"code":"server_error","message":"words of the provider"}}`),
		end:        "response.completed",
	},
}

// wholeText is an answer of nothing but text, which comes whole.
func wholeText(form, text string) string {
	return fmt.Sprintf(map[string]string{
		"messages":  `{"id":"m","type":"message","role":"assistant","model":%q,"content":[{"type":"text","text":%q}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":9}}`,
		"chat":      `{"id":"c","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":9}}`,
		"responses": `{"id":"r","object":"response","created_at":1,"status":"completed","model":%q,"output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":%q,"annotations":[]}]}],"usage":{"input_tokens":3,"output_tokens":9,"total_tokens":12}}`,
	}[form], modelForms[form].model, text)
}

// streamedText is the same answer, which comes in pieces.
func streamedText(form, text string) string {
	half := len(text) / 2
	return streamed[form].begin + streamed[form].text(text[:half]) + streamed[form].text(text[half:]) + map[string]string{
		"messages":  "data: {\"type\":\"content_block_stop\",\"index\":0}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
		"chat":      fmt.Sprintf("data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":%q,\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", gpt),
		"responses": responseEvent(4, `"type":"response.completed","response":`+wholeText(form, text)),
	}[form]
}

// responseEvent is an event of a response, with these members.
func responseEvent(n int, members string) string {
	kind := strings.SplitN(members, `"`, 5)[3]
	return fmt.Sprintf("event: %s\ndata: {\"sequence_number\":%d,%s}\n\n", kind, n, members)
}

// script is what a provider streams: pieces, between which it waits until the test says so.
type script struct {
	pieces chan string
	gone   chan struct{}
}

// streams has the provider stream what the test sends to the script; closing pieces ends the answer, and cut breaks it off.
func (p *modelProvider) streams(t testing.TB) *script {
	s := &script{pieces: make(chan string), gone: make(chan struct{}, 8)}
	p.says(func(w http.ResponseWriter, _ modelRequest) bool {
		defer func() { s.gone <- struct{}{} }()
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		flush := func() { _ = http.NewResponseController(w).Flush() }
		flush()
		for piece := range s.pieces {
			if piece == "cut" {
				panic(http.ErrAbortHandler)
			}
			if _, err := io.WriteString(w, piece); err != nil {
				return true
			}
			flush()
		}
		return true
	})
	return s
}

// opening is a stream as an agent has it.
type opening struct {
	t    testing.TB
	resp *http.Response
	in   *bufio.Reader
	all  strings.Builder
}

// begin asks in the background, since headers come with the first piece.
func (w *world) begin(path, token, body string) chan *opening {
	done := make(chan *opening, 1)
	go func() {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.agent+path, strings.NewReader(body))
		if err == nil {
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+token)
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				done <- &opening{t: w.t, resp: resp, in: bufio.NewReader(resp.Body)}
				return
			}
		}
		w.t.Error(err)
		close(done)
	}()
	return done
}

// until reads until what came has a text in it.
func (o *opening) until(text string) {
	o.t.Helper()
	for !strings.Contains(o.all.String(), text) {
		line, err := o.in.ReadString('\n')
		o.all.WriteString(line)
		if err != nil {
			o.t.Fatalf("no %q in %s: %v", text, o.all.String(), err)
		}
	}
}

// rest reads to the end.
func (o *opening) rest() string {
	b, _ := io.ReadAll(o.in)
	o.all.Write(b)
	_ = o.resp.Body.Close()
	return o.all.String()
}

func outcomes(w *world) (all []client.Entry) {
	for _, e := range w.entries() {
		if e.Action == "models/request" && e.Kind == "outcome" {
			all = append(all, e)
		}
	}
	return all
}

// Text leaves as it comes; a tool call, however it is cut in pieces, and the end leave once the outcome is on record.
func TestModelsStream(t *testing.T) {
	for name, f := range streamed {
		t.Run(name, func(t *testing.T) {
			p := newModelProvider(t)
			w := start(t, p.config("[]"), thinker("bot"))
			s := p.streams(t)
			begun := w.begin(f.path, w.token("bot"), f.body)
			s.pieces <- f.begin
			for _, c := range f.text("Hello there ") { // letter by letter
				s.pieces <- string(c)
			}
			o := <-begun
			o.until("Hello there")
			for _, piece := range f.act {
				if strings.Contains(piece, f.end) {
					if len(outcomes(w)) != 0 || strings.Contains(o.all.String(), "delete_all") {
						t.Fatal("the outcome is on record before the end of the answer")
					}
				}
				s.pieces <- piece
			}
			close(s.pieces)
			got := o.rest()
			if !strings.Contains(got, "delete_all") || !strings.Contains(got, f.end) || o.resp.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("%s", got)
			}
			if name == "chat" && strings.Contains(got, "total_tokens") {
				t.Errorf("usage that nobody asked for: %s", got)
			}
			sent := p.requests()[0].body
			if name == "chat" && !strings.Contains(sent, `"include_usage":true`) {
				t.Error(sent)
			}
			all := outcomes(w)
			if len(all) != 1 || all[0].Decision != "ok" {
				t.Fatalf("%+v", all)
			}
			detail, _ := json.Marshal(all[0].Detail)
			for _, want := range []string{`"left":{"bytes":`, `"sha256":`, `"tokens":{"input":3,"output":9}`} {
				if !strings.Contains(string(detail), want) {
					t.Errorf("no %s in %s", want, detail)
				}
			}
		})
	}
}

// escapedKey is the provider's key with letters that JSON escapes.
var escapedKey = strings.NewReplacer("s", `\u0073`, "0", `\u0030`).Replace(keyOf)

// A stream that breaks, stalls, lies or is malformed ends with an error in the provider's form, and nothing that can act has left. The outcome says how much had.
func TestModelStreamsThatFail(t *testing.T) {
	t.Parallel()
	for name, f := range streamed {
		for what, c := range map[string]struct {
			pieces  []string
			code    string
			nothing bool // nothing leaves, so the error is an answer of its own
		}{
			"cut in the text":       {[]string{f.begin, f.text("Hello there "), "cut"}, "upstream.failed", false},
			"cut in a tool call":    {append([]string{f.begin, f.text("Hello there ")}, append(append([]string{}, f.act[:2]...), "cut")...), "upstream.failed", false},
			"ends without an end":   {[]string{f.begin, f.text("Hello there ")}, "upstream.failed", false},
			"ends within an event":  {[]string{f.begin, f.text("Hello there "), "data: {\"type\":"}, "upstream.failed", false},
			"an error of its own":   {[]string{f.begin, f.text("Hello there "), f.failed}, "upstream.failed", false},
			"no JSON":               {[]string{f.begin, f.text("Hello there "), "data: hello\n\n"}, "result.invalid", false},
			"a name twice":          {[]string{f.begin, f.text("Hello there "), "data: {\"type\":\"ping\",\"type\":\"ping\"}\n\n"}, "result.invalid", false},
			"another model":         {[]string{f.otherModel}, "output.invalid", true},
			"another model in time": {[]string{f.begin, strings.ReplaceAll(f.otherModel, "claude-x", "claude-y")}, "output.invalid", false},
			"the key":               {[]string{f.begin, f.text("It is " + keyOf + " ")}, "result.invalid", false},
			"the key in pieces":     {[]string{f.begin, f.text("It is " + keyOf[:9]), f.text(keyOf[9:12]), f.text(keyOf[12:] + " ")}, "result.invalid", false},
			"the key in escapes":    {[]string{f.begin, f.text("Hello there "), strings.Replace(f.text("It is KEY "), "KEY", escapedKey, 1)}, "result.invalid", false},
			"the key as arguments":  {[]string{f.begin, f.text("Hello there "), strings.NewReplacer(`{\"a\"`, `{\"a\":\"`+keyOf[:9], `:1}"`, keyOf[9:]+`\"}"`).Replace(strings.Join(f.act, ""))}, "result.invalid", false},
			"an event too large":    {[]string{f.begin, f.text(strings.Repeat("x", 2<<20))}, "result.too_large", false},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				p := newModelProvider(t)
				w := start(t, p.config("[]"), thinker("bot"))
				s := p.streams(t)
				begun := w.begin(f.path, w.token("bot"), f.body)
				for _, piece := range c.pieces {
					select {
					case s.pieces <- piece:
					case <-s.gone:
					}
				}
				close(s.pieces)
				o := <-begun
				got := o.rest()
				if !strings.Contains(got, `"code":"`+c.code+`"`) || strings.Contains(got, "delete_all") || strings.Contains(got, keyOf) || strings.Contains(got, "words of the provider") {
					t.Errorf("%.2000s", got)
				}
				if strings.Contains(got, f.end) || (o.resp.StatusCode == 200) == c.nothing {
					t.Errorf("%d %.2000s", o.resp.StatusCode, got)
				}
				all := outcomes(w)
				if len(all) != 1 || all[0].Decision == "ok" || all[0].Code != c.code {
					t.Fatalf("%+v", all)
				}
				if detail, _ := json.Marshal(all[0].Detail); strings.Contains(string(detail), `"left":{"bytes":`) == c.nothing {
					t.Errorf("%s", detail)
				}
			})
		}
	}
}

// A provider that falls silent in the middle of an answer holds up nobody else, and a client that gives up on it ends the request: the provider sees it
// leave, and the outcome says what had left.
func TestStalledModelStreams(t *testing.T) {
	for name, f := range streamed {
		t.Run(name, func(t *testing.T) {
			p := newModelProvider(t)
			w := start(t, p.config("[]"), thinker("bot"), thinker("other"))
			s := p.streams(t)
			t.Cleanup(func() { close(s.pieces) })
			begun := w.begin(f.path, w.token("bot"), f.body)
			s.pieces <- f.begin
			s.pieces <- f.text("Hello there ")
			s.pieces <- f.act[0]
			s.pieces <- f.act[1]
			o := <-begun
			o.until("Hello there")
			p.says(nil)
			if status, body := w.post(f.path, w.token("other"), strings.Replace(f.body, `"stream":true,`, "", 1), nil); status != 200 {
				t.Errorf("beside it: %d %s", status, body)
			}
			if len(outcomes(w)) != 1 {
				t.Error("the stalled answer has an outcome")
			}
			_ = o.resp.Body.Close()
			eventually(t, 20*time.Second, "the provider sees that nobody waits", func() bool {
				select {
				case s.pieces <- f.text("more "):
				case <-s.gone:
					return true
				}
				return false
			})
			eventually(t, 20*time.Second, "the outcome", func() bool { return len(outcomes(w)) == 2 })
			last := outcomes(w)[1]
			if detail, _ := json.Marshal(last.Detail); last.Decision == "ok" || !strings.Contains(string(detail), `"left":{"bytes":`) {
				t.Errorf("%+v %s", last, detail)
			}
		})
	}
}

// What a model gives as arguments is the client's to read: pieces that are no JSON are handed on as they are, once the outcome is on record.
func TestMalformedArgumentsArePassedOn(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot"))
	for name, f := range streamed {
		s := p.streams(t)
		begun := w.begin(f.path, w.token("bot"), f.body)
		s.pieces <- f.begin
		for _, piece := range f.act {
			s.pieces <- strings.ReplaceAll(piece, `:1}"`, `:"`)
		}
		close(s.pieces)
		o := <-begun
		got := o.rest()
		if o.resp.StatusCode != 200 || !strings.Contains(got, f.end) || !strings.Contains(got, "delete_all") || strings.Contains(got, `:1}"`) {
			t.Errorf("%s: %d %s", name, o.resp.StatusCode, got)
		}
		all := outcomes(w)
		if last := all[len(all)-1]; last.Decision != "ok" || !strings.Contains(string(last.Detail), `"ungoverned":{"delete_all":1}`) {
			t.Errorf("%s: %+v", name, last)
		}
	}
	w.sane()
}

// The switch ends a stream within a second, with an error that ends it.
func TestKillEndsModelStreams(t *testing.T) {
	for name, f := range streamed {
		t.Run(name, func(t *testing.T) {
			p := newModelProvider(t)
			w := start(t, p.config("[]"), thinker("bot"))
			s := p.streams(t)
			begun := w.begin(f.path, w.token("bot"), f.body)
			s.pieces <- f.begin
			s.pieces <- f.text("Hello there ")
			o := <-begun
			o.until("Hello there")
			within(t, time.Second, "ending a stream", func() {
				if _, err := w.root.Kill(t.Context(), "bot", "a test"); err != nil {
					t.Fatal(err)
				}
				if got := o.rest(); !strings.Contains(got, `"code":"kill_switch.active"`) || strings.Contains(got, f.end) {
					t.Errorf("%s", got)
				}
			})
			close(s.pieces)
			eventually(t, 5*time.Second, "the outcome says how much left", func() bool {
				all := outcomes(w)
				if len(all) != 1 {
					return false
				}
				detail, _ := json.Marshal(all[0].Detail)
				return strings.Contains(string(detail), `"left":{"bytes":`)
			})
		})
	}
}

// Sensitive text raises the session's label before it leaves, however it is cut; structured output leaves only at the end.
func TestModelStreamsAreInspected(t *testing.T) {
	for name, f := range streamed {
		t.Run(name, func(t *testing.T) {
			p := newModelProvider(t)
			w := start(t, p.config("[pii]"), thinker("bot"))
			session, token := w.open("bot")
			s := p.streams(t)
			begun := w.begin(f.path, token, f.body)
			s.pieces <- f.begin
			s.pieces <- f.text("Pay DE89 3704 0044 0532 ")
			o := <-begun
			o.until("\n\n")
			if strings.Contains(o.all.String(), "3704") {
				t.Error("a number leaves before it is complete")
			}
			s.pieces <- f.text("0130 00 today please ")
			o.until("0130 00")
			got, err := w.root.Session(t.Context(), session)
			if err != nil || !strings.Contains(fmt.Sprint(got.Labels), "pii") {
				t.Errorf("%v, %v", got.Labels, err)
			}
			for _, piece := range f.act {
				s.pieces <- piece
			}
			close(s.pieces)
			if all := o.rest(); strings.Count(all, "DE89 3704") != 1 || !strings.Contains(all, f.end) {
				t.Errorf("%s", all)
			}

			s = p.streams(t)
			format := map[string]string{"messages": `"output_config":{"format":{"type":"json_schema","schema":{}}},`, "chat": `"response_format":{"type":"json_object"},`, "responses": `"text":{"format":{"type":"json_object"}},`}[name]
			begun = w.begin(f.path, token, strings.Replace(f.body, `"stream"`, format+`"stream"`, 1))
			s.pieces <- f.begin
			s.pieces <- f.text("{} ")
			s.pieces <- f.text("and more ")
			select {
			case <-begun:
				t.Error("structured output leaves before its outcome")
			default:
			}
			for _, piece := range f.act {
				s.pieces <- piece
			}
			close(s.pieces)
			if all := (<-begun).rest(); !strings.Contains(all, "and more") || !strings.Contains(all, f.end) {
				t.Errorf("%s", all)
			}
		})
	}
}

// A provider can't have a secret leave in halves by letting blocks take turns: what goes on with a block that was over waits for the outcome. Where the stream breaks off, it never leaves.
func TestBlocksOfAStreamThatTakeTurns(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot"))
	for name, f := range streamed {
		_, token := w.open("bot")
		const half, rest = "ghp_16C7e42F292c6912E7", "710c838347Ae178B4a"
		other := strings.NewReplacer(`"index":0,"delta"`, `"index":1,"delta"`, `"output_index":0`, `"output_index":1`).Replace(f.text("meanwhile, "))
		if name == "chat" {
			other = strings.Replace(f.text("meanwhile, "), `"content"`, `"reasoning_content"`, 1)
		}
		p.saysText("text/event-stream", f.begin+f.text("Use "+half)+other+f.text(rest+" for it, and go on. "))
		_, answer := w.post(f.path, token, f.body, nil)
		if got := string(answer); !strings.Contains(got, half) || !strings.Contains(got, "meanwhile") || strings.Contains(got, rest) || !strings.Contains(got, "upstream.failed") {
			t.Errorf("%s: %s", name, got)
		}
	}
	w.sane()
}
