//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Attacks of the helper that came later; they end the process before TestMain looks at it.
func init() {
	if os.Args[0] != helperName || len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "later-") {
		return
	}
	if err := attackInside(os.Args[1], os.Args[2:]); err != nil {
		fmt.Println(err)
		unix.Exit(failed)
	}
	unix.Exit(succeeded)
}

func attackInside(what string, args []string) error {
	switch what {
	case "later-watch":
		fd, err := unix.InotifyInit1(unix.IN_NONBLOCK)
		if err != nil {
			return err
		}
		if _, err := unix.InotifyAddWatch(fd, args[0], unix.IN_ALL_EVENTS); err != nil {
			return err
		}
		buf := make([]byte, 4096)
		for range 100 {
			if n, err := unix.Read(fd, buf); err == nil && n > 0 {
				fmt.Printf("%q\n", strings.ReplaceAll(string(buf[:n]), "\x00", ""))
				return nil
			}
			time.Sleep(20 * time.Millisecond)
		}
		return errors.New("nothing was seen")
	case "later-getxattr":
		buf := make([]byte, 100)
		n, err := unix.Getxattr(args[1], "user.note", buf)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", buf[:n])
		return nil
	case "later-lend":
		var refused error
		for name, err := range map[string]error{
			"open":    closed(unix.Open("made", unix.O_CREAT|unix.O_WRONLY, 0o4755)),
			"openat2": closed(unix.Openat2(unix.AT_FDCWD, "made2", &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o4755})),
			"mkdir":   unix.Mkdir("folder", 0o2777),
			"mknod":   unix.Mknod("node", unix.S_IFREG|0o4755, 0),
			"chmod":   errors.Join(os.WriteFile("mine", nil, 0o755), unix.Chmod("mine", 0o4755)),
		} {
			if err == nil {
				fmt.Println(name)
			}
			refused = errors.Join(refused, err)
		}
		return refused
	}
	return errors.New("unknown")
}

func closed(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}
