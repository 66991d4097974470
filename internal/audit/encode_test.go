package audit

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func sample(i int64) Entry {
	return Entry{
		Index: i, At: time.Date(2026, 3, 1, 12, 30, 15, 123456789, time.UTC), Kind: Intent, Action: "call",
		Agent: "researcher", Session: "sess_0195a1b2c3d47e5f8a9b0c1d2e3f4a5b", Requester: "alice", Actor: "agent:researcher", Door: "mcp",
		RequestID: "req_0195a1b2c3d47e5f8a9b0c1d2e3f4a5b", Operation: "mail.search_email", CallID: "call_0195a1b2c3d47e5f8a9b0c1d2e3f4a5b",
		Digest:  "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		DefHash: "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752", Decision: "permit", Risk: "LOW",
		Arguments: &Payload{SHA256: "fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13", Size: 64,
			Shown: json.RawMessage(`{"query":"from:bob quarterly report","limit":20,"folder":"inbox"}`)},
	}
}

func full() Entry {
	e := sample(7)
	e.Kind, e.Stage, e.Code, e.Reason, e.Shadow = Outcome, "flow", "flow.contaminated", "l'été <b>&\u2028 \x00\x1f\x7f\"\\\n\r\t", true
	e.Severity, e.Event, e.Remote, e.Type = Warning, FlowViolation, "192.0.2.1", "transfer_money"
	e.Amount, e.Approvers, e.Model, e.Labels = "12.50 EUR", []string{"alice", "bob"}, "m-1", []string{"pii", "untrusted"}
	e.Result = &Payload{SHA256: "00", Size: 1 << 40, Stored: true, Key: "ab", Redacted: true}
	e.Attribution, e.Detail, e.DurationMS = json.RawMessage(`{"source":"mail","n":[1,null,true]}`), json.RawMessage(`null`), 1234
	e.Rows = []Row{{Table: "tokens", Key: "tok_1", Was: -1, MAC: "abc"}, {Table: "quarantines", Key: "a \"b\"", Was: 3}}
	return e
}

// TestEveryFieldIsWritten fails when a field is added to Entry or Payload that Marshal doesn't know.
func TestEveryFieldIsWritten(t *testing.T) {
	e := full()
	for _, v := range []reflect.Value{reflect.ValueOf(e), reflect.ValueOf(*e.Result), reflect.ValueOf(*e.Arguments)} {
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if v.Field(i).IsZero() && name != "Bytes" && v.Type() == reflect.TypeFor[Entry]() {
				t.Errorf("the sample leaves %s empty", name)
			}
		}
	}
	e.Result.Shown = json.RawMessage(`"x"`)
	got, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	want, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	back, err := Unmarshal(got)
	if err != nil || !reflect.DeepEqual(back, e) {
		t.Errorf("back: %+v, %v", back, err)
	}
}

func drawEntry(t *rapid.T) Entry {
	str := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.Custom(func(t *rapid.T) string {
		return string(rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "bytes")) // often not UTF-8
	}))
	raw := rapid.Custom(func(t *rapid.T) json.RawMessage {
		b, err := json.Marshal(map[string]any{str.Draw(t, "k"): str.Draw(t, "v"), "n": rapid.Float64().Draw(t, "n")})
		if err != nil {
			t.Fatal(err)
		}
		return rapid.SampledFrom([]json.RawMessage{nil, {}, b, append([]byte(" \n"), b...), []byte(`null`), []byte(`"a<b\u0041"`), []byte("\"\xff\"")}).Draw(t, "raw")
	})
	payload := rapid.Custom(func(t *rapid.T) *Payload {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return &Payload{SHA256: str.Draw(t, "s"), Size: rapid.Int64().Draw(t, "z"), Shown: raw.Draw(t, "shown"), Stored: rapid.Bool().Draw(t, "st"),
			Key: str.Draw(t, "key"), Redacted: rapid.Bool().Draw(t, "red"), Bytes: []byte("not in the leaf")}
	})
	e := Entry{
		Index: rapid.Int64Min(0).Draw(t, "index"), Kind: rapid.SampledFrom([]Kind{Intent, Outcome, Decision, Change}).Draw(t, "kind"),
		At: time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "at"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).
			In(time.FixedZone("z", rapid.IntRange(-12, 14).Draw(t, "zone")*3600)),
		Shadow: rapid.Bool().Draw(t, "shadow"), Arguments: payload.Draw(t, "args"), Result: payload.Draw(t, "res"),
		Approvers: rapid.SliceOf(str).Draw(t, "appr"), Labels: rapid.SliceOf(str).Draw(t, "labels"),
		Attribution: raw.Draw(t, "attr"), Detail: raw.Draw(t, "detail"), DurationMS: rapid.Int64().Draw(t, "ms"),
	}
	if y := e.At.UTC().Year(); y > 9999 {
		e.At = time.Time{}
	}
	v := reflect.ValueOf(&e).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String && f.Type() == reflect.TypeFor[string]() {
			f.SetString(str.Draw(t, v.Type().Field(i).Name))
		}
	}
	return e
}

// TestMarshalMeansWhatEncodingJSONMeans: same value for any reader, stable, and read back by Unmarshal.
func TestMarshalMeansWhatEncodingJSONMeans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		got, err := e.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		e.At = e.At.UTC()
		want, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		if err := json.Unmarshal(want, &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) || !utf8.Valid(got) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
		back, err := Unmarshal(got)
		if err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		again, err := back.Marshal()
		if err != nil || !bytes.Equal(got, again) {
			t.Fatalf("%s became %s (%v)", got, again, err)
		}
	})
}

func TestMarshalRefuses(t *testing.T) {
	for name, change := range map[string]func(*Entry){
		"no kind":          func(e *Entry) { e.Kind = "" },
		"unknown kind":     func(e *Entry) { e.Kind = "note" },
		"negative index":   func(e *Entry) { e.Index = -1 },
		"year 10000":       func(e *Entry) { e.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"year -1":          func(e *Entry) { e.At = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
		"broken detail":    func(e *Entry) { e.Detail = json.RawMessage(`{"a":`) },
		"two values":       func(e *Entry) { e.Attribution = json.RawMessage(`1 2`) },
		"broken shown":     func(e *Entry) { e.Arguments.Shown = json.RawMessage(`{`) },
		"broken result":    func(e *Entry) { e.Result = &Payload{Shown: json.RawMessage(`}`)} },
		"too long":         func(e *Entry) { e.Reason = strings.Repeat("x", MaxLeaf) },
		"endless raw JSON": func(e *Entry) { e.Detail = json.RawMessage(strings.Repeat(" ", 17*MaxLeaf) + "1") },
	} {
		e := sample(1)
		change(&e)
		if b, err := e.Marshal(); err == nil {
			t.Errorf("%s: marshalled as %.100s", name, b)
		}
	}
	e := sample(0)
	base, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	e.Reason = "x"
	one, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	e.Reason = strings.Repeat("x", MaxLeaf-len(one)+1)
	if b, err := e.Marshal(); err != nil || len(b) != MaxLeaf {
		t.Errorf("the longest entry: %d bytes, %v (without reason %d)", len(b), err, len(base))
	}
}

func TestUnmarshalIsStrict(t *testing.T) {
	e := sample(3)
	good, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Unmarshal(good); err != nil {
		t.Fatal(err)
	}
	sub := func(old, new string) string {
		if !strings.Contains(string(good), old) {
			t.Fatalf("%q is not in the sample", old)
		}
		return strings.Replace(string(good), old, new, 1)
	}
	for name, bad := range map[string]string{
		"empty":            "",
		"null":             "null",
		"list":             "[]",
		"trailing newline": string(good) + "\n",
		"trailing value":   string(good) + "{}",
		"space":            sub(`{"index":3`, `{ "index":3`),
		"unknown field":    sub(`{"index":3`, `{"index":3,"extra":1`),
		"case variant":     sub(`"action"`, `"Action"`),
		"repeated field":   sub(`"action":"call"`, `"action":"call","action":"call"`),
		"reordered":        sub(`"kind":"intent","action":"call"`, `"action":"call","kind":"intent"`),
		"escaped":          sub(`"action":"call"`, `"action":"\u0063all"`),
		"other zone":       sub(`15.123456789Z`, `15.123456789+00:00`),
		"trailing zero":    sub(`15.123456789Z`, `15.1234567890Z`),
		"unknown kind":     sub(`"kind":"intent"`, `"kind":"Intent"`),
		"empty field":      sub(`"agent":"researcher"`, `"agent":""`),
		"float index":      sub(`"index":3`, `"index":3.0`),
		"negative index":   sub(`"index":3`, `"index":-3`),
		"bad UTF-8":        sub(`researcher`, "resear\xffcher"),
		"bad UTF-8 inside": sub(`inbox`, "in\xffbox"),
		"null payload":     sub(`,"arguments"`, `,"result":null,"arguments"`),
		"deep":             sub(`{"query"`, strings.Repeat("[", 20000)+`{"query"`),
		"too long":         sub(`researcher`, strings.Repeat("r", MaxLeaf)),
	} {
		if e, err := Unmarshal([]byte(bad)); err == nil {
			t.Errorf("%s: accepted as %+v", name, e)
		}
	}
}

// TestUnmarshalRefusesWhatIsCutOff cuts a leaf with every field at each byte, and ends it with what would have to go on.
func TestUnmarshalRefusesWhatIsCutOff(t *testing.T) {
	e := full()
	leaf, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for i := range leaf {
		for _, end := range []string{"", "\\", "\"", "["} {
			cut := string(leaf[:i]) + end
			if e, err := Unmarshal([]byte(cut)); err == nil {
				t.Fatalf("%q: accepted as %+v", cut, e)
			}
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, e := range []Entry{sample(0), full()} {
		b, err := e.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"index":0,"at":"2026-01-01T00:00:00Z","kind":"change","action":""}`))
	f.Add([]byte(`{"index":0,"at":"0000-01-01T00:00:00Z","kind":"change","action":"","detail":"\ud800"}`))
	f.Fuzz(func(t *testing.T, leaf []byte) {
		e, err := Unmarshal(leaf)
		if err != nil {
			return
		}
		again, err := e.Marshal()
		if err != nil || !bytes.Equal(again, leaf) {
			t.Fatalf("%q was read and is written as %q (%v)", leaf, again, err)
		}
	})
}

func BenchmarkMarshal(b *testing.B) {
	e := sample(123456)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Marshal(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	e := sample(123456)
	leaf, err := e.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Unmarshal(leaf); err != nil {
			b.Fatal(err)
		}
	}
}
