package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/collect"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/web"
)

const (
	// maxUpload bounds a form with files; two of the largest fit.
	maxUpload = 2*knowledge.MaxFile + 1<<20
	// documentsOfPage, snapshotsShown and hitsShown bound the lists of a page, and shownOfText the text of a document on its page, in bytes.
	documentsOfPage = 100
	snapshotsShown  = 10
	hitsShown       = 10
	shownOfText     = 64 << 10
)

// readsBody are the acts that read their form themselves, since files come with it.
var readsBody = []string{"/knowledge/add", "/knowledge/{id}/versions"}

// knowledgePage shows the knowledge store: what it has, what is found in it, and what can be done.
type knowledgePage struct {
	Problem     *problem
	Said        string                // what an act did
	Refused     []string              // what was not added, and why
	Readers     *library.Readers      // who read what was withdrawn
	Gone        []*knowledge.Document // what was withdrawn
	Form        url.Values            // what was typed
	Operator    bool
	Query       string
	Snapshot    string
	Found       *library.Found
	NotFound    *problem
	Source      string
	Collections []library.Collection
	All         int
	Rows        []documentRow
	Next, First string
	Snapshots   []knowledge.Snapshot
	More        int // how many older snapshots there are
	Types       string
	AskOwn      bool // a text that was refused may be the person's own
}

// documentRow is a document in a list.
type documentRow struct {
	*knowledge.Document
	State knowledge.State
}

// Standing is what became of it, or "".
func (r documentRow) Standing() string {
	switch {
	case r.State.Erased:
		return "erased"
	case r.State.Withdrawn:
		return "withdrawn"
	case r.State.Deleted:
		return "deleted"
	}
	return ""
}

func (c *Console) showKnowledge(w http.ResponseWriter, r *http.Request, p identity.Principal, d knowledgePage, status int) {
	l, q := c.o.Library, r.URL.Query().Get
	d.Operator, d.Source, d.Query, d.Snapshot = p.Has(identity.Operator), q("source"), strings.TrimSpace(q("q")), q("snapshot")
	d.Types = ".txt,.md,.markdown,.html,.htm,.csv,.pdf,.docx,text/*"
	if d.Form == nil {
		d.Form = url.Values{"source": {d.Source}}
	}
	d.Collections = l.Collections()
	for _, one := range d.Collections {
		d.All += one.Documents
	}
	for _, doc := range l.Documents(q("after"), d.Source, documentsOfPage) {
		d.Rows = append(d.Rows, documentRow{doc, doc.Now()})
	}
	if n := len(d.Rows); n == documentsOfPage {
		d.Next = link("/knowledge", "source", d.Source, "after", d.Rows[n-1].ID())
	}
	if q("after") != "" {
		d.First = link("/knowledge", "source", d.Source)
	}
	d.Snapshots = l.Snapshots()
	d.More = max(0, len(d.Snapshots)-snapshotsShown)
	d.Snapshots = d.Snapshots[:len(d.Snapshots)-d.More]
	if len(d.Query) > 4<<10 {
		d.NotFound = problemOf(fault.New(fault.RequestMalformed, "A question has at most %d bytes.", 4<<10).At("q"))
	} else if d.Query != "" {
		found, err := l.Search(r.Context(), knowledge.Reader{All: true}, l.Asking(p.String(), d.Query), d.Snapshot, d.Query, hitsShown)
		if d.Found = &found; err != nil {
			d.Found, d.NotFound = nil, problemOf(err)
		}
	}
	c.show(w, r, p, view{template: "knowledge", title: "Knowledge", place: "/knowledge", status: status, data: d})
}

// labelsOf are the labels of a field in which they stand apart by commas or spaces.
func labelsOf(field string) []string {
	return strings.FieldsFunc(field, func(r rune) bool { return r == ',' || r == ' ' })
}

// addDocuments adds the files that came, or the text that was typed. A file of a key that is there already is its next version.
func (c *Console) addDocuments(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	files, err := web.Upload(w, r, maxUpload)
	form := r.PostForm.Get
	d := knowledgePage{Form: r.PostForm}
	given := 0
	for _, is := range []bool{len(files) > 0, form("url") != "", form("content") != ""} {
		if is {
			given++
		}
	}
	if err == nil {
		err = checkCollection(form("source"))
	}
	var adding []library.Adding
	add := func(name, mediaType string, content []byte) {
		adding = append(adding, library.Adding{Key: name, Source: form("source"), Type: mediaType, Content: string(content), Labels: labelsOf(form("labels")), Own: form("own") == "yes"})
	}
	switch {
	case err != nil:
	case given > 1:
		err = fault.New(fault.RequestMalformed, "There is more than one of files, an address and a text.").At("files").Try("Add one after the other.")
	case form("url") != "":
		address, _, _ := strings.Cut(form("url"), "#")
		add(address, "", nil)
		if err = c.o.Library.MayAdd(&adding[0]); err == nil {
			var file *collect.File
			if file, err = c.o.Collector.Get(r.Context(), p.String(), address); err == nil {
				adding[0].Type, adding[0].Content = file.Type, string(file.Content)
			}
		}
	case form("key") != "" && form("content") != "":
		add(form("key"), knowledge.TypeOf(form("key")), []byte(form("content")))
	case given == 0 || form("content") != "":
		err = fault.New(fault.RequestMalformed, "There is nothing to add.").At("files").Try("Choose or drop files, give an address, or type a name and a text.")
	}
	for _, f := range files {
		add(f.Name, knowledge.TypeOf(f.Name), f.Content)
	}
	if err != nil {
		var status int
		d.Problem, status = c.refused(r, p, err, "add documents")
		c.showKnowledge(w, r, p, d, status)
		return
	}
	counts := map[library.Saved]int{}
	for _, a := range adding {
		_, saved, err := c.o.Library.Save(r.Context(), p.String(), a)
		if err != nil {
			refused, _ := c.refused(r, p, err, "add a document")
			d.AskOwn = d.AskOwn || fault.Is(err, fault.ContentSynthetic)
			d.Refused = append(d.Refused, fmt.Sprintf("%s: %s %s", path.Base(a.Key), refused.Text, refused.Remedy))
			continue
		}
		counts[saved]++
	}
	for _, saved := range []library.Saved{library.Added, library.Version, library.Unchanged} {
		if n := counts[saved]; n > 0 {
			d.Said = strings.TrimPrefix(fmt.Sprintf("%s, %d %s", d.Said, n, saved), ", ")
		}
	}
	status := http.StatusOK
	if len(d.Refused) == 0 {
		d.Form = nil
	} else if d.Said == "" {
		status = http.StatusBadRequest
	}
	c.showKnowledge(w, r, p, d, status)
}

func checkCollection(name string) error {
	if err := identity.CheckID(name); err != nil {
		return fault.Wrap(err, fault.RequestMalformed, "A collection's name is needed: %v.", err).At("source").Try("Use letters, digits, '.', '_' and '-'.")
	}
	return nil
}

// snapshotNow makes a snapshot.
func (c *Console) snapshotNow(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	s, err := c.o.Library.Snapshot(r.Context(), p.String(), "")
	if err != nil {
		refused, status := c.refused(r, p, err, "make a snapshot")
		c.showKnowledge(w, r, p, knowledgePage{Problem: refused}, status)
		return
	}
	c.showKnowledge(w, r, p, knowledgePage{Said: fmt.Sprintf("The newest snapshot is %s, with %d documents", s.ID, s.Documents)}, http.StatusOK)
}

// withdraw takes documents out of every snapshot, and shows who read them.
func (c *Console) withdraw(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	form := r.PostForm.Get
	given := library.Withdrawal{Source: form("from_source"), Author: form("author")}
	err := checkReason(form("reason"))
	for _, at := range []struct {
		name string
		to   *time.Time
	}{{"from", &given.From}, {"to", &given.To}} {
		if text := form(at.name); text != "" && err == nil {
			if *at.to, err = time.Parse("2006-01-02T15:04", text); err != nil {
				err = fault.Wrap(err, fault.RequestMalformed, "A time is like 2026-01-31T12:00, in UTC.").At(at.name)
			}
		}
	}
	d := knowledgePage{Form: r.PostForm}
	if err == nil {
		d.Gone, err = c.o.Library.Withdraw(r.Context(), p.String(), form("reason"), given)
	}
	if err != nil {
		var status int
		d.Problem, status = c.refused(r, p, err, "withdraw")
		c.showKnowledge(w, r, p, d, status)
		return
	}
	d = knowledgePage{Gone: d.Gone, Said: fmt.Sprintf("%s withdrawn", things(len(d.Gone), "document"))}
	readers, err := library.ReadersOf(r.Context(), c.o.Store, d.Gone)
	if d.Readers = &readers; err != nil {
		d.Readers, d.Problem = nil, problemOf(err)
	}
	c.showKnowledge(w, r, p, d, http.StatusOK)
}

// things is a number of things.
func things(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return count(n) + " " + thing + "s"
}

// documentPage shows one document.
type documentPage struct {
	refusedAct
	documentRow
	Said     string
	Operator bool
	Admin    bool
	Shown    *knowledge.Event // the version
	Now      []string         // its labels
	Gone     bool             // it is withdrawn, or erased
	Exact    []piece
	Size     int
	Cut      bool
	Missing  string
	Events   []knowledge.Event // the newest first
	Diff     []change
	From, To int
	Readers  *library.Readers
	Older    int // the version before, or 0
	AskOwn   bool
}

func (c *Console) showDocument(w http.ResponseWriter, r *http.Request, p identity.Principal, d documentPage, status int) {
	doc, err := c.o.Library.Document(r.PathValue("id"))
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	d.documentRow, d.Operator, d.Admin = documentRow{doc, doc.Now()}, p.Has(identity.Operator), p.Has(identity.Admin)
	d.Shown = d.State.Version
	number := func(name string) (n int) {
		if _, err := fmt.Sscan(r.URL.Query().Get(name), &n); err != nil || n < 1 {
			return 0
		}
		return n
	}
	if n := number("version"); n > 0 {
		if d.Shown = doc.Version(n); d.Shown == nil {
			c.fail(w, r, p, fault.New(fault.NotFound, "The document has no version %d.", n).At("version"))
			return
		}
	}
	rights := doc.Rights(d.Shown.Version)
	d.Now, d.Gone, d.Older = rights.Labels, rights.Gone, d.Shown.Version-1
	d.Events = slices.Clone(doc.Events)
	slices.Reverse(d.Events)
	if from := number("diff"); from > 0 && !d.State.Erased {
		d.Missing = c.compare(r.Context(), &d, from)
	} else if !d.State.Erased {
		text, err := c.o.Library.Text(r.Context(), doc, d.Shown)
		if err != nil {
			d.Missing = c.missing("a document", err)
		}
		d.Size = len(text)
		if d.Cut = len(text) > shownOfText; d.Cut {
			text = strings.ToValidUTF8(text[:shownOfText], "")
		}
		d.Exact = exactText(text)
	}
	if d.State.Erased || d.Standing() == "withdrawn" {
		readers, err := library.ReadersOf(r.Context(), c.o.Store, []*knowledge.Document{doc})
		if d.Readers = &readers; err != nil {
			d.Readers, d.Missing = nil, c.missing("who read a document", err)
		}
	}
	c.show(w, r, p, view{template: "document", title: doc.Key(), place: "/knowledge", status: status, data: d})
}

// exactText is a text with what would hide, move or reorder it as marks.
func exactText(text string) []piece {
	b, _ := json.Marshal(text) // of a string: can't fail
	return exactly(b)
}

// compare shows what the version differs in from another one. The result says why that can't be shown.
func (c *Console) compare(ctx context.Context, d *documentPage, from int) string {
	older, newer, lines, err := c.o.Library.Diff(ctx, d.Document, from, d.Shown.Version)
	if err != nil {
		return problemOf(err).Text
	}
	d.From, d.To = older.Version, newer.Version
	for _, line := range lines {
		if line.Left > 0 {
			d.Diff = append(d.Diff, change{"skip", []piece{{"note", "(" + things(line.Left, "line") + " of both)"}}})
			continue
		}
		shown := exactText(line.Text)
		d.Diff = append(d.Diff, change{string(line.Kind), shown})
	}
	return ""
}

// actOnDocument does something to a document, for a reason.
func actOnDocument(name string, do func(ctx context.Context, l *library.Library, r *http.Request, p identity.Principal, id, reason string) error) handler {
	return func(c *Console, w http.ResponseWriter, r *http.Request, p identity.Principal) {
		refused := c.act(r, p, name, func(ctx context.Context, id, reason string) error { return do(ctx, c.o.Library, r, p, id, reason) })
		if refused != nil {
			c.showDocument(w, r, p, documentPage{refusedAct: *refused}, refused.status)
			return
		}
		http.Redirect(w, r, "/knowledge/"+url.PathEscape(r.PathValue("id")), http.StatusSeeOther)
	}
}

var (
	deleteDocument = actOnDocument("delete", func(ctx context.Context, l *library.Library, _ *http.Request, p identity.Principal, id, reason string) error {
		_, err := l.Delete(ctx, p.String(), id, reason)
		return err
	})
	restoreDocument = actOnDocument("restore", func(ctx context.Context, l *library.Library, _ *http.Request, p identity.Principal, id, reason string) error {
		_, err := l.Restore(ctx, p.String(), id, reason)
		return err
	})
	labelDocument = actOnDocument("label", func(ctx context.Context, l *library.Library, r *http.Request, p identity.Principal, id, reason string) error {
		_, err := l.SetLabels(ctx, p.String(), id, reason, labelsOf(r.PostForm.Get("labels")))
		return err
	})
	eraseDocument = actOnDocument("erase", func(ctx context.Context, l *library.Library, _ *http.Request, p identity.Principal, id, reason string) error {
		_, _, err := l.Erase(ctx, p.String(), id, reason)
		return err
	})
)

// addVersion adds the next version of a document: a file that came, or the text that was typed.
func (c *Console) addVersion(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	files, err := web.Upload(w, r, maxUpload)
	doc, missing := c.o.Library.Document(r.PathValue("id"))
	if missing != nil {
		c.fail(w, r, p, missing)
		return
	}
	form := r.PostForm.Get
	a := library.Adding{Type: knowledge.TypeOf(doc.Key()), Content: form("content"), Own: form("own") == "yes"}
	switch {
	case err != nil:
	case len(files) > 1 || len(files) == 1 && a.Content != "":
		err = fault.New(fault.RequestMalformed, "A version is one file, or one text.").At("file").Try("Leave the others out.")
	case len(files) == 1:
		a.Type, a.Content = knowledge.TypeOf(files[0].Name), string(files[0].Content)
	case knowledge.Foreign(a.Type):
		a.Type = knowledge.Plain // it was typed
	}
	expected := 0
	if err == nil {
		if _, scan := fmt.Sscan(form("expected_version"), &expected); scan != nil {
			err = fault.Wrap(scan, fault.RequestMalformed, "The version that you saw is missing.").At("expected_version").Try("Open the page again.")
		}
	}
	if err == nil {
		_, err = c.o.Library.AddVersion(r.Context(), p.String(), doc.ID(), expected, a)
	}
	if err != nil {
		d := documentPage{refusedAct: refusedAct{Act: "version", Typed: form("content")}, AskOwn: fault.Is(err, fault.ContentSynthetic)}
		d.Problem, d.status = c.refused(r, p, err, "add a version", "id", doc.ID())
		c.showDocument(w, r, p, d, d.status)
		return
	}
	http.Redirect(w, r, "/knowledge/"+url.PathEscape(doc.ID())+"?diff="+fmt.Sprint(expected), http.StatusSeeOther)
}
