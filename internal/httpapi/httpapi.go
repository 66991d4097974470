// Package httpapi is the face for people, hosts, the command line, and agents that don't speak MCP: plain HTTP with JSON, on two sides that
// share only the gateway behind them.
//
// Promises: only the credential tells who asks, and it opens its own side only; a body is parsed once, strictly, before
// anything looks at it (no duplicate or case-variant names, no unknown fields, nothing after the value); every refusal is a
// problem+json with our code and never a cause; the kill switch waits for nothing, neither for the store nor for a call; nothing
// here can define a server, start a process or open a file (docs/design.md, rule 8); a panic costs one answer.
package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/agent/deployed"
	"sallyport.example/internal/anchor"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/caller"
	"sallyport.example/internal/confirm"
	"sallyport.example/internal/console"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge/claims"
	"sallyport.example/internal/knowledge/collect"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/memory"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/runner"
	"sallyport.example/internal/search"
	"sallyport.example/internal/session"
	"sallyport.example/internal/trial"
	"sallyport.example/internal/web"
)

// Store is what this package reads. Changes go through the gateway. Errors are fault errors. Safe for concurrent use.
type Store interface {
	// Size is the number of audit entries.
	Size(ctx context.Context) (int64, error)
	// Entries returns the entries that match the filter, oldest first. next is "after" for the next page, or -1.
	Entries(ctx context.Context, f audit.Filter) (page []audit.Entry, next int64, err error)
	// Archived says which entries that the filter asks for are in files that were archived; nil: none.
	Archived(f audit.Filter) *audit.Archived
	// Entry returns one entry and the exact bytes that the log's tree is over.
	Entry(ctx context.Context, index int64) (audit.Entry, []byte, error)
	Payload(ctx context.Context, key string) ([]byte, error)
	// Checkpoint signs the log as it is now.
	Checkpoint(ctx context.Context) ([]byte, error)
	// Inclusion and Consistency prove in the log of size entries; size 0 is the log as of the newest checkpoint.
	Inclusion(ctx context.Context, index, size int64) (audit.Inclusion, error)
	Consistency(ctx context.Context, from, size int64) (audit.Consistency, error)
	Tile(ctx context.Context, level int, n int64, width int) ([]byte, error)
	EntryBundle(ctx context.Context, n int64, width int) ([]byte, error)
	// SessionsPage returns sessions, newest first, after the one with that id ("" for the first page), of one state or ("") of any. Those whose
	// rows can't be read don't count.
	SessionsPage(ctx context.Context, after string, limit int, state session.State) (session.Page, error)
	// Ready tells whether writes are taken: one succeeded lately.
	Ready(ctx context.Context) error
}

// Options are the options of New. Every field but Log, Memory, Deliveries, Search, Clock, Public, Changes, OIDC, Labels, Trials, Process and Confirm is needed.
type Options struct {
	Log     *slog.Logger // nil: no log
	Version string
	Memory  *memory.Budget   // for the requests of agents and hosts; nil: there is no bound
	Agents  func() agent.Set // those that are declared now
	// Approved is which of their declarations people approved.
	Approved *approved.Book
	// People returns the persons of the configuration with their roles. A token opens no more than its person's roles of today.
	People    func() map[string][]identity.Role
	Upstreams func() []console.ServerStatus
	// Deliveries returns the state of each channel of messages to people; nil: none are sent.
	Deliveries func(ctx context.Context) ([]console.Deliveries, error)
	// Counters are what happened, by the hour, for the console; nil: nobody counts.
	Counters *monitor.Counters
	// Search finds entries of the log; nil: nothing is found by content.
	Search *search.Log
	// Source is the log as it is now, for export.
	Source func(ctx context.Context) (audit.Source, error)
	// Anchor tells how the log stands to what is kept of it outside the data directory; nil: nothing is.
	Anchor func(ctx context.Context) anchor.Status
	Clock  func() time.Time // nil: time.Now
	Public string           // the address that people reach the console at, as "https://sallyport.example", or ""
	// Changes returns what starts and reloads changed lately, in configuration and declarations, the newest first; nil: nothing is known.
	Changes func() []console.Change
	// Configuration says what is in force, and Reload reads it again, for by.
	Configuration func() console.Configuration
	Reload        func(ctx context.Context, by string) (console.Reloaded, error)
	OIDC          *console.OIDC // nil: people sign in with tokens and links alone
	// Trials are those of sallyport doctor --live; nil: there are none.
	Trials *trial.Trials
	// Process is the one whose children are nobody's hands: servers and programs of the gateway's; 0: there is none.
	Process int
	// Confirm tells whether people have to confirm at their terminal what they do with a token; nil: they don't.
	Confirm func() bool
	Library *library.Library // the knowledge store
	// AddsTo are the collections that a host may add documents to.
	AddsTo func(host string) []string
	// Collector fetches what people add to it by its address.
	Collector *collect.Collector
	Claims    *claims.Checker
	Runs      *runner.Runner // of agents
	// Deployment answers the deployment checklists.
	Deployment func(ctx context.Context) (deployed.Report, error)
	Metrics    http.Handler      // answers with figures for a monitoring system
	Labels     console.LabelDesk // nil: there is no configuration file that labels could be added to
}

// API holds both sides. Make it with New.
type API struct {
	g     *gateway.Gateway
	store Store
	o     Options
	log   *slog.Logger
	clock func() time.Time

	console       *console.Console
	calls         *calls
	doc           *huma.OpenAPI
	agents, admin *side
	openapi       []byte
	closeOnce     sync.Once
	closing       chan struct{}
	confirmations *confirm.Confirmations
	looking       chan struct{} // has an element for each look at processes that is under way
	hanging       atomic.Int32  // how many of them are over their time
}

// side is one listener's routes.
type side struct {
	a      *API
	people bool
	web    *web.Face
	api    huma.API
	mux    *http.ServeMux
	tag    string
}

// New returns an API that is ready to serve.
func New(g *gateway.Gateway, s Store, o Options) *API {
	a := &API{g: g, store: s, o: o, log: o.Log, clock: o.Clock, calls: newCalls(), closing: make(chan struct{}), looking: make(chan struct{}, lookAtOnce)}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.clock == nil {
		a.clock = time.Now
	}
	if a.o.Confirm == nil {
		a.o.Confirm = func() bool { return false }
	}
	if a.o.Search == nil {
		a.o.Search = search.New(s, nil)
	}
	a.confirmations = confirm.New(caller.Terminal.Show, a.clock)
	a.console = console.New(console.Options{
		Version: o.Version, Log: a.log, Clock: a.clock, Gateway: g, Refused: g.Refused, Changes: o.Changes, Configuration: o.Configuration, Reload: o.Reload, Store: s, Agents: o.Agents, Approved: o.Approved, Runs: o.Runs, Upstreams: o.Upstreams, Deliveries: o.Deliveries, Counters: o.Counters, Search: a.o.Search, Anchor: o.Anchor, Source: o.Source, Public: o.Public, Closing: a.closing, Library: o.Library, Collector: o.Collector, Labels: o.Labels,
		Authenticate: func(secret string) (identity.Principal, error) { return a.person(a.g.Standing().Authenticate(secret)) },
		OIDC:         o.OIDC, Person: a.configured, Outside: outside, TokenSignIn: a.noTokenSignIn,
	})
	a.doc = &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Sallyport", Version: o.Version, Description: "The agents' side is served at listen (127.0.0.1:7575), the people's side at admin_listen (127.0.0.1:7576). " +
			"Verdicts are answers: they come with 200 whatever they decide."},
		Components: &huma.Components{
			Schemas:         huma.NewMapRegistry("#/components/schemas/", schemaName),
			SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}},
		},
		Tags: []*huma.Tag{
			{Name: "agents", Description: "Agents' side: the token of an agent, a host or a session."},
			{Name: "people", Description: "People's side: the token of a person, or the console's cookie."},
		},
	}
	a.agents, a.admin = a.side("agents", false), a.side("people", true)
	a.agentRoutes(a.agents)
	a.approvalRoutes(a.admin)
	a.killRoutes(a.admin)
	a.sessionRoutes(a.admin)
	a.storedRoutes(a.admin)
	a.catalogueRoutes(a.admin)
	a.breakerRoutes(a.admin)
	a.securityRoutes(a.admin)
	a.declaredRoutes(a.admin)
	a.aroundRoutes(a.admin)
	a.tokenRoutes(a.admin)
	a.signInRoutes(a.admin)
	a.eventRoutes(a.admin)
	a.auditRoutes(a.admin)
	a.trialRoutes(a.admin)
	a.knowledgeRoutes(a.admin)
	a.runRoutes(a.admin)
	a.hostRunRoutes(a.agents)
	a.hostDocumentRoutes(a.agents)
	a.recommendationRoutes(a.admin)
	a.submitRoutes(a.agents)
	a.plainRoutes(a.admin)
	a.finishDoc()
	return a
}

// side makes one listener's routes. huma decodes bodies into types and makes the document. Its own pages, which load scripts from elsewhere, its
// links to schemas, and its limit of 5 s to read a body, which would end long calls, are switched off.
func (a *API) side(tag string, people bool) *side {
	mux := http.NewServeMux()
	s := &side{a: a, people: people, mux: mux, tag: tag}
	s.web = &web.Face{Log: a.log, NewID: func() string { return call.NewID("req_", a.clock()) }, Refused: func(r *http.Request, err error) {
		v := fault.RefuseErr("door", err)
		v.RequestID = web.RequestID(r.Context())
		a.g.Refused(gateway.Attempt{Door: "http", People: people, What: r.Method + " " + r.URL.Path, Remote: web.Remote(r)}, v)
	}}
	formats := huma.DefaultFormats
	if people {
		s.web.Single = []string{confirm.Header}
		formats = markupFree
		if public, err := url.Parse(a.o.Public); err == nil {
			s.web.ProxyHost = public.Host
		}
	}
	s.api = humago.New(mux, huma.Config{
		OpenAPI: a.doc, Formats: formats, DefaultFormat: "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{transform},
	})
	return s
}

// markupFree is JSON in which <, > and & are escaped. The people's side shows many words of agents and servers, which then bring no markup into
// a page that they are put into by mistake.
var markupFree = map[string]huma.Format{
	"application/json": {Marshal: func(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }, Unmarshal: json.Unmarshal},
	"json":             {Marshal: func(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }, Unmarshal: json.Unmarshal},
}

// schemaName keeps types of one name in two packages apart. Types of the faces have no package in their names.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if pkg := path.Base(t.PkgPath()); t.Name() != "" && strings.HasPrefix(t.PkgPath(), "sallyport.example/") && !slices.Contains([]string{"httpapi", "console", "web"}, pkg) {
		name = strings.ToUpper(pkg[:1]) + pkg[1:] + name
	}
	return name
}

// Agent serves the agents' side: everything under /v1/session.
func (a *API) Agent() http.Handler { return a.agents.handler() }

// Admin serves the people's side: the console, /v1/…, the kill switch and the documents.
func (a *API) Admin() http.Handler { return a.admin.handler() }

// Close makes the gateway unready, and requests that wait for a call answer now, so that they don't hold up a server that drains. Closing twice
// is harmless.
func (a *API) Close() { a.closeOnce.Do(func() { close(a.closing) }) }

// finishDoc removes huma's error schema from the document, in which ours stands, and encodes it once.
func (a *API) finishDoc() {
	schemas := a.doc.Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	doc, err := json.Marshal(a.doc)
	if err != nil {
		panic(fmt.Sprintf("httpapi: the OpenAPI document does not encode: %v", err)) // a test makes one
	}
	a.openapi = doc
}

// SignInLink makes a one-time link into the console for the person whose token this is: an address if Public is known, else its path.
func (a *API) SignInLink(secret string) (url string, expires time.Time, err error) {
	path, expires, err := a.console.Link(secret)
	return strings.TrimSuffix(a.o.Public, "/") + path, expires, err
}

// configured is the person with the id, with the roles that the configuration gives them.
func (a *API) configured(id string) (identity.Principal, error) {
	roles, ok := a.o.People()[id]
	if !ok {
		return identity.Principal{}, fault.New(fault.CredentialMissing, "Nobody of the configuration has the id %.80q.", id)
	}
	return identity.Principal{Kind: identity.Person, ID: id, Roles: roles}, nil
}

// person returns the person of a credential, with no more roles than the configuration gives them. A person that is not in it has the token's.
func (a *API) person(p identity.Principal, err error) (identity.Principal, error) {
	if err != nil {
		return p, err
	}
	if p.Kind != identity.Person {
		return p, wrongSide(p, true)
	}
	if configured, ok := a.o.People()[p.ID]; ok && !slices.Contains(configured, identity.Admin) {
		had := p.Roles
		if slices.Contains(had, identity.Admin) {
			had = identity.Roles
		}
		p.Roles = nil
		for _, r := range had {
			if slices.Contains(configured, r) {
				p.Roles = append(p.Roles, r)
			}
		}
	}
	return p, nil
}
