package engine

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// over says which of a run's open waits are over, as their entries, and what is written beside them.
type over func(open []store.Wait) (steps []workflow.Step, beside []store.Op)

// tell appends the entries of waits that are over, and calls the run where it waits for them. A wait that is not open any more is
// nothing to tell. It is durable on return.
func (e *Engine) tell(ctx context.Context, runID string, which over) error {
	for range applyTries {
		state, err := e.store.State(ctx, store.EntryQuery{RunID: runID})
		if err != nil {
			return err
		}
		if phase := state.Phase(); phase == workflow.PhaseEnded || phase == workflow.PhaseEnding {
			return nil
		}
		err = e.tellOnce(ctx, &state, which)
		if !errors.Is(err, store.ErrStale) || errors.Is(err, store.ErrCursor) {
			return err
		}
	}
	return ErrBusy
}

func (e *Engine) tellOnce(ctx context.Context, state *store.State, which over) (err error) {
	run, open := state.Run, opened(state.Waits)
	steps, beside := which(open)
	in := workflow.News{Steps: steps, WaitsAt: firstDue(open, steps)}
	if run.Status == workflow.Waiting && len(steps) > 0 {
		if in.Wakes, in.Paced, err = e.wakes(ctx, state, open, steps); err != nil {
			return err
		}
	}
	if len(steps) == 0 && in.WaitsAt.Equal(run.WaitsAt) {
		return nil
	}
	_, err = e.applyWith(run, state.History, func(workflow.Run, store.History) (workflow.Input, error) { return in, nil },
		func(*store.UpdateRun) []store.Op { return beside })
	return err
}

// openWaits reads the open waits of a run's steps.
func (e *Engine) openWaits(ctx context.Context, runID string) ([]store.Wait, error) {
	waits, err := e.store.Waits(ctx, store.WaitQuery{Set: store.WaitsOfRun, RunID: runID})
	return opened(waits), err
}

// opened are those of a run's waits that its steps wait for. It reuses waits.
func opened(waits []store.Wait) []store.Wait {
	open := waits[:0]
	for _, w := range waits {
		if !w.Orphan && w.Kind != workflow.KindCancel {
			open = append(open, w)
		}
	}
	return open
}

// firstDue is when the first of the waits that stay open is due by itself.
func firstDue(open []store.Wait, closed []workflow.Step) time.Time {
	gone := map[workflow.StepID]bool{}
	for _, s := range closed {
		gone[s.StepID] = true
	}
	var first time.Time
	for _, w := range open {
		if !gone[w.StepID] && !w.DueAt.IsZero() && (first.IsZero() || w.DueAt.Before(first)) {
			first = w.DueAt
		}
	}
	return first
}

// wakes tells whether what a suspended run waits for is there once steps are (H4), and whether each of several things wakes it.
func (e *Engine) wakes(ctx context.Context, state *store.State, open []store.Wait, steps []workflow.Step) (wakes, paced bool, err error) {
	var trees []wire.Tree
	if err := wire.Decode(state.Trees, &trees); err != nil {
		return true, false, nil //nolint:nilerr // a run that waits for it knows not what is called, and says
	}
	leaves := map[workflow.StepID]workflow.Settled{}
	for _, w := range open {
		leaves[w.StepID] = workflow.Open
	}
	for _, s := range steps {
		leaves[s.StepID] = settledAs(s.Status)
	}
	if nested(trees) {
		if err := e.earlier(ctx, state.ID, leaves); err != nil {
			return false, false, err
		}
	}
	for _, t := range trees {
		stands := treeOf(t).Stands(func(id workflow.StepID) workflow.Settled {
			if s, known := leaves[id]; known {
				return s
			}
			return workflow.Done // a leaf of a flat tree that ended otherwise would have woken the run then
		})
		wakes = wakes || stands != workflow.Open
	}
	return wakes, len(trees) > 1, nil
}

func settledAs(status string) workflow.Settled {
	if status == workflow.StepFailed {
		return workflow.Threw
	}
	return workflow.Done
}

// nested tells whether a tree has combinators in combinators: then how its leaves ended before matters.
func nested(trees []wire.Tree) bool {
	for _, t := range trees {
		for _, branches := range [][]wire.Tree{t.All, t.Race, t.Any} {
			for _, b := range branches {
				if b.Wait == nil && b.Retry == nil {
					return true
				}
			}
		}
	}
	return false
}

// earlier adds how steps ended before.
func (e *Engine) earlier(ctx context.Context, runID string, leaves map[workflow.StepID]workflow.Settled) error {
	after := int64(0)
	for {
		page, err := e.store.Entries(ctx, store.EntryQuery{RunID: runID, After: after, EntriesMax: wire.PageEntriesMax, BytesMax: wire.PageBytesMax})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, entry := range page {
			leaves[entry.StepID] = settledAs(entry.Status)
			after = entry.Entry
		}
	}
}

func treeOf(t wire.Tree) workflow.Tree {
	list := func(branches []wire.Tree) []workflow.Tree {
		var out []workflow.Tree
		for _, b := range branches {
			out = append(out, treeOf(b))
		}
		return out
	}
	out := workflow.Tree{All: list(t.All), Race: list(t.Race), Any: list(t.Any)}
	if t.Wait != nil {
		out.Wait = &workflow.StepID{Name: t.Wait.Name, Number: t.Wait.Number}
	}
	return out
}

// fireWaits tells a run of its waits whose time has come. What came for them before is given to them first: an event or an answer that
// is acknowledged is not lost to a timer that was read sooner (E2).
func (e *Engine) fireWaits(runID string) error {
	var late, looked, orphans bool
	var unread error
	over := func(open []store.Wait) (steps []workflow.Step, beside []store.Op) {
		now := e.now()
		due := slices.DeleteFunc(slices.Clone(open), func(w store.Wait) bool { return w.DueAt.IsZero() || w.DueAt.After(now) })
		// A look counts once: what has changed since, or a wait that is new, is looked for again.
		late = slices.ContainsFunc(due, func(w store.Wait) bool {
			return w.Kind == workflow.KindEvent && !w.Looked || !looked && (w.Kind == workflow.KindEvent || w.Kind == workflow.KindCallback)
		})
		if looked = false; late {
			return nil, nil
		}
		// Where several are over at one look, as after a time without a server, they ended in the order of their times.
		slices.SortStableFunc(due, func(a, b store.Wait) int { return a.DueAt.Compare(b.DueAt) })
		for i := range due {
			var expiry []store.Op
			if expiry, unread = e.expiry(&due[i]); unread != nil {
				return nil, nil
			}
			steps, beside = append(steps, due[i].Over(now)), append(beside, expiry...)
			orphans = orphans || due[i].Kind == workflow.KindInvoke
		}
		return steps, beside
	}
	for range applyTries {
		late = false // of a run that has ended nothing is asked
		err := e.tell(e.ctx, runID, over)
		if orphans {
			e.matching.wake() // the children that nobody waits for any more are to be cancelled
		}
		if err = errors.Join(err, unread); err != nil || !late {
			return err
		}
		if err := e.matched(runID); err != nil {
			return err
		}
		looked = true
	}
	return ErrBusy
}

// expiry closes the callback whose wait's time is over, so that nobody is told that it took a post which its run did not get.
func (e *Engine) expiry(w *store.Wait) ([]store.Op, error) {
	if w.Kind != workflow.KindCallback {
		return nil, nil
	}
	callback, err := e.store.Callback(e.ctx, store.CallbackQuery{RunID: w.RunID, StepID: workflow.StepID{Name: w.Name, Number: w.Of}})
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return []store.Op{store.ExpireCallback{TokenHash: callback.TokenHash}}, err
}

// suspension completes the input of an end that suspends: what it opens, and for what the run waits.
func (e *Engine) suspension(ctx context.Context, run *workflow.Run, end *wire.End, in *workflow.End) (registration, jsontext.Value, error) {
	reg, err := e.register(ctx, run, end.Register)
	if err != nil {
		return reg, nil, err
	}
	in.Opened, in.Failed = reg.waits, reg.failed
	leaves, err := leavesOf(end.Waits)
	if err != nil {
		return reg, nil, err
	}
	if in.RetryAt, err = e.earliestRetry(ctx, run.ID, leaves); err != nil {
		return reg, nil, err
	}
	waiting := map[workflow.StepID]*workflow.Wait{}
	for i := range reg.waits {
		waiting[reg.waits[i].StepID] = &reg.waits[i]
	}
	if len(reg.waits) < len(leaves) || len(reg.children) > 0 { // a child may have been started before
		open, err := e.openWaits(ctx, run.ID)
		if err != nil {
			return reg, nil, err
		}
		for i := range open {
			waiting[open[i].StepID] = &open[i].Wait
		}
	}
	for _, leaf := range leaves {
		if leaf.Wait == nil {
			continue
		}
		if w := waiting[workflow.StepID{Name: leaf.Wait.Name, Number: leaf.Wait.Number}]; w != nil {
			in.Waits = true
			in.Why = or(in.Why, reason(w, len(leaves)))
		}
	}
	trees, err := wire.Encode(end.Waits)
	return reg, trees, err
}

// The bounds of what a run waits for.
const (
	treeLeavesMax = wire.StepsMax
	treeDepthMax  = 16
)

// leavesOf are the leaves of trees, in order.
func leavesOf(trees []wire.Tree) ([]wire.Tree, error) {
	var leaves []wire.Tree
	var walk func(t wire.Tree, depth int) error
	walk = func(t wire.Tree, depth int) error {
		if depth > treeDepthMax || len(leaves) >= treeLeavesMax {
			return errors.Join(errInvalid, errors.New("a run waits for at most 10,000 things, combined 16 deep"))
		}
		if t.Wait != nil || t.Retry != nil {
			leaves = append(leaves, t)
			return nil
		}
		for _, branches := range [][]wire.Tree{t.All, t.Race, t.Any} {
			for _, b := range branches {
				if err := walk(b, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, t := range trees {
		if err := walk(t, 1); err != nil {
			return nil, err
		}
	}
	return leaves, nil
}

// reason says for what a run waits, for people.
func reason(w *workflow.Wait, leaves int) string {
	text := ""
	switch w.Kind {
	case workflow.KindSleep:
		text = "it sleeps until " + w.DueAt.Format(time.RFC3339)
	case workflow.KindEvent:
		text = "it waits for the event " + w.Event.Names[0]
		if len(w.Event.Names) > 1 {
			text += ", or another"
		}
	case workflow.KindInvoke:
		text = "it waits for the run " + w.Child
	case workflow.KindCallback:
		text = "it waits for the callback " + w.Name
	}
	if leaves > 1 {
		text += ", and for " + itoa(leaves-1) + " more"
	}
	return text
}
