package provenance

import (
	"encoding/json"
	"testing"

	"sallyport.example/flow"
)

// Who creates a record under a name of the request, and puts a stranger's address into it, has not made the record that the person means.
func TestCreatedForAStranger(t *testing.T) {
	list := &Profile{Output: TrustedOutput, IDKind: "contact", Args: map[string]Role{}}
	send := &Profile{Level: 2, IDKind: "contact", Args: map[string]Role{"contact": Selector, "text": Content}}
	for name, c := range map[string]struct {
		request, address string
		role             Role
		want             Verdict
	}{
		"an outsider's":                     {"Send the figures to Anna Falcon", "eve@evil.example", Destination, Ask},
		"one of a trusted list":             {"Send the figures to Anna Falcon", "vendor@two.example", Destination, Ask},
		"one that is called content":        {"Send the figures to Anna Falcon", "eve@evil.example", Content, Ask},
		"one that is called a query":        {"Send the figures to Anna Falcon", "eve@evil.example", Query, Ask},
		"the person's words":                {"Send the figures to Anna Falcon, anna@falcon.example", "anna@falcon.example", Destination, Permit},
		"no address, but notes of any sort": {"Send the figures to Anna Falcon", "she likes herons", Content, Permit},
	} {
		create := &Profile{Level: 1, IDKind: "contact", Output: TrustedOutput, Args: map[string]Role{"name": Name, "email": c.role}}
		req, e := ParseRequest(c.request), &Evidence{}
		s := Situation{Held: []flow.Held{{Label: flow.Untrusted}}, Request: req, Evidence: e, Own: []string{"carol@corp.example"}, FreeLevel1: true}
		e.Add(Observe(list, req, Result{Operation: "book.list", CallID: "c1", Arguments: []byte(`{}`), Payloads: []json.RawMessage{json.RawMessage(`[{"id":"k-1","name":"Vendor","email":"vendor@two.example"},{"id":"k-2","name":"Two","email":"x@two.example"}]`)}}))
		args := encoded(map[string]any{"name": "Anna Falcon", "email": c.address})
		e.Add(GivenAway(GivenCall{Operation: "book.create", CallID: "c2", Profile: create, Arguments: args, Writes: true, Request: req}))
		e.Add(Observe(create, req, Result{Operation: "book.create", CallID: "c2", Arguments: args, Writes: true, Payloads: []json.RawMessage{json.RawMessage(`{"id":"k-9"}`)}}))
		if r := JudgeCall(flow.Operation{ID: "book.send", Sensitivity: flow.External}, send, []byte(`{"contact":"k-9","text":"the figures"}`), s); r.Verdict != c.want {
			t.Errorf("%s: %s, want %s: %s", name, r.Verdict, c.want, r.Reason)
		}
	}
}
