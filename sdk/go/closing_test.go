package nelkap_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nelkap "github.com/nelkap/nelkap/sdk/go"
	"github.com/nelkap/nelkap/sdk/go/internal/wire"
	"github.com/nelkap/nelkap/sdk/go/step"
)

// close begins the closing of the run.
func (s *fakeServer) close(reason string, failure *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = &wire.Closing{Reason: reason, Error: failure, Entries: int64(len(s.entries))}
}

// booking books, says how to give back, and fails.
func booking(heard *[]string, more ...nelkap.WorkflowOption) func(app *nelkap.App) {
	return func(app *nelkap.App) {
		nelkap.NewWorkflow(app, "booking", func(ctx context.Context, order string) (string, error) {
			for _, what := range []string{"flight", "hotel"} {
				if err := step.Do(ctx, "book "+what, func(context.Context) error { *heard = append(*heard, "book "+what); return nil }); err != nil {
					return "", err
				}
				if err := step.Undo(ctx, "give back "+what, func(ctx context.Context) error {
					*heard = append(*heard, fmt.Sprintf("give back %s of %s, attempt %d", what, order, step.Attempt(ctx)))
					return nil
				}); err != nil {
					return "", err
				}
			}
			return step.Run(ctx, "pay", func(context.Context) (string, error) {
				*heard = append(*heard, "pay")
				return "", nelkap.NonRetriable(errors.New("no funds"))
			})
		}, more...)
	}
}

func TestWhatAFailedRunDidIsUndoneInReverse(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	var heard []string
	booking(&heard)(s.app)
	if a := s.run("booking", "o_1"); a.Type != "failed" || a.Error.Message != "no funds" {
		t.Fatalf("the run ended as %+v", a)
	}
	s.close("failed", &wire.Error{Name: "Error", Message: "no funds"})
	if a := s.call("booking", "o_1"); a.Type != "completed" || a.Output != nil || a.Unasked != nil {
		t.Fatalf("the closing ended as %+v", a)
	}
	want := []string{"book flight", "book hotel", "pay", "give back hotel of o_1, attempt 1", "give back flight of o_1, attempt 1"}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
	heard = nil
	if a := s.call("booking", "o_1"); a.Type != "completed" || heard != nil {
		t.Errorf("a closing that is done does %v and answers %+v", heard, a)
	}
}

func TestUndoesHaveTheirOwnIdempotencyKeys(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	keys := map[string]string{}
	nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		_, err := step.Map(ctx, []string{"a", "b"}, func(ctx context.Context, item string) (nelkap.None, error) {
			return nelkap.None{}, step.Undo(ctx, "undo", func(ctx context.Context) error {
				keys[item] = step.IdempotencyKey(ctx)
				return nil
			})
		})
		if err != nil {
			return nelkap.None{}, err
		}
		return nelkap.None{}, step.Do(ctx, "undo", func(ctx context.Context) error {
			keys["step"] = step.IdempotencyKey(ctx)
			return nelkap.NonRetriable(errors.New("no"))
		})
	})
	s.run("w", nil)
	s.close("failed", &wire.Error{Name: "Error", Message: "no"})
	if a := s.call("w", nil); a.Type != "completed" {
		t.Fatalf("the closing ended as %+v", a)
	}
	want := []string{
		"undo undo 1/0", "undo undo 3/0", "failed undo 5/1", "completed undo 4/1", "completed undo 2/1",
	}
	if diff := cmp.Diff(want, s.savedNames()); diff != "" {
		t.Errorf("saves (-want +got):\n%s", diff)
	}
	if len(keys) != 3 || keys["a"] == keys["b"] || keys["a"] == keys["step"] || keys["b"] == keys["step"] {
		t.Errorf("the idempotency keys are %v", keys)
	}
}

// Z1: what the code asks for in a closing starts nothing, be it a step, a wait, a claim or a send.
func TestTheFunctionOfAClosingStartsNothing(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	var undone, deferred bool
	other := nelkap.NewWorkflow(s.app, "other", func(context.Context, string) (string, error) { return "", nil })
	nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, order string) (string, error) {
		defer func() { deferred = true }()
		if err := step.Undo(ctx, "undo", func(context.Context) error { undone = true; return nil }); err != nil {
			return "", err
		}
		if _, err := nelkap.Run(ctx, other, order); err != nil {
			return "", err
		}
		if _, err := s.app.Emit(ctx, nelkap.Event{Name: "e"}); err != nil {
			return "", err
		}
		if _, err := s.app.Cancel(ctx, "run_2"); err != nil {
			return "", err
		}
		err := step.Parallel(ctx,
			func(ctx context.Context) error { _, err := step.Claim(ctx, "claim", "k"); return err },
			func(ctx context.Context) error { return step.Sleep(ctx, "nap", 1) },
			func(ctx context.Context) error {
				return step.Do(ctx, "body", func(context.Context) error { panic("started") })
			},
			func(ctx context.Context) error {
				return step.Undo(ctx, "late", func(context.Context) error { panic("started") })
			},
		)
		return "", err
	}, nelkap.Once(func(order string) string { return order }))
	s.entries = []wire.Entry{{Entry: 1, Kind: "undo", Name: "undo", Number: 1, Status: "completed"}}
	s.close("cancelled", nil)
	a := s.call("w", "o_1")
	if err := s.app.Shutdown(t.Context()); err != nil || a.Type != "completed" || !undone || !deferred {
		t.Fatalf("undone %v, deferred %v, answered %+v", undone, deferred, a)
	}
	if diff := cmp.Diff([]string{"completed undo 2/1"}, s.savedNames()); diff != "" {
		t.Errorf("saves (-want +got):\n%s", diff)
	}
	for _, r := range s.requests {
		if r.path != "/v1/saves" {
			t.Errorf("the code sent %s %s", r.method, r.path)
		}
	}
}

func TestAHandlerIsToldWhatFailedAndWhatWasSaved(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	var heard []string
	var got nelkap.Failure[string]
	order := []string{}
	booking(&heard, nelkap.OnFailure(func(ctx context.Context, f nelkap.Failure[string]) error {
		got = f
		order = append(order, heard...)
		_, err := step.Map(ctx, []string{"a", "b"}, func(ctx context.Context, who string) (string, error) {
			return step.Run(ctx, "tell", func(context.Context) (string, error) { return who, nil })
		})
		return err
	}))(s.app)
	s.run("booking", "o_1")
	s.close("failed", &wire.Error{Name: "FundsError", Message: "no funds", Stack: "at pay", Cause: &wire.Error{Name: "TimeoutError", Message: "slow"}})
	if a := s.call("booking", "o_1"); a.Type != "completed" || a.Output != nil {
		t.Fatalf("the closing ended as %+v", a)
	}
	var failed *nelkap.RunError
	if !errors.As(got.Err, &failed) || failed.Name != "FundsError" || failed.Stack != "at pay" || !errors.Is(got.Err, nelkap.ErrTimeout) {
		t.Errorf("the error is %#v", got.Err)
	}
	if got.Payload != "o_1" || got.Run.ID != "run_1" || got.Run.Status != nelkap.StatusFailed || string(got.Run.Payload) != `"o_1"` || got.Run.Error != failed {
		t.Errorf("the run is %+v", got.Run)
	}
	var steps []string
	for _, each := range got.Steps {
		steps = append(steps, fmt.Sprintln(each.Name, each.Number, each.Kind, each.Status, each.Err))
	}
	want := []string{
		"book flight 1 run completed <nil>\n", "give back flight 1 undo completed <nil>\n", "book hotel 1 run completed <nil>\n",
		"give back hotel 1 undo completed <nil>\n", "pay 1 run failed step pay: no funds\n",
	}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if len(order) != 5 {
		t.Errorf("before the handler there was %v, want both undone", order)
	}
	names := s.savedNames()
	if want := []string{"completed onFailure: tell 1/1", "completed onFailure: tell 2/1"}; !slices.Contains(names, want[0]) || !slices.Contains(names, want[1]) {
		t.Errorf("saves %v, want %v among them", names, want)
	}
}

// H7: deferred functions of the function and the handler never run at once.
func TestTheFunctionHasEndedWhenTheHandlerStarts(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	var said []string // the race detector sees that nobody writes to it beside another
	nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		defer func() {
			err := step.Do(ctx, "late", func(context.Context) error { return nil })
			said = append(said, fmt.Sprint("function over: ", nelkap.CallOver(ctx), " ", errors.Is(err, nelkap.ErrCallOver)))
		}()
		err := step.Undo(ctx, "undo", func(context.Context) error { said = append(said, "undone"); return nil })
		if err != nil {
			return nelkap.None{}, err
		}
		return nelkap.None{}, step.Parallel(ctx, func(ctx context.Context) error {
			defer func() { said = append(said, "branch") }()
			return step.Sleep(ctx, "nap", time.Hour)
		})
	}, nelkap.OnCancel(func(ctx context.Context, _ nelkap.Cancellation[nelkap.None]) error {
		said = append(said, fmt.Sprint("handler over: ", nelkap.CallOver(ctx), " ", ctx.Err()))
		return nil
	}))
	s.entries = []wire.Entry{{Entry: 1, Kind: "undo", Name: "undo", Number: 1, Status: "completed"}}
	s.close("cancelled", nil)
	if a := s.call("w", nil); a.Type != "completed" {
		t.Fatalf("the closing ended as %+v", a)
	}
	if diff := cmp.Diff([]string{"undone", "branch", "function over: true true", "handler over: false <nil>"}, said); diff != "" {
		t.Errorf("what happened (-want +got):\n%s", diff)
	}
}

func TestHandlersRefuseUndoAndRestart(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	var undo, restart, nested error
	nelkap.NewWorkflow(s.app, "w", func(context.Context, nelkap.None) (nelkap.None, error) { return nelkap.None{}, nil },
		nelkap.OnCancel(func(ctx context.Context, c nelkap.Cancellation[nelkap.None]) error {
			undo = step.Undo(ctx, "u", func(context.Context) error { return nil })
			restart = step.Restart(ctx, nelkap.None{})
			return step.Parallel(ctx, func(ctx context.Context) error { nested = step.Restart(ctx, 1); return nil })
		}))
	s.close("cancelled", nil)
	if a := s.call("w", nil); a.Type != "completed" {
		t.Fatalf("the closing ended as %+v", a)
	}
	for _, err := range []error{undo, restart, nested} {
		if err == nil || !strings.Contains(err.Error(), "OnFailure and OnCancel") {
			t.Errorf("refused with %v", err)
		}
	}
}

func TestAHandlerThatThrowsIsTriedAgain(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	nelkap.NewWorkflow(s.app, "w", func(context.Context, nelkap.None) (nelkap.None, error) { return nelkap.None{}, nil },
		nelkap.Retries(2), nelkap.OnFailure(func(context.Context, nelkap.Failure[nelkap.None]) error { panic("no") }))
	s.close("timedOut", &wire.Error{Name: "TimeoutError", Message: "the run did not end within its timeout"})
	if a := s.call("w", nil); a.Type != "failed" || !a.Retriable || a.Retries != 2 || a.Error.Name != "panic" {
		t.Errorf("the closing ended as %+v", a)
	}
}

func TestAHandlerOfAnotherPayloadIsRefusedWhenItIsDeclared(t *testing.T) {
	app := nelkap.New(nelkap.Options{App: "shop"})
	for _, option := range []nelkap.WorkflowOption{
		nelkap.OnFailure(func(context.Context, nelkap.Failure[int]) error { return nil }),
		nelkap.OnCancel(func(context.Context, nelkap.Cancellation[int]) error { return nil }),
		nelkap.OnFailure[string](nil),
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "[string]) error, of the workflow's payload") {
					t.Errorf("it panicked with %s", text)
				}
			}()
			nelkap.NewWorkflow(app, "w", func(context.Context, string) (string, error) { return "", nil }, option)
		}()
	}
}

func TestTheManifestHasTheHandlers(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	nelkap.NewWorkflow(s.app, "w", func(context.Context, string) (string, error) { return "", nil },
		nelkap.OnFailure(func(context.Context, nelkap.Failure[string]) error { return nil }),
		nelkap.OnCancel(func(context.Context, nelkap.Cancellation[string]) error { return nil }))
	w := ask(s.app, signed(t.Context(), []byte(`{"type":"describe"}`))).Body.String()
	if !strings.Contains(w, `{"name":"w","onFailure":true,"onCancel":true}`) {
		t.Errorf("the manifest is %s", w)
	}
}

// Z2, H7: no wrapper can take a restart for an end of the function, and it takes every branch with it.
func TestARestartEndsTheCallFromWhereverItIsAsked(t *testing.T) {
	type function = func(ctx context.Context, page int) (string, error)
	for name, asks := range map[string]function{
		"returned": func(ctx context.Context, page int) (string, error) { return "", step.Restart(ctx, page+1) },
		"ignored":  func(ctx context.Context, page int) (string, error) { step.Restart(ctx, page+1); return "went on", nil },
		"recovered": func(ctx context.Context, page int) (result string, err error) {
			defer func() { recover(); result = "went on" }()
			panic(step.Restart(ctx, page+1))
		},
		"in a branch": func(ctx context.Context, page int) (string, error) {
			err := step.Parallel(ctx,
				func(ctx context.Context) error { return step.Sleep(ctx, "nap", 1) },
				func(ctx context.Context) error { return step.Restart(ctx, page+1) },
			)
			return "went on", err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nelkap.Options{App: "shop"})
			over := false
			nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, page int) (string, error) {
				defer func() { over = nelkap.CallOver(ctx) }()
				if page == 2 {
					return "done", nil
				}
				return asks(ctx, page)
			})
			if a := s.call("w", 1); a.Type != "restarted" || string(a.Payload) != "2" {
				t.Fatalf("answered %+v", a)
			}
			if s.app.Shutdown(t.Context()); !over {
				t.Error("a deferred function could not tell")
			}
		})
	}
}

func TestARestartIsRefusedWithASentence(t *testing.T) {
	s := newServer(t, nelkap.Options{App: "shop"})
	refused := map[string]error{}
	nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
		refused["call step.Restart in the workflow"] = step.Do(ctx, "a", func(ctx context.Context) error { return step.Restart(ctx, 1) })
		refused["which JSON can't hold"] = step.Restart(ctx, make(chan int))
		refused["at most 4194304 can be saved"] = step.Restart(ctx, strings.Repeat("x", 5<<20))
		return nelkap.None{}, nil
	})
	refused["not in a run"] = step.Restart(t.Context(), 1)
	if a := s.call("w", nil); a.Type != "completed" {
		t.Fatalf("answered %+v", a)
	}
	for want, err := range refused {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refused with %v, want %s", err, want)
		}
	}
}

// H6: bodies that still run are losers.
func TestARestartAbortsWhatStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{App: "shop"})
		var ended error
		nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (nelkap.None, error) {
			_, _, err := step.Race(ctx,
				func(ctx context.Context) (int, error) {
					return step.Run(ctx, "slow", func(ctx context.Context) (int, error) {
						<-ctx.Done()
						ended = context.Cause(ctx)
						return 0, ended
					})
				},
				func(ctx context.Context) (int, error) {
					return step.Run(ctx, "quick", func(context.Context) (int, error) { return 1, nil })
				},
			)
			if err != nil {
				return nelkap.None{}, err
			}
			return nelkap.None{}, step.Restart(ctx, nelkap.None{})
		})
		if a := s.call("w", nil); a.Type != "restarted" || a.Payload != nil || !errors.Is(ended, nelkap.ErrCallOver) {
			t.Errorf("answered %+v; the loser ended with %v", a, ended)
		}
	})
}
