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
	batchMax = 512 // changes in one transaction: beyond it a batch's first waits longer than a sync takes
	// batchBytesMax bounds what one transaction writes, but for its first change: what is large is copied several times on its way.
	batchBytesMax = 16 << 20
	company       = 16 // changes in the batch before, from which on a leader waits for more
	gather        = 200 * time.Microsecond
	// companyShared and gatherShared are the same while other nodes commit to the same store: what a commit costs beside its changes is paid
	// by one machine for all of them. A leader gathers for as long as the last commit took, at most gatherShared.
	companyShared = 2
	gatherShared  = 20 * time.Millisecond
	waitingMax    = 20_000 // changes that wait; above, new runs and events are refused, saves never (N3)
	retryPause    = 250 * time.Millisecond
	commitMax     = 30 * time.Second // after so long without the store, a change is given back: nothing was acknowledged
	// hurryMax is how long after it was told to stop a server goes on with what the store does not take. Who asked is cut off a second later.
	hurryMax = 4 * time.Second
	// awayAfter is how long the store can't be written before new runs and events are refused at once: who asks should hear soon.
	awayAfter = 3 * time.Second
)

// committer is group commit: everything that waits goes into one transaction with one sync. Whoever commits waits for its own
// result. Saves of calls are never refused for load.
//
// Each commit has a cost of its own, the sync and the pages that its changes share. So while many changes come, a leader first
// gathers for a moment: PostgreSQL's commit_delay, with its commit_siblings. Who is alone never waits.
//
// It has no goroutine of its own. Who brings a change while nobody commits leads: it commits what waits, its own change among
// it, and so an idle server's answer costs no change of goroutines. What came meanwhile is led by another.
type committer struct {
	store  store.Store
	log    *slog.Logger
	others func() bool // whether other nodes commit to the same store
	// ctx ends when what the store does not take is given up; cancel ends it.
	ctx     context.Context
	cancel  context.CancelFunc
	hurried *time.Timer // nil until hurry

	mu      sync.Mutex
	waiting []*pending
	leading bool
	failing time.Time     // since when the store takes nothing, also once a batch was given up; zero: it takes what comes. The leader writes it
	gaveUp  time.Time     // when a batch was given up last
	last    int           // changes in the batch before
	took    time.Duration // how long its commit took; the leader's
	closed  bool
	idle    chan struct{} // closed when the last leader is done, after closed

	commits, changes int64 // what was committed; the leader's
}

// pending is one change that waits for its commit.
type pending struct {
	change store.Change
	bytes  int // of its values
	since  time.Time
	result store.Result
	err    error
	done   chan struct{}
}

func newCommitter(s store.Store, log *slog.Logger, others func() bool) *committer {
	c := &committer{store: s, log: log, others: others, idle: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// refuses says why new runs and events are refused now; nil: they are not. ErrBusy, ErrUnstored.
func (c *committer) refuses() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.waiting) >= waitingMax:
		return ErrBusy
	case c.isAway():
		return ErrUnstored
	}
	return nil
}

// isAway tells whether the store takes nothing for a while, and is being tried, or was a moment ago: while nothing is tried nothing is
// known, and who comes next finds out. c.mu is held.
func (c *committer) isAway() bool {
	return !c.failing.IsZero() && time.Since(c.failing) > awayAfter && (c.leading || time.Since(c.gaveUp) < awayAfter)
}

// Unstored tells whether new runs and events are refused now because the store can't be written. It does not try to: while nothing is
// written, nothing is known.
func (e *Engine) Unstored() bool {
	e.committer.mu.Lock()
	defer e.committer.mu.Unlock()
	return e.committer.isAway()
}

// fails notes since when the store takes nothing; zero: it does. The leader alone calls it.
func (c *committer) fails(since time.Time) {
	if since.IsZero() != c.failing.IsZero() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failing = since
	}
}

// giveUp gives back a batch that the store has not taken for too long.
func (c *committer) giveUp(batch []*pending, err error) {
	c.mu.Lock()
	c.gaveUp = time.Now()
	c.mu.Unlock()
	c.giveBack(batch, err)
}

// commit waits until the change is durable, or refused: never less, for whoever asked may be gone, but what is written must be acted
// upon. A store that can't commit is waited for commitMax at most.
func (c *committer) commit(change store.Change) (store.Result, error) {
	p := newPending(change)
	if c.submit(p) {
		c.lead()
	}
	return p.wait()
}

func newPending(change store.Change) *pending {
	return &pending{change: change, bytes: change.Bytes(), since: time.Now(), done: make(chan struct{})}
}

// submit puts changes in line, and tells the caller whether it must lead. Once the committer is closed they are given back with
// ErrStopping.
func (c *committer) submit(line ...*pending) (lead bool) {
	if len(line) == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.giveBack(line, ErrStopping)
		return false
	}
	c.waiting = append(c.waiting, line...)
	lead = !c.leading
	c.leading = true
	return lead
}

// lead commits what waits, once. What came meanwhile is led by a goroutine of its own: nobody works for others when its own is done.
func (c *committer) lead() {
	if d := c.patience(); d > 0 {
		pause(context.Background(), d)
	}
	began := time.Now()
	c.commitBatch(c.take())
	c.took = time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		go c.lead()
		return
	}
	c.leading = false
	if c.closed {
		close(c.idle)
	}
}

// hurry has what the store does not take given up in hurryMax. The committer is to be closed.
func (c *committer) hurry() { c.hurried = time.AfterFunc(hurryMax, c.cancel) }

// close commits what waits and takes nothing more.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	leading := c.leading
	c.mu.Unlock()
	if leading {
		<-c.idle
	}
	if c.hurried != nil {
		c.hurried.Stop()
	}
	c.cancel()
	c.log.Info("stopped", "commits", c.commits, "changes", c.changes)
}

func (p *pending) wait() (store.Result, error) {
	<-p.done
	if p.err != nil {
		return p.result, p.err
	}
	return p.result, p.result.Err
}

// patience is how long a leader gathers: not at all, unless a batch will soon be larger than it is.
func (c *committer) patience() time.Duration {
	enough, most := company, gather
	if c.others() {
		enough, most = companyShared, max(gather, min(c.took, gatherShared))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last < enough || len(c.waiting) >= batchMax || c.closed {
		return 0
	}
	return most
}

func (c *committer) take() []*pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(c.waiting), batchMax) && (n == 0 || bytes+c.waiting[n].bytes <= batchBytesMax) {
		bytes += c.waiting[n].bytes
		n++
	}
	c.last = n
	batch := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	if len(c.waiting) == 0 {
		c.waiting = nil
	}
	return batch
}

// commitBatch commits a batch, again while the store can't, and in halves when its data is refused (N3).
func (c *committer) commitBatch(batch []*pending) {
	if len(batch) == 0 {
		return
	}
	changes := make([]store.Change, len(batch))
	for i, p := range batch {
		changes[i] = p.change
	}
	given := ErrUnstored
	for {
		results, err := c.store.Commit(c.ctx, changes)
		if err == nil {
			if !c.failing.IsZero() {
				c.log.Info("the store commits again", "after", time.Since(c.failing))
			}
			c.fails(time.Time{})
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
			c.commitBatch(batch[:half])
			c.commitBatch(batch[half:])
			return
		}
		if errors.Is(err, store.ErrUnsynced) {
			given = store.ErrUnknown // the next process may find it
		}
		switch {
		case errors.Is(err, store.ErrBadChange):
			c.fails(time.Time{})
			c.giveBack(batch, err)
			return
		case errors.Is(err, store.ErrUnknown):
			c.log.Error("nobody knows whether a commit took effect", "changes", len(batch), "error", err)
			c.giveBack(batch, store.ErrUnknown)
			return
		case time.Since(batch[0].since) > commitMax || c.ctx.Err() != nil:
			c.log.Error("the store can't commit; giving up", "changes", len(batch), "error", err)
			c.giveUp(batch, given)
			return
		}
		if c.failing.IsZero() {
			c.log.Error("the store can't commit; trying again", "changes", len(batch), "error", err)
		}
		c.fails(time.Now())
		pause(c.ctx, retryPause)
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

// pauseOr is pause that a hint ends too.
func pauseOr(done <-chan struct{}, h hint, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h:
	case <-done:
	}
}
