package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"sallyport.example/internal/fault"
)

const (
	maxAnswer   = 64 // addresses of one name; more is no answer to work with
	maxAttempts = 6  // addresses of them that are tried
	minAttempt  = 2 * time.Second
)

// guardian is the second opinion on an address, see the tables. The policy judges ports.
var guardian = ssrf.New(ssrf.WithAnyPort())

var errNoAddress = errors.New("no address")

// resolve returns the addresses of t, all of them judged. The error is a *Blocked where a rule refuses one, ctx's, or how the name system failed.
func (c *Client) resolve(ctx context.Context, t *target) ([]netip.AddrPort, error) {
	refuse := func(stage, reason, remedy string) ([]netip.AddrPort, error) {
		return nil, &Blocked{Stage: stage, Reason: reason, remedy: remedy}
	}
	var addrs []netip.Addr
	switch {
	case t.addr.IsValid():
		addrs = []netip.Addr{t.addr}
	case t.host == "localhost": // what an entry opened is loopback, whatever a hosts file or a resolver says
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	default:
		var err error
		addrs, err = c.resolver.LookupNetIP(ctx, "ip", t.host+".")
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if len(addrs) == 0 {
			return nil, errNoAddress
		}
		if len(addrs) > maxAnswer {
			return refuse("resolve", quote(t.host)+" has more than "+strconv.Itoa(maxAnswer)+" addresses.", "")
		}
	}
	to := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		to[i] = netip.AddrPortFrom(a.Unmap(), t.port) // Go's resolver hands over IPv4 addresses in mapped form
		if c.own(to[i]) {
			return refuse("dial", quote(t.host)+" is this gateway.", "")
		}
	}
	for _, a := range to {
		if !public(a.Addr()) && !c.rules.opens(t.host, a) {
			return refuse("resolve", quote(t.host)+" has an address that is not public.", openable(a.Addr()))
		}
	}
	return to, nil
}

// Tunnel connects to a host and port that the policy permits for the protocol, as a proxy does for a program that speaks it. The
// addresses are vetted as for a request.
func (c *Client) Tunnel(ctx context.Context, protocol, hostport string) (net.Conn, error) {
	t, b := c.judge(protocol + "://" + hostport)
	if b != nil {
		return nil, b.fault(fault.EgressBlocked)
	}
	if t.url.Path != "" && t.url.Path != "/" || t.url.RawQuery != "" {
		return nil, fault.New(fault.EgressBlocked, "A tunnel leads to a host and a port, and nothing more.")
	}
	addrs, err := c.resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	return c.dial(ctx, t, addrs)
}

// own tells whether a connection there would end at the gateway itself.
func (c *Client) own(a netip.AddrPort) bool {
	return slices.ContainsFunc(c.ownAddrs, func(o netip.AddrPort) bool {
		return (o.Port() == 0 || o.Port() == a.Port()) &&
			(o.Addr().Unmap() == a.Addr() || o.Addr().IsUnspecified() && local(a.Addr()))
	})
}

// dial connects to the first of the vetted addresses that answers.
func (c *Client) dial(ctx context.Context, t *target, vetted []netip.AddrPort) (net.Conn, error) {
	d := &net.Dialer{
		// The last word: the socket exists and connects to exactly this address next.
		Control: func(network, address string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(address)
			if err == nil && slices.Contains(vetted, a) && !never(a.Addr()) && (network == "tcp4" || network == "tcp6") {
				if c.rules.opens(t.host, a) {
					return nil
				}
				if err = guardian.SafeAddrPort(a); err == nil {
					return nil
				}
			}
			return &Blocked{Stage: "dial", Reason: quote(t.host) + " leads to an address that is not permitted.", cause: err}
		},
	}
	if len(vetted) == 0 {
		return nil, &Blocked{Stage: "dial", Reason: quote(t.host) + " has no address."}
	}
	addrs := vetted[:min(len(vetted), maxAttempts)]
	var first error
	for i, a := range addrs {
		d.Timeout = 0
		if deadline, ok := ctx.Deadline(); ok && i < len(addrs)-1 { // leave time for the others
			d.Timeout = max(time.Until(deadline)/time.Duration(len(addrs)-i), minAttempt)
		}
		conn, err := c.connect(ctx, d, a)
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// link holds what is known of the one connection of an exchange, and its limits.
type link struct {
	left      atomic.Int64 // bytes that may still be read
	spent     atomic.Bool
	tlsFailed atomic.Bool
}

// boundConn ends a connection that brings more than it may, whatever the bytes claim to be: frames, headers, padding.
type boundConn struct {
	net.Conn
	link *link
}

func (c *boundConn) Read(p []byte) (int, error) {
	left := c.link.left.Load()
	if left <= 0 {
		c.link.spent.Store(true)
		return 0, errTooLarge
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), left)])
	c.link.left.Add(-int64(n))
	return n, err
}
