package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/fault"
)

var began = time.Date(2026, 11, 24, 12, 0, 0, 300e6, time.UTC)

// declared is a declaration with the given output schema.
func declared(t testing.TB, schema string) *agent.Declaration {
	t.Helper()
	text := `agentId: incident-advisor
agentName: Incident advisor
version: 1.0.0
purpose: Recommends what to do about an incident.
capabilities: [recommend]
dataSources: {tables: [incidents], apis: [status.example], models: [claude-sonnet-4-5-20250929]}
permissions: {read: [incidents.get], write: []}
outputSchemaVersion: 1.0.0
maxExecutionTime: 5000
maxTokens: 1000
killSwitchEnabled: true
humanApprovalRequired: true
run: {kind: command, command: [advisor]}
outputSchema: ` + schema + "\n"
	d, problems := agent.Parse("a.yaml", []byte(text))
	for _, p := range problems {
		if p.Severity == agent.Error { // schemas that lint would not let through try what an output is held to besides them
			t.Fatal(p)
		}
	}
	return &d
}

const adviceSchema = `{type: object, additionalProperties: false, required: [action, why, citations], properties: {
  action: {type: string, enum: [ESCALATE, WAIT]}, why: {type: string, maxLength: 400, pattern: "^[^<>]*$", x-fact: true},
  notes: {type: string, maxLength: 400, x-format: markdown}, when: {type: string, format: date-time},
  list: {type: array, items: {type: object, additionalProperties: false, properties: {text: {type: string, x-fact: true}}}},
  metadata: {type: object, additionalProperties: false, properties: {executionTime: {type: number}, tokensUsed: {type: number}, modelVersion: {type: string}}},
  citations: {type: array, items: {type: object, required: [source, timestamp, confidence], properties: {source: {type: string}, timestamp: {type: string, format: date-time}, confidence: {type: number}}}}}}`

func TestRunEndsOnce(t *testing.T) {
	d := declared(t, adviceSchema)
	r := New(d, "alice", "person:alice", json.RawMessage(`{}`), began)
	if r.Status != Running || !r.Deadline.Equal(began.Add(5*time.Second)) || r.Declaration != d.Digest {
		t.Fatalf("%+v", r)
	}
	verdict := fault.Refuse("run", fault.TimeExceeded, "")
	good := map[Status]End{Done: {Status: Done, Output: json.RawMessage(`{}`)}}
	for _, s := range Statuses {
		if s != Running && s != Done {
			good[s] = End{Status: s, Verdict: &verdict}
		}
	}
	for _, s := range Statuses {
		e, ok := good[s]
		if !ok {
			e = End{Status: s}
		}
		ended, err := r.Finish(e, began.Add(time.Second))
		if (err == nil) != ok {
			t.Errorf("ending as %s: %v", s, err)
		}
		if err != nil {
			continue
		}
		for _, again := range good {
			if _, err := ended.Finish(again, began); !fault.Is(err, fault.Conflict) {
				t.Errorf("a run that is %s ended again as %s: %v", s, again.Status, err)
			}
		}
	}
	for name, e := range map[string]End{"an unknown status": {Status: "paused", Verdict: &verdict}, "done without output": {Status: Done}, "output of a killed one": {Status: Killed, Verdict: &verdict, Output: json.RawMessage(`{}`)}, "no reason": {Status: Failed}} {
		if _, err := r.Finish(e, began); err == nil {
			t.Errorf("a run ended with %s", name)
		}
	}
}

func TestInputs(t *testing.T) {
	for input, want := range map[string]string{
		`{"a":1}`: "", `{"b":{"c":["x"]},"a":"y"}`: "",
		``: "is missing", `[]`: "must be a JSON object", `"text"`: "must be a JSON object", `{"a":1,"a":2}`: "input", `{"a":1} x`: "input", `{`: "input",
		`{"a":"` + strings.Repeat("x", MaxInput) + `"}`: "has more than", `{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`: "input",
	} {
		_, err := ReadInput(json.RawMessage(input))
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || fault.Of(err).Field != "input") {
			t.Errorf("%.60s: %v", input, err)
		}
	}
	in := json.RawMessage(`{"incident":{"id":"INC-7"},"user_request":"what now?"}`)
	if got := Words(in, true); got != "INC-7\nwhat now?" {
		t.Errorf("a person's words are %q", got)
	}
	if got := Words(in, false); got != "what now?" {
		t.Errorf("a host's words are %q", got)
	}
	if got := Words(json.RawMessage(`{"user_request":{"a":"b"}}`), false); got != "" {
		t.Errorf("a host's object is words: %q", got)
	}
}

func TestOutputs(t *testing.T) {
	d := declared(t, adviceSchema)
	advice := func(more string) string { return `{"action":"WAIT","why":"disk is full","citations":[]` + more + `}` }
	for output, want := range map[string]string{
		advice(""): "",
		advice(`,"notes":"# Title\n\n- one\n- two"`):                 "",
		advice(`,"notes":"<b>no</b>"`):                               "notes: The text has an HTML tag",
		advice(`,"when":"yesterday"`):                                "when: ",
		advice(`,"extra":1`):                                         `may not have "extra"`,
		`{"action":"WAIT","why":"x"}`:                                `lacks "citations"`,
		`{"action":"JUMP","why":"x","citations":[]}`:                 "action: ",
		`{"action":7,"why":"x","citations":[]}`:                      "action: ",
		`{"action":"WAIT","action":"WAIT","why":"x","citations":[]}`: "output: It is not one strict JSON object",
		`{"Action":"WAIT","why":"x","citations":[]}`:                 "",
		`Here is my answer: {}`:                                      "output: It is not one strict JSON object",
		"```json\n{}\n```":                                           "output: It is not one strict JSON object",
		`{} {}`:                                                      "output: It is not one strict JSON object",
		`[]`:                                                         "output: It must be one JSON object",
		`"text"`:                                                     "output: It must be one JSON object",
		"":                                                           "output: ",
		`{"a":"` + strings.Repeat("x", 1<<20) + `"}`:                 "output: It has more than",
		`{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`: "output: ",
		"{\"why\":\"\xff\"}": "output: ",
	} {
		got, err := ReadOutput([]byte(output), d)
		if output == `{"Action":"WAIT","why":"x","citations":[]}` {
			want = `may not have "Action"`
		}
		switch {
		case want == "" && (err != nil || got == nil):
			t.Errorf("%.80s: %v", output, err)
		case want != "" && (err == nil || !fault.Is(err, fault.OutputInvalid) || !strings.Contains(err.Error(), want) || got != nil && err == nil):
			t.Errorf("%.80s: %v, and not %s", output, err, want)
		}
	}
}

func TestTextWithStructureIsRefused(t *testing.T) {
	for text, what := range map[string]string{
		"The disk of db-1 is full since 12:00; 3 > 2, a < b, and a-b.": "", "- 12 degrees": "", "use x_y_z or 2 * 3 * 4": "", "see [1]": "", "f(x)[0]": "", "a # b": "", "#7 failed": "",
		"Two lines.\nNothing else.": "",
		"# Title":                   "a heading", "text\n## More": "a heading", "Title\n=====": "an underlined heading", "<b>x</b>": htmlTag, "a <script": htmlTag, "x <!-- y": htmlTag, "a<br/>b": htmlTag,
		"[here](https://x.example)": "a link or an image", "![x](y)": "a link or an image", "<https://x.example>": htmlTag, "[a][b]": "a link or an image",
		"```\ncode\n```": "a block of code", "| a | b |\n|---|---|": "a table", "so **bold**": "bold text", "so __bold__": "bold text",
		"- a\n- b": "a list", "1. a\n2. b": "a list", "x\n* a\n\n* b": "a list", "> quoted": "a quotation", "a\n\n---\n\nb": "a ruler", "***": "a ruler",
		"![x]\n\n[x]: https://evil.example/?q=1": "a link or an image", "[x]: https://evil.example": "a link or an image", "text\r# Title": "a heading", "text\u2028# Title": "a heading",
		"Title\n=": "an underlined heading", "a|b\n-|-": "a table", "a\u202eb": "a character that can't be seen", "a\u200bb": "a character that can't be seen", "a\x1bb": "a character that can't be seen",
		"a\tb\r\nc": "",
	} {
		if got := structure(text); got != what {
			t.Errorf("%q has %q, and not %q", text, got, what)
		}
	}
}

func TestClaims(t *testing.T) {
	d := declared(t, adviceSchema)
	start := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	m := Measured{Took: 2 * time.Second, Started: start, Ended: start.Add(2 * time.Second)}
	for output, field := range map[string]string{
		`{}`: "", `{"metadata":{"executionTime":1500,"tokensUsed":10,"modelVersion":"claude-sonnet-4-5-20250929"}}`: "",
		`{"metadata":{"executionTime":9000}}`: "metadata.executionTime", `{"executionTime":-1}`: "executionTime", `{"metadata":{"tokensUsed":1001}}`: "metadata.tokensUsed",
		`{"agentId":"other"}`: "agentId", fmt.Sprintf(`{"agentId":%q,"timestamp":"2026-01-31T08:00:01Z"}`, d.AgentID): "",
		`{"timestamp":"2026-01-31T07:59:00Z"}`: "timestamp", `{"metadata":{"timestamp":"2026-01-31T08:01:00Z"}}`: "metadata.timestamp", `{"timestamp":"today"}`: "timestamp",
		`{"metadata":{"modelVersion":"gpt-latest"}}`: "metadata.modelVersion", `{"metadata":{"executionTime":"soon"}}`: "metadata", `{"modelVersion":7}`: "output",
	} {
		err := CheckMetadata(json.RawMessage(output), d, m)
		if (err == nil) != (field == "") || err != nil && fault.Of(err).Field != field {
			t.Errorf("%s: %v", output, err)
		}
	}
}

// What a model took that the gateway asked is known to the token, and which model that was.
func TestClaimsOfModels(t *testing.T) {
	start := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	const worked, other = "claude-sonnet-4-5-20250929", "gpt-4o-2024-11-20"
	for _, c := range []struct {
		model, output string
		tokens        int
		field         string
	}{
		{worked, `{"tokensUsed":0,"modelVersion":"` + worked + `"}`, 7, ""},
		{worked, `{"tokensUsed":7}`, 7, ""},
		{worked, `{"tokensUsed":8}`, 7, "tokensUsed"},
		{worked, `{"tokensUsed":1}`, 0, "tokensUsed"},
		{worked, `{"modelVersion":"` + other + `"}`, 7, "modelVersion"},
		{"", `{"tokensUsed":8}`, 7, "tokensUsed"},
		{"", `{"tokensUsed":8}`, 0, ""}, // of a model that was not asked here
		{"", `{"modelVersion":"` + other + `"}`, 7, ""},
	} {
		d := *declared(t, adviceSchema)
		d.DataSources.Models = []string{worked, other}
		err := CheckMetadata(json.RawMessage(c.output), &d, Measured{Tokens: c.tokens, Model: c.model, Started: start, Ended: start})
		if (err == nil) != (c.field == "") || err != nil && fault.Of(err).Field != c.field {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A citation of a collection is checked against what was read of each of its documents, and of no other.
func TestCitationsOfDocuments(t *testing.T) {
	d := *declared(t, adviceSchema)
	d.DataSources.Tables = []string{"knowledge.handbook", "knowledge.wiki", "knowledge.bad"}
	reads := []Read{{CallID: "call_1", Operation: "knowledge.search", At: began, Documents: []Document{
		{Source: "knowledge.handbook", ID: "doc_1", Version: 2, Text: "Expenses are paid within thirty days, says doc_9."},
		{Source: "knowledge.wiki", ID: "doc_2", Version: 1, Text: "The sky is green on Tuesdays.", External: true},
		{Source: "knowledge.bad", ID: "doc_3", Version: 1, Gone: true},
	}}}
	now := began.Add(time.Second).Format(time.RFC3339Nano)
	const handbook, wiki = "knowledge.handbook", "knowledge.wiki"
	for name, c := range map[string]struct {
		source, rest, why string
		origin            Origin
	}{
		"the collection":             {handbook, "", "", Internal},
		"a document":                 {handbook, `,"recordId":"doc_1"`, "", Internal},
		"a version":                  {handbook, `,"recordId":"doc_1@2","quote":"paid within  Thirty days"`, "", Internal},
		"another version":            {handbook, `,"recordId":"doc_1@1"`, noRecord, Internal},
		"one that only a text names": {handbook, `,"recordId":"doc_9"`, noRecord, Internal},
		"an invented quote":          {handbook, `,"quote":"paid within three days"`, noQuote, Internal},
		"of another collection":      {handbook, `,"quote":"the sky is green"`, noQuote, Internal},
		"another's document":         {handbook, `,"recordId":"doc_2"`, noRecord, Internal},
		"from an address":            {wiki, `,"quote":"the sky is green"`, "", External},
		"withdrawn":                  {"knowledge.bad", "", gone, Internal},
	} {
		all, _, err := CheckCitations(citing(cite(c.source, now, c.rest)), &d, reads, began.Add(2*time.Second))
		if len(all) != 1 || all[0].Why != c.why || all[0].Verified != (c.why == "") || all[0].Origin != c.origin {
			t.Errorf("%s: %+v %v", name, all, err)
		}
	}
	d.DataSources.Tables = []string{"knowledge.*"}
	if all, _, err := CheckCitations(citing(cite(wiki, now, "")), &d, reads, began.Add(2*time.Second)); err != nil || !all[0].Verified {
		t.Errorf("where all collections are declared: %+v %v", all, err)
	}
}

func citing(list string, more ...string) json.RawMessage {
	return json.RawMessage(`{"action":"WAIT","why":"disk is full","citations":[` + list + `]` + strings.Join(more, "") + `}`)
}

func cite(source, at, rest string) string {
	return fmt.Sprintf(`{"source":%q,"timestamp":%q,"confidence":0.9%s}`, source, at, rest)
}

func TestCitations(t *testing.T) {
	d := declared(t, adviceSchema)
	reads := []Read{
		{CallID: "call_1", Operation: "incidents.get", Arguments: json.RawMessage(`{"id":"INC-7","note":"INC-999","table":"claude-sonnet-4-5-20250929"}`), Result: []byte(`{"content":[{"type":"text","text":"{\"id\":\"INC-7\",\"host\":\"db-1\",\"note\":\"Disk  is\nfull\"}"}]}`), At: began},
		{CallID: "call_2", Operation: "comm.fetch", Arguments: json.RawMessage(`{"url":"https://status.example/today"}`), Result: []byte(`{"content":[{"type":"text","text":"all systems green"}]}`), At: began.Add(time.Second), External: true},
	}
	ended := began.Add(3 * time.Second)
	now, whole := began.Add(time.Second).Format(time.RFC3339Nano), began.Format(time.RFC3339)
	for name, c := range map[string]struct {
		list   string
		origin Origin
		call   string
		why    string
	}{
		"by server":                  {cite("incidents", now, ""), Internal, "call_1", ""},
		"with whole seconds":         {cite("incidents", whole, ""), Internal, "call_1", ""},
		"with record and quote":      {cite("incidents", now, `,"recordId":"INC-7","quote":"disk is full"`), Internal, "call_1", ""},
		"by host":                    {cite("status.example", now, `,"quote":"all systems green"`), External, "call_2", ""},
		"another record":             {cite("incidents", now, `,"recordId":"INC-70"`), Internal, "call_1", noRecord},
		"part of a record":           {cite("incidents", now, `,"recordId":"INC"`), Internal, "call_1", ""},
		"part of a word":             {cite("incidents", now, `,"recordId":"NC-7"`), Internal, "call_1", noRecord},
		"a quote of one word":        {cite("incidents", now, `,"quote":"disk"`), Internal, "call_1", shortQuote},
		"a record of the call alone": {cite("incidents", now, `,"recordId":"INC-999"`), Internal, "call_1", noRecord},
		"an invented quote":          {cite("incidents", now, `,"quote":"memory is full"`), Internal, "call_1", noQuote},
		"before the call":            {cite("incidents", began.Add(-2*time.Second).Format(time.RFC3339Nano), ""), Internal, "call_1", noTime},
		"after the run":              {cite("incidents", ended.Add(2*time.Second).Format(time.RFC3339Nano), ""), Internal, "call_1", noTime},
		"a source that no call read": {cite("claude-sonnet-4-5-20250929", now, ""), "", "", noCall},
	} {
		all, q, err := CheckCitations(citing(c.list), d, reads, ended)
		if len(all) != 1 || all[0].Why != c.why || all[0].CallID != c.call || all[0].Origin != c.origin || all[0].Verified != (c.why == "") {
			t.Errorf("%s: %+v %v", name, all, err)
			continue
		}
		if (err == nil) != (c.why == "") || err != nil && !fault.Is(err, fault.OutputInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if q.Given != 1 || (q.Verified == 1) != (c.why == "") {
			t.Errorf("%s: %+v", name, q)
		}
	}
	if _, _, err := CheckCitations(citing(cite("incidents", now, "")+","+cite("wiki", now, "")), d, reads, ended); !fault.Is(err, fault.CitationUndeclared) || fault.Of(err).Field != "citations[1].source" {
		t.Errorf("an undeclared source: %v", err)
	}
	own := reads[:1:1]
	own[0].Synthetic = true
	if all, _, err := CheckCitations(citing(cite("incidents", now, "")), d, own, ended); err == nil || all[0].Why != synthetic {
		t.Errorf("an agent's own output was cited: %+v", all)
	}
}

func TestMalformedCitations(t *testing.T) {
	d := declared(t, adviceSchema)
	for output, field := range map[string]string{
		`{"citations":{}}`: "citations", `{"citations":[7]}`: "citations[0]", `{"citations":[{"source":"incidents","timestamp":"now","confidence":1}]}`: "citations[0].timestamp",
		`{"citations":[{"source":"incidents","timestamp":"2026-01-01T00:00:00Z","confidence":2}]}`: "citations[0].confidence",
		`{"citations":[{"timestamp":"2026-01-01T00:00:00Z","confidence":1}]}`:                      "citations[0].source", `{"citations":[]}`: "citations",
		`{"citations":[` + strings.TrimSuffix(strings.Repeat(cite("incidents", "2026-01-01T00:00:00Z", "")+",", 201), ",") + `]}`: "citations",
	} {
		_, _, err := CheckCitations(json.RawMessage(output), d, nil, began)
		if !fault.Is(err, fault.OutputInvalid) || fault.Of(err).Field != field {
			t.Errorf("%.90s: %v", output, err)
		}
	}
}

func TestFactsNeedACitation(t *testing.T) {
	d := declared(t, adviceSchema)
	reads := []Read{{CallID: "call_1", Operation: "incidents.get", Result: []byte(`{}`), At: began}}
	at := began.Add(time.Second).Format(time.RFC3339Nano)
	for name, c := range map[string]struct {
		output json.RawMessage
		field  string
	}{
		"for all":             {citing(cite("incidents", at, "")), ""},
		"for this one":        {citing(cite("incidents", at, `,"field":"why"`)), ""},
		"for another":         {citing(cite("incidents", at, `,"field":"action"`)), "why"},
		"of a list, for one":  {citing(cite("incidents", at, `,"field":"why"`), `,"list":[{"text":"x"}]`), "list[].text"},
		"of a list, for both": {citing(cite("incidents", at, `,"field":"why"`)+","+cite("incidents", at, `,"field":"list[].text"`), `,"list":[{"text":"x"}]`), ""},
	} {
		_, _, err := CheckCitations(c.output, d, reads, began.Add(2*time.Second))
		if (err == nil) != (c.field == "") || err != nil && fault.Of(err).Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A mark counts wherever a schema can have it.
	for name, schema := range map[string]string{
		"a pattern":             `{"patternProperties":{"^w":{"x-fact":true}}}`,
		"a condition":           `{"if":{"properties":{"why":{"x-fact":true}}}}`,
		"what follows":          `{"if":{},"then":{"properties":{"why":{"x-fact":true}}}}`,
		"what follows if not":   `{"if":{},"else":{"properties":{"why":{"x-fact":true}}}}`,
		"a dependent schema":    `{"dependentSchemas":{"action":{"properties":{"why":{"x-fact":true}}}}}`,
		"an anchor":             `{"properties":{"why":{"$ref":"#fact"}},"$defs":{"f":{"$anchor":"fact","x-fact":true}}}`,
		"what nothing else has": `{"unevaluatedProperties":{"x-fact":true}}`,
	} {
		marked := *d
		marked.OutputSchema = []byte(schema)
		if facts := marks([]byte(`{"action":"WAIT","why":"disk is full"}`), marked.OutputSchema).facts; !slices.Contains(facts, "why") {
			t.Errorf("%s: the facts are %v", name, facts)
		}
	}
	if m := marks([]byte(`{"why":"# x"}`), []byte(`{"if":{},"else":{"properties":{"why":{"x-format":"markdown"}}}}`)); m.markdown["why"] {
		t.Error("a branch that does not hold allows Markdown")
	}
}

func FuzzOutput(f *testing.F) {
	d := declared(f, adviceSchema)
	f.Add([]byte(citing(cite("incidents", "2026-01-01T00:00:00Z", `,"quote":"x"`))))
	f.Add([]byte(`{"action":"WAIT","list":[{"text":"a"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, err := ReadOutput(raw, d)
		if err != nil {
			if fault.Of(err).Code != fault.OutputInvalid {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		again, err := ReadOutput(out, d)
		if err != nil || string(again) != string(out) {
			t.Fatalf("the canonical form is not accepted as it is: %v", err)
		}
		_, _, _ = CheckCitations(out, d, []Read{{Operation: "incidents.get", Result: out, At: began}}, began)
	})
}

// Where the schema can't be held against every part of an output, nothing is taken for granted: neither that no fact is in it, nor that a text may have structure.
func TestOutputsThatHideMarks(t *testing.T) {
	list := declared(t, `{"type":"object","required":["why","list"],"properties":{"why":{"type":"string","x-fact":true},"list":{"type":"array","items":{"allOf":[{},{},{},{},{},{},{}]}}}}`)
	if _, err := ReadOutput([]byte(`{"why":"x","list":[`+strings.Repeat("0,", 40_000)+`0]}`), list); !fault.Is(err, fault.OutputInvalid) || !strings.Contains(err.Error(), "too many parts") {
		t.Errorf("too many parts: %v", err)
	}
	dotted := declared(t, `{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"string","x-format":"markdown"}}}}}`)
	for output, ok := range map[string]bool{`{"a":{"b":"# Title"}}`: true, `{"a":{"b":"x"},"a.b":"# Title"}`: false, `{"a":{"b":"# Title"},"a.b":"x"}`: false} {
		if _, err := ReadOutput([]byte(output), dotted); (err == nil) != ok {
			t.Errorf("%s: %v", output, err)
		}
	}
}
