package engine

import (
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// The sweep's bounds: few keys at a time, so that no commit waits for it.
const (
	sweepEvery = 10 * time.Minute
	sweepPage  = 1_000
)

// runSweep drops keys whose time is over, now and then. An expired key is free already: this only frees its space.
func (e *Engine) runSweep() {
	for {
		pause(e.ctx, sweepEvery)
		if e.ctx.Err() != nil {
			return
		}
		if _, err := e.committer.commit(store.Change{store.DropKeys{Now: e.now(), Limit: sweepPage}}); err != nil {
			e.log.Error("dropping expired keys", "error", err)
		}
	}
}
