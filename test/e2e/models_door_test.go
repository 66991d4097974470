package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// What is refused before the door looks at a request is an error in the provider's form like any other, and asks for no retry.
func TestModelRequestsAreTurnedAwayInTheProvidersForm(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot"))
	_, token := w.open("bot")
	large := `{"model":"` + strings.Repeat("x", 5<<20) + `"}`
	for name, c := range map[string]struct {
		method, path, body string // the path behind the provider's
		headers            http.Header
		status             int
		code               string
	}{
		"another host":          {"POST", "/v1/x", "{}", http.Header{"Host": {"evil.example"}}, 421, "request.malformed"},
		"another origin":        {"POST", "/v1/x", "{}", http.Header{"Origin": {"https://evil.example"}}, 403, "request.malformed"},
		"another site":          {"POST", "/v1/x", "{}", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403, "request.malformed"},
		"a header twice":        {"POST", "/v1/x", "{}", http.Header{"X-Api-Key": {"a", "b"}}, 400, "request.malformed"},
		"an escaped path":       {"POST", "/v1%2fx", "{}", nil, 400, "request.malformed"},
		"a path that is not it": {"POST", "/v1//x", "{}", nil, 400, "request.malformed"},
		"a parameter twice":     {"POST", "/v1/x?a=1&a=2", "{}", nil, 400, "request.malformed"},
		"no parameters":         {"POST", "/v1/x?%zz", "{}", nil, 400, "request.malformed"},
		"an unknown path":       {"POST", "/v1/x", "{}", nil, 404, "not_found"},
		"no path":               {"GET", "", "", nil, 404, "not_found"},
		"another method":        {"POST", "/v1/models", "{}", nil, 405, "request.malformed"},
		"no credential":         {"GET", "/v1/models", "", http.Header{"Authorization": {}}, 401, "credential.missing"},
		"no such model":         {"GET", "/v1/models/none", "", nil, 404, "not_found"},
		"a method of none":      {"BREW", "/v1/messages", "", nil, 405, "request.malformed"},
		"too large":             {"POST", "/v1/messages", large, nil, 413, "request.malformed"},
		"no JSON":               {"POST", "/v1/messages", "{", nil, 400, "request.malformed"},
		"another media type":    {"POST", "/v1/messages", "{}", http.Header{"Content-Type": {"text/plain"}}, 415, "request.malformed"},
		"compressed":            {"POST", "/v1/messages", "{}", http.Header{"Content-Encoding": {"gzip"}}, 415, "request.malformed"},
	} {
		for _, provider := range []string{"openai", "anthropic"} {
			path := c.path
			if provider == "openai" {
				path = strings.Replace(path, "/v1/messages", "/v1/responses", 1)
			}
			req, err := http.NewRequestWithContext(t.Context(), c.method, w.agent+"/"+provider+path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+token)
			for k, v := range c.headers {
				if k == "Host" {
					req.Host = v[0]
					continue
				}
				req.Header[k] = v
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			var e struct {
				Type  string
				Error struct {
					Type, Message string
					Code          *string
					Sallyport     struct {
						Code, Decision string
						RequestID      string `json:"request_id"`
					}
				}
			}
			if err := json.Unmarshal(body, &e); err != nil {
				t.Errorf("%s, %s: %v: %s", provider, name, err, body)
				continue
			}
			theirs := e.Type == "error"
			if provider == "openai" {
				theirs = e.Error.Code != nil && *e.Error.Code == c.code
			}
			if s := e.Error.Sallyport; resp.StatusCode != c.status || !theirs || e.Error.Type == "" || e.Error.Message == "" || s.Code != c.code || s.Decision != "deny" || s.RequestID != resp.Header.Get("X-Request-Id") {
				t.Errorf("%s, %s: %d %s", provider, name, resp.StatusCode, body)
			}
			if resp.Header.Get("X-Should-Retry") != "false" || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s, %s: %v", provider, name, resp.Header)
			}
		}
	}
	if n := len(p.requests()); n != 0 {
		t.Errorf("%d requests left", n)
	}
	w.sane()
}
