package call

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// encoded is v as encoding/json writes it, with markup as it is.
func encoded(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func TestEncode(t *testing.T) {
	for _, v := range []any{
		nil, true, 1.5, "", "a<b>&\u2028", map[string]any(nil), []any(nil), map[string]any{}, []any{},
		map[string]any{"b": []any{"x", nil, 1}, "a": json.RawMessage(`{ "z" : [1, 2] }`), "c": []map[string]any{{"y": 1, "x": "<"}}, "\"": "q", "d": []string{"<"}},
	} {
		got, err := Encode(v)
		if want := encoded(t, v); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v is %s, %v, not %s", v, got, err, want)
		}
	}
	for _, v := range []any{json.RawMessage(`{`), map[string]any{"a": json.RawMessage(`{`)}, []any{make(chan int)}} {
		if got, err := Encode(v); err == nil {
			t.Errorf("%v is %s", v, got)
		}
	}
}

type pieces []string

func (p pieces) AppendForModel(dst []byte, append func([]byte, string) []byte) []byte {
	for _, piece := range p {
		dst = append(dst, piece)
	}
	return dst
}

func (p pieces) Size() (n int) {
	for _, piece := range p {
		n += len(piece)
	}
	return n
}

// FuzzEncode holds a text against what encoding/json makes of it.
func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "a", "1234567\"8", "12345678\\\n\r\t\b\f\x00\x1f\x7f", "é\u2028\u2029\xff 12345678\xc3", "<&>", strings.Repeat("\u00fc", 9)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, v := range []any{s, map[string]any{s: []any{s}}} {
			if got, err := Encode(v); err != nil || !bytes.Equal(got, encoded(t, v)) {
				t.Fatalf("%q is %s, %v", s, got, err)
			}
		}
		s = strings.ToValidUTF8(s, "?")
		for at := range s { // in two pieces
			if got, err := Encode([]any{pieces{s[:at], s[at:]}}); err != nil || !bytes.Equal(got, encoded(t, []any{s})) {
				t.Fatalf("%q and %q are %s, %v", s[:at], s[at:], got, err)
			}
		}
	})
}

func BenchmarkEncode64K(b *testing.B) {
	v := map[string]any{"content": []any{map[string]any{"type": "text", "text": string(rows64K)}}}
	b.SetBytes(int64(len(rows64K)))
	for b.Loop() {
		if _, err := Encode(v); err != nil {
			b.Fatal(err)
		}
	}
}
