package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/web"
)

// AuditPage is a page of entries: the oldest first, and Next is "after" for the next page, or with order=newest the newest first, and Next is "before". It is null on
// the last page. A page may be empty and still have a next one.
type AuditPage struct {
	Entries []audit.Entry `json:"entries"`
	Next    *int64        `json:"next"`
	// Archived is there where the query asks for entries that are not here any more.
	Archived *audit.Archived `json:"archived,omitempty"`
	// Searched is there where the query asks for content.
	Searched *Searched `json:"searched,omitempty"`
}

// Searched says how far the index goes that a search by content looks into: it has no entry from To on yet, in a log of Size entries.
type Searched struct {
	To   int64 `json:"to"`
	Size int64 `json:"size"`
}

// EntryLeaf is an entry with the exact bytes that the log's tree is over.
type EntryLeaf struct {
	audit.Entry
	Leaf []byte `json:"leaf"`
}

// Proof is an inclusion proof (index and leaf_hash are there) or a consistency proof (from and from_root_hash are).
type Proof struct {
	Index    *int64   `json:"index,omitempty"`
	From     *int64   `json:"from,omitempty"`
	Size     int64    `json:"size"`
	LeafHash string   `json:"leaf_hash,omitempty"`
	FromRoot string   `json:"from_root_hash,omitempty"`
	RootHash string   `json:"root_hash"`
	Hashes   []string `json:"hashes"`
}

// auditQuery documents the parameters of the filter. audit.ParseFilter reads them.
type auditQuery struct {
	Agent      string `query:"agent"`
	Session    string `query:"session"`
	Action     string `query:"action" doc:"What was done to the gateway: call, session.open, kill.disable, …"`
	ActionType string `query:"action_type" doc:"The operation's action in the risk rules: transfer_money, …"`
	Decision   string `query:"decision" doc:"permit, ask or deny; of outcomes ok, error, unknown or discarded"`
	Kind       string `query:"kind" doc:"intent, outcome, decision or change"`
	Operation  string `query:"operation"`
	CallID     string `query:"call_id"`
	Requester  string `query:"requester" doc:"The person for whom the session works."`
	Approver   string `query:"approver" doc:"A person who approved."`
	Risk       string `query:"risk" doc:"LOW, MEDIUM, HIGH or CRITICAL"`
	Severity   string `query:"severity" doc:"info, warning or critical"`
	Event      string `query:"event" doc:"What it means for security: access_violation, credential_refused, …"`
	Code       string `query:"code" doc:"Of a refusal: permission.denied, …"`
	Q          string `query:"q" doc:"Words that all stand in arguments, result, reason or detail; a phrase in quotation marks; the beginning of a word with * at its end."`
	From       string `query:"from" doc:"A time (RFC 3339), included, or how long ago: 90m, 24h, 7d."`
	To         string `query:"to" doc:"A time (RFC 3339), not included, or how long ago."`
	Order      string `query:"order" doc:"oldest (default) or newest first"`
	Before     string `query:"before" doc:"With order=newest: next of the page before."`
	After      string `query:"after" doc:"Next of the page before."`
	Limit      string `query:"limit" doc:"1 to 1000, 100 if it is not given."`

	filter audit.Filter
	newest bool
	before int64 // -1: not given
	err    error
}

// Resolve reads the filter from the request itself. It keeps the error for the handler, which answers with a problem of ours.
func (q *auditQuery) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	q.read(u.Query())
	return nil
}

func (q *auditQuery) read(values url.Values) {
	order, before := values["order"], values["before"]
	delete(values, "order")
	delete(values, "before")
	q.newest, q.before = slices.Equal(order, []string{"newest"}), -1
	if !q.newest && len(order) > 0 && !slices.Equal(order, []string{"oldest"}) && !slices.Equal(order, []string{""}) {
		q.err = fault.New(fault.RequestMalformed, "order is oldest or newest, given once.").At("order")
		return
	}
	if len(before) > 0 && before[0] != "" {
		var err error
		if q.before, err = strconv.ParseInt(before[0], 10, 64); err != nil || q.before < 0 || len(before) > 1 || !q.newest {
			q.err = fault.New(fault.RequestMalformed, "before is the index of an entry, with order=newest.").At("before")
			return
		}
	}
	q.filter, q.err = audit.ParseFilter(values, time.Now())
}

// newestScan bounds how many entries of the log one page of the newest goes over.
const newestScan = 200_000

func (a *API) auditPage(ctx context.Context, in *auditQuery) (page AuditPage, err error) {
	if in.err != nil {
		return AuditPage{}, in.err
	}
	next := int64(-1)
	if in.newest {
		found, err := a.o.Search.Newest(ctx, in.filter, in.before, in.filter.Limit, newestScan)
		if err != nil {
			return AuditPage{}, err
		}
		slices.Reverse(found.Entries)
		page.Entries, next = found.Entries, found.From
		if page.Entries == nil {
			page.Entries = []audit.Entry{}
		}
	} else if page.Entries, next, err = a.o.Search.Entries(ctx, in.filter); err != nil {
		return AuditPage{}, err
	}
	page.Archived = a.store.Archived(in.filter)
	if next >= 0 {
		page.Next = &next
	}
	if to, size, ok := a.o.Search.Reach(ctx); ok && in.filter.Text != "" {
		page.Searched = &Searched{to, size}
	}
	return page, nil
}

func (a *API) auditRoutes(s *side) {
	handle(s, route{method: http.MethodGet, path: "/v1/audit", roles: auditor, summary: "Query the log"},
		func(ctx context.Context, _ identity.Principal, in *auditQuery) (AuditPage, error) {
			return a.auditPage(ctx, in)
		})
	handle(s, route{method: http.MethodGet, path: "/v1/audit/{index}", roles: auditor, summary: "One entry with its leaf"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			Index int64 `path:"index" minimum:"0"`
		}) (EntryLeaf, error) {
			e, leaf, err := a.store.Entry(ctx, in.Index)
			return EntryLeaf{Entry: e, Leaf: leaf}, err
		})
	handle(s, route{method: http.MethodGet, path: "/v1/audit/proof", roles: auditor,
		summary: "Prove an entry (index=), or that an earlier log is the beginning of a later one (from=)"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			Index int64 `query:"index" minimum:"-1" default:"-1"`
			From  int64 `query:"from" minimum:"-1" default:"-1"`
			Size  int64 `query:"size" minimum:"0" doc:"Of the log that is proved in; without it, the log as of the newest checkpoint."`
		}) (Proof, error) {
			switch {
			case (in.Index < 0) == (in.From < 0):
				return Proof{}, fault.New(fault.RequestMalformed, "Name either index or from.").At("index")
			case in.From >= 0:
				c, err := a.store.Consistency(ctx, in.From, in.Size)
				return Proof{From: &c.From, Size: c.Size, FromRoot: c.FromRoot.String(), RootHash: c.RootHash.String(), Hashes: words(c.Hashes)}, err
			}
			i, err := a.store.Inclusion(ctx, in.Index, in.Size)
			return Proof{Index: &i.Index, Size: i.Size, LeafHash: i.LeafHash.String(), RootHash: i.RootHash.String(), Hashes: words(i.Hashes)}, err
		})
	a.rawAuditRoutes(s)
}

// words are hashes in base64.
func words[H interface{ String() string }](hashes []H) []string {
	out := make([]string, 0, len(hashes))
	for _, h := range hashes {
		out = append(out, h.String())
	}
	return out
}

// rawAuditRoutes are the routes whose answers are not JSON of ours: signed notes, the tiles of C2SP tlog-tiles, payloads and the export.
func (a *API) rawAuditRoutes(s *side) {
	for _, path := range []string{"/v1/audit/checkpoint", "/checkpoint"} {
		s.raw(route{method: http.MethodGet, path: path, roles: auditor, summary: "A signed checkpoint of the whole log as it is now"}, path, false, "text/plain", nil,
			func(w http.ResponseWriter, r *http.Request) error {
				note, err := a.store.Checkpoint(r.Context())
				return send(w, "text/plain; charset=utf-8", note, err)
			})
	}
	s.raw(route{method: http.MethodGet, path: "/tile/{path}", roles: auditor, summary: "A tile or an entry bundle (C2SP tlog-tiles); path has slashes"},
		"/tile/{path...}", false, "application/octet-stream", pathParam("path"),
		func(w http.ResponseWriter, r *http.Request) error {
			level, n, width, err := audit.ParseTilePath(strings.TrimPrefix(r.URL.Path, "/"))
			if err != nil {
				return fault.Wrap(err, fault.NotFound, "There is no such tile.")
			}
			var data []byte
			if level == audit.EntriesLevel {
				data, err = a.store.EntryBundle(r.Context(), n, width)
			} else {
				data, err = a.store.Tile(r.Context(), level, n, width)
			}
			return send(w, "application/octet-stream", data, err)
		})
	s.raw(route{method: http.MethodGet, path: "/v1/audit/payload/{key}", roles: auditor, summary: "Arguments or a result that is kept apart, by its key"},
		"/v1/audit/payload/{key}", false, "application/octet-stream", pathParam("key"),
		func(w http.ResponseWriter, r *http.Request) error {
			data, err := a.store.Payload(r.Context(), r.PathValue("key"))
			// The bytes are hostile, so no browser may show them.
			w.Header().Set("Content-Disposition", "attachment")
			return send(w, "application/octet-stream", data, err)
		})
	s.raw(route{method: http.MethodGet, path: "/v1/audit/download", roles: auditor, summary: "All entries that a filter selects, as CSV or JSON lines (format=csv or jsonl); the filter as for /v1/audit"},
		"/v1/audit/download", false, "application/octet-stream", nil, func(w http.ResponseWriter, r *http.Request) error { return a.o.Search.Serve(w, r, a.log) })
	s.raw(route{method: http.MethodGet, path: "/v1/audit/export", roles: auditor, summary: "The whole log as a tar archive, for sallyport audit verify"},
		"/v1/audit/export", false, "application/x-tar", nil, a.export)
}

func pathParam(name string) []*huma.Param {
	return []*huma.Param{{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: "string"}}}
}

func send(w http.ResponseWriter, media string, data []byte, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data) // a client that is gone needs no answer
	return nil
}

// export signs the log as it is, so that the export holds all of it, and streams it. A failure cuts the connection, since half an export must
// not look like a whole one.
func (a *API) export(w http.ResponseWriter, r *http.Request) error {
	if gone := a.store.Archived(audit.Filter{}); gone != nil {
		return fault.New(fault.Conflict, "The log can't be exported as a whole: entries before %d were archived (%s).", gone.Before, strings.Join(gone.Files, "; ")).
			Try("Check it where it is: sallyport audit verify --segments FOLDER. The newest export from before holds what was archived.")
	}
	if _, err := a.store.Checkpoint(r.Context()); err != nil {
		return err
	}
	src, err := a.o.Source(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Disposition", `attachment; filename="sallyport-audit.tar"`)
	if err := audit.WriteExport(w, src); err != nil {
		a.log.Error("an export was broken off", "request_id", web.RequestID(r.Context()), "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// readyTime bounds how long readiness waits for the store.
const readyTime = 2 * time.Second

// plainRoutes are for programs that look after the gateway. But for the figures they need no credential and tell nothing about agents or people.
func (a *API) plainRoutes(s *side) {
	say := func(w http.ResponseWriter, word string) error {
		return send(w, "application/json", []byte(`{"status":"`+word+`"}`+"\n"), nil)
	}
	s.raw(route{method: http.MethodGet, path: "/healthz", summary: "The process answers"}, "/healthz", true, "application/json", nil,
		func(w http.ResponseWriter, _ *http.Request) error { return say(w, "ok") })
	s.raw(route{method: http.MethodGet, path: "/readyz", summary: "Calls are taken: the store took a write lately, and the gateway is not stopping"}, "/readyz", true, "application/json", nil,
		func(w http.ResponseWriter, r *http.Request) error {
			ctx, cancel := context.WithTimeout(r.Context(), readyTime)
			defer cancel()
			select {
			case <-a.closing:
				return fault.New(fault.StoreUnavailable, "The gateway is stopping: it takes no new calls.")
			default:
			}
			if err := a.store.Ready(ctx); err != nil {
				return fault.Wrap(err, fault.StoreUnavailable, "")
			}
			return say(w, "ready")
		})
	s.raw(route{method: http.MethodGet, path: "/metrics", roles: readers, summary: "Figures for Prometheus, also as OpenMetrics"}, "/metrics", false, "text/plain", nil,
		func(w http.ResponseWriter, r *http.Request) error {
			a.o.Metrics.ServeHTTP(w, r)
			return nil
		})
	s.raw(route{method: http.MethodGet, path: "/openapi.json", summary: "This document"}, "/openapi.json", true, "application/openapi+json", nil,
		func(w http.ResponseWriter, _ *http.Request) error {
			return send(w, "application/openapi+json", a.openapi, nil)
		})
	a.console.Register(s.mux.Handle)
}
