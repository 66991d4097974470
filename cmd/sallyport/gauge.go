package main

import (
	"fmt"
	"io"
	"time"
)

// tellEvery is how often a gauge is written at most.
const tellEvery = 200 * time.Millisecond

// gauge tells a person at a terminal how far a long command is, on one line of standard error, which is gone at the end. Elsewhere it writes
// nothing. It belongs to one goroutine.
type gauge struct {
	out   io.Writer // nil: nobody looks
	doing string
	now   func() time.Time
	last  time.Time
	wrote bool
	bytes int64 // that were written to it
}

func (c *cli) gauge(doing string) *gauge {
	p := &gauge{doing: doing, now: time.Now, last: time.Now()} // what is over at once needs no words
	if terminal(c.err) {
		p.out = c.err
	}
	return p
}

func (p *gauge) say(format string, args ...any) {
	if p.out == nil || p.now().Sub(p.last) < tellEvery {
		return
	}
	p.last, p.wrote = p.now(), true
	fmt.Fprintf(p.out, "\r\x1b[K%s %s", p.doing, fmt.Sprintf(format, args...))
}

// of says how many of how many are done.
func (p *gauge) of(done, all int64) {
	share := int64(100)
	if all > 0 {
		share = 100 * min(done, all) / all
	}
	p.say("%d of %d (%d %%)", done, all, share)
}

// Write counts what passes.
func (p *gauge) Write(b []byte) (int, error) {
	p.bytes += int64(len(b))
	p.say("%.1f MB", float64(p.bytes)/1e6)
	return len(b), nil
}

// end takes the line away.
func (p *gauge) end() {
	if p.wrote {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	p.wrote = false
}
