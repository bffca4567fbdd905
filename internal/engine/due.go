package engine

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"time"

	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/schedule"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// The bounds of what is due.
const (
	dueNet  = 5 * time.Second // between looks at the store without a hint
	duePage = 500             // schedules, or events, read at once
)

// runDue starts the runs of schedules' ticks, and emits the events whose time has come. Which of several nodes does it is decided by the
// store: a schedule's version, a kept event's row (D2).
func (e *Engine) runDue() {
	for {
		wait := e.net(dueNet)
		if e.peers.leads() {
			e.tickDue()
			e.emitDue()
			if next, err := e.store.NextDue(e.ctx); err == nil && !next.IsZero() {
				wait = min(max(next.Sub(e.now()), 0), wait)
			}
		}
		timer := time.NewTimer(max(wait, time.Millisecond)) // what can't be done now is not tried without a pause
		select {
		case <-e.ctx.Done():
			timer.Stop()
			return
		case <-e.dueHint:
			timer.Stop()
		case <-timer.C:
			select {
			case <-e.dueHint: // it is looked at now
			default:
			}
		}
	}
}

// aheadMax is how far a schedule's cursor may be ahead of the clock before that is said: a clock may be set back by so much.
const aheadMax = time.Minute

// reportAhead says which schedules stand still because their last tick is ahead of the clock: it was wrong then, or is now (D2).
func (e *Engine) reportAhead() error {
	after := ""
	for {
		page, err := e.store.Schedules(e.ctx, store.ScheduleQuery{After: after, Limit: duePage})
		for _, s := range page {
			after = s.ID
			if ahead := s.Cursor.Sub(e.now()); ahead > aheadMax && !s.Paused {
				e.log.Warn("a schedule's last tick is ahead of the clock: it starts nothing until then. Was the clock set back?", "schedule", s.ID, "workflow", s.Workflow, "ahead", ahead)
			}
		}
		if err != nil || len(page) < duePage {
			return err
		}
	}
}

func (e *Engine) tickDue() {
	page, err := e.store.Schedules(e.ctx, store.ScheduleQuery{DueBy: e.now(), Limit: duePage})
	for _, s := range page {
		if err == nil {
			err = e.tick(s)
		}
	}
	if err != nil && e.ctx.Err() == nil {
		e.log.Error("starting the runs of schedules", "error", err)
		pause(e.ctx, time.Second)
	}
}

// tick starts the runs that a schedule owes, in the transaction that moves its cursor: each tick once, over all nodes.
func (e *Engine) tick(s store.Schedule) error {
	now := e.now()
	change, runs := store.Change{}, []launched{}
	parsed, err := schedule.Parse(s.Expression, s.Timezone)
	rule, ruleErr := schedule.ParseCatchUp(s.CatchUp)
	if err = errors.Join(err, ruleErr); err != nil {
		e.log.Error("a schedule can't be read; it is looked at again in a minute", "schedule", s.ID, "error", err)
		s.NextAt = now.Add(time.Minute)
	} else {
		due := parsed.Due(s.Cursor, now, rule)
		if due.Skipped > 0 {
			e.log.Warn("a schedule's ticks passed while nobody could start them", "schedule", s.ID, "workflow", s.Workflow, "skipped", due.Skipped, "catchUp", rule)
		}
		s.Cursor = due.Cursor
		s.NextAt, _ = parsed.Next(due.Cursor)
		for _, at := range due.Ticks {
			l, op := e.tickRun(s, at)
			runs, change = append(runs, l), append(change, op)
		}
	}
	s.Version++
	_, err = e.committer.commit(append(store.Change{store.PutSchedule{Schedule: s}}, change...))
	if err != nil {
		e.giveBackAll([][]launched{runs})
		if errors.Is(err, store.ErrStale) {
			return nil // another node, or a change of the schedule, came first
		}
		return err
	}
	e.launchAll(runs)
	return nil
}

// tickRun makes the run of a schedule's tick.
func (e *Engine) tickRun(s store.Schedule, at time.Time) (launched, store.Op) {
	payload, _ := json.Marshal(struct {
		Schedule string         `json:"schedule"`
		Time     wire.Time      `json:"time"`
		Payload  jsontext.Value `json:"payload,omitzero"`
	}{s.Expression, wire.At(at), s.Payload}) // it can't fail: the payload came as JSON
	known := wire.Workflow{Name: s.Workflow}
	if t, err := e.oneWorkflow(s.Env, s.App, s.Workflow); err == nil {
		known = t.workflow
	}
	run := e.newRun(workflow.Run{ID: id.New(id.Run), Env: s.Env, App: s.App, Workflow: s.Workflow}, known)
	begun, q := e.tryBegin(run)
	return launched{run: begun, queue: q, payload: payload}, store.InsertRun{Run: begun, Payload: payload, Waits: cancelWaits(known)}
}

func (e *Engine) launchAll(runs []launched) {
	for _, l := range runs {
		e.launch(l.run, l.queue, &fresh{payload: l.payload, event: l.event})
	}
}

// emitDue emits the events whose time has come.
func (e *Engine) emitDue() {
	page, err := e.store.LaterEvents(e.ctx, e.now(), duePage)
	for _, ev := range page {
		if err == nil {
			err = e.emitLater(ev)
		}
	}
	if err != nil && e.ctx.Err() == nil {
		e.log.Error("emitting events that are due", "error", err)
		pause(e.ctx, time.Second)
	}
}

func (e *Engine) emitLater(ev store.LaterEvent) error {
	ops, runs := e.eventOps(ev.Env, NewEvent{Name: ev.Name, Payload: ev.Payload, ID: ev.ID})
	drop := store.DropLater{Env: ev.Env, Name: ev.Name, ID: ev.ID}
	_, err := e.committer.commit(append(store.Change{drop}, ops...))
	if err == nil {
		e.launchAll(runs)
		e.matching.wake()
		return nil
	}
	e.giveBackAll([][]launched{runs})
	if errors.Is(err, store.ErrExists) { // the event is there: it was emitted under this id meanwhile
		_, err = e.committer.commit(store.Change{drop})
	}
	if errors.Is(err, store.ErrStale) {
		return nil // another node came first
	}
	return err
}

// cancelWaits are the waits of a workflow's cancelOn: they are open for as long as its run lives. A replay's do not look back to what
// came before it: what cancelled the original would cancel it too.
//
// Their numbers are below zero: the claim of a workflow's once has no name either, and number 1, and a replay may keep its entry.
func cancelWaits(w wire.Workflow) []workflow.Wait {
	var waits []workflow.Wait
	for i, t := range w.CancelOn {
		if t.Event != "" {
			waits = append(waits, workflow.Wait{
				StepID: workflow.StepID{Number: -(i + 1)}, Kind: workflow.KindCancel,
				Event: &workflow.EventWait{Names: []string{t.Event}, If: t.If},
			})
		}
	}
	return waits
}
