package search

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/fault"
)

// The local search reads the texts anew at each search: there is no index that could be stale, poisoned or shared, and a thousand
// small documents take some milliseconds. Documents are ranked by BM25 with the usual constants.
const (
	maxDocs    = 10_000   // files and folders that one search visits
	maxDoc     = 1 << 20  // bytes read of one
	maxRead    = 64 << 20 // bytes read of all
	maxFolders = 16       // inside one another
	maxTerms   = 32       // different words of a query
	around     = 300      // characters of a snippet

	k1, b = 1.2, 0.75
)

// Fetched is the folder of a workspace in which comm.fetch keeps pages: a head (Title, where there is one, URL, and what else is known), an
// empty line, and the page's text. Whoever may write there can make a page up, as its text.
const Fetched = "fetched/"

// document holds the counts of a file that has one of the words.
type document struct {
	hit    Hit
	length int
	counts []int // by term of the query
	score  float64
}

type localSearch struct {
	terms map[string]int // word -> its place in counts
	found []document
	docs  int // with text
	words int // in all of them
	with  []int

	visited int // files and folders
	read    int
}

func searchLocal(ctx context.Context, query string, count int, local []fs.FS) ([]Hit, error) {
	s := &localSearch{terms: map[string]int{}}
	words(query, func(w string, _ int) bool {
		if _, ok := s.terms[w]; !ok {
			s.terms[w] = len(s.terms)
		}
		return len(s.terms) < maxTerms
	})
	s.with = make([]int, len(s.terms))
	if len(s.terms) > 0 {
		for _, fsys := range local {
			if err := s.walk(ctx, fsys, ".", 0); err != nil {
				return nil, err
			}
		}
	}
	return s.best(count), nil
}

// walk looks through one folder. Files that can't be opened or read are passed over; links are not followed.
func (s *localSearch) walk(ctx context.Context, fsys fs.FS, dir string, depth int) error {
	f, err := fsys.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	folder, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil
	}
	for {
		if err := ctx.Err(); err != nil {
			return fault.Wrap(err, fault.TimeExceeded, "The search took too long.")
		}
		entries, err := folder.ReadDir(64)
		for _, e := range entries {
			if s.visited++; s.visited > maxDocs || s.read > maxRead {
				return nil
			}
			name := path.Join(dir, e.Name())
			switch {
			case e.IsDir() && depth < maxFolders:
				if err := s.walk(ctx, fsys, name, depth+1); err != nil {
					return err
				}
			case e.Type().IsRegular():
				s.file(fsys, name)
			}
		}
		if err != nil || len(entries) == 0 {
			return nil
		}
	}
}

func (s *localSearch) file(fsys fs.FS, name string) {
	f, err := fsys.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return
	}
	data, err := io.ReadAll(io.LimitReader(f, maxDoc))
	if err != nil {
		return
	}
	s.read += len(data)
	if bytes.IndexByte(data, 0) >= 0 {
		return // not a text
	}
	for cut := 0; cut < utf8.UTFMax && len(data) == maxDoc && !utf8.Valid(data); cut++ {
		data = data[:len(data)-1]
	}
	if !utf8.Valid(data) {
		return
	}
	s.document(name, string(data))
}

func (s *localSearch) document(name, text string) {
	d := document{counts: make([]int, len(s.terms))}
	at := nearest{last: make([]int, len(s.terms))}
	called, address, text := page(name, text)
	words(called+" "+address, func(w string, _ int) bool {
		if i, ok := s.terms[w]; ok {
			d.counts[i]++
		}
		d.length++
		return true
	})
	words(text, func(w string, where int) bool {
		if i, ok := s.terms[w]; ok {
			d.counts[i]++
			at.saw(i, where)
		}
		d.length++
		return true
	})
	s.docs++
	s.words += d.length
	any := false
	for i, n := range d.counts {
		if n > 0 {
			s.with[i]++
			any = true
		}
	}
	if !any {
		return
	}
	if called == "" {
		called = title(name, text)
	}
	d.hit = Hit{Title: called, URL: address, Path: name, Snippet: snippet(text, at.start), Source: "local"}
	s.found = append(s.found, d)
}

// page takes a fetched page apart, into its title or "", its address, and its text. Any other file is all text, at its path.
func page(name, text string) (title, address, body string) {
	head, body, ok := strings.Cut(text, "\n\n")
	if !ok || !strings.HasPrefix(name, Fetched) {
		return "", name, text
	}
	title, rest, _ := strings.Cut(head, "\n")
	if title, ok = strings.CutPrefix(title, "Title: "); !ok {
		title, rest = "", head
	}
	line, _, _ := strings.Cut(rest, "\n")
	if line, ok = strings.CutPrefix(line, "URL: "); !ok {
		return "", name, text
	}
	if address, ok = webLink(line); !ok {
		return "", name, text
	}
	return plain(title, maxTitle), address, body
}

// nearest finds where the most different words of the query stand close together.
type nearest struct {
	last  []int // by term: one more than where it was seen last
	most  int
	start int
}

func (n *nearest) saw(term, at int) {
	n.last[term] = at + 1
	near, start := 0, at
	for _, l := range n.last {
		if l > 0 && at-l < around {
			near++
			start = min(start, l-1)
		}
	}
	if near > n.most {
		n.most, n.start = near, start
	}
}

func (s *localSearch) best(count int) []Hit {
	average := float64(s.words) / float64(max(s.docs, 1))
	for i := range s.found {
		d := &s.found[i]
		for t, n := range d.counts {
			if n == 0 {
				continue
			}
			idf := math.Log(1 + (float64(s.docs-s.with[t])+0.5)/(float64(s.with[t])+0.5))
			d.score += idf * float64(n) * (k1 + 1) / (float64(n) + k1*(1-b+b*float64(d.length)/average))
		}
	}
	slices.SortStableFunc(s.found, func(x, y document) int {
		switch {
		case x.score > y.score:
			return -1
		case x.score < y.score:
			return 1
		}
		return strings.Compare(x.hit.Path, y.hit.Path)
	})
	hits := []Hit{}
	for _, d := range s.found[:min(count, len(s.found))] {
		hits = append(hits, d.hit)
	}
	return hits
}

// words gives the words of a text in lower case, with an English plural s taken off, and where each begins. Characters of scripts
// that write no spaces are words of their own.
func words(text string, yield func(word string, at int) bool) {
	start := -1
	flush := func(end int) bool {
		if start < 0 {
			return true
		}
		w, at := fold(text[start:end]), start
		start = -1
		return yield(w, at)
	}
	for i, r := range text {
		switch {
		case r < utf8.RuneSelf && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'):
			if start < 0 {
				start = i
			}
		case r < utf8.RuneSelf:
			if !flush(i) {
				return
			}
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar):
			if !flush(i) || !yield(string(r), i) {
				return
			}
		case unicode.In(r, unicode.L, unicode.M, unicode.N):
			if start < 0 {
				start = i
			}
		default:
			if !flush(i) {
				return
			}
		}
	}
	flush(len(text))
}

func fold(w string) string {
	w = strings.ToLower(w)
	if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
		w = w[:len(w)-1]
	}
	return w
}

// title is the first line that says something, without the marks of a heading, or else the file's name.
func title(name, text string) string {
	for line := range strings.Lines(text[:min(len(text), 4096)]) {
		line = strings.TrimSpace(strings.Trim(strings.TrimSpace(line), "#=-*>"))
		if line != "" && utf8.ValidString(line) {
			return plain(line, maxTitle)
		}
	}
	return plain(path.Base(name), maxTitle)
}

// snippet is the text around a place, begun at a word.
func snippet(text string, at int) string {
	from := max(0, at-around/3)
	for from > 0 && from < at && text[from-1] != ' ' && text[from-1] != '\n' {
		from++
	}
	part := plain(text[from:min(len(text), from+8*around)], around)
	if from > 0 {
		part = "… " + part
	}
	return part
}
