package mcpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/memory"
)

// callOf is a call of echo with the id, in JSON.
func callOf(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":{"n":` + id + `}}}`
}

func inBatch(messages ...string) string { return "[" + strings.Join(messages, ",") + "]" }

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// batched are the answers to a batch: their ids, and the answers by id.
func batched(t *testing.T, b []byte) (ids []string, byID map[string]rawReply) {
	t.Helper()
	if err := call.Check(b, call.Limits{Bytes: 1 << 20, Depth: 64, Members: 10_000}); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	byID = map[string]rawReply{}
	for answer := range call.Elements(b) {
		one := rawReply{body: answer}
		id := string(one.member("id"))
		ids, byID[id] = append(ids, id), one
	}
	return ids, byID
}

// argumentsOf are the arguments of the calls that reached the gateway, in order.
func argumentsOf(calls []gateway.Request) (all []string) {
	for _, c := range calls {
		all = append(all, string(c.Arguments))
	}
	return all
}

// Every kind of message stands in a batch. The messages are served in their order, and answered in one array.
func TestBatch(t *testing.T) {
	r := newRig(t)
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	rep := r.do("POST", "/mcp", inBatch(initialized, callOf("1"), `{"jsonrpc":"2.0","id":"p","method":"ping"}`, `{"jsonrpc":"2.0","id":"l","method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":"s","method":"resources/subscribe","params":{"uri":"test://w"}}`, `{"jsonrpc":"2.0","id":"v","method":"logging/setLevel","params":{"level":"loud"}}`,
		`{"jsonrpc":"2.0","id":"x","method":"vendor/x"}`, callOf("2")), h)
	if rep.status != 200 || rep.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s", rep.status, rep.body)
	}
	ids, by := batched(t, rep.body)
	if !slices.Equal(ids, []string{"1", `"p"`, `"l"`, `"s"`, `"v"`, `"x"`, "2"}) {
		t.Fatalf("answered %s", ids)
	}
	for id, want := range map[string]string{"1": `"text":"ok"`, `"p"`: `"result":{}`, `"l"`: `"name":"echo"`, `"s"`: `"result":{}`, `"v"`: "-32602", `"x"`: "-32601"} {
		if !strings.Contains(string(by[id].body), want) {
			t.Errorf("%s: %s", id, by[id].body)
		}
	}
	calls := r.g.called()
	if len(calls) != 3 || string(calls[0].Arguments) != `{"n":1}` || calls[1].Method != call.Subscribe || string(calls[2].Arguments) != `{"n":2}` {
		t.Errorf("%+v", calls)
	}
	for _, c := range calls {
		if c.Method == call.CallTool && c.Principal.Conversation == 0 {
			t.Error("a call in a batch is of no conversation")
		}
	}
}

// A batch without requests is answered with 202.
func TestBatchOfNotifications(t *testing.T) {
	r := newRig(t)
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	for _, b := range []string{inBatch(initialized, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`), inBatch(`{"jsonrpc":"2.0","id":"sallyport-1","result":{}}`)} {
		if rep := r.do("POST", "/mcp", b, h); rep.status != 202 || len(rep.body) != 0 {
			t.Errorf("%s: %d %s", b, rep.status, rep.body)
		}
	}
	if len(r.g.called()) != 0 {
		t.Error("something was called")
	}
}

// Only a transport session of 2025-03-26 has batches. What is refused is refused as a whole, on record, and nothing of it runs.
func TestBatchRefused(t *testing.T) {
	r := newRig(t)
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	with := func(version string) map[string]string {
		return map[string]string{mcpwire.HeaderSession: h[mcpwire.HeaderSession], mcpwire.HeaderVersion: version}
	}
	good := inBatch(callOf("1"), callOf("2"))
	many := make([]string, 10_000)
	for i := range many {
		many[i] = callOf(fmt.Sprint(i))
	}
	for name, c := range map[string]struct {
		body    string
		headers map[string]string
		code    int
	}{
		"2024-11-05":             {good, r.openAs(mcpwire.Revision1105, agentToken, "{}"), mcpwire.CodeInvalidRequest},
		"2025-06-18":             {good, r.openAs(mcpwire.Revision0618, agentToken, "{}"), mcpwire.CodeInvalidRequest},
		"2025-11-25":             {good, r.open(agentToken, "{}"), mcpwire.CodeInvalidRequest},
		"2026-07-28":             {good, modernHeaders("tools/call", "echo"), mcpwire.CodeInvalidRequest},
		"header of another":      {good, with(mcpwire.Revision1125), mcpwire.CodeInvalidRequest},
		"header of none":         {good, with("2024-10-07"), mcpwire.CodeInvalidRequest},
		"no session":             {good, map[string]string{}, mcpwire.CodeInvalidRequest},
		"none":                   {"[]", h, mcpwire.CodeInvalidRequest},
		"10,000":                 {inBatch(many...), h, mcpwire.CodeInvalidRequest},
		"one too many":           {inBatch(many[:mcpwire.MaxBatch+1]...), h, mcpwire.CodeInvalidRequest},
		"one id twice":           {inBatch(callOf("1"), callOf("1")), h, mcpwire.CodeInvalidRequest},
		"nested":                 {inBatch(callOf("1"), inBatch(callOf("2"))), h, mcpwire.CodeInvalidRequest},
		"mixed":                  {inBatch(callOf("1"), `{"jsonrpc":"2.0","id":"sallyport-1","result":{}}`), h, mcpwire.CodeInvalidRequest},
		"initialize":             {inBatch(callOf("1"), `{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}`), h, mcpwire.CodeInvalidRequest},
		"a wrong one":            {inBatch(callOf("1"), `{"jsonrpc":"2.0","id":2}`), h, mcpwire.CodeInvalidRequest},
		"a wrong _meta":          {inBatch(callOf("1"), `{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":[]}}`), h, mcpwire.CodeInvalidParams},
		"one of 2026-07-28":      {inBatch(callOf("1"), modernCall("")), h, mcpwire.CodeInvalidRequest},
		"unknown notification":   {inBatch(callOf("1"), `{"jsonrpc":"2.0","method":"notifications/evil"}`), h, mcpwire.CodeMethodNotFound},
		"a response without id":  {`[{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}]`, h, mcpwire.CodeInvalidRequest},
		"a member twice":         {inBatch(callOf("1"), strings.Replace(callOf("2"), `"name":"echo"`, `"name":"echo","name":"denied"`, 1)), h, mcpwire.CodeParse},
		"another one's session":  {good, map[string]string{"Authorization": "Bearer " + otherToken, mcpwire.HeaderSession: h[mcpwire.HeaderSession]}, mcpwire.CodeInvalidRequest},
		"a session that is none": {good, map[string]string{mcpwire.HeaderSession: "AAAA"}, mcpwire.CodeInvalidRequest},
	} {
		before := r.g.refused.Load()
		rep := r.do("POST", "/mcp", c.body, c.headers)
		if rep.status/100 != 4 || rep.code() != c.code || len(r.g.called()) != 0 {
			t.Errorf("%s: %d %s, %d calls", name, rep.status, rep.body, len(r.g.called()))
		}
		if r.g.refused.Load() == before {
			t.Errorf("%s: not on record", name)
		}
	}
}

// A credential that is revoked while a batch runs is good for nothing that comes after.
func TestBatchRevoked(t *testing.T) {
	r := newRig(t)
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	r.g.on(func(context.Context, gateway.Request) gateway.Answer {
		r.g.mu.Lock()
		defer r.g.mu.Unlock()
		delete(r.g.tokens, agentToken)
		return permit(`{"content":[]}`)
	})
	rep := r.do("POST", "/mcp", inBatch(callOf("1"), callOf("2"), `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`), h)
	ids, by := batched(t, rep.body)
	if len(ids) != 3 || len(r.g.called()) != 1 || by["1"].code() != 0 || by["2"].code() == 0 || by["3"].code() == 0 {
		t.Errorf("%s, %d calls", rep.body, len(r.g.called()))
	}
}

// A token of the same agent is not the one that opened the session, even if the secret comes to name it.
func TestBatchOfAnotherCredential(t *testing.T) {
	r := newRig(t)
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	r.g.on(func(context.Context, gateway.Request) gateway.Answer {
		r.g.mu.Lock()
		defer r.g.mu.Unlock()
		r.g.tokens[agentToken] = r.g.tokens[agentToken2]
		return permit(`{"content":[]}`)
	})
	rep := r.do("POST", "/mcp", inBatch(callOf("1"), callOf("2")), h)
	if _, by := batched(t, rep.body); len(r.g.called()) != 1 || by["2"].code() == 0 {
		t.Errorf("%s, %d calls", rep.body, len(r.g.called()))
	}
}

// A request of a batch can be cancelled before its turn and at it, and each has an id that no other request may use meanwhile.
func TestBatchCancelled(t *testing.T) {
	r := newRig(t)
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	cancel := func(id string) {
		if rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`, h); rep.status != 202 {
			t.Errorf("%d %s", rep.status, rep.body)
		}
	}
	r.g.on(func(ctx context.Context, req gateway.Request) gateway.Answer {
		if string(req.Arguments) == `{"n":1}` {
			if rep := r.do("POST", "/mcp", callOf("3"), h); rep.status != 400 || !strings.Contains(string(rep.body), "still running") {
				t.Errorf("an id of the batch is used again: %d %s", rep.status, rep.body)
			}
			cancel("2")
			cancel("1")
			<-ctx.Done()
			return gateway.Answer{Verdict: fault.Refuse("act", fault.TimeExceeded, "cancelled")}
		}
		return permit(`{"content":[]}`)
	})
	rep := r.do("POST", "/mcp", inBatch(callOf("1"), callOf("2"), callOf("3"), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`, callOf("4")), h)
	_, by := batched(t, rep.body)
	if got := argumentsOf(r.g.called()); !slices.Equal(got, []string{`{"n":1}`, `{"n":3}`}) || by["2"].code() == 0 || by["3"].code() != 0 || by["4"].code() == 0 {
		t.Errorf("%v called: %s", got, rep.body)
	}
	if rep := r.do("POST", "/mcp", callOf("2"), h); rep.code() != 0 {
		t.Errorf("afterwards: %s", rep.body)
	}
}

// Where a call sends something before its result, all answers leave as events: those before it first, and each as soon as it is there.
func TestBatchAsEvents(t *testing.T) {
	r := newRig(t)
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	var late func(json.RawMessage)
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		if late != nil {
			late(json.RawMessage(`{"progress":9}`)) // of a request that has its answer
		}
		if req.Exchange.Progress != nil {
			req.Exchange.Progress(json.RawMessage(`{"progress":1,"message":"half"}`))
			late = req.Exchange.Progress
		}
		return permit(`{"content":[]}`)
	})
	rep := r.do("POST", "/mcp", inBatch(callOf("1"), strings.Replace(callOf("2"), `"name"`, `"_meta":{"progressToken":"t"},"name"`, 1), callOf("3")), h)
	if rep.status != 200 || rep.header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %s", rep.status, rep.body)
	}
	events := mcpwire.NewEvents(strings.NewReader(string(rep.body)+"\n\n"), 1<<20)
	defer events.Free()
	var got []string
	for data, err := events.Next(); err == nil; data, err = events.Next() {
		m, e := mcpwire.Parse(data, limits)
		if e != nil {
			t.Fatalf("%s: %v", data, e)
		}
		got = append(got, m.Method+string(m.ID))
	}
	if !slices.Equal(got, []string{"1", "notifications/progress", "2", "3"}) {
		t.Errorf("%v", got)
	}
}

// Once the gateway stops, nothing more of a batch begins.
func TestBatchWhileStopping(t *testing.T) {
	r := newRig(t)
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	r.g.on(func(context.Context, gateway.Request) gateway.Answer {
		r.f.Drain()
		return permit(`{"content":[]}`)
	})
	rep := r.do("POST", "/mcp", inBatch(callOf("1"), callOf("2")), h)
	if _, by := batched(t, rep.body); len(r.g.called()) != 1 || by["1"].code() != 0 || !strings.Contains(string(by["2"].body), "stopping") {
		t.Errorf("%s, %d calls", rep.body, len(r.g.called()))
	}
}

// One call that panics costs one answer.
func TestBatchPanics(t *testing.T) {
	r := newRig(t)
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		if string(req.Arguments) == `{"n":1}` {
			panic("boom: secret")
		}
		return permit(`{"content":[]}`)
	})
	rep := r.do("POST", "/mcp", inBatch(callOf("1"), callOf("2")), h)
	if _, by := batched(t, rep.body); by["1"].code() != mcpwire.CodeInternal || by["2"].code() != 0 || strings.Contains(string(rep.body), "secret") {
		t.Errorf("%s", rep.body)
	}
}

// The calls of a batch hold memory together, which has an end, and their answers add up in it.
func TestBatchMemory(t *testing.T) {
	budget := memory.New(4 << 20)
	r := newRig(t, func(o *Options) { o.Memory = budget })
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	refused := 0
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		if err := req.Exchange.Room.More(64 << 10); err != nil {
			refused++
			return gateway.Answer{Verdict: fault.RefuseErr("act", err)}
		}
		return permit(`{"content":[]}`)
	})
	var messages []string
	for i := range mcpwire.MaxBatch {
		messages = append(messages, callOf(fmt.Sprint(i)))
	}
	rep := r.do("POST", "/mcp", inBatch(messages...), h)
	if ids, _ := batched(t, rep.body); rep.status != http.StatusOK || len(ids) != mcpwire.MaxBatch || refused == 0 || refused == mcpwire.MaxBatch {
		t.Errorf("%d answers, %d calls without room", len(ids), refused)
	}
	refused = 0
	if rep := r.do("POST", "/mcp", callOf("1"), h); rep.code() != 0 || refused != 0 {
		t.Errorf("the batch gave nothing back: %s", rep.body)
	}
}

// A batch holds what its requests would hold alone. Where there is no room for that, nothing of it runs.
func TestBatchHoldsMemoryForEachRequest(t *testing.T) {
	budget := memory.New(8 << 20)
	r := newRig(t, func(o *Options) { o.Memory = budget })
	h := r.openAs(mcpwire.Revision0326, agentToken, "{}")
	ran, least := 0, int64(0)
	r.g.on(func(context.Context, gateway.Request) gateway.Answer {
		ran++
		least, _, _ = budget.Held()
		return permit(`{"content":[]}`)
	})
	var messages []string
	for i := range mcpwire.MaxBatch {
		messages = append(messages, callOf(fmt.Sprint(i)))
	}
	if r.do("POST", "/mcp", inBatch(messages...), h); ran != mcpwire.MaxBatch || least < mcpwire.MaxBatch*memory.PerCall*9/10 {
		t.Errorf("%d calls ran, which held %d bytes", ran, least)
	}
	others, err := budget.Take(t.Context(), "other", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer others.Release()
	for others.More(1<<10) == nil { // as far as there is room
	}
	ran = 0
	if rep := r.do("POST", "/mcp", inBatch(messages...), h); rep.status != http.StatusTooManyRequests || ran != 0 {
		t.Errorf("status %d, and %d calls ran", rep.status, ran)
	}
	if rep := r.do("POST", "/mcp", callOf("1"), h); rep.code() != 0 || ran != 1 {
		t.Errorf("a call alone: %s", rep.body)
	}
}
