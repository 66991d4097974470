package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/claims"
	"sallyport.example/internal/knowledge/library"
)

// KnowledgeMetadata says where a version is from.
type KnowledgeMetadata struct {
	Source     string    `json:"source" doc:"The collection"`
	CreatedAt  time.Time `json:"createdAt"`
	CreatedBy  string    `json:"createdBy" doc:"The authenticated person or host, as person:id or host:id"`
	SnapshotID string    `json:"snapshotId,omitempty" doc:"The export that it is from; else the newest snapshot that has this version, absent where none has"`
}

// KnowledgeDocument is a document in one version.
type KnowledgeDocument struct {
	DocumentID string             `json:"documentId"`
	Version    int                `json:"version"`
	Content    string             `json:"content,omitempty" doc:"Absent in lists, and of what was erased"`
	Metadata   KnowledgeMetadata  `json:"metadata"`
	Embedding  *library.Embedding `json:"embedding,omitempty" doc:"The model that embedded every part of this version, and how many numbers an embedding has; absent: search finds it by its words alone"`
	DeletedAt  *time.Time         `json:"deletedAt,omitempty"`
	Key        string             `json:"key"`
	Type       string             `json:"content_type"`
	Size       int                `json:"size"`
	SHA256     string             `json:"content_sha256,omitempty"`
	Labels     []string           `json:"labels"`
	Withdrawn  bool               `json:"withdrawn,omitempty"`
	Erased     bool               `json:"erased,omitempty"`
	EraseAsked string             `json:"erasure_asked_by,omitempty" doc:"Who asked for its erasure; a second admin has to ask, too"`
}

// documentOf is a document as it is in a state, in a version.
func (a *API) documentOf(d *knowledge.Document, s *knowledge.State, v *knowledge.Event) KnowledgeDocument {
	out := KnowledgeDocument{
		DocumentID: d.ID(), Version: v.Version, Metadata: KnowledgeMetadata{Source: d.Source(), CreatedAt: v.At, CreatedBy: v.By, SnapshotID: cmp.Or(v.Snapshot, a.o.Library.SnapshotWith(d, v.Version))},
		Key: d.Key(), Type: v.Type, Size: v.Size, Labels: append([]string{}, s.Labels...), Withdrawn: s.Withdrawn, Erased: s.Erased,
	}
	if now := d.Now(); !now.Erased {
		out.Embedding, out.EraseAsked = a.o.Library.EmbeddingOf(v), s.EraseAsked
	}
	if s.Deleted {
		out.DeletedAt = &s.DeletedAt
	}
	return out
}

// withText is a document with the text of the version.
func (a *API) withText(ctx context.Context, d *knowledge.Document, s knowledge.State, v *knowledge.Event) (KnowledgeDocument, error) {
	out := a.documentOf(d, &s, v)
	if d.Now().Erased {
		out.Erased = true
		return out, nil
	}
	text, err := a.o.Library.Text(ctx, d, v)
	out.Content, out.SHA256 = text, call.HashBytes([]byte(text))
	return out, err
}

// KnowledgePage is a page of documents, without their texts.
type KnowledgePage struct {
	Documents []KnowledgeDocument `json:"documents"`
	Next      string              `json:"next,omitempty"`
}

// KnowledgeEvent is one thing that happened to a document.
type KnowledgeEvent struct {
	Kind    string    `json:"kind" enum:"version,delete,restore,labels,withdraw,erase.ask,erase"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Reason  string    `json:"reason,omitempty"`
	Version int       `json:"version,omitempty"`
	Size    int       `json:"size,omitempty"`
	Hash    string    `json:"hash,omitempty" doc:"HMAC-SHA256 of the text under the document's key, as the log has it"`
	Labels  []string  `json:"labels,omitempty"`
	Own     string    `json:"own,omitempty" doc:"The run or recommendation that the text is like; its author said that it is theirs"`
}

// KnowledgeHistory is all that happened to a document.
type KnowledgeHistory struct {
	DocumentID string           `json:"documentId"`
	Key        string           `json:"key"`
	Source     string           `json:"source"`
	Events     []KnowledgeEvent `json:"events"`
}

// KnowledgeDiff is what two versions of a document differ in.
type KnowledgeDiff struct {
	DocumentID string         `json:"documentId"`
	From       int            `json:"from"`
	To         int            `json:"to"`
	Lines      []library.Line `json:"lines"`
}

// AddBody adds a document.
type AddBody struct {
	Key      string   `json:"key" maxLength:"1024" doc:"What the document is known by: its path or address. Its id follows from it and the source."`
	Content  string   `json:"content,omitempty" required:"false" doc:"The text"`
	File     []byte   `json:"content_base64,omitempty" required:"false" doc:"Or the file, where it is no text: PDF or DOCX"`
	Source   string   `json:"source" maxLength:"64" doc:"The collection"`
	Type     string   `json:"content_type,omitempty" required:"false" doc:"text/plain (default), text/markdown, text/html, text/csv, text/x-source, application/pdf or application/vnd.openxmlformats-officedocument.wordprocessingml.document"`
	Labels   []string `json:"labels,omitempty" required:"false" maxItems:"16" doc:"Confidentiality labels; those of sensitive data in the text are added"`
	Snapshot string   `json:"snapshotId,omitempty" required:"false" maxLength:"128" doc:"The snapshot or export that it is from"`
	Own      bool     `json:"own,omitempty" required:"false" doc:"You say that the text is yours, though it is like what an agent said: it goes on the record"`
}

// VersionBody adds a version.
type VersionBody struct {
	Expected int      `json:"expected_version" minimum:"1" doc:"The version that you saw last"`
	Content  string   `json:"content,omitempty" required:"false" doc:"The text"`
	File     []byte   `json:"content_base64,omitempty" required:"false" doc:"Or the file, where it is no text: PDF or DOCX"`
	Type     string   `json:"content_type,omitempty" required:"false"`
	Labels   []string `json:"labels,omitempty" required:"false" maxItems:"16" doc:"Labels to add; it keeps those that it has"`
	Snapshot string   `json:"snapshotId,omitempty" required:"false" maxLength:"128"`
	Own      bool     `json:"own,omitempty" required:"false" doc:"You say that the text is yours, though it is like what an agent said: it goes on the record"`
	Same     bool     `json:"unless_same,omitempty" required:"false" doc:"Do nothing if the newest version has the same text"`
}

// FetchBody adds what an address has.
type FetchBody struct {
	URL    string   `json:"url" minLength:"1" maxLength:"8192" doc:"Where it is. It is fetched by the rules of comm.fetch."`
	Key    string   `json:"key,omitempty" required:"false" maxLength:"1024" doc:"What the document is known by; the address if left out"`
	Source string   `json:"source" maxLength:"64" doc:"The collection"`
	Labels []string `json:"labels,omitempty" required:"false" maxItems:"16" doc:"Confidentiality labels; those of sensitive data in the text are added"`
	Own    bool     `json:"own,omitempty" required:"false" doc:"You say that the text is yours, though it is like what an agent said: it goes on the record"`
}

// Fetched is a document that was fetched.
type Fetched struct {
	KnowledgeDocument
	Saved string `json:"saved" enum:"added,new version,unchanged"`
}

// LabelsBody gives a document other labels.
type LabelsBody struct {
	Labels []string `json:"labels" maxItems:"16"`
	Reason string   `json:"reason" maxLength:"2000"`
}

// WithdrawBody says what to withdraw; all that is given has to hold.
type WithdrawBody struct {
	Source string    `json:"source,omitempty" required:"false" maxLength:"64"`
	Author string    `json:"author,omitempty" required:"false" maxLength:"128"`
	From   time.Time `json:"from,omitzero" required:"false"`
	To     time.Time `json:"to,omitzero" required:"false"`
	Reason string    `json:"reason" maxLength:"2000"`
}

// KnowledgeReaders are who read documents.
type KnowledgeReaders struct {
	Documents       []string `json:"documents" doc:"What was taken out"`
	Sessions        []string `json:"sessions" doc:"Sessions that read some of it"`
	Agents          []string `json:"agents"`
	Runs            []string `json:"runs"`
	Recommendations []string `json:"recommendations"`
	Calls           []string `json:"calls"`
	Sent            []string `json:"sent" doc:"Calls that these sessions made afterwards, by id and operation, messages and requests to models among them: what was read may have left in them"`
	Snapshots       []string `json:"snapshots" doc:"Snapshots that list some of it, by its keyed hash"`
	Exports         []string `json:"exports" doc:"Documents of exports that have what these recommendations say"`
	Models          []string `json:"models" doc:"Models that some of it was sent to for embeddings"`
}

// Erasure is an erasure, done or asked for.
type Erasure struct {
	DocumentID string            `json:"documentId"`
	Done       bool              `json:"done"`
	AskedBy    string            `json:"asked_by,omitempty" doc:"A second admin has to ask, too"`
	Left       *KnowledgeReaders `json:"left,omitempty" doc:"What has read it, and may still hold it"`
}

// SnapshotList is the snapshots, the newest first.
type SnapshotList struct {
	Snapshots []knowledge.Snapshot `json:"snapshots"`
}

// SearchBody is a question.
type SearchBody struct {
	Query    string `json:"query" minLength:"1" maxLength:"4096"`
	Snapshot string `json:"snapshot,omitempty" required:"false" maxLength:"128" doc:"The newest if left out"`
	K        int    `json:"k,omitempty" required:"false" minimum:"1" maximum:"50" doc:"How many hits; 10 if left out"`
}

func (a *API) knowledgeRoutes(s *side) {
	a.documentRoutes(s)
	a.fetchRoute(s)
	a.documentActs(s)
	a.snapshotRoutes(s)
	handle(s, route{method: http.MethodPost, path: "/v1/claims", roles: readers, summary: "Check a claim against several sources", noConfirmation: true},
		func(ctx context.Context, p identity.Principal, in *struct{ Body ClaimBody }) (claims.Answer, error) {
			c, err := claims.Parse(in.Body.Claim)
			if err != nil {
				return claims.Answer{}, err
			}
			return a.o.Claims.Validate(ctx, knowledge.Reader{All: true}, audit.Entry{Actor: p.String()}, nil, "", c, in.Body.Sources)
		})
}

// ClaimBody is a claim to check.
type ClaimBody struct {
	Claim   json.RawMessage `json:"claim" doc:"An object with subject, attribute and value, or a sentence, which the judge alone can confirm"`
	Sources []string        `json:"sources,omitempty" required:"false" maxItems:"50" doc:"Sources besides the configured ones, as knowledge.COLLECTION: they are shown and don't count"`
}

const documents = "/v1/knowledge/documents"

// maxDocument bounds the body of a request with a document: a file in base64 fits.
const maxDocument = knowledge.MaxFile/3*4 + 64<<10

// contentOf is what a request brings: a text, or a file.
func contentOf(text string, file []byte) (string, error) {
	if text != "" && len(file) > 0 {
		return "", fault.New(fault.RequestMalformed, "There is a text and a file, and only one of them is taken.").At("content_base64").Try("Leave one out.")
	}
	return text + string(file), nil
}

func (a *API) documentRoutes(s *side) {
	l := a.o.Library
	handle(s, route{method: http.MethodGet, path: documents, roles: readers, summary: "Documents of the knowledge store, without their texts"},
		func(_ context.Context, _ identity.Principal, in *struct {
			Source string `query:"source" maxLength:"64"`
			After  string `query:"after" maxLength:"128" doc:"Next of the page before."`
			Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		}) (KnowledgePage, error) {
			page := KnowledgePage{Documents: []KnowledgeDocument{}}
			for _, d := range l.Documents(in.After, in.Source, in.Limit) {
				now := d.Now()
				page.Documents = append(page.Documents, a.documentOf(d, &now, now.Version))
			}
			if n := len(page.Documents); n == in.Limit {
				page.Next = page.Documents[n-1].DocumentID
			}
			return page, nil
		})
	handle(s, route{method: http.MethodPost, path: documents, roles: operator, status: http.StatusCreated, limit: maxDocument, summary: "Add a document; hosts that the configuration names for the collection do so on the agents' side"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body AddBody }) (KnowledgeDocument, error) {
			return a.addDocument(ctx, p, in.Body)
		})
	handle(s, route{method: http.MethodGet, path: documents + "/{id}", roles: readers, summary: "A document, as it is or as it was at a time"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			PathID
			AsOf time.Time `query:"as_of" doc:"As it was then; now if left out."`
		}) (KnowledgeDocument, error) {
			d, err := l.Document(in.ID)
			if err != nil {
				return KnowledgeDocument{}, err
			}
			then := d.Now()
			if !in.AsOf.IsZero() {
				var ok bool
				if then, ok = d.AsOf(in.AsOf); !ok {
					return KnowledgeDocument{}, fault.New(fault.NotFound, "The document was not there yet.").At("as_of")
				}
			}
			return a.withText(ctx, d, then, then.Version)
		})
	handle(s, route{method: http.MethodGet, path: documents + "/{id}/versions", roles: readers, summary: "All that happened to a document: versions, deletions, labels"},
		func(_ context.Context, _ identity.Principal, in *PathID) (KnowledgeHistory, error) {
			d, err := l.Document(in.ID)
			if err != nil {
				return KnowledgeHistory{}, err
			}
			h := KnowledgeHistory{DocumentID: d.ID(), Key: d.Key(), Source: d.Source()}
			for _, e := range d.Events {
				h.Events = append(h.Events, KnowledgeEvent{Kind: string(e.Kind), At: e.At, By: e.By, Reason: e.Reason, Version: e.Version, Size: e.Size, Hash: e.Hash, Labels: e.Labels, Own: e.Own})
			}
			return h, nil
		})
	handle(s, route{method: http.MethodGet, path: documents + "/{id}/versions/{n}", roles: readers, summary: "A version of a document"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			PathID
			N int `path:"n" minimum:"1"`
		}) (KnowledgeDocument, error) {
			d, err := l.Document(in.ID)
			if err != nil {
				return KnowledgeDocument{}, err
			}
			v := d.Version(in.N)
			if v == nil {
				return KnowledgeDocument{}, fault.New(fault.NotFound, "The document has no version %d.", in.N).At("n")
			}
			now := d.Now()
			now.Labels, now.Withdrawn = d.Rights(v.Version).Labels, now.Withdrawn || v.Version <= now.Poisoned
			return a.withText(ctx, d, now, v)
		})
	handle(s, route{method: http.MethodGet, path: documents + "/{id}/diff", roles: readers, summary: "What two versions of a document differ in, line by line"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			PathID
			From int `query:"from" minimum:"0" doc:"The older version; the one before the newer if left out."`
			To   int `query:"to" minimum:"0" doc:"The newer version; the newest if left out."`
		}) (KnowledgeDiff, error) {
			d, err := l.Document(in.ID)
			if err != nil {
				return KnowledgeDiff{}, err
			}
			from, to, lines, err := l.Diff(ctx, d, in.From, in.To)
			if err != nil {
				return KnowledgeDiff{}, err
			}
			return KnowledgeDiff{DocumentID: d.ID(), From: from.Version, To: to.Version, Lines: append([]library.Line{}, lines...)}, nil
		})
	handle(s, route{method: http.MethodPost, path: documents + "/{id}/versions", roles: operator, status: http.StatusCreated, limit: maxDocument, summary: "Add a version after the one that you saw; hosts likewise"},
		func(ctx context.Context, p identity.Principal, in *versionOf) (KnowledgeDocument, error) {
			return a.addVersion(ctx, p, in)
		})
}

// versionOf is a version of a document to add.
type versionOf struct {
	PathID
	Body VersionBody
}

func (a *API) addDocument(ctx context.Context, p identity.Principal, b AddBody) (KnowledgeDocument, error) {
	content, err := contentOf(b.Content, b.File)
	if err != nil {
		return KnowledgeDocument{}, err
	}
	d, err := a.o.Library.Add(ctx, p.String(), library.Adding{Key: b.Key, Source: b.Source, Type: b.Type, Content: content, Labels: b.Labels, Snapshot: b.Snapshot, Own: b.Own})
	return a.added(ctx, d, err)
}

func (a *API) addVersion(ctx context.Context, p identity.Principal, in *versionOf) (KnowledgeDocument, error) {
	b := in.Body
	content, err := contentOf(b.Content, b.File)
	if err != nil {
		return KnowledgeDocument{}, err
	}
	d, err := a.o.Library.AddVersion(ctx, p.String(), in.ID, b.Expected, library.Adding{Type: b.Type, Content: content, Labels: b.Labels, Snapshot: b.Snapshot, Own: b.Own, UnlessSame: b.Same, NoCorrection: p.Kind != identity.Person})
	return a.added(ctx, d, err)
}

// hostDocumentRoutes are for hosts that the configuration lets add documents to a collection. Whatever else has a credential of the agents' side is refused, on record.
func (a *API) hostDocumentRoutes(s *side) {
	may := func(p identity.Principal, source string, own bool) error {
		switch {
		case p.Kind != identity.Host:
			return fault.New(fault.CredentialWrongKind, "Documents are added by people, and by hosts that the configuration names for the collection. Agents add none.")
		case source == "" || !slices.Contains(a.o.AddsTo(p.ID), source):
			return fault.New(fault.PermissionDenied, "The host %q adds nothing there.", p.ID).At("source").Try("An operator can name the collection under adds_to of the host in sallyport.yaml.")
		case own:
			return fault.New(fault.PermissionDenied, "That words are one's own is for people to say.").At("own").Try("Have a person add the document.")
		}
		return nil
	}
	handle(s, route{twin: true, method: http.MethodPost, path: documents, status: http.StatusCreated, limit: maxDocument, summary: "Add a document; for hosts that the configuration names for the collection"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body AddBody }) (KnowledgeDocument, error) {
			if err := may(p, in.Body.Source, in.Body.Own); err != nil {
				return KnowledgeDocument{}, err
			}
			return a.addDocument(ctx, p, in.Body)
		})
	handle(s, route{twin: true, method: http.MethodPost, path: documents + "/{id}/versions", status: http.StatusCreated, limit: maxDocument, summary: "Add a version; for hosts that the configuration names for the collection"},
		func(ctx context.Context, p identity.Principal, in *versionOf) (KnowledgeDocument, error) {
			source := "" // of a document that is not there: a host is told the same of it as of another collection's
			if d, err := a.o.Library.Document(in.ID); err == nil {
				source = d.Source()
			}
			if err := may(p, source, in.Body.Own); err != nil {
				return KnowledgeDocument{}, err
			}
			return a.addVersion(ctx, p, in)
		})
}

// fetchRoute adds what an address has, or makes it the next version of the document that is there.
func (a *API) fetchRoute(s *side) {
	handle(s, route{method: http.MethodPost, path: "/v1/knowledge/fetch", roles: operator, summary: "Add what an address has, or make it the next version; of the same text nothing is made"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body FetchBody }) (Fetched, error) {
			b := in.Body
			address, _, _ := strings.Cut(b.URL, "#")
			adding := library.Adding{Key: cmp.Or(b.Key, address), Source: b.Source, Labels: b.Labels, Own: b.Own, NoCorrection: true}
			if err := a.o.Library.MayAdd(&adding); err != nil {
				return Fetched{}, err
			}
			file, err := a.o.Collector.Get(ctx, p.String(), address)
			if err != nil {
				return Fetched{}, err
			}
			adding.Type, adding.Content = file.Type, string(file.Content)
			d, saved, err := a.o.Library.Save(ctx, p.String(), adding)
			out, err := a.added(ctx, d, err)
			return Fetched{out, string(saved)}, err
		})
}

// added is a document right after an act, with the text.
func (a *API) added(ctx context.Context, d *knowledge.Document, err error) (KnowledgeDocument, error) {
	if err != nil {
		return KnowledgeDocument{}, err
	}
	now := d.Now()
	return a.withText(ctx, d, now, now.Version)
}

// documentActs end, restore and label documents.
func (a *API) documentActs(s *side) {
	l := a.o.Library
	type reasoned struct {
		PathID
		Body ReasonBody
	}
	bare := func(d *knowledge.Document, err error) (KnowledgeDocument, error) {
		if err != nil {
			return KnowledgeDocument{}, err
		}
		now := d.Now()
		return a.documentOf(d, &now, now.Version), nil
	}
	handle(s, route{method: http.MethodDelete, path: documents + "/{id}", roles: operator, summary: "Delete a document softly: the next snapshot is without it"},
		func(ctx context.Context, p identity.Principal, in *reasoned) (KnowledgeDocument, error) {
			return bare(l.Delete(ctx, p.String(), in.ID, in.Body.Reason))
		})
	handle(s, route{method: http.MethodPost, path: documents + "/{id}/restore", roles: operator, summary: "Restore a document that was deleted or withdrawn"},
		func(ctx context.Context, p identity.Principal, in *reasoned) (KnowledgeDocument, error) {
			return bare(l.Restore(ctx, p.String(), in.ID, in.Body.Reason))
		})
	handle(s, route{method: http.MethodPost, path: documents + "/{id}/labels", roles: operator, summary: "Give a document other labels"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body LabelsBody
		}) (KnowledgeDocument, error) {
			return bare(l.SetLabels(ctx, p.String(), in.ID, in.Body.Reason, in.Body.Labels))
		})
	handle(s, route{method: http.MethodPost, path: documents + "/{id}/erase", roles: admin, summary: "Erase a document: two admins have to ask for it"},
		func(ctx context.Context, p identity.Principal, in *reasoned) (Erasure, error) {
			d, done, err := l.Erase(ctx, p.String(), in.ID, in.Body.Reason)
			if err != nil {
				return Erasure{}, err
			}
			out := Erasure{DocumentID: d.ID(), Done: done}
			if !done {
				out.AskedBy = d.Now().EraseAsked
				return out, nil
			}
			left, err := a.readersOf(ctx, []*knowledge.Document{d})
			out.Left = &left
			return out, err
		})
	handle(s, route{method: http.MethodPost, path: "/v1/knowledge/withdraw", roles: operator, summary: "Take a poisoned source out of every snapshot at once"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body WithdrawBody }) (KnowledgeReaders, error) {
			b := in.Body
			done, err := l.Withdraw(ctx, p.String(), b.Reason, library.Withdrawal{Source: b.Source, Author: b.Author, From: b.From, To: b.To})
			if err != nil {
				return KnowledgeReaders{}, err
			}
			return a.readersOf(ctx, done)
		})
}

// readersOf finds who read documents.
func (a *API) readersOf(ctx context.Context, of []*knowledge.Document) (KnowledgeReaders, error) {
	r, err := library.ReadersOf(ctx, a.store, of)
	out := KnowledgeReaders{Documents: []string{}, Sessions: r.Sessions, Agents: r.Agents, Runs: r.Runs, Recommendations: r.Recommendations, Calls: r.Calls, Sent: r.Sent, Models: r.Models}
	for _, d := range of {
		out.Documents = append(out.Documents, d.ID())
	}
	if err == nil {
		out.Snapshots, out.Exports, err = a.o.Library.Holding(ctx, of, r)
	}
	return out, err
}

func (a *API) snapshotRoutes(s *side) {
	l := a.o.Library
	const at = "/v1/knowledge/snapshots"
	handle(s, route{method: http.MethodPost, path: at, roles: operator, status: http.StatusCreated, emptyBody: true, summary: "Make a snapshot of the documents that are there, and its index"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body ReasonBody }) (knowledge.Snapshot, error) {
			return l.Snapshot(ctx, p.String(), in.Body.Reason)
		})
	handle(s, route{method: http.MethodGet, path: at, roles: readers, summary: "Snapshots, the newest first"},
		func(context.Context, identity.Principal, *none) (SnapshotList, error) {
			return SnapshotList{Snapshots: append([]knowledge.Snapshot{}, l.Snapshots()...)}, nil
		})
	handle(s, route{method: http.MethodGet, path: at + "/{id}", roles: readers, summary: "A snapshot"},
		func(_ context.Context, _ identity.Principal, in *PathID) (knowledge.Snapshot, error) {
			return l.SnapshotByID(in.ID)
		})
	handle(s, route{method: http.MethodPost, path: "/v1/knowledge/search", roles: readers, noConfirmation: true, summary: "Search a snapshot"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body SearchBody }) (library.Found, error) {
			return l.Search(ctx, knowledge.Reader{All: true}, l.Asking(p.String(), in.Body.Query), in.Body.Snapshot, in.Body.Query, cmp.Or(in.Body.K, 10))
		})
}
