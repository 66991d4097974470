package killsocket

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// kept is a switch that a test looks at.
type kept struct {
	mu      sync.Mutex // guards all below
	now     Answer
	reasons []string
}

func (k *kept) pull(by, reason string) Answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now = Answer{Active: true, By: by, Reason: reason, Epoch: k.now.Epoch + 1}
	k.reasons = append(k.reasons, reason)
	return k.now
}

// status is that of a store that has written the switch down by the second look.
func (k *kept) status() Answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now.Durable = true
	return k.now
}

func (k *kept) pulls() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.reasons)
}

func listen(t *testing.T, dir string) *kept {
	t.Helper()
	k := &kept{}
	s, err := Listen(dir, Options{Pull: k.pull, Status: k.status, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(dir, Name)); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the socket is left")
		}
	})
	return k
}

func TestPull(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("a-long-name/", 20)) // longer than the address of a socket may be
	if runtime.GOOS != "linux" {
		deep = t.TempDir()
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	k := listen(t, deep)
	for reason, want := range map[string]string{"strange mails": "strange mails", "": "", " two\nlines ": "two\nlines", "\xff": "\uFFFD", strings.Repeat("x", 3*maxReason): strings.Repeat("x", maxReason)} {
		got, err := Pull(t.Context(), deep, reason)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Active || !got.Durable || got.Reason != want {
			t.Errorf("%.20q: %+v", reason, got)
		}
		if by := "uid:" + strconv.Itoa(os.Getuid()); runtime.GOOS == "linux" && got.By != by {
			t.Errorf("by %s, want %s", got.By, by)
		}
	}
	if k.pulls() != 5 {
		t.Errorf("%d pulls", k.pulls())
	}
}

func TestWhatIsInTheWay(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a link":      func(path string) error { return os.Symlink("/dev/null", path) },
		"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, Name)); err != nil {
			t.Fatal(err)
		}
		k := &kept{}
		if s, err := Listen(dir, Options{Pull: k.pull, Status: k.status, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("%s: %v %v", name, s, err)
		}
		if _, err := Pull(t.Context(), dir, ""); err == nil || errors.Is(err, ErrNoAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	left, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, Name), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	left.Close() // as a crash leaves it
	if _, err := Pull(t.Context(), dir, ""); err == nil || errors.Is(err, ErrNoAnswer) {
		t.Errorf("nobody listens: %v", err)
	}
	listen(t, dir)
}

// A gateway that hangs takes the message and answers nothing.
func TestNoAnswer(t *testing.T) {
	dir := t.TempDir()
	silent, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, Name), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Pull(ctx, dir, "x"); !errors.Is(err, ErrNoAnswer) {
		t.Error(err)
	}
}

// Whoever doesn't read answers, or wants none, keeps nobody else from pulling.
func TestSendersThatReadNothing(t *testing.T) {
	dir := t.TempDir()
	k := listen(t, dir)
	for range 4 * answersAtOnce {
		deaf, done, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		if err := send(deaf, dir, []byte("noise")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Pull(t.Context(), dir, "in earnest"); err != nil || !got.Active {
		t.Errorf("%+v %v", got, err)
	}
	if k.pulls() != 4*answersAtOnce+1 {
		t.Errorf("%d pulls", k.pulls())
	}
}
