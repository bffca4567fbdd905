package e2e

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/workflow"
)

const (
	// longBody is how long a body runs on after the node that held its call is gone: longer than a call that nobody hears is kept.
	longBody = 20 * time.Second
	// wokenFor is how long a node that has stood still is given to do harm: its questions and its looks at the store take less (C1, N4).
	wokenFor = 12 * time.Second
)

// emitted emits an event at a moment, and returns when it is stored.
func (w *world) emitted(name string) {
	w.t.Helper()
	if _, err := w.api.Emit(w.t.Context(), client.Event{Event: name}); err != nil {
		w.t.Fatal(err)
	}
}

// waits is a run that waits, between two bodies.
func waits(s plan.Step) plan.Plan {
	return plan.Plan{Steps: []plan.Step{{Name: "before"}, s, {Name: "after"}}}
}

// standsAt waits until a run has come to a wait.
func (c *cluster) standsAt(runID string) {
	c.t.Helper()
	eventually(c.t, within, "the run to wait", func() bool { return c.get(runID).Status == "waiting" })
}

// endedWithin waits for a run's end, which comes in time from an instant on, and logs how long it took.
func (c *cluster) endedWithin(limit time.Duration, what, runID string, since time.Time) {
	c.t.Helper()
	run := c.completed(runID, limit+within)
	took := run.EndedAt.Sub(since)
	c.t.Logf("%s ended %v after it could", what, took.Round(10*time.Millisecond))
	if took > limit {
		c.t.Errorf("%s ended %v after it could, more than %v", what, took, limit)
	}
}

// heldTogether starts a run of each app, of which each waits in a body for its own gate, and whose calls one node holds.
func (c *cluster) heldTogether(gate string) (node *clusterNode, ids []string) {
	c.t.Helper()
	for _, language := range languages {
		for {
			id := c.run(language, gated(gate+"."+language))
			c.began(id, "two", 1)
			holder := c.holder(id)
			if node == nil || holder == node {
				node, ids = holder, append(ids, id)
				break
			}
			c.spare = append(c.spare, id)
		}
	}
	return node, ids
}

// openAll opens the gates of heldTogether, and checks that its runs complete with so many bodies of the step that waited. Runs that were
// begun beside them at other nodes complete with one.
func (c *cluster) openAll(gate string, ids []string, twos ...int) {
	c.t.Helper()
	for _, language := range languages {
		c.open(gate + "." + language)
	}
	for i, id := range ids {
		run := c.completed(id, within)
		c.bodies(id, map[string]int{"one": 1, "two": twos[i], "three": 1})
		c.results(id)
		defer c.unchanged(run)
	}
	for _, id := range c.spare {
		c.completed(id, within)
	}
	c.spare = nil
}

// C1: the app lives and says so at another node, which takes the call over. What waits goes on as if nothing had been.
func TestAKilledNodeRepeatsNothingAndStopsNoRun(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages})
	node, running := c.heldTogether("gate")
	var heard, invoked, asleep []string
	for _, language := range languages {
		heard = append(heard, c.run(language, waits(plan.Step{Name: "wait", WaitsFor: "woken"})))
		invoked = append(invoked, c.run(language, waits(plan.Step{Name: "invoke", Invokes: []plan.Step{{Name: "child", Gate: "child"}}})))
		asleep = append(asleep, c.run(language, waits(plan.Step{Name: "sleep", SleepsMs: 5_000})))
	}
	waiting := slices.Concat(heard, invoked, asleep)
	for _, id := range waiting {
		c.standsAt(id)
	}
	calls := []*workflow.Call{c.record(running[0]).Call, c.record(running[1]).Call}
	killed := time.Now()
	node.kill()
	c.emitted("woken")
	c.open("child")
	for i, id := range running {
		took := c.movedFrom(id, calls[i].Node, killed)
		t.Logf("another node took the call over %v after the holder was killed", took.Round(10*time.Millisecond))
		if now := c.record(id).Call; now.ID != calls[i].ID {
			t.Errorf("the call is %s, was %s: a call began beside a body that runs", now.ID, calls[i].ID)
		}
	}
	for i := range languages {
		c.endedWithin(goOnWithin, "a run that waits for an event", heard[i], killed)
		c.endedWithin(goOnWithin, "a run that waits for a child", invoked[i], killed)
		c.endedWithin(goOnWithin, "a run that sleeps", asleep[i], c.get(asleep[i]).CreatedAt.Add(5*time.Second))
	}
	pass(t.Context(), time.Until(killed.Add(longBody)))
	c.openAll("gate", running, 1, 1)
	for _, id := range waiting {
		c.bodies(id, map[string]int{"before": 1, "after": 1})
	}
}

// What one node does for all (timers, events, schedules) another does when it is gone, and nothing is done twice.
func TestTheOldestNodeIsReplacedWhenItIsKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages})
	var heard, asleep, ticked []string
	for _, language := range languages {
		heard = append(heard, c.run(language, waits(plan.Step{Name: "wait", WaitsFor: "woken"})))
		scheduled := client.PutSchedule{Workflow: plan.Planned, App: language, Schedule: "* * * * *", Payload: asJSON(t, map[string]any{"steps": []plan.Step{{Name: "ticked"}}})}
		if _, err := c.api.PutSchedule(t.Context(), language, scheduled); err != nil {
			t.Fatal(err)
		}
	}
	for _, runID := range heard {
		c.standsAt(runID)
	}
	tick := c.nextTick()
	pass(t.Context(), time.Until(tick.Add(-2*time.Second)))
	for _, language := range languages {
		asleep = append(asleep, c.run(language, waits(plan.Step{Name: "sleep", SleepsMs: 2_000})))
	}
	for _, runID := range asleep {
		c.standsAt(runID)
	}
	c.oldest().kill()
	c.emitted("woken")
	emitted := time.Now()
	for i, language := range languages {
		c.endedWithin(goOnWithin, "a run that waits for an event", heard[i], emitted)
		c.endedWithin(goOnWithin, "a run that sleeps", asleep[i], c.get(asleep[i]).CreatedAt.Add(2*time.Second))
		ticked = append(ticked, c.tickOf(language, tick).ID)
	}
	for _, runID := range slices.Concat(heard, asleep) {
		c.bodies(runID, map[string]int{"before": 1, "after": 1})
	}
	for _, runID := range ticked {
		c.endedWithin(goOnWithin, "the run of a tick", runID, tick)
	}
}

// nextTick is the next tick of the schedules, which all have the same.
func (c *cluster) nextTick() time.Time {
	c.t.Helper()
	list, err := c.api.Schedules(c.t.Context(), client.Page{})
	if err != nil || len(list.Data) == 0 || list.Data[0].NextAt == nil {
		c.t.Fatalf("the schedules: %s, %v", asJSON(c.t, list), err)
	}
	return list.Data[0].NextAt.Time
}

// tickOf waits for the run that a tick has started, and checks that it is one.
func (c *cluster) tickOf(app string, tick time.Time) apitype.Run {
	c.t.Helper()
	var runs []apitype.Run
	eventually(c.t, time.Until(tick)+goOnWithin, "the tick of "+app, func() bool {
		runs = c.runsOf(func(run apitype.Run) bool { return run.App == app && tickOf(c.t, run).Equal(tick) })
		return len(runs) > 0
	})
	if len(runs) != 1 {
		c.t.Errorf("the tick has started %d runs", len(runs))
	}
	return runs[0]
}

// tickOf is the tick that has started a run; zero for none.
func tickOf(t *testing.T, run apitype.Run) time.Time {
	return decode[struct {
		Time time.Time `json:"time"`
	}](t, run.Payload).Time
}

func TestAKilledAppIsPickedUpWhileAllNodesLive(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages})
	c.pickedUp(goOnWithin, func(*clusterNode) {}) // its process may have polled any node, and the holder asks in full, twice at most (C1)
}

func TestAnAppAndItsNodeThatAreKilledTogetherCostSeconds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages})
	c.pickedUp(goOnWithin, func(n *clusterNode) { n.kill() })
}

// pickedUp has the apps killed while they run bodies, with what is done to the node that holds the calls, and started again. The bodies
// run again, in time, and no saved step does.
func (c *cluster) pickedUp(limit time.Duration, also func(*clusterNode)) {
	c.t.Helper()
	node, ids := c.heldTogether("gate")
	killed := time.Now()
	also(node)
	for _, language := range languages {
		c.apps[language].kill()
	}
	for _, language := range languages {
		c.apps[language].start()
	}
	for i, id := range ids {
		again := c.markWithin(limit+within, plan.MarkBody, id, "two", 2)
		took := time.UnixMilli(int64(again.At)).Sub(killed)
		c.t.Logf("%s: picked up after %v", languages[i], took.Round(10*time.Millisecond))
		if took > limit {
			c.t.Errorf("%s: picked up after %v, more than %v", languages[i], took, limit)
		}
	}
	c.openAll("gate", ids, 2, 2)
}

// A node stands still for longer than its calls' lease, and its calls go on elsewhere, with their bodies or anew. When it wakes, it knows
// nothing of that, and what it tries is refused.
func TestAPausedNodeDoesNoHarmWhenItWakes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, newPostgres(t), clusterSpec{apps: languages, flags: []string{"--lease", shortLease.String()}})
	c.wakesShortly()
	for i := range languages {
		c.wakesLate(i)
	}
}

// wakesShortly has the node stand still for longer than a lease, and for less than others wait for it.
func (c *cluster) wakesShortly() {
	c.t.Helper()
	node, ids := c.heldTogether("short")
	node.signal(syscall.SIGSTOP)
	pass(c.t.Context(), shortLease+2*time.Second)
	c.wake(node, ids)
	c.openAll("short", ids, 1, 1)
}

// wakesLate has the node stand still until all its calls are others': that of the app that is killed meanwhile is a new one by then.
func (c *cluster) wakesLate(killed int) {
	c.t.Helper()
	gate := "late " + languages[killed]
	node, ids := c.heldTogether(gate)
	before := []*workflow.Call{c.record(ids[0]).Call, c.record(ids[1]).Call}
	stopped := time.Now()
	node.signal(syscall.SIGSTOP)
	app := c.apps[languages[killed]]
	app.kill()
	app.start()
	lives := 1 - killed
	took := c.movedFrom(ids[lives], before[lives].Node, stopped)
	c.t.Logf("another node took the call over %v after the holder stood still", took.Round(10*time.Millisecond))
	c.markWithin(goOnWithin+within, plan.MarkBody, ids[killed], "two", 2)
	c.wake(node, ids)
	if now := c.record(ids[lives]).Call; now.ID != before[lives].ID {
		c.t.Errorf("the call of the app that lives is %s, was %s", now.ID, before[lives].ID)
	}
	if now := c.record(ids[killed]).Call; now.ID == before[killed].ID {
		c.t.Error("the run of the app that was killed was not called anew")
	}
	twos := []int{1, 1}
	twos[killed] = 2
	c.openAll(gate, ids, twos...)
}

// wake has a node go on, and checks that it changes nothing of runs whose calls it held.
func (c *cluster) wake(node *clusterNode, ids []string) {
	c.t.Helper()
	var before []workflow.Run
	for _, id := range ids {
		before = append(before, c.record(id))
	}
	node.signal(syscall.SIGCONT)
	pass(c.t.Context(), wokenFor)
	for i, id := range ids {
		was, now := before[i], c.record(id)
		if now.Call == nil || now.Call.ID != was.Call.ID || now.Call.Node != was.Call.Node || now.Epoch != was.Epoch {
			c.t.Errorf("the run's call is %+v of epoch %d, was %+v of epoch %d before the node woke\n%s", now.Call, now.Epoch, was.Call, was.Epoch, c.said(id))
		}
	}
}
