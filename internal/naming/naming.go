package naming

import (
	"slices"
	"strings"

	"sallyport.example/provenance"
)

// ToolName is what the words of a tool's name tell.
type ToolName struct {
	Words []string // in lower case
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

// OfTool reads a tool's name.
func OfTool(name string) ToolName {
	t := ToolName{Words: Split(name)}
	for i, w := range t.Words {
		for kind, list := range verbs {
			if !slices.Contains(strings.Fields(list), w) || kind == reading && i > 1 { // mark_as_read
				continue
			}
			t.acts = max(t.acts, kind) // of several the one that can do most: get_or_create creates
		}
	}
	return t
}

// Reads reports whether the name says that the tool reads, and says of nothing else that it does.
func (t ToolName) Reads() bool { return t.acts == reading }

// Action is the name of what it does in the risk rules, which only raises the risk.
func (t ToolName) Action() string {
	for _, a := range []struct{ action, any, all string }{
		{"transfer_money", "transfer pay payment refund payout withdraw", ""},
		{"delete_data", "delete destroy drop purge erase", ""},
		{"grant_access", "grant permission permissions share invite", ""},
		{"publish_content", "publish tweet", ""},
		{"send_email", "send reply forward", "email emails mail"},
		{"schedule_meeting", "schedule create book", "meeting meetings event"},
		{"book_appointment", "book reserve", "appointment appointments reservation"},
	} {
		if Has(t.Words, strings.Fields(a.any)...) && (a.all == "" || Has(t.Words, strings.Fields(a.all)...)) {
			if t.Reads() {
				return ""
			}
			return a.action
		}
	}
	return ""
}

// Role is what an argument is for, as its name and type tell, and why; "" where that is not plain.
func (t ToolName) Role(a Argument) (role provenance.Role, why string) {
	name := a.Path[strings.LastIndexByte(a.Path, '.')+1:]
	w := Split(name)
	last := ""
	if len(w) > 0 {
		last = w[len(w)-1]
	}
	text := a.Is("string")
	switch {
	case strings.Count(a.Path, ".") > 3:
		return "", "too deep to tell"
	case Has(w, "password", "passwd", "passphrase", "secret", "apikey", "otp", "credential", "credentials") || Has(w, "api", "private", "access", "ssh", "signing") && Has(w, "key", "token"):
		return provenance.Credential, "a secret: only the request itself can confirm it"
	case Has(w, "token"):
		return "", "a token of some kind"
	case text && (a.Format == "email" || a.Format == "idn-email"):
		return provenance.Destination, "an address"
	case text && (a.Format == "uri" || a.Format == "iri" || a.Format == "uri-reference" || a.Format == "url") || text && Has(w, "url", "uri", "webhook", "href"):
		return provenance.URL, "a web address"
	case text && (Is(name, "to", "cc", "bcc") || Has(w, "recipient", "recipients", "email", "emails", "channel", "payee", "beneficiary", "iban", "attendees", "participants", "invitees") && !Has(w, "id", "ids")):
		return provenance.Destination, "who gets it"
	case (last == "id" || last == "ids" || last == "uuid") && (text || a.Is("integer", "number", "string")):
		return provenance.Selector, "the id of what it works on"
	case Has(w, "amount") && !Has(w, "max", "min", "limit") && a.Is("number", "integer", "string"):
		return provenance.Amount, "for the risk; where the person named who gets it, any amount passes"
	case t.acts == running:
		return "", "the tool may do whatever it is told"
	case text && (a.Format == "date" || a.Format == "date-time" || a.Format == "time") ||
		text && (Is(name, "date", "datetime", "start_time", "end_time", "start_date", "end_date", "due_date", "deadline")):
		return provenance.Time, "when"
	case t.Reads() && (text || a.Is("integer", "number", "string")) && !Has(w, "sql", "script", "command", "path") &&
		(Has(w, "query", "q", "search", "filter", "keyword", "keywords") || Is(name, "limit", "page", "offset", "page_size", "per_page", "max_results")):
		return provenance.Query, "what it looks for"
	case Has(w, "code", "script", "command", "cmd", "sql", "path", "attachment", "attachments", "file", "html", "template", "config", "query", "expression"):
		return "", "it may be more than text"
	case t.acts == writing && text && !a.Enum && Is(name, "body", "text", "content", "contents", "message", "description", "comment", "note", "notes", "summary"):
		return provenance.Content, "what is written: links in it are looked at"
	case t.acts == writing && text && !a.Enum && Is(name, "title", "subject"):
		return provenance.Name, "what it is called"
	case t.acts == writing && Has(t.Words, "create", "new", "draft", "save") && text && !a.Enum && Is(name, "name") &&
		!Has(t.Words, "user", "users", "member", "members", "account", "accounts", "contact", "role", "group", "permission", "payee", "key", "token", "webhook"):
		return provenance.Name, "what it is called"
	case t.Reads() && (a.Is("boolean") || a.Enum) && Is(name, "verbose", "pretty", "sort", "sort_by", "order", "order_by", "ascending", "descending"):
		return provenance.Flag, "how it answers"
	case Is(name, "currency"):
		return "", "the risk of an amount is rated in its own currency only with currency: currency, which frees it"
	}
	return "", "its name doesn't tell"
}

// Kind is what an id denotes: the words before it, or of a bare id what the tool is about.
func (t ToolName) Kind(a Argument) string {
	w := Split(a.Path[strings.LastIndexByte(a.Path, '.')+1:])
	w = w[:len(w)-1]
	if len(w) == 0 {
		for i := len(t.Words) - 1; i >= 0; i-- {
			if w := t.Words[i]; len(w) > 2 && w != "by" && !slices.ContainsFunc([]act{reading, writing, removing, running}, func(a act) bool { return slices.Contains(strings.Fields(verbs[a]), w) }) {
				return strings.TrimSuffix(w, "s")
			}
		}
		return "record"
	}
	return strings.Join(w, "_")
}

// Split is a name's words in lower case: of snake_case, kebab-case, dots and camelCase. What is no ASCII letter or digit separates.
func Split(name string) []string {
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

// Has reports whether one of the words is among them.
func Has(words []string, any ...string) bool {
	return slices.ContainsFunc(any, func(w string) bool { return slices.Contains(words, w) })
}

// Is reports whether the words of a name, joined by "_", are one of these.
func Is(name string, any ...string) bool { return slices.Contains(any, strings.Join(Split(name), "_")) }

// changing are verbs of names that tell that something is changed, besides those that tell a role.
const changing = "mark reset enable disable start stop close lock unlock subscribe unsubscribe block merge commit push import buy purchase sell kick ban withdraw deposit"

// Writes reports whether a tool's name says that it changes something. In a name that begins with a word for reading, such a word counts only
// where it is another thing to do: get_or_create, read_and_delete.
func Writes(name string) bool {
	words := Split(name)
	verb := func(w string, kinds ...act) bool {
		return slices.ContainsFunc(kinds, func(k act) bool { return slices.Contains(strings.Fields(verbs[k]), w) })
	}
	words = slices.DeleteFunc(words, func(w string) bool {
		return slices.Contains(strings.Fields("new code request command login webhook terminal"), w)
	}) // things, by themselves
	return slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains(strings.Fields(changing), w) || verb(w, writing, removing, running)
	}) &&
		(!verb(words[0], reading) || Has(words, "and", "or", "then"))
}

// Role is the core role that an argument's name alone tells, if it tells one: of the path's last name. A name that ends in a word for text or
// for how something looks, as email_body, tells none.
func Role(path string) (provenance.Role, bool) {
	name := path[strings.LastIndexByte(path, '.')+1:]
	if w := Split(name); len(w) > 1 && slices.Contains(strings.Fields(texts), w[len(w)-1]) {
		return "", false
	}
	role, _ := ToolName{}.Role(Argument{Path: name, Types: []string{"string"}})
	return role, role.Core()
}

const texts = "body text content contents message subject title description summary snippet note notes comment comments template signature html markdown type format kind count limit preview enabled"
