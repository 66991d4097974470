package console

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"sallyport/internal/fault"
	"sallyport/internal/gateway"
	"sallyport/internal/identity"
)

const (
	maxStreams      = 500
	streamsOfPerson = 20
	// gap is the least time between two bursts: what changes meanwhile is told at its end, each topic once.
	gap = 250 * time.Millisecond
	// maxBurst bounds what is told at once; beyond it, it is "all".
	maxBurst = 200
)

// plainID is an id that can stand in the name of an event.
var plainID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// events tells a page that something changed: an event named after the topic ("approval"), and one after topic and id ("approval:appr_1").
// There is nothing else in it: the page fetches again what it shows, so that what may be seen is decided in one place. "all" comes first,
// since something can have changed after the page was made, and whenever a change was missed.
func (c *Console) events(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	if !c.takeStream(p.ID) {
		c.fail(w, r, p, fault.New(fault.LimitRate, "Too many pages are open.").Try("Close some; the others keep what they show until they are loaded again."))
		return
	}
	defer c.leaveStream(p.ID)
	changes, end := c.o.Gateway.Watch()
	defer end()
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	write := func(text string) bool {
		if _, ok := c.Principal(r); !ok { // the page asks again, and is told to sign in
			_, _ = fmt.Fprint(w, "event: all\ndata: 1\n\n")
			_ = rc.Flush()
			return false
		}
		if _, err := fmt.Fprint(w, text); err != nil {
			return false
		}
		return rc.Flush() == nil
	}
	if !write("retry: 2000\n\nevent: all\ndata: 1\n\n") {
		return
	}
	beat := time.NewTicker(c.beat)
	defer beat.Stop()
	var pause <-chan time.Time // runs while a burst is collected
	var burst []string         // in the order in which they came, each once
	tell := func(event string) {
		if len(burst) >= maxBurst {
			burst = []string{"all"}
		}
		if !slices.Contains(burst, event) {
			burst = append(burst, event)
		}
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-c.o.Closing:
			return
		case <-beat.C:
			if !write(": still here\n\n") {
				return
			}
		case change := <-changes:
			if change.Topic == "" { // some were missed
				change = gateway.Change{Topic: "all"}
			}
			tell(change.Topic)
			if plainID.MatchString(change.ID) {
				tell(change.Topic + ":" + change.ID)
			}
			if pause == nil {
				pause = time.After(gap)
			}
		case <-pause:
			text := ""
			for _, event := range burst {
				text += "event: " + event + "\ndata: 1\n\n"
			}
			pause, burst = nil, nil
			if !write(text) {
				return
			}
		}
	}
}

func (c *Console) takeStream(person string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := 0
	for _, n := range c.streams {
		all += n
	}
	if all >= maxStreams || c.streams[person] >= streamsOfPerson {
		return false
	}
	c.streams[person]++
	return true
}

func (c *Console) leaveStream(person string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[person]--; c.streams[person] == 0 {
		delete(c.streams, person)
	}
}
