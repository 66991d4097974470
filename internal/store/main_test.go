package store

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

const databaseFile = DatabaseFile

func TestMain(m *testing.M) {
	if dir := os.Getenv("SALLYPORT_STORE_CRASH"); dir != "" {
		crashWriter(dir) // never returns
	}
	goleak.VerifyTestMain(m)
}

var dirs sync.Map

// dataDir is one directory for each test.
func dataDir(t testing.TB) string {
	dir, there := dirs.LoadOrStore(t.Name(), filepath.Join(t.TempDir(), "data"))
	if !there {
		t.Cleanup(func() { dirs.Delete(t.Name()) })
	}
	return dir.(string)
}
