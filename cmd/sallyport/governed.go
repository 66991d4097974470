package main

import (
	"fmt"
	"os"
	"strings"

	"sallyport.example/internal/caller"
	"sallyport.example/internal/identity"
)

// governed tells whether this process runs below a program of a governed session. Where there is no /proc, only its own environment tells.
func governed() (pid int, yes bool) {
	if identity.KindOf(strings.TrimSpace(os.Getenv(envToken))) == identity.Session {
		return os.Getpid(), true
	}
	return caller.Governed(os.Getpid())
}

// refuseGoverned keeps people's commands out of governed sessions: an agent with a shell would answer for its person.
func refuseGoverned() error {
	pid, yes := governed()
	if !yes {
		return nil
	}
	return &found{what: fmt.Sprintf("people's commands are refused inside a governed session: process %d is in one. Use them in a terminal outside of it", pid)}
}
