package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// leastMutants is how many faults there are at least.
const leastMutants = 90

func TestEveryFaultStillAppliesAndHasBeenSeen(t *testing.T) {
	root := filepath.Join("..", "..")
	written, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
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
		if n := strings.Count(string(written), m.line()); n != 1 {
			t.Errorf("%s has %d lines in %s, and is to have one: make mutants MUTANTS='^%s$'", m.name, n, page, m.name)
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

func TestTheTableKeepsWhatWasNotTried(t *testing.T) {
	all := []mutant{{name: "a", says: "A."}, {name: "b", says: "B."}, {name: "c", says: "C."}}
	for i := range all {
		all[i].breaks, all[i].edits = "W1", []edit{{file: "x.go"}}
	}
	first := table(all, map[string]string{"a": "`TestA` (x)", "b": "`TestB` (x)"}, "")
	second := table(all, map[string]string{"b": "`TestOther` (x)"}, first)
	want := "| A. | W1 | `x.go` | `TestA` (x) |\n| B. | W1 | `x.go` | `TestOther` (x) |\n"
	if !strings.HasSuffix(second, "| - | - | - | - |\n"+want) {
		t.Errorf("the table is\n%s", second)
	}
}
