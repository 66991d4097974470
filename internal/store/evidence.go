package store

import (
	"bytes"
	"context"
	"database/sql/driver"
	"fmt"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/evidence"
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

// ForgetEvidence implements gateway.CallStore. What is deleted is overwritten (secure_delete): it may be a secret.
func (db *DB) ForgetEvidence(ctx context.Context, sessionID string, e audit.Entry, but ...evidence.Kept) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		if _, known := t.at(evidenceRows, sessionID); !known {
			return nil
		}
		if err := t.remove(evidenceRows, sessionID); err != nil {
			return err
		}
		t.moved.kept[sessionID] = -1
		for _, ev := range but {
			if err := t.keep(sessionID, ev); err != nil {
				return err
			}
		}
		return t.append(&e)
	}})
}

// Evidence implements evidence.Store.
func (r *Reader) Evidence(ctx context.Context, sessionID string, after int64) (all []evidence.Kept, err error) {
	err = r.twice(func() error {
		all = nil
		var last rowAt
		var before []byte
		width := len(evidenceRows.covered())
		err := r.rows(ctx, func(scan func(...any) error) error {
			row, err := evidenceRows.scan(scan)
			if err != nil {
				return err
			}
			at, mac := rowAt{entry: number(row[width]), n: number(row[1])}, blob(row[width+1])
			_, numbered := row[1].(int64)
			if at.n > after || !numbered {
				if r.proof != nil && (!numbered || at.n != max(last.n, after)+1 || !bytes.Equal(mac, r.proof.key.mac(evidenceRows, at.entry, before, row[:width]...))) {
					return changedRow(evidenceRows, fmt.Sprintf("%s, %d", sessionID, at.n), "its MAC does not fit, or one before it is gone")
				}
				all = append(all, evidence.Kept{Seq: at.n, CallID: text(row[2]), Rules: text(row[3]), Body: blob(row[5])})
			}
			last, before = at, mac
			return nil
		}, r.known(selectEvidence), sessionID, after)
		if err != nil || r.proof == nil {
			return err
		}
		if at, _ := r.proof.at(evidenceRows, sessionID); at != last && (last.n > 0 || at.n >= after) {
			return missing(evidenceRows, sessionID)
		}
		return nil
	})
	return all, err
}
