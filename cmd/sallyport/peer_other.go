//go:build !linux

package main

import "net"

// peerBelow can't tell here which process brings words: the folder of the socket keeps other users out.
func peerBelow(*net.UnixConn, int) error { return nil }
