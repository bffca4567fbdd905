package e2e

import "syscall"

// diesWithTests has the system end a process when the tests die without their clean-up, as when their time is up.
func diesWithTests() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
