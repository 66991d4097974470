package threat

import (
	"bytes"
	"encoding/base64"
	"math"
)

// kind numbers the rules, the most telling first: where secrets overlap, the
// smallest kind names the finding.
type kind uint8

const (
	kPrivateKey kind = iota
	kGCPServiceAccount
	kAWSAccessKey
	kAWSSecretKey
	kGCPAPIKey
	kGCPOAuth
	kGitHub
	kGitLab
	kSlack
	kSlackWebhook
	kStripe
	kOpenAI
	kAnthropic
	kNPM
	kPyPI
	kAzureStorage
	kAzureSAS
	kSallyport
	kVendor
	kWebhook
	kJWT
	kDatabaseURL
	kURLPassword
	kBasicAuth
	kBearer
	kPassword
	kAPIKey // the last secret
	kCard
	kIBAN
	kEmailMany
	kNationalUS
	kNationalDE
	kNationalGB
	kNationalFR
	kNationalES
	kNationalIT
	kNationalNL
	kNationalCN
	kNationalBR
	kNationalIN
	kinds
)

var kindNames = [kinds]string{
	kPrivateKey:        "secret.private_key",
	kGCPServiceAccount: "secret.gcp_service_account",
	kAWSAccessKey:      "secret.aws_access_key",
	kAWSSecretKey:      "secret.aws_secret_key",
	kGCPAPIKey:         "secret.gcp_api_key",
	kGCPOAuth:          "secret.gcp_oauth",
	kGitHub:            "secret.github_token",
	kGitLab:            "secret.gitlab_token",
	kSlack:             "secret.slack_token",
	kSlackWebhook:      "secret.slack_webhook",
	kStripe:            "secret.stripe_key",
	kOpenAI:            "secret.openai_key",
	kAnthropic:         "secret.anthropic_key",
	kNPM:               "secret.npm_token",
	kPyPI:              "secret.pypi_token",
	kAzureStorage:      "secret.azure_key",
	kAzureSAS:          "secret.azure_sas",
	kSallyport:         "secret.sallyport_token",
	kVendor:            "secret.vendor_token",
	kWebhook:           "secret.webhook_url",
	kJWT:               "secret.jwt",
	kDatabaseURL:       "secret.database_url",
	kURLPassword:       "secret.url_password",
	kBasicAuth:         "secret.basic_auth",
	kBearer:            "secret.bearer_token",
	kPassword:          "secret.password",
	kAPIKey:            "secret.api_key",
	kCard:              "pii.card",
	kIBAN:              "pii.iban",
	kEmailMany:         "pii.email_many",
	kNationalUS:        "pii.national_id.us",
	kNationalDE:        "pii.national_id.de",
	kNationalGB:        "pii.national_id.gb",
	kNationalFR:        "pii.national_id.fr",
	kNationalES:        "pii.national_id.es",
	kNationalIT:        "pii.national_id.it",
	kNationalNL:        "pii.national_id.nl",
	kNationalCN:        "pii.national_id.cn",
	kNationalBR:        "pii.national_id.br",
	kNationalIN:        "pii.national_id.in",
}

func (k kind) name() string { return kindNames[k] }
func (k kind) secret() bool { return k <= kAPIKey }
func (k kind) label() string {
	if k.secret() {
		return LabelSecret
	}
	return LabelPII
}

// keyword is a text that the automaton looks for, with the function to call where it ends. confirm sees
// the folded match s.v[end-len(text):end]; it may read s.v within a fixed distance, or
// beyond when it remembers how far it read.
type keyword struct {
	text    string
	confirm func(s *scan, w *keyword, end int)
	token   *tokenRule // for confirmToken
	prefix  string     // for confirmToken: text as the rule writes it
	ctx     ctxClass   // for confirmContext
}

// tokenRule is a credential that announces itself by a prefix, one of several.
type tokenRule struct {
	kind     kind
	prefixes []string
	set      *charset
	min, max int // bytes after the prefix; a longer run is something else
	// ok is asked last, about the bytes after the prefix; nil means random.
	ok func(body []byte) bool
	// valueOnly leaves the prefix out of the finding, and lets it follow anything.
	valueOnly bool
	// anyCase accepts the prefix in any letter case.
	anyCase bool
}

type charset [256]bool

func chars(s string) *charset {
	var c charset
	for i := 0; i < len(s); i++ {
		if i+2 < len(s) && s[i+1] == '-' { // a range, as in "a-z"; '-' itself stands last
			for x := int(s[i]); x <= int(s[i+2]); x++ {
				c[x] = true
			}
			i += 2
			continue
		}
		c[s[i]] = true
	}
	return &c
}

var (
	alnum    = chars("a-zA-Z0-9")
	alnumU   = chars("a-zA-Z0-9_")
	alnumUD  = chars("a-zA-Z0-9_-")
	alnumD   = chars("a-zA-Z0-9-")
	upperNum = chars("A-Z0-9")
	lowerHex = chars("a-f0-9")
	anyHex   = chars("a-fA-F0-9")
	base64S  = chars("a-zA-Z0-9+/=")
	base64E  = chars("a-zA-Z0-9+/=%")
	urlPath  = chars("a-zA-Z0-9/_@-")
	dotted   = chars("a-zA-Z0-9._-")
	token68  = chars("a-zA-Z0-9._~+/=-")
	identSet = chars("a-zA-Z0-9_.-")
	mailSet  = chars("a-zA-Z0-9._%+-")
)

// tokenRules lists the credential formats. Each comment names the vendor's public documentation of the format.
var tokenRules = []tokenRule{
	// AWS IAM user guide, "IAM identifiers", unique id prefixes; access key ids are 20 characters.
	{kind: kAWSAccessKey, prefixes: []string{"AKIA", "ASIA", "ABIA", "ACCA"}, set: upperNum, min: 16, max: 16, ok: varied},
	// Google Cloud docs, "Manage API keys" (39 characters); Google Identity, access tokens and client secrets.
	{kind: kGCPAPIKey, prefixes: []string{"AIza"}, set: alnumUD, min: 35, max: 35},
	{kind: kGCPOAuth, prefixes: []string{"ya29."}, set: dotted, min: 20, max: 2048},
	{kind: kGCPOAuth, prefixes: []string{"GOCSPX-"}, set: alnumUD, min: 28, max: 28},
	// GitHub docs, "About authentication to GitHub", token formats.
	{kind: kGitHub, prefixes: []string{"ghp_", "gho_", "ghu_", "ghr_"}, set: alnum, min: 36, max: 255},
	{kind: kGitHub, prefixes: []string{"ghs_"}, set: dotted, min: 36, max: 1024},
	{kind: kGitHub, prefixes: []string{"github_pat_"}, set: alnumU, min: 60, max: 255},
	// GitLab docs, "Token overview", token prefixes.
	{kind: kGitLab, prefixes: []string{"glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "gloas-", "glffct-", "glimt-", "glagent-"}, set: dotted, min: 20, max: 300},
	{kind: kGitLab, prefixes: []string{"GR1348941"}, set: alnumUD, min: 20, max: 20},
	// Slack docs, "Tokens" and "Sending messages using incoming webhooks".
	{kind: kSlack, prefixes: []string{"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxo-", "xoxe-", "xapp-"}, set: alnumD, min: 10, max: 300, ok: withDigits},
	{kind: kSlackWebhook, prefixes: []string{"hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/"}, set: urlPath, min: 30, max: 120, ok: withDigits, valueOnly: true},
	// Stripe docs, "API keys" and webhook signing secrets. pk_ keys are public by design.
	{kind: kStripe, prefixes: []string{"sk_live_", "sk_test_", "rk_live_", "rk_test_", "sk_prod_", "rk_prod_"}, set: alnum, min: 16, max: 247},
	{kind: kStripe, prefixes: []string{"whsec_"}, set: base64S, min: 24, max: 100},
	// OpenAI and Anthropic consoles' key formats; sk- alone is the older OpenAI form, which others use too.
	{kind: kAnthropic, prefixes: []string{"sk-ant-"}, set: alnumUD, min: 24, max: 250},
	{kind: kOpenAI, prefixes: []string{"sk-proj-", "sk-svcacct-", "sk-admin-"}, set: alnumUD, min: 20, max: 250},
	{kind: kOpenAI, prefixes: []string{"sk-"}, set: alnum, min: 32, max: 64},
	{kind: kVendor, prefixes: []string{"sk-or-v1-"}, set: lowerHex, min: 64, max: 64}, // OpenRouter
	// npm docs, "About access tokens"; PyPI help, "How can I use API tokens" (a macaroon that begins AgE).
	{kind: kNPM, prefixes: []string{"npm_"}, set: alnum, min: 36, max: 36},
	{kind: kPyPI, prefixes: []string{"pypi-AgE"}, set: alnumUD, min: 50, max: 1000},
	// Microsoft Learn, "Configure Azure Storage connection strings", "Service Bus SAS", "Create a service SAS".
	{kind: kAzureStorage, prefixes: []string{"AccountKey="}, set: base64S, min: 86, max: 88, valueOnly: true, anyCase: true},
	{kind: kAzureStorage, prefixes: []string{"SharedAccessKey="}, set: base64S, min: 43, max: 88, valueOnly: true, anyCase: true},
	{kind: kAzureSAS, prefixes: []string{"?sig=", "&sig="}, set: base64E, min: 43, max: 80, valueOnly: true},
	// This gateway's own credentials.
	{kind: kSallyport, prefixes: []string{"spt_"}, set: alnumUD, min: 16, max: 300},
	// RFC 6750.
	{kind: kBearer, prefixes: []string{"bearer "}, set: token68, min: 20, max: 4096, ok: opaque, valueOnly: true, anyCase: true},
	// RFC 7617: base64 of user:password.
	{kind: kBasicAuth, prefixes: []string{"basic "}, set: base64S, min: 8, max: 400, ok: userPassword, valueOnly: true, anyCase: true},
	// Other vendors whose documentation gives the token a prefix of its own.
	{kind: kVendor, prefixes: []string{"SG."}, set: dotted, min: 66, max: 66, ok: sendGrid},                          // Twilio SendGrid
	{kind: kVendor, prefixes: []string{"hf_"}, set: alnum, min: 34, max: 40},                                         // Hugging Face
	{kind: kVendor, prefixes: []string{"dop_v1_", "doo_v1_", "dor_v1_"}, set: lowerHex, min: 64, max: 64},            // DigitalOcean
	{kind: kVendor, prefixes: []string{"shpat_", "shpca_", "shppa_", "shpss_"}, set: anyHex, min: 32, max: 32},       // Shopify
	{kind: kVendor, prefixes: []string{"hvs."}, set: alnumUD, min: 24, max: 300},                                     // HashiCorp Vault
	{kind: kVendor, prefixes: []string{"hvb."}, set: alnumUD, min: 24, max: 400},                                     // HashiCorp Vault
	{kind: kVendor, prefixes: []string{"dp.pt."}, set: alnum, min: 40, max: 44},                                      // Doppler
	{kind: kVendor, prefixes: []string{"dapi"}, set: lowerHex, min: 32, max: 32},                                     // Databricks
	{kind: kVendor, prefixes: []string{"lin_api_"}, set: alnum, min: 32, max: 48},                                    // Linear
	{kind: kVendor, prefixes: []string{"ntn_"}, set: alnum, min: 40, max: 60},                                        // Notion
	{kind: kVendor, prefixes: []string{"PMAK-"}, set: alnumD, min: 50, max: 64},                                      // Postman
	{kind: kVendor, prefixes: []string{"glsa_"}, set: alnumU, min: 32, max: 60},                                      // Grafana
	{kind: kVendor, prefixes: []string{"glc_"}, set: base64S, min: 32, max: 400},                                     // Grafana Cloud
	{kind: kVendor, prefixes: []string{"ATATT3"}, set: chars("a-zA-Z0-9_=-"), min: 100, max: 250},                    // Atlassian
	{kind: kVendor, prefixes: []string{"ATCTT3"}, set: chars("a-zA-Z0-9_=-"), min: 100, max: 250},                    // Bitbucket
	{kind: kVendor, prefixes: []string{"gsk_"}, set: alnum, min: 40, max: 64},                                        // Groq
	{kind: kVendor, prefixes: []string{"xai-"}, set: alnum, min: 60, max: 100},                                       // xAI
	{kind: kVendor, prefixes: []string{"pplx-"}, set: alnum, min: 40, max: 64},                                       // Perplexity
	{kind: kVendor, prefixes: []string{"r8_"}, set: alnum, min: 37, max: 40},                                         // Replicate
	{kind: kVendor, prefixes: []string{"tskey-"}, set: alnumD, min: 20, max: 100},                                    // Tailscale
	{kind: kVendor, prefixes: []string{"dckr_pat_"}, set: alnumUD, min: 20, max: 64},                                 // Docker
	{kind: kVendor, prefixes: []string{"NRAK-"}, set: upperNum, min: 27, max: 27},                                    // New Relic
	{kind: kVendor, prefixes: []string{"sntrys_"}, set: chars("a-zA-Z0-9+/=_"), min: 40, max: 400},                   // Sentry
	{kind: kVendor, prefixes: []string{"sntryu_"}, set: lowerHex, min: 64, max: 64},                                  // Sentry
	{kind: kVendor, prefixes: []string{"rubygems_"}, set: lowerHex, min: 48, max: 48},                                // RubyGems
	{kind: kVendor, prefixes: []string{"sq0csp-"}, set: alnumUD, min: 43, max: 43},                                   // Square
	{kind: kVendor, prefixes: []string{"sq0atp-"}, set: alnumUD, min: 22, max: 22},                                   // Square
	{kind: kVendor, prefixes: []string{"sbp_"}, set: lowerHex, min: 40, max: 40},                                     // Supabase
	{kind: kVendor, prefixes: []string{"pscale_tkn_", "pscale_pw_", "pscale_oauth_"}, set: dotted, min: 32, max: 64}, // PlanetScale
	{kind: kVendor, prefixes: []string{"pul-"}, set: lowerHex, min: 40, max: 40},                                     // Pulumi
	{kind: kVendor, prefixes: []string{"AGE-SECRET-KEY-1"}, set: upperNum, min: 58, max: 58},                         // age
	{kind: kVendor, prefixes: []string{"cio"}, set: alnum, min: 32, max: 32, ok: crate},                              // crates.io
	{kind: kVendor, prefixes: []string{"figd_"}, set: alnumUD, min: 40, max: 50},                                     // Figma
	{kind: kVendor, prefixes: []string{"FLWSECK_TEST-"}, set: alnumD, min: 12, max: 40},                              // Flutterwave
	{kind: kVendor, prefixes: []string{"shippo_live_", "shippo_test_"}, set: anyHex, min: 40, max: 40},               // Shippo
	{kind: kVendor, prefixes: []string{"LTAI"}, set: alnum, min: 12, max: 20},                                        // Alibaba Cloud AccessKey ID
	{kind: kVendor, prefixes: []string{"AKCp"}, set: alnum, min: 69, max: 69},                                        // JFrog Artifactory
	{kind: kVendor, prefixes: []string{"EZAK", "EZTK"}, set: alnum, min: 54, max: 54},                                // EasyPost
	{kind: kVendor, prefixes: []string{"pnu_"}, set: alnum, min: 36, max: 36},                                        // Prefect
	{kind: kVendor, prefixes: []string{"EAAA"}, set: alnumUD, min: 56, max: 60},                                      // Square
	{kind: kVendor, prefixes: []string{"fo1_"}, set: alnumUD, min: 43, max: 43},                                      // Fly.io
	{kind: kVendor, prefixes: []string{"fm2_"}, set: base64S, min: 100, max: 1000},                                   // Fly.io
	{kind: kVendor, prefixes: []string{"HRKU-AA"}, set: alnumUD, min: 58, max: 58},                                   // Heroku
	{kind: kVendor, prefixes: []string{"api_org_"}, set: alnum, min: 34, max: 34},                                    // Hugging Face organizations
	{kind: kVendor, prefixes: []string{"ico-"}, set: alnum, min: 32, max: 32},                                        // Infracost
	{kind: kVendor, prefixes: []string{"dt0c01."}, set: dotted, min: 89, max: 89},                                    // Dynatrace
	{kind: kVendor, prefixes: []string{"duffel_live_", "duffel_test_"}, set: alnumUD, min: 43, max: 43},              // Duffel
	{kind: kVendor, prefixes: []string{"rdme_"}, set: alnum, min: 70, max: 70},                                       // ReadMe
	{kind: kVendor, prefixes: []string{"sgp_"}, set: alnumU, min: 40, max: 60},                                       // Sourcegraph
	{kind: kVendor, prefixes: []string{"p8e-"}, set: alnum, min: 32, max: 32},                                        // Adobe
	{kind: kVendor, prefixes: []string{"CLOJARS_"}, set: alnum, min: 60, max: 60},                                    // Clojars
	{kind: kVendor, prefixes: []string{"tk-us-"}, set: alnumUD, min: 48, max: 48},                                    // Scalingo
	{kind: kVendor, prefixes: []string{"fio-u-"}, set: alnumUD, min: 64, max: 64},                                    // Frame.io
	{kind: kVendor, prefixes: []string{"sha256~"}, set: alnumUD, min: 43, max: 43},                                   // OpenShift
	{kind: kVendor, prefixes: []string{"ABSK"}, set: base64S, min: 109, max: 272},                                    // Amazon Bedrock API keys
	{kind: kVendor, prefixes: []string{"bedrock-api-key-"}, set: base64S, min: 32, max: 4096},                        // Amazon Bedrock API keys
	{kind: kVendor, prefixes: []string{"xkeysib-"}, set: alnumD, min: 81, max: 81},                                   // Brevo
	{kind: kVendor, prefixes: []string{"SK"}, set: anyHex, min: 32, max: 32},                                         // Twilio API keys
	{kind: kVendor, prefixes: []string{"API-"}, set: upperNum, min: 26, max: 26},                                     // Octopus Deploy
	{kind: kVendor, prefixes: []string{"ops_eyJ"}, set: base64S, min: 250, max: 4096},                                // 1Password service accounts
	{kind: kVendor, prefixes: []string{"v1.0-"}, set: alnumD, min: 171, max: 171},                                    // Cloudflare Origin CA keys
	{kind: kWebhook, prefixes: []string{"discord.com/api/webhooks/", "discordapp.com/api/webhooks/"}, set: urlPath, min: 60, max: 120, ok: withDigits, valueOnly: true},
	{kind: kWebhook, prefixes: []string{"webhook.office.com/webhookb2/"}, set: urlPath, min: 60, max: 300, ok: withDigits, valueOnly: true},
}

// keywords returns everything that the automaton looks for. Their order does not matter.
func keywords() []keyword {
	var out []keyword
	add := func(text string, f func(*scan, *keyword, int)) {
		out = append(out, keyword{text: text, confirm: f})
	}
	for i := range tokenRules {
		r := &tokenRules[i]
		for _, prefix := range r.prefixes {
			out = append(out, keyword{text: folded(prefix), confirm: confirmToken, token: r, prefix: prefix})
		}
	}
	add("-----begin", confirmPEM)
	add("eyj", confirmJWT)
	add("://", confirmURL)
	add(":aa", confirmTelegram)
	add("0q~", confirmEntra)
	for _, w := range []string{"password", "passwd", "passphrase", "passwort", "pwd"} {
		add(w, confirmAssignPassword)
	}
	for _, w := range []string{
		"secret", "token", "credential", "secret key", "api key", "access key",
		"apikey", "api-key", "accesskey", "access-key", "privatekey", "private-key", "authkey", "auth-key",
		"signingkey", "signing-key", "encryptionkey", "encryption-key", "accountkey", "account-key", "masterkey", "master-key",
	} {
		add(w, confirmAssignKey)
	}
	add("@", confirmMail)
	add("0000", confirmNumber)
	add("000.000.000-00", confirmCPF)
	add("00 00 00 ", confirmPairs)
	add("00 000 000 000", confirmSteuerSpaced)
	for _, m := range "abcdehlmprst" { // the month letters of a codice fiscale
		add("00"+string(m)+"00", confirmFiscale)
	}
	for _, c := range contextWords {
		for _, w := range c.words {
			out = append(out, keyword{text: w, confirm: confirmContext, ctx: c.class})
		}
	}
	return out
}

func folded(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = fold(c)
	}
	return string(b)
}

func isWord(c byte) bool { return alnumU[c] }

// at returns v[i], or 0 outside v, which belongs to no set.
func (s *scan) at(i int) byte {
	if i < 0 || i >= len(s.v) {
		return 0
	}
	return s.v[i]
}

// run returns where the bytes of set that begin at i end, looking at max of them.
func (s *scan) run(i int, set *charset, max int) int {
	end := min(len(s.v), i+max)
	for i < end && set[s.v[i]] {
		i++
	}
	return i
}

func confirmToken(s *scan, w *keyword, end int) {
	r := w.token
	start := end - len(w.prefix)
	if !r.anyCase && string(s.v[start:end]) != w.prefix || r.anyCase && !equalFold(s.v[start:end], w.prefix) {
		return
	}
	if !r.valueOnly && start > 0 && isWord(s.v[start-1]) {
		return
	}
	stop := end
	if r.set == s.tokenSet && end >= s.tokenStart && end < s.tokenEnd {
		stop = s.tokenEnd
	}
	stop = s.run(stop, r.set, r.max+1-(stop-end))
	if stop-end > 32 {
		s.tokenSet, s.tokenStart, s.tokenEnd = r.set, end, stop
	}
	run := stop
	for stop > end && s.v[stop-1] == '.' { // the end of a sentence
		stop--
	}
	if run-stop > 1 || bytes.HasPrefix(s.v[stop:], []byte("…")) { // cut short for show
		return
	}
	if n := stop - end; n < r.min || n > r.max {
		return
	}
	ok := r.ok
	if ok == nil {
		ok = random
	}
	if !ok(s.v[end:stop]) {
		return
	}
	if r.valueOnly {
		start = end
	}
	s.add(r.kind, start, stop)
}

// equalFold reports whether b is t in any ASCII letter case, byte for byte.
func equalFold(b []byte, t string) bool {
	for i := range b {
		if lower(b[i]) != lower(t[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c | 0x20
	}
	return c
}

// varied tells a key from a filler such as XXXXXXXX.
func varied(b []byte) bool {
	var seen [256]bool
	n := 0
	for _, c := range b {
		if !seen[c] {
			seen[c] = true
			if n++; n >= 5 {
				return true
			}
		}
	}
	return false
}

func withDigits(b []byte) bool {
	_, digits, _ := classes(b)
	return digits > 0 && varied(b)
}

// random reports what holds for all issued tokens: varied, and not one word.
func random(b []byte) bool {
	up, digits, low := classes(b)
	return (digits > 0 || up > 0 && low > 0) && varied(b) && !slug(b)
}

// opaque reports the same for places where prose, code and placeholders also occur.
func opaque(b []byte) bool {
	up, digits, low := classes(b)
	return (digits >= 2 || digits == 1 && up > 0 && low > 0) && up+low >= 2 && entropy(b) >= 2.8 && !slug(b) && !placeholder(b)
}

func classes(b []byte) (up, digits, low int) {
	for _, c := range b {
		switch {
		case c >= 'A' && c <= 'Z':
			up++
		case c >= '0' && c <= '9':
			digits++
		case c >= 'a' && c <= 'z':
			low++
		}
	}
	return
}

// slug reports text made of whole words and whole numbers, as in "my-app-secret-2" or
// "config.apiKey": each part between separators is letters or digits only, and reads
// like a word. Issued tokens mix within a part.
func slug(b []byte) bool {
	letters, digits, turns := 0, 0, 0
	var prev byte
	for i := 0; i <= len(b); i++ {
		if i == len(b) || !alnum[b[i]] {
			if letters > 0 && digits > 0 || letters > 24 || turns > 3 {
				return false
			}
			letters, digits, turns, prev = 0, 0, 0, 0
			continue
		}
		c := b[i]
		if c >= '0' && c <= '9' {
			digits++
		} else {
			letters++
			if c >= 'A' && c <= 'Z' && prev >= 'a' && prev <= 'z' {
				turns++ // camelCase
			}
		}
		prev = c
	}
	return true
}

// entropy is Shannon's, in bits for each byte.
func entropy(b []byte) float64 {
	var n [256]int
	for _, c := range b {
		n[c]++
	}
	h := 0.0
	for _, k := range n {
		if k > 0 {
			p := float64(k) / float64(len(b))
			h -= p * math.Log2(p)
		}
	}
	return h
}

// fillers are parts of values that documentation and templates put in place of a secret.
var fillers = [][]byte{
	[]byte("example"), []byte("your"), []byte("changeme"), []byte("change_me"), []byte("change-me"), []byte("placeholder"),
	[]byte("redacted"), []byte("dummy"), []byte("sample"), []byte("xxxx"), []byte("****"), []byte("..."), []byte("<"), []byte("${"),
	[]byte("{{"), []byte("$("), []byte("%s"), []byte("%v"), []byte("insert"), []byte("replace"), []byte("•"), []byte("…"),
}

var fillerWords = []string{
	"password", "passwd", "pass", "pwd", "pw", "secret", "token", "user", "username", "string", "str", "text", "null", "none", "nil", "true",
	"false", "undefined", "required", "optional", "hidden", "value", "abc", "foo", "bar", "mypassword", "my-password", "my_password",
}

// placeholder looks at the first 256 bytes of a value.
func placeholder(b []byte) bool {
	var low [256]byte
	n := 0
	for n < len(b) && n < len(low) {
		low[n] = lower(b[n])
		n++
	}
	v := low[:n]
	for _, w := range fillerWords {
		if string(v) == w {
			return true
		}
	}
	for _, f := range fillers {
		if bytes.Contains(v, f) {
			return true
		}
	}
	return !varied(b) && len(b) > 12
}

func sendGrid(b []byte) bool { return b[22] == '.' && random(b) }

func crate(b []byte) bool {
	up, digits, low := classes(b)
	return up >= 4 && digits >= 2 && low >= 4
}

func userPassword(b []byte) bool {
	var buf [400]byte
	n, err := base64.StdEncoding.Decode(buf[:], b)
	if err != nil || n < 4 {
		return false
	}
	colon := bytes.IndexByte(buf[:n], ':')
	if colon < 1 || colon == n-1 {
		return false
	}
	for _, c := range buf[:n] {
		if c < 0x20 || c > 0x7e {
			return false
		}
	}
	return true
}

// pemMax bounds a private key: the largest RSA keys in use stay under 14 KiB of PEM.
const pemMax = 16 << 10

// confirmPEM: RFC 7468, RFC 4880 and PROTOCOL.key of OpenSSH. The end line may be missing (cut off).
func confirmPEM(s *scan, _ *keyword, end int) {
	start := end - len("-----begin")
	if start < s.pemEnd || string(s.v[start:end]) != "-----BEGIN" {
		return
	}
	head := s.v[end:min(len(s.v), end+60)]
	k := bytes.Index(head, []byte("PRIVATE KEY"))
	if k < 0 {
		return
	}
	dashes := bytes.Index(head[k:], []byte("-----"))
	if dashes < 0 || k+dashes > 50 {
		return
	}
	body := end + k + dashes + 5
	// A key has a line of base64 soon after its headers; prose about keys has none.
	long, stop := 0, body
	for i, run := body, 0; i < min(len(s.v), body+600) && s.v[i] != '"'; i++ {
		if base64S[s.v[i]] {
			if run++; run > long {
				long = run
			}
		} else {
			run = 0
		}
		if long >= 30 || s.v[i] == '-' && s.at(i+1) == '-' { // the next or the last line of a block
			break
		}
	}
	if long < 30 {
		return
	}
	limit := min(len(s.v), body+pemMax)
	if q := bytes.IndexByte(s.v[body:limit], '"'); q >= 0 {
		limit = body + q
	}
	if e := bytes.Index(s.v[body:limit], []byte("-----END")); e >= 0 {
		stop = body + e + len("-----END")
		if d := bytes.Index(s.v[stop:min(limit, stop+60)], []byte("-----")); d >= 0 {
			stop += d + 5
		}
	} else {
		for stop < limit && pemBody[s.v[stop]] {
			stop++
		}
	}
	s.pemEnd = stop
	k2 := kPrivateKey
	if s.near(ctxServiceAccount, start, 1024) {
		k2 = kGCPServiceAccount
	}
	s.add(k2, start, stop)
}

var pemBody = chars("a-zA-Z0-9+/= \n\r\t:,.-")

// confirmJWT: RFC 7519, in the compact form of RFC 7515.
func confirmJWT(s *scan, _ *keyword, end int) {
	start := end - 3
	if start < s.jwtEnd || string(s.v[start:end]) != "eyJ" || start > 0 && (isWord(s.v[start-1]) || s.v[start-1] == '-') {
		return
	}
	h := s.run(end, alnumUD, 2048)
	if h-start < 16 || s.at(h) != '.' {
		s.jwtEnd = h
		return
	}
	p := s.run(h+1, alnumUD, 16<<10)
	if p-h < 10 || s.at(p) != '.' {
		s.jwtEnd = p
		return
	}
	g := s.run(p+1, alnumUD, 2048)
	s.jwtEnd = g
	if g-p < 17 {
		return
	}
	var buf [2048]byte
	n, err := base64.RawURLEncoding.Decode(buf[:], s.v[start:h])
	if err != nil || !bytes.Contains(buf[:n], []byte(`"alg"`)) {
		return
	}
	s.add(kJWT, start, g)
}

// confirmTelegram: Telegram Bot API, "Authorizing your bot": id:35 characters, which begin with AA.
func confirmTelegram(s *scan, _ *keyword, end int) {
	colon := end - 3
	start := colon
	for start > 0 && colon-start < 11 && s.v[start-1] >= '0' && s.v[start-1] <= '9' {
		start--
	}
	if n := colon - start; n < 8 || n > 10 || string(s.v[colon:end]) != ":AA" || start > 0 && alnum[s.v[start-1]] && !botPrefix(s.v[:start]) {
		return
	}
	stop := s.run(colon+1, alnumUD, 36)
	if stop-colon-1 != 35 || !random(s.v[colon+1:stop]) {
		return
	}
	s.add(kVendor, start, stop)
}

// confirmEntra: Microsoft Entra ID, client secrets: three characters, a digit, "Q~" and 31 to 34 more.
func confirmEntra(s *scan, _ *keyword, end int) {
	start := end - 6
	if start < 0 || s.v[end-2] != 'Q' || s.run(start, entraSet, 6) != end || entraSet[s.at(start-1)] {
		return
	}
	stop := s.run(end, entraSet, 36)
	if n := stop - end; n < 31 || n > 34 || !random(s.v[start:stop]) {
		return
	}
	s.add(kVendor, start, stop)
}

var entraSet = chars("a-zA-Z0-9_~.-")

// botPrefix: the token follows "bot" in the API's own URLs.
func botPrefix(b []byte) bool { return bytes.HasSuffix(b, []byte("/bot")) }

var databaseSchemes = []string{
	"postgres", "postgresql", "mysql", "mariadb", "mongodb", "redis", "rediss", "amqp", "amqps", "mssql", "sqlserver",
	"oracle", "clickhouse", "cockroachdb", "cassandra", "neo4j", "bolt", "couchbase", "jdbc",
}

// confirmURL: RFC 3986 userinfo with a password.
func confirmURL(s *scan, _ *keyword, end int) {
	colon, i := -1, end
	for ; ; i++ {
		c := s.at(i)
		if i-end > 256 || c <= ' ' || c == '/' || c == '?' || c == '#' || c == '"' || c == '\'' || c == '`' || c == '<' || c == '>' || c == '\\' {
			return
		}
		if c == '@' {
			break
		}
		if c == ':' && colon < 0 {
			colon = i
		}
	}
	if colon < 0 || i-colon < 4 {
		return
	}
	pw := s.v[colon+1 : i]
	if placeholder(pw) || pw[0] == '$' || pw[0] == '%' || bytes.ContainsAny(pw, "[]{}()") || !varied3(pw) {
		return
	}
	start := end - 3
	for start > 0 && end-3-start < 24 && (alnum[s.v[start-1]] || s.v[start-1] == '+') {
		start--
	}
	scheme, _, _ := bytes.Cut(s.v[start:end-3], []byte("+")) // postgresql+psycopg, mongodb+srv
	k := kURLPassword
	for _, d := range databaseSchemes {
		if len(d) == len(scheme) && equalFold(scheme, d) {
			k = kDatabaseURL
		}
	}
	s.add(k, colon+1, i)
}

// varied3 tells a short password from a mask such as *** or xxx.
func varied3(b []byte) bool {
	for _, c := range b {
		if c != b[0] {
			return true
		}
	}
	return false
}

func confirmAssignPassword(s *scan, w *keyword, end int) { assign(s, end-len(w.text), end, true) }
func confirmAssignKey(s *scan, w *keyword, end int)      { assign(s, end-len(w.text), end, false) }

// identMax bounds the names that assign understands; longer names are not credentials that people use.
const identMax = 40

// valueMax bounds the values that assign judges.
const valueMax = 4096

// assign looks at name = value in the forms of JSON, YAML, INI, shell, code, XML elements, query strings and
// flags. The name holds a word for a credential at [kw,end).
func assign(s *scan, kw, end int, password bool) {
	if end <= s.identEnd {
		return
	}
	v := s.v
	idEnd := s.run(end, identSet, identMax)
	s.identEnd = idEnd
	id := kw
	for id > 0 && kw-id < identMax && identSet[v[id-1]] {
		id--
	}
	p, prose, ok := afterOperator(s, id, idEnd, password || v[kw] != 't')
	if !ok {
		return
	}
	p, stop, quoted := assigned(s, s.run(p, blanks, 8))
	if stop <= p {
		return
	}
	val, name := v[p:stop], v[id:idEnd]
	k, ok := kAPIKey, false
	switch {
	case password:
		k, ok = kPassword, passwordValue(val, quoted, prose)
	case prose:
		ok = passwordValue(val, false, true)
	case len(val) == 40 && all(val, base64S) && awsName(name):
		// AWS IAM user guide: the secret access key is 40 characters.
		k, ok = kAWSSecretKey, varied(val)
	case len(val) >= 12:
		ok = keyValue(val)
	}
	if ok && nameOfSecret(name) {
		s.add(k, p, stop)
	}
}

// afterOperator returns the place where the value that is assigned to the name at [id,idEnd) begins. prose says that the operator is the word
// "is", which counts only if is is set.
func afterOperator(s *scan, id, idEnd int, is bool) (p int, prose, ok bool) {
	p = idEnd
	if s.v[p-1] == '.' {
		return 0, false, false
	}
	if quote(s.at(p)) {
		p++
	}
	op := s.run(p, blanks, 8)
	switch c := s.at(op); {
	case c == '=' && s.at(op+1) == '=':
		return 0, false, false
	case c == ':' && s.at(op+1) == '=', c == '=' && s.at(op+1) == '>':
		return op + 2, false, true
	case c == ':' && s.at(op+1) == '/': // a URL, not a value
		return 0, false, false
	case c == ':' || c == '=', c == '>' && s.at(id-1) == '<':
		return op + 1, false, true
	case op > idEnd && bytes.HasPrefix(s.v[id:], []byte("--")):
		return op, false, true
	case is && bytes.HasPrefix(s.v[op:], []byte("is ")) && op > idEnd:
		return op + 3, true, true
	}
	return 0, false, false
}

// assigned returns the value that begins at p, without its quotes: [start,stop), which is empty if there is none.
func assigned(s *scan, p int) (start, stop int, quoted bool) {
	mark := byte(0)
	if c := s.at(p); quote(c) {
		mark, quoted = c, true
		p++
	}
	stop = p
	if !quoted && p >= s.valueStart && p < s.valueEnd {
		stop = s.valueEnd
	}
	for stop-p <= valueMax {
		c := s.at(stop)
		if c == 0 || c == '\n' || c == '\r' || c == '"' || c == mark || c == '<' && stop > p {
			break
		}
		if !quoted && valueEnd[c] {
			break
		}
		stop++
	}
	if !quoted {
		s.valueStart, s.valueEnd = p, stop
	}
	if stop-p > valueMax || quoted && s.at(stop) != mark {
		return p, p, quoted
	}
	if c := s.at(stop); !quoted && (c == '(' || c == '[' || c == '{') { // code
		return p, p, quoted
	}
	for !quoted && stop > p && (s.v[stop-1] == '.' || s.v[stop-1] == ':' || s.v[stop-1] == '!' || s.v[stop-1] == '?') {
		stop--
	}
	return p, stop, quoted
}

func quote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

func all(b []byte, set *charset) bool {
	for _, c := range b {
		if !set[c] {
			return false
		}
	}
	return true
}

var (
	blanks   = chars(" \t")
	valueEnd = chars(" \t,;&'`<>()[]{}|")
)

// squeeze writes the letters and digits of name in lower case.
func squeeze(dst *[2*identMax + 24]byte, name []byte) []byte {
	n := 0
	for _, c := range name {
		if alnum[c] && n < len(dst) {
			dst[n] = lower(c)
			n++
		}
	}
	return dst[:n]
}

// notSecret are parts of names that hold a word for a credential but name something about it.
var notSecret = []string{
	"page", "next", "cursor", "sync", "continu", "count", "max", "min", "limit", "usage", "type", "name", "expir", "ttl", "length", "policy",
	"hash", "sha", "md5", "digest", "checksum", "fingerprint", "thumbprint", "hint", "field", "label", "reset", "url", "uri", "path", "file",
	"public", "version", "arn", "prompt", "regex", "pattern", "error", "valid", "require", "enabled", "idempot", "tokenize", "changed",
	"updated", "created", "last", "date", "time", "budget", "price", "cost", "num", "total", "size", "format", "provider", "manager", "status",
	"secretary", "tokens", "encoding", "sampl", "stop", "eos", "bos", "pad", "mask", "special", "symbol", "address", "contract",
	"1password", // the product
}

func nameOfSecret(name []byte) bool {
	var buf [2*identMax + 24]byte
	n := squeeze(&buf, name)
	for _, d := range notSecret {
		if bytes.Contains(n, []byte(d)) {
			return false
		}
	}
	return !bytes.HasSuffix(n, []byte("id")) && !bytes.HasSuffix(n, []byte("ids")) && !bytes.HasSuffix(n, []byte("ref"))
}

func awsName(name []byte) bool {
	var buf [2*identMax + 24]byte
	n := squeeze(&buf, name)
	return bytes.Contains(n, []byte("aws")) || bytes.Contains(n, []byte("secretaccesskey")) || bytes.Contains(n, []byte("secretkey"))
}

// passwordValue: people choose passwords, so the value need not look random, but it must not read like prose, a
// type, a link or a date.
func passwordValue(b []byte, quoted, prose bool) bool {
	if len(b) < 6 || len(b) > 128 || placeholder(b) || bytes.IndexByte(b, ' ') >= 0 || bytes.Contains(b, []byte("://")) || b[0] == '/' || b[0] == '$' {
		return false
	}
	up, digits, low := classes(b)
	letters := up + low
	symbols := 0
	for _, c := range b {
		if bytes.IndexByte([]byte("!@#$%^&*+?~="), c) >= 0 {
			symbols++
		}
	}
	switch {
	case prose:
		return digits >= 2 && letters >= 1 && bytes.IndexByte(b, '-') < 0 && bytes.IndexByte(b, '/') < 0 && !slug(b)
	case symbols > 0 && letters > 0 && (digits > 0 || quoted):
		return true
	case digits > 0 && letters > 0:
		return quoted || !slug(b)
	default:
		return quoted && digits == len(b)
	}
}

func keyValue(b []byte) bool {
	for i, c := range b {
		if !token68[c] || i > 0 && b[i-1] == '=' && c != '=' { // '=' pads, at the end
			return false
		}
	}
	return !uuid(b) && b[0] != '/' && b[0] != '.' && opaque(b) && !namesKey(b)
}

// namesKey: the value is the name of another variable (testP256PrivateKey, settings.API_KEY_2).
func namesKey(b []byte) bool {
	var buf [2*identMax + 24]byte
	n := squeeze(&buf, b)
	for _, w := range []string{"privatekey", "encryptionkey", "accesskey", "signingkey", "secretkey", "apikey", "password", "token", "credential"} {
		if bytes.Contains(n, []byte(w)) {
			return true
		}
	}
	return false
}

// uuid: page, trace and correlation tokens are UUIDs far more often than credentials are.
func uuid(b []byte) bool {
	if len(b) != 36 {
		return false
	}
	for i, c := range b {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !anyHex[c] {
			return false
		}
	}
	return true
}
