package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// structuredRequests ask each form for an answer that matches a schema.
var structuredRequests = map[Form]string{
	Messages:  `{"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}}`,
	Chat:      `{"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}}`,
	Responses: `{"text":{"format":{"type":"json_schema","name":"x","schema":{"type":"object"}}}}`,
}

// A schema is found where each form has it, and nowhere else.
func TestSchemaOf(t *testing.T) {
	for form, body := range structuredRequests {
		if got := string(SchemaOf(form, []byte(body))); got != `{"type":"object"}` || !MustHold(form, []byte(body)) {
			t.Errorf("%v: %q", form, got)
		}
		for _, other := range []string{`{}`, `{"response_format":null,"text":{"format":null},"output_config":null}`, `{"response_format":{"type":"text"},"text":{"format":{"type":"text"}}}`, `{"text":"json_schema","response_format":"json_schema"}`} {
			if got := SchemaOf(form, []byte(other)); got != nil {
				t.Errorf("%v: %s has a schema %s", form, other, got)
			}
		}
		if loose := strings.Replace(body, "json_schema", "json_object", 1); SchemaOf(form, []byte(loose)) != nil || !MustHold(form, []byte(loose)) {
			t.Errorf("%v: %s", form, loose)
		}
	}
}

// What a schema is about is the same in a whole answer and in a streamed one: the last text, if the model ended it. Calls, refusals and answers that were cut
// have none.
func TestStructuredAnswers(t *testing.T) {
	message := func(reason, content, events string) [2]string {
		return [2]string{
			fmt.Sprintf(`{"model":"m","stop_reason":%q,"content":[%s]}`, reason, content),
			`{"type":"message_start","message":{"model":"m","content":[]}}` + "\n" + events + "\n" + `{"type":"message_delta","delta":{"stop_reason":"` + reason + `"}}` + "\n" + `{"type":"message_stop"}`,
		}
	}
	chat := func(reason, message, delta string) [2]string {
		return [2]string{
			fmt.Sprintf(`{"model":"m","choices":[{"index":0,"finish_reason":%q,"message":%s}]}`, reason, message),
			fmt.Sprintf(`{"model":"m","choices":[{"index":0,"delta":%s}]}`, delta) + "\n" + fmt.Sprintf(`{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, reason) + "\n[DONE]",
		}
	}
	response := func(status, output string) [2]string {
		whole := fmt.Sprintf(`{"model":"m","status":%q,"output":[%s]}`, status, output)
		return [2]string{whole, `{"type":"response.created","sequence_number":0,"response":{"model":"m","output":[]}}` + "\n" + `{"type":"response.` + status + `","sequence_number":1,"response":` + whole + `}`}
	}
	const text, thought = `{"type":"text","text":"{\"a\":1}"}`, `{"type":"thinking","thinking":"{}"}`
	block := func(n int, b string, deltas ...string) string {
		all := fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, n, b)
		for _, d := range deltas {
			all += "\n" + fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, n, d)
		}
		return all
	}
	pieces := []string{`{"type":"text_delta","text":"{\"a\""}`, `{"type":"text_delta","text":":1}"}`}
	const said = `{"type":"message","content":[{"type":"output_text","text":"{\"a\":1}"}]}`
	for name, c := range map[string]struct {
		form   Form
		answer [2]string
		want   string // "-": none
	}{
		"messages":                        {Messages, message("end_turn", text, block(0, `{"type":"text","text":""}`, pieces...)), `{"a":1}`},
		"messages, after a thought":       {Messages, message("stop_sequence", thought+","+text, block(0, `{"type":"thinking","thinking":""}`, `{"type":"thinking_delta","thinking":"{}"}`)+"\n"+block(1, `{"type":"text","text":""}`, pieces...)), `{"a":1}`},
		"messages, the last of two texts": {Messages, message("end_turn", `{"type":"text","text":"Here it is."},`+text, block(0, `{"type":"text","text":"Here it is."}`)+"\n"+block(1, `{"type":"text","text":""}`, pieces...)), `Here it is. + {"a":1}`},
		"messages, an unknown end":        {Messages, message("novel", text, block(0, `{"type":"text","text":""}`, pieces...)), `{"a":1}`},
		"chat, an unknown end":            {Chat, chat("novel", `{"content":"{\"a\":1}"}`, `{"content":"{\"a\":1}"}`), `{"a":1}`},
		"responses, an unknown status":    {Responses, [2]string{`{"model":"m","output":[` + said + `]}`, `{"type":"response.created","sequence_number":0,"response":{"model":"m","output":[]}}` + "\n" + `{"type":"response.completed","sequence_number":1,"response":{"model":"m","output":[` + said + `]}}`}, `{"a":1}`},
		"messages, no text":               {Messages, message("end_turn", thought, block(0, `{"type":"thinking","thinking":"{}"}`)), ``},
		"messages, cut":                   {Messages, message("max_tokens", text, block(0, `{"type":"text","text":""}`, pieces...)), `-`},
		"messages, refused":               {Messages, message("refusal", text, block(0, `{"type":"text","text":""}`, pieces...)), `-`},
		"messages, a call":                {Messages, message("end_turn", text+`,{"type":"tool_use","name":"f","input":{}}`, block(0, text)+"\n"+block(1, `{"type":"tool_use","name":"f","input":{}}`)), `-`},
		"chat":                            {Chat, chat("stop", `{"content":"{\"a\":1}"}`, `{"content":"{\"a\":1}"}`), `{"a":1}`},
		"chat, no text":                   {Chat, chat("stop", `{"content":null}`, `{"content":null}`), ``},
		"chat, cut":                       {Chat, chat("length", `{"content":"{"}`, `{"content":"{"}`), `-`},
		"chat, refused":                   {Chat, chat("stop", `{"content":null,"refusal":"No."}`, `{"refusal":"No."}`), `-`},
		"chat, a call":                    {Chat, chat("stop", `{"content":"x","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}`, `{"content":"x","tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}`), `-`},
		"responses":                       {Responses, response("completed", `{"type":"reasoning","summary":[]},`+said), `{"a":1}`},
		"responses, no text":              {Responses, response("completed", ``), ``},
		"responses, cut":                  {Responses, response("incomplete", said), `-`},
		"responses, refused":              {Responses, response("completed", `{"type":"message","content":[{"type":"refusal","refusal":"No."}]}`), `-`},
		"responses, a call":               {Responses, response("completed", said+`,{"type":"function_call","name":"f","arguments":"{}"}`), `-`},
	} {
		check := func(how string, got [][]byte) {
			if (got == nil) != (c.want == "-") || got != nil && string(bytes.Join(got, []byte(" + "))) != c.want {
				t.Errorf("%s, %s: %q", name, how, got)
			}
		}
		check("whole", StructuredIn(c.form, []byte(c.answer[0])))
		for _, asked := range []string{structuredRequests[c.form], `{}`} {
			s := NewStream(Request{Form: c.form, Model: "m", Stream: true, Body: []byte(asked)}, nil, strings.NewReader("data: "+strings.ReplaceAll(c.answer[1], "\n", "\n\ndata: ")+"\n\n"))
			var got [][]byte
			for {
				e, err := s.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if e.Structured != nil {
					got = e.Structured
				}
			}
			if asked != `{}` {
				check("streamed", got)
			} else if got != nil {
				t.Errorf("%s: the answer to a request without a schema has %q", name, got)
			}
		}
	}
}

// What clients would put together must be what was checked: nothing follows an end, a response ends with the text that it streamed, and an answer that says
// of no end is checked all the same.
func TestStructuredStreamsAreWhole(t *testing.T) {
	for name, c := range map[string]struct {
		form   Form
		events string
		want   string // "": the stream is cut
	}{
		"chat, more after its end": {Chat, `{"model":"m","choices":[{"index":0,"delta":{"content":"{}"},"finish_reason":"stop"}]}
{"model":"m","choices":[{"index":0,"delta":{"content":" rm -rf"}}]}
[DONE]`, ""},
		"chat, no reason": {Chat, `{"model":"m","choices":[{"index":0,"delta":{"content":"{}"}}]}
[DONE]`, "{}"},
		"chat, the reason in escapes": {Chat, `{"model":"m","choices":[{"index":0,"delta":{"content":"{}"},"finish_reason":"\u0073top"}]}
[DONE]`, "{}"},
		"messages, no reason": {Messages, `{"type":"message_start","message":{"model":"m","content":[]}}
{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"{}"}}
{"type":"message_stop"}`, "{}"},
		"messages, more after the reason": {Messages, `{"type":"message_start","message":{"model":"m","content":[]}}
{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"{}"}}
{"type":"message_delta","delta":{"stop_reason":"end_turn"}}
{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" rm -rf"}}
{"type":"message_stop"}`, "{} rm -rf"},
		"responses, another text": {Responses, `{"type":"response.created","sequence_number":0,"response":{"model":"m","output":[]}}
{"type":"response.output_text.delta","sequence_number":1,"output_index":0,"content_index":0,"delta":"rm -rf"}
{"type":"response.completed","sequence_number":2,"response":{"model":"m","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"{}"}]}]}}`, ""},
	} {
		s := NewStream(Request{Form: c.form, Model: "m", Stream: true, Body: []byte(structuredRequests[c.form])}, nil, strings.NewReader("data: "+strings.ReplaceAll(c.events, "\n", "\n\ndata: ")+"\n\n"))
		var got [][]byte
		var err error
		for err == nil {
			var e Event
			if e, err = s.Next(); e.Structured != nil {
				got = e.Structured
			}
		}
		if whole := errors.Is(err, io.EOF); whole != (c.want != "") || whole && string(bytes.Join(got, []byte("+"))) != c.want {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
	two := `{"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"content":"rm -rf"}},{"index":1,"finish_reason":"length","message":{"content":"{}"}}]}`
	if got := StructuredIn(Chat, []byte(two)); len(got) != 1 || len(got[0]) != 0 {
		t.Errorf("two choices: %q", got)
	}
}
