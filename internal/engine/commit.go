package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// The committer's bounds.
const (
	batchMax   = 512    // changes in one transaction: beyond it a batch's first waits longer than a sync takes
	waitingMax = 20_000 // changes that wait; above, new runs and events are refused, saves never (N3)
	retryPause = 250 * time.Millisecond
	commitMax  = 30 * time.Second // after so long without the store, a change is given back: nothing was acknowledged
)

// committer is group commit: everything that waits goes into one transaction with one sync. Whoever commits waits for its own
// result. Saves of calls are never refused for load.
type committer struct {
	store store.Store
	log   *slog.Logger
	wake  chan struct{} // a hint: something waits

	mu      sync.Mutex
	waiting []*pending
	closed  bool

	commits, changes int64 // of run alone: what was committed
}

// pending is one change that waits for its commit.
type pending struct {
	change store.Change
	since  time.Time
	result store.Result
	err    error
	done   chan struct{}
}

func newCommitter(s store.Store, log *slog.Logger) *committer {
	return &committer{store: s, log: log, wake: make(chan struct{}, 1)}
}

// full tells whether new work should be refused.
func (c *committer) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) >= waitingMax
}

// commit waits until the change is durable, or refused: never less, for whoever asked may be gone, but what is written must be acted
// upon. A store that can't commit is waited for commitMax at most.
func (c *committer) commit(change store.Change) (store.Result, error) {
	p := newPending(change)
	c.submit(p)
	return p.wait()
}

func newPending(change store.Change) *pending {
	return &pending{change: change, since: time.Now(), done: make(chan struct{})}
}

// submit puts changes in line. Once the committer is closed they are given back with ErrStopping.
func (c *committer) submit(line ...*pending) {
	if len(line) == 0 {
		return
	}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.waiting = append(c.waiting, line...)
	}
	c.mu.Unlock()
	if closed {
		c.giveBack(line, ErrStopping)
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (p *pending) wait() (store.Result, error) {
	<-p.done
	if p.err != nil {
		return p.result, p.err
	}
	return p.result, p.result.Err
}

// run commits until ctx ends, then what is left.
func (c *committer) run(ctx context.Context) {
	for {
		batch := c.take()
		if len(batch) > 0 {
			c.commitBatch(ctx, batch)
			continue
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			c.mu.Lock()
			c.closed = true
			c.mu.Unlock()
			for left := c.take(); len(left) > 0; left = c.take() {
				c.commitBatch(ctx, left)
			}
			c.log.Info("stopped", "commits", c.commits, "changes", c.changes)
			return
		}
	}
}

func (c *committer) take() []*pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.waiting), batchMax)
	batch := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	if len(c.waiting) == 0 {
		c.waiting = nil
	}
	return batch
}

// commitBatch commits a batch, again while the store can't, and in halves when its data is refused (N3).
func (c *committer) commitBatch(ctx context.Context, batch []*pending) {
	if len(batch) == 0 {
		return
	}
	changes := make([]store.Change, len(batch))
	for i, p := range batch {
		changes[i] = p.change
	}
	for {
		results, err := c.store.Commit(context.WithoutCancel(ctx), changes)
		if err == nil {
			c.commits++
			c.changes += int64(len(batch))
			for i, p := range batch {
				p.result = results[i]
				close(p.done)
			}
			return
		}
		if errors.Is(err, store.ErrBadChange) && len(batch) > 1 {
			half := len(batch) / 2
			c.commitBatch(ctx, batch[:half])
			c.commitBatch(ctx, batch[half:])
			return
		}
		if errors.Is(err, store.ErrBadChange) || errors.Is(err, store.ErrUnknown) || time.Since(batch[0].since) > commitMax || ctx.Err() != nil {
			c.giveBack(batch, err)
			return
		}
		c.log.Error("the store can't commit; trying again", "changes", len(batch), "error", err)
		pause(ctx, retryPause)
	}
}

func (c *committer) giveBack(batch []*pending, err error) {
	for _, p := range batch {
		p.err = fmt.Errorf("committing: %w", err)
		close(p.done)
	}
}

// pause waits for d, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
