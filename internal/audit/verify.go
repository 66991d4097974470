package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Report is the result of Verify. OK means: every byte that the checkpoint covers was signed, and the record makes sense.
type Report struct {
	OK       bool   `json:"ok"`
	Origin   string `json:"origin"`
	From     int64  `json:"from,omitempty"` // the first entry that was read: those before it are archived
	Size     int64  `json:"size"`           // entries that the checkpoint covers
	Checked  int64  `json:"checked"`        // entries read and checked
	Unsigned int64  `json:"unsigned"`       // entries newer than the checkpoint: well-formed, but not signed yet
	Rows     int64  `json:"rows"`           // changes of rows of the state that entries name
	// Adoptions is how many entries took rows over as they were found.
	Adoptions int64     `json:"-"`
	Unknown   []string  `json:"unknown"` // calls with an intent and no outcome
	Problems  []Problem `json:"problems"`
	Omitted   int64     `json:"problems_omitted,omitempty"` // problems found after the first 100
	Notes     []string  `json:"notes,omitempty"`            // conditions of the result
}

// Problem is one problem. Index is the first record that may be wrong, or -1 if it isn't about records.
type Problem struct {
	Index int64  `json:"index"`
	What  string `json:"what"`
}

const (
	maxProblems   = 100
	ownCheckpoint = "the checkpoint"
)

// Verify recomputes everything from the entries' bytes: each hash, tile and root, the checkpoint's signature, and whether the record
// makes sense: entries well-formed and numbered without gaps, time never backwards, each outcome after its one intent, each payload hashing to
// its key, and nothing there that doesn't belong. It contacts nothing.
//
// pub is the note verifier key to trust, and the only one; with "" the key in the log is used and a Note says so. anchors are signed
// checkpoints of this log that were kept elsewhere: the log must be a continuation of each of them (that is what
// finds a log that was cut or rolled back together with its own checkpoint).
//
// All problems of the log are in the Report. An error means that pub is not a key.
func Verify(src Source, pub string, anchors ...[]byte) (Report, error) {
	return VerifyTelling(src, pub, func(int64, int64) {}, anchors...)
}

// VerifyTelling is Verify that calls tell with how many entries it has read of how many, again and again while it works.
func VerifyTelling(src Source, pub string, tell func(read, of int64), anchors ...[]byte) (Report, error) {
	v := verifier{
		tell: tell,
		src:  src, tree: &Tree{}, wrong: -1, open: map[string]int64{}, seen: map[[16]byte]bool{}, payloads: map[[32]byte]bool{},
		report: Report{Unknown: []string{}, Problems: []Problem{}}, fold: Fold{Rows: map[RowName]Version{}},
		bears: consequences{approvals: map[string]*answered{}, tokens: map[string]*token{}},
	}
	v.state, _ = src.(StateSource)
	if v.state != nil {
		if err := v.state.Hold(); err != nil {
			v.problem(-1, "the state can't be read, so only the log was checked: %v", err)
			v.state = nil
		}
	}
	var key note.Verifier
	if pub != "" {
		var err error
		if key, err = ParsePublicKey(pub); err != nil {
			return Report{}, err
		}
	}
	v.checkpoints(key, pub, anchors)
	v.log()
	v.blame()
	v.names()
	v.compare()
	for id := range v.open {
		v.report.Unknown = append(v.report.Unknown, id)
	}
	slices.SortFunc(v.report.Unknown, func(a, b string) int { return cmp.Compare(v.open[a], v.open[b]) })
	slices.SortStableFunc(v.report.Problems, func(a, b Problem) int { return cmp.Compare(a.Index, b.Index) })
	v.report.OK = len(v.report.Problems) == 0
	v.report.Adoptions = int64(len(v.fold.Adoptions))
	return v.report, nil
}

type verifier struct {
	tell   func(read, of int64)
	src    Source
	state  StateSource // src, if it has the state, too
	fold   Fold
	bears  consequences
	report Report
	signed []signedRoot // to meet on the way, by size

	size     int64 // entries that the source claims
	tree     *Tree
	good     int64 // a signed root confirms the entries before this
	agree    int64 // entries before this agree with the stored tiles
	wrong    int64 // the first entry that is certainly wrong, or -1
	last     time.Time
	open     map[string]int64  // call id -> index of its intent, while it has no outcome
	seen     map[[16]byte]bool // hashed call ids with an intent; true when the outcome was seen
	payloads map[[32]byte]bool // keys of payloads checked
}

type signedRoot struct {
	what string
	Checkpoint
	broken bool  // the log has another root at this size
	from   int64 // a smaller signed root confirms the entries before this
}

// wrongEntry reports a problem of which the record at index is certainly the cause.
func (v *verifier) wrongEntry(index int64, format string, args ...any) {
	if v.wrong < 0 || index < v.wrong {
		v.wrong = index
	}
	v.problem(index, format, args...)
}

func (v *verifier) problem(index int64, format string, args ...any) {
	if len(v.report.Problems) == maxProblems {
		v.report.Omitted++
		return
	}
	v.report.Problems = append(v.report.Problems, Problem{index, fmt.Sprintf(format, args...)})
}

// checkpoints collects the signed roots.
func (v *verifier) checkpoints(key note.Verifier, pub string, anchors [][]byte) {
	own, err := v.src.PublicKey()
	switch {
	case err != nil:
		v.problem(-1, "%s can't be read: %v", PublicFile, err)
	case key != nil:
		if strings.TrimSuffix(string(own), "\n") != strings.TrimSuffix(pub, "\n") {
			v.problem(-1, "%s is not the public key that was given", PublicFile)
		}
	default:
		if key, err = ParsePublicKey(string(own)); err != nil {
			v.problem(-1, "%s: %v", PublicFile, err)
		}
		v.report.Notes = append(v.report.Notes,
			"No public key was given: the signature was checked with the key in the log, and anybody who can change the log can change that key too. Keep audit.pub elsewhere and pass it with --pub.")
	}
	if key == nil {
		v.problem(-1, "without a public key no signature can be checked")
		return
	}
	v.report.Origin = key.Name()
	data, err := v.src.Checkpoint()
	if err != nil {
		v.problem(-1, "the checkpoint can't be read: %v", err)
	} else if cp, err := OpenCheckpoint(data, key); err != nil {
		v.problem(-1, "%v", err)
	} else {
		v.report.Size = cp.Size
		v.signed = append(v.signed, signedRoot{what: ownCheckpoint, Checkpoint: cp})
	}
	for i, a := range anchors {
		if cp, err := OpenCheckpoint(a, key); err != nil {
			v.problem(-1, "anchor %d: %v", i+1, err)
		} else {
			v.signed = append(v.signed, signedRoot{what: fmt.Sprintf("anchor %d", i+1), Checkpoint: cp})
		}
	}
	v.start(key)
	slices.SortStableFunc(v.signed, func(a, b signedRoot) int { return cmp.Compare(a.Size, b.Size) })
}

// start begins after the entries that are archived, with the checkpoint that was signed when they ended.
func (v *verifier) start(key note.Verifier) {
	if v.state == nil {
		return
	}
	from, note, err := v.state.Start()
	if err == nil && from == 0 {
		return
	}
	var seal Checkpoint
	if err == nil {
		seal, err = OpenCheckpoint(note, key)
	}
	if err == nil && (seal.Size < from || seal.Size > from+tileWidth) {
		err = fmt.Errorf("it is of %d entries", seal.Size)
	}
	if err == nil {
		v.tree, err = Restore(from, func(level int, n int64) ([]byte, error) { return v.src.Tile(level, n, tileWidth) }, nil)
	}
	if err != nil {
		v.tree = &Tree{}
		v.problem(from, "the entries before %d are not here, and the checkpoint at their end can't be used: %v", from, err)
		return
	}
	v.report.From, v.agree, v.good = from, from, from
	v.fold.From, v.fold.Seal, v.bears.partial = from, seal, true
	v.signed = append(v.signed, signedRoot{what: "the checkpoint at the end of the archived entries", Checkpoint: seal})
	for _, s := range v.signed {
		if s.Size < from {
			v.report.Notes = append(v.report.Notes, fmt.Sprintf("%s is of %d entries, and of those only the newest are here: it was not compared.", s.what, s.Size))
		}
	}
}

// log reads the entries, as far as possible, and checks the tree over them.
func (v *verifier) log() {
	size, err := v.src.Size()
	if err != nil || size < 0 {
		v.problem(0, "the number of entries can't be read: %v", err)
		return
	}
	v.size = size
	v.roots()
	for from := v.report.From; from < size; from += tileWidth {
		to := min(from+tileWidth, size)
		leaves, err := v.src.Entries(from, to)
		if err != nil {
			at := v.unreadable(from, to)
			v.problem(at, "entry %d can't be read; nothing after it was checked: %v", at, err)
			return
		}
		if int64(len(leaves)) != to-from {
			v.problem(from+int64(len(leaves)), "of the entries %d to %d there are %d; nothing after them was checked", from, to-1, len(leaves))
			return
		}
		for _, leaf := range leaves {
			v.entry(v.tree.Append(leaf), leaf)
			v.report.Checked++
			v.roots()
		}
		for _, t := range v.tree.Completed() {
			v.tile(t.Level, t.Index, t.Hashes)
		}
		v.tree.Commit()
		v.tell(to, size)
	}
	for level, tail := range v.tree.tails {
		if len(tail) > 0 {
			v.tile(level, size>>(tileHeight*(level+1)), tail)
		}
	}
}

// unreadable finds the first entry of some that can't be read by itself.
func (v *verifier) unreadable(from, to int64) int64 {
	for ; from < to-1; from++ {
		if leaves, err := v.src.Entries(from, from+1); err != nil || len(leaves) != 1 {
			break
		}
	}
	return from
}

// roots compares the tree with the signed root of its size.
func (v *verifier) roots() {
	for i := range v.signed {
		s := &v.signed[i]
		if s.Size != v.tree.Size() {
			continue
		}
		if s.from = v.good; s.Root == v.tree.Root() {
			v.good = s.Size
		} else {
			s.broken = true
		}
	}
}

// blame reports the signed roots that were not met, each at the first record that may be the reason: a certainly wrong one, or the first that no
// stored tile confirms, or the first that no smaller signed root covers.
func (v *verifier) blame() {
	v.report.Unsigned = max(v.size-v.report.Size, 0)
	if _, exported := v.src.(*Export); exported && v.report.Unsigned > 0 {
		// A running log is signed once a second, so it has such entries; an export ends with its checkpoint, so somebody added these.
		v.problem(v.report.Size, "%d entries follow the export's checkpoint, and no signature covers them", v.report.Unsigned)
	}
	for _, s := range v.signed {
		if s.Size > v.size {
			v.problem(v.size, "cut off: %s covers %d entries and the log holds %d", s.what, s.Size, v.size)
		}
		if !s.broken {
			continue
		}
		index := s.from
		if v.wrong >= s.from && v.wrong < s.Size {
			index = v.wrong
		} else if v.agree > s.from && v.agree < s.Size {
			index = v.agree
		}
		v.problem(index, "the %d entries that %s signed are not the ones here: entries were changed, swapped, added or removed, probably from %d on", s.Size, s.what, index)
	}
}

// compare compares the rows with what the log says of them, if the whole log could be read.
func (v *verifier) compare() {
	if v.state == nil {
		return
	}
	if v.report.From+v.report.Checked < v.size {
		v.report.Notes = append(v.report.Notes, "The rows of the state were not compared with the log, because the log can't be read as a whole.")
		return
	}
	v.fold.FirstIntent = v.size
	for _, i := range v.open {
		v.fold.FirstIntent = min(v.fold.FirstIntent, i)
	}
	var cp Checkpoint
	if i := slices.IndexFunc(v.signed, func(s signedRoot) bool { return s.what == ownCheckpoint && !s.broken }); i >= 0 {
		cp = v.signed[i].Checkpoint
	}
	problems, notes := v.state.Compare(&v.fold, cp)
	for _, p := range problems {
		v.problem(p.Index, "%s", p.What)
	}
	v.report.Notes = append(v.report.Notes, notes...)
}

// tile compares a stored tile with the computed one.
func (v *verifier) tile(level int, n int64, want []byte) {
	width := len(want) / tlog.HashSize
	name := TilePath(level, n, width)
	first := n << (tileHeight * (level + 1))
	got, err := v.src.Tile(level, n, width)
	switch {
	case err != nil:
		v.problem(first, "%s can't be read: %v", name, err)
		return
	case got == nil && width < tileWidth:
		return
	case bytes.Equal(got, want):
		if level == 0 && first == v.agree {
			v.agree += int64(width)
		}
		return
	case len(got) != len(want):
		v.problem(first, "%s has %d bytes, not %d", name, len(got), len(want))
		return
	}
	for i := range width {
		at := i * tlog.HashSize
		if bytes.Equal(got[at:at+tlog.HashSize], want[at:at+tlog.HashSize]) {
			continue
		}
		span := int64(1) << (tileHeight * level)
		index := first + int64(i)*span
		if level == 0 {
			v.wrongEntry(index, "entry %d does not hash to what %s holds for it", index, name)
		} else {
			v.problem(index, "entries %d to %d do not hash to what %s holds for them", index, index+span-1, name)
		}
		return
	}
}

// entry checks one record by itself and against the records before it.
func (v *verifier) entry(i int64, leaf []byte) {
	e, err := Unmarshal(leaf)
	if err != nil {
		v.wrongEntry(i, "entry %d can't be read: %v", i, err)
		return
	}
	if e.Index != i {
		v.wrongEntry(i, "the entry at %d says that it is %d", i, e.Index)
	}
	if e.At.Before(v.last) {
		v.problem(i, "entry %d is from %s, before the entry before it", i, e.At.Format(time.RFC3339Nano))
	}
	v.last = e.At
	if e.Kind == Intent || e.Kind == Outcome {
		v.call(i, e)
	}
	v.report.Rows += int64(len(e.Rows))
	for _, what := range append(v.fold.add(&e), v.bears.add(&e)...) {
		v.problem(i, "%s", what)
	}
	if v.state != nil {
		if what := v.state.Beside(&e); what != "" {
			v.problem(i, "%s", what)
		}
	}
	for _, p := range []struct {
		what string
		*Payload
	}{{"arguments", e.Arguments}, {"result", e.Result}} {
		if p.Payload != nil && p.Stored {
			v.payload(i, p.what, p.Key)
		}
	}
}

// call tracks intents and outcomes.
func (v *verifier) call(i int64, e Entry) {
	if e.CallID == "" {
		v.problem(i, "entry %d is an %s without a call id", i, e.Kind)
		return
	}
	sum := sha256.Sum256([]byte(e.CallID))
	id := [16]byte(sum[:16])
	done, begun := v.seen[id]
	switch {
	case e.Kind == Intent && begun:
		v.problem(i, "entry %d is a second intent of call %.80q", i, e.CallID)
	case e.Kind == Intent:
		v.seen[id] = false
		v.open[e.CallID] = i
	case !begun && i < v.fold.Seal.Size: // an archived entry is its intent
		v.seen[id] = true
	case !begun:
		v.problem(i, "entry %d is an outcome of call %.80q, which has no intent before it", i, e.CallID)
	case done:
		v.problem(i, "entry %d is a second outcome of call %.80q", i, e.CallID)
	default:
		v.seen[id] = true
		delete(v.open, e.CallID)
	}
}

func (v *verifier) payload(i int64, what, key string) {
	if !isKey(key) {
		v.problem(i, "entry %d: the stored %s have no proper key: %.80q", i, what, key)
		return
	}
	var want [32]byte
	hex.Decode(want[:], []byte(key)) // isKey: can't fail
	if v.payloads[want] {
		return
	}
	v.payloads[want] = true
	data, err := v.src.Payload(key)
	if errors.Is(err, fs.ErrNotExist) {
		v.problem(i, "entry %d: the stored %s are missing: %s%s", i, what, payloadPrefix, key)
	} else if err != nil {
		v.problem(i, "entry %d: the stored %s can't be read: %v", i, what, err)
	} else if sha256.Sum256(data) != want {
		v.problem(i, "entry %d: the stored %s were changed: %s%s does not hash to its name", i, what, payloadPrefix, key)
	}
}

// names finds files that don't belong to the log.
func (v *verifier) names() {
	err := v.src.Names(func(name string) error {
		if !v.belongs(name) {
			v.problem(-1, "%.200q does not belong to the log", name)
		}
		return nil
	})
	if err != nil {
		v.problem(-1, "the other files can't be listed: %v", err)
	}
}

func (v *verifier) belongs(name string) bool {
	if name == checkpointName || name == PublicFile {
		return true
	}
	if key, ok := strings.CutPrefix(name, payloadPrefix); ok && isKey(key) {
		var sum [32]byte
		hex.Decode(sum[:], []byte(key)) // isKey: can't fail
		return v.payloads[sum]
	}
	level, n, width, err := ParseTilePath(name)
	if err != nil {
		return false
	}
	have := v.size >> (tileHeight * max(level, 0))
	if n < have>>tileHeight {
		return width == tileWidth
	}
	return n == have>>tileHeight && int64(width) == have&(tileWidth-1)
}
