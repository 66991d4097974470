package extract

import (
	"archive/zip"
	"bytes"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ledongthuc/pdf"

	"sallyport.example/internal/comm/fetch"
	"sallyport.example/internal/knowledge"
)

// page is the readable text of an HTML page, without what it hides.
func page(file []byte) (string, problem) {
	if !utf8.Valid(file) {
		return "", encoding
	}
	text, cut := fetch.Readable(string(file), knowledge.MaxContent)
	switch {
	case cut:
		return "", large
	case strings.TrimSpace(text) == "":
		return "", empty
	}
	return text, none
}

// maxPages bounds the pages of a PDF.
const maxPages = 5000

// pdfText is the text of a PDF, its pages apart.
func pdfText(file []byte) (string, problem) {
	if !bytes.HasPrefix(file, []byte("%PDF-")) {
		return "", broken
	}
	r, err := pdf.NewReader(bytes.NewReader(file), int64(len(file)))
	switch {
	case errors.Is(err, pdf.ErrInvalidPassword) || err != nil && bytes.Contains(file, []byte("/Encrypt")):
		return "", locked
	case err != nil:
		return "", broken
	}
	n := r.NumPage()
	if n > maxPages {
		return "", large
	}
	var b strings.Builder
	for i := 1; i <= n; i++ {
		p := r.Page(i)
		if p.V.IsNull() {
			continue
		}
		text, err := p.GetPlainText(nil)
		if err != nil {
			return "", broken
		}
		if text = clean(text); text == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(text)
		if b.Len() > knowledge.MaxContent {
			return "", large
		}
	}
	if b.Len() == 0 {
		return "", empty
	}
	return b.String(), none
}

// clean is a text without what is no character of a text: bytes that are no UTF-8, and control characters but line ends and tabs.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == utf8.RuneError {
			return -1
		}
		return r
	}, text)
	return strings.TrimSpace(text)
}

// Bounds of a DOCX: its files, and the bytes that its text's XML unfolds to.
const (
	maxFiles    = 10_000
	maxUnfolded = 64 << 20
	maxDepth    = 200
)

// docxText is the text of a DOCX: paragraphs, headings as in Markdown, cells of a table in a line.
func docxText(file []byte) (string, problem) {
	z, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil || len(z.File) > maxFiles {
		return "", broken
	}
	for _, f := range z.File {
		if f.Name != "word/document.xml" {
			continue
		}
		if f.UncompressedSize64 > maxUnfolded {
			return "", large
		}
		in, err := f.Open()
		if err != nil {
			return "", broken
		}
		defer in.Close()
		limited := &io.LimitedReader{R: in, N: maxUnfolded + 1}
		text, p := words(limited)
		if limited.N <= 0 {
			return "", large
		}
		return text, p
	}
	if bytes.Contains(file, []byte("EncryptedPackage")) {
		return "", locked
	}
	return "", broken
}

// unread are elements whose text is no text of the document: what was deleted, codes of fields, and what repeats a drawing for older programs.
var unread = map[string]bool{"del": true, "moveFrom": true, "instrText": true, "delText": true, "Fallback": true}

// words reads the XML of a document.
func words(in io.Reader) (string, problem) {
	d := xml.NewDecoder(in)
	d.Entity = map[string]string{}
	var out, run bytes.Buffer
	var look look
	depth, inText := 0, false
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", broken
		}
		switch t := token.(type) {
		case xml.StartElement:
			if unread[t.Name.Local] {
				if d.Skip() != nil {
					return "", broken
				}
				continue
			}
			if depth++; depth > maxDepth {
				return "", broken
			}
			begin(t, &out, &run, &look, &inText)
		case xml.EndElement:
			depth--
			end(t.Name.Local, &out, &run, &look, &inText)
		case xml.CharData:
			if inText {
				run.Write(t)
			}
		case xml.Directive:
			return "", broken // a document has no DTD
		}
		if out.Len() > knowledge.MaxContent || run.Len() > knowledge.MaxContent {
			return "", large
		}
	}
	text := clean(out.String())
	if text == "" {
		return "", empty
	}
	return text, none
}

// look is how a run of text looks: nobody sees one that is hidden, tiny, or white on white. A style may make it so, too; styles are not read.
type look struct {
	hidden, tiny, white, shaded bool
	paragraph, cell, table      bool   // what it stands in is shaded
	of                          string // the properties that are being read
}

// unseen tells whether nobody sees the run.
func (l *look) unseen() bool {
	return l.hidden || l.tiny || l.white && !l.shaded && !l.paragraph && !l.cell && !l.table
}

// next begins another run.
func (l *look) next() { l.hidden, l.tiny, l.white, l.shaded = false, false, false, false }

// shade notes what is shaded.
func (l *look) shade(dark bool) {
	switch l.of {
	case "rPr":
		l.shaded = dark
	case "pPr":
		l.paragraph = dark
	case "tcPr":
		l.cell = dark
	case "tblPr":
		l.table = dark
	}
}

// light tells whether a colour, as six hexadecimal digits, is nearly that of the page.
func light(colour string) bool {
	rgb, err := hex.DecodeString(colour)
	return err == nil && len(rgb) == 3 && min(rgb[0], rgb[1], rgb[2]) >= 0xf0
}

// tinySize is the size below which a text is no text for people, in half points.
const tinySize = 4

func begin(t xml.StartElement, out, run *bytes.Buffer, look *look, inText *bool) {
	value, fill := "", ""
	for _, a := range t.Attr {
		switch a.Name.Local {
		case "val":
			value = a.Value
		case "fill":
			fill = a.Value
		}
	}
	off := value == "0" || value == "false" || value == "none"
	switch t.Name.Local {
	case "r":
		look.next()
	case "vanish", "webHidden":
		look.hidden = !off
	case "sz":
		size, err := strconv.ParseFloat(value, 64)
		look.tiny = err == nil && size < tinySize
	case "color":
		look.white = light(value)
	case "highlight":
		look.shaded = !off && value != "white"
	case "shd":
		look.shade(fill != "" && fill != "auto" && !light(fill))
	case "rPr", "pPr", "tcPr", "tblPr":
		look.of = t.Name.Local
	case "t":
		*inText = true
	case "tab":
		run.WriteByte('\t')
	case "br", "cr":
		run.WriteByte('\n')
	case "pStyle":
		if level, ok := strings.CutPrefix(strings.ToLower(value), "heading"); ok && len(level) == 1 && level[0] >= '1' && level[0] <= '6' {
			out.WriteString(strings.Repeat("#", int(level[0]-'0')) + " ")
		}
	}
}

func end(name string, out, run *bytes.Buffer, look *look, inText *bool) {
	switch name {
	case "t":
		*inText = false
	case "r":
		if !look.unseen() {
			out.Write(run.Bytes())
		}
		run.Reset()
		look.next()
	case "p":
		look.paragraph = false
		out.WriteString("\n\n")
	case "tbl":
		look.table = false
	case "tc":
		look.cell = false
		out.Truncate(len(bytes.TrimRight(out.Bytes(), "\n")))
		out.WriteString(" | ")
	case "tr":
		out.WriteString("\n")
	}
}
