// Package collect gets documents for the knowledge store from the web, for people: what comm.fetch may reach, and nothing else.
//
// Promises: an address that the rules of egress refuse is on record and not asked; the intent is durable before anything leaves, and the outcome before anything is returned; the
// switch that stops all agents stops this, too. What comes back is hostile: its type decides how it is read, and it is whole, or an error.
package collect

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/comm/fetch"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
)

// atOnce bounds the files that are fetched at once.
const atOnce = 4

// timeout bounds one file, redirects included; the operator's bound for the network may be shorter.
const timeout = time.Minute

// operation is the operation by whose rules it is done.
const operation = "comm.fetch"

// Web is the way out.
type Web interface {
	// CheckFile says what is wrong with an address before anything leaves the machine.
	CheckFile(address string) error
	// File fetches a whole file.
	File(ctx context.Context, address string) (*fetch.File, error)
}

// Running is a fetch that the switch can end.
type Running interface{ Cancel(cause error) }

// Options of New.
type Options struct {
	Web    Web
	Record func(ctx context.Context, entries ...audit.Entry) error
	// Enter makes a fetch known to the switch, until leave is called; stopped tells, from then on, whether all agents are stopped.
	Enter func(Running) (leave func(), stopped func() bool)
	// Payload is what the log has of an address.
	Payload func([]byte) *audit.Payload
	Clock   func() time.Time
}

// Collector gets documents. Safe for concurrent use.
type Collector struct {
	o      Options
	places chan struct{}
}

// New returns a Collector.
func New(o Options) *Collector { return &Collector{o: o, places: make(chan struct{}, atOnce)} }

// File is what an address has.
type File struct {
	URL, Type string // Type is one of knowledge.Types
	Content   []byte
}

type running struct{ cancel context.CancelCauseFunc }

func (r *running) Cancel(cause error) { r.cancel(cause) }

// Get fetches a file for a person, who is named as kind:id.
func (c *Collector) Get(ctx context.Context, by, address string) (*File, error) {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-ctx.Done():
		return nil, fault.Wrap(ctx.Err(), fault.TimeExceeded, "Other files are being fetched.").Try("Try again in a moment.")
	}
	ctx, end := context.WithTimeout(ctx, timeout)
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leave, stopped := c.o.Enter(&running{cancel})
	defer leave()

	arguments, err := json.Marshal(map[string]string{"url": address})
	if err != nil {
		return nil, err
	}
	entry := audit.Entry{
		Kind: audit.Intent, Action: "knowledge.fetch", Actor: by, Operation: operation, CallID: call.NewID("call_", c.o.Clock()), Decision: string(fault.Permit), Arguments: c.o.Payload(arguments),
	}
	durable := context.WithoutCancel(ctx)
	if err = c.o.Web.CheckFile(address); stopped() {
		err = killed()
	}
	if err != nil {
		entry.Kind, entry.Decision, entry.Code, entry.Reason = audit.Decision, string(fault.Deny), string(fault.Of(err).Code), audit.Clip(fault.Of(err).Public())
		return nil, cmp.Or(c.o.Record(durable, entry), atURL(err))
	}
	if err := c.o.Record(durable, entry); err != nil {
		return nil, err
	}
	began := c.o.Clock()
	got, err := c.o.Web.File(ctx, address)
	if stopped() {
		err = killed()
	}
	outcome := entry
	outcome.Kind, outcome.Arguments, outcome.Decision, outcome.DurationMS = audit.Outcome, nil, "ok", c.o.Clock().Sub(began).Milliseconds()
	if err != nil {
		outcome.Decision, outcome.Code, outcome.Reason = "error", string(fault.Of(err).Code), audit.Clip(fault.Of(err).Public())
	} else if outcome.Detail, err = json.Marshal(came{got.MediaType, len(got.Bytes), len(got.Hops) - 1}); err != nil { // no hash of it: a document can be erased
		return nil, err
	}
	if err := c.o.Record(durable, outcome); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, atURL(err)
	}
	return &File{URL: got.URL, Type: typeOf(got), Content: got.Bytes}, nil
}

// came is what the outcome has of what came.
type came struct {
	Type      string `json:"type"`
	Size      int    `json:"size"`
	Redirects int    `json:"redirects"`
}

func killed() error {
	return fault.New(fault.KillSwitch, "All agents are stopped, and so is what is fetched for people.").Try("Let them work again first: sallyport unkill.")
}

// atURL is an error that names the field.
func atURL(err error) error {
	f := *fault.Of(err)
	f.Field = cmp.Or(f.Field, "url")
	return &f
}

// typeOf is the type by which a file is read: by what the server says, and where that is plain text, by the name.
func typeOf(f *fetch.File) string {
	switch f.MediaType {
	case "text/html", "application/xhtml+xml":
		return knowledge.HTML
	case "text/markdown", "text/x-markdown":
		return knowledge.Markdown
	case "text/csv":
		return knowledge.CSV
	case knowledge.PDF, knowledge.DOCX:
		return f.MediaType
	case "text/plain":
		if named := knowledge.TypeOf(f.Name()); !knowledge.Foreign(named) {
			return named
		}
		return knowledge.Plain
	}
	return knowledge.Code
}
