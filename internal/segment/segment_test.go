package segment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, first := range []int64{0, Least, 1000, 1_000_000, 999_999_999_999, 1_000_000_000_000} {
		if got, ok := First(Name(first)); !ok || got != first {
			t.Errorf("%s is %d, %v", Name(first), got, ok)
		}
	}
	for _, name := range []string{"", "sallyport", "sallyport-.db", "sallyport-1000.db", "sallyport-000000000000.db", "sallyport-000000000256.db", "sallyport--00000001000.db",
		"sallyport-000000001000.db.new", "sallyport-000000001000.db-wal", "x/sallyport.db", "sallyport-00000000100x.db", "sallyport-99999999999999999999.db"} {
		if first, ok := First(name); ok {
			t.Errorf("%q is taken for %d", name, first)
		}
	}
	for first, want := range map[int64]int64{0: 0, 257: 256, 511: 256, 512: 256, 513: 512, 1000: 768} {
		if got := Base(first); got != want {
			t.Errorf("the file from %d on begins with entry %d, not %d", first, got, want)
		}
	}
}

// Only what Make leaves is removed.
func TestCleanUp(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"sallyport.db", "sallyport-000000001000.db", "sallyport-000000002000.db.new", "sallyport-000000002000.db.new-wal", "audit.checkpoint.new", "mine.db.new"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := CleanUp(dir)
	left, failed := os.ReadDir(dir)
	if err != nil || failed != nil || len(removed) != 2 || len(left) != 4 {
		t.Errorf("removed %v, left %v, %v, %v", removed, left, err, failed)
	}
	if first, ok, err := Newest(dir); err != nil || !ok || first != 1000 {
		t.Errorf("%d, %v, %v", first, ok, err)
	}
}

// A copy that is not what was sealed is not left behind, and nothing is replaced.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, []byte("sealed"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, sum, err := Sum(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Copy(from, to, strings.Repeat("0", 64)); err == nil || !strings.Contains(err.Error(), "not as it was sealed") {
		t.Error(err)
	}
	if err := Copy(from, to, sum); err != nil {
		t.Error(err)
	}
	if err := Copy(from, to, sum); err == nil {
		t.Error("a file was replaced")
	}
}
