package provenance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// session is an untrusted session of one person, played step by step as the gateway does.
type session struct {
	t       *testing.T
	request *Request
	own     []string
	e       Evidence
	calls   int
}

func newSession(t *testing.T, request string) *session {
	return &session{t: t, request: ParseRequest(request)}
}

// begin is a call that was permitted: what it is given is given away before there is a result. The returned function is what comes back.
func (s *session) begin(op string, p *Profile, args string, writes bool) (end func(payloads ...string)) {
	s.calls++
	id := fmt.Sprint("call_", s.calls)
	s.e.Add(GivenAway(GivenCall{Operation: op, CallID: id, Profile: p, Arguments: []byte(args), Writes: writes, Request: s.request, Own: s.own}))
	return func(payloads ...string) {
		r := Result{Operation: op, CallID: id, Arguments: []byte(args), Writes: writes}
		for _, one := range payloads {
			r.Values = append(r.Values, JSONValue([]byte(one)))
		}
		s.e.Add(Observe(p, s.request, r))
	}
}

func (s *session) read(op string, p *Profile, args string, payloads ...string) {
	s.begin(op, p, args, false)(payloads...)
}

func (s *session) write(op string, p *Profile, args string, payloads ...string) {
	s.begin(op, p, args, true)(payloads...)
}

func (s *session) judge(p *Profile, args string) Ruling {
	return JudgeCall(post, p, []byte(args), Situation{Held: fromOutside, Request: s.request, Own: s.own, Evidence: &s.e})
}

func (s *session) wants(p *Profile, args string, want Verdict) {
	s.t.Helper()
	if r := s.judge(p, args); r.Verdict != want {
		s.t.Errorf("%s: %s, %s; want %s", args, r.Verdict, r.Reason, want)
	}
}

// The operations of these tests.
var (
	contacts = &Profile{Output: TrustedOutput}                                             // nobody told which fields are names
	book     = &Profile{Output: TrustedOutput, Names: []string{"name"}, IDKind: "contact"} // somebody did
	office   = &Profile{TrustedFields: []string{"id"}, Names: []string{"subject"}, Delegable: []string{"sender"}, IDKind: "mail", Args: map[string]Role{"q": Query}}
	sendMail = &Profile{Level: 2, Boundary: BoundaryExternal, Args: map[string]Role{"to": Destination, "body": Content}}
	tellTeam = &Profile{Level: 2, Boundary: BoundaryInternal, Args: map[string]Role{"to": Destination, "body": Content}} // needs no binding
	rename   = &Profile{Level: 1, IDKind: "mail", Args: map[string]Role{"id": Selector, "subject": Content}}
	remove   = &Profile{Level: 2, IDKind: "mail", Args: map[string]Role{"id": Selector}}
)

func inBase64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// What a call was given is not confirmed by a result that repeats it, whatever the repetition looks like: another array element, a member's name, an
// encoding, two arguments in one, a sentence around it. The same result confirms the value of a session that did not give it.
func TestGivenValuesConfirmNothing(t *testing.T) {
	const eve = `"outsider@evil.example"`
	many := make([]string, 70)
	for i := range many {
		many[i] = fmt.Sprintf(`"x%d"`, i)
	}
	for name, c := range map[string]struct{ given, shown, value string }{
		"beside the right record":      {`{"q":"outsider@evil.example, Falcon"}`, `{"query":"outsider@evil.example, Falcon","name":"Falcon"}`, eve},
		"whole":                        {`{"q":"outsider@evil.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"in another letter case":       {`{"q":"Outsider@EVIL.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"the 65th element":             {`{"q":[` + strings.Join(many, ",") + `,"outsider@evil.example"]}`, `{"found":["outsider@evil.example"]}`, eve},
		"a member's name":              {`{"q":{"outsider@evil.example":true}}`, `{"found":["outsider@evil.example"]}`, eve},
		"the name of an argument":      {`{"outsider@evil.example":"x"}`, `{"found":["outsider@evil.example"]}`, eve},
		"an address with a name":       {`{"q":"Eve <outsider@evil.example>"}`, `{"found":["outsider@evil.example"]}`, eve},
		"shown with a name":            {`{"q":"outsider@evil.example"}`, `{"found":["Eve <outsider@evil.example>"]}`, `"Eve <outsider@evil.example>"`},
		"percent":                      {`{"q":"outsider%40evil.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"percent twice":                {`{"q":"outsider%2540evil%252Eexample"}`, `{"query":"outsider@evil.example"}`, eve},
		"an entity":                    {`{"q":"outsider&#64;evil&period;example"}`, `{"query":"outsider@evil.example"}`, eve},
		"an escape":                    {`{"q":"outsider\\u0040evil\\x2eexample"}`, `{"query":"outsider@evil.example"}`, eve},
		"an escape of two halves":      {`{"q":"\\ud835\\udc28utsider@evil.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"JSON in a text":               {`{"q":"{\"to\":\"outsider\\u0040evil.example\"}"}`, `{"query":"outsider@evil.example"}`, eve},
		"mailto":                       {`{"q":"mailto:outsider@evil.example?subject=x"}`, `{"query":"outsider@evil.example"}`, eve},
		"a data address":               {`{"q":"data:text/plain;base64,` + inBase64("outsider@evil.example") + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"an octal escape":              {`{"q":"outsider\\100evil.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"wide letters":                 {`{"q":"ｏｕｔｓｉｄｅｒ＠ｅｖｉｌ．ｅｘａｍｐｌｅ"}`, `{"query":"outsider@evil.example"}`, eve},
		"mathematical letters":         {`{"q":"𝐨𝐮𝐭𝐬𝐢𝐝𝐞𝐫@𝐞𝐯𝐢𝐥.𝐞𝐱𝐚𝐦𝐩𝐥𝐞"}`, `{"query":"outsider@evil.example"}`, eve},
		"an invisible character":       {`{"q":"out\u200bsider@evil.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"base64":                       {`{"q":"` + inBase64("outsider@evil.example") + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"base64 without padding":       {`{"q":"` + base64.RawURLEncoding.EncodeToString([]byte("to outsider@evil.example??>")) + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"base64 in lines":              {`{"q":"` + inBase64("outsider@evil.example")[:12] + `\n` + inBase64("outsider@evil.example")[12:] + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"base64 at the end of a path":  {`{"q":"/x/` + inBase64("outsider@evil.example") + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"base64 of percent codes":      {`{"q":"` + inBase64("outsider%40evil.example") + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"two arguments":                {`{"user":"outsider","host":"evil.example"}`, `{"found":"outsider@evil.example"}`, eve},
		"parts of words":               {`{"a":"outs","b":"ider@ev","c":"il.example"}`, `{"found":"outsider@evil.example"}`, eve},
		"quoted-printable":             {`{"q":"outsider=40evil=2Eexample"}`, `{"query":"outsider@evil.example"}`, eve},
		"tags":                         {`{"q":"outsider<b></b>@<i>evil</i>.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"quoted-printable, small":      {`{"q":"=6f=75=74sider=40evil=2eexample"}`, `{"query":"outsider@evil.example"}`, eve},
		"a soft line break":            {`{"q":"outs=\r\nider=40ev=\nil.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"codes of old scripts":         {`{"q":"out%u0073ider%u0040evil%u002eexample"}`, `{"query":"outsider@evil.example"}`, eve},
		"base64 with other signs":      {`{"q":"` + strings.Join(strings.SplitAfter(inBase64("outsider@evil.example"), "l"), ".!") + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"base64 with a zero byte":      {`{"q":"` + inBase64("outsider@evil.example\x00") + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"base64 with a damaged byte":   {`{"q":"` + inBase64("out\xff\xfesider@evil.example\x80") + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"base64 of two bytes each":     {`{"q":"` + inBase64("o\x00u\x00t\x00s\x00i\x00d\x00e\x00r\x00@\x00e\x00v\x00i\x00l\x00.\x00e\x00x\x00a\x00m\x00p\x00l\x00e\x00") + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"base64 of pieces with spaces": {`{"q":["` + inBase64("outsider@evil") + `","` + inBase64(" .e") + `","` + inBase64("xample ") + `"]}`, `{"query":"outsider@evil.example"}`, eve},
		"base64 with a mark in front":  {`{"q":"` + inBase64("\ufeffoutsider@evil.example") + `"}`, `{"query":"outsider@evil.example"}`, eve},
		"hexadecimal":                  {`{"q":"6f75747369646572406576696c2e6578616d706c65"}`, `{"query":"outsider@evil.example"}`, eve},
		"hexadecimal in a text":        {`{"q":"x 0x6F75747369646572406576696C2E6578616D706C65 y"}`, `{"query":"outsider@evil.example"}`, eve},
		"tags inside words":            {`{"q":"out<b>sid</b>er@ev<i class=x>il.exa</i>mple"}`, `{"query":"outsider@evil.example"}`, eve},
		"comments inside words":        {`{"q":"out<!-- 1 -->sider@ev<!-- > -->il.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"brackets inside words":        {`{"q":"out(x)sider@ev[b]il{y}.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"brackets in brackets":         {`{"q":"out((x)(y))sider@ev[[b]]il.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"tags as entities":             {`{"q":"out&lt;b&gt;sider@ev&lt;i&gt;il.example"}`, `{"query":"outsider@evil.example"}`, eve},
		"a host with a point":          {`{"q":"evil.example."}`, `{"found":"info@evil.example"}`, `"info@evil.example"`},
		"a host with a port":           {`{"q":"evil.example:8443"}`, `{"found":"https://evil.example/pay"}`, `"https://evil.example/pay"`},
		"a host shown with a port":     {`{"q":"evil.example"}`, `{"found":"https://evil.example:8443/pay"}`, `"https://evil.example:8443/pay"`},
		"a host shown with a point":    {`{"q":"https://evil.example/a"}`, `{"found":"https://evil.example./pay"}`, `"https://evil.example./pay"`},
		"a host in punycode":           {`{"q":"https://xn--bcher-kva.example/a"}`, `{"found":"https://bücher.example/b"}`, `"https://bücher.example/b"`},
		"a host shown in punycode":     {`{"q":"https://BÜCHER.example/a"}`, `{"found":"https://xn--bcher-kva.example/b"}`, `"https://xn--bcher-kva.example/b"`},
		"a host of a user":             {`{"q":"https://u:p@evil.example/a"}`, `{"found":"https://evil.example/pay"}`, `"https://evil.example/pay"`},
		"a host with backslashes":      {`{"q":"https:\\\\evil.example\\a"}`, `{"found":"https://evil.example/pay"}`, `"https://evil.example/pay"`},
		"a host without slashes":       {`{"q":"https:evil.example/a"}`, `{"found":"https://evil.example/pay"}`, `"https://evil.example/pay"`},
		"a host in a filter":           {`{"q":"from:*@evil.example"}`, `{"found":"info@evil.example"}`, `"info@evil.example"`},
		"a host in a pattern":          {`{"q":".*@evil\\.example$"}`, `{"found":"info@evil.example"}`, `"info@evil.example"`},
		"a host behind a sign":         {`{"q":"domain=evil.example"}`, `{"found":"info@evil.example"}`, `"info@evil.example"`},
		"a number for a host":          {`{"q":"http://3232235777/a"}`, `{"found":"http://192.168.1.1/b"}`, `"http://192.168.1.1/b"`},
		"a host in octal":              {`{"q":"http://0300.0250.1.1/a"}`, `{"found":"http://192.168.1.1/b"}`, `"http://192.168.1.1/b"`},
		"a host in hexadecimal":        {`{"q":"http://0xc0.0xa8.0x101/a"}`, `{"found":"http://192.168.1.1/b"}`, `"http://192.168.1.1/b"`},
		"IPv4 in IPv6":                 {`{"q":"http://192.168.1.1/a"}`, `{"found":"http://[::ffff:c0a8:101]/b"}`, `"http://[::ffff:c0a8:101]/b"`},
		"IPv6 in full":                 {`{"q":"http://[2001:db8:0:0:0:0:0:1]/a"}`, `{"found":"http://[2001:db8::1]/b"}`, `"http://[2001:db8::1]/b"`},
		"a number inside a word":       {`{"q":"chat-884422"}`, `{"found":884422}`, `884422`},
		"a number with zeros":          {`{"q":"00884422"}`, `{"found":884422}`, `884422`},
		"a number with underscores":    {`{"q":"884_422"}`, `{"found":884422}`, `884422`},
		"a number in other digits":     {`{"q":"٨٨٤٤٢٢"}`, `{"found":884422}`, `884422`},
		"a host":                       {`{"domain":"evil.example"}`, `{"found":"info@evil.example"}`, `"info@evil.example"`},
		"a host of a link":             {`{"site":"https://evil.example/x"}`, `{"found":"info@mail.evil.example"}`, `"info@mail.evil.example"`},
		"a host with www":              {`{"domain":"evil.example"}`, `{"found":"https://www.evil.example/pay"}`, `"https://www.evil.example/pay"`},
		"letters":                      {`{"a":["o","u","t","s","i","d","e","r"],"b":"evil.example"}`, `{"found":"outsider@evil.example"}`, eve},
		"spelled out":                  {`{"q":"outsider (at) evil (dot) example"}`, `{"found":"outsider@evil.example"}`, eve},
		"not found":                    {`{"q":"outsider@evil.example"}`, `"No contact for: outsider@evil.example"`, eve},
		"cut off":                      {`{"q":"outsider@evil.examples-and-more"}`, `{"found":"outsider@evil.example"}`, eve},
		"a link":                       {`{"q":"see evil.example/pay"}`, `{"found":"https://evil.example/pay"}`, `"https://evil.example/pay"`},
		"a link with codes":            {`{"q":"https:%2F%2Fevil.example%2Fpay"}`, `{"found":"https://evil.example/pay"}`, `"https://evil.example/pay"`},
		"an account":                   {`{"q":"DE89 3704 0044 0532 0130 00"}`, `{"found":"DE89370400440532013000"}`, `"DE89370400440532013000"`},
		"an account in a sentence":     {`{"q":"pay DE89 3704 0044 0532 0130 00 now"}`, `{"found":"DE89370400440532013000"}`, `"DE89370400440532013000"`},
		"an account in groups":         {`{"q":["DE89","3704","0044","0532","0130","00"]}`, `{"found":"DE89370400440532013000"}`, `"DE89370400440532013000"`},
		"a telephone number":           {`{"q":"555-010-7788"}`, `{"found":5550107788}`, `"5550107788"`},
		"digits as a number":           {`{"q":"5550 1077 88"}`, `{"found":5550107788}`, `5550107788`},
		"a long text":                  {`{"q":"Rook","r":"Holdings"}`, `{"found":"Holdings Rook"}`, `"Holdings Rook"`},
		"a short text":                 {`{"q":"the Rook, please"}`, `{"found":"Rook"}`, `"Rook"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, "Tell the team about the falcon")
			s.read("crm.find", contacts, `{"q":"falcon"}`, c.shown)
			s.wants(tellTeam, `{"to":`+c.value+`}`, Permit)
			s = newSession(t, "Tell the team about the falcon")
			s.read("crm.find", contacts, c.given, c.shown)
			s.wants(tellTeam, `{"to":`+c.value+`}`, Ask)
			s = newSession(t, "Tell the team about the falcon")
			s.read("crm.other", nil, c.given) // another call was given it
			s.read("crm.find", contacts, `{"q":"falcon"}`, c.shown)
			s.wants(tellTeam, `{"to":`+c.value+`}`, Ask)
			s = newSession(t, "Tell the team about the falcon")
			s.read("crm.find", contacts, `{"q":"falcon"}`, c.shown) // seen before
			s.read("crm.find", contacts, c.given, c.shown)
			s.wants(tellTeam, `{"to":`+c.value+`}`, Permit)
		})
	}
}

// A result may come back in another encoding than the argument had.
func TestGivenValuesComeBackEncoded(t *testing.T) {
	for _, value := range []string{"outsider%40evil.example", "outsider&#64;evil.example", inBase64("outsider@evil.example"), `outsider\u0040evil.example`} {
		s := newSession(t, "Tell the team about the falcon")
		s.read("crm.find", contacts, `{"q":"outsider@evil.example"}`, string(encoded(map[string]string{"found": value})))
		s.wants(tellTeam, string(encoded(map[string]string{"to": value})), Ask)
	}
}

// Numbers, dates, amounts and ids are given as a whole alone, and an id that the system set only if an argument was that id.
func TestGivenNumbersCompareWhole(t *testing.T) {
	amount := &Profile{Level: 1, Args: map[string]Role{"amount": Amount}}
	when := &Profile{Level: 1, Args: map[string]Role{"when": Time}}
	for name, c := range map[string]struct {
		given, shown string
		p            *Profile
		args         string
		want         Verdict
	}{
		"an amount":                   {`{"q":4000}`, `{"total":4000}`, amount, `{"amount":4000}`, Ask},
		"an amount, other spelling":   {`{"q":"4000.00"}`, `{"total":4000}`, amount, `{"amount":"4e3"}`, Ask},
		"an amount in a text":         {`{"q":"lathe 4000"}`, `{"total":4000}`, amount, `{"amount":4000}`, Ask},
		"an amount with a currency":   {`{"q":"$4,000"}`, `{"total":4000}`, amount, `{"amount":4000}`, Ask},
		"an amount in words":          {`{"q":"the price is 4.000,00 EUR"}`, `{"total":4000}`, amount, `{"amount":4000}`, Ask},
		"an amount with a space":      {`{"q":"4 000"}`, `{"total":4000}`, amount, `{"amount":4000}`, Ask},
		"an amount inside another":    {`{"q":"14000"}`, `{"total":4000}`, amount, `{"amount":4000}`, Permit},
		"an amount in pieces":         {`{"q":["40","00"]}`, `{"total":4000}`, amount, `{"amount":4000}`, Permit},
		"a date":                      {`{"q":"2024-05-15 10:00"}`, `{"start":"2024-05-15 10:00"}`, when, `{"when":"2024-05-15 10:00"}`, Ask},
		"a date of which the day was": {`{"q":"2024-05-15"}`, `{"start":"2024-05-15 10:00"}`, when, `{"when":"2024-05-15 10:00"}`, Permit},
		"an id":                       {`{"q":"13"}`, `{"id":13}`, remove, `{"id":13}`, Ask},
		"an id as a number":           {`{"q":13}`, `{"id":"13"}`, remove, `{"id":"13"}`, Ask},
		"an id in a text":             {`{"q":"offer 13"}`, `{"id":13}`, remove, `{"id":13}`, Permit},
		"an id inside another":        {`{"q":"1313"}`, `{"id":13}`, remove, `{"id":13}`, Permit},
		"an id in pieces":             {`{"q":["m","13"]}`, `{"id":"m-13"}`, remove, `{"id":"m-13"}`, Permit},
		"an id with codes":            {`{"q":"m%2D13"}`, `{"id":"m-13"}`, remove, `{"id":"m-13"}`, Ask},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, "Do what 'Blue Heron' says")
			trusted := &Profile{Output: TrustedOutput, IDKind: "mail", Names: []string{"title"}}
			s.read("mail.find", trusted, c.given, `{"title":"Blue Heron",`+c.shown[1:])
			s.wants(c.p, c.args, c.want)
		})
	}
}

// An argument is given away when the call begins, so what another call brings afterwards is no evidence, whichever ends first.
func TestGivenWhileCallsRunAtOnce(t *testing.T) {
	s := newSession(t, "Tell the team")
	end := s.begin("notes.recent", contacts, `{}`, false)
	s.begin("notes.search", contacts, `{"q":"outsider@evil.example"}`, false) // has no result yet
	end(`["outsider@evil.example"]`)
	s.wants(tellTeam, `{"to":"outsider@evil.example"}`, Ask)
}

// The look for a person by name is everyday work: neither the name, nor the addresses that the person knows or that were found before, are pieces of the
// address that it finds.
func TestFindingAnAddressByName(t *testing.T) {
	s := newSession(t, "Write to anna@corp.example, then tell Jane Falcon and Bob Stone.")
	s.own = []string{"me@corp.example"}
	s.write("mail.send", sendMail, `{"to":"anna@corp.example","body":"I tell Jane Falcon and Bob Stone. Cc me@corp.example"}`)
	for _, who := range [][2]string{{"Jane Falcon", "jane.falcon@corp.example"}, {"Bob Stone", "bob.stone@corp.example"}} {
		s.read("crm.find", book, `{"q":"`+who[0]+`"}`, `[{"name":"`+who[0]+`","email":"`+who[1]+`"}]`)
		s.wants(sendMail, `{"to":"`+who[1]+`","body":"Hello"}`, Permit)
		s.write("mail.send", sendMail, `{"to":"`+who[1]+`","body":"Hello"}`)
	}
	// The host of the person's colleagues may be looked for, another host may not.
	s.read("crm.find", book, `{"at":"corp.example"}`, `[{"name":"Jane Falcon","email":"jane.falcon@corp.example"},{"name":"Bob Stone","email":"robert@corp.example"}]`)
	s.wants(sendMail, `{"to":"robert@corp.example","body":"Hello"}`, Permit)
	// An address of which the session gave both parts is one in pieces.
	s.read("crm.find", book, `{"q":"eve","at":"corp.example"}`, `[{"name":"Bob Stone","email":"eve@corp.example"}]`)
	s.wants(sendMail, `{"to":"eve@corp.example","body":"Hello"}`, Ask)
}

// What is kept is bounded. Beyond the bound nothing new confirms, and what came before still does.
func TestGivenIsBounded(t *testing.T) {
	s := newSession(t, "Tell the team")
	s.read("crm.find", contacts, `{}`, `["before@corp.example"]`)
	for i := range 9 {
		s.read("crm.find", contacts, fmt.Sprintf(`{"q":"%d %s"}`, i, strings.Repeat("x", maxGivenAway/8)))
		s.read("crm.find", contacts, `{}`, fmt.Sprintf(`["at%d@corp.example"]`, i))
	}
	s.wants(tellTeam, `{"to":"before@corp.example"}`, Permit)
	s.wants(tellTeam, `{"to":"at5@corp.example"}`, Permit)
	s.wants(tellTeam, `{"to":"at8@corp.example"}`, Ask)
	if s.e.given.size > maxGivenAway*2 {
		t.Errorf("%d bytes are kept", s.e.given.size)
	}
	// The same text again takes no more room.
	s = newSession(t, "Tell the team")
	for range 50 {
		s.read("crm.find", contacts, `{"q":"`+strings.Repeat("x", maxGivenAway/8)+`"}`)
	}
	s.read("crm.find", contacts, `{}`, `["late@corp.example"]`)
	s.wants(tellTeam, `{"to":"late@corp.example"}`, Permit)
	// Arguments that can't be read may have been anything.
	s.begin("crm.find", contacts, `{`, false)
	s.read("crm.find", contacts, `{}`, `["later@corp.example"]`)
	s.wants(tellTeam, `{"to":"later@corp.example"}`, Ask)
}

// Of what an earlier version kept, the values are not there as they are compared now: nothing that comes after it confirms.
func TestGivenByAnEarlierVersion(t *testing.T) {
	s := newSession(t, "Tell the team")
	s.read("crm.find", contacts, `{}`, `["before@corp.example"]`)
	var old Observation
	if err := json.Unmarshal([]byte(`{"operation":"a.b","call_id":"c","gave":{"text":"outsiderevilexample\n"}}`), &old); err != nil {
		t.Fatal(err)
	}
	s.e.Add(old)
	s.read("crm.find", contacts, `{}`, `["after@corp.example"]`)
	s.wants(tellTeam, `{"to":"before@corp.example"}`, Permit)
	s.wants(tellTeam, `{"to":"after@corp.example"}`, Ask)
}

// Work on hostile arguments and values is bounded by their size.
func TestGivenWorkIsBounded(t *testing.T) {
	var g given
	for _, s := range []string{strings.Repeat("a", 250), strings.Repeat("%25", 20_000), strings.Repeat("&amp;", 10_000), strings.Repeat("\ufdfa", 10_000), inBase64(inBase64(inBase64(strings.Repeat("x ", 5000))))} {
		g.add(s, 0, nil)
	}
	for i := 1; i <= 64; i++ {
		g.add(strings.Repeat("a", i), 0, nil)
	}
	for range 50 {
		g.since(strings.Repeat("a", 511)+"b", pieceLetters)
	}
}

// A read's query takes no name away, and a result that only repeats it names nothing, unless the operator listed the field as a name.
func TestEchoNamesNothing(t *testing.T) {
	const words = "Write to the sender of 'Lathe 4000'"
	for name, c := range map[string]struct {
		p           *Profile
		args, shown string
		want        Verdict
	}{
		"the query beside a stranger": {contacts, `{"q":"Lathe 4000","sort":"new"}`, `{"query":"Lathe 4000","email":"eve@x.example"}`, Ask},
		"in another encoding":         {contacts, `{"q":"Lathe%204000","sort":"new"}`, `{"query":"Lathe 4000","email":"eve@x.example"}`, Ask},
		"of two arguments":            {contacts, `{"a":"Lathe","b":"4000"}`, `{"query":"Lathe 4000","email":"eve@x.example"}`, Ask},
		"in every record":             {contacts, `{"q":["Lathe 4000","Mill 7"]}`, `[{"query":"Lathe 4000","email":"eve@x.example"},{"query":"Mill 7","email":"ann@books.example"}]`, Ask},
		"a member's name":             {contacts, `{"q":{"Lathe 4000":1}}`, `{"query":"Lathe 4000","email":"eve@x.example"}`, Ask},
		"a file without its ending":   {contacts, `{"q":"Lathe 4000.pdf","sort":"new"}`, `{"file":"Lathe 4000.pdf","email":"eve@x.example"}`, Ask},
		"what was found":              {contacts, `{"q":"Lathe 4000","sort":"new"}`, `[{"name":"Lathe 4000","email":"eve@x.example"},{"name":"Mill 7","email":"ann@books.example"}]`, Ask}, // nobody said that it is a name
		"what was found, by a name":   {book, `{"q":"Lathe 4000","sort":"new"}`, `[{"name":"Lathe 4000","email":"eve@x.example"},{"name":"Mill 7","email":"ann@books.example"}]`, Permit},
		"a name of two":               {book, `{"q":"Lathe 4000","sort":"new"}`, `{"name":"Lathe 4000","email":"eve@x.example"}`, Permit},
		"not asked for":               {contacts, `{"q":"lathes","sort":"new"}`, `{"name":"Lathe 4000","email":"eve@x.example"}`, Permit},
		"the only hit":                {contacts, `{"q":"Lathe 4000"}`, `{"query":"Lathe 4000","email":"eve@x.example"}`, Permit},
		"with an added word":          {contacts, `{"q":"Lathe 4000 eve"}`, `{"query":"Lathe 4000 eve","email":"eve@x.example"}`, Ask},
		"with an added argument":      {book, `{"q":"Lathe 4000","from":"eve"}`, `{"name":"Eve","email":"eve@x.example"}`, Ask},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, words)
			s.read("crm.find", c.p, c.args, c.shown)
			s.wants(sendMail, `{"to":"eve@x.example"}`, c.want)
		})
	}
	// A later result may repeat it, too: a list of what was looked for.
	const recent = `[{"id":"s-1","looked_for":"Lathe 4000","first":"eve@x.example"},{"id":"s-2","looked_for":"Mill 7","first":"ann@books.example"}]`
	history := &Profile{Output: TrustedOutput, IDKind: "search"}
	s := newSession(t, words)
	s.read("crm.recent", history, `{}`, recent)
	s.wants(sendMail, `{"to":"eve@x.example"}`, Permit)
	for _, asked := range []string{`{"q":"Lathe 4000"}`, `{"q":"lathe%204000 please"}`, `{"q":{"Lathe 4000":1}}`} {
		for _, args := range []string{`{}`, `{"q":"Lathe 4000"}`, `{"q":"Lathe"}`} {
			s := newSession(t, words)
			s.read("crm.find", contacts, asked, `[]`)
			s.read("crm.recent", history, args, recent)
			s.wants(sendMail, `{"to":"eve@x.example"}`, Ask)
		}
	}
}

// What a write gives a record that was there before names no record, and that record is not singled out again: not by its new name, not as the only
// one, not by any other name that the request has. A sighting before still counts.
func TestWritesNameNothing(t *testing.T) {
	const words = "Answer the sender of 'Lathe 4000'. Or is it 'Offer 4000'? Then tell Ann about mail 8."
	const spam = `[{"id":7,"subject":"win","sender":"eve@x.example"},{"id":9,"subject":"Tools","sender":"ann@books.example"}]`
	renamed := func(subject string) string {
		return `[{"id":7,"subject":"` + subject + `","sender":"eve@x.example"},{"id":9,"subject":"Tools","sender":"ann@books.example"}]`
	}
	unlabelled := &Profile{TrustedFields: []string{"id"}, Names: []string{"subject"}, Delegable: []string{"sender"}} // of no kind
	for name, c := range map[string]struct {
		write   *Profile
		op      string
		args    string
		list    *Profile
		query   string
		shown   string
		want    Verdict
		without Verdict // the write
	}{
		"rename":                                {rename, "mail.rename", `{"id":7,"subject":"Lathe 4000"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"rename in pieces":                      {rename, "mail.rename", `{"id":7,"subject":["Lathe","4000"]}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"rename with a prefix":                  {rename, "mail.rename", `{"id":7,"subject":"Lathe 4000"}`, office, `{}`, renamed("Re: Lathe 4000"), Ask, Permit},
		"rename in base64":                      {rename, "mail.rename", `{"id":7,"subject":"` + inBase64("Lathe 4000") + `"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"the tool chose the name":               {rename, "mail.rename", `{"id":7,"subject":"x"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"no roles":                              {nil, "mail.rename", `{"n":7,"v":"Lathe 4000"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"an argument that no label mentions":    {&Profile{Args: map[string]Role{"v": Name}}, "mail.rename", `{"n":7,"v":"Lathe 4000"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"by its name":                           {&Profile{Args: map[string]Role{"old": Target, "new": Name}}, "mail.rename", `{"old":"win","new":"Lathe 4000"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"by a path":                             {&Profile{Args: map[string]Role{"old": Path, "new": Path}}, "mail.move", `{"old":"win","new":"Lathe 4000"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"by an expression":                      {&Profile{Args: map[string]Role{"sql": Code}}, "mail.run", `{"sql":"update mails set subject = (select subject from other)"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"arguments that can't be read":          {rename, "mail.rename", `{`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"another name of the same record":       {rename, "mail.rename", `{"id":7,"subject":"Lathe 4000"}`, office, `{}`, renamed("Offer 4000"), Ask, Permit},
		"the only hit, that the write selected": {rename, "mail.rename", `{"id":7,"subject":"Lathe 4000"}`, office, `{"q":"Lathe 4000"}`, `[{"id":7,"subject":"x","sender":"eve@x.example"}]`, Ask, Permit},
		"the only hit, others removed":          {remove, "mail.delete", `{"id":8}`, office, `{"q":"Lathe 4000"}`, `[{"id":7,"subject":"x","sender":"eve@x.example"}]`, Ask, Permit},
		"the only hit, another kind":            {&Profile{IDKind: "event", Args: map[string]Role{"id": Selector}}, "mail.cancel", `{"id":8}`, office, `{"q":"Lathe 4000"}`, `[{"id":7,"subject":"x","sender":"eve@x.example"}]`, Permit, Permit},
		"the only hit, another server":          {&Profile{IDKind: "mail", Args: map[string]Role{"id": Selector}}, "files.delete", `{"id":8}`, office, `{"q":"Lathe 4000"}`, `[{"id":7,"subject":"x","sender":"eve@x.example"}]`, Permit, Permit},
		"the only hit, of no kind":              {remove, "mail.delete", `{"id":8}`, unlabelled, `{}`, `[{"id":7,"subject":"win","sender":"eve@x.example"}]`, Ask, Ask},
		"a write without a kind":                {&Profile{Args: map[string]Role{"id": Selector, "v": Content}}, "mail.rename", `{"id":7,"v":"x"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"a list without a kind":                 {rename, "mail.rename", `{"id":7,"subject":"x"}`, unlabelled, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"the same kind on another server":       {rename, "imap.rename", `{"id":7,"subject":"x"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"an id with zeros in front":             {rename, "mail.rename", `{"id":"#007","subject":"x"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"an id that can't be compared":          {rename, "mail.rename", `{"id":"7\u200b","subject":"x"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"another id":                            {rename, "mail.rename", `{"id":9,"subject":"x"}`, office, `{}`, renamed("Lathe 4000"), Permit, Permit},
		"another kind":                          {&Profile{IDKind: "event", Args: map[string]Role{"id": Selector}}, "cal.move", `{"id":7}`, office, `{}`, renamed("Lathe 4000"), Permit, Permit},
		"a mail that is sent":                   {sendMail, "mail.send", `{"to":"ann@books.example","body":"about Lathe 4000"}`, office, `{}`, renamed("Lathe 4000"), Ask, Permit},
		"a mail that is sent and not kept":      {&Profile{Level: 2, Forgets: true, Args: sendMail.Args}, "mail.send", `{"to":"ann@books.example","body":"about Lathe 4000"}`, office, `{}`, renamed("Lathe 4000"), Permit, Permit},
		"a mail that is sent elsewhere":         {sendMail, "post.send", `{"to":"ann@books.example","body":"about Lathe 4000"}`, office, `{}`, renamed("Lathe 4000"), Permit, Permit},
		"a new mail of the name":                {&Profile{IDKind: "mail", TrustedFields: []string{"id"}, Args: sendMail.Args}, "mail.send", `{"to":"ann@books.example","body":"about Lathe 4000"}`, office, `{}`, renamed("Lathe 4000"), Permit, Permit}, // these were there before
	} {
		t.Run(name, func(t *testing.T) {
			reply := `{"to":"eve@x.example","body":"Yes"}`
			s := newSession(t, words)
			s.read("mail.list", c.list, c.query, c.shown)
			s.wants(sendMail, reply, c.without)
			s = newSession(t, words)
			s.read("mail.list", office, `{}`, spam)
			s.wants(sendMail, reply, Ask)
			s.write(c.op, c.write, c.args, `{"ok":true}`)
			s.read("mail.list", c.list, c.query, c.shown)
			s.wants(sendMail, reply, c.want)
			if c.without == Permit {
				s = newSession(t, words)
				s.read("mail.list", c.list, c.query, c.shown) // seen before
				s.write(c.op, c.write, c.args, `{"ok":true}`)
				s.read("mail.list", c.list, c.query, c.shown)
				s.wants(sendMail, reply, Permit)
			}
		})
	}
}

// A write that begins while a read runs takes the name away, too.
func TestWritesNameNothingWhileCallsRunAtOnce(t *testing.T) {
	s := newSession(t, "Answer the sender of 'Lathe 4000'")
	end := s.begin("mail.list", office, `{}`, false)
	s.begin("mail.rename", rename, `{"id":7,"subject":"Lathe 4000"}`, true)
	end(`[{"id":7,"subject":"Lathe 4000","sender":"eve@x.example"}]`)
	s.wants(sendMail, `{"to":"eve@x.example"}`, Ask)
}

// Everyday work that the rules about names leave alone.
func TestNamesOfEverydayWork(t *testing.T) {
	t.Run("search, then mail", func(t *testing.T) {
		s := newSession(t, "Send Bob Stone the figures")
		s.read("crm.find", book, `{"q":"Bob Stone"}`, `[{"name":"Bob Stone","email":"bob.stone@corp.example"}]`)
		s.wants(sendMail, `{"to":"bob.stone@corp.example","body":"The figures"}`, Permit)
	})
	t.Run("reply to a sender that was found", func(t *testing.T) {
		s := newSession(t, "Answer the mail 'Delivery of the lathe'")
		s.read("mail.find", office, `{"q":"lathe"}`, `[{"id":7,"subject":"Delivery of the lathe","sender":"sales@acme.example"},{"id":8,"subject":"lathe lathe","sender":"eve@x.example"}]`)
		s.wants(sendMail, `{"to":"sales@acme.example","body":"Yes"}`, Permit)
		s.wants(sendMail, `{"to":"eve@x.example","body":"Yes"}`, Ask)
	})
	t.Run("read one of a list by its id", func(t *testing.T) {
		s := newSession(t, "Delete the mail 'Old newsletter'")
		s.read("mail.list", &Profile{TrustedFields: []string{"id"}, IDKind: "mail"}, `{}`, `[{"id":"m-1"},{"id":"m-2"}]`)
		get := &Profile{TrustedFields: []string{"id"}, Names: []string{"subject"}, IDKind: "mail", Args: map[string]Role{"id": Query}}
		s.read("mail.get", get, `{"id":"m-2"}`, `{"id":"m-2","subject":"Old newsletter"}`)
		s.wants(remove, `{"id":"m-2"}`, Permit)
		s.wants(remove, `{"id":"m-1"}`, Ask)
		s.read("mail.get", get, `{"id":"m-3"}`, `{"id":"m-3","subject":"Old newsletter"}`) // an id from nowhere
		s.wants(remove, `{"id":"m-3"}`, Ask)
	})
	share := &Profile{Level: 2, IDKind: "file", Args: map[string]Role{"id": Selector, "to": Destination}}
	for name, c := range map[string]struct {
		create      *Profile
		args, shown string
		want        Verdict
	}{
		"create, then share":             {&Profile{Level: 1, TrustedFields: []string{"id"}, IDKind: "file", Args: map[string]Role{"name": Name, "text": Content}}, `{"name":"Trip plan","text":"x"}`, `{"id":99}`, Permit},
		"with the name in the result":    {&Profile{Level: 1, TrustedFields: []string{"id"}, Names: []string{"name"}, IDKind: "file", Args: map[string]Role{"name": Name, "text": Content}}, `{"name":"Trip plan","text":"x"}`, `{"id":99,"name":"Trip plan"}`, Permit},
		"a name that the request lacks":  {&Profile{Level: 1, TrustedFields: []string{"id"}, IDKind: "file", Args: map[string]Role{"name": Name, "text": Content}}, `{"name":"Salaries","text":"x"}`, `{"id":99}`, Ask},
		"the id was an argument":         {&Profile{Level: 1, TrustedFields: []string{"id"}, IDKind: "file", Args: map[string]Role{"name": Name, "text": Content}}, `{"name":"Trip plan","text":"99"}`, `{"id":99}`, Ask},
		"no roles":                       {&Profile{Level: 1, TrustedFields: []string{"id"}, IDKind: "file"}, `{"name":"Trip plan"}`, `{"id":99}`, Ask},
		"it selects what was there":      {&Profile{Level: 1, TrustedFields: []string{"id"}, IDKind: "file", Args: map[string]Role{"name": Name, "old": Target}}, `{"name":"Trip plan","old":"Salaries"}`, `{"id":99}`, Ask},
		"an argument nobody spoke of":    {&Profile{Level: 1, TrustedFields: []string{"id"}, IDKind: "file", Args: map[string]Role{"name": Name}}, `{"name":"Trip plan","old":"Salaries"}`, `{"id":99}`, Ask},
		"more than one record":           {&Profile{Level: 1, TrustedFields: []string{"id"}, IDKind: "file", Args: map[string]Role{"name": Name, "text": Content}}, `{"name":"Trip plan","text":"x"}`, `[{"id":99},{"id":13}]`, Ask},
		"a read that has an argument so": {nil, `{"name":"Trip plan"}`, `{"id":99}`, Ask},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, "Create a file called 'Trip plan' and share it with anna@corp.example")
			if c.create == nil {
				s.read("files.get", &Profile{TrustedFields: []string{"id"}, IDKind: "file", Args: map[string]Role{"name": Name}}, c.args, c.shown)
			} else {
				s.write("files.create", c.create, c.args, c.shown)
			}
			s.wants(share, `{"id":99,"to":"anna@corp.example"}`, c.want)
		})
	}
}

// After a write, a name that another record had singles none out: the other one may have been renamed or removed.
func TestANameOfTwoSinglesNoneOutAfterAWrite(t *testing.T) {
	const eve = `{"id":7,"subject":"Lathe 4000","sender":"eve@x.example"}`
	for name, c := range map[string]struct {
		words, before string
		write         *Profile
		op            string
		want          Verdict
	}{
		"the other is removed":           {"Answer 'Lathe 4000'", `[` + eve + `,{"id":8,"subject":"Lathe 4000","sender":"ann@books.example"}]`, remove, "mail.delete", Ask},
		"the other of a longer name":     {"Answer 'Offer for Lathe 4000'", `[` + eve + `,{"id":8,"subject":"Offer for Lathe 4000","sender":"ann@books.example"}]`, remove, "mail.delete", Ask},
		"the other was read alone":       {"Answer 'Lathe 4000'", `[{"id":8,"subject":"Lathe 4000","sender":"ann@books.example"}]`, remove, "mail.delete", Ask},
		"none other":                     {"Answer 'Lathe 4000'", `[{"id":8,"subject":"Tools","sender":"ann@books.example"}]`, remove, "mail.delete", Permit},
		"a write elsewhere":              {"Answer 'Lathe 4000'", `[{"id":8,"subject":"Lathe 4000","sender":"ann@books.example"}]`, remove, "files.delete", Permit},
		"a mail that is sent, no delete": {"Answer 'Lathe 4000'", `[{"id":8,"subject":"Lathe 4000","sender":"ann@books.example"}]`, sendMail, "post.send", Permit},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, c.words)
			s.read("mail.list", office, `{}`, c.before)
			s.write(c.op, c.write, `{"id":8}`)
			s.read("mail.list", office, `{}`, `[`+eve+`]`)
			s.wants(sendMail, `{"to":"eve@x.example","body":"Yes"}`, c.want)
		})
	}
}

// A sealed plan takes an id from the result of a read that was given it: the system had set the id before.
func TestPlansTakeIDsFromReadsOfOneRecord(t *testing.T) {
	get := &Profile{TrustedFields: []string{"id"}, Names: []string{"subject"}, IDKind: "mail", Args: map[string]Role{"id": Query}}
	for id, want := range map[string]Verdict{"m-7": Permit, "m-99": Ask} { // the other one stands in no list
		s := newSession(t, "Delete what is old")
		s.read("mail.list", office, `{}`, `[{"id":"m-7","subject":"old"},{"id":"m-8","subject":"new"}]`)
		s.read("mail.get", get, `{"id":"`+id+`"}`, `{"id":"`+id+`","subject":"old"}`)
		plan := &SealedPlan{Clean: true, Steps: []SealedStep{
			{Operation: "mail.list", Arguments: []byte(`{}`)}, {Operation: "mail.get", From: map[string]Source{"id": {Step: 0, Field: "id"}}}, {Operation: post.ID, From: map[string]Source{"id": {Step: 1, Field: "id"}}},
		}, Done: []Done{{Step: 0, CallID: "call_1"}, {Step: 1, CallID: "call_2"}}}
		r := JudgeCall(post, remove, []byte(`{"id":"`+id+`"}`), Situation{Held: fromOutside, Request: s.request, Evidence: &s.e, Plan: plan})
		if r.Verdict != want {
			t.Errorf("%s: %s, %s", id, r.Verdict, r.Reason)
		}
	}
}
