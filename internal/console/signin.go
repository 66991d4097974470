package console

import (
	"crypto/rand"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/web"
)

const (
	cookieName  = "sallyport_console" // __Host-sallyport_console where it is Secure: no other host of the domain can set that
	signInTime  = 12 * time.Hour
	maxSignIns  = 1000 // the one that ends first is dropped
	ownSignIns  = 20   // of one person, so that nobody pushes out others; the one that ends first is dropped
	maxSignForm = 4 << 10

	linkTime      = 10 * time.Minute
	maxLinks      = 200
	linksOfPerson = 5
)

// grant lets a person in for a time.
type grant struct {
	person string
	until  time.Time
}

func (g grant) granted() grant { return g }

// signIn is one browser that is signed in. Who it is is asked again each time, so that a revocation ends it.
type signIn struct {
	grant
	who func() (identity.Principal, error) // answers from memory
}

// signInLink signs one browser in, once. It keeps the token itself, in memory only.
type signInLink struct {
	grant
	secret string
}

// signPage holds the contents of the sign-in page.
type signPage struct {
	Next    string // the path to go to afterwards
	Refused string // why the sign-in failed
	OIDC    bool   // an identity provider is configured
}

// Principal returns the person that the request's cookie stands for; false without a valid sign-in.
func (c *Console) Principal(r *http.Request) (identity.Principal, bool) {
	id := c.cookieOf(r)
	c.mu.Lock()
	s, ok := c.signIns[id]
	if ok && !c.o.Clock().Before(s.until) {
		delete(c.signIns, id)
		ok = false
	}
	c.mu.Unlock()
	if !ok {
		return identity.Principal{}, false
	}
	p, err := s.who()
	return p, err == nil && c.outside(r) == nil
}

// secure tells whether the browser reaches the console, or a proxy before it, by https.
func (c *Console) secure(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(c.o.Public, "https://")
}

func (c *Console) cookieName(r *http.Request) string {
	if c.secure(r) {
		return "__Host-" + cookieName
	}
	return cookieName
}

// cookieOf is the value of the request's cookie, "" without one. Of two cookies one was set by a neighbour (another port, another host of the
// domain), which must not choose who answers, so neither counts.
func (c *Console) cookieOf(r *http.Request) string {
	cookies := r.CookiesNamed(c.cookieName(r))
	if len(cookies) != 1 {
		return ""
	}
	return cookies[0].Value
}

// requireSignIn shows the sign-in form in place of a page. Somebody who follows a link from mail or chat comes without the cookie, which is
// SameSite=Strict, even if they are signed in. They are sent to the same page once more, from here, and then the browser sends the cookie.
func (c *Console) requireSignIn(w http.ResponseWriter, r *http.Request) {
	next := "/"
	if r.Method == http.MethodGet && r.URL.Path != "/events" {
		next = localPath(r.URL.RequestURI())
	}
	loadsPart := r.Header.Get("HX-Request") != ""
	asksAgain := r.Method != http.MethodPost && !loadsPart && r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	asksForIt := r.Method != http.MethodPost && !loadsPart && r.URL.Path == "/"
	if !asksAgain && !asksForIt { // there the sign-in page is what was asked for, or the next request brings the cookie
		c.record(r, identity.Principal{}, fault.New(fault.CredentialMissing, "Nobody is signed in, or the sign-in is over."))
	}
	switch {
	case r.URL.Path == "/events" && r.Header.Get("Accept") == "text/event-stream": // the page was open when the gateway restarted
		sendReload(w)
	case loadsPart: // htmx asks for a part of a page whose sign-in is over: the browser loads the whole page again
		w.Header().Set("HX-Refresh", "true")
		c.signInPage(w, http.StatusUnauthorized, signPage{Next: "/"})
	case r.Method == http.MethodPost:
		c.signInPage(w, http.StatusUnauthorized, signPage{Next: next, Refused: "You are not signed in any more; nothing was done."})
	case asksAgain:
		c.render(w, view{template: "again", title: "One moment", data: next}, frame{Again: next})
	case r.URL.Path == "/":
		c.signInPage(w, http.StatusOK, signPage{Next: next})
	default:
		c.signInPage(w, http.StatusUnauthorized, signPage{Next: next})
	}
}

// refuseSignIn shows why a sign-in failed, and puts it on record. Without a kind, nobody knows who tried.
func (c *Console) refuseSignIn(w http.ResponseWriter, r *http.Request, p identity.Principal, next string, err error) {
	c.record(r, p, err)
	c.signInPage(w, web.Status(err), signPage{Next: localPath(next), Refused: fault.Of(err).Public()})
}

func (c *Console) signInPage(w http.ResponseWriter, status int, s signPage) {
	s.OIDC = c.o.OIDC != nil
	c.render(w, view{template: "signin", title: "Sign in", status: status, data: s}, frame{})
}

// localPath returns s if it is a path of this console, and "/" for anything that a browser could take for another address.
func localPath(s string) string {
	if len(s) > 1000 || !strings.HasPrefix(s, "/") || strings.HasPrefix(s, "//") || strings.ContainsFunc(s, func(r rune) bool { return r == '\\' || r <= ' ' || r > '~' }) {
		return "/"
	}
	return s
}

// signOutsSoFar counts how often people have signed out everywhere. A sign-in compares it with the count when it began.
func (c *Console) signOutsSoFar() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signOuts
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	began := c.signOutsSoFar()
	if err := web.Form(w, r, maxSignForm); err != nil {
		c.signInPage(w, web.Status(err), signPage{Next: "/", Refused: fault.Of(err).Public()})
		return
	}
	next := localPath(r.PostForm.Get("next"))
	secret, ok := identity.Bearer("Bearer " + strings.TrimSpace(r.PostForm.Get("token")))
	if !ok {
		c.refuseSignIn(w, r, identity.Principal{}, next, fault.New(fault.CredentialMissing, "That is not a token of this gateway. It begins with spt_person_."))
		return
	}
	p, err := c.o.Authenticate(secret)
	if err == nil && c.o.TokenSignIn != nil {
		err = c.o.TokenSignIn()
	}
	if err != nil {
		c.refuseSignIn(w, r, p, next, err)
		return
	}
	c.signInAs(w, r, began, func() (identity.Principal, error) { return c.o.Authenticate(secret) }, next)
}

// signInAs signs the browser in as the person that who returns, now and at every later request, and redirects it to next, a path of this console.
// It refuses if that person has signed out everywhere since the sign-in began.
func (c *Console) signInAs(w http.ResponseWriter, r *http.Request, began uint64, who func() (identity.Principal, error), next string) {
	p, err := who()
	if err == nil {
		err = c.outside(r)
	}
	if err != nil {
		c.refuseSignIn(w, r, p, next, err)
		return
	}
	id, until := rand.Text(), c.o.Clock().Add(signInTime)
	c.mu.Lock()
	if c.signedOut[p.ID] > began {
		c.mu.Unlock()
		c.refuseSignIn(w, r, p, next, fault.New(fault.CredentialMissing, "You signed out everywhere while this sign-in was under way. Sign in again."))
		return
	}
	delete(c.signIns, c.cookieOf(r))
	makeRoom(c.signIns, p.ID, ownSignIns, maxSignIns, c.o.Clock())
	c.signIns[id] = signIn{grant: grant{p.ID, until}, who: who}
	c.mu.Unlock()
	c.o.Log.Info("signed in to the console", "person", p.ID)
	c.cookie(w, r, id, int(signInTime/time.Second))
	http.Redirect(w, r, localPath(next), http.StatusSeeOther)
}

// makeRoom drops expired grants. If the person, or everybody together, still has too many for another one, it drops the one that ends first.
func makeRoom[C interface{ granted() grant }](all map[string]C, person string, ownMax, allMax int, now time.Time) {
	own, first, firstOwn := 0, "", ""
	sooner := func(a, b string) string { // of two ids, "" for none
		if a == "" || all[b].granted().until.Before(all[a].granted().until) {
			return b
		}
		return a
	}
	for id, one := range all {
		if !now.Before(one.granted().until) {
			delete(all, id)
			continue
		}
		if first = sooner(first, id); one.granted().person == person {
			own, firstOwn = own+1, sooner(firstOwn, id)
		}
	}
	if own >= ownMax {
		delete(all, firstOwn)
	} else if len(all) >= allMax {
		delete(all, first)
	}
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	delete(c.signIns, c.cookieOf(r))
	c.mu.Unlock()
	c.cookie(w, r, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// signedIn is one sign-in as its person sees it.
type signedIn struct {
	Since time.Time
	Here  bool // this browser's own
}

// signInsOf lists the sign-ins of a person that are still good, newest first.
func (c *Console) signInsOf(r *http.Request, person string) (all []signedIn) {
	here, now := c.cookieOf(r), c.o.Clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.signIns {
		if s.person == person && now.Before(s.until) {
			all = append(all, signedIn{Since: s.until.Add(-signInTime), Here: id == here})
		}
	}
	slices.SortFunc(all, func(a, b signedIn) int { return b.Since.Compare(a.Since) })
	return all
}

// logoutEverywhere ends every sign-in of the person, also those under way, and the links that would make another. Tokens are not touched: whoever has one can sign
// in again until it is revoked.
func (c *Console) logoutEverywhere(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.mu.Lock()
	c.signOuts++
	c.signedOut[p.ID] = c.signOuts
	ended := len(c.signIns)
	maps.DeleteFunc(c.signIns, func(_ string, s signIn) bool { return s.person == p.ID })
	maps.DeleteFunc(c.links, func(_ string, l signInLink) bool { return l.person == p.ID })
	ended -= len(c.signIns)
	c.mu.Unlock()
	c.o.Log.Info("signed out of the console everywhere", "person", p.ID, "sign_ins", ended)
	c.cookie(w, r, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (c *Console) cookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: c.cookieName(r), Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.secure(r),
	})
}

// oidcCallback signs in whoever the identity provider says it is. Roles are the configuration's, asked for anew with each request.
func (c *Console) oidcCallback(w http.ResponseWriter, r *http.Request) {
	began := c.signOutsSoFar()
	id, err := c.o.OIDC.Finish(w, r)
	if err != nil {
		c.refuseSignIn(w, r, identity.Principal{}, "/", err)
		return
	}
	c.signInAs(w, r, began, func() (identity.Principal, error) { return c.o.Person(id) }, "/")
}

// Link makes a one-time link for the person whose token this is: a path, under the console's address, of a page with one button. It is good
// until expires, once. Errors are those of the token, fault.CredentialMissing and its like.
func (c *Console) Link(secret string) (path string, expires time.Time, err error) {
	p, err := c.o.Authenticate(secret)
	if err != nil {
		return "", time.Time{}, err
	}
	code, now := rand.Text(), c.o.Clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	makeRoom(c.links, p.ID, linksOfPerson, maxLinks, now)
	expires = now.Add(linkTime).UTC()
	c.links[code] = signInLink{grant{p.ID, expires}, secret}
	return "/login/link/" + code, expires, nil
}

// linkForm only shows who would be signed in, so that a program that fetches a link to preview it does not use it up.
func (c *Console) linkForm(w http.ResponseWriter, r *http.Request) {
	code := r.PathValue("code")
	c.mu.Lock()
	l, ok := c.links[code]
	c.mu.Unlock()
	if !ok || !c.o.Clock().Before(l.until) {
		c.deadLink(w, r)
		return
	}
	c.render(w, view{template: "link", title: "Sign in", data: struct{ Code, Person string }{code, l.person}}, frame{})
}

func (c *Console) useLink(w http.ResponseWriter, r *http.Request) {
	code := r.PathValue("code")
	c.mu.Lock()
	l, ok := c.links[code]
	delete(c.links, code)
	began := c.signOuts // from here on signing out everywhere no longer finds the link
	c.mu.Unlock()
	if !ok || !c.o.Clock().Before(l.until) {
		c.deadLink(w, r)
		return
	}
	c.signInAs(w, r, began, func() (identity.Principal, error) { return c.o.Authenticate(l.secret) }, "/")
}

func (c *Console) deadLink(w http.ResponseWriter, r *http.Request) {
	c.record(r, identity.Principal{}, fault.New(fault.CredentialMissing, "The one-time link is not good, or not any more."))
	c.signInPage(w, http.StatusGone, signPage{Next: "/", Refused: "This link was used already, or is older than ten minutes. Make a new one with sallyport token link, or sign in with your token."})
}
