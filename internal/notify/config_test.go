package notify

import (
	"strings"
	"testing"

	"sallyport.example/internal/fault"
)

func TestCheck(t *testing.T) {
	hook := Config{Kind: "webhook", URL: "https://hooks.example/x", Secret: testSecret}
	room := Config{Kind: "slack", URL: "https://hooks.slack.example/services/hush"}
	mail := Config{Kind: "email", SMTP: "mail.example:587", From: "Sallyport <gate@corp.example>", To: []string{"ann@example.com", "Bob <bob@example.com>"}, Username: "gate", Password: "hush"}
	with := func(c Config, change func(*Config)) Config {
		c.To = append([]string(nil), c.To...)
		change(&c)
		return c
	}
	url := func(u string) Config { return with(room, func(c *Config) { c.URL = u }) }
	smtp := func(s string) Config { return with(mail, func(c *Config) { c.SMTP = s }) }
	from := func(s string) Config { return with(mail, func(c *Config) { c.From = s }) }
	for _, test := range []struct {
		c      Config
		fields string // at fault
	}{
		{hook, ""}, {room, ""}, {mail, ""}, {with(hook, func(c *Config) { c.Secret = "" }), ""},
		{with(hook, func(c *Config) { c.On = Events() }), ""},
		{url("http://127.0.0.1:1/x"), ""}, {url("http://[::1]/x"), ""}, {url("http://localhost/x"), ""}, {url("https://10.0.0.1/x"), ""},
		{smtp("localhost:25"), ""}, {smtp("[::1]:465"), ""},
		{with(mail, func(c *Config) { c.Username, c.Password = "", "" }), ""},

		{Config{}, "kind"}, {Config{Kind: "pigeon", URL: "x"}, "kind"}, {Config{Kind: "Webhook"}, "kind"},
		{Config{Kind: "webhook"}, "url"}, {Config{Kind: "slack"}, "url"}, {Config{Kind: "email"}, "smtp from to"},
		{with(hook, func(c *Config) { c.Secret = "fifteen bytes .."[:15] }), "secret"},
		{with(room, func(c *Config) { c.Secret = testSecret }), "secret"},
		{with(room, func(c *Config) { c.SMTP, c.From, c.To, c.Username, c.Password = "x", "x", []string{"x"}, "x", "x" }), "smtp from to username password"},
		{with(mail, func(c *Config) { c.URL, c.Secret = "https://x", "x" }), "url secret"},
		{with(hook, func(c *Config) { c.On = []Event{"approval", "rumour", "approval"} }), "on[1] on[2]"},
		{url("http://hooks.example/x"), "url"}, {url("http://10.0.0.1/x"), "url"}, {url("http://localhost.evil.example/x"), "url"}, {url("http://127.0.0.1.evil.example"), "url"},
		{url("ftp://hooks.example/x"), "url"}, {url("hooks.example/x"), "url"}, {url("https:hooks.example"), "url"}, {url("https:///x"), "url"}, {url("https://:443/x"), "url"}, {url("https://h\x00/x"), "url"},
		{url("https://hooks.example/\r\nX: y"), "url"}, {url("https://hooks.example/é"), "url"}, {url("https://a:b@hooks.example/x"), "url"}, {url("https://hooks.example/x#y"), "url"}, {url("https://hooks.example/" + strings.Repeat("x", 2048)), "url"},
		{smtp("mail.example"), "smtp"}, {smtp(":587"), "smtp"}, {smtp("mail.example:0"), "smtp"}, {smtp("mail.example:65536"), "smtp"}, {smtp("mail.example:smtp"), "smtp"}, {smtp("mail\r\n.example:25"), "smtp"}, {smtp("https://mail.example:25"), "smtp"},
		{from(""), "from"}, {from("gate"), "from"}, {from("gate@corp.example, eve@evil.example"), "from"}, {from("gate@corp.example\r\nBcc: eve@evil.example"), "from"}, {from("g<@corp.example"), "from"}, {from(`"a b"@corp.example`), "from"}, {from("gäte@corp.example"), "from"}, {from(strings.Repeat("x", 200) + "@corp.example"), "from"},
		{with(mail, func(c *Config) { c.To[1] = "nobody" }), "to[1]"}, {with(mail, func(c *Config) { c.To = make([]string, 51) }), "to" + strings.Repeat(" to[]", 50)},
		{with(mail, func(c *Config) { c.Password = "" }), "password"}, {with(mail, func(c *Config) { c.Username = "" }), "password"}, {with(mail, func(c *Config) { c.Password = "a\x00b" }), "password"},
	} {
		var fields []string
		problems := test.c.Check()
		for _, p := range problems {
			fields = append(fields, p.Field)
			if p.Code != fault.ConfigurationInvalid || p.Message == "" || p.Remedy == "" {
				t.Errorf("%+v", p)
			}
			if strings.Contains(p.Error(), "hush") || strings.Contains(p.Error(), testSecret) {
				t.Errorf("a secret is in %q", p.Error())
			}
		}
		got := strings.Join(fields, " ")
		if strings.HasSuffix(test.fields, "to[]") {
			got = strings.NewReplacer("0", "", "1", "", "2", "", "3", "", "4", "", "5", "", "6", "", "7", "", "8", "", "9", "").Replace(got)
		}
		if got != test.fields {
			t.Errorf("%+v: at fault %q, not %q", test.c, got, test.fields)
		}
		ch, err := ParseChannel(test.c)
		if (err == nil) != (test.fields == "") || err != nil && fault.Of(err).Field != fields[0] {
			t.Errorf("%+v: %v", test.c, err)
		}
		if err == nil && (strings.Contains(ch.name, "hush") || strings.Contains(ch.target, "hush") || ch.target == "" || len(ch.on) != 2) {
			t.Errorf("%+v", ch)
		}
	}
}

func TestProtection(t *testing.T) {
	for smtp, want := range map[string]protection{
		"mail.example:587": startTLS, "mail.example:25": startTLS, "10.0.0.1:25": startTLS, "localhost.evil.example:25": startTLS,
		"mail.example:465": implicitTLS, "localhost:465": implicitTLS, "localhost:25": ownMachine, "127.0.0.1:2525": ownMachine, "[::1]:25": ownMachine,
	} {
		ch, err := ParseChannel(Config{Kind: "email", SMTP: smtp, From: "a@b.example", To: []string{"c@d.example"}})
		must(t, err)
		if got := ch.sender.(*mailer).protection; got != want {
			t.Errorf("%s: %d, not %d", smtp, got, want)
		}
	}
}

// A channel is the same after a restart and a new secret, and another with another target.
func TestChannelIdentity(t *testing.T) {
	names := map[string]bool{}
	for _, c := range []Config{
		{Kind: "webhook", URL: "https://h.example/a", Secret: testSecret}, {Kind: "webhook", URL: "https://h.example/b", Secret: testSecret}, {Kind: "slack", URL: "https://h.example/a"},
		{Kind: "email", SMTP: "h.example:25", From: "a@b.example", To: []string{"c@d.example"}}, {Kind: "email", SMTP: "h.example:25", From: "a@b.example", To: []string{"e@d.example"}},
	} {
		one, err := ParseChannel(c)
		must(t, err)
		if c.Kind == "webhook" {
			c.Secret += "new"
		}
		c.On = []Event{Alert}
		two, err := ParseChannel(c)
		must(t, err)
		if one.name != two.name || names[one.name] {
			t.Errorf("%s, %s", one.name, two.name)
		}
		names[one.name] = true
	}
}
