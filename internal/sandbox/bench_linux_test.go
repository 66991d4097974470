//go:build amd64 || arm64

package sandbox

import (
	"os/exec"
	"testing"
)

// BenchmarkTrue compares one run in the sandbox with one without.
func BenchmarkTrue(b *testing.B) {
	b.Run("sandbox", func(b *testing.B) {
		if Probe().Tier == None {
			cannot(b, "no sandbox here")
		}
		c := command(b, "true")
		for b.Loop() {
			if _, err := Run(b.Context(), c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/usr/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
