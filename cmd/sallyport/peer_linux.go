package main

import (
	"errors"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"sallyport.example/internal/caller"
)

var errStranger = errors.New("words are taken from the hook of the program that sallyport run started, and from nobody else")

// peerBelow refuses a connection of another user, or of a process that is not below the program. One that detached itself is not.
func peerBelow(conn *net.UnixConn, program int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	if int(peer.Uid) != os.Getuid() {
		return errStranger
	}
	if all, _ := caller.Lineage(int(peer.Pid)); !slices.Contains(all, program) {
		return errStranger
	}
	return nil
}
