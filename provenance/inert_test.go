package provenance

import (
	"fmt"
	"strings"
	"testing"

	"sallyport.example/flow"
)

// A read that is given nothing but the person's words, or a few small choices, runs after private data was read; everything else is refused as
// before.
func TestReadsThatCarryNothingOut(t *testing.T) {
	internal, outside := flow.Held{Label: "internal", Operation: "mail.list", CallID: "call_0"}, flow.Held{Label: flow.Untrusted, Operation: "web.fetch", CallID: "call_1"}
	read := flow.Operation{ID: "web.weather", Name: "weather", Sensitivity: flow.External, Effect: flow.Read, BlockedBy: []flow.Label{"internal"}}
	told := map[string]Role{"city": Query, "units": Flag, "days": Flag, "a": Content, "b": Content, "c": Flag, "d": Flag, "on": Time, "to": Name}
	profile := &Profile{Args: told}
	choices := map[string][]string{"units": {"metric", "imperial"}, "c": strings.Fields("0 1 2 3 4 5 6 7 8 9 a b c d e f g")}
	const request = "What is the weather in San Marino on 2026-11-24? Then add 12 and 7.5, and ask ann@books.example about https://books.example/Spring."
	for name, c := range map[string]struct {
		args             string
		clean, untrusted bool // whether it runs without and with untrusted content in the session
	}{
		"the person's words":        {`{"city":"San Marino"}`, true, true},
		"in lower case":             {`{"city":"san marino"}`, true, true},
		"with capitals":             {`{"city":"Weather In"}`, true, true},
		"numbers in the words":      {`{"a":12,"b":7.5}`, true, true},
		"as texts":                  {`{"a":"12","b":"7.5"}`, true, true},
		"an address in the words":   {`{"to":"ann@books.example"}`, true, true},
		"a link in the words":       {`{"a":"https://books.example/Spring"}`, true, true},
		"a date in the words":       {`{"on":"2026-11-24"}`, true, true},
		"five of them":              {`{"a":12,"b":7.5,"city":"San","on":"2026-11-24","to":"ann@books.example"}`, true, false},
		"nothing":                   {`{}`, true, true},
		"a digit":                   {`{"a":2,"b":3}`, true, false},
		"yes or no":                 {`{"c":true,"city":"San Marino"}`, true, false},
		"null":                      {`{"city":null}`, true, false},
		"one of a list":             {`{"city":"San Marino","units":"metric"}`, true, false},
		"four choices":              {`{"a":1,"b":2,"d":false,"units":"metric"}`, true, false},
		"five choices":              {`{"a":1,"b":2,"d":false,"days":3,"units":"metric"}`, false, false},
		"one of a long list":        {`{"c":"a"}`, false, false},
		"none of the list":          {`{"units":"kelvin"}`, false, false},
		"other letters":             {`{"city":"sAn marino"}`, false, false},
		"more blanks":               {`{"city":"San  Marino"}`, false, false},
		"a blank behind":            {`{"city":"San Marino "}`, false, false},
		"an invisible letter":       {`{"city":"San\u200b Marino"}`, false, false},
		"half a word":               {`{"city":"Marin"}`, false, false},
		"other words":               {`{"city":"the password is hunter2"}`, false, false},
		"words and more":            {`{"city":"San Marino hunter2"}`, false, false},
		"words in another order":    {`{"city":"Marino San"}`, false, false},
		"a number of two digits":    {`{"a":83,"b":12}`, false, false},
		"a number below none":       {`{"a":-1}`, false, false},
		"a fraction":                {`{"a":0.5}`, false, false},
		"a number written longer":   {`{"a":"12.000"}`, false, false},
		"a number with an exponent": {`{"a":"1.2e1"}`, false, false},
		"an address in capitals":    {`{"to":"Ann@books.example"}`, false, false},
		"a link with http":          {`{"a":"http://books.example/Spring"}`, false, false},
		"a link with more":          {`{"a":"https://books.example/Spring?q=1"}`, false, false},
		"another date":              {`{"on":"2026-11-25"}`, false, false},
		"a date with a time":        {`{"on":"2026-11-24 03:27"}`, false, false},
		"a list":                    {`{"a":[1,2]}`, false, false},
		"an object":                 {`{"a":{"12":12}}`, false, false},
		"an empty text":             {`{"city":""}`, false, false},
	} {
		for _, held := range [][]flow.Held{{internal}, {internal, outside}} {
			r := JudgeCall(read, profile, []byte(c.args), Situation{Held: held, Request: ParseRequest(request), Choices: choices})
			want := c.clean
			if len(held) > 1 {
				want = c.untrusted
			}
			if (r.Verdict == Permit) != want || !want && r.Verdict != Deny || want && (len(r.Because) == 0 || r.Because[0] != internal || r.Evidence != nil) {
				t.Errorf("%s, %d labels: %+v", name, len(held), r)
			}
		}
	}
	// Not what writes, requests an address, has a core argument or nowhere to go, or has no roles; nor for no request.
	for name, c := range map[string]struct {
		op flow.Operation
		p  *Profile
	}{
		"a write":       {flow.Operation{ID: "x.y", Sensitivity: flow.External, Effect: flow.Write, BlockedBy: []flow.Label{"internal"}}, profile},
		"level 1":       {read, &Profile{Level: 1, Args: told}},
		"level 2":       {read, &Profile{Level: 2, Args: told}},
		"an address":    {read, &Profile{EgressURL: true, Args: told}},
		"no roles":      {read, &Profile{}},
		"a destination": {read, &Profile{Args: map[string]Role{"city": Query, "send_to": Destination}}},
	} {
		if r := JudgeCall(c.op, c.p, []byte(`{"city":"San Marino"}`), Situation{Held: []flow.Held{internal}, Request: ParseRequest(request)}); r.Verdict == Permit {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, words := range []*Request{nil, ParseRequest("")} {
		if r := JudgeCall(read, profile, []byte(`{"city":"San Marino"}`), Situation{Held: []flow.Held{internal}, Request: words}); r.Verdict == Permit {
			t.Errorf("%+v", r)
		}
	}
}

// However a secret is cut up, an agent that obeys an outsider gets nothing of it through but by choosing among the person's own words.
func TestNoSecretIsSpeltThroughReads(t *testing.T) {
	read := flow.Operation{ID: "calc.add", Name: "add", Sensitivity: flow.External, Effect: flow.Read, BlockedBy: []flow.Label{"internal"}}
	p := &Profile{Args: map[string]Role{"a": Content, "b": Content, "exact": Flag}}
	s := Situation{Held: []flow.Held{{Label: "internal", Operation: "files.read", CallID: "call_0"}, {Label: flow.Untrusted, Operation: "web.fetch", CallID: "call_1"}}, Request: ParseRequest("Add 2 and 3, exactly."), Choices: map[string][]string{"a": {"x", "y"}}}
	for i := range 256 {
		for _, args := range []string{fmt.Sprintf(`{"a":%d,"b":2}`, i), fmt.Sprintf(`{"a":"%c"}`, 'A'+i%26), fmt.Sprintf(`{"a":2,"b":3,"exact":%v}`, i%2 == 0), `{"a":"x"}`} {
			if r := JudgeCall(read, p, []byte(args), s); r.Verdict == Permit && args != `{"a":2,"b":2}` && args != `{"a":3,"b":2}` {
				t.Errorf("%s: %+v", args, r)
			}
		}
	}
}
