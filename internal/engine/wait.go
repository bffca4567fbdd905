package engine

import (
	"context"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// WaitMax bounds how long one request waits for a run's end.
const WaitMax = 30 * time.Second

// waiter is everybody who waits for one run's end. Engine.mu guards it.
type waiter struct {
	ended chan struct{} // closed when the run has ended, or the server stops
	// record is the ended run, where this node knows all of it: then nobody has to read it. It is set before ended is closed.
	record *store.RunRecord
	users  int
	woken  bool
}

func (w *waiter) wake() {
	if !w.woken {
		w.woken = true
		close(w.ended)
	}
}

// ended wakes those who wait for a run that has ended. l is its last call, if this node knew it. Engine.mu is held.
func (e *Engine) ended(d workflow.Decision, l *live) {
	w := e.waiters[d.Run.ID]
	if w == nil {
		return
	}
	if l != nil && l.payloadKnown && !d.Run.Closing() && !w.woken { // the error that a closing began with stands in the store
		w.record = &store.RunRecord{Run: d.Run, Payload: l.payload, Output: d.Output, Error: d.Error}
	}
	w.wake()
	delete(e.waiters, d.Run.ID)
}

// RunRecord reads a run; with wait above zero it first waits so long, at most WaitMax, for the run to end. ErrNotFound.
func (e *Engine) RunRecord(ctx context.Context, env, runID string, wait time.Duration) (store.RunRecord, error) {
	if wait <= 0 {
		return e.store.Record(ctx, env, runID)
	}
	// Joined before it is looked at: it can't end in between.
	w, playing := e.await(env, runID)
	defer e.leave(runID, w)
	if !playing {
		record, err := e.store.Record(ctx, env, runID)
		if err != nil || record.Status.Final() {
			return record, err
		}
	}
	timer := time.NewTimer(min(wait, WaitMax))
	defer timer.Stop()
	select {
	case <-w.ended:
	case <-timer.C:
	case <-ctx.Done():
		return store.RunRecord{}, ctx.Err()
	}
	if w.known() {
		return *w.record, nil
	}
	return e.store.Record(ctx, env, runID)
}

// known tells whether the run has ended and w has it.
func (w *waiter) known() bool {
	select {
	case <-w.ended:
		return w.record != nil
	default:
		return false
	}
}

// await joins those who wait for a run. playing says that the run has a call here, and so has not ended.
func (e *Engine) await(env, runID string) (w *waiter, playing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.playing[runID]
	playing = l != nil && l.run.Env == env && !e.stopping
	if w = e.waiters[runID]; w == nil {
		w = &waiter{ended: make(chan struct{})}
		e.waiters[runID] = w
	}
	if e.stopping {
		w.wake()
	}
	w.users++
	return w, playing
}

func (e *Engine) leave(runID string, w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.users--; w.users == 0 && e.waiters[runID] == w {
		delete(e.waiters, runID)
	}
}
