//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is a socket with two ends.
func pair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { ours.Close() })
	return ours, theirs
}

// A program talks over the socket that it was given, which ends with it, and has no other descriptor.
func TestSocketOfARun(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		ours, theirs := pair(t)
		c := shell(t, `read line <&3; echo "got $line" >&3; ls /proc/self/fd 2>/dev/null | tr '\n' ' '; exec 3>&-; cat`)
		c.Socket = theirs
		answers := make(chan string, 1)
		go func() {
			io.WriteString(ours, "hello\n")
			r := bufio.NewReader(ours)
			line, _ := r.ReadString('\n')
			_, err := r.ReadByte() // its end, long before that of Run in this process
			answers <- line + errorOf(err)
		}()
		out := must(t, c, tier)
		if got := <-answers; got != "got hello\nEOF" {
			t.Errorf("over the socket came %q", got)
		}
		if fds := strings.Fields(string(out.Stdout)); tier == Full && len(fds) > 0 && strings.Join(fds, " ") != "0 1 2 3 4" { // 4 is that of the directory that ls reads
			t.Errorf("the program has the descriptors %v", fds)
		}
	})
}

func errorOf(err error) string {
	if err == nil {
		return "more"
	}
	return err.Error()
}

// Without a socket the program has no descriptor 3.
func TestNoSocketWhereNoneIsGiven(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		if out := must(t, shell(t, `if (echo x >&3) 2>/dev/null; then echo open; else echo closed; fi`), tier); string(out.Stdout) != "closed\n" {
			t.Errorf("descriptor 3 is %s", out.Stdout)
		}
	})
}
