package nelkap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// registered are the items of an answer as JSON texts, without what all have.
func registered(t *testing.T, items []savedItem) (texts []string) {
	t.Helper()
	for _, item := range items {
		text := fmt.Sprintf("%s %s %d", item.Kind, item.Name, item.Number)
		add := func(name string, value any) { text += fmt.Sprintf(" %s=%v", name, value) }
		for _, n := range []struct {
			name string
			ms   *int64
		}{{"delayMs", item.DelayMs}, {"timeoutMs", item.TimeoutMs}, {"forMs", item.ForMs}} {
			if n.ms != nil {
				add(n.name, *n.ms)
			}
		}
		for _, s := range []struct{ name, value string }{
			{"until", item.Until},
			{"match", string(item.Match)},
			{"if", item.If},
			{"since", item.Since},
			{"workflow", item.Workflow},
			{"app", item.App},
			{"payload", string(item.Payload)},
			{"key", item.Key},
		} {
			if s.value != "" {
				add(s.name, s.value)
			}
		}
		if len(item.Events) > 0 {
			add("events", item.Events)
		}
		texts = append(texts, text)
	}
	return texts
}

type approval struct{ By string }

// Rules H3, E2, E3.
func TestWaitsAreRegisteredAsTheCodeAsksForThem(t *testing.T) {
	until := time.Date(2027, 1, 1, 0, 0, 0, 1, time.FixedZone("", 3600))
	for _, c := range []struct {
		name string
		ask  func(ctx context.Context, app *nelkap.App) error
		want string
	}{
		{"sleep", func(ctx context.Context, _ *nelkap.App) error { return step.Sleep(ctx, "s", 1500*time.Microsecond) }, "sleep s 1 delayMs=2"},
		{"sleep of nothing", func(ctx context.Context, _ *nelkap.App) error { return step.Sleep(ctx, "s", 0) }, "sleep s 1 delayMs=0"},
		{"sleep until", func(ctx context.Context, _ *nelkap.App) error { return step.SleepUntil(ctx, "s", until) }, "sleep s 1 until=2026-12-31T23:00:00.001Z"},
		{"event", func(ctx context.Context, _ *nelkap.App) error {
			_, _, err := step.WaitForEvent[approval](ctx, "e", "order.approved", step.Match("payload.id", "o_1"), step.Match("payload.n", 2),
				step.If("payload.by != ''"), step.SinceWait(), step.Timeout(time.Hour))
			return err
		}, `event e 1 timeoutMs=3600000 match={"payload.id":"o_1","payload.n":2} if=payload.by != '' since=wait events=[order.approved]`},
		{"events", func(ctx context.Context, _ *nelkap.App) error {
			_, err := step.WaitForAny(ctx, "e", []string{"yes", "no"})
			return err
		}, "event e 1 events=[yes no]"},
		{"child", func(ctx context.Context, app *nelkap.App) error {
			_, err := step.Invoke(ctx, "c", nelkap.Ref[order, int](app, "other"), order{ID: "o_1"}, step.Timeout(time.Minute))
			return err
		}, `invoke c 1 timeoutMs=60000 workflow=other payload={"id":"o_1","total":0}`},
		{"child in another app", func(ctx context.Context, app *nelkap.App) error {
			_, err := step.Invoke(ctx, "c", nelkap.Ref[nelkap.None, int](app, "other", nelkap.InApp("billing")), nelkap.None{})
			return err
		}, "invoke c 1 workflow=other app=billing"},
		{"child of another app in this process", func(ctx context.Context, _ *nelkap.App) error {
			other := nelkap.New(nelkap.Options{App: "mail"})
			_, err := step.Invoke(ctx, "c", nelkap.Ref[int, int](other, "other"), 1)
			return err
		}, "invoke c 1 workflow=other app=mail payload=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{App: "shop"})
				nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error { return c.ask(ctx, s.app) }))
				a := s.call("w", nil)
				if got := registered(t, a.Register); a.Type != "suspended" || !slices.Equal(got, []string{c.want}) {
					t.Errorf("answer %+v\nregisters %q\nwant      %q", a, got, c.want)
				}
				if len(a.Waits) != 1 || a.Waits[0].Wait == nil {
					t.Errorf("it waits for %+v", a.Waits)
				}
				// Open, it is not registered again.
				if again := s.call("w", nil); again.Type != "suspended" || len(again.Register) > 0 || len(again.Waits) != 1 {
					t.Errorf("second answer %+v", again)
				}
			})
		})
	}
}

func TestWaitsGiveWhatCame(t *testing.T) {
	event := `{"id":"evt_1","event":"yes","payload":{"By":"me"},"createdAt":"2026-01-01T00:00:00.000Z"}`
	for _, c := range []struct {
		name, came string
		want       any
		ask        func(ctx context.Context, app *nelkap.App) (any, error)
	}{
		{"event", event, []any{"me", true}, func(ctx context.Context, _ *nelkap.App) (any, error) {
			payload, ok, err := step.WaitForEvent[approval](ctx, "x", "yes")
			return []any{payload.By, ok}, err
		}},
		{"event without payload", `{"id":"evt_1","event":"yes"}`, []any{"", true}, func(ctx context.Context, _ *nelkap.App) (any, error) {
			payload, ok, err := step.WaitForEvent[approval](ctx, "x", "yes")
			return []any{payload.By, ok}, err
		}},
		{"no event", "null", []any{"", false}, func(ctx context.Context, _ *nelkap.App) (any, error) {
			payload, ok, err := step.WaitForEvent[approval](ctx, "x", "yes", step.Timeout(time.Hour))
			return []any{payload.By, ok}, err
		}},
		{"one of several", event, "yes evt_1 me", func(ctx context.Context, _ *nelkap.App) (any, error) {
			e, err := step.WaitForAny(ctx, "x", []string{"yes", "no"})
			if err != nil {
				return nil, err
			}
			var payload approval
			err = e.Decode(&payload)
			return e.Name + " " + e.ID + " " + payload.By, err
		}},
		{"none of several", "null", true, func(ctx context.Context, _ *nelkap.App) (any, error) {
			e, err := step.WaitForAny(ctx, "x", []string{"yes", "no"})
			return e == nil, err
		}},
		{"child", "7", 7, func(ctx context.Context, app *nelkap.App) (any, error) {
			return step.Invoke(ctx, "x", nelkap.Ref[int, int](app, "other"), 1)
		}},
		{"callback", `{"payload":{"By":"you"}}`, []any{"tok", "you", true}, func(ctx context.Context, _ *nelkap.App) (any, error) {
			cb, err := step.NewCallback[approval](ctx, "x", step.Timeout(time.Hour))
			if err != nil {
				return nil, err
			}
			payload, ok, err := cb.Wait(ctx)
			return []any{cb.Token, payload.By, ok}, err
		}},
		{"callback that nobody used", "null", []any{"http://server.test/callbacks/tok", false}, func(ctx context.Context, _ *nelkap.App) (any, error) {
			cb, err := step.NewCallback[int](ctx, "x")
			if err != nil {
				return nil, err
			}
			_, ok, err := cb.Wait(ctx)
			return []any{cb.URL, ok}, err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (any, error) { return c.ask(ctx, s.app) })
				want, _ := json.Marshal(c.want)
				if a := s.run("w", nil, map[string]string{"x": c.came}); string(a.Output) != string(want) {
					t.Errorf("answer %+v %s %+v, want %s", a, a.Output, a.Error, want)
				}
			})
		})
	}
}

func TestACallbacksWaitIsTheNextOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			for range 2 {
				cb, err := step.NewCallback[int](ctx, "approval")
				if err != nil {
					return err
				}
				if _, _, err := cb.Wait(ctx); err != nil {
					return err
				}
			}
			return nil
		}))
		s.run("w", nil)
		if diff := cmp.Diff([]string{"callback approval 1/0", "wait approval 2/0", "callback approval 3/0", "wait approval 4/0"}, s.savedNames()); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
		if s.saves[1].Of != 1 || s.saves[3].Of != 3 {
			t.Errorf("waits for %d and %d", s.saves[1].Of, s.saves[3].Of)
		}
	})
}

func TestAChildsFailureReachesItsParent(t *testing.T) {
	for name, want := range map[string]error{
		"TypeError": nil, "RunSkippedError": nelkap.ErrSkipped, "RunCancelledError": nelkap.ErrCancelled, "TimeoutError": nelkap.ErrTimeout,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				var caught error
				nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
					_, caught = step.Invoke(ctx, "child", nelkap.Ref[int, int](s.app, "other"), 1)
					return caught
				}))
				s.call("w", nil)
				s.arrives("child", "", &wire.Error{Name: name, Message: "no", Stack: "at x", Cause: &wire.Error{Name: "Error", Message: "deep"}})
				if a := s.call("w", nil); a.Type != "failed" || a.Retriable || a.Error.Name != name {
					t.Errorf("S2: answer %+v %+v", a, a.Error)
				}
				failed, ok := errors.AsType[*nelkap.StepError](caught)
				if !ok || failed.Step != "child" || failed.Err.Name != name || failed.Err.Stack != "at x" || failed.Err.Cause.Message != "deep" {
					t.Errorf("the code got %#v", caught)
				}
				if want != nil && !errors.Is(caught, want) {
					t.Errorf("the code got %v, which is not %v", caught, want)
				}
			})
		})
	}
}

// Rules K4, W8.
func TestAClaimIsAnsweredAtOnce(t *testing.T) {
	for _, owned := range []bool{false, true} {
		t.Run(fmt.Sprint(owned), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				s.owned = owned
				nelkap.NewWorkflow(s.app, "w", func(ctx context.Context, _ nelkap.None) (bool, error) {
					return step.Claim(ctx, "one", "k1", step.UntilFailed(), step.For(time.Minute))
				})
				for range 2 {
					if a := s.call("w", nil); a.Type != "completed" || string(a.Output) != fmt.Sprint(!owned) {
						t.Errorf("answer %+v", a)
					}
				}
				if got := registered(t, s.saves); !slices.Equal(got, []string{"claim one 1 forMs=60000 until=failed key=k1"}) {
					t.Errorf("saved %q", got)
				}
			})
		})
	}
}

// Rule K4.
func TestOnceClaimsBeforeAnythingRuns(t *testing.T) {
	for _, owned := range []bool{false, true} {
		t.Run(fmt.Sprint(owned), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nelkap.Options{})
				s.owned = owned
				played := 0
				nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ order) error {
					played++
					return step.Sleep(ctx, "s", time.Hour)
				}), nelkap.Once(func(o order) string { return o.ID }))
				a := s.call("w", order{ID: "o_1"})
				if owned && (a.Type != "over" || played != 0) || !owned && a.Type != "suspended" {
					t.Errorf("answer %+v, played %d times", a, played)
				}
				if owned {
					return
				}
				s.arrives("s", "", nil)
				if a := s.call("w", order{ID: "o_1"}); a.Type != "completed" {
					t.Errorf("second answer %+v", a)
				}
				if got := registered(t, s.saves); !slices.Equal(got, []string{"claim  1 key=o_1", "sleep s 1 delayMs=3600000"}) || !s.saves[0].Once {
					t.Errorf("saved %q", got)
				}
			})
		})
	}
}

// Section 3 of the protocol: a key has 1 to 512 bytes.
func TestAKeyHasUpTo512Bytes(t *testing.T) {
	key := strings.Repeat("é", 256)
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ order) error {
			_, err := step.Claim(ctx, "a", key)
			return err
		}), nelkap.Once(func(order) string { return key }))
		if a := s.call("w", order{}); a.Type != "completed" {
			t.Errorf("answer %+v %+v", a, a.Error)
		}
		if got := registered(t, s.saves); !slices.Equal(got, []string{"claim  1 key=" + key, "claim a 1 key=" + key}) {
			t.Errorf("saved %q", got)
		}
	})
}

func TestOnceWithoutAKeyFailsTheRun(t *testing.T) {
	for want, key := range map[string]func(order) string{
		"empty": func(order) string { return "" }, "513 bytes": func(order) string { return strings.Repeat("x", 513) },
		"oh no": func(order) string { panic("oh no") },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nelkap.Options{})
			nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(context.Context, order) error { return nil }), nelkap.Once(key))
			if a := s.call("w", order{}); a.Type != "failed" || !strings.Contains(a.Error.Message, want) || len(s.saves) > 0 {
				t.Errorf("%s: answer %+v %+v", want, a, a.Error)
			}
		})
	}
}

// Every refusal is a sentence that says what to do, and nothing is asked of the server.
func TestWaitsThatCanNotBeAreRefused(t *testing.T) {
	ctxOnly := func(ask func(ctx context.Context) error) func(context.Context, *nelkap.App) error {
		return func(ctx context.Context, _ *nelkap.App) error { return ask(ctx) }
	}
	event := func(opts ...step.WaitOption) func(context.Context, *nelkap.App) error {
		return ctxOnly(func(ctx context.Context) error {
			_, _, err := step.WaitForEvent[int](ctx, "a", "e", opts...)
			return err
		})
	}
	callback := func(opts ...step.WaitOption) func(context.Context, *nelkap.App) error {
		return ctxOnly(func(ctx context.Context) error { _, err := step.NewCallback[int](ctx, "a", opts...); return err })
	}
	claim := func(key string, opts ...step.ClaimOption) func(context.Context, *nelkap.App) error {
		return ctxOnly(func(ctx context.Context) error { _, err := step.Claim(ctx, "a", key, opts...); return err })
	}
	for want, ask := range map[string]func(ctx context.Context, app *nelkap.App) error{
		"take -1s: give 0 or more":       ctxOnly(func(ctx context.Context) error { return step.Sleep(ctx, "a", -time.Second) }),
		"a year at most":                 ctxOnly(func(ctx context.Context) error { return step.Sleep(ctx, "a", 367*24*time.Hour) }),
		"within a year from now":         ctxOnly(func(ctx context.Context) error { return step.SleepUntil(ctx, "a", time.Time{}) }),
		"the step needs one":             ctxOnly(func(ctx context.Context) error { return step.Sleep(ctx, "", 1) }),
		"is one of a handler's steps":    ctxOnly(func(ctx context.Context) error { return step.Sleep(ctx, "onFailure: a", 1) }),
		"the name that the step had":     ctxOnly(func(ctx context.Context) error { return step.Sleep(ctx, "a", 1, step.Was("")) }),
		"needs the name of an event":     ctxOnly(func(ctx context.Context) error { _, err := step.WaitForAny(ctx, "a", nil); return err }),
		"the event needs one":            ctxOnly(func(ctx context.Context) error { _, err := step.WaitForAny(ctx, "a", []string{"e", ""}); return err }),
		"Timeout can't be -1s":           event(step.Timeout(-time.Second)),
		"Timeout can't be 0s":            ctxOnly(func(ctx context.Context) error { return step.Do(ctx, "a", nil, step.Timeout(0)) }),
		"is no CEL expression":           event(step.If("")),
		`"payload.id", not ""`:           event(step.Match("", 1)),
		`"payload.id", not "id"`:         event(step.Match("id", 1)),
		`not "payload..id"`:              event(step.Match("payload..id", 1)),
		`not "payload.\n"`:               event(step.Match("payload.\n", 1)),
		"no event has both":              event(step.Match("payload.p", 1), step.Match("payload.p", 2)),
		"match is NaN":                   event(step.Match("payload", math.NaN())),
		"must match is a []int":          event(step.Match("payload.p", []int{1})),
		"must match is a struct {}":      event(step.Match("payload.p", struct{}{})),
		"leave out Match":                callback(step.Match("payload.p", 1)),
		"leave out If":                   callback(step.If("true")),
		"leave out SinceWait":            callback(step.SinceWait()),
		"only a callback of NewCallback": ctxOnly(func(ctx context.Context) error { _, _, err := new(step.Callback[int]).Wait(ctx); return err }),
		"the key of a claim is empty":    claim(""),
		"has 513 bytes":                  claim(strings.Repeat("x", 513)),
		"must be UTF-8":                  claim("\xff"),
		"For can't be 0s: leave it out":  claim("k", step.For(0)),
		"For can't be 876600h0m1s":       claim("k", step.For(876_600*time.Hour+time.Second)),
		"neither Retries nor a check":    ctxOnly(func(ctx context.Context) error { return step.Do(ctx, "a", nil, step.AtMostOnce(), step.Retries(1)) }),
		"workflow of NewWorkflow or Ref": ctxOnly(func(ctx context.Context) error { _, err := step.Invoke[int, int](ctx, "a", nil, 1); return err }),
		"be sent: payload": func(ctx context.Context, app *nelkap.App) error {
			_, err := step.Invoke(ctx, "a", nelkap.Ref[any, int](app, "x"), any(make(chan int)))
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nelkap.Options{})
			nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error { return ask(ctx, s.app) }))
			if a := s.call("w", nil); a.Type != "failed" || a.Retriable || !strings.Contains(a.Error.Message, want) || len(s.saves) > 0 {
				t.Errorf("want %q: answer %+v %+v, saved %v", want, a, a.Error, s.savedNames())
			}
		})
	}
}

func TestWaitsOutsideARunAndInABodyAreRefused(t *testing.T) {
	app := nelkap.New(nelkap.Options{})
	all := map[string]func(ctx context.Context) error{
		"Sleep":        func(ctx context.Context) error { return step.Sleep(ctx, "a", 1) },
		"SleepUntil":   func(ctx context.Context) error { return step.SleepUntil(ctx, "a", time.Now()) },
		"WaitForEvent": func(ctx context.Context) error { _, _, err := step.WaitForEvent[int](ctx, "a", "e"); return err },
		"WaitForAny":   func(ctx context.Context) error { _, err := step.WaitForAny(ctx, "a", []string{"e"}); return err },
		"Invoke": func(ctx context.Context) error {
			_, err := step.Invoke(ctx, "a", nelkap.Ref[int, int](app, "w"), 1)
			return err
		},
		"Claim":       func(ctx context.Context) error { _, err := step.Claim(ctx, "a", "k"); return err },
		"NewCallback": func(ctx context.Context) error { _, err := step.NewCallback[int](ctx, "a"); return err },
		"Parallel":    func(ctx context.Context) error { return step.Parallel(ctx, func(context.Context) error { return nil }) },
		"Map": func(ctx context.Context) error {
			_, err := step.Map(ctx, []int{1}, func(context.Context, int) (int, error) { return 1, nil })
			return err
		},
		"Race": func(ctx context.Context) error { _, _, err := step.Race(ctx, constant(1)); return err },
	}
	for name, ask := range all {
		if err := ask(t.Context()); !errors.Is(err, nelkap.ErrNotInRun) {
			t.Errorf("%s outside a run: %v", name, err)
		}
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nelkap.Options{})
			nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error { return step.Do(ctx, "outer", ask) }))
			if a := s.call("w", nil); a.Type != "failed" || !strings.Contains(a.Error.Message, "a step can't start a step") || len(s.saves) != 1 {
				t.Errorf("%s in a body: %+v %+v", name, a, a.Error)
			}
		})
	}
}

// Rule Z1.
func TestACancelledRunStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nelkap.Options{})
		s.ending = &wire.Ending{Reason: wire.ReasonCancelled}
		nelkap.NewWorkflow(s.app, "w", nelkap.NoResult(func(ctx context.Context, _ nelkap.None) error {
			if err := step.Do(ctx, "a", func(context.Context) error { return nil }); err != nil {
				return err
			}
			return step.Sleep(ctx, "s", time.Hour)
		}))
		if a := s.call("w", nil); a.Type != "yielded" || len(s.waiting) > 0 {
			t.Errorf("answer %+v, open %v", a, s.open())
		}
	})
}
