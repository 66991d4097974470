// Package suggest reads what tool servers say about their tools, to propose what an operator may say about them (provenance.Profile).
//
// Promises: a definition is hostile. Reading one takes bounded time whatever is in it, and nothing that a server says about itself makes a
// proposal more permissive than no label is, but through arguments that the proposal names as free.
package suggest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/naming"
	"sallyport.example/provenance"
)

const (
	maxComment = 160 // bytes of a server's words in one comment
)

// Tool is a tool as its server describes it. Definition is the server's own words.
type Tool struct {
	Name       string // the server's own name for it
	Definition json.RawMessage
}

// Proposal is what may be said about one tool, for an operator to read, check and paste. It is made of the definition alone, so every word of
// it may be what a hostile server wants to be believed: it never says that results can be trusted, never calls anything a read, and frees
// only the arguments in Frees.
type Proposal struct {
	Operation   string                     `json:"operation"` // <server>.<tool>
	Sensitivity flow.Sensitivity           `json:"sensitivity"`
	Action      string                     `json:"action,omitempty"` // of the risk rules
	IDKind      string                     `json:"id_kind,omitempty"`
	EgressURL   bool                       `json:"egress_url,omitempty"`
	Args        map[string]provenance.Role `json:"args"`
	Left        []string                   `json:"without_role,omitempty"` // arguments that have no role: they have to be confirmed
	Frees       []string                   `json:"frees,omitempty"`        // arguments that an outsider may write without a question, sorted
	Cut         bool                       `json:"cut,omitempty"`          // the schema has more than was read: the rest has to be confirmed
	Skipped     string                     `json:"skipped,omitempty"`      // why there is no proposal
	Allows      []string                   `json:"allows,omitempty"`       // what it would allow, in sentences

	tool     Tool
	reasons  map[string]string // argument -> why it has its role, or none
	comments []string          // what might be said besides, which only the operator can know
}

// Profile is the proposal as the flow rules read it.
func (p *Proposal) Profile() *provenance.Profile {
	profile := &provenance.Profile{Output: provenance.UntrustedOutput, Level: 2, IDKind: p.IDKind, EgressURL: p.EgressURL}
	if len(p.Args) > 0 {
		profile.Args = p.Args
	}
	return profile
}

// For makes a proposal for a tool.
func For(server string, tool Tool) Proposal {
	p := Proposal{Operation: server + "." + tool.Name, Sensitivity: flow.External, Args: map[string]provenance.Role{}, tool: tool, reasons: map[string]string{}}
	switch {
	case tool.Name == "" || len(tool.Name) > 200 || strings.ContainsFunc(tool.Name, func(r rune) bool { return r == '*' || !unicode.IsPrint(r) }):
		// Such a name could be read as an entry for the whole server.
		p.Skipped = "its name can't stand in a configuration"
		return p
	case len(tool.Definition) == 0:
		p.Skipped = "no person has accepted its definition yet (sallyport tools accept --all)"
		return p
	}
	schema, _ := call.Get(tool.Definition, "inputSchema")
	s := naming.ReadSchema(schema)
	p.Cut = s.Cut
	t := naming.OfTool(tool.Name)
	p.Action = t.Action()
	if t.Reads() {
		// Whether it reads the organisation's own data, or what is public, its definition doesn't tell.
		p.Sensitivity = flow.Both
	}
	kinds := map[string]string{} // selector -> kind
	for _, a := range s.Arguments {
		role, why := t.Role(a)
		if p.reasons[a.Path] = why; role == "" {
			p.Left = append(p.Left, a.Path)
			continue
		}
		p.Args[a.Path] = role
		switch role {
		case provenance.Selector:
			kinds[a.Path] = t.Kind(a)
		case provenance.URL:
			p.EgressURL = true
		case provenance.Amount, provenance.Content, provenance.Query, provenance.Flag, provenance.Time, provenance.Name:
			p.Frees = append(p.Frees, a.Path)
		}
	}
	p.oneKind(t, kinds)
	p.anchored()
	slices.Sort(p.Frees)
	p.results(t)
	p.Allows = p.Profile().Explain(flow.Operation{ID: p.Operation, Sensitivity: p.Sensitivity, BlockedBy: []flow.Label{flow.Internal}})
	return p
}

// anchored takes all roles back where nothing in a call would have to be confirmed.
func (p *Proposal) anchored() {
	for _, role := range p.Args {
		if role.Core() || role.Soft() {
			return
		}
	}
	if len(p.Left) > 0 {
		return
	}
	for arg := range p.Args {
		p.Left = append(p.Left, arg)
		p.reasons[arg] = "nothing else in the call could be confirmed"
	}
	clear(p.Args)
	p.Frees = nil
	slices.Sort(p.Left)
}

// oneKind gives the operation the kind of its ids. It has one: selectors of another kind lose their role, which is the stricter way.
func (p *Proposal) oneKind(t naming.ToolName, kinds map[string]string) {
	for _, kind := range kinds {
		if p.IDKind == "" || slices.Contains(t.Words, kind) && !slices.Contains(t.Words, p.IDKind) || kind < p.IDKind && slices.Contains(t.Words, kind) == slices.Contains(t.Words, p.IDKind) {
			p.IDKind = kind
		}
	}
	for arg, kind := range kinds {
		if kind != p.IDKind {
			delete(p.Args, arg)
			p.reasons[arg] = "an id of another kind than the others"
			p.Left = append(p.Left, arg)
		}
	}
	slices.Sort(p.Left)
}

// results proposes what only the operator can know: comments, never labels.
func (p *Proposal) results(t naming.ToolName) {
	hint := func(format string, args ...any) { p.comments = append(p.comments, fmt.Sprintf(format, args...)) }
	if a, ok := call.Get(p.tool.Definition, "annotations"); ok && t.Reads() {
		if hint1, ok := call.Get(a, "readOnlyHint"); ok && string(hint1) == "true" {
			hint("effect: read  # instead of level: the server says that it only reads; check it, for what a server says about itself is no proof")
		}
	} else if t.Reads() {
		hint("effect: read  # instead of level: if you know that it only reads")
	}
	schema, _ := call.Get(p.tool.Definition, "outputSchema")
	var system, names, people []string
	for _, a := range naming.ReadSchema(schema).Arguments {
		field := a.Path[strings.LastIndexByte(a.Path, '.')+1:]
		if !plainName.MatchString(field) {
			continue
		}
		switch w := naming.Split(field); {
		case naming.Is(field, "id", "uuid", "size", "created_at", "updated_at"):
			system = append(system, field)
		case naming.Is(field, "title", "name", "subject", "filename", "file_name"):
			names = append(names, field)
		case naming.Has(w, "from", "sender", "attendees", "participants", "owner", "author") && !naming.Has(w, "id"):
			people = append(people, field)
		}
	}
	list := func(words []string) string {
		slices.Sort(words)
		words = slices.Compact(words)
		return strings.Join(words[:min(8, len(words))], ", ")
	}
	if len(system) > 0 {
		hint("trusted_fields: [%s]  # only what the system sets and nobody outside can write", list(system))
	}
	if len(names) > 0 {
		hint("names: [%s]  # by which a person refers to a record", list(names))
	}
	if len(people) > 0 {
		hint("delegable: [%s]  # if who stands there may get something when the request names the record", list(people))
	}
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// Write writes proposals as YAML for sallyport.yaml, with comments that say why. Names and words of servers stand in it escaped.
func Write(all []Proposal) string {
	var b strings.Builder
	line := func(indent int, format string, args ...any) {
		b.WriteString(strings.Repeat(" ", indent))
		fmt.Fprintf(&b, format, args...)
		b.WriteByte('\n')
	}
	line(0, "# Proposed entries for sallyport.yaml, made of what the servers say about their tools: read each before you paste it.")
	line(0, "# By pasting an entry you accept that agents with permission may call the tool; what stands above the entry; and, where it has args, that a")
	line(0, "# session that holds internal data may call it where everything that has to be confirmed is confirmed: the rest of the call goes along.")
	line(0, "# Everything that isn't said is the stricter choice. What a server says about itself is no reason to trust it, so every tool is a write here, and")
	line(0, "# what it answers untrusted.")
	line(0, "operations:")
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Proposal) int { return cmp.Compare(a.Operation, b.Operation) })
	entries, kinds := 0, kindsOf(all)
	for _, p := range all {
		p.gives(kinds)
		line(0, "")
		title := comment(p.Operation)
		if d, ok := text(p.tool.Definition, "description"); ok {
			title += ", which its server describes so: " + comment(d)
		}
		line(2, "# %s", title)
		if p.Skipped != "" {
			line(2, "# Nothing is proposed: %s.", p.Skipped)
			continue
		}
		entries++
		p.write(line)
	}
	if entries == 0 {
		line(2, "{}")
	}
	return b.String()
}

// kindsOf are what the ids denote that tools take, by server.
func kindsOf(all []Proposal) map[string][]string {
	kinds := map[string][]string{}
	for _, p := range all {
		if server, _, _ := strings.Cut(p.Operation, "."); p.IDKind != "" && !slices.Contains(kinds[server], p.IDKind) {
			kinds[server] = append(kinds[server], p.IDKind)
		}
	}
	return kinds
}

// gives hints at the word for the ids in what the tool answers, where a tool beside it takes ids of what this one is about.
func (p *Proposal) gives(kinds map[string][]string) {
	server, tool, _ := strings.Cut(p.Operation, ".")
	words := naming.Split(tool)
	if p.Skipped != "" || p.IDKind != "" {
		return
	}
	of := kinds[server]
	slices.Sort(of)
	for _, kind := range of {
		noun := kind[strings.LastIndexByte(kind, '_')+1:]
		if naming.Has(words, noun, noun+"s", noun+"es", strings.TrimSuffix(noun, "y")+"ies") {
			p.comments = append(slices.Clone(p.comments), fmt.Sprintf("id_kind: %s  # if the ids in its results are those that other tools of the server take: without it they confirm none", comment(naming.Key(kind))))
			return
		}
	}
}

func (p *Proposal) write(line func(indent int, format string, args ...any)) {
	switch {
	case len(p.Args) == 0:
		line(2, "# You accept: nothing else; no argument has a role, so once a session has read untrusted content each call is asked about.")
	case len(p.Frees) == 0:
		line(2, "# You accept: nothing else; each argument has to be confirmed.")
	default:
		line(2, "# You accept: what stands in %s may be an outsider's.", comment(strings.Join(p.Frees, ", ")))
	}
	if p.Cut {
		line(2, "# Its schema is larger or deeper than is read here, or can't be read: every other argument has to be confirmed.")
	}
	line(2, "%s:", naming.Key(p.Operation))
	switch p.Sensitivity {
	case flow.Both:
		line(4, "sensitivity: both  # internal_source if nothing outside sees what it is asked, external if everything it reads is public")
	default:
		line(4, "sensitivity: %s", p.Sensitivity)
	}
	line(4, "level: 2")
	line(4, "output: untrusted")
	if p.Action != "" {
		line(4, "action: %s  # only raises the risk", p.Action)
	}
	if p.EgressURL {
		line(4, "egress_url: true")
	}
	if p.IDKind != "" {
		line(4, "id_kind: %s  # the tools that such ids come from need the same word", naming.Key(p.IDKind))
	}
	for _, c := range p.comments {
		line(4, "# %s", c)
	}
	if len(p.Args) > 0 {
		line(4, "args:")
		for _, arg := range sorted(p.Args) {
			line(6, "%s: %s  # %s", naming.Key(arg), p.Args[arg], p.reasons[arg])
		}
	}
	at := 4
	if len(p.Args) > 0 {
		at = 6
	}
	for _, arg := range p.Left {
		line(at, "# %s: %s, so it has to be confirmed", comment(arg), p.reasons[arg])
	}
}

func sorted(m map[string]provenance.Role) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// comment is foreign text that ends with its line and shows as it is.
func comment(s string) string { return display.Line(s, maxComment) }

func text(definition json.RawMessage, member string) (string, bool) {
	raw, ok := call.Get(definition, member)
	var s string
	return s, ok && json.Unmarshal(raw, &s) == nil && s != ""
}
