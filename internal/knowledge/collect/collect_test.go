package collect

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/comm/fetch"
	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
)

// way is a way to the web with the rules of comm.fetch.
type way struct{ *fetch.Fetcher }

func (w way) CheckFile(address string) error { return w.Check(fetch.Request{URL: address}) }

// desk is a Collector with what it wrote down.
type desk struct {
	*Collector
	entries []audit.Entry
	stopped bool
	refuse  audit.Kind // of the entries that the log does not take
	running []Running
}

func (d *desk) lines() (all []string) {
	for _, e := range d.entries {
		all = append(all, string(e.Kind)+" "+e.Decision+" "+e.Code)
	}
	return all
}

func newDesk(t *testing.T, domains ...string) *desk {
	t.Helper()
	web, err := egress.New(egress.Policy{Domains: domains, Protocols: []string{"https", "http"}}, egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := fetch.New(fetch.Options{Web: web})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{}
	d.Collector = New(Options{
		Web: way{f}, Clock: time.Now,
		Record: func(_ context.Context, entries ...audit.Entry) error {
			if entries[0].Kind == d.refuse {
				return fault.New(fault.AuditUnavailable, "The log is away.")
			}
			d.entries = append(d.entries, entries...)
			return nil
		},
		Enter: func(r Running) (func(), func() bool) {
			d.running = append(d.running, r)
			return func() {}, func() bool { return d.stopped }
		},
		Payload: func(b []byte) *audit.Payload { return &audit.Payload{SHA256: call.HashBytes(b), Shown: b} },
	})
	return d
}

func host(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// serving answers one type and body at every path, and counts.
func serving(t *testing.T, header http.Header, status int, body string) (*httptest.Server, *int) {
	t.Helper()
	asked := new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*asked++
		for name := range header {
			w.Header().Set(name, header.Get(name))
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s, asked
}

// What an address has is read by the type that its server gives, and where that is plain text by its name.
func TestTypes(t *testing.T) {
	for _, c := range []struct{ path, declared, body, want, text string }{
		{"/a", "text/html; charset=iso-8859-1", "<p>caf\xe9</p>", knowledge.HTML, "<p>café</p>"},
		{"/a", "text/markdown", "# Title", knowledge.Markdown, "# Title"},
		{"/a.csv", "text/csv", "a,b\n1,2\n", knowledge.CSV, "a,b\n1,2\n"},
		{"/a.md", "text/plain", "# Title", knowledge.Markdown, "# Title"},
		{"/a.pdf", "text/plain", "no PDF", knowledge.Plain, "no PDF"},
		{"/a", "application/json", `{"a": 1}`, knowledge.Code, `{"a": 1}`},
		{"/a", "application/pdf", "%PDF-1.4 …", knowledge.PDF, "%PDF-1.4 …"},
		{"/a.docx", "application/octet-stream", "PK\x03\x04…", knowledge.DOCX, "PK\x03\x04…"},
		{"/a", knowledge.DOCX, "PK\x03\x04…", knowledge.DOCX, "PK\x03\x04…"},
	} {
		s, _ := serving(t, http.Header{"Content-Type": {c.declared}}, 200, c.body)
		d := newDesk(t, host(s))
		f, err := d.Get(t.Context(), "person:a", s.URL+c.path)
		if err != nil || f.Type != c.want || string(f.Content) != c.text {
			t.Errorf("%s as %s: %+v, %v", c.path, c.declared, f, err)
		}
		if got := d.lines(); !slices.Equal(got, []string{"intent permit ", "outcome ok "}) {
			t.Errorf("%s: %q", c.path, got)
		}
	}
}

// What the rules of egress refuse sends nothing, is on record, and brings nothing.
func TestRefused(t *testing.T) {
	private, asked := serving(t, nil, 200, "the gateway's neighbour")
	open, _ := serving(t, http.Header{"Location": {private.URL}}, 302, "")
	meta, _ := serving(t, http.Header{"Location": {"http://169.254.169.254/latest/meta-data/"}}, 302, "")
	for _, c := range []struct {
		name, address string
		domains       []string
		code          fault.Code
		lines         []string
	}{
		{"private address", private.URL, nil, fault.EgressBlocked, []string{"decision deny egress_blocked"}},
		{"address that is not listed", private.URL, []string{"example.com"}, fault.EgressBlocked, []string{"decision deny egress_blocked"}},
		{"redirect to a private address", open.URL, []string{host(open)}, fault.EgressBlocked, []string{"intent permit ", "outcome error egress_blocked"}},
		{"redirect to the metadata service", meta.URL, []string{host(meta)}, fault.EgressBlocked, []string{"intent permit ", "outcome error egress_blocked"}},
		{"a file of the machine", "file:///etc/passwd", nil, fault.EgressBlocked, []string{"decision deny egress_blocked"}},
		{"credentials in the address", "https://a:b@example.com/", nil, fault.EgressBlocked, []string{"decision deny egress_blocked"}},
	} {
		d := newDesk(t, c.domains...)
		f, err := d.Get(t.Context(), "person:a", c.address)
		if !fault.Is(err, c.code) || f != nil || fault.Of(err).Field == "" {
			t.Errorf("%s: %v, %v", c.name, f, err)
		}
		if got := d.lines(); !slices.Equal(got, replaceCode(c.lines, c.code)) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if *asked != 0 {
		t.Errorf("the private server was asked %d times", *asked)
	}
}

func replaceCode(lines []string, code fault.Code) (out []string) {
	for _, l := range lines {
		out = append(out, strings.Replace(l, "egress_blocked", string(code), 1))
	}
	return out
}

// What comes back and can't be taken whole is an error, and on record.
func TestNotTaken(t *testing.T) {
	for _, c := range []struct {
		name, declared, body string
		status               int
		code                 fault.Code
	}{
		{"image", "image/png", "\x89PNG\r\n\x1a\n", 200, fault.ResultInvalid},
		{"archive", "application/zip", "PK\x03\x04", 200, fault.ResultInvalid},
		{"program", "application/octet-stream", "\x7fELF\x00\x00", 200, fault.ResultInvalid},
		{"PDF that is none", "application/pdf", "hello", 200, fault.ResultInvalid},
		{"DOCX that is none", knowledge.DOCX, "hello", 200, fault.ResultInvalid},
		{"text that is a PDF", "text/plain", "%PDF-1.4", 200, fault.ResultInvalid},
		{"text in another encoding", "text/plain; charset=utf-8", "caf\xe9 and much more text", 200, fault.ResultInvalid},
		{"page of an error", "text/html", "<p>not here</p>", 404, fault.UpstreamFailed},
		{"too large", "text/plain", strings.Repeat("a ", 3<<20), 200, fault.ResultTooLarge},
	} {
		s, _ := serving(t, http.Header{"Content-Type": {c.declared}}, c.status, c.body)
		d := newDesk(t, host(s))
		f, err := d.Get(t.Context(), "person:a", s.URL)
		if !fault.Is(err, c.code) || f != nil {
			t.Errorf("%s: %v, %v", c.name, f, err)
		}
		if got := d.lines(); !slices.Equal(got, []string{"intent permit ", "outcome error " + string(c.code)}) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// Nothing leaves without an intent that is durable, nor while all agents are stopped; what a stop meets under way is discarded.
func TestStopsAndLog(t *testing.T) {
	s, asked := serving(t, http.Header{"Content-Type": {"text/plain"}}, 200, "hello")
	d := newDesk(t, host(s))
	d.stopped = true
	if _, err := d.Get(t.Context(), "person:a", s.URL); !fault.Is(err, fault.KillSwitch) || *asked != 0 || len(d.entries) != 1 || d.entries[0].Decision != "deny" {
		t.Errorf("stopped: %v, asked %d times, %q", err, *asked, d.lines())
	}
	for _, kind := range []audit.Kind{audit.Intent, audit.Outcome} {
		d = newDesk(t, host(s))
		d.refuse = kind
		if f, err := d.Get(t.Context(), "person:a", s.URL); !fault.Is(err, fault.AuditUnavailable) || f != nil {
			t.Errorf("no %s: %v, %v", kind, f, err)
		}
		if kind == audit.Intent && *asked != 0 {
			t.Error("it was asked without an intent")
		}
	}
	d = newDesk(t)
	d.refuse = audit.Decision
	if _, err := d.Get(t.Context(), "person:a", s.URL); !fault.Is(err, fault.AuditUnavailable) {
		t.Errorf("no record of a refusal: %v", err)
	}

	var slow *desk
	arrived := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		slow.stopped = true
		slow.running[0].Cancel(errors.New("stop"))
		<-r.Context().Done()
	}))
	defer arrived.Close()
	slow = newDesk(t, host(arrived))
	if f, err := slow.Get(t.Context(), "person:a", arrived.URL); !fault.Is(err, fault.KillSwitch) || f != nil || slow.lines()[1] != "outcome error "+string(fault.KillSwitch) {
		t.Errorf("stopped under way: %v, %v, %q", f, err, slow.lines())
	}
}
