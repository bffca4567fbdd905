package main

import (
	"testing"
	"testing/fstest"
)

func TestTheMemoryThatAServerMayTakeIsItsGroups(t *testing.T) {
	for _, c := range []struct {
		outcome, group string
		files          map[string]string
		want           int64
	}{
		{"a container's", "0::/\n", map[string]string{"memory.max": "1073741824\n"}, 1 << 30},
		{"a unit's", "0::/system.slice/nelkap.service\n", map[string]string{"system.slice/memory.max": "max\n", "system.slice/nelkap.service/memory.max": "536870912\n"}, 512 << 20},
		{"the least of those above", "0::/a/b\n", map[string]string{"a/memory.max": "1000\n", "a/b/memory.max": "2000\n"}, 1000},
		{"a container's whose name is its host's", "0::/kubepods/pod1\n", map[string]string{"memory.max": "2000\n"}, 2000},
		{"of version 1", "5:memory:/docker/1\n4:cpu:/docker/1\n", map[string]string{"memory/memory.limit_in_bytes": "3000\n", "memory.max": "1\n"}, 3000},
		{"none", "0::/\n", map[string]string{"memory.max": "max\n"}, 0},
		{"none, of version 1", "5:memory:/\n", map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		{"of a root without one", "0::/\n", nil, 0},
		{"of a system without groups", "", nil, 0},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			root := fstest.MapFS{}
			if c.group != "" {
				root["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(c.group)}
			}
			for name, text := range c.files {
				root["sys/fs/cgroup/"+name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := memoryAllowed(root); got != c.want {
				t.Errorf("it is %d, want %d", got, c.want)
			}
		})
	}
}
