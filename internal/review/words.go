package review

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sallyport.example/internal/approval"
	"sallyport.example/provenance"
)

// sentence says what a call does, and whom or what it reaches.
func sentence(action string, a approval.Approval, values []Value) (does string, to []string) {
	with := func(roles ...provenance.Role) (all []string) {
		for _, role := range roles {
			for _, v := range values {
				if v.Role == string(role) && v.Text != "" && !strings.HasPrefix(v.Argument, "link in ") {
					all = append(all, v.Text)
				}
			}
		}
		return all
	}
	first := func(roles ...provenance.Role) string {
		if all := with(roles...); len(all) > 0 {
			return " " + all[0]
		}
		return ""
	}
	to = with(provenance.Destination, provenance.URL)
	switch action {
	case "transfer_money":
		return "Transfer " + amountWords(a.Amount), to
	case "send_email":
		return "Send a mail", to
	case "delete_data":
		what := with(provenance.Selector, provenance.Target, provenance.Path, provenance.Table)
		return "Delete " + noun(a.Operation), append(what, to...)
	case "grant_access":
		return "Give access" + onto(first(provenance.Target, provenance.Repository, provenance.Path)), append(to, with(provenance.Identity)...)
	case "publish_content":
		return "Publish", append(to, with(provenance.Target, provenance.Repository)...)
	case "schedule_meeting":
		return "Schedule a meeting", to
	case "book_appointment":
		return "Book an appointment", to
	}
	if known, ok := builtIn[a.Operation]; ok {
		return known, reached(a.Operation, to, values)
	}
	does = toolWords(a.Operation)
	if a.Amount != "" {
		does += ", " + amountWords(a.Amount)
	}
	if len(to) == 0 {
		to = with(provenance.Path, provenance.Repository, provenance.Selector, provenance.Target, provenance.Table)
	}
	for _, v := range values {
		if len(to) == 0 && (v.kind == "link" || v.kind == "mail" || v.kind == "account") { // nobody said what the arguments are for
			to = []string{v.Text}
		}
	}
	return does, to
}

func onto(what string) string {
	if what == "" {
		return ""
	}
	return " to" + what
}

// builtIn are the sentences of the operations of package comm.
var builtIn = map[string]string{
	"comm.fetch": "Open the page", "comm.search": "Search the web for", "comm.query": "Query the database", "comm.exec": "Run the command",
	"comm.write_file": "Write the file", "comm.read_file": "Read the file", "comm.list_files": "List the folder",
}

// reached are what a built-in operation reaches: its first argument, or all of a command.
func reached(operation string, to []string, values []Value) []string {
	name := map[string]string{"comm.search": "query", "comm.query": "sql", "comm.exec": "argv", "comm.write_file": "path", "comm.read_file": "path", "comm.list_files": "path", "comm.fetch": "url"}[operation]
	var all []string
	for _, v := range values {
		if v.Argument == name {
			all = append(all, v.Text)
		}
	}
	switch {
	case len(all) == 0:
		return to
	case operation == "comm.exec":
		return []string{strings.Join(all, " ")}
	}
	return all
}

// toolWords is the name of a tool in words: "create issue".
func toolWords(operation string) string {
	_, tool, ok := strings.Cut(operation, ".")
	if !ok {
		tool = operation
	}
	words := strings.TrimSpace(strings.NewReplacer("_", " ", "-", " ", ".", " ").Replace(tool))
	if words == "" {
		return operation
	}
	return strings.ToUpper(words[:1]) + words[1:]
}

// verbs begin the names of tools and say nothing about the thing.
var verbs = strings.Fields("get find search list read fetch query lookup show load open view describe retrieve delete remove create update")

// noun is the thing that a tool is about, by its name: "invoice" of bank.get_invoice.
func noun(operation string) string {
	server, tool, ok := strings.Cut(operation, ".")
	if !ok {
		server, tool = "", operation
	}
	switch operation {
	case "comm.fetch":
		return "page"
	case "comm.search":
		return "search result"
	}
	words := strings.FieldsFunc(strings.ToLower(tool), func(r rune) bool { return r == '_' || r == '-' || r == '.' })
	for len(words) > 0 && slices.Contains(verbs, words[0]) {
		words = words[1:]
	}
	name := strings.Join(words, " ")
	if name == "" {
		name = server
	}
	switch name {
	case "email", "emails", "e mail", "message", "mails", "inbox":
		return "mail"
	}
	if strings.HasSuffix(name, "s") && !strings.HasSuffix(name, "ss") && len(name) > 3 {
		name = name[:len(name)-1]
	}
	return name
}

// place names the record in which something was read.
func place(rec provenance.Read) string {
	thing := noun(rec.Operation)
	if thing == "" {
		thing = "record"
	}
	if from := valueAt(rec, senderFields); from != "" && !rec.Trusted {
		return "a " + thing + " from " + from
	}
	if rec.Operation == "comm.fetch" || rec.Operation == "comm.search" {
		if at := valueAt(rec, []string{"url", "link", "source"}); at != "" {
			return "the page " + at
		}
	}
	if name := valueOr(rec.Named, valueAt(rec, []string{"number", "invoicenumber", "id", "name", "title"})); name != "" {
		return thing + " " + name
	}
	if rec.Trusted {
		return thing
	}
	return "a text of " + toolWords(rec.Operation)
}

func valueOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// maxPlace bounds a name in a sentence, in bytes.
const maxPlace = 60

// valueAt is the first value of a record at one of the fields.
func valueAt(rec provenance.Read, fields []string) string {
	for _, name := range fields {
		for _, x := range rec.Values {
			if field(x.Field) == name && !x.Part && len(x.Text) <= maxPlace {
				return x.Text
			}
		}
	}
	return ""
}

// amountWords is an amount with its thousands apart: "4,800 EUR".
func amountWords(amount string) string {
	switch amount {
	case "":
		return "an amount that is missing"
	case "unreadable":
		return "an amount that can’t be read"
	}
	number, unit, _ := strings.Cut(amount, " ")
	whole, part, decimal := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if decimal {
		whole += "." + part
	}
	return strings.TrimSpace(whole + " " + unit)
}

// iban is an account number as banks write it.
var iban = regexp.MustCompile(`^[A-Z]{2}[0-9]{2}[A-Z0-9]{8,30}$`)

// Grouped is a value as people compare it: an account number in groups of four. Any other value is unchanged.
func Grouped(value string) string {
	bare := strings.ReplaceAll(value, " ", "")
	if !iban.MatchString(bare) {
		return value
	}
	var groups []string
	for len(bare) > 4 {
		groups, bare = append(groups, bare[:4]), bare[4:]
	}
	return strings.Join(append(groups, bare), " ")
}

// Short is a value on a line among others.
func Short(value string) string {
	if bare := strings.ReplaceAll(value, " ", ""); iban.MatchString(bare) {
		return bare[:4] + "…" + bare[len(bare)-4:len(bare)-2] + " " + bare[len(bare)-2:]
	}
	const most = 40
	if runes := []rune(value); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return value
}

// line is a sentence on one short line.
func line(does string, to []string) string {
	if len(to) == 0 {
		return does
	}
	does += " → " + Short(to[0])
	if more := len(to) - 1; more > 0 {
		does += fmt.Sprintf(" and %d more", more)
	}
	return does
}
