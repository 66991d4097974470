package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Kept is a file as it was before the gateway's entry was put into it. It has the credentials that stood there, so it is kept in the person's own
// configuration and not beside the file, which may lie in a repository.
type Kept struct {
	Path   string    `json:"path"`
	At     time.Time `json:"at"`
	Before []byte    `json:"before"`
	After  []byte    `json:"after"`

	file string
}

// prefixOf begins the names of what is kept of a file.
func prefixOf(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:12]) + "-"
}

// Keep writes down what a file was, and what it will be.
func Keep(dir, path string, before, after []byte, at time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ignored, err := os.OpenFile(filepath.Join(dir, ".gitignore"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // some people keep their configuration in a repository
	if err == nil {
		_, err = ignored.WriteString("*\n")
		err = errors.Join(err, ignored.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	raw, err := json.Marshal(Kept{Path: path, At: at.UTC(), Before: before, After: after})
	if err != nil {
		return err
	}
	name := filepath.Join(dir, prefixOf(path)+at.UTC().Format("20060102T150405.000000000")+".json")
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(raw)
	return errors.Join(err, out.Sync(), out.Close())
}

// LastKept returns what was kept of a file last; nil if nothing was.
func LastKept(dir, path string) (*Kept, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i := -1
	for j, n := range slices.All(names) { // sorted by name, so by time
		if strings.HasPrefix(n.Name(), prefixOf(path)) {
			i = j
		}
	}
	if i < 0 {
		return nil, nil
	}
	k := &Kept{file: filepath.Join(dir, names[i].Name())}
	raw, err := readRegular(k.file, 4*maxFile)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, k); err != nil || k.Path != path {
		return nil, fmt.Errorf("%s does not hold what was kept of %s", k.file, path)
	}
	return k, nil
}

// Forget removes what was kept, once it is back in its place.
func (k *Kept) Forget() error { return os.Remove(k.file) }
