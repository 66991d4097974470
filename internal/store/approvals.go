package store

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
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
	e := fault.New(fault.NotFound, "There is no approval %.80q.", id).At("approval_id")
	if strings.HasPrefix(id, "plan_") {
		return e.Try("A plan is decided on in its session: sallyport sessions show, sallyport sessions approve-plan.")
	}
	return e.Try("sallyport approvals list shows those that wait, and with --state all the others.")
}

func (t *tx) declaration(id string) (declare.Declaration, error) {
	row, err := t.read(declarationRows, id)
	if err == nil && row == nil {
		err = noDeclaration(id)
	}
	if err != nil {
		return declare.Declaration{}, err
	}
	return decode[declare.Declaration](blob(row[declarationBody]))
}

func (t *tx) approval(id string) (approval.Approval, error) {
	row, err := t.read(approvalRows, id)
	if err == nil && row == nil {
		err = noApproval(id)
	}
	if err != nil {
		return approval.Approval{}, err
	}
	return decode[approval.Approval](blob(row[approvalBody]))
}

func (t *tx) saveDeclaration(d declare.Declaration) error {
	body, err := encode(d)
	if err != nil {
		return err
	}
	return t.put(declarationRows, d.ID, d.Session, string(d.State), body)
}

func (t *tx) saveApproval(a approval.Approval) error {
	body, err := encode(a)
	if err != nil {
		return err
	}
	if !a.IntervenedAt.IsZero() {
		t.heard(a.Agent, a.Operation, a.IntervenedAt.UnixMicro())
	}
	return t.put(approvalRows, a.ID, a.Session, a.Agent, a.Operation, a.CallDigest, string(a.State), a.ExpiresAt.UnixMicro(), micros(a.DeferredUntil), silence(a), micros(a.IntervenedAt), body)
}

// heard notes when a person said anything but yes.
func (t *tx) heard(agent, operation string, at int64) {
	of := spokenOf{agent, operation}
	t.moved.spoken[of] = max(t.moved.spoken[of], t.w.proof.said(of), at)
}

func (t *tx) addApproval(a approval.Approval) error {
	if _, known := t.at(approvalRows, a.ID); known {
		return fault.New(fault.Conflict, "There is an approval %s already.", a.ID)
	}
	if err := t.saveApproval(a); err != nil {
		return err
	}
	for _, d := range a.Destinations {
		if err := t.w.c.exec(insertDestination, destination(d), a.ID); err != nil {
			return err
		}
	}
	return nil
}

// silence is the value of the column silence: NULL once a person has answered, because silence permits nothing then.
func silence(a approval.Approval) any {
	if len(a.Votes) > 0 {
		return nil
	}
	return micros(a.SilenceAt)
}

// destination returns an argument's value as the table has it.
func destination(value string) string {
	if len(value) > 200 {
		return call.HashBytes([]byte(value))
	}
	return value
}

// Declare implements gateway.Store.
func (db *DB) Declare(ctx context.Context, d declare.Declaration, e audit.Entry) error {
	return db.w.do(ctx, &job{whose: lineOf(e), run: func(t *tx) error {
		if err := t.addDeclaration(d); err != nil {
			return err
		}
		e := e // a copy: the caller's stays as it is
		return t.append(&e)
	}})
}

func (t *tx) addDeclaration(d declare.Declaration) error {
	if _, known := t.at(declarationRows, d.ID); known {
		return fault.New(fault.Conflict, "There is a declaration %s already.", d.ID)
	}
	return t.saveDeclaration(d)
}

// AskPerson implements desk.Store.
func (db *DB) AskPerson(ctx context.Context, q desk.Ask, decide func(desk.Found) (desk.Written, error)) (approval.Approval, error) {
	var asked approval.Approval
	err := db.w.do(ctx, &job{whose: whose{agent: q.Agent}, run: func(t *tx) error {
		if s, err := t.session(q.Session); err != nil {
			return err
		} else if s.State != session.Open {
			return fault.New(fault.SessionClosed, "Session %s is closed.", s.ID)
		}
		found, err := t.found(q)
		if err != nil {
			return err
		}
		w, err := decide(found)
		if err != nil {
			return err
		}
		switch next := w.Question; {
		case next == nil && found.Same != nil:
			asked = found.Same.Approval
			return nil
		case next == nil || next.Session != q.Session || next.CallDigest != q.CallDigest:
			return fault.New(fault.Internal, "a question about another call than the one that was looked up")
		}
		asked = *w.Question
		return t.writeQuestion(w)
	}})
	if err != nil {
		return approval.Approval{}, err
	}
	return asked, nil
}

// found reads the state that the decision on a question needs.
func (t *tx) found(q desk.Ask) (f desk.Found, err error) {
	if row, err := t.first(approvalRows, selectApprovalFor, q.Session, q.CallDigest); err != nil {
		return f, err
	} else if row != nil {
		same, err := decode[approval.Approval](blob(row[approvalBody]))
		if err != nil {
			return f, err
		}
		if f.Same, err = t.withDeclaration(same); err != nil {
			return f, err
		}
	}
	if q.Replaces != "" {
		old, err := t.approval(q.Replaces)
		if err != nil {
			return f, err
		}
		if f.Replaced, err = t.withDeclaration(old); err != nil {
			return f, err
		}
	}
	at := q.At.UnixMicro()
	if f.OpenOfSession, err = t.w.c.number(countOpen, q.Session, at); err != nil {
		return f, err
	}
	if f.OpenOfAgent, err = t.w.c.number(countOpenOfAgent, q.Agent, at); err != nil {
		return f, err
	}
	f.SilentOfAgent, err = t.w.c.number(countSilent, q.Agent, at)
	return f, err
}

// writeQuestion writes a question, the changes of older ones, and the entries of both.
func (t *tx) writeQuestion(w desk.Written) error {
	for _, u := range w.Older {
		if err := t.update(u); err != nil {
			return err
		}
	}
	if w.Declaration != nil {
		if err := t.addDeclaration(*w.Declaration); err != nil {
			return err
		}
	}
	if err := t.addApproval(*w.Question); err != nil {
		return err
	}
	if w.Drill {
		if err := t.put(drillRows, w.Question.ID); err != nil {
			return err
		}
	}
	return t.append(&w.Entry)
}

// withDeclaration returns an approval with the declaration that it is about, if there is one.
func (t *tx) withDeclaration(a approval.Approval) (*desk.Stored, error) {
	s := &desk.Stored{Approval: a}
	if a.DeclarationID == "" {
		return s, nil
	}
	d, err := t.declaration(a.DeclarationID)
	s.Declaration = &d
	return s, err
}

// update writes a changed approval, the declaration that it is about, and the entry.
func (t *tx) update(u desk.Update) error {
	if u.Declaration != nil {
		if err := t.saveDeclaration(*u.Declaration); err != nil {
			return err
		}
	}
	if err := t.saveApproval(u.Approval); err != nil {
		return err
	}
	return t.append(&u.Entry)
}

// ChangeApproval implements desk.Store.
func (db *DB) ChangeApproval(ctx context.Context, id string, change func(desk.Stored) (desk.Update, error)) (approval.Approval, error) {
	var after approval.Approval
	err := db.w.do(ctx, &job{run: func(t *tx) error {
		a, err := t.approval(id)
		if err != nil {
			return err
		}
		before, err := t.withDeclaration(a)
		if err != nil {
			return err
		}
		u, err := change(*before)
		if err != nil {
			return err
		}
		about, d := before.Declaration, u.Declaration
		if u.Approval.ID != id || u.Approval.CallDigest != a.CallDigest || d != nil && (about == nil || d.ID != about.ID || d.Digest != about.Digest) {
			return fault.New(fault.Internal, "a change of approval %s would make it another", id)
		}
		after = u.Approval
		return t.update(u)
	}})
	if err != nil {
		return approval.Approval{}, err
	}
	return after, nil
}

// use spends the approval, declaration or step of an intent. The state machines decide, before anything is written.
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
		if err == nil && a.StopEpoch != s.StopEpoch {
			err = fault.New(fault.ApprovalMismatch, "The agent was stopped after this was asked.").Try("Make the call again to ask again.")
		}
		if err == nil {
			a, err = a.Spend(s.CallID, s.At)
		}
		if err != nil {
			return &gateway.SpendError{Err: err}
		}
		if _, used := t.at(spentRows, s.Approval); used { // an approval that the log has as used stays used, whatever its row says
			return &gateway.SpendError{Err: fault.New(fault.Conflict, "The approval was used before; an approval is for one call.")}
		}
		if err := t.put(spentRows, s.Approval, s.CallID); err != nil {
			return err
		}
	}
	for _, key := range s.First {
		if _, known := t.at(usedRows, key); known {
			continue
		}
		if err := t.put(usedRows, key); err != nil {
			return err
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
	row, err := r.one(ctx, declarationRows, id)
	if err == nil && row == nil {
		err = noDeclaration(id)
	}
	if err != nil {
		return declare.Declaration{}, err
	}
	return decode[declare.Declaration](blob(row[declarationBody]))
}

// Approval implements desk.Store.
func (r *Reader) Approval(ctx context.Context, id string) (approval.Approval, error) {
	row, err := r.one(ctx, approvalRows, id)
	if err == nil && row == nil {
		err = noApproval(id)
	}
	if err != nil {
		return approval.Approval{}, err
	}
	return decode[approval.Approval](blob(row[approvalBody]))
}

// ApprovalFor implements desk.Store.
func (r *Reader) ApprovalFor(ctx context.Context, session, callDigest string) (approval.Approval, error) {
	found, err := r.approvals(ctx, selectApprovalFor, session, callDigest)
	if err == nil && len(found) == 0 {
		err = fault.New(fault.NotFound, "Nobody was asked about this call.")
	}
	if err != nil {
		return approval.Approval{}, err
	}
	return found[0], nil
}

// approvals reads some rows of approvals.
func (r *Reader) approvals(ctx context.Context, which string, args ...any) ([]approval.Approval, error) {
	page := []approval.Approval{}
	rows, err := r.some(ctx, approvalRows, which, args...)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		a, err := decode[approval.Approval](blob(row[approvalBody]))
		if err != nil {
			return nil, err
		}
		page = append(page, a)
	}
	return page, nil
}

// OpenApprovals implements desk.Store.
func (r *Reader) OpenApprovals(ctx context.Context, session string, now time.Time, limit int) ([]string, error) {
	ids := []string{}
	err := r.rows(ctx, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		ids = append(ids, id)
		return err
	}, selectOpen, session, now.UnixMicro(), int64(min(max(limit, 0), maxPage)))
	return ids, err
}

// ended are the states of approvals_ended.
var ended = []approval.State{approval.Rejected, approval.Spent, approval.Superseded}

// stateAt is the state at the time $1, computed from the columns.
var stateAt = map[approval.State]string{
	approval.Pending:    "expires > $1 AND (state = 'pending' AND (silence IS NULL OR silence > $1) OR state = 'deferred' AND until <= $1)",
	approval.Deferred:   "expires > $1 AND state = 'deferred' AND (until IS NULL OR until > $1)",
	approval.Approved:   "expires > $1 AND (state = 'approved' OR state = 'pending' AND silence <= $1)",
	approval.Expired:    "expires <= $1 AND state IN ('pending', 'deferred', 'approved')",
	approval.Rejected:   "$1 > 0 AND state = 'rejected'",
	approval.Spent:      "$1 > 0 AND state = 'spent'",
	approval.Superseded: "$1 > 0 AND state = 'superseded'",
	"":                  "$1 > 0",
}

// urgency is the place of a request's risk in risksDown, as the index approvals_urgent has it.
const (
	urgency   = "CASE WHEN json_valid(CAST(body AS TEXT)) THEN coalesce(instr('" + risksDown + "', json_extract(CAST(body AS TEXT), '$.risk')), 0) ELSE 0 END"
	risksDown = "CRITICAL HIGH MEDIUM LOW"

	// selectUrgent reads in the order of the index: sorting all that waits would be most of the work.
	selectUrgent = "SELECT n FROM approvals INDEXED BY approvals_urgent WHERE state IN ('pending', 'deferred') AND "
)

// Approvals implements desk.Store.
func (r *Reader) Approvals(ctx context.Context, f desk.Filter) ([]approval.Approval, error) {
	where, known := stateAt[f.State]
	if !known {
		return nil, fault.New(fault.RequestMalformed, "There is no state %.40q.", f.State).At("state")
	}
	before := int64(1<<63 - 1)
	if f.After != "" {
		ok, err := r.row(ctx, selectAsked, []any{f.After}, &before)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, noApproval(f.After)
		}
	}
	order := "n DESC"
	// Only the bodies that are shown are read: sorting all of them would be most of the work.
	query := "SELECT n FROM approvals WHERE " + where + " AND n < $2"
	args := []any{f.Now.UnixMicro(), before, int64(min(max(f.Limit, 0), maxPage))}
	switch {
	case f.Session != "":
		query += " AND session = $4"
		args = append(args, f.Session)
		if f.Operation != "" {
			query += " AND operation = $5"
			args = append(args, f.Operation)
		}
	case f.Operation != "":
		query += " AND operation = $4"
		args = append(args, f.Operation)
	case f.Urgent:
		order = urgency + ", expires, n"
		query = selectUrgent + where + " AND $2 > 0"
		if f.After != "" {
			query += " AND (" + urgency + ", expires, n) > (SELECT " + urgency + ", expires, n FROM approvals WHERE id = $4)"
		} else {
			query += " AND $4 = ''"
		}
		args = append(args, f.After)
		if f.Risk != "" {
			query += " AND " + urgency + " = $5"
			args = append(args, int64(strings.Index(risksDown, f.Risk)+1))
		} else {
			query += " AND $5 = 0"
			args = append(args, int64(0))
		}
		if f.Agent != "" {
			query += " AND agent = $6"
			args = append(args, f.Agent)
		}
	case f.Silent:
		query += " AND silence > $1"
		order = "silence, n"
	case f.Destination != "":
		query += " AND n IN (SELECT n FROM approval_destinations WHERE destination = $4)"
		args = append(args, destination(f.Destination))
		order = "CASE state WHEN 'rejected' THEN 0 WHEN 'spent' THEN 1 WHEN 'approved' THEN 1 ELSE 2 END, n DESC" // answers of people first
	case slices.Contains(ended, f.State):
		query += " AND state IN ('rejected', 'spent', 'superseded')" // so that approvals_ended serves it
	}
	rows, doubts, err := r.each(ctx, approvalRows, "WHERE n IN ("+query+" ORDER BY "+order+" LIMIT $3) ORDER BY "+order, args...)
	if err != nil {
		return nil, err
	}
	page := make([]approval.Approval, len(rows))
	for i, row := range rows {
		if doubts[i] == nil {
			page[i], doubts[i] = decode[approval.Approval](blob(row[approvalBody]))
		}
		if doubts[i] == nil && page[i].ID != text(row[0]) {
			doubts[i] = changedRow(approvalRows, text(row[0]), "its body is of another approval")
		}
		if doubts[i] != nil { // named, and set aside: one row must not hide the others
			column := func(name string) string { return text(row[approvalRows.place(name)]) }
			page[i] = approval.Approval{ID: text(row[0]), Session: column("session"), Agent: column("agent"), Operation: column("operation"), State: approval.Damaged}
		}
	}
	return page, nil
}

// Latest implements gateway.Store.
func (r *Reader) Latest(ctx context.Context) (time.Time, error) {
	var index, at int64
	ok, err := r.row(ctx, selectLast, nil, &index, &at)
	if err != nil || !ok {
		return time.Time{}, err
	}
	return time.UnixMicro(at).UTC(), nil
}

// CountApprovals implements desk.Store.
func (r *Reader) CountApprovals(ctx context.Context, state approval.State, now time.Time) (n int64, oldest string, err error) {
	where, known := stateAt[state]
	if !known {
		return 0, "", fault.New(fault.RequestMalformed, "There is no state %.40q.", state).At("state")
	}
	_, err = r.row(ctx, "SELECT count, coalesce((SELECT id FROM approvals WHERE n = first), '') FROM (SELECT count(*) AS count, min(n) AS first FROM approvals WHERE "+where+")",
		[]any{now.UnixMicro()}, &n, &oldest)
	return n, oldest, err
}

// IsDrill implements desk.Store.
func (r *Reader) IsDrill(ctx context.Context, id string) (bool, error) {
	row, err := r.one(ctx, drillRows, id)
	return row != nil, err
}

// Drills implements desk.Store.
func (r *Reader) Drills(ctx context.Context) (desk.DrillCounts, error) {
	var n desk.DrillCounts
	_, err := r.row(ctx, countDrills, nil, &n.Asked, &n.Rejected, &n.Approved)
	return n, err
}

// VoteCounts implements desk.Store.
func (r *Reader) VoteCounts(ctx context.Context, requests int) (desk.VoteCounts, error) {
	var n desk.VoteCounts
	_, err := r.row(ctx, countVotes, []any{requests}, &n.Requests, &n.Approved, &n.Rejected, &n.Own)
	return n, err
}

// Objected implements desk.Store.
func (db *DB) Objected(_ context.Context, agent, operation string, since time.Time) (bool, error) {
	said := db.w.proof.said(spokenOf{agent, operation})
	return said > 0 && said >= since.UnixMicro(), nil
}

// Used implements gateway.Store.
func (db *DB) Used(_ context.Context, key string) (bool, error) {
	return db.w.proof.has(usedRows, key), nil
}

// Used tells whether an intent has written the key.
func (r *Reader) Used(ctx context.Context, key string) (bool, error) {
	var one int64
	return r.row(ctx, selectUsed, []any{key}, &one)
}

// Quarantines implements standing.Store.
func (r *Reader) Quarantines(ctx context.Context) (all map[string]standing.Quarantine, counts map[string]int64, err error) {
	all, counts = map[string]standing.Quarantine{}, map[string]int64{}
	rows, err := r.whole(ctx, quarantineRows, "")
	if err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		all[text(row[0])] = standing.Quarantine{Since: time.UnixMicro(number(row[1])).UTC(), By: text(row[2]), Reason: text(row[3])}
	}
	if rows, err = r.whole(ctx, quarantineCountRows, ""); err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		counts[text(row[0])] = number(row[1])
	}
	return all, counts, nil
}

// SaveQuarantine implements standing.Store.
func (db *DB) SaveQuarantine(ctx context.Context, agent string, q *standing.Quarantine, e audit.Entry) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		var err error
		if q == nil {
			err = t.remove(quarantineRows, agent)
		} else if err = t.put(quarantineRows, agent, q.Since.UnixMicro(), q.By, q.Reason); err == nil {
			err = t.put(quarantineCountRows, agent, q.Number)
		}
		if err != nil {
			return err
		}
		e := e // a copy: the caller's stays as it is
		return t.append(&e)
	}})
}
