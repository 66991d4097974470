// Package confirm asks a person at the terminal of the program that sent a request whether it is to be done.
//
// The gateway itself writes what would be done to the terminal, with a number. The request comes again with the number: so somebody has read that
// terminal, which no other program can but the one that shows it.
//
// Promises: a number is random, for one request of one person and for the terminal that it was shown at, and is used up by the next answer, right or
// wrong. What is shown moves no cursor. What was confirmed covers nothing but the request and what its route names beforehand, and that for the same
// process alone.
package confirm

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/caller"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/limit"
	"sallyport.example/internal/web"
)

// Header brings the word Able, or the number that the terminal shows.
const Header = "Sallyport-Confirmation"

// Able says that the program can ask its person for a number. Without it the gateway writes to no terminal.
const Able = "able"

const (
	answerTime = 2 * time.Minute // in which a number is good
	perMinute  = 20              // questions at one terminal, so that it is not flooded and no number is guessed
	maxShown   = 600             // bytes of what would be done
)

// Way is how people act where a terminal can't be asked.
const Way = "Give the command in a terminal of your own on the gateway's machine, without --output, or use the console."

// Request is what a person is asked about.
type Request struct {
	Person string
	Says   string // what would be done, and to what; text from outside may be in it
	Method string
	URI    string
	Body   []byte
}

func (r Request) digest() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %x", r.Person, r.Method, r.URI, sha256.Sum256(r.Body)))
}

// asked is a number that waits for its answer.
type asked struct {
	number string
	digest [sha256.Size]byte
	until  time.Time
}

// covered is where a process may send requests that need no confirmation of their own.
type covered struct {
	paths []string // that theirs begin with
	until time.Time
}

// Confirmations are the questions that wait, and what was confirmed. Safe for concurrent use.
type Confirmations struct {
	show  func(t caller.Terminal, text string) error
	clock func() time.Time

	mu      sync.Mutex // guards the rest
	rates   map[int]*limit.Window
	asked   map[int]asked // by terminal, as rates
	covered map[caller.Process]covered
}

// New returns Confirmations that ask with show.
func New(show func(t caller.Terminal, text string) error, clock func() time.Time) *Confirmations {
	return &Confirmations{show: show, clock: clock, rates: map[int]*limit.Window{}, asked: map[int]asked{}, covered: map[caller.Process]covered{}}
}

// Check returns nil where the request was confirmed at the terminal. Else it says why not: with the status 428 the terminal shows the number that the
// same request has to bring. by is whose request was confirmed; where an earlier confirmation covers it, nobody's. at finds the terminal of the program
// that sent the request.
func (c *Confirmations) Check(header string, at func() (caller.Terminal, error), r Request) (by caller.Process, err error) {
	terminal, err := at()
	if err == nil && c.covers(terminal.Process, r.URI) {
		return by, nil
	}
	switch {
	case err != nil:
		return by, refused("This needs your confirmation at a terminal, and %s.", err).Try(Way)
	case header == "":
		return by, refused("This needs your confirmation at a terminal, and the program that sent it asks for none.").Try(Way)
	case header == Able:
		return by, c.ask(terminal, r)
	}
	return terminal.Process, c.answer(terminal, header, r)
}

func refused(format string, args ...any) *fault.Error {
	return fault.New(fault.ConfirmationRequired, format, args...)
}

// ask shows what would be done. A question that waits at the terminal is replaced: its number confirms nothing any more.
func (c *Confirmations) ask(t caller.Terminal, r Request) error {
	now := c.clock()
	if wait, ok := c.rate(t).Take(now); !ok {
		return fault.New(fault.LimitRate, "This terminal was asked %d times within a minute.", perMinute).Try("Try again in %s.", wait.Round(time.Second))
	}
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		return err
	}
	number := fmt.Sprintf("%06d", n)
	c.mu.Lock()
	maps.DeleteFunc(c.asked, func(_ int, a asked) bool { return !now.Before(a.until) })
	c.asked[t.Device] = asked{number, r.digest(), now.Add(answerTime)}
	c.mu.Unlock()
	text := fmt.Sprintf("\r\nSallyport asks %s to confirm:\r\n  %s\r\nType %s and press Enter. Enter alone: nothing is done. ", display.Terminal(r.Person, maxShown), display.Terminal(r.Says, maxShown), number)
	if err := c.show(t, text); err != nil {
		c.mu.Lock()
		delete(c.asked, t.Device)
		c.mu.Unlock()
		return refused("This needs your confirmation at a terminal, and the gateway can't write to that of process %d: %s.", t.PID, err).Try(Way)
	}
	return web.WithStatus(http.StatusPreconditionRequired, // a question, so it is not on record as a refusal
		refused("This waits for the number that the terminal of process %d shows.", t.PID).Try("Send the request again with the number in %s.", Header))
}

// rate bounds the questions at a terminal. There are no more of these than terminals.
func (c *Confirmations) rate(t caller.Terminal) *limit.Window {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.rates[t.Device]
	if !ok {
		w = limit.NewWindow(perMinute, time.Minute)
		c.rates[t.Device] = w
	}
	return w
}

// answer compares the number with the one that the terminal shows.
func (c *Confirmations) answer(t caller.Terminal, number string, r Request) error {
	c.mu.Lock()
	a, ok := c.asked[t.Device]
	delete(c.asked, t.Device)
	c.mu.Unlock()
	switch digest := r.digest(); {
	case !ok || !c.clock().Before(a.until):
		return refused("No number waits at your terminal, or not any more: nothing was done.").Try("Give the command again.")
	case subtle.ConstantTimeCompare([]byte(a.number), []byte(number)) == 0:
		return refused("That is not the number that your terminal shows: nothing was done.").Try("Give the command again.")
	case subtle.ConstantTimeCompare(a.digest[:], digest[:]) == 0:
		return refused("The number was shown for something else: nothing was done.").Try("Give the command again.")
	}
	return nil
}

// Cover lets a process that a person has just confirmed make requests to paths that begin with one of these, for a time, without another confirmation.
func (c *Confirmations) Cover(by caller.Process, paths []string, d time.Duration) {
	now := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.covered, func(_ caller.Process, k covered) bool { return !now.Before(k.until) })
	c.covered[by] = covered{paths, now.Add(d)}
}

func (c *Confirmations) covers(by caller.Process, uri string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.covered[by]
	return ok && c.clock().Before(k.until) && slices.ContainsFunc(k.paths, func(path string) bool { return strings.HasPrefix(uri, path) })
}
