//go:build !race

// The race detector makes the runtime choose among goroutines at random, on purpose: then two nodes, or two requests of one node, that
// act at one instant have no order.

package sim_test

import (
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/sim"
)

func TestASeedGivesTheSameTraceByteForByte(t *testing.T) {
	short(t)
	const seeds = 100
	for seed := uint64(1); seed <= seeds; seed++ {
		one := play(t, seed, "memory", sim.NewReport()).Trace()
		two := play(t, seed, "memory", sim.NewReport()).Trace()
		if one == two {
			continue
		}
		first, second := strings.Split(one, "\n"), strings.Split(two, "\n")
		at := 0
		for at < min(len(first), len(second)) && first[at] == second[at] {
			at++
		}
		t.Errorf("seed %d: from line %d on the second run differs; before it:\n%s\nthe first:\n%s\nthe second:\n%s", seed, at+1,
			strings.Join(first[max(0, at-8):at], "\n"), strings.Join(first[at:min(at+4, len(first))], "\n"), strings.Join(second[at:min(at+4, len(second))], "\n"))
	}
}
