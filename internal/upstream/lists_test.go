package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sandbox"
)

// TestEndlessLists: lists that break a bound are not taken, and the rest of the server goes on.
func TestEndlessLists(t *testing.T) {
	page := func(id, tools, cursor string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s],"nextCursor":%q}}`, id, tools, cursor)
	}
	var n atomic.Int64
	many := strings.Repeat(`{"name":"x"},`, 99) + `{"name":"x"}`
	for name, c := range map[string]struct {
		list func(id, cursor string) string
		want string
	}{
		"pages":       {func(id, _ string) string { return page(id, "", fmt.Sprint(n.Add(1))) }, "over 1000 pages"},
		"repeats":     {func(id, _ string) string { return page(id, "", "again") }, "a cursor repeats"},
		"definitions": {func(id, _ string) string { return page(id, many, fmt.Sprint(n.Add(1))) }, "over 5000 definitions"},
		"bytes": {func(id, _ string) string {
			return page(id, `{"name":"x","d":"`+strings.Repeat("d", 1<<20)+`"}`, fmt.Sprint(n.Add(1)))
		}, "over 8388608 bytes"},
		"no list":     {func(id, _ string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":{}}}` }, "are no list"},
		"nothing":     {func(id, _ string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}` }, "has no tools"},
		"long cursor": {func(id, _ string) string { return page(id, "", strings.Repeat("c", 5000)) }, "no text of usual length"},
	} {
		t.Run(name, func(t *testing.T) {
			m, seen := start(t, Config{URL: serve(t, &rawHTTP{list: c.list})}, nil)
			if s := m.Status()[0]; s.State != Up || !strings.Contains(s.LastError, c.want) {
				t.Errorf("%+v", s)
			}
			if len(seen.lists) != 0 {
				t.Error("a part was delivered")
			}
		})
	}
}

func TestMissingListMethod(t *testing.T) {
	s := &rawHTTP{list: func(id, _ string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"no"}}`
	}}
	m, seen := start(t, Config{URL: serve(t, s)}, nil)
	if s := m.Status()[0]; s.State != Up || s.LastError != "" || len(seen.lists["srv"]) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestDefinitionFaults: what can't be exposed is listed with its fault, byte for byte hashed, unknown members included (mcp-002).
func TestDefinitionFaults(t *testing.T) {
	const ok = `"inputSchema":{"type":"object"}`
	for _, c := range []struct{ tools, name, fault string }{
		{`{"name":"fine",` + ok + `,"x-unknown":1}`, "fine", ""},
		{`{"name":"read_fi\u0435",` + ok + `}`, "read_fi\u0435", "outside"},
		{`{"name":"read_file ",` + ok + `}`, "read_file ", "outside"},
		{`{"name":"*",` + ok + `}`, "*", "outside"},
		{`{"name":"` + strings.Repeat("a", 129) + `",` + ok + `}`, strings.Repeat("a", 129), "outside"},
		{`{"name":"Read_File",` + ok + `},{"name":"read-file",` + ok + `}`, "read-file", "looks like"},
		{`{"name":"twice",` + ok + `},{"name":"twice",` + ok + `,"description":"other"}`, "twice", "there twice"},
		{`{"name":"",` + ok + `}`, "", "no name"},
		{`{"title":"t",` + ok + `}`, "", "no name"},
		{`{"name":7,` + ok + `}`, "", "no name"},
		{`{"name":"noschema"}`, "noschema", "no inputSchema"},
		{`{"name":"null","inputSchema":null}`, "null", `type "object"`},
		{`{"name":"string","inputSchema":{"type":"string"}}`, "string", `type "object"`},
		{`{"name":"output",` + ok + `,"outputSchema":{"$ref":"file:///etc/passwd"}}`, "output", "outputSchema has a $ref"},
		{`{"name":"long",` + ok + `,"description":"` + strings.Repeat("d", 300<<10) + `"}`, "long", "over 262144 bytes"},
		{`{"name":"hdr","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a b"}}}}`, "hdr", "x-mcp-header"},
		{`{"name":"hdr2","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}}`, "hdr2", "x-mcp-header"},
		{`{"name":"hdr3","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}}`, "hdr3", "x-mcp-header"},
		{`7`, "", "no name"},
	} {
		s := &rawHTTP{list: func(id, _ string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[` + c.tools + `]}}`
		}}
		_, seen := start(t, Config{URL: serve(t, s)}, nil)
		d, found := seen.tool("srv", c.name)
		if !found || (c.fault == "") != (d.Fault == "") || !strings.Contains(d.Fault, c.fault) || d.Hash != call.HashBytes(d.JSON) {
			t.Errorf("%.60s: %v %q", c.tools, found, d.Fault)
		}
		if c.name == "fine" && string(d.JSON) != `{"inputSchema":{"type":"object"},"name":"fine","x-unknown":1}` {
			t.Errorf("%s", d.JSON)
		}
	}
}

// TestRugPull: a server that renames or changes its tools is reported with the new list; the hash tells (mcp-022).
func TestRugPull(t *testing.T) {
	var n atomic.Int64
	s := &rawHTTP{list: func(id, _ string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a","description":"v%d","inputSchema":{"type":"object"}}]}}`, id, n.Add(1))
	}}
	m, seen := start(t, Config{URL: serve(t, s)}, nil)
	first, _ := seen.tool("srv", "a")
	m.servers["srv"].relist()
	until(t, "the change is seen", func() bool { d, _ := seen.tool("srv", "a"); return d.Hash != first.Hash })
}

// changing is a server whose tool a is another one in each list.
func changing() (s *rawHTTP, lists *atomic.Int64, fails *atomic.Bool) {
	lists, fails = &atomic.Int64{}, &atomic.Bool{}
	return &rawHTTP{list: func(id, _ string) string {
		n := lists.Add(1)
		if fails.Load() {
			return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32000,"message":"not now"}}`
		}
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a","description":"v%d","inputSchema":{"type":"object"}}]}}`, id, n)
	}}, lists, fails
}

// Who asks for the lists has them delivered when the answer is there, and an error where they were not; many that ask at once share a list.
func TestListNow(t *testing.T) {
	s, lists, fails := changing()
	m, seen := start(t, Config{URL: serve(t, s)}, nil)
	for range 3 {
		before, _ := seen.tool("srv", "a")
		if err := m.List(t.Context(), "srv"); err != nil {
			t.Fatal(err)
		}
		if now, _ := seen.tool("srv", "a"); now.Hash == before.Hash {
			t.Error("the answer was there before the list was delivered")
		}
	}
	before := lists.Load()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := m.List(t.Context(), "srv"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := lists.Load() - before; n > 25 {
		t.Errorf("50 that asked at once had %d lists taken", n)
	}
	fails.Store(true)
	var none *fault.NotDispatched
	if err := m.List(t.Context(), "srv"); !fault.Is(err, fault.UpstreamFailed) || !errors.As(err, &none) {
		t.Errorf("a list that failed: %v", err)
	}
	if err := m.List(t.Context(), "other"); !fault.Is(err, fault.UpstreamFailed) {
		t.Errorf("of no server: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.List(ended, "srv"); !errors.As(err, &none) {
		t.Errorf("out of time: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.List(t.Context(), "srv"); !errors.As(err, &none) {
		t.Errorf("of a server that is stopped: %v", err)
	}
}

// A call that finds old lists has them taken again beside it; one that finds new ones does not.
func TestUseRenewsLists(t *testing.T) {
	s, lists, _ := changing()
	m, _ := start(t, Config{URL: serve(t, s)}, nil)
	server := m.servers["srv"]
	call := func() {
		_, _ = m.Do(t.Context(), "srv", "tools/call", json.RawMessage(`{"name":"a","arguments":{}}`), nil)
	}
	call()
	if len(server.changed) != 0 {
		t.Error("a call that found new lists asks for them")
	}
	before := lists.Load()
	server.renewal.at.Store(time.Now().Add(-relistUsed).UnixNano())
	call()
	until(t, "the lists are taken again", func() bool { return lists.Load() > before })
}

func TestDefinitionsPanic(t *testing.T) {
	log := &testLog{}
	m, _ := start(t, Config{URL: serve(t, &rawHTTP{})}, func(o *Options) {
		o.Log = logger(log)
		o.Definitions = func(string, []call.Definition) { panic("boom") }
	})
	if m.Status()[0].State != Up || !strings.Contains(log.String(), "panic in a callback") {
		t.Error(log.String())
	}
}

func TestConfigIsChecked(t *testing.T) {
	for want, c := range map[string]Config{
		"has an id outside":           {ID: "a b", URL: "http://x/"},
		"needs either":                {ID: "a"},
		"either a command or a url":   {ID: "a", URL: "http://x/", Command: []string{"x"}},
		"negative timeout":            {ID: "a", URL: "http://x/", Timeout: -1},
		"unknown client feature":      {ID: "a", URL: "http://x/", ClientFeatures: []string{"all"}},
		"absolute http":               {ID: "a", URL: "file:///x"},
		"password in its url":         {ID: "a", URL: "http://u:p@x/"},
		"fragment":                    {ID: "a", URL: "http://x/#f"},
		"env and dir":                 {ID: "a", URL: "http://x/", Dir: "/"},
		"which is the gateway's":      {ID: "a", URL: "http://x/", Headers: map[string]string{"mcp-session-id": "x"}},
		"Idempotency-Key, which":      {ID: "a", URL: "http://x/", Headers: map[string]string{"idempotency-key": "x"}},
		"no header name":              {ID: "a", URL: "http://x/", Headers: map[string]string{"a b": "x"}},
		"line break":                  {ID: "a", URL: "http://x/", Headers: map[string]string{"A": "x\r\nB: y"}},
		"empty command":               {ID: "a", Command: []string{""}},
		"relative program path":       {ID: "a", Command: []string{"./x"}},
		"headers are for urls":        {ID: "a", Command: []string{"x"}, Headers: map[string]string{"A": "b"}},
		"NUL":                         {ID: "a", Command: []string{"x", "a\x00b"}},
		"can't be set":                {ID: "a", Command: []string{"x"}, Env: map[string]string{"A=B": "x"}, Confine: Confinement{Sandbox: Unconfined}},
		"variables of the dynamic lo": {ID: "a", Command: []string{"x"}, Env: map[string]string{"LD_PRELOAD": "x"}, Confine: Confinement{Sandbox: Unconfined}},
		"unknown sandbox":             {ID: "a", Command: []string{"x"}},
		"has no folder":               {ID: "a", Command: []string{"x"}, Confine: Confinement{Sandbox: Partial}},
		"its folder alone":            {ID: "a", Command: []string{"x"}, Confine: Confinement{Sandbox: Full, Folder: "/f", Paths: []string{"/p"}}},
		"hold its folder":             {ID: "a", Command: []string{"x"}, Confine: Confinement{Sandbox: Unconfined, Network: sandbox.NoNetwork}},
		"never the root":              {ID: "a", Command: []string{"x"}, Confine: Confinement{Sandbox: Partial, Folder: "/f", Paths: []string{"/"}}},
		"without the network for it":  {ID: "a", Command: []string{"x"}, Confine: Confinement{Sandbox: Partial, Folder: "/f", Hosts: []string{"example.com"}}},
		"are for commands":            {ID: "a", URL: "http://x/", Confine: Confinement{Sandbox: Partial}},
	} {
		_, err := New([]Config{c}, Options{})
		if !fault.Is(err, fault.ConfigurationInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := New([]Config{{ID: "a", URL: "http://x/"}, {ID: "a", URL: "http://y/"}}, Options{}); err == nil {
		t.Error("one id twice")
	}
}
