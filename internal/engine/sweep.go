package engine

import (
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// The sweep's bounds: few keys at a time, so that no commit waits for it.
const (
	sweepEvery = 10 * time.Minute
	sweepPage  = 1_000
	runsPage   = 50     // runs, with their whole histories: of twenty steps, as many rows as a sweepPage
	rowsPage   = 10_000 // of their histories and logs: as many as one run may have steps
)

// RunsForMin is the least that runs are kept for: as long as an Idempotency-Key is known, whose request again finds its run (K6).
const RunsForMin = requestKeyLife

// sweepRuns drops runs that ended too long ago, some at a time. Their keys stay (K3).
func (e *Engine) sweepRuns() error {
	if e.options.RunsFor == 0 {
		return nil
	}
	// Fewer than a page may be as much as one commit drops.
	return e.dropAll(store.DropRuns{Before: e.now().Add(-e.options.RunsFor), Limit: runsPage, RowsMax: rowsPage, BytesMax: batchBytesMax}, 1)
}

// dropAll commits an op that drops some at a time, until it has dropped fewer than enough.
func (e *Engine) dropAll(op store.Op, enough int) error {
	for e.ctx.Err() == nil {
		res, err := e.committer.commit(store.Change{op})
		if err != nil || res.Dropped < enough {
			return err
		}
	}
	return nil
}

// RunsFor is how long runs are kept once they have ended; zero: for ever.
func (e *Engine) RunsFor() time.Duration { return e.options.RunsFor }

// sweepKeys drops keys that have expired, some at a time.
func (e *Engine) sweepKeys() error {
	return e.dropAll(store.DropKeys{Now: e.now(), Limit: sweepPage}, sweepPage)
}

// sweepEvents drops events that no wait looks back to any more (E2), some at a time.
func (e *Engine) sweepEvents() error {
	return e.dropAll(store.DropEvents{Before: e.now().Add(-e.options.EventsFor), Limit: sweepPage, BytesMax: batchBytesMax}, 1) // as with runs
}

// runSweep drops keys whose time is over, events and runs that are too old, and deliveries that are too old or too many, now and then. An
// expired key is free already: this only frees its space. It also says what stands still for a reason that nobody sees.
func (e *Engine) runSweep() {
	for {
		pause(e.ctx, e.options.SweepEvery)
		if e.ctx.Err() != nil {
			return
		}
		if !e.peers.leads() {
			continue
		}
		if err := e.sweepKeys(); err != nil {
			e.log.Error("dropping expired keys", "error", err)
		}
		if stranded, err := e.store.Stranded(e.ctx, sweepPage); err != nil {
			e.log.Error("looking for stranded runs", "error", err)
		} else if len(stranded) > 0 {
			e.log.Error("W5 is broken: nothing will happen to these runs; cancel or replay them, and report this as a fault of the server", "runs", stranded)
		}
		if err := e.reviewSchedules(); err != nil {
			e.log.Error("reading schedules", "error", err)
		}
		if err := e.sweepEvents(); err != nil {
			e.log.Error("dropping old events", "error", err)
		}
		if err := e.sweepDeliveries(); err != nil {
			e.log.Error("dropping old deliveries", "error", err)
		}
		if err := e.sweepRuns(); err != nil {
			e.log.Error("dropping old runs", "error", err)
		}
	}
}
