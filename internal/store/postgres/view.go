package postgres

import (
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// view is what a transaction knows of the rows that its changes touch, and what it has to write of them. It is one goroutine's, and lives
// as long as a part of a batch does.
//
// Each row remembers whether the database has it (stored) and whether it has to be written (changed); flush makes statements of that.
type view struct {
	out *batch
	err error // the first that playing met; it fails the batch

	runs       map[string]*run // nil or absent: there is no such run
	steps      map[stepKey]*standing
	attempts   map[attemptKey]*attempt
	attemptsOf map[string][]*attempt // the same, by run
	waits      map[string][]*wait    // by run
	uses       map[useKey]*use
	events     map[eventKey]bool
	keys       map[keyID]*key
	callbacks  map[string]*callback
	schedules  map[[2]string]*schedule
	later      map[eventKey]*later
	deliveries map[string]bool
	lines      map[lineKey]bool
	lineCounts map[chapterKey]int64
	cursors    map[string]*cursor
	nodes      map[string]*store.Node // nil: dropped
	apps       map[[2]string]*app

	lastEvent     int64
	seqs, waitIDs []int64 // drawn, and not given out yet

	written writes
}

// writes are rows that are only added, and removals, in their order.
type writes struct {
	steps         []newStep
	events        []store.Event
	logs          []newLine
	deliveries    []store.Delivery
	deletedWaits  []int64
	deletedUses   []int64     // of these runs, by seq
	deletedScopes [][2]string // of keys of sends, by environment and run
	deletedLater  []eventKey
}

// run is a run's row. What a save has to know of it is always known, the whole record only once the batch has written it.
type run struct {
	id          string
	seq         int64
	env         string
	version     int64
	callID      string
	nonce       string
	restart     int
	ended       bool
	history     store.History
	lines       int64
	eventsAfter int64

	record  *workflow.Run
	values  values
	stored  bool
	changed bool // what a save changes
	// copied: the database copies its first entries; only it knows how large they are.
	copied bool
}

// values are a run's; nil: as it was.
type values struct {
	payload, output, failure, trees []byte
	changed                         bool
}

type standing struct {
	entry           int64
	status          string
	output, failure []byte
}

type newStep struct {
	run, restart, entry int64
	workflow.Step
}

type newLine struct {
	run    int64
	callID string
	store.LogLine
}

type attempt struct {
	store.Attempt
	stored, changed, deleted bool
}

type wait struct {
	store.Wait
	childLives               bool // as it was in the database
	stored, changed, deleted bool
}

type use struct{ stored, used bool }

type key struct {
	store.Key
	stored, changed bool
	gone            bool // freed with its scope
}

type callback struct {
	store.Callback
	run                      int64
	stored, changed, deleted bool
}

type schedule struct {
	store.Schedule
	stored, changed, deleted bool
}

type app struct {
	store.App
	stored, changed bool
}

type later struct {
	store.LaterEvent
	stored bool
}

func newView(out *batch) *view {
	return &view{
		out: out, runs: map[string]*run{}, steps: map[stepKey]*standing{}, attempts: map[attemptKey]*attempt{}, attemptsOf: map[string][]*attempt{},
		waits: map[string][]*wait{}, uses: map[useKey]*use{}, events: map[eventKey]bool{}, keys: map[keyID]*key{}, callbacks: map[string]*callback{},
		schedules: map[[2]string]*schedule{}, later: map[eventKey]*later{}, deliveries: map[string]bool{}, lines: map[lineKey]bool{},
		lineCounts: map[chapterKey]int64{}, cursors: map[string]*cursor{}, nodes: map[string]*store.Node{}, apps: map[[2]string]*app{},
	}
}

// follow takes over what a changed record says.
func (x *run) follow(r *workflow.Run) {
	x.record, x.version, x.restart, x.ended, x.callID, x.nonce = r, r.Version, r.Restart, r.Status.Final(), "", ""
	if r.Call != nil {
		x.callID, x.nonce = r.Call.ID, r.Call.Nonce
	}
}

func (v *view) addAttempt(k attemptKey, a *attempt) {
	v.attempts[k] = a
	v.attemptsOf[k.run] = append(v.attemptsOf[k.run], a)
}

// alive gives a key that somebody owns at now; nil: it is free.
func (v *view) alive(k store.Key, now time.Time) *key {
	found := v.keys[idOf(k)]
	if found == nil || found.gone || (!found.ExpiresAt.IsZero() && !found.ExpiresAt.After(now)) {
		return nil
	}
	return found
}

// isUsed tells whether a run has used an event.
func (v *view) isUsed(k useKey) bool { return v.uses[k] != nil && v.uses[k].used }

// callbackOf finds the callback that a step made.
func (v *view) callbackOf(k stepKey) *callback {
	for _, c := range v.callbacks {
		if !c.deleted && c.RunID == k.run && c.StepID == k.StepID {
			return c
		}
	}
	return nil
}

func (v *view) callback(token string) *callback {
	if c := v.callbacks[token]; c != nil && !c.deleted {
		return c
	}
	return nil
}

// openWaits are a run's waits of one step.
func (v *view) openWaits(k stepKey) []*wait {
	var out []*wait
	for _, w := range v.waits[k.run] {
		if !w.deleted && w.StepID == k.StepID {
			out = append(out, w)
		}
	}
	return out
}

// lives tells whether a wait's child is there and has not ended. That of another transaction may end meanwhile: its wait then stays, and
// is found by who looks for the kin of what has ended.
func (v *view) lives(w *wait) bool {
	if w.Child == "" {
		return false
	}
	if child, known := v.runs[w.Child]; known {
		return !child.ended
	}
	return w.childLives
}

// draw takes a number of those that were drawn.
func draw(from *[]int64) int64 {
	n := (*from)[0]
	*from = (*from)[1:]
	return n
}
