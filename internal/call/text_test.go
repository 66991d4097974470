package call

import (
	"encoding/json"
	"testing"
)

// FuzzText holds what a checked string is decoded as against encoding/json.
func FuzzText(f *testing.F) {
	for _, s := range []string{`""`, `"a"`, `"a\nb\t\"\\\/\b\f\r"`, `"\u00e9\ud83d\ude00x\u0000"`, `"é\u2028"`, `"\\u0041"`, `"x\\"`} {
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
