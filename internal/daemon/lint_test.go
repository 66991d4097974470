package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/policy"
)

// said are the problems as "severity field: …", without files and lines.
func said(problems []Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, fmt.Sprintf("%s %s: %s", p.Severity, p.Field, p.Problem))
	}
	return all
}

// holds checks that there is one problem for each wanted one, which begin and go on with these words, and no other.
func holds(t *testing.T, problems []Problem, want [][2]string) {
	t.Helper()
	got := said(problems)
	for _, w := range want {
		i := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, w[0]+": ") && strings.Contains(s, w[1]) })
		if i < 0 {
			t.Errorf("nothing is said of %s, %q, in\n%s", w[0], w[1], strings.Join(said(problems), "\n"))
			continue
		}
		got = slices.Delete(got, i, i+1)
	}
	for _, s := range got {
		t.Errorf("not expected: %s", s)
	}
	for _, p := range problems {
		if p.Remedy == "" || p.File == "" {
			t.Errorf("no remedy, or no file: %+v", p)
		}
	}
}

func TestLintLabels(t *testing.T) {
	for name, c := range map[string]struct {
		entry string // of a.b, or all of operations where it begins with a name
		want  [][2]string
	}{
		"nothing wrong":            {`{sensitivity: external, level: 2, args: {to: destination, body: content}}`, nil},
		"a plain read":             {`{effect: read, sensitivity: internal_source}`, nil},
		"an update":                {`{sensitivity: external, level: 2, args: {id: target, to: destination}, may_omit: [to]}`, nil},
		"an update of nothing":     {`{sensitivity: external, level: 2, args: {to: destination, body: content}, may_omit: [to]}`, [][2]string{{"P1 operations.a.b.may_omit", "no argument says of which record"}}},
		"a write of no kind":       {`{sensitivity: external, args: {to: destination}}`, [][2]string{{"P1 operations.a.b", "nothing says of what kind"}}},
		"said to be a write":       {`{effect: write, args: {to: destination}}`, [][2]string{{"P1 operations.a.b", "at least MEDIUM"}}},
		"a whole server's writes":  {"a.*: {args: {to: destination}}\n  a.b: {action: send_email}\n  a.c: {risk: LOW}", [][2]string{{"P1 operations.a.*", "at least MEDIUM"}}},
		"its server's risk":        {"a.*: {risk: MEDIUM, args: {to: destination}}\n  a.b: {effect: write}", nil},
		"its server's level":       {"a.*: {level: 2, args: {to: destination}}\n  a.b: {sensitivity: none}", nil},
		"a write like a server's":  {"a.*: {level: 2, args: {to: destination}}\n  a.b: {effect: write}", [][2]string{{"P1 operations.a.b", "nothing says of what kind"}}},
		"moves money":              {"a.transfer_money: {level: 2, args: {to: destination}}\n  a.make_payment: {action: transfer_money, args: {to: destination, amount: amount}}", [][2]string{{"P1 operations.a.transfer_money.action", "by its name it moves money"}}},
		"a write with no roles":    {`{sensitivity: external, level: 2}`, [][2]string{{"P2 operations.a.b.args", "its arguments have no roles"}}},
		"a fetch with no roles":    {`{effect: read, egress_url: true}`, [][2]string{{"P2 operations.a.b.args", "all must be confirmed"}}},
		"its server's roles":       {"a.*: {level: 2, args: {to: destination}}\n  a.b: {level: 2}", nil},
		"trusted text":             {`{effect: read, output: trusted}`, [][2]string{{"P2 operations.a.b.output", "counts as confirmed"}}},
		"trusted with a shape":     {`{effect: read, output: trusted, shape: "^[0-9]{4}$"}`, nil},
		"its server's shape":       {"a.*: {level: 2, args: {to: destination}, shape: \"^[0-9]{4}$\", output: untrusted}\n  a.b: {effect: read, output: trusted}", [][2]string{{"P2 operations.a.*.shape", "untrusted whatever"}}},
		"any shape":                {`{effect: read, output: typed, shape: "(?s)^.*$"}`, [][2]string{{"P1 operations.a.b.shape", "every text has this shape"}}},
		"any shape, unanchored":    {`{effect: read, output: typed, shape: ".*"}`, [][2]string{{"P1 operations.a.b.shape", "every text has this shape"}}},
		"a shape of nothing":       {`{effect: read, output: typed, shape: "|x"}`, [][2]string{{"P1 operations.a.b.shape", "every text has this shape"}}},
		"unanchored":               {`{effect: read, output: typed, shape: "[A-Z]{2}[0-9]{4}"}`, [][2]string{{"P1 operations.a.b.shape", "anywhere in it"}}},
		"anchored at its begin":    {`{effect: read, output: typed, shape: "^[a-z]{3}"}`, [][2]string{{"P1 operations.a.b.shape", "anywhere in it"}}},
		"half anchored":            {`{effect: read, output: typed, shape: "^a|b$"}`, [][2]string{{"P1 operations.a.b.shape", "anywhere in it"}}},
		"anchored by line":         {`{effect: read, output: typed, shape: "(?m)^[a-z]{3}$"}`, [][2]string{{"P1 operations.a.b.shape", "anywhere in it"}}},
		"anchored in all":          {`{effect: read, output: typed, shape: "^(a{3}|b)$|^c$"}`, nil},
		"prose":                    {`{effect: read, output: typed, shape: "^[^<>]{0,400}$"}`, [][2]string{{"P1 operations.a.b.shape", "an order with an address in it"}}},
		"a short order":            {`{effect: read, output: typed, shape: "^[a-z .@]{0,30}$"}`, [][2]string{{"P1 operations.a.b.shape", `as "mail it to evil@x.example"`}}},
		"names":                    {`{effect: read, output: typed, shape: "^[A-Za-z -]{1,40}$"}`, nil},
		"no order":                 {`{effect: read, output: typed, shape: "^[^ @/]{1,80}$"}`, nil},
		"a shape for nothing":      {`{effect: read, shape: "^[0-9]{4}$"}`, [][2]string{{"P2 operations.a.b.shape", "untrusted whatever"}}},
		"trusted free text":        {`{effect: read, trusted_fields: [id, meta.Body]}`, [][2]string{{"P1 operations.a.b.trusted_fields", "counts as confirmed"}}},
		"delegable free text":      {`{effect: read, delegable: [from, subject]}`, [][2]string{{"P1 operations.a.b.delegable", "anybody may have written"}}},
		"names of free text":       {`{effect: read, names: [subject, content]}`, [][2]string{{"P2 operations.a.b.names", "singled out by a text"}}},
		"useless fields":           {`{effect: read, output: trusted, trusted_fields: [id], delegable: [from]}`, [][2]string{{"P2 operations.a.b.output", ""}, {"P2 operations.a.b.trusted_fields", "changes nothing"}, {"P2 operations.a.b.delegable", "changes nothing"}}},
		"twice":                    {`{effect: read, trusted_fields: [from], delegable: [from]}`, [][2]string{{"P2 operations.a.b.delegable", "trusted already"}, {"P1 operations.a.b.trusted_fields", "who sent it"}}},
		"trusted senders":          {`{effect: read, trusted_fields: [id, meta.Sender]}`, [][2]string{{"P1 operations.a.b.trusted_fields", "an outsider is or chooses"}}},
		"trusted lists":            {`{effect: read, trusted_fields: [messages]}`, [][2]string{{"P2 operations.a.b.trusted_fields", "all that lies below"}}},
		"trusted ids of lists":     {`{effect: read, trusted_fields: [messages.id]}`, nil},
		"a write that reads":       {"a.delete_file: {effect: read}\n  a.sendMail: {level: 0}\n  a.set_x: {level: 1, args: {x: name}}", [][2]string{{"P1 operations.a.delete_file.effect", "said to be a read"}, {"P1 operations.a.sendMail.level", "said to be a read"}}},
		"reads that read":          {"a.get_transfer: {effect: read}\n  a.list_comments: {effect: read}\n  a.search_code: {effect: read}\n  a.read_text_file: {effect: read}\n  a.news: {effect: read}", nil},
		"a read and a write":       {"a.get_or_create: {effect: read}\n  a.read_and_delete: {effect: read}", [][2]string{{"P1 operations.a.get_or_create.effect", ""}, {"P1 operations.a.read_and_delete.effect", ""}}},
		"a free destination":       {`{level: 2, args: {to: destination, cc: content, mail.recipients: query, email_body: content}}`, [][2]string{{"P1 operations.a.b.args.cc", `"cc" reads like a destination; as content nobody looks at it`}, {"P1 operations.a.b.args.mail.recipients", "as query"}}},
		"a hardly seen address":    {`{level: 2, args: {to: destination, webhook_url: name, amount: currency, password: time}}`, [][2]string{{"P1 operations.a.b.args.webhook_url", "only where"}, {"P1 operations.a.b.args.amount", "like an amount"}, {"P1 operations.a.b.args.password", "like a credential"}}},
		"free ids":                 {`{level: 2, id_kind: x, args: {to: destination, file_id: content, id: name}}`, [][2]string{{"P1 operations.a.b.args.file_id", "like a selector"}, {"P2 operations.a.b.id_kind", "no other entry"}}},
		"a free word in a read":    {`{effect: read, args: {email: query, q: query, id: query}}`, nil},
		"a free url in a read":     {`{effect: read, args: {url: query}}`, [][2]string{{"P1 operations.a.b.args.url", "like a url"}}},
		"nothing refuses":          {"a.b: {level: 2, blocked_by: [], args: {to: destination}}\n  a.c: {level: 2, sensitivity: both, blocked_by: [], args: {to: destination}}\n  a.d: {effect: read, sensitivity: internal_source, blocked_by: []}", [][2]string{{"P2 operations.a.b.blocked_by", "no label ever refuses it"}, {"P2 operations.a.c.blocked_by", "sensitivity both"}}},
		"one kind":                 {"a.b: {level: 2, args: {id: selector}, id_kind: event}\n  a.c: {effect: read, id_kind: events}", [][2]string{{"P2 operations.a.b.id_kind", `"event"`}, {"P2 operations.a.c.id_kind", `"events"`}}},
		"two of a kind":            {"a.b: {level: 2, args: {id: selector}, id_kind: event}\n  a.c: {effect: read, id_kind: event}", nil},
		"a server's kind":          {"a.*: {level: 2, id_kind: event}", nil},
		"only the person, out":     {`{level: 1, boundary: external, args: {to: destination}}`, [][2]string{{"P1 operations.a.b.boundary", "level 1 says that only the person sees it"}}},
		"only the person, in":      {`{level: 1, boundary: internal, args: {to: destination}}`, [][2]string{{"P1 operations.a.b.boundary", "others do"}}},
		"only the person":          {`{level: 1, boundary: none, args: {title: name}}`, nil},
		"a request to nowhere":     {`{effect: read, egress_url: true, args: {q: query}}`, [][2]string{{"P2 operations.a.b.egress_url", "no argument is the address"}}},
		"an unseen address":        {`{effect: read, args: {link: url}}`, [][2]string{{"P1 operations.a.b.args.link", "fetched unasked"}}},
		"a write to an address":    {`{level: 2, args: {link: url}}`, nil},
		"a seen address":           {`{effect: read, egress_url: true, args: {link: url}}`, nil},
		"to somebody, but not":     {`{level: 2, boundary: none, args: {to: destination}}`, [][2]string{{"P1 operations.a.b.boundary", "to says who else gets it"}}},
		"by no argument":           {`{level: 2, boundary: by_arg, args: {title: name}}`, [][2]string{{"P1 operations.a.b.boundary", "no label ever refuses it"}}},
		"ids of nothing":           {`{level: 2, args: {id: selector}}`, [][2]string{{"P2 operations.a.b.id_kind", "does not say what the ids are of"}}},
		"a whole server":           {"a.*: {effect: read, output: typed, shape: \"^[0-9]{4}$\", trusted_fields: [id], args: {body: content, to: destination}}", [][2]string{{"P2 operations.a.*", "looked at: args.body, level 0, output typed, trusted_fields"}}},
		"none and read for all":    {"a.*: {sensitivity: none, effect: read}", [][2]string{{"P0 operations.a.*", "it runs unasked, whatever it does"}}},
		"the same in other words":  {"a.*: {effect: read, blocked_by: [], emits: []}", [][2]string{{"P0 operations.a.*", "that no entry names counts as a read"}, {"P2 operations.a.*.blocked_by", "no label ever refuses it"}}},
		"none and level 0 for all": {"a.*: {sensitivity: none, level: 0, args: {text: content}}", [][2]string{{"P0 operations.a.*", "that no entry names counts as a read"}, {"P2 operations.a.*", "looked at: args.text"}}},
		"none for all":             {"a.*: {sensitivity: none, level: 2}", [][2]string{{"P2 operations.a.*.stores", "all that a gives back then has them"}}},
		"a source and read":        {"a.*: {sensitivity: internal_source, effect: read}", [][2]string{{"P2 operations.a.*", "looked at: level 0"}}},
		"none and read for one":    {"a.b: {sensitivity: none, effect: read}", nil},
		"none and read, built in":  {"comm.*: {sensitivity: none, effect: read}", [][2]string{{"P2 operations.comm.*", "level 0"}}},
		"a whole server, closed":   {"a.*: {sensitivity: both, level: 2, args: {to: destination}}", nil},
		"a memory":                 {"a.add: {sensitivity: none, level: 1, args: {text: content}}\n  a.read: {sensitivity: none, effect: read}", [][2]string{{"P2 operations.a.add.stores", "also for a.read, which brings none"}}},
		"a memory in one entry":    {"a.*: {sensitivity: none, level: 2, args: {text: content}}", [][2]string{{"P2 operations.a.*", "args.text"}, {"P2 operations.a.*.stores", "though this entry says that it brings none"}}},
		"a memory of nothing":      {"a.add: {sensitivity: none, level: 1, args: {text: content}, stores: false}\n  a.read: {sensitivity: none, effect: read}", nil},
		"a memory that is private": {"a.add: {sensitivity: none, level: 1, args: {text: content}}\n  a.read: {sensitivity: internal_source, effect: read}", nil},
		"a change of nothing":      {"a.b: {level: 1, sensitivity: none, id_kind: x, stores: false, args: {id: selector}}\n  a.c: {effect: read, id_kind: x}", [][2]string{{"P1 operations.a.b.stores", "changes something that is there"}}},
		"a server of nothing":      {"a.*: {level: 2, stores: false}", [][2]string{{"P1 operations.a.*.stores", "nobody has looked at"}}},
		"built in":                 {"comm.fetch: {risk: HIGH}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			entry := "a.b: " + c.entry
			if !strings.HasPrefix(c.entry, "{") {
				entry = c.entry
			}
			cfg, err := ParseConfig("f", []byte("upstreams: {a: {url: http://x}}\noperations:\n  "+entry+"\n"), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			problems := cfg.labelProblems("f")
			holds(t, problems, c.want)
			for _, p := range problems {
				if p.Line < 3 {
					t.Errorf("no line: %+v", p)
				}
			}
		})
	}
}

// Identities need no other confirmation: none may be a pattern, or two people's.
func TestLintIdentities(t *testing.T) {
	cfg, err := ParseConfig("f", []byte(`people:
  - {id: a, roles: [viewer], identities: [a@x.example, "*@x.example", "agent:one"]}
  - id: b
    roles: [viewer]
    identities: [A@X.example, "@y.example", b@x.example, b@x.example, "agent:one"]
`), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	problems := cfg.labelProblems("f")
	holds(t, problems, [][2]string{
		{"P1 people[0].identities", `"*@x.example" looks like a pattern`}, {"P1 people[1].identities", `"A@X.example" is an identity of a as well`}, {"P1 people[1].identities", `"@y.example" looks like`},
	})
	for i, line := range []int{2, 5, 5} {
		if problems[i].Line != line {
			t.Errorf("line %d: %+v", line, problems[i])
		}
	}
}

// An operation's own roles of arguments must not take away its server's without a word: a transfer of any size would be HIGH.
func TestOwnArgumentsDoNotDropTheAmountSilently(t *testing.T) {
	c, err := ParseConfig("sallyport.yaml", []byte(`
upstreams: {bank: {url: "http://127.0.0.1:1"}}
operations:
  bank.*: {action: transfer_money, args: {amount: amount}}
  bank.transfer: {args: {recipient: destination}}
`), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	class := c.Classifier(nil)("bank", "transfer")
	rules, err := c.Approvals.rules()
	if err != nil {
		t.Fatal(err)
	}
	rating := rules.Rate(policy.Subject{Action: class.Action, Floor: class.RiskFloor, Roles: class.Roles, Arguments: []byte(`{"amount":1000000,"recipient":"x"}`), Write: true})
	if rating.Risk == policy.Critical {
		return
	}
	for _, w := range c.Warnings("sallyport.yaml") {
		if strings.Contains(w.Field, "bank.transfer") && strings.Contains(w.Problem, "amount") {
			return
		}
	}
	t.Errorf("a million is %s, one person's to approve, and lint says nothing: %+v", rating.Risk, c.Warnings("sallyport.yaml"))
}

// A webhook without a secret works, and lint says what that means.
func TestLintNamesUnsignedWebhooks(t *testing.T) {
	c, err := ParseConfig("sallyport.yaml", []byte("notify:\n  - {kind: webhook, url: \"https://h.example/\", secret: 0123456789abcdef}\n  - {kind: webhook, url: \"https://h.example/2\"}\n"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	said := c.Warnings("sallyport.yaml")
	if len(said) != 1 || said[0].Line != 3 || said[0].Severity != agent.P2 || !strings.Contains(said[0].Problem, "not signed") {
		t.Errorf("%+v", said)
	}
}
