package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

var throws = wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}, Retriable: true, Retries: 100}

// A pause that no duration can hold is a long one, not none.
func TestAPauseOfAgesIsNotNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		ages := throws
		ages.RetryAfterMs = new(int64(18446744073710)) // 2^64 ns and a little
		a.next(t, time.Second).end(t, ages)
		a.none(t, 24*time.Hour)
	})
}

// A server that goes down again and again finds every run as it was, whatever it was doing.
func TestRestartsStrandNoRunWhateverItWasDoing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := memory.New()
		options := engine.Options{Concurrency: 4}
		n := startNode(t, s, a, options)
		n.know(t)
		begin := func() *sentCall { n.start(t, "w"); return a.next(t, time.Second) }
		retrying := begin()
		retrying.end(t, throws)
		running, cut, ending, saved := begin(), begin(), begin(), begin()
		n.save(saved, "n", 0, completed("a", `1`))
		cut.lose()
		queued := n.start(t, "w").Run.ID
		if _, err := n.Cancel(context.Background(), engine.DefaultEnv, ending.Run.ID, false); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			n.stop()
			n = startNode(t, s, a, options)
			time.Sleep(time.Second)
			for _, id := range allRuns(t, s) {
				if n.run(t, id).Status == "" {
					t.Fatalf("run %s has no status", id)
				}
			}
		}
		began := time.Now()
		done := map[string]bool{}
		for len(done) < 5 {
			c := a.next(t, 6*time.Minute)
			if c.Run.ID == saved.Run.ID {
				want(t, "its saved steps", len(c.Steps.Entries), 1)
			}
			if c.ctx.Err() == nil {
				done[c.Run.ID] = true
				c.end(t, wire.End{Type: wire.Completed, Seen: int64(len(c.Steps.Entries))})
			}
		}
		if took := time.Since(began); took > 6*time.Minute {
			t.Errorf("the runs ended after %v", took)
		}
		time.Sleep(time.Minute)
		for outcome, id := range map[string]string{"retrying": retrying.Run.ID, "running": running.Run.ID, "cut": cut.Run.ID, "queued": queued, "saved": saved.Run.ID} {
			want(t, outcome, n.run(t, id).Status, workflow.Completed)
		}
		want(t, "cancelled in a body", n.run(t, ending.Run.ID).Status, workflow.Cancelled)
	})
}

// A store that can't be written when the server has just started makes the pick-up late, not void.
func TestAPickUpGoesOnOnceTheStoreCanBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		const runs = 50
		for range runs {
			n.start(t, "w")
			a.next(t, time.Second)
		}
		n.stop()
		n = startNode(t, s, a, engine.Options{})
		s.set(func([]store.Change) error { return errors.New("disk full") })
		time.Sleep(2 * time.Minute)
		s.set(nil)
		for range runs {
			a.next(t, 6*time.Minute).end(t, wire.End{Type: wire.Completed})
		}
		time.Sleep(time.Second) // where many ends come at once, a commit gathers them for a moment
		synctest.Wait()
		for _, id := range allRuns(t, s) {
			want(t, "status", n.run(t, id).Status, workflow.Completed)
		}
	})
}

// More runs than are looked at in one go lost their calls long ago: all are picked up, and soon.
func TestADayWithoutAServerIsCaughtUpInMinutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		a.calls = make(chan *sentCall, 10_000)
		s := memory.New()
		const runs = 1_500
		options := engine.Options{Concurrency: runs}
		n := startNode(t, s, a, options)
		n.know(t)
		for range runs {
			n.start(t, "w")
			a.next(t, time.Second)
		}
		n.stop()
		time.Sleep(24 * time.Hour)
		startNode(t, s, a, options)
		began := time.Now()
		seen := map[string]bool{}
		for range runs {
			seen[a.next(t, time.Minute).Run.ID] = true
		}
		if took := time.Since(began); len(seen) != runs || took > 2*time.Minute {
			t.Errorf("%d of %d runs were picked up within %v", len(seen), runs, took)
		}
	})
}

// Whichever of the two comes first, the end of a call or the end of its lease: a run that has ended is never called again.
func TestAnEndBesideTheEndOfTheLeaseIsNeverSetBack(t *testing.T) {
	ended := map[bool]int{}
	for offset := -50; offset <= 50; offset += 5 {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, s := startFaulty(t, a)
			id := n.start(t, "w").Run.ID
			c := a.next(t, time.Second)
			s.set(func([]store.Change) error { time.Sleep(20 * time.Millisecond); return nil })
			lease := time.Until(n.run(t, id).NextAt)
			time.Sleep(lease + time.Duration(offset)*time.Millisecond)
			c.end(t, wire.End{Type: wire.Completed, Output: []byte(`"first"`)})
			time.Sleep(time.Second)
			output := `"first"`
			select {
			case again := <-a.calls:
				output = `"second"`
				again.end(t, wire.End{Type: wire.Completed, Output: []byte(output)})
			default:
			}
			ended[output == `"first"`]++
			a.none(t, 10*time.Minute)
			run := n.run(t, id)
			want(t, fmt.Sprintf("%d ms beside the lease's end", offset), fmt.Sprint(run.Status, " ", string(run.Output)), "completed "+output)
		})
	}
	if len(ended) != 2 {
		t.Errorf("both orders should come about: %v", ended)
	}
}
