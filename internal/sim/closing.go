package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// closed is what the witness keeps of a run's closing.
type closed struct {
	began      time.Time // zero: it has not
	failure    string    // that it began with
	forced     bool      // a client has asked for its final status at once
	unfinished bool      // the server's log says that it was given up
}

// handles is told that a handler begins: after all that is to be undone, and only for its ending (Z1).
func (t *witness) handles(p *process, in payload, run, prefix string) *playing {
	t.mu.Lock()
	defer t.mu.Unlock()
	pl := t.newPlaying(p, in.Call, run)
	pl.prefix = prefix
	r, c := t.runs[run], t.calls[in.Call]
	switch {
	case c == nil || c.closing == nil:
		t.broken("Z1", "run %s: a handler is called in call %s, which is of no closing", run, in.Call)
		return pl
	case prefix != prefixOf(c.closing):
		t.broken("Z1", "run %s closes as %s, and the handler of %q is called in call %s", run, c.closing.Reason, prefix, in.Call)
	}
	if left := r.undone(c.closing, 0); len(left) > 0 {
		t.broken("Z1", "run %s: its handler is called in call %s before these are undone: %v", run, in.Call, left)
	}
	c.playings++
	r.playing = pl
	if c.handlers++; r.handlerCalls > 0 {
		t.world.report.reached(handlerAgain)
	}
	r.handlerCalls++
	t.checkChapter(r, c, in)
	t.world.trace.add(p.name, "handles "+run, in.Call)
	return pl
}

// handled is told that a handler has returned.
func (p *playing) handled() {
	p.witness.mu.Lock()
	defer p.witness.mu.Unlock()
	if c := p.witness.calls[p.call]; c != nil {
		c.handled = true
	}
}

// undoes is told that the body of an undo begins: alone, in a closing, and after those that were noted later (Z1).
func (p *playing) undoes(id stepID) {
	t := p.witness
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[p.run]
	e := r.entryIn(id.restart, id.StepID)
	switch {
	case p.closing == nil:
		t.broken("Z1", "%s is undone in call %s, which is of no closing", id, p.call)
		return
	case e == nil || e.saved.Entry > p.closing.Entries:
		t.broken("Z1", "%s is undone in call %s, and was not noted before the closing began", id, p.call)
		return
	}
	// What this playing has not heard of is done by none: only one playing may save.
	if left := r.undone(p.closing, e.saved.Entry); len(left) > 0 && t.current(p.call) {
		t.broken("Z1", "%s is undone in call %s before these, which were noted later: %v", id, p.call, left)
	}
	if p.undoing++; p.undoing > 1 {
		t.broken("Z1", "%s is undone in call %s beside another", id, p.call)
	}
}

// undone is told that the body of an undo ends.
func (p *playing) undone() {
	p.witness.mu.Lock()
	defer p.witness.mu.Unlock()
	p.undoing--
}

// current tells whether a call is its run's.
func (t *witness) current(call string) bool {
	c := t.calls[call]
	return c != nil && callOf(&t.runs[c.run].Run) == call
}

// prefixOf are the first letters of the names of a closing's handler's steps.
func prefixOf(e *workflow.Ending) string {
	if e.Reason == workflow.EndingCancelled {
		return onCancelPrefix
	}
	return onFailurePrefix
}

// undone lists what is to be undone in a closing, was noted after an entry, and is not done.
func (r *record) undone(closing *workflow.Ending, after int64) (left []workflow.StepID) {
	for _, e := range r.entries[:min(int(closing.Entries), len(r.entries))] {
		s := e.saved
		if s.Kind == workflow.KindUndo && s.Status == workflow.StepCompleted && s.Entry > after && r.entry(bodyOf(s.StepID)) == nil {
			left = append(left, s.StepID)
		}
	}
	return left
}

// bodyOf is the step that an undo's body is.
func bodyOf(undo workflow.StepID) workflow.StepID {
	return workflow.StepID{Name: undo.Name, Number: undo.Number + 1}
}

// hasHandler tells whether a run's workflow has a handler for an ending.
func (t *witness) hasHandler(r *record, e *workflow.Ending) bool {
	f := t.workflows[r.Workflow]
	if e.Reason == workflow.EndingCancelled {
		return f.onCancel != nil
	}
	return f.onFailure != nil
}

// checkInClosing: what is saved, started or registered in a closing is an undo's or its handler's (Z1). r is as it was before.
func (t *witness) checkInClosing(r *record, what string, id workflow.StepID) {
	if !r.Closing() || t.isUndo(r, id) || strings.HasPrefix(id.Name, prefixOf(r.Ending)) && t.hasHandler(r, r.Ending) {
		return
	}
	t.broken("Z1", "%s of the function %s in the closing of its run, which is %s", r.step(id), what, r.Ending.Reason)
}

// isUndo tells whether a step is the body of an undo that was noted before the closing.
func (t *witness) isUndo(r *record, id workflow.StepID) bool {
	e := r.entry(workflow.StepID{Name: id.Name, Number: id.Number - 1})
	return e != nil && e.saved.Kind == workflow.KindUndo && e.saved.Entry <= r.Ending.Entries
}

// checkUndone: the end of an undo's body comes after those of the undos that were noted later, and the handler's after all (Z1).
func (t *witness) checkUndone(r *record, e store.Entry) {
	if !r.Closing() || e.Entry <= r.Ending.Entries {
		return
	}
	after := int64(0)
	if t.isUndo(r, e.StepID) {
		undo := r.entry(workflow.StepID{Name: e.Name, Number: e.Number - 1})
		after = undo.saved.Entry
		t.reachUndone(r, e)
	} else {
		t.world.report.reached(handlerSaved)
	}
	if left := r.undone(r.Ending, after); len(left) > 0 {
		t.broken("Z1", "%s has its entry before these, which were noted later, are undone: %v", r.step(e.StepID), left)
	}
}

func (t *witness) reachUndone(r *record, e store.Entry) {
	report := t.world.report
	var failure wire.Error
	if e.Status == workflow.StepFailed {
		wire.Decode(e.Error, &failure) //nolint:errcheck // then it has no name
		report.reached(undoFailed)
	}
	if failure.Name == "UndoMissingError" {
		report.reached(undoMissing)
		f := t.workflows[r.Workflow]
		if f != nil && !f.straysInClosing && len(r.versions) > 0 && r.sameCode(r.versions[0]) && r.kept == 0 {
			t.broken("Z1", "%s is missing, and the code has not changed", r.step(e.StepID))
		}
	}
	switch r.Ending.Reason {
	case workflow.EndingTimedOut:
		report.reached(undoneAfterTimeout)
	case workflow.EndingCancelled:
		report.reached(undoneAfterCancel)
	}
	if r.kept > 0 {
		report.reached(undoneOfReplay)
	}
}

// closesNow takes in a change of a run that begins its closing, or ends it.
func (t *witness) closesNow(r *record, op *store.UpdateRun) {
	if op.Run.Closing() && !r.Closing() {
		r.began, r.failure = time.Now(), string(op.Error)
		if op.Run.Ending.Entries != int64(len(r.entries)) {
			t.broken("Z1", "run %s closes after entry %d, and has %d", r.ID, op.Run.Ending.Entries, len(r.entries))
		}
		if !op.CloseWaits {
			t.broken("Z1", "run %s closes, and leaves its waits open", r.ID)
		}
		t.standsAfter(r)
	}
	if op.Run.Closing() && r.Closing() && (*op.Run.Ending != *r.Ending || !op.Run.TimeoutAt.IsZero()) {
		t.broken("Z1", "run %s closes as %+v until %v, and now as %+v", r.ID, *r.Ending, op.Run.TimeoutAt, *op.Run.Ending)
	}
}

// standsAfter has what the store has open of a run compared with what should be, after the change.
func (t *witness) standsAfter(r *record) {
	if !slices.Contains(t.stands, r.ID) {
		t.stands = append(t.stands, r.ID)
	}
}

// checkClosed: a run has its final status after all that its ending calls for, and that status is its ending's (Z1).
func (t *witness) checkClosed(r *record, before, run *workflow.Run) {
	if before.Status.Final() || !run.Status.Final() {
		return
	}
	e := run.Ending
	if run.Status == workflow.Completed || run.Status == workflow.Skipped {
		if e != nil {
			t.broken("Z1", "run %s was ending as %s, and is %s", run.ID, e.Reason, run.Status)
		}
		return
	}
	want := workflow.Failed
	if e != nil && e.Reason == workflow.EndingCancelled {
		want = workflow.Cancelled
	}
	if e == nil || run.Status != want {
		t.broken("Z1", "run %s is %s, and its ending %+v", run.ID, run.Status, e)
		return
	}
	closing := workflow.Ending{Reason: e.Reason, Entries: int64(len(r.entries))}
	if e.Closing {
		closing = *e
	}
	left := r.undone(&closing, 0)
	needs, c := t.hasHandler(r, e), t.calls[callOf(before)]
	done := len(left) == 0 && (!needs || c != nil && c.handled)
	switch {
	case done:
		if e.Closing {
			t.world.report.reached(closingDone)
		}
	case r.forced:
		if before.Closing() {
			t.world.report.reached(closingForced)
		}
	case r.unfinished:
		t.world.report.reached(closingGivenUp)
	default:
		t.broken("Z1", "run %s is %s, with these left to be undone: %v, and a handler: %t", run.ID, run.Status, left, needs)
	}
}

// finishClosed: a run that has closed keeps the error that its closing began with (Z1).
func (t *witness) finishClosed(r *record) {
	got, err := t.model.Record(context.Background(), r.Env, r.ID)
	if err != nil || r.began.IsZero() {
		return
	}
	if string(got.Error) != r.failure || (r.Status == workflow.Cancelled) != (r.failure == "") {
		t.broken("Z1", "run %s is %s with %s, and closed with %s", r.ID, r.Status, got.Error, r.failure)
	}
	if got.Output != nil {
		t.broken("Z1", "run %s is %s and has the output %s", r.ID, r.Status, got.Output)
	}
}
