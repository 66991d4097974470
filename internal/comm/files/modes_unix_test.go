//go:build unix

package files

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A program in a workspace may change the modes of what is in it, and of the workspace itself. That must not keep the gateway from
// starting again, whoever it runs as.
func TestModesSetByProgramsDoNotStopTheStart(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	for name, spoil := range map[string]func(dir string) error{
		"a closed workspace":             func(dir string) error { return os.Chmod(dir, 0) },
		"a workspace that can't be read": func(dir string) error { return os.Chmod(dir, 0o300) },
		"a write that can't be removed": func(dir string) error {
			if err := os.WriteFile(dir+"/.sallyport-x.tmp", nil, 0o600); err != nil {
				return err
			}
			return os.Chmod(dir, 0o500)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			s, err := Open(Options{Root: root})
			if err != nil {
				t.Fatal(err)
			}
			dir, err := s.Dir("sess_1")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(dir, 0o700)
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			s, err = Open(Options{Root: root})
			if err != nil {
				t.Fatalf("the gateway does not start any more: %v", err)
			}
			s.Close()
		})
	}
}

// asNobody runs the test again as an ordinary user, whom modes hold.
func asNobody(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "sallyport-files-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	for _, err := range []error{
		os.WriteFile(dir+"/test", program, 0o755), os.Chmod(dir, 0o755), os.Mkdir(dir+"/tmp", 0o700), os.Chown(dir+"/tmp", nobody, nobody),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "test"), "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Dir, cmd.Env = dir+"/tmp", append(os.Environ(), "TMPDIR="+dir+"/tmp", "HOME="+dir+"/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	said, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, said)
	}
}
