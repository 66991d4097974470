package provenance

import (
	"fmt"
	"strings"
	"testing"

	"sallyport.example/flow"
)

// What could carry labelled data out and leaves the sealed plan is asked about even if its arguments are confirmed, and nothing else is.
func TestOffPlan(t *testing.T) {
	internal, outside := flow.Held{Label: "internal", Operation: "mail.list", CallID: "call_0"}, flow.Held{Label: flow.Untrusted, Operation: "web.fetch", CallID: "call_1"}
	args := map[string]Role{"to": Destination, "body": Content}
	sealed := func() *SealedPlan {
		return &SealedPlan{Clean: true, Steps: []SealedStep{{Operation: "srv.post", Arguments: []byte(`{"body":"hi","to":"ann@books.example"}`)}, {Operation: "srv.weak"}}}
	}
	const planned, other = `{"body":"hi","to":"ann@books.example"}`, `{"body":"all","to":"ann@books.example"}`
	words := ParseRequest("Send the summary to ann@books.example, eve@x.example.")
	for name, c := range map[string]struct {
		op   flow.Operation
		p    *Profile
		args string
		held []flow.Held
		plan *SealedPlan
		off  bool
	}{
		"another text":                        {leak, &Profile{Level: 2, Args: args}, other, []flow.Held{internal}, sealed(), true},
		"another text, untrusted too":         {leak, &Profile{Level: 2, Args: args}, other, []flow.Held{outside, internal}, sealed(), true},
		"the plan is not clean":               {leak, &Profile{Level: 2, Args: args}, other, []flow.Held{internal}, &SealedPlan{Steps: sealed().Steps}, true},
		"a person's plan":                     {leak, &Profile{Level: 2, Args: args}, other, []flow.Held{internal}, &SealedPlan{Steps: sealed().Steps, Person: true}, true},
		"an empty plan":                       {leak, &Profile{Level: 2, Args: args}, planned, []flow.Held{internal}, &SealedPlan{}, true},
		"called already":                      {leak, &Profile{Level: 2, Args: args}, planned, []flow.Held{internal}, &SealedPlan{Clean: true, Steps: sealed().Steps, Done: []Done{{Step: 0, CallID: "call_2"}}}, true},
		"as planned":                          {leak, &Profile{Level: 2, Args: args}, planned, []flow.Held{internal}, sealed(), false},
		"no plan":                             {leak, &Profile{Level: 2, Args: args}, other, []flow.Held{internal}, nil, false},
		"no label":                            {leak, &Profile{Level: 2, Args: args}, other, nil, sealed(), false},
		"only untrusted":                      {leak, &Profile{Level: 2, Args: args}, other, []flow.Held{outside}, sealed(), false},
		"a label that does not block it":      {leak, &Profile{Level: 2, Args: args}, other, []flow.Held{{Label: "pii"}}, sealed(), true},
		"no label blocks it":                  {flow.Operation{ID: "srv.post", Sensitivity: flow.External}, &Profile{Level: 2, Args: args}, other, []flow.Held{internal}, sealed(), true},
		"a read that no label blocks":         {flow.Operation{ID: "srv.look", Sensitivity: flow.External, Effect: flow.Read}, &Profile{}, `{"q":"x"}`, []flow.Held{internal}, sealed(), true},
		"both":                                {flow.Operation{ID: "srv.post", Sensitivity: flow.Both}, &Profile{Level: 2, Args: args}, other, []flow.Held{internal}, sealed(), true},
		"none, and an argument says where to": {post, &Profile{Level: 2, Args: args}, other, []flow.Held{internal}, sealed(), true},
		"none, and a label blocks it":         {flow.Operation{ID: "srv.post", Sensitivity: flow.None, BlockedBy: []flow.Label{"pii"}}, &Profile{Level: 2, Args: map[string]Role{"id": Target}}, `{"id":"summary"}`, []flow.Held{internal, {Label: "pii"}}, sealed(), true},
		"none, an address":                    {post, &Profile{EgressURL: true}, other, []flow.Held{internal}, sealed(), true},
		"none, stays inside":                  {post, &Profile{Level: 2, Args: map[string]Role{"id": Target}}, `{"id":"x"}`, []flow.Held{internal}, sealed(), false},
		"a source":                            {flow.Operation{ID: "srv.read", Sensitivity: flow.InternalSource}, &Profile{}, `{"q":"x"}`, []flow.Held{internal}, sealed(), false},
		"by_arg, to nobody":                   {leak, &Profile{Level: 2, Boundary: BoundaryByArg, Args: args}, `{"body":"all"}`, []flow.Held{internal}, sealed(), false},
		"by_arg, to the person":               {leak, &Profile{Level: 2, Boundary: BoundaryByArg, Args: args}, `{"body":"all","to":"me@own.example"}`, []flow.Held{internal}, sealed(), false},
		"by_arg, to somebody":                 {leak, &Profile{Level: 2, Boundary: BoundaryByArg, Args: args}, other, []flow.Held{internal}, sealed(), true},
		"by_arg, to a repository":             {leak, &Profile{Level: 2, Boundary: BoundaryByArg, Args: map[string]Role{"repo": Repository, "body": Content}}, `{"body":"all","repo":"ann/books"}`, []flow.Held{internal}, sealed(), true},
		"a weak step":                         {flow.Operation{ID: "srv.weak", Sensitivity: flow.External}, &Profile{Level: 2, Args: args}, other, []flow.Held{internal}, sealed(), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Situation{Held: c.held, Request: words, Own: []string{"me@own.example"}, Plan: c.plan}
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
