package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"

	"github.com/nelkap/nelkap/internal/store"
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

// reschedule gives each version of a workflow a schedule of its own, or none: another expression, or another rule of catching up (D2).
func (f *workflowPlan) reschedule(d *dice) {
	if !d.odds(300) {
		return
	}
	f.scheduled = true
	s := schedulePlan{}
	for range f.versions {
		if s.expression == "" || d.odds(500) {
			s.expression = []string{everyOther, everyMinute, ""}[d.pick(5, 2, 2)]
		}
		s.catchUp = []nelkap.CatchUpRule{nelkap.CatchUpNone, nelkap.CatchUpLast, nelkap.CatchUpAll}[d.below(3)]
		f.schedules = append(f.schedules, s)
	}
}

// changeClient has a client emit events for later, and make requests with an Idempotency-Key.
func changeClient(d *dice, operations []operation) {
	for i := range operations {
		o := &operations[i]
		if o.kind == opEmit && d.odds(400) {
			o.later = d.between(20*time.Millisecond, []time.Duration{time.Second, 40 * time.Second}[d.below(2)])
		}
		if kind := o.kind; (kind == opStart || kind == opEmit || kind == opReplay || kind == opRead) && d.odds(350) {
			o.kind, o.request, o.again, o.tag = opKeyed, fmt.Sprintf("request %d", d.below(3)), d.odds(500), tagName(d.pick(5, 1))
			o.replays, o.wait = kind == opReplay || kind == opRead, d.between(0, 20*time.Second)
			if kind == opStart && o.key != "" && d.odds(500) {
				o.keyFor = d.between(500*time.Millisecond, 15*time.Second).Truncate(time.Millisecond)
				o.key = fmt.Sprintf("timed %d", d.below(2))
			}
		}
	}
}

// checkDeclared: the store has a schedule with a rule that its code has given it (D1). mu is held.
func (t *witness) checkDeclared(s store.Schedule) {
	f, app := t.workflows[s.Workflow], t.world.service(s.App)
	if t.schedules[s.ID].Version > 1 {
		t.world.report.reached(otherRule)
	}
	for version := range app.versionsDescribed() {
		if f.scheduleOf(version) == (schedulePlan{s.Expression, nelkap.CatchUpRule(s.CatchUp)}) {
			return
		}
	}
	t.broken("D1", "%s has the schedule %q, which catches up with %q, and none of its code that was asked says so", s.Workflow, s.Expression, s.CatchUp)
}

// checkNewSchedule: one that is new, also by another expression, does not look back to before its code said that it has it (D2). mu is held.
func (t *witness) checkNewSchedule(s store.Schedule) {
	var since time.Time
	for version, d := range t.world.service(s.App).versionsDescribed() {
		if t.workflows[s.Workflow].scheduleOf(version).expression == s.Expression && (since.IsZero() || d.first.Before(since)) {
			since = d.first
		}
	}
	if ago := since.Sub(s.Cursor); ago > instant && t.world.steady() {
		t.broken("D2", "the schedule %q of %s is new, and looks back to %v before its code had it", s.Expression, s.Workflow, ago)
	}
}

// undeclares takes in that a schedule goes: its code has not said that it has it for a while (D1). mu is held.
func (t *witness) undeclares(id string) {
	s := t.schedules[id]
	delete(t.schedules, id)
	f := t.workflows[s.Workflow]
	for version, d := range t.world.service(s.App).versionsDescribed() {
		if left := t.world.plan.forgetAfter - time.Since(d.last); left > instant && f.scheduleOf(version).expression == s.Expression && t.world.steady() {
			t.broken("D1", "the schedule %q of %s goes %v early: its code said that it has it at %v", s.Expression, s.Workflow, left, d.last)
		}
	}
	t.world.report.reached(undeclared)
}

// service is an app by its name.
func (w *world) service(name string) *service {
	return w.services[slices.IndexFunc(w.services, func(s *service) bool { return s.name == name })]
}

// versionsDescribed is when each version of the code said what it has, of those that have.
func (s *service) versionsDescribed() map[int]described {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	return maps.Clone(s.described)
}

// endDeclared sees that the store has the schedules that the code has now, and no others, once it has had the time to hear of that (D1).
func (w *world) endDeclared() {
	if !w.steady() {
		return
	}
	rest(w.plan.forgetAfter)
	list, err := w.options.Model.Schedules(context.Background(), store.ScheduleQuery{Limit: 100})
	if err != nil {
		w.violation("store", "the schedules can't be read: %v", err)
	}
	declared := map[string]schedulePlan{}
	for _, f := range w.plan.workflows {
		if s := f.scheduleOf(w.service(f.app).version); s.expression != "" {
			declared[f.name] = s
		}
	}
	for _, s := range list {
		if got := (schedulePlan{s.Expression, nelkap.CatchUpRule(s.CatchUp)}); got != declared[s.Workflow] {
			w.violation("D1", "%s has the schedule %v, and its code has %v", s.Workflow, got, declared[s.Workflow])
		}
	}
	if len(list) != len(declared) {
		w.violation("D1", "the store has %d schedules, and the code has %v", len(list), declared)
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

// knows tells whether the run had anything of a step when the call began: its entry, its open wait, a throw, or that it had begun. A double of
// the call knows no more than that. The function of a closing is shown what was saved before it, and nothing else. witness.mu is held.
func (p *playing) knows(id stepID) bool {
	t := p.witness
	if p.closing != nil && p.prefix == "" {
		e := t.runs[p.run].entryIn(p.restart, id.StepID)
		return e != nil && e.saved.Entry <= p.closing.Entries
	}
	in, known := t.firstIn[id]
	c := t.calls[p.call]
	return known && c != nil && in <= c.begunIn
}

// first notes in which commit there was first anything of a step. mu is held.
func (t *witness) first(id stepID) {
	if _, known := t.firstIn[id]; !known {
		t.firstIn[id] = t.commits
	}
}
