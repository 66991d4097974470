package provenance

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.example/flow"
)

func FuzzFormOf(f *testing.F) {
	for _, s := range []string{"ann@books.example", "Ann <ann@books.example>", "https://books.example/a?b#c", "http://good.example@x.example/", "https:\\\\x.example", "x.example:80/", "http://[::1]:1/", "bİll@kin.example", "münchen.example", "books。example", "ａ.example", "%61.example", "1e309", "007", "-0", "+49 30 123456", "DE89 3704 0044", "2024-05-15", "Falcon\u200bNest", "ſ", "\u212a", "\ufffd", "\xff", "A\u0301"} {
		f.Add(s, s)
		f.Add(s, strings.ToUpper(s))
		f.Add(" "+s+" ", "https://"+s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		fa, ok := formOf(a)
		if again, also := formOf(a); again != fa || also != ok {
			t.Fatalf("%q is %v, then %v", a, fa, again)
		}
		if !ok {
			if fa != (form{}) {
				t.Fatalf("%q has no form, but %v", a, fa)
			}
			return
		}
		if fa.value == "" && fa.kind != link || fa.kind == formless || !utf8.ValidString(a) || len(strings.TrimSpace(a)) > maxValue {
			t.Fatalf("%q is %v", a, fa)
		}
		if g, _ := formOf("\t" + a + "\n"); g != fa {
			t.Fatalf("%q is %v, with white space around it %v", a, fa, g)
		}
		switch fa.kind {
		case mail:
			if !regexp.MustCompile(`^[a-z0-9._%+-]+@[^@<>,;\s/\\:]+\.[^@<>,;\s/\\:]{2,}$`).MatchString(fa.value) {
				t.Fatalf("%q is no address: %q", a, fa.value)
			}
			if g, _ := formOf(fa.value); g != fa {
				t.Fatalf("%q is %v, and that %v", a, fa, g)
			}
			if local, domain, _ := strings.Cut(fa.value, "@"); !strings.Contains(strings.ToLower(a), local+"@"+domain) {
				t.Fatalf("%q does not stand in %q", fa.value, a)
			}
		case number:
			want, ok := new(big.Rat).SetString(strings.TrimSpace(a))
			if got, _ := new(big.Rat).SetString(fa.value); !ok || got == nil || want.Cmp(got) != 0 {
				t.Fatalf("%q is the number %q", a, fa.value)
			}
		case link:
			if strings.ContainsAny(fa.value, " \t\n\\\"<>") || strings.Contains(strings.SplitN(strings.TrimPrefix(fa.value, "://"), "/", 2)[0], "@") && !strings.ContainsAny(strings.SplitN(fa.value, "@", 2)[0], "?#") {
				t.Fatalf("%q is the link %q", a, fa.value)
			}
		case account:
			if strings.ContainsFunc(fa.value, func(r rune) bool { return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z') }) {
				t.Fatalf("%q is the account %q", a, fa.value)
			}
			if g, _ := formOf(fa.value); g != fa && g.kind != number {
				t.Fatalf("%q is %v, and that %v", a, fa, g)
			}
		case text:
			if g, ok := formOf(fa.value); !ok || g != fa && g.kind == text {
				t.Fatalf("%q is %v, and that %v", a, fa, g)
			}
		}
		// What is the same differs in nothing but what its kind leaves out.
		if fb, _ := formOf(b); fb == fa {
			strip := func(s string) string {
				s = strings.ToLower(strings.TrimSpace(s))
				s = strings.TrimPrefix(strings.TrimPrefix(s, "https://"), "http://")
				return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == '-' || r == '+' || r == '/' }), "")
			}
			if x, y := strip(a), strip(b); x != y && fa.kind != number && fa.kind != mail && !(fa.kind == link && strings.ReplaceAll(x, ":", "") == strings.ReplaceAll(y, ":", "")) {
				t.Fatalf("%q and %q are both %v", a, b, fa)
			}
		}
	})
}

// eachFormOf is formOf as it reads: each form is tried, whatever the value has in it.
func eachFormOf(s string) (form, bool) {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > maxValue || !printable(s) {
		return form{}, false
	}
	if m, ok := mailOf(s); ok {
		return form{mail, m}, true
	}
	if n, ok := numberOf(s); ok {
		return form{number, n}, true
	}
	if isFileName(s) {
		return form{text, fold(s)}, true
	}
	if l, ok := linkOf(s); ok {
		return form{link, l}, true
	}
	if a, ok := accountOf(s); ok {
		return form{account, a}, true
	}
	return form{text, fold(s)}, true
}

// FuzzMarks: one look at the bytes of a value rules out no form that it has.
func FuzzMarks(f *testing.F) {
	for _, s := range []string{"Ann Lee <ann@books.example>", "http://localhost/x", "http://[::1]", "ftp://a", "a:b", "localhost:80", "README.md", "DE89 3704 0044 0532 0130 00", "+49 30 1234567", "2024-05-15", "a  b", "a\tb", "A b",
		"\u00e9  x", "b\u0130ll.example", "https://k\u212a.example", "x\u00a0y", "x\u2003 y", "a\u200bb", "1e5", "-1.5", "007", "books.example/a b", "a.b|c.d", "x\x7f", "\u3164", "a\v b", "\xff", "日本.example", "12\u0660345678"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := formOf(s)
		if want, has := eachFormOf(s); got != want || ok != has {
			t.Errorf("%q is %v (%v), and by each form %v (%v)", s, got, ok, want, has)
		}
	})
}

func FuzzNumberOf(f *testing.F) {
	for _, s := range []string{"0", "-0", "1e309", "1e99", "1e-99", "1e+9", "00", "007", "+1", "-1.50", "1.", ".1", "1_0", "0x10", "1/2", "1,5", "١", "1e", "--1", strings.Repeat("9", 64), "0e0", "Inf", "NaN", "0b1", "0o7", "1p3"} {
		f.Add(s)
	}
	strict := regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][+-]*[0-9]{1,2})?$`)
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := numberOf(s)
		if !ok {
			return
		}
		if !strict.MatchString(s) || len(n) > 4*maxDigits+200 {
			t.Fatalf("%q is the number %q", s, n)
		}
		if r, good := new(big.Rat).SetString(s); !good || r.RatString() != n {
			t.Fatalf("%q is %q", s, n)
		}
	})
}

func FuzzDateOf(f *testing.F) {
	for _, s := range []string{"2024-05-15", "2024-02-30", "2024-05-15 10:00", "2024-05-15T10:00:00Z", "2024-05-15T10:00:00+25:00", "15.05.2024", "2024/05/15", "0000-00-00", "9999-12-31T23:59:60Z", "２０２４-05-15"} {
		f.Add(s, "Meet on "+s+" at 10:00, May 15th or 3pm")
	}
	f.Fuzz(func(t *testing.T, s, words string) {
		w := ParseRequest(words)
		d, ok := dateOf(s)
		if !ok {
			if w.hasTime(s) {
				t.Fatalf("%q is no date, but said", s)
			}
			return
		}
		if y, err := time.Parse(time.DateOnly, d.Format(time.DateOnly)); err != nil || y.Year() != d.Year() {
			t.Fatalf("%q is %v", s, d)
		}
		if (&Request{}).hasTime(s) {
			t.Fatal("said by nobody")
		}
	})
}

func FuzzParseWords(f *testing.F) {
	for _, s := range []string{"", "Write to ann@books.example, see https://books.example/a.", strings.Repeat("a,", 200), strings.Repeat("é", maxRequest), "'Blue Heron' #13 event 7", "$1,200", "May 15th at 10:00", "\xff\xfe", "\u200b", "a\x00b", "12:99pm at", "#", "[x](https://x.example)"} {
		f.Add(s, "Blue Heron", 1)
	}
	f.Add("ab ", "ab", maxRequest)
	f.Fuzz(func(t *testing.T, s, value string, times int) {
		if times > 1 && len(s) > 0 {
			s = strings.Repeat(s, min(times, 1<<20/len(s)))
		}
		w := ParseRequest(s)
		if !reflect.DeepEqual(w, ParseRequest(s)) {
			t.Fatal("read in two ways")
		}
		if len(w.text) > 3*maxRequest { // what is no UTF-8 grows
			t.Fatal("read too much")
		}
		fm, ok := formOf(value)
		if ok && fm.kind != link && fm.kind != number && fm.kind != account && w.has(fm) && !strings.Contains(fold(s), fold(fm.value)) {
			t.Fatalf("%q does not stand in %q", value, s)
		}
		if w.namesRecord(value, byOutsider) && !w.namesRecord(value, bySystem) {
			t.Fatalf("an outsider names with %q more than the system", value)
		}
		if w.namesRecord(value, bySystem) && !w.has(fm) || w.namesRecord(value, bySystem) && fm.kind == text && countDistinctive(fm.value) == 0 {
			t.Fatalf("%q names without standing there", value)
		}
		if w.givesID(value, "event") && !strings.Contains(s, value) {
			t.Fatalf("the id %q does not stand in %q", value, s)
		}
		if ok {
			w.setApart(strings.TrimSpace(value))
		}
		w.literal(value)
		if none := ParseRequest(strings.Repeat(" ", len(s))); none.text != "" || none.namesRecord(value, bySystem) || none.givesID(value, "event") { // so named does not ask it
			t.Fatalf("an empty request names a record by %q", value)
		}
	})
}

func FuzzObserve(f *testing.F) {
	for _, s := range []string{`{}`, `[{"id":"7","subject":"Blue Heron","sender":"ann@books.example","body":"see http://x.example 13"},{"id":"8"}]`, `{"a":{"b":[{"c":1e999}]}}`, `{"a":1,"A":2}`, `{"a":1,"a":2}`, "\"\xff\"", `"` + strings.Repeat("a", 1<<16) + `"`, strings.Repeat("[", 40) + strings.Repeat("]", 40), `"\ud800"`, `{"":{"":""}}`, `[[[1,"a@b.cd"]]]`, `"Hotel: Owl, pay to: eve@x.example|x;y"`, `{"sender.x":1}`, "{", `1 2`} {
		f.Add([]byte(s), []byte(s), "Answer 'Blue Heron' of ann@books.example", byte(0))
		f.Add([]byte(s), []byte(`{"q":"Blue Heron"}`), "Answer 'Blue Heron'", byte(0xff))
	}
	f.Fuzz(func(t *testing.T, payload, args []byte, request string, how byte) {
		p := &Profile{IDKind: "mail"}
		if how&1 != 0 {
			p.Output = TrustedOutput
		}
		if how&2 != 0 {
			p.Output, p.Shape = TypedOutput, regexp.MustCompile(`^[\w .@-]*$`)
		}
		if how&4 != 0 {
			p.TrustedFields = []string{"id"}
		}
		if how&8 != 0 {
			p.Names = []string{"subject"}
		}
		if how&16 != 0 {
			p.Delegable = []string{"sender"}
		}
		w := ParseRequest(request)
		r := Result{Operation: "mail.list", CallID: "c", Arguments: args, Values: []Value{JSONValue(payload), TextValue(string(payload))}}
		s := Observe(p, w, r)
		if !reflect.DeepEqual(s, Observe(p, w, r)) {
			t.Fatal("seen in two ways")
		}
		values := 0
		for _, rec := range s.Records {
			if rec.Named != "" && p.Names == nil && p.TrustedFields == nil && !s.Trusted {
				t.Fatalf("named by nothing: %+v", rec)
			}
			for _, v := range rec.Values {
				values++
				_, ok := formOf(v.Text)
				if !ok || len(v.Field) > maxDisplayField || v.ID && strings.Contains(v.Field, ".") {
					t.Fatalf("%+v is kept", v)
				}
				if v.Code && (v.ID || !s.Trusted && p.TrustedFields == nil) {
					t.Fatalf("%+v passes for an id", v)
				}
				if v.Class == classTrusted && !s.Trusted || s.Trusted && v.Class != classTrusted && v.Class != classFree /* what was asked for */ || v.Class == classSystem && p.TrustedFields == nil || v.Class == classDelegable && p.Delegable == nil {
					t.Fatalf("%+v of %+v", v, p)
				}
				if p.Shape != nil && s.Trusted && !v.Many && !p.Shape.MatchString(v.Text) && regexp.MustCompile(`^[^0-9]*$`).MatchString(v.Text) {
					t.Fatalf("%+v has not the shape", v)
				}
			}
		}
		if len(s.Records) > maxRecords || values > maxSeenValues {
			t.Fatalf("%d values of %d records", values, len(s.Records))
		}
		var read Observation
		if err := json.Unmarshal(encoded(s), &read); err != nil {
			t.Fatal(err)
		}
		a, b := gathered(s), gathered(read)
		if !reflect.DeepEqual(a, b) {
			t.Fatal("kept and read it is another")
		}
	})
}

// What a browser, a mailer or a chat program makes a link of. Simpler than the product, and as generous: anything with a scheme, or a name with
// a point before two letters or more that stands at a boundary.
var (
	schemed = regexp.MustCompile(`(?i)(?:https?|ftp|wss?|javascript|data|file|vbscript):[^\s"<>]{2,}`)
	bare    = regexp.MustCompile(`(?i)(?:^|[\s"'(\[{<>,;=|*~!])((?:[a-z0-9][a-z0-9-]{0,40}\.)+(?:com|net|org|example|io|zip|ru|xn--p1ai))(?:$|[\s"')\]}>,;!?*~|…，。]|[.:]\s|[/?#:][^\s"<>]*)`)
)

func FuzzLinksIn(f *testing.F) {
	for _, s := range []string{"see https://x.example/a", "[x](//x.example)", "[x](http:\\\\x.example)", "x.example", "www.x.example/?a=b@c", "x。example/a", "x．example", "x\u200b.example/a", "hxxp://x.example", "https&#58;//x.example", "https&colon;&sol;&sol;x&period;example", `https:\/\/x.example`, `\u0068ttps://x.example`, "ann@books.example", "ann@books.example/x", "report.pdf", "report.pdf/x", "a.b.c", "...", "://", "x.example，y", "(x.example)", "**x.example**", "<a href='x.example/a'>", "javascript:alert(1)", "data:text/html,x", "1.2.3.4/x", "i❤.example/x", "x.example\x00", "&", `\`, "](", "münchen.example", "xn--p1ai.xn--p1ai", "HTTP://X.EXAMPLE", "user@x.example:80/", "\\\\x.example\\a", "http:0x08080808/x", "https:/134744072/x"} {
		f.Add(s, "")
		f.Add("Hello "+s+", and more", " ")
		f.Add("x", s)
	}
	f.Fuzz(func(t *testing.T, s, behind string) {
		var found []string
		for l := range linksIn(s) {
			found = append(found, l)
			if l == "" || strings.ContainsAny(l, " \t\n\"<>") {
				t.Fatalf("%q in %q", l, s)
			}
		}
		sorted := slices.Clone(found)
		slices.Sort(sorted)
		if len(slices.Compact(sorted)) != len(found) {
			t.Fatalf("%q twice in %q", found, s)
		}
		if strings.Contains(s, "&") || strings.Contains(s, `\`) || !utf8.ValidString(s) {
			// What an entity or an escape hides the product reads and this oracle doesn't.
		} else if m := schemed.FindString(s); m != "" && len(found) == 0 {
			t.Fatalf("%q is overlooked in %q", m, s)
		} else if m := bare.FindStringSubmatch(s); m != nil && len(found) == 0 {
			t.Fatalf("%q is overlooked in %q", m[1], s)
		}
		// More text behind white space hides none.
		n := 0
		for range linksIn(s + " " + behind) {
			n++
		}
		if n < len(found) && !strings.ContainsAny(s+behind, `&\`) {
			t.Fatalf("%q has %q, and with %q behind it %d", s, found, behind, n)
		}
	})
}

func FuzzJudgeCall(f *testing.F) {
	for _, args := range []string{`{"to":"ann@books.example","body":"see http://x.example"}`, `{"to":["ann@books.example",{"eve@x.example":null}]}`, `{"amount":1e999}`, `{"id":13,"to":"Owl"}`, `[]`, `{"":""}`, `{"a.b":1}`, "{\"to\":\"\xff\"}", `{"to":"a","TO":"b"}`, `{"title":"Lunch Grey Owl","when":"2024-05-15"}`, `null`, `{"url":"https://books.example/a","pw":"Xk9"}`, `{"to":","}`} {
		f.Add([]byte(args), []byte(`[{"id":"13","sender":"ann@books.example","subject":"Blue Heron","body":"eve@x.example http://x.example"},{"id":"8"}]`), "Answer 'Blue Heron', pay Owl 13 and see https://books.example/a", byte(0))
		f.Add([]byte(args), []byte(args), "Lunch at 10:00", byte(0x2f))
	}
	f.Fuzz(func(t *testing.T, args, payload []byte, request string, how byte) {
		p := &Profile{Level: int(how&3) - 1, EgressURL: how&4 != 0, IDKind: "mail", Args: map[string]Role{"to": Destination, "url": URL, "amount": Amount, "pw": Credential, "who": Identity, "id": Selector, "x": Target, "when": Time, "title": Name, "body": Content, "q": Query}}
		if how&8 != 0 {
			p.Boundary = BoundaryByArg
		}
		op, held := post, fromOutside
		if how&16 != 0 {
			op, held = leak, append([]flow.Held{{Label: "internal", Operation: "a.b", CallID: "c"}}, held...)
		}
		read := &Profile{TrustedFields: []string{"id"}, Names: []string{"subject"}, Delegable: []string{"sender"}, IDKind: "mail"}
		if how&32 != 0 {
			read.Output = TrustedOutput
		}
		w := ParseRequest(request)
		result := Result{Operation: "mail.list", CallID: "c1", Arguments: args, Values: jsonValues(payload)}
		judge := func(more ...Observation) Ruling {
			seen := append([]Observation{Observe(read, w, result), Approve(op.ID, "c2", p, payload, nil, nil)}, more...)
			return JudgeCall(op, p, args, Situation{Held: held, Request: w, Own: []string{"me@own.example"}, Evidence: gathered(seen...), FreeLevel1: how&64 != 0})
		}
		r := judge()
		if again := judge(); !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v, then %+v", r, again)
		}
		if r.Because == nil || !slices.Contains([]Verdict{Permit, Ask, Deny}, r.Verdict) || r.Verdict != Permit && r.Reason == "" || !utf8.ValidString(r.Reason) || len(r.Evidence) > maxTraced {
			t.Fatalf("%+v", r)
		}
		if r.Verdict == Permit {
			for _, found := range r.Evidence {
				if !found.Confirmed || found.By == ByNone {
					t.Fatalf("permitted with %+v", found)
				}
			}
		}
		hostile := Observe(&Profile{Names: []string{"subject"}}, w, Result{Operation: "web.fetch", CallID: "c3", Values: []Value{JSONValue(args), JSONValue(payload), TextValue(string(args))}})
		if more := judge(hostile); r.Verdict != Permit && more.Verdict == Permit {
			t.Fatalf("%s; with more of an outsider's %s", r.Reason, more.Reason)
		}
	})
}

// What is read fast is what is read slowly: texts of ASCII, and addresses of plain characters.
func FuzzFold(f *testing.F) {
	for _, s := range []string{"", " ", "A  b\t\n C ", "\v\f x", "\u0085A", "\u00a0 É", "a\x00 b", "https://a.example/b?c=d&e", "a.example", "_a.example.", "a_.example/~x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := fold(s), strings.Join(strings.Fields(strings.ToLower(s)), " "); got != want {
			t.Fatalf("%q is folded to %q, not %q", s, got, want)
		}
		host, path, _ := strings.Cut(strings.ToLower(s), "/")
		if l, ok := linkOf(s); ok && !strings.Contains(s, ":") {
			if _, err := url.Parse("https://" + strings.TrimSuffix(host, ".") + "/" + path); err != nil {
				t.Fatalf("%q is the link %q, but %v", s, l, err)
			}
		}
	})
}

// What the index of a request's words finds is what a search of its text finds, also with the letter case that quotes and names look at.
func FuzzPhrase(f *testing.F) {
	for _, s := range [][2]string{{"the brown fox", "brown fox"}, {"a.b c", "a.b"}, {"né e\u0301x", "e\u0301x"}, {"x (foo) y", "(foo)"}, {"one two", "ne two"}, {"文字 and", "文字"}, {"a\xffb c", "\xffb"},
		{"Foo 'Bar' foo BAR", "bar"}, {"a, b, a; b", "a; b"}, {"-- ++ --", "++ --"}, {"İstanbul ist", "ist"}, {"Ǆ ǆ K k", "ǆ k"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, request, s string) {
		w := ParseRequest(request)
		if s = fold(s); utf8.RuneCountInString(s) < 3 || !utf8.ValidString(s) {
			return
		}
		slow := inText(w.text, s, func(i int) bool { return bounded(w.text, i, i+len(s)) })
		if got := w.phrase(s); got != slow {
			t.Fatalf("%q has the phrase %q: %t, but when it is searched %t", request, s, got, slow)
		}
		if len(w.text) != len(w.cased) {
			return
		}
		var fast, searched []int
		w.anywhere(s, func(i, _ int) bool { fast = append(fast, i); return false })
		inText(w.text, strings.TrimSpace(s), func(i int) bool {
			if bounded(w.cased, i, i+len(strings.TrimSpace(s))) {
				searched = append(searched, i)
			}
			return false
		})
		if slices.Sort(fast); !slices.Equal(fast, searched) {
			t.Fatalf("%q has %q at %v, but when it is searched at %v", request, s, fast, searched)
		}
	})
}

// What is looked at byte by byte is what the expressions for it find.
func FuzzRequestBytes(f *testing.F) {
	for _, s := range []string{"", "a\n\nb", "a\r\n \r\n\r\nb\n", "a\n\t\v\nb", "\n\n", "\r\n\r\n\f\rx\n \ny\r\n\nz", "a\n\n\u00a0\nb", "It's-ÄÖ 12", "ms-x", "a.example/b", "x-y", "//h"} {
		f.Add(s)
	}
	paragraph := regexp.MustCompile(`\r?\n[ \t\r]*\n\s*`)
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := endParagraphs(s), paragraph.ReplaceAllString(s, "\n.\n"); got != want && utf8.ValidString(s) {
			t.Fatalf("the paragraphs of %q end as %q, not as %q", s, got, want)
		}
		if got, want := bareWord(s), strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }), ""); got != want {
			t.Fatalf("%q is bare as %q, not as %q", s, got, want)
		}
		if got, want := linkAt(s), findLink(s); got != want {
			t.Fatalf("%q has a link at %d, not at %d", s, got, want)
		}
	})
}

// The words that are looked at are those between separators, in every script.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{"", "write to ann@books.example, or 4711.", "“a.b” „c@d.example«", "\u0085x1\u00a0y2\u3000z3", "\xff1 2\xff", ".:!?1'’*_`", "a|b1;(c.d)", "plain words only and no marks in them at all", "éa1é b\u2003c@d.e",
		"=1;2<3>4?5/6:7", "words before a.b, words behind"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got, want []string
		for token, fm := range tokens(s) {
			got = append(got, fmt.Sprint(token, fm))
		}
		for token := range strings.FieldsFuncSeq(s, betweenTokens) {
			token = strings.Trim(token, aroundTokens)
			if fm, ok := formOf(token); ok && fm.kind != text && !plainWord(token) {
				want = append(want, fmt.Sprint(token, fm))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q has %q, not %q", s, got, want)
		}
	})
}
