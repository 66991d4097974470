//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The test binary is also the attacker: started as helperName it tries what its arguments say, and ends with succeeded or failed.
const (
	helperName = "attacker"
	succeeded  = 0
	failed     = 3
)

func TestMain(m *testing.M) {
	Init()
	if os.Args[0] == helperName {
		if err := attack(os.Args[1], os.Args[2:]); err != nil {
			fmt.Println(err)
			unix.Exit(failed)
		}
		unix.Exit(succeeded)
	}
	os.Exit(m.Run())
}

func attack(what string, args []string) error {
	number := func(i int) int {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			panic(err)
		}
		return n
	}
	dial := func(network string) error {
		c, err := net.Dial(network, args[0])
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		return err
	}
	switch what {
	case "read":
		data, err := os.ReadFile(args[0])
		fmt.Printf("%.100s\n", data)
		return err
	case "list":
		_, err := os.ReadDir(args[0])
		return err
	case "stat":
		_, err := os.Stat(args[0])
		return err
	case "create":
		f, err := os.Create(args[0])
		if err != nil {
			return err
		}
		return f.Close()
	case "chmod":
		return os.Chmod(args[0], 0o777)
	case "setxattrat", "removexattrat", "getxattrat", "listxattrat", "file_setattr": // the C library has no names for these yet
		path, name, value := &append([]byte(args[0]), 0)[0], &append([]byte("user.note"), 0)[0], [2]uint64{}
		into := struct {
			value uint64
			size  uint32
			flags uint32
		}{uint64(uintptr(unsafe.Pointer(&value))), 4, 0}
		at := ^uintptr(99) // AT_FDCWD
		var errno syscall.Errno
		switch what {
		case "setxattrat":
			_, _, errno = unix.RawSyscall6(unix.SYS_SETXATTRAT, at, uintptr(unsafe.Pointer(path)), 0, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&into)), unsafe.Sizeof(into))
		case "getxattrat":
			_, _, errno = unix.RawSyscall6(unix.SYS_GETXATTRAT, at, uintptr(unsafe.Pointer(path)), 0, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&into)), unsafe.Sizeof(into))
		case "listxattrat":
			_, _, errno = unix.RawSyscall6(unix.SYS_LISTXATTRAT, at, uintptr(unsafe.Pointer(path)), 0, 0, 0, 0)
		case "removexattrat":
			_, _, errno = unix.RawSyscall6(unix.SYS_REMOVEXATTRAT, at, uintptr(unsafe.Pointer(path)), 0, uintptr(unsafe.Pointer(name)), 0, 0)
		case "file_setattr":
			var attr [24]byte
			_, _, errno = unix.RawSyscall6(unix.SYS_FILE_SETATTR, at, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0, 0)
		}
		runtime.KeepAlive(&value)
		if errno == unix.EPERM || errno == unix.ENOSYS || errno == unix.EACCES || errno == unix.ENOENT || errno == unix.EROFS || errno == unix.EOPNOTSUPP {
			return errno
		}
		return nil // the kernel looked at the file
	case "getxattr":
		_, err := unix.Getxattr(args[0], "user.note", make([]byte, 100))
		if errors.Is(err, unix.ENODATA) {
			return nil // the kernel looked at the file
		}
		return err
	case "utimensat": // with a name at an address whose lower half is zero
		const address = 1 << 32
		at, _, errno := unix.RawSyscall6(unix.SYS_MMAP, address, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED, ^uintptr(0), 0)
		if errno != 0 {
			return errno
		}
		copy(unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), 4096), args[0]+"\x00")
		if _, _, errno = unix.RawSyscall6(unix.SYS_UTIMENSAT, ^uintptr(99), at, 0, 0, 0, 0); errno != 0 {
			return errno
		}
		return nil
	case "fchmod": // by a descriptor that can only read
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		return f.Chmod(0o777)
	case "link":
		return os.Link(args[0], args[1])
	case "rename":
		return os.Rename(args[0], args[1])
	case "tcp", "udp", "unix":
		return dial(what)
	case "mptcp":
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
		if err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrInet4{Port: number(0), Addr: [4]byte{127, 0, 0, 1}})
	case "socketpair": // such a socket needs no socket(2) to send to a path
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(pair[0], []byte("hello"), 0, &unix.SockaddrUnix{Name: args[0]})
	case "datagram":
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("hello"), 0, &unix.SockaddrUnix{Name: args[0]})
	case "kill":
		return unix.Kill(number(0), 0)
	case "prlimit":
		return unix.Prlimit(number(0), unix.RLIMIT_CORE, nil, nil)
	case "renice":
		return unix.Setpriority(unix.PRIO_USER, 0, 1)
	case "setsid":
		_, err := unix.Setsid()
		return err
	case "setpgid":
		return unix.Setpgid(0, 0)
	case "clone": // with the flags that would make new namespaces
		cmd := exec.Command("/usr/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: uintptr(number(0))}
		return cmd.Run()
	case "syscall":
		if _, _, errno := unix.RawSyscall6(uintptr(number(0)), 0, 0, 0, 0, 0, 0); errno == unix.EPERM || errno == unix.ENOSYS {
			return errno
		}
		return nil
	case "ioctl": // push a character into the terminal's input; here it only counts whether the kernel sees it
		if _, _, errno := unix.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&[1]byte{}))); errno == unix.EPERM {
			return errno
		}
		return nil
	case "links": // where they lead
		for _, l := range args {
			to, err := os.Readlink(l)
			if err != nil {
				return err
			}
			fmt.Println(to)
		}
		return nil
	case "gateway": // one that runs a program until somebody kills it
		path, err := filepath.EvalSymlinks("/bin/sh")
		if err != nil {
			return err
		}
		c := Command{Path: path, Argv: []string{"sh", "-c", args[2]}, Dir: args[1], Env: []string{"PATH=/usr/bin:/bin"}, Limits: generous}
		_, err = run(context.Background(), c, Tier(args[0]))
		return err
	case "forks": // as many processes as it gets, up to a number
		for i := range number(0) {
			cmd := exec.Command("/usr/bin/sleep", "60")
			if err := cmd.Start(); err != nil {
				fmt.Println(i)
				return nil
			}
		}
		return fmt.Errorf("no end after %s", args[0])
	}
	panic(what)
}
