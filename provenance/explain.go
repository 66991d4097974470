package provenance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/sentence"
)

// Explain describes in sentences what a profile allows: what a session that has read untrusted content, or holds labels that block the operation,
// may do with it without a question, and which values its results confirm. It shows the operator what one wrong label would open, and agrees with
// JudgeCall. A nil profile stands for an operation without labels.
func (p *Profile) Explain(op flow.Operation) []string {
	p = cmp.Or(p, &Profile{Level: 2})
	if !op.Sensitivity.Valid() {
		return []string{"It is always refused: its sensitivity is not known."}
	}
	says := p.explainCalls(len(op.BlockedBy) > 0)
	if len(op.BlockedBy) > 0 {
		says = append(says, p.explainLabels(op.BlockedBy))
		if p.Level == 0 && !p.EgressURL && op.Effect == flow.Read && p.HasRoles() && len(p.core()) == 0 {
			says = append(says, fmt.Sprintf("A call runs all the same if each of its arguments stands in the person's request, letter for letter. Where the session has read nothing untrusted, up to %d may be a small choice instead: yes or no, one digit, one of a list of up to %d that its definition has.", maxChoices, maxChoice))
		}
	}
	return append(says, p.explainResults()...)
}

// having are the arguments with one of the roles, in order.
func (p *Profile) having(any ...Role) []string {
	return p.arguments(func(r Role) bool { return slices.Contains(any, r) })
}

// core are the arguments that have to be confirmed because of their roles, in order. An argument with an unknown role is one of them.
func (p *Profile) core() []string {
	return p.arguments(func(r Role) bool { return r.Core() || !slices.Contains(roles, r) })
}

// arguments are the names, in order, of the arguments whose role is one of these.
func (p *Profile) arguments(is func(Role) bool) (names []string) {
	for _, arg := range slices.Sorted(maps.Keys(p.Args)) {
		if is(p.Args[arg]) {
			names = append(names, sentence.Name(arg))
		}
	}
	return names
}

func (p *Profile) explainCalls(blocked bool) (says []string) {
	say := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	const after = "Once the session has read untrusted content, "
	traced := p.Level != 0 || p.EgressURL
	switch {
	case !traced:
		say("It counts as a read that carries nothing out: it runs without a check of its arguments, whatever the session has read. Private data that it then returns leaves only after a question, unless the request selects the data that is read.")
		if !blocked {
			return says
		}
	case !p.HasRoles():
		say("Its arguments have no roles: once the session has read untrusted content, a person is asked unless every argument is confirmed.")
	}
	if p.Level == 1 && !p.EgressURL {
		say("It counts as a write that only the person sees and can undo: with flow.free_level_1 it runs without a question.")
	}
	if p.Level == 0 && p.EgressURL {
		say("It is a read whose address can carry data out, so it is checked like a write.")
	}
	if !p.HasRoles() {
		return says
	}
	core := p.core()
	must := core
	for _, soft := range []Role{Name, Time} {
		if len(must) == 0 {
			must = p.having(soft)
		}
	}
	switch {
	case !traced:
	case len(must) > 0:
		say(after+"a call outside the sealed plan runs without a question only if %s confirmed.", areAll(must))
	default:
		say(after + "a person is asked about a call outside the sealed plan: no argument has a role that can be confirmed.")
	}
	says = append(says, p.explainSources()...)
	if !traced {
		return says
	}
	if places := p.having(Destination, URL); len(places) > 0 && p.Boundary != BoundaryByArg {
		unless := ""
		if len(p.MayOmit) > 0 {
			unless = ", unless only arguments are left out of which that keeps what is stored: " + sentence.Names(p.MayOmit)
		}
		say("A person is also asked if the call has no value for %s%s.", either(places), unless)
	}
	if soft := p.having(Name, Time); len(soft) > 0 && len(core) > 0 {
		say("The value of %s is checked only in a call without any of these, or with none but the person's own addresses.", sentence.List(soft))
	}
	if content := p.having(Content); len(content) > 0 {
		say("The text of %s is not checked except for links: an outsider may have written it.", sentence.List(content))
	}
	if free := p.having(Query, Flag, Currency); len(free) > 0 {
		say("The value of %s is not checked at all.", sentence.List(free))
	}
	say("Any other argument must be confirmed.")
	return says
}

// explainSources says for each role where its arguments may come from.
func (p *Profile) explainSources() (says []string) {
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
		{Target, []string{request, results, delegated}},
		{Path, []string{request, results}}, {Repository, []string{request, results}},
		{Table, []string{request, results}}, {Code, []string{request, results}},
	} {
		if args := p.having(w.role); len(args) > 0 {
			says = append(says, fmt.Sprintf("%s (%s) may come from %s; or a value that a person approved before.", sentence.List(args), w.role, strings.Join(w.by, "; ")))
		}
	}
	return says
}

func (p *Profile) explainLabels(blocked []flow.Label) string {
	labels := sentence.Names(blocked)
	switch {
	case !p.HasRoles():
		return fmt.Sprintf("While the session holds %s it is refused, whatever its arguments are.", labels)
	case p.Boundary == BoundaryByArg && len(p.having(Destination, URL)) == 0:
		return fmt.Sprintf("It is never refused because the session holds %s: its boundary is by_arg, and no argument is a destination or url.", labels)
	case p.Boundary == BoundaryByArg:
		return fmt.Sprintf("While the session holds %s it runs as without these labels as long as %s, where given, the person's own. Otherwise a person is asked unless %s confirmed by the request or by a record that it singles out.",
			labels, are(p.having(Destination, URL)), areAll(p.core()))
	case len(p.core()) == 0:
		return fmt.Sprintf("While the session holds %s it is refused, since no argument that has a role says where the data would go.", labels)
	}
	without := "such an argument"
	if places := p.having(Destination, URL); len(places) > 0 && len(p.MayOmit) == 0 {
		without = "a value for " + either(places)
	}
	return fmt.Sprintf("While the session holds %s a person is asked unless %s confirmed by the request or by a record that it singles out. A call without %s is refused.", labels, areAll(p.core()), without)
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
		say("Its results are trusted as long as every string and number in them matches %s: then they confirm each of their values, whoever wrote it. A result that doesn't match is untrusted.", shape)
	case trusted:
		say("Its results are trusted, and no shape limits them: they confirm each of their values, whoever wrote it.")
	case p.Output == EchoOutput:
		say("Its results repeat the arguments of the call, and confirm no value%s.", but(p.TrustedFields))
	case p.Output == TypedOutput:
		say("Its results are untrusted, because typed output needs a shape: they confirm no value%s.", but(p.TrustedFields))
	default:
		say("Its results are untrusted: they confirm no value%s.", but(p.TrustedFields))
	}
	if trusted && p.Shape != nil && len(p.TrustedFields) > 0 {
		say("An untrusted result confirms only the values of %s.", sentence.Names(p.TrustedFields))
	}
	if len(p.Names) > 0 {
		say("A request that has the value of %s singles the record out.", or(p.Names))
	}
	if trusted || slices.ContainsFunc(p.TrustedFields, func(f string) bool { return isIDOrNumber(f, p.IDKind) }) {
		say("A request that gives the id or the number of a record singles it out.")
	}
	if len(p.Delegable) > 0 && (!trusted || p.Shape != nil) {
		say("In a record that the request singles out, %s may say who gets something, although an outsider may have written it.", or(p.Delegable))
	}
	if p.IDKind != "" {
		say("Its ids are %s, and confirm no other ids.", ofKind(p.IDKind))
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
	return " except those of " + sentence.Names(fields) + ", which the system sets"
}

// are is "a is" or "a, b are".
func are(words []string) string { return agree("", words) }

// areAll is "a is" or "all of a, b are".
func areAll(words []string) string { return agree("all of ", words) }

func agree(all string, words []string) string {
	if len(words) == 1 {
		return words[0] + " is"
	}
	return all + sentence.List(words) + " are"
}

// either is "a" or "any of a, b".
func either(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "any of " + sentence.List(words)
}

func or(names []string) string {
	if len(names) == 1 {
		return sentence.Name(names[0])
	}
	return "one of " + sentence.Names(names)
}
