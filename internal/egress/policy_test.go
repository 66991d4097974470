package egress

import (
	"net/netip"
	"strings"
	"testing"

	"code.dny.dev/ssrf"

	"sallyport.example/internal/fault"
)

func TestPolicy(t *testing.T) {
	for _, entry := range []string{
		"example.com", "EXAMPLE.com.", "*.example.com", "example.com:8443", "*.example.com:8443", "münchen.de", "xn--mnchen-3ya.de", "foo_bar.example.com",
		"wiki.internal", "wiki.corp:8443", "localhost", "localhost:8080", "127.0.0.1", "127.0.0.1:8080", "10.1.2.3", "10.0.0.0/8", "192.168.7.0/24",
		"::1", "[::1]", "[::1]:8080", "fd12:3456::/32", "fc00::/7", "8.8.8.8", "2001:4860:4860::8888",
	} {
		if _, err := compile(Policy{Domains: []string{entry}}); err != nil {
			t.Errorf("%q: %v", entry, err)
		}
	}
	for _, entry := range []string{
		"", "*", "*.", "*.com", "com", "intranet", "*.localhost", "*.internal", "*.svc.cluster.local", "a..b", "-a.pub", "exa mple.com", "user@example.com",
		"https://example.com", "example.com/path", "example.com:", "example.com:0", "example.com:080", "example.com:65536", "example.com:http", "ex*mple.com", "*.*.example.com",
		"127.1", "0x7f.1", "2130706433", "127.0.0.01", "[127.0.0.1", "[example.com]", "fe80::1%eth0", "*.10.0.0.1", "*.127.1",
		"0.0.0.0", "169.254.169.254", "169.254.169.254:80", "169.254.0.0/16", "169.254.7.0/24", "fe80::1", "fe80::/64", "fd00:ec2::254", "[fd00:ec2::254]:80", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42",
		"100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "255.255.255.255", "ff02::1", "::", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.0/104",
		"64:ff9b::a00:1", "2002:7f00:1::", "2001:0:1::", "2001:470::5efe:a00:1", "10.0.0.1/8", "10.0.0.0/33", "0.0.0.0/0", "::/0", "128.0.0.0/1",
	} {
		_, err := compile(Policy{Domains: []string{"example.com", entry}})
		if !fault.Is(err, fault.ConfigurationInvalid) {
			t.Errorf("%q: %v", entry, err)
			continue
		}
		if f := fault.Of(err); f.Field != "allowed_domains[1]" || f.Remedy == "" || !strings.Contains(f.Message, quote(entry)) {
			t.Errorf("%q: at %q: %s", entry, f.Field, f.Public())
		}
	}
	for _, p := range []Policy{{Protocols: []string{"ftp"}}, {Protocols: []string{""}}, {Timeout: -1}, {MaxBytes: -1}, {UserAgent: "a\r\nb: c"}} {
		if _, err := New(p, Options{}); !fault.Is(err, fault.ConfigurationInvalid) || fault.Of(err).Field == "" || fault.Of(err).Remedy == "" {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestCheck(t *testing.T) {
	list := []string{"allowed.pub", "*.sub.pub", "other.pub:8443", "localhost:8080", "10.1.0.0/16", "10.2.0.1:9000", "[::1]:9000", "wiki.internal", "8.8.8.8", "fd00::/8", "169.0.0.0/8", "münchen.pub"}
	for _, c := range []struct {
		url   string
		list  []string
		stage string
	}{
		{"https://any.pub/", nil, ""},
		{"https://any.pub", nil, ""},
		{"HTTPS://Any.PUB./a?b#c", nil, ""},
		{"https://any.pub:80/", nil, ""},
		{"http://any.pub/", nil, "policy"},
		{"https://any.pub:8443/", nil, "policy"},
		{"https://any.pub:/", nil, "parse"},
		{"https://any.pub:65616/", nil, "parse"},
		{"https://any.pub:+80/", nil, "parse"},
		{"https://any.pub/\xff", nil, "parse"},
		{"https://any.pub/a b", nil, "parse"},
		{"https://any.pub/%zz", nil, "parse"},
		{"https://any.pub/" + strings.Repeat("a", maxURL), nil, "parse"},
		{"https://localhost/", nil, "host"},
		{"https://localhost./", nil, "host"},
		{"https://8.8.8.8./", nil, "host"},
		{"https://a.b.0x1/", nil, "host"},
		{"https://xn--localhost-.pub/", nil, "host"},
		{"https://ﬁsh.pub/", nil, "host"},
		{"https://xn--.pub/", nil, "host"},
		{"https://xn--a.pub/", nil, "host"},
		{"https://xn--n-jfa.pub/", nil, "host"}, // of a capital Ü
		{"https://ﬁü.pub/", nil, "host"},
		{"https://m\u00adün.pub/", nil, "host"},
		{"https://\u212aelvin.pub/", nil, "host"},
		{"https://mün.\u212aelvin.pub/", nil, "host"},
		{"https://①.pub/", nil, "host"},
		{"https://MÜNCHEN.pub/", nil, ""},
		{"https://[2001:4860:4860::0088]/", nil, "host"},
		{"https://[2001:4860:4860::88%25eth0]/", nil, "host"},

		{"https://allowed.pub/", list, ""},
		{"https://allowed.pub./", list, ""},
		{"https://allowed.pub:8443/", list, "policy"},
		{"https://xallowed.pub/", list, "policy"},
		{"https://a.allowed.pub/", list, "policy"},
		{"https://allowed.pub.evil.pub/", list, "policy"},
		{"https://sub.pub/", list, "policy"},
		{"https://xsub.pub/", list, "policy"},
		{"https://a.sub.pub/", list, ""},
		{"https://a.b.sub.pub/", list, ""},
		{"https://other.pub:8443/", list, ""},
		{"https://other.pub/", list, "policy"},
		{"https://xn--mnchen-3ya.pub/", list, ""},
		{"https://localhost:8080/", list, ""},
		{"https://localhost/", list, "policy"},
		{"https://a.localhost:8080/", list, "host"},
		{"https://127.0.0.1:8080/", list, "host"},
		{"https://10.1.2.3/", list, ""},
		{"https://10.1.2.3:8443/", list, "policy"},
		{"https://10.2.0.1:9000/", list, ""},
		{"https://10.2.0.1:9001/", list, "host"},
		{"https://10.2.0.1/", list, "host"},
		{"https://10.2.0.2:9000/", list, "host"},
		{"https://[::1]:9000/", list, ""},
		{"https://[::1]/", list, "host"},
		{"https://[::ffff:10.1.2.3]/", list, "host"},
		{"https://[fd12::1]/", list, ""},
		{"https://[fd00:ec2::254]/", list, "host"},
		{"https://[fd00:c1::a9fe:a9fe]/", []string{"fd00::/16"}, "host"},
		{"https://[fd00:42::42]/", []string{"fd00::/16"}, "host"},
		{"https://[fd00:42::43]/", []string{"fd00::/16"}, ""},
		{"https://169.254.169.254/", list, "host"},
		{"https://169.1.1.1/", list, ""},
		{"https://8.8.8.8/", list, ""},
		{"https://8.8.4.4/", list, "policy"},
		{"https://wiki.internal/", list, ""},
		{"https://metadata.google.internal/", list, "host"},
		{"ftp://allowed.pub/", list, "parse"},
	} {
		client, err := New(Policy{Domains: c.list}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, b := client.judge(c.url)
		stage := ""
		if b != nil {
			stage = b.Stage
		}
		if err := client.Check(c.url); stage != c.stage || (err != nil) != (stage != "") || err != nil && !fault.Is(err, fault.EgressBlocked) {
			t.Errorf("%.80q: stage %q, want %q: %v", c.url, stage, c.stage, err)
		}
	}
}

func TestCanonicalURL(t *testing.T) {
	c, err := New(Policy{Protocols: []string{"https", "http"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		"HTTPS://Any.PUB.:443":         "https://any.pub/",
		"http://any.pub:80/a#b":        "http://any.pub/a",
		"http://any.pub:443/":          "http://any.pub:443/",
		"https://any.pub/%0d%0a%2F/ü?": "https://any.pub/%0d%0a%2F/%C3%BC",
		"https://any.pub/?q=ü\"<&%zz":  "https://any.pub/?q=%C3%BC%22%3C&%zz",
		"https://[2606:4700::1111]/x":  "https://[2606:4700::1111]/x",
		"https://any.pub//a/../b":      "https://any.pub//a/../b",
		"https://faß.pub/":             "https://xn--fa-hia.pub/",
	} {
		if got, b := c.judge(raw); b != nil || got.url.String() != want {
			t.Errorf("%q: %v, %v", raw, got, b)
		}
	}
}

// A refusal carries nothing of the sender's that a reader could take for ours.
func TestBlockedIsSafe(t *testing.T) {
	c, err := New(Policy{Domains: []string{"allowed.pub"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{"https://" + strings.Repeat("long-label.", 20) + "pub/", "https://evil.pub/<script>\u202e", "x\x1b[31m://\n", "https://\u202eevil.pub/", "https://a\"b.pub/"} {
		_, b := c.judge(u)
		if b == nil || len(b.Reason) > 300 {
			t.Errorf("%q: %+v", u, b)
			continue
		}
		for _, s := range []string{b.Reason, b.Error()} {
			if strings.ContainsFunc(strings.ReplaceAll(s, "…", ""), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q: %q", u, s)
			}
		}
	}
	f := fault.Of(c.Check("https://evil.pub/"))
	if f.Message != `Stage policy: "evil.pub" is not in the list of allowed domains.` || f.Remedy != "An operator can add the domain to comm.allowed_domains." {
		t.Errorf("%q, %q", f.Message, f.Remedy)
	}
}

// The two tables are independent; where the library refuses, ours does, at every edge of every block of either.
func TestTablesAgree(t *testing.T) {
	edges := []netip.Prefix{ssrf.IPv6GlobalUnicast, ssrf.IPv6NAT64Prefix}
	for _, list := range [][]netip.Prefix{ssrf.IPv4DeniedPrefixes, ssrf.IPv6DeniedPrefixes, notPublic, neverOpen} {
		edges = append(edges, list...)
	}
	for _, p := range edges {
		last := p.Addr().AsSlice()
		for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
		}
		top, _ := netip.AddrFromSlice(last)
		for _, a := range []netip.Addr{p.Addr(), p.Addr().Prev(), p.Addr().Next(), top, top.Prev(), top.Next()} {
			if a.IsValid() && public(a) && guardian.SafeAddr(a) != nil {
				t.Errorf("%s: public by ours, refused by the library", a)
			}
			if a.IsValid() && public(a) && never(a) {
				t.Errorf("%s: public, and never open", a)
			}
		}
	}
	for _, s := range []string{"168.63.129.16", "2001:470::5efe:a00:1", "2001:470::200:5efe:a00:1"} {
		if a := netip.MustParseAddr(s); public(a) || guardian.SafeAddr(a) != nil {
			t.Errorf("%s: is it still what only ours knows?", s)
		}
	}
}

// Who lists this machine without a port means the programs that listen on it, whatever their ports; any other entry means the usual ones.
func TestPortsOfThisMachine(t *testing.T) {
	for entry, c := range map[string]struct {
		url string
		ok  bool
	}{
		"127.0.0.1":      {"http://127.0.0.1:34567/", true},
		"::1":            {"http://[::1]:34567/", true},
		"localhost":      {"http://localhost:34567/", true},
		"127.0.0.1:8080": {"http://127.0.0.1:34567/", false},
		"localhost:8080": {"http://localhost:34567/", false},
		"127.0.0.0/8":    {"http://127.0.0.1:34567/", false},
		"127.0.0.2":      {"http://127.0.0.1:34567/", false},
		"10.1.2.3":       {"http://10.1.2.3:34567/", false},
		"10.0.0.0/8":     {"http://10.1.2.3:34567/", false},
		"example.com":    {"http://example.com:34567/", false},
	} {
		client, err := New(Policy{Domains: []string{entry}, Protocols: []string{"http"}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Check(c.url); (err == nil) != c.ok {
			t.Errorf("%s with the entry %q: %v", c.url, entry, err)
		}
	}
}
