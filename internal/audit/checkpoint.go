package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// The files of LoadOrCreateKey.
const (
	KeyFile    = "signing.key" // note private key; its holder can sign another history
	PublicFile = "audit.pub"   // note verifier key
)

const (
	maxKey        = 1 << 10
	maxFile       = 1 << 20
	maxCheckpoint = 1 << 14
)

// Signer signs checkpoints. It is safe for concurrent use.
type Signer struct {
	signer note.Signer
	pub    string
}

// LoadOrCreateKey reads the log's key from dir, or makes one on first start: signing.key and audit.pub, both 0600 and durable
// when it returns. The log's origin is the key's name, "sallyport/" and random digits, and stays with the key.
//
// It refuses a key that others can read, one that doesn't belong to audit.pub, and an audit.pub without a key: a new key
// would make the old log unverifiable without anybody having asked for it.
func LoadOrCreateKey(dir string) (*Signer, error) {
	keyPath, pubPath := filepath.Join(dir, KeyFile), filepath.Join(dir, PublicFile)
	secret, err := ReadKeyFile(keyPath)
	if errors.Is(err, fs.ErrNotExist) {
		_, there := os.Lstat(pubPath)
		if secret, err = ReadKeyFile(keyPath); there == nil && errors.Is(err, fs.ErrNotExist) { // read again: another start may have made both
			return nil, fmt.Errorf("%s exists and %s does not: restore the key from your backup (without it the log can't go on)", pubPath, keyPath)
		}
		if errors.Is(err, fs.ErrNotExist) {
			if err := createKey(keyPath); err != nil {
				return nil, fmt.Errorf("create %s: %w", keyPath, err)
			}
			secret, err = ReadKeyFile(keyPath)
		}
	}
	if err != nil {
		return nil, err
	}
	s, err := newSigner(secret)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyPath, err)
	}
	pub, err := ReadKeyFile(pubPath)
	if errors.Is(err, fs.ErrNotExist) {
		if err := WriteKeyFile(pubPath, s.pub+"\n"); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("create %s: %w", pubPath, err)
		}
		pub, err = ReadKeyFile(pubPath)
	}
	if err != nil {
		return nil, err
	}
	if pub != s.pub {
		return nil, fmt.Errorf("%s is not the public key of %s: restore the pair from your backup", pubPath, keyPath)
	}
	return s, nil
}

func createKey(path string) error {
	var id [8]byte
	rand.Read(id[:]) // never fails
	secret, _, err := note.GenerateKey(rand.Reader, "sallyport/"+hex.EncodeToString(id[:]))
	if err != nil {
		return err
	}
	if err := WriteKeyFile(path, secret+"\n"); err != nil && !errors.Is(err, fs.ErrExist) { // another start was first: take its key
		return err
	}
	return nil
}

// WriteKeyFile makes a key file (0600) durable under its name, or not there at all. It never replaces one.
func WriteKeyFile(path, text string) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".key-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// ReplaceFile writes a private file so that at every moment, and after a crash at any, it is there whole: the old one or the new one. The caller lets no
// other writer in: what a crash or somebody else left beside it, at path+".new", is removed. It is never written to, because it may be a link to another file.
func ReplaceFile(path string, data []byte) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // O_EXCL follows no link
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// ReadFile reads a file that the program keeps: a regular one, of a bounded size. Opening a pipe would wait for a writer for ever.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxFile {
		return nil, fmt.Errorf("%s is in the way: it is not the gateway's own file", path)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadKeyFile reads a key file without its newline. It refuses one that others can read.
func ReadKeyFile(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxKey {
		return "", fmt.Errorf("%s is not a key file", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s can be read by others: chmod 600 it, and consider the key known if they were not to have it", path)
	}
	data, err := ReadFile(path)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(data), "\n"), nil
}

func newSigner(secret string) (*Signer, error) {
	signer, err := note.NewSigner(secret)
	if err != nil {
		return nil, fmt.Errorf("not a note private key: %w", err)
	}
	// "PRIVATE+KEY+<name>+<hash>+<base64 of algorithm and seed>", as NewSigner has just found; base64 may hold plus signs too.
	parts := strings.SplitN(secret, "+", 5)
	seed, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return nil, errors.New("not an Ed25519 key")
	}
	pub, err := note.NewEd25519VerifierKey(signer.Name(), ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	return &Signer{signer: signer, pub: pub}, nil
}

// Origin names the log; it is the first line of its checkpoints.
func (s *Signer) Origin() string { return s.signer.Name() }

// PublicKey is the note verifier key: what audit.pub holds.
func (s *Signer) PublicKey() string { return s.pub }

// Checkpoint signs that the log of size entries has that root, and that the store's state had that digest then: a C2SP tlog-checkpoint. The
// digest is its one extension line. With "" the log has no state, and the line is left out.
func (s *Signer) Checkpoint(size int64, root tlog.Hash, state string) ([]byte, error) {
	if size < 0 {
		return nil, fmt.Errorf("audit: checkpoint of %d entries", size)
	}
	if state != "" && !isDigest(state) {
		return nil, fmt.Errorf("audit: %.80q is not the digest of a state", state)
	}
	return note.Sign(&note.Note{Text: Checkpoint{s.Origin(), size, root, state}.text()}, s.signer)
}

// statePrefix begins the extension line of a checkpoint that has the digest of the state.
const statePrefix = "sallyport-state "

// Checkpoint is the content of a signed checkpoint.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
	State  string // digest of the store's state when the log had that size, base64; "" in checkpoints of programs that had none
}

func (c Checkpoint) text() string {
	text := fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, c.Root)
	if c.State != "" {
		text += statePrefix + c.State + "\n"
	}
	return text
}

// isDigest tells whether s is 32 bytes in the one spelling of base64 that the log writes.
func isDigest(s string) bool {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return err == nil && len(b) == 32 && base64.StdEncoding.EncodeToString(b) == s
}

// ParsePublicKey reads a note verifier key, with or without a newline after it.
func ParsePublicKey(pub string) (note.Verifier, error) {
	key := strings.TrimSuffix(pub, "\n")
	if len(key) > maxKey {
		return nil, errors.New("not a public key: too long")
	}
	v, err := note.NewVerifier(key)
	if err != nil {
		return nil, fmt.Errorf("not a public key as in %s (<name>+<hash>+<base64>): %w", PublicFile, err)
	}
	_, encoded, _ := strings.Cut(key[len(v.Name())+1:], "+")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if want := fmt.Sprintf("%s+%08x+%s", v.Name(), v.KeyHash(), base64.StdEncoding.EncodeToString(raw)); err != nil || key != want {
		return nil, errors.New("not a public key as the log writes it: another encoding of the same key")
	}
	return v, nil
}

// OpenCheckpoint checks the signature and reads the checkpoint. It accepts only the bytes that Signer.Checkpoint writes: one
// signature, no more lines than the state's, no other spelling of the same.
func OpenCheckpoint(data []byte, v note.Verifier) (Checkpoint, error) {
	if len(data) > maxCheckpoint {
		return Checkpoint{}, fmt.Errorf("not a checkpoint: %d bytes", len(data))
	}
	n, err := note.Open(data, note.VerifierList(v))
	var unknown *note.UnverifiedNoteError
	if errors.As(err, &unknown) {
		return Checkpoint{}, fmt.Errorf("the checkpoint is not signed with the key of %s", v.Name())
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("not a signed checkpoint: %w", err)
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) != 4 && len(lines) != 5 || lines[0] != v.Name() {
		return Checkpoint{}, fmt.Errorf("not a checkpoint of %s: origin, size and root, each on its line", v.Name())
	}
	c := Checkpoint{Origin: lines[0]}
	if len(lines) == 5 {
		state, ok := strings.CutPrefix(lines[3], statePrefix)
		if !ok || !isDigest(state) {
			return Checkpoint{}, fmt.Errorf("not a checkpoint: state %.80q", lines[3])
		}
		c.State = state
	}
	if c.Size, err = strconv.ParseInt(lines[1], 10, 64); err != nil || c.Size < 0 {
		return Checkpoint{}, fmt.Errorf("not a checkpoint: size %.40q", lines[1])
	}
	if c.Root, err = tlog.ParseHash(lines[2]); err != nil {
		return Checkpoint{}, fmt.Errorf("not a checkpoint: root %.80q", lines[2])
	}
	// base64 has several spellings for some values; the log writes one.
	sig, err := base64.StdEncoding.Strict().DecodeString(n.Sigs[0].Base64)
	want := fmt.Sprintf("%s\n— %s %s\n", c.text(), v.Name(), base64.StdEncoding.EncodeToString(sig))
	if err != nil || !bytes.Equal(data, []byte(want)) {
		return Checkpoint{}, errors.New("not a checkpoint as the log writes them: more signatures, or another encoding of the same values")
	}
	return c, nil
}
