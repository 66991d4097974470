package store

import (
	"context"
	"database/sql/driver"

	"sallyport.example/internal/evidence"
)

// The bounds of the evidence of one session, as the schema has them.
const (
	maxEvidenceRows = 2000
	maxEvidenceAll  = 16 << 20 // bytes
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
	err := t.w.c.query(func(v []driver.Value) error { seq, total = v[0].(int64), v[1].(int64); return nil }, selectKept, sessionID)
	if err != nil || seq >= maxEvidenceRows || total >= maxEvidenceAll {
		return err
	}
	if total += size; total > maxEvidenceAll {
		total, ev.Body = maxEvidenceAll, []byte("{}") // full from here on
	}
	t.wrote++
	return t.w.c.exec(insertEvidence, sessionID, seq+1, ev.CallID, ev.Rules, total, ev.Body)
}

// Evidence implements evidence.Store.
func (r *Reader) Evidence(ctx context.Context, sessionID string, after int64) ([]evidence.Kept, error) {
	var all []evidence.Kept
	err := r.rows(ctx, func(scan func(...any) error) error {
		var ev evidence.Kept
		err := scan(&ev.Seq, &ev.CallID, &ev.Rules, &ev.Body)
		all = append(all, ev)
		return err
	}, selectEvidence, sessionID, after)
	return all, err
}
