package store

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/session"
)

// The bounds of the evidence of one session, as the schema has them.
const (
	maxEvidenceRows = evidence.MaxPieces
	maxEvidenceAll  = evidence.MaxBytes
	maxEvidenceRow  = 1 << 20
)

// keep adds evidence to a session, within its bounds. Evidence over them is left out without an error: it confirms nothing, and costs no
// more than a question to a person. Once one is left out, all later ones are, because evidence that takes away the worth of
// others must not be left out before those.
func (t *tx) keep(sessionID string, ev evidence.Kept) error {
	size := int64(len(ev.Body))
	if size == 0 || size > maxEvidenceRow {
		return nil
	}
	var total int64
	var before []byte
	at, known := t.at(evidenceRows, sessionID)
	if known {
		if at.n >= maxEvidenceRows {
			return nil
		}
		var err error
		if total, before, err = t.keptSoFar(sessionID, at); err != nil || total >= maxEvidenceAll {
			return err
		}
	}
	if total += size; total > maxEvidenceAll {
		total, ev.Body = maxEvidenceAll, []byte(evidence.Full) // full from here on
	}
	seq := at.n
	at, was := t.version(evidenceRows, sessionID)
	at.n = seq + 1
	row := []driver.Value{sessionID, at.n, ev.CallID, ev.Rules, total, ev.Body, at.entry, nil}
	mac := t.w.proof.key.mac(evidenceRows, at.entry, before, row[:6]...)
	row[7] = mac
	t.wrote++
	if err := t.w.c.exec(insertEvidence, row...); err != nil {
		return err
	}
	t.moves(evidenceRows, sessionID, at, was, mac)
	t.moved.kept[sessionID] = total
	return nil
}

// keptSoFar is how many bytes of evidence a session has, and the MAC of the newest piece. The number is the one that this process wrote; the first time
// it is the column's, if its MAC says so: with another one, later evidence would be left out.
func (t *tx) keptSoFar(sessionID string, at rowAt) (total int64, mac []byte, err error) {
	total, known := t.moved.kept[sessionID]
	if !known {
		total, known = t.w.proof.keptBytes(sessionID)
	}
	found := false
	if known {
		err = t.w.c.query(func(v []driver.Value) error {
			mac, found = blob(v[2]), v[0].(int64) == at.n && v[1].(int64) == at.entry
			return nil
		}, selectKept, sessionID)
	} else {
		width, before := len(evidenceRows.covered()), []byte(nil)
		err = t.w.c.query(func(v []driver.Value) error {
			if number(v[1]) == at.n {
				mac, total = bytes.Clone(blob(v[width+1])), number(v[4])
				found = number(v[width]) == at.entry && bytes.Equal(mac, t.w.proof.key.mac(evidenceRows, at.entry, before, v[:width]...))
			}
			before = bytes.Clone(blob(v[width+1]))
			return nil
		}, evidenceRows.all+" WHERE session_id = $1 AND seq >= $2 ORDER BY seq", sessionID, at.n-1)
	}
	if err == nil && !found {
		err = changedRow(evidenceRows, fmt.Sprintf("%s, %d", sessionID, at.n), "it is gone, or its MAC does not fit")
	}
	return total, mac, err
}

// keptBytes is how many bytes of evidence a session has, if some was added since the start.
func (p *proof) keptBytes(id string) (total int64, known bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	total, known = p.kept[id]
	return total, known
}

// forget deletes what a session has seen, which may be secrets, in the transaction that closes it. Of an agent's own session it leaves what that gave away, for
// the session that follows. What is deleted is overwritten (secure_delete), and the write-ahead log is emptied after the commit (writer.scrub).
func (t *tx) forget(s session.Session) error {
	if _, known := t.at(evidenceRows, s.ID); !known {
		return nil
	}
	var but []evidence.Kept
	if s.Own {
		all, err := t.evidence(s.ID)
		if err == nil {
			but, err = evidence.TakenOver(all)
		}
		if err != nil { // closing a session must not fail because of what it has seen
			if but, err = evidence.TakenAsAnything(); err != nil {
				return err
			}
		}
		if len(all) > 0 && len(but) == len(all) && all[0].CallID == but[0].CallID {
			return nil
		}
	}
	if err := t.remove(evidenceRows, s.ID); err != nil {
		return err
	}
	t.moved.kept[s.ID] = -1
	for _, ev := range but {
		if err := t.keep(s.ID, ev); err != nil {
			return err
		}
	}
	t.after = append(t.after, func() { t.w.scrub = true })
	return t.append(&audit.Entry{
		Kind: audit.Change, Action: "evidence.forget", Session: s.ID, Agent: s.Agent, Requester: s.Requester, Actor: "rule:closed", Decision: "ok",
		Reason: "what the session saw is deleted with its end",
	})
}

// sweep deletes what closed sessions have seen that a version before this one has left.
func (t *tx) sweep() error {
	var closed []string
	if err := t.w.c.query(func(v []driver.Value) error { closed = append(closed, text(v[0])); return nil }, selectUnforgotten); err != nil {
		return err
	}
	for _, id := range closed {
		s, err := t.session(id)
		if err != nil {
			return err
		}
		s.Own = s.Own && t.newestOwn(s.Agent) == id // an older one has been followed
		if err := t.forget(s); err != nil {
			return err
		}
	}
	return nil
}

// emptyLog moves the write-ahead log into the database and empties it, so that no version of a page is left with what was deleted. Where a reader is in
// the way it is tried again with the next batch, which comes within a second.
func (w *writer) emptyLog() {
	if !w.scrub || w.c == nil {
		return
	}
	busy := int64(1)
	err := w.c.script("PRAGMA busy_timeout = 20") // calls wait meanwhile; no kept statement, since the engine sets it when it reads the text
	if err == nil {
		err = w.c.query(func(v []driver.Value) error { busy = number(v[0]); return nil }, "PRAGMA wal_checkpoint(TRUNCATE)")
		err = errors.Join(err, w.c.script(busyTimeout))
	}
	if err != nil {
		w.disconnect()
		return
	}
	w.scrub = busy != 0
}

// evidence reads what a session has kept, as this transaction sees it.
func (t *tx) evidence(sessionID string) (all []evidence.Kept, err error) {
	at, _ := t.at(evidenceRows, sessionID)
	chain := evidenceChain{key: t.w.proof.key, sessionID: sessionID}
	if err := t.w.c.query(func(v []driver.Value) error {
		ev, _, err := chain.next(v)
		all = append(all, ev)
		return err
	}, selectEvidence, sessionID, int64(0)); err != nil {
		return nil, err
	}
	if at != chain.last {
		return nil, missing(evidenceRows, sessionID)
	}
	return all, nil
}

// evidenceChain checks the rows of one session in their order.
type evidenceChain struct {
	key       *stateKey // nil: nothing is checked
	sessionID string
	after     int64 // the row of which the MAC alone is wanted
	last      rowAt
	before    []byte
}

// next takes the next row: its columns, its entry and its MAC.
func (c *evidenceChain) next(row []driver.Value) (ev evidence.Kept, wanted bool, err error) {
	width := len(evidenceRows.covered())
	at, mac := rowAt{entry: number(row[width]), n: number(row[1])}, blob(row[width+1])
	_, numbered := row[1].(int64)
	if wanted = at.n > c.after || !numbered; wanted {
		if c.key != nil && (!numbered || at.n != max(c.last.n, c.after)+1 || !bytes.Equal(mac, c.key.mac(evidenceRows, at.entry, c.before, row[:width]...))) {
			return ev, true, changedRow(evidenceRows, fmt.Sprintf("%s, %d", c.sessionID, at.n), "its MAC does not fit, or one before it is gone")
		}
		ev = evidence.Kept{Seq: at.n, CallID: text(row[2]), Rules: text(row[3]), Body: blob(row[5])}
	}
	c.last, c.before = at, mac
	return ev, wanted, nil
}

// Evidence implements evidence.Store.
func (r *Reader) Evidence(ctx context.Context, sessionID string, after int64) (all []evidence.Kept, err error) {
	err = r.twice(func() error {
		all = nil
		chain := evidenceChain{sessionID: sessionID, after: after}
		if r.proof != nil {
			chain.key = r.proof.key
		}
		err := r.rows(ctx, func(scan func(...any) error) error {
			row, err := evidenceRows.scan(scan)
			if err != nil {
				return err
			}
			ev, wanted, err := chain.next(row)
			if wanted {
				all = append(all, ev)
			}
			return err
		}, r.known(selectEvidence), sessionID, after)
		if err != nil || r.proof == nil {
			return err
		}
		if at, _ := r.proof.at(evidenceRows, sessionID); at != chain.last && (chain.last.n > 0 || at.n >= after) {
			return missing(evidenceRows, sessionID)
		}
		return nil
	})
	return all, err
}
