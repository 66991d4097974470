// Package console is where people see what agents ask for, and answer: pages rendered here, which work without scripts and are kept up to
// date by htmx where there are any.
//
// Promises: nothing but the sign-in is shown to who is not signed in; who may see or do what stands in one table (routes) and demands what
// the HTTP API demands for the same; a sign-in is checked again with every request and while a stream of events runs, so that a revoked
// token ends it; the cookie is random, opens nothing elsewhere and is good for 12 hours; a one-time link opens once, within ten minutes, and
// only by a press of a button. Every string that an agent or a server made is escaped, and shown without what could hide or reorder text;
// what is asked for is shown whole, and an answer counts only for the digest that was on the page. Nothing is answered by a GET.
//
// Pages load nothing from elsewhere, and no script or style stands in them. The files under /static carry a hash of their bytes in their
// names and may be kept for ever; everything else may not be kept at all.
package console

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/anchor"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge/collect"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/runner"
	"sallyport.example/internal/search"
	"sallyport.example/internal/session"
	"sallyport.example/internal/threat"
	"sallyport.example/internal/web"
)

// contentPolicy is the Content-Security-Policy of every page.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// ServerStatus is an upstream server and its state. Name, Version and Instructions are its own words: hostile text.
type ServerStatus struct {
	ID           string    `json:"id"`
	State        string    `json:"state"`
	Protocol     string    `json:"protocol,omitempty"`
	Name         string    `json:"name,omitempty"`
	Version      string    `json:"version,omitempty"`
	Instructions string    `json:"instructions,omitempty"`
	LastError    string    `json:"last_error,omitempty"`
	Restarts     int       `json:"restarts"`
	Definitions  int       `json:"definitions"`
	Tools        int       `json:"tools"`
	Usable       int       `json:"usable"`             // of the tools, as far as the catalogue says
	Unusable     []string  `json:"unusable,omitempty"` // why not the others
	Sandbox      string    `json:"sandbox,omitempty"`  // of a server that the gateway starts: full, partial or none
	Since        time.Time `json:"since"`
	// Suspicions are texts in its own words that look like an order, or are hidden.
	Suspicions []threat.Suspicion `json:"suspicions,omitempty"`
}

// Deliveries is the state of one channel of messages to people. LastError can have the receiver's words in it.
type Deliveries struct {
	Kind, Target             string // "webhook", and the host
	Owed, GivenUp            int64
	LastError                string
	LastFailure, LastSuccess time.Time
}

// Change is a change of the configuration, or of an agent's declaration, that a start or a reload found.
type Change struct {
	Index int64 // of its entry
	At    time.Time
	Agent string // "": the configuration
	Text  string // which fields
}

// Store is what pages read besides the gateway. Changes go through the gateway.
type Store interface {
	Size(ctx context.Context) (int64, error)
	Entries(ctx context.Context, f audit.Filter) (page []audit.Entry, next int64, err error)
	Archived(f audit.Filter) *audit.Archived
	Entry(ctx context.Context, index int64) (audit.Entry, []byte, error)
	Checkpoint(ctx context.Context) ([]byte, error)
	Inclusion(ctx context.Context, index, size int64) (audit.Inclusion, error)
	Consistency(ctx context.Context, from, size int64) (audit.Consistency, error)
	SessionsPage(ctx context.Context, after string, limit int, state session.State) (session.Page, error)
	// Ready tells whether writes are taken.
	Ready(ctx context.Context) error
}

// Options are the options of New. Every field but OIDC, Public, Deliveries, Counters, Search, Anchor, Changes, Configuration, Reload and Labels is needed.
type Options struct {
	Version string
	Log     *slog.Logger
	Clock   func() time.Time
	Gateway *gateway.Gateway
	// Refused puts on record that somebody was turned away. It does not wait for the store.
	Refused   func(a gateway.Attempt, v fault.Verdict)
	Store     Store
	Agents    func() agent.Set // those that are declared now
	Approved  *approved.Book   // which of their declarations people approved
	Runs      *runner.Runner   // of agents
	Upstreams func() []ServerStatus
	// Deliveries returns the state of each channel of messages to people; nil: none are sent.
	Deliveries func(ctx context.Context) ([]Deliveries, error)
	Counters   *monitor.Counters // what happened, by the hour; nil: nobody counts
	Search     *search.Log       // finds entries; nil: nothing is found by content
	// Anchor tells how the log stands to what is kept of it outside the data directory; nil: nothing is.
	Anchor func(ctx context.Context) anchor.Status
	// Changes returns what starts and reloads changed lately, in configuration and declarations, the newest first; nil: nothing is known.
	Changes func() []Change
	// Configuration says what is in force, and Reload reads it again. Both nil: there is no file.
	Configuration func() Configuration
	Reload        func(ctx context.Context, by string) (Reloaded, error)
	// Source is the log as it is now, to be verified.
	Source func(ctx context.Context) (audit.Source, error)
	// Authenticate returns the person that a token stands for. It answers from memory.
	Authenticate func(secret string) (identity.Principal, error)
	// Public is the address that people reach the console at ("https://sallyport.example"), or "".
	Public string
	OIDC   *OIDC // nil: people sign in with tokens and links alone
	// Person is the person of the configuration with the id, with the roles of today. It answers from memory. OIDC needs it.
	Person func(id string) (identity.Principal, error)
	// Outside refuses a request by a program of a governed session; nil: nobody looks. It is asked once a credential is good.
	Outside func(r *http.Request) error
	// TokenSignIn refuses sign-ins by a token alone; nil: they are taken.
	TokenSignIn func() error
	Library     *library.Library   // the knowledge store
	Collector   *collect.Collector // fetches what people add to it by its address
	Labels      LabelDesk          // proposes labels from recorded work; nil: nothing can be added to
	// Closing ends the streams of events once it is closed.
	Closing <-chan struct{}
}

// Console is the pages. Make it with New.
type Console struct {
	o         Options
	templates *template.Template
	usage     usage
	beat      time.Duration // between two comments that keep a stream alive

	mu        sync.Mutex // guards what follows
	signIns   map[string]signIn
	links     map[string]signInLink
	signOuts  uint64               // how many times people signed out everywhere
	signedOut map[string]uint64    // the number of each person's last one
	streams   map[string]int       // open ones, by person
	pages     map[string][]*stream // open ones of pages, by sign-in, the oldest first
}

// Readers are the roles that look at what agents do and ask for, and are notified of changes, as in the HTTP API: who answers, operates or
// audits has to see what it is about. The log is the auditors' alone.
var Readers = []identity.Role{identity.Viewer, identity.Approver, identity.Operator, identity.Auditor}

// reads tells whether the person is one of them.
func reads(p identity.Principal) bool { return slices.ContainsFunc(Readers, p.Has) }

// route is one page or act. Only this table says who may use it.
type route struct {
	method, path string
	roles        []identity.Role // of which a person needs one; none: any person
	handle       handler
}

// handler serves a page or an act for who is signed in.
type handler = func(c *Console, w http.ResponseWriter, r *http.Request, p identity.Principal)

// page serves a page that can also show what became of an act, without one.
func page[P any](show func(c *Console, w http.ResponseWriter, r *http.Request, p identity.Principal, page P, status int)) handler {
	return func(c *Console, w http.ResponseWriter, r *http.Request, p identity.Principal) {
		var empty P
		show(c, w, r, p, empty, http.StatusOK)
	}
}

// routes are the pages and acts that need a sign-in.
func routes() []route {
	approver := []identity.Role{identity.Approver}
	operator := []identity.Role{identity.Operator}
	auditor := []identity.Role{identity.Auditor}
	starter := []identity.Role{identity.Operator, identity.Approver}
	return []route{
		{"GET", "/{$}", nil, (*Console).overview},
		{"GET", "/events", Readers, (*Console).events},
		{"POST", "/logout/everywhere", nil, (*Console).logoutEverywhere},
		{"POST", "/kill", operator, (*Console).kill},
		{"POST", "/unkill", operator, (*Console).unkill},
		{"POST", "/reload", []identity.Role{identity.Admin}, (*Console).reload},
		{"POST", "/breakers/reset", operator, (*Console).resetBreaker},

		{"GET", "/approvals", Readers, (*Console).approvals},
		{"GET", "/approvals/count", Readers, (*Console).waitingCount},
		{"GET", "/approvals/plans", Readers, (*Console).plansWaiting},
		{"GET", "/approvals/{id}", Readers, (*Console).approval},
		{"POST", "/approvals/{id}/approve", approver, (*Console).approve},
		{"POST", "/approvals/{id}/reject", approver, (*Console).reject},
		{"POST", "/approvals/{id}/defer", approver, (*Console).putOff},
		{"GET", "/approvals/{id}/modify", approver, (*Console).modifyForm},
		{"POST", "/approvals/{id}/modify", approver, (*Console).modify},
		{"GET", "/approvals/{id}/similar", Readers, page((*Console).showSimilar)},
		{"POST", "/approvals/{id}/similar", approver, (*Console).answerSimilar},

		{"GET", "/sessions", Readers, (*Console).sessions},
		{"GET", "/sessions/{id}", Readers, page((*Console).showSession)},
		{"POST", "/sessions/{id}/release", operator, (*Console).release},
		{"POST", "/sessions/{id}/phase", operator, (*Console).setPhase},
		{"POST", "/sessions/{id}/close", operator, (*Console).closeSession},
		{"POST", "/sessions/{id}/plan/approve", operator, decidePlan(true)},
		{"POST", "/sessions/{id}/plan/reject", operator, decidePlan(false)},

		{"GET", "/tools", Readers, (*Console).tools},
		{"GET", "/tools/unread", Readers, page((*Console).showUnread)},
		{"POST", "/tools/unread/accept", operator, (*Console).acceptUnread},
		{"GET", "/tools/labels", operator, page((*Console).showLabels)},
		{"POST", "/tools/labels", operator, (*Console).takeLabels},
		{"GET", "/tools/rules", Readers, page((*Console).showTuning)},
		{"POST", "/tools/rules", operator, (*Console).tryRules},
		{"GET", "/tools/stored", Readers, page((*Console).showStored)},
		{"POST", "/tools/stored/{id}/release", operator, (*Console).releaseStored},
		{"GET", "/tools/{operation}", Readers, page((*Console).showTool)},
		{"POST", "/tools/{operation}/accept", operator, (*Console).acceptTool},

		{"GET", "/agents", Readers, (*Console).agents},
		{"GET", "/agents/{id}", Readers, page((*Console).showAgent)},
		{"POST", "/agents/{id}/kill", operator, (*Console).killAgent},
		{"POST", "/agents/{id}/unkill", operator, (*Console).unkillAgent},
		{"POST", "/agents/{id}/quarantine", operator, (*Console).quarantineAgent},
		{"POST", "/agents/{id}/restore", operator, (*Console).restoreAgent},
		{"POST", "/agents/{id}/next", operator, (*Console).orderNext},
		{"POST", "/agents/{id}/approve", approver, (*Console).approveAgent},

		{"POST", "/agents/{id}/runs", starter, (*Console).startRun},
		{"GET", "/models", Readers, (*Console).models},
		{"GET", "/runs", Readers, (*Console).runs},
		{"GET", "/runs/{id}", Readers, page((*Console).showRun)},
		{"POST", "/runs/{id}/cancel", starter, (*Console).cancelRun},
		{"GET", "/recommendations", Readers, (*Console).recommendations},
		{"GET", "/recommendations/{id}", Readers, page((*Console).showRecommendation)},
		{"POST", "/recommendations/{id}/approve", approver, (*Console).approveRecommendation},
		{"POST", "/recommendations/{id}/reject", approver, (*Console).rejectRecommendation},
		{"POST", "/recommendations/{id}/defer", approver, (*Console).deferRecommendation},
		{"GET", "/knowledge", Readers, page((*Console).showKnowledge)},
		{"POST", "/knowledge/add", operator, (*Console).addDocuments},
		{"POST", "/knowledge/snapshots", operator, (*Console).snapshotNow},
		{"POST", "/knowledge/withdraw", operator, (*Console).withdraw},
		{"GET", "/knowledge/{id}", Readers, page((*Console).showDocument)},
		{"POST", "/knowledge/{id}/versions", operator, (*Console).addVersion},
		{"POST", "/knowledge/{id}/delete", operator, deleteDocument},
		{"POST", "/knowledge/{id}/restore", operator, restoreDocument},
		{"POST", "/knowledge/{id}/labels", operator, labelDocument},
		{"POST", "/knowledge/{id}/erase", []identity.Role{identity.Admin}, eraseDocument},

		{"GET", "/security", Readers, page((*Console).showSecurity)},
		{"POST", "/security/{id}/acknowledge", operator, answerAlert(false)},
		{"POST", "/security/{id}/resolve", operator, answerAlert(true)},

		{"GET", "/audit", auditor, (*Console).auditSearch},
		{"GET", "/audit/download", auditor, (*Console).auditDownload},
		{"GET", "/audit/screening", auditor, page((*Console).showScreening)},
		{"POST", "/audit/{index}/judge", auditor, (*Console).judgeScreened},
		{"GET", "/audit/{index}", auditor, (*Console).entry},
		{"POST", "/audit/{index}/verify", auditor, (*Console).verifyEntry},
	}
}

// places are the entries of the navigation, in their order.
var places = []place{
	{"/", "Overview", nil},
	{"/approvals", "Approvals", Readers},
	{"/sessions", "Sessions", Readers},
	{"/tools", "Tools", Readers},
	{"/agents", "Agents", Readers},
	{"/models", "Models", Readers},
	{"/runs", "Runs", Readers},
	{"/knowledge", "Knowledge", Readers},
	{"/security", "Security", Readers},
	{"/audit", "Audit", []identity.Role{identity.Auditor}},
}

// inSight is how many of them stand beside the menu on a phone.
const inSight = 2

type place struct {
	Path, Name string
	roles      []identity.Role
}

// placeLink is one of them as a page shows it.
type placeLink struct {
	place
	Here    bool   // the page belongs to it
	Waiting string // how many approvals and plans wait
}

//go:embed templates/*.html
var templates embed.FS

// New returns a Console in which nobody is signed in.
func New(o Options) *Console {
	if o.Search == nil {
		o.Search = search.New(o.Store, nil)
	}
	c := &Console{o: o, beat: 15 * time.Second, signIns: map[string]signIn{}, links: map[string]signInLink{}, signedOut: map[string]uint64{}, streams: map[string]int{}, pages: map[string][]*stream{}}
	c.templates = template.Must(template.New("").Funcs(c.words()).ParseFS(templates, "templates/*.html"))
	return c
}

func (c *Console) outside(r *http.Request) error {
	if c.o.Outside == nil {
		return nil
	}
	return c.o.Outside(r)
}

// Register passes the handler of every page to handle with its pattern. The caller serves them through a web.Face.
func (c *Console) Register(handle func(pattern string, h http.Handler)) {
	page := func(method, path string, h http.HandlerFunc) {
		handle(method+" "+path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", contentPolicy)
			h(w, r)
		}))
	}
	for _, rt := range routes() {
		page(rt.method, rt.path, func(w http.ResponseWriter, r *http.Request) {
			p, ok := c.Principal(r)
			if !ok {
				c.requireSignIn(w, r)
				return
			}
			if len(rt.roles) > 0 && !slices.ContainsFunc(rt.roles, p.Has) {
				c.fail(w, r, p, fault.New(fault.RoleMissing, "This needs the role %s; you have %s.", identity.RoleWords(rt.roles, " or "), cmp.Or(identity.RoleWords(p.Roles, ", "), "none")).Try("Ask an admin for it."))
				return
			}
			if r.Method == http.MethodPost && !slices.Contains(readsBody, rt.path) {
				if err := web.Form(w, r, maxForm); err != nil {
					c.fail(w, r, p, err)
					return
				}
			}
			rt.handle(c, w, r, p)
		})
	}
	page("POST", "/login", c.login)
	page("POST", "/logout", c.logout)
	page("GET", "/login/link/{code}", c.linkForm)
	page("POST", "/login/link/{code}", c.useLink)
	if c.o.OIDC != nil {
		page("GET", "/login/oidc", c.o.OIDC.Begin)
		page("GET", "/login/oidc/callback", c.oidcCallback)
	}
	page("GET", "/static/{file}", serveStatic)
}

// link is an address with those of the parameters, given as name and value, that have a value.
func link(path string, parameters ...string) string {
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			query.Set(parameters[i], parameters[i+1])
		}
	}
	return strings.TrimSuffix(path+"?"+query.Encode(), "?")
}

// maxForm bounds a form. The changed arguments of an approval fit, escaped.
const maxForm = 13 << 20

// view is one page: a template and its data.
type view struct {
	template string
	title    string
	place    string // the path of its place in the navigation
	status   int    // 0: 200
	waits    *int64 // how much waits for an answer; nil: it is counted
	data     any
}

// frame is the data of the layout around every page.
type frame struct {
	Title, Version string
	Now            time.Time
	Person         *identity.Principal // nil: nobody is signed in
	Live           bool                // it gets events about changes
	Places, More   []placeLink         // where the person may go. On a phone, those of More are in a menu
	Elsewhere      string              // the name of the one in More that this page belongs to, or ""
	Waiting        string              // how many approvals and plans wait; "" if the person may not see them
	Observing      string              // that the gateway only observes, or ""
	Again          string              // the path that the browser is sent to at once, or ""
	Body           template.HTML
}

// show renders a page for who is signed in.
func (c *Console) show(w http.ResponseWriter, r *http.Request, p identity.Principal, v view) {
	f := frame{Person: &p, Live: reads(p)}
	if f.Live && v.waits != nil {
		f.Waiting = strconv.FormatInt(*v.waits, 10)
	} else if f.Live {
		f.Waiting = c.waiting(r.Context())
	}
	for i, place := range places {
		if len(place.roles) > 0 && !slices.ContainsFunc(place.roles, p.Has) {
			continue
		}
		one := placeLink{place, place.Path == v.place, f.Waiting}
		if i < inSight {
			f.Places = append(f.Places, one)
			continue
		}
		if f.More = append(f.More, one); one.Here {
			f.Elsewhere = one.Name
		}
	}
	if _, observes := c.o.Gateway.Observing(); observes {
		f.Observing = gateway.ObservingWords
	}
	c.render(w, v, f)
}

// render puts a page into the layout. html/template has escaped the body by then.
func (c *Console) render(w http.ResponseWriter, v view, f frame) {
	f.Title, f.Version, f.Now = v.title, c.o.Version, c.o.Clock().UTC()
	f.Body = template.HTML(c.execute(v.template, v.data))
	c.send(w, v.status, c.execute("layout", f))
}

// part renders a template by itself, for htmx to put in the place of an older one.
func (c *Console) part(w http.ResponseWriter, name string, data any) {
	c.send(w, http.StatusOK, c.execute(name, data))
}

func (c *Console) execute(name string, data any) []byte {
	var b bytes.Buffer
	if err := c.templates.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // web answers for it
	}
	return b.Bytes()
}

func (c *Console) send(w http.ResponseWriter, status int, page []byte) {
	if status == 0 {
		status = http.StatusOK
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page) // a client that is gone needs no answer
}

// problem says why something was not done, and the way out. It holds no cause.
type problem struct {
	Title, Text, Field, Remedy string
}

func problemOf(err error) *problem {
	f := fault.Of(err)
	text := f.Code.Sentence()
	if f.Message != "" && f.Code != fault.Internal {
		text = f.Message
	}
	if f.Field != "" { // domain errors about fields read on from the field's name
		text = f.Field + ": " + text
	}
	title := map[fault.Code]string{
		fault.RoleMissing: "Not with your roles", fault.NotFound: "There is nothing here", fault.RequestMalformed: "That could not be taken",
		fault.StoreUnavailable: "The store does not answer", fault.AuditUnavailable: "The audit log can’t be written",
	}[f.Code]
	if title == "" {
		title = "That did not work"
	}
	return &problem{Title: title, Text: text, Field: f.Field, Remedy: f.Remedy}
}

// refused says why an act was not done, and with which status the page that it was on is shown again. Failures of ours are logged with what
// the act was about.
func (c *Console) refused(r *http.Request, p identity.Principal, err error, act string, about ...any) (*problem, int) {
	c.record(r, p, err)
	status := web.Status(err)
	if status >= 500 {
		c.o.Log.Error("an act failed", append([]any{"act", act, "person", p.ID, "code", fault.Of(err).Code, "error", err}, about...)...)
	}
	return problemOf(err), status
}

// missing logs that a part of a page can't be shown, and says why.
func (c *Console) missing(part string, err error) string {
	c.o.Log.Error("the console could not show something", "what", part, "error", err)
	return problemOf(err).Text
}

// record puts on record that somebody was turned away for want of a credential or of a permission. Without a kind, the principal is unknown.
func (c *Console) record(r *http.Request, p identity.Principal, err error) {
	if !web.Unauthorized(err) || errors.As(err, new(desk.OnRecord)) {
		return
	}
	v := fault.RefuseErr("door", fault.ForTheRecord(err))
	v.RequestID = web.RequestID(r.Context())
	c.o.Refused(gateway.Attempt{Principal: p, Door: "console", People: true, What: r.Method + " " + r.URL.Path, Remote: web.Remote(r)}, v)
}

// fail shows why something could not be done.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, p identity.Principal, err error) {
	c.record(r, p, err)
	status, problem := web.Status(err), problemOf(err)
	if status >= 500 {
		c.o.Log.Error("a page failed", "request_id", web.RequestID(r.Context()), "path", r.URL.Path, "person", p.ID, "error", err)
	}
	c.show(w, r, p, view{template: "problem", title: problem.Title, status: status, data: problem})
}

// voter is the person as the one who answers a question.
func voter(p identity.Principal) approval.Voter { return approval.Voter{Person: p.ID, Roles: p.Roles} }
