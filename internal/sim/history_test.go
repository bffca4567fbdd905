package sim_test

import (
	"testing"

	"github.com/nelkap/nelkap/internal/sim"
)

func TestEveryHistoryGoesOnTheSameWayFromEachOfItsEntries(t *testing.T) {
	short(t)
	const seeds = 25
	for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
		playOnce(t, seed, "memory", sim.NewReport(), true)
	}
}
