package killsocket

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// held counts the process's descriptors of the file.
func held(t *testing.T, file string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); to == file { // closed in between: not it
			n++
		}
	}
	return n
}

// Descriptors that come with a message don't come in: they would use up the gateway's.
func TestAttachedDescriptors(t *testing.T) {
	dir := t.TempDir()
	k := listen(t, dir)
	f, err := os.CreateTemp(t.TempDir(), "attached")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	fds := make([]int, 100)
	for i := range fds {
		fds[i] = int(f.Fd())
	}
	const messages = 5
	for range messages {
		if err := inDir(dir, func(path string) error {
			return syscall.Sendmsg(fd, []byte("here"), syscall.UnixRights(fds...), &syscall.SockaddrUnix{Name: path}, 0)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Pull(t.Context(), dir, "last"); err != nil { // messages are taken in their order
		t.Fatal(err)
	}
	if n := held(t, f.Name()); n != 1 || k.pulls() != messages+1 {
		t.Errorf("%d descriptors, %d pulls", n, k.pulls())
	}
	for _, r := range k.reasons {
		if r != "here" && r != "last" {
			t.Errorf("%q", r)
		}
	}
}

// A sender can't say that it is somebody else, unless it may be.
func TestSenderSaysItIsAnother(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may say that it is anybody")
	}
	dir := t.TempDir()
	listen(t, dir)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	err = inDir(dir, func(path string) error {
		return syscall.Sendmsg(fd, []byte("here"), syscall.UnixCredentials(&syscall.Ucred{Pid: int32(os.Getpid()), Uid: 0}), &syscall.SockaddrUnix{Name: path}, 0)
	})
	if err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Error(err)
	}
}
