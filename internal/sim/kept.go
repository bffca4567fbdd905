package sim

import (
	"context"
	"encoding/json/v2"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// soon is how long what is due may be left undone while nothing disturbs the nodes: the pause between two looks at the store that
// nobody has hinted at, and a while.
const soon = 7 * time.Second

// waiting is what the witness keeps of a run for its waits.
type waiting struct {
	before  int64 // how many events were there before the run
	after   int64 // and before the one that it looks back to: its own start, or its original's
	open    map[workflow.StepID]*openWait
	orphans map[string]*openWait // invokes that are waited for no more, by the children that live
	used    map[int64]bool       // events, by position
	usedNow int64                // the event that the change which is looked at uses; zero: none
	kept    int64                // entries that a replay has from its original
	// replay is what a replay is of, as it was then; nil: it is none.
	replay   *replayOf
	startAt  time.Time // before which it must not begin
	cancels  string    // the event that cancels it
	asked    bool      // a client has asked for its end
	cancelAt time.Time // when an event came that cancels it
	orphaned time.Time // since when nobody waits for it any more
}

// openWait is a wait as it was first registered.
type openWait struct {
	workflow.Wait
	order    int64
	after    int64 // events up to here do not count
	events   int64 // how many events there were
	openedAt time.Time
	step     *stepPlan
}

// claimID is what one run at a time may own: its scope is app, workflow and the claim's name.
type claimID struct{ scope, key string }

// claimed is who owns a claim, and what frees it.
type claimed struct {
	owner       string
	lastsFor    time.Duration
	untilFailed bool
}

// insertedChild takes in the run that an invoke has started: one for each step, with what its parent gave it (K1).
func (t *witness) insertedChild(parent *record, w *openWait, start store.InsertRun) {
	t.inserted(start)
	child := t.runs[start.Run.ID]
	id := parent.step(w.StepID)
	var in payload
	switch {
	case json.Unmarshal(start.Payload, &in) != nil || in.From != invokedBy(id):
		t.broken("K1", "%s started the run %s with the payload %s", id, child.ID, start.Payload)
	case w.Child != child.ID || child.Parent != parent.ID:
		t.broken("K1", "%s waits for %s, and started the run %s of the parent %q", id, w.Child, child.ID, child.Parent)
	case w.step != nil && w.step.invokes != nil && (child.Workflow != w.step.invokes.name || child.App != w.step.invokes.app):
		t.broken("K1", "%s started a run of %s in %s, and asked for %s in %s", id, child.Workflow, child.App, w.step.invokes.name, w.step.invokes.app)
	}
}

// takesOver takes in what a replay has from the run that it replays: entries, and the events that its waits may find again (K5).
func (t *witness) takesOver(r *record, replay *store.Replay) {
	if replay == nil {
		return
	}
	r.kept = replay.Entries
	r.replay = t.replayOf(replay)
	if r.kept > 0 { // what it is shown first was saved by the code that played its original
		r.versions = slices.Clone(t.runs[replay.RunID].versions)
	}
	t.checkReplay(r, t.runs[replay.RunID])
	t.passesCallbacks(r, t.runs[replay.RunID], replay.Callbacks)
	for _, position := range replay.Used {
		r.used[position] = true
	}
	if replay.Events {
		r.after = t.runs[replay.RunID].after
	}
}

// replayedTag is in the payloads that clients give replays.
const replayedTag = "replayed "

// checkReplay: a replay has its original's payload, unless it was given one; a whole one that of the first chapter, and what is kept is
// of the chapter that the payload is of (K5, Z2).
func (t *witness) checkReplay(r, original *record) {
	var in payload
	json.Unmarshal([]byte(r.payload), &in) //nolint:errcheck // a webhook's payload has no tag
	if r.kept > 0 {
		t.world.report.reached(replayedFromStep)
	}
	if r.kept > int64(len(original.entries)) {
		t.broken("K5", "run %s keeps %d entries of run %s, which has %d", r.ID, r.kept, original.ID, len(original.entries))
	}
	if strings.HasPrefix(in.Tag, replayedTag) {
		return
	}
	first := original.payload
	if len(original.past) > 0 {
		first = original.past[0].payload
	}
	switch {
	case r.kept > 0 && r.payload != original.payload:
		t.broken("K5", "run %s keeps entries of run %s's last chapter, and has the payload %s, not %s", r.ID, original.ID, r.payload, original.payload)
	case r.kept == 0 && r.payload != original.payload && r.payload != first:
		t.broken("K5", "run %s replays run %s with the payload %s", r.ID, original.ID, r.payload)
	}
	if r.kept > 0 && len(original.past) > 0 {
		t.world.report.reached(replayedLastChapter)
	}
}

// checkKept: what a replay takes over is what its original has there.
func (t *witness) checkKept(r *record, e store.Entry) {
	original := t.runs[r.ReplayOf].entries
	if e.Entry > int64(len(original)) {
		t.broken("K5", "run %s took over entry %d, and its original has %d", r.ID, e.Entry, len(original))
	} else if diff := difference(original[e.Entry-1].saved, e); diff != "" {
		t.broken("K5", "run %s took over entry %d otherwise than its original has it:\n%s", r.ID, e.Entry, diff)
	}
}

// opens takes in the waits that a change registers: each once (H3).
func (t *witness) opens(r *record, list []store.OpenWait, opened []bool) {
	if len(list) != len(opened) {
		t.broken("H3", "run %s: %d waits were registered, and %d have an outcome", r.ID, len(list), len(opened))
		return
	}
	for i, w := range list {
		is := r.open[w.StepID] != nil || r.entry(w.StepID) != nil
		if is == opened[i] {
			t.broken("H3", "run %s: registering %s/%d, which is known: %t, opened it: %t", r.ID, w.Name, w.Number, is, opened[i])
		}
		if !opened[i] {
			t.world.report.reached(waitStood)
			t.stands = append(t.stands, r.ID)
			continue
		}
		t.opened++
		o := &openWait{Wait: w.Wait, order: t.opened, events: int64(len(t.stored)), openedAt: t.world.now(), step: t.steps[r.Workflow+"/"+w.Name]}
		o.after = o.events
		if w.Event != nil && w.Event.SinceRun {
			o.after = r.after
		}
		r.open[w.StepID], t.registered[r.step(w.StepID)] = o, true
		t.first(r.step(w.StepID))
		if w.Start != nil {
			t.insertedChild(r, o, *w.Start)
			for _, orphan := range r.orphans {
				if orphan.StepID == w.StepID {
					t.world.report.reached(orphansName)
				}
			}
		}
	}
}

// uses takes in that a run has used an event: it does so once (W7).
func (t *witness) uses(op store.UseEvent) {
	r := t.runs[op.RunID]
	if r.used[op.Position] {
		t.broken("W7", "run %s used the event at %d twice", r.ID, op.Position)
	}
	r.used[op.Position], r.usedNow = true, op.Position
}

// stores takes in a new event. Runs that it cancels have to end.
func (t *witness) stores(id eventID, e store.Event) {
	var in payload
	json.Unmarshal(e.Payload, &in) //nolint:errcheck // a webhook's payload has no tag
	t.stored = append(t.stored, storedEvent{eventID: id, tag: in.Tag, at: t.world.now()})
	for _, r := range t.listening[id.name] {
		if !r.Status.Final() && r.cancelAt.IsZero() {
			r.cancelAt = t.world.now()
		}
	}
}

// storedEvent is an event in the order in which events were stored.
type storedEvent struct {
	eventID
	tag string
	at  time.Time
}

// fits tells whether the event at a position may end a wait.
func (t *witness) fits(r *record, w *openWait, position int64) bool {
	e := t.stored[position-1]
	return position > w.after && slices.Contains(w.Event.Names, e.name) && (w.step == nil || w.step.tag == "" || w.step.tag == e.tag) && !r.used[position]
}

// checkWait checks the entry of a step without a body, and closes its wait.
func (t *witness) checkWait(n *node, r *record, e store.Entry) {
	id := r.step(e.StepID)
	w := r.open[e.StepID]
	if w == nil && t.lacksCallback(r, e) {
		return
	}
	if w == nil {
		t.broken("H3", "%s has an entry of kind %q, and no such wait is open: %s %s", id, e.Kind, e.Output, e.Error)
		return
	}
	if w.Kind != e.Kind {
		t.broken("S7", "%s is open as %q, and its entry is of kind %q", id, w.Kind, e.Kind)
	}
	early := !w.DueAt.IsZero() && stored(w.DueAt).After(n.latest())
	switch e.Kind {
	case workflow.KindSleep:
		if early || e.Status != workflow.StepCompleted {
			t.broken("W4", "%s is over as %s %v before it is due: %s", id, e.Status, stored(w.DueAt).Sub(n.latest()), e.Error)
		}
		t.checkSoon(id, w, w.DueAt)
	case workflow.KindEvent:
		t.checkEvent(r, w, e, early)
	case workflow.KindInvoke:
		t.checkReturn(r, w, e, early)
	case workflow.KindCallback:
		t.checkPosted(r, w, e, early)
	}
	t.leave(r, w)
}

// leave closes a wait; an invoke whose child lives becomes an orphan, and its step's name is free again.
func (t *witness) leave(r *record, w *openWait) {
	if w.Kind == workflow.KindInvoke && t.lives(w.Child) {
		r.orphans[w.Child] = w
		t.orphans(w.Child)
	}
	delete(r.open, w.StepID)
}

// checkEvent checks what a wait for an event has come to: the earliest event that fits and that the run has not used, and nothing only
// after its time (E2, W4, W5, W7).
func (t *witness) checkEvent(r *record, w *openWait, e store.Entry, early bool) {
	id := r.step(e.StepID)
	if textOf(e) == noEvent {
		t.world.report.reached(noEventCame)
		if early {
			t.broken("W4", "%s is over %v before it is due", id, w.DueAt.Sub(t.world.latest()))
		}
		t.checkSoon(id, w, w.DueAt)
		for position := w.after + 1; position <= int64(len(t.stored)); position++ {
			if t.fits(r, w, position) && t.world.undisturbed(t.stored[position-1].at, w.openedAt, t.world.freed(r.ID)) > soon {
				t.broken("W5", "%s is over without an event, and event %d fits it since %v", id, position, t.stored[position-1].at)
			}
		}
		return
	}
	position := r.usedNow
	if position == 0 {
		t.broken("W7", "%s is over with the event %s, and the run has not used one", id, e.Output)
		return
	}
	var shown wire.Event
	ev := t.stored[position-1]
	r.used[position] = false // until now
	if wire.Decode(e.Output, &shown) != nil || shown.ID != ev.id || shown.Event != ev.name || !t.fits(r, w, position) {
		t.broken("W7", "%s is over with %s, and the run has used event %d, %v, which fits: %t", id, e.Output, position, ev, t.fits(r, w, position))
	}
	if ev.id == r.EventID && ev.name == r.Event && r.ReplayOf == "" {
		t.broken("E2", "%s is over with the event that started its run", id)
	}
	for earlier := w.after + 1; earlier < position; earlier++ {
		if t.fits(r, w, earlier) {
			t.broken("E2", "%s is over with event %d, and event %d came earlier, fits and is not used", id, position, earlier)
		}
	}
	for other, o := range r.open {
		if o.Kind == workflow.KindEvent && o.order < w.order && t.fits(r, o, position) {
			t.broken("E2", "%s is over with event %d, and the wait %s/%d was open earlier", id, position, other.Name, other.Number)
		}
	}
	r.used[position] = true
	t.checkSoon(id, w, ev.at)
	if position <= w.events {
		t.world.report.reached(eventLookedBack)
	}
	t.reachUsed(r, w, position)
}

// reachUsed notes that an earlier event would have fitted, had the run not used it before it began again.
func (t *witness) reachUsed(r *record, w *openWait, position int64) {
	for earlier := w.after + 1; earlier < position && len(r.past) > 0; earlier++ {
		if r.used[earlier] {
			r.used[earlier] = false
			if t.fits(r, w, earlier) {
				t.world.report.reached(usedBeforeRestart)
			}
			r.used[earlier] = true
		}
	}
}

// checkReturn checks what an invoke has come to: what its child has, which has ended, or its time is over.
func (t *witness) checkReturn(r *record, w *openWait, e store.Entry, early bool) {
	id := r.step(e.StepID)
	child, err := t.model.Record(context.Background(), r.Env, w.Child)
	if err != nil {
		t.broken("W6", "%s: its child %s can't be read: %v", id, w.Child, err)
		return
	}
	var failure wire.Error
	if e.Status == workflow.StepFailed {
		wire.Decode(e.Error, &failure) //nolint:errcheck // then it has no name
	}
	if failure.Name == "TimeoutError" && !child.Status.Final() {
		t.world.report.reached(childTookTooLong)
		if early {
			t.broken("W4", "%s is over %v before its child's time is", id, stored(w.DueAt).Sub(t.world.latest()))
		}
		t.checkSoon(id, w, w.DueAt)
		return
	}
	if ended := t.runs[w.Child]; child.Status.Final() && ended != nil {
		t.checkSoon(id, w, ended.endedAt)
	}
	same := false
	switch child.Status {
	case workflow.Completed:
		same = e.Status == workflow.StepCompleted && string(e.Output) == string(child.Output)
	case workflow.Failed, workflow.Skipped:
		same = e.Status == workflow.StepFailed && string(e.Error) == string(child.Error)
	case workflow.Queued, workflow.Running, workflow.Waiting: // it has not ended
	case workflow.Cancelled:
		same = failure.Name == "RunCancelledError"
	}
	// A child may end just when its time is over: either is true.
	if !same && (failure.Name != "TimeoutError" || early) {
		t.broken("K1", "%s is over as %s %s%s, and its child %s is %s with %s%s", id, e.Status, e.Output, e.Error, child.ID, child.Status, child.Output, child.Error)
	}
}

// checkClaimed checks the answer to a claim: true is the owner's, and false is what another run's owning it was answered with (K4).
func (t *witness) checkClaimed(r *record, e store.Entry) {
	step := t.steps[r.Workflow+"/"+e.Name]
	if step == nil {
		return
	}
	id := r.step(e.StepID)
	c := t.claims[claimID{strings.Join([]string{r.App, r.Workflow, e.Name}, "\x00"), step.key}]
	owns := c != nil && c.owner == r.ID
	switch {
	case e.Status != workflow.StepCompleted:
		t.broken("K4", "%s failed: %s", id, e.Error)
	case c == nil, owns != (string(e.Output) == "true"):
		t.broken("K4", "%s was answered %s, and the run owns the claim: %t (%+v)", id, e.Output, owns, c)
	case !owns:
		t.world.report.reached(claimRefused)
		if owner := t.runs[c.owner]; owner.Status.Final() && t.frees(c, r, owner, owner.endedAt) == nil && t.world.undisturbed(owner.endedAt, t.world.freed(r.ID), t.world.freed(owner.ID)) > soon && r.startedAfter(owner.endedAt) {
			t.broken("K3", "%s was refused, and the owner %s has ended and freed the claim", id, owner.ID)
		}
	}
}

// startedAfter tells whether the run's call began some time after an instant.
func (r *record) startedAfter(at time.Time) bool { return r.Call != nil && r.begunAt.Sub(at) > soon }

// errHolds: an owner holds its claim.
var errHolds = errors.New("its owner holds it")

// frees tells whether a claim may pass from its owner to a run, and by what: nil if it may (K3, K5).
func (t *witness) frees(c *claimed, to, owner *record, now time.Time) error {
	switch {
	case !owner.Status.Final():
		return errHolds
	case to.ReplayOf == owner.ID:
		t.how = claimOfReplay
	case c.untilFailed && owner.Status == workflow.Failed:
		t.how = claimOfFailed
	case c.lastsFor > 0 && !now.Before(owner.EndedAt.Add(c.lastsFor)):
		t.how = claimOfTime
	default:
		return errHolds
	}
	return nil
}

// takes takes in that a run has taken a claim that nobody had, or whose owner was dropped and that was free then.
func (t *witness) takes(n *node, key store.Key) {
	id := claimID{key.Scope, key.Key}
	if c := t.claims[id]; c != nil {
		owner := t.runs[c.owner]
		if err := t.frees(c, t.runs[key.Owner], owner, n.latest()); err != nil || !owner.dropped {
			t.broken("W8", "run %s took the claim %q, which run %s has", key.Owner, key.Key, c.owner)
		}
		t.world.report.reached(passedGone)
	}
	t.claims[id] = newClaimed(key)
}

func newClaimed(key store.Key) *claimed {
	return &claimed{owner: key.Owner, lastsFor: key.LastsFor, untilFailed: key.UntilFailed}
}

// passes takes in that a claim has passed from its owner to another run.
func (t *witness) passes(n *node, op store.PassKey) {
	if op.Key.Kind == store.KeyRequest {
		return // it keeps what it was answered with
	}
	id := claimID{op.Key.Scope, op.Key.Key}
	c := t.claims[id]
	if c == nil || c.owner != op.From {
		t.broken("W8", "the claim %q passed from run %s, which did not have it", op.Key.Key, op.From)
		return
	}
	to := t.runs[op.Key.Owner]
	if t.runs[c.owner].dropped {
		t.world.report.reached(passedGone)
	}
	if err := t.frees(c, to, t.runs[c.owner], n.latest()); err != nil {
		t.broken("K3", "the claim %q passed from run %s to run %s: %v", op.Key.Key, op.From, op.Key.Owner, err)
	} else {
		t.world.report.reached(t.how)
	}
	t.claims[id] = newClaimed(op.Key)
}

// lives tells whether a run is there and has not ended.
func (t *witness) lives(id string) bool {
	r := t.runs[id]
	return r != nil && !r.Status.Final()
}

// orphans notes that nobody waits for a run any more.
func (t *witness) orphans(id string) {
	if r := t.runs[id]; r.orphaned.IsZero() {
		r.orphaned = t.world.now()
	}
}

// closes closes the waits of a run that has ended, or goes on without them: its children have to hear of it.
func (t *witness) closes(r *record) {
	for _, w := range r.open {
		t.leave(r, w)
	}
}

// forgets takes in that an invoke is forgotten: its child has ended.
func (t *witness) forgets(op store.CloseWait) {
	r := t.runs[op.RunID]
	waited := false
	for _, w := range r.open {
		waited = waited || w.Child == op.Child
	}
	if waited || t.lives(op.Child) {
		t.broken("Z1", "run %s forgets its child %s, which lives: %t, and is waited for: %t", r.ID, op.Child, t.lives(op.Child), waited)
	}
	delete(r.orphans, op.Child)
}

// asked is told that a client is about to ask for a run's end.
func (t *witness) asked(run string, force bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.runs[run]; r != nil {
		r.asked, r.forced = true, r.forced || force
		if r.Closing() && !r.Status.Final() && !force {
			t.world.report.reached(cancelledInClosing)
		}
	}
}

// forcedEnd is told that a client's wish for a final status was acknowledged.
func (t *witness) forcedEnd(run string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.runs[run]; r == nil || !r.Status.Final() {
		t.broken("W6", "run %s was given its end by force, which is not stored", run)
	}
}

// checkEnding: a run is cancelled because somebody asked, an event says so or nobody waits for it; and where an event says so or nobody
// waits for it, it is (Z1).
func (t *witness) checkEnding(r *record, before, run *workflow.Run) {
	if run.Ending != nil {
		if before.Ending != nil || run.Ending.Reason != workflow.EndingCancelled {
			return
		}
		t.reachEnding(r)
		if !r.asked && r.orphaned.IsZero() && !t.cancelledBy(r) {
			t.broken("Z1", "run %s is cancelled, and nobody has asked for it", run.ID)
		}
		return
	}
	for _, since := range []time.Time{r.orphaned, r.cancelAt} {
		if !since.IsZero() && t.world.undisturbed(since) > soon {
			t.broken("Z1", "run %s goes on as %s, and should have been cancelled at %v", run.ID, run.Status, since)
		}
	}
}

// cancelledBy tells whether an event has come that cancels a run.
func (t *witness) cancelledBy(r *record) bool {
	for _, e := range t.stored[r.before:] {
		if e.name == r.cancels {
			return true
		}
	}
	return false
}

func (t *witness) reachEnding(r *record) {
	parent := t.runs[r.Parent]
	switch {
	case r.asked:
	case !r.orphaned.IsZero() && parent != nil && parent.Closing():
		t.world.report.reached(childOfClosing)
	case !r.orphaned.IsZero() && parent != nil && parent.Status == workflow.Cancelled:
		t.world.report.reached(parentCancelledChild)
	case !r.orphaned.IsZero() && parent != nil && !parent.Status.Final():
		t.world.report.reached(orphanCancelled)
	case !r.cancelAt.IsZero():
		t.world.report.reached(eventCancelled)
	}
}

// checkStanding compares what the store has of a run's waits with what was registered first, where something stood (H3).
func (t *witness) checkStanding(run string) {
	r := t.runs[run]
	open, err := t.model.Waits(context.Background(), store.WaitQuery{Set: store.WaitsOfRun, RunID: run})
	if err != nil {
		t.broken("store", "the waits of run %s can't be read: %v", run, err)
	}
	for _, w := range open {
		o := r.open[w.StepID]
		if w.Orphan {
			o = r.orphans[w.Child]
		}
		if w.Kind == workflow.KindCancel {
			continue
		}
		if o == nil || !o.DueAt.Equal(w.DueAt) || o.Child != w.Child || o.after != w.After && w.Event != nil {
			t.broken("H3", "run %s waits for %+v, and first was registered %+v", run, w, o)
		}
	}
}

// checkDue: a run's timer looks when the first of its waits is due (W5).
func (t *witness) checkDue(r *record) {
	for _, w := range r.open {
		if !w.DueAt.IsZero() && (r.WaitsAt.IsZero() || r.WaitsAt.After(w.DueAt)) {
			t.broken("W5", "run %s: %s/%d is due at %v, and its timer looks at %v", r.ID, w.Name, w.Number, w.DueAt, r.WaitsAt)
		}
	}
}

// waitsLeft lists the waits of ended runs that are still open.
func (t *witness) waitsLeft() (list []store.Wait) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, r := range t.runs {
		if !r.Status.Final() { // a start that came late
			continue
		}
		open, err := t.model.Waits(context.Background(), store.WaitQuery{Set: store.WaitsOfRun, RunID: id})
		if err != nil {
			t.broken("store", "the waits of run %s can't be read: %v", id, err)
		}
		list = append(list, open...)
	}
	return list
}
