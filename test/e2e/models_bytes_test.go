package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// The marks by which providers cache, and what proves that a model thought something itself, as they are written in requests and answers. Names are sorted
// and nothing is spaced, so that what is sent on can be compared letter by letter.
const (
	aSignatureHead = "EqQBCkgIBBABGAIiQL/2mQ+b9zX7vOe"
	aMark          = `"cache_control":{"ttl":"1h","type":"ephemeral"}`
	aShortMark     = `"cache_control":{"type":"ephemeral"}`
	aThought       = `{"signature":"` + aSignatureHead + `SIGNATURE==","thinking":"Is 1 < 2 && \"so\"? Ümläut, \u0001 and 😀.","type":"thinking"}`
	aHiddenThought = `{"data":"EmwKAhgBEgy3va3pzix/LafPsn4a+SIGNATURE","type":"redacted_thinking"}`
)

// withSignature makes signatures longer than what a stream holds back, of each kind of letter that base64 has.
func withSignature(text string) string {
	return strings.ReplaceAll(text, "SIGNATURE", strings.Repeat("kD8+/xYz01Qv", 500))
}

// member is a member of an object, as it is written.
func member(t testing.TB, object, name string) string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &all); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	return string(all[name])
}

// Marks for the cache and signatures pass letter by letter, in requests and in answers, whole and streamed; what stands before them in a request is the same in
// every turn, or no provider would find it in its cache.
func TestCacheMarksAndSignaturesPass(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot"))
	_, token := w.open("bot")
	asked := func(path, body string) string {
		t.Helper()
		before := len(p.requests())
		if status, answer := w.post(path, token, body, nil); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		all := p.requests()
		if len(all) != before+1 {
			t.Fatalf("%d requests", len(all)-before)
		}
		return all[before].body
	}

	const theirSystem = `{` + aMark + `,"text":"You are a coder.","type":"text"},{"text":"Be short.","type":"text"}`
	const theirTools = `[{` + aMark + `,"description":"d","input_schema":{"type":"object"},"name":"f"}]`
	request := func(turns string) string {
		return `{"max_tokens":2048,"messages":[` + turns + `],"model":"` + claude + `","system":[` + theirSystem + `],"thinking":{"budget_tokens":1024,"type":"enabled"},"tools":` + theirTools + `}`
	}
	first := `{"content":[{` + aMark + `,"text":"Count.","type":"text"}],"role":"user"}`
	thought := withSignature(`{"content":[` + aThought + `,` + aHiddenThought + `,{` + aShortMark + `,"id":"t1","input":{"a":1},"name":"f","type":"tool_use"}],"role":"assistant"}`)
	result := `{"content":[{` + aShortMark + `,"content":[{` + aShortMark + `,"text":"1","type":"text"}],"tool_use_id":"t1","type":"tool_result"}],"role":"user"}`
	var system string
	for i, turns := range []string{
		first,
		first + "," + thought + "," + result,
		strings.Replace(first, aMark+",", "", 1) + "," + thought + "," + strings.ReplaceAll(result, aShortMark+",", "") + "," + strings.Replace(first, "Count.", "And?", 1), // the mark moves on
	} {
		sent := asked("/anthropic/v1/messages", request(turns))
		if got := member(t, sent, "messages"); got != "["+turns+"]" {
			t.Errorf("turn %d: the messages are\n%.4000s, not\n%.4000s", i, got, turns)
		}
		if got := member(t, sent, "tools"); got != theirTools {
			t.Errorf("turn %d: the tools are %s", i, got)
		}
		got := member(t, sent, "system")
		if i == 0 {
			system = got
		}
		if got != system || strings.Count(got, "# Core Principles") != 1 || !strings.HasPrefix(got, `[{"text":"You are a`) || !strings.HasSuffix(got, ","+theirSystem+"]") {
			t.Errorf("turn %d: the system message is %s", i, got)
		}
	}

	// What OpenAI's reasoning models want back.
	const items = `[{"content":"Count.","role":"user"},{"encrypted_content":"gAAAAB-_SIGNATURE==","id":"rs_1","summary":[{"text":"1 < 2","type":"summary_text"}],"type":"reasoning"},{"arguments":"{}","call_id":"c1","id":"fc_1","name":"f","type":"function_call"},{"call_id":"c1","output":"1","type":"function_call_output"}]`
	ofTurn := ""
	for i := range 2 {
		sent := asked("/openai/v1/responses", withSignature(`{"include":["reasoning.encrypted_content"],"input":`+items+`,"model":"`+gpt+`"}`))
		if got := member(t, sent, "input"); got != withSignature(items) {
			t.Errorf("the input is %.4000s", got)
		}
		got := member(t, sent, "instructions")
		if i == 0 {
			ofTurn = got
		}
		if got != ofTurn || strings.Count(got, "# Core Principles") != 1 {
			t.Errorf("the instructions are %s", got)
		}
	}

	// And back: whole.
	for name, answer := range map[string]string{
		"messages":  `{"id":"m","type":"message","role":"assistant","model":"` + claude + `","content":[` + aThought + `,` + aHiddenThought + `,{"type":"text","text":"Yes."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2,"cache_read_input_tokens":7}}`,
		"responses": `{"id":"r","object":"response","created_at":1,"status":"completed","model":"` + gpt + `","output":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAAAB-_SIGNATURE=="}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}`,
	} {
		answer = withSignature(answer)
		p.saysText("application/json", answer)
		f := modelForms[name]
		if status, got := w.post(f.path, token, strings.ReplaceAll(f.body, "%q", `"Think."`), nil); status != 200 || string(got) != answer {
			t.Errorf("%s: %d %.4000s", name, status, got)
		}
	}

	// And streamed. The signature comes in pieces.
	signature := withSignature(aSignatureHead + "SIGNATURE==")
	block := func(kind, members string) string {
		return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\",\"index\":0" + members + "}\n\n"
	}
	messages := streamed["messages"]
	begin, _, _ := strings.Cut(messages.begin, "event: content_block_start")
	answer := begin + block("content_block_start", `,"content_block":{"type":"thinking","thinking":"","signature":""}`) +
		block("content_block_delta", `,"delta":{"type":"thinking_delta","thinking":"Is 1 < 2 && \"so\"? Ümläut 😀 "}`) +
		block("content_block_delta", `,"delta":{"type":"signature_delta","signature":"`+signature[:20]+`"}`) +
		block("content_block_delta", `,"delta":{"type":"signature_delta","signature":"`+signature[20:]+`"}`) +
		strings.Join(messages.act, "")
	p.saysText("text/event-stream", answer)
	if status, got := w.post(messages.path, token, messages.body, nil); status != 200 || string(got) != answer {
		t.Errorf("%d\n%.5000s\nnot\n%.5000s", status, got, answer)
	}
	responses := streamed["responses"]
	thinks := responseEvent(4, `"type":"response.output_item.added","output_index":1,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":""}`) +
		responseEvent(5, withSignature(`"type":"response.output_item.done","output_index":1,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAAAB-_SIGNATURE=="}`)) +
		responseEvent(6, `"type":"response.completed","response":`+wholeText("responses", "Yes."))
	p.saysText("text/event-stream", responses.begin+responses.text("Yes.")+thinks)
	if status, got := w.post(responses.path, token, responses.body, nil); status != 200 || string(got) != responses.begin+responses.text("Yes.")+thinks {
		t.Errorf("%d\n%.5000s", status, got)
	}
	w.sane()
}
