package provenance

import (
	"fmt"
	"strings"
	"testing"

	"sallyport.example/flow"
)

// Where a call leaves the choice of its destination to the tool, nobody knows where it goes.
func TestAMissingDestinationIsAskedAboutOrRefused(t *testing.T) {
	private := []flow.Held{{Label: "internal", Operation: "mail.list", CallID: "call_0"}}
	both := append(private[:1:1], fromOutside...)
	const words = "Share file 13 with ann@books.example, and note 'Falcon Lunch'"
	share := func(change func(*Profile)) *Profile {
		p := &Profile{Level: 2, IDKind: "file", Args: map[string]Role{"id": Selector, "email": Destination, "cc": Destination, "link": URL, "to.address": Destination, "text": Content, "title": Name}}
		if change != nil {
			change(p)
		}
		return p
	}
	strict := share(nil)
	byArg := share(func(p *Profile) { p.Boundary = BoundaryByArg })
	kept := share(func(p *Profile) { p.MayOmit = []string{"email", "cc", "link", "to.address"} })
	some := share(func(p *Profile) { p.MayOmit = []string{"email"} })
	none := share(func(p *Profile) {
		p.Args = map[string]Role{"id": Selector, "text": Content}
	})
	for _, c := range []struct {
		p         *Profile
		args      string
		untrusted Verdict
		blocked   Verdict
	}{
		{strict, `{"id":13}`, Ask, Deny},
		{strict, `{"id":13,"email":null}`, Ask, Deny},
		{strict, `{"id":13,"email":""}`, Ask, Deny},
		{strict, `{"id":13,"email":" \t\n"}`, Ask, Deny},
		{strict, `{"id":13,"email":"\u200b\u3164"}`, Ask, Deny},
		{strict, `{"id":13,"email":[]}`, Ask, Deny},
		{strict, `{"id":13,"email":[null,"",[]]}`, Ask, Deny},
		{strict, `{"id":13,"email":{}}`, Ask, Deny},
		{strict, `{"id":13,"email":{"":null}}`, Ask, Deny},
		{strict, `{"id":13,"to":{}}`, Ask, Deny},
		{strict, `{"id":13,"to":{"address":null}}`, Ask, Deny},
		{strict, `{"id":13,"email":{"ann@books.example":null}}`, Ask, Deny},
		{strict, `{"id":13,"email":{"ann@books.example":{"a":[""]}}}`, Ask, Deny},
		{strict, `{"id":13,"Email":"ann@books.example"}`, Ask, Deny}, // another argument
		{strict, `{"id":13,"title":"Falcon Lunch"}`, Ask, Deny},
		{strict, `{"title":"Falcon Lunch"}`, Ask, Deny},
		{strict, `{}`, Ask, Deny},
		{strict, `{"id":13,"email":false}`, Ask, Ask},
		{strict, `{"id":13,"email":0}`, Ask, Ask},
		{strict, `{"id":13,"email":"eve@x.example"}`, Ask, Ask},
		// Beside a destination with a value, empty ones are nothing.
		{strict, `{"id":13,"email":"ann@books.example","cc":"","link":null,"to":{"address":[]}}`, Permit, Permit},
		{strict, `{"id":13,"to":{"address":"ann@books.example"}}`, Permit, Permit},
		// What leaves only where a destination is given.
		{byArg, `{"id":13}`, Permit, Permit},
		{byArg, `{"id":13,"email":""}`, Permit, Permit},
		{byArg, `{"id":14}`, Ask, Permit}, // it stays with the person, but it is not the file that they named
		{byArg, `{"id":13,"email":"eve@x.example"}`, Ask, Ask},
		{byArg, `{"id":13,"bcc":"ann@books.example"}`, Permit, Deny}, // an argument that no label mentions may be a destination
		// What keeps the stored destination.
		{kept, `{"id":13}`, Permit, Permit},
		{kept, `{"id":13,"text":"hello"}`, Permit, Permit},
		{kept, `{"id":14}`, Ask, Ask},
		{kept, `{"id":13,"email":null}`, Ask, Deny}, // this may clear what is stored
		{kept, `{"id":13,"email":""}`, Ask, Deny},
		{kept, `{"id":13,"email":[]}`, Ask, Deny},
		{kept, `{"id":13,"to":null}`, Ask, Deny},
		{kept, `{"id":13,"to":[]}`, Ask, Deny},
		{kept, `{"id":13,"to":{}}`, Ask, Deny},
		{kept, `{"id":13,"to":{"address":null}}`, Ask, Deny},
		{kept, `{"id":13,"to":{"name":""}}`, Ask, Deny},
		{kept, `{"id":13,"to":{"name":{"a":[null,{}]}}}`, Ask, Deny},
		{kept, `{"id":13,"to":[{}]}`, Ask, Deny},
		{kept, `{"id":13,"to":[{"name":"Falcon"}]}`, Ask, Deny}, // another list stands in its place
		{kept, `{"id":13,"to":"\u200b"}`, Ask, Deny},
		{kept, `{"id":13,"to":0}`, Ask, Deny},
		{kept, `{"id":13,"to":{"name":"Falcon"}}`, Permit, Permit},
		{kept, `{"id":13,"To":{}}`, Ask, Deny}, // a tool may take it for to
		{kept, `{"id":13,"e_mail":""}`, Ask, Deny},
		{some, `{"id":13}`, Ask, Deny}, // the others may have any default
		// An operation without a destination has none to miss.
		{none, `{"id":13}`, Permit, Permit},
	} {
		for held, want := range map[string]Verdict{"untrusted": c.untrusted, "internal": c.blocked, "both": stricter(c.untrusted, c.blocked)} {
			s := Situation{Held: map[string][]flow.Held{"untrusted": fromOutside, "internal": private, "both": both}[held], Request: ParseRequest(words)}
			r := JudgeCall(leak, c.p, []byte(c.args), s)
			if r.Verdict != want {
				t.Errorf("%s, may omit %v, %s in a session that holds %s: %s, %s; want %s", c.p.Boundary, c.p.MayOmit, c.args, held, r.Verdict, r.Reason, want)
			}
			s.Held = nil
			if r := JudgeCall(leak, c.p, []byte(c.args), s); r.Verdict != Permit {
				t.Errorf("%s in a clean session: %s", c.args, r.Verdict)
			}
		}
	}
	r := JudgeCall(post, strict, []byte(`{"id":13}`), Situation{Held: fromOutside, Request: ParseRequest(words)})
	wants(t, r, Ask, "email has no value, so the tool chooses where the call goes")
	if last := r.Evidence[len(r.Evidence)-1]; last.Argument != "to.address" || last.Role != Destination || last.Value != "" || last.Confirmed {
		t.Errorf("%+v", last)
	}
}

func stricter(a, b Verdict) Verdict {
	if a == Deny || b == Permit {
		return a
	}
	return b
}

// A yes to a call without a destination is one to that call alone: the next one is asked about, too.
func TestAYesConfirmsNoMissingDestination(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"id": Selector, "email": Destination}}
	args := `{"id":13}`
	r := judged(p, "Share id 13", args)
	wants(t, r, Ask, "email has no value")
	wants(t, judged(p, "Share id 13", args, Approve(post.ID, "c1", p, []byte(args), r.Evidence, nil)), Ask, "email has no value")
}

// A read that carries nothing out goes on as it did; one that asks an address needs the address.
func TestReadsWithoutADestination(t *testing.T) {
	list := &Profile{Args: map[string]Role{"channel": Destination}}
	wants(t, judged(list, "", `{}`), Permit, "")
	fetch := &Profile{EgressURL: true, Args: map[string]Role{"link": URL}}
	wants(t, judged(fetch, "", `{}`), Ask, "link has no value")
	if r := JudgeCall(leak, list, []byte(`{}`), Situation{Held: []flow.Held{{Label: "internal"}}}); r.Verdict != Deny {
		t.Error(r.Verdict)
	}
}

func TestMayOmitNamesDestinations(t *testing.T) {
	for arg, ok := range map[string]bool{"to": true, "link": true, "id": false, "text": false, "other": false, "": false} {
		p := &Profile{Args: map[string]Role{"to": Destination, "link": URL, "id": Selector, "text": Content}, MayOmit: []string{arg}}
		if problems := p.Check(); (len(problems) == 0) != ok || !ok && !strings.Contains(fmt.Sprint(problems), "may_omit") {
			t.Errorf("%q: %v", arg, problems)
		}
	}
	with, without := Profile{MayOmit: []string{"to"}}, Profile{}
	if with.Digest() == without.Digest() {
		t.Error("the digest leaves may_omit out")
	}
}
