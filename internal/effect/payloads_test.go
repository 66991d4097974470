package effect_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/effect"
	"sallyport.example/provenance"
)

// oneText is a result of one text.
func oneText(text string) string {
	b, _ := json.Marshal(text) // a string encodes
	return `{"content":[{"type":"text","text":` + string(b) + `}]}`
}

func TestPayloads(t *testing.T) {
	for _, c := range []struct {
		result, want string
		plain        bool
	}{
		{oneText("a"), `["a"]`, true},
		{oneText(`{"a":1}`), `[{"a":1}]`, true},
		{`{"content":[{"type":"text","text":"{\"a\": 1}"}],"structuredContent":{"a":1}}`, `[{"a":1}]`, true},
		{`{"content":[{"type":"text","text":"x"}],"structuredContent":{"result":"x"},"isError":false}`, `[{"result":"x"}]`, true},
		{`{"content":[{"type":"text","text":"y"}],"structuredContent":{"result":"x"}}`, `[{"result":"x"},"y"]`, true},
		{`{"content":[{"type":"text","text":"y","annotations":{}}]}`, `["y"]`, false},
		{`{"content":[{"type":"image","data":"AA=="}]}`, `[]`, false},
		{`{"content":[{"type":"resource","resource":{"uri":"a:b","text":"y"}}]}`, `["y"]`, false},
		{`{"contents":[{"uri":"a:b","text":"y"}]}`, `["y"]`, false},
		{`{"messages":[{"role":"user","content":{"type":"text","text":"y"}}]}`, `["y"]`, false},
		{`{"resultType":"complete","content":[{"type":"text","text":"a"}]}`, `["a"]`, true},
		{`{"resultType":"input_required","content":[{"type":"text","text":"a"}]}`, `[]`, false},
		{`{"resultType":null,"content":[{"type":"text","text":"a"}]}`, `[]`, false},
		{`{"resultType":["complete"],"content":[{"type":"text","text":"a"}]}`, `[]`, false},
		{`{"content":[1]}`, `[]`, false},
		{`{"content":1}`, `[]`, false},
		{`{"content":[],"Content":[]}`, `[]`, false},
		{`[]`, `[]`, false},
		{``, `[]`, false},
		{`{"content":[],"more":"y"}`, `[]`, false},
	} {
		method := call.CallTool
		if strings.HasPrefix(c.result, `{"contents"`) {
			method = call.ReadResource
		} else if strings.HasPrefix(c.result, `{"messages"`) {
			method = call.GetPrompt
		}
		all, plain := effect.Payloads(method, json.RawMessage(c.result))
		if !reflect.DeepEqual(all, valuesOf(t, c.want)) || plain != c.plain {
			t.Errorf("%s: %v, %v", c.result, all, plain)
		}
	}
}

// valuesOf are the texts and values of a JSON list.
func valuesOf(t *testing.T, list string) (values []provenance.Value) {
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(list), &all); err != nil {
		t.Fatal(err)
	}
	for _, raw := range all {
		v := provenance.JSONValue(raw)
		if text, ok := call.Text(raw); ok {
			v = provenance.TextValue(text)
		}
		values = append(values, v)
	}
	return values
}

// Structured content that the check of the result has passed is what a check of its own makes of it, at any depth.
func TestStructuredAtAnyDepth(t *testing.T) {
	for depth := provenance.MaxDepth - 3; depth < provenance.MaxDepth+3; depth++ {
		structured := strings.Repeat("[", depth) + `{"a":[1,"x\n"]}` + strings.Repeat("]", depth)
		all, _ := effect.Payloads(call.CallTool, json.RawMessage(`{"content":[],"structuredContent":`+structured+`}`))
		if !reflect.DeepEqual(all, valuesOf(t, "["+structured+"]")) {
			t.Errorf("%s is %v", structured, all)
		}
	}
}

func FuzzPayloads(f *testing.F) {
	f.Add([]byte(oneText(`{"a":1}`)))
	f.Add([]byte(`{"content":[{"type":"resource","resource":{"text":"y","resource":null}}],"structuredContent":{"result":"x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, plain := effect.Payloads("tools/call", data)
		if !json.Valid(data) && (len(all) > 0 || plain) {
			t.Errorf("%q is no JSON, and has %v", data, all)
		}
		result := append(append([]byte(`{"content":[],"structuredContent":`), data...), '}')
		of := provenance.JSONValue(bytes.TrimSpace(data))
		if all, _ := effect.Payloads("tools/call", result); len(all) > 0 && json.Valid(data) && !reflect.DeepEqual(all[0], of) {
			t.Errorf("%q is read as %v, and by itself as %v", data, all[0], of)
		}
	})
}
