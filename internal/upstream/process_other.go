//go:build unix && !linux

package upstream

import (
	"os/exec"
	"syscall"
)

func processGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the process and kills what is left of its group.
func reap(cmd *exec.Cmd) string {
	cmd.Wait()
	killGroup(cmd.Process.Pid)
	return cmd.ProcessState.String()
}
