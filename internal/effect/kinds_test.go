package effect

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// noPins is a store of a catalogue that has accepted nothing before.
type noPins struct{}

func (noPins) Pins(context.Context) ([]catalogue.Pin, error) { return nil, nil }
func (noPins) SavePins(context.Context, []catalogue.Pin, ...audit.Entry) error {
	return nil
}

const uri = "shy://customers"

// snapshot has a tool, a resource and a prompt of the server shy, a built-in operation, and the unlisted tool bad.secret.
func snapshot(t *testing.T) *catalogue.Snapshot {
	t.Helper()
	c, err := catalogue.New(t.Context(), catalogue.Options{
		Settings: catalogue.Settings{Labels: []flow.Label{"internal"}, Unlisted: catalogue.Unlisted, Classify: func(server, tool string) catalogue.Classification {
			c := catalogue.Classification{Listed: server != "bad", Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.UntrustedOutput}
			if c.Facts.EgressURL = server == "shy"; tool == "look" {
				c.Output = provenance.TrustedOutput // else it is held against no schema
			}
			return c
		}},
		Store: noPins{}, Now: time.Now, Launch: func(string) string { return "" }, Log: slog.New(slog.DiscardHandler),
		Schema: func(json.RawMessage) (func([]byte) error, error) {
			return func(value []byte) error {
				if string(value) == `{"n":"no"}` {
					return errors.New("n is no number")
				}
				return nil
			}, nil
		},
		Commands: []catalogue.Command{{
			Name: "get", Description: "Gets a page.", Parameters: json.RawMessage(`{}`), Sensitivity: flow.External, Effect: flow.Read, Timeout: time.Minute,
			Requests: true, Places: map[string]string{"url": "path"},
			Check: func(parameters json.RawMessage) error {
				if string(parameters) == `{"url":"bad"}` {
					return fault.New(fault.RequestMalformed, "no address").At("url")
				}
				return nil
			},
			Writes: func(parameters json.RawMessage) bool { return string(parameters) == `{"url":"post"}` },
			Of: func(parameters json.RawMessage) string {
				if string(parameters) == `{"url":"cached"}` {
					return "comm.other"
				}
				return ""
			},
			Inputs: func(_ context.Context, session string, parameters json.RawMessage) (*call.Inputs, error) {
				return &call.Inputs{Files: []call.InputFile{{Path: session + string(parameters)}}}, nil
			},
			Run: func(_ context.Context, r catalogue.CommandRun) (catalogue.Brought, error) {
				return catalogue.Brought{Source: "https://a.example/", Blocks: []catalogue.Block{{Text: r.Session + " " + string(r.Parameters)}}}, nil
			},
		}},
		Void: func(context.Context, string) {}, Changed: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	define := func(server, name string, kind call.Kind, raw string) call.Definition {
		return call.Definition{Server: server, Name: name, Kind: kind, JSON: []byte(raw), Hash: call.HashBytes([]byte(raw))}
	}
	offers := map[string][]call.Definition{
		"shy": {
			define("shy", "look", call.Tool, `{"name":"look","description":"Looks.","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}`),
			define("shy", uri, call.Resource, `{"name":"n","uri":"`+uri+`"}`),
			define("shy", "greet", call.Prompt, `{"name":"greet"}`),
		},
		"bad": {define("bad", "secret", call.Tool, `{"name":"secret","description":"Tells.","inputSchema":{"type":"object"}}`)},
	}
	for server, definitions := range offers {
		if err := c.UpdateDefinitions(t.Context(), server, definitions); err != nil {
			t.Fatal(err)
		}
	}
	return c.Snapshot()
}

// sent notes what reaches a server.
type sent struct{ requests []string }

func (s *sent) List(_ context.Context, server string) error {
	s.requests = append(s.requests, server+" list")
	return nil
}

func (s *sent) Do(_ context.Context, server, method string, params json.RawMessage, _ *call.Exchange) (json.RawMessage, error) {
	s.requests = append(s.requests, server+" "+method+" "+string(params))
	return json.RawMessage(`{}`), nil
}

// results are one of each form.
var results = map[string]string{
	"content":  `{"content":[{"type":"text","text":"obey"}],"extra":1}`,
	"contents": `{"contents":[{"uri":"` + uri + `","text":"obey"}],"extra":1}`,
	"messages": `{"messages":[{"role":"user","content":{"type":"text","text":"obey"}}],"extra":1}`,
	"other":    `{"completion":{"values":["obey"]}}`,
}

// kinds says of each kind of effect what its methods answer.
var kinds = map[string]struct {
	method    call.Method
	name      string
	operation string
	traits    Traits
	pinned    bool   // its definition's hash is the operation's
	canonical string // of the arguments {"justification":{"a":1},"url":"x"}
	selects   string
	wire      string // what is sent; "": nothing, it runs here
	source    string
	form      string // of its results; "": they are not fenced
	read      string // what Payloads reads of such a result
	fails     bool   // its results can say that they failed
	command   bool
}{
	"tool": {
		method: call.CallTool, name: "shy_look", operation: "shy.look", traits: Traits{Traced: true}, pinned: true,
		canonical: `{"justification":{"a":1},"url":"x"}`, wire: `shy tools/call {"name":"look","arguments":{"justification":{"a":1},"url":"x"}}`,
		form: "content", read: "obey", fails: true,
	},
	"command": {
		method: call.CallTool, name: "comm_get", operation: "comm.get", pinned: true, canonical: `{"url":"x"}`, source: "https://a.example/", form: "content", read: "obey", fails: true,
		traits: Traits{NeedsReasons: true, Requests: true, AttributionApart: true, Places: map[string]string{"url": "path"}}, command: true,
	},
	"resource": {
		method: call.ReadResource, name: uri, operation: "shy.read_resource", traits: Traits{Traced: true}, canonical: `{"uri":"` + uri + `"}`,
		wire: `shy resources/read {"uri":"` + uri + `"}`, source: uri, form: "contents", read: "obey",
	},
	"subscription": {
		method: call.Subscribe, name: uri, operation: "shy.read_resource", traits: Traits{Traced: true, ReadsNothing: true}, canonical: `{"uri":"` + uri + `"}`,
		wire: `shy resources/subscribe {"uri":"` + uri + `"}`,
	},
	"end of a subscription": {
		method: call.Unsubscribe, name: uri, operation: "shy.read_resource", traits: Traits{ReadsNothing: true}, canonical: `{"uri":"` + uri + `"}`,
		wire: `shy resources/unsubscribe {"uri":"` + uri + `"}`,
	},
	"prompt": {
		method: call.GetPrompt, name: "shy_greet", operation: "shy.get_prompt", form: "messages", read: "obey",
		canonical: `{"arguments":{"justification":{"a":1},"url":"x"},"name":"greet"}`, selects: `{"justification":{"a":1},"url":"x"}`,
		wire: `shy prompts/get {"name":"greet","arguments":{"justification":{"a":1},"url":"x"}}`,
	},
	"completion of a prompt": {
		method: call.Complete, name: "shy_greet", operation: "shy.get_prompt", canonical: `{"justification":{"a":1},"url":"x"}`,
		wire: `shy completion/complete {"justification":{"a":1},"url":"x"}`,
	},
	"completion of a resource": {
		method: call.Complete, name: uri, operation: "shy.read_resource", canonical: `{"justification":{"a":1},"url":"x"}`,
		wire: `shy completion/complete {"justification":{"a":1},"url":"x"}`,
	},
}

// Every kind of effect answers every method of the interface as the table says; a method that is added needs a check here, and a method of
// MCP a kind.
func TestEveryKindAnswersEveryMethod(t *testing.T) {
	snap := snapshot(t)
	issuer, err := guard.NewIssuer([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	methods := append(slices.Collect(maps.Keys(offered)), call.CallTool)
	for name, k := range kinds {
		methods = slices.DeleteFunc(methods, func(m call.Method) bool { return m == k.method })
		e, err := Find(snap, k.method, k.name)
		if err != nil || e == nil {
			t.Errorf("%s: %v, %v", name, e, err)
			continue
		}
		p, err := e.Parameters([]byte(`{"justification":{"a":1},"url":"x"}`))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checks := map[string]func(*testing.T){
			"Operation": func(t *testing.T) {
				if e.Operation() != snap.ByID(k.operation) {
					t.Error(e.Operation().ID)
				}
			},
			"Traits": func(t *testing.T) {
				if got := e.Traits(); !reflect.DeepEqual(got, k.traits) {
					t.Errorf("%+v", got)
				}
			},
			"Definition": func(t *testing.T) {
				want := e.Operation().Hash
				if !k.pinned {
					want = call.HashBytes([]byte(want + "\x00" + string(k.method)))
				}
				if e.Definition() != want {
					t.Error("the method is not part of it, or the hash is another")
				}
			},
			"Parameters": func(t *testing.T) {
				if string(p.Canonical) != k.canonical || string(p.Selects) != k.selects || (string(p.Justification) == `{"a":1}`) != k.command || p.Declaration != nil || p.Problem != nil {
					t.Errorf("%s, %s, %s", p.Canonical, p.Selects, p.Justification)
				}
			},
			"Check": func(t *testing.T) {
				if err := e.Check([]byte(`{"url":"bad"}`)); (err != nil) != k.command {
					t.Error(err)
				}
			},
			"Writes": func(t *testing.T) {
				for parameters, want := range map[string]bool{`{"url":"x"}`: false, `{"url":"post"}`: k.command} {
					if writes, why := e.Writes([]byte(parameters)); writes != want || why != "" {
						t.Errorf("%s: %v, %q", parameters, writes, why)
					}
				}
			},
			"Stored": func(t *testing.T) {
				if of := e.Stored([]byte(`{"url":"cached"}`)); (of == "comm.other") != k.command || e.Stored([]byte(`{}`)) != "" {
					t.Error(of)
				}
			},
			"Inputs": func(t *testing.T) {
				in, err := e.Inputs(t.Context(), "s", []byte(`{}`))
				if (in != nil) != k.command || in != nil && in.Files[0].Path != "s{}" || err != nil {
					t.Errorf("%+v, %v", in, err)
				}
			},
			"Renew": func(t *testing.T) {
				var up sent
				if err := e.Renew(t.Context(), &up); err != nil || (len(up.requests) == 0) != k.command || !k.command && up.requests[0] != "shy list" {
					t.Errorf("%q, %v", up.requests, err)
				}
			},
			"Act": func(t *testing.T) {
				var up sent
				r, err := e.Act(t.Context(), Run{Session: "s", Parameters: p, Upstreams: &up})
				if err != nil || strings.Join(up.requests, ", ") != k.wire || r.Source != k.source || len(r.JSON) == 0 {
					t.Errorf("%q, %+v, %v", up.requests, r, err)
				}
			},
			"Failed": func(t *testing.T) {
				reached, unsent := errors.New("reset"), &fault.NotDispatched{Err: errors.New("refused")}
				for _, c := range []struct {
					err    error
					writes bool
					want   Failure
				}{{unsent, true, Failure{Nothing: true}}, {reached, true, Failure{Tells: k.command}}, {reached, false, Failure{Nothing: k.command, Tells: k.command}}} {
					if got := e.Failed(c.err, c.writes); got != c.want {
						t.Errorf("%v, writes %v: %+v", c.err, c.writes, got)
					}
				}
			},
			"Inspect": func(t *testing.T) {
				for result, want := range map[string]string{`{"a":1}`: "false", `{"isError":true}`: "true", `[]`: "refused", ``: "refused"} {
					failed, err := e.Inspect(NewContent(json.RawMessage(result)))
					got := map[bool]string{true: "true", false: "false"}[failed]
					if fault.Is(err, fault.ResultInvalid) {
						got = "refused"
					}
					if got != want {
						t.Errorf("%s: %v, %v", result, failed, err)
					}
				}
			},
			"Payloads": func(t *testing.T) {
				for form, result := range results {
					var want []provenance.Value
					if form == k.form && k.read != "" {
						want = []provenance.Value{provenance.TextValue(k.read)}
					}
					if all, plain := e.Payloads(NewContent(json.RawMessage(result))); plain || !reflect.DeepEqual(all, want) {
						t.Errorf("%s: %v, %v", form, all, plain)
					}
				}
			},
			"Wrap": func(t *testing.T) {
				form := k.form
				if form == "" {
					form = "other"
				}
				env := Envelope{From: guard.Source{Operation: k.operation, Session: "sess_1", Source: "somewhere", CallID: "call_1", At: time.Now()}, Issuer: issuer}
				wrapped, attribution, err := e.Wrap(NewContent(json.RawMessage(results[form])), env)
				if err != nil || strings.Contains(string(wrapped), "extra") || strings.Contains(string(wrapped), guard.TrustLevel) != (k.form != "") {
					t.Fatalf("%s, %v", wrapped, err)
				}
				if a, err := issuer.Parse(attribution); k.form != "" && (err != nil || !a.Covers([]byte(results[form])) || a.Source() != "somewhere") {
					t.Errorf("%s, %v", attribution, err)
				}
				if attributions, fenced := Delivered(wrapped, issuer); (len(attributions) == 1 && len(fenced) == 1) != (k.form != "") {
					t.Errorf("%d attributions, %d fences", len(attributions), len(fenced))
				}
			},
			"Refusal": func(t *testing.T) {
				result, ok := e.Refusal(json.RawMessage(`{"code":1,"message":"no"}`))
				if ok != k.fails || ok && string(result) != `{"content":[{"text":"no","type":"text"}],"isError":true}` {
					t.Errorf("%s, %v", result, ok)
				}
			},
		}
		for m := range reflect.TypeFor[Effect]().Methods() {
			if check := checks[m.Name]; check != nil {
				t.Run(name+"/"+m.Name, check)
			} else {
				t.Errorf("nothing checks %s", m.Name)
			}
		}
	}
	if len(methods) > 0 {
		t.Errorf("no kind of effect is for %v", methods)
	}
}

// What has a name that the catalogue does not know is no effect. What is withheld is one for the record alone.
func TestFind(t *testing.T) {
	snap := snapshot(t)
	for _, c := range []struct {
		method         call.Method
		name, withheld string
	}{
		{call.CallTool, "nothing", ""}, {call.CallTool, uri, ""}, {call.CallTool, "bad_secret", "bad.secret"}, {call.ReadResource, "shy_look", ""},
		{call.GetPrompt, uri, ""}, {call.Complete, "shy_look", ""}, {"tools/destroy", "shy_look", ""}, {"", "shy_look", ""},
	} {
		e, err := Find(snap, c.method, c.name)
		if e != nil && e.Operation().Standing == catalogue.Active || err != nil {
			t.Errorf("%s %s: %v, %v", c.method, c.name, e, err)
		}
		if op := Withheld(snap, c.method, c.name); (op == nil) != (c.withheld == "") || op != nil && op.ID != c.withheld {
			t.Errorf("%s %s: %v is withheld", c.method, c.name, op)
		}
	}
	long := strings.Repeat("x", MaxName+1)
	for m := range offered {
		if _, err := Find(snap, m, long); !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%s of a long name: %v", m, err)
		}
	}
}

// Texts that stand side by side are in one fence, and structured content follows the last of them; what is no text parts them.
func TestNeighboursShareAFence(t *testing.T) {
	issuer, err := guard.NewIssuer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	e, err := Find(snapshot(t), call.CallTool, "shy_look")
	if err != nil {
		t.Fatal(err)
	}
	const text, image, more = `{"type":"text","text":"%s"}`, `{"type":"image","data":"aGk=","mimeType":"image/png"}`, `"structuredContent":{"n":1}`
	one, two := strings.Replace(text, "%s", "one", 1), strings.Replace(text, "%s", "two", 1)
	for result, want := range map[string][]string{
		`{"content":[` + one + `]}`:                                        {"one"},
		`{"content":[` + one + `,` + two + `]}`:                            {"one\ntwo"},
		`{"content":[` + one + `,` + image + `,` + two + `]}`:              {"one", "image", "two"},
		`{"content":[` + one + `,` + two + `,` + image + `],` + more + `}`: {"one\ntwo\n{\"n\":1}", "image"},
		`{"content":[` + image + `],` + more + `}`:                         {`{"n":1}`, "image"},
		`{` + more + `}`: {`{"n":1}`},
		`{"content":[]}`: {},
		`{"content":[` + one + `,{"type":"odd"}]}`:                                     {"one\n{\"type\":\"odd\"}"},
		`{"content":[{"type":"text","text":"{\"n\":1}"}],"isError":true,` + more + `}`: {`{"n":1}`},
	} {
		for _, program := range []bool{false, true} {
			env := Envelope{From: guard.Source{Operation: "shy.look", Session: "sess_1", Source: "somewhere", CallID: "call_1", At: time.Now()}, Issuer: issuer, Structured: program}
			wrapped, _, err := e.Wrap(NewContent(json.RawMessage(result)), env)
			if err != nil {
				t.Fatal(err)
			}
			var r struct {
				Content    []struct{ Type, Text string }
				Structured json.RawMessage            `json:"structuredContent"`
				Meta       map[string]json.RawMessage `json:"_meta"`
			}
			if err := json.Unmarshal(wrapped, &r); err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, b := range r.Content {
				if b.Type != "text" {
					got = append(got, b.Type)
					continue
				}
				_, body, _ := strings.Cut(b.Text, ".\n")
				body, _, _ = strings.Cut(body, "\n<<<END ")
				if got = append(got, body); !guard.IsWrapped(b.Text) {
					t.Errorf("%s: not fenced: %s", result, b.Text)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s came as %q, want %q", result, got, want)
			}
			beside := program && strings.Contains(result, more)
			if (string(r.Structured) == `{"n":1}`) != beside || (string(r.Meta["sallyport/structured"]) == `"`+guard.TrustLevel+`"`) != beside {
				t.Errorf("%s, for a program: %v: %s", result, program, wrapped)
			}
		}
	}
}

// The result of a tool is held against the schema that it declared, but not where it says that it failed.
func TestStructuredResultsAreHeldAgainstTheirSchema(t *testing.T) {
	e, err := Find(snapshot(t), call.CallTool, "shy_look")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Inspect(NewContent(json.RawMessage(`{"structuredContent":{"n":"no"}}`))); !fault.Is(err, fault.ResultInvalid) || fault.Of(err).Cause == nil {
		t.Error(err)
	}
	if failed, err := e.Inspect(NewContent(json.RawMessage(`{"structuredContent":{"n":"no"},"isError":true}`))); !failed || err != nil {
		t.Error(failed, err)
	}
}

// A command's parameters are read apart from its reasons, and those are raw: what they say is for the declare stage to judge.
func TestReasonsBesideParameters(t *testing.T) {
	e, err := Find(snapshot(t), call.CallTool, "comm_get")
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Parameters([]byte(`{"a":1,"declaration_id":7,"justification":"x","url":"y"}`))
	if err != nil || string(p.Canonical) != `{"a":1,"url":"y"}` || string(p.Declaration) != "7" || string(p.Justification) != `"x"` {
		t.Errorf("%+v, %v", p, err)
	}
}

// A result has so many blocks at most, of each kind of result. The rest is in the last one, as text, and nothing of it is lost.
func TestBlocksAreBounded(t *testing.T) {
	const sent = 5 * maxBlocks
	of := func(list, block string) json.RawMessage {
		return json.RawMessage(`{"` + list + `":[` + strings.Repeat(block+",", sent-1) + strings.Replace(block, "x", "the last", 1) + `]}`)
	}
	issuer, err := guard.NewIssuer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		list   string
		result json.RawMessage
		wrap   func(*wrapper, map[string]json.RawMessage) (map[string]any, error)
	}{
		"resources of a tool":     {"content", of("content", `{"type":"resource","resource":{"uri":"shy://a","text":"x"}}`), (*wrapper).content},
		"unknown blocks":          {"content", of("content", `{"type":"image","data":"!","mimeType":"x"}`), (*wrapper).content},
		"contents of a resource":  {"contents", of("contents", `{"uri":"shy://a","text":"x"}`), (*wrapper).contents},
		"messages of a prompt":    {"messages", of("messages", `{"role":"user","content":{"type":"text","text":"x"}}`), (*wrapper).messages},
		"images between the text": {"content", of("content", `{"type":"text","text":"x"},{"type":"image","data":"aaaa","mimeType":"image/png"}`), (*wrapper).content},
	} {
		e := Envelope{Issuer: issuer, From: guard.Source{Operation: "shy.look", Session: "s", Source: "shy.look", CallID: "call_1", At: time.Unix(0, 0)}}
		wrapped, _, err := e.wrap(NewContent(test.result), test.wrap)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var all map[string]json.RawMessage
		var blocks []json.RawMessage
		if err := errors.Join(json.Unmarshal(wrapped, &all), json.Unmarshal(all[test.list], &blocks)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(blocks) > maxBlocks || len(blocks) == 0 || !strings.Contains(string(blocks[len(blocks)-1]), "the last") {
			t.Errorf("%s: %d blocks, the last of them %.300s", name, len(blocks), blocks[len(blocks)-1])
		}
		if len(wrapped) > 10*len(test.result) {
			t.Errorf("%s: %d bytes leave as %d", name, len(test.result), len(wrapped))
		}
		if !strings.Contains(string(wrapped), "the last") {
			t.Errorf("%s: the last block is lost", name)
		}
	}
}
