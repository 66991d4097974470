package daemon

import (
	"os"
	"sync"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/killsocket"
	"sallyport.example/internal/standing"
)

// signalReason stands in the entry of a switch that SIGUSR1 pulled.
const signalReason = "SIGUSR1. The system does not say who sent it."

// killWay is the kill switch's way of its own.
type killWay struct {
	killSocket *killsocket.Socket // nil: there is none
	spare      spare
}

// openKillSocket opens the way to the kill switch that needs no listener. A gateway without it serves all the same: HTTP and the signal are left.
func (d *Daemon) openKillSocket() {
	d.spare.take()
	socket, err := killsocket.Listen(d.o.Data, killsocket.Options{Log: d.o.Log,
		Pull:   func(by, reason string) killsocket.Answer { return answerOf(d.pull(by, reason)) },
		Status: func() killsocket.Answer { return answerOf(d.gate.Standing().KillStatus()) },
	})
	if err != nil {
		d.o.Log.Error("the kill switch has no socket; it is reached over HTTP and by SIGUSR1 only", "error", err)
		return
	}
	d.killSocket = socket
}

func (d *Daemon) closeKillSocket() error {
	d.spare.close()
	if d.killSocket == nil {
		return nil
	}
	return d.killSocket.Close()
}

// KillBySignal pulls the switch of all agents.
func (d *Daemon) KillBySignal() { d.pull(bySignal, signalReason) }

// pull pulls the switch of all agents. One that is pulled stays as it is, so that messages and signals, which cost nothing, add one entry and not one each.
func (d *Daemon) pull(by, reason string) standing.Switches {
	if now := d.gate.Standing().KillStatus(); now.Global.Active {
		return now
	}
	d.spare.release()
	now := d.gate.Standing().Disable("", by, audit.Clip(reason))
	d.o.Log.Warn("the kill switch was switched on", "by", by, "reason", now.Global.Reason)
	return now
}

func answerOf(s standing.Switches) killsocket.Answer {
	g := s.Global
	return killsocket.Answer{Active: g.Active, Since: g.Since.UTC().Truncate(time.Microsecond), By: g.By, Reason: g.Reason, Durable: g.Durable, Epoch: s.Epoch}
}

// spareFiles are the descriptors that are kept for the moment in which the switch is pulled: what the store needs to open its database anew, if it lost it
// while there were no descriptors, and to write down what was done.
const (
	spareFiles = 8
	spareAgain = 10 * time.Second // after that they are taken back, or tried for again
)

// spare holds descriptors that nothing uses.
type spare struct {
	mu    sync.Mutex // guards all below
	held  []*os.File
	again *time.Timer
	ended bool
}

// take opens what is missing, now or later.
func (s *spare) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended && len(s.held) < spareFiles {
		f, err := os.Open(os.DevNull)
		if err != nil {
			s.again = time.AfterFunc(spareAgain, s.take)
			return
		}
		s.held = append(s.held, f)
	}
}

// release gives them to whatever needs some now.
func (s *spare) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	if !s.ended {
		s.again = time.AfterFunc(spareAgain, s.take)
	}
}

func (s *spare) drop() {
	if s.again != nil {
		s.again.Stop()
	}
	for _, f := range s.held {
		f.Close() // nothing was written to it
	}
	s.held = nil
}

func (s *spare) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.drop()
}
