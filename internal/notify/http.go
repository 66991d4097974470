package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sallyport.example/internal/display"
)

// post sends JSON to one address. It follows no redirect, uses no proxy, keeps no connection, and does not read the answer's body.
type post struct {
	url       string
	transport *http.Transport
	now       func() time.Time
}

func newPost(url string, loopback bool, roots *x509.CertPool) post {
	return post{url: url, now: time.Now, transport: &http.Transport{
		DialContext:            dialer(loopback).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    tryTime,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}}
}

// dialer connects only to this machine if loopback is set, since such messages are not encrypted, and a name could resolve to another address.
func dialer(loopback bool) *net.Dialer {
	d := &net.Dialer{Timeout: tryTime}
	if loopback {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			if at, err := netip.ParseAddrPort(address); err != nil || !at.Addr().Unmap().IsLoopback() {
				return errors.New("the name leads away from this machine")
			}
			return nil
		}
	}
	return d
}

func (p *post) do(ctx context.Context, body []byte, header http.Header) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return &failure{why: "the address can't be used", refused: true, final: true}
	}
	req.Header = header
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "Sallyport")
	resp, err := p.transport.RoundTrip(req) // not http.Client: that follows redirects, and has the address in its errors
	if err != nil {
		return unreached(ctx, err)
	}
	resp.Body.Close() // the body is not read, so an error does not matter
	return p.judge(resp)
}

// unreached is the failure of a try that got no answer.
func unreached(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &failure{why: fmt.Sprintf("no answer within %s", tryTime)}
	}
	return &failure{why: display.Line(err.Error(), 200)}
}

func (p *post) judge(resp *http.Response) error {
	status := resp.StatusCode
	f := &failure{why: fmt.Sprintf("the receiver answered with HTTP status %d", status)}
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		f.why += ", a redirect, which is not followed"
		f.refused = true
	case status == http.StatusGone:
		f.refused, f.final = true, true
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, status >= 500:
		f.after = p.retryAfter(resp.Header.Get("Retry-After"))
	default:
		f.refused = true
	}
	return f
}

// retryAfter parses seconds or a date. It is 0 for anything else and for the past.
func (p *post) retryAfter(s string) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return time.Duration(min(n, uint64(longestAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return min(max(0, at.Sub(p.now())), longestAfter)
	}
	return 0
}

// webhook posts
//
//	{"id", "event", "title", "text", "risk", "link", "at", "fields": [{"name", "value"}], "follows"?}
//
// with the headers
//
//	Sallyport-Delivery:  ntf_…  (the id: the same at every try)
//	Sallyport-Signature: t=<seconds since 1970, of this try>,v1=<hex HMAC-SHA256 of secret over t "." body>
//
// the second of them only where there is a secret.
type webhook struct {
	post
	secret []byte
}

func (h *webhook) send(ctx context.Context, id string, l letter) error {
	l.Digest = nil
	body, err := json.Marshal(struct {
		ID string `json:"id"`
		letter
	}{id, l})
	if err != nil {
		return err
	}
	headers := http.Header{"Sallyport-Delivery": {id}}
	if len(h.secret) > 0 {
		t := strconv.FormatInt(h.now().Unix(), 10)
		mac := hmac.New(sha256.New, h.secret)
		mac.Write([]byte(t + "."))
		mac.Write(body)
		headers.Set("Sallyport-Signature", "t="+t+",v1="+hex.EncodeToString(mac.Sum(nil)))
	}
	return h.do(ctx, body, headers)
}

// slack posts {"text": …} as Slack's incoming webhooks take it, and Mattermost's, Rocket.Chat's and others' that follow them.
type slack struct{ post }

func (s *slack) send(ctx context.Context, _ string, l letter) error {
	var text strings.Builder
	for _, line := range lines(l) {
		text.WriteString(chat(line) + "\n")
	}
	text.WriteString("<" + l.Link + ">")
	body, err := json.Marshal(map[string]any{
		"text": text.String(), "mrkdwn": false, "link_names": false, "unfurl_links": false, "unfurl_media": false,
	})
	if err != nil {
		return err
	}
	return s.do(ctx, body, http.Header{})
}

// chat escapes a text. Slack takes <…> for links and mentions (<!channel>, <@U…>) and asks for these three to be escaped. The
// others take @all for a mention and [text](address) for a link, and have no escape for them: an @ that could begin one becomes
// the full-width character, and the brackets are moved apart.
func chat(s string) string {
	s = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "](", "] (").Replace(s)
	var out strings.Builder
	before := ' '
	for _, r := range s {
		if r == '@' && !(before >= 'a' && before <= 'z' || before >= 'A' && before <= 'Z' || before >= '0' && before <= '9') {
			out.WriteRune('＠')
		} else {
			out.WriteRune(r)
		}
		before = r
	}
	return out.String()
}

// lines is the text of a letter without its link.
func lines(l letter) []string {
	title := l.Title
	if l.Risk != "" {
		title = "[" + l.Risk + "] " + title
	}
	all := []string{title}
	if l.Text != "" {
		all = append(all, l.Text)
	}
	for _, f := range l.Fields {
		all = append(all, f.Name+": "+f.Value)
	}
	return all
}

// teams posts an Adaptive Card, as a Workflows webhook of Teams takes it. Its texts are runs, which have no markup: what stands there is shown as it
// is, and begins no mention and no link.
type teams struct{ post }

func (t *teams) send(ctx context.Context, _ string, l letter) error {
	type object = map[string]any
	var body []object
	for i, line := range lines(l) {
		run := object{"type": "TextRun", "text": line}
		if i == 0 {
			run["weight"], run["size"] = "Bolder", "Medium"
		}
		body = append(body, object{"type": "RichTextBlock", "inlines": []object{run}})
	}
	card := object{
		"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": body,
		"actions": []object{{"type": "Action.OpenUrl", "title": "Review", "url": l.Link}},
	}
	message, err := json.Marshal(object{"type": "message", "attachments": []object{{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}}})
	if err != nil {
		return err
	}
	return t.do(ctx, message, http.Header{})
}

// ntfy posts plain text to a topic, with title, priority and link as headers.
type ntfy struct {
	post
	token string // "": none
}

func (n *ntfy) send(ctx context.Context, _ string, l letter) error {
	all := lines(l)
	header := http.Header{
		"Content-Type": {"text/plain; charset=utf-8"}, "Title": {mime.BEncoding.Encode("utf-8", all[0])}, "Click": {l.Link},
		"Priority": {map[string]string{"CRITICAL": "5", "HIGH": "4", "MEDIUM": "3", "LOW": "2"}[l.Risk]},
	}
	if l.Risk == "" {
		header.Del("Priority")
	}
	if n.token != "" {
		header.Set("Authorization", "Bearer "+n.token)
	}
	return n.do(ctx, []byte(strings.Join(append(all[1:], l.Link), "\n")), header)
}
