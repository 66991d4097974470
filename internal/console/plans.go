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

// shownPlans of those that wait stand above the queue, the newest: what runs unless it is stopped stands below.
const shownPlans = 5

// plansPart is the plans that wait, above the queue.
type plansPart struct {
	Plans    []session.Session // the newest
	All      int64
	Operator bool
	More     bool   // there are others than those
	Seen     string // names what stands there, so that a page that has it is sent nothing
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

// plansWaiting sends the part anew, if it is not what the page has: what somebody is about to press must not be put in its own place.
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
