package postgres

import (
	"cmp"
	"slices"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// need is what changes have to know before they are played. It may be more than they turn out to use, never less: what was not
// gathered counts as absent.
type need struct {
	runs       set[string]
	steps      set[stepKey] // their standing entries
	attempts   set[stepKey] // what is recorded of those steps' attempts
	open       set[string]  // of those runs' attempts: what runs or is due
	waits      set[stepKey]
	waitsOf    set[string]    // all waits of those runs
	invokes    set[[2]string] // run and child
	uses       set[useKey]
	events     set[eventKey]
	keys       set[keyID]
	tokens     set[string]  // of callbacks
	callbacks  set[stepKey] // those that these steps made
	posts      set[stepKey] // the same, where a wait for them is opened
	schedules  set[[2]string]
	apps       set[[2]string]
	later      set[eventKey]
	deliveries set[string]
	lines      set[lineKey]
	chapters   set[chapterKey] // how many lines their logs have
	cursors    set[string]

	newRuns, newWaits int64
	lastEvent         bool
	storesEvents      bool
}

type set[K comparable] map[K]struct{}

func (s *set[K]) add(k K) {
	if *s == nil {
		*s = set[K]{}
	}
	(*s)[k] = struct{}{}
}

func (s set[K]) has(k K) bool {
	_, there := s[k]
	return there
}

type stepKey struct {
	run string
	workflow.StepID
}

type attemptKey struct {
	stepKey
	attempt int
}

type useKey struct {
	run      string
	position int64
}

type eventKey struct{ env, name, id string }

func (k eventKey) compare(other eventKey) int {
	return cmp.Or(cmp.Compare(k.env, other.env), cmp.Compare(k.name, other.name), cmp.Compare(k.id, other.id))
}

func comparePairs(a, b [2]string) int { return slices.Compare(a[:], b[:]) }

type keyID struct {
	env   string
	kind  store.KeyKind
	scope string
	key   string
}

func idOf(k store.Key) keyID { return keyID{k.Env, k.Kind, k.Scope, k.Key} }

func (k keyID) compare(other keyID) int {
	return cmp.Or(cmp.Compare(k.env, other.env), cmp.Compare(k.kind, other.kind), cmp.Compare(k.scope, other.scope), cmp.Compare(k.key, other.key))
}

type chapterKey struct {
	run     string
	restart int
}

type lineKey struct {
	chapterKey
	callID string
	workflow.StepID
	entry         int64
	attempt, line int
}

// lineKeyOf is what tells one line from another: in a step also its call.
func lineKeyOf(op store.AddLogs, l store.LogLine) lineKey {
	k := lineKey{chapterKey{op.RunID, op.Restart}, op.CallID, l.StepID, l.Entry, l.Attempt, l.Line}
	if l.Name == "" {
		k.callID = ""
	}
	return k
}

// standsAlone tells whether what a change leaves behind is not known before the database has done it: the next change is gathered for
// anew.
func standsAlone(change []store.Op) bool {
	for _, op := range change {
		switch op := op.(type) {
		case store.InsertRun:
			if op.Replay != nil {
				return true
			}
		case store.UpdateRun:
			if op.Chapter != nil {
				return true
			}
		case store.TakeKey:
			if standsAlone(op.Then) {
				return true
			}
		case store.DropKeys, store.DropDeliveries, store.DropEvents, store.DropRuns:
			return true
		}
	}
	return false
}

func (n *need) change(change []store.Op) {
	for _, op := range change {
		switch op := op.(type) {
		case store.InsertRun:
			n.insertRun(op)
		case store.UpdateRun:
			n.update(op)
		case store.SaveSteps:
			n.save(op)
		case store.InsertEvent:
			n.events.add(eventKey{op.Event.Env, op.Event.Name, op.Event.ID})
			n.lastEvent, n.storesEvents = true, true
		case store.TakeKey:
			n.keys.add(idOf(op.Key))
			n.change(op.Then)
		case store.AddLogs:
			n.runs.add(op.RunID)
			n.chapters.add(chapterKey{op.RunID, op.Restart})
			for _, l := range op.Lines {
				n.lines.add(lineKeyOf(op, l))
			}
		case store.InsertDelivery:
			n.deliveries.add(op.Delivery.ID)
		case store.PutSchedule:
			n.schedules.add([2]string{op.Schedule.Env, op.Schedule.ID})
		case store.PutApp:
			n.apps.add([2]string{op.App.Env, op.App.Name})
		case store.DropSchedule:
			n.schedules.add([2]string{op.Env, op.ID})
		case store.PutLater:
			n.later.add(eventKey{op.Event.Env, op.Event.Name, op.Event.ID})
		case store.DropLater:
			n.later.add(eventKey{op.Env, op.Name, op.ID})
		default:
			n.wait(op)
		}
	}
}

func (n *need) insertRun(op store.InsertRun) {
	n.runs.add(op.Run.ID)
	n.newRuns++
	n.lastEvent = true
	if op.Replay != nil {
		n.runs.add(op.Replay.RunID)
		for _, passed := range op.Replay.Callbacks {
			n.runs.add(passed.Owner) // whether it has ended must stay true
			n.tokens.add(passed.TokenHash)
		}
	}
	for _, w := range op.Waits {
		n.newWaits++
		if op.Replay != nil {
			n.steps.add(stepKey{op.Replay.RunID, w.StepID})
		}
	}
}

func (n *need) update(op store.UpdateRun) {
	id := op.Run.ID
	n.runs.add(id)
	for _, step := range op.Append {
		n.step(stepKey{id, step.StepID})
		n.waits.add(stepKey{id, step.StepID})
	}
	for _, w := range op.Open {
		n.newWaits++
		n.lastEvent = n.lastEvent || w.Event != nil
		n.steps.add(stepKey{id, w.StepID})
		n.waits.add(stepKey{id, w.StepID})
		if w.Start != nil {
			n.insertRun(*w.Start)
		}
		if w.Kind == workflow.KindCallback {
			n.posts.add(stepKey{id, workflow.StepID{Name: w.Name, Number: w.Of}})
		}
	}
	if op.CutCall != "" || op.CloseWaits {
		n.open.add(id)
	}
	if op.CloseWaits || op.Run.Status.Final() {
		n.waitsOf.add(id)
	}
}

func (n *need) save(op store.SaveSteps) {
	n.runs.add(op.RunID)
	for _, start := range op.Starts {
		n.step(stepKey{op.RunID, start.StepID})
	}
	for _, retry := range op.Retries {
		n.step(stepKey{op.RunID, retry.StepID})
	}
	for _, step := range op.Steps {
		n.step(stepKey{op.RunID, step.StepID})
	}
}

func (n *need) step(k stepKey) {
	n.steps.add(k)
	n.attempts.add(k)
}

// wait goes through the ops of waits, callbacks and claims.
func (n *need) wait(op store.Op) {
	switch op := op.(type) {
	case store.UseEvent:
		n.runs.add(op.RunID)
		n.uses.add(useKey{op.RunID, op.Position})
		n.cursors.add(op.Cursor)
	case store.InsertCallback:
		c := op.Callback
		n.runs.add(c.RunID)
		n.tokens.add(c.TokenHash)
		n.callbacks.add(stepKey{c.RunID, c.StepID})
	case store.EndCallback:
		n.tokens.add(op.TokenHash)
	case store.ExpireCallback:
		n.tokens.add(op.TokenHash)
	case store.PassKey:
		n.keys.add(idOf(op.Key))
	case store.CloseWait:
		n.runs.add(op.RunID)
		n.invokes.add([2]string{op.RunID, op.Child})
	case store.LookedBack:
		n.runs.add(op.RunID)
		n.waits.add(stepKey{op.RunID, op.StepID})
		n.cursors.add(op.Cursor)
	case store.TakeCursor:
		n.cursors.add(op.Cursor)
	case store.Advance:
		n.cursors.add(op.Cursor)
	}
}
