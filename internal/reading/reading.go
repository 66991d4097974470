// Package reading tells whether a call of an operation that is said to read may do more than that, by what is in its arguments; and which of them say
// where a call writes.
//
// Two kinds of arguments are looked at. Those that hold code (SQL, a command, an expression) do what they say, so each needs the operator's
// word on what it may say: a shape, or a class of statement. Ids, names and paths are handed on to a shell, a file system or a query by many
// servers, so they have a shape that none of these takes for more than a name.
//
// Promises: Acts is a pure function of the operator's words and the call. What is not known to be harmless acts. Nothing that a server says about
// its tools takes an argument out of the rule.
package reading

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/statement"
	"sallyport.example/provenance"
)

// Rule is what an argument that holds code may say: Shape or Class.
type Rule struct {
	Shape *regexp.Regexp // made by Shape
	Class string         // ClassSelect
}

// ClassSelect is the class of one plain SELECT.
const ClassSelect = "select"

// Shape makes the shape of a pattern: the whole text has to match it.
func Shape(pattern string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + pattern + `)\z`)
}

// problem says why a text is not what the rule allows; "" it is.
func (r Rule) problem(text string) string {
	switch {
	case r.Shape != nil:
		if !r.Shape.MatchString(text) {
			return "does not have the shape that the operator gave it"
		}
	case r.Class == ClassSelect:
		if err := statement.Select(text); err != nil {
			return "is not one plain SELECT: " + err.Error()
		}
	default:
		return "holds code, and no shape or class says what it may say"
	}
	return ""
}

// Operation is what the operator says about a read.
type Operation struct {
	Server, Tool string
	Roles        map[string]string // argument, or path into it as a.b, -> role
	Code         map[string]Rule   // likewise -> what its code may say
}

// kind is how an argument is looked at.
type kind byte

const (
	free  kind = iota // a text: whatever it says
	plain             // an id, a name or a path
	path              // a path by the operator's word, which may be absolute
	code
)

// kindOf tells how the argument at a path is looked at. The operator's role decides, but what is looked for (query) can still be code or the id of
// something, and text (content) code: there the name speaks, as where nobody gave a role. What an object is for says nothing of code inside it.
func (o *Operation) kindOf(at string) kind {
	_, role, labelled := call.LongestPrefix(o.Roles, at)
	names := strings.Split(at, ".")
	for i := range names {
		names[i] = strings.ReplaceAll(names[i], "%2E", ".")
	}
	if _, own := o.Roles[at]; labelled && !own && o.codeName(names[len(names)-1]) {
		return code
	}
	switch provenance.Role(role) {
	case provenance.Code:
		return code
	case provenance.Path:
		return path
	case provenance.Selector, provenance.Target, provenance.Identity, provenance.Name, provenance.Repository, provenance.Table:
		return plain
	case provenance.Query, provenance.Content, "":
		if slices.ContainsFunc(names, o.codeName) {
			return code
		}
		if (!labelled || provenance.Role(role) == provenance.Query) && plainName(names[len(names)-1]) {
			return plain
		}
	}
	return free
}

var (
	// codeNames are names of arguments that say what a server runs or evaluates. All words of arguments are here without an s at the end.
	codeNames = set("command cmd commandline shell bash code script expression expr eval jq jmespath jsonpath xpath program argv")
	// codeEndings are last words that say it whatever stands before them.
	codeEndings = set("command cmd script")
	// languages make code of a word that otherwise ends in the name of a key, as country_code.
	languages = set("source j javascript t typescript py python ruby go golang lua php perl java r rust shell bash program")
	// queries are such names where the server is a database.
	queries = set("query querie q statement filter pipeline where")
	// databases are words by which servers and tools say that they are one.
	databases = set(`sql mysql mariadb postgres postgresql pg sqlite mssql sqlserver oracle db database databases duckdb clickhouse bigquery snowflake
redshift cockroach cockroachdb supabase neon mongo mongodb neo4j cypher cassandra influx influxdb dynamodb`)
	// plainNames are the last words of names of arguments that take an id or a path, and before name one of a thing that has an id.
	plainNames = set("id uuid guid path file filename filepath dir directory folder repo repository branch ref sha commit tag table bucket")
)

// codeName reports whether an argument of the name holds code.
func (o *Operation) codeName(name string) bool {
	w := words(name)
	if len(w) == 0 {
		return false
	}
	for i := range w {
		w[i] = strings.TrimSuffix(w[i], "s")
	}
	joined, last := strings.Join(w, ""), w[len(w)-1]
	if codeNames[joined] || codeEndings[last] || strings.HasPrefix(joined, "sql") || strings.HasSuffix(joined, "sql") || last == "code" && len(w) > 1 && languages[w[len(w)-2]] {
		return true
	}
	return queries[last] && slices.ContainsFunc(slices.Concat(words(o.Server), words(o.Tool)), func(w string) bool { return databases[w] })
}

// plainName reports whether an argument of the name takes an id, a name or a path.
func plainName(name string) bool {
	w := words(name)
	for i := range w {
		w[i] = strings.TrimSuffix(w[i], "s")
	}
	n := len(w)
	return n > 0 && (plainNames[w[n-1]] || w[n-1] == "name" && (n == 1 || plainNames[w[n-2]]))
}

// words are those of a name, in lower case: file_id, fileId and file-id are two.
func words(name string) (all []string) {
	var word []rune
	end := func() {
		if len(word) > 0 {
			all, word = append(all, strings.ToLower(string(word))), nil
		}
	}
	lower := false
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
		case unicode.IsUpper(r) && lower:
			end()
			word = append(word, r)
		default:
			word = append(word, r)
		}
		lower = unicode.IsLower(r) || unicode.IsDigit(r)
	}
	end()
	return all
}

// Unruled are those of these arguments that hold code and have no rule, sorted.
func (o *Operation) Unruled(arguments []string) (unruled []string) {
	for _, at := range arguments {
		if _, rule, _ := call.LongestPrefix(o.Code, at); o.kindOf(at) == code && rule == (Rule{}) {
			unruled = append(unruled, at)
		}
	}
	slices.Sort(unruled)
	return unruled
}

// Acts says why a call may do more than read, in a sentence that names the argument; "" it reads. arguments is a canonical JSON object.
func (o *Operation) Acts(arguments []byte) string {
	var args map[string]any
	if err := call.Decode(arguments, &args); err != nil {
		return "Its arguments can't be read."
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if at, problem := o.walk(args[name], strings.ReplaceAll(name, ".", "%2E")); problem != "" {
			return fmt.Sprintf("The argument %s %s, so the call counts as one that changes what others see.", display.ASCII(at, 80), problem)
		}
	}
	return ""
}

func (o *Operation) walk(v any, at string) (where, problem string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if where, problem := o.walk(e, at); problem != "" {
				return where, problem
			}
		}
	case map[string]any:
		k := o.kindOf(at)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			inner := at + "." + strings.ReplaceAll(name, ".", "%2E")
			if _, own := o.Roles[inner]; k == code && !own {
				return at, "holds code that is not one text"
			}
			if k == plain || k == path {
				if problem := odd(name, k); problem != "" {
					return at, problem
				}
			}
			if where, problem := o.walk(v[name], inner); problem != "" {
				return where, problem
			}
		}
	case string:
		switch k := o.kindOf(at); k {
		case code:
			_, rule, _ := call.LongestPrefix(o.Code, at)
			if strings.TrimSpace(v) == "" && rule.Shape == nil {
				return "", ""
			}
			return at, rule.problem(v)
		case plain, path:
			return at, odd(v, k)
		}
	}
	return "", ""
}

// Paths gives every text of a call that can say which file it is about, with the argument that it is in, until yield says false: what has the role path
// or is named as a path is; and, of a call that has such an argument, what has no role. arguments is a canonical JSON object.
func (o *Operation) Paths(arguments []byte, yield func(at, text string) bool) error {
	var args map[string]any
	if err := call.Decode(arguments, &args); err != nil {
		return err
	}
	var unsaid []func() bool
	about := false
	for _, name := range slices.Sorted(maps.Keys(args)) {
		at := strings.ReplaceAll(name, ".", "%2E")
		more := texts(args[name], at, func(at, text string) bool {
			switch role, is := o.place(at); {
			case is:
				about = true
				return yield(at, text)
			case role == "":
				unsaid = append(unsaid, func() bool { return yield(at, text) })
			}
			return true
		})
		if !more {
			return nil
		}
	}
	if about {
		for _, say := range unsaid {
			if !say() {
				return nil
			}
		}
	}
	return nil
}

// place tells whether an argument says which file a call is about.
func (o *Operation) place(at string) (role provenance.Role, is bool) {
	_, word, _ := call.LongestPrefix(o.Roles, at)
	switch role = provenance.Role(word); role {
	case provenance.Path:
		return role, true
	case provenance.Content, provenance.Query, provenance.Flag, provenance.Currency, provenance.Time, provenance.Amount, provenance.Code, provenance.Credential:
		return role, false
	}
	for name := range strings.SplitSeq(at, ".") {
		for _, w := range words(name) {
			if fileWords[strings.TrimSuffix(w, "s")] {
				return role, true
			}
		}
	}
	return role, false
}

// fileWords are words in the names of arguments that take a file or a folder.
var fileWords = set("path file filename filepath pathname dir directory folder repo workspace cwd root")

// texts gives the texts in a value, and the names of members, which can be paths, too.
func texts(v any, at string, yield func(at, text string) bool) bool {
	switch v := v.(type) {
	case string:
		return yield(at, v)
	case []any:
		for _, e := range v {
			if !texts(e, at, yield) {
				return false
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if !yield(at, name) || !texts(v[name], at+"."+strings.ReplaceAll(name, ".", "%2E"), yield) {
				return false
			}
		}
	}
	return true
}

// odd says what in an id, a name or a path may mean more than one.
func odd(s string, k kind) string {
	flat := strings.ToLower(s)
	for range 3 { // encoded once more for each reader on the way
		flat = decoded.Replace(flat)
	}
	for part := range strings.SplitSeq(flat, "/") {
		if strings.TrimSpace(part) == ".." {
			return "leads upwards (..)"
		}
	}
	if inner, ok := strings.CutPrefix(s, "<"); ok && strings.HasSuffix(inner, ">") && strings.Contains(inner, "@") { // the id of a mail
		s = strings.TrimSuffix(inner, ">")
	}
	if strings.ContainsAny(s, "`;|&<>\n\r\x00") || strings.Contains(s, "$(") {
		return "has characters in it that a shell acts on"
	}
	s, flat = strings.TrimSpace(s), strings.TrimSpace(flat)
	if option.MatchString(s) {
		return "begins like an option of a command"
	}
	if k == plain && (strings.HasPrefix(flat, "/") || strings.HasPrefix(s, "~") || strings.HasPrefix(flat, "file:") || drive.MatchString(s)) {
		return "is an absolute path, and does not have the role path"
	}
	return ""
}

var (
	drive   = regexp.MustCompile(`^[A-Za-z]:[\\/]`)
	option  = regexp.MustCompile(`^-+[^-\d\s]`) // git takes a branch --output=x for an order; a number below zero is none
	decoded = strings.NewReplacer("%25", "%", "%2e", ".", "%2f", "/", "%5c", "/", `\`, "/")
)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
