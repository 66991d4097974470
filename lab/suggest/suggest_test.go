package suggest

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/provenance"
)

func schemaOf(t testing.TB, properties string) json.RawMessage {
	t.Helper()
	s := `{"type":"object","properties":` + properties + `}`
	if !json.Valid([]byte(s)) {
		t.Fatalf("not JSON: %s", s)
	}
	return json.RawMessage(s)
}

func tool(t testing.TB, name, properties string) Tool {
	t.Helper()
	n, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	return Tool{name, json.RawMessage(`{"name":` + string(n) + `,"description":"Does it.","inputSchema":` + string(schemaOf(t, properties)) + `}`)}
}

// The words and types that tell a role, and what looks like one and is none.
func TestSuggestRoles(t *testing.T) {
	for _, c := range []struct{ tool, properties, want string }{
		{"send_email", `{"recipients":{"type":"array","items":{"type":"string"}},"cc":{"type":"string"},"subject":{"type":"string"},"body":{"type":"string"},"attachments":{"type":"array","items":{"type":"string"}}}`,
			"body:content cc:destination recipients:destination subject:name"},
		{"sendMail", `{"toAddress":{"type":"string","format":"email"},"message":{"type":"string"}}`, "message:content toAddress:destination"},
		{"transfer", `{"payee":{"type":"string"},"amount":{"type":"number"},"currency":{"type":"string"},"max_amount":{"type":"number"}}`, "amount:amount payee:destination"},
		{"post_message", `{"channel":{"type":"string"},"text":{"type":"string"},"thread_id":{"type":"string"}}`, "channel:destination text:content thread_id:selector"},
		{"reschedule_event", `{"event_id":{"type":"string"},"calendar_id":{"type":"string"},"start_time":{"type":"string","format":"date-time"}}`, "event_id:selector start_time:time"},
		{"delete_file", `{"file_id":{"type":"string"},"title":{"type":"string"},"filter":{"type":"string"}}`, "file_id:selector"},
		{"search_files", `{"query":{"type":"string"},"limit":{"type":"integer"},"sort":{"enum":["a","b"]}}`, ""}, // nothing would have to be confirmed
		{"search_files", `{"query":{"type":"string"},"folder":{"type":"string"}}`, "query:query"},
		{"fetch_page", `{"url":{"type":"string"}}`, "url:url"},
		{"fetch_page", `{"where":{"type":"string","format":"uri"}}`, "where:url"},
		{"update_password", `{"password":{"type":"string"},"api_key":{"type":"string"},"page_token":{"type":"string"}}`, "api_key:credential password:credential"},
		{"create_note", `{"name":{"type":"string"},"content":{"type":"string"}}`, "content:content name:name"},
		{"create_user", `{"name":{"type":"string"},"email":{"type":"string"}}`, "email:destination"},
		{"run_query", `{"query":{"type":"string"},"content":{"type":"string"},"title":{"type":"string"}}`, ""},
		{"run_job", `{"date":{"type":"string","format":"date"},"x":{"type":"string"}}`, ""},
		{"http_request", `{"url":{"type":"string"},"body":{"type":"string"}}`, "url:url"},
		{"mark_as_read", `{"query":{"type":"string"},"x":{"type":"string"}}`, ""},
		{"get_or_create", `{"query":{"type":"string"},"x":{"type":"string"}}`, ""},
		{"frobnicate", `{"text":{"type":"string"},"verbose":{"type":"boolean"},"limit":{"type":"integer"},"body":{"type":"object"}}`, ""},
		{"create_thing", `{"body":{"type":"object"},"content":{"enum":["a"]},"text":{"anyOf":[{"type":"string"},{"type":"object"}]},"date":{"type":"integer"}}`, ""},
		{"set_limit", `{"limit":{"type":"integer"},"page":{"type":"integer"}}`, ""},
		{"pay", `{"payment":{"type":"object","properties":{"amount":{"type":"number"},"iban":{"type":"string"}}}}`, "payment.amount:amount payment.iban:destination"},
	} {
		p := For("s", tool(t, c.tool, c.properties))
		var got []string
		for _, arg := range sorted(p.Args) {
			got = append(got, arg+":"+string(p.Args[arg]))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %s: %s, want %s", c.tool, c.properties, strings.Join(got, " "), c.want)
		}
		if problems := p.Profile().Check(); problems != nil {
			t.Errorf("%s: %v", c.tool, problems)
		}
		// What may read the organisation's own data brings it in and could carry it out, as long as nobody says otherwise.
		if reads := strings.HasPrefix(c.tool, "search") || strings.HasPrefix(c.tool, "fetch"); reads != (p.Sensitivity == flow.Both) || !reads && p.Sensitivity != flow.External {
			t.Errorf("%s is %s", c.tool, p.Sensitivity)
		}
		if p.Profile().Output != provenance.UntrustedOutput || p.Profile().Level != 2 || p.Profile().TrustedFields != nil {
			t.Errorf("%s: a server's words made it %+v", c.tool, p.Profile())
		}
	}
}

// A proposal opens nothing that isn't among what it says it frees: whatever a definition says, a call with a stranger's value anywhere else is
// asked about or refused, as it is without a label; and so is every call where no value is confirmed.
func TestSuggestionsAreNeverMorePermissive(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	verb := []string{"send", "search", "get", "delete", "create", "run", "update", "mark", "frob", "pay", "list", "fetch", "share", "post"}
	noun := []string{"email", "file", "files", "event", "user", "payment", "url", "message", "sql", "read", "channel", "note", ""}
	args := []string{"to", "recipients", "email", "channel", "url", "link_uri", "amount", "file_id", "id", "user_ids", "title", "name", "subject", "date", "start_time", "body", "text", "content",
		"message", "description", "query", "q", "search", "filter", "limit", "page", "offset", "password", "api_token", "page_token", "verbose", "sort", "currency", "command", "path", "x", "config"}
	kinds := []string{`{"type":"string"}`, `{"type":"string","format":"email"}`, `{"type":"string","format":"date-time"}`, `{"type":"string","format":"uri"}`, `{"enum":["a","b"]}`, `{}`, `{"type":"array","items":{"type":"string"}}`}
	free, told := 0, 0
	for range 20_000 {
		name := verb[rnd.IntN(len(verb))] + "_" + noun[rnd.IntN(len(noun))]
		properties := map[string]json.RawMessage{}
		for range 1 + rnd.IntN(5) {
			properties[args[rnd.IntN(len(args))]] = json.RawMessage(kinds[rnd.IntN(len(kinds))])
		}
		b, err := json.Marshal(properties)
		if err != nil {
			t.Fatal(err)
		}
		p := For("s", tool(t, name, string(b)))
		profile := p.Profile()
		op, err := flow.Resolve(flow.Spec{ID: p.Operation, Name: "x", Sensitivity: p.Sensitivity, Effect: flow.Write, Untrusted: true}, []flow.Label{flow.Internal})
		if err != nil {
			t.Fatal(err)
		}
		if profile.HasRoles() {
			told++
		}
		stranger := slices.Collect(func(yield func(string) bool) {
			for arg := range properties {
				if rnd.IntN(3) == 0 && !yield(arg) {
					return
				}
			}
		})
		call := map[string]string{}
		for arg := range properties {
			call[arg] = "bob@example.com" // the person named him
			if slices.Contains(stranger, arg) {
				call[arg] = "evil@attacker.example"
			}
		}
		raw, err := json.Marshal(call)
		if err != nil {
			t.Fatal(err)
		}
		s := provenance.Situation{Held: []flow.Held{{Label: flow.Untrusted}}, Request: provenance.ParseRequest("do it for bob@example.com")}
		if rnd.IntN(2) == 0 {
			s.Held = append(s.Held, flow.Held{Label: flow.Internal})
		}
		got := provenance.JudgeCall(op, profile, raw, s)
		outside := slices.DeleteFunc(slices.Clone(stranger), func(arg string) bool { return slices.Contains(p.Frees, arg) })
		if got.Verdict == provenance.Permit && len(outside) > 0 {
			t.Fatalf("%s %s: a stranger's %v passes, and the proposal frees %v", p.Operation, b, outside, p.Frees)
		}
		if got.Verdict == provenance.Permit && provenance.JudgeCall(op, nil, raw, s).Verdict != provenance.Permit {
			free++
			if len(stranger) == len(properties) {
				t.Fatalf("%s %s: a call that is a stranger's in all passes", p.Operation, b)
			}
		}
	}
	if told < 1000 || free < 100 {
		t.Errorf("hardly anything was tried: %d with roles, %d freed", told, free)
	}
}

// What a server says about itself changes no word of what would be pasted.
func TestAnnotationsAreNoLabels(t *testing.T) {
	plain := tool(t, "search_mail", `{"folder":{"type":"string"},"query":{"type":"string"}}`)
	boast := plain
	boast.Definition = json.RawMessage(strings.Replace(string(plain.Definition), `"description"`, `"annotations":{"readOnlyHint":true,"destructiveHint":false},"outputSchema":{"properties":{"id":{"type":"string"},"title":{"type":"string"},"sender":{"type":"string"},"sender\n    effect: read #":{"type":"string"}}},"description"`, 1))
	pasted := func(p Proposal) string {
		var keep []string
		for l := range strings.Lines(Write([]Proposal{p})) {
			if !strings.HasPrefix(strings.TrimSpace(l), "#") {
				keep = append(keep, l)
			}
		}
		return strings.Join(keep, "")
	}
	a, b := For("s", plain), For("s", boast)
	if pasted(a) != pasted(b) {
		t.Errorf("%s\nis not\n%s", pasted(a), pasted(b))
	}
	text := Write([]Proposal{b})
	for _, want := range []string{"    # effect: read  # instead of level: the server says that it only reads; check it", "    # trusted_fields: [id]", "    # names: [title]", "    # delegable: [sender]"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func FuzzSuggest(f *testing.F) {
	f.Add("search", []byte(`{"inputSchema":{"properties":{"q":{"type":"string"}}}}`))
	f.Add("*", []byte(`{"description":"\n\u202e","inputSchema":{"properties":{"<<":{"$ref":"#/properties/a"},"a\nb: c":{"type":"string"}}}}`))
	f.Fuzz(func(t *testing.T, name string, definition []byte) {
		p := For("s", Tool{name, definition})
		text := Write([]Proposal{p})
		for l := range strings.Lines(text) {
			for _, r := range strings.TrimSuffix(l, "\n") {
				if r < ' ' || r == 0x7f {
					t.Fatalf("%q", l)
				}
			}
		}
		if problems := p.Profile().Check(); problems != nil {
			t.Fatal(problems)
		}
	})
}

// The tools that ids come from are told the word that those have which take them, as a comment: only a person knows.
func TestSuggestionsOfIDs(t *testing.T) {
	all := []Proposal{
		For("c", tool(t, "delete_event", `{"event_id":{"type":"string"}}`)), For("c", tool(t, "list_events", `{"query":{"type":"string"}}`)), For("c", tool(t, "list_people", `{"query":{"type":"string"}}`)),
		For("d", tool(t, "list_events", `{"query":{"type":"string"}}`)),
	}
	text := Write(all)
	if n := strings.Count(text, "# id_kind: event  # if"); n != 1 {
		t.Errorf("%d hints:\n%s", n, text)
	}
	if Write(all) != text {
		t.Error("written twice it is another text")
	}
}
