package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// decidedAfter is when a begin that nobody here knows of counts as decided: the time in which its request is sent, and as much for
// a connection that does not come about.
const decidedAfter = 2 * call.SendWithin

// tokenOf makes a call's token: its run's id and a secret, so that a call is found without an index.
func tokenOf(runID, secret string) string { return runID + "." + secret }

func runOf(token string) string {
	runID, _, _ := strings.Cut(token, ".")
	return runID
}

// admit judges a fence. On Accept it gives the call, which is not tracked if this node did not know it.
func (e *Engine) admit(ctx context.Context, f wire.Fence) (*live, workflow.Verdict, error) {
	if l, verdict, known := e.admitLive(f); known {
		return l, verdict, nil
	}
	return e.admitStored(ctx, f)
}

// admitLive judges a fence of a call that this node knows; else the store does.
func (e *Engine) admitLive(f wire.Fence) (l *live, verdict workflow.Verdict, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l = e.live[f.Call]; l == nil || l.stale() {
		return nil, "", false
	}
	return l, workflow.Admit(&l.run, fenceOf(f), l.written), true
}

func fenceOf(f wire.Fence) workflow.Fence {
	return workflow.Fence{CallID: f.Call, Token: f.Token, Nonce: f.Nonce}
}

// admitStored judges a fence by the run as the store has it.
func (e *Engine) admitStored(ctx context.Context, f wire.Fence) (*live, workflow.Verdict, error) {
	run, history, err := e.store.Load(ctx, runOf(f.Token))
	if errors.Is(err, store.ErrNotFound) {
		return nil, workflow.Superseded, nil
	}
	if err != nil {
		return nil, "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.live[f.Call]
	if l != nil && (run.Call == nil || run.Call.ID != l.callID) && run.Version > l.run.Version {
		e.untrack(l) // another node, or a commit of unknown outcome, has ended it: its slot is free (N4)
	}
	verdict := workflow.Admit(&run, fenceOf(f), e.decided(run))
	if verdict != workflow.Accept {
		return nil, verdict, nil
	}
	if l == nil {
		return newLive(run, history), verdict, nil
	}
	if run.Version > l.run.Version { // else it was read before what is known here, and says nothing of who holds the call now
		e.renew(l, run)
	}
	l.run, l.history, l.latest = run, history, run.Version
	return l, verdict, nil
}

// decided tells whether the begin of a run's call is decided: its request is known to be on its way (C3). A running call that is not
// known here has just begun, or has been taken back since run was read. Engine.mu is held.
func (e *Engine) decided(run workflow.Run) bool {
	if run.Status != workflow.Running {
		return true
	}
	if l := e.current(run); l != nil {
		return l.written
	}
	return e.now().Sub(run.Call.BegunAt) > decidedAfter
}

// messageSide is how many saves, names or ends of one request are read and committed at once: enough to share a commit. A request may have a
// hundred thousand, of calls that there are not.
const messageSide = 256

// Save commits what processes save: each save with an outcome of its own (N3).
func (e *Engine) Save(ctx context.Context, saves wire.Saves) wire.SavesAnswer {
	answer := wire.SavesAnswer{Saves: make([]wire.SaveOutcome, len(saves.Saves))}
	attempts := make([]*attempt, len(saves.Saves))
	var line []*pending
	var unknown []int
	for i, save := range saves.Saves {
		if attempts[i] = e.trySave(saves.Process, saves.Manifest, save); attempts[i] != nil {
			line = append(line, attempts[i].pending)
		} else {
			unknown = append(unknown, i)
		}
	}
	var group sync.WaitGroup
	if len(unknown) > 0 {
		group.Go(func() {
			_ = sideBySide(len(unknown), messageSide, func(n int) error { // each says itself what went wrong
				save := saves.Saves[unknown[n]]
				answer.Saves[unknown[n]] = e.save(ctx, save)
				e.heard(saves.Process, save.Fence)
				return nil
			})
		})
	}
	if e.committer.submit(line...) { // at once, so that they share a commit
		e.committer.lead()
	}
	for i, a := range attempts {
		if a != nil {
			answer.Saves[i] = e.finishSave(ctx, saves.Process, saves.Saves[i], a)
		}
	}
	group.Wait()
	answer.Time = wire.At(e.now())
	return answer
}

// attempt is a save on its way to its commit.
type attempt struct {
	live    *live
	items   []itemPlan
	pending *pending
}

// trySave makes the change of a save of a known call without reading anything: the way that nearly every save takes. It gives
// nil where the call must be looked up first.
func (e *Engine) trySave(processID, manifest string, save wire.Save) *attempt {
	if madeHere(save.Items) {
		return nil
	}
	e.mu.Lock()
	l := e.live[save.Call]
	if l == nil || l.stale() || workflow.Admit(&l.run, fenceOf(save.Fence), l.written) != workflow.Accept {
		e.mu.Unlock()
		return nil
	}
	e.hear(l, processID)
	run := l.run
	e.mu.Unlock()
	e.apps.heard(appID{run.Env, run.App}, manifest, e.now())
	op, items, detail := e.planSave(&run, save)
	if detail != "" {
		return nil
	}
	return &attempt{live: l, items: items, pending: newPending(withLogs(store.Change{op}, &run, save.Call, save.Logs))}
}

// finishSave waits for a save's commit; where the run had changed, it starts anew.
func (e *Engine) finishSave(ctx context.Context, processID string, save wire.Save, a *attempt) wire.SaveOutcome {
	res, err := a.pending.wait()
	if err != nil {
		e.mu.Lock()
		a.live.outdated()
		e.mu.Unlock()
		out := e.save(ctx, save)
		e.heard(processID, save.Fence)
		return out
	}
	out := e.saved(ctx, a.live, save, a.items, res)
	e.comeBack(ctx, save)
	return out
}

// comeBack takes back a pick-up that another node had queued before a save was stored, and of which this one had not heard (C5).
func (e *Engine) comeBack(ctx context.Context, save wire.Save) {
	l, verdict, err := e.admit(ctx, save.Fence)
	if err != nil || verdict != workflow.Accept {
		return // the next message of its process is told
	}
	e.mu.Lock()
	taken := l.run.Status != workflow.Running
	e.mu.Unlock()
	if taken {
		e.save(ctx, wire.Save{Fence: save.Fence, Seen: save.Seen})
	}
}

// heard notes a contact by a save of a call that is live now. Of who does not play the call it is none (C4): it would be the call's process
// then, and have it cut by not naming it.
func (e *Engine) heard(processID string, f wire.Fence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.live[f.Call]
	if l == nil {
		return
	}
	if workflow.Admit(&l.run, fenceOf(f), l.written) != workflow.Superseded {
		e.hear(l, processID)
	}
}

// save is a save that reads first: of a call that this node does not know, or that has changed. A call that was taken for cut
// comes back to life (C5).
func (e *Engine) save(ctx context.Context, save wire.Save) wire.SaveOutcome {
	for range applyTries {
		l, verdict, err := e.admit(ctx, save.Fence)
		if err != nil {
			return wire.SaveOutcome{Call: save.Call, Status: wire.Later}
		}
		if verdict != workflow.Accept {
			return wire.SaveOutcome{Call: save.Call, Status: string(verdict)}
		}
		out, err := e.saveOnce(ctx, l, save)
		if errors.Is(err, store.ErrStale) {
			e.mu.Lock()
			l.outdated()
			e.mu.Unlock()
			continue
		}
		if err != nil {
			return e.unsaved(save, err)
		}
		return out
	}
	return wire.SaveOutcome{Call: save.Call, Status: wire.Later}
}

// unsaved answers a save that the store refused: broken data is said to be so, all else is tried again.
func (e *Engine) unsaved(save wire.Save, err error) wire.SaveOutcome {
	switch {
	case errors.Is(err, store.ErrBadChange):
		e.log.Error("a save can't be stored", "call", save.Call, "error", err)
		return wire.SaveOutcome{Call: save.Call, Status: wire.Invalid, Detail: "the store refuses this save: " + err.Error()}
	case errors.Is(err, store.ErrRowLocked):
		e.log.Warn("a save can't be stored for now, and comes again", "call", save.Call, "error", err)
	}
	return wire.SaveOutcome{Call: save.Call, Status: wire.Later}
}

func (e *Engine) saveOnce(ctx context.Context, l *live, save wire.Save) (wire.SaveOutcome, error) {
	if madeHere(save.Items) {
		return e.saveMade(ctx, l, save)
	}
	e.mu.Lock()
	run := l.run
	e.mu.Unlock()
	op, items, detail := e.planSave(&run, save)
	if detail != "" {
		return wire.SaveOutcome{Call: save.Call, Status: wire.Invalid, Detail: detail}, nil
	}
	change := withLogs(store.Change{op}, &run, save.Call, save.Logs)
	revived := run.Status != workflow.Running
	if revived {
		d, err := workflow.Apply(run, workflow.Revive{CallID: save.Call, Node: e.peers.self}, e.now())
		if err != nil {
			// The core says what the run is now: the call can't come back.
			return wire.SaveOutcome{Call: save.Call, Status: wire.Ended}, nil //nolint:nilerr // this is the outcome
		}
		change = append(store.Change{store.UpdateRun{Run: d.Run}}, change...)
		run = d.Run
	}
	res, err := e.committer.commit(change)
	if err != nil {
		return wire.SaveOutcome{}, err
	}
	if revived || !e.isLive(save.Call) {
		l = e.revive(run, res)
	}
	return e.saved(ctx, l, save, items, res), nil
}

func (e *Engine) isLive(callID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live[callID] != nil
}

// revive tracks a call that came back: it has no connection here, and keeps contact through its process.
func (e *Engine) revive(run workflow.Run, res store.Result) *live {
	e.timers.notice(run.TimerAt())
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.live[run.Call.ID]; l != nil {
		if run.Version > l.run.Version {
			e.renew(l, run)
		}
		return l
	}
	l := e.track(run, res.History)
	l.written = true
	if !l.held {
		e.peerHint.wake() // who holds it is told at once that it is heard of here
	}
	e.ask(l, 2*heartbeat(run.Lease)) // its process must poll for it: nothing else would notice its death before the lease ends
	return l
}

// saved turns a committed save into its outcome.
func (e *Engine) saved(ctx context.Context, l *live, save wire.Save, items []itemPlan, res store.Result) wire.SaveOutcome {
	e.mu.Lock()
	l.latest = max(l.latest, res.Version)
	if len(items) > 0 {
		l.moved = time.Now()
	}
	if res.Bound && res.Version == l.run.Version+1 {
		call := *l.run.Call
		call.Nonce = save.Nonce
		l.run.Call, l.run.Version = &call, res.Version
	}
	if res.History.Entries >= l.history.Entries {
		l.history = res.History
	}
	ending, isEnding := l.run.Ending, l.run.Phase() == workflow.PhaseEnding
	e.mu.Unlock()
	out := wire.SaveOutcome{Call: save.Call, Status: wire.Accepted}
	if isEnding {
		out.Ending = &wire.EndingInfo{Reason: ending.Reason}
	}
	seen := min(max(save.Seen, 0), res.History.Entries) // an app may say anything
	covered, last, now := map[int64]bool{}, seen, e.now()
	for _, item := range items {
		o := item.outcome(&res, now)
		out.Items = append(out.Items, o)
		entry := item.entry(res.Steps)
		last = max(last, entry)
		covered[o.Entry] = o.Status == wire.ItemSaved
	}
	last = max(last, res.History.Entries) // also what waits have come to meanwhile (H2)
	missing := false
	for entry := seen + 1; entry <= last; entry++ {
		missing = missing || !covered[entry]
	}
	e.logSaved(l, &save, out.Items)
	if missing {
		entries, err := e.uncovered(ctx, l.runID, seen, last, covered)
		if err != nil {
			// It is stored, and the code may not go on without what came before it (H1): the same save again is answered with all.
			e.log.Warn("a save is to come again: what its code has not seen can't be read", "run", l.runID, "error", err)
			return wire.SaveOutcome{Call: save.Call, Status: wire.Later}
		}
		out.Entries = entries
	}
	return out
}

// uncovered reads the entries after seen, up to last, that a save's own items do not stand for (H1).
func (e *Engine) uncovered(ctx context.Context, runID string, seen, last int64, covered map[int64]bool) ([]wire.Entry, error) {
	var out []wire.Entry
	for seen < last {
		page, err := e.store.Entries(ctx, store.EntryQuery{RunID: runID, After: seen, EntriesMax: wire.PageEntriesMax, BytesMax: wire.PageBytesMax})
		if err == nil && len(page) == 0 {
			err = fmt.Errorf("W9: run %s has no entry after %d, and had %d", runID, seen, last)
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range page {
			if seen = entry.Entry; seen <= last && !covered[seen] {
				out = append(out, entryOf(entry))
			}
		}
	}
	return out, nil
}

func entryOf(e store.Entry) wire.Entry {
	out := wire.Entry{Entry: e.Entry, Kind: e.Kind, Name: e.Name, Number: e.Number, Status: e.Status, Output: e.Output, Error: e.Error}
	if e.Status == workflow.StepFailed {
		out.Attempts = e.Attempts
	}
	return out
}

// Steps gives a page of a call's saved steps. The error is ErrSuperseded or ErrEnded for a call that may not read any more.
func (e *Engine) Steps(ctx context.Context, f wire.Fence, after int64) (wire.StepsPage, error) {
	l, verdict, err := e.admit(ctx, f)
	if err != nil {
		return wire.StepsPage{}, err
	}
	switch verdict {
	case workflow.Accept, workflow.Undecided:
	case workflow.Ended:
		return wire.StepsPage{}, ErrEnded
	default:
		return wire.StepsPage{}, ErrSuperseded
	}
	if l != nil {
		e.mu.Lock()
		l.heard = time.Now()
		e.mu.Unlock()
	}
	entries, next, err := e.page(ctx, runOf(f.Token), after)
	return wire.StepsPage{Time: wire.At(e.now()), Entries: entries, Next: next}, err
}

// page reads one page of a history; next is nil when nothing comes after it.
func (e *Engine) page(ctx context.Context, runID string, after int64) (entries []wire.Entry, next *int64, err error) {
	page, err := e.store.Entries(ctx, store.EntryQuery{RunID: runID, After: after, EntriesMax: wire.PageEntriesMax, BytesMax: wire.PageBytesMax})
	if err != nil {
		return nil, nil, err
	}
	_, history, err := e.store.Load(ctx, runID)
	if err != nil {
		return nil, nil, err
	}
	entries, next = pageOf(page, after, history.Entries)
	return entries, next, nil
}

// pageOf makes a page of entries of a history that has so many; next is nil when nothing comes after it.
func pageOf(page []store.Entry, after, last int64) (entries []wire.Entry, next *int64) {
	entries = []wire.Entry{}
	for _, entry := range page {
		entries = append(entries, entryOf(entry))
		after = entry.Entry
	}
	if after < last && len(page) > 0 {
		next = &after
	}
	return entries, next
}
