package console

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"sallyport/internal/fault"
	"sallyport/internal/gateway"
	"sallyport/internal/identity"
	"sallyport/internal/session"
)

const (
	pageOfOpen = 500 // open sessions that are read at once, to find the plans that wait
	shownPlans = 5   // of them, the newest: what runs unless it is stopped stands below
)

// planQueue knows which sessions have a plan that waits for a person. The store can't be asked for them, so every open session is read once, and
// from then on those that changed, when somebody asks.
type planQueue struct {
	turn    chan struct{}         // holds one, and guards what follows: nobody waits here longer than for the store
	changes <-chan gateway.Change // nil: nobody has asked
	whole   bool                  // waiting has every one, but for what is in changes
	waiting map[string]session.Session
}

func planWaits(s session.Session) bool {
	return s.State == session.Open && s.Plan != nil && s.Plan.State == session.PlanPending
}

// plans are the sessions with a plan that waits, the newest first.
func (c *Console) plans(ctx context.Context) ([]session.Session, error) {
	q := &c.planQueue
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return nil, fault.Wrap(ctx.Err(), fault.StoreUnavailable, "")
	}
	if q.changes == nil {
		q.changes, _ = c.o.Gateway.Watch(gateway.SessionChanged) // for as long as there is a gateway
	}
	changed := map[string]bool{}
	for len(q.changes) > 0 {
		if change := <-q.changes; change.Topic == "" { // some were missed
			q.whole = false
		} else {
			changed[change.ID] = true
		}
	}
	if !q.whole {
		if err := c.readPlans(ctx, q); err != nil {
			return nil, err
		}
		changed = nil // all were told of before it was read
	}
	for id := range changed {
		s, err := c.o.Gateway.SessionByID(ctx, id)
		switch {
		case err == nil && planWaits(s):
			q.waiting[id] = s
		case err == nil || fault.Is(err, fault.NotFound):
			delete(q.waiting, id)
		default:
			q.whole = false // it is not known any more
			return nil, err
		}
	}
	all := make([]session.Session, 0, len(q.waiting))
	for _, s := range q.waiting {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b session.Session) int { return strings.Compare(b.ID, a.ID) })
	return all, nil
}

// readPlans reads every open session. It is the caller's turn.
func (c *Console) readPlans(ctx context.Context, q *planQueue) error {
	waiting := map[string]session.Session{}
	for after := ""; ; {
		page, err := c.o.Store.SessionsPage(ctx, after, pageOfOpen, session.Open)
		if err != nil {
			return err
		}
		for _, s := range page {
			if planWaits(s) {
				waiting[s.ID] = s
			}
		}
		if len(page) < pageOfOpen {
			q.waiting, q.whole = waiting, true
			return nil
		}
		after = page[len(page)-1].ID
	}
}

// plansPart is the plans that wait, above the queue.
type plansPart struct {
	Plans    []session.Session // the newest
	All      int
	Operator bool
	Seen     string // names what stands there, so that a page that has it is sent nothing
}

func (c *Console) plansOf(ctx context.Context, p identity.Principal) (plansPart, error) {
	all, err := c.plans(ctx)
	d := plansPart{Plans: all[:min(len(all), shownPlans)], All: len(all), Operator: p.Has(identity.Operator)}
	var digests strings.Builder
	for _, s := range all {
		digests.WriteString(s.Plan.Digest + "\n")
	}
	d.Seen = hashOf([]byte(digests.String()))
	return d, err
}

// plansWaiting sends the part anew, if it is not what the page has: sessions change with each call, and what somebody is about to press
// must not be put in its own place.
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
