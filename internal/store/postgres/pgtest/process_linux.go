package pgtest

import (
	"os/exec"
	"syscall"
)

// stopSignal has Postgres end its children and itself at once, without a checkpoint.
const stopSignal = syscall.SIGQUIT

func (i *identity) attach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: stopSignal}
	if i.uid >= 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(i.uid), Gid: uint32(i.gid)}
	}
}
