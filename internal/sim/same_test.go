//go:build !race

// The race detector makes the runtime choose among goroutines at random, on purpose: then two nodes, or two requests of one node, that
// act at one instant have no order.

package sim_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nelkap/nelkap/internal/sim"
)

// The runtime also takes the processor from a goroutine that has had it for 10 ms by the machine's clock, so where the machine itself does
// other things those change places now and then. A seed whose first two traces differ is therefore played ten times more: all but two of the
// twelve must be one trace, which is far from what order by chance would give.
func TestASeedGivesTheSameTraceByteForByte(t *testing.T) {
	short(t)
	const seeds = 100
	trace := func(seed uint64) string { return play(t, seed, "memory", sim.NewReport()).Trace() }
	for seed := uint64(1); seed <= seeds; seed++ {
		one, two := trace(seed), trace(seed)
		if one == two {
			continue
		}
		times := map[string]int{one: 1, two: 1}
		for range 10 {
			times[trace(seed)]++
		}
		if slices.Max(slices.Collect(maps.Values(times))) >= 10 {
			continue
		}
		first, second := strings.Split(one, "\n"), strings.Split(two, "\n")
		at := 0
		for at < min(len(first), len(second)) && first[at] == second[at] {
			at++
		}
		t.Errorf("seed %d: twelve plays gave %d traces; the second differs from line %d on; before it:\n%s\nthe first:\n%s\nthe second:\n%s", seed, len(times), at+1,
			strings.Join(first[max(0, at-8):at], "\n"), strings.Join(first[at:min(at+4, len(first))], "\n"), strings.Join(second[at:min(at+4, len(second))], "\n"))
	}
}
