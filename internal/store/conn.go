package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"sallyport.example/internal/fault"
)

// dsn names the database file to the driver. path must be absolute.
func dsn(path, params string) string {
	return (&url.URL{Scheme: "file", Path: path, RawQuery: params}).String()
}

const (
	// busy_timeout is under half of patience, so a job behind a batch that waits for a lock still gets a turn of its own.
	writeParams = "_pragma=busy_timeout(900)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)" +
		"&_pragma=trusted_schema(0)&_pragma=recursive_triggers(1)&_pragma=wal_autocheckpoint(4000)&_pragma=journal_size_limit(16777216)&_pragma=secure_delete(1)&_dqs=0&_defensive=1"
	busyTimeout = "PRAGMA busy_timeout = 900" // as in writeParams
	readParams  = "mode=ro&_pragma=busy_timeout(900)&_pragma=query_only(1)&_pragma=trusted_schema(0)&_dqs=0&_defensive=1"
)

// conn is one connection below database/sql, whose bookkeeping would cost as much per statement as the statement does. It has
// one owner at a time and keeps each statement that it has seen prepared.
type conn struct {
	dc    driver.Conn
	stmts map[string]*stmt
}

type stmt struct {
	s    driver.Stmt
	args []driver.NamedValue
}

func dial(name string) (*conn, error) {
	dc, err := new(sqlite.Driver).Open(name)
	if err != nil {
		return nil, err
	}
	return &conn{dc: dc, stmts: map[string]*stmt{}}, nil
}

func (c *conn) prepare(query string, args []driver.Value) (*stmt, error) {
	st := c.stmts[query]
	if st == nil {
		s, err := c.dc.Prepare(query)
		if err != nil {
			return nil, err
		}
		st = &stmt{s: s, args: make([]driver.NamedValue, len(args))}
		c.stmts[query] = st
	}
	for i, a := range args {
		st.args[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return st, nil
}

// exec runs a statement; args are int64, string, []byte or nil.
func (c *conn) exec(query string, args ...driver.Value) error {
	_, err := c.changed(query, args...)
	return err
}

// changed is exec, and tells how many rows it touched.
func (c *conn) changed(query string, args ...driver.Value) (int64, error) {
	st, err := c.prepare(query, args)
	if err != nil {
		return 0, err
	}
	res, err := st.s.(driver.StmtExecContext).ExecContext(context.Background(), st.args)
	clear(st.args) // let go of what was bound
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// query calls row for each row; the values are only good until it returns, except for blobs and strings.
func (c *conn) query(row func(v []driver.Value) error, query string, args ...driver.Value) error {
	st, err := c.prepare(query, args)
	if err != nil {
		return err
	}
	rows, err := st.s.(driver.StmtQueryContext).QueryContext(context.Background(), st.args)
	clear(st.args)
	if err != nil {
		return err
	}
	v := make([]driver.Value, len(rows.Columns()))
	for {
		switch err = rows.Next(v); err {
		case nil:
			err = row(v)
		case io.EOF:
			return rows.Close()
		}
		if err != nil {
			return errors.Join(err, rows.Close())
		}
	}
}

// number returns the one number that a query asks for; 0 without a row.
func (c *conn) number(query string, args ...driver.Value) (n int64, err error) {
	err = c.query(func(v []driver.Value) error { n = v[0].(int64); return nil }, query, args...)
	return n, err
}

func (c *conn) close() error {
	for _, st := range c.stmts {
		st.s.Close() // an error is one that its last use has reported
	}
	return c.dc.Close()
}

// script runs several statements.
func (c *conn) script(sql string) error {
	_, err := c.dc.(driver.ExecerContext).ExecContext(context.Background(), sql, nil)
	return err
}

// engineFailed tells whether the engine could not do what it was asked. Constraints and triggers that refuse are its answer, not a failure.
func engineFailed(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff != lib.SQLITE_CONSTRAINT
}

// locked tells whether another connection holds the lock.
func locked(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == lib.SQLITE_BUSY || e.Code()&0xff == lib.SQLITE_LOCKED)
}

// unavailable is the one place where errors of the engine become ours, by their code. A fault error stays. A refusal by a rule of
// the schema is a Conflict. Any other error means that the store can't be used now, and says why.
func unavailable(err error, code fault.Code) error {
	if err == nil {
		return nil
	}
	var own *fault.Error
	if errors.As(err, &own) {
		return err
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return fault.Wrap(err, code, "%s", code.Sentence())
	}
	why, remedy := "", ""
	switch e.Code() & 0xff {
	case lib.SQLITE_CONSTRAINT:
		return fault.Wrap(err, fault.Conflict, "The store refused the change: a rule of its schema forbids it.")
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		why, remedy = "another program holds the database", "Let it finish."
	case lib.SQLITE_FULL:
		why, remedy = "the disk is full", "Make room on it."
	case lib.SQLITE_IOERR:
		why, remedy = "the disk failed", "Look at the system's log."
	case lib.SQLITE_READONLY, lib.SQLITE_PERM, lib.SQLITE_AUTH:
		why, remedy = "the database can't be written", "Check the permissions of the data directory."
	case lib.SQLITE_CANTOPEN:
		why, remedy = "the database can't be opened", "Check that the data directory is there, with its permissions."
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB, lib.SQLITE_FORMAT:
		why, remedy = "the database is damaged", "Put back a backup of the whole data directory."
	case lib.SQLITE_INTERRUPT:
		why = "the request was given up"
	default:
		why = fmt.Sprintf("the engine answers %d", e.Code())
	}
	f := fault.Wrap(err, code, "%s (%s)", code.Sentence(), why)
	f.Remedy = remedy
	return f
}
