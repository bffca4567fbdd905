package nelkaptest_test

import (
	"context"
	"testing"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/nelkaptest"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// The server counts a timeout from when a run is due.
func TestATimeoutOfARunForLaterCountsFromThen(t *testing.T) {
	app := newApp()
	late := nelkap.NewWorkflow(app, "late", func(ctx context.Context, _ string) (string, error) { return step.Run(ctx, "a", give("done")) }, nelkap.Timeout(time.Hour))
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, _ string) (string, error) {
		return step.Run(ctx, "wait", func(ctx context.Context) (string, error) {
			h, err := nelkap.Run(ctx, late, "", nelkap.Delay(2*time.Hour))
			if err != nil {
				return "", err
			}
			return h.Result(ctx)
		}, step.Retries(0))
	})
	out, err := nelkaptest.Run(t, t.Context(), wf, "")
	if out != "done" || err != nil {
		t.Errorf("it gave %q, %v", out, err)
	}
}

// A child that nobody waits for any more is cancelled, also where its parent has returned.
func TestAChildIsCancelledWhoseParentReturns(t *testing.T) {
	app := newApp()
	approval := nelkap.NewWorkflow(app, "approval", func(ctx context.Context, _ string) (string, error) {
		_, _, err := step.WaitForEvent[any](ctx, "approved", "approved")
		return "", err
	})
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, _ string) (string, error) {
		_, out, err := step.Race(ctx,
			func(ctx context.Context) (string, error) { return step.Invoke(ctx, "ask", approval, "") },
			func(ctx context.Context) (string, error) { return "late", step.Sleep(ctx, "timeout", time.Hour) },
		)
		return out, err
	})
	if said := failing(func(t testing.TB) { nelkaptest.CrashEverywhere(t, wf, "") }); said != "" {
		t.Errorf("it says %q", said)
	}
}

// An id is emitted once.
func TestAnEventsIDIsEmittedOnce(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ string) (int, error) {
		if err := step.Do(ctx, "emit", func(ctx context.Context) error {
			for range 2 {
				if err := nelkaptest.Emit(ctx, nelkap.Event{Name: "paid", ID: "p1"}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return 0, err
		}
		n := 0
		for range 2 {
			_, ok, err := step.WaitForEvent[any](ctx, "paid", "paid", step.Timeout(time.Hour))
			if err != nil {
				return n, err
			}
			if ok {
				n++
			}
		}
		return n, nil
	})
	if n, err := nelkaptest.Run(t, t.Context(), wf, ""); n != 1 || err != nil {
		t.Errorf("it took %d events (%v), want 1", n, err)
	}
}

func TestAKeyForATimeIsFreeAfterIt(t *testing.T) {
	app := newApp()
	digest := nelkap.NewWorkflow(app, "digest", func(ctx context.Context, _ string) (string, error) { return "", nil })
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, _ string) (bool, error) {
		start := func(name string) (bool, error) {
			return step.Run(ctx, name, func(ctx context.Context) (bool, error) {
				h, err := nelkap.Run(ctx, digest, "", nelkap.Key("k"), nelkap.KeyFor(time.Hour))
				return h.Created, err
			})
		}
		if _, err := start("one"); err != nil {
			return false, err
		}
		if err := step.Sleep(ctx, "s", 2*time.Hour); err != nil {
			return false, err
		}
		return start("two")
	})
	if created, err := nelkaptest.Run(t, t.Context(), wf, ""); !created || err != nil {
		t.Errorf("the key's time is over, and it gave %v, %v", created, err)
	}
}

// What came early comes again for a wait that does not look back, also under an id.
func TestAnEventWithAnIDComesEarlyAndInTime(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ string) (string, error) {
		if _, err := step.Run(ctx, "a", give(1)); err != nil {
			return "", err
		}
		_, _, err := step.WaitForEvent[any](ctx, "paid", "paid", step.SinceWait())
		return "", err
	})
	nelkaptest.CrashEverywhere(t, wf, "", nelkaptest.Events(nelkap.Event{Name: "paid", ID: "p1"}))
}
