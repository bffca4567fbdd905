package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// An app's concurrency holds over all nodes, also while one joins and one is lost.
func TestConcurrencyHoldsOverAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 2, engine.Options{Concurrency: 5})
		for range 200 {
			c.nodes[1].start(t, "w")
		}
		inFlight := func() int { _, calls := c.inFlight(t); return int(calls) }
		time.Sleep(5 * time.Second)
		want(t, "in flight with two nodes", inFlight(), 5)
		// goesOn has the app end calls for half a minute.
		goesOn := func() {
			for range 60 {
				time.Sleep(500 * time.Millisecond)
				if n := inFlight(); n > 5 {
					t.Fatalf("%d calls are in flight", n)
				}
				select {
				case call := <-c.app.calls:
					call.end(t, wire.End{Type: wire.Completed})
				default:
				}
			}
			time.Sleep(5 * time.Second)
		}
		c.join(t, engine.Options{Concurrency: 5})
		goesOn()
		want(t, "in flight with three nodes", inFlight(), 5)
		c.ways[1].cut.Store(true)
		goesOn()
		want(t, "in flight with one node lost", inFlight(), 5)
		c.ways[1].cut.Store(false)
	})
}

// A call of a node that is lost is counted by one node at every moment, until it is taken over or cut off and then too, also where the node
// that was thought lost comes back at just that moment.
func TestACallThatAnotherNodeTakesOverIsCounted(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int
		heard bool
	}{{"by one of two", 2, true}, {"by one of three", 3, true}, {"by nobody", 3, false}} {
		for away := 9 * time.Second; away <= 21*time.Second; away += 250 * time.Millisecond {
			t.Run(fmt.Sprintf("heard %s, away for %v", c.name, away), func(t *testing.T) {
				bubble(t, func(t *testing.T) { countedWhileAway(t, c.nodes, c.heard, away) })
			})
		}
	}
}

// countedWhileAway has a node be away for a while, whose calls another one hears, or nobody.
func countedWhileAway(t *testing.T, nodes int, heard bool, away time.Duration) {
	t.Helper()
	const limit = int64(6)
	c := startCluster(t, nodes, engine.Options{Concurrency: int(limit)})
	for range 3 * limit {
		c.nodes[1].start(t, "w")
	}
	time.Sleep(5 * time.Second)
	_, calls := c.inFlight(t)
	want(t, "in flight", calls, limit)
	var fences []wire.Fence
	for range limit {
		sent := c.app.next(t, time.Second)
		want(t, "save", c.nodes[1].save(sent, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		if holder, _ := c.holder(t, sent.Run.ID); heard || holder != 0 {
			fences = append(fences, sent.fence("n"))
		}
	}
	defer c.nodes[1].keepPolling(t, fences...)()
	c.ways[0].cut.Store(true)
	for passed := time.Duration(0); passed < 40*time.Second; passed += 25 * time.Millisecond {
		if passed == away {
			c.ways[0].cut.Store(false)
		}
		time.Sleep(25 * time.Millisecond)
		counts, calls := c.inFlight(t)
		if calls > limit {
			t.Fatalf("after %v the app has %d calls: %v", passed, calls, counts)
		}
	}
	_, calls = c.inFlight(t)
	want(t, "in flight in the end", calls, limit)
}

// Of a node that stands still while it looks at the others the app gets no more calls than it takes: what it is shown is as old as its question.
func TestANodeThatStandsStillInALookTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const limit = 6
		c := startCluster(t, 2, engine.Options{Concurrency: limit})
		still := func() { time.Sleep(12 * time.Second) }
		c.ways[0].looks.Store(&still)
		time.Sleep(time.Second)
		c.ways[0].looks.Store(nil)
		time.Sleep(10 * time.Second) // the second finds it lost
		for range 3 * limit {
			c.nodes[1].start(t, "w")
		}
		for passed := time.Duration(0); passed < 20*time.Second; passed += 25 * time.Millisecond {
			time.Sleep(25 * time.Millisecond)
			synctest.Wait()
			if counts, calls := c.inFlight(t); calls > limit {
				t.Fatalf("after %v the app has %d calls: %v", passed, calls, counts)
			}
		}
		_, calls := c.inFlight(t)
		want(t, "in flight in the end", calls, int64(limit))
	})
}

// A call that was taken for cut, and that comes back at a node which knew it as another's, takes one of that node's slots (C5).
func TestACallThatComesBackElsewhereIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, 2, engine.Options{Concurrency: 2})
		c.nodes[0].start(t, "w")
		first := c.app.next(t, time.Second)
		c.nodes[1].start(t, "w")
		second := c.app.next(t, time.Second)
		if holder, _ := c.holder(t, second.Run.ID); holder != 1 {
			t.Fatalf("node%d holds the second call", holder)
		}
		for range 4 {
			c.nodes[0].start(t, "w")
		}
		want(t, "save", c.nodes[0].save(second, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		second.lose()
		c.app.next(t, 10*time.Second) // in its place
		want(t, "status", c.nodes[1].run(t, second.Run.ID).Status, workflow.Queued)
		want(t, "a save that comes late", c.nodes[0].save(second, "n", 1, completed("b", `2`)).Status, wire.Accepted)
		want(t, "status", c.nodes[1].run(t, second.Run.ID).Status, workflow.Running)
		defer c.nodes[0].keepPolling(t, second.fence("n"))()
		first.end(t, wire.End{Type: wire.Completed})
		time.Sleep(5 * time.Second)
		if counts, calls := c.inFlight(t); calls != 2 {
			t.Errorf("the app has %d calls: %v", calls, counts)
		}
	})
}

// C3, concurrency: what a node began before it saw another join is sent before that one takes its share, or never, however long the store took to
// keep the begin.
func TestACallThatTheStoreKeepsLateIsNotSentBesideAnothersShare(t *testing.T) {
	for passed := time.Duration(0); passed < 2*time.Second; passed += 100 * time.Millisecond {
		t.Run(passed.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const limit = 6
				c := startCluster(t, 2, engine.Options{Concurrency: limit})
				c.ways[1].cut.Store(true)
				time.Sleep(15 * time.Second) // the first has all of it
				c.ways[1].cut.Store(false)
				time.Sleep(passed)
				slow := sync.OnceFunc(func() { time.Sleep(4900 * time.Millisecond) })
				before := func([]store.Change) { slow() }
				c.ways[0].before.Store(&before)
				var starting sync.WaitGroup
				for range limit {
					starting.Go(func() {
						if _, err := c.nodes[0].StartRun(t.Context(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w"}); err != nil {
							t.Error(err)
						}
					})
				}
				time.Sleep(4 * time.Second)
				for range limit {
					c.nodes[1].start(t, "w")
				}
				time.Sleep(20 * time.Second)
				starting.Wait()
				if calls := len(c.app.calls); calls != limit {
					t.Errorf("the app got %d calls", calls)
				}
			})
		})
	}
}
