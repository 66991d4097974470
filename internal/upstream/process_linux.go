package upstream

import (
	"os/exec"
	"syscall"
)

// processGroup puts a child into a group of its own, and has the kernel kill it when we die without stopping it.
func processGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the process, kills what is left of its group, and only then releases its id: until the leader is reaped the group's number
// can't belong to anybody else.
func reap(cmd *exec.Cmd) string {
	const pPID, wNoWait = 1, 0x01000000
	pid := cmd.Process.Pid
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), 0, syscall.WEXITED|wNoWait, 0, 0)
		if errno != syscall.EINTR {
			break
		}
	}
	killGroup(pid)
	cmd.Wait()
	return cmd.ProcessState.String()
}
