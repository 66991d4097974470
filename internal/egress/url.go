package egress

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

const maxURL = 8 << 10

// target is a URL that was judged.
type target struct {
	url  *url.URL   // rebuilt from its parts: no userinfo, no fragment, canonical host, no default port
	host string     // a name in ASCII and lower case, without a final dot, or an address
	addr netip.Addr // of a literal
	port uint16
}

func (t *target) origin() string { return t.url.Scheme + "://" + t.url.Host }

// judge takes a URL through parse, host and policy.
func (c *Client) judge(raw string) (*target, *Blocked) {
	t, host, wrong := parse(raw)
	if wrong != "" {
		return nil, &Blocked{Stage: "parse", Reason: wrong}
	}
	if b := c.rules.judgeHost(t, host); b != nil {
		return nil, b
	}
	if b := c.rules.permits(t); b != nil {
		return nil, b
	}
	return t, nil
}

// parse takes a URL apart by itself and by net/url: a URL in which two readers could see two hosts is refused. The host is
// returned as it was written, an IPv6 address with its brackets.
func parse(raw string) (t *target, host, wrong string) {
	refuse := func(wrong string) (*target, string, string) { return nil, "", wrong }
	if len(raw) > maxURL {
		return refuse("The URL is longer than 8 KiB.")
	}
	if !utf8.ValidString(raw) || strings.ContainsFunc(raw, func(r rune) bool {
		return r <= ' ' || r == '\\' || r >= 0x7f && r <= 0x9f
	}) {
		return refuse("The URL has a space, a backslash, a control character or a byte that is not UTF-8.")
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "http" && scheme != "https" {
		return refuse("The URL must begin with https:// or http://.")
	}
	authority, after := rest, "/"
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, after = rest[:i], rest[i:]
	}
	if after[0] != '/' {
		return refuse("In the URL, a slash must follow the host.")
	}
	if strings.Contains(authority, "@") {
		return refuse("The URL must not have a user name.")
	}
	t = &target{port: 443}
	if scheme == "http" {
		t.port = 80
	}
	host, port, hasPort := cutPort(authority)
	if hasPort {
		if t.port, ok = parsePort(port); !ok {
			return refuse("The URL's port must be a number from 1 to 65535.")
		}
	}
	if literal, ok := strings.CutPrefix(host, "["); ok {
		literal, ok = strings.CutSuffix(literal, "]")
		literal, _, _ = strings.Cut(literal, "%") // a zone is for judgeHost to refuse
		if a, err := netip.ParseAddr(literal); !ok || err != nil || !a.Is6() {
			return refuse("In the URL, only an IPv6 address may be in brackets.")
		}
	} else if host == "" || strings.ContainsAny(host, "[]:%") {
		return refuse("The URL's host is not a name or an address.")
	}
	u, err := url.Parse(scheme + "://" + authority + escape(after))
	if err != nil || u.Opaque != "" || u.User != nil || u.Scheme != scheme || !strings.Contains(host, "%") && u.Host != authority {
		return refuse("The URL can't be read.")
	}
	t.url = &url.URL{Scheme: scheme, Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}
	if t.url.Path == "" {
		t.url.Path = "/"
	}
	return t, host, ""
}

// cutPort splits an authority without userinfo.
func cutPort(authority string) (host, port string, hasPort bool) {
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		return authority[:i], authority[i+1:], true
	}
	return authority, "", false
}

// parsePort reads a port in its one form: no sign, no padding, not 0.
func parsePort(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0 && s[0] != '0'
}

// escape escapes characters that may not stand in a request line. Nothing is unescaped: %2F and / are two things to a server.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= 0x7f || strings.IndexByte("\"<>^`{|}", c) >= 0 {
			b.WriteByte('%')
			b.WriteByte("0123456789ABCDEF"[c>>4])
			b.WriteByte("0123456789ABCDEF"[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// openable is the way out where an address is not public, or "" where there is none.
func openable(a netip.Addr) string {
	if never(a) {
		return ""
	}
	return "An operator can open a server of their own by adding its address, and its port if that is neither 80 nor 443, to comm.allowed_domains."
}

// judgeHost completes t with the host.
func (r rules) judgeHost(t *target, host string) *Blocked {
	refuse := func(reason, remedy string) *Blocked {
		return &Blocked{Stage: "host", Reason: reason, remedy: remedy}
	}
	if literal, ok := strings.CutPrefix(host, "["); ok {
		literal = strings.TrimSuffix(literal, "]")
		t.addr, _ = netip.ParseAddr(literal)
		if strings.Contains(literal, "%") || padded(literal) {
			return refuse("The address is not in its canonical form.", "")
		}
	} else {
		name, wrong := dnsName(host)
		if wrong != "" {
			return refuse(wrong, "")
		}
		t.host = name
		t.addr, _ = netip.ParseAddr(name)
		if !t.addr.IsValid() && specialUse(name) && !r.names(name) {
			return refuse(quote(name)+" is a name of a private network or of a special use.", "An operator can add this very name to comm.allowed_domains.")
		}
	}
	if t.addr.IsValid() {
		t.host = t.addr.String()
		if !public(t.addr) && !r.opens(t.host, netip.AddrPortFrom(t.addr, t.port)) {
			return refuse(t.host+" is not a public address.", openable(t.addr))
		}
	}
	t.url.Host = t.host
	if t.addr.Is6() {
		t.url.Host = "[" + t.host + "]"
	}
	if usual := map[string]uint16{"https": 443, "http": 80}[t.url.Scheme]; t.port != usual {
		t.url.Host += ":" + strconv.Itoa(int(t.port))
	}
	return nil
}

// padded tells whether a group of an IPv6 address has a leading zero.
func padded(literal string) bool {
	return slices.ContainsFunc(strings.Split(literal, ":"), func(g string) bool { return len(g) > 1 && g[0] == '0' })
}

// mapping is UTS 46 as browsers apply it, non-transitional: ß stays ß. Underscores are let through, as they exist in the wild.
var mapping = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false), idna.CheckHyphens(false))

// dnsName returns a host in the form in which it is compared, asked for and sent: lower-case ASCII without a final dot; or an IPv4 address
// in its canonical form. A host that some reader would take for an address and ours does not is refused, and so is a name that only the
// mapping of look-alikes turns into another one.
func dnsName(host string) (name, wrong string) {
	const (
		notName   = "The host is not a valid domain name."
		disguised = "The host has characters that stand for others."
	)
	if len(host) > 1024 { // far beyond any name; the mapping below need not see it
		return "", notName
	}
	name = strings.ToLower(host)
	if !ascii(host) {
		mapped, err := mapping.ToASCII(host)
		if err != nil {
			return "", notName
		}
		back, err := mapping.ToUnicode(mapped)
		if err != nil || back != norm.NFC.String(name) {
			return "", disguised
		}
		written := strings.Split(host, ".")
		for i, l := range strings.Split(mapped, ".") {
			if i >= len(written) || !ascii(written[i]) && !strings.HasPrefix(l, "xn--") {
				return "", disguised
			}
		}
		name = mapped
	}
	name = strings.TrimSuffix(name, ".")
	labels := strings.Split(name, ".")
	last := labels[len(labels)-1]
	if digits(last) || strings.HasPrefix(last, "0x") { // the rule by which browsers tell an address from a name
		if a, err := netip.ParseAddr(name); err != nil || !a.Is4() || host != name {
			return "", "The host is an address in a form that is not canonical."
		}
		return name, ""
	}
	if len(name) > 253 {
		return "", notName
	}
	for _, l := range labels {
		if len(l) == 0 || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' || strings.ContainsFunc(l, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		}) {
			return "", notName
		}
		if strings.HasPrefix(l, "xn--") {
			if _, err := mapping.ToUnicode(l); err != nil { // it stands for nothing, or for what would be written otherwise
				return "", notName
			}
		}
	}
	return name, ""
}

// zones are the last labels under which there is no public server: special-use names (RFC 6761 and its registry), what ICANN keeps for
// private use, what RFC 6762 found in use, and what clusters and containers use.
var zones = []string{"alt", "arpa", "bit", "consul", "corp", "dhcp", "example", "home", "i2p", "internal", "intranet", "invalid", "lan", "local",
	"localdomain", "localhost", "mail", "nomad", "onion", "private", "svc", "test"}

// specialUse tells whether a name has one label, or lies in such a zone.
func specialUse(name string) bool {
	i := strings.LastIndexByte(name, '.')
	return i < 0 || slices.Contains(zones, name[i+1:])
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

func digits(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

// resolveReference resolves a Location that t's server sent. One with its own host is judged as it was written.
func (t *target) resolveReference(location string) (string, bool) {
	if strings.HasPrefix(location, "//") {
		return t.url.Scheme + ":" + location, true
	}
	ref, err := url.Parse(location)
	if err != nil || strings.ContainsFunc(location, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) {
		return "", false
	}
	if ref.Scheme != "" {
		return location, true
	}
	return t.url.ResolveReference(ref).String(), true
}
