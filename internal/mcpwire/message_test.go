package mcpwire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"sallyport.example/internal/call"
)

var lim = call.Limits{Bytes: 1 << 20, Depth: 64, Members: 10_000}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		code int64  // 0: it is taken
		id   string // that is known, also with an error
	}{
		{`{"jsonrpc":"2.0","id":7,"method":"ping"}`, 0, "7"},
		{" {\"jsonrpc\":\"2.0\",\r\n\"method\":\"notifications/x\",\"params\":{}}\n", 0, ""},
		{`{"jsonrpc":"2.0","id":"a","result":{}}`, 0, `"a"`},
		{`{"jsonrpc":"2.0","id":-7,"error":{"code":1,"message":"m"}}`, 0, "-7"},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`, 0, ""},
		{`{"jsonrpc":"2.0","id":null,"result":{}}`, CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":7,"result":{},"error":{}}`, CodeInvalidRequest, "7"},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}`, CodeInvalidRequest, "7"},
		{`{"jsonrpc":"2.0","id":7}`, CodeInvalidRequest, "7"},
		{`{"jsonrpc":"2.0","error":{}}`, CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","auth":"x"}`, CodeInvalidRequest, "7"},
		{`{"jsonrpc":"1.0","id":7,"method":"ping"}`, CodeInvalidRequest, "7"},
		{`{"id":7,"method":"ping"}`, CodeInvalidRequest, "7"},
		{`{"jsonrpc":"2.0","id":7,"method":["ping"]}`, CodeInvalidRequest, "7"},
		{`{"jsonrpc":"2.0","id":7,"method":""}`, CodeInvalidRequest, "7"},
		{`{"jsonrpc":"2.0","id":7,"method":"` + strings.Repeat("x", 129) + `"}`, CodeInvalidRequest, "7"},
		{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 300) + `","method":"ping"}`, CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}`, CodeInvalidParams, "7"},
		{`{"jsonrpc":"2.0","id":7,"Id":8,"method":"ping"}`, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":7,"method":"ping"} x`, CodeParse, ""},
		{`[{"jsonrpc":"2.0","id":7,"method":"ping"}]`, CodeInvalidRequest, ""},
		{`7`, CodeInvalidRequest, ""},
		{``, CodeParse, ""},
	} {
		m, e := Parse([]byte(c.text), lim)
		if c.code == 0 && e != nil || c.code != 0 && (e == nil || e.Code != c.code) || string(m.ID) != c.id {
			t.Errorf("%.80s: %+v %v", c.text, m, e)
		}
	}
}

func TestIDKey(t *testing.T) {
	if IDKey([]byte(`"a"`)) != IDKey([]byte(`"\u0061"`)) || IDKey([]byte(`"7"`)) == IDKey([]byte("7")) {
		t.Error("ids that are equal have equal keys, and no others")
	}
}

// FuzzParse: what is taken means the same to the standard library, and again after it was written; what is refused is refused in JSON.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":[1]},"_meta":{"progressToken":9}}}`, `[]`, `{}`, `{"jsonrpc":"2.0","id":"a","result":{}}`,
		`{"jsonrpc":"2.0","id":-1,"error":{"code":1,"message":"x"}}`, `{"jsonrpc":"2.0","id":null,"error":{}}`, "{\"jsonrpc\":\"2.0\",\n\"method\":\"\\u0061\",\"params\":{\r}}", "\xef\xbb\xbf{}", `{"jsonrpc":"2.0","method":"\u0000"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, e := Parse(data, lim)
		if e != nil {
			answer := Message{ID: m.ID, Error: e.JSON()}
			if _, e := Parse(answer.Append(nil), lim); e != nil {
				t.Fatalf("the answer is no message: %s: %v", answer.Append(nil), e)
			}
			return
		}
		var std struct {
			JSONRPC               string
			ID                    json.RawMessage
			Method                string
			Params, Result, Error json.RawMessage
		}
		if err := json.Unmarshal(data, &std); err != nil {
			t.Fatalf("accepted %q, which is no JSON: %v", data, err)
		}
		if m.ID == nil && string(std.ID) == "null" {
			std.ID = nil
		}
		if std.JSONRPC != "2.0" || std.Method != m.Method || !bytes.Equal(std.ID, m.ID) || !bytes.Equal(std.Params, m.Params) || !bytes.Equal(std.Result, m.Result) || !bytes.Equal(std.Error, m.Error) {
			t.Fatalf("%q read as %+v and %+v", data, m, std)
		}
		line := m.Append(nil)
		again, e := Parse(line, lim)
		if e != nil || bytes.ContainsAny(line, "\r\n") || string(again.Append(nil)) != string(line) || again.Method != m.Method || string(again.ID) != string(m.ID) {
			t.Fatalf("%q was written as %q: %v", data, line, e)
		}
	})
}

func TestParseBatch(t *testing.T) {
	ping := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` }
	response := `{"jsonrpc":"2.0","id":"a","result":{}}`
	many := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, ping(strconv.Itoa(i)))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	for _, c := range []struct {
		name, batch string
		n           int
		code        int64
	}{
		{"one", "[" + ping("1") + "]", 1, 0},
		{"requests and notifications", " \n[ " + ping("1") + " ,\t" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "," + ping(`"1"`) + " ] ", 3, 0},
		{"responses", "[" + response + `,{"jsonrpc":"2.0","id":"b","error":{"code":1,"message":"x"}}]`, 2, 0},
		{"as many as there may be", many(MaxBatch), MaxBatch, 0},
		{"one too many", many(MaxBatch + 1), 0, CodeInvalidRequest},
		{"many", many(1000), 0, CodeInvalidRequest},
		{"more than there is room for", many(10_000), 0, CodeParse},
		{"none", "[]", 0, CodeInvalidRequest},
		{"an array in it", "[[" + ping("1") + "]]", 0, CodeInvalidRequest},
		{"numbers", "[1,2]", 0, CodeInvalidRequest},
		{"null", "[null]", 0, CodeInvalidRequest},
		{"one id twice", "[" + ping(`"a"`) + "," + ping(`"\u0061"`) + "]", 0, CodeInvalidRequest},
		{"a response among requests", "[" + ping("1") + "," + response + "]", 0, CodeInvalidRequest},
		{"a request among responses", "[" + response + "," + ping("1") + "]", 0, CodeInvalidRequest},
		{"initialize", "[" + ping("1") + `,{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}]`, 0, CodeInvalidRequest},
		{"a wrong one", "[" + ping("1") + `,{"jsonrpc":"2.0","id":2,"method":"ping","params":[]}]`, 0, CodeInvalidParams},
		{"a member twice", "[" + ping("1") + `,{"jsonrpc":"2.0","id":2,"method":"ping","method":"tools/call"}]`, 0, CodeParse},
		{"no end", "[" + ping("1"), 0, CodeParse},
		{"trailing", "[" + ping("1") + "] []", 0, CodeParse},
		{"deep", "[" + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "]", 0, CodeParse},
	} {
		messages, e := ParseBatch([]byte(c.batch), lim)
		if len(messages) != c.n || (e == nil) != (c.code == 0) || e != nil && e.Code != c.code {
			t.Errorf("%s: %d messages, %v", c.name, len(messages), e)
		}
		if !IsBatch([]byte(c.batch)) {
			t.Errorf("%s is not taken for a batch", c.name)
		}
	}
	if IsBatch([]byte(ping("1"))) || IsBatch(nil) || IsBatch([]byte(" \n")) {
		t.Error("a message is taken for a batch")
	}
}

// FuzzParseBatch: what is taken is what the standard library and Parse find in the array, within the bounds of a batch.
func FuzzParseBatch(f *testing.F) {
	for _, s := range []string{
		`[{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"}},{"jsonrpc":"2.0","method":"x"}]`, `[]`, `[[]]`, `[{"jsonrpc":"2.0","id":"a","result":{}}, {"jsonrpc":"2.0","id":null,"error":{}}]`,
		`[{"jsonrpc":"2.0","id":"a","method":"x"},{"jsonrpc":"2.0","id":"\u0061","method":"x"}]`, `[1,{}]`, ` [ ] x`, `[{"jsonrpc":"2.0","id":1,"method":"initialize"}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		messages, e := ParseBatch(data, lim)
		if e != nil {
			if messages != nil {
				t.Fatalf("%q is refused and read", data)
			}
			return
		}
		var std []json.RawMessage
		if err := json.Unmarshal(data, &std); err != nil || len(std) != len(messages) || len(std) == 0 || len(std) > MaxBatch || !IsBatch(data) {
			t.Fatalf("%q: %d messages, %v", data, len(messages), err)
		}
		ids := map[string]bool{}
		for i, m := range messages {
			one, e := Parse(std[i], lim)
			if e != nil || string(one.Append(nil)) != string(m.Append(nil)) || m.Response() != messages[0].Response() || m.Method == "initialize" {
				t.Fatalf("%q, message %d: %+v and %+v, %v", data, i, m, one, e)
			}
			var id any
			if err := json.Unmarshal(m.ID, &id); err == nil && m.ID != nil {
				key := fmt.Sprintf("%T %s", id, IDKey(m.ID))
				if ids[key] {
					t.Fatalf("%q has an id twice", data)
				}
				ids[key] = true
			}
		}
	})
}

func TestMeta(t *testing.T) {
	const params = `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x"},"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info","progressToken":"t"}}`
	m, e := ParseMeta([]byte(params))
	if e != nil || `{"_meta":`+string(m.JSON())+`}` != params {
		t.Errorf("%s %v", m.JSON(), e)
	}
	for _, bad := range []string{`{"_meta":"x"}`, `{"_meta":{"progressToken":{}}}`, `{"_meta":{"progressToken":1.5}}`} {
		if _, e := ParseMeta([]byte(bad)); e == nil || e.Code != CodeInvalidParams {
			t.Errorf("%s: %v", bad, e)
		}
	}
	if m, e := ParseMeta(nil); e != nil || m.JSON() != nil {
		t.Errorf("%s %v", m.JSON(), e)
	}
}

func TestHeaderValue(t *testing.T) {
	for s, want := range map[string]string{
		"search_email": "search_email", "a b": "a b", "~!": "~!", "": "", "=?base64?x": "=?base64?x",
		" x": "=?base64?IHg=?=", "a\t": "=?base64?YQk=?=", "ü": "=?base64?w7w=?=", "a\r\nb": "=?base64?YQ0KYg==?=", "\x7f": "=?base64?fw==?=",
		"=?base64?IHg=?=": "=?base64?PT9iYXNlNjQ/SUhnPT89?=",
	} {
		got := HeaderValue(s)
		if back, ok := decodeHeader(got); got != want || !ok || back != s {
			t.Errorf("%q becomes %q, not %q", s, got, want)
		}
	}
}

const boundSchema = `{"type":"object","properties":{"région":{"type":"string","x-mcp-header":"Region"},"o":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"n"}}},"b":{"type":"boolean","x-mcp-header":"B"}}}`

// TestHeadersAgree: what is set is what is checked.
func TestHeadersAgree(t *testing.T) {
	bound, err := ParamHeaders([]byte(boundSchema))
	if err != nil || len(bound) != 3 {
		t.Fatal(bound, err)
	}
	for _, params := range []string{
		`{"name":"x","arguments":{"région":"São Paulo","o":{"n":7},"b":true}}`, `{"name":"é\n","arguments":{"o":{"n":1.0}}}`, `{"name":" x","arguments":{"b":null,"o":3}}`, `{"name":"=?base64?eA==?="}`,
	} {
		m := Message{Method: "tools/call", Params: json.RawMessage(params)}
		arguments, _ := call.Get(m.Params, "arguments")
		h := http.Header{}
		SetHeaders(h, &m, Revision0728, bound)
		if e := CheckHeaders(h, &m, Revision0728); e != nil {
			t.Errorf("%s: %v", params, e)
		}
		if e := CheckParamHeaders(h, bound, arguments); e != nil {
			t.Errorf("%s: %v", params, e)
		}
		for name := range h {
			other := h.Clone()
			other.Set(name, "other")
			if CheckHeaders(other, &m, Revision0728) == nil && CheckParamHeaders(other, bound, arguments) == nil {
				t.Errorf("%s: another %s is taken", params, name)
			}
			other.Del(name)
			if CheckHeaders(other, &m, Revision0728) == nil && CheckParamHeaders(other, bound, arguments) == nil {
				t.Errorf("%s: no %s is taken", params, name)
			}
		}
	}
	h := http.Header{"Mcp-Param-N": {"7"}}
	if CheckParamHeaders(h, bound, []byte(`{"o":{"n":1.5}}`)) == nil || CheckParamHeaders(h, bound, nil) == nil || CheckParamHeaders(h, bound, []byte(`{"o":{"n":7}}`)) != nil || CheckParamHeaders(http.Header{"Mcp-Param-N": {"7e0"}}, bound, []byte(`{"o":{"n":7}}`)) != nil {
		t.Error("a header is compared by its value, and only with an integer")
	}
}

func TestParamHeadersRefused(t *testing.T) {
	for _, schema := range []string{
		`{"properties":{"a":{"type":"string","x-mcp-header":"no name"}}}`, `{"properties":{"a":{"type":"string","x-mcp-header":7}}}`, `{"properties":{"a":{"type":"string","x-mcp-header":""}}}`,
		`{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, `{"properties":{"a":{"x-mcp-header":"A"}}}`,
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`,
		strings.Repeat(`{"properties":{"a":`, 20) + `{"type":"string","x-mcp-header":"A"}` + strings.Repeat(`}}`, 20),
	} {
		if bound, err := ParamHeaders([]byte(schema)); err == nil {
			t.Errorf("%s: %v", schema, bound)
		}
	}
}
