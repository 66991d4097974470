package egress

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"sallyport.example/internal/fault"
)

// entry is one line of the allow-list: a name, the subdomains of one, or addresses.
type entry struct {
	name     string
	wildcard bool
	addrs    netip.Prefix
	port     uint16 // 0: the usual ones
}

// rules is a compiled Policy.
type rules struct {
	entries   []entry
	protocols []string
}

// compile reads a policy.
func compile(p Policy) (rules, error) {
	var r rules
	bad := func(field, remedy, format string, args ...any) (rules, error) {
		return rules{}, fault.New(fault.ConfigurationInvalid, format, args...).At(field).Try("%s", remedy)
	}
	for i, text := range p.Domains {
		e, wrong, remedy := parseEntry(text)
		if wrong != "" {
			return bad("allowed_domains["+strconv.Itoa(i)+"]", remedy, "%s %s.", quote(text), wrong)
		}
		r.entries = append(r.entries, e)
	}
	for i, s := range p.Protocols {
		if s != "https" && s != "http" {
			return bad("protocols["+strconv.Itoa(i)+"]", "Write https or http.", "%s is not a protocol of the web.", quote(s))
		}
		r.protocols = append(r.protocols, s)
	}
	if r.protocols == nil {
		r.protocols = []string{"https"}
	}
	switch {
	case p.Timeout < 0:
		return bad("timeout", "Leave it out for 30 s.", "The time limit is negative.")
	case p.MaxBytes < 0 || p.MaxBytes > 1<<40:
		return bad("max_bytes", "Leave it out for 5 MiB.", "The size limit is negative or beyond reason.")
	case len(p.UserAgent) > 200 || !httpguts.ValidHeaderFieldValue(p.UserAgent):
		return bad("user_agent", "Use up to 200 printable characters.", "The user agent can't be sent.")
	}
	return r, nil
}

// parseEntry returns the problem of an entry and the way out, if there is one.
func parseEntry(text string) (e entry, wrong, remedy string) {
	const forms = `Write a name ("example.com"), its subdomains ("*.example.com"), an address or a prefix ("10.0.0.0/8"); a name or an address may end in ":port".`
	if text == "*" {
		return e, "is no domain", "Leave the list empty to allow every public address."
	}
	if strings.Contains(text, "://") {
		return e, "is a URL, not a domain", `Write only its host, and ":port" if that is neither 80 nor 443.`
	}
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return e, "is not a prefix of addresses", forms
		case p != p.Masked():
			return e, "has bits set beyond its prefix", "Write " + p.Masked().String() + " or a single address."
		case p.Bits() < 7 || p.Addr().Is4() && p.Bits() < 8:
			return e, "is too wide to be servers of your own", "List narrower prefixes."
		}
		e.addrs = p
		return e.checkAddrs()
	}
	host, port, ok := entryPort(text)
	if !ok {
		return e, "has a port that is none", forms
	}
	e.port = port
	literal, bracketed := host, strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if bracketed {
		literal = host[1 : len(host)-1]
	}
	if a, err := netip.ParseAddr(literal); err == nil && a.Zone() == "" && (a.Is6() || !bracketed) {
		e.addrs = netip.PrefixFrom(a, a.BitLen())
		return e.checkAddrs()
	}
	host, e.wildcard = strings.CutPrefix(host, "*.")
	if e.name, wrong = dnsName(host); wrong != "" || !e.named() {
		return e, "is not a domain", forms
	}
	if !strings.Contains(e.name, ".") && (e.wildcard || e.name != "localhost") {
		return e, "has only one label", `Write the full name; of names with one label, only "localhost" can be listed.`
	}
	if e.wildcard && specialUse(e.name) {
		return e, "lists every name in a private or special zone", "List each name by itself."
	}
	return e, "", ""
}

// checkAddrs refuses an entry that would open nothing.
func (e entry) checkAddrs() (_ entry, wrong, remedy string) {
	closed := e.addrs.IsSingleIP() && never(e.addrs.Addr())
	for _, p := range neverOpen {
		closed = closed || never(e.addrs.Addr()) && p.Bits() <= e.addrs.Bits() && p.Contains(e.addrs.Addr())
	}
	if closed {
		return e, "is metadata, link-local, unspecified, multicast or another address in disguise, and is never opened", "Remove it; write an IPv4 address in its own form."
	}
	return e, "", ""
}

// named tells whether the entry's name is one, not an address.
func (e entry) named() bool {
	_, err := netip.ParseAddr(e.name)
	return err != nil
}

// entryPort cuts the port off an entry. A bare IPv6 address has none.
func entryPort(text string) (host string, port uint16, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 || strings.HasSuffix(text, "]") || strings.Count(text, ":") > 1 && !strings.HasPrefix(text, "[") {
		return text, 0, true
	}
	port, ok = parsePort(text[i+1:])
	return text[:i], port, ok
}

// has tells whether e lists the port.
func (e entry) has(port uint16) bool {
	return e.port == port || e.port == 0 && (port == 80 || port == 443 || e.machine())
}

// machine tells whether e is this machine itself, by its one address or by name. An entry for it without a port means the programs that
// listen here, which have no usual port.
func (e entry) machine() bool {
	return e.name == "localhost" || e.addrs.IsValid() && e.addrs.IsSingleIP() && e.addrs.Addr().IsLoopback()
}

// lists tells whether e lists the host, whatever the port.
func (e entry) lists(host string, a netip.Addr) bool {
	switch {
	case a.IsValid():
		return e.addrs.IsValid() && e.addrs.Contains(a)
	case e.wildcard:
		return strings.HasSuffix(host, "."+e.name)
	}
	return e.name != "" && e.name == host
}

// names tells whether an entry names the host exactly.
func (r rules) names(host string) bool {
	return slices.ContainsFunc(r.entries, func(e entry) bool { return !e.wildcard && e.name == host })
}

// opens tells whether an entry opens an address that is not public, for a request to the host.
func (r rules) opens(host string, to netip.AddrPort) bool {
	a := to.Addr()
	if never(a) {
		return false
	}
	return slices.ContainsFunc(r.entries, func(e entry) bool {
		if e.name == "localhost" && host == "localhost" && a.IsLoopback() {
			return e.has(to.Port())
		}
		// An address without a port is opened for whatever port the entry with the name allows.
		return e.addrs.IsValid() && e.addrs.Contains(a) && (e.port == 0 || e.port == to.Port())
	})
}

// permits judges scheme, host and port against the policy.
func (r rules) permits(t *target) *Blocked {
	refuse := func(reason, remedy string) *Blocked {
		return &Blocked{Stage: "policy", Reason: reason, remedy: remedy}
	}
	if !slices.Contains(r.protocols, t.url.Scheme) {
		return refuse("The protocol "+t.url.Scheme+" is not allowed.", "Use https if the server has it; an operator can add "+t.url.Scheme+" to comm.protocols.")
	}
	listed := len(r.entries) == 0
	if listed && (entry{}).has(t.port) {
		return nil
	}
	for _, e := range r.entries {
		if e.lists(t.host, t.addr) {
			listed = true
			if e.has(t.port) {
				return nil
			}
		}
	}
	if !listed {
		return refuse(quote(t.host)+" is not in the list of allowed domains.", "An operator can add the domain to comm.allowed_domains.")
	}
	return refuse("Port "+strconv.Itoa(int(t.port))+" of "+quote(t.host)+" is not allowed.", "An operator can add the host with this port to comm.allowed_domains.")
}
