package engine_test

import (
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// ticksOf are the workflows and instants of all runs of schedules, sorted.
func ticksOf(t *testing.T, n *node, s store.Reader) []string {
	t.Helper()
	var ticks []string
	for _, id := range allRuns(t, s) {
		run := n.run(t, id)
		_, at, _ := strings.Cut(string(run.Payload), `"time":"`)
		ticks = append(ticks, run.Workflow+" "+strings.TrimRight(at, `"}`))
	}
	slices.Sort(ticks)
	return ticks
}

// Rule D2: the next tick is stored, so that a server which never runs for as long as a schedule's period still keeps it.
func TestAWeeklyScheduleTicksThoughTheServerRestartsEveryTenMinutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, s := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Schedule: "30 6 * * 1"}}}), memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		for end := time.Now().Add(5 * 7 * 24 * time.Hour); time.Now().Before(end); {
			n.stop()
			time.Sleep(time.Until(time.Now().Truncate(10 * time.Minute).Add(10*time.Minute - time.Second)))
			n = startNode(t, s, a, engine.Options{})
			time.Sleep(2 * time.Second)
			synctest.Wait()
			select {
			case c := <-a.calls:
				c.end(t, wire.End{Type: wire.Completed})
				want(t, "the time", time.Now().UTC().Format("Mon 15:04"), "Mon 06:30")
			default:
			}
		}
		ticks := ticksOf(t, n, s)
		want(t, "ticks in five weeks", len(ticks), 5)
		want(t, "ticks that are not like another", len(slices.Compact(ticks)), 5)
	})
}

// However many workflows have the same schedule, and also where one has it twice: each starts one run at each tick.
func TestWorkflowsOfOneScheduleEachStartOneRunATick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		every5 := wire.Trigger{Schedule: "*/5 * * * *"}
		var workflows []wire.Workflow
		for i := range 5 {
			workflows = append(workflows, wire.Workflow{Name: fmt.Sprint("w", i), Triggers: []wire.Trigger{every5}})
		}
		workflows[4].Triggers = append(workflows[4].Triggers, every5)
		a := newApp(workflows...)
		n, s := startApp(t, a, engine.Options{})
		n.know(t) // described again, nothing is there twice
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		ticks := ticksOf(t, n, s)
		want(t, "runs of two ticks", len(ticks), 10)
		want(t, "runs of one workflow and tick", len(slices.Compact(ticks)), 10)
	})
}

// Rule D2: ticks are counted from the one before and not from the clock, so that none is repeated or left out by a slow store,
// by runs that take longer than the time between two ticks, or by two nodes.
func TestASlowTickIsNeitherRepeatedNorLeftOut(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Schedule: "* * * * *", CatchUp: "all"}}})
				n, s := startFaulty(t, a)
				if nodes == 2 {
					startNode(t, s, a, engine.Options{}).know(t)
				}
				began := time.Now().UTC().Truncate(time.Minute)
				var ticks atomic.Int32
				s.set(func(changes []store.Change) error {
					for _, change := range changes {
						if _, isTick := change[0].(store.PutSchedule); isTick && ticks.Add(1) == 2 {
							time.Sleep(90 * time.Second)
						}
					}
					return nil
				})
				time.Sleep(time.Until(began.Add(6*time.Minute + 30*time.Second)))
				var all []string
				for i := range 6 {
					all = append(all, "w "+began.Add(time.Duration(i+1)*time.Minute).Format("2006-01-02T15:04:05.000Z"))
				}
				want(t, "ticks", ticksOf(t, n, s), all)
			})
		})
	}
}

// Rule D2: however many schedules tick at one moment, and whatever a commit takes, none of their ticks is taken for missed because those before it
// took their time.
func TestManySchedulesThatTickAtOnceEachStartTheirRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const schedules = 2_000
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		for i := range schedules {
			r := engine.ScheduleRequest{Env: engine.DefaultEnv, ID: fmt.Sprint("user", i), Workflow: "w", Expression: "0 * * * *"}
			if _, err := n.PutSchedule(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		s.set(func([]store.Change) error { time.Sleep(50 * time.Millisecond); return nil })
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 5*time.Minute)))
		want(t, "runs", len(allRuns(t, s)), schedules)
	})
}

// Rule D2: what a schedule catches up is started in commits that a store takes, however large its payload is.
func TestMissedTicksOfALargePayloadAreStartedInParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const missed = 150
		a, s := newApp(wire.Workflow{Name: "w"}), &faulty{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		payload := jsontext.Value(`"` + strings.Repeat("x", 256<<10) + `"`)
		r := engine.ScheduleRequest{Env: engine.DefaultEnv, ID: "large", Workflow: "w", Expression: "* * * * *", CatchUp: "all", Payload: payload}
		if _, err := n.PutSchedule(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		n.stop()
		time.Sleep(missed * time.Minute)
		var largest atomic.Int64
		s.set(func(changes []store.Change) error {
			for _, change := range changes {
				largest.Store(max(largest.Load(), int64(change.Bytes())))
			}
			return nil
		})
		n = startNode(t, s, a, engine.Options{})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want(t, "runs", len(slices.Compact(ticksOf(t, n, s))), missed)
		if largest.Load() > 2<<20 {
			t.Errorf("one change has %d bytes", largest.Load())
		}
	})
}

// However many events for later are due at one moment, and whatever a commit takes, they are emitted in their order and share commits; one that
// can't be stored holds up no other.
func TestManyEventsThatAreDueAtOnceShareCommits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const events = 1_000
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		at := time.Now().Add(time.Minute)
		var later []engine.NewEvent
		for i := range events {
			name := "later"
			if i == 17 {
				name = "refused"
			}
			later = append(later, engine.NewEvent{Name: name, Payload: jsontext.Value(fmt.Sprint(i)), At: at.Add(time.Duration(i) * time.Millisecond)})
		}
		n.emit(t, later...)
		n.stop()
		time.Sleep(2 * time.Minute)
		s.set(func(changes []store.Change) error {
			time.Sleep(20 * time.Millisecond)
			for _, op := range slices.Concat(changes...) {
				if ev, ok := op.(store.InsertEvent); ok && ev.Event.Name == "refused" {
					return store.ErrBadChange
				}
			}
			return nil
		})
		startNode(t, s, a, engine.Options{})
		time.Sleep(10 * time.Second)
		stored, err := s.Events(t.Context(), store.EventQuery{Forward: true, Limit: 2 * events})
		if want(t, "events", len(stored), events-1); err != nil {
			t.Fatal(err)
		}
		for i, ev := range stored {
			if i >= 17 {
				i++
			}
			want(t, "the event", string(ev.Payload), fmt.Sprint(i))
		}
	})
}

// D2: time zone data changes, with a new server or under one that runs, and with it when a schedule ticks next. The tick that had been reckoned before
// would come an hour late, and a schedule that catches nothing up would miss it: of a yearly one that is a year.
func TestAScheduleTicksByTheTimeZoneDataThatThereIs(t *testing.T) {
	for _, c := range []struct {
		when    string
		changes time.Duration // after the server's start
	}{{"before the start", 0}, {"under a server", 15 * time.Minute}} {
		t.Run(c.when, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				s := memory.New()
				began := time.Now().UTC()
				change := func() {
					_, err := s.Commit(t.Context(), []store.Change{{store.PutSchedule{Schedule: store.Schedule{
						Env: engine.DefaultEnv, ID: "s_1", App: "app", Workflow: "w", Expression: "0 0 2 1 *", Timezone: "Europe/Berlin", Version: 1,
						Cursor: began, NextAt: time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC), CreatedAt: began, // as if Berlin went by UTC
					}}}})
					if err != nil {
						t.Error(err)
					}
				}
				if c.changes == 0 {
					change()
				}
				n := startNode(t, s, a, engine.Options{})
				n.know(t)
				if c.changes > 0 {
					time.Sleep(c.changes)
					change()
				}
				a.next(t, 48*time.Hour)
				want(t, "its time", time.Now().UTC().Truncate(time.Minute), time.Date(2000, 1, 1, 23, 0, 0, 0, time.UTC))
			})
		})
	}
}
