package audit

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// compactly are values that are compact, as most in an entry are.
var compactly = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `12.5e-3`, `1E+9`, `true`, `false`, `null`, `{"a":[1,{"b":"c\"\\\/\b\f\n\r\té"}],"d":null}`, `[[],[[]],{"":{}}]`,
	`{"source":"bench.echo","content_hash":"9f86d081","retrieved_at":"2026-01-02T03:04:05Z","trust":0.5}`,
}

// What is taken for compact is what encoding/json makes of it; and what is compact is mostly taken for it.
func TestIsCompact(t *testing.T) {
	for _, s := range append(compactly, strings.Repeat("[", maxCompactDepth)+strings.Repeat("]", maxCompactDepth)) {
		if !isCompact([]byte(s)) {
			t.Errorf("%s is not taken for compact", s)
		}
	}
	for _, s := range []string{
		"", " ", "{", `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `[1,]`, `[1 ,2]`, `[1]x`, `"a`, "\"\n\"", `"\x"`, `"\u12G4"`, `"\u12`, `01`, `1.`, `.5`, `-`, `+1`, `1e`, `1e+`, `tru`, `nul`, `NaN`,
		`{"a": 1}`, ` 1`, `1 `, "\"\xff\"", "\"\xc3\"", `{1:2}`, `[}`, `{]`, `[:`, strings.Repeat("[", maxCompactDepth+1) + strings.Repeat("]", maxCompactDepth+1),
	} {
		if isCompact([]byte(s)) {
			t.Errorf("%q is taken for compact", s)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	const bytesOf = `{}[]:,"\/ue0123aE+-. tfnrlsé`
	for range 200_000 {
		b := []byte(compactly[r.IntN(len(compactly))])
		for range 1 + r.IntN(2) {
			at, c := r.IntN(len(b)+1), bytesOf[r.IntN(len(bytesOf))]
			switch r.IntN(3) {
			case 0:
				b = append(b[:at:at], append([]byte{c}, b[at:]...)...)
			case 1:
				b = append(b[:at:at], b[min(at+1, len(b)):]...)
			case 2:
				if at < len(b) {
					b[at] = c
				}
			}
		}
		sameAsCompact(t, b)
	}
}

func FuzzIsCompact(f *testing.F) {
	for _, s := range compactly {
		f.Add([]byte(s))
	}
	f.Fuzz(sameAsCompact)
}

func sameAsCompact(t *testing.T, b []byte) {
	var compact bytes.Buffer
	err := json.Compact(&compact, b)
	if same := err == nil && bytes.Equal(compact.Bytes(), b) && utf8.Valid(b); isCompact(b) && !same {
		t.Fatalf("%q is taken for compact: %q, %v", b, compact.Bytes(), err)
	} else if same && !isCompact(b) && bytes.Count(b, []byte("[")) < maxCompactDepth && bytes.Count(b, []byte("{")) < maxCompactDepth/2 {
		t.Fatalf("%q is compact, and not taken for it", b)
	}
}
