package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

const (
	claude = "claude-sonnet-4-5-20250929"
	pixel  = "iVBORw0KGgo="
)

// requests have what clients send, in each form.
var requests = map[Form][]string{
	Messages: {
		`{"model":"` + claude + `","max_tokens":1,"messages":[{"role":"user","content":"Hi."}]}`,
		`{"model":"m","max_tokens":32000,"stream":true,"temperature":1,"system":[{"type":"text","text":"You are.","cache_control":{"type":"ephemeral","ttl":"1h"}}],
		"metadata":{"user_id":"u"},"thinking":{"type":"enabled","budget_tokens":1024},"tool_choice":{"type":"auto"},"stop_sequences":["x"],
		"tools":[{"name":"Bash","description":"d","input_schema":{"type":"object"}},{"type":"custom","name":"x","input_schema":{}},{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e","max_characters":9}],
		"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + pixel + `"}}]},
		{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"redacted_thinking","data":"d"},{"type":"tool_use","id":"t1","name":"Bash","input":{"a":1}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","is_error":false,"content":[{"type":"text","text":"r"}]}]}]}`,
	},
	Chat: {
		`{"model":"m","messages":[{"role":"user","content":"Hi."}]}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":true},"n":1,"store":false,"tool_choice":"auto","parallel_tool_calls":true,"response_format":{"type":"json_object"},"stop":["x"],"seed":1,"user":"u",
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}},{"type":"custom","custom":{"name":"c"}}],
		"messages":[{"role":"system","content":"s"},{"role":"developer","content":[{"type":"text","text":"d"}]},{"role":"user","name":"n","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + pixel + `","detail":"low"}}]},
		{"role":"assistant","content":[{"type":"text","text":"t","annotations":[]}]},{"role":"assistant","content":null,"refusal":null,"annotations":[],"audio":null,"function_call":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"t","content":"r"}]}`,
	},
	Responses: {
		`{"model":"m","input":"Hi."}`,
		`{"model":"m","stream":true,"store":false,"instructions":"You are.","max_output_tokens":9,"previous_response_id":null,"background":false,"include":["reasoning.encrypted_content"],"reasoning":{"effort":"low","summary":"auto"},
		"text":{"format":{"type":"text"},"verbosity":"low"},"parallel_tool_calls":true,"tool_choice":"auto","prompt_cache_key":"k","truncation":"disabled",
		"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":null},{"type":"custom","name":"apply_patch","format":{"type":"grammar"}},{"type":"local_shell"}],
		"input":[{"role":"developer","content":"d"},{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:image/png;base64,` + pixel + `","detail":"low"}]},
		{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"e"},
		{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"o","annotations":[],"logprobs":[]}]},
		{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"}]}`,
		// As Codex asks: functions of one server under its name, and what the client says of itself.
		`{"model":"m","stream":true,"store":false,"client_metadata":{"turn_id":"t"},"tools":[{"type":"namespace","name":"mcp__s","description":"d","tools":[{"type":"function","name":"f","description":"d","strict":false,"parameters":{"type":"object"}}]}],
		"input":[{"type":"function_call","id":"fc_1","call_id":"c","namespace":"mcp__s","name":"f","arguments":"{}"}]}`,
	},
	Count: {
		`{"model":"m","messages":[{"role":"user","content":"Hi."}]}`,
		`{"model":"m","system":"You are.","tools":[{"name":"Bash","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"Hi."}]}`,
	},
}

func canonical(t testing.TB, s string) []byte {
	b, err := call.Canonical([]byte(s), call.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	for form, all := range requests {
		for i, s := range all {
			r, err := Parse(form, nil, canonical(t, s), Allowed{})
			if err != nil {
				t.Errorf("%s %d: %v", form, i, err)
				continue
			}
			if r.Model == "" || r.Stream != strings.Contains(s, `"stream":true`) {
				t.Errorf("%s %d: %+v", form, i, r)
			}
			again, err := call.Canonical(r.Body, call.DefaultLimits())
			if err != nil || string(again) != string(r.Body) {
				t.Errorf("%s %d: what is sent is not canonical: %v", form, i, err)
			}
			if store, _ := call.Get(r.Body, "store"); (form == Chat || form == Responses) && string(store) != "false" {
				t.Errorf("%s %d: store is %s", form, i, store)
			}
		}
	}
}

// A field that is not on a list is refused wherever it stands, by its path; the operator can allow it there and nowhere else.
func TestUnknownFields(t *testing.T) {
	for form, places := range map[Form]map[string]string{
		Messages: {
			"":                         `{"model":"m","max_tokens":1,"messages":[],%s}`,
			"messages":                 `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x",%s}]}`,
			"messages.content":         `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"x",%s}]}]}`,
			"messages.content.source":  `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + pixel + `",%s}}]}]}`,
			"messages.content.content": `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x",%s}]}]}]}`,
			"tools":                    `{"model":"m","max_tokens":1,"messages":[],"tools":[{"name":"n","input_schema":{},%s}]}`,
			"system":                   `{"model":"m","max_tokens":1,"messages":[],"system":[{"type":"text","text":"x",%s}]}`,
			"metadata":                 `{"model":"m","max_tokens":1,"messages":[],"metadata":{%s}}`,
			"thinking":                 `{"model":"m","max_tokens":1,"messages":[],"thinking":{"type":"disabled",%s}}`,
			"tool_choice":              `{"model":"m","max_tokens":1,"messages":[],"tool_choice":{"type":"any",%s}}`,
		},
		Chat: {
			"":                           `{"model":"m","messages":[],%s}`,
			"messages":                   `{"model":"m","messages":[{"role":"user","content":"x",%s}]}`,
			"messages.content":           `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x",%s}]}]}`,
			"messages.content.image_url": `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + pixel + `",%s}}]}]}`,
			"messages.tool_calls":        `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":""},%s}]}]}`,
			"tools.function":             `{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f",%s}}]}`,
			"stream_options":             `{"model":"m","messages":[],"stream_options":{%s}}`,
		},
		Responses: {
			"":              `{"model":"m","input":"x",%s}`,
			"input":         `{"model":"m","input":[{"role":"user","content":"x",%s}]}`,
			"input.content": `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"x",%s}]}]}`,
			"input.output":  `{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x",%s}]}]}`,
			"input.summary": `{"model":"m","input":[{"type":"reasoning","summary":[{"type":"summary_text","text":"x",%s}]}]}`,
			"tools":         `{"model":"m","input":"x","tools":[{"type":"function","name":"f",%s}]}`,
			"tools.tools":   `{"model":"m","input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f",%s}]}]}`,
			"text":          `{"model":"m","input":"x","text":{%s}}`,
			"reasoning":     `{"model":"m","input":"x","reasoning":{%s}}`,
		},
		Count: {
			"":         `{"model":"m","messages":[],%s}`,
			"messages": `{"model":"m","messages":[{"role":"user","content":"x",%s}]}`,
		},
	} {
		for at, s := range places {
			body := canonical(t, fmt.Sprintf(s, `"novel":1`))
			path := join(at, "novel")
			_, err := Parse(form, nil, body, Allowed{Operator: []string{"other.novel", "nove"}})
			if e := fault.Of(err); !fault.Is(err, fault.RequestMalformed) || e.Field != path || !strings.Contains(e.Remedy, "allow") {
				t.Errorf("%s %s: %v", form, at, err)
			}
			if _, err := Parse(form, nil, body, Allowed{Operator: []string{path}}); err != nil {
				t.Errorf("%s %s, allowed: %v", form, at, err)
			}
			for _, kept := range byReference {
				if _, err := Parse(form, nil, canonical(t, fmt.Sprintf(s, `"`+kept+`":"x"`)), Allowed{Operator: []string{join(at, kept)}}); err == nil {
					t.Errorf("%s %s: %s passes", form, at, kept)
				}
			}
		}
	}
}

// What providers run is refused by every name that it has, and no setting allows it.
func TestWhatNothingAllows(t *testing.T) {
	for body, c := range map[string]struct {
		form  Form
		allow string
		code  fault.Code
	}{
		`{"model":"m","messages":[],"extra":{"a":[{"file_id":"f"}]}}`:                                                                                          {Chat, "extra", fault.RequestMalformed},
		`{"model":"m","messages":[],"extra":{"a":[{"type":"web_search_preview"}]}}`:                                                                            {Chat, "extra", fault.ModelHostedTool},
		`{"model":"m","messages":[],"extra":{"parameters":{"properties":{"prompt":{"type":"string"},"conversation":{}}},"url":"https://a.example"}}`:           {Chat, "extra", ""},
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"video","source":{"type":"base64","data":"AAAA"}}]}]}`:                      {Messages, "content:video", ""},
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"video","source":{"type":"url","url":"https://a.example/?q=x"}}]}]}`:        {Messages, "content:video", fault.RequestMalformed},
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"video","source":{"type":"file","id":"f"}}]}]}`:                             {Messages, "content:video", fault.RequestMalformed},
		`{"model":"m","input":[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"https://a.example/?q=x"}}]}`:   {Responses, "content:computer_call_output", fault.RequestMalformed},
		`{"model":"m","input":[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,AA"}}]}`: {Responses, "content:computer_call_output", ""},
		`{"model":"m","input":"x","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`:                                                         {Responses, "tool:shell", fault.ModelHostedTool},
		`{"model":"m","input":"x","tools":[{"type":"shell","environment":{"type":"local"}}]}`:                                                                  {Responses, "tool:shell", ""},
		`{"model":"m","input":"x","tool_choice":{"type":"web_search"}}`:                                                                                        {Responses, "", fault.ModelHostedTool},
		`{"model":"m","input":"x","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"s"}]}}`:                           {Responses, "", fault.ModelHostedTool},
		`{"model":"m","input":"x","tool_choice":{"type":"function","name":"f"}}`:                                                                               {Responses, "", ""},
		`{"model":"m","messages":[],"tool_choice":{"type":"function","function":{"name":"f"}}}`:                                                                {Chat, "", ""},
	} {
		_, err := Parse(c.form, nil, canonical(t, body), Allowed{Operator: []string{c.allow}})
		if c.code == "" && err != nil || c.code != "" && !fault.Is(err, c.code) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestHostedTools(t *testing.T) {
	for _, kind := range []string{
		"web_search", "web_search_20250305", "web_search_preview", "web_fetch_20250910", "code_execution_20250825", "code_interpreter", "file_search", "mcp", "mcp_toolset",
		"image_generation", "tool_search_tool_regex_20251119",
	} {
		for form, s := range map[Form]string{Messages: `{"model":"m","max_tokens":1,"messages":[],"tools":[{"type":%q,"name":"x"}]}`, Chat: `{"model":"m","messages":[],"tools":[{"type":%q}]}`, Responses: `{"model":"m","input":"x","tools":[{"type":%q}]}`} {
			_, err := Parse(form, nil, canonical(t, fmt.Sprintf(s, kind)), Allowed{Operator: []string{"tool:" + kind}})
			if !fault.Is(err, fault.ModelHostedTool) {
				t.Errorf("%s %s: %v", form, kind, err)
			}
		}
		if CheckAllow("tool:"+kind) == nil {
			t.Errorf("tool:%s may be allowed", kind)
		}
	}
	const said = `{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":%q}]}]}`
	for _, kind := range []string{"server_tool_use", "web_search_tool_result", "mcp_tool_use", "mcp_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result"} {
		if _, err := Parse(Messages, nil, canonical(t, fmt.Sprintf(said, kind)), Allowed{Operator: []string{"content:" + kind}}); !fault.Is(err, fault.ModelHostedTool) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := Parse(Messages, nil, canonical(t, fmt.Sprintf(said, "novel")), Allowed{}); !fault.Is(err, fault.RequestMalformed) {
		t.Error(err)
	}
	if _, err := Parse(Messages, nil, canonical(t, fmt.Sprintf(said, "novel")), Allowed{Operator: []string{"content:novel"}}); err != nil {
		t.Error(err)
	}
}

// A declaration lets the provider run what it names, and nothing else; what refers to something that the provider keeps does not pass in it either.
func TestDeclaredHostedTools(t *testing.T) {
	search := Allowed{Hosted: []string{"web_search"}}
	for s, c := range map[string]struct {
		form    Form
		allowed Allowed
		code    fault.Code // "": it passes
		hosts   string
	}{
		`{"model":"m","max_tokens":1,"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":3,"allowed_domains":["a.example"]}]}`: {Messages, search, "", "web_search"},
		`{"model":"m","input":"x","tools":[{"type":"web_search","search_context_size":"low"},{"type":"function","name":"f"}]}`:                                 {Responses, search, "", "web_search"},
		`{"model":"m","max_tokens":1,"messages":[],"tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`:                                      {Messages, search, fault.ModelHostedTool, ""},
		`{"model":"m","max_tokens":1,"messages":[],"tools":[{"type":"web_searching_20250305","name":"x"}]}`:                                                    {Messages, search, fault.ModelHostedTool, ""},
		`{"model":"m","max_tokens":1,"messages":[],"tools":[{"type":"code_execution_20250825","name":"x"},{"type":"web_fetch_20250910","name":"y"}]}`:          {Messages, Allowed{Hosted: Hostable}, "", "code_execution web_fetch"},
		`{"model":"m","input":"x","tools":[{"type":"file_search","vector_store_ids":["v"]}]}`:                                                                  {Responses, Allowed{Hosted: append([]string{"file_search"}, Hostable...)}, fault.ModelHostedTool, ""},
		`{"model":"m","input":"x","tools":[{"type":"mcp","server_url":"https://a.example"}]}`:                                                                  {Responses, Allowed{Hosted: append([]string{"mcp", ""}, Hostable...)}, fault.ModelHostedTool, ""},
		`{"model":"m","input":"x","tools":[{"type":"web_search","filters":{"file_ids":["f"]}}]}`:                                                               {Responses, search, fault.RequestMalformed, ""},
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"web_fetch_tool_result","tool_use_id":"s","content":{"type":"web_fetch_result","url":"https://a.example","content":{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"eA=="}}}}]}]}`:  {Messages, Allowed{Hosted: Hostable}, fault.RequestMalformed, ""},
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"web_fetch_tool_result","tool_use_id":"s","content":[{"type":"image","source":{"type":"url","url":"https://a.example/?q"}}]}]}]}`:                                                                                      {Messages, Allowed{Hosted: Hostable}, fault.RequestMalformed, ""},
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"web_fetch_tool_result","tool_use_id":"s","content":{"type":"web_fetch_result","url":"https://a.example","content":{"type":"document","source":{"type":"text","media_type":"text/plain","data":"All is well."}}}}]}]}`: {Messages, Allowed{Hosted: Hostable}, "", ""},
		`{"model":"m","input":"x","tools":[{"type":"web_search","novel":1}]}`:                                            {Responses, search, fault.RequestMalformed, ""},
		`{"model":"m","input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search","name":"w"}]}]}`: {Responses, search, fault.RequestMalformed, ""},
		`{"model":"m","messages":[],"web_search_options":{}}`:                                                            {Chat, search, fault.ModelHostedTool, ""},
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","url":"https://a.example","title":"t","encrypted_content":"e","page_age":null}]},{"type":"text","text":"x","citations":[{"type":"web_search_result_location","url":"https://a.example","title":"t","encrypted_index":"i","cited_text":"c"}]}]}]}`: {Messages, search, "", ""},
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"bash_code_execution","input":{}}]}]}`:                                                                                                                                                    {Messages, search, fault.ModelHostedTool, ""},
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"bash_code_execution_tool_result","tool_use_id":"s","content":{"type":"x","content":[{"file_id":"f"}]}}]}]}`:                                                                                                                {Messages, Allowed{Hosted: Hostable}, fault.RequestMalformed, ""},
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"bash_code_execution_tool_result","tool_use_id":"s","content":{"type":"x","stdout":"1"}}]}]}`:                                                                                                                               {Messages, Allowed{Hosted: Hostable}, "", ""},
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"text","text":"x","citations":[{"type":"char_location","file_id":"f"}]}]}]}`:                                                                                                                                                {Messages, search, fault.RequestMalformed, ""},
		`{"model":"m","input":[{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},{"role":"assistant","content":[{"type":"output_text","text":"x","annotations":[{"type":"url_citation","url":"https://a.example","title":"t","start_index":0,"end_index":1}]}]}]}`: {Responses, search, "", ""},
	} {
		body := canonical(t, s)
		_, err := Parse(c.form, nil, body, c.allowed)
		if c.code == "" && err != nil || c.code != "" && !fault.Is(err, c.code) {
			t.Errorf("%s: %v", s, err)
		}
		if got := strings.Join(HostedIn(body), " "); c.code == "" && got != c.hosts {
			t.Errorf("%s: the provider runs %q", s, got)
		}
		if _, err := Parse(c.form, nil, body, Allowed{}); err == nil {
			t.Errorf("without a declaration it passes: %s", s)
		}
		if c.code == "" && c.hosts == "" { // what a provider has read is of a stranger
			opaque := false
			for _, b := range Blocks(c.form, body, "") {
				opaque = opaque || b.Opaque
			}
			if !opaque {
				t.Errorf("all of it counts as the agent's own: %s", s)
			}
		}
	}
}

func TestBetas(t *testing.T) {
	body := canonical(t, requests[Messages][0])
	if r, err := Parse(Messages, []string{"interleaved-thinking-2025-05-14", "claude-code-20250219", "claude-code-20250219"}, body, Allowed{}); err != nil || strings.Join(r.Beta, " ") != "claude-code-20250219 interleaved-thinking-2025-05-14" {
		t.Error(r.Beta, err)
	}
	if _, err := Parse(Messages, []string{"mcp-client-2025-04-04"}, body, Allowed{}); !fault.Is(err, fault.RequestMalformed) {
		t.Error(err)
	}
	if _, err := Parse(Messages, []string{"novel-1"}, body, Allowed{Operator: []string{"beta:novel-1"}}); err != nil {
		t.Error(err)
	}
	if _, err := Parse(Chat, []string{"claude-code-20250219"}, canonical(t, requests[Chat][0]), Allowed{}); err == nil {
		t.Error("a header of another form passes")
	}
}

// The blocks of a request have everything in it, and moving the mark of what is cached makes no new one.
func TestBlocks(t *testing.T) {
	for form, all := range requests {
		for _, s := range all {
			body := canonical(t, s)
			blocks := Blocks(form, body, "")
			var joined strings.Builder
			for _, b := range blocks {
				joined.Write(b.JSON)
			}
			call.Strings(body, func(path, text string) bool {
				if strings.HasSuffix(path, "{}") || strings.HasSuffix(path, ".role") { // names, and who says it
					return true
				}
				quoted, _ := json.Marshal(text)
				if !strings.Contains(joined.String(), strings.Trim(string(quoted), `"`)) && text != "ephemeral" && text != "1h" {
					t.Errorf("%s: no block has %s: %s", form, path, text)
				}
				return true
			})
		}
	}
	marked := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a"%s}]}]}`
	one, two := Blocks(Messages, canonical(t, fmt.Sprintf(marked, "")), ""), Blocks(Messages, canonical(t, fmt.Sprintf(marked, `,"cache_control":{"type":"ephemeral"}`)), "")
	for i := range one {
		if one[i].Hash != two[i].Hash {
			t.Errorf("block %d is another", i)
		}
	}
	if said := Blocks(Messages, canonical(t, `{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"text","text":"a"}]}]}`), ""); said[0].Hash == one[0].Hash {
		t.Error("who says it makes no difference")
	}
	for form, body := range map[Form]string{ // what only the operator's word lets through
		Messages:  `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"novel","words":"a"}]}]}`,
		Chat:      `{"model":"m","messages":[{"role":"user","content":[{"type":"novel","words":"a"}]}]}`,
		Responses: `{"model":"m","input":[{"type":"novel","words":"a"}]}`,
	} {
		if said := Blocks(form, canonical(t, body), ""); !said[0].Opaque || said[0].Result {
			t.Errorf("%s: a part that nobody knows is taken for words: %+v", form, said[0])
		}
	}
	results, opaque := 0, 0
	for _, form := range Forms {
		for _, b := range Blocks(form, canonical(t, requests[form][1]), "") {
			if b.Result {
				if results++; len(b.Texts) != 1 || b.Texts[0] != "r" || !strings.Contains(string(b.Frame()), "_id") || strings.Contains(string(b.Frame()), `"r"`) {
					t.Errorf("%q in %s", b.Texts, b.Frame())
				}
			}
			if b.Opaque {
				opaque++
			}
		}
	}
	if results != 3 || opaque != 3 {
		t.Errorf("%d results, %d that can't be read", results, opaque)
	}
}

// The text of a message is one part whether it stands alone or as a block with a mark for the cache, and nothing that an operator allows beside it is left out.
func TestTextsOfMessages(t *testing.T) {
	parts := func(message string) []Block {
		all := Blocks(Messages, canonical(t, `{"messages":[`+message+`]}`), "")
		return all[:len(all)-1] // the rest
	}
	alone := parts(`{"role":"user","content":"Pay \u003c\u2028 now & then."}`)
	for message, same := range map[string]bool{
		`{"role":"user","content":[{"type":"text","text":"Pay <\u2028 now & then.","cache_control":{"type":"ephemeral"}}]}`: true,
		`{"role":"assistant","content":"Pay <\u2028 now & then."}`:                                                          false,
		`{"role":"user","content":"Pay < now & then."}`:                                                                     false,
	} {
		if got := parts(message); len(got) != 1 || len(alone) != 1 || (got[0].Hash == alone[0].Hash) != same {
			t.Errorf("%s: %d parts, %s and %s", message, len(got), got[0].JSON, alone[0].JSON)
		}
	}
	for _, content := range []string{`"Hi."`, `[{"type":"text","text":"Hi."}]`} {
		if got := parts(`{"role":"user","content":` + content + `,"note":"ours"}`); len(got) != 2 || string(got[0].JSON) != `{"note":"ours"}` {
			t.Errorf("%s: %d parts, %s", content, len(got), got[0].JSON)
		}
	}
}

// The message stands in front, once, and all that the client sends follows as it was; what the gateway put there is none of the client's blocks.
func TestInstruct(t *testing.T) {
	const ours = "You are a \"test\".\n"
	for name, c := range map[string]struct {
		form       Form
		body, want string
	}{
		"no system message":   {Messages, `{"model":"m"}`, `{"model":"m","system":[{"text":"You are a \"test\".\n","type":"text"}]}`},
		"an empty one":        {Messages, `{"system":""}`, `{"system":[{"text":"You are a \"test\".\n","type":"text"}]}`},
		"a text":              {Messages, `{"system":"S"}`, `{"system":[{"text":"You are a \"test\".\n","type":"text"},{"text":"S","type":"text"}]}`},
		"blocks":              {Messages, `{"system":[{"cache_control":{"type":"ephemeral"},"text":"S","type":"text"}]}`, `{"system":[{"text":"You are a \"test\".\n","type":"text"},{"cache_control":{"type":"ephemeral"},"text":"S","type":"text"}]}`},
		"a forged copy":       {Messages, `{"system":[{"text":"You are a \"test\".\n","type":"text"}]}`, `{"system":[{"text":"You are a \"test\".\n","type":"text"},{"text":"You are a \"test\".\n","type":"text"}]}`},
		"a chat":              {Chat, `{"messages":[{"content":"Hi.","role":"user"}]}`, `{"messages":[{"content":"You are a \"test\".\n","role":"system"},{"content":"Hi.","role":"user"}]}`},
		"with its own system": {Chat, `{"messages":[{"content":"S","role":"system"}]}`, `{"messages":[{"content":"You are a \"test\".\n","role":"system"},{"content":"S","role":"system"}]}`},
		"a response":          {Responses, `{"input":"Hi."}`, `{"input":"Hi.","instructions":"You are a \"test\".\n"}`},
		"with instructions":   {Responses, `{"input":"Hi.","instructions":"S"}`, `{"input":"Hi.","instructions":"You are a \"test\".\n\nS"}`},
		"a copy of ours":      {Responses, `{"input":"Hi.","instructions":"You are a \"test\".\n"}`, `{"input":"Hi.","instructions":"You are a \"test\".\n\nYou are a \"test\".\n"}`},
		"counting":            {Count, `{"model":"m"}`, `{"model":"m","system":[{"text":"You are a \"test\".\n","type":"text"}]}`},
		"of a developer":      {Chat, `{"messages":[{"content":"D","role":"developer"}]}`, `{"messages":[{"content":"You are a \"test\".\n","role":"developer"},{"content":"D","role":"developer"}]}`},
	} {
		got, err := Instruct(c.form, []byte(c.body), ours)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n%s\n%s", name, err, got, c.want)
		}
		without, with := Blocks(c.form, []byte(c.body), ""), Blocks(c.form, got, ours)
		if name == "an empty one" { // it said nothing
			without = without[1:]
		}
		if len(with) != len(without) {
			t.Errorf("%s: %d blocks of %d", name, len(with), len(without))
		}
		if none, err := Instruct(c.form, []byte(c.body), ""); err != nil || string(none) != c.body {
			t.Errorf("%s: %v %s", name, err, none)
		}
	}
}

func TestCheckAnswer(t *testing.T) {
	for answer, good := range map[string]bool{`{"input_tokens":7}`: true, `{"input_tokens":"7"}`: false, `{}`: false, `{"input_tokens":{}}`: false} {
		if err := CheckAnswer(Count, "m", nil, []byte(answer)); (err == nil) != good {
			t.Errorf("%s: %v", answer, err)
		}
	}
	for answer, want := range map[string]fault.Code{
		`{"model":"m","choices":[]}`: "", `{"model":"n","choices":[]}`: "", `{"model":"o","choices":[]}`: fault.OutputInvalid, `{"choices":[]}`: fault.OutputInvalid,
		`{"model":"","choices":[]}`: fault.OutputInvalid, `{"model":["m"],"choices":[]}`: fault.OutputInvalid, `{"model":"m ","choices":[]}`: fault.OutputInvalid,
		`{"model":"m"}`: fault.ResultInvalid, `{"model":"m","choices":{}}`: fault.ResultInvalid, `[]`: fault.ResultInvalid,
	} {
		if err := CheckAnswer(Chat, "m", []string{"n", ""}, []byte(answer)); err == nil != (want == "") || err != nil && !fault.Is(err, want) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// Whatever a client sends: it is refused with a code of a refusal, or what is sent is canonical, names its model and asks a provider to keep nothing.
func FuzzParse(f *testing.F) {
	for form, all := range requests {
		for _, s := range all {
			f.Add(string(form), s, "")
		}
	}
	f.Add(string(Messages), `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[[[]]]}]}`, "beta:x")
	f.Fuzz(func(t *testing.T, form, s, allow string) {
		body, err := call.Canonical([]byte(s), call.DefaultLimits())
		if err != nil || !call.IsObject(body) {
			return
		}
		r, err := Parse(Form(form), nil, body, Allowed{Operator: []string{allow}})
		if err != nil {
			if !fault.Is(err, fault.RequestMalformed) && !fault.Is(err, fault.ModelHostedTool) {
				t.Fatal(err)
			}
			return
		}
		again, err := call.Canonical(r.Body, call.DefaultLimits())
		if err != nil || string(again) != string(r.Body) || r.Model == "" {
			t.Fatalf("%v: %s", err, r.Body)
		}
		if store, _ := call.Get(r.Body, "store"); (Form(form) == Chat || Form(form) == Responses) && string(store) != "false" {
			t.Fatal("it may be kept")
		}
		if r.Body, err = Instruct(r.Form, r.Body, "You are a \u2028 \"test\".\n"); err != nil {
			t.Fatal(err)
		}
		for _, counted := range []bool{false, true} {
			r.Body, _ = LimitOutput(r.Form, r.Body, 7, counted)
		}
		packed, err := Packed(r)
		if err != nil {
			t.Fatal(err)
		}
		// One more level, and our message, can be too much for the bounds of a request; then it is refused where it is judged.
		if again, err := call.Canonical(packed, call.Limits{Bytes: 1 << 30, Depth: 1 << 10, Members: 1 << 30}); err != nil || string(again) != string(packed) {
			t.Fatalf("%v: %s", err, packed)
		}
		for _, b := range Blocks(Form(form), r.Body, "") {
			if call.Check(b.JSON, call.DefaultLimits()) != nil {
				t.Fatalf("%s", b.JSON)
			}
		}
	})
}

// A request for embeddings has texts and nothing else: each is a part that is read by itself, tokens are refused, and no system message is put in front.
func TestEmbeddings(t *testing.T) {
	for s, parts := range map[string]int{
		`{"model":"m","input":"a text"}`: 2, `{"model":"m","input":["one","two"],"encoding_format":"base64","dimensions":256,"user":"u"}`: 3,
	} {
		r, err := Parse(Embeddings, nil, canonical(t, s), Allowed{})
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if all := Blocks(Embeddings, r.Body, "the gateway's message"); len(all) != parts {
			t.Errorf("%s: %d parts", s, len(all))
		}
		if instructed, err := Instruct(Embeddings, r.Body, "the gateway's message"); err != nil || string(instructed) != string(r.Body) || string(r.Body) != string(canonical(t, s)) {
			t.Errorf("%s is sent as %s, %v", s, instructed, err)
		}
	}
	for s, field := range map[string]string{
		`{"model":"m"}`: "input", `{"input":"x"}`: "model", `{"model":"m","input":[1,2]}`: "input", `{"model":"m","input":[[1,2]]}`: "input", `{"model":"m","input":{"text":"x"}}`: "input",
		`{"model":"m","input":"x","stream":true}`: "stream", `{"model":"m","input":"x","messages":[]}`: "messages", `{"model":"m","input":"x","encoding_format":"int8"}`: "encoding_format",
		`{"model":"m","input":"x","dimensions":-1}`: "dimensions", `{"model":"m","input":"x","file_id":"f"}`: "file_id", `{"model":"m","input":[` + strings.Repeat(`"",`, maxInputs) + `""]}`: "input",
	} {
		if _, err := Parse(Embeddings, nil, canonical(t, s), Allowed{}); !fault.Is(err, fault.RequestMalformed) || fault.Of(err).Field != field {
			t.Errorf("%.80s: %v", s, err)
		}
	}
	for answer, code := range map[string]fault.Code{
		`{"object":"list","model":"m","data":[{"index":0,"embedding":[0.5]}]}`: "", `{"model":"m"}`: fault.ResultInvalid, `{"model":"m","choices":[]}`: fault.ResultInvalid, `{"model":"n","data":[]}`: fault.OutputInvalid,
	} {
		if err := CheckAnswer(Embeddings, "m", nil, []byte(answer)); (err == nil) != (code == "") || err != nil && !fault.Is(err, code) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// What refers to something that the provider keeps, or is run by it, is no part of a response's input, whatever the operator allows.
func TestResponsesKeepNothing(t *testing.T) {
	for s, code := range map[string]fault.Code{
		`{"model":"m","input":"x","store":true}`: fault.RequestMalformed, `{"model":"m","input":"x","background":true}`: fault.RequestMalformed, `{"model":"m","input":"x","previous_response_id":"r"}`: fault.RequestMalformed,
		`{"model":"m","input":"x","conversation":{"id":"c"}}`: fault.RequestMalformed, `{"model":"m","input":"x","prompt":{"id":"p"}}`: fault.RequestMalformed, `{"model":"m","input":[{"type":"item_reference","id":"i"}]}`: fault.RequestMalformed,
		`{"model":"m","input":[{"id":"i"}]}`: fault.RequestMalformed, `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`: fault.RequestMalformed,
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"https://x.example/"}]}]}`: fault.RequestMalformed, `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_data":"x"}]}]}`: fault.RequestMalformed,
		`{"model":"m","input":"x","include":["message.output_text.logprobs"]}`: fault.RequestMalformed, `{"model":"m","input":"x","top_logprobs":3}`: fault.RequestMalformed, `{"model":"m"}`: fault.RequestMalformed, `{"model":"m","input":7}`: fault.RequestMalformed,
		`{"model":"m","input":"x","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`: fault.RequestMalformed, `{"model":"m","input":[{"type":"compaction","encrypted_content":"x"}]}`: fault.RequestMalformed,
		`{"model":"m","input":[{"type":"web_search_call","id":"w"}]}`: fault.ModelHostedTool, `{"model":"m","input":[{"type":"mcp_call","id":"w"}]}`: fault.ModelHostedTool, `{"model":"m","input":[{"type":"code_interpreter_call","id":"w"}]}`: fault.ModelHostedTool,
	} {
		if _, err := Parse(Responses, nil, canonical(t, s), Allowed{Operator: []string{"previous_response_id", "content:item_reference", "conversation", "prompt", "store", "background"}}); !fault.Is(err, code) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// What has a text is counted as one, whatever it calls itself; an image is as many tokens as the largest.
func TestEstimate(t *testing.T) {
	long := strings.Repeat("word", 100_000)
	for name, c := range map[string]struct {
		form       Form
		body       string
		least, top int64
	}{
		"text":                      {Chat, `{"messages":[{"content":"` + long + `"}]}`, 100_000, 101_000},
		"an image":                  {Chat, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:` + long + `"}}]}]}`, imageTokens, imageTokens + 1000},
		"a text that says it's one": {Responses, `{"input":[{"type":"reasoning","content":[{"type":"input_image","text":"` + long + `"}]}]}`, 100_000, 101_000},
	} {
		if n := Estimate(c.form, []byte(c.body)); n < c.least || n > c.top {
			t.Errorf("%s: %d", name, n)
		}
	}
}
