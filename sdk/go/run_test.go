package nelkap_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
	"github.com/nelkap/nelkap/sdk/go/step"
)

type order struct {
	ID    string `json:"id"`
	Total int64  `json:"total"`
}

func constant[T any](v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, nil }
}

func TestRunSavesEachStepAndCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{App: "shop"})
		nelkap.NewWorkflow(s.app, "two steps", func(ctx context.Context, o order) ([]string, error) {
			a, err := step.Run(ctx, "a", func(context.Context) (string, error) { return o.ID + "<&>", nil })
			if err != nil {
				return nil, err
			}
			if err := step.Do(ctx, "b", func(context.Context) error { return nil }); err != nil {
				return nil, err
			}
			return []string{a}, nil
		})
		a := s.call("two steps", order{ID: "o_1"})
		if a.Type != "completed" || string(a.Output) != `["o_1<&>"]` {
			t.Errorf("answer %+v", a)
		}
		want := []string{"completed a 1/1", "completed b 1/1"}
		if diff := cmp.Diff(want, s.savedNames()); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
		if s.saves[1].Output != nil {
			t.Errorf("a step without result saved %s", s.saves[1].Output)
		}
	})
}

// Rule W1.
func TestSavedStepsAnswerOnTheNextCall(t *testing.T) {
	for _, pages := range []int{0, 1, 2} {
		t.Run(fmt.Sprint(pages), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				s.pages = pages
				var bodies atomic.Int32
				nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
					for range 5 {
						err := step.Do(ctx, "a", func(ctx context.Context) error {
							if bodies.Add(1); step.Attempt(ctx) == 1 {
								return errors.New("busy")
							}
							return nil
						})
						if err != nil {
							return err
						}
					}
					return nil
				}))
				if a := s.run("w", nil); a.Type != "completed" || a.Output != nil {
					t.Errorf("answer %+v", a)
				}
				if got := bodies.Load(); got != 10 {
					t.Errorf("%d bodies ran, want 10", got)
				}
			})
		})
	}
}

func TestFinalFailureReachesTheCodeAsStepError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		var caught error
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (string, error) {
			_, caught = step.Run(ctx, "charge", func(context.Context) (int, error) {
				return 0, nelkap.NonRetriable(fmt.Errorf("charging: %w", &cardError{Code: "no_money", Status: 402}))
			})
			return "released", step.Do(ctx, "release", func(context.Context) error { return nil })
		})
		if a := s.call("w", nil); a.Type != "completed" {
			t.Fatalf("answer %+v", a)
		}
		failed, ok := errors.AsType[*nelkap.StepError](caught)
		if !ok || failed.Step != "charge" || failed.Attempts != 1 || failed.Err.Message != "charging: card refused" {
			t.Fatalf("the code got %#v", caught)
		}
		cause := failed.Err.Cause
		if cause == nil || cause.Name != "cardError" && cause.Name != "Error" || string(cause.Fields) != `{"Code":"no_money","status":402}` {
			t.Errorf("the cause is %+v", cause)
		}
	})
}

type cardError struct {
	Code   string
	Status int `json:"status"`
}

func (*cardError) Error() string { return "card refused" }

// Rule S2.
func TestFailuresSayHowTheyAreRetried(t *testing.T) {
	for _, c := range []struct {
		name      string
		err       func(stepErr error) error
		message   string
		retriable bool
		after     int64
	}{
		{"plain", func(error) error { return errors.New("no") }, "no", true, -1},
		{"non retriable", func(error) error { return nelkap.NonRetriable(errors.New("no")) }, "no", false, -1},
		{"retry after", func(error) error { return nelkap.RetryAfter(errors.New("no"), 5*time.Second) }, "no", true, 5000},
		{"both", func(error) error { return nelkap.NonRetriable(nelkap.RetryAfter(errors.New("no"), 1)) }, "no", false, -1},
		{"a step's", func(err error) error { return err }, "bad", false, -1},
		{"a step's, wrapped", func(err error) error { return fmt.Errorf("in w: %w", err) }, "in w: step a: bad", false, -1},
		{"a step's, retried", func(err error) error { return nelkap.RetryAfter(err, 0) }, "bad", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
					return c.err(step.Do(ctx, "a", func(context.Context) error { return nelkap.NonRetriable(errors.New("bad")) }))
				}), nelkap.Retries(7))
				a := s.call("w", nil)
				after := int64(-1)
				if a.RetryAfterMs != nil {
					after = *a.RetryAfterMs
				}
				if a.Type != "failed" || a.Error.Message != c.message || a.Retriable != c.retriable || after != c.after || a.Retries != 7 {
					t.Errorf("answer %+v, %+v, after %d", a, a.Error, after)
				}
			})
		})
	}
}

type counts map[string]int

func (m counts) add(name string) error {
	m[name]++
	return nil
}

func TestPanicsAreFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "body", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Do(ctx, "a", func(context.Context) error { panic("oh no") }, step.Retries(0))
		}))
		var m counts
		nelkap.NewWorkflow(s.app, "code", nelkap.NoResult(func(context.Context, nelkap.None) error {
			return m.add("x")
		}))
		nelkap.NewWorkflow(s.app, "goexit", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Do(ctx, "g", func(context.Context) error { runtime.Goexit(); return nil }, step.Retries(0))
		}))
		for name, want := range map[string]string{"body": "oh no", "code": "assignment to entry in nil map", "goexit": "Goexit"} {
			a := s.call(name, nil)
			if a.Type != "failed" || !strings.Contains(a.Error.Message, want) {
				t.Errorf("%s: answer %+v %+v", name, a, a.Error)
			} else if name != "goexit" && (a.Error.Name != "panic" || !strings.Contains(a.Error.Stack, "run_test.go")) {
				t.Errorf("%s: error %q with stack %q", name, a.Error.Name, a.Error.Stack)
			}
		}
	})
}

type startedOrder struct {
	nelkap.Handle[int]
	OrderID string
}

// Rule S3.
func TestUnsavableResultsFailAtOnceAndSayThatTheBodyRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		s.limits.ResultBytes = 1000
		var caught []string
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			_, err := step.Run(ctx, "chan", constant(map[string]any{"deep": []any{make(chan int)}}))
			_, err2 := step.Run(ctx, "large", constant(strings.Repeat("x", 2000)))
			_, err3 := step.Run(ctx, "embedded", constant(startedOrder{nelkap.Handle[int]{ID: "run_1"}, "o_1"}))
			_, err4 := step.Run(ctx, "panics", constant(jsonPanics{}))
			caught = []string{err.Error(), err2.Error(), err3.Error(), err4.Error()}
			return nil
		}))
		if a := s.call("w", nil); a.Type != "completed" {
			t.Fatalf("answer %+v", a)
		}
		for i, want := range []string{`result["deep"][0]`, "2002 bytes", "the field OrderID would be lost", "panicked: no"} {
			if !strings.Contains(caught[i], want) || !strings.Contains(caught[i], "body ran") {
				t.Errorf("the code got %q", caught[i])
			}
			if s.saves[i].Retriable {
				t.Errorf("%q is retried", caught[i])
			}
		}
	})
}

// H7: deferred functions, recover and error checks must not take the end of a call for a failure.
// Rule W10.
func TestEndOfACallIsNoFailureForTheCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		var refunds, after int
		var recovered any
		var inDefer error
		var over bool
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (_ int, err error) {
			defer func() {
				recovered = recover()
				over = nelkap.CallOver(ctx)
				if err != nil {
					refunds++
				}
				inDefer = step.Do(ctx, "cleanup", func(context.Context) error { refunds++; return nil })
			}()
			if err := step.Do(ctx, "a", func(context.Context) error { return errors.New("busy") }); err != nil {
				refunds++
			}
			after++
			return 1, nil
		})
		if a := s.call("w", nil); a.Type != "suspended" || a.Waits[0].Retry.Name != "a" {
			t.Fatalf("answer %+v", a)
		}
		synctest.Wait()
		if refunds != 0 || after != 0 || recovered != nil || !over || !errors.Is(inDefer, nelkap.ErrCallOver) {
			t.Errorf("refunds %d, after %d, recovered %v, over %v, step in defer %v", refunds, after, recovered, over, inDefer)
		}
	})
}

// Rule H7.
func TestWhatCodeOfAnEndedCallPanicsIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			defer func() { panic("in a defer") }()
			return step.Do(ctx, "a", func(context.Context) error { return errors.New("busy") })
		}))
		if a := s.call("w", nil); a.Type != "suspended" {
			t.Fatalf("answer %+v", a)
		}
		synctest.Wait()
	})
}

// Rule S1.
func TestSecondStepInFlightIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		var second, nested error
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Do(ctx, "outer", func(bodyCtx context.Context) error {
				second = step.Do(ctx, "second", func(context.Context) error { return nil })
				nested = step.Do(bodyCtx, "nested", func(context.Context) error { return nil })
				return nil
			})
		}))
		if a := s.call("w", nil); a.Type != "completed" {
			t.Fatalf("answer %+v", a)
		}
		if second == nil || !strings.Contains(second.Error(), "one after the other") {
			t.Errorf("second step: %v", second)
		}
		if nested == nil || !strings.Contains(nested.Error(), "can't start a step") {
			t.Errorf("nested step: %v", nested)
		}
	})
}

func TestStepsOutsideARunAreRefused(t *testing.T) {
	ctx := context.Background()
	if err := step.Do(ctx, "a", func(context.Context) error { return nil }); !errors.Is(err, nelkap.ErrNotInRun) {
		t.Errorf("step outside a run: %v", err)
	}
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, nelkap.ErrNotInStep) {
			t.Errorf("IdempotencyKey outside a step panicked with %v", err)
		}
	}()
	step.IdempotencyKey(ctx)
}

// Rule S1.
func TestNamesAreKeptApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		names := []string{"a", "a", "a", "a:1", "a#2", "a:2", "__proto__", "toString", "a/b", "../x", "😀", "a\x00b"}
		n := 0
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (results []int, err error) {
			for i, name := range names {
				result, err := step.Run(ctx, name, func(ctx context.Context) (int, error) {
					if step.Attempt(ctx) == 1 {
						return 0, errors.New("once more")
					}
					n++
					return i, nil
				})
				if err != nil {
					return nil, err
				}
				results = append(results, result)
			}
			for _, name := range []string{"", "\xff", strings.Repeat("x", 2000)} {
				if err := step.Do(ctx, name, func(context.Context) error { return nil }); err == nil {
					t.Errorf("the name %q was taken", name)
				}
			}
			return results, nil
		})
		a := s.run("w", nil)
		if a.Type != "completed" || string(a.Output) != "[0,1,2,3,4,5,6,7,8,9,10,11]" || n != len(names) {
			t.Errorf("answer %+v %s, %d bodies", a, a.Output, n)
		}
	})
}

func TestFirstPassGivesWhatLaterPassesGive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type value struct {
			At  time.Time
			Any any
		}
		var seen []value
		shared := map[string]any{"v": 1}
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			v, err := step.Run(ctx, "a", constant(value{time.Now(), shared}))
			if err != nil {
				return err
			}
			shared["v"] = 2
			seen = append(seen, v)
			return step.Do(ctx, "b", func(ctx context.Context) error {
				if step.Attempt(ctx) == 1 {
					return errors.New("once more")
				}
				return nil
			})
		}))
		if a := s.run("w", nil); a.Type != "completed" {
			t.Fatalf("answer %+v", a)
		}
		if len(seen) != 2 || !cmp.Equal(seen[0], seen[1]) || seen[0].Any.(map[string]any)["v"] != 1.0 {
			t.Errorf("seen %+v", seen)
		}
	})
}

// Rules S6, K2.
func TestTimeoutFailsTheAttemptThoughTheBodyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		release := make(chan struct{})
		var sendErr, cause error
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (int, error) {
			return step.Run(ctx, "slow", func(ctx context.Context) (int, error) {
				if step.Attempt(ctx) == 1 {
					<-release // heeds no context
					cause = context.Cause(ctx)
					_, sendErr = s.app.Emit(ctx, nelkap.Event{Name: "late"})
					return 1, nil
				}
				return 2, nil
			}, step.Timeout(3*time.Second))
		})
		started := time.Now()
		if a := s.call("w", nil); a.Type != "suspended" || time.Since(started) != 3*time.Second {
			t.Fatalf("answer %+v after %v", a, time.Since(started))
		}
		if s.saves[0].Error.Name != "TimeoutError" || !s.saves[0].Retriable {
			t.Errorf("saved %+v", s.saves[0])
		}
		if a := s.call("w", nil); string(a.Output) != "2" {
			t.Errorf("answer %+v", a)
		}
		close(release)
		synctest.Wait()
		if !errors.Is(cause, nelkap.ErrTimeout) || sendErr == nil {
			t.Errorf("the context ended with %v, the late send with %v", cause, sendErr)
		}
		if len(s.saves) != 2 {
			t.Errorf("the late result was saved: %v", s.savedNames())
		}
	})
}

// Rule C8.
func TestContextOfABodyIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{App: "shop"})
		type key struct{}
		requestCtx, closeConnection := context.WithCancel(context.WithValue(context.Background(), key{}, "request"))
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (string, error) {
			inner, cancel := context.WithCancel(ctx)
			cancel()
			return step.Run(inner, "a", func(ctx context.Context) (string, error) {
				closeConnection()
				time.Sleep(time.Second)
				info, ok := nelkap.CurrentRun(ctx)
				if ctx.Err() != nil || ctx.Value(key{}) != nil || !ok || info.ID != "run_1" || nelkap.FromContext(ctx) != s.app {
					return "", fmt.Errorf("the body's context: %w, %v, %+v", ctx.Err(), ctx.Value(key{}), info)
				}
				return step.IdempotencyKey(ctx), nil
			})
		})
		s.callWith(requestCtx, "w", nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(s.ends) != 1 || s.ends[0].End.Type != "completed" || !strings.HasPrefix(string(s.ends[0].End.Output), `"nelkap_`) {
			t.Errorf("the end through the API: %+v", s.ends)
		}
	})
}

// Rule W2.
func TestSupersededPlayingStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		var cause error
		after := false
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			err := step.Do(ctx, "a", func(ctx context.Context) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return cause
			})
			after = true
			return err
		}))
		go func() {
			time.Sleep(2 * time.Second)
			s.tell(&wire.News{Status: wire.StatusSuperseded})
		}()
		if a := s.call("w", nil); a.Type != "over" {
			t.Errorf("answer %+v", a)
		}
		synctest.Wait()
		if !errors.Is(cause, nelkap.ErrSuperseded) || after || len(s.saves) != 0 {
			t.Errorf("cause %v, after %v, saves %v", cause, after, s.savedNames())
		}
	})
}

// Rule Z1.
func TestCancelledBodyMayStillSave(t *testing.T) {
	for _, saves := range []bool{true, false} {
		t.Run(fmt.Sprint(saves), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
					_, err := step.Run(ctx, "a", func(ctx context.Context) (int, error) {
						<-ctx.Done()
						if !errors.Is(context.Cause(ctx), nelkap.ErrCancelled) {
							t.Errorf("the body's context ended with %v", context.Cause(ctx))
						}
						if saves {
							return 1, nil
						}
						return 0, ctx.Err()
					})
					t.Error("the code went on")
					return err
				}))
				go func() {
					time.Sleep(2 * time.Second)
					s.mu.Lock()
					s.ending = &wire.Ending{Reason: wire.ReasonCancelled}
					s.mu.Unlock()
					s.tell(&wire.News{Status: wire.StatusEnding, Ending: s.ending})
				}()
				a := s.call("w", nil)
				if a.Type != "yielded" {
					t.Errorf("answer %+v", a)
				}
				if got := len(s.savedNames()); saves != (got == 1) {
					t.Errorf("saved %v", s.savedNames())
				}
				synctest.Wait()
			})
		})
	}
}

func TestShutdownFinishesRunningBodiesAndYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			for range 3 {
				if err := step.Do(ctx, "a", func(context.Context) error { time.Sleep(time.Second); return nil }); err != nil {
					return err
				}
			}
			return nil
		}))
		done := make(chan answer)
		go func() { done <- s.call("w", nil) }()
		time.Sleep(100 * time.Millisecond)
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := s.app.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if err := s.app.Shutdown(t.Context()); err != nil {
			t.Errorf("second Shutdown: %v", err)
		}
		if a := <-done; a.Type != "yielded" || a.Seen != 1 || !a.Excused {
			t.Errorf("C12: answer %+v", a)
		}
		if got := s.savedNames(); !slices.Equal(got, []string{"completed a 1/1"}) {
			t.Errorf("saved %v", got)
		}
		if a := s.call("w", nil); a.Status != 503 {
			t.Errorf("a call after Shutdown: %+v", a)
		}
	})
}

func TestMaxDurationYieldsAfterProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{MaxDuration: 10 * time.Second})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			for range 4 {
				if err := step.Do(ctx, "a", func(context.Context) error { time.Sleep(5 * time.Second); return nil }); err != nil {
					return err
				}
			}
			return nil
		}))
		if a := s.call("w", nil); a.Type != "yielded" || a.Seen != 2 || a.Excused {
			t.Errorf("C12: first answer %+v", a)
		}
		if a := s.call("w", nil); a.Type != "completed" {
			t.Errorf("second answer %+v", a)
		}
	})
}

// Rule C13.
func TestStartsAreRecordedAfterACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		s.cuts = 1
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			if err := step.Do(ctx, "a", func(context.Context) error { return nil }); err != nil {
				return err
			}
			return step.Do(ctx, "b", func(context.Context) error { return nil })
		}))
		s.call("w", nil)
		want := []string{"start a 1/1", "completed a 1/1", "completed b 1/1"}
		if diff := cmp.Diff(want, s.savedNames()); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
	})
}

func TestPayloadThatDoesNotFitFailsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(context.Context, order) error { return nil }))
		if a := s.call("w", "text"); a.Type != "failed" || a.Retriable || !strings.Contains(a.Error.Message, "payload") {
			t.Errorf("answer %+v %+v", a, a.Error)
		}
	})
}
