package store

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/quota"
)

// maxUses bounds the uses in memory: each run that asks models has one.
const maxUses = 16_384

// quotas are uses as of the last commit, in memory, and what calls under way have set aside.
type quotas struct {
	claimed map[string]*quota.Claim // by call; the writer's own

	mu      sync.RWMutex // guards the rest
	byKey   map[string]quota.Use
	cleared int // how often byKey was
}

// get is the use of a key, if memory has it; and how often memory was cleared before, for keep.
func (q *quotas) get(key string) (u quota.Use, ok bool, cleared int) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	u, ok = q.byKey[key]
	return u, ok, q.cleared
}

// keep takes over what a reader found in a row, unless the writer may have changed it since: it has put what it committed, or memory was cleared.
func (q *quotas) keep(key string, u quota.Use, cleared int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, newer := q.byKey[key]; !newer && q.cleared == cleared {
		q.makeRoom(1)
		q.byKey[key] = u
	}
}

// put takes over what is committed.
func (q *quotas) put(changed map[string]quota.Use) {
	if len(changed) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.makeRoom(len(changed))
	maps.Copy(q.byKey, changed)
}

// makeRoom holds mu.
func (q *quotas) makeRoom(n int) {
	if len(q.byKey)+n > maxUses {
		q.forget()
	}
}

// clear forgets all: it is read again from the rows. What calls have set aside stays known.
func (q *quotas) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forget()
}

// forget holds mu.
func (q *quotas) forget() {
	clear(q.byKey)
	q.cleared++
}

func useOf(row []driver.Value) quota.Use {
	return quota.Use{Start: time.UnixMicro(number(row[1])).UTC(), Used: number(row[2]), Reserved: number(row[3])}
}

// quota is what is used under a limit, as this transaction sees it.
func (t *tx) quota(key string) (quota.Use, error) {
	if u, ok := t.quotaUse[key]; ok {
		return u, nil
	}
	if u, ok, _ := t.w.quotas.get(key); ok {
		return u, nil
	}
	if _, known := t.at(quotaRows, key); !known { // it was never used
		return quota.Use{}, nil
	}
	row, err := t.read(quotaRows, key)
	if err != nil || row == nil {
		return quota.Use{}, err
	}
	return useOf(row), nil
}

// useRow notes what a quota becomes in this transaction, and returns its row.
func (t *tx) useRow(key string, u quota.Use) row {
	if t.quotaUse == nil {
		t.quotaUse = map[string]quota.Use{}
	}
	t.quotaUse[key] = u
	return row{key, []driver.Value{u.Start.UnixMicro(), u.Used, u.Reserved}}
}

// claims checks that there is room for what a call takes, before anything is written, and returns what its rows become. A *gateway.SpendError: there is
// none.
func (t *tx) claims(c *quota.Claim) (uses []quota.Use, err error) {
	if c == nil {
		return nil, nil
	}
	c.Taken, c.Marks = slices.Grow(c.Taken[:0], len(c.Limits)), c.Marks[:0] // the job may run again
	uses = make([]quota.Use, 0, len(c.Limits))
	for _, l := range c.Limits {
		before, err := t.quota(l.Key(c.Agent))
		if err != nil {
			return nil, err
		}
		before = before.At(l, t.now)
		reserve := c.Reserve(l, before)
		after, err := before.Take(l, c.Amount[l.Resource], reserve)
		if err != nil {
			var exceeded *quota.Exceeded
			if errors.As(err, &exceeded) {
				err = &gateway.SpendError{Err: gateway.OverQuota(exceeded)}
			}
			return nil, err
		}
		uses = append(uses, after)
		c.Taken = append(c.Taken, quota.Taken{Limit: l, Start: after.Start, Reserved: reserve})
		if percent := quota.Crossed(before, after, l); percent > 0 {
			c.Marks = append(c.Marks, quota.Mark{Agent: c.Agent, Limit: l, Use: after, Percent: percent})
		}
	}
	return uses, nil
}

// claim writes what claims found. callID names the call that settles it with its outcome.
func (t *tx) claim(c *quota.Claim, uses []quota.Use, callID string) error {
	if c == nil {
		return nil
	}
	rows := make([]row, len(c.Limits))
	for i, l := range c.Limits {
		rows[i] = t.useRow(l.Key(c.Agent), uses[i])
	}
	if err := t.putAll(quotaRows, rows...); err != nil {
		return err
	}
	kept := *c // the caller reads its own
	t.after = append(t.after, func() { t.w.quotas.claimed[callID] = &kept })
	return nil
}

// settleByOutcome settles what a call set aside by its outcome. One that is unknown, and doesn't say how long the call took or what it used, keeps it for as
// long as the window lasts, as a crash does.
func (t *tx) settleByOutcome(e *audit.Entry) (marks []quota.Mark, err error) {
	if e.Decision == "unknown" && e.DurationMS == 0 && len(e.Detail) == 0 {
		t.after = append(t.after, func() { delete(t.w.quotas.claimed, e.CallID) })
		return nil, nil
	}
	return t.settleQuota(e.CallID, quota.UsedBy(e.DurationMS, e.Detail))
}

// settleQuota gives back what a call set aside, and counts what it used. It returns the marks that were passed.
func (t *tx) settleQuota(callID string, used map[quota.Resource]int64) (marks []quota.Mark, err error) {
	c := t.w.quotas.claimed[callID]
	if c == nil {
		return nil, nil
	}
	var rows []row
	for _, taken := range c.Taken {
		if taken.Limit.Resource == quota.APICalls || taken.Reserved == 0 && used[taken.Limit.Resource] == 0 {
			continue
		}
		key := taken.Limit.Key(c.Agent)
		before, err := t.quota(key)
		if err != nil {
			return nil, err
		}
		if !before.Start.Equal(taken.Start) { // its window is over
			continue
		}
		after := before.Settle(taken.Start, taken.Reserved, used[taken.Limit.Resource])
		rows = append(rows, t.useRow(key, after))
		if percent := quota.Crossed(before, after, taken.Limit); percent > 0 {
			marks = append(marks, quota.Mark{Agent: c.Agent, Limit: taken.Limit, Use: after, Percent: percent})
		}
	}
	if err := t.putAll(quotaRows, rows...); err != nil {
		return nil, err
	}
	t.after = append(t.after, func() { delete(t.w.quotas.claimed, callID) })
	return marks, nil
}

// mark puts on record which marks were passed.
func (t *tx) mark(marks []quota.Mark, with *audit.Entry) error {
	for _, m := range marks {
		e := audit.Entry{Kind: audit.Change, Action: fmt.Sprintf("quota.%d", m.Percent), Decision: "ok", Agent: m.Agent, Session: with.Session, Requester: with.Requester, Actor: "rule:quota",
			Reason: m.Text()}
		e.Detail, _ = json.Marshal(quota.StatusOf(m.Agent, m.Limit, m.Use, t.now)) // of plain values: can't fail
		if err := t.append(&e); err != nil {
			return err
		}
		t.after = append(t.after, func() {
			if f := t.w.passed.Load(); f != nil {
				(*f)(m)
			}
		})
	}
	return nil
}

// OnQuota has f called for each mark of a quota that is passed, once it is durable. It must not block.
func (db *DB) OnQuota(f func(quota.Mark)) { db.w.passed.Store(&f) }

// QuotaUse implements gateway.Store. Every call of an agent with quotas asks for it: a quota that was never used takes no statement, and
// any other takes one the first time that a process looks.
func (db *DB) QuotaUse(ctx context.Context, agent string, l quota.Limit) (quota.Use, error) {
	key := l.Key(agent)
	u, ok, cleared := db.w.quotas.get(key)
	if ok || !db.w.proof.has(quotaRows, key) {
		return u, nil
	}
	row, err := db.one(ctx, quotaRows, key)
	if err != nil || row == nil {
		return quota.Use{}, err
	}
	u = useOf(row)
	db.w.quotas.keep(key, u, cleared)
	return u, nil
}

// recounted is what the log says was used of one quota, in the window of the newest intent that took of it.
type recounted struct {
	start time.Time
	used  int64
	whole bool // the entries since the window began are here
}

// recount counts what an entry adds to the quotas whose rows it changed.
func (h *held) recount(e *audit.Entry) {
	if h.beside.began.IsZero() {
		h.beside.began = e.At
	}
	for _, r := range e.Rows {
		if r.Table != quotaRows.name {
			continue
		}
		l, ok := quota.LimitOf(r.Key)
		if !ok {
			continue
		}
		if h.counted == nil {
			h.counted = map[string]*recounted{}
		}
		c := h.counted[r.Key]
		if start := l.Window.Start(e.At); c == nil || e.Kind == audit.Intent && start.After(c.start) {
			c = &recounted{start: start, whole: e.Index == 0 || h.beside.began.Before(start)}
			h.counted[r.Key] = c
		}
		switch {
		case e.Kind == audit.Intent && l.Resource == quota.APICalls:
			c.used++
		case e.Kind == audit.Outcome:
			c.used += quota.UsedBy(e.DurationMS, e.Detail)[l.Resource]
		}
	}
}

// compareQuotas compares what is counted of quotas with what the entries add up to. from is the first entry that was read.
func (h *held) compareQuotas(from int64) {
	for key, c := range h.counted {
		row, found := h.quotaUse[key]
		if !found || !c.whole && from > 0 {
			continue
		}
		if !row.Start.Equal(c.start) || row.Used != c.used {
			h.wrong("the quota %q has %d used since %s, and the entries of the log add up to %d since %s", key, row.Used, row.Start.Format(time.RFC3339), c.used, c.start.Format(time.RFC3339))
		}
	}
}
