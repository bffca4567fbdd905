//go:build !linux

package e2e

import "syscall"

// diesWithTests does nothing here: only Linux knows such a thing.
func diesWithTests() *syscall.SysProcAttr { return nil }
