package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/internal/caller"
	"sallyport.example/internal/fault"
)

// Bounds of a look at processes, which can be slow, and which a process can make hang. Many callers at once wait for their turn, in the order in which they
// came, as long as looks come to an end.
const (
	lookTime   = 2 * time.Second
	lookAtOnce = 4
	queueTime  = 30 * time.Second
)

type connectionKey struct{}

// sight is who is behind a connection. late: it was not seen in time.
type sight struct {
	caller.Peer
	late bool
}

// ConnContext lets requests of the people's side be refused that come from programs of governed sessions on this machine, or from the gateway's own
// servers, which an agent could have bring them; on the agents' side it is about hosts. It is for the servers of both sides.
func (a *API) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	server, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return ctx
	}
	client, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || !client.Addr().Unmap().IsLoopback() {
		return ctx
	}
	ctx = context.WithValue(ctx, addressesKey{}, addresses{server, client})
	return context.WithValue(ctx, connectionKey{}, sync.OnceValue(func() sight {
		return a.look(func() caller.Peer { return caller.OfConnection(server, client, a.o.Process) })
	}))
}

// look waits for find no longer than lookTime, and for its turn no longer than queueTime. At most lookAtOnce of them hang; once that many do, nobody waits
// for a turn longer than lookTime.
func (a *API) look(find func() caller.Peer) sight {
	if !a.turn() {
		return sight{late: true}
	}
	late := time.NewTimer(lookTime)
	defer late.Stop()
	found := make(chan caller.Peer, 1)
	var over atomic.Bool // set by whoever comes first: the end of the look, or that of its time
	go func() {
		defer func() { <-a.looking }()
		peer := find()
		if !over.CompareAndSwap(false, true) {
			a.hanging.Add(-1)
		}
		found <- peer
	}()
	select {
	case peer := <-found:
		return sight{Peer: peer}
	case <-late.C:
		if over.CompareAndSwap(false, true) {
			a.hanging.Add(1)
			return sight{late: true}
		}
		return sight{Peer: <-found}
	}
}

// turn waits for a place to look from. It is false where none comes.
func (a *API) turn() bool {
	queue := time.NewTimer(queueTime)
	defer queue.Stop()
	check := time.NewTicker(lookTime)
	defer check.Stop()
	for {
		select {
		case a.looking <- struct{}{}:
			return true
		case <-check.C:
			if a.hanging.Load() == lookAtOnce {
				return false
			}
		case <-queue.C:
			return false
		}
	}
}

// outside refuses a person's or a host's request by a program of a governed session, or one that the gateway started, whatever credential it found. It is asked once the credential is good, since
// looking for the program takes a moment, which nobody else may spend. Stopping waits for nothing (docs/design.md, rule 4), not for this either.
func outside(r *http.Request) error {
	look, ok := r.Context().Value(connectionKey{}).(func() sight)
	if !ok || stops(r) {
		return nil
	}
	switch peer := look(); {
	case peer.Governed != 0:
		return fault.New(fault.PermissionDenied, "People's and hosts' requests are refused inside a governed session: process %d is in one.", peer.Governed).
			Try("Ask your person.")
	case peer.Started != 0:
		return fault.New(fault.PermissionDenied, "People's and hosts' requests are refused to what the gateway itself started: process %d is a server's or a program's.", peer.Started)
	case peer.Gone:
		return fault.New(fault.PermissionDenied, "The program that sent this request did not wait for its answer, so the gateway can't tell whether it runs in a governed session.")
	case peer.late:
		return fault.New(fault.PermissionDenied, "The gateway could not tell in time whether the program that sent this request runs in a governed session.").
			Try("Try again. If that doesn't help, look for a process on this machine that hangs.")
	}
	return nil
}

// stops tells whether the request pulls a kill switch, over HTTP or in the console.
func stops(r *http.Request) bool {
	path := r.URL.Path
	return r.Method == http.MethodPost &&
		(path == "/kill" || strings.HasPrefix(path, "/agents/kill-switch/disable") || strings.HasPrefix(path, "/agents/") && strings.HasSuffix(path, "/kill"))
}
