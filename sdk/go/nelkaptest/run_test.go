package nelkaptest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/nelkaptest"
	"github.com/nelkap/nelkap/sdk/go/step"
)

func newApp() *nelkap.App {
	return nelkap.New(nelkap.Options{App: "shop", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
}

func give[T any](v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, nil }
}

// recorder is a test that writes down how it failed.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failing is what f says when it fails a test.
func failing(f func(t testing.TB)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.said
}

func says(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("it says %q, which does not say %q", got, w)
		}
	}
}

func TestARunGivesItsOutputAndTimePassesAtOnce(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "trial", func(ctx context.Context, user string) (string, error) {
		if err := step.Do(ctx, "welcome", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		if err := step.Sleep(ctx, "trial", 30*24*time.Hour); err != nil {
			return "", err
		}
		return step.Run(ctx, "greeting", give("bye "+user))
	})
	var played nelkaptest.Played
	out, err := nelkaptest.Run(t, t.Context(), wf, "ada", nelkaptest.Report(&played))
	if out != "bye ada" || err != nil {
		t.Errorf("it gave %q, %v", out, err)
	}
	if played.Calls != 2 || played.Status != nelkap.StatusCompleted || played.Took < 30*24*time.Hour || played.Took > 31*24*time.Hour {
		t.Errorf("played: %+v", played)
	}
	var steps []string
	for _, s := range played.Steps {
		steps = append(steps, fmt.Sprintf("%s %s %d/%d %s", s.Kind, s.Name, s.Number, s.Attempts, string(s.Output)))
	}
	want := []string{"run welcome 1/1 ", "sleep trial 1/1 ", `run greeting 1/1 "bye ada"`}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Error(diff)
	}
}

func TestAWaitOfNoTimeGivesWhatIsThere(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, emits bool) (bool, error) {
		err := step.Do(ctx, "work", func(ctx context.Context) error {
			if !emits {
				return nil
			}
			return nelkaptest.Emit(ctx, nelkap.Event{Name: "paid"})
		})
		if err != nil {
			return false, err
		}
		_, ok, err := step.WaitForEvent[any](ctx, "paid", "paid", step.Timeout(0))
		return ok, err
	})
	for _, emits := range []bool{true, false} {
		if ok, err := nelkaptest.Run(t, t.Context(), wf, emits); ok != emits || err != nil {
			t.Errorf("emitted %t, it gave %t, %v", emits, ok, err)
		}
	}
}

func TestAStepIsTriedAgainAndFailsInTheEnd(t *testing.T) {
	tries := 0
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, fails int) (int, error) {
		err := step.Do(ctx, "flaky", func(ctx context.Context) error {
			if tries++; tries <= fails {
				return fmt.Errorf("try %d", step.Attempt(ctx))
			}
			return nil
		}, step.Retries(3))
		return tries, err
	})
	if out, err := nelkaptest.Run(t, t.Context(), wf, 3); out != 4 || err != nil {
		t.Errorf("it gave %d, %v", out, err)
	}
	tries = 0
	_, err := nelkaptest.Run(t, t.Context(), wf, 9)
	if failed, ok := errors.AsType[*nelkap.RunError](err); !ok || failed.Message != "try 4" {
		t.Errorf("it failed with %v", err)
	}
}

func TestCodeOutsideStepsIsTriedAgain(t *testing.T) {
	tries := 0
	wf := nelkap.NewWorkflow(newApp(), "w", func(context.Context, nelkap.None) (int, error) {
		if tries++; tries < 3 {
			return 0, errors.New("not yet")
		}
		return tries, nil
	})
	if out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}); out != 3 || err != nil {
		t.Errorf("it gave %d, %v", out, err)
	}
}

type approval struct {
	ID string `json:"id"`
	By string `json:"by"`
}

func approvalFlow(opts ...step.WaitOption) *nelkap.Workflow[string, string] {
	return nelkap.NewWorkflow(newApp(), "approval", func(ctx context.Context, id string) (string, error) {
		a, ok, err := step.WaitForEvent[approval](ctx, "approved", "order.approved", append(opts, step.Match("payload.id", id), step.Timeout(time.Hour))...)
		if err != nil || !ok {
			return "nobody", err
		}
		return a.By, nil
	})
}

func TestAWaitTakesTheEventThatMatches(t *testing.T) {
	other := nelkap.Event{Name: "order.approved", Payload: approval{"o_2", "eve"}}
	mine := nelkap.Event{Name: "order.approved", Payload: approval{"o_1", "ada"}}
	if out, err := nelkaptest.Run(t, t.Context(), approvalFlow(), "o_1", nelkaptest.Events(other, mine)); out != "ada" || err != nil {
		t.Errorf("it gave %q, %v", out, err)
	}
	if out, err := nelkaptest.Run(t, t.Context(), approvalFlow(), "o_1", nelkaptest.Events(other)); out != "nobody" || err != nil {
		t.Errorf("without its event it gave %q, %v", out, err)
	}
}

func TestAFilterIsGivenByItsText(t *testing.T) {
	mine := nelkap.Event{Name: "order.approved", Payload: approval{"o_1", "ada"}}
	wf := approvalFlow(step.If("payload.by != ''"))
	out, err := nelkaptest.Run(t, t.Context(), wf, "o_1", nelkaptest.Events(mine), nelkaptest.Filter("payload.by != ''", func(e nelkap.ReceivedEvent) bool {
		var a approval
		return e.Decode(&a) == nil && a.By != ""
	}))
	if out != "ada" || err != nil {
		t.Errorf("it gave %q, %v", out, err)
	}
	says(t, failing(func(t testing.TB) { nelkaptest.Run(t, context.Background(), wf, "o_1", nelkaptest.Events(mine)) }),
		`the wait "approved" has the filter "payload.by != ''"`, "say what it gives with Filter")
}

func TestAnEventThatAFakeEmitsIsNotMissed(t *testing.T) {
	app := newApp()
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, _ nelkap.None) (string, error) {
		if err := step.Do(ctx, "ask", func(context.Context) error { return errors.New("the real one") }); err != nil {
			return "", err
		}
		answer, _, err := step.WaitForEvent[string](ctx, "answer", "answered")
		return answer, err
	})
	ask := nelkaptest.FakeStep("ask", func(ctx context.Context) (nelkap.None, error) {
		return nelkap.None{}, nelkaptest.Emit(ctx, nelkap.Event{Name: "answered", Payload: "yes"})
	})
	if out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}, ask); out != "yes" || err != nil {
		t.Errorf("it gave %q, %v", out, err)
	}
	if err := nelkaptest.Emit(t.Context(), nelkap.Event{Name: "answered"}); !errors.Is(err, nelkaptest.ErrNotInTest) {
		t.Errorf("outside a run Emit gives %v", err)
	}
}

func TestACallbackIsPostedTo(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (string, error) {
		c, err := step.NewCallback[string](ctx, "paid", step.Timeout(time.Hour))
		if err != nil {
			return "", err
		}
		if err := step.Do(ctx, "give away", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		payload, ok, err := c.Wait(ctx)
		return fmt.Sprintf("%s %t", payload, ok), err
	})
	if out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}, nelkaptest.Posts("paid", "in full")); out != "in full true" || err != nil {
		t.Errorf("it gave %q, %v", out, err)
	}
	if out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}); out != " false" || err != nil {
		t.Errorf("without a post it gave %q, %v", out, err)
	}
	early := nelkaptest.FakeStep("give away", func(ctx context.Context) (nelkap.None, error) {
		return nelkap.None{}, nelkaptest.Post(ctx, "paid", "before the wait")
	})
	if out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}, early); out != "before the wait true" || err != nil {
		t.Errorf("posted to early it gave %q, %v", out, err)
	}
}

func TestChildrenArePlayedAndMayBeFaked(t *testing.T) {
	app := newApp()
	child := nelkap.NewWorkflow(app, "child", func(ctx context.Context, n int) (int, error) {
		if n < 0 {
			return 0, nelkap.NonRetriable(errors.New("negative"))
		}
		return step.Run(ctx, "double", give(2*n))
	})
	elsewhere := nelkap.Ref[int, int](app, "elsewhere", nelkap.InApp("billing"))
	wf := nelkap.NewWorkflow(app, "parent", func(ctx context.Context, n int) (int, error) {
		a, err := step.Invoke(ctx, "here", child, n)
		if err != nil {
			return 0, err
		}
		b, err := step.Invoke(ctx, "there", elsewhere, n)
		return a + b, err
	})
	fake := nelkaptest.FakeWorkflow(elsewhere, func(_ context.Context, n int) (int, error) { return 100 * n, nil })
	if out, err := nelkaptest.Run(t, t.Context(), wf, 3, fake); out != 306 || err != nil {
		t.Errorf("it gave %d, %v", out, err)
	}
	_, err := nelkaptest.Run(t, t.Context(), wf, -1, fake)
	if failed, ok := errors.AsType[*nelkap.RunError](err); !ok || failed.Message != "negative" {
		t.Errorf("a child's failure is %v", err)
	}
	says(t, failing(func(t testing.TB) { nelkaptest.Run(t, context.Background(), wf, 3) }),
		`the step "there" invokes "elsewhere"`, "FakeWorkflow")
}

func TestWhatAFakeOfAWorkflowSendsStaysInTheTest(t *testing.T) {
	served := 0
	app := nelkap.New(nelkap.Options{App: "shop", HTTPClient: &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
		served++
		return nil, errors.New("no")
	})}})
	ship := nelkap.Ref[nelkap.None, nelkap.None](app, "ship", nelkap.InApp("warehouse"))
	tell := nelkap.NewWorkflow(app, "tell", nelkap.NoResult(func(context.Context, nelkap.None) error { return nil }))
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, _ nelkap.None) (int, error) {
		if _, err := step.Invoke(ctx, "ship", ship, nelkap.None{}); err != nil {
			return 0, err
		}
		left, _, err := step.WaitForEvent[int](ctx, "left", "left")
		if err != nil {
			return 0, err
		}
		back, _, err := step.WaitForEvent[int](ctx, "back", "back")
		return left + back, err
	})
	fake := nelkaptest.FakeWorkflow(ship, func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := app.Emit(ctx, nelkap.Event{Name: "left", Payload: 1})
		handle, err2 := nelkap.Run(ctx, tell, nelkap.None{})
		if err := errors.Join(err, err2, nelkaptest.Emit(ctx, nelkap.Event{Name: "back", Payload: 2})); err != nil {
			return nelkap.None{}, err
		}
		if _, err := handle.Result(ctx); err == nil || !strings.Contains(err.Error(), "no fake can wait for another run") {
			t.Errorf("a run's result is %v", err)
		}
		return nelkap.None{}, nil
	})
	if out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}, fake); out != 3 || err != nil || served != 0 {
		t.Errorf("it gave %d, %v, and %d requests went out", out, err, served)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAChildThatTakesTooLongIsCancelled(t *testing.T) {
	app := newApp()
	child := nelkap.NewWorkflow(app, "child", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		return nelkap.None{}, step.Sleep(ctx, "long", 48*time.Hour)
	})
	wf := nelkap.NewWorkflow(app, "parent", func(ctx context.Context, _ nelkap.None) (bool, error) {
		_, err := step.Invoke(ctx, "child", child, nelkap.None{}, step.Timeout(time.Hour))
		return errors.Is(err, nelkap.ErrTimeout), nil
	})
	if out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}); !out || err != nil {
		t.Errorf("it gave %v, %v", out, err)
	}
}

func TestClaimsAndOnce(t *testing.T) {
	app := newApp()
	wf := nelkap.NewWorkflow(app, "claims", func(ctx context.Context, id string) (bool, error) {
		return step.Claim(ctx, "one per order", id)
	})
	once := nelkap.NewWorkflow(app, "once", func(context.Context, string) (string, error) { return "mine", nil },
		nelkap.Once(func(id string) string { return id }))
	for _, owned := range []bool{true, false} {
		var opts []nelkaptest.Option
		if !owned {
			opts = append(opts, nelkaptest.Claimed("o_1"))
		}
		if out, err := nelkaptest.Run(t, t.Context(), wf, "o_1", opts...); out != owned || err != nil {
			t.Errorf("the claim gave %v, %v", out, err)
		}
		if out, err := nelkaptest.Run(t, t.Context(), once, "o_1", opts...); (out == "mine") != owned || errors.Is(err, nelkap.ErrSkipped) == owned {
			t.Errorf("once gave %q, %v", out, err)
		}
	}
}

func TestRunsAndEventsOfStepsAreKept(t *testing.T) {
	app := newApp()
	other := nelkap.NewWorkflow(app, "other", func(ctx context.Context, n int) (int, error) {
		return n + 1, step.Sleep(ctx, "a while", time.Hour)
	})
	wf := nelkap.NewWorkflow(app, "w", func(ctx context.Context, n int) (int, error) {
		h, err := step.Run(ctx, "start", func(ctx context.Context) (*nelkap.Handle[int], error) { return nelkap.Run(ctx, other, n) })
		if err != nil {
			return 0, err
		}
		err = step.Do(ctx, "tell", func(ctx context.Context) error {
			_, err := app.Emit(ctx, nelkap.Event{Name: "started", Payload: n})
			return err
		})
		if err != nil {
			return 0, err
		}
		return h.Result(ctx)
	})
	var played nelkaptest.Played
	if out, err := nelkaptest.Run(t, t.Context(), wf, 1, nelkaptest.Report(&played)); out != 2 || err != nil {
		t.Errorf("it gave %d, %v", out, err)
	}
	if len(played.Events) != 1 || played.Events[0].Name != "started" || string(played.Events[0].Payload) != "1" {
		t.Errorf("events: %+v", played.Events)
	}
}

func TestBranchesSideBySide(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, items []int) ([]int, error) {
		return step.Map(ctx, items, func(ctx context.Context, n int) (int, error) {
			if err := step.Sleep(ctx, "wait", time.Duration(n)*time.Hour); err != nil {
				return 0, err
			}
			return step.Run(ctx, "square", give(n*n))
		})
	})
	out, err := nelkaptest.Run(t, t.Context(), wf, []int{3, 1, 2})
	if diff := cmp.Diff([]int{9, 1, 4}, out); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

func TestCancellationAndTimeout(t *testing.T) {
	app := newApp()
	sleeps := func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		return nelkap.None{}, step.Sleep(ctx, "long", 48*time.Hour)
	}
	cancelled := nelkap.NewWorkflow(app, "cancelled", sleeps, nelkap.CancelOn("stop"))
	_, err := nelkaptest.Run(t, t.Context(), cancelled, nelkap.None{}, nelkaptest.Events(nelkap.Event{Name: "stop"}))
	if !errors.Is(err, nelkap.ErrCancelled) {
		t.Errorf("cancelled: %v", err)
	}
	timed := nelkap.NewWorkflow(app, "timed", sleeps, nelkap.Timeout(time.Hour))
	if _, err := nelkaptest.Run(t, t.Context(), timed, nelkap.None{}); !errors.Is(err, nelkap.ErrTimeout) {
		t.Errorf("timed out: %v", err)
	}
}

func TestInABubbleBodiesTakeNoTimeEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (int, error) {
			err := step.Do(ctx, "slow", func(ctx context.Context) error {
				if tries++; tries > 1 {
					time.Sleep(20 * time.Second)
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}, step.Timeout(time.Minute))
			return tries, err
		})
		if out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}); out != 2 || err != nil {
			t.Errorf("it gave %d, %v", out, err)
		}
	})
}

// A sleep beside a body is due while the body still runs.
func TestInABubbleASleepWinsARaceAgainstABodyThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (int, error) {
			winner, _, err := step.Race(ctx,
				func(ctx context.Context) (int, error) {
					return step.Run(ctx, "hangs", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
				},
				func(ctx context.Context) (int, error) { return 0, step.Sleep(ctx, "patience", time.Hour) })
			return winner, err
		})
		if out, err := nelkaptest.Run(t, t.Context(), wf, nelkap.None{}); out != 1 || err != nil {
			t.Errorf("it gave %d, %v", out, err)
		}
	})
}

func TestARunThatNobodyBringsOnFailsTheTest(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (string, error) {
		s, _, err := step.WaitForEvent[string](ctx, "answer", "answered")
		return s, err
	})
	says(t, failing(func(t testing.TB) { nelkaptest.Run(t, context.Background(), wf, nelkap.None{}) }),
		`the run of "w" waits for the event "answered" (step "answer"), which no time brings`)
	ref := nelkap.Ref[string, string](newApp(), "elsewhere")
	says(t, failing(func(t testing.TB) { nelkaptest.Run(t, context.Background(), ref, "x") }), `workflow "elsewhere" is a reference`)
}

func TestTheContextEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		err := step.Do(ctx, "body", func(ctx context.Context) error {
			cancel(enough)
			<-ctx.Done() // the body ends with its call
			return ctx.Err()
		})
		return nelkap.None{}, errors.Join(err, step.Sleep(ctx, "long", time.Hour))
	})
	if _, err := nelkaptest.Run(t, ctx, wf, nelkap.None{}); !errors.Is(err, enough) {
		t.Errorf("it gave %v", err)
	}
}

func TestHowTheRunWasStartedIsShown(t *testing.T) {
	wf := nelkap.NewWorkflow(newApp(), "w", func(ctx context.Context, _ string) (string, error) {
		info, _ := nelkap.CurrentRun(ctx)
		return info.Event.Name + " " + string(info.Event.Payload) + " " + info.Key, nil
	})
	out, err := nelkaptest.Run(t, t.Context(), wf, "o_1", nelkaptest.StartedBy("order.paid"), nelkaptest.StartedWith(nelkap.Key("k")))
	if out != `order.paid "o_1" k` || err != nil {
		t.Errorf("it gave %q, %v", out, err)
	}
}
