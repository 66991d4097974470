package call

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	"sallyport.example/internal/fault"
)

// The sample of RFC 8785 sections 3.2.2 to 3.2.4, and the names of its sorting test in section 3.2.3.
func TestCanonicalIsRFC8785(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"sample", `{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`, `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		{"sorting", `{
  "\u20ac": "Euro Sign",
  "\r": "Carriage Return",
  "\ufb33": "Hebrew Letter Dalet With Dagesh",
  "1": "One",
  "\ud83d\ude00": "Emoji: Grinning Face",
  "\u0080": "Control",
  "\u00f6": "Latin Small Letter O With Diaeresis"
}`, `{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`},
		{"nested", ` {"b":{"z":[{"y":1,"x":2}],"a":{}},"a":[ ]} `, `{"a":[],"b":{"a":{},"z":[{"x":2,"y":1}]}}`},
		{"empty name", `{"a":1,"":2}`, `{"":2,"a":1}`},
		{"prefix", `{"ab":1,"a":2}`, `{"a":2,"ab":1}`},
		{"all short escapes", `"\b\f\n\r\t\u0001\u001f\u007f\/\u0000"`, `"\b\f\n\r\t\u0001\u001f` + "\x7f" + `/\u0000"`},
		{"scalar", ` "x" `, `"x"`},
		{"noncharacter", `"\uffff\ufffd"`, "\"\uffff\ufffd\""},
	} {
		got, err := Canonical([]byte(c.in), DefaultLimits())
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v\nwant %s", c.name, got, err, c.want)
		}
	}
}

// Appendix B of RFC 8785, where the result isn't a plain integer, plus the integers in non-integer notation.
func TestNumbersAreECMAScript(t *testing.T) {
	for hexBits, want := range map[string]string{
		"0000000000000000": "0", "8000000000000000": "0", "0000000000000001": "5e-324", "8000000000000001": "-5e-324",
		"7fefffffffffffff": "1.7976931348623157e+308", "ffefffffffffffff": "-1.7976931348623157e+308",
		"4340000000000000": "9007199254740992", "c340000000000000": "-9007199254740992", "4430000000000000": "295147905179352830000",
		"44b52d02c7e14af5": "9.999999999999997e+22", "44b52d02c7e14af6": "1e+23", "44b52d02c7e14af7": "1.0000000000000001e+23",
		"444b1ae4d6e2ef4e": "999999999999999700000", "444b1ae4d6e2ef4f": "999999999999999900000", "444b1ae4d6e2ef50": "1e+21",
		"3eb0c6f7a0b5ed8c": "9.999999999999997e-7", "3eb0c6f7a0b5ed8d": "0.000001",
		"41b3de4355555553": "333333333.3333332", "41b3de4355555554": "333333333.33333325", "41b3de4355555555": "333333333.3333333",
		"41b3de4355555556": "333333333.3333334", "41b3de4355555557": "333333333.33333343",
		"becbf647612f3696": "-0.0000033333333333333333", "43143ff3c1cb0959": "1424953923781206.2",
	} {
		b, _ := strconv.ParseUint(hexBits, 16, 64)
		in := strconv.FormatFloat(math.Float64frombits(b), 'e', 25, 64)
		if got, err := Canonical([]byte(in), DefaultLimits()); err != nil || string(got) != want {
			t.Errorf("%s (%s): %s, %v, want %s", hexBits, in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"-0": "0", "-0.0": "0", "-0e9": "0", "1.0": "1", "1e2": "100", "1E+2": "100", "-1e-7": "-1e-7", "1e-400": "0", "-1e-400": "0",
		"9007199254740993":            "9007199254740993", // RFC 8785 would send ...992
		"123456789012345678901234567": "123456789012345678901234567", "-9223372036854775809": "-9223372036854775809",
	} {
		if got, err := Canonical([]byte(in), DefaultLimits()); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", in, got, err, want)
		}
	}
}

// refusals are mcp-081, 084, 087 and 093 and everything else that docs/design.md, rule 5 keeps out: text, and what the error must say.
var refusals = map[string]string{
	`{"name":"allowed","Name":"denied"}`: `duplicate key "Name" (differs from "name" only in case) at byte 18`,
	`{"a":1,"a":1}`:                      `duplicate key "a" at byte 7`,
	`{"a":1,"\u0061":2}`:                 `duplicate key "a" at byte 7`,
	`[{"x":{"METHOD":1,"method":2}}]`:    `differs from "METHOD" only in case`,
	`{"K":1,"` + "\u212a" + `":2}`:       `only in case`, // KELVIN SIGN folds to k
	`{"straſe":1,"STRASE":2}`:            `only in case`,
	`{"Σ":1,"ς":2}`:                      `only in case`,
	`{"name\u0000":1}`:                   `NUL in the name "name\x00" at byte 1`,
	`{"a":1} x`:                          `data after the end of the JSON value at byte 8`,
	`{}{}`:                               `data after the end`,
	`1 2`:                                `data after the end`,
	"\xef\xbb\xbf{}":                     `byte order mark at byte 0`,
	" \xef\xbb\xbf{}":                    `byte order mark`,
	`{"a":1/*x*/}`:                       `comments`,
	"// x\n{}":                           `comments`,
	`{'a':1}`:                            `single quotes`,
	`['a']`:                              `single quotes`,
	`[NaN]`:                              `NaN`,
	`[Infinity]`:                         `Infinity`,
	`[-Infinity]`:                        `without digits`,
	`[+1]`:                               `+1`,
	`[.5]`:                               `.5`,
	`01`:                                 `leading zero at byte 0`,
	`-01`:                                `leading zero`,
	`1.`:                                 `after the point`,
	`1e`:                                 `exponent`,
	`1e999`:                              `range of a double`,
	`-1e309`:                             `range of a double`,
	strings.Repeat("9", 400):             `range of a double`,
	strings.Repeat("9", 309) + ".5":      `range of a double`,
	`0x10`:                               `data after the end`,
	`"\ud800"`:                           `lone surrogate at byte 1`,
	`"\udc00\ud800"`:                     `lone surrogate`,
	`"\ud800\u0041"`:                     `lone surrogate`,
	`"\ud800x"`:                          `lone surrogate`,
	"\"\xed\xa0\x80\"":                   `invalid UTF-8`,
	"\"\xff\"":                           `invalid UTF-8 at byte 1`,
	"\"é\xc0\xaf\"":                      `invalid UTF-8`,
	"\"\xe2\x82\"":                       `invalid UTF-8`,
	"{\"\xff\":1}":                       `invalid UTF-8`,
	"\"a\nb\"":                           `control character "\n"`,
	"\"\x00\"":                           `control character`,
	`"\x41"`:                             `unknown escape`,
	`"\u12G4"`:                           `hex`,
	`"\u+123"`:                           `hex`,
	`"\`:                                 `end of JSON`,
	`"abc`:                               `not closed`,
	``:                                   `unexpected end`,
	`   `:                                `unexpected end`,
	`{`:                                  `unexpected end`,
	`{"a"`:                               `unexpected end`,
	`{"a":`:                              `unexpected end`,
	`{"a":1`:                             `unexpected end`,
	`{"a":1,`:                            `unexpected end`,
	`{"a":1,}`:                           `expected a member name`,
	`{"a" 1}`:                            `expected ':'`,
	`{a:1}`:                              `expected a member name`,
	`{"a":1;}`:                           `expected ',' or '}'`,
	`[`:                                  `unexpected end`,
	`[1`:                                 `unexpected end`,
	`[1,]`:                               `expected a value`,
	`[,1]`:                               `expected a value`,
	`[1 2]`:                              `expected ',' or ']'`,
	`tru`:                                `expected a value`,
	`True`:                               `expected a value`,
	`nul`:                                `expected a value`,
	"\v1":                                `expected a value`,
	"\u00a01":                            `expected a value`,
	strings.Repeat("[", 65) + strings.Repeat("]", 65): `nested deeper than 64 at byte 64`,
	strings.Repeat(`{"a":`, 100):                      `nested deeper than 64`,
}

func TestRefusals(t *testing.T) {
	for in, want := range refusals {
		_, err := Canonical([]byte(in), DefaultLimits())
		if err == nil || !strings.Contains(err.Error(), want) || !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%q: %v, want %q", in, err, want)
			continue
		}
		if again := Check([]byte(in), DefaultLimits()); again == nil || again.Error() != err.Error() {
			t.Errorf("%q: Canonical says %v, Check %v", in, err, again)
		}
	}
}

// Objects too large for comparing in pairs find duplicates and variants too, wherever they stand.
func TestDuplicatesInLargeObjects(t *testing.T) {
	for _, twin := range []string{"key7", "KEY7", "\u212aey7"} {
		for _, at := range []int{8, 15, 16, 17, 40, 5000} {
			var b strings.Builder
			b.WriteByte('{')
			for i := range 5000 {
				if i == at {
					b.WriteString(`"` + twin + `":0,`)
				}
				b.WriteString(`"key` + strconv.Itoa(i) + `":0,`)
			}
			if at == 5000 {
				b.WriteString(`"` + twin + `":0,`)
			}
			in := strings.TrimSuffix(b.String(), ",") + "}"
			if err := Check([]byte(in), DefaultLimits()); err == nil || !strings.Contains(err.Error(), "duplicate key") {
				t.Fatalf("%s at %d: %v", twin, at, err)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	lim := Limits{Bytes: 20, Depth: 2, Members: 3}
	for in, ok := range map[string]bool{
		`[[1]]`: true, `[[[1]]]`: false, `[1,2,3]`: true, `[1,2,3,4]`: false, `{"a":[1,2]}`: true, `{"a":[1,2],"b":1}`: false,
		`"123456789012345678"`: true, `"1234567890123456789"`: false, `[[],{}]`: true,
	} {
		if err := Check([]byte(in), lim); (err == nil) != ok {
			t.Errorf("%s: %v", in, err)
		}
	}
	if Check([]byte(`1`), Limits{}) == nil {
		t.Error("zero limits permit")
	}
	if _, err := Canonical([]byte(`{"`+strings.Repeat("長", 99)+`":1,"`+strings.Repeat("長", 99)+`":1}`), DefaultLimits()); len(err.Error()) > 200 || !utf8.ValidString(err.Error()) {
		t.Errorf("error repeats too much of the text: %v", err)
	}
}

func TestFoldHashFollowsEqualFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.StringOf(rapid.SampledFrom([]rune("aAkKsS\u212aſσςΣßẞéÉ@`[{_\x7f0😀ǅǆǄ"))).Draw(t, "a")
		b := strings.Map(func(r rune) rune {
			if !rapid.Bool().Draw(t, "flip") {
				return r
			}
			return []rune(strings.ToUpper(string(r)))[0]
		}, a)
		if bytes.EqualFold([]byte(a), []byte(b)) != (foldHash([]byte(a)) == foldHash([]byte(b))) {
			t.Fatalf("%q %q", a, b)
		}
	})
	if foldHash([]byte("@@@@@@@@@")) == foldHash([]byte("`````````")) || foldHash([]byte("a")) == foldHash([]byte("a\x00")) {
		t.Error("hash confuses what isn't a case variant")
	}
}

func TestMembersGetSet(t *testing.T) {
	object := []byte(` { "a" : {"x":[1,"}\\\""]} , "b\n": "\"," , "c":-1.5e3,"d":[ ] } `)
	var names, values []string
	for name, value := range Members(object) {
		names, values = append(names, name), append(values, string(value))
	}
	if !slices.Equal(names, []string{"a", "b\n", "c", "d"}) || !slices.Equal(values, []string{`{"x":[1,"}\\\""]}`, `"\","`, "-1.5e3", "[ ]"}) {
		t.Fatalf("%q %q", names, values)
	}
	if v, ok := Get(object, "b\n"); !ok || string(v) != `"\","` {
		t.Errorf("Get: %s %v", v, ok)
	}
	if _, ok := Get(object, "x"); ok {
		t.Error("Get found a member of a member")
	}
	for _, c := range []struct{ object, name, value, want string }{
		{`{"a":1,"b":2}`, "a", `[3]`, `{"a":[3],"b":2}`},
		{`{"a":1,"b":2}`, "b", `3`, `{"a":1,"b":3}`},
		{`{"a":1 }`, "c\"", `3`, `{"a":1,"c\"":3 }`},
		{` { } `, "c", `3`, ` {"c":3 } `},
		{`[1]`, "c", `3`, ``},
		{`{"\u0061":1}`, "a", `2`, `{"\u0061":2}`},
		{`{"b":1}`, "a", `2`, `{"b":1,"a":2}`},
	} {
		if got := SetMember([]byte(c.object), c.name, json.RawMessage(c.value)); string(got) != c.want {
			t.Errorf("SetMember(%s, %s): %s, want %s", c.object, c.name, got, c.want)
		}
	}
	for _, c := range []struct{ object, name, value, want string }{
		{`{"a":1,"c":2}`, "b", `3`, `{"a":1,"b":3,"c":2}`},
		{`{"a":1,"c":2}`, "c", `3`, `{"a":1,"c":3}`},
		{`{"a":1,"c":2}`, "d", `3`, `{"a":1,"c":2,"d":3}`},
		{`{ "b":1}`, "a", `2`, `{ "a":2,"b":1}`},
		{`{"\u0062":1}`, "a", `2`, `{"a":2,"\u0062":1}`},
		{`{"𐀀":1}`, "a", `2`, `{"a":2,"𐀀":1}`},
		{`{}`, "a", `2`, `{"a":2}`},
		{`1`, "a", `2`, ``},
	} {
		if got := SetSorted([]byte(c.object), c.name, json.RawMessage(c.value)); string(got) != c.want {
			t.Errorf("SetSorted(%s, %s): %s, want %s", c.object, c.name, got, c.want)
		}
	}
}

func TestStrings(t *testing.T) {
	var got []string
	Strings([]byte(`{"content":[{"type":"text","text":"a\nb"},{"te\u0078t":"c"}],"n":1,"deep":[["x"],{}],"":null}`), func(path, s string) bool {
		got = append(got, path+"="+s)
		return true
	})
	want := []string{"{}=content", "content[]{}=type", "content[].type=text", "content[]{}=text", "content[].text=a\nb", "content[]{}=text", "content[].text=c",
		"{}=n", "{}=deep", "deep[][]=x", "{}="}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	n := 0
	Strings([]byte(`["a",["b"],"c"]`), func(string, string) bool { n++; return n < 2 })
	if n != 2 {
		t.Errorf("yield called %d times after it said stop at 2", n)
	}
	long := strings.Repeat("k", 10_000)
	Strings([]byte(`{"`+long+`":{"`+long+`":"v"}}`), func(path, _ string) bool {
		if len(path) > maxPath+2 {
			t.Fatalf("path of %d bytes", len(path))
		}
		return true
	})
}

// Valid JSON that Check refuses for its surrogates is read as encoding/json reads it: half a pair hides nothing that follows.
func TestTextOfBrokenPairs(t *testing.T) {
	for _, raw := range []string{`"\ud800"`, `"\ud800hidden"`, `"\ud800\u0041"`, `"\ud800\nabc"`, `"\ud800\ud800\udc00."`, `"\udc00\ud800"`, `"\ud83d\ude00!"`, `"\ud800xx\udc00"`} {
		var want string
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		if got, ok := Text([]byte(raw)); !ok || got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

// decode is encoding/json with exact numbers: integers whole, the rest as doubles.
func decode(t testing.TB, data []byte) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses what we accept: %v: %q", err, data)
	}
	return exact(v)
}

type integer string

func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, ok := new(big.Int).SetString(string(v), 10); ok {
			return integer(n.String())
		}
		f, _ := strconv.ParseFloat(string(v), 64)
		if n, acc := big.NewFloat(f).Int(nil); acc == big.Exact && math.Abs(f) < 1e21 {
			// 1.5e2 is 150: what ECMAScript writes as an integer counts as the integer it writes.
			n.SetString(strconv.FormatFloat(f, 'f', -1, 64), 10)
			return integer(n.String())
		}
		return f
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}

// sorted tells whether all names of every object of v stand in the order of their UTF-16 units.
func sorted(data []byte) bool {
	var previous []uint16
	for name, value := range Members(data) {
		units := utf16.Encode([]rune(name))
		if previous != nil && slices.Compare(previous, units) >= 0 || len(value) > 0 && value[0] == '{' && !sorted(value) {
			return false
		}
		previous = append([]uint16{}, units...)
	}
	return true
}

func FuzzCanonical(f *testing.F) {
	for in := range refusals {
		f.Add([]byte(in))
	}
	f.Add([]byte(`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.1],"string":"\u20ac$\u000F\u000aA'\ud83d\ude00","literals":[null,true,false],"":{}}`))
	f.Add([]byte(`{"b":9007199254740993,"a":-0,"c":1e400}`))
	f.Add(args200)
	f.Fuzz(func(t *testing.T, data []byte) {
		lim := Limits{Bytes: 1 << 20, Depth: 16, Members: 1000}
		out, err := Canonical(data, lim)
		if e := Check(data, lim); (e == nil) != (err == nil) {
			t.Fatalf("Canonical %v, Check %v", err, e)
		}
		for range Members(data) { // must not panic on anything
		}
		SetMember(data, "a", json.RawMessage("1"))
		Strings(data, func(string, string) bool { return true })
		if err != nil {
			strict := regexp.MustCompile(`duplicate key|lone surrogate|invalid UTF-8|NUL in|nested deeper|more than|over the limit|range of a double`)
			if json.Valid(data) && !strict.MatchString(err.Error()) {
				t.Fatalf("%q is JSON, but: %v", data, err)
			}
			return
		}
		again, err := Canonical(out, Limits{Bytes: 8 << 20, Depth: 16, Members: 1000})
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("not idempotent: %q, %q, %v", out, again, err)
		}
		was, is := decode(t, data), decode(t, out)
		if !reflect.DeepEqual(was, is) {
			t.Fatalf("value changed: %q -> %q", data, out)
		}
		if !sorted(out) {
			t.Fatalf("not sorted: %q", out)
		}
		// The readers of checked JSON see what encoding/json sees.
		if object, ok := is.(map[string]any); ok {
			n := 0
			for name, value := range Members(data) {
				n++
				if want, ok := object[name]; !ok || !reflect.DeepEqual(decode(t, value), want) {
					t.Fatalf("member %q is %q", name, value)
				}
				if set := SetSorted(out, "m", json.RawMessage(`"new"`)); !sorted(set) {
					t.Fatalf("SetSorted(%q): %q is not sorted", out, set)
				}
				set := SetMember(data, name, json.RawMessage(`"new"`))
				if v, ok := Get(set, name); !ok || string(v) != `"new"` || Check(set, DefaultLimits()) != nil {
					t.Fatalf("SetMember(%q): %q", name, set)
				}
			}
			if n != len(object) {
				t.Fatalf("%d members of %d", n, len(object))
			}
		}
		var got, want []string
		Strings(out, func(path, s string) bool { got = append(got, s); return true })
		all(is, &want)
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Fatalf("strings %q, want %q", got, want)
		}
	})
}

// all collects every string and name of a decoded value.
func all(v any, to *[]string) {
	switch v := v.(type) {
	case string:
		*to = append(*to, v)
	case []any:
		for _, e := range v {
			all(e, to)
		}
	case map[string]any:
		for k, e := range v {
			*to = append(*to, k)
			all(e, to)
		}
	}
}

// args200 is about what a tool call's arguments look like.
var args200 = []byte(`{"query":"quarterly revenue report for the northern region","max_results":25,"include_archived":false,"folders":["inbox","projects/2026"],"sort":{"by":"date","descending":true},"since":"2026-01-01T00:00:00Z"}`)

// result64K is about what a tool result looks like: text blocks with some escapes and some longer characters.
var result64K = func() []byte {
	text, _ := json.Marshal(strings.Repeat("The quick brown fox jumps over the lazy dog; naïve café, line two follows.\n", 14))
	var b bytes.Buffer
	b.WriteString(`{"content":[`)
	for i := 0; b.Len() < 63<<10; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"type":"text","text":` + string(text) + `}`)
	}
	b.WriteString(`],"isError":false}`)
	return b.Bytes()
}()

// rows64K is the other kind of result: many small records.
var rows64K = func() []byte {
	var b bytes.Buffer
	b.WriteString(`{"structuredContent":[`)
	for i := 0; b.Len() < 63<<10; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"id":` + strconv.Itoa(i) + `,"name":"Customer ` + strconv.Itoa(i) + `","balance":1234.56,"active":true,"tags":["a","b"]}`)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}()

func BenchmarkCanonicalArgs(b *testing.B) {
	lim := DefaultLimits()
	b.SetBytes(int64(len(args200)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Canonical(args200, lim); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck64K(b *testing.B) {
	for name, data := range map[string][]byte{"text": result64K, "rows": rows64K} {
		b.Run(name, func(b *testing.B) {
			lim := DefaultLimits()
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Check(data, lim); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStrings64K(b *testing.B) {
	b.SetBytes(int64(len(result64K)))
	b.ReportAllocs()
	for b.Loop() {
		Strings(result64K, func(string, string) bool { return true })
	}
}

// Parsers are shared memory between calls: what one returned must not change when the next runs.
func TestResultsAreTheirOwners(t *testing.T) {
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			in := []byte(`{"z` + strconv.Itoa(g) + `":"\u0041","a":{"\u0062":` + strconv.Itoa(g) + `,"a":1.50}}`)
			want := `{"a":{"a":1.5,"b":` + strconv.Itoa(g) + `},"z` + strconv.Itoa(g) + `":"A"}`
			var kept [][]byte
			for range 200 {
				out, err := Canonical(in, DefaultLimits())
				if err != nil {
					t.Error(err)
				}
				kept = append(kept, out)
				Canonical([]byte(`{"a":1,"a"`), DefaultLimits())
			}
			for _, out := range kept {
				if string(out) != want {
					t.Errorf("%s, want %s", out, want)
				}
			}
		})
	}
	wait.Wait()
}
