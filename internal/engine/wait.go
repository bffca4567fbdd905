package engine

import (
	"context"
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// WaitMax bounds how long one request waits for a run's end.
const WaitMax = 30 * time.Second

// waiter is everybody who waits for one run's end. Engine.mu guards it.
type waiter struct {
	ended chan struct{} // closed when the run has ended, or the server stops
	users int
	woken bool
}

func (w *waiter) wake() {
	if !w.woken {
		w.woken = true
		close(w.ended)
	}
}

// ended wakes those who wait for a run. Engine.mu is held.
func (e *Engine) ended(runID string) {
	if w := e.waiters[runID]; w != nil {
		w.wake()
		delete(e.waiters, runID)
	}
}

// RunRecord reads a run; with wait above zero it first waits so long, at most WaitMax, for the run to end. ErrNotFound.
func (e *Engine) RunRecord(ctx context.Context, env, runID string, wait time.Duration) (store.RunRecord, error) {
	if wait <= 0 {
		return e.store.Record(ctx, env, runID)
	}
	// Joined before it is read: it can't end in between.
	w := e.await(runID)
	defer e.leave(runID, w)
	record, err := e.store.Record(ctx, env, runID)
	if err != nil || record.Status.Final() {
		return record, err
	}
	timer := time.NewTimer(min(wait, WaitMax))
	defer timer.Stop()
	select {
	case <-w.ended:
	case <-timer.C:
	case <-ctx.Done():
		return store.RunRecord{}, ctx.Err()
	}
	return e.store.Record(ctx, env, runID)
}

func (e *Engine) await(runID string) *waiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.waiters[runID]
	if w == nil {
		w = &waiter{ended: make(chan struct{})}
		e.waiters[runID] = w
	}
	if e.stopping {
		w.wake()
	}
	w.users++
	return w
}

func (e *Engine) leave(runID string, w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.users--; w.users == 0 && e.waiters[runID] == w {
		delete(e.waiters, runID)
	}
}
