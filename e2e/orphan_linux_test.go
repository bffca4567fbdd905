package e2e

import "syscall"

// diesWithTests has the system end a process when the tests die without their clean-up, as when their time is up. Each process is a group
// of its own: when the shell that started the tests goes, the system hangs up on a whole group of which one member is stopped.
func diesWithTests() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
