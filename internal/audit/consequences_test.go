package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// story writes a log of these entries and verifies it as an export would be.
func story(t *testing.T, entries ...Entry) Report {
	t.Helper()
	b := newBook(t)
	for i, e := range entries {
		e.Index, e.At = int64(i), time.Unix(int64(i), 0)
		b.add(t, e)
	}
	b.sign(t)
	report, err := Verify(b, "")
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func about(id, more string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"approval_id":%q%s}`, id, more))
}

// TestConsequences has logs that are signed and whole, and say what can't have happened.
func TestConsequences(t *testing.T) {
	asked := Entry{Kind: Decision, Action: "pay", Decision: "ask", Detail: about("appr_1", "")}
	said := func(action, person string) Entry {
		return Entry{Kind: Change, Action: "approval." + action, Actor: "person:" + person, Decision: "ok", Detail: about("appr_1", "")}
	}
	refused := said("approve", "eve")
	refused.Kind, refused.Decision = Decision, "deny"
	runs := func(call, risk string, approvers ...string) Entry {
		return Entry{Kind: Intent, Action: "pay", CallID: call, Risk: risk, Approvers: approvers, Decision: "permit", Detail: about("appr_1", "")}
	}
	silent := runs("c", "MEDIUM")
	silent.Detail = about("appr_1", `,"permitted_by":"silence"`)
	loud := runs("c", "HIGH")
	loud.Detail = silent.Detail
	declared := runs("c", "HIGH")
	declared.Detail, declared.Rows = nil, []Row{{Table: "audit_spent", Key: "appr_1", Was: -1, MAC: "x"}}
	token := func(action, id string) Entry {
		return Entry{Kind: Change, Action: "token." + action, CallID: id, Decision: "ok"}
	}
	row := func(was int64, mac string) Entry {
		return Entry{Kind: Change, Action: "x", Rows: []Row{{Table: "tokens", Key: "tok_1", Was: was, MAC: mac}}}
	}
	for name, c := range map[string]struct {
		entries []Entry
		problem string // "": none
	}{
		"one yes for HIGH":             {[]Entry{asked, said("approve", "bob"), runs("c", "HIGH", "bob")}, ""},
		"two for CRITICAL":             {[]Entry{asked, said("approve", "bob"), said("approve", "ann"), runs("c", "CRITICAL", "bob", "ann")}, ""},
		"silence for MEDIUM":           {[]Entry{asked, silent}, ""},
		"of a declaration":             {[]Entry{asked, said("approve", "bob"), declared}, ""},
		"a no after a yes of the past": {[]Entry{asked, said("approve", "bob"), runs("c", "HIGH", "bob"), said("reject", "ann")}, ""},
		"tokens":                       {[]Entry{token("create", "tok_1"), token("revoke", "tok_1"), token("create", "tok_2")}, ""},
		"rows":                         {[]Entry{row(-1, "a"), row(0, "b"), row(1, ""), row(-1, "c")}, ""},

		"used twice":                  {[]Entry{asked, said("approve", "bob"), runs("c", "HIGH", "bob"), runs("d", "HIGH", "bob")}, "entry 3 uses the approval \"appr_1\", which entry 2 has used"},
		"never asked":                 {[]Entry{runs("c", "HIGH")}, "no entry before it asked"},
		"nobody's yes":                {[]Entry{asked, runs("c", "HIGH")}, "0 people had approved it, not 1"},
		"nobody's yes, declared":      {[]Entry{asked, declared}, "0 people had approved it, not 1"},
		"a yes that was refused":      {[]Entry{asked, refused, runs("c", "HIGH", "eve")}, "\"eve\", who had not approved it"},
		"another's yes":               {[]Entry{asked, said("approve", "bob"), runs("c", "HIGH", "ann")}, "\"ann\", who had not approved it"},
		"one for CRITICAL":            {[]Entry{asked, said("approve", "bob"), said("approve", "bob"), runs("c", "CRITICAL", "bob")}, "1 people had approved it, not 2"},
		"silence for HIGH":            {[]Entry{asked, loud}, "0 people had approved it"},
		"a yes after it ran":          {[]Entry{asked, runs("c", "HIGH"), said("approve", "bob")}, "0 people had approved it"},
		"after a no":                  {[]Entry{asked, said("approve", "bob"), said("reject", "ann"), runs("c", "HIGH", "bob")}, "had ended by then (approval.reject)"},
		"after it was superseded":     {[]Entry{asked, said("approve", "bob"), said("supersede", "ann"), runs("c", "HIGH", "bob")}, "had ended by then"},
		"a token made twice":          {[]Entry{token("create", "tok_1"), token("create", "tok_1")}, "which was made before"},
		"a token revoked, never made": {[]Entry{token("revoke", "tok_1")}, "which no entry made"},
		"a token revoked twice":       {[]Entry{token("create", "tok_1"), token("revoke", "tok_1"), token("revoke", "tok_1")}, "which was revoked before"},
		"a row made twice":            {[]Entry{row(-1, "a"), row(-1, "b")}, "as entry -1 left it, and entry 0 changed it last"},
		"a row of nowhere":            {[]Entry{row(-1, "a"), {Kind: Change, Action: "x"}, row(1, "b")}, "as entry 1 left it, and entry 0 changed it last"},
		"a row that was removed":      {[]Entry{row(-1, "a"), row(0, ""), row(0, "b")}, "that entry doesn't name it"},
		"an adoption of what?":        {[]Entry{{Kind: Change, Action: Adopt}}, "doesn't say which"},
	} {
		report := story(t, c.entries...)
		switch {
		case c.problem == "" && !report.OK:
			t.Errorf("%s: %+v", name, report.Problems)
		case c.problem != "" && (report.OK || !strings.Contains(fmt.Sprint(report.Problems), c.problem)):
			t.Errorf("%s: %+v", name, report.Problems)
		}
	}
}

// Rows that an entry took over may change once from there, each.
func TestFoldOfAdoptedRows(t *testing.T) {
	adopt := Entry{Kind: Change, Action: Adopt, Decision: "ok", Detail: json.RawMessage(`{"rows":{"tokens":2},"digest":"x"}`)}
	row := func(table, key string, was int64) Entry {
		return Entry{Kind: Change, Action: "x", Rows: []Row{{Table: table, Key: key, Was: was, MAC: "m"}}}
	}
	if r := story(t, adopt, row("tokens", "a", 0), row("tokens", "b", 0), row("tokens", "a", 1), adopt, row("tokens", "a", 4), row("tokens", "c", -1)); !r.OK {
		t.Errorf("%+v", r.Problems)
	}
	for name, log := range map[string][]Entry{
		"twice from the adoption":     {adopt, row("tokens", "a", 0), row("tokens", "a", 0)},
		"of a table that it had not":  {adopt, row("pins", "a", 0)},
		"from before the second time": {adopt, row("tokens", "a", 0), adopt, row("tokens", "a", 1)},
	} {
		if r := story(t, log...); r.OK {
			t.Errorf("%s: taken", name)
		}
	}
}
