package postgres

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// write does what a change says. Everything that it expects has been checked.
func (v *view) write(change []store.Op, res *store.Result) {
	for _, op := range change {
		switch op := op.(type) {
		case store.InsertRun:
			v.insertRun(op)
		case store.UpdateRun:
			v.update(op, res)
		case store.SaveSteps:
			v.save(op, res)
		case store.InsertEvent:
			v.lastEvent++
			e := op.Event
			e.Position = v.lastEvent
			v.events[eventKey{e.Env, e.Name, e.ID}] = true
			v.written.events = append(v.written.events, e)
		case store.TakeKey:
			v.take(op, res)
		case store.PutApp:
			id := [2]string{op.App.Env, op.App.Name}
			v.apps[id] = &app{App: op.App, stored: v.apps[id] != nil && v.apps[id].stored, changed: true}
		case store.DropKeys:
			v.flush()
			p := (&params{}).time(op.Now).int(int64(op.Limit))
			v.out.append(take{sql: sqlDeleteExpiredKeys, p: p, done: func(a answer) { res.Dropped += int(a.RowsAffected()) }})
		case store.InsertDelivery:
			v.deliveries[op.Delivery.ID] = true
			v.written.deliveries = append(v.written.deliveries, op.Delivery)
		case store.DropDeliveries:
			v.flush()
			p := (&params{}).bool(op.Rejected).time(op.Before).int(int64(op.CountMax)).int(op.BytesMax).int(int64(op.Limit))
			v.out.append(take{sql: sqlDropDeliveries, p: p, done: func(a answer) { res.Dropped += int(a.RowsAffected()) }})
		case store.DropEvents:
			v.flush()
			p := (&params{}).time(op.Before).int(int64(op.Limit)).int(int64(op.BytesMax))
			v.out.append(take{sql: sqlDropEvents, p: p, done: func(a answer) { res.Dropped += int(a.RowsAffected()) }})
		case store.DropRuns:
			v.flush()
			p := (&params{}).time(op.Before).int(int64(op.Limit)).int(int64(op.RowsMax)).int(int64(op.BytesMax))
			v.out.append(take{sql: sqlDropRuns, p: p, done: func(a answer) { res.Dropped += int(a.RowsAffected()) }})
		case store.AddLogs:
			v.addLogs(op)
		default:
			v.writeWait(op)
		}
	}
}

func (v *view) insertRun(op store.InsertRun) {
	x := &run{id: op.Run.ID, seq: draw(&v.seqs), env: op.Run.Env, eventsAfter: v.lastEvent}
	x.follow(&op.Run)
	x.values = values{payload: op.Payload}
	v.runs[x.id] = x
	original := v.original(op.Replay)
	if original != nil {
		if op.Replay.Events {
			x.eventsAfter = original.eventsAfter
		}
		for _, position := range op.Replay.Used {
			v.putUse(useKey{x.id, position})
		}
		for _, passed := range op.Replay.Callbacks {
			if owner := v.runs[passed.Owner]; owner != nil && owner.ended {
				c := v.callback(passed.TokenHash)
				c.RunID, c.run, c.changed = x.id, x.seq, true
			}
		}
		if op.Replay.Entries > 0 {
			v.flush()
			p := (&params{}).int(x.seq).int(int64(x.restart)).int(original.seq).int(int64(original.restart)).int(op.Replay.Entries)
			v.out.add(sqlCopySteps, p, nil)
			x.history.Entries, x.copied = min(op.Replay.Entries, original.history.Entries), true
		}
	}
	for _, w := range op.Waits {
		if original != nil {
			if s := v.steps[stepKey{original.id, w.StepID}]; s != nil && s.entry <= op.Replay.Entries {
				continue // the step has its entry already
			}
		}
		v.openWait(x, store.OpenWait{Wait: w})
	}
}

// original is the run that another replays; nil where it replays none.
func (v *view) original(replay *store.Replay) *run {
	if replay == nil {
		return nil
	}
	return v.runs[replay.RunID]
}

func (v *view) update(op store.UpdateRun, res *store.Result) {
	x := v.runs[op.Run.ID]
	if op.Chapter != nil {
		v.flush()
		v.closeChapter(x, op)
	}
	x.follow(&op.Run)
	if op.Output != nil {
		x.values.output, x.values.changed = op.Output, true
	}
	if op.Error != nil {
		x.values.failure, x.values.changed = op.Error, true
	}
	final := op.Run.Status.Final()
	if final {
		v.freeSends(x)
	}
	if op.CloseWaits {
		v.leaveWaits(x, op.Chapter != nil)
	}
	if op.CutCall != "" {
		v.cutAttempts(x, op)
	}
	for _, step := range op.Append {
		res.Steps = append(res.Steps, v.append(x, step, 0, 0))
		v.closeWait(stepKey{x.id, step.StepID})
	}
	for _, w := range op.Open {
		res.Opened = append(res.Opened, v.openWait(x, w))
	}
	if op.Trees != nil {
		x.values.trees, x.values.changed = op.Trees, true
	}
	if final {
		v.closeWaits(x)
	}
	res.Version, res.History = x.version, x.history
}

// freeSends frees a run's derived keys (K3).
func (v *view) freeSends(x *run) {
	for id, k := range v.keys {
		if id.kind == store.KeySend && id.env == x.env && id.scope == x.id {
			k.gone, k.stored, k.changed = true, false, false
		}
	}
	v.written.deletedScopes = append(v.written.deletedScopes, [2]string{x.env, x.id})
}

func (v *view) save(op store.SaveSteps, res *store.Result) {
	x := v.runs[op.RunID]
	if x.nonce == "" && op.Nonce != "" {
		x.nonce, res.Bound = op.Nonce, true
		x.version++
		x.changed = true
		if x.record != nil {
			record := *x.record
			call := *record.Call
			call.Nonce = op.Nonce
			record.Call, record.Version = &call, x.version
			x.record = &record
		}
	}
	for _, start := range op.Starts {
		res.Starts = append(res.Starts, v.start(x, start, op.CallID))
	}
	for _, retry := range op.Retries {
		a := store.Attempt{StepID: retry.StepID, Attempt: retry.Attempt, Error: retry.Error, StartedAt: retry.StartedAt, EndedAt: retry.EndedAt, RetryAt: retry.RetryAt}
		res.Retries = append(res.Retries, v.putRetry(x, a))
	}
	for _, step := range op.Steps {
		res.Steps = append(res.Steps, v.append(x, step, op.StepsMax, op.BytesMax))
	}
	res.Version, res.History = x.version, x.history
}

// append adds an entry, unless the step has one already or a limit (0: none) refuses it.
func (v *view) append(x *run, step workflow.Step, stepsMax, bytesMax int) store.StepResult {
	k := stepKey{x.id, step.StepID}
	if s := v.steps[k]; s != nil {
		same := s.status == step.Status && bytes.Equal(s.output, step.Output) && (s.output == nil) == (step.Output == nil) && bytes.Equal(s.failure, step.Error)
		return store.StepResult{Entry: s.entry, Stands: !same}
	}
	size := int64(len(step.Output) + len(step.Error))
	if stepsMax > 0 && x.history.Entries >= int64(stepsMax) {
		return store.StepResult{Refused: store.LimitSteps}
	}
	if bytesMax > 0 && x.history.Bytes+size > int64(bytesMax) && step.Status == workflow.StepCompleted {
		return store.StepResult{Refused: store.LimitBytes}
	}
	x.history.Entries++
	x.history.Bytes += size
	x.changed = true
	v.steps[k] = &standing{entry: x.history.Entries, status: step.Status, output: step.Output, failure: step.Error}
	v.written.steps = append(v.written.steps, newStep{x.seq, int64(x.restart), x.history.Entries, step})
	v.settleAttempts(k)
	return store.StepResult{Entry: x.history.Entries}
}

func (v *view) take(op store.TakeKey, res *store.Result) {
	if k := v.alive(op.Key, op.Now); k != nil {
		if k.Hash != op.Key.Hash && !k.Differs {
			k.Differs, k.changed = true, true
		}
		res.Keys = append(res.Keys, store.KeyResult{Key: k.Key})
		return
	}
	v.putKey(op.Key)
	res.Keys = append(res.Keys, store.KeyResult{Taken: true, Key: op.Key})
	v.write(op.Then, res)
}

func (v *view) putKey(k store.Key) {
	id := idOf(k)
	if v.keys[id] == nil {
		v.keys[id] = &key{}
	}
	found := v.keys[id]
	found.Key, found.changed, found.gone = k, true, false
}

// closeChapter makes a run's history a closed chapter. What the batch has written before is on its way already: these statements come
// after it, and find it.
func (v *view) closeChapter(x *run, op store.UpdateRun) {
	closed, next := int64(x.restart), int64(op.Run.Restart)
	gone := next - 1 - store.ChaptersKept
	of := func(more ...int64) *params {
		p := (&params{}).int(x.seq)
		for _, n := range more {
			p.int(n)
		}
		return p
	}
	v.out.add(sqlInsertChapter, of(closed, x.history.Entries, millis(op.Run.NextAt)), nil)
	payload := of()
	v.out.add(sqlUpdatePayload, payload.add(oidBytes, op.Chapter.Payload), nil)
	v.out.add(sqlDropAttempts, of(), nil)
	v.out.add(sqlDropCallbacks, of(), nil)
	v.out.add(sqlDropOldUses, of(), nil)
	for _, statement := range []string{sqlDropChapterSteps, sqlDropChapterLogs, sqlDropChapter, sqlEmptyChapter} {
		v.out.add(statement, of(gone), nil)
	}
	v.freeSends(x)

	v.lineCounts[chapterKey{x.id, x.restart}] = x.lines
	x.history, x.lines = store.History{}, v.lineCounts[chapterKey{x.id, op.Run.Restart}]
	for k := range v.steps {
		if k.run == x.id {
			delete(v.steps, k)
		}
	}
	for k := range v.attempts {
		if k.run == x.id {
			delete(v.attempts, k)
		}
	}
	delete(v.attemptsOf, x.id)
	for token, c := range v.callbacks {
		if c.RunID == x.id {
			delete(v.callbacks, token)
		}
	}
}

func (v *view) addLogs(op store.AddLogs) {
	x := v.runs[op.RunID]
	if x == nil {
		return
	}
	chapter := chapterKey{op.RunID, op.Restart}
	count := v.lineCounts[chapter]
	if op.Restart == x.restart {
		count = x.lines
	}
	for _, l := range op.Lines {
		k := lineKeyOf(op, l)
		if v.lines[k] {
			continue
		}
		if count >= int64(op.LinesMax) {
			break
		}
		count++
		v.lines[k] = true
		l.Restart = op.Restart
		v.written.logs = append(v.written.logs, newLine{x.seq, k.callID, l})
	}
	if op.Restart == x.restart {
		x.changed = x.changed || x.lines != count
		x.lines = count
		return
	}
	v.lineCounts[chapter] = count
}

// fail refuses the whole batch for the data of a change (N3). The first failure is kept.
func (v *view) fail(what string, err error) {
	if v.err == nil {
		v.err = fmt.Errorf("%s: %w", what, errors.Join(store.ErrBadChange, err))
	}
}
