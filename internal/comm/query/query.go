// Package query reads from declared databases, PostgreSQL and SQLite, for the operation comm.query (EX-1).
//
// Promises:
//   - One statement that reads, and nothing else. Who decides is the database, not a pattern here: PostgreSQL opens a cursor for the
//     text, which its grammar allows for SELECT, VALUES, TABLE and WITH only, in a READ ONLY transaction that is always rolled back;
//     SQLite prepares it on a file opened for reading, under an authorizer that knows reading and calling functions, and its own parser
//     finds what follows the first statement.
//   - Parameters are bound, never pasted.
//   - Every answer is bounded in time, rows and bytes (EX-5). What a query of SQLite may hold in memory is bounded, too, and it makes no files.
//   - Nothing of a query is left for the next one on the same connection: settings, locks and cursors are gone.
//   - A PostgreSQL role that could do more than read (superuser, server files, programs, other sessions) is not used at all.
//   - No error holds an address, a password or the path of a database.
//
// What a read may still do in PostgreSQL: while it runs, hold advisory locks, use the server's processor, memory and temporary files (the
// role's temp_file_limit bounds these), and, where several programs share one role, see and end that role's other sessions. Give the
// gateway a role of its own. Functions that act at once, on the server's disk, settings, sessions, locks, indexes or workers, are refused by name:
// the server is asked which VOLATILE functions in C the role may call, and all but those known to be harmless count as such, whatever brought
// them. A function or a view of the operator's own that calls one is beyond our sight. Until its grants are revoked, what that costs is bounded
// by the time of a query. Warnings tells all of this.
package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

const (
	sqlMax      = 64 << 10 // bytes of one statement
	paramsMax   = 100
	paramMax    = 64 << 10 // bytes of one parameter
	messageMax  = 300      // bytes of a database's message that are passed on
	connections = 4        // to one database
	tablesMax   = 500      // in a Schema
	columnsMax  = 5000     // in a Schema, over all tables
	columnMax   = 64       // of one answer of SQLite; rows that are sorted are compared column by column
)

// Options say which databases there are and how much one query may take.
type Options struct {
	Databases map[string]string // id -> "postgres://…", "sqlite:/path" or "file:/path"; paths are absolute
	Rows      int               // of one answer; 1000 if 0
	Bytes     int               // of one answer as JSON; 1 MiB if 0
	Timeout   time.Duration     // of one query with all its waiting; 30 s if 0
}

// Rows is the answer to a query.
type Rows struct {
	Columns []Column `json:"columns"`
	// Rows hold string, json.Number, float64, bool and nil. Bytes are base64 (standard, padded), which their column's type shows: bytea or
	// blob. PostgreSQL's times are those of RFC 3339: with the offset Z for timestamptz, without one where the database knows none.
	Rows      [][]any `json:"rows"`
	Truncated bool    `json:"truncated"` // there is more than the limits allow; what is here is the beginning
}

// Column names a column as the database does. Type is PostgreSQL's name of the type; in SQLite, where each value has its own, the
// declared type in lower case, or the classes that were seen ("integer", "text|blob").
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// Schema lists the tables that can be read in a database.
type Schema struct {
	Tables    []Table `json:"tables"`
	Truncated bool    `json:"truncated"` // there are more than 500 tables or 5000 columns
}

// Table is a table or a view. Schema is PostgreSQL's namespace, "" in SQLite.
type Table struct {
	Schema  string   `json:"schema,omitempty"`
	Name    string   `json:"name"`
	Kind    string   `json:"kind"` // table, view
	Columns []Column `json:"columns"`
}

// engine is one database. Its errors are fault errors; ctx carries the deadline.
type engine interface {
	query(ctx context.Context, sql string, params []any, a *answer) error
	schema(ctx context.Context) (*Schema, error)
	warnings(ctx context.Context) ([]string, error)
	close()
}

// Databases are the declared databases. Its methods may be used by several goroutines at once.
type Databases struct {
	rows    int
	bytes   int
	timeout time.Duration
	byID    map[string]engine
}

// New reads the addresses and connects to nothing: a database that is away must not keep the gateway from starting. An error is
// a ConfigurationInvalid that names the database, and never holds its address.
func New(o Options) (*Databases, error) {
	d := &Databases{rows: o.Rows, bytes: o.Bytes, timeout: o.Timeout, byID: map[string]engine{}}
	if d.rows <= 0 {
		d.rows = 1000
	}
	if d.bytes <= 0 {
		d.bytes = 1 << 20
	}
	if d.timeout <= 0 {
		d.timeout = 30 * time.Second
	}
	for id, dsn := range o.Databases {
		e, err := d.open(id, dsn)
		if err != nil {
			return nil, err
		}
		d.byID[id] = e
	}
	return d, nil
}

func (d *Databases) open(id, dsn string) (engine, error) {
	switch scheme, _, _ := strings.Cut(dsn, ":"); scheme {
	case "postgres", "postgresql":
		return newPostgres(id, dsn, d.bytes, d.timeout)
	case "sqlite", "file":
		return newSQLite(id, dsn)
	}
	return nil, badAddress(id, "has an address of an unknown kind").Try(`Write "postgres://…" or "sqlite:/path".`)
}

func badAddress(id, what string) *fault.Error {
	return fault.New(fault.ConfigurationInvalid, "Database %s %s.", display.Line(id, 64), what).At("databases")
}

// IDs returns the names of the databases, sorted.
func (d *Databases) IDs() []string { return slices.Sorted(maps.Keys(d.byID)) }

// Query runs one reading statement. params are decoded JSON scalars (string, json.Number, bool, nil) for $1, $2 … or SQLite's ?.
//
// Errors: RequestMalformed at sql, parameters, parameters[i] or database; PermissionDenied at sql for a statement that is not a read; TimeExceeded;
// ResultTooLarge for a query that needs too much to be answered; UpstreamFailed where the database fails; ConfigurationInvalid
// where its role may do too much.
func (d *Databases) Query(ctx context.Context, database, sql string, params []any) (*Rows, error) {
	e, err := d.engine(database)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.TrimSpace(sql) == "":
		return nil, fault.New(fault.RequestMalformed, "There is no statement.").At("sql")
	case len(sql) > sqlMax:
		return nil, fault.New(fault.RequestMalformed, "The statement is longer than %d bytes.", sqlMax).At("sql")
	case strings.IndexByte(sql, 0) >= 0 || !utf8.ValidString(sql): // a NUL would end the text early on the wire and in C
		return nil, fault.New(fault.RequestMalformed, "The statement is not valid UTF-8, or holds a NUL.").At("sql")
	}
	if err := checkParams(params); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	a := &answer{rowsMax: d.rows, bytesMax: d.bytes}
	a.Rows.Rows = [][]any{}
	if err := e.query(ctx, sql, params, a); err != nil {
		return nil, err
	}
	return &a.Rows, nil
}

// Schema lists the tables and views that can be read, with their columns. Errors are those of Query.
func (d *Databases) Schema(ctx context.Context, database string) (*Schema, error) {
	e, err := d.engine(database)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return e.schema(ctx)
}

// Warnings are sentences for an operator: what a database leaves open that its owner can close, with the statements that do. They hold no
// address. Errors are those of Query.
func (d *Databases) Warnings(ctx context.Context, database string) ([]string, error) {
	e, err := d.engine(database)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return e.warnings(ctx)
}

func (d *Databases) engine(id string) (engine, error) {
	if e := d.byID[id]; e != nil {
		return e, nil
	}
	err := fault.New(fault.RequestMalformed, "There is no database %q.", display.Line(id, 64)).At("database")
	if len(d.byID) == 0 {
		return nil, err.Try("No databases are declared.")
	}
	return nil, err.Try("There are: %s.", display.Line(strings.Join(d.IDs(), ", "), 1000))
}

// Close closes idle connections; a query that runs ends by itself, and its connection with it. Close may be called twice.
func (d *Databases) Close() error {
	for _, e := range d.byID {
		e.close()
	}
	return nil
}

// expired returns the error of a query whose time is over or whose caller has gone; nil while there is time.
func expired(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return tooSlow(err)
	default:
		return fault.Wrap(err, fault.TimeExceeded, "The query was not waited for: the call was cancelled.")
	}
}

func tooSlow(cause error) error {
	return fault.Wrap(cause, fault.TimeExceeded, "The query took too long; its rows were discarded.").Try("Ask for less, or by an indexed column.")
}

func notARead(format string, args ...any) *fault.Error {
	return fault.New(fault.PermissionDenied, "%s", fmt.Sprintf(format, args...)).At("sql").
		Try("Send one SELECT, VALUES or WITH … SELECT that changes nothing.")
}

// badSQL passes a database's own words on, made harmless.
func badSQL(message string) *fault.Error {
	return fault.New(fault.RequestMalformed, "The database says: %s.", display.Line(strings.TrimSuffix(message, "."), messageMax)).At("sql")
}

// add appends a column to the last table, or to a new one; false says that the schema is full.
func (s *Schema) add(schema, table, kind string, c Column) bool {
	columns := 0
	for _, t := range s.Tables {
		columns += len(t.Columns)
	}
	n := len(s.Tables)
	if n == 0 || s.Tables[n-1].Schema != schema || s.Tables[n-1].Name != table {
		if n == tablesMax {
			s.Truncated = true
			return false
		}
		s.Tables = append(s.Tables, Table{Schema: schema, Name: table, Kind: kind})
		n++
	}
	if columns == columnsMax {
		s.Truncated = true
		return false
	}
	s.Tables[n-1].Columns = append(s.Tables[n-1].Columns, c)
	return true
}
