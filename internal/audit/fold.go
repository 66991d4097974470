package audit

import (
	"encoding/json"
	"fmt"
)

// StateSource is a log with the state beside it that follows from it: the store of a data directory. Verify asks it what only the store can tell.
type StateSource interface {
	Source
	// Hold reads the state and the size of the log as they are at one moment. Everything after it is about that moment.
	Hold() error
	// Start says where the log begins that is here: 0, or the index of the first entry after those that were archived, a multiple of 256. seal is then
	// the checkpoint that was signed when the archived part ended, at most 256 entries later.
	Start() (first int64, seal []byte, err error)
	// Beside compares what is stored beside an entry, for finding it, with the entry. It is asked for one entry after the other, and returns what is
	// wrong, or "".
	Beside(e *Entry) string
	// Compare compares the rows with what the log says of them. cp is the newest checkpoint; its Origin is "" if there is none that can be trusted.
	Compare(f *Fold, cp Checkpoint) (problems []Problem, notes []string)
}

// RowName names a row of the state.
type RowName struct{ Table, Key string }

// Version is a row as an entry left it.
type Version struct {
	Entry int64
	MAC   string // "" if the entry took it over as it was
}

// Fold is the state as the log says it is: what remains of all its entries.
type Fold struct {
	Rows        map[RowName]Version
	Adoptions   []*Adoption
	FirstIntent int64      // the first intent without an outcome; the size of the log if there is none
	From        int64      // the first entry that was read: those before it are archived
	Seal        Checkpoint // where they end
}

// Adoption is what an entry "state.adopt" took over. Its detail has counts and digest; the rest is known at the end of the log.
type Adoption struct {
	Entry  int64            `json:"-"`
	Counts map[string]int   `json:"rows"`
	Digest string           `json:"digest"`
	Later  map[RowName]bool `json:"-"` // rows that it took over and later entries changed or took over again
	Named  map[RowName]bool `json:"-"` // rows that entries before it name
}

// Rows is how many rows it took over.
func (a *Adoption) Rows() (n int) {
	for _, rows := range a.Counts {
		n += rows
	}
	return n
}

// adopted returns the adoption that an entry was, if it took over the table.
func (f *Fold) adopted(entry int64, table string) *Adoption {
	for _, a := range f.Adoptions {
		if _, ok := a.Counts[table]; ok && a.Entry == entry {
			return a
		}
	}
	return nil
}

// Before returns the adoption of a table before a; nil if there is none.
func (f *Fold) Before(a *Adoption, table string) (before *Adoption) {
	for _, b := range f.Adoptions {
		if _, ok := b.Counts[table]; ok && b.Entry < a.Entry {
			before = b
		}
	}
	return before
}

// add takes over what an entry says of rows. It returns what contradicts the entries before.
func (f *Fold) add(e *Entry) (problems []string) {
	if e.Action == Adopt && e.Kind == Change {
		a := &Adoption{Entry: e.Index, Later: map[RowName]bool{}, Named: map[RowName]bool{}}
		if err := json.Unmarshal(e.Detail, a); err != nil {
			return []string{fmt.Sprintf("entry %d takes over rows and doesn't say which: %v", e.Index, err)}
		}
		f.Adoptions = append(f.Adoptions, a)
		for name, have := range f.Rows {
			if _, ok := a.Counts[name.Table]; ok {
				if before := f.adopted(have.Entry, name.Table); before != nil {
					before.Later[name] = true
				}
				a.Named[name] = true
				f.Rows[name] = Version{Entry: e.Index}
			}
		}
	}
	for _, r := range e.Rows {
		name := RowName{r.Table, r.Key}
		have, known := f.Rows[name]
		switch a := f.adopted(r.Was, r.Table); {
		case known && have.Entry == r.Was:
			if a != nil {
				a.Later[name] = true
			}
		case !known && r.Was < 0 && r.MAC != "":
		case !known && r.Was >= 0 && r.Was < f.From: // an archived entry made it
		case !known && a != nil && !a.Later[name]:
			a.Later[name] = true
		case known:
			problems = append(problems, fmt.Sprintf("entry %d changes the row %.80q of %.40q as entry %d left it, and entry %d changed it last", e.Index, r.Key, r.Table, r.Was, have.Entry))
		default:
			problems = append(problems, fmt.Sprintf("entry %d changes the row %.80q of %.40q as entry %d left it, and that entry doesn't name it", e.Index, r.Key, r.Table, r.Was))
		}
		if r.MAC == "" {
			delete(f.Rows, name)
		} else {
			f.Rows[name] = Version{e.Index, r.MAC}
		}
	}
	return problems
}
