package engine

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// The timers' bounds.
const (
	timerNet  = 5 * time.Second // between looks at the store without a hint
	timerPage = 1_000           // runs read at once
	timerSide = 64              // runs told at once: they share commits
	// timerPause is between looks at what is due while something of it fails; among several nodes it may be another's, until it is overdue.
	timerPause       = time.Second
	timerPauseShared = turnAfter / 2
)

// timers knows the earliest instant at which the store has something due, as far as this process has heard.
type timers struct {
	mu     sync.Mutex
	next   time.Time
	looked time.Time // at the store, the last time
	hint   chan struct{}
	net    time.Duration // never changed
}

func newTimers(net time.Duration) *timers { return &timers{hint: make(chan struct{}, 1), net: net} }

// notice hears of an instant that was stored; zero is none.
func (t *timers) notice(at time.Time) {
	if at.IsZero() {
		return
	}
	t.mu.Lock()
	earlier := t.next.IsZero() || at.Before(t.next)
	if earlier {
		t.next = at
	}
	t.mu.Unlock()
	if earlier {
		select {
		case t.hint <- struct{}{}:
		default:
		}
	}
}

// wait is how long there is nothing to do. The net counts from the last look, or hints that come one after the other would put it off.
func (t *timers) wait(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	net := max(t.net-time.Since(t.looked), 0)
	if t.next.IsZero() {
		return net
	}
	return min(max(t.next.Sub(now), 0), net)
}

// restart forgets what was heard; the store is about to be asked.
func (t *timers) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next, t.looked = time.Time{}, time.Now()
}

// runTimers fires what is due, never early (W4): the store is the truth, what was heard only says when to look.
func (e *Engine) runTimers() {
	for e.ctx.Err() == nil {
		timer := time.NewTimer(e.timers.wait(e.now()))
		select {
		case <-e.ctx.Done():
			timer.Stop()
		case <-e.timers.hint:
			timer.Stop()
		case <-timer.C:
			e.fireDue()
		}
	}
}

func (e *Engine) fireDue() {
	e.timers.restart()
	var left bool // something that is due
	q := store.TimerQuery{Now: e.now(), Limit: timerPage}
	for {
		due, err := e.store.Timers(e.ctx, q)
		if err != nil {
			if e.ctx.Err() == nil {
				e.log.Error("reading due timers", "error", err)
			}
			return
		}
		read := len(due)
		if read > 0 { // what another node is to do, or what fails, hides nothing
			q.AfterAt, q.AfterID = due[read-1].TimerAt(), due[read-1].ID
		}
		fired := e.fireAll(e.turn(due))
		left = left || fired < read
		if read < timerPage || e.ctx.Err() != nil {
			break
		}
	}
	next, err := e.store.NextTimer(e.ctx)
	again := timerPause
	if !e.peers.alone() {
		again = timerPauseShared
	}
	if soon := e.now().Add(again); left && next.Before(soon) {
		next = soon
	}
	if err == nil {
		e.timers.notice(next)
	}
}

// turn leaves out what is due and another node's: the leases of its calls, and for a moment its share of the rest.
func (e *Engine) turn(due []workflow.Run) []workflow.Run {
	if e.peers.alone() {
		return due
	}
	now := e.now()
	return slices.DeleteFunc(due, func(run workflow.Run) bool {
		if run.Phase() == workflow.PhaseRunning && !run.NextAt.After(now) && run.Call.Node != e.peers.self {
			return true
		}
		return !e.peers.mine(run.ID, now.Sub(run.TimerAt()))
	})
}

// fireAll fires what is due, side by side so that many share a commit, and tells for how many that worked.
func (e *Engine) fireAll(due []workflow.Run) int {
	var fired atomic.Int64
	_ = sideBySide(len(due), timerSide, func(i int) error { // each says itself what went wrong
		if e.fire(due[i]) {
			fired.Add(1)
		}
		return nil
	})
	return int(fired.Load())
}

// fire tells a run that its time has come; false if that failed.
func (e *Engine) fire(run workflow.Run) bool {
	if run.Phase() == workflow.PhaseRunning && !run.NextAt.After(e.now()) {
		return e.leaseOver(run)
	}
	if run.Phase() != workflow.PhaseEnding && !run.WaitsAt.IsZero() && !run.WaitsAt.After(e.now()) {
		err := e.fireWaits(run.ID)
		if err != nil && !errors.Is(err, errElsewhere) {
			e.failed("telling a run that its time has come", err)
		}
		return err == nil
	}
	_, err := e.apply(e.ctx, run.ID, func(_ workflow.Run, h store.History) (workflow.Input, error) {
		return workflow.Timer{Entries: h.Entries, Grace: e.options.Grace}, nil
	})
	if err != nil && e.ctx.Err() == nil {
		e.log.Error("firing a timer", "run", run.ID, "error", err)
	}
	return err == nil
}

// leaseOver looks whether the call was heard of since its lease was stored: then the stored time moves on (C5), else it is cut, or asked for.
func (e *Engine) leaseOver(run workflow.Run) bool {
	e.mu.Lock()
	e.awake()
	l := e.current(run)
	left := run.Lease
	if l != nil {
		left = time.Until(e.contactUntil(l)) // by the monotonic clock: a step of the other one ends no lease
		l.stalled = time.Since(l.moved) >= e.options.Stall
	}
	stalled := l != nil && l.stalled
	if left < time.Millisecond && !stalled && !e.peers.alone() {
		// The app may have been heard at another node that could not tell, or by none since the store was away and none was ready. So the
		// lease's end among several nodes is a question, which nobody leaves unanswered who lives (C2).
		left = 2 * heartbeat(run.Lease)
		if l.question == nil {
			e.ask(l, left)
		}
	}
	e.mu.Unlock()
	if l == nil {
		e.adopt(run)
	}
	if stalled {
		e.cut(l, "it has made no progress for "+e.options.Stall.String())
		return true
	}
	until := e.now().Add(left.Truncate(time.Millisecond))
	if left < time.Millisecond {
		e.cut(l, "its lease ended without contact")
		return true
	}
	_, err := e.apply(e.ctx, run.ID, func(now workflow.Run, _ store.History) (workflow.Input, error) {
		if now.Call == nil || now.Call.ID != run.Call.ID || now.Phase() != workflow.PhaseRunning {
			return nil, nil
		}
		return workflow.Contact{CallID: run.Call.ID, LeaseEndsAt: until}, nil
	})
	if err != nil && e.ctx.Err() == nil {
		e.log.Error("moving a lease", "run", run.ID, "error", err)
	}
	return err == nil
}
