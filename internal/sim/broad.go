package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// broaden adds to a workflow what only broad seeds have: code that throws while its run waits for something, and that asks for its pause.
func (p *plan) broaden(d *dice, f *workflowPlan) {
	m := &maker{plan: p, dice: d}
	if d.odds(500) {
		m.made = 100 // their names are their own
		beside := &stepPlan{kind: kindParallel, name: "throws beside", retries: -1, branches: [][]*stepPlan{m.branch(0), {m.wait()}}}
		last := newStep(d, "after the throw")
		last.codeThrows = 1 + d.below(2)
		beside.branches[0] = append(beside.branches[0], last)
		f.insert(d, beside)
		f.logs = false // lines of branches come in any order
	}
	f.each(func(s *stepPlan) {
		if s.codeThrows > 0 && d.odds(600) {
			s.codeAfter = d.between(50*time.Millisecond, 12*time.Second).Truncate(time.Millisecond)
		}
	})
	if d.odds(300) {
		f.addSchedule(d)
		f.everyOther = true
	}
}

// wait makes a step that waits for something that may come soon.
func (m *maker) wait() *stepPlan {
	s := &stepPlan{retries: -1}
	if m.dice.odds(500) {
		m.made++
		s.kind, s.name, s.lasts = workflow.KindSleep, fmt.Sprintf("sleep %d", m.made), drawWait(m.dice)
		return s
	}
	m.made++
	m.event(s)
	return s
}

// broadenClient has a client hold keys for a time, and ask for replays in other ways.
func broadenClient(d *dice, operations []operation) {
	for i := range operations {
		switch o := &operations[i]; {
		case o.kind == opStart && d.odds(400):
			o.key, o.keyFor = fmt.Sprintf("timed %d", d.below(2)), d.between(500*time.Millisecond, 15*time.Second).Truncate(time.Millisecond)
		case o.kind == opReplay:
			o.otherKeys, o.newEvents = d.odds(400), d.odds(400)
		}
	}
}

// pausePlan is when schedules are paused, and for how long.
type pausePlan struct{ at, lasts time.Duration }

// pauseSchedules pauses all schedules for a while.
func (w *world) pauseSchedules(p pausePlan) {
	rest(p.at)
	w.setPaused(true)
	rest(p.lasts)
	w.setPaused(false)
}

// setPaused pauses all schedules, or lets them go on. One that can't be reached stays as it is.
func (w *world) setPaused(paused bool) {
	list, err := w.options.Model.Schedules(context.Background(), store.ScheduleQuery{Limit: 100})
	if err != nil {
		w.violation("store", "the schedules can't be read: %v", err)
	}
	for _, s := range list {
		for range 20 {
			if n := w.worker(0); n != nil && n.setPaused(s.ID, paused) == nil {
				break
			}
			rest(time.Second)
		}
	}
}

// setPaused pauses a schedule, or lets it go on. A node that dies meanwhile never answers.
func (n *node) setPaused(schedule string, paused bool) error {
	answer := make(chan error, 1)
	go func() {
		_, err := n.engine.PauseSchedule(context.Background(), engine.DefaultEnv, schedule, paused)
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-n.died:
		return errReset
	}
}
