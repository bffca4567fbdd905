package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// severed is a store that its node can be cut off from: to the others such a node is as good as dead.
type severed struct {
	store.Store
	cut    atomic.Bool
	apart  atomic.Bool                                  // nobody sees its heartbeats, and it hears nothing but that others are there
	before atomic.Pointer[func(changes []store.Change)] // called before each commit; nil: nothing is
	reads  atomic.Pointer[func()]                       // called before the schedules of an app are read; nil: nothing is
	looks  atomic.Pointer[func()]                       // called after the others were looked at, before that is heard of; nil: nothing is
}

var errSevered = errors.New("no way to the store")

func (s *severed) Commit(ctx context.Context, changes []store.Change) ([]store.Result, error) {
	if s.cut.Load() {
		return nil, errSevered
	}
	if before := s.before.Load(); before != nil {
		(*before)(changes)
	}
	if _, beats := changes[0][0].(store.PutNode); beats && s.apart.Load() {
		return make([]store.Result, len(changes)), nil
	}
	return s.Store.Commit(ctx, changes)
}

func (s *severed) Schedules(ctx context.Context, q store.ScheduleQuery) ([]store.Schedule, error) {
	if reads := s.reads.Load(); reads != nil && q.App != "" {
		(*reads)()
	}
	return s.Store.Schedules(ctx, q)
}

func (s *severed) Nodes(ctx context.Context) ([]store.Node, error) {
	if s.cut.Load() {
		return nil, errSevered
	}
	nodes, err := s.Store.Nodes(ctx)
	if s.apart.Load() {
		for i := range nodes {
			nodes[i].State = []byte(`{}`)
		}
	}
	return nodes, err
}

func (s *severed) CallCounts(ctx context.Context, except string) ([]store.CallCount, error) {
	counts, err := s.Store.CallCounts(ctx, except)
	if looks := s.looks.Load(); looks != nil {
		(*looks)()
	}
	return counts, err
}

func (s *severed) Heads(ctx context.Context, ids []string) ([]store.Head, error) {
	if s.cut.Load() {
		return nil, errSevered
	}
	if s.apart.Load() {
		return nil, nil
	}
	return s.Store.Heads(ctx, ids)
}

func (s *severed) Load(ctx context.Context, id string) (workflow.Run, store.History, error) {
	if s.cut.Load() {
		return workflow.Run{}, store.History{}, errSevered
	}
	return s.Store.Load(ctx, id)
}

// cluster is nodes on one model store.
type cluster struct {
	store *memory.Store
	app   *app
	nodes []*node
	ways  []*severed
}

// startCluster starts so many nodes, which all know an app with a workflow w, and take work.
func startCluster(t *testing.T, size int, o engine.Options) *cluster {
	t.Helper()
	c := &cluster{store: memory.New(), app: newApp(wire.Workflow{Name: "w"})}
	for range size {
		c.join(t, o)
	}
	c.nodes[0].know(t)
	time.Sleep(15 * time.Second)
	return c
}

// startCalling starts nodes and a run, whose first call is out.
func startCalling(t *testing.T, size int) (*cluster, *sentCall) {
	t.Helper()
	c := startCluster(t, size, engine.Options{})
	c.nodes[0].start(t, "w")
	return c, c.app.next(t, time.Second)
}

func (c *cluster) join(t *testing.T, o engine.Options) {
	t.Helper()
	way := &severed{Store: c.store}
	o.Node = fmt.Sprintf("node%d", len(c.nodes))
	c.ways = append(c.ways, way)
	c.nodes = append(c.nodes, startNode(t, way, c.app, o))
}

// holder is the node that holds a run's call, and another one.
func (c *cluster) holder(t *testing.T, runID string) (holder, other int) {
	t.Helper()
	run, _, err := c.store.Load(t.Context(), runID)
	if err != nil || run.Call == nil {
		t.Fatalf("the run has no call: %v, %v", run, err)
	}
	for i := range c.nodes {
		if run.Call.Node == fmt.Sprintf("node%d", i) {
			return i, (i + 1) % len(c.nodes)
		}
	}
	t.Fatalf("%q holds the call", run.Call.Node)
	return 0, 0
}

// inFlight is how many calls each node holds, by the store at one moment.
func (c *cluster) inFlight(t *testing.T) (counts []store.CallCount, calls int64) {
	t.Helper()
	counts, err := c.store.CallCounts(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range counts {
		calls += count.Calls
	}
	return counts, calls
}

// Rule C1: who takes over the calls of a lost node says meanwhile that it is there, however many they are and whatever a commit takes. Else it
// would be lost too, and what it has taken over cut off.
func TestWhoTakesOverManyCallsIsNotLostItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const calls = 1_000
		c := startCluster(t, 3, engine.Options{Concurrency: 4 * calls})
		var fences []wire.Fence
		for range calls {
			c.nodes[0].start(t, "w")
			sent := c.app.next(t, time.Second)
			want(t, "save", c.nodes[1].save(sent, "n", 0, completed("a", `1`)).Status, wire.Accepted)
			fences = append(fences, sent.fence("n"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				c.nodes[1].poll(t, 5*time.Second, fences...)
				time.Sleep(100 * time.Millisecond) // of a call that is over every poll says so at once
			}
		}()
		time.Sleep(time.Second)
		slow := func([]store.Change) { time.Sleep(50 * time.Millisecond) }
		for _, way := range c.ways {
			way.before.Store(&slow)
		}
		c.ways[0].cut.Store(true)
		time.Sleep(time.Minute)
		held, err := c.store.InCall(t.Context(), "node1", "", 2*calls)
		if want(t, "calls that the app plays", len(held), calls); err != nil {
			t.Fatal(err)
		}
		for _, run := range held {
			want(t, "begins", run.Epoch, int64(1))
		}
	})
}

// Rule W5: however many leases of a lost node's calls are over, until they are taken over, other runs wake in time.
func TestLeasesOfALostNodeHoldUpNoTimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const calls = 1_500
		c := startCluster(t, 2, engine.Options{Concurrency: 4 * calls, Lease: 10 * time.Second})
		c.nodes[1].start(t, "w")
		c.app.next(t, time.Second).suspend(t, "n", 0, sleep("nap", 22*time.Second))
		time.Sleep(10 * time.Second)
		for range calls {
			c.nodes[0].start(t, "w")
			c.app.next(t, time.Second)
		}
		c.ways[0].cut.Store(true)
		c.app.next(t, 13*time.Second)
	})
}

// Rule C1: an app that lives loses nothing when the node that holds its call is lost.
func TestACallOfALostNodeGoesOnWhereItIsHeard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, first := startCalling(t, 3)
		holder, other := c.holder(t, first.Run.ID)
		want(t, "save", c.nodes[holder].save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		c.ways[holder].cut.Store(true)
		stop := c.nodes[other].keepPolling(t, first.fence("n"))
		defer stop()
		c.app.none(t, 40*time.Second)
		run, _, err := c.store.Load(t.Context(), first.Run.ID)
		if err != nil || run.Call.Node != fmt.Sprintf("node%d", other) || run.Cuts != 0 {
			t.Errorf("the call is held by %q, after %d cuts, %v", run.Call.Node, run.Cuts, err)
		}
		stop()
		want(t, "a later save", c.nodes[other].save(first, "n", 1, completed("b", `2`)).Status, wire.Accepted)
		out := c.nodes[other].End(t.Context(), wire.Ends{Process: "process", Ends: []wire.SentEnd{{Fence: first.fence("n"), End: wire.End{Type: wire.Completed, Seen: 2, Output: jsontext.Value(`3`)}}}})
		want(t, "its end", out.Ends[0].Status, wire.Accepted)
		want(t, "status", c.nodes[other].run(t, first.Run.ID).Status, workflow.Completed)
		c.ways[holder].cut.Store(false)
	})
}

// Rule C1: what nobody hears is picked up within seconds, by one node.
func TestACallOfALostNodeThatNobodyHearsIsPickedUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, first := startCalling(t, 3)
		holder, _ := c.holder(t, first.Run.ID)
		want(t, "save", c.nodes[holder].save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		c.ways[holder].cut.Store(true)
		lost := time.Now()
		second := c.app.next(t, 25*time.Second)
		if took := time.Since(lost); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("it was picked up after %v", took)
		}
		want(t, "run", second.Run.ID, first.Run.ID)
		want(t, "saved steps", len(second.Steps.Entries), 1)
		c.app.none(t, time.Minute)
		c.ways[holder].cut.Store(false)
		// The node that was lost has its memory of the call still: it is nobody's any more.
		want(t, "a late save through it", c.nodes[holder].save(first, "n", 1, completed("b", `2`)).Status, wire.Superseded)
	})
}

// Rule C2: a time in which no node reached the store counts against no node and no call.
func TestAnOutageOfTheStoreCostsNobodyACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, first := startCalling(t, 3)
		holder, other := c.holder(t, first.Run.ID)
		want(t, "save", c.nodes[holder].save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		for _, way := range c.ways {
			way.cut.Store(true)
		}
		time.Sleep(2 * time.Minute)
		// They come back one after the other: the first must not judge the last.
		c.ways[other].cut.Store(false)
		time.Sleep(8 * time.Second)
		for _, way := range c.ways {
			way.cut.Store(false)
		}
		defer c.nodes[other].keepPolling(t, first.fence("n"))()
		c.app.none(t, time.Minute)
		run, _, err := c.store.Load(t.Context(), first.Run.ID)
		if err != nil || run.Cuts != 0 || run.Status != workflow.Running {
			t.Errorf("%+v, %v", run, err)
		}
	})
}

// Rule C1: the connection breaks at one node, and the process talks to another.
func TestACallIsNotCutWhileItsProcessPollsElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, first := startCalling(t, 3)
		holder, other := c.holder(t, first.Run.ID)
		want(t, "save", c.nodes[other].save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		defer c.nodes[other].keepPolling(t, first.fence("n"))()
		first.lose()
		c.app.none(t, 10*time.Minute)
		if now, _ := c.holder(t, first.Run.ID); now != holder {
			t.Errorf("node%d holds the call, and node%d lives", now, holder)
		}
	})
}

// Rule C1: a node that does not know that its call was adopted has no say over it.
func TestACallIsNotCutByWhoHeldItBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, first := startCalling(t, 2)
		holder, other := c.holder(t, first.Run.ID)
		want(t, "save", c.nodes[holder].save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		defer c.nodes[other].keepPolling(t, first.fence("n"))()
		c.ways[holder].apart.Store(true)
		time.Sleep(12 * time.Second)
		if now, _ := c.holder(t, first.Run.ID); now != other {
			t.Fatalf("node%d holds the call", now)
		}
		first.lose() // now it asks, and hears no answer
		c.app.none(t, time.Minute)
	})
}

// Rule C1: a node whose call was adopted meanwhile says that it hears it, whatever it was told first of that.
func TestWhoHeldACallTellsThatItHearsIt(t *testing.T) {
	for after := 11 * time.Second; after < 12*time.Second; after += 100 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c, first := startCalling(t, 2)
				holder, other := c.holder(t, first.Run.ID)
				want(t, "save", c.nodes[holder].save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
				c.ways[holder].cut.Store(true)
				stop := c.nodes[other].keepPolling(t, first.fence("n"))
				saved := make(chan string)
				go func() { saved <- c.nodes[holder].save(first, "n", 1, completed("b", `2`)).Status }()
				time.Sleep(after)
				if now, _ := c.holder(t, first.Run.ID); now != other {
					t.Fatalf("node%d holds the call", now)
				}
				c.ways[holder].cut.Store(false)
				want(t, "save", <-saved, wire.Accepted)
				stop()
				defer c.nodes[holder].keepPolling(t, first.fence("n"))()
				c.app.none(t, time.Minute)
				run, _, err := c.store.Load(t.Context(), first.Run.ID)
				if err != nil || run.Cuts != 0 || run.Call.Node != fmt.Sprintf("node%d", other) {
					t.Errorf("%+v, %v", run, err)
				}
			})
		})
	}
}

// Rule C1: a node that is cut off lets the processes go that poll it: the next poll may be another's to hear, before this one is lost.
func TestANodeThatIsCutOffHoldsNoPollForLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, first := startCalling(t, 2)
		holder, _ := c.holder(t, first.Run.ID)
		want(t, "save", c.nodes[holder].save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		for _, held := range []time.Duration{5 * time.Second, time.Second} {
			began := time.Now()
			c.nodes[holder].poll(t, 5*time.Second, first.fence("n"))
			want(t, "held", time.Since(began), held)
			c.ways[holder].cut.Store(true)
			time.Sleep(6 * time.Second)
		}
	})
}

// Rule N2: saves that went through other nodes count, though they raise no version of the run.
func TestAnEndCountsWhatOthersHaveSaved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 2, engine.Options{})
		c.nodes[0].start(t, "w")
		threw := wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}, Retriable: true, Retries: 1}
		first := c.app.next(t, time.Second)
		holder, _ := c.holder(t, first.Run.ID)
		want(t, "save", c.nodes[holder].save(first, "n", 0).Status, wire.Accepted)
		first.end(t, threw)
		second := c.app.next(t, time.Minute)
		holder, other := c.holder(t, first.Run.ID)
		want(t, "save", c.nodes[holder].save(second, "m", 0).Status, wire.Accepted)
		want(t, "save elsewhere", c.nodes[other].save(second, "m", 0, completed("a", `1`)).Status, wire.Accepted)
		second.end(t, threw)
		// A step was saved in between: the count of throws began anew (S2).
		want(t, "saved steps", len(c.app.next(t, time.Minute).Steps.Entries), 1)
	})
}

// Rule C1: a process that dies while it talks to another node is found out by the node that holds its call.
func TestADeadAppIsFoundOutWhicheverNodeItPolled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, first := startCalling(t, 3)
		_, other := c.holder(t, first.Run.ID)
		want(t, "save", c.nodes[other].save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		stop := c.nodes[other].keepPolling(t, first.fence("n"))
		time.Sleep(12 * time.Second)
		stop()
		first.lose()
		want(t, "epoch", c.app.next(t, 8*time.Second).Call.Call.Epoch, int64(2))
	})
}

// What one node does is heard of by those that wait, and those that play, at another.
func TestNodesHearOfWhatOthersDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, first := startCalling(t, 2)
		holder, other := c.holder(t, first.Run.ID)
		want(t, "save", c.nodes[holder].save(first, "n", 0).Status, wire.Accepted)
		time.Sleep(2 * time.Second)
		ended := make(chan store.RunRecord, 1)
		go func() {
			r, _ := c.nodes[other].RunRecord(context.Background(), engine.DefaultEnv, first.Run.ID, 20*time.Second)
			ended <- r
		}()
		told := make(chan []wire.News, 1)
		go func() { told <- c.nodes[holder].poll(t, 5*time.Second, first.fence("n")) }()
		synctest.Wait()
		if _, err := c.nodes[other].Cancel(t.Context(), engine.DefaultEnv, first.Run.ID, false); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		news := <-told
		if took := time.Since(began); len(news) != 1 || news[0].Status != wire.Ending || took > 1500*time.Millisecond {
			t.Errorf("after %v it was told %+v", took, news)
		}
		began = time.Now()
		first.end(t, wire.End{Type: wire.Completed})
		r := <-ended
		if took := time.Since(began); r.Status != workflow.Cancelled || took > time.Second {
			t.Errorf("after %v it was told that the run is %s", took, r.Status)
		}
	})
}

// unreached is an app as one node sees it, which may not reach it.
type unreached struct {
	*app
	cut atomic.Bool
}

var noRoute = call.Outcome{Kind: call.NotSent, Reason: "no route"}

func (u *unreached) Describe(ctx context.Context, t call.Target) (*wire.Manifest, call.Outcome) {
	if u.cut.Load() {
		return nil, noRoute
	}
	return u.app.Describe(ctx, t)
}

func (u *unreached) Do(ctx context.Context, r call.Request) call.Outcome {
	if u.cut.Load() {
		return noRoute
	}
	return u.app.Do(ctx, r)
}

// startUnreached starts two nodes, the first of which does not reach the app.
func startUnreached(t *testing.T, o engine.Options) (way *unreached, first, second *node, s store.Store) {
	t.Helper()
	s, way = memory.New(), &unreached{app: newApp(wire.Workflow{Name: "w"})}
	way.cut.Store(true)
	o.Node = "node0"
	first = startNode(t, s, way, o)
	o.Node = "node1"
	second = startNode(t, s, way.app, o)
	second.know(t)
	time.Sleep(15 * time.Second)
	return way, first, second, s
}

// Runs whose turn is that of a node which does not reach the app are begun by another, also while that has runs of its own.
func TestANodeThatDoesNotReachTheAppHoldsUpNoRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		way, n, _, s := startUnreached(t, engine.Options{})
		var longest time.Duration
		for range 600 {
			n.start(t, "w")
			time.Sleep(100 * time.Millisecond)
			for waits := true; waits; {
				select {
				case call := <-way.calls:
					longest = max(longest, time.Since(call.Run.CreatedAt.Time))
					call.end(t, wire.End{Type: wire.Completed})
				default:
					waits = false
				}
			}
		}
		if longest > 5*time.Second {
			t.Errorf("a run waited for %v", longest)
		}
		ready, err := s.Ready(t.Context(), engine.DefaultEnv, "app", time.Now(), 1_000)
		if err != nil || len(ready) > 50 {
			t.Errorf("%d runs wait, %v", len(ready), err)
		}
	})
}

// Rule W5: an app that takes one call at once gets it from a node that reaches it. The one whose share that was takes it back when it reaches
// the app again, and never are there two.
func TestANodeThatDoesNotReachTheAppLeavesItsShareToOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		way, first, second, s := startUnreached(t, engine.Options{Concurrency: 1})
		second.start(t, "w")
		way.next(t, 15*time.Second).end(t, wire.End{Type: wire.Completed})
		for range 20 {
			first.start(t, "w")
		}
		by := map[string]int{}
		for len(by) < 2 {
			if by["node1"] > 15 {
				t.Fatal("the first node takes its share no more")
			}
			c := way.next(t, 15*time.Second)
			time.Sleep(2 * time.Second)
			if len(way.calls) > 0 {
				t.Fatal("a second call is in flight")
			}
			run, _, err := s.Load(t.Context(), c.Run.ID)
			if err != nil {
				t.Fatal(err)
			}
			by[run.Call.Node]++
			way.cut.Store(false)
			c.end(t, wire.End{Type: wire.Completed})
		}
	})
}

// Rule E1: an event that comes between a wait's look back and its note is not lost, though two nodes match.
func TestAnEventIsNotLostBetweenTwoMatchers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 2, engine.Options{})
		emit := func(n *node) {
			if _, _, err := n.Emit(t.Context(), engine.DefaultEnv, []engine.NewEvent{{Name: "paid"}}, nil); err != nil {
				t.Error(err)
			}
		}
		// The first node stands still just before it notes that the wait has looked back. Meanwhile the second takes over, and an event comes.
		stood := false
		before := func(changes []store.Change) {
			for _, change := range changes {
				if _, notes := change[0].(store.LookedBack); notes && !stood {
					stood = true
					time.Sleep(12 * time.Second)
					emit(c.nodes[1])
					time.Sleep(3 * time.Second)
				}
			}
		}
		c.ways[0].before.Store(&before)
		c.nodes[0].start(t, "w")
		first := c.app.next(t, time.Second)
		first.nonce = "n"
		first.suspend(t, "n", 0, forEvent("paid", "paid"))
		second := c.app.next(t, time.Minute)
		want(t, "run", second.Run.ID, first.Run.ID)
		want(t, "the node stood still", stood, true)
		want(t, "steps", len(second.Steps.Entries), 1)
	})
}

// Rule N4: a call that the store says a node holds, and that the node does not know, is asked for, and its run picked up.
func TestACallThatItsNodeDoesNotKnowIsAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 2, engine.Options{})
		run := workflow.Start(workflow.Run{ID: "run_00000000000000000000000001", Env: engine.DefaultEnv, App: "app", Workflow: "w"}, workflow.Settings{Lease: 5 * time.Minute}, time.Now())
		d, err := workflow.Apply(run, workflow.Begin{CallID: "call_x", Token: run.ID + ".t", Node: "node0"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.store.Commit(t.Context(), []store.Change{{store.InsertRun{Run: d.Run}}}); err != nil {
			t.Fatal(err)
		}
		want(t, "run", c.app.next(t, time.Minute).Run.ID, run.ID)
	})
}
