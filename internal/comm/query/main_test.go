//go:build linux

package query

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if server.stop != nil {
		server.stop()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// server is one real PostgreSQL for all tests, without a network: it listens on a socket in its own directory.
var server struct {
	once sync.Once
	dir  string // of the socket
	err  error
	stop func()
}

// setup is what the attacks attack.
const setup = `
CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL, price numeric(10,2), made timestamptz, raw bytea, ok boolean, doc jsonb);
INSERT INTO item SELECT i, 'item ' || i, i * 1.5, '2026-01-02 03:04:05.678+00', decode('00ff', 'hex'), i % 2 = 0, '{"a": 1}' FROM generate_series(1, 2000) i;
CREATE TABLE hidden (secret text); INSERT INTO hidden VALUES ('no');
CREATE VIEW cheap AS SELECT id, name FROM item WHERE price < 10;
CREATE SEQUENCE counter;
CREATE FUNCTION writes() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO item VALUES (-1, 'x'); RETURN 1; END $$;
CREATE FUNCTION definer_writes() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN DELETE FROM item; RETURN 1; END $$;
CREATE FUNCTION setting(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT pg_catalog.set_config($1, $2, $3)';
CREATE FUNCTION ends(int) RETURNS boolean LANGUAGE sql AS 'SELECT pg_catalog.pg_terminate_backend($1)';
CREATE FUNCTION cancels(int) RETURNS boolean LANGUAGE sql AS 'SELECT pg_catalog.pg_cancel_backend($1)';
CREATE FUNCTION locks(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT pg_catalog.pg_advisory_lock($1); SELECT pg_catalog.pg_advisory_lock_shared($1 + 1); SELECT pg_catalog.pg_try_advisory_lock($1 + 2)';
CREATE PROCEDURE proc() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$;
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE ROLE reader LOGIN; CREATE ROLE app LOGIN; CREATE ROLE writer LOGIN;
GRANT SELECT ON item, cheap TO reader, app; GRANT ALL ON ALL TABLES IN SCHEMA public TO writer; GRANT USAGE ON SEQUENCE counter TO reader, writer;
GRANT CREATE ON SCHEMA public TO reader, writer; GRANT CREATE, TEMP ON DATABASE postgres TO reader;
GRANT INSERT, UPDATE, DELETE ON item TO reader; GRANT writer TO reader;
CREATE ROLE super LOGIN SUPERUSER; CREATE ROLE files LOGIN; GRANT pg_read_server_files TO files;
CREATE ROLE programs LOGIN NOINHERIT; GRANT pg_execute_server_program TO programs;
CREATE ROLE signals LOGIN; GRANT pg_signal_backend TO signals; CREATE ROLE bypass LOGIN BYPASSRLS; CREATE ROLE replicates LOGIN REPLICATION;
CREATE ROLE climber LOGIN NOINHERIT; CREATE ROLE middle NOLOGIN; GRANT bypass TO middle; GRANT middle TO climber;
CREATE ROLE locked LOGIN CONNECTION LIMIT 0; CREATE ROLE caller LOGIN; GRANT EXECUTE ON FUNCTION pg_read_file(text) TO caller`

func postgresDir(t testing.TB) string {
	t.Helper()
	for _, tool := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("SALLYPORT_TEST_ALL") == "1" {
				t.Fatalf("%s is not here, and SALLYPORT_TEST_ALL=1 wants everything checked", tool)
			}
			t.Skipf("%s is not here; PostgreSQL was not checked", tool)
		}
	}
	server.once.Do(func() { server.err = startPostgres() })
	if server.err != nil {
		t.Fatal(server.err)
	}
	return server.dir
}

func startPostgres() error {
	dir, err := os.MkdirTemp("/tmp", "query-pg-") // short: the path of a socket may have 107 bytes
	if err != nil {
		return err
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			if u, err = user.Lookup("nobody"); err != nil {
				return err
			}
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			return err
		}
	}
	data := filepath.Join(dir, "data")
	var log bytes.Buffer
	command := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(name, args...)
		c.Dir, c.SysProcAttr, c.Stdout, c.Stderr = dir, attr, &log, &log
		return c
	}
	if err := command("initdb", "-D", data, "-U", "owner", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").Run(); err != nil {
		return &startError{log.String(), err}
	}
	run := command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=40")
	started, ended := make(chan error), make(chan struct{})
	go func() { // the server dies with the thread that started it, so this one stays
		runtime.LockOSThread()
		defer close(ended)
		err := run.Start()
		started <- err
		if err == nil {
			run.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	server.dir = dir
	server.stop = func() {
		run.Process.Signal(syscall.SIGINT)
		<-ended
		os.RemoveAll(dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		c, err := pgconn.Connect(ctx, address(dir, "owner"))
		if err == nil {
			_, err = c.Exec(ctx, setup).ReadAll()
			c.Close(ctx)
			return err
		}
		select {
		case <-ctx.Done():
			return &startError{log.String(), err}
		case <-time.After(20 * time.Millisecond): // the server has no other way to say that it is ready
		}
	}
}

type startError struct {
	log string
	err error
}

func (e *startError) Error() string { return e.err.Error() + "\n" + e.log }

func address(dir, role string) string {
	return "postgres://" + role + ":hunter2@/postgres?host=" + dir + "&sslmode=disable"
}

// as is a connection of its own, for looking at what an attack did.
func as(t testing.TB, role string) *pgconn.PgConn {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), address(postgresDir(t), role))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// ask returns the first column of the last row.
func ask(t testing.TB, c *pgconn.PgConn, sql string) string {
	t.Helper()
	results, err := c.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	out := ""
	for _, r := range results {
		for _, row := range r.Rows {
			out = string(row[0])
		}
	}
	return out
}

func openPostgres(t testing.TB, role string, o Options) *Databases {
	t.Helper()
	o.Databases = map[string]string{"pg": address(postgresDir(t), role)}
	return open(t, o)
}

func open(t testing.TB, o Options) *Databases {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}
