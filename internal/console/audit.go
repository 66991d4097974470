package console

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

const (
	pageOfEntries = 50
	// searchLimit bounds how many entries of the log one page of a search goes over. A search that stops there offers to go on.
	searchLimit = 200_000
)

// indexOf reads the index of an entry; -1 stands for none.
func indexOf(s string) (int64, error) {
	if s == "" {
		return -1, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n == math.MaxInt64 {
		return 0, fault.New(fault.RequestMalformed, "It must be the index of an entry.").At("before")
	}
	return n, nil
}

// auditPage shows the entries that a search finds, newest first.
type auditPage struct {
	Problem    *problem
	Text       string // words to look for in arguments and results
	Since      string // how long ago, or ""
	Spans      []string
	Fields     []searchField
	Set        bool   // some field has a value
	More       bool   // one of Fields has a value
	Indexed    int64  // the index goes up to here, where Text is given and it is behind; else -1
	CSV, JSONL string // links to all that was found
	Entries    []audit.Entry
	Size       int64
	Older      string // link, or ""
	Newest     string // link to the first page, or "" on it
	Stopped    bool   // the search reached its limit before the page was full
	// Archived is there where the search came to entries that are not here any more.
	Archived *audit.Archived
	Refresh  string // the address of this page if it is kept up to date
}

// searchField is one field of the search form.
type searchField struct {
	Name, Label, Value, Type, List string
	Options                        []string
}

// timeLayouts are the forms in which a browser's field for a time writes one.
var timeLayouts = []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"}

func (c *Console) auditSearch(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	q := r.URL.Query()
	d := auditPage{Fields: []searchField{
		{Name: "agent", Label: "Agent"}, {Name: "session", Label: "Session"}, {Name: "operation", Label: "Operation"},
		{Name: "action", Label: "Action"}, {Name: "action_type", Label: "Type of action"},
		{Name: "requester", Label: "Requester"}, {Name: "approver", Label: "Approver"},
		{Name: "decision", Label: "Decision"}, {Name: "kind", Label: "Kind"}, {Name: "risk", Label: "Risk"}, {Name: "severity", Label: "Severity"},
		{Name: "event", Label: "Event"}, {Name: "code", Label: "Code"},
		{Name: "from", Label: "From (UTC)", Type: "datetime-local"}, {Name: "to", Label: "To (UTC)", Type: "datetime-local"},
	}, Text: q.Get("q"), Indexed: -1}
	asked, words := url.Values{}, url.Values{}
	for name, values := range q {
		if name != "before" {
			asked[name] = values
		}
	}
	for _, name := range []string{"q", "call_id", "since"} {
		if value := q.Get(name); value != "" {
			d.Set = true
			words.Set(name, value)
		}
	}
	for i := range d.Fields {
		field := &d.Fields[i]
		field.Options = audit.Values(field.Name)
		field.Value = q.Get(field.Name)
		if field.Value == "" {
			continue
		}
		d.Set, d.More = true, true
		words.Set(field.Name, field.Value)
		if t, err := time.Parse(time.RFC3339, field.Value); field.Type != "" && err == nil {
			field.Value = t.UTC().Format(timeLayouts[0]) // the only form that such a field shows
		}
		for _, form := range timeLayouts {
			if t, err := time.Parse(form, field.Value); field.Type != "" && err == nil {
				asked[field.Name] = []string{t.Format(time.RFC3339)}
			}
		}
	}
	d.since(asked)
	status := http.StatusOK
	f, err := audit.ParseFilter(asked, c.o.Clock())
	before := int64(-1)
	if err == nil {
		before, err = indexOf(q.Get("before"))
	}
	if err == nil {
		err = c.search(r.Context(), &d, f, before, words)
	}
	if err == nil {
		d.links(asked)
	}
	if err != nil {
		d.Problem, status = problemOf(err), fault.Of(err).Code.HTTPStatus()
	}
	c.show(w, r, p, view{template: "audit", title: "Audit", place: "/audit", status: status, data: d})
}

// spans are the relative times that the form offers, as a query has them.
var spans = []string{"1h", "24h", "7d", "30d"}

// since puts the relative time of the form in the place of from.
func (d *auditPage) since(asked url.Values) {
	if d.Since = asked.Get("since"); d.Since != "" && asked.Get("from") == "" {
		asked.Set("from", d.Since)
	}
	asked.Del("since")
	d.Spans = spans
	if d.Since != "" && !slices.Contains(spans, d.Since) {
		d.Spans = append([]string{d.Since}, spans...)
	}
}

// links are the addresses of all that was found.
func (d *auditPage) links(asked url.Values) {
	all := url.Values{}
	for name, values := range asked {
		if values[0] != "" {
			all[name] = values
		}
	}
	to := func(format string) string { all.Set("format", format); return "/audit/download?" + all.Encode() }
	d.CSV, d.JSONL = to("csv"), to("jsonl")
}

// auditDownload sends all that a search finds.
func (c *Console) auditDownload(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	if err := c.o.Search.Serve(w, r, c.o.Log); err != nil {
		c.fail(w, r, p, err)
	}
}

func (c *Console) search(ctx context.Context, d *auditPage, f audit.Filter, before int64, words url.Values) error {
	var err error
	if d.Size, err = c.o.Store.Size(ctx); err != nil {
		return err
	}
	found, err := c.o.Search.Newest(ctx, f, before, pageOfEntries, searchLimit)
	if err != nil {
		return err
	}
	if to, size, ok := c.o.Search.Reach(ctx); ok && f.Text != "" && to < size {
		d.Indexed = to
	}
	d.Entries = slices.Clone(found.Entries)
	slices.Reverse(d.Entries)
	d.Stopped = found.From >= 0 && len(d.Entries) < pageOfEntries
	at := func(before int64) string {
		if words.Del("before"); before >= 0 {
			words.Set("before", strconv.FormatInt(before, 10))
		}
		return strings.TrimSuffix("/audit?"+words.Encode(), "?")
	}
	if found.From >= 0 {
		d.Older = at(found.From)
	} else {
		d.Archived = c.o.Store.Archived(f)
	}
	if before >= 0 {
		d.Newest = at(-1)
	} else {
		d.Refresh = at(-1)
	}
	return nil
}

// entryPage shows one entry whole.
type entryPage struct {
	audit.Entry
	Facts     []fact
	Payloads  []shownPayload
	Parts     []shownPart // attribution and detail
	Exact     []piece     // the leaf's bytes
	Size      int
	Proof     *audit.Inclusion // against the newest checkpoint
	Unsigned  bool             // it is newer than that
	NoProof   string           // why there is no proof
	Checks    []checked        // the result of "verify now"
	Verified  bool
	PrevIndex int64 // -1: none
	Next      bool
}

// fact is one field of an entry.
type fact struct {
	Name, Value string
	Link        string // a page about it, or ""
	Code        bool   // shown as code
}

// shownPayload is arguments or a result.
type shownPayload struct {
	Name string
	*audit.Payload
	Exact []piece
}

type shownPart struct {
	Name  string
	Exact []piece
}

// checked is one thing that was verified.
type checked struct {
	What    string
	Problem string // "" if it holds
}

func (c *Console) entry(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	d, _, err := c.oneEntry(r)
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	c.show(w, r, p, view{template: "entry", title: fmt.Sprintf("Entry %d", d.Index), place: "/audit", data: d})
}

// verifyEntry verifies the entry and shows it with the result. It changes nothing, but a checkpoint is signed, as one is every second.
func (c *Console) verifyEntry(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	d, leaf, err := c.oneEntry(r)
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	d.Verified = true
	if d.Checks, err = c.verify(r.Context(), d.Index, leaf); err != nil {
		c.fail(w, r, p, err)
		return
	}
	c.show(w, r, p, view{template: "entry", title: fmt.Sprintf("Entry %d", d.Index), place: "/audit", data: d})
}

func (c *Console) oneEntry(r *http.Request) (d entryPage, leaf []byte, err error) {
	ctx := r.Context()
	index, err := strconv.ParseInt(r.PathValue("index"), 10, 64)
	if err != nil || index < 0 {
		return d, nil, fault.New(fault.NotFound, "There is no such entry.")
	}
	if d.Entry, leaf, err = c.o.Store.Entry(ctx, index); err != nil {
		return d, nil, err
	}
	size, err := c.o.Store.Size(ctx)
	if err != nil {
		return d, nil, err
	}
	d.PrevIndex, d.Next, d.Size, d.Exact = index-1, index+1 < size, len(leaf), exactly(leaf)
	d.Facts = factsOf(d.Entry)
	for _, part := range []struct {
		name string
		*audit.Payload
	}{{"Arguments", d.Arguments}, {"Result", d.Result}} {
		if part.Payload != nil {
			shown := shownPayload{Name: part.name, Payload: part.Payload}
			if part.Shown != nil {
				shown.Exact = exactly(part.Shown)
			}
			d.Payloads = append(d.Payloads, shown)
		}
	}
	for _, part := range []struct {
		name string
		json.RawMessage
	}{{"Attribution", d.Attribution}, {"Detail", d.Detail}} {
		if part.RawMessage != nil {
			d.Parts = append(d.Parts, shownPart{part.name, exactly(part.RawMessage)})
		}
	}
	proof, err := c.o.Store.Inclusion(ctx, index, 0)
	switch {
	case err == nil:
		d.Proof = &proof
	case fault.Is(err, fault.RequestMalformed):
		d.Unsigned = true
	default:
		d.NoProof = problemOf(err).Text
	}
	return d, leaf, nil
}

// NextIndex is the entry after it.
func (d entryPage) NextIndex() int64 { return d.Index + 1 }

// factsOf lists the fields of an entry that are not empty.
func factsOf(e audit.Entry) (facts []fact) {
	add := func(name, value, link string) {
		if value != "" {
			facts = append(facts, fact{name, value, link, slices.Contains([]string{"Session", "Call", "Request id", "Call digest", "Definition", "Code"}, name)})
		}
	}
	search := func(name, value string) string { return link("/audit", name, value) }
	add("Severity", string(e.Severity), search("severity", string(e.Severity)))
	add("Kind", string(e.Kind), "")
	add("Action", e.Action, search("action", e.Action))
	add("Type of action", e.Type, search("action_type", e.Type))
	add("Event", string(e.Event), search("event", string(e.Event)))
	add("Decision", e.Decision, "")
	add("Check", e.Stage, "")
	add("Code", e.Code, search("code", e.Code))
	add("Reason", e.Reason, "")
	if e.Shadow {
		add("Observed", "the gateway only observed: check, code and reason say how it would have been decided", "")
	}
	add("Agent", e.Agent, "/agents/"+url.PathEscape(e.Agent))
	add("Session", e.Session, "/sessions/"+url.PathEscape(e.Session))
	add("Operation", e.Operation, "/tools/"+url.PathEscape(e.Operation))
	add("Call", e.CallID, search("call_id", e.CallID))
	add("Requester", e.Requester, "")
	add("Actor", e.Actor, "")
	add("Door", e.Door, "")
	add("From", e.Remote, "")
	add("Request id", e.RequestID, "")
	add("Risk", e.Risk, "")
	add("Amount", e.Amount, "")
	add("Approvers", strings.Join(e.Approvers, ", "), "")
	add("Labels", strings.Join(e.Labels, ", "), "")
	add("Model", e.Model, "")
	add("Call digest", e.Digest, "")
	add("Definition", e.DefHash, "")
	if e.DurationMS > 0 {
		add("Took", (time.Duration(e.DurationMS) * time.Millisecond).String(), "")
	}
	return facts
}

// verify checks the proofs with the entry's own bytes, against a checkpoint of the log as it is now.
func (c *Console) verify(ctx context.Context, index int64, leaf []byte) ([]checked, error) {
	note, err := c.o.Store.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	src, err := c.o.Source(ctx)
	if err != nil {
		return nil, err
	}
	pub, err := src.PublicKey()
	if err != nil {
		return nil, err
	}
	return checkProofs(note, pub, index, leaf,
		func(size int64) (audit.Inclusion, error) { return c.o.Store.Inclusion(ctx, index, size) },
		func(size int64) (audit.Consistency, error) { return c.o.Store.Consistency(ctx, index+1, size) }), nil
}

// checkProofs checks signature, inclusion and consistency, in this order. Each rests on the one before, so the first that fails is the last.
func checkProofs(note, pub []byte, index int64, leaf []byte, include func(size int64) (audit.Inclusion, error), consistent func(size int64) (audit.Consistency, error)) (checks []checked) {
	check := func(what string, err error) bool {
		found := checked{What: what}
		if err != nil {
			found.Problem = err.Error()
		}
		checks = append(checks, found)
		return err == nil
	}
	var cp audit.Checkpoint
	key, err := audit.ParsePublicKey(string(pub))
	if err == nil {
		cp, err = audit.OpenCheckpoint(note, key)
	}
	if !check("The checkpoint of the log as it is now is signed with the log’s key.", err) {
		return checks
	}
	proof, err := include(cp.Size)
	if err == nil {
		if err = proof.Check(leaf); err == nil && (proof.Index != index || proof.Size != cp.Size || proof.RootHash != cp.Root) {
			err = fmt.Errorf("the proof is of entry %d in a log of %d entries with the root %s, and the checkpoint is of %d entries with the root %s",
				proof.Index, proof.Size, proof.RootHash, cp.Size, cp.Root)
		}
	}
	if !check(fmt.Sprintf("This entry’s bytes are number %d of the %d that the checkpoint signs.", index, cp.Size), err) {
		return checks
	}
	earlier, err := consistent(cp.Size)
	if err == nil {
		if err = earlier.Check(); err == nil && (earlier.From != index+1 || earlier.Size != cp.Size || earlier.RootHash != cp.Root) {
			err = fmt.Errorf("the proof is of another log: %d of %d entries, root %s", earlier.From, earlier.Size, earlier.RootHash)
		}
	}
	check(fmt.Sprintf("The log of the %d entries up to this one is the beginning of what the checkpoint signs: nothing before it was changed since.", index+1), err)
	return checks
}
