package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// gcPercent lets the heap grow further between collections than Go's default of 100: it is a few megabytes, and collecting it
	// that often took a tenth of the server's time. GOGC wins.
	gcPercent = 400
	// memoryPercent is how much of what the system allows the heap may grow to: SQLite's caches, of 80 MiB in all, stand beside it, and a
	// collection takes its time.
	memoryPercent = 80
)

// heedMemory settles how far the heap may grow. A few large payloads make it large, and with gcPercent five times as large before they are
// collected: a container would be killed for it. GOMEMLIMIT wins.
func heedMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if allowed := memoryAllowed(os.DirFS("/")); allowed > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(allowed / 100 * memoryPercent)
	}
}

// memoryAllowed is how many bytes this process may take, by the least limit of the Linux control groups that it is in, of either version; 0:
// there is none.
func memoryAllowed(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(math.MaxInt64)
	for group := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(group), ":", 3)
		if len(parts) < 3 || (parts[1] != "" && parts[1] != "memory") {
			continue
		}
		top, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		// In a container the groups above its own, and often the name of its own, are not to be seen.
		for name := path.Clean("/" + parts[2]); ; name = path.Dir(name) {
			text, _ := fs.ReadFile(root, path.Join(top, name, file))
			if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // else max, or nothing
				least = min(least, limit)
			}
			if name == "/" {
				break
			}
		}
	}
	if least > math.MaxInt64/2 { // so version 1 says that there is none
		return 0
	}
	return least
}
