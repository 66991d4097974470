package store

import (
	"context"
	"database/sql/driver"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	runs "sallyport.example/internal/run"
)

func noRecommendation(id string) error {
	return fault.New(fault.NotFound, "There is no recommendation %.80q.", id).At("recommendation_id").Try("sallyport recommendations list shows them.")
}

// storedRecommendation is a recommendation with what nobody is shown.
type storedRecommendation struct {
	runs.Recommendation
	Print []uint64 `json:"print,omitempty"`
}

func (t *tx) saveRecommendation(r runs.Recommendation) error {
	body, err := encode(storedRecommendation{r, r.Print})
	if err != nil {
		return err
	}
	return t.put(recommendationRows, r.ID, r.Agent, string(r.State), body)
}

func recommendationOf(row []driver.Value) (runs.Recommendation, error) {
	stored, err := decode[storedRecommendation](blob(row[recommendationBody]))
	if err == nil && stored.ID != text(row[0]) {
		err = changedRow(recommendationRows, text(row[0]), "its body is of another recommendation")
	}
	r := stored.Recommendation
	r.Print = stored.Print
	return r, err
}

// AddRecommendation implements runner.Store.
func (db *DB) AddRecommendation(ctx context.Context, r runs.Recommendation, e audit.Entry) error {
	return db.w.do(ctx, &job{whose: lineOf(e), run: func(t *tx) error {
		if _, known := t.at(recommendationRows, r.ID); known {
			return fault.New(fault.Conflict, "There is a recommendation %s already.", r.ID)
		}
		if err := t.saveRecommendation(r); err != nil {
			return err
		}
		e := e // a copy: the caller's stays as it is
		return t.append(&e)
	}})
}

// ChangeRecommendation implements runner.Store.
func (db *DB) ChangeRecommendation(ctx context.Context, id string, change func(runs.Recommendation) (runs.Recommendation, audit.Entry, error)) (now runs.Recommendation, err error) {
	err = db.w.do(ctx, &job{run: func(t *tx) error {
		row, err := t.read(recommendationRows, id)
		if err == nil && row == nil {
			err = noRecommendation(id)
		}
		if err != nil {
			return err
		}
		was, err := recommendationOf(row)
		if err != nil {
			return err
		}
		var e audit.Entry
		if now, e, err = change(was); err != nil {
			return err
		}
		if err := t.saveRecommendation(now); err != nil {
			return err
		}
		return t.append(&e)
	}})
	return now, err
}

// Recommendation implements runner.Store.
func (r *Reader) Recommendation(ctx context.Context, id string) (runs.Recommendation, error) {
	row, err := r.one(ctx, recommendationRows, id)
	if err == nil && row == nil {
		err = noRecommendation(id)
	}
	if err != nil {
		return runs.Recommendation{}, err
	}
	return recommendationOf(row)
}

// Recommendations implements runner.Store.
func (r *Reader) Recommendations(ctx context.Context, f runs.RecommendationFilter) ([]runs.Recommendation, error) {
	before := int64(1<<63 - 1)
	if f.After != "" {
		ok, err := r.row(ctx, selectRecommendationPlace, []any{f.After}, &before)
		if err == nil && !ok {
			err = noRecommendation(f.After)
		}
		if err != nil {
			return nil, err
		}
	}
	which, order, args := "WHERE n < $1", " ORDER BY n DESC LIMIT $2", []any{before, int64(min(max(f.Limit, 0), maxPage))}
	if f.Oldest {
		order = " ORDER BY n LIMIT $2"
	}
	switch {
	case f.Agent != "" && f.State != "":
		which, args = which+" AND agent = $3 AND state = $4", append(args, f.Agent, string(f.State))
	case f.Agent != "":
		which, args = which+" AND agent = $3", append(args, f.Agent)
	case f.State != "":
		which, args = which+" AND state = $3", append(args, string(f.State))
	}
	var rows [][]driver.Value
	err := r.twice(func() (err error) {
		rows, err = r.load(ctx, recommendationRows, which+order, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := make([]runs.Recommendation, len(rows))
	for i, row := range rows {
		if all[i], err = recommendationOf(row); err != nil {
			return nil, err
		}
	}
	return all, nil
}
