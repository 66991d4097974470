package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
	"sallyport.example/guard"
)

// Bounds of what the gateway adds to a conversation, in bytes and, for the fence, in characters.
const (
	ownMost    = 4 << 10 // its own tools as tools/list has them, and the instructions, without the lists of tools
	listedMost = 1500    // the planning constraint with those lists, for 100 tools
	fenceMost  = 250     // a fence, without the name of its source
)

// hundred is six servers with a hundred tools: of four all agree, and two are mixed. The results are of several blocks, one of them with structured
// content.
func hundred(t *testing.T) string {
	t.Helper()
	var config, operations strings.Builder
	for _, s := range []struct {
		id     string
		tools  int
		labels string // of all
		some   string // of every third, in place of those
	}{
		{"mail", 12, "sensitivity: internal_source, effect: read", ""},
		{"tracker", 26, "sensitivity: external", ""},
		{"clock", 6, "sensitivity: none, effect: read", ""},
		{"docs", 18, "sensitivity: internal_source, effect: read", ""},
		{"code-host", 28, "sensitivity: external", "sensitivity: both"},
		{"database", 10, "sensitivity: external", "sensitivity: internal_source, effect: read"},
	} {
		server := newServer(s.id)
		for i := range s.tools {
			name := fmt.Sprintf("get_%s_number_%02d", strings.ReplaceAll(s.id, "-", "_"), i)
			tool(server, name, "Gets it.", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "one"}, &mcp.TextContent{Text: "two"}}, StructuredContent: map[string]any{"n": 3}}, nil
			})
			if s.some != "" && i%3 == 0 {
				fmt.Fprintf(&operations, "  %s.%s: {%s}\n", s.id, name, s.some)
			}
		}
		fmt.Fprintf(&config, "  %s: {url: %q}\n", s.id, sdkServer(t, server))
		fmt.Fprintf(&operations, "  %q: {%s}\n", s.id+".*", s.labels)
	}
	return "upstreams:\n" + config.String() + "operations:\n" + operations.String()
}

// allBuiltIn turns all built-in operations on: a search service, methods that write, a database and a program.
func allBuiltIn(t *testing.T) string {
	return fmt.Sprintf("comm: {methods: [POST], search: {provider: tavily, key: k}, databases: {shop: \"sqlite:%s\"}, exec: {allow: [cat]}}\n", sqliteFile(t))
}

// rpc asks an MCP server as a client without a library does, and returns the bytes of the result.
func (w *world) rpc(token string, header http.Header, method, params string) json.RawMessage {
	w.t.Helper()
	r, err := http.NewRequest("POST", w.agent+"/mcp", strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": header["Mcp-Session-Id"]}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if id := res.Header["Mcp-Session-Id"]; id != nil {
		header["Mcp-Session-Id"] = id
	}
	for line := range bytes.Lines(body) { // an event stream has it in one line
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && bytes.Contains(data, []byte(`"result"`)) {
			body = data
		}
	}
	var answer struct{ Result json.RawMessage }
	if err := json.Unmarshal(body, &answer); err != nil || answer.Result == nil {
		w.t.Fatalf("%s: %v %s", method, err, body)
	}
	return answer.Result
}

// prelude is what a client gets before its first call: the bytes of the gateway's own tools, their names, the instructions, and the part of these
// that lists tools.
func (w *world) prelude(token string) (own []json.RawMessage, names []string, instructions, lists string) {
	w.t.Helper()
	header := http.Header{}
	var hello struct{ Instructions string }
	if err := json.Unmarshal(w.rpc(token, header, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`), &hello); err != nil {
		w.t.Fatal(err)
	}
	var list struct{ Tools []json.RawMessage }
	if err := json.Unmarshal(w.rpc(token, header, "tools/list", "{}"), &list); err != nil {
		w.t.Fatal(err)
	}
	for _, raw := range list.Tools {
		var tool struct{ Name string }
		if err := json.Unmarshal(raw, &tool); err != nil {
			w.t.Fatal(err)
		}
		if strings.HasPrefix(tool.Name, "sallyport_") || strings.HasPrefix(tool.Name, "comm_") {
			own, names = append(own, raw), append(names, tool.Name)
		}
	}
	for line := range strings.Lines(hello.Instructions) {
		if strings.HasPrefix(line, "- Affected tools: ") || strings.HasPrefix(line, "- Safe to call") || strings.HasPrefix(line, "- Blocked now: ") {
			lists += line
		}
	}
	return own, names, hello.Instructions, lists
}

// What every conversation carries stays short: the gateway's own tools with everything on, its instructions, and what they list of a hundred tools.
func TestConversationCost(t *testing.T) {
	w := start(t, hundred(t)+allBuiltIn(t)+plenty)
	_, token := w.open("tester")
	own, names, instructions, lists := w.prelude(token)
	if want := []string{"comm_exec", "comm_fetch", "comm_list_files", "comm_query", "comm_read_file", "comm_search", "comm_write_file",
		"sallyport_declare", "sallyport_status", "sallyport_submit_plan"}; !slices.Equal(names, want) {
		t.Errorf("%v are listed, not %v", names, want)
	}
	size := len(instructions) - len(lists)
	for i, raw := range own {
		t.Logf("%4d bytes: %s", len(raw), names[i])
		size += len(raw) + 1
	}
	t.Logf("%d bytes of own tools and instructions, %d of lists:\n%s", size, len(lists), instructions)
	if size > ownMost {
		t.Errorf("own tools and instructions have %d bytes, and %d are enough", size, ownMost)
	}
	if constraint, _, _ := strings.Cut(instructions, "\n\n"); len(constraint) > listedMost {
		t.Errorf("the planning constraint has %d bytes, and %d are enough:\n%s", len(constraint), listedMost, constraint)
	}
	for _, words := range []string{"all 12 tools of mail [internal]", "all 18 tools of docs [internal]", "all 26 tools of tracker", "all 6 tools of clock", guard.ModelInstructions} {
		if !strings.Contains(instructions, words) {
			t.Errorf("the instructions have no %q:\n%s", words, instructions)
		}
	}
	if dir := os.Getenv("SALLYPORT_COST_DIR"); dir != "" { // for a tokenizer: docs/speed.md
		result := must(t, w.connect(token, revision1125, nil), "mail_get_mail_number_00", map[string]any{})
		blocks := ""
		for _, c := range result.Content {
			blocks += c.(*mcp.TextContent).Text + "\n"
		}
		all := "[" + string(bytes.Join(rawBytes(own), []byte(","))) + "]"
		for name, text := range map[string]string{"tools.json": all, "instructions.txt": strings.ReplaceAll(instructions, lists, ""), "lists.txt": lists, "result.txt": blocks} {
			write(t, filepath.Join(dir, name), text)
		}
	}
}

func rawBytes(all []json.RawMessage) (b [][]byte) {
	for _, raw := range all {
		b = append(b, raw)
	}
	return b
}

// An agent sees the built-in operations that it may use and that can work here. Whatever is not listed can be called by its name: what has folded into
// another tool answers as before, and what can't work says so.
func TestOwnToolsThatAreNotListed(t *testing.T) {
	w := start(t, plenty, declaration("tester"), declare("reader", "operator", "execution", []string{"comm.read_file"}, []string{}), declare("outsider", "operator", "execution", []string{"mail.*"}, []string{}))
	for agent, want := range map[string]string{
		"tester":   "comm_fetch comm_list_files comm_read_file comm_search comm_write_file sallyport_declare sallyport_status sallyport_submit_plan",
		"reader":   "comm_read_file sallyport_declare sallyport_status sallyport_submit_plan",
		"outsider": "sallyport_status sallyport_submit_plan",
	} {
		_, token := w.open(agent)
		_, names, instructions, _ := w.prelude(token)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s sees %s, not %s", agent, got, want)
		}
		if strings.Contains(instructions, "comm_") != (agent != "outsider") {
			t.Errorf("%s is told %s", agent, instructions)
		}
	}
	for _, door := range doors {
		v := w.visit(door, "tester")
		query, program := v.ask(t, "comm_query", map[string]any{"database": "shop", "sql": "SELECT 1"}), v.ask(t, "comm_exec", map[string]any{"argv": []string{"cat"}})
		refusal(t, query, "request.malformed")
		refusal(t, program, "permission.denied")
		if !strings.Contains(query.verdict.Reason, "No database is configured here.") || !strings.Contains(program.verdict.Reason, "No program is allowed here.") {
			t.Errorf("%s: %q, %q", door, query.verdict.Reason, program.verdict.Reason)
		}
		permit(t, v, v.ask(t, "comm_write_file", map[string]any{"path": "a.md", "content": "x", "expected_sha256": "absent"})) // a parameter that is not listed
	}
	_, token := w.open("tester")
	cs := w.connect(token, revision1125, nil)
	var manifest, folded struct {
		Tools []struct{ Name string }
	}
	structured(t, must(t, cs, "sallyport_manifest", map[string]any{}), &manifest)
	structured(t, must(t, cs, "sallyport_status", map[string]any{"manifest": true}), &folded)
	if len(manifest.Tools) == 0 || !slices.Equal(manifest.Tools, folded.Tools) {
		t.Errorf("%+v and %+v", manifest, folded)
	}
	var valid, checked struct {
		Valid    bool
		Ordering []string `json:"safe_ordering"`
	}
	structured(t, must(t, cs, "sallyport_validate_plan", map[string]any{"planned_calls": []string{"comm_search"}}), &valid)
	structured(t, must(t, cs, "sallyport_submit_plan", map[string]any{"check_only": true, "steps": []any{map[string]any{"tool": "comm_search", "justification": "to find it"}}}), &checked)
	if !valid.Valid || !checked.Valid || !slices.Equal(valid.Ordering, checked.Ordering) {
		t.Errorf("%+v and %+v", valid, checked)
	}
	var status struct {
		Plan any `json:"plan"`
	}
	structured(t, must(t, cs, "sallyport_status", map[string]any{}), &status)
	if status.Plan != nil {
		t.Errorf("checking a plan submitted it: %v", status.Plan)
	}
}

// A result of an outsider's has one fence, whatever blocks it comes in, and the fence is short. Structured content is in it, and beside it for a program
// whose declaration says so.
func TestFenceCost(t *testing.T) {
	program := declaration("program") + "structured: true\n"
	w := start(t, hundred(t)+plenty, declaration("tester"), program)
	for agent, want := range map[string]string{"tester": "", "program": `{"n":3}`} {
		_, token := w.open(agent)
		cs := w.connect(token, revision1125, nil)
		for _, server := range []string{"tracker", "mail"} { // mail blocks tracker
			tool, source := server+"_get_"+server+"_number_00", server+".get_"+server+"_number_00"
			res := must(t, cs, tool, map[string]any{})
			if len(res.Content) != 1 {
				t.Fatalf("%s: %d blocks", tool, len(res.Content))
			}
			block := res.Content[0].(*mcp.TextContent).Text
			fenced, err := guard.ParseWrapped(block)
			if err != nil || fenced.Header().Source != source {
				t.Fatalf("%v: %s", err, block)
			}
			const content = "one\ntwo\n{\"n\":3}"
			if added := utf8.RuneCountInString(block) - len(content) - len(source); !strings.Contains(block, "\n"+content+"\n") || added > fenceMost {
				t.Errorf("the fence adds %d characters to its content: %s", added, block)
			}
			got := ""
			if res.StructuredContent != nil {
				b, _ := json.Marshal(res.StructuredContent) // it came as JSON
				got = string(b)
			}
			if marked := res.Meta["sallyport/structured"]; got != want || (marked == guard.TrustLevel) != (want != "") {
				t.Errorf("%s has structured content %q, marked %v", agent, got, marked)
			}
		}
		list, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			if tool.OutputSchema != nil {
				t.Errorf("%s is listed with an output schema", tool.Name)
			}
		}
	}
	// The HTTP door gives the same.
	_, token := w.open("program")
	answer, err := w.client(w.agent, token).Call(t.Context(), client.Own, "tracker_get_tracker_number_01", json.RawMessage("{}"))
	if err != nil || !strings.Contains(string(answer.Result), `"structuredContent":{"n":3}`) || !strings.Contains(string(answer.Result), `"sallyport/structured"`) {
		t.Errorf("%v: %s", err, answer.Result)
	}
}
