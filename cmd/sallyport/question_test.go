package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.example/client"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/display"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// everywhere is a question with the text wherever an agent, a server or a person could have put it.
func everywhere(t testing.TB, text string) *client.Approval {
	t.Helper()
	obj := func(v any) json.RawMessage {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		return bytes.TrimSpace(b.Bytes())
	}
	return &client.Approval{
		ApprovalID: "appr_1", State: "pending", Risk: "HIGH", Needed: 1, Operation: text, AgentID: text, Requester: text, OpenedBy: text, SessionID: text, SessionPhase: text,
		Digest: strings.Repeat("ab", 32), Arguments: obj(map[string]any{"text": text, text: []any{text, 1}}), Destinations: []string{text}, Amount: text, Consequence: text,
		Evidence:      []client.Finding{{Argument: text, Role: text, Value: text, Confirmed: true, By: text, Text: text, Operation: text, CallID: text, Record: 3, Field: text, Covers: true}, {Argument: text, Value: text, Text: text}},
		Justification: obj(map[string]string{"user_request": text, "missing_knowledge": text, "expected_use": text, "z" + text: text}),
		Tool:          &client.Described{Text: text, By: "server"},
		Labels:        []string{"internal", text}, SessionLabels: []string{"internal", "pii"}, UserRequest: text, Held: []client.Held{{Label: text, Operation: text, CallID: text}},
		Plan:    &client.Plan{PlanID: text, State: text, Steps: []client.PlanStep{{Tool: text, Operation: text, Arguments: obj(map[string]string{"a": text}), Justification: text}, {Tool: text}}},
		Earlier: []client.Earlier{{ApprovalID: text, Operation: text, AgentID: text, Destination: text, State: text, By: []string{text}, Reason: text, At: noon}},
		Reasons: []client.ApprovalReason{{Stage: "risk", Code: "risk.action", Text: text}, {Stage: text, Code: text, Text: text}},
		Votes:   []client.Vote{{Person: text, Decision: "approve", Comment: text, At: noon}}, Reason: text,
		ModifiedFrom: "appr_0", ModifiedBy: text, ModifiedReason: text, Before: obj(map[string]any{"text": text + "x"}), CreatedAt: noon, ExpiresAt: noon.Add(time.Hour), SilenceAt: noon.Add(time.Second),
	}
}

// hostile is what agents may write.
var hostile = map[string]string{
	"ANSI":             "a\x1b[2J\x1b[1;1H\x1b[31mrisk              LOW\x1b[0m",
	"title and link":   "\x1b]0;owned\x07\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
	"clipboard":        "\x1b]52;c;ZXZpbA==\x07",
	"C1":               "\u009b2J\u0085\u0090q",
	"bidi":             "safe\u202eevil\u2066x\u2069\u200f",
	"invisible":        "a\u200bb\u2060c\U000e0041d\ufeff\u00ad",
	"carriage return":  "delete everything\rrisk              LOW",
	"backspaces":       "evil" + strings.Repeat("\b", 40) + "good",
	"lines":            "x\n\nrisk              LOW\r\ndigest            0000\v\f",
	"tabs":             "a\tb\t\tc",
	"spaces":           "begin" + strings.Repeat(" ", 10_000) + "the end",
	"spaces to a line": strings.Repeat(" ", 80-nameWidth) + "risk              LOW, 2 of 2 approved",
	"a word to a line": strings.Repeat("x", 80-nameWidth) + "risk              LOW, 2 of 2 approved",
	"words to a line":  strings.Repeat("wo ", 300) + "risk              LOW, 2 of 2 approved",
	"long":             strings.Repeat("QUJD", 5000) + "the end",
	"wide":             strings.Repeat("漢字", 200),
	"combining":        "z" + strings.Repeat("\u0301", 500),
	"not UTF-8":        "a\xff\xfeb\xc3",
	"format":           "%s %d %!x(MISSING) %%",
	"fake mark":        "  | \"amount\": 1",
	"right to left":    "\u05d0 1111 2222 \u0628 3333",
	"other scripts":    "\u0660 \ufb1d \ufdf2 \ufefc \u07c0",
}

// Whatever is written where, each row is of the width, holds nothing that a terminal obeys, and begins with our words.
func TestQuestionIsHarmless(t *testing.T) {
	names := map[string]bool{"  LOOK TWICE      ": true} // not said of what is calm
	calm, _ := question(everywhere(t, "calm"), 200, noon)
	short, _ := question(everywhere(t, "calm"), 80, noon)
	for _, row := range append(calm, short...) {
		names[fmt.Sprintf("%.*s", min(nameWidth, len(row)), row)] = true
	}
	for name, text := range hostile {
		for _, width := range []int{20, 40, 80, 200} {
			rows, whole := question(everywhere(t, text), width, noon)
			if !whole {
				t.Errorf("%s: not whole", name)
			}
			count := map[string]int{}
			for _, row := range rows {
				used := 0
				for _, r := range row {
					if used += display.Columns(r); r < ' ' || r == 0x7f || display.Hidden(r) || !utf8.ValidString(row) {
						t.Fatalf("%s: %U in %q", name, r, row)
					}
				}
				if most := max(width, leastWidth); used > most && !strings.HasPrefix(row, "    (") {
					t.Errorf("%s: %d columns of %d: %q", name, used, most, row)
				}
				begin := fmt.Sprintf("%.*s", min(nameWidth, len(row)), row)
				if strings.HasPrefix(row, "digest ababab") {
					begin = "digest abababababa"
				}
				if first, _, _ := strings.Cut(row, " "); first != "" {
					count[first]++
				}
				marked := strings.HasPrefix(row, "  | ") || strings.HasPrefix(row, "  - | ") || strings.HasPrefix(row, "  + | ") || strings.HasPrefix(row, "    (")
				if !marked && strings.TrimSpace(begin) != "" && !names[begin] {
					t.Errorf("%s: a row begins with %q", name, row)
				}
			}
			for _, once := range []string{"approval", "risk", "operation", "digest", "expires", "arguments"} {
				if n := count[once]; n != 1 {
					t.Errorf("%s: %d rows are called %s", name, n, once)
				}
			}
		}
	}
}

// Terminals that know bidirectional text show digits beside a letter from right to left in another order than they are sent: no such letter is
// shown, in whatever form, and it is said why.
func TestNothingRunsFromRightToLeft(t *testing.T) {
	const text = "\u05d0 1111 2222 \u0660\u06dd\ufb1d\ufefc\U00010800\U0001e900\U0001ee00"
	turns := func(r rune) bool {
		return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko, unicode.Cypriot, unicode.Adlam) || r == 0x6dd
	}
	a := everywhere(t, text)
	rows, whole := question(a, 100, noon)
	if all := strings.Join(rows, "\n"); !whole || strings.ContainsFunc(all, turns) || !strings.Contains(all, `"text": "\u05d0 1111 2222 \u0660`) || strings.Count(all, "right-to-left letters") != 1 {
		t.Errorf("whole is %v: %s", whole, all)
	}
	if rows, _ := question(everywhere(t, "calm"), 100, noon); strings.Contains(strings.Join(rows, "\n"), "right-to-left") {
		t.Error("it says that letters are escaped where none is")
	}
	only, _ := question(&client.Approval{ApprovalID: "appr_1", Arguments: json.RawMessage(`{"to":"` + text + `"}`)}, 100, noon)
	if all := strings.Join(only, "\n"); strings.ContainsFunc(all, turns) || !strings.Contains(all, "right-to-left letters") {
		t.Errorf("in the arguments: %s", all)
	}
	for _, form := range formats {
		var out bytes.Buffer
		c := &cli{out: &out, output: form}
		if err := c.print(a, func(tb *table) { tb.row(text); tb.field("x", text); tb.line("%s", text) }); err != nil || strings.ContainsFunc(out.String(), turns) {
			t.Errorf("%s: %v %s", form, err, &out)
		}
		out.Reset()
		if err := c.printOne(a); err != nil || strings.ContainsFunc(out.String(), turns) {
			t.Errorf("%s: %v %s", form, err, &out)
		}
		var back client.Approval
		if form == "json" && (json.Unmarshal(out.Bytes(), &back) != nil || back.Operation != text) {
			t.Errorf("not what it was: %s", &out)
		}
	}
	for _, script := range []*unicode.RangeTable{unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko, unicode.Samaritan, unicode.Mandaic, unicode.Cypriot, unicode.Phoenician, unicode.Lydian,
		unicode.Kharoshthi, unicode.Avestan, unicode.Old_Turkic, unicode.Hanifi_Rohingya, unicode.Yezidi, unicode.Sogdian, unicode.Mende_Kikakui, unicode.Adlam} {
		for r := range rune(unicode.MaxRune + 1) {
			if unicode.Is(script, r) && display.Terminal(string(r), 100) == string(r) {
				t.Errorf("%U is shown", r)
			}
		}
	}
}

// What is approved is shown to its last byte: the rows, put together again, are the arguments.
func TestQuestionIsExact(t *testing.T) {
	for name, text := range hostile {
		if !utf8.ValidString(text) || strings.Contains(text, "         ") {
			continue // not in canonical JSON; and what is counted is counted
		}
		a := everywhere(t, text)
		rows, _ := question(a, 80, noon)
		var back strings.Builder
		in := false
		for _, row := range rows {
			if strings.HasPrefix(row, "arguments ") {
				in = true
				continue
			}
			body, marked := strings.CutPrefix(row, "  | ")
			if in && !marked && !strings.HasPrefix(row, "    (") {
				break
			}
			if in && marked {
				back.WriteString(body)
			}
		}
		var got, want any
		if err := json.Unmarshal(a.Arguments, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(back.String(), `\U000e0041`, `\udb40\udc41`)), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v\n%q\n%q", name, err, back.String(), a.Arguments)
		}
	}
	rows, _ := question(everywhere(t, hostile["spaces"]), 80, noon)
	if text := strings.Join(rows, "\n"); !strings.Contains(text, `begin\[10000 spaces]the end`) || len(rows) > 200 {
		t.Errorf("%d rows: %.3000s", len(rows), text)
	}
}

// What is too large is not cut in silence, and not whole.
func TestQuestionTooLarge(t *testing.T) {
	for text, whole := range map[string]bool{strings.Repeat("x", shownArguments-100): true, strings.Repeat("x", shownArguments): false, strings.Repeat("x,", 100): true} {
		a := &client.Approval{ApprovalID: "appr_1", Arguments: json.RawMessage(`{"a":"` + text + `","b":"the end"}`)}
		rows, got := question(a, 80, noon)
		all := strings.Join(rows, "\n")
		if got != whole || strings.Contains(all, "NOT SHOWN") == whole || strings.Contains(all, "the end") != whole || !strings.Contains(all, fmt.Sprintf("%d bytes", len(a.Arguments))) {
			t.Errorf("%d: %v, %.300s … %.300s", len(text), got, all, all[max(0, len(all)-300):])
		}
	}
}

// What can pass for other letters is named, since a terminal shows it alike.
func TestQuestionLookalikes(t *testing.T) {
	a := &client.Approval{ApprovalID: "appr_1", Arguments: json.RawMessage(`{"to":"sales@аcme.example","body":"see xn--pple-43d.com"}`), Destinations: []string{`"sales@аcme.example"`, `"sales@пример.com"`}}
	rows, _ := question(a, 200, noon)
	all := strings.Join(rows, "\n")
	for _, want := range []string{"LOOK TWICE      \"аcme\": Cyrillic and Latin letters", `LOOK TWICE      "xn--pple-43d": a name in code`, `LOOK TWICE      destination "sales@пример.com": Latin and Cyrillic`, `LOOK TWICE      destination "sales@аcme.example": Latin and Cyrillic`} {
		if !strings.Contains(all, want) {
			t.Errorf("there is no %s in\n%s", want, all)
		}
	}
	a.Arguments, a.Destinations = json.RawMessage(`{"to":"sales@acme.example","body":"Отчёт для USB-кабеля"}`), []string{`"sales@acme.example"`}
	if rows, _ := question(a, 200, noon); strings.Contains(strings.Join(rows, "\n"), "LOOK TWICE") {
		t.Errorf("what is plain is doubted: %s", strings.Join(rows, "\n"))
	}
}

// Words elsewhere push no destination out, and that not all are listed is said.
func TestQuestionLookalikesManyWords(t *testing.T) {
	for n, more := range map[int]bool{shownDoubts: false, shownDoubts + 1: true} {
		body := ""
		for i := range n {
			body += "kмh" + string(rune('a'+i)) + " "
		}
		raw, _ := json.Marshal(map[string]string{"body": strings.Repeat("kмha ", 100) + body, "to": "pay@paypal.com"})
		rows, _ := question(&client.Approval{Arguments: raw, Destinations: []string{`"pay@pаypal.com"`}}, 200, noon)
		all := strings.Join(rows, "\n")
		for _, want := range []string{`LOOK TWICE      destination "pay@pаypal.com": Latin and Cyrillic`, `LOOK TWICE      "kмhj": `} {
			if !strings.Contains(all, want) {
				t.Errorf("%d words: there is no %s in\n%s", n, want, all)
			}
		}
		if strings.Contains(all, "and more than these 10 words") != more {
			t.Errorf("%d words: that there are more is said or isn't:\n%s", n, all)
		}
	}
}

func TestQuestionInOrder(t *testing.T) {
	a := everywhere(t, "calm")
	a.Reasons = []client.ApprovalReason{{Stage: "risk", Code: "risk.amount", Text: "from 1,000 on"}, {Stage: "flow", Code: "flow.contaminated", Text: "it read mail"}}
	a.Votes, a.Risk, a.Needed = a.Votes[:1], "CRITICAL", 2
	a.Arguments, a.Before = json.RawMessage(`{"amount":900,"to":"x"}`), json.RawMessage(`{"amount":1000,"to":"x"}`)
	rows, _ := question(a, 120, noon)
	at := 0
	for _, want := range []string{
		"approval          appr_1, waiting", "risk              CRITICAL, 1 of 2 approved", "  by the rule     risk.amount: from 1,000 on", "amount ", "could go wrong ", "operation ", "  its server says calm",
		"arguments         23 bytes, all of them here", "  | {", `  |   "amount": 900,`,
		"where it came from", `  NOT CONFIRMED   "calm" (no role) = "calm"`, "    why           calm", `  confirmed       "calm" (calm) = "calm", by calm`, "    why           calm",
		`    source        record 3 of calm, field "calm", calm`, "    a yes covers  other values", "changed           by calm: calm", `  - |   "amount": 1000,`, `  + |   "amount": 900,`,
		"the agent says ", "  it was asked ", "  it lacks ", "  it wants it for ", "asked by          flow: it read mail", "on record ", "session ", "it has read       internal, calm", "and by now        internal, pii",
		"  label           calm came from calm, calm", "plan ", "  > step 0", "earlier           12:00:00, 0 s ago calm by calm", "answer ", "runs unasked at ", "expires           13:00:00, in 1 h", "digest            abab",
	} {
		for at < len(rows) && !strings.HasPrefix(rows[at], want) {
			at++
		}
		if at == len(rows) {
			t.Fatalf("%q is not there, or not in its place:\n%s", want, strings.Join(rows, "\n"))
		}
	}
}

// That the agent gave no reasons stands before the rules, and what nobody says of the tool is said, too.
func TestQuestionWithoutReasons(t *testing.T) {
	none := client.ApprovalReason{Stage: approval.NoReason.Stage, Code: approval.NoReason.Code, Text: approval.NoReason.Text}
	for _, c := range []struct {
		risk          string
		reasons       []client.ApprovalReason
		tool          *client.Described
		want, without string
	}{
		{"HIGH", []client.ApprovalReason{none, {Stage: "risk", Code: "risk.action", Text: "it pays"}}, nil, "risk              HIGH, 0 of 1 approved\nNO REASON GIVEN   the agent did not say why\n  by the rule     risk.action: it pays", "asked by"},
		{"CRITICAL", nil, nil, "  what it does    not known", "NO REASON"},
		{"MEDIUM", nil, nil, "risk              MEDIUM", "what it does"},
		{"HIGH", nil, &client.Described{Text: "Pays.", By: "operator"}, "  operator says   Pays.", "what it does"},
		{"HIGH", nil, &client.Described{Text: "Fetches.", By: "gateway"}, "  built in        Fetches.", "what it does"},
	} {
		rows, _ := question(&client.Approval{ApprovalID: "appr_1", Risk: c.risk, Needed: 1, Operation: "bank.pay", Arguments: json.RawMessage(`{}`), Reasons: c.reasons, Tool: c.tool}, 120, noon)
		if all := strings.Join(rows, "\n"); !strings.Contains(all, c.want) || strings.Contains(all, c.without) {
			t.Errorf("%q is not there, or %q is:\n%s", c.want, c.without, all)
		}
	}
}

// Where values came from is said without what they are in full: a value can't pass for a source, or hide a missing one.
func TestQuestionSaysWhereValuesCameFrom(t *testing.T) {
	long := strings.Repeat("x", 500)
	a := &client.Approval{ApprovalID: "appr_1", Arguments: json.RawMessage(`{}`), Evidence: []client.Finding{
		{Argument: "amount", Role: "amount", Value: "12", Confirmed: true, By: "payee", Text: "who gets it is named"},
		{Argument: "to", Role: "destination", Value: `x" (content) = "y", by the request`, Text: "it is not confirmed", Operation: "mail.search", CallID: "call_1", Record: 2},
		{Argument: "note", Role: "name", Value: long, Confirmed: true, By: "words", Text: "said"},
	}}
	rows, _ := question(a, 120, noon)
	all := strings.Join(rows, "\n")
	for _, want := range []string{
		`  NOT CONFIRMED   "to" (destination) = "x\" (content) = \"y\", by the request"`, "    source        record 2 of mail.search, call_1\n",
		`  confirmed       "amount" (amount) = "12", by the request, which says who gets it`, "…(+",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	if strings.Contains(all, long[:200]) || strings.Index(all, "NOT CONFIRMED") > strings.Index(all, "  confirmed  ") {
		t.Errorf("a value is too long, or the unconfirmed ones are not first:\n%s", all)
	}
	for range shownFindings {
		a.Evidence = append(a.Evidence, client.Finding{Argument: "cc", Role: "destination", Value: "z", Confirmed: true, By: "words", Text: "said"})
	}
	rows, _ = question(a, 120, noon)
	if all := strings.Join(rows, "\n"); !strings.Contains(all, "  NOT SHOWN       3 more: sallyport approvals show appr_1") || !strings.Contains(all, "NOT CONFIRMED") {
		t.Errorf("what is left out is not said:\n%s", all)
	}
	a.Evidence = nil
	if rows, _ = question(a, 120, noon); strings.Contains(strings.Join(rows, "\n"), "came from") {
		t.Error("something is said of what was not looked at")
	}
}

// What a call does is one sentence with whom it reaches.
func TestQuestionSaysWhatItDoes(t *testing.T) {
	for _, c := range []struct {
		review client.Review
		want   string
	}{
		{client.Review{Does: "Transfer 480 EUR", To: []string{"DE02 1203"}}, "it does           Transfer 480 EUR to DE02 1203"},
		{client.Review{Does: "Delete 4 customers", To: []string{"c-1", "c-2"}}, "it does           Delete 4 customers c-1, c-2"},
		{client.Review{Does: "Send a mail"}, "it does           Send a mail"},
		{client.Review{To: []string{"c-1"}}, "it does           c-1"},
	} {
		rows, _ := question(&client.Approval{ApprovalID: "appr_1", Review: &c.review, Arguments: json.RawMessage(`{}`)}, 120, noon)
		if !slices.Contains(rows, c.want) {
			t.Errorf("no %q in %q", c.want, rows)
		}
	}
}
