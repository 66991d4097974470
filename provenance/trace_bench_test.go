package provenance

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/lab/sample"
)

// seenMany is evidence of n values: every tenth out of a record that a system set.
func seenMany(n int) *Evidence {
	e := &Evidence{}
	p := &Profile{TrustedFields: []string{"id"}, Delegable: []string{"from"}, IDKind: "mail"}
	for call := 0; e.count < n; call++ {
		var list []map[string]string
		for i := range 250 {
			list = append(list, map[string]string{"id": fmt.Sprintf("m%d-%d", call, i), "from": fmt.Sprintf("user%d@host%d.example", i, call), "link": fmt.Sprintf("https://host%d.example/%d", call, i), "total": fmt.Sprint(call*250 + i)})
		}
		b, err := json.Marshal(list)
		if err != nil {
			panic(err)
		}
		e.Add(Observe(p, nil, Result{Operation: "mail.list", CallID: fmt.Sprint(call), Values: jsonValues(b)}))
	}
	return e
}

func BenchmarkJudgeCall(b *testing.B) {
	p := &Profile{Level: 2, IDKind: "mail", Args: map[string]Role{"to": Destination, "body": Content, "id": Selector, "title": Name}}
	s := Situation{Held: fromOutside, Request: ParseRequest(strings.Repeat("Please answer the mail about the Blue Heron. ", 20) + "Write to ann@books.example about https://books.example/a"), Own: []string{"me@own.example"}, Evidence: seenMany(10_000)}
	if s.Evidence.count < 10_000 {
		b.Fatal(s.Evidence.count)
	}
	p1 := *p
	p1.Level = 1
	byID := Profile{Level: 1, IDKind: "mail", Args: map[string]Role{"id": Selector}}
	for _, c := range []struct {
		name string
		p    *Profile
		args string
		want Verdict
	}{
		{"in words", p, `{"to":"ann@books.example","body":"hello"}`, Permit},
		{"seen", &byID, `{"id":"m7-200"}`, Permit},
		{"seen and not confirmed", p, `{"to":"user249@host9.example","body":"hello"}`, Ask},
		{"unseen", p, `{"to":"nobody@x.example","body":"hello"}`, Ask},
		{"ten links", p, `{"to":"ann@books.example","body":"` + strings.Repeat("see https://books.example/a and more ", 10) + `"}`, Permit},
		{"a name of 80 words", &p1, `{"title":"` + strings.Repeat("the owl ", 40) + `"}`, Ask},
		{"body of 100 kB", p, `{"to":"ann@books.example","body":"` + strings.Repeat("a line of words. ", 6000) + `"}`, Permit},
		{"200 recipients", p, `{"to":["ann@books.example"` + strings.Repeat(`,"ann@books.example"`, 198) + `]}`, Permit},
	} {
		b.Run(c.name, func(b *testing.B) {
			args := []byte(c.args)
			b.ReportAllocs()
			for b.Loop() {
				if r := JudgeCall(post, c.p, args, s); r.Verdict != c.want {
					b.Fatal(r)
				}
			}
		})
	}
	// One value that stands everywhere.
	same := &Evidence{}
	hostile := json.RawMessage("[" + strings.Repeat(`{"from":"eve@x.example"},`, 999) + `{"from":"eve@x.example"}]`)
	for i := range 10 {
		same.Add(Observe(nil, nil, Result{Operation: "mail.list", CallID: fmt.Sprint(i), Values: jsonValues(hostile)}))
	}
	b.Run("a value seen 10,000 times", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if r := JudgeCall(post, p, []byte(`{"to":"eve@x.example"}`), Situation{Held: fromOutside, Evidence: same}); r.Verdict != Ask {
				b.Fatal(r)
			}
		}
	})
}

func BenchmarkObserve1MB(b *testing.B) {
	words := ParseRequest("Answer the mail about the Blue Heron from ann@books.example")
	p := &Profile{TrustedFields: []string{"id"}, Names: []string{"subject"}, Delegable: []string{"from"}, IDKind: "mail"}
	record := `{"id":"1","subject":"Blue Heron","from":"ann@books.example","body":"` + strings.Repeat("a line of words with 13 numbers. ", 30) + `"}`
	for name, payload := range map[string]string{
		"records": "[" + strings.Repeat(record+",", 1<<20/len(record)) + record + "]",
		"text":    `"` + strings.Repeat("a line of words, with 13 and eve@x.example. ", 1<<20/44) + `"`,
		"numbers": "[" + strings.Repeat("1,", 1<<19) + "1]",
		"names": "{\"a\":0" + func() string {
			var s strings.Builder
			for i := range 1 << 16 {
				fmt.Fprintf(&s, `,"name%d":"%d"`, i, i)
			}
			return s.String()
		}() + "}",
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if s := Observe(p, words, Result{Values: jsonValues(json.RawMessage(payload))}); len(s.Records) == 0 {
					b.Fatal("nothing seen")
				}
			}
		})
	}
}

// What is read of a result of 64 KiB, of each kind that tools give, and taken in by the next call.
func BenchmarkObserve64KiB(b *testing.B) {
	request := ParseRequest("Answer the mail about the Blue Heron from ann@books.example")
	for _, kind := range sample.Kinds {
		text := sample.Text(kind, 64<<10)
		for name, p := range map[string]*Profile{
			"untrusted": {TrustedFields: []string{"id"}, Names: []string{"subject"}, Delegable: []string{"sender"}, IDKind: "mail"},
			"trusted":   {Output: TrustedOutput},
		} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					seen := Observe(p, request, Result{Values: []Value{TextValue(text)}})
					var e Evidence
					e.Add(seen)
				}
			})
		}
	}
}

func BenchmarkParseWords10kB(b *testing.B) {
	words := strings.Repeat("Please answer 'Blue Heron' at ann@books.example on May 15th. ", 10<<10/62)
	b.ReportAllocs()
	for b.Loop() {
		if !ParseRequest(words).has(form{mail, "ann@books.example"}) {
			b.Fatal("not read")
		}
	}
}

func BenchmarkAdd10000Values(b *testing.B) {
	var seen []Observation
	for call := range 10 {
		s := Observation{Operation: "mail.list", CallID: fmt.Sprint(call)}
		for i := range 250 {
			s.Records = append(s.Records, seenRecord{Values: []seenValue{{Field: "id", Text: fmt.Sprint("m", call, "-", i), Class: classSystem, ID: true}, {Field: "from", Text: fmt.Sprintf("user%d@host%d.example", i, call), Class: classDelegable}, {Field: "link", Text: fmt.Sprintf("https://host%d.example/%d", call, i), Class: classFree}, {Field: "total", Text: fmt.Sprint(i), Class: classFree}}})
		}
		seen = append(seen, s)
	}
	b.ReportAllocs()
	for b.Loop() {
		e := &Evidence{}
		for _, s := range seen {
			e.Add(s)
		}
		if e.count != 10_000 {
			b.Fatal(e.count)
		}
	}
}

// A mail of 20 kB that a call of an untrusted session sends: what it gives away is noted, kept and taken in.
func BenchmarkGiven20kB(b *testing.B) {
	var body strings.Builder
	for i := 0; body.Len() < 20_000; i++ {
		fmt.Fprintf(&body, "Line %d: Dear Anna, please find the offer of week %d (ref. AB-%d) at https://files.example/a/%d, or write to ann%d@corp.example. We meet on 2026-11-%02d for 4,000 EUR.\n", i, i, i*77, i, i, i%28+1)
	}
	args, err := json.Marshal(map[string]string{"to": "ann@corp.example", "subject": "Offer", "body": body.String()})
	if err != nil {
		b.Fatal(err)
	}
	p := &Profile{Args: map[string]Role{"to": Destination, "subject": Content, "body": Content}}
	request := ParseRequest("Send the offer to ann@corp.example, and tell Bob.")
	b.ReportAllocs()
	for b.Loop() {
		kept, err := json.Marshal(GivenAway(GivenCall{Operation: "mail.send", CallID: "c", Profile: p, Arguments: args, Writes: true, Request: request}))
		if err != nil {
			b.Fatal(err)
		}
		var given Observation
		if err := json.Unmarshal(kept, &given); err != nil {
			b.Fatal(err)
		}
		var e Evidence
		e.Add(given)
	}
}

// longRequest is as long as a request can be: orders, names, addresses, numbers and dates, no two alike.
func longRequest() string {
	var b strings.Builder
	for i := 0; b.Len() < maxRequest-300; i++ {
		fmt.Fprintf(&b, "Please send the offer 'Blue Heron %d' of week %d to ann%d@books.example and ask Maria Keller%d whether she can meet us on May %dth at 10:30 about the invoice INV-%d of 4,%03d EUR. ",
			i, i%52+1, i, i, i%28+1, 1000+i, i%1000)
	}
	return b.String() + "Then tell the team of the Northern Harbour Lighthouse Restoration Project in the channel about it."
}

func BenchmarkParseRequest64KiB(b *testing.B) {
	words := longRequest()
	b.ReportAllocs()
	b.SetBytes(int64(len(words)))
	for b.Loop() {
		if !ParseRequest(words).has(form{mail, "ann7@books.example"}) {
			b.Fatal("not read")
		}
	}
}

// A name of many words that begins as many texts of a long request do.
func BenchmarkNameInRequest64KiB(b *testing.B) {
	w := ParseRequest(longRequest())
	for _, c := range []struct {
		name, value string
		named       bool
	}{
		{"named", "Northern Harbour Lighthouse Restoration Project", true},
		{"its words stand apart", "Please send the offer of Maria about the Northern Project", false},
		{"a word is missing", "Northern Harbour Lighthouse Demolition Project", false},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if w.namesRecord(c.value, byOutsider) != c.named {
					b.Fatal(!c.named)
				}
				w.namesPlace(c.value)
			}
		})
	}
}
