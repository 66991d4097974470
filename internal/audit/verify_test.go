package audit

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/api/layout"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"
	"k8s.io/klog/v2"
)

// book is a log as a store keeps it: entries, complete tiles, payloads, the newest checkpoint.
type book struct {
	*shelf
	signer     *Signer
	tree       *Tree
	pub        []byte
	checkpoint []byte
	payloads   map[string][]byte
	extra      []string
}

var _ Source = (*book)(nil)

func newBook(t testing.TB) *book {
	t.Helper()
	signer, err := LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &book{shelf: newShelf(), signer: signer, tree: &Tree{}, pub: []byte(signer.PublicKey() + "\n"), payloads: map[string][]byte{}}
}

func (b *book) raw(leaf []byte) {
	b.leaves = append(b.leaves, leaf)
	b.tree.Append(leaf)
	b.keep(b.tree.Completed())
	b.tree.Commit()
}

func (b *book) add(t testing.TB, e Entry) {
	t.Helper()
	leaf, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	b.raw(leaf)
}

func (b *book) sign(t testing.TB) {
	t.Helper()
	var err error
	if b.checkpoint, err = b.signer.Checkpoint(b.tree.Size(), b.tree.Root(), ""); err != nil {
		t.Fatal(err)
	}
}

func (b *book) clone() *book {
	c := *b
	c.shelf = &shelf{tiles: map[string][]byte{}}
	for _, leaf := range b.leaves {
		c.leaves = append(c.leaves, bytes.Clone(leaf))
	}
	for k, v := range b.tiles {
		c.tiles[k] = bytes.Clone(v)
	}
	c.payloads = map[string][]byte{}
	for k, v := range b.payloads {
		c.payloads[k] = bytes.Clone(v)
	}
	c.pub, c.checkpoint = bytes.Clone(b.pub), bytes.Clone(b.checkpoint)
	return &c
}

func (b *book) PublicKey() ([]byte, error) { return b.pub, nil }
func (b *book) Checkpoint() ([]byte, error) {
	if b.checkpoint == nil {
		return nil, fs.ErrNotExist
	}
	return b.checkpoint, nil
}
func (b *book) Size() (int64, error)                     { return int64(len(b.leaves)), nil }
func (b *book) Entries(from, to int64) ([][]byte, error) { return b.leaves[from:to], nil }
func (b *book) Tile(level int, n int64, width int) ([]byte, error) {
	if width < tileWidth {
		return nil, nil
	}
	if data, ok := b.tiles[TilePath(level, n, width)]; ok {
		return data, nil
	}
	return nil, fs.ErrNotExist
}
func (b *book) Payload(key string) ([]byte, error) {
	if data, ok := b.payloads[key]; ok {
		return data, nil
	}
	return nil, fs.ErrNotExist
}
func (b *book) Names(yield func(string) error) error {
	names := slices.Collect(maps.Keys(b.tiles))
	for key := range b.payloads {
		names = append(names, payloadPrefix+key)
	}
	for _, name := range append(names, b.extra...) {
		if err := yield(name); err != nil {
			return err
		}
	}
	return nil
}

// calls writes n entries of plausible traffic: intents and outcomes, some of them interleaved, some with payloads stored apart.
func (b *book) calls(t testing.TB, n int) {
	t.Helper()
	for range n {
		i := b.tree.Size()
		e := Entry{Index: i, At: time.Unix(1_800_000_000+i/3, 0), Kind: Intent, Action: "call", Agent: "local", Operation: "mail.search_email"}
		switch i % 4 {
		case 0, 1:
			e.CallID = fmt.Sprintf("call_%d", i)
			e.Arguments = &Payload{SHA256: "00", Size: 2, Shown: json.RawMessage(`{}`)}
		default:
			e.Kind, e.CallID, e.Decision, e.Labels = Outcome, fmt.Sprintf("call_%d", i-2), "ok", []string{"untrusted"}
			if i%32 == 2 {
				e.Result = b.store(fmt.Appendf(nil, "result %d", i%64))
			}
		}
		b.add(t, e)
	}
}

func (b *book) store(data []byte) *Payload {
	sum := sha256.Sum256(data)
	key := hex.EncodeToString(sum[:])
	b.payloads[key] = data
	return &Payload{SHA256: key, Size: int64(len(data)), Stored: true, Key: key}
}

func verify(t testing.TB, src Source, pub string, anchors ...[]byte) Report {
	t.Helper()
	r, err := Verify(src, pub, anchors...)
	if err != nil {
		t.Fatal(err)
	}
	if r.OK != (len(r.Problems) == 0) {
		t.Fatalf("OK is %v with %d problems", r.OK, len(r.Problems))
	}
	return r
}

// firstBad is the record that a report names first.
func firstBad(r Report) int64 {
	for _, p := range r.Problems {
		if p.Index >= 0 {
			return p.Index
		}
	}
	return -1
}

func export(t testing.TB, src Source) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := WriteExport(&buf, src); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func untar(t testing.TB, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func unpack(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t testing.TB, archive []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "export.tar")
	if err := os.WriteFile(name, archive, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// inMemory opens files as OpenExport does a directory.
func inMemory(files map[string][]byte) *Export {
	x := &Export{names: slices.Collect(maps.Keys(files)), close: func() error { return nil }}
	x.open = func(name string) (io.ReadCloser, int64, error) {
		data, ok := files[name]
		if !ok {
			return nil, 0, fs.ErrNotExist
		}
		return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
	}
	x.index()
	return x
}

func TestVerifyAcceptsLogsOfEverySize(t *testing.T) {
	b := newBook(t)
	for n := range 530 {
		if n > 0 {
			b.calls(t, 1)
		}
		switch {
		case n < 10, n%64 < 2, n > 250 && n < 260, n > 510 && n < 515:
		default:
			continue
		}
		b.sign(t)
		for what, src := range map[string]Source{"store": b, "export": inMemory(untar(t, export(t, b)))} {
			r := verify(t, src, b.signer.PublicKey())
			if !r.OK || r.Size != int64(n) || r.Checked != int64(n) || r.Unsigned != 0 || r.Origin != b.signer.Origin() || len(r.Notes) != 0 {
				t.Fatalf("%s of %d: %+v", what, n, r)
			}
		}
	}
}

func TestReportTellsWhatItRestsOn(t *testing.T) {
	b := newBook(t)
	b.calls(t, 6)
	b.sign(t)
	b.calls(t, 4)
	r := verify(t, b, "")
	if !r.OK || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "the key in the log") {
		t.Errorf("without a key: %+v", r)
	}
	if r.Size != 6 || r.Checked != 10 || r.Unsigned != 4 {
		t.Errorf("size %d, checked %d, unsigned %d; want 6, 10, 4", r.Size, r.Checked, r.Unsigned)
	}
	if want := []string{"call_8", "call_9"}; !slices.Equal(r.Unknown, want) {
		t.Errorf("unknown %v, want %v", r.Unknown, want)
	}
	other := newBook(t)
	if r := verify(t, b, other.signer.PublicKey()); r.OK || r.Size != 0 {
		t.Errorf("another's key: %+v", r)
	}
	if _, err := Verify(b, "no key"); err == nil {
		t.Error("verified with a key that is none")
	}
}

// TestVerifyFinds changes one thing about a sound log of 600 entries, as the store keeps it, and signs again what the change leaves signed
// where the case says so. Verify must name the record.
func TestVerifyFinds(t *testing.T) {
	const size = 600
	sound := newBook(t)
	sound.calls(t, size)
	sound.sign(t)
	edit := func(b *book, i int, change func(*Entry)) {
		e, err := Unmarshal(b.leaves[i])
		if err != nil {
			t.Fatal(err)
		}
		change(&e)
		if b.leaves[i], err = e.Marshal(); err != nil {
			t.Fatal(err)
		}
	}
	rebuild := func(b *book) { // as whoever holds the signing key could
		leaves := b.leaves
		b.shelf, b.tree = newShelf(), &Tree{}
		for _, leaf := range leaves {
			b.raw(leaf)
		}
		b.sign(t)
	}
	someKey := slices.Sorted(maps.Keys(sound.payloads))[0]
	firstUse := func() int64 {
		for i, leaf := range sound.leaves {
			if bytes.Contains(leaf, []byte(someKey)) {
				return int64(i)
			}
		}
		return -1
	}()
	for name, c := range map[string]struct {
		change func(*book)
		index  int64
		what   string
	}{
		"changed entry":             {func(b *book) { edit(b, 100, func(e *Entry) { e.Agent = "other" }) }, 100, "does not hash"},
		"changed entry in the tail": {func(b *book) { edit(b, 550, func(e *Entry) { e.Agent = "other" }) }, 512, "changed, swapped"},
		"entry that is none":        {func(b *book) { b.leaves[550] = []byte("{}") }, 550, "can't be read"},
		"deleted":                   {func(b *book) { b.leaves = slices.Delete(b.leaves, 300, 301) }, 300, "says that it is"},
		"swapped":                   {func(b *book) { b.leaves[20], b.leaves[21] = b.leaves[21], b.leaves[20] }, 20, "says that it is"},
		"inserted":                  {func(b *book) { b.leaves = slices.Insert(b.leaves, 40, b.leaves[39]) }, 40, "says that it is"},
		"tail cut off":              {func(b *book) { b.leaves = b.leaves[:590] }, 590, "cut off"},
		"everything cut off":        {func(b *book) { b.leaves, b.tiles = nil, nil }, 0, "cut off"},
		"tile changed":              {func(b *book) { b.tiles["tile/0/001"][33] ^= 1 }, 257, "does not hash"},
		"tile short":                {func(b *book) { b.tiles["tile/0/001"] = b.tiles["tile/0/001"][:32] }, 256, "bytes"},
		"tile missing":              {func(b *book) { delete(b.tiles, "tile/0/001") }, 256, "can't be read"},
		"tile too many":             {func(b *book) { b.tiles["tile/0/002"] = make([]byte, tileBytes) }, -1, "does not belong"},
		"payload changed":           {func(b *book) { b.payloads[someKey][0] ^= 1 }, firstUse, "were changed"},
		"payload missing":           {func(b *book) { delete(b.payloads, someKey) }, firstUse, "are missing"},
		"payload too many":          {func(b *book) { b.store([]byte("nobody's")) }, -1, "does not belong"},
		"a name too many":           {func(b *book) { b.extra = []string{"notes.txt"} }, -1, "does not belong"},
		"no checkpoint":             {func(b *book) { b.checkpoint = nil }, -1, "checkpoint can't be read"},
		"forged checkpoint":         {func(b *book) { b.checkpoint[len(b.signer.Origin())+2] ^= 1 }, -1, "not a signed checkpoint"},
		"another's checkpoint":      {func(b *book) { o := newBook(t); o.calls(t, size); o.sign(t); b.checkpoint = o.checkpoint }, -1, "not signed with the key"},
		"another's key beside it":   {func(b *book) { b.pub = newBook(t).pub }, -1, "not the public key that was given"},
		"signed: wrong index":       {func(b *book) { edit(b, 70, func(e *Entry) { e.Index = 71 }); rebuild(b) }, 70, "says that it is 71"},
		"signed: backwards":         {func(b *book) { edit(b, 70, func(e *Entry) { e.At = e.At.Add(-time.Hour) }); rebuild(b) }, 70, "before the entry before"},
		"signed: not an entry":      {func(b *book) { b.leaves[70] = append(b.leaves[70], '\n'); rebuild(b) }, 70, "can't be read"},
		"signed: stray outcome":     {func(b *book) { edit(b, 70, func(e *Entry) { e.CallID = "call_x" }); rebuild(b) }, 70, "no intent before it"},
		"signed: outcome first": {func(b *book) {
			edit(b, 68, func(e *Entry) { e.Kind = Outcome })
			edit(b, 70, func(e *Entry) { e.Kind = Intent })
			rebuild(b)
		}, 68, "no intent before it"},
		"signed: two outcomes":     {func(b *book) { edit(b, 71, func(e *Entry) { e.CallID = "call_68" }); rebuild(b) }, 71, "second outcome"},
		"signed: two intents":      {func(b *book) { edit(b, 69, func(e *Entry) { e.CallID = "call_68" }); rebuild(b) }, 69, "second intent"},
		"signed: intent after all": {func(b *book) { edit(b, 72, func(e *Entry) { e.CallID = "call_68" }); rebuild(b) }, 72, "second intent"},
		"signed: no call id":       {func(b *book) { edit(b, 72, func(e *Entry) { e.CallID = "" }); rebuild(b) }, 72, "without a call id"},
		"signed: no payload key": {func(b *book) {
			edit(b, 72, func(e *Entry) { e.Result = &Payload{Stored: true, Key: "../x"} })
			rebuild(b)
		}, 72, "no proper key"},
	} {
		t.Run(name, func(t *testing.T) {
			b := sound.clone()
			c.change(b)
			r := verify(t, b, sound.signer.PublicKey())
			if got := firstBad(r); r.OK || got != c.index {
				t.Errorf("names record %d, want %d: %+v", got, c.index, r.Problems)
			}
			if !slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Index == c.index && strings.Contains(p.What, c.what) }) {
				t.Errorf("no problem %q at %d: %+v", c.what, c.index, r.Problems)
			}
		})
	}
	if !verify(t, sound, sound.signer.PublicKey()).OK {
		t.Error("the cases changed the sound log")
	}
}

// TestBitFlips: one bit in 1000 random places of what a store keeps. All are found, and the record is named as exactly as the
// stored tiles allow.
func TestBitFlips(t *testing.T) {
	const size, complete = 300, 256
	sound := newBook(t)
	sound.calls(t, size)
	sound.sign(t)
	rnd := rand.New(rand.NewPCG(1, 11))
	for round := range 1000 {
		b := sound.clone()
		i := rnd.IntN(size)
		p := &b.leaves[i]
		if round%10 == 9 {
			n := rnd.IntN(complete / tileWidth)
			tile := b.tiles[TilePath(0, int64(n), tileWidth)]
			bit := rnd.IntN(len(tile) * 8)
			tile[bit/8] ^= 1 << (bit % 8)
			i = n*tileWidth + bit/8/32
		} else {
			bit := rnd.IntN(len(*p) * 8)
			(*p)[bit/8] ^= 1 << (bit % 8)
		}
		r := verify(t, b, sound.signer.PublicKey())
		got := firstBad(r)
		if r.OK || i < complete && got != int64(i) || i >= complete && (got < complete || got > int64(i)) {
			t.Fatalf("a bit of record %d: names %d: %+v", i, got, r.Problems)
		}
	}
}

// TestAnchors: a log cut or rolled back together with its checkpoint is sound in itself; a checkpoint kept
// elsewhere tells.
func TestAnchors(t *testing.T) {
	b := newBook(t)
	b.calls(t, 300)
	b.sign(t)
	yesterday := b.clone()
	b.calls(t, 100)
	b.sign(t)
	anchor, pub := b.checkpoint, b.signer.PublicKey()
	if r := verify(t, b, pub, yesterday.checkpoint, anchor); !r.OK {
		t.Errorf("a log that went on: %+v", r.Problems)
	}
	if r := verify(t, yesterday, pub); !r.OK {
		t.Errorf("yesterday's log by itself: %+v", r.Problems)
	}
	if r := verify(t, yesterday, pub, anchor); r.OK || firstBad(r) != 300 {
		t.Errorf("rolled back: %+v", r.Problems)
	}
	// The holder of the key writes another history after 300.
	fork := yesterday.clone()
	fork.tree, _ = Restore(300, fork.tile, fork.read)
	fork.add(t, Entry{Index: 300, At: time.Unix(1_900_000_000, 0), Kind: Change, Action: "other"})
	for i := int64(301); i < 500; i++ {
		fork.add(t, Entry{Index: i, At: time.Unix(1_900_000_000, 0), Kind: Change, Action: "other"})
	}
	fork.sign(t)
	if r := verify(t, fork, pub); !r.OK {
		t.Errorf("the fork by itself: %+v", r.Problems)
	}
	if r := verify(t, fork, pub, yesterday.checkpoint, anchor); r.OK || firstBad(r) != 300 {
		t.Errorf("fork: %+v", r.Problems)
	}
	if r := verify(t, b, pub, []byte("rubbish")); r.OK {
		t.Error("an anchor that is none was passed over")
	}
}

func TestProblemsAreBounded(t *testing.T) {
	b := newBook(t)
	for range 500 {
		b.raw([]byte("{}"))
	}
	b.sign(t)
	r := verify(t, b, "")
	if len(r.Problems) != maxProblems || r.Omitted != 400 {
		t.Errorf("%d problems and %d omitted, want %d and 400", len(r.Problems), r.Omitted, maxProblems)
	}
}

// shelfFetcher serves files to tessera.
type shelfFetcher map[string][]byte

func (f shelfFetcher) get(name string) ([]byte, error) {
	if data, ok := f[name]; ok {
		return data, nil
	}
	return nil, os.ErrNotExist
}
func (f shelfFetcher) ReadCheckpoint(context.Context) ([]byte, error) {
	return f.get(layout.CheckpointPath)
}
func (f shelfFetcher) ReadTile(_ context.Context, l, i uint64, p uint8) ([]byte, error) {
	return f.get(layout.TilePath(l, i, p))
}
func (f shelfFetcher) ReadEntryBundle(_ context.Context, i uint64, p uint8) ([]byte, error) {
	return f.get(layout.EntriesPath(i, p))
}

// tessera is the independent verifier's answer.
func tessera(t testing.TB, f fsck.Fetcher, pub string) (err error) {
	t.Helper()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	v, err := note.NewVerifier(pub)
	if err != nil {
		t.Fatal(err)
	}
	hasher := func(bundle []byte) ([][]byte, error) {
		var b api.EntryBundle
		if err := b.UnmarshalText(bundle); err != nil {
			return nil, err
		}
		var hashes [][]byte
		for _, e := range b.Entries {
			hashes = append(hashes, rfc6962.DefaultHasher.HashLeaf(e))
		}
		return hashes, nil
	}
	defer func() { // it indexes bundles that are too short
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	// As many workers as there can be bad tiles: its producer blocks once all workers have failed.
	return fsck.New(v.Name(), v, f, hasher, fsck.Opts{N: 4}).Check(t.Context())
}

func TestTesseraReadsTheUnpackedExport(t *testing.T) {
	b := newBook(t)
	for _, n := range []int{1, 255, 256, 257, 600, 66000} {
		b.calls(t, n-int(b.tree.Size()))
		b.sign(t)
		dir := unpack(t, untar(t, export(t, b)))
		if err := tessera(t, client.FileFetcher{Root: dir}, b.signer.PublicKey()); err != nil {
			t.Errorf("%d entries: %v", n, err)
		}
	}
}

// TestEveryByteOfAnExport changes every byte of every file of a small export, and a sample of a larger one's. We refuse all of them;
// tessera refuses all that it reads.
func TestEveryByteOfAnExport(t *testing.T) {
	flips := []byte{1, 2, 4, 0x20, 0x80, 0xff}
	for _, c := range []struct {
		entries, step int
		flips         int // ways of changing one byte
	}{{7, 1, len(flips)}, {300, 997, 1}} {
		b := newBook(t)
		b.calls(t, c.entries)
		b.sign(t)
		pub := b.signer.PublicKey()
		files := untar(t, export(t, b))
		if err := tessera(t, shelfFetcher(files), pub); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, name := range slices.Sorted(maps.Keys(files)) {
			data := files[name]
			theirs := name != PublicFile && !strings.HasPrefix(name, payloadPrefix) // tessera reads neither
			for i := n % c.step; i < len(data); i += c.step {
				for k := range c.flips {
					flip := flips[(n+k)%len(flips)]
					old := data[i]
					data[i] ^= flip
					if r := verify(t, inMemory(files), pub); r.OK {
						t.Fatalf("%s: byte %d ^ %#x is accepted", name, i, flip)
					}
					if theirs && k == 0 {
						if err := tessera(t, shelfFetcher(files), pub); err == nil && !otherSpelling(data, pub, b.checkpoint) {
							t.Fatalf("%s: byte %d ^ %#x is accepted by tessera", name, i, flip)
						}
					}
					data[i] = old
				}
				n++
			}
			// Longer, shorter, gone.
			for what, changed := range map[string][]byte{"longer": append(bytes.Clone(data), '\n'), "shorter": data[:len(data)-1], "empty": {}} {
				files[name] = changed
				if r := verify(t, inMemory(files), pub); r.OK && !(name == PublicFile && what == "shorter") { // the newline after the key
					t.Fatalf("%s %s is accepted", name, what)
				}
			}
			delete(files, name)
			if r := verify(t, inMemory(files), pub); r.OK {
				t.Fatalf("without %s it is accepted", name)
			}
			files[name] = data
		}
		for _, name := range []string{"more", "tile/0/001", "tile/0/000.p/3", "tile/1/000", "tile/entries/007", "tile/8/0/000", payloadPrefix + strings.Repeat("0", 64), "payload/x"} {
			files[name] = []byte("x")
			if r := verify(t, inMemory(files), pub); r.OK {
				t.Fatalf("with %s it is accepted", name)
			}
			delete(files, name)
		}
		if r := verify(t, inMemory(files), pub); !r.OK {
			t.Fatalf("not put back: %+v", r)
		}
		t.Logf("%d changes in an export of %d entries", n, c.entries)
	}
}

// otherSpelling tells whether data is the checkpoint with its base64 spelt otherwise, which x/mod's note reads as the same.
func otherSpelling(data []byte, pub string, checkpoint []byte) bool {
	v, err := note.NewVerifier(pub)
	if err != nil {
		return false
	}
	n, err := note.Open(data, note.VerifierList(v))
	m, err2 := note.Open(checkpoint, note.VerifierList(v))
	return err == nil && err2 == nil && n.Text == m.Text && bytes.Equal(data[:len(n.Text)], checkpoint[:len(n.Text)])
}

func TestOpenExport(t *testing.T) {
	b := newBook(t)
	b.calls(t, 300)
	b.sign(t)
	archive := export(t, b)
	if again := export(t, b); !bytes.Equal(archive, again) {
		t.Error("two exports of one log differ")
	}
	// With what came after the checkpoint the export stays as it was.
	b.calls(t, 30)
	if again := export(t, b); !bytes.Equal(archive, again) {
		t.Error("entries after the checkpoint changed the export")
	}
	files := untar(t, archive)
	for what, name := range map[string]string{"archive": write(t, archive), "directory": unpack(t, files)} {
		x, err := OpenExport(name)
		if err != nil {
			t.Fatal(err)
		}
		if r := verify(t, x, b.signer.PublicKey()); !r.OK || r.Checked != 300 {
			t.Errorf("%s: %+v", what, r)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	// Cut anywhere, it is refused or found wanting.
	for _, n := range []int{0, 1, 511, 512, 1024, 1536, len(archive) / 2, len(archive) - 1024 - 512, len(archive) - 1025} {
		x, err := OpenExport(write(t, archive[:n]))
		if err != nil {
			continue
		}
		if r := verify(t, x, ""); r.OK {
			t.Errorf("the first %d bytes of an export are accepted", n)
		}
		x.Close()
	}
}

func TestOpenExportRefuses(t *testing.T) {
	pack := func(headers ...tar.Header) []byte {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, h := range headers {
			h.Mode = 0o644
			if h.Typeflag == tar.TypeReg {
				h.Size = 1
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Size > 0 {
				if _, err := w.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	for name, archive := range map[string][]byte{
		"absolute":      pack(file("/etc/passwd")),
		"climbing":      pack(file("../x")),
		"climbing late": pack(file("tile/../../x")),
		"twice":         pack(file("checkpoint"), file("checkpoint")),
		"twice, spelt":  pack(file("checkpoint"), file("./checkpoint")),
		"symbolic link": pack(tar.Header{Typeflag: tar.TypeSymlink, Name: "checkpoint", Linkname: "/etc/passwd"}),
		"hard link":     pack(tar.Header{Typeflag: tar.TypeLink, Name: "checkpoint", Linkname: "audit.pub"}),
		"pipe":          pack(tar.Header{Typeflag: tar.TypeFifo, Name: "checkpoint"}),
		"device":        pack(tar.Header{Typeflag: tar.TypeChar, Name: "checkpoint"}),
		"pax":           pack(tar.Header{Typeflag: tar.TypeReg, Name: "checkpoint", PAXRecords: map[string]string{"A.b": "c"}}),
		"not tar":       bytes.Repeat([]byte("x"), 2048),
		"more after":    append(pack(file("checkpoint")), "more"...),
	} {
		if x, err := OpenExport(write(t, archive)); err == nil {
			t.Errorf("%s: opened with %v", name, x.names)
		}
	}

	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(secret, filepath.Join(dir, "checkpoint")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenExport(dir); err == nil {
		t.Error("a directory with a symbolic link is opened")
	}
	// A link that takes a file's place after opening is not followed, out of the directory or within it.
	for _, target := range []string{secret, "audit.pub"} {
		dir := unpack(t, map[string][]byte{"checkpoint": []byte("y"), "audit.pub": []byte("z")})
		x, err := OpenExport(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Remove(filepath.Join(dir, "checkpoint")), os.Symlink(target, filepath.Join(dir, "checkpoint"))); err != nil {
			t.Fatal(err)
		}
		if data, err := x.Checkpoint(); err == nil {
			t.Errorf("read %q through a link", data)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := OpenExport(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing opened: %v", err)
	}
}

func TestReadsAreBounded(t *testing.T) {
	files := map[string][]byte{
		"checkpoint": make([]byte, maxCheckpoint+1), "audit.pub": make([]byte, maxKey+1), "tile/0/000": make([]byte, tileBytes+1),
		"tile/entries/000": make([]byte, maxBundle+1), "tile/entries/x999/x999/x999/x999/x999/000": {}, "payload/x": []byte("x"),
	}
	x := inMemory(files)
	reads := map[string]func() ([]byte, error){
		"checkpoint": x.Checkpoint, "audit.pub": x.PublicKey, "tile": func() ([]byte, error) { return x.Tile(0, 0, tileWidth) },
		"bundle":  func() ([]byte, error) { _, err := x.Entries(0, 256); return nil, err },
		"payload": func() ([]byte, error) { return x.Payload("x") },
	}
	for what, read := range reads {
		if _, err := read(); err == nil {
			t.Errorf("%s: read", what)
		}
	}
	if r := verify(t, x, ""); r.OK {
		t.Errorf("accepted: %+v", r)
	}
}

func FuzzOpenExport(f *testing.F) {
	b := newBook(f)
	b.calls(f, 5)
	b.sign(f)
	archive := export(f, b)
	f.Add(archive)
	f.Add(archive[:1536])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, archive []byte) {
		x, err := OpenExport(write(t, archive))
		if err != nil {
			return
		}
		defer x.Close()
		if r := verify(t, x, b.signer.PublicKey()); r.OK && !maps.EqualFunc(untar(t, archive), untar(t, export(t, b)), bytes.Equal) {
			t.Fatal("another log passes as this one")
		}
	})
}

// FuzzVerify changes the content of one file.
func FuzzVerify(f *testing.F) {
	b := newBook(f)
	b.calls(f, 5)
	b.sign(f)
	sound := untar(f, export(f, b))
	for name, data := range sound {
		f.Add(name, data)
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		files := maps.Clone(sound)
		files[name] = data
		r := verify(t, inMemory(files), b.signer.PublicKey())
		if same := bytes.Equal(bytes.TrimSuffix(data, []byte("\n")), bytes.TrimSuffix(sound[name], []byte("\n"))); r.OK && !same {
			t.Fatalf("accepted with %q in %q", data, name)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	l := newBook(b)
	l.calls(b, 10000)
	l.sign(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if r := verify(b, l, ""); !r.OK {
			b.Fatal(r.Problems)
		}
		n += 10000
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
}

// TestExportOfADamagedLog: the export is evidence; it is written as far as it can be, and fails as the log does.
func TestExportOfADamagedLog(t *testing.T) {
	sound := newBook(t)
	sound.calls(t, 300)
	sound.sign(t)
	key := slices.Sorted(maps.Keys(sound.payloads))[0]
	for name, c := range map[string]struct {
		harm    func(*book)
		written bool
	}{
		"entry changed":   {func(b *book) { b.leaves[7] = []byte("{}") }, true},
		"tile changed":    {func(b *book) { b.tiles["tile/0/000"][0] ^= 1 }, true},
		"tile missing":    {func(b *book) { delete(b.tiles, "tile/0/000") }, true},
		"payload changed": {func(b *book) { b.payloads[key][0] ^= 1 }, true},
		"payload missing": {func(b *book) { delete(b.payloads, key) }, true},
		"entries missing": {func(b *book) { b.leaves = b.leaves[:256] }, false},
		"entry too long":  {func(b *book) { b.leaves[7] = make([]byte, MaxLeaf+1) }, false},
		"no checkpoint":   {func(b *book) { b.checkpoint = nil }, false},
		"bad checkpoint":  {func(b *book) { b.checkpoint[0] ^= 1 }, false},
		"bad key":         {func(b *book) { b.pub = []byte("x") }, false},
	} {
		b := sound.clone()
		c.harm(b)
		var buf bytes.Buffer
		if err := WriteExport(&buf, cut{b}); err != nil || !c.written {
			if c.written || err == nil {
				t.Errorf("%s: error %v", name, err)
			}
			continue
		}
		theirs, ours := verify(t, inMemory(untar(t, buf.Bytes())), ""), verify(t, b, "")
		if theirs.OK || firstBad(theirs) != firstBad(ours) {
			t.Errorf("%s: the export fails at %d, the log at %d: %+v", name, firstBad(theirs), firstBad(ours), theirs.Problems)
		}
	}
	if err := WriteExport(tinyDisk{}, sound); err == nil {
		t.Error("a full disk went unnoticed")
	}
}

// cut is a book that returns what it has when asked for more, as a query does.
type cut struct{ *book }

func (c cut) Entries(from, to int64) ([][]byte, error) {
	n := int64(len(c.leaves))
	return c.leaves[min(from, n):min(to, n)], nil
}

// tinyDisk has room for one block.
type tinyDisk struct{}

func (tinyDisk) Write(p []byte) (int, error) {
	if len(p) > 512 {
		return 512, errors.New("no space left")
	}
	return len(p), nil
}

// liar claims more entries than it returns, or fails.
type liar struct {
	cut
	size int64
	err  error
}

func (l liar) Size() (int64, error) { return l.size, l.err }

func TestVerifyBelievesNoSize(t *testing.T) {
	b := newBook(t)
	b.calls(t, 300)
	b.sign(t)
	for name, c := range map[string]struct {
		src   liar
		index int64
	}{
		"more":     {liar{cut{b}, 305, nil}, 300},
		"far more": {liar{cut{b}, 1 << 62, nil}, 300},
		"negative": {liar{cut{b}, -1, nil}, 0},
		"failing":  {liar{cut{b}, 300, errors.New("no answer")}, 0},
	} {
		if r := verify(t, c.src, ""); r.OK || firstBad(r) != c.index {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// An export ends with its checkpoint: WriteExport writes nothing beyond it. Entries beyond it were put there by somebody else, and
// an archive with them must not verify, whether or not the key is pinned.
func TestExportWithEntriesBeyondItsCheckpointFails(t *testing.T) {
	b := newBook(t)
	b.calls(t, 6)
	b.sign(t)
	files := untar(t, export(t, b))
	old := TilePath(EntriesLevel, 0, 6)
	bundle := bytes.Clone(files[old])
	delete(files, old)
	delete(files, TilePath(0, 0, 6))
	forged := *b.tree
	last, err := Unmarshal(b.leaves[len(b.leaves)-1])
	if err != nil {
		t.Fatal(err)
	}
	e := Entry{Index: 6, At: last.At, Kind: Change, Action: "session.release", Actor: "person:alice", Decision: "ok", Labels: []string{"secret"}, Reason: "forged"}
	leaf, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	forged.Append(leaf)
	files[TilePath(EntriesLevel, 0, 7)] = AppendBundle(bundle, leaf)
	tile, err := (&Tree{state: forged.state, saved: forged.state}).Snapshot().Tile(0, 0, 7, nil)
	if err != nil {
		t.Fatal(err)
	}
	files[TilePath(0, 0, 7)] = tile
	x, err := OpenExport(unpack(t, files))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	r, err := Verify(x, b.signer.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	if r.OK {
		t.Errorf("an export with a forged entry is said to be whole (exit code 0, \"nothing was changed\"): %+v", r)
	}
}
