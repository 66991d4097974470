package mcpapi

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/mcpwire"
)

// Every block that a revision knows passes unchanged; any other becomes text, so that a client which checks what it gets takes the result.
func TestContentOfEachRevision(t *testing.T) {
	const (
		text     = `{"type":"text","text":"a","annotations":{"priority":1}}`
		image    = `{"type":"image","data":"aGk=","mimeType":"image/png"}`
		resource = `{"type":"resource","resource":{"uri":"test://r","text":"x"}}`
		audio    = `{"type":"audio","data":"c2VjcmV0","mimeType":"audio/wav"}`
		link     = `{"type":"resource_link","uri":"test://r","name":"r"}`
		later    = `{"type":"hologram","data":{"a":"ü"}}`
	)
	asText := func(block string) string {
		return string(mcpwire.AppendJSON(nil, map[string]string{"type": "text", "text": block}))
	}
	silent := asText(`{"type":"audio","data":"left out: the client's revision of MCP has no audio","mimeType":"audio/wav"}`)
	for revision, want := range map[string]map[string]string{
		mcpwire.Revision1105: {text: text, image: image, resource: resource, audio: silent, link: asText(link), later: asText(later)},
		mcpwire.Revision0326: {text: text, image: image, resource: resource, audio: audio, link: asText(link), later: asText(later)},
		mcpwire.Revision0618: {text: text, image: image, resource: resource, audio: audio, link: link, later: later},
		mcpwire.Revision1125: {text: text, image: image, resource: resource, audio: audio, link: link, later: later},
	} {
		for block, becomes := range want {
			for _, form := range []struct {
				method call.Method
				result string
			}{
				{call.CallTool, `{"_meta":{"a":1},"content":[` + text + `, BLOCK],"structuredContent":{"b":2},"isError":true}`},
				{call.GetPrompt, `{"description":"d","messages":[{"role":"user","content":` + text + `},{"role":"assistant","content":BLOCK}]}`},
			} {
				got := asOlder(revision, string(form.method), json.RawMessage(strings.ReplaceAll(form.result, "BLOCK", block)))
				if wanted := strings.ReplaceAll(form.result, "BLOCK", becomes); compact(t, got) != compact(t, []byte(wanted)) {
					t.Errorf("%s, %s:\n got %s\nwant %s", revision, form.method, got, wanted)
				}
			}
		}
		// Structured content that stands alone would say nothing to a client that has no such member.
		alone, want := `{"content":[],"structuredContent":{"b":"ü"}}`, `{"content":[],"structuredContent":{"b":"ü"}}`
		if older(revision) {
			want = `{"content":[` + asText(`{"b":"ü"}`) + `],"structuredContent":{"b":"ü"}}`
		}
		if got := asOlder(revision, "tools/call", json.RawMessage(alone)); string(got) != want {
			t.Errorf("%s: %s", revision, got)
		}
		for _, odd := range []string{`{}`, `{"content":null}`, `{"content":{}}`, `{"content":[null,1,{"type":7}]}`, `{"messages":[null,{"content":[]},7]}`} {
			for _, method := range []string{"tools/call", "prompts/get", "resources/read"} {
				if got := asOlder(revision, method, json.RawMessage(odd)); string(got) != odd {
					t.Errorf("%s, %s: %s became %s", revision, method, odd, got)
				}
			}
		}
	}
}

func compact(t *testing.T, b []byte) string {
	t.Helper()
	if err := call.Check(b, limits); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return string(mcpwire.AppendJSON(nil, v))
}

// FuzzAsOlder: whatever a server answers, an older client gets JSON in which only blocks of types that its revision has not are others.
func FuzzAsOlder(f *testing.F) {
	for _, s := range []string{`{"content":[{"type":"audio","data":"a"},{"type":"resource_link"}]}`, `{"messages":[{"role":"user","content":{"type":"audio"}}]}`, `{"content":[],"structuredContent":{}}`, `{"Content":[],"structuredContent":{}}`, `{"content":[{"type":"\u0061udio", "da\u0074a":1}]}`, `{}`} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, result []byte, prompt bool) {
		if call.Check(result, limits) != nil || !call.IsObject(result) {
			return
		}
		method := "tools/call"
		if prompt {
			method = "prompts/get"
		}
		for _, revision := range []string{mcpwire.Revision1105, mcpwire.Revision0326} {
			got := asOlder(revision, method, result)
			if err := call.Check(got, call.Limits{Bytes: 64 << 20, Depth: 100, Members: 1 << 20}); err != nil {
				t.Fatalf("%s became %s: %v", result, got, err)
			}
			if again := asOlder(revision, method, got); string(again) != string(got) {
				t.Fatalf("%s is not in the form of %s: %s", got, revision, again)
			}
			for name, value := range call.Members(result) {
				if kept, ok := call.Get(got, name); !ok || name != "content" && name != "messages" && string(kept) != string(value) {
					t.Fatalf("%s lost %q: %s", result, name, got)
				}
			}
		}
	})
}

// What a revision does not have, a server can't ask of its clients, whatever they say of themselves.
func TestCapabilitiesOfEachRevision(t *testing.T) {
	const all = `{"elicitation":{"form":{}},"sampling":{"tools":{}},"roots":{"listChanged":true},"tasks":{}}`
	for _, revision := range []string{mcpwire.Revision1105, mcpwire.Revision0326, mcpwire.Revision0618, mcpwire.Revision1125} {
		r := newRig(t)
		h := r.openAs(revision, agentToken, all)
		want := all
		if older(revision) {
			want = `{"roots":{"listChanged":true},"sampling":{}}`
		}
		r.g.on(func(ctx context.Context, req gateway.Request) gateway.Answer {
			x := req.Exchange
			if string(x.ClientCapabilities) != want {
				t.Errorf("%s: %s", revision, x.ClientCapabilities)
			}
			ctx, cancel := context.WithCancel(ctx)
			cancel() // nobody answers here
			for method, params := range map[string]string{"elicitation/create": `{}`, "sampling/createMessage": `{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`} {
				_, err := x.Ask(ctx, method, json.RawMessage(params))
				if refused := (*call.RPCError)(nil); errors.As(err, &refused) != older(revision) {
					t.Errorf("%s, %s: %v", revision, method, err)
				}
			}
			for kind, since := range map[string]string{"text": mcpwire.Revision1105, "image": mcpwire.Revision1105, "audio": mcpwire.Revision0326, "tool_use": mcpwire.Revision0618} {
				_, err := x.Ask(ctx, "sampling/createMessage", json.RawMessage(`{"messages":[{"role":"user","content":{"type":"`+kind+`"}}]}`))
				if refused := (*call.RPCError)(nil); errors.As(err, &refused) != (revision < since) {
					t.Errorf("%s, a sample with %s: %v", revision, kind, err)
				}
			}
			return permit(`{"content":[]}`)
		})
		if rep := r.do("POST", "/mcp", echoCall, h); rep.status != 200 || len(r.g.called()) != 1 {
			t.Errorf("%s: %d %s", revision, rep.status, rep.body)
		}
	}
}

// A client gets the revision that it asks for, where it is served over HTTP, and the newest with a handshake where it is not. Afterwards it need not name it.
func TestNegotiation(t *testing.T) {
	r := newRig(t)
	for asked, want := range map[string]string{
		"2024-10-07": mcpwire.Revision1125, mcpwire.Revision1105: mcpwire.Revision1105, mcpwire.Revision0326: mcpwire.Revision0326, mcpwire.Revision0618: mcpwire.Revision0618,
		mcpwire.Revision1125: mcpwire.Revision1125, mcpwire.Revision0728: mcpwire.Revision1125, "2099-01-01": mcpwire.Revision1125, "": mcpwire.Revision1125,
	} {
		rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+asked+`","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`, nil)
		if got, _ := call.Text(rep.member("result", "protocolVersion")); got != want {
			t.Errorf("%q: %s", asked, rep.body)
			continue
		}
		id := rep.header.Get(mcpwire.HeaderSession)
		if c := r.f.conns.byID[id]; c == nil || c.revision != want {
			t.Errorf("%q: the transport session has another revision", asked)
		}
		for _, version := range []string{"", want} {
			h := map[string]string{mcpwire.HeaderSession: id}
			if version != "" {
				h[mcpwire.HeaderVersion] = version
			}
			if rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, h); rep.status != 202 {
				t.Errorf("%q, header %q: %d %s", asked, version, rep.status, rep.body)
			}
			if rep := r.do("POST", "/mcp", echoCall, h); rep.status != 200 || rep.code() != 0 {
				t.Errorf("%q, header %q: %d %s", asked, version, rep.status, rep.body)
			}
		}
		if rep := r.do("DELETE", "/mcp", "", map[string]string{mcpwire.HeaderSession: id}); rep.status != 204 {
			t.Errorf("%q: %d", asked, rep.status)
		}
	}
}
