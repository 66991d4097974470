//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"context"
	"net"
	"os/exec"
	"time"

	"sallyport.example/internal/fault"
)

// Init does nothing here: nothing is ever started.
func Init() { ready = true }

func probe() Report {
	return Report{Tier: None, Missing: []string{"The sandbox needs Linux on amd64 or arm64: run the gateway there."}}
}

func run(context.Context, Command, Tier) (Outcome, error) {
	return Outcome{}, fault.New(fault.SandboxUnavailable, "")
}

// Process is a server in its sandbox. There is none here.
type Process struct{ Cmd *exec.Cmd }

// Command refuses: nothing holds a server here.
func (s Server) Command() (*Process, error) {
	return nil, unavailable(probe().Missing)
}

// Started is never called.
func (p *Process) Started(time.Duration) (net.Listener, error) { return nil, nil }

// Wait is never called.
func (p *Process) Wait() error { return nil }

// Close does nothing.
func (p *Process) Close() {}

// Prove refuses, as Command does.
func (s Server) Prove(context.Context, Forbidden) (int, []string, error) {
	_, err := s.Command()
	return 0, nil, err
}
