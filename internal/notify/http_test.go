package notify

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const testSecret = "0123456789abcdef-secret"

// hook is a webhook to a server of the test. The server's goroutines are outside of any bubble.
func hook(t testing.TB, url string) *Channel {
	t.Helper()
	c, err := ParseChannel(Config{Kind: "webhook", URL: url, Secret: testSecret})
	must(t, err)
	return c
}

func chatroom(t testing.TB, url string) *Channel {
	t.Helper()
	c, err := ParseChannel(Config{Kind: "slack", URL: url})
	must(t, err)
	return c
}

func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/hook"
}

var sample = letter{
	Event: Approval, Title: "billing-bot wants to run bank.transfer", Text: "first use of a destination", Risk: "HIGH",
	Link: "https://gate.example/approvals/appr_1", At: time.Unix(1782000000, 0).UTC(), Fields: []Field{{"agent", "billing-bot"}, {"amount", "1250 EUR"}},
}

func failed(t *testing.T, err error) *failure {
	t.Helper()
	var f *failure
	if !errors.As(err, &f) {
		t.Fatalf("not a failure: %v", err)
	}
	return f
}

func TestWebhook(t *testing.T) {
	var got *http.Request
	var body []byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
	})
	must(t, hook(t, url).sender.send(t.Context(), "ntf_1", sample))
	if got.Method != http.MethodPost || got.URL.Path != "/hook" || got.Header.Get("Content-Type") != "application/json" || got.Header.Get("Sallyport-Delivery") != "ntf_1" {
		t.Errorf("%+v", got)
	}
	if want := `{"id":"ntf_1","event":"approval","title":"billing-bot wants to run bank.transfer","text":"first use of a destination","risk":"HIGH","link":"https://gate.example/approvals/appr_1","at":"2026-06-21T00:00:00Z","fields":[{"name":"agent","value":"billing-bot"},{"name":"amount","value":"1250 EUR"}]}`; string(body) != want {
		t.Errorf("%s", body)
	}
	signature := got.Header.Get("Sallyport-Signature")
	if !signedBy([]byte(testSecret), signature, body, time.Now()) {
		t.Errorf("signature %q is not of this", signature)
	}
	if signedBy([]byte(testSecret+"x"), signature, body, time.Now()) || signedBy([]byte(testSecret), signature, append(body, 'x'), time.Now()) || signedBy([]byte(testSecret), signature, body, time.Now().Add(time.Hour)) {
		t.Error("the signature is of everything")
	}
	unsigned, err := ParseChannel(Config{Kind: "webhook", URL: url})
	must(t, err)
	must(t, unsigned.sender.send(t.Context(), "ntf_2", sample))
	if said, ok := got.Header["Sallyport-Signature"]; ok || got.Header.Get("Sallyport-Delivery") != "ntf_2" {
		t.Errorf("without a secret: %q", said)
	}
}

func TestAnswers(t *testing.T) {
	inAWhile := func() string { return time.Now().Add(100 * time.Second).UTC().Format(http.TimeFormat) }
	for _, test := range []struct {
		status  int
		after   string
		ok      bool
		refused bool
		final   bool
		wait    time.Duration // about
	}{
		{status: 200, ok: true}, {status: 204, ok: true}, {status: 299, ok: true},
		{status: 301, refused: true}, {status: 302, refused: true}, {status: 307, refused: true}, {status: 304, refused: true},
		{status: 400, refused: true}, {status: 401, refused: true}, {status: 403, refused: true}, {status: 404, refused: true},
		{status: 410, refused: true, final: true},
		{status: 408}, {status: 425}, {status: 429}, {status: 500}, {status: 502}, {status: 503}, {status: 599},
		{status: 429, after: "120", wait: 2 * time.Minute},
		{status: 503, after: "120", wait: 2 * time.Minute},
		{status: 429, after: inAWhile(), wait: 100 * time.Second},
		{status: 429, after: "Sun, 06 Nov 1994 08:49:37 GMT"},
		{status: 429, after: "18446744073709551615", wait: longestAfter},
		{status: 429, after: "99999999999999999999"}, {status: 429, after: "-5"}, {status: 429, after: "soon"},
		{status: 400, after: "120", refused: true},
	} {
		var elsewhere atomic.Int32
		away := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", away)
			if test.after != "" {
				w.Header().Set("Retry-After", test.after)
			}
			w.WriteHeader(test.status)
		})
		for _, c := range []*Channel{hook(t, url), chatroom(t, url)} {
			err := c.sender.send(t.Context(), "ntf_1", sample)
			if elsewhere.Load() != 0 {
				t.Fatalf("%d: the redirect was followed", test.status)
			}
			if test.ok {
				must(t, err)
				continue
			}
			f := failed(t, err)
			if f.refused != test.refused || f.final != test.final || (f.after-test.wait).Abs() > 2*time.Second {
				t.Errorf("%d %s: %+v", test.status, test.after, f)
			}
			if redirect := test.status/100 == 3; strings.Contains(f.why, "redirect") != redirect {
				t.Errorf("%d: %s", test.status, f.why)
			}
		}
	}
}

// raw is a server that answers a request with bytes, and then closes, or with stay does nothing until it is told to.
func raw(t testing.TB, answer string, stay <-chan struct{}) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				io.WriteString(c, answer)
				if stay != nil {
					<-stay
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/services/T0/B0/hush-hush"
}

func TestBadServers(t *testing.T) {
	stay := make(chan struct{})
	t.Cleanup(func() { close(stay) })
	for name, test := range map[string]struct {
		answer string
		stay   chan struct{}
		ok     bool
		words  string
	}{
		"closes in its body":      {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf", ok: true},
		"stalls in its body":      {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf", stay: stay, ok: true},
		"has an endless body":     {answer: "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 1<<20), stay: stay, ok: true},
		"closes at once":          {answer: "", words: "EOF"},
		"closes in its header":    {answer: "HTTP/1.1 200 O", words: "EOF"},
		"stalls":                  {answer: "", stay: stay, words: "no answer within 10s"},
		"stalls in its header":    {answer: "HTTP/1.1 200 OK\r\nX: ", stay: stay, words: "no answer within 10s"},
		"talks without end":       {answer: "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 200), words: "headers exceeded"},
		"is not one":              {answer: "\x1b[2J\u202e\r\n\r\n", words: "malformed HTTP"},
		"is not one, at length":   {answer: strings.Repeat("x", 5000) + "\r\n\r\n", words: "malformed HTTP"},
		"speaks of things before": {answer: strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", 1000)+"\r\n\r\n", 500), words: "headers exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			err := chatroom(t, raw(t, test.answer, test.stay)).sender.send(ctx, "ntf_1", sample)
			if test.ok {
				must(t, err)
				return
			}
			f := failed(t, err)
			if f.refused || f.final || f.after != 0 {
				t.Errorf("%+v", f)
			}
			if strings.Contains(f.why, "hush") || strings.ContainsAny(f.why, "\x1b\n") || len(f.why) > 250 {
				t.Errorf("it says %q", f.why)
			}
			if !strings.Contains(f.why, test.words) {
				t.Errorf("%q is not in %q", test.words, f.why)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		l.Close()
		if f := failed(t, chatroom(t, "http://"+l.Addr().String()+"/hush").sender.send(t.Context(), "ntf_1", sample)); strings.Contains(f.why, "hush") || !strings.Contains(f.why, "refused") {
			t.Errorf("%q", f.why)
		}
	})
}

func TestTLSIsVerified(t *testing.T) {
	heard := 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard++ }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	if f := failed(t, hook(t, s.URL).sender.send(t.Context(), "ntf_1", sample)); heard != 0 || f.refused || !strings.Contains(f.why, "certificate") {
		t.Errorf("heard %d, %q", heard, f.why)
	}
	known := &webhook{newPost(s.URL, false, s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs), []byte(testSecret)}
	must(t, known.send(t.Context(), "ntf_1", sample))
	if heard != 1 {
		t.Error("nothing was heard")
	}
}

func TestNoProxyOfTheEnvironment(t *testing.T) {
	p := hook(t, "https://hooks.example/x").sender.(*webhook).transport
	if p.Proxy != nil {
		t.Error("a proxy is asked for")
	}
}

// A name for this machine that leads elsewhere is not dialled without TLS.
func TestPlainStaysOnThisMachine(t *testing.T) {
	for address, ok := range map[string]bool{"127.0.0.1:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true, "10.0.0.1:80": false, "[2001:db8::1]:80": false, "0.0.0.0:80": false, "x": false} {
		if err := dialer(true).Control("tcp", address, nil); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
	if dialer(false).Control != nil {
		t.Error("TLS is kept on this machine too")
	}
	for kind, c := range map[string]Config{
		"webhook": {Kind: "webhook", URL: "http://localhost:1/x", Secret: testSecret}, "slack": {Kind: "slack", URL: "http://localhost:1/x"},
	} {
		ch, err := ParseChannel(c)
		must(t, err)
		var p *http.Transport
		switch s := ch.sender.(type) {
		case *webhook:
			p = s.transport
		case *slack:
			p = s.transport
		}
		if _, err := p.DialContext(t.Context(), "tcp", "192.0.2.1:80"); err == nil || !strings.Contains(err.Error(), "leads away") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestChatEscapes(t *testing.T) {
	n := notifier(t, newMemory())
	for in, want := range map[string]string{
		"plain":                        "plain",
		"<!channel> <!here>":           "&lt;!channel&gt; &lt;!here&gt;",
		"<@U012AB3CD>":                 "&lt;＠U012AB3CD&gt;",
		"<https://evil.example|Open>":  "&lt;https[:]//evil.example|Open&gt;",
		"&lt;!channel&gt;":             "&amp;lt;!channel&amp;gt;",
		"@here @channel @all":          "＠here ＠channel ＠all",
		"(@everyone)":                  "(＠everyone)",
		"mail to bob@example.com":      "mail to bob@example.com",
		"[Open](https://evil.example)": "[Open] (https[:]//evil.example)",
		"a\n<!channel>":                `a\n&lt;!channel&gt;`,
		"\x1b[31m\u202e":               `\x1b[31m\u202e`,
	} {
		if got := chat(n.plain(in, maxText)); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
	}
}

func TestSlack(t *testing.T) {
	var body map[string]any
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body = nil
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
	})
	l := sample
	l.Title, l.Fields = "<!channel>", []Field{{"<!here>", "<@U1>"}}
	must(t, chatroom(t, url).sender.send(t.Context(), "ntf_1", l))
	if want := "[HIGH] &lt;!channel&gt;\nfirst use of a destination\n&lt;!here&gt;: &lt;＠U1&gt;\n<https://gate.example/approvals/appr_1>"; body["text"] != want {
		t.Errorf("%q", body["text"])
	}
	if body["mrkdwn"] != false || body["link_names"] != false || body["unfurl_links"] != false || len(body) != 5 {
		t.Errorf("%v", body)
	}
}

// The whole way over a real server that fails in several ways first: one message, told once, with one id.
func TestServerComesBack(t *testing.T) {
	var mu sync.Mutex
	var ids, signatures []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		ids = append(ids, r.Header.Get("Sallyport-Delivery"))
		signatures = append(signatures, r.Header.Get("Sallyport-Signature"))
		n := len(ids)
		mu.Unlock()
		switch n {
		case 1:
			w.WriteHeader(500)
		case 2:
			panic(http.ErrAbortHandler)
		case 3:
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(429)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := notifier(t, newMemory(), hook(t, url))
		running(t, n)
		must(t, n.Send(t.Context(), ask(1)))
		time.Sleep(9 * time.Minute)
		if s := status(t, n); s.Waiting != 1 || s.LastError != "the receiver answered with HTTP status 429" || s.Target != "127.0.0.1" {
			t.Errorf("%+v", s)
		}
		time.Sleep(2 * time.Minute)
		if s := status(t, n); s.Waiting != 0 || s.Sent != 1 || s.Failed != 0 {
			t.Errorf("%+v", s)
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if len(ids) != 4 || len(slices.Compact(ids)) != 1 || signatures[0] == signatures[3] {
		t.Errorf("%q %q", ids, signatures)
	}
}
