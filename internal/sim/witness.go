package sim

import (
	stdcmp "cmp"
	"context"
	"encoding/json/v2"
	"reflect"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// witness sees every commit and every answer, keeps a plain record of what was promised, and says when a promise is broken. It
// commits for the nodes, one at a time, to the store and to the model beside it, so that its record is of what is there.
type witness struct {
	world *world
	model store.Store // the store itself where that is the model

	mu       sync.Mutex // guards everything below
	commits  int
	runs     map[string]*record
	calls    map[string]*callRecord
	events   map[eventID]*eventRecord
	keys     map[runKey]string // run keys, and the runs that have them
	keyUntil time.Time         // of the key that is taken now; zero: for ever
	children map[string]int    // what was sent by each send of a step
	bodies   map[stepID]int    // how often each body began
	attempts map[retryOf]int   // how often each attempt of a body began
	retries  map[retryOf]time.Time
	throws   map[retryOf]*throw
	lenient  bool // sends are answered by nobody who stores them
	spared   bool // nothing befalls an app, so that no body runs again
	calm     bool // nothing goes wrong in this world

	steps       map[string]*stepPlan // by workflow and name
	stored      []storedEvent        // by position, from 1
	opened      int64                // waits
	stands      []string             // runs of which a wait was registered again by the change that is looked at
	listening   map[string][]*record // runs that an event cancels
	claims      map[claimID]*claimed
	how         string           // a claim was freed last
	starts      map[startOf]bool // starts of attempts that are recorded, by their calls
	begun       map[stepID]bool  // steps of which any start is recorded
	firstIn     map[stepID]int   // the commit in which there was first anything of each step
	later       map[eventID]*laterEvent
	foreign     map[requestID]*requestRecord
	deaths      map[stepID]int         // bodies of steps that kill their processes
	began       map[retryOf]*beginning // of attempts
	left        map[stepID]string      // what bodies have left for checks
	askedAt     map[stepID]time.Time   // when code first asked for each step
	workflows   map[string]*workflowPlan
	callbacks   map[string]*callbackRecord // by the hash of their tokens
	schedules   map[string]store.Schedule
	ticks       map[tickOf]bool     // that have started a run
	identities  map[string]identity // of idempotency keys
	idempotency map[identity]string
	// registered are the waits that were ever opened.
	registered map[stepID]bool
	requests   map[*node]map[string]int // calls that are made, by app
}

// record is a run as its last commit left it.
type record struct {
	workflow.Run
	payload   string
	entries   []entry
	versions  []int // of the code that played it
	acked     bool  // somebody was told of it
	dropped   bool  // it is kept no longer
	playing   *playing
	lastCall  string    // that it had when it ended
	begunAt   time.Time // its current call
	endedAt   time.Time // as time goes here, whatever the node's clock said
	touchedAt time.Time // when a commit last changed it
	keyUntil  time.Time // until when its key is its own; zero: for ever
	passedAt  time.Time // when one that was due later was called before it; zero: none was
	// handlerCalls is how often a handler of it began.
	handlerCalls int
	cutsInRow    int  // since the history grew
	oneCode      bool // one version of the code alone has played it
	codeOf       int  // the last that has, from 1
	waiting
	closed
	chapters
	threw
}

type entry struct {
	saved   store.Entry
	savedIn int // the commit
}

// callRecord is a call that has begun.
type callRecord struct {
	run      string
	restart  int              // its chapter
	closing  *workflow.Ending // nil unless it is a call of a closing
	begunIn  int              // the commit
	begunBy  *node
	restored time.Time // when it was last current again, in the place of one that was void
	backAt   time.Time // when it last came back by a save, after it had been cut off or was void
	message  []byte    // as it was sent; nil: it was not
	ended    bool      // its app has said how it ended
	doubled  bool      // it was delivered a second time
	refused  bool      // a process that was stopping has answered it
	cuts     int       // in a row, before it
	saved    bool      // a step was saved in it
	playings int
	handlers int      // how often the handler began in it
	handled  bool     // the handler has returned
	restarts *payload // that its code begins the run again with
	outputs  []string // that its code returned
	throw    *outside // what its code outside steps threw last
	told     told     // what its process has heard
	nonce    string   // of the playing that has saved
}

type eventID struct{ name, id string }

type eventRecord struct {
	started map[string]int // runs by workflow
}

type runKey struct{ app, workflow, key string }

// startOf is an attempt as a call began it.
type startOf struct {
	retryOf
	call string
}

type retryOf struct {
	step    stepID
	attempt int
}

func newWitness(w *world, model store.Store) *witness {
	t := &witness{
		steps: map[string]*stepPlan{}, listening: map[string][]*record{}, claims: map[claimID]*claimed{}, starts: map[startOf]bool{}, begun: map[stepID]bool{}, firstIn: map[stepID]int{}, later: map[eventID]*laterEvent{}, foreign: map[requestID]*requestRecord{}, deaths: map[stepID]int{}, began: map[retryOf]*beginning{}, left: map[stepID]string{}, askedAt: map[stepID]time.Time{}, registered: map[stepID]bool{}, requests: map[*node]map[string]int{},
		workflows: map[string]*workflowPlan{}, callbacks: map[string]*callbackRecord{}, schedules: map[string]store.Schedule{}, ticks: map[tickOf]bool{}, identities: map[string]identity{}, idempotency: map[identity]string{},
		world: w, model: model, runs: map[string]*record{}, calls: map[string]*callRecord{}, events: map[eventID]*eventRecord{}, keys: map[runKey]string{},
		children: map[string]int{}, bodies: map[stepID]int{}, retries: map[retryOf]time.Time{}, throws: map[retryOf]*throw{}, attempts: map[retryOf]int{},
	}
	for _, f := range w.plan.workflows {
		t.workflows[f.name] = f
		f.each(func(s *stepPlan) { t.steps[f.name+"/"+s.name] = s })
		for _, s := range f.onFailure {
			t.steps[f.name+"/"+onFailurePrefix+s.name] = s
		}
		for _, s := range f.onCancel {
			t.steps[f.name+"/"+onCancelPrefix+s.name] = s
		}
	}
	return t
}

// output is what is saved; nil where nothing is.
func (e *entry) output() []byte {
	if e == nil {
		return nil
	}
	return e.saved.Output
}

func (r *record) entry(id workflow.StepID) *entry { return find(r.entries, id) }

func find(entries []entry, id workflow.StepID) *entry {
	for i := range entries {
		if entries[i].saved.StepID == id {
			return &entries[i]
		}
	}
	return nil
}

// step is a step of the run's chapter.
func (r *record) step(id workflow.StepID) stepID { return stepID{r.ID, r.Restart, id} }

// sameCode tells whether no other version than this has played the run.
func (r *record) sameCode(version int) bool {
	for _, v := range r.versions {
		if v != version {
			return false
		}
	}
	return true
}

// broken records a violation. mu is held.
func (t *witness) broken(invariant, format string, args ...any) {
	t.world.violation(invariant, format, args...)
}

// commit commits a node's changes, and checks after each of them what became of the runs that it touches: the model commits them one
// after the other, and the store all at once.
func (t *witness) commit(n *node, id string, changes []store.Change) ([]store.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx := context.Background()
	t.commits++
	touched := map[string]bool{}
	var results []store.Result
	for i := range changes {
		got, err := t.model.Commit(ctx, changes[i:i+1])
		if err != nil {
			t.broken("store", "%s: the model can't commit: %v", id, err)
			return nil, err
		}
		results = append(results, got[0])
		t.world.trace.committed(n.name, id, changes[i], got[0])
		if got[0].Err == nil {
			t.change(n, changes[i], got[0], touched)
		} else {
			t.refused(n, changes[i])
		}
	}
	if len(touched) > 1 {
		t.world.report.reached(manyInOneCommit)
	}
	if t.model == t.world.store {
		return results, nil
	}
	stored, err := t.world.store.Commit(ctx, changes)
	if err != nil {
		t.broken("store", "%s: the store can't commit: %v", id, err)
		return stored, err
	}
	t.compare(id, results, stored)
	return stored, nil
}

// compare checks that the store answers as its model does.
func (t *witness) compare(id string, expected, got []store.Result) {
	plain := func(results []store.Result) []store.Result {
		out := make([]store.Result, len(results))
		for i, r := range results {
			r.Err = kindOfError(r.Err)
			out[i] = r
		}
		return out
	}
	expected, got = plain(expected), plain(got)
	if reflect.DeepEqual(expected, got) { //nolint:govet // the errors are of the closed list
		return // as nearly always, and far cheaper to find out
	}
	if diff := cmp.Diff(expected, got, cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" { //nolint:errorlint // both are of the closed list
		t.broken("store", "%s: the store answers otherwise than its model (-model +store):\n%s", id, diff)
	}
}

// change takes in one committed change.
func (t *witness) change(n *node, change store.Change, res store.Result, touched map[string]bool) {
	w := walk{t: t, node: n, result: &res, keys: res.Keys, retries: res.Retries, touched: touched}
	w.ops(change)
	for _, id := range w.order {
		t.check(n, id, w.inputs[id])
	}
	for _, id := range w.events {
		t.checkStarts(id)
	}
	for _, id := range t.stands {
		t.checkStanding(id)
	}
	t.stands = nil
}

// walk goes through the operations of a change that were done.
type walk struct {
	t       *witness
	node    *node
	result  *store.Result
	keys    []store.KeyResult
	retries []time.Time
	touched map[string]bool
	order   []string // the runs, in the order in which they were touched
	inputs  map[string][]store.Op
	events  []eventID
}

func (w *walk) ops(change []store.Op) {
	for _, op := range change {
		switch op := op.(type) {
		case store.TakeKey:
			taken := w.keys[0]
			w.keys = w.keys[1:]
			if taken.Taken {
				if op.Key.Kind == store.KeyRequest {
					w.t.takesRequest(op.Key)
				}
				w.t.keyUntil = op.Key.ExpiresAt
				if op.Key.Kind == store.KeyClaim {
					w.t.takes(w.node, op.Key)
				}
				w.ops(op.Then)
			} else if op.Key.Kind == store.KeySend {
				w.t.world.report.reached(sendRepeated)
			} else if r := w.t.runs[taken.Key.Owner]; op.Key.Kind == store.KeyRun && r != nil && r.dropped {
				w.t.world.report.reached(keyOfGone)
			}
		case store.InsertRun:
			w.t.inserted(op)
			w.touch(op.Run.ID, op)
			if op.Run.EventID != "" && op.Run.ReplayOf == "" {
				w.t.events[eventID{op.Run.Event, op.Run.EventID}].started[op.Run.App+"/"+op.Run.Workflow]++
			}
		case store.InsertEvent:
			id := eventID{op.Event.Name, op.Event.ID}
			if w.t.events[id] != nil {
				w.t.broken("W8", "event %s %s is stored twice", id.name, id.id)
			}
			w.t.events[id] = &eventRecord{started: map[string]int{}}
			w.t.stores(id, op.Event)
			w.t.child(op.Event.Payload)
			w.events = append(w.events, id)
		case store.UpdateRun:
			w.touch(op.Run.ID, op)
			w.updates(&op)
			if len(op.Open) > 0 {
				w.t.opens(w.t.runs[op.Run.ID], op.Open, w.result.Opened)
			}
		case store.TakeCursor:
			w.t.world.report.reached(cursorTaken)
		case store.UseEvent:
			w.t.uses(op)
		case store.PassKey:
			w.t.passes(w.node, op)
		case store.CloseWait:
			w.t.forgets(op)
		case store.SaveSteps:
			w.touch(op.RunID, op)
			w.saves(&op)
		case store.InsertCallback:
			w.t.makes(op)
		case store.ExpireCallback:
			w.t.expires(op)
		case store.EndCallback:
			w.t.posts(op)
		case store.AddLogs:
			w.t.logged(op)
		case store.DropRuns:
			w.t.drops(op, w.result.Dropped)
		default:
			w.due(op, change)
		}
	}
}

// due takes in what an operation does to schedules and to events for later.
func (w *walk) due(op store.Op, change store.Change) {
	switch op := op.(type) {
	case store.PutSchedule:
		w.t.moves(w.node, op.Schedule, change)
	case store.DropSchedule:
		w.t.undeclares(op.ID)
	case store.PutLater:
		w.t.keeps(op.Event)
	case store.DropLater:
		w.t.emitsLater(w.node, op, change)
	}
}

// updates takes in what an update does besides; the run's record is as it was before.
func (w *walk) updates(op *store.UpdateRun) {
	t, r := w.t, w.t.runs[op.Run.ID]
	for _, s := range op.Append {
		t.checkInClosing(r, "has an entry", s.StepID)
	}
	for _, o := range op.Open {
		t.checkInClosing(r, "is registered", o.StepID)
	}
	t.closesNow(r, op)
	t.restartsNow(r, op)
	if op.CloseWaits {
		t.closes(r)
	}
}

// saves takes in what a save has: the run's record is as it was before.
func (w *walk) saves(op *store.SaveSteps) {
	t, r := w.t, w.t.runs[op.RunID]
	for _, s := range op.Steps {
		t.checkInClosing(r, "is saved", s.StepID)
	}
	for i, s := range op.Retries {
		t.checkInClosing(r, "throws", s.StepID)
		key := retryOf{r.step(s.StepID), s.Attempt}
		t.checkPause(w.node, r, s)
		t.first(key.step)
		if due := w.retries[i]; !due.IsZero() || t.retries[key].IsZero() {
			t.retries[key] = stdcmp.Or(due, s.RetryAt)
		}
	}
	w.retries = w.retries[len(op.Retries):]
	for i, start := range op.Starts {
		t.checkInClosing(r, "starts", start.StepID)
		t.world.report.reached(startRecorded)
		if w.result.Starts[i].Entry == 0 {
			t.starts[startOf{retryOf{r.step(start.StepID), start.Attempt}, op.CallID}] = true
			t.begun[r.step(start.StepID)] = true
			t.first(r.step(start.StepID))
		}
	}
}

func (w *walk) touch(run string, op store.Op) {
	if w.inputs == nil {
		w.inputs = map[string][]store.Op{}
	}
	if w.inputs[run] == nil {
		w.order = append(w.order, run)
	}
	w.inputs[run] = append(w.inputs[run], op)
	w.touched[run] = true
}

// inserted takes in a new run.
func (t *witness) inserted(op store.InsertRun) {
	run := op.Run
	if t.runs[run.ID] != nil {
		t.broken("W8", "run %s is stored twice", run.ID)
	}
	first := run
	first.Call, first.Epoch, first.Status, first.Version, first.NextAt = nil, 0, workflow.Queued, 0, run.CreatedAt
	r := &record{Run: first, payload: string(op.Payload)}
	r.chapter, r.oneCode = chapterOf(op.Payload), true
	r.before, r.after = int64(len(t.stored)), int64(len(t.stored))
	r.open, r.orphans, r.used, r.startAt = map[workflow.StepID]*openWait{}, map[string]*openWait{}, map[int64]bool{}, run.CreatedAt
	if run.Status == workflow.Queued {
		r.NextAt, r.startAt = run.NextAt, run.NextAt
	}
	t.runs[run.ID], r.touchedAt = r, time.Now()
	t.checkTimeout(r)
	t.takesOver(r, op.Replay)
	for _, w := range op.Waits {
		if w.Kind == workflow.KindCancel {
			r.cancels = w.Event.Names[0]
			t.listening[r.cancels] = append(t.listening[r.cancels], r)
		}
	}
	if run.Key != "" {
		key := runKey{run.App, run.Workflow, run.Key}
		if owner := t.keys[key]; owner != "" && t.runs[owner].keyOver(t.world.latest()) {
			t.world.report.reached(keyIsOver)
		} else if owner != "" {
			t.broken("W8", "key %q of %s is run %s's, and run %s has it too", run.Key, run.Workflow, owner, run.ID)
		}
		t.keys[key], r.keyUntil = run.ID, t.keyUntil
	}
	if run.EventID == "" && run.ReplayOf == "" {
		t.child(op.Payload)
	}
}

// child counts what a step has sent.
func (t *witness) child(value []byte) {
	var in payload
	if json.Unmarshal(value, &in) != nil || in.From == "" {
		return
	}
	t.children[in.From]++
	if t.children[in.From] > 1 {
		t.broken("W8", "the send %q is stored %d times (K1)", in.From, t.children[in.From])
	}
}

// checkStarts checks that an event has started each workflow that listens to it, once (W7).
func (t *witness) checkStarts(id eventID) {
	started := t.events[id].started
	for _, f := range t.world.plan.workflows {
		listens := f.event == id.name && f.event != "" || f.webhook != "" && "webhook."+f.webhook == id.name
		if n := started[f.app+"/"+f.name]; listens && n != 1 || !listens && n != 0 {
			t.broken("W7", "event %s %s started %s %d times", id.name, id.id, f.name, n)
		}
	}
}

// refused takes in a change that the store did not accept.
func (t *witness) refused(n *node, change store.Change) {
	t.world.report.reached(staleRefused)
	update, ok := change[0].(store.UpdateRun)
	if !ok || update.Run.Call == nil {
		return
	}
	if _, begun := t.calls[update.Run.Call.ID]; begun {
		return
	}
	run := t.runs[update.Run.ID]
	if run.Call != nil && t.calls[run.Call.ID].begunBy != n && run.Epoch == update.Run.Epoch {
		t.world.report.reached(claimedTwice)
	}
}

// called is told that a node makes a call: its begin must be stored (W6).
func (t *witness) called(n *node, call string, message []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[call]
	if c == nil {
		t.broken("W6", "%s makes call %s, and no commit has begun it", n.name, call)
		return
	}
	if c.message != nil {
		t.broken("C3", "%s makes call %s a second time", n.name, call)
	}
	c.message = message
	p := t.world.processAt(t.world.urlOf(t.runs[c.run].App))
	if p != nil {
		r := t.runs[c.run]
		r.oneCode = r.oneCode && (r.codeOf == 0 || r.codeOf == p.version+1)
		r.codeOf = p.version + 1
		r.versions = append(r.versions, p.version)
	}
}

// describe shows a change in the trace.
