//go:build unix

package upstream

import "syscall"

// Both are called only while the group's number is still the child's.

func terminateGroup(pid int) { syscall.Kill(-pid, syscall.SIGTERM) }
func killGroup(pid int)      { syscall.Kill(-pid, syscall.SIGKILL) }
