package sim_test

import (
	"testing"

	"github.com/nelkap/nelkap/internal/sim"
)

func TestEveryHistoryGoesOnTheSameWayFromEachOfItsEntries(t *testing.T) {
	short(t)
	const seeds = 25
	for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
		playOnce(t, seed, "memory", sim.NewReport(), sim.Options{}, func(r sim.Result) {
			if _, err := r.PlayPrefixes(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}
