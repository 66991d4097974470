package httpapi

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sallyport.example/internal/caller"
	"sallyport.example/internal/fault"
)

// Requests by programs of governed sessions are refused, and those whose program can't be seen; pulling a switch waits for no look.
func TestWhoIsRefusedBehindAConnection(t *testing.T) {
	for name, c := range map[string]struct {
		peer    sight
		refused bool
	}{
		"nobody is governed":  {sight{}, false},
		"a governed program":  {sight{Peer: caller.Peer{Governed: 7}}, true},
		"a server's program":  {sight{Peer: caller.Peer{Started: 7}}, true},
		"nobody waits":        {sight{Peer: caller.Peer{Gone: true}}, true},
		"not seen in time":    {sight{late: true}, true},
		"governed, seen late": {sight{Peer: caller.Peer{Governed: 7}, late: true}, true},
	} {
		for path, stops := range map[string]bool{
			"/v1/sessions": false, "/v1/approvals/x/approve": false, "/agents/kill-switch/enable": false, "/agents/worker/unkill": false, "/unkill": false, "/v1/sessions/next/kill": false,
			"/agents/kill-switch/disable": true, "/agents/kill-switch/disable/worker": true, "/agents/worker/kill": true, "/kill": true,
		} {
			looked := false
			look := func() sight { looked = true; return c.peer }
			r := httptest.NewRequest("POST", path, nil)
			err := outside(r.WithContext(context.WithValue(r.Context(), connectionKey{}, look)))
			if want := c.refused && !stops; (err != nil) != want || want && !fault.Is(err, fault.PermissionDenied) || looked == stops {
				t.Errorf("%s, POST %s: %v, looked: %t", name, path, err, looked)
			}
		}
	}
	if err := outside(httptest.NewRequest("GET", "/v1/sessions", nil)); err != nil {
		t.Errorf("a connection that nobody could look at: %v", err)
	}
}

// A process that makes looking hang holds nobody up for long, and not more of them than there are places.
func TestLookingHangs(t *testing.T) {
	a := &API{looking: make(chan struct{}, lookAtOnce)}
	never := make(chan struct{})
	var waiting sync.WaitGroup
	for range lookAtOnce + 2 {
		waiting.Go(func() {
			if got := a.look(func() caller.Peer { <-never; return caller.Peer{} }); !got.late {
				t.Errorf("%+v", got)
			}
		})
	}
	waiting.Wait()
	if len(a.looking) != lookAtOnce {
		t.Errorf("%d hang", len(a.looking))
	}
	close(never)
	if got := a.look(func() caller.Peer { return caller.Peer{Governed: 7} }); got.late || got.Governed != 7 {
		t.Errorf("%+v", got)
	}
}

// Many callers at once are looked at in turn: none is refused for the number of the others.
func TestManyCallersWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &API{looking: make(chan struct{}, lookAtOnce)}
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				got := a.look(func() caller.Peer { time.Sleep(lookTime / 4); return caller.Peer{Governed: i + 1} })
				if got.late || got.Governed != i+1 {
					t.Errorf("caller %d: %+v", i, got)
				}
			})
		}
		all.Wait()
		if n := a.hanging.Load(); n != 0 {
			t.Errorf("%d hang", n)
		}
	})
}
