package sim

import (
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/workflow"
)

// grace is how long bodies in flight may still save once their run is ending (Z1).
const grace = 30 * time.Second

// nodeLostBy is when other nodes have long found out that one is lost, which holds what is due of its calls until then.
const nodeLostBy = 30 * time.Second

// overdue tells whether what has been due since all of those instants should long have been done. Where a clock has stepped, nodes may see
// another time.
func (t *witness) overdue(since ...time.Time) bool {
	patience := soon
	if t.world.plan.nodes > 1 {
		patience = nodeLostBy
	}
	return t.world.steady() && t.world.undisturbed(since...) > patience
}

// checkLate: what a run's time has come for is done soon (W5). mu is held.
func (t *witness) checkLate(r *record, before, run *workflow.Run) {
	timesOut := run.Ending != nil && run.Ending.Reason == workflow.EndingTimedOut && before.Ending == nil
	concluded := before.Phase() == workflow.PhaseEnding && run.Phase() != workflow.PhaseEnding
	switch {
	case timesOut:
		if t.overdue(before.TimeoutAt, t.world.freed(run.ID)) {
			t.broken("W5", "run %s times out %v late", run.ID, time.Since(before.TimeoutAt))
		}
	case concluded:
		t.checkGrace(r, before)
	case before.Status == workflow.Waiting && run.Status == workflow.Queued && !before.NextAt.IsZero():
		if t.overdue(before.NextAt, r.touchedAt, t.world.freed(run.ID)) {
			t.broken("W5", "run %s wakes %v late", run.ID, time.Since(before.NextAt))
		}
	}
}

// checkGrace: an ending run goes on when its call has ended, or when the grace of its bodies is over (Z1).
func (t *witness) checkGrace(r *record, before *workflow.Run) {
	over := before.Ending.At.Add(grace)
	if c := t.calls[callOf(before)]; t.calm && !r.forced && (c == nil || !c.ended) && time.Until(over) > instant {
		t.broken("Z1", "run %s ends %v before the grace of its call %s is over", r.ID, time.Until(over), callOf(before))
	}
	if t.overdue(over, t.world.freed(r.ID)) {
		t.broken("Z1", "run %s ends %v after the grace of its call %s was over", r.ID, time.Since(over), callOf(before))
	}
}

// checkTurn: a run whose call begins was not due long after another of its app that is still in line, and where nothing holds it up it is
// called soon (W5).
func (t *witness) checkTurn(r *record, before *workflow.Run) {
	if t.calm && t.world.plan.concurrency >= 100 && t.overdue(before.NextAt, r.touchedAt, t.world.freed(r.ID)) {
		t.broken("W5", "run %s is called %v after it was due, and its app had room", r.ID, time.Since(before.NextAt))
	}
	if t.world.plan.nodes > 1 {
		return // each has a line of its own
	}
	for id, o := range t.runs {
		if o.App != r.App || id == r.ID || o.Phase() != workflow.PhaseQueued || before.NextAt.Sub(o.NextAt) <= soon || !t.overdue(o.NextAt, o.touchedAt, t.world.freed(id)) {
			continue
		}
		if o.passedAt.IsZero() { // what is taken from the line at once may be called in another order
			o.passedAt = time.Now()
		} else if time.Since(o.passedAt) > time.Second {
			t.broken("W5", "run %s is called, due at %v, before run %s, which is due since %v", r.ID, before.NextAt, id, o.NextAt)
		}
	}
}

// checkRoom: a call is made only where its app has fewer than it takes at once, whichever nodes hold them (K2). mu is held.
func (t *witness) checkRoom(r *record) {
	if t.world.plan.nodes == 1 {
		return // one that was taken for dead and wakes beside its successor knows nothing of that
	}
	open := []string{r.ID}
	for id, o := range t.runs {
		c := t.calls[callOf(&o.Run)]
		if id == r.ID || o.App != r.App || o.Status != workflow.Running || c == nil || c.message == nil {
			continue
		}
		if time.Since(c.backAt) > soon { // one that came back by a save: what others begin cannot know at once
			open = append(open, id)
		}
	}
	if most := t.world.plan.concurrency; len(open) > most {
		slices.Sort(open)
		t.broken("concurrency", "run %s is called, and then %s has %d calls at once, which takes %d: of %v", r.ID, r.App, len(open), most, open)
	}
}

// checkSoon: a wait is over soon after what it waits for (W5).
func (t *witness) checkSoon(id stepID, w *openWait, since time.Time) {
	if t.overdue(since, w.openedAt, t.world.freed(id.run)) {
		t.broken("W5", "%s is over %v after what it waited for", id, time.Since(since))
	}
}

// checkTimeout: a run has the timeout of its workflow, from when it is to start (Z1).
func (t *witness) checkTimeout(r *record) {
	f := t.workflows[r.Workflow]
	if f == nil {
		return
	}
	var want time.Time
	if f.timeout > 0 {
		want = r.startAt.Add(f.timeout)
	}
	if !r.TimeoutAt.Equal(want) {
		t.broken("Z1", "run %s is to start at %v with a timeout of %v, and times out at %v", r.ID, r.startAt, f.timeout, r.TimeoutAt)
	}
}

// calling is told that a node makes a call's request: an app has no more at once than it takes.
func (t *witness) calling(n *node, request call.Request) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.calls[request.ID]; c != nil && time.Now().Before(request.SendBefore) { // later it is not sent (C3)
		t.checkRoom(t.runs[c.run])
	}
	app := request.Target.URL
	if t.requests[n] == nil {
		t.requests[n] = map[string]int{}
	}
	t.requests[n][app]++
	open := t.requests[n][app]
	for other, apps := range t.requests {
		if other != n && t.world.plan.nodes > 1 && !other.isDead() {
			open += apps[app]
		}
	}
	// What a node that was taken for lost has open may be another's by now, and is nobody's until they have heard of each other.
	known := t.world.plan.nodes == 1 || t.spared
	if most := t.world.plan.concurrency; open > most && known {
		t.broken("concurrency", "%s makes a call to %s, which takes %d at once, and has %d now", n.name, app, most, open)
	} else if open == most {
		t.world.report.reached(appFull)
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.requests[n][app]--
	}
}
