package provenance

import (
	"fmt"
	"testing"
)

const (
	vendorBefore = `[{"id":"k-7001","address":"vendor@two.example","nickname":"Vendor","account":"DE89370400440532013000"},{"id":"k-7002","address":"x@two.example","nickname":"Two","account":"DE02120300000000202051"}]`
	vendorAfter  = `[{"id":"k-7001","address":"vendor@two.example","nickname":"Anna Falcon","account":"DE89370400440532013000"},{"id":"k-7002","address":"x@two.example","nickname":"Two","account":"DE02120300000000202051"}]`
)

// A write may select the record that it names by any of its arguments. Unless its labels say that it makes a new record, or that it keeps nothing, the name
// counts for nothing, and neither does a name that the server chooses.
func TestWritesSelectByAnyArgument(t *testing.T) {
	list := &Profile{Output: TrustedOutput, Names: []string{"nickname"}, IDKind: "contact", Args: map[string]Role{}}
	pay := &Profile{Level: 2, Args: map[string]Role{"account": Destination, "amount": Amount}}
	const payment = `{"account":"DE89370400440532013000","amount":50}`
	play := func(set *Profile, op, args, result string) Ruling {
		s := newSession(t, "Pay 50 EUR to Anna Falcon")
		s.read("book.list", list, `{}`, vendorBefore)
		s.write(op, set, args, result)
		s.read("book.list", list, `{}`, vendorAfter)
		return s.judge(pay, payment)
	}
	for _, role := range roles {
		set := &Profile{Level: 1, IDKind: "contact", Args: map[string]Role{"which": role, "nickname": Name}}
		if v := play(set, "book.set", `{"which":"vendor@two.example","nickname":"Anna Falcon"}`, `"ok"`); v.Verdict != Ask {
			t.Errorf("selected by %s: %s", role, v.Reason)
		}
		if role == Flag || role == Currency {
			continue
		}
		// The server chooses the name: by the value alone the record is known.
		if v := play(&Profile{Level: 1, IDKind: "contact", Args: map[string]Role{"which": role}}, "book.fill", `{"which":"vendor@two.example"}`, `"ok"`); v.Verdict != Ask {
			t.Errorf("selected by %s, and the server chose the name: %s", role, v.Reason)
		}
	}
	for name, c := range map[string]struct {
		set  *Profile
		op   string
		args string
		ok   string
		want Verdict
	}{
		"nothing":                            {&Profile{Level: 1, IDKind: "contact", Args: map[string]Role{"which": Query}}, "book.set", `{}`, `"ok"`, Ask},
		"in another encoding":                {&Profile{Level: 1, IDKind: "contact", Args: map[string]Role{"which": Query}}, "book.fill", `{"which":"vendor%40two.example"}`, `"ok"`, Ask},
		"another argument than those labels": {&Profile{Level: 1, IDKind: "contact", Args: map[string]Role{"name": Name}}, "book.fill", `{"x":"#k-7001"}`, `"ok"`, Ask},
		"it gives back the record":           {&Profile{Level: 1, IDKind: "contact", TrustedFields: []string{"id"}, Args: map[string]Role{"to": Destination, "nickname": Name}}, "book.set", `{"to":"Vendor","nickname":"Anna Falcon"}`, `{"id":"k-7001"}`, Ask},
		"the same of another kind":           {&Profile{Level: 1, IDKind: "event", Args: map[string]Role{"which": Query}}, "book.fill", `{"which":"vendor@two.example"}`, `"ok"`, Permit},
		"another record":                     {&Profile{Level: 1, IDKind: "contact", Args: map[string]Role{"which": Query}}, "book.fill", `{"which":"y@two.example"}`, `"ok"`, Permit},
		"it keeps nothing":                   {&Profile{Level: 2, Forgets: true, Args: map[string]Role{"to": Destination, "text": Content}}, "book.send", `{"to":"y@two.example","text":"Anna Falcon"}`, `"ok"`, Permit},
		"it keeps nothing, but selects":      {&Profile{Level: 2, Forgets: true, IDKind: "contact", Args: map[string]Role{"which": Target}}, "book.fill", `{"which":"vendor@two.example"}`, `"ok"`, Ask},
	} {
		if v := play(c.set, c.op, c.args, c.ok); v.Verdict != c.want {
			t.Errorf("%s: %s, want %s: %s", name, v.Verdict, c.want, v.Reason)
		}
	}
}

// A write that selects by several ids may have them of several kinds.
func TestWritesSelectRecordsOfSeveralKinds(t *testing.T) {
	list := &Profile{TrustedFields: []string{"id", "owner"}, Names: []string{"title"}, IDKind: "folder", Args: map[string]Role{}}
	for name, c := range map[string]struct {
		args map[string]Role
		want Verdict
	}{
		"two":      {map[string]Role{"file": Selector, "folder": Selector}, Ask},
		"no label": {map[string]Role{"file": Selector}, Ask},
		"one":      {map[string]Role{"file": Selector, "folder": Content}, Permit}, // the operator says that it is text
	} {
		s := newSession(t, "Send the sheet to the owner of 'Lathe Falcon 4000'")
		s.write("files.move", &Profile{Level: 1, IDKind: "file", Args: c.args}, `{"file":"f-1000","folder":"d-7000"}`)
		s.read("files.folders", list, `{}`, `[{"id":"d-7000","title":"Lathe Falcon 4000","owner":"eve@evil.example"},{"id":"d-2","title":"Two","owner":"x@two.example"}]`)
		if v := s.judge(sendMail, `{"to":"eve@evil.example"}`).Verdict; v != c.want {
			t.Errorf("%s: %s, want %s", name, v, c.want)
		}
	}
}

// Ids that a server may take for one another are one.
func TestSelectedIDsCompareInAnySpelling(t *testing.T) {
	list := &Profile{TrustedFields: []string{"id", "owner"}, Names: []string{"title"}, IDKind: "folder", Args: map[string]Role{}}
	set := &Profile{Level: 1, IDKind: "folder", Args: map[string]Role{"id": Selector}}
	for _, c := range []struct {
		given, id string
		want      Verdict
	}{
		{`"77"`, `77`, Ask}, {`77`, `"77"`, Ask}, {`" 77 "`, `77`, Ask}, {`"#77"`, `77`, Ask}, {`"0077"`, `77`, Ask}, {`"+77"`, `77`, Ask}, {`77.0`, `77`, Ask}, {`7.7e1`, `77`, Ask},
		{`"0x4d"`, `77`, Ask}, {`"７７"`, `77`, Ask}, {`"٧٧"`, `77`, Ask}, {`"77/"`, `77`, Ask}, {`"77%20"`, `77`, Ask}, {`"folders/77"`, `77`, Ask}, {`"urn:folder:77"`, `77`, Ask}, {`"77\u200b"`, `77`, Ask},
		{`"folder=77"`, `77`, Ask}, {`"[77]"`, `77`, Ask}, {`77`, `"folders/77"`, Ask}, {`"` + inBase64("Folder:77") + `"`, `77`, Ask}, {`77`, `"` + inBase64("Folder:77") + `"`, Ask}, {`["x",77]`, `77`, Ask},
		{`"D-7A"`, `"d-7a"`, Ask}, {`"d7a"`, `"d-7a"`, Ask}, {`"d_7a"`, `"d-7a"`, Ask}, {`"x/d-7a"`, `"d-7a"`, Ask},
		{`"{6BA7B810-9dad-11d1-80b4-00c04fd430c8}"`, `"6ba7b810-9dad-11d1-80b4-00c04fd430c8"`, Ask}, {`"6ba7b8109dad11d180b400c04fd430c8"`, `"6ba7b810-9dad-11d1-80b4-00c04fd430c8"`, Ask},
		{`"urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8"`, `"6ba7b810-9dad-11d1-80b4-00c04fd430c8"`, Ask},
		{`78`, `77`, Permit}, {`"177"`, `77`, Permit}, {`"d-7b"`, `"d-7a"`, Permit}, {`770`, `77`, Permit},
	} {
		s := newSession(t, "Send the sheet to the owner of 'Lathe Falcon 4000'")
		s.write("files.fill", set, `{"id":`+c.given+`}`)
		s.read("files.folders", list, `{}`, fmt.Sprintf(`[{"id":%s,"title":"Lathe Falcon 4000","owner":"eve@evil.example"},{"id":"d-2","title":"Two","owner":"x@two.example"}]`, c.id))
		if v := s.judge(sendMail, `{"to":"eve@evil.example"}`).Verdict; v != c.want {
			t.Errorf("%s for %s: %s, want %s", c.given, c.id, v, c.want)
		}
	}
}
