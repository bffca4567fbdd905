package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/history"
	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
)

// Marks by hand: a judge that finds nothing wrong in anything would prove nothing.
func TestWrongMarksAreFound(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	at := func(seconds float64) time.Time { return begun.Add(time.Duration(seconds * float64(time.Second))) }
	body := func(seconds float64, pid int, step string, attempt int) plan.Mark {
		return plan.Mark{Kind: plan.MarkBody, Run: "run_1", Step: step, Attempt: attempt, PID: pid, At: float64(at(seconds).UnixMicro()) / 1000}
	}
	kill := fault{card: killed, pid: 1, from: at(1), to: at(1.5)}
	for name, c := range map[string]struct {
		marks  []plan.Mark
		faults []fault
		wrong  int // violations
		cut    int // bodies that were cut off
	}{
		"each body once": {marks: []plan.Mark{body(0, 1, "one", 1), body(0.1, 1, "two", 1), body(0.2, 1, "two", 2)}},
		"a body again after its process was killed": {
			marks:  []plan.Mark{body(0, 1, "one", 1), body(0.9, 1, "two", 1), body(4, 2, "two", 1)},
			faults: []fault{kill}, cut: 1,
		},
		"a body again, and nobody was killed":                          {marks: []plan.Mark{body(0, 1, "one", 1), body(4, 2, "one", 1)}, wrong: 1},
		"a body again in the same process":                             {marks: []plan.Mark{body(0, 1, "one", 1), body(0.02, 1, "one", 1)}, wrong: 1},
		"a body again in a process that was frozen for long":           {marks: []plan.Mark{body(0, 1, "one", 1), body(9, 1, "one", 1)}, faults: []fault{{frozenLong, 1, at(1), at(8)}}, cut: 1},
		"a body again in a process that was frozen shortly":            {marks: []plan.Mark{body(0, 1, "one", 1), body(9, 1, "one", 1)}, faults: []fault{{frozen, 1, at(1), at(2)}}, wrong: 1},
		"a body again in a process that had just been frozen for long": {marks: []plan.Mark{body(8.01, 1, "one", 1), body(8.03, 1, "one", 1)}, faults: []fault{{frozenLong, 1, at(1), at(8)}}, cut: 1},
		"a body again in a process that was frozen once more before it could hear of it": {
			marks:  []plan.Mark{body(9.31, 1, "one", 1), body(9.4, 1, "one", 1)},
			faults: []fault{{frozenLong, 1, at(1), at(8)}, {frozen, 1, at(8.1), at(9.3)}}, cut: 1,
		},
		"a body again in a process that was frozen long ago": {marks: []plan.Mark{body(12, 1, "one", 1), body(12.1, 1, "one", 1)}, faults: []fault{{frozenLong, 1, at(1), at(8)}}, wrong: 1},
		"a body again in a process that was frozen later":    {marks: []plan.Mark{body(0, 1, "one", 1), body(0.5, 1, "one", 1)}, faults: []fault{{frozenLong, 1, at(1), at(8)}}, wrong: 1},
		"a saved step again": {
			marks:  []plan.Mark{body(0, 1, "one", 1), body(0.5, 1, "two", 1), body(4, 2, "one", 1)},
			faults: []fault{kill}, wrong: 2, cut: 1, // the marks' order, and the history of them
		},
		"a body after its run's end":  {marks: []plan.Mark{body(0, 1, "one", 1), body(201, 2, "two", 1)}, faults: []fault{kill}, wrong: 1},
		"a step that no plan has":     {marks: []plan.Mark{body(0, 1, "other", 1)}, wrong: 1},
		"a cut that used up attempts": {marks: []plan.Mark{body(0, 1, "one", 1), body(4, 2, "one", 2)}, faults: []fault{kill}, wrong: 1},
		"a pick-up that came late":    {marks: []plan.Mark{body(0, 1, "one", 1), body(120, 2, "one", 1)}, faults: []fault{kill}, wrong: 1, cut: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := handmade(t, c.faults)
			run := apitype.Run{ID: "run_1", App: "go", Status: "completed", CreatedAt: apitype.At(begun), EndedAt: apitype.At(at(200))}
			p := plan.Plan{Steps: []plan.Step{{Name: "one"}, {Name: "two", Throws: 1}}}
			j := &judge{chaos: made, byRun: map[string][]plan.Mark{"run_1": c.marks}}
			j.order(run, p)
			j.repeats(run)
			j.end(run, p)
			wrong := slices.Concat(made.violations, made.history.Check().Violations)
			if len(wrong) != c.wrong || j.cutByKill+j.cutByFreeze != c.cut {
				t.Errorf("%d violations and %d bodies cut off, want %d and %d: %q", len(wrong), j.cutByKill+j.cutByFreeze, c.wrong, c.cut, wrong)
			}
		})
	}
}

// handmade is a chaos that never happened, but for faults of the Go app.
func handmade(t *testing.T, faults []fault) *chaos {
	t.Helper()
	nothing := &process{}
	c := &chaos{world: &world{t: t, apps: map[string]*process{"go": nothing}}, chaosSpec: chaosSpec{pickUpMax: singlePickUpMax}, history: history.New()}
	c.serverVictims, c.appVictims = []*victim{{process: nothing}}, map[string]*victim{"go": {process: nothing, faults: faults}}
	return c
}
