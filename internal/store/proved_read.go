package store

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"

	"sallyport.example/internal/fault"
)

// one reads the row with the key; nil if there is none.
func (r *Reader) one(ctx context.Context, t *table, key string) (row []driver.Value, err error) {
	err = r.twice(func() error {
		rows, err := r.load(ctx, t, "WHERE "+t.key+" = $1", t.keyValue(key))
		if err != nil {
			return err
		}
		row = nil
		if len(rows) == 1 {
			row = rows[0]
		} else if r.proof != nil && r.proof.has(t, key) {
			return missing(t, key)
		}
		return nil
	})
	return row, err
}

// some reads the rows that a clause finds.
func (r *Reader) some(ctx context.Context, t *table, which string, args ...any) (rows [][]driver.Value, err error) {
	err = r.twice(func() (err error) { rows, err = r.load(ctx, t, which, args...); return err })
	return rows, err
}

// whole reads all rows of a table.
func (r *Reader) whole(ctx context.Context, t *table, order string) (rows [][]driver.Value, err error) {
	err = r.twice(func() (err error) {
		if rows, err = r.load(ctx, t, order); err == nil && r.proof != nil && len(rows) != r.proof.count(t) {
			err = changedRow(t, "*", "rows are gone, and no entry of the log removed them")
		}
		return err
	})
	return rows, err
}

// twice reads again if what was read is in doubt: a commit may have become visible, and not have been taken over yet. The second time no commit can.
func (r *Reader) twice(read func() error) error {
	err := read()
	if err == nil || r.proof == nil || !fault.Is(err, fault.StoreUnavailable) {
		return err
	}
	r.proof.committing.RLock()
	defer r.proof.committing.RUnlock()
	return read()
}

// each reads the rows that a clause finds, those that are in doubt too: doubts says of each row why it is, or nil.
func (r *Reader) each(ctx context.Context, t *table, which string, args ...any) (rows [][]driver.Value, doubts []error, err error) {
	settled := false // the second time, what is in doubt is what the caller gets
	err = r.twice(func() error {
		rows, doubts = nil, nil
		err := r.rows(ctx, func(scan func(...any) error) error {
			row, err := t.scan(scan)
			rows, doubts = append(rows, row), append(doubts, r.doubt(t, row))
			return err
		}, r.known(t.all+" "+which), args...)
		if i := slices.IndexFunc(doubts, func(d error) bool { return d != nil }); err == nil && i >= 0 && !settled {
			settled, err = true, doubts[i]
		}
		return err
	})
	return rows, doubts, err
}

// doubt tells why a row that was read is not the one that the log says, or nil.
func (r *Reader) doubt(t *table, row []driver.Value) error {
	if r.proof == nil || row == nil {
		return nil
	}
	at, known := r.proof.at(t, keyText(row[0]))
	return r.proof.check(t, row[:len(t.covered())+2], at, known)
}

// load reads rows, and fails with the first that is in doubt. Behind its columns a row has its entry, its MAC and, where the table has one, the column
// that is proved apart.
func (r *Reader) load(ctx context.Context, t *table, which string, args ...any) (rows [][]driver.Value, err error) {
	err = r.rows(ctx, func(scan func(...any) error) error {
		row, err := t.scan(scan)
		if err != nil {
			return err
		}
		rows = append(rows, row)
		return r.doubt(t, row)
	}, r.known(t.all+" "+which), args...)
	return rows, err
}

// scan reads the columns of one row.
func (t *table) scan(scan func(...any) error) ([]driver.Value, error) {
	n := len(t.covered()) + 2
	if t.zero != "" {
		n++
	}
	cells, into := make([]any, n), make([]any, n)
	for i := range cells {
		into[i] = &cells[i]
	}
	if err := scan(into...); err != nil {
		return nil, err
	}
	row := make([]driver.Value, n)
	for i, v := range cells {
		row[i] = v
	}
	return row, nil
}

// known makes a query one that a database of a version before this can answer, too.
func (r *Reader) known(query string) string {
	if r.unproved {
		query = strings.Replace(query, "entry, mac", "-1, NULL", 1)
	}
	if r.unlaunched {
		query = strings.Replace(query, "launch, pending_launch", "'', ''", 1)
	}
	if r.unconfirmed {
		query = strings.Replace(query, "confirmed_by", "''", 1)
	}
	return query
}

// first reads the first row that a clause finds, and checks it; nil if there is none.
func (t *tx) first(tab *table, which string, args ...driver.Value) (row []driver.Value, err error) {
	err = t.w.c.query(func(v []driver.Value) error {
		if row == nil {
			row = append(row, v...)
		}
		return nil
	}, tab.all+" "+which, args...)
	if err != nil || row == nil {
		return nil, err
	}
	at, known := t.at(tab, keyText(row[0]))
	return row, t.w.proof.check(tab, row[:len(tab.covered())+2], at, known)
}
