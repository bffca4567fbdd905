package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
)

const (
	manySteps = 10_000 // as many as a run may have
	// windowSteps is how many steps are compared, at the beginning and at the end of the run.
	windowSteps = 1_000
	// slowdownMax is how much more a step may take at the end.
	slowdownMax = 2.0
	longWithin  = 2 * time.Minute
)

func TestTheLastOfManyStepsCostsNoMoreThanTheFirst(t *testing.T) {
	inEach(t, func(t *testing.T, language string) {
		w, app := newSimple(t, language)
		begun := time.Now()
		id := w.run(language, plan.Plan{Repeat: manySteps, Gate: "gate"})
		w.markWithin(longWithin, plan.MarkOutside, id, "", 1)
		took := time.Since(begun)
		w.bodies(id, each(manySteps))
		first, last := w.pace(id)
		t.Logf("%d steps took %v; median of the first %d: %.2f ms, of the last: %.2f ms", manySteps, took.Round(time.Millisecond), windowSteps, first, last)
		if last > slowdownMax*first {
			t.Errorf("a step takes %.2f ms at the end, more than %v times the %.2f ms at the beginning", last, slowdownMax, first)
		}
		// All is saved and the code outside steps runs: when it is cut off, the pick-up plays it again, and no body.
		app.kill()
		app.start()
		w.markWithin(longWithin, plan.MarkOutside, id, "", 2)
		w.open("gate")
		run := w.completed(id, within)
		w.bodies(id, each(manySteps))
		if out := decode[plan.Output](t, run.Output); out.Steps != manySteps || out.PID != app.pid() {
			t.Errorf("the output is %+v, want that of %d steps in process %d", out, manySteps, app.pid())
		}
	})
}

// each wants the marks of so many steps of a plan's Repeat, plus none.
func each(n int) map[string]int {
	want := map[string]int{}
	for i := range n {
		want[repeated(i+1)] = 1
	}
	return want
}

// pace gives the median times of a run's first and last steps, in milliseconds, from body to body.
func (w *world) pace(runID string) (first, last float64) {
	var at []float64
	for _, m := range w.marks() {
		if m.Kind == plan.MarkBody && m.Run == runID {
			at = append(at, m.At)
		}
	}
	var took []float64
	for i := range len(at) - 1 {
		took = append(took, at[i+1]-at[i])
	}
	return median(took[:windowSteps]), median(took[len(took)-windowSteps:])
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
