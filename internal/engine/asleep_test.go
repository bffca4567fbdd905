package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

const day = 24 * time.Hour

func until(name, at string) wire.Item {
	return wire.Item{Op: wire.OpWait, Kind: workflow.KindSleep, Name: name, Number: 1, Until: at}
}

// nothingLeft checks that an ended run has left nothing that waits, in the store or in memory.
func nothingLeft(t *testing.T, n *node, s store.Store, runID string) {
	t.Helper()
	run := n.run(t, runID)
	if !run.Status.Final() || !run.TimerAt().IsZero() || !run.ReadyAt().IsZero() {
		t.Errorf("the run is %s, due at %v and %v", run.Status, run.TimerAt(), run.ReadyAt())
	}
	for _, q := range []store.WaitQuery{{Set: store.WaitsOfRun, RunID: runID}, {Set: store.WaitsUnlooked}, {Set: store.WaitsOfKin}, {Set: store.WaitsFulfilled}} {
		left, err := s.Waits(context.Background(), q)
		if err != nil || len(left) > 0 {
			t.Errorf("of the waits %q there are %+v, %v", q.Set, left, err)
		}
	}
	if held := n.Held(); held != 0 {
		t.Errorf("%d things are held in memory", held)
	}
}

// However far away, a sleep ends at its time and not before; beyond a year it is refused with a sentence, and so is one below nothing.
func TestFarSleepsEndAtTheirTimeOrAreRefused(t *testing.T) {
	for _, c := range []struct {
		item wire.Item
		ends time.Duration
		says string // what the refusal says
	}{
		{sleep("25 days", 25*day), 25 * day, ""},
		{sleep("50 days", 50*day), 50 * day, ""},
		{sleep("300 days", 300*day), 300 * day, ""},
		{sleep("a leap year", 366*day), 366 * day, ""},
		{sleep("nothing", 0), 0, ""},
		{until("the past", "1999-12-31T23:59:59Z"), 0, ""},
		{until("before all clocks", "0001-01-01T00:00:00Z"), 0, ""},
		{until("with an offset", "2000-01-01T02:00:00+01:00"), time.Hour, ""}, // a bubble begins with the year 2000
		{sleep("more than a year", 366*day+time.Millisecond), 0, "a sleep has 0 ms to a year"},
		{sleep("ten years", 3650*day), 0, "a sleep has 0 ms to a year"},
		{wire.Item{Op: wire.OpWait, Kind: workflow.KindSleep, Name: "a thousand years", Number: 1, DelayMs: new(int64(1000 * 366 * 86_400_000))}, 0, "a sleep has 0 ms to a year"},
		{wire.Item{Op: wire.OpWait, Kind: workflow.KindSleep, Name: "all there is", Number: 1, DelayMs: new(int64(1<<63 - 1))}, 0, "a sleep has 0 ms to a year"},
		{sleep("negative", -time.Millisecond), 0, "a sleep has 0 ms to a year"},
		{until("year 9999", "9999-12-31T23:59:59Z"), 0, "a sleep lasts a year at most"},
		{until("no time", "soon"), 0, "RFC 3339"},
	} {
		t.Run(c.item.Name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, s := startApp(t, a, engine.Options{})
				n.start(t, "w")
				call := a.next(t, time.Second)
				began := time.Now()
				call.suspend(t, "n", 0, c.item)
				if c.ends > day { // most of it without a server
					a.none(t, time.Minute)
					n.stop()
					time.Sleep(c.ends - time.Hour)
					startNode(t, s, a, engine.Options{}).know(t)
				}
				next := a.next(t, c.ends+time.Minute)
				if slept := time.Since(began); slept < c.ends || slept > c.ends+timerSlack {
					t.Errorf("W4: it slept %v", slept)
				}
				got := next.history()
				if c.says == "" && got != c.item.Name+"=" || !strings.Contains(got, c.says) {
					t.Errorf("its history is %s", got)
				}
			})
		})
	}
}

// Many sleeps end at one instant, the app is slow, and the server stops in the middle: each is ended once, by one entry, and every run
// goes on. What is started meanwhile starts.
func TestSleepersOfOneInstantWakeOnceThoughTheServerStopsInTheMiddle(t *testing.T) {
	const runs = 300
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		options := engine.Options{Concurrency: 20}
		n.stop()
		n = startNode(t, s, a, options)
		n.know(t)
		at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano)
		for range runs {
			n.start(t, "w")
			a.next(t, time.Second).suspend(t, "n", 0, until("nap", at))
		}
		ended := map[string]int{} // sleeps, by their run
		s.set(func(changes []store.Change) error {
			for _, change := range changes {
				for _, op := range change {
					if u, ok := op.(store.UpdateRun); ok && len(u.Append) > 0 {
						ended[u.Run.ID] += len(u.Append)
					}
				}
			}
			return nil
		})
		done, fresh := map[string]bool{}, ""
		finish := func(count int) {
			for len(done) < count {
				c := a.next(t, 2*time.Hour)
				time.Sleep(time.Second)
				if c.ctx.Err() != nil {
					continue // it was open when the server stopped
				}
				if c.history() != "nap=" && c.Run.ID != fresh || done[c.Run.ID] {
					t.Fatalf("run %s: %s, done already: %v", c.Run.ID, c.history(), done[c.Run.ID])
				}
				done[c.Run.ID] = true
				c.nonce = "m"
				c.end(t, wire.End{Type: wire.Completed, Seen: 1})
				synctest.Wait()
			}
		}
		finish(runs / 3)
		n.stop()
		n = startNode(t, s, a, options)
		finish(runs * 2 / 3)
		fresh = n.start(t, "w").Run.ID
		finish(runs + 1)
		a.none(t, time.Hour)
		want(t, "runs that woke", len(ended), runs)
		for id, entries := range ended {
			want(t, "entries of run "+id, entries, 1)
		}
	})
}

// What a run waited for and did not need any more goes with its end, whatever that was: nothing wakes it, and what comes late is ignored.
func TestAnEndedRunLeavesNothingThatWaits(t *testing.T) {
	callback := wire.Item{Op: wire.OpCallback, Kind: "callback", Name: "cb", Number: 1, TimeoutMs: ms(time.Hour)}
	waiting := []wire.Item{
		sleep("nap", time.Hour), forEvent("event", "late"), {Op: wire.OpWait, Kind: "callback", Name: "cb", Number: 2, Of: 1}, invoke("child", "child"),
	}
	matched := forEvent("matched", "late")
	matched.Match, matched.TimeoutMs = map[string]jsontext.Value{"payload.id": jsontext.Value(`1`)}, ms(time.Hour)
	waiting = append(waiting, matched)
	for outcome, end := range map[string]func(t *testing.T, n *node, a *app, id string){
		"completed, the others having lost the race": func(t *testing.T, n *node, a *app, _ string) {
			n.emit(t, engine.NewEvent{Name: "won"})
			c := a.next(t, time.Minute)
			c.nonce = "m"
			c.end(t, wire.End{Type: wire.Completed, Seen: 2})
		},
		"failed": func(t *testing.T, n *node, a *app, _ string) {
			n.emit(t, engine.NewEvent{Name: "won"})
			c := a.next(t, time.Minute)
			c.nonce = "m"
			c.end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}, Seen: 2})
		},
		"cancelled": func(t *testing.T, n *node, _ *app, id string) {
			if _, err := n.Cancel(context.Background(), engine.DefaultEnv, id, false); err != nil {
				t.Fatal(err)
			}
		},
		"timed out": func(*testing.T, *node, *app, string) { time.Sleep(30*time.Minute + timerSlack) },
	} {
		t.Run(outcome, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w", TimeoutMs: (30 * time.Minute).Milliseconds(), CancelOn: []wire.Trigger{{Event: "off"}}}, wire.Workflow{Name: "child"})
				n, s := startApp(t, a, engine.Options{})
				id := n.start(t, "w").Run.ID
				c := a.next(t, time.Second)
				n.save(c, "n", 0, callback)
				c.suspend(t, "n", 1, append(waiting, forEvent("winner", "won"))...)
				child := a.next(t, time.Second)
				want(t, "the child's parent waits", child.Run.Workflow, "child")
				child.suspend(t, "c", 0, sleep("nap of the child", 2*time.Hour))
				end(t, n, a, id)
				time.Sleep(10 * time.Second)
				nothingLeft(t, n, s, id)
				nothingLeft(t, n, s, child.Run.ID)
				n.emit(t, engine.NewEvent{Name: "late", Payload: jsontext.Value(`{"id":1}`)}, engine.NewEvent{Name: "off"})
				a.none(t, 3*time.Hour)
				nothingLeft(t, n, s, id)
			})
		})
	}
}

// Sleeps side by side take as long as the longest of them, also over a restart; and where several were over before anybody looked, they
// are told in the order of their times.
func TestSleepsSideBySideTakeAsLongAsTheLongest(t *testing.T) {
	for _, away := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprint("without a server for ", away), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				s := memory.New()
				n := startNode(t, s, a, engine.Options{})
				n.know(t)
				n.start(t, "w")
				c := a.next(t, time.Second)
				began := time.Now()
				c.nonce = "n"
				c.end(t, wire.End{
					Type: wire.Suspended, Register: []wire.Item{sleep("c", 3*time.Second), sleep("a", time.Second), sleep("b", 2*time.Second)},
					Waits: []wire.Tree{{All: []wire.Tree{leaf("a"), leaf("b"), leaf("c")}}},
				})
				time.Sleep(1500 * time.Millisecond)
				n.stop()
				time.Sleep(away)
				n = startNode(t, s, a, engine.Options{})
				n.know(t)
				next := a.next(t, time.Minute)
				want(t, "its history", next.history(), "a= b= c=")
				if took := time.Since(began); took < 3*time.Second || took > 3*time.Second+away+timerSlack {
					t.Errorf("they took %v", took)
				}
				want(t, "its epoch", next.Call.Call.Epoch, int64(2))
			})
		})
	}
}

// A server that goes down again and again strands no run that waits, whatever for: each is woken, and each can be cancelled.
func TestRestartsStrandNoRunThatWaits(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		t.Run(fmt.Sprint("cancelled ", cancelled), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
				s := memory.New()
				n := startNode(t, s, a, engine.Options{})
				n.know(t)
				ids := map[string]string{}
				for name, item := range map[string]wire.Item{"sleep": sleep("x", time.Hour), "event": forEvent("x", "paid"), "child": invoke("x", "child")} {
					ids[name] = n.start(t, "w").Run.ID
					a.next(t, time.Second).suspend(t, "n", 0, item)
				}
				child := a.next(t, time.Second)
				child.suspend(t, "n", 0, sleep("nap", time.Hour))
				for range 20 {
					n.stop()
					n = startNode(t, s, a, engine.Options{})
					time.Sleep(time.Second)
					for name, id := range ids {
						want(t, name, n.run(t, id).Status, workflow.Waiting)
					}
				}
				n.know(t)
				final := workflow.Completed
				if cancelled {
					final = workflow.Cancelled
					for _, id := range ids {
						if _, err := n.Cancel(context.Background(), engine.DefaultEnv, id, false); err != nil {
							t.Fatal(err)
						}
					}
				} else {
					n.emit(t, engine.NewEvent{Name: "paid"})
					for range 4 { // the child too
						c := a.next(t, 2*time.Hour)
						c.nonce = "m"
						c.end(t, wire.End{Type: wire.Completed, Seen: 1})
						synctest.Wait()
					}
				}
				time.Sleep(10 * time.Second)
				ids["the child"] = child.Run.ID
				for name, id := range ids {
					want(t, name, n.run(t, id).Status, final)
					nothingLeft(t, n, s, id)
				}
				a.none(t, 2*time.Hour)
			})
		})
	}
}

// Whoever reads along in dev is told when a run goes on; not of midnight, and of no time of a wait that only news can end.
func TestTheLogSaysWhenARunThatWaitsGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		said := make(chan string, 100)
		logger := slog.New(slog.NewTextHandler(lines(said), &slog.HandlerOptions{Level: slog.LevelDebug}))
		n, _ := startApp(t, a, engine.Options{Logger: logger})
		waits := func(suspend wire.Item) string {
			n.start(t, "w")
			a.next(t, time.Second).suspend(t, "n", 0, suspend)
			synctest.Wait()
			for {
				select {
				case line := <-said:
					if strings.Contains(line, `"run waits"`) {
						return line
					}
				default:
					t.Fatal("no line says that the run waits")
				}
			}
		}
		if line := waits(until("nap", "2000-01-04T02:00:00Z")); !strings.Contains(line, " until=2000-01-04T02:00:00Z ") {
			t.Errorf("of a sleep: %s", line)
		}
		if line := waits(forEvent("paid", "e")); strings.Contains(line, "until=") {
			t.Errorf("of a wait without end: %s", line)
		}
	})
}
