package comm

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/comm/exec"
	"sallyport.example/internal/comm/search"
	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Init()
	os.Exit(m.Run())
}

const session = "sess_01a2009ca9eb71aca8a6d450ac52f9ed"

// world is the operations with a web server, a database and programs behind them.
type world struct {
	t        *testing.T
	commands map[string]catalogue.Command
	url      string
	data     string
}

func newWorld(t *testing.T) *world {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, `<title>Widget prices</title><main><h1>Prices</h1><p>A widget costs <a href="/detail">7 EUR</a>.</p></main>`)
		case "/moved":
			http.Redirect(w, r, "/page", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/zip":
			w.Header().Set("Content-Type", "application/zip")
		case "/lie":
			w.Header().Set("Content-Type", "image/png")
			fmt.Fprint(w, "words")
		case "/large":
			w.Header().Set("Content-Length", "99999999")
		case "/torn":
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "x")
		case "/pixel":
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"))
		case "/echo":
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprintf(w, "%s %s", r.Method, r.Header.Get("User-Agent"))
		}
	}))
	t.Cleanup(web.Close)
	dir := t.TempDir()
	file := filepath.Join(dir, "notes.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE prices (item TEXT, eur INTEGER); INSERT INTO prices VALUES ('widget', 7), ('gadget', 9)"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	w := &world{t: t, url: web.URL, data: filepath.Join(dir, "data")}
	w.remake(Options{
		Data: w.data, Egress: egress.Policy{Domains: []string{strings.TrimPrefix(web.URL, "http://")}, Protocols: []string{"http"}, UserAgent: "Sallyport/test"},
		Methods: []string{"POST"}, Databases: map[string]string{"notes": "sqlite:" + file}, Exec: exec.Options{Allow: []string{"cat"}},
	})
	return w
}

// remake replaces the operations by those of other options.
func (w *world) remake(o Options) {
	w.t.Helper()
	if o.Data == "" {
		o.Data = w.t.TempDir()
	}
	o.NetworkTimeout, o.FileTimeout, o.ExecTimeout = 30*time.Second, 30*time.Second, 30*time.Second
	c, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.commands = map[string]catalogue.Command{}
	for _, command := range c.Commands() {
		w.commands[command.Name] = command
	}
}

func canonical(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = call.Canonical(b, call.DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	return b
}

type object = map[string]any

// run checks and runs an operation as the corridor does.
func (w *world) run(session, name string, parameters object) (catalogue.Brought, error) {
	w.t.Helper()
	command, raw := w.commands[name], canonical(w.t, parameters)
	if err := command.Check(raw); err != nil {
		return catalogue.Brought{}, err
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), command.Timeout)
	defer cancel()
	return command.Run(ctx, catalogue.CommandRun{Session: session, Parameters: raw})
}

func (w *world) mustRun(name string, parameters object) (text string, b catalogue.Brought) {
	w.t.Helper()
	b, err := w.run(session, name, parameters)
	if err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	for _, block := range b.Blocks {
		text += block.Text
	}
	return text, b
}

// Every operation is in the one form: it says what it is, takes strict parameters, and is what the corridor can guard (EX-1). A new one fails
// here until it was considered.
func TestOperations(t *testing.T) {
	w := newWorld(t)
	for name, want := range map[string]struct {
		effect      flow.Effect
		level       int
		sensitivity flow.Sensitivity
		requests    bool
		needs       []string
	}{
		"fetch":      {flow.Read, 0, flow.External, true, []string{"url"}},
		"search":     {flow.Read, 0, flow.None, true, []string{"query"}}, // local here; a provider on the web makes it external
		"query":      {flow.Read, 0, flow.InternalSource, true, []string{"database"}},
		"read_file":  {flow.Read, 0, flow.None, false, []string{"path"}},
		"write_file": {flow.Write, 1, flow.None, false, []string{"path", "content"}},
		"list_files": {flow.Read, 0, flow.None, false, nil},
		"exec":       {flow.Write, 2, flow.None, false, []string{"argv"}},
	} {
		c, ok := w.commands[name]
		if !ok {
			t.Errorf("there is no comm.%s", name)
			continue
		}
		if c.Effect != want.effect || c.Level != want.level || c.Sensitivity != want.sensitivity || c.Requests != want.requests || c.Timeout <= 0 || c.Own != (name == "write_file") {
			t.Errorf("comm.%s: %s level %d %s requests %v timeout %s own %v", name, c.Effect, c.Level, c.Sensitivity, c.Requests, c.Timeout, c.Own)
		}
		if c.Description == "" || c.Run == nil || c.Check == nil {
			t.Errorf("comm.%s lacks a word or a part", name)
		}
		var properties map[string]struct{ Type string }
		if err := json.Unmarshal(c.Parameters, &properties); err != nil || len(properties) == 0 {
			t.Fatalf("comm.%s: %v", name, err)
		}
		for p, s := range properties {
			if s.Type == "" {
				t.Errorf("comm.%s: nothing is said of %s", name, p)
			}
		}
		if err := c.Check(canonical(t, object{"sudo": true})); !fault.Is(err, fault.RequestMalformed) || fault.Of(err).Field != "sudo" {
			t.Errorf("comm.%s takes an unknown parameter: %v", name, err)
		}
		for _, p := range want.needs {
			if err := c.Check([]byte("{}")); err == nil {
				t.Errorf("comm.%s runs without %s", name, p)
			}
			for _, wrong := range []any{7, true, nil, object{}, []any{nil}, ""} {
				if s, text := wrong.(string); text && s == "" && p == "content" {
					continue // an empty file is one
				}
				if err := c.Check(canonical(t, object{p: wrong})); err == nil {
					t.Errorf("comm.%s takes %v for %s", name, wrong, p)
				}
			}
		}
	}
	if names := slices.Sorted(maps.Keys(w.commands)); !slices.Equal(names, Names) {
		t.Errorf("the operations are %v, and Names says %v", names, Names)
	}
}

func TestWhatParametersNameIsJudgedBefore(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		operation  string
		parameters object
		code       fault.Code
	}{
		"another address":   {"fetch", object{"url": "https://192.0.2.1/"}, fault.EgressBlocked},
		"metadata":          {"fetch", object{"url": "http://169.254.169.254/latest"}, fault.EgressBlocked},
		"a file":            {"fetch", object{"url": "file:///etc/passwd"}, fault.EgressBlocked},
		"another method":    {"fetch", object{"url": w.url + "/page", "method": "DELETE"}, fault.PermissionDenied},
		"unknown format":    {"fetch", object{"url": w.url + "/page", "format": "exe"}, fault.RequestMalformed},
		"another scope":     {"fetch", object{"url": w.url + "/page", "scope": "database"}, fault.RequestMalformed},
		"unknown database":  {"query", object{"database": "crm"}, fault.RequestMalformed},
		"too many results":  {"search", object{"query": "widget prices", "count": 21}, fault.RequestMalformed},
		"unknown program":   {"exec", object{"argv": []string{"rm", "-rf", "/"}}, fault.PermissionDenied},
		"a program by path": {"exec", object{"argv": []string{"/bin/sh"}}, fault.PermissionDenied},
		"no program":        {"exec", object{"argv": []string{}}, fault.RequestMalformed},
		"offset below zero": {"read_file", object{"path": "a", "offset": -1}, fault.RequestMalformed},
		"no address":        {"fetch", object{"format": "text"}, fault.RequestMalformed},
		"another parameter": {"fetch", object{"url": w.url + "/page", "fence": false}, fault.RequestMalformed},
		"no content":        {"write_file", object{"path": "a"}, fault.RequestMalformed},
		"append a word":     {"write_file", object{"path": "a", "content": "x", "append": "yes"}, fault.RequestMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			command := w.commands[c.operation]
			err := command.Check(canonical(t, c.parameters))
			if !fault.Is(err, c.code) {
				t.Fatalf("%v, want %s", err, c.code)
			}
			// A model is shown the sentence alone.
			if f := fault.Of(err); f.Code == fault.RequestMalformed && !strings.Contains(f.Public(), f.Field) {
				t.Errorf("%q doesn't name %s", f.Public(), f.Field)
			}
		})
	}
}

func TestFetch(t *testing.T) {
	w := newWorld(t)
	text, b := w.mustRun("fetch", object{"url": w.url + "/moved"})
	if b.Source != w.url+"/page" || !strings.Contains(text, "Title: Widget prices") || !strings.Contains(text, "[7 EUR]("+w.url+"/detail)") || !strings.Contains(text, "Redirected from: "+w.url+"/moved") {
		t.Errorf("from %s:\n%s", b.Source, text)
	}
	kept, _ := w.mustRun("list_files", object{"path": "fetched"})
	if !strings.Contains(kept, ".md") {
		t.Errorf("no copy in the workspace: %s", kept)
	}
	if hits, _ := w.mustRun("search", object{"query": "widget prices"}); !strings.Contains(hits, "Prices") {
		t.Errorf("the page is not found again: %s", hits)
	}
	if text, b = w.mustRun("fetch", object{"url": w.url + "/pixel"}); len(b.Blocks) != 2 || b.Blocks[1].MediaType != "image/png" || len(b.Blocks[1].Data) == 0 {
		t.Errorf("an image came as %q %+v", text, b.Blocks)
	}
	if text, _ = w.mustRun("fetch", object{"url": w.url + "/echo", "method": "POST", "body": "x", "content_type": "text/plain"}); !strings.Contains(text, "POST Sallyport/test") {
		t.Errorf("%s", text)
	}
	fetch := w.commands["fetch"]
	for parameters, writes := range map[string]bool{
		`{"url":"http://x/"}`: false, `{"method":"GET","url":"http://x/"}`: false, `{"method":"HEAD","url":"http://x/"}`: false,
		`{"method":"POST","url":"http://x/"}`: true, `{"method":"get","url":"http://x/"}`: true, `{"method":7}`: true,
	} {
		if fetch.Writes([]byte(parameters)) != writes {
			t.Errorf("%s: writes %v", parameters, !writes)
		}
	}
}

// What is refused says what to do instead.
func TestRefusalsTellTheWayOut(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		operation  string
		parameters object
		code       fault.Code
		words      string
	}{
		"a loop":               {"fetch", object{"url": w.url + "/loop"}, fault.EgressBlocked, "the address that they should lead to"},
		"a type":               {"fetch", object{"url": w.url + "/zip"}, fault.ResultInvalid, "HTML"},
		"another type":         {"fetch", object{"url": w.url + "/lie"}, fault.ResultInvalid, "another address"},
		"a large page":         {"fetch", object{"url": w.url + "/large"}, fault.ResultTooLarge, "something smaller"},
		"an answer cut off":    {"fetch", object{"url": w.url + "/torn"}, fault.UpstreamFailed, "another address"},
		"a method":             {"fetch", object{"url": w.url + "/page", "method": "post"}, fault.PermissionDenied, "GET, HEAD or POST, in capitals"},
		"a file":               {"read_file", object{"path": "absent.md"}, fault.NotFound, "comm_list_files"},
		"a digest":             {"write_file", object{"path": "a.md", "content": "x", "expected_sha256": "00"}, fault.RequestMalformed, "expected_sha256"},
		"an address of no one": {"fetch", object{"url": "https://10.0.0.1/"}, fault.EgressBlocked, "comm.allowed_domains"},
	} {
		if _, err := w.run(session, c.operation, c.parameters); !fault.Is(err, c.code) || !strings.Contains(fault.Of(err).Public(), c.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A method that writes has to be the operator's word; without it there is nothing in comm.fetch that could be a write.
func TestMethodsAreTheOperators(t *testing.T) {
	w := newWorld(t)
	if w.commands["fetch"].Writes == nil {
		t.Error("POST is allowed, and nobody can tell that it is a write")
	}
	w.remake(Options{Egress: egress.Policy{Domains: []string{strings.TrimPrefix(w.url, "http://")}, Protocols: []string{"http"}}})
	if w.commands["fetch"].Writes != nil {
		t.Error("no method writes here, and comm.fetch may write")
	}
	for _, method := range []string{"POST", "PUT", "post"} {
		if _, err := w.run(session, "fetch", object{"url": w.url + "/echo", "method": method}); !fault.Is(err, fault.PermissionDenied) || fault.Of(err).Field != "method" {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// The scope says where is searched: internal asks no service, and web says so where there is none to ask.
func TestSearchScope(t *testing.T) {
	w := newWorld(t)
	w.mustRun("fetch", object{"url": w.url + "/page"})
	for _, scope := range []string{"", "internal", "web"} {
		parameters := object{"query": "widget costs"}
		if scope != "" {
			parameters["scope"] = scope
		}
		text, b := w.mustRun("search", parameters)
		var answer struct {
			Results []struct{ Title, URL, Path string }
			Note    string
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Results) != 1 || answer.Results[0].Title != "Widget prices" ||
			answer.Results[0].URL != w.url+"/page" || !strings.HasPrefix(answer.Results[0].Path, "fetched/") || b.Source != "search:local" {
			t.Errorf("%q: %v from %s: %s", scope, err, b.Source, text)
		}
		if (answer.Note != "") != (scope == "web") {
			t.Errorf("%q: note %q", scope, answer.Note)
		}
	}
	var asked atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"results":[{"title":"Found","url":"https://shop.example/","content":"outside"}]}`)
	}))
	t.Cleanup(service.Close)
	w.remake(Options{Search: search.Config{Provider: "searxng", URL: "http://127.0.0.1:1"}})
	if _, err := w.run(session, "search", object{"query": "widget costs"}); !fault.Is(err, fault.UpstreamFailed) || !strings.Contains(fault.Of(err).Public(), "scope internal") {
		t.Errorf("%v", err)
	}
	w.remake(Options{Search: search.Config{Provider: "searxng", URL: service.URL}})
	for scope, want := range map[string]string{"internal": "search:local", "web": "search:searxng"} {
		before := asked.Load()
		text, b := w.mustRun("search", object{"query": "widget costs", "scope": scope})
		if b.Source != want || (asked.Load() > before) != (scope == "web") || strings.Contains(text, "outside") != (scope == "web") || strings.Contains(text, "note") {
			t.Errorf("%s: from %s, asked %d: %s", scope, b.Source, asked.Load()-before, text)
		}
	}
}

// A page that is read back from the cache is from where it was fetched; any other file there is from the cache.
func TestCachedPageKeepsItsSource(t *testing.T) {
	w := newWorld(t)
	for name, content := range map[string]string{
		"page":  `{"version":2,"url":"https://pages.example/x","fetched_at":"2026-01-02T03:04:05Z"}` + "\nthe text",
		"old":   `{"version":1,"url":"https://pages.example/x"}` + "\nthe text",
		"other": "https://pages.example/x\n",
	} {
		if err := os.WriteFile(filepath.Join(w.data, "cache", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"page": "https://pages.example/x", "old": "workspace:cache/old", "other": "workspace:cache/other"} {
		if _, b := w.mustRun("read_file", object{"path": "cache/" + name}); b.Source != want || b.At.IsZero() != (name != "page") {
			t.Errorf("%s is from %s at %s", name, b.Source, b.At)
		}
	}
	if _, b := w.mustRun("read_file", object{"path": "cache/page", "offset": 90}); b.Source != "https://pages.example/x" {
		t.Errorf("a part of it is from %s", b.Source)
	}
}

func TestQuery(t *testing.T) {
	w := newWorld(t)
	if text, b := w.mustRun("query", object{"database": "notes"}); b.Source != "database:notes" || !strings.Contains(text, `"prices"`) {
		t.Errorf("from %s: %s", b.Source, text)
	}
	if text, _ := w.mustRun("query", object{"database": "notes", "sql": "SELECT eur FROM prices WHERE item = ?", "parameters": []any{"widget"}}); !strings.Contains(text, "[[7]]") {
		t.Error(text)
	}
	if _, err := w.run(session, "query", object{"database": "notes", "sql": "DELETE FROM prices"}); !fault.Is(err, fault.PermissionDenied) {
		t.Errorf("%v", err)
	}
}

func TestFilesAndPrograms(t *testing.T) {
	w := newWorld(t)
	text, b := w.mustRun("write_file", object{"path": "notes/a.txt", "content": "hello\n"})
	if b.Source != "workspace:notes/a.txt" || !strings.Contains(text, `"size":6`) {
		t.Errorf("from %s: %s", b.Source, text)
	}
	w.mustRun("write_file", object{"path": "notes/a.txt", "content": "world\n", "append": true})
	if text, _ = w.mustRun("read_file", object{"path": "notes/a.txt"}); text != "hello\nworld\n" {
		t.Errorf("%q", text)
	}
	if text, _ = w.mustRun("read_file", object{"path": "notes/a.txt", "offset": 6, "limit": 3}); !strings.HasPrefix(text, "wor") || !strings.Contains(text, "12 bytes") {
		t.Errorf("%q", text)
	}
	// No choice of a part, and no odd byte, gets a text out as data, which has no fence and is searched for nothing.
	w.mustRun("write_file", object{"path": "notes/é.txt", "content": "IBAN DE89 3704 0044 0532 0130 00 é"})
	for limit := 1; limit < 36; limit++ {
		if _, b := w.mustRun("read_file", object{"path": "notes/é.txt", "limit": limit}); b.Blocks[0].Data != nil || !utf8.ValidString(b.Blocks[0].Text) {
			t.Errorf("limit %d: %+v", limit, b.Blocks)
		}
	}
	if err := os.WriteFile(filepath.Join(w.data, "workspace", session, "broken.txt"), []byte("IBAN DE89 3704 0044 0532 0130 00 \xff"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, b := w.mustRun("read_file", object{"path": "broken.txt"}); b.Blocks[0].Data != nil || text != "IBAN DE89 3704 0044 0532 0130 00 \ufffd" {
		t.Errorf("%q %+v", text, b.Blocks)
	}
	other := "sess_01a2009ca9eb71aca8a6d450ac52f9ee"
	var notDispatched *fault.NotDispatched
	for path, code := range map[string]fault.Code{"notes/a.txt": fault.NotFound, "../" + session + "/notes/a.txt": fault.PathBlocked, "/etc/passwd": fault.PathBlocked} {
		_, err := w.run(other, "read_file", object{"path": path})
		if !fault.Is(err, code) || !slices.Contains([]bool{true}, asNotDispatched(err, &notDispatched)) {
			t.Errorf("%s of another session: %v", path, err)
		}
	}
	if sandbox.Probe().Tier == sandbox.None {
		if os.Getenv("SALLYPORT_TEST_ALL") != "" {
			t.Fatal("there is no sandbox here")
		}
		t.Skip("not checked: programs, there is no sandbox here")
	}
	text, b = w.mustRun("exec", object{"argv": []string{"cat", "notes/a.txt", "-"}, "stdin": "and in\n"})
	var out struct {
		ExitCode int    `json:"exit_code"`
		Stdout   string `json:"stdout"`
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil || out.ExitCode != 0 || out.Stdout != "hello\nworld\nand in\n" || b.Source != "program:cat" {
		t.Errorf("from %s: %s", b.Source, text)
	}
}

func asNotDispatched(err error, into **fault.NotDispatched) bool {
	nd, ok := err.(*fault.NotDispatched)
	*into = nd
	return ok
}

func FuzzParameters(f *testing.F) {
	ps := params{
		{name: "a", kind: "text", required: true, most: 10}, {name: "b", kind: "integer", least: 1, most: 5}, {name: "c", kind: "flag"},
		{name: "d", kind: "texts", most: 3}, {name: "e", kind: "scalars", most: 3}, {name: "f", kind: "text", words: []string{"x", "y"}, most: 9},
	}
	f.Add([]byte(`{"a":"x","b":3,"c":true,"d":["x"],"e":[1,null,"s",false],"f":"y"}`))
	f.Add([]byte(`{"A":"x"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		canonical, err := call.Canonical(raw, call.DefaultLimits())
		if err != nil || canonical[0] != '{' {
			return
		}
		v, err := ps.parse(canonical)
		if err != nil {
			return
		}
		for name, value := range v {
			i := slices.IndexFunc(ps, func(p param) bool { return p.name == name })
			if i < 0 || value == nil {
				t.Fatalf("%s is %v", name, value)
			}
		}
		if n, given := v["b"].(int64); given && (n < 1 || n > 5) || len(v.text("a")) > 10 || len(v.texts("d")) > 3 || len(v.scalars("e")) > 3 {
			t.Fatalf("out of bounds: %v", v)
		}
	})
}
