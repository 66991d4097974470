package notify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sallyport.example/internal/fault"
)

const (
	minSecret     = 16
	maxAddress    = 2048
	maxRecipients = 50
	maxLabel      = 64
	maxSender     = 200 // encoded it has to fit into a line of 998 bytes
)

// Config is one entry of "notify" in sallyport.yaml.
type Config struct {
	Kind   string  `yaml:"kind" json:"kind" jsonschema:"webhook, slack (or anything that takes Slack's incoming webhooks), teams (a Workflows webhook), ntfy or email."`
	URL    string  `yaml:"url,omitempty" json:"url,omitempty" jsonschema:"Where to post, for all but email: https, or http to this machine. Of ntfy, the address of the topic."`
	Secret string  `yaml:"secret,omitempty" json:"secret,omitempty" jsonschema:"Key that a webhook's messages are signed with, at least 16 bytes; without one they are not signed. The access token of ntfy, where it takes one."`
	On     []Event `yaml:"on,omitempty" json:"on,omitempty" jsonschema:"What to tell: approval (questions to people), alert (what went wrong, and questions of risk HIGH and CRITICAL). Default both."`

	Labels []string `yaml:"labels,omitempty" json:"labels,omitempty" jsonschema:"Labels of the data that may stand in its messages. Default none: messages about sessions with private data say what is risky, and nothing of the data."`

	SMTP     string   `yaml:"smtp,omitempty" json:"smtp,omitempty" jsonschema:"Mail server as host:port. Port 465 is TLS from the start; elsewhere STARTTLS is needed, except on this machine."`
	From     string   `yaml:"from,omitempty" json:"from,omitempty" jsonschema:"Sender of the mail."`
	To       []string `yaml:"to,omitempty" json:"to,omitempty" jsonschema:"Recipients of the mail."`
	Username string   `yaml:"username,omitempty" json:"username,omitempty" jsonschema:"Account at the mail server."`
	Password string   `yaml:"password,omitempty" json:"password,omitempty" jsonschema:"Its password. Never sent without TLS, except on this machine."`
}

// Channel is one way to send messages to people.
type Channel struct {
	name   string // in the outbox: the same after a restart, and without a secret
	kind   string
	target string // host
	on     []Event
	labels []string // that it may carry
	sender sender
}

// carries tells whether the channel may carry data with all of the labels.
func (c *Channel) carries(labels []string) bool {
	return !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(c.labels, l) })
}

// takes tells whether the channel takes m, and as which event.
func (c *Channel) takes(m Message) (as Event, ok bool) {
	switch {
	case slices.Contains(c.on, m.Event):
		return m.Event, true
	case m.Event == Approval && (m.Risk == "HIGH" || m.Risk == "CRITICAL"):
		return Alert, slices.Contains(c.on, Alert)
	}
	return "", false
}

// sender delivers a letter. Its error is a *failure if its meaning is known.
type sender interface {
	send(ctx context.Context, id string, l letter) error
}

// ParseChannel makes a channel from its configuration, or returns the first problem of Check.
func ParseChannel(c Config) (*Channel, error) {
	if problems := c.Check(); len(problems) > 0 {
		return nil, problems[0]
	}
	ch := &Channel{kind: c.Kind, on: c.On, labels: c.Labels}
	if len(ch.on) == 0 {
		ch.on = Events()
	}
	identity := c.URL
	switch c.Kind {
	case "webhook", "slack", "teams", "ntfy":
		u, _ := url.Parse(c.URL) // checked
		ch.target = u.Hostname()
		p := newPost(c.URL, u.Scheme == "http", nil)
		switch c.Kind {
		case "slack":
			ch.sender = &slack{p}
		case "teams":
			ch.sender = &teams{p}
		case "ntfy":
			ch.sender = &ntfy{p, c.Secret}
		default:
			ch.sender = &webhook{p, []byte(c.Secret)}
		}
	case "email":
		host, port, _ := net.SplitHostPort(c.SMTP) // all three checked
		from, _ := mail.ParseAddress(c.From)
		m := &mailer{addr: c.SMTP, host: host, from: from, username: c.Username, password: c.Password}
		for _, to := range c.To {
			a, _ := mail.ParseAddress(to)
			m.to = append(m.to, a.Address)
		}
		switch {
		case port == "465":
			m.protection = implicitTLS
		case isLoopback(host):
			m.protection = ownMachine
		}
		ch.target, ch.sender = host, m
		identity = c.SMTP + "\x00" + from.Address + "\x00" + strings.Join(m.to, "\x00")
	}
	sum := sha256.Sum256([]byte(identity))
	ch.name = c.Kind + ":" + ch.target + ":" + hex.EncodeToString(sum[:8])
	return ch, nil
}

// Check returns every problem of an entry, each with its field. None shows a secret.
func (c Config) Check() []*fault.Error {
	var problems []*fault.Error
	bad := func(field, remedy, format string, args ...any) {
		problems = append(problems, fault.New(fault.ConfigurationInvalid, format, args...).At(field).Try("%s", remedy))
	}
	given := map[string]bool{
		"url": c.URL != "", "secret": c.Secret != "", "smtp": c.SMTP != "", "from": c.From != "", "to": len(c.To) > 0,
		"username": c.Username != "", "password": c.Password != "",
	}
	takes := map[string][]string{
		"webhook": {"url", "secret"}, "slack": {"url"}, "teams": {"url"}, "ntfy": {"url", "secret"}, "email": {"smtp", "from", "to", "username", "password"},
	}[c.Kind]
	if takes == nil {
		bad("kind", "Write webhook, slack, teams, ntfy or email.", "There is no kind %.40q.", c.Kind)
		return problems
	}
	for _, field := range []string{"url", "secret", "smtp", "from", "to", "username", "password"} {
		if given[field] && !slices.Contains(takes, field) {
			bad(field, "Leave it out.", "It means nothing for kind %s.", c.Kind)
		}
	}
	for i, l := range c.Labels {
		if l == "" || len(l) > maxLabel || !printable(l) {
			bad(fmt.Sprintf("labels[%d]", i), "Write one of flow.labels.", "%.40q is no label.", l)
		}
	}
	for i, e := range c.On {
		if !slices.Contains(Events(), e) {
			bad(fmt.Sprintf("on[%d]", i), "Write approval or alert.", "There is no event %.40q.", e)
		} else if slices.Contains(c.On[:i], e) {
			bad(fmt.Sprintf("on[%d]", i), "Name it once.", "%s comes twice.", e)
		}
	}
	if c.Kind == "email" {
		c.checkMail(bad)
		return problems
	}
	// The address of a chat's webhook is a secret, so messages do not show it.
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		bad("url", "Write the address to post to.", "It is missing.")
	case len(c.URL) > maxAddress || err != nil || u.Hostname() == "" || u.Opaque != "" || !printable(c.URL):
		bad("url", "Write it as https://host/path.", "It is not an address.")
	case u.User != nil:
		bad("url", "Take name and password out of it.", "Credentials in an address end up in logs.")
	case u.Fragment != "":
		bad("url", "Take out what follows #.", "A fragment is never sent.")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		bad("url", "Write https.", "Over http anybody on the way can read and change it.")
	case u.Scheme != "https" && u.Scheme != "http":
		bad("url", "Write https.", "%.20q is not a scheme for a webhook.", u.Scheme)
	}
	if c.Kind == "webhook" && c.Secret != "" && len(c.Secret) < minSecret {
		bad("secret", fmt.Sprintf("Write a random one of at least %d bytes, and give it to the receiver; or leave it out for messages that are not signed.", minSecret), "It is too short to sign with.")
	}
	return problems
}

func (c Config) checkMail(bad func(field, remedy, format string, args ...any)) {
	host, port, err := net.SplitHostPort(c.SMTP)
	if n, notANumber := strconv.ParseUint(port, 10, 16); err != nil || host == "" || strings.ContainsAny(host, " %") || notANumber != nil || n == 0 || !printable(c.SMTP) {
		bad("smtp", "Write host:port, such as mail.example:587.", "It is not the address of a mail server.") // it may hold a password
	}
	address := func(field, s string) {
		if a, err := mail.ParseAddress(s); err != nil || len(s) > maxSender || !printable(a.Address) || strings.ContainsAny(a.Address, " <>\"") {
			bad(field, "Write it as name@host.", "%.100q is not a mail address.", s)
		}
	}
	address("from", c.From)
	if len(c.To) == 0 || len(c.To) > maxRecipients {
		bad("to", fmt.Sprintf("Name 1 to %d.", maxRecipients), "There are %d recipients.", len(c.To))
	}
	for i, to := range c.To[:min(len(c.To), maxRecipients)] {
		address(fmt.Sprintf("to[%d]", i), to)
	}
	if (c.Username == "") != (c.Password == "") {
		bad("password", "Write both or none.", "username and password belong together.")
	}
	if strings.ContainsRune(c.Username+c.Password, 0) {
		bad("password", "Take it out.", "There is a NUL in username or password.")
	}
}

// printable tells whether s consists of visible ASCII and spaces.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// isLoopback tells whether a host is this machine. For a name, the dialer checks the address.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}
