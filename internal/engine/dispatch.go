package engine

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// The dispatcher's bounds.
const (
	readyMax    = 10_000          // runs that wait in memory per app; the store has the rest
	readyPage   = 1_000           // read at once
	dispatchNet = 2 * time.Second // between looks at the store without a hint: the net below the notifications
	// leftAfter is by how much another node's due run has waited longer than this one's before it comes first: two that are equally busy do
	// not take each other's.
	leftAfter = 2 * time.Second
)

// appID names an app in its environment.
type appID struct{ env, name string }

func (a appID) compare(b appID) int {
	return cmp.Or(cmp.Compare(a.env, b.env), cmp.Compare(a.name, b.name))
}

// queue is an app's line: the runs that are due, oldest first, and the slots that its calls take. Engine.mu guards it, but
// hints.
type queue struct {
	id       appID
	ready    readyHeap
	waiting  map[string]time.Time // by run id: since when it is due, of those in ready
	inFlight int                  // live calls; one that came back by a save may exceed the limit
	more     bool                 // the store has ready runs that are not in memory
	look     bool                 // it is looked at before the next run is taken: what it has may be due earlier than what is in line
	hints    chan<- *queue
	alarm    *time.Timer   // hints when the first in line is due, where that is later; nil: not set
	apart    time.Duration // by which it hints later than other apps' do for the same instant: else their order would be nobody's
}

// wake hints that a slot or a run is there.
func (q *queue) wake() {
	select {
	case q.hints <- q:
	default: // the line of hints is full: the net finds it
	}
}

// wakeIn hints after d, in the place of an earlier wakeIn. Engine.mu is held.
func (q *queue) wakeIn(d time.Duration) {
	if q.alarm != nil {
		q.alarm.Stop()
	}
	q.alarm = time.AfterFunc(d+q.apart, q.wake)
}

// readyHeap is ordered by the time since which a run is due.
type readyHeap []store.Ready

func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Less(i, j int) bool { return h[i].ReadyAt.Before(h[j].ReadyAt) }
func (h readyHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *readyHeap) Push(x any)        { *h = append(*h, x.(store.Ready)) }
func (h *readyHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// queue finds or makes an app's queue. Engine.mu is held.
func (e *Engine) queue(id appID) *queue {
	q := e.queues[id]
	if q == nil {
		q = &queue{id: id, waiting: map[string]time.Time{}, more: true, look: true, hints: e.hints, apart: time.Duration(len(e.queues))}
		e.queues[id] = q
	}
	return q
}

// enqueue puts a queued run in its app's line, without a look at the store. Engine.mu is held.
func (e *Engine) enqueue(run workflow.Run) {
	q := e.queue(appID{run.Env, run.App})
	q.push(store.Ready{RunID: run.ID, ReadyAt: run.ReadyAt()})
	q.wake()
}

func (q *queue) push(r store.Ready) {
	// One that is due earlier now comes in again; what is left of it in the line is no begin any more.
	if at, ok := q.waiting[r.RunID]; ok && !r.ReadyAt.Before(at) {
		return
	}
	if len(q.ready) >= readyMax {
		q.more = true
		return
	}
	q.waiting[r.RunID] = r.ReadyAt
	heap.Push(&q.ready, r)
}

// due tells whether the first in line may be called. Engine.mu is held.
func (q *queue) due(now time.Time) bool { return len(q.ready) > 0 && !q.ready[0].ReadyAt.After(now) }

// forget empties the line: the store has it. Engine.mu is held.
func (q *queue) forget() { q.ready, q.waiting, q.more = nil, map[string]time.Time{}, true }

func (q *queue) pop() store.Ready {
	r := heap.Pop(&q.ready).(store.Ready)
	if q.waiting[r.RunID].Equal(r.ReadyAt) {
		delete(q.waiting, r.RunID)
	}
	return r
}

// reserve takes a slot for a run that is not stored yet: it may begin in the commit that stores it. It says no where others
// wait. Engine.mu is held.
func (e *Engine) reserve(id appID) (*queue, bool) {
	q := e.queue(id)
	if e.stopping || q.due(e.now()) || q.more || !e.room(q) {
		return q, false
	}
	q.inFlight++
	return q, true
}

// room tells whether an app can take a call now. Engine.mu is held.
func (e *Engine) room(q *queue) bool {
	limit, usable := e.apps.capacity(q.id, e.options.Concurrency)
	if usable && !e.peers.alone() {
		limit = e.peers.room(q.id, limit)
	}
	return usable && q.inFlight < limit
}

// runQueues hands due runs out, on hints and, as the net below, every dispatchNet. Where both are there the net comes first.
func (e *Engine) runQueues() {
	net := time.NewTicker(e.net(dispatchNet))
	defer net.Stop()
	for e.ctx.Err() == nil {
		select {
		case <-net.C:
			e.pumpAll()
		default:
		}
		select {
		case <-e.ctx.Done():
			return
		case q := <-e.hints:
			e.pump(q)
		case <-net.C:
			e.pumpAll()
		}
	}
}

// pumpAll looks at every queue, and at the store for each.
func (e *Engine) pumpAll() {
	for _, q := range e.allQueues() {
		e.mu.Lock()
		q.more, q.look = true, true
		e.mu.Unlock()
		e.pump(q)
	}
}

func (e *Engine) allQueues() []*queue {
	ids := e.apps.ids()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		e.queue(id)
	}
	var list []*queue
	for _, q := range e.queues {
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b *queue) int { return a.id.compare(b.id) })
	return list
}

// pump begins calls for a queue's oldest runs while there is room.
func (e *Engine) pump(q *queue) {
	for {
		e.mu.Lock()
		if e.stopping || !e.room(q) {
			e.mu.Unlock()
			return
		}
		if q.look {
			q.look = false
			e.mu.Unlock()
			e.refill(q)
			continue
		}
		if !q.due(e.now()) {
			more := q.more
			if len(q.ready) > 0 {
				q.wakeIn(q.ready[0].ReadyAt.Sub(e.now())) // W4
			}
			e.mu.Unlock()
			if !more || !e.refill(q) { // what is in line for later holds up nothing that the store has
				return
			}
			continue
		}
		r, begun := q.pop(), time.Now()
		q.inFlight++
		e.mu.Unlock()
		e.spawn(func() { e.begin(q, r, begun) })
	}
}

// refill reads an app's due runs from the store; false if none is in line then.
func (e *Engine) refill(q *queue) bool {
	ready, err := e.store.Ready(e.ctx, q.id.env, q.id.name, e.now(), readyPage)
	if err != nil {
		if e.ctx.Err() == nil {
			e.log.Error("reading due runs", "app", q.id.name, "error", err)
		}
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	q.more = len(ready) == readyPage
	mine := e.share(ready)
	if len(q.ready)+len(mine) > readyMax {
		q.forget() // all of them are for later: else nothing would be read
	}
	for _, r := range mine {
		q.push(r)
	}
	return q.due(e.now())
}

// share is what a node takes of the runs that are due, earliest first: its share, and what others have left undone where it has none of its own
// left to do, or where that has waited for longer: a node may not reach the app, or have no room.
func (e *Engine) share(ready []store.Ready) []store.Ready {
	if e.peers.alone() {
		return ready
	}
	var mine, overdue, left []store.Ready
	now := e.now()
	for _, r := range ready {
		if e.peers.mine(r.RunID, 0) {
			mine = append(mine, r)
		} else if e.peers.mine(r.RunID, now.Sub(r.ReadyAt)) {
			overdue = append(overdue, r)
		}
	}
	for _, r := range overdue {
		if len(mine) == 0 || mine[0].ReadyAt.Sub(r.ReadyAt) > leftAfter {
			left = append(left, r)
		}
	}
	return append(left, mine...)
}

// errNotReady stops the begin of a run that is not queued any more, or not yet due.
var errNotReady = errors.New("the run is not due")

// begin makes a queued run's next call. It holds a slot of the queue since begun, which goes over to the call, or back.
func (e *Engine) begin(q *queue, r store.Ready, begun time.Time) {
	f, c, err := e.beginStored(q.id.env, r)
	e.mu.Lock()
	q.inFlight--
	if err != nil {
		if c.before.Status == workflow.Queued && !c.before.ReadyAt().After(e.now()) && errors.Is(err, errNotReady) {
			e.enqueue(c.before)
		}
		q.wake()
		e.mu.Unlock()
		if !errors.Is(err, errNotReady) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrStopping) {
			e.log.Error("beginning a call", "run", r.RunID, "error", err)
		}
		return
	}
	run := c.decision.Run
	if c.before.Call != nil {
		// The call before was cut; should it still be known here, it is superseded now (W2).
		if old := e.live[c.before.Call.ID]; old != nil {
			if old.process != nil {
				old.process.wake()
			}
			e.untrack(old)
		}
	}
	l := e.track(run, c.result.History)
	l.connected, l.begun = true, begun
	e.mu.Unlock()
	e.play(l, f)
}

// beginStored stores the begin of a queued run's next call, and gives what that needs where it is known; nil: it is to be read now that the
// call has begun.
func (e *Engine) beginStored(env string, r store.Ready) (f *fresh, c change, err error) {
	var record store.RunRecord
	var readable bool
	c, err = e.applyRead(func() (workflow.Run, store.History, error) {
		var err error
		record, err = e.store.Record(e.ctx, env, r.RunID)
		if readable = err == nil; readable || errors.Is(err, store.ErrNotFound) {
			return record.Run, store.History{}, err
		}
		return e.store.Load(e.ctx, r.RunID) // without its values, which its call then finds out, and tells
	}, func(run workflow.Run, _ store.History) (workflow.Input, error) {
		// Another time than the one in line: it was called meanwhile, and is due again in its turn.
		if run.Status != workflow.Queued || !run.ReadyAt().Equal(r.ReadyAt) {
			return nil, errNotReady
		}
		return e.newCall(&run), nil
	})
	if readable && isFirst(&record.Run) && c.result.History.Entries == 0 {
		f = &fresh{payload: record.Payload, event: triggerOf(&record.Run, record.Payload)}
	}
	return f, c, err
}

// isFirst tells whether a run has never been called: there is nothing to know of it but what it was started with, and its history if that
// was copied.
func isFirst(run *workflow.Run) bool { return run.Epoch == 0 && run.Restart == 0 && run.Ending == nil }
