// Package caller tells whether a process runs in a governed session: a process with a known id, or the one at the other end of a local connection.
//
// Promises: it reads /proc and changes nothing. Where /proc doesn't show the process (on another system, or from another container), nothing is found, and
// nothing is guessed. A program can hide from it: docs/threat-model.md says how.
package caller

import (
	"bytes"
	"encoding/hex"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sallyport.example/internal/identity"
)

// RunName is the name of a process that runs governed programs. All processes below it are governed, also those that left their parents.
const RunName = "sallyport-run"

// maxAncestors bounds how many processes above a process are looked at.
const maxAncestors = 64

// Governed tells whether the process runs in a governed session, and which process says so: it or one above it has a session's token in its
// environment, or one above it runs governed programs.
func Governed(pid int) (at int, yes bool) {
	for p := range Lineage(pid) {
		environ, _ := os.ReadFile(procFile(p, "environ")) // of another user's process, or one that hides: not readable
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			if token, ok := bytes.CutPrefix(v, []byte(identity.EnvToken+"=")); ok && identity.KindOf(strings.TrimSpace(string(token))) == identity.Session {
				return p, true
			}
		}
		if p == pid {
			continue // run itself is a person's command
		}
		if name, _ := os.ReadFile(procFile(p, "comm")); strings.TrimSpace(string(name)) == RunName {
			return p, true
		}
	}
	return 0, false
}

// Lineage yields a process and those above it, from the process on.
func Lineage(pid int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for range maxAncestors {
			if pid <= 1 || !yield(pid) {
				return
			}
			pid = number(pid, "PPid:")
		}
	}
}

// number is a number in the status of a process; -1 if it can't be read.
func number(pid int, field string) int {
	status, _ := os.ReadFile(procFile(pid, "status")) // of a process that is gone: has no line
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(field)); ok {
			first, _, _ := strings.Cut(strings.TrimSpace(string(rest)), "\t")
			if n, err := strconv.Atoi(first); err == nil {
				return n
			}
		}
	}
	return -1
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// Peer is what is known of the process at the client's end of a connection.
type Peer struct {
	Governed int  // a process that says that it is governed; 0: none does
	Gone     bool // nobody holds the connection any more, so that nobody can be looked at
}

// OfConnection looks at who connected to this machine from this machine. server and client are the addresses of a connection that is open here.
func OfConnection(server, client netip.AddrPort) Peer {
	here, there := find(client, server), find(server, client)
	switch {
	case there == nil: // the connection's own end is not in the table, so that it tells nothing of the other one
		return Peer{}
	case here == nil || here.inode == "0":
		return Peer{Gone: true}
	}
	for _, pid := range holders(here) {
		if at, yes := Governed(pid); yes {
			return Peer{Governed: at}
		}
	}
	return Peer{}
}

// socket is a row of the kernel's table of connections.
type socket struct{ uid, inode string }

// find looks up the end of a connection whose address is local.
func find(local, remote netip.AddrPort) *socket {
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		rows, _ := os.ReadFile(table) // no such table: no row
		for line := range bytes.Lines(rows) {
			f := strings.Fields(string(line))
			if len(f) > 9 && address(f[1]) == plain(local) && address(f[2]) == plain(remote) {
				return &socket{uid: f[7], inode: f[9]}
			}
		}
	}
	return nil
}

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// address reads an address as the table has it: words of 32 bits in the machine's order, then the port. Little-endian machines alone are known.
func address(s string) netip.AddrPort {
	words, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(words)
	n, badPort := strconv.ParseUint(port, 16, 16)
	if err != nil || badPort != nil || len(b)%4 != 0 {
		return netip.AddrPort{}
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	addr, _ := netip.AddrFromSlice(b)
	return plain(netip.AddrPortFrom(addr, uint16(n)))
}

// holders are the processes that hold the socket, and those of its user that hide what they hold.
func holders(s *socket) (pids []int) {
	want := "socket:[" + s.inode + "]"
	all, _ := os.ReadDir("/proc") // without it: nobody
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		open, err := os.ReadDir(procFile(pid, "fd"))
		if err != nil {
			if strconv.Itoa(number(pid, "Uid:")) == s.uid {
				pids = append(pids, pid)
			}
			continue
		}
		if slices.ContainsFunc(open, func(fd os.DirEntry) bool {
			to, _ := os.Readlink(procFile(pid, "fd/"+fd.Name())) // closed in between: not it
			return to == want
		}) {
			pids = append(pids, pid)
		}
	}
	return pids
}
