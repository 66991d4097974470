//go:build linux

package query

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

// pgState is everything that an attack could have left behind, as its owner sees it.
func pgState(t testing.TB) func() string {
	owner := as(t, "owner")
	return func() string {
		return ask(t, owner, `SELECT concat_ws(' ',
			(SELECT md5(string_agg(item::text, ',' ORDER BY id)) FROM item), (SELECT count(*) FROM pg_class WHERE relname !~ '^pg_'), (SELECT count(*) FROM pg_proc),
			(SELECT last_value::text || is_called FROM counter), (SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) FROM pg_db_role_setting),
			(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), (SELECT count(*) FROM pg_roles), (SELECT count(*) FROM pg_replication_slots),
			(SELECT md5(string_agg(name || coalesce(setting, ''), ',' ORDER BY name)) FROM pg_settings), (SELECT md5(string_agg(relname || coalesce(relacl::text, ''), ',' ORDER BY oid)) FROM pg_class),
			(SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_prepared_xacts))`)
	}
}

func TestPostgresAttacks(t *testing.T) {
	d := openPostgres(t, "reader", Options{Timeout: 1500 * time.Millisecond, Rows: 50})
	state := pgState(t)
	other := as(t, "app") // somebody else's session
	heard := 0
	ask(t, other, "LISTEN news")
	pid := ask(t, other, "SELECT pg_backend_pid()")
	victim := filepath.Join(server.dir, "victim")
	session := `SELECT concat_ws(' ', current_user, session_user, current_setting('statement_timeout'), current_setting('search_path'), current_setting('transaction_read_only'), current_setting('datestyle'), current_setting('work_mem'), (SELECT count(*) FROM pg_cursors), (SELECT count(*) FROM pg_prepared_statements))`
	mine := func() string {
		r, err := d.Query(t.Context(), "pg", strings.Replace(session, "current_setting('statement_timeout')", "'-'", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r.Rows)
	}
	before, settings := state(), mine()
	const any = fault.Code("") // what it answers does not matter, only that it changes nothing
	for _, c := range []struct {
		sql  string
		want fault.Code
	}{
		// other statements
		{"INSERT INTO item VALUES (-5, 'x')", fault.PermissionDenied},
		{"UPDATE item SET name = 'x'", fault.PermissionDenied},
		{"DELETE FROM item RETURNING *", fault.PermissionDenied},
		{"TRUNCATE item", fault.PermissionDenied},
		{"MERGE INTO item i USING item j ON i.id = j.id WHEN MATCHED THEN DELETE", fault.PermissionDenied},
		{"CREATE TABLE evil (x int)", fault.PermissionDenied},
		{"CREATE TEMP TABLE evil (x int)", fault.PermissionDenied},
		{"CREATE TABLE evil AS SELECT 1", fault.PermissionDenied},
		{"SELECT * INTO evil FROM item", fault.PermissionDenied},
		{"SELECT 1 INTO TEMP evil", fault.PermissionDenied},
		{"DROP TABLE item", fault.PermissionDenied},
		{"GRANT ALL ON item TO PUBLIC", fault.PermissionDenied},
		{"SET work_mem = '1GB'", fault.PermissionDenied},
		{"SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", fault.PermissionDenied},
		{"SET TRANSACTION READ WRITE", fault.PermissionDenied},
		{"RESET ALL", fault.PermissionDenied},
		{"SET ROLE writer", fault.PermissionDenied},
		{"SHOW data_directory", fault.PermissionDenied},
		{"COPY item TO STDOUT", fault.PermissionDenied},
		{"COPY item TO '" + victim + "'", fault.PermissionDenied},
		{"COPY item TO PROGRAM 'touch " + victim + "'", fault.PermissionDenied},
		{"COPY item FROM STDIN", fault.PermissionDenied},
		{"DO $$ BEGIN DELETE FROM item; END $$", fault.PermissionDenied},
		{"CALL proc()", fault.PermissionDenied},
		{"LOCK TABLE item", fault.PermissionDenied},
		{"NOTIFY news, 'x'", fault.PermissionDenied},
		{"LISTEN news", fault.PermissionDenied},
		{"VACUUM", fault.PermissionDenied},
		{"ANALYZE", fault.PermissionDenied},
		{"CHECKPOINT", fault.PermissionDenied},
		{"PREPARE p AS DELETE FROM item", fault.PermissionDenied},
		{"EXECUTE p", fault.PermissionDenied},
		{"DEALLOCATE ALL", fault.PermissionDenied},
		{"DISCARD ALL", fault.PermissionDenied},
		{"COMMIT", fault.PermissionDenied},
		{"ROLLBACK", fault.PermissionDenied},
		{"BEGIN READ WRITE", fault.PermissionDenied},
		{"SAVEPOINT s", fault.PermissionDenied},
		{"PREPARE TRANSACTION 'x'", fault.PermissionDenied},
		{"EXPLAIN ANALYZE DELETE FROM item", fault.PermissionDenied},
		{"EXPLAIN SELECT 1", fault.PermissionDenied},
		{"DECLARE x CURSOR WITH HOLD FOR SELECT 1", fault.PermissionDenied},
		{"FETCH ALL FROM sallyport", fault.PermissionDenied},
		{"CLOSE sallyport", fault.PermissionDenied},
		{"LOAD 'dblink'", fault.PermissionDenied},
		{"REFRESH MATERIALIZED VIEW x", fault.PermissionDenied},
		{"ALTER ROLE reader SET work_mem = '1GB'", fault.PermissionDenied},
		{"COMMENT ON TABLE item IS 'x'", fault.PermissionDenied},
		{"CREATE EXTENSION dblink", fault.PermissionDenied},
		// several statements
		{"SELECT 1; DELETE FROM item", fault.PermissionDenied},
		{"SELECT 1; COMMIT; DELETE FROM item", fault.PermissionDenied},
		{"SELECT 1;; SELECT 2", fault.PermissionDenied},
		{"; DELETE FROM item", fault.PermissionDenied},
		{"DELETE FROM item; SELECT 1", fault.PermissionDenied},
		{"SELECT 1 /* */ ; -- \n DELETE FROM item", fault.PermissionDenied},
		{"SELECT 1) AS q; DELETE FROM item; SELECT * FROM (SELECT 1", fault.RequestMalformed},
		{"SELECT E'\\'; DELETE FROM item; --'", any},
		{"SELECT $$;$$; DELETE FROM item", fault.PermissionDenied},
		// writes inside a query
		{"WITH w AS (DELETE FROM item RETURNING *) SELECT * FROM w", fault.PermissionDenied},
		{"WITH w AS (INSERT INTO item VALUES (-6, 'x') RETURNING *) TABLE w", fault.PermissionDenied},
		{"WITH a AS (WITH w AS (DELETE FROM item RETURNING *) SELECT * FROM w) SELECT * FROM a", any},
		{"SELECT * FROM item FOR UPDATE", fault.PermissionDenied},
		{"SELECT * FROM item FOR KEY SHARE", fault.PermissionDenied},
		{"SELECT writes()", fault.PermissionDenied},
		{"SELECT definer_writes()", fault.PermissionDenied},
		{"SELECT nextval('counter')", fault.PermissionDenied},
		{"SELECT setval('counter', 99)", fault.PermissionDenied},
		{"SELECT query_to_xml('DELETE FROM item', true, true, '')", any},
		{"SELECT query_to_xml('SELECT nextval(''counter'')', true, true, '')", fault.PermissionDenied},
		{"SELECT query_to_xml('COMMIT', true, true, '')", any},
		{"SELECT query_to_xml('SET ROLE writer', true, true, '')", any},
		{"SELECT * FROM ts_stat('DELETE FROM item RETURNING name::tsvector')", any},
		{"SELECT query_to_xml('SELECT setting(''transaction_read_only'', ''off'', false), definer_writes()', true, true, '')", any},
		// settings, roles; and what an operator's own function could do to them, which no name tells
		{"SELECT set_config('work_mem', '1GB', false)", fault.PermissionDenied},
		{"SELECT pg_catalog.\"set_config\"('statement_timeout', '0', true)", fault.PermissionDenied},
		{"SELECT setting('transaction_read_only', 'off', true)", any},
		{"SELECT setting('transaction_read_only', 'off', false), writes()", any},
		{"SELECT setting('default_transaction_read_only', 'off', false)", any},
		{"SELECT setting('work_mem', '1GB', false), setting('search_path', 'evil', false), setting('datestyle', 'German', false)", any},
		{"SELECT setting('role', 'writer', false)", any},
		{"SELECT setting('role', 'writer', false), definer_writes()", any},
		{"SELECT setting('session_authorization', 'owner', false)", any},
		{"SELECT setting('statement_timeout', '0', false), setting('lock_timeout', '0', false) FROM generate_series(1, 200)", any},
		{"SELECT setting('client_encoding', 'LATIN1', false), 'é'", any},
		{"UPDATE pg_settings SET setting = '1GB' WHERE name = 'work_mem'", fault.PermissionDenied},
		// files and programs
		{"SELECT pg_read_file('/etc/passwd')", fault.PermissionDenied},
		{"SELECT pg_read_binary_file('postgresql.conf')", fault.PermissionDenied},
		{"SELECT pg_ls_dir('/')", fault.PermissionDenied},
		{"SELECT pg_stat_file('/etc/passwd')", fault.PermissionDenied},
		{"SELECT lo_import('/etc/passwd')", fault.PermissionDenied},
		{"SELECT lo_export(lo_from_bytea(0, 'x'), '" + victim + "')", fault.PermissionDenied},
		{"SELECT lo_from_bytea(0, 'x')", any},
		{"SELECT lo_create(0), lo_unlink(1)", any},
		{"SELECT * FROM pg_authid", fault.PermissionDenied},
		{"SELECT * FROM hidden", any},
		{"SELECT * FROM pg_hba_file_rules", fault.PermissionDenied},
		{"SELECT dblink('dbname=postgres', 'DELETE FROM item')", fault.RequestMalformed},
		// other sessions, the server
		{"SELECT pg_notify('news', 'x')", any},
		{"SELECT pg_terminate_backend(" + pid + ")", fault.PermissionDenied},
		{"SELECT pg_cancel_backend(" + pid + ")", fault.PermissionDenied},
		{"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'app'", fault.PermissionDenied},
		{"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user", fault.PermissionDenied},
		{"SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(1)", fault.PermissionDenied},
		{"SELECT ends(pg_backend_pid())", fault.UpstreamFailed},
		{"SELECT cancels(pg_backend_pid()), pg_sleep(1)", fault.TimeExceeded},
		{"SELECT pg_advisory_lock(7)", fault.PermissionDenied},
		{"SELECT pg_try_advisory_xact_lock_shared(8)", fault.PermissionDenied},
		{"SELECT locks(7)", any},
		{"SELECT pg_reload_conf()", fault.PermissionDenied},
		{"SELECT pg_switch_wal()", fault.PermissionDenied},
		{"SELECT pg_create_physical_replication_slot('evil')", any},
		{"SELECT pg_stat_reset()", fault.PermissionDenied},
		{"SELECT pg_export_snapshot()", any},
		{"SELECT txid_current()", any},
		{"SELECT cursor_to_xml('sallyport', 10, true, true, '')", any},
		// time and size
		{"SELECT pg_sleep(60)", fault.TimeExceeded},
		{"SELECT setting('statement_timeout', '0', false), pg_sleep(60)", fault.TimeExceeded},
		{"SELECT setting('statement_timeout', '0', false), pg_sleep(CASE WHEN i > 100 THEN 60 ELSE 0 END) FROM generate_series(1, 200) i", any},
		{"WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT 1 FROM r) SELECT count(*) FROM r", fault.TimeExceeded},
		{"SELECT repeat('x', 300000000)", any},
		{"SELECT repeat('x', 2000000000)", any},
	} {
		start := time.Now()
		r, err := d.Query(t.Context(), "pg", c.sql, nil)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: took %v", c.sql, took)
		}
		if c.want != any && !fault.Is(err, c.want) {
			t.Errorf("%s: %v, %v; want %s", c.sql, r, err, c.want)
		}
		if err != nil && fault.Of(err).Code == fault.Internal {
			t.Errorf("%s: %v", c.sql, err)
		}
		if got := state(); got != before {
			t.Errorf("%s changed the database:\n%s\n%s (%v)", c.sql, before, got, err)
			before = got
		}
		if got := mine(); got != settings {
			t.Errorf("%s left something in the session:\n%s\n%s", c.sql, settings, got)
		}
		if _, err := os.Stat(victim); err == nil {
			t.Fatalf("%s wrote a file", c.sql)
		}
		if got := ask(t, other, "SELECT pg_backend_pid()"); got != pid {
			t.Fatalf("%s ended another session", c.sql)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if other.WaitForNotification(ctx) == nil {
		heard++
	}
	if heard > 0 {
		t.Error("a notification was sent")
	}
}

func TestPostgresRoles(t *testing.T) {
	dir := postgresDir(t)
	for role, want := range map[string]string{
		"super": "superuser", "files": "pg_read_server_files", "programs": "pg_execute_server_program", "signals": "pg_signal_backend",
		"bypass": "row security", "replicates": "may replicate", "climber": "row security", "caller": "pg_read_file",
	} {
		d := openPostgres(t, role, Options{})
		for range 2 {
			_, err := d.Query(t.Context(), "pg", "SELECT 1", nil)
			if !fault.Is(err, fault.ConfigurationInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(fault.Of(err).Remedy, "CREATE ROLE") {
				t.Errorf("%s: %v", role, err)
			}
		}
		if _, err := d.Schema(t.Context(), "pg"); !fault.Is(err, fault.ConfigurationInvalid) {
			t.Errorf("%s: %v", role, err)
		}
	}
	d := openPostgres(t, "locked", Options{})
	if _, err := d.Query(t.Context(), "pg", "SELECT 1", nil); !fault.Is(err, fault.UpstreamFailed) || strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "locked") {
		t.Errorf("%v", err)
	}
}

// An extension that leads out of the transaction makes every role that may call it unfit.
func TestPostgresExtension(t *testing.T) {
	owner := as(t, "owner")
	if ask(t, owner, "SELECT count(*) FROM pg_available_extensions WHERE name = 'dblink'") == "0" {
		t.Skip("the extension dblink is not installed")
	}
	ask(t, owner, "CREATE SCHEMA far; CREATE EXTENSION dblink SCHEMA far")
	defer ask(t, owner, "DROP SCHEMA far CASCADE")
	d := openPostgres(t, "reader", Options{})
	if _, err := d.Query(t.Context(), "pg", "SELECT 1", nil); !fault.Is(err, fault.ConfigurationInvalid) || !strings.Contains(err.Error(), "dblink") {
		t.Error(err)
	}
	ask(t, owner, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA far FROM PUBLIC")
	if _, err := d.Query(t.Context(), "pg", "SELECT 1", nil); err != nil {
		t.Error(err)
	}
}

// Functions that act at once, whoever brought them, are refused by name: what is rolled back was still done.
func TestPostgresActing(t *testing.T) {
	owner := as(t, "owner")
	ask(t, owner, `CREATE SCHEMA act; GRANT USAGE ON SCHEMA act TO PUBLIC; CREATE SCHEMA closed;
		CREATE TABLE act.grown AS SELECT g AS id FROM generate_series(1, 100000) g; CREATE INDEX grown_brin ON act.grown USING brin (id);
		CREATE INDEX grown_gin ON act.grown USING gin ((ARRAY[id])); ALTER TABLE act.grown OWNER TO writer;
		CREATE FUNCTION act.unheard() RETURNS int LANGUAGE internal VOLATILE AS 'pg_backend_pid';
		CREATE FUNCTION act."Un ""heard"() RETURNS int LANGUAGE internal VOLATILE AS 'pg_backend_pid';
		CREATE FUNCTION act.quiet() RETURNS int LANGUAGE internal STABLE AS 'pg_backend_pid';
		CREATE FUNCTION closed.schedule() RETURNS int LANGUAGE internal VOLATILE AS 'pg_backend_pid';
		CREATE FUNCTION act.archive() RETURNS int LANGUAGE internal VOLATILE AS 'pg_backend_pid'; REVOKE EXECUTE ON FUNCTION act.archive() FROM PUBLIC;
		CREATE FUNCTION act.only_writer() RETURNS int LANGUAGE internal VOLATILE AS 'pg_backend_pid'; REVOKE EXECUTE ON FUNCTION act.only_writer() FROM PUBLIC;
		GRANT EXECUTE ON FUNCTION act.only_writer() TO writer; CREATE ROLE apart LOGIN NOINHERIT; GRANT writer TO apart`)
	defer ask(t, owner, "DROP SCHEMA act CASCADE; DROP SCHEMA closed CASCADE; DROP ROLE apart")
	d := openPostgres(t, "reader", Options{})
	refused := func(name, sql string) {
		t.Helper()
		_, err := d.Query(t.Context(), "pg", sql, nil)
		if !fault.Is(err, fault.PermissionDenied) || !strings.Contains(err.Error(), "names "+name+", which does more than read") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for name, sql := range map[string]string{
		"brin_desummarize_range": "SELECT brin_desummarize_range('act.grown_brin', 0)", "brin_summarize_new_values": "SELECT brin_summarize_new_values('act.grown_brin')",
		"brin_summarize_range": "SELECT brin_summarize_range('act.grown_brin', 0)", "gin_clean_pending_list": "SELECT gin_clean_pending_list('act.grown_gin')",
		"pg_advisory_lock": "SELECT pg_advisory_lock(1)", "pg_try_advisory_xact_lock_shared": "SELECT pg_try_advisory_xact_lock_shared(1)", "set_config": "SELECT set_config('a.b', 'c', true)",
		"pg_terminate_backend": "SELECT pg_terminate_backend(1)", "pg_cancel_backend": "SELECT pg_cancel_backend(1)", "pg_export_snapshot": "SELECT pg_export_snapshot()",
		"pg_logical_emit_message": "SELECT pg_logical_emit_message(false, 'a', 'b')", "setseed": "SELECT setseed(0.5)", "query_to_xml": "SELECT query_to_xml('SELECT 1', true, true, '')",
		"ts_stat": "SELECT * FROM ts_stat('SELECT 1')", "ts_rewrite": "SELECT ts_rewrite('a', 'b')",
		"unheard": "SELECT act . UNheard ()", `un ""heard`: `SELECT act."Un ""heard"()`, "only_writer": "SELECT act.only_writer()",
	} {
		refused(name, sql)
	}
	apart := openPostgres(t, "apart", Options{}) // which SET ROLE makes a writer
	if _, err := apart.Query(t.Context(), "pg", "SELECT act.only_writer()", nil); !fault.Is(err, fault.PermissionDenied) || !strings.Contains(err.Error(), "does more than read") {
		t.Error(err)
	}
	if n := ask(t, owner, "SELECT brin_summarize_new_values('act.grown_brin')"); n != "0" {
		t.Errorf("%s ranges of the index were lost", n)
	}
	for _, sql := range []string{
		"SELECT random(), clock_timestamp(), gen_random_uuid(), pg_sleep(0), pg_total_relation_size('item'), pg_advisory_unlock(1), pg_is_in_recovery(), act.quiet()",
		"SELECT 1 AS schedule, 2 AS archive, 3 AS read",
	} {
		if _, err := d.Query(t.Context(), "pg", sql, nil); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	// Nothing of the server's leads to one that is not named.
	if n := ask(t, owner, `WITH acting AS (SELECT p.oid`+acting+`) SELECT concat_ws(' ', (SELECT string_agg(oprname, ' ') FROM pg_operator WHERE oprcode IN (TABLE acting)),
		(SELECT string_agg(castfunc::regproc::text, ' ') FROM pg_cast WHERE castfunc IN (TABLE acting)), (SELECT string_agg(typname, ' ') FROM pg_type WHERE typinput IN (TABLE acting) OR typoutput IN (TABLE acting)),
		(SELECT string_agg(aggfnoid::text, ' ') FROM pg_aggregate WHERE aggtransfn IN (TABLE acting) OR aggfinalfn IN (TABLE acting)))`); n != "" {
		t.Errorf("these call functions that are refused by name: %s", n)
	}
	// What an extension brings while connections are open is known to those that come later, and none is old.
	if ask(t, owner, "SELECT count(*) FROM pg_available_extensions WHERE name IN ('pg_prewarm', 'tablefunc')") != "2" {
		t.Skip("the extensions pg_prewarm and tablefunc are not installed")
	}
	d.byID["pg"].(*postgres).age = 0
	ask(t, owner, `CREATE EXTENSION pg_prewarm; CREATE EXTENSION tablefunc;
		CREATE FUNCTION act.pivot(text) RETURNS SETOF record LANGUAGE c STABLE STRICT AS '$libdir/tablefunc', 'crosstab'`)
	defer ask(t, owner, "DROP EXTENSION pg_prewarm; DROP EXTENSION tablefunc")
	refused("autoprewarm_dump_now", "SELECT autoprewarm_dump_now()")
	refused("autoprewarm_start_worker", "SELECT autoprewarm_start_worker()")
	refused("pg_prewarm", "SELECT pg_prewarm('item')")
	refused("crosstab", "SELECT * FROM crosstab('SELECT 1') AS x(a int)")
	refused("pivot", "SELECT * FROM act.pivot('SELECT 1') AS x(a int)")
	if _, err := os.Stat(filepath.Join(server.dir, "data", "autoprewarm.blocks")); err == nil {
		t.Error("a file was written")
	}
	if n := ask(t, owner, "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'autoprewarm%'"); n != "0" {
		t.Error("a worker was started")
	}
}

func TestPostgresValues(t *testing.T) {
	d := openPostgres(t, "reader", Options{})
	for _, c := range []struct {
		sql    string
		params []any
		types  string
		want   string // JSON
	}{
		{"SELECT id, name, price, made, raw, ok, doc FROM item WHERE id = $1", []any{json.Number("2")},
			"integer,text,numeric,timestamp with time zone,bytea,boolean,jsonb", `[[2,"item 2",3.00,"2026-01-02T03:04:05.678Z","AP8=",true,"{\"a\": 1}"]]`},
		{"SELECT $1::int8, $2::bool, $3::text, $4::text", []any{json.Number("9007199254740993"), true, "'; DELETE FROM item; --", nil},
			"bigint,boolean,text,text", `[[9007199254740993,true,"'; DELETE FROM item; --",null]]`},
		{"SELECT 'NaN'::float8, 'Infinity'::float4, 1e300::float8, -0.5::real, 'NaN'::numeric", nil,
			"double precision,real,double precision,real,numeric", `[["NaN","Infinity",1e+300,-0.5,"NaN"]]`},
		{"SELECT 'glad'::mood, ARRAY[1,2], '1 day 2 hours'::interval, DATE '2026-01-02', TIMESTAMP '2026-01-02 03:04:05.5', 'infinity'::timestamptz, TIMESTAMPTZ '0044-03-15 12:00 BC'", nil,
			"mood,integer[],interval,date,timestamp without time zone,timestamp with time zone,timestamp with time zone",
			`[["glad","{1,2}","P1DT2H","2026-01-02","2026-01-02T03:04:05.5","infinity","0044-03-15 12:00:00+00 BC"]]`},
		{"SELECT 1 AS a, 2 AS a;  -- twice", nil, "integer,integer", `[[1,2]]`},
		{"VALUES (1, 'a'), (2, 'b')", nil, "integer,text", `[[1,"a"],[2,"b"]]`},
		{"TABLE cheap LIMIT 1", nil, "integer,text", `[[1,"item 1"]]`},
		{"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r ORDER BY n DESC", nil, "integer", `[[3],[2],[1]]`},
		{"SELECT FROM item LIMIT 2", nil, "", `[[],[]]`},
		{"SELECT 1 WHERE false", nil, "integer", `[]`},
	} {
		r, err := d.Query(t.Context(), "pg", c.sql, c.params)
		if err != nil {
			t.Errorf("%s: %v", c.sql, err)
			continue
		}
		got, err := json.Marshal(r.Rows)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s %v, want %s", c.sql, got, err, c.want)
		}
		var types []string
		for _, c := range r.Columns {
			types = append(types, c.Type)
		}
		if strings.Join(types, ",") != c.types || r.Truncated {
			t.Errorf("%s: %v truncated=%v", c.sql, types, r.Truncated)
		}
	}
}

func TestPostgresErrors(t *testing.T) {
	d := openPostgres(t, "reader", Options{})
	for _, c := range []struct {
		sql    string
		params []any
		code   fault.Code
		field  string
		says   string
	}{
		{"SELECT nmae FROM item", nil, fault.RequestMalformed, "sql", `column "nmae" does not exist`},
		{"SELECT nmae FROM item", nil, fault.RequestMalformed, "sql", "(at character 8)"},
		{"SELEC 1", nil, fault.RequestMalformed, "sql", "syntax error"},
		{"SELECT 1 FROM", nil, fault.RequestMalformed, "sql", "syntax error"},
		{"SELECT 'x", nil, fault.RequestMalformed, "sql", "unterminated"},
		{"SELECT /* x", nil, fault.RequestMalformed, "sql", "unterminated"},
		{"SELECT $1::int", nil, fault.RequestMalformed, "parameters", "parameter"},
		{"SELECT $1::int", []any{"a"}, fault.RequestMalformed, "sql", "invalid input syntax"},
		{"SELECT 1", []any{"a"}, fault.RequestMalformed, "parameters", "parameter"},
		{"SELECT 1/0", nil, fault.RequestMalformed, "sql", "division by zero"},
		{"SELECT 1/(i-150) FROM generate_series(1,200) i", nil, fault.RequestMalformed, "sql", "division by zero"},
		{"SELECT * FROM pg_authid", nil, fault.PermissionDenied, "sql", "permission denied"},
		{"SELECT \x1b[31m", nil, fault.RequestMalformed, "sql", `\x1b`},
	} {
		_, err := d.Query(t.Context(), "pg", c.sql, c.params)
		e := fault.Of(err)
		if err == nil || e.Code != c.code || e.Field != c.field || !strings.Contains(e.Public(), c.says) {
			t.Errorf("%s: %v at %s", c.sql, err, e.Field)
		}
	}
}

func TestPostgresLimits(t *testing.T) {
	d := openPostgres(t, "reader", Options{Rows: 250, Bytes: 20_000})
	for _, c := range []struct {
		sql       string
		rows      int
		truncated bool
	}{
		{"SELECT id FROM item ORDER BY id LIMIT 250", 250, false},
		{"SELECT id FROM item ORDER BY id LIMIT 251", 250, true},
		{"SELECT id FROM item ORDER BY id", 250, true},
		{"SELECT id FROM item ORDER BY id LIMIT 100", 100, false},
		{"SELECT repeat('x', 10000) FROM item", 1, true},
		{"SELECT repeat('x', 30000)", 0, true},
		{"SELECT CASE WHEN id = 3 THEN repeat('x', 10000000) ELSE 'y' END FROM item ORDER BY id", 2, true},
		{"SELECT CASE WHEN i = 150 THEN repeat('x', 10000000) ELSE 'y' END FROM generate_series(1, 200) i", -1, true},
		{"SELECT repeat(chr(1), 4000)", 0, true}, // 24 000 bytes of JSON
	} {
		r, err := d.Query(t.Context(), "pg", c.sql, nil)
		if err != nil {
			t.Errorf("%s: %v", c.sql, err)
			continue
		}
		if c.rows >= 0 && len(r.Rows) != c.rows || r.Truncated != c.truncated {
			t.Errorf("%s: %d rows, truncated=%v", c.sql, len(r.Rows), r.Truncated)
		}
		if text, err := json.Marshal(r); err != nil || len(text) > 20_000+1000 {
			t.Errorf("%s: %d bytes, %v", c.sql, len(text), err)
		}
	}
}

// A row that could not be part of the answer is not read into memory.
func TestPostgresMemory(t *testing.T) {
	d := openPostgres(t, "reader", Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := d.Query(t.Context(), "pg", "SELECT 1, repeat('x', 100000000)", nil)
	runtime.ReadMemStats(&after)
	if err != nil || !r.Truncated || len(r.Rows) != 0 {
		t.Errorf("%v %v", r, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 20<<20 {
		t.Errorf("%d bytes", used)
	}
}

func TestPostgresSchema(t *testing.T) {
	s, err := openPostgres(t, "reader", Options{}).Schema(t.Context(), "pg")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Tables) != 3 && len(s.Tables) != 2 || s.Truncated {
		t.Fatalf("%+v", s)
	}
	if want := (Table{Schema: "public", Name: "cheap", Kind: "view", Columns: []Column{{"id", "integer"}, {"name", "text"}}}); !reflect.DeepEqual(s.Tables[0], want) {
		t.Errorf("%+v", s.Tables[0])
	}
}

// Queries at once share few connections, see one snapshot each, and the server's side of a cancelled one is over when it returns.
func TestPostgresConcurrency(t *testing.T) {
	d := open(t, Options{Databases: map[string]string{"pg": address(postgresDir(t), "reader") + "&application_name=crowd"}})
	owner := as(t, "owner")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r, err := d.Query(t.Context(), "pg", "SELECT $1::int", []any{json.Number(fmt.Sprint(i))})
			if err != nil || fmt.Sprint(r.Rows) != fmt.Sprintf("[[%d]]", i) {
				t.Errorf("%v %v", r, err)
			}
		})
	}
	wg.Wait()
	if n := ask(t, owner, "SELECT count(*) <= 4 FROM pg_stat_activity WHERE application_name = 'crowd'"); n != "t" {
		t.Error("more than 4 connections")
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ask(t, owner, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FETCH%' AND wait_event = 'PgSleep'") == "0" {
		}
		cancel()
	}()
	if _, err := d.Query(ctx, "pg", "SELECT pg_sleep(20)", nil); !fault.Is(err, fault.TimeExceeded) {
		t.Error(err)
	}
	if n := ask(t, owner, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"); n != "0" {
		t.Error("the query goes on")
	}
}

// A connection that was ended while idle does not fail the next query.
func TestPostgresReconnects(t *testing.T) {
	d := openPostgres(t, "reader", Options{})
	owner := as(t, "owner")
	for range 3 {
		if _, err := d.Query(t.Context(), "pg", "SELECT 1", nil); err != nil {
			t.Fatal(err)
		}
		ask(t, owner, "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = 'reader'")
	}
}

func TestPostgresAway(t *testing.T) {
	d := open(t, Options{Databases: map[string]string{"pg": "postgres://someone:hunter2@127.0.0.1:1/db?sslmode=disable"}, Timeout: 5 * time.Second})
	_, err := d.Query(t.Context(), "pg", "SELECT 1", nil)
	if !fault.Is(err, fault.UpstreamFailed) {
		t.Fatal(err)
	}
	for _, leak := range []string{"hunter2", "someone", "127.0.0.1", "/db"} {
		if strings.Contains(err.Error(), leak) {
			t.Errorf("%v holds %q", err, leak)
		}
	}
}

func TestCheckText(t *testing.T) {
	acting, err := naming([]string{"lo_creat", "lo_create", "lo_put", "lo_from_bytea", "lo_unlink", "lowrite", "lo_import", "pg_logical_emit_message", "pg_export_snapshot", "set_config",
		"pg_terminate_backend", "pg_cancel_backend", "pg_advisory_lock", "pg_advisory_xact_lock", "pg_try_advisory_lock_shared", "pg_advisory_xact_lock_shared", `Odd "name"`, "f(x)"})
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"SELECT lo_creat(-1)", "SELECT LO_CREAT(-1)", `SELECT "lo_creat"(-1)`, "SELECT pg_catalog.lo_create(0)", "SELECT pg_catalog . /**/ lo_put /**/ (1, 0, 'x')", "SELECT lo_from_bytea(0,'')",
		"lo_unlink(1)", "SELECT lowrite(0,'')", "SELECT 1 WHERE\nlo_import('x')>0", "SELECT pg_logical_emit_message(true, '', '')", "SELECT pg_log\u0130cal_emit_message(true, '', '')",
		`SELECT U&"lo\005fcreat"(-1)`, `SELECT u&"\006co_creat"(-1)`, `SELECT U&"!006co_creat" UESCAPE '!' (-1)`, "SELECT pg_export_snapshot()",
		"SELECT query_to_xml('x',true,true,'')", "SELECT * FROM ts_stat('x')", "SELECT ts_rewrite('a', 'b')", "SELECT * FROM crosstab3('x')", "SELECT e''lo_creat", "SELECT 1 LIMIT lo_creat(1)",
		"SELECT set_config('role', 'x', false)", "SELECT PG_TERMINATE_BACKEND(1)", "SELECT pg_cancel_backend (1)", "SELECT pg_advisory_lock(1)", "SELECT pg_advisory_xact_lock(1)",
		"SELECT pg_try_advisory_lock_shared(1)", "SELECT pg_advisory_xact_lock_shared(1)", `SELECT "Odd ""name"""()`, `SELECT "f(x)"()`, "SELECT crosstab_hash('x')",
	} {
		if err := checkText(acting, sql); !fault.Is(err, fault.PermissionDenied) || fault.Of(err).Field != "sql" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for _, sql := range []string{"SELECT hello_create FROM item", "SELECT lo_creation, xlo_put, lo_put_at, lo_putä, älo_put, lo_put$ FROM item", "SELECT a&b, u&b, U&'x'", "SELECT lo_get(1), loread(1, 2), xpath('/a', 'b')",
		"SELECT reset_config, set_configuration, current_setting('role'), pg_advisory_unlock(1), pg_backend_pid() FROM item"} {
		if err := checkText(acting, sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// The names are those that the server has, and what the warnings say to do ends them.
func TestPostgresWarnings(t *testing.T) {
	d := openPostgres(t, "reader", Options{})
	owner := as(t, "owner")
	all, err := d.Warnings(t.Context(), "pg")
	if err != nil || len(all) != 3 || !strings.Contains(all[0], "pg_logical_emit_message(boolean,text,text)") ||
		!strings.Contains(all[0], "set_config(text,text,boolean)") || !strings.Contains(all[0], "pg_terminate_backend(integer,bigint)") || !strings.Contains(all[0], "brin_summarize_new_values(regclass)") ||
		strings.Contains(all[0], "random()") || !strings.HasSuffix(all[0], " FROM PUBLIC, reader;") || !strings.Contains(all[1], "temp_file_limit") ||
		!strings.Contains(all[2], "may change cheap and ") {
		t.Fatal(all, err)
	}
	defer func() {
		ask(t, owner, "ALTER ROLE reader RESET temp_file_limit")
		ask(t, owner, strings.Replace(strings.Replace(all[0][strings.Index(all[0], "REVOKE"):], "REVOKE", "GRANT", 1), "FROM", "TO", 1))
	}()
	for _, w := range all[:2] {
		_, statement, _ := strings.Cut(w, ": ")
		ask(t, owner, statement)
	}
	d = openPostgres(t, "reader", Options{})
	if left, err := d.Warnings(t.Context(), "pg"); err != nil || len(left) != 1 || left[0] != all[2] {
		t.Error(left, err)
	}
	ask(t, owner, "ALTER ROLE app SET temp_file_limit = '1GB'")
	defer ask(t, owner, "ALTER ROLE app RESET temp_file_limit")
	d = openPostgres(t, "app", Options{}) // which may read, and nothing else
	if all, err := d.Warnings(t.Context(), "pg"); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	if _, err := d.Warnings(t.Context(), "x"); !fault.Is(err, fault.RequestMalformed) {
		t.Error(err)
	}
}
