package nelkaptest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/nelkaptest"
	"github.com/nelkap/nelkap/sdk/go/step"
)

func TestAFakeStandsInForACheck(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (string, error) {
		return step.RunWithCheck(ctx, "mail",
			func(context.Context) (string, bool, error) { return "", false, errors.New("the real one") },
			func(context.Context) (string, error) { return "", errors.New("no answer") })
	})
	found := nelkaptest.FakeCheck("mail", func(context.Context) (string, bool, error) { return "found", true, nil })
	var played nelkaptest.Played
	if out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}, found, nelkaptest.Report(&played)); out != "found" || err != nil {
		t.Errorf("it gave %q, %v", out, err)
	}
	if n := played.Steps[0].Attempts; n != 2 {
		t.Errorf("it was tried %d times", n)
	}
}

func TestARunMayCancelAnotherAndItself(t *testing.T) {
	app := newApp()
	long := nelkap.NewWorkflow(app, "long", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		return nelkap.None{}, step.Sleep(ctx, "long", 48*time.Hour)
	})
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, itself bool) (bool, error) {
		id, err := step.Run(ctx, "start", func(ctx context.Context) (string, error) {
			h, err := nelkap.Run(ctx, long, nelkap.None{})
			if err != nil {
				return "", err
			}
			return h.ID, nil
		})
		if err != nil {
			return false, err
		}
		record, err := step.Run(ctx, "cancel", func(ctx context.Context) (nelkap.Status, error) {
			if itself {
				info, _ := nelkap.CurrentRun(ctx)
				id = info.ID
			}
			if _, err := app.Cancel(ctx, id); err != nil {
				return "", err
			}
			r, err := app.Get(ctx, id)
			if err != nil {
				return "", err
			}
			return r.Status, nil
		})
		return record == nelkap.StatusCancelled, err
	})
	if out, err := nelkaptest.Run(t, t.Context(), wf, false); !out || err != nil {
		t.Errorf("it gave %v, %v", out, err)
	}
	if _, err := nelkaptest.Run(t, t.Context(), wf, true); !errors.Is(err, nelkap.ErrCancelled) {
		t.Errorf("it gave %v", err)
	}
}

func TestKeysAndDelaysOfStartedRuns(t *testing.T) {
	app := newApp()
	other := nelkap.NewWorkflow(app, "other", func(_ context.Context, n int) (int, error) { return n, nil })
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, _ nelkap.None) (string, error) {
		return step.Run(ctx, "start", func(ctx context.Context) (string, error) {
			first, err := nelkap.Run(ctx, other, 1, nelkap.Key("k"), nelkap.Delay(time.Hour))
			if err != nil {
				return "", err
			}
			second, err := nelkap.Run(ctx, other, 2, nelkap.Key("k"))
			if err != nil {
				return "", err
			}
			out, err := second.Result(ctx)
			return fmt.Sprint(first.Created, second.Created, second.PayloadDiffers, first.ID == second.ID, out), err
		})
	})
	var played nelkaptest.Played
	out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}, nelkaptest.Report(&played))
	if out != "true false true true 1" || err != nil || played.Took < time.Hour {
		t.Errorf("it gave %q, %v after %v", out, err, played.Took)
	}
}

func TestMarks(t *testing.T) {
	var m nelkaptest.Marks
	m.Leave(t.Context(), "a")
	if !m.LeaveOnce(t.Context(), "b", "key") || m.LeaveOnce(t.Context(), "b", "key") {
		t.Error("a key is not seen")
	}
	if diff := cmp.Diff([]string{"a", "b"}, m.List()); diff != "" {
		t.Error(diff)
	}
	m.Clear()
	if m.Has("a") || !m.LeaveOnce(t.Context(), "b", "key") {
		t.Error("it does not forget")
	}
}

func TestAMarkOfCodeOutsideStepsIsLeftByEachCall(t *testing.T) {
	var outside nelkaptest.Marks
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		outside.Leave(ctx, "began")
		return nelkap.None{}, step.Sleep(ctx, "a while", time.Hour)
	})
	says(t, failing(func(t testing.TB) { nelkaptest.CrashEverywhere(t, wf, nelkap.None{}, nelkaptest.Count(&outside)) }),
		`the mark "began" was left twice: by code of "w" outside its steps in call 1, then by code of "w" outside its steps in call 2`)
}

func TestTestsInParallelShareAnApp(t *testing.T) {
	t.Parallel()
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, s string) (string, error) {
		if err := step.Sleep(ctx, "a while", time.Hour); err != nil {
			return "", err
		}
		return step.Run(ctx, "up", give(strings.ToUpper(s)))
	})
	for _, s := range []string{"a", "b", "c", "d"} {
		t.Run(s, func(t *testing.T) {
			t.Parallel()
			if out, err := nelkaptest.Run(t, t.Context(), wf, s); out != strings.ToUpper(s) || err != nil {
				t.Errorf("it gave %q, %v", out, err)
			}
		})
	}
}

func TestWhatIsNotPlayedIsSaid(t *testing.T) {
	app := newApp()
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		return nelkap.None{}, step.Do(ctx, "again", func(ctx context.Context) error {
			_, err := app.Replay(ctx, "run_1")
			return nelkap.NonRetriable(err)
		})
	})
	if _, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}); err == nil || !strings.Contains(err.Error(), "nelkaptest does not play POST /v1/runs/run_1/replay") {
		t.Errorf("it gave %v", err)
	}
}

func TestAnEventNeedsAName(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
		return step.Do(ctx, "a", func(ctx context.Context) error {
			return nelkap.NonRetriable(nelkaptest.Emit(ctx, nelkap.Event{Payload: 1}))
		})
	}))
	if _, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}); err == nil || !strings.Contains(err.Error(), "the event needs one") {
		t.Errorf("emitted without a name it gave %v", err)
	}
	defer func() {
		if r := recover(); r == nil {
			t.Error("an event without a name is one of Events")
		}
	}()
	nelkaptest.Events(nelkap.Event{Payload: 1})
}
