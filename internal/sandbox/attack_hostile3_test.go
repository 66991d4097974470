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
	if os.Args[0] != helperName || len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "hostile3-") {
		return
	}
	if err := attack3(os.Args[1], os.Args[2:]); err != nil {
		fmt.Println(err)
		os.Exit(failed)
	}
	os.Exit(succeeded)
}

func attack3(what string, args []string) error {
	switch what {
	case "hostile3-watch":
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
	case "hostile3-getxattr":
		buf := make([]byte, 100)
		n, err := unix.Getxattr(args[1], "user.note", buf)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", buf[:n])
		return nil
	}
	return errors.New("unknown")
}
