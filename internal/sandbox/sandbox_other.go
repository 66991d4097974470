//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"context"

	"sallyport/internal/fault"
)

// Init does nothing here: nothing is ever started.
func Init() { ready = true }

func probe() Report {
	return Report{Tier: None, Missing: []string{"The sandbox needs Linux on amd64 or arm64: run the gateway there."}}
}

func run(context.Context, Command, Tier) (Outcome, error) {
	return Outcome{}, fault.New(fault.SandboxUnavailable, "")
}
