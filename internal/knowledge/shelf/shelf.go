// Package shelf keeps the files of the knowledge store: knowledge.db with the sealed texts of all versions and the key of each document, and the indexes, one
// file for each snapshot.
//
// Promises: a text is sealed (AES-256-GCM) under a key of its document alone before it is written; the table of texts refuses every change by trigger;
// a key that is destroyed leaves nothing in the file or its write-ahead log. An index follows from the texts in it alone: the same texts make the same
// terms and postings, whatever was built before, and there is one table of them for each collection and set of labels.
package shelf

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	_ "modernc.org/sqlite" // the driver of database/sql

	"sallyport.example/internal/fault"
)

// File is the database of the texts, in the data directory; Indexes the folder of the indexes.
const (
	File    = "knowledge.db"
	Indexes = "index"
)

const schema = `
CREATE TABLE IF NOT EXISTS knowledge_contents (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE CHECK (id <> ''),
	sealed BLOB NOT NULL -- nonce and ciphertext under the document's key; the id is bound to it
);
CREATE TRIGGER IF NOT EXISTS knowledge_contents_update BEFORE UPDATE ON knowledge_contents
BEGIN SELECT RAISE(ABORT, 'knowledge_contents is append-only'); END;
CREATE TRIGGER IF NOT EXISTS knowledge_contents_delete BEFORE DELETE ON knowledge_contents
BEGIN SELECT RAISE(ABORT, 'knowledge_contents is append-only'); END;
CREATE TRIGGER IF NOT EXISTS knowledge_contents_insert BEFORE INSERT ON knowledge_contents
WHEN EXISTS (SELECT 1 FROM knowledge_contents WHERE id = NEW.id OR n = NEW.n)
BEGIN SELECT RAISE(ABORT, 'knowledge_contents is append-only'); END;
CREATE TABLE IF NOT EXISTS document_keys (document TEXT PRIMARY KEY NOT NULL CHECK (document <> ''), key BLOB NOT NULL CHECK (length(key) = 32)) WITHOUT ROWID;
`

// Shelf is the open files. Safe for concurrent use.
type Shelf struct {
	dir     string
	db      *sql.DB
	writing sync.Mutex // one transaction at a time
	reading sync.Mutex // one index is read and verified at a time; before mu

	mu    sync.Mutex // guards the rest
	open  map[string]*Index
	swaps int             // grows when a file is put in place of another, or removed
	parts map[string]bool // file names of indexes that are being built
}

func dsn(path, params string) string {
	return (&url.URL{Scheme: "file", Path: path, RawQuery: params}).String()
}

const shelfParams = "_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=trusted_schema(0)&_pragma=recursive_triggers(1)&_pragma=secure_delete(1)&_dqs=0&_defensive=1"

// Open opens the files of a data directory, and makes them if need be.
func Open(dir string) (s *Shelf, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, File)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would make it readable for others
	if err == nil {
		err = errors.Join(f.Close(), os.MkdirAll(filepath.Join(dir, Indexes), 0o700))
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.ConfigurationInvalid, "%s can't be written", path)
	}
	db, err := sql.Open("sqlite", dsn(path, shelfParams))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	s = &Shelf{dir: dir, db: db, open: map[string]*Index{}, parts: map[string]bool{}}
	if _, err := db.Exec(schema + embeddingsSchema); err != nil {
		return nil, errors.Join(unavailable(err), db.Close())
	}
	return s, nil
}

// Close closes the files.
func (s *Shelf) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, x := range s.open {
		errs = append(errs, x.db.Close())
	}
	clear(s.open)
	return errors.Join(append(errs, s.db.Close())...)
}

func unavailable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.Wrap(err, fault.StoreUnavailable, "%s", fault.StoreUnavailable.Sentence())
}

// Text is a text to keep.
type Text struct {
	Document string
	ID       string // of the text, new
	Content  string
}

// NewTextID is an id that no text has.
func NewTextID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program when it can't
	return "text_" + hex.EncodeToString(b[:])
}

// Put keeps texts, durably, and returns the keyed hash of each. A document that has no key yet gets one.
func (s *Shelf) Put(ctx context.Context, texts []Text) (hashes []string, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, unavailable(err)
	}
	defer tx.Rollback() // does nothing after the commit
	for _, t := range texts {
		var fresh [32]byte
		rand.Read(fresh[:])
		if _, err := tx.ExecContext(ctx, "INSERT INTO document_keys (document, key) VALUES ($1, $2) ON CONFLICT (document) DO NOTHING", t.Document, fresh[:]); err != nil {
			return nil, unavailable(err)
		}
		var key []byte
		if err := tx.QueryRowContext(ctx, "SELECT key FROM document_keys WHERE document = $1", t.Document).Scan(&key); err != nil {
			return nil, unavailable(err)
		}
		sealed, err := seal(key, t.ID, t.Content)
		if err != nil {
			return nil, err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO knowledge_contents (id, sealed) VALUES ($1, $2)", t.ID, sealed); err != nil {
			return nil, unavailable(err)
		}
		hashes = append(hashes, hashOf(key, t.Content))
	}
	return hashes, unavailable(tx.Commit())
}

// Get returns a text and its keyed hash. NotFound says that it is not there, or that the document's key was destroyed.
func (s *Shelf) Get(ctx context.Context, document, id string) (content, hash string, err error) {
	var sealed, key []byte
	err = s.db.QueryRowContext(ctx, "SELECT c.sealed, k.key FROM knowledge_contents c, document_keys k WHERE c.id = $1 AND k.document = $2", id, document).Scan(&sealed, &key)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", fault.New(fault.NotFound, "The text of %s is not here.", document)
	}
	if err != nil {
		return "", "", unavailable(err)
	}
	if content, err = unseal(key, id, sealed); err != nil {
		return "", "", fault.Wrap(err, fault.StoreUnavailable, "The text of %s in %s was changed.", document, File).
			Try("Find out who can write the data directory, and put back a backup of the whole directory.")
	}
	return content, hashOf(key, content), nil
}

// Destroy destroys the keys of documents: none of their texts can be read any more, here or in a copy of the table of texts. Nothing of a key is left in
// the file or in its write-ahead log. After an error it can be called again.
func (s *Shelf) Destroy(ctx context.Context, documents []string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	for _, d := range documents {
		if _, err := s.db.ExecContext(ctx, "DELETE FROM document_keys WHERE document = $1", d); err != nil {
			return unavailable(err)
		}
	}
	var busy, frames, folded int
	if err := s.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &folded); err != nil || busy != 0 {
		return fault.Wrap(errors.Join(err, fmt.Errorf("busy: %d", busy)), fault.StoreUnavailable, "The keys are destroyed, but the write-ahead log of %s still has them: something reads the file.", File).
			Try("Wait until a backup of it has ended, and do the same again.")
	}
	return nil
}

// Keyed reports which of the documents have a key.
func (s *Shelf) Keyed(ctx context.Context, documents []string) (keyed []string, err error) {
	for _, d := range documents {
		var n int
		if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM document_keys WHERE document = $1", d).Scan(&n); err != nil {
			return nil, unavailable(err)
		}
		if n > 0 {
			keyed = append(keyed, d)
		}
	}
	return keyed, nil
}

// CopyTo writes the texts and keys of a data directory to a new file, as they are at one moment. It reports false where there are none.
func CopyTo(ctx context.Context, dir, file string) (there bool, err error) {
	path, err := filepath.Abs(filepath.Join(dir, File))
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	db, err := sql.Open("sqlite", dsn(path, "mode=ro&_pragma=busy_timeout(2000)"))
	if err != nil {
		return false, unavailable(err)
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO $1", file)
	if err = errors.Join(unavailable(err), db.Close()); err == nil {
		err = os.Chmod(file, 0o600)
	}
	return true, err
}

func aead(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func seal(key []byte, id, content string) ([]byte, error) {
	box, err := aead(key)
	if err != nil {
		return nil, err
	}
	return box.Seal(nil, nil, []byte(content), []byte(id)), nil
}

func unseal(key []byte, id string, sealed []byte) (string, error) {
	box, err := aead(key)
	if err != nil {
		return "", err
	}
	b, err := box.Open(nil, nil, sealed, []byte(id))
	return string(b), err
}

// hashOf is the hash of a text that says nothing to whoever has not the key.
func hashOf(key []byte, content string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("content\x00"))
	h.Write([]byte(content))
	return hex.EncodeToString(h.Sum(nil))
}

// groupName is the name of the table of a collection and a set of labels.
func groupName(source string, labels []string) string {
	return source + "\x00" + strings.Join(labels, "\x00")
}
