package notify

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	mathrand "math/rand/v2"
	"time"
)

const (
	// Burst is how many messages of one event a channel carries at once, and the most that wait without becoming a digest.
	Burst = 20
	every = 3 * time.Second // between two messages after a burst

	foldBatch = 500 // notices that one transaction makes a digest of: a decision may wait for the same disk

	tryTime      = 10 * time.Second // one try
	grace        = 2 * time.Second  // for a try that is under way when everything stops
	longestPause = 5 * time.Minute
	longestAfter = time.Hour // the longest pause that a receiver may ask for
	refusedPause = time.Minute
	refusedTries = 3
	giveUpAfter  = 24 * time.Hour
	keep         = 7 * 24 * time.Hour
)

// failure is the reason why a try failed. Its text is for people, without address and secrets.
type failure struct {
	why     string
	sent    bool          // it reached some recipients, who would get it twice if it were tried again
	refused bool          // the receiver refused this message; it may take others
	final   bool          // it will never take this one
	after   time.Duration // pause that the receiver asks for, or 0
}

func (f *failure) Error() string { return f.why }

// worker delivers for one channel. Its goroutine owns all fields but wake.
type worker struct {
	channel *Channel
	wake    chan struct{} // holds one
	paces   map[Event]*pace

	failures  int       // tries in a row that failed, not counting refused messages
	rests     time.Time // no try before this time
	storeDown bool      // so that the log has one line about an outage
	// settle writes the outcome of the last try to the store; nil once that is done. Nothing is sent before, since it would be sent twice.
	settle func(context.Context) error
}

func newWorker(c *Channel) *worker {
	w := &worker{channel: c, wake: make(chan struct{}, 1), paces: map[Event]*pace{}}
	for _, e := range c.on {
		w.paces[e] = new(pace)
	}
	return w
}

// pace lets Burst messages go at once, and then one after each pause.
type pace struct{ full time.Time } // when a whole burst may go again

// wait is the time until the next message may go; it may go now if that is not above 0.
func (p *pace) wait(now time.Time) time.Duration { return p.full.Add(-(Burst - 1) * every).Sub(now) }

func (p *pace) take(now time.Time) {
	if p.full.Before(now) {
		p.full = now
	}
	p.full = p.full.Add(every)
}

// idle is the pause of a worker that has nothing to do until it is woken.
const idle = time.Duration(1<<63 - 1)

func (n *Notifier) work(ctx context.Context, w *worker) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait := n.step(ctx, w)
		if wait <= 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-w.wake:
		}
	}
}

// step does one thing for the channel, if there is one to do, and returns the time until there may be another.
func (n *Notifier) step(ctx context.Context, w *worker) time.Duration {
	now := time.Now()
	if w.settle != nil {
		if wait := n.writeOutcome(ctx, w); wait > 0 {
			return wait
		}
	}
	if wait := w.rests.Sub(now); wait > 0 {
		return wait
	}
	wait := idle
	for _, e := range w.channel.on {
		if d := w.paces[e].wait(now); d > 0 {
			wait = min(wait, d)
			continue
		}
		waiting, err := n.store.WaitingNotices(ctx, w.channel.name, e, Burst+1)
		if err != nil {
			return n.outage(ctx, w, err)
		}
		w.storeDown = false
		switch due := dueBy(waiting, now); {
		case len(waiting) == 0:
		case due == 0:
			wait = min(wait, waiting[0].Due.Sub(now))
		case due > Burst:
			if err := n.fold(ctx, w, e, now); err != nil {
				return n.outage(ctx, w, err)
			}
			return 0
		default:
			w.paces[e].take(now)
			n.try(ctx, w, waiting[0])
			return n.writeOutcome(ctx, w)
		}
	}
	return wait
}

// dueBy counts the notices that are due; they come first.
func dueBy(waiting []Notice, now time.Time) (due int) {
	for due < len(waiting) && !waiting[due].Due.After(now) {
		due++
	}
	return due
}

// outage returns the pause after an error of the store.
func (n *Notifier) outage(ctx context.Context, w *worker, err error) time.Duration {
	if !w.storeDown && ctx.Err() == nil {
		w.storeDown = true
		n.log.Warn("notifications wait for the store", "kind", w.channel.kind, "target", w.channel.target, "error", err)
	}
	return time.Second
}

// writeOutcome writes the outcome of the last try to the store.
func (n *Notifier) writeOutcome(ctx context.Context, w *worker) time.Duration {
	if w.settle == nil {
		return 0
	}
	if err := w.settle(context.WithoutCancel(ctx)); err != nil {
		return n.outage(ctx, w, err)
	}
	w.settle, w.storeDown = nil, false
	return 0
}

// fold makes one notice of all that are due, in batches.
func (n *Notifier) fold(ctx context.Context, w *worker, e Event, now time.Time) error {
	for {
		many, err := n.store.WaitingNotices(ctx, w.channel.name, e, foldBatch)
		if err != nil {
			return err
		}
		full := len(many) == foldBatch
		if many = many[:dueBy(many, now)]; len(many) < 2 {
			return nil
		}
		ids, letters := make([]int64, len(many)), make([]letter, len(many))
		into := Notice{Channel: w.channel.name, Key: "digest:" + rand.Text(), Event: e, Due: now} // a later batch includes it
		for i, one := range many {
			ids[i] = one.ID
			if letters[i], err = read(one); err != nil {
				letters[i] = letter{} // a damaged one counts as one message
			}
			if one.Added.After(into.Added) { // a digest is as old as its newest notice, which has been tried the least
				into.Added = one.Added
			}
		}
		if into.Body, err = json.Marshal(n.digest(e, letters, now)); err != nil {
			return err
		}
		if err := n.store.FoldNotices(ctx, ids, into); err != nil || !full {
			return err
		}
	}
}

func read(one Notice) (l letter, err error) {
	err = json.Unmarshal(one.Body, &l)
	return l, err
}

// try delivers a notice once and leaves the writing of the outcome in settle.
func (n *Notifier) try(ctx context.Context, w *worker, one Notice) {
	l, err := read(one)
	if err != nil {
		err = &failure{why: "the store has it damaged", refused: true, final: true}
	} else {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryTime)
		defer cancel()
		defer context.AfterFunc(ctx, func() {
			select {
			case <-time.After(grace):
				cancel()
			case <-attempt.Done():
			}
		})()
		err = w.channel.sender.send(attempt, delivery(one.Channel, one.Key), l)
	}
	now := time.Now()
	f := new(failure)
	if err != nil && !errors.As(err, &f) {
		f = &failure{why: err.Error()}
	}
	if err == nil || f.sent {
		if f.sent {
			n.log.Warn("a notification did not reach everybody", "kind", w.channel.kind, "target", w.channel.target, "key", one.Key, "error", f.why)
		}
		if w.failures > 0 {
			n.log.Info("notifications are delivered again", "kind", w.channel.kind, "target", w.channel.target)
		}
		w.failures = 0
		w.settle = func(ctx context.Context) error { return n.store.NoticeSent(ctx, one.ID, now) }
		return
	}
	if ctx.Err() != nil {
		return // it was cut off and waits for the next start
	}
	tries := one.Tries + 1
	pause := backoff(tries)
	if f.refused {
		pause = refusedPause
	}
	due := now.Add(max(pause, min(f.after, longestAfter)))
	if f.final || f.refused && tries >= refusedTries || now.Sub(one.Added) >= giveUpAfter {
		due = time.Time{}
		n.log.Error("a notification was given up", "kind", w.channel.kind, "target", w.channel.target, "key", one.Key, "tries", tries, "error", f.why)
	}
	if !f.refused {
		if w.failures == 0 {
			n.log.Warn("notifications can't be delivered; they are tried again for a day", "kind", w.channel.kind, "target", w.channel.target, "error", f.why)
		}
		w.failures++
		w.rests = now.Add(max(backoff(w.failures), min(f.after, longestAfter)))
	}
	w.settle = func(ctx context.Context) error {
		return n.store.NoticeFailed(ctx, one.ID, tries, due, f.why, now)
	}
}

// backoff is the pause after so many tries: 1 s, 2 s, 4 s … 5 min, and of that a random part between half and all.
func backoff(tries int) time.Duration {
	d := longestPause
	if tries < 10 {
		d = min(d, time.Second<<(tries-1))
	}
	return d/2 + mathrand.N(d/2+1)
}
