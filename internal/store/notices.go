package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/notify"
)

const (
	insertNotice  = "INSERT INTO notices (channel, key, event, state, added, due, tries, error, body) VALUES ($1, $2, $3, 'waiting', $4, $5, $6, '', $7) ON CONFLICT (channel, key) DO NOTHING"
	followNotice  = "INSERT INTO notices (channel, key, event, state, added, due, tries, error, body) SELECT $1, $2, $3, 'waiting', $4, $5, $6, '', $7 WHERE EXISTS (SELECT 1 FROM notices WHERE channel = $1 AND key = $8 AND state IN ('waiting', 'sent')) ON CONFLICT (channel, key) DO NOTHING"
	selectNotices = "SELECT n, channel, key, event, body, added, due, tries FROM notices WHERE channel = $1 AND event = $2 AND state = 'waiting' ORDER BY due, n LIMIT $3"
	foldNotice    = "UPDATE notices SET state = 'folded', body = $2 WHERE n = $1 AND state = 'waiting'"
	sentNotice    = "UPDATE notices SET state = 'sent', error = '', body = $2 WHERE n = $1 AND state = 'waiting'"
	failedNotice  = "UPDATE notices SET state = $2, tries = $3, due = $4, error = $5 WHERE n = $1 AND state = 'waiting'"
	removeNotices = "DELETE FROM notices WHERE n IN (SELECT n FROM notices WHERE added < $1 ORDER BY added LIMIT $2)"
	channelSent   = "INSERT INTO notice_channels (channel, sent, failed, last_error, last_success) SELECT channel, 1, 0, '', $2 FROM notices WHERE n = $1 ON CONFLICT (channel) DO UPDATE SET sent = notice_channels.sent + 1, last_success = excluded.last_success"
	channelFailed = "INSERT INTO notice_channels (channel, sent, failed, last_error, last_failure) SELECT channel, 0, $2, $3, $4 FROM notices WHERE n = $1 ON CONFLICT (channel) DO UPDATE SET failed = notice_channels.failed + excluded.failed, last_error = excluded.last_error, last_failure = excluded.last_failure"
	countNotices  = "SELECT channel, 0, sent, failed, last_error, last_failure, last_success FROM notice_channels UNION ALL SELECT channel, count(*), 0, 0, '', NULL, NULL FROM notices WHERE state = 'waiting' GROUP BY channel ORDER BY 2"
)

// maxRemoved bounds the notices that one transaction removes, because calls wait for the same connection.
const maxRemoved = 1000

var _ notify.Store = (*DB)(nil)

// AddNotices implements notify.Store.
func (db *DB) AddNotices(ctx context.Context, notices []notify.Notice) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		for _, n := range notices {
			if err := t.addNotice(n); err != nil {
				return err
			}
		}
		return nil
	}})
}

func (t *tx) addNotice(n notify.Notice) error {
	statement, values := insertNotice, []driver.Value{n.Channel, n.Key, string(n.Event), n.Added.UnixMicro(), n.Due.UnixMicro(), int64(n.Tries), n.Body}
	if n.Follows != "" {
		statement, values = followNotice, append(values, n.Follows)
	}
	added, err := t.w.c.changed(statement, values...)
	t.wrote += int(added)
	return err
}

// WaitingNotices implements notify.Store.
func (r *Reader) WaitingNotices(ctx context.Context, channel string, e notify.Event, limit int) ([]notify.Notice, error) {
	notices := []notify.Notice{}
	err := r.rows(ctx, func(scan func(...any) error) error {
		var n notify.Notice
		var added, due sql.NullInt64
		err := scan(&n.ID, &n.Channel, &n.Key, &n.Event, &n.Body, &added, &due, &n.Tries)
		n.Added, n.Due = fromMicros(added), fromMicros(due)
		notices = append(notices, n)
		return err
	}, selectNotices, channel, string(e), int64(min(max(limit, 0), maxPage)))
	return notices, err
}

// FoldNotices implements notify.Store.
func (db *DB) FoldNotices(ctx context.Context, ids []int64, into notify.Notice) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		for _, id := range ids {
			n, err := t.w.c.changed(foldNotice, id, []byte{})
			if err != nil {
				return err
			}
			if n == 0 {
				return fault.New(fault.Conflict, "A notice that was to go into a digest doesn't wait any more.")
			}
			t.wrote++
		}
		return t.addNotice(into)
	}})
}

// NoticeSent implements notify.Store.
func (db *DB) NoticeSent(ctx context.Context, id int64, at time.Time) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		n, err := t.w.c.changed(sentNotice, id, []byte{})
		if err != nil || n == 0 {
			return err
		}
		t.wrote++
		return t.w.c.exec(channelSent, id, at.UnixMicro())
	}})
}

// NoticeFailed implements notify.Store.
func (db *DB) NoticeFailed(ctx context.Context, id int64, tries int, due time.Time, why string, at time.Time) error {
	state, givenUp := "waiting", int64(0)
	if due.IsZero() {
		state, givenUp, due = "failed", 1, at
	}
	return db.w.do(ctx, &job{run: func(t *tx) error {
		n, err := t.w.c.changed(failedNotice, id, state, int64(tries), due.UnixMicro(), why)
		if err != nil || n == 0 {
			return err
		}
		t.wrote++
		return t.w.c.exec(channelFailed, id, givenUp, why, at.UnixMicro())
	}})
}

// RemoveNotices implements notify.Store.
func (db *DB) RemoveNotices(ctx context.Context, before time.Time) error {
	for {
		var removed int64
		err := db.w.do(ctx, &job{run: func(t *tx) (err error) {
			removed, err = t.w.c.changed(removeNotices, before.UnixMicro(), int64(maxRemoved))
			t.wrote += int(removed)
			return err
		}})
		if err != nil || removed < maxRemoved {
			return err
		}
	}
}

// NoticeCounts implements notify.Store. It is one statement, so that a notice that was sent a moment ago is in one of the counts.
func (r *Reader) NoticeCounts(ctx context.Context) (map[string]notify.Counts, error) {
	counts := map[string]notify.Counts{}
	err := r.rows(ctx, func(scan func(...any) error) error {
		var channel string
		var c notify.Counts
		var failure, success sql.NullInt64
		if err := scan(&channel, &c.Waiting, &c.Sent, &c.Failed, &c.LastError, &failure, &success); err != nil {
			return err
		}
		c.LastFailure, c.LastSuccess = fromMicros(failure), fromMicros(success)
		if done, ok := counts[channel]; ok { // a channel has one row of the notices that are done, and then one of those that wait
			done.Waiting = c.Waiting
			c = done
		}
		counts[channel] = c
		return nil
	}, countNotices)
	return counts, err
}
