package console

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

const (
	oidcTestClient = "sallyport"
	oidcTestSecret = "s3cret/with+signs"
	oidcTestReturn = "https://sallyport.example.com/login/oidc/callback"
)

// oidcTestKeys are made once: two of the provider's, and one of somebody else's.
var oidcTestKeys = sync.OnceValue(func() (keys [3]*rsa.PrivateKey) {
	for i := range keys {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		keys[i] = k
	}
	return keys
})

// idp is an identity provider that checks what a provider must: client, redirect address, one use of a code, PKCE.
// Its fields make it misbehave; they are set before it is asked.
type idp struct {
	srv  *httptest.Server
	free chan struct{} // closed at the end, for answers that never come

	mu    sync.Mutex
	grant map[string]idpGrant
	asked map[string]int
	sent  []string // every code, token and verifier that went over the wire

	now      func() time.Time
	keys     map[string]any // kid -> public key, as published
	kid      string
	key      crypto.Signer
	document func(map[string]any)
	header   func(map[string]any)
	claims   func(map[string]any)
	raw      func(claims string) string                       // changes the claims' text
	signed   func(input string, h map[string]any) string      // signs otherwise
	instead  map[string]func(http.ResponseWriter) (goOn bool) // by path
	post     bool                                             // wants the secret in the form
	lax      bool                                             // takes a code again
}

type idpGrant struct{ challenge, nonce, redirect string }

func newIDP(t testing.TB, now func() time.Time) *idp {
	p := &idp{
		free: make(chan struct{}), now: now, grant: map[string]idpGrant{}, asked: map[string]int{}, instead: map[string]func(http.ResponseWriter) bool{},
		kid: "one", key: oidcTestKeys()[0], keys: map[string]any{"one": &oidcTestKeys()[0].PublicKey},
	}
	p.srv = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // refused handshakes
	p.srv.StartTLS()
	t.Cleanup(func() {
		close(p.free)
		p.srv.Close()
	})
	return p
}

func (p *idp) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[r.URL.Path]++
	if f := p.instead[r.URL.Path]; f != nil && !f(w) {
		return
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		d := map[string]any{
			"issuer": p.srv.URL, "authorization_endpoint": p.srv.URL + "/authorize", "token_endpoint": p.srv.URL + "/token", "jwks_uri": p.srv.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256", "ES256", "HS256", "none"},
		}
		if p.document != nil {
			p.document(d)
		}
		p.json(w, 200, d)
	case "/keys":
		list := []any{}
		for kid, k := range p.keys {
			list = append(list, jwk(kid, k))
		}
		p.json(w, 200, map[string]any{"keys": list})
	case "/authorize":
		q := r.URL.Query()
		if q.Get("client_id") != oidcTestClient || q.Get("response_type") != "code" || !slices.Contains(strings.Fields(q.Get("scope")), "openid") ||
			q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 22 || len(q.Get("nonce")) < 22 {
			p.json(w, 400, map[string]any{"error": "invalid_request", "query": q})
			return
		}
		code := "code-" + rand.Text()
		p.sent = append(p.sent, code)
		p.grant[code] = idpGrant{q.Get("code_challenge"), q.Get("nonce"), q.Get("redirect_uri")}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
	case "/token":
		p.token(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (p *idp) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	secret, _ = url.QueryUnescape(secret)
	if p.post {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if id != oidcTestClient || secret != oidcTestSecret {
		p.json(w, 401, map[string]any{"error": "invalid_client"})
		return
	}
	code, verifier := r.PostFormValue("code"), r.PostFormValue("code_verifier")
	p.sent = append(p.sent, verifier)
	g, ok := p.grant[code]
	if !p.lax {
		delete(p.grant, code)
	}
	sum := sha256.Sum256([]byte(verifier))
	if !ok || r.PostFormValue("grant_type") != "authorization_code" || r.PostFormValue("redirect_uri") != g.redirect || b64(sum[:]) != g.challenge {
		p.json(w, 400, map[string]any{"error": "invalid_grant", "error_description": "<script>alert(1)</script>"})
		return
	}
	access, signed := "access-"+rand.Text(), p.sign(p.tokenClaims(g.nonce))
	p.sent = append(p.sent, access, signed)
	p.json(w, 200, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 300, "id_token": signed})
}

func (p *idp) tokenClaims(nonce string) string {
	c := map[string]any{
		"iss": p.srv.URL, "sub": "subject-1", "aud": oidcTestClient, "exp": p.now().Unix() + 300, "iat": p.now().Unix(), "nonce": nonce,
		"email": "alice@example.com", "email_verified": true, "roles": []string{"admin"},
	}
	if p.claims != nil {
		p.claims(c)
	}
	b, _ := json.Marshal(c)
	if p.raw != nil {
		return p.raw(string(b))
	}
	return string(b)
}

func (p *idp) sign(claims string) string {
	h := map[string]any{"alg": "RS256", "typ": "JWT", "kid": p.kid}
	if _, ec := p.key.(*ecdsa.PrivateKey); ec {
		h["alg"] = "ES256"
	}
	if p.header != nil {
		p.header(h)
	}
	hb, _ := json.Marshal(h)
	input := b64(hb) + "." + b64([]byte(claims))
	if p.signed != nil {
		return p.signed(input, h)
	}
	sum := sha256.Sum256([]byte(input))
	switch k := p.key.(type) {
	case *rsa.PrivateKey:
		sig, err := rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
		if err != nil {
			panic(err)
		}
		return input + "." + b64(sig)
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, k, sum[:])
		if err != nil {
			panic(err)
		}
		return input + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
	}
	panic("no such key")
}

func (p *idp) json(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (p *idp) count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func jwk(kid string, key any) map[string]any {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return map[string]any{"kty": "RSA", "kid": kid, "use": "sig", "n": b64(k.N.Bytes()), "e": "AQAB"}
	case *ecdsa.PublicKey:
		raw, err := k.Bytes() // 4, x, y
		if err != nil {
			panic(err)
		}
		return map[string]any{"kty": "EC", "crv": "P-256", "kid": kid, "x": b64(raw[1:33]), "y": b64(raw[33:])}
	}
	panic("no such key")
}

// oidcRig is one gateway, one provider and what happened.
type oidcRig struct {
	t   testing.TB
	idp *idp
	o   *OIDC
	now time.Time
	log bytes.Buffer

	people map[string]string // e-mail or issuer|subject -> id
	seen   []string          // what Person was asked
}

func newOIDCRig(t testing.TB) *oidcRig {
	g := &oidcRig{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), people: map[string]string{"alice@example.com": "alice"}}
	g.idp = newIDP(t, func() time.Time { return g.now })
	g.o = g.make(OIDCConfig{Issuer: g.idp.srv.URL, ClientID: oidcTestClient, ClientSecret: oidcTestSecret, Redirect: oidcTestReturn})
	return g
}

func (g *oidcRig) make(c OIDCConfig) *OIDC {
	g.t.Helper()
	o, err := NewOIDC(c, OIDCOptions{
		Clock: func() time.Time { return g.now },
		Log:   slog.New(slog.NewTextHandler(&g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Person: func(issuer, subject, email string, checkProofs bool) (string, bool) {
			g.seen = append(g.seen, fmt.Sprint(issuer, "|", subject, " ", email, " ", checkProofs))
			for _, name := range []string{email, issuer + "|" + subject} { // trusts what it is given
				if id, ok := g.people[name]; ok {
					return id, true
				}
			}
			return "", false
		},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	o.client.Transport.(oidcTransport).next.TLSClientConfig.RootCAs = g.roots()
	return o
}

func (g *oidcRig) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(g.idp.srv.Certificate())
	return pool
}

// begin opens /login/oidc and returns the cookie and where it leads.
func (g *oidcRig) begin() (*http.Cookie, string) {
	g.t.Helper()
	w := httptest.NewRecorder()
	g.o.Begin(w, httptest.NewRequest("GET", "https://sallyport.example.com/login/oidc", nil))
	if w.Code != http.StatusFound || len(w.Result().Cookies()) != 1 {
		g.t.Fatalf("begin: %d %s", w.Code, w.Body)
	}
	return w.Result().Cookies()[0], w.Header().Get("Location")
}

// authorize is the person signing in at the provider; it returns the callback's address.
func (g *oidcRig) authorize(address string) *url.URL {
	g.t.Helper()
	c := g.idp.srv.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := c.Get(address)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	u, err := resp.Location()
	if err != nil {
		b, _ := io.ReadAll(resp.Body)
		g.t.Fatalf("authorize: %v %s", err, b)
	}
	return u
}

func (g *oidcRig) finish(callback *url.URL, cookies ...*http.Cookie) (string, *http.Response, error) {
	r := httptest.NewRequest("GET", callback.String(), nil)
	for _, c := range cookies {
		r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	w := httptest.NewRecorder()
	id, err := g.o.Finish(w, r)
	return id, w.Result(), err
}

func (g *oidcRig) signIn() (string, error) {
	g.t.Helper()
	cookie, address := g.begin()
	id, _, err := g.finish(g.authorize(address), cookie)
	return id, err
}

// quiet fails if the log or the words have something in them that must not be there.
func (g *oidcRig) quiet(words string) {
	g.t.Helper()
	for _, s := range append(g.idp.sent, oidcTestSecret) {
		if s != "" && (strings.Contains(g.log.String(), s) || strings.Contains(words, s)) {
			g.t.Errorf("%q is in the log or shown", s)
		}
	}
	if len(words) > 600 || strings.ContainsAny(words, "<>\n\x1b") || strings.Contains(words, "subject-1") {
		g.t.Errorf("shown: %q", words)
	}
	for line := range strings.Lines(g.log.String()) {
		if len(line) > 1500 {
			g.t.Errorf("a log line of %d bytes", len(line))
		}
	}
}

// A browser, a console and a provider, each over TLS.
func TestOIDCWholeFlow(t *testing.T) {
	g := newOIDCRig(t)
	mux := http.NewServeMux()
	console := httptest.NewTLSServer(mux)
	defer console.Close()
	g.o = g.make(OIDCConfig{Issuer: g.idp.srv.URL, ClientID: oidcTestClient, ClientSecret: oidcTestSecret, Redirect: console.URL + "/login/oidc/callback"})
	if g.idp.count("/.well-known/openid-configuration") != 0 {
		t.Error("the provider was asked before anybody signed in")
	}
	mux.HandleFunc("/login/oidc", g.o.Begin)
	mux.HandleFunc("/login/oidc/callback", func(w http.ResponseWriter, r *http.Request) {
		id, err := g.o.Finish(w, r)
		fmt.Fprint(w, id, " ", err)
	})
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: g.roots()}}}
	for range 2 {
		resp, err := browser.Get(console.URL + "/login/oidc")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != "alice <nil>" {
			t.Fatalf("%s\n%s", b, g.log.String())
		}
		if resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("headers of the callback: %v", resp.Header)
		}
		if u, _ := url.Parse(console.URL + "/login/oidc/callback"); len(jar.Cookies(u)) != 0 {
			t.Error("the cookie outlives the sign-in")
		}
	}
	for path, n := range map[string]int{"/.well-known/openid-configuration": 1, "/keys": 1, "/token": 2} {
		if got := g.idp.count(path); got != n {
			t.Errorf("%s was asked %d times, not %d", path, got, n)
		}
	}
	if want := g.idp.srv.URL + "|subject-1 alice@example.com true"; g.seen[0] != want {
		t.Errorf("Person was asked %q", g.seen[0])
	}
	g.quiet("")
}

func TestOIDCBegin(t *testing.T) {
	g := newOIDCRig(t)
	c, address := g.begin()
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/login/oidc/callback" || c.MaxAge != 600 || c.Domain != "" || c.Name != "__Secure-sallyport_oidc" {
		t.Errorf("cookie %+v", c)
	}
	u, _ := url.Parse(address)
	q := u.Query()
	for _, secret := range []string{q.Get("state"), q.Get("nonce"), oidcTestSecret} {
		plain, _ := base64.RawURLEncoding.DecodeString(c.Value)
		if strings.Contains(c.Value, secret) || bytes.Contains(plain, []byte(secret)) {
			t.Error("the cookie can be read")
		}
	}
	if q.Get("redirect_uri") != oidcTestReturn || q.Get("scope") != "openid email" || q.Get("code_challenge_method") != "S256" {
		t.Errorf("query %v", q)
	}
	if c2, address2 := g.begin(); c2.Value == c.Value || address2 == address {
		t.Error("two sign-ins are the same")
	}
	// On loopback the console may be without TLS, and then the cookie is too.
	g.o = g.make(OIDCConfig{Issuer: g.idp.srv.URL, ClientID: oidcTestClient, ClientSecret: oidcTestSecret, Redirect: "http://127.0.0.1:7576/login/oidc/callback"})
	if c, _ := g.begin(); c.Secure || c.Name != "sallyport_oidc" {
		t.Errorf("cookie %+v", c)
	}
}

func TestOIDCConfig(t *testing.T) {
	good := OIDCConfig{Issuer: "https://id.example.com/realm", ClientID: "c", ClientSecret: "s", Redirect: oidcTestReturn}
	with := func(f func(*OIDCConfig)) OIDCConfig { c := good; f(&c); return c }
	for _, c := range []struct {
		name  string
		c     OIDCConfig
		field string // "": good
	}{
		{"good", good, ""},
		{"scopes", with(func(c *OIDCConfig) { c.Scopes = []string{"openid", "groups"} }), ""},
		{"loopback without TLS", with(func(c *OIDCConfig) {
			c.Issuer, c.Redirect = "http://127.0.0.1:9000", "http://localhost:7576/login/oidc/callback"
		}), ""},
		{"http issuer", with(func(c *OIDCConfig) { c.Issuer = "http://id.example.com" }), "console.oidc.issuer"},
		{"http issuer that begins like loopback", with(func(c *OIDCConfig) { c.Issuer = "http://localhost.example.com" }), "console.oidc.issuer"},
		{"issuer without scheme", with(func(c *OIDCConfig) { c.Issuer = "id.example.com" }), "console.oidc.issuer"},
		{"issuer with query", with(func(c *OIDCConfig) { c.Issuer += "?tenant=1" }), "console.oidc.issuer"},
		{"issuer with fragment", with(func(c *OIDCConfig) { c.Issuer += "#" }), "console.oidc.issuer"},
		{"issuer with a bar", with(func(c *OIDCConfig) { c.Issuer += "/a|b" }), "console.oidc.issuer"},
		{"issuer with a password", with(func(c *OIDCConfig) { c.Issuer = "https://u:p@id.example.com" }), "console.oidc.issuer"},
		{"issuer without host", with(func(c *OIDCConfig) { c.Issuer = "https:///realm" }), "console.oidc.issuer"},
		{"redirect with query", with(func(c *OIDCConfig) { c.Redirect += "?a=b" }), "console.public_url"},
		{"no issuer", with(func(c *OIDCConfig) { c.Issuer = "" }), "console.oidc.issuer"},
		{"no client", with(func(c *OIDCConfig) { c.ClientID = "" }), "console.oidc.client_id"},
		{"no secret", with(func(c *OIDCConfig) { c.ClientSecret = "" }), "console.oidc.client_secret"},
		{"no openid", with(func(c *OIDCConfig) { c.Scopes = []string{"email"} }), "console.oidc.scopes"},
		{"two scopes in one", with(func(c *OIDCConfig) { c.Scopes = []string{"openid", "email offline_access"} }), "console.oidc.scopes"},
		{"no redirect", with(func(c *OIDCConfig) { c.Redirect = "" }), "console.public_url"},
		{"http redirect", with(func(c *OIDCConfig) { c.Redirect = "http://sallyport.example.com/cb" }), "console.public_url"},
		{"redirect without path", with(func(c *OIDCConfig) { c.Redirect = "https://sallyport.example.com" }), "console.public_url"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewOIDC(c.c, OIDCOptions{})
			if c.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if e := fault.Of(err); err == nil || e.Code != fault.ConfigurationInvalid || e.Field != c.field || e.Remedy == "" || strings.Contains(e.Error(), "u:p") {
				t.Fatalf("%v", err)
			}
		})
	}
}

// Everything here happens to a sign-in that works without it.
func TestOIDCAttacks(t *testing.T) {
	rs, other := oidcTestKeys()[0], oidcTestKeys()[2]
	claim := func(name string, value any) func(*oidcRig) {
		return func(g *oidcRig) { g.idp.claims = func(c map[string]any) { c[name] = value } }
	}
	except := func(name string) func(*oidcRig) {
		return func(g *oidcRig) { g.idp.claims = func(c map[string]any) { delete(c, name) } }
	}
	document := func(name string, value any) func(*oidcRig) {
		return func(g *oidcRig) { g.idp.document = func(d map[string]any) { d[name] = value } }
	}
	param := func(name, value string) func(*oidcRig, url.Values) {
		return func(_ *oidcRig, q url.Values) { q.Set(name, value) }
	}
	mac := func(secret []byte) func(*oidcRig) {
		return func(g *oidcRig) {
			g.idp.header = func(h map[string]any) { h["alg"] = "HS256" }
			g.idp.signed = func(input string, _ map[string]any) string {
				m := hmac.New(sha256.New, secret)
				m.Write([]byte(input))
				return input + "." + b64(m.Sum(nil))
			}
		}
	}
	const (
		unproven  = "does not prove who you are"
		elsewhere = "does not belong to the sign-in"
	)
	for _, c := range []struct {
		name   string
		idp    func(*oidcRig)
		query  func(*oidcRig, url.Values)
		code   fault.Code // "": signed in
		public string     // part of the words
		cause  string     // part of the error for the log: that it failed for this and not by chance
	}{
		{name: "nothing"},
		{name: "wrong state", query: param("state", strings.Repeat("A", 26)), code: fault.CredentialMissing, public: elsewhere},
		{name: "no state", query: func(_ *oidcRig, q url.Values) { q.Del("state") }, code: fault.CredentialMissing, public: elsewhere},
		{name: "state twice", query: func(_ *oidcRig, q url.Values) { q.Add("state", "x") }, code: fault.RequestMalformed},
		{name: "code twice", query: func(_ *oidcRig, q url.Values) { q.Add("code", "x") }, code: fault.RequestMalformed},
		{name: "huge query", query: param("x", strings.Repeat("x", oidcMaxQuery)), code: fault.RequestMalformed},
		{name: "no code", query: func(_ *oidcRig, q url.Values) { q.Del("code") }, code: fault.RequestMalformed},
		{name: "code of nobody", query: param("code", "guess"), code: fault.CredentialMissing, public: unproven, cause: "invalid_grant"},
		{name: "code with line breaks", query: param("code", "a\r\nX: y"), code: fault.CredentialMissing, public: unproven, cause: "invalid_grant"},
		{name: "code of another sign-in", query: func(g *oidcRig, q url.Values) {
			_, address := g.begin()
			q.Set("code", g.authorize(address).Query().Get("code"))
		}, code: fault.CredentialMissing, public: unproven, cause: "invalid_grant"}, // PKCE: another browser's verifier
		{name: "code of another sign-in at a provider without PKCE", idp: func(g *oidcRig) { g.idp.lax = true }, query: func(g *oidcRig, q url.Values) {
			_, address := g.begin()
			code := g.authorize(address).Query().Get("code")
			g.idp.grant[code] = idpGrant{g.idp.grant[q.Get("code")].challenge, g.idp.grant[code].nonce, oidcTestReturn}
			q.Set("code", code)
		}, code: fault.CredentialMissing, public: unproven, cause: "nonce"},

		{name: "other nonce", idp: claim("nonce", "other"), code: fault.CredentialMissing, public: unproven, cause: "nonce"},
		{name: "no nonce", idp: except("nonce"), code: fault.CredentialMissing, public: unproven, cause: "nonce"},
		{name: "empty nonce", idp: claim("nonce", ""), code: fault.CredentialMissing, public: unproven, cause: "nonce"},
		{name: "expired", idp: func(g *oidcRig) { claim("exp", g.now.Unix()-1)(g) }, code: fault.CredentialMissing, public: unproven, cause: "expired"},
		{name: "expires in a second", idp: func(g *oidcRig) { claim("exp", g.now.Unix()+1)(g) }},
		{name: "no expiry", idp: except("exp"), code: fault.CredentialMissing, public: unproven, cause: "expired"},
		{name: "from 5 minutes ahead", idp: func(g *oidcRig) { claim("iat", g.now.Unix()+300)(g) }},
		{name: "from the future", idp: func(g *oidcRig) { claim("iat", g.now.Unix()+301)(g) }, code: fault.CredentialMissing, public: unproven, cause: "future"},
		{name: "of no time", idp: except("iat"), code: fault.CredentialMissing, public: unproven, cause: "when it was made"},
		{name: "not yet", idp: func(g *oidcRig) { claim("nbf", g.now.Unix()+301)(g) }, code: fault.CredentialMissing, public: unproven, cause: "nbf"},
		{name: "other issuer", idp: claim("iss", "https://id.example.com"), code: fault.CredentialMissing, public: unproven, cause: "different provider"},
		{name: "no issuer", idp: except("iss"), code: fault.CredentialMissing, public: unproven, cause: "different provider"},
		{name: "other audience", idp: claim("aud", "another"), code: fault.CredentialMissing, public: unproven, cause: "audience"},
		{name: "no audience", idp: except("aud"), code: fault.CredentialMissing, public: unproven, cause: "audience"},
		{name: "azp of another", idp: claim("azp", "another"), code: fault.CredentialMissing, public: unproven, cause: "azp"},
		{name: "azp that is no text", idp: claim("azp", []string{oidcTestClient}), code: fault.CredentialMissing, public: unproven, cause: "azp"},
		{name: "azp ours", idp: claim("azp", oidcTestClient)},
		{name: "two audiences, no azp", idp: claim("aud", []string{oidcTestClient, "another"}), code: fault.CredentialMissing, public: unproven, cause: "azp"},
		{name: "two audiences, azp ours", idp: func(g *oidcRig) {
			g.idp.claims = func(c map[string]any) {
				c["aud"], c["azp"] = []string{"another", oidcTestClient}, oidcTestClient
			}
		}},
		{name: "no subject", idp: except("sub"), code: fault.CredentialMissing, public: unproven, cause: "subject"},
		{name: "subject too long", idp: claim("sub", strings.Repeat("s", 256)), code: fault.CredentialMissing, public: unproven, cause: "subject"},
		{name: "claims twice", idp: func(g *oidcRig) {
			g.idp.claims = func(c map[string]any) { c["email"] = "mallory@example.com" }
			g.idp.raw = func(s string) string { return strings.Replace(s, `{`, `{"email":"alice@example.com",`, 1) }
		}, code: fault.CredentialMissing, public: unproven, cause: "email"},
		{name: "claims in another case", idp: func(g *oidcRig) {
			g.idp.raw = func(s string) string { return strings.Replace(s, `{`, `{"NONCE":"x",`, 1) }
		}, code: fault.CredentialMissing, public: unproven, cause: "NONCE"},
		{name: "verified in another case", idp: func(g *oidcRig) {
			g.idp.claims = func(c map[string]any) { delete(c, "email_verified"); c["Email_Verified"] = true }
		}, code: fault.CredentialMissing, public: "e-mail address that it verified"},

		{name: "alg none", idp: func(g *oidcRig) {
			g.idp.header = func(h map[string]any) { h["alg"] = "none" }
			g.idp.signed = func(input string, _ map[string]any) string { return input + "." }
		}, code: fault.CredentialMissing, public: unproven, cause: "malformed jwt"},
		{name: "HS256 with the client secret", idp: mac([]byte(oidcTestSecret)), code: fault.CredentialMissing, public: unproven, cause: "algorithm"},
		{name: "HS256 with the public key", idp: mac(rs.PublicKey.N.Bytes()), code: fault.CredentialMissing, public: unproven, cause: "algorithm"},
		{name: "HS256 with the public key in DER", idp: mac(x509.MarshalPKCS1PublicKey(&rs.PublicKey)), code: fault.CredentialMissing, public: unproven, cause: "algorithm"},
		{name: "only HS256 offered", idp: func(g *oidcRig) {
			mac([]byte(oidcTestSecret))(g)
			document("id_token_signing_alg_values_supported", []string{"HS256", "none"})(g)
		}, code: fault.CredentialMissing, public: unproven, cause: "algorithm"},
		{name: "no signature", idp: func(g *oidcRig) { g.idp.signed = func(input string, _ map[string]any) string { return input + "." } }, code: fault.CredentialMissing, public: unproven, cause: "signature"},
		{name: "key of somebody else under our kid", idp: func(g *oidcRig) { g.idp.key = other }, code: fault.CredentialMissing, public: unproven, cause: "signature"},
		{name: "unknown kid", idp: func(g *oidcRig) { g.idp.key, g.idp.kid = other, "three" }, code: fault.CredentialMissing, public: unproven, cause: "signature"},
		{name: "key in the token", idp: func(g *oidcRig) {
			g.idp.key, g.idp.header = other, func(h map[string]any) { h["jwk"] = jwk("one", &other.PublicKey); delete(h, "kid") }
		}, code: fault.CredentialMissing, public: unproven, cause: "signature"},
		{name: "critical header that nobody knows", idp: func(g *oidcRig) {
			g.idp.header = func(h map[string]any) { h["crit"], h["x"] = []string{"x"}, 1 }
		}, code: fault.CredentialMissing, public: unproven},
		{name: "no id token", idp: func(g *oidcRig) { g.idp.signed = func(string, map[string]any) string { return "" } }, code: fault.CredentialMissing, public: unproven},
		{name: "EC key", idp: func(g *oidcRig) {
			k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			g.idp.key, g.idp.kid, g.idp.keys = k, "ec", map[string]any{"ec": &k.PublicKey}
		}},

		{name: "e-mail unverified", idp: claim("email_verified", false), code: fault.CredentialMissing, public: "e-mail address that it verified", cause: "|subject-1"},
		{name: "e-mail verified in words", idp: claim("email_verified", "true"), code: fault.CredentialMissing, public: "e-mail address that it verified"},
		{name: "e-mail unsaid", idp: except("email_verified"), code: fault.CredentialMissing, public: "e-mail address that it verified"},
		{name: "no e-mail", idp: except("email"), code: fault.CredentialMissing, public: "people[].identities"},
		{name: "no e-mail, person known by subject", idp: func(g *oidcRig) {
			except("email")(g)
			g.people[g.idp.srv.URL+"|subject-1"] = "alice"
		}},
		{name: "subject of another issuer", idp: func(g *oidcRig) {
			except("email")(g)
			g.people["https://id.example.com|subject-1"] = "alice"
		}, code: fault.CredentialMissing, public: "people[].identities"},
		{name: "e-mail that looks like issuer|subject", idp: func(g *oidcRig) {
			claim("email", "https://id.example.com|a@b")(g)
			g.people["https://id.example.com|a@b"] = "admin"
		}, code: fault.CredentialMissing, public: "e-mail address that it verified"},
		{name: "person without id", idp: func(g *oidcRig) { g.people["alice@example.com"] = "" }, code: fault.CredentialMissing, public: "people[].identities"},
		{name: "unknown person", idp: claim("email", "mallory@example.com"), code: fault.CredentialMissing, public: "mallory@example.com", cause: "|subject-1"},
		{name: "unknown and hostile", idp: func(g *oidcRig) {
			g.idp.claims = func(c map[string]any) {
				c["email"], c["sub"] = "<script>\x1b[2J\u202e@example.com", "subject-1<script>\x1b[2J"
			}
		}, code: fault.CredentialMissing, public: "e-mail address that it verified"},
		{name: "endless e-mail", idp: claim("email", strings.Repeat("a", 300)+"@example.com"), code: fault.CredentialMissing, public: "e-mail address that it verified"},

		{name: "iss of the callback", idp: document("authorization_response_iss_parameter_supported", true), query: func(g *oidcRig, q url.Values) { q.Set("iss", g.idp.srv.URL) }},
		{name: "iss promised and missing", idp: document("authorization_response_iss_parameter_supported", true), code: fault.CredentialMissing, public: unproven, cause: "another issuer"},
		{name: "iss of another", idp: document("authorization_response_iss_parameter_supported", true), query: param("iss", "https://id.example.com"), code: fault.CredentialMissing, public: unproven, cause: "another issuer"},
		{name: "iss of another, not promised", query: param("iss", "https://id.example.com"), code: fault.CredentialMissing, public: unproven, cause: "another issuer"},
		{name: "refused", query: func(_ *oidcRig, q url.Values) {
			q.Set("error", "access_denied")
			q.Set("error_description", "<script>alert(1)</script>\x1b[2J"+strings.Repeat("x", 4000))
		}, code: fault.CredentialMissing, public: "access_denied", cause: `\x1b`},
		{name: "refused in its own words", query: param("error", "<script>alert(1)</script>"), code: fault.CredentialMissing, public: "reason of its own"},

		{name: "secret as client_secret_post", idp: func(g *oidcRig) {
			g.idp.post = true
			document("token_endpoint_auth_methods_supported", []string{"private_key_jwt", "client_secret_post"})(g)
		}},
		{name: "secret is wrong", idp: func(g *oidcRig) { g.o.c.ClientSecret = "other" }, code: fault.UpstreamFailed, cause: "invalid_client"},
		{name: "token endpoint fails", idp: func(g *oidcRig) {
			g.idp.instead["/token"] = func(w http.ResponseWriter) bool {
				g.idp.sent = append(g.idp.sent, "leaked-token")
				http.Error(w, `{"id_token":"leaked-token"}`, 500)
				return false
			}
		}, code: fault.UpstreamFailed, cause: "500"},
		{name: "token endpoint redirects", idp: func(g *oidcRig) {
			g.idp.instead["/token"] = func(w http.ResponseWriter) bool {
				w.Header().Set("Location", g.idp.srv.URL+"/elsewhere")
				w.WriteHeader(307)
				return false
			}
		}, code: fault.UpstreamFailed, cause: "307"},
		{name: "token endpoint answers too much", idp: func(g *oidcRig) {
			g.idp.instead["/token"] = func(w http.ResponseWriter) bool {
				fmt.Fprintf(w, `{"access_token":"x","pad":%q}`, strings.Repeat("x", oidcMaxAnswer))
				return false
			}
		}, code: fault.UpstreamFailed, cause: "too large"},
		{name: "keys too many", idp: func(g *oidcRig) {
			g.idp.instead["/keys"] = func(w http.ResponseWriter) bool {
				fmt.Fprintf(w, "%*s", oidcMaxAnswer, "")
				return true
			}
		}, code: fault.UpstreamFailed, cause: "too large"},
		{name: "keys redirect", idp: func(g *oidcRig) {
			g.idp.instead["/keys"] = func(w http.ResponseWriter) bool {
				w.Header().Set("Location", g.idp.srv.URL+"/elsewhere")
				w.WriteHeader(302)
				return false
			}
			g.idp.instead["/elsewhere"] = func(w http.ResponseWriter) bool {
				g.idp.json(w, 200, map[string]any{"keys": []any{jwk("one", &rs.PublicKey)}})
				return false
			}
		}, code: fault.UpstreamFailed, cause: "302"},
		{name: "keys fail", idp: func(g *oidcRig) {
			g.idp.instead["/keys"] = func(w http.ResponseWriter) bool { w.WriteHeader(500); return true }
		}, code: fault.UpstreamFailed, cause: "500"},
		{name: "keys are no keys", idp: func(g *oidcRig) {
			g.idp.instead["/keys"] = func(w http.ResponseWriter) bool {
				fmt.Fprint(w, "<html>\n\x1b[2J", strings.Repeat("x", 5000))
				return false
			}
		}, code: fault.CredentialMissing, public: unproven},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newOIDCRig(t)
			if c.idp != nil {
				c.idp(g)
			}
			cookie, address := g.begin()
			back := g.authorize(address)
			if c.query != nil {
				q := back.Query()
				c.query(g, q)
				back.RawQuery = q.Encode()
			}
			id, _, err := g.finish(back, cookie)
			if c.code == "" {
				if id != "alice" || err != nil {
					t.Fatalf("%q %v", id, err)
				}
				g.quiet("")
				return
			}
			e := fault.Of(err)
			if id != "" || err == nil || e.Code != c.code || !strings.Contains(e.Public(), c.public) || !strings.Contains(err.Error(), c.cause) {
				t.Fatalf("id %q, code %s, shown %q, error %v", id, e.Code, e.Public(), err)
			}
			g.quiet(e.Public())
			if s := err.Error(); len(s) > 1000 || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x202e }) {
				t.Errorf("for the log: %q", s)
			}
			if g.idp.count("/elsewhere") != 0 {
				t.Error("followed a redirect")
			}
		})
	}
}

// The browser's side: whose cookie, which, and how often.
func TestOIDCBrowserBinding(t *testing.T) {
	const none = "no sign-in under way"
	for _, c := range []struct {
		name    string
		cookies func(g *oidcRig, own *http.Cookie) []*http.Cookie
		public  string
	}{
		{"own", func(_ *oidcRig, own *http.Cookie) []*http.Cookie { return []*http.Cookie{own} }, ""},
		{"none", func(*oidcRig, *http.Cookie) []*http.Cookie { return nil }, none},
		{"another browser's", func(g *oidcRig, _ *http.Cookie) []*http.Cookie { c, _ := g.begin(); return []*http.Cookie{c} }, "does not belong"},
		{"two", func(g *oidcRig, own *http.Cookie) []*http.Cookie { c, _ := g.begin(); return []*http.Cookie{own, c} }, none},
		{"after ten minutes", func(g *oidcRig, own *http.Cookie) []*http.Cookie {
			g.now = g.now.Add(10 * time.Minute)
			return []*http.Cookie{own}
		}, none},
		{"just before", func(g *oidcRig, own *http.Cookie) []*http.Cookie {
			g.now = g.now.Add(10*time.Minute - time.Second)
			return []*http.Cookie{own}
		}, ""},
		{"sealed by another gateway", func(g *oidcRig, own *http.Cookie) []*http.Cookie {
			g.o = g.make(g.o.c)
			return []*http.Cookie{own}
		}, none},
		{"changed", func(_ *oidcRig, own *http.Cookie) []*http.Cookie {
			b, _ := base64.RawURLEncoding.DecodeString(own.Value)
			b[len(b)/2] ^= 1
			own.Value = b64(b)
			return []*http.Cookie{own}
		}, none},
		{"empty", func(_ *oidcRig, own *http.Cookie) []*http.Cookie { own.Value = ""; return []*http.Cookie{own} }, none},
		{"short", func(_ *oidcRig, own *http.Cookie) []*http.Cookie { own.Value = "AAAA"; return []*http.Cookie{own} }, none},
		{"huge", func(_ *oidcRig, own *http.Cookie) []*http.Cookie {
			own.Value = strings.Repeat("A", 100_000)
			return []*http.Cookie{own}
		}, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newOIDCRig(t)
			cookie, address := g.begin()
			back := g.authorize(address)
			id, resp, err := g.finish(back, c.cookies(g, cookie)...)
			if c.public == "" {
				if id != "alice" || err != nil {
					t.Fatalf("%q %v", id, err)
				}
				return
			}
			if e := fault.Of(err); id != "" || e.Code != fault.CredentialMissing || !strings.Contains(e.Public(), c.public) {
				t.Fatalf("%q %v", id, err)
			}
			if g.idp.count("/token") != 0 || len(resp.Cookies()) != 0 {
				t.Error("a stranger's callback redeemed a code or ended a sign-in")
			}
		})
	}

	for _, tail := range []string{"&%zz", "&a;b=c", "&a=%"} {
		g := newOIDCRig(t)
		cookie, address := g.begin()
		back := g.authorize(address)
		back.RawQuery += tail
		if id, _, err := g.finish(back, cookie); id != "" || !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%s: %q %v", tail, id, err)
		}
	}
	for _, method := range []string{"POST", "HEAD"} {
		g := newOIDCRig(t)
		cookie, address := g.begin()
		r := httptest.NewRequest(method, g.authorize(address).String(), nil)
		r.AddCookie(cookie)
		if id, err := g.o.Finish(httptest.NewRecorder(), r); id != "" || !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%s: %q %v", method, id, err)
		}
	}
}

// A callback counts once, also where the provider takes a code again, however the first time ended, and however many come at once.
func TestOIDCOnce(t *testing.T) {
	g := newOIDCRig(t)
	g.idp.lax = true
	cookie, address := g.begin()
	back := g.authorize(address)
	g.idp.instead["/token"] = func(w http.ResponseWriter) bool { w.WriteHeader(500); return false }
	if _, resp, err := g.finish(back, cookie); !fault.Is(err, fault.UpstreamFailed) || len(resp.Cookies()) != 1 || resp.Cookies()[0].MaxAge != -1 {
		t.Fatal(err, resp.Cookies())
	}
	delete(g.idp.instead, "/token")
	if id, _, err := g.finish(back, cookie); id != "" || !strings.Contains(fault.Of(err).Public(), "used already") {
		t.Fatalf("%q %v", id, err)
	}

	cookie, address = g.begin()
	back = g.authorize(address)
	var wg sync.WaitGroup
	ids := make(chan string, 20)
	for range cap(ids) {
		wg.Go(func() {
			id, _, _ := g.finish(back, cookie)
			ids <- id
		})
	}
	wg.Wait()
	close(ids)
	in := 0
	for id := range ids {
		if id == "alice" {
			in++
		}
	}
	if in != 1 {
		t.Errorf("one callback signed in %d times", in)
	}
	g.idp.lax = false
	cookie, address = g.begin()
	back = g.authorize(address)
	q := back.Query()
	if id, _, err := g.finish(back, cookie); id != "alice" {
		t.Fatal(err)
	}
	// The same code in a sign-in of its own.
	cookie, address = g.begin()
	back = g.authorize(address)
	q2 := back.Query()
	q2.Set("code", q.Get("code"))
	back.RawQuery = q2.Encode()
	if id, _, err := g.finish(back, cookie); id != "" || !strings.Contains(err.Error(), "invalid_grant") {
		t.Fatalf("%q %v", id, err)
	}
}

func TestOIDCSpentIsBounded(t *testing.T) {
	g := newOIDCRig(t)
	for i := range oidcMaxSpent {
		if err := g.o.spend(oidcPending{state: fmt.Sprint(i), until: g.now.Add(oidcTime - time.Second + time.Duration(i))}); err != nil {
			t.Fatal(err)
		}
	}
	if id, err := g.signIn(); id != "alice" { // strangers lock nobody out
		t.Fatalf("%q %v", id, err)
	}
	if _, kept := g.o.spent["0"]; kept || len(g.o.spent) != oidcMaxSpent {
		t.Errorf("the oldest is kept, or %d are", len(g.o.spent))
	}
	if err := g.o.spend(oidcPending{state: "1", until: g.now.Add(oidcTime)}); err == nil || len(g.o.spent) != oidcMaxSpent {
		t.Errorf("what was used may be used again when there are many: %v, %d kept", err, len(g.o.spent))
	}
	g.now = g.now.Add(oidcTime)
	if id, err := g.signIn(); id != "alice" || len(g.o.spent) != 1 {
		t.Fatalf("%q %v, %d kept", id, err, len(g.o.spent))
	}
}

func TestOIDCKeysRotate(t *testing.T) {
	g := newOIDCRig(t)
	must := func(want string) {
		t.Helper()
		if id, err := g.signIn(); id != want {
			t.Fatalf("%q %v", id, err)
		}
	}
	must("alice")
	two := oidcTestKeys()[1]
	maps.Copy(g.idp.keys, map[string]any{"two": &two.PublicKey})
	g.idp.key, g.idp.kid = two, "two"
	must("alice") // a kid not seen before: the keys are read again
	must("alice")
	if n := g.idp.count("/keys"); n != 2 {
		t.Errorf("the keys were read %d times", n)
	}

	// A key that the provider took back is good for another hour at most.
	g.idp.keys = map[string]any{"one": &oidcTestKeys()[0].PublicKey}
	must("alice")
	g.now = g.now.Add(oidcFresh)
	must("")
	g.idp.key, g.idp.kid = oidcTestKeys()[0], "one"
	must("alice")
}

// A provider that is down, slow or strange: nobody is signed in, the words are clear, and it is asked again later.
func TestOIDCProviderDown(t *testing.T) {
	const wellKnown = "/.well-known/openid-configuration"
	document := func(name string, value any) func(*oidcRig) {
		return func(g *oidcRig) { g.idp.document = func(d map[string]any) { d[name] = value } }
	}
	answer := func(f func(w http.ResponseWriter) bool) func(*oidcRig) {
		return func(g *oidcRig) { g.idp.instead[wellKnown] = f }
	}
	for _, c := range []struct {
		name  string
		idp   func(*oidcRig)
		cause string
	}{
		{"down", answer(func(w http.ResponseWriter) bool { http.Error(w, "<script>", 500); return false }), "500"},
		{"too large", answer(func(w http.ResponseWriter) bool { fmt.Fprintf(w, "%*s", oidcMaxAnswer, ""); return true }), "too large"},
		{"no JSON", answer(func(w http.ResponseWriter) bool { fmt.Fprint(w, "<html>"); return false }), "decode"},
		{"redirects", func(g *oidcRig) {
			answer(func(w http.ResponseWriter) bool {
				w.Header().Set("Location", g.idp.srv.URL+"/elsewhere")
				w.WriteHeader(302)
				return false
			})(g)
		}, "302"},
		{"other issuer", document("issuer", "https://id.example.com"), "did not match"},
		{"plain authorization endpoint", document("authorization_endpoint", "http://id.example.com/a"), "not an https address"},
		{"plain token endpoint", document("token_endpoint", "http://id.example.com/t"), "not an https address"},
		{"plain token endpoint on loopback", document("token_endpoint", "http://127.0.0.1:1/t"), "not an https address"},
		{"plain keys", document("jwks_uri", "http://id.example.com/k"), "not an https address"},
		{"script for an authorization endpoint", document("authorization_endpoint", "javascript:alert(1)"), "not an https address"},
		{"no token endpoint", document("token_endpoint", nil), "not an https address"},
		{"no way to give the secret", document("token_endpoint_auth_methods_supported", []string{"private_key_jwt", "none"}), "client_secret_basic"},
		{"certificate of nobody known", func(g *oidcRig) {
			g.o.client.Transport.(oidcTransport).next.TLSClientConfig.RootCAs = x509.NewCertPool()
		}, "certificate"},
		{"slow", func(g *oidcRig) {
			g.o.timeout = 50 * time.Millisecond
			answer(func(http.ResponseWriter) bool { <-g.idp.free; return false })(g)
		}, "deadline"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newOIDCRig(t)
			c.idp(g)
			w := httptest.NewRecorder()
			g.o.Begin(w, httptest.NewRequest("GET", "/login/oidc", nil))
			if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "can't be reached") || len(w.Result().Cookies()) != 0 || w.Header().Get("Location") != "" {
				t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
			}
			if !strings.Contains(g.log.String(), c.cause) {
				t.Errorf("log: %s", g.log.String())
			}
			g.quiet(strings.TrimSpace(w.Body.String()))
		})
	}

	t.Run("asked again after 5 s, not before", func(t *testing.T) {
		g := newOIDCRig(t)
		g.idp.instead[wellKnown] = func(w http.ResponseWriter) bool { w.WriteHeader(500); return false }
		begin := func() int {
			w := httptest.NewRecorder()
			g.o.Begin(w, httptest.NewRequest("GET", "/login/oidc", nil))
			return w.Code
		}
		for range 10 {
			if begin() != 502 {
				t.Fatal("signed in with a provider that is down")
			}
		}
		delete(g.idp.instead, wellKnown)
		if begin() != 502 || g.idp.count(wellKnown) != 1 {
			t.Errorf("asked %d times", g.idp.count(wellKnown))
		}
		g.now = g.now.Add(oidcRetry)
		if id, err := g.signIn(); id != "alice" {
			t.Fatal(err)
		}
		// An hour later it is down again: what it said before is not gone on with.
		g.now = g.now.Add(oidcFresh)
		g.idp.instead[wellKnown] = func(w http.ResponseWriter) bool { w.WriteHeader(500); return false }
		if begin() != 502 {
			t.Error("an old document is good for ever")
		}
	})

	// The callback waits for the provider for as long as everything may take together, whichever part is slow.
	for _, path := range []string{"/token", "/keys"} {
		t.Run("slow "+path, func(t *testing.T) {
			g := newOIDCRig(t)
			cookie, address := g.begin()
			back := g.authorize(address)
			g.o.timeout = 50 * time.Millisecond
			g.idp.instead[path] = func(http.ResponseWriter) bool { <-g.idp.free; return false }
			id, _, err := g.finish(back, cookie)
			if id != "" || !fault.Is(err, fault.UpstreamFailed) {
				t.Fatalf("%q %v", id, err)
			}
			g.quiet(fault.Of(err).Public())
		})
	}

	t.Run("somebody else is asking", func(t *testing.T) {
		g := newOIDCRig(t)
		g.o.timeout = 50 * time.Millisecond
		g.o.turn <- struct{}{}
		w := httptest.NewRecorder()
		g.o.Begin(w, httptest.NewRequest("GET", "/login/oidc", nil))
		if w.Code != 502 {
			t.Error(w.Code)
		}
	})

	// Many wait for one slow answer; none for longer than its own patience.
	t.Run("many", func(t *testing.T) {
		g := newOIDCRig(t)
		g.o.timeout = 500 * time.Millisecond
		answer(func(http.ResponseWriter) bool { <-g.idp.free; return false })(g)
		start := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				w := httptest.NewRecorder()
				g.o.Begin(w, httptest.NewRequest("GET", "/login/oidc", nil))
				if w.Code != 502 {
					t.Error(w.Code)
				}
			})
		}
		wg.Wait()
		if d := time.Since(start); d > 12*time.Second { // one after the other: 25 s
			t.Errorf("50 sign-ins waited %v", d)
		}
	})
}

// FuzzOIDCCallback sends anything to a browser that has a sign-in under way; $STATE and $CODE stand for its own.
func FuzzOIDCCallback(f *testing.F) {
	for _, s := range []string{
		"", "state=$STATE", "state=$STATE&code=x", "state=$STATE&code=x&iss=y", "state=$STATE&error=access_denied&error_description=%3Cscript%3E",
		"state=$STATE&error=%1b[2J", "state=$STATE&state=$STATE&code=$CODE", "%zz", "state=$STATE;code=$CODE", "STATE=$STATE&code=$CODE", "state=$STATE&code=$CODE%00",
	} {
		f.Add(s)
	}
	g := newOIDCRig(f)
	f.Fuzz(func(t *testing.T, query string) {
		g.t = t
		cookie, address := g.begin()
		u, _ := url.Parse(address)
		r := httptest.NewRequest("GET", "https://sallyport.example.com/login/oidc/callback", nil)
		r.URL.RawQuery = strings.NewReplacer("$STATE", u.Query().Get("state"), "$CODE", "code-guessed").Replace(query)
		r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
		id, err := g.o.Finish(httptest.NewRecorder(), r)
		e := fault.Of(err)
		if id != "" || err == nil || e.Code == fault.Internal {
			t.Fatalf("%q: %q %v", query, id, err)
		}
		g.quiet(e.Public())
		g.log.Reset()
	})
}

// TestRefusedSignInsAreNotKept: who comes back with a refusal, which takes no account at the provider, fills nothing.
func TestRefusedSignInsAreNotKept(t *testing.T) {
	g := newOIDCRig(t)
	cookie, address := g.begin()
	back := g.authorize(address)
	q := back.Query()
	code := q.Get("code")
	q.Del("code")
	q.Set("error", "access_denied")
	back.RawQuery = q.Encode()
	if id, _, err := g.finish(back, cookie); id != "" || err == nil || len(g.o.spent) != 0 {
		t.Errorf("%q %v, %d kept", id, err, len(g.o.spent))
	}
	q.Set("code", code) // with both it is still a refusal
	back.RawQuery = q.Encode()
	if id, _, err := g.finish(back, cookie); id != "" || err == nil || len(g.o.spent) != 0 {
		t.Errorf("with a code: %q %v, %d kept", id, err, len(g.o.spent))
	}
}
