package statement

import (
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	for sql, want := range map[string]string{
		"SELECT 1":  "",
		"select 1;": "",
		"SELECT id, lower(name) FROM crm.customers c JOIN orders o ON o.customer = c.id WHERE o.total > 10 AND c.name ILIKE 'a%' ORDER BY 1 DESC LIMIT 10":    "",
		"WITH x AS (SELECT id FROM a) SELECT * FROM x WHERE id IN (SELECT id FROM b) UNION ALL SELECT 1":                                                      "",
		"SELECT count(*) FILTER (WHERE a), sum(b) OVER (PARTITION BY c ORDER BY d) FROM t GROUP BY ROLLUP (c) HAVING count(*) > 1":                            "",
		"SELECT CASE WHEN a THEN 1 ELSE 2 END, b::date, (c).d, ARRAY[1,2], e[1], CAST(f AS text), EXTRACT(year FROM g), j->>'x', h AT TIME ZONE 'UTC' FROM t": "",
		"SELECT coalesce(a, 'x'), greatest(1, 2), CURRENT_DATE, a IS NULL, b IS TRUE, a BETWEEN 1 AND 2 FROM t WHERE EXISTS (SELECT 1) AND x = ANY ($1)":      "",
		"VALUES (1), (2)": "",
		"TABLE t":         "",
		"SELECT n FROM generate_series(1, 3) AS g(n)": "",

		"":                         "can't be parsed",
		";":                        "can't be parsed",
		"SELEC 1":                  "can't be parsed",
		"SELECT 1; SELECT 2":       "more than one",
		"COMMIT; DELETE FROM t":    "more than one",
		"DELETE FROM t":            "another statement",
		"INSERT INTO t VALUES (1)": "another statement",
		"UPDATE t SET a = 1":       "another statement",
		"MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE": "another statement",
		"COPY t TO PROGRAM 'sh'":                                "another statement",
		"COPY (SELECT 1) TO '/tmp/x'":                           "another statement",
		"CALL p()":                                              "another statement",
		"DO 'begin end'":                                        "another statement",
		"EXPLAIN ANALYZE SELECT 1":                              "another statement",
		"EXPLAIN SELECT 1":                                      "another statement",
		"CREATE TABLE t AS SELECT 1":                            "another statement",
		"PREPARE p AS SELECT 1":                                 "another statement",
		"EXECUTE p":                                             "another statement",
		"SET ROLE admin":                                        "another statement",
		"SHOW ALL":                                              "another statement",
		"LISTEN x":                                              "another statement",
		"BEGIN":                                                 "another statement",
		"TRUNCATE t":                                            "another statement",
		"DECLARE c CURSOR FOR SELECT 1":                         "another statement",
		"WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x":                        "another statement in it",
		"WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT 1":                    "another statement in it",
		"SELECT * FROM (WITH x AS (UPDATE t SET a = 1 RETURNING *) SELECT * FROM x) y": "another statement in it",
		"SELECT * INTO t2 FROM t":                                                   "into a table",
		"SELECT 1 UNION SELECT 2 INTO t2":                                           "into a table",
		"SELECT $a$x$a$":                                                            "a dollar quote",
		"SELECT * FROM t FOR UPDATE":                                                "locks",
		"SELECT * FROM t FOR KEY SHARE":                                             "locks",
		"SELECT (SELECT a FROM t FOR SHARE)":                                        "locks",
		"SELECT pg_sleep(10)":                                                       `"pg_sleep"`,
		"SELECT pg_read_file('/etc/passwd')":                                        `"pg_read_file"`,
		"SELECT nextval('s')":                                                       `"nextval"`,
		"SELECT set_config('role','x',false)":                                       `"set_config"`,
		"SELECT * FROM dblink('host=x','q') AS t":                                   `"dblink"`,
		"SELECT lo_export(1, '/tmp/x')":                                             `"lo_export"`,
		"SELECT pg_terminate_backend(1)":                                            `"pg_terminate_backend"`,
		"SELECT query_to_xml('DELETE FROM t', true, true, '')":                      `"query_to_xml"`,
		"SELECT public.lower('x')":                                                  `"public.lower"`,
		"SELECT pg_catalog.lower('x')":                                              "",
		"SELECT delete_everything()":                                                `"delete_everything"`,
		`SELECT "Evil; name"()`:                                                     `"Evil; name"`,
		"SELECT 1 OPERATOR(public.+) 2":                                             "by its schema",
		"SELECT * FROM t TABLESAMPLE evil(1)":                                       "not known to be harmless",
		"SELECT xmlparse(document '<a/>')":                                          "not known to be harmless",
		"SELECT 1 ORDER BY pg_sleep(1)":                                             `"pg_sleep"`,
		"SELECT sum(pg_sleep(1)) OVER (ORDER BY nextval('x')) FROM t":               "it calls",
		"SELECT 1 -- x":                                                             "a comment",
		"SELECT 1 /*! ; DROP TABLE t */":                                            "a comment",
		`SELECT '\'; DROP TABLE t; '`:                                               "a backslash",
		"SELECT $$x$$":                                                              "a dollar quote",
		"SELECT `a` FROM t":                                                         "a backquote",
		"SELECT 1 # '\nINTO OUTFILE \"/x\" # '":                                     "a number sign",
		"SELECT ARRAY[' ]; DROP TABLE x; SELECT [ ']":                               "in brackets",
		"SELECT a[\"] ; DROP TABLE x; SELECT [\"] FROM t":                           "in brackets",
		"SELECT q'!a' || b !'; x '":                                                 "after q",
		"SELECT '[', '[\"a\"]', x[1], ARRAY[1] FROM t WHERE a = 'q'":                "",
		`SELECT * FROM "https://evil.example/x.csv?d=secret"`:                       "a file or an address",
		`SELECT 1 FROM a NATURAL JOIN "/etc/passwd"`:                                "a file or an address",
		`WITH x AS (TABLE "a/b.csv") TABLE x`:                                       "a file or an address",
		`SELECT * FROM "dir/x".t`:                                                   "a file or an address",
		`SELECT * FROM "Order lines"`:                                               "",
		"SELECT 1 SHUTDOWN":                                                         "an order to another database",
		"SELECT a FROM t SHUTDOWN":                                                  "an order to another database",
		"SELECT '\x00'":                                                             "not plain text",
		"SELECT '\xff'":                                                             "not plain text",
		"SELECT '" + strings.Repeat("x", MaxBytes) + "'":                            "longer than",
		"SELECT " + strings.Repeat("(", 20_000) + "1" + strings.Repeat(")", 20_000): "can't be parsed",
		"SELECT " + strings.Repeat("NOT ", 15_000) + "true":                         "can't be parsed",
	} {
		err := Select(sql)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%.80q: %q, want %q", sql, got, want)
		}
	}
	if err := Select("SELECT 1"); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// Nothing that a text holds makes it crash, and what it says yes to has none of the words that act.
func FuzzSelect(f *testing.F) {
	for _, s := range []string{"SELECT 1", "WITH x AS (DELETE FROM t RETURNING *) SELECT 1", "SELECT a INTO b", "COPY t TO PROGRAM 'x'", "SELECT lower('x') FOR UPDATE", "SELECT 'a''b' || \"c\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if Select(s) == nil && strings.Contains(s, ";") && !strings.ContainsAny(s, `'"`) && strings.Trim(s[strings.Index(s, ";"):], "; \t\r\n\f\v") != "" {
			t.Errorf("%q is taken for one statement", s)
		}
	})
}

func BenchmarkSelect(b *testing.B) {
	Warm()
	for b.Loop() {
		if err := Select("SELECT id, lower(name) FROM crm.customers WHERE id = 7"); err != nil {
			b.Fatal(err)
		}
	}
}
