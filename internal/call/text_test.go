package call

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzText holds what a checked string is decoded as against encoding/json.
func FuzzText(f *testing.F) {
	for _, s := range []string{`""`, `"a"`, `"a\nb\t\"\\\/\b\f\r"`, `"\u00e9\ud83d\ude00x\u0000"`, `"é\u2028"`, `"\\u0041"`, `"x\\"`, `"12345678\n1234567\"123456\\é"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if Check([]byte(s), DefaultLimits()) != nil || s[0] != '"' || s[len(s)-1] != '"' {
			return
		}
		var want string
		if err := json.Unmarshal([]byte(s), &want); err != nil {
			t.Fatal(err)
		}
		if got, ok := Text([]byte(s)); !ok || got != want {
			t.Fatalf("%s is %q, not %q", s, got, want)
		}
		if got := string(appendDecoded(nil, []byte(s[1:len(s)-1]))); got != want {
			t.Fatalf("%s is appended as %q, not %q", s, got, want)
		}
	})
}

// FuzzSkip holds the end of a string, found eight bytes at a time, against the end found byte by byte.
func FuzzSkip(f *testing.F) {
	for _, s := range []string{``, `"`, `a"`, `abcdefgh"x`, `\"\\"`, `1234567\"8"`, "\x80\xff\xa2\xdc\"", `\`, `1234567\`, strings.Repeat("a", 40) + `\\\"b"`, strings.Repeat(`a\"`, 20) + `\\"c`, strings.Repeat("a", 32) + `\`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want := 1
		for data = append([]byte{'"'}, data...); want < len(data) && data[want] != '"'; want++ {
			if data[want] == '\\' {
				want++
			}
		}
		if want = min(want+1, len(data)); skipString(data, 0) != want {
			t.Fatalf("%q ends at %d, not at %d", data, skipString(data, 0), want)
		}
	})
}

// FuzzPlace holds what is found without looking for ends against the members.
func FuzzPlace(f *testing.F) {
	for _, s := range []string{`{}`, ` { "a" : "x\"}" } `, `{"a":{"b":"c"},"\u0062":[1,"]"],"c":"d"}`, `{"a":"b","c":1}`, `{"":""}`, `[]`, `{"a":1}`} {
		f.Add([]byte(s), "b")
	}
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		data = bytes.TrimSpace(data)
		at, members := Place(data, name), 0
		text, only := OnlyText(data)
		if Check(data, DefaultLimits()) != nil {
			return
		}
		if value, ok := Get(data, name); ok != (at >= 0) || ok && !bytes.HasPrefix(data[at:], value) {
			t.Fatalf("%q in %s is at %d", name, data, at)
		}
		want, is := "", false
		for member, value := range Members(data) {
			if at := Place(data, member); at < 0 || !bytes.HasPrefix(data[at:], value) {
				t.Fatalf("%q in %s is at %d", member, data, at)
			}
			members++
			want, is = Text(value)
		}
		if is = is && members == 1; is != only || is && text != want {
			t.Fatalf("the text of %s is %q, %t", data, text, only)
		}
	})
}

// Of a result of 64 KiB with many short strings, the last member.
func BenchmarkGet64K(b *testing.B) {
	data := append(append([]byte(`{"a":`), rows64K...), `,"b":1}`...)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, ok := Get(data, "b"); !ok {
			b.Fatal("it is not found")
		}
	}
}
