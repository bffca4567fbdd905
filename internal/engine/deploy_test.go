package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// D1: a rolling deploy may take longer than a workflow's ten minutes. Each look finds another replica, and what either has stays.
func TestOldAndNewReplicasThatAnswerInTurnLoseNoEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		listens := func(name string) []wire.Workflow {
			return []wire.Workflow{{Name: name, Triggers: []wire.Trigger{{Event: "e"}}}}
		}
		a := newApp(listens("old")...)
		n, _ := startApp(t, a, engine.Options{ForgetAfter: 10 * time.Minute})
		a.deploy("new", listens("new")...)
		time.Sleep(11 * time.Second)
		for i := range 90 { // each 20 s, which is two looks
			if i%2 == 0 {
				a.deploy("old", listens("old")...)
			} else {
				a.deploy("new", listens("new")...)
			}
			time.Sleep(20 * time.Second)
			synctest.Wait() // what was found is taken over
			if runs := n.emit(t, engine.NewEvent{Name: "e"})[0].Event.Runs; runs != 2 {
				t.Fatalf("after %d turns an event starts %d runs, want one of each version", i+1, runs)
			}
		}
		a.deploy("new", listens("new")...)
		time.Sleep(11 * time.Minute)
		want(t, "once the deploy is over: runs", n.emit(t, engine.NewEvent{Name: "e"})[0].Event.Runs, 1)
	})
}

func TestADeployIsNoticedByTheNextAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{DescribeEvery: time.Hour})
		n.start(t, "w")
		c := a.next(t, time.Second)
		a.deploy("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "new"})
		c.end(t, wire.End{Type: wire.Completed, Manifest: "h2"})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "new"}); err != nil {
			t.Errorf("D1: %v", err)
		}
	})
}

// D1: an explicit sync forgets at once, also where the node that is told has not heard yet of what another was told just before.
func TestASyncUndoesWhatAnotherNodeHasJustTakenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 2, engine.Options{ForgetAfter: 10 * time.Minute})
		c.app.deploy("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "bad"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // who asked is gone before the other node has heard of it
		defer cancel()
		if _, err := c.nodes[0].PutApp(ctx, engine.DefaultEnv, engine.AppRequest{URL: "http://127.0.0.1:3000"}, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		c.app.deploy("h1", wire.Workflow{Name: "w"})
		c.nodes[1].know(t)
		time.Sleep(30 * time.Second)
		for i, n := range c.nodes {
			want(t, fmt.Sprintf("workflows at node %d", i), len(n.Apps(engine.DefaultEnv)[0].Workflows), 1)
		}
	})
}

// D1: what an app said before a sync does not undo the sync, however late it arrives.
func TestALookThatIsUnderWayUndoesNoSync(t *testing.T) {
	for name, syncs := range map[string]int{"of the same node": 0, "of another node": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := startCluster(t, 2, engine.Options{ForgetAfter: 10 * time.Minute})
				c.app.deploy("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "bad"})
				c.nodes[syncs].know(t)
				var slow atomic.Bool
				arrive := make(chan struct{})
				c.app.mu.Lock()
				c.app.slow = func() {
					if slow.CompareAndSwap(false, true) {
						<-arrive
					}
				}
				c.app.mu.Unlock()
				c.nodes[0].stop()
				restarted := startNode(t, c.ways[0], c.app, engine.Options{Node: "node2", ForgetAfter: 10 * time.Minute}) // it looks at once
				synctest.Wait()
				want(t, "a look is under way", slow.Load(), true)
				c.app.deploy("h1", wire.Workflow{Name: "w"})
				c.nodes[0] = restarted
				c.nodes[syncs].know(t)
				close(arrive)
				time.Sleep(30 * time.Second)
				for i, n := range c.nodes {
					want(t, fmt.Sprintf("workflows at node %d", i), len(n.Apps(engine.DefaultEnv)[0].Workflows), 1)
				}
			})
		})
	}
}

// D1, N2: nodes that take an app's word at once keep what each was told of it.
func TestANodeThatDescribesAnAppKeepsWhatAnotherWasToldOfIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 2, engine.Options{})
		var once sync.Once
		told := func(changes []store.Change) {
			puts := func(change store.Change) bool { _, ok := change[0].(store.PutApp); return ok }
			if slices.ContainsFunc(changes, puts) { // a heartbeat may share its commit
				once.Do(func() { // the other node commits first
					request := engine.AppRequest{URL: "http://127.0.0.1:3000", Concurrency: 7}
					if _, err := c.nodes[1].PutApp(context.Background(), engine.DefaultEnv, request, true); err != nil {
						t.Error(err)
					}
				})
			}
		}
		c.ways[0].before.Store(&told)
		c.app.deploy("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "new"})
		if _, err := c.nodes[0].PutApp(context.Background(), engine.DefaultEnv, engine.AppRequest{URL: "http://127.0.0.1:3000"}, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		for i, n := range c.nodes {
			app := n.Apps(engine.DefaultEnv)[0]
			if app.Concurrency != 7 || len(app.Workflows) != 2 || app.Reason != "" {
				t.Errorf("node %d has %+v", i, app)
			}
		}
	})
}

// scheduled is a workflow with schedules.
func scheduled(expressions ...string) wire.Workflow {
	w := wire.Workflow{Name: "w"}
	for _, x := range expressions {
		w.Triggers = append(w.Triggers, wire.Trigger{Schedule: x})
	}
	return w
}

// schedulesOf are the expressions of all schedules, sorted.
func schedulesOf(t *testing.T, s store.Reader) []string {
	t.Helper()
	list, err := s.Schedules(context.Background(), store.ScheduleQuery{Env: engine.DefaultEnv, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	expressions := []string{}
	for _, schedule := range list {
		expressions = append(expressions, schedule.Expression)
	}
	slices.Sort(expressions)
	return expressions
}

func putsSchedule(changes []store.Change) bool {
	return slices.ContainsFunc(changes, func(change store.Change) bool {
		return slices.ContainsFunc(change, func(op store.Op) bool { _, puts := op.(store.PutSchedule); return puts })
	})
}

// D1: what failed when a deploy was taken up is made good at the next look, though the app says nothing new.
func TestADeclaredScheduleIsNotLostToOneFailure(t *testing.T) {
	away := errors.New("the database is away")
	unknown := fmt.Errorf("the connection broke: %w", store.ErrUnknown)
	for name, fail := range map[string]func(s *faulty, once func() bool){
		"schedules can't be read": func(s *faulty, once func() bool) {
			s.unread = func(q store.ScheduleQuery) error {
				if q.App != "" && once() {
					return away
				}
				return nil
			}
		},
		"nothing is stored": func(s *faulty, once func() bool) {
			s.fail = func(changes []store.Change) error {
				if putsSchedule(changes) && once() {
					return unknown
				}
				return nil
			}
		},
		"all is stored, and nobody knows": func(s *faulty, once func() bool) {
			s.fail = func(changes []store.Change) error {
				if !putsSchedule(changes) || !once() {
					return nil
				}
				if _, err := s.Store.Commit(context.Background(), changes); err != nil {
					return err
				}
				return unknown
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(scheduled("0 1 * * *"))
				n, s := startFaulty(t, a)
				var failed atomic.Bool
				s.mu.Lock()
				fail(s, func() bool { return failed.CompareAndSwap(false, true) })
				s.mu.Unlock()
				a.deploy("h2", scheduled("0 1 * * *", "0 2 * * *"))
				time.Sleep(30 * time.Second)
				want(t, "it failed", failed.Load(), true)
				want(t, "schedules", schedulesOf(t, s), []string{"0 1 * * *", "0 2 * * *"})
				want(t, "why the app can't be used", n.Apps(engine.DefaultEnv)[0].Reason, "")
			})
		})
	}
}

// D1, N2: a node that is slow to take up a deploy declares nothing over what another has taken up since.
func TestTheSchedulesOfTheLastDeployStand(t *testing.T) {
	for name, slow := range map[string]func(way *severed, meanwhile func()){
		"slow to read": func(way *severed, meanwhile func()) { way.reads.Store(&meanwhile) },
		"slow to store": func(way *severed, meanwhile func()) {
			before := func(changes []store.Change) {
				if putsSchedule(changes) {
					meanwhile()
				}
			}
			way.before.Store(&before)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := startCluster(t, 2, engine.Options{})
				var deployed atomic.Bool
				slow(c.ways[0], func() {
					if deployed.CompareAndSwap(false, true) {
						c.app.deploy("h3", scheduled("0 3 * * *"))
						c.nodes[1].know(t)
					}
				})
				c.app.deploy("h2", scheduled("0 2 * * *"))
				c.nodes[0].know(t)
				want(t, "another deploy came", deployed.Load(), true)
				time.Sleep(time.Minute)
				want(t, "schedules", schedulesOf(t, c.store), []string{"0 3 * * *"})
			})
		})
	}
}

// A look that finds nothing new costs the store nothing.
func TestALookAtWhatIsKnownReadsAndStoresNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(scheduled("0 1 * * *"))
		_, s := startFaulty(t, a)
		time.Sleep(time.Minute)
		s.mu.Lock()
		s.fail = func(changes []store.Change) error {
			for _, change := range changes {
				if _, puts := change[0].(store.PutApp); puts {
					t.Error("the app is stored again")
				}
			}
			return nil
		}
		s.unread = func(q store.ScheduleQuery) error {
			if q.App != "" {
				t.Error("its schedules are read again")
			}
			return nil
		}
		s.mu.Unlock()
		before := a.looks()
		time.Sleep(time.Minute)
		if looks := a.looks() - before; looks < 5 {
			t.Errorf("in a minute it was looked at %d times", looks)
		}
	})
}

// addresses has one app at many addresses, and counts who is looked at where.
type addresses struct {
	*app
	mu    sync.Mutex
	asked map[string]int
	down  map[string]bool
}

func (a *addresses) Describe(ctx context.Context, t call.Target) (*wire.Manifest, call.Outcome) {
	a.mu.Lock()
	a.asked[t.URL]++
	down := a.down[t.URL]
	a.mu.Unlock()
	if down {
		return nil, call.Outcome{Kind: call.Unusable, Reason: "it answers 404"}
	}
	return a.app.Describe(ctx, t)
}

// inAMinute are the addresses that are looked at within a minute, sorted.
func (a *addresses) inAMinute() []string {
	a.mu.Lock()
	clear(a.asked)
	a.mu.Unlock()
	time.Sleep(time.Minute)
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.asked))
}

func (a *addresses) set(url string, down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down[url] = down
}

func startAddresses() *addresses {
	return &addresses{app: newApp(wire.Workflow{Name: "w"}), asked: map[string]int{}, down: map[string]bool{}}
}

const named, public = "http://127.0.0.1:3000", "https://shop.example.com"

// Each deployment may have an address of its own. A sync leaves those where the app was before, at all nodes.
func TestAnAppIsLookedAtWhereItIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := startAddresses(), memory.New()
		n := startNode(t, s, a, engine.Options{Node: "a"})
		startNode(t, s, a, engine.Options{Node: "b"})
		n.AddApp(named)
		last := ""
		for i := range 20 {
			time.Sleep(5 * time.Second)
			last = fmt.Sprintf("https://shop-%d.example.com", i)
			if _, err := n.PutApp(context.Background(), engine.DefaultEnv, engine.AppRequest{URL: last}, false); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Second)
		want(t, "addresses", a.inAMinute(), []string{named, last})
		want(t, "the app is at", n.Apps(engine.DefaultEnv)[0].URL, last)
		for _, url := range []string{named, "https://shop-0.example.com"} { // where it was before it may be again
			if _, err := n.PutApp(context.Background(), engine.DefaultEnv, engine.AppRequest{URL: url}, false); err != nil {
				t.Fatal(err)
			}
			want(t, "the app is at", n.Apps(engine.DefaultEnv)[0].URL, url)
		}
	})
}

// D1: a node that hears of a sync may find that the new address is busy, while the one before answers.
func TestASyncStandsAtANodeThatFindsTheAddressBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := startAddresses(), memory.New()
		n := startNode(t, s, a, engine.Options{Node: "a"})
		n.AddApp(named) // what an operator names is looked at for good
		startNode(t, s, busyAt{a, public}, engine.Options{Node: "b"})
		for _, url := range []string{named, public} {
			if _, err := n.PutApp(context.Background(), engine.DefaultEnv, engine.AppRequest{URL: url}, false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			want(t, "the app is at", n.Apps(engine.DefaultEnv)[0].URL, url)
		}
	})
}

// busyAt is a way to apps on which one address never answers.
type busyAt struct {
	engine.Caller
	url string
}

func (b busyAt) Describe(ctx context.Context, t call.Target) (*wire.Manifest, call.Outcome) {
	if t.URL == b.url {
		return nil, call.Outcome{Kind: call.Silent}
	}
	return b.Caller.Describe(ctx, t)
}

// An address that answers no longer is forgotten after a while: one that comes back in time is not, nor one that an operator has named, nor
// the last of its app.
func TestAnAddressWithoutItsAppIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := startAddresses()
		n := startNode(t, memory.New(), a, engine.Options{ForgetAfter: 10 * time.Minute})
		if _, err := n.PutApp(context.Background(), engine.DefaultEnv, engine.AppRequest{URL: public}, false); err != nil {
			t.Fatal(err)
		}
		a.set(public, true)
		time.Sleep(time.Hour)
		want(t, "its only address does not answer", a.inAMinute(), []string{public})
		a.set(public, false)
		n.AddApp(named)
		time.Sleep(2 * time.Minute)
		a.set(named, true)
		time.Sleep(time.Hour)
		want(t, "the operator's does not answer", a.inAMinute(), []string{named, public})
		a.set(named, false)
		time.Sleep(2 * time.Minute)
		a.set(public, true)
		time.Sleep(8 * time.Minute)
		a.set(public, false)
		time.Sleep(2 * time.Minute)
		a.set(public, true)
		time.Sleep(8 * time.Minute)
		want(t, "the other does not answer for a while", a.inAMinute(), []string{named, public})
		time.Sleep(5 * time.Minute)
		want(t, "it does not answer for longer", a.inAMinute(), []string{named})
		want(t, "the app is at", n.Apps(engine.DefaultEnv)[0].URL, named)
	})
}

// D1: whichever node is asked after a sync starts runs by it.
func TestASyncIsKnownToEveryNodeWhenItIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 3, engine.Options{})
		sync := func(hash string, workflows ...wire.Workflow) (took time.Duration) {
			began := time.Now()
			c.app.deploy(hash, workflows...)
			if _, err := c.nodes[0].PutApp(context.Background(), engine.DefaultEnv, engine.AppRequest{URL: "http://127.0.0.1:3000"}, true); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		if took := sync("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "paid", Triggers: []wire.Trigger{{Event: "paid"}}}); took > 4*time.Second {
			t.Errorf("the sync took %v", took)
		}
		for _, n := range c.nodes[1:] {
			want(t, "runs that the event starts", n.emit(t, engine.NewEvent{Name: "paid"})[0].Event.Runs, 1)
			n.start(t, "paid")
		}
		want(t, "a sync of what is known", sync("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "paid", Triggers: []wire.Trigger{{Event: "paid"}}}) < time.Second, true)
		// A node that can't say so is waited for a while.
		c.ways[2].cut.Store(true)
		if took := sync("h3", wire.Workflow{Name: "w"}); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("with a node that says nothing the sync took %v", took)
		}
		c.ways[2].cut.Store(false)
	})
}

// sync registers the app as its deploy does, at an address that no operator has named.
func (n *node) sync(t *testing.T) {
	t.Helper()
	if _, err := n.PutApp(t.Context(), engine.DefaultEnv, engine.AppRequest{URL: "http://127.0.0.1:3000"}, false); err != nil {
		t.Fatal(err)
	}
}

// D1: what is no longer deployed is removed: nothing starts it any more, on any server, and its runs go on once it is back.
func TestARemovedAppIsNotStarted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "paid"}, {Schedule: "* * * * *"}}})
		s := memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.sync(t)
		run := n.start(t, "w").Run.ID
		a.next(t, time.Second).end(t, throws) // it is tried again in a second
		want(t, "removed", n.RemoveApp(t.Context(), engine.DefaultEnv, a.manifest.App), nil)
		removed := func(n *node) {
			t.Helper()
			want(t, "apps", len(n.Apps(engine.DefaultEnv)), 0)
			want(t, "runs of an event", n.emit(t, engine.NewEvent{Name: "paid"})[0].Event.Runs, 0)
			if _, err := n.StartRun(t.Context(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w"}); !errors.Is(err, engine.ErrUnknownWorkflow) {
				t.Errorf("it is started: %v", err)
			}
			if err := n.RemoveApp(t.Context(), engine.DefaultEnv, a.manifest.App); !errors.Is(err, engine.ErrUnknownApp) {
				t.Errorf("it is removed again: %v", err)
			}
			a.none(t, 3*time.Minute)
			if w := n.Waiting(n.run(t, run).Run); w == nil || !strings.Contains(w.Reason, "it was removed") {
				t.Errorf("its run waits for %+v", w)
			}
		}
		removed(n)
		schedules, err := s.Schedules(t.Context(), store.ScheduleQuery{Limit: 10})
		want(t, "reading", err, nil)
		want(t, "schedules", len(schedules), 0)
		n.stop()
		n = startNode(t, s, a, engine.Options{})
		removed(n)
		n.sync(t)
		want(t, "the run that goes on", a.next(t, time.Second).Run.ID, run)
		want(t, "runs of an event", n.emit(t, engine.NewEvent{Name: "paid"})[0].Event.Runs, 1)
	})
}

// Who removes what is still used is told by what.
func TestAnAppThatIsUsedIsNotRemoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n := startNode(t, memory.New(), a, engine.Options{})
		refused := func(why string) {
			t.Helper()
			if err := n.RemoveApp(t.Context(), engine.DefaultEnv, a.manifest.App); !errors.Is(err, engine.ErrAppUsed) || !strings.Contains(err.Error(), why) {
				t.Errorf("%v, want %q", err, why)
			}
		}
		n.sync(t)
		if _, err := n.PutSchedule(t.Context(), engine.ScheduleRequest{Env: engine.DefaultEnv, ID: "s_1", Workflow: "w", Expression: "@daily"}); err != nil {
			t.Fatal(err)
		}
		refused(`"s_1"`)
		want(t, "dropped", n.DropSchedule(t.Context(), engine.DefaultEnv, "s_1"), nil)
		n.AddApp("http://127.0.0.1:3000")
		time.Sleep(time.Minute)
		refused("http://127.0.0.1:3000")
		a.fail(&call.Outcome{Kind: call.Unusable, Reason: "nothing listens there"})
		time.Sleep(time.Minute)
		want(t, "removed", n.RemoveApp(t.Context(), engine.DefaultEnv, a.manifest.App), nil)
		a.none(t, time.Minute)
		a.fail(nil)
		time.Sleep(2 * time.Minute)
		want(t, "apps once it answers where an operator expects it", len(n.Apps(engine.DefaultEnv)), 1)
	})
}

// D1: whichever node is asked next knows that an app was removed, and none that looks at it meanwhile brings it back.
func TestARemovedAppIsRemovedOnAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &cluster{store: memory.New(), app: newApp(wire.Workflow{Name: "w"})}
		for range 3 {
			c.join(t, engine.Options{})
		}
		c.nodes[0].sync(t)
		time.Sleep(15 * time.Second)
		apps := func() (counts [3]int) {
			for i, n := range c.nodes {
				counts[i] = len(n.Apps(engine.DefaultEnv))
			}
			return counts
		}
		want(t, "apps", apps(), [3]int{1, 1, 1})
		c.app.deploy("h2", wire.Workflow{Name: "w"}, wire.Workflow{Name: "v"}) // which a look takes up
		want(t, "removed", c.nodes[1].RemoveApp(t.Context(), engine.DefaultEnv, c.app.manifest.App), nil)
		want(t, "apps", apps(), [3]int{})
		time.Sleep(5 * time.Minute)
		want(t, "apps after a while", apps(), [3]int{})
		c.nodes[2].sync(t)
		want(t, "apps once it is back", apps(), [3]int{1, 1, 1})
		c.nodes[0].start(t, "w")
		c.app.next(t, 10*time.Second) // like an app that was away, it has its share once the others have seen that it is back
	})
}
