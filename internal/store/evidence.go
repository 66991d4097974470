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
	var seq, total int64
	var before []byte
	at, known := t.at(evidenceRows, sessionID)
	if known {
		if at.n >= maxEvidenceRows {
			return nil
		}
		found := false
		if err := t.w.c.query(func(v []driver.Value) error {
			found = v[0].(int64) == at.n && v[2].(int64) == at.entry
			seq, total, before = v[0].(int64), v[1].(int64), blob(v[3])
			return nil
		}, selectKept, sessionID); err != nil {
			return err
		}
		if !found {
			return missing(evidenceRows, sessionID)
		}
		if total >= maxEvidenceAll {
			return nil
		}
	}
	if total += size; total > maxEvidenceAll {
		total, ev.Body = maxEvidenceAll, []byte(evidence.Full) // full from here on
	}
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
	return nil
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
