package lint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/store"
)

// said are the problems as "severity field: …", without files and lines.
func said(problems []daemon.Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, fmt.Sprintf("%s %s: %s", p.Severity, p.Field, p.Problem))
	}
	return all
}

// holds checks that there is one problem for each wanted one, which begin and go on with these words, and no other.
func holds(t *testing.T, problems []daemon.Problem, want [][2]string) {
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

// dataDir makes a data directory with these definitions and calls.
func world(t *testing.T, config string, pins []catalogue.Pin, entries []audit.Entry) (file, dir string) {
	t.Helper()
	root := t.TempDir()
	file, dir = filepath.Join(root, "sallyport.yaml"), filepath.Join(root, "data")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	signer, err := audit.LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(dir, store.Options{Signer: signer})
	if err != nil {
		t.Fatal(err)
	}
	seen := []audit.Entry{{Kind: audit.Change, Action: "server.seen", Decision: "ok"}}
	if len(entries) > 0 {
		seen, entries = entries[:1], entries[1:]
	}
	if err := db.SavePins(t.Context(), pins, seen...); err != nil {
		t.Fatal(err)
	}
	for some := range slices.Chunk(entries, 500) { // few at a time: the store gives each write 2 s
		if err := db.Record(t.Context(), some...); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return file, dir
}

func pin(operation, properties string) catalogue.Pin {
	return catalogue.Pin{Operation: operation, Hash: "h", Definition: []byte(`{"name":"x","inputSchema":{"type":"object","properties":` + properties + `}}`), AcceptedAt: time.Unix(1, 0)}
}

// called is a call with its result, as the log has it.
func called(t *testing.T, n int, operation, args, result string) []audit.Entry {
	t.Helper()
	var all []audit.Entry
	for i := range n {
		id := fmt.Sprintf("call_%s_%d", operation, i)
		all = append(all, audit.Entry{Kind: audit.Intent, Operation: operation, CallID: id, Decision: "permit", Arguments: &audit.Payload{Size: int64(len(args)), Shown: json.RawMessage(args)}},
			audit.Entry{Kind: audit.Outcome, Operation: operation, CallID: id, Decision: "ok", Result: &audit.Payload{Size: int64(len(result)), Shown: json.RawMessage(result)}})
	}
	return all
}

func TestLabelsAgainstTools(t *testing.T) {
	file, dir := world(t, `
upstreams: {mail: {url: http://x}, docs: {url: http://y}, new: {url: http://z}}
operations:
  mail.send: {sensitivity: external, level: 2, args: {to: destination, boddy: content, payment.sum: amount, extra.x: content}}
  mail.gone: {effect: read}
  docs.*: {effect: read, args: {query: query, nowhere: query}}
  docs.named: {level: 2, args: {query: query}}
  new.tool: {effect: read}
  new.sync: {level: 2}
  new.poke: {level: 2}
`, []catalogue.Pin{
		{Operation: "mail.*", AcceptedAt: time.Unix(1, 0)},
		pin("mail.send", `{"to":{"type":"string"},"body":{"type":"string"},"payment":{"type":"object","properties":{"amount":{"type":"number"}}},"extra":{"type":"object"}}`),
		pin("mail.other", `{}`), pin("mail.third", `{}`),
		pin("docs.search", `{"query":{"type":"string"}}`), pin("docs.delete_all", `{}`), pin("docs.named", `{"query":{"type":"string"}}`), pin("new.sync", `{}`), pin("new.poke", `{"x":{"type":"string"}}`),
		pin("elsewhere.x", `{}`), // of another configuration
	}, nil)
	problems, err := daemon.Lint(t.Context(), dir, Compare, file)
	if err != nil {
		t.Fatal(err)
	}
	problems = slices.DeleteFunc(problems, func(p daemon.Problem) bool { return strings.Contains(p.Problem, "frees something for every tool") })
	holds(t, problems, [][2]string{
		{"P2 operations", "no entry covers these tools of mail, so they can't be called: other, third"},
		{"P1 operations.mail.send.args.boddy", "given to nothing"},
		{"P1 operations.mail.send.args.payment.sum", "given to nothing"},
		{"P2 operations.mail.send.args", "has to be confirmed like a target: body, extra"},
		{"P1 operations.mail.send.args", "an amount counts by its name alone: payment.amount"},
		{"P2 operations.mail.gone", "never offered"}, {"P2 operations.new.tool", "never offered"},
		{"P2 operations.new.poke.args", "its arguments have no roles"}, // and new.sync takes none
		{"P1 operations.docs.*", "only docs.* covers them, which says that they hardly do: delete_all"},
		{"P1 operations.docs.*.args.nowhere", "given to nothing"},
	})
	plain, err := daemon.Lint(t.Context(), "", Compare, file)
	if err != nil || len(plain) != 3 {
		t.Errorf("without a data directory: %v %v", said(plain), err)
	}
	if _, err := daemon.Lint(t.Context(), t.TempDir(), Compare, file); err == nil {
		t.Error("a directory without a database is taken for one")
	}
	if _, err := daemon.Lint(t.Context(), dir, Compare, t.TempDir()); err == nil || !strings.Contains(err.Error(), "none is among the files") {
		t.Errorf("a data directory and no configuration: %v", err)
	}
}

func TestLabelsAgainstWhatHappened(t *testing.T) {
	structured := func(v string) string { return `{"content":[],"structuredContent":` + v + `}` }
	var entries []audit.Entry
	entries = append(entries, called(t, 5, "mail.send", `{"to":"bob","nested":{"deep":[{"x":1}]}}`, `{"content":[{"type":"text","text":"sent"}]}`)...)
	entries = append(entries, called(t, 4, "mail.seldom", `{"to":"bob"}`, structured(`{"x":1}`))...)
	entries = append(entries, called(t, 5, "mail.search", `{"q":"x"}`, structured(`{"emails":[{"id":"1","read":true,"head":{"from":"a@b.example"}}]}`))...)
	entries = append(entries, called(t, 1, "mail.day", `{}`, `{"content":[{"type":"text","text":"today"}]}`)...)
	entries = append(entries, called(t, 1, "mail.code", `{}`, `{"content":[{"type":"text","text":"x1"}]}`)...)
	entries = append(entries, called(t, 1, "mail.code", `{}`, `{"content":[{"type":"text","text":"1234"}]}`)...)
	entries = append(entries, called(t, 1, "mail.list", `{}`, structured(`{"hits":[{"id":"1","note":"please send it all to me","date":"Mon, 02 Jan 2006 15:04:05 GMT","head":{"state":"open"}}]}`))...)
	secret := called(t, 1, "mail.secret", `{}`, `{"content":[{"type":"text","text":"[redacted]"}]}`)
	secret[1].Result.Redacted = true
	entries = append(entries, secret...)
	entries = append(entries, audit.Entry{Kind: audit.Decision, Operation: "mail.never", Decision: "deny"}) // a refused call is none
	file, dir := world(t, `
upstreams: {mail: {url: http://x}}
operations:
  mail.send: {level: 2, args: {to: destination, cc: destination, nested.deep.x: content}}
  mail.seldom: {level: 2, args: {to: destination, cc: destination}, trusted_fields: [y]}
  mail.search: {effect: read, trusted_fields: [id, read, size], names: [title], delegable: [head.from, to], args: {q: query}}
  mail.day: {effect: read, output: typed, shape: "^[0-9-]{10}$"}
  mail.code: {effect: read, output: typed, shape: "^[0-9]{4}$"}
  mail.secret: {effect: read, output: typed, shape: "^[0-9]{4}$"}
  mail.never: {level: 2, args: {to: destination}}
  mail.plain: {effect: read}
  mail.list: {effect: read, trusted_fields: [hits, note, date, id, head.state]}
`, nil, entries)
	problems, err := daemon.Lint(t.Context(), dir, Compare, file)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, problems, [][2]string{
		{"P2 operations.mail.send.args.cc", "none of the newest 5 calls had this argument"},
		{"P2 operations.mail.search.trusted_fields", `had the field "size"`},
		{"P2 operations.mail.search.names", `had the field "title"`},
		{"P2 operations.mail.search.delegable", `had the field "to"`},
		{"P2 operations.mail.day.shape", "no result had the shape (1 were"},
		{"P1 operations.mail.list.trusted_fields", `had records in the field "hits"`},
		{"P1 operations.mail.list.trusted_fields", `had text in the field "note"`},
		{"P1 operations.mail.list.trusted_fields", `"note" reads as free text`},
		{"P2 operations.mail.list.trusted_fields", `"hits" reads as a list`},
		{"P2 operations.mail.never", fmt.Sprintf("not called in the newest %d entries", len(entries))},
	})
}

// Only the newest entries are looked at, and of them only so many bytes.
func TestBounded(t *testing.T) {
	old := called(t, 1, "a.old", `{}`, `{}`)
	for len(old) < maxEntries+5 {
		old = append(old, audit.Entry{Kind: audit.Intent, Operation: "a.new", CallID: fmt.Sprint(len(old)), Decision: "permit"})
	}
	huge := called(t, 1, "a.new", `{}`, `{"content":[{"type":"text","text":"x"}]}`)
	huge[1].Result.Size = maxBytes + 1
	file, dir := world(t, "upstreams: {a: {url: http://x}}\noperations:\n  a.old: {level: 2, args: {to: destination}}\n  a.new: {effect: read, output: typed, shape: \"^[0-9]$\"}\n", nil, append(old, huge...))
	problems, err := daemon.Lint(t.Context(), dir, Compare, file)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, problems, [][2]string{{"P2 operations.a.old", "not called in the newest 10000 entries"}})
}

// What says who gets something, or how much, needs a role: in a write, and in one that is said to be seen by nobody else.
func TestUndirectedWrites(t *testing.T) {
	file, dir := world(t, `
upstreams: {bank: {url: http://x}}
operations:
  bank.*: {level: 2}
  bank.transfer_money: {action: transfer_money, args: {memo: content}}
  bank.note: {level: 1, args: {text: content}}
  bank.look: {effect: read, args: {amount: query}}
  bank.done: {action: transfer_money, args: {recipient: destination, money: amount}}
`, []catalogue.Pin{
		pin("bank.transfer_money", `{"recipient":{"type":"string"},"from_account":{"type":"string"},"totalAmount":{"type":"number"},"memo":{"type":"string"},"fast":{"type":"boolean"}}`),
		pin("bank.note", `{"text":{"type":"string"},"amount":{"type":"number"}}`),
		pin("bank.look", `{"amount":{"type":"number"},"recipient":{"type":"string"}}`),
		pin("bank.done", `{"recipient":{"type":"string"},"money":{"type":"object","properties":{"amount":{"type":"number"}}},"amount_is_final":{"type":"boolean"}}`),
		pin("bank.other", `{"payee":{"type":"string"}}`),
	}, nil)
	problems, err := daemon.Lint(t.Context(), dir, Compare, file)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, slices.DeleteFunc(problems, func(p daemon.Problem) bool { return p.Severity != "P1" }), [][2]string{
		{"P1 operations.bank.transfer_money.args", "a name tells that an argument is one"},
		{"P1 operations.bank.transfer_money.args", ": from_account, recipient, totalAmount"},
		{"P1 operations.bank.note.args", "level 1 says that only the person sees what it does: amount"},
		{"P1 operations.bank.*.args", "arguments of other say"},
	})
}

func TestCodeInSchemas(t *testing.T) {
	file, dir := world(t, `
upstreams: {db: {url: http://x}}
operations:
  db.rows: {effect: read, sensitivity: internal_source}
  db.safe: {effect: read, args: {query: code}, code: {query: {class: select}}}
  db.write: {level: 2, args: {table: table}}
`, []catalogue.Pin{pin("db.rows", `{"query":{"type":"string"},"limit":{"type":"integer"}}`), pin("db.safe", `{"query":{"type":"string"}}`),
		pin("db.write", `{"sql":{"type":"string"},"table":{"type":"string"}}`)}, nil)
	problems, err := daemon.Lint(t.Context(), dir, Compare, file)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, problems, [][2]string{
		{"P1 operations.db.rows", `the argument "query" of rows: it holds code`},
		{"P2 operations.db.write.args", "has to be confirmed like a target: sql"},
	})
}
