package backup

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/store"
)

// keys.sealed is the line below, 16 bytes of salt, the number of rounds (32 bits, big-endian), and a JSON object of file names and contents, encrypted
// with AES-256-GCM (a 12-byte nonce before it) under PBKDF2-HMAC-SHA256 of the passphrase. All that comes before the nonce is authenticated, too.
const (
	sealedHead = "sallyport keys v1\n"
	saltSize   = 16
	maxRounds  = 20_000_000 // a file from elsewhere must not keep the program busy for hours

	// MinPassphrase is the least length of a passphrase, in bytes. Who has the file can try as many as they like.
	MinPassphrase = 12
)

// rounds is how many a new backup takes, and the fewest that an old one may have. Tests have fewer.
var rounds uint32 = 1_000_000

func sealKeys(dir, passphrase string, needed []string) ([]byte, error) {
	if len(passphrase) < MinPassphrase {
		return nil, fault.New(fault.ConfigurationInvalid, "The passphrase has fewer than %d bytes.", MinPassphrase).Try("Take a longer one: several words that nobody would guess.")
	}
	keys := map[string]string{}
	for _, name := range needed {
		b, err := readKey(filepath.Join(dir, name))
		if err != nil {
			return nil, fault.Wrap(err, fault.ConfigurationInvalid, "The key %s can't be read", name)
		}
		keys[name] = string(b)
	}
	text, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	head := append([]byte(sealedHead), make([]byte, saltSize)...)
	rand.Read(head[len(sealedHead):]) // never fails
	head = binary.BigEndian.AppendUint32(head, rounds)
	box, err := boxOf(passphrase, head)
	if err != nil {
		return nil, err
	}
	return append(head, box.Seal(nil, nil, text, head)...), nil
}

// boxOf is the cipher of a sealed file's head.
func boxOf(passphrase string, head []byte) (cipher.AEAD, error) {
	n := int(binary.BigEndian.Uint32(head[len(sealedHead)+saltSize:]))
	key, err := pbkdf2.Key(sha256.New, passphrase, head[len(sealedHead):len(sealedHead)+saltSize], n, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func openKeys(sealed []byte, passphrase string) (keys map[string]string, err error) {
	const head = len(sealedHead) + saltSize + 4
	if len(sealed) < head || !bytes.HasPrefix(sealed, []byte(sealedHead)) {
		return nil, notABackup(nil, "%s can't be read.", sealedName)
	}
	if n := binary.BigEndian.Uint32(sealed[head-4:]); n < rounds || n > maxRounds {
		return nil, notABackup(nil, "%s asks for %d rounds, and no backup does.", sealedName, n)
	}
	box, err := boxOf(passphrase, sealed[:head])
	if err != nil {
		return nil, err
	}
	text, err := box.Open(nil, nil, sealed[head:], sealed[:head])
	if err != nil {
		return nil, fault.New(fault.ConfigurationInvalid, "The passphrase is not the one of this backup, or its keys were changed.")
	}
	if err := json.Unmarshal(text, &keys); err != nil {
		return nil, notABackup(err, "%s can't be read.", sealedName)
	}
	for name := range keys {
		if !slices.Contains(keyFiles, name) {
			return nil, notABackup(nil, "%s holds %.80q, which is no key.", sealedName, name)
		}
	}
	return keys, nil
}

// putKeys writes the keys that the database in the directory needs into it: those of the backup, or those that were kept apart. Others it leaves out,
// because a start takes the state.key beside a database as a sign that its rows were proved.
func (how Restoring) putKeys(ctx context.Context, dir string, m Manifest) error {
	needed, err := needs(ctx, dir)
	if err != nil {
		return err
	}
	keys := map[string]string{}
	sealed := filepath.Join(dir, sealedName)
	switch {
	case how.Keys != "":
		for _, name := range keyFiles {
			b, err := readKey(filepath.Join(how.Keys, name))
			if errors.Is(err, fs.ErrNotExist) && name != audit.KeyFile {
				continue
			}
			if err != nil {
				return fault.Wrap(err, fault.ConfigurationInvalid, "The key %s can't be read", name).Try("Name the folder that the keys are kept in with --keys.")
			}
			keys[name] = string(b)
		}
	case !m.Keys:
		return fault.New(fault.ConfigurationInvalid, "There are no keys in this backup, and the log can't go on without them.").
			Try("Name the folder that they are kept in with --keys (%s is needed).", audit.KeyFile)
	case how.Passphrase == "":
		return fault.New(fault.ConfigurationInvalid, "The keys in this backup are encrypted, and there is no passphrase.").
			Try("Give it with --passphrase-file, or run the command at a terminal.")
	default:
		b, err := os.ReadFile(sealed)
		if err != nil {
			return err
		}
		if keys, err = openKeys(b, how.Passphrase); err != nil {
			return err
		}
	}
	for name := range keys {
		if !slices.Contains(needed, name) {
			delete(keys, name)
		}
	}
	for _, name := range needed {
		if keys[name] == "" {
			return fault.New(fault.ConfigurationInvalid, "The key %s is missing, and what was backed up can't be used without it.", name).
				Try("Put it into the folder that --keys names.")
		}
	}
	for name, text := range keys {
		if err := write(filepath.Join(dir, name), bytes.NewReader([]byte(text))); err != nil {
			return err
		}
	}
	if m.Keys {
		if err := os.Remove(sealed); err != nil {
			return err
		}
	}
	if _, err := audit.LoadOrCreateKey(dir); err != nil {
		return fault.Wrap(err, fault.ConfigurationInvalid, "The keys are not those of this backup")
	}
	return nil
}

// needs are the keys that the database in a folder can't be used without.
func needs(ctx context.Context, dir string) ([]string, error) {
	r, err := store.OpenReadOnly(dir)
	if err != nil {
		return nil, err
	}
	proved, err := r.Proved(ctx)
	if err = errors.Join(err, r.Close()); !proved {
		return keyFiles[:1], err
	}
	return keyFiles, err
}

func readKey(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer for ever
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err == nil && len(b) > maxSmall {
		err = fmt.Errorf("%s is too large to be a key", path)
	}
	return b, err
}
