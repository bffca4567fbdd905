package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// residentBytes is the memory that a process takes now.
func residentBytes(t *testing.T, pid int) int {
	t.Helper()
	return memoryOf(t, pid, "VmRSS")
}

// peakBytes is the most memory that a process has taken.
func peakBytes(t *testing.T, pid int) int {
	t.Helper()
	return memoryOf(t, pid, "VmHWM")
}

// memoryOf reads a figure that the kernel keeps of a process, in bytes. Without it the test fails: a container that hides /proc would
// hide a leak too.
func memoryOf(t *testing.T, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatalf("a process's memory is read from /proc, which must be mounted: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			break
		}
		kib, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatalf("%s of process %d: %v", name, pid, err)
		}
		return kib << 10
	}
	t.Fatalf("no %s in %s", name, text)
	return 0
}
