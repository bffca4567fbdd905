//go:build !linux

package pgtest

import (
	"os/exec"
	"syscall"
)

const stopSignal = syscall.SIGQUIT

// attach can't tie the program's life to this process's here: a test that is killed leaves its server behind.
func (i *identity) attach(*exec.Cmd) {}
