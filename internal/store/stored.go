package store

import (
	"context"
	"encoding/json"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/stored"
)

// StoredMarks implements stored.Store.
func (r *Reader) StoredMarks(ctx context.Context) ([]stored.Mark, error) {
	rows, err := r.whole(ctx, storedLabelRows, "ORDER BY id")
	if err != nil {
		return nil, err
	}
	marks := make([]stored.Mark, len(rows))
	for i, row := range rows {
		if err := json.Unmarshal(blob(row[1]), &marks[i]); err != nil {
			return nil, damaged(err)
		}
	}
	return marks, nil
}

// SaveStoredMarks implements stored.Store.
func (db *DB) SaveStoredMarks(ctx context.Context, marks []stored.Mark, e audit.Entry) error {
	bodies := make([][]byte, len(marks))
	for i, mark := range marks {
		if mark.Dropped() {
			continue
		}
		var err error
		if bodies[i], err = json.Marshal(mark); err != nil {
			return fault.Wrap(err, fault.Internal, "the labels of stored data can't be written")
		}
	}
	return db.w.do(ctx, &job{whose: lineOf(e), run: func(t *tx) error {
		for i, mark := range marks {
			var err error
			if bodies[i] == nil {
				err = t.remove(storedLabelRows, mark.ID)
			} else {
				err = t.put(storedLabelRows, mark.ID, bodies[i])
			}
			if err != nil {
				return err
			}
		}
		e := e // a copy: the caller's stays as it is
		return t.append(&e)
	}})
}

// KeyedHash implements stored.HashStore.
func (db *DB) KeyedHash(server, value string) string {
	return db.w.proof.key.digest("sallyport/written", server, value)[:22]
}

// StoredWritten implements stored.HashStore.
func (r *Reader) StoredWritten(ctx context.Context) ([]stored.Written, error) {
	rows, err := r.whole(ctx, writtenRows, "ORDER BY id")
	if err != nil {
		return nil, err
	}
	all := make([]stored.Written, len(rows))
	for i, row := range rows {
		if err := json.Unmarshal(blob(row[1]), &all[i]); err != nil {
			return nil, damaged(err)
		}
		all[i].ID = text(row[0])
	}
	return all, nil
}

// keepWritten keeps what an untrusted session writes; nil: nothing.
func (t *tx) keepWritten(w *stored.Written) error {
	if w == nil {
		return nil
	}
	body, err := json.Marshal(w)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "what a call writes can't be kept")
	}
	return t.put(writtenRows, w.ID, body)
}
