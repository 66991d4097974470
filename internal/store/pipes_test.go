package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"sallyport.example/internal/audit"
)

// TestPipesInTheWay has pipes where the gateway's own files were: a start that opens one for reading would wait for a writer for ever.
func TestPipesInTheWay(t *testing.T) {
	db := openDB(t)
	record(t, db, 3)
	must(t, db.Close())
	for _, name := range []string{AnchorFile, damageFile, audit.KeyFile, audit.PublicFile, StateKeyFile, databaseFile + "-journal", databaseFile + "-wal"} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, filepath.Dir(db.w.path))
			path := filepath.Join(dir, name)
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			must(t, syscall.Mkfifo(path, 0o600))
			ended := make(chan error, 1)
			go func() {
				db, err := Open(dir, Options{})
				if err == nil {
					err = db.Close()
					if name != damageFile {
						err = errors.New("it starts")
					}
				} else {
					err = nil
				}
				ended <- err
			}()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the start waits for a writer")
			}
			if r, err := OpenReadOnly(dir); err == nil { // it must end, too
				must(t, r.Close())
			}
		})
	}
}
