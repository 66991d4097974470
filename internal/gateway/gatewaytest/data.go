// Package gatewaytest makes what tests of several packages need around a gateway. Only tests import it.
package gatewaytest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sallyport.example/internal/store"
)

// DataDir makes dir a data directory with an empty log, as the store leaves it that was opened and closed once. The tests of one program
// share the work of making it, and so the signing key: a copy costs a small part of what the migrations do.
func DataDir(t testing.TB, dir string) string {
	t.Helper()
	files, err := template()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// template reads the files of a new data directory.
var template = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "sallyport-test-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	db, err := store.Open(dir, store.Options{})
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
})
