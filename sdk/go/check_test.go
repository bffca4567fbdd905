package nelkap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// Rule S4.
func TestACheckLooksBeforeEveryAttemptButTheFirst(t *testing.T) {
	for _, c := range []struct {
		name   string
		replay bool
		check  func(n int) (string, bool, error)
		body   func(n int) (string, error)
		want   []string // what ran
		output string
	}{
		{
			"first start", false, nil, func(int) (string, error) { return "made", nil }, []string{"body"}, `"made"`,
		},
		{
			"it threw, and left a mark", false, func(int) (string, bool, error) { return "found", true, nil },
			func(int) (string, error) { return "", errors.New("after the mark") },
			[]string{"body", "check"},
			`"found"`,
		},
		{
			"it threw, and left nothing", false, func(int) (string, bool, error) { return "", false, nil },
			func(n int) (string, error) {
				if n == 1 {
					return "", errors.New("busy")
				}
				return "made", nil
			},
			[]string{"body", "check", "body"},
			`"made"`,
		},
		{
			"the check throws", false, func(n int) (string, bool, error) {
				if n == 1 {
					return "", false, errors.New("can't look")
				}
				return "found", true, nil
			}, func(int) (string, error) { panic("oh no") }, []string{"body", "check", "check"}, `"found"`,
		},
		{
			"a replay", true, func(int) (string, bool, error) { return "found", true, nil }, nil, []string{"check"}, `"found"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				if c.replay {
					s.replayOf = "run_0"
				}
				var ran []string
				checks, bodies := 0, 0
				nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (string, error) {
					return step.RunWithCheck(ctx, "a", func(ctx context.Context) (string, bool, error) {
						ran, checks = append(ran, "check"), checks+1
						if key := step.IdempotencyKey(ctx); key == "" {
							t.Error("a check has no key")
						}
						return c.check(checks)
					}, func(context.Context) (string, error) {
						ran, bodies = append(ran, "body"), bodies+1
						return c.body(bodies)
					})
				})
				if a := s.run("w", nil); string(a.Output) != c.output {
					t.Errorf("answer %+v", a)
				}
				if diff := cmp.Diff(c.want, ran); diff != "" {
					t.Errorf("ran (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// S4: after a cut the check waits until the old playing is known to have stopped. The call stays open meanwhile.
func TestACheckWaitsForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		s.checkInMs = 10_000
		s.started["a\x001"] = 0
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (int, error) {
			return step.RunWithCheck(ctx, "a", func(context.Context) (int, bool, error) { return 1, true, nil }, constant(2))
		})
		began := time.Now()
		if a := s.call("w", nil); string(a.Output) != "1" || time.Since(began).Round(time.Millisecond) != 10*time.Second {
			t.Errorf("answer %+v after %v", a, time.Since(began))
		}
	})
}

// The time of an attempt is for check and body together.
func TestTimeoutBoundsCheckAndBodyTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		s.started["a\x001"] = 0
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (int, error) {
			return step.RunWithCheck(ctx, "a", func(context.Context) (int, bool, error) {
				time.Sleep(2 * time.Second)
				return 0, false, nil
			}, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			}, step.Timeout(3*time.Second), step.Retries(0))
		})
		began := time.Now()
		if a := s.call("w", nil); a.Type != "failed" || a.Error.Name != "TimeoutError" || time.Since(began).Round(time.Millisecond) != 3*time.Second {
			t.Errorf("answer %+v %+v after %v", a, a.Error, time.Since(began))
		}
	})
}

// K1: a repeat begins with the check, and what that sent would take the place of what the body had sent.
func TestACheckSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		sends := answersSends(s)
		bodies := 0
		var refused error
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (int, error) {
			return step.RunWithCheck(ctx, "a", func(ctx context.Context) (int, bool, error) {
				_, refused = s.app.Emit(ctx, nelkap.Event{Name: "x", Payload: 1})
				return 0, false, nil
			}, func(ctx context.Context) (int, error) {
				if _, err := s.app.Emit(ctx, nelkap.Event{Name: "x", Payload: 2}); err != nil {
					return 0, err
				}
				if bodies++; bodies == 1 {
					return 0, errors.New("after it was sent")
				}
				return 1, nil
			})
		})
		if a := s.run("w", nil); string(a.Output) != "1" || refused == nil || !strings.Contains(refused.Error(), "only looks") {
			t.Errorf("answer %+v %+v, and the check's send ended with %v", a, a.Error, refused)
		}
		var places []int
		for _, one := range sends() {
			places = append(places, one.Send.Place)
		}
		if diff := cmp.Diff([]int{1, 1}, places); diff != "" {
			t.Errorf("places (-want +got):\n%s", diff)
		}
	})
}

// Rule S5.
func TestAtMostOnceDoesNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		var caught error
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			caught = step.Do(ctx, "a", func(context.Context) error {
				bodies++
				return errors.New("no")
			}, step.AtMostOnce())
			return nil
		}))
		if a := s.call("w", nil); a.Type != "completed" || bodies != 1 || caught == nil || s.saves[1].Retries != 0 || !s.saves[0].Once {
			t.Errorf("answer %+v, %d bodies, %v, saved %+v", a, bodies, caught, s.saves)
		}
		s.entries = nil // as if the first call had been cut off in the body
		if a := s.call("w", nil); a.Type != "completed" || bodies != 1 || !errors.Is(caught, nelkap.ErrStepInterrupted) {
			t.Errorf("answer %+v, %d bodies, %v", a, bodies, caught)
		}
	})
}

// S5: where the start is recorded the body runs, though the process stops: the next call would take it for cut off.
func TestAtMostOnceRunsOnceItsStartIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		bodies := 0
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Do(ctx, "a", func(context.Context) error { bodies++; return nil }, step.AtMostOnce())
		}))
		s.fault = func(r *http.Request, _ []byte) *http.Response {
			s.fault = nil
			go s.app.Shutdown(t.Context())
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		if a := s.call("w", nil); a.Type != "completed" || bodies != 1 {
			t.Errorf("answer %+v, %d bodies", a, bodies)
		}
	})
}

func TestAStepThatWasCutOffTooOftenSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		s.entries = []wire.Entry{{
			Entry: 1, Kind: "run", Name: "a", Number: 1, Status: "failed", Attempts: 1, Error: &wire.Error{Name: "StepCutOffError", Message: "cut off"},
		}}
		var caught error
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			caught = step.Do(ctx, "a", func(context.Context) error { return nil })
			return nil
		}))
		if s.call("w", nil); !errors.Is(caught, nelkap.ErrStepCutOff) {
			t.Errorf("the code got %v", caught)
		}
	})
}

// Rule S7.
func TestWasFindsAStepUnderItsOldName(t *testing.T) {
	saved := func(kind, output string) wire.Entry {
		e := wire.Entry{Entry: 1, Kind: kind, Name: "old", Number: 1, Status: "completed"}
		if output != "" {
			e.Output = json.RawMessage(output)
		}
		return e
	}
	for _, c := range []struct {
		kind, output string
		ask          func(ctx context.Context, app *nelkap.App) (any, error)
		want         string
	}{
		{"run", "1", func(ctx context.Context, _ *nelkap.App) (any, error) {
			return step.Run(ctx, "new", constant(2), step.Was("old"))
		}, "1"},
		{"sleep", "", func(ctx context.Context, _ *nelkap.App) (any, error) {
			return "slept", step.Sleep(ctx, "new", time.Hour, step.Was("old"))
		}, `"slept"`},
		{"event", "null", func(ctx context.Context, _ *nelkap.App) (any, error) {
			return step.WaitForAny(ctx, "new", []string{"e"}, step.Was("old"))
		}, "null"},
		{"invoke", "3", func(ctx context.Context, app *nelkap.App) (any, error) {
			return step.Invoke(ctx, "new", nelkap.Ref[int, int](app, "x"), 1, step.Was("old"))
		}, "3"},
		{"claim", "false", func(ctx context.Context, _ *nelkap.App) (any, error) {
			return step.Claim(ctx, "new", "k", step.Was("old"))
		}, "false"},
		{"callback", `{"url":"u","token":"t"}`, func(ctx context.Context, _ *nelkap.App) (any, error) {
			cb, err := step.NewCallback[int](ctx, "new", step.Was("old"))
			if err != nil {
				return nil, err
			}
			n, _, err := cb.Wait(ctx)
			return n, err
		}, "5"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				s.entries = []wire.Entry{saved(c.kind, c.output)}
				nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (any, error) { return c.ask(ctx, s.app) })
				if a := s.run("w", nil, map[string]string{"old": `{"payload":5}`}); string(a.Output) != c.want {
					t.Errorf("answer %+v %+v, want %s; saved %v", a, a.Error, c.want, s.savedNames())
				}
			})
		})
	}
}

// S4, S5, S7: the deploy that renames a step is what cuts it off.
func TestWasFindsAStepThatWasCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		s.started["old"+"\x001"], s.started["looked for"+"\x001"] = 0, 0
		var interrupted error
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (int, error) {
			_, interrupted = step.Run(ctx, "new", constant(2), step.AtMostOnce(), step.Was("old"))
			look := func(context.Context) (int, bool, error) { return 1, true, nil }
			return step.RunWithCheck(ctx, "checked", look, constant(2), step.Was("looked for"))
		})
		if a := s.call("w", nil); string(a.Output) != "1" || !errors.Is(interrupted, nelkap.ErrStepInterrupted) {
			t.Errorf("answer %+v, and the step at most once ended with %v", a, interrupted)
		}
	})
}

// S7: a new run goes by the new name, and steps that kept the old one come after the renamed.
func TestWasLeavesOtherStepsAlone(t *testing.T) {
	code := func(ctx context.Context, _ nelkap.None) ([]int, error) {
		a, err := step.Run(ctx, "new", constant(1), step.Was("old"))
		if err != nil {
			return nil, err
		}
		b, err := step.Run(ctx, "old", constant(2))
		return []int{a, b}, err
	}
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", code)
		s.call("w", nil)
		if diff := cmp.Diff([]string{"completed new 1/1", "completed old 1/1"}, s.savedNames()); diff != "" {
			t.Errorf("a new run saved (-want +got):\n%s", diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		for i := range int64(2) {
			s.entries = append(s.entries, wire.Entry{
				Entry: i + 1, Kind: "run", Name: "old", Number: int(i + 1), Status: "completed", Output: fmt.Append(nil, 10*(i+1)),
			})
		}
		nelkap.NewWorkflow(s.app, "w", code)
		if a := s.call("w", nil); string(a.Output) != "[10,20]" {
			t.Errorf("an old run's answer %+v", a)
		}
	})
}

// S7: also where a step before it kept the name, the renamed one has nothing of that.
func TestWasIsNotAStepThatKeptTheName(t *testing.T) {
	for _, c := range []struct {
		title string
		saved int
		want  string
		names []string
	}{
		{"a new run", 0, "[1,2]", []string{"completed old 1/1", "completed new 1/1"}},
		{"one that had begun", 1, "[10,2]", []string{"completed new 1/1"}},
		{"an old one", 2, "[10,20]", nil},
	} {
		t.Run(c.title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				for i := range c.saved {
					s.entries = append(s.entries, wire.Entry{
						Entry: int64(i + 1), Kind: "run", Name: "old", Number: i + 1, Status: "completed", Output: fmt.Append(nil, 10*(i+1)),
					})
				}
				nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) ([]int, error) {
					a, err := step.Run(ctx, "old", constant(1))
					if err != nil {
						return nil, err
					}
					b, err := step.Run(ctx, "new", constant(2), step.Was("old"))
					return []int{a, b}, err
				})
				if a := s.call("w", nil); string(a.Output) != c.want {
					t.Errorf("answer %+v", a)
				}
				if diff := cmp.Diff(c.names, s.savedNames()); diff != "" {
					t.Errorf("saved (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Rule S7.
func TestAStepOfAnotherKindStopsTheRunAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			return step.Sleep(ctx, "a", time.Hour)
		}))
		s.entries = []wire.Entry{{Entry: 1, Kind: "run", Name: "a", Number: 1, Status: "completed"}}
		a := s.call("w", nil)
		want := "step a was saved as a step with a body, and the code asks for a sleep under that name: give the new step a name of its own"
		if a.Type != "failed" || a.Error.Name != "StepKindError" || a.Error.Message != want || a.Retriable {
			t.Errorf("answer %+v %+v", a, a.Error)
		}
	})
}
