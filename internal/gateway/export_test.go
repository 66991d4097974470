package gateway

import "time"

// DropIdle drops the sessions that had no call since before, and tells how many are left in memory.
func (g *Gateway) DropIdle(before time.Time) int {
	g.sessions.dropIdle(before)
	return len(g.sessions.all())
}
