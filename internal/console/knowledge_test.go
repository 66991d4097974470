package console

import (
	"bytes"
	"context"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"sallyport.example/internal/comm/fetch"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/knowledge"
)

// upload sends a form with files as ann with the roles.
func (w *pagesWorld) upload(roles, path string, fields, files map[string]string) *httptest.ResponseRecorder {
	w.t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for name, value := range fields {
		if err := m.WriteField(name, value); err != nil {
			w.t.Fatal(err)
		}
	}
	for name, content := range files {
		part, err := m.CreateFormFile("files", name)
		if err == nil {
			_, err = part.Write([]byte(content))
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.ask(roles, "/", nil) // signs in
	r := httptest.NewRequest("POST", path, &b)
	r.Header.Set("Content-Type", m.FormDataContentType())
	r.AddCookie(&http.Cookie{Name: cookieName, Value: "cookie-" + roles})
	rec := httptest.NewRecorder()
	w.mux.ServeHTTP(rec, r)
	if rec.Code != 303 {
		checkPage(w.t, path, rec.Body.String())
	}
	return rec
}

// pageOfVendor stands for the web: one page, and nothing else.
type pageOfVendor struct{ asked int }

func (f *pageOfVendor) CheckFile(address string) error {
	if address != "https://vendor.example/terms" {
		return fault.New(fault.EgressBlocked, "The address is not allowed.")
	}
	return nil
}

func (f *pageOfVendor) File(_ context.Context, address string) (*fetch.File, error) {
	f.asked++
	return &fetch.File{URL: address, MediaType: "text/plain", Bytes: []byte("Terms: pay in <b>thirty</b> days."), Hops: []string{address}}, nil
}

// A document is added by its address, by the rules of egress; a refused address is not asked, and what else is in the form is not added beside it.
func TestDocumentsAreAddedByAddress(t *testing.T) {
	w := newPagesWorld(t)
	form := url.Values{"source": {"vendor"}, "url": {"https://vendor.example/terms#part"}}
	contains(t, w.ask("operator", "/knowledge/add", form).Body.String(), "1 added")
	contains(t, w.ask("operator", "/knowledge/add", form).Body.String(), "1 unchanged")
	contains(t, w.ask("viewer", "/knowledge/"+knowledge.DocumentID("vendor", "https://vendor.example/terms"), nil).Body.String(), "&lt;b&gt;thirty&lt;/b&gt;")
	for name, form := range map[string]url.Values{
		"refused":         {"source": {"vendor"}, "url": {"https://other.example/<b>"}},
		"beside a text":   {"source": {"vendor"}, "url": {"https://vendor.example/terms"}, "key": {"a"}, "content": {"typed"}},
		"an unknown mark": {"source": {"vendor"}, "url": {"https://vendor.example/terms"}, "labels": {"no such label"}},
		"no collection":   {"url": {"https://vendor.example/terms"}},
	} {
		rec := w.ask("operator", "/knowledge/add", form)
		if rec.Code < 400 || rec.Code >= 500 || !strings.Contains(rec.Body.String(), `id="problem"`) || strings.Contains(rec.Body.String(), "<b>") {
			t.Errorf("%s: %d", name, rec.Code)
		}
	}
	if w.web.asked != 2 {
		t.Errorf("asked %d times", w.web.asked)
	}
	if rec := w.ask("viewer", "/knowledge/add", form); rec.Code != 403 || w.web.asked != 2 {
		t.Errorf("a viewer: %d", rec.Code)
	}
}

// Documents are added as files and as text, without scripts; the same name again is a new version; and what can't be taken is named, with the rest added.
func TestDocumentsAreAdded(t *testing.T) {
	w := newPagesWorld(t)
	contains(t, w.ask("viewer", "/knowledge", nil).Body.String(), "There are no documents yet", "There is none yet: agents find nothing")
	rec := w.upload("operator", "/knowledge/add", map[string]string{"source": "handbook", "content": "", "key": "", "labels": "internal"},
		map[string]string{"travel.md": "Travel is paid within <b>thirty</b> days.", "image.md": "\xff\xfe", "../up.md": "Names have no folders."})
	contains(t, rec.Body.String(), "2 added", "image.md: content: The content is not text in UTF-8", `<a href="/knowledge/`+knowledge.DocumentID("handbook", "up.md"))
	id := knowledge.DocumentID("handbook", "travel.md")
	if rec := w.upload("operator", "/knowledge/add", map[string]string{"source": "handbook"}, map[string]string{"travel.md": "Travel is paid within <b>thirty</b> days."}); !strings.Contains(rec.Body.String(), "1 unchanged") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	rec = w.ask("operator", "/knowledge/add", url.Values{"source": {"handbook"}, "key": {"travel.md"}, "content": {"Travel is paid within ninety days."}})
	contains(t, rec.Body.String(), "1 new version")
	page := w.ask("viewer", "/knowledge/"+id+"?version=2&diff=1", nil).Body.String()
	contains(t, page, "<del>− ", "thirty", "<ins>+ ", "ninety", "What version 2 changed", `<span class="tag">internal</span>`)
	contains(t, w.ask("viewer", "/knowledge/"+id+"?version=1", nil).Body.String(), "&lt;b&gt;thirty&lt;/b&gt;", "version 1 of 2")
	for name, form := range map[string]url.Values{
		"nothing": {"source": {"handbook"}}, "no collection": {"key": {"a"}, "content": {"b"}}, "a bad collection": {"source": {"a/b"}, "key": {"a"}, "content": {"typed words"}},
	} {
		if rec := w.ask("operator", "/knowledge/add", form); rec.Code != 400 || !strings.Contains(rec.Body.String(), `id="problem"`) || form.Get("content") != "" && !strings.Contains(rec.Body.String(), form.Get("content")) {
			t.Errorf("%s: %d", name, rec.Code)
		}
	}
	for _, role := range []string{"viewer", "approver", "auditor"} {
		if rec := w.upload(role, "/knowledge/add", map[string]string{"source": "handbook"}, map[string]string{"x.md": "x"}); rec.Code != 403 {
			t.Errorf("%s adds: %d", role, rec.Code)
		}
	}
	if page := w.ask("viewer", "/knowledge/"+id, nil).Body.String() + w.ask("viewer", "/knowledge", nil).Body.String(); strings.Contains(page, `method="post" action="/knowledge`) {
		t.Error("a viewer is offered to change documents")
	}
	if rec := w.ask("viewer", "/knowledge/doc_0", nil); rec.Code != 404 {
		t.Errorf("no such document: %d", rec.Code)
	}
}

// What an agent said is asked about: the form then has a box for the person's word, which goes on the record.
func TestWhoseWords(t *testing.T) {
	w := newPagesWorld(t)
	form := url.Values{"source": {"handbook"}, "key": {"a.md"}, "content": {"Note " + gatewaytest.AgentsWords + " today."}}
	if page := w.ask("operator", "/knowledge", nil).Body.String(); strings.Contains(page, `name="own"`) {
		t.Error("the box is there before anything was refused")
	}
	rec := w.ask("operator", "/knowledge/add", form)
	if rec.Code != 400 {
		t.Errorf("%d", rec.Code)
	}
	contains(t, rec.Body.String(), "what an agent said: run_1", `name="own"`, gatewaytest.AgentsWords)
	form.Set("own", "yes")
	contains(t, w.ask("operator", "/knowledge/add", form).Body.String(), "1 added")
	id := knowledge.DocumentID("handbook", "a.md")
	contains(t, w.ask("viewer", "/knowledge/"+id, nil).Body.String(), "says that the words are theirs, and not those of run_1")
	version := url.Values{"expected_version": {"1"}, "content": {"Again " + gatewaytest.AgentsWords}}
	rec = w.ask("operator", "/knowledge/"+id+"/versions", version)
	if rec.Code != 409 {
		t.Errorf("%d", rec.Code)
	}
	contains(t, rec.Body.String(), `name="own"`, "Again "+gatewaytest.AgentsWords)
	version.Set("own", "yes")
	if rec := w.ask("operator", "/knowledge/"+id+"/versions", version); rec.Code != 303 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// A version follows the one that was on the page, and else says so and keeps what was typed.
func TestVersionOfThePage(t *testing.T) {
	w := newPagesWorld(t)
	w.ask("operator", "/knowledge/add", url.Values{"source": {"handbook"}, "key": {"a.pdf"}, "content": {"one"}})
	id := knowledge.DocumentID("handbook", "a.pdf")
	if rec := w.ask("operator", "/knowledge/"+id+"/versions", url.Values{"expected_version": {"1"}, "content": {"two"}}); rec.Code != 303 || rec.Header().Get("Location") != "/knowledge/"+id+"?diff=1" {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	rec := w.ask("operator", "/knowledge/"+id+"/versions", url.Values{"expected_version": {"1"}, "content": {"my three"}})
	if rec.Code != 409 {
		t.Errorf("%d", rec.Code)
	}
	contains(t, rec.Body.String(), "at version 2, and not at 1", "my three")
	if rec := w.upload("operator", "/knowledge/"+id+"/versions", map[string]string{"expected_version": "2"}, map[string]string{"b.md": "three"}); rec.Code != 303 {
		t.Errorf("%d", rec.Code)
	}
}

// What is found, what is deleted and restored, and the acts that need a reason or a second admin.
func TestActsOnDocuments(t *testing.T) {
	w := newPagesWorld(t)
	w.ask("operator", "/knowledge/add", url.Values{"source": {"handbook"}, "key": {"a.md"}, "content": {"Expenses are paid <i>monthly</i>."}})
	id := knowledge.DocumentID("handbook", "a.md")
	contains(t, w.ask("viewer", "/knowledge?q=expenses", nil).Body.String(), "There is no snapshot of the knowledge store yet")
	contains(t, w.ask("operator", "/knowledge/snapshots", url.Values{}).Body.String(), "with 1 documents")
	contains(t, w.ask("viewer", "/knowledge?q=expenses", nil).Body.String(), "1 hits in", "&lt;i&gt;monthly", "/knowledge/"+id+"?version=1")
	contains(t, w.ask("viewer", "/knowledge?q=nothing-like-it", nil).Body.String(), "Nothing in this snapshot has these words")
	act := func(roles, name string, form url.Values, want int) string {
		t.Helper()
		rec := w.ask(roles, "/knowledge/"+id+"/"+name, form)
		if rec.Code != want {
			t.Errorf("%s: %d, want %d: %s", name, rec.Code, want, rec.Body)
		}
		return rec.Body.String()
	}
	why := url.Values{"reason": {"because"}}
	act("operator", "delete", url.Values{"reason": {" "}}, 400)
	act("operator", "delete", why, 303)
	contains(t, w.ask("viewer", "/knowledge/"+id, nil).Body.String(), "This document is <strong>deleted</strong>")
	act("operator", "restore", why, 303)
	act("operator", "labels", url.Values{"reason": {"because"}, "labels": {"internal, pii"}}, 303)
	contains(t, act("operator", "labels", url.Values{"reason": {"because"}, "labels": {"odd"}}, 400), "There is no confidentiality label")
	act("operator", "erase", why, 403)
	page := w.ask("operator", "/knowledge/withdraw", url.Values{"from_source": {"handbook"}, "reason": {"poisoned"}}).Body.String()
	contains(t, page, "1 document withdrawn", "What was withdrawn, and who read it", "Sessions")
	contains(t, w.ask("viewer", "/knowledge/"+id, nil).Body.String(), "This document is <strong>withdrawn</strong>", "Who read it")
	if rec := w.ask("operator", "/knowledge/withdraw", url.Values{"from": {"yesterday"}, "reason": {"poisoned"}}); rec.Code != 400 {
		t.Errorf("%d", rec.Code)
	}
	act("admin", "erase", why, 303)
	contains(t, w.ask("admin", "/knowledge/"+id, nil).Body.String(), "<p>ann asked for it. A second admin")
	contains(t, act("admin", "erase", why, 409), "A second admin has to ask")
}
