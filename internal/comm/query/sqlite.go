package query

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	_ "modernc.org/sqlite" // its init prepares the library
	lib "modernc.org/sqlite/lib"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// This file speaks to the library below the driver, because what keeps a statement to reading is there only: the authorizer, the
// rest of the text after the first statement, whether a statement is read-only, the length of a value before it is copied.

const (
	valueMax  = 1 << 20  // bytes of one string, blob or row, inside a query too
	memoryMax = 32 << 20 // bytes that one query may add to what SQLite holds for its connection: sorting, grouping, collecting
	steps     = 100      // of the virtual machine between two looks at the clock
	busyWait  = 2000     // ms for a writer that is just finishing
)

// limits are set on each connection (sqlite.org/c3ref/limit.html).
var limits = map[int32]int32{
	lib.SQLITE_LIMIT_LENGTH:              valueMax,
	lib.SQLITE_LIMIT_SQL_LENGTH:          sqlMax + 1,
	lib.SQLITE_LIMIT_COLUMN:              columnMax,
	lib.SQLITE_LIMIT_EXPR_DEPTH:          200,
	lib.SQLITE_LIMIT_COMPOUND_SELECT:     50,
	lib.SQLITE_LIMIT_VDBE_OP:             100_000,
	lib.SQLITE_LIMIT_FUNCTION_ARG:        100,
	lib.SQLITE_LIMIT_ATTACHED:            0,
	lib.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 256, // the time of LIKE and GLOB grows with its product with the text
	lib.SQLITE_LIMIT_VARIABLE_NUMBER:     paramsMax,
	lib.SQLITE_LIMIT_TRIGGER_DEPTH:       1,
	lib.SQLITE_LIMIT_WORKER_THREADS:      0,
}

// switches are set on each connection (sqlite.org/c3ref/c_dbconfig_defensive.html).
var switches = map[int32]int32{
	lib.SQLITE_DBCONFIG_DEFENSIVE:             1,
	lib.SQLITE_DBCONFIG_TRUSTED_SCHEMA:        0,
	lib.SQLITE_DBCONFIG_ENABLE_TRIGGER:        0,
	lib.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION: 0,
	lib.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER: 0,
	lib.SQLITE_DBCONFIG_ENABLE_ATTACH_CREATE:  0,
	lib.SQLITE_DBCONFIG_ENABLE_ATTACH_WRITE:   0,
	lib.SQLITE_DBCONFIG_DQS_DML:               0,
	lib.SQLITE_DBCONFIG_DQS_DDL:               0,
}

type sqlite struct {
	id   string
	path string
	pool *pool[*lite]
	late atomic.Int32 // queries that nobody waits for any more, and that have not ended
}

func newSQLite(id, dsn string) (*sqlite, error) {
	path, ok := strings.CutPrefix(dsn, "sqlite:")
	if !ok {
		u, err := url.Parse(dsn)
		if err != nil || u.Host != "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
			return nil, badAddress(id, "has an address that can't be read").Try("Write file:/path without a query, or sqlite:/path.")
		}
		path = filepath.FromSlash(u.Path)
	}
	if !filepath.IsAbs(path) || strings.IndexByte(path, 0) >= 0 {
		return nil, badAddress(id, "has a path that is not absolute")
	}
	s := &sqlite{id: display.Line(id, 64), path: path}
	s.pool = newPool(s.connect, (*lite).close)
	return s, nil
}

func (s *sqlite) close() { s.pool.shutdown() }

// away is a failure of the file. The text of the cause is left out where it names the path.
func (s *sqlite) away(cause error) error {
	var path *os.PathError
	if errors.As(cause, &path) {
		cause = path.Err
	}
	return fault.Wrap(cause, fault.UpstreamFailed, "Database %s can't be read.", s.id).Try("Check that the file is there and that the gateway may read it.")
}

// lite is one connection. It has one owner at a time.
type lite struct {
	tls *libc.TLS
	db  uintptr
	mem uintptr // see memory
	*account
}

// memory is the memory that C writes and reads, by its offsets: outputs of calls, and the state that the two callbacks share with us.
const (
	memOut    = 0  // pointer: a database or statement that was made
	memTail   = 8  // pointer: what of the text was not read
	memStop   = 16 // int32: 1 when the time is over
	memDenied = 20 // int32: 1 when the authorizer refused
	memOwn    = 24 // int32: 1 while a statement of ours is prepared and run
	memSelect = 28 // int32: 1 when the authorizer saw a SELECT
	memSize   = 32
)

func (s *sqlite) connect(context.Context) (*lite, error) {
	// A link in the place of the file could lead anywhere tomorrow; links on the way to it are the operator's.
	dir, err := filepath.EvalSymlinks(filepath.Dir(s.path))
	if err != nil {
		return nil, s.away(err)
	}
	path := filepath.Join(dir, filepath.Base(s.path))
	if info, err := os.Lstat(path); err != nil {
		return nil, s.away(err)
	} else if !info.Mode().IsRegular() {
		return nil, s.away(errors.New("not a regular file"))
	}
	tls := libc.NewTLS()
	c := &lite{tls: tls, account: openAccount(tls)}
	if c.mem = libc.Xcalloc(c.tls, 1, memSize); c.mem == 0 {
		c.close()
		return nil, s.away(errors.New("out of memory"))
	}
	if err := c.open(path); err != nil {
		c.close()
		return nil, s.away(err)
	}
	return c, nil
}

func (c *lite) open(path string) error {
	name, err := libc.CString(path)
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, name)
	rc := lib.Xsqlite3_open_v2(c.tls, name, c.mem+memOut, lib.SQLITE_OPEN_READONLY|lib.SQLITE_OPEN_NOFOLLOW|lib.SQLITE_OPEN_FULLMUTEX, 0)
	c.db = libc.AtomicLoadPUintptr(c.mem + memOut) // there even after most failures
	if rc != lib.SQLITE_OK {
		return code(rc)
	}
	if c.used <= 0 {
		return errors.New("what SQLite holds in memory is not counted")
	}
	lib.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	args := libc.NewVaListN(2)
	if args == 0 {
		return code(lib.SQLITE_NOMEM)
	}
	defer libc.Xfree(c.tls, args)
	for op, on := range switches {
		if rc := lib.Xsqlite3_db_config(c.tls, c.db, op, libc.VaList(args, on, uintptr(0))); rc != lib.SQLITE_OK {
			return code(rc)
		}
	}
	for id, n := range limits {
		lib.Xsqlite3_limit(c.tls, c.db, id, n)
		if got := lib.Xsqlite3_limit(c.tls, c.db, id, -1); got > n {
			return fmt.Errorf("limit %d is %d, not %d", id, got, n)
		}
	}
	lib.Xsqlite3_busy_timeout(c.tls, c.db, busyWait)
	for _, pragma := range []string{"PRAGMA query_only = 1", "PRAGMA temp_store = MEMORY", "PRAGMA cell_size_check = 1", "PRAGMA mmap_size = 0"} {
		if rc := c.run(pragma); rc != lib.SQLITE_OK {
			return code(rc)
		}
	}
	if err := c.replaceFunctions(); err != nil {
		return err
	}
	if rc := lib.Xsqlite3_set_authorizer(c.tls, c.db, pointer(authorize), c.mem); rc != lib.SQLITE_OK {
		return code(rc)
	}
	lib.Xsqlite3_progress_handler(c.tls, c.db, steps, pointer(progress), c.mem)
	return nil
}

// run runs a statement of ours that has no result.
func (c *lite) run(sql string) int32 {
	text, err := libc.CString(sql)
	if err != nil {
		return lib.SQLITE_NOMEM
	}
	defer libc.Xfree(c.tls, text)
	return lib.Xsqlite3_exec(c.tls, c.db, text, 0, 0, 0)
}

func (c *lite) close() {
	if c.db != 0 {
		lib.Xsqlite3_close_v2(c.tls, c.db)
	}
	libc.Xfree(c.tls, c.mem)
	closeAccount(c.tls)
	c.tls.Close()
}

type code int32

func (c code) Error() string { return "SQLite code " + strconv.Itoa(int(c)) }

// pointer is a declared function, never a closure, as C calls it.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f F }{f})) }

// forbidden are functions and tables that reach around (load_extension runs code, sqlite_dbpage shows pages with what was deleted,
// sqlite_log writes to the process's log, rtreenode reads memory that it is given), and functions that can't be interrupted and
// whose time or memory grows with the product of their arguments.
var forbidden = map[string]bool{
	"load_extension": true, "fts3_tokenizer": true, "sqlite_dbpage": true, "dbstat": true, "sqlite_log": true,
	"rtreenode": true, "rtreecheck": true, "rtreedepth": true,
	"json_patch": true, "jsonb_patch": true, "json_pretty": true,
}

// authorize is asked by SQLite for each thing that a statement would do, while it is compiled, and again for the statements that
// virtual tables compile for themselves.
func authorize(tls *libc.TLS, mem uintptr, op int32, a, b, c, d uintptr) int32 {
	first := strings.ToLower(libc.GoString(a)) // a table or a pragma
	ok := false
	switch op {
	case lib.SQLITE_SELECT:
		libc.AtomicStorePInt32(mem+memSelect, 1)
		ok = true
	case lib.SQLITE_RECURSIVE:
		ok = true
	case lib.SQLITE_READ:
		ok = !forbidden[first]
	case lib.SQLITE_FUNCTION:
		name := strings.ToLower(libc.GoString(b))
		ok = !forbidden[name] && !strings.HasPrefix(name, "geopoly_")
	case lib.SQLITE_PRAGMA:
		// A full-text table asks for the version. What could be set by it is set on other connections only: it takes no value.
		ok = first == "data_version" && b == 0 || first == "table_xinfo" && libc.AtomicLoadPInt32(mem+memOwn) == 1
	case lib.SQLITE_INSERT, lib.SQLITE_UPDATE, lib.SQLITE_DELETE:
		// An r-tree compiles its writes when it is opened, and never runs them here. A statement that writes is refused by what
		// sqlite3_stmt_readonly says of it, and by how the file is opened.
		ok = strings.HasSuffix(first, "_node") || strings.HasSuffix(first, "_rowid") || strings.HasSuffix(first, "_parent")
	}
	if !ok {
		libc.AtomicStorePInt32(mem+memDenied, 1)
		return lib.SQLITE_DENY
	}
	return lib.SQLITE_OK
}

// progress is called every so many steps and ends the statement by a result that is not 0.
func progress(tls *libc.TLS, mem uintptr) int32 {
	if a := (*accounts.Load())[tls]; a != nil && a.full { // not every function says so at once
		return 1
	}
	return libc.AtomicLoadPInt32(mem + memStop)
}

// watch makes the end of ctx stop c's statements, until the function that it returns was called. What c may hold is counted from here.
func (c *lite) watch(ctx context.Context) (release func()) {
	libc.AtomicStorePInt32(c.mem+memStop, 0)
	libc.AtomicStorePInt32(c.mem+memDenied, 0)
	libc.AtomicStorePInt32(c.mem+memSelect, 0)
	c.allow(memoryMax)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		libc.AtomicStorePInt32(c.mem+memStop, 1)
		close(ended)
	})
	return func() {
		if !stop() {
			<-ended // c's memory must not be written to later
		}
	}
}

func (s *sqlite) query(ctx context.Context, sql string, params []any, a *answer) error {
	return s.with(ctx, func(c *lite) error { return s.read(ctx, c, sql, params, a) })
}

var (
	errLate  = errors.New("every connection is busy with a query that took too long")
	errPanic = errors.New("the library panicked")
)

// with lends do a connection. It returns when do has or when ctx ends, whichever is first: SQLite looks at the clock between two steps of its
// machine, and a sort is one step. A do that is late goes on by itself until then and gives the connection back, so there are never more of
// these than connections. Who gets an error must not touch what do writes to.
func (s *sqlite) with(ctx context.Context, do func(*lite) error) error {
	if s.late.Load() >= connections {
		return fault.Wrap(errLate, fault.TimeExceeded, "Database %s is still busy with queries that took too long.", s.id).Try("Ask again in a few seconds, and for less.")
	}
	c, _, err := s.pool.get(ctx)
	if err != nil {
		if errors.Is(err, errPoolClosed) {
			return s.away(err)
		}
		return err
	}
	done := make(chan error, 1)
	var over atomic.Bool // set by the first of the two that end: do, or the wait for it
	go func() {
		defer func() {
			if recover() != nil { // nobody knows what c's state is: it stays out of the pool, with its place
				done <- s.away(errPanic)
			}
		}()
		release := c.watch(ctx)
		err := do(c)
		release()
		s.pool.put(c, err == nil)
		done <- err
		if !over.CompareAndSwap(false, true) {
			s.late.Add(-1)
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if over.CompareAndSwap(false, true) {
			s.late.Add(1)
			return expired(ctx)
		}
		return <-done
	}
}

// read runs the one statement of sql.
func (s *sqlite) read(ctx context.Context, c *lite, sql string, params []any, a *answer) error {
	text, err := libc.CString(sql)
	if err != nil {
		return s.away(err)
	}
	defer libc.Xfree(c.tls, text)
	stmt, tail, rc := c.prepare(text)
	defer func() { lib.Xsqlite3_finalize(c.tls, stmt) }()
	switch {
	case rc != lib.SQLITE_OK:
		return s.failed(ctx, c, rc)
	case stmt == 0:
		return fault.New(fault.RequestMalformed, "There is no statement.").At("sql")
	}
	// What is left must be space, comments and semicolons, says SQLite's own parser.
	for at := tail; libc.GoBytes(at, 1)[0] != 0; {
		more, next, rc := c.prepare(at)
		if more != 0 || rc != lib.SQLITE_OK {
			lib.Xsqlite3_finalize(c.tls, more)
			return notARead("There is more than one statement.")
		}
		at = next
	}
	n := lib.Xsqlite3_column_count(c.tls, stmt)
	if n == 0 || libc.AtomicLoadPInt32(c.mem+memSelect) == 0 || lib.Xsqlite3_stmt_readonly(c.tls, stmt) == 0 || lib.Xsqlite3_stmt_isexplain(c.tls, stmt) != 0 {
		return notARead("This is not a statement that only reads.")
	}
	if err := s.bind(ctx, c, stmt, params); err != nil {
		return err
	}
	cols := make([]Column, n)
	for i := range n {
		cols[i] = Column{
			Name: valid(libc.GoString(lib.Xsqlite3_column_name(c.tls, stmt, i))),
			Type: strings.ToLower(valid(libc.GoString(lib.Xsqlite3_column_decltype(c.tls, stmt, i)))),
		}
	}
	a.columns(cols)
	seen := make([][]string, n)
	defer func() {
		for i, classes := range seen {
			if blob := slices.Contains(classes, "blob"); cols[i].Type == "" || blob && len(classes) > 1 || blob && cols[i].Type != "blob" {
				cols[i].Type = strings.Join(classes, "|")
			}
		}
	}()
	for {
		switch rc := lib.Xsqlite3_step(c.tls, stmt); rc & 0xff {
		case lib.SQLITE_DONE:
			return nil
		case lib.SQLITE_ROW:
		default:
			return s.failed(ctx, c, rc)
		}
		row := make([]any, n)
		for i := range n {
			v, class, ok := c.value(stmt, i, a.left())
			if !ok { // it would not fit, and is not copied
				a.Truncated = true
				return nil
			}
			if row[i] = v; class != "" && !slices.Contains(seen[i], class) {
				seen[i] = append(seen[i], class)
			}
		}
		if !a.add(row) {
			return nil
		}
	}
}

// prepare compiles the first statement of the text and says where the rest begins; the statement is 0 where there is none.
func (c *lite) prepare(text uintptr) (stmt, tail uintptr, rc int32) {
	libc.AtomicStorePUintptr(c.mem+memOut, 0)
	rc = lib.Xsqlite3_prepare_v2(c.tls, c.db, text, -1, c.mem+memOut, c.mem+memTail)
	return libc.AtomicLoadPUintptr(c.mem + memOut), libc.AtomicLoadPUintptr(c.mem + memTail), rc
}

func (s *sqlite) bind(ctx context.Context, c *lite, stmt uintptr, params []any) error {
	if want := int(lib.Xsqlite3_bind_parameter_count(c.tls, stmt)); want != len(params) {
		return fault.New(fault.RequestMalformed, "The statement has %d parameters, and %d were given.", want, len(params)).At("parameters")
	}
	for i, p := range params {
		at, rc := int32(i+1), int32(lib.SQLITE_OK)
		switch p := p.(type) {
		case nil:
			rc = lib.Xsqlite3_bind_null(c.tls, stmt, at)
		case bool:
			rc = lib.Xsqlite3_bind_int64(c.tls, stmt, at, int64(libc.Bool32(p)))
		case json.Number:
			if n, err := strconv.ParseInt(string(p), 10, 64); err == nil {
				rc = lib.Xsqlite3_bind_int64(c.tls, stmt, at, n)
				break
			}
			if !strings.ContainsAny(string(p), ".eE") {
				return badParam(i, "is an integer of more than 64 bits, which SQLite does not have; send it as a string")
			}
			f, err := p.Float64()
			if err != nil {
				return badParam(i, "is a number that is too large")
			}
			rc = lib.Xsqlite3_bind_double(c.tls, stmt, at, f)
		case string:
			text, err := libc.CString(p)
			if err != nil {
				return s.away(err)
			}
			rc = lib.Xsqlite3_bind_text(c.tls, stmt, at, text, int32(len(p)), lib.SQLITE_TRANSIENT)
			libc.Xfree(c.tls, text)
		}
		if rc != lib.SQLITE_OK {
			return s.failed(ctx, c, rc)
		}
	}
	return nil
}

// value copies a column of the current row, unless it has more than most bytes, and names its class; "" is that of NULL.
func (c *lite) value(stmt uintptr, i int32, most int) (v any, class string, ok bool) {
	switch lib.Xsqlite3_column_type(c.tls, stmt, i) {
	case lib.SQLITE_INTEGER:
		return json.Number(strconv.FormatInt(lib.Xsqlite3_column_int64(c.tls, stmt, i), 10)), "integer", true
	case lib.SQLITE_FLOAT:
		return number(lib.Xsqlite3_column_double(c.tls, stmt, i)), "real", true
	case lib.SQLITE_TEXT:
		p := lib.Xsqlite3_column_text(c.tls, stmt, i)
		b, ok := c.bytes(stmt, i, p, most)
		return valid(string(b)), "text", ok
	case lib.SQLITE_BLOB:
		p := lib.Xsqlite3_column_blob(c.tls, stmt, i)
		b, ok := c.bytes(stmt, i, p, most)
		return base64.StdEncoding.EncodeToString(b), "blob", ok
	}
	return nil, "", true
}

func (c *lite) bytes(stmt uintptr, i int32, p uintptr, most int) ([]byte, bool) {
	n := int(lib.Xsqlite3_column_bytes(c.tls, stmt, i))
	if n > most {
		return nil, false
	}
	if p == 0 || n == 0 {
		return nil, true
	}
	return libc.GoBytes(p, n), true
}

// failed turns SQLite's code, and the message that belongs to it, into our error.
func (s *sqlite) failed(ctx context.Context, c *lite, rc int32) error {
	message := valid(libc.GoString(lib.Xsqlite3_errmsg(c.tls, c.db)))
	if at := lib.Xsqlite3_error_offset(c.tls, c.db); at >= 0 {
		message += fmt.Sprintf(" (at byte %d)", at+1)
	}
	if c.full {
		return fault.New(fault.ResultTooLarge, "The query sorts, groups or collects more than fits into %d MiB.", memoryMax>>20).At("sql").
			Try("Ask for fewer rows or columns, or in the order of an index.")
	}
	if libc.AtomicLoadPInt32(c.mem+memDenied) == 1 {
		return notARead("The statement would do more than read: the database says: %s.", display.Line(message, messageMax))
	}
	switch rc & 0xff {
	case lib.SQLITE_ERROR, lib.SQLITE_MISMATCH, lib.SQLITE_RANGE, lib.SQLITE_CONSTRAINT:
		return badSQL(message)
	case lib.SQLITE_READONLY, lib.SQLITE_AUTH, lib.SQLITE_PERM:
		return notARead("The statement would do more than read: the database says: %s.", display.Line(message, messageMax))
	case lib.SQLITE_INTERRUPT:
		if err := expired(ctx); err != nil {
			return err
		}
		return tooSlow(code(rc))
	case lib.SQLITE_TOOBIG, lib.SQLITE_NOMEM:
		return fault.New(fault.ResultTooLarge, "The query makes a value of more than %d bytes.", valueMax).At("sql")
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return fault.Wrap(code(rc), fault.UpstreamFailed, "Database %s is locked by somebody who writes.", s.id)
	}
	return s.away(code(rc))
}

func (s *sqlite) warnings(context.Context) ([]string, error) { return nil, nil }

// schema asks table by table, because a view that can't be compiled must not hide the rest.
func (s *sqlite) schema(ctx context.Context) (*Schema, error) {
	out := &Schema{Tables: []Table{}}
	err := s.with(ctx, func(c *lite) error {
		libc.AtomicStorePInt32(c.mem+memOwn, 1)
		defer libc.AtomicStorePInt32(c.mem+memOwn, 0)
		names := &answer{rowsMax: tablesMax, bytesMax: 1 << 20}
		err := s.read(ctx, c, `SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`, nil, names)
		if err != nil {
			return err
		}
		out.Truncated = names.Truncated
		left := columnsMax
		for _, r := range names.Rows.Rows {
			t := Table{Name: text(r[0]), Kind: text(r[1]), Columns: []Column{}}
			columns := &answer{rowsMax: left, bytesMax: 256 << 10}
			err := s.read(ctx, c, "SELECT name, type FROM pragma_table_xinfo(?)", []any{t.Name}, columns)
			if err != nil && !fault.Is(err, fault.RequestMalformed) && !fault.Is(err, fault.PermissionDenied) {
				return err
			}
			for _, r := range columns.Rows.Rows {
				t.Columns = append(t.Columns, Column{Name: text(r[0]), Type: strings.ToLower(text(r[1]))})
			}
			left -= len(t.Columns)
			out.Tables = append(out.Tables, t)
			if columns.Truncated {
				out.Truncated = true
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// text is a string from the file, where nothing keeps a name from being something else.
func text(v any) string { s, _ := v.(string); return s }
