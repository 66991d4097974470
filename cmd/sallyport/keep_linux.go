package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport.example/internal/caller"
)

// keepBelow keeps what the program starts below this process, also what detaches itself from its parents: this process adopts it, and is known by its
// name as one whose descendants are governed.
func keepBelow() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	return os.WriteFile("/proc/self/comm", []byte(caller.RunName), 0)
}

// reap collects adopted processes that have ended, until done. The program itself is its starter's to wait for.
func reap(program int, done <-chan struct{}) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		select {
		case <-done:
			return
		case <-ended:
		}
		lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is good
		for _, list := range lists {
			pids, _ := os.ReadFile(list) // of a thread that is gone, or a kernel that doesn't tell: none
			for _, word := range strings.Fields(string(pids)) {
				if pid, err := strconv.Atoi(word); err == nil && pid != program {
					_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // one that still runs is left
				}
			}
		}
	}
}
