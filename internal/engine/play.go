package engine

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/backoff"
	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// stoppingPause is how long a run waits whose app said that it is stopping: about as long as another process takes to start.
const stoppingPause = time.Second

// fresh is what a call of a run that was just stored needs, so that it reads nothing.
type fresh struct {
	payload jsontext.Value
	event   *wire.Event
	failure jsontext.Value // what a closing began with
}

// play makes one call: it sends the request, waits for what becomes of it, and acts on that. The call is tracked.
func (e *Engine) play(l *live, f *fresh) {
	e.mu.Lock()
	run, begun := l.run, l.begun
	ctx, cancel := context.WithCancel(e.ctx)
	l.cancel = cancel
	e.mu.Unlock()
	defer cancel()
	target, err := e.apps.target(appID{run.Env, run.App})
	if err != nil {
		e.void(l, workflow.Void{CallID: l.callID, RetryAt: e.now()}, err.Error())
		return
	}
	body, payload, err := e.message(ctx, run, f)
	if err == nil {
		e.mu.Lock()
		l.payload, l.payloadKnown = payload, true
		e.mu.Unlock()
	} else {
		if e.ctx.Err() == nil {
			e.log.Error("preparing a call", "run", run.ID, "error", err)
		}
		e.void(l, workflow.Void{CallID: l.callID, RetryAt: e.now().Add(time.Second), Reason: "its call could not be prepared; the server's log says why"}, "")
		return
	}
	started, before := time.Now(), e.peers.sendBefore(begun)
	if !started.Before(before) {
		e.void(l, workflow.Void{CallID: l.callID, RetryAt: e.now().Add(retryPause)}, "the store took too long to keep its begin")
		return
	}
	outcome := e.caller.Do(ctx, call.Request{
		Target: target, ID: l.callID, Body: body, SendBefore: before,
		Sent: func() {
			e.mu.Lock()
			l.written = true
			e.mu.Unlock()
		},
	})
	e.log.Debug("call", "run", run.ID, "workflow", run.Workflow, "call", l.callID, "outcome", outcome.Kind.String(), "took", time.Since(started))
	e.outcome(ctx, l, run, outcome)
}

// outcome acts on what became of a call's request.
func (e *Engine) outcome(ctx context.Context, l *live, run workflow.Run, o call.Outcome) {
	app := appID{run.Env, run.App}
	if o.Kind != call.NotSent {
		e.mu.Lock()
		l.written = true
		e.mu.Unlock()
	}
	switch {
	case o.Kind == call.Answered:
		e.contacted(app)
		e.apps.played(app, run.Workflow)
		e.answer(l, o.Body)
	case o.Kind == call.Refused && o.Code == call.CodeWorkflowUnknown:
		e.contacted(app)
		pause := backoff.Grow(e.apps.unknownTries(app, run.Workflow), time.Second, appPauseMax, e.options.Jitter())
		e.void(l, workflow.Void{
			CallID: l.callID, RetryAt: e.now().Add(pause),
			Reason: fmt.Sprintf("the app %q has no workflow %q now: deploy it, or cancel the run", run.App, run.Workflow),
		}, "")
	case o.Kind == call.Refused && o.Code == call.CodeStopping:
		e.void(l, workflow.Void{CallID: l.callID, RetryAt: e.now().Add(stoppingPause)}, o.Reason)
	case o.Kind == call.Lost, o.Kind == call.Silent:
		e.log.Warn("a call's connection is lost; asking whether it goes on", "run", run.ID, "call", l.callID, "why", o.Reason)
		e.lost(l, o.Kind == call.Lost)
	case o.Kind == call.Ended || ctx.Err() != nil:
		// The call was over before its request, or the server stops: the call keeps its lease.
	default: // not sent, unusable, refused: the app as a whole can't be used (C14)
		e.unusable(app, o)
		e.void(l, workflow.Void{CallID: l.callID, RetryAt: e.now()}, o.Reason)
	}
}

// void takes a begin back (C3). Where that can't be stored it is tried again: until then the run has its call, which nobody plays, and that
// has its slot.
func (e *Engine) void(l *live, in workflow.Void, why string) {
	for {
		err := e.storeVoid(l, in)
		if err == nil || errors.Is(err, ErrStopping) || errors.Is(err, store.ErrNotFound) {
			break
		}
		e.log.Error("taking a begin back", "run", l.runID, "why", why, "error", err)
		if pause(e.ctx, beatEvery); e.ctx.Err() != nil {
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.untrack(l)
}

func (e *Engine) storeVoid(l *live, in workflow.Void) error {
	_, err := e.apply(context.WithoutCancel(e.ctx), l.runID, func(run workflow.Run, h store.History) (workflow.Input, error) {
		if run.Call == nil || run.Call.ID != l.callID || run.Status != workflow.Running {
			return nil, nil
		}
		in.Entries = h.Entries
		return in, nil
	})
	return err
}

// message writes the request of a call, and gives the payload that is in it.
func (e *Engine) message(ctx context.Context, run workflow.Run, f *fresh) ([]byte, jsontext.Value, error) {
	m := wire.Call{
		Type: "call",
		Call: wire.CallInfo{
			ID: run.Call.ID, Epoch: run.Epoch, Token: run.Call.Token, Cuts: run.Cuts, LeaseMs: run.Lease.Milliseconds(),
			HeartbeatMs: heartbeat(run.Lease).Milliseconds(), SentAt: wire.At(e.now()),
		},
		Steps:  wire.Steps{Entries: []wire.Entry{}, Retrying: []wire.Retrying{}},
		Limits: limits(),
		URL:    e.options.URL,
	}
	if f == nil {
		var err error
		if f, err = e.reload(ctx, run, &m.Steps); err != nil {
			return nil, nil, err
		}
	}
	m.Run = wireRun(run, f)
	if run.Closing() {
		m.Ending = &wire.Closing{Reason: run.Ending.Reason, Error: f.failure, Entries: run.Ending.Entries}
	}
	body, err := wire.Encode(m)
	return body, f.payload, err
}

func limits() wire.Limits { return wire.Limits{Steps: wire.StepsMax, ResultBytes: wire.ResultBytesMax} }

// wireRun is a run as its app is told of it.
func wireRun(run workflow.Run, f *fresh) wire.Run {
	return wire.Run{
		ID: run.ID, Workflow: run.Workflow, App: run.App, Payload: f.payload, Event: f.event, Key: optional(run.Key), ReplayOf: optional(run.ReplayOf),
		Root: run.Root, Restart: run.RootRestart + run.Restart, Attempt: run.Attempts + 1, CreatedAt: wire.At(run.CreatedAt),
	}
}

// reload reads what a later call needs: payload, event, saved steps, and what is due again.
func (e *Engine) reload(ctx context.Context, run workflow.Run, steps *wire.Steps) (*fresh, error) {
	state, err := e.store.State(ctx, store.EntryQuery{RunID: run.ID, EntriesMax: wire.PageEntriesMax, BytesMax: wire.PageBytesMax})
	if err != nil {
		return nil, err
	}
	f := &fresh{payload: state.Payload, event: triggerOf(&run, state.Payload), failure: state.Error}
	steps.Entries, steps.Next = pageOf(state.Entries, 0, state.History.Entries)
	for _, w := range opened(state.Waits) {
		steps.Waiting = append(steps.Waiting, wire.Waiting{Kind: w.Kind, Name: w.Name, Number: w.Number})
	}
	now := e.now()
	for _, a := range state.Attempts {
		if !a.RetryAt.IsZero() {
			steps.Retrying = append(steps.Retrying, wire.Retrying{Name: a.Name, Number: a.Number, Attempt: a.Attempt, RetryInMs: max(a.RetryAt.Sub(now).Milliseconds(), 0)})
		}
		// A deploy that renames a step is what cuts it off: under its new name it would be another, which has not begun (S4, S5, S7).
		if ref := (wire.StepRef{Name: a.Name, Number: a.Number}); a.CallID != "" && !slices.Contains(steps.Begun, ref) {
			steps.Begun = append(steps.Begun, ref)
		}
	}
	return f, nil
}

// triggerOf is the event that started a run; nil for none. Its payload is the run's, and both were stored at once: it may be gone by
// retention, the run has what it needs.
func triggerOf(run *workflow.Run, payload jsontext.Value) *wire.Event {
	if run.EventID == "" {
		return nil
	}
	return &wire.Event{ID: run.EventID, Event: run.Event, Payload: payload, CreatedAt: wire.At(run.CreatedAt)}
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
