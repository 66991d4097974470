package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"sallyport.example/client"
)

// changes holds the changes since take was last called.
type changes struct {
	all   bool           // anything may have changed
	ids   []string       // approvals that changed, each once
	lost  error          // the gateway went away; tried again after wait
	wait  time.Duration  // of lost
	fresh *client.Client // the gateway is there again, and this is its client
	over  error          // it is no use to try again
}

// changed adds an approval.
func (n *changes) changed(id string) {
	if slices.Contains(n.ids, id) {
		return
	}
	if n.ids = append(n.ids, id); len(n.ids) > maxChanged {
		n.ids, n.all = nil, true
	}
}

// feed follows the gateway's events, and reconnects when the gateway goes away. A reader takes all changes since the last time at once, so it
// never falls behind.
type feed struct {
	bell  chan struct{} // has something while there are changes
	mu    sync.Mutex    // guards the rest
	fresh changes
}

const (
	firstWait = time.Second
	lastWait  = 30 * time.Second
)

// maxChanged bounds the ids that are kept. Beyond it, anything may have changed.
const maxChanged = 500

func newFeed() *feed { return &feed{bell: make(chan struct{}, 1)} }

func (f *feed) tell(change func(n *changes)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.fresh)
	select {
	case f.bell <- struct{}{}:
	default:
	}
}

func (f *feed) take() changes {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.fresh
	f.fresh = changes{}
	return n
}

// run follows until the context ends or a retry can't help. again makes a new client, since a gateway that was restarted can have
// another address. Between two tries it waits, longer each time.
func (f *feed) run(ctx context.Context, cl *client.Client, again func() (*client.Client, error), pause func(context.Context, time.Duration)) {
	wait, ever, there := firstWait, false, false
	for {
		err := f.follow(ctx, cl, func() {
			wait = firstWait
			if !there {
				there = true
				if ever {
					f.tell(func(n *changes) { n.fresh, n.lost = cl, nil })
				}
			}
			ever = true
		})
		if ctx.Err() != nil {
			return
		}
		var p *client.Problem
		if !ever || errors.As(err, &p) && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden) {
			f.tell(func(n *changes) { n.over = err })
			return
		}
		there = false
		f.tell(func(n *changes) { n.lost, n.wait, n.fresh = err, wait, nil })
		pause(ctx, wait)
		wait = min(2*wait, lastWait)
		if next, err := again(); err == nil {
			cl = next
		}
	}
}

// follow returns why the events ended.
func (f *feed) follow(ctx context.Context, cl *client.Client, heard func()) (why error) {
	for e, err := range cl.Events(ctx) {
		if err != nil {
			return err
		}
		heard()
		switch e.Topic {
		case "all", "plan":
			f.tell(func(n *changes) { n.all = true })
		case "approval":
			f.tell(func(n *changes) { n.changed(e.ID) })
		}
	}
	return errors.New("the events ended") // Events ends with an error or with the context
}

// pause waits, unless the context ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
