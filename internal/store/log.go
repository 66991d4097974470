package store

import (
	"bytes"
	"cmp"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/segment"
)

// blockSize is the number of entries that one row of audit_blocks sums up; a tile and an entry bundle hold as many.
const blockSize = 256

// keyOf is the key of a value in a block: FNV-1a of the field and the value. Two values may share a key. It tells where to look,
// never what is there.
func keyOf(field byte, value string) uint32 {
	const offset, prime = 2166136261, 16777619
	h := (offset ^ uint32(field)) * prime
	for i := range len(value) {
		h = (h ^ uint32(value[i])) * prime
	}
	return h
}

// markedKey is in the blocks that have the keys of appendMarked, too. Older blocks don't, and are read.
var markedKey = keyOf('m', "1")

// appendMarked adds the keys of the fields that marked blocks have besides those of appendKeys.
func appendMarked(keys []uint32, e *audit.Entry) []uint32 {
	for _, f := range [...]struct {
		field byte
		value string
	}{{'q', e.Requester}, {'y', e.Type}, {'r', e.Risk}, {'v', string(e.Severity)}, {'e', string(e.Event)}, {'x', e.Code}} {
		if f.value != "" {
			keys = append(keys, keyOf(f.field, f.value))
		}
	}
	for _, person := range e.Approvers {
		keys = append(keys, keyOf('p', person))
	}
	return keys
}

// appendKeys adds the keys of an entry: of the fields that a query can ask for, in every block.
func appendKeys(keys []uint32, e *audit.Entry) []uint32 {
	for _, f := range [...]struct {
		field byte
		value string
	}{{'k', string(e.Kind)}, {'a', e.Agent}, {'s', e.Session}, {'c', e.CallID}, {'t', e.Action}, {'o', e.Operation}, {'d', e.Decision}} {
		if f.value != "" {
			keys = append(keys, keyOf(f.field, f.value))
		}
	}
	return keys
}

// encodeBlock is a row of audit_blocks: its different keys and the mark, in order, four bytes each.
func encodeBlock(keys []uint32) []byte { return encodeKeys(append(slices.Clone(keys), markedKey)) }

// sameBlock tells whether a row of audit_blocks is the one of its entries: keys and marked are theirs. It returns what the row must be.
func sameBlock(have []byte, keys, marked []uint32) (want []byte, same bool) {
	if blockHas(have, markedKey) {
		want = encodeBlock(append(keys, marked...))
	} else { // as versions before wrote it: queries for the other fields read such a block
		want = encodeKeys(keys)
	}
	return want, bytes.Equal(have, want)
}

// encodeKeys puts keys in order, and leaves out those that come twice.
func encodeKeys(keys []uint32) []byte {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	b := make([]byte, 0, 4*len(keys))
	for _, k := range keys {
		b = binary.BigEndian.AppendUint32(b, k)
	}
	return b
}

// blockHas looks a key up in a row of audit_blocks.
func blockHas(block []byte, key uint32) bool {
	lo, hi := 0, len(block)/4
	for lo < hi {
		mid := (lo + hi) / 2
		switch at := binary.BigEndian.Uint32(block[4*mid:]); cmp.Compare(at, key) {
		case 0:
			return true
		case -1:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return false
}

// readTile reads complete tiles for the tree.
func (c *conn) readTile(level int, n int64) (data []byte, err error) {
	err = c.query(func(v []driver.Value) error { data = v[0].([]byte); return nil }, selectTile, int64(level), n)
	return data, err
}

func (c *conn) readLeaves(from, to int64) (leaves [][]byte, err error) {
	err = c.query(func(v []driver.Value) error { leaves = append(leaves, v[1].([]byte)); return nil }, selectLeaves, from, to)
	return leaves, err
}

// logState is the writer's state of the log. All of it can be read from the database again.
type logState struct {
	tree   *audit.Tree
	size   int64 // of the log as acknowledged
	lastAt time.Time
	keys   []uint32         // of the incomplete block, see appendKeys
	open   map[string]int64 // intents without outcome: call id -> index
}

// connect opens the writing connection and reads from the database what the writer must know: the tree, and the intents that
// have no outcome. What was acknowledged must still be there, also after an fsync that failed; if it is not, no write will ever be taken again.
func (w *writer) connect() (err error) {
	if err := w.look(0); err != nil { // the engine would make an empty database in the place of one that is gone
		return err
	}
	c, err := dial(dsn(w.path, writeParams))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	var found logState
	if err := found.readTree(c); err != nil {
		return err
	}
	if w.tree != nil {
		w.tree.Rollback()
		if err := w.checkAcknowledged(c, found); err != nil {
			return err
		}
	}
	if err := found.readEntries(w, c); err != nil {
		return err
	}
	if err := w.holdFiles(); err != nil {
		return err
	}
	if err := w.resolve(c, found.size); err != nil {
		return err
	}
	if w.tree != nil && found.size > w.size { // last: what it takes over would be taken over again after an error
		if w.tried == nil || *w.tried != (tried{found.size, found.tree.Root()}) {
			return w.lose(fault.New(fault.AuditUnavailable, "The log holds %d entries that this gateway did not write.", found.size-w.size).
				Try("Find out who can write the database. Then restore a backup: nobody can tell these entries from true ones once they are signed."))
		}
		if err := w.acceptCommit(c, found); err != nil {
			return err
		}
	}
	w.c, w.logState, w.tried, w.unsureUsed = c, found, nil, nil
	w.scrub = true // what was deleted before a crash, or by a commit that was reported as failed, may still stand in the write-ahead log
	if w.followed != w.path {
		w.followed = w.path
		w.changed() // now, not with the first entry: a file that nobody else has open loses its write-ahead log when the connection goes
	}
	return nil
}

// readTree reads the tree, its size and the time of the last entry.
func (l *logState) readTree(c *conn) error {
	if err := c.query(func(v []driver.Value) error {
		l.size, l.lastAt = v[0].(int64)+1, time.UnixMicro(v[1].(int64)).UTC()
		return nil
	}, selectLast); err != nil {
		return err
	}
	tree, err := audit.Restore(l.size, c.readTile, c.readLeaves)
	if err != nil && !engineFailed(err) {
		err = damaged(err)
	}
	l.tree = tree
	return err
}

// readEntries reads the keys of the incomplete block, and the intents without outcome.
func (l *logState) readEntries(w *writer, c *conn) error {
	leaves, err := c.readLeaves(l.size&^(blockSize-1), l.size)
	if err != nil {
		return err
	}
	l.keys = make([]uint32, 0, 12*blockSize)
	for _, leaf := range leaves {
		e, err := audit.Unmarshal(leaf)
		if err != nil {
			return damaged(err)
		}
		l.keys = appendMarked(appendKeys(l.keys, &e), &e)
	}
	l.open = map[string]int64{}
	mark, err := c.number(selectLowWater)
	if err != nil {
		return err
	}
	if mark < w.first { // a call may have begun in an older file, and be still under way
		if err := w.eachOlder(func(path string, first, end int64) error {
			if end <= mark {
				return nil
			}
			return reading(path, func(old *conn) error { return old.query(l.call, selectCalls, mark, end) })
		}); err != nil {
			return err
		}
	}
	return c.query(l.call, selectCalls, mark, l.size)
}

// call takes over an intent or an outcome.
func (l *logState) call(v []driver.Value) error {
	if callID := v[2].(string); v[1].(string) == string(audit.Intent) {
		l.open[callID] = v[0].(int64)
	} else {
		delete(l.open, callID)
	}
	return nil
}

// checkAcknowledged refuses for good a database that has lost entries which the writer has acknowledged.
func (w *writer) checkAcknowledged(c *conn, found logState) (err error) {
	root := found.tree.Root()
	if found.size > w.size {
		root, err = tlog.TreeHash(w.size, found.tree.Snapshot().Hashes(c.readTile))
	}
	if found.size < w.size || err != nil || root != w.tree.Root() {
		return w.lose(fault.Wrap(err, fault.AuditUnavailable, "The database no longer holds the %d entries that were acknowledged: it has %d.", w.size, found.size).
			Try("Look at the disk; \"sallyport audit verify\" tells what is left."))
	}
	return nil
}

// acceptCommit takes over a commit that was reported as failed and had worked. A caller that repeats one of its outcomes must find it done. Its intents
// have no caller any more. After an error it has taken over nothing.
func (w *writer) acceptCommit(c *conn, found logState) error {
	var orphans []*audit.Entry
	for callID, i := range found.open {
		if _, known := w.open[callID]; known {
			continue
		}
		e, err := w.entry(c, i)
		if err != nil {
			return err
		}
		orphans = append(orphans, &e)
	}
	for callID := range w.open {
		if _, still := found.open[callID]; !still {
			w.settled[callID] = true
		}
	}
	w.orphans = append(w.orphans, orphans...)
	w.takeUsed(w.unsureUsed)
	w.live.clear()
	w.quotas.clear()
	return nil
}

func damaged(err error) error {
	return fault.Wrap(err, fault.StoreUnavailable, "The database is damaged.").Try("Run \"sallyport audit verify\", and put back a backup of the whole data directory.")
}

// entry reads an entry, which may be in an older file.
func (w *writer) entry(c *conn, index int64) (e audit.Entry, err error) {
	if index >= segment.Base(w.first) {
		return c.entry(index)
	}
	err = w.eachOlder(func(path string, first, end int64) error {
		if index < first || index >= end {
			return nil
		}
		return reading(path, func(old *conn) (err error) { e, err = old.entry(index); return err })
	})
	return e, err
}

func (c *conn) entry(index int64) (e audit.Entry, err error) {
	leaves, err := c.readLeaves(index, index+1)
	if err != nil {
		return e, err
	}
	if len(leaves) != 1 {
		return e, damaged(fmt.Errorf("there is no entry %d", index))
	}
	if e, err = audit.Unmarshal(leaves[0]); err != nil {
		return e, damaged(err)
	}
	return e, nil
}

// unknownOutcome is the outcome of an intent whose result is not known (docs/design.md, rule 1).
func unknownOutcome(intent *audit.Entry, reason string) audit.Entry {
	return audit.Entry{
		Kind: audit.Outcome, Action: intent.Action, Type: intent.Type, Decision: "unknown", Reason: reason,
		Agent: intent.Agent, Session: intent.Session, Requester: intent.Requester, Actor: intent.Actor, Door: intent.Door,
		RequestID: intent.RequestID, Operation: intent.Operation, CallID: intent.CallID, Digest: intent.Digest, DefHash: intent.DefHash,
	}
}

// recover writes the outcome "unknown" for every intent that the process before this one left without.
func (w *writer) recover(t *tx) error {
	left := make([]int64, 0, len(w.open))
	for _, i := range w.open {
		left = append(left, i)
	}
	slices.Sort(left)
	for _, i := range left {
		e, err := w.entry(w.c, i)
		if err != nil {
			return err
		}
		unknown := unknownOutcome(&e, "the gateway stopped before the outcome was known")
		if err := t.append(&unknown); err != nil {
			return err
		}
	}
	return nil
}
