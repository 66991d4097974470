package search

import (
	"bytes"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"sallyport.example/internal/call"
)

// searxng: GET /search?q=…&format=json, which the instance must have among its search.formats. It knows no count.
func searxng(c Config, query string, _ int) (*http.Request, error) {
	address := strings.TrimSuffix(c.URL, "/")
	if !strings.HasSuffix(address, "/search") {
		address += "/search"
	}
	return get(address+"?"+url.Values{"q": {query}, "format": {"json"}}.Encode(), c.Key)
}

// brave: GET with the key in a header of its own. Decorations are tags inside titles and descriptions.
func brave(c Config, query string, count int) (*http.Request, error) {
	v := url.Values{"q": {query}, "count": {strconv.Itoa(count)}, "text_decorations": {"false"}, "result_filter": {"web"}}
	req, err := get(or(c.URL, braveURL)+"?"+v.Encode(), "")
	if err == nil {
		req.Header.Set("X-Subscription-Token", c.Key)
	}
	return req, err
}

// tavily: POST of a JSON object.
func tavily(c Config, query string, count int) (*http.Request, error) {
	body, err := json.Marshal(map[string]any{"query": query, "max_results": count, "search_depth": "basic"})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodPost, or(c.URL, tavilyURL), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.Key)
	return req, nil
}

// opensearch: GET of the operator's template.
func opensearch(c Config, query string, count int) (*http.Request, error) {
	return get(expand(c.URL, query, count), c.Key)
}

// expand fills a template in one pass, so that a query that looks like a placeholder stays a query.
func expand(template, query string, count int) string {
	return strings.NewReplacer("{query}", url.QueryEscape(query), "{count}", strconv.Itoa(count)).Replace(template)
}

func get(address, bearer string) (*http.Request, error) {
	req, err := http.NewRequest(http.MethodGet, address, nil)
	if err == nil && bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	return req, err
}

func or(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}

// shape gives the places of the fields in an answer: names of members, joined by dots.
type shape struct{ results, title, link, snippet, published string }

// hits reads checked JSON. A result that is not an object, or has no usable link, is left out. An answer without the list of
// results is an error, unless the list is null or its parent is absent: services say so that there are none.
func (s shape) hits(data []byte, count int) ([]Hit, error) {
	hits := []Hit{}
	data = bytes.TrimSpace(data)
	if len(data) == 0 || data[0] != '{' && !(s.results == "" && data[0] == '[') {
		return nil, errors.New("the answer is no object")
	}
	list, ok := find(data, s.results)
	if first, _, nested := strings.Cut(s.results, "."); !ok {
		if _, there := call.Get(data, first); !there && !nested {
			return nil, errors.New("there are no results in the answer")
		}
		return hits, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, errors.New("the results are no list")
	}
	for _, item := range items {
		if len(hits) == count {
			break
		}
		link, ok := webLink(text(item, s.link))
		if !ok {
			continue
		}
		h := Hit{
			Title:     clean(text(item, s.title), maxTitle),
			URL:       link,
			Snippet:   clean(text(item, s.snippet), maxSnippet),
			Published: clean(text(item, s.published), maxPublished),
		}
		if h.Title == "" {
			h.Title = clean(link, maxTitle)
		}
		hits = append(hits, h)
	}
	return hits, nil
}

// find follows names joined by dots; null is as good as absent.
func find(data json.RawMessage, path string) (json.RawMessage, bool) {
	if path == "" {
		return data, true
	}
	for name := range strings.SplitSeq(path, ".") {
		value, ok := call.Get(data, name)
		if !ok || string(value) == "null" {
			return nil, false
		}
		data = value
	}
	return data, true
}

// text is the string at path, or "" when there is none. A number, which some services write for dates, is its digits.
func text(item json.RawMessage, path string) string {
	if path == "" {
		return ""
	}
	value, ok := find(item, path)
	if !ok || len(value) == 0 {
		return ""
	}
	switch c := value[0]; {
	case c == '"':
		var s string
		if json.Unmarshal(value, &s) != nil {
			return ""
		}
		return s
	case c == '-' || c >= '0' && c <= '9':
		return string(value)
	}
	return ""
}

func webLink(s string) (string, bool) {
	if len(s) > maxURL {
		return "", false
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return "", false
	}
	s = u.String()
	return s, len(s) <= maxURL
}

// clean is plain, after resolving the HTML character references that services write into titles.
func clean(s string, max int) string {
	return plain(html.UnescapeString(s[:min(len(s), 16*max)]), max)
}

// plain makes one line of valid UTF-8 (whatever isn't becomes U+FFFD) and at most max characters. Marks that hide or reorder text are left for the code that inspects
// the result.
func plain(s string, max int) string {
	var out strings.Builder
	n, space := 0, false
	for _, r := range s {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			space = n > 0
			continue
		}
		if space {
			if n+1 >= max {
				break
			}
			out.WriteByte(' ')
			n++
			space = false
		}
		if n == max {
			break
		}
		out.WriteRune(r)
		n++
	}
	return out.String()
}
