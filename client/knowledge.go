package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// KnowledgeMetadata says where a version of a document is from.
type KnowledgeMetadata struct {
	Source     string    `json:"source"` // the collection
	CreatedAt  time.Time `json:"createdAt"`
	CreatedBy  string    `json:"createdBy"`
	SnapshotID string    `json:"snapshotId,omitempty"` // the export that it is from; else the newest snapshot that has the version
}

// KnowledgeDocument is a document of the knowledge store in one version.
type KnowledgeDocument struct {
	DocumentID string              `json:"documentId"`
	Version    int                 `json:"version"`
	Content    string              `json:"content,omitempty"`
	Metadata   KnowledgeMetadata   `json:"metadata"`
	Embedding  *KnowledgeEmbedding `json:"embedding,omitempty"`
	DeletedAt  *time.Time          `json:"deletedAt,omitempty"`
	Key        string              `json:"key"`
	Type       string              `json:"content_type"`
	Size       int                 `json:"size"`
	SHA256     string              `json:"content_sha256,omitempty"`
	Labels     []string            `json:"labels"`
	Withdrawn  bool                `json:"withdrawn,omitempty"`
	Erased     bool                `json:"erased,omitempty"`
	EraseAsked string              `json:"erasure_asked_by,omitempty"`
}

// KnowledgePage is a page of documents, without their texts. Next is "after" for the next page; the last page has none.
type KnowledgePage struct {
	Documents []KnowledgeDocument `json:"documents"`
	Next      string              `json:"next,omitempty"`
}

// KnowledgeEvent is one thing that happened to a document.
type KnowledgeEvent struct {
	Kind    string    `json:"kind"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Reason  string    `json:"reason,omitempty"`
	Version int       `json:"version,omitempty"`
	Size    int       `json:"size,omitempty"`
	Hash    string    `json:"hash,omitempty"`
	Labels  []string  `json:"labels,omitempty"`
	Own     string    `json:"own,omitempty"` // the run or recommendation that the text is like; its author said that it is theirs
}

// KnowledgeHistory is all that happened to a document.
type KnowledgeHistory struct {
	DocumentID string           `json:"documentId"`
	Key        string           `json:"key"`
	Source     string           `json:"source"`
	Events     []KnowledgeEvent `json:"events"`
}

// NewDocument is a document to add.
type NewDocument struct {
	Key      string   `json:"key"`
	Content  string   `json:"content,omitempty"`
	File     []byte   `json:"content_base64,omitempty"` // instead, where it is no text
	Source   string   `json:"source"`
	Type     string   `json:"content_type,omitempty"`
	Labels   []string `json:"labels,omitempty"`
	Snapshot string   `json:"snapshotId,omitempty"`
	Own      bool     `json:"own,omitempty"` // the text is yours, though it is like what an agent said
}

// NewVersion is a version to add after the one that its author saw.
type NewVersion struct {
	Expected   int      `json:"expected_version"`
	Content    string   `json:"content,omitempty"`
	File       []byte   `json:"content_base64,omitempty"` // instead, where it is no text
	Type       string   `json:"content_type,omitempty"`
	Labels     []string `json:"labels,omitempty"`
	Snapshot   string   `json:"snapshotId,omitempty"`
	Own        bool     `json:"own,omitempty"`         // the text is yours, though it is like what an agent said
	UnlessSame bool     `json:"unless_same,omitempty"` // nothing is done if the newest version has the same text
}

// FetchDocument names a document by its address.
type FetchDocument struct {
	URL    string   `json:"url"`
	Key    string   `json:"key,omitempty"` // the address, if empty
	Source string   `json:"source"`
	Labels []string `json:"labels,omitempty"`
	Own    bool     `json:"own,omitempty"` // the text is yours, though it is like what an agent said
}

// FetchedDocument is a document that was fetched.
type FetchedDocument struct {
	KnowledgeDocument
	Saved string `json:"saved"` // added, new version or unchanged
}

// KnowledgeSnapshot is a list of documents that does not change any more.
type KnowledgeSnapshot struct {
	ID        string    `json:"snapshot_id"`
	Documents int       `json:"documents"`
	Root      string    `json:"root"`
	At        time.Time `json:"at"`
	By        string    `json:"by"`
	Order     int64     `json:"order"`
}

// KnowledgeSnapshots are the snapshots, the newest first.
type KnowledgeSnapshots struct {
	Snapshots []KnowledgeSnapshot `json:"snapshots"`
}

// Span is a part of a text, in bytes.
type Span struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// KnowledgeEmbedding says which model embedded every part of a version, and how many numbers an embedding has.
type KnowledgeEmbedding struct {
	Model      string `json:"model"`
	Dimensions int    `json:"dimensions"`
}

// KnowledgeHit is a part of a document that answers a question.
type KnowledgeHit struct {
	DocumentID string   `json:"documentId"`
	Version    int      `json:"version"`
	Span       Span     `json:"span"`
	Text       string   `json:"text"`
	Score      float64  `json:"score"`
	Labels     []string `json:"labels"`
	Source     string   `json:"source"`
	Key        string   `json:"key"`
}

// KnowledgeFound is what a search finds.
type KnowledgeFound struct {
	Snapshot string         `json:"snapshot_id"`
	Hits     []KnowledgeHit `json:"hits"`
	Search   string         `json:"search"`              // how: text, by words alone; or hybrid, by words and by meaning
	TextOnly string         `json:"text_only,omitempty"` // why by words alone
}

// KnowledgeWithdrawal says what to withdraw; all that is given has to hold.
type KnowledgeWithdrawal struct {
	Source string    `json:"source,omitempty"`
	Author string    `json:"author,omitempty"`
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`
	Reason string    `json:"reason"`
}

// KnowledgeReaders are who read documents.
type KnowledgeReaders struct {
	Documents       []string `json:"documents"`
	Sessions        []string `json:"sessions"`
	Agents          []string `json:"agents"`
	Runs            []string `json:"runs"`
	Recommendations []string `json:"recommendations"`
	Calls           []string `json:"calls"`
	Sent            []string `json:"sent"`      // calls that these sessions made afterwards
	Snapshots       []string `json:"snapshots"` // that list some of it
	Exports         []string `json:"exports"`   // documents of exports that have what these recommendations say
	Models          []string `json:"models"`    // that some of it was sent to for embeddings
}

// KnowledgeDiff is what two versions of a document differ in.
type KnowledgeDiff struct {
	DocumentID string          `json:"documentId"`
	From       int             `json:"from"`
	To         int             `json:"to"`
	Lines      []KnowledgeLine `json:"lines"`
}

// KnowledgeLine is a line of a difference.
type KnowledgeLine struct {
	Kind string `json:"kind"` // del: only in the older version; ins: only in the newer; skip: Left lines of both were left out; empty: in both
	Text string `json:"text,omitempty"`
	Left int    `json:"left,omitempty"`
}

// Erasure is an erasure, done or asked for by one person.
type Erasure struct {
	DocumentID string            `json:"documentId"`
	Done       bool              `json:"done"`
	AskedBy    string            `json:"asked_by,omitempty"`
	Left       *KnowledgeReaders `json:"left,omitempty"` // what has read it, and may still hold it
}

const documents = "/v1/knowledge/documents"

// AddDocument adds a document. For people who operate. A key that is taken is a *Problem with status 409.
func (c *Client) AddDocument(ctx context.Context, d NewDocument) (*KnowledgeDocument, error) {
	return do[KnowledgeDocument](ctx, c, http.MethodPost, documents, d)
}

// AddDocumentVersion adds a version. Where another was expected, it is a *Problem with status 409 and the CurrentVersion.
func (c *Client) AddDocumentVersion(ctx context.Context, id string, v NewVersion) (*KnowledgeDocument, error) {
	return do[KnowledgeDocument](ctx, c, http.MethodPost, documents+"/"+seg(id)+"/versions", v)
}

// FetchDocument adds what an address has, or makes it the next version of the document that is there. For people who operate.
func (c *Client) FetchDocument(ctx context.Context, d FetchDocument) (*FetchedDocument, error) {
	return do[FetchedDocument](ctx, c, http.MethodPost, "/v1/knowledge/fetch", d)
}

// Documents returns a page of documents, of one collection or ("") of all.
func (c *Client) Documents(ctx context.Context, source, after string) (*KnowledgePage, error) {
	q := url.Values{}
	set(q, "source", source)
	set(q, "after", after)
	return get[KnowledgePage](ctx, c, documents, q)
}

// Document returns a document, as it was at a time or (zero) as it is.
func (c *Client) Document(ctx context.Context, id string, asOf time.Time) (*KnowledgeDocument, error) {
	q := url.Values{}
	setTime(q, "as_of", asOf)
	return get[KnowledgeDocument](ctx, c, documents+"/"+seg(id), q)
}

// DocumentVersion returns a version of a document.
func (c *Client) DocumentVersion(ctx context.Context, id string, n int) (*KnowledgeDocument, error) {
	return do[KnowledgeDocument](ctx, c, http.MethodGet, documents+"/"+seg(id)+"/versions/"+strconv.Itoa(n), nil)
}

// DocumentHistory returns all that happened to a document.
func (c *Client) DocumentHistory(ctx context.Context, id string) (*KnowledgeHistory, error) {
	return do[KnowledgeHistory](ctx, c, http.MethodGet, documents+"/"+seg(id)+"/versions", nil)
}

// DocumentDiff compares two versions of a document: from 0 is the one before to, and to 0 the newest.
func (c *Client) DocumentDiff(ctx context.Context, id string, from, to int) (*KnowledgeDiff, error) {
	q := url.Values{}
	for name, n := range map[string]int{"from": from, "to": to} {
		if n != 0 {
			q.Set(name, strconv.Itoa(n))
		}
	}
	return get[KnowledgeDiff](ctx, c, documents+"/"+seg(id)+"/diff", q)
}

// DeleteDocument deletes a document softly.
func (c *Client) DeleteDocument(ctx context.Context, id, reason string) (*KnowledgeDocument, error) {
	return do[KnowledgeDocument](ctx, c, http.MethodDelete, documents+"/"+seg(id), reasonBody{reason})
}

// RestoreDocument restores a document that was deleted or withdrawn.
func (c *Client) RestoreDocument(ctx context.Context, id, reason string) (*KnowledgeDocument, error) {
	return do[KnowledgeDocument](ctx, c, http.MethodPost, documents+"/"+seg(id)+"/restore", reasonBody{reason})
}

// LabelDocument gives a document other labels.
func (c *Client) LabelDocument(ctx context.Context, id string, labels []string, reason string) (*KnowledgeDocument, error) {
	return do[KnowledgeDocument](ctx, c, http.MethodPost, documents+"/"+seg(id)+"/labels", struct {
		Labels []string `json:"labels"`
		Reason string   `json:"reason"`
	}{append([]string{}, labels...), reason})
}

// EraseDocument asks for the erasure of a document; the second admin who asks makes it happen.
func (c *Client) EraseDocument(ctx context.Context, id, reason string) (*Erasure, error) {
	return do[Erasure](ctx, c, http.MethodPost, documents+"/"+seg(id)+"/erase", reasonBody{reason})
}

// WithdrawDocuments takes documents out of every snapshot at once.
func (c *Client) WithdrawDocuments(ctx context.Context, w KnowledgeWithdrawal) (*KnowledgeReaders, error) {
	return do[KnowledgeReaders](ctx, c, http.MethodPost, "/v1/knowledge/withdraw", w)
}

// MakeSnapshot makes a snapshot of the documents that are there.
func (c *Client) MakeSnapshot(ctx context.Context) (*KnowledgeSnapshot, error) {
	return do[KnowledgeSnapshot](ctx, c, http.MethodPost, "/v1/knowledge/snapshots", nil)
}

// Snapshots returns the snapshots of the knowledge store.
func (c *Client) Snapshots(ctx context.Context) (*KnowledgeSnapshots, error) {
	return do[KnowledgeSnapshots](ctx, c, http.MethodGet, "/v1/knowledge/snapshots", nil)
}

// SearchKnowledge searches a snapshot ("": the newest) for at most k hits (0: 10).
func (c *Client) SearchKnowledge(ctx context.Context, query, snapshot string, k int) (*KnowledgeFound, error) {
	return do[KnowledgeFound](ctx, c, http.MethodPost, "/v1/knowledge/search", struct {
		Query    string `json:"query"`
		Snapshot string `json:"snapshot,omitempty"`
		K        int    `json:"k,omitempty"`
	}{query, snapshot, k})
}

// Claim is what is claimed: that an attribute of a subject has a value, or else a sentence.
type Claim struct {
	Subject   string `json:"subject,omitempty"`
	Attribute string `json:"attribute,omitempty"`
	Value     string `json:"value,omitempty"`
	Sentence  string `json:"sentence,omitempty"`
}

// ClaimSource is what one source says of a claim.
type ClaimSource struct {
	Source   string `json:"source"`
	Confirms *bool  `json:"confirms"`       // nil: it is silent, failed, or contradicts itself
	Note     string `json:"note,omitempty"` // why nothing could be asked
	Quote    string `json:"quote,omitempty"`
	Counts   bool   `json:"counts"` // the operator configured it
}

// ClaimAnswer says whether a claim is valid.
type ClaimAnswer struct {
	Valid      bool          `json:"is_valid"`
	Confidence float64       `json:"confidence"`
	Sources    []ClaimSource `json:"sources"`
}

// ValidateClaim checks a claim against the configured sources, and others, which don't count.
func (c *Client) ValidateClaim(ctx context.Context, claim Claim, others ...string) (*ClaimAnswer, error) {
	return do[ClaimAnswer](ctx, c, http.MethodPost, "/v1/claims", struct {
		Claim   Claim    `json:"claim"`
		Sources []string `json:"sources,omitempty"`
	}{claim, others})
}
