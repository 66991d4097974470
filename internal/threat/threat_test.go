package threat

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestFindsEveryKindInEveryDisguise(t *testing.T) {
	d := newDetector(t)
	missing := map[string]bool{}
	for _, n := range kindNames {
		missing[n] = true
	}
	for _, s := range samples() {
		delete(missing, s.kind)
		for _, g := range disguises {
			text := g.f(s.text)
			found := d.Scan([]byte(text))
			i := slices.IndexFunc(found, func(f finding) bool { return f.Kind == s.kind })
			if i < 0 {
				t.Errorf("%s: %s not found in %.120q (found %v)", g.name, s.kind, text, found)
				continue
			}
			got := text[found[i].Start:found[i].End]
			if view := string(appendView(nil, []byte(got))); view != s.want {
				t.Errorf("%s: %s found as %q, want %q", g.name, s.kind, view, s.want)
			}
			label, _, _ := strings.Cut(s.kind, ".")
			if found[i].Label != label {
				t.Errorf("%s has label %q", s.kind, found[i].Label)
			}
			if l := d.Labels([]byte(text)); !slices.Contains(l, label) {
				t.Errorf("%s: Labels(%.80q) = %v", g.name, text, l)
			}
		}
	}
	for n := range missing {
		t.Errorf("no sample for %s", n)
	}
}

// clean texts look like sensitive data and are not.
var clean = []string{
	"", "{}", `{"ok":true}`,
	// identifiers
	"550e8400-e29b-41d4-a716-446655440000", "00000000-0000-4000-8000-000000000000", "41111111-1111-1111-1111-111111111111",
	"018f3f5e-7c1a-7cc3-8f6e-4a1b2c3d4e5f", "sess_018f3f5e7c1a7cc38f6e4a1b2c3d4e5f", "01ARZ3NDEKTSV4RRFFQ69G5FAV",
	`{"token":"550e8400-e29b-41d4-a716-446655440000"}`, "da39a3ee5e6b4b0d3255bfef95601890afd80709", "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
	"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
	"sha512-" + strings.Repeat("Ab3/", 21) + "==", `etag: W/"4532015112830366"-x`, "d41d8cd98f00b204e9800998ecf8427e",
	// numbers
	`{"created":1716740400,"updated":1716740400123,"nanos":1716740400123456789}`, "2024-05-26T17:00:00.123456789Z", "20240526170000", "2024-05-26 17:00:00",
	"0.4111111111111111", "4111111111111111.5", `{"id":4111111111111111}`, `{"order_id":"4111111111111111"}`, "Order 4111111111111111", `{"x":4111111111111111}`,
	"tracking number: 4111111111111111", "invoice 5555555555554444", "4111111111111112", "4111 1111 1111 1112", "4000-0000-0000-0000", "0000000000000000",
	"1234 5678 9012 3456", "49927398716", "978-3-16-148410-0", "9783161484100", "+49 170 1234567", "+1 (415) 555-2671", "415-555-2671", "+4911122233344", "tel:+14155552671",
	"IMG_4111111111111111.jpg", "4111111111111111px_", "#4111111111111111", "2020 2021 2022 2023", "1999 2000 2001", "10.0.0.1 192.168.100.200", "127.0.0.1:8080",
	"12 345 678 901", "86095742719", "52998224725", "111222333", "234123412346", "12345678Z", "X1234567L", "AB123456C", "255081416802538", "123-456-789",
	"000-12-3456", "666-12-3456", "900-12-3456", "123-00-4567", "123-45-0000", "1123-45-67890", "123-45-6789-1", "order 123-45-6789", "219 09 9999", "219099999",
	"529.982.247-26", "111.111.111-11", "2 55 08 14 168 025 39", "GB 12 34 56 A", "11010519491231002Y", "110105194912310021", "99010519491331002X",
	"RSSMRA85T10A562T", "testing 86095742719", "Daniel X1234567L",
	// IBANs that are none
	"DE89370400440532013001", "DE8937040044053201300", "XX89370400440532013000", "IBAN 0123456789", "BE1234567890ABCDEF",
	// credentials that are none
	"AKIAXXXXXXXXXXXXXXXX", "AKIA123", "xAKIAIOSFODNN7EXAMPLE", "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "ghp_short", "sk-", "task-0123456789abcdef0123456789abcdef",
	"sk-learn-contrib-imbalanced-ensemble-classifiers", "npm_config_registry_url_for_the_whole_team", "xoxb-your-token-here", "pk_live_" + key20,
	"-----BEGIN PRIVATE KEY----- is the first line of a PEM file, and then comes the key in base64", "-----BEGIN CERTIFICATE-----\n" + strings.Repeat("MIIB", 60),
	"-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----", "-----BEGIN PUBLIC KEY-----\n" + strings.Repeat("MIIB", 60),
	"eyJhbGciOiJIUzI1NiIs...", "eyJ.eyJ.eyJ", "Bearer token", "Authorization: Bearer <token>", "bearer eyJhbGciOiJSUzI1NiIs...", "bearer of-bad-news-and-worse-tidings-2",
	"basic authentication", "Basic understanding", "postgres://localhost:5432/db", "postgres://user@localhost/db", "postgres://user:password@localhost/db",
	"postgres://user:${DB_PASSWORD}@h/db", "https://user:***@example.com/", "https://example.com:8443/@scope/pkg", "https://example.com/a?b=c:d@e", "{{scheme://user[:password]@host}}",
	// names of credentials without one
	`{"password":""}`, `{"password":null}`, `{"type":"object","properties":{"password":{"type":"string","minLength":8}}}`, `"password":"string"`, "password: required",
	"Password:\n\n[Reset Password](https://techservices.com/auth/password-reset1)", "password: https://www.facebook.com/reset-password", "Reset your password now!",
	"password = getpass.getpass()", `password := os.Getenv("DB_PASSWORD_2")`, "password=$DB_PASSWORD1", "password: ${DB_PASSWORD1}", "password: <your password 1>", "password: ********",
	`{"password":"[redacted:secret.password sha256:0123456789ab]"}`, "password_hash=5f4dcc3b5aa765d61d8327deb882cf99", "password_updated: 2024-05-26", "the password is required1-time",
	`{"max_tokens":4096,"total_tokens":123456}`, `{"next_page_token":"` + key20 + `"}`, `{"nextPageToken":"` + key20 + `"}`, `"continuationToken":"` + key20 + `"`, "token_type: bearer",
	`"tokenizer":"cl100k_base_2024_0526"`, "api_key: YOUR_API_KEY_12345", "api_key=<API_KEY_123>", "api_key = settings.OPENAI_API_KEY_V2", "apiKey: process.env.API_KEY_2", "api key: contact sales",
	`secretName: my-app-secret-v1-2024`, `"secret":"arn:aws:secretsmanager:us-east-1:123456789012:secret:foo-AbCdEf"`, "PrivateKey: testP256PrivateKey,", "secret: 1234567890123",
	"secret_id=" + key20, "if token == " + key20 + " {", "const token = parseToken2(input)", "api_key = a1B2c3D4e5F6(ctx)", "api_key = k7J3h4G5f6D7[0]", "The secret is 2-step verification", "csrf token expired", "`1password`: 1Password SDK 2",
	"alice@example.com", "a@x.org b@x.org c@x.org d@x.org", "a@x.org a@x.org A@X.ORG a@x.org a@x.org a@x.org", "@user @other @third @fourth @fifth @sixth", "git@github.com:a/b.git",
	"Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua.",
	"func (s *Store) Put(ctx context.Context, key string, value []byte) error { return s.db.Exec(ctx, `insert into kv values ($1,$2)`, key, value) }",
	`C:\Users\new\token\backup\temp`, "正しいパスワード：必要です", "Пароль: обязательно",
}

func TestHardNegatives(t *testing.T) {
	d := newDetector(t)
	for _, text := range clean {
		for _, s := range []string{text, quoteJSON(text), `{"content":[{"type":"text","text":` + quoteJSON(text) + `}]}`} {
			for _, f := range d.Scan([]byte(s)) {
				t.Errorf("%s %q in %q", f.Kind, s[f.Start:f.End], s)
			}
			if l := d.Labels([]byte(s)); l != nil {
				t.Errorf("Labels(%q) = %v", s, l)
			}
		}
	}
}

// Random identifiers as results hold them. Only bare, quoted 16-digit numbers may fire at all: one in ten passes
// the check digit, and a fifth of those is in an issuer's range.
func TestRandomIdentifiers(t *testing.T) {
	d := newDetector(t)
	r := rand.New(rand.NewPCG(1, 2))
	const n = 20000
	fired := map[string]int{}
	for range n {
		b := make([]byte, 48)
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		for name, s := range map[string]string{
			"hex":          hex.EncodeToString(b[:20]),
			"HEX":          strings.ToUpper(hex.EncodeToString(b[:16])),
			"base64":       base64.StdEncoding.EncodeToString(b),
			"uuid":         fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16]),
			"snowflake":    fmt.Sprint(1e18 + r.Uint64N(8e17)),
			"uint32":       fmt.Sprint(r.Uint32()),
			"11 digits":    fmt.Sprint(1e10 + r.Uint64N(9e10)),
			"12 digits":    fmt.Sprint(1e11 + r.Uint64N(9e11)),
			"milliseconds": fmt.Sprint(1500000000000 + r.Uint64N(500000000000)),
			"microseconds": fmt.Sprint(1500000000000000 + r.Uint64N(500000000000000)),
			"float":        fmt.Sprint(r.Float64()),
			"16 digits":    fmt.Sprint(1e15 + r.Uint64N(9e15)),
		} {
			if d.Labels([]byte(`{"ref":"x","value":"`+s+`"}`)) != nil {
				fired[name]++
			}
		}
	}
	for name, k := range fired {
		switch {
		case name == "16 digits" && k < n*4/100:
		case name == "snowflake" && k <= 2: // a Chinese resident id is 18 digits
		default:
			t.Errorf("%s: %d of %d fire", name, k, n)
		}
	}
}

// A single wrong digit is what check digits are for.
func TestCheckDigitsCatchOneWrongDigit(t *testing.T) {
	for _, c := range []struct {
		name, ok string
		valid    func([]byte) bool
	}{
		{"luhn", "4111111111111111", luhn},
		{"luhn", "378282246310005", luhn},
		{"steuer-id", "86095742719", steuerID},
		{"cpf", "52998224725", cpf},
		{"bsn", "111222333", bsn},
		{"aadhaar", "234123412346", aadhaar},
		{"nir", "255081416802538", nir},
		{"resident id", "11010519491231002X", chineseID},
		{"iban", "DE89370400440532013000", func(b []byte) bool { return (&scan{v: b}).ibanAt(0) }},
		{"iban", "GB29NWBK60161331926819", func(b []byte) bool { return (&scan{v: b}).ibanAt(0) }},
	} {
		if !c.valid([]byte(c.ok)) {
			t.Errorf("%s: %s is refused", c.name, c.ok)
		}
		for i := range c.ok {
			for digit := byte('0'); digit <= '9'; digit++ {
				b := []byte(c.ok)
				if !isDigit(b[i]) || b[i] == digit {
					continue
				}
				b[i] = digit
				if c.valid(b) {
					t.Errorf("%s: %s passes for %s", c.name, b, c.ok)
				}
			}
		}
	}
}

func TestManySecretsAreAllRedacted(t *testing.T) {
	d := newDetector(t)
	if red := d.Redact([]byte(strings.Repeat("password=hunter2x\n", 1500))); strings.Contains(string(red), "hunter2x") {
		t.Error("Redact stopped before the end")
	}
}

func TestOverlappingSecretsAreOneFindingOfTheTellingKind(t *testing.T) {
	d := newDetector(t)
	token := "ghp_" + fake(alnum, 36, 1)
	text := `{"GITHUB_TOKEN":"` + token + `"}`
	found := d.Scan([]byte(text))
	if len(found) != 1 || found[0].Kind != "secret.github_token" || text[found[0].Start:found[0].End] != token {
		t.Fatalf("found %v", found)
	}
}

// An escape is never cut in two, whichever of its bytes in the view a finding ends at.
func TestOffsetsTakeWholeEscapes(t *testing.T) {
	b := []byte(`ab\\u00e9\n\u20ACz`) // the view: a b é(2) newline €(3) z
	view := appendView(nil, b)
	if string(view) != "abé\n€z" {
		t.Fatalf("view %q", view)
	}
	raw := []int{0, 1, 2, 2, 9, 11, 11, 11, 17, 18} // where the view's byte i begins
	for i := range view {
		for j := i + 1; j <= len(view); j++ {
			h := []hit{{start: i, end: j}}
			toRaw(b, h)
			end := raw[j]
			if j == 3 || j == 6 || j == 7 {
				end = map[int]int{3: 9, 6: 17, 7: 17}[j]
			}
			if h[0].start != raw[i] || h[0].end != end {
				t.Errorf("view [%d,%d) is raw [%d,%d), want [%d,%d)", i, j, h[0].start, h[0].end, raw[i], end)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	d := newDetector(t)
	var wg sync.WaitGroup
	for _, s := range samples() {
		wg.Go(func() {
			for _, g := range disguises {
				b := []byte(g.f(s.text))
				if len(d.Labels(b)) == 0 || len(d.Scan(b)) == 0 {
					t.Errorf("%s lost", s.kind)
				}
			}
		})
	}
	wg.Wait()
}

// Any sample anywhere in any clean text is found, and its label raised.
func TestPlantedSamplesAreFound(t *testing.T) {
	d := newDetector(t)
	all := samples()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(all).Draw(t, "sample")
		g := rapid.SampledFrom(disguises).Draw(t, "disguise")
		before := rapid.SampledFrom([]string{"", " ", "\n", "text. ", "{\"a\":1}\n", "日本 ", "\x00\xff ",
			"token=token=token=\n", "sk-ant-sk-ant-sk-ant-sk-ant-sk-ant-sk-ant- ", "4111 4111 4111,\n", "DE89 3704 DE89 3704\n", "passwordpasswordpassword\n", "eyJeyJ.eyJ.eyJ ",
			"a@b@c@ ", "://://:// ", "id: 1, order: 2\n" + strings.Repeat("-", 30) + "\n"}).Draw(t, "before")
		after := rapid.SampledFrom([]string{"", "\n", " and more", "\xff"}).Draw(t, "after")
		text := []byte(before + g.f(s.text) + after)
		if g.name == "plain" && after == "\xff" {
			return // an adjoining byte may be part of it
		}
		if !slices.ContainsFunc(d.Scan(text), func(f finding) bool { return f.Kind == s.kind }) {
			t.Fatalf("%s not found in %q", s.kind, text)
		}
	})
}

// What fires on the results of a public benchmark for agents, and nothing else does.
func TestAgentDojoResults(t *testing.T) {
	dir := "../../../shared/cases/agentdojo"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no shared cases here")
	}
	d := newDetector(t)
	want := map[string][]string{
		"workspace": {"pii.email_many"}, // lists of e-mails and invitations
		"travel":    {"pii.card"},       // the user's own card number
		"banking":   {"pii.iban"},       // the payees' accounts
		"slack":     {"secret.api_key"}, // "Secret key is 1a7b3d"
	}
	for suite, kinds := range want {
		b, err := os.ReadFile(filepath.Join(dir, suite+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var f struct {
			Results map[string]struct {
				JSON  json.RawMessage `json:"json"`
				Items []string        `json:"items"`
			} `json:"results"`
			Items map[string]json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(b, &f); err != nil {
			t.Fatal(err)
		}
		fired := 0
		for id, r := range f.Results {
			text := []byte(r.JSON)
			for _, i := range r.Items {
				text = append(append(text, f.Items[i]...), '\n')
			}
			found := d.Scan(text)
			if len(found) > 0 {
				fired++
			}
			for _, x := range found {
				if !slices.Contains(kinds, x.Kind) {
					t.Errorf("%s %s: %s %q", suite, id, x.Kind, text[x.Start:x.End])
				}
			}
		}
		t.Logf("%s: %d of %d results fire (%v)", suite, fired, len(f.Results), kinds)
		if fired == 0 {
			t.Errorf("%s: nothing fires", suite)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range samples() {
		f.Add([]byte(s.text))
	}
	for _, s := range clean {
		f.Add([]byte(s))
	}
	d := newDetector(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := string(b)
		found := d.Scan(b)
		if string(b) != before {
			t.Fatal("Scan wrote to its input")
		}
		labels := map[string]bool{}
		last := -1
		for _, x := range found {
			if x.Start < last || x.End <= x.Start || x.End > len(b) || !strings.HasPrefix(x.Kind, x.Label+".") {
				t.Fatalf("finding %+v", x)
			}
			last = x.Start
			labels[x.Label] = true
		}
		if l := d.Labels(b); len(l) != len(labels) || !slices.IsSorted(l) {
			t.Fatalf("Labels %v, findings %v", l, found)
		}
	})
}

// sinceAgrees holds that a text that comes in pieces raises the same labels whether each piece is looked at with all of what came before it or with as much as it takes.
func sinceAgrees(t *testing.T, d *Detector, b []byte, r *rand.Rand) (raised bool) {
	whole, enough := map[string]bool{}, map[string]bool{}
	for known := 0; known < len(b); {
		end := min(len(b), known+1+r.IntN(200))
		start := max(0, known-4<<10)
		for _, l := range d.Labels(b[start:end]) {
			whole[l] = true
		}
		for _, l := range d.LabelsSince(b[start:end], known-start) {
			enough[l] = true
		}
		if !maps.Equal(whole, enough) {
			t.Fatalf("up to %d: %v, with all %v: %q", end, enough, whole, b[start:end])
		}
		known = end
	}
	return len(whole) > 0
}

func FuzzLabelsSince(f *testing.F) {
	for i, s := range samples() {
		f.Add([]byte(s.text), uint64(i))
	}
	d := newDetector(f)
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) { sinceAgrees(t, d, b, rand.New(rand.NewPCG(seed, 1))) })
}

// Findings that reach further than the words around them, each alone in its text.
func TestLabelsSinceReachesFar(t *testing.T) {
	d, words := newDetector(t), strings.Repeat("some words ", 70)
	key := fake(alnumUD, 1500, 3)
	var mails strings.Builder
	for i := range manyMails {
		fmt.Fprintf(&mails, "%s someone%d@mail.example ", words, i)
	}
	for name, text := range map[string]string{
		"addresses":             mails.String(),
		"a quoted key":          `api_key: "` + key + `" `,
		"a key":                 "api_key=" + key + " ",
		"a word before escapes": `bsn` + strings.Repeat(`\u0020 `, 200) + `111222333 `,
		"a JWT":                 base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." + strings.ReplaceAll(key, "_", "a") + "." + fake(alnum, 43, 4) + " ",
	} {
		if len(d.Labels([]byte(text))) == 0 {
			t.Errorf("%s: nothing is found", name)
		}
		for seed := range uint64(50) {
			sinceAgrees(t, d, []byte(words+text+words), rand.New(rand.NewPCG(seed, 1)))
		}
	}
}

// The same of findings whose halves stand at any distance from each other, between words, lines and quotes.
func TestLabelsSinceAtAnyDistance(t *testing.T) {
	d, all, r := newDetector(t), samples(), rand.New(rand.NewPCG(1, 2))
	fill := []string{"some words ", "one line\n", "12 34 ", `he said "so" `, "it isn't ", "a@b.example ", "password: ", `secret = "`, "ssn ", "x", "\\u0041", "<token>"}
	raised := 0
	for range 3000 {
		var b []byte
		for range 1 + r.IntN(3) {
			text := all[r.IntN(len(all))].text
			cut := r.IntN(len(text) + 1)
			b = append(b, text[:cut]...)
			for left := r.IntN(1800); left > 0 && r.IntN(4) > 0; {
				word := fill[0]
				if r.IntN(3) == 0 {
					word = fill[r.IntN(len(fill))]
				}
				b = append(b, strings.Repeat(word, 1+r.IntN(30))...)
				left -= 100
			}
			b = append(b, text[cut:]...)
		}
		if sinceAgrees(t, d, b, r) {
			raised++
		}
	}
	if raised < 1000 {
		t.Errorf("%d of 3000 texts raise a label", raised)
	}
}
