package postgres

import (
	"encoding/json/v2"
	"fmt"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// gather adds the statements that read what n names, of which v learns when they are answered. The first lock: runs, then keys, then the
// rest, so that each statement after them sees all that other transactions have done to what is locked.
func (n *need) gather(v *view) {
	b := v.out
	if len(n.runs) > 0 {
		b.add(sqlLockRuns, texts(n.runs).params(), v.learnRun)
	}
	if len(n.keys) > 0 {
		b.add(sqlLockKeys, keyRows(n.keys).params(), v.learnKey)
	}
	if len(n.cursors) > 0 {
		b.add(sqlLockCursors, texts(n.cursors).params(), func(r *scanner) error {
			v.cursors[r.text()] = &cursor{owner: r.text(), position: r.int(), stored: true}
			return nil
		})
	}
	n.gatherDue(v)
	n.gatherRuns(v)
	n.gatherWaits(v)
	if n.newRuns > 0 {
		b.add(sqlDrawSeqs, (&params{}).int(n.newRuns), func(r *scanner) error { v.seqs = append(v.seqs, r.int()); return nil })
	}
	if n.newWaits > 0 {
		b.add(sqlDrawWaits, (&params{}).int(n.newWaits), func(r *scanner) error { v.waitIDs = append(v.waitIDs, r.int()); return nil })
	}
	if n.lastEvent {
		statement := sqlLastEvent
		if n.storesEvents {
			statement = sqlLockLastEvent
		}
		b.add(statement, nil, func(r *scanner) error { v.lastEvent = r.int(); return nil })
	}
	// After the counter is locked nobody else stores events, so that what is not here does not come before this batch's.
	if len(n.events) > 0 {
		b.add(sqlGatherEvents, eventRows(n.events).params(), func(r *scanner) error {
			v.events[eventKey{r.text(), r.text(), r.text()}] = true
			return nil
		})
	}
}

// gatherRuns reads what belongs to runs: entries, attempts, logs.
func (n *need) gatherRuns(v *view) {
	b := v.out
	if len(n.steps) > 0 {
		list := listOf(n.steps)
		b.add(sqlGatherSteps, stepRows(list).params(), func(r *scanner) error {
			v.steps[list[r.int()-1]] = &standing{entry: r.int(), status: r.text(), output: r.blob(), failure: r.blob()}
			return nil
		})
	}
	if len(n.attempts) > 0 {
		b.add(sqlGatherAttempts, stepRows(listOf(n.attempts)).params(), v.learnAttempt)
	}
	if len(n.open) > 0 {
		b.add(sqlGatherOpenAttempts, texts(n.open).params(), v.learnAttempt)
	}
	if len(n.lines) > 0 {
		list := listOf(n.lines)
		rows := &rowset{}
		for _, k := range list {
			t := rows.row()
			t.text(k.run)
			t.int(int64(k.restart))
			t.int(k.entry)
			t.text(k.Name)
			t.int(int64(k.Number))
			t.int(int64(k.attempt))
			t.int(int64(k.line))
			t.text(k.callID)
		}
		b.add(sqlGatherLines, rows.params(), func(r *scanner) error { v.lines[list[r.int()-1]] = true; return nil })
	}
	if len(n.chapters) > 0 {
		rows := rowsOf(n.chapters, func(t *rowset, k chapterKey) { t.text(k.run); t.int(int64(k.restart)) })
		b.add(sqlGatherLineCounts, rows.params(), func(r *scanner) error {
			k := chapterKey{r.text(), int(r.int())}
			v.lineCounts[k] = r.int()
			return nil
		})
	}
}

func (n *need) gatherWaits(v *view) {
	b := v.out
	if len(n.waits) > 0 {
		b.add(sqlGatherWaits, stepRows(listOf(n.waits)).params(), v.learnWait)
	}
	if len(n.waitsOf) > 0 {
		b.add(sqlGatherWaitsOfRuns, texts(n.waitsOf).params(), v.learnWait)
	}
	if len(n.invokes) > 0 {
		b.add(sqlGatherInvokes, rowsOf(n.invokes, func(t *rowset, k [2]string) { t.text(k[0]); t.text(k[1]) }).params(), v.learnWait)
	}
	if len(n.uses) > 0 {
		rows := rowsOf(n.uses, func(t *rowset, k useKey) { t.text(k.run); t.int(k.position) })
		b.add(sqlGatherUses, rows.params(), func(r *scanner) error {
			v.uses[useKey{r.text(), r.int()}] = &use{stored: true, used: true}
			return nil
		})
	}
}

// gatherDue reads what belongs to no run: callbacks, schedules, apps, later events, deliveries.
func (n *need) gatherDue(v *view) {
	b := v.out
	if len(n.tokens)+len(n.posts) > 0 {
		n.tokens.add("") // no callback's, as is the step: both lists have a row then
		n.posts.add(stepKey{})
		p, steps := texts(n.tokens).params(), stepRows(listOf(n.posts)).params()
		p.values, p.oids = append(p.values, steps.values...), append(p.oids, steps.oids...)
		b.add(sqlLockCallbacks, p, v.learnCallback)
	}
	if len(n.callbacks) > 0 {
		b.add(sqlGatherCallbacks, stepRows(listOf(n.callbacks)).params(), v.learnCallback)
	}
	if len(n.schedules) > 0 {
		rows := rowsOf(n.schedules, func(t *rowset, k [2]string) { t.text(k[0]); t.text(k[1]) })
		b.add(sqlLockSchedules, rows.params(), func(r *scanner) error {
			sc := store.Schedule{Env: r.text(), ID: r.text(), Version: r.int(), CreatedAt: r.time()}
			v.schedules[[2]string{sc.Env, sc.ID}] = &schedule{Schedule: sc, stored: true}
			return nil
		})
	}
	if len(n.apps) > 0 {
		rows := rowsOf(n.apps, func(t *rowset, k [2]string) { t.text(k[0]); t.text(k[1]) })
		b.add(sqlLockApps, rows.params(), func(r *scanner) error {
			a := store.App{Env: r.text(), Name: r.text(), Version: r.int()}
			v.apps[[2]string{a.Env, a.Name}] = &app{App: a, stored: true}
			return nil
		})
	}
	if len(n.later) > 0 {
		b.add(sqlLockLater, eventRows(n.later).params(), func(r *scanner) error {
			v.later[eventKey{r.text(), r.text(), r.text()}] = &later{stored: true}
			return nil
		})
	}
	if len(n.deliveries) > 0 {
		b.add(sqlGatherDeliveries, texts(n.deliveries).params(), func(r *scanner) error { v.deliveries[r.text()] = true; return nil })
	}
}

func (v *view) learnRun(r *scanner) error {
	x := &run{
		id: r.text(), seq: r.int(), env: r.text(), version: r.int(), callID: r.text(), nonce: r.text(), restart: int(r.int()), ended: r.bool(),
		history: store.History{Entries: r.int(), Bytes: r.int()}, lines: r.int(), eventsAfter: r.int(), stored: true,
	}
	v.runs[x.id] = x
	return nil
}

func (v *view) learnKey(r *scanner) error {
	k := scanKey(r)
	v.keys[idOf(k)] = &key{Key: k, stored: true}
	return nil
}

func (v *view) learnAttempt(r *scanner) error {
	runID, a := r.text(), scanAttempt(r)
	k := attemptKey{stepKey{runID, a.StepID}, a.Attempt}
	if v.attempts[k] == nil { // it may be asked for by its step and by its run
		v.addAttempt(k, &attempt{Attempt: a, stored: true})
	}
	return nil
}

func (v *view) learnWait(r *scanner) error {
	w, err := scanWait(r)
	if err != nil {
		return err
	}
	of := v.waits[w.RunID]
	if !slices.ContainsFunc(of, func(other *wait) bool { return other.Order == w.Order }) {
		v.waits[w.RunID] = append(of, &wait{Wait: w, childLives: r.bool(), stored: true})
	}
	return nil
}

func (v *view) learnCallback(r *scanner) error {
	c := &callback{Callback: scanCallback(r), stored: true}
	c.run = r.int()
	v.callbacks[c.TokenHash] = c
	return nil
}

// listOf gives a set an order, by which answers name its members.
func listOf[K comparable](s set[K]) []K {
	list := make([]K, 0, len(s))
	for k := range s {
		list = append(list, k)
	}
	return list
}

func rowsOf[K comparable](s set[K], bind func(*rowset, K)) *rowset {
	rows := &rowset{}
	for k := range s {
		bind(rows.row(), k)
	}
	return rows
}

func texts(s set[string]) *rowset { return rowsOf(s, (*rowset).text) }

func keyRows(s set[keyID]) *rowset {
	return rowsOf(s, func(t *rowset, k keyID) { t.text(k.env); t.list(string(k.kind)); t.text(k.scope); t.text(k.key) })
}

func stepRows(list []stepKey) *rowset {
	rows := &rowset{}
	for _, k := range list {
		t := rows.row()
		t.text(k.run)
		t.text(k.Name)
		t.int(int64(k.Number))
	}
	return rows
}

func eventRows(s set[eventKey]) *rowset {
	return rowsOf(s, func(t *rowset, k eventKey) { t.text(k.env); t.text(k.name); t.text(k.id) })
}

func scanKey(r *scanner) store.Key {
	return store.Key{
		Env: r.text(), Kind: store.KeyKind(r.text()), Scope: r.text(), Key: r.text(), Owner: r.text(), Hash: r.text(),
		Differs: r.bool(), Answer: r.blob(), ExpiresAt: r.time(),
		OwnerStatus: workflow.Status(r.text()), OwnerEndedAt: r.time(),
		LastsFor: time.Duration(r.int()) * time.Millisecond, UntilFailed: r.bool(),
	}
}

func scanAttempt(r *scanner) store.Attempt {
	return store.Attempt{
		StepID: workflow.StepID{Name: r.text(), Number: int(r.int())}, Attempt: int(r.int()),
		CallID: r.text(), Error: r.blob(), StartedAt: r.time(), EndedAt: r.time(), RetryAt: r.time(), Again: r.bool(),
	}
}

func scanCallback(r *scanner) store.Callback {
	return store.Callback{
		TokenHash: r.text(), Env: r.text(), RunID: r.text(), StepID: workflow.StepID{Name: r.text(), Number: int(r.int())},
		DueAt: r.time(), EndedAt: r.time(), Payload: r.blob(),
	}
}

func scanWait(r *scanner) (store.Wait, error) {
	w := store.Wait{Order: r.int(), RunID: r.text(), Env: r.text(), Wait: workflow.Wait{
		StepID: workflow.StepID{Name: r.text(), Number: int(r.int())}, Kind: r.text(), DueAt: r.time(), Child: r.text(), Of: int(r.int()),
	}}
	if event := r.blob(); event != nil {
		w.Event = &workflow.EventWait{}
		if err := json.Unmarshal(event, w.Event); err != nil {
			return w, fmt.Errorf("reading a wait of run %s: %w", w.RunID, err)
		}
	}
	w.After, w.Looked, w.Orphan = r.int(), r.bool(), r.bool()
	return w, nil
}
