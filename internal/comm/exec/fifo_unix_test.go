//go:build unix

package exec

import (
	"syscall"
	"testing"
)

func mkfifo(t *testing.T, path string) {
	if err := syscall.Mkfifo(path, 0o755); err != nil {
		t.Fatal(err)
	}
}
