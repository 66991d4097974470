package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/changes"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

const (
	maxStreams      = 500
	streamsOfPerson = 20
	streamsOfSignIn = 4 // a browser has six connections to a host: one more, and the oldest ends
	// burstPause is the least time between two bursts. Changes in it are reported at its end, each topic once.
	burstPause = 250 * time.Millisecond
	// maxBurst bounds the events of one burst. More become the one event "all".
	maxBurst = 200
)

// plainID matches an id that can stand in the name of an event.
var plainID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// events tells a page that something changed: an event named after the topic ("approval"), and one after topic and id ("approval:appr_1").
func (c *Console) events(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	err := c.Stream(w, r, p, func() bool { _, ok := c.Principal(r); return ok }, func(change changes.Change) []string {
		history := []string{"event: " + change.Topic + "\ndata: 1\n\n"}
		if plainID.MatchString(change.ID) {
			history = append(history, "event: "+change.Topic+":"+change.ID+"\ndata: 1\n\n")
		}
		return history
	})
	if err != nil { // nobody looks at this answer, so it needs no navigation
		c.record(r, p, err)
		problem := problemOf(err)
		c.render(w, view{template: "problem", title: problem.Title, status: fault.Of(err).Code.HTTPStatus(), data: problem}, frame{})
	}
}

// limitPages ends the oldest stream of a sign-in when it has more than it may have. Streams of programs, which come with a token, are not
// limited here.
func (c *Console) limitPages(r *http.Request) (limited *http.Request, leave func()) {
	id := c.cookieOf(r)
	if id == "" {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	mine := &stream{func() { cancel(errNewer) }}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append(c.pages[id], mine)
	if len(all) > streamsOfSignIn {
		all[0].end()
		all = all[1:]
	}
	c.pages[id] = all
	return r.WithContext(ctx), func() {
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.pages[id] = slices.DeleteFunc(c.pages[id], func(s *stream) bool { return s == mine }); len(c.pages[id]) == 0 {
			delete(c.pages, id)
		}
	}
}

// stream is the open stream of a page.
type stream struct{ end func() }

// errNewer ends a stream for a newer one.
var errNewer = errors.New("newer pages are open")

// sendReload tells a page whose sign-in is over that something changed. The page then asks again and comes to the sign-in. After an error it
// would go on to look as if it were up to date.
func sendReload(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, "event: all\ndata: 1\n\n") // a client that is gone needs no answer
}

// Stream sends a person server-sent events about changes; form writes the events of one change. They only say that something changed: pages
// fetch the rest again, so that one place decides who may see what. The topic "all" comes first, since something can have changed before the
// stream began, and whenever a change was missed. The stream ends when the client goes, when the gateway closes, and when alive denies that the
// sign-in is good; it is asked before each write and every 15 seconds. With an error nothing was written: fault.LimitRate says that too many
// streams are open, fault.RoleMissing that a page of another site or port asks, which could use them up.
func (c *Console) Stream(w http.ResponseWriter, r *http.Request, p identity.Principal, alive func() bool, form func(changes.Change) []string) error {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return fault.New(fault.RoleMissing, "Pages of other sites are not told what changes.").At("Sec-Fetch-Site")
	}
	if !c.takeStream(p.ID) {
		return fault.New(fault.LimitRate, "Too many pages and streams of events are open.").Try("Close some; pages that are open keep what they show until they are loaded again.")
	}
	defer c.leaveStream(p.ID)
	r, leave := c.limitPages(r)
	defer leave()
	told, end := c.o.Gateway.Watch()
	defer end()
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	all := strings.Join(form(changes.Change{Topic: "all"}), "")
	write := func(text string) bool {
		if !alive() { // the page reconnects, and has to sign in
			_, _ = fmt.Fprint(w, all)
			_ = rc.Flush()
			return false
		}
		if _, err := fmt.Fprint(w, text); err != nil {
			return false
		}
		return rc.Flush() == nil
	}
	if !write("retry: 2000\n\n" + all) {
		return nil
	}
	beat := time.NewTicker(c.beat)
	defer beat.Stop()
	var pause <-chan time.Time // ends the collecting of a burst
	var burst []string         // in the order in which they came, each once
	tell := func(event string) {
		if len(burst) >= maxBurst {
			burst = []string{all}
		}
		if !slices.Contains(burst, event) {
			burst = append(burst, event)
		}
	}
	for {
		select {
		case <-r.Context().Done():
			if context.Cause(r.Context()) == errNewer { // it comes back later: if it came back at once, open pages would end one another
				_, _ = fmt.Fprint(w, "retry: 60000\n\n")
				_ = rc.Flush()
			}
			return nil
		case <-c.o.Closing:
			return nil
		case <-beat.C:
			if !write(": still here\n\n") {
				return nil
			}
		case change := <-told:
			if change.Topic == "" { // changes were missed
				change = changes.Change{Topic: "all"}
			}
			for _, event := range form(change) {
				tell(event)
			}
			if pause == nil {
				pause = time.After(burstPause)
			}
		case <-pause:
			text := strings.Join(burst, "")
			pause, burst = nil, nil
			if !write(text) {
				return nil
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
