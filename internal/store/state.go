package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/standing"
)

// micros is a time as columns hold it; NULL for the zero time.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func fromMicros(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64).UTC()
}

// moment is the time that a column holds.
func moment(v driver.Value) time.Time {
	n, ok := v.(int64)
	return fromMicros(sql.NullInt64{Int64: n, Valid: ok})
}

// Tokens returns every token, revoked ones too.
func (r *Reader) Tokens(ctx context.Context) ([]identity.Token, error) {
	tokens := []identity.Token{}
	rows, err := r.whole(ctx, tokenRows, "ORDER BY created, id")
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		t := identity.Token{ID: text(row[0]), Hash: text(row[1]), Created: moment(row[6]), Revoked: moment(row[8])}
		t.Subject = identity.Principal{Kind: identity.Kind(text(row[2])), ID: text(row[3]), Agent: text(row[4]), TokenID: t.ID, Expires: moment(row[7])}
		if err := json.Unmarshal([]byte(text(row[5])), &t.Subject.Roles); err != nil {
			return nil, damaged(err)
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// AddToken implements standing.Store.
func (db *DB) AddToken(ctx context.Context, tok identity.Token, e audit.Entry) error {
	roles, err := json.Marshal(tok.Subject.Roles)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the token can't be written")
	}
	return db.w.do(ctx, &job{run: func(t *tx) error {
		if _, known := t.at(tokenRows, tok.ID); known {
			return fault.New(fault.Conflict, "There is a token %s already.", tok.ID)
		}
		if err := t.put(tokenRows, tok.ID, tok.Hash, string(tok.Subject.Kind), tok.Subject.ID, tok.Subject.Agent, string(roles),
			tok.Created.UnixMicro(), micros(tok.Subject.Expires), micros(tok.Revoked)); err != nil {
			return err
		}
		e := e // a copy: the caller's stays as it is
		return t.append(&e)
	}})
}

// RevokeToken implements standing.Store. Revoking a token again is a Conflict.
func (db *DB) RevokeToken(ctx context.Context, id string, at time.Time, e audit.Entry) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		row, err := t.read(tokenRows, id)
		switch {
		case err != nil:
			return err
		case row == nil:
			return fault.New(fault.NotFound, "There is no token %.80q.", id)
		case row[tokenRevoked] != nil:
			return fault.New(fault.Conflict, "Token %s is revoked already.", id)
		}
		values := make([]driver.Value, len(tokenRows.columns))
		for i := range values {
			values[i] = row[i+1]
		}
		values[tokenRevoked-1] = at.UnixMicro()
		if err := t.put(tokenRows, id, values...); err != nil {
			return err
		}
		e := e // a copy: the caller's stays as it is
		return t.append(&e)
	}})
}

// Pins returns every pinned definition.
func (r *Reader) Pins(ctx context.Context) ([]catalogue.Pin, error) {
	pins := []catalogue.Pin{}
	rows, err := r.whole(ctx, pinRows, "ORDER BY operation")
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		pins = append(pins, catalogue.Pin{Operation: text(row[0]), Hash: text(row[1]), Definition: blob(row[2]), Pending: text(row[3]), PendingDef: blob(row[4]),
			AcceptedBy: text(row[5]), AcceptedAt: moment(row[6]), ConfirmedBy: text(row[7]), Launch: text(row[8]), PendingLaunch: text(row[9])})
	}
	return pins, nil
}

// SavePins implements catalogue.Store.
func (db *DB) SavePins(ctx context.Context, pins []catalogue.Pin, entries ...audit.Entry) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		for _, p := range pins {
			if err := t.put(pinRows, p.Operation, p.Hash, p.Definition, p.Pending, p.PendingDef, p.AcceptedBy, micros(p.AcceptedAt), p.ConfirmedBy, p.Launch, p.PendingLaunch); err != nil {
				return err
			}
		}
		return t.appendAll(entries)
	}})
}

// theSwitch is the key of the one row of switches.
const theSwitch = "1"

// Switches returns the kill switch as last written, which is why every switch in it is durable.
func (r *Reader) Switches(ctx context.Context) (standing.Switches, error) {
	s := standing.Switches{}
	rows, err := r.whole(ctx, switchRows, "")
	if err != nil {
		return s, err
	}
	for _, row := range rows {
		if err := json.Unmarshal(blob(row[switchBody]), &s); err != nil {
			return s, damaged(err)
		}
	}
	if s.Agents == nil {
		s.Agents = map[string]standing.Switch{}
	}
	s.Global.Durable = true
	for agent, sw := range s.Agents {
		sw.Durable = true
		s.Agents[agent] = sw
	}
	return s, nil
}

// SaveSwitches implements standing.Store. A state older than the stored one is a Conflict.
func (db *DB) SaveSwitches(ctx context.Context, s standing.Switches, entries ...audit.Entry) error {
	body, err := json.Marshal(s)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the kill switch can't be written")
	}
	return db.w.do(ctx, &job{run: func(t *tx) error {
		row, err := t.read(switchRows, theSwitch)
		if err != nil {
			return err
		}
		if row != nil && s.Epoch < number(row[switchEpoch]) {
			return fault.New(fault.Conflict, "The kill switch is at epoch %d already, and this is %d.", number(row[switchEpoch]), s.Epoch)
		}
		if err := t.put(switchRows, theSwitch, s.Epoch, body); err != nil {
			return err
		}
		return t.appendAll(entries)
	}})
}
