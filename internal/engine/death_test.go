package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

// What a process sent before it died may be read after its connections have closed. None of it may hold its calls for a lease.

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
		want(t, "pick-up after", time.Since(began), 2*time.Second)
	})
}

func TestTheLastPollOfADeadProcessHoldsNoCall(t *testing.T) {
	for _, c := range []struct {
		outcome string
		lost    time.Duration // after the poll began; its connection is lost with the call's
		within  time.Duration
	}{
		{"its poll is open when the call's connection is lost", time.Second, 10 * time.Second},
		{"it dies between two polls", 6 * time.Second, 10 * time.Second},
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
				go func() {
					defer close(polled)
					n.poll(t, 5*time.Second, sent.fence("n"))
				}()
				if c.lost < 5*time.Second {
					time.Sleep(c.lost)
					sent.lose()
				}
				<-polled
				began := time.Now()
				a.next(t, time.Minute)
				want(t, "pick-up after", time.Since(began), c.within)
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
