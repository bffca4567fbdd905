package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// faulty is a store whose commits fail as a test says.
type faulty struct {
	store.Store
	mu   sync.Mutex
	fail func([]store.Change) error // nil: nothing fails
	// reads is called before a history is read; nil: nothing is.
	reads func()
	// unread has reads of schedules fail; nil: they don't.
	unread func(store.ScheduleQuery) error
}

func (f *faulty) Schedules(ctx context.Context, q store.ScheduleQuery) ([]store.Schedule, error) {
	f.mu.Lock()
	unread := f.unread
	f.mu.Unlock()
	if unread != nil {
		if err := unread(q); err != nil {
			return nil, err
		}
	}
	return f.Store.Schedules(ctx, q)
}

func (f *faulty) Entries(ctx context.Context, q store.EntryQuery) ([]store.Entry, error) {
	f.mu.Lock()
	reads := f.reads
	f.mu.Unlock()
	if reads != nil {
		reads()
	}
	return f.Store.Entries(ctx, q)
}

func (f *faulty) Commit(ctx context.Context, changes []store.Change) ([]store.Result, error) {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	if fail != nil {
		if err := fail(changes); err != nil {
			return nil, err
		}
	}
	return f.Store.Commit(ctx, changes)
}

func (f *faulty) set(fail func([]store.Change) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// failsOnce has nobody know what became of the next change of a run, which is not stored.
func (f *faulty) failsOnce() {
	failed := false
	f.set(func(changes []store.Change) error {
		if _, updates := changes[0][0].(store.UpdateRun); !updates || failed {
			return nil
		}
		failed = true
		return store.ErrUnknown
	})
}

func startFaulty(t *testing.T, a *app) (*node, *faulty) {
	t.Helper()
	s := &faulty{Store: memory.New()}
	n := startNode(t, s, a, engine.Options{})
	n.know(t)
	return n, s
}

func TestAPoisonedSaveFailsAloneInItsBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		const calls = 50
		var sent []*sentCall
		for range calls {
			n.start(t, "w")
			sent = append(sent, a.next(t, time.Second))
		}
		poisoned := sent[17].Run.ID
		s.set(func(changes []store.Change) error {
			for _, c := range changes {
				if save, ok := c[0].(store.SaveSteps); ok && save.RunID == poisoned {
					return fmt.Errorf("a value that the database refuses: %w", store.ErrBadChange)
				}
			}
			return nil
		})
		saves := wire.Saves{Process: "p"}
		for i, c := range sent {
			saves.Saves = append(saves.Saves, wire.Save{Fence: c.fence(fmt.Sprint(i)), Items: []wire.Item{completed("a", `1`)}})
		}
		for i, out := range n.Save(context.Background(), saves).Saves {
			if wanted := map[bool]string{true: wire.Invalid, false: wire.Accepted}[i == 17]; out.Status != wanted {
				t.Errorf("N3: save %d: %s (%s), want %s", i, out.Status, out.Detail, wanted)
			}
		}
	})
}

func TestWhatTheStoreCouldNotTakeForHalfAMinuteIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		s.set(func([]store.Change) error { return errors.New("disk full") })
		began := time.Now()
		request := engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w", ID: "run_01kbz000000000000000000000"}
		if _, err := n.StartRun(context.Background(), request); !errors.Is(err, engine.ErrUnstored) {
			t.Fatalf("%v", err)
		}
		if took := time.Since(began); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("given back after %v", took)
		}
		s.set(nil)
		time.Sleep(3 * time.Second) // in which new runs are refused at once
		again, err := n.StartRun(context.Background(), request)
		if err != nil || !again.Created {
			t.Fatalf("%+v, %v: nothing of it may have been stored", again, err)
		}
		want(t, "the call", a.next(t, time.Second).Run.ID, request.ID)
	})
}

// A server that is told to stop while its store is away does so in its time: who asked has been cut off, and has been acknowledged nothing.
func TestAServerWhoseStoreIsAwayStopsInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		s.set(func([]store.Change) error { return errors.New("the database is away") })
		asked := make(chan error, 1)
		go func() {
			_, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w"})
			asked <- err
		}()
		time.Sleep(time.Second)
		began := time.Now()
		n.stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := <-asked; !errors.Is(err, engine.ErrUnstored) {
			t.Errorf("who asked heard %v", err)
		}
	})
}

// Many large values at once are written in several transactions, which no database refuses for their size.
func TestABatchIsBoundedInBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		largest := 0
		s.set(func(changes []store.Change) error {
			bytes := 0
			for _, c := range changes {
				for _, op := range c {
					if event, ok := op.(store.InsertEvent); ok {
						bytes += len(event.Event.Payload)
					}
				}
			}
			largest = max(largest, bytes)
			time.Sleep(time.Second)
			return nil
		})
		payload := jsontext.Value(`"` + strings.Repeat("x", 1<<20-2) + `"`)
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				if _, _, err := n.Emit(context.Background(), engine.DefaultEnv, []engine.NewEvent{{Name: "e", Payload: payload}}, nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if largest < 8<<20 || largest > 16<<20 {
			t.Errorf("the largest transaction had %d bytes", largest)
		}
	})
}

func TestNothingIsAnsweredBeforeItIsDurable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		s.set(func([]store.Change) error { return errors.New("disk full") })
		answered := make(chan engine.Started, 1)
		go func() {
			started, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w", Payload: jsontext.Value(`1`)})
			if err == nil {
				answered <- started
			}
		}()
		time.Sleep(10 * time.Second)
		if len(answered) > 0 || len(a.calls) > 0 {
			t.Fatal("W6: it answered, or called, before the store had the run")
		}
		s.set(nil) // room again: it goes on without a restart
		started := <-answered
		want(t, "the call", a.next(t, time.Second).Run.ID, started.Run.ID)
	})
}

func TestASaveWaitsForAStoreThatCannotWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		s.set(func([]store.Change) error { return errors.New("disk full") })
		began := time.Now()
		want(t, "told", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Later)
		if waited := time.Since(began); waited > 2*time.Minute {
			t.Errorf("the save was held for %v", waited)
		}
		s.set(nil)
		want(t, "tried again", n.save(c, "n", 0, completed("a", `1`)).Items[0].Status, wire.ItemSaved)
		c.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		want(t, "status", n.run(t, id).Status, workflow.Completed)
	})
}

func TestASaveOfABoundCallIsNotAnsweredBeforeItIsDurable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		n.start(t, "w")
		c := a.next(t, time.Second)
		want(t, "the first", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		s.set(func([]store.Change) error { return errors.New("disk full") })
		want(t, "W6: told", n.save(c, "n", 1, completed("b", `2`)).Status, wire.Later)
	})
}

// Rule N3.
func TestASaturatedServerRefusesNewWorkAndNoSaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		n.start(t, "w")
		c := a.next(t, time.Second)
		release := make(chan struct{})
		s.set(func([]store.Change) error { <-release; return nil })
		for range 30_000 {
			go n.Emit(context.Background(), engine.DefaultEnv, []engine.NewEvent{{Name: "e"}}, nil)
		}
		synctest.Wait()
		if _, _, err := n.Emit(context.Background(), engine.DefaultEnv, []engine.NewEvent{{Name: "e"}}, nil); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("a saturated server took an event: %v", err)
		}
		if _, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w"}); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("a saturated server took a run: %v", err)
		}
		saved := make(chan wire.SaveOutcome, 1)
		go func() { saved <- n.save(c, "n", 0, completed("a", `1`)) }()
		synctest.Wait()
		close(release)
		want(t, "the save", (<-saved).Status, wire.Accepted)
	})
}

func TestARunThatChangesMeanwhileIsDecidedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		// Between the decision to cancel and its commit, the call's first save changes the run.
		var once sync.Once
		s.set(func(changes []store.Change) error {
			if _, ok := changes[0][0].(store.UpdateRun); ok {
				once.Do(func() {
					_, err := s.Store.Commit(context.Background(), []store.Change{{store.SaveSteps{RunID: id, CallID: c.Call.Call.ID, Nonce: "n"}}})
					if err != nil {
						t.Error(err)
					}
				})
			}
			return nil
		})
		if _, err := n.Cancel(context.Background(), engine.DefaultEnv, id, false); err != nil {
			t.Fatal(err)
		}
		run := n.run(t, id)
		if run.Ending == nil || run.Call.Nonce != "n" {
			t.Fatalf("N1: one of the two changes is lost: %+v", run.Run)
		}
	})
}

func TestAnEventEmittedTwiceAtOnceStartsItsWorkflowsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "e"}}})
		n, s := startFaulty(t, a)
		time.Sleep(5 * time.Second) // an idle app: a run may begin in the commit that stores it
		emit := func() engine.Emitted { return n.emit(t, engine.NewEvent{Name: "e", ID: "pay_1"})[0] }
		second := make(chan engine.Emitted, 1)
		var once sync.Once
		s.set(func([]store.Change) error {
			once.Do(func() { // while the first is not stored yet, the second finds nothing
				go func() { second <- emit() }()
				time.Sleep(time.Second)
			})
			return nil
		})
		want(t, "created", fmt.Sprint(emit().Created, (<-second).Created), "true false")
		want(t, "runs", len(allRuns(t, s)), 1)
		a.next(t, time.Second)
		a.none(t, time.Minute) // W7: no run that was not stored is called
	})
}

// W6: an app is not said to be ready before the store has it: after a crash it would start nothing of what it listens to. What could not be
// stored is stored at the next look.
func TestAnAppIsReadyOnceItIsStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "paid"}}})
		s := &faulty{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{})
		s.set(func(changes []store.Change) error {
			for _, change := range changes {
				if _, ok := change[0].(store.PutApp); ok {
					return errors.New("the disk is full")
				}
			}
			return nil
		})
		n.AddApp("http://127.0.0.1:3000")
		ready := func() bool {
			apps := n.Apps(engine.DefaultEnv)
			return len(apps) == 1 && apps[0].Name == "app" && apps[0].Reason == ""
		}
		for range 100 {
			time.Sleep(time.Second)
			if ready() {
				t.Fatal("an app that is not stored is ready")
			}
		}
		s.set(nil)
		time.Sleep(time.Minute)
		if !ready() {
			t.Error("an app that can be stored is not ready")
		}
		if stored, err := s.Apps(context.Background()); err != nil || len(stored) != 1 {
			t.Errorf("stored is %+v, %v", stored, err)
		}
	})
}

// crowded is a store whose reads take a while, and counts how many there are at once at most.
type crowded struct {
	store.Store
	now, most atomic.Int64
}

func (c *crowded) Load(ctx context.Context, runID string) (workflow.Run, store.History, error) {
	if now := c.now.Add(1); now > c.most.Load() {
		c.most.Store(now) // one of a bubble at a time
	}
	time.Sleep(time.Millisecond)
	c.now.Add(-1)
	return c.Store.Load(ctx, runID)
}

// Whoever can reach the port may send a request full of saves of no calls: it holds no memory for each of them but what it is made of.
func TestSavesOfUnknownCallsAreReadAFewAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &crowded{Store: memory.New()}
		n := startNode(t, s, newApp(wire.Workflow{Name: "w"}), engine.Options{})
		saves := wire.Saves{Process: "p", Saves: make([]wire.Save, 10_000)}
		for i := range saves.Saves {
			saves.Saves[i].Fence = wire.Fence{Call: fmt.Sprint(i), Token: "run_x.x"}
		}
		answer := n.Save(t.Context(), saves)
		if most := s.most.Load(); most < 2 || most > 1_000 {
			t.Errorf("%d were read at once", most)
		}
		for i, out := range answer.Saves {
			if out.Call != fmt.Sprint(i) || out.Status != wire.Superseded {
				t.Fatalf("save %d: %+v", i, out)
			}
		}
	})
}

// unreadable is a store that can't read one run's state, and counts how often timers are asked for.
type unreadable struct {
	store.Store
	run   atomic.Value
	looks atomic.Int64
}

func (u *unreadable) State(ctx context.Context, q store.EntryQuery) (store.State, error) {
	if q.RunID == u.run.Load() {
		return store.State{}, errors.New("database disk image is malformed")
	}
	return u.Store.State(ctx, q)
}

func (u *unreadable) Timers(ctx context.Context, q store.TimerQuery) ([]workflow.Run, error) {
	if u.looks.Add(1) == 10_000 {
		panic("10,000 looks")
	}
	return u.Store.Timers(ctx, q)
}

func TestATimerThatFailsIsNotTriedWithoutAPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := newApp(wire.Workflow{Name: "w"}), &unreadable{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		run := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		c.end(t, wire.End{Type: wire.Suspended, Register: []wire.Item{sleep("s", time.Minute)}, Waits: []wire.Tree{{Wait: &wire.StepRef{Name: "s", Number: 1}}}})
		time.Sleep(30 * time.Second)
		s.run.Store(run)
		before := s.looks.Load()
		time.Sleep(time.Minute)
		if got := s.looks.Load() - before; got > 100 {
			t.Errorf("%d looks in a minute", got)
		}
		s.run.Store("")
		a.next(t, 6*time.Second)
	})
}

func TestWhatWasWrittenAndNotSyncedIsNotSaidToBeUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, s := startFaulty(t, newApp(wire.Workflow{Name: "w"}))
		first := true
		s.set(func([]store.Change) error {
			if first {
				first = false
				return store.ErrUnsynced
			}
			return errors.New("the disk is gone")
		})
		_, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w"})
		if !errors.Is(err, store.ErrUnknown) {
			t.Errorf("got %v, want that nobody knows", err)
		}
	})
}

// Rule C10: ends that come together, as after a time without a server, share commits.
func TestManyEndsOfOneRequestShareCommits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const calls = 500
		a := newApp(wire.Workflow{Name: "w"})
		s := &faulty{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{Concurrency: calls})
		n.know(t)
		ends := wire.Ends{Process: "process"}
		for range calls {
			n.start(t, "w")
			ends.Ends = append(ends.Ends, wire.SentEnd{Fence: a.next(t, time.Second).fence("n"), End: wire.End{Type: wire.Completed}})
		}
		s.set(func([]store.Change) error { time.Sleep(20 * time.Millisecond); return nil })
		began := time.Now()
		for _, outcome := range n.End(t.Context(), ends).Ends {
			want(t, "the outcome", outcome.Status, wire.Accepted)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("they took %v", took)
		}
	})
}
