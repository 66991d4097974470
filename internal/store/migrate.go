package store

import (
	"database/sql/driver"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"sallyport.example/internal/fault"
)

//go:embed migrations/sqlite
var migrations embed.FS

// migrate brings the schema to the newest version in folder, whose files are 0001_word.sql and so on in rising order; a number may be left out. Each step
// and the number that says it was done are one transaction: an interrupted step left nothing, and runs again.
func migrate(c *conn, folder fs.FS) error {
	files, err := fs.Glob(folder, "*.sql")
	if err != nil {
		return err
	}
	if err := c.script("CREATE TABLE IF NOT EXISTS schema_version (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL)"); err != nil {
		return unavailable(err, fault.StoreUnavailable)
	}
	last := int64(0)
	for _, name := range files {
		n, err := migrationNumber(name)
		if err != nil || n <= last {
			return fmt.Errorf("store: the name of migration %s should begin with a number above %d", name, last)
		}
		if err := step(c, folder, name, n); err != nil {
			return err
		}
		last = n
	}
	have, err := schemaVersion(c)
	if err != nil {
		return err
	}
	return tooNew(have, last)
}

// migrationNumber is the number that the name of a migration's file begins with: the schema's version after it.
func migrationNumber(path string) (int64, error) {
	digits, _, _ := strings.Cut(path[strings.LastIndexByte(path, '/')+1:], "_")
	return strconv.ParseInt(digits, 10, 64)
}

func tooNew(have, know int64) error {
	if have <= know {
		return nil
	}
	return fault.New(fault.ConfigurationInvalid, "The database has schema version %d, and this program knows versions up to %d.", have, know).
		Try("Start the newer program that wrote it, or put back a backup from before the upgrade.")
}

func schemaVersion(c *conn) (version int64, err error) {
	err = c.query(func(v []driver.Value) error { version = v[0].(int64); return nil }, "SELECT version FROM schema_version")
	return version, unavailable(err, fault.StoreUnavailable)
}

func step(c *conn, folder fs.FS, name string, version int64) (err error) {
	sql, err := fs.ReadFile(folder, name)
	if err != nil {
		return err
	}
	if err := c.script("BEGIN IMMEDIATE"); err != nil {
		return unavailable(err, fault.StoreUnavailable)
	}
	defer func() {
		if err != nil {
			c.script("ROLLBACK") // its failure changes nothing: closing the connection does the same
			err = unavailable(fmt.Errorf("migration %s: %w", name, err), fault.StoreUnavailable)
		}
	}()
	if have, err := schemaVersion(c); err != nil || have >= version {
		c.script("ROLLBACK")
		return err
	}
	if err := c.script(string(sql)); err != nil {
		return err
	}
	if err := c.script(fmt.Sprintf("INSERT INTO schema_version (one, version) VALUES (1, %d) ON CONFLICT (one) DO UPDATE SET version = excluded.version", version)); err != nil {
		return err
	}
	return c.script("COMMIT")
}
