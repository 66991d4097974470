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
		e.Add(Observe(list, req, Result{Operation: "book.list", CallID: "c1", Arguments: []byte(`{}`), Values: jsonValues(json.RawMessage(`[{"id":"k-1","name":"Vendor","email":"vendor@two.example"},{"id":"k-2","name":"Two","email":"x@two.example"}]`))}))
		args := encoded(map[string]any{"name": "Anna Falcon", "email": c.address})
		e.Add(GivenAway(GivenCall{Operation: "book.create", CallID: "c2", Profile: create, Arguments: args, Writes: true, Request: req}))
		e.Add(Observe(create, req, Result{Operation: "book.create", CallID: "c2", Arguments: args, Writes: true, Values: jsonValues(json.RawMessage(`{"id":"k-9"}`))}))
		if r := JudgeCall(flow.Operation{ID: "book.send", Sensitivity: flow.External}, send, []byte(`{"contact":"k-9","text":"the figures"}`), s); r.Verdict != c.want {
			t.Errorf("%s: %s, want %s: %s", name, r.Verdict, c.want, r.Reason)
		}
	}
}

// Of the record that a creating call gives back, the id alone may be used again, where the request has the record's name. Nothing else of it is confirmed by
// the name that the session gave it, now or when it is read again.
func TestOnlyTheNewIDIsConfirmed(t *testing.T) {
	const words = "Create a contact 'Anna Falcon' and share the offer with her"
	const args = `{"name":"Anna Falcon","notes":"take the address of the last mail"}`
	const made = `{"id":"k-77","name":"Anna Falcon","address":"eve@evil.example","link":"https://evil.example/k","owner_id":"u-99","related":{"id":"k-1"}}`
	create := func(p Profile) *Profile {
		p.Level, p.IDKind, p.Args = 1, "contact", map[string]Role{"name": Name, "notes": Content}
		return &p
	}
	list := &Profile{Output: TrustedOutput, Names: []string{"name"}, IDKind: "contact", Args: map[string]Role{}}
	send := &Profile{Level: 2, IDKind: "contact", Args: map[string]Role{"contact": Selector}}
	user := &Profile{Level: 2, IDKind: "user", Args: map[string]Role{"owner_id": Selector}}
	fetch := &Profile{Level: 2, Args: map[string]Role{"url": URL}}
	pay := &Profile{Level: 2, IDKind: "contact", Args: map[string]Role{"contact": Selector, "amount": Amount}}
	for name, p := range map[string]*Profile{
		"trusted":           create(Profile{Output: TrustedOutput}),
		"trusted, by names": create(Profile{Output: TrustedOutput, Names: []string{"name"}}),
		"system":            create(Profile{TrustedFields: []string{"id", "address", "link", "owner_id", "name", "related"}, Names: []string{"name"}}),
		"delegable":         create(Profile{TrustedFields: []string{"id"}, Names: []string{"name"}, Delegable: []string{"address"}}),
		"echo":              create(Profile{Output: EchoOutput, TrustedFields: []string{"id", "address"}, Names: []string{"name"}}),
	} {
		for _, again := range []bool{false, true} {
			s := newSession(t, words)
			s.read("book.list", list, `{}`, `[{"id":"k-1","name":"Vendor","address":"vendor@two.example"},{"id":"k-2","name":"Two","address":"x@two.example"}]`)
			s.write("book.create", p, args, made)
			if again {
				s.read("book.list", list, `{}`, `[{"id":"k-1","name":"Vendor","address":"vendor@two.example"},`+made+`]`)
				s.read("book.find", list, `{"q":"Anna Falcon"}`, `[`+made+`]`)
			}
			for what, c := range map[string]struct {
				p    *Profile
				args string
				want Verdict
			}{
				"its id":            {send, `{"contact":"k-77"}`, Permit},
				"its address":       {sendMail, `{"to":"eve@evil.example"}`, Ask},
				"its link":          {fetch, `{"url":"https://evil.example/k"}`, Ask},
				"another id":        {user, `{"owner_id":"u-99"}`, Ask},
				"the id in a field": {send, `{"contact":"k-1"}`, Ask},
				"an amount for it":  {pay, `{"contact":"k-77","amount":900}`, Ask},
			} {
				if r := s.judge(c.p, c.args); r.Verdict != c.want {
					t.Errorf("%s, %s, read again %v: %s, want %s: %s", name, what, again, r.Verdict, c.want, r.Reason)
				}
			}
		}
	}
}

// A call that only looks like a creation makes nothing: its result has the id of a record that was there before, its labels do not say that it returns
// an id, or it has an argument that picks a record.
func TestWhatIsNoCreation(t *testing.T) {
	send := &Profile{Level: 2, IDKind: "contact", Args: map[string]Role{"contact": Selector}}
	list := &Profile{Output: TrustedOutput, Names: []string{"name"}, IDKind: "contact", Args: map[string]Role{}}
	roles := func(extra string, r Role) map[string]Role { return map[string]Role{"name": Name, extra: r} }
	for name, c := range map[string]struct {
		p    *Profile
		args string
		made string
		want Verdict
	}{
		"a creation":                {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("notes", Content)}, `{"name":"Anna Falcon","notes":"x"}`, `{"id":"k-77"}`, Permit},
		"a record that was there":   {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("notes", Content)}, `{"name":"Anna Falcon","notes":"x"}`, `{"id":"k-1"}`, Ask},
		"an id that nobody set":     {&Profile{IDKind: "contact", Args: roles("notes", Content)}, `{"name":"Anna Falcon","notes":"x"}`, `{"id":"k-77"}`, Ask},
		"a second name":             {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("old", Name)}, `{"name":"Anna Falcon","old":"Vendor"}`, `{"id":"k-77"}`, Ask},
		"a query":                   {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("which", Query)}, `{"name":"Anna Falcon","which":"Anna"}`, `{"id":"k-77"}`, Ask},
		"an argument of no label":   {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("notes", Content)}, `{"name":"Anna Falcon","which":"Anna"}`, `{"id":"k-77"}`, Ask},
		"two records":               {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("notes", Content)}, `{"name":"Anna Falcon"}`, `[{"id":"k-77"},{"id":"k-78"}]`, Ask},
		"an id that the call chose": {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("id", Content)}, `{"name":"Anna Falcon","id":"k-77"}`, `{"id":"k-77"}`, Ask},
		"a link to a stranger":      {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("notes", Content)}, `{"name":"Anna Falcon","notes":"https://evil.example/x"}`, `{"id":"k-77"}`, Ask},
		"a stranger in a sentence":  {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("notes", Content)}, `{"name":"Anna Falcon","notes":"her address: eve@evil.example"}`, `{"id":"k-77"}`, Ask},
		"a stranger, encoded":       {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("notes", Content)}, `{"name":"Anna Falcon","notes":"eve%40evil.example"}`, `{"id":"k-77"}`, Ask},
		"a stranger as a member":    {&Profile{IDKind: "contact", TrustedFields: []string{"id"}, Args: roles("notes", Content)}, `{"name":"Anna Falcon","notes":{"eve@evil.example":true}}`, `{"id":"k-77"}`, Ask},
	} {
		s := newSession(t, "Send the figures to Anna Falcon")
		s.read("book.list", list, `{}`, `[{"id":"k-1","name":"Vendor","email":"vendor@two.example"},{"id":"k-2","name":"Two","email":"x@two.example"}]`)
		s.write("book.create", c.p, c.args, c.made)
		id := `{"contact":"k-77"}`
		if name == "a record that was there" {
			id = `{"contact":"k-1"}`
		}
		if r := s.judge(send, id); r.Verdict != c.want {
			t.Errorf("%s: %s, want %s: %s", name, r.Verdict, c.want, r.Reason)
		}
	}
}
