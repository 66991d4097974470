package store

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
)

var (
	madeTrigger    = regexp.MustCompile(`(?s)CREATE TRIGGER (\w+) .*?\nBEGIN .*?; END`)
	droppedTrigger = regexp.MustCompile(`(?m)^DROP TRIGGER (\w+);`)
)

// ownTriggers are the triggers of the schema, by name, as the migrations leave them.
var ownTriggers = sync.OnceValue(func() map[string]string {
	own := map[string]string{}
	files, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	if err != nil {
		panic("store: " + err.Error()) // of the pattern
	}
	for _, name := range files {
		sql, err := fs.ReadFile(migrations, name)
		if err != nil {
			panic("store: " + err.Error()) // it is part of the program
		}
		for _, m := range droppedTrigger.FindAllSubmatch(sql, -1) {
			delete(own, string(m[1]))
		}
		for _, m := range madeTrigger.FindAllSubmatch(sql, -1) {
			own[string(m[1])] = string(m[0])
		}
	}
	return own
})

// falseIndexes reports the tables that decide whose indexes don't hold their rows: a row that an index lacks is not found by what it says. Evidence is
// left out: it is read as a whole, and large.
func (c *conn) falseIndexes(report func(what string)) error {
	for _, t := range proved {
		if t.chained {
			continue
		}
		if err := c.query(func(v []driver.Value) error {
			if what := text(v[0]); what != "ok" {
				report(fmt.Sprintf("the table %s is damaged: %.200s", t.name, what))
			}
			return nil
		}, "PRAGMA integrity_check('"+t.name+"')"); err != nil {
			return err
		}
	}
	return nil
}

// foreignTriggers reports triggers that are gone, were changed or are not the program's, and views in the place of tables: a trigger acts inside
// the program's own transactions, and such a view answers as it likes.
func (c *conn) foreignTriggers(report func(what string)) error {
	left := map[string]bool{}
	for name := range ownTriggers() {
		left[name] = true
	}
	err := c.query(func(v []driver.Value) error {
		name, sql := text(v[0]), text(v[1])
		if text(v[2]) == "view" {
			_, shown := unproved[name]
			if shown || slices.ContainsFunc(proved, func(t *table) bool { return t.name == name }) {
				report(fmt.Sprintf("%q in the database is a view, and not the program's table", name))
			}
			return nil
		}
		want, own := ownTriggers()[name]
		delete(left, name)
		switch {
		case !own:
			report(fmt.Sprintf("the trigger %.80q in the database is not the program's", name))
		case sql != want:
			report(fmt.Sprintf("the trigger %q in the database was changed", name))
		}
		return nil
	}, "SELECT name, sql, type FROM sqlite_schema WHERE type IN ('trigger', 'view')")
	for name := range left {
		report(fmt.Sprintf("the trigger %q in the database is gone", name))
	}
	return err
}

// AppendOnly returns the tables whose names begin with a prefix and whose rows can't be changed, removed or replaced, because the triggers that refuse it
// are there as the program made them, and what is wrong with those of the others.
func (r *Reader) AppendOnly(ctx context.Context, prefix string) (tables, doubts []string, err error) {
	have := map[string]string{}
	err = r.rows(ctx, func(scan func(...any) error) error {
		var name, sql, kind string
		err := scan(&name, &sql, &kind)
		if kind == "trigger" {
			have[name] = sql
		} else if strings.HasPrefix(name, prefix) {
			tables = append(tables, name)
		}
		return err
	}, "SELECT name, sql, type FROM sqlite_schema WHERE type IN ('trigger', 'table') ORDER BY name")
	tables = slices.DeleteFunc(tables, func(table string) bool {
		for _, act := range []string{"update", "delete", "insert"} {
			name := table + "_" + act
			switch want, own := ownTriggers()[name]; {
			case !own || have[name] == "":
				doubts = append(doubts, fmt.Sprintf("the trigger %s is not there", name))
			case have[name] != want:
				doubts = append(doubts, fmt.Sprintf("the trigger %s was changed", name))
			default:
				continue
			}
			return true
		}
		return false
	})
	return tables, doubts, err
}
