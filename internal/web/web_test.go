package web

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

// connection is a response on a connection that notes its deadlines, and whether a write had none.
type connection struct {
	*httptest.ResponseRecorder
	read, write time.Time
	unbounded   int
}

func (c *connection) Write(b []byte) (int, error) {
	if c.write.IsZero() {
		c.unbounded += len(b)
	}
	return c.ResponseRecorder.Write(b)
}

func (c *connection) SetReadDeadline(t time.Time) error  { c.read = t; return nil }
func (c *connection) SetWriteDeadline(t time.Time) error { c.write = t; return nil }

// serve sends a request with the body to a face with the handler.
func serve(t *testing.T, body string, h http.HandlerFunc) *connection {
	t.Helper()
	r := httptest.NewRequest("POST", "http://127.0.0.1/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return pass(r, h)
}

// pass sends a request over loopback to a face with the handler.
func pass(r *http.Request, h http.HandlerFunc) *connection {
	c := &connection{ResponseRecorder: httptest.NewRecorder(), write: time.Now()} // what the request before has left
	f := &Face{Log: slog.New(slog.DiscardHandler), NewID: func() string { return "req_1" }}
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}
	f.Handler(h).ServeHTTP(c, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local))))
	return c
}

// A client that does not read its answer can't hold it, and its goroutine, for as long as it likes: the servers have no WriteTimeout.
func TestEveryWriteIsBoundedInTime(t *testing.T) {
	answer := strings.Repeat("x", 8<<20)
	c := serve(t, "", func(w http.ResponseWriter, _ *http.Request) {
		for _, part := range []string{answer, "tail"} {
			if n, err := io.WriteString(w, part); n != len(part) || err != nil {
				t.Errorf("%d %v", n, err)
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	})
	if c.unbounded > 0 || c.Body.String() != answer+"tail" || !c.Flushed {
		t.Errorf("%d bytes were written without a deadline; %d bytes came", c.unbounded, c.Body.Len())
	}
	if time.Until(c.write) < time.Second {
		t.Errorf("what the server still has in its buffer has until %v", c.write)
	}
	c = serve(t, "", func(http.ResponseWriter, *http.Request) {})
	if time.Until(c.write) < time.Second {
		t.Errorf("an answer of headers alone has until %v", c.write)
	}
}

// A body that does not come is not waited for, also where nobody but the server reads it. While a request that was read is worked on there
// is no deadline: its end would be taken for the client's.
func TestBodyIsBoundedInTime(t *testing.T) {
	c := serve(t, "{}", func(w http.ResponseWriter, r *http.Request) {
		if d := w.(*writer).ResponseWriter.(*connection).read; time.Until(d) < time.Second || time.Until(d) > bodyTime {
			t.Errorf("before it is read: %v", d)
		}
		if b, err := JSON(w, r, 10, false, nil); err != nil || string(b) != "{}" {
			t.Errorf("%s %v", b, err)
		}
	})
	if !c.read.IsZero() {
		t.Errorf("after it is read: %v", c.read)
	}
	if c := serve(t, "{}", func(http.ResponseWriter, *http.Request) {}); c.read.IsZero() {
		t.Error("the server may wait for ever for a body that no handler reads")
	}
	if c := serve(t, "", func(http.ResponseWriter, *http.Request) {}); !c.read.IsZero() {
		t.Errorf("a request without a body: %v", c.read)
	}
}

// A panic is answered with a problem, or cuts off an answer that has begun.
func TestPanics(t *testing.T) {
	c := serve(t, "", func(http.ResponseWriter, *http.Request) { panic("secret") })
	if c.Code != 500 || c.Header().Get("Content-Type") != "application/problem+json" || strings.Contains(c.Body.String(), "secret") || !strings.Contains(c.Body.String(), fault.Internal.Sentence()) {
		t.Errorf("%d %s", c.Code, c.Body)
	}
	for name, h := range map[string]http.HandlerFunc{
		"headers": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic("secret") },
		"a part":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "half of"); panic("secret") },
		"a flush": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic("secret")
		},
		"nothing": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("after %s: %v", name, p)
				}
			}()
			serve(t, "", h)
		}()
	}
}

// A client that asks before it sends is told that it is too much before it has sent anything.
func TestTooLargeIsSaidBeforeItIsSent(t *testing.T) {
	asked := strings.NewReader(strings.Repeat(" ", 100))
	r := httptest.NewRequest("POST", "/", asked)
	r.Header.Set("Expect", "100-continue")
	if _, err := JSON(httptest.NewRecorder(), r, 10, false, nil); Status(err) != http.StatusRequestEntityTooLarge || asked.Len() != 100 {
		t.Errorf("%v, and %d bytes left", err, asked.Len())
	}
	// Who is sending already is let say most of it: it would see a broken connection in place of the answer.
	said := strings.NewReader(strings.Repeat(" ", 15))
	if _, err := JSON(httptest.NewRecorder(), httptest.NewRequest("POST", "/", said), 10, false, nil); Status(err) != http.StatusRequestEntityTooLarge || said.Len() != 0 {
		t.Errorf("%v, and %d bytes left", err, said.Len())
	}
}

// Two fields of one name could be read in two ways.
func TestForm(t *testing.T) {
	for body, code := range map[string]fault.Code{"a=1&b=2": "", "": "", "a=1&a=2": fault.RequestMalformed, "a=%zz": fault.RequestMalformed, "a=1;b=2": fault.RequestMalformed} {
		r := httptest.NewRequest("POST", "/?a=9&c=3", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		err := Form(httptest.NewRecorder(), r, 100)
		if (err == nil) != (code == "") || err != nil && !fault.Is(err, code) {
			t.Errorf("%q: %v", body, err)
		}
		if err == nil && (r.PostForm.Has("c") || r.PostForm.Get("a") != strings.TrimSuffix(strings.TrimPrefix(body, "a="), "&b=2")) {
			t.Errorf("%q: %v", body, r.PostForm)
		}
	}
}

// A page of another origin sends nothing by any method. A link on it that a person follows is no page's request.
func TestOtherOrigins(t *testing.T) {
	const origin, site = "Origin", "Sec-Fetch-Site"
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodDelete} {
		safe := method != http.MethodPost && method != http.MethodDelete
		for _, c := range []struct {
			header, value string
			passes        bool
		}{
			{origin, "https://evil.example", false}, {origin, "null", false}, {origin, "http://127.0.0.1:3000", false},
			{origin, "http://127.0.0.1", true}, {site, "same-origin", true}, {site, "none", true},
			{site, "cross-site", safe}, {site, "same-site", safe}, {"X-Other", "x", true},
		} {
			r := httptest.NewRequest(method, "http://127.0.0.1/", nil)
			r.Header.Set(c.header, c.value)
			passed := false
			answer := pass(r, func(http.ResponseWriter, *http.Request) { passed = true })
			if passed != c.passes || !passed && (answer.Code != http.StatusForbidden || r.Method != method) {
				t.Errorf("%s with %s: %s: %d", method, c.header, c.value, answer.Code)
			}
		}
	}
}

// space has room for so many bytes.
type space int

func (r *space) More(n int) error {
	if *r -= space(n); *r < 0 {
		return &fault.Error{Code: fault.LimitRate, Message: "full", Again: 7 * time.Second}
	}
	return nil
}

// unannounced hides the length of a body.
type unannounced struct{ io.Reader }

// A body that says its length has its room before it is read. Of one that doesn't, each piece is asked for first, and nothing is read once there is no more.
func TestBodyAsksForRoom(t *testing.T) {
	const size = 10 * piece
	for name, test := range map[string]struct {
		body io.Reader
		room space
		read int // at most
		err  bool
	}{
		"announced":                 {strings.NewReader(strings.Repeat(" ", size)), 0, size, false},
		"unannounced, with room":    {unannounced{strings.NewReader(strings.Repeat(" ", size))}, size + piece, size, false},
		"unannounced, without room": {unannounced{strings.NewReader(strings.Repeat(" ", size))}, 3 * piece, 3 * piece, true},
	} {
		read := &counting{Reader: test.body}
		r := httptest.NewRequest("POST", "http://127.0.0.1/", test.body)
		r.Body, r.ContentLength = io.NopCloser(read), -1
		if name == "announced" {
			r.ContentLength = size
		}
		r.Header.Set("Content-Type", "application/json")
		c := pass(r, func(w http.ResponseWriter, r *http.Request) {
			b, err := JSON(w, r, size, false, &test.room)
			if test.err != fault.Is(err, fault.LimitRate) || !test.err && (err != nil || len(b) != size) {
				t.Errorf("%s: %d bytes, %v", name, len(b), err)
			}
			if err != nil {
				(&Face{Log: slog.New(slog.DiscardHandler)}).Refuse(w, r, err)
			}
		})
		if read.n > test.read {
			t.Errorf("%s: %d bytes were read", name, read.n)
		}
		if again := c.Header().Get("Retry-After"); test.err && (c.Code != 429 || again != "7") {
			t.Errorf("%s: %d, Retry-After %q", name, c.Code, again)
		}
	}
}

type counting struct {
	io.Reader
	n int
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}

// Each piece of a body has a deadline of its own, and all of it one. What comes too late is said to be too slow.
func TestBodyThatTricklesIsCut(t *testing.T) {
	var deadlines []time.Time
	began := time.Now()
	c := &connection{ResponseRecorder: httptest.NewRecorder()}
	left := 3*piece + 1
	body := reader(func(b []byte) (int, error) {
		deadlines = append(deadlines, c.read)
		if left == 0 {
			return 0, os.ErrDeadlineExceeded
		}
		n := min(len(b), left)
		left -= n
		return n, nil
	})
	r := httptest.NewRequest("POST", "http://127.0.0.1/", io.NopCloser(body))
	r.ContentLength = 10 * piece
	r.Header.Set("Content-Type", "application/json")
	if _, err := JSON(c, r, 10*piece, false, nil); Status(err) != http.StatusRequestTimeout {
		t.Errorf("%v", err)
	}
	for i, d := range deadlines {
		if in := d.Sub(began); in < pieceTime-time.Second || in > bodyTime {
			t.Errorf("read %d has %s", i, in)
		}
	}
	if len(deadlines) < 4 || !deadlines[3].After(deadlines[0]) {
		t.Errorf("the deadlines are %v", deadlines)
	}
}

type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }
