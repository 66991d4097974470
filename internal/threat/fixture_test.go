package threat

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Every credential here is made up at run time, so that the source of the tests holds none.

func newDetector(t testing.TB) *Detector {
	t.Helper()
	d, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// fake returns n bytes of set, in mixed kinds where the set has them; the same for the same arguments.
func fake(set *charset, n int, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	var all []byte
	for c := range 256 {
		if set[c] && alnum[byte(c)] {
			all = append(all, byte(c))
		}
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = all[r.IntN(len(all))]
	}
	copy(b, "a1B2c3D4"[:min(n, 8)])
	for i, c := range b {
		if !set[c] {
			b[i] = all[i%len(all)]
		}
	}
	return string(b)
}

const key20 = "k7J3h4G5f6D7s8A9w0E1"

func fakePEM(label string) string {
	var b strings.Builder
	b.WriteString("-----BEGIN " + label + "-----\n")
	for i := range 6 {
		b.WriteString(fake(alnum, 64, uint64(i)) + "\n")
	}
	b.WriteString("-----END " + label + "-----")
	return b.String()
}

func fakeJWT() string {
	e := base64.RawURLEncoding.EncodeToString
	return e([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + e([]byte(`{"sub":"1234567890","name":"J"}`)) + "." + fake(alnum, 43, 7)
}

type sample struct {
	kind string
	text string
	want string // the finding's bytes in the text
}

func samples() []sample {
	pem, jwt, aws40 := fakePEM("RSA PRIVATE KEY"), fakeJWT(), fake(alnum, 38, 3)+"/+"
	azure := fake(alnum, 86, 4) + "=="
	basic := base64.StdEncoding.EncodeToString([]byte("aladdin:open sesame 7"))
	telegram := "123456789:AA" + fake(alnum, 33, 5)
	entra := "aB3" + "8Q~" + fake(alnum, 34, 6)
	out := []sample{
		{"secret.private_key", pem, pem},
		{"secret.private_key", fakePEM("OPENSSH PRIVATE KEY"), fakePEM("OPENSSH PRIVATE KEY")},
		{"secret.private_key", fakePEM("PGP PRIVATE KEY BLOCK") + " and text", fakePEM("PGP PRIVATE KEY BLOCK")},
		{"secret.private_key", "cut: " + pem[:200] + "…", pem[:200]},
		{"secret.gcp_service_account", `type: service_account key: ` + fakePEM("PRIVATE KEY"), fakePEM("PRIVATE KEY")},
		{"secret.aws_secret_key", "aws_secret_access_key = " + aws40, aws40},
		{"secret.aws_secret_key", "SecretAccessKey: " + aws40 + "\n", aws40},
		{"secret.azure_key", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + azure + ";EndpointSuffix=core.windows.net", azure},
		{"secret.jwt", "token " + jwt, jwt},
		{"secret.basic_auth", "Authorization: Basic " + basic, basic},
		{"secret.bearer_token", "Authorization: Bearer " + key20, key20},
		{"secret.vendor_token", telegram, telegram},
		{"secret.vendor_token", "https://api.telegram.org/bot" + telegram + "/getMe", telegram},
		{"secret.vendor_token", entra, entra},
		{"secret.database_url", "postgres://app:s3cr3tPw@db:5432/x", "s3cr3tPw"},
		{"secret.database_url", "postgresql+psycopg://app:s3cr3tPw@db/x", "s3cr3tPw"},
		{"secret.database_url", "mongodb+srv://app:s3cr3tPw@c0.example.net", "s3cr3tPw"},
		{"secret.url_password", "https://user:gh0stwriter@example.com/x.git", "gh0stwriter"},
		{"secret.password", "password: hunter2", "hunter2"},
		{"secret.password", `password="Tr0ub4dor&3"`, "Tr0ub4dor&3"},
		{"secret.password", "db_password=pa55phrase9", "pa55phrase9"},
		{"secret.password", "DB_PASSWD => 'pa55phrase9'", "pa55phrase9"},
		{"secret.password", "<password>pa55phrase9</password>", "pa55phrase9"},
		{"secret.password", "mysql --password pa55phrase9 -h x", "pa55phrase9"},
		{"secret.password", "your password is Xy77kk2.", "Xy77kk2"},
		{"secret.api_key", "api_key=" + key20, key20},
		{"secret.api_key", `apiKey: "` + key20 + `"`, key20},
		{"secret.api_key", "X-Api-Key: " + key20, key20},
		{"secret.api_key", "client_secret=" + key20 + "&x=1", key20},
		{"secret.api_key", "?access_token=" + key20 + "&x=1", key20},
		{"secret.api_key", "Secret key is 1a7b3d.", "1a7b3d"},

		// Test numbers that networks, registries and ministries publish, and such as follow their rules.
		{"pii.card", "4111 1111 1111 1111", "4111 1111 1111 1111"},
		{"pii.card", "4111111111111111", "4111111111111111"},
		{"pii.card", "5555-5555-5555-4444 12/27", "5555-5555-5555-4444"},
		{"pii.card", "3782 822463 10005", "3782 822463 10005"},
		{"pii.card", "378282246310005", "378282246310005"},
		{"pii.card", "6011111111111117", "6011111111111117"},
		{"pii.card", "3530111333300000", "3530111333300000"},
		{"pii.card", "2223003122003222", "2223003122003222"},
		{"pii.card", "card 30569309025904", "30569309025904"},
		{"pii.card", "Visa 4222222222222", "4222222222222"},
		{"pii.card", "card 4111 1111 1111 1111 12/26 123", "4111 1111 1111 1111"},
		{"pii.iban", "DE89370400440532013000", "DE89370400440532013000"},
		{"pii.iban", "DE89 3704 0044 0532 0130 00", "DE89 3704 0044 0532 0130 00"},
		{"pii.iban", "IBAN GB29 NWBK 6016 1331 9268 19.", "GB29 NWBK 6016 1331 9268 19"},
		{"pii.iban", "FR1420041010050500013M02606", "FR1420041010050500013M02606"},
		{"pii.iban", "NO9386011117947", "NO9386011117947"},
		{"pii.iban", "MT84MALT011000012345MTLCAST001S", "MT84MALT011000012345MTLCAST001S"},
		{"pii.national_id.us", "219-09-9999", "219-09-9999"},
		{"pii.national_id.us", "ssn 219099999", "219099999"},
		{"pii.national_id.us", "SSN: 219 09 9999", "219 09 9999"},
		{"pii.national_id.de", "Steuer-ID 86095742719", "86095742719"},
		{"pii.national_id.de", "Steuer-ID: 86 095 742 719", "86 095 742 719"},
		{"pii.national_id.gb", "NINO AB123456C", "AB123456C"},
		{"pii.national_id.gb", "AB 12 34 56 C", "AB 12 34 56 C"},
		{"pii.national_id.fr", "2 55 08 14 168 025 38", "2 55 08 14 168 025 38"},
		{"pii.national_id.fr", "NIR 255081416802538", "255081416802538"},
		{"pii.national_id.es", "DNI 12345678Z", "12345678Z"},
		{"pii.national_id.es", "NIE: X1234567L", "X1234567L"},
		{"pii.national_id.it", "RSSMRA85T10A562S", "RSSMRA85T10A562S"},
		{"pii.national_id.nl", "BSN 111222333", "111222333"},
		{"pii.national_id.cn", "11010519491231002X", "11010519491231002X"},
		{"pii.national_id.br", "529.982.247-25", "529.982.247-25"},
		{"pii.national_id.br", "CPF 52998224725", "52998224725"},
		{"pii.national_id.in", "Aadhaar 2341 2341 2346", "2341 2341 2346"},
		{"pii.email_many", "a@x.org, b@x.org, a@x.org, c@x.org, d@x.org, e@x.org, f@x.org", "a@x.org, b@x.org, a@x.org, c@x.org, d@x.org, e@x.org"},
	}
	for i := range tokenRules {
		r := &tokenRules[i]
		if r.kind == kBasicAuth || r.kind == kAzureStorage {
			continue // above: random bytes won't do
		}
		for k, prefix := range r.prefixes {
			body := fake(r.set, (r.min+min(r.max, r.min+8))/2, uint64(100*i+k)+100)
			if prefix == "SG." {
				body = body[:22] + "." + body[23:]
			}
			want := prefix + body
			if r.valueOnly {
				want = body
			}
			out = append(out, sample{r.kind.name(), prefix + body, want})
		}
	}
	return out
}

// disguises write the same text in other ways that JSON allows.
var disguises = []struct {
	name string
	f    func(string) string
}{
	{"plain", func(s string) string { return s }},
	{"in prose", func(s string) string { return "See:\n" + s + "\nbye" }},
	{"json", func(s string) string { return quoteJSON("x\n" + s + "\ny") }},
	{"json, slashes", func(s string) string { return strings.ReplaceAll(quoteJSON("x\t"+s+"\ty"), "/", `\/`) }},
	{"json in json", func(s string) string { return quoteJSON(`{"text":` + quoteJSON("x\r\n"+s) + `}`) }},
	{"every byte as \\u", func(s string) string { return `{"a":["` + escapeAll(s, "%04x") + `"]}` }},
	{"every byte as \\u, in json", func(s string) string { return quoteJSON(`{"a":["` + escapeAll(s, "%04X") + `"]}`) }},
	{"first byte as \\u", func(s string) string { return `["` + escapeAll(s[:1], "%04x") + inner(s[1:]) + `"]` }},
}

func quoteJSON(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	if err := e.Encode(s); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

func inner(s string) string {
	q := quoteJSON(s)
	return q[1 : len(q)-1]
}

func escapeAll(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\u`+format, s[i])
	}
	return b.String()
}
