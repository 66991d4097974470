package main

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sallyport.example/internal/identity"
)

// maxAncestors bounds how far up the tree of processes a session's token is looked for.
const maxAncestors = 64

// governed tells whether this process runs below a program of a governed session: it or a process above it has the session's token in its environment.
// Where there is no /proc, only its own environment tells. A program that detaches itself, or runs as another user, is not found: docs/threat-model.md.
func governed() (pid int, yes bool) {
	if identity.KindOf(strings.TrimSpace(os.Getenv(envToken))) == identity.Session {
		return os.Getpid(), true
	}
	for pid := range lineage(os.Getppid()) {
		environ, _ := os.ReadFile(procFile(pid, "environ")) // of another user's process: not readable, so its children are no session of this user
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			if token, ok := bytes.CutPrefix(v, []byte(envToken+"=")); ok && identity.KindOf(string(token)) == identity.Session {
				return pid, true
			}
		}
	}
	return 0, false
}

// lineage are a process and those above it, as far as /proc tells.
func lineage(pid int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for range maxAncestors {
			if pid <= 1 || !yield(pid) {
				return
			}
			status, err := os.ReadFile(procFile(pid, "status"))
			if err != nil {
				return
			}
			pid = parentIn(status)
		}
	}
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

func parentIn(status []byte) int {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("PPid:")); ok {
			pid, _ := strconv.Atoi(string(bytes.TrimSpace(rest))) // not a number: 0, no parent
			return pid
		}
	}
	return 0
}

// refuseGoverned keeps people's commands out of governed sessions: an agent with a shell would answer for its person.
func refuseGoverned() error {
	pid, yes := governed()
	if !yes {
		return nil
	}
	return &found{what: fmt.Sprintf("people's commands are refused inside a governed session: process %d has the session's token. Use them in a terminal outside of it", pid)}
}
