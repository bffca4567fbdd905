package nelkaptest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/nelkaptest"
	"github.com/nelkap/nelkap/sdk/go/step"
)

func TestAStepThatForgetsItsKeyIsFound(t *testing.T) {
	var outside nelkaptest.Marks
	pay := nelkap.NewWorkflow(newApp(), "pay", func(ctx context.Context, id string) (nelkap.None, error) {
		return nelkap.None{}, step.Do(ctx, "charge", func(ctx context.Context) error {
			outside.Leave(ctx, "charge "+id)
			return nil
		})
	})
	for _, opts := range [][]nelkaptest.CrashOption{{}, {nelkaptest.Only("in time, cut 1")}} {
		says(t, failing(func(t testing.TB) {
			nelkaptest.CrashEverywhere(t, pay, "o_1", append(opts, nelkaptest.Count(&outside))...)
		}),
			`Call 1 was cut off in the body of step "charge", just after it had left the mark "charge o_1", and the run was picked up. `+
				`Then the mark "charge o_1" was left twice: by step "charge" of "pay" in call 1, then by step "charge" of "pay" in call 2.`,
			`nelkaptest.Only("in time, cut 1")`)
	}
}

// fulfillment has a step of each kind, and is safe to run twice.
func fulfillment(outside *nelkaptest.Marks) *nelkap.Workflow[string, string] {
	app := newApp()
	ship := nelkap.NewWorkflow(app, "ship", func(ctx context.Context, id string) (nelkap.None, error) {
		return nelkap.None{}, step.Do(ctx, "label", func(ctx context.Context) error {
			outside.LeaveOnce(ctx, "label "+id, step.IdempotencyKey(ctx))
			return nil
		})
	})
	return nelkap.NewWorkflow(app, "order", func(ctx context.Context, id string) (string, error) {
		err := step.Do(ctx, "charge", func(ctx context.Context) error {
			outside.LeaveOnce(ctx, "charge "+id, step.IdempotencyKey(ctx))
			return nil
		})
		if err != nil {
			return "", err
		}
		_, err = step.RunWithCheck(ctx, "mail",
			func(context.Context) (bool, bool, error) { return true, outside.Has("mail " + id), nil },
			func(ctx context.Context) (bool, error) { outside.Leave(ctx, "mail "+id); return false, nil })
		if err != nil {
			return "", err
		}
		err = step.Do(ctx, "tell", func(ctx context.Context) error {
			_, err := app.Emit(ctx, nelkap.Event{Name: "order.told"})
			return err
		})
		if err != nil {
			return "", err
		}
		if _, err := step.Invoke(ctx, "ship", ship, id); err != nil {
			return "", err
		}
		if err := step.Sleep(ctx, "cool off", 72*time.Hour); err != nil {
			return "", err
		}
		by, ok, err := step.WaitForEvent[string](ctx, "received", "order.received", step.Timeout(time.Hour))
		if err != nil || !ok {
			return "", errors.Join(err, errors.New("lost"))
		}
		c, err := step.NewCallback[int](ctx, "rating")
		if err != nil {
			return "", err
		}
		if _, _, err := c.Wait(ctx); err != nil {
			return "", err
		}
		err = step.Do(ctx, "thank", func(ctx context.Context) error { outside.Leave(ctx, "thank "+by); return nil }, step.AtMostOnce())
		if errors.Is(err, nelkap.ErrStepInterrupted) {
			err = nil
		}
		return by, err
	})
}

func TestStepsThatAreSafeToRunTwice(t *testing.T) {
	var outside nelkaptest.Marks
	checked := 0
	report := nelkaptest.CrashEverywhere(t, fulfillment(&outside), "o_1", nelkaptest.Count(&outside),
		nelkaptest.Events(nelkap.Event{Name: "order.received", Payload: "ada"}), nelkaptest.Posts("rating", 5),
		nelkaptest.Check(func(p nelkaptest.Played) error {
			checked++
			told := 0
			for _, e := range p.Events {
				if e.Name == "order.told" {
					told++
				}
			}
			if told != 1 || string(p.Output) != `"ada"` || outside.Count("charge o_1") != 1 || outside.Count("label o_1") != 1 {
				return errors.New("it is not as it should be")
			}
			return nil
		}))
	if report.Scenarios != checked || report.Cuts < 80 || report.Bodies < report.Scenarios {
		t.Errorf("%d were checked of %+v", checked, report)
	}
}

func TestBranchesAreSafeToRunTwice(t *testing.T) {
	var outside nelkaptest.Marks
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, items []string) (int, error) {
		out, err := step.Map(ctx, items, func(ctx context.Context, item string) (bool, error) {
			return step.Run(ctx, "charge", func(ctx context.Context) (bool, error) {
				return outside.LeaveOnce(ctx, item, step.IdempotencyKey(ctx)), nil
			})
		})
		return len(out), err
	})
	if report := nelkaptest.CrashEverywhere(t, wf, []string{"a", "b", "c"}, nelkaptest.Count(&outside)); report.Cuts < 8 {
		t.Errorf("%+v", report)
	}
}

func TestASendOutsideStepsIsFound(t *testing.T) {
	app := newApp()
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		if _, err := app.Emit(ctx, nelkap.Event{Name: "began"}); err != nil {
			return nelkap.None{}, err
		}
		return nelkap.None{}, step.Do(ctx, "a", func(context.Context) error { return nil })
	})
	says(t, failing(func(t testing.TB) { nelkaptest.CrashEverywhere(t, wf, nelkap.None{}) }),
		`the event "began" was emitted 2 times by code outside steps: place it in a step`)
}

func TestAnEndOtherThanTheUndisturbedIsFound(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		return nelkap.None{}, step.Do(ctx, "a", func(context.Context) error { return nil }, step.AtMostOnce())
	})
	says(t, failing(func(t testing.TB) { nelkaptest.CrashEverywhere(t, wf, nelkap.None{}) }),
		`the run ended as failed`, "not as completed: where it may, say so with MayEnd")
	nelkaptest.CrashEverywhere(t, wf, nelkap.None{}, nelkaptest.MayEnd(nelkap.StatusCompleted, nelkap.StatusFailed))
}

func TestOneOfTwoRunsOwnsTheKey(t *testing.T) {
	var outside nelkaptest.Marks
	body := func(ctx context.Context, id string) (nelkap.None, error) {
		return nelkap.None{}, step.Do(ctx, "charge", func(ctx context.Context) error {
			outside.LeaveOnce(ctx, "charge "+id, step.IdempotencyKey(ctx))
			return nil
		})
	}
	app := newApp()
	safe := nelkap.NewWorkflow(app, "safe", body, nelkap.Once(func(id string) string { return id }))
	nelkaptest.CrashEverywhere(t, safe, "o_1", nelkaptest.Count(&outside), nelkaptest.StartedTwice())
	unsafe := nelkap.NewWorkflow(app, "unsafe", body)
	says(t, failing(func(t testing.TB) {
		nelkaptest.CrashEverywhere(t, unsafe, "o_1", nelkaptest.Count(&outside), nelkaptest.StartedTwice())
	}), `Nothing was cut off; the run was started twice. Then the mark "charge o_1" was left twice`)
}

func TestAnEventThatComesEarlyIsMissedSinceTheWait(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (string, error) {
		if err := step.Do(ctx, "a", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		s, ok, err := step.WaitForEvent[string](ctx, "answer", "answered", step.Timeout(time.Hour))
		if err == nil && !ok {
			err = nelkap.NonRetriable(errors.New("nobody answered"))
		}
		return s, err
	})
	report := nelkaptest.CrashEverywhere(t, wf, nelkap.None{}, nelkaptest.Events(nelkap.Event{Name: "answered", Payload: "yes"}))
	if report.Scenarios-report.Cuts != 4 { // in time, early, late and twice
		t.Errorf("%+v", report)
	}
}

func TestACheckThatFailsAndBoundsAreSaid(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		return nelkap.None{}, step.Do(ctx, "a", func(context.Context) error { return nil })
	})
	before := 0
	says(t, failing(func(t testing.TB) {
		nelkaptest.CrashEverywhere(t, wf, nelkap.None{}, nelkaptest.Before(func() { before++ }), nelkaptest.Check(func(p nelkaptest.Played) error {
			if p.Calls > 1 {
				return errors.New("called again")
			}
			return nil
		}))
	}), `Call 1 was cut off after the body of step "a" had run and before its result was saved`, "the check failed: called again")
	if before != 2 {
		t.Errorf("Before was called %d times", before)
	}
	says(t, failing(func(t testing.TB) { nelkaptest.CrashEverywhere(t, wf, nelkap.None{}, nelkaptest.ScenariosMax(2)) }),
		"more than 2 scenarios: raise ScenariosMax")
	says(t, failing(func(t testing.TB) {
		nelkaptest.CrashEverywhere(t, wf, nelkap.None{}, nelkaptest.Only("in time, cut 99"))
	}),
		`there is no scenario "in time, cut 99"`)
}

// The bodies of a call that was cut off end before the run is picked up, though one of them hangs.
func TestInABubbleABodyThatHangsEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outside nelkaptest.Marks
		wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
			return nelkap.None{}, step.Parallel(ctx,
				func(ctx context.Context) error {
					return step.Do(ctx, "slow", func(ctx context.Context) error {
						select {
						case <-time.After(time.Minute):
						case <-ctx.Done():
						}
						return ctx.Err()
					})
				},
				func(ctx context.Context) error {
					return step.Do(ctx, "quick", func(ctx context.Context) error {
						outside.LeaveOnce(ctx, "quick", step.IdempotencyKey(ctx))
						return nil
					})
				})
		})
		if report := nelkaptest.CrashEverywhere(t, wf, nelkap.None{}, nelkaptest.Count(&outside)); report.Cuts < 6 {
			t.Errorf("%+v", report)
		}
	})
}

// A call that is cut off while it waits for another run's end lets go of it.
func TestAResultIsWaitedForAgainAfterACut(t *testing.T) {
	app := newApp()
	other := nelkap.NewWorkflow(app, "other", func(ctx context.Context, n int) (int, error) {
		return n + 1, step.Sleep(ctx, "a while", time.Hour)
	})
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, n int) (int, error) {
		h, err := step.Run(ctx, "start", func(ctx context.Context) (*nelkap.Handle[int], error) { return nelkap.Run(ctx, other, n) })
		if err != nil {
			return 0, err
		}
		return step.Run(ctx, "result", h.Result)
	})
	report := nelkaptest.CrashEverywhere(t, wf, 1, nelkaptest.Check(func(p nelkaptest.Played) error {
		if string(p.Output) != "2" {
			return errors.New("its output is " + string(p.Output))
		}
		return nil
	}))
	if report.Cuts < 8 {
		t.Errorf("%+v", report)
	}
}
