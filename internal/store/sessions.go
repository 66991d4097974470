package store

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/session"
	"sallyport.example/internal/stored"
)

func noSession(id string) error {
	return fault.New(fault.NotFound, "There is no session %.80q.", id).At("session_id").Try("sallyport sessions list shows them.")
}

// kept is a session as its row has it.
type kept struct {
	session.Session
	Found    session.Found `json:"found,omitempty"`
	Released session.Found `json:"released,omitempty"`
}

func encodeSession(s session.Session) ([]byte, error) {
	return encode(kept{s, s.Found, s.Released}) // the arguments of a plan's steps are canonical: under the plan's digest byte for byte
}

// decodeSession reads the session of an id. used is what its column has; the body has the used time as of the last change.
func decodeSession(id string, body []byte, used time.Duration) (s session.Session, err error) {
	var k kept
	if err := json.Unmarshal(body, &k); err != nil {
		return s, damagedSession(id, err)
	}
	s, s.Found, s.Released = k.Session, k.Found, k.Released
	if s.ID != id {
		return s, damagedSession(id, fmt.Errorf("it is the row of session %.80q", s.ID))
	}
	s.Used = max(s.Used, used)
	return s, nil
}

func damagedSession(id string, err error) error {
	return fault.Wrap(err, fault.StoreUnavailable, "The row of session %.80q is damaged, so nothing can be done in it.", id).
		Try("Run \"sallyport audit verify\" with the data directory, and restore a backup.")
}

// OpenSession implements gateway.Store.
func (db *DB) OpenSession(ctx context.Context, s session.Session, e audit.Entry, given ...evidence.Kept) error {
	return db.w.do(ctx, &job{whose: lineOf(e), run: func(t *tx) error {
		if err := t.free(s); err != nil {
			return err
		}
		opened := s
		opened.Follows = "" // as it is read back
		if err := t.write(opened); err != nil {
			return err
		}
		if s.Own {
			t.moved.newest[s.Agent] = newestOwn{id: s.ID}
		}
		if s.Follows != "" { // what that one gave away is taken over
			if err := t.remove(evidenceRows, s.Follows); err != nil {
				return err
			}
			t.after = append(t.after, func() { t.w.scrub = true; t.w.proof.recent.drop(s.Follows) })
		}
		for _, ev := range given {
			if err := t.keep(s.ID, ev); err != nil {
				return err
			}
		}
		e := e // a copy: the caller's stays as it is
		return t.append(&e)
	}})
}

// free refuses a session whose id is taken, and an own session where the agent has an open one, that follows another than the newest, or that
// doesn't succeed that one as it is by now, because its maker read the store too early. It only reads, so a refusal costs the other jobs of its batch
// nothing.
func (t *tx) free(s session.Session) error {
	switch _, err := t.session(s.ID); {
	case err == nil:
		return fault.New(fault.Conflict, "There is a session %s already.", s.ID)
	case !fault.Is(err, fault.NotFound):
		return err
	}
	if !s.Own || s.State != session.Open {
		return nil
	}
	id := t.newestOwn(s.Agent)
	var last session.Session
	if id != "" {
		var err error
		if last, err = t.session(id); err != nil {
			return err
		}
	}
	switch {
	case id != "" && last.State == session.Open:
		return fault.New(fault.Conflict, "Agent %s has an open session already: %s.", s.Agent, id).Try("Use it, or close it first.")
	case id != s.Follows:
		return fault.New(fault.Conflict, "Agent %s has opened another session since this one was made.", s.Agent)
	}
	if !s.Succeeds(last) {
		return fault.New(fault.Conflict, "Agent %s has had another label since this session was made, or a person ordered a fresh one.", s.Agent)
	}
	return nil
}

// newestOwn is the newest session of its own that the agent has had, also in this transaction; "" if it has had none.
func (t *tx) newestOwn(agent string) string {
	if own, ok := t.moved.newest[agent]; ok {
		return own.id
	}
	return t.w.proof.own(agent)
}

// ChangeSession implements gateway.Store.
func (db *DB) ChangeSession(ctx context.Context, id string, change func(session.Session) (session.Session, audit.Entry, error)) (session.Session, error) {
	var after session.Session
	line := whose{agent: id} // the session's own: a person who closes it does not wait behind its agent's calls, nor an agent behind another's changes
	err := db.w.do(ctx, &job{whose: line, run: func(t *tx) error {
		before, err := t.session(id)
		if err != nil {
			return err
		}
		s, e, err := change(before)
		if err != nil {
			return err
		}
		if s.ID != id || s.Agent != before.Agent || s.Own != before.Own || s.Version < before.Version || s.Used < before.Used {
			return fault.New(fault.Internal, "a change of session %s would make it another or take it back", id)
		}
		after = s
		if err := t.save(s); err != nil {
			return err
		}
		if err := t.append(&e); err != nil {
			return err
		}
		if s.State == session.Closed {
			if err := t.forget(s); err != nil {
				return err
			}
		}
		if s.Phase == before.Phase || e.Action == "session.phase" {
			return nil
		}
		return t.append(movedPhase(before, s, e))
	}})
	if err != nil {
		return session.Session{}, err
	}
	return after, nil
}

// movedPhase is the entry of a move of the phase that came with something else: an approved plan. Every move of a phase has an entry (PH-5).
func movedPhase(before, after session.Session, with audit.Entry) *audit.Entry {
	e := &audit.Entry{
		Kind: audit.Change, Action: "session.phase", Decision: "ok", Session: after.ID, Agent: after.Agent, Requester: after.Requester,
		Actor: after.PhaseBy, RequestID: with.RequestID, Digest: with.Digest, Reason: "with " + with.Action,
	}
	if after.PhaseBy == session.ByRule {
		e.Actor = "rule:plan"
	}
	detail := map[string]string{"phase": string(after.Phase), "from": string(before.Phase)}
	if after.Plan != nil {
		detail["plan_id"] = after.Plan.ID
	}
	e.Detail, _ = json.Marshal(detail) // of strings: can't fail
	return e
}

// Intent implements gateway.Store.
func (db *DB) Intent(ctx context.Context, sessionID string, version int64, e audit.Entry, raise []flow.Held, spend ...gateway.Spend) (session.Session, error) {
	if e.Kind != audit.Intent {
		return session.Session{}, fault.New(fault.Internal, "an entry of kind %s is not an intent", e.Kind)
	}
	var after session.Session
	err := db.w.do(ctx, &job{entry: &e, whose: lineOf(e), run: func(t *tx) error {
		s, err := t.session(sessionID)
		if err != nil {
			return err
		}
		if s.State != session.Open || s.Version != version {
			return gateway.ErrMoved
		}
		if err := t.fits(&e); err != nil {
			return err
		}
		took := false
		for _, sp := range spend { // before anything is written: losing a step must cost the others of the batch nothing
			if sp.Step == nil {
				continue
			}
			if s, err = s.Take(*sp.Step); err != nil {
				return gateway.ErrMoved
			}
			took = true
		}
		var uses [][]quota.Use
		for _, sp := range spend { // a call without room for it spends nothing
			u, err := t.claims(sp.Quota)
			if err != nil {
				return err
			}
			uses = append(uses, u)
		}
		for _, sp := range spend {
			if err := t.use(sp); err != nil {
				return err
			}
			for _, ev := range sp.Seen {
				if err := t.keep(sessionID, ev); err != nil {
					return err
				}
			}
		}
		for i, sp := range spend {
			if err := t.keepWritten(sp.Wrote); err != nil {
				return err
			}
			if err := t.claim(sp.Quota, uses[i], e.CallID); err != nil {
				return err
			}
		}
		after = s.Raise(raise...)
		found := false
		for _, sp := range spend {
			more := false
			after, more = after.AddFound(sp.Found)
			found = found || more
		}
		if after.Version == s.Version && !took && !found {
			t.hold(s)
		} else if err := t.save(after); err != nil {
			return err
		}
		if err := t.append(&e); err != nil {
			return err
		}
		for _, sp := range spend {
			if sp.Quota != nil {
				if err := t.mark(sp.Quota.Marks, &e); err != nil {
					return err
				}
			}
		}
		return nil
	}})
	if err != nil {
		return session.Session{}, err
	}
	return after, nil
}

// Outcome implements gateway.Store. The caller may repeat an outcome after an error that left open whether it was written:
// it is not written twice.
//
// Labels are in the session's row with the entry. Used time is in memory with it and in the row within a second, or at once where the row would lack
// more than maxUnsettled: a crash can lose that much of a budget's use, and never a label.
//
// Its evidence is kept with it, or not at all if there is no room: evidence that is not kept confirms nothing. A closed session keeps no more
// evidence, because its result is not released.
func (db *DB) Outcome(ctx context.Context, sessionID string, e audit.Entry, raise []flow.Held, used time.Duration, seen ...evidence.Kept) (session.Session, error) {
	if e.Kind != audit.Outcome {
		return session.Session{}, fault.New(fault.Internal, "an entry of kind %s is not an outcome", e.Kind)
	}
	var after session.Session
	err := db.w.do(ctx, &job{entry: &e, whose: lineOf(e), run: func(t *tx) error {
		s, err := t.session(sessionID)
		if err != nil {
			return err
		}
		if t.w.settled[e.CallID] {
			after = s
			t.after = append(t.after, func() { delete(t.w.settled, e.CallID) })
			return nil
		}
		if err := t.fits(&e); err != nil {
			return err
		}
		if s.State == session.Open {
			for _, ev := range seen {
				if err := t.keep(sessionID, ev); err != nil {
					return err
				}
			}
		}
		marks, err := t.settleByOutcome(&e)
		if err != nil {
			return err
		}
		after = s.Raise(raise...)
		after.Used += max(0, used)
		if after.Version == s.Version {
			if err := t.spend(after, s.Used); err != nil {
				return err
			}
		} else if err := t.save(after); err != nil {
			return err
		}
		if err := t.append(&e); err != nil {
			return err
		}
		return t.mark(marks, &e)
	}})
	if err != nil {
		return session.Session{}, err
	}
	return after, nil
}

// SessionPrompt implements gateway.Store.
func (db *DB) SessionPrompt(ctx context.Context, session string) (string, error) {
	row, err := db.one(ctx, promptRows, session)
	if err != nil || row == nil {
		return "", err
	}
	return text(row[1]), nil
}

// KeepSessionPrompt implements gateway.Store.
func (db *DB) KeepSessionPrompt(ctx context.Context, session, text string, e audit.Entry) error {
	return db.addKnown(ctx, promptRows, session, text, e)
}

// Answer implements gateway.Store.
func (db *DB) Answer(ctx context.Context, sessionID string, e audit.Entry, wrote *stored.Written, given ...evidence.Kept) error {
	return db.w.do(ctx, &job{whose: lineOf(e), run: func(t *tx) error {
		s, err := t.session(sessionID)
		if err != nil {
			return err
		}
		if s.State != session.Open { // the answer is not sent, and nothing of it stays
			return fault.New(fault.SessionClosed, "Session %s is closed.", sessionID)
		}
		for _, ev := range given {
			if err := t.keep(sessionID, ev); err != nil {
				return err
			}
		}
		if err := t.keepWritten(wrote); err != nil {
			return err
		}
		return t.append(&e)
	}})
}

// Record implements gateway.Store.
func (db *DB) Record(ctx context.Context, entries ...audit.Entry) error {
	return db.w.do(ctx, &job{whose: lineOf(entries...), run: func(t *tx) error { return t.appendAll(entries) }})
}

func (t *tx) appendAll(entries []audit.Entry) error {
	for _, e := range entries { // a copy: the caller's stay as they are
		if err := t.append(&e); err != nil {
			return err
		}
	}
	return nil
}

// Session implements gateway.Store.
func (db *DB) Session(ctx context.Context, id string) (session.Session, error) {
	if s, ok := db.w.live.get(id); ok {
		return s, nil
	}
	return db.Reader.Session(ctx, id)
}

// Session returns a session by id, as its row has it.
func (r *Reader) Session(ctx context.Context, id string) (session.Session, error) {
	row, err := r.one(ctx, sessionRows, id)
	if err != nil {
		return session.Session{}, err
	}
	if row == nil {
		return session.Session{}, noSession(id)
	}
	return r.session(row)
}

// session reads a row of sessions, with its used time behind it.
func (r *Reader) session(row []driver.Value) (session.Session, error) {
	id, used := text(row[0]), time.Duration(number(row[len(row)-1]))
	if r.proof != nil {
		used = r.proof.usedTime(id)
	}
	return decodeSession(id, blob(row[sessionBody]), used)
}

// OwnSession implements gateway.Store.
func (db *DB) OwnSession(ctx context.Context, agent string) (session.Session, error) {
	s, err := db.LastOwnSession(ctx, agent)
	if fault.Is(err, fault.NotFound) || err == nil && s.State != session.Open {
		return session.Session{}, fault.New(fault.NotFound, "Agent %q has no open session of its own.", agent)
	}
	return s, err
}

// GivenSessions implements gateway.Store. It is read once, right after the start has checked every row.
func (db *DB) GivenSessions(ctx context.Context) (map[string][]string, error) {
	given := map[string][]string{}
	err := db.rows(ctx, func(scan func(...any) error) error {
		var agent, id string
		err := scan(&agent, &id)
		given[agent] = append(given[agent], id)
		return err
	}, selectGiven)
	return given, err
}

// LastOwnSession implements gateway.Store.
func (db *DB) LastOwnSession(ctx context.Context, agent string) (session.Session, error) {
	id := db.w.proof.own(agent)
	if id == "" {
		return session.Session{}, fault.New(fault.NotFound, "Agent %q has had no session of its own.", agent)
	}
	return db.Session(ctx, id)
}

// SessionsPage returns sessions, the newest first: those opened before the session after ("": from the newest on), at most limit
// of them, only those in state ("": all). A row that can't be read is set aside, and does not count.
func (db *DB) SessionsPage(ctx context.Context, after string, limit int, state session.State) (session.Page, error) {
	page, err := db.Reader.SessionsPage(ctx, after, limit, state)
	db.w.live.mu.RLock()
	defer db.w.live.mu.RUnlock()
	for i, s := range page.Sessions {
		if s, ok := db.w.live.byID[s.ID]; ok && (state == "" || s.State == state) {
			page.Sessions[i] = s
		}
	}
	return page, err
}

// SessionsPage is as DB.SessionsPage. Used time may be a second old.
func (r *Reader) SessionsPage(ctx context.Context, after string, limit int, state session.State) (session.Page, error) {
	page := session.Page{Sessions: []session.Session{}}
	before := int64(1<<63 - 1)
	if after != "" {
		ok, err := r.row(ctx, selectPlace, []any{after}, &before)
		if err != nil {
			return page, err
		}
		if !ok {
			return page, noSession(after)
		}
	}
	limit = min(max(limit, 0), maxPage)
	for len(page.Sessions) < limit {
		want := limit - len(page.Sessions)
		which, args := selectPage, []any{before, int64(want)}
		if state != "" {
			which, args = selectPageOf, append(args, string(state))
		}
		more, last, err := r.sessions(ctx, which, args...)
		page.Sessions, page.Aside = append(page.Sessions, more.Sessions...), append(page.Aside, more.Aside...)
		if err != nil || len(more.Sessions)+len(more.Aside) < want || len(page.Aside) > maxPage {
			return page, err
		}
		before = last
	}
	return page, nil
}

// sessions reads some rows of sessions. last is the place of the last one. A row that is damaged is set aside, and the others are read.
func (r *Reader) sessions(ctx context.Context, which string, args ...any) (page session.Page, last int64, err error) {
	page.Sessions = []session.Session{}
	rows, doubts, err := r.each(ctx, sessionRows, which, args...)
	if err != nil {
		return page, 0, err
	}
	for i, row := range rows {
		last = number(row[1])
		agent := text(row[sessionRows.place("agent")])
		s, err := session.Session{}, doubts[i]
		if err == nil {
			s, err = r.session(row)
		}
		if err == nil && (s.Agent != agent || string(s.Phase) != text(row[sessionRows.place("phase")]) || string(s.State) != text(row[sessionRows.place("state")])) {
			err = damagedSession(s.ID, errors.New("its columns say something else than its body"))
		}
		if err != nil {
			page.Aside = append(page.Aside, session.Damaged{ID: text(row[0]), Agent: agent, Problem: fault.Of(err).Public()})
			continue
		}
		page.Sessions = append(page.Sessions, s)
	}
	return page, last, nil
}

// OpenSessions is how many sessions are open.
func (r *Reader) OpenSessions(ctx context.Context) (n int64, err error) {
	_, err = r.row(ctx, countOpenSessions, nil, &n)
	return n, err
}

// WaitingPlans implements gateway.Store. Used time may be a second old.
func (r *Reader) WaitingPlans(ctx context.Context, limit int) (newest []session.Session, all int64, err error) {
	if _, err = r.row(ctx, countPlans, nil, &all); err != nil {
		return nil, 0, err
	}
	page, _, err := r.sessions(ctx, selectPlans, int64(min(max(limit, 0), maxPage)))
	return page.Sessions, all, err
}
