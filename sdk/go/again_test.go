package nelkap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// The time limit leaves a fifth of itself for what is still to be saved: with 10 s no body starts after 8 s. A function whose last
// step ends then has nothing more to start, and its end is its end.
func TestAFunctionThatEndsAtTheTimeLimitCompletes(t *testing.T) {
	for _, beside := range []time.Duration{-10 * time.Millisecond, 0, 10 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nelkap.Options{MaxDuration: 10 * time.Second})
			nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (string, error) {
				err := step.Do(ctx, "last", func(context.Context) error { time.Sleep(8*time.Second + beside); return nil })
				return "the end", err
			})
			if a := s.call("w", nil); a.Type != "completed" || string(a.Output) != `"the end"` {
				t.Errorf("%v beside the limit: answer %+v", beside, a)
			}
		})
	}
}

func TestAWorkflowMayReturnAnythingThatJSONHolds(t *testing.T) {
	for _, value := range []string{`{}`, `[]`, `null`, `false`, `0`, `""`, `"` + strings.Repeat("x", 1<<20) + `"`} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			s := newServer(t, nelkap.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (json.RawMessage, error) {
				return step.Run(ctx, "a", constant(json.RawMessage(value)))
			})
			for _, pass := range []string{"first", "second"} { // the second finds the step saved
				if a := s.call("w", nil); a.Type != "completed" || string(a.Output) != value {
					t.Errorf("%s pass of %.20s: answer %.200s", pass, value, fmt.Sprintf("%+v", a))
				}
			}
			if log.Len() > 0 {
				t.Errorf("%.20s is logged: %s", value, log.String())
			}
		})
	}
}

// A step after a failure cleans up once, in whichever call, and the run fails with what was thrown first.
func TestAStepAfterAFailureCleansUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		released := 0
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			err := step.Do(ctx, "charge", func(context.Context) error { return nelkap.NonRetriable(fmt.Errorf("no money")) })
			if err == nil {
				return nil
			}
			if undone := step.Do(ctx, "release", func(context.Context) error { released++; return nil }); undone != nil {
				return undone
			}
			return err
		}))
		for length := range 3 { // nothing is saved, the failure is, both are
			s.entries = s.entries[:min(length, len(s.entries))]
			if a := s.call("w", nil); a.Type != "failed" || a.Retriable || a.Error.Message != "no money" {
				t.Errorf("after %d entries: answer %+v %+v", length, a, a.Error)
			}
		}
		if released != 2 {
			t.Errorf("released %d times, want once in each call that did not find it saved", released)
		}
	})
}

// S7: a new version that puts a step before a saved one runs the new step alone.
func TestAStepThatANewVersionPutsFirstRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		s.entries = []wire.Entry{{Entry: 1, Kind: "run", Name: "a", Number: 1, Status: "completed", Output: json.RawMessage(`"old"`)}}
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) ([]string, error) {
			x, err := step.Run(ctx, "x", constant("x"))
			if err != nil {
				return nil, err
			}
			a, err := step.Run(ctx, "a", constant("new"))
			return []string{x, a}, err
		})
		if a := s.call("w", nil); string(a.Output) != `["x","old"]` {
			t.Errorf("answer %+v", a)
		}
		if diff := cmp.Diff([]string{"completed x 1/1"}, s.savedNames()); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
	})
}

func TestCausesAreKept(t *testing.T) {
	deep := fmt.Errorf("three: %w", fmt.Errorf("two: %w", errors.New("one")))
	for _, c := range []struct {
		thrown error
		want   []string // the messages, from the outside in
	}{
		{deep, []string{"three: two: one", "two: one", "one"}},
		{errors.Join(errors.New("first"), errors.New("second")), []string{"first\nsecond", "first"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nelkap.Options{})
			nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(context.Context, nelkap.None) error { return c.thrown }))
			a := s.call("w", nil)
			var got []string
			for e := a.Error; e != nil; e = e.Cause {
				got = append(got, e.Message)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A RunError of the user's own making is saved like any other.
func TestFieldsThatJSONCanNotHoldAreLeftOut(t *testing.T) {
	for fields, want := range map[string]string{
		`{"code":"E1"}`: `{"code":"E1"}`, "": "", "E1": "", `{"code":`: "", "{\"code\":\"\xff\"}": "",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nelkap.Options{})
			nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
				return step.Do(ctx, "a", func(context.Context) error {
					return &nelkap.RunError{Name: "Refused", Message: "no", Fields: json.RawMessage(fields)}
				}, step.Retries(0))
			}))
			if a := s.call("w", nil); a.Type != "failed" || string(a.Error.Fields) != want {
				t.Errorf("with %q the answer is %s, %+v", fields, a.Type, a.Error)
			}
		})
	}
}

// rounds unwraps to itself, once or twice.
type rounds struct{ twice bool }

func (e *rounds) Error() string { return "round" }

func (e *rounds) Unwrap() []error {
	if e.twice {
		return []error{e, e}
	}
	return []error{e}
}

// round unwraps to itself, as a pointer that was set to the wrong error does.
type round struct{}

func (e *round) Error() string { return "round" }
func (e *round) Unwrap() error { return e }

func TestErrorsThatUnwrapToThemselvesEnd(t *testing.T) {
	itself := &nelkap.RunError{Name: "Error", Message: "round"}
	itself.Cause = itself
	for name, c := range map[string]struct {
		thrown    error
		retriable bool
	}{
		"one":                     {&round{}, true},
		"a list":                  {&rounds{}, true},
		"a tree":                  {&rounds{twice: true}, true},
		"a saved one":             {itself, true},
		"non retriable":           {nelkap.NonRetriable(&round{}), false},
		"non retriable beside it": {errors.Join(&round{}, nelkap.NonRetriable(errors.New("no"))), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				nelkap.NewWorkflow(s.app, "body", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
					return step.Do(ctx, "a", func(context.Context) error { return c.thrown })
				}))
				nelkap.NewWorkflow(s.app, "branch", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
					return step.Parallel(ctx, func(context.Context) error { return c.thrown })
				}))
				if a := s.call("branch", nil); a.Type != "failed" || a.Retriable != c.retriable || !strings.HasPrefix(a.Error.Message, "round") {
					t.Errorf("answer %+v, %+v", a, a.Error)
				}
				s.call("body", nil)
				if len(s.saves) != 1 || s.saves[0].Retriable != c.retriable || !strings.HasPrefix(s.saves[0].Error.Message, "round") {
					t.Errorf("saved %+v", s.saves)
				}
				causes := 0
				for e := s.saves[0].Error.Cause; e != nil; e = e.Cause {
					causes++
				}
				if causes > 8 {
					t.Errorf("%d causes were saved", causes)
				}
			})
		})
	}
}

// Errors that join many are looked through to the last.
func TestMarksOfJoinedErrorsAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(context.Context, nelkap.None) error {
			var all []error
			for i := range 1000 {
				all = append(all, fmt.Errorf("item %d: %w", i, errors.New("no")))
			}
			return errors.Join(append(all, nelkap.NonRetriable(errors.New("bad")))...)
		}))
		if a := s.call("w", nil); a.Type != "failed" || a.Retriable {
			t.Errorf("answer %+v", a)
		}
	})
}

type readingPanics struct{}

func (*readingPanics) UnmarshalJSON([]byte) error { panic("no") }

func TestAPayloadWhoseReadingPanicsFailsTheRun(t *testing.T) {
	for _, opts := range [][]nelkap.WorkflowOption{nil, {nelkap.Once(func(readingPanics) string { return "o_1" })}} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nelkap.Options{})
			nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(context.Context, readingPanics) error { return nil }), opts...)
			if a := s.call("w", "x"); a.Type != "failed" || !a.Retriable || a.Error.Name != "panic" || a.Error.Message != "no" {
				t.Errorf("answer %s, %+v", a.Type, a.Error)
			}
		})
	}
}

func TestAStepWithoutAFunctionIsRefused(t *testing.T) {
	s := newServer(t, nelkap.Options{})
	refused := map[string]error{}
	nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
		refused["Do"] = step.Do(ctx, "a", nil)
		_, refused["Run"] = step.Run[int](ctx, "b", nil)
		_, refused["RunWithCheck"] = step.RunWithCheck(ctx, "c", nil, constant(1))
		refused["Undo"] = step.Undo(ctx, "d", nil)
		return nil
	}))
	if a := s.call("w", nil); a.Type != "completed" || len(s.saves) > 0 {
		t.Errorf("answer %s, saves %+v", a.Type, s.saves)
	}
	for name, err := range refused {
		if err == nil || !strings.Contains(err.Error(), "needs a function") {
			t.Errorf("%s gives %v", name, err)
		}
	}
}
