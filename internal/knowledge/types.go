package knowledge

import (
	"path"
	"strings"
)

// Search is the id of the operation that searches the store.
const Search = "knowledge.search"

// Operations are the ids of the operations on the store.
var Operations = []string{Search, "knowledge.read", "knowledge.validate_claim"}

// Reading are the ids of all operations by which agents read documents. What they read stands in the detail of their outcomes, under "read".
var Reading = append([]string{"comm.search"}, Operations...)

// MaxDimensions bounds the numbers of an embedding.
const MaxDimensions = 4096

// Media types of what is given. Of a page and of files that other programs write, the text is kept.
const (
	Plain    = "text/plain"
	Markdown = "text/markdown"
	HTML     = "text/html"
	CSV      = "text/csv"
	Code     = "text/x-source"
	PDF      = "application/pdf"
	DOCX     = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
)

// Types are the media types that are taken.
var Types = []string{Plain, Markdown, HTML, CSV, Code, PDF, DOCX}

// extensions are the ends of files' names that tell a type.
var extensions = map[string]string{
	".md": Markdown, ".markdown": Markdown, ".html": HTML, ".htm": HTML, ".csv": CSV, ".pdf": PDF, ".docx": DOCX,
	".go": Code, ".py": Code, ".js": Code, ".ts": Code, ".java": Code, ".c": Code, ".h": Code, ".rs": Code, ".sql": Code, ".sh": Code, ".yaml": Code, ".yml": Code, ".json": Code,
}

// TypeOf is the media type of a file by its name; text/plain where the name tells none.
func TypeOf(name string) string {
	if t := extensions[strings.ToLower(path.Ext(name))]; t != "" {
		return t
	}
	return Plain
}

// Foreign tells whether a type has a format of its own that has to be read by a parser, besides text.
func Foreign(mediaType string) bool {
	return mediaType == HTML || mediaType == PDF || mediaType == DOCX
}
