//go:build unix && !linux

package upstream

import "syscall"

func processGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the process and kills what is left of its group. It returns how the process ended.
func (ch *child) reap() string {
	ch.cmd.Wait()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	killGroup(ch.cmd.Process.Pid)
	ch.reaped = true
	return ch.cmd.ProcessState.String()
}
