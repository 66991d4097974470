// Package monitor counts what happened, by the hour, and of the last hour by five minutes: from the entries of the log, and from nothing else.
//
// Promises: the counters are what a recount of the log gives, up to the entry that they name, whatever of it was handed over in memory (Note); they are kept
// in memory for a week, and counted anew after a start; they never hold up what writes the log. They are bounded: in an hour with more agents and codes than are kept apart, the rest
// counts for the agent Others.
//
// It also raises alerts (AU-4), which people acknowledge and resolve, and has the security figures (AU-5). Alerts are on record as entries, and a restart
// folds them from the log again. Each is raised once, however often the gateway stops.
package monitor

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
	"time"

	"sallyport.example/internal/audit"
)

// What happened.
type What string

const (
	Ran      What = "ran"      // a call was carried out
	Silent   What = "silent"   // of those that may run: silence permitted it
	Asked    What = "asked"    // a person was asked
	Approved What = "approved" // a person said yes
	Rejected What = "rejected" // a person said no
	Refused  What = "refused"  // a call, or what a door turned away
	Failed   What = "failed"   // a call was carried out and failed, or nobody knows its end
)

// Key is what is counted apart. Code says why a call was refused.
type Key struct {
	Agent string
	What  What
	Code  string
}

// Others is the agent of what is not counted apart.
const Others = "(others)"

// Fine is the shorter time by which is counted.
const Fine = 5 * time.Minute

const (
	keptHours = 7*24 + 1
	keptFine  = 13   // slots of Fine: an hour, and the one that is under way
	maxKeys   = 2000 // of one slot
	pageSize  = 1000
	lookEvery = time.Second

	// enoughNoted entries that were noted are counted at once; of more than maxNoted none is kept.
	enoughNoted = 256
	maxNoted    = 2048
)

// Of says what an entry counts as, and how often; n is 0 where it counts as nothing.
func Of(e audit.Entry) (k Key, n int64) {
	k.Agent = e.Agent
	switch e.Kind {
	case audit.Outcome:
		switch e.Decision {
		case "ok":
			k.What = Ran
		case "error", "unknown":
			k.What, k.Code = Failed, e.Code
		case "discarded":
			k.What, k.Code = Refused, e.Code
		}
	case audit.Intent:
		var detail struct {
			By string `json:"permitted_by"`
		}
		if json.Unmarshal(e.Detail, &detail) == nil && detail.By == "silence" {
			k.What = Silent
		}
	case audit.Decision:
		switch {
		case e.Action == "check": // nothing was to run
		case e.Action == "approval.ask":
			k.What = Asked
		case e.Decision == "deny" && e.Action == audit.Folded:
			var folded struct {
				Count int64 `json:"count"`
			}
			if json.Unmarshal(e.Detail, &folded) != nil {
				return k, 0
			}
			k.What, k.Code = Refused, e.Code
			return k, max(folded.Count, 0)
		case e.Decision == "deny":
			k.What, k.Code = Refused, e.Code
		}
	case audit.Change:
		switch e.Action {
		case "approval.approve":
			k.What = Approved
		case "approval.reject":
			k.What = Rejected
		}
	}
	if k.What == "" {
		return k, 0
	}
	return k, 1
}

// Unasked is the operation that an entry says ran without anybody being asked: no person was, and no silence was waited for. "": the entry says no such thing.
func Unasked(e audit.Entry) string {
	if e.Kind != audit.Intent || e.Shadow || e.Model != "" || len(e.Approvers) > 0 {
		return ""
	}
	var detail struct {
		Approval string `json:"approval_id"`
	}
	if len(e.Detail) > 0 && (json.Unmarshal(e.Detail, &detail) != nil || detail.Approval != "") {
		return ""
	}
	return e.Operation
}

// ModelKey is what is counted apart of requests to models.
type ModelKey struct {
	Agent string // "": the gateway itself
	Model string
	For   string // what the gateway itself asked for: the action of the entries; "" of an agent's requests
}

// ModelUse is what requests to a model came to.
type ModelUse struct {
	Answered, Refused, Failed int64
	Input, Output             int64         // tokens
	Cost                      int64         // millionths of the currency
	Outside                   int64         // calls that answers asked for of functions that are nothing of the gateway
	Streamed                  int64         // answers whose first text left before their outcome
	First                     time.Duration // from the request to that text, of all of these together
}

// Plus adds what other requests came to.
func (u ModelUse) Plus(o ModelUse) ModelUse {
	return ModelUse{u.Answered + o.Answered, u.Refused + o.Refused, u.Failed + o.Failed, u.Input + o.Input, u.Output + o.Output, u.Cost + o.Cost, u.Outside + o.Outside, u.Streamed + o.Streamed, u.First + o.First}
}

// maxUse bounds each number of one entry, so that no sum of them wraps.
const maxUse = 1 << 40

// OfModel says what an entry counts as of a request to a model; false where it is of none, or counts as nothing.
func OfModel(e audit.Entry) (k ModelKey, u ModelUse, is bool) {
	if e.Model == "" {
		return k, u, false
	}
	what, n := Of(e)
	if n <= 0 {
		return k, u, false
	}
	switch what.What {
	case Ran:
		u.Answered = n
	case Refused:
		u.Refused = n
	case Failed:
		u.Failed = n
	default:
		return k, u, false
	}
	var detail struct {
		Tokens  struct{ Input, Output int64 }
		Cost    int64            `json:"cost_millionths"`
		First   *int64           `json:"first_ms"`
		Outside map[string]int64 `json:"ungoverned"`
	}
	if e.Kind == audit.Outcome && json.Unmarshal(e.Detail, &detail) == nil {
		bounded := func(n int64) int64 { return min(max(n, 0), maxUse) }
		u.Input, u.Output, u.Cost = bounded(detail.Tokens.Input), bounded(detail.Tokens.Output), bounded(detail.Cost)
		for _, n := range detail.Outside {
			u.Outside += bounded(n)
		}
		if detail.First != nil {
			u.Streamed, u.First = 1, time.Duration(bounded(*detail.First))*time.Millisecond
		}
	}
	if e.Agent == "" || e.Actor == "gateway" { // a judge of results is no request of the agent, though its quotas have it
		return ModelKey{Model: e.Model, For: e.Action}, u, true
	}
	return ModelKey{Agent: e.Agent, Model: e.Model}, u, true
}

// Log is where entries are read.
type Log interface {
	Size(ctx context.Context) (int64, error)
	// Entries returns the entries that match, the oldest first. next is the last index that was looked at, or -1 where there is nothing more.
	Entries(ctx context.Context, f audit.Filter) (page []audit.Entry, next int64, err error)
	// Record appends entries, all or none.
	Record(ctx context.Context, entries ...audit.Entry) error
}

// Counters are the counters. Make them with New, and have Run run. Safe for concurrent use.
type Counters struct {
	log  Log
	now  func() time.Time
	warn *slog.Logger

	onAlert func(Alert) // nil: nobody is told
	told    bool        // of what was open at the start; who holds acts

	acts       sync.Mutex // held by who writes an entry about an alert, from the look at the alert on
	reading    sync.Mutex // held by who reads the log, or takes what was noted
	readBefore bool       // what became of alerts before what is counted

	mu    sync.Mutex // guards the rest; the maps themselves stay the same
	hours map[time.Time]*Slot
	fine  map[time.Time]*Slot // of Fine
	uses  map[time.Time]map[ModelKey]ModelUse
	to    int64 // the next entry to be counted
	begun bool
	spare []audit.Entry // memory for noted

	totals totals

	notedMu sync.Mutex // guards noted alone, so that Note waits for no counting
	noted   []audit.Entry
	enough  chan struct{} // holds one

	alerts   alerts
	security map[time.Time]*securityHour
	verdicts map[int64]verdict // by entry: what people said of it last
	started  time.Time         // when New was called
	acted    int64             // intents in the log since
}

// New returns counters that have counted nothing.
func New(log Log, now func() time.Time, warn *slog.Logger) *Counters {
	return &Counters{log: log, now: now, warn: warn, hours: map[time.Time]*Slot{}, fine: map[time.Time]*Slot{}, uses: map[time.Time]map[ModelKey]ModelUse{}, totals: newTotals(now()), enough: make(chan struct{}, 1),
		alerts: newAlerts(), security: map[time.Time]*securityHour{}, verdicts: map[int64]verdict{}, started: now().UTC()}
}

// Note hands over entries that are in the log, in its order, so that they need not be read there. Some may be left out: from the first one that is missing
// on, the log is read. Arguments, Result, Attribution and Rows may be missing in each.
func (c *Counters) Note(entries []audit.Entry) {
	c.notedMu.Lock()
	defer c.notedMu.Unlock()
	if len(c.noted)+len(entries) > maxNoted {
		clear(c.noted)
		c.noted = c.noted[:0]
		return
	}
	c.noted = append(c.noted, entries...)
	if len(c.noted) >= enoughNoted {
		select {
		case c.enough <- struct{}{}:
		default:
		}
	}
}

// countNoted counts what was noted, as far as it is what comes next in the log.
func (c *Counters) countNoted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notedMu.Lock()
	noted := c.noted
	c.noted = c.spare
	c.notedMu.Unlock()
	n := 0
	for next := c.to; n < len(noted) && noted[n].Index <= next; n++ {
		next = max(next, noted[n].Index+1)
	}
	if n > 0 {
		c.add(noted[:n], -1, 0)
	}
	clear(noted)
	c.spare = noted[:0]
}

// Run counts until ctx ends.
func (c *Counters) Run(ctx context.Context) {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	failing := false
	for look := true; ; {
		if look {
			err := c.raise(ctx)
			if err != nil && ctx.Err() == nil && !failing {
				c.warn.Warn("the log can't be counted, and no alerts can be raised; it is tried again", "error", err)
			}
			failing = err != nil
		} else {
			c.reading.Lock()
			c.countNoted()
			c.reading.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-c.enough:
			look = false
		case <-ticks.C:
			look = true
		}
	}
}

// CatchUp counts what was appended since.
func (c *Counters) CatchUp(ctx context.Context) error {
	c.reading.Lock()
	defer c.reading.Unlock()
	if !c.readBefore {
		if err := c.begin(ctx); err != nil {
			return err
		}
		c.readBefore = true
	}
	for {
		c.countNoted()
		size, err := c.log.Size(ctx)
		if err != nil {
			return err
		}
		c.mu.Lock()
		from, begun := c.to, c.begun
		c.mu.Unlock()
		if begun && from >= size {
			return nil
		}
		f := audit.Filter{Min: from, Limit: pageSize}
		if !begun {
			f.From = c.oldest()
		}
		page, next, err := c.log.Entries(ctx, f)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.add(page, next, size)
		c.mu.Unlock()
		if next < 0 && len(page) == 0 {
			return nil
		}
	}
}

// oldest is the beginning of the hours that are kept.
func (c *Counters) oldest() time.Time {
	return c.now().UTC().Truncate(time.Hour).Add(-(keptHours - 1) * time.Hour)
}

// add counts a page. Where nothing more was found, everything below size has been looked at. It holds mu.
func (c *Counters) add(page []audit.Entry, next, size int64) {
	oldestFine := c.oldestFine()
	for _, e := range page {
		if e.Index < c.to { // it was counted meanwhile
			continue
		}
		c.to = e.Index + 1
		k, n := Of(e)
		c.totals.count(e, k, n)
		operation := Unasked(e)
		slotOf(c.hours, e.At, time.Hour).count(k, n, operation)
		if !e.At.Before(oldestFine) {
			slotOf(c.fine, e.At, Fine).count(k, n, operation)
		}
		if k, u, is := OfModel(e); is {
			c.use(e.At.UTC().Truncate(time.Hour), k, u)
		}
		c.secure(&e, k, n)
	}
	switch {
	case next >= 0:
		c.to = max(c.to, next+1)
	case len(page) == 0:
		c.to = max(c.to, size)
	}
	c.begun = c.begun || len(page) > 0 || next < 0
	maps.DeleteFunc(c.hours, func(hour time.Time, _ *Slot) bool { return hour.Before(c.oldest()) })
	maps.DeleteFunc(c.fine, func(at time.Time, _ *Slot) bool { return at.Before(oldestFine) })
	maps.DeleteFunc(c.uses, func(hour time.Time, _ map[ModelKey]ModelUse) bool { return hour.Before(c.oldest()) })
	maps.DeleteFunc(c.security, func(hour time.Time, _ *securityHour) bool { return hour.Before(c.oldest()) })
	maps.DeleteFunc(c.verdicts, func(_ int64, v verdict) bool { return v.at.Before(c.oldest()) })
}

// oldestFine is the beginning of the shorter times that are kept.
func (c *Counters) oldestFine() time.Time {
	return c.now().UTC().Truncate(Fine).Add(-(keptFine - 1) * Fine)
}

// slotOf is the slot that a time is in.
func slotOf(slots map[time.Time]*Slot, at time.Time, long time.Duration) *Slot {
	start := at.UTC().Truncate(long)
	if slots[start] == nil {
		slots[start] = &Slot{Start: start, Counts: map[Key]int64{}, Unasked: map[string]int64{}}
	}
	return slots[start]
}

// count adds what an entry counts as, and the operation that it says ran unasked.
func (s *Slot) count(k Key, n int64, operation string) {
	if n > 0 {
		if _, known := s.Counts[k]; !known && len(s.Counts) >= maxKeys {
			k = Key{Agent: Others, What: k.What}
		}
		s.Counts[k] += n
	}
	if operation != "" {
		if _, known := s.Unasked[operation]; !known && len(s.Unasked) >= maxKeys {
			operation = Others
		}
		s.Unasked[operation]++
	}
}

// use adds to what a model was used for. It holds mu.
func (c *Counters) use(hour time.Time, k ModelKey, u ModelUse) {
	of := c.uses[hour]
	if of == nil {
		of = map[ModelKey]ModelUse{}
		c.uses[hour] = of
	}
	if _, known := of[k]; !known && len(of) >= maxKeys {
		k = ModelKey{Agent: Others, Model: Others}
	}
	of[k] = of[k].Plus(u)
}

// Models adds up what models were used for from the hour with the time on.
func (c *Counters) Models(from time.Time) map[ModelKey]ModelUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[ModelKey]ModelUse{}
	for hour, of := range c.uses {
		if hour.Before(from.UTC().Truncate(time.Hour)) {
			continue
		}
		for k, u := range of {
			all[k] = all[k].Plus(u)
		}
	}
	return all
}

// Slot is what happened in an hour, or in a shorter time.
type Slot struct {
	Start   time.Time
	Counts  map[Key]int64
	Unasked map[string]int64 // by operation: calls that ran without anybody being asked
}

// Since returns the hours from the one with the time on, the oldest first, those without anything too; and the entry up to which was counted.
func (c *Counters) Since(from time.Time) (hours []Slot, to int64) {
	return c.slots(c.hours, from, time.Hour, keptHours)
}

// Lately returns the last hour in slots of Fine, the oldest first, and the entry up to which was counted.
func (c *Counters) Lately() (slots []Slot, to int64) {
	return c.slots(c.fine, c.oldestFine(), Fine, keptFine)
}

func (c *Counters) slots(of map[time.Time]*Slot, from time.Time, long time.Duration, most int) (all []Slot, to int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, end := from.UTC().Truncate(long), c.now().UTC(); !at.After(end) && len(all) < most; at = at.Add(long) {
		s := Slot{Start: at}
		if known := of[at]; known != nil {
			s.Counts, s.Unasked = maps.Clone(known.Counts), maps.Clone(known.Unasked)
		}
		all = append(all, s)
	}
	return all, c.to
}

// Total adds up what the slots have of each key, and how often each operation ran unasked.
func Total(slots []Slot) (counts map[Key]int64, unasked map[string]int64) {
	counts, unasked = map[Key]int64{}, map[string]int64{}
	for _, s := range slots {
		for k, n := range s.Counts {
			counts[k] += n
		}
		for operation, n := range s.Unasked {
			unasked[operation] += n
		}
	}
	return counts, unasked
}
