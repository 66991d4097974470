package web

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sallyport.example/internal/fault"
)

// bounded is a server with at most that many connections. A request's credential is its Authorization; one to /hold is answered when let is closed.
func bounded(t *testing.T, most int) (at string, l *Connections, let chan struct{}) {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, let = Bound(plain, most, slog.New(slog.DiscardHandler)), make(chan struct{})
	f := &Face{Log: slog.New(slog.DiscardHandler), NewID: func() string { return "req_1" }}
	server := NewServer(f.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who := r.Header.Get("Authorization"); who != "" {
			if err := Claim(r, who); err != nil {
				f.Refuse(w, r, err)
				return
			}
		}
		if r.URL.Path == "/hold" {
			_ = http.NewResponseController(w).Flush() // the client sees that it is being answered
			<-let
		}
	})), slog.New(slog.DiscardHandler))
	server.ConnContext = ConnContext
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-ended })
	return plain.Addr().String(), l, let
}

// raw is a client's connection.
type raw struct {
	net.Conn
	in   *bufio.Reader
	t    *testing.T
	held *http.Response // of /hold
}

func dial(t *testing.T, at string) *raw {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &raw{Conn: c, in: bufio.NewReader(c), t: t}
}

// asks sends a request and returns the status; 0: the connection is closed.
func (c *raw) asks(path, credential string) int {
	c.t.Helper()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: %s\r\n\r\n", path, credential)
	answer, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0
	}
	if path == "/hold" {
		c.held = answer
		return answer.StatusCode
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return 0
	}
	return answer.StatusCode
}

func (c *raw) closed() bool {
	c.t.Helper()
	_, err := c.in.ReadByte()
	return err != nil
}

// Who holds as many connections as there are keeps nobody out, whether it has a credential or none, and loses none to others while it has its share.
func TestManyConnectionsKeepNobodyOut(t *testing.T) {
	const most = 48
	for name, credential := range map[string]string{"without a credential": "", "with one": "flood"} {
		t.Run(name, func(t *testing.T) {
			at, _, _ := bounded(t, most)
			calm := []*raw{dial(t, at), dial(t, at)}
			for _, c := range calm {
				if got := c.asks("/", "calm"); got != 200 {
					t.Fatal(got)
				}
			}
			for range 3 * most {
				c := dial(t, at)
				if credential != "" {
					if got := c.asks("/", credential); got != 200 {
						t.Fatal(got)
					}
				}
			}
			for _, c := range calm {
				if got := c.asks("/", "calm"); got != 200 {
					t.Errorf("an idle connection of somebody else: %d", got)
				}
			}
			if got := dial(t, at).asks("/", "newcomer"); got != 200 {
				t.Errorf("a newcomer: %d", got)
			}
		})
	}
}

// One credential has a quarter. Its own idle connections give way; where all are busy it is told, and the others are served.
func TestConnectionsOfOneCredential(t *testing.T) {
	const most, each = 64, 16
	at, l, let := bounded(t, most)
	if l.each != each {
		t.Fatal(l.each)
	}
	first := dial(t, at)
	if got := first.asks("/", "one"); got != 200 {
		t.Fatal(got)
	}
	for range each {
		if got := dial(t, at).asks("/hold", "one"); got != 200 {
			t.Fatal(got)
		}
	}
	if !first.closed() {
		t.Error("the idle one did not give way")
	}
	refused := dial(t, at)
	if got := refused.asks("/", "one"); got != fault.LimitRate.HTTPStatus() {
		t.Errorf("one more: %d", got)
	}
	if got := dial(t, at).asks("/", "another"); got != 200 {
		t.Errorf("another: %d", got)
	}
	close(let)
}

// Where all are busy a new connection is told so, and the busy ones go on.
func TestAllConnectionsAreBusy(t *testing.T) {
	const most = 4
	at, _, let := bounded(t, most)
	var busy []*raw
	for i := range most {
		c := dial(t, at)
		if got := c.asks("/hold", fmt.Sprint(i)); got != 200 {
			t.Fatal(got)
		}
		busy = append(busy, c)
	}
	full := dial(t, at)
	answer, err := http.ReadResponse(full.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 503 || !bytes.Contains(body, []byte(`"code":"limit.rate"`)) || !full.closed() {
		t.Errorf("%d %s %v", answer.StatusCode, body, err)
	}
	close(let)
	for _, c := range busy {
		if _, err := io.Copy(io.Discard, c.held.Body); err != nil {
			t.Errorf("a busy one was cut: %v", err)
		}
	}
}

// pipeListener gives connections that a test made.
type pipeListener struct{ net.Listener }

func (pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// Whatever connections do, in whatever order: the counts are those of the connections that are there, and the bounds hold.
func TestCountsOfConnections(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 30).Draw(t, "most")
		l := Bound(pipeListener{}, most, slog.New(slog.DiscardHandler))
		var all []*accepted
		at := map[*accepted]func(){}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			var c *accepted
			if len(all) > 0 {
				c = all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
			}
			switch what := rapid.IntRange(0, 4).Draw(t, "what"); {
			case what == 0 || c == nil:
				one, _ := net.Pipe()
				c := &accepted{Conn: one, of: l}
				if _, taken := l.add(c); taken {
					all = append(all, c)
				}
			case what == 1 && at[c] == nil:
				at[c] = busy(ConnContext(t.Context(), c))
			case what == 2 && at[c] != nil:
				at[c]()
				delete(at, c)
			case what == 3:
				credential := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "credential"))
				others := 0
				for _, o := range all {
					if !o.gone && o != c && o.holder.name == credential {
						others++
					}
				}
				_, err := c.claim(credential)
				if err != nil && others < l.each {
					t.Fatalf("refused with %d of %d: %v", others, l.each, err)
				}
			case what == 4:
				_ = c.Close()
			}
			open, of, idle := 0, map[string]int{}, 0
			for _, c := range all {
				if c.gone {
					continue
				}
				open++
				if of[c.holder.name]++; c.at != nil {
					idle++
				}
				if (c.at == nil) != (at[c] != nil) {
					t.Fatal("idle and busy at once, or neither")
				}
			}
			for name, h := range l.holders {
				if idle -= h.idle.Len(); h.open != of[name] || name != "" && h.open > l.each {
					t.Fatalf("%q: %d, and %d are there; most %d", name, h.open, of[name], l.each)
				}
			}
			if open != l.open || open > most || len(of) != len(l.holders) || idle != 0 {
				t.Fatalf("%d open, %d there, most %d; %d holders of %d; %d idle too many", l.open, open, most, len(l.holders), len(of), idle)
			}
		}
	})
}

// What is left of the descriptors is enough for the rest, whatever the limit is.
func TestRoom(t *testing.T) {
	for limit, want := range map[uint64][2]int{0: {4, 4}, 32: {12, 4}, 64: {24, 4}, 256: {96, 16}, 1024: {384, 64}, 20_000: {4096, 512}, 1 << 30: {4096, 512}, ^uint64(0): {4096, 512}} {
		if agents, people := room(limit); [2]int{agents, people} != want {
			t.Errorf("%d: %d and %d, want %v", limit, agents, people, want)
		}
	}
	if agents, people := Room(); agents < 4 || people < 4 {
		t.Errorf("%d %d", agents, people)
	}
}

func TestTooMany(t *testing.T) {
	r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(tooMany)), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || !bytes.HasSuffix(body, []byte("}   \n")) {
		t.Errorf("%q %v", body, err)
	}
}
