package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

// shownPlans is how many of the plans that wait stand above the queue; the newest do. The questions that silence permits come below them.
const shownPlans = 5

// plansPart shows the plans that wait, above the queue.
type plansPart struct {
	Plans    []session.Session // the newest
	All      int64
	Operator bool
	More     bool   // there are more plans
	Seen     string // identifies what the page shows, so that it is only sent again when it changed
}

func (c *Console) plansOf(ctx context.Context, p identity.Principal) (plansPart, error) {
	newest, all, err := c.o.Gateway.WaitingPlans(ctx, shownPlans)
	d := plansPart{Plans: newest, All: all, More: all > int64(len(newest)), Operator: p.Has(identity.Operator)}
	var digests strings.Builder
	fmt.Fprintln(&digests, all)
	for _, s := range newest {
		fmt.Fprintln(&digests, s.ID, s.Plan.Digest)
	}
	d.Seen = call.HashBytes([]byte(digests.String()))
	return d, err
}

// plansWaiting sends the part again if it changed. A button that somebody is about to press must not be replaced without need.
func (c *Console) plansWaiting(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	d, err := c.plansOf(ctx, p)
	switch {
	case err != nil:
		c.fail(w, r, p, err)
	case d.Seen == r.URL.Query().Get("seen"):
		w.WriteHeader(http.StatusNoContent)
	default:
		c.part(w, "plans", d)
	}
}
