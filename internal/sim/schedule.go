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

// everyMinute is the one schedule of this world: a tick is a full minute.
const everyMinute = "* * * * *"

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

// tickOf is a workflow's tick.
type tickOf struct {
	workflow string
	at       time.Time
}

// moves takes in that a schedule is made, or that its cursor moves: each tick that it passes starts at most one run, none starts one twice or
// early, and where all are caught up with, none is left out (D2).
func (t *witness) moves(n *node, s store.Schedule, change []store.Op) {
	before, known := t.schedules[s.ID]
	t.schedules[s.ID] = s
	if !known || before.Paused || s.Paused {
		return
	}
	started := 0
	for _, op := range change {
		insert, is := op.(store.InsertRun)
		var in tick
		if !is || json.Unmarshal(insert.Payload, &in) != nil || in.Schedule == "" {
			continue
		}
		started++
		key := tickOf{insert.Run.Workflow, in.Time.UTC()}
		switch {
		case t.ticks[key]:
			t.broken("D2", "the tick of %s at %v has started a second run, %s", key.workflow, key.at, insert.Run.ID)
		case in.Time.After(n.latest()):
			t.broken("W4", "the tick of %s at %v came %v early", key.workflow, key.at, in.Time.Sub(n.latest()))
		case !in.Time.After(before.Cursor) || in.Time.After(s.Cursor) || in.Time.Truncate(time.Minute) != in.Time:
			t.broken("D2", "%v is no tick of %s between %v and %v", key.at, key.workflow, before.Cursor, s.Cursor)
		}
		t.ticks[key] = true
		t.world.report.reached(ticked)
	}
	passed := int(s.Cursor.Truncate(time.Minute).Sub(before.Cursor.Truncate(time.Minute)) / time.Minute)
	if before.CatchUp == string(nelkap.CatchUpAll) && started != passed {
		t.broken("D2", "%s went from %v to %v, %d ticks, and started %d runs", s.Workflow, before.Cursor, s.Cursor, passed, started)
	}
	if started > 1 {
		t.world.report.reached(caughtUp)
	}
}

// endSchedules sees that schedules tick once nothing goes wrong any more, and pauses them, so that runs come to an end.
func (w *world) endSchedules() {
	if !w.plan.scheduled() {
		return
	}
	rest(time.Minute + 10*time.Second)
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
