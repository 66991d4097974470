package notify

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"math/big"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// post office is a mail server: EHLO, STARTTLS, AUTH PLAIN (never without TLS), MAIL, RCPT, DATA.
type office struct {
	addr     string
	cert     tls.Certificate
	roots    *x509.CertPool
	implicit bool
	noTLS    bool              // offers no STARTTLS
	answers  map[string]string // what it says instead, to a line that begins so; "-" closes, "…" says nothing
	user     string            // who may send; "": anybody
	password string

	mu    sync.Mutex
	plain []string // lines that came without TLS
	mails []received
}

type received struct {
	from string
	to   []string
	text string
	tls  bool
}

func open(t testing.TB, o *office) *office {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"mail.example"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	o.cert, o.roots = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, x509.NewCertPool()
	o.roots.AddCert(leaf)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	o.addr = l.Addr().String()
	over := make(chan struct{})
	var all sync.WaitGroup
	t.Cleanup(func() { close(over); l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { defer c.Close(); o.serve(c, over) })
		}
	})
	return o
}

func (o *office) serve(c net.Conn, over <-chan struct{}) {
	settings := &tls.Config{Certificates: []tls.Certificate{o.cert}}
	secure := o.implicit
	if secure {
		c = tls.Server(c, settings)
	}
	in := bufio.NewReader(c)
	// answer says what it is told to say to such a line, and whether it was told.
	answer := func(line string) (done, end bool) {
		for begin, say := range o.answers {
			if strings.HasPrefix(line, begin) {
				switch say {
				case "-":
					return true, true
				case "…":
					<-over
					return true, true
				}
				_, err := io.WriteString(c, say)
				return true, err != nil
			}
		}
		return false, false
	}
	if done, end := answer("HELLO"); end {
		return
	} else if !done {
		io.WriteString(c, "220 mail.example\r\n")
	}
	var m received
	known := o.user == ""
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		if !secure {
			o.mu.Lock()
			o.plain = append(o.plain, line)
			o.mu.Unlock()
		}
		if done, end := answer(line); end {
			return
		} else if done {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "EHLO":
			io.WriteString(c, "250-mail.example\r\n")
			if !secure && !o.noTLS {
				io.WriteString(c, "250-STARTTLS\r\n")
			}
			if secure && o.user != "" || o.noTLS {
				io.WriteString(c, "250-AUTH PLAIN\r\n")
			}
			io.WriteString(c, "250 8BITMIME\r\n")
		case "STARTTLS":
			// What is said before the handshake by who is on the way must not count as said after it.
			io.WriteString(c, "220 go on\r\n")
			s := tls.Server(c, settings)
			if s.Handshake() != nil {
				return
			}
			c, in, secure = s, bufio.NewReader(s), true
		case "AUTH":
			cred, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			if known = secure && string(cred) == "\x00"+o.user+"\x00"+o.password; known {
				io.WriteString(c, "235 known\r\n")
			} else {
				io.WriteString(c, "535 no\r\n")
			}
		case "MAIL":
			if !known {
				io.WriteString(c, "530 who are you\r\n")
				continue
			}
			m = received{from: rest, tls: secure}
			io.WriteString(c, "250 fine\r\n")
		case "RCPT":
			m.to = append(m.to, rest)
			io.WriteString(c, "250 fine\r\n")
		case "DATA":
			io.WriteString(c, "354 go on\r\n")
			var text bytes.Buffer
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				text.WriteString(strings.TrimPrefix(line, "."))
			}
			m.text = text.String()
			if done, end := answer("."); end {
				return
			} else if done {
				continue
			}
			o.mu.Lock()
			o.mails = append(o.mails, m)
			o.mu.Unlock()
			io.WriteString(c, "250 taken\r\n")
		case "QUIT":
			io.WriteString(c, "221 bye\r\n")
			return
		default:
			io.WriteString(c, "500 what?\r\n")
		}
	}
}

// to is a mailer to the office under the name that its certificate has.
func (o *office) to(p protection, to ...string) *mailer {
	if len(to) == 0 {
		to = []string{"ann@example.com"}
	}
	m := &mailer{addr: o.addr, host: "mail.example", protection: p, from: &mail.Address{Name: "Sallyport", Address: "gate@corp.example"}, to: to, roots: o.roots}
	if p == ownMachine {
		m.host = "127.0.0.1"
	}
	if o.user != "" {
		m.username, m.password = o.user, o.password
	}
	return m
}

func TestMail(t *testing.T) {
	for name, test := range map[string]struct {
		office     *office
		protection protection
	}{
		"STARTTLS":             {&office{}, startTLS},
		"STARTTLS, an account": {&office{user: "gate", password: "pässword\r\nx"}, startTLS},
		"TLS":                  {&office{implicit: true}, implicitTLS},
		"TLS, an account":      {&office{implicit: true, user: "gate", password: "p"}, implicitTLS},
		"this machine":         {&office{noTLS: true}, ownMachine},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, test.office)
			must(t, o.to(test.protection, "ann@example.com", "bob@example.com").send(t.Context(), "ntf_1", sample))
			if len(o.mails) != 1 {
				t.Fatalf("%d mails", len(o.mails))
			}
			m := o.mails[0]
			if m.tls != (test.protection != ownMachine) || !strings.HasPrefix(m.from, "FROM:<gate@corp.example>") || !slices.Equal(m.to, []string{"TO:<ann@example.com>", "TO:<bob@example.com>"}) {
				t.Errorf("%+v", m)
			}
			if test.protection == startTLS && (len(o.plain) != 2 || !strings.HasPrefix(o.plain[0], "EHLO [127.0.0.1]") || o.plain[1] != "STARTTLS") {
				t.Errorf("said in the clear: %q", o.plain)
			}
			want := "From: \"Sallyport\" <gate@corp.example>\r\nTo: ann@example.com,\r\n bob@example.com\r\nSubject: [HIGH] billing-bot wants to run bank.transfer\r\n" +
				"Date: Sun, 21 Jun 2026 00:00:00 +0000\r\nMessage-ID: <ntf_1@corp.example>\r\nList-Id: <sallyport.corp.example>\r\nAuto-Submitted: auto-generated\r\n" +
				"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n" +
				"[HIGH] billing-bot wants to run bank.transfer\r\nfirst use of a destination\r\nagent: billing-bot\r\namount: 1250 EUR\r\n\r\nhttps://gate.example/approvals/appr_1\r\n"
			if m.text != want {
				t.Errorf("%s", m.text)
			}
		})
	}
}

func TestMailNeedsTLS(t *testing.T) {
	o := open(t, &office{noTLS: true, user: "gate", password: "hush"})
	if f := failed(t, o.to(startTLS).send(t.Context(), "ntf_1", sample)); f.refused || !strings.Contains(f.why, "STARTTLS") {
		t.Errorf("%+v", f)
	}
	if len(o.plain) > 1 || len(o.mails) != 0 {
		t.Errorf("it went on: %q", o.plain)
	}
	// a certificate that no authority signed, or of another name.
	for what, change := range map[string]func(*mailer){
		"unknown": func(m *mailer) { m.roots = nil }, "another's": func(m *mailer) { m.host = "other.example" },
	} {
		for _, p := range []protection{startTLS, implicitTLS} {
			o := open(t, &office{implicit: p == implicitTLS, user: "gate", password: "hush"})
			m := o.to(p)
			change(m)
			if f := failed(t, m.send(t.Context(), "ntf_1", sample)); f.refused || !strings.Contains(f.why, "certificate") || len(o.mails) != 0 || len(o.plain) > 2 {
				t.Errorf("%s: %+v", what, f)
			}
		}
	}
	// A name for this machine that leads elsewhere.
	m := open(t, &office{noTLS: true}).to(ownMachine)
	m.addr = "192.0.2.1:25"
	if f := failed(t, m.send(t.Context(), "ntf_1", sample)); !strings.Contains(f.why, "leads away") {
		t.Errorf("%+v", f)
	}
	// A password is not said without TLS to a server elsewhere, even if it were asked to.
	o = open(t, &office{noTLS: true, user: "gate", password: "hush"})
	m = o.to(ownMachine)
	m.host = "mail.example"
	if f := failed(t, m.send(t.Context(), "ntf_1", sample)); !strings.Contains(f.why, "unencrypted") {
		t.Errorf("%+v", f)
	}
	if said := strings.Join(o.plain, " "); strings.Contains(said, "AUTH") {
		t.Errorf("said: %s", said)
	}
}

// What somebody on the way puts behind the answer to STARTTLS is not taken for an answer of the server.
func TestNothingIsPutBeforeTLS(t *testing.T) {
	o := open(t, &office{answers: map[string]string{"STARTTLS": "220 go on\r\n250 a lie\r\n250 another\r\n"}})
	failed(t, o.to(startTLS).send(t.Context(), "ntf_1", sample))
	if len(o.mails) != 0 {
		t.Error("it was sent")
	}
}

func TestMailFailures(t *testing.T) {
	for name, test := range map[string]struct {
		say, answer string
		refused     bool
		words       string
	}{
		"says no at once":       {"HELLO", "421 busy\r\n", false, "busy"},
		"says nothing":          {"HELLO", "…", false, "no answer within"},
		"closes":                {"HELLO", "-", false, "EOF"},
		"is not one":            {"HELLO", "\x1b[2Jhello\u202e\r\n", false, `\x1b[2J`},
		"talks without end":     {"HELLO", strings.Repeat("220-hello\r\n", 10000), false, "talks too much"},
		"has an endless line":   {"EHLO", "250-" + strings.Repeat("x", 100000), false, "talks too much"},
		"stalls at EHLO":        {"EHLO", "…", false, "no answer within"},
		"stalls at STARTTLS":    {"STARTTLS", "…", false, "no answer within"},
		"refuses STARTTLS":      {"STARTTLS", "454 not now\r\n", false, "not now"},
		"breaks the handshake":  {"STARTTLS", "220 go on\r\n-", false, ""},
		"refuses the sender":    {"MAIL", "550 spammer\r\n", false, "spammer"},
		"greylists":             {"RCPT", "451 later\r\n", false, "later"},
		"knows no recipient":    {"RCPT", "550 unknown\r\n", true, "unknown"},
		"refuses data":          {"DATA", "554 no\r\n", true, "no"},
		"refuses the text":      {".", "554 no\u202ethanks\r\n", true, `no\u202ethanks`},
		"refuses at length":     {".", "554 " + strings.Repeat("no ", 1000) + "\r\n", true, "no no"},
		"is full":               {".", "452 full\r\n", false, "full"},
		"closes before it's in": {".", "-", false, "EOF"},
		"stalls before it's in": {".", "…", false, "no answer within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := open(t, &office{answers: map[string]string{test.say: test.answer}})
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			f := failed(t, o.to(startTLS, "ann@example.com", "bob@example.com").send(ctx, "ntf_1", sample))
			if f.refused != test.refused || f.final || f.sent || !strings.Contains(f.why, test.words) || strings.ContainsAny(f.why, "\x1b\u202e\n") || len(f.why) > 300 {
				t.Errorf("%+v", f)
			}
			if len(o.mails) != 0 {
				t.Error("it was sent")
			}
		})
	}
	t.Run("wrong password", func(t *testing.T) {
		o := open(t, &office{user: "gate", password: "hush"})
		m := o.to(startTLS)
		m.password = "guess"
		if f := failed(t, m.send(t.Context(), "ntf_1", sample)); f.refused || strings.Contains(f.why, "guess") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("one of two recipients", func(t *testing.T) {
		o := open(t, &office{answers: map[string]string{"RCPT TO:<ann": "550 gone\r\n"}})
		f := failed(t, o.to(startTLS, "ann@example.com", "bob@example.com").send(t.Context(), "ntf_1", sample))
		if !f.sent || !strings.Contains(f.why, "1 of the 2") || len(o.mails) != 1 || !slices.Equal(o.mails[0].to, []string{"TO:<bob@example.com>"}) {
			t.Errorf("%+v %+v", f, o.mails)
		}
		n := notifier(t, newMemory(), &Channel{name: "m", kind: "email", target: "m", on: Events(), sender: o.to(startTLS, "ann@example.com", "bob@example.com")})
		must(t, n.Send(t.Context(), ask(1)))
		w := n.workers[0]
		if n.step(t.Context(), w); n.step(t.Context(), w) != idle || len(o.mails) != 2 || status(t, n).Sent != 1 {
			t.Errorf("it is tried again: %+v", status(t, n))
		}
	})
}

// Whatever an agent says, the headers are ours and a reader sees what Printable has made of it.
func TestMailHeadersAreOurs(t *testing.T) {
	n := notifier(t, newMemory())
	headers := []string{"Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "List-Id", "Message-Id", "Mime-Version", "Subject", "To"}
	for _, title := range []string{
		"plain", "für Zoë, 12 €", "a\r\nBcc: eve@evil.example\r\n\r\nhello", "a\nX: y", "a\rX: y", "\r\n.\r\nMAIL FROM:<x>", ".", "..", "",
		"=?utf-8?q?=0d=0aBcc:=20eve@evil.example?=", "=?utf-8?b?4oCuZXZpbA==?=", "\u202eevil", "\x1b[2J", "\xff\xfe", strings.Repeat("é", 500), strings.Repeat("x", 5000), strings.Repeat("=?", 100), "a\u2028b\u0085c", "  spaces  ", strings.Repeat("🦊", 60),
	} {
		l := n.letterOf(Message{Key: "k", Event: Approval, Title: title, Text: title, Risk: "HIGH", Link: title, At: time.Unix(1782000000, 0), Fields: []Field{{title, title}}})
		m := &mailer{from: &mail.Address{Name: title[:min(len(title), maxSender)], Address: "gate@corp.example"}, to: []string{"ann@example.com"}}
		raw := m.compose("ntf_1", l)
		if !bytes.Equal(raw, m.compose("ntf_1", l)) {
			t.Errorf("%q: not the same at every try", title)
		}
		for line := range strings.SplitSeq(string(raw), "\r\n") {
			if len(line) > 998 || len(line) > 76 && strings.Contains(line, "=?utf-8?b?") && !strings.HasPrefix(line, "From:") || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%.50q: line %.1200q", title, line)
			}
		}
		got, err := mail.ReadMessage(bytes.NewReader(raw))
		if err != nil {
			t.Errorf("%q: %v", title, err)
			continue
		}
		var names []string
		for name, values := range got.Header {
			names = append(names, name)
			if len(values) != 1 {
				t.Errorf("%q: %s %q", title, name, values)
			}
		}
		slices.Sort(names)
		if !slices.Equal(names, headers) {
			t.Errorf("%q: %q", title, names)
		}
		for word := range strings.FieldsSeq(got.Header.Get("Subject")) {
			if text, ok := strings.CutPrefix(word, "=?utf-8?b?"); ok {
				if b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, "?=")); err != nil || !utf8.Valid(b) {
					t.Errorf("%q: word %q", title, word)
				}
			}
		}
		shown, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
		if want := strings.TrimSpace("[HIGH] " + l.Title); err != nil || strings.TrimSpace(shown) != want {
			t.Errorf("%q: shown as %q, not %q, %v", title, shown, want, err)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(got.Body))
		if want := fmt.Sprintf("[HIGH] %s\r\n", l.Title); err != nil || !strings.HasPrefix(string(body), want) || !strings.HasSuffix(string(body), l.Link+"\r\n") {
			t.Errorf("%q: %q, %v", title, body, err)
		}
	}
}
