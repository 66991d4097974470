package store

import (
	"context"
	"database/sql/driver"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	runs "sallyport.example/internal/run"
)

func noRun(id string) error {
	return fault.New(fault.NotFound, "There is no run %.80q.", id).At("run_id").Try("sallyport agents runs shows them.")
}

// storedRun is a run with what nobody is shown.
type storedRun struct {
	runs.Run
	Key     string   `json:"key,omitempty"`
	Request string   `json:"request,omitempty"`
	Print   []uint64 `json:"print,omitempty"`
}

func (t *tx) saveRun(r runs.Run) error {
	body, err := encode(storedRun{r, r.Key, r.Request, r.Print})
	if err != nil {
		return err
	}
	return t.put(runRows, r.ID, r.Agent, string(r.Status), r.Key, body)
}

// runOf is the run of a row.
func runOf(row []driver.Value) (runs.Run, error) {
	stored, err := decode[storedRun](blob(row[runBody]))
	if err == nil && stored.ID != text(row[0]) {
		err = changedRow(runRows, text(row[0]), "its body is of another run")
	}
	r := stored.Run
	r.Key, r.Request, r.Print = stored.Key, stored.Request, stored.Print
	return r, err
}

// StartRun implements runner.Store.
func (db *DB) StartRun(ctx context.Context, r runs.Run, e audit.Entry) (is runs.Run, isNew bool, err error) {
	err = db.w.do(ctx, &job{whose: lineOf(e), run: func(t *tx) error {
		if r.Key != "" {
			row, err := t.first(runRows, selectRunByKey, r.Key)
			if err != nil {
				return err
			}
			if row != nil {
				if is, err = runOf(row); err != nil {
					return err
				}
				isNew = false
				return is.Again(r.Request)
			}
		}
		if _, known := t.at(runRows, r.ID); known {
			return fault.New(fault.Conflict, "There is a run %s already.", r.ID)
		}
		is, isNew = r, true
		if err := t.saveRun(r); err != nil {
			return err
		}
		e := e // a copy: the caller's stays as it is
		return t.append(&e)
	}})
	return is, isNew, err
}

// ChangeRun implements runner.Store.
func (db *DB) ChangeRun(ctx context.Context, id string, change func(runs.Run) (runs.Run, audit.Entry, error)) (now runs.Run, err error) {
	err = db.w.do(ctx, &job{run: func(t *tx) error {
		row, err := t.read(runRows, id)
		if err == nil && row == nil {
			err = noRun(id)
		}
		if err != nil {
			return err
		}
		was, err := runOf(row)
		if err != nil {
			return err
		}
		var e audit.Entry
		if now, e, err = change(was); err != nil {
			return err
		}
		if err := t.saveRun(now); err != nil {
			return err
		}
		return t.append(&e)
	}})
	return now, err
}

// Run implements runner.Store.
func (r *Reader) Run(ctx context.Context, id string) (runs.Run, error) {
	row, err := r.one(ctx, runRows, id)
	if err == nil && row == nil {
		err = noRun(id)
	}
	if err != nil {
		return runs.Run{}, err
	}
	return runOf(row)
}

// RunByKey implements runner.Store.
func (r *Reader) RunByKey(ctx context.Context, key string) (is runs.Run, found bool, err error) {
	rows, err := r.some(ctx, runRows, selectRunByKey, key)
	if err != nil || len(rows) == 0 {
		return runs.Run{}, false, err
	}
	is, err = runOf(rows[0])
	return is, err == nil, err
}

// Runs implements runner.Store.
func (r *Reader) Runs(ctx context.Context, f runs.Filter) ([]runs.Run, error) {
	before := int64(1<<63 - 1)
	if f.After != "" {
		ok, err := r.row(ctx, selectRunPlace, []any{f.After}, &before)
		if err == nil && !ok {
			err = noRun(f.After)
		}
		if err != nil {
			return nil, err
		}
	}
	which, args := "WHERE n < $1", []any{before, int64(min(max(f.Limit, 0), maxPage))}
	if f.Agent != "" {
		which, args = which+" AND agent = $3", append(args, f.Agent)
	}
	if f.Running {
		which += " AND status = 'running'"
	}
	var rows [][]driver.Value
	err := r.twice(func() (err error) {
		rows, err = r.load(ctx, runRows, which+" ORDER BY n DESC LIMIT $2", args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := make([]runs.Run, len(rows))
	for i, row := range rows {
		if all[i], err = runOf(row); err != nil {
			return nil, err
		}
	}
	return all, nil
}
