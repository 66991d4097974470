package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"sallyport.example/internal/caller"
	"sallyport.example/internal/fault"
)

type connectionKey struct{}

// ConnContext lets requests of the people's side be refused that come from programs of governed sessions on this machine. It is for the server of Admin.
func (a *API) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	server, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return ctx
	}
	client, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || !client.Addr().Unmap().IsLoopback() {
		return ctx
	}
	return context.WithValue(ctx, connectionKey{}, sync.OnceValue(func() caller.Peer { return caller.OfConnection(server, client) }))
}

// outside refuses a person's request by a program of a governed session, whatever credential it found. It is asked once the credential is good, since
// looking for the program takes a moment, which nobody else may spend.
func outside(r *http.Request) error {
	look, ok := r.Context().Value(connectionKey{}).(func() caller.Peer)
	if !ok {
		return nil
	}
	switch peer := look(); {
	case peer.Governed != 0:
		return fault.New(fault.PermissionDenied, "People's requests are refused inside a governed session: process %d is in one.", peer.Governed).
			Try("Ask your person.")
	case peer.Gone:
		return fault.New(fault.PermissionDenied, "The program that sent this request did not wait for its answer, so it can't be seen whether it is governed.")
	}
	return nil
}
