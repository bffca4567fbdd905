package engine

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"

	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// ErrUnknownStep: the run has no saved step of that name.
var ErrUnknownStep = errors.New("no such step")

// ReplayRequest asks for a replay.
type ReplayRequest struct {
	Env   string
	RunID string // that is replayed
	NewID string // drawn by the client before its first try, or empty
	// From is a step: saved results with lower history numbers are kept. Empty: every step runs again.
	From    string
	Payload jsontext.Value // in the place of the original's; nil: the same, byte for byte
	// KeepKeys: the steps' idempotency keys are the original's (S8). Nil: where it starts from a step.
	KeepKeys *bool
	// NewEvents: its waits look back to its own creation, not to the original's (K5).
	NewEvents bool
	Request   *RequestKey
}

// Replay starts a new run of the same workflow (promise 7). ErrNotFound, ErrUnknownStep.
func (e *Engine) Replay(ctx context.Context, r ReplayRequest) (Started, error) {
	if err := e.committer.refuses(); err != nil {
		return Started{}, err
	}
	for range applyTries {
		if s, err := e.replayOnce(ctx, r); !errors.Is(err, store.ErrStale) {
			return s, err
		}
	}
	return Started{}, ErrBusy
}

// replayOnce fails with store.ErrStale when the original begins again meanwhile (Z2).
func (e *Engine) replayOnce(ctx context.Context, r ReplayRequest) (Started, error) {
	original, err := e.store.Record(ctx, r.Env, r.RunID)
	if err != nil {
		return Started{}, err
	}
	kept, err := e.kept(ctx, r)
	if err != nil {
		return Started{}, err
	}
	t, err := e.oneWorkflow(r.Env, original.App, original.Workflow)
	if errors.Is(err, ErrUnknownWorkflow) {
		t = target{app: appID{r.Env, original.App}, workflow: wire.Workflow{Name: original.Workflow}}
	} else if err != nil {
		return Started{}, err
	}
	run := workflow.Run{
		ID: or(r.NewID, id.New(id.Run)), Env: r.Env, App: t.app.name, Workflow: t.workflow.Name, ReplayOf: original.ID,
		Event: original.Event, EventID: original.EventID,
	}
	if (r.KeepKeys == nil && r.From != "") || (r.KeepKeys != nil && *r.KeepKeys) {
		run.Root, run.RootRestart = original.Root, original.RootRestart
		if r.From != "" {
			run.RootRestart += original.Restart // it begins in that chapter
		}
	}
	payload, err := e.firstPayload(ctx, original, r.From != "")
	if err != nil {
		return Started{}, err
	}
	b := birth{
		run: e.newRun(run, t.workflow), payload: payload, request: StartRequest{Env: r.Env, Request: r.Request}, waits: cancelWaits(t.workflow),
		replay: &store.Replay{RunID: original.ID, Restart: original.Restart, Entries: int64(len(kept)), Events: !r.NewEvents},
	}
	if slices.ContainsFunc(kept, func(e store.Entry) bool { return e.Kind == workflow.KindUndo }) {
		b.run.Closers |= workflow.CloserUndo
	}
	if r.Payload != nil {
		b.payload = r.Payload
	}
	b.hash = hashOf(b.payload)
	if b.replay.Used, err = e.usedBy(ctx, r.Env, kept); err != nil {
		return Started{}, err
	}
	if b.replay.Callbacks, err = e.madeBy(ctx, kept); err != nil {
		return Started{}, err
	}
	return e.start(ctx, b)
}

// firstPayload is what a run was given: a replay from a step begins in its last chapter, a whole one in its first (Z2).
func (e *Engine) firstPayload(ctx context.Context, original store.RunRecord, fromStep bool) (jsontext.Value, error) {
	if original.Restart == 0 || fromStep {
		return original.Payload, nil
	}
	chapters, err := e.store.Chapters(ctx, original.ID)
	if err != nil || len(chapters) == 0 || chapters[0].Restart != 0 {
		return original.Payload, err
	}
	return chapters[0].Payload, nil
}

// ReplayPlan says what a replay would do: which saved steps it keeps, and which would act, or wait, again (K5).
type ReplayPlan struct {
	Kept []store.Entry
	Acts []store.Entry
}

// PlanReplay says what a replay from a step, or a whole one, would do. ErrNotFound, ErrUnknownStep.
func (e *Engine) PlanReplay(ctx context.Context, env, runID, from string) (ReplayPlan, error) {
	if _, err := e.store.Record(ctx, env, runID); err != nil {
		return ReplayPlan{}, err
	}
	r := ReplayRequest{Env: env, RunID: runID, From: from}
	kept, err := e.kept(ctx, r)
	if err != nil {
		return ReplayPlan{}, err
	}
	all, err := e.codeEntries(ctx, env, runID)
	return ReplayPlan{Kept: kept, Acts: all[min(len(kept), len(all)):]}, err
}

// codeEntries are a run's entries without those of its closing: a replay does not close before it has ended. Whether it closes is read
// after them, so that none of a closing that begins meanwhile is among them.
func (e *Engine) codeEntries(ctx context.Context, env, runID string) ([]store.Entry, error) {
	all, err := e.entries(ctx, runID)
	if err != nil {
		return nil, err
	}
	record, err := e.store.Record(ctx, env, runID)
	if err != nil {
		return nil, err
	}
	if record.Closing() {
		all = all[:min(record.Ending.Entries, int64(len(all)))]
	}
	return all, nil
}

// kept are the entries that a replay takes over: those before its step's first.
func (e *Engine) kept(ctx context.Context, r ReplayRequest) ([]store.Entry, error) {
	if r.From == "" {
		return nil, nil
	}
	attempts, err := e.store.Attempts(ctx, r.RunID) // before the entries: they go when their step is saved
	if err != nil {
		return nil, err
	}
	all, err := e.codeEntries(ctx, r.Env, r.RunID)
	if err != nil {
		return nil, err
	}
	for i, entry := range all {
		if entry.Name == r.From {
			return all[:i], nil
		}
	}
	for _, a := range attempts {
		if a.Name == r.From {
			return all, nil // it was never saved: all that is was before it
		}
	}
	return nil, fmt.Errorf("%w: run %s has no step %q; GET /v1/runs/%s/steps lists those that it has", ErrUnknownStep, r.RunID, r.From, r.RunID)
}

func (e *Engine) entries(ctx context.Context, runID string) ([]store.Entry, error) {
	var all []store.Entry
	for {
		page, err := e.store.Entries(ctx, store.EntryQuery{RunID: runID, After: int64(len(all)), EntriesMax: wire.PageEntriesMax, BytesMax: wire.PageBytesMax})
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
	}
}

// usedBy are the positions of the events that entries have used: no other wait of the run may have them (W7).
func (e *Engine) usedBy(ctx context.Context, env string, entries []store.Entry) ([]int64, error) {
	var used []int64
	for _, entry := range entries {
		var ev wire.Event
		if entry.Kind != workflow.KindEvent || json.Unmarshal(entry.Output, &ev) != nil || ev.ID == "" {
			continue
		}
		stored, err := e.store.Event(ctx, env, ev.Event, ev.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue // it is gone by retention, and nobody finds it again
		}
		if err != nil {
			return nil, err
		}
		used = append(used, stored.Position)
	}
	return used, nil
}

// madeBy are the callbacks that entries have made. Like a claim those of a run that has ended pass to the first replay that keeps them (K5):
// it would wait for what nobody could post to any more, or for what was posted already.
func (e *Engine) madeBy(ctx context.Context, entries []store.Entry) (made []store.PassedCallback, err error) {
	for _, entry := range entries {
		var output callbackOutput
		if entry.Kind != workflow.KindCallback || json.Unmarshal(entry.Output, &output) != nil || output.Token == "" {
			continue
		}
		callback, err := e.store.Callback(ctx, store.CallbackQuery{TokenHash: tokenHash(output.Token)})
		if errors.Is(err, store.ErrNotFound) {
			continue // it went with its run
		}
		if err != nil {
			return nil, err
		}
		made = append(made, store.PassedCallback{TokenHash: callback.TokenHash, Owner: callback.RunID})
	}
	return made, nil
}
