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
		"nothing":             {nil, sink, []string{"every argument must be vouched for", "holds internal, pii it is refused", "results are untrusted: they vouch for nothing."}, []string{"free_level_1", "Any other"}},
		"nothing said":        {&Profile{Level: 2}, free, []string{"No label says", "untrusted"}, []string{"holds"}},
		"no sensitivity":      {&Profile{}, flow.Operation{}, []string{"always refused"}, []string{"read"}},
		"a read":              {&Profile{Args: map[string]Role{"q": Query}}, free, []string{"counts as a read that carries nothing out", "untrusted"}, []string{"vouched for", "not checked"}},
		"a read that sinks":   {&Profile{Args: map[string]Role{"q": Query, "to": Destination}}, sink, []string{"counts as a read", "to (destination) may come from", "holds internal, pii it runs only if to is vouched for"}, []string{"Once the session"}},
		"a read with no way":  {&Profile{Args: map[string]Role{"q": Query}}, sink, []string{"it is refused, since no argument"}, nil},
		"a fetch":             {&Profile{EgressURL: true, Args: map[string]Role{"link": URL}}, free, []string{"address can carry data out", "only if link is vouched for", "link (url) may come from"}, []string{"of a record"}},
		"an unlabelled fetch": {&Profile{EgressURL: true}, free, []string{"No label says", "address can carry data out"}, nil},
		"undo":                {&Profile{Level: 1, Args: map[string]Role{"title": Name, "at": Time}}, free, []string{"flow.free_level_1", "only if title is vouched for", "Any other argument"}, []string{"looked at only"}},
		"undo and fetch":      {&Profile{Level: 1, EgressURL: true}, free, []string{"No label says"}, []string{"free_level_1"}},
		"only a time":         {&Profile{Level: 2, Args: map[string]Role{"at": Time}}, free, []string{"only if at is vouched for"}, nil},
		"only content":        {&Profile{Level: 2, Args: map[string]Role{"body": Content}}, free, []string{"a person is asked about a call outside the sealed plan: no argument has a role", "What stands in body is not checked except for links"}, nil},
		"mail": {&Profile{Level: 2, Args: map[string]Role{"to": Destination, "cc": Destination, "body": Content, "at": Time, "html": Flag, "limit": Query}}, sink, []string{
			"only if all of cc, to are vouched for", "cc, to (destination) may come from", "own identities", "a record that the request singles out", "delegable",
			"What stands in at is looked at only", "What stands in body is not checked except for links", "What stands in html, limit is not checked at all", "Any other argument must be vouched for",
			"it runs only if all of cc, to are vouched for, by what the request names or singles out, or a person is asked; a call with nothing to vouch for is refused"}, nil},
		"chat inside":     {&Profile{Level: 2, Boundary: BoundaryInternal, Args: map[string]Role{"channel": Destination}}, free, []string{"stays inside the organisation"}, nil},
		"every core":      {&Profile{Level: 2, IDKind: "file", Args: map[string]Role{"a": Amount, "c": Credential, "i": Identity, "s": Selector, "t": Target, "u": URL}}, free, []string{"all of a, c, i, s, t, u are", "(url)", "where the person named who gets it, anywhere", "request, to the letter", "(identity)", "ids of the kind file", "(target)"}, nil},
		"not a role":      {&Profile{Level: 2, Args: map[string]Role{"x": "text"}}, free, []string{"only if x is vouched for"}, nil},
		"by argument":     {&Profile{Level: 2, Boundary: BoundaryByArg, Args: map[string]Role{"guests": Destination, "id": Selector}}, sink, []string{"as long as guests is, where given, the person's own; otherwise only if all of guests, id are"}, nil},
		"by no argument":  {&Profile{Level: 2, Boundary: BoundaryByArg, Args: map[string]Role{"id": Selector}}, sink, []string{"never refuses it"}, nil},
		"trusted":         {&Profile{Output: TrustedOutput}, free, []string{"no shape limits them", "gives the id or the number of a record singles it out"}, []string{"untrusted: "}},
		"trusted, shaped": {&Profile{Output: TrustedOutput, Shape: shape, TrustedFields: []string{"id"}}, free, []string{`every string in them matches "^[a-z]{1,9}$"`, "Of an untrusted result id and what is in it vouch"}, nil},
		"typed":           {&Profile{Output: TypedOutput, Shape: shape, Delegable: []string{"from"}}, free, []string{"matches", "from may say who gets something"}, nil},
		"typed, no shape": {&Profile{Output: TypedOutput}, free, []string{"typed output without a shape is"}, []string{"are trusted"}},
		"echo":            {&Profile{Output: EchoOutput, TrustedFields: []string{"id"}}, free, []string{"repeat what it was given, and vouch for nothing, but id and what is in it vouch for themselves"}, nil},
		"records": {&Profile{Output: UntrustedOutput, TrustedFields: []string{"id", "size"}, Names: []string{"subject"}, Delegable: []string{"from", "cc"}, IDKind: "email"}, free, []string{
			"they vouch for nothing, but id, size vouch for themselves: the system sets them", "value of subject singles", "gives the id or the number of a record singles it out", "one of from, cc may say who gets", "of the kind email, and vouch for no others"}, nil},
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

// What is explained is what is decided: an argument said to be free passes with a stranger's value, any other is asked about.
func TestExplainSaysWhatJudgeCallDoes(t *testing.T) {
	for _, level := range []int{0, 1, 2} {
		for _, egress := range []bool{false, true} {
			for _, told := range append([]Role{""}, roles...) { // "": nobody said anything about it
				p := &Profile{Level: level, EgressURL: egress, Args: map[string]Role{"named": Destination, "x": told}}
				if told == "" {
					delete(p.Args, "x")
				}
				op := flow.Operation{ID: "a.b", Sensitivity: flow.None}
				args, err := json.Marshal(map[string]string{"named": "bob@example.com", "x": "evil@attacker.example"})
				if err != nil {
					t.Fatal(err)
				}
				got := JudgeCall(op, p, args, Situation{Held: []flow.Held{{Label: flow.Untrusted}}, Words: ParseWords("write to bob@example.com")}).Verdict
				text := strings.Join(p.Explain(op), " ")
				free := strings.Contains(text, "is not looked at") || regexp.MustCompile(`What stands in x is (not checked|looked at only)`).MatchString(text)
				want := Ask
				if free {
					want = Permit
				}
				if told == Amount && !free {
					continue // no amount is an address, and one that is worked out for a named payee passes
				}
				if got != want {
					t.Errorf("level %d, egress %v, role %q: %s, but explained as\n%s", level, egress, told, got, text)
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
