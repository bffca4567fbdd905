package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// What a process sent before it died may be read after its connections have closed. None of it may hold its calls for a lease.

// Rule C1.
func TestTheLastSaveOfADeadProcessHoldsNoCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		c.lose()
		synctest.Wait()
		want(t, "save", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		began := time.Now()
		a.next(t, time.Minute)
		want(t, "pick-up after", time.Since(began).Truncate(time.Microsecond), 2*time.Second)
	})
}

// Rule C1.
func TestTheLastPollOfADeadProcessHoldsNoCall(t *testing.T) {
	for _, c := range []struct {
		outcome string
		lost    time.Duration // after the poll began
		breaks  time.Duration // after that
		within  time.Duration
	}{
		{"its poll is open when the call's connection is lost", time.Second, time.Minute, 10 * time.Second},
		{"its poll ends a moment after the call's connection", time.Second, 40 * time.Millisecond, 2 * time.Second},
		{"it dies between two polls", 6 * time.Second, time.Minute, 10 * time.Second},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, _ := startApp(t, a, engine.Options{})
				n.start(t, "w")
				sent := a.next(t, time.Second)
				if c.lost > 5*time.Second {
					sent.lose() // it is named on, and then no more
					synctest.Wait()
				}
				polled := make(chan struct{})
				began := time.Now().Add(5 * time.Second)
				go func() {
					defer close(polled)
					ctx, breaks := context.WithTimeout(t.Context(), c.lost+c.breaks)
					defer breaks()
					hb := wire.Heartbeat{Process: "process", WaitMs: 5000, Calls: []wire.Named{{Fence: sent.fence("n")}}}
					if _, err := n.Heartbeat(ctx, hb); err != nil {
						t.Error(err)
					}
				}()
				if c.lost < 5*time.Second {
					time.Sleep(c.lost)
					sent.lose()
					began = time.Now()
				}
				<-polled
				a.next(t, time.Minute)
				want(t, "pick-up after", time.Since(began).Truncate(time.Microsecond), c.within)
			})
		})
	}
}

func TestWhatAnAbandonedRequestStoredIsActedUpon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", Triggers: []wire.Trigger{{Event: "e"}}})
		n, s := startFaulty(t, a)
		for name, ask := range map[string]func(context.Context) error{
			"emit": func(ctx context.Context) error {
				_, _, err := n.Emit(ctx, engine.DefaultEnv, []engine.NewEvent{{Name: "e"}}, nil)
				return err
			},
			"start": func(ctx context.Context) error {
				_, err := n.StartRun(ctx, engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w"})
				return err
			},
		} {
			ctx, leave := context.WithCancel(t.Context())
			s.set(func([]store.Change) error {
				leave() // whoever asked is gone while the store commits
				return nil
			})
			if err := ask(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			a.next(t, time.Second).lose()
			s.set(nil)
		}
	})
}

// leaving is a store that reads nothing for whoever has gone, as a database does.
type leaving struct{ store.Store }

func (l leaving) Load(ctx context.Context, runID string) (workflow.Run, store.History, error) {
	if err := ctx.Err(); err != nil {
		return workflow.Run{}, store.History{}, err
	}
	return l.Store.Load(ctx, runID)
}

func TestAPollThatBreaksOffWhileItIsReadHoldsNoCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n := startNode(t, leaving{memory.New()}, a, engine.Options{})
		n.know(t)
		n.start(t, "w")
		c := a.next(t, time.Second)
		want(t, "save", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		c.lose()
		synctest.Wait()
		gone, leave := context.WithCancel(t.Context())
		leave()
		// The second call is not known here, so that its run is read.
		other := wire.Fence{Call: "call_other", Token: c.Call.Call.Token, Nonce: "m"}
		if _, err := n.Heartbeat(gone, wire.Heartbeat{Process: "process", Calls: []wire.Named{{Fence: c.fence("n")}, {Fence: other}}, WaitMs: 5000}); err == nil {
			t.Fatal("the poll did not break off")
		}
		began := time.Now()
		a.next(t, time.Minute)
		want(t, "pick-up after", time.Since(began).Truncate(time.Microsecond), 10*time.Second)
	})
}
