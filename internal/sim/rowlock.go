package sim

import (
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// RunLocked is the fault of a change that is refused since somebody who is no server has locked one of its runs (N3).
const RunLocked = "commit: a run is locked"

// runsLocked is the kind of the planned fault: people lock runs, and leave their transactions open.
const runsLocked = "runs are locked for a while"

// lockWait is how long a batch waits for a lock before the store finds out which runs are locked.
const lockWait = 5 * time.Second

// lockRuns adds to a plan that runs are locked.
func (p *plan) lockRuns(d *dice, span time.Duration) {
	for range 1 + d.below(4) {
		lasts := []time.Duration{100 * time.Millisecond, 8 * time.Second, time.Minute}[d.below(3)]
		p.faults = append(p.faults, faultPlan{at: d.between(0, span+5*time.Second), kind: runsLocked, lasts: d.between(time.Millisecond, lasts)})
	}
}

// holdLocks locks every other of the runs that have not ended, for a while.
func (w *world) holdLocks(f faultPlan) {
	var locked []string
	for i, id := range w.witness.going() {
		if (i+int(f.lasts))%2 == 0 {
			locked = append(locked, id)
		}
	}
	w.trace.add("somebody", "locks runs", f.lasts.String())
	until := time.Now().Add(f.lasts)
	w.mu.Lock()
	for _, id := range locked {
		if w.locked[id].Before(until) {
			w.locked[id] = until
		}
	}
	w.mu.Unlock()
	rest(f.lasts)
}

// freed is when a run is free, or was, if it is or was ever locked. What is to be done for it comes soon after that, and for others meanwhile.
func (w *world) freed(runID string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.locked[runID]
}

// going are the runs that have not ended.
func (t *witness) going() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for id, r := range t.runs {
		if !r.Status.Final() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// isLocked tells whether a run of a change is locked now, and whether this node learns it only now.
func (d *disk) isLocked(change store.Change) (locked, learns bool) {
	w := d.node.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range runsOf(change) {
		if !time.Now().Before(w.locked[id]) {
			delete(d.known, id)
			continue
		}
		locked, learns = true, learns || !d.known[id]
		d.known[id] = true
	}
	return locked, learns
}

// runsOf are the runs whose rows a change locks.
func runsOf(change store.Change) (ids []string) {
	for _, op := range change {
		switch op := op.(type) {
		case store.TakeKey:
			ids = append(ids, runsOf(op.Then)...)
		case store.InsertRun:
			if op.Replay != nil {
				ids = append(ids, op.Replay.RunID)
			}
		case store.UpdateRun:
			ids = append(ids, op.Run.ID)
		case store.SaveSteps:
			ids = append(ids, op.RunID)
		case store.UseEvent:
			ids = append(ids, op.RunID)
		case store.LookedBack:
			ids = append(ids, op.RunID)
		case store.AddLogs:
			ids = append(ids, op.RunID)
		default: // it is of no run
		}
	}
	return ids
}

// writeFree commits what is of no run that is locked, and refuses the rest. The first batch of a node that meets a lock waits for it in vain.
func (d *disk) writeFree(id string, changes []store.Change, dice *dice) ([]store.Result, error) {
	n, w := d.node, d.node.world
	results := make([]store.Result, len(changes))
	var free []store.Change
	var places []int
	waits := false
	for i, change := range changes {
		locked, learns := d.isLocked(change)
		if waits = waits || learns; !locked {
			free, places = append(free, change), append(places, i)
			continue
		}
		results[i].Err = store.ErrRowLocked
		w.report.fault(RunLocked)
	}
	if waits {
		w.disturb()
		defer w.disturb()
		if !n.pass(lockWait) {
			return nil, store.ErrUnknown
		}
	}
	if len(free) == 0 {
		return results, nil
	}
	written, err := d.write(id, free, dice)
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		results[place] = written[i]
	}
	return results, nil
}
