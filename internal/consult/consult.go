// Package consult holds the operations by which agents read the knowledge store: knowledge.search, knowledge.read and knowledge.validate_claim, in the form that the gateway takes
// (catalogue.Command).
//
// Promises: an agent finds what its declaration names, by collections and labels, in the one snapshot that its session reads, and learns nothing of the rest; the
// labels of all that is shown come along; the record of a call names what was read, and has nothing of the text.
package consult

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/claims"
	"sallyport.example/internal/knowledge/library"
)

// timeout bounds one reading: the first one after a start may wait for an index. claimTimeout bounds the check of a claim, for which the judge may be asked about several sources.
const (
	timeout      = 20 * time.Second
	claimTimeout = 60 * time.Second
)

const (
	maxQuestion = 4 << 10
	maxHits     = 20
	maxPart     = 64 << 10
)

// Options of Commands.
type Options struct {
	Library *library.Library
	Claims  *claims.Checker
	// Trusted tells whether the operator trusts all documents of a collection: reading them makes no session untrusted.
	Trusted func(collection string) bool
	// TrustedFields are the columns of the tables in a collection whose values confirm, by the operator's word.
	TrustedFields func(collection string) []string
}

// FieldName is the path of a trusted field in the evidence of a session, in which a dot within a name is escaped.
func FieldName(collection, field string) string {
	return strings.ReplaceAll(collection, ".", "%2E") + "." + field
}

// Commands are the operations.
func Commands(o Options) []catalogue.Command {
	return []catalogue.Command{o.search(), o.read(), o.validate()}
}

// errors of readings: nothing was done.
func refused(err error) error { return &fault.NotDispatched{Err: err} }

type question struct {
	Query string `json:"query"`
	K     int    `json:"k"`
}

func (o Options) search() catalogue.Command {
	parse := func(raw json.RawMessage) (q question, err error) {
		if err := strict(raw, &q, "query", "k"); err != nil {
			return q, err
		}
		switch {
		case q.Query == "" || len(q.Query) > maxQuestion:
			return q, fault.New(fault.RequestMalformed, "A question has 1 to %d bytes.", maxQuestion).At("query").Try("Give the words to look for.")
		case q.K < 0 || q.K > maxHits:
			return q, fault.New(fault.RequestMalformed, "k is a whole number from 1 to %d.", maxHits).At("k")
		}
		return q, nil
	}
	return catalogue.Command{
		Server: catalogue.KnowledgeServer, Name: "search", Description: "Search the knowledge store: parts of documents, each with its citation.",
		Parameters:  json.RawMessage(`{"query":{"type":"string"},"k":{"type":"integer"}}`),
		Sensitivity: flow.None, Effect: flow.Read, Timeout: timeout, Inside: true, From: "knowledge:",
		Check: func(raw json.RawMessage) error { _, err := parse(raw); return err },
		Run: func(ctx context.Context, r catalogue.CommandRun) (catalogue.Brought, error) {
			q, err := parse(r.Parameters)
			if err != nil {
				return catalogue.Brought{}, refused(err)
			}
			snapshot, err := o.Library.Pin(ctx, r.Session, r.Agent)
			if err != nil {
				return catalogue.Brought{}, err
			}
			found, read, err := o.find(ctx, r, snapshot, q)
			if err != nil {
				return catalogue.Brought{}, err
			}
			return o.confirming(ctx, read)(o.brought(snapshot, found, read))
		},
	}
}

// find answers a question in a snapshot.
func (o Options) find(ctx context.Context, r catalogue.CommandRun, snapshot string, q question) (found library.Found, read reading, err error) {
	found, err = o.Library.Search(ctx, knowledge.Declared(r.Collections, r.Labels), r.Ask, snapshot, q.Query, cmp.Or(q.K, 5))
	for _, h := range found.Hits {
		read.add(h.Citation, h.Source, h.Labels)
	}
	return found, read, err
}

// Within answers a question for comm.search, by the same rights, in the same snapshot and with the same record as knowledge.search. An agent that reads no collection, and a store without
// a snapshot, have no answer (nil).
func (o Options) Within(ctx context.Context, r catalogue.CommandRun, query string, k int) (found any, b catalogue.Brought, err error) {
	if len(r.Collections) == 0 {
		return nil, b, nil
	}
	snapshot, err := o.Library.Pin(ctx, r.Session, r.Agent)
	if fault.Is(err, fault.NotFound) {
		return nil, b, nil
	}
	if err != nil {
		return nil, b, err
	}
	all, read, err := o.find(ctx, r, snapshot, question{query, k})
	if err != nil {
		return nil, b, err
	}
	b, err = o.confirming(ctx, read)(o.brought(snapshot, all, read))
	return all, b, err
}

type claimed struct {
	Claim   json.RawMessage `json:"claim"`
	Sources []string        `json:"sources"`
}

func (o Options) validate() catalogue.Command {
	parse := func(raw json.RawMessage) (c claims.Claim, more []string, err error) {
		var given claimed
		if err := strict(raw, &given, "claim", "sources"); err != nil {
			return c, nil, err
		}
		c, err = claims.Parse(given.Claim)
		return c, given.Sources, err
	}
	return catalogue.Command{
		Server: catalogue.KnowledgeServer, Name: "validate_claim", ExposeAs: "sallyport_validate_claim",
		Description: "Check a claim {subject, attribute, value} against the knowledge store's sources.",
		Parameters:  json.RawMessage(`{"claim":{"type":["object","string"]},"sources":{"type":"array","items":{"type":"string"}}}`),
		Sensitivity: flow.None, Effect: flow.Read, Timeout: claimTimeout, Inside: true, From: "knowledge:",
		Check: func(raw json.RawMessage) error { _, _, err := parse(raw); return err },
		Run: func(ctx context.Context, r catalogue.CommandRun) (catalogue.Brought, error) {
			c, more, err := parse(r.Parameters)
			if err != nil {
				return catalogue.Brought{}, refused(err)
			}
			snapshot, err := o.Library.Pin(ctx, r.Session, r.Agent)
			if err != nil {
				return catalogue.Brought{}, err
			}
			a, err := o.Claims.Validate(ctx, knowledge.Declared(r.Collections, r.Labels), audit.Entry{Agent: r.Agent, Session: r.Session, Actor: "agent:" + r.Agent}, r.Ask, snapshot, c, more)
			if err != nil {
				return catalogue.Brought{}, err
			}
			var read reading
			read.citations, read.sources, read.labels = a.Read()
			return o.brought(snapshot, a, read)
		},
	}
}

type wanted struct {
	Document string `json:"document_id"`
	Version  int    `json:"version"`
	Offset   int    `json:"offset"`
	Limit    int    `json:"limit"`
}

func (o Options) read() catalogue.Command {
	parse := func(raw json.RawMessage) (w wanted, err error) {
		if err := strict(raw, &w, "document_id", "version", "offset", "limit"); err != nil {
			return w, err
		}
		switch {
		case w.Document == "" || len(w.Document) > 128:
			return w, fault.New(fault.RequestMalformed, "Name the document by its id.").At("document_id").Try("knowledge_search gives ids.")
		case w.Version < 0:
			return w, fault.New(fault.RequestMalformed, "A version is a whole number from 1.").At("version")
		case w.Offset < 0:
			return w, fault.New(fault.RequestMalformed, "An offset is a number of bytes.").At("offset")
		case w.Limit < 0 || w.Limit > maxPart:
			return w, fault.New(fault.RequestMalformed, "At most %d bytes at a time.", maxPart).At("limit")
		}
		return w, nil
	}
	return catalogue.Command{
		Server: catalogue.KnowledgeServer, Name: "read", Description: "Read a document of the knowledge store, from offset.",
		Parameters:  json.RawMessage(`{"document_id":{"type":"string"},"version":{"type":"integer"},"offset":{"type":"integer"}}`),
		Sensitivity: flow.None, Effect: flow.Read, Timeout: timeout, Inside: true, From: "knowledge:",
		Check: func(raw json.RawMessage) error { _, err := parse(raw); return err },
		Run: func(ctx context.Context, r catalogue.CommandRun) (catalogue.Brought, error) {
			w, err := parse(r.Parameters)
			if err != nil {
				return catalogue.Brought{}, refused(err)
			}
			snapshot, err := o.Library.Pin(ctx, r.Session, r.Agent)
			if err != nil {
				return catalogue.Brought{}, err
			}
			part, err := o.Library.Read(ctx, knowledge.Declared(r.Collections, r.Labels), snapshot, w.Document, w.Version, w.Offset, cmp.Or(w.Limit, maxPart/4))
			if err != nil {
				return catalogue.Brought{}, refused(err)
			}
			var read reading
			read.add(part.Citation, part.Source, part.Labels)
			return o.confirming(ctx, read)(o.brought(snapshot, part, read))
		},
	}
}

// reading is what a call read.
type reading struct {
	citations       []library.Citation
	sources, labels []string
}

func (r *reading) add(c library.Citation, source string, labels []string) {
	r.citations = append(r.citations, c)
	r.sources, r.labels = append(r.sources, source), append(r.labels, labels...)
}

// brought is a result with what was read for it.
func (o Options) brought(snapshot string, v any, read reading) (catalogue.Brought, error) {
	text, err := call.Encode(v)
	if err != nil {
		return catalogue.Brought{}, fault.Wrap(err, fault.ResultInvalid, "The result could not be written down.")
	}
	record, err := json.Marshal(library.Recorded{Snapshot: snapshot, Read: read.citations})
	slices.Sort(read.labels)
	return catalogue.Brought{
		Source: "knowledge:" + snapshot, Blocks: []catalogue.Block{{Text: string(text)}}, Labels: slices.Compact(read.labels), Record: record, Sealed: true,
		Clean: !slices.ContainsFunc(read.sources, func(s string) bool { return !o.Trusted(s) }),
	}, err
}

// confirming adds to a result the rows of what it shows that the operator trusts, with the trusted values alone.
func (o Options) confirming(ctx context.Context, read reading) func(catalogue.Brought, error) (catalogue.Brought, error) {
	return func(b catalogue.Brought, err error) (catalogue.Brought, error) {
		if err != nil {
			return b, err
		}
		var records []map[string]map[string]string
		for i, c := range read.citations {
			collection := read.sources[i]
			fields := o.TrustedFields(collection)
			if len(fields) == 0 {
				continue
			}
			rows, err := o.Library.Rows(ctx, c, fields)
			if err != nil {
				return b, err
			}
			for _, row := range rows {
				records = append(records, map[string]map[string]string{collection: row})
			}
		}
		if len(records) > 0 {
			b.Confirms, err = call.Encode(records)
		}
		return b, err
	}
}

// strict decodes parameters, which are canonical, and refuses names that there are not.
func strict(raw json.RawMessage, to any, names ...string) error {
	for name := range call.Members(raw) {
		if !slices.Contains(names, name) {
			return fault.New(fault.RequestMalformed, "There is no parameter %.80q.", name).At(name[:min(len(name), 80)]).Try("The parameters are %v.", names)
		}
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fault.Wrap(err, fault.RequestMalformed, "A parameter has the wrong type.").Try("The parameters are %v.", names)
	}
	return nil
}
