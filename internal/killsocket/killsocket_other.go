//go:build !linux

package killsocket

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

func at(path string) *net.UnixAddr { return &net.UnixAddr{Name: path, Net: "unixgram"} }

func bind(dir string) (*net.UnixConn, error) {
	return net.ListenUnixgram("unixgram", at(filepath.Join(dir, Name)))
}

// open makes the socket of a sender, which has a path of its own for the answer.
func open() (conn *net.UnixConn, done func(), err error) {
	own, err := os.MkdirTemp("", "sallyport-kill-")
	if err != nil {
		return nil, nil, err
	}
	conn, err = net.ListenUnixgram("unixgram", at(filepath.Join(own, "answer")))
	if err != nil {
		os.RemoveAll(own) // an empty directory that is left harms nobody
		return nil, nil, err
	}
	return conn, func() { conn.Close(); os.RemoveAll(own) }, nil
}

func send(conn *net.UnixConn, dir string, message []byte) error {
	_, err := conn.WriteToUnix(message, at(filepath.Join(dir, Name)))
	return err
}

// askForSenders: this system doesn't say who sent a message. The modes of the directory and the socket keep other users out.
func askForSenders(*net.UnixConn) error { return nil }

func receiveFrom(conn *net.UnixConn, buf []byte) (n int, who string, from *net.UnixAddr, err error) {
	n, from, err = conn.ReadFromUnix(buf)
	return n, "uid:unknown", from, err
}

func ownerIs(fs.FileInfo, string) bool { return true }
