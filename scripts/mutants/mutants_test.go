package main

import (
	"path/filepath"
	"testing"
)

// leastMutants is how many faults there are at least.
const leastMutants = 18

func TestEveryFaultStillApplies(t *testing.T) {
	root := filepath.Join("..", "..")
	all, err := load("patches")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < leastMutants {
		t.Errorf("%d faults, fewer than %d", len(all), leastMutants)
	}
	for _, m := range all {
		if _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v\nBring its text up to date with the code: it needs to be a fault, not a patch.", m.name, err)
		}
	}
}

func TestWhatIsNoFaultIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "A sentence.\nbreaks: W1\ntests: a\n", "A sentence.\nbreaks: W1\n-- a find --\nx\n-- a replace --\ny\n",
		"A sentence.\nbreaks: W1\ntests: a\n-- a find --\nx\n-- b replace --\ny\n", "A sentence.\nbreaks: W1\ntests: a\n-- a find --\nx\n",
	} {
		if _, err := parse([]byte(text)); err == nil {
			t.Errorf("%q is taken for a fault", text)
		}
	}
}
