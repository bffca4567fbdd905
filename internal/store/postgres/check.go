package postgres

import (
	"fmt"

	"github.com/nelkap/nelkap/internal/store"
)

// change does one change whole, or not at all: everything that it expects is checked before its first write.
func (v *view) change(change []store.Op, res *store.Result) {
	if v.err != nil {
		return
	}
	if refusal := v.check(change); refusal != nil {
		res.Err = refusal
		return
	}
	v.write(change, res)
}

func (v *view) check(change []store.Op) (refusal error) {
	for _, op := range change {
		switch op := op.(type) {
		case store.InsertRun:
			refusal = v.checkInsert(op)
		case store.UpdateRun:
			refusal = v.checkUpdate(op)
		case store.SaveSteps:
			refusal = v.checkSave(op)
		case store.InsertEvent:
			if v.events[eventKey{op.Event.Env, op.Event.Name, op.Event.ID}] {
				refusal = fmt.Errorf("event %s: %w", op.Event.ID, store.ErrExists)
			}
		case store.TakeKey:
			if v.alive(op.Key, op.Now) == nil {
				refusal = v.check(op.Then)
			}
		case store.InsertDelivery:
			if v.deliveries[op.Delivery.ID] {
				refusal = fmt.Errorf("delivery %s: %w", op.Delivery.ID, store.ErrExists)
			}
		default:
			refusal = v.checkWait(op)
		}
		if refusal != nil {
			return refusal
		}
	}
	return nil
}

func (v *view) checkInsert(op store.InsertRun) error {
	if v.runs[op.Run.ID] != nil {
		return fmt.Errorf("run %s: %w", op.Run.ID, store.ErrExists)
	}
	switch original := v.original(op.Replay); {
	case op.Replay == nil:
		return nil
	case original == nil:
		return fmt.Errorf("run %s: %w", op.Replay.RunID, store.ErrNotFound)
	case original.restart != op.Replay.Restart:
		return fmt.Errorf("run %s has begun again, and is in chapter %d, not %d: %w", original.id, original.restart, op.Replay.Restart, store.ErrStale)
	}
	for _, passed := range op.Replay.Callbacks {
		if c := v.callback(passed.TokenHash); c == nil || c.RunID != passed.Owner {
			return fmt.Errorf("a callback is not run %s's: %w", passed.Owner, store.ErrStale)
		}
	}
	return nil
}

func (v *view) checkUpdate(op store.UpdateRun) error {
	x := v.runs[op.Run.ID]
	if x == nil {
		return fmt.Errorf("run %s: %w", op.Run.ID, store.ErrNotFound)
	}
	if x.version != op.Run.Version-1 {
		return fmt.Errorf("run %s is at version %d, not %d: %w", x.id, x.version, op.Run.Version-1, store.ErrStale)
	}
	if n, begins := op.ExpectsEntries(); begins && n != x.history.Entries {
		return fmt.Errorf("run %s has %d entries, not %d: %w", x.id, x.history.Entries, n, store.ErrStale)
	}
	return nil
}

func (v *view) checkSave(op store.SaveSteps) error {
	x := v.runs[op.RunID]
	if x == nil {
		return fmt.Errorf("run %s: %w", op.RunID, store.ErrNotFound)
	}
	if x.callID == "" || x.callID != op.CallID || (x.nonce != "" && x.nonce != op.Nonce) {
		return fmt.Errorf("run %s: call %s is not current: %w", x.id, op.CallID, store.ErrStale)
	}
	return nil
}

// checkWait checks the ops of waits, callbacks, claims, schedules, apps and later events.
func (v *view) checkWait(op store.Op) error {
	switch op := op.(type) {
	case store.UseEvent:
		if v.runs[op.RunID] == nil {
			return fmt.Errorf("run %s: %w", op.RunID, store.ErrNotFound)
		}
		if v.isUsed(useKey{op.RunID, op.Position}) {
			return fmt.Errorf("run %s has used event %d: %w", op.RunID, op.Position, store.ErrStale)
		}
		return v.checkOwner(op.Cursor, op.Owner)
	case store.InsertCallback:
		c := op.Callback
		if v.runs[c.RunID] == nil {
			return fmt.Errorf("run %s: %w", c.RunID, store.ErrNotFound)
		}
		if v.callback(c.TokenHash) != nil || v.callbackOf(stepKey{c.RunID, c.StepID}) != nil {
			return fmt.Errorf("callback of run %s: %w", c.RunID, store.ErrExists)
		}
	case store.EndCallback:
		c := v.callback(op.TokenHash)
		if c == nil {
			return fmt.Errorf("callback: %w", store.ErrNotFound)
		}
		if !c.EndedAt.IsZero() || (!c.DueAt.IsZero() && !op.Now.Before(c.DueAt)) {
			return fmt.Errorf("callback of run %s is over: %w", c.RunID, store.ErrStale)
		}
	case store.ExpireCallback:
		if c := v.callback(op.TokenHash); c != nil && !c.EndedAt.IsZero() {
			return fmt.Errorf("callback of run %s has a payload: %w", c.RunID, store.ErrStale)
		}
	case store.PassKey:
		if k := v.keys[idOf(op.Key)]; k == nil || k.gone || k.Owner != op.From {
			return fmt.Errorf("key %s is not run %s's: %w", op.Key.Key, op.From, store.ErrStale)
		}
	case store.PutSchedule:
		standing := store.Schedule{}
		if sc := v.schedules[[2]string{op.Schedule.Env, op.Schedule.ID}]; sc != nil && !sc.deleted {
			standing = sc.Schedule
		}
		return op.Check(standing)
	case store.PutApp:
		version := int64(0)
		if a := v.apps[[2]string{op.App.Env, op.App.Name}]; a != nil {
			version = a.Version
		}
		if version != op.App.Version-1 {
			return fmt.Errorf("app %s is at version %d, not %d: %w", op.App.Name, version, op.App.Version-1, store.ErrStale)
		}
	case store.DropLater:
		if v.later[eventKey{op.Env, op.Name, op.ID}] == nil {
			return fmt.Errorf("event %s is gone: %w", op.ID, store.ErrStale)
		}
	case store.LookedBack:
		return v.checkOwner(op.Cursor, op.Owner)
	case store.Advance:
		return v.checkOwner(op.Cursor, op.Owner)
	}
	return nil
}
