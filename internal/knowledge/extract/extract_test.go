package extract

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Init()
	Init()
	os.Exit(m.Run())
}

// pdfOf is a PDF with one page for each text.
func pdfOf(texts ...string) []byte {
	var b bytes.Buffer
	var offsets []int
	object := func(format string, args ...any) {
		offsets = append(offsets, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", len(offsets), fmt.Sprintf(format, args...))
	}
	b.WriteString("%PDF-1.4\n")
	object("<< /Type /Catalog /Pages 2 0 R >>")
	var kids []string
	for i := range texts {
		kids = append(kids, fmt.Sprintf("%d 0 R", 4+2*i))
	}
	object("<< /Type /Pages /Kids [%s] /Count %d >>", strings.Join(kids, " "), len(texts))
	object("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
	for i, text := range texts {
		object("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>", 5+2*i)
		stream := "BT /F1 12 Tf 72 700 Td (" + text + ") Tj ET"
		object("<< /Length %d >>\nstream\n%s\nendstream", len(stream), stream)
	}
	at := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(offsets)+1)
	for _, o := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(offsets)+1, at)
	return b.Bytes()
}

const docxHead = `<?xml version="1.0" encoding="UTF-8"?><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><w:body>`

// docxOf is a DOCX with that body.
func docxOf(t testing.TB, body io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	for name, content := range map[string]io.Reader{"[Content_Types].xml": strings.NewReader("<Types/>"), "word/document.xml": body} {
		w, err := z.Create(name)
		if err == nil {
			_, err = io.Copy(w, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// run1 is a paragraph of one run with these properties.
func run1(properties, text string) string {
	return "<w:p><w:r><w:rPr>" + properties + "</w:rPr><w:t>" + text + "</w:t></w:r></w:p>"
}

func docxText1(t testing.TB, body string) []byte {
	return docxOf(t, strings.NewReader(docxHead+body+"</w:body></w:document>"))
}

// What is taken out of each format, and that what is broken, locked, empty, too large or wrongly encoded is refused by its reason.
func TestTextOf(t *testing.T) {
	for name, c := range map[string]struct {
		mediaType string
		file      []byte
		want      string
		problem   problem
	}{
		"page":               {knowledge.HTML, []byte("<h1>Rules</h1><p>Pay <b>monthly</b>.</p><p style=\"display:none\">hidden words</p>"), "# Rules\n\nPay **monthly**.", none},
		"page in Latin-1":    {knowledge.HTML, []byte("<p>caf\xe9</p>"), "", encoding},
		"page with no text":  {knowledge.HTML, []byte("<p></p>"), "", empty},
		"PDF":                {knowledge.PDF, pdfOf("Travel is paid.", "In thirty days."), "Travel is paid.\n\nIn thirty days.", none},
		"PDF without text":   {knowledge.PDF, pdfOf(""), "", empty},
		"PDF cut off":        {knowledge.PDF, pdfOf("Travel is paid.")[:200], "", broken},
		"no PDF":             {knowledge.PDF, []byte("hello"), "", broken},
		"encrypted PDF":      {knowledge.PDF, bytes.Replace(pdfOf("x"), []byte("/Root 1 0 R"), []byte("/Root 1 0 R /Encrypt << /Filter /Other >>"), 1), "", locked},
		"DOCX":               {knowledge.DOCX, docxText1(t, `<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Rules</w:t></w:r></w:p><w:p><w:r><w:t xml:space="preserve">Pay </w:t></w:r><w:r><w:t>monthly.</w:t></w:r></w:p>`), "# Rules\n\nPay monthly.", none},
		"DOCX: hidden words": {knowledge.DOCX, docxText1(t, `<w:p><w:r><w:t>seen</w:t></w:r><w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del><w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>, too</w:t></w:r></w:p>`), "seen, too", none},
		"DOCX: white, tiny":  {knowledge.DOCX, docxText1(t, run1("", "seen")+run1(`<w:color w:val="FFFFFF"/>`, "white")+run1(`<w:color w:val="fefefe"/>`, "nearly")+run1(`<w:sz w:val="2"/>`, "tiny")+run1(`<w:color w:val="FF0000"/><w:sz w:val="24"/>`, "red")), "seen\n\n\n\n\n\n\n\nred", none},
		"DOCX: white on black": {knowledge.DOCX, docxText1(t, run1(`<w:color w:val="FFFFFF"/><w:shd w:val="clear" w:fill="000000"/>`, "a")+
			`<w:p><w:pPr><w:shd w:val="clear" w:fill="1F3864"/></w:pPr><w:r><w:rPr><w:color w:val="FFFFFF"/></w:rPr><w:t>b</w:t></w:r></w:p>`+run1(`<w:color w:val="FFFFFF"/>`, "after it")+
			`<w:tbl><w:tr><w:tc><w:tcPr><w:shd w:fill="444444"/></w:tcPr>`+run1(`<w:color w:val="FFFFFF"/>`, "c")+`</w:tc><w:tc><w:tcPr><w:shd w:fill="FFFFFF"/></w:tcPr>`+run1(`<w:color w:val="FFFFFF"/>`, "white on white")+run1("", "d")+`</w:tc></w:tr></w:tbl>`), "a\n\nb\n\n\n\nc | \n\nd |", none},
		"DOCX: table":       {knowledge.DOCX, docxText1(t, `<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>`), "a | b |", none},
		"DOCX with a DTD":   {knowledge.DOCX, docxOf(t, strings.NewReader(`<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>`)), "", broken},
		"DOCX: deep":        {knowledge.DOCX, docxText1(t, strings.Repeat("<w:a>", 300)), "", broken},
		"DOCX that unfolds": {knowledge.DOCX, docxOf(t, io.LimitReader(io.MultiReader(strings.NewReader(docxHead), zeros{}), maxUnfolded+10)), "", large},
		"DOCX cut off":      {knowledge.DOCX, docxText1(t, "<w:p/>")[:100], "", broken},
		"no DOCX":           {knowledge.DOCX, []byte("PK\x03\x04 nothing"), "", broken},
		"DOCX without text": {knowledge.DOCX, docxText1(t, "<w:p/>"), "", empty},
		"too much text":     {knowledge.DOCX, docxText1(t, "<w:p><w:r><w:t>"+strings.Repeat("word ", knowledge.MaxContent/4)+"</w:t></w:r></w:p>"), "", large},
		"another type":      {"text/plain", []byte("hello"), "", broken},
	} {
		t.Run(name, func(t *testing.T) {
			if got, p := textOf(c.mediaType, c.file); p != c.problem || strings.TrimSpace(got) != c.want {
				t.Errorf("%q, %d; want %q, %d", got, p, c.want, c.problem)
			}
		})
	}
}

// Files are read by a child in the sandbox, and refused with a reason that names the field and a remedy.
func TestChild(t *testing.T) {
	if sandbox.Probe().Tier == sandbox.None {
		if os.Getenv("SALLYPORT_TEST_ALL") != "" {
			t.Fatal("this machine can't hold the sandbox")
		}
		t.Skip("this machine can't hold the sandbox: that files are read in it was not checked")
	}
	x, err := New(t.TempDir() + "/extract")
	if err != nil {
		t.Fatal(err)
	}
	text, err := x.Text(t.Context(), knowledge.PDF, pdfOf("Travel is paid."))
	if err != nil || text != "Travel is paid." {
		t.Fatalf("%q, %v", text, err)
	}
	for name, file := range map[string][]byte{"broken": []byte("%PDF-1.4 nothing"), "empty": pdfOf("")} {
		_, err := x.Text(t.Context(), knowledge.PDF, file)
		if f := fault.Of(err); f.Code != fault.RequestMalformed || f.Field != "content" || f.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	left, err := os.ReadDir(x.dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Text(over, knowledge.PDF, pdfOf("x")); err == nil {
		t.Error("a file was read for who is gone")
	}
}

// The child's parser ends, and what it gives is text in UTF-8 within the bounds.
func FuzzTextOf(f *testing.F) {
	f.Add(0, []byte("<p>a</p>"))
	f.Add(1, pdfOf("Travel", "is paid"))
	f.Add(2, docxText1(f, "<w:p><w:r><w:t>a</w:t></w:r></w:p>"))
	f.Fuzz(func(t *testing.T, kind int, file []byte) {
		types := []string{knowledge.HTML, knowledge.PDF, knowledge.DOCX}
		text, p := textOf(types[uint(kind)%3], file)
		if p == none && (strings.TrimSpace(text) == "" || len(text) > knowledge.MaxContent || strings.ToValidUTF8(text, "") != text) {
			t.Errorf("%q", text)
		}
		if p != none && text != "" {
			t.Errorf("a text with a problem: %q", text)
		}
	})
}
