package console

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

const (
	oidcTime      = 10 * time.Minute // to sign in at the provider and come back
	oidcTimeout   = 10 * time.Second // for all requests to the provider within one request to us
	oidcFresh     = time.Hour        // after that the provider's document and keys are read again, so a revoked key is good for no longer
	oidcRetry     = 5 * time.Second  // between attempts to read the document of a provider that is down
	oidcSkew      = 5 * time.Minute  // how far the provider's clock may be ahead; an expired token is expired
	oidcMaxAnswer = 256 << 10        // bytes of one answer of the provider
	oidcMaxQuery  = 8 << 10          // bytes of a callback's query
	oidcMaxSpent  = 10_000           // used sign-ins that are remembered. The oldest is dropped, so that strangers can't lock others out
)

// oidcAlgorithms are the accepted signature algorithms. None is symmetric, since the client secret must not make tokens; "none" is not among
// them.
var oidcAlgorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// oidcErrors are the standard error codes of a provider (RFC 6749, OpenID Connect Core). Others are not shown.
var oidcErrors = []string{
	"access_denied", "account_selection_required", "consent_required", "interaction_required", "invalid_client", "invalid_grant",
	"invalid_request", "invalid_scope", "login_required", "server_error", "temporarily_unavailable", "unauthorized_client",
	"unsupported_grant_type", "unsupported_response_type",
}

// OIDCConfig configures sign-in with an identity provider (console.oidc, and console.public_url for Redirect).
type OIDCConfig struct {
	// Issuer is the provider's name exactly as its discovery document has it: https, without a query. http only on loopback.
	Issuer       string
	ClientID     string
	ClientSecret string
	Scopes       []string // default openid, email; others must include openid
	// Redirect is the absolute address of the callback as browsers reach it, as https://sallyport.example.com/login/oidc/callback.
	// https; http only on loopback. The same address is registered with the provider.
	Redirect string
}

// OIDCOptions are the options of NewOIDC. Every field is needed.
type OIDCOptions struct {
	Clock func() time.Time
	Log   *slog.Logger // gets the reason of each refusal, but never a token, a code or a secret
	// Person finds who in the configuration an account belongs to: by issuer and subject, or by e-mail. The e-mail is empty unless
	// the provider says that it verified it, and never holds "|", so that it can't look like issuer|subject.
	Person func(issuer, subject, email string, checkProofs bool) (id string, ok bool)
}

// OIDC signs people in with an OpenID Connect provider (authorization code, PKCE, nonce). It tells who somebody is and nothing else:
// roles are the configuration's, whatever the provider claims. If the provider can't be asked, nobody is signed in.
//
// A sign-in under way is kept by the browser, in a sealed cookie, and not here: Begin is open to everybody, and a table would let
// whoever calls it often enough push out the sign-ins of others. What is kept is which ones came back, so that each does once.
// The seal's key is made at start: a sign-in ends where it began, in this process.
type OIDC struct {
	c      OIDCConfig
	o      OIDCOptions
	client *http.Client
	seal   cipher.AEAD
	cookie http.Cookie // without value and age
	origin string      // of Redirect, for words

	timeout time.Duration // oidcTimeout, or shorter in tests

	turn     chan struct{} // held to read or write the three below; a channel, because who waits for it may leave
	known    *oidcProvider
	failure  error
	failedAt time.Time

	spentMu sync.Mutex // guards spent
	spent   map[string]time.Time
}

// oidcProvider holds the contents of a discovery document.
type oidcProvider struct {
	oauth       oauth2.Config
	keys        *oidc.RemoteKeySet
	algorithms  []string
	namesIssuer bool // RFC 9207: every callback has iss
	read        time.Time
}

// oidcPending is one sign-in under way. Its strings are random.
type oidcPending struct {
	state, nonce, verifier string
	until                  time.Time
}

// NewOIDC checks the configuration; what is wrong with it is a fault.ConfigurationInvalid at its key. It does not contact the provider.
func NewOIDC(c OIDCConfig, o OIDCOptions) (*OIDC, error) {
	wrong := func(key, problem, remedy string) error {
		return fault.New(fault.ConfigurationInvalid, "%s", problem).At(key).Try("%s", remedy)
	}
	issuer, err := oidcAddress(c.Issuer, true)
	if err != nil || issuer.RawQuery != "" || strings.ContainsAny(c.Issuer, "|?") {
		return nil, wrong("console.oidc.issuer", "is not the address of an identity provider", "Write it as the provider does: https://…, without a query.")
	}
	redirect, err := oidcAddress(c.Redirect, true)
	if err != nil || redirect.RawQuery != "" || !strings.HasPrefix(redirect.Path, "/") {
		return nil, wrong("console.public_url", "does not give an address that a sign-in can come back to", "Write how browsers reach the console: https://… (http only on loopback).")
	}
	if c.ClientID == "" {
		return nil, wrong("console.oidc.client_id", "is missing", "Register Sallyport with the provider and write the id that it gives.")
	}
	if c.ClientSecret == "" {
		return nil, wrong("console.oidc.client_secret", "is missing", "Write ${NAME} and put the secret in that environment variable.")
	}
	if len(c.Scopes) == 0 {
		c.Scopes = []string{oidc.ScopeOpenID, oidc.ScopeEmail}
	}
	if !slices.Contains(c.Scopes, oidc.ScopeOpenID) || slices.ContainsFunc(c.Scopes, func(s string) bool { return s == "" || strings.ContainsFunc(s, oidcInvisible) }) {
		return nil, wrong("console.oidc.scopes", "is not a list of scopes with openid in it", "Leave it out for openid and email.")
	}
	c.Scopes = slices.Clone(c.Scopes)

	key := make([]byte, 32)
	rand.Read(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	oi := &OIDC{
		c: c, o: o, seal: seal, timeout: oidcTimeout,
		// Lax: the callback is a navigation that another site starts, and a strict cookie would not come along.
		cookie: http.Cookie{Name: "sallyport_oidc", Path: redirect.EscapedPath(), HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: redirect.Scheme == "https"},
		origin: redirect.Scheme + "://" + redirect.Host,
		turn:   make(chan struct{}, 1),
		spent:  map[string]time.Time{},
	}
	if oi.cookie.Secure {
		oi.cookie.Name = "__Secure-sallyport_oidc" // browsers take this name from https only
	}
	oi.client = &http.Client{
		Timeout: oidcTimeout,
		Transport: oidcTransport{&http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    oidcTimeout,
			MaxResponseHeaderBytes: 64 << 10,
			MaxConnsPerHost:        8, // strangers can make us ask; without HTTP/2 this bounds how much at once
			IdleConnTimeout:        time.Minute,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // and then its status is refused
	}
	return oi, nil
}

// Begin sends the browser to the provider, or answers in plain text that the provider can't be reached. It is for GET, from a link: a
// form's redirect to another site is stopped by the console's form-action.
func (o *OIDC) Begin(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), o.timeout)
	defer cancel()
	oidcHeaders(w)
	p, err := o.provider(ctx)
	if err != nil {
		e := fault.Of(err)
		http.Error(w, e.Public(), e.Code.HTTPStatus())
		return
	}
	s := oidcPending{state: rand.Text(), nonce: rand.Text(), verifier: oauth2.GenerateVerifier(), until: o.o.Clock().Add(oidcTime)}
	o.setCookie(w, o.sealed(s), int(oidcTime/time.Second))
	http.Redirect(w, r, p.oauth.AuthCodeURL(s.state, oidc.Nonce(s.nonce), oauth2.S256ChallengeOption(s.verifier)), http.StatusFound)
}

// Finish reads the provider's callback and returns the id of the person who signed in. It writes only headers; the answer is the
// caller's, with a cookie made afresh. Errors are faults with words to show (bounded, one line, not escaped
// for HTML): RequestMalformed, CredentialMissing, UpstreamFailed. What is worth a line in the log has one already.
func (o *OIDC) Finish(w http.ResponseWriter, r *http.Request) (person string, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), o.timeout)
	defer cancel()
	oidcHeaders(w)
	q, err := oidcQuery(r)
	if err != nil {
		return "", err
	}
	s, err := o.pending(r)
	if err != nil {
		return "", err
	}
	if subtle.ConstantTimeCompare([]byte(q["state"]), []byte(s.state)) != 1 {
		// The answer belongs to another browser's sign-in, so this one's stays as it is.
		return "", fault.New(fault.CredentialMissing, "This answer does not belong to the sign-in that this browser began.").Try("%s", o.startAgain())
	}
	if _, refused := q["error"]; !refused { // a refusal opens nothing, however often it comes
		if err := o.spend(s); err != nil {
			return "", err
		}
	}
	o.setCookie(w, "", -1)
	person, err = o.identify(ctx, q, s)
	if err != nil {
		o.o.Log.Info("sign-in with the identity provider refused", "why", err)
	}
	return person, err
}

// identify redeems the code of a callback that is this browser's own.
func (o *OIDC) identify(ctx context.Context, q map[string]string, s oidcPending) (string, error) {
	p, err := o.provider(ctx)
	if err != nil {
		return "", err
	}
	if iss, named := q["iss"]; (named || p.namesIssuer) && iss != o.c.Issuer {
		return "", o.unproven(errors.New("the callback names another issuer, or none"))
	}
	if word, refused := q["error"]; refused {
		return "", fault.Wrap(errors.New(display.Line(q["error_description"], 200)), fault.CredentialMissing,
			"The identity provider did not sign you in: %s.", oidcErrorWord(word)).Try("%s", o.startAgain())
	}
	if q["code"] == "" {
		return "", fault.New(fault.RequestMalformed, "The identity provider's answer has no code.").Try("%s", o.startAgain())
	}
	tokens, err := p.oauth.Exchange(oidc.ClientContext(ctx, o.client), q["code"], oauth2.VerifierOption(s.verifier))
	if err != nil {
		// The error itself may hold the answer's body, and so a token.
		var re *oauth2.RetrieveError
		if !errors.As(err, &re) {
			return "", oidcUnreachable(err)
		}
		cause := fmt.Errorf("the token endpoint answered %d, %s", re.Response.StatusCode, oidcErrorWord(re.ErrorCode))
		if re.ErrorCode != "invalid_grant" {
			return "", oidcUnreachable(cause)
		}
		return "", o.unproven(cause)
	}
	signed, _ := tokens.Extra("id_token").(string)
	claims, err := o.verify(ctx, p, signed, s.nonce)
	if err != nil {
		return "", err
	}

	subject := oidcText(claims, "sub")
	if subject == "" || len(subject) > 255 {
		return "", o.unproven(errors.New("the id token has no subject, or one that is too long"))
	}
	flag, _ := call.Get(claims, "email_verified")
	email := oidcText(claims, "email")
	checkProofs := string(flag) == "true" && oidcMail(email)
	if !checkProofs {
		email = ""
	}
	if id, ok := o.o.Person(o.c.Issuer, subject, email, checkProofs); ok && id != "" {
		return id, nil
	}
	account := fmt.Errorf("the account is %q", display.Line(o.c.Issuer+"|"+subject, 400))
	if !checkProofs {
		return "", fault.Wrap(account, fault.CredentialMissing, "Nobody in the configuration has this account, and the provider gives no e-mail address that it verified.").
			Try("The operator adds the account, which the log names as issuer|subject, to people[].identities.")
	}
	return "", fault.Wrap(account, fault.CredentialMissing, "Nobody in the configuration has the e-mail address %s.", display.Line(email, 254)).
		Try("The operator adds it to people[].identities, or the account, which the log names as issuer|subject.")
}

// verify returns the claims of an id token that this provider signed for us, now, in answer to this nonce.
func (o *OIDC) verify(ctx context.Context, p *oidcProvider, signed, nonce string) (json.RawMessage, error) {
	keys := &oidcKeys{RemoteKeySet: p.keys}
	token, err := oidc.NewVerifier(o.c.Issuer, keys, &oidc.Config{ClientID: o.c.ClientID, SupportedSigningAlgs: p.algorithms, Now: o.o.Clock}).Verify(ctx, signed)
	if unreachable := (*url.Error)(nil); errors.As(keys.err, &unreachable) || err != nil && ctx.Err() != nil {
		return nil, oidcUnreachable(err)
	}
	if err != nil {
		return nil, o.unproven(err)
	}
	var claims json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return nil, o.unproven(err)
	}
	// The library reads claims as encoding/json does, the last of several, in any case. Such tokens are refused.
	if err := call.Check(claims, call.Limits{Bytes: oidcMaxAnswer, Depth: 32, Members: 10_000}); err != nil {
		return nil, o.unproven(err)
	}
	if subtle.ConstantTimeCompare([]byte(oidcText(claims, "nonce")), []byte(nonce)) != 1 {
		return nil, o.unproven(errors.New("the id token has another nonce, or none"))
	}
	if _, named := call.Get(claims, "azp"); (named || len(token.Audience) > 1) && oidcText(claims, "azp") != o.c.ClientID {
		return nil, o.unproven(errors.New("the id token was made for another client (azp)"))
	}
	if token.IssuedAt.Unix() <= 0 || token.IssuedAt.After(o.o.Clock().Add(oidcSkew)) {
		return nil, o.unproven(errors.New("the id token does not say when it was made, or is from the future"))
	}
	return claims, nil
}

// oidcKeys remembers why no key was found, which the library tells in words only.
type oidcKeys struct {
	*oidc.RemoteKeySet
	err error
}

func (k *oidcKeys) VerifySignature(ctx context.Context, jwt string) (payload []byte, err error) {
	payload, k.err = k.RemoteKeySet.VerifySignature(ctx, jwt)
	return payload, k.err
}

// provider returns what the provider's document said within the last hour. If that can't be read there is no older one to go on with.
func (o *OIDC) provider(ctx context.Context) (*oidcProvider, error) {
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return nil, oidcUnreachable(ctx.Err())
	}
	now := o.o.Clock()
	within := func(t time.Time, d time.Duration) bool { return !now.Before(t) && now.Before(t.Add(d)) }
	if o.known != nil && within(o.known.read, oidcFresh) {
		return o.known, nil
	}
	if o.failure != nil && within(o.failedAt, oidcRetry) {
		return nil, o.failure
	}
	// Others wait for it, so it does not end with the browser that happened to ask first.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.timeout)
	defer cancel()
	p, err := o.discover(ctx)
	if err != nil {
		o.failure, o.failedAt = oidcUnreachable(err), now
		o.o.Log.Warn("the identity provider's discovery document can't be used", "issuer", o.c.Issuer, "why", o.failure)
		return nil, o.failure
	}
	p.read = now
	o.known, o.failure = p, nil
	return p, nil
}

func (o *OIDC) discover(ctx context.Context) (*oidcProvider, error) {
	document, err := oidc.NewProvider(oidc.ClientContext(ctx, o.client), o.c.Issuer)
	if err != nil {
		return nil, err
	}
	var more struct {
		Keys        string   `json:"jwks_uri"`
		Algorithms  []string `json:"id_token_signing_alg_values_supported"`
		Clients     []string `json:"token_endpoint_auth_methods_supported"`
		NamesIssuer bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := document.Claims(&more); err != nil {
		return nil, err
	}
	endpoint := document.Endpoint()
	for _, a := range []string{endpoint.AuthURL, endpoint.TokenURL, more.Keys} {
		if _, err := oidcAddress(a, strings.HasPrefix(o.c.Issuer, "http:")); err != nil {
			return nil, err
		}
	}
	// Chosen here: the library would try both ways, which uses the code twice.
	switch {
	case len(more.Clients) == 0 || slices.Contains(more.Clients, "client_secret_basic"):
		endpoint.AuthStyle = oauth2.AuthStyleInHeader
	case slices.Contains(more.Clients, "client_secret_post"):
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	default:
		return nil, errors.New("it takes client secrets neither as client_secret_basic nor as client_secret_post")
	}
	algorithms := slices.DeleteFunc(more.Algorithms, func(a string) bool { return !slices.Contains(oidcAlgorithms, a) })
	if len(algorithms) == 0 {
		algorithms = []string{oidc.RS256} // which every provider has
	}
	return &oidcProvider{
		oauth: oauth2.Config{ClientID: o.c.ClientID, ClientSecret: o.c.ClientSecret, Endpoint: endpoint, RedirectURL: o.c.Redirect, Scopes: o.c.Scopes},
		keys:  oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), o.client), more.Keys), // its requests end with the client's Timeout

		algorithms: algorithms, namesIssuer: more.NamesIssuer,
	}, nil
}

// pending opens the browser's cookie.
func (o *OIDC) pending(r *http.Request) (oidcPending, error) {
	none := fault.New(fault.CredentialMissing, "This browser has no sign-in under way, or it took longer than 10 minutes.").Try("%s", o.startAgain())
	cookies := r.CookiesNamed(o.cookie.Name)
	if len(cookies) != 1 { // a neighbouring host set the second one
		return oidcPending{}, none
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookies[0].Value)
	if err != nil {
		return oidcPending{}, none
	}
	plain, err := o.seal.Open(nil, nil, sealed, nil)
	if err != nil {
		return oidcPending{}, none
	}
	part := strings.Split(string(plain), " ") // as sealed wrote it
	until, err := strconv.ParseInt(part[3], 10, 64)
	if err != nil {
		return oidcPending{}, none
	}
	s := oidcPending{state: part[0], nonce: part[1], verifier: part[2], until: time.Unix(until, 0)}
	if !o.o.Clock().Before(s.until) {
		return oidcPending{}, none
	}
	return s, nil
}

// sealed is the cookie's value: authenticated and unreadable.
func (o *OIDC) sealed(s oidcPending) string {
	plain := strings.Join([]string{s.state, s.nonce, s.verifier, strconv.FormatInt(s.until.Unix(), 10)}, " ")
	return base64.RawURLEncoding.EncodeToString(o.seal.Seal(nil, nil, []byte(plain), nil))
}

// spend lets a sign-in come back with a code only once, however it ends. The provider refuses a code that was used even if it was forgotten here.
func (o *OIDC) spend(s oidcPending) error {
	now := o.o.Clock()
	o.spentMu.Lock()
	defer o.spentMu.Unlock()
	if _, again := o.spent[s.state]; again {
		return fault.New(fault.CredentialMissing, "This sign-in has been used already.").Try("%s", o.startAgain())
	}
	if len(o.spent) >= oidcMaxSpent {
		oldest := ""
		for state, until := range o.spent {
			if !now.Before(until) {
				delete(o.spent, state)
			} else if oldest == "" || until.Before(o.spent[oldest]) {
				oldest = state
			}
		}
		if len(o.spent) >= oidcMaxSpent {
			delete(o.spent, oldest)
		}
	}
	o.spent[s.state] = s.until
	return nil
}

func (o *OIDC) setCookie(w http.ResponseWriter, value string, age int) {
	c := o.cookie
	c.Value, c.MaxAge = value, age
	http.SetCookie(w, &c)
}

func (o *OIDC) startAgain() string { return "Sign in again, at " + o.origin + "." }

// unproven refuses an answer that does not prove who somebody is. Only the log says what exactly is wrong.
func (o *OIDC) unproven(cause error) error {
	return fault.Wrap(oidcCause(cause), fault.CredentialMissing, "The identity provider's answer does not prove who you are.").Try("%s", o.startAgain())
}

func oidcUnreachable(cause error) error {
	return fault.Wrap(oidcCause(cause), fault.UpstreamFailed, "The identity provider can't be reached or does not answer as it should; nobody can sign in with it now.").
		Try("Try again later, or sign in with a token.")
}

// oidcCause keeps of an error a line that a log can hold: the libraries quote what the provider sent.
func oidcCause(err error) error { return errors.New(display.Line(fmt.Sprint(err), 300)) }

// oidcErrorWord is the provider's error code if it is a standard one.
func oidcErrorWord(word string) string {
	if slices.Contains(oidcErrors, word) {
		return word
	}
	return "for a reason of its own"
}

func oidcHeaders(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer") // the callback's address has the code in it
}

// oidcQuery reads a callback: each parameter once.
func oidcQuery(r *http.Request) (map[string]string, error) {
	wrong := fault.New(fault.RequestMalformed, "This is not the answer of an identity provider.")
	if r.Method != http.MethodGet || len(r.URL.RawQuery) > oidcMaxQuery {
		return nil, wrong
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, wrong
	}
	q := make(map[string]string, len(values))
	for k, v := range values {
		if len(v) != 1 {
			return nil, wrong
		}
		q[k] = v[0]
	}
	return q, nil
}

// oidcText is a claim that is a string, else "".
func oidcText(claims json.RawMessage, name string) string {
	s, _ := call.GetText(claims, name)
	return s
}

// oidcMail tells whether s looks like a mail address of visible characters. It has no "|", which separates issuer and subject.
func oidcMail(s string) bool {
	at := strings.LastIndexByte(s, '@')
	return at > 0 && at < len(s)-1 && len(s) <= 254 && !strings.ContainsFunc(s, oidcInvisible) && !strings.Contains(s, "|")
}

// oidcInvisible tells whether c is anything but visible ASCII.
func oidcInvisible(c rune) bool { return c <= ' ' || c >= 0x7f }

// oidcAddress parses an absolute https address; http is good on loopback only, and only where plain allows it.
func oidcAddress(s string, plain bool) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, err
	}
	ip, err := netip.ParseAddr(u.Hostname())
	loopback := u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
	if u.Hostname() == "" || u.User != nil || strings.Contains(s, "#") || u.Scheme != "https" && !(u.Scheme == "http" && loopback && plain) {
		return nil, fmt.Errorf("%q is not an https address", display.Line(s, 100))
	}
	return u, nil
}

// oidcTransport reads an answer whole, within bounds. A GET (of the document or the keys) must succeed with status 200.
type oidcTransport struct{ next *http.Transport }

func (t oidcTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, oidcMaxAnswer))
	_ = resp.Body.Close() // read to its end, or given up
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet && resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %d", resp.StatusCode)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
