package gateway

import "time"

// DropIdle drops the sessions that had no call since before, and tells how many are left in memory.
func (g *Gateway) DropIdle(before time.Time) int {
	g.sessions.dropIdle(before)
	return len(g.sessions.all())
}

// Shed bounds what the index of what sessions have seen takes, and tells how much that is before and after.
func (g *Gateway) Shed(most int64) (before, after int64) {
	size := func() (n int64) {
		for _, l := range g.sessions.all() {
			n += l.seen.Size()
		}
		return n
	}
	before = size()
	g.sessions.shed(most)
	return before, size()
}

// Composed is the request as a built-in operation makes one.
func Composed(r Request) Request {
	r.composed = true
	return r
}
