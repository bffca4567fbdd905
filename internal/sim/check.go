package sim

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// storeErrors is the closed list of what a change can fail with.
var storeErrors = []error{store.ErrStale, store.ErrExists, store.ErrNotFound, store.ErrBadChange}

func kindOfError(err error) error {
	for _, kind := range storeErrors {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}

// check compares a run with what it was before a commit. mu is held.
func (t *witness) check(n *node, id string, ops []store.Op) {
	run, history, err := t.model.Load(context.Background(), id)
	if err != nil {
		t.broken("W6", "run %s can't be read after its commit: %v", id, err)
		return
	}
	r := t.runs[id]
	before := r.Run
	r.Run = run
	if run.Status.Final() {
		r.lastCall, r.endedAt = callOf(&before), time.Now()
	}
	t.checkFinal(&before, &run)
	t.checkClosed(r, &before, &run)
	t.checkCall(n, &before, &run)
	t.checkGone(&before, &run)
	t.checkTime(n, &before, &run, history.Entries > int64(len(r.entries)))
	t.checkEnding(r, &before, &run)
	for _, op := range ops {
		if save, ok := op.(store.SaveSteps); ok {
			if before.Call != nil && before.Call.ID == save.CallID && before.Call.Node != n.engineID() {
				t.world.report.reached(guestSaved)
			}
			if c := t.calls[save.CallID]; c != nil && c.begunBy != n {
				t.world.report.reached(adopted)
				if c.closing != nil {
					t.world.report.reached(closingAdopted)
				}
			}
			t.checkSave(&before, &run, save, history.Entries > int64(len(r.entries)))
		}
	}
	known := int64(len(r.entries))
	t.checkHistory(n, r, history.Entries)
	t.checkCuts(r, &before, &run, ops, known)
	r.usedNow = 0
	t.checkOutside(n, r, &before, &run, ops)
	if run.Closing() && !before.Closing() { // its code counts anew
		r.threw = threw{entries: len(r.entries)}
	}
	t.checkLate(r, &before, &run)
	r.touchedAt, r.passedAt = time.Now(), time.Time{}
	if run.Status.Final() {
		t.closes(r)
	}
	t.checkNext(r)
	t.reach(&before, &run, ops)
}

// checkFinal: a final status stays, and versions only grow (W3, N1).
func (t *witness) checkFinal(before, run *workflow.Run) {
	if before.Status.Final() {
		t.broken("W3", "run %s had ended as %s, and a commit made it %s at version %d", run.ID, before.Status, run.Status, run.Version)
	}
	if run.Version < before.Version {
		t.broken("W3", "run %s went back from version %d to %d", run.ID, before.Version, run.Version)
	}
	if run.CreatedAt != before.CreatedAt || run.Root != before.Root || run.Key != before.Key || run.Workflow != before.Workflow || run.EventID != before.EventID {
		t.broken("W3", "run %s is another run than before: %+v, was %+v", run.ID, *run, *before)
	}
}

// checkCall: one current call, the newest that has begun; the epoch grows with each (W2, C3).
func (t *witness) checkCall(n *node, before, run *workflow.Run) {
	if run.Epoch < before.Epoch || run.Epoch > before.Epoch+1 {
		t.broken("W2", "run %s went from epoch %d to %d", run.ID, before.Epoch, run.Epoch)
	}
	was, is := callOf(before), callOf(run)
	if is != "" && is == was {
		if before.Status == workflow.Queued && run.Status == workflow.Running {
			t.calls[is].backAt = time.Now()
		}
		t.reachHolder(n, before, run)
	}
	if is == "" || is == was {
		return
	}
	if c := t.calls[is]; c != nil {
		t.checkVoid(before, run, was, is)
		return
	}
	if run.Epoch != before.Epoch+1 || before.Status != workflow.Queued {
		t.broken("W2", "run %s: call %s began at epoch %d, while it was %s at epoch %d", run.ID, is, run.Epoch, before.Status, before.Epoch)
	}
	if due := stored(before.NextAt); due.After(n.latest()) {
		t.broken("W4", "run %s: call %s began %v before the run was due", run.ID, is, due.Sub(n.latest()))
	}
	r := t.runs[run.ID]
	// The closing of a run that was to begin later does not wait for that.
	if r.begunAt.IsZero() && r.startAt.After(n.latest()) && !run.Closing() {
		t.broken("W4", "run %s began %v before it was to start", run.ID, r.startAt.Sub(n.latest()))
	}
	t.checkPaused(r, is)
	t.checkTurn(r, before)
	r.begunAt = time.Now()
	t.calls[is] = &callRecord{run: run.ID, restart: run.Restart, begunIn: t.commits, begunBy: n, cuts: run.Cuts}
	if run.Closing() {
		t.calls[is].closing = run.Ending
	}
	if before.Cuts > 0 {
		t.world.report.reached(pickedUp)
	}
}

// reachHolder notes what becomes of calls whose holders are lost.
func (t *witness) reachHolder(n *node, before, run *workflow.Run) {
	switch {
	case before.Status == workflow.Running && run.Call.Node != before.Call.Node:
		t.world.report.reached(inherited)
	case run.Cuts > before.Cuts && before.Call.Node != n.engineID():
		t.world.report.reached(lostCallCut)
	}
}

// checkVoid: an older call comes back only in the place of the newer one that it was kept for.
func (t *witness) checkVoid(before, run *workflow.Run, was, is string) {
	if before.Prior == nil || before.Prior.ID != is {
		t.broken("W2", "run %s: call %s is current again after call %s", run.ID, is, was)
	}
	t.calls[is].restored, t.calls[is].backAt = time.Now(), time.Now()
}

// checkGone: a call that is taken from a run without being cut has been ended by its app, or was void: then its code never ran (C3).
func (t *witness) checkGone(before, run *workflow.Run) {
	was := callOf(before)
	c := t.calls[was]
	closes := run.Closing() && !before.Closing()
	if c == nil || callOf(run) == was || run.Status.Final() || run.Epoch > before.Epoch || run.Cuts != before.Cuts || c.ended || closes {
		return
	}
	t.world.report.reached(beginVoid)
	if c.playings == 1 && c.doubled && c.refused {
		t.world.report.reached(doubledVoid) // the process that answered first has not played it, and that is all it knows
	} else if c.playings > 0 {
		t.broken("C3", "run %s: the begin of call %s was taken back, and its code had run", run.ID, was)
	}
}

// doubles is told that a call is delivered a second time.
func (t *witness) doubles(call string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.calls[call]; c != nil {
		c.doubled = true
	}
}

// refuses is told that a process has answered a call without playing it.
func (t *witness) refuses(call string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.calls[call]; c != nil {
		c.refused = true
	}
}

// checkTime: nothing comes early (W4).
func (t *witness) checkTime(n *node, before, run *workflow.Run, grew bool) {
	now, due := n.latest(), stored(before.NextAt)
	// A call that is current again while its run waits may end, and the run goes on (C3).
	if before.Status == workflow.Waiting && run.Status == workflow.Queued && due.After(now) && before.Call == nil && run.Call == nil && !grew && (run.Ending == nil) == (before.Ending == nil) {
		t.broken("W4", "run %s woke %v early", run.ID, due.Sub(now))
	}
	timesOut := run.Ending != nil && run.Ending.Reason == workflow.EndingTimedOut && before.Ending == nil
	if timesOut && before.TimeoutAt.After(now) {
		t.broken("W4", "run %s timed out %v early", run.ID, before.TimeoutAt.Sub(now))
	}
}

// stored is an instant as every store keeps it: a pause with jitter is no whole number of milliseconds, and the model keeps all of it.
func stored(at time.Time) time.Time { return at.Truncate(time.Millisecond) }

// checkNext: a run that has not ended has a next thing that will happen to it (W5).
func (t *witness) checkNext(r *record) {
	run := &r.Run
	if !run.Status.Final() && (run.Ending == nil || run.Closing()) {
		t.checkDue(r)
	}
	switch {
	case run.Status.Final():
		if run.Call != nil || !run.NextAt.IsZero() || run.EndedAt.IsZero() {
			t.broken("W5", "run %s has ended, and something is still to come: %+v", run.ID, *run)
		}
	case run.NextAt.IsZero() && (run.Status != workflow.Waiting || len(r.open) == 0):
		t.broken("W5", "run %s is %s and nothing will happen to it", run.ID, run.Status)
	case run.Status == workflow.Waiting && run.Reason == "":
		t.broken("W5", "run %s waits for no reason", run.ID)
	case run.Status == workflow.Running && run.Call == nil:
		t.broken("W5", "run %s is running without a call", run.ID)
	}
}

// checkSave: only the current call's one playing saves (W2, C4).
func (t *witness) checkSave(before, run *workflow.Run, save store.SaveSteps, grew bool) {
	current := callOf(before)
	if save.CallID != current && save.CallID != callOf(run) {
		t.broken("W2", "run %s: call %s saved, and %s is current", run.ID, save.CallID, current)
	}
	if before.Call != nil && before.Call.ID == save.CallID && before.Call.Nonce != "" && before.Call.Nonce != save.Nonce {
		t.broken("C4", "run %s: a second playing of call %s saved", run.ID, save.CallID)
	}
	if c := t.calls[save.CallID]; c != nil {
		c.nonce, c.saved = save.Nonce, c.saved || grew || len(save.Steps) > 0
	}
	if grew && before.Ending != nil {
		t.world.report.reached(savedWhileEnding)
	}
}

// checkHistory: entries are numbered without gaps (W9), and one that is there never changes (W1).
func (t *witness) checkHistory(n *node, r *record, entries int64) {
	if entries == int64(len(r.entries)) {
		return
	}
	page, err := t.model.Entries(context.Background(), store.EntryQuery{RunID: r.ID, EntriesMax: 1 << 20, BytesMax: 1 << 30})
	if err != nil || int64(len(page)) != entries {
		t.broken("W9", "run %s has %d entries, and %d can be read: %v", r.ID, entries, len(page), err)
	}
	for i, e := range page {
		if e.Entry != int64(i+1) {
			t.broken("W9", "run %s: entry %d stands at place %d", r.ID, e.Entry, i+1)
		}
		if i >= len(r.entries) {
			if r.entry(e.StepID) != nil {
				t.broken("W1", "run %s: step %s/%d has a second entry, %d", r.ID, e.Name, e.Number, e.Entry)
			}
			r.entries = append(r.entries, entry{e, t.commits})
			t.first(r.step(e.StepID))
			t.checkEntry(n, r, e)
		} else if diff := difference(r.entries[i].saved, e); diff != "" {
			t.broken("W1", "run %s: entry %d changed:\n%s", r.ID, i+1, diff)
		}
	}
	if len(page) < len(r.entries) {
		t.broken("W1", "run %s lost entries: it had %d, and has %d", r.ID, len(r.entries), len(page))
	}
}

// checkEntry checks a new entry by its kind.
func (t *witness) checkEntry(n *node, r *record, e store.Entry) {
	if e.Entry <= r.kept {
		t.checkKept(r, e)
		return
	}
	t.checkUndone(r, e)
	t.checkThrown(r, e)
	t.checkTimedOut(r, e)
	if e.Kind == workflow.KindUndo || t.checkMade(r, e) {
		return
	}
	switch e.Kind {
	case workflow.KindRun:
		if strings.Contains(string(e.Error), `"StepInterruptedError"`) {
			t.world.report.reached(onceInterrupted)
			if s := t.steps[r.Workflow+"/"+e.Name]; t.calm || s == nil || !s.once {
				t.broken("S5", "run %s: %s/%d was interrupted: %s", r.ID, e.Name, e.Number, e.Error)
			}
		}
	case workflow.KindClaim:
		t.checkClaimed(r, e)
	default:
		if e.Kind == workflow.KindInvoke && r.Status == workflow.Running {
			t.world.report.reached(childFoundCall)
		}
		t.checkWait(n, r, e)
	}
}

// reach notes the rare situations that a commit shows.
func (t *witness) reach(before, run *workflow.Run, ops []store.Op) {
	report := t.world.report
	was, is := callOf(before), callOf(run)
	revived := was == is && is != "" && before.Status != workflow.Running && run.Status == workflow.Running
	for _, op := range ops {
		if save, ok := op.(store.SaveSteps); ok && revived && len(save.Steps)+len(save.Retries) > 0 {
			report.reached(lateSave)
		}
	}
	if run.Cuts > before.Cuts && t.calm {
		t.broken("C1", "run %s: call %s was cut off, and nothing had gone wrong", run.ID, was)
	}
	switch {
	case was == is && run.Status == workflow.Running && before.Status == workflow.Running && run.NextAt.After(before.NextAt) && run.Ending == nil:
		report.reached(leaseMoved)
	case run.Status == workflow.Waiting && run.Attempts > before.Attempts:
		report.reached(codeFailed)
	case run.Status == workflow.Waiting && before.Status == workflow.Running && run.Attempts == before.Attempts && !run.NextAt.IsZero():
		report.reached(suspendedForRetry)
	case run.Status == workflow.Skipped && !before.Status.Final():
		report.reached(skippedOnce)
	case run.Status.Final() && run.Ending != nil && run.Ending.Reason == workflow.EndingTimedOut:
		report.reached(timedOut)
	}
}

// difference is how two values differ; empty if they do not. Nearly all are the same, and cmp is slow to find that.
func difference(before, after any) string {
	if reflect.DeepEqual(before, after) {
		return ""
	}
	return cmp.Diff(before, after, cmpopts.EquateEmpty())
}

func callOf(run *workflow.Run) string {
	if run.Call == nil {
		return ""
	}
	return run.Call.ID
}

// unfinished lists the runs that have not ended, and the events that are still to come.
func (t *witness) unfinished() (list []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, r := range t.runs {
		if !r.Status.Final() {
			list = append(list, fmt.Sprintf("%s %s next %s call %q %s", id, r.Status, r.NextAt.Format(time.TimeOnly), callOf(&r.Run), r.Reason))
		}
	}
	for id, e := range t.later {
		list = append(list, fmt.Sprintf("event %s due %s", id.id, e.DueAt.Format(time.TimeOnly)))
	}
	return list
}

// finish checks the whole store at the end: everything that was acknowledged is there as it was.
func (t *witness) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx := context.Background()
	for id, r := range t.runs {
		if r.dropped {
			t.world.report.Runs++
			continue
		}
		for _, s := range []store.Store{t.world.store, t.model} {
			got, err := s.Record(ctx, r.Env, id)
			if err != nil {
				t.broken("W6", "run %s is lost: %v", id, err)
				continue
			}
			if diff := difference(r.Run, got.Run); diff != "" {
				t.broken("W3", "run %s is not as its last commit left it:\n%s", id, diff)
			}
			page, err := s.Entries(ctx, store.EntryQuery{RunID: id, EntriesMax: 1 << 20, BytesMax: 1 << 30})
			if err != nil || len(page) != len(r.entries) {
				t.broken("W1", "run %s has %d entries at the end, and had %d: %v", id, len(page), len(r.entries), err)
				continue
			}
			for i := range page {
				if diff := difference(r.entries[i].saved, page[i]); diff != "" {
					t.broken("W1", "run %s: entry %d changed:\n%s", id, i+1, diff)
				}
			}
			if string(got.Payload) != r.payload {
				t.broken("W3", "run %s: its payload changed from %s to %s", id, r.payload, got.Payload)
			}
			t.finishChapters(r, s)
		}
		t.finishRun(r)
		t.finishClosed(r)
		t.finishLogs(r)
	}
}
