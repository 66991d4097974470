package wire

import (
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"sallyport.example/internal/fault"
)

const (
	start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":3,\"cache_read_input_tokens\":4}}}\n\n"
	begun = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
	stop  = "data: {\"type\":\"message_stop\"}\n\n"
	one   = `data: {"model":"m","choices":[{"index":0,"delta":{"content":"a b"},"finish_reason":null}]}` + "\n\n"
)

// What a stream has of no known form is counted; what it calls is named once, whole or in pieces.
func TestStreamsNameCallsAndCountTheUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		form    Form
		events  string
		calls   string
		unknown int
	}{
		"messages": {Messages, `{"type":"message_start","message":{"model":"m","content":[]}}
{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}
{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}
{"type":"novel_event"}
{"type":"message_delta","delta":{},"usage":{"output_tokens":1}}
{"type":"message_stop"}`, "f", 1},
		"chat": {Chat, `{"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":""}},{"index":1,"id":"u","custom":{"name":"g"}}]}}]}
{"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}
{"model":"m","choices":[{"index":0,"delta":{"novel":{"a":1}}}]}
[DONE]`, "f g", 1},
		"responses": {Responses, `{"type":"response.created","sequence_number":0,"response":{"model":"m","output":[]}}
{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"type":"function_call","name":"f"}}
{"type":"response.function_call_arguments.delta","sequence_number":2,"output_index":0,"delta":"{}"}
{"type":"response.output_item.done","sequence_number":3,"output_index":0,"item":{"type":"function_call","name":"f"}}
{"type":"response.output_item.done","sequence_number":4,"output_index":1,"item":{"type":"local_shell_call","action":{}}}
{"type":"response.novel.thing","sequence_number":5}
{"type":"response.completed","sequence_number":6,"response":{"model":"m","output":[]}}`, "f local_shell", 1},
	} {
		s := NewStream(Request{Form: c.form, Model: "m", Stream: true}, nil, strings.NewReader("data: "+strings.ReplaceAll(c.events, "\n", "\n\ndata: ")+"\n\n"))
		var calls []string
		unknown := 0
		for {
			e, err := s.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, one := range e.Calls {
				calls = append(calls, one.Name)
			}
			if e.Unknown {
				unknown++
			}
		}
		if got := strings.Join(calls, " "); got != c.calls || unknown != c.unknown {
			t.Errorf("%s: calls %q, %d unknown", name, got, unknown)
		}
	}
	for form, answer := range map[Form]string{
		Messages:  `{"content":[{"type":"text","text":"x"},{"type":"tool_use","name":"f","input":{"a":1}},{"type":"server_tool_use","name":"web_search"}]}`,
		Chat:      `{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}`,
		Responses: `{"output":[{"type":"message"},{"type":"function_call","name":"f","arguments":"{\"a\":1}"}]}`,
	} {
		if got := CallsIn(form, []byte(answer)); !slices.Equal(got, []Called{{"f", `{"a":1}`}}) {
			t.Errorf("%s: %q", form, got)
		}
	}
}

// A call is named with its arguments wherever in an answer it stands: whole, at the beginning of a stream, in an item that is done or never is, and in the last event alone.
func TestEachFormOfCallIsNamed(t *testing.T) {
	items := map[string]Called{
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"}`:                {"f", `{"a":1}`},
		`{"type":"function_call","call_id":"c","namespace":"mcp__s","name":"f","arguments":"x"}`:   {"mcp__s__f", "x"},
		`{"type":"function_call","call_id":"c","namespace":"mcp__s__","name":"f","arguments":"x"}`: {"mcp__s__f", "x"},
		`{"type":"custom_tool_call","call_id":"c","name":"f","input":"words"}`:                     {"f", "words"},
		`{"type":"local_shell_call","call_id":"c","action":{"command":["ls"]}}`:                    {"local_shell", `{"command":["ls"]}`},
		`{"type":"shell_call","call_id":"c","action":{"commands":["ls"]}}`:                         {"shell", `{"commands":["ls"]}`},
		`{"type":"apply_patch_call","call_id":"c","operation":{"diff":"d"}}`:                       {"apply_patch", `{"diff":"d"}`},
		`{"type":"computer_call","call_id":"c","action":{"type":"type","text":"t"}}`:               {"computer", `{"type":"type","text":"t"}`},
		`{"type":"computer_call","call_id":"c","actions":[{"type":"type","text":"t"}]}`:            {"computer", `[{"type":"type","text":"t"}]`},
		`{"type":"computer_call","call_id":"c","action":{"text":"t"},"actions":[{"text":"u"}]}`:    {"computer", `{"text":"t"}` + "\n" + `[{"text":"u"}]`},
		`{"type":"novel_call","call_id":"c","does":"d"}`:                                           {"novel", `{"type":"novel_call","call_id":"c","does":"d"}`},
	}
	stream := func(form Form, events string) (all []Called) {
		s := NewStream(Request{Form: form, Model: "m", Stream: true}, nil, strings.NewReader("data: "+strings.ReplaceAll(events, "\n", "\n\ndata: ")+"\n\n"))
		for {
			e, err := s.Next()
			if errors.Is(err, io.EOF) {
				return all
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e.Calls...)
		}
	}
	const other = `{"type":"function_call","call_id":"o","name":"other","arguments":"o"}`
	for item, want := range items {
		event := func(kind, members string) string {
			return `{"type":"response.` + kind + `","sequence_number":1,` + members + "}\n"
		}
		whole := func(kind, output string) string {
			return event(kind, `"response":{"model":"m","status":"completed","output":[`+output+`]}`)
		}
		begin, end := whole("created", ""), strings.TrimSpace(whole("completed", ""))
		done := event("output_item.done", `"output_index":0,"item":`+item)
		both := event("output_item.done", `"output_index":1,"item":`+other)
		for name, c := range map[string]struct {
			events string
			want   []Called
		}{
			"done":                                   {begin + done + end, []Called{want}},
			"done and whole":                         {begin + done + strings.TrimSpace(whole("completed", item)), []Called{want}},
			"done twice":                             {begin + done + done + strings.TrimSpace(whole("completed", item+","+item)), []Called{want, want}},
			"never done":                             {begin + event("output_item.added", `"output_index":0,"item":`+item) + end, []Called{want}},
			"begun and done":                         {begin + event("output_item.added", `"output_index":0,"item":`+item) + done + end, []Called{want}},
			"in the last event alone":                {begin + strings.TrimSpace(whole("completed", item)), []Called{want}},
			"in the last event alone, after another": {begin + both + strings.TrimSpace(whole("completed", other+","+item)), []Called{{"other", "o"}, want}},
			"in the last event of one that was cut":  {begin + both + strings.TrimSpace(whole("incomplete", other+","+item)), []Called{{"other", "o"}, want}},
			"in the first event":                     {whole("created", item) + end, []Called{want}},
		} {
			if got := stream(Responses, c.events); !slices.Equal(got, c.want) {
				t.Errorf("%s, %s: %q", item, name, got)
			}
		}
		if got := CallsIn(Responses, []byte(`{"output":[`+item+`]}`)); !slices.Equal(got, []Called{want}) {
			t.Errorf("%s, whole: %q", item, got)
		}
	}
	for events, form := range map[string]Form{
		`{"type":"message_start","message":{"model":"m","content":[{"type":"tool_use","name":"f","input":{"a":1}}]}}` + "\n" + `{"type":"message_stop"}`:                                                                      Messages,
		`{"type":"message_start","message":{"model":"m","content":[]}}` + "\n" + `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"f","input":{"a":1}}}` + "\n" + `{"type":"message_stop"}`: Messages,
		`{"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}` + "\n[DONE]":                                                                             Chat,
		`{"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"custom":{"name":"f","input":"{\"a\":1}"}}]}}]}` + "\n[DONE]":                                                                                   Chat,
		`{"model":"m","choices":[{"index":0,"delta":{"function_call":{"name":"f","arguments":"{\"a\":1}"}}}]}` + "\n[DONE]":                                                                                                   Chat,
		`{"model":"m","choices":[{"index":0,"delta":{},"message":{"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}` + "\n[DONE]":                                                                          Chat,
	} {
		if got := stream(form, events); !slices.Equal(got, []Called{{"f", `{"a":1}`}}) {
			t.Errorf("%s: %q", events, got)
		}
	}
}

// What a request says of its client's functions: the description of one, and none of what is of another type or has two.
func TestDescribed(t *testing.T) {
	for body, form := range map[string]Form{
		`{"tools":[{"name":"f","description":"d"},{"type":"custom","name":"g","description":"e"},{"type":"bash_20250124","name":"b","description":"x"},{"name":"t","description":"1"},{"name":"t","description":"2"},{"name":"n"}]}`:                                                                                                                                                Messages,
		`{"tools":[{"type":"function","function":{"name":"f","description":"d"}},{"type":"function","function":{"name":"g","description":"e"}},{"type":"custom","custom":{"name":"b","description":"x"}},{"type":"function","function":{"name":"t","description":"1"}},{"type":"function","function":{"name":"t","description":"2"}},{"type":"function","function":{"name":"n"}}]}`: Chat,
		`{"tools":[{"type":"function","name":"f","description":"d"},{"type":"function","name":"g","description":"e"},{"type":"custom","name":"b","description":"x"},{"type":"function","name":"t","description":"1"},{"type":"function","name":"t","description":"2"},{"type":"function","name":"n"}]}`:                                                                             Responses,
	} {
		got := Described(form, []byte(body))
		if want := map[string]string{"f": "d", "g": "e", "b": "", "t": "", "n": ""}; !maps.Equal(got, want) {
			t.Errorf("%s: %q", form, got)
		}
	}
	got := Described(Responses, []byte(`{"tools":[{"type":"namespace","name":"mcp__s","tools":[{"type":"function","name":"f","description":"d"}]}]}`))
	if want := map[string]string{"mcp__s__f": "d"}; !maps.Equal(got, want) {
		t.Errorf("a namespace: %q", got)
	}
}

// opened is the beginning of a response; more is what follows it.
func opened(more ...string) string {
	return event(`"type":"response.created","response":{"id":"r","model":"m","output":[],"tools":[]}`) + strings.Join(more, "")
}

func event(members string) string { return `data: {"sequence_number":1,` + members + "}\n\n" }

func spoken(text string) string {
	return event(`"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"logprobs":[],"delta":"` + text + `"`)
}

func delta(kind, field, text string) string {
	return `data: {"type":"content_block_delta","index":0,"delta":{"type":"` + kind + `","` + field + `":"` + text + `"}}` + "\n\n"
}

// read reads a stream to its end: what left at once, what was held, and the error.
func read(form Form, in io.Reader, hide bool) (out, rest string, u Usage, err error) {
	s, w := NewStream(Request{Form: form, Model: "m", HideUsage: hide}, nil, in), NewWindow(false)
	for {
		e, err := s.Next()
		if errors.Is(err, io.EOF) {
			return out, string(w.Rest()), s.Usage(), nil
		}
		if err != nil {
			return out, string(w.Rest()), s.Usage(), err
		}
		piece, _, _ := w.Add(e)
		out += string(piece)
	}
}

// Whatever an answer has in it besides text is held, with all that follows it; however the bytes are cut makes no difference.
func TestStreamsHoldWhatCanAct(t *testing.T) {
	for name, c := range map[string]struct {
		form        Form
		events      string
		leaves, not string
	}{
		"text":                  {Messages, start + begun + delta("text_delta", "text", "a b"), `"a b"`, ""},
		"thinking":              {Messages, start + delta("thinking_delta", "thinking", "a b ") + delta("signature_delta", "signature", "xyz"), `"a b "`, ""},
		"a tool":                {Messages, start + `data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}` + "\n\n" + delta("text_delta", "text", "after "), "message_start", "after"},
		"arguments":             {Messages, start + delta("input_json_delta", "partial_json", "x") + delta("text_delta", "text", "after "), "message_start", "after"},
		"an unknown delta":      {Messages, start + delta("novel_delta", "text", "x") + delta("text_delta", "text", "after "), "message_start", "after"},
		"an unknown event":      {Messages, start + "data: {\"type\":\"novel\"}\n\n" + delta("text_delta", "text", "after "), "message_start", "after"},
		"an unknown member":     {Messages, start + `data: {"type":"content_block_delta","index":0,"run":1,"delta":{"type":"text_delta","text":"x"}}` + "\n\n" + delta("text_delta", "text", "after "), "message_start", "after"},
		"content at its start":  {Messages, strings.Replace(start, `"content":[]`, `"content":[{"type":"tool_use"}]`, 1) + delta("text_delta", "text", "after "), "", "after"},
		"words as its usage":    {Messages, strings.Replace(start, `"usage":{`, `"usage":{"tier":"words of any kind",`, 1) + delta("text_delta", "text", "after "), "", "words of any kind"},
		"words as its end":      {Messages, strings.Replace(start, `"content":[]`, `"content":[],"stop_reason":"words of any kind"`, 1) + delta("text_delta", "text", "after "), "", "words of any kind"},
		"words as a chat's use": {Chat, strings.Replace(one, `"choices"`, `"usage":"words of any kind","choices"`, 1) + strings.Replace(one, "a b", "after ", 1), "", "words of any kind"},
		"words as a chat's day": {Chat, strings.Replace(one, `"choices"`, `"created":"words of any kind","choices"`, 1) + strings.Replace(one, "a b", "after ", 1), "", "words of any kind"},
		"words as an index":     {Responses, opened(strings.Replace(spoken("x"), `"output_index":0`, `"output_index":"words of any kind"`, 1), spoken("after ")), "response.created", "words of any kind"},
		"a chat's text":         {Chat, one + strings.Replace(one, "a b", " c ", 1), `" c "`, ""},
		"a chat's tool":         {Chat, strings.Replace(one, `"content":"a b"`, `"tool_calls":[{"index":0}]`, 1) + strings.Replace(one, "a b", "after ", 1), "", "after"},
		"a chat's old function": {Chat, strings.Replace(one, `"content":"a b"`, `"function_call":{"name":"x"}`, 1) + strings.Replace(one, "a b", "after ", 1), "", "after"},
		"a second choice":       {Chat, strings.Replace(one, `"index":0`, `"index":1`, 1) + strings.Replace(one, "a b", "after ", 1), "", "after"},
		"a chat's novel member": {Chat, strings.Replace(one, `"choices"`, `"novel":1,"choices"`, 1) + strings.Replace(one, "a b", "after ", 1), "", "after"},
		"a response's text":     {Responses, opened(spoken("a b")), `"a b"`, ""},
		"a response's reasoning": {Responses, opened(event(`"type":"response.output_item.added","output_index":0,"item":{"id":"i","type":"reasoning","summary":[]}`), event(`"type":"response.reasoning_summary_text.delta","item_id":"i","output_index":0,"summary_index":0,"delta":"a b "`),
			event(`"type":"response.output_item.done","output_index":0,"item":{"id":"i","type":"reasoning","summary":[{"type":"summary_text","text":"a b "}],"encrypted_content":"xyz"}`), spoken("after ")), `"after "`, ""},
		// A client puts the text of each block together: where blocks take turns, nobody would look at the whole before it left.
		"blocks that take turns":     {Messages, start + delta("text_delta", "text", "ghp_") + strings.Replace(delta("text_delta", "text", "a b "), `"index":0`, `"index":1`, 1) + delta("text_delta", "text", "after "), `"a b "`, "after"},
		"a block after its end":      {Messages, start + delta("text_delta", "text", "ghp_") + "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n" + delta("text_delta", "text", "after "), "ghp_", "after"},
		"one block after another":    {Messages, start + delta("text_delta", "text", "a ") + "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n" + strings.Replace(delta("text_delta", "text", "after "), `"index":0`, `"index":1`, 1), "after ", ""},
		"a chat's turns":             {Chat, one + strings.Replace(one, "content", "reasoning", 1) + strings.Replace(one, "a b", "after ", 1), "reasoning", "after"},
		"a chat's thought, and text": {Chat, strings.Replace(one, "content", "reasoning", 1) + strings.Replace(one, `"content"`, `"reasoning":"","content"`, 1) + strings.Replace(one, "a b", "after ", 1), "after ", ""},
		"a response's turns":         {Responses, opened(spoken("a b "), strings.Replace(spoken("c d "), `"output_index":0`, `"output_index":1`, 1), spoken("after ")), "c d ", "after"},
		"a response's call":          {Responses, opened(event(`"type":"response.output_item.added","output_index":0,"item":{"id":"i","type":"function_call","call_id":"c","name":"n","arguments":""}`), spoken("after ")), "response.created", "after"},
		"a response's arguments":     {Responses, opened(event(`"type":"response.function_call_arguments.delta","item_id":"i","output_index":0,"delta":"x"`), spoken("after ")), "response.created", "after"},
		"an item that is not empty":  {Responses, opened(event(`"type":"response.output_item.added","output_index":0,"item":{"id":"i","type":"message","role":"assistant","content":[{"type":"run","text":"x"}]}`), spoken("after ")), "response.created", "after"},
		"an annotation":              {Responses, opened(event(`"type":"response.content_part.done","output_index":0,"item_id":"i","content_index":0,"part":{"type":"output_text","text":"x","annotations":[{"type":"url_citation"}]}`), spoken("after ")), "response.created", "after"},
		"output at its start":        {Responses, strings.Replace(opened(spoken("after ")), `"output":[]`, `"output":[{"type":"function_call"}]`, 1), "", "after"},
		"a member nobody knows":      {Responses, opened(strings.Replace(spoken("x"), `"logprobs"`, `"run":1,"logprobs"`, 1), spoken("after ")), "response.created", "after"},
		"log probabilities":          {Responses, opened(strings.Replace(spoken("x"), `"logprobs":[]`, `"logprobs":[{"token":"x"}]`, 1), spoken("after ")), "response.created", "after"},
	} {
		events := c.events
		switch c.form {
		case Messages:
			events += stop
		case Responses:
			events += event(`"type":"response.completed","response":{"model":"m","output":[]}`)
		default:
			events += "data: [DONE]\n\n"
		}
		out, rest, _, err := read(c.form, strings.NewReader(events), false)
		if err != nil || !strings.Contains(out, c.leaves) || c.not != "" && (strings.Contains(out, c.not) || !strings.Contains(rest, c.not)) {
			t.Errorf("%s: left %q, held %q, %v", name, out, rest, err)
		}
		again, held, _, err := read(c.form, iotest.OneByteReader(strings.NewReader(strings.ReplaceAll(events, "\n", "\r\n"))), false)
		if err != nil || again != out || held != rest {
			t.Errorf("%s: cut in bytes: left %q, held %q, %v", name, again, held, err)
		}
	}
}

func TestStreamsSayWhatTheyUsed(t *testing.T) {
	_, _, u, err := read(Messages, strings.NewReader(start+`data: {"type":"message_delta","delta":{},"usage":{"output_tokens":9}}`+"\n\n"+stop), false)
	if err != nil || u != (Usage{Input: 7, Output: 9}) {
		t.Error(u, err)
	}
	// What the provider's tools brought while it answered counts, too, and nothing that was counted is taken back.
	for delta, want := range map[string]Usage{`"input_tokens":100,"output_tokens":9`: {Input: 100, Output: 9}, `"input_tokens":1,"output_tokens":9.0`: {Input: 7, Output: 9}} {
		if _, _, u, err := read(Messages, strings.NewReader(start+`data: {"type":"message_delta","delta":{},"usage":{`+delta+`}}`+"\n\n"+stop), false); err != nil || u != want {
			t.Errorf("%s: %v, %v", delta, u, err)
		}
	}
	const used = `data: {"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9}}` + "\n\n"
	for _, hide := range []bool{true, false} {
		out, rest, u, err := read(Chat, strings.NewReader(one+used+"data: [DONE]\n\n"), hide)
		if err != nil || u != (Usage{Input: 3, Output: 9}) || strings.Contains(out+rest, "prompt_tokens") == hide {
			t.Errorf("%v: %q %q, %v, %v", hide, out, rest, u, err)
		}
	}
}

func TestStreamsThatBreak(t *testing.T) {
	for events, code := range map[string]fault.Code{
		start: fault.UpstreamFailed, start + "data: {": fault.UpstreamFailed, "": fault.UpstreamFailed, "data: {}\n\n": fault.ResultInvalid, "data: [1]\n\n": fault.ResultInvalid, delta("text_delta", "text", "x"): fault.OutputInvalid,
		stop: fault.OutputInvalid, strings.Replace(start, `"m"`, `"n"`, 1): fault.OutputInvalid, start + stop + stop: fault.ResultInvalid, start + "data: {\"type\":\"error\"}\n\n": fault.UpstreamFailed,
		"data: " + strings.Repeat("x", maxEvent+1) + "\n\n": fault.ResultTooLarge, strings.Repeat("data: x", maxEvent): fault.ResultTooLarge,
	} {
		if _, _, _, err := read(Messages, strings.NewReader(events), false); !fault.Is(err, code) {
			t.Errorf("%.80q: %v", events, err)
		}
	}
	for events, code := range map[string]fault.Code{
		opened(): fault.UpstreamFailed, spoken("x"): fault.OutputInvalid, strings.Replace(opened(), `"m"`, `"n"`, 1): fault.OutputInvalid, opened(event(`"type":"response.failed","response":{"model":"m","error":{"message":"x"}}`)): fault.UpstreamFailed,
		opened(event(`"type":"error","message":"x"`)): fault.UpstreamFailed, opened(event(`"type":"response.completed","response":{"model":"n"}`)): fault.OutputInvalid, "data: {\"type\":\"a b\"}\n\n": fault.ResultInvalid,
		opened(event(`"type":"response.completed","response":{"model":"m"}`), spoken("x")): fault.ResultInvalid,
	} {
		if _, _, _, err := read(Responses, strings.NewReader(events), false); !fault.Is(err, code) {
			t.Errorf("%.200q: %v", events, err)
		}
	}
	if _, _, _, err := read(Chat, strings.NewReader("data: [DONE]\n\n"), false); !fault.Is(err, fault.OutputInvalid) {
		t.Error(err)
	}
}

// A window holds back a word that is not complete, groups that may be one number, and a key of several lines; never more than the bound.
func TestWindow(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "word": 0, "two words": 4, "a b ": 4, "pay DE89 3704 ": 4, "pay DE89 3704 now": 4, "pay 12 now and ": 15, "x\n-----BEGIN RSA PRIVATE KEY----- abc def ": 2,
		"-----BEGIN A----- b -----END A----- c ": 38, strings.Repeat("x", maxTail+1): maxTail + 1,
	} {
		if got := safeLength([]byte(text)); got != want {
			t.Errorf("%.60q: %d, want %d", text, got, want)
		}
	}
	w := NewWindow(true)
	if out, _, _ := w.Add(Event{Raw: []byte("x"), Text: "a b ", Settles: true}); out != nil || string(w.Rest()) != "x" {
		t.Error("it leaves")
	}
}

// Whatever a provider streams: all that left and all that is held is what it sent, in its order, and nothing leaves after what can act.
func FuzzStream(f *testing.F) {
	f.Add(string(Messages), start+begun+delta("text_delta", "text", "a b c")+stop)
	f.Add(string(Chat), one+"data: [DONE]\n\n")
	f.Add(string(Responses), opened(spoken("a b "), event(`"type":"response.completed","response":{"model":"m"}`)))
	f.Fuzz(func(t *testing.T, form, events string) {
		r, w := NewStream(Request{Form: Form(form), Model: "m"}, nil, strings.NewReader(events)), NewWindow(false)
		var all, out string
		holds := false
		for {
			e, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && fault.Of(err).Code == fault.Internal {
					t.Fatal(err)
				}
				break
			}
			piece, _, _ := w.Add(e)
			if holds && len(piece) > 0 {
				t.Fatalf("it left after what can act: %q", piece)
			}
			holds = holds || e.Holds
			all, out = all+string(e.Raw), out+string(piece)
		}
		if out+string(w.Rest()) != all {
			t.Fatal("something was lost, or left out of order")
		}
	})
}

// TestWhatIsNotAsExpectedIsHeld: a member of another type, or one that nobody looks at, can carry anything.
func TestWhatIsNotAsExpectedIsHeld(t *testing.T) {
	chunk := func(more, delta string) string {
		return `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m"` + more + `,"choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}`
	}
	for name, c := range map[string]struct {
		form  Form
		data  string
		holds bool
	}{
		"text":                           {Chat, chunk("", `{"role":"assistant","content":"a"}`), false},
		"another role":                   {Chat, chunk("", `{"role":{"x":1},"content":"a"}`), true},
		"an id that is an object":        {Chat, strings.Replace(chunk("", `{"content":"a"}`), `"id":"c"`, `"id":{"x":1}`, 1), true},
		"a sentence as the fingerprint":  {Chat, chunk(`,"system_fingerprint":"pay me now"`, `{"content":"a"}`), true},
		"a delta":                        {Messages, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`, false},
		"a delta whose text is an array": {Messages, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":["a"]}}`, true},
		"an index that is an object":     {Messages, `{"type":"content_block_delta","index":{"a":1},"delta":{"type":"text_delta","text":"a"}}`, true},
		"a block whose text is a number": {Messages, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":1}}`, true},
		"a block whose index is a word":  {Messages, `{"type":"content_block_start","index":"now","content_block":{"type":"text","text":""}}`, true},
		"a block":                        {Messages, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, false},
		"an end whose index is a word":   {Messages, `{"type":"content_block_stop","index":"now"}`, true},
		"an end":                         {Messages, `{"type":"content_block_stop","index":0}`, false},
		"a ping with more in it":         {Messages, `{"type":"ping","do":"this"}`, true},
		"a ping":                         {Messages, `{"type":"ping"}`, false},
		"usage beside text":              {Chat, chunk(`,"usage":{"prompt_tokens":3}`, `{"content":"a"}`), true},
		"another choice":                 {Chat, strings.Replace(chunk("", `{"content":"a"}`), `"index":0`, `"index":1`, 1), true},
		"one choice twice":               {Chat, strings.Replace(chunk("", `{"content":"a"}`), `"choices":[`, `"choices":[{"index":0,"delta":{"content":"b"}},`, 1), true},
		"no choice":                      {Chat, `{"model":"m","choices":[]}`, true},
		"probabilities":                  {Chat, strings.Replace(chunk("", `{"content":"a"}`), `"index":0`, `"index":0,"logprobs":{"content":[]}`, 1), true},
		"a response's text":              {Responses, `{"type":"response.output_text.delta","sequence_number":1,"item_id":"i","output_index":0,"content_index":0,"delta":"a"}`, false},
		"a text without a number":        {Responses, `{"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"delta":"a"}`, true},
		"a sentence as an item's id":     {Responses, `{"type":"response.output_text.delta","sequence_number":1,"item_id":"pay me now","output_index":0,"delta":"a"}`, true},
		"a sentence as a filling":        {Responses, `{"type":"response.output_text.delta","sequence_number":1,"obfuscation":"pay me now","output_index":0,"delta":"a"}`, true},
		"a whole text":                   {Responses, `{"type":"response.output_text.done","sequence_number":1,"item_id":"i","output_index":0,"text":"a"}`, false},
		"a whole text that is a number":  {Responses, `{"type":"response.output_text.done","sequence_number":1,"item_id":"i","output_index":0,"text":1}`, true},
		"its probabilities":              {Responses, `{"type":"response.output_text.done","sequence_number":1,"item_id":"i","output_index":0,"text":"a","logprobs":[{"token":"a"}]}`, true},
		"a response's start":             {Responses, `{"type":"response.created","sequence_number":1,"response":{"model":"m","output":[]}}`, false},
		"a response that has begun":      {Responses, `{"type":"response.created","sequence_number":1,"response":{"model":"m","output":[{"type":"message"}]}}`, true},
		"a response with more in it":     {Responses, `{"type":"response.created","sequence_number":1,"response":{"model":"m","output":[],"do":"this"}}`, true},
		"a start with more in it":        {Messages, `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"do":"this"}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStream(Request{Form: c.form, Model: "m"}, nil, strings.NewReader(""))
			s.named = true
			e, _, err := s.read([]byte(c.data))
			if err != nil || e.Holds != c.holds {
				t.Errorf("holds %v, %v", e.Holds, err)
			}
		})
	}
}

// TestWhatAClientPutsTogether: the pieces of a call's arguments are told as one text, and so is each block.
func TestWhatAClientPutsTogether(t *testing.T) {
	type answer struct {
		form   Form
		events []string
	}
	var answers []answer
	for form, events := range map[Form][]string{
		Messages: {
			`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"k\":\"AKIA"}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"between"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"REST\"}"}}`,
		},
		Chat: {
			`{"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\"k\":\"AKIA"}}]}}]}`,
			`{"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"between"}}]}}]}`,
			`{"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"REST\"}"}}]}}]}`,
		},
		Responses: {
			`{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"k\":\"AKIA"}`,
			`{"type":"response.function_call_arguments.delta","output_index":1,"delta":"between"}`,
			`{"type":"response.function_call_arguments.delta","output_index":0,"delta":"REST\"}"}`,
		},
	} {
		answers = append(answers, answer{form, events})
		for _, other := range []string{"0.0", "-0", "0e9", `"0"`} { // the same place to a client
			changed := slices.Clone(events)
			changed[2] = regexp.MustCompile(`("(?:output_)?index"):[01](,"(?:delta|function)")`).ReplaceAllString(changed[2], "$1:"+other+"$2")
			answers = append(answers, answer{form, changed})
		}
	}
	for _, a := range answers {
		form, events := a.form, a.events
		s := NewStream(Request{Form: form, Model: "m"}, nil, strings.NewReader(""))
		s.named = true
		whole := map[string]string{}
		for _, data := range events {
			e, _, err := s.read([]byte(data))
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range e.Args {
				whole[part.Of] += part.Text
			}
		}
		found := false
		for _, text := range whole {
			found = found || text == `{"k":"AKIAREST"}`
		}
		if !found {
			t.Errorf("form %v, %s: %q", form, events[2], whole)
		}
	}
}

// TestLinesOfAnEvent: what is sent on is one line of data, whatever lines it came in.
func TestLinesOfAnEvent(t *testing.T) {
	s := NewStream(Request{Form: Messages, Model: "m"}, nil, strings.NewReader("data: {\"type\":\ndata: \"ping\"}\n\n"))
	e, err := s.Next()
	if err != nil || strings.Count(string(e.Raw), "\n") != 3 || !strings.Contains(string(e.Raw), `data: {"type": "ping"}`) {
		t.Errorf("%q, %v", e.Raw, err)
	}
}

// An error that ends a stream is one that each form's clients read. Of responses a second event says it to those that read only the answer's own end, and
// whether to try again.
func TestRefusalEvents(t *testing.T) {
	const refusal = `{"error":{"code":"flow.contaminated","message":"It \"was\" refused."}}`
	const numbered = `{"error":{"code":"flow.contaminated","message":"It \"was\" refused."},"sequence_number":999999999,"type":"error"}`
	for name, c := range map[string]struct {
		form  Form
		final bool
		want  string
	}{
		"messages":           {Messages, true, "event: error\ndata: " + refusal + "\n\n"},
		"a chat":             {Chat, true, "data: " + refusal + "\n\n"},
		"a response":         {Responses, true, "event: error\ndata: " + numbered + "\n\nevent: response.failed\ndata: " + `{"response":{"error":{"code":"invalid_prompt","message":"It \"was\" refused."},"object":"response","output":[],"status":"failed"},"sequence_number":999999999,"type":"response.failed"}` + "\n\n"},
		"a response in vain": {Responses, false, "event: error\ndata: " + numbered + "\n\nevent: response.failed\ndata: " + `{"response":{"error":{"code":"server_error","message":"It \"was\" refused."},"object":"response","output":[],"status":"failed"},"sequence_number":999999999,"type":"response.failed"}` + "\n\n"},
	} {
		if got := string(RefusalEvents(c.form, []byte(refusal), c.final)); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Arguments that come where no call was named are of a call without a name, once for each place; those of a named call and of a tool that the provider runs
// are not.
func TestArgumentsOfNoNamedCall(t *testing.T) {
	const (
		block  = `{"type":"content_block_delta","index":%,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}`
		chunk  = `{"model":"m","choices":[{"index":0,"delta":{%}}]}`
		delta  = `{"type":"response.function_call_arguments.delta","output_index":%,"delta":"{\"a\""}`
		starts = `{"type":"content_block_start","index":0,"content_block":%}`
		added  = `{"type":"response.output_item.added","output_index":0,"item":%}`
	)
	with := func(event, of string) string { return strings.Replace(event, "%", of, 1) }
	for name, c := range map[string]struct {
		form   Form
		events []string
		want   []string // the calls' names
		text   string   // what stands among the arguments
	}{
		"a message's":                  {Messages, []string{with(block, "0"), with(block, "0"), with(block, "1")}, []string{"", ""}, `{"a"`},
		"in a block of text":           {Messages, []string{with(starts, `{"type":"text","text":""}`), with(block, "0")}, []string{""}, `{"a"`},
		"of a message's call":          {Messages, []string{with(starts, `{"type":"tool_use","id":"t","name":"f","input":{}}`), with(block, "0")}, []string{"f"}, `{"a"`},
		"beside a message's call":      {Messages, []string{with(starts, `{"type":"tool_use","id":"t","name":"f","input":{}}`), with(block, "1")}, []string{"f", ""}, `{"a"`},
		"of what the provider runs":    {Messages, []string{with(starts, `{"type":"server_tool_use","id":"t","name":"web_search","input":{}}`), with(block, "0")}, nil, `{"a"`},
		"of a block of no known type":  {Messages, []string{with(starts, `{"type":"novel_use","name":"f","input":{"a":1}}`), with(block, "0")}, []string{"novel"}, `{"a"`},
		"a chat's":                     {Chat, []string{with(chunk, `"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}},{"index":0,"function":{"arguments":"}"}}]`)}, []string{""}, `{"a"`},
		"a chat's old form":            {Chat, []string{with(chunk, `"function_call":{"arguments":"{\"a\""}`)}, []string{""}, `{"a"`},
		"a chat's custom tool":         {Chat, []string{with(chunk, `"tool_calls":[{"index":0,"custom":{"input":"{\"a\""}}]`)}, []string{""}, `{"a"`},
		"a chat's arguments as object": {Chat, []string{with(chunk, `"tool_calls":[{"index":0,"function":{"arguments":{"a":1}}}]`)}, []string{""}, `{"a":1}`},
		"a chat's tool of no known type": {Chat, []string{with(chunk, `"tool_calls":[{"index":0,"type":"novel","novel":{"name":"f","does":"d"}}]`)}, []string{""},
			`"does":"d"`},
		"of a chat's call":           {Chat, []string{with(chunk, `"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":""}}]`), with(chunk, `"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]`)}, []string{"f"}, `{"a"`},
		"beside a chat's call":       {Chat, []string{with(chunk, `"tool_calls":[{"index":0,"function":{"name":"f"}},{"index":1,"function":{"arguments":"{\"a\""}}]`)}, []string{"f", ""}, `{"a"`},
		"a chat's id alone":          {Chat, []string{with(chunk, `"tool_calls":[{"index":0,"id":"t","type":"function"}]`)}, nil, ``},
		"a response's":               {Responses, []string{with(delta, "0"), with(delta, "0"), with(delta, "1")}, []string{"", ""}, `{"a"`},
		"a response's, whole":        {Responses, []string{`{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"a\":1}"}`}, []string{""}, `{"a":1}`},
		"a custom tool's, whole":     {Responses, []string{`{"type":"response.custom_tool_call_input.done","output_index":0,"input":"{\"a\":1}"}`}, []string{""}, `{"a":1}`},
		"in a response's message":    {Responses, []string{with(added, `{"type":"message","content":[]}`), with(delta, "0")}, []string{""}, `{"a"`},
		"of a response's call":       {Responses, []string{with(added, `{"type":"function_call","call_id":"c","name":"f","arguments":""}`), with(delta, "0")}, nil, `{"a"`}, // it is named when it is done
		"of a response's own search": {Responses, []string{with(added, `{"type":"web_search_call","status":"in_progress"}`), with(delta, "0")}, nil, `{"a"`},
	} {
		begin := map[Form]string{Messages: `{"type":"message_start","message":{"model":"m","content":[]}}`, Responses: `{"type":"response.created","response":{"model":"m","output":[]}}`}[c.form]
		s := NewStream(Request{Form: c.form, Model: "m"}, nil, strings.NewReader("data: "+strings.Join(append([]string{begin}, c.events...), "\n\ndata: ")+"\n\n"))
		if begin == "" {
			s = NewStream(Request{Form: c.form, Model: "m"}, nil, strings.NewReader("data: "+strings.Join(c.events, "\n\ndata: ")+"\n\n"))
		}
		var names []string
		arguments := ""
		for {
			e, err := s.Next()
			if err != nil {
				break // they have no end
			}
			for _, one := range e.Calls {
				names = append(names, one.Name)
			}
			for _, part := range e.Args {
				if arguments += part.Text; !e.Holds {
					t.Errorf("%s: it is not held", name)
				}
			}
		}
		if !slices.Equal(names, c.want) || !strings.Contains(arguments, c.text) {
			t.Errorf("%s: calls %q, arguments %q", name, names, arguments)
		}
	}
	for form, answer := range map[Form]string{
		Messages:  `{"content":[{"type":"tool_use","input":{"a":1}}]}`,
		Chat:      `{"choices":[{"message":{"tool_calls":[{"type":"function","function":{"arguments":"{\"a\":1}"}}]}}]}`,
		Responses: `{"output":[{"type":"function_call","arguments":"{\"a\":1}"}]}`,
	} {
		if got := CallsIn(form, []byte(answer)); !slices.Equal(got, []Called{{"", `{"a":1}`}}) {
			t.Errorf("%s, whole: %q", form, got)
		}
	}
}
