package replay

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/store"
	"sallyport.example/provenance"
)

const (
	maxCompared  = 2000 // sessions; the newest are
	maxOtherwise = 1000 // calls that are named
)

// Comparison is what another configuration would have decided about recorded work. Both configurations are asked anew, so that what differs
// comes from the configuration alone, and not from what else has changed since.
type Comparison struct {
	Since     time.Time   `json:"since"`
	Sessions  int         `json:"sessions"`
	Calls     int         `json:"calls"` // that both configurations were asked about
	Was       Counted     `json:"was"`
	Now       Counted     `json:"now"`
	Totals    []Total     `json:"operations"` // those with the most changes first; never nil
	Otherwise []Otherwise `json:"otherwise"`  // calls that would be decided otherwise, oldest first; never nil
	More      int         `json:"more,omitempty"`
	Skipped   int         `json:"skipped,omitempty"` // calls that neither configuration says anything about
	Notes     []string    `json:"notes"`             // what keeps the answer from being the whole truth; never nil

	totals map[string]*Total
}

// Total is what becomes of the calls of one operation.
type Total struct {
	Operation string  `json:"operation"`
	Was       Counted `json:"was"`
	Now       Counted `json:"now"`
	Changed   int     `json:"changed"`
}

// Otherwise is a call that the two configurations decide differently.
type Otherwise struct {
	Session   string             `json:"session_id"`
	Agent     string             `json:"agent_id"`
	CallID    string             `json:"call_id"`
	At        time.Time          `json:"at"`
	Operation string             `json:"operation"`
	Recorded  string             `json:"recorded"` // the decision in the log
	Was       provenance.Verdict `json:"was"`
	Now       provenance.Verdict `json:"now"`
	Reason    string             `json:"reason"` // of the stricter one
}

// Compare judges what was called since a time under two configurations. told hears how many of how many sessions are done. What another stage refused
// then (permission, limits, phase …) is left out, and so are Cedar policies: they are not judged anew.
func Compare(ctx context.Context, log *store.Reader, was, now Config, since time.Time, told func(done, of int64)) (*Comparison, error) {
	c := &Comparison{Since: since.UTC(), Otherwise: []Otherwise{}, Totals: []Total{}, Notes: []string{}, totals: map[string]*Total{}}
	pins, err := log.Pins(ctx)
	if err != nil {
		return nil, err
	}
	hashes := map[string]string{}
	for _, p := range pins {
		hashes[p.Operation] = p.Hash
	}
	was, now = was.Pinned(hashes), now.Pinned(hashes)
	ids, more, err := calledSince(ctx, log, since)
	if err != nil {
		return nil, err
	}
	if more {
		c.Notes = append(c.Notes, "more sessions have calls since then; only the newest were looked at")
	}
	keeps := int64(64 << 20)
	for i, id := range ids {
		tape, err := Load(ctx, log, id, maxEntries, &keeps)
		if err == nil {
			err = c.session(ctx, tape, was, now)
		}
		if err != nil {
			return nil, err
		}
		told(int64(i+1), int64(len(ids)))
	}
	c.Sessions = len(ids)
	for _, t := range c.totals {
		c.Totals = append(c.Totals, *t)
		c.Was, c.Now, c.Calls = c.Was.Add(t.Was), c.Now.Add(t.Now), c.Calls+t.Was.Calls
	}
	slices.SortFunc(c.Totals, func(a, b Total) int {
		return cmp.Or(cmp.Compare(b.Changed, a.Changed), cmp.Compare(b.Was.Calls, a.Was.Calls), cmp.Compare(a.Operation, b.Operation))
	})
	slices.SortStableFunc(c.Otherwise, func(a, b Otherwise) int { return a.At.Compare(b.At) })
	if c.More = len(c.Otherwise) - maxOtherwise; c.More > 0 {
		c.Otherwise = c.Otherwise[:maxOtherwise]
	}
	c.More = max(0, c.More)
	return c, nil
}

// Pinned is the configuration that labels each tool as the definition has it that was accepted, by operation.
func (c Config) Pinned(hashes map[string]string) Config {
	classify, classes := c.Classify, map[string]catalogue.Classification{}
	c.Classify = func(server, tool string) catalogue.Classification {
		id := server + "." + tool
		class, ok := classes[id]
		if !ok {
			class = classify(server, tool).For(hashes[id])
			classes[id] = class
		}
		return class
	}
	return c
}

// calledSince returns the sessions with calls since a time. more says that there are older ones.
func calledSince(ctx context.Context, log *store.Reader, since time.Time) (ids []string, more bool, err error) {
	last := map[string]int64{} // the newest entry about a call
	for f := (audit.Filter{From: since, Limit: 1000}); ; {
		page, next, err := log.Entries(ctx, f)
		if err != nil {
			return nil, false, err
		}
		for _, e := range page {
			if e.CallID != "" && e.Session != "" {
				last[e.Session] = e.Index
			}
		}
		if next < 0 {
			break
		}
		f.Min = next + 1
	}
	ids = slices.SortedFunc(maps.Keys(last), func(a, b string) int { return cmp.Compare(last[a], last[b]) })
	if len(ids) > maxCompared {
		return ids[len(ids)-maxCompared:], true, nil
	}
	return ids, false, nil
}

// session adds the calls of a session.
func (c *Comparison) session(ctx context.Context, t *Tape, was, now Config) error {
	before, err := replayed(ctx, t, was, t.session.ID, true)
	if err != nil {
		return err
	}
	after, err := replayed(ctx, t, now, t.session.ID, true)
	if err != nil {
		return err
	}
	if t.cut || t.archived != nil {
		c.Notes = append(c.Notes, "a part of "+t.session.ID+" was not looked at")
	}
	waits := map[string]bool{} // a call that is repeated while it waits is one
	for i, one := range before.order {
		other := after.order[i] // both read the same entries
		key := one.Operation + "\x00" + string(one.args)
		repeated := waits[key]
		if waits[key] = one.Then.Decision == "ask" && !before.ran[one.CallID]; repeated {
			continue
		}
		if one.At.Before(c.Since) || one.Then.Decision == "deny" && one.Then.Stage != "flow" {
			continue
		}
		if one.Now == nil && other.Now == nil {
			c.Skipped++
			continue
		}
		c.call(t, one, other)
	}
	return nil
}

// call adds one call.
func (c *Comparison) call(t *Tape, one, other *pastCall) {
	was, wasWhy := one.decided()
	now, nowWhy := other.decided()
	total := c.totals[one.Operation]
	if total == nil {
		total = &Total{Operation: one.Operation}
		c.totals[one.Operation] = total
	}
	total.Was, total.Now = total.Was.Add(counted(was)), total.Now.Add(counted(now))
	if was == now {
		return
	}
	total.Changed++
	o := Otherwise{t.session.ID, t.session.Agent, one.CallID, one.At, one.Operation, one.Then.Decision, was, now, wasWhy}
	if slices.Index(strictness, now) > slices.Index(strictness, was) {
		o.Reason = nowWhy
	}
	c.Otherwise = append(c.Otherwise, o)
}

// decided is what a configuration decides about the call, with why. One that makes no operation of it refuses it.
func (c *pastCall) decided() (provenance.Verdict, string) {
	if c.Now == nil {
		return provenance.Deny, c.Note
	}
	return c.Now.Decision, c.Now.Reason
}

func counted(v provenance.Verdict) Counted {
	n := Counted{Calls: 1}
	switch v {
	case provenance.Ask:
		n.Questions = 1
	case provenance.Deny:
		n.Refused = 1
	}
	return n
}
