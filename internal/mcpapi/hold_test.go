package mcpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/mcpwire"
)

// asks is the answer of a corridor that has asked a person.
func asks() gateway.Answer {
	id := "appr_7"
	v := fault.Refuse("risk", fault.ApprovalRequired, "echo is of risk HIGH, so a person must decide.")
	v.Decision, v.ApprovalID = fault.Ask, &id
	return gateway.Answer{CallID: "call_1", Verdict: v}
}

const serversQuestion = `{"resultType":"input_required","requestState":"inner","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"Name?","mode":"form","requestedSchema":{"type":"object","properties":{}}}}}}`

// modern makes a call of a client of 2026-07-28 with these capabilities and, where there is one, the next round.
func (r *rig) modern(capabilities, arguments, state, responses string) rawReply {
	r.t.Helper()
	params := `"name":"echo","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + capabilities + `},"arguments":` + arguments
	if state != "" {
		params += `,"requestState":` + string(mcpwire.AppendJSON(nil, state))
	}
	if responses != "" {
		params += `,"inputResponses":` + responses
	}
	return r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+params+`}}`, modernHeaders("tools/call", "echo"))
}

func (r rawReply) state() string {
	s, _ := call.Text(r.member("result", "requestState"))
	return s
}

// own tells whether the reply is a round of ours, and nothing beside it.
func (r rawReply) own() bool {
	n := 0
	for range call.Members(r.member("result", "inputRequests")) {
		n++
	}
	return n == 1 && r.member("result", "inputRequests", approvalKey) != nil && string(r.member("result", "resultType")) == `"input_required"` && r.state() != ""
}

func (r rawReply) asked() bool {
	return string(r.member("result", "_meta", "sallyport/verdict", "approval_id")) == `"appr_7"`
}

const (
	forms    = `{"elicitation":{}}`
	accepts7 = `{"sallyport/approval":{"action":"accept","content":{}}}`
)

// The form of our own question follows what the client can show, and where people answer.
func TestOwnQuestion(t *testing.T) {
	const link = "https://people.example/approvals/appr_7?a=<b>&c"
	for _, c := range []struct {
		capabilities string
		link         string
		mode         string
	}{
		{`{}`, link, ""},
		{`{"elicitation":null}`, link, ""},
		{`{"elicitation":[]}`, link, ""},
		{`{"sampling":{}}`, link, ""},
		{`{"elicitation":{}}`, link, "form"},
		{`{"elicitation":{}}`, "", "form"},
		{`{"elicitation":{"form":{}}}`, link, "form"},
		{`{"elicitation":{"url":{}}}`, link, "url"},
		{`{"elicitation":{"url":{}}}`, "", ""},
		{`{"elicitation":{"form":{},"url":{}}}`, link, "url"},
		{`{"elicitation":{"form":{},"url":{}}}`, "", "form"},
		{`{"elicitation":{"url":true}}`, link, "form"},
	} {
		r := newRig(t, func(o *Options) {
			o.Hold, o.Console = time.Hour, func(id string) string {
				if id != "appr_7" {
					t.Errorf("asked for %q", id)
				}
				return c.link
			}
		})
		r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
			if req.Hold != 0 {
				t.Errorf("a call that can be asked about is held")
			}
			a := asks()
			a.Verdict.Reason = "a\x1b[31m\u202e reason"
			return a
		})
		rep := r.modern(c.capabilities, `{}`, "", "")
		if c.mode == "" {
			if rep.own() || !rep.asked() || string(rep.member("result", "resultType")) != `"complete"` {
				t.Errorf("%s: %s", c.capabilities, rep.body)
			}
			continue
		}
		var q struct {
			Method string
			Params map[string]any
		}
		if err := json.Unmarshal(rep.member("result", "inputRequests", approvalKey), &q); err != nil || !rep.own() || q.Method != "elicitation/create" || q.Params["mode"] != c.mode {
			t.Errorf("%s: %v %s", c.capabilities, err, rep.body)
		}
		message, _ := q.Params["message"].(string)
		if !strings.HasPrefix(message, `a\x1b[31m\u202e reason Nothing has run yet. The question is appr_7,`) {
			t.Errorf("says %q", message)
		}
		switch schema, isForm := q.Params["requestedSchema"]; {
		case c.mode == "url" && (isForm || q.Params["url"] != link || strings.Contains(message, link)):
			t.Errorf("%s: %v", c.capabilities, q.Params)
		case c.mode == "form" && (q.Params["url"] != nil || !reflect.DeepEqual(schema, map[string]any{"type": "object", "properties": map[string]any{}})):
			t.Errorf("%s: %v", c.capabilities, q.Params)
		case c.mode == "form" && c.link != "" && !strings.Contains(message, "at "+link), c.mode == "form" && c.link == "" && !strings.Contains(message, "sallyport approvals show appr_7"):
			t.Errorf("does not say where: %q", message)
		}
		if strings.Contains(rep.state(), "appr_7") {
			t.Error("the state is not sealed")
		}
	}
}

// An answer of ours is held, goes no further, and is over after some rounds.
func TestOwnRounds(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hold = time.Hour })
	held := 0
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		if req.Exchange.InputResponses != nil || req.Exchange.RequestState != "" {
			t.Errorf("the corridor saw %s, %q", req.Exchange.InputResponses, req.Exchange.RequestState)
		}
		if req.Hold == time.Hour {
			held++
		}
		return asks()
	})
	rep := r.modern(forms, `{}`, "", "")
	rounds := 0
	for ; rep.own(); rounds++ {
		// What comes beside our answer nobody asked for.
		rep = r.modern(forms, `{}`, rep.state(), `{"q":{"action":"accept"},"sallyport/approval":{"action":"accept","content":{}}}`)
	}
	if rounds != ownRounds || held != ownRounds || !rep.asked() {
		t.Errorf("%d rounds, held %d times, then %s", rounds, held, rep.body)
	}
	// A client that says nothing is asked again, and not waited for.
	held = 0
	rep = r.modern(forms, `{}`, r.modern(forms, `{}`, "", "").state(), "")
	if !rep.own() || held != 0 {
		t.Errorf("held %d times: %s", held, rep.body)
	}
	for _, bad := range []string{`{"action":"approve"}`, `{"action":true}`, `{}`, `"accept"`, `[]`, `null`} {
		if rep := r.modern(forms, `{}`, r.modern(forms, `{}`, "", "").state(), `{"sallyport/approval":`+bad+`}`); rep.code() != mcpwire.CodeInvalidParams {
			t.Errorf("%s: %s", bad, rep.body)
		}
	}
}

// Without a state of ours there is nothing that an answer of ours could be to: it is not passed on and holds nothing.
func TestOwnAnswerWithoutState(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hold = time.Hour })
	var got []string
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		if req.Hold != 0 || req.DryRun {
			t.Error("held, or not run")
		}
		got = append(got, string(req.Exchange.InputResponses)+" "+req.Exchange.RequestState)
		if req.Exchange.InputResponses == nil {
			return permit(serversQuestion)
		}
		return permit(`{"content":[]}`)
	})
	state := r.modern(forms, `{}`, "", accepts7).state()
	r.modern(forms, `{}`, state, accepts7)
	state = r.modern(forms, `{}`, "", `{"sallyport/approval":{"action":"decline"}}`).state()
	r.modern(forms, `{}`, state, `{"q\"1":{"action":"accept"},"sallyport/approval":{"action":"decline"},"r":{"roots":[]}}`)
	if want := []string{" ", " inner", " ", `{"q\"1":{"action":"accept"},"r":{"roots":[]}} inner`}; !reflect.DeepEqual(got, want) {
		t.Errorf("the corridor got %q", got)
	}
}

// The server's rounds and ours in one call, in both orders: each state opens what it was sealed for.
func TestOwnRoundAmongTheServers(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hold = time.Hour })
	approved := false
	var got []string
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		x := req.Exchange
		got = append(got, fmt.Sprintf("%v %q %s", req.Hold, x.RequestState, x.InputResponses))
		switch {
		case x.RequestState == "" && x.InputResponses == nil:
			return permit(serversQuestion)
		case !approved:
			return asks()
		case x.RequestState == "inner":
			return permit(strings.ReplaceAll(serversQuestion, `"inner"`, `"inner 2"`))
		}
		return permit(`{"content":[]}`)
	})
	asked := r.modern(forms, `{"a":1}`, "", "")
	ours := r.modern(forms, `{"a":1}`, asked.state(), `{"q":{"action":"accept","content":{"n":"<Ann>"}}}`)
	if !ours.own() {
		t.Fatalf("%s", ours.body)
	}
	again := r.modern(forms, `{"a":1}`, ours.state(), accepts7)
	if !again.own() {
		t.Fatalf("%s", again.body)
	}
	approved = true
	second := r.modern(forms, `{"a":1}`, again.state(), accepts7)
	if second.own() || second.member("result", "inputRequests", "q") == nil {
		t.Fatalf("%s", second.body)
	}
	end := r.modern(forms, `{"a":1}`, second.state(), `{"q":{"action":"decline"}}`)
	if string(end.member("result", "resultType")) != `"complete"` {
		t.Fatalf("%s", end.body)
	}
	want := []string{
		`0s "" `,
		`0s "inner" {"q":{"action":"accept","content":{"n":"<Ann>"}}}`,
		`1h0m0s "inner" {"q":{"action":"accept","content":{"n":"<Ann>"}}}`,
		`1h0m0s "inner" {"q":{"action":"accept","content":{"n":"<Ann>"}}}`,
		`0s "inner 2" {"q":{"action":"decline"}}`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the corridor got\n%s", strings.Join(got, "\n"))
	}
	// What the server was answered can be too much to carry along: then the ask is the answer.
	approved = false
	asked = r.modern(forms, `{}`, "", "")
	rep := r.modern(forms, `{}`, asked.state(), `{"q":{"action":"accept","content":{"n":"`+strings.Repeat("x", maxKept)+`"}}}`)
	if rep.own() || !rep.asked() {
		t.Errorf("%.300s", rep.body)
	}
}

// A state of ours is good for its call, once, like a server's.
func TestOwnState(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hold = time.Hour })
	r.g.on(func(context.Context, gateway.Request) gateway.Answer { return asks() })
	state := func() string { return r.modern(forms, `{"a":1}`, "", "").state() }
	refuse := func(name string, rep rawReply) {
		t.Helper()
		if rep.status != 400 || rep.code() != mcpwire.CodeInvalidParams {
			t.Errorf("%s: %d %s", name, rep.status, rep.body)
		}
	}
	s := state()
	before := len(r.g.called())
	refuse("other arguments", r.modern(forms, `{"a":2}`, s, accepts7))
	refuse("changed", r.modern(forms, `{"a":1}`, s[:len(s)-2]+"AA", accepts7))
	params := `{"uri":"echo","requestState":` + string(mcpwire.AppendJSON(nil, s)) + `,` + modernMeta + `}`
	refuse("another method", r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":`+params+`}`, modernHeaders("resources/read", "echo")))
	h := modernHeaders("tools/call", "echo")
	for name, token := range map[string]string{"another agent": otherToken, "another session": sessionToken} {
		h["Authorization"] = "Bearer " + token
		refuse(name, r.do("POST", "/mcp", modernCall(`"arguments":{"a":1},"requestState":`+string(mcpwire.AppendJSON(nil, s))+`,"inputResponses":`+accepts7+`,`), h))
	}
	if n := len(r.g.called()) - before; n != 0 {
		t.Errorf("%d calls reached the corridor", n)
	}
	if rep := r.modern(forms, `{"a":1}`, s, accepts7); !rep.own() {
		t.Errorf("%s", rep.body)
	}
	refuse("replayed", r.modern(forms, `{"a":1}`, s, accepts7))
	s = state()
	if rep := r.modern(forms, `{"a":1}`, s, `{"sallyport/approval":{"action":"decline"}}`); !rep.asked() {
		t.Errorf("%s", rep.body)
	}
	refuse("replayed after a no", r.modern(forms, `{"a":1}`, s, accepts7))
	s = state()
	r.clock.add(stateLife)
	refuse("expired", r.modern(forms, `{"a":1}`, s, accepts7))
}

// A server can't pose as the gateway.
func TestServerUnderOurName(t *testing.T) {
	r := newRig(t)
	r.g.on(func(context.Context, gateway.Request) gateway.Answer {
		return permit(strings.Replace(serversQuestion, `"q":`, `"sallyport\/approval":`, 1))
	})
	if rep := r.modern(forms, `{}`, "", ""); rep.own() || string(rep.member("result", "_meta", "sallyport/verdict", "code")) != `"result.invalid"` {
		t.Errorf("%s", rep.body)
	}
}

// Who declined gets a judgement and no run, and no more rounds.
func TestLeft(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hold = time.Hour })
	for _, action := range []string{"decline", "cancel"} {
		approved := false
		r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
			if approved != req.DryRun || req.Hold != 0 {
				t.Errorf("run %v, held %s", !req.DryRun, req.Hold)
			}
			if approved {
				return permit(`{}`)
			}
			return asks()
		})
		s := r.modern(forms, `{}`, "", "").state()
		approved = true
		rep := r.modern(forms, `{}`, s, `{"sallyport/approval":{"action":"`+action+`"}}`)
		if !rep.asked() || rep.own() || !strings.Contains(string(rep.body), "Not done yet: It was not run") {
			t.Errorf("%s: %s", action, rep.body)
		}
	}
}

// A no is told at once, also where it names the question that a person put in its place.
func TestNoIsNoRound(t *testing.T) {
	r := newRig(t)
	r.g.on(func(context.Context, gateway.Request) gateway.Answer {
		a := asks()
		a.Verdict.Decision, a.Verdict.Code = fault.Deny, fault.ApprovalMismatch
		return a
	})
	if rep := r.modern(forms, `{}`, "", ""); rep.own() || !rep.asked() {
		t.Errorf("%s", rep.body)
	}
}

// Nothing but calls, reads and prompts is held or asked about, and a gateway that stops starts no round.
func TestNoRound(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hold = time.Hour })
	var holds []time.Duration
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		holds = append(holds, req.Hold)
		return asks()
	})
	completion := `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}%s}}`
	meta := `,` + strings.Replace(modernMeta, `Capabilities":{}`, `Capabilities":`+forms, 1)
	if rep := r.do("POST", "/mcp", fmt.Sprintf(completion, meta), modernHeaders("completion/complete", "")); rep.member("error", "data", "verdict") == nil {
		t.Errorf("%s", rep.body)
	}
	h := r.open(agentToken, forms)
	r.do("POST", "/mcp", fmt.Sprintf(completion, ""), h)
	r.do("POST", "/mcp", echoCall, h)
	r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"test://a"}}`, h)
	r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}`, h)
	r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"test://a"}}`, h)
	if want := []time.Duration{0, 0, time.Hour, time.Hour, time.Hour, 0}; !reflect.DeepEqual(holds, want) {
		t.Errorf("held %v", holds)
	}
	r.f.Drain()
	if rep := r.modern(forms, `{}`, "", ""); rep.own() || !rep.asked() {
		t.Errorf("%s", rep.body)
	}
}

// A held call says so to who gave a token, and only to them: without one the answer is plain JSON.
func TestHeldProgress(t *testing.T) {
	r := newRig(t)
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		if (req.Waiting == nil) != (req.Exchange.Progress == nil) {
			t.Error("one without the other")
		}
		if req.Waiting != nil {
			req.Waiting(desk.Waiting{ApprovalID: "appr_7", Risk: "HIGH"})
			req.Waiting(desk.Waiting{ApprovalID: "appr_7", Risk: "MEDIUM", SilenceAt: r.clock.now().Add(10 * time.Second)})
			req.Waiting(desk.Waiting{ApprovalID: "appr_7", Risk: "CRITICAL", SilenceAt: r.clock.now()})
			req.Exchange.Progress(json.RawMessage(`{"progress":0,"total":2.5,"message":"a","progressToken":9}`))
			req.Exchange.Progress(json.RawMessage(`{"progress":2.5,"total":2.5,"message":"b"}`))
		}
		return permit(`{"content":[]}`)
	})
	h := r.open(agentToken, "{}")
	if rep := r.do("POST", "/mcp", echoCall, h); rep.header.Get("Content-Type") != "application/json" {
		t.Errorf("%s", rep.body)
	}
	rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":"t"}}}`, h)
	var got []string
	for line := range strings.Lines(string(rep.body)) {
		if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
			params, _ := call.Get([]byte(data), "params")
			got = append(got, string(params))
		}
	}
	want := []string{
		`{"message":"Waiting for a person to decide on appr_7 (HIGH).","progress":1,"progressToken":"t"}`,
		`{"message":"Runs at 12:00:10 UTC unless a person stops it: appr_7 (MEDIUM).","progress":2,"progressToken":"t"}`,
		`{"message":"Waiting for two people to decide on appr_7 (CRITICAL).","progress":3,"progressToken":"t"}`,
		`{"progress":4,"total":6.5,"message":"a","progressToken":"t"}`,
		`{"progress":6.5,"total":6.5,"message":"b","progressToken":"t"}`,
		``,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("said\n%s", strings.Join(got, "\n"))
	}
}

// Whatever a server counts, the client's numbers rise once the gateway has said something, and are the server's before that.
func TestProgressRises(t *testing.T) {
	for _, c := range []struct {
		said []string // "": the gateway
		want []float64
	}{
		{[]string{"", "", "0", "0.5", "1"}, []float64{1, 2, 3, 3.5, 4}},
		{[]string{"5", "7", "", "1", "", "1"}, []float64{5, 7, 8, 10, 11, 13}},
		{[]string{"", "-5", "3", "3", "2", "4"}, []float64{1, 5, 6}},
		{[]string{"3", "3", "1", "", "1"}, []float64{3, 3, 1, 4, 6}},
		{[]string{"0.25", ""}, []float64{0.25, 1}},
		{[]string{"-9.5", ""}, []float64{-9.5, 1}},
		{[]string{"1e300", "", "1", "2e300"}, []float64{1e300, 1, 2e300}},
		{[]string{"", "1e308", "1.797e308", "", "1e999", "1", "-1e999"}, []float64{1, 1e308, 1.797e308}},
		{[]string{"", `"x"`, "null", "true", "{}", "9007199254740993", "9007199254740993"}, []float64{1, 9007199254740994}},
	} {
		w := httptest.NewRecorder()
		p := &progress{s: newStream(w, []byte("1")), token: json.RawMessage("1")}
		for _, said := range c.said {
			if said == "" {
				p.held("waiting")
			} else {
				p.server(json.RawMessage(`{"progress":` + said + `}`))
			}
		}
		var got []float64
		for line := range strings.Lines(w.Body.String()) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				params, _ := call.Get([]byte(data), "params")
				n, ok := number(params, "progress")
				if !ok || math.IsInf(n, 0) {
					t.Errorf("%v: sent %s", c.said, data)
				}
				got = append(got, n)
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %v, not %v", c.said, got, c.want)
		}
		if w.Code != http.StatusOK {
			t.Error(w.Code)
		}
	}
}
