package declare

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"sallyport.example/internal/call"
)

const session = "sess_1"

// record is the person's words in most tests.
const record = "What does Product X cost in 2026? A customer asks."

var known = Context{Session: session, UserRequest: record, Known: func(op string) bool {
	return slices.Contains([]string{"comm.search", "comm.fetch", "comm.query", "jira.search"}, op)
}}

// valid is a declaration as the source shows it, with the named members replaced; "" takes a member out.
func valid(t testing.TB, with ...string) []byte {
	t.Helper()
	body := map[string]json.RawMessage{
		"operation":  json.RawMessage(`"comm.search"`),
		"parameters": json.RawMessage(`{"query":"Product X pricing 2026","scope":"web"}`),
		"justification": json.RawMessage(`{"user_request":"What does Product X cost in 2026?",
			"missing_knowledge":"current list price of Product X","expected_use":"summarize"}`),
		"phase":      json.RawMessage(`"execution"`),
		"session_id": json.RawMessage(`"` + session + `"`),
	}
	for i := 0; i < len(with); i += 2 {
		if with[i+1] == "" {
			delete(body, with[i])
		} else {
			body[with[i]] = json.RawMessage(with[i+1])
		}
	}
	var parts []string
	for name, value := range body {
		parts = append(parts, `"`+name+`":`+string(value))
	}
	return []byte("{" + strings.Join(parts, ",") + "}")
}

// judge is what a caller does with a body.
func judge(body []byte, c Context) ([]Problem, []string) {
	r, problems := Parse(body)
	more, flags := r.Check(c)
	return Merge(problems, more), flags
}

// fields are the fields of problems, sorted.
func fields(problems []Problem) []string {
	f := []string{}
	for _, p := range problems {
		f = append(f, p.Field)
	}
	slices.Sort(f)
	return f
}

func refused(t *testing.T, name string, body []byte, field, words string) {
	t.Helper()
	problems, _ := judge(body, known)
	if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Field == field && strings.Contains(p.Problem, words) }) {
		t.Errorf("%s: want %s: …%s…, got %v", name, field, words, problems)
	}
	if len(problems) != 1 {
		t.Errorf("%s: want one problem, got %v", name, problems)
	}
}

// DE-1.
func TestDeclaration_ValidAccepted(t *testing.T) {
	for name, body := range map[string][]byte{
		"as in the source":   valid(t),
		"a URL":              valid(t, "operation", `"comm.fetch"`, "parameters", `{"url":"https://example.com/api/data"}`),
		"a database":         valid(t, "operation", `"comm.query"`, "parameters", `{"database":"crm","sql":"SELECT 1","scope":"database"}`),
		"no parameters":      valid(t, "parameters", `{}`),
		"others' scope":      valid(t, "operation", `"jira.search"`, "parameters", `{"scope":"all","url":["x"],"query":{"a":1}}`),
		"nested parameters":  valid(t, "parameters", `{"query":"Product X pricing","filter":{"a":[1,{"b":null}]}}`),
		"white space around": append([]byte(" \n"), valid(t)...),
	} {
		r, problems := Parse(body)
		if more, flags := r.Check(known); len(problems)+len(more)+len(flags) != 0 {
			t.Errorf("%s: %v %v %v", name, problems, more, flags)
		}
		if canonical, err := call.Canonical(r.Parameters, call.DefaultLimits()); err != nil || string(canonical) != string(r.Parameters) {
			t.Errorf("%s: parameters are not canonical: %s", name, r.Parameters)
		}
	}
}

// DE-2.
func TestDeclaration_MissingJustificationRejected(t *testing.T) {
	refused(t, "none", valid(t, "justification", ""), "justification", "is missing")
	for name, j := range map[string]string{"null": `null`, "string": `"because"`, "array": `["a","b","c"]`, "number": `1`} {
		refused(t, name, valid(t, "justification", j), "justification", "must be an object")
	}
	full := map[string]string{"user_request": "What does Product X cost?", "missing_knowledge": "list price", "expected_use": "compare prices"}
	for field := range full {
		at := "justification." + field
		for name, c := range map[string]struct{ value, words string }{
			"absent": {"", "is missing"}, "empty": {`""`, "is missing"}, "blank": {`" \u00a0 "`, "is missing"}, "null": {`null`, "must be a string"},
			"object": {`{"a":"b"}`, "must be a string"}, "vague": {`"search stuff"`, "is vague"}, "no word": {`"?!… 👍"`, "is vague"},
			"long":    {`"` + strings.Repeat("price ", MaxField/6+1) + `"`, "at most 2000"},
			"control": {`"Product price\u0007"`, "control character"},
		} {
			j := map[string]json.RawMessage{}
			for k, v := range full {
				j[k], _ = json.Marshal(v)
			}
			if delete(j, field); c.value != "" {
				j[field] = json.RawMessage(c.value)
			}
			raw, err := json.Marshal(j)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, field+" "+name, valid(t, "justification", string(raw)), at, c.words)
		}
	}
}

func TestDeclaration_InvalidPhaseRejected(t *testing.T) {
	for phase, words := range map[string]string{
		"": "is missing", `""`: "is missing", `"planning"`: "planning phase", `"Execution"`: "must be execution", `"execution "`: "must be execution", `"planning "`: "must be execution",
		`"exec"`: "must be execution", `"unknown"`: "must be execution", `null`: "must be a string", `["execution"]`: "must be a string",
		`"execution\u0000"`: "must be execution", `"` + strings.Repeat("x", 300) + `"`: "at most 200",
	} {
		refused(t, phase, valid(t, "phase", phase), "phase", words)
	}
}

func TestDeclaration_MalformedParametersRejected(t *testing.T) {
	for parameters, words := range map[string]string{"": "is missing", `null`: "must be an object", `[]`: "must be an object", `"q"`: "must be an object", `7`: "must be an object"} {
		refused(t, parameters, valid(t, "parameters", parameters), "parameters", words)
	}
	for _, c := range []struct{ parameters, field, words string }{
		{`{"scope":"galaxy"}`, "parameters.scope", "web, internal or database"},
		{`{"scope":"Web"}`, "parameters.scope", "web, internal or database"},
		{`{"scope":""}`, "parameters.scope", "web, internal or database"},
		{`{"scope":null}`, "parameters.scope", "must be a string"},
		{`{"scope":["web"]}`, "parameters.scope", "must be a string"},
		{`{"query":"search stuff"}`, "parameters.query", "is vague"},
		{`{"query":""}`, "parameters.query", "is missing"},
		{`{"query":7}`, "parameters.query", "must be a string"},
		{`{"query":"Product X \u202e2026"}`, "parameters.query", "direction"},
		{`{"url":"example.com/x"}`, "parameters.url", "whole URL"},
		{`{"url":"https:///x"}`, "parameters.url", "whole URL"},
		{`{"url":"https://exa mple.com/"}`, "parameters.url", "whole URL"},
		{`{"url":""}`, "parameters.url", "whole URL"},
		{`{"url":{"href":"https://example.com"}}`, "parameters.url", "must be a string"},
		{`{"url":"https://example.com/\u200bx"}`, "parameters.url", "invisible"},
	} {
		refused(t, c.parameters, valid(t, "parameters", c.parameters), c.field, c.words)
	}
	// A request that was not made by Parse is checked no less.
	r, _ := Parse(valid(t))
	r.Parameters = json.RawMessage(`{"query":"` + strings.Repeat("price ", MaxBody/6+1) + `"}`)
	if problems, _ := r.Check(known); !slices.Equal(fields(problems), []string{"parameters.query"}) {
		t.Errorf("a long query: %v", problems)
	}
	for _, raw := range []string{"", "{", `{"a":1,"A":2}`, " []", `{} {}`} {
		r.Parameters = json.RawMessage(raw)
		if problems, _ := r.Check(known); !slices.Equal(fields(problems), []string{"parameters"}) {
			t.Errorf("%q: %v", raw, problems)
		}
	}
}

func TestDeclaration_WrongSessionRejected(t *testing.T) {
	for id, words := range map[string]string{"": "is missing", `""`: "is missing", `"sess_2"`: "is not this session's", `"SESS_1"`: "is not this session's", `1`: "must be a string"} {
		refused(t, id, valid(t, "session_id", id), "session_id", words)
	}
	c := known
	c.Session = ""
	if problems, _ := judge(valid(t), c); !slices.Equal(fields(problems), []string{"session_id"}) {
		t.Errorf("a declaration of no session: %v", problems)
	}
	if problems, _ := judge(valid(t, "session_id", `""`), c); !slices.Equal(fields(problems), []string{"session_id"}) {
		t.Errorf("a declaration of no session for no session: %v", problems)
	}
}

func TestDeclaration_UnknownOperationRejected(t *testing.T) {
	for op, words := range map[string]string{"": "is missing", `""`: "is missing", `"comm.teleport"`: "is unknown", `"COMM.SEARCH"`: "is unknown", `"comm_search"`: "is the name of a tool: write comm.search", `"comm_teleport"`: "is unknown", `{}`: "must be a string"} {
		refused(t, op, valid(t, "operation", op), "operation", words)
	}
	if problems, _ := judge(valid(t), Context{Session: session, UserRequest: record}); !slices.Equal(fields(problems), []string{"operation"}) {
		t.Errorf("nobody knows an operation: %v", problems)
	}
}

// Parsing is strict: the parameters that were declared are the ones that are sent.
func TestDeclaration_LooseJSONRejected(t *testing.T) {
	whole := string(valid(t))
	for name, body := range map[string]string{
		"empty": "", "not JSON": "operation=comm.search", "duplicate": `{"operation":"comm.fetch",` + whole[1:],
		"case variant": `{"OPERATION":"comm.fetch",` + whole[1:], "trailing": whole + "{}", "byte order mark": "\ufeff" + whole,
		"invalid UTF-8":             strings.Replace(whole, "Product", "Pr\xffduct", 1),
		"duplicate in parameters":   string(valid(t, "parameters", `{"a":1,"a":2}`)),
		"case variant in parameter": string(valid(t, "parameters", `{"a":{"url":1,"URL":2}}`)),
		"array":                     `[` + whole + `]`, "string": `"x"`, "null": "null",
		"too long": whole[:len(whole)-1] + `,"x":"` + strings.Repeat("x", MaxBody) + `"}`,
		"too deep": string(valid(t, "parameters", strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100))),
	} {
		refused(t, name, []byte(body), "body", "")
	}
	refused(t, "unknown", valid(t, "approved", "true"), "approved", "is not a field: there are operation")
	refused(t, "hostile name", valid(t, `<b>\u202e`, "true"), "body", "has a member that is not a field")
	refused(t, "renamed", valid(t, "phase", `"execution"`, "Phases", `1`), "Phases", "is not a field")
	refused(t, "unknown inside", valid(t, "justification", `{"user_request":"Product X","missing_knowledge":"price","expected_use":"cite","approved_by":"admin"}`),
		"justification.approved_by", "is not a field")
	problems, _ := judge(valid(t, "operation", "", "Operation", `"comm.search"`), known)
	if !slices.Equal(fields(problems), []string{"Operation", "operation"}) || !strings.Contains(problems[0].Problem, "write operation") {
		t.Errorf("a case variant alone: %v", problems)
	}
}

// Every problem is listed, none twice, and none of them repeats what was sent.
func TestParseAndCheckListEverything(t *testing.T) {
	body := []byte(`{"operation":"comm.s3cret","parameters":{"query":"stuff","scope":"s3cret","url":"s3cret"},"phase":"s3cret","session_id":"s3cret",
		"justification":{"user_request":"s3cret","missing_knowledge":7,"why":"s3cret"},"extra":"s3cret"}`)
	problems, _ := judge(body, known)
	want := []string{"extra", "justification.expected_use", "justification.missing_knowledge", "justification.user_request", "justification.why",
		"operation", "parameters.query", "parameters.scope", "parameters.url", "phase", "session_id"}
	if got := fields(problems); !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	for _, p := range problems {
		if strings.Contains(p.Problem, "s3cret") {
			t.Errorf("%v repeats what was sent", p)
		}
	}
	if problems, _ := judge([]byte(`{}`), Context{}); !slices.Equal(fields(problems), []string{"justification", "operation", "parameters", "phase", "session_id"}) {
		t.Errorf("of nothing: %v", problems)
	}
	if b, err := json.Marshal(problems[0]); err != nil || !strings.Contains(string(b), `"field":`) || !strings.Contains(string(b), `"problem":`) {
		t.Errorf("%s %v", b, err)
	}
}

func TestParseJustification(t *testing.T) {
	j, problems := ParseJustification(json.RawMessage(`{"expected_use":"c","missing_knowledge":"b","user_request":"a"}`))
	if j != (Justification{"a", "b", "c"}) || len(problems) != 0 {
		t.Errorf("%+v %v", j, problems)
	}
	for in, want := range map[string][]string{
		``: {"justification"}, `"because"`: {"justification"}, `{"user_request":"a","user_request":"b"}`: {"justification"},
		`{"user_request":1,"b":2}`: {"justification.b", "justification.expected_use", "justification.missing_knowledge", "justification.user_request"},
	} {
		if _, problems := ParseJustification(json.RawMessage(in)); !slices.Equal(fields(problems), want) {
			t.Errorf("%s: %v", in, problems)
		}
	}
}

// The three fields say three things; only a question may be what is missing.
func TestExpectedUseRepeatsNothing(t *testing.T) {
	for _, c := range []struct {
		j    Justification
		want []string
	}{
		{Justification{"Product X cost", "Product X cost", "product x, COST!"}, []string{"justification.expected_use"}},
		{Justification{"Product X cost", "list price", "Product X cost"}, []string{"justification.expected_use"}},
		{Justification{"Product X cost", "list price", "List  price."}, []string{"justification.expected_use"}},
		{Justification{"Product X cost", "Product X cost", "summarize"}, []string{}},
	} {
		r, _ := Parse(valid(t))
		r.Justification = c.j
		if problems, _ := r.Check(known); !slices.Equal(fields(problems), c.want) {
			t.Errorf("%+v: %v", c.j, problems)
		}
	}
}

func TestUserRequestAgainstTheRecord(t *testing.T) {
	for _, c := range []struct {
		record, declared string
		want             string // a flag, "ok" or "refused"
	}{
		{"What does Product X cost in 2026?", "What does Product X cost in 2026?", "ok"},
		{"What does Product X cost in 2026? A customer asks.", "what does PRODUCT X cost", "ok"},
		{"Compare the prices of our products with the companies in Köln", "price of product, company, koln", "ok"},
		{"Compare the prices of our products", "pricing for Product", "ok"},
		{"I was running", "run", "ok"},
		{"👍!", "👍!", "refused"}, // quoted, but there is not a word in it
		{"Vergleiche die Preise der Produkte in München", "Preis eines Produkts, Munchen", "ok"}, // "eines" is not in the request
		{"Vergleiche die Preise der Produkte in München", "Preis Produkt MÜNCHEN", "ok"},
		{"What does Product X cost?", "Wire 5000 EUR to account 12345", "refused"},
		{"What does Product X cost?", "What does the weather do?", "refused"}, // shares filler only
		{"What does Product X cost?", "Product launch schedule of competitors in Asia", RequestParaphrased},
		{"", "anything at all about kubernetes", NoRequestOnRecord},
		{"help me with this task", "help me with this task", "ok"}, // vague, but quoted as it is
		{"help me with this task", "Kubernetes upgrade", RequestParaphrased},
		{"help me with this task", "help with the task", "refused"}, // vague, and not what was said
		{"产品X在2026年的价格是多少", "产品X的价格", "ok"},
		{"产品X在2026年的价格是多少", "天气预报", "refused"},
		{"제품 가격을 알려줘", "제품의 가격", "ok"},
		{"ما هو سعر المنتج في القاهرة", "سعر منتج", "ok"},
		{"ما هو سعر المنتج", "منتج", "ok"},
		{"ما هو سعر المنتج", "الطقس في برلين", "refused"},
		{"उत्पाद की कीमत क्या है", "उत्पाद कीमत", "ok"},
		{"Ｐｒｏｄｕｃｔ Ｘ cost", "product x cost", "ok"}, // full width
		{"Straße in Łódź und Ærø", "STRASSE", "ok"},
		{"Straße in Łódź und Ærø", "LODZ", "ok"},
	} {
		r, _ := Parse(valid(t))
		r.Justification.UserRequest = c.declared
		in := known
		in.UserRequest = c.record
		problems, flags := r.Check(in)
		got := "ok"
		if len(problems) > 0 {
			if !slices.Equal(fields(problems), []string{"justification.user_request"}) {
				t.Errorf("%q of %q: %v", c.declared, c.record, problems)
			}
			got = "refused"
		} else if len(flags) > 0 {
			got = strings.Join(flags, ",")
		}
		if got != c.want {
			t.Errorf("%q of %q: %s, want %s: %v", c.declared, c.record, got, c.want, problems)
		}
	}
	// What was said is quoted as it is, but still has to be short enough, and seen whole.
	long := known
	long.UserRequest = strings.Repeat("Product X cost ", MaxField/15+1)
	whole, _ := Parse(valid(t))
	whole.Justification.UserRequest = long.UserRequest
	if problems, _ := whole.Check(long); !slices.Equal(fields(problems), []string{"justification.user_request"}) {
		t.Errorf("a long quotation: %v", problems)
	}
	r, _ := Parse(valid(t))
	r.Justification.UserRequest = "Product X\u202e cost"
	in := known
	in.UserRequest = r.Justification.UserRequest
	if problems, _ := r.Check(in); !slices.Equal(fields(problems), []string{"justification.user_request"}) {
		t.Errorf("an invisible quotation: %v", problems)
	}
}

func TestVague(t *testing.T) {
	for _, s := range []string{
		"", "search stuff", "Search the web for more information.", "find something", "I need data", "n/a", "N/A", "test", "TODO", "todo: test",
		"to answer the user's question", "Because I need it.", "because the user asked me to", "please help me with this task", "more info!!!",
		"Look it up online", "get the latest info from the internet", "whatever", "…", "?", "a", "x", "xxxxxxx", "aaa bbb", "www", "I don't know",
		"I don’t know anything about it", "to use it", "ＳＥＡＲＣＨ ｓｔｕｆｆ", "séarch stüff", "how information will be used", "使", "🔍🔍🔍", "some details",
		"user request", "N.A.", "- - -", "search_stuff", "test-test", "the thing that was requested by the user",
	} {
		if !vague(s) {
			t.Errorf("%q passes", s)
		}
	}
	for _, s := range []string{
		"Need product pricing data for customer query", "Product X pricing 2026", "kubernetes", "Kubernetes!", "summarize", "cite", "compare", "reference",
		"quote it with its source", "42", "CVE-2026-27896", "order 2222", "current weather", "GDP", "who won the election",
		"Ich brauche die aktuellen Preise für Produkt X", "Zusammenfassung für den Kunden", "需要产品X的最新价格", "价格", "أحتاج إلى أسعار المنتج", "سعر",
		"मुझे उत्पाद की कीमत चाहिए", "कीमत", "製品の価格を知りたい", "제품 가격", "ราคาสินค้า", "цена продукта", "τιμή προϊόντος", "מחיר המוצר", "giá sản phẩm",
		"summarize search results", "Find flights to Oslo", "search: kubernetes", "ग्राहक के लिए सारांश",
	} {
		if vague(s) {
			t.Errorf("%q is called vague", s)
		}
		if at, what := unseen(s); what != "" {
			t.Errorf("%q: %s at %d", s, what, at)
		}
	}
}

// A mark belongs to what it stands on; where the script changes, the word does.
func TestWords(t *testing.T) {
	for in, want := range map[string]string{
		"ราคาสินค้า 2026": "ราคาสินค้า+ 2026", "कीमत क्या": "कीमत क्या", "价格2026年": "价格+ 2026 年+", "がx": "が+ x", "don’t, can't": "dont cant",
		"a_b-c.d": "a b c d", "́x": "x", "קָ": "ק", "": "", "x⃝価⃝": "x⃝ 価⃝+",
	} {
		var got []string
		words(fold(in), func(w string, dense bool) {
			if dense {
				w += "+"
			}
			got = append(got, w)
		})
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// The table is in the form that words are compared in, or a word in it would never be found.
func TestFillerIsFolded(t *testing.T) {
	if len(filler) < 300 {
		t.Fatalf("only %d words", len(filler))
	}
	for w := range filler {
		var got []string
		words(fold(w), func(w string, _ bool) { got = append(got, w) })
		if !slices.Equal(got, []string{w}) {
			t.Errorf("%q is looked up as %q", w, got)
		}
	}
}

func TestUnseen(t *testing.T) {
	for s, want := range map[string]string{
		"a\nb": "control", "a\tb": "control", "\x00": "control", "a\x1b[31mb": "control", "a\u0085b": "control", "\x7f": "control",
		"\u202e": "direction", "a\u2066b": "direction", "a\u200eb": "direction", "\u061c": "direction",
		"a\u200bb": "invisible", "a\u200cb": "invisible", "a\u200db": "invisible", "\ufeffa": "invisible", "a\u00adb": "invisible", "\u2060": "invisible",
		"a\U000e0041b": "invisible", "a\ufe0fb": "invisible", "a\U000e0101b": "invisible", "\u3164": "invisible", "\u115f": "invisible", "\u2800": "invisible",
		"\u2028": "invisible", "\ue000": "invisible", "\u034f": "invisible", "\u180e": "invisible", "क\u200d": "invisible", "\u200dक": "invisible",
		"क\u200d\u200dक": "invisible", "क\u200da": "invisible",
		"plain": "", "não – «ja» 100 %": "", "می\u200cخواهم": "", "क\u094d\u200dष": "", "東京　大阪": "", "a\u00a0b": "", "e\u0301": "",
	} {
		at, what := unseen(s)
		if (what == "") != (want == "") || !strings.Contains(what, want) {
			t.Errorf("%q: %q at %d, want %q", s, what, at, want)
		}
	}
	if at, _ := unseen("äöü\u200b"); at != 4 {
		t.Errorf("counted %d characters", at)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(valid(f), record)
	f.Add([]byte(`{}`), "")
	f.Add([]byte(`{"operation":1,"parameters":[],"justification":{"a":1},"phase":null,"session_id":{}}`), "价格")
	f.Add(valid(f, "justification", `{"user_request":"می\u200cخواهم 价格 ราคา","missing_knowledge":"search stuff","expected_use":"\u202e"}`), "ß İ ı ŉ")
	f.Add([]byte(`{"operation":"comm.search","Operation":"x"}`), "\xff")
	f.Fuzz(func(t *testing.T, body []byte, record string) {
		r, problems := Parse(body)
		c := known
		c.UserRequest = record
		more, flags := r.Check(c)
		all := Merge(problems, more)
		for _, p := range all {
			if p.Field == "" || p.Problem == "" || len(p.Field) > 100 || len(p.Problem) > 400 || !utf8.ValidString(p.Field+p.Problem) {
				t.Fatalf("%+v", p)
			}
		}
		if len(more) == 0 && len(problems) == 0 {
			j := r.Justification
			for _, s := range []string{j.UserRequest, j.MissingKnowledge, j.ExpectedUse} {
				if _, what := unseen(s); s == "" || len(s) > MaxField || what != "" {
					t.Fatalf("accepted %q", s)
				}
			}
			if vague(j.MissingKnowledge) || vague(j.ExpectedUse) || r.SessionID != session || r.Phase != "execution" || !c.Known(r.Operation) ||
				(record == "") != slices.Contains(flags, NoRequestOnRecord) {
				t.Fatalf("accepted %+v %v", r, flags)
			}
			again, err := call.Canonical(r.Parameters, call.DefaultLimits())
			if err != nil || string(again) != string(r.Parameters) || again[0] != '{' {
				t.Fatalf("parameters %q: %v", r.Parameters, err)
			}
			// What is sent again as it was understood is understood the same.
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) <= MaxBody {
				if twice, problems := Parse(b); len(problems) > 0 || twice.Justification != j || string(twice.Parameters) != string(r.Parameters) {
					t.Fatalf("%+v, then %+v %v", r, twice, problems)
				}
			}
		}
		if len(problems) == 0 && call.Check(body, call.DefaultLimits()) != nil {
			t.Fatalf("took what is not strict JSON: %q", body)
		}
		if fold(fold(record)) != fold(record) {
			t.Fatalf("folding %q twice differs: %q, %q", record, fold(record), fold(fold(record)))
		}
	})
}

func BenchmarkParseCheck(b *testing.B) {
	body := valid(b)
	b.ReportAllocs()
	for b.Loop() {
		if problems, _ := judge(body, known); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}

// The largest record there can be, against the largest field.
func BenchmarkCheckLargest(b *testing.B) {
	r, _ := Parse(valid(b))
	r.Justification.UserRequest = strings.Repeat("product ", MaxField/8)
	c := known
	c.UserRequest = strings.Repeat("product cost of 价格 ", 64<<10/24)
	b.ReportAllocs()
	for b.Loop() {
		if problems, _ := r.Check(c); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}

// A body of nothing but unknown names is answered with some of them.
func TestParseBoundsItsProblems(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, `"x%d":1,`, i)
	}
	_, problems := Parse([]byte(`{` + b.String() + `"operation":"comm.fetch"}`))
	if len(problems) > 2*maxProblems {
		t.Errorf("%d problems", len(problems))
	}
}
