package egress

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// What Check allows is read the same by net/url, is its own canonical form after one step, and names a plain host.
func FuzzCheck(f *testing.F) {
	for _, c := range attackCases(f) {
		f.Add(c.URL)
	}
	for _, s := range []string{"https://a.pub", "https://A.pub.:443/ü?ü#ü", "https://münchen.pub/", "https://[2606:4700::1111]:80/", "https://localhost:8080/", "http://10.0.0.1/%2F..//?%"} {
		f.Add(s)
	}
	c, err := New(Policy{Protocols: []string{"https", "http"}}, Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		t1, b := c.judge(raw)
		if b != nil {
			if b.Stage != "parse" && b.Stage != "host" && b.Stage != "policy" || b.Reason == "" {
				t.Fatalf("%+v", b)
			}
			return
		}
		canonical := t1.url.String()
		u, err := url.Parse(canonical)
		if err != nil || u.User != nil || u.Hostname() != t1.host || u.Fragment != "" || u.Opaque != "" || u.Scheme != t1.url.Scheme {
			t.Fatalf("%q became %q: %v, %+v", raw, canonical, err, u)
		}
		if strings.ContainsFunc(canonical, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) {
			t.Fatalf("%q became %q", raw, canonical)
		}
		if a, err := netip.ParseAddr(t1.host); err == nil {
			if !public(a) || a != t1.addr {
				t.Fatalf("%q leads to %s", raw, a)
			}
		} else if t1.addr.IsValid() || len(t1.host) > 253 || strings.Trim(t1.host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Fatalf("%q has the host %q", raw, t1.host)
		}
		if first, err := url.Parse(raw); err != nil || ascii(first.Host) && netLiteral(first) != t1.host {
			t.Fatalf("%q: net/url reads %v, %v; we read %q", raw, first, err, t1.host)
		}
		t2, b := c.judge(canonical)
		if b != nil || t2.url.String() != canonical || t2.host != t1.host || t2.port != t1.port {
			t.Fatalf("%q became %q, then %+v %+v", raw, canonical, t2, b)
		}
	})
}

// netLiteral is the host that net/url reads, in canonical form.
func netLiteral(u *url.URL) string {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if a, err := netip.ParseAddr(host); err == nil {
		return a.String()
	}
	return host
}
