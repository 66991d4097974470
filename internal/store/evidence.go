package store

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
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
	head, err := t.evidenceHead(sessionID)
	if err != nil || head.at.n >= maxEvidenceRows || head.total >= maxEvidenceAll {
		return err
	}
	total := head.total + size
	if total > maxEvidenceAll {
		total, ev.Body = maxEvidenceAll, []byte(evidence.Full) // full from here on
	}
	at, was := t.version(evidenceRows, sessionID)
	at.n = head.at.n + 1
	row := []driver.Value{sessionID, at.n, ev.CallID, ev.Rules, total, ev.Body, at.entry, nil}
	mac := t.w.proof.key.mac(evidenceRows, at.entry, head.mac, row[:6]...)
	row[7] = mac
	t.wrote++
	if err := t.w.c.exec(insertEvidence, row...); err != nil {
		return err
	}
	t.moves(evidenceRows, sessionID, at, was, mac)
	t.heads[sessionID] = evidenceHead{at, total, mac}
	ev.Seq = at.n
	t.after = append(t.after, func() { t.w.proof.recent.add(sessionID, recentRow{at, ev}) })
	return nil
}

// evidenceHead is the last row of a session's evidence: its MAC, and the size of all bodies up to it.
type evidenceHead struct {
	at    rowAt
	total int64
	mac   []byte
}

// evidenceHead returns the last row of a session's evidence, from memory where the log says that it is still the last. Otherwise all rows are read and
// checked: the total of a row that somebody changed would keep everything out that is to come. The zero head is that of no evidence.
func (t *tx) evidenceHead(sessionID string) (head evidenceHead, err error) {
	at, known := t.at(evidenceRows, sessionID)
	if !known {
		return head, nil
	}
	for _, heads := range []map[string]evidenceHead{t.heads, t.w.heads} {
		if head := heads[sessionID]; head.at == at {
			return head, nil
		}
	}
	err = t.eachEvidence(sessionID, func(row []driver.Value, _ evidence.Kept) {
		head = evidenceHead{at, number(row[4]), blob(row[len(row)-1])}
	})
	return head, err
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
	for _, ev := range but {
		if err := t.keep(s.ID, ev); err != nil {
			return err
		}
	}
	t.after = append(t.after, func() { t.w.scrub = true; t.w.proof.recent.drop(s.ID) })
	return t.append(&audit.Entry{
		Kind: audit.Change, Action: "evidence.forget", Session: s.ID, Agent: s.Agent, Requester: s.Requester, Actor: "rule:closed", Decision: "ok",
		Reason: "what the session saw is deleted with its end",
	})
}

// sweep mends what versions before this one have left: evidence of closed sessions, and of sessions that were full at their lower bound.
func (t *tx) sweep() error {
	if err := t.markFull(); err != nil {
		return err
	}
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

// markFull notes in each session that may have been full at the bound before that it may have given anything away since: what was left out then is not known.
func (t *tx) markFull() error {
	var full []string
	if err := t.w.c.query(func(v []driver.Value) error { full = append(full, text(v[0])); return nil }, selectFullBefore, int64(evidence.MaxPiecesBefore)); err != nil {
		return err
	}
	for _, id := range full {
		s, err := t.session(id)
		if err != nil {
			return err
		}
		all, err := evidence.TakenAsAnything()
		if err != nil {
			return err
		}
		if err := t.keep(id, all[0]); err != nil {
			return err
		}
		if err := t.append(&audit.Entry{
			Kind: audit.Change, Action: "evidence.full", Session: id, Agent: s.Agent, Requester: s.Requester, Actor: "rule:upgrade", Decision: "ok",
			Reason: "the session had kept all that it could before its bound was raised: what it gave away after that is not known",
		}); err != nil {
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
	err = t.eachEvidence(sessionID, func(_ []driver.Value, ev evidence.Kept) { all = append(all, ev) })
	return all, err
}

// eachEvidence reads the rows of a session's evidence, each checked.
func (t *tx) eachEvidence(sessionID string, each func(row []driver.Value, ev evidence.Kept)) error {
	at, _ := t.at(evidenceRows, sessionID)
	chain := evidenceChain{key: t.w.proof.key, sessionID: sessionID}
	if err := t.w.c.query(func(v []driver.Value) error {
		ev, _, err := chain.next(v)
		if err == nil {
			each(v, ev)
		}
		return err
	}, selectEvidence, sessionID, int64(0)); err != nil {
		return err
	}
	if at != chain.last {
		return missing(evidenceRows, sessionID)
	}
	return nil
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
	if err := ctx.Err(); err != nil {
		return nil, unavailable(err, fault.StoreUnavailable)
	}
	if r.proof != nil {
		if last, known := r.proof.at(evidenceRows, sessionID); known {
			if all, ok := r.proof.recent.since(sessionID, after, last); ok {
				return all, nil
			}
		}
	}
	ctx = context.WithoutCancel(ctx) // a short read costs less than those who would wait for the end of its caller
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
