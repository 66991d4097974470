// Package declare holds declarations: before an agent gets something from outside, it declares what it needs, why, where, and how it will use
// the answer (DE-1, DE-2).
//
// Promises: one strict parse lists every problem, field by field. A declaration that says nothing specific is refused, so that its approver
// has something to judge. The digest changes with every field. A declaration is spent once, and a final state stays. Nothing here reads a
// clock.
//
// It can't promise that a declaration is true. The table of filler words is English: an empty phrase in another language passes, and a person
// sees it unchanged.
package declare

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// Bounds of what an agent declares.
const (
	MaxBody  = 64 << 10 // bytes of a declaration
	MaxField = 2000     // bytes of each field of a justification
	maxWord  = 200      // bytes of operation, phase and session_id
)

// Justification is the reason: the person's own question, what the model doesn't know, and how the answer will be used.
type Justification struct {
	UserRequest      string `json:"user_request"`
	MissingKnowledge string `json:"missing_knowledge"`
	ExpectedUse      string `json:"expected_use"`
}

// Request is one external need as an agent declares it.
type Request struct {
	Operation     string          `json:"operation"`
	Parameters    json.RawMessage `json:"parameters"` // canonical
	Justification Justification   `json:"justification"`
	Phase         string          `json:"phase"`
	SessionID     string          `json:"session_id"`
}

// Problem is one problem of a field, as the 422 answer lists it. Field is "body" for the whole request. Problems name fields, also unknown ones,
// but repeat no value that was sent.
type Problem struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
}

// Flags of a valid declaration, for whoever judges it.
const (
	RequestParaphrased = "request_paraphrased"  // user_request quotes little of the person's request
	NoRequestOnRecord  = "no_request_on_record" // the person's request is not known, so user_request was not compared with it
)

// Parse reads the body of a declaration. It refuses unknown, duplicate and case-variant names (docs/design.md, rule 5). If there are problems, the
// request holds what could be read, and the other fields are empty.
func Parse(body json.RawMessage) (Request, []Problem) {
	var r Request
	members, problems := object("body", body, "operation", "parameters", "justification", "phase", "session_id")
	if members == nil {
		return r, problems
	}
	p := &problems
	r.Operation = text(p, "operation", members["operation"], maxWord)
	if raw, ok := members["parameters"]; !ok {
		add(p, "parameters", "is missing: an object with what the operation is called with")
	} else if raw[0] != '{' {
		add(p, "parameters", "must be an object")
	} else {
		r.Parameters = raw
	}
	if raw, ok := members["justification"]; !ok {
		add(p, "justification", "is missing: an object with user_request, missing_knowledge and expected_use")
	} else {
		var more []Problem
		r.Justification, more = ParseJustification(raw)
		*p = append(*p, more...)
	}
	r.Phase = text(p, "phase", members["phase"], maxWord)
	r.SessionID = text(p, "session_id", members["session_id"], maxWord)
	return r, problems
}

// ParseJustification reads the inline form in the arguments of a call. Its fields are named "justification.user_request" and so on.
func ParseJustification(raw json.RawMessage) (Justification, []Problem) {
	members, problems := object("justification", raw, "user_request", "missing_knowledge", "expected_use")
	if members == nil {
		return Justification{}, problems
	}
	p := &problems
	j := Justification{
		UserRequest:      text(p, "justification.user_request", members["user_request"], MaxField),
		MissingKnowledge: text(p, "justification.missing_knowledge", members["missing_knowledge"], MaxField),
		ExpectedUse:      text(p, "justification.expected_use", members["expected_use"], MaxField),
	}
	return j, problems
}

// Merge returns problems and those of more that are not about a field of problems or a part of one: a field that Parse couldn't read would be
// missing for Check as well.
func Merge(problems, more []Problem) []Problem {
	merged := slices.Clip(problems)
	for _, m := range more {
		if !slices.ContainsFunc(problems, func(p Problem) bool {
			return p.Field == "body" || m.Field == p.Field || strings.HasPrefix(m.Field, p.Field+".")
		}) {
			merged = append(merged, m)
		}
	}
	return merged
}

// maxProblems bounds how many unknown members are named.
const maxProblems = 20

func add(problems *[]Problem, field, format string, args ...any) {
	*problems = append(*problems, Problem{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// object reads raw as an object that has no other members than those named. It returns nil members if raw can't be read at all.
func object(field string, raw []byte, names ...string) (map[string]json.RawMessage, []Problem) {
	lim := call.DefaultLimits()
	lim.Bytes = MaxBody
	canonical, err := call.Canonical(raw, lim)
	if err != nil {
		return nil, []Problem{{field, fault.Of(err).Public()}}
	}
	if canonical[0] != '{' {
		return nil, []Problem{{field, "must be an object with " + strings.Join(names, ", ")}}
	}
	var problems []Problem
	members := make(map[string]json.RawMessage, len(names))
	for name, value := range call.Members(canonical) {
		if slices.Contains(names, name) {
			members[name] = value
			continue
		}
		if len(problems) >= maxProblems {
			continue
		}
		at, what := field, "has a member that is not a field"
		if plainName.MatchString(name) { // other names are not repeated
			what = "is not a field"
			if at = name; field != "body" {
				at = field + "." + name
			}
		}
		if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) }); i >= 0 {
			add(&problems, at, "%s: write %s", what, names[i])
		} else {
			add(&problems, at, "%s: there are %s", what, strings.Join(names, ", "))
		}
	}
	return members, problems
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}$`)

// text reads a string of at most most bytes. If there is a problem with it, it is "".
func text(problems *[]Problem, field string, raw json.RawMessage, most int) string {
	var s string
	switch {
	case raw == nil:
		add(problems, field, "is missing")
	case raw[0] != '"' || json.Unmarshal(raw, &s) != nil:
		add(problems, field, "must be a string")
	case len(s) > most:
		add(problems, field, "is %d bytes long; at most %d", len(s), most)
	default:
		return s
	}
	return ""
}

// Context is what a request is checked against.
type Context struct {
	Session     string                      // id of the session in which it was made
	UserRequest string                      // the person's request on record; may be ""
	Known       func(operation string) bool // whether there is such an operation; nil: none is known
}

// Check returns the problems of a request, and flags for whoever judges it. A request with problems must not be judged further. parameters.url and
// parameters.scope have the meaning of DE-1 in the built-in operations (comm.…); in the operations of other servers, the server's schema gives them
// their meaning.
func (r Request) Check(c Context) (problems []Problem, flags []string) {
	p := &problems
	switch {
	case r.Operation == "":
		add(p, "operation", "is missing")
	case c.Known == nil || !c.Known(r.Operation):
		if dotted := strings.Replace(r.Operation, "_", ".", 1); c.Known != nil && c.Known(dotted) { // the model used the tool's name
			add(p, "operation", "is the name of a tool: write %s", dotted)
		} else {
			add(p, "operation", "is unknown: there is no such operation here")
		}
	}
	r.checkParameters(p)
	flags = r.Justification.check(p, c.UserRequest)
	switch r.Phase {
	case "execution":
	case "":
		add(p, "phase", "is missing: a declaration is for the execution phase; write execution")
	case "planning":
		add(p, "phase", "must be execution: nothing external happens in the planning phase, so it can't be declared for it")
	default:
		add(p, "phase", "must be execution: no other phase has declarations")
	}
	switch {
	case r.SessionID == "":
		add(p, "session_id", "is missing")
	case c.Session == "" || r.SessionID != c.Session:
		add(p, "session_id", "is not this session's")
	}
	return problems, flags
}

func (r Request) checkParameters(p *[]Problem) {
	if len(r.Parameters) == 0 {
		add(p, "parameters", "is missing: an object with what the operation is called with")
		return
	}
	if call.Check(r.Parameters, call.DefaultLimits()) != nil || strings.TrimLeft(string(r.Parameters), " \t\r\n")[0] != '{' {
		add(p, "parameters", "must be an object")
		return
	}
	builtIn := strings.HasPrefix(r.Operation, "comm.")
	if s, ok := member(p, r.Parameters, "query", builtIn); ok {
		checkText(p, "parameters.query", s, "say what exactly to look for")
	}
	if !builtIn {
		return
	}
	if s, ok := member(p, r.Parameters, "url", true); ok {
		if u, err := url.Parse(s); err != nil || u.Scheme == "" || u.Host == "" {
			add(p, "parameters.url", "must be a whole URL, such as https://example.com/page")
		} else if at, what := unseen(s); what != "" {
			add(p, "parameters.url", "has %s as its character %d; leave it out", what, at)
		}
	}
	if s, ok := member(p, r.Parameters, "scope", true); ok && s != "web" && s != "internal" && s != "database" {
		add(p, "parameters.scope", "must be web, internal or database")
	}
}

// member returns a string member of the parameters, if it is there. strict makes anything but a string a problem.
func member(p *[]Problem, parameters json.RawMessage, name string, strict bool) (s string, ok bool) {
	raw, ok := call.Get(parameters, name)
	if !ok {
		return "", false
	}
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		if strict {
			add(p, "parameters."+name, "must be a string")
		}
		return "", false
	}
	return s, true
}

// checkText refuses text that is empty, has parts that a person can't see, or says nothing specific.
func checkText(p *[]Problem, field, s, remedy string) (ok bool) {
	most := MaxField
	if !strings.HasPrefix(field, "justification.") {
		most = MaxBody
	}
	if len(s) > most {
		add(p, field, "is %d bytes long; at most %d", len(s), most)
		return false
	}
	switch at, what := unseen(s); {
	case strings.TrimSpace(s) == "":
		add(p, field, "is missing: %s", remedy)
	case !utf8.ValidString(s):
		add(p, field, "is not valid UTF-8")
	case what != "":
		add(p, field, "has %s as its character %d; leave it out", what, at)
	case vague(s):
		add(p, field, "is vague: %s", remedy)
	default:
		return true
	}
	return false
}

// check adds the problems of a justification and returns its flags. record is the person's request on record, or "".
func (j Justification) check(p *[]Problem, record string) (flags []string) {
	const (
		request = "justification.user_request"
		use     = "justification.expected_use"
	)
	quoted := record != "" && len(j.UserRequest) <= MaxField && same(j.UserRequest, record)
	// The person's request is quoted unchanged, even if it is vague.
	if _, what := unseen(j.UserRequest); !quoted || what != "" {
		if checkText(p, request, j.UserRequest, "say what exactly the person asked for, in the person's words") && record != "" {
			switch shared, of, compared := overlap(j.UserRequest, record); {
			case compared && shared == 0:
				add(p, request, "quotes nothing of the person's request: use the person's words")
			case 2*shared < of:
				flags = append(flags, RequestParaphrased)
			}
		}
	}
	if record == "" {
		flags = append(flags, NoRequestOnRecord)
	}
	checkText(p, "justification.missing_knowledge", j.MissingKnowledge, "say what exactly you don't know")
	if checkText(p, use, j.ExpectedUse, "say what exactly the answer will be used for, such as to summarize or compare it") {
		// missing_knowledge may repeat the question; expected_use may repeat neither.
		for _, other := range []string{j.UserRequest, j.MissingKnowledge} {
			if len(other) <= MaxField && same(j.ExpectedUse, other) {
				add(p, use, "repeats another field: say how the answer will be used")
				break
			}
		}
	}
	return flags
}

// CheckStep returns the problems of the reason that a step of a plan gives for a built-in external operation: like the fields of a justification,
// it must be specific (DE-2). field is the name of the reason in the request.
func CheckStep(field, reason string) (problems []Problem) {
	checkText(&problems, field, reason, "say what exactly is needed and what it will be used for")
	return problems
}
