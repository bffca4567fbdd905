package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// hourly is an app whose workflow runs at the start of each hour.
func hourly(catchUp string) *app {
	return newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Schedule: "0 * * * *", CatchUp: catchUp}}})
}

// Promise 11, rule D2: each tick of a schedule starts one run, at its time, with the tick as its payload.
func TestAScheduleStartsARunAtEachTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := hourly("")
		n, s := startApp(t, a, engine.Options{})
		began := time.Now().UTC()
		for tick := began.Truncate(time.Hour).Add(time.Hour); tick.Sub(began) < 5*time.Hour; tick = tick.Add(time.Hour) {
			c := a.next(t, 2*time.Hour)
			if late := time.Since(tick); late < 0 || late > time.Second {
				t.Errorf("W4: the tick at %v came %v after it", tick, late)
			}
			want(t, "its payload", string(c.Run.Payload), `{"schedule":"0 * * * *","time":"`+tick.Format("2006-01-02T15:04:05.000Z")+`"}`)
			c.nonce = "n"
			c.end(t, wire.End{Type: wire.Completed})
		}
		synctest.Wait()
		schedules, err := s.Schedules(t.Context(), store.ScheduleQuery{Env: engine.DefaultEnv, Limit: 10})
		if err != nil || len(schedules) != 1 || !schedules[0].Declared {
			t.Fatalf("%+v, %v", schedules, err)
		}
		n.know(t) // described again, it does not start anew
		again, err := s.Schedules(t.Context(), store.ScheduleQuery{Env: engine.DefaultEnv, Limit: 10})
		if err != nil || fmt.Sprint(again) != fmt.Sprint(schedules) {
			t.Errorf("it became %+v, %v", again, err)
		}
	})
}

// D2: ticks that passed while no server ran follow catchUp.
func TestMissedTicksFollowCatchUp(t *testing.T) {
	for _, c := range []struct {
		catchUp string
		runs    int
	}{{"", 0}, {"none", 0}, {"last", 1}, {"all", 5}} {
		t.Run("catchUp "+c.catchUp, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, s := hourly(c.catchUp), memory.New()
				n := startNode(t, s, a, engine.Options{})
				n.know(t)
				n.stop()
				now := time.Now()
				time.Sleep(now.Truncate(time.Hour).Add(5*time.Hour + 30*time.Minute).Sub(now))
				startNode(t, s, a, engine.Options{})
				time.Sleep(time.Minute)
				want(t, "runs", len(allRuns(t, s)), c.runs)
			})
		})
	}
}

// D2: one tick, one run, over all nodes.
func TestTwoNodesStartOneRunForATick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := hourly(""), memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		other := startNode(t, s, a, engine.Options{})
		other.know(t)
		time.Sleep(3*time.Hour + time.Second)
		want(t, "runs", len(allRuns(t, s)), 3)
	})
}

// D1: a schedule that its app no longer declares goes after a while, and old and new replicas that answer in turn lose no tick.
func TestADeclaredScheduleGoesWithItsTrigger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := hourly("")
		n, s := startApp(t, a, engine.Options{ForgetAfter: 10 * time.Minute})
		n.AddApp("http://127.0.0.1:3000")
		a.mu.Lock()
		a.manifest.Workflows[0].Triggers = []wire.Trigger{{Schedule: "30 * * * *"}}
		a.manifest.Hash = "other"
		a.mu.Unlock()
		ids := func() int {
			list, err := s.Schedules(context.Background(), store.ScheduleQuery{Env: engine.DefaultEnv, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		time.Sleep(time.Minute)
		want(t, "at first", ids(), 2)
		time.Sleep(15 * time.Minute)
		want(t, "later", ids(), 1)
	})
}

// D1: a changed catchUp holds as soon as the app says so. It is the same schedule, and nothing of it is kept for a while.
func TestADeclaredSchedulesCatchUpChangesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := hourly("")
		n, s := startApp(t, a, engine.Options{ForgetAfter: 10 * time.Minute})
		n.AddApp("http://127.0.0.1:3000")
		a.mu.Lock()
		a.manifest.Workflows = hourly("all").manifest.Workflows
		a.manifest.Hash = "other"
		a.mu.Unlock()
		time.Sleep(time.Minute)
		list, err := s.Schedules(t.Context(), store.ScheduleQuery{Env: engine.DefaultEnv, Limit: 10})
		if err != nil || len(list) != 1 || list[0].CatchUp != "all" {
			t.Errorf("the schedules are %+v, %v", list, err)
		}
		want(t, "triggers", len(n.Apps(engine.DefaultEnv)[0].Workflows[0].Triggers), 1)
	})
}

// A schedule may be made, changed, paused and removed at run time.
func TestASchedulesLife(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startApp(t, a, engine.Options{})
		ctx := context.Background()
		r := engine.ScheduleRequest{Env: engine.DefaultEnv, ID: "user-1", Workflow: "w", Expression: "*/10 * * * *", Payload: jsontext.Value(`{"user":1}`)}
		if _, err := n.PutSchedule(ctx, r); err != nil {
			t.Fatal(err)
		}
		c := a.next(t, 11*time.Minute)
		if !strings.Contains(string(c.Run.Payload), `"payload":{"user":1}`) {
			t.Errorf("its run's payload is %s", c.Run.Payload)
		}
		c.end(t, wire.End{Type: wire.Completed})
		if _, err := n.PauseSchedule(ctx, r.Env, r.ID, true); err != nil {
			t.Fatal(err)
		}
		a.none(t, time.Hour)
		if _, err := n.PauseSchedule(ctx, r.Env, r.ID, false); err != nil {
			t.Fatal(err)
		}
		a.next(t, 11*time.Minute).end(t, wire.End{Type: wire.Completed})
		want(t, "runs", len(allRuns(t, s)), 2)
		r.Expression = "0 0 30 2 *"
		if _, err := n.PutSchedule(ctx, r); !errors.Is(err, engine.ErrBadSchedule) {
			t.Errorf("a schedule that never ticks: %v", err)
		}
		if err := n.DropSchedule(ctx, r.Env, r.ID); err != nil {
			t.Fatal(err)
		}
		if err := n.DropSchedule(ctx, r.Env, r.ID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("dropped again: %v", err)
		}
		a.none(t, time.Hour)
	})
}

// A schedule's payload is any JSON, and stands in its runs' as it came.
func TestASchedulesPayloadIsAnyJSON(t *testing.T) {
	for _, payload := range []string{`{"a":1,"a":2}`, `"\ud800"`, `1e400`} {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, _ := startApp(t, a, engine.Options{})
			r := engine.ScheduleRequest{Env: engine.DefaultEnv, ID: "any", Workflow: "w", Expression: "*/10 * * * *", Payload: jsontext.Value(payload)}
			if _, err := n.PutSchedule(context.Background(), r); err != nil {
				t.Fatal(err)
			}
			if c := a.next(t, 11*time.Minute); !strings.HasSuffix(string(c.Run.Payload), `,"payload":`+payload+`}`) {
				t.Errorf("its run's payload is %s", c.Run.Payload)
			}
		})
	}
}

// What is due and can't be done holds up nothing else that is due: neither a payload that is no JSON, which starts nothing, nor what the
// store refuses.
func TestWhatIsDueHoldsUpNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		ctx := context.Background()
		for id, payload := range map[string]string{"a": `{"a":`, "b": `"bad"`, "c": `"good"`} {
			r := engine.ScheduleRequest{Env: engine.DefaultEnv, ID: id, Workflow: "w", Expression: "*/10 * * * *", Payload: jsontext.Value(payload)}
			if _, err := n.PutSchedule(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		at := time.Now().Add(time.Hour)
		n.emit(t, engine.NewEvent{Name: "bad", At: at}, engine.NewEvent{Name: "good", At: at.Add(time.Second)})
		s.set(func(changes []store.Change) error {
			for _, c := range changes {
				for _, op := range c {
					run, isRun := op.(store.InsertRun)
					event, isEvent := op.(store.InsertEvent)
					if isRun && strings.Contains(string(run.Payload), `"bad"`) || isEvent && event.Event.Name == "bad" {
						return fmt.Errorf("a value that the database refuses: %w", store.ErrBadChange)
					}
				}
			}
			return nil
		})
		c := a.next(t, 11*time.Minute)
		if !strings.Contains(string(c.Run.Payload), `"payload":"good"`) {
			t.Errorf("the run of another schedule has the payload %s", c.Run.Payload)
		}
		c.end(t, wire.End{Type: wire.Completed})
		time.Sleep(time.Minute)
		want(t, "runs", len(allRuns(t, s)), 1)
		time.Sleep(time.Hour)
		events, err := s.Events(ctx, store.EventQuery{Env: engine.DefaultEnv, Limit: 10})
		if err != nil || len(events) != 1 || events[0].Name != "good" {
			t.Errorf("the events are %+v, %v", events, err)
		}
	})
}

// Promise 5: an event for later is stored at once, and emitted at its time, once.
func TestAnEventForLaterIsEmittedThen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "paid"}}})
		s := memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		for range 2 {
			n.emit(t, engine.NewEvent{Name: "paid", ID: "p1", Payload: jsontext.Value(`1`), At: at})
		}
		a.none(t, 30*time.Minute)
		n.stop()
		n = startNode(t, s, a, engine.Options{})
		n.know(t)
		a.next(t, time.Hour).end(t, wire.End{Type: wire.Completed})
		if late := time.Since(at); late < 0 || late > 6*time.Second {
			t.Errorf("W4: it came %v after its time", late)
		}
		a.none(t, time.Hour)
		events, err := s.Events(t.Context(), store.EventQuery{Env: engine.DefaultEnv, Limit: 10})
		if err != nil || len(events) != 1 {
			t.Errorf("events: %+v, %v", events, err)
		}
	})
}

// E3: a trigger's filter decides on the payload; one that fails on it is no match.
func TestATriggersFilterDecides(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "paid", If: "payload.total > 0"}, {Event: "paid", If: "payload.gift"}}})
		n, s := startApp(t, a, engine.Options{})
		for _, payload := range []string{`{"total":0}`, `{"total":3}`, `{"total":-1,"gift":true}`, `{"total":5,"gift":true}`, `{}`, `null`} {
			n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(payload)})
		}
		want(t, "runs", len(allRuns(t, s)), 3)
	})
}

// A filter that can't be used is reported when its app is registered, and starts nothing.
func TestABrokenTriggerIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "paid", If: "payload.total >"}, {Schedule: "0 0 30 2 *"}}, CancelOn: []wire.Trigger{{Event: "paid", If: "'text'"}}})
		n, s := startApp(t, a, engine.Options{})
		n.emit(t, engine.NewEvent{Name: "paid", Payload: jsontext.Value(`{"total":3}`)})
		want(t, "runs", len(allRuns(t, s)), 0)
		problems := strings.Join(n.Apps(engine.DefaultEnv)[0].Problems, "\n")
		for _, says := range []string{"the filter", "its schedule", "cancelOn"} {
			if !strings.Contains(problems, says) {
				t.Errorf("nothing is said of %s: %s", says, problems)
			}
		}
	})
}

// cancelOn: an event ends the runs that were there before it, and no other.
func TestCancelOnEndsARun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", CancelOn: []wire.Trigger{{Event: "order.cancelled", If: "payload.id == run.payload.id"}}})
		n, _ := startApp(t, a, engine.Options{})
		n.emit(t, engine.NewEvent{Name: "order.cancelled", Payload: jsontext.Value(`{"id":"o_1"}`)})
		id := n.startWith(t, engine.StartRequest{Payload: jsontext.Value(`{"id":"o_1"}`)}).Run.ID
		a.next(t, time.Second).suspend(t, "n", 0, sleep("long", 24*time.Hour))
		n.emit(t, engine.NewEvent{Name: "order.cancelled", Payload: jsontext.Value(`{"id":"o_2"}`)})
		time.Sleep(10 * time.Second)
		want(t, "after another's event", n.run(t, id).Status, workflow.Waiting)
		n.emit(t, engine.NewEvent{Name: "order.cancelled", Payload: jsontext.Value(`{"id":"o_1"}`)})
		time.Sleep(time.Second)
		want(t, "after its own", n.run(t, id).Status, workflow.Cancelled)
		replay, err := n.Replay(t.Context(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: id})
		if err != nil {
			t.Fatal(err)
		}
		a.next(t, time.Second).suspend(t, "n", 0, sleep("long", 24*time.Hour))
		time.Sleep(10 * time.Second)
		want(t, "a replay, after the event that cancelled the original", n.run(t, replay.Run.ID).Status, workflow.Waiting)
		n.emit(t, engine.NewEvent{Name: "order.cancelled", Payload: jsontext.Value(`{"id":"o_1"}`)})
		time.Sleep(time.Second)
		want(t, "a replay, after one of its own", n.run(t, replay.Run.ID).Status, workflow.Cancelled)
	})
}

// lines is a log that hands on what is written.
type lines chan<- string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

// D2: a schedule whose last tick is ahead of the clock stands still, and that is reported.
func TestAScheduleAheadOfTheClockIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		said := make(chan string, 100)
		s := memory.New()
		ahead := store.Schedule{Env: engine.DefaultEnv, ID: "s", App: "app", Workflow: "w", Expression: "* * * * *", Version: 1, Cursor: time.Now().Add(time.Hour), NextAt: time.Now().Add(time.Hour)}
		if _, err := s.Commit(t.Context(), []store.Change{{store.PutSchedule{Schedule: ahead}}}); err != nil {
			t.Fatal(err)
		}
		startNode(t, s, newApp(wire.Workflow{Name: "w"}), engine.Options{Logger: slog.New(slog.NewTextHandler(lines(said), nil))})
		time.Sleep(11 * time.Minute)
		if line := <-said; !strings.Contains(line, "ahead of the clock") {
			t.Errorf("the log says %s", line)
		}
		want(t, "runs", len(allRuns(t, s)), 0)
	})
}

// D2: a schedule that is removed and made anew under its id is another, whose versions begin again. What was about to be written of the
// earlier one is not written over it.
func TestAScheduleThatIsMadeAnewIsLeftAlone(t *testing.T) {
	ctx := context.Background()
	for name, write := range map[string]func(t *testing.T, n *node){
		"by a tick": func(*testing.T, *node) { time.Sleep(11 * time.Minute) },
		"by a pause": func(t *testing.T, n *node) {
			if _, err := n.PauseSchedule(ctx, engine.DefaultEnv, "s", true); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "other"})
				n, s := startFaulty(t, a)
				first, err := n.PutSchedule(ctx, engine.ScheduleRequest{Env: engine.DefaultEnv, ID: "s", Workflow: "w", Expression: "*/10 * * * *"})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				anew := first
				anew.Workflow, anew.Expression, anew.NextAt, anew.CreatedAt = "other", "0 0 1 1 *", time.Now().AddDate(0, 6, 0), time.Now()
				var once sync.Once
				s.set(func(changes []store.Change) error {
					if put, is := changes[0][0].(store.PutSchedule); is && put.Schedule.Version == 2 {
						once.Do(func() { // a user is faster, through another node
							for _, op := range []store.Op{store.DropSchedule{Env: engine.DefaultEnv, ID: "s"}, store.PutSchedule{Schedule: anew}} {
								if res, err := s.Store.Commit(ctx, []store.Change{{op}}); err != nil || res[0].Err != nil {
									t.Error(res, err)
								}
							}
						})
					}
					return nil
				})
				write(t, n)
				once.Do(func() { t.Error("nothing was about to be written") })
				got, err := n.Schedule(ctx, engine.DefaultEnv, "s")
				if err != nil || got.Workflow != "other" || got.Expression != "0 0 1 1 *" {
					t.Errorf("it is %s %q, %v", got.Workflow, got.Expression, err)
				}
				want(t, "runs", len(allRuns(t, s)), 0)
			})
		})
	}
}

// A schedule that can't be read is not taken for one that is not there: who removes it would believe it gone.
func TestAScheduleThatCannotBeReadIsNotGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx := context.Background()
		n, s := startFaulty(t, newApp(wire.Workflow{Name: "w"}))
		request := engine.ScheduleRequest{Env: engine.DefaultEnv, ID: "s", Workflow: "w", Expression: "0 1 * * *"}
		if _, err := n.PutSchedule(ctx, request); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.unread = func(store.ScheduleQuery) error { return store.ErrUnavailable }
		s.mu.Unlock()
		_, put := n.PutSchedule(ctx, request)
		_, paused := n.PauseSchedule(ctx, engine.DefaultEnv, "s", true)
		_, read := n.Schedule(ctx, engine.DefaultEnv, "s")
		for what, err := range map[string]error{"put": put, "pause": paused, "read": read, "drop": n.DropSchedule(ctx, engine.DefaultEnv, "s")} {
			if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// A commit takes its time: who is told before it that something is due sees nothing.
func TestAnEventForLaterIsHeardOfOnceItIsStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "paid"}}})
		n, s := startFaulty(t, a)
		time.Sleep(time.Minute + 100*time.Millisecond)
		s.set(func([]store.Change) error { time.Sleep(5 * time.Millisecond); return nil })
		at := time.Now().Add(200 * time.Millisecond)
		n.emit(t, engine.NewEvent{Name: "paid", At: at})
		a.next(t, time.Minute)
		if late := time.Since(at); late > time.Second {
			t.Errorf("the event came %v late", late)
		}
	})
}

// weighed is a store that tells how much of schedules, and of events for later, it was asked for at once.
type weighed struct {
	store.Store
	mu      sync.Mutex
	largest int
}

func (w *weighed) weigh(bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.largest = max(w.largest, bytes)
}

func (w *weighed) Schedules(ctx context.Context, q store.ScheduleQuery) ([]store.Schedule, error) {
	list, err := w.Store.Schedules(ctx, q)
	bytes := 0
	for _, s := range list {
		bytes += len(s.Payload)
	}
	w.weigh(bytes)
	return list, err
}

func (w *weighed) LaterEvents(ctx context.Context, q store.LaterQuery) ([]store.LaterEvent, error) {
	list, err := w.Store.LaterEvents(ctx, q)
	bytes := 0
	for _, e := range list {
		bytes += len(e.Payload)
	}
	w.weigh(bytes)
	return list, err
}

// Hundreds of the largest payloads may be due at one moment: a server that reads them at once is killed for its memory, and again when it starts.
func TestWhatIsDueIsReadSomeAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const count = 6
		large := jsontext.Value(`"` + strings.Repeat("x", 4<<20-2) + `"`)
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "late"}}})
		s := &weighed{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{Concurrency: 4 * count, SweepEvery: time.Minute})
		n.know(t)
		at := time.Now().UTC().Truncate(time.Hour).Add(time.Hour)
		for i := range count {
			_, err := n.PutSchedule(t.Context(), engine.ScheduleRequest{
				Env: engine.DefaultEnv, ID: fmt.Sprint("s", i), Workflow: "w", Expression: "0 * * * *", Payload: large,
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := n.Emit(t.Context(), engine.DefaultEnv, []engine.NewEvent{{Name: "late", Payload: large, At: at}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 * count {
			c := a.next(t, 2*time.Hour)
			c.nonce = "n"
			c.end(t, wire.End{Type: wire.Completed})
		}
		if time.Since(at) > time.Second {
			t.Errorf("the last came %v after its time", time.Since(at))
		}
		n.know(t)
		if err := n.RemoveApp(t.Context(), engine.DefaultEnv, "app"); err == nil {
			t.Error("an app with schedules was removed")
		}
		time.Sleep(2 * time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.largest > 16<<20 {
			t.Errorf("%d MiB were read at once", s.largest>>20)
		}
	})
}
