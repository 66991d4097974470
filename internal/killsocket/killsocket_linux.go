package killsocket

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// inDir runs f with a short path of the socket. A socket's address has 108 bytes, and a data directory's path may have more.
func inDir(dir string, f func(path string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	raw, err := d.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = f(filepath.Join("/proc/self/fd", strconv.FormatUint(uint64(fd), 10), Name))
	}); err != nil {
		return err
	}
	return failed
}

func bind(dir string) (conn *net.UnixConn, err error) {
	err = inDir(dir, func(path string) error {
		conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		return err
	})
	return conn, err
}

// open makes the socket of a sender. Its address is a name that the kernel chooses and no path, so that the gateway finds it whatever it sees of the
// file system.
func open() (conn *net.UnixConn, done func(), err error) {
	conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"})
	if err != nil {
		return nil, nil, err
	}
	done = func() { conn.Close() } // nothing is lost with it
	if err := askForSenders(conn); err != nil {
		done()
		return nil, nil, err
	}
	return conn, done, nil
}

func send(conn *net.UnixConn, dir string, message []byte) error {
	return inDir(dir, func(path string) error {
		_, err := conn.WriteToUnix(message, &net.UnixAddr{Name: path, Net: "unixgram"})
		return err
	})
}

// askForSenders has the kernel say with each message who sent it.
func askForSenders(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1) }); err != nil {
		return err
	}
	return failed
}

// receiveFrom receives a message and says whose it is. There is room for what the kernel says of the sender and for nothing else: descriptors that a
// sender attaches don't come in.
func receiveFrom(conn *net.UnixConn, buf []byte) (n int, who string, from *net.UnixAddr, err error) {
	var control [24 + syscall.SizeofUcred]byte // CmsgSpace is no constant; it is cut to it
	n, controls, _, from, err := conn.ReadMsgUnix(buf, control[:syscall.CmsgSpace(syscall.SizeofUcred)])
	if err != nil {
		return 0, "", nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(control[:controls])
	if err != nil {
		return n, "uid:unknown", from, nil
	}
	for i := range messages {
		if sender, err := syscall.ParseUnixCredentials(&messages[i]); err == nil {
			return n, fmt.Sprintf("uid:%d", sender.Uid), from, nil
		}
	}
	return n, "uid:unknown", from, nil
}

// ownerIs tells whether who is the owner of the file, or root.
func ownerIs(st fs.FileInfo, who string) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return who == "uid:0" || ok && who == fmt.Sprintf("uid:%d", sys.Uid)
}
