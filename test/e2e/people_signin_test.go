package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"sallyport.example/client"
)

// fixed gives the people's side of a place a port that stays over a restart.
func (p place) fixed(t testing.TB) (address string) {
	t.Helper()
	config, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	host := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	write(t, p.config, strings.Replace(string(config), "admin_listen: 127.0.0.1:0", "admin_listen: "+host, 1))
	return "http://" + host
}

// tab is another page of the same browser, signed in as the first one is: in a window of its own, or before the others.
func (b *browser) tab(window bool) *browser {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewWindow(window))
	b.t.Cleanup(cancel)
	n := &browser{t: b.t, ctx: ctx, script: true}
	if err := chromedp.Do(ctx); err != nil {
		b.t.Fatal(err)
	}
	n.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": watching})
	n.look("light", 1280)
	return n
}

// The link that serve prints signs in once, by the press of a button; the form takes a token, and nothing else.
func TestPeopleSignIn(t *testing.T) {
	t.Parallel()
	_, _, bank, mail := newServers(t)
	w := launch(t, newPlace(t, deskConfig(bank, mail, "")))
	printed := regexp.MustCompile(`http://\S+/login/link/\w+`)
	eventually(t, 10*time.Second, "serve prints a link", func() bool { return printed.MatchString(w.output.String()) })
	link := printed.FindString(w.output.String())
	if link == "" {
		t.Fatalf("no link in\n%s", w.output)
	}
	b, other := newBrowser(t), newBrowser(t)
	b.open(link)
	b.open(link) // looking uses nothing up
	b.accessible("link")
	b.click("button[type=submit]")
	b.see("Overview")
	b.see("admin")
	other.expect("status of 410", "status of 401")
	other.open(link)
	other.see("This link was used already")
	other.enter("#token", "spt_person_nobody")
	other.click("button[type=submit]")
	other.until("the token is refused", "location.pathname === '/login' && document.querySelector('#refused')")
	other.accessible("signin")
	other.unseen("Overview")

	// A page that was asked for is where the sign-in leads to.
	other.open(w.admin + "/approvals")
	other.see("Your token")
	other.enter("#token", w.tokenOf("bob", "approver"))
	other.click("button[type=submit]")
	other.at("/approvals")
	other.see("No request waits for an answer")

	// Signing out in one tab ends the other one's stream: it shows the sign-in by itself.
	tab := b.tab(true)
	tab.open(w.admin + "/approvals")
	tab.see("No request waits for an answer")
	b.click(".who button")
	b.see("Your token")
	w.offered(3)
	asksPeople(t, w.agentOf(revision1125, nil), "bank_transfer", pay(480))
	tab.see("Your token")
	tab.unseen("Transfer 4")
	other.see("Transfer 4") // who is signed in still sees it

	// Signing out everywhere ends the sign-ins of one's other browsers too, whose pages show it by themselves.
	b.expect("status of 401", "net::ERR_", "[object Event]")
	b.signIn(w, w.tokenOf("bob", "approver"))
	b.open(w.admin + "/approvals")
	b.see("Transfer 4")
	other.expect("[object Event]")
	third := b.tab(false)
	third.expect("status of 401", "net::ERR_", "[object Event]")
	third.open(w.admin + "/")
	third.see("Where you are signed in")
	third.click("form[action='/logout/everywhere'] button")
	third.see("Your token")
	b.see("Your token")
	other.see("Your token")
	other.unseen("Transfer 4")
	other.signIn(w, w.tokenOf("bob", "approver"))
	other.open(w.admin + "/approvals")

	// A token that is revoked ends the sign-in that was made with it.
	tokens, err := w.root.Tokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range tokens {
		if token.Kind == "person" && token.ID == "bob" {
			if err := w.root.RevokeToken(t.Context(), token.TokenID); err != nil {
				t.Fatal(err)
			}
		}
	}
	other.click("a.what")
	other.see("Your token")
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

// cut is a way to a listener that can be cut.
type cut struct {
	address string
	down    atomic.Bool
	mu      sync.Mutex // guards open
	open    map[net.Conn]bool
}

func newCut(t testing.TB, to string) *cut {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cut{address: "http://" + ln.Addr().String(), open: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
			if err != nil || c.down.Load() {
				_ = in.Close()
				if out != nil {
					_ = out.Close()
				}
				continue
			}
			c.mu.Lock()
			c.open[in], c.open[out] = true, true
			c.mu.Unlock()
			pass := func(a, b net.Conn) {
				_, _ = io.Copy(a, b) // ends when either side does
				_ = a.Close()
			}
			serving.Go(func() { pass(in, out) })
			serving.Go(func() { pass(out, in) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		c.cut()
		serving.Wait()
	})
	return c
}

func (c *cut) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Close()
	}
	clear(c.open)
}

// A page whose connection breaks comes back live by itself, with what it missed. A page whose gateway was started anew asks to sign in by
// itself, and is live again after that.
func TestPeopleReconnect(t *testing.T) {
	t.Parallel()
	_, _, bank, mail := newServers(t)
	p := newPlace(t, deskConfig(bank, mail, ""))
	address := p.fixed(t)
	w := startAt(t, p)
	w.offered(3)
	cs := w.agentOf(revision1125, nil)
	line := newCut(t, address)
	token := w.tokenOf("bob", "approver")

	b := newBrowser(t)
	b.expect(append(broken, "status of 401")...)
	b.open(line.address + "/approvals")
	b.enter("#token", token)
	b.click("button[type=submit]")
	b.see("No request waits for an answer")
	b.settle()
	line.down.Store(true)
	line.cut()
	asksPeople(t, cs, "bank_transfer", pay(480))
	w.waits(1)
	b.see("The gateway can’t be reached: this page may be old.")
	b.unseen("480 EUR")
	b.shot("stale")
	line.down.Store(false)
	b.see("480 EUR")
	b.unseen("can’t be reached")
	asksPeople(t, cs, "bank_transfer", pay(481))
	b.see("481 EUR")

	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w = startAt(t, p)
	w.offered(3)
	b.see("Your token") // by itself
	b.at("/approvals")
	b.enter("#token", token)
	b.click("button[type=submit]")
	b.at("/approvals")
	b.see("481 EUR")
	b.settle()
	asksPeople(t, w.agentOf(revision1125, nil), "bank_transfer", pay(482))
	b.see("482 EUR")
}

// Pages of other origins can neither answer nor show what is asked for, be they of another site or of another port only.
func TestPeopleOtherOrigins(t *testing.T) {
	d := newDesk(t, "")
	asksPeople(t, d.agentOf(revision1125, nil), "bank_transfer", pay(480))
	q := d.waits(1)[0]
	approve := d.admin + "/approvals/" + q.ApprovalID + "/approve"
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/form":
			fmt.Fprintf(w, `<form method="post" action="%s"><input name="digest" value="%s"><button>Win</button></form>`, approve, q.Digest)
		case "/fetch":
			fmt.Fprintf(w, `<body><script>fetch(%q, {method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams({digest: %q})})
				.then(() => document.body.append("sent"), e => document.body.append("refused " + e))</script>`, approve, q.Digest)
		case "/frame":
			fmt.Fprintf(w, `<iframe src="%s"></iframe>`, d.admin+"/approvals/"+q.ApprovalID)
		}
	}))
	t.Cleanup(evil.Close)
	b := d.ann()
	b.expect("status of 403", "frame-ancestors", "ERR_BLOCKED_BY_RESPONSE", "favicon.ico")
	for i, origin := range []string{evil.URL, strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)} {
		b.open(origin + "/form")
		b.click("button")
		b.see("A request of another origin's page is not accepted")
		b.open(origin + "/fetch")
		b.until("the request went out", said("sent")+"||"+said("refused"))
		b.open(origin + "/frame")
		eventually(t, patience, "the frame is refused", func() bool { return b.heard("frame-ancestors") == i+1 })
	}
	if open := d.waits(1); len(open[0].Votes) > 0 || len(d.bank.all()) > 0 {
		t.Errorf("%+v, transfers: %v", open[0], d.bank.all())
	}
	b.open(d.admin + "/approvals/" + q.ApprovalID) // the sign-in is as it was
	b.approve()
	b.see("You approved")
}

// provider is an identity provider on another site than the console, with a page that a person presses a button on.
type provider struct {
	*httptest.Server
	issuer string
	key    ed25519.PrivateKey
	email  string
	down   atomic.Bool // answers nothing but its page

	mu     sync.Mutex // guards grants
	grants map[string]url.Values
}

func newProvider(t testing.TB, email string) *provider {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key, email: email, grants: map[string]url.Values{}}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	p.issuer = strings.Replace(p.URL, "127.0.0.1", "localhost", 1) // another site, as browsers count
	return p
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	encode := base64.RawURLEncoding.EncodeToString
	answer := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // a client that went away is none of ours
	}
	if p.down.Load() && r.URL.Path != "/authorize" {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer(map[string]any{
			"issuer": p.issuer, "authorization_endpoint": p.issuer + "/authorize", "token_endpoint": p.issuer + "/token", "jwks_uri": p.issuer + "/keys",
			"id_token_signing_alg_values_supported": []string{"EdDSA"},
		})
	case "/keys":
		answer(map[string]any{"keys": []any{map[string]any{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": "1", "x": encode(p.key.Public().(ed25519.PublicKey))}}})
	case "/authorize":
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<!DOCTYPE html><title>Provider</title><link rel="icon" href="data:,"><form method="post">`)
			for name, values := range r.URL.Query() {
				fmt.Fprintf(w, `<input type="hidden" name="%s" value="%s">`, html.EscapeString(name), html.EscapeString(values[0]))
			}
			fmt.Fprint(w, `<button>Yes, it is me</button></form>`)
			return
		}
		code := rand.Text()
		_ = r.ParseForm()
		p.grants[code] = r.PostForm
		http.Redirect(w, r, r.PostForm.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {r.PostForm.Get("state")}}.Encode(), http.StatusSeeOther)
	case "/token":
		id, secret, _ := r.BasicAuth()
		g := p.grants[r.PostFormValue("code")]
		delete(p.grants, r.PostFormValue("code"))
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if id != "console" || secret != "secret-of-the-console" || g == nil || g.Get("code_challenge") != encode(sum[:]) || g.Get("redirect_uri") != r.PostFormValue("redirect_uri") {
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
			return
		}
		claims, _ := json.Marshal(map[string]any{ // of strings and numbers: encodes
			"iss": p.issuer, "sub": "1", "aud": id, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "nonce": g.Get("nonce"),
			"email": p.email, "email_verified": true,
		})
		signed := encode([]byte(`{"alg":"EdDSA","kid":"1"}`)) + "." + encode(claims)
		signed += "." + encode(ed25519.Sign(p.key, []byte(signed)))
		answer(map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "id_token": signed})
	default:
		http.NotFound(w, r)
	}
}

// Signing in with an identity provider of another site, whose page has a form: the console's cookie is SameSite=Strict, and a browser does
// not send it along the provider's redirect. With the provider down nobody new gets in.
func TestPeopleProvider(t *testing.T) {
	t.Parallel()
	idp := newProvider(t, "ann@example.com")
	_, _, bank, mail := newServers(t)
	p := newPlace(t, deskConfig(bank, mail, ""))
	address := p.fixed(t)
	config, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.config, string(config)+fmt.Sprintf("console: {public_url: %q, oidc: {issuer: %q, client_id: console, client_secret: secret-of-the-console}}\n", address, idp.issuer))
	w := startAt(t, p)
	w.offered(3)
	call := asksPeople(t, w.agentOf(revision1125, nil), "bank_transfer", pay(480))
	q := w.waits(1)[0]

	ann, other := newBrowser(t), newBrowser(t)
	in := func(b *browser) {
		b.open(w.admin)
		b.click(`a[href="/login/oidc"]`)
		b.see("Yes, it is me")
		b.click("button")
	}
	in(ann)
	ann.see("Sign out")
	ann.see("ann")
	ann.see("Needs you")

	idp.down.Store(true)
	other.expect("status of 502", "status of 503", "status of 401", "net::ERR_")
	in(other)
	other.see("Your token")
	other.unseen("Sign out")
	idp.CloseClientConnections()
	idp.Close()
	other.open(w.admin + "/approvals/" + q.ApprovalID)
	other.see("Your token")

	// Who is in already is known by the configuration, not by the provider; nobody else takes their place.
	ann.open(w.admin + "/approvals/" + q.ApprovalID)
	ann.approve()
	ann.see("You approved")
	if r := call.came(t); r.IsError {
		t.Errorf("%+v", r)
	}
	page, err := w.root.Approvals(t.Context(), client.ApprovalQuery{State: "spent"})
	if err != nil || len(page.Approvals) != 1 || page.Approvals[0].Votes[0].Person != "ann" {
		t.Errorf("%v %+v", err, page)
	}
}

// Each page that is live holds one of the six connections that a browser has to a host: however many tabs are open, the next one loads, and
// the one that is looked at is live.
func TestPeopleManyTabs(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cs := d.agentOf(revision1125, nil)
	first := d.ann()
	first.expect("[object Event]") // of the streams that were let go of
	tabs := []*browser{first}
	for range 8 {
		tab := first.tab(false)
		tab.open(d.admin + "/approvals")
		tab.see("No request waits for an answer")
		tabs = append(tabs, tab)
	}
	asksPeople(t, cs, "bank_transfer", pay(480))
	tabs[8].see("480 EUR")
	first.call("Page.bringToFront", nil)
	first.open(d.admin + "/approvals")
	first.see("480 EUR")
	asksPeople(t, cs, "bank_transfer", pay(481))
	first.see("481 EUR")
	tabs[4].call("Page.bringToFront", nil)
	tabs[4].see("481 EUR") // what happened while nobody looked
}
