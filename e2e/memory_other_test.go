//go:build !linux

package e2e

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// residentBytes is the memory that a process takes now, as POSIX's ps tells it.
func residentBytes(t *testing.T, pid int) int {
	t.Helper()
	out, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatalf("asking ps for the memory of process %d: %v", pid, err)
	}
	kib, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatalf("what ps says of process %d: %v", pid, err)
	}
	return kib << 10
}

// peakBytes is what the process takes now: only Linux tells the most that a process has taken. Go gives memory back within minutes,
// not seconds, so a peak that was just passed still shows.
func peakBytes(t *testing.T, pid int) int {
	t.Helper()
	return residentBytes(t, pid)
}
