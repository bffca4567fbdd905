package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
)

// C2: an app goes on with its body while no node serves, far beyond its lease, and nothing is played twice.
func TestAnHourWithoutAServerCostsNoLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		n.start(t, "w")
		c := a.next(t, time.Second)
		want(t, "save", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		n.stop()
		time.Sleep(time.Hour)
		n = startNode(t, s, a, engine.Options{})
		time.Sleep(9 * time.Second) // the server asks for the call two intervals long
		stop := n.keepPolling(t, c.fence("n"))
		defer stop()
		a.none(t, 20*time.Minute)
		want(t, "a save after it", n.save(c, "n", 1, completed("b", `2`)).Status, wire.Accepted)
	})
}

// C2: while the store can't be written, whoever saves again and again is heard, though nothing of it is stored.
func TestAStoreThatCannotBeWrittenCostsNoLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		n.start(t, "w")
		c := a.next(t, time.Second)
		s.set(func([]store.Change) error { return errors.New("disk full") })
		for end := time.Now().Add(15 * time.Minute); time.Now().Before(end); {
			want(t, "told", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Later)
		}
		s.set(nil)
		want(t, "tried again", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		a.none(t, time.Minute)
	})
}

// C14: the runs of a paused app do not wait for its next look once one of its calls is answered.
func TestAnAnswerToACallEndsThePauseOfItsApp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		open := a.next(t, time.Second)
		a.fail(&call.Outcome{Kind: call.Unusable, Status: 404, Reason: "the app answered 404"})
		n.start(t, "w")
		pause := func() time.Duration { return time.Until(n.Apps(engine.DefaultEnv)[0].NextLookAt) }
		for pause() < 30*time.Second {
			time.Sleep(time.Second)
		}
		a.fail(nil)
		open.end(t, wire.End{Type: wire.Completed})
		a.next(t, time.Second)
	})
}

// C14: what a person must set right is shown at once, costs its runs nothing but time, and is looked at again by itself.
func TestAnAppWhoseClockDiffersIsPausedUntilItIsRight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		a.fail(&call.Outcome{Kind: call.Refused, Status: 401, Code: call.CodeClockDiffers, Reason: "12:00 on the server, 12:10 in the app"})
		id := n.start(t, "w").Run.ID
		synctest.Wait()
		if w := n.Waiting(n.run(t, id).Run); w == nil || !strings.Contains(w.Reason, "12:10 in the app") {
			t.Fatalf("the run does not say so: %+v", w)
		}
		time.Sleep(time.Hour)
		a.fail(nil)
		want(t, "cuts", a.next(t, time.Minute+timerSlack).Call.Call.Cuts, 0)
	})
}

// C1, C14: an app that has no time to describe itself can be used all the same.
func TestALookThatAnAppDoesNotAnswerPausesNothing(t *testing.T) {
	for _, outcome := range []call.Outcome{{Kind: call.Silent, Status: 500, Reason: "the app answered 500"}, {Kind: call.Lost, Reason: "EOF"}} {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, _ := startApp(t, a, engine.Options{})
			a.fail(&outcome)
			time.Sleep(time.Minute)
			want(t, "the app's reason", n.Apps(engine.DefaultEnv)[0].Reason, "")
			a.fail(nil)
			n.start(t, "w")
			a.next(t, time.Second)
		})
	}
}

// C5, C7: contact is kept in memory, so that a run's row is not written for each message of its call. The stored time moves when
// it has come and there was contact since.
func TestContactIsNotWrittenToTheRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		n.save(c, "n", 0)
		before := n.run(t, id).Run
		for number := range 20 {
			item := completed("a", `1`)
			item.Number = number + 1
			want(t, "save", n.save(c, "n", int64(number), item).Status, wire.Accepted)
			n.poll(t, 0, c.fence("n"))
			time.Sleep(10 * time.Second)
		}
		after := n.run(t, id).Run
		if after.Version != before.Version || !after.NextAt.Equal(before.NextAt) {
			t.Errorf("forty messages changed the run: version %d, then %d; lease until %v, then %v", before.Version, after.Version, before.NextAt, after.NextAt)
		}
		time.Sleep(before.Lease - 200*time.Second + timerSlack)
		if moved := n.run(t, id).Run; moved.Version != before.Version+1 || !moved.NextAt.After(before.NextAt) {
			t.Errorf("once the lease's time had come, it was not moved: %+v", moved)
		}
		a.none(t, time.Minute)
	})
}

// C7: a lease leaves time for three heartbeats, and is never under five seconds, whatever an app asks for.
func TestALeaseIsAtLeastFiveSecondsAndThreeHeartbeats(t *testing.T) {
	for _, c := range []struct{ asked, lease, heartbeat int64 }{{0, 300_000, 5_000}, {1_000, 5_000, 1_666}, {9_000, 9_000, 3_000}, {60_000, 60_000, 5_000}} {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w", LeaseMs: c.asked})
			n, _ := startApp(t, a, engine.Options{})
			n.start(t, "w")
			got := a.next(t, time.Second).Call.Call
			want(t, "lease", got.LeaseMs, c.lease)
			want(t, "heartbeat", got.HeartbeatMs, c.heartbeat)
		})
	}
}

// C7: only the process that named a call can say, by naming it no more, that it is over.
func TestAProcessThatNeverNamedACallCutsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		c.lose()
		synctest.Wait()
		n.poll(t, 0, c.fence("n"))
		for range 3 {
			if _, err := n.Heartbeat(context.Background(), wire.Heartbeat{Process: "another"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		a.none(t, 6*time.Second) // its own process has two intervals to name it
	})
}

// hurried is an app that notes how long each call may still wait to be sent.
type hurried struct {
	*app
	left chan time.Duration
}

func (h *hurried) Do(ctx context.Context, r call.Request) call.Outcome {
	h.left <- time.Until(r.SendBefore)
	return h.app.Do(ctx, r)
}

// C3: the five seconds in which a call is sent count from its begin, so that a slow commit uses them up too.
func TestACallIsSentWithinFiveSecondsOfItsBegin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := &hurried{newApp(wire.Workflow{Name: "w"}), make(chan time.Duration, 10)}
		s := &faulty{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		time.Sleep(5 * time.Second) // an idle app: a run may begin in the commit that stores it
		s.set(func([]store.Change) error { time.Sleep(2 * time.Second); return nil })
		n.start(t, "w")
		want(t, "left for the first call", <-a.left, 3*time.Second)
		a.next(t, time.Second).lose()
		want(t, "left for the second", <-a.left, 3*time.Second)
	})
}

// Who asks for something new hears soon that the store is away, and not after half a minute; what asked first may wait for it.
func TestNewWorkIsRefusedSoonWhileTheStoreIsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		way := &severed{Store: memory.New()}
		n := startNode(t, way, a, engine.Options{})
		n.know(t)
		way.cut.Store(true)
		start := func() error {
			_, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w", Payload: jsontext.Value(`1`)})
			return err
		}
		first := make(chan error, 1)
		go func() { first <- start() }()
		time.Sleep(5 * time.Second)
		began := time.Now()
		if err := start(); !errors.Is(err, engine.ErrUnstored) || time.Since(began) > 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		want(t, "unstored while it is away", n.Unstored(), true)
		way.cut.Store(false)
		if err := <-first; err != nil {
			t.Errorf("what had waited: %v", err)
		}
		want(t, "unstored when it is back", n.Unstored(), false)
		if err := start(); err != nil {
			t.Errorf("with the store back: %v", err)
		}
	})
}

// Nor does who asks next wait for half a minute because another has: once the first has been given up, the store is still away.
func TestNewWorkIsRefusedSoonThoughWhatAskedFirstWasGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		way := &severed{Store: memory.New()}
		n := startNode(t, way, a, engine.Options{})
		n.know(t)
		start := func() (time.Duration, error) {
			began := time.Now()
			_, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w", Payload: jsontext.Value(`1`)})
			return time.Since(began), err
		}
		way.cut.Store(true)
		if _, err := start(); !errors.Is(err, engine.ErrUnstored) {
			t.Fatal(err)
		}
		for range 3 {
			if took, err := start(); !errors.Is(err, engine.ErrUnstored) || took > 0 {
				t.Errorf("after %v: %v", took, err)
			}
			time.Sleep(time.Second / 2)
		}
		want(t, "unstored while it is away", n.Unstored(), true)
		way.cut.Store(false)
		time.Sleep(2 * time.Second) // nothing is written meanwhile: who comes then finds out
		if took, err := start(); err != nil || took > 0 {
			t.Errorf("with the store back, after %v: %v", took, err)
		}
		want(t, "unstored when it is back", n.Unstored(), false)
	})
}
