package postgres

import (
	"encoding/json/v2"
	"maps"
	"slices"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// flush makes statements of everything that is to be written, each kind in one. What is removed goes first, so that what takes its place
// finds it free. It may be called again: what it has written counts as stored.
func (v *view) flush() {
	v.flushRemoved()
	v.flushRuns()
	v.flushAttempts()
	v.flushWaits()
	v.flushKeys()
	v.flushDue()
	v.flushNodes()
	v.flushAdded()
	v.written = writes{}
}

// put adds a statement that takes rows, if there are any.
func (v *view) put(statement string, rows *rowset) {
	if rows.rows > 0 {
		v.out.add(statement, rows.params(), nil)
	}
}

func (v *view) flushRemoved() {
	w := &v.written
	scopes, waits, uses, later := &rowset{}, &rowset{}, &rowset{}, &rowset{}
	for _, s := range w.deletedScopes {
		t := scopes.row()
		t.text(s[0])
		t.list(string(store.KeySend))
		t.text(s[1])
	}
	for _, id := range w.deletedWaits {
		waits.row().int(id)
	}
	for _, seq := range w.deletedUses {
		uses.row().int(seq)
	}
	for _, k := range w.deletedLater {
		t := later.row()
		t.text(k.env)
		t.text(k.name)
		t.text(k.id)
	}
	v.put(sqlDeleteKeysOfScopes, scopes)
	v.put(sqlDeleteWaitEvents, waits)
	v.put(sqlDeleteWaits, waits)
	v.put(sqlDeleteUses, uses)
	v.put(sqlDropLater, later)
}

func (v *view) flushRuns() {
	inserted, rewritten, heads, newValues, changedValues := &rowset{}, &rowset{}, &rowset{}, &rowset{}, &rowset{}
	children, parents := &rowset{}, &rowset{} // that have ended
	// In order: two nodes that insert the same runs must not wait for each other.
	for _, id := range slices.Sorted(maps.Keys(v.runs)) {
		x := v.runs[id]
		switch {
		case !x.stored:
			t := inserted.row()
			bindIdentity(t, x.record)
			bindState(t, x.record)
			bindHistory(t, x)
			t.int(x.seq)
			t.int(x.eventsAfter)
			t = newValues.row()
			t.int(x.seq)
			t.blob(x.values.payload)
			bindValues(t, &x.values)
		case x.record != nil:
			t := rewritten.row()
			t.text(x.id)
			bindState(t, x.record)
			bindHistory(t, x)
			if x.ended && x.record.Parent != "" {
				children.row().text(x.id)
			}
			if x.ended && x.record.Invokes {
				parents.row().int(x.seq)
			}
		case x.changed:
			t := heads.row()
			t.text(x.id)
			t.int(x.version)
			t.text(x.nonce)
			bindHistory(t, x)
		}
		if x.stored && x.values.changed {
			t := changedValues.row()
			t.int(x.seq)
			bindValues(t, &x.values)
		}
		x.stored, x.record, x.changed, x.values = true, nil, false, values{}
	}
	v.put(sqlInsertRuns, inserted)
	v.put(sqlInsertValues, newValues)
	v.put(sqlUpdateRuns, rewritten)
	v.put(sqlUpdateHeads, heads)
	v.put(sqlUpdateValues, changedValues)
	v.put(sqlMarkParents, children)
	v.put(sqlMarkInvokes, parents)
	v.flushSteps()
	for _, x := range v.runs {
		if x.copied {
			v.out.add(sqlCountSteps, (&params{}).text(x.id).int(x.seq).int(int64(x.restart)), nil)
		}
	}
}

func (v *view) flushSteps() {
	rows := &rowset{}
	for i := range v.written.steps {
		s, t := &v.written.steps[i], rows.row()
		t.int(s.run)
		t.int(s.restart)
		t.int(s.entry)
		t.text(s.Name)
		t.int(int64(s.Number))
		t.text(s.Kind)
		t.list(s.Status)
		t.blob(s.Output)
		t.blob(s.Error)
		t.int(int64(s.Attempts))
		t.time(s.StartedAt)
		t.time(s.EndedAt)
	}
	v.put(sqlInsertSteps, rows)
}

func (v *view) flushAttempts() {
	deleted, put := &rowset{}, &rowset{}
	for k, a := range v.attempts {
		switch {
		case a.deleted && a.stored:
			v.bindAttemptKey(deleted.row(), k)
		case a.changed && !a.deleted:
			t := put.row()
			v.bindAttemptKey(t, k)
			t.text(a.CallID)
			t.blob(a.Error)
			t.time(a.StartedAt)
			t.time(a.EndedAt)
			t.time(a.RetryAt)
			t.bool(a.Again)
		}
		a.stored, a.changed = !a.deleted, false
	}
	v.put(sqlDeleteAttempts, deleted)
	v.put(sqlPutAttempts, put)
}

func (v *view) bindAttemptKey(t *rowset, k attemptKey) {
	t.int(v.runs[k.run].seq)
	t.text(k.Name)
	t.int(int64(k.Number))
	t.int(int64(k.attempt))
}

func (v *view) flushWaits() {
	updated, inserted, names, uses := &rowset{}, &rowset{}, &rowset{}, &rowset{}
	for id, list := range v.waits {
		for _, w := range list {
			if w.deleted || !w.changed {
				continue
			}
			if w.stored {
				t := updated.row()
				t.int(w.Order)
				t.bool(w.Looked)
				t.bool(w.Orphan)
			} else {
				v.bindWait(inserted.row(), v.runs[id].seq, w)
				bindWaitEvents(names, w)
			}
			w.stored, w.changed = true, false
		}
	}
	for k, u := range v.uses {
		if u.used && !u.stored {
			t := uses.row()
			t.int(v.runs[k.run].seq)
			t.int(k.position)
			u.stored = true
		}
	}
	v.put(sqlUpdateWaits, updated) // first, so that an orphan's name is free
	v.put(sqlInsertWaits, inserted)
	v.put(sqlInsertWaitEvents, names)
	v.put(sqlInsertUses, uses)
}

func (v *view) bindWait(t *rowset, seq int64, w *wait) {
	var event []byte
	if w.Event != nil {
		var err error
		if event, err = json.Marshal(w.Event); err != nil {
			v.fail("encoding a wait of run "+w.RunID, err)
		}
	}
	t.int(w.Order)
	t.int(seq)
	t.text(w.RunID)
	t.text(w.Env)
	t.text(w.Name)
	t.int(int64(w.Number))
	t.list(w.Kind)
	t.time(w.DueAt)
	t.text(w.Child)
	t.int(int64(w.Of))
	t.blob(event)
	t.int(w.After)
	t.bool(w.Looked)
	t.bool(w.Orphan)
}

func bindWaitEvents(rows *rowset, w *wait) {
	if w.Event == nil {
		return
	}
	for _, name := range w.Event.Names {
		t := rows.row()
		t.text(w.Env)
		t.text(name)
		t.text(w.Event.Paths)
		t.text(w.Event.Key)
		t.int(w.Order)
	}
}

func (v *view) flushKeys() {
	inserted, updated := &rowset{}, &rowset{}
	for _, id := range slices.SortedFunc(maps.Keys(v.keys), keyID.compare) { // as with runs
		k := v.keys[id]
		if !k.changed || k.gone {
			continue
		}
		t := updated
		if !k.stored {
			t = inserted // a key that another transaction is just taking ends this one: the next try finds it taken
		}
		t.row()
		t.text(k.Env)
		t.list(string(k.Kind))
		t.text(k.Scope)
		t.text(k.Key.Key)
		t.text(k.Owner)
		t.text(k.Hash)
		t.bool(k.Differs)
		t.blob(k.Answer)
		t.time(k.ExpiresAt)
		t.list(string(k.OwnerStatus))
		t.time(k.OwnerEndedAt)
		t.int(k.LastsFor.Milliseconds())
		t.bool(k.UntilFailed)
		k.stored, k.changed = true, false
	}
	v.put(sqlInsertKeys, inserted)
	v.put(sqlUpdateKeys, updated)
}

// flushDue writes callbacks, schedules, apps and later events.
func (v *view) flushDue() {
	newCallbacks, changedCallbacks, posted, later := &rowset{}, &rowset{}, &rowset{}, &rowset{}
	for _, c := range v.callbacks {
		switch {
		case c.changed && !c.stored:
			t := newCallbacks.row()
			t.text(c.TokenHash)
			t.text(c.Env)
			t.int(c.run)
			t.text(c.RunID)
			t.text(c.Name)
			t.int(int64(c.Number))
			t.time(c.DueAt)
			t.time(c.EndedAt)
			t.blob(c.Payload)
		case c.changed:
			t := changedCallbacks.row()
			t.text(c.TokenHash)
			t.int(c.run)
			t.text(c.RunID)
			t.time(c.DueAt)
			t.time(c.EndedAt)
			t.blob(c.Payload)
		}
		if c.changed && !c.EndedAt.IsZero() {
			t := posted.row()
			t.int(c.run)
			t.text(c.Name)
			t.int(int64(c.Number))
		}
		c.stored, c.changed = true, false
	}
	for _, id := range slices.SortedFunc(maps.Keys(v.later), eventKey.compare) { // as with runs; so are schedules and apps
		l := v.later[id]
		if !l.stored {
			t := later.row()
			t.text(l.Env)
			t.text(l.Name)
			t.text(l.ID)
			t.blob(l.Payload)
			t.time(l.DueAt)
			l.stored = true
		}
	}
	v.put(sqlInsertCallbacks, newCallbacks)
	v.put(sqlUpdateCallbacks, changedCallbacks)
	v.put(sqlMarkPosted, posted)
	v.flushSchedules()
	v.flushApps()
	v.put(sqlInsertLater, later)
}

func (v *view) flushSchedules() {
	dropped, inserted, updated := &rowset{}, &rowset{}, &rowset{}
	for _, id := range slices.SortedFunc(maps.Keys(v.schedules), comparePairs) {
		sc := v.schedules[id]
		switch {
		case sc.deleted:
			if sc.stored {
				t := dropped.row()
				t.text(id[0])
				t.text(id[1])
			}
		case sc.changed && sc.stored:
			bindSchedule(updated.row(), &sc.Schedule)
		case sc.changed:
			bindSchedule(inserted.row(), &sc.Schedule)
		}
		sc.stored, sc.changed = !sc.deleted, false
	}
	v.put(sqlDropSchedules, dropped)
	v.put(sqlInsertSchedules, inserted)
	v.put(sqlUpdateSchedules, updated)
}

func bindSchedule(t *rowset, sc *store.Schedule) {
	for _, text := range []string{sc.Env, sc.ID, sc.App, sc.Workflow, sc.Expression, sc.Timezone, sc.CatchUp} {
		t.text(text)
	}
	t.blob(sc.Payload)
	t.bool(sc.Declared)
	t.bool(sc.Paused)
	t.int(sc.Version)
	t.time(sc.Cursor)
	t.time(sc.NextAt)
	t.time(sc.CreatedAt)
}

func (v *view) flushApps() {
	inserted, updated := &rowset{}, &rowset{}
	for _, id := range slices.SortedFunc(maps.Keys(v.apps), comparePairs) {
		a := v.apps[id]
		switch {
		case a.changed && a.stored:
			v.bindApp(updated.row(), &a.App)
		case a.changed:
			v.bindApp(inserted.row(), &a.App)
		}
		a.stored, a.changed = true, false
	}
	v.put(sqlInsertApps, inserted)
	v.put(sqlUpdateApps, updated)
}

func (v *view) bindApp(t *rowset, a *store.App) {
	gone, err := json.Marshal(a.Gone)
	if err != nil {
		v.fail("encoding what app "+a.Name+" lacks", err)
	}
	t.text(a.Env)
	t.text(a.Name)
	t.text(a.URL)
	t.bool(a.Private)
	t.int(int64(a.Concurrency))
	t.blob(a.Manifest)
	t.text(a.Hash)
	t.time(a.SeenAt)
	t.blob(gone)
	t.int(a.Version)
}

// flushAdded writes what is only added: events, deliveries, logs.
func (v *view) flushAdded() {
	events, logs := &rowset{}, &rowset{}
	for _, e := range v.written.events {
		t := events.row()
		t.int(e.Position)
		t.text(e.Env)
		t.text(e.Name)
		t.text(e.ID)
		t.blob(e.Payload)
		t.time(e.CreatedAt)
		t.int(int64(e.Runs))
	}
	for i := range v.written.logs {
		bindLine(logs.row(), &v.written.logs[i])
	}
	if events.rows > 0 {
		v.put(sqlInsertEvents, events)
		v.out.add(sqlUpdateLastEvent, (&params{}).int(v.lastEvent), nil)
	}
	v.put(sqlInsertLogs, logs)
	v.flushDeliveries()
}

func bindLine(t *rowset, l *newLine) {
	t.int(l.run)
	t.int(int64(l.Restart))
	t.text(l.callID)
	t.text(l.Name)
	t.int(int64(l.Number))
	t.int(l.Entry)
	t.int(int64(l.Attempt))
	t.int(int64(l.Line))
	t.time(l.At)
	t.text(l.Level)
	t.text(l.Message)
	t.blob(l.Fields)
}

func (v *view) flushDeliveries() {
	rows := &rowset{}
	for _, d := range v.written.deliveries {
		events, err := json.Marshal(d.Events)
		if err != nil {
			v.fail("encoding the events of delivery "+d.ID, err)
		}
		t := rows.row()
		t.text(d.ID)
		t.text(d.Env)
		t.text(d.Hook)
		t.text(d.Provider)
		t.list(string(d.Status))
		t.text(d.Reason)
		t.text(d.ProviderID)
		t.text(d.RedeliveryOf)
		t.blob(events)
		t.int(int64(len(d.Request) + len(d.Body)))
		t.time(d.ReceivedAt)
		t.blob(d.Request)
		t.blob(d.Body)
	}
	v.put(sqlInsertDeliveries, rows)
}

func bindIdentity(t *rowset, r *workflow.Run) {
	for _, text := range []string{r.ID, r.Env, r.App, r.Workflow, r.Key, r.ReplayOf, r.Parent, r.Root, r.Event, r.EventID} {
		t.text(text)
	}
	t.int(int64(r.RootRestart))
}

func bindHistory(t *rowset, x *run) {
	t.int(x.history.Entries)
	t.int(x.history.Bytes)
	t.int(x.lines)
}

func bindValues(t *rowset, values *values) {
	t.blob(values.output)
	t.blob(values.failure)
	t.blob(values.trees)
}
