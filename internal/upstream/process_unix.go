//go:build unix

package upstream

import "syscall"

// Both are called only before the group's leader is reaped.

func terminateGroup(pid int) { syscall.Kill(-pid, syscall.SIGTERM) }
func killGroup(pid int)      { syscall.Kill(-pid, syscall.SIGKILL) }
