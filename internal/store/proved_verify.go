package store

import (
	"bytes"
	"database/sql/driver"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/segment"
)

// held is the state as one moment had it, for Verify.
type held struct {
	key      *stateKey // nil: there is no key file, and no MAC can be checked
	schema   int64
	size     int64 // of the log
	proof    *stateProof
	note     []byte // the newest checkpoint in the database
	lowWater int64
	rows     *proof // sums
	found    map[audit.RowName]heldRow
	problems []audit.Problem
	unread   bool // the rows can't be read
	beside   besideLog
	quotaUse map[string]quota.Use  // rows
	counted  map[string]*recounted // by the entries
}

// heldRow is a row as it was found.
type heldRow struct {
	entry int64
	mac   string
	wrong bool // a problem of it is reported already
}

// besideLog is what is stored beside the entries, read some at a time.
type besideLog struct {
	from    int64
	columns []entryColumns
	keys    []uint32
	marked  []uint32
	began   time.Time // when the first entry that was read was written
	own     int64     // the first row of audit_blocks that the proof covers
	sum     total     // of these rows, as they must be
	wrong   bool      // one of these is another, which is reported
}

type entryColumns struct {
	at     int64
	kind   string
	callID string
}

var _ audit.StateSource = (*Source)(nil)

// Hold implements audit.StateSource. The log, the rows and the checkpoint are of one moment: a gateway may run.
func (s *Source) Hold() error {
	key, err := readStateKey(s.r.keys)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for left := 50; ; left-- {
		// The file is read before the moment, so it covers no more than the log has then.
		s.note, s.missing = audit.ReadFile(filepath.Join(s.r.dir, AnchorFile))
		if held, err := s.moment(key, left == 0); held || err != nil {
			return err
		}
	}
}

// moment reads the state as it is now. It reports false, unless it is the last attempt, if it missed the moment: two checkpoints were signed since the
// file was read, so that it is of a state before, or the log went on in another file, and the one that was read may be sealed already.
func (s *Source) moment(key *stateKey, last bool) (held bool, err error) {
	if first, _, err := segment.Newest(s.r.dir); err == nil && first != s.first {
		if err := s.r.reopen(s.ctx); err != nil {
			return false, err
		}
	}
	f := s.r.use()
	defer s.r.done(f)
	c, err := dial(dsn(f.path, s.r.params))
	if err != nil {
		return false, err
	}
	defer c.close()
	if err := c.exec("BEGIN"); err != nil {
		return false, err
	}
	s.first = f.first
	if err := c.query(func(v []driver.Value) error { s.size, s.payloads = number(v[0]), number(v[1]); return nil }, selectExtent); err != nil {
		return false, err
	}
	if now, _, err := segment.Newest(s.r.dir); !last && err == nil && now != f.first {
		return false, nil
	}
	if !last && !s.r.unproved && s.missing == nil {
		p, err := c.stateProof()
		kept, bad := c.number("SELECT coalesce(max(size), 0) FROM audit_checkpoints")
		if err == nil && bad == nil && p != nil && noteSize(s.note) < max(p.wasSize, kept) { // an error comes again when the rows are read
			return false, nil
		}
	}
	return true, s.hold(c, key, f)
}

// noteSize is the size that a checkpoint claims, which is not checked here.
func noteSize(note []byte) (size int64) {
	lines := bytes.SplitN(note, []byte("\n"), 3)
	if len(lines) == 3 {
		fmt.Sscanf(string(lines[1]), "%d", &size)
	}
	return size
}

// hold reads the state in the transaction that was begun in the newest of the files.
func (s *Source) hold(c *conn, key *stateKey, f *files) (err error) {
	h := &held{key: key, size: s.size, found: map[audit.RowName]heldRow{}}
	_, h.beside.own = f.own(s.size)
	if h.schema, err = schemaVersion(c); err != nil {
		return err
	}
	s.held = h
	h.pages(c)
	if err := c.query(func(v []driver.Value) error { h.note = []byte(text(v[1])); return nil }, selectNote); err != nil {
		return err
	}
	if s.r.unproved {
		return nil
	}
	if err := c.foreignTriggers(func(what string) { h.wrong("%s", what) }); err != nil {
		return err
	}
	if err := h.read(c, s.size); err != nil {
		h.unread = true
		h.wrong("the rows of the state can't be read, so they were not compared with the log: %v", err)
	}
	return nil
}

// read reads the state.
func (h *held) read(c *conn, size int64) (err error) {
	if h.proof, err = c.stateProof(); err != nil {
		return err
	}
	if h.lowWater, err = c.number(selectLowWater); err != nil {
		return err
	}
	if h.key == nil {
		return h.names(c)
	}
	tables := proved
	if h.proof != nil {
		if !bytes.Equal(h.proof.seal(h.key), h.proof.mac) {
			h.wrong("the row of the table state_proof was changed, or %s is another one than it was", StateKeyFile)
		} else if then, known := laidOut(h.proof.layout); known {
			tables = then
			if err := h.unnamed(c); err != nil {
				return err
			}
		} else {
			h.wrong("the table state_proof names tables that this program doesn't know")
		}
	}
	h.rows, h.quotaUse = newProof(h.key), map[string]quota.Use{}
	if err := c.eachRow(tables, func(t *table, v []driver.Value, at rowAt) error {
		row := heldRow{entry: at.entry, mac: base64.StdEncoding.EncodeToString(blob(v[min(len(v)-1, len(t.covered())+1)]))}
		if t.chained {
			row.mac = base64.StdEncoding.EncodeToString(blob(v[3]))
		}
		if !t.chained {
			if err := h.rows.sound(t, v, at, size); err != nil {
				h.wrong("%s", because(err))
				row.wrong = true
			}
		}
		h.rows.loaded(t, keyText(v[0]), at, v)
		if t.name == quotaRows.name {
			h.quotaUse[keyText(v[0])] = useOf(v)
		}
		h.found[audit.RowName{Table: t.name, Key: keyText(v[0])}] = row
		return nil
	}); err != nil {
		return err
	}
	return h.chains(c, tables)
}

// there tells which tables that decide the database has: one of an older version lacks some.
func (h *held) there(c *conn) (tables []*table, err error) {
	err = c.query(func(v []driver.Value) error {
		if i := slices.IndexFunc(proved, func(t *table) bool { return t.name == text(v[0]) }); i >= 0 {
			tables = append(tables, proved[i])
		}
		return nil
	}, "SELECT name FROM sqlite_schema WHERE type = 'table'")
	return tables, err
}

// unnamed looks at the tables whose rows the proof does not cover: a program that did not know them wrote it, so they are empty.
func (h *held) unnamed(c *conn) error {
	tables, err := h.there(c)
	for _, t := range tables {
		if h.proof.names(t) {
			continue
		}
		n, failed := c.number("SELECT count(*) FROM " + t.name)
		if err = errors.Join(err, failed); n > 0 {
			h.wrong("the table %s is new, and it holds %d rows that no entry of the log made", t.name, n)
		}
	}
	return err
}

// names reads which rows there are, and which entry changed each last: all that can be compared without the key. The columns of an older version do.
func (h *held) names(c *conn) error {
	tables, err := h.there(c)
	for _, t := range tables {
		query := "SELECT " + t.key + ", 0, entry, mac FROM " + t.name
		if t.chained {
			query = selectHeads
		}
		err = errors.Join(err, c.query(func(v []driver.Value) error {
			h.found[audit.RowName{Table: t.name, Key: keyText(v[0])}] = heldRow{entry: number(v[2]), mac: base64.StdEncoding.EncodeToString(blob(v[3]))}
			return nil
		}, query))
	}
	return err
}

// chains checks every row of the chains.
func (h *held) chains(c *conn, tables []*table) error {
	for _, t := range tables {
		if !t.chained {
			continue
		}
		var before []byte
		last, seq, width := "", int64(0), len(t.covered())
		if err := c.query(func(v []driver.Value) error {
			key := keyText(v[0])
			if key != last {
				before, last, seq = nil, key, 0
			}
			seq++
			if mac := blob(v[width+1]); number(v[1]) != seq || !bytes.Equal(mac, h.key.mac(t, number(v[width]), before, v[:width]...)) {
				name := audit.RowName{Table: t.name, Key: key}
				if row := h.found[name]; !row.wrong {
					h.wrong("%s", because(changedRow(t, fmt.Sprintf("%s, %d", key, number(v[1])), "its MAC does not fit, or a row before it is gone")))
					row.wrong = true
					h.found[name] = row
				}
			}
			before, seq = blob(v[width+1]), number(v[1])
			return nil
		}, t.all+" ORDER BY "+t.key+", "+t.nth); err != nil {
			return err
		}
	}
	return nil
}

// because is what an error says, without what to do.
func because(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return strings.TrimSuffix(f.Message, ".")
	}
	return err.Error()
}

func (h *held) wrong(format string, args ...any) {
	h.problems = append(h.problems, audit.Problem{Index: -1, What: fmt.Sprintf(format, args...)})
}

// pages asks the engine for damaged pages.
func (h *held) pages(c *conn) {
	if err := c.query(func(v []driver.Value) error {
		for line := range strings.Lines(text(v[0])) {
			if line = strings.TrimSpace(line); line != "ok" && !strings.HasPrefix(line, "*** in database") {
				h.wrong("the database is damaged: %s", line)
			}
		}
		return nil
	}, "PRAGMA integrity_check(20)"); err != nil {
		h.wrong("the database is damaged: %v", err)
	}
}

// Beside implements audit.StateSource.
func (s *Source) Beside(e *audit.Entry) string {
	b := &s.held.beside
	i := e.Index - b.from
	if i < 0 || i >= int64(len(b.columns)) {
		b.from, b.columns, i = e.Index, b.columns[:0], 0
		if err := s.r.logRows(s.ctx, e.Index, func(scan func(...any) error) error {
			var c entryColumns
			err := scan(&c.at, &c.kind, &c.callID)
			b.columns = append(b.columns, c)
			return err
		}, selectColumns, e.Index, e.Index&^(blockSize-1)+blockSize); err != nil || len(b.columns) == 0 {
			return fmt.Sprintf("entry %d: the columns beside it can't be read: %v", e.Index, err)
		}
	}
	c := b.columns[i]
	switch {
	case c.at != e.At.UnixMicro():
		return fmt.Sprintf("entry %d: the column at beside it was changed: it is %d, and the entry says %d", e.Index, c.at, e.At.UnixMicro())
	case c.kind != string(e.Kind):
		return fmt.Sprintf("entry %d: the column kind beside it was changed: it is %.40q, and the entry says %q", e.Index, c.kind, e.Kind)
	case c.callID != e.CallID:
		return fmt.Sprintf("entry %d: the column call_id beside it was changed: it is %.80q, and the entry says %.80q", e.Index, c.callID, e.CallID)
	}
	s.held.recount(e)
	b.keys, b.marked = appendKeys(b.keys, e), appendMarked(b.marked, e)
	if size := e.Index + 1; size%blockSize == 0 {
		n := size/blockSize - 1
		var have []byte
		_, err := s.r.logRow(s.ctx, e.Index, selectBlockKeys, []any{n}, &have)
		want, same := sameBlock(have, b.keys, b.marked)
		b.keys, b.marked = b.keys[:0], b.marked[:0]
		if s.held.key != nil && s.held.proof != nil && n >= b.own && n < s.held.proof.size/blockSize {
			b.sum.add(s.held.key.block(n, want))
		}
		if err != nil || !same {
			b.wrong = true
			return fmt.Sprintf("entries %d to %d: the row %d of audit_blocks, by which queries find them, was changed", size-blockSize, size-1, n)
		}
	}
	return ""
}

// Compare implements audit.StateSource.
func (s *Source) Compare(f *audit.Fold, cp audit.Checkpoint) (problems []audit.Problem, notes []string) {
	h := s.held
	if h.note != nil && cp.Origin != "" {
		h.compareNote(s, cp)
	}
	if s.r.unproved {
		return h.problems, []string{fmt.Sprintf("The state is not proved yet: the database has the schema of an older version (%d), and the next start takes its rows over.", h.schema)}
	}
	if h.unread {
		return h.problems, nil
	}
	h.compareRows(f)
	h.compareQuotas(f.From)
	h.compareDigests(f, cp)
	notes = h.notes(f)
	if f.From > 0 {
		notes = append(notes, s.compareSeal(f)...)
	}
	notes = append(notes, s.compareSegments()...)
	if s.size > 0 && h.lowWater > f.FirstIntent {
		h.wrong("the mark in the table low_water is %d, and the intent %d has no outcome: the next start would not record it as unknown", h.lowWater, f.FirstIntent)
	}
	return h.problems, notes
}

// compareNote compares the newest checkpoint in the database with the one in the file, which may be newer.
func (h *held) compareNote(s *Source, cp audit.Checkpoint) {
	pub, err := s.PublicKey()
	if err != nil {
		return // reported already
	}
	key, err := audit.ParsePublicKey(string(pub))
	if err != nil {
		return
	}
	switch kept, err := audit.OpenCheckpoint(h.note, key); {
	case err != nil:
		h.wrong("the newest row of the table audit_checkpoints was changed: %v", err)
	case kept.Size > cp.Size:
		h.wrong("the newest checkpoint in the database covers %d entries, and the one beside it %d: an older one was put in its place", kept.Size, cp.Size)
	case kept.Size > s.size || kept.Size == cp.Size && kept.Root != cp.Root:
		h.wrong("the newest row of the table audit_checkpoints, of %d entries, is of another log", kept.Size)
	}
}

// compareRows compares each row with what the log says of it.
func (h *held) compareRows(f *audit.Fold) {
	for name, row := range h.found {
		want, known := f.Rows[name]
		switch {
		case row.wrong:
		case !known && slices.ContainsFunc(f.Adoptions, func(a *audit.Adoption) bool {
			_, ok := a.Counts[name.Table]
			return ok && a.Entry == row.entry && !a.Later[name]
		}):
		case !known && row.entry < f.From: // an archived entry made it; see compareSeal
		case !known:
			h.wrong("the row %.80q of the table %s is one that no entry of the log made", name.Key, name.Table)
		case row.entry != want.Entry:
			h.problems = append(h.problems, audit.Problem{Index: want.Entry, What: fmt.Sprintf(
				"the row %.80q of the table %s is as entry %d left it, and entry %d changed it last", name.Key, name.Table, row.entry, want.Entry)})
		case want.MAC != "" && row.mac != want.MAC:
			h.problems = append(h.problems, audit.Problem{Index: want.Entry, What: fmt.Sprintf(
				"the row %.80q of the table %s is not the one that entry %d names", name.Key, name.Table, want.Entry)})
		}
	}
	for name, want := range f.Rows {
		if _, found := h.found[name]; !found {
			h.problems = append(h.problems, audit.Problem{Index: want.Entry, What: fmt.Sprintf(
				"the row %.80q of the table %s, which entry %d made or changed, is gone", name.Key, name.Table, want.Entry)})
		}
	}
	for _, a := range slices.Backward(f.Adoptions) {
		h.compareAdoption(f, a)
	}
}

// compareAdoption compares the rows that were taken over with the entry that did: those that are still as it found them, and those that changed since.
func (h *held) compareAdoption(f *audit.Fold, a *audit.Adoption) {
	var sum total
	counts := map[string]int{}
	add := func(name audit.RowName) {
		if before := f.Before(a, name.Table); before != nil && !a.Named[name] { // the one before took it over, too
			before.Later[name] = true
		}
		i := slices.IndexFunc(proved, func(t *table) bool { return t.name == name.Table })
		if i < 0 {
			return
		}
		counts[name.Table]++
		if h.key != nil {
			sum.plus(h.key, proved[i], name.Key, a.Entry)
		}
	}
	for name := range a.Later {
		add(name)
	}
	for name, row := range h.found {
		if row.entry == a.Entry && !a.Later[name] {
			add(name)
		}
	}
	whole := true
	for table, n := range a.Counts {
		if counts[table] != n {
			whole = false
			h.problems = append(h.problems, audit.Problem{Index: a.Entry, What: fmt.Sprintf("the table %.40s had %d rows when entry %d took them over, and %d of them are there or were changed since", table, n, a.Entry, counts[table])})
		}
	}
	if whole && h.key != nil && h.key.digestOf(a.Entry, sum) != a.Digest {
		h.problems = append(h.problems, audit.Problem{Index: a.Entry, What: fmt.Sprintf("the rows that entry %d took over are others than the ones here", a.Entry)})
	}
}

// compareDigests compares the digest of the rows with the one in the checkpoint, as a start does.
func (h *held) compareDigests(f *audit.Fold, cp audit.Checkpoint) {
	p := h.proof
	if p == nil {
		if cp.State != "" || len(f.Rows) > 0 {
			h.wrong("the row of the table state_proof is gone")
		}
		return
	}
	if cp.Origin != "" && (p.size != cp.Size || p.digest != cp.State) && (p.wasSize != cp.Size || p.wasDigest != cp.State) {
		h.wrong("the digest in the table state_proof, of %d entries, is not the one in the newest checkpoint, of %d", p.size, cp.Size)
	}
	if p.closed && h.size > p.size {
		h.problems = append(h.problems, audit.Problem{Index: p.size, What: fmt.Sprintf("the log was closed with %d entries, and it has %d: somebody else wrote them", p.size, h.size)})
	}
	if p.closed && cp.Origin != "" && cp.Size != p.size {
		h.wrong("the log was closed with %d entries, and the newest checkpoint, beside the database, covers %d", p.size, cp.Size)
	}
	if p.lowWater != h.lowWater {
		h.wrong("the mark in the table low_water was changed")
	}
	if h.key == nil {
		return
	}
	beside := h.rows.usedSum
	if p.coversBlocks() {
		beside.add(h.beside.sum)
	}
	if !h.beside.wrong && h.key.digestOf(p.size, beside) != p.used {
		h.wrong("the used time of a session (sessions.used_ns) was changed")
	}
}

// notes says under which conditions the rows were compared.
func (h *held) notes(f *audit.Fold) (notes []string) {
	if h.key == nil {
		if h.proof == nil && len(f.Rows) == 0 {
			return nil
		}
		note := fmt.Sprintf("There is no %s, so no MAC was checked. Compared with the log: which rows there are, and which entry changed each last. Not checked: "+
			"what is in the rows, all evidence of a session but its newest piece, used times, the row of the table state_proof, and whether the newest checkpoint is of these rows", StateKeyFile)
		for _, a := range f.Adoptions {
			note += fmt.Sprintf("; the %d rows that entry %d took over, but for their number", a.Rows(), a.Entry)
		}
		return []string{note + ". Verify with the key to know."}
	}
	if len(f.Adoptions) == 0 && f.From == 0 {
		return []string{fmt.Sprintf("The state is proved from the first entry on; rows that follow from the log: %d.", len(f.Rows))}
	}
	for i, a := range f.Adoptions {
		if i == 0 && f.From == 0 {
			notes = append(notes, fmt.Sprintf("The state is proved from entry %d on: %d rows that were there before it were taken over as they were found.", a.Entry, a.Rows()))
		} else {
			notes = append(notes, fmt.Sprintf("At entry %d an upgrade proved %d rows anew.", a.Entry, a.Rows()))
		}
	}
	return notes
}
