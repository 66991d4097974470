package flow

import (
	"fmt"
	"strings"
	"testing"
)

// What could carry labelled data out and leaves the sealed plan is asked about, whoever vouches for its arguments, and nothing else is.
func TestOffPlan(t *testing.T) {
	internal, outside := Held{Label: "internal", Operation: "mail.list", CallID: "call_0"}, Held{Label: Untrusted, Operation: "web.fetch", CallID: "call_1"}
	args := map[string]Role{"to": Destination, "body": Content}
	sealed := func() *Sealed {
		return &Sealed{Clean: true, Steps: []SealedStep{{Operation: "srv.post", Arguments: []byte(`{"body":"hi","to":"ann@books.example"}`)}, {Operation: "srv.weak"}}}
	}
	const planned, other = `{"body":"hi","to":"ann@books.example"}`, `{"body":"all","to":"ann@books.example"}`
	words := ParseWords("Send the summary to ann@books.example, eve@x.example.")
	for name, c := range map[string]struct {
		op   Operation
		p    *Profile
		args string
		held []Held
		plan *Sealed
		off  bool
	}{
		"another text":                        {leak, &Profile{Level: 2, Args: args}, other, []Held{internal}, sealed(), true},
		"another text, untrusted too":         {leak, &Profile{Level: 2, Args: args}, other, []Held{outside, internal}, sealed(), true},
		"the plan is not clean":               {leak, &Profile{Level: 2, Args: args}, other, []Held{internal}, &Sealed{Steps: sealed().Steps}, true},
		"a person's plan":                     {leak, &Profile{Level: 2, Args: args}, other, []Held{internal}, &Sealed{Steps: sealed().Steps, Person: true}, true},
		"an empty plan":                       {leak, &Profile{Level: 2, Args: args}, planned, []Held{internal}, &Sealed{}, true},
		"called already":                      {leak, &Profile{Level: 2, Args: args}, planned, []Held{internal}, &Sealed{Clean: true, Steps: sealed().Steps, Done: []Done{{Step: 0, CallID: "call_2"}}}, true},
		"as planned":                          {leak, &Profile{Level: 2, Args: args}, planned, []Held{internal}, sealed(), false},
		"no plan":                             {leak, &Profile{Level: 2, Args: args}, other, []Held{internal}, nil, false},
		"no label":                            {leak, &Profile{Level: 2, Args: args}, other, nil, sealed(), false},
		"only untrusted":                      {leak, &Profile{Level: 2, Args: args}, other, []Held{outside}, sealed(), false},
		"a label that does not block it":      {leak, &Profile{Level: 2, Args: args}, other, []Held{{Label: "pii"}}, sealed(), true},
		"no label blocks it":                  {Operation{ID: "srv.post", Sensitivity: External}, &Profile{Level: 2, Args: args}, other, []Held{internal}, sealed(), true},
		"a read that no label blocks":         {Operation{ID: "srv.look", Sensitivity: External, Effect: Read}, &Profile{}, `{"q":"x"}`, []Held{internal}, sealed(), true},
		"both":                                {Operation{ID: "srv.post", Sensitivity: Both}, &Profile{Level: 2, Args: args}, other, []Held{internal}, sealed(), true},
		"none, and an argument says where to": {post, &Profile{Level: 2, Args: args}, other, []Held{internal}, sealed(), true},
		"none, and a label blocks it":         {Operation{ID: "srv.post", Sensitivity: None, BlockedBy: []Label{"pii"}}, &Profile{Level: 2, Args: map[string]Role{"id": Target}}, `{"id":"summary"}`, []Held{internal, {Label: "pii"}}, sealed(), true},
		"none, an address":                    {post, &Profile{EgressURL: true}, other, []Held{internal}, sealed(), true},
		"none, stays inside":                  {post, &Profile{Level: 2, Args: map[string]Role{"id": Target}}, `{"id":"x"}`, []Held{internal}, sealed(), false},
		"a source":                            {Operation{ID: "srv.read", Sensitivity: InternalSource}, &Profile{}, `{"q":"x"}`, []Held{internal}, sealed(), false},
		"by_arg, to nobody":                   {leak, &Profile{Level: 2, Boundary: BoundaryByArg, Args: args}, `{"body":"all"}`, []Held{internal}, sealed(), false},
		"by_arg, to the person":               {leak, &Profile{Level: 2, Boundary: BoundaryByArg, Args: args}, `{"body":"all","to":"me@own.example"}`, []Held{internal}, sealed(), false},
		"by_arg, to somebody":                 {leak, &Profile{Level: 2, Boundary: BoundaryByArg, Args: args}, other, []Held{internal}, sealed(), true},
		"by_arg, to a repository":             {leak, &Profile{Level: 2, Boundary: BoundaryByArg, Args: map[string]Role{"repo": Repository, "body": Content}}, `{"body":"all","repo":"ann/books"}`, []Held{internal}, sealed(), true},
		"a weak step":                         {Operation{ID: "srv.weak", Sensitivity: External}, &Profile{Level: 2, Args: args}, other, []Held{internal}, sealed(), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Situation{Held: c.held, Words: words, Own: []string{"me@own.example"}, Plan: c.plan}
			why, off := OffPlan(c.op, c.p, []byte(c.args), s)
			if off != c.off || off && why == "" {
				t.Errorf("%v %q", off, why)
			}
			r := JudgeCall(c.op, c.p, []byte(c.args), s)
			s.Plan = nil
			switch before := JudgeCall(c.op, c.p, []byte(c.args), s); {
			case c.off && before.Verdict == Permit && (r.Verdict != Ask || !r.OffPlan || !strings.Contains(r.Reason, "not in the session's sealed plan")):
				t.Errorf("%+v", r)
			case !c.off && r.OffPlan:
				t.Errorf("%+v", r)
			case fmt.Sprint(r.Evidence) != fmt.Sprint(before.Evidence) && c.off:
				t.Errorf("%v is not %v", r.Evidence, before.Evidence)
			}
		})
	}
}
