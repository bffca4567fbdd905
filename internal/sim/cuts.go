package sim

import (
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// deadly has a step's first bodies kill their process: it is cut off again and again (C13).
func (f *workflowPlan) deadly(d *dice) {
	steps := f.versions[0]
	if len(steps) == 0 || !d.odds(120) {
		return
	}
	if s := steps[d.below(len(steps))]; s.kind == "" && !s.once {
		s.kills = []int{1 + d.below(3), 4 + d.below(9)}[d.pick(3, 2)]
	}
}

// kills tells whether any body kills its process.
func (p *plan) kills() (kills bool) {
	for _, f := range p.workflows {
		f.each(func(s *stepPlan) { kills = kills || s.kills > 0 })
	}
	return kills
}

// kills has a body's process die, if that is in its plan, and tells whether it has.
func (p *process) kills(s *stepPlan, id stepID) bool {
	t, w := p.world.witness, p.world
	t.mu.Lock()
	t.deaths[id]++
	kills := t.deaths[id] <= s.kills && !t.lenient
	t.mu.Unlock()
	if !kills {
		return false
	}
	_, dice := w.name("kills " + id.String())
	away := dice.between(time.Millisecond, 2*time.Second)
	w.beside.start(func() {
		w.disturb()
		w.trace.add(p.name, "is killed by a body", id.String())
		p.kill(false)
		p.service.vacate(p)
		rest(away)
		p.service.startIfVacant()
		w.disturb()
	})
	<-p.died
	p.pass(0)
	return true
}

// grewSince tells whether a run's history has grown since a call began: also by a sleep that is over, and whose wait the call has sent again.
func (t *witness) grewSince(c *callRecord) bool {
	r := t.runs[c.run]
	return r.Restart == c.restart && len(r.entries) > 0 && r.entries[len(r.entries)-1].savedIn > c.begunIn
}

// checkRecorded: after a cut no body begins whose start is not recorded, until a step is saved in the call; and from the fifth cut on bodies
// run one at a time (C13). mu is held.
func (p *playing) checkRecorded(s *stepPlan, id stepID, attempt int) {
	t := p.witness
	c := t.calls[p.call]
	if c == nil || c.cuts == 0 || t.lenient {
		return
	}
	if !c.saved && !t.grewSince(c) && !t.starts[startOf{retryOf{id, attempt}, p.call}] {
		t.broken("C13", "%s: attempt %d begins in call %s after %d cuts, and its start is not recorded", id, attempt, p.call, c.cuts)
	}
	if s.timeout > 0 {
		return // it may go on beside others once its time is up
	}
	p.running++
	if c.cuts < cutsAlone {
		return
	}
	t.world.report.reached(aloneAfterCuts)
	if p.running > 1 {
		t.broken("C13", "%s begins in call %s, which follows %d cuts, beside %d other bodies", id, p.call, c.cuts, p.running-1)
	}
}

// The bounds of cuts in a row (C13).
const (
	cutsAlone = 5  // from which on bodies run one at a time
	cutsMost  = 10 // that end the step, or the run
)

// stops is told that a step's body has ended, or never will.
func (p *playing) stops(s *stepPlan) {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.calls[p.call]; c != nil && c.cuts > 0 && !t.lenient && s.timeout == 0 {
		p.running--
	}
}

// checkCuts: cuts are counted in a row since the history grew, and the tenth ends the step, or the run, and no earlier one (C13). mu is held.
func (t *witness) checkCuts(r *record, before, run *workflow.Run, ops []store.Op, entries int64) {
	grown := r.entries[min(int64(len(r.entries)), entries):]
	cut := false
	for _, op := range ops {
		u, is := op.(store.UpdateRun)
		cut = cut || is && u.CutCall != ""
	}
	for _, e := range grown {
		// The error of an invoke may be what its child failed with.
		if e.saved.Kind == workflow.KindRun && strings.Contains(string(e.saved.Error), `"StepCutOffError"`) {
			t.world.report.reached(cutOffTooOften)
			if r.cutsInRow != cutsMost-1 || !t.begun[r.step(e.saved.StepID)] {
				t.broken("C13", "%s failed since it was cut off, which its run was %d times in a row; its start was recorded: %t",
					r.step(e.saved.StepID), r.cutsInRow+1, t.begun[r.step(e.saved.StepID)])
			}
		}
	}
	switch {
	case len(grown) > 0 && !cut || run.Restart != before.Restart || run.Closing() && !before.Closing(): // whose code counts anew
		r.cutsInRow = 0
	case cut:
		r.cutsInRow++
		if r.cutsInRow >= cutsMost && len(grown) == 0 && run.Status != workflow.Failed && run.Ending == nil {
			t.broken("C13", "run %s was cut off %d times in a row, and goes on as %s", r.ID, r.cutsInRow, run.Status)
		}
		if len(grown) > 0 {
			r.cutsInRow = 0
		}
	case run.Cuts == before.Cuts-1: // the call has come back
		r.cutsInRow = max(0, r.cutsInRow-1)
	}
}
