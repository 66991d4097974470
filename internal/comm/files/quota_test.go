//go:build unix

package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

func TestAfford(t *testing.T) {
	d := newWorld(t, Options{MaxWorkspace: 1000, MaxFiles: 10}) // 2 folders and 3 files of 2 bytes are there
	afford := func() error { return d.s.Afford(t.Context(), session) }
	put := func(name string, size int) {
		t.Helper()
		if err := os.WriteFile(d.ws+"/"+name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("big", 994)
	if err := afford(); err != nil {
		t.Errorf("full: %v", err)
	}
	put("more", 1)
	if err := afford(); !fault.Is(err, fault.LimitQuota) {
		t.Errorf("a byte too much: %v", err)
	}
	put("more", 0)
	for _, name := range []string{"1", "2", "3"} {
		put(name, 0)
	}
	if err := afford(); err != nil {
		t.Errorf("10 files: %v", err)
	}
	put("4", 0)
	if err := afford(); !fault.Is(err, fault.LimitQuota) {
		t.Errorf("11 files: %v", err)
	}
	if err := d.s.Afford(t.Context(), "sess_absent"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if err := d.s.Afford(t.Context(), "../x"); !fault.Is(err, fault.RequestMalformed) {
		t.Error(err)
	}
	if _, _, known := room(d.ws); known {
		os.Remove(d.ws + "/4")
		d.s.reserve = 1 << 62
		if err := afford(); !fault.Is(err, fault.LimitQuota) || !strings.Contains(err.Error(), "disk") {
			t.Errorf("a full disk: %v", err)
		}
	}
}

func TestTrim(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	start := time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		spoil func(ws string) error
		kept  []string
		gone  []string
	}{
		"nothing to do": {
			func(ws string) error { return nil }, []string{"old", "dir/old"}, nil,
		},
		"the newest file is too much": {
			func(ws string) error { return os.WriteFile(ws+"/new", make([]byte, 998), 0o600) }, []string{"old", "dir/old"}, []string{"new"},
		},
		"sparse": {
			func(ws string) error { return os.WriteFile(ws+"/new", nil, 0o600) },
			[]string{"old", "new"}, nil,
		},
		"longer than can be": {
			func(ws string) error {
				f, err := os.Create(ws + "/new")
				if err != nil {
					return err
				}
				defer f.Close()
				return f.Truncate(1 << 42)
			}, []string{"old"}, []string{"new"},
		},
		"too many files": {
			func(ws string) (err error) {
				for i := range 120 {
					err = os.WriteFile(fmt.Sprintf("%s/n%d", ws, i), nil, 0o600)
				}
				return err
			}, []string{"old", "dir/old"}, nil,
		},
		"too many folders": {
			func(ws string) (err error) {
				for i := range 20 {
					err = os.MkdirAll(fmt.Sprintf("%s/n%d/m", ws, i), 0o700)
				}
				return err
			}, []string{"old", "dir/old"}, nil,
		},
		"closed folders": {
			func(ws string) (err error) {
				if err := os.Mkdir(ws+"/shut", 0o700); err != nil {
					return err
				}
				for i := range 20 {
					err = os.WriteFile(fmt.Sprintf("%s/shut/n%d", ws, i), make([]byte, 100), 0o600)
				}
				os.Chmod(ws+"/shut", 0o100)
				os.Chmod(ws, 0)
				return err
			}, []string{"old", "dir/old"}, nil,
		},
		"too deep": {
			func(ws string) error { deep(t, ws+"/deep", 50); return nil }, []string{"old", "dir/old"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(Options{Root: t.TempDir(), MaxWorkspace: 1000, MaxFiles: 10})
			if name == "too deep" {
				s.opt.MaxFiles = 100
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ws, err := s.Dir(session)
			if err != nil {
				t.Fatal(err)
			}
			os.Mkdir(ws+"/dir", 0o700)
			for _, old := range []string{"/old", "/dir/old"} {
				os.WriteFile(ws+old, []byte("ol"), 0o600)
				os.Chtimes(ws+old, start, start)
			}
			os.Chtimes(ws+"/dir", start, start)
			if err := c.spoil(ws); err != nil {
				t.Fatal(err)
			}
			legal := s.Afford(t.Context(), session) == nil
			if err := s.Trim(session); legal && err != nil || !legal && !fault.Is(err, fault.LimitQuota) {
				t.Errorf("within its limits: %v; %v", legal, err)
			}
			if err := s.Afford(t.Context(), session); err != nil {
				t.Errorf("after it: %v", err)
			}
			for _, k := range c.kept {
				if _, err := os.Stat(filepath.Join(ws, k)); err != nil {
					t.Error(err)
				}
			}
			for _, k := range c.gone {
				if _, err := os.Stat(filepath.Join(ws, k)); err == nil {
					t.Errorf("%s is there", k)
				}
			}
			if left, _ := os.ReadDir(filepath.Join(s.opt.Root, closedDir)); len(left) != 0 {
				t.Errorf("%v", left)
			}
		})
	}
}

// What a program left of its temporary folder when the gateway was killed goes at the next start.
func TestOpenCleansTemporaryFolders(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	root := t.TempDir()
	s, err := Open(Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	ws, err := s.Dir(session)
	if err != nil {
		t.Fatal(err)
	}
	temp, err := os.MkdirTemp(ws, tempPrefix+"*"+tempSuffix)
	if err != nil {
		t.Fatal(err)
	}
	os.MkdirAll(temp+"/a/b", 0o700)
	os.WriteFile(temp+"/a/b/c", nil, 0o600)
	os.Chmod(temp+"/a", 0o500)
	os.Chmod(temp, 0)
	os.Chmod(ws, 0)
	s.Close()
	if s, err = Open(Options{Root: root}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, dir := range []string{ws, filepath.Join(root, closedDir)} {
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%s: %v %v", dir, left, err)
		}
	}
}
