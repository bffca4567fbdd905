package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// errDisk is what a store that can't read or write says.
var errDisk = errors.New("the disk can't be used")

// disk is the shared store as one node has it: slow, failing at times, and gone with the node.
//
// Reads are of committed data, and may be old when they arrive. Where two nodes live, the changes of a batch are committed one by one, so
// that those of the other node come between, as READ COMMITTED lets them (N2): only what a store checks together with its write is safe.
type disk struct {
	node  *node
	known map[string]bool // runs that it has waited for in vain; world.mu guards it
}

// askerKey is where a request's context has the message's id: two requests that read the same at once must not change places.
type askerKey struct{}

// read is one read: it takes time before and after it looks.
func read[T any](ctx context.Context, d *disk, what string, look func() (T, error)) (value T, err error) {
	n, w := d.node, d.node.world
	asker, _ := ctx.Value(askerKey{}).(string)
	id, dice := w.name(n.name + " reads " + what + " for " + asker)
	if !n.pass(dice.between(time.Microsecond, 150*time.Microsecond)) {
		return value, errDisk
	}
	if err := ctx.Err(); err != nil {
		return value, err
	}
	if w.readFate(dice) == fails {
		w.trace.add(n.name, "can't read "+id, "")
		w.disturb()
		return value, errDisk
	}
	value, err = look()
	if w.isFaulty() && w.plan.staleOdds > 0 && dice.odds(w.plan.staleOdds) && !n.dawdle(id, dice) {
		return value, errDisk
	}
	if !n.pass(dice.between(time.Microsecond, 50*time.Microsecond)) {
		return value, errDisk
	}
	return value, err
}

// StaleRead is the fault of a read that waits on its way back, as in a process that is held up.
const StaleRead = "read: old when it arrives"

// dawdle lets what was read become old; false if the node has died meanwhile.
func (n *node) dawdle(id string, dice *dice) bool {
	most := []time.Duration{5 * time.Millisecond, 200 * time.Millisecond, 4 * time.Second}[dice.below(3)]
	n.world.report.fault(StaleRead)
	n.world.trace.add(n.name, "waits for "+id, "")
	defer n.world.hinder()()
	return n.pass(dice.between(time.Microsecond, most))
}

// diskFate is what befalls a read or a commit.
type diskFate int

const (
	works diskFate = iota
	fails          // it has no effect
	unknown
	unknownBefore // nobody knows, and it had no effect
	slowly
	crashBefore
	crashAfter
)

var diskFates = []string{"", "no effect", "effect, outcome unknown", "no effect, outcome unknown", "slow", "node crashes before it", "node crashes after it"}

// readFate draws what befalls a read.
func (w *world) readFate(d *dice) diskFate {
	if _, is := w.chosen(reads); is {
		return fails
	}
	if !w.isFaulty() || !d.odds(w.plan.readOdds) {
		return works
	}
	w.report.fault("read: " + diskFates[fails])
	return fails
}

// commitFate draws what befalls a commit.
func (w *world) commitFate(d *dice) diskFate {
	if f, is := w.chosen(commits); is {
		return f.disk
	}
	switch {
	case !w.isFaulty():
		return works
	case w.isFull():
		w.report.fault("commit: disk full")
		return fails
	case !d.odds(w.plan.commitOdds):
		return works
	}
	f := diskFate(1 + d.pick(3, 3, 2, 3, 2, 2))
	w.report.fault("commit: " + diskFates[f])
	return f
}

// Commit implements store.Store.
func (d *disk) Commit(_ context.Context, changes []store.Change) ([]store.Result, error) {
	n, w := d.node, d.node.world
	id, dice := w.name(n.name + " commits")
	f := w.commitFate(dice)
	takes := dice.between(50*time.Microsecond, 4*time.Millisecond)
	if f == slowly {
		takes = dice.between(100*time.Millisecond, 12*time.Second)
		defer w.hinder()()
	}
	if !n.pass(takes) {
		return nil, store.ErrUnknown
	}
	if f != works {
		w.disturb()
	}
	switch f {
	case fails, unknownBefore:
		w.trace.add(n.name, "fails "+id, diskFates[f])
		if f == unknownBefore {
			w.report.reached(commitUnknownBefore)
			return nil, fmt.Errorf("%w: %w", store.ErrUnknown, errDisk)
		}
		return nil, errDisk
	case crashBefore:
		w.crash(n, dice.odds(200), dice.between(time.Millisecond, 9*time.Second))
	case works, unknown, slowly, crashAfter:
	}
	if n.isDead() {
		n.pass(0)
		return nil, store.ErrUnknown
	}
	results, err := d.writeFree(id, changes, dice)
	if f == crashAfter {
		w.crash(n, dice.odds(200), dice.between(time.Millisecond, 9*time.Second))
	}
	if !n.pass(dice.between(time.Microsecond, 300*time.Microsecond)) {
		return nil, store.ErrUnknown
	}
	if f == unknown {
		w.report.reached(commitUnknownAfter)
		return nil, fmt.Errorf("%w: %w", store.ErrUnknown, errDisk)
	}
	return results, err
}

// write commits: at once, or change by change where another node lives.
func (d *disk) write(id string, changes []store.Change, dice *dice) ([]store.Result, error) {
	w := d.node.world
	if !w.isShared() || len(changes) == 1 {
		return w.witness.commit(d.node, id, changes)
	}
	w.report.reached(batchInterleaved)
	var all []store.Result
	for i := range changes {
		if i > 0 {
			rest(dice.between(time.Microsecond, 2*time.Millisecond))
		}
		results, err := w.witness.commit(d.node, id, changes[i:i+1])
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}

// Close implements store.Store.
func (d *disk) Close() error { return nil }

// loaded is what Load gives.
type loaded struct {
	run     workflow.Run
	history store.History
}

// Load implements store.Reader.
func (d *disk) Load(ctx context.Context, runID string) (workflow.Run, store.History, error) {
	l, err := read(ctx, d, "run "+runID, func() (l loaded, err error) {
		l.run, l.history, err = d.node.world.store.Load(ctx, runID)
		return l, err
	})
	return l.run, l.history, err
}

// State implements store.Reader.
func (d *disk) State(ctx context.Context, q store.EntryQuery) (store.State, error) {
	return read(ctx, d, "state "+q.RunID, func() (store.State, error) { return d.node.world.store.State(ctx, q) })
}

// Record implements store.Reader.
func (d *disk) Record(ctx context.Context, env, runID string) (store.RunRecord, error) {
	return read(ctx, d, "record "+runID, func() (store.RunRecord, error) { return d.node.world.store.Record(ctx, env, runID) })
}

// Runs implements store.Reader.
func (d *disk) Runs(ctx context.Context, q store.RunQuery) ([]store.RunRecord, error) {
	return read(ctx, d, "runs", func() ([]store.RunRecord, error) { return d.node.world.store.Runs(ctx, q) })
}

// Entries implements store.Reader.
func (d *disk) Entries(ctx context.Context, q store.EntryQuery) ([]store.Entry, error) {
	return read(ctx, d, "entries "+q.RunID, func() ([]store.Entry, error) { return d.node.world.store.Entries(ctx, q) })
}

// Attempts implements store.Reader.
func (d *disk) Attempts(ctx context.Context, runID string) ([]store.Attempt, error) {
	return read(ctx, d, "attempts "+runID, func() ([]store.Attempt, error) { return d.node.world.store.Attempts(ctx, runID) })
}

// Timers implements store.Reader.
func (d *disk) Timers(ctx context.Context, q store.TimerQuery) ([]workflow.Run, error) {
	return read(ctx, d, "timers", func() ([]workflow.Run, error) { return d.node.world.store.Timers(ctx, q) })
}

// NextTimer implements store.Reader.
func (d *disk) NextTimer(ctx context.Context) (time.Time, error) {
	return read(ctx, d, "next timer", func() (time.Time, error) { return d.node.world.store.NextTimer(ctx) })
}

// Ready implements store.Reader.
func (d *disk) Ready(ctx context.Context, env, app string, now time.Time, limit int) ([]store.Ready, error) {
	return read(ctx, d, "ready "+app, func() ([]store.Ready, error) { return d.node.world.store.Ready(ctx, env, app, now, limit) })
}

// InCall implements store.NodeReader.
func (d *disk) InCall(ctx context.Context, node, after string, limit int) ([]workflow.Run, error) {
	return read(ctx, d, "in call", func() ([]workflow.Run, error) { return d.node.world.store.InCall(ctx, node, after, limit) })
}

// Nodes implements store.NodeReader.
func (d *disk) Nodes(ctx context.Context) ([]store.Node, error) {
	return read(ctx, d, "nodes", func() ([]store.Node, error) { return d.node.world.store.Nodes(ctx) })
}

// CallCounts implements store.NodeReader.
func (d *disk) CallCounts(ctx context.Context, except string) ([]store.CallCount, error) {
	return read(ctx, d, "call counts", func() ([]store.CallCount, error) { return d.node.world.store.CallCounts(ctx, except) })
}

// Heads implements store.NodeReader.
func (d *disk) Heads(ctx context.Context, runIDs []string) ([]store.Head, error) {
	return read(ctx, d, "heads", func() ([]store.Head, error) { return d.node.world.store.Heads(ctx, runIDs) })
}

// Event implements store.Reader.
func (d *disk) Event(ctx context.Context, env, name, id string) (store.Event, error) {
	return read(ctx, d, "event "+name+" "+id, func() (store.Event, error) { return d.node.world.store.Event(ctx, env, name, id) })
}

// Events implements store.Reader. Waits of several runs look back at once: each has the dice of its run.
func (d *disk) Events(ctx context.Context, q store.EventQuery) ([]store.Event, error) {
	return read(ctx, d, "events"+q.UnusedBy, func() ([]store.Event, error) { return d.node.world.store.Events(ctx, q) })
}

// Keys implements store.Reader.
func (d *disk) Keys(ctx context.Context, q store.KeyQuery) ([]store.Key, error) {
	return read(ctx, d, "keys "+q.Scope, func() ([]store.Key, error) { return d.node.world.store.Keys(ctx, q) })
}

// Waits implements store.Reader.
func (d *disk) Waits(ctx context.Context, q store.WaitQuery) ([]store.Wait, error) {
	return read(ctx, d, "waits "+string(q.Set)+q.RunID, func() ([]store.Wait, error) { return d.node.world.store.Waits(ctx, q) })
}

// MatchPaths implements store.Reader.
func (d *disk) MatchPaths(ctx context.Context, env, event string) ([]string, error) {
	return read(ctx, d, "match paths "+event, func() ([]string, error) { return d.node.world.store.MatchPaths(ctx, env, event) })
}

// Callback implements store.Reader.
func (d *disk) Callback(ctx context.Context, q store.CallbackQuery) (store.Callback, error) {
	return read(ctx, d, "callback "+q.RunID, func() (store.Callback, error) { return d.node.world.store.Callback(ctx, q) })
}

// Position implements store.Reader.
func (d *disk) Position(ctx context.Context, cursor string) (int64, error) {
	return read(ctx, d, "position "+cursor, func() (int64, error) { return d.node.world.store.Position(ctx, cursor) })
}

// Schedules implements store.Reader.
func (d *disk) Schedules(ctx context.Context, q store.ScheduleQuery) ([]store.Schedule, error) {
	return read(ctx, d, "schedules", func() ([]store.Schedule, error) { return d.node.world.store.Schedules(ctx, q) })
}

// LaterEvents implements store.Reader.
func (d *disk) LaterEvents(ctx context.Context, q store.LaterQuery) ([]store.LaterEvent, error) {
	return read(ctx, d, "later events", func() ([]store.LaterEvent, error) { return d.node.world.store.LaterEvents(ctx, q) })
}

// NextDue implements store.Reader.
func (d *disk) NextDue(ctx context.Context) (time.Time, error) {
	return read(ctx, d, "next due", func() (time.Time, error) { return d.node.world.store.NextDue(ctx) })
}

// Logs implements store.Reader.
func (d *disk) Logs(ctx context.Context, q store.LogQuery) ([]store.LogLine, error) {
	return read(ctx, d, "logs "+q.RunID, func() ([]store.LogLine, error) { return d.node.world.store.Logs(ctx, q) })
}

// Chapters implements store.Reader.
func (d *disk) Chapters(ctx context.Context, runID string) ([]store.Chapter, error) {
	return read(ctx, d, "chapters "+runID, func() ([]store.Chapter, error) { return d.node.world.store.Chapters(ctx, runID) })
}

// Stranded implements store.Reader.
func (d *disk) Stranded(ctx context.Context, limit int) ([]string, error) {
	return read(ctx, d, "stranded", func() ([]string, error) { return d.node.world.store.Stranded(ctx, limit) })
}

// Apps implements store.Reader.
func (d *disk) Apps(ctx context.Context) ([]store.App, error) {
	return read(ctx, d, "apps", func() ([]store.App, error) { return d.node.world.store.Apps(ctx) })
}

// Delivery implements store.Reader.
func (d *disk) Delivery(ctx context.Context, env, id string) (store.Delivery, error) {
	return read(ctx, d, "delivery "+id, func() (store.Delivery, error) { return d.node.world.store.Delivery(ctx, env, id) })
}

// Deliveries implements store.Reader.
func (d *disk) Deliveries(ctx context.Context, q store.DeliveryQuery) ([]store.Delivery, error) {
	return read(ctx, d, "deliveries", func() ([]store.Delivery, error) { return d.node.world.store.Deliveries(ctx, q) })
}
