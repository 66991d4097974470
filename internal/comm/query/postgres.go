package query

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

const (
	batch     = 100              // rows of one FETCH
	lockWait  = 5 * time.Second  // for a lock that somebody else holds
	resetWait = 5 * time.Second  // to make a connection as good as new
	oldest    = 10 * time.Minute // a connection; what was asked when it was made is asked again then
	cursor    = "DECLARE sallyport NO SCROLL CURSOR WITHOUT HOLD FOR "
)

type postgres struct {
	id   string
	cfg  *pgconn.Config
	age  time.Duration // of a connection that is not used again
	pool *pool[*link]
}

// link is one connection, with the parameters that the server sent at its start.
type link struct {
	*pgconn.PgConn
	since  time.Time
	acting *regexp.Regexp // the names that a statement may not hold
}

func newPostgres(id, dsn string, bytes int, timeout time.Duration) (*postgres, error) {
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		// The cause is left out on purpose: it quotes the address, and its password can't be cut out of an address that does not parse.
		return nil, badAddress(id, "has an address that can't be read").
			Try("Write postgres://role@host:5432/name?sslmode=verify-full, with what is special in it percent-encoded.")
	}
	// A longer message would be read into memory as a whole. One row of that size could not be part of the answer anyway.
	cfg.MaxProtocolMessageBodyLen = max(bytes, 64<<10) + 64<<10
	cfg.ConnectTimeout = min(timeout, 10*time.Second)
	// Cancel the query on the server and wait a little, so that none goes on unseen.
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 2 * time.Second}
	}
	p := &postgres{id: display.Line(id, 64), cfg: cfg, age: oldest}
	p.pool = newPool(p.connect, p.disconnect)
	return p, nil
}

func (p *postgres) close() { p.pool.shutdown() }

func (p *postgres) connect(ctx context.Context) (*link, error) {
	c, err := pgconn.ConnectConfig(ctx, p.cfg)
	if err != nil {
		return nil, p.away(ctx, err)
	}
	l := &link{PgConn: c, since: time.Now()}
	if l.acting, err = p.checkRole(ctx, c); err != nil {
		p.disconnect(l)
		return nil, err
	}
	return l, nil
}

func (p *postgres) disconnect(c *link) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.Close(ctx)
}

// away is a failure of the connection. Only the kind of the failure is kept: the rest names host, role and database.
func (p *postgres) away(ctx context.Context, err error) error {
	if e := expired(ctx); e != nil {
		return e
	}
	cause := errors.New("no answer")
	var pg *pgconn.PgError
	var errno syscall.Errno
	switch {
	case errors.As(err, &pg):
		cause = errors.New("SQLSTATE " + pg.Code)
	case errors.As(err, &errno):
		cause = errno
	case errors.Is(err, context.DeadlineExceeded):
		cause = context.DeadlineExceeded
	}
	return fault.Wrap(cause, fault.UpstreamFailed, "Database %s does not answer.", p.id)
}

// powers lists what a role could do besides reading, as itself or as any role that it can become: SET ROLE is a setting, and settings
// can be changed from a SELECT. The functions are those that reach out of the transaction and that superusers, extensions or
// untrusted languages brought; without a grant there are none. Messages in the write-ahead log leave the server where it is decoded.
const powers = `
WITH me AS (SELECT * FROM pg_roles WHERE pg_has_role(session_user, oid, 'MEMBER'))
SELECT CASE WHEN rolsuper THEN 'is a superuser'
            WHEN rolreplication THEN 'may replicate'
            WHEN rolbypassrls THEN 'bypasses row security'
            ELSE 'is a member of ' || rolname END
FROM me WHERE rolsuper OR rolreplication OR rolbypassrls OR rolname IN
  ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program', 'pg_signal_backend', 'pg_signal_autovacuum_worker')
UNION ALL
SELECT 'may call ' || p.oid::regprocedure
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE (NOT l.lanpltrusted AND l.lanname NOT IN ('internal', 'c', 'sql')
    OR p.proname IN ('pg_read_file', 'pg_read_binary_file', 'pg_ls_dir', 'pg_stat_file', 'lo_import', 'lo_export', 'pg_reload_conf',
      'pg_rotate_logfile', 'pg_promote', 'pg_switch_wal', 'pg_create_restore_point', 'pg_backup_start', 'pg_start_backup')
    OR p.proname = 'pg_logical_emit_message' AND current_setting('wal_level') = 'logical'
    OR EXISTS (SELECT 1 FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
         WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
           AND e.extname IN ('dblink', 'adminpack', 'http', 'pg_net', 'pg_background', 'pg_cron', 'pgagent', 'plsh', 'pg_surgery')))
  AND EXISTS (SELECT 1 FROM me WHERE has_function_privilege(me.oid, p.oid, 'EXECUTE'))
LIMIT 1`

// acting finds the functions that may act beyond the transaction: what is undone was still done. The server itself calls them VOLATILE, they
// are written in C, and they are not known to be harmless. So what a later version or an extension brings is refused until somebody has looked
// at it. There are those that make large objects (the server refuses that from version 16 on), messages in the write-ahead log, files and
// workers, those that tend an index, those that act on settings, on the role's other sessions and on locks that programs agree on, and those
// that run a text as SQL, in which a name can be put together from pieces. The last are found by what they are in C, too: crosstab and its
// like call themselves STABLE and are given other names. What takes internal values, triggers and handlers can't be called.
const acting = `
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE l.lanname IN ('internal', 'c')
  AND (p.provolatile = 'v' AND p.proname !~ '^(` + harmless + `)$' OR l.lanname = 'c' AND p.prosrc ~ '^(` + textual + `)$')
  AND NOT 'pg_catalog.internal'::pg_catalog.regtype = ANY (p.proargtypes) AND p.prorettype::pg_catalog.regtype::text !~ '(trigger|handler)$'
  AND NOT (p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND p.proname ~ '^lo(_|write$)' AND pg_catalog.current_setting('server_version_num')::int >= 160000)`

// harmless are VOLATILE functions in C that act on nothing but the answer, the time it takes and the transaction, and those that the server
// itself holds back: by READ ONLY, by the rollback, from who doesn't replicate or is no superuser, or unless it is being upgraded.
const (
	harmless = `amvalidate|\w+_validator|clock_timestamp|timeofday|current_query|random|random_normal|gen_random_uuid|uuidv[47]|` +
		`currval|lastval|pg_sequence_last_value|currtid2|pg_sleep|pg_advisory_unlock(_all|_shared)?|cursor_to_xml(schema)?|` +
		`pg_(database|indexes|relation|table|tablespace|total_relation)_size|pg_control_(checkpoint|init|recovery|system)|` +
		`pg_current_wal_(flush_|insert_)?lsn|pg_last_(committed_xact|wal_receive_lsn|wal_replay_lsn|xact_replay_timestamp)|` +
		`pg_is_(in_recovery|wal_replay_paused)|pg_get_(multixact_members|wal_replay_pause_state|wal_resource_managers)|` +
		`pg_(lock_status|blocking_pids|safe_snapshot_blocking_pids|isolation_test_session_is_blocked|notification_queue_usage)|` +
		`pg_(prepared_xact|partition_ancestors|partition_tree|jit_available|(database_)?collation_actual_version)|` +
		`pg_xact_(status|commit_timestamp|commit_timestamp_origin)|txid_status|` +
		`pg_stat_get_\w+|pg_stat_clear_snapshot|pg_stat_force_next_flush|lo_(open|close|get|lseek|lseek64|tell|tell64)|loread|` +
		// held back
		`nextval|setval|pg_notify|binary_upgrade_\w+|pg_nextoid|pg_stop_making_pinned_objects|pg_import_system_collations|pg_extension_config_dump|` +
		`pg_read_file_old|pg_rotate_logfile_old|pg_(create|copy)_(logical|physical)_replication_slot|pg_drop_replication_slot|` +
		`pg_replication_slot_advance|pg_logical_slot_(get|peek)_(binary_)?changes|` +
		// of extensions that come with PostgreSQL
		`gen_random_bytes|gen_salt|pgp_(pub|sym)_encrypt(_bytea)?|uuid_generate_v\w+|normal_rand|pg_stat_statements(_info)?|pgrowlocks|` +
		`pg_old_snapshot_time_mapping|ssl_\w+`
	textual = `query_to_xml|query_to_xmlschema|query_to_xml_and_xmlschema|ts_stat|ts_rewrite|crosstab[0-9]*|crosstab_hash|connectby|connectby_text|connectby_text_serial|xpath_table`
)

// names asks for those that the role can call as itself or as any role that it can become.
const names = `SELECT DISTINCT p.proname` + acting + `
  AND EXISTS (SELECT 1 FROM pg_roles r WHERE pg_has_role(session_user, r.oid, 'MEMBER')
    AND has_function_privilege(r.oid, p.oid, 'EXECUTE') AND has_schema_privilege(r.oid, p.pronamespace, 'USAGE'))`

// naming finds one of these as a name of its own, or the beginning of a name that is written in escapes, in a text in lower case.
func naming(names []string) (*regexp.Regexp, error) {
	all := textual
	for _, n := range names {
		all += "|" + regexp.QuoteMeta(strings.ReplaceAll(strings.ToLower(n), `"`, `""`))
	}
	const edge = `[^a-z0-9_$\x{80}-\x{10ffff}]`
	return regexp.Compile(`(?:^|` + edge + `)(?:(` + all + `)(?:$|` + edge + `)|(u&)")`)
}

// checkText is the one place where a text is judged by a pattern, because the server lets the role call these functions, and no setting,
// plan or transaction tells or holds them back. A function has to be named to be called, so what gets by is a function or a view of the
// operator's own that calls one; see warnings for what closes that, too.
func checkText(acting *regexp.Regexp, sql string) error {
	found := acting.FindStringSubmatch(strings.ToLower(sql))
	if found == nil {
		return nil
	}
	return fault.New(fault.PermissionDenied, "The statement names %s, which does more than read.", display.Line(strings.TrimSpace(found[1]+found[2]), 128)).
		At("sql").Try("Do without it. If it is part of a text, bind the text as a parameter.")
}

// unbounded are the grants and limits of the role that leave more open than need be.
const unbounded = `
SELECT 'Its role may call functions that act even where the transaction is undone, such as on the server''s disk, settings, sessions or locks. Statements '
  || 'that name them are refused here; functions and views of your own that call them are not. To close that, and with a GRANT to the roles that need '
  || 'one (pg_dump needs set_config): REVOKE EXECUTE ON FUNCTION ' || string_agg(p.oid::regprocedure::text, ', ' ORDER BY p.oid::regprocedure::text)
  || ' FROM PUBLIC, ' || quote_ident(current_user) || ';'` + acting + `
  AND has_function_privilege(p.oid, 'EXECUTE') AND has_schema_privilege(p.pronamespace, 'USAGE')
HAVING count(*) > 0
UNION ALL
SELECT 'Its role may fill the server''s disk with temporary files for as long as a query lasts. To bound them: ALTER ROLE ' || quote_ident(current_user) || ' SET temp_file_limit = ''1GB'';'
WHERE current_setting('temp_file_limit') = '-1'
UNION ALL
SELECT 'Its role may change ' || min(c.oid::regclass::text) || CASE WHEN count(*) > 1 THEN ' and ' || count(*) - 1 || ' more tables or views' ELSE '' END
  || '. The transaction, which only reads, holds it back; a role that may do nothing but SELECT needs no holding back.'
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' AND has_schema_privilege(n.oid, 'USAGE')
  AND (has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') OR has_any_column_privilege(c.oid, 'INSERT, UPDATE'))
HAVING count(*) > 0`

func (p *postgres) warnings(ctx context.Context) ([]string, error) {
	c, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	defer p.end(c)
	res := c.ExecParams(ctx, unbounded, nil, nil, nil, nil).Read()
	if res.Err != nil {
		return nil, p.failed(ctx, res.Err)
	}
	var all []string
	for _, r := range res.Rows {
		all = append(all, display.Line(string(r[0]), 8000))
	}
	return all, nil
}

// checkRole refuses a role that no READ ONLY transaction would hold back, and tells which names this one may not use. There is no switch for this.
func (p *postgres) checkRole(ctx context.Context, c *pgconn.PgConn) (*regexp.Regexp, error) {
	results, err := c.Exec(ctx, "BEGIN READ ONLY; SET LOCAL search_path = pg_catalog; "+powers+"; "+names+"; ROLLBACK").ReadAll()
	if err != nil {
		return nil, p.away(ctx, err)
	}
	if len(results) != 5 {
		return nil, p.away(ctx, errors.New("not the answers that were asked for"))
	}
	if len(results[2].Rows) == 0 {
		var all []string
		for _, row := range results[3].Rows {
			all = append(all, valid(string(row[0])))
		}
		acting, err := naming(all)
		if err != nil {
			return nil, p.away(ctx, err)
		}
		return acting, nil
	}
	found := string(results[2].Rows[0][0])
	return nil, fault.New(fault.ConfigurationInvalid, "The role that database %s is read with %s, and is not used.", p.id, display.Line(found, 128)).
		At("databases").Try("Let an operator make one that can only read: CREATE ROLE sallyport_read LOGIN PASSWORD '…'; " +
		"GRANT USAGE ON SCHEMA public TO sallyport_read; GRANT SELECT ON ALL TABLES IN SCHEMA public TO sallyport_read; " +
		"and, for a function that was named, REVOKE EXECUTE ON FUNCTION … FROM PUBLIC.")
}

// begin starts the transaction. The limits are those of the server; ctx is the second line, for who changes them from within a SELECT.
func begin(ctx context.Context) string {
	left := time.Minute
	if end, ok := ctx.Deadline(); ok {
		left = max(time.Until(end), time.Millisecond)
	}
	return fmt.Sprintf("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; %s; SET LOCAL lock_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d; "+
		"SET LOCAL client_encoding = 'UTF8'; SET LOCAL datestyle = 'ISO'; SET LOCAL timezone = 'UTC'; SET LOCAL intervalstyle = 'iso_8601'; "+
		"SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1",
		limit(ctx), min(lockWait, left/2+time.Millisecond).Milliseconds(), (left + resetWait).Milliseconds())
}

func limit(ctx context.Context) string {
	left := time.Minute
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	return "SET LOCAL statement_timeout = " + strconv.FormatInt(max(left.Milliseconds(), 1), 10)
}

// start returns a connection in a new transaction. A connection that is old or died while idle is replaced: nothing was asked on it yet.
func (p *postgres) start(ctx context.Context) (*link, error) {
	for {
		c, used, err := p.pool.get(ctx)
		if err != nil {
			if errors.Is(err, errPoolClosed) {
				return nil, p.away(ctx, err)
			}
			return nil, err
		}
		if used && time.Since(c.since) >= p.age {
			p.pool.put(c, false)
			continue
		}
		_, err = c.Exec(ctx, begin(ctx)).ReadAll()
		if err == nil {
			return c, nil
		}
		p.pool.put(c, false)
		if !used || ctx.Err() != nil {
			return nil, p.away(ctx, err)
		}
	}
}

// end rolls back, and gives the connection back if it is as it was.
func (p *postgres) end(c *link) { p.pool.put(c, reset(c.PgConn)) }

func reset(c *pgconn.PgConn) bool {
	if c.IsClosed() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), resetWait)
	defer cancel()
	// Two messages: DISCARD ALL does not run in one with another statement.
	if _, err := c.Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
		return false
	}
	_, err := c.Exec(ctx, "DISCARD ALL").ReadAll()
	return err == nil && c.TxStatus() == 'I'
}

func (p *postgres) query(ctx context.Context, sql string, params []any, a *answer) error {
	c, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer p.end(c)
	if err := checkText(c.acting, sql); err != nil {
		return err
	}

	values := make([][]byte, len(params))
	for i, v := range params {
		switch v := v.(type) {
		case string:
			values[i] = []byte(v)
		case json.Number:
			values[i] = []byte(v)
		case bool:
			values[i] = strconv.AppendBool(nil, v)
		}
	}
	if _, err := c.ExecParams(ctx, cursor+sql, values, nil, nil, nil).Close(); err != nil {
		if p.refused(ctx, c.PgConn, sql, err) {
			return notARead("This is not a single statement that only reads.")
		}
		return p.failed(ctx, err)
	}
	var oids []uint32
	for more := true; more; {
		more, err = fetch(ctx, c.PgConn, min(batch, a.rowsMax+1-len(a.Rows.Rows)), &oids, a)
		var long *pgproto3.ExceededMaxBodyLenErr
		if errors.As(err, &long) { // the connection is of no use any more
			a.Truncated = true
			break
		}
		if err != nil {
			return p.failed(ctx, err)
		}
	}
	return p.nameTypes(ctx, c.PgConn, oids, a)
}

// fetch adds up to n rows to the answer and says whether there may be more and room for them.
func fetch(ctx context.Context, c *pgconn.PgConn, n int, oids *[]uint32, a *answer) (more bool, err error) {
	// The time limit is set again each time, because a row that was fetched may have changed it.
	rr := c.Exec(ctx, fmt.Sprintf("%s; FETCH FORWARD %d FROM sallyport", limit(ctx), n))
	got := 0
	for rr.NextResult() {
		r := rr.ResultReader()
		if fields := r.FieldDescriptions(); a.Columns == nil && len(fields) > 0 {
			cols := make([]Column, len(fields))
			*oids = make([]uint32, len(fields))
			for i, f := range fields {
				cols[i] = Column{Name: valid(f.Name), Type: typeNames[f.DataTypeOID]}
				(*oids)[i] = f.DataTypeOID
			}
			a.columns(cols)
		}
		for r.NextRow() {
			if got++; a.Truncated {
				continue // the rest of a batch that the answer has no room for
			}
			row := make([]any, len(*oids))
			for i, v := range r.Values() {
				if v != nil {
					row[i] = decode((*oids)[i], v)
				}
			}
			a.add(row)
		}
	}
	return got == n && !a.Truncated, rr.Close()
}

// OIDs that decode knows; they never change.
const (
	oidBool, oidBytea, oidInt8, oidInt2, oidInt4, oidOID           = 16, 17, 20, 21, 23, 26
	oidFloat4, oidFloat8, oidNumeric, oidTimestamp, oidTimestampTZ = 700, 701, 1700, 1114, 1184
)

var typeNames = map[uint32]string{
	oidBool: "boolean", oidBytea: "bytea", oidInt8: "bigint", oidInt2: "smallint", oidInt4: "integer", oidOID: "oid",
	oidFloat4: "real", oidFloat8: "double precision", oidNumeric: "numeric", oidTimestamp: "timestamp without time zone",
	oidTimestampTZ: "timestamp with time zone", 19: "name", 25: "text", 114: "json", 1042: "character", 1043: "character varying",
	1082: "date", 1083: "time without time zone", 1266: "time with time zone", 1186: "interval", 2278: "void", 2950: "uuid", 3802: "jsonb",
}

// nameTypes asks for the names of the types that are not built in, or rare.
func (p *postgres) nameTypes(ctx context.Context, c *pgconn.PgConn, oids []uint32, a *answer) error {
	for i := range a.Columns {
		col := &a.Columns[i]
		if col.Type != "" {
			continue
		}
		if c.IsClosed() {
			col.Type = "unknown"
			continue
		}
		res := c.ExecParams(ctx, "SELECT pg_catalog.format_type($1::pg_catalog.oid, NULL)",
			[][]byte{strconv.AppendUint(nil, uint64(oids[i]), 10)}, nil, nil, nil).Read()
		if res.Err != nil {
			return p.failed(ctx, res.Err)
		}
		col.Type = valid(string(res.Rows[0][0]))
		for j := range a.Columns {
			if oids[j] == oids[i] {
				a.Columns[j].Type = col.Type
			}
		}
	}
	return nil
}

// decode is a value in PostgreSQL's text format as JSON can carry it. What does not look as it should, because the statement
// changed how the server writes it, stays text.
func decode(oid uint32, v []byte) any {
	s := string(v)
	switch oid {
	case oidBool:
		if s == "t" || s == "f" {
			return s == "t"
		}
	case oidInt2, oidInt4, oidInt8, oidOID, oidFloat4, oidFloat8, oidNumeric:
		if isNumber(s) {
			return json.Number(s)
		}
	case oidBytea:
		if b, err := hex.DecodeString(strings.TrimPrefix(s, `\x`)); err == nil {
			return base64.StdEncoding.EncodeToString(b)
		}
	case oidTimestamp:
		if t, err := time.Parse("2006-01-02 15:04:05.999999", s); err == nil {
			return t.Format("2006-01-02T15:04:05.999999")
		}
	case oidTimestampTZ:
		for _, layout := range []string{"2006-01-02 15:04:05.999999Z07", "2006-01-02 15:04:05.999999Z07:00"} {
			if t, err := time.Parse(layout, s); err == nil {
				return t.UTC().Format(time.RFC3339Nano)
			}
		}
	}
	return valid(s)
}

// refused tells whether PostgreSQL turned the statement down for what it is, and not for a mistake in it: several statements, a
// statement that its parser understands but that no cursor can be made of, or one that a READ ONLY transaction does not allow.
func (p *postgres) refused(ctx context.Context, c *pgconn.PgConn, sql string, err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "42601", "42P11", "0A000": // syntax, cursor definition, not supported
	default:
		return false
	}
	if pg.Routine == "exec_parse_message" { // "cannot insert multiple commands into a prepared statement"
		return true
	}
	// Parsed alone, and never run.
	if !reset(c) {
		return false
	}
	if _, err := c.Exec(ctx, begin(ctx)).ReadAll(); err != nil {
		return false
	}
	_, err = c.Prepare(ctx, "", sql, nil)
	mistake := pg.Code
	return err == nil || errors.As(err, &pg) && (pg.Routine == "exec_parse_message" || pg.Code != mistake)
}

// failed turns PostgreSQL's error into ours.
func (p *postgres) failed(ctx context.Context, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return p.away(ctx, err)
	}
	message := pg.Message
	if pg.Hint != "" {
		message += " (" + pg.Hint + ")"
	}
	if at := int(pg.Position) - len(cursor); at > 0 {
		message += fmt.Sprintf(" (at character %d)", at)
	}
	switch class := pg.Code[:min(2, len(pg.Code))]; {
	case pg.Code == "57014", pg.Code == "55P03", pg.Code == "25P03": // cancelled, a lock, idle for too long
		return tooSlow(err)
	case pg.Code == "25006": // a write in a READ ONLY transaction
		return notARead("This is not a statement that only reads: the database says: %s.", display.Line(message, messageMax))
	case pg.Code == "42501":
		return fault.New(fault.PermissionDenied, "The database says: %s.", display.Line(message, messageMax)).At("sql")
	case pg.Code == "08P01": // the number of parameters
		e := badSQL(message)
		return e.At("parameters")
	case pg.Code == "54000": // what the server can't hold in one value
		return fault.New(fault.ResultTooLarge, "The database says: %s.", display.Line(message, messageMax)).At("sql")
	case class == "0A", class == "20", class == "21", class == "22", class == "23", class == "25", class == "34", class == "42", class == "54", class == "P0", class == "2F", class == "38", class == "3F", class == "3D":
		return badSQL(message)
	}
	return p.away(ctx, err)
}

// tables lists the tables that the role can read; the server leaves out the others.
const tables = `
SELECT n.nspname, c.relname, CASE WHEN c.relkind IN ('v', 'm') THEN 'view' ELSE 'table' END, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
ORDER BY 1, 2, a.attnum LIMIT `

func (p *postgres) schema(ctx context.Context) (*Schema, error) {
	c, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	defer p.end(c)
	res := c.ExecParams(ctx, tables+strconv.Itoa(columnsMax+1), nil, nil, nil, nil).Read()
	if res.Err != nil {
		return nil, p.failed(ctx, res.Err)
	}
	s := &Schema{Tables: []Table{}}
	for _, r := range res.Rows {
		if !s.add(string(r[0]), string(r[1]), string(r[2]), Column{Name: string(r[3]), Type: string(r[4])}) {
			break
		}
	}
	return s, nil
}
