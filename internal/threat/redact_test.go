package threat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	d := newDetector(t)
	tag := func(kind, secret string) string {
		sum := sha256.Sum256([]byte(secret))
		return "[redacted:" + kind + " sha256:" + hex.EncodeToString(sum[:])[:12] + "]"
	}
	token := "ghp_" + fake(alnum, 36, 1)
	for _, c := range []struct{ in, want string }{
		{`{"a":"` + token + `"}`, `{"a":"` + tag("secret.github_token", token) + `"}`},
		{`{"a":"\u0067` + token[1:] + `"}`, `{"a":"` + tag("secret.github_token", token) + `"}`},
		{`{"` + token + `":1}`, `{"` + tag("secret.github_token", token) + `":1}`},
		{"x " + token + " y", "x " + tag("secret.github_token", token) + " y"},
		{`{"password":"hunter2!","b":[1,2]}`, `{"password":"` + tag("secret.password", "hunter2!") + `","b":[1,2]}`},
		{`{"password":12345e67}`, `{"password":"` + tag("secret.password", "12345e67") + `"}`},
		{`"{\"password\":\"hunter2!\"}"`, `"{\"password\":\"` + tag("secret.password", "hunter2!") + `\"}"`},
		{`"postgres:\/\/u:s3cr3t@h\/d"`, `"postgres:\/\/u:` + tag("secret.database_url", "s3cr3t") + `@h\/d"`},
		{`{"card":"4111 1111 1111 1111"}`, `{"card":"4111 1111 1111 1111"}`},
	} {
		if got := string(d.Redact([]byte(c.in))); got != c.want {
			t.Errorf("Redact(%s)\n got %s\nwant %s", c.in, got, c.want)
		}
	}
}

func TestRedactLeavesNoSampleSecret(t *testing.T) {
	d := newDetector(t)
	for _, s := range samples() {
		for _, g := range disguises {
			checkRedact(t, d, []byte(g.f(s.text)))
			if strings.HasPrefix(s.kind, "secret.") {
				out := appendView(nil, d.Redact([]byte(g.f(s.text))))
				if strings.Contains(string(out), s.want) {
					t.Errorf("%s: %s is left in %.200q", g.name, s.kind, out)
				}
			}
		}
	}
}

// Masked, the same secret has the same placeholder in every text, and another with another key; none is left, however it is disguised.
func TestMask(t *testing.T) {
	d := newDetector(t)
	token := "ghp_" + fake(alnum, 36, 1)
	one, first := d.Mask([]byte("k1"), []byte(`{"a":"`+token+`","b":["`+token+`",{"password":"hunter2!"}]}`))
	two, second := d.Mask([]byte("k1"), []byte("x "+token))
	_, third := d.Mask([]byte("k2"), []byte("x "+token))
	if len(first) != 2 || len(second) != 1 || len(third) != 1 || first[0] != second[0] || second[0] == third[0] || !strings.HasPrefix(first[0], "[masked:secret.github_token hmac:") {
		t.Fatalf("%q %q %q", first, second, third)
	}
	if string(two) != "x "+second[0] || string(one) != `{"a":"`+first[0]+`","b":["`+first[0]+`",{"password":"`+first[1]+`"}]}` {
		t.Errorf("%s\n%s", one, two)
	}
	if sum := sha256.Sum256([]byte(token)); strings.Contains(first[0], hex.EncodeToString(sum[:])[:12]) {
		t.Error("the placeholder has a hash that anybody can make")
	}
	clean := cleanJSON(4 << 10)
	if got, placeholders := d.Mask(nil, clean); &got[0] != &clean[0] || placeholders != nil {
		t.Error("Mask changed a clean text")
	}
	for _, s := range samples() {
		for _, g := range disguises {
			b := []byte(g.f(s.text))
			out, _ := d.Mask([]byte("k1"), b)
			if strings.HasPrefix(s.kind, "secret.") && strings.Contains(string(appendView(nil, out)), s.want) || json.Valid(b) != json.Valid(out) {
				t.Errorf("%s: %s is left, or it is no JSON any more: %.200q", g.name, s.kind, out)
			}
		}
	}
}

func TestRedactReturnsACleanTextItself(t *testing.T) {
	d := newDetector(t)
	b := cleanJSON(4 << 10)
	if got := d.Redact(b); &got[0] != &b[0] || len(got) != len(b) {
		t.Error("Redact copied a clean text")
	}
}

func checkRedact(t *testing.T, d *Detector, b []byte) {
	t.Helper()
	before := string(b)
	out := d.Redact(b)
	if string(b) != before {
		t.Fatalf("Redact wrote to its input %q", before)
	}
	if json.Valid(b) && !json.Valid(out) {
		t.Fatalf("Redact(%q) = %q is no longer JSON", b, out)
	}
	for _, f := range d.Scan(out) {
		if f.Label == LabelSecret {
			t.Fatalf("Redact(%q) = %q still holds %s", b, out, f.Kind)
		}
	}
}

func FuzzRedact(f *testing.F) {
	for _, s := range samples() {
		for _, g := range disguises {
			f.Add([]byte(g.f(s.text)))
		}
	}
	f.Add([]byte(`{"password":12345e678}`))
	f.Add([]byte(`["-----BEGIN PRIVATE KEY-----","` + strings.Repeat("Ab1", 20) + `"]`))
	d := newDetector(f)
	f.Fuzz(func(t *testing.T, b []byte) { checkRedact(t, d, b) })
}
