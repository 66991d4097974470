package e2e

import (
	"archive/zip"
	"bytes"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.example/client"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/shelf"
	"sallyport.example/internal/sandbox"
)

type nothing struct{}

func (nothing) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// bomb is a DOCX of which one part unfolds to many bytes.
func bomb(t *testing.T, part string, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.Create(part)
	if err == nil {
		_, err = io.Copy(f, io.LimitReader(nothing{}, size))
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Bombs, broken files, files that are too large and wrong encodings get an error that names the field and a way out, and nothing of them is kept: no document, no text, no key, no file. The gateway goes on.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	if sandbox.Probe().Tier == sandbox.None {
		t.Skip("this machine can't hold the sandbox")
	}
	w := launch(t, newPlace(t, ""))
	for _, c := range []struct {
		name, kind string
		file       []byte
	}{
		{"a DOCX that unfolds to 1 GiB", knowledge.DOCX, bomb(t, "word/document.xml", 1<<30)},
		{"a DOCX without its document", knowledge.DOCX, bomb(t, "word/other.xml", 1<<20)},
		{"a DOCX that is cut off", knowledge.DOCX, bomb(t, "word/document.xml", 1<<20)[:200]},
		{"an archive in an archive", knowledge.DOCX, append([]byte("PK\x03\x04"), bomb(t, "a", 1<<20)...)},
		{"a PDF that is broken", knowledge.PDF, []byte("%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 1 0 R >>\nendobj\ntrailer << /Root 1 0 R >>\n%%EOF")},
		{"a PDF that is none", knowledge.PDF, []byte("MZ\x90\x00")},
		{"a PDF of nothing", knowledge.PDF, []byte("%PDF-1.7\n%%EOF")},
		{"a page in UTF-16", knowledge.HTML, []byte("\xff\xfe<\x00p\x00>\x00a\x00")},
		{"a page in Latin-1", knowledge.HTML, []byte("<p>caf\xe9</p>")},
		{"a page that is deep", knowledge.HTML, []byte(strings.Repeat("<div>", 1<<20))},
		{"a text in UTF-16", knowledge.Plain, []byte("\xff\xfea\x00b\x00")},
		{"a text with a NUL", knowledge.Markdown, []byte("a\x00b")},
		{"a text that is too long", knowledge.Plain, bytes.Repeat([]byte("a "), knowledge.MaxContent)},
		{"an unknown type", "application/x-msdownload", []byte("MZ")},
	} {
		_, err := w.root.AddDocument(t.Context(), client.NewDocument{Source: "letters", Key: c.name, Type: c.kind, File: c.file})
		var p *client.Problem
		if !errors.As(err, &p) || p.Status != http.StatusBadRequest || p.Field == "" || p.Detail == "" {
			t.Errorf("%s: %v %+v", c.name, err, p)
		}
	}
	large, err := json.Marshal(map[string]string{"key": "large", "source": "letters", "content_type": knowledge.PDF, "content_base64": base64.StdEncoding.EncodeToString(make([]byte, 100<<20))})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := w.send("POST", w.admin+"/v1/knowledge/documents", w.place.secret(t, "admin.token"), string(large), nil); status != http.StatusRequestEntityTooLarge && status != http.StatusBadRequest {
		t.Errorf("100 MiB: %d %.200s", status, body)
	}
	w.addDocument("letters", "a.md", "An ordinary one.")
	// A large file that is good is taken.
	padded := append(append([]byte("<p>A large page.</p><!--"), bytes.Repeat([]byte("x"), 12<<20)...), "-->"...)
	if d, err := w.root.AddDocument(t.Context(), client.NewDocument{Source: "letters", Key: "large.html", Type: knowledge.HTML, File: padded}); err != nil || d.Content != "A large page." {
		t.Errorf("%+v, %v", d, err)
	}
	if page, err := w.root.Documents(t.Context(), "", ""); err != nil || len(page.Documents) != 2 {
		t.Errorf("%+v, %v", page, err)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(w.place.data, shelf.File))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range []string{"knowledge_contents", "document_keys"} {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil || n != 2 {
			t.Errorf("%s has %d rows, %v", table, n, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(w.place.data, "extract", "*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
