package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"strings"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/display"
)

// protection is how the connection to the mail server is encrypted.
type protection int

const (
	startTLS    protection = iota // required before anything else is sent
	implicitTLS                   // TLS from the first byte: port 465
	ownMachine                    // no encryption: the server is on this machine
)

// maxDialogue bounds the bytes that a mail server may send.
const maxDialogue = 64 << 10

// mailer sends mail through one server.
type mailer struct {
	addr, host string
	protection protection
	from       *mail.Address
	to         []string
	username   string
	password   string
	roots      *x509.CertPool // nil: the system's
}

func (m *mailer) send(ctx context.Context, id string, l letter) error {
	err := m.dialogue(ctx, m.compose(id, l))
	var f *failure
	if err == nil || errors.As(err, &f) {
		return err
	}
	return unreached(ctx, err)
}

func (m *mailer) dialogue(ctx context.Context, text []byte) error {
	dialled, err := dialer(m.protection == ownMachine).DialContext(ctx, "tcp", m.addr)
	if err != nil {
		return err
	}
	defer dialled.Close()
	// Everything that follows ends with ctx: net/smtp knows only the connection's deadline.
	defer context.AfterFunc(ctx, func() { dialled.SetDeadline(time.Unix(1, 0)) })()
	var conn net.Conn = &bounded{Conn: dialled, left: maxDialogue}
	own := literal(dialled.LocalAddr())
	settings := &tls.Config{ServerName: m.host, MinVersion: tls.VersionTLS12, RootCAs: m.roots}
	if m.protection == implicitTLS {
		conn = tls.Client(conn, settings)
	}
	c, err := smtp.NewClient(conn, m.host)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Hello(own); err != nil {
		return err
	}
	if m.protection == startTLS {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return &failure{why: "the mail server offers no STARTTLS"}
		}
		if err := c.StartTLS(settings); err != nil {
			return err
		}
	}
	if m.username != "" {
		if err := c.Auth(smtp.PlainAuth("", m.username, m.password, m.host)); err != nil { // it refuses without TLS, except to this machine
			return err
		}
	}
	if err := c.Mail(m.from.Address); err != nil {
		return err
	}
	// An address that is refused for good must not hold up the others. If one is refused for now, all are tried again later, because
	// nothing has gone out to anybody yet.
	var rejected []error
	for _, to := range m.to {
		if err := c.Rcpt(to); permanent(err) {
			rejected = append(rejected, err)
		} else if err != nil {
			return err
		}
	}
	if len(rejected) == len(m.to) {
		return refused("the mail server takes none of the recipients", rejected[0])
	}
	w, err := c.Data()
	if err == nil {
		if _, err = w.Write(text); err == nil {
			err = w.Close()
		}
	}
	if permanent(err) {
		return refused("the mail server refused the message", err)
	}
	if err != nil {
		return err
	}
	c.Quit() // it has the message, so an error changes nothing
	if len(rejected) > 0 {
		return &failure{why: fmt.Sprintf("the mail server takes %d of the %d recipients: %s", len(m.to)-len(rejected), len(m.to), display.Line(rejected[0].Error(), 150)), sent: true}
	}
	return nil
}

func permanent(err error) bool {
	var e *textproto.Error
	return errors.As(err, &e) && e.Code >= 500
}

func refused(why string, err error) error {
	return &failure{why: why + ": " + display.Line(err.Error(), 150), refused: true}
}

// literal is the address of a machine as it stands in HELO without a name.
func literal(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	switch {
	case !ok:
		return "localhost"
	case tcp.IP.To4() != nil:
		return "[" + tcp.IP.String() + "]"
	default:
		return "[IPv6:" + tcp.IP.String() + "]"
	}
}

// bounded is a connection from which only so many bytes can be read.
type bounded struct {
	net.Conn
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the mail server talks too much")
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// compose writes the message: RFC 5322, UTF-8, quoted-printable. It is the same at every try.
func (m *mailer) compose(id string, l letter) []byte {
	domain := m.from.Address[strings.LastIndexByte(m.from.Address, '@')+1:]
	all := lines(l)
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	header("From", m.from.String())
	header("To", strings.Join(m.to, ",\r\n "))
	header("Subject", subject(all[0]))
	header("Date", l.At.Format(time.RFC1123Z))
	header("Message-ID", "<"+id+"@"+domain+">")
	if l.Follows != "" { // mail programs show it below the first
		header("In-Reply-To", "<"+l.Follows+"@"+domain+">")
		header("References", "<"+l.Follows+"@"+domain+">")
	}
	header("List-Id", "<sallyport."+domain+">")
	header("Auto-Submitted", "auto-generated")
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	for _, line := range append(all, "", l.Link) {
		w.Write([]byte(line + "\r\n")) // into memory
	}
	w.Close()
	return b.Bytes()
}

// subject encodes a text for a header (RFC 2047). A text that looks encoded is encoded too: decoded it could hold what plain has removed.
func subject(s string) string {
	plain := !strings.Contains(s, "=?")
	for i := range len(s) {
		plain = plain && s[i] >= ' ' && s[i] < 0x7f
	}
	if plain {
		return s
	}
	var words []string
	for len(s) > 0 {
		cut := min(len(s), 39) // 52 letters of base64; with the header's name no more than the 76 that RFC 2047 allows a line
		for cut < len(s) && !utf8.RuneStart(s[cut]) {
			cut--
		}
		words = append(words, "=?utf-8?b?"+base64.StdEncoding.EncodeToString([]byte(s[:cut]))+"?=")
		s = s[cut:]
	}
	return strings.Join(words, "\r\n ")
}
