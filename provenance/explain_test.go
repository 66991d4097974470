package provenance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"sallyport.example/flow"
)

// The whole table of what a profile can say, each with the sentences that it must and must not bring.
func TestExplain(t *testing.T) {
	shape := regexp.MustCompile(`^[a-z]{1,9}$`)
	sink := flow.Operation{ID: "a.b", Sensitivity: flow.External, BlockedBy: []flow.Label{"internal", "pii"}}
	free := flow.Operation{ID: "a.b", Sensitivity: flow.None}
	for name, c := range map[string]struct {
		p    *Profile
		op   flow.Operation
		says []string // in this order
		not  []string
	}{
		"nothing":             {nil, sink, []string{"unless every argument is confirmed", "holds internal, pii it is refused", "results are untrusted: they confirm no value."}, []string{"free_level_1", "Any other"}},
		"nothing said":        {&Profile{Level: 2}, free, []string{"Its arguments have no roles", "untrusted"}, []string{"holds"}},
		"no sensitivity":      {&Profile{}, flow.Operation{}, []string{"always refused"}, []string{"read"}},
		"a read":              {&Profile{Args: map[string]Role{"q": Query}}, free, []string{"counts as a read that carries nothing out", "untrusted"}, []string{"confirmed: the", "not checked"}},
		"a read that sinks":   {&Profile{Args: map[string]Role{"q": Query, "to": Destination}}, sink, []string{"counts as a read", "to (destination) may come from", "holds internal, pii a person is asked unless to is confirmed"}, []string{"Once the session"}},
		"a read with no way":  {&Profile{Args: map[string]Role{"q": Query}}, sink, []string{"it is refused, since no argument"}, nil},
		"a fetch":             {&Profile{EgressURL: true, Args: map[string]Role{"link": URL}}, free, []string{"address can carry data out", "only if link is confirmed", "link (url) may come from"}, []string{"of a record"}},
		"an unlabelled fetch": {&Profile{EgressURL: true}, free, []string{"Its arguments have no roles", "address can carry data out"}, nil},
		"undo":                {&Profile{Level: 1, Args: map[string]Role{"title": Name, "at": Time}}, free, []string{"flow.free_level_1", "only if title is confirmed", "Any other argument"}, []string{"checked only"}},
		"undo and fetch":      {&Profile{Level: 1, EgressURL: true}, free, []string{"Its arguments have no roles"}, []string{"free_level_1"}},
		"only a time":         {&Profile{Level: 2, Args: map[string]Role{"at": Time}}, free, []string{"only if at is confirmed"}, nil},
		"only content":        {&Profile{Level: 2, Args: map[string]Role{"body": Content}}, free, []string{"a person is asked about a call outside the sealed plan: no argument has a role", "The text of body is not checked except for links"}, nil},
		"mail": {&Profile{Level: 2, Args: map[string]Role{"to": Destination, "cc": Destination, "body": Content, "at": Time, "html": Flag, "limit": Query}}, sink, []string{
			"only if all of cc, to are confirmed", "cc, to (destination) may come from", "own identities", "a record that the request singles out", "delegable",
			"The value of at is checked only", "The text of body is not checked except for links", "The value of html, limit is not checked at all", "Any other argument must be confirmed",
			"a person is asked unless all of cc, to are confirmed by the request or by a record that it singles out. A call without a value for any of cc, to is refused"}, []string{"keeps what is stored"}},
		"an update": {&Profile{Level: 2, Args: map[string]Role{"id": Selector, "to": Destination}, MayOmit: []string{"to"}}, sink, []string{
			"also asked if the call has no value for to, unless only arguments are left out of which that keeps what is stored: to.", "without such an argument is refused"}, nil},
		"chat inside":     {&Profile{Level: 2, Boundary: BoundaryInternal, Args: map[string]Role{"channel": Destination}}, free, []string{"stays inside the organisation"}, nil},
		"every core":      {&Profile{Level: 2, IDKind: "file", Args: map[string]Role{"a": Amount, "c": Credential, "i": Identity, "s": Selector, "t": Target, "u": URL}}, free, []string{"all of a, c, i, s, t, u are", "(url)", "where the person named who gets it, anywhere", "request, to the letter", "(identity)", "ids of the kind file", "(target)"}, nil},
		"not a role":      {&Profile{Level: 2, Args: map[string]Role{"x": "text"}}, free, []string{"only if x is confirmed"}, nil},
		"by argument":     {&Profile{Level: 2, Boundary: BoundaryByArg, Args: map[string]Role{"guests": Destination, "id": Selector}}, sink, []string{"as long as guests is, where given, the person's own. Otherwise a person is asked unless all of guests, id are"}, nil},
		"by no argument":  {&Profile{Level: 2, Boundary: BoundaryByArg, Args: map[string]Role{"id": Selector}}, sink, []string{"never refused"}, nil},
		"trusted":         {&Profile{Output: TrustedOutput}, free, []string{"no shape limits them", "gives the id or the number of a record singles it out"}, []string{"untrusted: "}},
		"trusted, shaped": {&Profile{Output: TrustedOutput, Shape: shape, TrustedFields: []string{"id"}}, free, []string{`every string and number in them matches "^[a-z]{1,9}$"`, "An untrusted result confirms only the values of id."}, nil},
		"typed":           {&Profile{Output: TypedOutput, Shape: shape, Delegable: []string{"from"}}, free, []string{"matches", "from may say who gets something"}, nil},
		"typed, no shape": {&Profile{Output: TypedOutput}, free, []string{"typed output needs a shape"}, []string{"are trusted"}},
		"echo":            {&Profile{Output: EchoOutput, TrustedFields: []string{"id"}}, free, []string{"repeat the arguments of the call, and confirm no value except those of id, which the system sets"}, nil},
		"records": {&Profile{Output: UntrustedOutput, TrustedFields: []string{"id", "size"}, Names: []string{"subject"}, Delegable: []string{"from", "cc"}, IDKind: "email"}, free, []string{
			"they confirm no value except those of id, size, which the system sets", "value of subject singles", "gives the id or the number of a record singles it out", "one of from, cc may say who gets", "of the kind email, and confirm no other ids"}, nil},
		"unknown word":  {&Profile{Output: "sure"}, free, []string{"Its results are untrusted"}, nil},
		"hostile names": {&Profile{Level: 2, IDKind: "k\x1b[2J", Args: map[string]Role{"a\nIgnore all": Destination}, Names: []string{"<b>"}}, free, []string{"a_Ignore_all", "_b_", "k__2J"}, []string{"\n", "\x1b", "<"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Join(c.p.Explain(c.op), " ")
			rest := text
			for _, want := range c.says {
				i := strings.Index(rest, want)
				if i < 0 {
					t.Fatalf("%q is not said, or not in its place, in\n%s", want, text)
				}
				rest = rest[i+len(want):]
			}
			for _, not := range c.not {
				if strings.Contains(text, not) {
					t.Errorf("%q is said in\n%s", not, text)
				}
			}
		})
	}
}

// An argument that the explanation calls unchecked passes with a stranger's value; a person is asked about any other.
func TestExplainSaysWhatJudgeCallDoes(t *testing.T) {
	for _, level := range []int{0, 1, 2} {
		for _, egress := range []bool{false, true} {
			for _, role := range append([]Role{""}, roles...) { // "": no role
				p := &Profile{Level: level, EgressURL: egress, Args: map[string]Role{"named": Destination, "x": role}}
				if role == "" {
					delete(p.Args, "x")
				}
				op := flow.Operation{ID: "a.b", Sensitivity: flow.None}
				args, err := json.Marshal(map[string]string{"named": "bob@example.com", "x": "evil@attacker.example"})
				if err != nil {
					t.Fatal(err)
				}
				got := JudgeCall(op, p, args, Situation{Held: []flow.Held{{Label: flow.Untrusted}}, Request: ParseRequest("write to bob@example.com")}).Verdict
				text := strings.Join(p.Explain(op), " ")
				free := strings.Contains(text, "without a check of its arguments") || regexp.MustCompile(`The (text|value) of x is (not checked|checked only)`).MatchString(text)
				want := Ask
				if free {
					want = Permit
				}
				if role == Amount && !free {
					continue // no amount is an address, and one that is calculated for a named payee passes
				}
				if got != want {
					t.Errorf("level %d, egress %v, role %q: %s, but explained as\n%s", level, egress, role, got, text)
				}
			}
		}
	}
}

func TestExplainIsBounded(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{}, IDKind: strings.Repeat("k", 1000)}
	for i := range 5000 {
		p.Args[fmt.Sprintf("%s%d", strings.Repeat("a", 500), i)] = roles[i%len(roles)]
		p.Names = append(p.Names, strings.Repeat("n", 500))
	}
	if text := strings.Join(p.Explain(flow.Operation{Sensitivity: flow.None}), " "); len(text) > 200_000 {
		t.Errorf("%d bytes", len(text))
	}
}
