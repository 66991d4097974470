package upstream

import "syscall"

// processGroup puts a child into a group of its own, and has the kernel kill it when we die without stopping it.
func processGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the process, kills what is left of its group, and only then releases its number: until then the group's number can't
// belong to anybody else. It returns how the process ended.
func (ch *child) reap() string {
	const pPID, wNoWait = 1, 0x01000000
	pid := ch.cmd.Process.Pid
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), 0, syscall.WEXITED|wNoWait, 0, 0)
		if errno != syscall.EINTR {
			break
		}
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	killGroup(pid)
	ch.cmd.Wait() // at once: it is dead
	ch.reaped = true
	return ch.cmd.ProcessState.String()
}
