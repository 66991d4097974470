package store

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// StateKeyFile holds the key of the MACs of all rows that decide. Who has it and can write the database can make rows. Programs that share one
// database share the file.
const StateKeyFile = "state.key"

const stateKeyPrefix = "sallyport-state+"

// stateKey makes MACs and digests. Safe for concurrent use.
type stateKey struct {
	makers sync.Pool // of *maker
}

// maker is one user's hashes, so that their keys are set up once.
type maker struct {
	row, element, state hash.Hash
	buf                 []byte
}

// newKeyFile is where a new key lies until rows were proved with it.
const newKeyFile = StateKeyFile + ".new"

// readStateKey reads the key; fs.ErrNotExist if there is none.
func readStateKey(dir string) (*stateKey, error) { return readKey(filepath.Join(dir, StateKeyFile)) }

func readKey(path string) (*stateKey, error) {
	text, err := audit.ReadKeyFile(path)
	if err != nil {
		return nil, err
	}
	encoded, ok := strings.CutPrefix(text, stateKeyPrefix)
	secret, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || len(secret) != 32 {
		return nil, fmt.Errorf("%s is not a key as the program writes it: put it back from your backup", path)
	}
	return newStateKey(secret), nil
}

// createStateKey makes a key under its first name.
func createStateKey(dir string) (*stateKey, error) {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	path := filepath.Join(dir, newKeyFile)
	err := os.Remove(path) // of a start that was interrupted before it proved anything with it
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = audit.WriteKeyFile(path, stateKeyPrefix+base64.StdEncoding.EncodeToString(secret)+"\n")
	}
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	return newStateKey(secret), nil
}

// keepNewKey gives a new key its name, now that rows are proved with it.
func keepNewKey(dir string) error {
	path, made := filepath.Join(dir, StateKeyFile), filepath.Join(dir, newKeyFile)
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		var text string
		if text, err = audit.ReadKeyFile(made); err == nil {
			err = audit.WriteKeyFile(path, text+"\n")
		}
	}
	if err == nil {
		err = os.Remove(made)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.ConfigurationInvalid, "The key of the stored state can't be kept as %s: %v.", StateKeyFile, err).Try("Check the disk and the permissions of the data directory.")
	}
	return nil
}

func newStateKey(secret []byte) *stateKey {
	derive := func(purpose string) []byte {
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(purpose))
		return h.Sum(nil)
	}
	row, element, state := derive("row"), derive("element"), derive("state")
	return &stateKey{makers: sync.Pool{New: func() any {
		return &maker{row: hmac.New(sha256.New, row), element: hmac.New(sha256.New, element), state: hmac.New(sha256.New, state)}
	}}}
}

// sum makes the keyed hash of what was put into the maker's buffer.
func (m *maker) sum(h hash.Hash) []byte {
	h.Reset()
	h.Write(m.buf)
	return h.Sum(nil)
}

// value adds a value so that no two lists of values give the same bytes. A text and a blob of the same bytes differ, because no query that looks for
// the one finds the other. NULL and the empty blob are one.
func (m *maker) value(v driver.Value) {
	switch v := v.(type) {
	case nil:
		m.buf = append(m.buf, 'n')
	case int64:
		m.buf = binary.BigEndian.AppendUint64(append(m.buf, 'i'), uint64(v))
	case string:
		m.buf = append(binary.BigEndian.AppendUint64(append(m.buf, 't'), uint64(len(v))), v...)
	case []byte:
		if len(v) == 0 {
			m.buf = append(m.buf, 'n')
			return
		}
		m.buf = append(binary.BigEndian.AppendUint64(append(m.buf, 'b'), uint64(len(v))), v...)
	default:
		panic(fmt.Sprintf("store: a column of type %T", v)) // the driver gives and takes no others
	}
}

// mac is the MAC of a row: over its table, the entry that changed it last, the MAC of the row before it in its chain if there is one, and all values.
func (k *stateKey) mac(t *table, entry int64, before []byte, values ...driver.Value) []byte {
	m := k.makers.Get().(*maker)
	defer k.makers.Put(m)
	m.buf = m.buf[:0]
	m.value(t.name)
	m.value(entry)
	m.value(before)
	for _, v := range values {
		m.value(v)
	}
	return m.sum(m.row)
}

// text is the keyed hash of a value that is proved apart from its row or is proved as a whole.
func (k *stateKey) digest(values ...driver.Value) string {
	m := k.makers.Get().(*maker)
	defer k.makers.Put(m)
	m.buf = m.buf[:0]
	for _, v := range values {
		m.value(v)
	}
	return base64.StdEncoding.EncodeToString(m.sum(m.state))
}

// total is the sum, modulo 2^256, of a keyed hash for each row: a digest of a set that changes with a row in the time that the row takes. docs/design.md
// says why it is sound.
type total [4]uint64

// plus adds a version of a row; minus takes it away.
func (s *total) plus(k *stateKey, t *table, key string, entry int64) {
	s.add(k.element(t.name, key, entry))
}

func (s *total) minus(k *stateKey, t *table, key string, entry int64) {
	s.sub(k.element(t.name, key, entry))
}

// element is the keyed hash of one member of the set.
func (k *stateKey) element(what, key string, n int64) (e total) {
	m := k.makers.Get().(*maker)
	defer k.makers.Put(m)
	m.buf = m.buf[:0]
	m.value(what)
	m.value(key)
	m.value(n)
	sum := m.sum(m.element)
	for i := range e {
		e[i] = binary.BigEndian.Uint64(sum[8*i:])
	}
	return e
}

func (s *total) add(e total) {
	var carry uint64
	for i := range s {
		s[i], carry = bits.Add64(s[i], e[i], carry)
	}
}

func (s *total) sub(e total) {
	var borrow uint64
	for i := range s {
		s[i], borrow = bits.Sub64(s[i], e[i], borrow)
	}
}

// digestOf is what a checkpoint of size entries says of the state. The sum itself is nowhere: who saw sums could solve for rows that make the same.
func (k *stateKey) digestOf(size int64, s total) string {
	b := make([]byte, 0, 32)
	for _, w := range s {
		b = binary.BigEndian.AppendUint64(b, w)
	}
	return k.digest("state", size, b)
}

// keyUnusable says what is wrong with the key file.
func keyUnusable(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return fault.Wrap(err, fault.ConfigurationInvalid, "The key of the stored state, %s, can't be read, and the newest checkpoint says that the state was proved with it.", StateKeyFile).
			Try("Put %s back from your backup. Without it nobody can tell whether the database was changed.", StateKeyFile)
	}
	return fault.Wrap(err, fault.ConfigurationInvalid, "The key of the stored state can't be used: %v.", err).Try("Put %s back from your backup.", StateKeyFile)
}
