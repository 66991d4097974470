// Package console is the web page of the people's side: one status page, rendered here, without scripts.
//
// Promises: nothing but the sign-in form is shown to who is not signed in; a sign-in is a person's token, checked again with every
// request, so that a revoked or expired token ends it; the cookie is random, opens nothing elsewhere and is good for 12 hours; every
// string that an agent or a server made is escaped for HTML and shown without what could hide or reorder text.
package console

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport/internal/audit"
	"sallyport/internal/fault"
	"sallyport/internal/gateway"
	"sallyport/internal/identity"
	"sallyport/internal/session"
	"sallyport/internal/threat"
)

const (
	cookieName  = "sallyport_console"
	signInTime  = 12 * time.Hour
	maxSignIns  = 1000 // the oldest goes
	maxForm     = 4 << 10
	shownLength = 300 // bytes of one string of somebody else's
)

// Page is what the status page shows.
type Page struct {
	Version string
	Now     time.Time
	Person  identity.Principal

	Viewer, Auditor, Switches bool // which parts the person may see
	Missing                   []string

	Kill     gateway.Switches
	Servers  []Server
	Sessions []session.Session // newest first
	Waiting  []gateway.Tool
	Entries  []audit.Entry // oldest first
}

// Server is an upstream server.
type Server struct {
	ID, State   string
	Definitions int
	LastError   string
}

// Options is what a Console is made with. Every field is needed.
type Options struct {
	Version string
	Log     *slog.Logger
	Clock   func() time.Time
	// Authenticate tells which person a token stands for. It answers from memory.
	Authenticate func(secret string) (identity.Principal, error)
	// Collect gathers what the person may see.
	Collect func(ctx context.Context, p identity.Principal) Page
}

// Console serves "/", "/style.css", "/login" and "/logout".
type Console struct {
	o Options

	mu      sync.Mutex // guards signIns
	signIns map[string]signIn
}

// signIn keeps the token itself, in memory only: asking with it again is how a revocation ends a sign-in.
type signIn struct {
	secret string
	until  time.Time
}

// New returns a Console in which nobody is signed in.
func New(o Options) *Console { return &Console{o: o, signIns: map[string]signIn{}} }

//go:embed style.css
var style []byte

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"p":     func(s any) string { return threat.Printable(fmt.Sprint(s), shownLength) },
	"at":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"short": func(hash string) string { return hash[:min(12, len(hash))] },
}).Parse(pageText))

// ServeHTTP implements http.Handler. Transport (origin, host, path) is the caller's.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	switch r.URL.Path {
	case "/style.css":
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(style) // a client that is gone needs no answer
	case "/login":
		c.login(w, r)
	case "/logout":
		c.logout(w, r)
	default:
		if p, ok := c.Principal(r); ok {
			v := c.o.Collect(r.Context(), p)
			v.Version, v.Now, v.Person = c.o.Version, c.o.Clock().UTC(), p
			slices.Reverse(v.Entries)
			c.render(w, http.StatusOK, view{Page: &v})
			return
		}
		c.render(w, http.StatusOK, view{})
	}
}

// view is the status page, or without one the sign-in form.
type view struct {
	*Page
	Refused string // why the sign-in failed
}

func (c *Console) render(w http.ResponseWriter, status int, v view) {
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		panic(err) // the transport's recover answers
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // a client that is gone needs no answer
}

// Principal tells who the request's cookie stands for, if it stands for anybody still.
func (c *Console) Principal(r *http.Request) (identity.Principal, bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return identity.Principal{}, false
	}
	c.mu.Lock()
	s, ok := c.signIns[cookie.Value]
	if ok && !c.o.Clock().Before(s.until) {
		delete(c.signIns, cookie.Value)
		ok = false
	}
	c.mu.Unlock()
	if !ok {
		return identity.Principal{}, false
	}
	p, err := c.o.Authenticate(s.secret)
	return p, err == nil
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	refuse := func(status int, why string) { c.render(w, status, view{Refused: why}) }
	if err := r.ParseForm(); err != nil {
		refuse(http.StatusBadRequest, "The form could not be read.")
		return
	}
	secret, ok := identity.Bearer("Bearer " + strings.TrimSpace(r.PostForm.Get("token")))
	if !ok {
		refuse(http.StatusUnauthorized, "That is not a token of this gateway. It begins with spt_person_.")
		return
	}
	p, err := c.o.Authenticate(secret)
	if err != nil {
		e := fault.Of(err)
		refuse(e.Code.HTTPStatus(), e.Public())
		return
	}
	id, until := rand.Text(), c.o.Clock().Add(signInTime)
	c.mu.Lock()
	c.makeRoom()
	c.signIns[id] = signIn{secret: secret, until: until}
	c.mu.Unlock()
	c.o.Log.Info("signed in to the console", "person", p.ID)
	c.cookie(w, r, id, int(signInTime/time.Second))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// makeRoom drops what is over and, if that is not enough, the sign-in that ends first. It holds c.mu.
func (c *Console) makeRoom() {
	now := c.o.Clock()
	first := ""
	for id, s := range c.signIns {
		if !now.Before(s.until) {
			delete(c.signIns, id)
		} else if first == "" || s.until.Before(c.signIns[first].until) {
			first = id
		}
	}
	if len(c.signIns) >= maxSignIns {
		delete(c.signIns, first)
	}
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		c.mu.Lock()
		delete(c.signIns, cookie.Value)
		c.mu.Unlock()
	}
	c.cookie(w, r, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (c *Console) cookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
}
