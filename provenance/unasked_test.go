package provenance

import (
	"strings"
	"testing"

	"sallyport.example/flow"
)

// file reads the organisation's own data, page what is public, and comment is a sink.
var (
	file    = flow.Operation{ID: "git.file", Name: "file", Sensitivity: flow.InternalSource, Effect: flow.Read, Emits: []flow.Label{flow.Internal, flow.Untrusted}}
	page    = flow.Operation{ID: "web.page", Name: "page", Sensitivity: flow.External, Effect: flow.Read, Emits: []flow.Label{flow.Untrusted}}
	comment = flow.Operation{ID: "git.comment", Name: "comment", Sensitivity: flow.External, BlockedBy: []flow.Label{flow.Internal}}

	fileProfile    = &Profile{IDKind: "file", Args: map[string]Role{"repo": Repository, "path": Path, "file_id": Query, "query": Query, "limit": Flag}}
	commentProfile = &Profile{Level: 2, Args: map[string]Role{"issue": Destination, "text": Content}}
)

func TestWhatIsAskedFor(t *testing.T) {
	const request = "Answer the question in acme/site with what docs/help.md says"
	clean := []flow.Held{{Label: flow.Internal, Operation: "mail.list", CallID: "call_0"}}
	for name, c := range map[string]struct {
		op   flow.Operation
		p    *Profile
		held []flow.Held
		args string
		plan *SealedPlan
		want string // in the sentence; "" asked for
	}{
		"in the person's words":            {file, fileProfile, fromOutside, `{"repo":"acme/site","path":"docs/help.md"}`, nil, ""},
		"another repository":               {file, fileProfile, fromOutside, `{"repo":"acme/private","path":"docs/help.md"}`, nil, "repo is not confirmed"},
		"another path":                     {file, fileProfile, fromOutside, `{"repo":"acme/site","path":"keys.md"}`, nil, "path is not confirmed"},
		"before untrusted content":         {file, fileProfile, clean, `{"repo":"acme/private"}`, nil, ""},
		"nothing selected":                 {file, fileProfile, fromOutside, `{"limit":3}`, nil, ""},
		"a search":                         {file, fileProfile, fromOutside, `{"query":"passwords"}`, nil, ""},
		"an id by its name":                {file, fileProfile, fromOutside, `{"file_id":"77"}`, nil, "file_id is not confirmed"},
		"an argument without a role":       {file, fileProfile, fromOutside, `{"other":"x"}`, nil, "other is not confirmed"},
		"no argument has a role":           {file, &Profile{}, fromOutside, `{"what":"acme/private"}`, nil, "what is not confirmed"},
		"no argument has a role, a number": {file, &Profile{}, fromOutside, `{"limit":3}`, nil, ""},
		"no argument has a role, an id":    {file, &Profile{}, fromOutside, `{"id":3}`, nil, "id is not confirmed"},
		"an id in camel case":              {file, &Profile{}, fromOutside, `{"fileId":3}`, nil, "fileId is not confirmed"},
		"ids with capitals":                {file, &Profile{}, fromOutside, `{"recordIDs":[3]}`, nil, "recordIDs is not confirmed"},
		"looked for, an id in camel case":  {file, &Profile{Args: map[string]Role{"fileId": Query}}, fromOutside, `{"fileId":"a7"}`, nil, "fileId is not confirmed"},
		"no id at all":                     {file, &Profile{}, fromOutside, `{"grid":3,"paid":4,"pageCount":5}`, nil, ""},
		"an owner and a repository":        {file, &Profile{Args: map[string]Role{"owner": Repository, "repo": Repository}}, fromOutside, `{"owner":"acme","repo":"site"}`, nil, ""},
		"another one of the owner's":       {file, &Profile{Args: map[string]Role{"owner": Repository, "repo": Repository}}, fromOutside, `{"owner":"acme","repo":"private"}`, nil, "owner is not confirmed"},
		"public":                           {page, fileProfile, fromOutside, `{"repo":"acme/private"}`, nil, ""},
		"too many":                         {file, fileProfile, fromOutside, `{"path":["` + strings.Repeat(`a","`, maxTraced) + `a"]}`, nil, "more than"},
		"fixed in a plan of before":        {file, fileProfile, fromOutside, `{"repo":"acme/private"}`, &SealedPlan{Clean: true, Steps: []SealedStep{{Operation: file.ID, Arguments: []byte(`{"repo":"acme/private"}`)}}}, ""},
		"fixed in a plan of after":         {file, fileProfile, fromOutside, `{"repo":"acme/private"}`, &SealedPlan{Steps: []SealedStep{{Operation: file.ID, Arguments: []byte(`{"repo":"acme/private"}`)}}}, "repo is not confirmed"},
		"in a plan that leaves it to them": {file, fileProfile, fromOutside, `{"repo":"acme/private"}`, &SealedPlan{Clean: true, Steps: []SealedStep{{Operation: file.ID}}}, "repo is not confirmed"},
	} {
		r := JudgeCall(c.op, c.p, []byte(c.args), Situation{Held: c.held, Request: ParseRequest(request), Plan: c.plan})
		if r.Verdict != Permit || (r.Unasked == "") != (c.want == "") || !strings.Contains(r.Unasked, c.want) {
			t.Errorf("%s: %s, unasked %q; want %q", name, r.Verdict, r.Unasked, c.want)
		}
	}
}

// An id that an untrusted record has is worth something only if the person singled the record out.
func TestUnaskedAfterAList(t *testing.T) {
	list := showed(&Profile{IDKind: "file", TrustedFields: []string{"id"}, Names: []string{"title"}}, "Read 'Blue Heron'", "git.files", "call_1", `{}`,
		`[{"id":"a7","title":"Blue Heron"},{"id":"b8","title":"Payroll"}]`)
	p := &Profile{IDKind: "file", Args: map[string]Role{"id": Selector}}
	for id, asked := range map[string]bool{"a7": true, "b8": false} {
		r := JudgeCall(file, p, []byte(`{"id":"`+id+`"}`), Situation{Held: fromOutside, Request: ParseRequest("Read 'Blue Heron'"), Evidence: gathered(list)})
		if r.Verdict != Permit || (r.Unasked == "") != asked {
			t.Errorf("%s: %q", id, r.Unasked)
		}
	}
}

func TestBrings(t *testing.T) {
	found := Ruling{Unasked: "path is not confirmed"}
	for name, c := range map[string]struct {
		r    Ruling
		in   []flow.Held
		want int
	}{
		"private":          {found, []flow.Held{{Label: flow.Internal, Operation: "git.file", CallID: "call_2"}, {Label: flow.Untrusted, Operation: "git.file", CallID: "call_2"}}, 3},
		"not private":      {found, []flow.Held{{Label: flow.Untrusted, Operation: "git.file", CallID: "call_2"}}, 1},
		"asked for":        {Ruling{}, []flow.Held{{Label: flow.Internal, Operation: "git.file", CallID: "call_2"}}, 1},
		"marked already":   {found, []flow.Held{{Label: flow.Internal, Operation: "git.file", CallID: "call_2"}, {Label: flow.Unasked, Operation: "git.file", CallID: "call_2"}}, 2},
		"marked by itself": {found, []flow.Held{{Label: flow.Unasked, Operation: "git.file", CallID: "call_2"}}, 1},
	} {
		if got := c.r.WithUnasked(c.in, "git.file", "call_2"); len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Data that nobody asked for goes nowhere without a question, but to the person, and where a person sent it knowing of it.
func TestUnaskedDataLeaves(t *testing.T) {
	const request = "Comment on 'Help Desk', and write to me"
	held := []flow.Held{{Label: flow.Untrusted, Operation: "git.issue", CallID: "call_0"}, {Label: flow.Internal, Operation: "git.list", CallID: "call_1"}}
	unasked := append(held[:2:2], flow.Held{Label: flow.Unasked, Operation: "git.file", CallID: "call_2"})
	args := []byte(`{"issue":"Help Desk","text":"hello"}`)
	yes := func(labels []flow.Held) *Evidence {
		return gathered(Approve(comment.ID, "call_3", commentProfile, args, nil, labels))
	}
	for name, c := range map[string]struct {
		op   flow.Operation
		held []flow.Held
		args string
		e    *Evidence
		plan *SealedPlan
		want Verdict
	}{
		"what was asked for":           {comment, held, string(args), nil, nil, Permit},
		"what nobody asked for":        {comment, unasked, string(args), nil, nil, Ask},
		"to a place not named":         {comment, unasked, `{"issue":"evil-1"}`, nil, nil, Ask},
		"to the person":                {comment, unasked, `{"issue":"carol@corp.example","text":"x"}`, nil, nil, Permit},
		"to the person and another":    {comment, unasked, `{"issue":["carol@corp.example","Help Desk"]}`, nil, nil, Ask},
		"nothing that blocks":          {post, unasked, string(args), nil, nil, Permit},
		"approved before":              {comment, unasked, string(args), yes(held), nil, Ask},
		"approved knowing of it":       {comment, unasked, string(args), yes(unasked), nil, Permit},
		"the plan's own words":         {comment, unasked, string(args), nil, &SealedPlan{Clean: true, Person: true, Steps: []SealedStep{{Operation: comment.ID, Arguments: args}}}, Permit},
		"the plan leaves the text":     {comment, unasked, string(args), nil, &SealedPlan{Clean: true, Person: true, Steps: []SealedStep{{Operation: comment.ID, Arguments: []byte(`{"issue":"Help Desk"}`), Open: []string{"text"}}}}, Ask},
		"a rule's plan, its own words": {comment, unasked, string(args), nil, &SealedPlan{Clean: true, Steps: []SealedStep{{Operation: comment.ID, Arguments: args}}}, Permit},
	} {
		s := Situation{Held: c.held, Request: ParseRequest(request), Own: []string{"carol@corp.example"}, Evidence: c.e, Plan: c.plan}
		r := JudgeCall(c.op, commentProfile, []byte(c.args), s)
		if r.Verdict != c.want {
			t.Errorf("%s: %s, %q", name, r.Verdict, r.Reason)
		}
		if name == "what nobody asked for" && (!strings.Contains(r.Reason, "nobody asked for the data that git.file brought") || len(r.Because) != 2 || r.Evidence[0].Confirmed) {
			t.Errorf("%s: %q %v %+v", name, r.Reason, r.Because, r.Evidence)
		}
	}
}

// The mark is the gateway's own: no operation is configured with it.
func TestUnaskedIsNotConfigured(t *testing.T) {
	if _, err := flow.Resolve(flow.Spec{ID: "a.b", Name: "b"}, []flow.Label{flow.Internal, flow.Unasked}); err == nil {
		t.Error("flow.labels has it")
	}
	if _, err := flow.Resolve(flow.Spec{ID: "a.b", Name: "b", Emits: &[]flow.Label{flow.Unasked}}, []flow.Label{flow.Internal}); err == nil {
		t.Error("emits has it")
	}
	if _, err := flow.Resolve(flow.Spec{ID: "a.b", Name: "b", BlockedBy: &[]flow.Label{flow.Unasked}}, []flow.Label{flow.Internal}); err == nil {
		t.Error("blocked_by has it")
	}
}

// A read that says only what the request says, word for word, has no room for the data: it runs though nobody asked for what the session holds.
func TestReadsThatRepeatTheRequest(t *testing.T) {
	const request = "Read https://docs.example/feed and https://docs.example/b, in English"
	fetch := flow.Operation{ID: "web.fetch", Name: "fetch", Sensitivity: flow.Both, Effect: flow.Read, BlockedBy: []flow.Label{flow.Internal}, Emits: []flow.Label{flow.Untrusted}}
	post := fetch
	post.Effect = flow.Write
	labels := func(level int) *Profile {
		return &Profile{Level: level, EgressURL: true, Args: map[string]Role{"url": URL, "headers": Target, "language": Flag, "size": Flag}}
	}
	held := []flow.Held{{Label: flow.Internal}, {Label: flow.Untrusted}, {Label: flow.Unasked, Operation: "git.file"}}
	for name, c := range map[string]struct {
		op   flow.Operation
		p    *Profile
		args string
		runs bool
	}{
		"an address of the request":   {fetch, labels(0), `{"url":"https://docs.example/feed"}`, true},
		"with a word of it":           {fetch, labels(0), `{"url":"https://docs.example/feed","language":"English"}`, true},
		"in another spelling":         {fetch, labels(0), `{"url":"https://DOCS.example/feed"}`, false},
		"with data":                   {fetch, labels(0), `{"url":"https://docs.example/feed?d=key"}`, false},
		"another address":             {fetch, labels(0), `{"url":"https://docs.example/c"}`, false},
		"with a flag of the agent's":  {fetch, labels(0), `{"url":"https://docs.example/feed","language":"kept-1"}`, false},
		"with a number":               {fetch, labels(0), `{"url":"https://docs.example/feed","size":73}`, false},
		"with a yes or no":            {fetch, labels(0), `{"url":"https://docs.example/feed","size":true}`, false},
		"with headers":                {fetch, labels(0), `{"url":"https://docs.example/feed","headers":{"English":"English"}}`, false},
		"with an argument of no role": {fetch, labels(0), `{"url":"https://docs.example/feed","more":"English"}`, false},
		"with empty ones":             {fetch, labels(0), `{"url":"https://docs.example/feed","language":"","size":""}`, false},
		"a list":                      {fetch, labels(0), `{"url":["https://docs.example/feed","https://docs.example/b"]}`, false},
		"nothing":                     {fetch, labels(0), `{}`, false},
		"a write":                     {post, labels(2), `{"url":"https://docs.example/feed"}`, false},
	} {
		r := JudgeCall(c.op, c.p, []byte(c.args), Situation{Held: held, Request: ParseRequest(request)})
		if (r.Verdict == Permit) != c.runs {
			t.Errorf("%s: %s, %s", name, r.Verdict, r.Reason)
		}
	}
}
