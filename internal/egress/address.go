package egress

import (
	"net"
	"net/netip"
)

// The tables here and those of code.dny.dev/ssrf are kept apart on purpose: an address is judged by these when it is read or resolved, and
// by that library when the socket is about to connect, so that an error in one is caught by the other. These also hold what the library has
// no reason to know: addresses that are public by the registries and serve a cloud's own machines, tunnels that carry an IPv4 address
// inside a global prefix, and what stays closed even where an operator opens private addresses.

// notPublic are the special-purpose blocks of the IANA registries, for IPv6 those inside 2000::/3 only.
var notPublic = prefixes(
	"0.0.0.0/8",         // this network; Linux takes 0.0.0.0 for loopback
	"10.0.0.0/8",        // private
	"100.64.0.0/10",     // carrier-grade NAT
	"127.0.0.0/8",       // loopback
	"168.63.129.16/32",  // Azure's wire server: a public address, answered by the host underneath
	"169.254.0.0/16",    // link-local, and with it most clouds' metadata
	"172.16.0.0/12",     // private
	"192.0.0.0/24",      // protocol assignments
	"192.0.2.0/24",      // documentation
	"192.31.196.0/24",   // AS112
	"192.52.193.0/24",   // AMT
	"192.88.99.0/24",    // 6to4 relays
	"192.168.0.0/16",    // private
	"192.175.48.0/24",   // AS112
	"198.18.0.0/15",     // benchmarks
	"198.51.100.0/24",   // documentation
	"203.0.113.0/24",    // documentation
	"224.0.0.0/4",       // multicast
	"240.0.0.0/4",       // reserved, and broadcast
	"2001::/23",         // protocol assignments: Teredo, ORCHID, anycast
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4
	"2620:4f:8000::/48", // AS112
	"3fff::/20",         // documentation
)

var globalUnicast = netip.MustParsePrefix("2000::/3")

// neverOpen lists the blocks that no entry opens: they hold no servers of an operator, they give credentials to any caller, or they are IPv6 forms
// of IPv4 addresses, which have to be written as IPv4.
var neverOpen = prefixes(
	"0.0.0.0/8",              // this network
	"100.100.100.200/32",     // Alibaba's metadata, inside carrier-grade NAT
	"168.63.129.16/32",       // Azure's wire server
	"169.254.0.0/16",         // link-local and metadata
	"192.0.0.192/32",         // Oracle's metadata
	"224.0.0.0/4",            // multicast
	"240.0.0.0/4",            // reserved, and broadcast
	"::/96",                  // unspecified and IPv4-compatible; loopback is excepted below
	"::ffff:0:0/96",          // IPv4-mapped
	"::ffff:0:0:0/96",        // IPv4-translated
	"64:ff9b::/96",           // NAT64
	"64:ff9b:1::/48",         // NAT64, local use
	"2001::/32",              // Teredo
	"2002::/16",              // 6to4
	"fd00:42::42/128",        // Scaleway's metadata
	"fd00:c1::a9fe:a9fe/128", // Oracle's metadata
	"fd00:ec2::/32",          // Amazon's metadata and other services of the host
	"fd20:ce::254/128",       // Google's metadata
	"fe80::/10",              // link-local
	"ff00::/8",               // multicast
)

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		all[i] = netip.MustParsePrefix(s)
	}
	return all
}

func within(a netip.Addr, blocks []netip.Prefix) bool {
	for _, p := range blocks {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// public tells whether a is an address of the internet at large. One with a zone is in no prefix, and so neither public nor ever opened.
func public(a netip.Addr) bool {
	if !a.IsValid() || a.Is6() && (!globalUnicast.Contains(a) || isatap(a)) {
		return false
	}
	return !within(a, notPublic)
}

// never tells whether a stays closed whatever the policy lists.
func never(a netip.Addr) bool {
	if a == netip.IPv6Loopback() {
		return false
	}
	return !a.IsValid() || isatap(a) || within(a, neverOpen)
}

// isatap tells whether the lower half of a says that the packet goes on to an IPv4 address inside the network.
func isatap(a netip.Addr) bool {
	b := a.As16()
	return a.Is6() && b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// local tells whether a is an address of this machine. If that can't be determined, it counts as one.
func local(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, i := range addrs {
		if p, ok := i.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(p.IP); ok && ip.Unmap() == a {
				return true
			}
		}
	}
	return false
}
