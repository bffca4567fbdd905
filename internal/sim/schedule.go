package sim

import (
	"context"
	"encoding/json/v2"
	"slices"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
)

// The schedules of this world: a tick is a full minute, or each second one.
const (
	everyMinute = "* * * * *"
	everyOther  = "*/2 * * * *"
)

// schedulePlan is a workflow's schedule; without an expression it has none.
type schedulePlan struct {
	expression string
	catchUp    nelkap.CatchUpRule
}

// scheduleOf is the workflow's in a version of its app's code.
func (f *workflowPlan) scheduleOf(version int) schedulePlan {
	switch {
	case !f.scheduled:
		return schedulePlan{}
	case f.schedules != nil:
		return f.schedules[min(version, len(f.schedules)-1)]
	case f.everyOther:
		return schedulePlan{everyOther, f.catchUp}
	}
	return schedulePlan{everyMinute, f.catchUp}
}

// periodOf is the time between two ticks of a schedule.
func periodOf(s store.Schedule) time.Duration {
	if s.Expression == everyOther {
		return 2 * time.Minute
	}
	return time.Minute
}

// addSchedule has some workflows start at each tick.
func (f *workflowPlan) addSchedule(d *dice) {
	if d.odds(400) {
		f.scheduled, f.catchUp = true, []nelkap.CatchUpRule{nelkap.CatchUpNone, nelkap.CatchUpLast, nelkap.CatchUpAll}[d.below(3)]
	}
}

// scheduled tells whether anything is.
func (p *plan) scheduled() bool {
	return slices.ContainsFunc(p.workflows, func(f *workflowPlan) bool { return f.scheduled })
}

// tick is the payload of a tick's run.
type tick struct {
	Schedule string    `json:"schedule"`
	Time     time.Time `json:"time"`
}

// tickOf is a workflow's tick of a schedule.
type tickOf struct {
	workflow, schedule string
	at                 time.Time
}

// moves takes in that a schedule is made, or that its cursor moves: each tick that it passes starts at most one run, none starts one twice or
// early, and where all are caught up with, none is left out (D2).
func (t *witness) moves(n *node, s store.Schedule, change []store.Op) {
	before, known := t.schedules[s.ID]
	t.schedules[s.ID] = s
	if !known || before.CatchUp != s.CatchUp {
		t.checkDeclared(s)
	}
	if !known {
		t.checkNewSchedule(s)
		return
	}
	if before.Paused || s.Paused {
		t.checkPausedSchedule(before, s, change)
		return
	}
	started, period := 0, periodOf(s)
	for _, op := range change {
		insert, is := op.(store.InsertRun)
		var in tick
		if !is || json.Unmarshal(insert.Payload, &in) != nil || in.Schedule == "" {
			continue
		}
		started++
		key := tickOf{insert.Run.Workflow, s.ID, in.Time.UTC()}
		switch {
		case in.Schedule != s.Expression || insert.Run.Workflow != s.Workflow:
			t.broken("D2", "the tick of %q has started run %s of %s with the payload %s", s.Expression, insert.Run.ID, insert.Run.Workflow, insert.Payload)
		case t.ticks[key]:
			t.broken("D2", "the tick of %s at %v has started a second run, %s", key.workflow, key.at, insert.Run.ID)
		case in.Time.After(n.latest()):
			t.broken("W4", "the tick of %s at %v came %v early", key.workflow, key.at, in.Time.Sub(n.latest()))
		case !in.Time.After(before.Cursor) || in.Time.After(s.Cursor) || in.Time.Truncate(period) != in.Time:
			t.broken("D2", "%v is no tick of %s between %v and %v", key.at, key.workflow, before.Cursor, s.Cursor)
		}
		t.ticks[key] = true
		t.world.report.reached(ticked)
	}
	passed := int(s.Cursor.Truncate(period).Sub(before.Cursor.Truncate(period)) / period)
	if least, most := t.owed(s, passed); started < least || started > most {
		t.broken("D2", "%s, which catches up with %q, went from %v to %v, %d ticks, and started %d runs", s.Workflow, before.CatchUp, before.Cursor, s.Cursor, passed, started)
	} else if started < passed {
		t.world.report.reached(tickLeftOut)
	}
	if started > 1 {
		t.world.report.reached(caughtUp)
	}
}

// owed is how many runs a schedule owes of ticks that have passed: all, the last alone, or that only where it is no minute late (D2).
func (t *witness) owed(s store.Schedule, passed int) (least, most int) {
	age := time.Since(s.Cursor.Truncate(periodOf(s)))
	switch {
	case s.CatchUp == string(nelkap.CatchUpAll):
		return passed, passed
	case s.CatchUp == string(nelkap.CatchUpLast) || passed == 0:
		return min(1, passed), min(1, passed)
	case !t.world.steady():
		return 0, 1
	case age < time.Minute:
		return 1, 1
	case age > time.Minute+storedBy && t.world.undisturbed() > storedBy: // else it may have been decided in time
		return 0, 0
	}
	return 0, 1
}

// checkPausedSchedule: one that is paused starts nothing, and does not catch up when it goes on (D2).
func (t *witness) checkPausedSchedule(before, s store.Schedule, change []store.Op) {
	if slices.ContainsFunc(change, func(op store.Op) bool { _, starts := op.(store.InsertRun); return starts }) {
		t.broken("D2", "the schedule of %s is paused, and a change of it does more: %v", s.Workflow, change)
	}
	if before.Paused && !s.Paused {
		t.world.report.reached(resumed)
		if missed := time.Since(s.Cursor); missed > storedBy && t.world.steady() && t.world.undisturbed() > storedBy {
			t.broken("D2", "the schedule of %s goes on, and looks back for %v", s.Workflow, missed)
		}
	}
}

// endSchedules sees that schedules tick once nothing goes wrong any more, and pauses them, so that runs come to an end.
func (w *world) endSchedules() {
	if !w.plan.scheduled() {
		return
	}
	rest(time.Minute + 10*time.Second)
	w.endDeclared()
	list, err := w.options.Model.Schedules(context.Background(), store.ScheduleQuery{Limit: 100})
	if err != nil {
		w.violation("store", "the schedules can't be read: %v", err)
	}
	for _, s := range list {
		if late := time.Since(s.NextAt); late > soon && w.steady() {
			w.violation("W5", "the schedule of %s should have ticked %v ago", s.Workflow, late)
		}
		for tries := 0; ; tries++ {
			n := w.worker(0)
			if n != nil {
				_, err = n.engine.PauseSchedule(context.Background(), engine.DefaultEnv, s.ID, true)
			}
			if n != nil && err == nil {
				break
			}
			if rest(time.Second); tries > 60 {
				w.violation("W5", "the schedule of %s can't be paused: %v", s.Workflow, err)
				return
			}
		}
	}
}
