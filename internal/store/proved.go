package store

import (
	"bytes"
	"database/sql/driver"
	"encoding/base64"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// rowsOfEntry bounds the rows that one entry names. A transaction that changes more names them in entries of their own, "state.more".
const rowsOfEntry = 64

// proof is what the store knows of all rows that decide, as of the last commit: which entry changed each of them last. So a row that an outsider
// put back, removed or added is noticed when it is read, and one that was changed by its MAC. The writer's goroutine alone changes it.
type proof struct {
	key  *stateKey
	seed maphash.Seed

	// committing is held while a commit becomes visible and rows takes it over. A reader that finds a row and rows apart waits for it and looks again.
	committing sync.RWMutex

	mu     sync.RWMutex // guards rows, newest, used and spoken
	rows   []map[uint64]rowAt
	newest map[string]newestOwn
	used   map[string]int64   // used times that are in the sessions' rows, without zeros
	spoken map[spokenOf]int64 // when a person last said anything but yes, in microseconds since 1970

	recent recent // evidence that was written last

	sum     total // of the rows; the writer's own
	usedSum total // of the used times, which no entry names
	blocks  total // of the complete rows of audit_blocks, which no entry names either
}

// rowAt is a row: the entry that changed it last, and its place in order or in its chain.
type rowAt struct{ entry, n int64 }

// spokenOf is what a person said something about.
type spokenOf struct{ agent, operation string }

// newestOwn is the newest session of its own that an agent has had.
type newestOwn struct {
	id string
	n  int64
}

func newProof(key *stateKey) *proof {
	p := &proof{key: key, seed: maphash.MakeSeed(), rows: make([]map[uint64]rowAt, len(proved)), newest: map[string]newestOwn{}, used: map[string]int64{}, spoken: map[spokenOf]int64{}}
	for i := range p.rows {
		p.rows[i] = map[uint64]rowAt{}
	}
	return p
}

func (p *proof) hash(key string) uint64 { return maphash.String(p.seed, key) }

// at is a row by its key.
func (p *proof) at(t *table, key string) (rowAt, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	at, ok := p.rows[t.index][p.hash(key)]
	return at, ok
}

// has tells whether there is a row with the key.
func (p *proof) has(t *table, key string) bool {
	_, ok := p.at(t, key)
	return ok
}

func (p *proof) count(t *table) int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.rows[t.index])
}

// usedTime is the used time of a session as it was settled last.
func (p *proof) usedTime(id string) time.Duration {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return time.Duration(p.used[id])
}

// said is when a person last said anything but yes about an operation of an agent.
func (p *proof) said(of spokenOf) int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.spoken[of]
}

func (p *proof) own(agent string) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.newest[agent].id
}

// changes are those of one transaction. They count when it is committed.
type changes struct {
	rows    map[changed]rowAt // an entry of -1: removed
	newest  map[string]newestOwn
	used    map[string]int64
	spoken  map[spokenOf]int64
	sum     total
	usedSum total
	blocks  total
	pending []audit.Row // for the next entries
	size    int64       // of the log, once they are committed
	settled string      // MAC of the row of state_proof, if it was written
}

type changed struct {
	t   *table
	key string
}

func newChanges() changes {
	return changes{rows: map[changed]rowAt{}, newest: map[string]newestOwn{}, used: map[string]int64{}, spoken: map[spokenOf]int64{}}
}

func (c *changes) reset(p *proof) {
	clear(c.rows)
	clear(c.newest)
	clear(c.used)
	clear(c.spoken)
	c.sum, c.usedSum, c.blocks, c.pending, c.size, c.settled = p.sum, p.usedSum, p.blocks, c.pending[:0], 0, ""
}

// apply takes over what was committed.
func (p *proof) apply(c *changes) {
	p.sum, p.usedSum, p.blocks = c.sum, c.usedSum, c.blocks
	if len(c.rows)+len(c.used) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for r, at := range c.rows {
		h := p.hash(r.key)
		if at.entry < 0 {
			delete(p.rows[r.t.index], h)
			continue
		}
		p.rows[r.t.index][h] = at
	}
	maps.Copy(p.newest, c.newest)
	maps.Copy(p.used, c.used)
	maps.Copy(p.spoken, c.spoken)
}

// at is a row as this transaction sees it.
func (t *tx) at(tab *table, key string) (rowAt, bool) {
	if at, ok := t.moved.rows[changed{tab, key}]; ok {
		return at, at.entry >= 0
	}
	return t.w.proof.at(tab, key)
}

// version begins a new version of a row: it returns the row's place in order, and the entry that will name it.
func (t *tx) version(tab *table, key string) (at rowAt, was int64) {
	next := t.w.tree.Size() + int64(len(t.moved.pending)/rowsOfEntry)
	at, known := t.at(tab, key)
	switch {
	case !known:
		return rowAt{entry: next, n: next + 1}, -1
	case at.entry >= t.w.tree.Size(): // changed a moment ago, for an entry that is still to come: one change is on record
		if r := t.pending(tab, key); r != nil {
			return at, r.Was
		}
	}
	return rowAt{entry: next, n: at.n}, at.entry
}

// moves puts a version of a row on record. mac nil: the row is removed.
func (t *tx) moves(tab *table, key string, at rowAt, was int64, mac []byte) {
	t.wrote++
	k := t.w.proof.key
	before, known := t.at(tab, key)
	if known {
		t.moved.sum.minus(k, tab, key, before.entry)
	}
	r := audit.Row{Table: tab.name, Key: key, Was: was}
	if mac == nil {
		at.entry = -1
	} else {
		t.moved.sum.plus(k, tab, key, at.entry)
		r.MAC = base64.StdEncoding.EncodeToString(mac)
	}
	t.moved.rows[changed{tab, key}] = at
	if known && before.entry >= t.w.tree.Size() {
		if p := t.pending(tab, key); p != nil {
			*p = r
			return
		}
	}
	t.moved.pending = append(t.moved.pending, r)
}

// pending is the newest change of a row that waits for the next entry; nil if there is none.
func (t *tx) pending(tab *table, key string) *audit.Row {
	for i := len(t.moved.pending) - 1; i >= 0; i-- {
		if r := &t.moved.pending[i]; r.Key == key && r.Table == tab.name {
			return r
		}
	}
	return nil
}

// put writes a row that decides: its values in the order of the table's columns. The next entry of the job names it.
func (t *tx) put(tab *table, key string, values ...driver.Value) error {
	return t.putSome(tab, []row{{key, values}})
}

// row is one of a table: its key, and the values in the order of the table's columns.
type row struct {
	key    string
	values []driver.Value
}

// putAll is put of several rows, of different keys, by one statement where they are not too many.
func (t *tx) putAll(tab *table, rows ...row) error {
	for some := range slices.Chunk(rows, putAtOnce) {
		if err := t.putSome(tab, some); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) putSome(tab *table, rows []row) error {
	all := make([]driver.Value, 0, len(rows)*(len(rows[0].values)+4))
	for _, r := range rows {
		at, was := t.version(tab, r.key)
		from := len(all)
		all = append(all, tab.keyValue(r.key))
		if tab.ordered {
			all = append(all, at.n)
		}
		all = append(all, r.values...)
		mac := t.w.proof.key.mac(tab, at.entry, nil, all[from:]...)
		all = append(all, at.entry, mac)
		t.moves(tab, r.key, at, was, mac)
	}
	t.wrote++
	return t.w.c.exec(tab.put[len(rows)-1], all...)
}

// remove removes a row that decides; it is no error if there is none.
func (t *tx) remove(tab *table, key string) error {
	if _, known := t.at(tab, key); !known {
		return nil
	}
	_, was := t.version(tab, key)
	t.wrote++
	n, err := t.w.c.changed(tab.drop, key)
	if err != nil {
		return err
	}
	if n != 1 && !(tab.chained && n > 1) {
		return missing(tab, key)
	}
	t.moves(tab, key, rowAt{}, was, nil)
	return nil
}

// read reads a row by its key and checks it: its values from the key on, nil if there is none.
func (t *tx) read(tab *table, key string) (row []driver.Value, err error) {
	err = t.w.c.query(func(v []driver.Value) error { row = append(row, v...); return nil }, tab.one, tab.keyValue(key))
	if err != nil {
		return nil, err
	}
	at, known := t.at(tab, key)
	if row == nil {
		if known {
			return nil, missing(tab, key)
		}
		return nil, nil
	}
	return row, t.w.proof.check(tab, row[:len(tab.covered())+2], at, known)
}

// check tells whether a row that was read is the one that the log says: its values as tab.list has them.
func (p *proof) check(tab *table, row []driver.Value, at rowAt, known bool) error {
	n := len(row) - 2
	entry, ok := row[n].(int64)
	mac, _ := row[n+1].([]byte)
	key := keyText(row[0])
	switch {
	case !known:
		return changedRow(tab, key, "no entry of the log made it")
	case !ok || entry != at.entry:
		return changedRow(tab, key, fmt.Sprintf("it is a version of entry %v, and entry %d changed it last", row[n], at.entry))
	case !bytes.Equal(p.key.mac(tab, entry, nil, row[:n]...), mac):
		return changedRow(tab, key, "its MAC does not fit")
	}
	return nil
}

// changedRow says that a row is not as the log has it.
func changedRow(tab *table, key, why string) *fault.Error {
	return fault.New(fault.StoreUnavailable, "The row %.80q of the table %s was not written by the gateway: %s.", key, tab.name, why).
		Try("Stop the gateway and find out who can write the database. \"sallyport audit verify\" names every row in doubt; then put back a backup of the whole data directory.")
}

func missing(tab *table, key string) *fault.Error {
	return changedRow(tab, key, "it is gone, and no entry of the log removed it")
}

// keyValue is a key as its column has it.
func (t *table) keyValue(key string) driver.Value {
	if t == switchRows {
		return int64(1)
	}
	return key
}

func keyText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case []byte:
		return string(v)
	}
	return ""
}

// flush ends a job: what it changed must be named by its entries.
func (t *tx) flush(entries bool) error {
	if len(t.moved.pending) == 0 {
		return nil
	}
	if !entries {
		return fault.New(fault.Internal, "the row %s of %s was changed without an entry", t.moved.pending[0].Key, t.moved.pending[0].Table)
	}
	for len(t.moved.pending) > 0 {
		if err := t.append(&audit.Entry{Kind: audit.Change, Action: "state.more", Actor: "rule:state", Decision: "ok", Reason: "more rows that the entry before changed"}); err != nil {
			return err
		}
	}
	return nil
}

// take gives the next entry the rows that it names.
func (c *changes) take() []audit.Row {
	n := min(len(c.pending), rowsOfEntry)
	if n == 0 {
		return nil
	}
	rows := make([]audit.Row, n)
	copy(rows, c.pending)
	c.pending = append(c.pending[:0], c.pending[n:]...)
	return rows
}

// settleUsed writes a session's used time to its column. No entry names it: the row of state_proof does, which is written in the same transaction.
func (t *tx) settleUsed(id string, used int64) error {
	old, ok := t.moved.used[id]
	if !ok {
		old = int64(t.w.proof.usedTime(id))
	}
	if used <= old {
		return nil
	}
	t.wrote++
	n, err := t.w.c.changed(updateUsed, id, used)
	if err != nil {
		return err
	}
	if n != 1 {
		return missing(sessionRows, id)
	}
	k := t.w.proof.key
	if old > 0 {
		t.moved.usedSum.sub(k.element(usedElement, id, old))
	}
	t.moved.usedSum.add(k.element(usedElement, id, used))
	t.moved.used[id] = used
	return nil
}

// usedElement and blockElement name the members of the sets that state_proof covers and no entry names.
const (
	usedElement  = "sessions.used_ns"
	blockElement = "audit_blocks"
)

// block is the member of a row of audit_blocks.
func (k *stateKey) block(n int64, keys []byte) total {
	return k.element(blockElement, call.HashBytes(keys), n)
}

// blocksOf is the digest of the rows of audit_blocks that were completed in a file, which ends with a log of size entries.
func (k *stateKey) blocksOf(size int64, s total) string {
	return k.digest(blockElement, k.digestOf(size, s))
}

// commitProved commits, and takes over what changed. After an error it is not known whether it did: resolve finds out.
func (w *writer) commitProved(m *changes) error {
	if len(m.rows)+len(m.used) == 0 && m.settled == "" && m.blocks == w.proof.blocks {
		return w.commit(w.c)
	}
	w.proof.committing.Lock()
	defer w.proof.committing.Unlock()
	if err := w.commit(w.c); err != nil {
		w.unsure = m.clone()
		return err
	}
	w.proof.apply(m)
	return nil
}

func (c *changes) clone() *changes {
	next := *c
	next.rows, next.newest, next.used, next.spoken, next.pending = maps.Clone(c.rows), maps.Clone(c.newest), maps.Clone(c.used), maps.Clone(c.spoken), nil
	return &next
}

// resolve takes over the rows of a commit that was reported as failed, if it had worked. size is that of the log as found.
func (w *writer) resolve(c *conn, size int64) error {
	u := w.unsure
	if u == nil {
		return nil
	}
	worked := size == u.size
	if u.size == w.size { // it added no entry
		p, err := c.stateProof()
		if err != nil {
			return err
		}
		worked = p != nil && string(p.mac) == u.settled
	}
	if worked {
		w.proof.apply(u)
	}
	w.unsure = nil
	return nil
}

func blob(v any) []byte {
	b, _ := v.([]byte)
	return b
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

func number(v any) int64 {
	n, _ := v.(int64)
	return n
}
