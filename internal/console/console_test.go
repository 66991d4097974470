package console

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
)

// plain is the text of pieces, with marks in brackets.
func plain(pieces []piece) string {
	var b strings.Builder
	for _, p := range pieces {
		switch p.Kind {
		case "esc":
			b.WriteString("⟦" + p.Text + "⟧")
		case "note":
			b.WriteString("⟨" + p.Text + "⟩")
		case "odd":
			b.WriteString("⟪" + p.Text + "⟫")
		default:
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

func TestExactly(t *testing.T) {
	quote := func(s string) string { b, _ := json.Marshal(map[string]string{"k": s}); return string(b) }
	for _, c := range []struct{ raw, want string }{
		{`{}`, `{}`},
		{`[]`, `[]`},
		{`{"a":1,"b":[true,null,"x",{"c":-1.5e+30}]}`, "{\n  \"a\": 1,\n  \"b\": [\n    true,\n    null,\n    \"x\",\n    {\n      \"c\": -1.5e+30\n    }\n  ]\n}"},
		{`{"n":12345678901234567890}`, "{\n  \"n\": 12345678901234567890\n}"},
		{quote("a  b"), "{\n  \"k\": \"a  b\"\n}"},
		{quote("a   b"), "{\n  \"k\": \"a⟦[3 spaces]⟧b\"\n}"},
		{quote("   "), "{\n  \"k\": \"⟦[3 spaces]⟧\"\n}"},
		{quote("[3 spaces]"), "{\n  \"k\": \"[3 spaces]\"\n}"},
		{quote("\u202e\u202d"), "{\n  \"k\": \"⟦\\u202e\\u202d⟧\"\n}"},
		{quote(`\u202e`), "{\n  \"k\": \"\\\\u202e\"\n}"},
		{quote("\t\u00a0\x7f"), "{\n  \"k\": \"⟦\\t\\u00a0\\x7f⟧\"\n}"},
		{quote("one\ntwo\n"), "{\n  \"k\": \"one⟦\\n⟧\n    ⟦│⟧ two⟦\\n⟧\"\n}"},
		{quote("é ü 漢 🙂"), "{\n  \"k\": \"é ü 漢 🙂\"\n}"},
		{quote("e" + strings.Repeat("\u0301", 6)), "{\n  \"k\": \"e" + strings.Repeat("\u0301", 4) + "⟦\\u0301\\u0301⟧\"\n}"},
		{quote("to раypal.com, xn--a-\u202e"), "{\n  \"k\": \"to ⟪раypal⟫.com, ⟪xn--a-⟫⟦\\u202e⟧\"\n}"},
		{"{\"gοοgle\":1}", "{\n  \"⟪gοοgle⟫\": 1\n}"},
		{quote(strings.Repeat("x", 1234)), "{\n  \"k\": \"" + strings.Repeat("x", 1234) + "\"⟨ (1,234 characters)⟩\n}"},
		{"{\"\u202ek\":1}", "{\n  \"⟦\\u202e⟧k\": 1\n}"},
		{"no \x1b JSON", "\"no ⟦\\x1b⟧ JSON\""},
		{"{} {}", `"{} {}"`},
	} {
		if got := plain(exactly(json.RawMessage(c.raw))); got != c.want {
			t.Errorf("%.80q:\n%s\nwant\n%s", c.raw, got, c.want)
		}
	}
}

// TestExactlyIsBounded: neither depth nor marks make a page that a browser can't show, and still nothing is left out.
func TestExactlyIsBounded(t *testing.T) {
	for name, value := range map[string]string{
		"marks": strings.Repeat("a\u202e", 200_000), "lines": strings.Repeat("a\n", 200_000), "one mark": strings.Repeat("\u202e", 500_000), "spaces": strings.Repeat("a   ", 200_000),
		"odd": strings.Repeat("kмh ", 200_000), "odd and marks": strings.Repeat("kмh \u202e", 200_000),
	} {
		raw, _ := json.Marshal(value)
		pieces, size := exactly(raw), 0
		for _, p := range pieces {
			size += len(p.Text)
		}
		if said := slices.Contains(pieces, piece{"note", tooManyMarks}); said != (name != "one mark") {
			t.Errorf("%s: that not all is marked is said: %v", name, said)
		}
		if len(pieces) > 2*marksOfValue+linesOfText+10 || size > 20*len(value) {
			t.Errorf("%s: %d pieces, %d bytes of %d", name, len(pieces), size, len(value))
		}
		if n := strings.Count(plain(pieces), "\n"); n > linesOfText {
			t.Errorf("%s: %d lines", name, n)
		}
		if want := strings.Count(value, "\u202e"); strings.Count(plain(pieces), `\u202e`) != want {
			t.Errorf("%s: not every mark is there", name)
		}
	}
	deep := strings.Repeat(`[`, 60) + strings.Repeat(`]`, 60)
	if n := len(plain(exactly(json.RawMessage(deep)))); n > 60*2*(2*deepest+3) {
		t.Errorf("depth: %d bytes", n)
	}
}

// FuzzExactly: no two different values are shown alike.
func FuzzExactly(f *testing.F) {
	f.Add("a\nb", "a│ b")
	f.Add("[3 spaces]", "   ")
	f.Add(`\u202e`, "\u202e")
	f.Add("x\" (3 characters)", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, errA := json.Marshal(map[string]string{a: b})
		y, errB := json.Marshal(map[string]string{b: a})
		if errA != nil || errB != nil || string(x) == string(y) {
			return
		}
		p, q := exactly(x), exactly(y)
		if slices.Equal(p, q) {
			t.Errorf("%q and %q are shown alike", x, y)
		}
		for _, one := range p {
			for _, r := range one.Text {
				if r != '\n' && !display.Visible(r) {
					t.Errorf("%q: %U stands as it is", x, r)
				}
			}
		}
	})
}

func TestDifference(t *testing.T) {
	show := func(before, after string) string {
		var b strings.Builder
		for _, c := range difference(json.RawMessage(before), json.RawMessage(after)) {
			b.WriteString(map[string]string{"": " ", "del": "-", "ins": "+"}[c.Kind] + strings.TrimSpace(plain(c.Pieces)) + "\n")
		}
		return b.String()
	}
	for _, c := range []struct{ before, after, want string }{
		{`{"a":1}`, `{"a":1}`, " {\n \"a\": 1\n }\n"},
		{`{"a":1,"b":2}`, `{"a":1,"b":3}`, " {\n \"a\": 1,\n-\"b\": 2\n+\"b\": 3\n }\n"},
		{`{"a":1}`, `{"a":1,"b":{"c":[]}}`, " {\n-\"a\": 1\n+\"a\": 1,\n+\"b\": {\n+\"c\": []\n+}\n }\n"},
		{`{"t":"x"}`, `{"t":"\u202ex"}`, " {\n-\"t\": \"x\"\n+\"t\": \"⟦\\u202e⟧x\"\n }\n"},
		{`{"l":[1,2,3,4]}`, `{"l":[2,3,5,4]}`, " {\n \"l\": [\n-1,\n 2,\n 3,\n+5,\n 4\n ]\n }\n"},
	} {
		if got := show(c.before, c.after); got != c.want {
			t.Errorf("%s to %s:\n%s\nwant\n%s", c.before, c.after, got, c.want)
		}
	}
	long := func(n, from int) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprint(i*2+from))
		}
		parts[n/2] = "-1" // what they share is not looked for
		return `{"l":[` + strings.Join(parts, ",") + `]}`
	}
	lines := difference(json.RawMessage(long(5000, 0)), json.RawMessage(long(5000, 1))) // must not take for ever
	del, ins := 0, 0
	for _, c := range lines {
		switch c.Kind {
		case "del":
			del++
		case "ins":
			ins++
		}
	}
	if del != 5000 || ins != 5000 {
		t.Errorf("%d gone, %d new", del, ins)
	}
}

func TestEditable(t *testing.T) {
	raw := "{\"a\":\"x\u202ey\",\"b\":\"\U000e0041\u200b\",\"c\":\"é\\n\"}"
	got := editable(json.RawMessage(raw))
	if got != "{\n  \"a\": \"x\\u202ey\",\n  \"b\": \"\\udb40\\udc41\\u200b\",\n  \"c\": \"é\\n\"\n}" {
		t.Errorf("%q", got)
	}
	var before, after any
	if json.Unmarshal([]byte(raw), &before) != nil || json.Unmarshal([]byte(got), &after) != nil || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("it means something else")
	}
}

// listening is a console with nothing behind it but who may listen.
func listening(t *testing.T) (c *Console, server *httptest.Server, revoked *atomic.Bool, closing chan struct{}, signedIn func(person string) *http.Cookie) {
	revoked, closing = &atomic.Bool{}, make(chan struct{})
	c = New(Options{
		Log: slog.New(slog.DiscardHandler), Clock: time.Now, Gateway: &gateway.Gateway{}, Refused: func(gateway.Attempt, fault.Verdict) {}, Closing: closing,
		Authenticate: func(secret string) (identity.Principal, error) {
			if revoked.Load() {
				return identity.Principal{}, errors.New("revoked")
			}
			return identity.Principal{Kind: identity.Person, ID: strings.TrimPrefix(secret, "spt_person_"), Roles: []identity.Role{identity.Auditor}}, nil
		},
	})
	c.beat = 10 * time.Millisecond
	mux := http.NewServeMux()
	c.Register(mux.Handle)
	server = httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return c, server, revoked, closing, func(person string) *http.Cookie {
		t.Helper()
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/login", strings.NewReader("token=spt_person_"+person))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		mux.ServeHTTP(w, r)
		if w.Code != http.StatusSeeOther {
			t.Fatalf("sign in: %d %s", w.Code, w.Body)
		}
		return w.Result().Cookies()[0]
	}
}

func listen(t *testing.T, server *httptest.Server, cookie *http.Cookie, site ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(cookie)
	for _, s := range site {
		r.Header.Set("Sec-Fetch-Site", s)
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestStreamEnds: with the sign-in, though nothing changes, and with the gateway.
func TestStreamEnds(t *testing.T) {
	_, server, _, closing, signedIn := listening(t)
	first, second := listen(t, server, signedIn("ann")), listen(t, server, signedIn("ben"))
	lines := bufio.NewScanner(first.Body)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), ":") {
	}
	if lines.Text() != ": still here" {
		t.Fatalf("no sign of life: %q", lines.Text())
	}
	close(closing)
	if _, err := io.ReadAll(second.Body); err != nil {
		t.Errorf("at the end of the gateway: %v", err)
	}
}

// TestStreamEndsWithTheSignIn: and says so, with an event that makes the page ask and be sent to sign in.
func TestStreamEndsWithTheSignIn(t *testing.T) {
	_, server, revoked, _, signedIn := listening(t)
	third := listen(t, server, signedIn("cid"))
	revoked.Store(true)
	rest, err := io.ReadAll(third.Body)
	if err != nil || !strings.HasSuffix(string(rest), "event: all\ndata: 1\n\n") {
		t.Errorf("at the end of the sign-in: %q %v", rest, err)
	}
}

// TestStreamOfNobody: a page that was open when the gateway was started anew, and so forgot who is signed in, is told to ask again.
func TestStreamOfNobody(t *testing.T) {
	_, server, _, _, _ := listening(t)
	r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.AddCookie(&http.Cookie{Name: cookieName, Value: "of-another-start"})
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if history, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(history) != "event: all\ndata: 1\n\n" {
		t.Errorf("%d %q %v", resp.StatusCode, history, err)
	}
}

// TestStreamsAreBounded: per person and in all, and what ends makes room.
func TestStreamsAreBounded(t *testing.T) {
	c, server, _, closing, signedIn := listening(t)
	var open []*http.Response
	var ann *http.Cookie
	for i := range streamsOfPerson {
		if i%streamsOfSignIn == 0 {
			ann = signedIn("ann")
		}
		open = append(open, listen(t, server, ann))
	}
	if resp := listen(t, server, signedIn("ann")); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one too many of a person: %d", resp.StatusCode)
	}
	if resp := listen(t, server, signedIn("ben")); resp.StatusCode != http.StatusOK {
		t.Errorf("another person: %d", resp.StatusCode)
	}
	c.mu.Lock()
	c.streams["others"] = maxStreams - streamsOfPerson - 1
	c.mu.Unlock()
	if resp := listen(t, server, signedIn("cid")); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one too many in all: %d", resp.StatusCode)
	}
	close(closing)
	for _, resp := range open {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	server.Close() // waits for the handlers
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams["ann"] != 0 || c.streams["ben"] != 0 || len(c.pages) != 0 {
		t.Errorf("still counted: %v %v", c.streams, c.pages)
	}
}

// TestNewestPagesListen: of the pages of one sign-in the newest are told of changes, so that a browser's connections are not used up.
func TestNewestPagesListen(t *testing.T) {
	_, server, _, _, signedIn := listening(t)
	ann := signedIn("ann")
	other := listen(t, server, signedIn("ann"))
	var open []*http.Response
	for range streamsOfSignIn + 2 {
		open = append(open, listen(t, server, ann))
	}
	for i, resp := range open[:2] {
		if rest, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(rest), "retry: 60000\n\n") {
			t.Errorf("%d ends with %.60q %v", i, rest, err)
		}
	}
	for i, resp := range append(open[2:], other) {
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), ":") {
		}
		if lines.Text() != ": still here" {
			t.Errorf("%d has ended: %q", i, lines.Text())
		}
	}
}

// TestStreamOfElsewhere: a page of another site or port neither listens nor ends the streams of those that do.
func TestStreamOfElsewhere(t *testing.T) {
	_, server, _, _, signedIn := listening(t)
	ann := signedIn("ann")
	mine := listen(t, server, ann)
	for site, want := range map[string]int{"same-site": 403, "cross-site": 403, "x": 403, "same-origin": 200, "none": 200} {
		for range streamsOfSignIn / 2 {
			if resp := listen(t, server, ann, site); resp.StatusCode != want {
				t.Errorf("%s: %d", site, resp.StatusCode)
			}
			if want == 200 {
				break
			}
		}
	}
	lines := bufio.NewScanner(mine.Body)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), ":") {
	}
	if lines.Text() != ": still here" {
		t.Errorf("it has ended: %q", lines.Text())
	}
}

// TestSignInsOfPerson: who signs in often ends their own oldest sign-in and nobody else's.
func TestSignInsOfPerson(t *testing.T) {
	c, _, _, _, signedIn := listening(t)
	in := func(cookie *http.Cookie) bool {
		r := httptest.NewRequest("GET", "/", nil)
		r.AddCookie(cookie)
		_, ok := c.Principal(r)
		return ok
	}
	now := time.Now()
	c.o.Clock = func() time.Time { now = now.Add(time.Millisecond); return now }
	ben := signedIn("ben")
	var anns []*http.Cookie
	for range ownSignIns + 1 {
		anns = append(anns, signedIn("ann"))
	}
	if in(anns[0]) || !in(anns[1]) || !in(anns[ownSignIns]) || !in(ben) {
		t.Error("another one than ann's oldest has ended")
	}
	for range maxSignIns {
		signedIn("ann")
	}
	if !in(ben) || len(c.signIns) != ownSignIns+1 {
		t.Errorf("%d sign-ins, or ben's is gone", len(c.signIns))
	}
}

// TestOneCookie: of two cookies none counts, and behind https the name is one that no other host can set.
func TestOneCookie(t *testing.T) {
	c, _, _, _, signedIn := listening(t)
	ann, ben := signedIn("ann"), signedIn("ben")
	r := httptest.NewRequest("GET", "/", nil)
	r.AddCookie(ann)
	if _, ok := c.Principal(r); !ok || ann.Name != "sallyport_console" {
		t.Fatalf("%s: %v", ann.Name, ok)
	}
	r.AddCookie(ben)
	if p, ok := c.Principal(r); ok {
		t.Errorf("with two cookies it is %s", p.ID)
	}
	c.o.Public = "https://sallyport.example"
	safe := signedIn("ann")
	if safe.Name != "__Host-sallyport_console" || !safe.Secure || safe.Path != "/" || safe.Domain != "" {
		t.Errorf("%+v", safe)
	}
	r = httptest.NewRequest("GET", "/", nil)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: safe.Value})
	if _, ok := c.Principal(r); ok {
		t.Error("the other name opens it too")
	}
}

// TestSignInsAreBounded: sign-ins and links take no more memory than they may, whoever makes them.
func TestSignInsAreBounded(t *testing.T) {
	c, _, _, _, signedIn := listening(t)
	for i := range maxSignIns + 50 {
		signedIn(fmt.Sprint("p", i))
	}
	for i := range maxLinks + 50 {
		if _, _, err := c.Link(fmt.Sprint("spt_person_q", i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		_, _, _ = c.Link("spt_person_flood")
	}
	own := 0
	for _, l := range c.links {
		if l.person == "flood" {
			own++
		}
	}
	if len(c.signIns) > maxSignIns || len(c.links) > maxLinks || own > linksOfPerson {
		t.Errorf("%d sign-ins, %d links, %d of one person", len(c.signIns), len(c.links), own)
	}
}

// TestLinkRace: of many presses at once one signs in.
func TestLinkRace(t *testing.T) {
	c, server, _, _, _ := listening(t)
	path, _, err := c.Link("spt_person_ann")
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	var in atomic.Int32
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			resp, err := client.Post(server.URL+path, "application/x-www-form-urlencoded", nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode == http.StatusSeeOther {
				in.Add(1)
			}
		})
	}
	wait.Wait()
	if in.Load() != 1 {
		t.Errorf("%d are signed in", in.Load())
	}
}

func TestLength(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0 s", 59 * time.Second: "59 s", time.Minute: "1 min", 119 * time.Minute: "1 h", 48 * time.Hour: "2 d"} {
		if got := length(d); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}
