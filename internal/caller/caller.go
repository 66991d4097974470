// Package caller tells whether a process runs in a governed session: a process with a known id, or the one at the other end of a local connection.
//
// Promises: it reads /proc and changes nothing. Where /proc doesn't show the process (on another system, or from another container), nothing is found, and
// nothing is guessed. A program can hide from it: docs/threat-model.md says how.
package caller

import (
	"bytes"
	"encoding/hex"
	"errors"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"sallyport.example/internal/identity"
)

// RunName is the name of a process that runs governed programs. All processes below it are governed, also those that left their parents.
const RunName = "sallyport-run"

// maxAncestors bounds how far up the tree of processes is looked. What is deeper counts as governed.
const maxAncestors = 4096

// maxLooks bounds how often a lineage is looked for whose processes end meanwhile.
const maxLooks = 8

// Governed tells whether the process runs in a governed session, and which process says so: it or one above it has a session's token in its
// environment, or one above it runs governed programs. A process whose lineage can't be seen whole counts as governed: it could have made it so.
func Governed(pid int) (at int, yes bool) {
	return governed(Lineage(pid))
}

func governed(lineage []int, whole bool) (at int, yes bool) {
	for i, p := range lineage {
		environ, _ := os.ReadFile(procFile(p, "environ")) // of another user's process, or one that hides: not readable
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			if token, ok := bytes.CutPrefix(v, []byte(identity.EnvToken+"=")); ok && identity.KindOf(strings.TrimSpace(string(token))) == identity.Session {
				return p, true
			}
		}
		if i == 0 {
			continue // run itself is a person's command
		}
		if name, _ := os.ReadFile(procFile(p, "comm")); strings.TrimSpace(string(name)) == RunName {
			return p, true
		}
	}
	if !whole {
		return lineage[0], true
	}
	return 0, false
}

// Lineage are a process and those above it, up to the first or to one that may not be seen. Where one of them ends meanwhile, what it started is
// another's by then, so all are looked for again. whole is false if that went on, or there are too many.
func Lineage(pid int) (all []int, whole bool) {
	for range maxLooks {
		if all, whole = lineage(pid); whole {
			break
		}
	}
	return all, whole
}

func lineage(pid int) (all []int, whole bool) {
	for pid > 0 && len(all) < maxAncestors {
		all = append(all, pid)
		above := number(pid, "PPid:")
		if above < 0 {
			return all, !gone(pid)
		}
		pid = above
	}
	return all, pid <= 0
}

// gone tells whether there is no such process, rather than one that may not be seen.
func gone(pid int) bool {
	p, err := os.FindProcess(pid)
	return err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
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
	Started  int  // a process that the gateway started, a server or a program; 0: none
	Gone     bool // nobody holds the connection any more, so that nobody can be looked at
}

// OfConnection looks at who connected to this machine from this machine. server and client are the addresses of a connection that is open here, gateway is
// the process that was connected to.
func OfConnection(server, client netip.AddrPort, gateway int) Peer {
	here, there := find(client, server), find(server, client)
	switch {
	case there == nil: // the connection's own end is not in the table, so that it tells nothing of the other one
		return Peer{}
	case here == nil || here.inode == "0":
		return Peer{Gone: true}
	}
	pids := holders(here)
	for _, pid := range pids {
		all, whole := Lineage(pid)
		if at, yes := governed(all, whole); yes {
			return Peer{Governed: at}
		}
		if slices.Contains(all[1:], gateway) {
			return Peer{Started: pid}
		}
	}
	if len(pids) == 0 {
		return Peer{Governed: hidden(here)}
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

// holders are the processes that can be seen to hold the socket.
func holders(s *socket) (pids []int) {
	want := "socket:[" + s.inode + "]"
	for pid := range processes() {
		open, _ := os.ReadDir(procFile(pid, "fd")) // of another user's process, or one that hides: not readable
		if slices.ContainsFunc(open, func(fd os.DirEntry) bool {
			to, _ := os.Readlink(procFile(pid, "fd/"+fd.Name())) // closed in between: not it
			return to == want
		}) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// hidden is a governed process that may be who holds a socket that nobody can be seen to hold: it is on its way from one process to another, in a thread
// whose process doesn't show it, or in a process that hides. 0: there is none, or the socket is of a user none of whose processes can be looked into.
func hidden(s *socket) (at int) {
	sees := false
	for pid := range processes() {
		if _, err := os.ReadDir(procFile(pid, "fd")); err == nil && strconv.Itoa(number(pid, "Uid:")) == s.uid {
			sees = true
		}
		if p, yes := Governed(pid); yes && at == 0 && !gone(pid) {
			at = p
		}
	}
	if !sees {
		return 0
	}
	return at
}

// processes are those that can be seen.
func processes() iter.Seq[int] {
	all, _ := os.ReadDir("/proc") // without it: nobody
	return func(yield func(int) bool) {
		for _, entry := range all {
			if pid, err := strconv.Atoi(entry.Name()); err == nil && !yield(pid) {
				return
			}
		}
	}
}
