package store

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/json"

	"sallyport/internal/approval"
	"sallyport/internal/audit"
	"sallyport/internal/declare"
	"sallyport/internal/fault"
	"sallyport/internal/gateway"
)

// encode writes a body. Arguments in it are canonical and stay so byte for byte.
func encode(v any) ([]byte, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "it can't be written")
	}
	return body.Bytes(), nil
}

func decode[T any](body []byte) (v T, err error) {
	if err := json.Unmarshal(body, &v); err != nil {
		return v, damaged(err)
	}
	return v, nil
}

func noDeclaration(id string) error {
	return fault.New(fault.NotFound, "There is no declaration %.80q.", id).At("declaration_id")
}

func noApproval(id string) error {
	return fault.New(fault.NotFound, "There is no approval %.80q.", id).At("approval_id")
}

// body returns the body that a query finds; nil if it finds none.
func (t *tx) body(query string, args ...driver.Value) (body []byte, err error) {
	err = t.w.c.query(func(v []driver.Value) error { body = v[0].([]byte); return nil }, query, args...)
	return body, err
}

func (t *tx) declaration(id string) (declare.Declaration, error) {
	body, err := t.body(selectDeclaration, id)
	if err == nil && body == nil {
		err = noDeclaration(id)
	}
	if err != nil {
		return declare.Declaration{}, err
	}
	return decode[declare.Declaration](body)
}

func (t *tx) approval(id string) (approval.Approval, error) {
	body, err := t.body(selectApproval, id)
	if err == nil && body == nil {
		err = noApproval(id)
	}
	if err != nil {
		return approval.Approval{}, err
	}
	return decode[approval.Approval](body)
}

func (t *tx) saveDeclaration(d declare.Declaration) error {
	body, err := encode(d)
	if err != nil {
		return err
	}
	t.wrote++
	return t.w.c.exec(updateDeclaration, d.ID, string(d.State), body)
}

func (t *tx) saveApproval(a approval.Approval) error {
	body, err := encode(a)
	if err != nil {
		return err
	}
	t.wrote++
	return t.w.c.exec(updateApproval, a.ID, string(a.State), body)
}

func (t *tx) addApproval(a approval.Approval) error {
	body, err := encode(a)
	if err != nil {
		return err
	}
	t.wrote++
	return t.w.c.exec(insertApproval, a.ID, a.Session, a.CallDigest, string(a.State), body)
}

// Declare implements gateway.Store.
func (db *DB) Declare(ctx context.Context, d declare.Declaration, a *approval.Approval, e audit.Entry) error {
	body, err := encode(d)
	if err != nil {
		return err
	}
	return db.w.do(ctx, &job{run: func(t *tx) error {
		found, err := t.w.c.has(selectDeclaration, d.ID)
		if err != nil {
			return err
		}
		if found {
			return fault.New(fault.Conflict, "There is a declaration %s already.", d.ID)
		}
		t.wrote++
		if err := t.w.c.exec(insertDeclaration, d.ID, d.Session, string(d.State), body); err != nil {
			return err
		}
		if a != nil {
			if err := t.addApproval(*a); err != nil {
				return err
			}
		}
		e := e // a copy: the caller's stays as it is
		return t.append(&e)
	}})
}

// AskPerson implements gateway.Store.
func (db *DB) AskPerson(ctx context.Context, a approval.Approval, open func(approval.Approval) bool, e audit.Entry) (approval.Approval, error) {
	var asked approval.Approval
	err := db.w.do(ctx, &job{run: func(t *tx) error {
		body, err := t.body(selectApprovalFor, a.Session, a.CallDigest)
		if err != nil {
			return err
		}
		if body != nil {
			if asked, err = decode[approval.Approval](body); err != nil || open(asked) {
				return err
			}
		}
		asked = a
		if err := t.addApproval(a); err != nil {
			return err
		}
		e := e
		return t.append(&e)
	}})
	if err != nil {
		return approval.Approval{}, err
	}
	return asked, nil
}

// ChangeApproval implements gateway.Store.
func (db *DB) ChangeApproval(ctx context.Context, id string, change func(approval.Approval, *declare.Declaration) (approval.Approval, *declare.Declaration, audit.Entry, error)) (approval.Approval, error) {
	var after approval.Approval
	err := db.w.do(ctx, &job{run: func(t *tx) error {
		before, err := t.approval(id)
		if err != nil {
			return err
		}
		var about *declare.Declaration
		if before.DeclarationID != "" {
			d, err := t.declaration(before.DeclarationID)
			if err != nil {
				return err
			}
			about = &d
		}
		a, d, e, err := change(before, about)
		if err != nil {
			return err
		}
		if a.ID != id || a.CallDigest != before.CallDigest || d != nil && (about == nil || d.ID != about.ID || d.Digest != about.Digest) {
			return fault.New(fault.Internal, "a change of approval %s would make it another", id)
		}
		if d != nil {
			if err := t.saveDeclaration(*d); err != nil {
				return err
			}
		}
		if err := t.saveApproval(a); err != nil {
			return err
		}
		after = a
		return t.append(&e)
	}})
	if err != nil {
		return approval.Approval{}, err
	}
	return after, nil
}

// use spends what an intent spends. The state machines decide, before anything is written.
func (t *tx) use(s gateway.Spend) error {
	var d declare.Declaration
	var a approval.Approval
	var err error
	if s.Declaration != "" {
		if d, err = t.declaration(s.Declaration); err == nil && d.CallDigest != s.CallDigest {
			err = fault.New(fault.DeclarationInvalid, "The declaration %s is of another call.", d.ID)
		}
		if err == nil {
			d, err = d.Spend(s.CallID, s.At)
		}
		if err != nil {
			return &gateway.SpendError{Err: err}
		}
	}
	if s.Approval != "" {
		if a, err = t.approval(s.Approval); err == nil {
			err = a.Covers(s.CallDigest, s.At)
		}
		if err == nil {
			a, err = a.Spend(s.CallID, s.At)
		}
		if err != nil {
			return &gateway.SpendError{Err: err}
		}
	}
	if d.ID != "" {
		if err := t.saveDeclaration(d); err != nil {
			return err
		}
	}
	if a.ID != "" {
		return t.saveApproval(a)
	}
	return nil
}

// Declaration implements gateway.Store.
func (r *Reader) Declaration(ctx context.Context, id string) (declare.Declaration, error) {
	return one[declare.Declaration](ctx, r, noDeclaration(id), selectDeclaration, id)
}

// Approval implements gateway.Store.
func (r *Reader) Approval(ctx context.Context, id string) (approval.Approval, error) {
	return one[approval.Approval](ctx, r, noApproval(id), selectApproval, id)
}

// ApprovalFor implements gateway.Store.
func (r *Reader) ApprovalFor(ctx context.Context, session, callDigest string) (approval.Approval, error) {
	return one[approval.Approval](ctx, r, fault.New(fault.NotFound, "Nobody was asked about this call."), selectApprovalFor, session, callDigest)
}

func one[T any](ctx context.Context, r *Reader, none error, query string, args ...any) (v T, err error) {
	var body []byte
	ok, err := r.row(ctx, query, args, &body)
	if err == nil && !ok {
		err = none
	}
	if err != nil {
		return v, err
	}
	return decode[T](body)
}

// Approvals implements gateway.Store.
func (r *Reader) Approvals(ctx context.Context, session string, state approval.State, after string, limit int) ([]approval.Approval, error) {
	before := int64(1<<63 - 1)
	if after != "" {
		ok, err := r.row(ctx, selectAsked, []any{after}, &before)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, noApproval(after)
		}
	}
	page := []approval.Approval{}
	err := r.rows(ctx, func(scan func(...any) error) error {
		var body []byte
		if err := scan(&body); err != nil {
			return err
		}
		a, err := decode[approval.Approval](body)
		page = append(page, a)
		return err
	}, selectApprovals, before, session, string(state), int64(min(max(limit, 0), maxPage)))
	return page, err
}
