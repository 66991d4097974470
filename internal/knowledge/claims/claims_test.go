package claims

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/ask"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/models/wire"
)

type desk struct {
	t *testing.T
	*library.Library
	sources []string
	entries []audit.Entry
	model   string  // the judge
	asking  ask.Ask // an agent's
	own     ask.Ask
	secret  string // a label that may not go to the judge
	then    func() // once it is on record that the judge is asked for an agent
	*Checker
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, Library: gatewaytest.Library(t, gatewaytest.Store(t))}
	d.Checker = New(Options{Library: d.Library, Log: slog.New(slog.DiscardHandler), Configured: func() ([]string, int) { return d.sources, 2 },
		Record: func(_ context.Context, e ...audit.Entry) error {
			d.entries = append(d.entries, e...)
			if d.then != nil && e[0].Action == library.JudgeAction {
				d.then()
			}
			return nil
		},
		Judge: Judge{
			Model: func() (string, wire.Provider) { return d.model, wire.OpenAI },
			May: func(_ string, labels []string) error {
				if slices.Contains(labels, d.secret) {
					return fault.New(fault.FlowContaminated, "%s", d.secret)
				}
				return nil
			},
			Own: func(e audit.Entry, labels ask.Labels) ask.Ask {
				return func(ctx context.Context, form wire.Form, body json.RawMessage) (json.RawMessage, error) {
					d.entries = append(d.entries, e)
					all, err := labels()
					if err == nil {
						err = d.Checker.o.Judge.May(d.model, all)
					}
					if err != nil {
						return nil, err
					}
					return d.own(ctx, form, body)
				}
			},
		}})
	return d
}

func (d *desk) add(source, key, content string, labels ...string) {
	d.t.Helper()
	if _, err := d.Add(d.t.Context(), "person:a", library.Adding{Source: source, Key: key, Content: content, Labels: labels}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) ask(r knowledge.Reader, c Claim, more ...string) Answer {
	d.t.Helper()
	if _, err := d.Snapshot(d.t.Context(), "person:a", ""); err != nil {
		d.t.Fatal(err)
	}
	by := audit.Entry{Actor: "person:a"}
	if d.asking != nil {
		by = audit.Entry{Actor: "agent:x", Agent: "x", Session: "sess_1"}
	}
	a, err := d.Validate(d.t.Context(), r, by, d.asking, "", c, more)
	if err != nil {
		d.t.Fatal(err)
	}
	return a
}

// said is what the sources of an answer say, in order: y, n or -.
func said(a Answer) (all string) {
	for _, s := range a.Sources {
		switch {
		case s.Confirms == nil:
			all += "-"
		case *s.Confirms:
			all += "y"
		default:
			all += "n"
		}
	}
	return all
}

var (
	people = knowledge.Reader{All: true}
	acme   = Claim{Subject: "Acme Ltd", Attribute: "founded", Value: "1 May 1999"}
)

// Seven of ten confirm, and six don't: in whole numbers, with one row for each number of sources.
func TestSeventyPercent(t *testing.T) {
	d := newDesk(t)
	for all := 0; all <= 10; all++ {
		for yes := 0; yes <= all; yes++ {
			a := independent(d, yes, all)
			if want := yes*10 >= all*7 && yes >= 2; a.Valid != want {
				t.Errorf("%d of %d: %+v", yes, all, a)
			}
			want := 0.0
			if all > 0 {
				want = float64(yes) / float64(all)
			}
			if a.Confidence != want {
				t.Errorf("%d of %d: confidence %v", yes, all, a.Confidence)
			}
			e := d.entries[len(d.entries)-1]
			if poisoned := strings.Contains(e.Reason, "possible poisoning"); poisoned == a.Valid {
				t.Errorf("%d of %d: on record as %q", yes, all, e.Reason)
			}
		}
	}
}

// independent counts what sources say that confirm by texts of their own.
func independent(d *desk, yes, all int) Answer {
	a := Answer{}
	for i := range all { // each by another line, or they would be one
		confirms := i < yes
		a.Sources = append(a.Sources, Source{Source: fmt.Sprint("knowledge.s", i), Counts: true, Confirms: &confirms, origins: []string{fmt.Sprint("text:", i)}})
	}
	a.judge(2)
	if err := d.record(d.t.Context(), audit.Entry{}, &a); err != nil {
		d.t.Fatal(err)
	}
	return a
}

func TestSources(t *testing.T) {
	d := newDesk(t)
	d.add("registry", "acme", "company,founded,employees\nAcme Ltd,1999-05-01,\"1,200\"\nOther,2001-01-01,5\n")
	d.add("handbook", "acme", "# ACME Ltd\n\n- Founded: May 1, 1999\n- Employees: 1200\n")
	d.add("wiki", "acme", "| name | founded |\n|---|---|\n| Acme Ltd | 1998-05-01 |\n")
	d.add("torn", "a", "# Acme Ltd\n\nfounded: 1999-05-01\n")
	d.add("torn", "b", "# Acme Ltd\n\nfounded: 1998-05-01\n")
	d.add("silent", "a", "Acme Ltd is a company.")
	d.add("secret", "a", "# Acme Ltd\n\nfounded: 1999-05-01, they say\n", "secret")
	d.sources = []string{"knowledge.registry", "knowledge.handbook"}
	if a := d.ask(people, acme); said(a) != "yy" || !a.Valid || a.Confidence != 1 || !strings.Contains(a.Sources[0].Quote, "Acme Ltd,1999-05-01") {
		t.Errorf("%+v", a)
	}
	if a := d.ask(people, Claim{Subject: "acme ltd", Attribute: "Employees", Value: "1200"}); said(a) != "yy" || !a.Valid {
		t.Errorf("numbers: %+v", a)
	}
	if a := d.ask(people, Claim{Subject: "Acme Ltd", Attribute: "founded", Value: "1997-05-01"}); said(a) != "nn" || a.Valid || a.Confidence != 0 {
		t.Errorf("a lie: %+v", a)
	}
	// What a caller adds is shown and doesn't count.
	if a := d.ask(people, acme, "knowledge.wiki", "knowledge.torn", "knowledge.silent", "nowhere"); said(a) != "yyn---" || !a.Valid || a.Confidence != 1 || a.Sources[2].Counts {
		t.Errorf("others: %+v", a)
	}
	// A person is told of what there is not; an agent only that something is no name of a source.
	if a := d.ask(people, acme, "nowhere", "knowledge.nowhere", "knowledge.silent"); a.Sources[2].Note == "" || a.Sources[3].Note == "" || a.Sources[4].Note != "" {
		t.Errorf("unknown: %+v", a)
	}
	if a := d.ask(knowledge.Reader{}, acme, "nowhere", "knowledge.nowhere"); a.Sources[2].Note == "" || a.Sources[3].Note != "" {
		t.Errorf("unknown, to an agent: %+v", a)
	}
	d.sources = append(d.sources, "knowledge.wiki", "knowledge.torn", "knowledge.silent")
	if a := d.ask(people, acme); said(a) != "yyn--" || a.Valid || a.Confidence != 0.4 {
		t.Errorf("all of them count: %+v", a)
	}
	if a := d.ask(people, Claim{Sentence: "Acme was founded in 1999."}); said(a) != "-----" || a.Valid || a.Confidence != 0 {
		t.Errorf("a sentence: %+v", a)
	}
	// An agent hears nothing of what it may not read, and can leave nothing out.
	agent := knowledge.Reader{Sources: []string{"registry", "secret"}}
	d.sources = []string{"knowledge.registry", "knowledge.handbook", "knowledge.secret"}
	if a := d.ask(agent, acme); said(a) != "y--" || a.Valid || a.Sources[1].Quote != "" || a.Sources[2].Quote != "" {
		t.Errorf("an agent: %+v", a)
	}
	for name, c := range map[string]Claim{"nothing": {}, "half": {Subject: "a", Attribute: "b"}, "both": {Subject: "a", Attribute: "b", Value: "c", Sentence: "d"}} {
		if _, err := d.Validate(t.Context(), people, audit.Entry{}, nil, "", c, nil); !fault.Is(err, fault.RequestMalformed) || fault.Of(err).Field != "claim" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Sources that can't be asked confirm nothing: the claim is checked all the same, is not valid, and is on record as possible poisoning.
func TestFailedSourcesConfirmNothing(t *testing.T) {
	d := newDesk(t)
	d.add("registry", "acme", "company,founded\nAcme Ltd,1999-05-01\n")
	d.add("handbook", "acme", "# ACME Ltd\n\n- Founded: May 1, 1999\n")
	d.sources = []string{"knowledge.registry", "knowledge.handbook"}
	if a := d.ask(people, acme); !a.Valid {
		t.Fatalf("%+v", a)
	}
	late, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	a, err := d.Validate(late, people, audit.Entry{}, nil, "", acme, nil)
	if err != nil || said(a) != "--" || a.Valid || a.Confidence != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if e := d.entries[len(d.entries)-1]; e.Decision != "deny" || !strings.Contains(e.Reason, "possible poisoning") {
		t.Errorf("on record as %+v", e)
	}
}

// Ten copies of one text, ten pages of one host, and ten hosts of one domain or address are one source.
func TestCopiesAreOne(t *testing.T) {
	for name, add := range map[string]func(d *desk, i int){
		"one text": func(d *desk, i int) { d.add(fmt.Sprint("s", i), fmt.Sprint(i), "# Acme Ltd\n\nfounded: 1999-05-01\n") },
		"one host": func(d *desk, i int) {
			d.add(fmt.Sprint("s", i), fmt.Sprintf("https://evil.example/%d", i), fmt.Sprintf("| company | x%d | founded |\n|---|---|---|\n| Acme Ltd | %d | 1999-05-01 |\n", i, i))
		},
		"one domain": func(d *desk, i int) {
			d.add(fmt.Sprint("s", i), fmt.Sprintf("https://host%d.evil.co.uk/", i), fmt.Sprintf("| company | x%d | founded |\n|---|---|---|\n| Acme Ltd | %d | 1999-05-01 |\n", i, i))
		},
		"one server": func(d *desk, i int) {
			d.add(fmt.Sprint("s", i), fmt.Sprintf("http://%s:%d/", []string{"192.0.2.1", "[::ffff:192.0.2.1]"}[i%2], 8000+i), fmt.Sprintf("| company | x%d | founded |\n|---|---|---|\n| Acme Ltd | %d | 1999-05-01 |\n", i, i))
		},
	} {
		d := newDesk(t)
		for i := range 10 {
			d.sources = append(d.sources, fmt.Sprint("knowledge.s", i))
			add(d, i)
		}
		if a := d.ask(people, acme); said(a) != strings.Repeat("y", 10) || a.Valid {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// Ten domains are ten sources, also where one authority gives out their names.
func TestDomains(t *testing.T) {
	for host, want := range map[string]string{
		"www.Evil.example": "evil.example", "a.b.evil.co.uk": "evil.co.uk", "evil.example.": "evil.example", "localhost": "localhost", "alice.github.io": "alice.github.io", "bob.github.io": "bob.github.io",
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:DB8::1": "2001:db8::1", "co.uk": "co.uk",
	} {
		if got := domain(host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, same := range [][]string{
		{"2026-01-31", "31 January 2026", "January 31, 2026", "31 Jan 2026"}, {"1,200", "1200", "1200.0"}, {"Alice  NG", "alice ng"}, {"-5", "-5.00"},
	} {
		for _, other := range same[1:] {
			if canonical(other) != canonical(same[0]) {
				t.Errorf("%q and %q: %s, %s", same[0], other, canonical(same[0]), canonical(other))
			}
		}
	}
	for _, different := range [][2]string{{"1,20", "120"}, {"1/2/2026", "2/1/2026"}, {"12.5", "125"}, {"-5", "5"}, {"$", "€"}} {
		if canonical(different[0]) == canonical(different[1]) {
			t.Errorf("%q and %q are the same", different[0], different[1])
		}
	}
}

func FuzzRecords(f *testing.F) {
	f.Add("a,b\nc,d\n# x\ny: z\n| a | b |\n|---|---|\n| c | d |")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range Records(text) {
			if r.Span.Start < 0 || r.Span.End > len(text) || r.Span.Start > r.Span.End || len(r.Fields) > maxColumns {
				t.Fatalf("%+v", r)
			}
			if slices.Contains([]string{"\n", "\r\n"}, r.Quote) {
				t.Fatalf("%q", r.Quote)
			}
		}
	})
}
