package engine

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// answer takes the answer to a call's request.
func (e *Engine) answer(l *live, body []byte) {
	var end wire.End
	err := wire.Decode(body, &end)
	if err == nil {
		e.mu.Lock()
		run := l.run
		e.mu.Unlock()
		e.apps.heard(appID{run.Env, run.App}, end.Manifest, e.now())
		f := wire.Fence{Call: l.callID, Token: run.Call.Token, Nonce: end.Nonce}
		if out := e.endCall(context.WithoutCancel(e.ctx), f, end); out.Status == wire.Accepted && end.Type != wire.Over {
			return
		} else if out.Status == wire.Superseded || out.Status == wire.Later || end.Type == wire.Over {
			// Another playing of the same call may hold it (C4), or the end can't be stored now: this answer is not its end.
			e.lost(l, false)
			return
		} else if out.Status != wire.Invalid {
			e.log.Debug("an answer came too late", "run", l.runID, "call", l.callID, "status", out.Status)
			return
		} else {
			err = errors.New(out.Detail)
		}
	}
	e.log.Error("the app's answer to a call can't be used; the call counts as cut off", "run", l.runID, "workflow", l.workflow, "call", l.callID, "error", err)
	e.cut(l, "its answer can't be used")
}

// End takes ends that come through the API (C10), each with an outcome of its own, so many at once that they share commits.
func (e *Engine) End(ctx context.Context, ends wire.Ends) wire.EndsAnswer {
	answer := wire.EndsAnswer{Ends: make([]wire.EndOutcome, len(ends.Ends))}
	_ = sideBySide(len(ends.Ends), messageSide, func(i int) error { // each says itself what went wrong
		sent := ends.Ends[i]
		sent.End.Nonce = sent.Nonce
		answer.Ends[i] = e.endCall(ctx, sent.Fence, sent.End)
		return nil
	})
	answer.Time = wire.At(e.now())
	return answer
}

// endCall ends a call as its playing says, with the results that it could not save.
func (e *Engine) endCall(ctx context.Context, f wire.Fence, end wire.End) wire.EndOutcome {
	out := wire.EndOutcome{Call: f.Call}
	for range applyTries {
		l, verdict, err := e.admit(ctx, f)
		if err != nil {
			out.Status = wire.Later
			return out
		}
		if out.Status = string(verdict); verdict != workflow.Accept {
			return out
		}
		err = e.endOnce(ctx, l, f, end)
		switch {
		case errors.Is(err, store.ErrStale):
			e.mu.Lock()
			l.outdated()
			e.mu.Unlock()
			continue
		case errors.Is(err, workflow.ErrForbidden), errors.Is(err, errInvalid), errors.Is(err, store.ErrBadChange):
			out.Status, out.Detail = wire.Invalid, err.Error()
		case errors.Is(err, workflow.ErrNotCurrent):
			out.Status = wire.Ended
		case err != nil:
			out.Status = wire.Later
		}
		return out
	}
	out.Status = wire.Later
	return out
}

// errInvalid marks an end that breaks the protocol.
var errInvalid = errors.New("the end breaks the protocol")

func (e *Engine) endOnce(ctx context.Context, l *live, f wire.Fence, end wire.End) error {
	e.mu.Lock()
	run, history := l.run, l.history
	e.mu.Unlock()
	if end.Type == wire.Over {
		return nil
	}
	in, err := e.endInput(f.Call, end)
	if err != nil {
		return err
	}
	if len(end.Unsaved) > 0 {
		if history, run.Version, err = e.saveUnsaved(run, f, end); err != nil {
			return err
		}
		if run.Call.Nonce == "" {
			bound := *run.Call
			bound.Nonce = f.Nonce
			run.Call = &bound
		}
	}
	var reg registration
	var trees jsontext.Value
	if in.Kind == workflow.EndSuspended && run.Phase() != workflow.PhaseEnding {
		// After the unsaved results: they may hold the very retry that it waits for.
		if reg, trees, err = e.suspension(ctx, &run, &end, &in); err == nil {
			err = e.fresh(ctx, &run, &in)
		}
		if err != nil {
			return err
		}
	}
	if in.Kind == workflow.EndFailed {
		trees = forNothing
	}
	in.Entries = history.Entries
	c, err := e.applyWith(run, history, func(workflow.Run, store.History) (workflow.Input, error) { return in, nil }, func(u *store.UpdateRun) []store.Op {
		reg.with(trees)(u)
		if !e.peers.alone() {
			u.Entries = &history.Entries
		}
		return withLogs(nil, &run, f.Call, end.Logs)
	})
	if err == nil {
		e.opened(reg, c.result.Opened)
	}
	return err
}

// forNothing are the trees of a run whose code threw and is tried again: what it was suspended for before is not what it waits for now, and
// whatever comes meanwhile ends no pause that was asked for (promise 13). The call after the pause is shown it.
var forNothing = jsontext.Value("[]")

// fresh gives store.ErrStale where a run that seems to wait for nothing has changed since it was read: what it waits for has come.
func (e *Engine) fresh(ctx context.Context, run *workflow.Run, in *workflow.End) error {
	if in.Waits || !in.RetryAt.IsZero() || len(in.Failed) > 0 {
		return nil
	}
	now, _, err := e.store.Load(ctx, run.ID)
	if err == nil && now.Version != run.Version {
		err = store.ErrStale
	}
	return err
}

// saveUnsaved saves the results that travelled in the end, before the end: they are a save like any other. So are its lines: should the end be
// lost, the next call is shown the results, and does not write again what came before them.
func (e *Engine) saveUnsaved(run workflow.Run, f wire.Fence, end wire.End) (store.History, int64, error) {
	out := wire.Save{Fence: f, Seen: end.Seen, Items: end.Unsaved}
	op, _, detail := e.planSave(&run, out)
	if detail != "" {
		return store.History{}, 0, errors.Join(errInvalid, errors.New(detail))
	}
	change := store.Change{op}
	if run.Status != workflow.Running {
		d, err := workflow.Apply(run, workflow.Revive{CallID: f.Call, Node: e.peers.self}, e.now())
		if err != nil {
			return store.History{}, 0, err
		}
		change = store.Change{store.UpdateRun{Run: d.Run}, op}
	}
	res, err := e.committer.commit(withLogs(change, &run, f.Call, end.Logs))
	if err != nil {
		return store.History{}, 0, err
	}
	version := run.Version
	if res.Bound {
		version++
	}
	if run.Status != workflow.Running || res.Version != version {
		// Revived, or changed meanwhile by somebody else: what follows starts from the run as it is now (N1).
		return store.History{}, 0, store.ErrStale
	}
	return res.History, version, nil
}

func (e *Engine) endInput(callID string, end wire.End) (workflow.End, error) {
	in := workflow.End{CallID: callID, Seen: end.Seen, Jitter: e.options.Jitter(), Warning: unasked(end.Unasked)}
	if detail := wire.CheckLogs(end.Logs); detail != "" {
		return in, errors.Join(errInvalid, errors.New(detail))
	}
	switch end.Type {
	case wire.Completed:
		if len(end.Output) > wire.ResultBytesMax {
			in.Kind, in.Error = workflow.EndFailed, &workflow.Failure{Error: encodeError(outputTooLarge(len(end.Output)))}
			return in, nil
		}
		in.Kind, in.Output = workflow.EndCompleted, end.Output
	case wire.Failed:
		in.Kind, in.Error = workflow.EndFailed, failureOf(end.Error, end.Retriable, end.Retries, end.RetryAfterMs)
	case wire.Suspended:
		in.Kind = workflow.EndSuspended
	case wire.Yielded:
		in.Kind, in.Excused = workflow.EndYielded, end.Excused
	case wire.Restarted:
		if len(end.Payload) > wire.ResultBytesMax {
			in.Kind, in.Error = workflow.EndFailed, &workflow.Failure{Error: encodeError(payloadTooLarge(len(end.Payload)))}
			return in, nil
		}
		in.Kind, in.Payload = workflow.EndRestarted, end.Payload
	default:
		return in, errors.Join(errInvalid, errors.New("an end's type must be completed, failed, suspended, yielded, restarted or over"))
	}
	return in, nil
}

// unaskedMax is how many steps a warning names.
const unaskedMax = 20

// unasked is the warning that saved steps are not asked for any more; empty where all are.
func unasked(steps []wire.StepRef) string {
	if len(steps) == 0 {
		return ""
	}
	text := "the code has changed: at its last call it did not ask for saved steps:"
	for _, s := range steps[:min(len(steps), unaskedMax)] {
		name := s.Name[:min(len(s.Name), wire.NameBytesMax)]
		text += fmt.Sprintf(" %q", name)
		if s.Number > 1 {
			text += fmt.Sprintf(" (%d)", s.Number)
		}
	}
	return text + "; a renamed step says so with was"
}

func payloadTooLarge(size int) *wire.Error {
	return &wire.Error{Name: "PayloadTooLargeError", Message: "the payload of step.restart is too large: it has " + itoa(size) + " bytes, and a payload has at most " + itoa(wire.ResultBytesMax) + "; store the data elsewhere and pass a reference to it"}
}

func outputTooLarge(size int) *wire.Error {
	return &wire.Error{Name: "ResultTooLargeError", Message: "the workflow's output is too large: it has " + itoa(size) + " bytes, and an output has at most " + itoa(wire.ResultBytesMax) + "; store the data elsewhere and return a reference to it"}
}

// earliestRetry finds when the first of the steps that a suspended run waits for is due again; zero if none is.
func (e *Engine) earliestRetry(ctx context.Context, runID string, waits []wire.Tree) (time.Time, error) {
	if !slices.ContainsFunc(waits, func(w wire.Tree) bool { return w.Retry != nil }) {
		return time.Time{}, nil
	}
	attempts, err := e.store.Attempts(ctx, runID)
	if err != nil {
		return time.Time{}, err
	}
	due := map[wire.StepRef]time.Time{}
	for _, a := range attempts {
		if !a.RetryAt.IsZero() {
			due[wire.StepRef{Name: a.Name, Number: a.Number}] = a.RetryAt
		}
	}
	var first time.Time
	for _, w := range waits {
		if w.Retry == nil {
			continue
		}
		if at := due[*w.Retry]; !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, nil
}
