package postgres

import (
	"fmt"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// start records that a body is about to run, unless its step has an entry or gets one.
func (v *view) start(x *run, s store.Start, callID string) store.StartResult {
	k := stepKey{x.id, s.StepID}
	if standing := v.steps[k]; standing != nil {
		return store.StartResult{Entry: standing.entry}
	}
	res, late := store.StartResult{}, false
	for _, a := range v.attemptsOf[x.id] {
		if a.deleted || a.StepID != s.StepID {
			continue
		}
		late = late || (a.CallID == "" && a.Attempt.Attempt >= s.Attempt)
		if a.CallID == callID && a.Attempt.Attempt == s.Attempt {
			res.Again = res.Again || a.Again // the same start once more
			continue
		}
		res.Again = true
		if a.CallID != "" && a.EndedAt.After(res.CutAt) {
			res.CutAt = a.EndedAt
		}
	}
	if s.Interrupted != nil && res.Again {
		return store.StartResult{Entry: v.append(x, *s.Interrupted, 0, 0).Entry}
	}
	if !late {
		v.putAttempt(k, store.Attempt{StepID: s.StepID, Attempt: s.Attempt, CallID: callID, StartedAt: s.StartedAt, Again: res.Again})
	}
	return res
}

// putRetry records a throw, unless the step is saved or this very throw recorded, and says when the step is due again because of it.
// Of a step only its last throw is due.
func (v *view) putRetry(x *run, a store.Attempt) time.Time {
	k := stepKey{x.id, a.StepID}
	if v.steps[k] != nil {
		return time.Time{}
	}
	// Instants are compared as they are stored.
	if old := v.attempts[attemptKey{k, a.Attempt}]; old != nil && !old.deleted && old.CallID == "" && !a.EndedAt.IsZero() &&
		millis(old.StartedAt) == millis(a.StartedAt) && millis(old.EndedAt) == millis(a.EndedAt) {
		return old.RetryAt
	}
	v.settleRetries(k)
	v.putAttempt(k, a)
	return a.RetryAt
}

// putAttempt replaces what is recorded of that attempt.
func (v *view) putAttempt(k stepKey, a store.Attempt) {
	id := attemptKey{k, a.Attempt}
	if v.attempts[id] == nil {
		v.addAttempt(id, &attempt{})
	}
	found := v.attempts[id]
	found.Attempt, found.changed, found.deleted = a, true, false
}

// settleAttempts ends what is recorded of a step's attempts when the step is saved.
func (v *view) settleAttempts(k stepKey) {
	for _, a := range v.attemptsOf[k.run] {
		if a.StepID == k.StepID && a.EndedAt.IsZero() {
			a.deleted = true
		}
	}
	v.settleRetries(k)
}

func (v *view) settleRetries(k stepKey) {
	for _, a := range v.attemptsOf[k.run] {
		if a.StepID == k.StepID {
			a.notDue()
		}
	}
}

func (a *attempt) notDue() {
	if !a.RetryAt.IsZero() {
		a.RetryAt, a.changed = time.Time{}, true
	}
}

func (v *view) cutAttempts(x *run, op store.UpdateRun) {
	at := op.Run.NextAt
	if op.Run.Status.Final() {
		at = op.Run.EndedAt
	}
	for _, a := range v.attemptsOf[x.id] {
		if !a.deleted && a.CallID == op.CutCall && a.EndedAt.IsZero() {
			a.EndedAt, a.Error, a.changed = at, store.CutOff, true
		}
	}
}

// openWait opens a wait, unless its step has an entry or an open wait.
func (v *view) openWait(x *run, w store.OpenWait) bool {
	k := stepKey{x.id, w.StepID}
	if v.steps[k] != nil {
		return false
	}
	for _, other := range v.openWaits(k) {
		if !other.Orphan {
			return false
		}
	}
	opened := store.Wait{RunID: x.id, Env: x.env, Wait: w.Wait, Order: draw(&v.waitIDs), Looked: w.Event == nil}
	if w.Event != nil {
		opened.After = v.lastEvent
		if w.Event.SinceRun {
			opened.After = x.eventsAfter
		}
	}
	v.waits[x.id] = append(v.waits[x.id], &wait{Wait: opened, changed: true})
	if w.Start != nil {
		if v.runs[w.Start.Run.ID] != nil {
			// No check looks at a child's id, which nobody else has drawn: the whole batch must not write over a run.
			v.fail("starting the child of run "+x.id, fmt.Errorf("run %s: %w", w.Start.Run.ID, store.ErrExists))
			return false
		}
		v.insertRun(*w.Start)
	}
	return true
}

// closeWait closes the wait of a step that has its entry; an invoke whose child lives becomes an orphan.
func (v *view) closeWait(k stepKey) {
	for _, w := range v.openWaits(k) {
		if !w.Orphan {
			v.leaveWait(w)
		}
	}
}

func (v *view) leaveWait(w *wait) {
	if !v.lives(w) {
		v.deleteWait(w)
		return
	}
	w.changed = w.changed || !w.Orphan
	w.Orphan = true
}

func (v *view) deleteWait(w *wait) {
	w.deleted = true
	if w.stored {
		v.written.deletedWaits = append(v.written.deletedWaits, w.Order)
	}
}

// leaveWaits closes the waits of a run that goes on without them; invokes whose children live become orphans. A restart keeps what its
// workflow's cancelOn waits for.
func (v *view) leaveWaits(x *run, restarts bool) {
	for _, w := range v.waits[x.id] {
		if !w.deleted && (!restarts || w.Kind != workflow.KindCancel) {
			v.leaveWait(w)
		}
	}
	for _, a := range v.attemptsOf[x.id] {
		a.notDue()
	}
}

// closeWaits closes the waits of an ended run, but for invokes whose children live.
func (v *view) closeWaits(x *run) {
	for _, w := range v.waits[x.id] {
		if !w.deleted && !v.lives(w) {
			v.deleteWait(w)
		}
	}
	for k, u := range v.uses {
		if k.run == x.id {
			u.stored, u.used = false, false
		}
	}
	v.written.deletedUses = append(v.written.deletedUses, x.seq)
}

func (v *view) putUse(k useKey) {
	if v.uses[k] == nil {
		v.uses[k] = &use{}
	}
	v.uses[k].used = true
}

func (v *view) writeWait(op store.Op) {
	switch op := op.(type) {
	case store.UseEvent:
		v.putUse(useKey{op.RunID, op.Position})
	case store.InsertCallback:
		v.callbacks[op.Callback.TokenHash] = &callback{Callback: op.Callback, run: v.runs[op.Callback.RunID].seq, changed: true}
	case store.EndCallback:
		c := v.callback(op.TokenHash)
		c.EndedAt, c.Payload, c.changed = op.Now, op.Payload, true
	case store.ExpireCallback:
		if c := v.callback(op.TokenHash); c != nil {
			c.DueAt, c.changed = store.Expired, true
		}
	case store.PassKey:
		v.putKey(op.Key)
	case store.CloseWait:
		for _, w := range v.waits[op.RunID] {
			if !w.deleted && w.Child == op.Child {
				v.deleteWait(w)
			}
		}
	case store.LookedBack:
		for _, w := range v.openWaits(stepKey{op.RunID, op.StepID}) {
			if w.Order == op.Order {
				w.changed = w.changed || !w.Looked
				w.Looked = true
			}
		}
	default:
		v.writeDue(op)
	}
}

func (v *view) writeDue(op store.Op) {
	switch op := op.(type) {
	case store.PutSchedule:
		id := [2]string{op.Schedule.Env, op.Schedule.ID}
		if v.schedules[id] == nil {
			v.schedules[id] = &schedule{}
		}
		sc := v.schedules[id]
		sc.Schedule, sc.changed, sc.deleted = op.Schedule, true, false
	case store.DropSchedule:
		if sc := v.schedules[[2]string{op.Env, op.ID}]; sc != nil {
			sc.deleted = true
		}
	case store.PutLater:
		id := eventKey{op.Event.Env, op.Event.Name, op.Event.ID}
		if v.later[id] == nil {
			v.later[id] = &later{LaterEvent: op.Event}
		}
	case store.DropLater:
		id := eventKey{op.Env, op.Name, op.ID}
		if v.later[id].stored {
			v.written.deletedLater = append(v.written.deletedLater, id)
		}
		delete(v.later, id)
	default:
		v.writeNode(op)
	}
}
