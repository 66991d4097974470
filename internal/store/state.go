package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
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

// Tokens returns every token, revoked ones too.
func (r *Reader) Tokens(ctx context.Context) ([]identity.Token, error) {
	tokens := []identity.Token{}
	err := r.rows(ctx, func(scan func(...any) error) error {
		var t identity.Token
		var roles []byte
		var created, expires, revoked sql.NullInt64
		if err := scan(&t.ID, &t.Hash, &t.Subject.Kind, &t.Subject.ID, &t.Subject.Agent, &roles, &created, &expires, &revoked); err != nil {
			return err
		}
		if err := json.Unmarshal(roles, &t.Subject.Roles); err != nil {
			return damaged(err)
		}
		t.Subject.TokenID, t.Subject.Expires = t.ID, fromMicros(expires)
		t.Created, t.Revoked = fromMicros(created), fromMicros(revoked)
		tokens = append(tokens, t)
		return nil
	}, selectTokens)
	return tokens, err
}

// AddToken implements standing.Store.
func (db *DB) AddToken(ctx context.Context, tok identity.Token, e audit.Entry) error {
	roles, err := json.Marshal(tok.Subject.Roles)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the token can't be written")
	}
	return db.w.do(ctx, &job{run: func(t *tx) error {
		t.wrote++
		if err := t.w.c.exec(insertToken, tok.ID, tok.Hash, string(tok.Subject.Kind), tok.Subject.ID, tok.Subject.Agent, string(roles),
			tok.Created.UnixMicro(), micros(tok.Subject.Expires), micros(tok.Revoked)); err != nil {
			return err
		}
		return t.append(&e)
	}})
}

// RevokeToken implements standing.Store. Revoking a token again is a Conflict.
func (db *DB) RevokeToken(ctx context.Context, id string, at time.Time, e audit.Entry) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		n, err := t.w.c.changed(revokeToken, id, at.UnixMicro())
		if err != nil {
			return err
		}
		if n == 0 {
			found, err := t.w.c.has(selectToken, id)
			if err != nil {
				return err
			}
			if found {
				return fault.New(fault.Conflict, "Token %s is revoked already.", id)
			}
			return fault.New(fault.NotFound, "There is no token %.80q.", id)
		}
		t.wrote++
		return t.append(&e)
	}})
}

// Pins returns every pinned definition.
func (r *Reader) Pins(ctx context.Context) ([]catalogue.Pin, error) {
	pins, query := []catalogue.Pin{}, selectPins
	if r.unconfirmed {
		query = strings.Replace(query, "confirmed_by", "''", 1)
	}
	err := r.rows(ctx, func(scan func(...any) error) error {
		var p catalogue.Pin
		var at sql.NullInt64
		if err := scan(&p.Operation, &p.Hash, &p.Definition, &p.Pending, &p.PendingDef, &p.AcceptedBy, &at, &p.ConfirmedBy); err != nil {
			return err
		}
		p.AcceptedAt = fromMicros(at)
		pins = append(pins, p)
		return nil
	}, query)
	return pins, err
}

// SavePins implements catalogue.Store.
func (db *DB) SavePins(ctx context.Context, pins []catalogue.Pin, entries ...audit.Entry) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		t.wrote++
		for _, p := range pins {
			if err := t.w.c.exec(upsertPin, p.Operation, p.Hash, p.Definition, p.Pending, p.PendingDef, p.AcceptedBy, micros(p.AcceptedAt), p.ConfirmedBy); err != nil {
				return err
			}
		}
		for i := range entries {
			if err := t.append(&entries[i]); err != nil {
				return err
			}
		}
		return nil
	}})
}

// Switches returns the kill switch as last written, which is why every switch in it is durable.
func (r *Reader) Switches(ctx context.Context) (standing.Switches, error) {
	s := standing.Switches{}
	var body []byte
	ok, err := r.row(ctx, selectSwitches, nil, &body)
	if err != nil {
		return s, err
	}
	if ok {
		if err := json.Unmarshal(body, &s); err != nil {
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
		have, err := t.w.c.number(selectEpoch)
		if err != nil {
			return err
		}
		if s.Epoch < have {
			return fault.New(fault.Conflict, "The kill switch is at epoch %d already, and this is %d.", have, s.Epoch)
		}
		t.wrote++
		if err := t.w.c.exec(upsertSwitches, s.Epoch, body); err != nil {
			return err
		}
		return t.appendAll(entries)
	}})
}
