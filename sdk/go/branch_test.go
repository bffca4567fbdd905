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

// after is a body that takes d and gives v.
func after[T any](d time.Duration, v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { time.Sleep(d); return v, nil }
}

// doing is a branch of one step, whose body takes d and throws err.
func doing(name string, d time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		return step.Do(ctx, name, func(context.Context) error { time.Sleep(d); return err })
	}
}

func TestBodiesOfBranchesRunAtOnceAndSaveAsTheyFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) ([]string, error) {
			var a, b string
			err := step.Parallel(
				ctx,
				func(ctx context.Context) (err error) { a, err = step.Run(ctx, "slow", after(time.Second, "a")); return },
				func(ctx context.Context) (err error) {
					b, err = step.Run(ctx, "quick", after(time.Millisecond, "b"))
					return
				},
			)
			return []string{a, b}, err
		})
		began := time.Now()
		if a := s.call("w", nil); string(a.Output) != `["a","b"]` || time.Since(began).Round(time.Millisecond) != time.Second {
			t.Errorf("answer %+v after %v", a, time.Since(began))
		}
		if diff := cmp.Diff([]string{"completed quick 1/1", "completed slow 1/1"}, s.savedNames()); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
	})
}

// A quick sibling that was saved answers, and the slow one that was cut off repeats alone.
func TestACutRepeatsTheUnsavedSiblingAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		var quick, slow int
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Parallel(
				ctx,
				func(ctx context.Context) error {
					return step.Do(ctx, "quick", func(context.Context) error { quick++; return nil })
				},
				func(ctx context.Context) error {
					return step.Do(ctx, "slow", func(ctx context.Context) error {
						if slow++; slow == 1 {
							return errors.New("busy")
						}
						return nil
					})
				},
			)
		}))
		if a := s.run("w", nil); a.Type != "completed" || quick != 1 || slow != 2 {
			t.Errorf("answer %+v, quick ran %d times, slow %d", a, quick, slow)
		}
	})
}

// The first error in the history's order is Parallel's. What runs finishes and is saved before the code goes on; nothing more starts.
func TestTheFirstErrorEndsParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		var running atomic.Int32
		var atReturn int32
		var deferred []string
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (string, error) {
			err := step.Parallel(
				ctx,
				func(ctx context.Context) error {
					defer func() { deferred = append(deferred, fmt.Sprint("slow ", nelkap.CallOver(ctx))) }()
					if err := step.Do(ctx, "slow", func(context.Context) error {
						running.Add(1)
						defer running.Add(-1)
						time.Sleep(time.Minute)
						return nil
					}); err != nil {
						return err
					}
					return step.Do(ctx, "never", func(context.Context) error { return nil })
				},
				func(ctx context.Context) error {
					defer func() { deferred = append(deferred, fmt.Sprint("asleep ", nelkap.CallOver(ctx))) }()
					return step.Sleep(ctx, "asleep", time.Hour)
				},
				func(ctx context.Context) error {
					defer func() { deferred = append(deferred, fmt.Sprint("bad ", nelkap.CallOver(ctx))) }()
					return doing("bad", time.Second, nelkap.NonRetriable(errors.New("no")))(ctx)
				},
				doing("worse", 2*time.Second, nelkap.NonRetriable(errors.New("later"))),
			)
			atReturn = running.Load()
			if undone := step.Do(ctx, "undo", func(context.Context) error { return nil }); undone != nil {
				return "", undone
			}
			return err.Error(), nil
		})
		for range 2 {
			deferred = nil
			if a := s.call("w", nil); string(a.Output) != `"step bad: no"` || atReturn != 0 {
				t.Errorf("answer %+v, %d bodies ran when Parallel returned", a, atReturn)
			}
			if diff := cmp.Diff([]string{"bad false", "slow true", "asleep true"}, deferred); diff != "" {
				t.Errorf("deferred functions (-want +got):\n%s", diff)
			}
		}
		want := []string{"wait asleep 1/0", "failed bad 1/1", "failed worse 1/1", "completed slow 1/1", "completed undo 1/1"}
		if diff := cmp.Diff(want, s.savedNames()); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
	})
}

func TestPanicsOfBranchesReachTheWorkflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		panics := func(context.Context) error { panic("oh no") }
		var recovered any
		nelkap.NewWorkflow(s.app, "through", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Parallel(ctx, func(ctx context.Context) error { return step.Parallel(ctx, panics) }, doing("a", time.Hour, nil))
		}))
		nelkap.NewWorkflow(s.app, "recovered", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			func() {
				defer func() { recovered = recover() }()
				step.Parallel(ctx, panics)
			}()
			return step.Do(ctx, "b", func(context.Context) error { return nil })
		}))
		nelkap.NewWorkflow(s.app, "goexit", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Parallel(ctx, func(context.Context) error { runtime.Goexit(); return nil })
		}))
		if a := s.call("through", nil); a.Type != "failed" || a.Error.Name != "panic" || a.Error.Message != "oh no" || !strings.Contains(a.Error.Stack, "TestPanicsOfBranches") {
			t.Errorf("answer %+v %+v", a, a.Error)
		}
		if a := s.call("recovered", nil); a.Type != "completed" || recovered != "oh no" {
			t.Errorf("answer %+v %+v, recovered %v", a, a.Error, recovered)
		}
		if a := s.call("goexit", nil); a.Type != "failed" || !strings.Contains(a.Error.Message, "Goexit") {
			t.Errorf("answer %+v %+v", a, a.Error)
		}
	})
}

// Rule S1.
func TestMapCountsByIndex(t *testing.T) {
	for _, limit := range []int{1, 2, 10} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				var atOnce, most atomic.Int32
				nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) ([]string, error) {
					if err := step.Do(ctx, "load", func(context.Context) error { return nil }); err != nil {
						return nil, err
					}
					results, err := step.Map(ctx, []int{3, 2, 1}, func(ctx context.Context, n int) (string, error) {
						loaded, err := step.Run(ctx, "load", func(context.Context) (int, error) {
							most.Store(max(most.Load(), atOnce.Add(1)))
							defer atOnce.Add(-1)
							time.Sleep(time.Duration(n) * time.Second)
							return n, nil
						})
						if err != nil {
							return "", err
						}
						return step.Run(ctx, "save", constant(fmt.Sprint("saved ", loaded)))
					}, step.Limit(limit))
					if err != nil {
						return nil, err
					}
					return results, step.Do(ctx, "load", func(context.Context) error { return nil })
				})
				if a := s.call("w", nil); string(a.Output) != `["saved 3","saved 2","saved 1"]` || int(most.Load()) != min(limit, 3) {
					t.Errorf("answer %+v, %d bodies at once", a, most.Load())
				}
				want := map[string]string{"save1": "saved 3", "save2": "saved 2", "save3": "saved 1", "load1": "", "load2": "3", "load3": "2", "load4": "1", "load5": ""}
				got := map[string]string{}
				for _, item := range s.saves {
					got[fmt.Sprint(item.Name, item.Number)] = strings.Trim(string(item.Output), `"`)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("saved (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// S1: maps in maps, and a name that is used beside one, never share a number.
func TestNamesInMapsAndBesideThemAreKeptApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			item := func(ctx context.Context, n int) (nelkap.None, error) {
				return nelkap.None{}, doing("n", time.Duration(n)*time.Second, nil)(ctx)
			}
			return step.Parallel(
				ctx,
				func(ctx context.Context) error {
					_, err := step.Map(ctx, []int{2, 1}, func(ctx context.Context, n int) (nelkap.None, error) {
						if _, err := item(ctx, n); err != nil {
							return nelkap.None{}, err
						}
						_, err := step.Map(ctx, []int{n, n}, item)
						return nelkap.None{}, err
					})
					return err
				},
				doing("n", 0, nil),
			)
		}))
		for range 2 { // the second call finds each under its number
			if a := s.call("w", nil); a.Type != "completed" {
				t.Errorf("answer %+v %+v", a, a.Error)
			}
		}
		var numbers []int
		for _, item := range s.saves {
			numbers = append(numbers, item.Number)
		}
		slices.Sort(numbers)
		if diff := cmp.Diff([]int{1, 2, 3, 4, 5, 6, 7}, numbers); diff != "" {
			t.Errorf("numbers (-want +got):\n%s", diff)
		}
	})
}

// Rule S3.
func TestStepsOfBranchesCountTowardsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		s.limits.Steps = 2
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Parallel(ctx, doing("a", time.Second, nil), doing("b", 2*time.Second, nil), doing("c", 0, nil))
		}))
		a := s.call("w", nil)
		if a.Type != "failed" || !strings.Contains(a.Error.Message, "as many steps as the server allows") {
			t.Errorf("answer %+v %+v", a, a.Error)
		}
	})
}

// Rules W2, H7.
func TestASupersededCallEndsItsBranches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		var cause error
		var deferred []string
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Parallel(
				ctx,
				func(ctx context.Context) error {
					defer func() { deferred = append(deferred, "a") }()
					return step.Do(ctx, "a", func(ctx context.Context) error {
						<-ctx.Done()
						cause = context.Cause(ctx)
						return cause
					})
				},
				func(ctx context.Context) error {
					defer func() { deferred = append(deferred, "b") }()
					return step.Sleep(ctx, "b", time.Hour)
				},
			)
		}))
		go func() {
			time.Sleep(2 * time.Second)
			s.tell(&wire.News{Status: wire.StatusSuperseded})
		}()
		if a := s.call("w", nil); a.Type != "over" {
			t.Errorf("answer %+v", a)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "b"}, deferred); diff != "" || !errors.Is(cause, nelkap.ErrSuperseded) {
			t.Errorf("the body's context ended with %v; deferred functions (-want +got):\n%s", cause, diff)
		}
	})
}

func TestMapOfNothingAndBadLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		double := func(_ context.Context, n int) (int, error) { return 2 * n, nil }
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) ([]int, error) {
			if _, err := step.Map(ctx, []int{1}, double, step.Limit(0)); err == nil || !strings.Contains(err.Error(), "give 1 or more") {
				t.Errorf("Limit(0): %v", err)
			}
			if _, _, err := step.Race[int](ctx); err == nil || !strings.Contains(err.Error(), "at least one") {
				t.Errorf("a race of none: %v", err)
			}
			if none, err := step.Map(ctx, nil, double); err != nil || len(none) != 0 {
				t.Errorf("Map of nothing: %v, %v", none, err)
			}
			if err := step.Parallel(ctx); err != nil {
				t.Errorf("Parallel of nothing: %v", err)
			}
			return step.Map(ctx, []int{1, 2}, double) // without a step
		})
		if a := s.call("w", nil); string(a.Output) != "[2,4]" {
			t.Errorf("answer %+v", a)
		}
	})
}

// Rule H1.
func TestARaceHasTheSameWinnerOnEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		losers := 0
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) ([]any, error) {
			winner, result, err := step.Race(
				ctx,
				func(ctx context.Context) (string, error) {
					return step.Run(ctx, "slow", func(ctx context.Context) (string, error) {
						losers++
						<-ctx.Done()
						return "", context.Cause(ctx)
					})
				},
				func(ctx context.Context) (string, error) { return step.Run(ctx, "quick", after(time.Second, "quick")) },
				func(ctx context.Context) (string, error) { return "asleep", step.Sleep(ctx, "asleep", time.Hour) },
			)
			return []any{winner, result}, err
		})
		for range 3 {
			if a := s.call("w", nil); string(a.Output) != `[1,"quick"]` {
				t.Errorf("answer %+v", a)
			}
		}
		if losers != 1 {
			t.Errorf("the loser ran %d times: where the race is decided it does not start again", losers)
		}
	})
}

func TestARaceIsWonByAnErrorToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (int, error) {
			winner, _, err := step.Race(
				ctx,
				func(ctx context.Context) (int, error) { return 1, step.Sleep(ctx, "asleep", time.Hour) },
				func(ctx context.Context) (int, error) {
					return 2, doing("bad", 0, nelkap.NonRetriable(errors.New("no")))(ctx)
				},
			)
			if err == nil || err.Error() != "step bad: no" {
				t.Errorf("the race's error is %v", err)
			}
			return winner, nil
		})
		if a := s.call("w", nil); string(a.Output) != "1" {
			t.Errorf("answer %+v", a)
		}
	})
}

// H2, H3: a sleep beside a body is registered by a save, and its end reaches the playing by a heartbeat.
func TestASleepWinsARaceWhileABodyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (int, error) {
			winner, _, err := step.Race(
				ctx,
				func(ctx context.Context) (int, error) {
					return step.Run(ctx, "slow", func(ctx context.Context) (int, error) {
						<-ctx.Done() // the function returns, and aborts it
						return 0, context.Cause(ctx)
					})
				},
				func(ctx context.Context) (int, error) { return 0, step.Sleep(ctx, "nap", time.Minute) },
			)
			return winner, err
		})
		go func() {
			time.Sleep(time.Minute)
			if got := s.open(); !slices.Equal(got, []string{"nap1"}) {
				t.Errorf("open are %v", got)
			}
			s.arrives("nap", "", nil)
		}()
		began := time.Now()
		if a := s.call("w", nil); string(a.Output) != "1" || time.Since(began).Round(time.Second) != time.Minute {
			t.Errorf("answer %+v after %v", a, time.Since(began))
		}
		if diff := cmp.Diff([]string{"wait nap 1/0"}, s.savedNames()); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
	})
}

// Rule H3.
func TestASuspendedAnswerNamesAllThatTheCodeWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Parallel(
				ctx,
				func(ctx context.Context) error { return step.Sleep(ctx, "nap", time.Hour) },
				doing("busy", 0, errors.New("busy")),
				func(ctx context.Context) error { _, err := step.WaitForAny(ctx, "event", []string{"e"}); return err },
			)
		}))
		a := s.call("w", nil)
		want := []wire.Wait{
			{Wait: &wire.StepRef{Name: "nap", Number: 1}}, {Retry: &wire.StepRef{Name: "busy", Number: 1}}, {Wait: &wire.StepRef{Name: "event", Number: 1}},
		}
		if diff := cmp.Diff(want, a.Waits); diff != "" || a.Type != "suspended" {
			t.Errorf("answer %s waits (-want +got):\n%s", a.Type, diff)
		}
		if got := s.open(); !slices.Equal(got, []string{"nap1", "event1"}) {
			t.Errorf("open are %v", got)
		}
	})
}

// H7: at the end of a call the goroutines of the branches end, their deferred functions one after the other and before the parent's,
// and nothing of a branch goes on.
func TestBranchesUnwindAtTheEndOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		var deferred []string // guarded by nothing: the race detector watches
		went := false
		branch := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				defer func() {
					deferred = append(deferred, name)
					if err := step.Sleep(ctx, "in a defer", 1); !errors.Is(err, nelkap.ErrCallOver) || recover() != nil {
						t.Errorf("a step in a deferred function: %v", err)
					}
				}()
				step.Sleep(ctx, name, time.Hour)
				went = true
				return nil
			}
		}
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			defer func() { deferred = append(deferred, "the workflow") }()
			err := step.Parallel(
				ctx, branch("a"),
				func(ctx context.Context) error {
					defer func() { deferred = append(deferred, "inner") }()
					_, _, err := step.Race(ctx, func(ctx context.Context) (int, error) { return 1, branch("b")(ctx) })
					return err
				},
				branch("c"),
			)
			went = true
			return err
		}))
		if a := s.call("w", nil); a.Type != "suspended" || len(a.Waits) != 3 {
			t.Errorf("answer %+v", a)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "b", "inner", "c", "the workflow"}, deferred); diff != "" || went {
			t.Errorf("something went on: %v; deferred functions (-want +got):\n%s", went, diff)
		}
	})
}

func TestStepsNeedTheirBranchsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		var outer, late error
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			leaked := make(chan context.Context, 1)
			err := step.Parallel(ctx, func(inner context.Context) error {
				leaked <- inner
				outer = step.Do(ctx, "a", func(context.Context) error { return nil })
				return nil
			})
			late = step.Do(<-leaked, "b", func(context.Context) error { return nil })
			return err
		}))
		if a := s.call("w", nil); a.Type != "completed" || len(s.saves) > 0 {
			t.Errorf("answer %+v %+v", a, a.Error)
		}
		if outer == nil || !strings.Contains(outer.Error(), "the context that it is given") {
			t.Errorf("with the parent's context: %v", outer)
		}
		if late == nil || !strings.Contains(late.Error(), "the branch that this context belongs to has ended") {
			t.Errorf("with an ended branch's context: %v", late)
		}
	})
}

// mixed is a workflow of all kinds of steps, side by side and one after the other. path is what its code went through.
func mixed(app *nelkap.App, path *[]string) func(context.Context, nelkap.None) ([]string, error) {
	return func(ctx context.Context, _ nelkap.None) (all []string, err error) {
		*path = nil
		say := func(format string, args ...any) { *path = append(*path, fmt.Sprintf(format, args...)) }
		lens, err := step.Map(ctx, []string{"x", "yy", "zzz"}, func(ctx context.Context, item string) (int, error) {
			n, err := step.Run(ctx, "len", after(time.Duration(4-len(item))*time.Second, len(item)))
			say("len %d", n)
			if err != nil {
				return 0, err
			}
			return n, step.Sleep(ctx, "nap", time.Duration(n)*time.Minute)
		}, step.Limit(2))
		if err != nil {
			return nil, err
		}
		say("lens %v", lens)
		winner, text, err := step.Race(
			ctx,
			func(ctx context.Context) (string, error) {
				e, err := step.WaitForAny(ctx, "event", []string{"e"}, step.Timeout(time.Hour))
				return fmt.Sprint("event ", e != nil), err
			},
			func(ctx context.Context) (string, error) { return step.Run(ctx, "body", after(time.Second, "body")) },
			func(ctx context.Context) (string, error) {
				owned, err := step.Claim(ctx, "claim", "k")
				say("claimed %v", owned)
				if err != nil {
					return "", err
				}
				n, err := step.Invoke(ctx, "child", nelkap.Ref[int, int](app, "other"), 1)
				return fmt.Sprint("child ", n), err
			},
		)
		if err != nil {
			return nil, err
		}
		say("won by %d, %s", winner, text)
		failed := step.Parallel(
			ctx,
			doing("bad", time.Second, nelkap.NonRetriable(errors.New("no"))), doing("good", 2*time.Second, nil),
			func(ctx context.Context) error { return step.Sleep(ctx, "nap", time.Hour) },
		)
		say("failed by %v", failed)
		n, err := step.Run(ctx, "len", constant(4))
		say("len %d", n)
		return *path, err
	}
}

// H1: from every prefix of a history the code takes the same way, and the run has the same output.
func TestEveryPrefixOfAHistoryLeadsTheSameWay(t *testing.T) {
	var history []wire.Entry
	var want string
	for prefix := -1; prefix <= len(history); prefix++ {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nelkap.Options{})
			if prefix >= 0 {
				s.entries = slices.Clone(history[:prefix])
			}
			var path []string
			nelkap.NewWorkflow(s.app, "w", mixed(s.app, &path))
			a := s.run("w", nil, map[string]string{"child": "7"})
			if a.Type != "completed" {
				t.Fatalf("from %d entries: answer %+v %+v", prefix, a, a.Error)
			}
			if prefix < 0 {
				history, want = s.entries, string(a.Output)
				if len(history) < 11 || !strings.Contains(want, "won by 1, body") || !strings.Contains(want, "failed by step bad: no") {
					t.Errorf("the history has %d entries, and the way is %s", len(history), want)
				}
				return
			}
			if string(a.Output) != want {
				t.Errorf("from %d entries: the way is %s, want %s", prefix, a.Output, want)
			}
			synctest.Wait()
		})
	}
}
