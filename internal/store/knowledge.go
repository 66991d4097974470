package store

import (
	"context"
	"encoding/json"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
)

// The methods of library.Store. The tables refuse every change, so what is known is refused before it is written.

// KnowledgeEvents implements library.Store.
func (r *Reader) KnowledgeEvents(ctx context.Context) ([]knowledge.Event, error) {
	rows, err := r.whole(ctx, knowledgeEventRows, "ORDER BY key")
	if err != nil {
		return nil, err
	}
	events := make([]knowledge.Event, len(rows))
	for i, row := range rows {
		if err := json.Unmarshal(blob(row[1]), &events[i]); err != nil || events[i].RowKey() != text(row[0]) {
			return nil, damaged(err)
		}
	}
	return events, nil
}

// AddKnowledgeEvents implements library.Store.
func (db *DB) AddKnowledgeEvents(ctx context.Context, events []knowledge.Event, entries []audit.Entry) error {
	bodies := make([][]byte, len(events))
	for i := range events {
		var err error
		if bodies[i], err = json.Marshal(&events[i]); err != nil {
			return fault.Wrap(err, fault.Internal, "a change of a document can't be written")
		}
	}
	return db.w.do(ctx, &job{run: func(t *tx) error {
		for i := range events {
			e := &events[i]
			before := knowledge.Event{Document: e.Document, Seq: e.Seq - 1}
			if _, known := t.at(knowledgeEventRows, e.RowKey()); known {
				return fault.New(fault.Conflict, "The document %s has moved on.", e.Document)
			}
			if _, known := t.at(knowledgeEventRows, before.RowKey()); !known && e.Seq > 1 {
				return fault.New(fault.Conflict, "The document %s is not where this continues.", e.Document)
			}
			if err := t.put(knowledgeEventRows, e.RowKey(), bodies[i]); err != nil {
				return err
			}
			entry := entries[i] // a copy: the caller's stays as it is
			if err := t.append(&entry); err != nil {
				return err
			}
		}
		return nil
	}})
}

// KnowledgeSnapshots implements library.Store.
func (r *Reader) KnowledgeSnapshots(ctx context.Context) ([]knowledge.Snapshot, error) {
	rows, err := r.whole(ctx, knowledgeSnapshotRows, "ORDER BY id")
	if err != nil {
		return nil, err
	}
	all := make([]knowledge.Snapshot, len(rows))
	for i, row := range rows {
		if err := json.Unmarshal(blob(row[1]), &all[i]); err != nil {
			return nil, damaged(err)
		}
	}
	return all, nil
}

// AddKnowledgeSnapshot implements library.Store.
func (db *DB) AddKnowledgeSnapshot(ctx context.Context, s knowledge.Snapshot, e audit.Entry) error {
	body, err := json.Marshal(s)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the snapshot can't be written")
	}
	return db.addKnown(ctx, knowledgeSnapshotRows, s.ID, body, e)
}

// KnowledgeDigest implements library.Store.
func (r *Reader) KnowledgeDigest(ctx context.Context, index string) (string, error) {
	return r.knowledgeText(ctx, knowledgeIndexRows, index)
}

// AddKnowledgeDigest implements library.Store.
func (db *DB) AddKnowledgeDigest(ctx context.Context, index, digest string, e audit.Entry) error {
	return db.addKnown(ctx, knowledgeIndexRows, index, digest, e)
}

// KnowledgePin implements library.Store.
func (r *Reader) KnowledgePin(ctx context.Context, session string) (string, error) {
	return r.knowledgeText(ctx, knowledgePinRows, session)
}

// PinKnowledge implements library.Store.
func (db *DB) PinKnowledge(ctx context.Context, session, snapshot string, e audit.Entry) error {
	return db.addKnown(ctx, knowledgePinRows, session, snapshot, e)
}

// knowledgeText is the one value of a row; "" without the row.
func (r *Reader) knowledgeText(ctx context.Context, t *table, key string) (string, error) {
	row, err := r.one(ctx, t, key)
	if err != nil || row == nil {
		return "", err
	}
	return text(row[1]), nil
}

// addKnown adds a row of one value; one that is there already is a Conflict.
func (db *DB) addKnown(ctx context.Context, tab *table, key string, value any, e audit.Entry) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		if _, known := t.at(tab, key); known {
			return fault.New(fault.Conflict, "%s is there already.", key)
		}
		if err := t.put(tab, key, value); err != nil {
			return err
		}
		e := e // a copy: the caller's stays as it is
		return t.append(&e)
	}})
}
