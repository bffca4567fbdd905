package engine

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"sync/atomic"
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
	// dueBytes bounds their payloads, but for one: five hundred of the largest are two gigabytes. No more of them are stored in one commit either.
	dueBytes = batchBytesMax
	// tickSide is how many schedules tick at once: they share commits. One after the other they would take longer than a tick may be late.
	tickSide = 16
	// tickRuns and tickBytes bound what a schedule that catches up starts in one commit, but for its first run; the rest is due at once. They
	// also bound the events for later that are emitted in one.
	tickRuns, tickBytes = 100, 1 << 20
)

// runDue starts the runs of schedules' ticks, and emits the events whose time has come. Which of several nodes does it is decided by the
// store: a schedule's version, a kept event's row (D2).
func (e *Engine) runDue() {
	if err := e.reviewSchedules(); err != nil && e.ctx.Err() == nil {
		e.log.Error("reading schedules; the next sweep does it again", "error", err)
	}
	for e.ctx.Err() == nil {
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

// reviewSchedules says which schedules stand still because their last tick is ahead of the clock: it was wrong then, or is now (D2). And it brings
// forward the next tick of those that have one sooner than was reckoned, with the time zone data of that time.
func (e *Engine) reviewSchedules() error {
	return e.eachSchedule(e.ctx, store.ScheduleQuery{}, func(s *store.Schedule) error {
		if s.Paused {
			return nil // it is reckoned anew when it goes on
		}
		if ahead := s.Cursor.Sub(e.now()); ahead > aheadMax {
			e.log.Warn("a schedule's last tick is ahead of the clock: it starts nothing until then. Was the clock set back?", "schedule", s.ID, "workflow", s.Workflow, "ahead", ahead)
		}
		parsed, _ := schedule.Parse(s.Expression, s.Timezone) // one that can't be read has no ticks: the look at it says so
		next, ok := parsed.Next(s.Cursor)
		if !ok || !next.Before(s.NextAt) {
			return nil
		}
		s.NextAt = next
		s.Version++
		_, err := e.committer.commit(store.Change{store.PutSchedule{Schedule: *s}})
		if errors.Is(err, store.ErrStale) {
			return nil // it was reckoned meanwhile
		}
		e.dueHint.wake()
		return err
	})
}

// eachSchedule goes through schedules in the order of their ids, some at a time, until do fails.
func (e *Engine) eachSchedule(ctx context.Context, q store.ScheduleQuery, do func(*store.Schedule) error) error {
	q.Limit, q.BytesMax = duePage, dueBytes
	for {
		page, err := e.store.Schedules(ctx, q)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if err := do(&page[i]); err != nil {
				return err
			}
			q.After = page[i].ID
		}
	}
}

// duty is what is to be done of what is due: what that is, for people, and how many are done at once.
type duty struct {
	what string
	most int
}

// doDue does a duty, in the order of what is due. What can't be done holds up nothing else, and is not tried again at once.
func doDue[T any](e *Engine, d duty, page []T, err error, do func(T) (id string, err error)) {
	var some atomic.Bool // of them could not be done
	failure := sideBySide(len(page), d.most, func(i int) error {
		id, err := do(page[i])
		if err == nil {
			return nil
		}
		if ofTheStore(err) {
			return err // the rest would fail too
		}
		some.Store(true)
		e.log.Error(d.what+"; the others go on", "id", id, "error", err)
		return nil
	})
	err = errors.Join(err, failure)
	if e.ctx.Err() != nil || (err == nil && !some.Load()) {
		return
	}
	if err != nil {
		e.log.Error(d.what, "error", err)
	}
	pause(e.ctx, time.Second)
}

func (e *Engine) tickDue() {
	page, err := e.store.Schedules(e.ctx, store.ScheduleQuery{DueBy: e.now(), Limit: duePage, BytesMax: dueBytes})
	doDue(e, duty{"starting the runs of schedules", tickSide}, page, err, func(s store.Schedule) (string, error) { return s.ID, e.tick(s) })
}

// tick starts the runs that a schedule owes, in the transaction that moves its cursor: each tick once, over all nodes.
func (e *Engine) tick(s store.Schedule) error {
	moved, runs, change, err := e.ticks(s)
	if err != nil {
		e.log.Error("a schedule can't be read; it is looked at again in a minute", "schedule", s.ID, "error", err)
		moved = s
		moved.NextAt = e.now().Add(time.Minute)
	}
	moved.Version++
	_, err = e.committer.commit(append(store.Change{store.PutSchedule{Schedule: moved}}, change...))
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

// ticks makes the runs that a schedule owes, or the first of them, and moves its cursor to behind them.
func (e *Engine) ticks(s store.Schedule) (moved store.Schedule, runs []launched, change store.Change, err error) {
	parsed, err := schedule.Parse(s.Expression, s.Timezone)
	rule, ruleErr := schedule.ParseCatchUp(s.CatchUp)
	if err = errors.Join(err, ruleErr); err != nil {
		return s, nil, nil, err
	}
	due := parsed.Due(s.Cursor, e.now(), rule)
	if due.Skipped > 0 {
		e.log.Warn("a schedule's ticks passed while nobody could start them", "schedule", s.ID, "workflow", s.Workflow, "skipped", due.Skipped, "catchUp", rule)
	}
	moved = s
	moved.Cursor = due.Cursor
	bytes := 0
	for i, at := range due.Ticks {
		if i >= tickRuns || bytes >= tickBytes {
			moved.Cursor = due.Ticks[i-1]
			break
		}
		l, op, err := e.tickRun(s, at)
		if err != nil {
			e.giveBackAll([][]launched{runs})
			return s, nil, nil, err
		}
		runs, change = append(runs, l), append(change, op)
		bytes += len(l.payload)
	}
	moved.NextAt, _ = parsed.Next(moved.Cursor)
	return moved, runs, change, nil
}

// tickRun makes the run of a schedule's tick. It fails if the schedule's payload is no JSON.
func (e *Engine) tickRun(s store.Schedule, at time.Time) (launched, store.Op, error) {
	payload, err := wire.Encode(struct {
		Schedule string         `json:"schedule"`
		Time     wire.Time      `json:"time"`
		Payload  jsontext.Value `json:"payload,omitzero"`
	}{s.Expression, wire.At(at), s.Payload})
	if err != nil {
		return launched{}, nil, fmt.Errorf("its payload: %w", err)
	}
	known := wire.Workflow{Name: s.Workflow}
	if t, err := e.oneWorkflow(s.Env, s.App, s.Workflow); err == nil {
		known = t.workflow
	}
	run := e.newRun(workflow.Run{ID: id.New(id.Run), Env: s.Env, App: s.App, Workflow: s.Workflow}, known)
	begun, q := e.tryBegin(run)
	return launched{run: begun, queue: q, payload: payload}, store.InsertRun{Run: begun, Payload: payload, Waits: cancelWaits(known)}, nil
}

func (e *Engine) launchAll(runs []launched) {
	for _, l := range runs {
		e.launch(l.run, l.queue, &fresh{payload: l.payload, event: l.event})
	}
}

// emitDue emits the events whose time has come, in that order.
func (e *Engine) emitDue() {
	page, err := e.store.LaterEvents(e.ctx, store.LaterQuery{DueBy: e.now(), Limit: duePage, BytesMax: dueBytes})
	doDue(e, duty{"emitting events that are due", 1}, parts(page), err, e.emitLater)
}

// parts divides events into what one commit takes.
func parts(events []store.LaterEvent) (list [][]store.LaterEvent) {
	bytes := 0
	for i := range events {
		if last := len(list) - 1; last >= 0 && len(list[last]) < tickRuns && bytes < tickBytes {
			list[last] = append(list[last], events[i])
		} else {
			list, bytes = append(list, events[i:i+1:i+1]), 0
		}
		bytes += len(events[i].Payload)
	}
	return list
}

// emitLater emits events in one commit, or each in its own where one of them can't be. It gives the id of the first that can't.
func (e *Engine) emitLater(events []store.LaterEvent) (failed string, err error) {
	if err = e.emitAtOnce(events); err == nil || ofTheStore(err) {
		return events[0].ID, err
	}
	err = nil
	for i := range events {
		alone := e.emitAlone(&events[i])
		if ofTheStore(alone) {
			return events[i].ID, alone
		}
		if alone != nil && err == nil {
			failed, err = events[i].ID, alone
		}
	}
	return failed, err
}

func (e *Engine) emitAtOnce(events []store.LaterEvent) error {
	var change store.Change
	var runs [][]launched
	for _, ev := range events {
		ops, started := e.eventOps(ev.Env, NewEvent{Name: ev.Name, Payload: ev.Payload, ID: ev.ID})
		change, runs = append(append(change, dropLater(&ev)), ops...), append(runs, started)
	}
	if _, err := e.committer.commit(change); err != nil {
		e.giveBackAll(runs)
		return err
	}
	for _, started := range runs {
		e.launchAll(started)
	}
	e.matching.wake()
	return nil
}

func dropLater(ev *store.LaterEvent) store.Op {
	return store.DropLater{Env: ev.Env, Name: ev.Name, ID: ev.ID}
}

func (e *Engine) emitAlone(ev *store.LaterEvent) error {
	err := e.emitAtOnce([]store.LaterEvent{*ev})
	if errors.Is(err, store.ErrExists) { // the event is there: it was emitted under this id meanwhile
		_, err = e.committer.commit(store.Change{dropLater(ev)})
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
