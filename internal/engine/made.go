package engine

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"slices"
	"strconv"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// madeAtOnce tells whether an op asks for a step that the server makes at once.
func madeAtOnce(op string) bool {
	return op == wire.OpClaim || op == wire.OpCallback || op == wire.OpUndo
}

// madeHere tells whether items have steps that the server makes or waits for: saving them reads first.
func madeHere(items []wire.Item) bool {
	for i := range items {
		if op := items[i].Op; op == wire.OpWait || madeAtOnce(op) {
			return true
		}
	}
	return false
}

// saveMade is saveOnce for items with waits, claims and callbacks.
func (e *Engine) saveMade(ctx context.Context, l *live, save wire.Save) (wire.SaveOutcome, error) {
	e.mu.Lock()
	run, history := l.run, l.history
	e.mu.Unlock()
	if run.Status != workflow.Running {
		// Taken for cut: it comes back by a word of its own first.
		out, err := e.saveOnce(ctx, l, wire.Save{Fence: save.Fence, Seen: save.Seen})
		if err != nil || out.Status != wire.Accepted {
			return out, err
		}
		return out, store.ErrStale
	}
	op, items, detail := e.planSave(&run, save)
	if detail != "" {
		return wire.SaveOutcome{Call: save.Call, Status: wire.Invalid, Detail: detail}, nil
	}
	beside, err := e.makeSteps(ctx, &run, save, &op, items)
	if errors.Is(err, errSkipped) {
		return wire.SaveOutcome{Call: save.Call, Status: wire.Ended}, nil
	}
	if err != nil {
		return wire.SaveOutcome{}, err
	}
	var reg registration
	if run.Phase() != workflow.PhaseEnding {
		if reg, err = e.register(ctx, &run, save.Items); err != nil {
			return wire.SaveOutcome{}, err
		}
	}
	reg.undoes = run.Closers&workflow.CloserUndo == 0 && slices.ContainsFunc(op.Steps, func(s workflow.Step) bool { return s.Kind == workflow.KindUndo })
	res, err := e.commitMade(run, history, reg, save.Call, withLogs(append(beside, op), &run, save.Call, save.Logs))
	if err != nil {
		return wire.SaveOutcome{}, err
	}
	if err := e.standingWaits(ctx, &run, reg, res, save.Items, items); err != nil {
		return wire.SaveOutcome{}, err
	}
	res.Steps = res.Steps[len(reg.failed):]
	return e.saved(ctx, l, save, items, res), nil
}

// commitMade commits what is saved, with the waits that it registers.
func (e *Engine) commitMade(run workflow.Run, history store.History, reg registration, callID string, ops []store.Op) (store.Result, error) {
	if len(reg.waits)+len(reg.failed) == 0 && !reg.undoes {
		return e.committer.commit(ops)
	}
	in := workflow.Opened{CallID: callID, Waits: reg.waits, Failed: reg.failed, Undoes: reg.undoes}
	start := reg.with(nil)
	c, err := e.applyWith(run, history, func(workflow.Run, store.History) (workflow.Input, error) { return in, nil },
		func(u *store.UpdateRun) []store.Op { start(u); return ops })
	if err == nil {
		e.opened(reg, c.result.Opened)
	}
	return c.result, err
}

// standingWaits corrects the outcomes of waits that were not opened: those that are open already wait all the same, the others have an
// entry.
func (e *Engine) standingWaits(ctx context.Context, run *workflow.Run, reg registration, res store.Result, items []wire.Item, plans []itemPlan) error {
	waiting := map[workflow.StepID]bool{}
	for i, w := range reg.waits {
		waiting[w.StepID] = res.Opened[i]
	}
	var standing []int
	for i := range plans {
		if plans[i].wait && !waiting[stepID(&items[i])] {
			standing = append(standing, i)
		}
	}
	if len(standing) == 0 {
		return nil
	}
	open, err := e.openWaits(ctx, run.ID)
	if err != nil {
		return err
	}
	for i := range open {
		waiting[open[i].StepID] = true
	}
	for _, i := range standing {
		plans[i].wait = waiting[stepID(&items[i])]
	}
	return nil
}

// errSkipped: another run owns the key that the run's workflow runs once for.
var errSkipped = errors.New("the run is skipped")

// makeSteps makes the steps of claims, callbacks and undos, and puts them where a save has its steps.
func (e *Engine) makeSteps(ctx context.Context, run *workflow.Run, save wire.Save, op *store.SaveSteps, plans []itemPlan) (beside []store.Op, err error) {
	for i := range plans {
		item := &save.Items[i]
		if plans[i].refused != nil || !madeAtOnce(item.Op) {
			continue
		}
		now := e.now()
		step := workflow.Step{StepID: stepID(item), Kind: item.Kind, Status: workflow.StepCompleted, Attempts: 1, StartedAt: now, EndedAt: now}
		var callback *store.Callback
		switch item.Op {
		case wire.OpClaim:
			step.Output, err = e.claimed(ctx, run, save.Fence, item)
		case wire.OpCallback:
			callback, step.Output, err = e.callbackOnce(ctx, run, item)
		}
		var refused refusal
		switch {
		case errors.As(err, &refused):
			step = workflow.Refused(step.StepID, step.Kind, "CallbackError", string(refused), now)
		case err != nil:
			return nil, err
		case callback != nil:
			beside = append(beside, store.InsertCallback{Callback: *callback})
		}
		plans[i].step, plans[i].output = len(op.Steps), step.Output
		op.Steps = append(op.Steps, step)
	}
	return beside, nil
}

// claimed is the output of a claim. A workflow's once ends the run where another owns its key.
func (e *Engine) claimed(ctx context.Context, run *workflow.Run, f wire.Fence, item *wire.Item) (jsontext.Value, error) {
	owner, err := e.claim(ctx, run, f, item)
	if err == nil && item.Once && owner != run.ID {
		err = e.skip(ctx, run.ID, f.Call, owner)
	}
	return jsontext.Value(strconv.FormatBool(owner == run.ID)), err
}

// skip ends a run whose work another does (K4); it gives errSkipped.
func (e *Engine) skip(ctx context.Context, runID, callID, owner string) error {
	skipped := false
	_, err := e.apply(ctx, runID, func(run workflow.Run, _ store.History) (workflow.Input, error) {
		if skipped = run.Status == workflow.Skipped; run.Phase() != workflow.PhaseRunning {
			return nil, nil
		}
		skipped = true
		return workflow.Skip{CallID: callID, Owner: owner}, nil
	})
	if err == nil && !skipped {
		err = store.ErrStale // it is ending, or was cut, meanwhile: the save is judged by what it is now
	}
	if err != nil {
		return err
	}
	return errSkipped
}

// callbackOnce makes a callback; nil where its step has made one, whose entry stands.
func (e *Engine) callbackOnce(ctx context.Context, run *workflow.Run, item *wire.Item) (*store.Callback, jsontext.Value, error) {
	_, err := e.store.Callback(ctx, store.CallbackQuery{RunID: run.ID, StepID: stepID(item)})
	if err == nil {
		return nil, jsontext.Value("null"), nil // this result is dropped
	}
	if !errors.Is(err, store.ErrNotFound) {
		return nil, nil, err
	}
	callback, output, err := e.newCallback(run, item)
	return &callback, output, err
}
