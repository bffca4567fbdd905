package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// What the simulator found: each test is the shortest way there.

// change changes a run in the store, behind the engine's back.
func (f *faulty) change(t *testing.T, runID string, in workflow.Input) {
	t.Helper()
	run, _, err := f.Load(context.Background(), runID)
	if err != nil {
		t.Fatal(err)
	}
	d, err := workflow.Apply(run, in, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Store.Commit(context.Background(), []store.Change{{store.UpdateRun{Run: d.Run}}}); err != nil {
		t.Fatal(err)
	}
}

func TestARunOfAStoppingAppIsCalledASecondLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		a.fail(&call.Outcome{Kind: call.Refused, Code: call.CodeStopping})
		commits := 0
		s.set(func([]store.Change) error {
			if commits++; commits > 100 {
				return errors.New("a run that is called without a pause would never let time pass here")
			}
			return nil
		})
		n.start(t, "w")
		time.Sleep(10*time.Second + 500*time.Millisecond)
		a.mu.Lock()
		defer a.mu.Unlock()
		if calls := len(a.sent); calls < 8 || calls > 11 {
			t.Errorf("in ten seconds the run was called %d times", calls)
		}
	})
}

func TestACancellationBesideUnsavedResultsIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		run := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		var once sync.Once
		s.set(func(changes []store.Change) error {
			if _, saves := changes[0][0].(store.SaveSteps); saves {
				once.Do(func() { s.change(t, run, workflow.Cancel{}) })
			}
			return nil
		})
		c.nonce = "n"
		c.end(t, wire.End{Type: wire.Yielded, Excused: true, Unsaved: []wire.Item{completed("a", `1`)}})
		synctest.Wait()
		if got := n.run(t, run); got.Status != workflow.Cancelled {
			t.Errorf("N1: the run is %s, ending %v", got.Status, got.Ending)
		}
	})
}

func TestASendBesideTheEndOfItsRunIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		n, s := startFaulty(t, a)
		run := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		var once sync.Once
		s.set(func([]store.Change) error {
			once.Do(func() {
				s.change(t, run, workflow.End{CallID: c.Call.Call.ID, Kind: workflow.EndCompleted})
			})
			return nil
		})
		_, err := n.StartRun(context.Background(), engine.StartRequest{
			Env: engine.DefaultEnv, Workflow: "child", ID: id.New(id.Run), Payload: jsontext.Value(`1`),
			Send: &wire.Send{Fence: c.fence("n"), Step: wire.StepRef{Name: "start", Number: 1}, Place: 1},
		})
		if !errors.Is(err, engine.ErrEnded) || len(allRuns(t, s)) != 1 {
			t.Errorf("K3: %v, and there are %d runs", err, len(allRuns(t, s)))
		}
	})
}

// Rule C4.
func TestASendBindsItsPlaying(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startFaulty(t, a)
		n.start(t, "w")
		c := a.next(t, time.Second)
		_, _, err := n.Emit(context.Background(), engine.DefaultEnv, []engine.NewEvent{{
			Name: "e", Send: &wire.Send{Fence: c.fence("first"), Step: wire.StepRef{Name: "emit", Number: 1}, Place: 1},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "another playing", n.save(c, "second", 0, completed("a", `1`)).Status, wire.Superseded)
		want(t, "the first", n.save(c, "first", 0, completed("a", `1`)).Status, wire.Accepted)
	})
}

// Rule C3: until its node knows what becomes of the newer call's request, the older one is told to try again.
func TestACallIsNotSupersededByOneThatHasJustBegun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		n.start(t, "w")
		first := a.next(t, time.Second)
		told := make(chan string, 1)
		var asked atomic.Bool
		s.set(func(changes []store.Change) error {
			begin, ok := changes[0][0].(store.UpdateRun)
			if !ok || begin.Run.Epoch != 2 || asked.Swap(true) {
				return nil
			}
			if _, err := s.Store.Commit(context.Background(), changes); err != nil { // it is stored, and nobody has heard of that
				return err
			}
			told <- n.save(first, "one", 0, completed("a", `1`)).Status
			return nil
		})
		first.lose()
		want(t, "a save beside the commit that begins the next call", <-told, wire.Later)
	})
}

// slowBegins is a store in which the begins of calls take longer than a lease, and are heard of long after they are stored.
type slowBegins struct{ store.Store }

func (s slowBegins) Commit(ctx context.Context, changes []store.Change) ([]store.Result, error) {
	update, ok := changes[0][0].(store.UpdateRun)
	if !ok || update.Run.Status != workflow.Running || update.Run.Version != 2 {
		return s.Store.Commit(ctx, changes)
	}
	time.Sleep(6 * time.Second)
	results, err := s.Store.Commit(ctx, changes)
	time.Sleep(8 * time.Second) // the timers look meanwhile
	return results, err
}

// W5: a slot that is never given back leaves its app's runs waiting for nothing.
func TestACallThatATimerFindsBeforeItsBeginIsHeardOfHasOneSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n := startNode(t, slowBegins{memory.New()}, a, engine.Options{Concurrency: 1, Lease: 5 * time.Second})
		n.know(t)
		for range 3 {
			n.start(t, "w")
			n.start(t, "w") // in line, so that its begin is a commit of its own
			for range 2 {
				c := a.next(t, time.Minute)
				c.end(t, wire.End{Type: wire.Completed})
			}
		}
	})
}

// Those who wait for a run are let go by the server's stop beside its end.
func TestAStopBesideTheEndOfARunThatIsWaitedFor(t *testing.T) {
	a := newApp(wire.Workflow{Name: "w"})
	for range 20 {
		n, s := startFaulty(t, a)
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		s.set(func([]store.Change) error { runtime.Gosched(); return nil })
		var waiting sync.WaitGroup
		for range 50 {
			waiting.Go(func() { _, _ = n.RunRecord(context.Background(), engine.DefaultEnv, id, 10*time.Second) })
		}
		waiting.Go(func() { c.end(t, wire.End{Type: wire.Completed}) })
		waiting.Go(n.stop)
		waiting.Wait()
	}
}

// W5: where a process stood still and a second one took its place, the one hears from nobody that a call of its is over.
func TestASlotIsFreeWhoseCallAnotherProcessHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := newApp(wire.Workflow{Name: "w"}), &faulty{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{Concurrency: 1, Lease: 5 * time.Second})
		n.know(t)
		run := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		s.change(t, run, workflow.End{CallID: c.Call.Call.ID, Kind: workflow.EndCompleted, Output: jsontext.Value(`1`)})
		n.start(t, "w")
		a.next(t, 10*time.Second)
	})
}
