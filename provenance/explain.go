package provenance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/sentence"
)

// Explain says in sentences what a profile allows: what a session that has read untrusted content, or holds labels that block the
// operation, may do with it without a person, and what its results may vouch for. It is for the operator, who has to know what one wrong
// word would open, and says the same as JudgeCall does. A nil profile says nothing about the operation, and that is what is explained.
func (p *Profile) Explain(op flow.Operation) []string {
	if p == nil {
		p = &Profile{Level: 2}
	}
	if !op.Sensitivity.Valid() {
		return []string{"It is always refused: its sensitivity is not known."}
	}
	says := p.explainCalls(len(op.BlockedBy) > 0)
	if len(op.BlockedBy) > 0 {
		says = append(says, p.explainLabels(op.BlockedBy))
		if p.Level == 0 && !p.EgressURL && op.Effect == flow.Read && p.Told() && len(p.core()) == 0 {
			says = append(says, fmt.Sprintf("A call runs all the same if each of its arguments stands in the person's request, letter for letter. Where the session has read nothing untrusted, up to %d may be a small choice instead: yes or no, one digit, one of a list of up to %d that its definition has.", maxChoices, maxChoice))
		}
	}
	return append(says, p.explainResults()...)
}

// having are the arguments with one of the roles, in order.
func (p *Profile) having(any ...Role) []string {
	var args []string
	for _, arg := range slices.Sorted(maps.Keys(p.Args)) {
		if slices.Contains(any, p.Args[arg]) {
			args = append(args, sentence.Name(arg))
		}
	}
	return args
}

// core are the arguments that have to be vouched for because of their roles, in order; words that are no role count among them.
func (p *Profile) core() []string {
	var args []string
	for _, arg := range slices.Sorted(maps.Keys(p.Args)) {
		if _, err := ParseRole(string(p.Args[arg])); err != nil || p.Args[arg].Core() {
			args = append(args, sentence.Name(arg))
		}
	}
	return args
}

func (p *Profile) explainCalls(blocked bool) (says []string) {
	say := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	const after = "Once the session has read untrusted content, "
	traced := p.Level != 0 || p.EgressURL
	switch {
	case !traced:
		say("It counts as a read that carries nothing out: what its arguments are is not looked at before it runs, whatever the session has read. Private data that it then brings leaves only by a question, but where the request leads to what is read.")
		if !blocked {
			return says
		}
	case !p.Told():
		say("No label says what its arguments are for: once the session has read untrusted content, every argument must be vouched for, or a person is asked.")
	}
	if p.Level == 1 && !p.EgressURL {
		say("It counts as a write that only the person sees and can undo: with flow.free_level_1 it runs without a question.")
	}
	if p.Level == 0 && p.EgressURL {
		say("It is a read whose address can carry data out, so it is looked at like a write.")
	}
	if !p.Told() {
		return says
	}
	core := p.core()
	switch {
	case !traced:
	case len(core) > 0:
		say(after+"a call outside the sealed plan runs without a question only if %s vouched for.", areAll(core))
	default:
		soft := p.having(Name)
		if len(soft) == 0 {
			soft = p.having(Time)
		}
		if len(soft) > 0 {
			say(after+"a call outside the sealed plan runs without a question only if %s vouched for.", areAll(soft))
		} else {
			say(after + "a person is asked about a call outside the sealed plan: no argument has a role that could be vouched for.")
		}
	}
	says = append(says, p.explainVouchers()...)
	if !traced {
		return says
	}
	if soft := p.having(Name, Time); len(soft) > 0 && len(core) > 0 {
		say("What stands in %s is looked at only in a call without any of these.", sentence.List(soft))
	}
	if content := p.having(Content); len(content) > 0 {
		say("What stands in %s is not checked except for links: an outsider may have written it.", sentence.List(content))
	}
	if free := p.having(Query, Flag, Currency); len(free) > 0 {
		say("What stands in %s is not checked at all.", sentence.List(free))
	}
	say("Any other argument must be vouched for.")
	return says
}

// explainVouchers says for each role who may vouch for its arguments.
func (p *Profile) explainVouchers() (says []string) {
	results := "trusted results and fields"
	bound := p.Level != 0 && p.Level != 1
	if bound {
		results += " of a record that the request singles out"
	}
	const request, own, delegated = "the person's request", "the person's own identities", "delegable fields of a record that the request singles out"
	to := results
	if bound && p.Boundary == BoundaryInternal {
		to = "any trusted result or field, since it stays inside the organisation"
	}
	for _, w := range []struct {
		role Role
		by   []string
	}{
		{Destination, []string{request, own, to, delegated}},
		{URL, []string{request, results}},
		{Amount, []string{request, results, "where the person named who gets it, anywhere"}},
		{Credential, []string{request + ", to the letter"}},
		{Identity, []string{request, own, results}},
		{Selector, []string{request, "ids " + ofKind(p.IDKind) + " in " + results}},
		{Target, []string{request, own, results, delegated}},
		{Path, []string{request, own, results}},
		{Repository, []string{request, own, results}},
		{Table, []string{request, own, results}},
		{Code, []string{request, own, results}},
	} {
		if args := p.having(w.role); len(args) > 0 {
			says = append(says, fmt.Sprintf("%s (%s) may come from %s; or what a person approved before.", sentence.List(args), w.role, strings.Join(w.by, "; ")))
		}
	}
	return says
}

func (p *Profile) explainLabels(blocked []flow.Label) string {
	labels := sentence.Names(blocked)
	switch {
	case !p.Told():
		return fmt.Sprintf("While the session holds %s it is refused, wherever its arguments would lead.", labels)
	case p.Boundary == BoundaryByArg && len(p.having(Destination, URL)) == 0:
		return fmt.Sprintf("That the session holds %s never refuses it: it is said to leave by an argument, and none is a destination or url.", labels)
	case p.Boundary == BoundaryByArg:
		return fmt.Sprintf("While the session holds %s it runs without a look at that as long as %s, where given, the person's own; otherwise only if %s vouched for, by what the request names or singles out, or a person is asked.",
			labels, are(p.having(Destination, URL)), areAll(p.core()))
	case len(p.core()) == 0:
		return fmt.Sprintf("While the session holds %s it is refused, since no argument that has a role says where the data would go.", labels)
	}
	return fmt.Sprintf("While the session holds %s it runs only if %s vouched for, by what the request names or singles out, or a person is asked; a call with nothing to vouch for is refused.", labels, areAll(p.core()))
}

func (p *Profile) explainResults() (says []string) {
	say := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	trusted := p.Output == TrustedOutput || p.Output == TypedOutput && p.Shape != nil
	shape := ""
	if p.Shape != nil {
		shape = fmt.Sprintf("%.200q", p.Shape.String())
	}
	switch {
	case trusted && p.Shape != nil:
		say("Its results are trusted while every string in them matches %s: then each value vouches for itself, whoever wrote it. A result that doesn't match is untrusted.", shape)
	case trusted:
		say("Its results are trusted, and no shape limits them: each value vouches for itself, whoever wrote it.")
	case p.Output == EchoOutput:
		say("Its results repeat what it was given, and vouch for nothing%s.", but(p.TrustedFields))
	case p.Output == TypedOutput:
		say("Its results are untrusted, since typed output without a shape is: they vouch for nothing%s.", but(p.TrustedFields))
	default:
		say("Its results are untrusted: they vouch for nothing%s.", but(p.TrustedFields))
	}
	if trusted && p.Shape != nil && len(p.TrustedFields) > 0 {
		say("Of an untrusted result %s for themselves.", vouch(p.TrustedFields))
	}
	if len(p.Names) > 0 {
		say("A request that has the value of %s singles the record out.", or(p.Names))
	}
	if trusted || slices.ContainsFunc(p.TrustedFields, func(f string) bool { return numbering(f, p.IDKind) }) {
		say("A request that gives the id or the number of a record singles it out.")
	}
	if len(p.Delegable) > 0 && (!trusted || p.Shape != nil) {
		say("In a record that the request singles out, %s may say who gets something, although an outsider may have written it.", or(p.Delegable))
	}
	if p.IDKind != "" {
		say("Its ids are %s, and vouch for no others.", ofKind(p.IDKind))
	}
	return says
}

func ofKind(kind string) string {
	if kind == "" {
		return "of the same server"
	}
	return "of the kind " + sentence.Name(kind)
}

func but(fields []string) string {
	if len(fields) == 0 {
		return ""
	}
	return ", but " + vouch(fields) + " for themselves: the system sets them"
}

func vouch(fields []string) string {
	if len(fields) == 1 {
		return sentence.Name(fields[0]) + " and what is in it vouch"
	}
	return sentence.Names(fields) + " vouch"
}

// are is "a is" or "a, b are".
func are(words []string) string {
	if len(words) == 1 {
		return words[0] + " is"
	}
	return sentence.List(words) + " are"
}

// areAll is "a is" or "all of a, b are".
func areAll(words []string) string {
	if len(words) == 1 {
		return words[0] + " is"
	}
	return "all of " + sentence.List(words) + " are"
}

func or(names []string) string {
	if len(names) == 1 {
		return sentence.Name(names[0])
	}
	return "one of " + sentence.Names(names)
}
