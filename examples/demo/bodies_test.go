package main

import (
	"slices"
	"testing"
)

func TestABodyMayRunAgainOnlyWhereAKillCutItOff(t *testing.T) {
	mark := func(step string, process int) body {
		return body{App: "shop", Run: "run_1", Order: "o_1", Step: step, Process: process}
	}
	for name, c := range map[string]struct {
		marks   []body
		repeats int
		retries int
		wrong   int
	}{
		"each once":                  {[]body{mark("claim", 1), mark("charge", 1)}, 0, 0, 0},
		"cut off and run again":      {[]body{mark("claim", 1), mark("charge", 1), mark("charge", 2)}, 1, 0, 0},
		"again in the same process":  {[]body{mark("claim", 1), mark("charge", 1), mark("charge", 1)}, 0, 0, 1},
		"again though it was saved":  {[]body{mark("claim", 1), mark("charge", 1), mark("claim", 2)}, 0, 0, 1},
		"the last in every process":  {[]body{mark("charge", 1), mark("charge", 2), mark("charge", 3)}, 2, 0, 0},
		"two steps in a new process": {[]body{mark("claim", 1), mark("charge", 1), mark("claim", 2), mark("charge", 2)}, 0, 0, 2},
		"tried again after an error": {[]body{mark("charge", 1), {App: "shop", Run: "run_1", Step: "charge", Attempt: 1, Process: 1}}, 0, 1, 0},
	} {
		got := countBodies(c.marks)
		if got.retries["shop"] != c.retries || got.repeats["shop"] != c.repeats || len(got.wrong) != c.wrong || got.bodies["shop"] != len(c.marks) {
			t.Errorf("%s: repeats %d, retries %d, wrong %v, bodies %d", name, got.repeats["shop"], got.retries["shop"], got.wrong, got.bodies["shop"])
		}
	}
}

func TestOrdersCoverEveryKindInEveryRound(t *testing.T) {
	for _, perShop := range []int{rounds, 20, 50} {
		orders := placeable(perShop)
		for round := range rounds {
			for _, shop := range []string{"shop-ts", "shop-go"} {
				if !slices.ContainsFunc(orders, func(o *order) bool { return o.round == round && o.Shop == shop }) {
					t.Errorf("%d orders: none for %s in round %d", perShop, shop, round+1)
				}
			}
		}
		if len(orders) != 2*perShop || !slices.ContainsFunc(orders, func(o *order) bool { return o.twice }) {
			t.Errorf("%d orders per shop gave %d", perShop, len(orders))
		}
	}
}
