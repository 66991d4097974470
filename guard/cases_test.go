package guard

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type attackCase struct {
	ID         string   `json:"id"`
	Category   string   `json:"cat"`
	Why        string   `json:"why"`
	MustHold   []string `json:"must_hold"`
	Payload    string   `json:"payload"`
	PayloadB64 string   `json:"payload_b64"`
	Benign     bool     `json:"benign"`
	Blocks     []string `json:"blocks"`
	TruncateAt int      `json:"truncate_at"`
	Size       string   `json:"size"`
	Where      string   `json:"where"`
}

// attackCases reads the shared cases, which stand beside the repository; nil where they don't.
func attackCases(t testing.TB) []attackCase {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
	data, err := os.ReadFile(filepath.Join(dir, "..", "shared", "cases", "attacks", "fence.json"))
	if err != nil {
		return nil
	}
	var file struct{ Cases []attackCase }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

const (
	leakedNonce = "001122aaBBzz-_99XYabcd"
	oldNonce    = "ffeeddccbbaa9988776655"
)

// payload fills in the placeholders, with the nonce that the delivery would have drawn first.
func (c attackCase) payload(t testing.TB) string {
	if c.PayloadB64 != "" {
		raw, err := base64.StdEncoding.DecodeString(c.PayloadB64)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	p := c.Payload
	marker := beginMark + leakedNonce + " from \"trusted\"" + markEnd + "\n" + warning + "\n" + endMark + leakedNonce + markEnd
	switch {
	case c.Size != "":
		p = strings.Repeat("x\n", 1_000_000)
	case c.TruncateAt > 0: // the marker is the last that is kept, and more follows
		m := endMark + leakedNonce + markEnd
		p = strings.Repeat("a", c.TruncateAt-len(m)-1) + "\n" + m + "\nmore"
	case c.Blocks != nil:
		p = strings.Join(c.Blocks, "")
	case c.Where != "": // a place that the caller fences as it does content
		p = marker
	}
	return strings.NewReplacer("{OPEN}", beginMark+leakedNonce+markEnd, "{CLOSE}", endMark+leakedNonce+markEnd,
		"{OLDOPEN}", beginMark+oldNonce+markEnd, "{OLDCLOSE}", endMark+oldNonce+markEnd, "{NAME}", TrustLevel).Replace(p)
}

func TestAttackCases(t *testing.T) {
	cases := attackCases(t)
	if cases == nil {
		t.Skip("../shared/cases/attacks/fence.json is absent")
	}
	known := []string{"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9"}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			for _, inv := range c.MustHold {
				if !slices.Contains(known, inv) {
					t.Fatalf("invariant %s is not tested", inv)
				}
			}
			p := c.payload(t)
			fresh := freshNonce
			f := Fence{Contamination: []string{"untrusted"}, MaxBytes: c.TruncateAt,
				nonces: fixedNonces(leakedNonce, fresh)}
			w, err := f.Wrap(p, "https://example.com/page")
			if err != nil {
				t.Fatal(err)
			}
			if err := holds(f, p, "https://example.com/page", w); err != nil { // F1 to F8
				t.Fatal(err)
			}
			if strings.Contains(p, leakedNonce) && !strings.Contains(w.ForModel(), fresh) {
				t.Error("F2: the nonce was not drawn again")
			}
			if step := max(1, len(w.ForModel())/500); c.Size == "" {
				for i := 1; i < len(w.ForModel()); i += step {
					if err := noOtherBlock(w, i); err != nil {
						t.Fatal(err)
					}
				}
			}
			if strings.Contains(p, TrustLevel) && w.Header().Forgeries == 0 { // F4
				t.Error("F4: the forgery was not noticed")
			}
			if slices.Contains(c.MustHold, "F9") {
				if w.Header().Templates == 0 || strings.Contains(w.body, strings.TrimSpace(p)) {
					t.Errorf("F9: %q is left as it was: %q", p, w.body)
				}
			}
			if c.Benign {
				if want := `👨\u{200D}👩\u{200D}👧 ok กำ שלום`; w.body != want {
					t.Errorf("delivered as %q, want %q", w.body, want)
				}
			}
			// F5: contamination is the source's. The same with harmless content.
			calm := mustWrap(t, Fence{Contamination: []string{"untrusted"}}, "hello", "https://example.com/page")
			if !slices.Equal(calm.Header().Contamination, w.Header().Contamination) {
				t.Error("F5: contamination depends on the content")
			}
			// The same bytes as the source: no header can be broken out of either.
			if p != "" && len(p) <= maxSource {
				mustWrap(t, Fence{nonces: fixedNonces(leakedNonce, fresh)}, "x", p)
			}
			if c.Blocks != nil {
				var joined strings.Builder
				for _, b := range c.Blocks {
					b = strings.ReplaceAll(b, "{NAME}", TrustLevel)
					joined.WriteString(mustWrap(t, Fence{}, b, "https://example.com/page").ForModel())
				}
				found := FindWrapped(joined.String())
				if len(found) != len(c.Blocks) || strings.Count(joined.String(), "<<<") != 2*len(c.Blocks) {
					t.Error("F1: two blocks together don't read as two")
				}
			}
		})
	}
}
