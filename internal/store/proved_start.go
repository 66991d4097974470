package store

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// stateProof is the row of state_proof: the digest of all rows that decide as of a size of the log, and that of the checkpoint before. It is written
// before the checkpoint that has its digest; after a crash between the two, the newest checkpoint is the one before.
type stateProof struct {
	size      int64
	digest    string
	wasSize   int64
	wasDigest string
	used      string // digest of the used times and of the complete rows of audit_blocks
	lowWater  int64
	layout    string
	mac       []byte
	closed    bool // the log was closed at this size, so that no entry can follow before the next start
}

// closedMark is behind the digest in the column used of a log that was closed.
const closedMark = " closed"

// stateProof reads the row; nil if there is none.
func (c *conn) stateProof() (p *stateProof, err error) {
	err = c.query(func(v []driver.Value) error {
		p = &stateProof{size: number(v[0]), digest: text(v[1]), wasSize: number(v[2]), wasDigest: text(v[3]),
			lowWater: number(v[5]), layout: text(v[6]), mac: blob(v[7])}
		p.used, p.closed = strings.CutSuffix(text(v[4]), closedMark)
		return nil
	}, selectProof)
	return p, err
}

// seal is the MAC that the row must have.
func (p *stateProof) seal(k *stateKey) []byte {
	return []byte(k.digest("state_proof", p.size, p.digest, p.wasSize, p.wasDigest, p.usedColumn(), p.lowWater, p.layout))
}

// usedColumn is what the column used has.
func (p *stateProof) usedColumn() string {
	if p.closed {
		return p.used + closedMark
	}
	return p.used
}

// sealed is the MAC that the row gets when its file is sealed.
func (p *stateProof) sealed(k *stateKey) []byte {
	if p == nil {
		return nil
	}
	return []byte(k.digest("sealed", p.seal(k)))
}

// prove writes the row of state_proof for the state as this transaction leaves it, and returns its digest. wasSize and wasDigest are of the
// newest checkpoint.
func (t *tx) prove(wasSize int64, wasDigest string) (digest string, err error) {
	k, size := t.w.proof.key, t.w.tree.Size()
	p := stateProof{size: size, digest: k.digestOf(size, t.moved.sum), wasSize: wasSize, wasDigest: wasDigest, layout: layout()}
	if p.lowWater, err = t.w.c.number(selectLowWater); err != nil {
		return "", err
	}
	beside := t.moved.usedSum
	beside.add(t.moved.blocks)
	p.used = k.digestOf(size, beside)
	return p.digest, t.writeProof(&p)
}

// writeProof writes the row.
func (t *tx) writeProof(p *stateProof) error {
	seal := p.seal(t.w.proof.key)
	t.wrote++
	t.moved.settled = string(seal)
	return t.w.c.exec(upsertProof, p.size, p.digest, p.wasSize, p.wasDigest, p.usedColumn(), p.lowWater, p.layout, seal)
}

// proveState checks at start that all rows that decide are the ones that the log says: those of the newest checkpoint, by its digest, with what the
// entries after it changed. It takes over, once, the rows of a database from before there were MACs.
func (db *DB) proveState(ctx context.Context) error {
	c := db.w.c
	p, err := c.stateProof()
	if err == nil {
		var foreign []string
		err = errors.Join(c.foreignTriggers(func(what string) { foreign = append(foreign, what) }), c.falseIndexes(func(what string) { foreign = append(foreign, what) }))
		if len(foreign) > 0 {
			return unproven("%s", strings.Join(foreign, "; "))
		}
	}
	if err != nil {
		return unavailable(err, fault.StoreUnavailable)
	}
	key, err := db.keyFor(p)
	if err != nil {
		return err
	}
	var rows *proof
	if p == nil {
		rows, err = db.adopt(ctx, key)
	} else {
		rows, err = db.checkState(ctx, key, p)
	}
	if err != nil {
		return unavailable(err, fault.StoreUnavailable)
	}
	db.w.proof, db.Reader.proof = rows, rows
	if p == nil || p.layout != layout() || p.closed { // from here on entries may follow
		if err := db.takeOver(p); err != nil {
			return unavailable(err, fault.AuditUnavailable)
		}
	}
	return keepNewKey(db.dir)
}

// keyFor returns the key of the state that p proves, or a new one where the state was never proved. A key has the name StateKeyFile only once rows
// were proved with it, so that a database without a proof beside that file is one from before, which was put back.
func (db *DB) keyFor(p *stateProof) (key *stateKey, err error) {
	_, there := os.Lstat(filepath.Join(db.dir, StateKeyFile))
	if p == nil {
		switch {
		case db.signedState != "":
			return nil, unproven("the row of the table state_proof is gone")
		case !errors.Is(there, fs.ErrNotExist):
			err := unproven("the row of the table state_proof is not there, and there is a %s, with which the state was proved", StateKeyFile)
			err.Remedy += fmt.Sprintf(" If you put a database from before the upgrade back yourself: move %s away, and its rows are taken over as they are.", StateKeyFile)
			return nil, err
		}
		key, err = createStateKey(db.dir)
	} else {
		key, err = readStateKey(db.dir)
		if errors.Is(err, fs.ErrNotExist) { // the start that made it was interrupted, if it fits
			if made, none := readKey(filepath.Join(db.dir, newKeyFile)); none == nil && bytes.Equal(p.seal(made), p.mac) {
				key, err = made, nil
			}
		}
	}
	if err != nil {
		return nil, keyUnusable(err)
	}
	return key, nil
}

// unproven refuses a state.
func unproven(format string, args ...any) *fault.Error {
	return fault.New(fault.StoreUnavailable, "The state in the database is not the one that the log proves: %s.", fmt.Sprintf(format, args...)).
		Try("Find out who can write the database: \"sallyport audit verify\" names what is in doubt. Then put back a backup of the whole data directory.")
}

// checkState loads all rows, each checked by its MAC, and compares their digest with the signed one.
func (db *DB) checkState(ctx context.Context, key *stateKey, p *stateProof) (*proof, error) {
	w, size, state := db.w, db.signedSize, db.signedState
	if bytes.Equal(p.sealed(key), p.mac) {
		return nil, unproven("it is a sealed file of the log, and the file after it is gone")
	}
	if !bytes.Equal(p.seal(key), p.mac) {
		return nil, unproven("the row of the table state_proof was changed, or %s is another one than it was", StateKeyFile)
	}
	if p.closed && w.size > p.size {
		return nil, unproven("the log was closed with %d entries, and it has %d: somebody else wrote them", p.size, w.size)
	}
	if p.closed && size != p.size {
		return nil, unproven("the log was closed with %d entries, and %s covers %d: an older one was put in its place", p.size, AnchorFile, size)
	}
	tables, known := laidOut(p.layout)
	if !known {
		return nil, unproven("the table state_proof names tables that this program doesn't know")
	}
	rows, err := w.c.loadRows(key, tables, w.size)
	if err != nil {
		return nil, err
	}
	proved := int64(0) // blocks that p covers
	if p.coversBlocks() {
		proved = p.size / blockSize
	}
	beside := rows.usedSum
	if rows.blocks, err = db.blocks(ctx, key, proved, &beside); err != nil {
		return nil, err
	}
	if key.digestOf(p.size, beside) != p.used {
		return nil, unproven("the used time of a session (sessions.used_ns) was changed, or a row of audit_blocks, by which queries find entries")
	}
	if (p.size != size || p.digest != state) && (p.wasSize != size || p.wasDigest != state) {
		return nil, unproven("the digest in the table state_proof, of %d entries, is not the one in the newest checkpoint, of %d", p.size, size)
	}
	if mark, err := w.c.number(selectLowWater); err != nil || mark != p.lowWater {
		return nil, errors.Join(err, unproven("the mark in the table low_water was changed"))
	}
	then, err := rows.undo(w.c.readLeaves, p.size, w.size)
	if err != nil {
		return nil, err
	}
	if key.digestOf(p.size, then) != p.digest {
		return nil, unproven("rows were put back, removed or added since they were written")
	}
	return rows, nil
}

// coversBlocks tells whether the digest p.used covers the rows of audit_blocks.
func (p *stateProof) coversBlocks() bool {
	return slices.Contains(strings.Fields(p.layout), blocksLaidOut)
}

// blocks returns the sum of the complete rows of audit_blocks that the row of state_proof has to cover, and adds those of the first ones to another sum:
// those up to the row proved, for which that has to fit. It compares all others in the file that is written to with their entries, and the rows in each
// sealed file that is here with the digest that its entry segment.start has.
func (db *DB) blocks(ctx context.Context, key *stateKey, proved int64, first *total) (sum total, err error) {
	f := db.use()
	defer db.done(f)
	s := db.w.tree.Snapshot()
	full := s.Size() / blockSize
	own, from := f.own(s.Size())
	proved = min(max(proved, from), full)
	if sum, err = sumBlocks(ctx, own, key, from, proved); err != nil {
		return sum, err
	}
	if first != nil {
		first.add(sum)
	}
	later, err := sumBlocks(ctx, own, key, proved, full)
	if err != nil {
		return sum, err
	}
	sum.add(later)
	compare := f.copied()
	for n := proved; n < full; n++ {
		compare = append(compare, n)
	}
	for _, n := range compare {
		err := db.checkBlock(ctx, s, n, math.MaxInt64)
		var d *damage
		if errors.As(err, &d) {
			return sum, isDamaged(d)
		}
		if err != nil {
			return sum, err
		}
	}
	for _, p := range f.older {
		if p.db == nil || p.db == own {
			continue
		}
		sealed, err := sumBlocks(ctx, p.db, key, p.First/blockSize, p.End/blockSize)
		if err == nil && key.blocksOf(p.End, sealed) != p.Blocks {
			err = unproven("a row of audit_blocks in %s, by which queries find entries, was changed", p.Name)
		}
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// sumBlocks sums rows of audit_blocks of one file.
func sumBlocks(ctx context.Context, db *pool, key *stateKey, from, to int64) (sum total, err error) {
	const some = 64
	for n := from; n < to; {
		began := n
		err := rowsOf(ctx, db, func(scan func(...any) error) error {
			var have int64
			var keys []byte
			if err := scan(&have, &keys); err != nil || have != n {
				return errors.Join(err, unproven("the row %d of audit_blocks, by which queries find entries, is gone, or is not by its number", n))
			}
			sum.add(key.block(n, keys))
			n++
			return nil
		}, selectBlocks, n, min(some, to-n))
		if err != nil {
			return sum, err
		}
		if n == began {
			return sum, unproven("the row %d of audit_blocks, by which queries find entries, is gone", n)
		}
	}
	return sum, nil
}

// loadRows reads all rows that decide, each checked by its MAC. Of a chain it reads the end; the whole chain is checked when it is read.
func (c *conn) loadRows(key *stateKey, tables []*table, size int64) (*proof, error) {
	p := newProof(key)
	err := c.eachRow(tables, func(t *table, v []driver.Value, at rowAt) error {
		if !t.chained {
			if err := p.sound(t, v, at, size); err != nil {
				return err
			}
		}
		p.loaded(t, keyText(v[0]), at, v)
		return nil
	})
	return p, err
}

// sound checks a row by itself.
func (p *proof) sound(t *table, row []driver.Value, at rowAt, size int64) error {
	if at.entry < 0 || at.entry >= size {
		return changedRow(t, keyText(row[0]), fmt.Sprintf("it names the entry %d, and the log has %d", at.entry, size))
	}
	return p.check(t, row[:len(t.covered())+2], at, true)
}

// eachRow reads all rows that decide, and of each chain the last: its key, its number, its entry and its MAC.
func (c *conn) eachRow(tables []*table, each func(t *table, row []driver.Value, at rowAt) error) error {
	for _, t := range tables {
		width, query := len(t.covered())+2, t.all
		if t.chained {
			width, query = 4, selectHeads
		}
		if err := c.query(func(v []driver.Value) error {
			at := rowAt{entry: number(v[width-2])}
			if t.ordered || t.chained {
				at.n = number(v[1])
			}
			return each(t, v, at)
		}, query); err != nil {
			return err
		}
	}
	return nil
}

// loaded takes a row over that was read.
func (p *proof) loaded(t *table, key string, at rowAt, row []driver.Value) {
	p.rows[t.index][p.hash(key)] = at
	p.sum.plus(p.key, t, key, at.entry)
	switch t.index {
	case approvalRows.index:
		of := spokenOf{text(row[t.place("agent")]), text(row[t.place("operation")])}
		p.spoken[of] = max(p.spoken[of], number(row[t.place("spoken")]))
		return
	case sessionRows.index:
	default:
		return
	}
	if used := number(row[len(row)-1]); used > 0 {
		p.used[key] = used
		p.usedSum.add(p.key.element(usedElement, key, used))
	}
	agent, own := text(row[t.place("agent")]), number(row[t.place("own")])
	if own == 1 && at.n > p.newest[agent].n {
		p.newest[agent] = newestOwn{id: key, n: at.n}
	}
}

// undo returns the sum of the rows as it was at a size of the log: without what the entries from there on did.
func (p *proof) undo(read func(from, to int64) ([][]byte, error), from, to int64) (total, error) {
	sum := p.sum
	for end := from; from < to; from = end {
		end = min(from&^(blockSize-1)+blockSize, to)
		leaves, err := read(from, end)
		if err != nil {
			return sum, err
		}
		for i, leaf := range leaves {
			if !bytes.Contains(leaf, rowsField) {
				continue
			}
			e, err := audit.Unmarshal(leaf)
			if err != nil {
				return sum, damaged(err)
			}
			for _, r := range e.Rows {
				j := slices.IndexFunc(proved, func(t *table) bool { return t.name == r.Table })
				if j < 0 {
					return sum, unproven("entry %d names the table %.40q, which this program doesn't know", from+int64(i), r.Table)
				}
				if r.MAC != "" {
					sum.minus(p.key, proved[j], r.Key, e.Index)
				}
				if r.Was >= 0 {
					sum.plus(p.key, proved[j], r.Key, r.Was)
				}
			}
		}
	}
	return sum, nil
}

// rowsField is in every entry that names rows. Others may have it, too, in what they quote.
var rowsField = []byte(`"rows":[`)

// adopt checks that a database may be taken over as it is: its log is whole, and no entry of it names or takes over rows, so that this is the first time.
func (db *DB) adopt(ctx context.Context, key *stateKey) (*proof, error) {
	src, err := db.Source(ctx)
	if err != nil {
		return nil, err
	}
	if db.w.size == 0 {
		return newProof(key), nil
	}
	report, err := audit.Verify(plainLog{src}, db.signer.PublicKey())
	if err != nil {
		return nil, err
	}
	if !report.OK {
		return nil, unproven("the log in it is not whole (%s), so the rows beside it are not taken over", report.Problems[0].What)
	}
	if report.Rows > 0 || report.Adoptions > 0 {
		return nil, unproven("entries of the log name rows, and no checkpoint has a digest of them: the checkpoints were replaced by older ones")
	}
	rows := newProof(key)
	rows.blocks, err = db.blocks(ctx, key, 0, nil)
	return rows, err
}

// plainLog is a log without the state beside it.
type plainLog struct{ audit.Source }

// takeOver gives rows their MACs: all rows of a database that has none, or those of the tables that have other columns than when they got theirs. The
// entry says which, with their digest.
func (db *DB) takeOver(p *stateProof) error {
	w := db.w
	t, err := w.begin()
	if err != nil {
		return err
	}
	if err := t.takeOver(p, db.signedSize, db.signedState); err != nil {
		return errors.Join(err, w.rollback())
	}
	return t.commit()
}

func (t *tx) takeOver(p *stateProof, size int64, state string) error {
	w, k := t.w, t.w.proof.key
	entry := w.tree.Size()
	var adopted total
	counts := map[string]int{}
	for _, tab := range proved {
		if p != nil && p.covers(tab) {
			continue
		}
		n, err := t.adoptRows(tab, entry, &adopted)
		if err != nil {
			return err
		}
		if n > 0 && p != nil && !p.names(tab) { // a migration makes it empty
			return unproven("the table %s is new, and it holds %d rows", tab.name, n)
		}
		counts[tab.name] = n
	}
	rows := 0
	for n := range maps.Values(counts) {
		rows += n
	}
	if entry == 0 && rows > 0 {
		return unproven("it holds %d rows, and its log no entry", rows)
	}
	if entry > 0 && (p == nil || p.layout != layout()) {
		detail, err := json.Marshal(audit.Adoption{Counts: counts, Digest: k.digestOf(entry, adopted)})
		if err != nil {
			return err
		}
		if err := t.append(&audit.Entry{Kind: audit.Change, Action: audit.Adopt, Actor: "rule:upgrade", Decision: "ok",
			Reason: "the rows of the state as they were found: from here on they follow from the log", Detail: detail}); err != nil {
			return err
		}
	}
	_, err := t.prove(size, state)
	return err
}

// covers tells whether the MACs of a table's rows cover the columns that they have to.
func (p *stateProof) covers(t *table) bool {
	tables, _ := laidOut(p.layout)
	return slices.ContainsFunc(tables, func(o *table) bool { return o.name == t.name && slices.Equal(o.columns, t.columns) })
}

// names tells whether a table had rows with MACs.
func (p *stateProof) names(t *table) bool {
	tables, _ := laidOut(p.layout)
	return slices.ContainsFunc(tables, func(o *table) bool { return o.name == t.name })
}

// adoptRows gives all rows of a table their MACs, and adds them to the digest of what was taken over.
func (t *tx) adoptRows(tab *table, entry int64, adopted *total) (n int, err error) {
	w, k := t.w, t.w.proof.key
	var keys [][2]driver.Value
	list := "SELECT " + tab.key + ", " + tab.nth + " FROM " + tab.name + " ORDER BY " + tab.key + ", " + tab.nth
	if err := w.c.query(func(v []driver.Value) error { keys = append(keys, [2]driver.Value{v[0], v[1]}); return nil }, list); err != nil {
		return 0, err
	}
	width := len(tab.covered())
	which, mac := tab.one, []byte(nil)
	if tab.chained {
		which += " AND seq = $2"
	}
	for i, at := range keys {
		key := keyText(at[0])
		find, prove := []driver.Value{at[0]}, []driver.Value{at[0], entry}
		before := mac
		if !tab.chained || i == 0 || keyText(keys[i-1][0]) != key {
			before = nil
		}
		if tab.chained {
			find = append(find, at[1])
		}
		var row []driver.Value
		if err := w.c.query(func(v []driver.Value) error {
			row = append(row, v...)
			mac = k.mac(tab, entry, before, v[:width]...)
			return nil
		}, which, find...); err != nil {
			return 0, err
		}
		if prove = append(prove, mac); tab.chained {
			prove = append(prove, at[1])
		}
		t.wrote++
		if err := w.c.exec(tab.prove, prove...); err != nil {
			return 0, err
		}
		if tab.chained && i+1 < len(keys) && keyText(keys[i+1][0]) == key {
			continue // only the last of a chain is in the digest
		}
		t.adopted(tab, key, row, rowAt{entry: entry, n: number(at[1])})
		adopted.plus(k, tab, key, entry)
		n++
	}
	return n, nil
}

// adopted takes a row over that was found.
func (t *tx) adopted(tab *table, key string, row []driver.Value, at rowAt) {
	k := t.w.proof.key
	if old, known := t.w.proof.at(tab, key); known {
		t.moved.sum.minus(k, tab, key, old.entry)
	}
	t.moved.sum.plus(k, tab, key, at.entry)
	t.moved.rows[changed{tab, key}] = at
	switch tab {
	case approvalRows:
		t.heard(text(row[tab.place("agent")]), text(row[tab.place("operation")]), number(row[tab.place("spoken")]))
		return
	case sessionRows:
	default:
		return
	}
	if used := number(row[len(row)-1]); t.w.proof.usedTime(key) == 0 && used > 0 {
		t.moved.used[key] = used
		t.moved.usedSum.add(k.element(usedElement, key, used))
	}
	agent := text(row[tab.place("agent")])
	if number(row[tab.place("own")]) == 1 && at.n > t.moved.newest[agent].n {
		t.moved.newest[agent] = newestOwn{id: key, n: at.n}
	}
}
