package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal: what programs have whose user sits before them.
func terminal(t testing.TB) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	requireTool(t, err == nil, "a terminal (/dev/ptmx)")
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	requireTool(t, err == nil, "a terminal (/dev/pts)")
	return master, slave
}

// Somebody who is new to it starts the demo in a terminal, opens the link that it prints, and answers the request that it ends with: in three
// presses, of which the first signs in, the second opens the request and the third approves it.
func TestPeopleDemo(t *testing.T) {
	master, slave := terminal(t)
	cmd := exec.Command(build(t, "sallyport.example/cmd/sallyport"), "demo")
	cmd.Env = append(os.Environ(), "TERM=xterm", "TMPDIR="+t.TempDir())
	cmd.Dir = t.TempDir()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close() // the program has its own
	printed, ended := &tail{}, make(chan struct{})
	var failed error // of the program, once it ended
	go func() {
		failed = cmd.Wait()
		close(ended)
	}()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			_, _ = printed.Write(buf[:n]) // never fails
			if err != nil {
				return // nobody has the other side any more
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	link := regexp.MustCompile(`http://\S+/login/link/\w+`)
	eventually(t, 60*time.Second, "the demo prints a link", func() bool { return link.MatchString(printed.String()) })

	b := newBrowser(t)
	b.expect(broken...) // the demo takes its gateway along
	b.open(link.FindString(printed.String()))
	began := time.Now()
	b.see("Sign in as admin")
	b.shot("demo-1-link")
	b.click("button")
	b.see("Needs you")
	b.see("Transfer 480 EUR → DE02…20 51")
	b.shot("demo-2-overview")
	b.click(`a[href^="/approvals/appr_"]`)
	b.see("If wrong")
	b.shot("demo-3-request")
	b.approve()
	eventually(t, 30*time.Second, "the demo says that it was carried out", func() bool {
		return strings.Contains(printed.String(), "You approved it, and it was carried out once")
	})
	t.Logf("3 clicks, %s from the link to the answer", time.Since(began).Round(time.Millisecond))
	select {
	case <-ended:
		if failed != nil {
			t.Errorf("%v\n%s", failed, printed)
		}
	case <-time.After(slack(30 * time.Second)):
		t.Errorf("the demo does not end:\n%s", printed)
	}
}
