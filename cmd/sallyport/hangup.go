package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// betweenReloads is the least time from one reload by a signal to the next: signals cost nothing, and each reload has an entry.
const betweenReloads = time.Second

// hangups are the signals SIGHUP to this process. A terminal that goes away sends it, too.
type hangups struct {
	came     chan os.Signal
	terminal bool // the process had a terminal when it began
	ignored  bool // it was started so that it outlives its terminal (nohup)
}

// catchHangups begins to catch them: from here on they end the process no more.
func catchHangups() *hangups {
	h := &hangups{came: make(chan os.Signal, 1), terminal: hasTerminal(), ignored: signal.Ignored(syscall.SIGHUP)}
	signal.Notify(h.came, syscall.SIGHUP)
	return h
}

func (h *hangups) end() { signal.Stop(h.came) }

// hasTerminal tells whether the process has a controlling terminal.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	tty.Close()
	return true
}

// follow reloads the configuration at each SIGHUP until ctx ends. Where the terminal went away it stops the gateway instead, as without this, or does
// nothing if the gateway was started to outlive it: nobody asked for a reload.
func (h *hangups) follow(ctx context.Context, stop func(), reload func(ctx context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.came:
		}
		switch {
		case !h.terminal || hasTerminal():
			reload(ctx)
		case !h.ignored:
			stop()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(betweenReloads):
		}
	}
}
