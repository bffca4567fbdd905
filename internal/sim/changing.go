package sim

import (
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/workflow"
)

// rename has later versions say what some steps were called before (S7). All steps of a name are renamed, or none.
func (f *workflowPlan) rename(d *dice) {
	for v := 1; v < len(f.versions); v++ {
		names := map[string]string{} // what steps are renamed to; as they were: they are not
		for later := v; later < len(f.versions); later++ {
			f.versions[later] = renamed(f.versions[later], func(s *stepPlan) string {
				if names[s.name] == "" {
					names[s.name] = s.name
					if later == v && d.odds(500) {
						names[s.name] += fmt.Sprintf(" moved %d", v)
					}
				}
				return names[s.name]
			})
		}
	}
}

// deployOften adds deploys to a plan: what changes with them takes one to be seen.
func (p *plan) deployOften(d *dice, span time.Duration) {
	for range d.below(4) {
		p.faults = append(p.faults, faultPlan{
			at: d.between(0, span+time.Second), kind: appDeploys, app: d.below(p.apps),
			lasts: d.between(time.Millisecond, 3*time.Second), away: d.between(time.Millisecond, time.Second),
		})
	}
}

// renamed is a list of steps, also those in branches, with other names for those that can say what they were.
func renamed(steps []*stepPlan, name func(*stepPlan) string) []*stepPlan {
	list := make([]*stepPlan, len(steps))
	for i, s := range steps {
		again := *s
		again.branches = nil
		switch s.kind {
		case kindParallel:
			for _, branch := range s.branches {
				again.branches = append(again.branches, renamed(branch, name))
			}
		case workflow.KindUndo: // which has no such option
		default:
			if again.name = name(s); again.name != s.name {
				again.was = s.name
			}
		}
		list[i] = &again
	}
	return list
}

// renamed is the step that the code means: that of its old name, where the run knows it under that and not under the new one (S7).
// witness.mu is held.
func (p *playing) renamed(s *stepPlan, id stepID) stepID {
	old := id
	old.Name = p.prefix + s.was
	if p.knows(id) || !p.knows(old) {
		return id
	}
	// What keeps the old name counts after it.
	p.names[old.Name] = max(p.names[old.Name], old.Number)
	if p.witness.runs[p.run].entryIn(p.restart, old.StepID) != nil {
		p.witness.world.report.reached(foundByWas)
	} else {
		p.witness.world.report.reached(openByWas)
	}
	return old
}

// knows tells whether the run has anything of a step that its code is to go on with: its entry, its open wait, a throw, or that it began.
// The function of a closing is shown what was saved before it, and nothing else. witness.mu is held.
func (p *playing) knows(id stepID) bool {
	t := p.witness
	r := t.runs[p.run]
	e := r.entryIn(p.restart, id.StepID)
	if p.closing != nil && p.prefix == "" {
		return e != nil && e.saved.Entry <= p.closing.Entries
	}
	return e != nil || p.restart == r.Restart && r.open[id.StepID] != nil || !t.retries[retryOf{id, 1}].IsZero() || t.begun[id]
}
