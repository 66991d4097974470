package suggest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

const (
	maxTools   = 2000 // of one server
	maxComment = 160  // bytes of a server's words in one comment
)

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
	Left        []string                   `json:"without_role,omitempty"` // arguments that have no role: they have to be vouched for
	Frees       []string                   `json:"frees,omitempty"`        // arguments that an outsider may write without a question, sorted
	Cut         bool                       `json:"cut,omitempty"`          // the schema has more than was read: what wasn't has to be vouched for
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
	s := ReadSchema(schema)
	p.Cut = s.Cut
	t := aboutTool(tool.Name)
	p.Action = t.action()
	if t.reads() {
		// Whether it reads the organisation's own data, or what is public, its definition doesn't tell.
		p.Sensitivity = flow.Both
	}
	kinds := map[string]string{} // selector -> kind
	for _, a := range s.Arguments {
		role, why := t.role(a)
		if p.reasons[a.Path] = why; role == "" {
			p.Left = append(p.Left, a.Path)
			continue
		}
		p.Args[a.Path] = role
		switch role {
		case provenance.Selector:
			kinds[a.Path] = t.kind(a)
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

// anchored takes all roles back where nothing in a call would have to be vouched for.
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
		p.reasons[arg] = "nothing else in the call could be vouched for"
	}
	clear(p.Args)
	p.Frees = nil
	slices.Sort(p.Left)
}

// oneKind gives the operation the kind of its ids. It has one: selectors of another kind lose their role, which is the stricter way.
func (p *Proposal) oneKind(t about, kinds map[string]string) {
	for _, kind := range kinds {
		if p.IDKind == "" || slices.Contains(t.words, kind) && !slices.Contains(t.words, p.IDKind) || kind < p.IDKind && slices.Contains(t.words, kind) == slices.Contains(t.words, p.IDKind) {
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
func (p *Proposal) results(t about) {
	hint := func(format string, args ...any) { p.comments = append(p.comments, fmt.Sprintf(format, args...)) }
	if a, ok := call.Get(p.tool.Definition, "annotations"); ok && t.reads() {
		if hint1, ok := call.Get(a, "readOnlyHint"); ok && string(hint1) == "true" {
			hint("effect: read  # instead of level: the server says that it only reads; check it, for what a server says about itself is no proof")
		}
	} else if t.reads() {
		hint("effect: read  # instead of level: if you know that it only reads")
	}
	schema, _ := call.Get(p.tool.Definition, "outputSchema")
	var system, names, people []string
	for _, a := range ReadSchema(schema).Arguments {
		field := a.Path[strings.LastIndexByte(a.Path, '.')+1:]
		if !plainName.MatchString(field) {
			continue
		}
		switch w := split(field); {
		case is(field, "id", "uuid", "size", "created_at", "updated_at"):
			system = append(system, field)
		case is(field, "title", "name", "subject", "filename", "file_name"):
			names = append(names, field)
		case has(w, "from", "sender", "attendees", "participants", "owner", "author") && !has(w, "id"):
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

// about is what the words of a tool's name tell.
type about struct {
	words []string
	acts  act
}

type act byte

const (
	unknown  act = iota
	reading      // search, list, get
	writing      // create, send, update
	removing     // delete, revoke
	running      // execute, sign, invoke: what is given is an order, whatever it is called
)

var verbs = map[act]string{
	reading:  "search find list get read fetch query lookup browse count view show describe",
	writing:  "create add new send post write update edit set put insert upload append reply forward draft schedule book reschedule move copy rename save publish share invite transfer pay refund submit comment assign reserve upsert modify change",
	removing: "delete remove drop destroy revoke cancel clear purge erase archive uninvite",
	running:  "run exec execute eval evaluate invoke call shell script sql command deploy install sign approve apply trigger http request graphql webhook login authorize grant code python bash terminal",
}

func aboutTool(name string) about {
	t := about{words: split(name)}
	for i, w := range t.words {
		for kind, list := range verbs {
			if !slices.Contains(strings.Fields(list), w) || kind == reading && i > 1 { // mark_as_read
				continue
			}
			t.acts = max(t.acts, kind) // of several the one that can do most: get_or_create creates
		}
	}
	return t
}

func (t about) reads() bool { return t.acts == reading }

// action is the name of what it does in the risk rules, which only raises the risk.
func (t about) action() string {
	for _, a := range []struct{ action, any, all string }{
		{"transfer_money", "transfer pay payment refund payout withdraw", ""},
		{"delete_data", "delete destroy drop purge erase", ""},
		{"grant_access", "grant permission permissions share invite", ""},
		{"publish_content", "publish tweet", ""},
		{"send_email", "send reply forward", "email emails mail"},
		{"schedule_meeting", "schedule create book", "meeting meetings event"},
		{"book_appointment", "book reserve", "appointment appointments reservation"},
	} {
		if has(t.words, strings.Fields(a.any)...) && (a.all == "" || has(t.words, strings.Fields(a.all)...)) {
			if t.reads() {
				return ""
			}
			return a.action
		}
	}
	return ""
}

// role is what an argument is for, as its name and type tell, and why; "" where that is not plain.
func (t about) role(a Argument) (role provenance.Role, why string) {
	name := a.Path[strings.LastIndexByte(a.Path, '.')+1:]
	w := split(name)
	last := ""
	if len(w) > 0 {
		last = w[len(w)-1]
	}
	text := a.Is("string")
	switch {
	case strings.Count(a.Path, ".") > 3:
		return "", "too deep to tell"
	case has(w, "password", "passwd", "passphrase", "secret", "apikey", "otp", "credential", "credentials") || has(w, "api", "private", "access", "ssh", "signing") && has(w, "key", "token"):
		return provenance.Credential, "a secret: only the request itself vouches"
	case has(w, "token"):
		return "", "a token of some kind"
	case text && (a.Format == "email" || a.Format == "idn-email"):
		return provenance.Destination, "an address"
	case text && (a.Format == "uri" || a.Format == "iri" || a.Format == "uri-reference" || a.Format == "url") || text && has(w, "url", "uri", "webhook", "href"):
		return provenance.URL, "a web address"
	case text && (is(name, "to", "cc", "bcc") || has(w, "recipient", "recipients", "email", "emails", "channel", "payee", "beneficiary", "iban", "attendees", "participants", "invitees") && !has(w, "id", "ids")):
		return provenance.Destination, "who gets it"
	case (last == "id" || last == "ids" || last == "uuid") && (text || a.Is("integer", "number", "string")):
		return provenance.Selector, "the id of what it works on"
	case has(w, "amount") && !has(w, "max", "min", "limit") && a.Is("number", "integer", "string"):
		return provenance.Amount, "for the risk; where the person named who gets it, any amount passes"
	case t.acts == running:
		return "", "the tool may do whatever it is told"
	case text && (a.Format == "date" || a.Format == "date-time" || a.Format == "time") ||
		text && (is(name, "date", "datetime", "start_time", "end_time", "start_date", "end_date", "due_date", "deadline")):
		return provenance.Time, "when"
	case t.reads() && (text || a.Is("integer", "number", "string")) && !has(w, "sql", "script", "command", "path") &&
		(has(w, "query", "q", "search", "filter", "keyword", "keywords") || is(name, "limit", "page", "offset", "page_size", "per_page", "max_results")):
		return provenance.Query, "what it looks for"
	case has(w, "code", "script", "command", "cmd", "sql", "path", "attachment", "attachments", "file", "html", "template", "config", "query", "expression"):
		return "", "it may be more than text"
	case t.acts == writing && text && !a.Enum && is(name, "body", "text", "content", "contents", "message", "description", "comment", "note", "notes", "summary"):
		return provenance.Content, "what is written: links in it are looked at"
	case t.acts == writing && text && !a.Enum && is(name, "title", "subject"):
		return provenance.Name, "what it is called"
	case t.acts == writing && has(t.words, "create", "new", "draft", "save") && text && !a.Enum && is(name, "name") &&
		!has(t.words, "user", "users", "member", "members", "account", "accounts", "contact", "role", "group", "permission", "payee", "key", "token", "webhook"):
		return provenance.Name, "what it is called"
	case t.reads() && (a.Is("boolean") || a.Enum) && is(name, "verbose", "pretty", "sort", "sort_by", "order", "order_by", "ascending", "descending"):
		return provenance.Flag, "how it answers"
	case is(name, "currency"):
		return "", "the risk of an amount is rated in its own currency only with currency: currency, which frees it"
	}
	return "", "its name doesn't tell"
}

// kind is what an id denotes: the words before it, or of a bare id what the tool is about.
func (t about) kind(a Argument) string {
	w := split(a.Path[strings.LastIndexByte(a.Path, '.')+1:])
	w = w[:len(w)-1]
	if len(w) == 0 {
		for i := len(t.words) - 1; i >= 0; i-- {
			if w := t.words[i]; len(w) > 2 && w != "by" && !slices.ContainsFunc([]act{reading, writing, removing, running}, func(a act) bool { return slices.Contains(strings.Fields(verbs[a]), w) }) {
				return strings.TrimSuffix(w, "s")
			}
		}
		return "record"
	}
	return strings.Join(w, "_")
}

// split is a name's words in lower case: of snake_case, kebab-case, dots and camelCase. What is no ASCII letter or digit separates.
func split(name string) []string {
	var words []string
	word := strings.Builder{}
	end := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	lower := false
	for _, r := range name[:min(len(name), 200)] {
		switch {
		case r >= 'A' && r <= 'Z':
			if lower {
				end()
			}
			lower = false
			word.WriteRune(r + 'a' - 'A')
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			lower = true
			word.WriteRune(r)
		default:
			end()
			lower = false
		}
	}
	end()
	return words
}

func has(words []string, any ...string) bool {
	return slices.ContainsFunc(any, func(w string) bool { return slices.Contains(words, w) })
}

func is(name string, any ...string) bool { return slices.Contains(any, strings.Join(split(name), "_")) }

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
	line(0, "# session that holds internal data may call it where everything that has to be vouched for is: the rest of the call goes along.")
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
	words := split(tool)
	if p.Skipped != "" || p.IDKind != "" {
		return
	}
	of := kinds[server]
	slices.Sort(of)
	for _, kind := range of {
		noun := kind[strings.LastIndexByte(kind, '_')+1:]
		if has(words, noun, noun+"s", noun+"es", strings.TrimSuffix(noun, "y")+"ies") {
			p.comments = append(slices.Clone(p.comments), fmt.Sprintf("id_kind: %s  # if the ids in its results are those that other tools of the server take: without it they vouch for none", comment(key(kind))))
			return
		}
	}
}

func (p *Proposal) write(line func(indent int, format string, args ...any)) {
	switch {
	case len(p.Args) == 0:
		line(2, "# You accept: nothing else; no argument has a role, so once a session has read untrusted content each call is asked about.")
	case len(p.Frees) == 0:
		line(2, "# You accept: nothing else; each argument has to be vouched for.")
	default:
		line(2, "# You accept: what stands in %s may be an outsider's.", comment(strings.Join(p.Frees, ", ")))
	}
	if p.Cut {
		line(2, "# Its schema is larger or deeper than is read here, or can't be read: what isn't below has to be vouched for.")
	}
	line(2, "%s:", key(p.Operation))
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
		line(4, "id_kind: %s  # the tools that such ids come from need the same word", key(p.IDKind))
	}
	for _, c := range p.comments {
		line(4, "# %s", c)
	}
	if len(p.Args) > 0 {
		line(4, "args:")
		for _, arg := range sorted(p.Args) {
			line(6, "%s: %s  # %s", key(arg), p.Args[arg], p.reasons[arg])
		}
	}
	at := 4
	if len(p.Args) > 0 {
		at = 6
	}
	for _, arg := range p.Left {
		line(at, "# %s: %s, so it has to be vouched for", comment(arg), p.reasons[arg])
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

// key is a name as YAML reads it back: as it is where it can be nothing else, else in quotes and ASCII.
func key(s string) string {
	if plainKey.MatchString(s) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

var (
	plainKey  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)
	yamlWords = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
)

// comment is foreign text that ends with its line and shows as it is.
func comment(s string) string { return threat.Printable(s, maxComment) }

func text(definition json.RawMessage, member string) (string, bool) {
	raw, ok := call.Get(definition, member)
	var s string
	return s, ok && json.Unmarshal(raw, &s) == nil && s != ""
}

// changing are verbs of names that tell that something is changed, besides those that tell a role.
const changing = "mark reset enable disable start stop close lock unlock subscribe unsubscribe block merge commit push import buy purchase sell kick ban withdraw deposit"

// Writes reports whether a tool's name says that it changes something. In a name that begins with a word for reading, such a word counts only
// where it is another thing to do: get_or_create, read_and_delete.
func Writes(name string) bool {
	words := split(name)
	verb := func(w string, kinds ...act) bool {
		return slices.ContainsFunc(kinds, func(k act) bool { return slices.Contains(strings.Fields(verbs[k]), w) })
	}
	words = slices.DeleteFunc(words, func(w string) bool {
		return slices.Contains(strings.Fields("new code request command login webhook terminal"), w)
	}) // things, by themselves
	return slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains(strings.Fields(changing), w) || verb(w, writing, removing, running)
	}) &&
		(!verb(words[0], reading) || has(words, "and", "or", "then"))
}

// Role is the core role that an argument's name alone tells, if it tells one: of the path's last name. A name that ends in a word for text or
// for how something looks, as email_body, tells none.
func Role(path string) (provenance.Role, bool) {
	name := path[strings.LastIndexByte(path, '.')+1:]
	if w := split(name); len(w) > 1 && slices.Contains(strings.Fields(texts), w[len(w)-1]) {
		return "", false
	}
	role, _ := about{}.role(Argument{Path: name, Types: []string{"string"}})
	return role, role.Core()
}

const texts = "body text content contents message subject title description summary snippet note notes comment comments template signature html markdown type format kind count limit preview enabled"
